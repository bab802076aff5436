--
-- zk_try_lease() and its kin: the arguments that they refuse, and timeouts that are strings. Who has a
-- lease, and loses it, is told in t/340 and t/342.
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
SELECT zk_try_lease('a//b', 'a', '9s');
SELECT zk_renew_lease('bad', 0, '9s');
SELECT zk_release_lease('bad', 5, '-1s');
SELECT zk_lock('mine') > 0 AS token;
SELECT zk_try_lease('mine', 'a', '9s');
SELECT zk_unlock('mine');
SELECT count(*) FROM zk_lock_queue('bad');
-- A part of a millisecond counts: this is 2 s.
SELECT zk_release_lease('brief', zk_try_lease('brief', 'a', '1.9996 s'));

-- Of the drivers strings come as varchar or text, or as what PostgreSQL takes a parameter for.
CREATE PROCEDURE parameters(function text) LANGUAGE plpgsql AS $$
DECLARE
	types text;
	seen text[];
BEGIN
	FOREACH types IN ARRAY ARRAY['', '(varchar, varchar)', '(text, text)', '(text, interval)', '(unknown, unknown)',
		'(varchar, unknown)']
	LOOP
		EXECUTE format('PREPARE p%s AS SELECT %s($1, $2)', types, function);
		seen := seen || (SELECT parameter_types::text FROM pg_prepared_statements WHERE name = 'p');
		EXECUTE $q$EXECUTE p('driver', '5 s')$q$;
		DEALLOCATE p;
		PERFORM zk_unlock_all();
	END LOOP;
	RAISE NOTICE '%: %', function, array_to_string(seen, ' ');
END $$;
CALL parameters('zk_lock');
CALL parameters('zk_lock_shared');
CALL parameters('zk_xact_lock');
CALL parameters('zk_xact_lock_shared');
CALL parameters('zk_try_lock');
CALL parameters('zk_try_lock_shared');
CALL parameters('zk_try_xact_lock');
CALL parameters('zk_try_xact_lock_shared');
CALL parameters('zk_call_lock');
CALL parameters('zk_try_call_lock');
SELECT zk_lock('driver', 'soon'::text);
SELECT zk_lock('driver'::varchar, '5 s'::varchar, 4) > 0 AS with_permits, zk_unlock('driver');
SELECT zk_try_lease('leased'::varchar, 'me'::varchar, '9 s'::varchar, '0'::varchar, 'x'::varchar) = token
	AND zk_try_lease('leased', 'me', '9 s', '0') = token AND zk_try_lease('leased'::varchar, 'me'::varchar, '9 s') = token
	AND zk_renew_lease('leased'::varchar, token, '9 s'::varchar)
	AND zk_release_lease('leased'::varchar, token, '0'::varchar) AS leases_too
FROM CAST(zk_try_lease('leased'::varchar, 'me'::varchar, '9 s'::varchar) AS bigint) AS token;
-- It costs nothing.
DO $$
DECLARE
	line text;
BEGIN
	FOR line IN EXPLAIN (VERBOSE, COSTS OFF) SELECT zk_lock('driver'::varchar, '5 s'::varchar) LOOP
		IF line ~ 'zk_timeout' THEN
			RAISE EXCEPTION '%', line;
		END IF;
	END LOOP;
END $$;
DROP PROCEDURE parameters(text);
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
