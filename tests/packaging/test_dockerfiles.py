"""The Dockerfiles and the compose file: no linter's finding, and nothing in them that does not exist."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.config import load
from cloud import settings as job
from cloud.cli import spark
from tests.packaging import images
from tests.packaging.roots import CHECKOUT

FOLDER = CHECKOUT / "packaging" / "container"
DOCKERFILES = ("Dockerfile", "cloud.Dockerfile")
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICES = COMPOSE["services"]

each_dockerfile = pytest.mark.parametrize("name", DOCKERFILES)


@each_dockerfile
def test_hadolint_finds_nothing(name: str) -> None:
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if hadolint is None:
        pytest.skip("there is no hadolint for this processor")
    done = subprocess.run([hadolint, str(FOLDER / name)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@each_dockerfile
def test_an_image_runs_as_a_user_by_number_with_a_volume_and_gets_signals_itself(name: str) -> None:
    steps = images.read(FOLDER / name)
    last = {step.name: step.value for step in steps}
    user, group = last["USER"].split(":")
    assert int(user) == int(group) > 0
    assert last["VOLUME"] == last["WORKDIR"]
    assert last["STOPSIGNAL"] == "SIGTERM"
    assert last["ENTRYPOINT"].startswith("[")  # no shell between the engine and the program


@each_dockerfile
def test_what_is_copied_exists_and_is_sent_to_the_builder(name: str) -> None:
    sent = (FOLDER / f"{name}.dockerignore").read_text().splitlines()
    for step in images.read(FOLDER / name):
        if step.name == "COPY" and "--from" not in step.value:
            for source in step.value.split()[:-1]:
                assert (CHECKOUT / source).exists(), source
                assert f"!{source}" in sent


def test_each_service_is_built_from_a_file_that_exists_or_has_a_version() -> None:
    for name, service in SERVICES.items():
        if "build" in service:
            context = (FOLDER / service["build"]["context"]).resolve()
            assert context == CHECKOUT
            assert (context / service["build"]["dockerfile"]).is_file()
            assert service["read_only"] is True, name
            assert service["cap_drop"] == ["ALL"]
        else:
            assert service["image"].partition(":")[2] not in ("", "latest"), name
        for volume in service.get("volumes", []):
            assert volume.partition(":")[0] in COMPOSE["volumes"]
        assert set(service.get("depends_on", {})) <= set(SERVICES)


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
    assert (words[program + 1], settings.table) == ("job", "events")
    assert settings.connection is not None


def test_what_no_image_of_ours_needs_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "Dockerfile"
    file.write_text("FROM alpine:3\n")
    with pytest.raises(AssertionError, match="not a base image of Debian: alpine:3"):
        images.build(file, lambda _: tmp_path, tmp_path)
