"""The errors of the CoAP server as a whole."""

from agent.coap.answer import Reply


class CoapError(Exception):
    """The root of the package's errors."""


class RequestRefusedError(CoapError):
    """A request that cannot be accepted, and its refusal."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.payload.decode())
        self.reply = reply


class CredentialsError(CoapError):
    """The credentials directory, or one of its files, cannot be used; the message names it and never a secret."""
