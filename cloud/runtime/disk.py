"""Flush local folders to disk, since neither Delta nor Spark's checkpoint calls fsync."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from urllib.parse import unquote, urlsplit

from pyspark.sql import SparkSession

from cloud.errors import FlushError
from cloud.runtime import jvm

_LIBC = ctypes.CDLL(None, use_errno=True)


def local_folders(spark: SparkSession, paths: Iterable[str]) -> tuple[str, ...]:
    """Return the paths that are on a local file system; others have their own durability guarantees."""
    uris = [urlsplit(jvm.qualify(spark, path)) for path in paths]
    return tuple(unquote(uri.path) for uri in uris if uri.scheme == "file")


def flush(folders: Iterable[str]) -> None:
    """Flush the file systems that hold the folders by syncfs(2); raise FlushError on failure.

    Linux reports a write error once, and treats the pages as written afterwards.
    """
    for folder in folders:
        try:
            _flush(folder)
        except OSError as error:
            raise FlushError(f"{folder}: cannot be flushed to its disk: {error.strerror}") from error


def _flush(folder: str) -> None:
    file = os.open(folder, os.O_RDONLY)
    try:
        if _LIBC.syncfs(file) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), folder)
    finally:
        os.close(file)
