#!/bin/sh
# Build the gateway's environment in a folder, so that it works at the place where it will stand.
#
#   packaging/environment.sh FOLDER PLACE [MACHINE]
#
# MACHINE is the architecture of the wheels: x86_64 or aarch64; the default is this machine's. The environment has
# Debian's Python, no pip, and nothing compiled: that is done where it is installed.
#
# An environment that exists is replaced only when the new one is complete, and only if it holds nothing else.
set -eu

folder=$1 place=$2 machine=${3:-$(uname -m)}
checkout=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-/usr/bin/python3}
new=$folder.new old=$folder.old

refuse() {
  echo "environment: $1; nothing was changed. Move it away, or choose another place: make install LIBRARY=/path" >&2
  exit 1
}
# A replacement that was interrupted between its two renames left no environment: take the old one back.
if [ ! -e "$folder" ] && [ -f "$old/pyvenv.cfg" ]; then mv "$old" "$folder"; fi
for made in "$folder" "$new" "$old"; do
  [ ! -L "$made" ] || refuse "$made is a symbolic link"
  [ -e "$made" ] || continue
  [ -d "$made" ] || refuse "$made is not a folder"
  foreign=$(find "$made" -mindepth 1 -maxdepth 1 \
    ! -name bin ! -name include ! -name lib ! -name lib64 ! -name share ! -name pyvenv.cfg -print -quit)
  [ -z "$foreign" ] || refuse "$foreign is not part of an environment of Oncegate"
  [ -f "$made/pyvenv.cfg" ] || [ -z "$(ls -A "$made")" ] || refuse "$made is not an environment of Oncegate"
done

work=$(mktemp -d)
trap 'rm -rf "$work" "$new"' EXIT
trap 'exit 1' HUP INT TERM

"$python" -c 'import sys; sys.exit(sys.version_info[:2] < (3, 11))' || {
  echo "environment: $python is older than 3.11" >&2; exit 1; }
"$python" -m venv "$work/tools" || { echo 'environment: run: apt-get install python3-venv' >&2; exit 1; }
pip="$work/tools/bin/python -m pip --quiet --disable-pip-version-check"

# Built from a copy, so that a build as root leaves nothing in the checkout.
mkdir "$work/source"
for part in agent cloud contract simulators pyproject.toml README.md LICENSE; do
  cp -r "$checkout/$part" "$work/source/"
done
$pip wheel --no-deps --wheel-dir "$work/wheels" "$work/source"

rm -rf "$new" "$old"
"$python" -m venv --without-pip "$new"
version=$("$python" -c 'import sys; print(f"{sys.version_info[0]}.{sys.version_info[1]}")')
packages=$new/lib/python$version/site-packages
$pip install --target "$packages" --no-compile --only-binary :all: --python-version "$version" --implementation cp \
  --platform "manylinux_2_34_$machine" --platform "manylinux_2_28_$machine" --platform "manylinux_2_17_$machine" \
  --platform "manylinux2014_$machine" -c "$checkout/constraints.txt" "$(echo "$work"/wheels/oncegate-*.whl)[oscore]"

# Neither what only developers need nor anything that names the place of the build.
rm -rf "$packages/bin" "$new/include" "$new"/bin/[Aa]ctivate* "$packages/cloud" "$packages/simulators"
find "$packages" -name direct_url.json -delete
find "$packages" -name '*.pyi' -delete
find "$new" -name __pycache__ -prune -exec rm -rf {} +
sed -i '/^command = /d' "$new/pyvenv.cfg"
printf '#!%s/bin/python3 -I\nimport sys\n\nfrom agent.cli.main import main\n\nsys.exit(main())\n' "$place" \
  > "$new/bin/oncegate"
chmod 755 "$new/bin/oncegate"

# From here on nothing can fail for want of a package. The files are on disk before the old environment leaves.
sync -f "$new"
if [ -e "$folder" ]; then mv -T "$folder" "$old"; fi
mv -T "$new" "$folder"
rm -rf "$old"
