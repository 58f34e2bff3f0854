"""The rounds of bench-agent, and the clients that load its contenders."""

from __future__ import annotations

import json
import os
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from benchmarks.agent import contenders, loads, oscore, rounds
from benchmarks.agent.contenders import Server
from benchmarks.agent.loads import ClientLoad, Result
from benchmarks.agent.programs import Form
from benchmarks.agent.rounds import Measured, Turns
from simulators.services.error import ServiceError
from simulators.services.process import Process

if shutil.which("cc") is None:
    pytest.skip("needs a C compiler", allow_module_level=True)


def own_server(lines: Path | None = None) -> Server:
    return Server(cast(Process, SimpleNamespace(pid=os.getpid())), 0, lines=lines)


def test_a_ratio_compares_the_results_of_one_round() -> None:
    measured = Measured()
    for ours, theirs in ((200, 100), (30, 10), (400, 100)):
        measured.add("ours", Result(ours, 1.0, 0.0))
        measured.add("theirs", Result(theirs, 1.0, 0.0))

    assert measured.ratios("ours", "theirs", lambda result: result.per_second) == [2.0, 3.0, 4.0]


def test_every_other_round_runs_in_reverse_order(tmp_path: Path) -> None:
    order: list[str] = []

    def contender(name: str) -> rounds.Contender:
        def run(_: Turns) -> None:
            order.append(name)

        return run

    rounds.run([contender("a"), contender("b")], 3, 1.0, tmp_path)

    assert "".join(order) == "abbaab"


def test_half_the_full_rate_is_half_of_what_the_same_agent_reached_just_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full_rate, asked = 800, []

    @contextmanager
    def server(*_: object, **__: object) -> Iterator[Server]:
        yield own_server()

    @contextmanager
    def flood(*_: object) -> Iterator[None]:
        yield

    def coap(_server: Server, _sensors: int, seconds: float, *, rate: float = 0.0) -> Result:
        asked.append(rate)
        return Result(int((rate or full_rate) * seconds), seconds, 0.0)

    monkeypatch.setattr(contenders, "oncegate", server)
    monkeypatch.setattr(loads, "coap", coap)
    monkeypatch.setattr(loads, "flood", flood)
    monkeypatch.setattr(oscore, "credentials", lambda folder: folder)
    monkeypatch.setattr(oscore, "post", lambda *_: Result(1, 1.0, 0.0))
    bench = Turns(Measured(), 1.0, tmp_path)
    bench.measured.add(rounds.COAP_MANY, Result(200, 1.0, 0.0))  # of the round before

    rounds._agent_under_stress(Form("compiled", tmp_path), bench)

    assert asked[:2] == [0.0, full_rate / 2]


def test_a_flood_of_which_too_little_was_sent_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loads, "FLOOD_SHARE_MIN", 2.0)
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as silent:
        silent.bind(("::1", 0))
        with (
            pytest.raises(ServiceError, match=r"flood: [1-9]\d* requests were sent instead of 100"),
            loads.flood(silent.getsockname()[1], 0.1, 1_000),
        ):
            pass


def test_the_clients_count_what_the_server_has_accepted_and_refused() -> None:
    taken: list[int] = []
    failing = 3

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            events = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            taken.append(len(events))
            self.send_response(503 if len(taken) <= failing else 200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        load = ClientLoad("http", server.server_address[1], 2, 0.3, "/events", pack=5).start()
        said = json.loads(load.communicate()[0])
        server.shutdown()

    assert set(taken) == {5}
    assert said["refused"] == failing
    assert said["accepted"] == 5 * (len(taken) - failing)


def test_a_server_that_closes_a_connection_ends_the_load_with_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.close_connection = True

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with ClientLoad("http", server.server_address[1], 1, 5.0, "/events").start() as load:
            load.communicate(timeout=30)
        server.shutdown()

    assert load.returncode == 1
    assert "has closed a connection" in capfd.readouterr().err
