--
-- CREATE EXTENSION makes the objects that are listed here, and the extension can be
-- dropped, created in another schema, and moved.
--

-- Members
SELECT pg_describe_object(classid, objid, 0) COLLATE "C" AS member
FROM pg_depend
WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
	AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zklock')
	AND classid <> 'pg_type'::regclass
ORDER BY member;

CREATE VIEW pg_temp.functions AS
	SELECT p.* FROM pg_depend d JOIN pg_proc p ON d.objid = p.oid
	WHERE d.classid = 'pg_proc'::regclass AND d.refclassid = 'pg_extension'::regclass
		AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zklock');

-- Their arguments and results: what others call from their code.
SELECT proname AS name, pg_get_function_arguments(oid) COLLATE "C" AS arguments,
	pg_get_function_result(oid) AS result
FROM pg_temp.functions WHERE proname NOT IN ('_zk_contenders', 'zk_all_locks', 'zk_check', 'zk_locks', 'zk_backends', 'zk_lock_queue', 'zk_session_locks', 'zk_runs', 'zk_session', 'zk_stat', 'zk_waits', 'zk_who', '_zk_waits_in_postgres')
ORDER BY name, arguments;

-- Most drivers leave the types of parameters open. PostgreSQL finds the types, because no second
-- function has the same name and takes as many.
CREATE FUNCTION pg_temp.types_of_open_parameters(name name, count integer) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	types text;
BEGIN
	EXECUTE format('PREPARE driver AS SELECT %I(%s)', name,
		(SELECT string_agg('$' || i, ', ') FROM generate_series(1, count) AS i));
	SELECT parameter_types::text INTO types FROM pg_prepared_statements AS s WHERE s.name = 'driver';
	DEALLOCATE driver;
	RETURN types;
EXCEPTION WHEN ambiguous_function THEN
	RETURN SQLERRM;
END $$;
WITH found AS (
	SELECT p.oid::regprocedure AS function, count,
		(p.proargtypes::regtype[])[0:count - 1]::text AS wanted,
		pg_temp.types_of_open_parameters(p.proname, count) AS types
	FROM pg_temp.functions AS p, generate_series(p.pronargs::integer - p.pronargdefaults, p.pronargs) AS count
	WHERE p.prokind = 'f' AND p.proname ~ '^zk_'
)
SELECT function::text COLLATE "C" AS function, count, wanted, types FROM found
WHERE regexp_replace(wanted, '^.*=', '') IS DISTINCT FROM types
UNION ALL
SELECT NULL, count(*), NULL, 'more than eighty calls' FROM found HAVING count(*) > 80
ORDER BY 1, 2;

-- None may be moved to a parallel worker, evaluated ahead, or skipped for NULL.
-- Those that write must not even run in a parallel query's leader.
SELECT oid::regprocedure::text COLLATE "C" AS exception, provolatile, proparallel, proisstrict, prosecdef
FROM pg_temp.functions
WHERE provolatile <> 'v' OR proparallel <> 'r' OR proisstrict OR prosecdef
ORDER BY exception;

-- No body calls what may be moved, or run by fewer, than the function itself.
SELECT p.oid::regprocedure::text COLLATE "C" AS function, f.oid::regprocedure AS calls,
	f.provolatile, f.proparallel
FROM pg_temp.functions AS p,
	LATERAL (SELECT DISTINCT m[1]::oid AS oid
		FROM regexp_matches(p.prosqlbody::text, ':(?:funcid|opfuncid|aggfnoid|winfnoid) (\d+)', 'g') AS m) AS called
	JOIN pg_proc AS f USING (oid)
WHERE strpos('isv', f.provolatile::text) > strpos('isv', p.provolatile::text)
	OR strpos('sru', f.proparallel::text) > strpos('sru', p.proparallel::text)
ORDER BY 1, 2;

-- What asks ZooKeeper costs more than other conditions, which then are checked first.
SELECT count(*) FROM (SELECT concat('k', i) AS k FROM generate_series(1, 9) AS i) AS job
WHERE zk_try_lock('cost/' || k) AND k = 'k5';
SELECT string_agg(name, ' ') FROM zk_session_locks;
SELECT zk_unlock_all();

-- Each explains itself.
SELECT oid::regprocedure AS uncommented FROM pg_temp.functions
WHERE obj_description(oid, 'pg_proc') IS NULL;
SELECT c.oid::regclass AS uncommented
FROM pg_depend d JOIN pg_class c ON d.objid = c.oid
WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_extension'::regclass
	AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zklock')
	AND obj_description(c.oid, 'pg_class') IS NULL;
SELECT a.attrelid::regclass AS relation, a.attname AS uncommented
FROM pg_depend d JOIN pg_attribute a ON d.objid = a.attrelid
WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_extension'::regclass
	AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zklock')
	AND a.attnum > 0 AND NOT a.attisdropped
	AND col_description(a.attrelid, a.attnum) IS NULL;

-- The roles explain themselves, too, unless another database made them before.
SELECT rolname, shobj_description(oid, 'pg_authid') IS NULL AS uncommented
FROM pg_roles WHERE rolname IN ('zklock_job', 'zklock_operator') ORDER BY rolname;

-- What pg_stat_activity has is called the same; and no column is a reserved word.
SELECT p.proname, a.name
FROM pg_temp.functions AS p, unnest(p.proargnames) AS a(name)
WHERE a.name ~ '(^|_)(database|username|user|application|process)$'
	OR a.name IN (SELECT word FROM pg_get_keywords() WHERE catcode = 'R');

-- Who may not call what
SELECT oid::regprocedure::text COLLATE "C" AS function,
	has_function_privilege('pg_monitor', oid, 'EXECUTE') AS pg_monitor,
	has_function_privilege('zklock_job', oid, 'EXECUTE') AS zklock_job,
	has_function_privilege('zklock_operator', oid, 'EXECUTE') AS zklock_operator
FROM pg_temp.functions
WHERE NOT EXISTS (SELECT FROM aclexplode(coalesce(proacl, acldefault('f', proowner)))
				  WHERE grantee = 0 AND privilege_type = 'EXECUTE')
ORDER BY function;
DROP VIEW pg_temp.functions;

-- Who but the owner may do what with tables and views
SELECT c.relname AS relation, a.grantee::regrole AS grantee,
	string_agg(a.privilege_type, ' ' ORDER BY a.privilege_type COLLATE "C") AS privileges
FROM pg_depend d JOIN pg_class c ON d.objid = c.oid, aclexplode(c.relacl) AS a
WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_extension'::regclass
	AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zklock')
	AND a.grantee <> c.relowner
GROUP BY 1, 2
ORDER BY c.relname, a.grantee::regrole::text COLLATE "C";

-- Dropped while a lock is held, and made again in another schema: the lock is
-- the session's, not the extension's. Until then DISCARD ALL lets go of it.
SELECT zk_lock('extension') AS token \gset
DROP EXTENSION zklock;
\set VERBOSITY terse
SELECT zk_lock('extension');
CREATE SCHEMA zklock_elsewhere;
CREATE EXTENSION zklock SCHEMA zklock_elsewhere;
SELECT zk_lock('extension');
\set VERBOSITY default
SELECT zklock_elsewhere.zk_is_held('extension'),
	zklock_elsewhere.zk_fencing_token('extension') = :token AS same_token;
SELECT name, session_acquisitions FROM zklock_elsewhere.zk_session_locks;
SELECT zklock_elsewhere.zk_lock('extension') = :token AS same_token;

-- Moved
CREATE SCHEMA zklock_moved;
ALTER EXTENSION zklock SET SCHEMA zklock_moved;
SELECT name, session_acquisitions FROM zklock_moved.zk_session_locks;
-- what calls and writes others of its own finds them, too
SELECT zklock_moved.zk_fence('extension');
SELECT name, token = :token AS same_token FROM zklock_moved.zk_fences;
SELECT zklock_moved.zk_unlock('extension'), zklock_moved.zk_unlock('extension');
SELECT count(*) FROM zklock_moved.zk_lock_queue('extension');

-- As it was
ALTER EXTENSION zklock SET SCHEMA public;
DROP SCHEMA zklock_elsewhere;
DROP SCHEMA zklock_moved;
SELECT zk_try_lock('extension'), zk_unlock('extension');

-- An ordinary user cannot install a library that does network I/O.
CREATE ROLE regress_zklock_extension;
DROP EXTENSION zklock;
SET ROLE regress_zklock_extension;
CREATE EXTENSION zklock;
RESET ROLE;

-- What default privileges give to a role whose name must be quoted is taken away.
ALTER ROLE regress_zklock_extension RENAME TO "regress_zklock-extension";
ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO "regress_zklock-extension";
ALTER DEFAULT PRIVILEGES GRANT ALL ON ROUTINES TO "regress_zklock-extension";
CREATE EXTENSION zklock;
ALTER DEFAULT PRIVILEGES REVOKE ALL ON TABLES FROM "regress_zklock-extension";
ALTER DEFAULT PRIVILEGES REVOKE ALL ON ROUTINES FROM "regress_zklock-extension";
-- nothing is left, or it could not be dropped
DROP ROLE "regress_zklock-extension";

-- pg_upgrade could not make it there anew.
DROP EXTENSION zklock;
\set VERBOSITY terse
CREATE EXTENSION zklock SCHEMA pg_catalog;
\set VERBOSITY default

-- Settings that change how PostgreSQL writes names, and up to 18 how it reads a script
SELECT current_setting('server_version_num')::int < 190000 AS has_escapes \gset
BEGIN;
SET LOCAL quote_all_identifiers = on;
\if :has_escapes
SET LOCAL standard_conforming_strings = off;
\endif
CREATE EXTENSION zklock;
ROLLBACK;

-- Event triggers see how it is made elsewhere and moved, and all is part of the extension.
CREATE TABLE ddl (tag text, identity text, in_extension boolean);
CREATE FUNCTION write_down() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO public.ddl SELECT command_tag, object_identity, in_extension
	FROM pg_event_trigger_ddl_commands();
END $$;
CREATE EVENT TRIGGER write_down ON ddl_command_end EXECUTE FUNCTION write_down();
CREATE EXTENSION zklock;
SELECT tag, identity FROM ddl WHERE NOT in_extension OR tag LIKE '%SCHEMA';
DROP EVENT TRIGGER write_down;
DROP FUNCTION write_down();
DROP TABLE ddl;
SELECT zk_try_lock('extension'), zk_unlock('extension');

-- Functions that another version has created return other columns, or the same number of
-- others: they do not fit the library, and say so.
SELECT zk_try_lock('extension');
CREATE FUNCTION pg_temp.former_locks(OUT name text, OUT mode text, OUT state text, OUT session integer,
	OUT call integer, OUT xact integer, OUT token bigint, OUT node text, OUT granted_at timestamptz,
	OUT permits integer, OUT root text)
RETURNS SETOF record AS '$libdir/zklock', 'zk_locks' LANGUAGE C;
SELECT * FROM pg_temp.former_locks();
CREATE FUNCTION pg_temp.former_locks(short boolean, OUT pid integer, OUT name text)
RETURNS SETOF record AS '$libdir/zklock', 'zk_locks' LANGUAGE C;
SELECT * FROM pg_temp.former_locks(true);
CREATE FUNCTION pg_temp.former_leader(name text, OUT owner text, OUT token bigint)
RETURNS record AS '$libdir/zklock', 'zk_leader' LANGUAGE C;
\set VERBOSITY terse
SELECT * FROM pg_temp.former_leader('extension');
\set VERBOSITY default
SELECT zk_unlock('extension');
