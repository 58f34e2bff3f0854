"""The pictures in the README, taken by Chromium: `python -m simulators.demo.pictures` (make pictures)."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import Request, urlopen

from simulators.demo import command
from simulators.services import browser, ports
from simulators.services.kafka.broker import Broker
from simulators.services.process import Command, Process

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "pictures"
SOURCES_FILE = FOLDER / "sources.json"
SOURCES: Mapping[str, Sequence[str]] = {
    "report": ("simulators/demo/report.html", "simulators/demo/report.py", "simulators/report/pictures.py"),
    "status": (
        "agent/http/page_files/index.html",
        "agent/http/page_files/page.css",
        "agent/http/page_files/page.js",
    ),
}
"""The files that determine what a picture shows; when one changes, `tests/docs` requires a new picture."""
DEVICES = ("urn:dev:mac:00158d0001a2b3c4", "urn:dev:mac:00124b0014d6b1a7", "urn:meter:cold-water:7", "urn:door:north")
READINGS = 12


def main() -> int:
    """Take the pictures; the report is that of a new demo run, or of one that `--report` names."""
    parser = argparse.ArgumentParser(prog="python -m simulators.demo.pictures", description=__doc__)
    parser.add_argument("--report", type=Path, metavar="FILE", help="the report of an earlier run of the demo")
    parser.add_argument("--only", choices=SOURCES, help="only this picture")
    given = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    names = [given.only] if given.only else list(SOURCES)
    with TemporaryDirectory() as folder:
        if "status" in names:
            with _status_page(Path(folder)) as url:
                _take("status", url, 900, ["Accepting events", DEVICES[0]])
        if "report" in names:
            report = given.report or _demo(Path(folder) / "demo")
            _take("report", report.absolute().as_uri(), 760, ["Oncegate"])
    kept = json.loads(SOURCES_FILE.read_text()) if SOURCES_FILE.exists() else {}
    SOURCES_FILE.write_text(json.dumps(kept | {name: digests(name) for name in names}, indent=2) + "\n")
    return 0


def digests(name: str) -> dict[str, str]:
    """Return the SHA-256 of each source of a picture."""
    return {file: hashlib.sha256((ROOT / file).read_bytes()).hexdigest() for file in SOURCES[name]}


def _take(name: str, url: str, height: int, texts: Sequence[str]) -> None:
    path = FOLDER / f"{name}.png"
    shot = {"url": url, "path": str(path), "height": height, "texts": texts}
    browser.run(Path(__file__).with_suffix(".js"), {"shots": [shot]})
    print(path)


def _demo(folder: Path) -> Path:
    if command.main(["--folder", str(folder)], "make pictures") != 0:
        raise SystemExit("pictures: the demo has found a fault")
    return folder / "report.html"


@contextmanager
def _status_page(folder: Path) -> Iterator[str]:
    """Run an agent with a broker and with events of some devices; return the address of its page."""
    (port,) = ports.free(1)
    with Broker(folder / "kafka") as broker:
        broker.create_topics()
        configuration = folder / "oncegate.toml"
        configuration.write_text(
            f'[gateway]\nid = "gw1"\nstate_dir = "{folder / "state"}"\n[coap]\nenabled = false\n'
            f'[http]\nbind = "127.0.0.1:{port}"\n[kafka]\nbootstrap_servers = "{broker.bootstrap_servers}"\n'
        )
        command_line = (sys.executable, "-m", "agent.cli.main", "run", "--config", str(configuration))
        with Process(Command("agent", command_line, folder / "agent.log")) as agent:
            agent.wait_for_log("agent=ready")
            agent.wait_for_log("kafka=reachable")
            url = f"http://127.0.0.1:{port}/"
            for number in range(READINGS):
                for place, device in enumerate(DEVICES):
                    body = {"device": device, "id": number, "data": _data(place, number)}
                    for _ in range(2 if (number + place) % 4 == 0 else 1):
                        _post(url, json.dumps(body).encode())
            agent.wait_until(lambda: _pending(url) == 0, "all events are in Kafka")
            yield url


def _data(place: int, number: int) -> object:
    return (
        {"temperature": 21.5 + number / 10, "humidity": 48 - number},
        {"temperature": 19.0 - number / 5},
        {"litres": 7_314 + 3 * number},
        {"open": number % 2 == 0},
    )[place]


def _post(url: str, body: bytes) -> None:
    request = Request(f"{url}api/v1/events", body, {"Content-Type": "application/json"})
    with urlopen(request, timeout=30) as answer:
        answer.read()


def _pending(url: str) -> int:
    with urlopen(f"{url}api/v1/status", timeout=30) as answer:
        new: int = json.load(answer)["events"]["new"]
        return new


if __name__ == "__main__":
    sys.exit(main())
