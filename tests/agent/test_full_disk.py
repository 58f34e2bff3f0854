"""The agent on a full file system: it starts, serves what is possible, and continues once there is space."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from agent.clock import SystemClock
from agent.config.settings import IdentitySettings, StoreSettings
from agent.store.event_store import EventStore
from agent.store.port import Batch, Offsets
from tests.support.disks.small_disk import fill, small_disk
from tests.support.posting_gateway import PostingGateway
from tests.support.waiting import wait_until

MEGABYTES = 24


def process_all(state: Path) -> None:
    """Mark all stored events as processed, as receipts would."""

    async def process() -> None:
        store = EventStore(state, "gw1", StoreSettings(), IdentitySettings(), SystemClock())
        async with store:
            last = store._memory.end
            store.outbox.mark_forwarded(Batch(1, last, "topic", {0: Offsets(0, last)}))
            store.outbox.mark_processed(store.outbox.forwarded())

    asyncio.run(process())


@pytest.mark.guarantee(3)
@pytest.mark.heavy
def test_a_store_that_has_filled_its_disk_is_started_again_and_makes_room_by_itself(tmp_path: Path) -> None:
    with (
        small_disk(tmp_path / "disk", MEGABYTES) as disk,
        PostingGateway(tmp_path, disk / "state").process() as gateway,
    ):
        gateway.start()
        while gateway.post(50, 1_000) == 200:
            pass
        gateway.agent.kill()
        gateway.start()
        assert gateway.post_again(*sorted(gateway.acked)[:5]) == 200
        while (status := gateway.post(50, 1_000)) == 200:
            pass  # the start has written the log back, which then takes a few more
        assert status == 503
        assert gateway.agent.terminate() == 0
        gateway.start()
        assert gateway.stored().keys() == gateway.acked
        assert gateway.agent.terminate() == 0
        process_all(disk / "state")
        gateway.start()
        wait_until(lambda: gateway.post(50, 1_000) == 200, "what the table has has left for new events")


@pytest.mark.guarantee(3)
@pytest.mark.heavy
@pytest.mark.parametrize("ends", ["killed", "in order"])
def test_a_disk_that_others_have_filled_to_the_last_byte_does_not_keep_it_from_starting(
    tmp_path: Path, ends: str
) -> None:
    with (
        small_disk(tmp_path / "disk", MEGABYTES) as disk,
        PostingGateway(tmp_path, disk / "state").process() as gateway,
    ):
        gateway.start()
        for _ in range(20):
            assert gateway.post(50, 1_000) == 200
        filler = fill(disk)
        assert gateway.post(1) == 503
        gateway.agent.kill() if ends == "killed" else gateway.agent.terminate()
        gateway.start()
        assert gateway.post_again(*sorted(gateway.acked)[:5]) == 200
        assert gateway.post(1) == 503
        assert gateway.readiness() == 503
        filler.unlink()
        wait_until(lambda: gateway.post(1) == 200, "there is room again")
        wait_until(lambda: gateway.readiness() == 200, "it is ready again")
        assert gateway.stored().keys() == gateway.acked


@pytest.mark.guarantee(3)
def test_a_disk_without_a_free_inode_is_waited_for(tmp_path: Path) -> None:
    with (
        small_disk(tmp_path / "disk", MEGABYTES, "nr_inodes=12") as disk,
        PostingGateway(tmp_path, disk / "state").process() as gateway,
    ):
        gateway.start()
        assert gateway.post(50, 1_000) == 200
        assert gateway.agent.terminate() == 0
        taken = use_up_inodes(disk)
        gateway.agent.start()
        gateway.agent.wait_for_log("store=waiting")
        for file in taken:
            file.unlink()
        gateway.agent.wait_for_log("agent=ready")
        assert gateway.stored().keys() == gateway.acked
        assert gateway.agent.log().count("store=waiting") == 1


def use_up_inodes(disk: Path) -> list[Path]:
    """Create files until no inode is left."""
    taken: list[Path] = []
    with suppress(OSError):
        while True:
            (disk / f"file {len(taken)}").touch(exist_ok=False)
            taken.append(disk / f"file {len(taken)}")
    return taken
