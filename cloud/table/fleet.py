"""The views of the fleet, of what gateways state in events of their own.

`gateway_events` has one row for each of these events, with the entries of its data as columns. `gateways` has one row
for each gateway: when it was last heard and started, and what its latest event of a section's beginning has stated.
"""

_GATEWAY_EVENTS = """
    SELECT gateway, epoch, sequence, type, received, appended, clock, day, {version} AS version,
           {new_events} AS new_events, {written_bytes} AS written_bytes, {reason} AS reason, {count} AS lost_events,
           {correction_ms} AS correction_ms, {lane} AS lane
    FROM events WHERE via = 'gateway'
"""
_NUMBERS = ("new_events", "written_bytes", "count", "correction_ms")
# Each lane of a gateway has a store, which states its own backlog: the view shows that of the default lane.
_STATES = "(type IN ('gateway.started', 'gateway.checkpoint') AND lane IS NULL)"
# The order of the appends, since the clock of a gateway may be wrong.
_GATEWAYS = f"""
    SELECT gateway, max(appended) AS heard_at,
           max(CASE WHEN type = 'gateway.started' AND lane IS NULL THEN appended END) AS started_at,
           count(CASE WHEN type = 'gateway.started' AND lane IS NULL THEN 1 END) AS starts,
           count(CASE WHEN type = 'gateway.gap' THEN 1 END) AS gaps,
           max(CASE WHEN type = 'gateway.gap' THEN appended END) AS last_gap_at,
           CAST(coalesce(sum(lost_events), 0) AS BIGINT) AS lost_events,
           max(CASE WHEN is_state AND place = 1 THEN received END) AS stated_at,
           max(CASE WHEN is_state AND place = 1 THEN appended END) AS stated_appended,
           max(CASE WHEN is_state AND place = 1 THEN clock END) AS clock,
           max(CASE WHEN is_state AND place = 1 THEN version END) AS version,
           max(CASE WHEN is_state AND place = 1 THEN new_events END) AS new_events,
           max(CASE WHEN is_state AND place = 1 THEN written_bytes END) AS written_bytes,
           (max(written_bytes) - min(written_bytes)) * 86400.0
               / nullif({{seconds}}, 0) AS written_bytes_per_day
    FROM (
        SELECT *, {_STATES} AS is_state, row_number() OVER (
            PARTITION BY gateway, {_STATES} ORDER BY appended DESC, sequence DESC) AS place
        FROM gateway_events
    ) placed
    GROUP BY gateway
"""
_FIRST, _LAST = (f"{name}(CASE WHEN is_state THEN appended END)" for name in ("min", "max"))


def _views(create: str, field: str, number: str, seconds: str) -> tuple[str, str]:
    """Return the statements, in the words of one database for a field of `data`, its number, and a time in seconds."""
    fields = {name: field.format(name) for name in ("version", "reason", "lane")}
    fields |= {name: number.format(field.format(name)) for name in _NUMBERS}
    elapsed = f"({seconds.format(_LAST)} - {seconds.format(_FIRST)})"
    return (
        f"{create} gateway_events AS{_GATEWAY_EVENTS.format(**fields)}",
        f"{create} gateways AS{_GATEWAYS.format(seconds=elapsed)}",
    )


SPARK_VIEWS = _views(
    "CREATE OR REPLACE TEMPORARY VIEW", "get_json_object(data, '$.{}')", "CAST({} AS BIGINT)", "unix_seconds({})"
)
POSTGRES_VIEWS = _views("CREATE TEMPORARY VIEW", "data::jsonb ->> '{}'", "({})::bigint", "extract(epoch FROM {})")
