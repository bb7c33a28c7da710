-- Which migrations the file has had: when, in microseconds since 1970, and by which version of Genlock.
CREATE TABLE migration (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    applied_at INTEGER NOT NULL,
    applied_by TEXT NOT NULL
) STRICT;
