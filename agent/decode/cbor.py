"""Reads CBOR (RFC 8949) under the rules for values of an event: cbor2 decodes, with its strict options.

A tag or simple value that no event can hold becomes `Invalid`, which refuses only the event around it. For a key, a
text or its depth, cbor2 refuses a body as a whole; where it is well-formed, its parts are then decoded one by one
(decision 62). Bytes after the item are an error. Whatever length a head claims, no more than 64 KiB are allocated
before its bytes are there.
"""

import re
from collections.abc import Callable
from functools import cache, lru_cache, partial
from io import BytesIO
from typing import Any, Final

from cbor2 import CBORDecodeError, CBORDecoder, CBORSimpleValue, loads, undefined

from agent.decode import cbor_items
from contract.cbor import INTEGER_MIN
from contract.values import Invalid, InvalidValue

ITEMS_MAX: Final = cbor_items.ITEMS_MAX
split = cbor_items.split

_PARTS_LEVELS: Final = 2
"""Levels at which an item is decoded in parts: those of a pack, and those of an event or a SenML record."""
_SELF_DESCRIBED: Final = b"\xd9\xd9\xf7"
_TAG_UNSIGNED: Final = 2
_TAG_NEGATIVE: Final = 3
_TAG_SELF_DESCRIBED: Final = 55799
_SIMPLE_VALUES: Final = re.compile(rb"[\xe0-\xf3\xf7\xf8]")
"""The first bytes of undefined and of all simple values but false, true and null; other items may hold them, too."""
_OUTSIDE: Final = Invalid("an integer is outside [-2^63, 2^64)")


_TagDecoder = Callable[[object, bool], object]


def read(body: bytes, *, integer_keys: bool = False) -> object:
    """Return the one item of a body; raise Undecodable.

    `integer_keys`: whether integers may be keys of the maps in an array, as SenML's labels are; the keys of those maps
    can then be anything that holds no other item.
    """
    checked = len(body) > ITEMS_MAX or (integer_keys and body.startswith(_SELF_DESCRIBED))
    if checked:
        cbor_items.check_well_formed(body)
    item = _without_self_description(body) if integer_keys else body
    integer_keys = integer_keys and cbor_items.is_array(item)
    try:
        return _decode(item, _PARTS_LEVELS if integer_keys else 0)
    except CBORDecodeError as error:
        if not checked:
            cbor_items.check_well_formed(body)
        return _decode_parts(item, error, _PARTS_LEVELS, integer_keys)


def _rules(free_levels: int) -> dict[str, Any]:
    """Return cbor2's options for an item.

    `free_levels`: if it is not 0, the item may have that many levels, and any keys. Otherwise keys are text or bytes,
    whose hashes a sender cannot make collide, since Python keys them; integers in an array have no such protection.
    """
    return {
        "semantic_decoders": _TAGS,
        "max_depth": free_levels or cbor_items.NESTING_MAX,
        "allow_duplicate_keys": False,
        "strict_hashable_types": not free_levels,
    }


def _decode(item: bytes, free_levels: int) -> object:
    """Decode a body's item; raise CBORDecodeError, or Undecodable where bytes follow."""
    source = BytesIO(item)
    value: object = CBORDecoder(source, read_size=len(item), **_rules(free_levels)).decode()
    if rest := len(item) - source.tell():
        raise cbor_items.trailing_bytes(rest)
    return _replace_simple_values(value, item)


def _decode_parts(item: bytes, error: CBORDecodeError, levels: int, integer_keys: bool) -> object:
    """Decode the parts of a well-formed item that cbor2 has refused."""
    item = _without_self_description(item)
    if not levels or not cbor_items.is_container(item):
        return Invalid(_reason(error))
    levels -= 1
    rules = _rules(levels if integer_keys else 0)
    parts: list[object] = []
    for part in cbor_items.split(item):
        try:
            parts.append(_replace_simple_values(loads(part, **rules), part))
        except CBORDecodeError as part_error:
            parts.append(_decode_parts(part, part_error, levels, integer_keys))
    return parts if cbor_items.is_array(item) else _map_of(parts)


def _without_self_description(item: bytes) -> bytes:
    """Return an item without tags 55799 around it (RFC 8949 section 3.4.6)."""
    position = 0
    while item.startswith(_SELF_DESCRIBED, position):
        position += len(_SELF_DESCRIBED)
    return item[position:]


def _map_of(parts: list[object]) -> object:
    """Return the map of alternating keys and values; `Invalid` where a key is invalid or occurs twice."""
    entries: dict[object, object] = {}
    for key, value in zip(parts[::2], parts[1::2], strict=True):
        if type(key) is not str and type(key) is not int:
            return key if isinstance(key, Invalid) else Invalid("a key is not text")
        if key in entries:
            return Invalid("a map has a key twice")
        entries[key] = value
    return entries


def _reason(error: CBORDecodeError) -> str:
    cause = error.__cause__
    if isinstance(cause, InvalidValue):
        return str(cause)
    if isinstance(cause, UnicodeDecodeError):
        return "CBOR text is not UTF-8"
    return "a map has a key twice" if "Duplicate map key" in str(error) else "a key is not text"


def _replace_simple_values(value: object, item: bytes) -> object:
    """Return a decoded item with None for undefined and `Invalid` for simple values that no event can hold."""
    return _replaced(value) if _SIMPLE_VALUES.search(item) else value


def _replaced(value: object) -> object:
    if type(value) is dict:
        for key, entry in value.items():
            if type(entry) in _REPLACED:
                value[key] = _replaced(entry)
    elif type(value) is list:
        value[:] = [_replaced(entry) if type(entry) in _REPLACED else entry for entry in value]
    elif value is undefined:
        return None
    elif isinstance(value, CBORSimpleValue):
        return _invalid_simple_value(value.value)
    return value


_REPLACED: Final = frozenset({dict, list, CBORSimpleValue, type(undefined)})


@cache
def _invalid_simple_value(number: int) -> Invalid:
    return Invalid(f"CBOR simple value {number} has no place in an event")


def _read_bignum(tag: int, value: object, is_key: bool) -> object:
    """Return the integer of a bignum's bytes, or `Invalid`."""
    if type(value) is not bytes:
        return _refuse_tag(tag)(value, is_key)
    digits = value.lstrip(b"\0")
    number = int.from_bytes(digits, "big")
    if len(digits) > 8 or (tag == _TAG_NEGATIVE and -1 - number < INTEGER_MIN):
        return _refuse(_OUTSIDE, value, is_key)
    return number if tag == _TAG_UNSIGNED else -1 - number


def _refuse(invalid: Invalid, _: object, is_key: bool) -> Invalid:
    """Return the placeholder; raise InvalidValue where it would be a key."""
    if is_key:
        raise InvalidValue(invalid.reason)
    return invalid


@lru_cache(maxsize=64)
def _refuse_tag(tag: int) -> _TagDecoder:
    """Return a decoder that refuses the tag, whatever it is around; a body may have thousands."""
    return partial(_refuse, Invalid(f"CBOR tag {tag} has no place in an event"))


class _TagDecoders(dict[int, _TagDecoder]):
    """Answers for every tag, so that cbor2's own decoders are never used: dates, references, patterns, sets."""

    def __missing__(self, tag: int) -> _TagDecoder:
        return _refuse_tag(tag)


_TAGS: Final = _TagDecoders(
    {
        **{tag: partial(_read_bignum, tag) for tag in (_TAG_UNSIGNED, _TAG_NEGATIVE)},
        _TAG_SELF_DESCRIBED: lambda value, immutable: value,
    }
)
