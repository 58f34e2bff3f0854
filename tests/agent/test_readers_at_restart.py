"""A reader that is open while the agent is killed: it has no effect on the next start."""

from contextlib import closing
from pathlib import Path

import pytest

from agent.store.files import swap
from agent.store.layout import PAGE_BYTES
from agent.store.schema import database
from tests.support.posting_gateway import PostingGateway

COMMITS = 60


@pytest.mark.guarantee(7)
def test_a_reader_that_is_open_at_the_restart_is_no_damage_and_stops_nobody(tmp_path: Path) -> None:
    with PostingGateway(tmp_path, tmp_path / "state").process() as gateway:
        gateway.start()
        for _ in range(5):
            assert gateway.post() == 200
        with closing(database.open_for_reading(gateway.store)) as reader:
            reader.execute("BEGIN")
            before = reader.execute("SELECT count(*) FROM events").fetchone()
            for _ in range(COMMITS):
                assert gateway.post() == 200
            gateway.agent.kill()
            length = gateway.store.stat().st_size
            with closing(database.open_for_reading(gateway.store)) as another:
                pages: int = another.execute("PRAGMA page_count").fetchone()[0]
            assert length < pages * PAGE_BYTES, "the reader keeps the file's last pages in the log"
            gateway.start()
            assert gateway.post() == 200
            assert "store=damaged" not in gateway.agent.log()
            assert reader.execute("SELECT count(*) FROM events").fetchone() == before
        assert gateway.post() == 200
        assert gateway.stored().keys() == gateway.acked
        assert not any(swap.damaged_files(gateway.store))
