#!/bin/sh
# Install the documents into a folder: the README, what it links to, and docs/ without the data of the benchmarks.
set -eu

folder=$1
checkout=$(cd "$(dirname "$0")/.." && pwd)

install -d -m 755 "$folder/docs"
(cd "$checkout/docs" && find . -type f \( -name '*.md' -o -name '*.svg' -o -name '*.png' -o -name '*.yml' \
  -o -path './monitoring/*.json' -o -path './examples/*' -o -path './schemas/*' \)) |
  while read -r page; do install -D -m 644 "$checkout/docs/$page" "$folder/docs/$page"; done
for page in README.md CHANGELOG.md LICENSE; do install -m 644 "$checkout/$page" "$folder/$page"; done
