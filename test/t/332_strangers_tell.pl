
# Who holds a lock in another cluster, and who asks for its release, is told to members of
# pg_monitor and to the server's log, and not to ordinary roles. Tested with an ordinary role and
# a monitor in each situation that names another session.

use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $berlin = cluster('berlin', $zk,
	log_lock_waits => 'on',
	deadlock_timeout => '10ms');
my $paris = cluster('paris', $zk);
$berlin->safe_psql('postgres',
	'CREATE ROLE ordinary LOGIN; CREATE ROLE monitor LOGIN IN ROLE pg_monitor;
	CREATE ROLE wrapper LOGIN SUPERUSER;
	CREATE FUNCTION take(name text) RETURNS bigint LANGUAGE sql SECURITY DEFINER
		AS $$ SELECT zk_lock($1) $$;
	ALTER FUNCTION take(text) OWNER TO wrapper;
	GRANT EXECUTE ON FUNCTION zk_request_release(text, text) TO PUBLIC');
my $other = background($paris);
my $stranger = $zk->client;

# What only those may know who are named here.
my $identity = qr/process \d+|"paris"|in database|on host|session 0x/;
my %knows = (ordinary => 0, monitor => 1);

sub log_since { return slurp_file($berlin->logfile, $_[0]); }

# Ask for the lock from the other cluster.
sub request ($lock) { return $other->query_safe("SELECT zk_request_release('$lock', 'why not')"); }

foreach my $role (sort keys %knows)
{
	my $session = background($berlin, user => $role);
	my $offset;

	# As all that follows does it: what is shown is what is told.
	my $told = sub ($what, $is_told) {
		local $Test::Builder::Level = $Test::Builder::Level + 1;
		is($session->error =~ $identity ? 1 : 0, $is_told, "$role: $what")
		  or diag $session->error;
		like(log_since($offset), qr/process \d+ of user .* of cluster "paris" on host/, 'it is in the log');
	};

	$other->query_safe("SELECT zk_lock('wait')");
	$session->query_safe('SET client_min_messages = log');
	# On a busy machine there may have been no time to ask who has it.
	foreach (1 .. 20)
	{
		$offset = -s $berlin->logfile;
		$session->query("SELECT zk_lock('wait', '500ms')");
		last if 1 < (() = log_since($offset) =~ /of cluster "paris"/g);
		note('again: there was no time to ask who holds it');
	}
	is($session->sqlstate, '55P03', 'a wait');
	like($session->error, qr/LOG:  process \d+ still waiting for ExclusiveLock on ZooKeeper lock "wait"/,
		'that is logged, to the client too');
	$session->{err} =~ s/LOG:  process \d+ still//;
	unlike($session->error, qr/ waiting for .*\n.*DETAIL:.*\n.*ERROR:/, 'the message of the log does not name the holder');
	$told->('for whom it has waited in vain', $knows{$role});

	my $token = $other->query_safe("SELECT zk_hold('held', 'for good')");
	$offset = -s $berlin->logfile;
	is($session->query_safe("SELECT zk_request_release('held')"), 0, 'no holder can be asked');
	like($session->error, qr/WARNING:  could not ask 1 holder/, 'a warning tells of the holder that could not be asked');
	$told->('whom it could not ask', $knows{$role});
	$other->query_safe("SELECT zk_release_hold('held', $token), zk_unlock_all()");

	foreach my $take ('zk_lock', 'take')
	{
		$session->query_safe("SELECT $take('asked')");
		is(request('asked'), 1, 'asked');
		$offset = -s $berlin->logfile;
		$session->query_safe("SELECT zk_release_requested('asked')");
		like($session->error,
			qr/NOTICE:  release of lock "asked" was requested\n.*DETAIL:  Requested at .*"why not"/,
			'the holder is told when the release was requested, and why');
		$told->('who asks', $knows{$role});
		$session->query_safe('SELECT zk_unlock_all()');
		assert_no_nodes($zk, lock_path('asked'));
	}

	# One that says nothing but that it is there.
	$session->query_safe("SELECT zk_lock('bare')");
	my ($ours) = queue_nodes($zk, lock_path('bare'));
	$stranger->create_path(lock_path('.release'));
	$stranger->create(lock_path(".release/$ours.release"), '');
	poll_until { $session->query_safe("SELECT zk_release_requested('bare')") eq 't' } 'it to be heard', 30;
	like($session->error, $knows{$role} ? qr/DETAIL:  Requested at [-+:.\d ]+\w* by / : qr/DETAIL:  Requested at [-+:.\d ]+\w*\.$/m,
		"$role: when, and no more");
	assert_leave_nothing($zk, lock_path('bare'), $session);
}

done_testing();
