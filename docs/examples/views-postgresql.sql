-- The views of docs/table.md, once for a database whose table is `events`: psql -f views-postgresql.sql

CREATE VIEW readings AS
SELECT e.fingerprint, e.device, e.type, coalesce(e.event_time, e.received) AS time, e.event_time, e.clock,
       e.gateway, one.name, one.value, e.units::jsonb ->> one.name AS unit
FROM events e CROSS JOIN LATERAL jsonb_each_text(e.data::jsonb) AS one(name, value);

CREATE VIEW events_corrected AS
SELECT e.*, CASE WHEN e.clock = 'trusted' THEN e.received
            WHEN e.received BETWEEN '1000-01-01' AND '9000-01-01' THEN e.received + c.correction_ms * INTERVAL '1 millisecond' END AS received_corrected
FROM events e LEFT JOIN (
    SELECT gateway, data::jsonb ->> 'epoch' AS epoch, substring(data::jsonb ->> 'first' FROM '^-?[0-9]{1,15}$')::bigint AS first,
           max(substring(data::jsonb ->> 'last' FROM '^-?[0-9]{1,15}$')::bigint) AS last, min(substring(data::jsonb ->> 'correction_ms' FROM '^-?[0-9]{1,13}$')::bigint) AS correction_ms
    FROM events WHERE type = 'gateway.clock' AND via = 'gateway' GROUP BY 1, 2, 3
) c ON c.gateway = e.gateway AND c.epoch = e.epoch AND e.sequence BETWEEN c.first AND c.last AND e.clock = 'untrusted';

CREATE VIEW gateway_events AS
SELECT gateway, epoch, sequence, type, received, appended, clock, day, data::jsonb ->> 'version' AS version,
       data::jsonb ->> 'settings_hash' AS settings_hash, data::jsonb ->> 'lane' AS lane,
       substring(data::jsonb ->> 'contract' FROM '^-?[0-9]{1,9}$')::bigint AS contract, substring(data::jsonb ->> 'new_events' FROM '^-?[0-9]{1,15}$')::bigint AS new_events, substring(data::jsonb ->> 'written_bytes' FROM '^-?[0-9]{1,15}$')::bigint AS written_bytes,
       CASE WHEN type = 'gateway.gap' THEN data::jsonb ->> 'reason' END AS reason,
       CASE WHEN type = 'gateway.gap' THEN substring(data::jsonb ->> 'count' FROM '^-?[0-9]{1,9}$')::bigint END AS lost_events,
       CASE WHEN type = 'gateway.clock' THEN substring(data::jsonb ->> 'correction_ms' FROM '^-?[0-9]{1,13}$')::bigint END AS correction_ms
FROM events WHERE via = 'gateway';
CREATE VIEW gateways AS
SELECT counted.*, latest.received AS stated_at, latest.appended AS stated_appended, latest.clock, latest.version,
       latest.settings_hash, latest.contract, latest.new_events, latest.written_bytes, (latest.written_bytes - earliest.written_bytes) * 86400.0
           / nullif(extract(epoch FROM latest.appended - earliest.appended), 0) AS written_bytes_per_day
FROM (
SELECT gateway, max(appended) AS heard_at,
       max(CASE WHEN type = 'gateway.started' AND lane IS NULL THEN appended END) AS started_at,
       count(CASE WHEN type = 'gateway.started' AND lane IS NULL THEN 1 END) AS starts,
       count(CASE WHEN type = 'gateway.gap' THEN 1 END) AS gaps,
       max(CASE WHEN type = 'gateway.gap' THEN appended END) AS last_gap_at,
       CAST(coalesce(sum(lost_events), 0) AS BIGINT) AS lost_events
FROM gateway_events GROUP BY gateway) counted
LEFT JOIN LATERAL (
    SELECT * FROM gateway_events own WHERE own.gateway = counted.gateway AND type IN ('gateway.started', 'gateway.checkpoint') AND lane IS NULL
    ORDER BY appended DESC, sequence DESC LIMIT 1) latest ON true
LEFT JOIN LATERAL (
    SELECT * FROM gateway_events own WHERE own.gateway = counted.gateway AND type IN ('gateway.started', 'gateway.checkpoint') AND lane IS NULL
    ORDER BY appended, sequence LIMIT 1) earliest ON true;
