-- zk_fence(): which tokens it accepts, which holders it refuses, and which roles may
-- call it. That an older holder cannot get past a newer one is in t/300_fence.pl.

-- Errors without tokens, which differ from run to run.
CREATE FUNCTION fence_error(statement text) RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE statement;
	RETURN 'none';
EXCEPTION WHEN OTHERS THEN
	RETURN sqlstate || ' ' || sqlerrm;
END $$;

-- the holder's own token
SELECT fence_error($$SELECT zk_fence('fence')$$);
SELECT zk_lock('fence') > 0 AS locked;
SELECT zk_fence('fence');
SELECT token = zk_fencing_token('fence') AS is_mine, claimed_by = session_user AS by_me
FROM zk_fences WHERE name = 'fence';

-- the root as zk_session_locks has it
SELECT f.root = l.root AS is_same FROM zk_fences AS f JOIN zk_session_locks AS l USING (name) WHERE name = 'fence';

-- the same again is no change
SELECT xmin AS before FROM zk_fences WHERE name = 'fence' \gset
SELECT zk_fence('fence');
SELECT xmin = :'before' AS unchanged FROM zk_fences WHERE name = 'fence';

-- a newer holder, then the older one
SELECT zk_fence('fence', zk_fencing_token('fence') + 1);
SELECT fence_error($$SELECT zk_fence('fence')$$);
SELECT zk_unlock('fence');

-- a reader would lock the others out
SELECT zk_lock_shared('fence/shared') > 0 AS locked;
SELECT fence_error($$SELECT zk_fence('fence/shared')$$);
SELECT zk_unlock_shared('fence/shared');

-- tokens from elsewhere, and what is none
SELECT zk_fence('elsewhere', 7);
SELECT zk_fence('elsewhere', 7), zk_fence('elsewhere', 9);
SELECT fence_error($$SELECT zk_fence('elsewhere', 8)$$);
SELECT fence_error($$SELECT zk_fence('elsewhere', 0)$$);
SELECT fence_error($$SELECT zk_fence('elsewhere', -1)$$);
SELECT fence_error($$SELECT zk_fence('elsewhere', NULL)$$);
SELECT fence_error($$SELECT zk_fence(NULL, 7)$$);
SELECT fence_error($$SELECT zk_fence(NULL)$$);

-- Tokens that no ensemble has come to: the upper half counts its elections. What
-- the errors say differs with the time, but for the second claim.
SELECT fence_error($$SELECT zk_fence('forged', 9223372036854775807)$$);
SELECT fence_error($$SELECT zk_fence('forged', extract(epoch FROM now() - '2007-12-31')::bigint << 32)$$);
SELECT fence_error($$SELECT zk_fence('forged', extract(epoch FROM now() - '2008-01-02')::bigint << 32)$$);
SELECT fence_error($$SELECT zk_fence('elsewhere', 9223372036854775807)$$);
SELECT fence_error($$SELECT zk_fence('elsewhere', 1100::bigint << 32)$$);
SELECT fence_error($$SELECT zk_fence('elsewhere', 1000::bigint << 32)$$);
SELECT fence_error($$SELECT zk_fence('elsewhere', 2100::bigint << 32)$$);
UPDATE zk_fences SET claimed_at = claimed_at - interval '1000 s' WHERE name = 'elsewhere';
SELECT fence_error($$SELECT zk_fence('elsewhere', 3000::bigint << 32)$$);
-- which was claimed just now
SELECT fence_error($$SELECT zk_fence('elsewhere', 4500::bigint << 32)$$);
-- the same as a function of its arguments
SELECT _zk_fence_compare('pure', 5, 4, '2026-01-01', '2026-01-01'),
	_zk_fence_compare('pure', 1005::bigint << 32, 5::bigint << 32, '2026-01-01', '2026-01-01'),
	_zk_fence_compare('pure', 1015::bigint << 32, 5::bigint << 32, '2026-01-01', '2026-01-01 00:00:10');
\set SHOW_CONTEXT never
SELECT _zk_fence_compare('pure', 1016::bigint << 32, 5::bigint << 32, '2026-01-01', '2026-01-01 00:00:10');
-- a clock that was set back
SELECT _zk_fence_compare('pure', 1006::bigint << 32, 5::bigint << 32, '2026-01-01', '2025-01-01');
SELECT _zk_fence_compare('pure', 9223372036854775807, 1, '-infinity', 'infinity');
SELECT _zk_fence_compare('pure', 1, NULL, NULL, '2008-01-01 UTC'),
	_zk_fence_compare('pure', 1::bigint << 32, NULL, NULL, '2008-01-01 00:00:01 UTC');
SELECT _zk_fence_compare('pure', 1000::bigint << 32, NULL, NULL, '1970-01-01 00:00:01 UTC');
SELECT _zk_fence_compare('pure', 1002::bigint << 32, NULL, NULL, '2008-01-01 00:16:41 UTC');

\set SHOW_CONTEXT errors
-- a rollback takes the claim back
BEGIN;
SELECT zk_fence('undone', 9);
ROLLBACK;
SELECT count(*) FROM zk_fences WHERE name = 'undone';

-- Everybody may claim with the token of a lock they hold; nobody but whom the
-- owner trusts may name a token, look, or change the table.
CREATE ROLE regress_zklock_fence;
SET ROLE regress_zklock_fence;
SELECT zk_lock('fence/role') > 0 AS locked;
SELECT zk_fence('fence/role');
SELECT name FROM zk_fences;
SELECT zk_fence('fence/role', 7);
DELETE FROM zk_fences;
UPDATE zk_fences SET token = 1;
-- the function does not follow the caller's search_path
CREATE TEMP TABLE zk_fences (name text, token bigint);
SELECT zk_fence('fence/role');
SELECT count(*) FROM pg_temp.zk_fences;
DROP TABLE pg_temp.zk_fences;
SELECT zk_unlock('fence/role');
RESET ROLE;
DROP ROLE regress_zklock_fence;

DROP FUNCTION fence_error;
TRUNCATE zk_fences;
