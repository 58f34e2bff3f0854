#!/bin/sh
# Build the gateway's environment in a folder, so that it works at the place where it will stand.
#
#   packaging/environment.sh FOLDER PLACE [MACHINE]
#
# MACHINE is that of the wheels: x86_64 or aarch64, this one's where it is not said. The environment has Debian's
# Python, no pip, and nothing compiled: that is done where it is installed.
set -eu

folder=$1 place=$2 machine=${3:-$(uname -m)}
checkout=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-/usr/bin/python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

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

rm -rf "$folder"
"$python" -m venv --without-pip "$folder"
version=$("$python" -c 'import sys; print(f"{sys.version_info[0]}.{sys.version_info[1]}")')
packages=$folder/lib/python$version/site-packages
$pip install --target "$packages" --no-compile --only-binary :all: --python-version "$version" --implementation cp \
  --platform "manylinux_2_34_$machine" --platform "manylinux_2_28_$machine" --platform "manylinux_2_17_$machine" \
  --platform "manylinux2014_$machine" -c "$checkout/constraints.txt" "$(echo "$work"/wheels/oncegate-*.whl)[oscore]"

# Neither what only developers need nor anything that names the place of the build.
rm -rf "$packages/bin" "$folder/include" "$folder"/bin/[Aa]ctivate* "$packages/cloud" "$packages/simulators"
find "$packages" -name direct_url.json -delete
find "$packages" -name '*.pyi' -delete
find "$folder" -name __pycache__ -prune -exec rm -rf {} +
sed -i '/^command = /d' "$folder/pyvenv.cfg"
printf '#!%s/bin/python3 -I\nimport sys\n\nfrom agent.command_line import main\n\nsys.exit(main())\n' "$place" \
  > "$folder/bin/oncegate"
chmod 755 "$folder/bin/oncegate"
