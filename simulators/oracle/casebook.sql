-- The oracle's working memory: a database of its own that spills to disk, so that its size bounds no run.
CREATE TABLE event (
    mark INTEGER PRIMARY KEY,
    statement BLOB NOT NULL,  -- 16 bytes that stand for all that was said
    said BLOB NOT NULL,
    neither INTEGER NOT NULL,  -- has neither id nor time
    told_at INTEGER NOT NULL,
    requests INTEGER NOT NULL,
    transmissions INTEGER NOT NULL,
    first_line INTEGER,  -- of the ledger: which came first is decided by these, not by clocks
    acked_line INTEGER,
    acked_at INTEGER,
    ended TEXT,  -- acked, refused, given up; NULL: still open when the ledger ends
    across INTEGER NOT NULL  -- was open while a gateway's card was replaced by an older copy
);
CREATE TABLE variant (mark INTEGER NOT NULL, statement BLOB NOT NULL);
CREATE TABLE row (
    statement BLOB NOT NULL,
    said BLOB NOT NULL,
    device TEXT NOT NULL,
    epoch TEXT,
    sequence INTEGER,
    partition INTEGER,
    "offset" INTEGER,
    fingerprint TEXT,
    at INTEGER
);
CREATE TABLE record (
    statement BLOB NOT NULL,
    device TEXT NOT NULL,
    epoch TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    "offset" INTEGER NOT NULL,
    at INTEGER NOT NULL
);
