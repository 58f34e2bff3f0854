"""Damaged files and values: the store opens, keeps all that can be read with fingerprints, declares what is lost."""

import os
import random
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from agent.store.errors import DamagedStoreError
from agent.store.files import swap
from agent.store.files.sqlite_pages import LogFrames
from agent.store.files.use_mark import UseMark
from agent.store.fingerprints import fingerprint_rows
from agent.store.format.packing import pack
from agent.store.layout import FILE_NAME, PAGE_BYTES
from agent.store.port import Reject
from agent.store.read.events import Epochs
from agent.store.recovery.verify import verify
from agent.store.schema import database, tables
from agent.store.schema.database import Reads
from contract.event import Event
from tests.agent.store.recovery.damaged import Original, check, copy, event, survivors
from tests.agent.store.stores import (
    HandClock,
    accept,
    batch,
    change,
    make_store,
    rows,
    stored_events,
    submit,
    take_turns,
)

PAGE = PAGE_BYTES
LOG = f"{FILE_NAME}-wal"
REGIONS = (0, 8, 100, 512, 2048, 4000)
"""Where in a page: its head, its pointers, its free space, its rows."""

IMAGES = 30

Damage = Callable[[bytearray], None]


def damage(folder: Path, name: str, change: Damage) -> None:
    content = bytearray((folder / name).read_bytes())
    change(content)
    (folder / name).write_bytes(content)


@pytest.mark.guarantee(7)
@pytest.mark.heavy
@pytest.mark.parametrize("name", [FILE_NAME, LOG])
@pytest.mark.parametrize("length", [1, 64, PAGE])
async def test_flipped_bytes_in_every_region_of_every_page_lose_nothing_silently(
    original: Original, tmp_path: Path, name: str, length: int
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed={seed}")
    chance = random.Random(seed)
    size = (original.folder / name).stat().st_size
    places = [page + region for page in range(0, size, PAGE) for region in (REGIONS if length < PAGE else (0,))]
    for place in chance.sample(places, min(len(places), IMAGES)):
        at = min(place + chance.randrange(64), size - 1)
        folder = copy(original, tmp_path / "image")

        def flip(content: bytearray, at: int = at) -> None:
            for offset in range(at, min(at + length, len(content))):
                content[offset] ^= chance.randrange(1, 256)

        damage(folder, name, flip)
        print(f"{name} at {at} ({at // PAGE}, {at % PAGE})")
        # A log whose last commit is damaged looks like one torn by a power cut: they cannot be distinguished.
        # Damage of a page's length affects two frames, which may be the ends of two commits.
        may_lose_from = original.commits[-2 if length == PAGE else -1] if name == LOG else None
        check(original, await survivors(folder), may_lose_from=may_lose_from)


@pytest.mark.guarantee(7)
@pytest.mark.parametrize("share", [0, 0.01, 0.3, 0.6, 0.99])
async def test_a_cut_off_file_keeps_what_is_left(original: Original, tmp_path: Path, share: float) -> None:
    folder = copy(original, tmp_path / "image")
    content = (folder / FILE_NAME).read_bytes()
    (folder / FILE_NAME).write_bytes(content[: int(len(content) * share)])
    found = await survivors(folder)
    check(original, found)
    assert found.gap_events


@pytest.mark.guarantee(7)
@pytest.mark.parametrize("filling", [b"\0", b"\xff", b"garbage!"])
async def test_a_file_of_something_else_is_set_aside_and_its_log_is_salvaged(
    original: Original, tmp_path: Path, filling: bytes
) -> None:
    folder = copy(original, tmp_path / "image")
    damage(folder, FILE_NAME, lambda content: content.__setitem__(slice(None), filling * 4096))
    found = await survivors(folder)
    in_log = {event.position for event in original.events if event.position >= original.commits[-6]}
    assert in_log <= found.new.keys()
    assert found.gap_events
    assert {path.name.endswith("-wal") for path in swap.damaged_files(folder / FILE_NAME)} == {True, False}


@pytest.mark.guarantee(7)
async def test_a_schema_that_is_no_text_keeps_no_store_from_opening(tmp_path: Path) -> None:
    async with make_store(tmp_path) as store:
        assert (await accept(store, event(1))).accepted == 1

    def damage_the_schema(content: bytearray) -> None:
        content[:] = content.replace(b"CREATE TABLE events", b"CREATE TAB\xcaE events")

    damage(tmp_path, FILE_NAME, damage_the_schema)  # SQLite quotes it in its error, which Python cannot decode
    async with make_store(tmp_path) as store:
        assert (await accept(store, event(1))).duplicates == 1
    assert any(swap.damaged_files(tmp_path / FILE_NAME))


@pytest.mark.guarantee(7)
async def test_one_damaged_event_becomes_a_gap_while_its_neighbours_go_on(original: Original, tmp_path: Path) -> None:
    folder = copy(original, tmp_path / "image")
    victim = original.events[30]
    damage(folder, FILE_NAME, lambda content: _overwrite_all(content, pack(victim)[8:33]))
    async with make_store(folder) as store:
        events = stored_events(store)
        assert victim.position not in {event.position for event in events}
        assert {30, 32} <= {event.position for event in events}
        gap = events[-1]
        wanted = b'"count":1,"labels":[["%s",%d,%d]]' % (
            victim.label.epoch.encode(), victim.label.sequence, victim.label.sequence,
        )  # fmt: skip
        assert wanted in gap.tail
        assert not store.failed.done()
        assert (await accept(store, event(int(victim.tail.split(b'"id":')[1].split(b",")[0])))).accepted == 1
    assert not list(swap.damaged_files(folder / FILE_NAME))
    async with make_store(folder) as store:
        assert sum(b"gateway.gap" in event.tail for event in stored_events(store)) == 1


@pytest.mark.guarantee(7)
@pytest.mark.parametrize("step", ["salvaged", "set aside", "log set aside"])
async def test_a_kill_in_the_middle_of_a_replacement_loses_nothing(
    original: Original, tmp_path: Path, step: str
) -> None:
    folder = copy(original, tmp_path / "image")
    async with make_store(copy(original, tmp_path / "good"), HandClock()):
        pass
    file = folder / FILE_NAME
    (tmp_path / "good" / FILE_NAME).rename(folder / f"{FILE_NAME}.salvaged-T")
    if step != "salvaged":
        file.rename(folder / f"{FILE_NAME}.damaged-T")
    if step == "log set aside":
        (folder / LOG).rename(folder / f"{FILE_NAME}.damaged-T-wal")
    found = await survivors(folder)
    check(original, found)
    assert not found.gap_events
    assert len(list(swap.damaged_files(file))) == 2


def test_what_sqlite_would_pass_over_in_a_log_is_counted(original: Original, tmp_path: Path) -> None:
    whole = LogFrames(original.folder / FILE_NAME)
    assert (whole.whole, whole.commits_behind_damage) == (True, 0)
    folder = copy(original, tmp_path / "image")
    damage(folder, LOG, lambda content: content.__setitem__(whole.frames[0].at, content[whole.frames[0].at] ^ 1))
    log = LogFrames(folder / FILE_NAME)
    assert log.commits_behind_damage == sum(frame.file_pages != 0 for frame in whole.frames) > 1


@pytest.mark.guarantee(7)
def test_a_suspicion_and_each_step_of_a_replacement_are_on_the_medium_before_anything_rests_on_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut may keep renames in another order than the calls': an old log would then belong to the new file."""
    path = tmp_path / FILE_NAME
    flushed: list[tuple[str, int] | set[str]] = []

    def fsync(file: int) -> None:
        name = Path(f"/proc/self/fd/{file}").readlink().name
        names = {each.name for each in tmp_path.iterdir()}
        flushed.append(names if name == tmp_path.name else (name, os.fstat(file).st_size))

    monkeypatch.setattr(os, "fsync", fsync)
    swap.suspect(path, "a reason")
    assert swap.suspicion(path) == "a reason"
    assert flushed == [(f"{path.name}.suspect", len("a reason")), {f"{path.name}.suspect"}]
    for part in ("", "-wal", "-shm"):
        swap.beside(path, part).write_bytes(b"old")
    new = swap.prepare(path)
    flushed.clear()
    new.write_bytes(b"salvaged")
    swap.finish(path, new, "T")
    salvaged, damaged = f"{path.name}.salvaged-T", {f"{path.name}.damaged-T", f"{path.name}.damaged-T-wal"}
    old = {f"{path.name}{part}" for part in ("", "-wal", "-shm", ".suspect")}
    assert flushed == [(new.name, len("salvaged")), {salvaged, *old}, {salvaged, *damaged}, {path.name, *damaged}]
    assert path.read_bytes() == b"salvaged"


def _overwrite_all(content: bytearray, piece: bytes) -> None:
    assert piece in content
    while (at := content.find(piece)) >= 0:
        content[at : at + len(piece)] = b"?" * len(piece)


SEGMENT_EVENTS = 16
KEY = b"p" * 16


@pytest.mark.guarantee(7)
@pytest.mark.parametrize(
    "statements",
    [
        ("DELETE FROM segments",),
        ("DELETE FROM sealed",),
        ("DELETE FROM segments", "DELETE FROM sealed"),
        ("UPDATE segments SET service_ms = service_ms + 1",),  # as by a flipped bit: its checksum is wrong
        ("UPDATE sealed SET service_ms = service_ms + 1",),
    ],
)
async def test_a_lost_segment_is_known_from_its_events_beside_the_keys_that_its_rows_still_hold(
    tmp_path: Path, statements: tuple[str, ...]
) -> None:
    nameless, resent = Event("d", data={"t": 21}), Event("d", id="resent")
    counted = [Event("d", id=number) for number in range(100)]
    async with make_store(tmp_path, segment_events=SEGMENT_EVENTS) as store:
        await accept(store, nameless, key=KEY)
        await accept(store, resent)
        # Position 1 is the epoch's first event.
        store._writer.call(lambda: store._committer.give_up(3, 3, "test"))
        assert (await accept(store, resent)).accepted == 1, "and is known by its later position"
        for event in counted:
            await accept(store, event)
        take_turns(store, 500)  # until everything is sealed
        store.outbox.mark_forwarded(batch(1, 5))
    path = tmp_path / FILE_NAME
    emptied = "SELECT 1 FROM fingerprints WHERE length(packed) = 0 AND length(retransmission_keys) > 0"
    assert rows(tmp_path, emptied), "a row that is sealed, and keeps its key"
    change(tmp_path, *statements)
    swap.suspect(path, "set by the test")

    async with make_store(tmp_path, segment_events=SEGMENT_EVENTS) as store:
        assert (await accept(store, nameless, key=KEY)).duplicates == 1
        for event in (resent, *counted):
            assert (await accept(store, event)).duplicates == 1
    assert not [finding for finding in verify(path).findings if finding.check in ("segments", "fingerprints", "rows")]


LAST = "first_position = (SELECT max(first_position) FROM events)"


@pytest.mark.guarantee(7)
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE batches SET last = 'twenty'",
        "UPDATE batches SET last = x'00'",
        "UPDATE segments SET last = 1e300",
        f"UPDATE events SET count = 'many' WHERE {LAST}",
        f"UPDATE events SET count = 1.5 WHERE {LAST}",
        f"UPDATE events SET packed = 'text' WHERE {LAST}",
        f"UPDATE events SET packed = 7 WHERE {LAST}",
    ],
)
async def test_a_value_of_another_type_makes_the_opening_salvage(
    original: Original, tmp_path: Path, statement: str
) -> None:
    folder = copy(original, tmp_path / "image")
    change(folder, statement)
    with closing(UseMark(folder / FILE_NAME, "boot-1")) as mark:
        mark.note(original.events[-1].position, None)
    (folder / f"{FILE_NAME}-wal").touch()
    found = await survivors(folder)
    check(original, found)
    assert found.gap_events


def load_epochs(connection: Reads) -> None:
    Epochs.load(connection).label(1)


def latest_duplicates(connection: Reads) -> None:
    fingerprint_rows.latest_duplicates(connection, 10)


@pytest.mark.guarantee(7)
@pytest.mark.parametrize(
    ("statement", "read"),
    [
        ("UPDATE epochs SET epoch = x'00'", load_epochs),
        ("UPDATE fingerprints SET latest_duplicates = 'text'", latest_duplicates),
        ("UPDATE fingerprints SET latest_duplicates = 7", latest_duplicates),
        ("UPDATE fingerprints SET latest_duplicates = x'01'", latest_duplicates),
        ("UPDATE fingerprints SET duplicates = 1.5", fingerprint_rows.count_duplicates),
        ("UPDATE rejected SET received = 'late'", tables.load_rejects),
        ("UPDATE rejected SET device = x'00'", tables.load_rejects),
        ("UPDATE rejected SET via = x'00'", tables.load_rejects),
        ("UPDATE rejected SET reason = x'00'", tables.load_rejects),
        ("UPDATE rejected SET raw = 7", tables.load_rejects),
        ("UPDATE rejected SET raw = 'text'", tables.load_rejects),
    ],
)
async def test_a_value_of_another_type_is_reported_as_damage(
    tmp_path: Path, statement: str, read: Callable[[Reads], object]
) -> None:
    async with make_store(tmp_path) as store:
        await accept(store, event(1))
        await submit(store, event(1), event(2), rejects=(Reject("d", "coap", 1, "no map", b"raw"),))
        store.flush()
    with closing(database.open_for_reading(tmp_path / FILE_NAME)) as connection:
        read(connection)
    change(tmp_path, statement)
    with (
        closing(database.open_for_reading(tmp_path / FILE_NAME)) as connection,
        pytest.raises(DamagedStoreError),
    ):
        read(connection)
    assert any(defect.check == "rows" for defect in verify(tmp_path / FILE_NAME).findings)


@pytest.mark.parametrize(
    ("becomes", "kept"),
    [
        ("device = x'00'", ["d", "d"]),
        ("raw = CAST(x'ff' AS TEXT)", ["d", "d"]),
        ("device = CAST(x'ff' AS TEXT)", ["d", r"\xff", "d"]),
    ],
)
async def test_a_salvage_leaves_out_rejected_events_of_another_type(
    tmp_path: Path, becomes: str, kept: list[str]
) -> None:
    async with make_store(tmp_path) as store:
        for number in range(3):
            reject = Reject("d", "coap", 1, f"reason {number}", b"raw")
            await submit(store, event(number), rejects=(reject,))
    change(tmp_path, f"UPDATE rejected SET {becomes} WHERE number = 2")
    (tmp_path / f"{FILE_NAME}.suspect").write_text("set by the test")
    async with make_store(tmp_path):
        pass
    with closing(database.open_for_reading(tmp_path / FILE_NAME)) as connection:
        assert [reject.device for _, reject in tables.load_rejects(connection)] == kept
