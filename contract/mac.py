"""The authentication of a record by its gateway: the eighth word of `ce_oncegate`.

It is HMAC-SHA256 (RFC 2104) over topic, fingerprint, statement and value, with a line feed behind each but the last, of
which the first 128 bits count (RFC 2104 section 5), as 32 hex digits. A statement has no line feed, a topic neither.
"""

import re
import secrets
from hmac import digest
from typing import Final

KEY_BYTES: Final = 32
"""The length of a digest of SHA-256; a longer key would be no stronger (RFC 2104 section 3)."""
MAC_DIGITS: Final = 32
_KEY: Final = re.compile("[0-9a-f]{64}")


def create_key() -> str:
    """Return a new key in the form that files have: 64 hex digits."""
    return secrets.token_hex(KEY_BYTES)


def read_key(text: str) -> bytes:
    """Read a key's hex digits, with white space around them; raise ValueError, whose message has none of them."""
    if not _KEY.fullmatch(digits := text.strip().lower()):
        raise ValueError(f"expected {2 * KEY_BYTES} hex digits")
    return bytes.fromhex(digits)


class Signer:
    """A gateway's key, for records of one topic."""

    def __init__(self, key: bytes, topic: str) -> None:
        self._key = key
        self._start = topic.encode() + b"\n"

    def __call__(self, fingerprint: bytes, statement: bytes, value: bytes) -> bytes:
        """Return the word; the fingerprint is that of `ce_id`, the statement has the seven words before."""
        message = b"%b%b\n%b\n%b" % (self._start, fingerprint, statement, value)
        return digest(self._key, message, "sha256").hex()[:MAC_DIGITS].encode()
