-- The views of docs/table.md, in each session, for a Delta table in ./events: .read views-duckdb.sql

CREATE VIEW events AS SELECT * REPLACE (CASE WHEN json_valid(data) THEN data END AS data,
                                        CASE WHEN json_valid(units) THEN units END AS units)
FROM delta_scan('./events');
CREATE VIEW quarantine AS SELECT * FROM delta_scan('./events_quarantine');
CREATE VIEW readings AS
SELECT fingerprint, device, type, time, event_time, clock, gateway, name,
       json_extract_string(data, pointer) AS value, json_extract_string(units, pointer) AS unit
FROM (SELECT *, '/' || replace(replace(name, '~', '~0'), '/', '~1') AS pointer
      FROM (SELECT *, coalesce(event_time, received) AS time, unnest(json_keys(data)) AS name FROM events));

CREATE VIEW events_corrected AS
SELECT e.*, CASE WHEN e.clock = 'trusted' THEN e.received
            WHEN e.received BETWEEN '1000-01-01' AND '9000-01-01' THEN e.received + to_milliseconds(c.correction_ms) END AS received_corrected
FROM events e LEFT JOIN (
    SELECT gateway, data ->> '$.epoch' AS epoch, CAST(nullif(regexp_extract(data ->> '$.first', '^-?[0-9]{1,15}$'), '') AS bigint) AS first,
           max(CAST(nullif(regexp_extract(data ->> '$.last', '^-?[0-9]{1,15}$'), '') AS bigint)) AS last, min(CAST(nullif(regexp_extract(data ->> '$.correction_ms', '^-?[0-9]{1,13}$'), '') AS bigint)) AS correction_ms
    FROM events WHERE type = 'gateway.clock' AND via = 'gateway' GROUP BY 1, 2, 3
) c ON c.gateway = e.gateway AND c.epoch = e.epoch AND e.sequence BETWEEN c.first AND c.last AND e.clock = 'untrusted';

CREATE VIEW gateway_events AS
SELECT gateway, epoch, sequence, type, received, appended, clock, day, data ->> '$.version' AS version,
       data ->> '$.settings_hash' AS settings_hash, data ->> '$.lane' AS lane,
       CAST(nullif(regexp_extract(data ->> '$.contract', '^-?[0-9]{1,9}$'), '') AS bigint) AS contract, CAST(nullif(regexp_extract(data ->> '$.new_events', '^-?[0-9]{1,15}$'), '') AS bigint) AS new_events, CAST(nullif(regexp_extract(data ->> '$.written_bytes', '^-?[0-9]{1,15}$'), '') AS bigint) AS written_bytes,
       CASE WHEN type = 'gateway.gap' THEN data ->> '$.reason' END AS reason,
       CASE WHEN type = 'gateway.gap' THEN CAST(nullif(regexp_extract(data ->> '$.count', '^-?[0-9]{1,9}$'), '') AS bigint) END AS lost_events,
       CASE WHEN type = 'gateway.clock' THEN CAST(nullif(regexp_extract(data ->> '$.correction_ms', '^-?[0-9]{1,13}$'), '') AS bigint) END AS correction_ms
FROM events WHERE via = 'gateway';
CREATE VIEW gateways AS
SELECT gateway, heard_at, started_at, starts, gaps, last_gap_at, lost_events,
       latest.received AS stated_at, latest.appended AS stated_appended, latest.clock, latest.version,
       latest.settings_hash, latest.contract, latest.new_events, latest.written_bytes, (latest.written_bytes - earliest.written_bytes) * 86400.0
           / nullif(epoch(latest.appended) - epoch(earliest.appended), 0) AS written_bytes_per_day
FROM (
SELECT gateway, max(appended) AS heard_at,
       max(CASE WHEN type = 'gateway.started' AND lane IS NULL THEN appended END) AS started_at,
       count(CASE WHEN type = 'gateway.started' AND lane IS NULL THEN 1 END) AS starts,
       count(CASE WHEN type = 'gateway.gap' THEN 1 END) AS gaps,
       max(CASE WHEN type = 'gateway.gap' THEN appended END) AS last_gap_at,
       CAST(coalesce(sum(lost_events), 0) AS BIGINT) AS lost_events,
       max(struct_pack(appended, sequence, received, clock, version, settings_hash, contract, new_events, written_bytes))
           FILTER (type IN ('gateway.started', 'gateway.checkpoint') AND lane IS NULL) AS latest,
       min(struct_pack(appended, sequence, written_bytes))
           FILTER (type IN ('gateway.started', 'gateway.checkpoint') AND lane IS NULL) AS earliest
FROM gateway_events GROUP BY gateway) counted;
