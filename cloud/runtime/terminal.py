"""Text for a terminal, on which senders' texts must not act."""


def printable(text: str) -> str:
    """Return a text with control characters, overrides of direction and invisible characters as escapes."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)
