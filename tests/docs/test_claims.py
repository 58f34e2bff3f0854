"""Claims of the documents that no other test covers."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from agent.cli.commands import COMMANDS
from agent.config import load, reference
from agent.config.settings import KafkaSettings
from agent.decode import decode
from agent.delivery import Delivery, Media
from agent.forward.kafka.topic import create_command
from agent.store.layout import FILE_NAME
from agent.store.schema import database
from contract import topics
from simulators import strict_toml
from simulators.scenario import Scenario
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


def test_the_commands_of_the_page_are_those_of_the_program() -> None:
    section = (DOCS / "operations.md").read_text().partition("\n## Commands\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `([a-z-]+)` \|", section, re.MULTILINE) == list(COMMANDS)


def test_the_page_has_the_agents_command_that_creates_the_topic_and_the_reason_of_each_setting() -> None:
    page = (DOCS / "kafka.md").read_text()
    assert create_command(KafkaSettings("kafka-1:9092", topics.EVENTS)) in page
    assert [name for name in topics.settings() if f"| `{name}" not in page] == []


def test_the_example_of_a_field_test_is_a_scenario() -> None:
    (example,) = blocks(DOCS / "field-test.md", "toml")
    assert strict_toml.parse(example, Scenario, "the example").name == "greenhouse"
