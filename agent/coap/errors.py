"""The errors of the CoAP server as a whole."""


class CoapError(Exception):
    """The root of the package's errors."""


class CredentialsError(CoapError):
    """The credentials directory, or one of its files, cannot be used; the message names it and never a secret."""

    device: str | None = None
    """Whose credential it is, where the file tells."""
