"""Finds the secrets of a gateway, and removes them from whatever goes into a bundle.

The collected data should contain none. This is the second line of defence: for messages of libraries, for the log, and
for secrets that were entered in the wrong place.
"""

import os
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from hashlib import sha256
from pathlib import Path

from agent.config import readers
from agent.config.load import parts_of
from agent.config.origins import HIDDEN, is_secret
from agent.config.settings import Settings
from contract.files import SECRET_BYTES_MAX, read

CHARACTERS_MIN = 4
"""Shorter texts occur everywhere: without them nothing could be read, and they protect nothing."""
_KEY_LOCATIONS = ("ssl.key.location", "ssl.keystore.location")
_QUOTED = re.compile(r"""(\w+)\s*=\s*["']([^"']*)["']""")
_HEX = re.compile("[0-9A-Fa-f]+")
_HASH = re.compile(r"sha256:([0-9a-f]+)")
_SECRET_VARIABLE = re.compile(r"PASSWORD|PASSWD|SECRET|TOKEN|JAAS|PASSPHRASE|API_?KEY", re.IGNORECASE)
_OSCORE_SECRETS = ("secret", "salt")
_IN_ADDRESS = re.compile(r"(?:^|,)\s*(?:\w+://)?[^/\s:@,]*:(?!//)([^\s,]+)@")
"""USER:PASSWORD@ before a host; messages may repeat the address without its scheme."""
_TOKEN = re.compile(rf"[A-Za-z0-9._~+/-]{{{CHARACTERS_MIN},}}=*")
"""What may be a bearer token (RFC 6750 section 2.1)."""
_TOKEN_DIGEST = re.compile("[0-9a-f]{64}")
_WORD = r"""(?!\(hidden\))(?:"[^"]*"|'[^']*'|[^\s'",;]+)"""
_IN_TEXT = (
    re.compile(r"(?i)(\bbearer\s+)[A-Za-z0-9._~+/=-]{8,}"),
    re.compile(r"(?i)(\bauthorization['\"]?\s*[=:]\s*['\"]?basic\s+)[^\s'\",;]+"),
    re.compile(r"(://[^/\s:@]*:)[^\s'\"<>,]+(?=@)"),
    re.compile(rf"(?i)((?:password|passwd|pwd|passphrase|secret|token|api[_-]?key)['\"]?\s*[=:]\s*){_WORD}"),
    re.compile(r"(?s)(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(?=-----END|\Z)"),
)
"""Text that looks like a secret, whether it is a known one or not; group 1 is kept."""


class Redaction:
    """Removes the known secrets, also as hex digits or base64, and text that looks like a secret.

    Of bearer tokens only the SHA-256 is known: each word with such a digest is removed.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        found = {one for one in secrets if len(one) >= CHARACTERS_MIN}
        forms = sorted({form for one in found for form in _forms(one)}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, forms))) if forms else None
        self._token_digests = frozenset(filter(_TOKEN_DIGEST.fullmatch, found))

    def clean(self, value: object) -> object:
        """Return a value in JSON's types without secrets."""
        if isinstance(value, str):
            return self.clean_text(value)
        if isinstance(value, Mapping):
            return {self.clean_text(str(key)): self.clean(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.clean(item) for item in value]
        return value

    def clean_text(self, text: str) -> str:
        if self._known is not None:
            text = self._known.sub(HIDDEN, text)
        for pattern in _IN_TEXT:
            text = pattern.sub(rf"\g<1>{HIDDEN}", text)
        return _TOKEN.sub(self._without_token, text) if self._token_digests else text

    def _without_token(self, word: re.Match[str]) -> str:
        candidates = {word[0], word[0].strip("./")}  # of a sentence or a path
        digests = {sha256(candidate.encode()).hexdigest() for candidate in candidates}
        return word[0] if self._token_digests.isdisjoint(digests) else HIDDEN


def secrets_of(settings: Settings) -> Iterator[str]:
    """Yield the secrets that configuration, files and environment hold, as far as they can be read."""
    properties = settings.kafka.properties
    for name, value in properties.items():
        yield from _property_secrets(f"{name}={value}")
    for file in (settings.kafka.properties_file, settings.mqtt.password_file):
        for line in _lines(file):
            yield from _property_secrets(line)
    locations = [Path(properties[name]) for name in _KEY_LOCATIONS if name in properties]
    for file in (settings.http.tls_key, settings.mqtt.tls_key_file, settings.kafka.mac_key_file, *locations):
        yield from (line for line in _lines(file) if not line.startswith("-----"))
    for line in _lines(settings.http.token_file):
        yield from _HASH.findall(line)
    yield from _oscore_secrets(settings.coap_oscore.credentials_dir)
    yield from misplaced(settings)
    for name, value in os.environ.items():
        if _SECRET_VARIABLE.search(name) and not name.endswith("_FILE"):
            yield value
        elif name.startswith("ONCEGATE_"):
            yield from (secret for secret in _property_secrets(value) if "=" in value and secret != value)


def document_secrets(document: Mapping[str, object]) -> Iterator[str]:
    """Yield passwords in addresses, and the values of keys named like secrets, known or not."""
    for name, value in document.items():
        if isinstance(value, Mapping):
            yield from document_secrets(value)
        elif isinstance(value, str):
            yield from _IN_ADDRESS.findall(value)
            if is_secret(name) and not name.endswith("_file"):
                yield value


def misplaced(settings: Settings) -> Iterator[str]:
    """Yield the paths of secrets in settings that name no file: they may be the secrets themselves."""
    for part in parts_of(settings).values():
        for option in fields(part):
            value = getattr(part, option.name)
            if option.metadata["read"] is readers.secret_path and value is not None and not _is_file(value):
                yield str(value)


def _forms(secret: str) -> Iterator[str]:
    """Yield a secret as it may be written; one of hex digits stands for its bytes, too."""
    yield secret
    octets = {secret.encode()}
    if len(secret) % 2 == 0 and _HEX.fullmatch(secret):
        octets.add(bytes.fromhex(secret))
    for one in octets:
        yield from (one.hex(), one.hex().upper())
        yield from (encode(one).decode().rstrip("=") for encode in (b64encode, urlsafe_b64encode))


def _is_file(path: Path) -> bool:
    """Whether a path is a file, as far as this user can see."""
    return path.parent == readers.SECRETS_FOLDER or os.path.exists(path)  # noqa: PTH110  # Path.exists raises


def _property_secrets(line: str) -> Iterator[str]:
    """Yield the secrets in a line NAME=VALUE and within its VALUE; of a comment or nameless line, all of it."""
    name, equals, value = line.partition("=")
    if not equals or line.startswith("#"):
        yield line.strip()
    elif is_secret(name):
        yield value.strip()
        yield from (inner for word, inner in _QUOTED.findall(value) if is_secret(word))


def _oscore_secrets(folder: Path | None) -> Iterator[str]:
    try:
        files = sorted(folder.iterdir()) if folder is not None else []
    except OSError:
        return
    for file in files:
        for line in _lines(file):
            yield from (value for name, value in _QUOTED.findall(line) if name in _OSCORE_SECRETS)


def _lines(file: Path | None) -> list[str]:
    try:
        content = b"" if file is None else read(file, SECRET_BYTES_MAX).data
    except OSError:
        return []
    return [line for line in map(str.strip, content.decode("utf-8", "ignore").splitlines()) if line]
