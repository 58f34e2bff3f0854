"""The error of jars."""


class JarError(Exception):
    """A jar cannot be downloaded, or is not the pinned one; the message contains what to do."""
