"""Read until when X.509 certificates are valid (RFC 5280, section 4.1), without a library for the rest of them."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from datetime import UTC, datetime

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
