"""`oncegate doctor` as a user without the rights of the agent's."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from agent.store.files.lock import lock
from agent.store.layout import FILE_NAME
from simulators.services.kafka.broker import Broker

CAPABILITIES = "-dac_override,-dac_read_search"
AS_ANYBODY = ["setpriv", f"--bounding-set={CAPABILITIES}", f"--inh-caps={CAPABILITIES}"] if os.geteuid() == 0 else []
"""Takes root's exemption from the permissions of files away."""


@pytest.fixture
def hidden(tmp_path: Path) -> Iterator[Path]:
    """Yield a configuration whose state folder only its owner may enter, who has forbidden it to himself, too."""
    folder = tmp_path / "state"
    folder.mkdir()
    (folder / FILE_NAME).touch()
    file = tmp_path / "oncegate.toml"
    file.write_text(f'[gateway]\nid = "gw1"\nstate_dir = "{folder}"\n[kafka]\nbootstrap_servers = "127.0.0.1:1"\n')
    folder.chmod(0)
    yield file
    folder.chmod(0o700)


def examined(configuration: Path) -> list[dict[str, Any]]:
    """Return the findings of `oncegate doctor`."""
    command = [*AS_ANYBODY, sys.executable, "-m", "agent.cli.main", "doctor", "--json", "--config", str(configuration)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    findings = [json.loads(line) for line in done.stdout.splitlines()]
    is_wrong = any(one["condition"] == "wrong" for one in findings)
    assert (done.returncode, done.stderr) == (int(is_wrong), "")
    return findings


def test_what_this_user_may_not_check_is_a_warning_and_the_rest_is_checked(hidden: Path) -> None:
    findings = examined(hidden)
    refused = {one["check"]: one for one in findings if "Permission denied" in one["text"]}
    assert set(refused) == {"space", "wear", "store", "ports", "fingerprints"}
    assert {(one["condition"], one["hint"]) for one in refused.values()} == {("warning", "sudo oncegate doctor")}
    assert {one["check"] for one in findings} - set(refused) == {
        "clock",
        "python",
        "sqlite",
        "mount",
        "memory",
        "broker",
    }


def test_settings_that_kafkas_client_refuses_are_wrong_and_the_rest_is_checked(tmp_path: Path) -> None:
    file = tmp_path / "oncegate.toml"
    lost = tmp_path / "lost"
    file.write_text(
        f'[gateway]\nid = "gw1"\nstate_dir = "{tmp_path}"\n'
        f'[kafka]\nbootstrap_servers = "127.0.0.1:1"\nproperties_file = "{lost}"\n'
        "[mqtt]\nenabled = true\nport = 1\n"
    )
    findings = {one["check"]: one for one in examined(file)}
    assert findings["kafka"]["condition"] == "wrong"
    assert f"kafka.properties_file: {lost} cannot be read" in findings["kafka"]["text"]
    assert findings["kafka"]["hint"] == "correct the configuration: oncegate check"
    assert {"clock", "store", "mqtt"} <= set(findings)


@pytest.mark.heavy
@pytest.mark.kafka
def test_an_agent_that_runs_or_may_run_keeps_its_transactional_id_on_a_broker_that_allows_any_time_limit(
    hidden: Path, tmp_path: Path
) -> None:
    with Broker(tmp_path / "broker", properties={"transaction.max.timeout.ms": 2**31 - 1}) as broker:
        broker.create_topics("t")
        servers = f'"{broker.bootstrap_servers}"\ntopic = "t"\ndelivery = "exactly-once"'
        hidden.write_text(hidden.read_text().replace('"127.0.0.1:1"', servers))
        running = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "gw1"})
        running.init_transactions(60)
        running.begin_transaction()
        running.produce("t", b"x")
        assert running.flush(60) == 0
        assert not_checked(examined(hidden)), "this user cannot know whether it runs"
        (tmp_path / "state").chmod(0o700)
        held = lock(tmp_path / "state" / FILE_NAME)
        assert not_checked(examined(hidden)), "it runs"
        os.close(held)
        running.commit_transaction(60)  # raises where another producer has taken the id


def not_checked(findings: list[dict[str, Any]]) -> bool:
    """Whether all checks of Kafka were made, without one of the id."""
    assert {"broker", "rights", "topic"} <= {one["check"] for one in findings}, findings
    return any("gw1" in one["text"] and "while the agent runs" in one["text"] for one in findings)
