"""The account of one event: sentences in the order of its path, its status, and the next step."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from cloud.runtime.outcome import counted
from cloud.table.layout import Reason
from cloud.tracing.facts import EpochFacts, Evidence, Label, Record, Row, TopicSearch, Wanted
from contract.timestamp import rfc3339

PLACES_MAX = 5
"""The largest number of records that a sentence names."""


class Status(StrEnum):
    """What has become of an event."""

    ACCEPTED = "in the table"
    DUPLICATE = "a duplicate of an event in the table"
    QUARANTINED = "in quarantine"
    UNPROCESSED = "in the topic, and not processed yet"
    UNWRITTEN = "receipted, and not in the table"
    VANISHED = "vanished from the table"
    LOST = "declared as lost by its gateway"
    MISSING = "missing: later events have arrived, this one has not"
    AHEAD = "not arrived yet"
    UNKNOWN = "unknown"


IN_TABLE = (Status.ACCEPTED, Status.DUPLICATE)


@dataclass(frozen=True, slots=True)
class Account:
    """What has become of an event; each step is a place of its path with a sentence."""

    status: Status
    steps: Sequence[tuple[str, str]]
    advice: str
    fingerprint: str | None = None
    label: Label | None = None


def account(evidence: Evidence) -> Account:
    """Judge the evidence about one event."""
    status = judge(evidence)
    path = {
        "gateway": _gateway,
        "topic": _topic,
        "receipt": _receipts,
        "table": _table,
        "quarantine": _quarantine,
        "audit": _audit,
    }
    steps = [(place, text) for place, sentences in path.items() for text in sentences(evidence)]
    return Account(status, steps, advice(status, evidence), fingerprint_of(evidence), label_of(evidence))


def label_of(evidence: Evidence) -> Label | None:
    """Return the event's label: the wanted one, or else that of its row or of its first record."""
    return next(filter(None, (one.label for one in _known(evidence))), None)


def fingerprint_of(evidence: Evidence) -> str | None:
    """Return the event's fingerprint, where it is known."""
    return next(filter(None, (one.fingerprint for one in _known(evidence))), None)


def _known(evidence: Evidence) -> list[Wanted | Row | Record]:
    return [evidence.wanted, *evidence.rows, *evidence.search.records]


def judge(evidence: Evidence) -> Status:
    """Return what has become of the event."""
    wanted, audited, records = evidence.wanted.label, evidence.audited, evidence.search.records
    if any(wanted in {None, row.label} for row in evidence.rows):
        return Status.ACCEPTED
    if evidence.quarantined:
        return Status.QUARANTINED
    if evidence.rows:
        return Status.DUPLICATE
    if audited is not None and (audited.duplicate_of or {"accepted", "vanished"} & set(audited.statuses)):
        return Status.VANISHED
    ends = {partition: found for partition, found in evidence.receipts.items() if isinstance(found, int)}
    if records and all(ends.get(one.partition, 0) <= one.offset for one in records):
        return Status.UNPROCESSED
    if records or (audited is not None and audited.unwritten is not None):
        return Status.UNWRITTEN
    return Status.LOST if evidence.gaps else _without_record(wanted, evidence.epoch)


def _without_record(label: Label | None, epoch: EpochFacts | None) -> Status:
    """Judge a label without row, record and gap by the other labels of its epoch."""
    if label is None or epoch is None or not epoch.knows_gateway:
        return Status.UNKNOWN
    if label.sequence <= max(epoch.last or 0, epoch.ended or 0):
        return Status.MISSING
    return Status.AHEAD if epoch.ended is None else Status.UNKNOWN


def _gateway(evidence: Evidence) -> Iterator[str]:
    label, epoch = label_of(evidence), evidence.epoch
    if label is None or epoch is None:
        return
    for gap in evidence.gaps[:PLACES_MAX]:
        labels = f"{label.epoch} {gap.first}" + ("" if gap.first == gap.last else f" to {gap.last}")
        yield f"{label.gateway} has declared {labels} as lost at {rfc3339(gap.declared)}: {gap.reason}."
    if not epoch.knows_gateway:
        yield f"The table has no event by which a gateway {label.gateway} has started."
    elif epoch.last is None and not evidence.search.records:
        yield f"The table has no event of this epoch of {label.gateway}."
    elif not evidence.rows and not evidence.gaps:
        last = "none of its epoch" if epoch.last is None else f"its epoch up to {epoch.last}"
        ends = "" if epoch.ended is None else f"; its next epoch states that this one ended with {epoch.ended}"
        yield f"{label.gateway} has declared no gap here; the table has {last}{ends}."


def _topic(evidence: Evidence) -> Iterator[str]:
    search = evidence.search
    for record in search.records[:PLACES_MAX]:
        by = f", by {record.label}" if record.label is not None else ""
        place = f"partition {record.partition} offset {record.offset}"
        yield f"It is at {place}, appended at {rfc3339(record.appended)}{by}."
    if len(search.records) > PLACES_MAX:
        yield f"It is there {len(search.records) - PLACES_MAX} more times."
    if not search.records:
        gone = [row for row in evidence.rows if row.offset < search.ends.get(row.partition, (0, 0, 0))[0]]
        yield f"Not found{': retention has deleted it' if gone else ''}. {reach(search)}"
    elif not search.read_all:
        yield reach(search)


def reach(search: TopicSearch) -> str:
    """Return how far back the topic was searched."""
    if not any(first < end for _, first, end in search.ends.values()):
        return f"There was no record in {search.topic} to be read."
    since = "" if search.earliest is None else f" since {rfc3339(search.earliest)}"
    if not search.finished:
        return f"The search in {search.topic}{since} ended before the latest records."
    if search.read_all:
        return f"All records of {search.topic} were read; it has those{since}."
    return f"The records of {search.topic}{since} were read; it has older ones (--records)."


def _receipts(evidence: Evidence) -> Iterator[str]:
    for record in evidence.search.records[:PLACES_MAX]:
        committed = evidence.receipts.get(record.partition)
        if isinstance(committed, str):
            what = f"What group {evidence.group} has committed of partition {record.partition}"
            yield f"{what} is no receipt: {committed}."
            continue
        if committed is None:
            yield f"Group {evidence.group} has no receipt of partition {record.partition}."
            continue
        below = f"Group {evidence.group} has receipted partition {record.partition} below offset {committed}"
        behind = record.offset - committed + 1
        yield f"{below}, {'this record too' if behind <= 0 else counted(behind, 'offset') + ' short of this record'}."


def _table(evidence: Evidence) -> Iterator[str]:
    for row in evidence.rows[:PLACES_MAX]:
        place = f"partition {row.partition} offset {row.offset}"
        yield f"It has the event since {rfc3339(row.processed)}, of {row.device}, as {row.label}, from {place}."
        copies = sum((one.partition, one.offset) != (row.partition, row.offset) for one in evidence.search.records)
        if copies:
            yield f"It is not repeated for {counted(copies, 'further record')} of the topic."
    if len(evidence.rows) > 1:
        yield f"It has {len(evidence.rows)} such rows: oncegate-cloud audit names doubled events and labels."
    if not evidence.rows:
        yield "The event is not in the table."


def _quarantine(evidence: Evidence) -> Iterator[str]:
    for one in evidence.quarantined[:PLACES_MAX]:
        place = f"partition {one.partition} offset {one.offset}"
        yield f"The record of {place} is there since {rfc3339(one.at)}: reason {one.reason}."


def _audit(evidence: Evidence) -> Iterator[str]:
    audited = evidence.audited
    if audited is None:
        return
    if audited.duplicate_of is not None:
        yield f"It has found the record to be a duplicate of {audited.duplicate_of}."
    if audited.unwritten is not None:
        partition, offset = audited.unwritten
        yield f"It has found the record of partition {partition} offset {offset} receipted and not in the table."
    if audited.statuses:
        yield f"Its status of the label: {', '.join(audited.statuses)}."
    elif audited.duplicate_of is None and audited.unwritten is None:
        ends = ", ".join(f"{partition}: {end}" for partition, end in sorted(audited.ends.items())[:PLACES_MAX])
        yield f"It does not know the event; it has read below the offsets (by partition) {ends or 'none'}."


def advice(status: Status, evidence: Evidence) -> str:
    """Return the next step."""
    label, fingerprint = label_of(evidence), fingerprint_of(evidence)
    gateway = "the gateway" if label is None else label.gateway
    names = "" if label is None else f" --epoch {label.epoch} --from {label.sequence} --to {label.sequence}"
    again = f"on {gateway}, as long as it keeps the event: sudo oncegate replay{names}"
    ask = "events --device DEVICE" if fingerprint is None else f"trace {fingerprint}"
    restore = "start the job with a new checkpoint and --read-again, which writes what the topic still has"
    if any(one.reason == Reason.ID_REUSED for one in evidence.quarantined) and status is Status.QUARANTINED:
        return "The device has used an id again; the earlier event is in the table. Let it send boot or time as well."
    done = "Nothing is to be done. A reader that misses it filters the table, or has not read it since."
    return {
        Status.ACCEPTED: done,
        Status.DUPLICATE: done,
        Status.QUARANTINED: f"The record is not as a gateway writes it. If one has sent it, send it again, {again}",
        Status.UNPROCESSED: "The job has not come so far. Does it run? systemctl status oncegate-cloud",
        Status.UNWRITTEN: f"Who has removed the row, or moved the group's offsets? Then {restore}.",
        Status.VANISHED: f"Who has removed the row (table's history, server's log)? Then {restore}, or, {again}",
        Status.LOST: "It will not arrive. docs/runbook.md, OncegateEventsDeclaredLost, explains the reasons.",
        Status.MISSING: f"Was the gateway's disk lost or replaced? If not, send it again, {again}",
        Status.AHEAD: f"Is {gateway} connected? There: sudo oncegate status",
        Status.UNKNOWN: f"Nobody here knows it. Ask the gateway: sudo oncegate {ask}; and sudo oncegate rejected",
    }[status]


def counts(accounts: Sequence[Account]) -> str:
    """Return how many events have which status."""
    found = Counter(one.status for one in accounts)
    return ", ".join(f"{number} {status}" for status, number in found.items()) or "no event"
