"""A private PostgreSQL server as a local process."""

import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from pathlib import Path

from simulators.services import ports
from simulators.services.error import ServiceError
from simulators.services.install import programs
from simulators.services.process import Command, Process
from simulators.services.service import ProcessService

START_SECONDS_MAX = 60.0
INITDB_SECONDS_MAX = 120
USER = "oncegate"
DATABASE = "postgres"
_SERVER_USERS = ("postgres", "nobody")
"""The users that may run the server for root: it refuses to run as root."""


class Postgres(ProcessService):
    """A server on a free port of 127.0.0.1, its log under the folder, its data in a folder of its own.

    Committed data survives `kill` and the next `start`, which uses the same port and data.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        (self.port,) = ports.free(1)
        # Not under `folder`, which the server's user may be unable to access.
        self._data = Path(tempfile.mkdtemp(prefix="oncegate-postgres-"))
        self._cluster = self._data / "cluster"
        self._password = secrets.token_urlsafe(16)
        self.process = Process(Command("postgres", self._command(), self._folder / "postgres.log", self._data))

    def start(self) -> None:
        """Start the server and return once it accepts connections."""
        if not self._cluster.exists():
            self._initialise()
        self.process.start()
        self.process.wait_for_log("database system is ready to accept connections", START_SECONDS_MAX)
        self.process.wait_for_port(self.port, START_SECONDS_MAX)

    def close(self) -> None:
        """Kill the server and remove its data."""
        super().close()
        shutil.rmtree(self._data, ignore_errors=True)

    @property
    def connection(self) -> str:
        """The libpq connection string, including the password."""
        return f"host=127.0.0.1 port={self.port} dbname={DATABASE} user={USER} password={self._password}"

    def write_connection(self, file: Path) -> Path:
        """Write a connection file and the password file that it names, readable by their owner only."""
        passwords = file.with_name(f"{file.name}.pgpass")
        _write_private(passwords, f"127.0.0.1:{self.port}:*:{USER}:{self._password}\n")
        _write_private(
            file, f"host=127.0.0.1 port={self.port} dbname={DATABASE} user={USER} passfile='{passwords.absolute()}'\n"
        )
        return file

    def _initialise(self) -> None:
        password_file = self._data / "password"
        _write_private(password_file, self._password)
        for path in (self._data, password_file):
            if (user := _server_user()) is not None:
                os.chown(path, user.pw_uid, user.pw_gid)
        command = [programs.require("initdb"), "-D", str(self._cluster), "-U", USER, "-E", "UTF8"]
        command += ["--no-locale", "-A", "scram-sha-256", f"--pwfile={password_file}", "--no-sync"]
        done = subprocess.run(
            [*_as_server_user(), *command],
            capture_output=True,
            text=True,
            check=False,
            timeout=INITDB_SECONDS_MAX,
            cwd=self._data,
        )
        if done.returncode != 0:
            raise ServiceError(f"initdb: status {done.returncode}\n{done.stdout}{done.stderr}".rstrip())

    def _command(self) -> tuple[str, ...]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "shared_buffers": "128MB",
            "max_wal_size": "1GB",
        }
        options = [text for name, value in settings.items() for text in ("-c", f"{name}={value}")]
        server = (programs.require("postgres"), "-D", str(self._cluster), *options)
        return (*_as_server_user(), *server)


def _server_user() -> pwd.struct_passwd | None:
    """Return the user that the server has to run as; None for the current user."""
    if os.geteuid() != 0:
        return None
    known = {user.pw_name: user for user in pwd.getpwall()}
    return next(known[name] for name in _SERVER_USERS if name in known)


def _as_server_user() -> tuple[str, ...]:
    user = _server_user()
    if user is None:
        return ()
    return ("setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups")


def _write_private(file: Path, text: str) -> None:
    file.touch(mode=0o600)
    file.write_text(text)
