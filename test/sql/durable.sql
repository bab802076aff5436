--
-- zk_evict(), zk_hold() and zk_release_hold() change the queue of a lock from outside:
-- their results, errors, and what stays in the queue. As far as one session shows it;
-- other contenders are in t/320 and t/322.
--

-- A holder, here this session's own
SELECT zk_lock('durable/own') AS token \gset
SELECT zk_evict('durable/own', :token + 1), zk_is_held('durable/own');
SELECT zk_evict('durable/other', :token), zk_is_held('durable/own');
SELECT zk_evict('durable/own', :token), zk_is_held('durable/own');
SELECT zk_evict('durable/own', :token);
SELECT * FROM zk_lock_queue('durable/own');
SELECT name, state FROM zk_session_locks;
\set VERBOSITY terse
CREATE TABLE durable_refused ();
SELECT zk_unlock('durable/own');
\set VERBOSITY default

-- In both modes the lock has one token, by which it is evicted, also when only the shared
-- acquisition is left.
SELECT zk_lock('durable/own') AS token \gset
SELECT zk_lock_shared('durable/own') = :token AS same_token, zk_unlock('durable/own');
SELECT zk_is_held('durable/own');
SELECT zk_evict('durable/own', :token), zk_is_held('durable/own');
\set VERBOSITY terse
SELECT zk_unlock_shared('durable/own');
\set VERBOSITY default

-- A hold belongs to nobody.
SELECT zk_lock('durable/hold') AS earlier, zk_unlock('durable/hold') \gset
SELECT zk_hold('durable/hold', 'new disks') AS token \gset
SELECT :token > :earlier AS is_greater;
SELECT * FROM zk_session_locks;
SELECT zk_is_held('durable/hold'), zk_fencing_token('durable/hold'), zk_try_lock('durable/hold'),
	zk_try_lock_shared('durable/hold');
SELECT "position", state, mode, style, session_id, client, datname = current_database() AS datname_ok,
	pid = pg_backend_pid() AS pid_ok, token = :token AS token_ok, data,
	since BETWEEN now() - interval '1 minute' AND clock_timestamp() + interval '1 second' AS since_ok
FROM zk_lock_queue('durable/hold');
\set VERBOSITY terse
SELECT zk_hold('durable/hold', 'once more', '0');
\set VERBOSITY default
SELECT zk_unlock('durable/hold');
SELECT zk_unlock_all();
DISCARD ALL;
SELECT state FROM zk_lock_queue('durable/hold');
SELECT zk_release_hold('durable/hold', :earlier);
SELECT zk_release_hold('durable/hold', :token);
SELECT zk_release_hold('durable/hold', :token);
SELECT zk_try_lock('durable/hold');

-- Not on top of a lock of this session, nor is such a lock a hold
SELECT zk_hold('durable/hold', 'held');
SELECT zk_fencing_token('durable/hold') AS token \gset
SELECT zk_release_hold('durable/hold', :token), zk_is_held('durable/hold');
SELECT zk_unlock('durable/hold');
SELECT zk_lock_shared('durable/hold') > 0 AS token;
SELECT zk_hold('durable/hold', 'held');
SELECT zk_unlock_shared('durable/hold');

-- With a lock that is lost it is refused as another lock is.
SELECT zk_lock('durable/own') AS token \gset
SELECT zk_evict('durable/own', :token), zk_is_held('durable/own');
\set VERBOSITY terse
SELECT zk_hold('durable/hold', 'lost');
SELECT zk_unlock('durable/own');
\set VERBOSITY default

-- A wait for somebody else's is bounded as for a lock, and leaves nothing behind.
SELECT zk_hold('durable/bound', 'x') AS token \gset
-- Who holds it is told, if there is time for that.
\set VERBOSITY terse
SET lock_timeout = '300ms';
SELECT zk_hold('durable/bound', 'y');
RESET lock_timeout;
SET statement_timeout = '300ms';
SELECT zk_hold('durable/bound', 'y');
RESET statement_timeout;
SELECT zk_hold('durable/bound', 'y', '300ms');
SELECT zk_hold('durable/bound', 'y', '1 ms');
SELECT zk_hold('durable/bound', 'y', '0');
\set VERBOSITY default
SELECT zk_release_hold('durable/bound', :token);
-- The release of what gave up is not awaited.
DO $$ BEGIN
	FOR i IN 1 .. 2000 LOOP
		EXIT WHEN NOT EXISTS (SELECT FROM zk_lock_queue('durable/bound'));
		PERFORM pg_sleep(0.01);
	END LOOP;
END $$;
SELECT count(*) FROM zk_lock_queue('durable/bound');

-- Bad arguments
SELECT zk_hold(NULL, 'x');
SELECT zk_hold('durable/hold', NULL);
SELECT zk_hold('durable/hold', '');
SELECT zk_hold('durable/hold', E'two\nlines');
SELECT zk_hold('durable/hold', repeat('x', 513));
SELECT zk_hold('durable/hold', 'x', '-1 s');
SELECT zk_hold('durable//hold', 'x');
SELECT zk_release_hold('durable/hold', NULL);
SELECT zk_release_hold(NULL, 1);
SELECT zk_release_hold('durable/hold', 0);
SELECT zk_evict(NULL, 1);
SELECT zk_evict('durable/own', NULL);
SELECT zk_evict('durable/own', 0);
SELECT zk_evict('durable//own', 1);
SELECT zk_evict('durable/unknown', 1);

-- Who may
CREATE ROLE regress_zklock_durable;
SET ROLE regress_zklock_durable;
SELECT zk_evict('durable/own', 1);
SELECT zk_hold('durable/hold', 'x');
SELECT zk_release_hold('durable/hold', 1);
RESET ROLE;
GRANT EXECUTE ON FUNCTION zk_evict(text, bigint) TO regress_zklock_durable;
SET ROLE regress_zklock_durable;
SELECT zk_evict('durable/own', 1);
RESET ROLE;
DROP OWNED BY regress_zklock_durable;
DROP ROLE regress_zklock_durable;
