"""The end of validity is that which a complete reader of certificates finds."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from agent.certificates.expiry import CertificateError, read_der, read_pem
from tests.support.logins.certificates import Authority

FIRST, LAST = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (1951, 9999))
KEY = ec.generate_private_key(ec.SECP256R1())
NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x" * 60)])


def der(end: datetime, serial: int = 1) -> bytes:
    start = min(end - timedelta(days=1), datetime(2020, 1, 1, tzinfo=UTC))
    builder = x509.CertificateBuilder().subject_name(NAME).issuer_name(NAME).public_key(KEY.public_key())
    builder = builder.serial_number(serial).not_valid_before(start).not_valid_after(end)
    return builder.sign(KEY, hashes.SHA256()).public_bytes(Encoding.DER)


@given(
    st.integers(FIRST, LAST).map(lambda second: datetime.fromtimestamp(second, UTC)),
    st.integers(1, 2**150),
)
def test_the_end_is_that_of_the_certificate(end: datetime, serial: int) -> None:
    assert read_der(der(end, serial)) == end


def test_a_chain_with_a_key_has_an_end_for_each_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    file, expiry = authority.issue("gateway.pem", 3600)
    ends = list(read_pem(file.read_bytes() + authority.file.read_bytes()))
    assert ends[0] == expiry
    assert len(ends) == 2


CERTIFICATE = der(datetime(2030, 1, 1, tzinfo=UTC))


@given(st.integers(0, 150))
def test_a_certificate_that_is_cut_off_is_refused(length: int) -> None:
    with pytest.raises(CertificateError):
        read_der(CERTIFICATE[:length])


@given(st.binary(max_size=200))
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(CertificateError):
        read_der(data)


@given(st.integers(0, 149), st.integers(0, 255))
def test_a_changed_byte_raises_no_other_error(place: int, value: int) -> None:
    changed = bytearray(CERTIFICATE)
    changed[place] = value
    with suppress(CertificateError):
        read_der(bytes(changed))


def test_pem_that_is_not_base64_is_refused() -> None:
    with pytest.raises(CertificateError, match="not base64"):
        list(read_pem(b"-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n"))
