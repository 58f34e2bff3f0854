"""The subscriber with a real broker: which messages are acknowledged, and come again; passwords and TLS."""

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agent.cli.doctor.mqtt import check_mqtt
from agent.config.settings import MqttSettings
from agent.config.subscriptions import Subscription
from agent.delivery import Answer, Media, Status
from agent.mqtt.reception import ReceptionLimits
from simulators.services.install import programs
from simulators.services.mosquitto import Mosquitto
from tests.agent.mqtt.gateway import (
    GATEWAY,
    Recorder,
    begin_session,
    running,
    take_session,
    wait_for_state,
)
from tests.agent.mqtt.publisher import Publisher
from tests.agent.mqtt.raw_broker import publish, raw_broker
from tests.agent.recorder import DURABLE
from tests.docs.pages import ROOT, blocks
from tests.support.logins.certificates import Authority
from tests.support.waiting import until, wait_until

EVENTS = (Subscription("plant/{device}/events", Media.JSON),)
TAKEN_OVER = b"\xe0\x02\x8e\x00"
"""DISCONNECT with the reason 0x8E (MQTT 5 section 3.14.2.1)."""
LIST = '[{"friendly_name":"t1","ieee_address":"0x00158d0001234567"}]'
REFUSED = Answer(Status.UNAVAILABLE, reason="the store is full")


@pytest.mark.guarantee(1)
@pytest.mark.parametrize("version", ["5", "3.1.1"])
async def test_what_has_no_outcome_is_not_acknowledged_and_comes_again(
    broker: Mosquitto, publisher: Publisher, version: str, recorder: Recorder
) -> None:
    recorder.answer = None
    options: dict[str, Any] = {"version": version, "subscriptions": EVENTS}
    await begin_session(recorder, publisher, broker.port, **options)
    publisher.publish_all([("plant/a/events", body) for body in (b"1", b"2", b"3")])

    async def die_with_one_outcome_missing() -> None:
        async with running(recorder, broker.port, **options):
            await recorder.until(deliveries=3)
            recorder.open[0](DURABLE)
            recorder.open[2](DURABLE)  # in the order of receipt: 3 has to wait for 2
            raise OSError("the agent dies")

    with pytest.raises(ExceptionGroup):
        await die_with_one_outcome_missing()
    again = Recorder(recorder)
    async with running(again, broker.port, **options):
        await again.until(deliveries=2)
        publisher.publish("plant/a/events", b"4")
        await again.until(deliveries=3)
    assert again.bodies == [b"2", b"3", b"4"]


@pytest.mark.guarantee(3)
async def test_a_refusal_ends_the_connection_and_the_message_comes_again(
    broker: Mosquitto, publisher: Publisher, recorder: Recorder
) -> None:
    publisher.listen(f"oncegate/{GATEWAY}/state")
    async with running(recorder, broker.port, subscriptions=EVENTS):
        await asyncio.to_thread(wait_for_state, publisher, b"online")
        recorder.answer = REFUSED
        publisher.publish("plant/a/events", b"1")
        await recorder.until(deliveries=2)
        recorder.answer = DURABLE
        publisher.publish("plant/a/events", b"2")
        await recorder.until(deliveries=3)
        while recorder.bodies[-1] != b"2":
            await recorder.until(deliveries=len(recorder.deliveries) + 1)
    assert recorder.bodies[:2] == [b"1", b"1"]
    assert recorder.bodies[-2:] == [b"1", b"2"]
    assert (f"oncegate/{GATEWAY}/state", b"offline") in publisher.received


async def test_a_subscription_of_which_nothing_is_accepted_is_told_once(
    broker: Mosquitto, publisher: Publisher, caplog: pytest.LogCaptureFixture, recorder: Recorder
) -> None:
    foreign = Subscription("tele/{device}/SENSOR", Media.JSON)
    await begin_session(recorder, publisher, broker.port, subscriptions=(*EVENTS, foreign))
    recorder.answer = Answer(Status.UNDECODABLE, reason="unknown field 'Time'")
    publisher.publish_all([("tele/a/SENSOR", b"{}"), ("plant/a/events", b"1")] * 2)
    async with running(recorder, broker.port, subscriptions=(*EVENTS, foreign)):
        await recorder.until(deliveries=4)
        recorder.answer = DURABLE
        publisher.publish("plant/a/events", b"1", qos=0)
        await recorder.until(deliveries=5)
        recorder.answer = Answer(Status.UNDECODABLE, reason="unknown field 'Time'")
        publisher.publish_all([("tele/b/SENSOR", b"{}"), ("plant/a/events", b"1")] * 4)
        await recorder.until(deliveries=13)
    [told] = [message for message in caplog.messages if "mqtt=all-rejected" in message]
    assert "topic='tele/+/SENSOR' reason=\"unknown field 'Time'\"" in told
    [unconfirmed] = [message for message in caplog.messages if "mqtt=qos-0" in message]
    assert "topic='plant/+/events'" in unconfirmed


@pytest.mark.guarantee(2)
@pytest.mark.parametrize("version", ["5", "3.1.1"])
async def test_retained_messages_are_state_and_no_events(broker: Mosquitto, publisher: Publisher, version: str) -> None:
    recorder = Recorder()
    publisher.publish("plant/a/events", b"old", retain=True)
    options: dict[str, Any] = {"version": version, "subscriptions": EVENTS}
    await begin_session(recorder, publisher, broker.port, **options)
    async with running(recorder, broker.port, **options):
        publisher.publish("plant/a/events", b"new", retain=True)
        await recorder.until(deliveries=1)
    assert recorder.bodies == [b"new"]


@pytest.mark.guarantee(3)
async def test_the_work_is_bounded_and_goes_on_when_there_is_room(broker: Mosquitto, publisher: Publisher) -> None:
    recorder = Recorder()
    recorder.answer = None
    await begin_session(recorder, publisher, broker.port, subscriptions=EVENTS)
    publisher.publish_all([("plant/a/events", b"%d" % number) for number in range(12)])
    async with running(recorder, broker.port, ReceptionLimits(in_progress_max=4), subscriptions=EVENTS):
        for turn in range(3):
            await recorder.until(deliveries=4 * (turn + 1))
            assert len(recorder.open) == 4
            answers, recorder.open = recorder.open, []
            for respond in reversed(answers):
                respond(DURABLE)
    assert recorder.bodies == [b"%d" % number for number in range(12)]


async def test_a_message_passed_over_while_waiting_for_the_list_comes_again(tmp_path: Path, recorder: Recorder) -> None:
    with (
        Mosquitto(tmp_path, ("allow_anonymous true", "max_inflight_messages 0")) as broker,
        Publisher(broker.port) as publisher,
    ):
        await begin_session(recorder, publisher, broker.port, version="3.1.1")
        publisher.publish_all([("zigbee2mqtt/t1", b'{"n":%d}' % number) for number in range(40)])
        async with running(recorder, broker.port, ReceptionLimits(in_progress_max=10), version="3.1.1"):
            await asyncio.to_thread(wait_for_state, publisher, b"online")
            publisher.publish("zigbee2mqtt/bridge/devices", LIST, 0, retain=True)
            await recorder.until(deliveries=40)
    assert recorder.bodies == [b'{"n":%d}' % number for number in range(40)]
    assert {one.via for one in recorder.deliveries} == {"zigbee2mqtt"}
    assert {one.sender for one in recorder.deliveries} == {"urn:dev:mac:00158d0001234567"}


async def test_a_subscription_of_former_settings_is_passed_over_and_said_once(
    broker: Mosquitto, publisher: Publisher, caplog: pytest.LogCaptureFixture, recorder: Recorder
) -> None:
    former = (Subscription("former/+", Media.JSON), *EVENTS)
    await begin_session(recorder, publisher, broker.port, subscriptions=former)
    publisher.publish_all([("former/a", b"1"), ("former/a", b"2"), ("plant/a/events", b"3")])
    async with running(recorder, broker.port, subscriptions=EVENTS):
        await recorder.until(deliveries=1)
    assert recorder.bodies == [b"3"]
    assert caplog.text.count("mqtt=ignored topic='former/a'") == 1


async def test_what_is_lost_at_qos_0_is_counted_and_the_bridges_own_talk_is_not(
    broker: Mosquitto, publisher: Publisher, caplog: pytest.LogCaptureFixture, recorder: Recorder
) -> None:
    recorder.answer = REFUSED
    publisher.listen(f"oncegate/{GATEWAY}/state")
    async with running(recorder, broker.port, subscriptions=EVENTS):
        await asyncio.to_thread(wait_for_state, publisher, b"online")
        publisher.publish("zigbee2mqtt/bridge/logging", b"{}", qos=0)
        publisher.publish("plant/a/events", b"1", qos=0)
        await asyncio.to_thread(wait_until, lambda: "mqtt=lost messages=1" in caplog.text, "the loss is logged")
        recorder.answer = DURABLE


@pytest.mark.parametrize("version", ["5", "3.1.1"])
async def test_a_broker_that_has_lost_the_session_is_told_and_counted_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, version: str, recorder: Recorder
) -> None:
    options: dict[str, Any] = {"version": version, "subscriptions": EVENTS}
    for _ in range(2):  # the second broker is another one: a first session there is no loss
        with Mosquitto(tmp_path / "broker", ("allow_anonymous true", "persistence false")) as broker:
            for restarts in (False, True):
                if restarts and not recorder.session().lost:
                    broker.stop()
                    broker.start()
                with Publisher(broker.port) as publisher:
                    await begin_session(recorder, publisher, broker.port, **options)
    assert recorder.session().lost == 1
    assert recorder.session().lost_at is not None
    assert caplog.text.count("mqtt=session-lost") == 1


async def test_who_knows_the_gateways_id_cannot_take_its_session(broker: Mosquitto, publisher: Publisher) -> None:
    recorder = Recorder()
    await begin_session(recorder, publisher, broker.port, subscriptions=EVENTS)
    publisher.publish("plant/a/events", b"1")
    take_session(broker.port, f"oncegate-{GATEWAY}")
    async with running(recorder, broker.port, subscriptions=EVENTS):
        await recorder.until(deliveries=1)
    ends = (f"oncegate/{GATEWAY}/state", b"offline")
    await until(lambda: publisher.received.count(ends) == 2, "it has told its second end, too")
    other = Recorder()
    await begin_session(other, publisher, broker.port, subscriptions=EVENTS)
    assert other.session().secret != recorder.session().secret
    assert recorder.session().lost == other.session().lost == 0


async def test_a_gateway_that_leaves_before_it_has_subscribed_is_not_shown_online(recorder: Recorder) -> None:
    """A kept session delivers before the broker has answered the subscription."""
    async with raw_broker("5", subscribes_late=True) as broker, running(recorder, broker.port, subscriptions=EVENTS):
        await broker.send(publish(b"plant/a/events", b"1", 1))
        await recorder.until(deliveries=1)
    assert broker.states == [b"offline"]


async def test_an_agent_whose_session_is_taken_over_tells_it_and_rests_longer_each_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As with a copied card: the two take the session from one another, and each connection brings messages."""
    began = asyncio.get_running_loop().time()
    async with raw_broker("5") as broker, running(Recorder(), broker.port, subscriptions=EVENTS):
        for times in (1, 2, 3):
            await broker.until_connected(times)
            await broker.send(publish(b"plant/a/events", b"1", times))
            await broker.until_acknowledged(times)
            await broker.send(TAKEN_OVER)
        await broker.until_connected(4)
    assert caplog.text.count("the broker disconnected: Session taken over") == 3
    assert asyncio.get_running_loop().time() - began > (0.25 + 0.5 + 1.0) / 2


PLANT = (Subscription("plant/{device}", Media.JSON),)


async def _until_logged(caplog: pytest.LogCaptureFixture, text: str) -> None:
    await asyncio.to_thread(wait_until, lambda: text in caplog.text, f"{text!r} in the log")


async def test_the_password_comes_from_its_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    passwords, password = tmp_path / "passwords", tmp_path / "password"
    _run("mosquitto_passwd", "-b", "-c", str(passwords), "gw", "right")
    password.write_text("wrong\n")
    with Mosquitto(tmp_path / "broker", ("allow_anonymous false", f"password_file {passwords}")) as broker:
        async with running(Recorder(), broker.port, username="gw", password_file=password, subscriptions=PLANT):
            await _until_logged(caplog, "refuses the connection")
            password.write_text("right\n")
            await _until_logged(caplog, "mqtt=connected")
    assert "right" not in caplog.text


async def test_the_rights_of_the_documentation_suffice_and_keep_a_sensor_to_its_own_topic(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, recorder: Recorder
) -> None:
    caplog.set_level("INFO")
    rights, passwords, password = tmp_path / "acl", tmp_path / "passwords", tmp_path / "password"
    (documented,) = blocks(ROOT / "docs" / "zigbee2mqtt.md", "acl")
    rights.write_text(documented.replace("/gw1/", f"/{GATEWAY}/"))
    password.write_text("right\n")
    for user, create in (("oncegate", ("-c",)), ("door", ())):
        _run("mosquitto_passwd", "-b", *create, str(passwords), user, "right")
    settings = ("allow_anonymous false", f"password_file {passwords}", f"acl_file {rights}")
    events = (Subscription("plant/{device}/events", Media.JSON),)
    with Mosquitto(tmp_path / "broker", settings) as broker:
        mqtt = MqttSettings(enabled=True, port=broker.port, username="oncegate", password_file=password)
        assert "persistence true" in str(await asyncio.to_thread(lambda: list(check_mqtt(mqtt, GATEWAY))))
        async with running(recorder, broker.port, username="oncegate", password_file=password, subscriptions=events):
            await _until_logged(caplog, "mqtt=connected")
            for device in ("window", "door"):
                topic = f"plant/{device}/events"
                to = ("-p", str(broker.port), "-h", "127.0.0.1", "-u", "door", "-P", "right", "-q", "1", "-t", topic)
                _run("mosquitto_pub", *to, "-m", "1")
            await recorder.until(deliveries=1)
    assert [delivery.sender for delivery in recorder.deliveries] == ["door"]


# paho leaves the socket of a failed handshake to the garbage collector, which warns of it.
@pytest.mark.filterwarnings("ignore:Exception ignored .*<ssl.SSLSocket:pytest.PytestUnraisableExceptionWarning")
async def test_tls_checks_the_broker_and_shows_it_our_certificate(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    authority = Authority(tmp_path)
    (own, _), (of_broker, _) = (authority.issue(name, 3_600) for name in ("gw.pem", "broker.pem"))
    settings = (
        "allow_anonymous true",
        "require_certificate true",
        f"cafile {authority.file}",
        f"certfile {of_broker}",
        f"keyfile {of_broker}",
    )
    with Mosquitto(tmp_path / "broker", settings) as broker:
        async with running(Recorder(), broker.port, tls=True, subscriptions=PLANT):
            await _until_logged(caplog, "CERTIFICATE_VERIFY_FAILED")
        recorder = Recorder()
        files: dict[str, Any] = {"tls_ca_file": authority.file, "tls_certificate_file": own, "tls_key_file": own}
        async with running(recorder, broker.port, tls=True, **files, subscriptions=PLANT):
            await _until_logged(caplog, "mqtt=connected")
            await asyncio.to_thread(_publish, broker, tmp_path, 200)
            await recorder.until(deliveries=200)
    assert recorder.bodies == [b"%d" % number for number in range(200)]


def _publish(broker: Mosquitto, certificates: Path, count: int) -> None:
    """Publish with mosquitto's own client, which shares no code with the agent."""
    files = ("--cafile", "ca.pem", "--cert", "gw.pem", "--key", "gw.pem")
    lines = "\n".join(str(number) for number in range(count))
    to = ("-p", str(broker.port), "-h", "127.0.0.1", "-q", "1", "-t", "plant/a", "-l")
    _run("mosquitto_pub", *files, *to, folder=certificates, text=lines)


def _run(program: str, *arguments: str, folder: Path | None = None, text: str = "") -> None:
    command = [programs.require(program), *arguments]
    subprocess.run(command, cwd=folder, input=text, text=True, capture_output=True, check=True)
