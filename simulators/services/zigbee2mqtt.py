"""The real Zigbee2MQTT without a radio: its adapter is replaced by one that emits real ZCL frames on demand."""

import json
import os
import signal
from pathlib import Path

from simulators.services.install import npm
from simulators.services.process import Command, Process
from simulators.services.service import ProcessService

VERSION = "2.14.1"
NODE_VERSION = "22.23.3"
"""Zigbee2MQTT needs 22.2 or newer; npm installs this one."""
START_SECONDS_MAX = 90.0
FIRST_TEMPERATURE = 10.0
DEVICES = 2
_PRELOADED = Path(__file__).with_suffix(".js")
_FIRST_ADDRESS = 0x1234
_FIRST_IEEE_ADDRESS = 0x00158D0001234567


def ieee_address(device: int) -> str:
    """Return the IEEE address of the n-th device, as Zigbee2MQTT writes it."""
    return f"0x{_FIRST_IEEE_ADDRESS + device:016x}"


class Zigbee2Mqtt(ProcessService):
    """A Zigbee2MQTT as after its installation, with thermometers t0 and t1, which send a number of reports."""

    def __init__(self, folder: Path, port: int, reports: int) -> None:
        self._folder = folder.absolute()
        self._port = port
        modules = npm.install(f"zigbee2mqtt-{VERSION}", (f"node@{NODE_VERSION}", f"zigbee2mqtt@{VERSION}"))
        environment = {
            "GIT_DIR": str(self._folder / "none"),  # inside a Git checkout it would rebuild itself
            "ZIGBEE2MQTT_DATA": str(self._folder),
            "ONCEGATE_NODE_MODULES": str(modules),
            "ONCEGATE_REPORTS": str(reports),
            "ONCEGATE_DEVICES": str(DEVICES),
        }
        node = str(modules / ".bin" / "node")
        arguments = (node, "-r", str(_PRELOADED), str(modules / "zigbee2mqtt" / "index.js"))
        self.process = Process(
            Command("zigbee2mqtt", arguments, self._folder / "zigbee2mqtt.log", environment=environment)
        )

    def start(self) -> None:
        """Start Zigbee2MQTT and return once it serves its devices."""
        self._folder.mkdir(parents=True, exist_ok=True)
        if not (self._folder / "configuration.yaml").exists():
            (self._folder / "configuration.yaml").write_text(json.dumps(self._configuration()))  # JSON is YAML
            lines = [_coordinator(), *map(_thermometer, range(DEVICES))]
            (self._folder / "database.db").write_text("\n".join(json.dumps(line) for line in lines))
        self.process.start()
        self.process.wait_for_log("Zigbee2MQTT started!", START_SECONDS_MAX)

    @property
    def devices(self) -> dict[str, str]:
        """The thermometers' URNs by name."""
        return {f"t{device}": f"urn:dev:mac:{ieee_address(device)[2:]}" for device in range(DEVICES)}

    def report(self) -> None:
        """Trigger the reports; temperatures start at 10.00 degrees and grow by a hundredth."""
        os.kill(self.process.pid, signal.SIGUSR2)

    def _configuration(self) -> dict[str, object]:
        return {
            "version": 5,
            "mqtt": {"base_topic": "zigbee2mqtt", "server": f"mqtt://127.0.0.1:{self._port}", "version": 5},
            "serial": {"port": "/dev/null", "adapter": "zstack"},
            "frontend": {"enabled": False},
            "homeassistant": {"enabled": False},
            "advanced": {
                "log_level": "info",
                "log_output": ["console"],
                "network_key": [1, 3, 5, 7, 9, 11, 13, 15, 0, 2, 4, 6, 8, 10, 12, 13],
                "pan_id": 6754,
                "ext_pan_id": [221] * 8,
                "channel": 11,
            },
            "devices": {ieee_address(device): {"friendly_name": f"t{device}"} for device in range(DEVICES)},
        }


def _coordinator() -> dict[str, object]:
    return _entry(1, "Coordinator", "0x00124b0012345678", 0, _endpoint(5, []))


def _thermometer(device: int) -> dict[str, object]:
    entry = _entry(
        device + 2,
        "EndDevice",
        ieee_address(device),
        _FIRST_ADDRESS + device,
        _endpoint(24321, [0, 3, 1026, 1027, 1029]),
    )
    return {**entry, "manufName": "LUMI", "modelId": "lumi.weather", "powerSource": "Battery", "zclVersion": 1}


def _entry(number: int, kind: str, ieee: str, network_address: int, endpoint: dict[str, object]) -> dict[str, object]:
    return {
        "id": number,
        "type": kind,
        "ieeeAddr": ieee,
        "nwkAddr": network_address,
        "manufId": 4151,
        "epList": [1],
        "endpoints": {"1": endpoint},
        "interviewCompleted": True,
        "interviewState": "SUCCESSFUL",
        "meta": {"configured": "0.0.0"},
    }


def _endpoint(device_id: int, clusters: list[int]) -> dict[str, object]:
    return {
        "profId": 260,
        "epId": 1,
        "devId": device_id,
        "inClusterList": clusters,
        "outClusterList": [],
        "clusters": {},
        "binds": [],
        "configuredReportings": [],
        "meta": {},
    }
