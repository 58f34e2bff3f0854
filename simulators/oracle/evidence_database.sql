-- The oracle's working tables, in a temporary database that spills to disk.
CREATE TABLE event (
    mark INTEGER PRIMARY KEY,
    statement BLOB NOT NULL,  -- digest of the statement, ids as text
    content BLOB NOT NULL,
    form INTEGER NOT NULL,  -- whether id and boot are integers or text
    device TEXT NOT NULL,
    neither INTEGER NOT NULL,  -- whether it has neither id nor time
    requests INTEGER NOT NULL,
    transmissions INTEGER NOT NULL,
    first_line INTEGER,  -- of the ledger: line numbers decide the order, not clocks
    first_at INTEGER,  -- the time of the first transmission, in milliseconds since 1970 UTC
    acked_line INTEGER,
    ended TEXT,  -- Acked, Refused, GivenUp; NULL: open at the end of the ledger
    across INTEGER NOT NULL  -- how often a gateway's card was replaced by an older copy between transmission and outcome
);
CREATE TABLE variant (  -- requests with another time than the event's own
    mark INTEGER NOT NULL,
    statement BLOB NOT NULL,
    form INTEGER NOT NULL
);
CREATE TABLE row (  -- rows of the table, where ids are text
    statement BLOB NOT NULL,
    content BLOB NOT NULL,
    device TEXT NOT NULL,
    gateway TEXT,
    epoch TEXT,
    sequence INTEGER,
    partition INTEGER,
    "offset" INTEGER,
    fingerprint TEXT,
    at INTEGER,
    repeated INTEGER NOT NULL DEFAULT 0  -- whether an earlier row has the same statement and label
);
CREATE TABLE record (  -- records of the topic
    statement BLOB NOT NULL,
    content BLOB NOT NULL,
    device TEXT NOT NULL,
    gateway TEXT,
    epoch TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    "offset" INTEGER NOT NULL,
    fingerprint TEXT,
    at INTEGER NOT NULL,
    form INTEGER NOT NULL
);
CREATE TABLE gap (  -- labels that a gateway has declared as given up
    epoch TEXT NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL
);
CREATE TABLE cut (  -- partitions whose first records were deleted by retention
    partition INTEGER PRIMARY KEY
);
