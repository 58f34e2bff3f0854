"""The Dockerfiles and the compose file: no linter's finding, and nothing in them that does not exist."""

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from dockerfile_parse import DockerfileParser  # type: ignore[import-untyped]  # it has no types

from agent.config import load
from cloud import settings as job
from cloud.cli import spark
from simulators.services.install import programs
from tests.docs.test_claims import LINK
from tests.packaging.roots import CHECKOUT
from tests.support.commands import output_of

FOLDER = CHECKOUT / "packaging" / "container"
DOCKERFILES = ("Dockerfile", "cloud.Dockerfile", "spark.Dockerfile")
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICES = COMPOSE["services"]

each_dockerfile = pytest.mark.parametrize("name", DOCKERFILES)


def steps(name: str) -> list[tuple[str, str]]:
    with (FOLDER / name).open("rb") as opened:
        return [(step["instruction"], step["value"]) for step in DockerfileParser(fileobj=opened).structure]


@each_dockerfile
def test_hadolint_finds_nothing(name: str) -> None:
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if hadolint is None:
        pytest.skip("there is no hadolint for this processor")
    assert output_of(hadolint, FOLDER / name) == ""


@each_dockerfile
def test_what_is_copied_exists_and_is_sent_to_the_builder(name: str) -> None:
    sent = (FOLDER / f"{name}.dockerignore").read_text().splitlines()
    for instruction, value in steps(name):
        if instruction == "COPY" and "--from" not in value:
            for source in value.split()[:-1]:
                assert (CHECKOUT / source).exists(), source
                assert f"!{source}" in sent


def test_the_agent_of_the_compose_file_has_a_configuration() -> None:
    settings = load.parse({}, load.Source("compose"), SERVICES["agent"]["environment"])
    assert settings.gateway.id == "gw1"
    broker = settings.kafka.bootstrap_servers
    assert broker.partition(":")[0] in SERVICES


def test_the_job_of_the_compose_file_takes_its_arguments() -> None:
    words = SERVICES["job"]["command"][0].split()
    program = words.index("oncegate-cloud")
    _, own = spark.split(words[program + 2 :])
    settings = job.parse(own)
    assert (words[program + 1], settings.tables.table) == ("job", "events")
    assert settings.tables.connection is not None


def test_each_link_of_an_installed_document_leads_to_an_installed_file(tmp_path: Path) -> None:
    output_of("sh", CHECKOUT / "packaging" / "documents.sh", tmp_path)
    pages = sorted(tmp_path.rglob("*.md"))
    links = [(page, link) for page in pages for link, _ in LINK.findall(page.read_text()) if "://" not in link]
    assert (tmp_path / "README.md") in pages
    assert (tmp_path / "README.md", "LICENSE") in links
    assert [(page.name, link) for page, link in links if not (page.parent / link).exists()] == []


def test_shellcheck_warns_of_nothing() -> None:
    packaging = [file for file in (CHECKOUT / "packaging").iterdir() if _is_script(file)]
    assert {"install.sh", "postinst", "postrm", "prerm"} <= {file.name for file in packaging}
    scripts = (*packaging, CHECKOUT / ".ci" / "run")
    assert output_of(programs.require("shellcheck"), "--severity=warning", *scripts) == ""


def _is_script(file: Path) -> bool:
    return file.is_file() and file.read_bytes().startswith(b"#!/bin/sh")
