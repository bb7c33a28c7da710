-- Every statement of the store, by name. Loaded once by queries.py.


-- Which migrations the file has had.

-- name: has_migrations
SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'migration';

-- name: migrations
SELECT number, name, applied_at, applied_by FROM migration ORDER BY number;

-- name: note_migration
INSERT INTO migration (number, name, applied_at, applied_by)
VALUES (?1, ?2, CAST(unixepoch('subsec') * 1000000 AS INTEGER), ?3) ON CONFLICT DO NOTHING;


-- Reading records.

-- name: epoch
SELECT epoch FROM meta;

-- name: project_id
SELECT id FROM project WHERE tenant = ?1 AND project = ?2;

-- name: load_one
SELECT meta.epoch, r.id, r.version, r.digest, r.body, r.parent, r.waits
FROM meta LEFT JOIN record AS r
ON r.project = (SELECT id FROM project WHERE tenant = ?1 AND project = ?2) AND r.kind = ?3 AND r.name = ?4;

-- name: load
-- ?1 comes back as it is: the place of the key among those asked for.
SELECT ?1, id, version, digest, body, parent, waits
FROM record WHERE project = ?2 AND kind = ?3 AND name = ?4;

-- name: load_many
-- ?3 is a list of names; the place of each in it comes back.
SELECT asked.key, r.id, r.version, r.digest, r.body, r.parent, r.waits
FROM json_each(?3) AS asked CROSS JOIN record AS r ON r.project = ?1 AND r.kind = ?2 AND r.name = asked.value;

-- name: load_index
-- Of what the record waits on only that which can be found by: both copies must agree for it to be seen.
SELECT r.version, r.digest, r.body, r.state, pool.name, r.ord, r.due_at, session.name, r.parent,
    (SELECT json_group_array(dependency ORDER BY place) FROM (
        SELECT entry.value AS dependency, entry.key AS place FROM json_each(r.waits) AS entry
        WHERE EXISTS (SELECT 1 FROM waits AS w WHERE w.project = r.project AND w.dependency = entry.value AND w.record = r.id)
    ))
FROM record AS r
LEFT JOIN pool ON pool.id = r.pool AND pool.project = r.project
LEFT JOIN session ON session.id = r.session AND session.tenant = (SELECT tenant FROM project WHERE id = r.project)
WHERE r.project = ?1 AND r.kind = ?2 AND r.name = ?3;


-- Auditing: what nobody meets who goes by project and name.

-- name: all_places
SELECT tenant, project FROM project ORDER BY id;

-- name: audit
SELECT kind || ' ' || name || ' belongs to project ' || project || ', which is not there'
FROM record WHERE project NOT IN (SELECT id FROM project)
UNION ALL
SELECT 'the event at position ' || (at & 1099511627775) || ' belongs to project ' || (at >> 40) || ', which is not there'
FROM event WHERE at >> 40 NOT IN (SELECT id FROM project)
UNION ALL
SELECT tenant || '/' || project || ' feed: its head is ' || head || ', and its last position is ' || last
FROM (SELECT p.tenant, p.project, p.head, p.purged_to, ifnull(max(e.at) & 1099511627775, 0) AS last
    FROM project AS p LEFT JOIN event AS e ON e.at >> 40 = p.id GROUP BY p.id)
WHERE head != last AND head != purged_to
UNION ALL
SELECT ifnull(p.tenant || '/' || p.project || ' ' || r.kind || ' ' || r.name, 'record ' || w.record || ', which is not there')
    || ': is found by waits_on ' || w.dependency || ', for which it does not wait'
FROM waits AS w LEFT JOIN record AS r ON r.id = w.record AND r.project = w.project LEFT JOIN project AS p ON p.id = r.project
WHERE r.id IS NULL OR r.waits IS NULL OR NOT json_valid(r.waits) OR w.dependency NOT IN (SELECT value FROM json_each(r.waits));


-- Committing. The names in use are interned first, positions are given last.

-- name: find_written
SELECT r.id, r.parent, r.waits
FROM record AS r
WHERE r.project = (SELECT id FROM project WHERE tenant = ?1 AND project = ?2)
    AND r.kind = ?3 AND r.name = ?4 AND r.version = ?5 AND r.digest = ?6;

-- name: add_project
INSERT INTO project (tenant, project) VALUES (?1, ?2);

-- name: add_pool
INSERT INTO pool (project, name) VALUES (?1, ?2);

-- name: pool_id
SELECT id FROM pool WHERE project = ?1 AND name = ?2;

-- name: add_session
INSERT INTO session (tenant, name) VALUES (?1, ?2);

-- name: session_id
SELECT id FROM session WHERE tenant = ?1 AND name = ?2;

-- name: update_record
-- parent is not among them: it hardly ever changes, and naming it here would rewrite its index entry every time.
UPDATE record
SET version = ?1, digest = ?2, state = ?3, pool = ?4, ord = ?5, due_at = ?6, session = ?7, waits = ?8, body = ?9
WHERE id = ?10 AND version = ?11 AND digest = ?12;

-- name: move_record
UPDATE record SET parent = ?1 WHERE id = ?2;

-- name: last_record
SELECT ifnull(max(id), 0) FROM record;

-- name: create_record
INSERT INTO record (id, project, kind, name, version, digest, state, pool, ord, due_at, session, parent, waits, body)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
ON CONFLICT (project, kind, name) DO NOTHING;

-- name: add_wait
INSERT INTO waits (project, dependency, record) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING;

-- name: remove_wait
DELETE FROM waits WHERE project = ?1 AND dependency = ?2 AND record = ?3;

-- name: take_positions
UPDATE project SET head = head + ?1 WHERE id = ?2 RETURNING head;

-- name: add_event
INSERT INTO event (at, record, version, digest, body) VALUES (?1, ?2, ?3, ?4, ?5);


-- Events.

-- name: feed_state
SELECT meta.birth, meta.epoch, ifnull(p.head, 0), ifnull(p.purged_to, 0), ifnull(p.purges, 0), ifnull(p.id, 0)
FROM meta LEFT JOIN project AS p ON p.tenant = ?1 AND p.project = ?2;

-- name: read_feed
SELECT e.at, r.kind, r.name, e.version, e.digest, e.body, e.record
FROM event AS e LEFT JOIN record AS r ON r.id = e.record AND r.project = e.at >> 40
WHERE e.at > ?1 AND e.at < ?2
ORDER BY e.at LIMIT ?3;

-- name: base_of
SELECT id, base FROM record WHERE project = ?1 AND kind = ?2 AND name = ?3;

-- name: read_record
SELECT at, version, digest, body
FROM event WHERE record = ?1 AND version > ?2
ORDER BY version LIMIT ?3;

-- name: last_purged
SELECT max(at) FROM event WHERE record = ?1 AND version < ?2;

-- name: drop_events
DELETE FROM event WHERE record = ?1 AND version < ?2;

-- name: set_base
UPDATE record SET base = ?1 WHERE id = ?2;

-- name: note_purge
UPDATE project SET purged_to = max(purged_to, ?1), purges = purges + 1 WHERE id = ?2;

-- name: raise_epoch
UPDATE meta SET epoch = ?1 WHERE epoch < ?1;

-- name: new_birth
UPDATE meta SET birth = randomblob(8);


-- Which file this is, and how far it has come: see copies.py.

-- name: own_file
SELECT meta.birth, meta.epoch, file.inode FROM meta, file;

-- name: note_file
UPDATE file SET inode = ?1;

-- name: last_place
SELECT id << 40 | head FROM project ORDER BY id DESC LIMIT 1;

-- name: head_of
SELECT head FROM project WHERE id = ?1;


-- Waiting.

-- name: data_version
PRAGMA data_version;


-- Finding. Each gives: project, id, version, digest, body, pool, order, and what else its pages are continued by.

-- name: projects_of
SELECT id, project FROM project WHERE tenant = ?1 AND project >= ?2 ORDER BY project;

-- name: find_all
SELECT :project, r.name, r.version, r.digest, r.body, pool.name, r.ord, r.id
FROM record AS r LEFT JOIN pool ON pool.id = r.pool
WHERE r.project = :project_id AND r.kind = :kind AND r.name >= :from_name AND r.name IS NOT :last_name
    AND (:state IS NULL OR r.state = :state)
ORDER BY r.name LIMIT :limit;

-- name: find_pool
-- The first page, and those after a record without an order: they come first.
SELECT :project, r.name, r.version, r.digest, r.body, :pool, r.ord, r.id, r.ord
FROM record AS r INDEXED BY record_ready
WHERE r.project = :project_id AND r.pool = :pool_id AND (:last_id IS NULL OR r.ord IS NOT NULL OR r.id > :last_id)
    AND r.kind = :kind AND (:state IS NULL OR r.state = :state)
ORDER BY r.ord, r.id LIMIT :limit;

-- name: find_pool_after
SELECT :project, r.name, r.version, r.digest, r.body, :pool, r.ord, r.id, r.ord
FROM record AS r INDEXED BY record_ready
WHERE r.project = :project_id AND r.pool = :pool_id AND (r.ord, r.id) > (:last_order, :last_id)
    AND r.kind = :kind AND (:state IS NULL OR r.state = :state)
ORDER BY r.ord, r.id LIMIT :limit;

-- name: find_heads
-- Steps from pool to pool along the index, and takes the first of each: the records in between are never looked at.
-- A pool "~kind" has records of that kind only (KIND_POOL in core/index.py): those of another kind need not be walked.
WITH RECURSIVE step (pool) AS (
    SELECT min(pool) FROM record INDEXED BY record_ready WHERE project = :project_id AND pool IS NOT NULL
    UNION ALL
    SELECT (SELECT min(pool) FROM record INDEXED BY record_ready WHERE project = :project_id AND pool > step.pool)
    FROM step WHERE step.pool IS NOT NULL
)
SELECT :project, r.name, r.version, r.digest, r.body, pool.name, r.ord, r.id
FROM step CROSS JOIN pool CROSS JOIN record AS r
WHERE pool.id = step.pool AND (pool.name NOT GLOB '~*' OR pool.name IN ('~', '~' || :kind)) AND r.id IN (
    SELECT head.id FROM record AS head INDEXED BY record_ready
    WHERE head.project = :project_id AND head.pool = step.pool
        AND head.kind = :kind AND (:state IS NULL OR head.state = :state)
    ORDER BY head.ord, head.id LIMIT :heads
)
ORDER BY r.ord, r.id;

-- name: find_due
SELECT :project, r.name, r.version, r.digest, r.body, pool.name, r.ord, r.id, r.due_at
FROM record AS r INDEXED BY record_due LEFT JOIN pool ON pool.id = r.pool
WHERE r.project = :project_id AND r.due_at <= :due_before AND (r.due_at, r.id) > (:last_due, :last_id)
    AND r.kind = :kind AND (:state IS NULL OR r.state = :state)
ORDER BY r.due_at, r.id LIMIT :limit;

-- name: find_session
SELECT p.project, r.name, r.version, r.digest, r.body, pool.name, r.ord, r.id
FROM record AS r INDEXED BY record_session CROSS JOIN project AS p LEFT JOIN pool ON pool.id = r.pool
WHERE r.session = :session_id AND p.id = r.project AND (:project IS NULL OR p.project = :project)
    AND (:last_project IS NULL OR (p.project, r.name) > (:last_project, :last_name))
    AND r.kind = :kind AND (:state IS NULL OR r.state = :state)
ORDER BY p.project, r.name LIMIT :limit;

-- name: find_parent
SELECT :project, r.name, r.version, r.digest, r.body, pool.name, r.ord, r.id
FROM record AS r INDEXED BY record_parent LEFT JOIN pool ON pool.id = r.pool
WHERE r.project = :project_id AND r.parent = :parent AND r.name >= :from_name AND r.name IS NOT :last_name
    AND r.kind = :kind AND (:state IS NULL OR r.state = :state)
ORDER BY r.name LIMIT :limit;

-- name: find_waits
SELECT :project, r.name, r.version, r.digest, r.body, pool.name, r.ord, r.id
FROM record AS r LEFT JOIN pool ON pool.id = r.pool
WHERE r.id IN (
        SELECT w.record FROM json_each(:waits_on) AS d CROSS JOIN waits AS w ON w.project = :project_id AND w.dependency = d.value)
    AND r.name >= :from_name AND r.name IS NOT :last_name
    AND r.kind = :kind AND (:state IS NULL OR r.state = :state)
ORDER BY r.name LIMIT :limit;


-- Counting: a count_by_… with one of the among_… in it. The count by number comes before the one by name, as names are long.

-- name: count_by_state
SELECT r.state, count(*) FROM {among}
WHERE p.tenant = :tenant AND (:project IS NULL OR p.project = :project) AND r.kind = :kind AND (:state IS NULL OR r.state = :state)
GROUP BY r.state;

-- name: count_by_project
SELECT p.project, count(*) FROM {among}
WHERE p.tenant = :tenant AND (:project IS NULL OR p.project = :project) AND r.kind = :kind AND (:state IS NULL OR r.state = :state)
GROUP BY p.project;

-- name: count_by_pool
SELECT pool.name, sum(count) FROM (
    SELECT r.pool AS number, count(*) AS count FROM {among}
    WHERE p.tenant = :tenant AND (:project IS NULL OR p.project = :project) AND r.kind = :kind AND (:state IS NULL OR r.state = :state)
        AND r.pool IS NOT NULL
    GROUP BY r.pool
) JOIN pool ON pool.id = number
GROUP BY pool.name;

-- name: count_by_session
SELECT session.name, sum(count) FROM (
    SELECT r.session AS number, count(*) AS count FROM {among}
    WHERE p.tenant = :tenant AND (:project IS NULL OR p.project = :project) AND r.kind = :kind AND (:state IS NULL OR r.state = :state)
        AND r.session IS NOT NULL
    GROUP BY r.session
) JOIN session ON session.id = number
GROUP BY session.name;

-- name: among_all
project AS p CROSS JOIN record AS r ON r.project = p.id;

-- name: among_offered
project AS p CROSS JOIN record AS r INDEXED BY record_ready ON r.project = p.id AND r.pool IS NOT NULL;

-- name: among_claimed
record AS r INDEXED BY record_session CROSS JOIN project AS p ON p.id = r.project AND r.session IS NOT NULL;

-- name: among_pool
project AS p CROSS JOIN record AS r INDEXED BY record_ready
ON r.project = p.id AND r.pool = (SELECT pool.id FROM pool WHERE pool.project = p.id AND pool.name = :pool);

-- name: among_due
project AS p CROSS JOIN record AS r INDEXED BY record_due ON r.project = p.id AND r.due_at <= :due_before;

-- name: among_session
record AS r INDEXED BY record_session CROSS JOIN project AS p
ON p.id = r.project AND r.session = (SELECT session.id FROM session WHERE session.tenant = :tenant AND session.name = :session);

-- name: among_parent
project AS p CROSS JOIN record AS r INDEXED BY record_parent ON r.project = p.id AND r.parent = :parent;

-- name: among_waits
project AS p CROSS JOIN record AS r ON r.project = p.id AND r.id IN (
    SELECT w.record FROM json_each(:waits_on) AS d CROSS JOIN waits AS w ON w.project = p.id AND w.dependency = d.value);
