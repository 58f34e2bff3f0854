"""Reads the features of the cluster, which the Kafka client does not show, such as the version of its transactions."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from agent.cli.doctor.finding import Finding, fine, warning
from agent.config.settings import KafkaSettings
from agent.forward.errors import KafkaSettingsError
from agent.forward.kafka.client import given_properties
from agent.forward.kafka.connect import parse

TRANSACTION_VERSION: Final = "transaction.version"
SECONDS_MAX: Final = 10.0
ANSWER_BYTES_MAX: Final = 1 << 20
_API_VERSIONS, _VERSION, _CORRELATION = 18, 3, 1
_FINALIZED_FEATURES: Final = 2
"""The tag of the finalized features in the answer (KIP-584)."""


class FeaturesError(Exception):
    """The features cannot be read; the message is the reason."""


def check_transactions(settings: KafkaSettings) -> Iterator[Finding]:
    """Show the version of the cluster's transactions."""
    try:
        version = read_features(settings).get(TRANSACTION_VERSION)
    except FeaturesError as error:
        yield warning("transactions", f"the version of the cluster's transactions cannot be read: {error}")
        return
    if version is None:
        yield fine("transactions", "the cluster announces no transaction.version: Kafka before 4.0, or another service")
    else:
        yield fine("transactions", f"transaction.version = {version}")


def read_features(settings: KafkaSettings) -> Mapping[str, int]:
    """Return the finalized level of each feature; brokers answer this request before a login."""
    name = b"oncegate"
    body = _compact(name) + _compact(b"doctor") + b"\0"
    head = struct.pack(">hhih", _API_VERSIONS, _VERSION, _CORRELATION, len(name)) + name + b"\0"
    reason = FeaturesError("kafka.bootstrap_servers names no server")
    for host, port in parse(settings.bootstrap_servers):
        try:
            return parse_features(_request(settings, host, int(port), head + body))
        except (OSError, ValueError, KafkaSettingsError, FeaturesError) as error:
            reason = FeaturesError(f"{host}:{port}: {error}")
    raise reason


def parse_features(answer: bytes) -> dict[str, int]:
    """Return the features of an answer to ApiVersions, version 3."""
    try:
        return _features(_Reader(answer))
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise FeaturesError("the answer is not one to ApiVersions, version 3") from error


def _features(answer: _Reader) -> dict[str, int]:
    if answer.number(">i") != _CORRELATION or answer.number(">h") != 0:
        raise FeaturesError("the broker refuses the request: it is older than Kafka 2.4")
    for _ in range(answer.count()):
        answer.take(6)  # a request, its lowest and highest version
        answer.skip_tags()
    answer.take(4)  # the throttling time
    features: dict[str, int] = {}
    for _ in range(answer.varint()):
        tag, content = answer.varint(), _Reader(answer.take(answer.varint()))
        if tag == _FINALIZED_FEATURES:
            for _ in range(content.count()):
                name = content.take(content.count()).decode()
                features[name] = content.number(">h")
                content.take(2)  # the lowest level
                content.skip_tags()
    return features


@dataclass(slots=True)
class _Reader:
    """Reads the parts of an answer."""

    data: bytes
    at: int = 0

    def take(self, count: int) -> bytes:
        if self.at + count > len(self.data):
            raise IndexError
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, layout: str) -> int:
        found: int = struct.unpack(layout, self.take(struct.calcsize(layout)))[0]
        return found

    def varint(self) -> int:
        value, shift = 0, 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def count(self) -> int:
        """Return the length of a compact array or string."""
        return max(self.varint() - 1, 0)

    def skip_tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self.take(self.varint())


def _request(settings: KafkaSettings, host: str, port: int, request: bytes) -> bytes:
    properties = given_properties(settings)
    with ExitStack() as stack:
        opened = stack.enter_context(socket.create_connection((host, port), SECONDS_MAX))
        if properties.get("security.protocol", "plaintext").lower().endswith("ssl"):
            opened = stack.enter_context(_context(properties).wrap_socket(opened, server_hostname=host))
        opened.sendall(struct.pack(">i", len(request)) + request)
        size = int.from_bytes(_receive(opened, 4))
        if size > ANSWER_BYTES_MAX:
            raise FeaturesError("the answer is not Kafka's; check security.protocol")
        return _receive(opened, size)


def _context(properties: Mapping[str, str]) -> ssl.SSLContext:
    authority = properties.get("ssl.ca.location")
    context = ssl.create_default_context(cafile=None if authority in (None, "probe") else authority)
    if certificate := properties.get("ssl.certificate.location"):
        password = properties.get("ssl.key.password", "")  # an empty one: never ask at the terminal
        context.load_cert_chain(certificate, properties.get("ssl.key.location"), password)
    return context


def _receive(opened: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        if not (more := opened.recv(count - len(data))):
            raise FeaturesError("the broker has closed the connection; check security.protocol")
        data += more
    return bytes(data)


def _compact(text: bytes) -> bytes:
    return bytes((len(text) + 1,)) + text
