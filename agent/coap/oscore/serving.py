"""Reads and checks what serving OSCORE needs, before anything is opened."""

import logging
from dataclasses import dataclass, replace
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
    unusable: frozenset[str] = frozenset()
    """The devices whose files cannot be used."""
    closed: str = ""
    """Why `required` is set although the configuration does not ask for it."""

    @property
    def devices(self) -> frozenset[str]:
        """The devices and relays with credentials: their events are accepted only under these."""
        return self.unusable | {credential.device for credential in self.credentials}


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
    closed = ""
    if files.nameless and not settings.required:
        closed = "a credential is unreadable, so CoAP without OSCORE is refused: it may be anybody's"
        _log.error("oscore=required reason=%r", closed)
    return OscoreServing(
        files.credentials,
        state_folder / NUMBERS_FOLDER,
        settings.required or files.nameless,
        Freshness(settings.freshness),
        files.named,
        closed,
    )


def renewed(settings: OscoreSettings, serving: OscoreServing) -> OscoreServing:
    """Read the credentials again; raise CredentialsError where those before have to stay in use."""
    assert settings.credentials_dir is not None  # as when they were read first
    files = read_credentials(settings.credentials_dir)
    for error in files.errors:
        _log.error("credential=unreadable reason=%r", str(error))
    if files.nameless:
        raise CredentialsError(f"{settings.credentials_dir}: a credential that cannot be read may be anybody's")
    return replace(serving, credentials=files.credentials, unusable=files.named)


def check_installed() -> None:
    """Raise CredentialsError where the packages that OSCORE needs are missing."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise CredentialsError(
            f"coap.oscore: {', '.join(missing)} is missing; install Oncegate with its optional part 'oscore'"
        )
