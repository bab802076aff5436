
# Each row of the table in docs/using.md that says when a lock is released is true, for locks of
# session and of transaction scope. Tested by taking both and bringing about the event of the row;
# rows that take a machine or a session timeout are tested elsewhere, and named here.

use FindBin;
use Pages;
use ZkLockTest;

my ($table) = slurp_file("$FindBin::Bin/../../docs/using.md") =~ /^\| event \| session scope \| transaction scope \|\n\|[-|]+\n(.*?)\n\n/ms;
my %row = map { s/\[([^]]*)\]\([^)]*\)/$1/gr =~ /^\| (.*?) \| (.*?) \| (.*?) \|$/ or die "what is $_?"; ($1 => [ $2, $3 ]) }
  split /\n/, $table // '';

my $zk = ZooKeeper->new->start;
my $berlin = cluster('berlin', $zk, max_prepared_transactions => 2, restart_after_crash => 'on');

# What brings the event about, in a transaction with a savepoint before the locks and one after them.
my %sql = (
	'`COMMIT`' => 'COMMIT',
	'`ROLLBACK`, or an error that ends the transaction' => 'ROLLBACK',
	'`ROLLBACK TO` a savepoint that is older than the lock' => 'ROLLBACK TO older',
	'`RELEASE` of such a savepoint' => 'RELEASE older',
	'`zk_unlock()`, `zk_unlock_shared()`' => "SELECT zk_unlock('of/session'), zk_unlock('of/xact')",
	'`zk_unlock_all()`' => 'SELECT zk_unlock_all()',
	'`DISCARD ALL`' => 'DISCARD ALL',
	'`zk_disconnect()`' => 'SELECT zk_disconnect()',
	'`PREPARE TRANSACTION`' => "PREPARE TRANSACTION 'a'");
my $ends = 'the client disconnects; `pg_terminate_backend()`; an idle timeout ends the session; fast shutdown';
my $dies = 'crash or `kill -9` of a backend, out-of-memory killer, immediate shutdown, death of the postmaster';
my $statement = 'end of a statement outside a transaction block';
my %elsewhere = (
	'the machine of the client dies, or its network is cut, while the session is idle' => 'no test cuts the network of a client',
	'the database machine fails, or its container with all processes' => 't/215',
	'the backend is stopped (`SIGSTOP`, a debugger)' => 't/234',
	'loss of the ZooKeeper session' => 't/222');
is_deeply([ sort keys %row ], [ sort $ends, $dies, $statement, keys %sql, keys %elsewhere ], 'the table has these events');

# "session", "xact", both or none: what this session still holds.
sub held ($session)
{
	return $session->query_safe(q{SELECT coalesce(string_agg(substr(name, 4), ' ' ORDER BY name), 'none')
		FROM zk_session_locks WHERE state = 'held'});
}

# What the words of a cell mean, if the lock was taken once.
sub is_released ($cell)
{
	return 1 if $cell =~ /^(?:released|all are released|one acquisition is released)\b/;
	return 0 if $cell =~ /^(?:still held|the session still holds the lock)\b/;
	die "what is \"$cell\"?";
}

sub begin ($session)
{
	$session->query_safe("BEGIN; SAVEPOINT older; SELECT zk_lock('of/session'), zk_xact_lock('of/xact'); SAVEPOINT newer");
	is(held($session), 'session xact', 'both locks are held');
	return;
}

foreach my $event (sort keys %sql)
{
	subtest "what $event does to locks is what the table says" => sub {
		my ($of_session, $of_xact) = @{ $row{$event} // [ '', '' ] };
		my $session = background($berlin);
		begin($session);
		# A refusal ends the transaction: what it would do is seen outside of one.
		my ($refusal) = $of_xact =~ /^refused \((\w{5})\)$/;
		$refusal = '25001' if $of_xact eq 'PostgreSQL refuses it in a transaction block';
		$session->query($sql{$event});
		is($session->sqlstate, $refusal // '00000', 'an error, or none');
		like($session->error, qr/WARNING:  lock "of\/xact" is not held in exclusive mode/, 'the call warns') if $of_xact =~ /\bwarns\b/;
		if ($refusal)
		{
			$session->query_safe('ROLLBACK');
			is(held($session), 'session', 'the refusal has left the lock of session scope');
			$session->query_safe($sql{$event}) if $refusal ne '0A000';
			is(held($session), is_released($of_session) ? 'none' : 'session', "session scope: $of_session");
		}
		else
		{
			is(held($session), join(' ', (is_released($of_session) ? () : 'session'), (is_released($of_xact) ? () : 'xact')) || 'none',
				"session scope: $of_session; transaction scope: $of_xact");
		}
		$session->quit;
	};
}

subtest 'the end of a statement, of a session and of a backend release what the table says' => sub {
	my $session = background($berlin);
	$session->query_safe("SELECT zk_lock('of/session')");
	$session->query_safe("SELECT zk_xact_lock('of/xact')");
	is(held($session), 'session', 'the end of a statement');
	is_deeply([ map { is_released($_) } @{ $row{$statement} } ], [ 0, 1 ], $statement);
	$session->query_safe('SELECT zk_unlock_all()');
	foreach my $event ($ends, $dies)
	{
		is(join(' ', map { s/ at once$//r } @{ $row{$event} }), 'released released', $event);
	}
	begin($session);
	$session->quit;
	assert_becomes { join ' ', map { $_->[0] } $zk->ephemerals(lock_path('of') . '/') } '', 'a client that disconnects leaves no lock';
	$session = background($berlin);
	begin($session);
	kill 'KILL', $session->pid;
	assert_becomes { join ' ', map { $_->[0] } $zk->ephemerals(lock_path('of') . '/') } '', 'a backend that is killed leaves no lock';
	wait_for_recovery($berlin, $session->pid);
};

done_testing();
