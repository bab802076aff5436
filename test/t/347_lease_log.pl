
# With log_min_messages = debug1, each change of a lease is a line of the server's log, with its
# node, the fencing token and the reason. Tested with two clusters on a real server.

use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk);
my $other = cluster('paris', $zk);
my ($session, $elsewhere) = (background($node, log_min_messages => 'debug1'), background($other));
$node->safe_psql('postgres', 'CREATE TABLE work (who text)');

# What the log tells of leases of that lock while these statements run.
sub told ($name, $sql)
{
	my $from = -s $node->logfile;
	$session->query($sql);
	my $log = substr slurp_file($node->logfile), $from;

	return [ $log =~ /DEBUG:  zklock: lease "\Q@{[ lock_path($name) ]}\E\/[^"]*", fencing token \d+: (.*)/g ];
}

is_deeply(told('plain', "SELECT zk_try_lease('plain', 'app', '30s')"), ['taken'], 'a lease is taken');
is_deeply(told('plain', "SELECT zk_try_lease('plain', 'app', '40s')"),
	['renewed for 40000 ms'], 'a lease is taken by its owner again');
my $token = $session->query_safe("SELECT token FROM zk_leader('plain')");
is_deeply(told('plain', "SELECT zk_renew_lease('plain', $token, '50s')"), ['renewed for 50000 ms'], 'a lease is renewed by its token');
is_deeply(told('plain', "BEGIN; SELECT zk_require_lease('plain', $token); SET LOCAL zklock.commit_guard = quorum; INSERT INTO work VALUES ('a'); COMMIT"),
	[ 'renewed for 50000 ms', 'renewed by a commit' ], 'a lease is renewed by a commit that rests on it');
is_deeply(told('plain', "SELECT zk_release_lease('plain', $token)"),
	['given up, for its token; the lock is free in 0 ms'], 'a lease is released');

$elsewhere->query_safe("SELECT zk_try_lease('busy', 'other', '30s')");
is_deeply(told('busy', "SELECT zk_try_lease('busy', 'else', '30s', '1s')"), [], 'a wait in vain makes no lease');

$elsewhere->query_safe("SELECT zk_try_lease('dead', 'other', '2s')");
is_deeply(told('dead', "SELECT zk_try_lease('dead', 'app', '30s', '60s')"),
	[ 'deleted: its term was over', 'taken' ], 'a lease whose term is over is deleted by the waiter');

subtest 'the log tells that a commit has lost its lease' => sub {
	my $taken = $session->query_safe("SELECT zk_try_lease('lost', 'app', '30s')");
	my $lines = told('lost', <<~"END");
		BEGIN;
		SELECT zk_require_lease('lost', $taken);
		INSERT INTO work VALUES ('b');
		SELECT zk_evict('lost', $taken);
		COMMIT
		END
	is($lines->[-1], 'lost: its node is gone', 'a commit that rests on it is refused');
};

subtest 'the log shows an invisible character in a lock name as an escape' => sub {
	my $from = -s $node->logfile;
	$session->query_safe(q{SELECT zk_try_lease(E'odd\u202Ename', 'app', '30s')});
	my $log = substr slurp_file($node->logfile), $from;
	like($log, qr/zklock: lease "[^"]*\/odd<U\+202E>name\/[^"]*", fencing token \d+: taken$/m, 'the name is escaped');
};

$_->quit foreach $session, $elsewhere;
done_testing;
