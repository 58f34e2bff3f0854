"""The certificates in the configuration, and when each expires, read from their DER without a library."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from agent.config.settings import Settings
from agent.forward.errors import KafkaSettingsError
from agent.forward.kafka.client import given_properties
from contract import files


class CertificateRole(StrEnum):
    """The role of a certificate in a connection."""

    OWN = "own"
    """The gateway's own certificate; it counts as expired once any of its chain has."""
    AUTHORITY = "authority"
    """The authority that has signed the peer's; of several, the one that is valid longest counts."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate of the configuration."""

    connection: str
    """`kafka`, `mqtt` or `http`."""
    role: CertificateRole
    source: str
    """The file, or the property that contains it."""
    expires: datetime | None
    """None where it cannot be read."""
    error: str = ""
    """Why it cannot be read."""


_JUDGE: dict[CertificateRole, Callable[[Iterable[datetime]], datetime]] = {
    CertificateRole.OWN: min,
    CertificateRole.AUTHORITY: max,
}
_KAFKA_FILES = {
    "ssl.certificate.location": CertificateRole.OWN,
    "ssl.ca.location": CertificateRole.AUTHORITY,
    "https.ca.location": CertificateRole.AUTHORITY,
}
_KAFKA_TEXTS = {
    "ssl.certificate.pem": CertificateRole.OWN,
    "ssl.ca.pem": CertificateRole.AUTHORITY,
    "https.ca.pem": CertificateRole.AUTHORITY,
}


def certificates(settings: Settings) -> list[Certificate]:
    """Read all certificates of the configuration; folders and key stores are left out."""
    return [*_of_kafka(settings), *_of_mqtt(settings), *_of_http(settings)]


def _of_kafka(settings: Settings) -> Iterator[Certificate]:
    try:
        properties = given_properties(settings.kafka)
    except KafkaSettingsError:  # reported where the client is opened
        return
    for name, role in _KAFKA_FILES.items():
        path = Path(properties.get(name, ""))
        if name in properties and properties[name] != "probe" and not path.is_dir():
            yield _from_file("kafka", role, path)
    for name, role in _KAFKA_TEXTS.items():
        if name in properties:
            yield _from_bytes("kafka", role, f"kafka.properties {name}", properties[name].encode())


def _of_mqtt(settings: Settings) -> Iterator[Certificate]:
    mqtt = settings.mqtt
    if mqtt.enabled and mqtt.tls_certificate_file is not None:
        yield _from_file("mqtt", CertificateRole.OWN, mqtt.tls_certificate_file)
    if mqtt.enabled and mqtt.tls_ca_file is not None:
        yield _from_file("mqtt", CertificateRole.AUTHORITY, mqtt.tls_ca_file)


def _of_http(settings: Settings) -> Iterator[Certificate]:
    if settings.http.enabled and settings.http.tls_certificate is not None:
        yield _from_file("http", CertificateRole.OWN, settings.http.tls_certificate)


def _from_file(connection: str, role: CertificateRole, path: Path) -> Certificate:
    try:
        data = files.read(path).data
    except OSError as error:
        return Certificate(connection, role, str(path), None, error.strerror or str(error))
    return _from_bytes(connection, role, str(path), data)


def _from_bytes(connection: str, role: CertificateRole, source: str, data: bytes) -> Certificate:
    try:
        ends = list(read_pem(data))
    except CertificateError as error:
        return Certificate(connection, role, source, None, str(error))
    if not ends:
        return Certificate(connection, role, source, None, "no certificate in PEM")
    return Certificate(connection, role, source, _JUDGE[role](ends))


_PEM = re.compile(rb"-----BEGIN (?:TRUSTED )?CERTIFICATE-----(.*?)-----END (?:TRUSTED )?CERTIFICATE-----", re.DOTALL)
_SEQUENCE, _INTEGER, _VERSION, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0x02, 0xA0, 0x17, 0x18
_CENTURY_YEAR = 50
"""A year of two digits is of the 20th century from here on (RFC 5280, section 4.1.2.5.1)."""


class CertificateError(Exception):
    """The bytes are not a certificate."""


def read_pem(data: bytes) -> Iterator[datetime]:
    """Yield the end of validity of each certificate in PEM; other blocks, such as keys, are skipped."""
    for block in _PEM.finditer(data):
        try:
            der = base64.b64decode(b"".join(block[1].split()), validate=True)
        except binascii.Error as error:
            raise CertificateError(f"not base64: {error}") from error
        yield read_der(der)


def read_der(data: bytes) -> datetime:
    """Return the end of validity of a certificate in DER."""
    fields = _elements(next(_elements(_sequence(data)), (0, b""))[1])
    tag, _ = next(fields, (0, b""))
    if tag == _VERSION:
        tag, _ = next(fields, (0, b""))
    if tag != _INTEGER:  # the serial number
        raise CertificateError("no serial number")
    next(fields, None)  # the algorithm of the signature
    next(fields, None)  # the issuer
    tag, validity = next(fields, (0, b""))
    moments = list(_elements(validity)) if tag == _SEQUENCE else []
    if len(moments) != 2:
        raise CertificateError("no validity")
    return _moment(*moments[1])


def _sequence(data: bytes) -> bytes:
    tag, content = next(_elements(data), (0, b""))
    if tag != _SEQUENCE:
        raise CertificateError("not a DER sequence")
    return content


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield tag and content of each element; tags of several bytes do not occur in certificates' outer fields."""
    at = 0
    while at < len(data):
        if at + 2 > len(data):
            raise CertificateError("cut off")
        tag, length, at = data[at], data[at + 1], at + 2
        if length >= 0x80:
            octets = length & 0x7F
            length, at = int.from_bytes(data[at : at + octets]), at + octets
        if at + length > len(data):
            raise CertificateError("cut off")
        yield tag, data[at : at + length]
        at += length


def _moment(tag: int, content: bytes) -> datetime:
    if tag not in (_UTC_TIME, _GENERALIZED_TIME):
        raise CertificateError("no time")
    try:
        text = content.decode("ascii")
        if tag == _UTC_TIME:
            text = ("19" if int(text[:2]) >= _CENTURY_YEAR else "20") + text
        return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
    except ValueError as error:
        raise CertificateError(f"not a time: {error}") from error
