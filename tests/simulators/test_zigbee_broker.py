import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from simulators.payloads import address
from simulators.run.command import main
from simulators.sensors.zigbee_network import DEVICES_TOPIC, ZigbeeBrokerError, require_no_network
from simulators.services import ports
from simulators.services.mosquitto import Mosquitto
from tests.agent.mqtt.publisher import Publisher
from tests.simulators.run.test_run import SCENARIO
from tests.support.waiting import wait_until

COORDINATOR = {"friendly_name": "Coordinator", "ieee_address": "0x00124b0018ed3ddf"}
SIMULATED = {"friendly_name": "lamp", "ieee_address": f"0x{address(7, run=9):016x}"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with Mosquitto(tmp_path / "mosquitto") as running:
        yield running


def _run(folder: Path, port: int) -> int:
    (folder / "small.toml").write_text(SCENARIO.format(seconds=1).replace("coap", "zigbee"))
    target = ("--target", f"mqtt://127.0.0.1:{port}", "--folder", str(folder / "run"))
    return main([str(folder / "small.toml"), *target], "oncegate-sim run")


def _retained(port: int) -> list[dict[str, str]]:
    with Publisher(port) as reader:
        reader.listen(DEVICES_TOPIC)
        wait_until(lambda: bool(reader.received), "the retained list")
        devices: list[dict[str, str]] = json.loads(reader.received[0][1])
        return devices


def test_the_list_of_a_real_network_is_not_replaced(
    broker: Mosquitto, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Publisher(broker.port) as zigbee2mqtt:
        zigbee2mqtt.publish(DEVICES_TOPIC, json.dumps([COORDINATOR]), retain=True)
    assert _run(tmp_path, broker.port) == 1
    assert _retained(broker.port) == [COORDINATOR]
    assert "run failed: zigbee2mqtt/bridge/devices at mqtt://127.0.0.1" in capsys.readouterr().out
    assert not (tmp_path / "run" / "ledger.jsonl").exists()


def test_a_broker_without_a_list_takes_that_of_the_run_and_the_command_that_removes_it_is_printed(
    broker: Mosquitto, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(tmp_path, broker.port) == 1  # there is no table
    assert len(_retained(broker.port)) == 5
    assert f"mosquitto_pub -h 127.0.0.1 -p {broker.port} -t {DEVICES_TOPIC} -r -n" in capsys.readouterr().out
    require_no_network(("127.0.0.1", broker.port))


@pytest.mark.parametrize("payload", ["[", "17", "[17]", "[{}]", json.dumps([SIMULATED, COORDINATOR])])
def test_a_list_that_is_not_of_simulated_devices_alone_is_that_of_a_real_network(
    broker: Mosquitto, payload: str
) -> None:
    with Publisher(broker.port) as zigbee2mqtt:
        zigbee2mqtt.publish(DEVICES_TOPIC, payload, retain=True)
    with pytest.raises(ZigbeeBrokerError, match="lists the devices of a Zigbee2MQTT"):
        require_no_network(("127.0.0.1", broker.port))


def test_a_broker_that_cannot_be_asked_is_an_error() -> None:
    (port,) = ports.free(1)
    with pytest.raises(ZigbeeBrokerError, match=r"cannot be read: .*refused"):
        require_no_network(("127.0.0.1", port))
