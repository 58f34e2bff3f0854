"""Damaged files: the store opens, keeps everything readable with its fingerprints, and declares what is lost."""

from __future__ import annotations

import os
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from agent.store.files import swap
from agent.store.files.sqlite_pages import LogFrames
from agent.store.format.packing import pack
from agent.store.layout import FILE_NAME, PAGE_BYTES
from agent.store.recovery.verify import verify
from contract.event import Event
from tests.agent.store.recovery.damaged import Original, check, copy, event, survivors
from tests.agent.store.stores import HandClock, accept, batch, make_store, stored_events, take_turns

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
async def test_a_salvaged_store_knows_its_events_again_and_takes_what_it_lost_as_new(
    original: Original, tmp_path: Path
) -> None:
    folder = copy(original, tmp_path / "image")
    size = (folder / FILE_NAME).stat().st_size

    def overwrite_the_middle(content: bytearray) -> None:
        content[size // 2 : size // 2 + 3 * PAGE] = bytes(3 * PAGE)

    damage(folder, FILE_NAME, overwrite_the_middle)
    (folder / f"{FILE_NAME}.suspect").write_text("set by the test")
    clock = HandClock(boot_name="boot-2")
    async with make_store(folder, clock) as store:
        found = {event.position for event in stored_events(store)}
        for kept in original.events:
            if b'"type":"reading"' in kept.tail:
                number = int(kept.tail.split(b'"id":')[1].split(b",")[0])
                again = await accept(store, clock, event(number))
                if kept.position in found:
                    assert again.duplicates == 1
                elif kept.position > 20:
                    assert again.accepted == 1
        assert store.outbox.fact("receipts.table") == "t1"
    assert len(found) < len(original.events)


@pytest.mark.guarantee(7)
async def test_a_schema_that_is_no_text_keeps_no_store_from_opening(tmp_path: Path, clock: HandClock) -> None:
    async with make_store(tmp_path, clock) as store:
        assert (await accept(store, clock, event(1))).accepted == 1

    def damage_the_schema(content: bytearray) -> None:
        content[:] = content.replace(b"CREATE TABLE events", b"CREATE TAB\xcaE events")

    damage(tmp_path, FILE_NAME, damage_the_schema)  # SQLite quotes it in its error, which Python cannot decode
    async with make_store(tmp_path, clock) as store:
        assert (await accept(store, clock, event(1))).duplicates == 1
    assert any(swap.damaged_files(tmp_path / FILE_NAME))


@pytest.mark.guarantee(7)
async def test_one_damaged_event_becomes_a_gap_while_its_neighbours_go_on(original: Original, tmp_path: Path) -> None:
    folder = copy(original, tmp_path / "image")
    victim = original.events[30]
    damage(folder, FILE_NAME, lambda content: _overwrite_all(content, pack(victim)[8:33]))
    clock = HandClock()
    async with make_store(folder, clock) as store:
        events = stored_events(store)
        assert victim.position not in {event.position for event in events}
        assert {30, 32} <= {event.position for event in events}
        gap = events[-1]
        wanted = b'"count":1,"labels":[["%s",%d,%d]]' % (
            victim.label.epoch.encode(), victim.label.sequence, victim.label.sequence,
        )  # fmt: skip
        assert wanted in gap.tail
        assert not store.failed.done()
        assert (await accept(store, clock, event(int(victim.tail.split(b'"id":')[1].split(b",")[0])))).accepted == 1
    assert not list(swap.damaged_files(folder / FILE_NAME))
    async with make_store(folder, clock) as store:
        assert sum(b"gateway.gap" in event.tail for event in stored_events(store)) == 1


async def test_a_clean_end_leaves_no_suspicion(tmp_path: Path, clock: HandClock) -> None:
    for number in range(2):
        async with make_store(tmp_path, clock) as store:
            await accept(store, clock, event(number))
            assert not any(b"gateway.gap" in event.tail for event in stored_events(store))
    assert sorted(path.name for path in files(tmp_path)) == [FILE_NAME, f"{FILE_NAME}.lock"]


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
    assert log.commits_behind_damage == sum(frame.commits for frame in whole.frames) > 1


@pytest.mark.guarantee(7)
@pytest.mark.parametrize("in_place", [True, False])
def test_a_suspicion_and_a_replacement_are_on_the_medium_before_anything_rests_on_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, in_place: bool
) -> None:
    """Record which files are flushed, and their length then: a power cut removes later writes."""
    path = tmp_path / FILE_NAME
    flushed: list[tuple[str, int]] = []

    def fsync(file: int) -> None:
        name = Path(f"/proc/self/fd/{file}").readlink().name
        flushed.append((name, len(list(tmp_path.iterdir())) if name == tmp_path.name else os.fstat(file).st_size))

    monkeypatch.setattr(os, "fsync", fsync)
    if in_place:
        swap.suspect(path, "a reason")
        assert swap.suspicion(path) == "a reason"
        assert flushed == [(f"{path.name}.suspect", len("a reason")), (tmp_path.name, 1)]
    else:
        path.write_bytes(b"old")
        new = swap.prepare(path)
        new.write_bytes(b"salvaged")
        swap.finish(path, new, "T")
        assert flushed == [(new.name, len("salvaged")), (tmp_path.name, 2), (tmp_path.name, 2), (tmp_path.name, 2)]
        assert path.read_bytes() == b"salvaged"


@pytest.mark.guarantee(7)
def test_the_damaged_files_are_out_of_the_way_on_the_medium_before_the_new_one_takes_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut may keep renames in another order than the calls': an old log would then belong to the new file."""
    path = tmp_path / FILE_NAME
    flushed: list[set[str]] = []
    monkeypatch.setattr(os, "fsync", lambda _: flushed.append({file.name for file in tmp_path.iterdir()}))
    for part in ("", "-wal", "-shm"):
        swap.beside(path, part).write_bytes(b"old")
    new = swap.prepare(path)
    new.write_bytes(b"salvaged")
    swap.finish(path, new, "T")
    damaged = {f"{path.name}.damaged-T", f"{path.name}.damaged-T-wal"}
    assert flushed[-2:] == [{f"{path.name}.salvaged-T", *damaged}, {path.name, *damaged}]


def _overwrite_all(content: bytearray, piece: bytes) -> None:
    assert piece in content
    while (at := content.find(piece)) >= 0:
        content[at : at + len(piece)] = b"?" * len(piece)


def files(folder: Path) -> list[Path]:
    return list(folder.iterdir())


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
    tmp_path: Path, statements: tuple[str, ...], clock: HandClock
) -> None:
    nameless = Event("d", data={"t": 21})
    counted = [Event("d", id=number) for number in range(100)]
    async with make_store(tmp_path, clock, segment_events=SEGMENT_EVENTS) as store:
        await accept(store, clock, nameless, key=KEY)
        for event in counted:
            await accept(store, clock, event)
        take_turns(store, 500)  # until everything is sealed
        store.outbox.mark_forwarded(batch(1, 5))
    path = tmp_path / FILE_NAME
    with closing(sqlite3.connect(path)) as connection, connection:
        emptied = "SELECT count(*) FROM fingerprints WHERE length(packed) = 0 AND length(retransmission_keys) > 0"
        assert connection.execute(emptied).fetchone()[0], "a row that is sealed, and keeps its key"
        for statement in statements:
            assert connection.execute(statement).rowcount
    swap.suspect(path, "set by the test")

    async with make_store(tmp_path, clock, segment_events=SEGMENT_EVENTS) as store:
        assert (await accept(store, clock, nameless, key=KEY)).duplicates == 1
        for event in counted:
            assert (await accept(store, clock, event)).duplicates == 1
    assert not [finding for finding in verify(path).findings if finding.check in ("segments", "fingerprints", "rows")]


@pytest.mark.guarantee(7)
@pytest.mark.parametrize("lost", ["segments", "sealed"])
async def test_an_event_that_was_resent_after_a_gap_is_known_by_its_later_position_in_a_rebuilt_segment(
    tmp_path: Path, lost: str, clock: HandClock
) -> None:
    resent = Event("d", id="resent")
    async with make_store(tmp_path, clock, segment_events=SEGMENT_EVENTS) as store:
        await accept(store, clock, resent)
        # Position 1 is the epoch's first event.
        store._writer.call(lambda: store._committer.give_up(2, 2, "test"))
        assert (await accept(store, clock, resent)).accepted == 1
        for number in range(SEGMENT_EVENTS):
            await accept(store, clock, Event("d", id=number))
        take_turns(store, 500)  # until everything is sealed
    path = tmp_path / FILE_NAME
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(f"DELETE FROM {lost}").rowcount
    swap.suspect(path, "set by the test")

    async with make_store(tmp_path, clock, segment_events=SEGMENT_EVENTS) as store:
        assert (await accept(store, clock, resent)).duplicates == 1
