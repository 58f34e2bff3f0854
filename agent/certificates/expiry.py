"""The certificates in the configuration, and when each expires, read from their DER without a library."""

import base64
import binascii
import re
from collections.abc import Iterator
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


_OF_KAFKA = {
    "ssl.certificate": CertificateRole.OWN,
    "ssl.ca": CertificateRole.AUTHORITY,
    "https.ca": CertificateRole.AUTHORITY,
}
"""The properties with `.location` name a file, those with `.pem` have its text."""


def certificates(settings: Settings) -> list[Certificate]:
    """Read all certificates of the configuration; folders and key stores are left out."""
    return [_read(*named) for named in _named(settings)]


def _named(settings: Settings) -> Iterator[tuple[str, CertificateRole, str, bytes | None]]:
    """Yield connection, role, source and text of each certificate; None is the text of the file of that name."""
    try:
        properties = given_properties(settings.kafka)
    except KafkaSettingsError:  # reported where the client is opened
        properties = {}
    for name, role in _OF_KAFKA.items():
        path = properties.get(f"{name}.location", "probe")
        if path != "probe" and not Path(path).is_dir():
            yield "kafka", role, str(Path(path)), None
        if text := properties.get(f"{name}.pem"):
            yield "kafka", role, f"kafka.properties {name}.pem", text.encode()
    mqtt, http = settings.mqtt, settings.http
    for connection, role, enabled, file in (
        ("mqtt", CertificateRole.OWN, mqtt.enabled, mqtt.tls_certificate_file),
        ("mqtt", CertificateRole.AUTHORITY, mqtt.enabled, mqtt.tls_ca_file),
        ("http", CertificateRole.OWN, http.enabled, http.tls_certificate),
    ):
        if enabled and file is not None:
            yield connection, role, str(file), None


def _read(connection: str, role: CertificateRole, source: str, text: bytes | None) -> Certificate:
    try:
        ends = list(read_pem(files.read(Path(source)).data if text is None else text))
    except (OSError, ValueError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        return Certificate(connection, role, source, None, reason)
    if not ends:
        return Certificate(connection, role, source, None, "no certificate in PEM")
    return Certificate(connection, role, source, min(ends) if role is CertificateRole.OWN else max(ends))


_PEM = re.compile(rb"-----BEGIN (?:TRUSTED )?CERTIFICATE-----(.*?)-----END (?:TRUSTED )?CERTIFICATE-----", re.DOTALL)
_TIME = r"(?:\x17\x0d(\d{12})|\x18\x0f(\d{14}))Z"
_VALIDITY = re.compile(rf"\x30.{_TIME}{_TIME}".encode(), re.DOTALL)
"""The sequence of the two times of a certificate, each as RFC 5280, section 4.1.2.5, has it: with seconds, in UTC."""
_CENTURY_YEAR = 50
"""A year of two digits is of the 20th century from here on (RFC 5280, section 4.1.2.5.1)."""


def read_pem(data: bytes) -> Iterator[datetime]:
    """Yield the end of validity of each certificate in PEM; raise ValueError. Other blocks, as keys, are skipped."""
    for block in _PEM.finditer(data):
        try:
            der = base64.b64decode(b"".join(block[1].split()), validate=True)
        except binascii.Error as error:
            raise ValueError(f"not base64: {error}") from error
        yield read_der(der)


def read_der(data: bytes) -> datetime:
    """Return the end of validity of a certificate in DER; raise ValueError."""
    validity = _VALIDITY.search(data)
    if validity is None:
        raise ValueError("no validity")
    short, long = validity[3], validity[4]
    text = long or (b"19" if int(short[:2]) >= _CENTURY_YEAR else b"20") + short
    try:
        return datetime.strptime(text.decode(), "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    except ValueError as error:
        raise ValueError(f"not a time: {error}") from error
