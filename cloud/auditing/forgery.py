"""Forgeries: rows whose content does not have their fingerprint, as the contract's own code computes it again.

The job believes a record's fingerprint. A row that has that of another event is `forged`, and a true event that was
dropped as its duplicate is in `conflict` with it. The rules of a gateway may leave fields out of the identity, which
no record states: so a content has each fingerprint that some rule would give it.
"""

import json
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cloud.auditing import account
from contract.event import Event, Label
from contract.fingerprint import IDENTITY_FIELDS, fingerprint, needs_label
from contract.values import BYTES_KEY, decode_base64url

FORGED, CONFLICT = "forged", "conflict"
VERIFIED, UNVERIFIABLE = "verified", "unverifiable"
STATUSES = (FORGED, CONFLICT, VERIFIED, UNVERIFIABLE)
SUSPECTS_MAX = 1000
"""The number of duplicates that one audit compares with their rows."""
OF_PLACE = tuple(f"of_{name}" for name in account.PLACE)
FORGERY = ("status", "fingerprint", "device", *account.LABEL, *account.PLACE, *OF_PLACE)
"""The columns: the record of a forged row or of a dropped event, and the place of the false row's record."""
Place = tuple[int, int]


def suspects(judged: DataFrame, rows: DataFrame, said: Callable[[DataFrame], DataFrame]) -> list[Row]:
    """Return the duplicates that differ from their row in device, type or data.

    What a record and a row tell is read for duplicates alone: `said` returns it by the records' places.
    """
    suspect = judged.filter(F.col("status") == account.DUPLICATE).select(*FORGERY[1:])
    if suspect.isEmpty():
        return []
    of = rows.select("fingerprint", *_named(), F.col("told").alias("of_told"))
    found = suspect.join(of, on=["fingerprint", *OF_PLACE]).join(said(suspect), on=list(account.PLACE))
    differs = found.filter(F.col("told") != F.col("of_told")).select(*FORGERY[1:]).distinct()
    return differs.orderBy(*account.PLACE).limit(SUSPECTS_MAX).collect()


def places(found: list[Row]) -> set[Place]:
    """Return where the records of duplicates and of their rows are."""
    return {tuple(row[name] for name in names) for row in found for names in (account.PLACE, OF_PLACE)}


def conflicts(found: list[Row], values: dict[Place, bytes]) -> list[tuple[Any, ...]]:
    """Return the suspects with a forged row, as FORGERY; a record that the topic no longer has proves nothing."""
    conflicts = []
    for row in found:
        own, of = (values.get(tuple(row[name] for name in names)) for names in (account.PLACE, OF_PLACE))
        name = row["fingerprint"]
        if own and of and verify(own, name) == VERIFIED and verify(of, name) != VERIFIED:
            conflicts.append((CONFLICT, *row))
    return conflicts


def verified(records: DataFrame) -> DataFrame:
    """Return the records, which have their `value`, as FORGERY: verified, forged or unverifiable."""
    state = F.udf(verify, T.StringType(), useArrow=False)(F.col("value"), F.col("fingerprint")).alias("status")
    return records.select(state, "fingerprint", "device", *account.LABEL, *account.PLACE, *_named())


def _named() -> list[Column]:
    return [F.col(name).alias(f"of_{name}") for name in account.PLACE]


def verify(value: bytes, name: str) -> str:
    """Return whether the content of a record's value has a fingerprint; unverifiable where it cannot be read."""
    try:
        said = json.loads(bytes(value), object_hook=_with_bytes)
        event = Event(**{field: said[field] for field in IDENTITY_FIELDS if field in said})
        label = Label(said["epoch"], said["sequence"])
        return VERIFIED if any(found.hex() == name for found in _fingerprints(event, label)) else FORGED
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return UNVERIFIABLE


def _fingerprints(event: Event, label: Label) -> Iterator[bytes]:
    """Yield the fingerprint under each possible identity rule, the usual one first."""
    others = [field for field in IDENTITY_FIELDS if field != "device" and getattr(event, field) is not None]
    for count in range(len(others), -1, -1):
        for some in combinations(others, count):
            fields = tuple(field for field in IDENTITY_FIELDS if field == "device" or field in some)
            yield fingerprint(event, fields, label if needs_label(event, fields) else None)


def _with_bytes(entries: dict[str, Any]) -> Any:
    return decode_base64url(entries[BYTES_KEY]) if entries.keys() == {BYTES_KEY} else entries
