"""A Unix socket beside the store: readers request by it that the agent writes the counts that are only in memory.

The answer has those that it never writes.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from agent.store.errors import FAILURES
from agent.store.layout import FLUSH_SOCKET_NAME, WRITTEN, socket_path

log = logging.getLogger(__name__)

_MODE = 0o660
"""Every user who can read the store may send the request."""


class FlushSocket:
    """Calls a blocking function for one connection after the other, and then answers."""

    def __init__(self, folder: Path, flush: Callable[[], None], unwritten: Callable[[], bytes] = bytes) -> None:
        """Create it; `unwritten` returns the counts that are in memory only, as JSON."""
        self._folder = folder
        self._flush = flush
        self._unwritten = unwritten
        self._lock = asyncio.Lock()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        """Listen; a folder that takes no socket only makes readers see older counts."""
        self._descriptor = os.open(self._folder, os.O_PATH | os.O_DIRECTORY)
        try:
            self._server = await asyncio.start_unix_server(self._serve, socket_path(self._descriptor))
            (self._folder / FLUSH_SOCKET_NAME).chmod(_MODE)
        except OSError as error:
            log.warning("flush_socket=failed reason=%r effect=%r", str(error), "duplicates are shown late")
        return self

    async def __aexit__(self, *exception: type[BaseException] | BaseException | TracebackType | None) -> None:
        """Close the socket, after the current call has ended."""
        if self._server is not None:
            self._server.close()
            self._server = None
            (self._folder / FLUSH_SOCKET_NAME).unlink(missing_ok=True)
        async with self._lock:
            os.close(self._descriptor)

    async def _serve(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with self._lock:
                if self._server is not None:
                    await asyncio.to_thread(self._flush)
                    writer.write(WRITTEN + self._unwritten())
        except FAILURES as error:
            log.debug("flush_socket=unanswered reason=%r", str(error))
        finally:
            writer.close()
