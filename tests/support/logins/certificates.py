"""A certificate authority for tests, whose certificates are valid for seconds."""

from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

AUTHORITY_DAYS = 1
BEFORE = timedelta(minutes=1)


class Authority:
    """Signs certificates for 127.0.0.1; `ca.pem` in its folder is its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("authority")
        own = _unsigned(self._name, self._name, self._key.public_key(), datetime.now(UTC) + timedelta(AUTHORITY_DAYS))
        own = own.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.file = folder / "ca.pem"
        self.file.write_bytes(own.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def issue(self, file_name: str, seconds: float, holder: str = "holder") -> tuple[Path, datetime]:
        """Write key and certificate into one file; return it, and its time of expiry."""
        key = ec.generate_private_key(ec.SECP256R1())
        expiry = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=seconds)
        place = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))])
        unsigned = _unsigned(_name(holder), self._name, key.public_key(), expiry).add_extension(place, critical=False)
        encoding = serialization.Encoding.PEM
        private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        file = self._folder / file_name
        renewed = file.with_suffix(".new")
        renewed.write_bytes(private + unsigned.sign(self._key, hashes.SHA256()).public_bytes(encoding))
        renewed.replace(file)
        return file, expiry


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _unsigned(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, expiry: datetime
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(public)
    return (
        builder.serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - BEFORE)
        .not_valid_after(expiry)
    )
