"""Copies of one gateway: a datagram captured on its way to one is refused by the others, and later by the same one."""

import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import Any, Self

import pytest
from aiocoap import Message, oscore  # type: ignore[import-untyped] # aiocoap carries no types
from aiocoap.numbers.codes import Code  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.coap.oscore.serving import Freshness, OscoreServing
from agent.coap.server import CoapServer
from tests.agent.coap.oscore.protected import CREDENTIAL, ProtectedSensor, sensor_folder
from tests.agent.coap.sensor import Sensor
from tests.agent.coap.serving import GENEROUS, serving
from tests.agent.recorder import Recorder

COPIES = 2
BLOCK = 16


class Client(Enum):
    """When a device's CoAP stack sends an Echo value again."""

    FORGETS = "forgets"
    """As aiocoap's client."""
    KEEPS_FOR_EACH = "keeps one for each address"
    """The latest value of an answer, like libcoap's client; each copy is reached at an address of its own."""
    KEEPS_ONE = "keeps one"
    """The same, but all copies are reached at one address."""


copies = st.integers(0, COPIES - 1)
posts = st.tuples(st.just("post"), copies)
replays = st.tuples(st.just("replay"), copies, st.integers(0, 9), st.booleans())
restarts = st.tuples(st.just("restart"), copies)
uploads = st.tuples(st.just("upload"), copies, copies)
steps = st.one_of(posts, posts, uploads, replays, replays, replays, restarts)


def body(number: int) -> bytes:
    """Write an event that has neither id nor time: only OSCORE can distinguish its duplicate from a new one."""
    return b"\xa1\x64data\xa1\x61x\x1a" + number.to_bytes(4, "big")


class Gateways:
    """Concurrent copies of one gateway, one device that sends to each, and an attacker who captures all datagrams."""

    def __init__(self, folder: Path, freshness: Freshness, client: Client) -> None:
        self._folder = folder
        self._freshness = freshness
        self._client = client
        self._sensor = ProtectedSensor(sensor_folder(folder / "sensor"), keeps_echo=client is not Client.FORGETS)
        self._kept: dict[Sensor, bytes | None] = {}
        self._recorder = Recorder()
        self._servers: list[CoapServer] = []
        self._device: list[Sensor] = []
        self._stranger: list[Sensor] = []
        self.captured: list[bytes] = []
        self.acked: list[bytes] = []
        self.ciphertexts: dict[tuple[str, bytes], set[bytes]] = defaultdict(set)
        """Of all answers, by the parts of their nonce."""

    async def __aenter__(self) -> Self:
        first = await self._started(0, "[::1]:0")
        with Sensor(first.port) as socket:
            await self._post(socket)
        await first.__aexit__(None, None, None)
        for copy in range(1, COPIES):
            shutil.copytree(self._folder / "numbers-0", self._folder / f"numbers-{copy}")
        self._servers = [await self._started(copy, "[::1]:0") for copy in range(COPIES)]
        self._device = [Sensor(server.port).__enter__() for server in self._servers]
        self._stranger = [Sensor(server.port).__enter__() for server in self._servers]
        return self

    async def __aexit__(self, *_: object) -> None:
        for socket in (*self._device, *self._stranger):
            socket.__exit__(None, None, None)
        for server in self._servers:
            await server.__aexit__(None, None, None)

    @property
    def taken(self) -> Counter[bytes]:
        """How often each body was accepted, by any copy."""
        return Counter(delivery.body for delivery in self._recorder.deliveries)

    async def restart(self, copy: int) -> None:
        port = self._servers[copy].port
        await self._servers[copy].__aexit__(None, None, None)
        self._servers[copy] = await self._started(copy, f"[::1]:{port}")

    async def post(self, copy: int) -> None:
        await self._post(self._device[copy])

    async def upload(self, copy: int, later: int) -> None:
        """Send a body in blocks, to another copy after the first block where they differ; ack it if all are taken."""
        payload = body(len(self.acked)) + bytes(2 * BLOCK)
        for number, start in enumerate(range(0, len(payload), BLOCK)):
            socket = self._device[later if number else copy]
            more = start + BLOCK < len(payload)
            of_upload = {"block1": (number, more, 0), "request_tag": [payload[10:14]]}
            answer = await self._sent(socket, payload[start : start + BLOCK], **of_upload)
            if answer.code != (Code.CONTINUE if more else Code.CHANGED):
                return
        self.acked.append(payload)

    async def replay(self, copy: int, which: int, as_device: bool) -> None:
        """Replay a captured datagram, counted from the latest, from the attacker's address or from the device's."""
        sockets = self._device if as_device else self._stranger
        await self._ask(sockets[copy], self.captured[-1 - which % len(self.captured)])

    async def _started(self, copy: int, bind: str) -> CoapServer:
        offer = OscoreServing((CREDENTIAL,), self._folder / f"numbers-{copy}", required=True, freshness=self._freshness)
        return await serving(self._recorder, GENEROUS, bind, oscore=offer).__aenter__()

    async def _post(self, socket: Sensor) -> None:
        payload = body(len(self.acked))
        assert (await self._sent(socket, payload)).code == Code.CHANGED
        self.acked.append(payload)

    async def _sent(self, socket: Sensor, payload: bytes, **options: Any) -> Message:
        """Send a request, and again with the Echo value that is asked for; return the answer."""
        if self._client is Client.KEEPS_FOR_EACH:
            self._sensor.echo = self._kept.get(socket)
        echo = self._sensor.echo
        for _ in range(2):
            request = Message(code=Code.POST, uri_path=("e",), payload=payload, content_format=60, echo=echo, **options)
            raw, reference = self._sensor.sealed(request)
            self.captured.append(raw)
            answer = self._sensor.read(await self._ask(socket, raw), reference)
            if answer.code != Code.UNAUTHORIZED:
                break
            echo = answer.opt.echo
        self._kept[socket] = self._sensor.echo
        return answer

    async def _ask(self, socket: Sensor, raw: bytes) -> bytes:
        answer = await socket.ask_raw(raw)
        message = Message.decode(answer)
        if message.opt.oscore is not None:
            own = oscore.verify_start(message).get(oscore.COSE_PIV)
            asked = oscore.verify_start(Message.decode(raw))[oscore.COSE_PIV]
            nonce = ("sensor's number", asked) if own is None else ("gateway's number", own)
            self.ciphertexts[nonce].add(message.payload)
        return answer


async def play(folder: Path, freshness: Freshness, client: Client, history: Iterable[tuple[Any, ...]]) -> Gateways:
    async with Gateways(folder, freshness, client) as gateways:
        for name, *arguments in history:
            await getattr(gateways, name)(*arguments)
        return gateways


@pytest.mark.guarantee(2)
@pytest.mark.heavy
@settings(max_examples=40)
@given(
    history=st.lists(steps, min_size=8, max_size=30),
    how=st.sampled_from(
        [(Freshness.REQUEST, client) for client in Client]
        + [(Freshness.ANSWER, client) for client in (Client.FORGETS, Client.KEEPS_FOR_EACH)]
    ),
)
async def test_whatever_is_replayed_to_whichever_copy_each_event_is_taken_once_and_no_nonce_encrypts_twice(
    tmp_path_factory: pytest.TempPathFactory, history: list[tuple[Any, ...]], how: tuple[Freshness, Client]
) -> None:
    gateways = await play(tmp_path_factory.mktemp("copies"), *how, history)
    assert gateways.taken == Counter(gateways.acked)
    assert [nonce for nonce, texts in gateways.ciphertexts.items() if len(texts) > 1] == []


@pytest.mark.guarantee(2)
@settings(max_examples=20)
@given(history=st.lists(steps, min_size=8, max_size=30), client=st.sampled_from(Client))
async def test_where_only_the_first_request_is_proven_one_gateway_alone_takes_each_event_once(
    tmp_path_factory: pytest.TempPathFactory, history: list[tuple[Any, ...]], client: Client
) -> None:
    alone = [(name, 0, *arguments) for name, _, *arguments in history]
    gateways = await play(tmp_path_factory.mktemp("alone"), Freshness.START, client, alone)
    assert gateways.taken == Counter(gateways.acked)


@pytest.mark.guarantee(2)
@pytest.mark.parametrize("freshness", Freshness)
async def test_what_was_challenged_and_asked_anew_is_not_taken_later_though_it_overtook_the_first_proof(
    tmp_path: Path, freshness: Freshness, recorder: Recorder
) -> None:
    sensor = ProtectedSensor(sensor_folder(tmp_path / "sensor"), keeps_echo=False)
    offer = OscoreServing((CREDENTIAL,), tmp_path / "numbers", required=True, freshness=freshness)
    async with serving(recorder, GENEROUS, oscore=offer) as server:
        with Sensor(server.port) as device, Sensor(server.port) as stranger:
            echo = (await sensor.answer(device, sensor.request(body(0)))).opt.echo
            retransmission_key, of_proof = sensor.request(body(0), echo)
            overtaking, of_overtaking = sensor.request(body(1))
            challenge = sensor.read(await device.ask_raw(overtaking), of_overtaking)
            assert sensor.read(await device.ask_raw(retransmission_key), of_proof).code == Code.CHANGED
            anew, of_anew = sensor.request(body(1), challenge.opt.echo)
            assert sensor.read(await device.ask_raw(anew), of_anew).code == Code.CHANGED
            await stranger.ask_raw(overtaking)
    assert [delivery.body for delivery in recorder.deliveries] == [body(0), body(1)]


@pytest.mark.guarantee(2)
@pytest.mark.parametrize("as_device", [False, True], ids=["stranger", "device's address"])
@pytest.mark.parametrize("client", Client)
@pytest.mark.parametrize("freshness", [Freshness.REQUEST, Freshness.ANSWER])
async def test_what_one_copy_has_accepted_is_refused_by_another_that_the_device_spoke_with_before(
    tmp_path: Path, freshness: Freshness, client: Client, as_device: bool
) -> None:
    history = [("post", 1), *[("post", 0)] * 5, *[("replay", 1, which, as_device) for which in range(9)]]
    gateways = await play(tmp_path, freshness, client, history)
    changed_copies = freshness is Freshness.ANSWER and client is Client.KEEPS_ONE
    doubled = [gateways.acked[2]] if changed_copies else []  # challenged by the first, with the second's value
    assert gateways.taken == Counter(gateways.acked + doubled)


async def test_a_client_that_keeps_what_answers_bring_is_challenged_once_in_each_life_of_the_agent(
    tmp_path: Path,
) -> None:
    history = [*[("post", 0)] * 5, ("restart", 0), *[("post", 0)] * 5]
    datagrams = {
        (freshness, client): len(
            (await play(tmp_path / f"{freshness.value}-{client.value}", freshness, client, history)).captured
        )
        for freshness in Freshness
        for client in Client
    }
    events, lives = 1 + 10, 3
    assert datagrams == {
        **dict.fromkeys(((Freshness.REQUEST, client) for client in Client), 2 * events),
        **dict.fromkeys(((Freshness.ANSWER, client) for client in Client), events + lives),
        **dict.fromkeys(((Freshness.START, client) for client in Client), events + lives),
        (Freshness.ANSWER, Client.FORGETS): 2 * events,
    }


@pytest.mark.parametrize("freshness", Freshness)
async def test_of_an_upload_by_a_client_that_forgets_only_the_first_block_is_challenged(
    tmp_path: Path, freshness: Freshness
) -> None:
    posted = await play(tmp_path / "posts", freshness, Client.FORGETS, [("post", 0)])
    uploaded = await play(tmp_path / "uploads", freshness, Client.FORGETS, [("upload", 0, 0)])
    blocks = -(-len(uploaded.acked[-1]) // BLOCK)
    assert uploaded.taken[uploaded.acked[-1]] == 1
    assert len(uploaded.captured) == len(posted.captured) + blocks - 1
