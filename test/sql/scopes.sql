--
-- Locks end as advisory locks do: session scope and transaction scope, counts of
-- acquisitions, savepoints, procedures, DISCARD.
--

-- What this session holds
CREATE VIEW pg_temp.holds AS
	SELECT name, mode, session_acquisitions, xact_acquisitions FROM zk_session_locks
	ORDER BY name COLLATE "C", mode;

-- How many stand in a lock's queue, as the ensemble knows it. What this session
-- released before is already gone from it: requests keep their order.
CREATE FUNCTION pg_temp.queued(name text) RETURNS bigint
LANGUAGE sql AS 'SELECT count("position") FROM zk_lock_queue(name)';

--
-- Counts
--

-- As many releases as there were locks
SELECT zk_lock('scopes') AS token \gset
SELECT zk_lock('scopes') = :token AS same_token, zk_lock('scopes') = :token AS same_token;
TABLE holds;
SELECT pg_temp.queued('scopes');
SELECT zk_unlock('scopes'), zk_unlock('scopes');
TABLE holds;
SELECT zk_is_held('scopes');
SELECT zk_unlock('scopes');
TABLE holds;
SELECT pg_temp.queued('scopes');
-- One too many
SELECT zk_unlock('scopes');
SELECT zk_unlock_shared('scopes');
-- and of a lock that was never there
SELECT zk_unlock('scopes/never');

-- Each mode and scope has its own count.
BEGIN;
SELECT zk_lock('scopes') > 0 AS token, zk_xact_lock('scopes') > 0 AS token,
	zk_xact_lock('scopes') > 0 AS token, zk_lock_shared('scopes') > 0 AS token,
	zk_xact_lock_shared('scopes') > 0 AS token;
TABLE holds;
-- one node for all of them
SELECT pg_temp.queued('scopes');
-- zk_unlock() takes from the session's holds only.
SELECT zk_unlock('scopes');
SELECT zk_unlock('scopes');
SELECT zk_unlock_shared('scopes');
SELECT zk_unlock_shared('scopes');
TABLE holds;
SELECT zk_unlock_all();
TABLE holds;
COMMIT;
TABLE holds;
SELECT pg_temp.queued('scopes');

--
-- Ends of transactions
--

-- A statement of its own is a transaction.
SELECT zk_xact_lock('scopes') > 0 AS token;
TABLE holds;
SELECT zk_lock('scopes') > 0 AS token;
TABLE holds;
SELECT zk_unlock('scopes');

-- COMMIT and ROLLBACK end transaction scope and leave session scope alone.
BEGIN;
SELECT zk_lock('scopes/session') > 0 AS token, zk_xact_lock('scopes/xact') > 0 AS token;
TABLE holds;
COMMIT;
TABLE holds;
SELECT pg_temp.queued('scopes/session') AS session, pg_temp.queued('scopes/xact') AS xact;
SELECT zk_unlock('scopes/session');
BEGIN;
SELECT zk_lock('scopes/session') > 0 AS token, zk_xact_lock('scopes/xact') > 0 AS token;
ROLLBACK;
TABLE holds;
SELECT pg_temp.queued('scopes/session') AS session, pg_temp.queued('scopes/xact') AS xact;
-- Nor is a release rolled back.
BEGIN;
SELECT zk_unlock('scopes/session');
ROLLBACK;
TABLE holds;

-- An error ends the transaction, and transaction scope with it.
BEGIN;
SELECT zk_lock('scopes/session') > 0 AS token, zk_xact_lock('scopes/xact') > 0 AS token;
SELECT 1 / 0;
SELECT 1;
COMMIT;
TABLE holds;
SELECT pg_temp.queued('scopes/session') AS session, pg_temp.queued('scopes/xact') AS xact;
SELECT zk_unlock('scopes/session');

-- An error in the statement that took the lock
SELECT zk_lock('scopes/session'), zk_xact_lock('scopes/xact'), 1 / (random() * 0)::int;
TABLE holds;
SELECT pg_temp.queued('scopes/session') AS session, pg_temp.queued('scopes/xact') AS xact;
SELECT zk_unlock('scopes/session');

-- Both scopes on one lock: the node outlives the transaction, or the release.
SELECT zk_lock('scopes') AS token \gset
BEGIN;
SELECT zk_xact_lock('scopes') = :token AS same_token;
COMMIT;
TABLE holds;
SELECT zk_is_held('scopes'), zk_fencing_token('scopes') = :token AS same_token;
BEGIN;
SELECT zk_xact_lock('scopes') = :token AS same_token;
SELECT zk_unlock('scopes');
TABLE holds;
SELECT zk_is_held('scopes'), pg_temp.queued('scopes');
COMMIT;
TABLE holds;
SELECT zk_is_held('scopes'), pg_temp.queued('scopes');

-- It is held since it was taken first, and kept since its place was granted.
SET zklock.keep = '1 h';
SELECT zk_lock('scopes') > 0 AS token;
SELECT granted_at FROM zk_session_locks \gset
SELECT zk_xact_lock('scopes') > 0 AS token;
SELECT state, granted_at = :'granted_at' AS same FROM zk_session_locks;
SELECT zk_unlock('scopes');
SELECT zk_lock('scopes') > 0 AS token;
SELECT state, granted_at > :'granted_at' AS later FROM zk_session_locks;
SELECT zk_unlock('scopes');
SELECT state, granted_at <= :'granted_at' AS first FROM zk_session_locks;
RESET zklock.keep;

--
-- Savepoints
--

-- ROLLBACK TO releases what was taken since, and only that.
BEGIN;
SELECT zk_xact_lock('scopes/before') > 0 AS token;
SAVEPOINT a;
SELECT zk_xact_lock('scopes/since') > 0 AS token, zk_lock('scopes/session') > 0 AS token;
SAVEPOINT b;
SELECT zk_xact_lock('scopes/deeper') > 0 AS token;
TABLE holds;
ROLLBACK TO b;
TABLE holds;
ROLLBACK TO a;
TABLE holds;
SELECT pg_temp.queued('scopes/before') AS before, pg_temp.queued('scopes/since') AS since,
	pg_temp.queued('scopes/deeper') AS deeper, pg_temp.queued('scopes/session') AS session;
-- The savepoint is still there to be used again.
SELECT zk_xact_lock('scopes/since') > 0 AS token;
ROLLBACK TO a;
TABLE holds;
COMMIT;
TABLE holds;
SELECT zk_unlock('scopes/session');

-- RELEASE hands the holds to the outer level.
BEGIN;
SAVEPOINT a;
SAVEPOINT b;
SELECT zk_xact_lock('scopes') > 0 AS token;
RELEASE b;
TABLE holds;
RELEASE a;
TABLE holds;
COMMIT;
TABLE holds;
BEGIN;
SAVEPOINT a;
SAVEPOINT b;
SELECT zk_xact_lock('scopes') > 0 AS token;
RELEASE b;
ROLLBACK TO a;
TABLE holds;
SELECT pg_temp.queued('scopes');
COMMIT;

-- Taken outside and again inside: ROLLBACK TO takes one count, not the lock.
BEGIN;
SELECT zk_xact_lock('scopes') AS token \gset
SAVEPOINT a;
SELECT zk_xact_lock('scopes') = :token AS same_token, zk_xact_lock('scopes') = :token AS same_token;
TABLE holds;
ROLLBACK TO a;
TABLE holds;
SELECT zk_is_held('scopes'), zk_fencing_token('scopes') = :token AS same_token;
SAVEPOINT b;
SELECT zk_xact_lock('scopes') = :token AS same_token;
RELEASE b;
RELEASE a;
TABLE holds;
COMMIT;
SELECT pg_temp.queued('scopes');

-- The outer level takes it only after the inner one has given it up.
BEGIN;
SAVEPOINT a;
SELECT zk_xact_lock('scopes') AS token \gset
ROLLBACK TO a;
SELECT zk_xact_lock('scopes') > :token AS newer_token;
RELEASE a;
TABLE holds;
COMMIT;

-- Three levels with a gap in the middle
BEGIN;
SELECT zk_xact_lock('scopes') > 0 AS token;
SAVEPOINT a;
SAVEPOINT b;
SELECT zk_xact_lock('scopes') > 0 AS token;
RELEASE b;
TABLE holds;
ROLLBACK TO a;
TABLE holds;
COMMIT;
TABLE holds;

-- zk_unlock_all() in between leaves the levels of transaction scope as they are
BEGIN;
SAVEPOINT a;
SELECT zk_xact_lock('scopes') > 0 AS token;
SELECT zk_unlock_all();
ROLLBACK TO a;
TABLE holds;
COMMIT;

-- An upgrade that was refused inside is nothing to be undone.
SELECT zk_lock_shared('scopes') > 0 AS token;
BEGIN;
SAVEPOINT a;
SELECT zk_xact_lock('scopes');
ROLLBACK TO a;
TABLE holds;
COMMIT;
SELECT zk_unlock_shared('scopes');

-- Session scope taken inside, transaction scope outside, and the other way round
BEGIN;
SELECT zk_xact_lock('scopes') > 0 AS token;
SAVEPOINT a;
SELECT zk_lock('scopes') > 0 AS token;
ROLLBACK TO a;
TABLE holds;
SAVEPOINT b;
SELECT zk_unlock('scopes');
ROLLBACK TO b;
TABLE holds;
COMMIT;
SELECT pg_temp.queued('scopes');

-- EXCEPTION blocks are subtransactions: released when the block fails, kept
-- when it does not.
BEGIN;
DO $$
BEGIN
	BEGIN
		PERFORM zk_xact_lock('scopes/fails'), zk_lock('scopes/session');
		RAISE division_by_zero;
	EXCEPTION WHEN division_by_zero THEN
		NULL;
	END;
	BEGIN
		PERFORM zk_xact_lock('scopes/works');
	EXCEPTION WHEN division_by_zero THEN
		NULL;
	END;
END $$;
TABLE holds;
COMMIT;
TABLE holds;
SELECT pg_temp.queued('scopes/fails') AS fails, pg_temp.queued('scopes/works') AS works;
SELECT zk_unlock('scopes/session');

--
-- Procedures and DO
--
CREATE PROCEDURE zklock_scopes(command text)
LANGUAGE plpgsql AS $$
DECLARE
	held text;
BEGIN
	FOR i IN 1..2 LOOP
		PERFORM zk_xact_lock('scopes/xact'), zk_lock('scopes/session');
		SELECT string_agg(format('%s: %s+%s', name, session_acquisitions, xact_acquisitions), ', ' ORDER BY name)
			INTO held FROM zk_session_locks;
		RAISE NOTICE 'before %: %', command, held;
		IF command = 'COMMIT' THEN
			COMMIT;
		ELSE
			ROLLBACK;
		END IF;
		SELECT string_agg(format('%s: %s+%s', name, session_acquisitions, xact_acquisitions), ', ' ORDER BY name)
			INTO held FROM zk_session_locks;
		RAISE NOTICE 'after: %', held;
		ASSERT (SELECT count(*) FROM zk_lock_queue('scopes/xact')) = 0;
	END LOOP;
END $$;
CALL zklock_scopes('COMMIT');
CALL zklock_scopes('ROLLBACK');
TABLE holds;
SELECT zk_unlock_all();
DROP PROCEDURE zklock_scopes;

DO $$
BEGIN
	PERFORM zk_xact_lock('scopes');
	COMMIT;
	RAISE NOTICE 'held after COMMIT: %', zk_is_held('scopes');
	PERFORM zk_xact_lock('scopes');
	ROLLBACK;
	RAISE NOTICE 'held after ROLLBACK: %', zk_is_held('scopes');
	PERFORM zk_xact_lock('scopes');
END $$;
TABLE holds;

-- A transaction that follows in a chain starts without.
BEGIN;
SELECT zk_xact_lock('scopes') > 0 AS token;
COMMIT AND CHAIN;
TABLE holds;
SELECT zk_xact_lock('scopes') > 0 AS token;
ROLLBACK AND CHAIN;
TABLE holds;
COMMIT;

-- Locks that the COMMIT itself takes, in a deferred trigger or for a cursor that
-- it must read to its end, go with it all the same.
CREATE TABLE zklock_scopes (i int);
CREATE FUNCTION zklock_scopes() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
	PERFORM zk_xact_lock('scopes/trigger');
	RAISE NOTICE 'held in trigger: %', zk_is_held('scopes/trigger');
	RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER zklock_scopes AFTER INSERT ON zklock_scopes
	DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION zklock_scopes();
BEGIN;
INSERT INTO zklock_scopes VALUES (1);
DECLARE c CURSOR WITH HOLD FOR SELECT zk_xact_lock('scopes/cursor') > 0 AS token;
TABLE holds;
COMMIT;
FETCH c;
CLOSE c;
TABLE holds;
SELECT pg_temp.queued('scopes/trigger') AS trigger, pg_temp.queued('scopes/cursor') AS cursor;
DROP TABLE zklock_scopes;
DROP FUNCTION zklock_scopes();

-- A cursor held open over COMMIT does not keep a lock.
BEGIN;
DECLARE c CURSOR WITH HOLD FOR SELECT zk_xact_lock('scopes') > 0 AS token;
FETCH c;
TABLE holds;
COMMIT;
TABLE holds;
CLOSE c;

--
-- DISCARD
--
SELECT zk_lock('scopes') > 0 AS token, zk_lock('scopes') > 0 AS token, zk_lock_shared('scopes/2') > 0 AS token;
SELECT session_id FROM zk_session \gset
DISCARD PLANS;
DISCARD SEQUENCES;
-- not DISCARD TEMP, which would take this test's view along
RESET ALL;
TABLE holds;
-- It fails in a transaction block, and then it does nothing.
BEGIN;
SELECT zk_xact_lock('scopes/xact') > 0 AS token;
DISCARD ALL;
\echo :SQLSTATE
ROLLBACK;
TABLE holds;
SELECT zk_is_held('scopes'), zk_is_held('scopes/2');
DISCARD TEMP;
SELECT name, session_acquisitions FROM zk_session_locks ORDER BY name;
DISCARD ALL;
SELECT * FROM zk_session_locks;
SELECT count("position") FROM zk_lock_queue('scopes');
-- The connection to ZooKeeper stays: it costs more than a lock.
SELECT state, session_id = :'session_id' AS same_session FROM zk_session;
-- with nothing to release
DISCARD ALL;

--
-- zk_unlock_all(), zk_disconnect()
--
SELECT zk_unlock_all();
BEGIN;
SELECT zk_lock('scopes/1') > 0 AS token, zk_lock('scopes/1') > 0 AS token,
	zk_lock_shared('scopes/2') > 0 AS token, zk_xact_lock('scopes/3') > 0 AS token,
	zk_xact_lock('scopes/1') > 0 AS token;
SELECT zk_unlock_all();
SELECT name, session_acquisitions, xact_acquisitions FROM zk_session_locks ORDER BY name;
-- It would break a promise to disconnect now. Nothing is released then.
SELECT zk_lock('scopes/4') > 0 AS token;
SAVEPOINT a;
SELECT zk_disconnect();
\echo :SQLSTATE
ROLLBACK TO a;
SELECT name, session_acquisitions, xact_acquisitions FROM zk_session_locks ORDER BY name;
SELECT zk_is_held('scopes/3'), zk_is_held('scopes/4');
COMMIT;
SELECT zk_lock('scopes/1') > 0 AS token;
SELECT zk_disconnect();
SELECT state, session_id FROM zk_session;
SELECT * FROM zk_session_locks;
SELECT zk_is_held('scopes/1'), zk_fencing_token('scopes/1');
-- without a connection
SELECT zk_disconnect();
-- The next lock connects anew.
SELECT zk_lock('scopes/1') > 0 AS token;
SELECT state, session_id <> :'session_id' AS new_session FROM zk_session;
SELECT zk_unlock('scopes/1');
SELECT zk_disconnect();
