"""Reads and checks what serving OSCORE needs, before anything is opened."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import Enum
from importlib.util import find_spec
from pathlib import Path

from agent.coap.errors import CredentialsError
from agent.coap.oscore.credentials import Credential, read_credentials
from agent.config.settings import OscoreSettings

NUMBERS_FOLDER = "oscore"
"""Below the state folder: the gateway's own sequence numbers."""
_NEEDED = ("cryptography", "cbor2", "filelock")

_log = logging.getLogger(__name__)


class Freshness(Enum):
    """Which requests have to prove their freshness by an Echo value (agent/coap/oscore/contexts.py)."""

    REQUEST = "request"
    ANSWER = "answer"
    START = "start"


@dataclass(frozen=True, slots=True)
class OscoreServing:
    """The credentials and settings of OSCORE."""

    credentials: tuple[Credential, ...]
    numbers_folder: Path
    required: bool = False
    freshness: Freshness = Freshness.ANSWER

    @property
    def devices(self) -> frozenset[str]:
        """The devices with credentials of their own: their events are accepted only under these."""
        return frozenset(credential.device for credential in self.credentials if not credential.relay)


def open_oscore(settings: OscoreSettings, state_folder: Path) -> OscoreServing | None:
    """Read the credentials directory, None where none is configured; files that cannot be used are logged.

    Raise CredentialsError where OSCORE cannot be served at all.
    """
    if settings.credentials_dir is None:
        return None
    check_installed()
    files = read_credentials(settings.credentials_dir)
    for error in files.errors:
        _log.error("credential=unreadable reason=%r", str(error))
    level = logging.INFO if files.credentials or not files.errors else logging.ERROR
    usable, unusable = len(files.credentials), len(files.errors)
    _log.log(level, "oscore=ready devices=%d unusable=%d required=%s", usable, unusable, settings.required)
    numbers_folder = state_folder / NUMBERS_FOLDER
    return OscoreServing(files.credentials, numbers_folder, settings.required, Freshness(settings.freshness))


def check_installed() -> None:
    """Raise CredentialsError where the packages that OSCORE needs are missing."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise CredentialsError(
            f"coap.oscore: {', '.join(missing)} is missing; install Oncegate with its optional part 'oscore'"
        )
