"""What a row and a quarantined record have, for the writers in Spark and without it."""

from datetime import date
from enum import StrEnum

from contract.fields import FIELDS, Kind
from contract.record import DATA_START, VIA_START


class Reason(StrEnum):
    """Why a record is in quarantine: the first check that it fails, in their order, or that its id was reused."""

    HEADERS = "headers"
    FINGERPRINT = "fingerprint"
    LABEL = "label"
    TIMESTAMPS = "timestamps"
    CLOCK = "clock"
    SHARED = "shared"
    VALUE = "value"
    CONTRADICTION = "contradiction"
    MAC = "mac"
    ID_REUSED = "id_reused"


_TYPES = {
    Kind.TEXT: "string",
    Kind.WORD: "string",
    Kind.NAME: "string",
    Kind.INTEGER: "bigint",
    Kind.TIME: "timestamp",
    Kind.OBJECT: "string",
    Kind.FINGERPRINT: "binary",
}
_STATED = {"clock": "string", "appended": "timestamp", "gateway": "string", "epoch": "string", "sequence": "bigint"}


def _of_fields() -> dict[str, str]:
    """Return the columns of the fields; what the gateway states about the acceptance is behind its time."""
    columns: dict[str, str] = {}
    for field in FIELDS:
        columns[field.column] = _TYPES[field.kind]
        if field.name == "received":
            columns |= _STATED
    return columns


DEVICE = {"device_name": "name", "site": "site", "tags": "tags"}
"""The columns of the description of the device, by those of its file."""
COLUMNS: dict[str, str] = {
    "fingerprint": "binary",
    **_of_fields(),
    "kafka_partition": "int",
    "kafka_offset": "bigint",
    "processed_at": "timestamp",
    **dict.fromkeys(DEVICE, "string"),
    "raw": "binary",
    "day": "date",
}
"""The columns of a row, with Spark's names of their types. `raw`: the value, only where it could not be decoded."""
STAGED: dict[str, str] = {
    **COLUMNS,
    "reason": "string",
    "shared": "string",
    "fresh": "string",
    "kafka_key": "binary",
    "headers": "string",
    "value": "binary",
}
"""The columns that PostgreSQL gets of each survivor: those of its row, and those that the quarantine needs."""
QUARANTINE: dict[str, str] = {
    "topic_id": "string",
    "topic": "string",
    "kafka_partition": "int",
    "kafka_offset": "bigint",
    "reason": "string",
    "kafka_key": "binary",
    "value": "binary",
    "headers": "string",
    "appended": "timestamp",
    "quarantined_at": "timestamp",
}
"""The columns of the quarantine; a Delta table has the headers as an array, PostgreSQL as JSON."""
TEXTS = tuple(name for name, kind in COLUMNS.items() if kind == "string")
NUL_IN_JSON = r"\u0000"
NUL_PATTERN = r"(?<!\\)((?:\\\\)*+)\\u0000"
"""NUL_IN_JSON, where its backslash is not itself escaped, for Java and Python."""

VIA, BEFORE_DATA = VIA_START.decode(), '",' + DATA_START.decode()
ENTRY_BEHIND_DATA = '},"'
"""Stands behind `data` where any entry follows it, of those that are not known here, too."""
TIMESTAMP_BYTES = len("2026-01-01T00:00:00.000Z")
"""Of RFC 3339 with milliseconds."""

YEARS = (2000, 2100)
DAY_OUTSIDE = date(1970, 1, 1)
"""The common partition of all times outside YEARS, or far from the record's append."""
PAST_DAYS_MAX, AHEAD_DAYS_MAX = 366, 2
"""The distance from the append within which a day has its own partition. A sensor may send any time, and each
partition is a folder with its own files (decision 55)."""
