"""Errors of decoding. None is worth a retry: the same bytes raise the same error."""


class DecodeError(ValueError):
    """The root of the errors of decoding."""


class Undecodable(DecodeError):  # noqa: N818  # the name states the problem
    """The body as a whole cannot be read."""


class UnknownFormat(DecodeError):  # noqa: N818  # the name states the problem
    """The body's media type is not one of the supported formats."""


class InvalidEvent(DecodeError):  # noqa: N818  # the name states the problem
    """One event of a body is invalid; the others are not affected."""
