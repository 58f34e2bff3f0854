"""The images' roots, built by the steps of the Dockerfiles in a chroot, and run with a read-only root.

Neither docker nor another container engine runs here: docs/container.md lists what that leaves untested.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable, QueryBuilder

from simulators import wire
from simulators.services import ports
from simulators.services.kafka.broker import Broker
from tests.packaging import images, roots
from tests.packaging.images import Container, Image
from tests.packaging.roots import CHECKOUT
from tests.support.udp import ask
from tests.support.waiting import wait_until

pytestmark = pytest.mark.heavy
FOLDER = CHECKOUT / "packaging" / "container"
EVENT = '{"device":"urn:dev:mac:00158d0001a2b3c4","id":17,"data":{"temperature":21.5}}'
SENSOR = f"""
from simulators import wire
from tests.support.udp import ask
print(ask("127.0.0.1", 5683, wire.Request({EVENT.encode()!r}, 50), 1))
"""
GATEWAY = {"ONCEGATE_GATEWAY__ID": "gw1", "ONCEGATE_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1"}


@pytest.fixture(scope="module")
def slim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the archive of a minimal system."""
    if not roots.may_build():
        pytest.skip("only root can make systems")
    file = tmp_path_factory.mktemp("slim") / "trixie.tar"
    roots.build(file, "trixie", included="apt")
    return file


def build(name: str, slim: Path, folder: Path) -> Iterator[Image]:
    try:
        yield images.build(FOLDER / name, {"trixie": slim}.__getitem__, folder)
    finally:
        subprocess.run(["rm", "-rf", "--one-file-system", str(folder)], check=True)


@pytest.fixture(scope="module")
def agent_image(slim: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    yield from build("Dockerfile", slim, tmp_path_factory.mktemp("agent"))


@pytest.fixture(scope="module")
def cloud_image(slim: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    yield from build("cloud.Dockerfile", slim, tmp_path_factory.mktemp("cloud"))


def events(container: Container) -> list[dict[str, object]]:
    done = container.inside("oncegate", "events", "--json")
    assert done.returncode == 0, done.stderr
    return [event for event in map(json.loads, done.stdout.splitlines()) if "00158d0001a2b3c4" in str(event)]


def test_the_agent_runs_as_its_user_on_a_read_only_root_and_keeps_its_events(
    agent_image: Image, tmp_path: Path
) -> None:
    container = Container(agent_image, tmp_path, GATEWAY)
    for _ in range(2):  # the second container has the volume of the first
        with container.process:
            container.process.wait_for_log("agent=ready")
            wait_until(container.healthy, "the health check succeeds", 60)
            status = dict(images.statuses(container.pid))
            assert status["Uid"].split() == ["10001"] * 4
            assert status["NSpid"].split()[-1] == "1"
            assert container.inside("sh", "-c", "touch /etc/x").returncode != 0
            assert container.beside(sys.executable, "-c", SENSOR) == "2.04\n"
            assert len(events(container)) == 1
            os.kill(container.pid, signal.Signals[agent_image.stop_signal])
            assert container.process.wait(45) == 0
        assert "Traceback" not in container.process.log()


def test_a_container_without_its_two_settings_ends_and_says_which(agent_image: Image, tmp_path: Path) -> None:
    container = Container(agent_image, tmp_path, {})
    container.process.start()
    assert container.process.wait(60) == 2
    assert "[gateway] id: missing" in container.process.log()


def test_a_container_whose_agent_does_not_answer_is_not_healthy(agent_image: Image, tmp_path: Path) -> None:
    container = Container(agent_image, tmp_path, {**GATEWAY, "ONCEGATE_HTTP__ENABLED": "false"})
    with container.process:
        container.process.wait_for_log("agent=ready")
        assert not container.healthy()


def test_the_cloud_image_has_java_spark_and_the_jars(cloud_image: Image, tmp_path: Path) -> None:
    query = ("query", "--table", "/var/lib/oncegate-cloud/absent", "SELECT 1")
    container = Container(replace(cloud_image, command=query), tmp_path, {}, tmp=True)
    container.process.start()
    assert container.process.wait(300) == 1, container.process.log_tail()
    assert "[PATH_NOT_FOUND]" in container.process.log()  # Spark has started, and asked Delta
    jars = {jar.name for jar in cloud_image.root.path(cloud_image.environment["SPARK_HOME"]).glob("jars/*.jar")}
    needed = {name for name in jars if name.startswith(("spark-sql-kafka-0-10_2.13", "delta-spark_2.13", "kafka-cli"))}
    assert len(needed) == 3


def test_an_event_goes_from_the_agents_image_by_the_cloud_image_into_a_table(
    agent_image: Image, cloud_image: Image, tmp_path: Path
) -> None:
    (coap_port,), (http_port,) = ports.free(1, socket.SOCK_DGRAM), ports.free(1)
    with Broker(tmp_path / "broker") as broker:
        broker.create_topics()
        given = {
            "ONCEGATE_GATEWAY__ID": "gw1",
            "ONCEGATE_KAFKA__BOOTSTRAP_SERVERS": broker.bootstrap_servers,
            "ONCEGATE_COAP__BIND": f"127.0.0.1:{coap_port}",
            "ONCEGATE_HTTP__BIND": f"127.0.0.1:{http_port}",
            "ONCEGATE_RECEIPTS__POLL_SECONDS": "1s",
        }
        agent = Container(agent_image, tmp_path / "agent", given, host_network=True)
        words = ("job", "--master", "local[2]", "--bootstrap-servers", broker.bootstrap_servers)
        image = replace(cloud_image, command=(*words, "--table", "events", "--checkpoint", "checkpoint"))
        job = Container(image, tmp_path / "job", {}, tmp=True, host_network=True)

        def processed() -> int:
            done = agent.inside("oncegate", "status", "--json")
            return int(json.loads(done.stdout)["events"]["processed"]) if done.returncode == 0 else 0

        with agent.process, job.process:
            agent.process.wait_for_log("agent=ready")
            assert ask("127.0.0.1", coap_port, wire.Request(EVENT.encode(), 50), 1) == "2.04"
            wait_until(lambda: processed() == 2 or not job.process.alive, "the table's receipts", 900)
            assert job.process.alive, job.process.log_tail()
            os.kill(job.pid, signal.SIGTERM)
            assert job.process.wait(300) == 0, job.process.log_tail()
    table = DeltaTable(str(tmp_path / "job" / "0" / "events"))
    rows = {
        kind: data
        for batch in QueryBuilder().register("events", table).execute("SELECT type, data FROM events")
        for kind, data in zip(*(batch.column(name).to_pylist() for name in ("type", "data")), strict=True)
    }
    assert set(rows) == {"gateway.started", "reading"}
    assert rows["reading"] == '{"temperature":21.5}'
