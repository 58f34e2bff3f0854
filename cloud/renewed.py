"""Files that are read again when they have changed."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from cloud.errors import StopError

_Content = TypeVar("_Content")

logger = logging.getLogger(__name__)


class Renewed(Generic[_Content]):
    """The content of a file; a changed one that cannot be read is logged once, and the earlier content stays in use."""

    def __init__(self, name: str, content: str, look: Callable[[], object], read: Callable[[], _Content]) -> None:
        """Read the file; `look` returns a value that changes with it, and both functions raise StopError on failure."""
        self._name = name
        self._what = content
        self._look = look
        self._read = read
        self._seen = look()
        self._content = read()
        self._told = ""

    def present(self) -> _Content:
        """Return the content, read again where the file has changed."""
        try:
            if (seen := self._look()) != self._seen:
                self._seen = seen
                self._content = self._read()
                self._told = ""
        except StopError as error:
            if str(error) != self._told:
                self._told = str(error)
                effect = f"the earlier {self._what} stay in use"
                logger.warning(f"{self._name}=unreadable reason=%r effect=%r", self._told, effect)
        return self._content


def stamp(path: Path, name: str) -> tuple[int, int, int]:
    """Return a value that changes with a local file or its rights; raise StopError where there is no file."""
    try:
        found = path.stat()
    except OSError as error:
        raise StopError(f"{name} {path}: {error.strerror}") from error
    return found.st_ino, found.st_ctime_ns, found.st_size
