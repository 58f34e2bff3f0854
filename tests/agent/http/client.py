"""Clients: the standard library's, and one that sends any bytes."""

from __future__ import annotations

import asyncio
import http.client
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from io import BytesIO
from typing import Any

SECONDS_MAX = 60.0


@dataclass(frozen=True, slots=True)
class Response:
    code: int
    fields: Message
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


class Client:
    """The standard library's client, one connection for each request."""

    def __init__(self, port: int, context: ssl.SSLContext | None = None) -> None:
        self.port = port
        self._context = context

    async def get(self, path: str, token: str = "", method: str = "GET") -> Response:
        return await self.ask(method, path, token=token)

    async def post(
        self,
        body: bytes,
        path: str = "/api/v1/events",
        media: str = "application/json",
        token: str = "",
        fields: Mapping[str, str] | None = None,
    ) -> Response:
        given = {"Content-Type": media, **(fields or {})} if media else dict(fields or {})
        return await self.ask("POST", path, body, given, token)

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        fields: Mapping[str, str] | None = None,
        token: str = "",
    ) -> Response:
        return await asyncio.to_thread(self._ask, method, path, body, dict(fields or {}), token)

    def _ask(self, method: str, path: str, body: bytes | None, fields: dict[str, str], token: str) -> Response:
        if token:
            fields["Authorization"] = f"Bearer {token}"
        connection = (
            http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS_MAX)
            if self._context is None
            else http.client.HTTPSConnection("localhost", self.port, timeout=SECONDS_MAX, context=self._context)
        )
        try:
            connection.request(method, path, body, fields)
            response = connection.getresponse()
            return Response(response.status, response.headers, response.read())
        finally:
            connection.close()


class Raw:
    """A connection on which the test sends every byte."""

    def __init__(self, port: int, address: str = "127.0.0.1") -> None:
        self._port = port
        self._address = address
        """Of the client; all of 127.0.0.0/8 is this machine."""

    async def __aenter__(self) -> Raw:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self._port, local_addr=(self._address, 0))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except OSError:
            return

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def receive(self) -> Response:
        """Read one response that has a Content-Length."""
        async with asyncio.timeout(SECONDS_MAX):
            status, _, lines = (await self.reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")
            fields = http.client.parse_headers(BytesIO(lines))
            body = await self.reader.readexactly(int(fields["Content-Length"] or 0))
        return Response(int(status.split()[1]), fields, body)

    async def receive_all(self) -> bytes:
        """Read until the server ends the connection."""
        async with asyncio.timeout(SECONDS_MAX):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""


def post_bytes(body: bytes, *fields: str, path: str = "/api/v1/events", media: str = "application/json") -> bytes:
    lines = (
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        f"Content-Type: {media}",
        f"Content-Length: {len(body)}",
        *fields,
    )
    return "\r\n".join((*lines, "", "")).encode() + body
