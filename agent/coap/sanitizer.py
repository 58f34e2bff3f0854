"""What of an odd datagram may reach aiocoap: sound messages that a server gets, with sound options only.

aiocoap serves requests with critical options that nobody knows, takes options of any length and number, and logs a
traceback for text that is not UTF-8. Here the rules of RFC 7252 (sections 4.2, 4.3, 5.4, 5.7.2) are applied first.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from agent.coap.message import (
    ACKNOWLEDGEMENT,
    CONFIRMABLE,
    EMPTY,
    HEADER_BYTES,
    MessageFormatError,
    Option,
    Parts,
    join,
    message_type,
    read_options,
    split,
    write_options,
)


class Verdict(Enum):
    """What to do with a datagram."""

    PASS = "pass"
    IGNORE = "ignore"
    RESET = "reset"
    BAD_OPTION = "bad option"
    NO_PROXY = "no proxy"


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict; with PASS, the datagram with the options left out that are to be ignored."""

    verdict: Verdict
    datagram: bytes = b""
    protected: bool = False
    """Whether it carries OSCORE's option."""


@dataclass(frozen=True, slots=True)
class _Known:
    """An option that aiocoap may see: the lengths of its value, whether it may be repeated, whether it is text."""

    bytes_min: int
    bytes_max: int
    repeatable: bool = False
    text: bool = False


_URI_HOST, _URI_PORT, _OSCORE, _PROXY_URI, _PROXY_SCHEME = 3, 7, 9, 35, 39
_KNOWN = {
    _URI_HOST: _Known(1, 255, text=True),
    4: _Known(1, 8, repeatable=True),  # ETag
    6: _Known(0, 3),  # Observe (RFC 7641)
    _URI_PORT: _Known(0, 2),
    _OSCORE: _Known(0, 255),  # RFC 8613; served only where it is configured
    11: _Known(0, 255, repeatable=True, text=True),  # Uri-Path
    12: _Known(0, 2),  # Content-Format
    15: _Known(0, 255, repeatable=True, text=True),  # Uri-Query
    17: _Known(0, 2),  # Accept
    23: _Known(0, 3),  # Block2 (RFC 7959)
    27: _Known(0, 3),  # Block1
    28: _Known(0, 4),  # Size2
    _PROXY_URI: _Known(1, 1034, text=True),
    _PROXY_SCHEME: _Known(1, 255, text=True),
    60: _Known(0, 4),  # Size1
    258: _Known(0, 1),  # No-Response (RFC 7967)
    292: _Known(0, 8, repeatable=True),  # Request-Tag (RFC 9175)
}
"""If-Match and If-None-Match are left out: a condition that is not looked at must not be said to hold."""


def is_protected(datagram: bytes) -> bool:
    """Whether a message with a whole header carries OSCORE's option, sound or not."""
    try:
        return any(option.number == _OSCORE for option in read_options(split(datagram).options))
    except MessageFormatError:
        return False


def judge(datagram: bytes, *, oscore: bool = False) -> Judgement:
    """Judge a message of version 1 with a whole header; `oscore` tells whether OSCORE is served here."""
    kind, code = message_type(datagram), datagram[1]
    confirmable = kind == CONFIRMABLE
    rejected = Judgement(Verdict.RESET if confirmable else Verdict.IGNORE)
    try:
        parts = split(datagram)
    except MessageFormatError:
        return rejected
    if code == EMPTY:
        ping = confirmable and len(datagram) == HEADER_BYTES
        return Judgement(Verdict.PASS, datagram) if ping else rejected
    if code >= 0x20 or kind >= ACKNOWLEDGEMENT:
        return rejected  # a response to nothing we asked, a reserved class, or a request inside an ACK
    return _judge_options(parts, confirmable, oscore)


def _judge_options(parts: Parts, confirmable: bool, oscore: bool) -> Judgement:
    sound: list[Option] = []
    for option in read_options(parts.options):
        if _is_sound(option, sound) and (oscore or option.number != _OSCORE):
            sound.append(option)
        elif option.number & 1:  # critical (section 5.4.1)
            return Judgement(Verdict.BAD_OPTION if confirmable else Verdict.IGNORE)
    if any(option.number in (_PROXY_URI, _PROXY_SCHEME) for option in sound):
        return Judgement(Verdict.NO_PROXY)
    # There is but one host here, and aiocoap stumbles over names that are none.
    served = tuple(option for option in sound if option.number not in (_URI_HOST, _URI_PORT))
    protected = any(option.number == _OSCORE for option in served)
    return Judgement(Verdict.PASS, join(parts._replace(options=write_options(served))), protected)


def _is_sound(option: Option, before: list[Option]) -> bool:
    known = _KNOWN.get(option.number)
    if known is None or not known.bytes_min <= len(option.value) <= known.bytes_max:
        return False
    if not known.repeatable and before and before[-1].number == option.number:
        return False
    return not known.text or _is_utf8(option.value)


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
