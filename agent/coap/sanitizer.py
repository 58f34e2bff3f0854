"""Sanitizes datagrams for aiocoap: only well-formed requests with valid options pass.

aiocoap serves requests with unknown critical options, accepts options of any length and number, and logs a traceback
for text that is not UTF-8. So the rules of RFC 7252 (sections 4.2, 4.3, 5.4, 5.7.2) are applied first.
"""

from dataclasses import dataclass
from enum import Enum

from agent.coap.message import (
    ACKNOWLEDGEMENT,
    CONFIRMABLE,
    EMPTY,
    HEADER_BYTES,
    MessageFormatError,
    Option,
    join,
    message_type,
    read_options,
    split,
    write_options,
)


class Disposition(Enum):
    """The action for a datagram."""

    PASS = "pass"
    IGNORE = "ignore"
    RESET = "reset"
    BAD_OPTION = "bad option"
    NO_PROXY = "no proxy"


@dataclass(frozen=True, slots=True)
class Sanitized:
    """The disposition of a datagram; with PASS, the datagram without the options that are to be ignored."""

    disposition: Disposition
    datagram: bytes = b""
    protected: bool = False
    """Whether it carries the OSCORE option."""


@dataclass(frozen=True, slots=True)
class _OptionFormat:
    """The format of an option that may pass: its value's length, whether it is repeatable, whether it is text."""

    bytes_min: int
    bytes_max: int
    repeatable: bool = False
    text: bool = False


_URI_HOST, _URI_PORT, _OSCORE, _PROXY_URI, _PROXY_SCHEME = 3, 7, 9, 35, 39
_OPTION_FORMATS = {
    _URI_HOST: _OptionFormat(1, 255, text=True),
    4: _OptionFormat(1, 8, repeatable=True),  # ETag
    6: _OptionFormat(0, 3),  # Observe (RFC 7641)
    _URI_PORT: _OptionFormat(0, 2),
    _OSCORE: _OptionFormat(0, 255),  # RFC 8613; served only where it is configured
    11: _OptionFormat(0, 255, repeatable=True, text=True),  # Uri-Path
    12: _OptionFormat(0, 2),  # Content-Format
    15: _OptionFormat(0, 255, repeatable=True, text=True),  # Uri-Query
    17: _OptionFormat(0, 2),  # Accept
    23: _OptionFormat(0, 3),  # Block2 (RFC 7959)
    27: _OptionFormat(0, 3),  # Block1
    28: _OptionFormat(0, 4),  # Size2
    _PROXY_URI: _OptionFormat(1, 1034, text=True),
    _PROXY_SCHEME: _OptionFormat(1, 255, text=True),
    60: _OptionFormat(0, 4),  # Size1
    258: _OptionFormat(0, 1),  # No-Response (RFC 7967)
    292: _OptionFormat(0, 8, repeatable=True),  # Request-Tag (RFC 9175)
}
"""Without If-Match and If-None-Match: a condition that is not evaluated must not count as fulfilled."""


def is_protected(datagram: bytes) -> bool:
    """Whether a message with a complete header carries the OSCORE option, valid or not."""
    try:
        return any(option.number == _OSCORE for option in read_options(split(datagram)[1]))
    except MessageFormatError:
        return False


def sanitize(datagram: bytes, *, oscore: bool = False) -> Sanitized:
    """Sanitize a message of version 1 with a complete header; `oscore` is whether OSCORE is served."""
    kind, code = message_type(datagram), datagram[1]
    confirmable = kind == CONFIRMABLE
    rejected = Sanitized(Disposition.RESET if confirmable else Disposition.IGNORE)
    try:
        head, options, payload = split(datagram)
    except MessageFormatError:
        return rejected
    if code == EMPTY:
        ping = confirmable and len(datagram) == HEADER_BYTES
        return Sanitized(Disposition.PASS, datagram) if ping else rejected
    if code >= 0x20 or kind >= ACKNOWLEDGEMENT:
        return rejected  # an unrequested response, a reserved class, or a request inside an ACK
    sound = _sound_options(options, oscore)
    if sound is None:
        return Sanitized(Disposition.BAD_OPTION if confirmable else Disposition.IGNORE)
    if any(option.number in (_PROXY_URI, _PROXY_SCHEME) for option in sound):
        return Sanitized(Disposition.NO_PROXY)
    # There is one host only, and aiocoap fails on invalid host names.
    served = tuple(option for option in sound if option.number not in (_URI_HOST, _URI_PORT))
    protected = any(option.number == _OSCORE for option in served)
    return Sanitized(Disposition.PASS, join(head, write_options(served), payload), protected)


def _sound_options(options: bytes, oscore: bool) -> list[Option] | None:
    """Return the valid options; None where another one is critical (section 5.4.1)."""
    sound: list[Option] = []
    for option in read_options(options):
        if _is_sound(option, sound) and (oscore or option.number != _OSCORE):
            sound.append(option)
        elif option.number & 1:
            return None
    return sound


def _is_sound(option: Option, before: list[Option]) -> bool:
    known = _OPTION_FORMATS.get(option.number)
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
