"""The view of events with corrected times: `received` as it is by the clock that the gateway trusts since."""

from cloud.table.fleet import POSTGRES_NUMBER, SPARK_NUMBER

_CORRECTIONS = """
    SELECT gateway, epoch, first, max(last) AS last, min(correction_ms) AS correction_ms
    FROM (
        SELECT gateway, {epoch} AS epoch, {first} AS first, {last} AS last, {correction_ms} AS correction_ms
        FROM events WHERE type = 'gateway.clock' AND via = 'gateway'
    ) declared
    GROUP BY gateway, epoch, first
"""
"""One row for each range of labels; a restored copy of a gateway's store may declare a range again."""
# Received and corrected times are within the years 1 to 9999, which all programs have.
_VIEW = """
    SELECT e.*, CASE WHEN e.clock = 'trusted' THEN e.received
                WHEN e.received BETWEEN '1000-01-01' AND '9000-01-01' THEN {corrected} END AS received_corrected
    FROM events e LEFT JOIN ({corrections}) c
    ON c.gateway = e.gateway AND c.epoch = e.epoch AND e.sequence BETWEEN c.first AND c.last AND e.clock = 'untrusted'
"""


def _view(field: str, number: str, corrected: str) -> str:
    """Return the query, in the words of one database for a field of `data`, its number, and the corrected time."""
    digits = {"first": 15, "last": 15, "correction_ms": 13}
    fields = {name: number.format(field.format(name), digits=most) for name, most in digits.items()}
    return _VIEW.format(corrected=corrected, corrections=_CORRECTIONS.format(epoch=field.format("epoch"), **fields))


SPARK_VIEW = "CREATE OR REPLACE TEMPORARY VIEW events_corrected AS" + _view(
    "get_json_object(data, '$.{}')", SPARK_NUMBER, "timestamp_millis(unix_millis(e.received) + c.correction_ms)"
)
POSTGRES_VIEW = "CREATE TEMPORARY VIEW events_corrected AS" + _view(
    "data::jsonb ->> '{}'", POSTGRES_NUMBER, "e.received + c.correction_ms * INTERVAL '1 millisecond'"
)
