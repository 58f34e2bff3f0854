"""Tables of PostgreSQL that a dump sets back while the job runs: what stops, what the audit tells, and the way on."""

from collections.abc import Callable

import pytest

from simulators.services.install import programs
from tests.cloud.gateway import Gateway, readings
from tests.cloud.running import POSTGRES, CloudSide
from tests.support.commands import output_of

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.heavy, pytest.mark.guarantee(5)]


@pytest.mark.parametrize("cloud", [POSTGRES], indirect=True)
@pytest.mark.parametrize("by", ["dump", "rows"])
def test_a_table_that_was_set_back_gets_again_what_the_topic_has_and_the_audit_names_it_until_then(
    cloud: CloudSide, by: str, gateway: Gateway
) -> None:
    cloud.send(gateway.records(readings(20)), partition=0)
    job = cloud.start()
    cloud.wait_for_receipts(20)
    set_back = saved(cloud, by)
    cloud.send(gateway.records(readings(10, start=20)), partition=0)
    cloud.wait_for_receipts(30)

    set_back()
    cloud.send(gateway.records(readings(5, start=30)), partition=0)
    if by == "rows":  # PostgreSQL does not report that rows are gone
        cloud.wait_for_receipts(35)
        assert cloud.stop() == 0
    else:
        assert cloud.wait_for_end(job) == 1
        assert "it has lost commits" in job.log()
        assert cloud.receipted() == 30
    assert cloud.audited(1) == f"accepted {len(cloud.rows())}, unwritten 10"

    cloud.checkpoint = "checkpoint-2"
    cloud.start("--read-again")
    cloud.wait_for_rows(35)
    cloud.wait_for_receipts(35)
    assert cloud.stop() == 0
    assert sorted(cloud.ids(), key=int) == [str(number) for number in range(35)]
    assert cloud.audited(0) == "accepted 35"


def saved(cloud: CloudSide, by: str) -> Callable[[], object]:
    """Keep the present state of the tables, or of the rows alone; return what sets them back."""
    assert cloud.postgres is not None
    where, file = f"--dbname={cloud.postgres.connection}", str(cloud.folder / "dump")
    tables = cloud.table_name + ("" if by == "rows" else "*")
    output_of(programs.require("pg_dump"), where, "--format=custom", f"--table={tables}", f"--file={file}")
    restore = (programs.require("pg_restore"), where, "--clean", "--if-exists", "--single-transaction", file)
    return lambda: output_of(*restore)
