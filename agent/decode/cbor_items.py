"""Finds the bounds of CBOR data items (RFC 8949 section 3 and appendix C): reads their heads, not their values."""

from typing import Final

from agent.decode.decoded import Undecodable
from contract.values import VALUES_MAX

NESTING_MAX: Final = 64
"""Levels of arrays, maps and tags that are read at all; an event may have far fewer (contract.values.DEPTH_MAX)."""
ITEMS_MAX: Final = 4 * VALUES_MAX
"""Data items within the containers of one body, and chunks of its strings. Each can be one byte."""

_BYTES: Final = 2
_TEXT: Final = 3
_ARRAY: Final = 4
_MAP: Final = 5
_TAG: Final = 6
_SIMPLE: Final = 7
"""Major types: the first three bits of an item."""
_BREAK: Final = 0xFF
_INDEFINITE: Final = -1
_LEFT_IN_OPEN_MAP: Final = -1
_LEFT_IN_OPEN_ARRAY: Final = -(1 << 32)
"""Number of items left in a container of indefinite length: it is decremented and never reaches zero."""


def _whole_length(first: int) -> int:
    """Return the length of an item if its first byte determines it, else 0."""
    major, short = first >> 5, first & 31
    if major in (_ARRAY, _MAP, _TAG):
        return int(short == 0 and major != _TAG)
    if short < 24:
        return 1 + short if major in (_BYTES, _TEXT) else 1
    if major in (_BYTES, _TEXT) or short > 27 or first == _SIMPLE << 5 | 24:
        return 0
    return 1 + (1 << (short - 24))


_WHOLE_LENGTHS: Final = [_whole_length(first) for first in range(256)]
_OPENED: Final = (
    {_ARRAY << 5 | count: (count, 1) for count in range(1, 24)}
    | {_MAP << 5 | count: (2 * count, 1) for count in range(1, 24)}
    | {_TAG << 5 | tag: (1, 1) for tag in range(24)}
    | {_TAG << 5 | 24 + power: (1, 1 + (1 << power)) for power in range(4)}
    | {_ARRAY << 5 | 31: (_LEFT_IN_OPEN_ARRAY, 1), _MAP << 5 | 31: (_LEFT_IN_OPEN_MAP, 1)}
)
"""Number of items left in a container, and the length of its head, where the first byte determines both."""


def is_array(item: bytes) -> bool:
    """Whether an item begins as an array does."""
    return item[:1] != b"" and item[0] >> 5 == _ARRAY


def is_container(item: bytes) -> bool:
    """Whether an item begins as an array or a map does."""
    return item[:1] != b"" and item[0] >> 5 in (_ARRAY, _MAP)


def check_well_formed(body: bytes) -> None:
    """Raise Undecodable unless the body is one well-formed item within NESTING_MAX and ITEMS_MAX."""
    end = _end_of_item(body, 0)
    if end < len(body):
        raise trailing_bytes(len(body) - end)


def split(item: bytes) -> list[bytes]:
    """Cut a well-formed array into its items, or a map into its keys and values; tags around it are left out."""
    major, count, position = _read_head(item, 0)
    while major == _TAG:
        major, count, position = _read_head(item, position)
    if major == _MAP and count != _INDEFINITE:
        count *= 2
    parts: list[bytes] = []
    while len(parts) != count and ((first := item[position]) != _BREAK or count != _INDEFINITE):
        end = position + _WHOLE_LENGTHS[first] if _WHOLE_LENGTHS[first] else _end_of_item(item, position)
        parts.append(item[position:end])
        position = end
    return parts


def trailing_bytes(count: int) -> Undecodable:
    """Return the error for bytes after the item of a body."""
    return Undecodable(f"CBOR: {count} bytes after the item")


def _end_of_item(body: bytes, start: int) -> int:
    try:
        end = _walk(body, start)
    except IndexError:
        raise _ends_early() from None
    if end > len(body):
        raise _ends_early()
    return end


def _walk(body: bytes, position: int) -> int:
    """Walk through an item and all within it; the returned end may lie beyond that of the body.

    `left` counts the items left in the innermost open container, `outer` those in the containers around it.
    """
    left = 1
    outer: list[int] = []
    items_left = ITEMS_MAX + 1  # the item itself is in no container
    while left:
        first = body[position]
        if first == _BREAK:
            _check_break(position, left)
            position, left = position + 1, 0
        else:
            left -= 1
            items_left -= 1
            if length := _WHOLE_LENGTHS[first]:
                position += length
            else:
                outer.append(left)
                if opened := _OPENED.get(first):
                    left, head = opened
                    position += head
                else:
                    left, position, items_left = _step(body, position, items_left)
                if len(outer) > NESTING_MAX and left:
                    raise Undecodable(f"CBOR: nested deeper than {NESTING_MAX} levels")
            if items_left < 0:
                raise Undecodable(f"CBOR: more than {ITEMS_MAX} items")
        while not left and outer:
            left = outer.pop()
    return position


def _step(body: bytes, position: int, items_left: int) -> tuple[int, int, int]:
    """Step over a string or a head; return how many items it opens, the next position, and how many may follow."""
    major, argument, position = _read_head(body, position)
    if major in (_ARRAY, _MAP):
        items = argument if major == _ARRAY else 2 * argument
        if items > len(body) - position:  # each takes a byte at least
            raise _ends_early()
        return items, position, items_left
    if major == _SIMPLE:
        return 0, position, items_left
    if argument != _INDEFINITE:
        return 0, position + argument, items_left
    while (first := body[position]) != _BREAK and items_left >= 0:
        items_left -= 1
        if first >> 5 != major or first & 31 == 31:
            raise _malformed(position + 1)
        if length := _WHOLE_LENGTHS[first]:
            position += length
        else:
            _, argument, position = _read_head(body, position)
            position += argument
    return 0, position + 1, items_left


def _read_head(body: bytes, position: int) -> tuple[int, int, int]:
    """Return the major type and the argument of the item at a position, and the position after its head."""
    first = body[position]
    major, short = first >> 5, first & 31
    position += 1
    if short < 24:
        return major, short, position
    if short == 24:
        if major == _SIMPLE and body[position] < 32:  # RFC 8949 section 3.3: not well-formed
            raise _malformed(position)
        return major, body[position], position + 1
    if short > 27:
        if short == 31 and major in (_BYTES, _TEXT, _ARRAY, _MAP):
            return major, _INDEFINITE, position
        raise _malformed(position)
    end = position + (1 << (short - 24))
    if end > len(body):
        raise _ends_early()
    argument = int.from_bytes(body[position:end], "big")
    if major in (_BYTES, _TEXT) and argument > len(body):  # else a position might be beyond what an index can be
        raise _ends_early()
    return major, argument, end


def _check_break(position: int, left: int) -> None:
    """Raise Undecodable where a break ends nothing, or a map between a key and its value."""
    if left > 0 or (left > _LEFT_IN_OPEN_ARRAY and left % 2 == 0):
        raise _malformed(position + 1)


def _ends_early() -> Undecodable:
    return Undecodable("CBOR: the body ends in the middle of an item")


def _malformed(position: int) -> Undecodable:
    return Undecodable(f"CBOR: not well-formed before byte {position}")
