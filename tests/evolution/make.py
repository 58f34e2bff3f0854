"""Make the fixtures of a release, from its own checkout: `python -m tests.evolution.make FOLDER`.

They are a broker's data with the topics of two jobs, their Delta table, database, quarantines and checkpoints, and a
gateway's store with events that Kafka does not have.
"""

import sys
import tarfile
import tempfile
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from contract.event import Event
from simulators.services.install import programs
from simulators.services.kafka.broker import Broker
from simulators.services.postgres import Postgres
from tests.cloud.gateway import Gateway, Record, without_header
from tests.cloud.running import DELTA, PARTITIONS, POSTGRES, CloudSide
from tests.support.commands import output_of
from tests.support.posting_gateway import PostingGateway

SINKS = (DELTA, POSTGRES)
EVENTS = 41
"""Of each topic."""
STORED = 60
_TIME = 1_795_832_100_000
"""Of the first fixtures, 2026-11-28: the same events have to come again years later."""
_HOME = Path(__file__).parent / "fixtures"


def topic(sink: str) -> str:
    """Return the topic whose job writes to a sink."""
    return f"evolution.{sink}"


def records(gateway: str = "gw-1", epoch: str = "00000000000000a1") -> list[Record]:
    """Return the records of each topic: events of each form, one that is refused, and duplicates."""
    timed = [
        Event("urn:dev:mac:0000000000000001", id=number, time=_TIME + number, data={"temperature": 20.5})
        for number in range(20)
    ]
    counted = [
        Event("urn:dev:mac:0000000000000002", "door", id=number, boot="b", data={"open": True}, units={"open": "1"})
        for number in range(19)
    ]
    nameless = Event("urn:dev:mac:0000000000000003", data={"t": 1}, ext={"rssi": -70.5})
    good = Gateway(gateway, epoch).records([*timed, *counted, nameless])
    reused = Gateway("gw-2", "00000000000000b2").record(replace(timed[0], data={"temperature": -40.0}))
    return [*good, reused, without_header(good[0], "ce_oncegate"), *good[:5]]


def main() -> None:
    """Write the fixtures of the installed release."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else _HOME
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        _fill_store(folder)
        _run_jobs(folder)
        file = target / f"{version('oncegate')}-spark-{version('pyspark')}.tar.xz"
        target.mkdir(exist_ok=True)
        with tarfile.open(file, "w:xz") as archive:
            for name in ("broker/data", "state", "dump.sql", *(f"{sink}/{part}" for sink in SINKS for part in _PARTS)):
                if (folder / name).exists():
                    archive.add(folder / name, name)
    print(f"{file}: {file.stat().st_size:,} bytes")


_PARTS = ("events", "events_quarantine", "checkpoint")


def _fill_store(folder: Path) -> None:
    with PostingGateway(folder, folder / "state").process() as gateway:
        gateway.start()
        for _ in range(STORED // 20):
            gateway.post()
        gateway.agent.kill()


def _run_jobs(folder: Path) -> None:
    with Broker(folder / "broker") as broker, Postgres(folder) as server:
        for sink in SINKS:
            broker.create_topics(topic(sink), partitions=PARTITIONS)
            (folder / sink).mkdir()
            side = CloudSide(broker.bootstrap_servers, topic(sink), folder / sink)
            side.postgres = server if sink == POSTGRES else None
            sent = records()
            side.send(sent, partition=0)
            side.start()
            side.wait_for_receipts(len(sent))
            side.stop()
            side.close()
        dump = (programs.require("pg_dump"), f"--dbname={server.connection}", "--no-owner")
        output_of(*dump, f"--file={folder / 'dump.sql'}")
        broker.process.terminate(60.0)  # with all of its data on disk


if __name__ == "__main__":
    main()
