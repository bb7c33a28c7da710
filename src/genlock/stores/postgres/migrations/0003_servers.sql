-- The server that was written to last, and since when, in microseconds since 1970; '' before the first commit. A store that is found on
-- another one, or on the same one in another history, may have lost what was acknowledged.
CREATE TABLE genlock.server (
    mark text COLLATE "C" NOT NULL,
    since int8 NOT NULL
);

INSERT INTO genlock.server (mark, since) VALUES ('', 0);


-- What tells a server and its history from all others: the number that a cluster is born with, and the timeline, which is another one
-- after every promotion and every recovery to a point in time. Nothing on a standby, which has no history of its own.
CREATE FUNCTION genlock.server_mark() RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN NOT pg_is_in_recovery() THEN
        CASE WHEN has_function_privilege('pg_control_system()', 'EXECUTE')
            THEN (SELECT c.system_identifier::text FROM pg_control_system() AS c) ELSE '' END
        || '/' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)
    END
$$;


-- The server's mark and the epoch, raised if the mark is not the one that was kept. Of several who notice it one raises it: the others
-- wait for its row, and find it as it should be. See docs/adr/0014 for why an epoch is made of the time, and not the last one plus one.
CREATE FUNCTION genlock.heed_server(OUT here text, OUT present int8) LANGUAGE plpgsql AS $$
DECLARE
    kept text;
    now_at CONSTANT int8 := (extract(epoch FROM clock_timestamp()) * 1000000)::int8;
BEGIN
    here := genlock.server_mark();
    SELECT s.mark INTO kept FROM genlock.server AS s;
    IF here <> kept THEN
        IF current_setting('synchronous_commit') = 'off' THEN
            PERFORM set_config('synchronous_commit', 'on', true);
        END IF;
        IF current_setting('lock_timeout') = '0' THEN
            PERFORM set_config('lock_timeout', '4s', true);
        END IF;
        UPDATE genlock.server AS s SET mark = here, since = now_at WHERE s.mark <> here;
        IF FOUND AND kept <> '' THEN
            UPDATE genlock.meta AS m SET epoch = greatest(
                m.epoch + 1,
                (now_at - (SELECT min(g.applied_at) FROM genlock.migration AS g)) / 1000000 * 16 + floor(random() * 16)::int8
            );
        END IF;
    END IF;
    SELECT m.epoch INTO present FROM genlock.meta AS m;
END $$;
