-- Which migrations the tables have had: when, in microseconds since 1970, and by which version of Genlock.
CREATE TABLE IF NOT EXISTS genlock_migration (
    number INT NOT NULL PRIMARY KEY,
    name VARBINARY(64) NOT NULL,
    applied_at BIGINT NOT NULL,
    applied_by VARBINARY(64) NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
