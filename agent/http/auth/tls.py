"""HTTPS by configuration."""

from __future__ import annotations

import ssl

from agent.config import files
from agent.config.settings import HttpSettings
from agent.http.errors import HttpSettingsError


def open_tls(settings: HttpSettings) -> ssl.SSLContext | None:
    """Read certificate and key; None where none is set. Raises HttpSettingsError."""
    certificate, key = settings.tls_certificate, settings.tls_key
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise HttpSettingsError("http.tls_certificate and http.tls_key: one is of no use without the other")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        files.check(certificate, key)
        context.load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ssl.SSLError, ValueError) as error:
        raise HttpSettingsError(f"http.tls_certificate {certificate}, http.tls_key {key}: {error}") from error
    return context


def _no_password() -> str:
    """Fail where the key wants a password, instead of asking the terminal for it."""
    raise ValueError("the key wants a password; the agent takes a key without one, readable by it alone")
