"""One connection to the broker.

paho can run in a thread of its own, or expose its socket. Here the socket is registered with the event loop: a message
reaches the pipeline, and its acknowledgement the socket, without another thread or a lock, and to stop reading is all
that back pressure takes. Only connecting, which blocks, happens in a thread.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

from paho.mqtt.client import Client
from paho.mqtt.subscribeoptions import SubscribeOptions

from agent.mqtt.buffered_socket import BufferedSocket
from agent.mqtt.client import OFFLINE, ONLINE, state_topic
from agent.mqtt.packets import Message
from agent.pace import TURN_SECONDS_MAX

READS_PER_TURN = 64
"""Packets read at most in one turn of the event loop."""
LOOP_SECONDS = 1.0
"""How often paho checks its keepalive."""
DISCONNECT_SECONDS_MAX = 2.0

Filter = tuple[str, int] | tuple[str, SubscribeOptions]


class Connection:
    """A connected client in the event loop; `ended` gets the reason when the connection is over."""

    def __init__(self, client: Client, gateway: str, filters: Sequence[Filter]) -> None:
        self._client = client
        self._state_topic = state_topic(gateway)
        self._filters = list(filters)
        self._on_message: Callable[[Message], None] | None = None
        self._loop = asyncio.get_running_loop()
        self._reading: BufferedSocket | None = None
        self._next_read: asyncio.Handle | None = None
        """Scheduled where bytes may have been read ahead, which the kernel no longer reports."""
        self._writing = False
        self._had_session = False
        self._offline_message_id = 0
        self._timer: asyncio.TimerHandle | None = None
        self.subscribed: asyncio.Future[bool] = self._loop.create_future()
        """Set once messages can arrive, to whether the broker still had the session."""
        self.ended: asyncio.Future[str] = self._loop.create_future()

    def open(self, on_message: Callable[[Message], None]) -> None:
        """Register the socket with the loop; `on_message` is called with each message."""
        self._on_message = on_message
        client = self._client
        client.on_connect = self._on_connect
        client.on_subscribe = self._on_subscribe
        client.on_disconnect = self._on_disconnect
        client.on_socket_close = self._on_socket_close
        client.on_socket_register_write = self._on_want_write
        client.on_socket_unregister_write = self._on_wrote_all
        self._run_keepalive()
        self.resume()
        if client.want_write():
            self._write()

    def acknowledge(self, message_id: int) -> None:
        """Send the PUBACK; after the connection's end do nothing, and the broker sends the message again."""
        if not self.ended.done():
            self._client.ack(message_id, 1)

    def pause(self) -> None:
        """Stop reading, so that the broker keeps its messages."""
        if self._reading is not None:
            self._loop.remove_reader(self._reading)
            self._reading = None
        if self._next_read is not None:
            self._next_read.cancel()
            self._next_read = None

    def resume(self) -> None:
        if self._reading is None and (sock := self._socket()) is not None:
            self._reading = sock
            self._loop.add_reader(sock, self._readable)
            self._read_soon()

    async def disconnect(self) -> None:
        """Publish the state offline, and disconnect; the broker sends again what was not acknowledged.

        The broker processes packets in order: once it has acknowledged this message, it has processed each PUBACK
        before it. Until then reading continues, since closing with unread bytes makes the kernel reset the connection.
        """
        self.resume()
        if not self.ended.done():
            self._client.on_publish = self._on_publish
            self._offline_message_id = self._client.publish(self._state_topic, OFFLINE, qos=1, retain=True).mid
            await asyncio.wait([self.ended], timeout=DISCONNECT_SECONDS_MAX)
        self.close("left")

    def close(self, reason: str) -> None:
        """Close the socket at once; queued PUBACKs are sent if that is possible."""
        if self._socket() is not None and self._client.want_write():
            self._client.loop_write()
        if self._timer is not None:
            self._timer.cancel()
        if (sock := self._socket()) is not None:
            self._on_socket_close(self._client, None, sock)
            # paho keeps the socket, and closes it again when it is collected.
            self._client.on_socket_close = None
            self._client.on_socket_unregister_write = None
            sock.close()
        self._end(reason)

    def _socket(self) -> BufferedSocket | None:
        sock: Any = None if self.ended.done() else self._client.socket()
        return cast("BufferedSocket | None", sock)

    def _read_soon(self) -> None:
        if self._next_read is None:
            self._next_read = self._loop.call_soon(self._read_ahead)

    def _read_ahead(self) -> None:
        self._next_read = None
        self._readable()

    def _readable(self) -> None:
        if self._next_read is not None:  # one read in a turn of the loop
            return
        try:
            self._read()
        except Exception as error:  # noqa: BLE001  # the top of a callback: `ended` raises it
            if not self.ended.done():
                self.ended.set_exception(error)

    def _read(self) -> None:
        end = self._loop.time() + TURN_SECONDS_MAX
        for _ in range(READS_PER_TURN):
            if self._reading is None:
                return
            if (message := self._reading.message()) is not None:
                assert self._on_message is not None
                self._on_message(message)
            else:
                self._run(self._client.loop_read)
                if (sock := self._socket()) is None or not sock.pending():
                    return
            if self._loop.time() >= end:
                break
        if self._reading is not None:
            self._read_soon()

    def _write(self) -> None:
        if (sock := self._socket()) is None:
            return
        self._writing = True
        try:
            with sock.gathering():
                self._run(self._client.loop_write)
            if self._socket() is not None and sock.flush() and not self._client.want_write():
                self._loop.remove_writer(sock)
        except OSError as error:
            self.close(f"the connection broke: {error}")
        finally:
            self._writing = False

    def _run_keepalive(self) -> None:
        self._run(self._client.loop_misc)
        if not self.ended.done():
            self._timer = self._loop.call_later(LOOP_SECONDS, self._run_keepalive)

    def _run(self, step: Callable[[], object]) -> None:
        """Run one of paho's steps; an exception because of the broker's bytes ends this connection only."""
        try:
            step()
        except Exception as error:  # noqa: BLE001  # paho does not document which exceptions it raises
            self.close(f"the broker's packets cannot be read: {error!r}")

    def _end(self, reason: str) -> None:
        if not self.ended.done():
            self.ended.set_result(reason)

    def _on_connect(self, client: Client, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            self.close(f"the broker refuses the connection: {reason}")
        else:
            self._had_session = flags.session_present
            client.subscribe(self._filters)  # type: ignore[arg-type] # a list of either kind, never mixed

    def _on_subscribe(self, client: Client, data: Any, message_id: int, reasons: Any, properties: Any) -> None:
        for (topic, _), reason in zip(self._filters, reasons, strict=True):
            if reason.is_failure:
                self.close(f"the broker refuses the subscription of {topic}: {reason}")
                return
        if not self._offline_message_id:  # a kept session delivers, and may be left, before this answer
            client.publish(self._state_topic, ONLINE, qos=1, retain=True)
        if not self.subscribed.done():
            self.subscribed.set_result(self._had_session)

    def _on_disconnect(self, client: Client, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        by_server = flags.is_disconnect_packet_from_server
        cause = "the broker disconnected" if by_server else "the broker closed the connection, or it broke"
        self._end(f"{cause}: {reason}")

    def _on_publish(self, client: Client, data: Any, message_id: int, reason: Any, properties: Any) -> None:
        if message_id == self._offline_message_id:
            client.disconnect()

    def _on_socket_close(self, client: Client, data: Any, sock: Any) -> None:
        self.pause()
        self._loop.remove_writer(sock)

    def _on_want_write(self, client: Client, data: Any, sock: Any) -> None:
        if not self.ended.done():
            self._loop.add_writer(sock, self._write)

    def _on_wrote_all(self, client: Client, data: Any, sock: Any) -> None:
        if not self._writing:  # else it is gathered, and not sent yet
            self._loop.remove_writer(sock)
