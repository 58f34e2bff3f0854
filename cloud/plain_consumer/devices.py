"""Descriptions of devices: a CSV file, as the job has it, read again when it has changed."""

import csv
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path

from cloud.errors import StopError
from cloud.plain_consumer.records import Descriptions
from cloud.renewed import Renewed, stamp
from cloud.table.layout import DEVICE

logger = logging.getLogger(__name__)


def described(path: Path | None) -> Callable[[], Descriptions]:
    """Return a reader of the present descriptions, empty without a file; raise StopError for an unreadable one."""
    if path is None:
        return dict
    return Renewed("devices", "devices", partial(stamp, path, "devices"), partial(_read, path)).present


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
