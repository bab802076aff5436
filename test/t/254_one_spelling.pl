
# A name has one spelling, whatever the encoding of the database has for it: in EUC_TW and
# EUC_JP a character can be two sequences of bytes, which are one in UTF-8, and so one znode.
# Privileges, fences, records and views must not take them for two names.

use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk);

# Of each encoding the spelling that comes out of UTF-8, another one, and the UTF-8.
my %spellings = (
	EUC_TW => [ 'a4a4', '8ea1a4a4', 'efbc93' ],
	EUC_JP => [ 'a2e2', 'adf0', 'e28992' ]);

# A database of that encoding, with a role that is denied what is called so.
sub database ($encoding)
{
	my $database = lc $encoding;
	$node->safe_psql('postgres',
		"CREATE DATABASE $database TEMPLATE template0 ENCODING '$encoding' LOCALE 'C'");
	$node->safe_psql($database, 'CREATE EXTENSION zklock');
	return $database;
}

# An expression for the text of these bytes behind 'pay/'.
sub text ($encoding, $bytes, $behind = '')
{
	return "('pay/' || convert_from('\\x$bytes', '$encoding') || '$behind')::text";
}

$node->safe_psql('postgres', 'CREATE ROLE bob LOGIN IN ROLE zklock_operator, pg_monitor');
foreach my $encoding (sort keys %spellings)
{
	my $database = database($encoding);
	my ($own, $other, $utf8) = $spellings{$encoding}->@*;
	my $path = lock_path('pay/' . pack 'H*', $utf8);
	my ($as_own, $as_other) = map { text($encoding, $_) } $own, $other;
	my $super = background($node, database => $database);
	my $bob = background($node, database => $database, user => 'bob');

	subtest "$encoding: one lock" => sub {
		is($super->query_safe("SELECT encode(convert_to($as_other, '$encoding'), 'hex') LIKE '%$other'"),
			't', 'a text of the database has the other spelling');
		$super->query_safe("SELECT zk_lock($as_other)");
		assert_nodes($zk, $path, 1, 'its znode is that of the character');
		is($super->query_safe("SELECT bool_and(name = $as_own), count(*) FROM zk_locks"),
			't|1', 'which has one name in the list of locks held');
		is($super->query_safe("SELECT bool_and(name = $as_own), count(*) FROM zk_all_locks('pay')"),
			't|1', 'and in that of all locks');
		is($super->query_safe("SELECT zk_fencing_token($as_own) = zk_fencing_token($as_other)"),
			't', 'and one token');
		is($super->query_safe("SELECT zk_unlock($as_own)"), 't', 'it can be released by either');
		assert_query($super, "SELECT zk_lock(ARRAY[$as_own, $as_other])", '00000', 'as a list, too');
		is($super->query_safe("SELECT session_holds FROM zk_locks"), 2, 'it is one lock, taken twice');
		$super->query_safe('SELECT zk_unlock_all()');
	};

	foreach my $granted ($as_own, $as_other)
	{
		my $which = $granted eq $as_own ? 'the spelling of UTF-8' : 'another spelling';
		subtest "$encoding: privileges on $which" => sub {
			$super->query_safe("DELETE FROM zk_privileges; SELECT zk_grant($granted, 'postgres', 'all')");
			foreach my $name ($as_own, $as_other, map { text($encoding, $_, '/below') } $own, $other)
			{
				assert_query($bob, "SELECT zk_try_lock($name)", '42501', "are asked for $name");
				assert_query($bob, "SELECT zk_lock(ARRAY[$name])", '42501', 'in a list');
				assert_query($bob, "SELECT zk_run_once($name, 'slot')", '42501', 'of a job');
			}
			$super->query_safe("SELECT zk_grant($granted, 'bob', 'lock')");
			is($bob->query_safe("SELECT zk_try_lock($as_own), zk_try_lock($as_other), zk_unlock_all()"),
				't|t|', 'and given for both');
		};
	}
	$super->query_safe('DELETE FROM zk_privileges');

	subtest "$encoding: records of runs" => sub {
		is($super->query_safe("SELECT zk_run_once($as_own, convert_from('\\x$own', '$encoding'))"),
			't', 'a slot is claimed');
		is($super->query_safe("SELECT zk_run_once($as_other, convert_from('\\x$other', '$encoding'))"),
			'f', 'once, however it is called');
		is($super->query_safe("SELECT slot = convert_from('\\x$own', '$encoding') FROM zk_runs($as_other)"),
			't', 'and listed');
		is($super->query_safe("SELECT zk_forget_run($as_other, convert_from('\\x$other', '$encoding'))"),
			't', 'and forgotten');
	};
}

# U+4E04 has a sequence of bytes in EUC_TW that has no character in UTF-8.
subtest 'no way to UTF-8, or none back' => sub {
	my $session = background($node, database => 'euc_tw');
	assert_query($session, "SELECT zk_lock(convert_from('\\xe4b884', 'UTF8'))", '42602', 'is no name');
	like($session->error, qr/ERROR:  invalid lock name\nDETAIL:  The name has a character of encoding "EUC_TW" that has no equivalent in UTF-8, or none that leads back to it\./,
		'and told so');
	assert_query($session, "SELECT zk_run_once('job', convert_from('\\xe4b884', 'UTF8'))", '42602', 'nor a slot');
};

done_testing();
