"""The agent on a disk that cannot read some of its store: it starts, and continues with the readable part."""

from pathlib import Path

import pytest

from tests.support.agent_process import stored_documents
from tests.support.disks.bad_sectors import BadSectors
from tests.support.posting_gateway import PostingGateway

SECTOR_BYTES = 512


def bad_sectors(gateway: PostingGateway, part: str, folder: Path) -> BadSectors:
    """Choose the unreadable bytes of file or log."""
    name, _, place = part.partition(", ")
    file = gateway.store if name == "file" else gateway.store.with_name(f"{gateway.store.name}-wal")
    size = file.stat().st_size
    first = {"beginning": 0, "middle": size // 2, "end": size - SECTOR_BYTES}[place]
    return BadSectors.of(file, first, first + SECTOR_BYTES - 1, folder)


def gaps_declared(store: Path) -> int:
    return sum(document["type"] == "gateway.gap" for document in stored_documents(store))


@pytest.mark.guarantee(7)
@pytest.mark.heavy
@pytest.mark.parametrize("part", ["file, beginning", "log, beginning", "log, middle", "log, end"])
def test_an_agent_starts_on_a_store_of_which_some_cannot_be_read_and_says_what_it_has_lost(
    tmp_path: Path, part: str
) -> None:
    gateway = PostingGateway(tmp_path, tmp_path / "state")
    with gateway.process():
        for _ in range(2):
            gateway.start()
            for _ in range(10):
                assert gateway.post(20, 1_000) == 200
            gateway.agent.kill()
    bad = bad_sectors(gateway, part, tmp_path)
    with gateway.process(bad.environment):
        gateway.start()
        assert gateway.post(20, 1_000) == 200
        gateway.agent.wait_for_log("store=salvaged")
        lost = gateway.acked - gateway.stored().keys()
        assert len(lost) < len(gateway.acked) / 2
        assert gaps_declared(gateway.store) > 0
        if lost:
            assert gateway.post_again(*sorted(lost)) == 200
        assert gateway.stored().keys() == gateway.acked
