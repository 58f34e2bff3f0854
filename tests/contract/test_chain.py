"""A section's digest depends on each event, on their order and on their number, and on nothing else."""

import json
from dataclasses import replace
from hashlib import sha256

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from contract.chain import DIGEST_START, canonical, extend, leaf
from contract.event import Event, Label
from contract.fingerprint import fingerprint
from contract.record import encode_tail
from tests.contract.strategies import events

LABEL = Label("00c0ffee00c0ffee", 42)


def content(event: Event, received: int = 1_763_706_000_123) -> bytes:
    return fingerprint(event, label=LABEL) + encode_tail(event, received, "coap")


contents = st.lists(events.map(content), min_size=1, max_size=12)


def test_the_digest_is_as_documented() -> None:
    first, second = (content(Event("urn:dev:ops:a", id=number, data={"t": 21.5})) for number in (1, 2))
    after_first = sha256(bytes(32) + sha256(first).digest()).digest()
    assert extend(DIGEST_START, [first, second]) == sha256(after_first + sha256(second).digest()).digest()


@given(contents, st.integers(0, 12))
def test_a_digest_is_continued_wherever_it_was_interrupted(drawn: list[bytes], cut: int) -> None:
    assert extend(extend(DIGEST_START, drawn[:cut]), drawn[cut:]) == extend(DIGEST_START, drawn)


@pytest.mark.guarantee(8)
@given(contents, st.data())
def test_a_change_an_exchange_a_removal_and_an_addition_change_the_digest(
    drawn: list[bytes], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(drawn) - 1))
    other = data.draw(events.map(content).filter(lambda event: leaf(event) != leaf(drawn[at])))
    place = data.draw(st.integers(0, len(drawn) - 1))
    exchanged = drawn.copy()
    exchanged[at], exchanged[place] = drawn[place], drawn[at]
    tampered = [
        [*drawn[:at], other, *drawn[at + 1 :]],
        [*drawn[:at], *drawn[at + 1 :]],
        [*drawn[:at], other, *drawn[at:]],
        [*drawn[:at], drawn[at], *drawn[at:]],
    ]
    if leaf(drawn[at]) != leaf(drawn[place]):
        tampered.append(exchanged)
    whole = extend(DIGEST_START, drawn)
    assert all(extend(DIGEST_START, changed) != whole for changed in tampered)


@pytest.mark.guarantee(8)
@given(events, st.data())
def test_each_field_of_the_record_is_in_the_leaf(event: Event, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["device", "type", "id", "boot", "time", "data", "units", "offset_ms"]))
    other = replace(event, offset_ms=-5) if name == "offset_ms" else data.draw(events)
    changed = replace(event, **{name: getattr(other, name)})
    assume(_as_columns(changed) != _as_columns(event))
    before, after = (fingerprint(event, label=LABEL) + encode_tail(one, 1, "coap") for one in (event, changed))
    assert leaf(before) != leaf(after)
    assert leaf(content(event, received=2)) != leaf(content(event, received=3))


@given(events, st.integers(-(1 << 63), (1 << 64) - 1))
def test_an_integer_and_its_text_are_alike_as_the_table_cannot_distinguish_them(event: Event, number: int) -> None:
    read = replace(event, id=number, boot=number)
    for written in (replace(read, id=str(number)), replace(read, boot=str(number))):
        assert canonical(encode_tail(written, 1, "coap")) == canonical(encode_tail(read, 1, "coap"))


@given(events)
def test_the_canonical_form_differs_only_in_quotes_of_integers(event: Event) -> None:
    tail = encode_tail(event, 1, "coap")
    before, after = (json.loads(b"{" + text + b"}") for text in (tail, canonical(tail)))
    assert canonical(canonical(tail)) == canonical(tail)
    for name in ("id", "boot"):
        assert str(before.pop(name, None)) == str(after.pop(name, None))
    assert before == after


@pytest.mark.parametrize("text", ["007", "+7", "7.0", " 7", "7 ", "", "-", "1e3", "٣"])
def test_a_text_that_is_no_integer_of_json_keeps_its_quotes(text: str) -> None:
    event = Event("urn:dev:ops:a", id=text, boot=text, data={"id": "7", "boot": "7"})
    tail = encode_tail(event, 1, "coap")
    assert canonical(tail) == tail


def _as_columns(event: Event) -> str:
    tail = json.loads(b"{" + encode_tail(event, 1, "coap") + b"}")
    return json.dumps(tail | {name: str(tail[name]) for name in ("id", "boot") if name in tail})
