--
-- PREPARE TRANSACTION with locks of either scope.
--
-- Where it is switched off, as it is by default, there is nothing to test
-- (prepared_1.out).
--
SELECT current_setting('max_prepared_transactions') = '0' AS is_off \gset
\if :is_off
\quit
\endif

-- What this session holds
CREATE VIEW pg_temp.holds AS
	SELECT name, mode, session_holds, xact_holds FROM zk_locks
	ORDER BY name COLLATE "C", mode;

-- Refused: a queue entry cannot outlive its session.
BEGIN;
SELECT zk_xact_lock('prepared') > 0 AS token;
PREPARE TRANSACTION 'zklock_prepared';
\echo :SQLSTATE
TABLE holds;
SELECT count("position") FROM zk_lock_queue('prepared');
BEGIN;
SELECT zk_lock('prepared') > 0 AS token, zk_xact_lock_shared('prepared') > 0 AS token;
PREPARE TRANSACTION 'zklock_prepared';
TABLE holds;
-- Session scope stays with the session.
BEGIN;
SELECT zk_lock('prepared') > 0 AS token;
PREPARE TRANSACTION 'zklock_prepared';
TABLE holds;
SELECT zk_is_held('prepared');
COMMIT PREPARED 'zklock_prepared';
TABLE holds;
SELECT zk_unlock('prepared'), zk_unlock('prepared');
-- A hold that a savepoint has given back does not matter.
BEGIN;
SAVEPOINT a;
SELECT zk_xact_lock('prepared') > 0 AS token;
ROLLBACK TO a;
PREPARE TRANSACTION 'zklock_prepared';
ROLLBACK PREPARED 'zklock_prepared';
