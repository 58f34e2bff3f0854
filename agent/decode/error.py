"""Why a body, or one event in it, cannot be taken; sending the same bytes again is of no use."""


class DecodeError(ValueError):
    """The root of what decoding raises."""


class Undecodable(DecodeError):  # noqa: N818  # the name says what is wrong
    """The body as a whole cannot be read."""


class UnknownFormat(DecodeError):  # noqa: N818  # the name says what is wrong
    """The body's format is none of ours."""


class InvalidEvent(DecodeError):  # noqa: N818  # the name says what is wrong
    """One event of a body cannot be kept; those beside it can."""
