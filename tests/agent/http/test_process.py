"""The agent as a real process with HTTP: events with a 200 are on disk, however the agent ends."""

from __future__ import annotations

import http.client
import json
import random
import subprocess
import sys
import threading
from hashlib import sha256
from pathlib import Path

import pytest

from agent.store.layout import FILE_NAME
from simulators.services.process import Process
from tests.support.agent_process import configured, stored_documents, wait_until_ready
from tests.support.waiting import wait_until

KILLS = 5
CLIENTS = 8
PACK = 10


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    return configured(tmp_path, coap="")


def start(agent: Process) -> int:
    agent.start()
    return wait_until_ready(agent)["http"]


def post(connection: http.client.HTTPConnection, ids: range) -> int:
    """Post a pack and return the answer's code; raise OSError without an answer."""
    pack = [{"device": "urn:dev:mac:0000000000000001", "id": number, "data": {"n": number}} for number in ids]
    connection.request("POST", "/api/v1/events", json.dumps(pack), {"Content-Type": "application/json"})
    response = connection.getresponse()
    response.read()
    return response.status


class Load:
    """Clients that post until their agent has ended or the block ends."""

    def __init__(self, port: int, first: int) -> None:
        self._port = port
        self._next = first
        self._lock = threading.Lock()
        self._over = threading.Event()
        self.acked: set[int] = set()
        self._threads = [threading.Thread(target=self._run) for _ in range(CLIENTS)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    @property
    def following(self) -> int:
        return self._next

    def _run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            while not self._over.is_set():
                with self._lock:
                    ids = range(self._next, self._next + PACK)
                    self._next += PACK
                if post(connection, ids) == 200:
                    with self._lock:
                        self.acked.update(ids)
        except (OSError, http.client.HTTPException):
            return
        finally:
            connection.close()


def stored_ids(folder: Path) -> list[int]:
    stored = stored_documents(folder / "state" / FILE_NAME)
    return [document["id"] for document in stored if document["via"] == "http"]


@pytest.mark.guarantee(1)
def test_what_got_a_200_is_in_the_store_once_after_kills_in_the_middle_of_work(agent: Process, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed={seed}")
    moments = random.Random(seed)
    acked: set[int] = set()
    following = 1
    for _ in range(KILLS):
        enough = moments.randrange(200, 1_500)
        with Load(start(agent), following) as load:
            wait_until(lambda load=load, enough=enough: len(load.acked) > enough, "some are acked")  # type: ignore[misc]
            agent.kill()
        acked |= load.acked
        following = load.following
    ids = stored_ids(tmp_path)
    assert len(ids) == len(set(ids))
    assert acked <= set(ids)


@pytest.mark.guarantee(1)
def test_sigterm_answers_what_was_accepted(agent: Process, tmp_path: Path) -> None:
    with Load(start(agent), 1) as load:
        wait_until(lambda: len(load.acked) > 100, "some are acked")
        assert agent.terminate() == 0
    assert sorted(stored_ids(tmp_path)) == sorted(load.acked)


def test_what_can_never_work_is_named_by_check_and_by_run(configuration: Path, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"device urn:x sha256:{sha256(b'x').hexdigest()}\n")
    tokens.chmod(0o644)
    text = configuration.read_text()
    for line, message in (
        (f'token_file = "{tokens}"', "chmod 640"),
        ('tls_key = "/none"', "http.tls_certificate"),
        ('bind = "0.0.0.0:0"', "token_file: needed"),  # `check` adds the section
    ):
        configuration.write_text(text.replace('bind = "127.0.0.1:0"', line))
        for verb in ("check", "run"):
            command = [sys.executable, "-m", "agent.cli.main", verb, "--config", str(configuration)]
            output = subprocess.run(command, capture_output=True, text=True, check=False)
            assert (output.returncode, message in output.stderr, "Traceback" in output.stderr) == (2, True, False)
