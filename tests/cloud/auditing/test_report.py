"""The report of an audit: its facts, its numbers, its texts, and its page in a real browser."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from cloud.auditing import report
from tests.cloud.auditing.found import EPOCH, MARK, WHOLE, broken
from tests.support import browser

HOSTILE = "gw-<img src=x onerror=alert(1)>\x1b[31m\u202egpj"
FACTS = (
    *("2026-05-01 12:00:00 UTC", "number 3 in its folder", "2026-04-29 12:00:00 UTC", "oncegate 0.1.0, Spark 4.0.4"),
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
