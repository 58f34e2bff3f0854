"""The CoAP server: the composition of its parts."""

from __future__ import annotations

import asyncio
import logging
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from agent.coap.counters import Counters
from agent.coap.dispatcher import Dispatcher
from agent.coap.exchange import Exchanges, Now, SeparateResponses
from agent.coap.oscore.serving import OscoreServing
from agent.coap.slow_path.bridge import AiocoapBridge, BridgeTuning
from agent.coap.slow_path.requests import SlowPath
from agent.coap.slow_path.resource import EventsResource, make_site
from agent.coap.tuning import Tuning
from agent.coap.udp import UdpSocket
from agent.config.settings import CoapSettings
from agent.delivery import Receive, Refuse, refuse_uncounted
from agent.listening import Listen, listen_anew
from agent.pace import Pace

if TYPE_CHECKING:
    from agent.coap.oscore.contexts import ProtectedSite

_log = logging.getLogger(__name__)


class CoapServer:
    """Receives events over CoAP: `async with CoapServer(settings, receive) as server`.

    Each request leads to one call of `receive`; its answer is sent when `receive` responds. Leaving the block drains.
    Raises BindError on entry.
    """

    def __init__(  # noqa: PLR0913  # its parts for tests
        self,
        settings: CoapSettings,
        receive: Receive,
        *,
        tuning: Tuning | None = None,
        random: Random | None = None,
        fast: bool = True,
        oscore: OscoreServing | None = None,
        now: Now = lambda: None,
        refuse: Refuse = refuse_uncounted,
        listen: Listen = listen_anew,
    ) -> None:
        self._settings = settings
        self._receive = receive
        self._tuning = tuning or Tuning()
        self._random = random or Random()
        self._fast = fast and not (oscore is not None and oscore.required)
        self._oscore = oscore
        self._now = now
        self.counters = Counters(refuse)
        self._udp = UdpSocket(settings.bind, settings.max_body_bytes, self.counters, listen)

    async def __aenter__(self) -> Self:
        self._udp.__enter__()
        tuning, counters, body_bytes_max = self._tuning, self.counters, self._settings.max_body_bytes
        bridge_tuning = BridgeTuning(tuning)
        pace = Pace()
        self._events = EventsResource(
            *(self._receive, body_bytes_max, tuning.exchange_lifetime_seconds, bridge_tuning, self._now, pace),
            refuse=counters.refuse,
        )
        plain = make_site(self._events)
        self._protected = self._protected_site(plain, bridge_tuning, pace)
        self._bridge = AiocoapBridge(self._udp.send, self._protected or plain, bridge_tuning, self._udp.address)
        await self._bridge.open()
        separate = SeparateResponses(self._udp.send, tuning, self._random)
        self._exchanges = Exchanges(
            self._udp.send, separate, self._bridge.next_message_id, body_bytes_max, tuning, counters, self._now
        )
        self._slow_path = SlowPath(self._udp.send, self._bridge, tuning, body_bytes_max, counters, self._oscore)
        self._dispatcher = Dispatcher(
            self._udp,
            self._receive,
            self._exchanges,
            self._slow_path,
            counters,
            body_bytes_max=body_bytes_max,
            fast=self._fast,
        )
        self._dispatcher.open()
        _log.info("coap=listening address=%s receive_buffer_bytes=%d", self.address, self._udp.receive_buffer_bytes)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            async with asyncio.timeout(self._tuning.drain_seconds_max):
                await self.drain()
        except TimeoutError:
            _log.warning("coap=closed in_progress=%d", self.in_progress)
        finally:
            self._exchanges.close()
            await self._bridge.close()
            self._udp.__exit__(kind, error, trace)

    def _protected_site(self, plain: Any, tuning: BridgeTuning, pace: Pace) -> ProtectedSite | None:
        """Return the site behind OSCORE, None where that is not configured."""
        if self._oscore is None:
            return None
        from agent.coap.oscore.contexts import Contexts, ProtectedSite  # cryptography is large: only where it is used

        contexts = Contexts(self._oscore)
        self._renew = contexts.renew
        return ProtectedSite(plain, contexts, tuning, pace, self.counters)

    def renew(self, oscore: OscoreServing) -> None:
        self._renew(oscore)

    async def drain(self) -> None:
        """Stop reading, and wait until the requests in progress have been answered."""
        self._dispatcher.close()
        await self._dispatcher.finished()
        self._slow_path.close()
        await self._exchanges.finished()
        if self._protected is not None:
            await self._protected.finished()
        await self._events.finished()

    def forget_answers(self) -> None:
        """Clear the caches of answers, since the store has lost some of the events.

        Under OSCORE a retransmission is then refused as a replay: the sensor has to make a new request.
        """
        self._exchanges.forget_answers()
        self._bridge.forget_answers()

    @property
    def in_progress(self) -> int:
        """How many requests wait for their outcome."""
        return len(self._exchanges) + self._events.in_progress

    @property
    def port(self) -> int:
        return self._udp.address[1]

    @property
    def address(self) -> str:
        """The address that the socket is bound to, as `[host]:port`."""
        host, port, _, _ = self._udp.address
        return f"[{host}]:{port}"
