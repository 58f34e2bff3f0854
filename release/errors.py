"""Why no release can be built."""


class ReleaseError(Exception):
    """The release is not built; the message contains what to do."""
