"""`oncegate events | less`, left open: the service still restarts its log, and drops no event."""

import fcntl
import http.client
import json
import random
import struct
import subprocess
import sys
import termios
from contextlib import closing
from pathlib import Path

import pytest

from agent.status import read_status
from agent.store.layout import FILE_NAME
from simulators.services.process import Process
from tests.support.agent_process import agent_process
from tests.support.waiting import wait_until

BYTES_MAX = 24 << 20
BACKLOG_PACKS, PACK = 40, 50
COMMITS = 1_500
"""Of one event; each takes 4 to 5 pages of the log, so that all of them together exceed the store's limit."""
LOG_BYTES_MAX = 12 << 20
PIPE_BYTES = 1 << 12
"""Minimum number of bytes that the waiting pager has received."""


def start(agent: Process) -> http.client.HTTPConnection:
    agent.start()
    agent.wait_for_log("agent=ready")
    return http.client.HTTPConnection("127.0.0.1", int(agent.log().split("http=127.0.0.1:")[1].split()[0]), timeout=60)


def post(connection: http.client.HTTPConnection, chance: random.Random, ids: range) -> int:
    events = [{"device": "d", "id": number, "data": {"text": f"{chance.getrandbits(800):0200x}"}} for number in ids]
    connection.request("POST", "/api/v1/events", json.dumps(events), {"Content-Type": "application/json"})
    response = connection.getresponse()
    response.read()
    return response.status


def waiting_bytes(pipe: int) -> int:
    """Count the unread bytes in a pipe."""
    found: int = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))[0]
    return found


@pytest.mark.guarantee(3)
@pytest.mark.heavy
def test_a_pager_that_waits_costs_no_event_and_no_room(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed={seed}")
    chance = random.Random(seed)
    configuration = tmp_path / "oncegate.toml"
    state = tmp_path / "state"
    configuration.write_text(
        f'[gateway]\nid = "gw1"\nstate_dir = "{state}"\n[kafka]\nbootstrap_servers = "127.0.0.1:1"\n'
        '[coap]\nenabled = false\n[http]\nbind = "127.0.0.1:0"\n'
        f'[store]\nmax_bytes = {BYTES_MAX}\nwhen_full = "drop-oldest"\n'
    )
    command = (sys.executable, "-m", "agent.cli.main", "events", "--limit", "1000000", "--config")
    with agent_process(configuration) as agent, closing(start(agent)) as connection:
        backlog = BACKLOG_PACKS * PACK
        for first in range(0, backlog, PACK):
            assert post(connection, chance, range(first, first + PACK)) == 200
        with subprocess.Popen([*command, str(configuration)], stdout=subprocess.PIPE) as pager:
            assert pager.stdout is not None
            pipe = pager.stdout.fileno()
            wait_until(lambda: waiting_bytes(pipe) > PIPE_BYTES, "the pager has its first page", 60)
            largest = 0
            for number in range(backlog, backlog + COMMITS):
                assert post(connection, chance, range(number, number + 1)) == 200
                largest = max(largest, (state / f"{FILE_NAME}-wal").stat().st_size)
            assert pager.poll() is None
            assert largest < LOG_BYTES_MAX
            pager.kill()
        events = read_status(state, "gw1").events
        assert (events.lost, events.new) == (0, 1 + backlog + COMMITS)
