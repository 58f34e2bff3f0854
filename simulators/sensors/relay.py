"""An HTTP relay: collects the events of several devices and posts them until the answer is 200."""

import asyncio
import contextlib
from collections import deque
from dataclasses import dataclass, field
from random import Random

from contract.event import Event
from simulators.payloads import PayloadGenerator
from simulators.scenario import FleetPlan
from simulators.sensors.field import Field
from simulators.wire import Request

PATH = "/api/v1/events"
ANSWER_SECONDS_MAX = 10.0
OK = 200
RETRYABLE = frozenset({408, 429})
"""In addition to all of 5xx."""
_MEDIA_TYPES = {
    50: "application/json",
    60: "application/cbor",
    110: "application/senml+json",
    112: "application/senml+cbor",
}


@dataclass(frozen=True, slots=True)
class Relay:
    """Several devices behind one HTTP client, which opens a connection for each request."""

    _field: Field
    _generators: list[PayloadGenerator]
    _plan: FleetPlan
    _random: Random
    _queue: deque[tuple[int, Event]] = field(default_factory=deque)

    async def run(self, schedule: Random) -> None:
        """Collect and post until the run is over and the queue is empty or given up."""
        turn = 0
        async for moment in self._field.moments(schedule, self._plan.every_seconds):
            generator = self._generators[turn % len(self._generators)]
            turn += 1
            event = generator.next_event(self._field.time_of(moment, self._plan.clock_offset_seconds))
            self._queue.append((self._field.ledger.reported(event), event))
            if len(self._queue) >= self._random.randint(1, self._plan.pack_max):
                await self._post()
        failed = 0
        while self._queue and failed < self._plan.tries:
            failed = 0 if await self._post() else failed + 1
        if self._queue:
            self._field.ledger.given_up(*(mark for mark, _ in self._queue))

    async def _post(self) -> bool:
        """Post the head of the queue once; return whether it is settled. Events without an answer stay queued."""
        head = list(self._queue)[: self._plan.pack_max]
        marks = [mark for mark, _ in head]
        request = self._generators[0].request(*(event for _, event in head))
        self._field.ledger.sent(*marks)
        status = await self._answer_to(request)
        if status == OK:
            self._field.ledger.acked(*marks)
        elif status is not None and 400 <= status < 500 and status not in RETRYABLE:
            self._field.ledger.refused(*marks, code=str(status))
        else:
            await asyncio.sleep(self._random.uniform(0.0, self._field.timing.pause_seconds_max))
            return False
        for _ in marks:
            self._queue.popleft()
        return True

    async def _answer_to(self, request: Request) -> int | None:
        """Return the status of a complete answer; None without one."""
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                assert self._field.targets.http is not None
                reader, writer = await asyncio.open_connection(*self._field.targets.http)
                writer.write(self._message(request))
                await writer.drain()
                return _status(await reader.read())
        except (OSError, TimeoutError, ValueError):
            return None
        finally:
            if writer is not None:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()

    def _message(self, request: Request) -> bytes:
        query = f"?{'&'.join(request.query)}" if request.query else ""
        host, port = self._field.targets.http or ("", 0)
        token = self._field.targets.http_token
        fields = [
            f"POST {PATH}{query} HTTP/1.1",
            f"Host: {host}:{port}",
            f"Content-Type: {_MEDIA_TYPES[request.content_format]}",
            f"Content-Length: {len(request.payload)}",
            "Connection: close",
            *([f"Authorization: Bearer {token}"] if token else []),
        ]
        return "\r\n".join([*fields, "", ""]).encode() + request.payload


def _status(answer: bytes) -> int:
    """Return the status; raise ValueError where the answer is incomplete."""
    head, separator, body = answer.partition(b"\r\n\r\n")
    if not separator:
        raise ValueError("the answer ends before its body")
    lines = head.split(b"\r\n")
    for line in lines[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length" and len(body) < int(value):
            raise ValueError("the answer is cut off")
    return int(lines[0].split()[1])
