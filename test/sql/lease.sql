--
-- zk_try_lease() and the other functions of leases refuse bad arguments, and take
-- timeouts in the ways that drivers send them. Owners and losses of leases are in t/340
-- and t/342.
--
SELECT zk_try_lease(NULL, 'a', '9s');
SELECT zk_try_lease('bad', NULL, '9s');
SELECT zk_try_lease('bad', 'a', NULL);
SELECT zk_try_lease('bad', '', '9s');
SELECT zk_try_lease('bad', repeat('x', 10000), '9s');
SELECT zk_try_lease('bad', E'a\n', '9s');
SELECT zk_try_lease('bad', E'a\x7f', '9s');
SELECT zk_try_lease('bad', 'a', '0');
SELECT zk_try_lease('bad', 'a', '-1s');
SELECT zk_try_lease('bad', 'a', '10 years');
SELECT zk_try_lease('bad', 'a', '9s', '-1s');
SELECT zk_try_lease('bad', 'a', '9s', NULL);
SELECT zk_try_lease('bad', 'a', '9s', '0', repeat('x', 10000));
SELECT zk_try_lease('bad', 'a', '9s', permits => 0);
SELECT zk_try_lease('bad', 'a', '9s', permits => NULL);
SELECT zk_try_lease_shared('bad', 'a', NULL);
SELECT zk_try_lease('a//b', 'a', '9s');
SELECT zk_renew_lease('bad', 0, '9s');
SELECT zk_release_lease('bad', 5, '-1s');
SELECT zk_lock('mine') > 0 AS token;
SELECT zk_try_lease('mine', 'a', '9s');
SELECT zk_try_lease_shared('mine', 'a', '9s');
SELECT zk_unlock('mine');
SELECT count(*) FROM zk_lock_queue('bad');
-- A part of a millisecond counts: this is 2 s.
SELECT zk_release_lease('brief', zk_try_lease('brief', 'a', '1.9996 s'));

-- Timeouts are intervals. A parameter whose type a driver does not tell becomes one; a string that is sent as
-- varchar or text, as JDBC does, needs a cast.
CREATE FUNCTION pg_temp.parameters(call text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	types text;
BEGIN
	EXECUTE 'PREPARE driver' || call;
	SELECT parameter_types::text INTO types FROM pg_prepared_statements WHERE name = 'driver';
	DEALLOCATE driver;
	RETURN types;
EXCEPTION WHEN undefined_function THEN
	RETURN SQLERRM;
END $$;
SELECT call, pg_temp.parameters(call) FROM unnest(ARRAY[
	' AS SELECT zk_lock($1, $2)',
	' AS SELECT zk_try_xact_lock_shared($1, $2)',
	' AS SELECT zk_try_lease($1, $2, $3)',
	'(varchar, varchar) AS SELECT zk_lock($1, $2)',
	'(varchar, varchar) AS SELECT zk_lock($1, CAST($2 AS interval))',
	'(text, text) AS SELECT zk_lock($1, $2::interval)',
	'(varchar, varchar, varchar) AS SELECT zk_try_lease($1, $2, $3::interval)']) AS call;
PREPARE driver(varchar, varchar) AS SELECT zk_lock($1, CAST($2 AS interval)) > 0 AS token, zk_unlock($1);
EXECUTE driver('driver', '5 s');
EXECUTE driver('driver', 'soon');
DEALLOCATE driver;
-- Who leads is not who has another lock below.
SELECT zk_lock('leads/below') > 0 AS below, zk_leader('leads') IS NULL AS nobody, (zk_leader('leads/below')).token > 0 AS leads;
SELECT zk_unlock_all();
-- What was rolled back to a savepoint, or has given it up, rests on none; also as the first call of a backend.
SELECT zk_try_lease('rests', 'a', '1 min') AS token \gset
\c -
BEGIN;
SAVEPOINT s;
SELECT zk_require_lease('rests', :token);
ROLLBACK TO s;
SELECT zk_release_lease('rests', :token);
COMMIT;
SELECT zk_try_lease('rests', 'a', '1 min') AS token \gset
BEGIN;
SAVEPOINT s;
SELECT zk_require_lease('rests', :token);
RELEASE s;
SELECT zk_release_lease('rests', :token);
\set VERBOSITY sqlstate
COMMIT;
SELECT zk_try_lease('rests', 'a', '1 min') AS token \gset
BEGIN;
SELECT zk_require_lease('rests', :token);
SELECT zk_evict('rests', :token);
COMMIT;
-- What is said once more behind a savepoint was said before it.
SELECT zk_try_lease('rests', 'a', '1 min') AS token \gset
BEGIN;
SELECT zk_require_lease('rests', :token);
SAVEPOINT s;
SELECT zk_require_lease('rests', :token);
ROLLBACK TO s;
SELECT zk_release_lease('rests', :token);
COMMIT;
\set VERBOSITY default
-- A renewal from what is known here keeps what the owner added.
SELECT zk_try_lease('rests', 'a', '1 min', data => 'port 5432') AS token \gset
SELECT zk_renew_lease('rests', :token, '1 min');
SELECT owner, data FROM zk_leader('rests');
SELECT zk_release_lease('rests', :token);
-- An owner has one lease, of one mode and number of permits.
SELECT zk_try_lease_shared('kind', 'a', '1 min') AS token \gset
SELECT zk_try_lease_shared('kind', 'a', '1 min') = :token AS same, zk_try_lease_shared('kind', 'b', '1 min') > :token AS other;
\set VERBOSITY sqlstate
SELECT zk_try_lease('kind', 'a', '1 min');
SELECT zk_try_lease('kind', 'a', '1 min', permits => 2);
\set VERBOSITY default
SELECT zk_try_lease('kind', 'c', '1 min') IS NULL AS busy;
SELECT zk_try_lease('kinds', 'a', '1 min', permits => 2) > 0 AS one, zk_try_lease('kinds', 'b', '1 min', permits => 2) > 0 AS two,
	zk_try_lease('kinds', 'c', '1 min', permits => 2) IS NULL AS three;
SELECT count(zk_release_lease(lock, token)) FROM unnest(ARRAY['kind', 'kinds']) AS lock, zk_lock_queue(lock);
