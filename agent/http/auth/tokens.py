"""The token file: the holders of bearer tokens (RFC 6750), by the tokens' hashes.

A line is `device URN sha256:HEX`, `relay URN sha256:HEX` or `reader NAME sha256:HEX`; a line that begins with `#` is a
comment. The tokens themselves are not stored. They are random and long, so a plain hash is enough: guessing is
infeasible.
"""

import hmac
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from pathlib import Path

from agent.http.address import HttpSettingsError
from contract.event import DEVICE_RESERVED_PREFIX
from contract.files import read

NAME_CHARACTERS_MAX = 256
_HASH = re.compile(r"sha256:([0-9a-f]{64})")
_INDEX_BYTES = 8


class Role(Enum):
    """The permissions of a token."""

    DEVICE = "device"
    """Post events of this device."""
    RELAY = "relay"
    """Post events of any device."""
    READER = "reader"
    """Read status and metrics."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of a token."""

    role: Role
    name: str


class Tokens:
    """The holders by their tokens' hashes."""

    def __init__(self, holders: Iterable[tuple[bytes, Holder]]) -> None:
        self._holders = {digest[:_INDEX_BYTES]: (digest, holder) for digest, holder in holders}

    @property
    def senders(self) -> Iterator[str]:
        """The devices and relays."""
        return (holder.name for _, holder in self._holders.values() if holder.role is not Role.READER)

    def find(self, token: bytes) -> Holder | None:
        """Return the holder of a token, None where it is unknown.

        The timing of the index reveals only whether some hash begins as the token's hash does, which an attacker
        cannot choose; the comparison reveals nothing.
        """
        digest = sha256(token).digest()
        expected, holder = self._holders.get(digest[:_INDEX_BYTES], (bytes(len(digest)), None))
        return holder if hmac.compare_digest(digest, expected) else None


def read_tokens(path: Path) -> Tokens:
    """Read a token file; raise HttpSettingsError, whose message has the line's number and never its hash."""
    try:
        content = read(path)
        text = content.data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise HttpSettingsError(f"http.token_file: {path} cannot be read: {error}") from error
    if content.mode & (stat.S_IRWXO | stat.S_IWGRP):
        raise HttpSettingsError(
            f"http.token_file: {path} is open to others (mode {stat.S_IMODE(content.mode):o}): chmod 640 {path}"
        )
    holders: dict[bytes, Holder] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        digest, holder = _read_line(words, f"http.token_file: {path} line {number}")
        if digest in holders:
            raise HttpSettingsError(f"http.token_file: {path} line {number}: this token occurs twice")
        holders[digest] = holder
    return Tokens(holders.items())


def _read_line(words: list[str], place: str) -> tuple[bytes, Holder]:
    roles = ", ".join(role.value for role in Role)
    if len(words) != 3 or words[0] not in {role.value for role in Role}:
        raise HttpSettingsError(f"{place}: expected ROLE NAME sha256:HEX with a role of {roles}")
    role, name, written = words
    digest = _HASH.fullmatch(written)
    if digest is None:
        raise HttpSettingsError(f"{place}: expected sha256: and the token's hash in 64 hex digits, lower case")
    if len(name) > NAME_CHARACTERS_MAX or name.lower().startswith(DEVICE_RESERVED_PREFIX):
        raise HttpSettingsError(f"{place}: the name is too long, or one of the gateways' own")
    return bytes.fromhex(digest[1]), Holder(Role(role), name)
