"""The tables that the checks read: events by statement, rows by statement, and labels.

- `stated`: the statements, with bounds for the number of their rows. `sent` counts the events that may have a row,
  `due` those that must have one. A restamped event is due under any of its statements, and checked separately
  (`contents.py`). `sent_forms` and `due_forms` are sets of forms (`statement.form`) as bits.
- `found`: the rows of each statement, without repetitions under one label.
- `label`: the statement and first offset of each label, from the topic where it was read, else from the table.
"""

from simulators.oracle.evidence_database import EvidenceDatabase
from simulators.oracle.verdict import Scope

_REPEATED = """
    CREATE TABLE again (epoch, sequence, rows, PRIMARY KEY (epoch, sequence)) WITHOUT ROWID;
    INSERT INTO again SELECT epoch, sequence, count(*) FROM row WHERE epoch IS NOT NULL AND sequence IS NOT NULL
        GROUP BY epoch, sequence HAVING count(*) > 1;
    UPDATE row SET repeated = 1 WHERE rowid IN (SELECT place FROM (
        SELECT row.rowid AS place, row_number() OVER (PARTITION BY epoch, sequence, statement) AS number
        FROM row JOIN again USING (epoch, sequence)) WHERE number > 1);
"""
_FOUND = """
    CREATE TABLE found (statement BLOB PRIMARY KEY, rows) WITHOUT ROWID;
    INSERT INTO found SELECT statement, count(*) FROM row WHERE NOT repeated GROUP BY statement;
"""
_LABELS_OF_RECORDS = """
    CREATE TABLE label (epoch, sequence, statement, device, gateway, partition, "offset", at,
        PRIMARY KEY (epoch, sequence, statement)) WITHOUT ROWID;
    INSERT INTO label SELECT epoch, sequence, statement, device, gateway, partition, min("offset"), at FROM record
        GROUP BY epoch, sequence, statement;
    CREATE INDEX labels ON label (statement);
    CREATE INDEX places ON record (partition, "offset");
"""
_LABELS_OF_ROWS = """
    CREATE VIEW label AS SELECT epoch, sequence, statement, device, gateway, partition, "offset", at FROM row
        WHERE epoch IS NOT NULL AND sequence IS NOT NULL AND NOT repeated;
"""
_STATED = """
    CREATE INDEX variants ON variant (statement);
    CREATE INDEX variant_marks ON variant (mark);
    CREATE VIEW bounded AS SELECT *, {may} AS may, {must} AND mark NOT IN (SELECT mark FROM variant) AS must FROM event;
    CREATE TABLE stated (statement BLOB PRIMARY KEY, neither, marks, sent, acked, due, sent_forms, due_forms, forms,
        requests, across, first_at, mark) WITHOUT ROWID;
    INSERT INTO stated SELECT statement, max(neither), count(*), sum(may), sum(ended IS 'Acked'), sum(must),
        max(may) << min(form), max(must) << min(form), CASE WHEN min(form) = max(form) THEN 1 << form END,
        sum(requests), sum(across), min(first_at), min(mark) FROM bounded GROUP BY statement;
"""
# Rare: integers and text with the same digits.
_SEVERAL_FORMS = """
    CREATE INDEX statements ON event (statement);
    UPDATE stated SET (sent_forms, due_forms, forms) = (
        SELECT sum(DISTINCT may << form), sum(DISTINCT must << form), sum(DISTINCT 1 << form)
        FROM bounded WHERE bounded.statement = stated.statement) WHERE forms IS NULL;
"""
# An event that was sent in one request only, and refused, cannot have a row.
_MAY_OF_ONE = "(requests > 0 AND NOT (ended IS 'Refused' AND requests = 1))"
# Another gateway may have accepted what one refused.
_MAY_OF_MORE = "(requests > 0)"
_ACKED = "ended IS 'Acked'"
_ACKED_AND_OVERTAKEN = """
    ifnull(ended IS 'Acked' AND acked_line < (SELECT line FROM reached WHERE reached.device = event.device), 0)
"""
# All records of a device are in one partition.
_WHOLE = "device IN (SELECT device FROM whole)"
_WHOLE_DEVICES = """
    CREATE TABLE whole (device PRIMARY KEY) WITHOUT ROWID;
    INSERT INTO whole SELECT DISTINCT device FROM record WHERE partition NOT IN (SELECT partition FROM cut);
"""
_UNKNOWN = """
    SELECT count(*) FROM bounded WHERE ended IS 'Acked' AND NOT must AND statement NOT IN (SELECT statement FROM found)
    AND mark NOT IN (SELECT mark FROM variant)
"""
_REACHED = """
    CREATE TABLE reached (device PRIMARY KEY, line) WITHOUT ROWID;
    INSERT INTO reached SELECT device, max(line) FROM (
        SELECT device, statement, max(first_line) AS line FROM event GROUP BY statement HAVING count(*) = 1
    ) JOIN found USING (statement) WHERE statement NOT IN (SELECT statement FROM variant) GROUP BY device;
"""


def prepare(evidence: EvidenceDatabase, scope: Scope) -> None:
    """Create the tables from complete evidence."""
    execute = evidence.connection.executescript
    execute(_REPEATED + _FOUND)
    execute(_LABELS_OF_RECORDS if evidence.has_records else _LABELS_OF_ROWS)
    if not scope.settled:
        execute(_REACHED)
    if evidence.cut:
        execute(_WHOLE_DEVICES)
    execute(_STATED.format(may=_MAY_OF_ONE if scope.gateways == 1 else _MAY_OF_MORE, must=must(evidence, scope)))
    if evidence.count("SELECT EXISTS (SELECT 1 FROM stated WHERE forms IS NULL)"):
        execute(_SEVERAL_FORMS)


def must(evidence: EvidenceDatabase, scope: Scope) -> str:
    """Return the SQL condition under which an event must have a row.

    While events may still be in transit, only overtaken events must (decisions 25, 60): rows are written in the order
    of offsets, and a gateway forwards in order, so a table with a later event of a device has every event acked before
    it. Where retention has deleted first records of a partition, only the events of devices in other partitions must.
    """
    under_way = _ACKED_AND_OVERTAKEN if scope.gateways == 1 else "0"
    condition = _ACKED if scope.settled else under_way
    return f"({condition} AND {_WHOLE})" if evidence.cut else condition


def unknown(evidence: EvidenceDatabase) -> int:
    """Return the number of acked events without a row that need none by `must`: whether they are lost is unknown."""
    return evidence.count(_UNKNOWN)
