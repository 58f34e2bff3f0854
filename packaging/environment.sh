#!/bin/sh
# Build the gateway's Python environment in a folder, for use at the path where it will be installed.
#
#   packaging/environment.sh FOLDER PLACE [MACHINE]
#
# MACHINE is the architecture of the wheels: x86_64 or aarch64; the default is this machine's. PYTHON_VERSION is the
# version of the Python that will run them, such as 3.13; the default is that of the building one. The environment
# contains no interpreter (it names the system's), no compiled sources (they are compiled where it is installed), and none
# of the packages that others require, and that no program of a gateway imports: pip above all. WHEEL names our own wheel,
# which is compiled for that machine and that Python; otherwise the pure one of this checkout is built. PIP is the command to
# install with; otherwise an environment with pip is made for it.
#
# gateway.txt has the packages with their checksums: another file of the same version is refused.
#
# An existing environment is replaced only when the new one is complete, and only if this script has made it (MARK in its
# pyvenv.cfg) and it contains nothing else.
set -eu

folder=$1 place=$2 machine=${3:-$(uname -m)}
checkout=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-/usr/bin/python3}
new=$folder.new old=$folder.old
mark='made-by = oncegate'

refuse() {
  echo "environment: $1; nothing was changed. Move it away, or choose another path: make install LIBRARY=/path" >&2
  exit 1
}
# Whether a folder has nothing but a file that was created and not yet written.
is_empty() {
  [ ! -s "$1/pyvenv.cfg" ] && [ -z "$(find "$1" -mindepth 1 ! -name pyvenv.cfg -print -quit)" ]
}
# Whatever an interrupted removal leaves has its mark, or is empty.
remove() {
  for gone in "$@"; do
    [ ! -d "$gone" ] || find "$gone" -mindepth 1 -maxdepth 1 ! -name pyvenv.cfg -exec rm -rf {} +
    rm -rf "$gone"
  done
}
# The path stands in the first line of a script, which takes no blanks and begins at the root.
case $place in
  *[!A-Za-z0-9/._+-]*) refuse "$place: a path may contain letters, digits and / . _ + - only" ;;
esac
case $place/ in
  *//* | */./* | */../*) refuse "$place: expected a path without //, /./, /../ and a slash at its end" ;;
esac
case $place in
  /*) ;;
  *) refuse "$place is not an absolute path" ;;
esac
for made in "$folder" "$new" "$old"; do
  case $(realpath "$checkout")/ in
    "$(realpath -m "$made")"/*) refuse "$made contains this checkout" ;;
  esac
done
# If a replacement was interrupted between its two renames, restore the old environment.
if [ ! -e "$folder" ] && grep -qsx "$mark" "$old/pyvenv.cfg"; then mv "$old" "$folder"; fi
for made in "$folder" "$new" "$old"; do
  [ ! -L "$made" ] || refuse "$made is a symbolic link"
  [ -e "$made" ] || continue
  [ -d "$made" ] || refuse "$made is not a folder"
  foreign=$(find "$made" -mindepth 1 -maxdepth 1 \
    ! -name bin ! -name include ! -name lib ! -name lib64 ! -name share ! -name pyvenv.cfg -print -quit)
  [ -z "$foreign" ] || refuse "$foreign is not part of an environment of Oncegate"
  grep -qsx "$mark" "$made/pyvenv.cfg" || is_empty "$made" || refuse "$made is not an environment of Oncegate"
done
remove "$new" "$old"

work=$(mktemp -d)
abandon() {
  status=$?
  rm -rf "$work"
  remove "$new"
  [ "$status" = 0 ] || echo "environment: not complete (see above); $folder was not changed" >&2
  exit "$status"
}
trap abandon EXIT
trap 'exit 1' HUP INT TERM

"$python" -c 'import sys; sys.exit(sys.version_info[:2] < (3, 11))' || {
  echo "environment: $python is missing, or older than 3.11" >&2; exit 1; }
if [ -z "${PIP:-}" ]; then
  "$python" -m venv "$work/tools" || { echo 'environment: run: apt-get install python3-venv' >&2; exit 1; }
  PIP="$work/tools/bin/python -m pip"
fi
pip="$PIP --quiet --disable-pip-version-check"

wheel=${WHEEL:-}
[ -n "$wheel" ] || wheel=$(ONCEGATE_COMPILE=0 PIP="$PIP" "$checkout/packaging/wheel.sh" "$work/wheels")

# What `python -m venv` makes, of which the interpreter reads the first line (PEP 405): it need not be here to be named.
version=${PYTHON_VERSION:-$("$python" -c 'import sys; print(f"{sys.version_info[0]}.{sys.version_info[1]}")')}
interpreter=$("$python" -c 'import sys; print(sys._base_executable)')
packages=$new/lib/python$version/site-packages
mkdir -p "$new"
printf 'home = %s\ninclude-system-site-packages = false\nversion = %s\n%s\n' "$(dirname "$interpreter")" "$version" \
  "$mark" > "$new/pyvenv.cfg"
mkdir -p "$new/bin" "$packages"
ln -s "$interpreter" "$new/bin/python3"
ln -s python3 "$new/bin/python"
printf '%s[oscore] --hash=sha256:%s\n' "$wheel" "$(sha256sum "$wheel" | cut -d ' ' -f 1)" > "$work/own.txt"
$pip install --target "$packages" --no-compile --only-binary :all: --python-version "$version" --implementation cp \
  --platform "manylinux_2_34_$machine" --platform "manylinux_2_28_$machine" --platform "manylinux_2_17_$machine" \
  --platform "manylinux2014_$machine" --platform "linux_$machine" --require-hashes -r "$checkout/packaging/gateway.txt" \
  -r "$work/own.txt"

# Remove what nothing here imports (a test imports all modules), what only developers need, and what names the path of
# the build. sqlite-utils requires pip, dateutil tzdata, and cryptography cffi, of which it uses the compiled part
# alone (decision 23).
for unused in pip tzdata pycparser; do rm -rf "${packages:?}/$unused" "$packages/$unused"-*.dist-info; done
for unused in bin cffi cloud simulators; do rm -rf "${packages:?}/$unused"; done
find "$packages" -name direct_url.json -delete
find "$packages" -name RECORD -exec sed -i '/direct_url[.]json,/d; /^[.][.][/]/d' {} +
find "$packages" -name '*.pyi' -delete
find "$new" -name __pycache__ -prune -exec rm -rf {} +
printf '#!%s/bin/python3 -I\nimport sys\n\nfrom agent.cli.main import main\n\nsys.exit(main())\n' "$place" \
  > "$new/bin/oncegate"
chmod 755 "$new/bin/oncegate"

# No package can be missing from here on. The new files are on disk before they replace the old environment, and the
# replacement is before that is removed. Most file systems exchange two folders in one step (renameat2): then one of the two
# environments is in place at any moment.
sync -f "$new"
trap 'rm -rf "$work"; remove "$new"' EXIT
if [ -e "$folder" ] && ! "$python" - "$new" "$folder" << 'END'
import ctypes, os, sys
new, folder = map(os.fsencode, sys.argv[1:])
AT_FDCWD, RENAME_EXCHANGE = -100, 2
sys.exit(ctypes.CDLL(None).renameat2(AT_FDCWD, new, AT_FDCWD, folder, RENAME_EXCHANGE) != 0)
END
then
  mv -T "$folder" "$old"
fi
[ -e "$folder" ] || mv -T "$new" "$folder"
sync "${folder%/*}/"
remove "$new" "$old"
