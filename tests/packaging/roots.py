"""Clean Debian systems in folders, for the installation of the package."""

import os
import platform
import shutil
from pathlib import Path

from simulators.services.error import ServiceError
from simulators.services.install import programs
from tests.support.commands import Completed, output_of, run

CHECKOUT = Path(__file__).resolve().parents[2]
SUITES = {"12": "bookworm", "13": "trixie"}
"""The names of the supported releases of Debian."""
INCLUDED = "python3,python3-venv,systemd,systemd-sysv,dbus,adduser,libcoap3-bin"
_SOURCES = Path("/etc/apt")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""PATH of root on Debian."""


class Root:
    """A system in a folder; commands run in it by chroot."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, *command: str, environment: dict[str, str] | None = None, check: bool = True) -> Completed:
        given = {"PATH": PATH, "HOME": "/root", "LC_ALL": "C.UTF-8", **(environment or {})}
        variables = (f"{name}={value}" for name, value in given.items())
        done = run("chroot", self.folder, "env", "-i", *variables, *command)
        assert not check or done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    def path(self, place: str) -> Path:
        return self.folder / place.lstrip("/")

    def install(self, package: Path, *options: str) -> str:
        shutil.copy(package, self.path("/tmp/oncegate.deb"))
        done = self.run("dpkg", *options, "-i", "/tmp/oncegate.deb", environment={"DEBIAN_FRONTEND": "noninteractive"})
        return done.stdout + done.stderr

    def configure(self, text: str = "") -> None:
        """Write the two settings without default, and `text`, into the installed configuration."""
        file = self.path("/etc/oncegate/oncegate.toml")
        written = file.read_text().replace('# id = "gw1"', 'id = "gw1"')
        file.write_text(written.replace("# bootstrap_servers =", "bootstrap_servers =") + text)


def bind(root: Root, coap_port: int, http_port: int) -> None:
    """Have the configured agent listen on these ports of the loopback, and reach no Kafka."""
    file = root.path("/etc/oncegate/oncegate.toml")
    text = file.read_text().replace('"kafka-1:9092,kafka-2:9092"', '"127.0.0.1:1"')
    text = text.replace('# bind = "[::]:5683"', f'bind = "[::1]:{coap_port}"')
    file.write_text(text.replace('# bind = "127.0.0.1:8580"', f'bind = "127.0.0.1:{http_port}"'))


def limit_store(root: Root) -> None:
    """Have the installed agent's store be full after some thousand events."""
    file = root.path("/etc/oncegate/oncegate.toml")
    text = file.read_text()
    assert '# max_bytes = "1GiB"' in text
    file.write_text(text.replace('# max_bytes = "1GiB"', 'max_bytes = "2MiB"'))


def build(archive: Path, suite: str, included: str = INCLUDED, architecture: str | None = None) -> None:
    """Create an archive of a clean system of a release from this machine's package sources."""
    command = [programs.require("mmdebstrap"), "--mode=root", "--variant=minbase", f"--include={included}"]
    command += [f"--architectures={architecture}"] if architecture else []
    done = run(*command, suite, archive, "-", text=_sources(suite))
    if done.returncode != 0:
        raise ServiceError(f"mmdebstrap ended with status {done.returncode}\n{done.stderr[-2_000:]}")


def unpack(archive: Path, folder: Path) -> Root:
    folder.mkdir()
    output_of("tar", "-xf", archive, "-C", folder, "--numeric-owner")
    return Root(folder)


def may_build() -> bool:
    """Whether this process may create systems."""
    return os.geteuid() == 0


def _sources(suite: str) -> str:
    """Return this machine's sources of Debian itself, without third-party ones, for another release."""
    own = platform.freedesktop_os_release()["VERSION_CODENAME"]
    for file in (*sorted((_SOURCES / "sources.list.d").glob("*.sources")), _SOURCES / "sources.list"):
        text = file.read_text() if file.exists() else ""
        if own in text and "debian" in text and "main" in text:
            return text.replace(own, suite)
    raise ServiceError(f"no sources of Debian {own} in {_SOURCES}")
