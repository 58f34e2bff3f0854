"""Files that are replaced while the agent runs: tokens, credentials, certificates, logins at Kafka."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CHECK_SECONDS: Final = 2.0
"""How often the files are looked at."""

_log = logging.getLogger(__name__)
_Stamp = tuple[Path, int, int, int]


class WatchedFiles:
    """Files, and folders whose files count: create it before they are read, and no replacement is missed."""

    def __init__(self, places: Callable[[], Iterable[Path]]) -> None:
        self._places = places
        self._used = self._seen = self._state()
        self._refused: frozenset[_Stamp] | None = None

    def replaced(self) -> Sequence[Path]:
        """Return the files that differ from those in use; none before two looks agree, since several change together.

        None either while they are as they were when they were refused.
        """
        before, self._seen = self._seen, self._state()
        if self._seen in (self._used, self._refused) or self._seen != before:
            return ()
        return sorted({path for path, *_ in self._seen ^ self._used})

    def use(self) -> None:
        """Note that the files last seen are in use."""
        self._used = self._seen

    def refuse(self) -> None:
        """Note that the files last seen cannot be used, and those before them stay in use."""
        self._refused = self._seen

    def _state(self) -> frozenset[_Stamp]:
        stamps = set()
        for place in self._places():
            with suppress(OSError):
                for path in place.iterdir() if place.is_dir() else (place,):
                    found = path.stat()
                    stamps.add((path, found.st_ino, found.st_ctime_ns, found.st_size))  # also after a change of rights
        return frozenset(stamps)


@dataclass(frozen=True, slots=True)
class Renewal:
    """The secrets of a way in, and how it reads them again."""

    name: str
    files: WatchedFiles
    read: Callable[[], None]
    """Puts them into use; raises one of `errors` where they cannot be used, and what was in use remains."""
    errors: tuple[type[Exception], ...]


async def renew(renewals: Iterable[Renewal | None], stop: asyncio.Event) -> None:
    """Read again what was replaced, until the agent stops."""
    watched = [one for one in renewals if one is not None]
    while watched and not stop.is_set():
        with suppress(TimeoutError):
            async with asyncio.timeout(CHECK_SECONDS):
                await stop.wait()
        for one in watched:
            if not await asyncio.to_thread(one.files.replaced):
                continue
            try:
                one.read()
            except one.errors as error:
                one.files.refuse()
                _log.warning(
                    "secrets=unusable way=%s reason=%r effect='the former ones stay in use'", one.name, str(error)
                )
            else:
                one.files.use()
                _log.info("secrets=renewed way=%s", one.name)
