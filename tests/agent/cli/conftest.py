"""The agent that all tests of this folder share, each with devices of its own; and a command in the tests' process."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from simulators.services import ports
from tests.agent.cli.running import Run, RunningAgent, here
from tests.support.agent_process import agent_process, configured

CONFIGURATION = """\
[gateway]
id = "gw1"
state_dir = "{folder}/state"

[http]
bind = "127.0.0.1:0"

[kafka]
bootstrap_servers = "127.0.0.1:1"
properties = {{ "security.protocol" = "SASL_SSL", "sasl.password" = "geheim", "ssl.key.pem" = "geheim" }}
"""


@pytest.fixture(scope="session")
def running_agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningAgent]:
    folder = tmp_path_factory.mktemp("agent")
    (coap_port,), (http_port,) = ports.free(1, socket.SOCK_DGRAM), ports.free(1)
    ways_in = {"coap": f"127.0.0.1:{coap_port}", "http": f"127.0.0.1:{http_port}"}
    file = configured(folder, '[devices]\ndeny = ["urn:denied:*"]\n', **ways_in)
    running = RunningAgent(file, coap_port, http_port)
    with agent_process(running.configuration) as agent:
        agent.start()
        agent.wait_for_log("agent=ready")
        yield running


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "oncegate.toml"
    file.write_text(CONFIGURATION.format(folder=tmp_path))
    file.chmod(0o600)
    return file


@pytest.fixture
def oncegate() -> Run:
    def run(*arguments: str) -> tuple[int, str, str]:
        done = here(*arguments)
        return done.returncode, done.stdout, done.stderr

    return run
