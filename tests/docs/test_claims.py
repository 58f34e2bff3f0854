"""Claims of the documents that no other test covers."""

import re
import tomllib
from pathlib import Path

from agent.config import load, reference
from agent.store.layout import FILE_NAME
from agent.store.schema import database
from tests.docs.pages import ROOT, blocks

DOCS = ROOT / "docs"


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


def test_every_dependency_of_a_gateway_has_its_line() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    page = (DOCS / "decisions" / "0007-gateway-dependencies.md").read_text()
    listed = {name for row in re.findall(r"^\| ([a-z0-9, -]+) \|", page, re.MULTILINE) for name in row.split(", ")}
    needed = (*project["dependencies"], *project["optional-dependencies"]["oscore"])
    names = [re.split(r"[<>=~! ]", dependency)[0] for dependency in needed]
    assert [name for name in names if name not in listed] == []


def test_the_changelog_knows_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"## [{version}]" in (ROOT / "CHANGELOG.md").read_text()
