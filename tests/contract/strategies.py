"""Events and values as hypothesis draws them."""

import unicodedata
from collections.abc import Mapping
from random import Random

from hypothesis import strategies as st

from contract.event import TIME_MAX, TIME_MIN, TYPE_DEFAULT, Event, Value

CONTROLS = "".join(map(chr, (*range(0x20), *range(0x7F, 0xA0))))

randoms = st.integers(0, (1 << 32) - 1).map(Random)
finite = st.floats(allow_nan=False, allow_infinity=False)
integers = st.integers(-(1 << 63), (1 << 64) - 1)
numbers = st.one_of(integers, finite, st.integers(-1000, 1000).map(lambda tenths: tenths / 10))
keys = st.text(max_size=30).filter(lambda key: key != "$bytes")
scalars: st.SearchStrategy[Value] = st.one_of(
    st.none(), st.booleans(), numbers, st.text(max_size=30), st.binary(max_size=30)
)


def _distinct(entries: Mapping[str, Value]) -> bool:
    return len({unicodedata.normalize("NFC", key) for key in entries}) == len(entries)


def maps(values: st.SearchStrategy[Value], **sizes: int) -> st.SearchStrategy[dict[str, Value]]:
    return st.dictionaries(keys, values, max_size=sizes.get("max_size", 5), min_size=sizes.get("min_size", 0)).filter(
        _distinct
    )


def _containers(inner: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    lists: st.SearchStrategy[Value] = st.lists(inner, max_size=5)
    return st.one_of(lists, maps(inner))


values = st.recursive(scalars, _containers, max_leaves=12)
names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=CONTROLS), min_size=1, max_size=40)
ids = st.none() | integers | names
events = st.builds(
    Event,
    device=names.map(lambda name: f"urn:dev:ops:{name}"),
    type=names.map(lambda name: f"x{name}"),
    id=ids,
    boot=ids,
    time=st.none() | st.integers(TIME_MIN, TIME_MAX),
    data=st.none() | maps(values),
    units=st.none() | st.dictionaries(keys, names, max_size=3),
    offset_ms=st.none(),
    ext=st.none() | maps(values),
)
flat_events = st.builds(
    Event,
    device=names.map(lambda name: f"urn:dev:ops:{name}"),
    type=st.just(TYPE_DEFAULT),
    id=st.none(),
    boot=st.none(),
    time=st.integers((1 << 28) * 1000, TIME_MAX),
    data=maps(st.one_of(st.booleans(), numbers, st.text(max_size=30), st.binary(max_size=30)), min_size=1).filter(
        lambda data: "" not in data
    ),
    units=st.none(),
    offset_ms=st.none(),
)
"""Events that SenML can express."""
