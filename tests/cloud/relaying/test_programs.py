"""The relay with real programs: Kafka Connect alone and distributed, Kafka Streams, Flink, and that of the page."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest
from confluent_kafka import Consumer, TopicPartition

from agent.forward.receipts.rules import Verdict
from cloud.stream.group_kafka import GroupKafka
from simulators.services import ports
from simulators.services.install import jars, java
from simulators.services.kafka.broker import Broker
from simulators.services.process import Command, Process
from tests.cloud.relaying.test_relay import ROOT, Side, look_until_answered
from tests.docs.pages import blocks
from tests.support.waiting import wait_for_work, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.heavy]

TEXT = "org.apache.kafka.connect.storage.StringConverter"
SHORT = {"session.timeout.ms": "6000", "isolation.level": "read_committed", "auto.offset.reset": "earliest"}
ANSWER_SECONDS_MAX = 30.0


@dataclass(frozen=True, slots=True)
class Program:
    """A program that reads the topic, and what it commits."""

    group: str
    process: Process
    results: Callable[[], int]
    """Returns how many records it has worked on."""
    configure: Callable[[], object] = lambda: None
    """Gives it, once it runs, what it has not been started with."""
    has_epochs: bool = False
    has_metadata: bool = False
    has_members: bool = True


def connector(side: Side, folder: Path, *, is_distributed: bool) -> Program:
    """Return a worker with one connector, which writes each record's value as a line of `archive`."""
    [port] = ports.free(1)
    archive, main = folder / "archive", "ConnectDistributed" if is_distributed else "ConnectStandalone"
    worker: dict[str, object] = {
        "bootstrap.servers": side.broker.bootstrap_servers,
        "key.converter": TEXT,
        "value.converter": TEXT,
        "offset.flush.interval.ms": 1000,
        "listeners": f"http://127.0.0.1:{port}",
        **{f"consumer.{name}": value for name, value in SHORT.items()},
    }
    if is_distributed:
        worker |= {"group.id": f"workers.{side.name}", "session.timeout.ms": 6000, "heartbeat.interval.ms": 1000}
        for kind in ("config", "offset", "status"):
            worker |= {f"{kind}.storage.topic": f"{kind}.{side.name}", f"{kind}.storage.replication.factor": 1}
    else:
        worker |= {"offset.storage.file.filename": folder / "offsets"}
    sink = {
        "name": side.name,
        "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "topics": side.topic,
        "file": str(archive),
    }
    for name, settings in (("worker", worker), ("sink", sink)):
        (folder / name).write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    classpath = ":".join(map(str, jars.paths(jars.CONNECT)))
    words = (str(java.require()), "-Xmx256m", "-cp", classpath, f"org.apache.kafka.connect.cli.{main}")
    files = (str(folder / "worker"), *([] if is_distributed else [str(folder / "sink")]))
    process = Process(Command("connect", (*words, *files), folder / "program.log", folder))

    def put() -> None:
        if is_distributed and not archive.exists():  # after a restart it has its connector by itself
            process.wait_until(lambda: has_put(port, side.name, sink), "the connector", 120.0, poll_seconds=0.5)

    return Program(f"connect-{side.name}", process, lambda: lines_of(archive), put)


def lines_of(archive: Path) -> int:
    return archive.read_text().count("\n") if archive.exists() else 0


def has_put(port: int, name: str, settings: dict[str, str]) -> bool:
    """Give a worker its connector's settings; False while it does not answer yet, or the workers elect."""
    kind = {"Content-Type": "application/json"}
    where = f"http://127.0.0.1:{port}/connectors/{name}/config"
    try:
        urlopen(Request(where, json.dumps(settings).encode(), kind, method="PUT"), timeout=ANSWER_SECONDS_MAX).close()
    except (URLError, OSError):
        return False
    return True


def compiled(source: Path, of: str, folder: Path) -> str:
    """Compile a program, and return its classpath."""
    compiler = shutil.which("javac")
    if compiler is None:
        pytest.skip("there is no javac")
    classpath = ":".join([str(folder), *map(str, jars.paths(of))])
    subprocess.run([compiler, "-cp", classpath, "-d", str(folder), str(source)], check=True)
    return classpath


def flink(side: Side, folder: Path) -> Program:
    """Return a job of Flink, which writes each record's value as a line of `archive`."""
    classpath = compiled(Path(__file__).with_name("Copy.java"), jars.FLINK, folder)
    archive, group = folder / "archive", side.group("flink")
    words = (str(java.require()), "-Xmx512m", "-cp", classpath, "Copy")
    ends = (side.broker.bootstrap_servers, side.topic, group, str(archive))
    process = Process(Command("flink", (*words, *ends), folder / "program.log", folder))

    return Program(group, process, lambda: lines_of(archive), has_members=False)


def streams(side: Side, folder: Path) -> Program:
    """Return a program of Kafka Streams, exactly-once, which writes the first record of each event to a topic."""
    classpath = compiled(ROOT / "benchmarks" / "streams" / "Dedup.java", jars.STREAMS, folder)
    out, group = f"out.{side.name}", side.group("streams")
    side.broker.create_topics(out, partitions=1)
    ends = (side.broker.bootstrap_servers, side.topic, out, group, str(folder / "state"))
    words = (str(java.require()), "-Xmx256m", "-cp", classpath, "Dedup", *ends)
    process = Process(Command("streams", words, folder / "program.log", folder))

    return Program(group, process, lambda: records_of(side, out), has_epochs=True, has_metadata=True)


def transactions(side: Side, folder: Path) -> Program:
    """Return the program of the page, which copies records into a topic in the transaction of its offsets."""
    [code] = blocks(ROOT / "docs" / "relay.md", "python")
    out, group = f"out.{side.name}", side.group("alarms")
    side.broker.create_topics(out, partitions=1)
    kafka = {"bootstrap.servers": side.broker.bootstrap_servers}
    head = (
        "from confluent_kafka import Consumer, KafkaException, Producer\n"
        f"KAFKA = {kafka}\ndef is_alarm(value): return True\n"
    )
    for of_page, ours in (
        ('"group.id": "alarms"', f'"session.timeout.ms": 6000, "group.id": "{group}"'),
        ('"alarms-1"', f'"{group}-1"'),
        ('"alarms"', f'"{out}"'),
        ("oncegate.events", side.topic),
    ):
        assert of_page in code
        code = code.replace(of_page, ours)
    (folder / "alarms.py").write_text(head + code)
    words = (sys.executable, str(folder / "alarms.py"))
    process = Process(Command("alarms", words, folder / "program.log", folder))

    return Program(group, process, lambda: records_of(side, out), has_epochs=True)


def records_of(side: Side, topic: str) -> int:
    settings = {"bootstrap.servers": side.broker.bootstrap_servers, "group.id": "nobody"}
    with Consumer({**settings, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}) as reader:
        reader.assign([TopicPartition(topic, 0, 0)])
        return len(reader.consume(1000, 3.0))


@contextmanager
def running(program: Program) -> Iterator[Process]:
    program.process.start()
    try:
        program.configure()
        yield program.process
    finally:
        program.process.kill()


PROGRAMS: dict[str, Callable[[Side, Path], Program]] = {
    "standalone": partial(connector, is_distributed=False),
    "distributed": partial(connector, is_distributed=True),
    "streams": streams,
    "transactions": transactions,
    "flink": flink,
}


@pytest.mark.parametrize("kind", PROGRAMS)
def test_what_a_program_has_done_is_processed_also_after_it_was_killed(
    broker: Broker, tmp_path: Path, kind: str
) -> None:
    side = Side(broker)
    program = PROGRAMS[kind](side, tmp_path)
    side.send(10)
    with running(program) as process:
        wait_for_work(process, program.results, 10, "records that the program has worked on", 120.0)
        has_members = program.has_members
        relay = side.relay(program.group) if has_members else side.relay(without=(program.group,))

        def is_done(lowest: int, highest: int) -> bool:
            look_until_answered(relay)
            return side.verdict(lowest, highest) is Verdict.PROCESSED

        wait_until(lambda: not is_done(0, 9) and not relay.waiting, "the group's first commit")
        side.send(10)
        wait_until(lambda: is_done(10, 19), "receipts of what the program has worked on")
        assert program.results() == 20
        place = GroupKafka(broker.bootstrap_servers, side.topic, {}).committed(program.group, [0])[0]
        assert (place.leader_epoch is not None, bool(place.metadata)) == (program.has_epochs, program.has_metadata)
        process.kill()
        side.send(10)
        look_until_answered(relay)
        assert side.verdict(20, 29) is Verdict.WAIT
    with running(program):
        # Sent again where the next one has joined and committed between two looks.
        wait_until(lambda: is_done(20, 29) or side.verdict(20, 29) is Verdict.RETURN, "what the next one has done")
        assert program.results() >= 30
        assert relay.groups[0].since == {0: 10 if side.verdict(20, 29) is Verdict.PROCESSED else 30}
