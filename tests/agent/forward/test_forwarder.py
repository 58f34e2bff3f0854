"""The forwarder against a real broker that is stopped, killed and frozen."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from contract.mac import Signer
from contract.record import STATEMENT, STATEMENT_WORDS
from simulators.services.kafka.broker import Broker
from tests.agent.forward.broker import KafkaTopic, header, sequence
from tests.agent.forward.checks import assert_nothing_lost, wait_until_forwarded
from tests.agent.forward.events import readings
from tests.agent.forward.running import forwarding
from tests.support.memory_outbox import MemoryOutbox
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka


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


@pytest.mark.guarantee(4)
@pytest.mark.heavy
def test_a_broker_that_is_killed_in_the_middle_loses_nothing(broker: Broker, kafka: KafkaTopic) -> None:
    outbox = MemoryOutbox(*readings(10_000))

    with forwarding(kafka.settings(), outbox):
        for kill in range(2):
            wait_until(lambda: outbox.new < 10_000, "some events are marked")
            broker.kill()
            outbox.append(*readings(5_000, 10_000 + 5_000 * kill))
            broker.start()
        wait_until_forwarded(outbox)

    assert_nothing_lost(kafka, outbox)


def test_a_missing_topic_is_said_once_with_the_command_and_awaited(
    kafka: KafkaTopic, caplog: pytest.LogCaptureFixture
) -> None:
    outbox = MemoryOutbox(*readings(10))
    kafka.delete_topic()

    with forwarding(kafka.settings(), outbox):
        wait_until(lambda: "kafka=topic-missing" in caplog.text, "the state is logged")
        kafka.create_topic()
        wait_until_forwarded(outbox)

    assert caplog.text.count("kafka=topic-missing") == 1
    assert f"--create --topic {kafka.topic} --partitions 12" in caplog.text
    assert_nothing_lost(kafka, outbox)


def test_it_stops_soon_while_the_broker_is_away_and_marks_nothing(broker: Broker, kafka: KafkaTopic) -> None:
    outbox = MemoryOutbox(*readings(100))

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
