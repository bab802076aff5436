--
-- zk_lock_queue() shows the holder of a lock, and what is known of it. Waiters and other
-- clients are in the isolation tests, t/400 and t/410.
--

-- Nobody has ever used it.
SELECT * FROM zk_lock_queue('queue/unknown');
SELECT count(*) FROM zk_lock_queue('queue/unknown/deeper');

SET application_name = E'regress "queue" \\1';
SELECT zk_lock('queue/own') AS token \gset
\x on
SELECT "position", state, mode, style, client, application_name,
	datname = current_database() AS datname_ok, usename = session_user AS usename_ok,
	node LIKE '\_c\_%-lock-__________' AS node_ok,
	session_id = (SELECT session_id FROM zk_session) AS session_ok,
	cluster IS NOT DISTINCT FROM nullif(current_setting('cluster_name'), '') AS cluster_ok,
	pid = pg_backend_pid() AS pid_ok,
	host <> '' AS has_host,
	since BETWEEN now() - interval '1 minute' AND clock_timestamp() + interval '1 second' AS since_ok,
	token = :token AS token_ok,
	data
FROM zk_lock_queue('queue/own');
\x off
-- The same node as in zk_session_locks, where it stands with its path
SELECT l.node LIKE '%/queue/own/' || replace(q.node, '_', '\_') AS same_node
FROM zk_lock_queue('queue/own') q, zk_session_locks l;
SELECT zk_unlock('queue/own');
-- The queue is empty, but its znode may still be there.
SELECT * FROM zk_lock_queue('queue/own');

-- Shared
BEGIN;
SELECT zk_xact_lock_shared('queue/own') > 0 AS token;
SELECT "position", state, mode, style, node LIKE '\_c\_%-shared-lock-__________' AS node_ok
FROM zk_lock_queue('queue/own');
ROLLBACK;
SELECT * FROM zk_lock_queue('queue/own');

-- The name published is that of the session's user: a function with SECURITY
-- DEFINER or SET ROLE does not hide who is behind a lock.
CREATE ROLE regress_zklock_queue;
SET ROLE regress_zklock_queue;
SELECT zk_lock('queue/own') > 0 AS token;
RESET ROLE;
SELECT usename = session_user AS is_session_user FROM zk_lock_queue('queue/own');
SELECT zk_unlock('queue/own');
DROP ROLE regress_zklock_queue;

-- Without identity only the kind of client is told, and it holds no less.
SET zklock.publish_identity = off;
SELECT zk_lock('queue/own') > 0 AS token;
\x on
SELECT "position", state, mode, style, client, cluster, datname, usename,
	application_name, pid, host, since IS NOT NULL AS has_since, token > 0 AS has_token, data,
	session_id = (SELECT session_id FROM zk_session) AS session_ok
FROM zk_lock_queue('queue/own');
\x off
SELECT zk_unlock('queue/own');
RESET zklock.publish_identity;
RESET application_name;

-- Looking neither takes a lock nor makes a znode.
SELECT * FROM zk_session_locks;
SELECT zk_lock_queue('queue//bad');
