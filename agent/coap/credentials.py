"""The credentials directory: for each sensor that speaks OSCORE (RFC 8613) one file with what both sides share.

The gateway only reads it; what changes while the agent runs is kept in its state folder.
"""

from __future__ import annotations

import os
import secrets
import stat
import tomllib
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from agent.coap.errors import CredentialsError
from contract.event import DEVICE_RESERVED_PREFIX

SUFFIX = ".toml"
SECRET_BYTES, SECRET_BYTES_MIN = 16, 16
SALT_BYTES = 8
ID_BYTES_MAX = 7
"""Of a sender or recipient ID with AES-CCM-16-64-128 (RFC 8613 section 3.3)."""
DEVICE_CHARACTERS_MAX = 256
MODE = 0o640
_KEYS = frozenset({"device", "secret", "salt", "sensor_id", "gateway_id", "id_context", "relay"})


@dataclass(frozen=True, slots=True)
class Credential:
    """What one sensor shares with the gateway: the input of its security context (RFC 8613 section 3.2)."""

    device: str
    """The identity of all that it says."""
    secret: bytes
    salt: bytes
    sensor_id: bytes
    """The sensor's sender ID, which each of its requests carries as kid."""
    gateway_id: bytes = b""
    id_context: bytes | None = None
    relay: bool = False
    """Whether it may speak for other devices than itself."""

    @property
    def name(self) -> str:
        """A name that gives nothing away and changes with any part of the input."""
        parts = (self.secret, self.salt, self.sensor_id, self.gateway_id, self.id_context or b"")
        digest = blake2b(digest_size=16, person=b"oncegate-osc-1")
        for part in parts:
            digest.update(len(part).to_bytes(2, "big") + part)
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class CredentialFiles:
    """What a directory holds: the credentials, and what is wrong with the other files."""

    credentials: tuple[Credential, ...]
    errors: tuple[str, ...]


def read_credentials(folder: Path) -> CredentialFiles:
    """Read all files of a directory; a bad one is named in `errors` and stops none of the others.

    Raises CredentialsError where the directory itself cannot be read.
    """
    try:
        files = sorted(file for file in folder.iterdir() if file.suffix == SUFFIX)
    except OSError as error:
        raise CredentialsError(f"coap.oscore.credentials_dir: {folder} cannot be read: {error.strerror}") from error
    found: dict[tuple[bytes | None, bytes], tuple[Path, Credential]] = {}
    errors: list[str] = []
    for file in files:
        try:
            credential = _read(file)
        except CredentialsError as error:
            errors.append(str(error))
            continue
        place = (credential.id_context, credential.sensor_id)
        if place in found:
            errors.append(f"{file}: sensor_id {credential.sensor_id.hex()} stands in {found[place][0]}, too")
        else:
            found[place] = (file, credential)
    return CredentialFiles(tuple(credential for _, credential in found.values()), tuple(errors))


def create_credential(folder: Path, device: str, *, relay: bool) -> tuple[Path, Credential]:
    """Write a new file for a device, under an ID that no other file has; raise CredentialsError."""
    taken = {credential.sensor_id for credential in read_credentials(folder).credentials}
    credential = Credential(
        _checked_device(device, "DEVICE"),
        secrets.token_bytes(SECRET_BYTES),
        secrets.token_bytes(SALT_BYTES),
        _free_id(taken),
        relay=relay,
    )
    file = folder / ("".join(letter if letter.isalnum() or letter in "-." else "_" for letter in device) + SUFFIX)
    try:
        _write(file, _written(credential))
    except FileExistsError as error:
        raise CredentialsError(f"{file} exists: remove it first, and its secret is worth nothing any more") from error
    except OSError as error:
        raise CredentialsError(f"{file} cannot be written: {error.strerror}") from error
    return file, credential


def _write(file: Path, text: str) -> None:
    """Write a new file, whole or not at all; raise FileExistsError, or another OSError."""
    draft = file.with_name(f".{file.name}.draft")
    draft.unlink(missing_ok=True)
    try:
        with open(draft, "x", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, MODE)) as opened:
            os.fchmod(opened.fileno(), MODE)
            os.fchown(opened.fileno(), -1, file.parent.stat().st_gid)  # the agent reads it by the folder's group
            opened.write(text)
            opened.flush()
            os.fsync(opened.fileno())
        os.link(draft, file)
    finally:
        draft.unlink(missing_ok=True)


def _read(file: Path) -> Credential:
    try:
        with file.open("rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            table = tomllib.load(opened)
    except OSError as error:
        raise CredentialsError(f"{file}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CredentialsError(f"{file}: not TOML: {error}") from error
    if mode & (stat.S_IRWXO | stat.S_IWGRP):
        raise CredentialsError(f"{file}: open to others (mode {stat.S_IMODE(mode):o}): chmod 640 {file}")
    if unknown := set(table) - _KEYS:
        raise CredentialsError(f"{file}: unknown key {min(unknown)!r}; known are {', '.join(sorted(_KEYS))}")
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


def _octets(table: dict[str, object], key: str, file: Path, lengths: tuple[int, int]) -> bytes:
    """Read hex digits; the message never holds them."""
    shortest, longest = lengths
    try:
        octets = bytes.fromhex(str(table[key])) if isinstance(table[key], str) else None
    except (KeyError, ValueError):
        octets = None
    if octets is None or not shortest <= len(octets) <= longest:
        raise CredentialsError(f"{file}: {key}: expected {shortest} to {longest} bytes as text of hex digits")
    return octets


def _checked_device(device: object, place: str) -> str:
    if not isinstance(device, str) or not 0 < len(device) <= DEVICE_CHARACTERS_MAX:
        raise CredentialsError(f"{place}: expected the sensor's URN")
    if device.lower().startswith(DEVICE_RESERVED_PREFIX):
        raise CredentialsError(f"{place}: {DEVICE_RESERVED_PREFIX}* are the gateways' own")
    return device


def _free_id(taken: set[bytes]) -> bytes:
    number = 1
    while (candidate := number.to_bytes((number.bit_length() + 7) // 8, "big")) in taken:
        number += 1
    return candidate


def _written(credential: Credential) -> str:
    device = credential.device.replace("\\", "\\\\").replace('"', '\\"')
    return (
        f'device = "{device}"\nsecret = "{credential.secret.hex()}"\nsalt = "{credential.salt.hex()}"\n'
        f'sensor_id = "{credential.sensor_id.hex()}"\ngateway_id = "{credential.gateway_id.hex()}"\n'
        f"relay = {str(credential.relay).lower()}\n"
    )
