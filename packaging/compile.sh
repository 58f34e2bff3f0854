#!/bin/sh
# Build the compiled wheel for a release of Debian, by its own Python and compilers, in a temporary root of it:
#
#   packaging/compile.sh RELEASE MACHINE FOLDER
#
# RELEASE is 12 or 13, MACHINE x86_64 or aarch64, for which Debian's cross compiler is used elsewhere. Whoever is not
# root needs user namespaces, as mmdebstrap does.
set -eu

release=$1 machine=$2 folder=$3
checkout=$(cd "$(dirname "$0")/.." && pwd)
command -v mmdebstrap > /dev/null || {
  echo 'compile: run: sudo apt-get install mmdebstrap; or build the pure form: ONCEGATE_COMPILE=0' >&2; exit 1; }
case $release in
  12) suite=bookworm ;;
  13) suite=trixie ;;
esac
native=$(dpkg --print-architecture) tools=python3-venv,python3-dev,gcc,libc6-dev,ca-certificates
case $machine in
  "$(uname -m)") architectures=$native ;;
  aarch64) architectures=$native,arm64 tools=$tools,gcc-aarch64-linux-gnu,libpython3-dev:arm64 ;;
  *) echo "compile: no cross compiler for $machine is supported" >&2; exit 1 ;;
esac
# This machine's sources of Debian itself, for that release.
own=$(. /etc/os-release && echo "$VERSION_CODENAME")
for sources in /etc/apt/sources.list.d/*.sources /etc/apt/sources.list; do
  if grep -qs "debian" "$sources" && grep -qsw "$own" "$sources"; then break; fi
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
mkdir "$work/source" "$work/wheel"
for part in agent cloud contract simulators packaging pyproject.toml setup.py MANIFEST.in README.md LICENSE constraints.txt; do
  cp -r "$checkout/$part" "$work/source/"
done
echo "compile: compiling for Debian $release in a root of its own; this takes some minutes" >&2
# The build's requirements come from the package index that this machine uses.
cp -L /etc/ssl/certs/ca-certificates.crt "$work/authorities.pem"
sed "s/$own/$suite/g" "$sources" | mmdebstrap --quiet --variant=apt --architectures="$architectures" --include="$tools" \
  --customize-hook="copy-in $work/source /tmp" --customize-hook="upload $work/authorities.pem /etc/ssl/certs/ca-certificates.crt" \
  --customize-hook='chroot "$1" python3 -m venv /tmp/tools' \
  --customize-hook="chroot \"\$1\" env ONCEGATE_COMPILE=1 PIP=/tmp/tools/bin/pip /tmp/source/packaging/wheel.sh /tmp/wheel $machine" \
  --customize-hook="sync-out /tmp/wheel $work/wheel" "$suite" /dev/null - >&2
mkdir -p "$folder"
for wheel in "$work"/wheel/oncegate-*.whl; do
  mv -f "$wheel" "$folder/"
  echo "$folder/${wheel##*/}"
done
