-- Every statement of the store, by name. queries.py loads them once for each prefix. Values are written :so.
--
-- Statements are plain enough for MySQL and MariaDB alike: no RETURNING, no LATERAL, no lists of columns after a derived table.
-- Where the server could choose a bad way while a table is small, and keep to it, STRAIGHT_JOIN and FORCE INDEX leave it no choice.


-- Opening.

-- name: look
-- Is there a store of ours, or something else in its place? Two statements: inside the second, MariaDB's read_only is always off.
SELECT @@read_only, @@innodb_flush_log_at_trx_commit = 1 AND (@@log_bin = 0 OR @@sync_binlog = 1), @@version, @@max_allowed_packet;
SELECT COALESCE(SUM(table_name = :meta), 0), COUNT(*) FROM information_schema.tables
WHERE table_schema = DATABASE() AND table_name IN :tables;

-- name: format
SELECT format, made_by FROM genlock_meta;

-- name: lock_opening
SELECT GET_LOCK(:name, :seconds);

-- name: unlock_opening
SELECT RELEASE_LOCK(:name);

-- name: migrations
SELECT number, name, applied_at, applied_by FROM genlock_migration ORDER BY number;

-- name: note_migration
INSERT IGNORE INTO genlock_migration (number, name, applied_at, applied_by)
VALUES (:number, :name, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), :version);

-- name: set_format
INSERT INTO genlock_meta (one, format, made_by, birth, epoch) VALUES (1, :format, :version, :birth, 0)
ON DUPLICATE KEY UPDATE format = VALUES(format), made_by = VALUES(made_by);


-- Reading records.

-- name: load
-- First the epoch and the time in microseconds. What follows, a load_shelf each, is of the same instant.
SELECT 0, epoch, TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6)), '', '' FROM genlock_meta;

-- name: load_shelf
SELECT :shelf, r.name, r.version, r.digest, r.body
FROM genlock_project AS p STRAIGHT_JOIN genlock_record AS r FORCE INDEX (PRIMARY)
ON r.project = p.id AND r.kind = :kind AND r.name IN :names
WHERE p.tenant = :tenant AND p.project = :project;

-- name: load_index
SELECT r.version, r.digest, r.body, r.state, pool.name, r.ord, r.due_at, session.name, r.parent, r.waits
FROM genlock_project AS p STRAIGHT_JOIN genlock_record AS r FORCE INDEX (PRIMARY) ON r.project = p.id
LEFT JOIN genlock_pool AS pool ON pool.id = r.pool AND pool.project = r.project
LEFT JOIN genlock_session AS session ON session.id = r.session AND session.tenant = p.tenant
WHERE p.tenant = :tenant AND p.project = :project AND r.kind = :kind AND r.name = :name;

-- name: load_waits
SELECT w.dependency FROM genlock_project AS p STRAIGHT_JOIN genlock_waits AS w FORCE INDEX (waits_record) ON w.project = p.id
WHERE p.tenant = :tenant AND p.project = :project AND w.kind = :kind AND w.name = :name;


-- Auditing: what nobody meets who goes by project and name.

-- name: all_places
SELECT p.tenant, p.project FROM genlock_project AS p
WHERE EXISTS (SELECT 1 FROM genlock_record AS r WHERE r.project = p.id) OR EXISTS (
    SELECT 1 FROM genlock_event AS e WHERE e.at > p.id * 1099511627776 AND e.at < (p.id + 1) * 1099511627776)
ORDER BY p.id;

-- name: audit
SELECT CONCAT(r.kind, ' ', r.name, ' belongs to project ', r.project, ', which is not there')
FROM genlock_record AS r LEFT JOIN genlock_project AS p ON p.id = r.project WHERE p.id IS NULL
UNION ALL
SELECT CONCAT('the event at position ', e.at % 1099511627776, ' belongs to project ', e.at DIV 1099511627776, ', which is not there')
FROM genlock_event AS e LEFT JOIN genlock_project AS p ON p.id = e.at DIV 1099511627776 AND p.id = e.project WHERE p.id IS NULL;

-- name: audit_waits
SELECT p.tenant, p.project, w.kind, w.name, w.dependency, r.waits
FROM genlock_waits AS w LEFT JOIN genlock_project AS p ON p.id = w.project
LEFT JOIN genlock_record AS r ON r.project = w.project AND r.kind = w.kind AND r.name = w.name;


-- Writing. A commit is one packet of these; see commit.py, and ADR 13.

-- name: number_place
-- A name that has no number yet stops the packet: a subquery may have one row only. Then it is given one, outside of the commit.
@p:at = IFNULL((SELECT id FROM genlock_project WHERE tenant = :tenant AND project = :project), (SELECT 1 UNION SELECT 2));

-- name: number_pool
@o:at = IFNULL((SELECT o.id FROM genlock_project AS p STRAIGHT_JOIN genlock_pool AS o ON o.project = p.id AND o.name = :name
    WHERE p.tenant = :tenant AND p.project = :project), (SELECT 1 UNION SELECT 2));

-- name: number_session
@s:at = IFNULL((SELECT id FROM genlock_session WHERE tenant = :tenant AND name = :name), (SELECT 1 UNION SELECT 2));

-- name: add_place
-- Only what is missing is inserted: to find out by a duplicate would use up a number, and wait for whoever has the turn.
INSERT INTO genlock_project (tenant, project) SELECT :tenant, :project FROM DUAL
WHERE NOT EXISTS (SELECT 1 FROM genlock_project AS q WHERE q.tenant = :tenant AND q.project = :project)
ON DUPLICATE KEY UPDATE tenant = VALUES(tenant);

-- name: add_pool
INSERT INTO genlock_pool (project, name) SELECT p.id, :name FROM genlock_project AS p
WHERE p.tenant = :tenant AND p.project = :project
    AND NOT EXISTS (SELECT 1 FROM genlock_pool AS o WHERE o.project = p.id AND o.name = :name)
ON DUPLICATE KEY UPDATE name = VALUES(name);

-- name: add_session
INSERT INTO genlock_session (tenant, name) SELECT :tenant, :name FROM DUAL
WHERE NOT EXISTS (SELECT 1 FROM genlock_session AS s WHERE s.tenant = :tenant AND s.name = :name)
ON DUPLICATE KEY UPDATE name = VALUES(name);

-- name: write
-- Locks and writes in one go. The assignments are made from left to right: the first decides whether the change fits, and stamps the
-- record if so; the others look at the stamp. A record that is stamped counts as two rows, one that is created as one, and one that
-- does not fit as none. An update of what is not there creates it, and so counts too little: then all is rolled back. Nor does a
-- change fit that says nothing of what the record waits on, while it does wait: whoever means that has to say '[]'.
INSERT INTO genlock_record
    (project, kind, name, version, digest, stamp, read_version, read_digest, state, pool, ord, due_at, session, parent, waits, body)
VALUES :rows
ON DUPLICATE KEY UPDATE
    stamp = IF(version = VALUES(read_version) AND digest = VALUES(read_digest)
            AND (VALUES(waits) IS NOT NULL OR waits IS NULL OR waits = '[]'),
        IF(waits <=> VALUES(waits), :stamp, :stamp + 1), stamp),
    version = IF(stamp IN (:stamp, :stamp + 1), VALUES(version), version),
    digest = IF(stamp IN (:stamp, :stamp + 1), VALUES(digest), digest),
    state = IF(stamp IN (:stamp, :stamp + 1), VALUES(state), state),
    pool = IF(stamp IN (:stamp, :stamp + 1), VALUES(pool), pool),
    ord = IF(stamp IN (:stamp, :stamp + 1), VALUES(ord), ord),
    due_at = IF(stamp IN (:stamp, :stamp + 1), VALUES(due_at), due_at),
    session = IF(stamp IN (:stamp, :stamp + 1), VALUES(session), session),
    parent = IF(stamp IN (:stamp, :stamp + 1), VALUES(parent), parent),
    waits = IF(stamp IN (:stamp, :stamp + 1), VALUES(waits), waits),
    body = IF(stamp IN (:stamp, :stamp + 1), VALUES(body), body);

-- name: stop_unless
-- Ends the packet unless all changes fitted.
SET @fit = IF(ROW_COUNT() = :count, 1, (SELECT 1 UNION SELECT 2));

-- name: written
-- Which of them did; one of these for each shelf. Asked in the transaction that is about to be rolled back.
SELECT :shelf, r.name, r.stamp IN (:stamp, :stamp + 1), r.version, r.digest
FROM genlock_record AS r FORCE INDEX (PRIMARY) WHERE r.project = @p:place AND r.kind = :kind AND r.name IN :names;

-- name: clear_waits
DELETE w FROM genlock_record AS r FORCE INDEX (PRIMARY) STRAIGHT_JOIN genlock_waits AS w FORCE INDEX (waits_record)
ON w.project = r.project AND w.kind = r.kind AND w.name = r.name
WHERE r.project = @p:place AND r.kind = :kind AND r.name IN :names AND r.stamp = :stamp + 1;

-- name: add_waits
INSERT INTO genlock_waits (project, dependency, kind, name) VALUES :rows ON DUPLICATE KEY UPDATE project = VALUES(project);

-- name: take_turn
-- The turn: whoever comes next waits here until we have committed. The driver is told the new head as the number inserted last.
UPDATE genlock_project SET head = LAST_INSERT_ID(head + :count) WHERE id = @p:place;

-- name: remember_turn
SET @a:place = @p:place * 1099511627776 + LAST_INSERT_ID() - :count;

-- name: add_events
INSERT INTO genlock_event (at, project, kind, name, version, digest, body) VALUES :rows;

-- name: purge
-- One who comes late, when more has been purged already, changes nothing. The record first, then the turn, as in a commit.
SET @p = (SELECT id FROM genlock_project WHERE tenant = :tenant AND project = :project);
START TRANSACTION;
SELECT version FROM genlock_record WHERE project = @p AND kind = :kind AND name = :name FOR UPDATE;
SET @last = (SELECT MAX(at) FROM genlock_event FORCE INDEX (event_record)
    WHERE project = @p AND kind = :kind AND name = :name AND version < :before);
UPDATE genlock_record SET base = :base WHERE project = @p AND kind = :kind AND name = :name AND @last IS NOT NULL;
UPDATE genlock_project SET purged_to = GREATEST(purged_to, @last % 1099511627776), purges = purges + 1
WHERE id = @p AND @last IS NOT NULL;
DELETE FROM genlock_event WHERE project = @p AND kind = :kind AND name = :name AND version < :before;
COMMIT;

-- name: raise_epoch
UPDATE genlock_meta SET epoch = :epoch WHERE epoch < :epoch;


-- Which server this is; see open.py.

-- name: look_at_server
-- Two lists that have what there is: to ask for a variable that a server does not have is an error.
SHOW GLOBAL VARIABLES WHERE Variable_name IN ('read_only', 'server_uuid', 'server_id', 'wsrep_on', 'group_replication_group_name');
SHOW GLOBAL STATUS WHERE Variable_name = 'wsrep_cluster_state_uuid';
SELECT s.mark, m.epoch, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) FROM genlock_server AS s, genlock_meta AS m;

-- name: stop_elsewhere
-- Ends the packet if the store was written to on another server since this connection asked.
SET @here = IF((SELECT mark FROM genlock_server) = :mark, 1, (SELECT 1 UNION SELECT 2));

-- name: lock_server
START TRANSACTION;
SELECT mark FROM genlock_server FOR UPDATE;

-- name: set_server
UPDATE genlock_server SET mark = :mark, since = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));

-- name: begin_epoch
UPDATE genlock_meta SET epoch = GREATEST(epoch + 1, :number);

-- name: unlock_server
COMMIT;
SELECT epoch FROM genlock_meta;


-- Events. Each answer begins with a row of the feed's state, so that state and events are of one instant.

-- name: feed_state
SELECT m.birth, m.epoch, COALESCE(p.head, 0), COALESCE(p.purged_to, 0), COALESCE(p.purges, 0)
FROM genlock_meta AS m LEFT JOIN genlock_project AS p ON p.tenant = :tenant AND p.project = :project;

-- name: read_feed
(SELECT m.epoch, '', '', COALESCE(p.head, 0), m.birth, '', COALESCE(p.purged_to, 0), COALESCE(p.purges, 0)
FROM genlock_meta AS m LEFT JOIN genlock_project AS p ON p.tenant = :tenant AND p.project = :project)
UNION ALL
(SELECT e.at % 1099511627776, e.kind, e.name, e.version, e.digest, e.body, 0, 0
FROM genlock_project AS p STRAIGHT_JOIN genlock_event AS e FORCE INDEX (PRIMARY)
ON e.at > p.id * 1099511627776 + :position AND e.at < (p.id + 1) * 1099511627776
WHERE p.tenant = :tenant AND p.project = :project
ORDER BY e.at LIMIT :most);

-- name: read_record
(SELECT m.epoch, COALESCE(p.head, 0), m.birth, r.base, COALESCE(p.purged_to, 0), COALESCE(p.purges, 0)
FROM genlock_meta AS m LEFT JOIN genlock_project AS p ON p.tenant = :tenant AND p.project = :project
LEFT JOIN genlock_record AS r ON r.project = p.id AND r.kind = :kind AND r.name = :name)
UNION ALL
(SELECT e.at % 1099511627776, e.version, e.digest, e.body, 0, 0
FROM genlock_project AS p STRAIGHT_JOIN genlock_event AS e FORCE INDEX (event_record)
ON e.project = p.id AND e.kind = :kind AND e.name = :name AND e.version > :after
WHERE p.tenant = :tenant AND p.project = :project
ORDER BY e.version LIMIT :most);

-- name: heads
-- Where these feeds are now: one heads_of each.
SELECT -1, m.epoch, m.birth FROM genlock_meta AS m;

-- name: head_of
SELECT :at, p.head, '' FROM genlock_project AS p WHERE p.tenant = :tenant AND p.project = :project;


-- Finding. Each gives: project, id, version, digest, body, pool, order, and what else its pages are continued by.

-- name: find_all
-- The names first: what is sorted should be short.
SELECT p.project, r.name, r.version, r.digest, r.body, pool.name, r.ord, r.name
FROM (
    SELECT p.id, r.name FROM genlock_project AS p STRAIGHT_JOIN genlock_record AS r FORCE INDEX (PRIMARY) ON r.project = p.id
    WHERE p.tenant = :tenant AND r.kind = :kind AND (:state IS NULL OR r.state = :state)
        AND (:after_project IS NULL OR p.project > :after_project OR p.project = :after_project AND r.name > :after)
    ORDER BY p.project, r.name LIMIT :most
) AS k STRAIGHT_JOIN genlock_project AS p ON p.id = k.id
STRAIGHT_JOIN genlock_record AS r ON r.project = k.id AND r.kind = :kind AND r.name = k.name
LEFT JOIN genlock_pool AS pool ON pool.id = r.pool
ORDER BY p.project, r.name;

-- name: find_one
-- The same for one project, so that the table is walked from where the page before ended.
SELECT p.project, r.name, r.version, r.digest, r.body, pool.name, r.ord, r.name
FROM genlock_project AS p STRAIGHT_JOIN genlock_record AS r FORCE INDEX (PRIMARY) ON r.project = p.id
LEFT JOIN genlock_pool AS pool ON pool.id = r.pool
WHERE p.tenant = :tenant AND p.project = :project AND r.kind = :kind AND r.name >= COALESCE(:after, '') AND NOT r.name <=> :after
    AND (:state IS NULL OR r.state = :state)
ORDER BY r.name LIMIT :most;

-- name: find_pool
-- The first page, and those after a record without an order: they come first. Project and pool are no joins: MariaDB would sort the pool.
SELECT :project, r.name, r.version, r.digest, r.body, :pool, r.ord, r.name, r.ord FROM genlock_record AS r FORCE INDEX (record_ready)
WHERE r.project = (SELECT p.id FROM genlock_project AS p WHERE p.tenant = :tenant AND p.project = :project)
    AND r.pool = (SELECT o.id FROM genlock_project AS p STRAIGHT_JOIN genlock_pool AS o ON o.project = p.id AND o.name = :pool
        WHERE p.tenant = :tenant AND p.project = :project)
    AND (:after IS NULL OR r.ord IS NOT NULL OR r.name > :after)
    AND r.kind = :kind AND (:state IS NULL OR r.state = :state)
ORDER BY r.ord, r.kind, r.name LIMIT :most;

-- name: find_pool_after
SELECT :project, r.name, r.version, r.digest, r.body, :pool, r.ord, r.name, r.ord FROM genlock_record AS r FORCE INDEX (record_ready)
WHERE r.project = (SELECT p.id FROM genlock_project AS p WHERE p.tenant = :tenant AND p.project = :project)
    AND r.pool = (SELECT o.id FROM genlock_project AS p STRAIGHT_JOIN genlock_pool AS o ON o.project = p.id AND o.name = :pool
        WHERE p.tenant = :tenant AND p.project = :project)
    AND r.ord >= :ord AND (r.ord > :ord OR r.name > :after)
    AND r.kind = :kind AND (:state IS NULL OR r.state = :state)
ORDER BY r.ord, r.kind, r.name LIMIT :most;

-- name: offered_pools
-- One look for each pool that there ever was: the records in it are not walked. (Not EXISTS: that might be made a join.)
-- A pool "~kind" has records of that kind only (KIND_POOL in core/index.py): those of another kind need not be walked.
SELECT o.id FROM genlock_project AS p STRAIGHT_JOIN genlock_pool AS o ON o.project = p.id
WHERE p.tenant = :tenant AND p.project = :project AND (o.name NOT LIKE '~%' OR o.name IN ('~', CONCAT('~', :kind)))
    AND (SELECT 1 FROM genlock_record AS r FORCE INDEX (record_ready) WHERE r.project = o.project AND r.pool = o.id LIMIT 1) = 1;

-- name: find_head
-- The first of one pool, by its number.
(SELECT :project, r.name, r.version, r.digest, r.body, pool.name, r.ord, r.name
FROM genlock_pool AS pool STRAIGHT_JOIN genlock_record AS r FORCE INDEX (record_ready) ON r.project = pool.project AND r.pool = pool.id
WHERE pool.id = :pool AND r.kind = :kind AND (:state IS NULL OR r.state = :state)
ORDER BY r.ord, r.kind, r.name LIMIT :most);

-- name: find_due
SELECT p.project, r.name, r.version, r.digest, r.body, pool.name, r.ord, r.name, r.due_at
FROM genlock_project AS p STRAIGHT_JOIN genlock_record AS r FORCE INDEX (record_due) ON r.project = p.id
LEFT JOIN genlock_pool AS pool ON pool.id = r.pool
WHERE p.tenant = :tenant AND p.project = :project AND r.due_at >= :after_due AND r.due_at <= :due
    AND (r.due_at > :after_due OR r.name > :after) AND r.kind = :kind AND (:state IS NULL OR r.state = :state)
ORDER BY r.due_at, r.kind, r.name LIMIT :most;

-- name: find_session
SELECT p.project, r.name, r.version, r.digest, r.body, pool.name, r.ord, r.name
FROM genlock_session AS s STRAIGHT_JOIN genlock_record AS r FORCE INDEX (record_session) ON r.session = s.id
STRAIGHT_JOIN genlock_project AS p ON p.id = r.project
LEFT JOIN genlock_pool AS pool ON pool.id = r.pool
WHERE s.tenant = :tenant AND s.name = :session AND (:project IS NULL OR p.project = :project)
    AND (:after_project IS NULL OR p.project > :after_project OR p.project = :after_project AND r.name > :after)
    AND r.kind = :kind AND (:state IS NULL OR r.state = :state)
ORDER BY p.project, r.name LIMIT :most;

-- name: find_parent
SELECT p.project, r.name, r.version, r.digest, r.body, pool.name, r.ord, r.name
FROM genlock_project AS p STRAIGHT_JOIN genlock_record AS r FORCE INDEX (record_parent) ON r.project = p.id AND r.parent = :parent
LEFT JOIN genlock_pool AS pool ON pool.id = r.pool
WHERE p.tenant = :tenant AND p.project = :project AND (:after IS NULL OR r.name > :after)
    AND r.kind = :kind AND (:state IS NULL OR r.state = :state)
ORDER BY r.name LIMIT :most;

-- name: find_waits
SELECT p.project, r.name, r.version, r.digest, r.body, pool.name, r.ord, r.name
FROM (
    SELECT DISTINCT w.project, w.name FROM genlock_project AS p STRAIGHT_JOIN genlock_waits AS w FORCE INDEX (PRIMARY)
    ON w.project = p.id AND w.dependency IN :waits_on
    WHERE p.tenant = :tenant AND p.project = :project AND w.kind = :kind AND (:after IS NULL OR w.name > :after)
) AS w STRAIGHT_JOIN genlock_record AS r FORCE INDEX (PRIMARY) ON r.project = w.project AND r.kind = :kind AND r.name = w.name
STRAIGHT_JOIN genlock_project AS p ON p.id = w.project
LEFT JOIN genlock_pool AS pool ON pool.id = r.pool
WHERE :state IS NULL OR r.state = :state
ORDER BY r.name LIMIT :most;


-- Counting: a count_by_… with one of the among_… in it. The count by number comes before the one by name, as names are long.

-- name: count_by_state
SELECT r.state, COUNT(*) FROM :among
WHERE p.tenant = :tenant AND (:project IS NULL OR p.project = :project) AND r.kind = :kind AND (:state IS NULL OR r.state = :state)
GROUP BY r.state;

-- name: count_by_project
SELECT p.project, COUNT(*) FROM :among
WHERE p.tenant = :tenant AND (:project IS NULL OR p.project = :project) AND r.kind = :kind AND (:state IS NULL OR r.state = :state)
GROUP BY p.project;

-- name: count_by_pool
SELECT pool.name, CAST(SUM(c.records) AS SIGNED) FROM (
    SELECT r.pool AS number, COUNT(*) AS records FROM :among
    WHERE p.tenant = :tenant AND (:project IS NULL OR p.project = :project) AND r.kind = :kind
        AND (:state IS NULL OR r.state = :state) AND r.pool IS NOT NULL
    GROUP BY r.pool
) AS c JOIN genlock_pool AS pool ON pool.id = c.number
GROUP BY pool.name;

-- name: count_by_session
SELECT session.name, CAST(SUM(c.records) AS SIGNED) FROM (
    SELECT r.session AS number, COUNT(*) AS records FROM :among
    WHERE p.tenant = :tenant AND (:project IS NULL OR p.project = :project) AND r.kind = :kind
        AND (:state IS NULL OR r.state = :state) AND r.session IS NOT NULL
    GROUP BY r.session
) AS c JOIN genlock_session AS session ON session.id = c.number
GROUP BY session.name;

-- name: among_all
genlock_project AS p STRAIGHT_JOIN genlock_record AS r FORCE INDEX (PRIMARY) ON r.project = p.id;

-- name: among_offered
genlock_project AS p STRAIGHT_JOIN genlock_record AS r FORCE INDEX (record_ready) ON r.project = p.id AND r.pool IS NOT NULL;

-- name: among_claimed
genlock_project AS p STRAIGHT_JOIN genlock_record AS r FORCE INDEX (PRIMARY) ON r.project = p.id AND r.session IS NOT NULL;

-- name: among_pool
genlock_project AS p STRAIGHT_JOIN genlock_pool AS o ON o.project = p.id AND o.name = :value
STRAIGHT_JOIN genlock_record AS r FORCE INDEX (record_ready) ON r.project = p.id AND r.pool = o.id;

-- name: among_due
genlock_project AS p STRAIGHT_JOIN genlock_record AS r FORCE INDEX (record_due) ON r.project = p.id AND r.due_at <= :value;

-- name: among_session
genlock_session AS s STRAIGHT_JOIN genlock_record AS r FORCE INDEX (record_session)
ON s.tenant = :tenant AND s.name = :value AND r.session = s.id STRAIGHT_JOIN genlock_project AS p ON p.id = r.project;

-- name: among_parent
genlock_project AS p STRAIGHT_JOIN genlock_record AS r FORCE INDEX (record_parent) ON r.project = p.id AND r.parent = :value;

-- name: among_waits
genlock_project AS p STRAIGHT_JOIN (
    SELECT DISTINCT w.project, w.kind, w.name FROM genlock_waits AS w WHERE w.dependency IN :value
    AND w.project = (SELECT q.id FROM genlock_project AS q WHERE q.tenant = :tenant AND q.project = :project)
) AS w ON w.project = p.id STRAIGHT_JOIN genlock_record AS r ON r.project = w.project AND r.kind = w.kind AND r.name = w.name;


-- Payloads.

-- name: add_payload
INSERT INTO genlock_payload (name, size) VALUES (:name, :size) ON DUPLICATE KEY UPDATE name = VALUES(name);

-- name: add_pieces
INSERT INTO genlock_piece (payload, number, data) VALUES :rows;

-- name: find_payload
SELECT id, size FROM genlock_payload WHERE name = :name;

-- name: payload_names
SELECT name FROM genlock_payload;

-- name: read_piece
SELECT data FROM genlock_piece WHERE payload = :payload AND number = :number;

-- name: drop_payload
DELETE payload, piece FROM genlock_payload AS payload LEFT JOIN genlock_piece AS piece ON piece.payload = payload.id
WHERE payload.name = :name;
