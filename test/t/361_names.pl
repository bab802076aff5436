
# A session may use the names that zklock.names allows, whatever function is given them: each
# other name is refused before anything is asked of ZooKeeper, and is in no row. What cannot be
# read allows nothing. Tested with each function of the catalog, with each way in which
# PostgreSQL gives a value, and with roles that try to get round it.

use PostgreSQL::Test::Utils qw(run_log);
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk, init => [ allows_streaming => 1 ]);

sub sql { return ask($node, @_); }

# Who may call all functions, so that nothing but the list is in the way.
sql('CREATE ROLE tenant LOGIN IN ROLE zklock_operator, pg_monitor; CREATE ROLE other LOGIN IN ROLE zklock_operator, pg_monitor');
sql("ALTER ROLE tenant SET zklock.names = 'pay/*, shared, !pay/hr/*'");
my $super = background($node);
my $tenant = background($node, user => 'tenant');

my $refusal = qr/ERROR:  lock name "[^"]+" is not among those that this session may use \(zklock\.names\)\n.*HINT:  .*ALTER ROLE or ALTER DATABASE/s;

sub refused ($session, $sql, $what)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	assert_query($session, $sql, '42501', $what);
	like($session->error, $refusal, 'the error says why');
	return;
}

sub allowed ($session, $name, $what)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	assert_query($session, "SELECT zk_try_xact_lock('$name')", '00000', $what);
	return;
}

# How many znodes and sessions the server has, and what it has been asked to write.
sub written
{
	my %counter = $zk->four_letter_word('srvr') =~ /^(Zxid|Node count): (\S+)$/mg;
	return "$counter{Zxid} $counter{'Node count'}";
}

# Those that are given a text, and no name.
my %nameless = map { $_ => 1 } qw(zk_escape);

subtest 'each function that is given a name refuses one that is not allowed, and writes nothing' => sub {
	my @functions = split /\n/, sql(<<'SQL');
SELECT concat_ws('|', p.proname, p.prokind,
	array_to_string(p.proargnames[:p.pronargs - p.pronargdefaults], ',')
		|| CASE WHEN p.proname = 'zk_all_locks' THEN 'prefix' ELSE '' END)
FROM pg_proc AS p JOIN pg_depend AS d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
WHERE d.deptype = 'e' AND p.proname ~ '^zk_' AND p.proargtypes::oid[] && '{text, text[]}'::regtype[]::oid[]
SQL
	cmp_ok(scalar @functions, '>=', 40, 'the catalog has functions that are given a name');
	my $fresh = background($node, user => 'tenant');
	foreach my $function (@functions)
	{
		my ($name, $kind, $arguments) = split /\|/, $function;
		next if $nameless{$name};
		my $call = sub ($lock, @others) {
			my %value = (name => "'$lock'", names => 'ARRAY[' . join(', ', map { "'$_'" } @others, $lock) . ']', prefix => "'$lock'",
				token => 4294967297, slot => "'s'", reason => "'r'", owner => "'o'", term => "'9s'");
			return ($kind eq 'p' ? 'CALL' : 'SELECT') . " $name("
			  . join(', ', map { $value{$_} // die "what is $_?" } split /,/, $arguments) . ')';
		};
		my $before = written();
		refused($fresh, $call->('pays'), $call->('pays'));
		refused($fresh, $call->('pay/hr/x', 'pay/a'), "$name: a name that is taken away") if $arguments =~ /name/;
		is(written(), $before, "$name: nothing was written") or diag($call->('pays'));
		is($fresh->query_safe('SELECT state FROM zk_session'), 'none', "$name: no session was opened");
	}

	# the same calls of a name that is allowed do not fail for it
	foreach my $function (@functions)
	{
		my ($name, $kind, $arguments) = split /\|/, $function;
		my %value = (name => "'pay/$name'", names => "ARRAY['pay/$name']", prefix => "'pay'",
			token => 4294967297, slot => "'s'", reason => "'r'", owner => "'o'", term => "'9s'");
		$fresh->query(($kind eq 'p' ? 'CALL' : 'SELECT') . " $name(" . join(', ', map { $value{$_} } split /,/, $arguments) . ')');
		isnt($fresh->sqlstate, '42501', "$name: a name that is allowed");
	}
	$fresh->query_safe('SELECT zk_unlock_all()');
	$fresh->query_safe('SELECT count(zk_evict(l.name, q.token)) FROM zk_all_locks() AS l, zk_lock_queue(l.name) AS q');
	$fresh->quit;
};

subtest 'a name that no lock can have is refused as that' => sub {
	assert_query($tenant, "SELECT zk_try_lock('pays//a')", '42602', 'an empty component');
	assert_query($tenant, 'SELECT zk_try_lock(NULL)', '22004', 'a NULL');
};

subtest 'rows of other names are left out' => sub {
	$super->query_safe("SELECT zk_lock_set('{pay/a,pay/hr/b,secret/c}'::text[])");
	my $waiter = background($node);
	start_in_queue($waiter, "SELECT zk_lock_set('{secret/c}'::text[])", $zk, lock_path('secret/c'), 2);
	my $second = background($node);
	start_in_queue($second, "SELECT zk_lock_set('{pay/a}'::text[])", $zk, lock_path('pay/a'), 2);
	is($tenant->query_safe('SELECT string_agg(name, $$ $$ ORDER BY name) FROM zk_all_locks()'), 'pay/a', 'zk_all_locks()');
	is($tenant->query_safe('SELECT string_agg(name, $$ $$ ORDER BY name) FROM zk_all_locks($$pay$$)'), 'pay/a', 'zk_all_locks() with a prefix');
	is($tenant->query_safe('SELECT string_agg(name, $$ $$ ORDER BY name) FROM zk_waits()'), 'pay/a', 'zk_waits()');
	unlike($tenant->query_safe('SELECT zk_wait_graph()'), qr/secret/, 'zk_wait_graph()');
	is($super->query_safe('SELECT count(*) FROM zk_all_locks()'), 3, 'a session that may use all names sees them all');
	$super->query_safe("SET zklock.names = 'a, b/c/*'");
	assert_query($super, "SELECT count(*) FROM zk_all_locks('b')", '00000', 'a prefix above an allowed name shows that one');
	refused($super, "SELECT count(*) FROM zk_all_locks('c')", 'a prefix with no allowed name below it');
	$super->query_safe("SET zklock.names = ''");
	is($super->query_safe('SELECT count(*) FROM zk_all_locks()'), 0, 'an empty list shows nothing');
	$super->query_safe('RESET zklock.names; SELECT zk_unlock_all()');
	$_->wait_result, $_->quit foreach $waiter, $second;
};

subtest 'ancestors that zk_lock_path() takes need no match of their own' => sub {
	$tenant->query_safe("SET ROLE tenant; SELECT zk_lock_path('pay/a/b')");
	is($tenant->query_safe("SELECT string_agg(name || ' ' || mode, ', ' ORDER BY name) FROM zk_session_locks"),
		'pay shared, pay/a shared, pay/a/b exclusive', 'the locks are taken');
	is($tenant->query_safe("SELECT zk_unlock_path('pay/a/b')"), 't', 'the locks are released');
	$super->query_safe("SET zklock.names = 'top/middle/*'");
	is($super->query_safe("SELECT zk_lock_path('top/middle/x') > 0, zk_try_xact_lock_path('top/middle/y'), zk_unlock_path('top/middle/x')"),
		't|t|t', 'also if the ancestor is not allowed');
	refused($super, "SELECT zk_lock_set('{top/middle/x,top}'::text[], '0', '{exclusive,shared}')", 'a list needs each name');
	refused($super, "SELECT zk_lock_path('top/x')", 'the name itself needs a match');
	is($super->query_safe('SELECT count(*) FROM zk_session_locks'), 0, 'nothing is held');
	$super->query_safe('RESET zklock.names');
	$tenant->query_safe('RESET ROLE');
};

subtest 'what a session holds can be released, shown and proved' => sub {
	$super->query_safe("SELECT zk_lock_set('{held,path/a}'::text[]), zk_lock_shared('common'), zk_lock_path('p/q')");
	$super->query_safe("SET zklock.names = ''");
	is($super->query_safe("SELECT zk_is_held('held'), zk_fencing_token('held') > 0, zk_release_requested('held')"), 't|t|f', 'proved');
	is($super->query_safe("SELECT count(*) FROM zk_lock_queue('held')"), 1, 'shown');
	is($super->query_safe('SELECT count(*) FROM zk_session_locks'), 5, 'shown in zk_session_locks');
	assert_query($super, "BEGIN; SELECT zk_fence('held'); CREATE TABLE made (); COMMIT", '00000', 'a commit is guarded by it');
	refused($super, "SELECT zk_lock('held')", 'it cannot be taken once more');
	is($super->query_safe("SELECT zk_unlock('held'), zk_unlock_set('{path/a}'::text[]), zk_unlock_shared('common'), zk_unlock_path('p/q')"),
		't|t|t|t', 'released');
	refused($super, "SELECT zk_unlock('held')", 'then it is not held any more');
	refused($super, "SELECT zk_is_held('held')", 'nor shown');
	$super->query_safe('RESET zklock.names');
};

subtest 'a list that cannot be read is refused by commands' => sub {
	foreach my $bad ('a,,b', 'a//b', '/a', 'a/', 'a*', 'a/*/b', '!', 'a b', '""', "a\tb", "a\x01", 'caf' . chr(0xe9), '<U+00e9>', '!!a', '"a',
		join(',', ('a' x 100) x 90))
	{
		my $value = $bad =~ /[^\x20-\x7E]/ ? "U&'" . join('', map { sprintf '\\%04X', ord } split //, $bad) . "'" : "'$bad'";
		my $literal = $bad =~ /[^\x20-\x7E]/ ? "E'" . join('', map { sprintf '\\u%04X', ord } split //, $bad) . "'" : "'$bad'";
		foreach my $command ("SET zklock.names = $literal", "ALTER ROLE other SET zklock.names = $literal",
			"ALTER DATABASE postgres SET zklock.names = $literal", "ALTER ROLE other IN DATABASE postgres SET zklock.names = $literal",
			"ALTER SYSTEM SET zklock.names = $literal")
		{
			assert_query($super, $command, '22023', substr $command, 0, 70);
			like($super->error, qr/DETAIL: .*HINT: /s, 'with the reason');
		}
	}
	$super->query_safe("SELECT set_config('zklock.names', '" . join(',', ('a' x 100) x 81) . "', false)");
	pass('a list of nearly 8 kB is taken');
	foreach my $good ("''", "'*'", "'!a, *'", "'\"a b\", \"c,d/*\"'", "'caf<U+00E9>/*'")
	{
		assert_query($super, "SET zklock.names = $good", '00000', "SET zklock.names = $good");
	}
	$super->query_safe('RESET zklock.names');
	is(sql('SHOW zklock.names'), '*', 'nothing was stored');
};

# The catalog may have what no command would have stored, as after an upgrade.
sub store ($value, $role = 'other')
{
	sql("SET allow_system_table_mods = on; DELETE FROM pg_db_role_setting WHERE setrole = '$role'::regrole;
		INSERT INTO pg_db_role_setting VALUES (0, '$role'::regrole, ARRAY[" . join(', ', map { "'zklock.names=$_'" } $value) . '])');
	return;
}

subtest 'a stored list that cannot be read allows nothing' => sub {
	store('a//b');
	my $session = background($node, user => 'other');
	like($session->error, qr/WARNING:  a value of zklock\.names cannot be read, and allows no name/, 'the session is told as it begins')
	  if $session->error ne '';
	like(slurp_file($node->logfile), qr/WARNING:  a value of zklock\.names cannot be read, and allows no name\n.*DETAIL:  No lock can have the name in pattern "a\/\/b"\./, 'the log says why');
	is($session->query_safe('SHOW zklock.names'), '', 'the list counts as the empty one');
	refused($session, "SELECT zk_try_lock('$_')", "no name is allowed: $_") foreach qw(a a/b x);
	$session->query('SET zklock.names = DEFAULT');
	$session->query('RESET ALL');
	$session->query('DISCARD ALL');
	refused($session, "SELECT zk_try_lock('x')", 'nor after RESET ALL and DISCARD ALL');
	$session->quit;
	store('x');
	$session = background($node, user => 'other');
	allowed($session, 'x', 'a list that can be read counts at the next login');
	$session->quit;
	sql('ALTER ROLE other RESET ALL');
};

subtest 'a list in postgresql.conf that cannot be read allows nothing, at start and at a reload' => sub {
	$node->append_conf('postgresql.conf', "zklock.names = 'a, b//c'\n");
	$node->reload;
	assert_becomes { sql('SHOW zklock.names') } '', 'a reload takes it for the empty list';
	refused(background($node), "SELECT zk_try_lock('a')", 'a session may use no name');
	$_->quit foreach $super, $tenant;
	$node->restart;
	is(sql('SHOW zklock.names'), '', 'so does the start');
	refused(background($node), "SELECT zk_try_lock('a')", 'a session may use no name');
	cmp_ok(scalar(() = slurp_file($node->logfile) =~ m{WARNING:  a value of zklock\.names cannot be read.*\n.* in pattern "b//c"}g), '>=', 2,
		'the log has a line for each');
	$super = background($node);
	$tenant = background($node, user => 'tenant');
	allowed($tenant, 'pay', 'a list of a role goes before the file');
	$node->append_conf('postgresql.conf', "zklock.names = ''\n");
	$node->reload;
	refused(background($node, user => 'other'), "SELECT zk_try_lock('a')", "with '' a new role may use no name");
	$node->append_conf('postgresql.conf', "zklock.names = '*'\n");
	$node->reload;
	assert_becomes { sql('SHOW zklock.names') } '*', 'the list is all names again';
};

subtest 'a role does not get round its list' => sub {
	sql('CREATE ROLE wide LOGIN IN ROLE zklock_operator; GRANT wide TO tenant');
	sql("ALTER ROLE wide SET zklock.names = '*'; ALTER ROLE other SET zklock.names = ''");
	$tenant->query_safe('SET ROLE wide');
	refused($tenant, "SELECT zk_try_lock('secret')", 'SET ROLE changes nothing');
	$tenant->query_safe('RESET ROLE');
	foreach my $command ("SET zklock.names = '*'", "SET LOCAL zklock.names = '*'", "SELECT set_config('zklock.names', '*', false)",
		"ALTER ROLE tenant SET zklock.names = '*'", "ALTER ROLE tenant IN DATABASE postgres SET zklock.names = '*'",
		"ALTER ROLE tenant RESET zklock.names", "ALTER DATABASE postgres SET zklock.names = '*'", "ALTER SYSTEM SET zklock.names = '*'")
	{
		assert_query($tenant, $command, '42501', $command);
	}
	foreach my $command ('RESET zklock.names', 'SET zklock.names TO DEFAULT', 'RESET ALL', 'DISCARD ALL')
	{
		$tenant->query($command);
		refused($tenant, "SELECT zk_try_lock('secret')", "after $command the list is that of the login");
		allowed($tenant, 'pay/a', 'and no shorter');
	}
	$tenant->query_safe('CREATE TEMP TABLE own ()');
	assert_query($tenant, q{CREATE FUNCTION pg_temp.mine() RETURNS boolean LANGUAGE sql SET zklock.names = '*' AS $$SELECT zk_try_lock('secret')$$},
		'42501', "a function with SET cannot be made by a role that may not SET it");
	my ($rc, $out, $err) = $node->psql('postgres', 'SELECT 1', extra_params => [ '-U', 'tenant' ],
		connstr => $node->connstr('postgres') . " user=tenant options='-c zklock.names=*'");
	like($err, qr/permission denied to set parameter "zklock\.names"/, 'nor by options of the connection');

	# one name is lent by a function whose owner may set it
	sql(<<'SQL');
CREATE ROLE lender NOLOGIN; GRANT SET ON PARAMETER zklock.names TO lender; GRANT CREATE ON SCHEMA public TO lender;
SET ROLE lender;
CREATE FUNCTION lend() RETURNS boolean LANGUAGE sql SECURITY DEFINER SET zklock.names = 'lent' SET search_path = public, pg_temp AS $$SELECT zk_try_lock('lent')$$;
CREATE FUNCTION lend_more() RETURNS boolean LANGUAGE sql SECURITY DEFINER SET zklock.names = 'lent' SET search_path = public, pg_temp AS $$SELECT zk_try_lock('secret')$$;
SQL
	is($tenant->query_safe('SELECT public.lend()'), 't', 'a SECURITY DEFINER function with SET lends one name');
	refused($tenant, 'SELECT public.lend_more()', 'and no other');
	refused($tenant, "SELECT zk_try_lock('lent')", 'the session cannot take it by itself');
	is($tenant->query_safe("SELECT zk_is_held('lent'), zk_unlock('lent')"), 't|t', 'the session can prove and release it');
	refused($tenant, "SELECT zk_try_lock('secret')", 'behind the function the list is that of before');
	sql('REVOKE SET ON PARAMETER zklock.names FROM lender');
	assert_query($tenant, 'SELECT public.lend()', '42501', 'without SET ON PARAMETER the owner lends nothing');
};

# A lock that its session may only release, show and prove.
subtest 'a token that is too great is refused for a name that is held without a pattern' => sub {
	sql("CREATE ROLE fencer LOGIN IN ROLE zklock_operator; ALTER ROLE fencer SET zklock.names = 'pay/a'");
	my $fencer = background($node, user => 'fencer');
	my $token = $fencer->query_safe("SELECT zk_lock_path('pay/a')");
	refused($fencer, 'SELECT zk_fence($$pay$$, ' . ($token + 10000000000) . ')', 'the ancestor');
	is($fencer->query_safe("SELECT zk_is_held('pay')"), 't', 'which is held');
	$fencer->quit;
};

subtest 'lists of role, database and both replace one another' => sub {
	sql("CREATE DATABASE second; ALTER DATABASE second SET zklock.names = 'of_database'; ALTER ROLE tenant IN DATABASE second SET zklock.names = 'of_both'");
	sql('CREATE EXTENSION zklock', 'second');
	my $session = background($node, user => 'tenant', database => 'second');
	allowed($session, 'of_both', 'the list of both counts');
	refused($session, "SELECT zk_try_lock('$_')", "and no other: $_") foreach 'pay/a', 'of_database';
	$session->quit;
	sql('ALTER ROLE tenant IN DATABASE second RESET ALL');
	$session = background($node, user => 'tenant', database => 'second');
	allowed($session, 'pay/a', 'the list of the role goes before that of the database');
	$session->quit;
	$session = background($node, database => 'second');
	allowed($session, 'of_database', 'the list of the database counts for others');
	refused($session, "SELECT zk_try_lock('pay/a')", 'also for a superuser, until it sets another one');
	$session->query_safe("SET zklock.names = '*'");
	allowed($session, 'pay/a', 'a superuser sets another one');
	$session->quit;
};

subtest 'a revocation counts from the next login on' => sub {
	sql("ALTER ROLE tenant SET zklock.names = 'shared'");
	allowed($tenant, 'pay/a', 'a session that is open keeps its list');
	my $session = background($node, user => 'tenant');
	refused($session, "SELECT zk_try_lock('pay/a')", 'a new session has the new list');
	$session->quit;
	sql("ALTER ROLE tenant SET zklock.names = 'pay/*, shared, !pay/hr/*'");
};

# A parallel worker has the values of its leader, and takes no locks.
subtest 'parallel queries and background workers have the list' => sub {
	refused($tenant, "SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
		SET min_parallel_table_scan_size = 0; SELECT count(zk_try_xact_lock('secret')) FROM pg_class", 'a leader');
	$tenant->query_safe('RESET ALL');
	is($tenant->query_safe("SELECT sum(n) > 0 FROM (SELECT count(*) AS n FROM pg_class) AS c"), 't', 'workers start with the list');
};

subtest 'names of all encodings are matched by one list' => sub {
	sql("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'; CREATE DATABASE bytes TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'");
	sql("ALTER ROLE other SET zklock.names = 'caf<U+00E9>/*, *, !m<U+00FC>ller/*, !<U+65E5>'");
	foreach my $database (qw(postgres latin bytes))
	{
		sql('CREATE EXTENSION zklock', $database) if $database ne 'postgres';
		my $session = background($node, user => 'other', database => $database);
		my $name = sub ($utf8) {
			return "convert_from('\\x" . unpack('H*', $utf8) . "', '" . ($database eq 'bytes' ? 'SQL_ASCII' : 'UTF8') . "')";
		};
		assert_query($session, 'SELECT zk_try_xact_lock(' . $name->("caf\xc3\xa9/a") . ')', '00000', "$database: a name that is allowed");
		assert_query($session, 'SELECT zk_try_xact_lock(' . $name->("m\xc3\xbcller$_") . ')', '42501', "$database: a name that is taken away") foreach '', '/a';
		assert_query($session, 'SELECT zk_try_xact_lock($$m<U+00FC>ller$$)', '00000', "$database: a name that is spelled like the escape is another one");
		$session->quit;
	}
	sql('ALTER ROLE other RESET ALL');
};

subtest 'pg_dumpall has the lists, pg_dump has that of its database with --create only' => sub {
	my $directory = $node->basedir;
	ok(run_log([ 'pg_dumpall', '-p', $node->port, '-h', $node->host, '-f', "$directory/all" ]), 'pg_dumpall succeeds');
	my $all = slurp_file("$directory/all");
	like($all, qr/ALTER ROLE tenant SET "zklock\.names" TO '\Qpay\/*, shared, !pay\/hr\/*\E';/, 'the list of a role');
	like($all, qr/ALTER DATABASE second SET "zklock\.names" TO 'of_database';/, 'the list of a database');
	foreach my $create (0, 1)
	{
		ok(run_log([ 'pg_dump', ($create ? '--create' : ()), '-d', $node->connstr('second'), '-f', "$directory/one" ]), 'pg_dump succeeds');
		is(slurp_file("$directory/one") =~ /zklock\.names/ ? 1 : 0, $create, $create ? 'with --create' : 'without it');
	}
};

subtest 'lists count on a standby' => sub {
	my $standby = standby_of($node);
	my $there = background($standby, user => 'tenant');
	refused($there, "SELECT zk_try_lock('secret')", 'a name that is not allowed');
	assert_query($there, "SELECT zk_try_lock('pay/a'), zk_unlock('pay/a')", '00000', 'a name that is allowed');
	$there->quit;
};

$_->quit foreach $tenant, $super;
done_testing();
