"""Our clients: their properties, files and warnings, calls that may never return, and what they send and ask."""

import gc
import json
import threading
import time
import weakref
from concurrent.futures import Future
from contextlib import nullcontext
from pathlib import Path
from typing import cast

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient
from hypothesis import given

from agent.config.settings import KafkaSettings
from agent.forward.errors import KafkaSettingsError, RenewalError, TopicMissingError, UnreachableError
from agent.forward.forwarder import mode_of
from agent.forward.kafka import client, topic
from agent.forward.kafka.attempt import attempt
from agent.forward.kafka.client import LastError, open_admin, producer_config, wait_for
from agent.forward.kafka.login_files import (
    CHECK_MS,
    STEP_MS_MAX,
    Hours,
    LoginFiles,
    SessionStop,
    WallSteps,
    login_files,
)
from agent.forward.kafka.record import encode
from agent.forward.kafka.topic import TopicWatch
from agent.status import read_status
from contract.event import Event, Label
from contract.record import STATEMENT, read_stated_label
from simulators.services.kafka.broker import Broker
from tests.agent.forward.broker import KafkaTopic
from tests.agent.forward.modes.test_acks_that_wait import Admin
from tests.agent.forward.running import GATEWAY
from tests.agent.store.stores import HandClock
from tests.contract.strategies import events
from tests.support.agent_process import agent_process, configured, post_events
from tests.support.memory_outbox import stored
from tests.support.steppable_clock import SteppableClock
from tests.support.waiting import wait_until

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


@pytest.mark.parametrize(
    ("given", "is_refused"),
    [
        ({"metadata.max.age.ms": "2147483"}, False),
        ({"metadata.max.age.ms": "2147484"}, True),
        ({"topic.metadata.refresh.interval.ms": "715827"}, False),
        ({"topic.metadata.refresh.interval.ms": "715828"}, True),
        ({"topic.metadata.refresh.interval.ms": "3600000", "metadata.max.age.ms": "900000"}, False),
        ({"topic.metadata.refresh.interval.ms": "-1"}, False),
        ({"metadata.max.age.ms": "long"}, False),
    ],
)
def test_an_age_of_metadata_that_overflows_in_the_client_is_refused(given: dict[str, str], is_refused: bool) -> None:
    with pytest.raises(KafkaSettingsError, match="at most") if is_refused else nullcontext():
        producer_config(KafkaSettings("b:1", properties=given), FIXED)


def test_only_a_fatal_error_ends_the_producer_and_the_cause_outlives_its_effect() -> None:
    errors = LastError()

    errors(KafkaError(KafkaError._TRANSPORT, "connection refused"))
    errors(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    before = errors.fatal
    errors(KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "out of order", fatal=True))

    assert (before, errors.fatal) == (None, "out of order")
    assert errors.text == "out of order"


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


def test_an_unknown_delivery_mode_is_taken_for_no_other() -> None:
    with pytest.raises(KafkaSettingsError, match="no mode is named 'twice'"):
        mode_of(KafkaSettings("k:9092", delivery="twice"), "gw")


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


@pytest.mark.parametrize("stops", [False, True])
def test_a_call_that_hangs_is_left_behind_when_its_time_is_over_or_the_agent_stops(
    monkeypatch: pytest.MonkeyPatch, *, stops: bool
) -> None:
    monkeypatch.setattr("agent.forward.kafka.attempt.STOP_SECONDS_MAX", 0.2)
    never, stop = threading.Event(), threading.Event()
    if stops:
        stop.set()

    with pytest.raises(UnreachableError, match="the call that hangs"):
        attempt(never.wait, 3_600 if stops else 0.2, stop, "the call that hangs")

    never.set()


def test_a_client_that_got_no_answer_is_replaced() -> None:
    silent, another = (Admin(KafkaError(code)) for code in (KafkaError._TIMED_OUT, KafkaError.UNKNOWN_TOPIC_OR_PART))
    others = [cast("AdminClient", another)]
    looked = TopicWatch(cast("AdminClient", silent), "topic", LastError(), others.pop)
    with pytest.raises(UnreachableError):
        looked.read_id(threading.Event())
    for _ in range(2):  # one that answers stays: there is no third
        with pytest.raises(TopicMissingError):
            looked.read_id(threading.Event())


@pytest.mark.guarantee(4)
@pytest.mark.kafka
def test_the_partitions_ends_are_waited_for_together(
    broker: Broker, kafka: KafkaTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the wall clock was set back during the request, the client itself does not end it."""
    limit = 1.0
    monkeypatch.setattr(client, "ANSWER_SECONDS_MAX", limit)
    monkeypatch.setattr(topic, "OPENING_SECONDS_MAX", 60.0)
    looked = TopicWatch(open_admin(kafka.settings(), LastError()), kafka.topic, LastError())
    broker.pause()
    begin = time.monotonic()
    try:
        assert looked.ends(range(12), threading.Event()) == {}
    finally:
        broker.resume()
    assert time.monotonic() - begin < 6 * limit, "not one limit for each of the twelve"


@pytest.mark.guarantee(4)
@pytest.mark.kafka
def test_a_leader_without_an_answer_is_not_one_without_epochs(
    broker: Broker, kafka: KafkaTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client ends such a request without an error, with offsets below 0."""
    monkeypatch.setattr(topic, "REQUEST_SECONDS_MAX", 1.0)
    looked = TopicWatch(open_admin(kafka.settings(), LastError()), kafka.topic, LastError())
    wait_until(lambda: bool(looked.ends([0], threading.Event())), "the broker answers within a second")
    broker.pause()
    try:
        assert looked.ends([0], threading.Event()) == {}
    finally:
        broker.resume()


def settings(tmp_path: Path) -> KafkaSettings:
    file = tmp_path / "kafka.properties"
    file.write_text("sasl.password=first\n")
    properties = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "a"}
    return KafkaSettings("127.0.0.1:1", properties=properties, properties_file=file)


def looks(files: LoginFiles, clock: HandClock, count: int = 3) -> list[bool]:
    found = []
    for _ in range(count):
        clock.running += CHECK_MS
        found.append(files.renewed())
    return found


def test_a_renewed_file_counts_once_two_looks_agree(tmp_path: Path) -> None:
    chosen, clock = settings(tmp_path), HandClock()
    files = LoginFiles(chosen, clock)
    assert looks(files, clock) == [False, False, False]
    assert chosen.properties_file is not None
    chosen.properties_file.write_text("sasl.password=second-one\n")
    assert looks(files, clock, 2) == [False, True]


def test_files_with_which_no_client_opens_leave_the_session_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chosen, clock = settings(tmp_path), HandClock()
    stop = threading.Event()
    session = SessionStop(stop, LoginFiles(chosen, clock), Hours((), clock))
    assert chosen.properties_file is not None
    chosen.properties_file.write_text("no such line\n")
    for _ in range(4):
        clock.running += CHECK_MS
        assert not session.is_set()
    assert caplog.text.count("login=unusable") == 1
    chosen.properties_file.write_text("sasl.password=third\n")
    clock.running += CHECK_MS
    assert not session.is_set()
    clock.running += CHECK_MS
    assert session.is_set()
    assert session.renewed
    assert not stop.is_set()


def test_the_files_are_those_that_the_properties_name() -> None:
    chosen = KafkaSettings("b:1", properties={"ssl.ca.location": "/ca.pem", "sasl.oauthbearer.assertion.file": "/jwt"})
    assert login_files(chosen) == {"ssl.ca.location": Path("/ca.pem"), "sasl.oauthbearer.assertion.file": Path("/jwt")}


@given(event=events)
def test_value_and_headers_tell_of_the_same_event(event: Event) -> None:
    key, text, listed = encode(stored(7, event), "gw-1")

    value = json.loads(text)
    headers = dict(listed)
    assert key == event.device.encode()
    assert value["device"] == event.device
    assert value["fingerprint"].encode() == headers["ce_id"]
    assert read_stated_label(headers[STATEMENT]) == (value["gateway"], Label(value["epoch"], value["sequence"]))


HOURS = 3_600


def test_only_a_clock_that_was_set_back_by_more_than_a_moment_is_noticed_and_once(clock: HandClock) -> None:
    steps = WallSteps(clock)
    for step_ms in (STEP_MS_MAX, -STEP_MS_MAX, 10**9, -STEP_MS_MAX, -STEP_MS_MAX):
        clock.pass_seconds(60)
        clock.now += step_ms
        steps.check()
    clock.now -= STEP_MS_MAX + 1
    with pytest.raises(RenewalError, match="set back by 1 s"):
        steps.check()
    steps.check()


@pytest.mark.guarantee(4)
@pytest.mark.kafka
@pytest.mark.heavy
@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_clock_that_is_set_back_while_kafka_is_away_delays_nothing(
    broker: Broker, kafka: KafkaTopic, tmp_path: Path, delivery: str
) -> None:
    clock = SteppableClock(tmp_path)
    options = f'topic = "{kafka.topic}"\ndelivery = "{delivery}"\n[receipts]\npoll_seconds = 0.3\n'
    configuration = configured(tmp_path, options, gateway=GATEWAY, coap="", kafka=kafka.bootstrap_servers)

    def is_forwarded() -> bool:
        return read_status(tmp_path / "state", GATEWAY).events.new == 0

    with agent_process(configuration, clock.environment) as agent:
        agent.start()
        post_events(agent, range(5))
        wait_until(is_forwarded, "the first are forwarded")
        for hours in (2, 5):
            broker.kill()
            post_events(agent, range(100 * hours, 100 * hours + 20))
            wait_until(lambda: "kafka=unreachable" in agent.log(), "it notices that Kafka is away")
            clock.set(-hours * HOURS)
            post_events(agent, range(1_000 * hours, 1_000 * hours + 5))
            broker.start()
            wait_until(is_forwarded, "everything is forwarded", seconds=300)


def test_a_wait_for_an_answer_ends_when_the_agent_stops() -> None:
    stop = threading.Event()
    stop.set()
    unanswered: Future[str] = Future()

    with pytest.raises(UnreachableError):
        wait_for(unanswered, stop)


def test_what_a_failing_call_has_opened_is_released_with_its_error() -> None:
    class Client:
        pass

    opened: list[weakref.ref[Client]] = []

    def fail() -> None:
        client = Client()
        opened.append(weakref.ref(client))
        raise KeyError(str(client))

    gc.disable()  # without the collector, which comes after many more allocations
    try:
        with pytest.raises(KeyError) as raised:
            attempt(fail, 60, threading.Event(), "a call")
        del raised
        assert [client() for client in opened] == [None]
    finally:
        gc.enable()
