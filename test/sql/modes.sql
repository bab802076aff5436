--
-- A session can hold a lock in exclusive and in shared mode, change from one to the
-- other as far as that is safe, and is told why where it is not.
--

-- Everything that stands in a lock's queue, as the ensemble knows it. What this
-- session released before is already gone from it: requests keep their order.
CREATE FUNCTION pg_temp.queue(name text) RETURNS text
LANGUAGE sql AS $$
	SELECT coalesce(string_agg(mode || ' ' || state, ', ' ORDER BY "position"), 'empty')
	FROM zk_lock_queue(name)
$$;

-- Nothing is held at first, and asking does not need a connection.
SELECT zk_fencing_token('modes') IS NULL AS no_token, zk_is_held('modes');
SELECT * FROM zk_session_locks;
SELECT state, server, session_id, session_timeout_ms, pending_requests,
	client_version ~ '^\d+\.\d+\.\d+$' AS has_version
FROM zk_session;

-- Exclusive
SELECT zk_lock('modes') AS token1 \gset
SELECT :token1 > 0 AS positive, zk_fencing_token('modes') = :token1 AS same_token,
	zk_is_held('modes');
SELECT name, mode, state, session_acquisitions, xact_acquisitions, token = :token1 AS same_token,
	node LIKE '/%/modes/\_c\_%-lock-__________' AS node_ok,
	granted_at BETWEEN now() - interval '1 minute' AND clock_timestamp() AS granted_at_ok
FROM zk_session_locks;
SELECT pg_temp.queue('modes');
-- A connected session
SELECT state, server ~ '^\S+:\d+$' AS has_server,
	session_id ~ '^0x[0-9a-f]+$' AS has_id, session_timeout_ms > 0 AS has_timeout,
	pending_requests
FROM zk_session;
SELECT zk_unlock('modes');
SELECT zk_fencing_token('modes') IS NULL AS no_token, zk_is_held('modes'),
	pg_temp.queue('modes');

-- Tokens rise with every grant, in either mode, with the queue empty in between
SELECT zk_lock('modes') AS token2, zk_unlock('modes') \gset
SELECT zk_lock_shared('modes') AS token3, zk_unlock_shared('modes') \gset
SELECT zk_lock('modes') AS token4, zk_unlock('modes') \gset
SELECT :token1 < :token2 AND :token2 < :token3 AND :token3 < :token4 AS rise;

-- Shared
SELECT zk_lock_shared('modes') AS token1 \gset
SELECT name, mode, session_acquisitions, xact_acquisitions, token = :token1 AS same_token,
	node LIKE '/%/modes/\_c\_%-shared-lock-__________' AS node_ok
FROM zk_session_locks;
SELECT pg_temp.queue('modes');
-- One mode is not released with the function of the other.
SELECT zk_unlock('modes');
SELECT zk_unlock_shared('modes');
SELECT zk_lock('modes') > 0 AS locked;
SELECT zk_unlock_shared('modes');
SELECT zk_unlock('modes');

-- Both modes: shared while exclusive is held is granted at once, on the same
-- node, with the same token ...
SELECT zk_lock('modes') AS token1 \gset
SELECT zk_lock_shared('modes') = :token1 AS same_token;
SELECT mode, session_acquisitions, token = :token1 AS same_token,
	count(*) OVER (PARTITION BY node) AS modes_on_node
FROM zk_session_locks ORDER BY mode;
SELECT pg_temp.queue('modes');
-- ... and the node stays exclusive when the exclusive acquisition is released.
SELECT zk_unlock('modes');
SELECT zk_is_held('modes'), zk_fencing_token('modes') = :token1 AS same_token;
SELECT mode, session_acquisitions, state, token = :token1 AS same_token,
	node LIKE '%-lock-__________' AND node NOT LIKE '%-shared-lock-%' AS node_ok
FROM zk_session_locks ORDER BY mode;
SELECT mode, state, token = :token1 AS same_token FROM zk_lock_queue('modes');
-- There is no exclusive acquisition to be released twice, but one can be taken
-- again: that is no upgrade.
SELECT zk_unlock('modes');
SELECT zk_lock('modes') = :token1 AS same_token, zk_unlock('modes');
SELECT zk_unlock_shared('modes');
SELECT pg_temp.queue('modes');

-- Shared released first: nothing happens to the exclusive hold.
SELECT zk_lock('modes') = zk_lock_shared('modes') AS same_token;
SELECT zk_unlock_shared('modes');
SELECT zk_is_held('modes'), pg_temp.queue('modes');
SELECT zk_unlock('modes');
SELECT pg_temp.queue('modes');

-- Both released at once
SELECT zk_lock('modes') = zk_lock_shared('modes') AS same_token;
SELECT zk_unlock_all();
SELECT pg_temp.queue('modes');
SELECT * FROM zk_session_locks;

-- While both are held, exclusive can be counted further.
SELECT zk_lock('modes') = zk_lock_shared('modes') AS same_token;
SELECT zk_lock('modes') = zk_fencing_token('modes') AS same_token;
SELECT mode, session_acquisitions FROM zk_session_locks ORDER BY mode;
SELECT zk_unlock('modes'), zk_unlock('modes'), zk_unlock_shared('modes');
SELECT pg_temp.queue('modes');

-- Taken and released in both modes, again and again: the session does not meet its
-- own leftovers.
SET client_min_messages = warning;
SELECT count(*) FILTER (WHERE zk_lock('modes') = zk_lock_shared('modes')
		AND zk_unlock('modes') AND zk_unlock_shared('modes')
		AND zk_try_lock('modes') AND zk_unlock('modes')) AS of_100
FROM generate_series(1, 100);
RESET client_min_messages;

-- Upgrade: refused at once, without harm to the shared hold
SELECT zk_lock_shared('modes') AS token1 \gset
SELECT zk_lock('modes');
\echo :SQLSTATE
SELECT zk_xact_lock('modes', '1 hour');
\echo :SQLSTATE
SELECT zk_try_lock('modes');
\echo :SQLSTATE
SELECT zk_try_xact_lock('modes');
\echo :SQLSTATE
SELECT zk_is_held('modes'), zk_fencing_token('modes') = :token1 AS same_token;
SELECT mode, session_acquisitions, xact_acquisitions FROM zk_session_locks;
SELECT zk_unlock_shared('modes');
SELECT pg_temp.queue('modes');

-- Both modes across scopes: exclusive to the end of the transaction, shared beyond
BEGIN;
SELECT zk_xact_lock('modes') AS token1 \gset
SELECT zk_lock_shared('modes') = :token1 AS same_token;
COMMIT;
SELECT mode, session_acquisitions, xact_acquisitions, token = :token1 AS same_token FROM zk_session_locks ORDER BY mode;
SELECT zk_is_held('modes'), pg_temp.queue('modes');
SELECT zk_unlock_shared('modes');
-- the same at ROLLBACK, which does not end acquisitions of session scope
BEGIN;
SELECT zk_xact_lock('modes') AS token1 \gset
SELECT zk_lock_shared('modes') = :token1 AS same_token;
ROLLBACK;
SELECT mode, session_acquisitions, xact_acquisitions, token = :token1 AS same_token FROM zk_session_locks ORDER BY mode;
SELECT zk_unlock_shared('modes');
-- exclusive for the session, shared for the transaction
SELECT zk_lock('modes') AS token1 \gset
BEGIN;
SELECT zk_xact_lock_shared('modes') = :token1 AS same_token;
SELECT zk_unlock('modes');
SELECT mode, session_acquisitions, xact_acquisitions, token = :token1 AS same_token FROM zk_session_locks ORDER BY mode;
SELECT zk_is_held('modes'), pg_temp.queue('modes');
COMMIT;
SELECT * FROM zk_session_locks;
SELECT pg_temp.queue('modes');

-- ROLLBACK TO: only the exclusive acquisition is younger than the savepoint, but
-- the shared one is on its node.
BEGIN;
SAVEPOINT a;
SELECT zk_xact_lock('modes') AS token1 \gset
SELECT zk_lock_shared('modes') = :token1 AS same_token;
ROLLBACK TO a;
SELECT mode, session_acquisitions, xact_acquisitions, token = :token1 AS same_token FROM zk_session_locks ORDER BY mode;
SELECT zk_is_held('modes'), pg_temp.queue('modes');
COMMIT;
SELECT zk_unlock_shared('modes');
SELECT pg_temp.queue('modes');

-- The proof at commit works when only the shared acquisition is left.
CREATE TEMP TABLE modes_written (i int);
SET zklock.commit_guard = 'quorum';
SELECT zk_lock('modes') = zk_lock_shared('modes') AS same_token;
BEGIN;
INSERT INTO modes_written VALUES (1);
SELECT zk_unlock('modes');
COMMIT;
SELECT zk_is_held('modes'), pg_temp.queue('modes');
SELECT zk_unlock_shared('modes');
RESET zklock.commit_guard;

-- What is kept was granted when it was
SET zklock.keep = '10min';
SELECT zk_lock('modes kept') > 0 AS granted, zk_unlock('modes kept');
SELECT state, granted_at BETWEEN now() - interval '1 minute' AND clock_timestamp() AS granted_at_ok
FROM zk_session_locks WHERE name = 'modes kept';
-- It is no reader's, nor a semaphore's.
SELECT zk_lock_shared('modes kept') > 0 AS token;
SELECT mode, state FROM zk_lock_queue('modes kept');
SELECT zk_unlock_shared('modes kept'), zk_lock('modes kept') > 0 AS token, zk_unlock('modes kept');
SELECT state FROM zk_session_locks;
SELECT zk_lock('modes kept', permits => 2) > 0 AS token;
SELECT state, permits FROM zk_lock_queue('modes kept');
SELECT zk_unlock('modes kept');
RESET zklock.keep;
SELECT zk_disconnect();
