"""The relay with a real connector of Kafka Connect."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.forward.receipts.rules import Verdict
from simulators.services import ports
from simulators.services.install import jars, java
from simulators.services.kafka.broker import Broker
from simulators.services.process import Command, Process
from tests.cloud.relaying.test_relay import Side, look_until_answered
from tests.support.waiting import wait_for_work, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.heavy]

MAIN = "org.apache.kafka.connect.cli.ConnectStandalone"
TEXT = "org.apache.kafka.connect.storage.StringConverter"


@contextmanager
def connector(side: Side, folder: Path) -> Iterator[Process]:
    """Run a worker with one connector, which writes each record's value as a line of `archive`."""
    [port] = ports.free(1)
    worker = {
        "bootstrap.servers": side.broker.bootstrap_servers,
        "key.converter": TEXT,
        "value.converter": TEXT,
        "offset.storage.file.filename": folder / "offsets",
        "offset.flush.interval.ms": 1000,
        "listeners": f"http://127.0.0.1:{port}",
        "consumer.auto.offset.reset": "earliest",
        "consumer.isolation.level": "read_committed",
        "consumer.session.timeout.ms": 6000,
    }
    sink = {
        "name": side.name,
        "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "topics": side.topic,
        "file": folder / "archive",
    }
    for name, settings in (("worker", worker), ("sink", sink)):
        (folder / name).write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    classpath = ":".join(map(str, jars.paths(jars.CONNECT)))
    words = (str(java.require()), "-Xmx256m", "-cp", classpath, MAIN, str(folder / "worker"), str(folder / "sink"))
    process = Process(Command("connect", words, folder / "connect.log", folder))
    process.start()
    try:
        yield process
    finally:
        process.kill()


def test_what_a_connector_has_written_is_processed_also_after_its_worker_was_killed(
    broker: Broker, tmp_path: Path
) -> None:
    side, archive = Side(broker), tmp_path / "archive"
    group = f"connect-{side.name}"

    def lines() -> int:
        return archive.read_text().count("\n") if archive.exists() else 0

    side.send(10)
    with connector(side, tmp_path) as process:
        wait_for_work(process, lines, 10, "records that the connector has written", 120.0)
        running = side.relay(group)

        def is_done(lowest: int, highest: int) -> bool:
            look_until_answered(running)
            return side.verdict(lowest, highest) is Verdict.PROCESSED

        wait_until(lambda: not is_done(0, 9) and not running.waiting, "the group's first commit")
        side.send(10)
        wait_until(lambda: is_done(10, 19), "receipts of what the connector has written")
        assert lines() == 20
        process.kill()
        side.send(10)
        look_until_answered(running)
        assert side.verdict(20, 29) is Verdict.WAIT
    with connector(side, tmp_path):
        wait_until(lambda: is_done(20, 29), "receipts of what the next worker has written")
        assert lines() >= 30
        assert running.groups[0].since == {0: 10}
