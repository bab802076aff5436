
# A role that may create objects in the schema where a superuser creates the extension cannot get
# anything run as that superuser, or as a caller of our functions. Tested with a thousand planted
# overloads, operators, casts and types that fit better than ours, each of which sets off an
# alarm.

use FindBin;
use Garden;
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk);
my $garden = Garden->new($node);

# The schema that nobody else sees is what protects the names, not how they are written.
unlike(slurp_file("$FindBin::Bin/../../sql/zklock--2.0.sql") =~ s/^--.*|SET search_path = .*//mgr,
	qr/pg_catalog"?\s*\.|OPERATOR\(/, 'the script writes plain names');

subtest 'CREATE EXTENSION and calls run none of a thousand planted objects' => sub {
	$garden->make('overgrown');
	my @planted = ($garden->overloads, $garden->operators, $garden->namesakes);
	cmp_ok(scalar @planted, '>', 1000, 'planted: ' . @planted);
	$garden->plant(@planted);
	is($garden->create_extension, '', 'the extension can be created');
	is($garden->alarm_rang, 'f', 'CREATE EXTENSION runs nothing that was planted');
	is($garden->strangers, '', 'functions, views and tables depend on their own kind alone');
	is($garden->sql(<<~'SQL'), '', 'no body is parsed only when it runs, but with a search_path of its own');
		SELECT p.oid::regprocedure FROM pg_proc p JOIN pg_language l ON p.prolang = l.oid
		WHERE p.proname ~ '^_?zk_' AND pg_get_userbyid(p.proowner) <> 'planter'
			AND l.lanname NOT IN ('c', 'internal') AND p.prosqlbody IS NULL
			AND p.proconfig IS DISTINCT FROM ARRAY['search_path=pg_catalog, pg_temp']
		SQL

	foreach my $role ('', 'visitor')
	{
		my $session = background($node, database => $garden->database);
		$session->query_safe("SET ROLE $role") if $role;
		$session->query_safe("SELECT garden.zk_lock('tree'::text, NULL::interval, 1)");
		foreach my $function ($garden->functions)
		{
			my ($name, $types, $list) = @$function;
			my $values = join ', ',
			  map { ($_ eq 'text' ? "'tree'" : $_ eq 'bigint' ? 5 : 'NULL') . "::$_" }
			  split /, /, $types;
			next if $name =~ /^(zk_unlock_all|zk_disconnect|_zk_fences_applied)$/;
			$values =~ s/::(?=_zk_)/::garden./g;
			my $verb = $name eq 'zk_commit_and_lock' ? 'CALL' : 'SELECT';
			# A busy server may take longer to answer, and then a try raises.
			foreach (1 .. 20)
			{
				$session->query("SET lock_timeout = '100ms'; $verb garden.$name($values)");
				last if $session->sqlstate !~ /^08/;
				note('again: ' . $session->error);
			}
			like($session->sqlstate, qr/^(00000|22...|42501|42704|55...|2202E|40001)$/,
				"$name($types) as " . ($role || 'owner') . ': ' . $session->sqlstate)
			  or diag($session->error);
		}
		$session->query_safe("SELECT * FROM garden.$_") foreach qw(zk_session_locks zk_session);
	}
	is($garden->alarm_rang, 'f', 'no call runs anything that was planted');
};

# The same signature is refused, so nobody can own what we call; and a function
# whose defaults make it fit is ambiguous at worst.
subtest 'CREATE EXTENSION does not adopt planted objects of our names' => sub {
	my @tries = map { [ "$_->[0]($_->[1])", $garden->planted_function($_->[0], $_->[1]), 1 ] } $garden->imitable;
	foreach my $relation (qw(zk_fences zk_session_locks zk_session))
	{
		push @tries, [ "table $relation", "CREATE TABLE garden.$relation (name text, token bigint);", 1 ];
		push @tries, [ "view $relation", "CREATE VIEW garden.$relation AS SELECT 1;", 1 ];
		push @tries, [ "sequence $relation", "CREATE SEQUENCE garden.$relation;", 1 ];
		push @tries, [ "type $relation", "CREATE DOMAIN garden.$relation AS text;", 1 ];
	}
	foreach my $ours (grep { $garden->is_called($_->[0]) } $garden->imitable)
	{
		my $arguments = join ', ', (split /, /, $ours->[1]), 'more integer DEFAULT 1';
		push @tries, [ "$ours->[0] with a default", $garden->planted_function($ours->[0], $arguments), 0 ];
	}
	$garden->make('squatted');
	foreach my $try (@tries)
	{
		my ($what, $planted, $must_fail) = @$try;
		$garden->plant($planted);
		my $objects = 'SELECT (SELECT count(*) FROM pg_class), (SELECT count(*) FROM pg_proc)';
		my $before = $garden->sql($objects);
		my $error = $garden->create_extension;
		if ($error eq '')
		{
			ok(!$must_fail, "$what: created all the same");
			is($garden->strangers, '', "$what: the extension does not use it");
			$garden->sql('DROP EXTENSION zklock');
		}
		else
		{
			like($error, qr/ERROR: .*(already exists|is not unique|an associated type)/, "$what: refused");
			is($garden->sql($objects), $before, "$what: nothing of the extension remains");
		}
		is($garden->alarm_rang, 'f', "$what: not run");
		$garden->drop_schema;
		$garden->make_schema;
	}
};

done_testing();
