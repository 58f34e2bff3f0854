"""The credentials directory: for each sensor that uses OSCORE (RFC 8613) one file with the shared secrets.

The agent only reads it; its changing state is kept in the state folder.
"""

import fcntl
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import Any

from agent.coap.errors import CredentialsError
from agent.coap.message import uint
from agent.config import files
from agent.decode.decoded import InvalidEvent
from agent.decode.event_map import device_name
from contract.event import DEVICE_RESERVED_PREFIX
from contract.files import read

SUFFIX = ".toml"
SECRET_BYTES, SECRET_BYTES_MIN = 16, 16
SALT_BYTES = 8
ID_BYTES_MAX = 7
"""Of a sender or recipient ID with AES-CCM-16-64-128 (RFC 8613 section 3.3)."""
FILE_BYTES_MAX = 1 << 13
"""More than twice the longest credential."""
KEY_CHARACTERS_SHOWN = 64
NAME_CHARACTERS_MAX = 128
"""Of a device in its file's name; with digest, suffix and draft it stays below the limit of file systems."""
MODE = 0o640
_KEYS = frozenset({"device", "secret", "salt", "sensor_id", "gateway_id", "id_context", "relay"})


@dataclass(frozen=True, slots=True)
class Credential:
    """The secrets shared with one sensor: the input of its security context (RFC 8613 section 3.2)."""

    device: str
    """The device whose events it may send."""
    secret: bytes
    salt: bytes
    sensor_id: bytes
    """The sensor's sender ID, the kid of each of its requests."""
    gateway_id: bytes = b""
    id_context: bytes | None = None
    relay: bool = False
    """Whether it may send events of other devices."""

    @property
    def name(self) -> str:
        """A name that reveals no secret and changes with any part of the input."""
        context = b"" if self.id_context is None else b"+" + self.id_context  # None and b"" derive different keys
        parts = (self.secret, self.salt, self.sensor_id, self.gateway_id, context)
        digest = blake2b(digest_size=16, person=b"oncegate-osc-1")
        for part in parts:
            digest.update(len(part).to_bytes(2, "big") + part)
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class CredentialFiles:
    """The content of a directory: the credentials, and the errors of the other files."""

    credentials: tuple[Credential, ...]
    errors: tuple[str, ...]
    named: frozenset[str] = frozenset()
    """The devices that the other files name."""
    nameless: bool = False
    """Whether one of them does not tell whose it is."""

    def __str__(self) -> str:
        usable = len(self.credentials)
        return f"{usable} of {usable + len(self.errors)} OSCORE credentials usable"


def read_credentials(folder: Path) -> CredentialFiles:
    """Read all files of a directory; an invalid one is reported in `errors`, and the others are still read.

    Raise CredentialsError where the directory itself cannot be read.
    """
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == SUFFIX)
    except OSError as error:
        raise CredentialsError(f"coap.oscore.credentials_dir: {folder} cannot be read: {error.strerror}") from error
    credentials: list[Credential] = []
    errors: list[str] = []
    named: set[str | None] = set()
    places: dict[object, str] = {}
    for path in paths:
        file = _shown(path)
        device: object = None
        try:
            table, mode = _read(path)
            device = table.get("device")
            credential = _credential(table, mode, file)
            for what, key in _unique(credential):
                if key in places:
                    raise CredentialsError(f"{file}: {what} is already used in {places[key]}")
        except CredentialsError as error:
            errors.append(str(error))
            named.add(_named(device))
            continue
        credentials.append(credential)
        places.update((key, file) for _, key in _unique(credential))
    return CredentialFiles(tuple(credentials), tuple(errors), frozenset(filter(None, named)), nameless=None in named)


def create_credential(folder: Path, device: str, *, relay: bool) -> tuple[Path, Credential]:
    """Write a new file for a device, with an unused ID; raise CredentialsError."""
    device = _checked_device(device, "DEVICE")
    secret, salt = secrets.token_bytes(SECRET_BYTES), secrets.token_bytes(SALT_BYTES)
    file = folder / _file_name(device)
    try:
        with _locked(folder):
            taken = {credential.sensor_id for credential in read_credentials(folder).credentials}
            credential = Credential(device, secret, salt, _free_id(taken), relay=relay)
            files.write_new(file, _written(credential), MODE)
    except FileExistsError as error:
        raise CredentialsError(f"{file} exists: remove it first, which revokes its secret") from error
    except OSError as error:
        raise CredentialsError(f"{file} cannot be written: {error.strerror}") from error
    return file, credential


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock for the block, so that no two processes take the same ID."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _file_name(device: str) -> str:
    """Return the name of a device's file: its URN, with a digest where that had to be changed."""
    name = re.sub(r"[^A-Za-z0-9.-]", "_", device)[:NAME_CHARACTERS_MAX]
    if name.replace("_", ":") != device:
        name += "-" + blake2b(device.encode(), digest_size=8).hexdigest()
    return name + SUFFIX


def _unique(credential: Credential) -> Iterator[tuple[str, object]]:
    """Yield the values that no two files may share: the IDs that select a context, and the input of the keys.

    With equal secret, salt and context of two sensors the gateway would use one key for both.
    """
    yield f"sensor_id {credential.sensor_id.hex()}", (credential.id_context, credential.sensor_id)
    yield "its secret", (credential.secret, credential.salt, credential.id_context)


def _shown(path: Path) -> str:
    """Return a path for the log; an unprintable name is escaped."""
    return str(path) if str(path).isprintable() else ascii(str(path))


def _read(path: Path) -> tuple[dict[str, Any], int]:
    """Return a file's content and mode."""
    try:
        content = read(path, FILE_BYTES_MAX)
        return files.parse_toml(content.data.decode().replace("\r\n", "\n")), content.mode
    except OSError as error:
        raise CredentialsError(f"{_shown(path)}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise CredentialsError(f"{_shown(path)}: not TOML: {error}") from error


def _named(device: object) -> str | None:
    """Return the device of an unusable credential; None where its name is invalid, too."""
    try:
        return _checked_device(device, "")
    except CredentialsError:
        return None


def _credential(table: dict[str, object], mode: int, file: str) -> Credential:
    if mode & (stat.S_IRWXO | stat.S_IWGRP):
        raise CredentialsError(f"{file}: open to others (mode {stat.S_IMODE(mode):o}): chmod 640 {file}")
    if unknown := set(table) - _KEYS:
        known = ", ".join(sorted(_KEYS))
        raise CredentialsError(f"{file}: unknown key {min(unknown)[:KEY_CHARACTERS_SHOWN]!a}; known are {known}")
    relay = table.get("relay", False)
    if not isinstance(relay, bool):
        raise CredentialsError(f"{file}: relay: expected true or false")
    credential = Credential(
        _checked_device(table.get("device"), f"{file}: device"),
        _octets(table, "secret", file, (SECRET_BYTES_MIN, 64)),
        _octets(table, "salt", file, (0, 64)) if "salt" in table else b"",
        _octets(table, "sensor_id", file, (0, ID_BYTES_MAX)),
        _octets(table, "gateway_id", file, (0, ID_BYTES_MAX)) if "gateway_id" in table else b"",
        _octets(table, "id_context", file, (0, 64)) if "id_context" in table else None,
        relay,
    )
    if credential.sensor_id == credential.gateway_id:
        raise CredentialsError(f"{file}: sensor_id and gateway_id are equal, so both would encrypt with one key")
    return credential


def _octets(table: dict[str, object], key: str, file: str, lengths: tuple[int, int]) -> bytes:
    """Return the bytes of a key's hex digits; an error's message never holds them."""
    shortest, longest = lengths
    try:
        octets = bytes.fromhex(str(table[key])) if isinstance(table[key], str) else None
    except (KeyError, ValueError):
        octets = None
    if octets is None or not shortest <= len(octets) <= longest:
        raise CredentialsError(f"{file}: {key}: expected {shortest} to {longest} bytes as text of hex digits")
    return octets


def _checked_device(device: object, place: str) -> str:
    if not isinstance(device, str):
        raise CredentialsError(f"{place}: expected the sensor's URN")
    try:
        device = device_name(device)
    except InvalidEvent as error:
        raise CredentialsError(f"{place}: expected the sensor's URN: {error}") from None
    if device.lower().startswith(DEVICE_RESERVED_PREFIX):
        raise CredentialsError(f"{place}: {DEVICE_RESERVED_PREFIX}* are the gateways' own")
    return device


def _free_id(taken: set[bytes]) -> bytes:
    return next(id_ for id_ in map(uint, count(1)) if id_ not in taken)


def _written(credential: Credential) -> str:
    device = credential.device.replace("\\", "\\\\").replace('"', '\\"')
    return (
        f'device = "{device}"\nsecret = "{credential.secret.hex()}"\nsalt = "{credential.salt.hex()}"\n'
        f'sensor_id = "{credential.sensor_id.hex()}"\ngateway_id = "{credential.gateway_id.hex()}"\n'
        f"relay = {str(credential.relay).lower()}\n"
    )
