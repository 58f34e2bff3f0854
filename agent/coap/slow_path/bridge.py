"""Runs aiocoap behind the server's own socket, for requests that the fast path does not serve."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

from aiocoap import Context, Message, interfaces  # type: ignore[import-untyped] # aiocoap carries no types
from aiocoap.numbers.constants import TransportTuning  # type: ignore[import-untyped]
from aiocoap.numbers.types import CON  # type: ignore[import-untyped]

from agent.coap.exchange import ResponseCache, Send
from agent.coap.oscore.credentials import Credential
from agent.coap.tuning import Tuning
from agent.coap.udp import Address, Endpoint

PROTECTED_ANSWERS_MAX = 4_096
"""Answers to protected requests that are cached for retransmissions."""

_LOGGER = "agent.coap.aiocoap"
_IN_WORK = b""


class BridgeTuning(TransportTuning):  # type: ignore[misc] # aiocoap carries no types
    """The time limits of aiocoap's exchanges."""

    EXCHANGE_LIFETIME = 0.0
    """Disables aiocoap's deduplication: it recognises a retransmission by address and Message ID alone, and would
    answer a restarted sensor's new request with the old answer. Serving a request again is harmless (RFC 7252 section
    4.5): blocks and store recognise duplicates."""

    def __init__(self, tuning: Tuning) -> None:
        self.EMPTY_ACK_DELAY = tuning.empty_ack_seconds
        self.ACK_TIMEOUT = tuning.ack_timeout_seconds
        self.ACK_RANDOM_FACTOR = tuning.ack_random_factor
        self.MAX_RETRANSMIT = tuning.retransmits_max
        self.protected_lifetime_seconds = tuning.exchange_lifetime_seconds


class Remote(interfaces.EndpointAddress):  # type: ignore[misc] # aiocoap carries no types
    """The sensor as the sender of one datagram: equal to itself alone.

    So aiocoap distinguishes the requests of a sensor that reuses a Token while the first request is in progress, or a
    Message ID after a restart.
    """

    scheme = "coap"
    is_multicast = False
    is_multicast_locally = False

    def __init__(
        self, endpoint: Endpoint, retransmission_key: bytes, host: str, *, received: float | None = None
    ) -> None:
        self.endpoint = endpoint
        self.retransmission_key = retransmission_key
        self.received = received
        """When a protected request was received, in seconds of the loop's clock; None for a plain one."""
        self.credential: Credential | None = None
        """The credential that OSCORE has verified."""
        self._host = host

    def secured(self, credential: Credential) -> Remote:
        """Return the same sensor with its verified credential."""
        secured = Remote(self.endpoint, self.retransmission_key, self._host, received=self.received)
        secured.credential = credential
        return secured

    @property
    def sender(self) -> str:
        """The credential's device, or the address as a URI."""
        return self.endpoint.sender if self.credential is None else self.credential.device

    @property
    def hostinfo(self) -> str:
        return self.endpoint.sender.removeprefix("coap://")

    @property
    def hostinfo_local(self) -> str:
        return self._host

    @property
    def uri_base(self) -> str:
        return self.endpoint.sender

    @property
    def uri_base_local(self) -> str:
        return f"coap://{self._host}"

    @property
    def blockwise_key(self) -> bytes:
        return self.endpoint.key if self.credential is None else self.endpoint.key + self.credential.name.encode()


class _Interface(interfaces.MessageInterface):  # type: ignore[misc] # aiocoap carries no types
    """The transport that aiocoap sends through, for a server only: it resolves no names."""

    def __init__(self, send: Send, answered: ResponseCache) -> None:
        self._send = send
        self._answered = answered
        self.awaiting: WeakValueDictionary[tuple[Address, bytes], Remote] = WeakValueDictionary()
        """The remotes of sent CONs; each entry lives as long as aiocoap waits for its ACK."""

    def send(self, message: Message) -> None:
        remote: Remote = message.remote
        if message.mtype is CON:
            self.awaiting[remote.endpoint.address, message.mid.to_bytes(2, "big")] = remote
        datagram = message.encode()
        if remote.received is not None:
            self._answered.put(remote.retransmission_key, remote.received, datagram)
        self._send(datagram, remote.endpoint)

    async def recognize_remote(self, remote: object) -> bool:
        return isinstance(remote, Remote)

    async def determine_remote(self, message: Message) -> None:
        return None

    async def shutdown(self) -> None:
        """Do nothing: the socket does not belong to aiocoap."""


class AiocoapBridge:
    """An aiocoap server without a socket. Two of aiocoap's private names are used: the version is pinned."""

    def __init__(self, send: Send, site: interfaces.Resource, tuning: BridgeTuning, address: Address) -> None:
        self._send = send
        self._answered = ResponseCache(tuning.protected_lifetime_seconds, PROTECTED_ANSWERS_MAX)
        self._interface = _Interface(send, self._answered)
        self._site = site
        self._tuning = tuning
        self._host = f"[{address[0]}]:{address[1]}"

    async def open(self) -> None:
        logging.getLogger(_LOGGER).setLevel(logging.WARNING)  # below, it logs each request
        self._context = Context(asyncio.get_running_loop(), serversite=self._site, loggername=_LOGGER)

        async def connect(messages: Any) -> _Interface:
            self._messages = messages
            return self._interface

        await self._context._append_tokenmanaged_messagemanaged_transport(connect)

    async def close(self) -> None:
        """Stop aiocoap; its requests in progress are not answered."""
        await self._context.shutdown()

    @property
    def next_message_id(self) -> Callable[[], int]:
        """Aiocoap's generator of Message IDs, shared by all that is sent on the socket."""
        supply: Callable[[], int] = self._messages._next_message_id
        return supply

    def feed(self, datagram: bytes, endpoint: Endpoint, retransmission_key: bytes) -> None:
        self._dispatch(datagram, Remote(endpoint, retransmission_key, self._host))

    def feed_protected(self, datagram: bytes, endpoint: Endpoint, retransmission_key: bytes, now: float) -> None:
        """Hand a datagram that OSCORE protects to aiocoap.

        A retransmission must not reach OSCORE, which would refuse it as a replay: it is not answered while the request
        is in progress, and then gets the same answer.
        """
        answer = self._answered.get(retransmission_key, now)
        if answer is None:
            self._answered.put(retransmission_key, now, _IN_WORK)
            self._dispatch(datagram, Remote(endpoint, retransmission_key, self._host, received=now))
        elif answer != _IN_WORK:
            self._send(answer, endpoint)

    def forget_answers(self) -> None:
        """Clear the cached answers to protected requests."""
        self._answered.clear()

    def stop_retransmitting(self, datagram: bytes, endpoint: Endpoint) -> None:
        """Hand an ACK or Reset to aiocoap where it is for one of its messages."""
        remote = self._interface.awaiting.get((endpoint.address, datagram[2:4]))
        if remote is not None:
            self._dispatch(datagram, remote)

    def _dispatch(self, datagram: bytes, remote: Remote) -> None:
        message = Message.decode(datagram, remote)
        message.transport_tuning = self._tuning
        self._messages.dispatch_message(message)
