"""Finds the secrets of a gateway, and removes them from whatever goes into a bundle.

The collected data should contain none. This is the second line of defence: for messages of libraries, for the log, and
for secrets that were entered in the wrong place.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path

from agent.config import readers
from agent.config.load import SECTIONS
from agent.config.origins import HIDDEN, is_secret
from agent.config.settings import Settings
from contract.files import SECRET_BYTES_MAX, read

CHARACTERS_MIN = 4
"""Shorter texts occur everywhere: without them nothing could be read, and they protect nothing."""
_KEY_LOCATIONS = ("ssl.key.location", "ssl.keystore.location")
_QUOTED = re.compile(r"""(\w+)\s*=\s*["']([^"']*)["']""")
_HASH = re.compile(r"sha256:([0-9a-f]+)")
_SECRET_VARIABLE = re.compile(r"PASSWORD|SECRET|TOKEN|JAAS|PASSPHRASE", re.IGNORECASE)
_OSCORE_SECRETS = ("secret", "salt")
_IN_ADDRESS = re.compile(r"(?:^|,)\s*(?:\w+://)?[^/\s:@,]*:(?!//)([^\s,]+)@")
"""USER:PASSWORD@ before a host; messages may repeat the address without its scheme."""
_WORD = r"""(?!\(hidden\))(?:"[^"]*"|'[^']*'|[^\s'",;]+)"""
_IN_TEXT = (
    re.compile(r"(?i)(\bbearer\s+)[A-Za-z0-9._~+/=-]{8,}"),
    re.compile(r"(?i)(\bauthorization['\"]?\s*[=:]\s*['\"]?basic\s+)[^\s'\",;]+"),
    re.compile(r"(://[^/\s:@]*:)[^\s'\"<>,]+(?=@)"),
    re.compile(rf"(?i)([\w.]*(?:password|passphrase|secret|token)['\"]?\s*[=:]\s*){_WORD}"),
    re.compile(r"(?s)(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(?=-----END|\Z)"),
)
"""Text that looks like a secret, whether it is a known one or not; group 1 is kept."""


class Redaction:
    """Removes the known secrets, and text that looks like one."""

    def __init__(self, secrets: Iterable[str]) -> None:
        found = sorted({one for one in secrets if len(one) >= CHARACTERS_MIN}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, found))) if found else None

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
        """Return a text without secrets."""
        if self._known is not None:
            text = self._known.sub(HIDDEN, text)
        for pattern in _IN_TEXT:
            text = pattern.sub(rf"\g<1>{HIDDEN}", text)
        return text


def secrets_of(settings: Settings, environment: Mapping[str, str] = os.environ) -> Iterator[str]:
    """Yield the secrets that configuration, files and environment hold, as far as they can be read."""
    properties = settings.kafka.properties
    for name, value in properties.items():
        yield from _property_secrets(f"{name}={value}")
    for file in (settings.kafka.properties_file, settings.mqtt.password_file):
        for line in _lines(file):
            yield from _property_secrets(line)
    locations = [Path(properties[name]) for name in _KEY_LOCATIONS if name in properties]
    for file in (settings.http.tls_key, settings.mqtt.tls_key_file, *locations):
        yield from (line for line in _lines(file) if not line.startswith("-----"))
    for line in _lines(settings.http.token_file):
        yield from _HASH.findall(line)
    yield from _oscore_secrets(settings.coap_oscore.credentials_dir)
    yield from misplaced(settings)
    for address in (settings.kafka.bootstrap_servers, settings.mqtt.host):
        yield from _IN_ADDRESS.findall(address)
    for name, value in environment.items():
        if _SECRET_VARIABLE.search(name) and not name.endswith("_FILE"):
            yield value
        elif name.startswith("ONCEGATE_"):
            yield from (secret for secret in _property_secrets(value) if "=" in value and secret != value)


def document_secrets(document: Mapping[str, object]) -> Iterator[str]:
    """Yield passwords in addresses, and the values whose key is that of a secret, whether it is a known key or not."""
    for name, value in document.items():
        if isinstance(value, Mapping):
            yield from document_secrets(value)
        elif isinstance(value, str):
            yield from _IN_ADDRESS.findall(value)
            if is_secret(name) and not name.endswith("_file"):
                yield value


def misplaced(settings: Settings) -> Iterator[str]:
    """Yield values of settings for paths of secrets that are not files: they may be the secrets themselves."""
    for section, kind in SECTIONS.items():
        part = getattr(settings, section.replace(".", "_"))
        for option in fields(kind):
            value = getattr(part, option.name)
            if option.metadata["read"] is readers.secret_path and value is not None and not _is_file(value):
                yield str(value)


def _is_file(path: Path) -> bool:
    """Whether a path is a file, as far as this user can see."""
    return path.parent == readers.SECRETS_FOLDER or os.path.exists(path)  # noqa: PTH110  # Path.exists raises


def _property_secrets(line: str) -> Iterator[str]:
    """Yield the secrets in a line NAME=VALUE, those that VALUE assigns included; without a name the whole line."""
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
