"""CBOR (RFC 8949) as events use it: a strict reader of our own.

It reads what a general library cannot be told to: a duplicate key, a foreign tag or a broken text becomes `Invalid`,
which refuses only the event around it, and bytes after the item are an error. Nothing is allocated before its bytes
are there, whatever length a head claims.
"""

from struct import Struct
from struct import error as StructError  # the library's name for its error

from agent.decode.error import Undecodable
from contract.cbor import INTEGER_END, INTEGER_MIN
from contract.values import VALUES_MAX, Invalid

DEPTH_READ_MAX = 64
"""Levels of arrays, maps and tags that are read at all; an event may have far fewer (contract.values.DEPTH_MAX)."""
ITEMS_MAX = 4 * VALUES_MAX
"""Data items within the containers of one body, and chunks of its strings. Each can be one byte, and takes up to a
microsecond to read."""

_BREAK = 0xFF
_INDEFINITE = -1
_TAG_UNSIGNED, _TAG_NEGATIVE, _TAG_SELF_DESCRIBED = 2, 3, 55799
_SIMPLE = {20: False, 21: True, 22: None, 23: None}
"""False, true, null, and undefined, which is null."""

_uint16, _uint32, _uint64 = Struct(">H").unpack_from, Struct(">I").unpack_from, Struct(">Q").unpack_from
_half, _single, _double = Struct(">e").unpack_from, Struct(">f").unpack_from, Struct(">d").unpack_from


def read(body: bytes) -> object:
    """Read the one item of a body; raise Undecodable."""
    try:
        value, end = _item(body, 0, DEPTH_READ_MAX, [ITEMS_MAX])
    except (IndexError, StructError):
        raise _ends_early() from None
    if end != len(body):
        raise Undecodable(f"CBOR: {len(body) - end} bytes after the item")
    return value


def split(body: bytes) -> list[bytes]:
    """Cut an array that `read` has taken into its items, each as it was sent."""
    position = 0
    while body[position] >> 5 == 6:  # self-described
        _, position = _argument(body, position + 1, body[position] & 31)
    count, position = _argument(body, position + 1, body[position] & 31)
    pieces: list[bytes] = []
    items_left = [ITEMS_MAX]
    while len(pieces) != count and (count >= 0 or body[position] != _BREAK):
        start = position
        _, position = _item(body, start, DEPTH_READ_MAX, items_left)
        pieces.append(body[start:position])
    return pieces


def _item(body: bytes, position: int, depth: int, items_left: list[int]) -> tuple[object, int]:
    """Read the item at a position; return it and the position after it. The one number in `items_left` counts down."""
    first = body[position]
    major, short = first >> 5, first & 31
    position += 1
    if major == 7:
        return _simple(body, position, short)
    if short < 24:
        argument = short
    else:
        argument, position = _argument(body, position, short)
    if major == 0 and argument >= 0:
        return argument, position
    if major == 3:
        return _text(body, position, argument, items_left)
    if major == 5:
        return _map(body, position, argument, depth, items_left)
    if major == 4:
        return _array(body, position, argument, depth, items_left)
    if major == 2:
        return _bytes(body, position, argument, 2, items_left)
    if major == 1 and argument >= 0:
        return -1 - argument, position
    if major == 6 and argument >= 0:
        return _tag(body, position, argument, depth, items_left)
    raise _malformed(position)


def _argument(body: bytes, position: int, short: int) -> tuple[int, int]:
    """Read a head's argument; _INDEFINITE where the head says so."""
    if short < 24:
        return short, position
    if short == 24:
        return body[position], position + 1
    if short == 25:
        return _uint16(body, position)[0], position + 2
    if short == 26:
        return _uint32(body, position)[0], position + 4
    if short == 27:
        return _uint64(body, position)[0], position + 8
    if short == 31:
        return _INDEFINITE, position
    raise _malformed(position)


def _simple(body: bytes, position: int, short: int) -> tuple[object, int]:
    if short == 25:
        return _half(body, position)[0], position + 2
    if short == 26:
        return _single(body, position)[0], position + 4
    if short == 27:
        return _double(body, position)[0], position + 8
    if short in _SIMPLE:
        return _SIMPLE[short], position
    if short == 24:
        if body[position] < 32:  # RFC 8949 section 3.3: not well-formed
            raise _malformed(position)
        return Invalid(f"CBOR simple value {body[position]} has no place in an event"), position + 1
    if short < 20:
        return Invalid(f"CBOR simple value {short} has no place in an event"), position
    raise _malformed(position)


def _text(body: bytes, position: int, length: int, items_left: list[int]) -> tuple[object, int]:
    if length >= 0:
        end = position + length
        if end > len(body):
            raise _ends_early()
        try:
            return body[position:end].decode(), end
        except UnicodeDecodeError:
            return Invalid("CBOR text is not UTF-8"), end
    chunks, end = _chunks(body, position, 3, items_left)
    try:
        return "".join([chunk.decode() for chunk in chunks]), end  # RFC 8949 section 3.2.3: each chunk is text itself
    except UnicodeDecodeError:
        return Invalid("CBOR text is not UTF-8"), end


def _bytes(body: bytes, position: int, length: int, major: int, items_left: list[int]) -> tuple[bytes, int]:
    if length < 0:
        chunks, end = _chunks(body, position, major, items_left)
        return b"".join(chunks), end
    end = position + length
    if end > len(body):
        raise _ends_early()
    return body[position:end], end


def _chunks(body: bytes, position: int, major: int, items_left: list[int]) -> tuple[list[bytes], int]:
    chunks: list[bytes] = []
    while (first := body[position]) != _BREAK:
        length, start = _argument(body, position + 1, first & 31)
        if first >> 5 != major or length < 0:
            raise _malformed(position)
        _count(1, items_left)
        chunk, position = _bytes(body, start, length, major, items_left)
        chunks.append(chunk)
    return chunks, position + 1


def _array(body: bytes, position: int, count: int, depth: int, items_left: list[int]) -> tuple[object, int]:
    _check_room(body, position, count, depth, items_left)
    items: list[object] = []
    depth -= 1
    if count < 0:
        while body[position] != _BREAK:
            _count(1, items_left)
            item, position = _item(body, position, depth, items_left)
            items.append(item)
        return items, position + 1
    for _ in range(count):
        item, position = _item(body, position, depth, items_left)
        items.append(item)
    return items, position


def _map(body: bytes, position: int, count: int, depth: int, items_left: list[int]) -> tuple[object, int]:
    """Read a map; its keys are text, or integers (SenML's labels), and what else they are makes it `Invalid`."""
    _check_room(body, position, 2 * count, depth, items_left)
    entries: dict[object, object] = {}
    problem = None
    while count:
        if count < 0:
            if body[position] == _BREAK:
                position += 1
                break
            _count(2, items_left)
        key, position = _item(body, position, depth - 1, items_left)
        value, position = _item(body, position, depth - 1, items_left)
        count -= 1
        if type(key) is not str and type(key) is not int:
            problem = key.reason if isinstance(key, Invalid) else "a key is not text"
        elif key in entries:
            problem = "a map has a key twice"
        else:
            entries[key] = value
    return (entries if problem is None else Invalid(problem)), position


def _tag(body: bytes, position: int, tag: int, depth: int, items_left: list[int]) -> tuple[object, int]:
    _check_room(body, position, 1, depth, items_left)
    value, end = _item(body, position, depth - 1, items_left)
    if tag == _TAG_SELF_DESCRIBED:
        return value, end
    if tag not in (_TAG_UNSIGNED, _TAG_NEGATIVE) or not isinstance(value, bytes):
        return Invalid(f"CBOR tag {tag} has no place in an event"), end
    digits = value.lstrip(b"\0")
    number = int.from_bytes(digits, "big") if len(digits) <= 8 else INTEGER_END
    if tag == _TAG_NEGATIVE:
        number = -1 - number
    if not INTEGER_MIN <= number < INTEGER_END:
        return Invalid("an integer is outside [-2^63, 2^64)"), end
    return number, end


def _check_room(body: bytes, position: int, items: int, depth: int, items_left: list[int]) -> None:
    """Count the items of a container; below zero, their number is not known yet."""
    if not depth:
        raise Undecodable(f"CBOR: nested deeper than {DEPTH_READ_MAX} levels")
    if items > len(body) - position:  # each takes a byte at least
        raise _ends_early()
    if items > 0:
        _count(items, items_left)


def _count(items: int, items_left: list[int]) -> None:
    items_left[0] -= items
    if items_left[0] < 0:
        raise Undecodable(f"CBOR: more than {ITEMS_MAX} items")


def _ends_early() -> Undecodable:
    return Undecodable("CBOR: the body ends in the middle of an item")


def _malformed(position: int) -> Undecodable:
    return Undecodable(f"CBOR: not well-formed before byte {position}")
