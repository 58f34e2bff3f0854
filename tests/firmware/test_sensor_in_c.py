import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.store.layout import FILE_NAME
from simulators.link.faults import link_profile
from simulators.link.udp import Link
from simulators.scenario import LinkOutage, LinkPlan
from simulators.services.process import Process
from tests.docs.pages import ROOT
from tests.firmware import wakings
from tests.support.agent_process import stored_documents

EXAMPLES = ROOT / "docs" / "examples"
DEVICE = "urn:dev:mac:00158d0001a2b3c4"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gateway")


@pytest.fixture(scope="module")
def agent(folder: Path) -> Iterator[Process]:
    with wakings.agent(folder / "oncegate.toml", '[devices]\ndeny = ["urn:stranger"]\n') as process:
        yield process


async def run(program: Path, agent: Process, plan: LinkPlan, *words: str) -> tuple[int, str]:
    """Run the sensor behind a link; return its status and output."""
    target = (wakings.HOST, wakings.coap_port(agent))
    async with Link([target], link_profile(plan), 1, (wakings.HOST, 0)) as link:
        command = [str(program), wakings.HOST, str(link.address[1]), *words]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=120)
        assert (link.traffic["answers lost"] > 0) == bool(plan.outages)
    return done.returncode, done.stdout


@pytest.fixture(scope="module")
def sensor_in_c(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler; run: sudo apt-get install gcc libc6-dev")
    program = tmp_path_factory.mktemp("c") / "sensor"
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O2"]
    subprocess.run([compiler, *flags, "-o", program, EXAMPLES / "sensor.c"], check=True)
    return program


@pytest.mark.parametrize("outages", [(), (LinkOutage(0.0, 1.5, answers_only=True),)])
async def test_the_sensor_in_c_brings_its_event_once(
    sensor_in_c: Path, agent: Process, folder: Path, outages: tuple[LinkOutage, ...]
) -> None:
    words = (DEVICE, "3", "17", "21.1")
    assert [await run(sensor_in_c, agent, LinkPlan(outages=outages), *words) for _ in range(2)] == [(0, "2.04\n")] * 2
    (event,) = (one for one in stored_documents(folder / "state" / FILE_NAME) if one["device"] == DEVICE)
    assert (event["boot"], event["id"], event["data"]) == (3, 17, {"temperature": 21.1})


@pytest.mark.parametrize(("device", "status", "said"), [("urn:oncegate:x", 2, "4.00\n"), ("urn:stranger", 1, "4.03\n")])
async def test_the_sensor_in_c_says_what_it_has_to_keep(
    sensor_in_c: Path, agent: Process, device: str, status: int, said: str
) -> None:
    assert await run(sensor_in_c, agent, LinkPlan(), device, "3", "17", "21.5") == (status, said)
