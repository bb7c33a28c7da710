-- "GENL": tells a Genlock file from any other.
PRAGMA application_id = 1195724364;

-- Of which birth and epoch cursors are.
CREATE TABLE meta (
    birth BLOB NOT NULL,
    epoch INTEGER NOT NULL
) STRICT;

INSERT INTO meta (birth, epoch) VALUES (randomblob(8), 0);

-- head: the last position given; purged_to: the highest position ever purged; purges: how often something was purged.
CREATE TABLE project (
    id INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    project TEXT NOT NULL,
    head INTEGER NOT NULL DEFAULT 0,
    purged_to INTEGER NOT NULL DEFAULT 0,
    purges INTEGER NOT NULL DEFAULT 0,
    UNIQUE (tenant, project)
) STRICT;

-- Names interned as integers: what is short in every index entry is written once here.
CREATE TABLE pool (
    id INTEGER PRIMARY KEY,
    project INTEGER NOT NULL,
    name TEXT NOT NULL,
    UNIQUE (project, name)
) STRICT;

CREATE TABLE session (
    id INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    UNIQUE (tenant, name)
) STRICT;

-- The bodies stand last: what comes before them is read without their overflow pages.
-- waits repeats the record's entries in the table waits, as JSON, so that they can be compared and removed without a search.
CREATE TABLE record (
    id INTEGER PRIMARY KEY,
    project INTEGER NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    version INTEGER NOT NULL,
    digest BLOB NOT NULL,
    state TEXT NOT NULL,
    pool INTEGER,
    ord TEXT,
    due_at INTEGER,
    session INTEGER,
    parent TEXT,
    waits TEXT,
    body BLOB NOT NULL,
    base BLOB,
    UNIQUE (project, kind, name)
) STRICT;

CREATE INDEX record_ready ON record (project, pool, ord) WHERE pool IS NOT NULL;
CREATE INDEX record_due ON record (project, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX record_session ON record (session) WHERE session IS NOT NULL;
CREATE INDEX record_parent ON record (project, parent) WHERE parent IS NOT NULL;

CREATE TABLE waits (
    project INTEGER NOT NULL,
    dependency TEXT NOT NULL,
    record INTEGER NOT NULL,
    PRIMARY KEY (project, dependency, record)
) STRICT, WITHOUT ROWID;

-- at: the project's id << 40 | the position. A project's feed is a range of rowids and needs no index.
CREATE TABLE event (
    at INTEGER PRIMARY KEY,
    record INTEGER NOT NULL,
    version INTEGER NOT NULL,
    digest BLOB NOT NULL,
    body BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX event_record ON event (record, version);
