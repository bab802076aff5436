--
-- zk_try_lock() and its kin are true for a free lock, whatever the timeout, and refuse
-- bad timeouts. Locks that others hold are in the isolation tests.
--

-- A free lock is granted, whatever the timeout.
SELECT zk_try_lock('tries/1'), zk_try_lock_shared('tries/2');
SELECT zk_try_lock('tries/3', '1 second'), zk_try_lock_shared('tries/4', '0');
BEGIN;
SELECT zk_try_xact_lock('tries/5'), zk_try_xact_lock_shared('tries/6');
SELECT zk_try_xact_lock('tries/7', '1 minute'), zk_try_xact_lock_shared('tries/8', '1 day');
SELECT name, mode, session_acquisitions, xact_acquisitions FROM zk_session_locks ORDER BY name;
COMMIT;
-- The result is boolean, the token is to be had separately.
SELECT zk_fencing_token('tries/1') > 0 AS token, zk_fencing_token('tries/5') IS NULL AS released;
-- Tries are counted like the rest.
SELECT zk_try_lock('tries/1'), zk_try_lock('tries/1', '1 second');
SELECT session_acquisitions FROM zk_session_locks WHERE name = 'tries/1';
SELECT zk_unlock_all();

-- zk_lock() with a timeout on a free lock, also with none to spare
SELECT zk_lock('tries/1', '0') > 0 AS token, zk_lock('tries/2', '10 seconds') > 0 AS token;
-- and NULL, which is its default: no bound
SELECT zk_lock('tries/3', NULL) > 0 AS token, zk_lock_shared('tries/4', NULL) > 0 AS token;
SELECT zk_unlock_all();

-- Other units, other lengths, mixed signs: what counts is the sum.
SELECT zk_try_lock('tries/units', '1 month -29 days -23 hours'),
	zk_try_lock('tries/units', '1000 years'),
	zk_try_lock('tries/units', '1 microsecond'),
	zk_try_lock('tries/units', '-1 day +24 hours'),
	zk_try_lock('tries/units', '178000000 years'),
	zk_lock('tries/units', '178000000 years') > 0 AS token;
SELECT session_acquisitions FROM zk_session_locks;
SELECT zk_unlock_all();

-- A negative timeout is a mistake of the caller, not "at once".
SELECT zk_try_lock('tries/negative', '-1 ms');
\echo :SQLSTATE
SELECT zk_lock('tries/negative', '-1 microsecond');
SELECT zk_xact_lock('tries/negative', '1 day -25 hours');
SELECT zk_lock_shared('tries/negative', '-1 month +29 days');
SELECT zk_xact_lock_shared('tries/negative', '-178000000 years');

-- NULL must not turn a try into a wait without end.
SELECT zk_try_lock('tries/null', NULL);
\echo :SQLSTATE
SELECT zk_try_lock_shared('tries/null', NULL);
SELECT zk_try_xact_lock('tries/null', NULL);
SELECT zk_try_xact_lock_shared('tries/null', NULL);

-- The time bounds the wait, not what comes after it.
SET lock_timeout = '1s';
SET statement_timeout = '10s';
SELECT zk_lock('tries/bounded') > 0 AS token;
RESET lock_timeout;
RESET statement_timeout;
SELECT zk_unlock('tries/bounded');
-- Of two that are equal the call's own is told.
SELECT zk_hold('tries/bounded', 'in the way') AS token \gset
SET lock_timeout = '50ms';
\set VERBOSITY terse
SELECT zk_lock('tries/bounded', '50 ms');
\set VERBOSITY default
RESET lock_timeout;
-- A number without a unit is seconds, also as a text; that of a setting is milliseconds.
\set VERBOSITY terse
SELECT zk_lock('tries/bounded', '0.05');
SELECT zk_lock('tries/bounded', '0.05'::interval);
SET lock_timeout = '50';
SELECT zk_lock('tries/bounded', '50');
\set VERBOSITY default
RESET lock_timeout;
SELECT zk_release_hold('tries/bounded', :token);

-- None of the refused calls left a hold behind.
SELECT * FROM zk_session_locks;

-- zklock.max_locks bounds how many locks a session may hold, and counts the
-- locks, not how often each is held.
SET zklock.max_locks = 2;
SELECT zk_lock('tries/1') > 0 AS token, zk_lock('tries/1') > 0 AS token, zk_lock('tries/2') > 0 AS token;
SELECT zk_lock('tries/3');
\echo :SQLSTATE
SELECT zk_try_lock('tries/3');
SELECT zk_lock('tries/2') > 0 AS token;
SELECT zk_unlock('tries/1'), zk_unlock('tries/1');
SELECT zk_try_lock('tries/3');
SELECT zk_unlock_all();
-- A lock held in both modes stands on one queue entry and counts once.
SELECT zk_lock('tries/1') = zk_lock_shared('tries/1') AS same_token;
SELECT zk_try_lock('tries/2');
RESET zklock.max_locks;
SELECT zk_unlock_all();

-- A try right behind an unlock of the same session sees the unlock, whatever the mode: the delete
-- is ahead of the list that the try reads.
DO $$
BEGIN
	FOR i IN 1 .. 50 LOOP
		ASSERT zk_try_lock('tries/own'), 'a free lock';
		ASSERT zk_unlock('tries/own'), 'held';
		ASSERT zk_try_lock_shared('tries/own'), 'a free lock';
		ASSERT zk_unlock_shared('tries/own'), 'held in shared mode';
	END LOOP;
END $$;
