"""The view of readings: one row for each measurement of an event."""

_COLUMNS = """
    SELECT e.fingerprint, e.device, e.type, coalesce(e.event_time, e.received) AS time, e.event_time, e.clock,
           e.gateway, one.name, one.value, {unit} AS unit
"""
# The values stay text, as exact as the sensor has sent them; numbers are cast by the query.
SPARK_VIEW = f"""
    CREATE OR REPLACE TEMPORARY VIEW readings AS
    {_COLUMNS.format(unit="from_json(e.units, 'MAP<STRING, STRING>')[one.name]")}
    FROM events e LATERAL VIEW explode(from_json(e.data, 'MAP<STRING, STRING>')) one AS name, value
"""
POSTGRES_VIEW = f"""
    CREATE TEMPORARY VIEW readings AS
    {_COLUMNS.format(unit="e.units::jsonb ->> one.name")}
    FROM events e CROSS JOIN LATERAL jsonb_each_text(e.data::jsonb) AS one(name, value)
"""
