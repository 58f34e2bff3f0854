-- Fingerprints that memory no longer holds: segments, each sorted once and dropped whole (segments.py).

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
