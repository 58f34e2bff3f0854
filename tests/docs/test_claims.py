"""Claims, links and figures of the documents that no other test covers."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from agent.config import load, reference
from agent.config.settings import KafkaSettings
from agent.decode.delivery_body import decode
from agent.delivery import Delivery, Media
from agent.forward.kafka.topic import create_command
from agent.forward.kafka.uplink import Uplink
from agent.http.auth.tokens import Role, read_tokens
from agent.store.layout import FILE_NAME
from agent.store.schema import database
from contract import topics
from simulators import strict_toml
from simulators.scenario import Scenario
from tests.agent.http.serving import EVENT, FINGERPRINT, serving
from tests.agent.store.stores import HandClock
from tests.docs.pages import PAGES, ROOT, blocks, name
from tests.support.guarantees import GUARANTEES, WHOLE_PATH, marked

DOCS = ROOT / "docs"


@pytest.mark.guarantee(1)
def test_every_commit_waits_for_the_flush(tmp_path: Path) -> None:
    connection = database.open_for_service(tmp_path / FILE_NAME)
    settings = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]
    connection.close()
    assert settings == ["wal", 2]  # 2: FULL


def test_the_reference_of_the_configuration_is_the_settings() -> None:
    assert (DOCS / "configuration.md").read_text() == reference.document()


def test_the_files_of_the_way_of_an_event_are_there() -> None:
    drawing = (DOCS / "architecture.md").read_text().partition("```\n")[2].partition("```")[0]
    named = re.findall(r"[a-z_0-9/]+\.py", drawing)
    assert len(named) > 30
    assert [
        file for file in named if not any((ROOT / folder / file).is_file() for folder in ("agent", "cloud", "."))
    ] == []


def test_every_configuration_in_the_documents_is_taken() -> None:
    named = ("configuration", "identity", "lanes", "mappings", "operations", "oscore", "zigbee2mqtt")
    pages = [ROOT / "README.md", *(DOCS / f"{name}.md" for name in named)]
    examples = [example for page in pages for example in blocks(page, "toml")]
    assert len(examples) >= len(pages)
    smallest = tomllib.loads(blocks(DOCS / "configuration.md", "toml")[0])
    for example in examples:
        load.parse(smallest | tomllib.loads(example), load.Source("example"), {})


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


def test_the_page_has_the_agents_command_that_creates_the_topic_and_the_reason_of_each_setting() -> None:
    page = (DOCS / "kafka.md").read_text()
    assert create_command(KafkaSettings("kafka-1:9092", topics.EVENTS)) in page
    assert [name for name in topics.settings() if f"| `{name}" not in page] == []


def test_the_example_of_a_field_test_is_a_scenario() -> None:
    (example,) = blocks(DOCS / "field-test.md", "toml")
    assert strict_toml.parse(example, Scenario, "the example").name == "greenhouse"


FILE = re.compile(r"`((?:agent|cloud|contract|simulators|tests|docs)/[\w./-]*)(?:::\w+)?`")
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]*)(?:#([^)]*))?\)")


def test_every_guarantee_has_its_tests() -> None:
    numbers = {int(number) for number in re.findall(r"^## (\d)\.", GUARANTEES.read_text(), flags=re.MULTILINE)}
    assert len(numbers) == 8
    assert set(marked()) == {WHOLE_PATH, *numbers}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    assert [file for file in FILE.findall(page.read_text()) if not (ROOT / file).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_somewhere(page: Path) -> None:
    links = [link for link in LINK.findall(page.read_text()) if "://" not in link[0]]
    assert [link for link, _ in links if not (page.parent / link).exists()] == []
    anchored = [(page.parent / link if link else page, anchor) for link, anchor in links if anchor]
    assert [anchor for target, anchor in anchored if anchor not in anchors(target)] == []


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings, as a renderer creates them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


README = ROOT / "README.md"
KEPT = ROOT / "docs" / "benchmarks"


def test_the_line_of_figures_in_the_readme_is_kept() -> None:
    [line] = re.findall(r"^\*\*Measured\*\* .*?(?=\n\n)", README.read_text(), re.DOTALL | re.MULTILINE)
    figures = [
        float(one.replace(",", "")) for one in re.findall(r"(?<![\w.])\d[\d,]*(?:\.\d+)?", line.replace("\n", " "))
    ]
    kept = {name: json.loads((KEPT / f"{name}.json").read_text()) for name in ("agent", "gateway")}
    by_name = {one["name"]: one["value"] for part in ("agent", "gateway") for one in kept[part]["figures"]}
    of_layers = (DOCS / "decisions" / "0024-field-tests.md").read_text()
    [row] = re.findall(r"^\| at-least-once \| (.*) \|$", of_layers, re.MULTILINE)
    events, transmissions, _, _, lost, duplicated = (float(one.replace(",", "")) for one in row.split(" | "))
    assert figures == [
        round(by_name["CoAP, 256 outstanding"]),
        round(by_name["memory (RSS), idle"]),  # with Kafka, when all is settled
        round(by_name["memory, idle"]),  # without Kafka, just after the start
        round(by_name["start to READY, median"], 2),
        *(lost, duplicated, events, transmissions),
    ]


PAGE = ROOT / "docs" / "http.md"


async def test_the_metrics_of_the_page_are_those_of_the_server(tmp_path: Path) -> None:
    async with serving(tmp_path, uplink=Uplink(1_000, HandClock())) as served:
        heard = await served.client.get("/metrics")
    shown = set(re.findall(r"^# TYPE (\S+)", heard.body.decode(), re.MULTILINE))
    said = set(re.findall(r"^\| `(oncegate_\w+)[{`]", PAGE.read_text(), re.MULTILINE))
    assert said == {name for name in shown if not name.startswith("oncegate_process_")}


async def test_the_paths_of_the_page_are_those_of_the_server(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        heard = await served.client.get("/none")
    said = re.findall(r"^\| `(/\S*)` \|", PAGE.read_text(), re.MULTILINE)
    assert set(said) == set(heard.document["message"].removeprefix("there are ").split(", "))


async def test_the_example_is_answered_as_it_says(tmp_path: Path) -> None:
    example = blocks(PAGE, "sh")[0]
    assert EVENT.decode() in example
    async with serving(tmp_path) as served:
        heard = await served.client.post(EVENT)
    assert heard.body.decode() == blocks(PAGE, "json")[0].strip()
    assert FINGERPRINT in heard.body.decode()


def test_the_token_file_of_the_page_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.touch(mode=0o640)
    file.write_text(blocks(PAGE, "tokens")[0])
    assert len(list(read_tokens(file).senders)) == len(Role) - 1  # all but the reader
