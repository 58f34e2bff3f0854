"""OSCORE (RFC 8613): requests that prove which device speaks, and answers that only this device can read.

The cryptography is aiocoap's; the state is ours. A context begins each life of the agent without a replay window, and
the first request of a device has to bring back an Echo value (Appendix B.1.2, RFC 9175): so no captured datagram
passes, whether the agent was killed, its store restored, or its card cloned. aiocoap's own context in files would trust
a window that a power cut or a backup has left behind.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

from aiocoap import Message, error, interfaces, oscore, resource  # type: ignore[import-untyped] # it carries no types
from aiocoap.numbers.codes import Code  # type: ignore[import-untyped]
from aiocoap.numbers.constants import TransportTuning  # type: ignore[import-untyped]

from agent.coap.answer import BAD_OPTION, BAD_REQUEST, UNAUTHORIZED, UNAVAILABLE
from agent.coap.credentials import Credential
from agent.coap.guard import Verdict, judge
from agent.coap.message import PAYLOAD_MARKER, VERSION_1
from agent.coap.sender_numbers import NumbersExhaustedError, SenderNumbers

WINDOW = 32
"""Sequence numbers below the highest seen that may still come (RFC 8613 section 7.4)."""
ECHO_BYTES = 8
ALGORITHM, HASH = "AES-CCM-16-64-128", "sha256"
"""Those that every OSCORE stack has (RFC 8613 section 3.2.1)."""

_log = logging.getLogger(__name__)


class SecurityContext(oscore.CanProtect, oscore.CanUnprotect, oscore.SecurityContextUtils):  # type: ignore[misc]
    """The keys and numbers shared with one sensor."""

    alg_aead = oscore.algorithms[ALGORITHM]
    hashfun = oscore.hashfunctions[HASH]

    def __init__(self, credential: Credential, numbers: SenderNumbers) -> None:
        self.credential = credential
        self._numbers = numbers
        self.sender_id, self.recipient_id = credential.gateway_id, credential.sensor_id
        self.id_context = credential.id_context
        self.derive_keys(credential.salt, credential.secret)
        self.recipient_replay_window = oscore.ReplayWindow(WINDOW, lambda: None)
        self.echo_recovery = secrets.token_bytes(ECHO_BYTES)

    def new_sequence_number(self) -> int:
        """Give a number that this context has never used."""
        return self._numbers.take()

    def post_seqnoincrease(self) -> None:
        """Do nothing: the numbers are reserved before they are given."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A request as the device wrote it, and what its answer needs."""

    request: Message
    context: SecurityContext
    reference: Any


class Contexts:
    """The security contexts, by what a request says of its own."""

    def __init__(self, credentials: Iterable[Credential], folder: Path, random: Random | None = None) -> None:
        chance = random or SystemRandom()
        self._contexts = {
            (credential.sensor_id, credential.id_context): SecurityContext(
                credential, SenderNumbers(folder / f"{credential.name}.number", chance)
            )
            for credential in credentials
        }

    def find(self, request: Message) -> SecurityContext | None:
        """Find the context that a protected request names; raise oscore.DecodeError or IndexError.

        A request to a group is none of ours, and aiocoap's context would stumble over its signature.
        """
        named = oscore.verify_start(request)
        if oscore.COSE_COUNTERSIGNATURE0 in named:
            raise oscore.DecodeError
        return self._contexts.get((named.get(oscore.COSE_KID), named.get(oscore.COSE_KID_CONTEXT)))


class ProtectedSite(interfaces.Resource):  # type: ignore[misc] # aiocoap carries no types
    """The site behind OSCORE; plain requests reach it only where they are not refused before."""

    def __init__(self, site: resource.Site, contexts: Contexts, tuning: TransportTuning) -> None:
        super().__init__()
        self._site = site
        self._contexts = contexts
        self._tuning = tuning

    async def needs_blockwise_assembly(self, request: Message) -> bool:
        """Keep aiocoap from assembling."""
        return False

    async def render_to_pipe(self, pipe: Any) -> None:
        """Serve one request."""
        if pipe.request.opt.oscore is None:
            await self._site.render_to_pipe(pipe)
        else:
            pipe.add_response(await self.render(pipe.request), is_last=True)

    async def render(self, request: Message) -> Message:
        """Open a protected request, serve it, and protect the answer; what cannot be opened is refused in the plain."""
        try:
            opened = self._open(request)
            answer = await self._answer(opened)
            return self._protected(opened, answer)
        except _RefusedError as refused:
            return self._message(refused.code, refused.diagnostic)
        except oscore.ReplayErrorWithEcho as challenge:
            return self._challenge(challenge)

    def _open(self, request: Message) -> Opened:
        """Find the context and decrypt; raise _RefusedError (RFC 8613 section 8.2) or a challenge."""
        try:
            context = self._contexts.find(request)
            if context is None:
                raise _RefusedError(UNAUTHORIZED, b"Security context not found")
            inner, reference = context.unprotect(request)
        except (oscore.DecodeError, IndexError):
            raise _RefusedError(BAD_OPTION, b"Failed to decode COSE") from None
        except oscore.ReplayError:
            raise _RefusedError(UNAUTHORIZED, b"Replay detected") from None
        except oscore.ReplayErrorWithEcho:
            raise
        except (error.Error, ValueError):
            raise _RefusedError(BAD_REQUEST, b"Decryption failed") from None
        inner.remote = request.remote.secured(context.credential)
        return Opened(inner, context, reference)

    async def _answer(self, opened: Opened) -> Message:
        inner = opened.request
        verdict = judge(bytes((VERSION_1, inner.code, 0, 0)) + inner.opt.encode() + _marked(inner.payload)).verdict
        if verdict is not Verdict.PASS:
            return self._message(BAD_OPTION, b"unknown critical option")
        try:
            answer: Message = await self._site.render(inner)
        except error.RenderableError as refusal:
            answer = refusal.to_message()
        return answer

    def _protected(self, opened: Opened, answer: Message) -> Message:
        """Encrypt an answer; whether it is to be sent at all (RFC 7967) is said outside.

        The answer to the request that brings back the Echo takes a number of our own (RFC 8613 appendix B.1.2).
        """
        silence, answer.opt.no_response = answer.opt.no_response, None
        try:
            protected: Message = opened.context.protect(answer, opened.reference)[0]
        except (OSError, NumbersExhaustedError) as cause:
            return self._numberless(opened.context, cause)
        protected.opt.no_response = silence
        return protected

    def _challenge(self, challenge: Any) -> Message:
        """Ask for a proof of freshness, which takes a number of our own."""
        try:
            return challenge.to_message()
        except (OSError, NumbersExhaustedError) as cause:
            return self._numberless(challenge.secctx, cause)

    def _numberless(self, context: SecurityContext, cause: Exception) -> Message:
        """Refuse in the plain: without a number that was never used nothing may be encrypted."""
        _log.error("coap: device=%s cannot be answered reason=%r", context.credential.device, str(cause))
        return self._message(UNAVAILABLE, b"no sequence number")

    def _message(self, code: int, diagnostic: bytes) -> Message:
        return Message(code=Code(code), payload=diagnostic, max_age=0, transport_tuning=self._tuning)


class _RefusedError(Exception):
    def __init__(self, code: int, diagnostic: bytes) -> None:
        super().__init__(diagnostic)
        self.code = code
        self.diagnostic = diagnostic


def _marked(payload: bytes) -> bytes:
    return bytes((PAYLOAD_MARKER,)) + payload if payload else b""
