"""The views beside `events` and `quarantine`, in the words of Spark and of PostgreSQL.

`readings` has one row for each measurement of an event. `events_corrected` has `received` as it is by the clock that
the gateway trusts since (decision 74). `gateway_events` has one row for each event in which a gateway states something
about itself, with the entries of its data as columns. `gateways` has one row for each gateway: when it was last heard
and started, and what its latest start or checkpoint has stated.
"""

from collections.abc import Sequence

_GATEWAY_EVENTS = """
SELECT gateway, epoch, sequence, type, received, appended, clock, day, {version} AS version,
       {settings_hash} AS settings_hash, {lane} AS lane,
       {contract} AS contract, {new_events} AS new_events, {written_bytes} AS written_bytes,
       CASE WHEN type = 'gateway.gap' THEN {reason} END AS reason,
       CASE WHEN type = 'gateway.gap' THEN {count} END AS lost_events,
       CASE WHEN type = 'gateway.clock' THEN {correction_ms} END AS correction_ms
FROM events WHERE via = 'gateway'
"""
_COUNTS = """
SELECT gateway, max(appended) AS heard_at,
       max(CASE WHEN type = 'gateway.started' AND lane IS NULL THEN appended END) AS started_at,
       count(CASE WHEN type = 'gateway.started' AND lane IS NULL THEN 1 END) AS starts,
       count(CASE WHEN type = 'gateway.gap' THEN 1 END) AS gaps,
       max(CASE WHEN type = 'gateway.gap' THEN appended END) AS last_gap_at,
       CAST(coalesce(sum(lost_events), 0) AS BIGINT) AS lost_events
"""
# Each lane of a gateway has a store, which states its own backlog: the view shows that of the default lane.
_STATES = "type IN ('gateway.started', 'gateway.checkpoint') AND lane IS NULL"
_GROUPS = "GROUP BY gateway"
_DIGITS = {9: ("contract", "count"), 13: ("correction_ms",), 15: ("new_events", "written_bytes", "first", "last")}
"""The digits of numbers, at most: others, and texts, are null. So no cast fails, and no sum or product overflows."""
# The order is that of the appends, since the clock of a gateway may be wrong.
_SPARK = f"""
SELECT gateway, heard_at, started_at, starts, gaps, last_gap_at, lost_events,
       latest.received AS stated_at, latest.appended AS stated_appended, latest.clock, latest.version,
       latest.settings_hash, latest.contract, latest.new_events, latest.written_bytes,
       (latest.written_bytes - earliest.written_bytes) * 86400000.0
           / nullif(unix_millis(latest.appended) - unix_millis(earliest.appended), 0) AS written_bytes_per_day
FROM ({_COUNTS},
           max(CASE WHEN {_STATES} THEN struct(appended, sequence, received, clock, version, settings_hash, contract,
               new_events, written_bytes) END) AS latest,
           min(CASE WHEN {_STATES} THEN struct(appended, sequence, written_bytes) END) AS earliest
    FROM gateway_events {_GROUPS}) counted
"""
# The index on the gateways' own events leads to the latest one of each, so that the data of all others is not read.
_POSTGRES = f"""
SELECT counted.*, latest.received AS stated_at, latest.appended AS stated_appended, latest.clock, latest.version,
       latest.settings_hash, latest.contract, latest.new_events, latest.written_bytes,
       (latest.written_bytes - earliest.written_bytes) * 86400.0
           / nullif(extract(epoch FROM latest.appended - earliest.appended), 0) AS written_bytes_per_day
FROM ({_COUNTS}FROM gateway_events {_GROUPS}) counted
LEFT JOIN LATERAL (
    SELECT * FROM gateway_events own WHERE own.gateway = counted.gateway AND {_STATES}
    ORDER BY appended DESC, sequence DESC LIMIT 1) latest ON true
LEFT JOIN LATERAL (
    SELECT * FROM gateway_events own WHERE own.gateway = counted.gateway AND {_STATES}
    ORDER BY appended, sequence LIMIT 1) earliest ON true
"""


_READINGS = """
    SELECT e.fingerprint, e.device, e.type, coalesce(e.event_time, e.received) AS time, e.event_time, e.clock,
           e.gateway, one.name, one.value, {unit} AS unit
"""
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
_CORRECTED = """
    SELECT e.*, CASE WHEN e.clock = 'trusted' THEN e.received
                WHEN e.received BETWEEN '1000-01-01' AND '9000-01-01' THEN {corrected} END AS received_corrected
    FROM events e LEFT JOIN ({corrections}) c
    ON c.gateway = e.gateway AND c.epoch = e.epoch AND e.sequence BETWEEN c.first AND c.last AND e.clock = 'untrusted'
"""


def without(views: Sequence[str], retired: Sequence[str]) -> Sequence[str]:
    """Return the statements of the views, without these gateways in `gateways`; a gateway's name has no quotes."""
    if not retired:
        return views
    names = ", ".join(f"'{name}'" for name in retired)
    return *views[:-1], views[-1].replace(_GROUPS, f"WHERE gateway NOT IN ({names}) {_GROUPS}")


def _views(create: str, field: str, number: str, readings: str, corrected: str, gateways: str) -> tuple[str, ...]:
    """Return the statements in one database's words for a field of `data`, a number of so many digits, and others."""
    fields = {name: field.format(name) for name in ("epoch", "version", "settings_hash", "reason", "lane")}
    for digits, names in _DIGITS.items():
        fields |= {name: number.format(field.format(name), digits=digits) for name in names}
    corrections = _CORRECTIONS.format(**fields)
    return (
        f"{create} readings AS{readings}",
        f"{create} events_corrected AS{_CORRECTED.format(corrected=corrected, corrections=corrections)}",
        f"{create} gateway_events AS{_GATEWAY_EVENTS.format(**fields)}",
        f"{create} gateways AS{gateways}",
    )


# The values of readings stay text, as exact as the sensor has sent them; numbers are cast by the query.
SPARK_VIEWS = _views(
    create="CREATE OR REPLACE TEMPORARY VIEW",
    field="get_json_object(data, '$.{}')",
    number="CAST(nullif(regexp_extract({}, '^-?[0-9]{{1,{digits}}}$', 0), '') AS BIGINT)",
    readings=_READINGS.format(unit="from_json(e.units, 'MAP<STRING, STRING>')[one.name]")
    + "FROM events e LATERAL VIEW explode(from_json(e.data, 'MAP<STRING, STRING>')) one AS name, value",
    corrected="timestamp_millis(unix_millis(e.received) + c.correction_ms)",
    gateways=_SPARK,
)
POSTGRES_VIEWS = _views(
    create="CREATE TEMPORARY VIEW",
    field="data::jsonb ->> '{}'",
    number="substring({} FROM '^-?[0-9]{{1,{digits}}}$')::bigint",
    readings=_READINGS.format(unit="e.units::jsonb ->> one.name")
    + "FROM events e CROSS JOIN LATERAL jsonb_each_text(e.data::jsonb) AS one(name, value)",
    corrected="e.received + c.correction_ms * INTERVAL '1 millisecond'",
    gateways=_POSTGRES,
)
