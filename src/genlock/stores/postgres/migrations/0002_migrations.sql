-- Which migrations the schema has had: when, in microseconds since 1970, and by which version of Genlock.
CREATE TABLE genlock.migration (
    number int4 PRIMARY KEY,
    name text COLLATE "C" NOT NULL,
    applied_at int8 NOT NULL,
    applied_by text COLLATE "C" NOT NULL
);
