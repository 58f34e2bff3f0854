"""OSCORE security contexts (RFC 8613): authenticated requests, and answers that only their sender can read.

aiocoap does the cryptography; the state is kept here. No replay window is stored: each process begins with an empty one
and draws a random token for each context. An Echo value (RFC 9175) with the token proves that a request was made for
this process; each value counts once, and the window prevents that its request is served twice. `coap.oscore.freshness`
selects which requests need the proof (decision 39).

A block that the device sent right after the block before it, as their consecutive numbers show, is accepted with that
one, which is proven: a challenge for each would double the traffic of an upload. So whatever is served without a value
follows something that was proven to this process.

Two copies of one process (a virtual machine copied with its memory) share token and window until one is restarted.
"""

import asyncio
import logging
import math
import secrets
from dataclasses import dataclass
from random import SystemRandom
from typing import Any

from aiocoap import Message, error, interfaces, oscore, resource  # type: ignore[import-untyped] # it carries no types
from aiocoap.numbers.codes import Code  # type: ignore[import-untyped]
from aiocoap.numbers.constants import TransportTuning  # type: ignore[import-untyped]

from agent.coap.answer import BAD_OPTION, BAD_REQUEST, TOO_MANY, UNAUTHORIZED, UNAVAILABLE, Reply, refusal_of
from agent.coap.counters import Counters
from agent.coap.errors import RequestRefusedError
from agent.coap.message import VERSION_1, join
from agent.coap.oscore.credentials import Credential
from agent.coap.oscore.sequence_numbers import NoNumberError, SenderNumbers, Sequence
from agent.coap.oscore.serving import Freshness, OscoreServing
from agent.coap.sanitizer import Disposition, sanitize
from agent.pace import Pace

WINDOW = 32
"""Sequence numbers below the highest seen that are still accepted (RFC 8613 section 7.4)."""
NUMBER_BYTES, TOKEN_BYTES = 5, 7
"""The parts of an Echo value: the number of the request that it answered, and the token of context and process."""
WAITING_BYTES_MAX = 4 << 20
"""Bytes of requests that wait for decryption; more are refused."""
REFUSALS_END_SECONDS = 60.0
"""After this time without such a refusal, the next occurrence is logged again."""
NUMBERS_FILE = "sender.number"

_log = logging.getLogger(__name__)


class NumberedContext(oscore.CanProtect, oscore.CanUnprotect, oscore.SecurityContextUtils):  # type: ignore[misc]
    """Keys, and sequence numbers that no context has used: what both sides of OSCORE have."""

    alg_aead = oscore.algorithms["AES-CCM-16-64-128"]
    hashfun = oscore.hashfunctions["sha256"]
    """Both mandatory in every OSCORE implementation (RFC 8613 section 3.2.1)."""
    echo_recovery = None
    """Disables aiocoap's own freshness check."""
    numbers: Sequence

    def new_sequence_number(self) -> int:
        return self.numbers.next_number()

    def post_seqnoincrease(self) -> None:
        """Do nothing: the numbers are reserved in advance."""


class SecurityContext(NumberedContext):
    """The keys and numbers shared with one sensor."""

    def __init__(self, credential: Credential, numbers: SenderNumbers, freshness: Freshness) -> None:
        self.credential = credential
        self.numbers = Sequence(numbers)
        self._freshness = freshness
        self.sender_id, self.recipient_id = credential.gateway_id, credential.sensor_id
        self.id_context = credential.id_context
        self.derive_keys(credential.salt, credential.secret)
        self.recipient_replay_window = empty_window()
        self._token = secrets.token_bytes(TOKEN_BYTES)
        self._spent = empty_window()
        """The numbers of the Echo values that were used."""
        self._fresh_from: int | None = None
        """The number of the first request that this process found fresh; lower ones may be older."""
        self._block_expected: int | None = None
        """The number of the next block, where one that was served has announced more."""

    def unprotect(self, message: Message, reference: Any = None) -> Any:
        """Decrypt a request; raise ReplayErrorWithEcho where it has to prove its freshness and does not.

        A challenge uses a new sequence number: another copy may have used the request's nonce already.
        """
        inner, reference = super().unprotect(message, reference)
        number, echo = int.from_bytes(reference.partial_iv, "big"), inner.opt.echo
        block = inner.opt.block1
        ours = echo is not None and echo[NUMBER_BYTES:] == self._token
        if block is not None and block.block_number > 0 and number == self._block_expected:
            pass
        elif ours and self._spend(int.from_bytes(echo[:NUMBER_BYTES], "big")):
            self._fresh_from = number if self._fresh_from is None else self._fresh_from
        elif self._has_to_prove(number) or (echo is not None and not ours):
            reference.can_reuse_nonce = False
            raise oscore.ReplayErrorWithEcho(self, reference, self._echo(number))
        self._block_expected = number + 1 if block is not None and block.more else None
        return inner, reference

    def echo_for_next(self, reference: Any) -> bytes | None:
        """Return the Echo value for an answer, None where answers carry none."""
        kept = self._freshness is Freshness.ANSWER
        return self._echo(int.from_bytes(reference.partial_iv, "big")) if kept else None

    def _has_to_prove(self, number: int) -> bool:
        """Whether a request with this number, which is new to the window, may be older than this process."""
        return self._freshness is not Freshness.START or self._fresh_from is None or number < self._fresh_from

    def _echo(self, number: int) -> bytes:
        return number.to_bytes(NUMBER_BYTES, "big") + self._token

    def _spend(self, number: int) -> bool:
        """Use up the Echo value with this number; return whether it was unused."""
        first = bool(self._spent.is_valid(number))
        if first:
            self._spent.strike_out(number)
        return first


@dataclass(frozen=True, slots=True)
class OpenedRequest:
    """A decrypted request, and what its answer needs."""

    request: Message
    context: SecurityContext
    reference: Any


class Contexts:
    """The security contexts, by recipient ID and ID context."""

    def __init__(self, serving: OscoreServing) -> None:
        self._numbers = SenderNumbers(serving.numbers_folder / NUMBERS_FILE, SystemRandom())
        self._contexts: dict[tuple[bytes, bytes | None], SecurityContext] = {}
        self.renew(serving)

    def renew(self, serving: OscoreServing) -> None:
        """Take other credentials; the context of one that stays keeps its state."""
        before, self._contexts = self._contexts, {}
        for credential in serving.credentials:
            key = credential.sensor_id, credential.id_context
            known = before.get(key)
            if known is None or known.credential != credential:
                known = SecurityContext(credential, self._numbers, serving.freshness)
            self._contexts[key] = known

    def find(self, request: Message) -> SecurityContext | None:
        """Return the context that a protected request names, None where there is none; raise DecodeError or IndexError.

        A group request is refused, since aiocoap's context would fail on its signature, and so is a number of more than
        five bytes, a length that RFC 8613 section 6.1 reserves.
        """
        named = oscore.verify_start(request)
        if oscore.COSE_COUNTERSIGNATURE0 in named or len(named.get(oscore.COSE_PIV, b"")) > NUMBER_BYTES:
            raise oscore.DecodeError
        return self._contexts.get((named.get(oscore.COSE_KID), named.get(oscore.COSE_KID_CONTEXT)))


class ProtectedSite(interfaces.Resource):  # type: ignore[misc] # aiocoap carries no types
    """The site behind OSCORE; plain requests reach it only where OSCORE is not required."""

    def __init__(
        self, site: resource.Site, contexts: Contexts, tuning: TransportTuning, pace: Pace, counters: Counters
    ) -> None:
        super().__init__()
        self._site = site
        self._contexts = contexts
        self._tuning = tuning
        self._pace = pace
        self._counters = counters
        self._waiting_bytes = 0
        self._in_progress = 0
        self._idle = asyncio.Event()
        self._refused_last = -math.inf

    async def needs_blockwise_assembly(self, request: Message) -> bool:
        """Return False: the resource assembles blocks itself."""
        return False

    async def render_to_pipe(self, pipe: Any) -> None:
        if pipe.request.opt.oscore is None:
            await self._site.render_to_pipe(pipe)
            return
        self._in_progress += 1
        try:
            pipe.add_response(await self.render(pipe.request), is_last=True)
        finally:
            self._in_progress -= 1
            if not self._in_progress:
                self._idle.set()

    async def finished(self) -> None:
        while self._in_progress:
            self._idle.clear()
            await self._idle.wait()

    async def render(self, request: Message) -> Message:
        """Decrypt a request, serve it, and encrypt the answer; refusals of what cannot be decrypted are plain."""
        try:
            await self._turn_to_open(len(request.payload))
            opened = self._open(request)
            answer = await self._answer(opened)
            await self._turn_to_protect(None if opened.reference.can_reuse_nonce else opened.context.numbers)
            return self._protected(opened, answer)
        except RequestRefusedError as refused:
            reply = refused.reply
            self._counters.refuse("coap", request.remote.sender, refusal_of(reply.code, reply.payload))
            return self._message(reply.code, reply.payload)
        except oscore.ReplayErrorWithEcho as challenge:
            await self._turn_to_protect(challenge.secctx.numbers)
            return self._challenge(challenge)

    async def _turn_to_open(self, request_bytes: int) -> None:
        """Wait for a turn of the event loop; raise RequestRefusedError where too much is waiting (decision 64)."""
        if self._waiting_bytes >= WAITING_BYTES_MAX:
            raise RequestRefusedError(TOO_MANY)
        self._waiting_bytes += request_bytes
        try:
            await self._pace.turn()
        finally:
            self._waiting_bytes -= request_bytes

    async def _turn_to_protect(self, numbers: Sequence | None) -> None:
        """Wait for a turn, and for a block of the numbers that are needed: many answers may be due at once.

        Where no number can be reserved, encryption reports the reason.
        """
        await self._pace.turn()
        while numbers is not None and not numbers.has_some:
            try:
                await asyncio.to_thread(numbers.reserve)
            except NoNumberError:
                return
            await self._pace.turn()

    def _open(self, request: Message) -> OpenedRequest:
        """Find the context and decrypt; raise RequestRefusedError (RFC 8613 section 8.2) or a challenge."""
        try:
            context = self._contexts.find(request)
            if context is None:
                self._counters.unknown_context += 1
                raise RequestRefusedError(Reply(UNAUTHORIZED, b"Security context not found"))
            inner, reference = context.unprotect(request)
        except (oscore.DecodeError, IndexError):
            self._counters.undecryptable += 1
            raise RequestRefusedError(Reply(BAD_OPTION, b"Failed to decode COSE")) from None
        except oscore.ReplayError:
            self._counters.replayed += 1
            raise RequestRefusedError(Reply(UNAUTHORIZED, b"Replay detected")) from None
        except oscore.ReplayErrorWithEcho:
            raise
        except (error.Error, ValueError):
            self._counters.undecryptable += 1
            raise RequestRefusedError(Reply(BAD_REQUEST, b"Decryption failed")) from None
        inner.remote = request.remote.secured(context.credential)
        return OpenedRequest(inner, context, reference)

    async def _answer(self, opened: OpenedRequest) -> Message:
        inner = opened.request
        datagram = join(bytes((VERSION_1, inner.code, 0, 0)), inner.opt.encode(), inner.payload)
        if sanitize(datagram).disposition is not Disposition.PASS:
            return self._message(BAD_OPTION, b"unknown critical option")
        try:
            answer: Message = await self._site.render(inner)
        except error.RenderableError as refusal:
            answer = refusal.to_message()
        return answer

    def _protected(self, opened: OpenedRequest, answer: Message) -> Message:
        """Encrypt an answer; No-Response (RFC 7967) stays unencrypted, for aiocoap."""
        silence, answer.opt.no_response = answer.opt.no_response, None
        answer.opt.echo = opened.context.echo_for_next(opened.reference)
        try:
            protected: Message = opened.context.protect(answer, opened.reference)[0]
        except NoNumberError as cause:
            return self._refuse_without_number(opened.context, cause)
        protected.opt.no_response = silence
        return protected

    def _challenge(self, challenge: Any) -> Message:
        """Return a challenge to prove freshness, which uses a sequence number."""
        try:
            return challenge.to_message()
        except NoNumberError as cause:
            return self._refuse_without_number(challenge.secctx, cause)

    def _refuse_without_number(self, context: SecurityContext, cause: Exception) -> Message:
        """Return a plain refusal: without an unused number nothing may be encrypted."""
        now = asyncio.get_running_loop().time()
        if now - self._refused_last > REFUSALS_END_SECONDS:
            _log.error("oscore=unanswered device=%s reason=%r", context.credential.device, str(cause))
        self._refused_last = now
        return self._message(UNAVAILABLE, b"no sequence number")

    def _message(self, code: int, diagnostic: bytes) -> Message:
        return Message(code=Code(code), payload=diagnostic, max_age=0, transport_tuning=self._tuning)


def empty_window(size: int = WINDOW) -> oscore.ReplayWindow:
    """Return a window that has seen no number."""
    window = oscore.ReplayWindow(size, lambda: None)
    window.initialize_empty()
    return window
