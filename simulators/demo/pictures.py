"""The pictures of the documents, taken by Chromium: `python -m simulators.demo.pictures` (make pictures)."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import count
from math import sin
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.request import Request, urlopen

from confluent_kafka import Consumer

from contract import topics
from simulators.demo import command
from simulators.demo.shots import Shot, take
from simulators.services import ports
from simulators.services.kafka.broker import Broker
from simulators.services.process import Command, Process

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "pictures"
SOURCES_FILE = FOLDER / "sources.json"
_STATUS_PAGE = tuple(
    str(file.relative_to(ROOT))
    for file in sorted((ROOT / "agent" / "http" / "page_files").iterdir())
    if file.suffix in (".css", ".html", ".js", ".svg")
)
_CHARTS = tuple(f"simulators/report/{name}.py" for name in ("charts", "pictures", "sankey"))
SOURCES: Mapping[str, Sequence[str]] = {
    "report": ("simulators/demo/report.html", "simulators/demo/report.py", *_CHARTS),
    "status": _STATUS_PAGE,
}
"""The files that determine what a picture shows; when one changes, `tests/docs` requires a new picture."""
DEVICES = ("urn:dev:mac:00158d0001a2b3c4", "urn:dev:mac:00124b0014d6b1a7", "urn:meter:cold-water:7", "urn:door:north")
READINGS = 50
READING_SECONDS = 2.0
"""Between two rounds of readings, so that the charts have something to show."""


def main() -> int:
    """Take the pictures; the report is that of a new demo run, or of one that `--report` names."""
    parser = argparse.ArgumentParser(prog="python -m simulators.demo.pictures", description=__doc__)
    parser.add_argument("--report", type=Path, metavar="FILE", help="the report of an earlier run of the demo")
    parser.add_argument("--only", choices=SOURCES, help="only these")
    given = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    names = [given.only] if given.only else list(SOURCES)
    with TemporaryDirectory() as folder:
        if "status" in names:
            with _status_page(Path(folder)) as url:
                take(Shot(str(FOLDER / "status.png"), url, ["Accepting events", DEVICES[0]], height=1180))
        if "report" in names:
            report = given.report or _demo(Path(folder) / "demo")
            take(Shot(str(FOLDER / "report.png"), report.absolute().as_uri(), ["Oncegate"], height=760))
    kept = json.loads(SOURCES_FILE.read_text()) if SOURCES_FILE.exists() else {}
    SOURCES_FILE.write_text(json.dumps(kept | {name: digests(name) for name in names}, indent=2) + "\n")
    return 0


def digests(name: str) -> dict[str, str]:
    """Return the SHA-256 of each source of a picture."""
    return {file: hashlib.sha256((ROOT / file).read_bytes()).hexdigest() for file in SOURCES[name]}


def _demo(folder: Path) -> Path:
    if command.main(["--folder", str(folder)], "make pictures") != 0:
        raise SystemExit("pictures: the demo has failed")
    return folder / "report.html"


@contextmanager
def _status_page(folder: Path) -> Iterator[str]:
    """Run an agent with a broker, and devices that go on sending; return the address of its page."""
    (port,) = ports.free(1)
    with Broker(folder / "kafka") as broker:
        broker.create_topics()
        configuration = folder / "oncegate.toml"
        configuration.write_text(
            f'[gateway]\nid = "gw1"\nstate_dir = "{folder / "state"}"\nclock = "trusted"\n[coap]\nenabled = false\n'
            f'[http]\nbind = "127.0.0.1:{port}"\n[kafka]\nbootstrap_servers = "{broker.bootstrap_servers}"\n'
            "[receipts]\nany_commit = true\npoll_seconds = 2\n"
        )
        command_line = (sys.executable, "-m", "agent.cli.main", "run", "--config", str(configuration))
        agent = Process(Command("agent", command_line, folder / "agent.log"))
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "oncegate-cloud",  # in place of the cloud job: its commits are the receipts
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 1_000,
            }
        )
        consumer.subscribe([topics.EVENTS])
        with closing(consumer), agent, _repeated(lambda: consumer.poll(0.2)):
            agent.wait_for_log("agent=ready")
            agent.wait_for_log("kafka=reachable")
            url = f"http://127.0.0.1:{port}/"
            rounds = count()
            with _repeated(lambda: _send_readings(url, next(rounds))):
                agent.wait_until(lambda: _status(url)["accepted"] >= READINGS * len(DEVICES), "there are charts")
                agent.wait_until(lambda: _status(url)["events"]["processed"] > 0, "an event is confirmed")
                yield url


@contextmanager
def _repeated(action: Callable[[], object]) -> Iterator[None]:
    """Repeat an action in a thread until the block ends."""
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            action()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _send_readings(url: str, number: int) -> None:
    """Send one reading of each device, some twice, and wait until the next is due."""
    begun = time.monotonic()
    for place, device in enumerate(DEVICES):
        body = {"device": device, "id": number, "data": _data(place, number)}
        for _ in range(2 if (number + place) % 4 == 0 else 1):
            _post(url, json.dumps(body).encode())
    time.sleep(max(0.0, READING_SECONDS - (time.monotonic() - begun)))


def _data(place: int, number: int) -> object:
    return (
        {"temperature": round(21.5 + sin(number / 9), 2), "humidity": 48 - number // 6},
        {"temperature": round(19.0 - number / 25, 2)},
        {"litres": 7_314 + 3 * number},
        {"open": number % 2 == 0},
    )[place]


def _post(url: str, body: bytes) -> None:
    request = Request(f"{url}api/v1/events", body, {"Content-Type": "application/json"})
    with urlopen(request, timeout=30) as answer:
        answer.read()


def _status(url: str) -> dict[str, Any]:
    with urlopen(f"{url}api/v1/status", timeout=30) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


if __name__ == "__main__":
    sys.exit(main())
