"""The sensor's side of OSCORE: aiocoap's context, and requests that only claim to be protected."""

import json
import logging
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from aiocoap import Message  # type: ignore[import-untyped] # aiocoap carries no types
from aiocoap.numbers.codes import Code  # type: ignore[import-untyped]
from aiocoap.numbers.types import CON as CONFIRMABLE  # type: ignore[import-untyped]
from aiocoap.oscore import FilesystemSecurityContext  # type: ignore[import-untyped]

from agent.cli.sensor.credentials import sensor_side
from agent.coap.oscore.credentials import Credential
from agent.coap.oscore.serving import Freshness, OscoreServing
from tests.agent.coap.sensor import BODY, CON, POST, Sensor, datagram

DEVICE = "urn:dev:mac:00158d0001a2b3c4"
CREDENTIAL = Credential(DEVICE, bytes(range(16)), b"salt", b"\x01")
CLIENT_SECONDS = 120
UNAUTHORIZED, BAD_REQUEST, BAD_OPTION, INCOMPLETE, INTERNAL_ERROR, UNAVAILABLE = 0x81, 0x80, 0x82, 0x88, 0xA0, 0xA3
OSCORE = 9

both = pytest.mark.parametrize("required", [True, False], ids=["required", "offered"])


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
        protected, reference = self.context.protect(message)
        self._mid += 1
        protected.mtype, protected.mid, protected.token = CONFIRMABLE, self._mid, self._mid.to_bytes(2, "big")
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

    async def answer(self, sensor: Sensor, request: tuple[bytes, object]) -> Message:
        raw, reference = request
        return self.read(await sensor.ask_raw(raw), reference)

    async def post(self, sensor: Sensor, payload: bytes = BODY) -> tuple[Message, bytes]:
        """Post, with an Echo value where it is required; return the answer and the last datagram."""
        request = self.request(payload)
        answer = await self.answer(sensor, request)
        if answer.code == Code.UNAUTHORIZED and answer.opt.echo is not None:
            request = self.request(payload, answer.opt.echo)
            answer = await self.answer(sensor, request)
        return answer, request[0]


def offering(folder: Path, *credentials: Credential, required: bool = True) -> OscoreServing:
    return OscoreServing(credentials or (CREDENTIAL,), folder / "numbers", required, Freshness.START)


def claiming(mid: int, option: bytes, payload: bytes = bytes(24), code: int = POST) -> bytes:
    return datagram(CON, code, mid, mid.to_bytes(2, "big"), ((OSCORE, option),), payload)


def troubles(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
