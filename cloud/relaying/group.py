"""From which offset on a group is known to have read each partition: pure rules, no I/O."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from cloud.committed import Committed, objection
from cloud.errors import StopError
from cloud.stream.topic_log import LogEnd
from cloud.table.commits import Offsets
from contract.receipt import Receipt, parse

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group's offsets at one time, and its members before and after that time."""

    before: frozenset[str]
    places: Mapping[int, Committed]
    after: frozenset[str]


@dataclass(slots=True)
class FollowedGroup:
    """A group, as all looks of this process have found it.

    Kafka lets nobody but members commit while a group has members. So an offset moved by the group's own work if one
    member was there before the last look and after this one.
    """

    name: str
    _topic_id: str
    _has_members: bool
    _seen: GroupView | None = None
    _proven: dict[int, LogEnd] = field(default_factory=dict)
    """The offset of the latest look, and the leader epoch under which the log was found to reach it unchanged."""
    since: Offsets = field(default_factory=dict)
    """The lowest offset from which on the group is known to have read, by partition."""

    def follow(self, view: GroupView, own: Mapping[int, Committed], earliest: Offsets) -> None:
        """Take in a look; `own` are the relay's receipts of before its start.

        Raise StopError where it cannot be said what the group has read.
        """
        seen = self._seen or GroupView(frozenset(), {}, frozenset())
        for partition in sorted(seen.places.keys() - view.places.keys()):
            raise StopError(f"group {self.name}, partition {partition}: its offset was deleted, or has expired")
        for partition, place in view.places.items():
            was = seen.places.get(partition)
            if was is not None and place.offset < was.offset:
                raise StopError(
                    f"group {self.name}, partition {partition}: its offset has gone back from {was.offset} to "
                    f"{place.offset}"
                )
            stated = self._stated(partition, place, was)
            if stated is not None:
                self.since[partition] = stated
            elif was is None:
                self.since[partition] = _begin(place, own.get(partition))
            elif place.offset != was.offset and not self._is_own_work(partition, seen, view, earliest[partition]):
                logger.warning(
                    "stage=raised group=%s partition=%d first=%d reason='it may have skipped records from %d on'",
                    *(self.name, partition, place.offset, was.offset),
                )
                self.since[partition] = place.offset
        self._seen = view

    def places_to_check(self) -> dict[int, LogEnd]:
        """Return offsets that the log must reach, and the leader epochs under which it did.

        Without a leader epoch beside the group's offset, that is the offset of the last look. Where nothing below an
        offset is stated, the log may have lost it.
        """
        assert self._seen is not None
        places = {}
        for partition, place in self._seen.places.items():
            proven = self._proven.get(partition)
            if proven is not None and (place.leader_epoch is None or proven.offset == place.offset):
                places[partition] = proven
            else:
                is_stated = self.since[partition] < place.offset
                places[partition] = LogEnd(place.offset, place.leader_epoch if is_stated else None)
        return places

    def prove(self, epochs: Offsets) -> None:
        """Note under which leader epochs the log reaches the offsets of the last look."""
        assert self._seen is not None
        self._proven = {p: LogEnd(place.offset, epochs.get(p)) for p, place in self._seen.places.items()}

    @property
    def offsets(self) -> Offsets:
        return {} if self._seen is None else {p: place.offset for p, place in self._seen.places.items()}

    def _stated(self, partition: int, place: Committed, was: Committed | None) -> int | None:
        """Return the offset since which the result has no gap, by the group's own receipt; None without one."""
        receipt = parse(place.metadata)
        if receipt is None:
            return None
        if reason := objection(place, receipt.table, self._topic_id):
            raise StopError(f"group {self.name}, partition {partition}: its receipt does not count: {reason}")
        before = None if was is None else parse(was.metadata)
        if before is not None and before.table not in (receipt.table, *receipt.succeeded):
            raise StopError(
                f"group {self.name}, partition {partition}: its receipts are of table {receipt.table}, which does not "
                f"succeed {before.table}"
            )
        return receipt.first

    def _is_own_work(self, partition: int, seen: GroupView, view: GroupView, earliest: int) -> bool:
        """Whether the group has read all records up to its new offset; False where it may have skipped some.

        A client whose next record was deleted goes on where its auto.offset.reset says, perhaps at the end.
        """
        if seen.places[partition].offset < earliest:
            return False
        if not self._has_members or seen.before & view.after:
            return True
        if seen.before or seen.after or view.before or view.after:
            return False
        raise StopError(
            f"group {self.name}, partition {partition}: its offset was moved from {seen.places[partition].offset} to "
            f"{view.places[partition].offset} while it had no members: a reset. A program that commits without joining "
            f"the group, such as Flink, needs --without-members {self.name}"
        )


def _begin(place: Committed, own: Committed | None) -> int:
    """Return a group's beginning at its first look: the relay's earlier one, if the offset is still its receipt."""
    receipt: Receipt | None = None if own is None or own.offset != place.offset else parse(own.metadata)
    return place.offset if receipt is None else receipt.first
