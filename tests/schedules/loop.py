"""An event loop whose waits are the scheduler's, and a network of datagrams in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from tests.schedules.scheduler import Process, Scheduler, Task
from tests.schedules.threads import void

Address = tuple[str, int]
Receive = Callable[[bytes, Address], None]
FLIGHT_SECONDS = 0.0005
PORT_FIRST = 40_000
HOST = "127.0.0.1"


class Network:
    """Bound addresses, and datagrams between them; one to an address that nobody has bound is lost."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._bound: dict[Address, tuple[Process, Receive]] = {}
        self._ports = PORT_FIRST

    def bind(self, process: Process, address: Address | None, receive: Receive) -> Address:
        """Bind an address, or a free one."""
        if address is None or address[1] == 0:
            self._ports += 1
            address = (HOST, self._ports)
        self._bound[address] = (process, receive)
        return address

    def release(self, address: Address) -> None:
        self._bound.pop(address, None)

    def send(self, datagram: bytes, source: Address, target: Address) -> None:
        self._scheduler.call(FLIGHT_SECONDS, f"datagram to {target[1]}", lambda: self._arrive(datagram, source, target))

    def _arrive(self, datagram: bytes, source: Address, target: Address) -> None:
        process, receive = self._bound.get(target, (None, None))
        if process is not None and receive is not None and process.alive:
            receive(datagram, source)


class _Datagrams(asyncio.DatagramTransport):
    def __init__(self, loop: VirtualLoop, protocol: Any, local: Address | None, remote: Address | None) -> None:
        super().__init__()
        self._loop = loop
        self._remote = remote
        self._address = loop.network.bind(
            loop.process,
            local,
            lambda datagram, source: void(loop.call_soon_threadsafe(protocol.datagram_received, datagram, source)),
        )
        self._closed = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._address if name == "sockname" else default

    def sendto(self, data: Any, addr: Any = None) -> None:
        target = self._remote if addr is None else addr
        assert target is not None
        self._loop.network.send(bytes(data), self._address, target)

    def is_closing(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True
        self._loop.network.release(self._address)


class VirtualLoop(asyncio.BaseEventLoop):
    """asyncio's own loop, with the scheduler as its selector and its clock, and threads as its executor."""

    def __init__(self, scheduler: Scheduler, network: Network, process: Process) -> None:
        super().__init__()
        self.network = network
        self.process = process
        self._scheduler = scheduler
        self._selector = self
        self._task: Task | None = None
        self._readers: dict[int, tuple[Callable[[], bool], asyncio.Handle]] = {}
        self.is_readable: dict[int, Callable[[], bool]] = {}
        """Whether a descriptor can be read now."""
        self.set_exception_handler(self._note_error)

    def time(self) -> float:
        return self._scheduler.now

    def run_forever(self) -> None:
        task = self._scheduler.running
        assert task is not None
        task.loop = self
        try:
            super().run_forever()
        finally:
            task.loop = None

    def select(self, timeout: float | None) -> list[asyncio.Handle]:
        """Wait for a callback of another thread, for a socket, or until the next timer (as a selector does)."""
        self._task = self._scheduler.running
        ready = self._readable()
        callbacks = self._ready  # type: ignore[attr-defined]
        if ready or callbacks or (timeout is not None and timeout <= 0):
            self._scheduler.pause("loop")
        else:
            self._scheduler.wait(timeout, "select")
        return ready or self._readable()

    def _readable(self) -> list[asyncio.Handle]:
        return [handle for readable, handle in self._readers.values() if readable()]

    def _process_events(self, event_list: list[asyncio.Handle]) -> None:
        for handle in event_list:
            self._add_callback(handle)  # type: ignore[attr-defined]

    def _write_to_self(self) -> None:
        if self._task is not None:
            self._scheduler.wake(self._task)

    def add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> None:  # type: ignore[override]
        self._readers[fd] = (self.is_readable[fd], asyncio.Handle(callback, args, self))

    def remove_reader(self, fd: Any) -> bool:
        return self._readers.pop(fd, None) is not None

    async def create_datagram_endpoint(
        self, protocol_factory: Callable[[], Any], local_addr: Any = None, remote_addr: Any = None, **_: Any
    ) -> Any:
        protocol = protocol_factory()
        transport = _Datagrams(self, protocol, local_addr, remote_addr)
        protocol.connection_made(transport)
        return transport, protocol

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> Any:
        answer: Future[Any] = Future()
        answer.set_running_or_notify_cancel()

        def run() -> None:
            try:
                answer.set_result(func(*args))
            except BaseException as error:  # noqa: BLE001  # handed to whoever awaits it
                answer.set_exception(error)

        self._scheduler.spawn(self.process, "executor", run)
        return asyncio.wrap_future(answer, loop=self)

    def _note_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self._scheduler.note(f"{self.process.name} loop: {context.get('message')} {error!r}")
        if error is not None and self.process.failure is None:
            self.process.failure = error
