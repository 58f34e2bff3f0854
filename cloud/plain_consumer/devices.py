"""Descriptions of devices: a CSV file, as the job has it, read again when it has changed."""

from __future__ import annotations

import csv
import logging
from pathlib import Path

from cloud.errors import StopError
from cloud.plain_consumer.records import Descriptions
from cloud.table.layout import DEVICE

logger = logging.getLogger(__name__)


class DeviceFile:
    """The devices; a changed file that cannot be read is logged once, and the earlier ones stay in use."""

    def __init__(self, path: Path | None) -> None:
        """Read the file; raise StopError where it cannot be read."""
        self._path = path
        self._stamp: tuple[int, int] | None = None
        self._known: Descriptions = {}
        if path is not None:
            self._stamp, self._known = _stamp(path), _read(path)

    def known(self) -> Descriptions:
        """Return the present descriptions."""
        if self._path is None:
            return self._known
        try:
            if (stamp := _stamp(self._path)) != self._stamp:
                self._stamp = stamp
                self._known = _read(self._path)
        except StopError as error:
            logger.warning("devices=unreadable reason=%r effect=%r", str(error), "the earlier devices stay in use")
        return self._known


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError as error:
        raise StopError(f"devices {path}: {error}") from error
    return found.st_mtime_ns, found.st_size


def _read(path: Path) -> Descriptions:
    known: dict[str, tuple[str | None, ...]] = {}
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.DictReader(file)
            if "device" not in (rows.fieldnames or ()):
                raise StopError(f"devices {path}: no column device among {', '.join(rows.fieldnames or ())}")
            for row in rows:
                device = row["device"]
                if device in known:
                    raise StopError(f"devices {path}: {device} is listed twice")
                if device:
                    known[device] = tuple(row.get(name) or None for name in DEVICE.values())
    except (OSError, ValueError, csv.Error) as error:
        raise StopError(f"devices {path}: cannot be read: {error}") from error
    logger.info("devices=%d file=%s", len(known), path)
    return known
