#!/bin/sh
# Build the wheel of this checkout: packaging/wheel.sh FOLDER [MACHINE]. With ONCEGATE_COMPILE=1 it is compiled, for this
# Python and for MACHINE: x86_64 or aarch64, by default this processor; another one needs Debian's cross compiler and
# libpython3-dev of that architecture. PIP is the command to build with.
set -eu

folder=$1 machine=${2:-$(uname -m)}
checkout=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# A copy, since a build leaves files that the next one would pack.
mkdir "$work/source" "$work/wheel"
for part in agent cloud contract simulators pyproject.toml setup.py MANIFEST.in README.md LICENSE; do
  cp -r "$checkout/$part" "$work/source/"
done
set --
if [ "$machine" != "$(uname -m)" ]; then
  suffix=$(python3 -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')
  suffix=$(echo "$suffix" | sed "s/$(uname -m)/$machine/")
  export CC="$machine-linux-gnu-gcc" LDSHARED="$machine-linux-gnu-gcc -shared" SETUPTOOLS_EXT_SUFFIX="$suffix"
  set -- "--config-settings=--build-option=--plat-name=linux_$machine"
fi
# With another seed the compiler may write its code in another order.
PYTHONHASHSEED=0 PIP_CONSTRAINT=$checkout/constraints.txt ${PIP:-python3 -m pip} --quiet --disable-pip-version-check \
  wheel --no-deps --wheel-dir "$work/wheel" "$@" "$work/source"
mkdir -p "$folder"
for wheel in "$work"/wheel/oncegate-*.whl; do
  mv -f "$wheel" "$folder/"
  echo "$folder/${wheel##*/}"
done
