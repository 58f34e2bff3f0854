"""The hash chain over a gateway's events: the agent states its digests, and the audit computes them from the table.

An epoch is cut into sections. A section begins with an event that states the digest of the section before it
(`gateway.started` or `gateway.checkpoint`), so that each digest depends on all earlier events. The digest of a section
starts as 32 zero bytes, and each event in the order of the labels replaces it by SHA-256(digest + leaf), where the leaf
is SHA-256(fingerprint + tail in canonical form). The label itself is not hashed: it determines the order.
"""

import re
from collections.abc import Iterable
from hashlib import sha256
from typing import Final

from contract.fields import INTEGER, TEXT
from contract.fingerprint import FINGERPRINT_BYTES

DIGEST_START: Final = bytes(32)
_SHA256: Final = sha256()
"""Copied for each digest, which takes less time than creating one."""
_TEXT: Final = TEXT.encode()
_INTEGER: Final = INTEGER.encode()
_NAMES: Final = rb'\A"device":' + _TEXT + rb',"type":' + _TEXT
_ANY_ID: Final = rb'(?:,"id":(?:' + _TEXT + rb"|" + _INTEGER + rb"))?"
_ID: Final = re.compile(rb"(" + _NAMES + rb',"id":)"(' + _INTEGER + rb')"')
_BOOT: Final = re.compile(rb"(" + _NAMES + _ANY_ID + rb',"boot":)"(' + _INTEGER + rb')"')


def canonical(tail: bytes) -> bytes:
    """Return the tail of a value as it can be composed of the table's columns.

    The columns `id` and `boot` are text for integers and texts alike: a text that reads as an integer loses its quotes.
    """
    if _may_be_integer(tail, b'"id":"') or _may_be_integer(tail, b'"boot":"'):
        return _BOOT.sub(rb"\1\2", _ID.sub(rb"\1\2", tail))
    return tail


def leaf(content: bytes) -> bytes:
    """Return the leaf of an event, given as its fingerprint followed by its value's tail (`record.encode_tail`)."""
    # Not `in`, which first takes the bytes for a number, and raises and drops an error each time.
    if content.find(b'"id":"') >= 0 or content.find(b'"boot":"') >= 0:
        content = content[:FINGERPRINT_BYTES] + canonical(content[FINGERPRINT_BYTES:])
    digest = _SHA256.copy()
    digest.update(content)
    return digest.digest()


def extend(digest: bytes, contents: Iterable[bytes]) -> bytes:
    """Return the digest of a section after further events, given as in `leaf`, in the order of their labels."""
    for content in contents:
        following = _SHA256.copy()
        following.update(digest)
        following.update(leaf(content))
        digest = following.digest()
    return digest


def _may_be_integer(tail: bytes, start: bytes) -> bool:
    """Whether the first text behind `start` may read as an integer; saves the expressions, which take longer."""
    at = tail.find(start)
    if at < 0:
        return False
    at += len(start)
    text = tail[at : max(at, tail.find(b'"', at))]  # the compiled form fails where a slice ends before its start
    return text.isdigit() or (text[:1] == b"-" and text[1:].isdigit())
