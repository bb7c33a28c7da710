-- Every statement of the store, by name; queries.py loads them once for each schema. Values are written :so, and numbers are int8
-- throughout. The two statements of the hot path take whole columns, by number.
--
-- LATERAL (… OFFSET 0) is the way to a row by an index, and no other: nothing is moved across it. A server that has not counted yet how
-- many rows there are, or has a plan from when there were none, would as soon go through all of a project's records to find one.


-- Opening.

-- name: look
-- Is there a store of ours, or something else in its place?
SELECT to_regclass('genlock.meta') IS NOT NULL, count(*), pg_is_in_recovery(), current_setting('fsync') = 'on',
    current_setting('server_encoding'), current_setting('server_version_num')::int8
FROM pg_class WHERE relnamespace = to_regnamespace(:schema::text);

-- name: format
SELECT format, made_by FROM genlock.meta;

-- name: lock_opening
SELECT pg_advisory_xact_lock(hashtextextended('genlock migrates ' || :schema::text, 0)) IS NULL;

-- name: set_format
UPDATE genlock.meta SET format = :format::int8, made_by = :version::text;

-- name: note_migration
INSERT INTO genlock.migration (number, name, applied_at, applied_by)
VALUES (:number::int8, :name::text, (extract(epoch FROM clock_timestamp()) * 1000000)::int8, :version::text) ON CONFLICT DO NOTHING;

-- name: migrations
SELECT number, name, applied_at, applied_by FROM genlock.migration ORDER BY number;


-- Reading records.

-- name: load
SELECT at, version, digest, body FROM genlock.load_records($1::text[], $2::text[], $3::text[], $4::int8[], $5::text[]);

-- name: load_index
-- Of what the record waits on only that which can be found by: both copies must agree for it to be seen.
SELECT r.version, r.digest, r.body, r.state, pool.name, r.ord, r.due_at, session.name, r.parent,
    (SELECT coalesce(json_agg(d.dependency ORDER BY d.place), '[]')::text
        FROM json_array_elements_text(coalesce(r.waits, '[]')::json) WITH ORDINALITY AS d (dependency, place)
        WHERE EXISTS (SELECT FROM genlock.waits AS w WHERE w.project = r.project AND w.dependency = d.dependency AND w.record = r.id))
FROM genlock.project AS p JOIN genlock.record AS r ON r.project = p.id
LEFT JOIN genlock.pool AS pool ON pool.id = r.pool AND pool.project = r.project
LEFT JOIN genlock.session AS session ON session.id = r.session AND session.tenant = p.tenant
WHERE p.tenant = :tenant::text AND p.project = :project::text AND r.kind = :kind::text AND r.name = :name::text;


-- Auditing: what nobody meets who goes by project and name.

-- name: all_places
SELECT p.tenant, p.project FROM genlock.project AS p
WHERE EXISTS (SELECT FROM genlock.record AS r WHERE r.project = p.id) OR EXISTS (
    SELECT FROM genlock.event AS e WHERE e.at > p.id::int8 << 40 AND e.at < (p.id::int8 + 1) << 40)
ORDER BY p.id;

-- name: audit
SELECT kind || ' ' || name || ' belongs to project ' || project || ', which is not there'
FROM genlock.record WHERE project NOT IN (SELECT id FROM genlock.project)
UNION ALL
SELECT 'the event at position ' || (at & 1099511627775) || ' belongs to project ' || (at >> 40) || ', which is not there'
FROM genlock.event WHERE at >> 40 NOT IN (SELECT id FROM genlock.project)
UNION ALL
SELECT coalesce(p.tenant || '/' || p.project || ' ' || r.kind || ' ' || r.name, 'record ' || w.record || ', which is not there')
    || ': is found by waits_on ' || w.dependency || ', for which it does not wait'
FROM genlock.waits AS w LEFT JOIN genlock.record AS r ON r.id = w.record AND r.project = w.project
LEFT JOIN genlock.project AS p ON p.id = r.project
WHERE r.id IS NULL OR r.waits IS NULL OR NOT EXISTS (
    SELECT FROM json_array_elements_text(r.waits::json) AS d (dependency) WHERE d.dependency = w.dependency);


-- Writing.

-- name: commit
SELECT heads, lost FROM genlock.commit_changes(
    $1::text[], $2::text[], $3::text[], $4::text[], $5::int8[], $6::text[], $7::text[], $8::text[], $9::int8, $10::int8[], $11::text[],
    $12::text[], $13::text[], $14::text[], $15::bytea[], $16::bytea[], $17::bytea[], $18::int8[], $19::bytea[], $20::bytea[]);

-- name: commit_here
-- The same, unless this is another server than the one that it was meant for: then there is no row, and nothing is written. What is
-- asked does not depend on the rows, so it is asked before the first of them is made.
SELECT heads, lost FROM genlock.commit_changes(
    $1::text[], $2::text[], $3::text[], $4::text[], $5::int8[], $6::text[], $7::text[], $8::text[], $9::int8, $10::int8[], $11::text[],
    $12::text[], $13::text[], $14::text[], $15::bytea[], $16::bytea[], $17::bytea[], $18::int8[], $19::bytea[], $20::bytea[])
WHERE genlock.server_mark() = $21::text;

-- name: heed
SELECT genlock.server_mark(), s.mark, m.epoch, (extract(epoch FROM clock_timestamp()) * 1000000)::int8 FROM genlock.server AS s, genlock.meta AS m;

-- name: begin_epoch
SELECT genlock.begin_epoch(:mark::text, :kept::text, :number::int8);

-- name: purge
SELECT genlock.purge_events(:tenant::text, :project::text, :kind::text, :name::text, :before::int8, :base::bytea) IS NULL;

-- name: raise_epoch
UPDATE genlock.meta SET epoch = :epoch::int8 WHERE epoch < :epoch::int8 RETURNING epoch;


-- Events. Each answer begins with a row of the feed's state, so that state and events are of one instant.

-- name: feed_state
SELECT m.birth, m.epoch, coalesce(genlock.head_of(p.id), 0), coalesce(p.purged_to, 0), coalesce(p.purges, 0)
FROM genlock.meta AS m LEFT JOIN genlock.project AS p ON p.tenant = :tenant::text AND p.project = :project::text;

-- name: read_feed
WITH place AS MATERIALIZED (SELECT p.* FROM genlock.project AS p WHERE p.tenant = :tenant::text AND p.project = :project::text)
SELECT m.epoch, NULL::text, NULL::text, coalesce(genlock.head_of(p.id), 0), m.birth, NULL::bytea, coalesce(p.purged_to, 0),
    coalesce(p.purges, 0)
FROM genlock.meta AS m LEFT JOIN place AS p ON true
UNION ALL (
    -- The project is compared here, not where the record is looked up: an event whose record is another project's is shown, without a name.
    SELECT e.at & 1099511627775, CASE WHEN r.project = p.id THEN r.kind END, CASE WHEN r.project = p.id THEN r.name END,
        e.version, e.digest, e.body, e.record, NULL
    FROM place AS p
    CROSS JOIN LATERAL (
        SELECT * FROM genlock.event AS e
        WHERE e.at > (p.id::int8 << 40) + :position::int8 AND e.at < (p.id::int8 + 1) << 40
        ORDER BY e.at LIMIT :most::int8
    ) AS e
    LEFT JOIN LATERAL (SELECT r.project, r.kind, r.name FROM genlock.record AS r WHERE r.id = e.record OFFSET 0) AS r ON true
    ORDER BY e.at
);

-- name: read_record
WITH owner AS MATERIALIZED (
    SELECT r.id, r.base, p.id AS project, p.purged_to, p.purges FROM genlock.project AS p
    LEFT JOIN genlock.record AS r ON r.project = p.id AND r.kind = :kind::text AND r.name = :name::text
    WHERE p.tenant = :tenant::text AND p.project = :project::text
)
SELECT m.epoch, coalesce(genlock.head_of(o.project), 0), m.birth, o.base, coalesce(o.purged_to, 0), coalesce(o.purges, 0)
FROM genlock.meta AS m LEFT JOIN owner AS o ON true
UNION ALL (
    SELECT e.at & 1099511627775, e.version, e.digest, e.body, NULL, NULL
    FROM owner AS o
    CROSS JOIN LATERAL (
        SELECT * FROM genlock.event AS e WHERE e.record = o.id AND e.version > :after::int8 ORDER BY e.version LIMIT :most::int8
    ) AS e
    ORDER BY e.version
);

-- name: feed_ends
SELECT m.birth, m.epoch, coalesce(genlock.head_of(p.id), 0)
FROM unnest(:tenants::text[], :projects::text[]) WITH ORDINALITY AS c (tenant, project, place)
CROSS JOIN genlock.meta AS m LEFT JOIN genlock.project AS p ON p.tenant = c.tenant AND p.project = c.project ORDER BY c.place;


-- Finding. Each gives: project, id, version, digest, body, pool, order, and what else its pages are continued by.

-- name: find_all
SELECT p.project, r.name, r.version, r.digest, r.body, pool.name, r.ord, r.id
FROM genlock.project AS p
CROSS JOIN LATERAL (
    SELECT * FROM genlock.record AS r
    WHERE r.project = p.id AND r.kind = :kind::text AND (:state::text IS NULL OR r.state = :state::text)
        AND (:after_project::text IS NULL OR p.project > :after_project::text OR r.name > :after::text)
    ORDER BY r.name LIMIT :most::int8
) AS r
LEFT JOIN genlock.pool AS pool ON pool.id = r.pool
WHERE p.tenant = :tenant::text AND (:project::text IS NULL OR p.project = :project::text) AND (:after_project::text IS NULL OR p.project >= :after_project::text)
ORDER BY p.project, r.name LIMIT :most::int8;

-- name: find_one
-- The same for one project, so that its index is walked from where the page before ended.
SELECT p.project, r.name, r.version, r.digest, r.body, pool.name, r.ord, r.id
FROM genlock.project AS p
CROSS JOIN LATERAL (
    SELECT * FROM genlock.record AS r
    WHERE r.project = p.id AND r.kind = :kind::text AND r.name >= coalesce(:after::text, '') AND r.name IS DISTINCT FROM :after::text
        AND (:state::text IS NULL OR r.state = :state::text)
    ORDER BY r.name LIMIT :most::int8
) AS r
LEFT JOIN genlock.pool AS pool ON pool.id = r.pool
WHERE p.tenant = :tenant::text AND p.project = :project::text
ORDER BY r.name;

-- name: find_pool
-- The first page, and those after a record without an order: they come first.
SELECT p.project, r.name, r.version, r.digest, r.body, pool.name, r.ord, r.id, r.ord
FROM genlock.project AS p JOIN genlock.pool AS pool ON pool.project = p.id AND pool.name = :pool::text
CROSS JOIN LATERAL (
    SELECT * FROM genlock.record AS r
    WHERE r.project = p.id AND r.pool = pool.id AND (:after::int8 IS NULL OR r.ord IS NOT NULL OR r.id > :after::int8)
        AND r.kind = :kind::text AND (:state::text IS NULL OR r.state = :state::text)
    ORDER BY r.ord NULLS FIRST, r.id LIMIT :most::int8
) AS r
WHERE p.tenant = :tenant::text AND p.project = :project::text
ORDER BY r.ord NULLS FIRST, r.id;

-- name: find_pool_after
SELECT p.project, r.name, r.version, r.digest, r.body, pool.name, r.ord, r.id, r.ord
FROM genlock.project AS p JOIN genlock.pool AS pool ON pool.project = p.id AND pool.name = :pool::text
CROSS JOIN LATERAL (
    SELECT * FROM genlock.record AS r
    WHERE r.project = p.id AND r.pool = pool.id AND (r.ord, r.id) > (:ord::text, :after::int8)
        AND r.kind = :kind::text AND (:state::text IS NULL OR r.state = :state::text)
    ORDER BY r.ord NULLS FIRST, r.id LIMIT :most::int8
) AS r
WHERE p.tenant = :tenant::text AND p.project = :project::text
ORDER BY r.ord NULLS FIRST, r.id;

-- name: find_heads
-- Steps from pool to pool along the index, and takes the first of each: the records in between are never looked at.
-- A pool "~kind" has records of that kind only (KIND_POOL in core/index.py): those of another kind need not be walked.
WITH RECURSIVE place AS (
    SELECT id, project FROM genlock.project WHERE tenant = :tenant::text AND project = :project::text
), step (project, pool) AS (
    SELECT p.id, (SELECT r.pool FROM genlock.record AS r WHERE r.project = p.id AND r.pool IS NOT NULL ORDER BY r.pool LIMIT 1)
    FROM place AS p
    UNION ALL
    SELECT s.project, (SELECT r.pool FROM genlock.record AS r WHERE r.project = s.project AND r.pool > s.pool ORDER BY r.pool LIMIT 1)
    FROM step AS s WHERE s.pool IS NOT NULL
)
SELECT p.project, r.name, r.version, r.digest, r.body, pool.name, r.ord, r.id
FROM place AS p CROSS JOIN step AS s
JOIN genlock.pool AS pool ON pool.id = s.pool AND (left(pool.name, 1) <> '~' OR pool.name IN ('~', '~' || :kind::text))
CROSS JOIN LATERAL (
    SELECT * FROM genlock.record AS r
    WHERE r.project = s.project AND r.pool = s.pool AND r.kind = :kind::text AND (:state::text IS NULL OR r.state = :state::text)
    ORDER BY r.ord NULLS FIRST, r.id LIMIT :heads::int8
) AS r
ORDER BY r.ord NULLS FIRST, r.id;

-- name: find_due
SELECT p.project, r.name, r.version, r.digest, r.body, pool.name, r.ord, r.id, r.due_at
FROM genlock.project AS p
CROSS JOIN LATERAL (
    SELECT * FROM genlock.record AS r
    WHERE r.project = p.id AND r.due_at <= :due::int8 AND (r.due_at, r.id) > (:after_due::int8, :after::int8)
        AND r.kind || '' = :kind::text AND (:state::text IS NULL OR r.state = :state::text)
    ORDER BY r.due_at, r.id LIMIT :most::int8
) AS r
LEFT JOIN genlock.pool AS pool ON pool.id = r.pool
WHERE p.tenant = :tenant::text AND p.project = :project::text
ORDER BY r.due_at, r.id;

-- name: find_session
SELECT p.project, r.name, r.version, r.digest, r.body, pool.name, r.ord, r.id
FROM genlock.session AS s CROSS JOIN LATERAL (SELECT * FROM genlock.record AS r WHERE r.session = s.id OFFSET 0) AS r
JOIN genlock.project AS p ON p.id = r.project
LEFT JOIN genlock.pool AS pool ON pool.id = r.pool
WHERE s.tenant = :tenant::text AND s.name = :session::text AND (:project::text IS NULL OR p.project = :project::text)
    AND (:after_project::text IS NULL OR (p.project, r.name) > (:after_project::text, :after::text))
    AND r.kind = :kind::text AND (:state::text IS NULL OR r.state = :state::text)
ORDER BY p.project, r.name LIMIT :most::int8;

-- name: find_parent
SELECT p.project, r.name, r.version, r.digest, r.body, pool.name, r.ord, r.id
FROM genlock.project AS p
CROSS JOIN LATERAL (SELECT * FROM genlock.record AS r WHERE r.project = p.id AND r.parent = :parent::text OFFSET 0) AS r
LEFT JOIN genlock.pool AS pool ON pool.id = r.pool
WHERE p.tenant = :tenant::text AND p.project = :project::text AND (:after::text IS NULL OR r.name > :after::text)
    AND r.kind = :kind::text AND (:state::text IS NULL OR r.state = :state::text)
ORDER BY r.name LIMIT :most::int8;

-- name: find_waits
SELECT p.project, r.name, r.version, r.digest, r.body, pool.name, r.ord, r.id
FROM genlock.project AS p
CROSS JOIN LATERAL (
    SELECT DISTINCT w.record FROM json_array_elements_text(:waits_on::json) AS d (dependency)
    CROSS JOIN LATERAL (SELECT w.record FROM genlock.waits AS w WHERE w.project = p.id AND w.dependency = d.dependency OFFSET 0) AS w
) AS w
CROSS JOIN LATERAL (SELECT * FROM genlock.record AS r WHERE r.id = w.record OFFSET 0) AS r
LEFT JOIN genlock.pool AS pool ON pool.id = r.pool
WHERE p.tenant = :tenant::text AND p.project = :project::text AND (:after::text IS NULL OR r.name > :after::text)
    AND r.kind = :kind::text AND (:state::text IS NULL OR r.state = :state::text)
ORDER BY r.name LIMIT :most::int8;


-- Counting: a count_by_… with one of the among_… in it. The count by number comes before the one by name, as names are long.

-- name: count_by_state
SELECT r.state, count(*) FROM :among
WHERE p.tenant = :tenant::text AND (:project::text IS NULL OR p.project = :project::text) AND r.kind = :kind::text AND (:state::text IS NULL OR r.state = :state::text)
GROUP BY r.state;

-- name: count_by_project
SELECT p.project, count(*) FROM :among
WHERE p.tenant = :tenant::text AND (:project::text IS NULL OR p.project = :project::text) AND r.kind = :kind::text AND (:state::text IS NULL OR r.state = :state::text)
GROUP BY p.project;

-- name: count_by_pool
SELECT pool.name, sum(c.count)::int8 FROM (
    SELECT r.pool AS number, count(*) AS count FROM :among
    WHERE p.tenant = :tenant::text AND (:project::text IS NULL OR p.project = :project::text) AND r.kind = :kind::text
        AND (:state::text IS NULL OR r.state = :state::text) AND r.pool IS NOT NULL
    GROUP BY r.pool
) AS c JOIN genlock.pool AS pool ON pool.id = c.number
GROUP BY pool.name;

-- name: count_by_session
SELECT session.name, sum(c.count)::int8 FROM (
    SELECT r.session AS number, count(*) AS count FROM :among
    WHERE p.tenant = :tenant::text AND (:project::text IS NULL OR p.project = :project::text) AND r.kind = :kind::text
        AND (:state::text IS NULL OR r.state = :state::text) AND r.session IS NOT NULL
    GROUP BY r.session
) AS c JOIN genlock.session AS session ON session.id = c.number
GROUP BY session.name;

-- name: among_all
genlock.project AS p JOIN genlock.record AS r ON r.project = p.id;

-- name: among_offered
genlock.project AS p JOIN genlock.record AS r ON r.project = p.id AND r.pool IS NOT NULL;

-- name: among_claimed
genlock.project AS p JOIN genlock.record AS r ON r.project = p.id AND r.session IS NOT NULL;

-- name: among_pool
genlock.project AS p JOIN genlock.record AS r
ON r.project = p.id AND r.pool = (SELECT o.id FROM genlock.pool AS o WHERE o.project = p.id AND o.name = :value::text);

-- name: among_due
genlock.project AS p JOIN genlock.record AS r ON r.project = p.id AND r.due_at <= :value::int8;

-- name: among_session
genlock.session AS s CROSS JOIN LATERAL (SELECT * FROM genlock.record AS r WHERE r.session = s.id OFFSET 0) AS r
JOIN genlock.project AS p ON p.id = r.project AND s.tenant = :tenant::text AND s.name = :value::text;

-- name: among_parent
genlock.project AS p
CROSS JOIN LATERAL (SELECT * FROM genlock.record AS r WHERE r.project = p.id AND r.parent = :value::text OFFSET 0) AS r;

-- name: among_waits
genlock.project AS p CROSS JOIN LATERAL (
    SELECT DISTINCT w.record FROM json_array_elements_text(:value::json) AS d (dependency)
    CROSS JOIN LATERAL (SELECT w.record FROM genlock.waits AS w WHERE w.project = p.id AND w.dependency = d.dependency OFFSET 0) AS w
) AS w CROSS JOIN LATERAL (SELECT * FROM genlock.record AS r WHERE r.id = w.record OFFSET 0) AS r;


-- Payloads.

-- name: add_payload
INSERT INTO genlock.payload (name, size) VALUES (:name::bytea, :size::int8) ON CONFLICT (name) DO NOTHING RETURNING id;

-- name: add_pieces
INSERT INTO genlock.piece (payload, number, data)
SELECT :payload::int8, :before::int8 + d.at, d.data FROM unnest(:pieces::bytea[]) WITH ORDINALITY AS d (data, at);

-- name: find_payload
SELECT id, size FROM genlock.payload WHERE name = :name::bytea;

-- name: payload_names
SELECT name FROM genlock.payload;

-- name: read_piece
SELECT data FROM genlock.piece WHERE payload = :payload::int8 AND number = :number::int8;

-- name: drop_payload
WITH gone AS (DELETE FROM genlock.payload WHERE name = :name::bytea RETURNING id)
DELETE FROM genlock.piece USING gone WHERE piece.payload = gone.id;


-- Notifying. A listener holds a lock that says so, because to notify nobody would still cost a transaction. The notifier's own listener,
-- process :own, need not be told. It waits for no disk: what it tells of is on disk already.

-- name: notify
SELECT set_config('synchronous_commit', 'off', true), pg_notify('genlock_' || 'genlock.record'::regclass::oid, :message::text) IS NULL
WHERE EXISTS (
    SELECT FROM pg_locks
    WHERE locktype = 'advisory' AND classid = 'genlock.record'::regclass::oid AND objid = 0 AND objsubid = 2 AND granted AND pid <> :own::int8
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
);

-- name: channel
SELECT 'genlock_' || 'genlock.record'::regclass::oid, pg_advisory_lock_shared('genlock.record'::regclass::oid::int4, 0) IS NULL;
