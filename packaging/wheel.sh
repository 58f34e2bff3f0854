#!/bin/sh
# Build the wheel of this checkout: packaging/wheel.sh FOLDER. With ONCEGATE_COMPILE=1 it is compiled, for this
# processor and this Python. PIP is the command to build with.
set -eu

folder=$1
checkout=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# A copy, since a build leaves files that the next one would pack.
mkdir "$work/source" "$work/wheel"
for part in agent cloud contract simulators pyproject.toml setup.py MANIFEST.in README.md LICENSE; do
  cp -r "$checkout/$part" "$work/source/"
done
PIP_CONSTRAINT=$checkout/constraints.txt ${PIP:-python3 -m pip} --quiet --disable-pip-version-check \
  wheel --no-deps --wheel-dir "$work/wheel" "$work/source"
mkdir -p "$folder"
for wheel in "$work"/wheel/oncegate-*.whl; do
  mv -f "$wheel" "$folder/"
  echo "$folder/${wheel##*/}"
done
