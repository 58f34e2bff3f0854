"""The ledger: an append-only record of what sensors reported, sent and received, in JSON lines.

Each line is one write, made before the recorded action takes effect, so a killed simulator leaves at most one
incomplete line at the end. An event is identified by its mark, a number that never leaves the simulator. Memory holds
only the marks in flight, however long the ledger grows.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeAlias

import orjson

from contract.event import TYPE_DEFAULT, Event
from simulators.errors import SimulatorError


class LedgerError(SimulatorError):
    """A line of a ledger is invalid; the message names the line and the ledger."""


@dataclass(frozen=True, slots=True)
class Begun:
    """The first line: the parameters of the run, such as scenario, seed and targets."""

    at: int
    run: Mapping[str, Any]


# The three that a check reads by the million are not frozen, which would double the cost of creating them.
@dataclass(slots=True)
class Reported:
    """A sensor has a new event to report. Times are in milliseconds since 1970 UTC."""

    at: int
    mark: int
    event: Event


@dataclass(slots=True)
class Sent:
    """A sensor sent a request with the event: a new request, or a retransmission of the same bytes."""

    at: int
    mark: int
    again: bool = False
    time: int | None = None
    """The time that a faulty sensor put into this request in place of the event's own."""


@dataclass(slots=True)
class Acked:
    """The sensor received the ACK; from here on the loss of the event is a fault."""

    at: int
    mark: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The sensor received a final refusal of the event."""

    at: int
    mark: int
    code: str


@dataclass(frozen=True, slots=True)
class GivenUp:
    """The sensor stopped trying; the event may or may not have arrived."""

    at: int
    mark: int


@dataclass(frozen=True, slots=True)
class Happened:
    """A fault began or ended in a service, such as `agent`, `killed`."""

    at: int
    part: str
    what: str


@dataclass(frozen=True, slots=True)
class Sampled:
    """A sample of status values, such as the number of events waiting in the gateway's store."""

    at: int
    values: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Ended:
    """The run finished; an interrupted or killed run has no such line."""

    at: int


Line: TypeAlias = Begun | Reported | Sent | Acked | Refused | GivenUp | Happened | Sampled | Ended


@dataclass(slots=True)
class Counts:
    """The number of entries of each kind so far."""

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
        """Events that are neither acked, refused nor given up."""
        return self.events - self.acked - self.refused - self.given_up


@dataclass(slots=True)
class Ledger:
    """Writes the ledger of one run; an existing file belongs to another run and is refused."""

    path: Path
    clock: Callable[[], int]
    counts: Counts = field(default_factory=Counts)
    _file: int = -1
    _in_flight: set[int] = field(default_factory=set)

    def __enter__(self) -> Self:
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)
        self._file = -1

    def begin(self, run: Mapping[str, Any]) -> None:
        """Record the parameters of the run."""
        self._write({"run": run, "at": self.clock()})

    def end(self) -> None:
        """Record that the run finished."""
        self._write({"end": True, "at": self.clock()})

    def reported(self, event: Event) -> int:
        """Record a new event and return its mark."""
        self.counts.events += 1
        mark = self.counts.events
        self._write({"event": mark, "at": self.clock(), **_entries(event)})
        return mark

    def sent(self, *marks: int, again: bool = False, time: int | None = None) -> None:
        """Record a transmission of events in one request, just before it is sent."""
        self.counts.transmissions += 1
        self._in_flight.update(marks)
        more = (b',"again":true' if again else b"") + (b"" if time is None else b',"time":%d' % time)
        self._write_marks(b"sent", marks, more)

    def acked(self, *marks: int) -> None:
        """Record the first ACK for events."""
        self.counts.acked += len(marks)
        self._end(b"acked", marks)

    def refused(self, *marks: int, code: str) -> None:
        """Record a final refusal with its code, such as 4.00."""
        self.counts.refused += len(marks)
        self._end(b"refused", marks, b',"code":"%s"' % code.encode())

    def given_up(self, *marks: int) -> None:
        """Record that the sensor stopped trying."""
        self.counts.given_up += len(marks)
        self._end(b"given_up", marks)

    def happened(self, part: str, what: str) -> None:
        """Record that a fault begins or ends."""
        self._write({"fault": part, "at": self.clock(), "what": what})

    def sample(self, values: Mapping[str, int]) -> None:
        """Record a sample of status values."""
        self._write({"sample": dict(values), "at": self.clock()})

    def _end(self, name: bytes, marks: Sequence[int], more: bytes = b"") -> None:
        self._in_flight.difference_update(marks)
        self._write_marks(name, marks, more)

    def _write_marks(self, name: bytes, marks: Sequence[int], more: bytes = b"") -> None:
        # Formatted by hand: nearly all lines of a ledger are of this form.
        which = b"%d" % marks[0] if len(marks) == 1 else b"[%s]" % ",".join(map(str, marks)).encode()
        os.write(self._file, b'{"%s":%s,"at":%d%s}\n' % (name, which, self.clock(), more))
        self.counts.in_flight = len(self._in_flight)

    def _write(self, line: Mapping[str, object]) -> None:
        os.write(self._file, orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))


def read(path: Path) -> Iterator[Line]:
    """Yield the lines of a ledger in order, without an incomplete last line."""
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            if not raw.endswith(b"\n"):
                return
            try:
                fields = orjson.loads(raw)
                name, value = next(iter(fields.items()))
                if (entry := _ENTRIES.get(name)) is None:
                    raise ValueError(f"unknown kind of line {name!r}")
                if isinstance(value, list):
                    yield from (entry(fields, mark) for mark in value)
                else:
                    yield entry(fields, value)
            except (ValueError, KeyError, TypeError, StopIteration, AttributeError) as error:
                raise LedgerError(f"{path}, line {number}: {error!r} in {raw[:200]!r}") from error


def _entries(event: Event) -> dict[str, object]:
    names = ("device", "type", "id", "boot", "time", "data")
    return {name: value for name in names if (value := getattr(event, name)) is not None}


_ENTRIES: Mapping[str, Callable[[dict[str, Any], Any], Line]] = {
    "event": lambda fields, mark: Reported(fields["at"], mark, _event(fields)),
    "sent": lambda fields, mark: Sent(fields["at"], mark, fields.get("again", False), fields.get("time")),
    "acked": lambda fields, mark: Acked(fields["at"], mark),
    "refused": lambda fields, mark: Refused(fields["at"], mark, fields["code"]),
    "given_up": lambda fields, mark: GivenUp(fields["at"], mark),
    "fault": lambda fields, part: Happened(fields["at"], part, fields["what"]),
    "sample": lambda fields, values: Sampled(fields["at"], values),
    "run": lambda fields, run: Begun(fields["at"], run),
    "end": lambda fields, _: Ended(fields["at"]),
}
"""What a line says, by its first name; the value of a name is one, or a list of marks."""


def _event(fields: Mapping[str, Any]) -> Event:
    return Event(
        device=fields["device"],
        type=fields.get("type", TYPE_DEFAULT),
        id=fields.get("id"),
        boot=fields.get("boot"),
        time=fields.get("time"),
        data=fields.get("data"),
    )
