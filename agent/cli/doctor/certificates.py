"""Checks when the certificates of the gateway's connections expire."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from agent.certificates.expiry import Certificate, certificates
from agent.cli.doctor.finding import Finding, fine, warning, wrong
from agent.config.settings import Settings
from agent.terminal import count

DAYS_MIN: Final = 30
_DAY_MS: Final = 86_400_000
_RENEW: Final = {
    "kafka": "replace the file: the agent begins a new session with it",
    "mqtt": "replace the file, then: systemctl restart oncegate",
    "http": "replace the file, then: systemctl restart oncegate",
}


def check_certificates(settings: Settings, now: int) -> Iterator[Finding]:
    """Check each certificate of the configuration; `now` is in milliseconds since 1970 UTC."""
    for certificate in certificates(settings):
        yield _check(certificate, now)


def _check(certificate: Certificate, now: int) -> Finding:
    what = f"{certificate.connection}, {certificate.role}: {certificate.source}"
    if certificate.expires is None:
        return warning("certificate", f"{what}: {certificate.error}", "check the path, and that the file is in PEM")
    left_ms = int(certificate.expires.timestamp() * 1000) - now
    day = certificate.expires.strftime("%Y-%m-%d")
    if left_ms <= 0:
        return wrong("certificate", f"{what}: expired on {day}", _RENEW[certificate.connection])
    text = f"{what}: {count(left_ms // _DAY_MS, 'day')} until it expires, on {day}"
    if left_ms < DAYS_MIN * _DAY_MS:
        return warning("certificate", text, _RENEW[certificate.connection])
    return fine("certificate", text)
