"""What the table and its quarantine know, asked as `oncegate-cloud query` does."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cloud.query import Answer
from cloud.tracing.facts import EpochFacts, Gap, Label, Quarantined, Record, Row, Span, Wanted
from contract.record import VALUE_PREFIX

ROWS_MAX = 1_000
"""The largest number of rows of each answer."""
_GAP, _STARTED = "gateway.gap", "gateway.started"


@dataclass(frozen=True, slots=True)
class Dialect:
    """Expressions of one database; texts are written as hex, so that nothing in them is read as SQL."""

    binary: str
    text: str
    hex: str
    milliseconds: str
    moment: str
    contains: str


SPARK = Dialect(
    binary="X'{}'",
    text="decode(X'{}', 'UTF-8')",
    hex="lower(hex({}))",
    milliseconds="unix_millis({})",
    moment="timestamp_millis({})",
    contains="contains({}, {})",
)
POSTGRES = Dialect(
    binary="'\\x{}'::bytea",
    text="convert_from('\\x{}'::bytea, 'UTF8')",
    hex="encode({}, 'hex')",
    milliseconds="(extract(epoch FROM {}) * 1000)::bigint",
    moment="to_timestamp({} / 1000.0)",
    contains="position({1} in {0}) > 0",
)


@dataclass(frozen=True, slots=True)
class TracedTable:
    """The table and its quarantine."""

    _ask: Callable[[str], Answer]
    _sql: Dialect
    id: str
    """The id by which receipts name it."""

    def rows(self, wanted: Wanted) -> list[Row]:
        if wanted.label is not None:
            return self._rows(f"{self._of_epoch(wanted.label)} AND sequence = {wanted.label.sequence}")
        return self.rows_of([wanted.fingerprint or ""])

    def rows_of(self, fingerprints: Sequence[str]) -> list[Row]:
        if not fingerprints:
            return []
        named = ", ".join(map(self._sql.binary.format, fingerprints))
        return self._rows(f"fingerprint IN ({named})")

    def rows_within(self, span: Span) -> list[Row]:
        """Return the first rows of a device in a span, in order of time."""
        time = "coalesce(event_time, received)"
        until = "" if span.until is None else f" AND {time} < {self._sql.moment.format(span.until)}"
        return self._rows(
            f"device = {self._text(span.device)} AND {time} >= {self._sql.moment.format(span.since)}{until}"
        )

    def quarantined(self, wanted: Wanted, records: Sequence[Record], topic_id: str) -> list[Quarantined]:
        """Return the records in quarantine at the places of the topic's records, or with a value that names the event.

        The value is the one that a gateway writes; a record that lacks it is found by its place alone.
        """
        has_value = [self._sql.contains.format("value", self._sql.binary.format(one.hex())) for one in _named(wanted)]
        places = [
            f"(topic_id = {self._text(topic_id)} AND kafka_partition = {one.partition} AND kafka_offset = {one.offset})"
            for one in records[:ROWS_MAX]
        ]
        return self._quarantined(" OR ".join([*has_value, *places]))

    def quarantined_within(self, span: Span) -> list[Quarantined]:
        """Return the records of a device that were appended from a time on and are in quarantine."""
        key = self._sql.binary.format(span.device.encode().hex())
        return self._quarantined(f"kafka_key = {key} AND appended >= {self._sql.moment.format(span.since)}")

    def gaps(self, label: Label) -> list[Gap]:
        """Return the gateway's gaps that contain the label."""
        found = []
        for data, declared in self._own(label.gateway, _GAP):
            labels = data.get("labels")
            for one in labels if isinstance(labels, list) else ():
                match one:
                    case [label.epoch, int(first), int(last), *_] if first <= label.sequence <= last:
                        found.append(Gap(str(data.get("reason", "")), declared, first, last))
        return found

    def epoch(self, label: Label) -> EpochFacts:
        """Return what the table knows about the label's epoch."""
        [(last,)] = self._ask(f"SELECT max(sequence) FROM events WHERE {self._of_epoch(label)}").rows
        starts = self._own(label.gateway, _STARTED)
        stated = [data.get("previous_sequence") for data, _ in starts if data.get("previous_epoch") == label.epoch]
        ends = [end for end in stated if isinstance(end, int)]
        return EpochFacts(last, max(ends, default=None), knows_gateway=bool(starts) or last is not None)

    def _own(self, gateway: str, type_: str) -> list[tuple[dict[str, Any], int]]:
        """Return data and times of a gateway's latest own events of one type.

        Any writer of the topic may have sent them, so that their data need not be what a gateway states.
        """
        received = self._sql.milliseconds.format("received")
        rows = self._ask(
            f"SELECT data, {received} FROM events WHERE via = 'gateway' AND type = '{type_}' "
            f"AND gateway = {self._text(gateway)} ORDER BY appended DESC LIMIT {ROWS_MAX}"
        ).rows
        return [(_map(data), moment) for data, moment in rows]

    def _rows(self, where: str) -> list[Row]:
        sql = self._sql
        columns = (
            sql.hex.format("fingerprint"),
            *("device", "gateway", "epoch", "sequence", "id"),
            sql.milliseconds.format("coalesce(event_time, received)"),
            *("kafka_partition", "kafka_offset"),
            sql.milliseconds.format("processed_at"),
        )
        order = "ORDER BY coalesce(event_time, received), gateway, epoch, sequence"
        found = self._ask(f"SELECT {', '.join(columns)} FROM events WHERE {where} {order} LIMIT {ROWS_MAX}").rows
        return [
            Row(mark, device, Label(gateway, epoch, sequence), id_, *rest)
            for mark, device, gateway, epoch, sequence, id_, *rest in found
        ]

    def _quarantined(self, where: str) -> list[Quarantined]:
        if not where:
            return []
        at = self._sql.milliseconds.format("quarantined_at")
        found = self._ask(
            f"SELECT topic_id, kafka_partition, kafka_offset, reason, {at} FROM quarantine WHERE {where} "
            f"ORDER BY kafka_partition, kafka_offset LIMIT {ROWS_MAX}"
        ).rows
        return [Quarantined(*row) for row in found]

    def _of_epoch(self, label: Label) -> str:
        return f"gateway = {self._text(label.gateway)} AND epoch = {self._text(label.epoch)}"

    def _text(self, text: str) -> str:
        return self._sql.text.format(text.encode().hex())


def _named(wanted: Wanted) -> Iterator[bytes]:
    """Yield the texts by which a record's value names the wanted event."""
    if wanted.fingerprint is not None:
        yield VALUE_PREFIX + f'{wanted.fingerprint}"'.encode()
    if (label := wanted.label) is not None:
        gateway = json.dumps(label.gateway, ensure_ascii=False)
        yield f'"gateway":{gateway},"epoch":"{label.epoch}","sequence":{label.sequence},'.encode()


def _map(data: str | None) -> dict[str, Any]:
    try:
        found = json.loads(data or "null")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
