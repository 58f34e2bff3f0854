"""A gateway as a process, with sensors that post over HTTP: the acked and the stored events."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from agent.store.layout import FILE_NAME
from tests.support.agent_process import agent_process, ask, configured, post, stored_documents, wait_until_ready

DEVICE = "urn:dev:mac:0000000000000001"


class PostingGateway:
    """One state folder, and an agent that can be restarted on it."""

    def __init__(self, folder: Path, state: Path, kafka: str = "127.0.0.1:1", store: str = "") -> None:
        self.store = state / FILE_NAME
        self._configuration = configured(folder, f"[store]\n{store}\n", coap="", kafka=kafka, state=state)
        self._chance = Random(1)
        self._sent: dict[int, str] = {}
        self._port = 0
        self.acked: set[int] = set()

    @contextmanager
    def process(
        self, environment: Mapping[str, str] | None = None, release: Path | None = None
    ) -> Iterator[PostingGateway]:
        with agent_process(self._configuration, environment, release) as self.agent:
            yield self

    def start(self) -> None:
        self.agent.start()
        self._port = wait_until_ready(self.agent)["http"]

    def post(self, count: int = 20, text_bytes: int = 400) -> int:
        """Post a pack of new events; return the status code."""
        first = len(self._sent) + 1
        for number in range(first, first + count):
            self._sent[number] = self._chance.randbytes(text_bytes // 2).hex()
        return self.post_again(*range(first, first + count))

    def post_again(self, *numbers: int) -> int:
        """Post events again; return the status code."""
        pack = [{"device": DEVICE, "id": number, "data": {"text": self._sent[number]}} for number in numbers]
        code = post(self._port, *pack)
        if code == 200:
            self.acked.update(numbers)
        return code

    def readiness(self) -> int:
        """Return the status code of the readiness probe."""
        return ask(self._port, "GET", "/readyz")[0]

    def status(self) -> dict[str, Any]:
        """Return what the agent itself says, of whatever release its store is."""
        document: dict[str, Any] = json.loads(ask(self._port, "GET", "/api/v1/status")[1])
        return document

    def stored(self) -> dict[int, dict[str, Any]]:
        """Return the sensors' stored events by their id."""
        return {event["id"]: event for event in stored_documents(self.store) if event["device"] == DEVICE}
