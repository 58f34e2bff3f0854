"""`oncegate-cloud trace`: one answer to "what has happened to this event"."""

import json
import logging
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pkgutil import resolve_name

from pyspark.sql import SparkSession

from cloud.auditing.table import table_id
from cloud.errors import JobError
from cloud.query import QuerySettings
from cloud.runtime.outcome import printable
from cloud.session import session_if
from cloud.tracing import account, table
from cloud.tracing.account import IN_TABLE, Account
from cloud.tracing.audits import Audits
from cloud.tracing.facts import Evidence, Record, Span, TopicSearch, Wanted
from cloud.tracing.settings import TraceSettings, parse
from cloud.tracing.table import TracedTable
from cloud.tracing.topic import TracedTopic
from contract.timestamp import rfc3339

LINES_MAX = 100
"""The largest number of a device's events that are listed."""


def main(arguments: Sequence[str]) -> int:
    """Trace, and print the answer; return 0 where all that was asked for is in the table."""
    settings = parse(arguments)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    try:
        topic = TracedTopic(settings.bootstrap_servers, settings.topic, settings.group, settings.properties)
        with closing(topic), session_if(needed=settings.needs_spark) as spark:
            return trace(settings, spark, topic)
    except JobError as error:
        print(f"oncegate-cloud trace: {error}", file=sys.stderr)
        return 1


def trace(settings: TraceSettings, spark: SparkSession | None, topic: TracedTopic) -> int:
    """Gather the evidence, and print the account."""
    known = _table(settings, spark)
    wanted = settings.wanted
    if isinstance(wanted, Span):
        return _print_span(settings, wanted, *of_device(wanted, known, topic, settings))
    audits = Audits(spark, settings.audit) if settings.audit is not None and spark is not None else None
    found = account.account(of_event(wanted, known, topic, audits, settings))
    if settings.json:
        print(json.dumps(_document(found), ensure_ascii=False))
    else:
        for line in lines(found):
            print(printable(line))
    return 0 if found.status in IN_TABLE else 1


def of_event(
    wanted: Wanted, known: TracedTable, topic: TracedTopic, audits: Audits | None, settings: TraceSettings
) -> Evidence:
    """Return the evidence about one event."""
    search = topic.search(wanted, settings.records_max)
    rows = known.rows(wanted)
    evidence = Evidence(wanted, settings.group, rows, (), search, topic.receipts(search, known.id))
    label = account.label_of(evidence)
    audited = audits.read(wanted, label, search.topic_id) if audits is not None else None
    if not rows:  # of a duplicate, the event has another label
        marks = {one.fingerprint for one in search.records if one.fingerprint}
        rows = known.rows_of(sorted(marks))
        if not rows and audited is not None and audited.duplicate_of is not None:
            rows = known.rows(Wanted(label=audited.duplicate_of))
    return replace(
        evidence,
        rows=rows,
        quarantined=known.quarantined(wanted, search.records, search.topic_id),
        gaps=known.gaps(label) if label is not None else (),
        epoch=known.epoch(label) if label is not None else None,
        audited=audited,
    )


def of_device(
    span: Span, known: TracedTable, topic: TracedTopic, settings: TraceSettings
) -> tuple[list[tuple[Account, int, str | None]], TopicSearch]:
    """Return the account of each event of a device in a time, with its time and id, and the search of the topic."""
    search = topic.search(span, settings.records_max)
    rows = {row.fingerprint: row for row in known.rows_within(span)}
    records = defaultdict[str, list[Record]](list)
    for record in search.records:
        records[record.fingerprint or f"{record.partition}/{record.offset}"].append(record)
    rows |= {
        row.fingerprint: row
        for row in known.rows_of([mark for mark in records if mark not in rows and "/" not in mark])
    }
    receipts = topic.receipts(search, known.id)
    places = {
        (one.partition, one.offset): one for one in known.quarantined_within(span) if one.topic_id == search.topic_id
    }
    found = []
    for mark in {**rows, **records}:
        row, of = rows.get(mark), records.get(mark, [])
        quarantined = [places[place] for one in of if (place := (one.partition, one.offset)) in places]
        wanted, its = Wanted(None if "/" in mark else mark), replace(search, records=of)
        evidence = Evidence(wanted, settings.group, [row] if row else [], quarantined, its, receipts)
        time = row.time if row else of[0].time or of[0].appended
        found.append((account.account(evidence), time, row.id if row else None))
    return sorted(found, key=lambda one: one[1]), search


def lines(found: Account) -> Iterator[str]:
    """Yield the lines of an answer."""
    names = [name for name in (found.fingerprint, found.label and str(found.label)) if name]
    yield f"{found.status[:1].upper()}{found.status[1:]}: {', '.join(names) or 'the event'}."
    for place, text in found.steps:
        yield f"{place:>10}  {text}"
    yield f"{'next':>10}  {found.advice}"


def _print_span(
    settings: TraceSettings, span: Span, events: list[tuple[Account, int, str | None]], search: TopicSearch
) -> int:
    accounts = [found for found, _, _ in events]
    if settings.json:
        document = {
            "device": span.device,
            "since": span.since,
            "until": span.until,
            "reach": account.reach(search),
            "events": [{"time": time, "id": id_, **_document(found)} for found, time, id_ in events],
        }
        print(json.dumps(document, ensure_ascii=False))
    else:
        print(printable(f"{span.device}: {account.counts(accounts)}."))
        for found, time, id_ in events[:LINES_MAX]:
            id_text = f"id {id_}" if id_ is not None else ""
            print(printable(f"{rfc3339(time)}  {found.fingerprint or '-':32}  {id_text:12}  {found.status}"))
        if len(events) > LINES_MAX:
            print(f"and {len(events) - LINES_MAX} more: a shorter time, or --json")
        if len(events) >= table.ROWS_MAX:
            print(f"Only {table.ROWS_MAX} events were read: choose a shorter time.")
        print(printable(account.reach(search)))
        for status, advice in {found.status: found.advice for found in accounts}.items():
            print(printable(f"{status}: {advice}"))
        if not events:
            print("No event of it is known. Has its gateway any? There: sudo oncegate events --device DEVICE")
    return 0 if events and all(found.status in IN_TABLE for found in accounts) else 1


def _document(found: Account) -> dict[str, object]:
    return {
        "status": found.status.name.lower(),
        "fingerprint": found.fingerprint,
        "label": asdict(found.label) if found.label is not None else None,
        "steps": [{"place": place, "text": text} for place, text in found.steps],
        "next": found.advice,
    }


def _table(settings: TraceSettings, spark: SparkSession | None) -> TracedTable:
    kind, asked = settings.tables.kind, QuerySettings(settings.tables, "", "json", table.ROWS_MAX)
    ask, dialect = resolve_name(kind.asks), resolve_name(kind.dialect)
    id_ = table_id(spark, settings.tables)
    return TracedTable(lambda statement: ask(spark, replace(asked, statement=statement)), dialect, id_)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
