-- The store's tables. The path of an event: a commit appends one row to `events` and one to `fingerprints`;
-- the forwarder's and the receipts' progress are ranges of positions, so that no row is ever updated for a state.
-- `checksum` is over all other columns of its row and the table's name (checksum.py); each event has its own.

-- What the gateway must remember beside its events, such as the pinned table id.
CREATE TABLE facts (
    name     TEXT    PRIMARY KEY,
    value    TEXT    NOT NULL,
    checksum INTEGER NOT NULL
) WITHOUT ROWID;

-- One row for each opening that stored anything. A label follows from it: sequence = position - first_position + 1.
CREATE TABLE epochs (
    first_position INTEGER PRIMARY KEY,
    epoch          TEXT    NOT NULL UNIQUE,
    boot           TEXT    NOT NULL,  -- the machine's boot id
    since_boot     INTEGER NOT NULL,  -- at the opening, ms since the machine was booted
    wall           INTEGER NOT NULL,  -- at the opening, ms since 1970 UTC
    trusted        INTEGER NOT NULL,  -- was that clock known to be right
    service        INTEGER NOT NULL,  -- at the opening, ms that the service has run in all its life
    checksum       INTEGER NOT NULL
);

-- The events of one commit, packed (packing.py, compression.py); deleted in ranges once they are processed and no longer kept.
CREATE TABLE events (
    first_position INTEGER PRIMARY KEY,
    count          INTEGER NOT NULL,
    packed         BLOB    NOT NULL
);

-- What one commit makes known; outlives its events by identity.retention.
CREATE TABLE fingerprints (
    first_position INTEGER PRIMARY KEY,
    service        INTEGER NOT NULL,  -- ms that the service had run when this was committed
    packed         BLOB    NOT NULL,  -- 16 bytes for each event; zeros where it is given up and forgotten
    proofs         BLOB    NOT NULL,  -- 16 bytes for each delivery whose retransmission only the transport can prove
    duplicates     INTEGER NOT NULL,  -- copies recognised while this was the latest row
    repeats        BLOB    NOT NULL,  -- the latest of them: 16 bytes for each, the moment and the event's position
    checksum       INTEGER NOT NULL
);

-- What the broker has and the table not yet: ranges of positions with their offsets.
CREATE TABLE batches (
    first      INTEGER PRIMARY KEY,
    last       INTEGER NOT NULL,
    topic_id   TEXT    NOT NULL,
    partitions TEXT    NOT NULL, -- JSON: partition -> [lowest offset, highest offset]
    checksum   INTEGER NOT NULL
);

-- What the table has: ranges of positions, few, since neighbours are united.
CREATE TABLE processed (
    first    INTEGER PRIMARY KEY,
    last     INTEGER NOT NULL,
    checksum INTEGER NOT NULL
);

-- What is given up: ranges of positions that cannot be read any more. last = first - 1 stands for what may have
-- followed the last event that was found. Bounded: the oldest leave, since `processed` holds their positions, too.
CREATE TABLE gaps (
    number   INTEGER PRIMARY KEY,
    first    INTEGER NOT NULL,
    last     INTEGER NOT NULL,
    reason   TEXT    NOT NULL,
    declared INTEGER NOT NULL,  -- position of the gateway.gap event that says so; 0 until it is stored
    checksum INTEGER NOT NULL
);

-- The latest invalid events; bounded.
CREATE TABLE rejected (
    number   INTEGER PRIMARY KEY,
    received INTEGER NOT NULL,
    device   TEXT    NOT NULL,
    via      TEXT    NOT NULL,
    reason   TEXT    NOT NULL,
    raw      BLOB    NOT NULL
);

-- Sealed fingerprints, which memory no longer holds: segments, each sorted once and dropped whole (segments.py).
-- The entries of a segment, sorted; a row has what fits into one page, and means something without `segments`.
CREATE TABLE sealed (
    key      INTEGER PRIMARY KEY,  -- number of the segment << 40, with the first 5 bytes of the row's first fingerprint
    position INTEGER NOT NULL,     -- what the entries' positions count from
    service  INTEGER NOT NULL,     -- what the entries' moments count from, ms that the service had run
    packed   BLOB    NOT NULL,     -- 22 bytes for each: fingerprint, position, moment in units of 10 s
    checksum INTEGER NOT NULL
);

-- One row for each segment, written when all its entries are.
CREATE TABLE segments (
    number   INTEGER PRIMARY KEY,
    first    INTEGER NOT NULL,     -- lowest position
    last     INTEGER NOT NULL,     -- highest position
    service  INTEGER NOT NULL,     -- ms that the service had run at its latest commit
    count    INTEGER NOT NULL,     -- entries
    bloom    BLOB    NOT NULL,     -- the filter that tells which fingerprints are certainly not in it (filters.py)
    checksum INTEGER NOT NULL
);

-- Positions whose fingerprints are forgotten before their time, since their events are given up.
CREATE TABLE forgotten (
    first    INTEGER PRIMARY KEY,
    last     INTEGER NOT NULL,
    checksum INTEGER NOT NULL
);
