--
-- The settings of zklock: their defaults, the values that they refuse, and the roles
-- that may set them.
--
SELECT name, boot_val, unit, context, vartype, min_val, max_val, enumvals
FROM pg_settings WHERE name LIKE 'zklock.%' ORDER BY name;
-- Each is described.
SELECT name FROM pg_settings WHERE name LIKE 'zklock.%' AND coalesce(short_desc, '') = '';

-- Units
SET zklock.session_timeout = '20s';
SHOW zklock.session_timeout;
SET zklock.connect_timeout = '1min';
SHOW zklock.connect_timeout;
RESET zklock.session_timeout;
RESET zklock.connect_timeout;

--
-- Refused values
--
-- PostgreSQL's own words for these two and for that of SHOW below have changed.
\set VERBOSITY sqlstate
SET zklock.session_timeout = '10ms';
SET zklock.connect_timeout = 0;
\set VERBOSITY default
SET zklock.max_locks = 0;
SET zklock.max_creates = -1;
SET zklock.commit_guard = 'on';
SET zklock.session_scope = 'deny';
SET zklock.snapshot_warning = 'perhaps';
-- a setting that does not exist: most likely a misspelt one
SET zklock.sessiontimeout = '20s';
\echo :SQLSTATE

-- Servers. Nobody reloads before they are as they were.
ALTER SYSTEM SET zklock.servers = ',';
ALTER SYSTEM SET zklock.servers = 'zk1.example.org:2181,';
ALTER SYSTEM SET zklock.servers = 'nohost:';
ALTER SYSTEM SET zklock.servers = ':2181';
ALTER SYSTEM SET zklock.servers = 'a:0';
ALTER SYSTEM SET zklock.servers = 'a:99999';
ALTER SYSTEM SET zklock.servers = 'a:port';
ALTER SYSTEM SET zklock.servers = 'two words:2181';
ALTER SYSTEM SET zklock.servers = '[::1';
ALTER SYSTEM SET zklock.servers = '::1:2181';
ALTER SYSTEM SET zklock.servers = 'zk1.example.org:2181/';
ALTER SYSTEM SET zklock.servers = 'zk1.example.org:2181/trailing/';
ALTER SYSTEM SET zklock.servers = 'zk1.example.org:2181/double//slash';
ALTER SYSTEM SET zklock.servers = '/only/chroot';
-- Good ones. They have no server in common with the list in use, whatever that is.
ALTER SYSTEM SET zklock.servers = 'zk1.example.org';
ALTER SYSTEM SET zklock.servers = 'zk1.example.org:2181,zk2.example.org:2181,zk3.example.org:2182';
ALTER SYSTEM SET zklock.servers = '10.0.0.1:2181,[::1]:2181,[2001:db8::1]:2182/chroot/deeper';
ALTER SYSTEM RESET zklock.servers;
-- Of the whole cluster, and of nobody else.
\set VERBOSITY sqlstate
SET zklock.servers = 'zk1.example.org';
ALTER ROLE CURRENT_USER SET zklock.servers = 'zk1.example.org';
\set VERBOSITY default

-- Root
SET zklock.root = '';
SET zklock.root = 'relative';
SET zklock.root = '/trailing/';
SET zklock.root = '/double//slash';
SET zklock.root = '/zookeeper';
SET zklock.root = '/zookeeper/x';
SET zklock.root = '/up/../x';
SET zklock.root = '/team/queue-0000000001';
SELECT set_config('zklock.root', '/' || repeat('x', 256), false);
-- good ones
SET zklock.root = '/';
SET zklock.root = '/zookeepers';
SET zklock.root = '/a/b/c';
SHOW zklock.root;
SELECT length(set_config('zklock.root', '/' || repeat('x', 255), false));
RESET zklock.root;

-- Roots for the lease worker. Nobody reloads before they are as they were.
ALTER SYSTEM SET zklock.lease_roots = 'relative';
ALTER SYSTEM SET zklock.lease_roots = '/good, /trailing/';
ALTER SYSTEM SET zklock.lease_roots = '/good /too';
ALTER SYSTEM SET zklock.lease_roots = '/good,';
SELECT format('ALTER SYSTEM SET zklock.lease_roots = %L', '/good, /' || repeat('x', 256)) AS statement \gset
\set VERBOSITY sqlstate
:statement;
SET zklock.lease_roots = '/good';
\set VERBOSITY default
-- good ones
ALTER SYSTEM SET zklock.lease_roots = '/';
ALTER SYSTEM SET zklock.lease_roots = '/tenants/payroll, "/tenants/a, b","/with ""quotes"""';
ALTER SYSTEM RESET zklock.lease_roots;

-- Names under different roots are different locks, and one that is held stays
-- held when the root changes.
SELECT zk_lock('settings/root') > 0 AS token;
SELECT root FROM zk_session_locks \gset
SELECT set_config('zklock.root', rtrim(current_setting('zklock.root'), '/') || '/elsewhere', false) <> '' AS changed;
SELECT zk_is_held('settings/root');
SELECT zk_try_lock('settings/root');
SELECT name, node LIKE rtrim(:'root', '/') || '/settings/root%' AS old_root FROM zk_session_locks ORDER BY 2;
SELECT zk_unlock('settings/root');
RESET zklock.root;
SELECT zk_is_held('settings/root'), zk_unlock('settings/root');

--
-- Credentials
--

-- A bad value is refused without being repeated.
ALTER SYSTEM SET zklock.auth = 'secret-without-scheme';
ALTER SYSTEM SET zklock.auth = ':secret';
-- So is a file that is not there.
ALTER SYSTEM SET zklock.auth = '@/no/such/file';
-- Of the whole cluster, and of nobody else.
\set VERBOSITY sqlstate
SET zklock.auth = 'digest:user:secret';
ALTER ROLE CURRENT_USER SET zklock.auth = 'digest:user:secret';
\set VERBOSITY default

-- A setting of a session takes effect when nothing is held any more.
SELECT zk_lock('settings/move') > 0 AS token, zk_unlock('settings/move');
SELECT session_id AS former FROM zk_session \gset
SET zklock.session_timeout = '17s';
SELECT zk_lock('settings/move') > 0 AS token, zk_unlock('settings/move');
SELECT session_id = :'former' AS same FROM zk_session;
RESET zklock.session_timeout;

--
-- Session scope can be refused. It is in each form that takes such a lock.
--
SET zklock.session_scope = 'refuse';
SELECT zk_lock('settings/scope');
\echo :SQLSTATE
CALL zk_commit_and_lock('settings/scope');
\echo :SQLSTATE
DO $$
DECLARE
	call text;
	state text;
BEGIN
	-- whatever takes a lock has it in its name
	FOR call IN SELECT format(CASE WHEN prokind = 'p' THEN 'CALL %I(%L::%s)' ELSE 'SELECT %I(%L::%s)' END,
			proname, CASE proargtypes[0] WHEN 'text'::regtype THEN 'a' ELSE '{a}' END,
			proargtypes[0]::regtype)
		FROM pg_proc JOIN pg_depend ON classid = 'pg_proc'::regclass AND objid = pg_proc.oid AND deptype = 'e'
		WHERE proname ~ '^zk_(try_|xact_|call_|commit_and_)*lock(_path|_set|_shared)?$'
		ORDER BY proname COLLATE "C"
	LOOP
		BEGIN
			EXECUTE call;
			state := 'granted';
		EXCEPTION WHEN OTHERS THEN
			state := SQLSTATE;
		END;
		RAISE NOTICE '%: %', call, state;
	END LOOP;
END $$;
SELECT * FROM zk_session_locks;
-- What is held already can be released. One warning a statement will do.
SET zklock.session_scope = 'warn';
SELECT zk_lock_set(ARRAY['settings/one', 'settings/other']) IS NOT NULL AS granted;
CALL zk_commit_and_lock('settings/one');
SET zklock.session_scope = 'refuse';
SELECT zk_try_lock('settings/one');
SELECT zk_unlock('settings/one'), zk_unlock('settings/one'), zk_unlock('settings/other');
RESET zklock.session_scope;

--
-- Ordinary users
--
CREATE ROLE regress_zklock_user;
CREATE ROLE regress_zklock_monitor;
GRANT pg_monitor TO regress_zklock_monitor;

SET ROLE regress_zklock_user;
SELECT zk_lock('settings/user') > 0 AS token;
SELECT name FROM zk_session_locks;
SELECT state FROM zk_session;
SELECT zk_is_held('settings/user'), zk_fencing_token('settings/user') > 0 AS token;
SELECT zk_lock_queue('settings/user');
\echo :SQLSTATE
SET zklock.root = '/elsewhere';
SET zklock.session_timeout = '1min';
SET zklock.commit_guard = 'off';
SET zklock.publish_identity = off;
SET zklock.max_locks = 10000;
SET zklock.max_creates = 0;
SET zklock.session_scope = 'allow';
\set VERBOSITY sqlstate
SHOW zklock.auth;
\set VERBOSITY default
SELECT count(*) FROM pg_settings WHERE name = 'zklock.auth';
SET zklock.connect_timeout = '1s';
SET zklock.snapshot_warning = off;
RESET zklock.connect_timeout;
RESET zklock.snapshot_warning;
RESET ROLE;
-- those who monitor
SET ROLE regress_zklock_monitor;
SELECT state FROM zk_lock_queue('settings/user');
SHOW zklock.auth;
RESET ROLE;
SELECT zk_unlock('settings/user');

DROP ROLE regress_zklock_user;
DROP ROLE regress_zklock_monitor;
