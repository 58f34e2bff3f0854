"""The agent as a real process, without Kafka: acked events are on disk, however it ends."""

import asyncio
import os
import random
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from agent.config.lanes import DEFAULT_LANE, LANES_MAX
from agent.store.files import swap
from agent.store.files.folders import store_folders
from agent.store.layout import FILE_NAME, FLUSH_SOCKET_NAME, PAGE_BYTES
from agent.store.read.events import Epochs, read_packed
from agent.store.schema import database
from contract.event import Label
from simulators import wire
from simulators.services.process import Process
from tests.agent.http import client as http_client
from tests.support.agent_process import configured, stored_documents, wait_until_ready
from tests.support.posting_gateway import PostingGateway
from tests.support.waiting import wait_until

KILLS, KILLS_MANY = 3, 200
WINDOW = 64
"""The client's concurrent requests."""
EVENT = b'{"device":"urn:dev:mac:0000000000000001","id":%d,"data":{"n":%d}}'
PAIR = b'[{"device":"urn:a","id":%d,"data":{"x":1}},{"device":"urn:a","type":"alarm","id":%d,"data":{"x":1}}]'
"""The events of one delivery that are of two lanes."""
LANES = '[[forward.lanes]]\nname = "alarms"\ntype = "alarm"\npriority = 1\n'


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    return configured(tmp_path)


class Client:
    """Keeps a window of concurrent requests and records which events were acked."""

    def __init__(self, port: int, first: int) -> None:
        self._socket = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        self._socket.connect(("::1", port))
        self._socket.settimeout(0.2)
        self.next = first
        self.acked: set[int] = set()
        self.form = EVENT
        """Of a body, with two places for the number of its events."""

    def send(self) -> None:
        self._socket.send(
            wire.Request(self.form % (self.next, self.next), 50).datagram(
                self.next % 65536, self.next.to_bytes(4, "big")
            )
        )
        self.next += 1

    def close(self) -> None:
        self._socket.close()

    def receive(self) -> bool:
        """Receive one answer, a success; return False without one."""
        try:
            message = wire.parse(self._socket.recv(2048))
        except (TimeoutError, ConnectionRefusedError):
            return False
        assert message is not None
        assert message.code_text == "2.04"
        self.acked.add(int.from_bytes(message.token, "big"))
        return True


Connect = Callable[[int, int], Client]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Create clients of a port, each with its first event's number."""
    with ExitStack() as stack:

        def make(port: int, first: int) -> Client:
            client = Client(port, first)
            stack.callback(client.close)
            return client

        yield make


def start(agent: Process) -> int:
    agent.start()
    return wait_until_ready(agent)["coap"]


def send_and_kill(client: Client, agent: Process, last: int) -> None:
    """Send events up to one, with WINDOW outstanding; kill the agent, and receive the answers that are on their way."""
    for _ in range(WINDOW):
        client.send()
    while client.next < last and client.receive():
        client.send()
    agent.kill()
    while client.receive():
        pass


def threads(pid: int) -> list[str]:
    return [file.read_text().strip() for file in Path(f"/proc/{pid}/task").glob("*/comm")]


def stored_ids(folder: Path, lane: str = DEFAULT_LANE) -> list[int]:
    stored = stored_documents(store_folders(folder / "state")[lane] / FILE_NAME)
    return [document["id"] for document in stored if document["via"] == "coap"]


def stored_labels(folder: Path) -> list[Label]:
    with closing(database.open_for_reading(folder / "state" / FILE_NAME)) as connection:
        epochs = Epochs.load(connection)
        return [epochs.label(event.position) for event in read_packed(connection, 1, 1 << 40)]


@pytest.mark.guarantee(1)
@pytest.mark.parametrize("kills", [KILLS, pytest.param(KILLS_MANY, marks=pytest.mark.heavy)])
@pytest.mark.parametrize(("lanes", "form"), [("", EVENT), (LANES, PAIR)], ids=["one lane", "two lanes"])
def test_sigkill_under_load_loses_no_part_of_an_acked_delivery_and_doubles_none(
    configuration: Path, agent: Process, connect: Connect, tmp_path: Path, lanes: str, form: bytes, kills: int
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed={seed}")
    moments = random.Random(seed)
    configuration.write_text(configuration.read_text() + lanes)
    acked: set[int] = set()
    following = 1
    lives = 0  # with an ack: on a slow machine an agent may be killed before its first commit, which begins its epoch
    for _ in range(kills):
        client = connect(start(agent), following)
        client.form = form
        send_and_kill(client, agent, following + moments.randrange(100, 1_000))
        acked |= client.acked
        lives += bool(client.acked)
        # What was not acked is sent again as new requests: a part of it may be on disk since before the kill.
        following = max(client.acked, default=following) + 1
    for lane in (DEFAULT_LANE, "alarms") if lanes else (DEFAULT_LANE,):
        ids = stored_ids(tmp_path, lane)
        assert len(ids) == len(set(ids))
        assert acked <= set(ids)
    assert len(acked) > kills * 20
    labels = stored_labels(tmp_path)
    assert len(labels) == len(set(labels))
    assert lives <= len({label.epoch for label in labels}) <= kills


def test_as_many_lanes_as_are_allowed_leave_threads_for_all_else(configuration: Path, agent: Process) -> None:
    lanes = "".join(LANES.replace("alarm", f"alarm-{place}") for place in range(LANES_MAX))
    configuration.write_text(f"{configuration.read_text()}[mqtt]\nenabled = true\nport = 1\n{lanes}")
    start(agent)
    http = http_client.Client(wait_until_ready(agent)["http"])
    wait_until(lambda: asyncio.run(http.get("/readyz")).code == 200, "the agent has tried each store")
    wait_until(lambda: "mqtt=disconnected" in agent.log(), "the agent has tried to reach the MQTT broker")
    assert agent.terminate() == 0


@pytest.mark.guarantee(1)
def test_sigterm_finishes_what_was_accepted(agent: Process, connect: Connect, tmp_path: Path) -> None:
    client = connect(start(agent), 1)
    for _ in range(WINDOW):
        client.send()
    wait_until(client.receive, "an answer")
    assert agent.terminate() == 0
    while client.receive():
        pass
    assert sorted(stored_ids(tmp_path)) == sorted(client.acked)


@pytest.mark.guarantee(3)
def test_a_stopped_broker_is_said_once_and_keeps_nobody_waiting(agent: Process, connect: Connect) -> None:
    client = connect(start(agent), 1)
    client.send()
    wait_until(client.receive, "an answer")
    wait_until(lambda: "kafka=unreachable" in agent.log(), "the agent reports that Kafka is unreachable")
    client.send()
    wait_until(client.receive, "an answer")
    assert agent.log().count("kafka=unreachable") == 1
    wait_until(lambda: not any(name.startswith("rdk:") for name in threads(agent.pid)), "its clients are gone")


def test_what_the_agent_writes_is_not_for_others_whatever_umask_it_gets(
    agent: Process, connect: Connect, tmp_path: Path
) -> None:
    before = os.umask(0)
    try:
        client = connect(start(agent), 1)
    finally:
        os.umask(before)
    client.send()
    wait_until(client.receive, "an answer")
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "state").rglob("*")}
    assert {FILE_NAME, f"{FILE_NAME}-wal", f"{FILE_NAME}.open", FLUSH_SOCKET_NAME} <= modes.keys()
    assert {name: oct(mode) for name, mode in modes.items() if mode & 0o007} == {}


COMMITS = 60


@pytest.mark.guarantee(7)
def test_a_reader_that_is_open_at_the_restart_is_no_damage_and_stops_nobody(tmp_path: Path) -> None:
    with PostingGateway(tmp_path, tmp_path / "state").process() as gateway:
        gateway.start()
        for _ in range(5):
            assert gateway.post() == 200
        with closing(database.open_for_reading(gateway.store)) as reader:
            reader.execute("BEGIN")
            before = reader.execute("SELECT count(*) FROM events").fetchone()
            for _ in range(COMMITS):
                assert gateway.post() == 200
            gateway.agent.kill()
            length = gateway.store.stat().st_size
            with closing(database.open_for_reading(gateway.store)) as another:
                pages: int = another.execute("PRAGMA page_count").fetchone()[0]
            assert length < pages * PAGE_BYTES, "the reader keeps the file's last pages in the log"
            gateway.start()
            assert gateway.post() == 200
            assert "store=damaged" not in gateway.agent.log()
            assert reader.execute("SELECT count(*) FROM events").fetchone() == before
        assert gateway.post() == 200
        assert gateway.stored().keys() == gateway.acked
        assert not any(swap.damaged_files(gateway.store))
