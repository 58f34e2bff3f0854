"""The forwarder against a real broker that is stopped, killed and frozen."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from contract.event import Event
from contract.mac import Signer
from contract.record import HEADERS, STATEMENT, STATEMENT_WORDS, read_stated_label
from simulators.services.kafka.broker import Broker
from tests.agent.forward.broker import KafkaTopic, header, headers, sequence
from tests.agent.forward.checks import assert_nothing_lost, wait_until_forwarded
from tests.agent.forward.events import device, readings
from tests.agent.forward.running import GATEWAY, forwarding
from tests.support.memory_outbox import MemoryOutbox
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka


@pytest.mark.guarantee(4)
def test_a_backlog_drains_in_order_per_device_while_new_events_come(kafka: KafkaTopic, outbox: MemoryOutbox) -> None:
    outbox.append(*readings(5_000))

    with forwarding(kafka.settings(), outbox):
        for start in range(5_000, 6_000, 50):
            outbox.append(*readings(50, start))
        wait_until_forwarded(outbox)

    assert_nothing_lost(kafka, outbox)
    by_device: dict[bytes | None, list[int]] = defaultdict(list)
    for record in kafka.records():
        by_device[record.key()].append(sequence(record))
    assert len(by_device) == 10
    assert all(order == sorted(order) for order in by_device.values())
    assert sum(map(len, by_device.values())) == 6_000


@pytest.mark.heavy
def test_records_are_signed_by_the_gateways_key_and_by_the_next_one_without_a_restart(
    kafka: KafkaTopic, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.forward.kafka.login_files.CHECK_MS", 100)
    file, outbox = tmp_path / "key", MemoryOutbox()
    settings = replace(kafka.settings(), mac_key_file=file)
    keys = [bytes([number]) * 32 for number in (1, 2)]
    caplog.set_level("INFO")
    file.write_text(keys[0].hex() + "\n")
    with forwarding(settings, outbox):
        outbox.append(*readings(10))
        wait_until_forwarded(outbox)
        file.write_text("no key\n")
        wait_until(lambda: "login=unusable" in caplog.text, "a file that is no key is refused")
        outbox.append(*readings(10, 10))
        wait_until_forwarded(outbox)
        new = file.with_suffix(".next")
        new.write_text(keys[1].hex())
        new.replace(file)
        wait_until(lambda: "login=renewed" in caplog.text, "the new key is noticed")
        outbox.append(*readings(10, 20))
        wait_until_forwarded(outbox)
    assert_nothing_lost(kafka, outbox)
    for record in kafka.records():
        statement, _, word = header(record, STATEMENT).rpartition(b" ")
        sign = Signer(keys[sequence(record) > 20], kafka.topic)
        assert sign(header(record, "ce_id"), statement, record.value() or b"") == word
        assert len(statement.split()) == STATEMENT_WORDS
    assert keys[0].hex() not in caplog.text


def test_record_and_headers_arrive_as_the_design_says(kafka: KafkaTopic, outbox: MemoryOutbox) -> None:
    outbox.append(Event('a "quoted" probe', id="x-1", data={"on": True}), *readings(1))

    with forwarding(kafka.settings(), outbox):
        wait_until_forwarded(outbox)

    quoted, plain = sorted(kafka.records(), key=sequence)
    event = outbox.stored()[1]
    assert plain.key() == device(0).encode()
    assert list(headers(plain)) == list(HEADERS)
    assert header(plain, "ce_id") == event.fingerprint.hex().encode()
    assert read_stated_label(header(plain, STATEMENT)) == (GATEWAY, event.label)
    assert header(plain, "ce_time") == b"2025-11-21T04:40:00.000Z"
    assert json.loads(plain.value() or b"") == {
        "fingerprint": event.fingerprint.hex(),
        "gateway": GATEWAY,
        "epoch": event.label.epoch,
        "sequence": 2,
        "device": device(0),
        "type": "reading",
        "id": 0,
        "time": 1_763_700_000_000,
        "received": 1_763_706_000_002,
        "via": "coap",
        "data": {"temperature": 20.0, "humidity": 40.5, "battery": 3012},
    }
    assert list(headers(quoted)) == list(HEADERS)
    assert header(quoted, "ce_source") == b"a%20%22quoted%22%20probe"
    assert json.loads(quoted.value() or b"")["device"] == 'a "quoted" probe'


@pytest.mark.guarantee(4)
@pytest.mark.heavy
def test_a_broker_that_is_killed_in_the_middle_loses_nothing(broker: Broker, kafka: KafkaTopic) -> None:
    outbox = MemoryOutbox()
    outbox.append(*readings(10_000))

    with forwarding(kafka.settings(), outbox):
        for kill in range(2):
            wait_until(lambda: outbox.new < 10_000, "some events are marked")
            broker.kill()
            outbox.append(*readings(5_000, 10_000 + 5_000 * kill))
            broker.start()
        wait_until_forwarded(outbox)

    assert_nothing_lost(kafka, outbox)


def test_a_missing_topic_is_said_once_with_the_command_and_awaited(
    kafka: KafkaTopic, caplog: pytest.LogCaptureFixture, outbox: MemoryOutbox
) -> None:
    outbox.append(*readings(10))
    kafka.delete_topic()

    with forwarding(kafka.settings(), outbox):
        wait_until(lambda: "kafka=topic-missing" in caplog.text, "the state is logged")
        kafka.create_topic()
        wait_until_forwarded(outbox)

    assert caplog.text.count("kafka=topic-missing") == 1
    assert f"--create --topic {kafka.topic} --partitions 12" in caplog.text
    assert_nothing_lost(kafka, outbox)


@pytest.mark.guarantee(4)
@pytest.mark.parametrize("partitions", [1, 7])
def test_a_topic_made_anew_with_another_number_of_partitions_gets_everything_that_was_not_marked(
    kafka: KafkaTopic, partitions: int, outbox: MemoryOutbox
) -> None:
    outbox.append(*readings(10))

    with forwarding(kafka.settings(), outbox):
        wait_until_forwarded(outbox)
        kafka.delete_topic()
        kafka.partitions = partitions
        anew = kafka.create_topic()
        outbox.append(*readings(30, 10))
        wait_until_forwarded(outbox)

    assert {sequence(record) for record in kafka.records()} == set(range(11, 41))
    assert {batch.topic_id for batch in outbox.forwarded() if batch.first > 10} == {anew}


def test_it_stops_soon_while_the_broker_is_away_and_marks_nothing(broker: Broker, kafka: KafkaTopic) -> None:
    outbox = MemoryOutbox()
    outbox.append(*readings(100))

    with forwarding(kafka.settings(), outbox):
        wait_until_forwarded(outbox)
        reads = outbox.reads
        broker.pause()
        outbox.append(*readings(100, 100))
        wait_until(lambda: outbox.reads > reads, "the batch is on its way")
        stopping = time.monotonic()
    took = time.monotonic() - stopping
    broker.resume()

    assert took < 8
    assert outbox.new == 100
