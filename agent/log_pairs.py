"""The keys and values of a log message.

Every message is a format of `key=value` pairs, whose values are the arguments of the message: its text is never parsed,
since a reason may contain whatever a sender has written.
"""

import logging
import re
from collections.abc import Iterator
from itertools import islice

_PAIR = re.compile(r"([a-z][a-z0-9_]*)=('[^']*'|[^\s']+)")
"""A key and the format of its value; a literal value with spaces is quoted."""
PAIRS = re.compile(f"{_PAIR.pattern}(?: {_PAIR.pattern})*")
_CONVERSION = re.compile(r"%[0-9.]*[a-z]")


def pairs(record: logging.LogRecord) -> Iterator[tuple[str, str]]:
    """Yield the keys and values of a message; none where it is not ours."""
    message, arguments = str(record.msg), record.args
    if PAIRS.fullmatch(message) is None or not isinstance(arguments, tuple):
        return
    remaining = iter(arguments)
    for key, value in _PAIR.findall(message):
        plain = value.strip("'").replace("%r", "%s")
        yield key, plain % tuple(islice(remaining, len(_CONVERSION.findall(plain)))) if arguments else plain
