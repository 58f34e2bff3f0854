"""True histories: random runs of sensors and correct gateways, with their topic and table.

The model shares no code with the product or the oracle: a gateway labels events that it has not stored, loses the
memory that an older copy of its card lacks, forwards in order and repeats the end; the table has each fingerprint once.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from hypothesis import strategies as st

from contract.event import Event
from simulators.evidence.row import Row
from simulators.ledger import Acked, GivenUp, Happened, Line, Refused, Reported, Sent
from simulators.oracle.evidence_database import RESTORED
from simulators.oracle.verdict import Scope
from simulators.payloads import KnownBy, identified_by
from tests.simulators.oracle.judged_field import NOW

DEVICES = (KnownBy.ID, KnownBy.TIME, KnownBy.NEITHER, KnownBy.ID)
"""The identification of each device's events; the last device repeats its ids."""
VALUES = 3
"""Number of different readings: most are equal to an earlier one."""
REPEATED = 3
"""Largest number of records that a forwarder sends again."""
STEP_MILLISECONDS = 2_000


@dataclass(slots=True)
class PendingEvent:
    """An event that is neither acked, refused nor given up."""

    mark: int
    event: Event
    requests: int = 0


class Model:
    """Of the methods, STEPS are taken where they are possible; a choice decides their details."""

    def __init__(self, gateways: int) -> None:
        self.gateways = gateways
        self.lines: list[Line] = []
        self.topic: list[Row] = []
        self.pending: dict[int, PendingEvent] = {}
        self.reported = 0
        self.now = NOW
        self.epochs = 0
        self.cards: list[set[object]] = [set() for _ in range(gateways)]
        """The memory of each gateway: known events and recognisable requests."""
        self.copies: list[set[object] | None] = [None] * gateways
        self.outboxes: list[list[Row]] = [[] for _ in range(gateways)]
        self.labels = [("", 0)] * gateways
        for gateway in range(gateways):
            self._begin_epoch(gateway)

    def play(self, step: "Step", device: int, choice: int) -> None:
        self.now += STEP_MILLISECONDS
        step(self, device, choice)

    def finish(self) -> list[Row]:
        """End sensors and forwarders, and return the table."""
        for device in list(self.pending):
            self.end(device, 1)
        for gateway in range(self.gateways):
            self._forward_all(gateway)
        rows: dict[str | None, Row] = {}
        for record in self.topic:
            rows.setdefault(record.fingerprint, record._replace(at=self.now))
        return list(rows.values())

    def report(self, device: int, choice: int) -> None:
        if device in self.pending:
            return
        self.reported += 1
        kind = DEVICES[device]
        count = self.reported // 2 if device == len(DEVICES) - 1 else self.reported
        event = Event(
            f"urn:dev:{device}",
            id=(str(count) if choice % 5 == 0 else count) if kind is KnownBy.ID else None,
            time=self.now if kind is KnownBy.TIME else None,
            data={"t": choice % VALUES, **({"n": self.reported} if device == len(DEVICES) - 1 else {})},
        )
        self.pending[device] = PendingEvent(self.reported, event)
        self.lines.append(Reported(self.now, self.reported, event))

    def send(self, device: int, choice: int, *, again: bool = False) -> None:
        """Send; the bits of the choice decide which gateways receive it, and whether the sensor receives the ACK."""
        pending = self.pending.get(device)
        if pending is None:
            return
        again = again and pending.requests > 0
        pending.requests += not again
        self.lines.append(Sent(self.now, pending.mark, again))
        heard = [gateway for gateway in range(self.gateways) if choice >> (gateway + 1) & 1]
        for gateway in heard:
            self._receive(gateway, pending)
        if heard and choice & 1:
            self.lines.append(Acked(self.now, pending.mark))
            del self.pending[device]

    def send_again(self, device: int, choice: int) -> None:
        self.send(device, choice, again=True)

    def _receive(self, gateway: int, pending: PendingEvent) -> None:
        event = pending.event
        is_neither = identified_by(event) is KnownBy.NEITHER
        identity: object = (pending.mark, pending.requests) if is_neither else repr(event)
        known = self.cards[gateway]
        if identity in known:
            return
        known.add(identity)
        epoch, sequence = self.labels[gateway]
        self.labels[gateway] = epoch, sequence + 1
        name = f"{epoch} {sequence + 1}" if is_neither else repr(event)
        label = (epoch, sequence + 1, int(event.device[-1]) % 2, None, name, None, f"gw{gateway + 1}")
        record = Row(event.device, event.type, event.id, event.time, event.data, event.boot, *label)
        self.outboxes[gateway].append(record)

    def end(self, device: int, choice: int) -> None:
        """Record the event as given up; or as refused, where its only request reached no gateway."""
        pending = self.pending.pop(device, None)
        if pending is None:
            return
        forwarded = [*self.topic, *(record for outbox in self.outboxes for record in outbox)]
        unheard = all(record.data != pending.event.data or record.id != pending.event.id for record in forwarded)
        refused = unheard and pending.requests == 1 and choice % 2 == 0
        self.lines.append(Refused(self.now, pending.mark, "4.00") if refused else GivenUp(self.now, pending.mark))

    def forward(self, _: int, choice: int) -> None:
        """Forward the head of the outbox, after an optional repeat of the last records."""
        count, gateway = divmod(choice, self.gateways)
        outbox = self.outboxes[gateway]
        sent, self.outboxes[gateway] = outbox[:count], outbox[count:]
        repeated = [record for record in self.topic if record.gateway == f"gw{gateway + 1}"][-(choice % REPEATED) :]
        for record in (*(repeated if choice % REPEATED else ()), *sent):
            self.topic.append(record._replace(offset=len(self.topic), at=self.now))

    def _forward_all(self, gateway: int) -> None:
        self.forward(0, len(self.outboxes[gateway]) * self.gateways + gateway)

    def restart(self, _: int, choice: int) -> None:
        self._begin_epoch(choice % self.gateways)

    def back_up(self, _: int, choice: int) -> None:
        gateway = choice % self.gateways
        self.copies[gateway] = self.cards[gateway].copy()

    def restore(self, _: int, choice: int) -> None:
        gateway = choice % self.gateways
        copy = self.copies[gateway]
        if copy is None:
            return
        self._forward_all(gateway)
        self.cards[gateway] = copy.copy()
        self.lines.append(Happened(self.now, "agent", RESTORED))
        self._begin_epoch(gateway)

    def _begin_epoch(self, gateway: int) -> None:
        self.epochs += 1
        self.labels[gateway] = f"epoch {self.epochs}", 0


@dataclass(frozen=True, slots=True)
class Run:
    """The result of a run: ledger, topic, table, and scope."""

    lines: list[Line]
    topic: list[Row]
    table: list[Row]
    scope: Scope


Step = Callable[[Model, int, int], None]
_COMMON: tuple[Step, ...] = (Model.report, Model.send, Model.send, Model.send_again, Model.forward)
STEPS: tuple[Step, ...] = (*_COMMON * 4, Model.end, Model.restart, Model.back_up, Model.restore)
_STEPS_MAX = 150


@st.composite
def true_histories(draw: st.DrawFn) -> Run:
    model = Model(gateways=draw(st.integers(1, 2)))
    random = Random(draw(st.integers(0, 1 << 32)))
    for _ in range(draw(st.integers(20, _STEPS_MAX))):
        model.play(random.choice(STEPS), random.randrange(len(DEVICES)), random.randrange(32))
    table = model.finish()
    return Run(model.lines, model.topic, table, Scope(gateways=model.gateways, one_clock=True))
