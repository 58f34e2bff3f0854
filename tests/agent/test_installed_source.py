"""Another package's way in: installed, configured by its own section, and in every view beside the agent's own."""

import asyncio
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from pkgutil import resolve_name
from urllib.request import urlopen

import pytest
from pymodbus.server import ModbusTcpServer
from pymodbus.simulator import DataType, SimData, SimDevice

from agent.config import ways
from simulators.services import ports
from simulators.services.process import Process
from tests.agent.mqtt.agents import accepted, stored
from tests.docs.pages import ROOT
from tests.support.agent_process import agent_process
from tests.support.packages import install_example
from tests.support.waiting import wait_for_count, wait_until

REGISTERS = [215, 42]


def test_the_agents_own_ways_in_are_registered_as_those_of_other_packages() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    registered = project["entry-points"][ways.GROUP]
    assert {name: resolve_name(registered[name]) for name in ways.OWN} == ways.OWN


def test_the_protocols_are_those_of_installed_ways_in_and_the_name_of_one_that_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    own = ways.protocols()
    install(tmp_path, "bus_source", WAY.format(name="bus_source", via="bus"))
    install(tmp_path, "broken_source", "WAY = 1 / 0")
    assert ways.protocols() == [*own, "broken_source", "bus"]


WAY = "from agent.config.ways import WayIn\nWAY = WayIn({name!r}, 'x:open', settings=object, vias=({via!r},))"


def install(folder: Path, name: str, module: str) -> None:
    """Put a package of one module into a folder, as pip does."""
    (folder / f"oncegate_{name}.py").write_text(module)
    information = folder / f"oncegate_{name}-1.dist-info"
    information.mkdir()
    (information / "entry_points.txt").write_text(f"[{ways.GROUP}]\n{name} = oncegate_{name}:WAY\n")


@pytest.mark.parametrize(
    ("name", "module", "reason"),
    [
        ("lacking", "", "cannot be loaded: AttributeError: module 'oncegate_lacking' has no attribute 'WAY'"),
        ("broken", "WAY = 1 / 0", "cannot be loaded: ZeroDivisionError: division by zero"),
        ("number", "WAY = 1", "oncegate_number:WAY is no agent.config.ways.WayIn of this name with settings"),
        ("kafka", WAY.format(name="kafka", via="bus"), "expected another name than 'kafka'"),
        ("forger", WAY.format(name="forger", via="gateway"), "expected another name than 'gateway'"),
        ("quoting", WAY.format(name="quoting", via='a"b'), "expected another name than 'a\"b'"),
    ],
)
def test_a_package_whose_way_in_cannot_be_used_is_an_error_that_says_why(
    name: str, module: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, name, module)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=f"^{re.escape(reason)}"):
        ways.find(name)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_example("oncegate-modbus", tmp_path_factory.mktemp("site"))


@asynccontextmanager
async def plc(port: int) -> AsyncIterator[None]:
    device = SimDevice(1, simdata=SimData(0, values=REGISTERS, datatype=DataType.REGISTERS))
    server = ModbusTcpServer(device, address=("127.0.0.1", port))
    await server.serve_forever(background=True)
    try:
        yield
    finally:
        await server.shutdown()  # type: ignore[no-untyped-call]


def configure(folder: Path, port: int, http_port: int, poll: str) -> Path:
    file = folder / "oncegate.toml"
    file.write_text(
        f'[gateway]\nid = "gw1"\nclock = "trusted"\nstate_dir = "{folder / "state"}"\n[coap]\nenabled = false\n'
        f'[http]\nbind = "127.0.0.1:{http_port}"\n[kafka]\nbootstrap_servers = "127.0.0.1:1"\n'
        f'[sources.modbus]\nhost = "127.0.0.1"\nport = {port}\ndevice = "urn:dev:ser:plc-7"\ncount = 2\n'
        f'poll = "{poll}"\n'
    )
    return file


def command(site: Path, file: Path, *words: str) -> subprocess.CompletedProcess[str]:
    whole = (sys.executable, "-m", "agent.cli.main", *words, "--config", str(file))
    return subprocess.run(whole, capture_output=True, text=True, check=False, env={"PYTHONPATH": str(site)})


@pytest.mark.heavy
@pytest.mark.guarantee(1)
async def test_a_poller_in_a_package_of_its_own_gives_each_reading_once_over_kills(site: Path, tmp_path: Path) -> None:
    port, http_port = ports.free(2)
    file = configure(tmp_path, port, http_port, "1s")

    def poll_and_kill(process: Process) -> None:
        for kill in range(1, 4):
            process.start()
            process.wait_for_log("agent=ready")
            wait_for_count(lambda: accepted(tmp_path), 2 * kill, "some are stored", or_more=True)
            if kill == 3:
                look(site, file, http_port)
            process.kill()

    async with plc(port):
        with agent_process(file, {"PYTHONPATH": str(site)}) as process:
            await asyncio.to_thread(poll_and_kill, process)
    events = stored(tmp_path)
    assert len({event["time"] for event in events}) == len(events) >= 6
    assert {(event["device"], event["type"], event["via"]) for event in events} == {
        ("urn:dev:ser:plc-7", "holding-0-2", "modbus")
    }
    assert all(event["data"] == {"registers": REGISTERS} for event in events)


def look(site: Path, file: Path, http_port: int) -> None:
    """Find the way in in every view."""
    base = f"http://127.0.0.1:{http_port}"
    texts = {path: urlopen(base + path).read().decode() for path in ("/", "/metrics", "/api/v1/openapi.json")}
    assert "<option>modbus</option>" in texts["/"]
    assert 'oncegate_events_accepted_total{via="modbus"}' in texts["/metrics"]
    assert 'oncegate_link_up{link="modbus"} 1.0' in texts["/metrics"]
    assert '"modbus"' in texts["/api/v1/openapi.json"]
    json.loads(texts["/api/v1/openapi.json"])
    findings = [json.loads(line) for line in command(site, file, "doctor", "--json").stdout.splitlines()]
    assert [one["condition"] for one in findings if one["check"] == "modbus"] == ["fine"]
    assert "link modbus" in command(site, file, "status").stdout


async def test_a_restart_within_an_interval_is_a_duplicate_of_its_reading(site: Path, tmp_path: Path) -> None:
    port, http_port = ports.free(2)
    file = configure(tmp_path, port, http_port, "1000d")

    def poll_twice(process: Process) -> None:
        process.start()
        process.wait_for_log("agent=ready")
        wait_for_count(lambda: accepted(tmp_path), 1, "the reading is stored")
        process.kill()
        process.start()
        wait_until(lambda: duplicates(http_port) == 1, "it is read again")
        process.terminate()

    async with plc(port):
        with agent_process(file, {"PYTHONPATH": str(site)}) as process:
            await asyncio.to_thread(poll_twice, process)
    assert len(stored(tmp_path)) == 1


def duplicates(http_port: int) -> int:
    try:
        with urlopen(f"http://127.0.0.1:{http_port}/api/v1/status") as response:
            return int(json.load(response)["duplicates"])
    except OSError:
        return 0


def test_a_section_of_no_installed_way_in_and_a_wrong_key_are_named(site: Path, tmp_path: Path) -> None:
    file = configure(tmp_path, 502, 8580, "1s")
    file.write_text(file.read_text() + 'polls = "2s"\n[sources.profibus]\nhost = "plc"\n')
    found = command(site, file, "check").stderr.splitlines()
    assert [line.partition("oncegate.toml:")[2] for line in found] == [
        "17: [sources.modbus] polls: unknown key; did you mean poll?",
        "18: [sources.profibus] no such way in is installed; there are: modbus",
    ]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("count = 126", "count: expected 125 at most; found 126"),
        ("first = 65536", "first: expected 65535 at most; found 65536"),
        ("first = 65530\ncount = 7", "count: expected 6 at most; found 7"),
        ("unit = 256", "unit: expected 255 at most; found 256"),
    ],
)
def test_registers_that_no_request_can_have_are_a_wrong_setting(
    given: str, reason: str, site: Path, tmp_path: Path
) -> None:
    file = configure(tmp_path, 502, 8580, "1s")
    file.write_text(f"{file.read_text().replace('count = 2', '')}{given}\n")
    found = command(site, file, "check").stderr
    assert found.rstrip().endswith(f"[sources.modbus] {reason}")


def test_a_device_that_cannot_be_asked_is_a_link_that_is_down_and_no_end_of_the_agent(
    site: Path, tmp_path: Path
) -> None:
    file = configure(tmp_path, 502, 0, "1s")
    file.write_text(file.read_text().replace('host = "127.0.0.1"\nport', 'host = "plc..local"\nport'))
    with agent_process(file, {"PYTHONPATH": str(site)}) as process:
        process.start()
        process.wait_for_log("modbus=disconnected")
        process.wait_for_log("agent=ready")
        assert process.terminate() == 0
    assert "correct sources.modbus.host" in command(site, file, "doctor").stdout


LINE = """
import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from agent.config import readers
from agent.config.settings import option
from agent.config.ways import WayIn
from agent.opening import Opened

@dataclass(frozen=True, slots=True)
class LineSettings:
    password: str = option(readers.secret, "its password")
    key: Path = option(readers.secret_path, "its key")
    units: frozenset = option(lambda value: frozenset(map(complex, value)), "its units")

@asynccontextmanager
async def open_line(opening):
    connected = [True]
    async def run(stop):
        await stop.wait()
        await asyncio.sleep(0)
        print("line=ended connected=" + str(connected[0]), flush=True)
    yield Opened(run=run)
    connected[0] = False

WAY = WayIn("line", "oncegate_line:open_line", settings=LineSettings)
"""


def test_a_way_in_ends_before_its_connection_closes_and_its_options_are_shown_but_no_secret(tmp_path: Path) -> None:
    install(tmp_path, "line", LINE)
    file, key = configure(tmp_path, 502, 0, "1s"), tmp_path / "key"
    key.touch(0o644)
    text = file.read_text().partition("[sources.modbus]")[0]
    file.write_text(f'{text}[sources.line]\npassword = "abc123"\nkey = "{key}"\nunits = ["1j", "2"]\n')
    shown = [json.loads(line) for line in command(tmp_path, file, "config", "--json").stdout.splitlines()]
    found = {one["key"]: one["value"] for one in shown if one["section"] == "sources.line"}
    assert found == {"password": "(hidden)", "key": str(key), "units": ["(2+0j)", "1j"]}
    warnings = json.loads(command(tmp_path, file, "check", "--json").stdout)["warnings"]
    assert any("sources.line.key: others may read" in one for one in warnings)
    with agent_process(file, {"PYTHONPATH": str(tmp_path)}) as process:
        process.start()
        process.wait_for_log("agent=ready")
        process.terminate()
        assert "line=ended connected=True" in process.log()
