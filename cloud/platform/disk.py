"""Flush local folders to the disk: neither Delta nor Spark's checkpoint ever calls fsync."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from urllib.parse import unquote, urlsplit

from pyspark.sql import SparkSession

from cloud.errors import FlushError
from cloud.platform import jvm

_LIBC = ctypes.CDLL(None, use_errno=True)


def local_folders(spark: SparkSession, paths: Iterable[str]) -> tuple[str, ...]:
    """Return those of the paths that lie on a local file system; others have promises of their own."""
    uris = [urlsplit(jvm.qualify(spark, path)) for path in paths]
    return tuple(unquote(uri.path) for uri in uris if uri.scheme == "file")


def flush(folders: Iterable[str]) -> None:
    """Flush the file systems that hold the folders, syncfs(2); all that was written before is on the disk after.

    Raise FlushError where that fails. Linux reports such an error once, and takes the pages for written then.
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
