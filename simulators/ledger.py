"""The ledger: the truth about what sensors said, sent and heard, as JSON lines that are only ever appended.

Each line is one write, made before what it tells of can have an effect: a simulator that is killed leaves at most its
last line torn. An event is known by its mark, a number of the ledger's own that never leaves the simulator. Memory
holds the marks in flight alone, however long the ledger grows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

import orjson

from contract.event import TYPE_DEFAULT, Event


class LedgerError(Exception):
    """A line that cannot be true; the message names it and its ledger."""


@dataclass(frozen=True, slots=True)
class Begun:
    """What is tested, before anything else: the scenario's name, the seed, the target, and so on."""

    at: int
    run: Mapping[str, Any]


# The three that a check reads by the million are not frozen: that would double what making them takes.
@dataclass(slots=True)
class Reported:
    """A sensor has an event to report; nobody else knows of it yet. Moments in milliseconds since 1970 UTC."""

    at: int
    mark: int
    event: Event


@dataclass(slots=True)
class Sent:
    """A request with the event left the sensor: a new one, or the same again, byte for byte."""

    at: int
    mark: int
    again: bool = False
    time: int | None = None
    """The time that a faulty sensor stamped this request with, in place of the event's own."""


@dataclass(slots=True)
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


@dataclass(frozen=True, slots=True)
class Happened:
    """A fault began or ended in a part, such as `agent`, `killed`."""

    at: int
    part: str
    what: str


@dataclass(frozen=True, slots=True)
class Sampled:
    """What a part said of itself at one moment, such as the events that wait in the gateway's store."""

    at: int
    values: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Ended:
    """The run came to its end; one that was interrupted or killed has no such line."""

    at: int


Line: TypeAlias = Begun | Reported | Sent | Acked | Refused | GivenUp | Happened | Sampled | Ended


@dataclass(slots=True)
class Counts:
    """What the ledger holds so far."""

    events: int = 0
    transmissions: int = 0
    """Requests, however many events each carries."""
    acked: int = 0
    refused: int = 0
    given_up: int = 0
    in_flight: int = 0
    """Events sent and neither acked, refused nor given up yet."""

    @property
    def open(self) -> int:
        """Events whose sensor has not come to an end with them."""
        return self.events - self.acked - self.refused - self.given_up


@dataclass(slots=True)
class Ledger:
    """Write the ledger of one run; a file that exists is the truth of another run, and is refused."""

    path: Path
    clock: Callable[[], int]
    counts: Counts = field(default_factory=Counts)
    _file: int = -1
    _in_flight: set[int] = field(default_factory=set)

    def __enter__(self) -> Self:
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)
        self._file = -1

    def begin(self, run: Mapping[str, Any]) -> None:
        """Enter what is tested."""
        self._write({"run": run, "at": self.clock()})

    def end(self) -> None:
        """Enter that the run came to its end."""
        self._write({"end": True, "at": self.clock()})

    def reported(self, event: Event) -> int:
        """Enter a new event, and return its mark."""
        self.counts.events += 1
        mark = self.counts.events
        self._write({"event": mark, "at": self.clock(), **_entries(event)})
        return mark

    def sent(self, *marks: int, again: bool = False, time: int | None = None) -> None:
        """Enter a transmission of some events in one request, just before it."""
        self.counts.transmissions += 1
        self._in_flight.update(marks)
        more = (b',"again":true' if again else b"") + (b"" if time is None else b',"time":%d' % time)
        self._write_marks(b"sent", marks, more)

    def acked(self, *marks: int) -> None:
        """Enter the first ACK for some events."""
        self.counts.acked += len(marks)
        self._in_flight.difference_update(marks)
        self._write_marks(b"acked", marks)

    def refused(self, *marks: int, code: str) -> None:
        """Enter a refusal for good, with its code such as 4.00."""
        self.counts.refused += len(marks)
        self._in_flight.difference_update(marks)
        self._write_marks(b"refused", marks, b',"code":"%s"' % code.encode())

    def given_up(self, *marks: int) -> None:
        """Enter that the sensor stopped trying."""
        self.counts.given_up += len(marks)
        self._in_flight.difference_update(marks)
        self._write_marks(b"given_up", marks)

    def happened(self, part: str, what: str) -> None:
        """Enter that a fault begins or ends."""
        self._write({"fault": part, "at": self.clock(), "what": what})

    def sample(self, values: Mapping[str, int]) -> None:
        """Enter what parts say of themselves."""
        self._write({"sample": dict(values), "at": self.clock()})

    def _write_marks(self, name: bytes, marks: Sequence[int], more: bytes = b"") -> None:
        # By hand: these are nearly all lines of a ledger, and their form is always the same.
        which = b"%d" % marks[0] if len(marks) == 1 else b"[%s]" % ",".join(map(str, marks)).encode()
        os.write(self._file, b'{"%s":%s,"at":%d%s}\n' % (name, which, self.clock(), more))
        self.counts.in_flight = len(self._in_flight)

    def _write(self, line: Mapping[str, object]) -> None:
        os.write(self._file, orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))


def read(path: Path) -> Iterator[Line]:
    """Yield the lines of a ledger in their order; a last line torn by a killed simulator is left out."""
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            if not raw.endswith(b"\n"):
                return
            try:
                fields = orjson.loads(raw)
                name, value = next(iter(fields.items()))
                if type(value) is int and (of_one := _OF_ONE.get(name)) is not None:
                    yield of_one(fields, value)
                else:
                    yield from _lines(fields, name, value)
            except (ValueError, KeyError, TypeError, StopIteration) as error:
                raise LedgerError(f"{path}, line {number}: {error!r} in {raw[:200]!r}") from error


def _entries(event: Event) -> dict[str, object]:
    names = ("device", "type", "id", "boot", "time", "data")
    return {name: value for name in names if (value := getattr(event, name)) is not None}


_OF_ONE: Mapping[str, Callable[[dict[str, Any], int], Line]] = {
    "event": lambda fields, mark: Reported(fields["at"], mark, _event(fields)),
    "sent": lambda fields, mark: Sent(fields["at"], mark, fields.get("again", False), fields.get("time")),
    "acked": lambda fields, mark: Acked(fields["at"], mark),
}
"""Nearly all lines are of one event: a million of them are read in seconds."""


def _lines(fields: dict[str, Any], name: str, value: Any) -> Iterator[Line]:
    """Yield a line's statements: one for each event that it names."""
    at = fields["at"]
    match name:
        case "sent":
            again, time = fields.get("again", False), fields.get("time")
            yield from (Sent(at, mark, again, time) for mark in _marks(value))
        case "acked":
            yield from (Acked(at, mark) for mark in _marks(value))
        case "refused":
            yield from (Refused(at, mark, fields["code"]) for mark in _marks(value))
        case "given_up":
            yield from (GivenUp(at, mark) for mark in _marks(value))
        case "fault":
            yield Happened(at, value, fields["what"])
        case "sample":
            yield Sampled(at, value)
        case "run":
            yield Begun(at, value)
        case "end":
            yield Ended(at)
        case _:
            raise ValueError(f"unknown kind of line {name!r}")


def _marks(value: int | list[int]) -> Sequence[int]:
    return value if isinstance(value, list) else (value,)


def _event(fields: Mapping[str, Any]) -> Event:
    return Event(
        device=fields["device"],
        type=fields.get("type", TYPE_DEFAULT),
        id=fields.get("id"),
        boot=fields.get("boot"),
        time=fields.get("time"),
        data=fields.get("data"),
    )
