"""Bodies that are sent in blocks."""

from contextlib import suppress
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.coap.answer import BEGIN_AGAIN
from agent.coap.errors import RequestRefusedError
from agent.coap.message import uint
from agent.coap.slow_path.blocks import ASSEMBLIES_MAX, Block, Blocks, CompleteBody
from agent.delivery import Answer, Status
from tests.agent.coap.sensor import BLOCK1, CHANGED, CONTINUE, SIZE1, Response, Sensor, post
from tests.agent.coap.serving import BODY_BYTES_MAX, serving
from tests.agent.recorder import DURABLE, Recorder

BODY = bytes(range(150))
SIZE = 64


def blocks(body: bytes = BODY, run: int = 0) -> list[Block]:
    """Split a body; each run has its own datagrams."""
    starts = range(0, len(body), SIZE)
    return [
        Block(start, SIZE, start + SIZE < len(body), body[start : start + SIZE], f"{run} {start}".encode())
        for start in starts
    ]


class Uploader:
    def __init__(self, sensor: Sensor) -> None:
        self._sensor = sensor
        self._mids = count(1)
        self.sent: list[bytes] = []

    async def block(self, number: int, more: bool, payload: bytes, *options: tuple[int, bytes]) -> Response:
        option = BLOCK1, uint(number << 4 | more << 3 | 2)
        self.sent.append(post(mid=next(self._mids), payload=payload, options=(option, *options)))
        return await self._sensor.ask(self.sent[-1])

    async def upload(self, body: bytes) -> list[int]:
        starts = range(0, len(body), SIZE)
        return [(await self.block(at // SIZE, at + SIZE < len(body), body[at : at + SIZE])).code for at in starts]


REQUEST_TAG = 292
"""RFC 9175 section 3."""


def test_a_last_block_without_payload_may_come_again() -> None:
    upload = Blocks(1_000, 10.0)
    upload.add("a", blocks()[0], 0)
    empty = Block(SIZE, SIZE, False, b"", b"empty")
    first = upload.add("a", empty, 0)
    assert first is not None
    assert first.body == BODY[:SIZE]
    assert upload.add("a", empty, 0) == first


def test_another_upload_of_the_same_body_has_another_proof() -> None:
    upload = Blocks(1_000, 10.0)
    one, other = ([upload.add("a", block, 0) for block in blocks(run=run)][-1] for run in (1, 2))
    assert one is not None
    assert other is not None
    assert (one.body == other.body, one.retransmission_key == other.retransmission_key) == (True, False)


def test_a_single_block_is_proven_by_its_datagram() -> None:
    assert Blocks(1_000, 10.0).add("a", Block(0, SIZE, False, b"x", b"p"), 0) == CompleteBody(b"x", b"p")


def test_a_block_that_no_upload_could_have_changes_nothing() -> None:
    upload = Blocks(1_000, 10.0)
    first, second, last = blocks()
    bad = [Block(start, SIZE, True, b"short", b"bad") for start in (0, SIZE)]
    bad.append(Block(1_000 - SIZE + 1, SIZE, True, bytes(SIZE), b"large"))
    for block in (first, second):
        upload.add("a", block, 0)
        for wrong in bad:
            with pytest.raises(RequestRefusedError, match=r"disagree|too large"):
                upload.add("a", wrong, 0)
    complete = upload.add("a", last, 0)
    assert complete is not None
    assert complete.body == BODY


@pytest.mark.guarantee(1)
@given(
    st.lists(st.integers(1, 4), min_size=2, max_size=4),
    st.lists(st.lists(st.integers(0, 20), max_size=2), min_size=4, max_size=20),
)
def test_whatever_comes_late_each_body_is_one_that_was_sent(lengths: list[int], late: list[list[int]]) -> None:
    """A sensor sends a block once the last one is answered; the network delivers earlier datagrams again."""
    upload, numbers = Blocks(1_000, 10.0), count()
    bodies = [bytes((number,)) * (length * SIZE - 1) for number, length in enumerate(lengths)]
    sent: list[Block] = []
    delays = iter(late)

    def delivered(block: Block) -> bytes | None:
        complete = upload.add("a", block, 0)
        if complete is not None:
            assert complete.body in bodies
        return None if complete is None else complete.body

    def send(body: bytes) -> bool:
        """Return whether the upload ended with the body; False where the sensor must begin again."""
        for block in blocks(body):
            fresh = replace(block, retransmission_key=next(numbers).to_bytes(4, "big"))
            for index in next(delays, ()):
                if sent:
                    with suppress(RequestRefusedError):
                        delivered(sent[index % len(sent)])
            sent.append(fresh)
            try:
                whole = delivered(fresh)
            except RequestRefusedError:
                return False
        return whole == body

    for body in bodies:
        assert any(send(body) for _ in range(len(late) + 1))


def test_an_interrupted_upload_is_forgotten_after_its_lifetime() -> None:
    upload = Blocks(1_000, 10.0)
    first, second, _ = blocks()
    upload.add("a", first, 0)
    upload.add("b", blocks(run=1)[0], 5)
    with pytest.raises(RequestRefusedError, match="begin again"):
        upload.add("a", second, 10)
    assert len(upload._assemblies) == 1


def test_the_upload_that_has_rested_longest_makes_room() -> None:
    upload = Blocks(1_000, 10.0)
    runs = [blocks(run=run) for run in range(ASSEMBLIES_MAX + 1)]
    for run in range(ASSEMBLIES_MAX):
        upload.add(run, runs[run][0], 0)
    upload.add(0, runs[0][1], 0)
    upload.add("new", runs[-1][0], 0)
    assert len(upload._assemblies) == ASSEMBLIES_MAX
    with pytest.raises(RequestRefusedError, match="begin again"):
        upload.add(1, runs[1][1], 0)
    upload.add(2, runs[2][1], 0)


async def test_a_retransmitted_last_block_is_the_same_request() -> None:
    recorder = Recorder(Answer(Status.UNAVAILABLE))
    async with serving(recorder) as server, Sensor(server.port) as sensor:
        uploader = Uploader(sensor)
        assert await uploader.upload(BODY) == [CONTINUE, CONTINUE, 0xA3]
        recorder.answer = DURABLE
        again = await sensor.ask(uploader.sent[-1])
    assert again.code == CHANGED
    first, second = recorder.deliveries
    assert (first.body, first.retransmission_key) == (second.body, second.retransmission_key)


async def test_uploads_with_different_request_tags_are_apart(recorder: Recorder) -> None:
    async with serving(recorder) as server, Sensor(server.port) as sensor:
        uploader = Uploader(sensor)
        for body, tag in ((BODY, b"a"), (BODY[::-1], b"b")):
            await uploader.block(0, True, body[:SIZE], (REQUEST_TAG, tag))
        for number in (1, 2):
            part = BODY[number * SIZE : (number + 1) * SIZE]
            await uploader.block(number, number == 1, part, (REQUEST_TAG, b"a"))
    assert [delivery.body for delivery in recorder.deliveries] == [BODY]


async def test_an_upload_over_the_limit_is_refused_with_its_last_block(recorder: Recorder) -> None:
    async with serving(recorder) as server, Sensor(server.port) as sensor:
        *before, last = await Uploader(sensor).upload(bytes(BODY_BYTES_MAX + 1))
    assert set(before) == {CONTINUE}
    assert last == 0x8D
    assert recorder.deliveries == []


async def test_an_upload_that_announces_too_much_is_refused_at_once_with_size1() -> None:
    async with serving(Recorder()) as server, Sensor(server.port) as sensor:
        response = await Uploader(sensor).block(0, True, bytes(SIZE), (SIZE1, uint(BODY_BYTES_MAX + 1)))
    assert response.code == 0x8D
    assert uint(BODY_BYTES_MAX) in response.rest


@pytest.mark.guarantee(1)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("ab"),
            st.sampled_from((0, 0, 16, 32, 48)),
            st.sampled_from((16, 32)),
            st.booleans(),
            st.integers(0, 3),
            st.integers(0, 4),
        ),
        max_size=40,
    )
)
def test_whatever_comes_in_whatever_order_a_body_has_the_blocks_of_one_upload(
    arrivals: list[tuple[str, int, int, bool, int, int]],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("agent.coap.slow_path.blocks.ASSEMBLED_BYTES_MAX", 64)
        upload, now = Blocks(80, 10.0), 0.0
        uploads: dict[str, list[Block]] = {}
        arrived: dict[bytes, float] = {}
        for sensor, start, size, more, run, pause in arrivals:
            now += pause
            key = f"{sensor} {start} {size} {more} {run}".encode()
            block = Block(start, size, more, bytes((run,)) * (size if more else size - 1), key)
            new = now - arrived.get(key, -10.0) >= 10.0
            try:
                complete = upload.add(sensor, block, now)
            except RequestRefusedError as refused:
                if new and refused.reply is BEGIN_AGAIN:
                    arrived[key], uploads[sensor] = now, []
            else:
                if new:
                    arrived[key] = now
                    uploads[sensor] = [*(uploads[sensor] if start else ()), block]
                assert block in uploads[sensor]
                if complete is not None:
                    assert complete.body == b"".join(block.payload for block in uploads[sensor])
            kept = [len(assembly.body) for assembly in upload._assemblies.values()]
            assert upload._bytes == sum(kept)
            assert len(kept) < 2 or sum(kept) <= 64
