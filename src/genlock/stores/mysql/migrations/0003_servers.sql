-- The server that was written to last, and since when, in microseconds since 1970; '' before the first commit. A store that is found on
-- another one may have lost what was acknowledged.
CREATE TABLE IF NOT EXISTS genlock_server (
    one TINYINT NOT NULL PRIMARY KEY,
    mark VARBINARY(255) NOT NULL,
    since BIGINT NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

INSERT IGNORE INTO genlock_server (one, mark, since) VALUES (1, '', 0);
