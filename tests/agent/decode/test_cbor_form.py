from random import Random

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.decode import cbor
from agent.decode.cbor_items import check_well_formed
from agent.decode.decoded import Undecodable
from agent.delivery import Media
from benchmarks.bodies import colliding_keys, slow_bodies
from contract.event import Value
from contract.values import DEPTH_MAX, Invalid
from tests.agent.decode.deliveries import deliver, reason_of
from tests.agent.decode.test_fuzz import cbor_items
from tests.contract import forms
from tests.contract.strategies import maps, randoms, values


@given(maps(values), randoms)
def test_any_encoding_of_a_value_is_read_as_the_value(entries: dict[str, Value], random: Random) -> None:
    assert cbor.read(forms.cbor_form(entries, random)) == entries


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        ("f97e00", "not finite"),
        ("fa7f800000", "not finite"),
        ("fbfff0000000000000", "not finite"),
        ("3b8000000000000000", "outside"),
        ("c249010000000000000000", "outside"),
        ("c3488000000000000000", "outside"),
        ("c349ffffffffffffffffff", "outside"),
        ("c11a514b67b0", "tag 1"),
        ("c074323031332d30332d32315432303a30343a30305a", "tag 0"),
        ("c48221196ab3", "tag 4"),
        ("d81c81d81d00", "tag 28"),
        ("d901028101", "tag 258"),
        ("d8184101", "tag 24"),
        ("c201", "tag 2"),
        ("c26161", "tag 2"),
        ("e0", "simple value 0"),
        ("f0", "simple value 16"),
        ("f8ff", "simple value 255"),
        ("62c328", "not UTF-8"),
        ("63eda080", "not UTF-8"),
        ("7f61c361a9ff", "not UTF-8"),
        ("a10101", "a key is not text"),
        ("a1f601", "a key is not text"),
        ("a1416101", "a key is not text"),
        ("a18001", "a key is not text"),
        ("a162c32801", "not UTF-8"),
        ("a2616101616102", "twice"),
        ("a261610178016102", "twice"),
        ("a262c3a9016365cc8102", "equal after NFC"),
        ("a1" + "66" + b"$bytes".hex() + "4101", "$bytes"),
        ("81" * (DEPTH_MAX + 1) + "01", "nested deeper"),
    ],
)
@pytest.mark.parametrize("prefix", ["", "d9d9f7"])
def test_wrong_value_rejects_its_event_only_and_leaves_its_device(item: str, reason: str, prefix: str) -> None:
    wrong = bytes.fromhex(prefix + "a3626964026664657669636561646464617461a16178" + item)
    first, last = cbor2.dumps({"id": 1}), cbor2.dumps({"id": 3})
    for body in (b"\x83" + first + wrong + last, b"\xd9\xd9\xf7\x9f" + first + wrong + last + b"\xff", wrong):
        decoded = deliver(body, Media.CBOR)
        assert [event.id for event in decoded.events] == ([] if body == wrong else [1, 3])
        [rejected] = decoded.rejected
        assert reason in rejected.reason
        assert (rejected.device, rejected.raw) == ("d", wrong)


NOT_WELL_FORMED = """
a1 a161 a16161 a1616118 a16161fb00 a16178 82a0 9f bf6161 bf616101 bf6161ff a0a0 a000 ff 81ff 1c fc f800 f818
3f 1f df01 c2 5f4101 5f6161ff 5f5f4101ffff 7f4161ff 5b1000000000000000 7b1000000000000000 9b1000000000000000
bb1000000000000000 5bffffffffffffffff 9bffffffffffffffff00
"""


@pytest.mark.parametrize(
    "body",
    [
        *NOT_WELL_FORMED.split(),
        "81" * 65 + "a0",
        "9f" * 20_000,
        "bf6161" * 20_000,
        "c2" * 20_000,
        "d9d9f7" * 20_000,
    ],
    ids=lambda body: body[:20],
)
def test_what_is_not_well_formed_is_undecodable(body: str) -> None:
    with pytest.raises(Undecodable, match="CBOR"):
        deliver(bytes.fromhex(body), Media.CBOR)


@pytest.mark.guarantee(6)
@pytest.mark.parametrize("strings", [1, 4, 2_000])
@pytest.mark.parametrize("kind", [0x40, 0x60])
@pytest.mark.parametrize("form", ["values", "keys", "bignums"])
def test_the_chunks_of_all_strings_of_a_body_count_as_its_items(form: str, kind: int, strings: int) -> None:
    chunks = cbor.ITEMS_MAX // strings + 1
    string = bytes((kind | 31,)) + bytes((kind,)) * chunks + b"\xff"
    body = {
        "values": b"\x9f" + string * strings + b"\xff",
        "keys": b"\xbf" + (string + b"\0") * strings + b"\xff",
        "bignums": b"\x9f" + (b"\xc2" + string) * strings + b"\xff",
    }[form]
    with pytest.raises(Undecodable, match=f"more than {cbor.ITEMS_MAX} items"):
        cbor.read(body)


@pytest.mark.parametrize("body", ["01", "6161", "4101", "f6", "f5", "fb3fb999999999999a"])
def test_other_items_are_undecodable(body: str) -> None:
    with pytest.raises(Undecodable, match="neither a map nor an array"):
        deliver(bytes.fromhex(body), Media.CBOR)


COLLIDING = {name: body for name, body in slow_bodies().items() if name.startswith("colliding keys")}


@pytest.mark.guarantee(6)
@pytest.mark.parametrize("integer_keys", [False, True])
@pytest.mark.parametrize("name", COLLIDING)
def test_keys_with_one_hash_never_meet_in_a_map(name: str, integer_keys: bool) -> None:
    keys = [cbor2.loads(entry) for entry in colliding_keys(100)]
    assert len({hash(tuple(key)) for key in keys}) == 1
    read = cbor.read(COLLIDING[name], integer_keys=integer_keys)
    wrong = Invalid("a key is not text")
    assert read in (wrong, [wrong], [{"data": wrong}])


@given(st.binary(max_size=40) | cbor_items.map(b"".join), st.booleans())
def test_what_is_read_is_well_formed(body: bytes, integer_keys: bool) -> None:
    try:
        cbor.read(body, integer_keys=integer_keys)
    except Undecodable:
        with pytest.raises(Undecodable):
            check_well_formed(body)
    else:
        check_well_formed(body)


def test_a_foreign_tag_around_everything_rejects_it() -> None:
    assert "tag 1 " in reason_of(deliver(b"\xc1\x81\xa0", Media.CBOR))
    assert cbor.read(b"\xc1\x81\xa0") == Invalid("CBOR tag 1 has no place in an event")


@given(maps(values, max_size=3), randoms)
def test_split_cuts_where_the_items_are(entries: dict[str, Value], random: Random) -> None:
    body = forms.cbor_form([entries, 1, entries], random)
    assert [cbor.read(piece) for piece in cbor.split(body)] == [entries, 1, entries]
