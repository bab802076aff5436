--
-- zk_evict(): what one does to the queue of a lock from outside. With others in
-- the queue it comes in the TAP tests.
--

-- A holder, here this session's own
SELECT zk_lock('durable/own') AS token \gset
SELECT zk_evict('durable/own', :token + 1), zk_is_held('durable/own');
SELECT zk_evict('durable/other', :token), zk_is_held('durable/own');
SELECT zk_evict('durable/own', :token), zk_is_held('durable/own');
SELECT zk_evict('durable/own', :token);
SELECT * FROM zk_lock_queue('durable/own');
SELECT name, state FROM zk_locks;
CREATE TABLE durable_refused ();
SELECT zk_unlock('durable/own');

-- A downgraded hold keeps the token of the exclusive one, on another znode.
SELECT zk_lock('durable/own') AS token \gset
SELECT zk_lock_shared('durable/own') = :token AS same_token, zk_unlock('durable/own');
SELECT zk_is_held('durable/own');
SELECT zk_evict('durable/own', :token), zk_is_held('durable/own');
SELECT zk_unlock_shared('durable/own');

-- Bad arguments
SELECT zk_evict(NULL, 1);
SELECT zk_evict('durable/own', NULL);
SELECT zk_evict('durable/own', 0);
SELECT zk_evict('durable//own', 1);
SELECT zk_evict('durable/unknown', 1);

-- Who may
CREATE ROLE regress_zklock_durable;
SET ROLE regress_zklock_durable;
SELECT zk_evict('durable/own', 1);
RESET ROLE;
GRANT EXECUTE ON FUNCTION zk_evict(text, bigint) TO regress_zklock_durable;
SET ROLE regress_zklock_durable;
SELECT zk_evict('durable/own', 1);
RESET ROLE;
DROP OWNED BY regress_zklock_durable;
DROP ROLE regress_zklock_durable;
