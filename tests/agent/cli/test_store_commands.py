"""The commands that read a store, on real ones: whole and damaged, and with lanes."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.config.lanes import DEFAULT_LANE, Lane
from agent.forward.facts import Hold, OversizedEvent, write_oversized
from agent.store.facts import FORWARDER_STOPPED, OVERSIZED, RECEIPTS_HELD
from agent.store.files.folders import LANES_FOLDER, store_folders
from agent.store.lanes import LaneStores
from agent.store.layout import FILE_NAME
from agent.store.schema import disk_space
from contract.event import Event
from contract.fingerprint import fingerprint
from tests.agent.cli import running as cli
from tests.agent.store.stores import HandClock, accept, batch, change, holding_the_log, make_store, stored_events
from tests.support.agent_process import configured

DEVICE = "urn:dev:mac:00158d0001a2b3c4"
ONE, TWO, THREE = (Event(DEVICE, id=number, data={"text": f"number {number}"}) for number in (1, 2, 3))

Run = Callable[..., tuple[int, list[str]]]


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    """Create a store: one event processed, one forwarded, one new, and duplicates of the first."""
    clock = HandClock()
    async with make_store(tmp_path / "state", clock, keep_processed_seconds=10**9) as store:
        await accept(store, ONE)
        store.outbox.mark_forwarded(batch(1, 2))
        store.outbox.set_fact("receipts.table", "table-1")
        store.outbox.mark_processed(store.outbox.forwarded())
        clock.pass_seconds(5)
        await accept(store, ONE)
        await accept(store, ONE, TWO)
        store.outbox.mark_forwarded(batch(3, 3, offset=70))
        await accept(store, THREE)
        assert [event.position for event in stored_events(store)] == [4]
    return tmp_path / "state"


@pytest.fixture
def run(folder: Path, oncegate: cli.Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("ONCEGATE_CONFIG", str(configured(folder.parent)))

    def command(*arguments: str) -> tuple[int, list[str]]:
        status, out, _ = oncegate(*arguments)
        return status, out.splitlines()

    return command


def overwrite(folder: Path, old: bytes, new: bytes) -> None:
    """Replace bytes in the file by others of the same length."""
    file = folder / FILE_NAME
    content = file.read_bytes()
    assert old in content
    assert len(old) == len(new)
    file.write_bytes(content.replace(old, new))


def findings(run: Run) -> dict[str, str]:
    status, lines = run("verify", "--json")
    document = json.loads(lines[0])
    assert (status == 0) == document["whole"]
    return {finding["check"]: finding["text"] for finding in document["findings"]}


def test_a_whole_store_is_found_to_be_whole_and_left_as_it_is(run: Run, folder: Path) -> None:
    before = (folder / FILE_NAME).read_bytes()
    status, lines = run("verify")
    assert (status, lines[-1].endswith("4 events are whole; no findings")) == (0, True)
    assert (folder / FILE_NAME).read_bytes() == before


@pytest.mark.guarantee(7)
def test_a_damaged_schema_is_found(run: Run, folder: Path) -> None:
    overwrite(folder, b"CREATE TABLE events", b"CREATE TAB\xcaE events")
    assert findings(run)["events"].startswith("cannot be read: malformed")
    assert run("events")[0] == 1


def test_the_list_of_events_goes_on_behind_a_damaged_one(run: Run, folder: Path) -> None:
    overwrite(folder, b"number 2", b"number 3")
    states = [json.loads(line)["state"] for line in run("events")[1]]
    assert states == ["processed", "processed", "damaged", "new"]
    assert any("sequence 3 to 3: see oncegate verify" in line for line in run("events", "--table")[1])


async def test_a_damaged_event_is_a_finding_until_it_is_declared_lost(run: Run, folder: Path) -> None:
    overwrite(folder, b"number 3", b"number 4")
    assert findings(run) == {"events": "event at position 4: the checksum does not match"}
    async with make_store(folder) as store:
        assert (await accept(store, THREE)).accepted == 1
        assert len(stored_events(store)) == 3  # gateway.started, gateway.gap, and the lost event, sent again
    assert findings(run) == {}
    assert json.loads(run("status", "--json")[1][0])["events"]["lost"] == 1
    assert "1 lost" in "".join(run("status")[1])


@pytest.mark.guarantee(3)
async def test_status_names_a_reader_that_holds_the_log(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_space, "LOG_BYTES_EXPECTED", 100_000)
    async with make_store(folder) as store:
        with holding_the_log(folder):
            before = run("status")[1]
            for number in range(40):
                await accept(store, Event(DEVICE, id=100 + number, data={"text": "x" * 3_000}))
            held, log_bytes = run("status")[1], json.loads(run("status", "--json")[1][0])["log_bytes"]
    lines = [line for line in held if "held by a program that reads the store" in line]
    assert f"fuser -v {folder / FILE_NAME}" in lines[0]
    assert log_bytes > disk_space.LOG_BYTES_EXPECTED
    assert not any("held by" in line for line in [*before, *run("status")[1]])


@pytest.mark.guarantee(7)
@pytest.mark.parametrize(
    ("sql", "check", "text"),
    [
        ("UPDATE epochs SET epoch = 'x'", "rows", "table epochs, row 1: the checksum does not match"),
        ("UPDATE batches SET last = 4", "rows", "table batches, row 3: the checksum does not match"),
        ("UPDATE processed SET last = 3", "rows", "table processed, row 1: the checksum does not match"),
        ("UPDATE facts SET value = 'x'", "rows", "table facts, row 'receipts.table': the checksum does not match"),
        ("DELETE FROM processed", "states", ""),
        ("DELETE FROM epochs", "labels", "event at position 4: it belongs to no epoch"),
        ("DELETE FROM events WHERE first_position = 4", "states", "event at position 4: neither delivered nor there"),
        ("UPDATE events SET count = 3 WHERE first_position = 4", "events", "event at position 6: the checksum"),
    ],
)
def test_what_contradicts_itself_is_found(run: Run, folder: Path, sql: str, check: str, text: str) -> None:
    change(folder, sql)
    if not text:  # processed events count as new again: they are sent once more, nothing is lost
        assert findings(run) == {}
    else:
        assert text in findings(run)[check]


def test_a_file_of_something_else_is_a_finding_and_no_traceback(run: Run, folder: Path) -> None:
    (folder / FILE_NAME).write_bytes(b"garbage!" * 4096)
    found = findings(run)
    assert "not what SQLite writes" in found["files"]
    assert "not a database" in found["events"]
    assert run("status")[0] == 1


@pytest.mark.guarantee(7)
def test_trace_shows_how_far_an_event_has_come(run: Run) -> None:
    def trace(event: Event) -> dict[str, object]:
        status, lines = run("trace", fingerprint(event).hex(), "--json")
        assert status == 0
        document: dict[str, object] = json.loads(lines[0])
        return document

    one, two, three = trace(ONE), trace(TWO), trace(THREE)
    assert (one["state"], one["receipt"], one["sequence"]) == ("processed", "table-1", 2)
    assert (two["state"], two["batch_offsets"], two["topic_id"]) == ("forwarded", {"0": [70, 70]}, "topic-1")
    assert (three["state"], three["duplicates"]) == ("new", [])
    assert one["duplicates"] == ["2025-11-21T06:20:05.000Z"] * 2
    assert one["committed"] == one["accepted"] == "2025-11-21T06:20:00.000Z"
    assert two["committed"] == "2025-11-21T06:20:05.000Z"
    assert any("forwarded" in line for line in run("trace", fingerprint(TWO).hex())[1])


def test_trace_of_an_unknown_event_says_so(run: Run) -> None:
    assert run("trace", "00" * 16) == (1, [])
    assert run("trace", "xyz")[0] == 2


def test_the_latest_duplicates_are_listed_with_what_they_repeat(run: Run) -> None:
    status, lines = run("events", "--duplicates")
    duplicates = [json.loads(line) for line in lines]
    assert status == 0
    first = (fingerprint(ONE).hex(), 2, "processed")
    assert [(one["fingerprint"], one["sequence"], one["state"]) for one in duplicates] == [first] * 2
    assert len(run("events", "--duplicates", "--limit", "1")[1]) == 1


async def test_status_says_what_kafka_refuses_and_which_receipts_are_held(folder: Path, run: Run) -> None:
    large = {4: OversizedEvent(70_000, 1, own=False), 9: OversizedEvent(3_000, 2, own=False)}
    async with make_store(folder, keep_processed_seconds=10**9) as store:
        store.outbox.set_fact(OVERSIZED, write_oversized(large))
        store.outbox.set_fact(RECEIPTS_HELD, str(Hold(1, "a foreign consumer has committed")))
    code, lines = run("status")
    text = "\n".join(lines)
    assert code == 0
    assert "2 events refused by Kafka" in text
    assert "a foreign consumer has committed" in text
    document = json.loads(run("status", "--json")[1][0])
    assert (document["oversized"], document["oversized_since"], document["oversized_bytes"]) == (2, 1, 3_000)
    assert (document["receipts_held"], document["receipts_held_since"]) == ("a foreign consumer has committed", 1)


READING, ALARM = Event("urn:a", id=1, data={"x": 1}), Event("urn:a", type="alarm", id=2, data={"x": 2})


@pytest.fixture
async def epoch(tmp_path: Path) -> str:
    """Fill the store of the default lane and that of the lane `alarms`; return the epoch of the latter."""
    clock = HandClock()
    folder = tmp_path / "state"
    default, alarms = make_store(folder, clock), make_store(folder / LANES_FOLDER / "alarms", clock)
    async with LaneStores({DEFAULT_LANE: default, "alarms": alarms}, [Lane("alarms", 1, type="alarm")]):
        await accept(default, READING)
        clock.pass_seconds(60)
        await accept(alarms, ALARM)
        alarms.outbox.mark_forwarded(batch(1, 1))
        alarms.outbox.set_fact(FORWARDER_STOPPED, "fenced")
        return alarms.outbox.epoch()


@pytest.fixture
def on_lanes(epoch: str, tmp_path: Path, oncegate: cli.Run, monkeypatch: pytest.MonkeyPatch) -> cli.Run:
    monkeypatch.setenv("ONCEGATE_CONFIG", str(configured(tmp_path)))
    return oncegate


def test_the_status_is_that_of_all_lanes_and_counts_each(on_lanes: cli.Run) -> None:
    _, out, _ = on_lanes("status", "--json")
    status = json.loads(out)
    assert status["events"] == {"new": 3, "forwarded": 1, "processed": 0, "lost": 0}
    counts = {lane: (of["new"], of["forwarded"]) for lane, of in status["lanes"].items()}
    assert counts == {"default": (2, 0), "alarms": (1, 1)}
    assert status["accepted"] == 2
    assert status["oldest_new"] == status["oldest_unprocessed"] < status["oldest_forwarded"]
    assert status["forwarding_stopped"] == "lane alarms: fenced"
    _, shown, _ = on_lanes("status")
    assert "lane alarms   1 new, 1 forwarded" in shown


def test_events_are_those_of_one_lane(on_lanes: cli.Run) -> None:
    for lane, name in (((), "reading"), (("--lane", "alarms"), "alarm")):
        _, out, _ = on_lanes("events", "--json", *lane)
        types = [json.loads(line)["type"] for line in out.splitlines()]
        assert types == ["gateway.started", name]
    code, _, error = on_lanes("events", "--lane", "doors")
    assert (code, "default, alarms" in error) == (2, True)


def test_an_event_is_traced_whatever_its_lane(on_lanes: cli.Run, epoch: str) -> None:
    code, out, _ = on_lanes("trace", "--json", fingerprint(ALARM).hex())
    assert (code, json.loads(out)["epoch"]) == (0, epoch)
    assert "is not in this store" in on_lanes("replay", "--epoch", "0123456789abcdef")[2]


@pytest.mark.parametrize("damaged", [DEFAULT_LANE, "alarms"])
def test_a_damaged_store_is_found_and_named_and_the_epochs_of_other_lanes_are_replayed(
    on_lanes: cli.Run, tmp_path: Path, damaged: str
) -> None:
    files = {lane: folder / FILE_NAME for lane, folder in store_folders(tmp_path / "state").items()}
    epochs = {}
    for lane in files:
        _, out, _ = on_lanes("events", "--json", "--lane", lane)
        epochs[lane] = json.loads(out.splitlines()[0])["epoch"]
    assert on_lanes("verify")[0] == 0
    files[damaged].write_bytes(b"garbage!" * 4096)
    code, out, _ = on_lanes("verify")
    assert (code, [f"{file}: 0 events" in out for file in files.values()]) == (1, [lane == damaged for lane in files])
    for lane, epoch_of_lane in epochs.items():
        code, _, error = on_lanes("replay", "--epoch", epoch_of_lane, "--from", "3")
        expected = f"{files[damaged]}: file is not a database" if lane == damaged else "ends at sequence 2"
        assert (code, expected in error) == (1, True), error
    for command in (("status",), ("trace", "0" * 32), ("replay", "--epoch", "0123456789abcdef")):
        code, _, error = on_lanes(*command)
        assert (code, f"{files[damaged]}: file is not a database" in error) == (1, True), error
