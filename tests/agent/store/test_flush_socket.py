"""The socket on which readers request counts that no commit has written yet."""

import asyncio
import os
import socket
from pathlib import Path

import pytest

from agent.status import read_status
from agent.store.errors import StoreError
from agent.store.flush_socket import FlushSocket
from agent.store.layout import FLUSH_SOCKET_NAME, socket_path
from agent.store.read import flush_request
from agent.store.read.flush_request import request_flush
from contract.event import Event
from tests.agent.store.stores import GATEWAY, HandClock, accept, commits, make_store

EVENT = Event("urn:dev:mac:00158d0001a2b3c4", id=1, data={"t": 21})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder in which the path of a socket is longer than Linux allows."""
    long = tmp_path / ("long" * 30)
    long.mkdir()
    return long


@pytest.mark.guarantee(2)
async def test_whoever_asks_finds_the_counts_on_the_disk(folder: Path) -> None:
    clock = HandClock()
    async with make_store(folder, clock) as store, FlushSocket(folder, store.flush):
        await accept(store, clock, EVENT)
        for copies in (1, 2):
            await accept(store, clock, EVENT)
            assert read_status(folder, GATEWAY).duplicates == copies - 1
            assert await asyncio.to_thread(request_flush, folder)
            assert read_status(folder, GATEWAY).duplicates == copies
        written = commits(store)
        assert await asyncio.to_thread(request_flush, folder)
        assert commits(store) == written, "nothing was pending, and nothing is written"


async def test_without_an_agent_nobody_answers(folder: Path) -> None:
    assert not request_flush(folder / "missing")
    assert not request_flush(folder)
    descriptor = os.open(folder, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as left_by_a_kill:
        left_by_a_kill.bind(socket_path(descriptor))
    os.close(descriptor)
    assert not request_flush(folder)
    async with FlushSocket(folder, lambda: None):
        assert await asyncio.to_thread(request_flush, folder)
    assert not (folder / FLUSH_SOCKET_NAME).exists()


async def test_a_flush_that_fails_is_not_answered_and_the_next_one_is(folder: Path) -> None:
    failures = [StoreError("the disk is full")]

    def flush() -> None:
        if failures:
            raise failures.pop()

    async with FlushSocket(folder, flush):
        assert not await asyncio.to_thread(request_flush, folder)
        assert await asyncio.to_thread(request_flush, folder)


async def test_a_reader_does_not_wait_for_a_disk_that_hangs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flush_request, "ANSWER_SECONDS_MAX", 0.05)
    hangs = asyncio.Event()
    loop = asyncio.get_running_loop()

    def flush() -> None:
        asyncio.run_coroutine_threadsafe(hangs.wait(), loop).result()

    async with FlushSocket(folder, flush):
        assert not await asyncio.to_thread(request_flush, folder)
        hangs.set()


async def test_a_folder_that_takes_no_socket_keeps_nobody_from_starting(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / FLUSH_SOCKET_NAME).mkdir()
    async with FlushSocket(folder, lambda: None):
        assert not await asyncio.to_thread(request_flush, folder)
    assert "flush_socket=failed" in caplog.text
