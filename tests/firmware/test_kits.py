"""The firmware kits bring each event once over a bad radio, though their power is cut."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from simulators.services.process import Process
from tests.docs.pages import ROOT
from tests.firmware import wakings

EXAMPLES = ROOT / "docs" / "examples"
HOST = Path(__file__).parent / "host"
SKETCH_DEVICE = "urn:kit:esp32"
WAKINGS, CUTS = 12, 3


@pytest.fixture(scope="module")
def configuration(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gateway") / "oncegate.toml"


@pytest.fixture(scope="module")
def agent(configuration: Path) -> Iterator[Process]:
    with wakings.agent(configuration, '[devices]\ndeny = ["urn:stranger"]\n') as process:
        yield process


def compiled_sketch(folder: Path) -> Path:
    """Compile the sketch for this machine; the port of the gateway is in its environment."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler; run: sudo apt-get install g++")
    program = folder / "sketch"
    values = {
        "GATEWAY": f'"{wakings.HOST}"',
        "PORT": 'atoi(getenv("PORT"))',
        "DEVICE": f'"{SKETCH_DEVICE}"',
        "WIFI_NAME": '""',
        "WIFI_PASSWORD": '""',
        "ACK_TIMEOUT_MS": str(wakings.ACK_TIMEOUT_MS),
        "SLEEP_SECONDS": "60",
    }
    options = ["-std=gnu++17", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{HOST}", "-include", "Arduino.h"]
    sketch = ["-x", "c++", str(EXAMPLES / "esp32_sensor" / "esp32_sensor.ino"), str(HOST / "host.cpp")]
    defined = [f"-D{name}={value}" for name, value in values.items()]
    subprocess.run([compiler, *options, *defined, "-o", str(program), *sketch], check=True)
    return program


async def test_the_sensor_in_micropython_loses_and_doubles_nothing(
    agent: Process, configuration: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-u", str(EXAMPLES / "micropython" / "main.py")]
    places = (tmp_path, wakings.coap_port(agent), configuration)
    await wakings.live(command, *places, "urn:kit:micropython", wakings=WAKINGS, cuts=CUTS)


async def test_the_sketch_for_the_esp32_loses_only_what_a_power_cut_takes_and_doubles_nothing(
    agent: Process, configuration: Path, tmp_path: Path
) -> None:
    command = ["env", "PORT={port}", str(compiled_sketch(tmp_path))]
    places = (tmp_path, wakings.coap_port(agent), configuration)
    account = await wakings.live(command, *places, SKETCH_DEVICE, wakings=WAKINGS, cuts=CUTS, keeps_memory=False)
    assert account.cuts >= CUTS
    assert len({boot for boot, _ in account.measured}) > 1


@pytest.mark.parametrize("device", ["urn:stranger", "urn:nobody"])
async def test_the_sensor_in_micropython_keeps_an_event_that_is_not_accepted(
    agent: Process, tmp_path: Path, device: str
) -> None:
    port = wakings.coap_port(agent) if device == "urn:stranger" else 1
    settings = {"gateway": wakings.HOST, "port": port, "device": device, "ack_timeout_ms": 1}
    (tmp_path / "settings.json").write_text(json.dumps(settings))
    for number in (1, 2):
        output, _ = await wakings.wake([sys.executable, str(EXAMPLES / "micropython" / "main.py")], tmp_path)
        assert output.splitlines()[-1] == f"waiting {number}"
