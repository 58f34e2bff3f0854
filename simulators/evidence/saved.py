"""The records of a topic in a file, for the time after its broker has ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import orjson

from simulators.errors import SimulatorError
from simulators.evidence.row import Row

RECORDS_FILE = "records.jsonl"


class SavedRecordsError(SimulatorError):
    """A line of the file is no record, or a part of one; the message names it."""


def saving(records: Iterable[Row], file: Path) -> Iterator[Row]:
    """Yield the records, and write each of them to the file as a line."""
    with file.open("wb") as lines:
        for record in records:
            lines.write(orjson.dumps(tuple(record), option=orjson.OPT_APPEND_NEWLINE))
            yield record


def read(file: Path) -> Iterator[Row]:
    """Yield the records in a file; raise SavedRecordsError."""
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                row = Row(*orjson.loads(line))
            except (ValueError, TypeError) as error:
                raise SavedRecordsError(f"{file}, line {number}: no record: {error} in {line[:200]!r}") from error
            yield row
