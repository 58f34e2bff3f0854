"""The TLS context of HTTPS."""

from __future__ import annotations

import ssl

from agent.config import files
from agent.config.settings import HttpSettings
from agent.http.errors import HttpSettingsError


def open_tls(settings: HttpSettings) -> ssl.SSLContext | None:
    """Return the context with certificate and key, None where none is configured; raise HttpSettingsError."""
    certificate, key = settings.tls_certificate, settings.tls_key
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise HttpSettingsError("http.tls_certificate and http.tls_key: expected both or neither")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        files.check(certificate, key)
        context.load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ssl.SSLError, ValueError) as error:
        raise HttpSettingsError(f"http.tls_certificate {certificate}, http.tls_key {key}: {error}") from error
    return context


def _no_password() -> str:
    """Raise ValueError where the key needs a password, instead of prompting on the terminal for it."""
    raise ValueError("the key needs a password; use a key without one, readable by the agent alone")
