"""The records of a topic in a file, for the time after its broker has ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import orjson

from simulators.evidence.row import Row

RECORDS_FILE = "records.jsonl"


def saving(records: Iterable[Row], file: Path) -> Iterator[Row]:
    """Yield the records, and write each of them to the file as a line."""
    with file.open("wb") as lines:
        for record in records:
            lines.write(orjson.dumps(tuple(record), option=orjson.OPT_APPEND_NEWLINE))
            yield record


def read(file: Path) -> Iterator[Row]:
    """Yield the records in a file."""
    with file.open("rb") as lines:
        for line in lines:
            yield Row(*orjson.loads(line))
