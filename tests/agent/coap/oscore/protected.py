"""The sensor's side of OSCORE: aiocoap's context; the test controls each datagram."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from aiocoap import Message  # type: ignore[import-untyped] # aiocoap carries no types
from aiocoap.numbers.codes import Code  # type: ignore[import-untyped]
from aiocoap.numbers.types import CON  # type: ignore[import-untyped]
from aiocoap.oscore import FilesystemSecurityContext  # type: ignore[import-untyped]

from agent.cli.sensor.credentials import sensor_side
from agent.coap.oscore.credentials import Credential
from tests.agent.coap.sensor import BODY, Sensor

DEVICE = "urn:dev:mac:00158d0001a2b3c4"
CREDENTIAL = Credential(DEVICE, bytes(range(16)), b"salt", b"\x01")
CLIENT_SECONDS = 120


def sensor_folder(folder: Path, credential: Credential = CREDENTIAL) -> Path:
    """Write the sensor's part of the credentials."""
    folder.mkdir(parents=True)
    (folder / "settings.json").write_text(json.dumps(sensor_side(credential)))
    return folder


def posted_by_aiocoap(folder: Path, port: int, bodies: Iterable[bytes]) -> list[str]:
    """Post bodies, one after the other, from a process of aiocoap's; return its output."""
    command = (sys.executable, "-m", "tests.agent.coap.oscore.client", str(folder), str(port))
    lines = "".join(f"{body.hex()}\n" for body in bodies)
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=CLIENT_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


class ProtectedSensor:
    """Writes protected requests and reads protected answers; the test sends them.

    Like libcoap's client it sends the latest received Echo value with each request; with `keeps_echo` off it sends one
    only after a 4.01, like aiocoap's.
    """

    def __init__(self, folder: Path, *, keeps_echo: bool = True) -> None:
        self.context = FilesystemSecurityContext(str(folder))
        self.echo: bytes | None = None
        self._keeps_echo = keeps_echo
        self._mid = 0

    def request(
        self, payload: bytes = BODY, echo: bytes | None = None, code: object = Code.POST, path: str = "e"
    ) -> tuple[bytes, object]:
        """Write a request; return the datagram, and the request's data for decrypting its answer."""
        echo = self.echo if echo is None else echo
        return self.sealed(Message(code=code, uri_path=(path,), payload=payload, content_format=60, echo=echo))

    def sealed(self, message: Message) -> tuple[bytes, object]:
        """Protect a message that the test has built."""
        protected, reference = self.context.protect(message)
        self._mid += 1
        protected.mtype, protected.mid, protected.token = CON, self._mid, self._mid.to_bytes(2, "big")
        protected.remote = None
        return protected.encode(), reference

    def block(self, body: bytes, number: int, more: bool) -> tuple[bytes, object]:
        """Write a request with a block of 16 bytes."""
        part = body[16 * number : 16 * number + 16]
        message = Message(code=Code.POST, uri_path=("e",), payload=part, content_format=60, echo=self.echo)
        message.opt.block1 = (number, more, 0)
        return self.sealed(message)

    def read(self, raw: bytes, reference: object) -> Message:
        """Decrypt a protected answer."""
        answer, _ = self.context.unprotect(Message.decode(raw), reference)
        if self._keeps_echo and answer.opt.echo is not None:
            self.echo = answer.opt.echo
        return answer

    async def post(self, sensor: Sensor, payload: bytes = BODY) -> tuple[Message, bytes]:
        """Post, with an Echo value where it is required; return the answer and the last datagram."""
        raw, reference = self.request(payload)
        answer = self.read(await sensor.ask_raw(raw), reference)
        if answer.code == Code.UNAUTHORIZED and answer.opt.echo is not None:
            raw, reference = self.request(payload, answer.opt.echo)
            answer = self.read(await sensor.ask_raw(raw), reference)
        return answer, raw
