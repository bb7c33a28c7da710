-- The store is on the server `here` from now on, and no longer on `before`: its epoch rises to a number that the client has taken, since one
-- function makes it for all stores. Of several who notice it one raises it: the others wait for its row, and find it done. The epoch; NULL if this
-- is another server by now, and nothing is written.
CREATE FUNCTION genlock.begin_epoch(here text, before text, number int8) RETURNS int8 LANGUAGE plpgsql AS $$
BEGIN
    IF genlock.server_mark() IS DISTINCT FROM here THEN
        RETURN NULL;
    END IF;
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    IF current_setting('lock_timeout') = '0' THEN
        PERFORM set_config('lock_timeout', '4s', true);
    END IF;
    UPDATE genlock.server AS s SET mark = here, since = (extract(epoch FROM clock_timestamp()) * 1000000)::int8 WHERE s.mark = before;
    IF FOUND AND before <> '' THEN
        UPDATE genlock.meta AS m SET epoch = greatest(m.epoch + 1, number);
    END IF;
    RETURN (SELECT m.epoch FROM genlock.meta AS m);
END $$;
