"""Findings of an audit that nobody has made, for its report and its metrics."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from pyspark.sql import Row

from cloud.auditing import account
from cloud.auditing.findings import RANGE, RECORD, Findings, Subject
from cloud.auditing.sections import STATUSES
from cloud.auditing.settings import parse
from cloud.auditing.store import Series, TopicSpan

ENDED = datetime(2026, 5, 1, 12, tzinfo=UTC)
EPOCH, MARK = "5f1c0d6b6a0f4f1d", "1876d2e5f34f91105e52555b000b5edc"
SUBJECT = Subject(
    ENDED,
    Series(3, ENDED - timedelta(days=2)),
    *("0.1.0", "4.2.0"),
    parse(
        [
            *("--bootstrap-servers", "kafka-1.example.org:9092,kafka-2.example.org:9092"),
            *("--table", "/var/lib/oncegate-cloud/events", "--output", "unused"),
        ]
    ),
    TopicSpan("AbCdEfGhIjKlMnOpQrStUv", {0: 812, 1: 90}, {0: 813, 1: 90}, 1),
)
TOTALS = {"wrong": 0, "epochs": 0, "unwritten": 0, "records": 0, "doubled": 0, "unaccounted": 0}
WHOLE = Findings(SUBJECT, {"accepted": 3}, [], [], [], [], {}, {}, [], TOTALS, {"open": 1, "forked": 2})


def broken(gateway: str, device: str) -> Findings:
    """Return findings with each kind of fault, of a gateway and a device with these names."""
    counts = dict.fromkeys(account.COUNTED, 10_000_000)
    labels, record = Row(*RANGE), Row(*RECORD)
    wrong = [labels(gateway, EPOCH, 17, 17, account.VANISHED), labels(gateway, EPOCH, 20, 29, account.AMBIGUOUS)]
    return replace(
        WHOLE,
        counts={"accepted": 12_345, "vanished": 1, "ambiguous": 10},
        epochs=[Row(gateway=gateway, epoch=EPOCH, state="open", last=10_000_000, **counts)],
        wrong=wrong,
        records=[
            record(status, 3, 8_120_000, MARK, device, gateway, EPOCH, 17)
            for status in (account.UNWRITTEN, account.VANISHED)
        ],
        doubled=[MARK],
        sections={"differs": (1, 4_096)},
        section_labels={(gateway, EPOCH): dict.fromkeys(STATUSES, 1_000_000)},
        differing=[labels(gateway, EPOCH, 1, 4_096, "differs")],
        totals={"wrong": 2, "epochs": 1_200, "unwritten": 1, "records": 2, "doubled": 1, "unaccounted": 0},
    )
