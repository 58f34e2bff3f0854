"""An agent that all tests of this folder share: each uses devices of its own."""

import socket
from collections.abc import Iterator

import pytest

from simulators.services import ports
from tests.agent.cli.running import RunningAgent
from tests.support.agent_process import agent_process


@pytest.fixture(scope="session")
def running_agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningAgent]:
    folder = tmp_path_factory.mktemp("agent")
    (coap_port,), (http_port,) = ports.free(1, socket.SOCK_DGRAM), ports.free(1)
    running = RunningAgent(folder / "oncegate.toml", coap_port, http_port)
    running.configuration.write_text(
        f'[gateway]\nid = "gw1"\nstate_dir = "{folder}/state"\n[kafka]\nbootstrap_servers = "127.0.0.1:1"\n'
        f'[coap]\nbind = "127.0.0.1:{coap_port}"\n[http]\nbind = "127.0.0.1:{http_port}"\n'
        '[devices]\ndeny = ["urn:denied:*"]\n'
    )
    with agent_process(running.configuration) as agent:
        agent.start()
        agent.wait_for_log("agent=ready")
        yield running
