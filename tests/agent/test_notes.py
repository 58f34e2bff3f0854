"""The store's notes of a newer release, which says more in them: the release before goes on with what it knows."""

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import pytest

from agent.forward.facts import Hold, InDoubtBatches, OversizedEvent, read_hold, read_in_doubt, read_oversized
from agent.forward.modes.transaction import Intent, Marker, read_intent
from agent.mqtt.session import BrokerSession, read_session
from agent.store.format.packing import checksum
from agent.store.gateway_events import UntrustedClock, read_untrusted_clock
from agent.store.layout import FILE_NAME
from agent.store.port import Batch, LabelRange, Offsets
from agent.store.schema import database, tables

NEWER = {"newer": 1}
OVERSIZED = OversizedEvent(9, 1, own=False, refused_ms=3)
SESSION = BrokerSession("5e", "c at b", 1, 2)
BATCH = Batch(3, 4, "t", {0: Offsets(5, 6, 7)})
INTENT = Intent(Marker("e", 2), Marker("e", 1), BATCH, (LabelRange("e", 3, 4),))


def newer_intent() -> str:
    document = json.loads(str(INTENT))
    one, of = document["labels"], document["batch"]["partitions"]
    for entries in (document, document["marker"], document["previous"], document["batch"], of["0"], *one):
        entries.update(NEWER)
    return json.dumps(document)


@pytest.mark.guarantee(3)
@pytest.mark.parametrize(
    ("read", "text", "expected"),
    [
        (read_in_doubt, "[1, 2, 3, 4]", InDoubtBatches(1, 2, 3)),
        (read_oversized, json.dumps({5: asdict(OVERSIZED) | NEWER}), {5: OVERSIZED}),
        (read_hold, json.dumps(asdict(Hold(1, "r")) | NEWER), Hold(1, "r")),
        (read_session, json.dumps(asdict(SESSION) | NEWER), SESSION),
        (read_untrusted_clock, '["b", [[1, 2, 3], [4, null, 5]], 6, 7]', UntrustedClock("b", ((1, 2), (4, None)), 6)),
        (read_intent, newer_intent(), INTENT),
    ],
)
def test_what_a_newer_release_adds_to_a_fact_is_left_out(
    read: Callable[[str], object], text: str, expected: object
) -> None:
    assert read(text) == expected


@pytest.mark.guarantee(3)
def test_what_a_newer_release_adds_to_the_offsets_of_a_batch_is_left_out(tmp_path: Path) -> None:
    with closing(database.open_for_service(tmp_path / FILE_NAME)) as connection:
        tables.insert_batch(connection, BATCH)
        row = (BATCH.first, BATCH.last, BATCH.topic_id, '{"0": [5, 6, 7, 8]}')
        connection.execute("UPDATE batches SET partitions = ?, checksum = ?", (row[-1], checksum("batches", row)))
        assert tables.load_batches(connection) == [BATCH]
