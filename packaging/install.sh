#!/bin/sh
# Install everything that a gateway needs; `packaging/install.sh remove` removes it, but neither configuration, secrets, store
# nor user.
#
# DESTDIR is prepended to every path. LIBRARY, BIN, UNITS, DOCUMENTS, PAGES, BASH_COMPLETIONS and ZSH_COMPLETIONS set the
# paths; `make deb` uses others. COMMANDS is an environment of the same commands that this machine's Python can run, where
# LIBRARY is for another one.
# An existing configuration is not changed.
set -eu

checkout=$(cd "$(dirname "$0")/.." && pwd)
destination=${DESTDIR:-}
library=${LIBRARY:-/opt/oncegate} bin=${BIN:-/usr/local/bin} units=${UNITS:-/etc/systemd/system}
documents=${DOCUMENTS:-/usr/local/share/doc/oncegate} pages=${PAGES:-/usr/local/share/man/man1}
bash_completions=${BASH_COMPLETIONS:-/usr/local/share/bash-completion/completions}
zsh_completions=${ZSH_COMPLETIONS:-/usr/local/share/zsh/site-functions}
machine=${MACHINE:-$(uname -m)}
configuration=$destination/etc/oncegate

if [ -z "$destination" ] && [ "$(id -u)" != 0 ]; then
  echo "install: only root may do this: sudo make install" >&2
  exit 1
fi

if [ "${1:-}" = remove ]; then
  if [ -e "$destination$library" ] && ! grep -qsx 'made-by = oncegate' "$destination$library/pyvenv.cfg"; then
    echo "install: $destination$library is not an environment of Oncegate; nothing was removed" >&2
    exit 1
  fi
  if [ -z "$destination" ] && [ -d /run/systemd/system ]; then systemctl disable --quiet --now oncegate.service || true; fi
  rm -f "$destination$units/oncegate.service" "$destination$bin/oncegate" "$destination$pages"/oncegate.1 \
    "$destination$pages"/oncegate-*.1 "$destination$bash_completions/oncegate" "$destination$zsh_completions/_oncegate"
  rm -rf "$destination${documents:?}" "$destination${library:?}"
  if [ -z "$destination" ] && [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
  echo "install: removed; /etc/oncegate and /var/lib/oncegate are kept"
  exit 0
fi

# The unit of `make install` takes precedence over that of the package: only one of the two may be there.
if [ -z "$destination" ] && [ "$(dpkg-query -W -f '${db:Status-Status}' oncegate 2> /dev/null)" = installed ]; then
  echo "install: the package oncegate is installed; nothing was changed. Run first: apt remove oncegate" >&2
  exit 1
fi

# One installation at a time: two would build the same new environment. The lock is on the folder in which it is built, and
# held by the children, too, which may outlive a killed installation.
mkdir -p "$destination${library%/*}/"
exec 9< "$destination${library%/*}/"
flock -n 9 || { echo "install: another installation into $destination$library is running; nothing was changed" >&2; exit 1; }

# Put FILE.new in place of FILE: a kill or a power cut leaves the one or the other, complete.
replace() {
  chmod 644 "$1.new"
  sync "$1.new"
  mv -fT "$1.new" "$1"
}

"$checkout/packaging/environment.sh" "$destination$library" "$library" "$machine"

install -d -m 755 "$destination$bin" "$destination$units" "$configuration"
install -d -m 700 "$configuration/secrets"
# Not by `ln -f`, of which a kill may leave a link with a random name.
rm -f "$destination$bin/oncegate.new"
ln -s "$library/bin/oncegate" "$destination$bin/oncegate.new"
mv -fT "$destination$bin/oncegate.new" "$destination$bin/oncegate"
sed "s#/usr/bin/oncegate#$bin/oncegate#; s#/usr/share/doc/oncegate#$documents#" "$checkout/systemd/oncegate.service" \
  > "$destination$units/oncegate.service.new"
replace "$destination$units/oncegate.service"
if [ ! -e "$configuration/oncegate.toml" ]; then
  # -E: with PYTHONUNBUFFERED, print would lose the rest of a short write without an error.
  (cd "$checkout" && "${PYTHON:-/usr/bin/python3}" -EB -c '
import sys
sys.path.insert(0, sys.argv[1])
from agent.config.reference import example
print(example(), end="")' "$(echo "$destination$library"/lib/python3*/site-packages)") > "$configuration/oncegate.toml.new"
  replace "$configuration/oncegate.toml"
fi
# The manual pages and the completion of bash and zsh, of the commands that were installed.
(cd "$checkout" && "${PYTHON:-/usr/bin/python3}" -EB -c '
import sys
sys.path.insert(0, sys.argv.pop(1))
from agent.cli.manual import main
main()' "$(echo "${COMMANDS:-$destination$library}"/lib/python3*/site-packages)" \
  "$destination$pages" "$destination$bash_completions/oncegate" "$destination$zsh_completions/_oncegate")
"$checkout/packaging/documents.sh" "$destination$documents"

[ -z "$destination" ] || exit 0

# Without DESTDIR: create the user and the state folder, compile the sources, and enable the unit.
if ! getent passwd oncegate > /dev/null; then
  useradd --system --user-group --home-dir /var/lib/oncegate --no-create-home --shell /usr/sbin/nologin oncegate
fi
install -d -m 750 -o oncegate -g oncegate /var/lib/oncegate
"$library/bin/python3" -I -m compileall -q "$library/lib"
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  systemctl enable --quiet oncegate.service
fi
if "$bin/oncegate" check > /dev/null 2>&1; then
  if [ -d /run/systemd/system ]; then systemctl --no-block restart oncegate.service; fi
  echo "install: done; next: sudo oncegate doctor"
else
  echo "install: done; next: edit /etc/oncegate/oncegate.toml, then run: oncegate check && systemctl start oncegate"
fi
