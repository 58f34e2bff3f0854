-- The oracle's working memory: a database of its own that spills to disk, so that its size bounds no run.
CREATE TABLE event (
    mark INTEGER PRIMARY KEY,
    statement BLOB NOT NULL,  -- 16 bytes that stand for all that was said, ids as text
    said BLOB NOT NULL,
    form INTEGER NOT NULL,  -- whether id and boot are integers or texts
    device TEXT NOT NULL,
    neither INTEGER NOT NULL,  -- has neither id nor time
    requests INTEGER NOT NULL,
    transmissions INTEGER NOT NULL,
    first_line INTEGER,  -- of the ledger: which came first is decided by these, not by clocks
    first_at INTEGER,  -- the moment of the first transmission, in milliseconds since 1970 UTC
    acked_line INTEGER,
    ended TEXT,  -- Acked, Refused, GivenUp; NULL: still open when the ledger ends
    across INTEGER NOT NULL  -- how often a gateway's card was replaced by an older copy while the event was under way
);
CREATE TABLE variant (  -- what was sent with another time than the event's own
    mark INTEGER NOT NULL,
    statement BLOB NOT NULL,
    form INTEGER NOT NULL
);
CREATE TABLE row (  -- of the table; ids are texts there
    statement BLOB NOT NULL,
    said BLOB NOT NULL,
    device TEXT NOT NULL,
    gateway TEXT,
    epoch TEXT,
    sequence INTEGER,
    partition INTEGER,
    "offset" INTEGER,
    fingerprint TEXT,
    at INTEGER,
    repeated INTEGER NOT NULL DEFAULT 0  -- another row has the same statement under the same label
);
CREATE TABLE record (  -- of the topic
    statement BLOB NOT NULL,
    said BLOB NOT NULL,
    form INTEGER NOT NULL,
    device TEXT NOT NULL,
    gateway TEXT,
    epoch TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    "offset" INTEGER NOT NULL,
    fingerprint TEXT,
    at INTEGER NOT NULL
);
CREATE TABLE gap (  -- labels that a gateway has declared as given up
    epoch TEXT NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL
);
CREATE TABLE cut (  -- partitions of the topic whose beginning retention has deleted
    partition INTEGER PRIMARY KEY
);
