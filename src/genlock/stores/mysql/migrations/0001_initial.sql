-- Names are VARBINARY throughout: any collation would take some two of them for one, and even the binary ones ignore trailing blanks.
-- MySQL commits after each of these statements. So each can be repeated, and the row in meta, which says that all is there, comes last.

-- Of which birth and epoch cursors are; of which format the tables are, and which version of Genlock made them so.
CREATE TABLE IF NOT EXISTS genlock_meta (
    one TINYINT NOT NULL PRIMARY KEY,
    format INT NOT NULL,
    made_by VARBINARY(64) NOT NULL,
    birth VARBINARY(8) NOT NULL,
    epoch BIGINT NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- head: the last position given, under the lock of this row. purged_to: the highest position ever purged; purges: how often
-- something was purged.
CREATE TABLE IF NOT EXISTS genlock_project (
    id INT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    tenant VARBINARY(512) NOT NULL,
    project VARBINARY(512) NOT NULL,
    head BIGINT NOT NULL DEFAULT 0,
    purged_to BIGINT NOT NULL DEFAULT 0,
    purges BIGINT NOT NULL DEFAULT 0,
    UNIQUE KEY project_name (tenant, project)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- Names interned as integers: what is short in every index entry is written once here.
CREATE TABLE IF NOT EXISTS genlock_pool (
    id INT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    project INT NOT NULL,
    name VARBINARY(2048) NOT NULL,
    UNIQUE KEY pool_name (project, name)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

CREATE TABLE IF NOT EXISTS genlock_session (
    id INT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    tenant VARBINARY(512) NOT NULL,
    name VARBINARY(1024) NOT NULL,
    UNIQUE KEY session_name (tenant, name)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- A record lies where its key says: to load it is one step. waits repeats its entries in the table waits, as JSON.
-- read_version and read_digest only carry what a writer has read into ON DUPLICATE KEY UPDATE. stamp is the number of the commit that
-- wrote the record last, or one more if that altered what it waits on.
CREATE TABLE IF NOT EXISTS genlock_record (
    project INT NOT NULL,
    kind VARBINARY(64) NOT NULL,
    name VARBINARY(1024) NOT NULL,
    version BIGINT NOT NULL,
    digest VARBINARY(255) NOT NULL,
    stamp BIGINT,
    read_version BIGINT NOT NULL,
    read_digest VARBINARY(255) NOT NULL,
    state VARBINARY(64) NOT NULL,
    pool INT,
    ord VARBINARY(1024),
    due_at BIGINT,
    session INT,
    parent VARBINARY(1024),
    waits MEDIUMBLOB,
    body MEDIUMBLOB NOT NULL,
    base MEDIUMBLOB,
    PRIMARY KEY (project, kind, name),
    KEY record_ready (project, pool, ord, kind, name),
    KEY record_due (project, due_at, kind, name),
    KEY record_session (session),
    KEY record_parent (project, parent)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

CREATE TABLE IF NOT EXISTS genlock_waits (
    project INT NOT NULL,
    dependency VARBINARY(1024) NOT NULL,
    kind VARBINARY(64) NOT NULL,
    name VARBINARY(1024) NOT NULL,
    PRIMARY KEY (project, dependency, kind, name),
    KEY waits_record (project, kind, name)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- at: the project's id * 2^40 + the position. A project's feed is a range of the primary key.
CREATE TABLE IF NOT EXISTS genlock_event (
    at BIGINT NOT NULL PRIMARY KEY,
    project INT NOT NULL,
    kind VARBINARY(64) NOT NULL,
    name VARBINARY(1024) NOT NULL,
    version BIGINT NOT NULL,
    digest VARBINARY(255) NOT NULL,
    body MEDIUMBLOB NOT NULL,
    UNIQUE KEY event_record (project, kind, name, version)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- Payloads, in pieces. One is there when its row is: the pieces come in the same transaction.
CREATE TABLE IF NOT EXISTS genlock_payload (
    id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    name VARBINARY(32) NOT NULL,
    size BIGINT NOT NULL,
    UNIQUE KEY payload_name (name)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

CREATE TABLE IF NOT EXISTS genlock_piece (
    payload BIGINT NOT NULL,
    number BIGINT NOT NULL,
    data MEDIUMBLOB NOT NULL,
    PRIMARY KEY (payload, number)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
