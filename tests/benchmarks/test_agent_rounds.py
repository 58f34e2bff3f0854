"""The rounds of bench-agent, and the clients that load its contenders."""

from __future__ import annotations

import json
import shutil
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from benchmarks.agent import loads
from benchmarks.agent.loads import ClientLoad, Result
from benchmarks.agent.rounds import Measured
from simulators.services.error import ServiceError

if shutil.which("cc") is None:
    pytest.skip("needs a C compiler", allow_module_level=True)


def test_a_ratio_compares_the_results_of_one_round() -> None:
    measured = Measured()
    for ours, theirs in ((200, 100), (30, 10), (400, 100)):
        measured.add("ours", Result(ours, 1.0, 0.0))
        measured.add("theirs", Result(theirs, 1.0, 0.0))

    assert measured.ratios("ours", "theirs", lambda result: result.per_second) == [2.0, 3.0, 4.0]


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
