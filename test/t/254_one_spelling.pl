
# A lock name has one spelling, whatever the encoding of the database: in EUC_TW and EUC_JP two
# sequences of bytes can be one character in UTF-8, and so one znode. Privileges, fences, records
# and views take them for one name. And a name with an invisible character is another name than
# the one without it, in views, too. Tested in databases of five encodings.

use Encode ();
use File::Basename qw(dirname);
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

$node->safe_psql('postgres', 'CREATE ROLE bob LOGIN IN ROLE zklock_operator, pg_monitor; GRANT SET ON PARAMETER zklock.names TO bob');
foreach my $encoding (sort keys %spellings)
{
	my $database = database($encoding);
	my ($own, $other, $utf8) = $spellings{$encoding}->@*;
	my $path = lock_path('pay/' . pack 'H*', $utf8);
	my ($as_own, $as_other) = map { text($encoding, $_) } $own, $other;
	my $super = background($node, database => $database);
	my $bob = background($node, database => $database, user => 'bob');

	subtest "$encoding: two spellings of a name are one lock" => sub {
		is($super->query_safe("SELECT encode(convert_to($as_other, '$encoding'), 'hex') LIKE '%$other'"),
			't', 'a text of the database has the other spelling');
		$super->query_safe("SELECT zk_lock($as_other)");
		assert_nodes($zk, $path, 1, "the lock's znode has the UTF-8 of the character");
		is($super->query_safe("SELECT bool_and(name = $as_own), count(*) FROM zk_session_locks"),
			't|1', 'zk_session_locks has one name for the lock');
		is($super->query_safe("SELECT count(*) FILTER (WHERE name = $as_own), count(*) FILTER (WHERE name = $as_other)
				FROM zk_all_locks('pay')"), '1|0', 'zk_all_locks() has one name for the lock');
		is($super->query_safe("SELECT zk_fencing_token($as_own) = zk_fencing_token($as_other)"),
			't', 'both spellings have one fencing token');
		is($super->query_safe("SELECT zk_unlock($as_own)"), 't', 'the lock is released by the other spelling');
		assert_query($super, "SELECT zk_lock_set(ARRAY[$as_own, $as_other])", '00000', 'both spellings in one list are granted');
		is($super->query_safe("SELECT session_acquisitions FROM zk_session_locks"), 2, 'the list of both is one lock, taken twice');
		$super->query_safe('SELECT zk_unlock_all()');
	};

	subtest "$encoding: zklock.names covers both spellings of a name" => sub {
		my $escaped = sprintf '<U+%04X>', ord Encode::decode('UTF-8', pack 'H*', $utf8);
		foreach my $list ("*, !pay/$escaped/*", "pay/$escaped/*")
		{
			my $state = $list =~ /!/ ? '42501' : '00000';
			$bob->query_safe("SET zklock.names = '$list'");
			foreach my $name ($as_own, $as_other, map { text($encoding, $_, '/below') } $own, $other)
			{
				assert_query($bob, "SELECT zk_try_xact_lock($name)", $state, "by '$list': $name");
				assert_query($bob, "SELECT zk_xact_lock_set(ARRAY[$name])", $state, 'in a list, too');
				assert_query($bob, "SELECT zk_run_once($name, 'slot of names')", $state, 'of a job, too');
				$super->query_safe("SELECT zk_forget_run($name, 'slot of names')");
			}
		}
		$bob->query_safe('RESET zklock.names');
	};

	subtest "$encoding: two spellings of a name are one fence" => sub {
		my $guarded = "convert_from('\\x$own', '$encoding')";
		my $again = "convert_from('\\x$other', '$encoding')";
		my $token = $super->query_safe("SELECT zk_lock($guarded)");
		$super->query_safe("SELECT zk_fence($again); SELECT zk_fence($guarded, $token + 1)");
		assert_query($super, "SELECT zk_fence($again)", '40001', 'the holder is not the newest any more');
		assert_query($super, "SELECT zk_fence($again, $token)", '40001', 'an older token is refused by the other spelling, too');
		is($super->query_safe("SELECT count(*), bool_and(name = $guarded) FROM zk_fences"),
			'1|t', 'zk_fences has one row for both spellings');
		$super->query_safe('SELECT zk_unlock_all()');
	};

	subtest "$encoding: two spellings of a name and slot are one run" => sub {
		is($super->query_safe("SELECT zk_run_once($as_own, convert_from('\\x$own', '$encoding'))"),
			't', 'a slot is claimed');
		is($super->query_safe("SELECT zk_run_once($as_other, convert_from('\\x$other', '$encoding'))"),
			'f', 'the slot is claimed once, by whichever spelling');
		is($super->query_safe("SELECT slot = convert_from('\\x$own', '$encoding') FROM zk_runs($as_other)"),
			't', 'zk_runs() lists the slot by the other spelling');
		is($super->query_safe("SELECT zk_forget_run($as_other, convert_from('\\x$other', '$encoding'))"),
			't', 'zk_forget_run() takes the other spelling');
	};
}

subtest 'docs/migrating/fence.sql takes both spellings for one name' => sub {
	$node->safe_psql('postgres',
		"CREATE DATABASE fences TEMPLATE template0 ENCODING 'EUC_TW' LOCALE 'C'");
	$node->safe_psql('fences', slurp_file(dirname(__FILE__) . "/../../docs/migrating/fence.sql"));
	my $super = background($node, database => 'fences');
	my ($own, $other) = map { text('EUC_TW', $_) } $spellings{EUC_TW}->@[0, 1];
	$super->query_safe("SELECT zklock.zk_fence($own, 3)");
	assert_query($super, "SELECT zklock.zk_fence($other, 2)", '40001', 'the name is the same');
};

# U+4E04 has a sequence of bytes in EUC_TW that has no character in UTF-8.
subtest 'a character without an equivalent in UTF-8 is refused in names and slots' => sub {
	my $session = background($node, database => 'euc_tw');
	assert_query($session, "SELECT zk_lock(convert_from('\\xe4b884', 'UTF8'))", '42602', 'a name with such a character is refused');
	like($session->error, qr/ERROR:  invalid lock name\nDETAIL:  The name has a character of encoding "EUC_TW" that cannot be converted to UTF-8 and back\./,
		'the error says which character it is');
	assert_query($session, "SELECT zk_run_once('job', convert_from('\\xe4b884', 'UTF8'))", '42602', 'a slot with such a character is refused');
};

# U+200B and U+00AD are invisible, U+0416 is not in LATIN1. As UTF-8, in octal for bytea.
my %character = (space => '\342\200\213', hyphen => '\302\255', letter => '\320\226');
sub named ($what, $before = 'see') { return "convert_from('$before/pay$character{$what}', 'UTF8')"; }

# In a database without an encoding these bytes are the name.
sub named_in ($database, @what)
{
	return named(@what) unless $database eq 'sql_ascii';
	return named(@what) =~ s/'UTF8'/'SQL_ASCII'/r;
}

my @plain = map { database($_) } qw(UTF8 LATIN1 SQL_ASCII);
my $pays = background($node, database => 'utf8', holds => 'see/pay');
my @waiters;
foreach my $what (sort keys %character)
{
	my $path = lock_path('see/pay' . $character{$what} =~ s/\\(\d{3})/chr oct $1/ger);
	my ($holder, $waiter) = map { background($node, database => 'utf8') } 1, 2;
	$holder->query_safe('SELECT zk_lock(' . named($what) . ')');
	start_in_queue($waiter, 'SELECT zk_lock(' . named($what) . ')', $zk, $path, 2);
	push @waiters, $holder, $waiter;
}
foreach my $database (@plain)
{
	my $super = background($node, database => $database);
	my @has = $database eq 'latin1' ? ('hyphen') : sort keys %character;
	subtest "$database: names with invisible characters are told apart in all views" => sub {
		foreach my $what (@has)
		{
			my $name = named_in($database, $what);
			is($super->query_safe("SELECT holder_count, waiter_count FROM zk_all_locks('see') WHERE name = $name"),
				'1|1', "the name with a $what is in zk_all_locks()");
			is($super->query_safe("SELECT state FROM zk_lock_queue($name)"), "held\nwaiting", 'its queue in zk_lock_queue()');
			is($super->query_safe("SELECT count(*) FROM zk_waits() WHERE name = $name"), 1, 'its waiter in zk_waits()');
			assert_becomes { $super->query_safe("SELECT count(*) FROM zk_backends WHERE waiting_for = $name") } 1, 'the waiter with that name is in zk_backends';
			is($super->query_safe("SELECT count(*) FROM zk_locks WHERE name = $name"), 1, 'its holder in zk_locks');
		}
		is($super->query_safe("SELECT count(*) FROM zk_all_locks('see') l, zk_lock_queue(l.name) q"),
			1 + 2 * @has, 'the views can be joined by the name, if the database has it');
		is($super->query_safe('SELECT count(*), count(DISTINCT name) FROM zk_waits() WHERE pid <> blocked_by_pid'),
			'3|3', 'zk_waits() finds all of them in any case');
		is($super->query_safe("SELECT count(*) FROM zk_waits() WHERE waits_for = 'ExclusiveLock on ZooKeeper lock \"see/pay<U+200B>\"'"),
			1, 'zk_waits() shows an escape for the invisible character');
		like($super->query_safe('SELECT zk_wait_graph()'), qr/see\/pay#60;U\+00AD#62;/, 'zk_wait_graph() shows an escape for the invisible character');
		is($super->query_safe("SELECT zk_escape(name) FROM zk_all_locks('see') WHERE name = " . named_in($database, 'hyphen')),
			'see/pay<U+00AD>', 'zk_escape() shows an escape for the invisible character');
	};
}

# LATIN1 has the hyphen and lacks the letter.
subtest 'names that a database cannot show are matched by zklock.names all the same' => sub {
	my $bob = background($node, database => 'latin1', user => 'bob');
	my $seen = sub ($list) {
		$bob->query_safe("SET zklock.names = '$list'");
		return $bob->query_safe("SELECT count(*) FROM zk_all_locks('see')") + 0;
	};
	is($seen->('*'), 4, 'all may be seen');
	is($seen->('*, !see/pay<U+00AD>'), 3, 'a name with an invisible character is taken away');
	is($seen->('*, !see/pay<U+0416>'), 3, 'a name that this database lacks is taken away');
	is($seen->('see/other'), 0, 'no other pattern stands for any of them');
	is($bob->query_safe('SELECT count(*) FROM zk_waits()'), 0, 'waits for these names are hidden');
};

subtest 'a client whose encoding lacks a character is shown an escape' => sub {
	my $super = background($node, database => 'utf8');
	$super->query_safe("SET client_encoding = 'LATIN1'");
	is($super->query_safe("SELECT count(*) FROM zk_all_locks('see') WHERE name ~ '<U[+]0416>'"), 1, 'zk_all_locks() shows an escape');
	assert_query($super, 'SELECT * FROM zk_waits()', '00000', 'zk_waits() raises no error');
};

subtest 'fences below a root with such a character are the same for every client' => sub {
	my $super = background($node, database => 'utf8');
	$super->query_safe("SELECT set_config('zklock.root', convert_from('/root\\320\\226', 'UTF8'), false)");
	$super->query_safe("SELECT zk_fence('root', 3)");
	$super->query_safe("SET client_encoding = 'LATIN1'");
	assert_query($super, "SELECT zk_fence('root', 2)", '40001', 'an old token is refused');
	is($super->query_safe("SELECT root, token FROM zk_fences WHERE name = 'root'"), '/root<U+0416>|3', 'zk_fences shows the root with an escape');
};

subtest 'a root that is spelled like an escape has fences of its own' => sub {
	my $super = background($node, database => 'utf8');
	$super->query_safe("SELECT set_config('zklock.root', convert_from('/zkl\\303\\266ck', 'UTF8'), false), zk_fence('two roots', 3)");
	$super->query_safe("SELECT set_config('zklock.root', '/zkl<U+00F6>ck', false)");
	assert_query($super, "SELECT zk_fence('two roots', 2)", '00000', 'a token of the other root does not count');
	is($super->query_safe("SELECT string_agg(root || ' ' || token, ', ' ORDER BY token) FROM zk_fences WHERE name = 'two roots'"),
		'/zkl<U+003C>U+00F6>ck 2, /zkl<U+00F6>ck 3', 'zk_fences tells them apart');
};

subtest 'a database without an encoding names the same znode by the same bytes' => sub {
	my $super = background($node, database => 'sql_ascii');
	is($super->query_safe('SELECT zk_try_lock(' . named_in('sql_ascii', 'letter') . ')'), 'f',
		'a lock held in another database is busy');
	assert_query($super, q{SELECT zk_lock(convert_from('\351', 'SQL_ASCII'))}, '42602', 'bytes that are no UTF-8 are refused');
};

done_testing();
