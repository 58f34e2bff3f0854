"""The views of the fleet, of what gateways state in events of their own.

`gateway_events` has one row for each of these events, with the entries of its data as columns. `gateways` has one row
for each gateway: when it was last heard and started, and what its latest start or checkpoint has stated.
"""

from __future__ import annotations

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
_DIGITS = {"contract": 9, "new_events": 15, "written_bytes": 15, "count": 9, "correction_ms": 13}
"""The digits of a number, at most: others, and texts, are null. So no cast fails, and no sum or product overflows."""
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


def without(views: tuple[str, str], retired: Sequence[str]) -> tuple[str, str]:
    """Return the statements of the views, without these gateways in `gateways`; a gateway's name has no quotes."""
    if not retired:
        return views
    names = ", ".join(f"'{name}'" for name in retired)
    return views[0], views[1].replace(_GROUPS, f"WHERE gateway NOT IN ({names}) {_GROUPS}")


def _views(create: str, field: str, number: str, gateways: str) -> tuple[str, str]:
    """Return the statements, in the words of one database for a field of `data` and a number of so many digits."""
    fields = {name: field.format(name) for name in ("version", "settings_hash", "reason", "lane")}
    fields |= {name: number.format(field.format(name), digits=digits) for name, digits in _DIGITS.items()}
    return f"{create} gateway_events AS{_GATEWAY_EVENTS.format(**fields)}", f"{create} gateways AS{gateways}"


SPARK_NUMBER = "CAST(nullif(regexp_extract({}, '^-?[0-9]{{1,{digits}}}$', 0), '') AS BIGINT)"
POSTGRES_NUMBER = "substring({} FROM '^-?[0-9]{{1,{digits}}}$')::bigint"
SPARK_VIEWS = _views("CREATE OR REPLACE TEMPORARY VIEW", "get_json_object(data, '$.{}')", SPARK_NUMBER, _SPARK)
POSTGRES_VIEWS = _views("CREATE TEMPORARY VIEW", "data::jsonb ->> '{}'", POSTGRES_NUMBER, _POSTGRES)
