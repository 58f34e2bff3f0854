"""A simulated Spark below the real job: micro-batches, the dedup's state, a checkpoint, and a list as the table.

The job's own decisions are the real ones: claim, offsets, the checks of topic and log, batches, receipts, supervision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from cloud.committed import Committed
from cloud.errors import KafkaError
from cloud.runtime.disk import FlushedFolders
from cloud.stream.checkpoint import Claim, PlannedBatch
from cloud.stream.topic_log import LogEnd
from cloud.table.commits import Commit, Offsets
from cloud.table.freshness import Horizon
from cloud.table.sink import Written
from contract.record import STATEMENT, SharedDay
from tests.schedules.kafka.cluster import Cluster
from tests.schedules.kafka.log import Record
from tests.schedules.scheduler import Scheduler
from tests.schedules.threads import Answer, Thread

TRIGGER_SECONDS: Final = 1.0
ANSWER_SECONDS_MAX: Final = 30.0
WINDOW_SECONDS: Final = 8
"""So short that events are fresh soon after the birth of the state, and old soon after that."""
T = TypeVar("T")


class QueryError(Exception):
    """A query has failed, as Spark's own do: records of the plan are gone, or nobody answers."""


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row: the record, and where it was read."""

    partition: int
    offset: int
    record: Record


@dataclass(slots=True)
class Table:
    """The table: its rows, and the metadata of its last commit, which change together."""

    id: str = "table-1"
    rows: list[TableRow] = field(default_factory=list)
    last: Commit | None = None


@dataclass(slots=True)
class CheckpointFolder:
    claim: Claim | None = None
    plans: list[PlannedBatch] = field(default_factory=list)
    done: int = 0
    """How many of them are committed."""
    state: dict[bytes, int] = field(default_factory=dict)
    """The fingerprints that committed batches have seen, and when."""
    starts: Offsets = field(default_factory=dict)
    read_again: bool = False
    """Whether the operator has it begin at the earliest offset."""


class Checkpoint:
    """As cloud.stream.checkpoint.Checkpoint."""

    def __init__(self, scheduler: Scheduler, folder: CheckpointFolder) -> None:
        self._scheduler = scheduler
        self.folder = folder

    def planned(self, batch: int) -> PlannedBatch:
        return self.folder.plans[batch]

    def check_flush(self) -> None:
        pass

    def flush(self, folders: FlushedFolders) -> None:
        self._scheduler.pause("syncfs")

    def latest_batch(self) -> int | None:
        return len(self.folder.plans) - 1 if self.folder.plans else None

    def unfinished(self) -> PlannedBatch | None:
        return self.folder.plans[-1] if len(self.folder.plans) > self.folder.done else None

    def watermark(self) -> int:
        return 0

    def forget_batch_below_watermark(self) -> int | None:
        return None

    def read_claim(self) -> Claim | None:
        self._scheduler.pause("reads claim")
        return self.folder.claim

    def write_claim(self, claim: Claim) -> None:
        self._scheduler.pause("writes claim")
        self.folder.claim = claim
        self._scheduler.pause("wrote claim")


class Sink:
    """A table that takes rows and their offsets in one commit."""

    folders = ()

    def __init__(self, scheduler: Scheduler, table: Table) -> None:
        self._scheduler = scheduler
        self._table = table

    @property
    def id(self) -> str:
        return self._table.id

    def last_commit(self) -> Commit | None:
        return self._table.last

    def last_claim(self) -> int:
        return 0 if self._table.last is None else self._table.last.claim

    def check(self) -> None:
        """Nothing else removes rows, or the table."""

    def claim(self, commit: Commit) -> None:
        self._scheduler.pause("claims")
        self._table.last = commit
        self._scheduler.pause("claimed")

    def write(self, survivors: Survivors, commit: Commit, horizon: Horizon) -> Written:
        new = survivors.evaluate(horizon)
        late = [row for row in new if not is_fresh(row.record, horizon)]
        self._scheduler.pause("looks up")
        known = {fingerprint_of(row.record) for row in self._table.rows}
        found = {fingerprint_of(row.record) for row in late} & known
        rows = [row for row in new if fingerprint_of(row.record) not in found]
        self._scheduler.pause("writes rows")
        self._table.rows.extend(rows)
        self._table.last = commit
        self._scheduler.note(f"table commits {len(rows)} {commit.ends}")
        self._scheduler.pause("wrote rows")
        return Written(len(rows), len(late), 0, len(found))


class KafkaAdmin:
    """As cloud.stream.kafka_admin.KafkaAdmin."""

    def __init__(self, scheduler: Scheduler, cluster: Cluster) -> None:
        self._scheduler = scheduler
        self._cluster = cluster

    def topic_id(self) -> str:
        return self._ask("topic id", lambda: self._cluster.topic_id)

    def offset_ranges(self) -> dict[int, tuple[int, int]]:
        partitions = self._cluster.partitions
        return self._ask("ranges", lambda: {number: (one.low, one.end) for number, one in enumerate(partitions)})

    def stable_ends(self) -> dict[int, int]:
        """Return where Spark's consumer of committed records ends; not of the product's class."""
        partitions = self._cluster.partitions
        return self._ask("stable ends", lambda: {number: one.stable_end for number, one in enumerate(partitions)})

    def ends(self, partitions: Iterable[int]) -> dict[int, LogEnd]:
        return {number: self._ask(f"end {number}", partial(self._end_of, number)) for number in partitions}

    def latest_append(self) -> int:
        logs = self._cluster.partitions
        return self._ask("latest append", lambda: max((one.log[-1].time_ms for one in logs if one.log), default=0))

    def has_append_times(self) -> bool | None:
        return self._ask("append times", lambda: any(one.low < one.end for one in self._cluster.partitions) or None)

    def is_compacted(self) -> bool:
        return False  # without a step: no schedule changes the topic's settings

    def truncations(self, places: Mapping[int, LogEnd]) -> dict[int, str]:
        ends = {
            number: self._ask(f"epoch {number}", partial(self._end_of_epoch, number, place.leader_epoch))
            for number, place in places.items()
        }
        return {number: f"its epoch ends at {end}" for number, end in ends.items() if end < places[number].offset}

    def commit(
        self, group: str, offsets: Offsets, metadata: Mapping[int, str], leader_epochs: Mapping[int, int]
    ) -> None:
        given = {
            number: Committed(offset, leader_epochs.get(number), metadata[number]) for number, offset in offsets.items()
        }
        self._ask("commits offsets", lambda: self._cluster.commit_offsets(given))

    def _end_of(self, number: int) -> LogEnd:
        place = self._cluster.partitions[number]
        return LogEnd(place.end, place.leader_epoch)

    def _end_of_epoch(self, number: int, epoch: int | None) -> int:
        assert epoch is not None
        return self._cluster.partitions[number].end_of(epoch)

    def _ask(self, what: str, perform: Callable[[], T]) -> T:
        answer: Answer[T] = Answer(self._scheduler)
        self._scheduler.pause(what)
        self._cluster.request(f"job {what}", perform, answer.set_result)
        try:
            return answer.result(ANSWER_SECONDS_MAX)
        except TimeoutError:
            raise KafkaError(f"{what}: no answer") from None


class Survivors:
    """The records of a batch that the state has not seen."""

    def __init__(self, query: Query, planned: PlannedBatch) -> None:
        self._query = query
        self._planned = planned

    def evaluate(self, horizon: Horizon) -> list[TableRow]:
        """Read and deduplicate; remember for the state what was read."""
        query, time_ms = self._query, horizon.batch_time_ms
        known = {key for key, seen in query.folder.state.items() if seen > time_ms - 1000 * horizon.window_seconds}
        rows: list[TableRow] = []
        for row in query.read(self._planned):
            key = fingerprint_of(row.record)
            if key not in known:
                known.add(key)
                rows.append(row)
                query.seen[key] = time_ms
        return rows


@dataclass(slots=True)
class Query:
    """A streaming query: plans a batch, has it written, commits it; its consumers fetch ahead."""

    _scheduler: Scheduler
    _admin: KafkaAdmin
    _cluster: Cluster
    folder: CheckpointFolder
    _writer: Callable[[Any, int], None]
    _wall_ms: Callable[[], int]
    _offsets_max: int
    _fetched: dict[tuple[int, int], Record | None] = field(default_factory=dict)
    _stopped: bool = False
    _error: BaseException | None = None
    isActive: bool = True  # noqa: N815  # Spark's name
    seen: dict[bytes, int] = field(default_factory=dict)
    _thread: Thread = field(init=False)

    def __post_init__(self) -> None:
        self._thread = Thread(self._scheduler, self._run, "query")
        self._thread.start()

    def stop(self) -> None:
        self._stopped = True
        self._thread.join()

    def awaitTermination(self) -> None:  # noqa: N802  # Spark's name
        self._thread.join()
        if self._error is not None:
            raise QueryError(str(self._error)) from self._error

    def read(self, planned: PlannedBatch) -> list[TableRow]:
        """Read the planned records; what consumers have fetched ahead is not read again."""
        rows = []
        for number, end in sorted(planned.ends.items()):
            start = planned.starts.get(number, 0)
            if end < start:
                raise QueryError(f"partition {number}: its end has gone back from {start} to {end}")
            for offset in range(start, end):
                if (number, offset) not in self._fetched:
                    self._fetch(number, offset)
                if (record := self._fetched[number, offset]) is not None:
                    rows.append(TableRow(number, offset, record))
        return rows

    def _fetch(self, number: int, offset: int) -> None:
        """Fetch a record and all behind it; what is not committed takes an offset and is none."""
        self._scheduler.pause("fetches")
        place = self._cluster.partitions[number]
        stable = place.stable_end
        if not self._cluster.serves(number) or not place.low <= offset < stable:
            raise QueryError(f"partition {number}: offset {offset} is not there")
        for at in range(offset, stable):
            self._fetched[number, at] = place.log[at] if place.is_visible(at) else None

    def _run(self) -> None:
        try:
            while not self._stopped:
                if not self._run_batch():
                    self._scheduler.wait(TRIGGER_SECONDS, "trigger")
        except Exception as error:  # noqa: BLE001  # handed to whoever awaits the query
            self._error = error
        self.isActive = False

    def _run_batch(self) -> bool:
        folder = self.folder
        if len(folder.plans) == folder.done and not self._plan():
            return False
        batch, self.seen = folder.done, {}
        self._writer(Survivors(self, folder.plans[batch]), batch)
        self._scheduler.pause("commits batch")
        folder.state |= self.seen
        folder.done += 1
        self._scheduler.pause("committed batch")
        return True

    def _plan(self) -> bool:
        folder = self.folder
        starts = folder.plans[-1].ends if folder.plans else folder.starts
        latest = self._admin.stable_ends()
        # At most so many of each partition; and an end below the start is taken as it is, as by Spark.
        ends = {number: min(end, starts.get(number, 0) + self._offsets_max) for number, end in latest.items()}
        if ends == starts:
            return False
        self._scheduler.pause("plans")
        times = [plan.time_ms + 1 for plan in folder.plans[-1:]]
        folder.plans.append(PlannedBatch(len(folder.plans), max(self._wall_ms(), *times, 1), 0, dict(starts), ends))
        self._scheduler.pause("planned")
        return True


def fingerprint_of(record: Record) -> bytes:
    return dict(record.headers)["ce_id"]


def is_fresh(record: Record, horizon: Horizon) -> bool:
    """Return what cloud.table.freshness has Spark compute."""
    words = dict(record.headers)[STATEMENT].decode().split(" ")
    received, clock, shared, bound = int(words[3]), words[4], words[5], words[6]
    if horizon.overlaps or clock != "trusted" or shared == SharedDay.NONE or bound == "-":
        return False
    skew, existed = horizon.skew_ms, int(bound)
    return (
        existed >= horizon.birth_ms + skew
        and received <= record.time_ms + skew
        and existed <= received + skew
        and existed <= horizon.latest_ms
        and record.time_ms < horizon.latest_ms
        and existed > horizon.batch_time_ms - horizon.window_seconds * 1000 + skew
    )
