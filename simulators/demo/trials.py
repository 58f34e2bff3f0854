"""The pictures of docs/trials.md: what each user sees at the end of the trial."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote
from urllib.request import Request, urlopen

from simulators.demo.shots import Shot, take
from simulators.run.command import main as run
from simulators.services import ports
from simulators.services.kafka.broker import Broker
from simulators.services.process import Command, Process

PAGES = ("newcomer", "installer", "firmware-writer", "field-tester")
WIDTHS = (1280, 390)
DEVICE = "urn:dev:mac:00158d0001a2b3c4"
SECONDS_OF_2026 = 1_767_225_600
SCENARIO = "quiet-house"


@dataclass(frozen=True, slots=True)
class ServingAgent:
    """A running agent with its addresses."""

    process: Process
    coap: int
    http: str


def take_pages(folder: Path, pictures: Path) -> None:
    """Take the pictures of the trials that end at the status page."""
    pictures.mkdir(exist_ok=True)
    with _gateway(folder, "127.0.0.1:9") as gateway:
        _post(gateway, *[{"device": DEVICE, "id": 17, "data": {"temperature": 21.5}}] * 3)
        take(*_shots(pictures, "newcomer", gateway.http, "Accepting events", DEVICE))
        _post(
            gateway,
            {"device": DEVICE, "id": 18, "time": SECONDS_OF_2026, "data": {"temperature": 21.5}},
            {"device": DEVICE.upper().replace("URN:DEV:MAC", "urn:dev:mac"), "id": 1, "data": {"temperature": 21.5}},
            [{"device": DEVICE, "id": 19, "data": {"temperature": 22}}, {"device": DEVICE, "id": 20, "data": 22}],
        )
        url = f"{gateway.http}#/device/{quote(DEVICE)}"
        take(*_shots(pictures, "firmware-writer", url, "Identity at risk"))
        shots = _shots(pictures, "installer", gateway.http, "Accepting events")
        take(*shots, kill=(gateway.process.pid, ["Agent not responding since"]))


def take_field_test(folder: Path, pictures: Path) -> None:
    """Take the pictures of the report of a field test."""
    pictures.mkdir(exist_ok=True)
    with Broker(folder / "kafka") as broker:
        broker.create_topics()
        with _gateway(folder, broker.bootstrap_servers) as gateway:
            report = _field_test(folder / "field", gateway, broker)
    take(*_shots(pictures, "field-tester", report.as_uri(), SCENARIO))


def _shots(pictures: Path, name: str, url: str, *texts: str) -> list[Shot]:
    return [Shot(str(pictures / f"{name}-{width}.png"), url, texts, width) for width in WIDTHS]


@contextmanager
def _gateway(folder: Path, bootstrap_servers: str) -> Iterator[ServingAgent]:
    coap, http = ports.free(2)
    configuration = folder / f"{http}.toml"
    configuration.write_text(
        f'[gateway]\nid = "gw1"\nstate_dir = "{folder / f"state-{http}"}"\nclock = "trusted"\n'
        f'[coap]\nbind = "127.0.0.1:{coap}"\n[http]\nbind = "127.0.0.1:{http}"\n'
        f'[kafka]\nbootstrap_servers = "{bootstrap_servers}"\n'
    )
    command_line = (sys.executable, "-m", "agent.cli.main", "run", "--config", str(configuration))
    with Process(Command("agent", command_line, folder / f"agent-{http}.log")) as process:
        process.wait_for_log("agent=ready")
        process.wait_for_log("kafka=")
        yield ServingAgent(process, coap, f"http://127.0.0.1:{http}/")


def _post(gateway: ServingAgent, *bodies: object) -> None:
    for body in bodies:
        request = Request(
            f"{gateway.http}api/v1/events", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urlopen(request, timeout=30) as answer:
            answer.read()


def _field_test(folder: Path, gateway: ServingAgent, broker: Broker) -> Path:
    """Run the scenario against the gateway as a field tester does, and return the report."""
    targets = [f"--target=coap://127.0.0.1:{gateway.coap}", f"--target={gateway.http.rstrip('/')}"]
    options = ["--seed=7", f"--kafka={broker.bootstrap_servers}", f"--folder={folder}", "--standstill=20"]
    if run([SCENARIO, *targets, *options], "make pictures") != 0:
        raise SystemExit("pictures: the field test has found a fault")
    return folder / "report.html"
