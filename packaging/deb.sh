#!/bin/sh
# Build the Debian package into dist/, on any Debian: packaging/deb.sh [amd64|arm64] [12|13].
#
# It contains wheels for that architecture and for the Python of that release of Debian; the default is this machine's. Our
# own is compiled (packaging/compile.sh), unless ONCEGATE_COMPILE=0 chooses the pure form, or WHEEL names a built one.
set -eu

checkout=$(cd "$(dirname "$0")/.." && pwd)
architecture=${1:-$(dpkg --print-architecture)}
case $architecture in
  amd64) machine=x86_64 ;;
  arm64) machine=aarch64 ;;
  *) echo "deb: $architecture is not supported: there is no wheel of the Kafka client for it" >&2; exit 1 ;;
esac
# Units are in /lib up to Debian 12, where /lib may be a folder of its own, and in /usr/lib from 13 on.
release=${2:-$(. /etc/os-release && echo "${ID:-}${VERSION_ID:-}")}
case $release in
  12|debian12) release=12 python_version=3.11 next_version=3.12 units=/lib/systemd/system ;;
  13|debian13) release=13 python_version=3.13 next_version=3.14 units=/usr/lib/systemd/system ;;
  *) echo "deb: no package is built for ${release:-this system}; choose a release of Debian: make deb RELEASE=13" >&2
     exit 1 ;;
esac
# A package for a later release counts as newer, so that an upgrade of Debian replaces the package, too.
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$checkout/pyproject.toml")+deb$release
date=${SOURCE_DATE_EPOCH:-$(cd "$checkout" && git log -1 --format=%ct 2> /dev/null || date +%s)}
export SOURCE_DATE_EPOCH="$date"
maintainer=${MAINTAINER:-'Oncegate maintainers <oncegate@packages.invalid>'}
root=$(mktemp -d) wheels=$(mktemp -d) commands=$(mktemp -d)
trap 'rm -rf "$root" "$wheels" "$commands"' EXIT
chmod 755 "$root"

wheel=${WHEEL:-}
if [ -z "$wheel" ] && [ "${ONCEGATE_COMPILE:-1}" = 1 ]; then
  wheel=$("$checkout/packaging/compile.sh" "$release" "$machine" "$wheels")
fi
# Each command prints its manual page itself, and imports packages: those of another Python or processor cannot be loaded here.
WHEEL='' "$checkout/packaging/environment.sh" "$commands/own" "$commands/own"
WHEEL=$wheel COMMANDS=$commands/own DESTDIR=$root LIBRARY=/usr/lib/oncegate BIN=/usr/bin UNITS=$units \
  DOCUMENTS=/usr/share/doc/oncegate PAGES=/usr/share/man/man1 BASH_COMPLETIONS=/usr/share/bash-completion/completions \
  ZSH_COMPLETIONS=/usr/share/zsh/vendor-completions MACHINE=$machine PYTHON_VERSION=$python_version \
  "$checkout/packaging/install.sh"
rm -rf "$root/etc/oncegate/secrets"

documents=$root/usr/share/doc/oncegate
install -m 644 "$checkout/packaging/copyright" "$documents/copyright"
{
  printf 'oncegate (%s) unstable; urgency=medium\n\n  * See docs and CHANGELOG.md of the sources.\n\n' "$version"
  printf ' -- %s  %s\n' "$maintainer" "$(date -R -u -d "@$date")"
} | gzip -9n > "$documents/changelog.gz"
install -D -m 644 "$checkout/packaging/lintian-overrides" "$root/usr/share/lintian/overrides/oncegate"
gzip -9n "$root"/usr/share/man/man1/oncegate*.1

# Wheels may contain shared objects with unusual modes.
find "$root" -type d -exec chmod 755 {} +
find "$root/usr/lib/oncegate" -type f ! -path '*/bin/*' -exec chmod 644 {} +

mkdir "$root/DEBIAN"
for script in postinst prerm postrm; do install -m 755 "$checkout/packaging/$script" "$root/DEBIAN/$script"; done
echo /etc/oncegate/oncegate.toml > "$root/DEBIAN/conffiles"
size=$(du -sk --exclude=DEBIAN "$root" | cut -f1)
sed "s/@VERSION@/$version/; s/@ARCHITECTURE@/$architecture/; s/@SIZE@/$size/; s/@MAINTAINER@/$maintainer/
  s/@PYTHON@/$python_version/; s/@NEXT@/$next_version/" "$checkout/packaging/control" > "$root/DEBIAN/control"
(cd "$root" && find . -type f ! -path './DEBIAN/*' -printf '%P\0' | LC_ALL=C sort -z | xargs -0 md5sum) \
  > "$root/DEBIAN/md5sums"
find "$root" -exec touch -h -d "@$date" {} +

dist=${DIST:-$checkout/dist}
mkdir -p "$dist"
package=$dist/oncegate_${version}_$architecture.deb
dpkg-deb --root-owner-group --uniform-compression -Zxz --build "$root" "$package" > /dev/null
echo "$package"
