"""The certificates in the configuration, and when each expires."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from agent.certificates.validity import CertificateError, read_pem
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
