--
-- Locks of call scope end with the statement that the client has sent, and CALL
-- zk_commit_and_lock() ends the transaction before it waits. As far as one session shows
-- it; others are in t/124 and t/115.
--

\set SHOW_CONTEXT never

-- What this session holds
CREATE FUNCTION held() RETURNS text LANGUAGE sql BEGIN ATOMIC
	SELECT coalesce(string_agg(concat_ws(' ', name, mode, session_acquisitions, call_acquisitions, xact_acquisitions), ', '
			ORDER BY mode), 'nothing')
	FROM zk_session_locks;
END;

-- How many stand in a lock's queue, as the ensemble knows it. What this session
-- released before is already gone from it: requests keep their order.
CREATE FUNCTION queued() RETURNS bigint LANGUAGE sql BEGIN ATOMIC
	SELECT count("position") FROM zk_lock_queue('call');
END;

--
-- What a call is
--

CREATE FUNCTION locks() RETURNS boolean LANGUAGE sql RETURN zk_call_lock('call') > 0;
SELECT locks();
SELECT held(), queued();
SELECT zk_try_call_lock('call');
SELECT held(), queued();
SELECT locks() FROM generate_series(1, 3);
SELECT held(), queued();
DO 'BEGIN PERFORM locks(); COMMIT; PERFORM locks(); END';
SELECT held(), queued();
DO 'DECLARE r record; BEGIN FOR r IN SELECT locks() LOOP COMMIT; END LOOP; END';
SELECT held(), queued();
VALUES (1) \; SELECT locks() \; VALUES (2);
SELECT held(), queued();

-- Two statements sent together are one
SELECT locks() \; SELECT held(), queued();

-- A lock in a subtransaction that is undone stays, as one of session scope
DO $$ BEGIN
	BEGIN PERFORM locks(); PERFORM 1 / 0; EXCEPTION WHEN division_by_zero THEN NULL; END;
	RAISE NOTICE '%', held();
END $$;
SELECT held(), queued();

-- Reentrant with the other scopes
SELECT zk_lock('call') > 0 AS granted;
BEGIN;
SELECT zk_xact_lock('call') = zk_call_lock('call') AS same_place;
COMMIT;
SELECT held(), queued();
SELECT zk_unlock('call');
SELECT held(), queued();

-- The exclusive acquisition ends with the call. The node is exclusive until the shared
-- one is released, too.
SELECT zk_call_lock('call') = zk_lock_shared('call') AS same_place;
SELECT zk_is_held('call');
SELECT held(), mode FROM zk_lock_queue('call');
SELECT zk_unlock_shared('call');

-- What is kept at the end of the call
SET zklock.keep = '1min';
SELECT zk_call_lock('kept') > 0 AS granted;
SELECT name, state FROM zk_session_locks;
RESET zklock.keep;

--
-- In a transaction that goes on
--

BEGIN;
SELECT locks();
SAVEPOINT a;
SELECT locks();
ROLLBACK TO a;
SELECT held(), queued();
COMMIT;
SELECT held(), queued();
BEGIN;
SELECT locks();
ROLLBACK;
SELECT held(), queued();
-- A call that fails behind a savepoint does not end it
BEGIN;
SAVEPOINT a;
DO 'BEGIN PERFORM locks(); RAISE division_by_zero; END';
ROLLBACK TO a;
SELECT held(), queued();
COMMIT;
SELECT held(), queued();
-- Nor is a transaction that ends in the next call the end of that
DO 'BEGIN PERFORM locks(); COMMIT; RAISE NOTICE ''%'', held(); END';

-- It cannot be prepared, disconnected or released earlier
BEGIN;
SELECT locks();
PREPARE TRANSACTION 'call';
DO $$ BEGIN PERFORM locks(); PERFORM zk_disconnect(); END $$;
DO $$ BEGIN PERFORM locks(); RAISE NOTICE '%', zk_unlock('call'); END $$;
SELECT held(), queued();

--
-- zk_commit_and_lock()
--

CREATE TABLE work (i int);
DO $$ BEGIN INSERT INTO work VALUES (1); CALL zk_commit_and_lock('call'); RAISE division_by_zero; END $$;
-- What was done before is committed, and the lock is held
SELECT i, held(), queued() FROM work;
-- A lock of transaction scope ends with the transaction
DO $$ BEGIN PERFORM zk_xact_lock('other'); CALL zk_commit_and_lock('call'); END $$;
SELECT held(), queued();
SELECT zk_unlock_all();

-- A bad name commits nothing
DO $$ BEGIN INSERT INTO work VALUES (2); CALL zk_commit_and_lock('bad//name'); END $$;
SELECT i FROM work;

-- Holds are counted, and nothing is returned
CALL zk_commit_and_lock('call', permits => 2);
CALL zk_commit_and_lock('call', permits => 2);
SELECT session_acquisitions, permits FROM zk_session_locks;
SELECT zk_unlock_all();
CALL zk_commit_and_lock(NULL);
CALL zk_commit_and_lock('call', permits => NULL);

-- Where a transaction cannot be ended it is refused, and nothing is held
CREATE FUNCTION function_call() RETURNS int LANGUAGE plpgsql AS $$ BEGIN CALL zk_commit_and_lock('call'); RETURN 1; END $$;
CREATE FUNCTION sql_call() RETURNS void LANGUAGE sql AS $$ CALL zk_commit_and_lock('call') $$;
CREATE PROCEDURE set_call() LANGUAGE plpgsql SET work_mem = '1MB' AS $$ BEGIN CALL zk_commit_and_lock('call'); END $$;
CREATE PROCEDURE definer_call() LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN CALL zk_commit_and_lock('call'); END $$;
BEGIN;
CALL zk_commit_and_lock('call');
\echo :SQLSTATE
ROLLBACK;
BEGIN;
SAVEPOINT s;
CALL zk_commit_and_lock('call');
\echo :SQLSTATE
ROLLBACK;
BEGIN;
DO $$ BEGIN CALL zk_commit_and_lock('call'); END $$;
\echo :SQLSTATE
ROLLBACK;
SELECT function_call();
\echo :SQLSTATE
SELECT sql_call();
\echo :SQLSTATE
DO $$ BEGIN EXECUTE 'CALL zk_commit_and_lock(''call'')'; END $$;
\echo :SQLSTATE
CALL set_call();
\echo :SQLSTATE
CALL definer_call();
\echo :SQLSTATE
DO $$ BEGIN CALL zk_commit_and_lock('call'); EXCEPTION WHEN division_by_zero THEN END $$;
\echo :SQLSTATE
SELECT 1 \; CALL zk_commit_and_lock('call');
\echo :SQLSTATE
SELECT held(), queued();

DROP TABLE work;
DROP FUNCTION held, queued, locks, function_call, sql_call;
DROP PROCEDURE set_call, definer_call;

-- Also the first lock of a backend is guarded, and its loss is forgotten with the transaction.
\c -
CREATE TABLE work (i int);
CALL zk_commit_and_lock('call');
SELECT zk_evict('call', token) FROM zk_session_locks;
BEGIN;
INSERT INTO work VALUES (1);
SELECT zk_is_held('call');
\set VERBOSITY terse
SELECT zk_unlock_all();
COMMIT;
\echo :SQLSTATE
\set VERBOSITY default
INSERT INTO work VALUES (2);
TABLE work;
DROP TABLE work;
