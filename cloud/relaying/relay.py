"""Looks at the groups, and gives the receipts of what all of them have done."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import NAMESPACE_URL, uuid5

from cloud.committed import Committed, objection
from cloud.errors import StopError
from cloud.relaying.group import FollowedGroup, GroupView
from cloud.stream.group_kafka import GroupKafka
from cloud.stream.receipts import Receipts
from cloud.stream.topic_log import COMPACTED, LogEnd, ReadLog
from cloud.table.commits import Commit, Offsets
from contract.receipt import parse

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RelaySettings:
    """The options of the command line."""

    bootstrap_servers: str
    topic: str
    groups: tuple[str, ...]
    without_members: tuple[str, ...]
    """Groups whose programs commit without joining them."""
    receipts_group: str
    succeeds: str | None
    metrics: tuple[str, int] | None
    properties: dict[str, str]

    @property
    def table(self) -> str:
        """Return the name of the result in the receipts: that of these groups, in any order."""
        return str(uuid5(NAMESPACE_URL, "oncegate:relay:" + "\0".join(sorted((*self.groups, *self.without_members)))))


class RelayLog(ReadLog):
    """Checks that the log is the one that the groups have read."""

    if_truncated = if_replaced = "Find out why, and what each consumer has read of it; then start the relay"


class Relay:
    """The state of one run: what each group is known to have read."""

    def __init__(self, kafka: GroupKafka, settings: RelaySettings) -> None:
        self._kafka = kafka
        self._settings = settings
        if kafka.is_compacted():
            raise StopError(f"topic {settings.topic}: {COMPACTED}")
        self._topic_id = kafka.topic_id()
        self._log = RelayLog(kafka, settings.topic)
        # What a group commits is durable by its own promise.
        self._receipts = Receipts(kafka, self._log, settings.receipts_group, settings.succeeds)
        names = [*((name, True) for name in settings.groups), *((name, False) for name in settings.without_members)]
        self.groups = [FollowedGroup(name, self._topic_id, joins) for name, joins in names]
        self._own = self._own_receipts()
        self._given = self._commit({}, {}, {})
        self.waiting: dict[int, str] = {}
        """Partitions without a receipt, with the group that has not committed there."""

    def look(self) -> None:
        """Look at the groups once, and give the receipts that follow; raise StopError where none can be given."""
        partitions = self._kafka.partitions()
        self._log.check(self._read({}), {})  # a topic made anew is the reason for all else
        self._check_receipts_group(partitions)
        epochs: list[Offsets] = []
        for group in self.groups:
            before = self._kafka.members(group.name)
            places = self._kafka.committed(group.name, partitions)
            earliest = self._kafka.earliest(partitions)  # what is deleted by now, nobody need have read
            group.follow(GroupView(before, places, self._kafka.members(group.name)), self._own, earliest)
            epochs.append(self._prove(group))
        self._note_waiting(partitions)
        begun = [p for p in partitions if p not in self.waiting]
        first = {p: max(group.since[p] for group in self.groups) for p in begun}
        ends = {p: max(first[p], min(group.offsets[p] for group in self.groups)) for p in begun}
        commit = self._commit(ends, first, {p: min(proven[p] for proven in epochs) for p in begun})
        for partition in sorted(p for p in begun if first[p] != self._given.first.get(p)):
            logger.info("stage=first partition=%d first=%d", partition, first[partition])
        if commit == self._given:
            self._receipts.repeat()
        else:
            self._given = commit
            self._receipts.commit(commit)

    def _prove(self, group: FollowedGroup) -> Offsets:
        """Return the leader epochs under which the log reaches a group's offsets and holds its records."""
        places = group.places_to_check()
        epochs = self._log.check(self._read(places), group.offsets)
        group.prove(epochs)
        return epochs

    def _read(self, places: Mapping[int, LogEnd]) -> Commit:
        ends = {partition: place.offset for partition, place in places.items()}
        epochs = {partition: place.leader_epoch for partition, place in places.items()}
        return self._commit(ends, {}, {p: epoch for p, epoch in epochs.items() if epoch is not None})

    def _commit(self, ends: Offsets, first: Offsets, epochs: Offsets) -> Commit:
        return Commit(
            *(self._settings.table, "", 0, 0, self._settings.topic, self._topic_id), {}, ends, first, epochs=epochs
        )

    def _own_receipts(self) -> dict[int, Committed]:
        """Return the receipts from before this start, unless the log has lost their records."""
        found = self._kafka.committed(self._settings.receipts_group, self._kafka.partitions())
        own = {p: one for p, one in found.items() if not objection(one, self._settings.table, self._topic_id)}
        try:
            self._log.check(self._read({p: LogEnd(one.offset, one.leader_epoch) for p, one in own.items()}), {})
        except StopError as error:
            logger.warning("stage=begin receipts=ignored reason=%r", str(error))
            return {}
        return own

    def _check_receipts_group(self, partitions: Sequence[int]) -> None:
        known = {self._settings.table, *(self._settings.succeeds or "").split(",")}
        for partition, one in self._kafka.committed(self._settings.receipts_group, partitions).items():
            receipt = parse(one.metadata)
            if receipt is not None and receipt.topic_id == self._topic_id and receipt.table not in known:
                raise StopError(
                    f"group {self._settings.receipts_group}, partition {partition}: it has receipts of table "
                    f"{receipt.table}, by another program. Let that program use a group of its own and add it by "
                    f"--group; then start the relay with --succeeds {receipt.table}"
                )

    def _note_waiting(self, partitions: Sequence[int]) -> None:
        waiting = {
            partition: group.name for group in self.groups for partition in partitions if partition not in group.since
        }
        for partition, name in waiting.items():
            if self.waiting.get(partition) != name:
                logger.warning(
                    "stage=waiting partition=%d group=%s reason='it has committed no offset there'", partition, name
                )
        self.waiting = waiting
