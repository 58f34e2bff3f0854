"""The command `trace` on a real topic, after a real job and a real audit, on both sinks."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from agent.store import gateway_events
from agent.store.port import LabelRange
from cloud.tracing import command
from cloud.tracing.settings import parse
from cloud.tracing.topic import TracedTopic
from contract.event import Label
from contract.record import ClockTrust, encode_record
from tests.cloud.gateway import Gateway, Record, now, readings
from tests.cloud.running import DELTA, POSTGRES, CloudSide
from tests.support.commands import run

PROGRAM = Path(sys.executable).with_name("oncegate-cloud")
DEVICE = "urn:dev:mac:0000000000000001"


def gap(gateway: Gateway, sequence: int) -> Record:
    """Return the record by which a gateway declares one of its labels as lost."""
    lost = [LabelRange(gateway.epoch, sequence, sequence)]
    candidate = gateway_events.gap(gateway.name, "x", "damage", lost, None, now(), ClockTrust.TRUSTED)
    gateway.sequence += 1
    label = Label(gateway.epoch, gateway.sequence)
    statements = candidate.clock, candidate.shared, candidate.bound
    assert candidate.fingerprint is not None
    return Record(*encode_record(candidate.fingerprint, gateway.name, label, candidate.tail, *statements))


def mark(record: Record) -> str:
    return dict(record.headers)["ce_id"].decode()


def traced(cloud: CloudSide, spark: SparkSession, *words: str, audited: bool) -> int:
    """Run the command in this process, and return its exit status."""
    ends = cloud.ends()
    audits = ("--audit", str(cloud.folder / "audit")) if audited else ()
    settings = parse([*words, *ends, *cloud.sink_options(), *audits, "--json"])
    topic = TracedTopic(settings.bootstrap_servers, settings.topic, settings.group, settings.properties)
    try:
        return command.trace(settings, spark if settings.needs_spark else None, topic)
    finally:
        topic.close()


@pytest.mark.heavy
@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.guarantee(5)
@pytest.mark.parametrize("cloud", [DELTA, POSTGRES], indirect=True)
def test_the_command_tells_what_has_happened_to_each_event(
    cloud: CloudSide, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway, neighbour = Gateway(), Gateway("gw-2", "00000000000000b2")
    events = readings(8)
    records = gateway.records(events[:6])  # labels 1 to 6, of which 5 and 6 are never sent
    malformed = replace(records[3], value=b"{}")
    sent = [*records[:3], malformed, gap(gateway, 6), *gateway.records(events[6:7]), neighbour.record(events[1])]
    cloud.send(sent, 0)
    cloud.start()
    cloud.wait_for_receipts(len(sent))
    assert cloud.stop() == 0
    late = gateway.record(events[7])
    cloud.send([late], 0)
    audit = cloud.audit()
    assert cloud.wait_for_end(audit) == 1, audit.log()

    def trace(*words: str, audited: bool = True) -> tuple[int, dict[str, Any]]:
        status = traced(cloud, spark, *words, audited=audited)
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return status, found

    def label(sequence: int, gateway: Gateway = gateway) -> tuple[str, str, str]:
        return gateway.name, gateway.epoch, str(sequence)

    asked = {
        (mark(records[1]),): (0, "accepted", "not repeated for 1 further record"),
        label(1): (0, "accepted", "partition 0 offset 0"),
        label(1, neighbour): (0, "duplicate", f"as gw-1 {gateway.epoch} 2"),
        label(4): (1, "quarantined", "reason value"),
        (mark(records[3]),): (1, "quarantined", "partition 0 offset 3"),
        label(5): (1, "missing", "status of the label: missing"),
        label(6): (1, "lost", "as lost at"),
        (mark(late),): (1, "unprocessed", "below offset 7, 1 offset short"),
        label(9): (1, "unprocessed", "The event is not in the table."),
        label(10): (1, "ahead", "the table has its epoch up to 8"),
        ("f" * 32,): (1, "unknown", "All records of"),
        ("gw-9", gateway.epoch, "1"): (1, "unknown", "no event by which a gateway gw-9 has started"),
    }
    for words, (status, name, text) in asked.items():
        ended, found = trace(*words)
        assert (ended, found["status"]) == (status, name), (words, found)
        assert text in json.dumps(found), (words, found)
    ended, found = trace("--device", DEVICE, "--since", "2020-01-01", audited=False)
    assert ended == 1
    of_device = {one["fingerprint"]: (one["status"], one["id"]) for one in found["events"]}  # times may be equal
    rows = {mark(records[number]): ("accepted", str(number)) for number in range(3)} | {
        mark(sent[5]): ("accepted", "6")
    }
    assert of_device == rows | {mark(malformed): ("quarantined", None), mark(late): ("unprocessed", None)}
    done = run(PROGRAM, "trace", mark(late), *cloud.ends(), *cloud.sink_options())
    assert (done.returncode, done.stdout.splitlines()[0]) == (
        1,
        f"In the topic, and not processed yet: {mark(late)}, gw-1 {gateway.epoch} 9.",
    ), done.stderr
