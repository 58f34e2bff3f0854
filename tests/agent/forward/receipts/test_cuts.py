"""A broker that loses the end of its logs in a power cut, while sessions and receipts continue."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import pytest

from simulators.services.kafka.broker import Broker
from tests.agent.forward.broker import KafkaTopic, sequence
from tests.agent.forward.checks import wait_until_forwarded
from tests.agent.forward.events import readings
from tests.agent.forward.running import forwarding, receipting
from tests.support.memory_outbox import MemoryOutbox
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

MODES = ("at-least-once", "exactly-once")
BURSTS, BURST_EVENTS = 4, 5
LATER_EVENTS = 40
"""More than before: the log grows beyond every cut."""
BYTES_OF_A_BATCH_LENGTH = slice(8, 12)
BATCH_LENGTH_FROM = 12
"""In a log, a record batch has its base offset, the length of the rest, and this number of bytes."""

Cut = Callable[[bytes], int]
"""Where a log is cut: the number of remaining bytes."""


@dataclass
class Line:
    """A gateway with a topic of its own, and the offsets that its table has read."""

    mode: str
    cut: Cut
    kafka: KafkaTopic
    outbox: MemoryOutbox = field(default_factory=MemoryOutbox)
    read: set[int] = field(default_factory=set)

    @property
    def gateway(self) -> str:
        return f"gw-{self.kafka.topic}"

    @property
    def log(self) -> str:
        return f"{self.kafka.topic}-0"

    def receipt(self) -> None:
        """Read all records, and commit a receipt for those; the session may send more meanwhile."""
        end = self.kafka.ends()[0]
        self.read |= {sequence(record) for record in self.kafka.records()}
        self.kafka.commit(end, self.kafka.receipt())

    def settled(self) -> bool:
        """Commit a receipt for all forwarded events; return whether nothing is outstanding."""
        if self.outbox.new == 0 and self.outbox.forwarded():
            self.receipt()
        return self.outbox.new == 0 and not self.outbox.forwarded()


def bounds(log: bytes) -> list[int]:
    """Return the offsets of the record batches, and the end of the last one."""
    found = [0]
    while found[-1] + BATCH_LENGTH_FROM < len(log):
        length = int.from_bytes(log[found[-1] :][BYTES_OF_A_BATCH_LENGTH])
        if not length:  # the rest was allocated, and never written
            break
        found.append(found[-1] + BATCH_LENGTH_FROM + length)
    return found


def at_bound(number: int) -> Cut:
    """Cut after this number of record batches."""
    return lambda log: bounds(log)[min(number, len(bounds(log)) - 1)]


def within(number: int) -> Cut:
    """Cut within a record batch."""
    return lambda log: at_bound(number)(log) + (at_bound(number + 1)(log) - at_bound(number)(log)) // 2


def line_side(broker: Broker, topic: str) -> KafkaTopic:
    """Open new clients after a restart, since one that has lost a coordinator may not find one again."""
    side = KafkaTopic(broker.bootstrap_servers, topic)
    side.partitions = 1
    return side


FEW_CUTS = (at_bound(0), at_bound(2), within(1))
EVERY_CUT = tuple(cut(number) for number in range(2 * BURSTS + 1) for cut in (at_bound, within))
"""At each end of a record batch, and within each: a restarted broker removes an incomplete batch. The markers of
transactions are batches, too."""


@contextmanager
def lines(broker: Broker, cuts: Sequence[Cut]) -> Iterator[list[Line]]:
    """Yield gateways of both modes, one for each cut, with running forwarders; a topic of one partition each."""
    if not broker.running:
        broker.start()
    made = [Line(mode, cut, line_side(broker, f"cut.{uuid4().hex}")) for mode in MODES for cut in cuts]
    with ExitStack() as stack:
        for line in made:
            line.kafka.create_topic()
            stack.enter_context(forwarding(line.kafka.settings(line.mode), line.outbox, line.gateway))
        yield made


def send_bursts(made: Sequence[Line], first: int = 0, count: int = BURSTS) -> None:
    """Forward events in bursts, so that the logs have several record batches, and wait until the broker has them."""
    for burst in range(first, first + count):
        for line in made:
            line.outbox.append(*readings(BURST_EVENTS, burst * BURST_EVENTS))
        for line in made:
            wait_until_forwarded(line.outbox)


def lose(broker: Broker, made: Sequence[Line], *, bare: bool = False) -> None:
    """Kill the broker and start it with truncated logs; `bare`: with the log files alone."""
    broker.kill()
    for line in made:
        folder = broker.data_folder / line.log
        for file in folder.iterdir():
            if file.suffix == ".log":
                _shorten(file, line.cut)
            elif bare and file.name != "partition.metadata":
                file.unlink()
    broker.start()
    for line in made:
        line.kafka = line_side(broker, line.kafka.topic)


def _shorten(file: Path, cut: Cut) -> None:
    whole = file.read_bytes()
    with file.open("r+b") as log:
        log.truncate(cut(whole))


def grow_again(made: Sequence[Line]) -> None:
    """Send more events than were lost, with the same sessions if they still run."""
    for line in made:
        line.outbox.append(*readings(LATER_EVENTS, 1_000))
    for line in made:
        wait_until_forwarded(line.outbox)


def assert_nothing_is_processed_that_the_table_has_not_read(made: Sequence[Line]) -> None:
    with ExitStack() as stack:
        for line in made:
            stack.enter_context(receipting(line.kafka.settings(line.mode), line.outbox, line.gateway))
        for line in made:
            wait_until(line.settled, "everything has its receipt")
    for line in made:
        stored = {event.position for event in line.outbox.stored()}
        assert line.read == stored, f"{line.mode}: lost {sorted(stored - line.read)}"


@pytest.mark.guarantee(4)
@pytest.mark.heavy
@pytest.mark.parametrize("cuts", [FEW_CUTS, pytest.param(EVERY_CUT, marks=pytest.mark.heavy)], ids=["few", "every"])
@pytest.mark.parametrize("bare", [False, pytest.param(True, marks=pytest.mark.heavy)])
def test_what_a_broker_has_lost_below_an_idle_session_is_sent_again(
    broker: Broker, cuts: Sequence[Cut], bare: bool
) -> None:
    with lines(broker, cuts) as made:
        send_bursts(made)
        lose(broker, made, bare=bare)
        grow_again(made)
        assert_nothing_is_processed_that_the_table_has_not_read(made)


@pytest.mark.guarantee(4)
@pytest.mark.heavy
@pytest.mark.parametrize("cuts", [FEW_CUTS, pytest.param(EVERY_CUT, marks=pytest.mark.heavy)], ids=["few", "every"])
def test_what_a_broker_has_lost_between_acks_and_their_mark_is_sent_again(
    broker: Broker, cuts: Sequence[Cut], monkeypatch: pytest.MonkeyPatch
) -> None:
    with lines(broker, cuts) as made:
        send_bursts(made, count=1)
        with monkeypatch.context() as patch:
            patch.setattr("agent.forward.delivery.confirmation.CONFIRM_MS", 10**9)
            for line in made:
                line.outbox.append(*readings((BURSTS - 1) * BURST_EVENTS, BURST_EVENTS))
            for line in made:
                wait_until(
                    lambda line=line: line.kafka.ends()[0] >= BURSTS * BURST_EVENTS,  # type: ignore[misc]
                    "the broker has them all",
                )
            lose(broker, made)
        grow_again(made)
        assert_nothing_is_processed_that_the_table_has_not_read(made)
