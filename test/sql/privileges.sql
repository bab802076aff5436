--
-- Privileges by name: which names a prefix covers, which roles a row is for, and which
-- roles may grant. What each function needs, and that other sessions heed a change, is
-- in t/361.
--
CREATE ROLE regress_zklock_tenant IN ROLE zklock_operator;
CREATE ROLE regress_zklock_payroll;
CREATE ROLE regress_zklock_stranger;
CREATE PROCEDURE only_row(prefix text, role text, privileges text) LANGUAGE plpgsql AS $$
BEGIN
	DELETE FROM zk_privileges;
	DELETE FROM zk_closed;
	PERFORM zk_grant(privileges, prefix, role);
END $$;

--
-- Which names a prefix covers
--
CALL only_row('pay', 'regress_zklock_payroll', 'lock');
SET SESSION AUTHORIZATION regress_zklock_tenant;
SELECT zk_try_xact_lock('pay');
SELECT zk_try_xact_lock('pay/a');
SELECT zk_try_xact_lock('pay/a/b');
SELECT name, zk_try_xact_lock(name) FROM unnest('{pa,payment,pay-x,Pay,x/pay,other}'::text[]) AS name;
SELECT zk_try_lock('pay_/');
SELECT zk_try_lock('a//pay');
-- Of a set each, and then nothing is taken
SELECT zk_lock_set('{other,pay/x}'::text[], '0');
SELECT count(*) FROM zk_session_locks;

RESET SESSION AUTHORIZATION;
CALL only_row('', 'public', 'none');
SET SESSION AUTHORIZATION regress_zklock_tenant;
SELECT zk_try_lock('any');
RESET SESSION AUTHORIZATION;
SELECT zk_try_xact_lock('any') AS superuser;

-- Rows add up, each for its prefix, and none above it.
SELECT zk_grant('look', 'a', 'regress_zklock_tenant');
SELECT zk_grant('lock', 'a/b', 'regress_zklock_tenant');
SET SESSION AUTHORIZATION regress_zklock_tenant;
SELECT zk_try_xact_lock('a/b'), count(*) AS who FROM zk_who('a/b');
SELECT count(*) AS who FROM zk_who('a');
SELECT zk_try_xact_lock('a');
RESET SESSION AUTHORIZATION;

-- A prefix is a name, for a role that there is, and privileges are words.
SELECT zk_grant('lock', 'pay/', 'regress_zklock_tenant');
SELECT zk_grant('lock', '/pay', 'regress_zklock_tenant');
SELECT zk_grant('lock', 'pay//x', 'regress_zklock_tenant');
SELECT zk_grant('lock', NULL, 'regress_zklock_tenant');
\set VERBOSITY terse
SELECT zk_grant('lock', 'p', NULL);
\set VERBOSITY default
SELECT zk_grant(NULL, 'p', 'regress_zklock_tenant');
SELECT zk_grant('look', 'a', 'regress_zklock_tenant') AS again;
SELECT zk_grant('lock', 'p', 'nobody there');
SELECT zk_grant('lokc', 'p', 'regress_zklock_tenant');
SELECT zk_revoke('RUN, lokc', 'a', 'regress_zklock_tenant');
SELECT zk_grant('', 'p', 'regress_zklock_tenant');
SELECT zk_grant('lock,,look', 'p', 'regress_zklock_tenant');
SELECT zk_grant('lock look', 'p', 'regress_zklock_tenant');
SELECT zk_grant('lock, none', 'p', 'regress_zklock_tenant');
SELECT zk_revoke('none', 'a', 'regress_zklock_tenant');
SELECT count(*) FROM zk_privileges WHERE prefix IN ('p', 'pay/');
SELECT count(*) FROM zk_closed WHERE prefix IN ('p', 'pay/');
-- as in GRANT they may be in upper case
SELECT zk_grant('RUN, Lock ,run', 'p', 'regress_zklock_tenant');
SELECT privilege FROM zk_privileges WHERE prefix = 'p' ORDER BY privilege;
SELECT zk_revoke('ALL', 'p', 'regress_zklock_tenant');
SELECT zk_grant('all', 'p', 'public');
SELECT string_agg(privilege, ' ' ORDER BY privilege) AS "all" FROM zk_privileges WHERE prefix = 'p';
SELECT zk_revoke('all', 'p', 'public');
SELECT count(*) FROM zk_privileges WHERE prefix = 'p';

--
-- Whom a row is for
--
CALL only_row('pay', 'regress_zklock_payroll', 'lock, look');
SET SESSION AUTHORIZATION regress_zklock_stranger;
SELECT zk_try_xact_lock('pay');
RESET SESSION AUTHORIZATION;
GRANT regress_zklock_payroll TO regress_zklock_stranger;
SET SESSION AUTHORIZATION regress_zklock_stranger;
SELECT zk_try_xact_lock('pay'), zk_try_xact_lock_shared('pay');
RESET SESSION AUTHORIZATION;
-- One that does not inherit, until it is SET
ALTER ROLE regress_zklock_stranger NOINHERIT;
SELECT current_setting('server_version_num')::int >= 160000 AS by_member \gset
\if :by_member
UPDATE pg_auth_members SET inherit_option = false WHERE member = 'regress_zklock_stranger'::regrole;
\endif
SET SESSION AUTHORIZATION regress_zklock_stranger;
SELECT zk_try_xact_lock('pay');
SET ROLE regress_zklock_payroll;
SELECT zk_try_xact_lock('pay');
RESET SESSION AUTHORIZATION;
REVOKE regress_zklock_payroll FROM regress_zklock_stranger;
SET SESSION AUTHORIZATION regress_zklock_stranger;
SELECT zk_try_xact_lock('pay');
RESET SESSION AUTHORIZATION;

-- Who calls a function of its owner's may what that one may, and not more, not even a superuser.
CREATE FUNCTION pay_now() RETURNS boolean SECURITY DEFINER LANGUAGE sql AS $$SELECT zk_try_xact_lock('pay')$$;
ALTER FUNCTION pay_now() OWNER TO regress_zklock_payroll;
SET SESSION AUTHORIZATION regress_zklock_stranger;
SELECT pay_now();
RESET SESSION AUTHORIZATION;
ALTER FUNCTION pay_now() OWNER TO regress_zklock_stranger;
SELECT pay_now();

-- But who has a lock he is told only if he may know himself.
CREATE FUNCTION pay_holder() RETURNS boolean SECURITY DEFINER LANGUAGE sql AS $$SELECT owner IS NOT NULL FROM zk_leader('pay')$$;
SELECT zk_lock('pay') > 0 AS granted, pay_holder();
SET SESSION AUTHORIZATION regress_zklock_stranger;
SELECT pay_holder();
RESET SESSION AUTHORIZATION;
SELECT zk_unlock('pay');

-- Everybody
SELECT zk_grant('lock', 'pay', 'public');
SET SESSION AUTHORIZATION regress_zklock_stranger;
SELECT zk_try_xact_lock('pay');
RESET SESSION AUTHORIZATION;
SELECT zk_revoke('all', 'pay', 'public');
SET SESSION AUTHORIZATION regress_zklock_stranger;
SELECT zk_try_xact_lock('pay');
RESET SESSION AUTHORIZATION;

-- A name as the hint quotes it; a role that is renamed keeps its rows, one that is made anew has none.
CREATE ROLE "regress_zklock ""o'clock";
SET SESSION AUTHORIZATION "regress_zklock ""o'clock";
SELECT zk_try_xact_lock('pay');
RESET SESSION AUTHORIZATION;
SELECT zk_grant('lock', 'pay', 'regress_zklock "o''clock');
SET SESSION AUTHORIZATION "regress_zklock ""o'clock";
SELECT zk_try_xact_lock('pay');
RESET SESSION AUTHORIZATION;
ALTER ROLE "regress_zklock ""o'clock" RENAME TO regress_zklock_even;
SET SESSION AUTHORIZATION regress_zklock_even;
SELECT zk_try_xact_lock('pay');
RESET SESSION AUTHORIZATION;
-- It cannot be dropped; but let somebody have taken what is in the way.
DROP ROLE regress_zklock_even;
REVOKE USAGE ON TYPE zk_privileges_by_name FROM regress_zklock_even;
DROP ROLE regress_zklock_even;
CREATE ROLE regress_zklock_even;
SET SESSION AUTHORIZATION regress_zklock_even;
SELECT zk_try_xact_lock('pay');
RESET SESSION AUTHORIZATION;
-- The row of the dropped one is seen, and taken away as it is seen.
SELECT role::text AS gone FROM zk_privileges WHERE role::text ~ '^!\d+$' \gset
SELECT zk_revoke('lock', 'pay', '16');
SELECT zk_revoke('lock', 'pay', :'gone');
SELECT count(*) FROM zk_privileges WHERE role::text = :'gone';

-- The type: names in, names out; what is not a role's name is nobody, and stays so.
SELECT shown, shown::zk_role AS is FROM unnest(ARRAY['-', 'regress_zklock_even', 'Regress_Zklock_Even',
	'"regress_zklock_even"', 'no such role', 'a.b', 'regress_zklock_even.b', '"', '', '16', '!regress_zklock_even', '"!regress_zklock_even"']) AS shown;
SELECT 'regress_zklock_even'::zk_role = 'regress_zklock_even' AS same, 'regress_zklock_even'::zk_role = '-' AS everybody,
	'regress_zklock_even'::zk_role = 'regress_zklock_even'::text AS as_text;
-- whatever the table shows is known, quotes too
ALTER ROLE regress_zklock_even RENAME TO "regress_zklock EVEN";
INSERT INTO zk_privileges VALUES ('pay', '"regress_zklock EVEN"', 'look'), ('pay', '-', 'look');
SELECT zk_revoke('look', 'pay', role::text) AS "as shown" FROM zk_privileges WHERE prefix = 'pay' AND privilege = 'look' AND role::text ~ '^[-"]';
ALTER ROLE "regress_zklock EVEN" RENAME TO regress_zklock_even;
INSERT INTO zk_privileges VALUES ('pay', 'regress_zklock_late', 'lock');
CREATE ROLE regress_zklock_late;
SET SESSION AUTHORIZATION regress_zklock_late;
SELECT zk_try_xact_lock('pay');
RESET SESSION AUTHORIZATION;
SELECT zk_revoke('lock', 'pay', '!regress_zklock_late');
SELECT count(*) FROM zk_privileges WHERE role::text ~ 'late';
DROP ROLE regress_zklock_late;

--
-- Taking away does not open
--
CALL only_row('pay', 'regress_zklock_payroll', 'lock');
SELECT zk_revoke('look', 'pay', 'regress_zklock_payroll');
SELECT zk_revoke('lock', 'pay/a', 'regress_zklock_payroll');
SELECT zk_revoke('lock', 'pay', 'no such role');
SELECT zk_revoke('lock', 'pay', 'regress_zklock_payroll');
SET SESSION AUTHORIZATION regress_zklock_tenant;
SELECT zk_try_xact_lock('pay');
RESET SESSION AUTHORIZATION;
SELECT zk_grant('lock', 'pay/a', 'public');
SELECT zk_open('pay/a');
SELECT zk_open('pay');
SELECT zk_open('pay');
SET SESSION AUTHORIZATION regress_zklock_tenant;
SELECT zk_try_xact_lock('pay'), zk_try_xact_lock('pay/a');
RESET SESSION AUTHORIZATION;
-- nor do changes of the table, also of rows that zk_grant() did not make
INSERT INTO zk_privileges VALUES ('a', 'regress_zklock_payroll', 'lock'), ('b', '-', 'lock'), ('c', '-', 'lock');
SELECT prefix FROM zk_closed ORDER BY prefix;
DELETE FROM zk_privileges WHERE role = 'regress_zklock_payroll';
UPDATE zk_privileges SET prefix = 'd' WHERE prefix = 'b';
TRUNCATE zk_privileges;
SELECT prefix FROM zk_closed ORDER BY prefix;
SET SESSION AUTHORIZATION regress_zklock_tenant;
SELECT zk_try_xact_lock('a');
RESET SESSION AUTHORIZATION;
-- but that of the other one
TRUNCATE zk_closed;
SET SESSION AUTHORIZATION regress_zklock_tenant;
SELECT zk_try_xact_lock('a');
RESET SESSION AUTHORIZATION;
-- Who it was is told, also of somebody to whom a superuser has given it.
CALL only_row('pay', 'regress_zklock_payroll', 'lock, look');
GRANT EXECUTE ON FUNCTION zk_grant TO regress_zklock_stranger;
GRANT regress_zklock_stranger TO regress_zklock_tenant;
SET SESSION AUTHORIZATION regress_zklock_tenant;
SET ROLE regress_zklock_stranger;
SELECT zk_grant('lock', 'mine', 'regress_zklock_payroll');
RESET SESSION AUTHORIZATION;
REVOKE regress_zklock_stranger FROM regress_zklock_tenant;
REVOKE EXECUTE ON FUNCTION zk_grant FROM regress_zklock_stranger;
SELECT granted_by, granted_as, granted_at = closed_at AS "at once", closed_by, closed_as FROM zk_privileges JOIN zk_closed USING (prefix) WHERE prefix = 'mine';
SELECT count(*) FROM zk_privileges WHERE prefix = 'pay' AND granted_by = session_user AND granted_as = session_user;
BEGIN READ ONLY;
SELECT zk_grant('lock', 'mine', 'regress_zklock_payroll');
ROLLBACK;

--
-- Who may grant
--
CREATE PROCEDURE deny() LANGUAGE plpgsql AS $$
DECLARE
	denied text;
BEGIN
	FOREACH denied IN ARRAY ARRAY[
		$q$SELECT zk_grant('all', '', 'public')$q$, $q$SELECT zk_revoke('all', 'pay', 'regress_zklock_payroll')$q$,
		$q$INSERT INTO zk_privileges VALUES ('', '-', 'lock')$q$, 'DELETE FROM zk_privileges',
		'TRUNCATE zk_privileges', $q$SELECT zk_open('pay')$q$, 'DELETE FROM zk_closed', 'TRUNCATE zk_closed',
		'CREATE FUNCTION pg_temp.planted(zk_role, text) RETURNS boolean LANGUAGE sql RETURN true',
		'SELECT _zk_privileges_adding()', 'SELECT _zk_privileges_changed()', 'SELECT _zk_privileges_closing()', $q$SELECT _zk_fence_claim('/zklock', 'pay', 1)$q$, 'SELECT _zk_fences_applied()',
		'ALTER TABLE zk_privileges DISABLE TRIGGER changed']
	LOOP
		BEGIN
			EXECUTE denied;
			RAISE WARNING '% may: %', current_user, denied;
		EXCEPTION WHEN insufficient_privilege THEN
			RAISE NOTICE '% may not: %', current_user, denied;
		END;
	END LOOP;
END $$;
SET SESSION AUTHORIZATION regress_zklock_tenant;
CALL deny();
-- but look
SELECT count(*) > 0 AS rows FROM zk_privileges;
SELECT count(*) > 0 AS rows FROM zk_closed;
RESET SESSION AUTHORIZATION;
SET SESSION AUTHORIZATION regress_zklock_stranger;
CALL deny();
SELECT * FROM zk_privileges;
SELECT * FROM zk_closed;
RESET SESSION AUTHORIZATION;
GRANT EXECUTE ON FUNCTION zk_grant TO regress_zklock_stranger;
SET SESSION AUTHORIZATION regress_zklock_stranger;
SELECT zk_grant('lock', 'pay', 'regress_zklock_stranger');
SELECT zk_try_xact_lock('pay');
RESET SESSION AUTHORIZATION;

--
-- A change is heeded in its transaction at once, and no more when it is rolled back
--
DELETE FROM zk_privileges;
DELETE FROM zk_closed;
BEGIN;
SET LOCAL ROLE regress_zklock_tenant;
SELECT zk_try_xact_lock('pay');
RESET ROLE;
SELECT zk_grant('none', 'pay', 'public');
SAVEPOINT a;
SET LOCAL ROLE regress_zklock_tenant;
SELECT zk_try_xact_lock('pay');
ROLLBACK TO a;
SELECT zk_grant('lock', 'pay', 'regress_zklock_tenant');
SAVEPOINT b;
SET LOCAL ROLE regress_zklock_tenant;
SELECT zk_try_xact_lock('pay');
RESET ROLE;
SAVEPOINT c;
SELECT zk_revoke('lock', 'pay', 'regress_zklock_tenant');
SAVEPOINT d;
SET LOCAL ROLE regress_zklock_tenant;
SELECT zk_try_xact_lock('pay');
ROLLBACK TO c;
SET LOCAL ROLE regress_zklock_tenant;
SELECT zk_try_xact_lock('pay');
ROLLBACK;
SET ROLE regress_zklock_tenant;
SELECT zk_try_xact_lock('pay');
RESET ROLE;

-- The owner of the extension may rename what it needs.
ALTER DOMAIN zk_privileges_by_name RENAME TO renamed;
SELECT zk_grant('lock', 'renamed', 'regress_zklock_payroll');
ALTER DOMAIN renamed RENAME TO zk_privileges_by_name;

REVOKE EXECUTE ON FUNCTION zk_grant FROM regress_zklock_stranger;
DROP FUNCTION pay_now, pay_holder;
DROP PROCEDURE deny(), only_row(text, text, text);
DROP ROLE regress_zklock_tenant, regress_zklock_payroll, regress_zklock_stranger, regress_zklock_even;
