"""Claims of the documents that no other test covers."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from agent.config import load, reference
from agent.decode import decode
from agent.delivery import Delivery, Media
from agent.forward.receipts.rules import BatchDecision, PartitionView, Verdict, View, decide
from agent.forward.receipts.truncation import overrule
from agent.store.layout import FILE_NAME
from agent.store.schema import database
from contract import receipt
from tests.agent.forward.receipts.test_rules import BATCH, CASES, DONE, OURS, PINNED, view
from tests.docs.pages import ROOT, blocks

DOCS = ROOT / "docs"


@pytest.mark.guarantee(1)
def test_every_commit_waits_for_the_flush(tmp_path: Path) -> None:
    connection = database.open_for_service(tmp_path / FILE_NAME)
    settings = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]
    connection.close()
    assert settings == ["wal", 2]  # 2: FULL


def test_the_reference_of_the_configuration_is_the_settings() -> None:
    assert (DOCS / "configuration.md").read_text() == reference.document()


def test_every_configuration_in_the_documents_is_taken() -> None:
    pages = (
        DOCS / "configuration.md",
        DOCS / "operations.md",
        DOCS / "zigbee2mqtt.md",
        DOCS / "oscore.md",
        ROOT / "README.md",
    )
    examples = [example for page in pages for example in blocks(page, "toml")]
    assert examples
    for example in examples:
        load.parse(tomllib.loads(example), load.Source("example"), {})


def test_the_events_of_zigbee_devices_are_those_that_their_converters_and_the_gateway_make() -> None:
    models = json.loads((ROOT / "simulators" / "sensors" / "zigbee-models.json").read_text())["publications"]
    published = {f"{one['vendor']} {one['model']}": one["published"] for one in models}
    section = (DOCS / "zigbee2mqtt.md").read_text().partition("\n## What devices send\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| [\w ]+ \| (.+?) \| `(\{.*?\})` \|", section, re.MULTILINE)
    assert len(rows) > 10
    for model, data in rows:
        (event,) = decode(
            Delivery(json.dumps(published[model]).encode(), Media.ZIGBEE2MQTT, "zigbee2mqtt", "urn:dev:mac:1")
        ).events
        assert event.data == json.loads(data)
        assert event.time is not None


def test_the_form_of_receipts_and_the_reasons_of_gateways_are_those_of_the_page() -> None:
    page = (DOCS / "receipts.md").read_text()
    (example,) = re.findall("`(oncegate:[^`<]+)`", page)
    assert str(receipt.parse(example)) == example
    shown = re.findall(r"^\| .* \| (?:sends again|holds).* \| `(.+)` \|$", page, re.MULTILINE)
    truncated = view(PartitionView(15, OURS, 15, leader_epoch=3, committed_epoch=2))
    later = View("topic-1", {0: PartitionView(15, OURS, 15, 4, 4), 1: DONE})
    decided = [decide(BATCH, looked, rules) for _, looked, rules, _ in CASES] + [decide(BATCH, truncated, PINNED)]
    decided += [
        decision for _, decision in overrule([(BATCH, BatchDecision(Verdict.PROCESSED))], later, lambda _: False)
    ]
    reasons = {decision.reason for decision in decided if decision.reason}
    patterns = [re.escape(one).replace("…", ".+") for one in shown]
    assert [one for one in reasons if not any(re.fullmatch(pattern, one) for pattern in patterns)] == []
    assert [pattern for pattern in patterns if not any(re.fullmatch(pattern, one) for one in reasons)] == []
