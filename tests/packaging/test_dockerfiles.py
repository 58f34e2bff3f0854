"""The Dockerfiles and the compose file: no linter's finding, and nothing in them that does not exist."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from dockerfile_parse import DockerfileParser  # type: ignore[import-untyped]  # it has no types

from agent.config import load
from cloud import settings as job
from cloud.cli import spark
from tests.packaging.roots import CHECKOUT

FOLDER = CHECKOUT / "packaging" / "container"
DOCKERFILES = ("Dockerfile", "cloud.Dockerfile")
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICES = COMPOSE["services"]

each_dockerfile = pytest.mark.parametrize("name", DOCKERFILES)


def steps(name: str) -> list[tuple[str, str]]:
    """Return the instructions of a Dockerfile with their values."""
    with (FOLDER / name).open("rb") as opened:
        return [(step["instruction"], step["value"]) for step in DockerfileParser(fileobj=opened).structure]


@each_dockerfile
def test_hadolint_finds_nothing(name: str) -> None:
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if hadolint is None:
        pytest.skip("there is no hadolint for this processor")
    done = subprocess.run([hadolint, str(FOLDER / name)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


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
