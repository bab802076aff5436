
# Privileges by name (zk_grant) are asked by each function that takes a name, and a change of
# them is heeded by sessions that are open. Which names a row covers, and for whom, is in
# sql/privileges. Tested with each function of the catalog.

use FindBin;
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk, init => [ allows_streaming => 1 ]);

sub sql { return ask($node, $_[0]); }

# Whoever may call all functions, to see what the rows do.
sql("CREATE ROLE tenant LOGIN IN ROLE zklock_operator, pg_monitor; CREATE ROLE payroll; CREATE ROLE stranger LOGIN");
my $tenant = background($node, user => 'tenant');
my $stranger = background($node, user => 'stranger');
my $super = background($node);

my $all = 'share, lock, look, request, run, hold, lease, evict';
sub only
{
	my (@rows) = @_;
	return sql(join '; ', 'DELETE FROM zk_privileges', 'DELETE FROM zk_closed', map { "SELECT zk_grant('$_->[2]', '$_->[0]', '$_->[1]')" } @rows);
}

sub refused ($session, $sql, $what, $row)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	assert_query($session, $sql, '42501', $what);
	like($session->error, qr/HINT:  .* run SELECT zk_grant\(\Q$row\E\)\./, "with the row: $row");
	return;
}

# Each function of the extension that takes a text, or several, and what it needs for it.
my %needs = (
	(map { ("$_(text,interval,integer)" => 'lock') }
		qw(zk_lock zk_xact_lock zk_try_lock zk_try_xact_lock zk_call_lock zk_try_call_lock zk_commit_and_lock)),
	(map { ("$_(text,interval)" => 'share') }
		qw(zk_lock_shared zk_xact_lock_shared zk_try_lock_shared zk_try_xact_lock_shared)),
	(map { ("$_(text,interval,text)" => 'lock') }
		qw(zk_lock_path zk_xact_lock_path zk_try_lock_path zk_try_xact_lock_path)),
	(map { ("$_(text[],interval,text[])" => 'lock') } qw(zk_lock_set zk_xact_lock_set zk_try_lock_set zk_try_xact_lock_set)),
	(map { ("$_(text)" => 'look') } qw(zk_lock_queue zk_who zk_runs zk_leader)),
	'zk_try_lease(text,text,interval,interval,text,boolean,boolean)' => 'lease',
	'zk_renew_lease(text,bigint,interval)' => 'lease', 'zk_release_lease(text,bigint,interval)' => 'lease',
	'zk_require_lease(text,bigint)' => 'lease',
	'zk_all_locks(text)' => 'look: rows',
	'zk_run_once(text,text,interval)' => 'run', 'zk_forget_run(text,text)' => 'run',
	'zk_request_release(text,text)' => 'request',
	'zk_hold(text,text,interval)' => 'hold', 'zk_release_hold(text,bigint)' => 'hold', 'zk_fence(text,bigint)' => 'hold',
	'zk_evict(text,bigint)' => 'evict',
	# with what the own session holds, and no more
	(map { ("$_(text)" => '') }
		qw(zk_unlock zk_unlock_shared zk_fencing_token zk_is_held zk_fence zk_release_requested)),
	'zk_unlock_set(text[],text[])' => '', 'zk_unlock_path(text,text)' => '',
	'zk_escape(text)' => '',	# of no name's
	# those who may call them at all may do so for each name
	(map { ("$_(text,text,text)" => 'superuser') } qw(zk_grant zk_revoke)), 'zk_open(text)' => 'superuser');

subtest 'each function that takes a name asks for the privilege it needs, and no more' => sub {
	my %left = %needs;
	my $number = 0;
	foreach my $line (split /\n/, sql(<<'SQL'))
SELECT concat_ws('|', p.oid::regprocedure, p.prokind, array_to_string(p.proargnames[:p.pronargs - p.pronargdefaults], ',')
	|| CASE WHEN 'timeout' = ANY (p.proargnames) THEN ',timeout' ELSE '' END)
FROM pg_proc AS p JOIN pg_depend AS d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
WHERE d.deptype = 'e' AND p.proname ~ '^zk_' AND p.proargtypes::oid[] && '{text, text[]}'::regtype[]::oid[]
SQL
	{
		my ($function, $kind, $arguments) = split /\|/, $line;
		my $needs = delete $left{$function};
		ok(defined $needs, "$function is known here") or next;
		next if $needs eq 'superuser';
		my $name = 'pay/f' . ++$number;
		my %value = (name => "'$name'", names => "ARRAY['$name']", timeout => "timeout => '0'",
			token => 4294967297, slot => "'s'", reason => "'r'", owner => "'o'", ttl => "'9s'",
			delay => "delay => '9s'");
		$arguments = 'prefix' if $function =~ /^zk_all_locks/;
		$value{prefix} = "'pay'";
		my $call = ($kind eq 'p' ? 'CALL ' : 'SELECT ') . $function =~ s/\(.*//r
		  . '(' . join(', ', map { $value{$_} // die "what is $_?" } split /,/, $arguments) . ')';
		if ($needs eq '')
		{
			only([ '', 'public', 'none' ]);
			$tenant->query($call);
			isnt($tenant->sqlstate, '42501', "$function: of the own session");
			next;
		}
		if ($needs eq 'look: rows')
		{
			my $holder = background($node, holds => $name);
			only([ 'pay', 'tenant', $all =~ s/look, //r ]);
			is($tenant->query_safe($call), '', "$function shows nothing");
			only([ 'pay', 'tenant', 'look' ]);
			like($tenant->query_safe($call), qr/\b\Q$name\E\b/, 'with look the function shows the lock');
			next;
		}
		only([ 'pay', 'tenant', join ', ', grep { $_ ne $needs && !($needs eq 'share' && $_ eq 'lock') } split /, /, $all ]);
		$tenant->query('SET search_path = public');
		refused($tenant, $call, "$function needs $needs", "'$needs', 'pay', 'tenant'");
		only([ 'pay', 'tenant', $needs ]);
		$tenant->query($call);
		isnt($tenant->sqlstate, '42501', 'the privilege is enough') or diag($tenant->error);
		$tenant->query_safe('SELECT zk_unlock_all()');
	}
	is_deeply([ sort keys %left ], [], 'no function of the list is missing');
};

subtest 'docs/privileges.md names for each privilege the functions that ask for it' => sub {
	my ($table) = slurp_file("$FindBin::Bin/../../docs/privileges.md") =~ /^\| privilege \| allows \|\n\|[-|]+\n(.*?)\n\n/ms;
	my %allows = ($table // '') =~ /^\| `(\w+)` \| (.*) \|$/mg;
	is(join(', ', sort keys %allows), join(', ', sort split /, /, $all), 'the table has all privileges');
	foreach my $privilege (grep { $allows{$_} =~ /`zk_/ } sort keys %allows)
	{
		my %of = map { s/\(.*//r => 1 } grep { $needs{$_} eq $privilege } keys %needs;
		my @named = map { s/\(.*//r } $allows{$privilege} =~ /`(zk_[^`]+)`/g;
		is(join(', ', grep { !$of{$_} } @named), '', "$privilege: the functions ask for it");
		next if $allows{$privilege} =~ /the other functions/;
		delete @of{@named};
		is(join(', ', sort keys %of), '', "$privilege: no other does");
	}
};

subtest 'a change of privileges is heeded by sessions that are open' => sub {
	my $may = "SELECT zk_try_xact_lock('pay')";
	only();
	assert_query($stranger, $may, '00000', 'without rows every name is open');
	$super->query_safe("BEGIN; SELECT zk_grant('lock', 'pay', 'payroll')");
	assert_query($stranger, $may, '00000', 'a row that is not committed counts for nobody');
	$super->query_safe('COMMIT');
	assert_query($stranger, $may, '42501', 'a row counts when it is committed');
	$stranger->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class');
	only([ 'pay', 'stranger', 'lock' ]);
	assert_query($stranger, "SELECT count(*) FROM pg_class; $may", '00000', 'a row counts in a transaction that is older');
	$stranger->query_safe('COMMIT');
	sql('TRUNCATE zk_privileges, zk_closed');
	assert_query($tenant, $may, '00000', 'TRUNCATE is a change');
	sql("SET session_replication_role = replica; INSERT INTO zk_privileges VALUES ('pay', 'stranger', 'lock')");
	assert_query($tenant, $may, '42501', 'a row of a replicated change counts');
	sql('SET session_replication_role = replica; DELETE FROM zk_privileges');
	assert_query($stranger, $may, '42501', 'a replicated DELETE does not open the name');
	sql("SELECT zk_open('pay')");
	assert_query($tenant, $may, '00000', 'zk_open() opens the name');
	only();

	# of more changes than the server remembers for who is behind, it says only that there were some
	$tenant->query_safe($may);
	kill STOP => $tenant->pid;
	sql("SELECT zk_grant('none', 'pay', 'public')");
	sql('DO $$ BEGIN FOR i IN 1 .. 500 LOOP CREATE TEMP TABLE t (); DROP TABLE t; COMMIT; END LOOP; END $$');
	kill CONT => $tenant->pid;
	assert_query($tenant, $may, '42501', 'a row is heeded behind five hundred other changes');
	only();

	# one's own, and what is rolled back: sql/privileges
	my $session = background($node);
	$session->query_safe("BEGIN; SELECT zk_grant('none', 'pay', 'public'); PREPARE TRANSACTION 'close'");
	assert_query($tenant, $may, '00000', 'a row of a prepared transaction counts for nobody');
	sql("COMMIT PREPARED 'close'");
	assert_query($tenant, $may, '42501', 'a row counts after COMMIT PREPARED');
	sql('DROP EXTENSION zklock; CREATE EXTENSION zklock; GRANT zklock_operator TO tenant');
	assert_query($tenant, $may, '00000', 'an extension that is created anew has no rows');
	sql('CREATE SCHEMA elsewhere; GRANT USAGE ON SCHEMA elsewhere TO PUBLIC; ALTER EXTENSION zklock SET SCHEMA elsewhere');
	sql("SELECT elsewhere.zk_grant('none', 'pay', 'public')");
	assert_query($tenant, $may =~ s/zk_/elsewhere.zk_/r, '42501', 'rows are found when the extension is moved to another schema');
	sql('ALTER EXTENSION zklock SET SCHEMA public');
	assert_query($tenant, "SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
		SET min_parallel_table_scan_size = 0; SELECT count(zk_try_xact_lock('pay')) FROM pg_class", '42501',
		'a row counts in the leader of a parallel query');
	$tenant->query_safe('RESET ALL');
};

subtest 'a lock that is held or waited for outlives the privilege' => sub {
	only();
	$tenant->query_safe("SELECT zk_lock('pay')");
	start_to_wait($stranger, "SELECT zk_lock('pay')");
	sql("SELECT zk_grant('none', '', 'public')");
	refused($tenant, "SELECT zk_lock('pay')", 'the holder may not take the lock once more', "'lock', '', 'tenant'");
	is($tenant->query_safe("SELECT zk_is_held('pay'), zk_fencing_token('pay') > 0, zk_unlock('pay')"), 't|t|t', 'the lock stays held and can be released');
	like($stranger->wait_result, qr/^\d+$/, 'the waiter is granted the lock');
	is($stranger->query_safe("SELECT zk_unlock('pay')"), 't', 'the waiter can release the lock');
};

subtest 'waiters are shown to roles that may look at the lock' => sub {
	only();
	$stranger->query_safe("SELECT zk_lock('pay/w')");
	my $waiter = background($node);
	start_in_queue($waiter, "SELECT zk_lock('pay/w')", $zk, lock_path('pay/w'), 2);
	only([ 'pay', 'tenant', 'look' ]);
	my @looks = ('SELECT name FROM zk_waits()', 'SELECT zk_wait_graph()', 'SELECT name FROM zk_all_locks()');
	like($tenant->query_safe($_), qr{pay/w}, "with look: $_") foreach @looks;
	only([ 'pay', 'tenant', 'lock' ]);
	unlike($tenant->query_safe($_), qr{pay/w}, "without: $_") foreach @looks;
	only([ q{'||U&'\202E}, 'public', 'none' ]);
	$super->query_safe(q{SELECT zk_lock(U&'\202E')});
	is($tenant->query_safe('SELECT name FROM zk_all_locks() WHERE name !~ $$^pay/$$'), '', 'a name that would be shown in another form is hidden');
	$super->query_safe('SELECT zk_unlock_all()');
	$stranger->query_safe('SELECT zk_unlock_all()');
	$waiter->wait_result;
};

subtest 'privileges are asked on a standby, which hears of changes' => sub {
	only([ '', 'public', 'none' ]);
	$stranger->quit;
	my $standby = standby_of($node);
	my $there = background($standby, user => 'tenant');
	refused($there, "SELECT zk_try_lock('x')", 'on a standby', "'lock', '', 'tenant'");
	sql("SELECT zk_grant('lock', 'x', 'tenant')");
	$node->wait_for_catchup($standby);
	assert_query($there, "SELECT zk_try_lock('x'), zk_unlock('x')", '00000', 'the standby heeds a new row');
};

$_->quit foreach $tenant, $super;
done_testing();
