"""`oncegate doctor` as a user without the rights of the agent's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

CAPABILITIES = "-dac_override,-dac_read_search"
AS_ANYBODY = ["setpriv", f"--bounding-set={CAPABILITIES}", f"--inh-caps={CAPABILITIES}"] if os.geteuid() == 0 else []
"""Takes root's exemption from the permissions of files away."""


@pytest.fixture
def hidden(tmp_path: Path) -> Iterator[Path]:
    """Yield a configuration whose state folder only its owner may enter, who has forbidden it to himself, too."""
    folder = tmp_path / "state"
    folder.mkdir()
    (folder / "events.db").touch()
    file = tmp_path / "oncegate.toml"
    file.write_text(f'[gateway]\nid = "gw1"\nstate_dir = "{folder}"\n[kafka]\nbootstrap_servers = "127.0.0.1:1"\n')
    folder.chmod(0)
    yield file
    folder.chmod(0o700)


def test_what_this_user_may_not_check_is_a_warning_and_the_rest_is_checked(hidden: Path) -> None:
    command = [*AS_ANYBODY, sys.executable, "-m", "agent.cli.main", "doctor", "--json", "--config", str(hidden)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")  # for the broker
    findings = [json.loads(line) for line in done.stdout.splitlines()]
    refused = {one["check"]: one for one in findings if "Permission denied" in one["text"]}
    assert set(refused) == {"space", "wear", "store", "ports"}
    assert {(one["condition"], one["hint"]) for one in refused.values()} == {("warning", "sudo oncegate doctor")}
    assert {one["check"] for one in findings} - set(refused) == {
        "clock",
        "python",
        "sqlite",
        "mount",
        "memory",
        "broker",
    }
