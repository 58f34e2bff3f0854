"""Flush local folders to disk, since neither Delta nor Spark's checkpoint calls fsync."""

import ctypes
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Self
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from cloud.errors import FlushError
from cloud.runtime import jvm

_LIBC = ctypes.CDLL(None, use_errno=True)


def local_folders(spark: SparkSession, paths: Iterable[str]) -> tuple[str, ...]:
    """Return the paths that are on a local file system; others have their own durability guarantees."""
    # Iceberg may write to a storage of whose scheme Hadoop knows nothing.
    whole = [path if urlsplit(path).scheme else jvm.qualify(spark, path) for path in paths]
    uris = [jvm.hadoop_path(spark, path).toUri() for path in whole]
    return tuple(str(uri.getPath()) for uri in uris if uri.getScheme() == "file")


class FlushedFolders:
    """Local folders, kept open from before the writes that are to be flushed.

    Linux reports a write error once to each descriptor that was open when it happened, and treats the pages as written
    afterwards. It reports nothing to one that is opened after another process, such as maintenance, has seen the error.
    So a flush after one that has failed would succeed although the data is lost: it fails, too.
    """

    def __init__(self, folders: Iterable[str]) -> None:
        self._folders: list[tuple[int, str]] = []
        self._failure: str | None = None
        with ExitStack() as files:
            for folder in folders:
                with _named(folder):
                    file = os.open(folder, os.O_RDONLY)
                files.callback(os.close, file)
                self._folders.append((file, folder))
            self._files = files.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def flush(self) -> None:
        """Flush the file systems that hold the folders by syncfs(2); raise FlushError on failure, and ever after."""
        if self._failure is not None:
            raise FlushError(self._failure)
        try:
            for file, folder in self._folders:
                with _named(folder):
                    _flush(file, folder)
        except FlushError as error:
            self._failure = str(error)
            raise


@contextmanager
def _named(folder: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FlushError(f"{folder}: cannot be flushed to its disk: {error.strerror}") from error


def _flush(file: int, folder: str) -> None:
    if _LIBC.syncfs(file) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), folder)
