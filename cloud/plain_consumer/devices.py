"""Descriptions of devices: a CSV file, as the job has it, read again when it has changed."""

from __future__ import annotations

import csv
import logging
from functools import partial
from pathlib import Path

from cloud.errors import StopError
from cloud.plain_consumer.records import Descriptions
from cloud.renewed import Renewed, stamp
from cloud.table.layout import DEVICE

logger = logging.getLogger(__name__)


class DeviceFile:
    """The devices; none without a file."""

    def __init__(self, path: Path | None) -> None:
        """Read the file; raise StopError where it cannot be read."""
        self._file: Renewed[Descriptions] | None = None
        if path is not None:
            self._file = Renewed("devices", "devices", partial(stamp, path, "devices"), partial(_read, path))

    def known(self) -> Descriptions:
        """Return the present descriptions."""
        return {} if self._file is None else self._file.present()


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
