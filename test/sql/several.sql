--
-- zk_lock_set(names) and the other calls for several locks, and zk_lock_path(), take all of
-- them or none. As far as one session shows it; locks that others hold are in
-- t/150_lock_set.pl.
--

-- What this session holds
CREATE VIEW pg_temp.holds AS
	SELECT name, mode, session_acquisitions, xact_acquisitions FROM zk_session_locks
	ORDER BY name COLLATE "C", mode;

-- Everything that stands in a lock's queue, as the ensemble knows it. What this
-- session released before is already gone from it: requests keep their order.
CREATE FUNCTION pg_temp.queue(name text) RETURNS text
LANGUAGE sql AS $$
	SELECT coalesce(string_agg(mode || ' ' || state, ', ' ORDER BY "position"), 'empty')
	FROM zk_lock_queue(name)
$$;

--
-- Results
--

-- One token for each name, in the order of the names; taken in the order of
-- their bytes, so that the first in that order has the smallest token.
SELECT zk_lock_set(ARRAY['several/c', 'several/a', 'several/b']) AS tokens \gset
SELECT array_length(:'tokens'::bigint[], 1) AS length, array_lower(:'tokens'::bigint[], 1) AS lower,
	zk_fencing_token('several/c') = (:'tokens'::bigint[])[1] AS c,
	zk_fencing_token('several/a') = (:'tokens'::bigint[])[2] AS a,
	zk_fencing_token('several/b') = (:'tokens'::bigint[])[3] AS b;
SELECT name FROM zk_session_locks ORDER BY token;
TABLE holds;
SELECT zk_is_held('several/a'), zk_is_held('several/b'), zk_is_held('several/c');
-- They are locks like others: released singly, or several, in any order.
SELECT zk_unlock('several/b');
SELECT zk_unlock_set(ARRAY['several/c', 'several/a']);
TABLE holds;
SELECT pg_temp.queue('several/a') AS a, pg_temp.queue('several/b') AS b, pg_temp.queue('several/c') AS c;

-- Bytes, not letters: upper case first, then lower case, then the rest of UTF-8,
-- and a name before those below it, but not next to them.
SELECT array_length(zk_lock_set(ARRAY['several/é', 'several/b', 'several/B', 'several/b/x', 'several/b-x', 'several/bx']), 1) AS length;
SELECT name FROM zk_session_locks ORDER BY token;
SELECT zk_unlock_all();

-- The other forms
BEGIN;
SELECT array_length(zk_xact_lock_set(ARRAY['several/b', 'several/a']), 1) AS length;
SELECT zk_try_lock_set(ARRAY['several/b', 'several/a']), zk_try_lock_set(ARRAY['several/c'], '1 second');
SELECT zk_try_xact_lock_set(ARRAY['several/b', 'several/d']), zk_try_xact_lock_set(ARRAY['several/d'], '1 day');
TABLE holds;
ROLLBACK;
TABLE holds;
SELECT zk_unlock_set(ARRAY['several/a', 'several/b', 'several/c']);
TABLE holds;

-- A literal without a type is a name, not an array; and a list is no name.
SELECT zk_lock('{several/a,several/b}') > 0 AS token;
TABLE holds;
-- An array that is one is taken as such.
SELECT array_length(zk_lock_set('{several/a,several/b}'::text[]), 1) AS length;
SELECT zk_unlock_set('{several/a,several/b}'::varchar[]);
TABLE holds;
-- Its subscripts do not matter.
SELECT array_length(zk_lock_set('[5:6]={several/a,several/b}'::text[], modes => '[0:1]={shared,exclusive}'::text[]), 1) AS length;
TABLE holds;
SELECT zk_unlock_all();

-- Nothing asked, nothing done: not even a connection is needed.
SELECT zk_disconnect();
SELECT zk_lock_set('{}'::text[]), zk_xact_lock_set('{}'::text[], '0'), zk_lock_set('{}'::text[], NULL, '{}'),
	zk_try_lock_set('{}'::text[]), zk_try_xact_lock_set('{}'::text[], '1 second', '{}'),
	zk_unlock_set('{}'::text[]), zk_unlock_set('{}'::text[], '{}');
SELECT state FROM zk_session;

--
-- Modes
--
SELECT array_length(zk_lock_set(ARRAY['several/a', 'several/b', 'several/c'], NULL, ARRAY['shared', 'exclusive', 'shared']), 1) AS length;
TABLE holds;
SELECT pg_temp.queue('several/a') AS a, pg_temp.queue('several/b') AS b, pg_temp.queue('several/c') AS c;
-- What was taken shared is released so.
SELECT zk_unlock_set(ARRAY['several/a', 'several/b']);
SELECT zk_unlock_set(ARRAY['several/a', 'several/c'], ARRAY['shared', 'shared']);
TABLE holds;
SELECT zk_try_lock_set(ARRAY['several/a', 'several/b'], modes => ARRAY['shared', 'shared']);
SELECT zk_unlock_shared('several/b'), zk_unlock_shared('several/a');
TABLE holds;

-- One name in both modes: exclusive first, whatever the order, for the other way
-- round it would be an upgrade. One node, one token.
SELECT zk_lock_set(ARRAY['several/a', 'several/a'], NULL, ARRAY['shared', 'exclusive']) AS tokens \gset
SELECT (:'tokens'::bigint[])[1] = (:'tokens'::bigint[])[2] AS same_token;
TABLE holds;
SELECT pg_temp.queue('several/a');
SELECT zk_unlock_set(ARRAY['several/a', 'several/a'], ARRAY['exclusive', 'shared']);
TABLE holds;
SELECT pg_temp.queue('several/a');

--
-- Counts
--

-- A name that comes twice is counted twice.
SELECT zk_lock_set(ARRAY['several/a', 'several/b', 'several/a']) AS tokens \gset
SELECT (:'tokens'::bigint[])[1] = (:'tokens'::bigint[])[3] AS same_token;
TABLE holds;
SELECT zk_unlock_set(ARRAY['several/a', 'several/a', 'several/a', 'several/b']);
TABLE holds;
-- What is held already is counted, too, and keeps its token.
SELECT zk_lock('several/b') AS token \gset
SELECT (zk_lock_set(ARRAY['several/a', 'several/b']))[2] = :token AS same_token;
TABLE holds;
SELECT zk_unlock_set(ARRAY['several/a', 'several/b']);
TABLE holds;
SELECT zk_is_held('several/b'), zk_unlock('several/b');

--
-- Errors
--
SELECT zk_lock_set(NULL::text[]);
\echo :SQLSTATE
SELECT zk_try_xact_lock_set(NULL::text[]);
SELECT zk_unlock_set(NULL::text[]);
SELECT zk_lock_set(ARRAY['several/a', NULL]);
\echo :SQLSTATE
SELECT zk_unlock_set(ARRAY['several/a', NULL]);
SELECT zk_lock_set(ARRAY[['several/a', 'several/b'], ['several/c', 'several/d']]);
\echo :SQLSTATE
SELECT zk_lock_set(ARRAY['several/a', 'several/b'], NULL, ARRAY['shared']);
\echo :SQLSTATE
SELECT zk_lock_set('{}'::text[], NULL, ARRAY['shared']);
SELECT zk_lock_set(ARRAY['several/a', 'several/b'], NULL, ARRAY['shared', 'Shared']);
\echo :SQLSTATE
SELECT zk_lock_set(ARRAY['several/a', 'several/b'], NULL, ARRAY['shared', NULL]);
\echo :SQLSTATE
SELECT zk_lock_set(ARRAY['several/a'], NULL, ARRAY[['shared']]);
SELECT zk_lock_set(ARRAY['several/a', 'several//b']);
\echo :SQLSTATE
SELECT zk_unlock_set(ARRAY['several/a', '']);
SELECT zk_lock_set(ARRAY['several/a'], '-1 ms');
\echo :SQLSTATE
SELECT zk_try_lock_set(ARRAY['several/a'], NULL);
\echo :SQLSTATE
SELECT zk_try_xact_lock_set('{}'::text[], NULL);

-- What is refused in the middle leaves nothing taken.
SELECT zk_lock_shared('several/z') > 0 AS token;
SELECT zk_lock_set(ARRAY['several/a', 'several/z']);
\echo :SQLSTATE
TABLE holds;
SELECT pg_temp.queue('several/a');
SELECT zk_unlock_shared('several/z');
-- zklock.max_locks counts locks, not names.
SET zklock.max_locks = 3;
SELECT zk_lock('several/b') > 0 AS token;
SELECT zk_lock_set(ARRAY['several/a', 'several/b', 'several/c', 'several/d']);
\echo :SQLSTATE
TABLE holds;
SELECT array_length(zk_lock_set(ARRAY['several/a', 'several/b', 'several/c', 'several/a', 'several/c'],
	NULL, ARRAY['exclusive', 'exclusive', 'exclusive', 'shared', 'exclusive']), 1) AS length;
TABLE holds;
SELECT zk_try_lock_set(ARRAY['several/a', 'several/d']);
TABLE holds;
SELECT zk_unlock_all();
RESET zklock.max_locks;

-- The snapshot trap is told of once.
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT array_length(zk_xact_lock_set(ARRAY['several/a', 'several/b', 'several/c']), 1) AS length;
SELECT array_length(zk_xact_lock_set(ARRAY['several/a', 'several/b', 'several/c']), 1) AS length;
COMMIT;

--
-- Transactions
--

-- Released at the end, or with the savepoint.
BEGIN;
SELECT array_length(zk_xact_lock_set(ARRAY['several/b', 'several/a', 'several/b']), 1) AS length;
SAVEPOINT s;
SELECT array_length(zk_xact_lock_set(ARRAY['several/b', 'several/c']), 1) AS length;
TABLE holds;
ROLLBACK TO s;
TABLE holds;
SELECT array_length(zk_lock_set(ARRAY['several/b', 'several/c']), 1) AS length;
ROLLBACK;
TABLE holds;
SELECT zk_unlock_set(ARRAY['several/b', 'several/c']);
-- An error that is caught leaves what was there before.
BEGIN;
SELECT array_length(zk_xact_lock_set(ARRAY['several/a', 'several/b']), 1) AS length;
DO $$
BEGIN
	PERFORM zk_xact_lock_set(ARRAY['several/a', 'several/c']), zk_lock_set(ARRAY['several/s']);
	PERFORM zk_xact_lock_set(ARRAY['several/d', 'several//']);
EXCEPTION WHEN invalid_name THEN
	RAISE NOTICE '%', SQLERRM;
END $$;
TABLE holds;
COMMIT;
SELECT zk_unlock('several/s');
TABLE holds;
-- zk_unlock() takes from session scope only.
BEGIN;
SELECT array_length(zk_xact_lock_set(ARRAY['several/a', 'several/b']), 1) AS length;
SELECT zk_unlock_set(ARRAY['several/a', 'several/b']);
COMMIT;

--
-- A name and its ancestors
--
SELECT zk_lock_path('several/db/table') AS token \gset
SELECT zk_fencing_token('several/db/table') = :token AS leaf;
SELECT name, mode, session_acquisitions FROM zk_session_locks ORDER BY token;
SELECT pg_temp.queue('several') AS several, pg_temp.queue('several/db') AS db, pg_temp.queue('several/db/table') AS "table";
-- Another below the same ancestors, which are then held twice.
SELECT zk_try_lock_path('several/db/other'), zk_lock_path('several/db/third', mode => 'shared') > 0 AS token;
TABLE holds;
SELECT zk_unlock_path('several/db/table');
SELECT zk_unlock_path('several/db/other'), zk_unlock_path('several/db/third', 'shared');
TABLE holds;
-- A name without ancestors is itself.
SELECT zk_lock_path('several') > 0 AS token, zk_try_lock_path('several', '1 second');
TABLE holds;
-- Who holds an ancestor exclusively may go below it.
SELECT zk_lock_path('several/db') > 0 AS token;
TABLE holds;
SELECT zk_unlock_path('several/db'), zk_unlock('several'), zk_unlock_path('several');
TABLE holds;
-- But the other way round is an upgrade.
SELECT zk_lock_path('several/db') > 0 AS token;
SELECT zk_lock('several');
\echo :SQLSTATE
SELECT zk_unlock_path('several/db');

-- The forms of transaction scope
BEGIN;
SELECT zk_xact_lock_path('several/db') > 0 AS token, zk_try_xact_lock_path('several/db/a'),
	zk_xact_lock_path('several/db/b', mode => 'shared') > 0 AS token, zk_try_xact_lock_path('several/db/c', mode => 'shared');
TABLE holds;
SELECT zk_unlock_path('several/db');
COMMIT;
TABLE holds;
SELECT zk_try_lock_path('several/db', mode => 'shared'), zk_unlock_path('several/db', 'shared');
TABLE holds;
-- None of several is kept.
SET zklock.keep = '1 h';
SELECT zk_unlock_set(ARRAY['several/a']) FROM zk_lock_set(ARRAY['several/a']);
SELECT name, state FROM zk_session_locks;
RESET zklock.keep;
-- as many ancestors as there may be
SELECT zk_try_lock_path('several/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16');
SELECT count(*), max(name) FILTER (WHERE mode = 'exclusive') AS exclusive FROM zk_session_locks;
SELECT zk_unlock_path('several/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16');

-- The shape of the name, and the rest of the arguments
SELECT zk_lock_path(NULL);
\echo :SQLSTATE
SELECT zk_unlock_path(NULL);
SELECT zk_lock_path('several//db');
SELECT zk_lock_path('several/db/');
SELECT zk_lock_path('');
SELECT zk_unlock_path('/several', 'shared');
SELECT zk_try_lock_path('several/db', NULL);
SELECT zk_lock_path('several/db', '-1 s');
SELECT zk_lock_path('several/db', mode => 'share');
\echo :SQLSTATE
SELECT zk_try_xact_lock_path('several/db', mode => NULL);
\echo :SQLSTATE
SELECT zk_unlock_path('several/db', '1 s');
-- nothing of it is left
TABLE holds;
SELECT zk_disconnect();
