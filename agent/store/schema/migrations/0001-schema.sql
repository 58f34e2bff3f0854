-- The store's tables. The path of an event: a commit appends one row to `events` and one to `fingerprints`;
-- the forwarder's and the receipts' progress are ranges of positions, so that no row is ever updated for a state.
-- `checksum` is over all other columns of its row and the table's name (packing.py); each event has its own.

-- Values that the store keeps beside the events, such as the id of the pinned table (facts.py).
CREATE TABLE facts (
    name     TEXT    PRIMARY KEY,
    value    TEXT    NOT NULL,
    checksum INTEGER NOT NULL
) WITHOUT ROWID;

-- One row for each epoch. A label follows from it: sequence = position - first_position + 1.
CREATE TABLE epochs (
    first_position INTEGER PRIMARY KEY,
    epoch          TEXT    NOT NULL UNIQUE,
    boot           TEXT    NOT NULL,  -- at the opening, the machine's boot id
    uptime_ms      INTEGER NOT NULL,  -- at the opening, since the machine was booted
    wall_ms        INTEGER NOT NULL,  -- at the opening, since 1970 UTC
    trusted        INTEGER NOT NULL,  -- whether that clock was known to be right
    service_ms     INTEGER NOT NULL,  -- at the opening, the service time: how long the service has run in all its life
    checksum       INTEGER NOT NULL
);

-- The events of one commit, packed (packing.py); deleted in ranges once they are processed and no longer kept.
CREATE TABLE events (
    first_position INTEGER PRIMARY KEY,
    count          INTEGER NOT NULL,
    packed         BLOB    NOT NULL
);

-- The fingerprints of one commit, kept for identity.retention, and the duplicates recognised after it.
CREATE TABLE fingerprints (
    first_position      INTEGER PRIMARY KEY,
    service_ms          INTEGER NOT NULL,  -- the service time of the commit
    packed              BLOB    NOT NULL,  -- 16 bytes for each event; zeros where it is given up and forgotten
    retransmission_keys BLOB    NOT NULL,  -- 20 bytes for each: the key, and the position of its first event from here on
    duplicates          INTEGER NOT NULL,  -- duplicates recognised while this was the latest row
    latest_duplicates   BLOB    NOT NULL,  -- 16 bytes for each of the latest: its moment, and the event's position
    checksum            INTEGER NOT NULL
);

-- Batches that the broker has and the table does not yet: ranges of positions with their offsets.
CREATE TABLE batches (
    first      INTEGER PRIMARY KEY,
    last       INTEGER NOT NULL,
    topic_id   TEXT    NOT NULL,
    partitions TEXT    NOT NULL, -- JSON: partition -> [lowest offset, highest offset, leader epoch where known]
    checksum   INTEGER NOT NULL
);

-- Positions that the table has: few ranges, since neighbours are united.
CREATE TABLE processed (
    first    INTEGER PRIMARY KEY,
    last     INTEGER NOT NULL,
    checksum INTEGER NOT NULL
);

-- Ranges of positions that are given up. last = first - 1 stands for events that may have followed the last one that
-- was found. Bounded: the oldest are deleted, since `processed` holds their positions, too.
CREATE TABLE gaps (
    number   INTEGER PRIMARY KEY,
    first    INTEGER NOT NULL,
    last     INTEGER NOT NULL,
    reason   TEXT    NOT NULL,
    declared INTEGER NOT NULL,  -- position of the gateway.gap event that declares it; 0 until that is stored
    checksum INTEGER NOT NULL
);

-- The latest rejected events; bounded.
CREATE TABLE rejected (
    number   INTEGER PRIMARY KEY,
    received INTEGER NOT NULL,
    device   TEXT    NOT NULL,
    via      TEXT    NOT NULL,
    reason   TEXT    NOT NULL,
    raw      BLOB    NOT NULL
);

-- Sealed fingerprints, which memory no longer holds: segments, each sorted once and dropped whole (segments.py).
-- The entries of a segment, sorted; a row holds what fits into one page, and can be read without `segments`.
CREATE TABLE sealed (
    key        INTEGER PRIMARY KEY, -- number of the segment << 40, with the first 5 bytes of the row's first fingerprint
    position   INTEGER NOT NULL,   -- what the entries' positions count from
    service_ms INTEGER NOT NULL,   -- what the entries' service times count from
    packed     BLOB    NOT NULL,   -- 22 bytes for each: fingerprint, position, service time in units of 10 s
    checksum   INTEGER NOT NULL
);

-- One row for each segment, written when all its entries are.
CREATE TABLE segments (
    number     INTEGER PRIMARY KEY,
    first      INTEGER NOT NULL,   -- lowest position
    last       INTEGER NOT NULL,   -- highest position
    service_ms INTEGER NOT NULL,   -- the service time of its latest commit
    count      INTEGER NOT NULL,   -- how many entries
    bloom      BLOB    NOT NULL,   -- the Bloom filter of its fingerprints (filters.py)
    checksum   INTEGER NOT NULL
);

-- Positions whose fingerprints are forgotten early, since their events are given up.
CREATE TABLE forgotten (
    first    INTEGER PRIMARY KEY,
    last     INTEGER NOT NULL,
    checksum INTEGER NOT NULL
);
