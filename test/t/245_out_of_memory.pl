
# Each allocation of the library's own, which PostgreSQL does not know of, fails
# once: in a wait, in a release, in a commit, at the end of a backend. Whatever
# becomes of the statement, the cluster stays up, the session works or is replaced,
# and nothing is left in any queue.

use Preload;
use ZkLockTest;

my $shim = Preload::library('fail_once') or plan skip_all => 'there is no compiler';
my $file = PostgreSQL::Test::Utils::tempdir() . '/fault';

# In that process, at that allocation; how many are still to come until then.
sub set_fault ($pid, $countdown)
{
	open my $handle, -e $file ? '+<:raw' : '>:raw', $file or die $!;
	syswrite $handle, pack 'l l', $pid, $countdown;
	return;
}

sub countdown
{
	open my $handle, '<:raw', $file or die $!;
	sysread $handle, my $bytes, 8;
	return (unpack 'l l', $bytes)[1];
}

set_fault(0, 0);
my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk, environment => { LD_PRELOAD => $shim, ZKLOCK_TEST_FAULT => $file });
$node->safe_psql('postgres', 'CREATE TABLE work (n int)');
my $other = background($node, holds => 'busy');

# Every kind of request, and every event of a transaction.
my @script = (
	"SELECT zk_lock('m/a'), zk_lock_shared('m/a')",
	"SELECT zk_unlock('m/a')",
	"SELECT zk_try_lock('m/b'), zk_is_held('m/a')",
	"BEGIN", "SELECT zk_xact_lock('m/c')", "SAVEPOINT s",
	"SELECT zk_xact_lock('m/d', permits => 2)", "ROLLBACK TO s", "INSERT INTO work VALUES (1)",
	"COMMIT",
	"BEGIN", "SELECT zk_xact_lock_path('m/x/y')", "INSERT INTO work VALUES (2)", "ROLLBACK",
	"SELECT zk_lock_set(ARRAY['m/e', 'm/f'])",
	"SELECT zk_try_lock('busy', '20ms')",
	"SELECT zk_release_requested('m/e')",
	"SELECT count(*) FROM zk_lock_queue('m/e')",
	"SELECT zk_unlock_all()",
	"SELECT zk_lock('m/g')", "DISCARD ALL", "SELECT zk_lock('m/h')");

# Too little memory, for a request or for the session, and what follows from that.
my %expected = map { $_ => 1 } qw(00000 53200 53000 08001 08006 40001 25P02 25P01 3B001);

my ($round, %seen, @odd, @stuck, @left);
for ($round = 1; $round <= 1000; $round++)
{
	my $session = background($node);
	set_fault($session->pid, $round);
	foreach my $sql (@script)
	{
		$session->query($sql);
		$seen{ $session->sqlstate }++;
		push @odd, "$round: $sql: " . $session->error unless $expected{ $session->sqlstate };
	}
	my $is_over = countdown() > 0;
	set_fault(0, 0);

	# Nothing is short any more.
	$session->query('ROLLBACK; SELECT zk_unlock_all()');
	eval { poll_until { $session->query("SELECT zk_try_lock('m/z', '10s')") eq 't' } 'the session to work', 20 }
	  or push @stuck, "$round: " . $session->error;
	last if $is_over;
}
note "$round allocations: ", join ', ', map { "$_: $seen{$_}" } sort keys %seen;
cmp_ok($round, '>', 20, 'the library has more than 20 allocations');
cmp_ok($round, '<', 1000, 'the library has fewer than 1000 allocations');
ok($seen{'53200'} || $seen{'08006'}, 'some failed allocations have failed a statement');
is("@odd", '', 'a statement ends well or says why not');
is("@stuck", '', 'the session goes on after each failed allocation');
assert_no_nodes($zk, lock_path("m/$_"), "nothing left of $_") foreach qw(a b c d e f g h z x/y);

# One list that there is no memory for, as one that is too long, does not hide the others.
my $session = background($node);
my $hidden;
for ($round = 1; $round <= 100 && !$hidden; $round++)
{
	set_fault($session->pid, $round);
	my $names = $session->query("SELECT string_agg(name, ' ') FROM zk_all_locks()");
	set_fault(0, 0);
	$hidden = $session->sqlstate eq '00000' && $session->error =~ /could not list the contenders of 1 znode/;
}
ok($hidden, 'a list that is too long is left out');

# A search for deadlocks asks twice for what two of those ahead wait for.
my @ahead = map { background($node, name => $_) } qw(first second);
$other->query_safe("SELECT zk_lock('m/w')");
foreach my $i (0, 1)
{
	$ahead[$i]->query_safe("SET deadlock_timeout = '10ms'; SELECT zk_lock_shared('m/k')");
	start_in_queue($ahead[$i], "SELECT zk_lock('m/w')", $zk, lock_path('m/w'), $i + 2);
}
poll_until { $zk->ephemerals(lock_path('.waits/')) == 2 } 'both to say that they wait', 30;
foreach my $right (31, 1)
{
	# with the right to read alone, what is to be said there is refused
	$zk->client->set_acl(lock_path('.waits'), [ [ $right, 'world', 'anyone' ] ]);
	for ($round = 1; $round <= 200; $round++)
	{
		my $session = background($node, 'deadlock_timeout' => '10ms', holds => 'm/own');
		set_fault($session->pid, $round);
		$session->query("SELECT zk_try_lock('m/k', '200ms')");
		my $is_over = countdown() > 0;
		set_fault(0, 0);
		last if $is_over || $session->sqlstate !~ /^(00000|53200|08006|08001)$/;
	}
	cmp_ok($round, '>', $right == 31 ? 10 : 5, 'a search for deadlocks allocates');
}
ok(!$node->log_contains(qr/PANIC|TRAP|terminated by signal|while in COMMIT state/),
	'the cluster did not crash');
assert_held($other, 'busy', 'the lock of another session is held');

done_testing();
