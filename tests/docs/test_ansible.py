"""The example for Ansible configures gateways, and changes nothing where a configuration is refused."""

import json
import sys
import tomllib
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.support.commands import run

EXAMPLE = ROOT / "docs" / "examples" / "ansible"
PROGRAMS = Path(sys.executable).parent
GATEWAYS = ("gw-001", "gw-002", "gw-150")
"""Three of the example's three hundred, in the order of its inventory; the first is alone in the first turn."""


def play(folder: Path, **variables: str | bool) -> tuple[int, dict[str, dict[str, int]]]:
    """Run the playbook on folders of this machine; return its status and the counts of each gateway."""
    given = {"ansible_connection": "local", "with_systemd": False, "root": f"{folder}/{{{{ inventory_hostname }}}}"}
    given |= {"oncegate": str(PROGRAMS / "oncegate"), "ansible_python_interpreter": sys.executable, **variables}
    inventory = ("-i", str(EXAMPLE / "inventory.yml"), "--limit", ",".join(GATEWAYS))
    command = [str(PROGRAMS / "ansible-playbook"), *inventory, str(EXAMPLE / "gateways.yml"), "-e", json.dumps(given)]
    environment = {"LC_ALL": "C.UTF-8", "ANSIBLE_STDOUT_CALLBACK": "default"}
    environment |= {"ANSIBLE_LOCAL_TEMP": f"{folder}/tmp"}
    environment |= {"ANSIBLE_REMOTE_TEMP": f"{folder}/tmp", "ANSIBLE_HOME": f"{folder}/home", "ANSIBLE_NOCOLOR": "1"}
    ended = run(*command, environment=environment)
    counts = {}
    for line in ended.stdout.partition("PLAY RECAP")[2].splitlines()[1:]:
        if not line.strip():
            continue
        name, _, words = line.partition(" : ")
        counts[name.strip()] = {word: int(count) for word, count in (pair.split("=") for pair in words.split())}
    return ended.returncode, counts


@pytest.mark.heavy
@pytest.mark.skipif(not (PROGRAMS / "ansible-playbook").exists(), reason="ansible-core is not installed")
def test_the_playbook_configures_each_gateway_once_and_stops_at_the_first_that_refuses(tmp_path: Path) -> None:
    def written(gateway: str) -> str:
        return (tmp_path / gateway / "etc" / "oncegate" / "oncegate.toml").read_text()

    status, counts = play(tmp_path)
    assert (status, sorted(counts)) == (0, sorted(GATEWAYS))
    before = {gateway: written(gateway) for gateway in GATEWAYS}
    for gateway, text in before.items():
        settings = tomllib.loads(text)
        assert settings["gateway"]["id"] == gateway
        assert settings["store"] == {"max_bytes": "4GiB"}
        assert counts[gateway]["changed"] > 0
    status, counts = play(tmp_path)
    assert (status, [counts[gateway]["changed"] for gateway in GATEWAYS]) == (0, [0, 0, 0])
    status, counts = play(tmp_path, more_settings="[store]\nmax_byte = 1\n")
    assert (status, list(counts)) == (2, [GATEWAYS[0]])
    assert {gateway: written(gateway) for gateway in GATEWAYS} == before
