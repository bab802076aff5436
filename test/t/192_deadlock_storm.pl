
# Sessions of two clusters that take locks and rows in random orders are never stuck: each
# deadlock is found. Sessions that take them in one order are never told of a deadlock. Tested
# with eight sessions on real servers.
#
# DEADLOCK_REPEATS: how often all that is done.

use ZkLockTest;

my $rounds = 25;    # transactions of each session
my $repeats = $ENV{DEADLOCK_REPEATS} // 1;
my $zk = ZooKeeper->new->start;
my %setting = (
	'log_statement' => 'none',
	'log_min_messages' => 'fatal',
	'max_connections' => 40);
my %node = map { $_ => cluster($_, $zk, %setting) } qw(berlin paris);
$_->safe_psql('postgres', 'CREATE TABLE account (id int PRIMARY KEY, sum int);
	INSERT INTO account SELECT i, 0 FROM generate_series(1, 4) i')
  foreach values %node;

# Transactions that take so many things of eight each, in that order: locks, two of
# them shared now and then, and rows.  Says how many deadlocks there were.
sub workload ($order, $timeout, $nrounds)
{
	return "SET deadlock_timeout = '$timeout';
		DO \$\$
		DECLARE thing int; ndeadlocks int := 0; nwaits int := 0;
		BEGIN
			FOR round IN 1 .. $nrounds LOOP
				BEGIN
					FOR thing IN SELECT i FROM (SELECT i FROM generate_series(1, 8) i
						ORDER BY random() LIMIT 3) chosen ORDER BY $order LOOP
						IF thing <= 4 THEN
							PERFORM zk_xact_lock('storm/' || thing);
						ELSIF thing <= 6 AND random() < 0.5 THEN
							PERFORM zk_xact_lock_shared('storm/' || thing);
						ELSIF thing <= 6 THEN
							PERFORM zk_xact_lock('storm/' || thing);
						ELSE
							UPDATE account SET sum = sum + 1 WHERE id = thing - 6;
						END IF;
						PERFORM pg_sleep(random() * 0.005);
					END LOOP;
				EXCEPTION WHEN deadlock_detected THEN
					ndeadlocks := ndeadlocks + 1;
				END;
				COMMIT;
			END LOOP;
			RAISE NOTICE '% deadlocks', ndeadlocks;
		END \$\$";
}

# All sessions at once.  Result: how many deadlocks there were.
sub run_all ($sql, @sessions)
{
	$_->start_query($sql) foreach @sessions;
	my $ndeadlocks = 0;
	foreach my $session (@sessions)
	{
		assert_ends($session, '00000', 'a session came through');
		$ndeadlocks += $1 if $session->error =~ /(\d+) deadlocks/;
	}
	return $ndeadlocks;
}

my @sessions = map { background($node{$_}) } ('berlin', 'paris') x 4;

foreach (1 .. $repeats)
{
	cmp_ok(run_all(workload('random()', '50ms', $rounds), @sessions),
		'>', 0, 'in random orders: deadlocks there were, and nobody was stuck');
	is(run_all(workload('i', '1ms', 2 * $rounds), @sessions),
		0, 'in one order: no deadlock was seen where there is none');
}

assert_no_nodes($zk, lock_path("storm/$_"), "storm/$_: nothing left") foreach 1 .. 6;
poll_until { !(my @facts = $zk->ephemerals(lock_path('.waits/'))) } 'facts to go', 30;

done_testing();
