"""Reads the headers of a record, each by its position, and by its name only where that fails."""

from pyspark.sql import Column
from pyspark.sql import functions as F

from contract.record import HEADERS

_BOUND = "ce_bound"


def header(name: str, headers: str = "headers") -> Column:
    """Return a header's text; null where there is none."""
    index = HEADERS.index(name)
    at_position = F.get(headers, index)
    by_name = F.get(F.filter(headers, lambda one: one["key"] == F.lit(name)), 0)
    found = F.when(at_position["key"] == F.lit(name), at_position["value"])
    if name == _BOUND:
        # It may be absent. With so few headers it is, or another one is missing and the record is not well-formed.
        found = found.when(F.size(headers) < len(HEADERS), F.lit(None))
    return found.otherwise(by_name["value"]).cast("string")
