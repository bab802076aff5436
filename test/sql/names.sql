--
-- A lock name becomes a path in ZooKeeper: names that ZooKeeper cannot take, or would
-- take for something else, are refused before anything is sent, with the reason.
--

-- What is said against a command, one line each: SQLSTATE and message, detail,
-- hint. Names that are too long to read are cut, characters that cannot be read
-- replaced.
CREATE FUNCTION pg_temp.refusal(command text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	state text;
	message text;
	detail text;
	hint text;
BEGIN
	EXECUTE command;
	RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE,
		message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL,
		hint = PG_EXCEPTION_HINT;
	message := regexp_replace(message, '(.)\1{99,}', '\1...');
	message := regexp_replace(message, '[^ -~é]', '?', 'g');
	detail := regexp_replace(detail, '(.)\1{99,}', '\1...');
	RETURN state || ': ' || message
		|| coalesce(E'\n' || nullif(detail, ''), '')
		|| coalesce(E'\n' || nullif(hint, ''), '');
END $$;

-- Take and release a lock of that name: is it held in between, and is all as
-- it was afterwards?
CREATE FUNCTION pg_temp.works(name text) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
	token bigint := zk_lock(name);
BEGIN
	RETURN token > 0 AND zk_fencing_token(name) = token AND zk_is_held(name)
		AND (SELECT count(*) FROM zk_session_locks l WHERE l.name = works.name) = 1
		AND zk_unlock(name)
		AND zk_fencing_token(name) IS NULL AND NOT zk_is_held(name);
END $$;

\pset format unaligned
\pset tuples_only on

-- Bad names
SELECT pg_temp.refusal(format('SELECT zk_lock(%L)', name)) || E'\n'
FROM (VALUES
	(1, ''),
	-- slashes
	(2, '/'), (3, '/absolute'), (4, 'trailing/'), (5, 'double//slash'),
	-- dots
	(6, '.'), (7, '..'), (8, 'team/../other'), (9, 'team/./other'),
	-- control characters, C1 too
	(10, E'tab\there'), (11, E'two\nlines'), (12, E'delete\x7F'),
	(13, U&'next line\0085'),
	-- characters that ZooKeeper refuses
	(14, U&'private use \E000'), (15, U&'not a character \FFFF'),
	(16, U&'emoji \+01F600'),
	-- what other clients call their queue entries, where the queue of another name may be
	(17, 'team/_c_6ba7b810-9dad-41d1-80b4-00c04fd430c8-lock-1234567890'), (18, 'a/b__lock__1'),
	(19, 'team/x__rlock__0000000001/part'), (20, '1234567890/LOCK-EXCLUSIVE-12345678901'),
	(21, 'é/__READ__5'), (22, U&'a/b-__WRIT__1/\+01F600'),
	-- or in the root, which may be the znode of a lock below another root
	(33, '_c_6ba7b810-9dad-41d1-80b4-00c04fd430c8-lock-0000000001'), (34, 'x__lock__7/part'),
	-- length: in bytes
	(23, repeat('x', 513)), (24, 'x' || repeat('é', 257)),
	(25, repeat('x', 10000)),
	-- components
	(35, repeat('d/', 16) || 'd'),
	-- what lies beside locks
	(26, '.once'), (27, 'job.once'), (28, '.once/job.once'), (29, 'team.once/job'),
	(30, 'job.release'), (31, '.release/x'), (32, 'a/b.release/c')) AS bad (i, name)
ORDER BY i;

-- Good names
SELECT rpad(left(name, 30), 30), pg_temp.works(name)
FROM (VALUES
	(1, 'names'), (2, 'names/team/nightly'), (3, 'names/a/b/c/d/e/f/g/h'),
	-- other alphabets, in one, two and three bytes
	(4, 'names/é'), (5, 'names/漢字'), (6, 'names/Ж'), (7, 'names/ﬁ'),
	-- ASCII that means something elsewhere
	(8, 'names/with space'), (9, 'names/it''s "quoted"'), (10, 'names/100 %s'),
	(11, 'names/a\b'), (12, 'names/a:b,c;d?e#f&g'), (13, 'names/ '),
	-- dots, but not only one or two
	(14, 'names/...'), (15, 'names/.hidden'), (16, 'names/v1.2'), (17, 'names/..x'),
	(26, 'names/once'), (27, 'names/.once.x'), (28, 'names/x.Once'),
	-- ids, also those that look like the numbers of queue entries
	(18, 'names/order-123456789'), (19, 'names/123456789'), (20, 'names/order-1234567890'),
	(21, 'names/1234567890/1000000000'), (33, 'names/0000000001'), (34, 'names/order--000000001'),
	(35, 'names/' || 9223372036854775807), (36, 'names/' || -9223372036854775808),
	(37, 'names/' || repeat('7', 506)), (38, 'names/lock-0000000001'), (39, 'names/report/2026112700'),
	-- there is no queue in the root
	(29, 'order-1234567890'), (30, '0000000001'), (31, 'lock-0000000001/part'),
	(32, 'order--000000001'),
	-- ZooKeeper's own name is free below a root
	(22, 'zookeeper'), (23, 'names/zookeeper'),
	-- length: in bytes
	(24, 'names/' || repeat('x', 506)),
	(25, 'names/' || repeat('é', 253))) AS good (i, name)
ORDER BY i;

\pset format aligned
\pset tuples_only off

-- Names are compared byte by byte: these are six locks.
SELECT zk_lock('names/case') <> zk_lock('names/CASE') AS differ_in_case,
	zk_lock(U&'names/\00E9') <> zk_lock(U&'names/e\0301') AS differ_in_bytes,
	zk_lock('names/seen') <> zk_lock(U&'names/se\200Ben') AS differ_unseen;
SELECT count(*) FROM zk_session_locks;
SELECT zk_unlock_all();

-- Where names are told to others there is room for 127 bytes of each, cut at a character.
SELECT count(zk_lock(name)) FROM unnest(ARRAY[repeat('x', 127), repeat('y', 128),
	repeat('z', 126) || U&'\00E9']) AS name;
SELECT left(name, 1) AS name, octet_length(name) FROM zk_locks WHERE pid = pg_backend_pid() ORDER BY 1;
SELECT zk_unlock_all();

-- A lock and another one below it have nothing to do with each other, though
-- the second stands among the first one's queue entries.
SELECT zk_lock('names/parent') > 0 AS parent, zk_lock('names/parent/child') > 0 AS child;
SELECT "position", state, style, node = 'child' AS is_child
FROM zk_lock_queue('names/parent') ORDER BY "position";
SELECT zk_unlock('names/parent/child');
SELECT zk_is_held('names/parent') AS parent, zk_is_held('names/parent/child') AS child;
-- The other way round: a lock is free whose znode exists because of another.
SELECT zk_try_lock('names/outer/inner') AS inner, zk_try_lock('names/outer') AS outer;
SELECT zk_unlock_all();

-- Nor has it to do with those below it whose names are numbers; each bigint has a lock.
SELECT count(zk_lock('names/ids/' || id)) AS below, bool_and(zk_try_lock('names/ids')) AS above
FROM unnest(ARRAY[0, 999999999, 1000000000, 2147483647, 4294967296, 1700000000000, 9223372036854775807,
	-1, -1000000000]) AS id;
SELECT "position", state, style, count(*) FROM zk_lock_queue('names/ids') GROUP BY 1, 2, 3 ORDER BY 1;
SELECT count(*), sum(holder_count), sum(waiter_count), count(*) FILTER (WHERE name = 'names/ids') AS above
FROM zk_all_locks('names/ids');
SELECT zk_unlock_all();

-- Names in the root that look like queue entries are locks like others: they
-- exclude, are shown, and are in nobody's way.
SELECT zk_lock('order-0000000001') > 0 AS first, zk_lock('order-0000000002') > 0 AS second,
	zk_try_lock('names') AS other;
SELECT name, holder_count FROM zk_all_locks() WHERE name LIKE 'order-%' ORDER BY name;
SELECT * FROM zk_all_locks('order-0000000002');
SELECT count(*) AS contenders FROM zk_lock_queue('order-0000000001');
SELECT zk_unlock_all();

-- With "/" as root the name is the whole path. Without a chroot it could lead to what is
-- ZooKeeper's own: test/t/132_limits.pl.
BEGIN;
SET LOCAL zklock.root = '/';
SELECT pg_temp.works('zookeeper_zklock_test');
ROLLBACK;

-- One lock under two roots: what is held keeps the name and the root it was taken by.
BEGIN;
SELECT zk_xact_lock('names/root') AS token \gset
SELECT root FROM zk_session_locks \gset
SELECT set_config('zklock.root', rtrim(current_setting('zklock.root'), '/') || '/names', true) <> '' AS other_root;
SELECT zk_xact_lock('root') = :token AS same_token;
SELECT name, root = :'root' AS same_root, xact_acquisitions FROM zk_session_locks;
ROLLBACK;

-- A NULL name is an error in every function that takes one: a NULL result would
-- let the caller go on without the lock. Those that only compute need not care.
SELECT p.oid::regprocedure AS function,
	pg_temp.refusal(format('%s %I(NULL::text%s)',
		CASE p.prokind WHEN 'p' THEN 'CALL' ELSE 'SELECT * FROM' END, p.proname,
		repeat(', NULL', p.pronargs - p.pronargdefaults - 1))) AS refusal
FROM pg_proc p
	JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
	JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
WHERE e.extname = 'zklock' AND p.proargtypes[0] = 'text'::regtype AND p.provolatile = 'v'
	AND p.proname <> '_zk_fence_claim'
ORDER BY p.oid::regprocedure::text COLLATE "C";

-- A list is not a name. Drivers send one as the text of an array where the type of a
-- parameter is not known, so every function with a name (or a prefix of names) meets it,
-- alone or as one of several names. Here are those that do not say so.
WITH refusals AS (
	SELECT p.oid::regprocedure AS function,
		pg_temp.refusal(format('%s %I(%s)',
			CASE p.prokind WHEN 'p' THEN 'CALL' ELSE 'SELECT * FROM' END, p.proname,
			(SELECT string_agg(format('%L::%s', CASE format_type(type, NULL)
					WHEN 'text' THEN CASE i WHEN 1 THEN '{acct-1,acct-2}' ELSE 'x' END
					WHEN 'text[]' THEN '{acct-1,"{acct-1,acct-2}"}'
					WHEN 'interval' THEN '5 s'
					WHEN 'boolean' THEN 'true' ELSE '1' END, format_type(type, NULL)), ', ' ORDER BY i)
				FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY AS a(type, i)
				WHERE i <= greatest(1, p.pronargs - p.pronargdefaults)))) AS refusal
	FROM pg_proc p
		JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
		JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
	WHERE e.extname = 'zklock' AND p.proargnames[1] IN ('name', 'names', 'prefix')
		AND p.pronargs > 0 AND p.provolatile = 'v' AND p.proname <> '_zk_fence_compare')
SELECT function, refusal FROM refusals
WHERE refusal NOT LIKE '42602: invalid lock name "{acct-1,acct-2}"%'
UNION ALL
SELECT NULL, 'more than thirty say so' FROM refusals WHERE refusal LIKE '42602:%zk_lock_set()%' HAVING count(*) > 30
ORDER BY 1;

\pset format unaligned
\pset tuples_only on
SELECT pg_temp.refusal(format('SELECT %s', command)) || E'\n'
FROM (VALUES
	(1, 'zk_try_lock(''{acct-1,acct-2}'')'), (2, 'zk_run_once(''job'', ''{a,b}'')'),
	(3, format('zk_lock(%L)', '{' || repeat(',', 600) || '}')),
	(4, 'zk_try_lock(''["acct-1", "acct-2"]'')'), (5, 'zk_run_once(''job'', ''[1, 2]'')')) AS list (i, command)
ORDER BY i;
SELECT rpad(name, 30), pg_temp.works(name)
FROM unnest(ARRAY['{', '{a', 'a}', '{user}:1', '{a}/{b}', 'a{1,2}', '[user]:1', '[a]/[b]', 'a[1]']) AS name;
\pset format aligned
\pset tuples_only off

-- Nor did any of the refused names leave something behind.
SELECT * FROM zk_session_locks;
