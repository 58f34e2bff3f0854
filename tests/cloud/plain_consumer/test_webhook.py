"""Repeated side effects, over a real broker, a real PostgreSQL, and a receiver with failures."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psycopg
import pytest

from tests.cloud.gateway import Gateway, Record, readings
from tests.cloud.plain_consumer.consuming import WAIT_SECONDS_MAX, ConsumerSide
from tests.support.waiting import wait_for_work

pytestmark = pytest.mark.kafka


class Receiver(BaseHTTPRequestHandler):
    """Record the keys of all calls; return the configured answers."""

    keys: Counter[str]
    answer: Callable[[str], int]

    def do_POST(self) -> None:  # the server's name
        self.rfile.read(int(self.headers["Content-Length"]))
        key = self.headers["Idempotency-Key"]
        self.keys[key] += 1
        self.send_response(type(self).answer(key))
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the server's name
        pass


@contextmanager
def receiver(answer: Callable[[str], int]) -> Iterator[tuple[str, Counter[str]]]:
    """Yield a URL, and the calls that arrived there."""
    keys: Counter[str] = Counter()
    kind = type("Asked", (Receiver,), {"keys": keys, "answer": staticmethod(answer)})
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/", keys
        server.shutdown()


def marks(records: list[Record]) -> list[str]:
    return [dict(record.headers)["ce_id"].decode() for record in records]


@pytest.mark.heavy
def test_a_call_that_always_fails_holds_no_other_up_and_is_never_given_up_also_over_a_kill(side: ConsumerSide) -> None:
    records = Gateway().records(readings(150))
    poison = marks(records)[0]
    with receiver(lambda key: 500 if key == poison else 204) as (url, keys):
        side.send(records)
        side.start("--webhook", url).wait_until(lambda: bool(keys[poison]), "a call", WAIT_SECONDS_MAX)
        side.members[-1].kill()
        member = side.start("--webhook", url)
        everything = set(marks(records))
        wait_for_work(member, lambda: len(everything & set(keys)), 150, "events called with", WAIT_SECONDS_MAX)
        wait_for_work(member, lambda: keys[poison], 3, "calls that fail", WAIT_SECONDS_MAX)
        assert set(keys) == everything
        assert member.terminate() == 0
    with psycopg.connect(side.server.connection) as connection:
        left = connection.execute(f"SELECT fingerprint, failures FROM {side.name}_calls".encode()).fetchall()
    assert [fingerprint for fingerprint, _ in left] == [bytes.fromhex(poison)]
