"""The report of an audit: its facts, its numbers, its texts, and its page in a real browser."""

import os
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cloud.audit import span_to_read
from cloud.auditing import report
from cloud.auditing.store import TopicSpan
from cloud.committed import Committed
from cloud.errors import StopError
from cloud.table.commits import Offsets
from contract.receipt import Receipt
from tests.cloud.auditing.found import EPOCH, MARK, WHOLE, broken
from tests.monitoring.test_monitoring import JOB, METRIC
from tests.support import browser

HOSTILE = "gw-<img src=x onerror=alert(1)>\x1b[31m\u202egpj"
FACTS = (
    *("2026-05-01 12:00:00 UTC", "number 3 in its folder", "2026-04-29 12:00:00 UTC", "oncegate 0.1.0, Spark 4.2.0"),
    *("/var/lib/oncegate-cloud/events (delta)", "oncegate.events (id AbCdEfGhIjKlMnOpQrStUv) at kafka-1", "3,600 s"),
    *("group oncegate-cloud", "1 offset deleted before"),
)


def text_of(page: str) -> str:
    return re.sub(r"<style>.*</style>|<[^>]+>", " ", page, flags=re.DOTALL)


def test_text_and_page_tell_when_of_what_and_by_which_versions_the_audit_was_made() -> None:
    for shown in ("\n".join(report.lines(WHOLE)), text_of(report.page(WHOLE))):
        assert [fact for fact in FACTS if fact not in shown] == []


def test_each_wrong_label_is_told_with_fingerprint_partition_and_offset_and_each_count_with_its_noun() -> None:
    found = broken("gw-1", "urn:dev:mac:00158d0001a2b3c4")
    text, page = "\n".join(report.lines(found)), report.page(found)
    one = "1 label missing, 1 record unwritten, 1 event doubled, 10 labels with two fingerprints, 1 section different"
    for shown in (text, page):
        assert one in shown
    assert f"vanished: partition 3 offset 8120000 fingerprint {MARK} device urn:dev:" in text
    assert f"label gw-1 {EPOCH} 17" in text
    assert "The first 1 of 1,200." in page


def test_texts_of_devices_and_gateways_are_escaped() -> None:
    found = broken(HOSTILE, HOSTILE)
    text, page = "\n".join(report.lines(found)), report.page(found)
    assert "<img" not in page
    for sign in ("\x1b", "\u202e"):
        assert sign not in text + page


@pytest.mark.heavy
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_fits_the_screen(tmp_path: Path, width: int) -> None:
    file = tmp_path / "audit.html"
    file.write_text(report.page(broken("plant-7-gateway-north", "urn:dev:mac:00158d0001a2b3c4")))
    folder = os.environ.get("ONCEGATE_SCREENSHOTS", str(tmp_path))
    given = {"url": file.as_uri(), "width": width, "picture": f"{folder}/audit-{width}.png"}
    seen = browser.run(Path(__file__).with_name("report.js"), given)
    assert seen == {"scroll": width, "beyond": [], "axe": []}


UMASK = 0o027
"""That of `oncegate-audit.service`."""


def test_the_exporter_of_another_user_reads_the_metrics_whatever_the_umask(tmp_path: Path) -> None:
    file = tmp_path / "audit.prom"
    before = os.umask(UMASK)
    try:
        for _ in range(2):
            report.write_metrics(WHOLE, file)
    finally:
        os.umask(before)
    assert oct(file.stat().st_mode)[-3:] == "644"
    assert 'oncegate_audit_labels{status="accepted"} 3.0' in file.read_text()
    assert list(tmp_path.iterdir()) == [file]


def test_the_alerts_on_the_audit_read_what_it_writes(tmp_path: Path) -> None:
    report.write_metrics(WHOLE, tmp_path / "audit.prom")
    written = set(re.findall(r"^(oncegate_audit_\w+)", (tmp_path / "audit.prom").read_text(), re.MULTILINE))
    named = {name for expression in JOB.alerts() for name in METRIC.findall(expression) if "_audit_" in name}
    assert len(named & written) == len(named) == 4


TOPIC, OTHER = "t" * 22, "u" * 22


def span_of(earliest: Offsets, receipted: Offsets, audited: Offsets, **changed: Any) -> TopicSpan:
    """Return what an audit reads of a topic, where the receipt of partition 0 is changed."""
    committed = {p: Committed(offset, 5, str(Receipt("a", 0, TOPIC))) for p, offset in receipted.items()}
    committed |= {0: replace(committed[0], **changed)}
    topic: Any = SimpleNamespace(
        id=lambda: TOPIC,
        earliest=lambda: earliest,
        committed=lambda _: committed,
        latest=lambda: dict.fromkeys(earliest, (9, 5)),
    )
    store: Any = SimpleNamespace(ends=lambda _: audited)
    return span_to_read(topic, store, "g", "a")


def test_an_audit_continues_at_the_end_of_the_last_one() -> None:
    assert span_of({0: 3}, {0: 9}, {0: 5}) == TopicSpan(TOPIC, {0: 5}, {0: 9}, 0)
    assert span_of({0: 3}, {0: 9}, {}) == TopicSpan(TOPIC, {0: 3}, {0: 9}, 3)


def test_of_a_partition_without_a_receipt_nothing_is_read_and_the_others_are() -> None:
    """Spark refuses to read a topic of which a partition has no offsets; the job has not met the added one yet."""
    assert span_of({0: 0, 1: 0}, {0: 9}, {0: 5}) == TopicSpan(TOPIC, {0: 5, 1: 0}, {0: 9, 1: 0}, 0)


def test_receipts_of_partitions_that_the_topic_no_longer_has_are_left_out() -> None:
    assert span_of({0: 0}, {0: 9, 1: 4}, {}) == TopicSpan(TOPIC, {0: 0}, {0: 9}, 0)


@pytest.mark.guarantee(5)
@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"metadata": ""}, "it was committed by a foreign consumer or by a reset"),
        ({"metadata": str(Receipt("b", 0, TOPIC, "a"))}, "it is of table b, not of a"),
        ({"metadata": str(Receipt("a", 0, OTHER))}, f"it is of topic {OTHER}, not of {TOPIC}"),
        ({"metadata": str(Receipt("a", 10, TOPIC))}, "it begins at 10, above itself"),
        ({"leader_epoch": None}, "it has no leader epoch"),
        ({"leader_epoch": 6}, "it has epoch 6, and the log ends at 9 in epoch 5"),
        ({"offset": 10}, "it has epoch 5, and the log ends at 9 in epoch 5"),
    ],
)
def test_an_offset_that_is_no_receipt_of_the_table_ends_the_audit_with_the_reason(
    changed: dict[str, Any], why: str
) -> None:
    """Its records would be named as unwritten, or an audit would be whole that has read nothing."""
    with pytest.raises(StopError, match=f"group g, partition 0: offset .* is no receipt of table a: {why}"):
        span_of({0: 0}, {0: 9}, {}, **changed)
