"""The ledger: the truth about what sensors said, sent and heard, as JSON lines that are only ever appended.

Each line is one write, made before what it tells of can have an effect: a simulator that is killed leaves at most its
last line torn. An event is known by its mark, a number of the ledger's own that never leaves the simulator.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

from contract.event import TYPE_DEFAULT, Event


class LedgerError(Exception):
    """Say which line of which ledger cannot be true."""


@dataclass(frozen=True, slots=True)
class Told:
    """A sensor has an event to report; nobody else knows of it yet. Moments in milliseconds since 1970 UTC."""

    at: int
    mark: int
    event: Event


@dataclass(frozen=True, slots=True)
class Sent:
    """A request with the event left the sensor, for the first time or again."""

    at: int
    mark: int


@dataclass(frozen=True, slots=True)
class Acked:
    """The sensor heard that the event is safe; from here on its loss breaks the promise."""

    at: int
    mark: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The sensor heard that the event is not taken, and will not be."""

    at: int
    mark: int
    code: str


@dataclass(frozen=True, slots=True)
class GivenUp:
    """The sensor stopped trying; whether the event has arrived it cannot know."""

    at: int
    mark: int


Line: TypeAlias = Told | Sent | Acked | Refused | GivenUp


@dataclass(slots=True)
class Counts:
    """What the ledger holds so far."""

    events: int = 0
    transmissions: int = 0
    acked: int = 0
    refused: int = 0
    given_up: int = 0
    in_flight: int = 0
    """Events sent and neither acked, refused nor given up yet."""


class Ledger:
    """Write the ledger of one run; a file that exists is the truth of another run, and is refused."""

    def __init__(self, path: Path, clock: Callable[[], int]) -> None:
        self.path = path
        self.counts = Counts()
        self._clock = clock
        self._file = -1
        self._in_flight: set[int] = set()

    def __enter__(self) -> Self:
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)
        self._file = -1

    def tell(self, event: Event) -> int:
        """Enter a new event, and return its mark."""
        self.counts.events += 1
        mark = self.counts.events
        self._write({"event": mark, "at": self._clock(), **_entries(event)})
        return mark

    def sent(self, mark: int) -> None:
        """Enter a transmission, just before it."""
        self.counts.transmissions += 1
        self._in_flight.add(mark)
        self._write({"sent": mark, "at": self._clock()})

    def acked(self, mark: int) -> None:
        """Enter the first ACK for an event."""
        self.counts.acked += 1
        self._in_flight.discard(mark)
        self._write({"acked": mark, "at": self._clock()})

    def refused(self, mark: int, code: str) -> None:
        """Enter a refusal for good, with its code such as 4.00."""
        self.counts.refused += 1
        self._in_flight.discard(mark)
        self._write({"refused": mark, "at": self._clock(), "code": code})

    def given_up(self, mark: int) -> None:
        """Enter that the sensor stopped trying."""
        self.counts.given_up += 1
        self._in_flight.discard(mark)
        self._write({"given_up": mark, "at": self._clock()})

    def _write(self, line: Mapping[str, object]) -> None:
        os.write(self._file, json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")
        self.counts.in_flight = len(self._in_flight)


def read(path: Path) -> Iterator[Line]:
    """Give the lines of a ledger in their order; a last line torn by a killed simulator is left out."""
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            if not raw.endswith(b"\n"):
                return
            try:
                yield _line(json.loads(raw))
            except (ValueError, KeyError, TypeError) as error:
                raise LedgerError(f"{path}, line {number}: {error!r} in {raw[:200]!r}") from error


def _entries(event: Event) -> dict[str, object]:
    names = ("device", "type", "id", "boot", "time", "data")
    return {name: value for name in names if (value := getattr(event, name)) is not None}


def _line(fields: dict[str, Any]) -> Line:
    at = fields["at"]
    match next(iter(fields.items())):
        case ("event", mark):
            return Told(at, mark, _event(fields))
        case ("sent", mark):
            return Sent(at, mark)
        case ("acked", mark):
            return Acked(at, mark)
        case ("refused", mark):
            return Refused(at, mark, fields["code"])
        case ("given_up", mark):
            return GivenUp(at, mark)
        case (name, _):
            raise ValueError(f"unknown kind of line {name!r}")


def _event(fields: Mapping[str, Any]) -> Event:
    return Event(
        device=fields["device"],
        type=fields.get("type", TYPE_DEFAULT),
        id=fields.get("id"),
        boot=fields.get("boot"),
        time=fields.get("time"),
        data=fields.get("data"),
    )
