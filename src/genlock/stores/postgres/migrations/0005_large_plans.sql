-- Commits and purges as before, but what they take does not grow with what is there, nor with the square of a commit's changes. An element of
-- a text[] is found by walking along it, so lists are gone through together and not by numbers; and rows of waits are found by their keys,
-- also by a server that has not counted them yet. Who does not fit has the id 0.

CREATE OR REPLACE FUNCTION genlock.commit_changes(
    tenants text[], projects text[], kinds text[], states text[],
    pool_places int8[], pools text[], session_tenants text[], sessions text[],
    updates int8, fields int8[], names text[], orders text[], parents text[], waiting text[],
    read_digests bytea[], digests bytea[], bodies bytea[],
    event_fields int8[], event_digests bytea[], event_bodies bytea[],
    OUT heads int8[], OUT lost int8[]
) LANGUAGE plpgsql
SET plan_cache_mode = 'force_generic_plan' SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    total CONSTANT int8 := cardinality(names);
    none CONSTANT int8 := -9223372036854775808;
    place_ids int4[];
    pool_ids int4[];
    session_ids int4[];
    ids int8[] := '{}';
    fitting int8[] := '{}';
    found int8[];
    new_ids int8[];
    moved int8[];
    before text[];
    after text[];
    entering int8[];
    entered text[];
BEGIN
    -- A snapshot for the whole transaction would not show, under the turn, what was committed before it.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'genlock commits in READ COMMITTED only' USING ERRCODE = '25001';
    END IF;
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    -- Behind a pooler nobody has set it.
    IF current_setting('lock_timeout') = '0' THEN
        PERFORM set_config('lock_timeout', '4s', true);
    END IF;

    place_ids := genlock.places_of(tenants, projects);
    IF cardinality(pools) > 0 THEN
        pool_ids := genlock.pools_of(
            ARRAY(SELECT place_ids[n.place] FROM unnest(pool_places) WITH ORDINALITY AS n (place, at) ORDER BY n.at), pools);
    END IF;
    IF cardinality(sessions) > 0 THEN
        session_ids := genlock.sessions_of(session_tenants, sessions);
    END IF;

    IF updates > 0 THEN
        WITH updated AS (
            UPDATE genlock.record AS r
            SET version = fields[c.at * 8 - 4], digest = c.digest, state = states[fields[c.at * 8 - 3]],
                pool = pool_ids[fields[c.at * 8 - 2]], ord = c.ord, due_at = nullif(fields[c.at * 8 - 1], none),
                session = session_ids[fields[c.at * 8]], parent = c.parent,
                waits = c.waits, waited = CASE WHEN r.waits IS DISTINCT FROM c.waits THEN coalesce(r.waits, '[]') END, body = c.body
            FROM unnest(names, orders, parents, waiting, read_digests, digests, bodies)
                WITH ORDINALITY AS c (name, ord, parent, waits, read_digest, digest, body, at)
            WHERE c.at <= updates
                AND r.project = place_ids[fields[c.at * 8 - 7]] AND r.kind = kinds[fields[c.at * 8 - 6]] AND r.name = c.name
                AND r.version = fields[c.at * 8 - 5] AND r.digest = c.read_digest
            RETURNING c.at, r.id, r.waited, c.waits
        )
        SELECT coalesce(array_agg(u.at ORDER BY u.at), '{}'), coalesce(array_agg(u.id ORDER BY u.at), '{}'),
            array_agg(u.at ORDER BY u.at) FILTER (WHERE u.waited IS NOT NULL),
            array_agg(u.waited ORDER BY u.at) FILTER (WHERE u.waited IS NOT NULL),
            array_agg(coalesce(u.waits, '[]') ORDER BY u.at) FILTER (WHERE u.waited IS NOT NULL)
        INTO fitting, ids, moved, before, after FROM updated AS u;
    END IF;

    IF updates < total THEN
        new_ids := ARRAY(SELECT nextval('genlock.record_id_seq') FROM generate_series(updates + 1, total));
        WITH created AS (
            INSERT INTO genlock.record (id, project, kind, name, version, digest, state, pool, ord, due_at, session, parent, waits, body)
            SELECT new_ids[c.at - updates], place_ids[fields[c.at * 8 - 7]], kinds[fields[c.at * 8 - 6]], c.name, fields[c.at * 8 - 4],
                c.digest, states[fields[c.at * 8 - 3]], pool_ids[fields[c.at * 8 - 2]], c.ord, nullif(fields[c.at * 8 - 1], none),
                session_ids[fields[c.at * 8]], c.parent, c.waits, c.body
            FROM unnest(names, orders, parents, waiting, digests, bodies) WITH ORDINALITY AS c (name, ord, parent, waits, digest, body, at)
            WHERE c.at > updates ORDER BY c.at
            ON CONFLICT (project, kind, name) DO NOTHING
            RETURNING id
        )
        SELECT coalesce(array_agg(c.id ORDER BY c.id), '{}') INTO found FROM created AS c;
        ids := ids || found;
        -- The ids were drawn in the order of the changes.
        fitting := fitting || CASE WHEN cardinality(found) = cardinality(new_ids) THEN ARRAY(SELECT generate_series(updates + 1, total))
            ELSE ARRAY(SELECT n.at + updates FROM unnest(new_ids) WITH ORDINALITY AS n (id, at) WHERE n.id = ANY (found) ORDER BY n.at) END;
    END IF;

    IF cardinality(fitting) < total THEN
        lost := ARRAY(SELECT n.at FROM generate_series(1, total) AS n (at) EXCEPT SELECT f.at FROM unnest(fitting) AS f (at));
        found := array_fill(0::int8, ARRAY[total::int4]);
        FOR n IN 1..cardinality(fitting) LOOP
            found[fitting[n]] := ids[n];
        END LOOP;
        ids := found;
    END IF;
    -- By their places, which nobody else changes while the record is locked: so each is found by its key, whatever else there is.
    IF cardinality(moved) > 0 THEN
        DELETE FROM genlock.waits WHERE ctid = ANY (ARRAY(
            SELECT w.place FROM unnest(moved, before) AS m (at, before)
            CROSS JOIN LATERAL json_array_elements_text(m.before::json) AS d (dependency)
            CROSS JOIN LATERAL (
                SELECT w.ctid AS place FROM genlock.waits AS w
                WHERE w.project = place_ids[fields[m.at * 8 - 7]] AND w.dependency = d.dependency AND w.record = ids[m.at] OFFSET 0
            ) AS w
        ));
    END IF;
    -- Of a new record all that it waits on is new.
    IF updates < total AND cardinality(waiting) > 0 THEN
        SELECT array_agg(n.at ORDER BY n.at), array_agg(n.waits ORDER BY n.at) INTO entering, entered
        FROM unnest(waiting) WITH ORDINALITY AS n (waits, at) WHERE n.at > updates AND n.waits IS NOT NULL AND ids[n.at] <> 0;
        moved := moved || entering;
        after := after || entered;
    END IF;
    IF cardinality(moved) > 0 THEN
        INSERT INTO genlock.waits (project, dependency, record)
        SELECT place_ids[fields[m.at * 8 - 7]], d.dependency, ids[m.at]
        FROM unnest(moved, after) AS m (at, waits) CROSS JOIN LATERAL json_array_elements_text(m.waits::json) AS d (dependency)
        ORDER BY 1, 2, 3 ON CONFLICT DO NOTHING;
    END IF;

    -- The turns last, each in a statement of its own, so that the next one sees all that was committed under the turn before ours.
    heads := array_fill(0::int8, ARRAY[cardinality(place_ids)]);
    IF cardinality(fitting) = 0 THEN
        RETURN;
    END IF;
    FOR n IN 1..cardinality(place_ids) LOOP
        PERFORM pg_advisory_xact_lock('genlock.record'::regclass::oid::int4, place_ids[n]);
        heads[n] := genlock.head_of(place_ids[n]);
    END LOOP;
    INSERT INTO genlock.event (at, record, version, digest, body)
    SELECT (place_ids[e.place]::int8 << 40) + heads[e.place] + row_number() OVER (PARTITION BY e.place ORDER BY e.at),
        e.record, e.version, e.digest, e.body
    FROM (
        SELECT fields[event_fields[n.at * 2 - 1] * 8 - 7] AS place, ids[event_fields[n.at * 2 - 1]] AS record,
            event_fields[n.at * 2] AS version, n.digest, n.body, n.at
        FROM unnest(event_digests, event_bodies) WITH ORDINALITY AS n (digest, body, at)
    ) AS e
    WHERE e.record <> 0;
END $$;

CREATE OR REPLACE FUNCTION genlock.purge_events(
    place_tenant text, place_project text, record_kind text, record_name text, before_version int8, new_base bytea
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    number int4;
    row_id int8;
    last int8;
BEGIN
    SELECT p.id, r.id INTO number, row_id
    FROM genlock.project AS p JOIN genlock.record AS r ON r.project = p.id
    WHERE p.tenant = place_tenant AND p.project = place_project AND r.kind = record_kind AND r.name = record_name
    FOR UPDATE OF r;
    IF row_id IS NULL THEN
        RETURN;
    END IF;
    -- Under the turn, as it may take the feed's last event away: what comes next must find that it was there.
    PERFORM pg_advisory_xact_lock('genlock.record'::regclass::oid::int4, number);
    -- Plus nothing, so that it is looked for among the record's events: the last of all that is one of them may be far from the end.
    SELECT max(e.at + 0) & 1099511627775 INTO last FROM genlock.event AS e WHERE e.record = row_id AND e.version < before_version;
    IF last IS NULL THEN
        RETURN;
    END IF;
    DELETE FROM genlock.event AS e WHERE e.record = row_id AND e.version < before_version;
    UPDATE genlock.record AS r SET base = new_base WHERE r.id = row_id;
    UPDATE genlock.project AS p SET purged_to = greatest(p.purged_to, last), purges = p.purges + 1 WHERE p.id = number;
END $$;
