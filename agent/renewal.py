"""Secrets that are replaced while the agent runs: tokens, OSCORE credentials, the certificate of HTTPS."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CHECK_SECONDS: Final = 2.0
"""How often the files are looked at; a new state counts once two looks agree, since several files change together."""

_log = logging.getLogger(__name__)
_State = frozenset[tuple[Path, int, int, int]]


@dataclass(frozen=True, slots=True)
class Renewal:
    """The files of a way in, and how it reads them again."""

    name: str
    places: tuple[Path, ...]
    """Files, and folders whose files count."""
    read: Callable[[], None]
    """Puts them into use; raises one of `errors` where they cannot be used, and what was in use remains."""
    errors: tuple[type[Exception], ...]


async def renew(renewals: Iterable[Renewal | None], stop: asyncio.Event) -> None:
    """Read again what was replaced, until the agent stops."""
    watched = [one for one in renewals if one is not None and one.places]
    used = [await asyncio.to_thread(_state, one.places) for one in watched]
    seen = list(used)
    while watched and not stop.is_set():
        with suppress(TimeoutError):
            async with asyncio.timeout(CHECK_SECONDS):
                await stop.wait()
        for number, one in enumerate(watched):
            before, seen[number] = seen[number], await asyncio.to_thread(_state, one.places)
            if seen[number] != before or seen[number] == used[number]:
                continue
            used[number] = seen[number]
            try:
                one.read()
            except one.errors as error:
                _log.warning(
                    "secrets=unusable way=%s reason=%r effect='the former ones stay in use'", one.name, str(error)
                )
            else:
                _log.info("secrets=renewed way=%s", one.name)


def _state(places: Iterable[Path]) -> _State:
    return frozenset(_stamps(places))


def _stamps(places: Iterable[Path]) -> Iterator[tuple[Path, int, int, int]]:
    for place in places:
        with suppress(OSError):
            for path in place.iterdir() if place.is_dir() else (place,):
                found = path.stat()
                yield path, found.st_ino, found.st_mtime_ns, found.st_size
