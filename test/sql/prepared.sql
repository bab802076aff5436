--
-- PREPARE TRANSACTION is refused with locks of transaction scope, and allowed with locks
-- of session scope.
--
-- Where prepared transactions are switched off, as by default, there is nothing to test
-- (prepared_1.out).
--
SELECT current_setting('max_prepared_transactions') = '0' AS is_off \gset
\if :is_off
\quit
\endif

-- What this session holds
CREATE VIEW pg_temp.holds AS
	SELECT name, mode, session_acquisitions, xact_acquisitions FROM zk_session_locks
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

-- Nobody asks for the lock where the guard is off.
SELECT zk_lock('prepared') > 0 AS token;
CREATE TABLE zklock_prepared (i int);
BEGIN;
INSERT INTO zklock_prepared VALUES (1);
PREPARE TRANSACTION 'zklock_prepared';
SELECT zk_evict('prepared', token) FROM zk_session_locks;
BEGIN;
INSERT INTO zklock_prepared VALUES (2);
PREPARE TRANSACTION 'zklock_rolled_back';
SELECT zk_is_held('prepared');
-- What takes nothing is not refused.
ROLLBACK PREPARED 'zklock_rolled_back';
\set VERBOSITY sqlstate
BEGIN;
INSERT INTO zklock_prepared VALUES (3);
PREPARE TRANSACTION 'zklock_lost';
COMMIT PREPARED 'zklock_prepared';
SET zklock.commit_guard = off;
COMMIT PREPARED 'zklock_prepared';
TABLE zklock_prepared;
DROP TABLE zklock_prepared;
