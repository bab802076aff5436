--
-- The library is loaded by the first call of a session. What an ordinary user
-- has set before is judged then, by the same rules: nobody may point others'
-- locks elsewhere, or switch the commit guard off, by being early.
--
-- Where zklock is preloaded there is no "before" and nothing to test
-- (late_load_1.out).
--
SELECT current_setting('shared_preload_libraries')
	|| current_setting('session_preload_libraries')
	|| current_setting('local_preload_libraries') LIKE '%zklock%' AS is_preloaded \gset
\if :is_preloaded
\quit
\endif

CREATE ROLE regress_zklock_early;
SET SESSION AUTHORIZATION regress_zklock_early;
SET zklock.servers = 'elsewhere:2181';
SET zklock.root = 'nonsense';
SET zklock.commit_guard = 'off';
SET zklock.snapshot_warning = off;
SET zklock.nonsense = '1';
SELECT zk_lock('late_load') > 0 AS token;
SELECT current_setting('zklock.servers') <> 'elsewhere:2181' AS servers_ok,
	current_setting('zklock.root') <> 'nonsense' AS root_ok;
SHOW zklock.commit_guard;
-- what he may set stays
SHOW zklock.snapshot_warning;
SELECT current_setting('zklock.nonsense', true) IS NULL AS removed;
SELECT zk_unlock('late_load');
RESET SESSION AUTHORIZATION;
DROP ROLE regress_zklock_early;
