"""The sensor's side of OSCORE (RFC 8613): protects requests, and opens the gateway's responses.

aiocoap does the cryptography. The sender sequence number is kept in a file beside the credentials, since the same
number must never protect two requests (section 7.5).
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from random import SystemRandom
from typing import Any, Self

from aiocoap import Message, error  # type: ignore[import-untyped] # it carries no types
from aiocoap.numbers.codes import Code  # type: ignore[import-untyped]

from agent.cli.sensor.senders import UntrustedResponseError
from agent.coap.errors import CredentialsError
from agent.coap.oscore.contexts import NumberedContext, empty_window
from agent.coap.oscore.credentials import ID_BYTES_MAX, SECRET_BYTES_MIN
from agent.coap.oscore.sequence_numbers import SenderNumbers, Sequence
from contract.files import PrivateFileError, read_private

NUMBER_SUFFIX = ".number"
OCTETS_MAX = 64
"""Of a secret, a salt or an ID context."""


@dataclass(frozen=True, slots=True)
class SensorSecrets:
    """The output of `oncegate credentials`."""

    secret: bytes
    salt: bytes
    sender_id: bytes
    recipient_id: bytes
    id_context: bytes | None

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read a file that only its owner can read; raise CredentialsError, whose message holds no secret."""
        try:
            document = json.loads(read_private(file))
        except PrivateFileError as cause:
            raise CredentialsError(f"{file}: {cause}") from cause
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise CredentialsError(f"{file}: expected the JSON that `oncegate credentials` has printed")

        def octets(name: str, shortest: int, longest: int) -> bytes:
            try:
                value = bytes.fromhex(document[f"{name}_hex"])
            except (KeyError, TypeError, ValueError):
                value = None
            if value is None or not shortest <= len(value) <= longest:
                raise CredentialsError(f"{file}: {name}_hex: expected {shortest} to {longest} bytes as hex digits")
            return value

        return cls(
            octets("secret", SECRET_BYTES_MIN, OCTETS_MAX),
            octets("salt", 0, OCTETS_MAX) if "salt_hex" in document else b"",
            octets("sender-id", 0, ID_BYTES_MAX),
            octets("recipient-id", 0, ID_BYTES_MAX),
            octets("id-context", 0, OCTETS_MAX) if "id-context_hex" in document else None,
        )


class SensorContext(NumberedContext):
    """The keys and numbers of one sensor."""

    def __init__(self, secrets: SensorSecrets, numbers: Sequence) -> None:
        self.numbers = numbers
        self.sender_id, self.recipient_id = secrets.sender_id, secrets.recipient_id
        self.id_context = secrets.id_context
        self.derive_keys(secrets.salt, secrets.secret)
        self.recipient_replay_window = empty_window(1)
        self._echo: bytes | None = None
        """The latest Echo value of the gateway, which saves a challenge (RFC 9175 section 2.3)."""

    def seal(self, request: Message) -> tuple[Message, Any]:
        """Return a protected request, and what opening its response needs.

        Raise NoNumberError where no sequence number can be reserved on disk.
        """
        request.opt.echo = self._echo
        self.numbers.reserve()
        protected, reference = self.protect(request)
        return protected, reference

    def open(self, reply: Message, reference: Any) -> tuple[Message, bool]:
        """Return the gateway's own response, and whether it asks for the request with an Echo value.

        A refusal may be unprotected: the gateway that cannot open a request has no other. Raise UntrustedResponseError
        for a response that the gateway did not protect, or that was altered.
        """
        if reply.opt.oscore is None:
            if reply.code.is_successful():
                raise UntrustedResponseError("the response is not protected by OSCORE: it may be anybody's")
            return reply, False
        try:
            inner, _ = self.unprotect(reply, reference)
        except (error.Error, ValueError, IndexError):
            raise UntrustedResponseError("the response cannot be decrypted: other credentials, or altered") from None
        self._echo = inner.opt.echo
        return inner, inner.code == Code.UNAUTHORIZED and inner.opt.echo is not None


@contextmanager
def open_context(file: Path) -> Iterator[SensorContext]:
    """Open the context of a credentials file, for one process at a time; raise CredentialsError."""
    secrets = SensorSecrets.read(file)
    with file.open("rb") as opened:
        try:
            flock(opened, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            raise CredentialsError(f"{file}: another process sends with it") from None
        yield SensorContext(secrets, Sequence(SenderNumbers(file.with_name(file.name + NUMBER_SUFFIX), SystemRandom())))
