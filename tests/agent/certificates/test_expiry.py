"""The end of a certificate's validity is read right, and doctor and metrics show it."""

import shutil
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

from agent.certificates.expiry import CertificateRole, certificates, read_der, read_pem
from agent.cli.doctor.finding import Condition
from agent.cli.doctor.machine import check_certificates
from agent.config.settings import GatewaySettings, HttpSettings, KafkaSettings, MqttSettings, Settings
from tests.agent.http.client import Client
from tests.agent.http.serving import serving
from tests.agent.http.test_access import CERTIFICATE, KEY, trusting
from tests.support.logins.certificates import Authority

DAY_SECONDS = 86_400


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def with_kafka(folder: Path, **properties: str) -> Settings:
    kafka = KafkaSettings("k:9093", properties={name.replace("_", "."): value for name, value in properties.items()})
    return Settings(GatewaySettings(id="gw-1", state_dir=folder), kafka)


def test_all_connections_are_looked_at(authority: Authority, tmp_path: Path) -> None:
    own, _ = authority.issue("gateway.pem", DAY_SECONDS)
    kafka = {"ssl.certificate.location": str(own), "ssl.ca.pem": authority.file.read_text(), "ssl.ca.location": "probe"}
    settings = Settings(
        GatewaySettings(id="gw-1", state_dir=tmp_path),
        KafkaSettings("k:9093", properties=kafka),
        mqtt=MqttSettings(enabled=True, tls=True, tls_ca_file=authority.file, tls_certificate_file=own),
        http=HttpSettings(tls_certificate=own, tls_key=own),
    )
    assert [(one.connection, one.role) for one in certificates(settings)] == [
        ("kafka", CertificateRole.OWN),
        ("kafka", CertificateRole.AUTHORITY),
        ("mqtt", CertificateRole.OWN),
        ("mqtt", CertificateRole.AUTHORITY),
        ("http", CertificateRole.OWN),
    ]


def test_of_a_chain_the_first_to_expire_counts_and_of_authorities_the_last(
    authority: Authority, tmp_path: Path
) -> None:
    late, late_end = authority.issue("late.pem", 20 * DAY_SECONDS)
    early, early_end = authority.issue("early.pem", 10 * DAY_SECONDS)
    both = tmp_path / "both.pem"
    both.write_bytes(late.read_bytes() + early.read_bytes())
    found = certificates(with_kafka(tmp_path, ssl_certificate_location=str(both), ssl_ca_location=str(both)))
    assert [one.expires for one in found] == [early_end, late_end]


@pytest.mark.parametrize(
    ("left", "condition", "said"),
    [
        (timedelta(days=40, hours=1), Condition.FINE, "40 days until it expires"),
        (timedelta(days=29, hours=1), Condition.WARNING, "29 days until it expires"),
        (timedelta(hours=1), Condition.WARNING, "0 days until it expires"),
        (timedelta(seconds=-1), Condition.WRONG, "expired on"),
    ],
)
def test_the_doctor_tells_the_days(
    authority: Authority, tmp_path: Path, left: timedelta, condition: Condition, said: str
) -> None:
    own, expiry = authority.issue("gateway.pem", 50 * DAY_SECONDS)
    settings = with_kafka(tmp_path, ssl_certificate_location=str(own))
    [finding] = check_certificates(settings, int((expiry - left).timestamp() * 1000))
    assert (finding.check, finding.condition) == ("certificate", condition)
    assert f"kafka, own: {own}" in finding.text
    assert said in finding.text
    assert ("new session" in finding.hint) == (condition is not Condition.FINE)


def test_the_doctor_asks_for_no_restart_where_the_file_is_watched(authority: Authority, tmp_path: Path) -> None:
    own, expiry = authority.issue("gateway.pem", DAY_SECONDS)
    settings = Settings(
        GatewaySettings(id="gw-1", state_dir=tmp_path),
        KafkaSettings("k:9093", properties={"ssl.certificate.location": str(own)}),
        mqtt=MqttSettings(enabled=True, tls=True, tls_certificate_file=own),
        http=HttpSettings(tls_certificate=own, tls_key=own),
    )
    kafka, mqtt, http = check_certificates(settings, int(expiry.timestamp() * 1000))
    assert ["restart" in finding.hint for finding in (kafka, http, mqtt)] == [False, False, True]


def test_a_file_that_is_missing_or_no_certificate_is_named_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no certificate\n")
    files = {"ssl_certificate_location": str(tmp_path / "absent"), "ssl_ca_location": str(tmp_path / "text")}
    found = list(check_certificates(with_kafka(tmp_path, **files), 0))
    assert [finding.condition for finding in found] == [Condition.WARNING] * 2
    assert "No such file" in found[0].text
    assert "no certificate in PEM" in found[1].text


async def test_the_metrics_have_the_expiry_of_the_file_as_it_is_now(authority: Authority, tmp_path: Path) -> None:
    certificate = tmp_path / "http.pem"
    shutil.copy(CERTIFICATE, certificate)
    async with serving(tmp_path, tls_certificate=certificate, tls_key=KEY) as served:
        client = Client(served.server.port, trusting())

        async def metric() -> float:
            lines = (await client.get("/metrics")).body.decode().splitlines()
            name = 'oncegate_certificate_expiry_timestamp_seconds{connection="http",role="own"}'
            [line] = [line for line in lines if line.startswith(name)]
            return float(line.rpartition(" ")[2])

        assert await metric() == next(read_pem(CERTIFICATE.read_bytes())).timestamp()
        renewed, expiry = authority.issue("renewed.pem", DAY_SECONDS)
        renewed.replace(certificate)
        while await metric() != expiry.timestamp():  # views are shared by the requests of a moment
            pass
        certificate.unlink()
        while await metric() != 0:
            pass


FIRST, LAST = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (1951, 9999))
SIGNER = ec.generate_private_key(ec.SECP256R1())
NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x" * 60)])


def der(end: datetime, serial: int = 1) -> bytes:
    start = min(end - timedelta(days=1), datetime(2020, 1, 1, tzinfo=UTC))
    builder = x509.CertificateBuilder().subject_name(NAME).issuer_name(NAME).public_key(SIGNER.public_key())
    builder = builder.serial_number(serial).not_valid_before(start).not_valid_after(end)
    return builder.sign(SIGNER, hashes.SHA256()).public_bytes(Encoding.DER)


@given(
    st.integers(FIRST, LAST).map(lambda second: datetime.fromtimestamp(second, UTC)),
    st.integers(1, 2**150),
)
def test_the_end_is_that_of_the_certificate(end: datetime, serial: int) -> None:
    assert read_der(der(end, serial)) == end


WHOLE = der(datetime(2030, 1, 1, tzinfo=UTC))


@given(st.binary(max_size=200) | st.integers(0, 130).map(lambda length: WHOLE[:length]))
def test_other_bytes_and_a_certificate_that_is_cut_off_before_its_end_of_validity_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"no validity|not a time"):
        read_der(data)


@given(st.integers(0, 149), st.integers(0, 255))
def test_a_changed_byte_raises_no_other_error(place: int, value: int) -> None:
    changed = bytearray(WHOLE)
    changed[place] = value
    with suppress(ValueError):
        read_der(bytes(changed))


def test_pem_that_is_not_base64_is_refused() -> None:
    with pytest.raises(ValueError, match="not base64"):
        list(read_pem(b"-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n"))
