"""The properties of our clients, and the warnings that they log."""

import threading
from concurrent.futures import Future
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer

from agent.config.settings import KafkaSettings
from agent.forward.errors import KafkaSettingsError, UnreachableError
from agent.forward.forwarder import mode_of
from agent.forward.kafka.client import LastError, producer_config, wait_for

FIXED: dict[str, str | None] = {"acks": "all", "transactional.id": None}


def test_the_users_properties_win_over_ours_and_never_over_the_modes() -> None:
    settings = KafkaSettings("b:1", properties={"linger.ms": "50", "acks": "ALL", "ssl.ca.location": "ca.pem"})

    config = producer_config(settings, FIXED)

    assert (config["linger.ms"], config["acks"], config["ssl.ca.location"]) == ("50", "all", "ca.pem")
    assert config["bootstrap.servers"] == "b:1"


@pytest.mark.parametrize(("name", "value"), [("acks", "1"), ("transactional.id", "x")])
def test_a_property_that_breaks_the_mode_is_named(name: str, value: str) -> None:
    with pytest.raises(KafkaSettingsError, match=name):
        producer_config(KafkaSettings("b:1", properties={name: value}), FIXED)


def test_only_a_fatal_error_ends_the_producer_and_the_cause_outlives_its_effect() -> None:
    errors = LastError()

    errors(KafkaError(KafkaError._TRANSPORT, "connection refused"))
    errors(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    before = errors.fatal
    errors(KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "out of order", fatal=True))

    assert (before, errors.fatal) == (None, "out of order")
    assert errors.text == "out of order"


def test_a_wait_for_an_answer_ends_when_the_agent_stops() -> None:
    stop = threading.Event()
    stop.set()
    unanswered: Future[str] = Future()

    with pytest.raises(UnreachableError):
        wait_for(unanswered, stop)


def test_secret_properties_come_from_a_file_and_never_stand_in_an_error(tmp_path: Path) -> None:
    file = tmp_path / "kafka.properties"
    file.write_text("# secrets\nsasl.password = a=b\n\nlinger.ms=7\n")
    settings = KafkaSettings("b:1", properties={"linger.ms": "50"}, properties_file=file)

    config = producer_config(settings, FIXED)

    assert (config["sasl.password"], config["linger.ms"]) == ("a=b", "7")
    file.write_text("linger.ms=7\ngeheim\n")
    with pytest.raises(KafkaSettingsError, match=r"kafka\.properties:2: expected name=value") as raised:
        producer_config(settings, FIXED)
    assert "geheim" not in str(raised.value)


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once", "at-most-once"])
def test_a_producer_creates_no_topic(delivery: str) -> None:
    cluster = Producer({"test.mock.num.brokers": 1, "log_level": 0})  # like Kafka's default, it creates any on request
    (broker,) = cluster.list_topics(timeout=10).brokers.values()
    settings = KafkaSettings(f"{broker.host}:{broker.port}", topic="deleted", delivery=delivery)
    producer = Producer(producer_config(settings, mode_of(settings, "gw").fixed))

    producer.list_topics("deleted", timeout=10)

    reader = Consumer({"bootstrap.servers": settings.bootstrap_servers, "group.id": "reader"})
    topics = reader.list_topics(timeout=10).topics
    reader.close()
    assert not topics
