"""From a fresh Zigbee2MQTT to the first events in the table, by the commands of docs/zigbee2mqtt.md."""

import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from textwrap import dedent

import pytest
import yaml

from simulators.services.install import programs
from simulators.services.kafka.broker import Broker
from simulators.services.mosquitto import Mosquitto
from simulators.services.process import Command, Process
from simulators.services.zigbee2mqtt import FIRST_TEMPERATURE, Zigbee2Mqtt
from tests.docs.pages import ROOT, blocks
from tests.support import commands
from tests.support.waiting import wait_until

SECONDS_MAX = 900.0
REPORTS = 6
BEGINNING = "From a fresh Zigbee2MQTT to the table"
pytestmark = [
    *(pytest.mark.heavy, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(3 * SECONDS_MAX)),
    pytest.mark.skipif(programs.find("npm") is None, reason="npm fetches Zigbee2MQTT; run: sudo apt-get install npm"),
]


class Machines:
    """The gateway and the machine of the cloud job: runs the page's commands with the addresses of this test."""

    def __init__(self, folder: Path, kafka: Broker, mosquitto: Mosquitto) -> None:
        self.folder = folder
        self._kafka = kafka
        self._environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "ONCEGATE_MQTT__PORT": str(mosquitto.port),
            "ONCEGATE_GATEWAY__STATE_DIR": str(folder / "state"),
            "ONCEGATE_COAP__BIND": "127.0.0.1:0",
            "ONCEGATE_HTTP__BIND": "127.0.0.1:0",
        }

    def command(self, program: str) -> str:
        """Return the page's command that runs this program."""
        page = ROOT / "docs" / "zigbee2mqtt.md"
        section = page.read_text().partition(f"\n## {BEGINNING}\n")[2].partition("\n## ")[0]
        block = next(block for block in blocks(page, "sh") if block in section)
        (line,) = [line for line in block.splitlines() if re.search(rf"\b{program}\b", line)]
        ours = {
            "/etc/oncegate/oncegate.toml": "oncegate.toml",
            "kafka-1:9092": self._kafka.bootstrap_servers,
            "sudo ": "",
            "oncegate doctor": "oncegate doctor --config oncegate.toml",
            "systemctl restart oncegate": "oncegate run --config oncegate.toml",
        }
        for text, own in ours.items():
            line = line.replace(text, own)
        return line

    def run(self, program: str) -> commands.Completed:
        return commands.run("sh", "-c", self.command(program), cwd=self.folder, environment=self._environment)

    @contextmanager
    def started(self, program: str) -> Iterator[Process]:
        """Start a command that goes on, and end it with the block."""
        log = self.folder / f"{program.replace(' ', '-')}.log"
        words = ("sh", "-c", f"exec {self.command(program)}")
        process = Process(Command(program, words, log, self.folder, self._environment))
        process.start()
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def add_lines(configuration: Path, lines: str) -> None:
    """Add lines to a configuration.yaml, each in the section of its name."""

    def merged(one: Mapping[str, object], other: Mapping[str, object]) -> dict[str, object]:
        both = dict(one)
        for name, value in other.items():
            own = both.get(name)
            both[name] = merged(own, value) if isinstance(own, dict) and isinstance(value, dict) else value
        return both

    configuration.write_text(yaml.safe_dump(merged(yaml.safe_load(configuration.read_text()), yaml.safe_load(lines))))


def test_five_commands_lead_from_a_fresh_zigbee2mqtt_to_the_table(tmp_path: Path, stack: ExitStack) -> None:
    mosquitto = stack.enter_context(Mosquitto(tmp_path / "mosquitto"))
    kafka = stack.enter_context(Broker(tmp_path / "kafka"))
    source = stack.enter_context(Zigbee2Mqtt(tmp_path / "zigbee2mqtt", mosquitto.port, REPORTS))
    machines = Machines(tmp_path, kafka, mosquitto)

    begun = time.monotonic()
    assert machines.run("printf").returncode == 0
    found = machines.run("oncegate doctor")
    assert found.returncode == 1, found.stdout + found.stderr
    assert "kafka-topics.sh --bootstrap-server" in found.stdout
    (hint,) = re.findall(r"its configuration\.yaml lacks .*\n((?: .*\n)*)", found.stdout)
    kafka.create_topics()
    source.process.terminate()
    add_lines(tmp_path / "zigbee2mqtt" / "configuration.yaml", dedent(hint.replace("->", "  ", 1)))
    source.start()
    agent = stack.enter_context(machines.started("systemctl"))
    agent.wait_for_log("mqtt=connected")
    found = machines.run("oncegate doctor")
    assert not re.search(r"^(warning|wrong)\s+zigbee2mqtt", found.stdout, re.MULTILINE), found.stdout
    source.report()

    job = stack.enter_context(machines.started("oncegate-cloud job"))
    job.wait_for_log("stage=done", SECONDS_MAX)
    answers: list[str] = []

    def all_rows() -> bool:
        done = machines.run("oncegate-cloud query")
        answers[:] = re.findall(r'urn:dev:mac:\w+.*"temperature": ?[0-9.]+', done.stdout)
        return done.returncode == 0 and len(answers) >= REPORTS

    wait_until(all_rows, f"{REPORTS} rows in the table", SECONDS_MAX)
    print(f"from the first command to the answer of the last: {time.monotonic() - begun:.0f} s")
    expected = {
        (device, FIRST_TEMPERATURE + number / 100)
        for device in source.devices.values()
        for number in range(REPORTS // 2)
    }
    assert len(answers) == REPORTS
    assert {(re.findall(r"urn:[\w:]+", line)[0], float(line.rpartition(":")[2])) for line in answers} == expected
    assert job.terminate() == 0
    assert agent.terminate() == 0
