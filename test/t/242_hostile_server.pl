
# A server that lies, or what stands in its place, costs a session and nothing else: not the
# cluster, not another backend, and not this one, which locks again as soon as there is an honest
# server. Tested with a fake that lies to the session's program, which ends.

use Liar;
use ZkLockTest;

# For how long it lies at least, to how many statements, and what the seed is, printed
# below.
my $lie_seconds = 16;
my $least = 200;
my $seed = $ENV{FUZZ_SEED} || $$ + 100_000 * (time % 10_000);

my $zk = ZooKeeper->new(tick_time => 250)->start;
my $liar = Liar->new('127.0.0.1:' . $zk->port, seed => $seed);
my $node = cluster('berlin', $zk,
	servers => $liar->address,
	'statement_timeout' => '3s', 'zklock.connect_timeout' => '1s', 'zklock.session_timeout' => '1s');
note("seed $seed");

# Or a session with credentials makes the root, if the lies keep the others from it,
# and nobody without them gets in any more.
my $stranger = $zk->client;
$stranger->create_path(lock_path('honest'));
$stranger->close;

my $bystander = background($node);
my $started = $bystander->query('SELECT pg_postmaster_start_time()');
my @sessions = map { background($node) } 1 .. 4;
my @pids = map { $_->pid } @sessions;

my @statements = (
	"SELECT zk_lock('a', '200ms')", "SELECT zk_lock('b', '200ms')",
	"SELECT zk_lock_shared('a', '200ms')",
	"SELECT zk_try_lock('a'), zk_try_lock('b')",
	"SELECT zk_unlock('a')", "SELECT zk_unlock('b')", "SELECT zk_unlock_all()",
	"SELECT zk_is_held('a'), zk_is_held('b')",
	"SELECT count(*) FROM zk_lock_queue('a')",
	"BEGIN; SELECT zk_xact_lock('c', '200ms'); COMMIT", 'ROLLBACK',
	"SELECT zk_disconnect()",
	"SELECT zk_lock('d', '200ms', 2)", "SELECT zk_try_lock('d', permits => 2)",
	"SELECT zk_lock_set('{a,b,e/f}'::text[], '200ms')",
	"SELECT zk_lock_path('e/f', '200ms')", "SELECT zk_unlock_path('e/f')",
	"SELECT zk_fencing_token('a'), zk_release_requested('b')",
	"SELECT zk_request_release('a', 'please'), zk_request_release('d')",
	"SELECT zk_evict('a', token) FROM zk_lock_queue('a')",
	"SELECT count(*) FROM zk_all_locks()", "TABLE zk_session_locks", "TABLE zk_session",
	"SELECT zk_hold('h', 'a note', '200ms')",
	"SELECT zk_release_hold('h', token) FROM zk_lock_queue('h')",
	"SELECT zk_run_once('r', (random() * 9)::int::text, '1 second')",
	"SELECT count(*) FROM zk_runs('r')", "SELECT zk_forget_run('r', '1')",
	"SET zklock.node_style = 'kazoo'", "SET zklock.node_style = 'curator'",
	"SET zklock.commit_guard = 'quorum'", "SET zklock.commit_guard = 'fresh'",
	"SET zklock.connect_timeout = '4s'", 'RESET zklock.connect_timeout');

# Each session goes on by itself, so that they meet.
$liar->lie(0.2);
srand $seed;
my %seen;
my $statements = 0;
my $until = time + $lie_seconds;
while (time < $until || $statements < $least)
{
	foreach my $session (@sessions)
	{
		next unless $session->is_done;
		if ($session->{pending})
		{
			$session->wait_result;
			$seen{ $session->sqlstate }++;
			$statements++;
		}
		$session->start_query($statements[ rand @statements ]);
	}
	# one that is idle takes no processor from them
	$bystander->query_safe("SELECT pg_sleep(0.005)");
}
$liar->be_honest;
$_->wait_result foreach grep { $_->{pending} } @sessions;
my $lies = $liar->lies;
diag("$statements statements, $lies lies; seed $seed; SQLSTATEs: "
	  . join ', ', map { "$_ $seen{$_}" } sort keys %seen);
cmp_ok($lies, '>', $least / 2, 'the server has lied many times');
ok(!$seen{XX000}, 'there was no internal error');

is($bystander->query('SELECT pg_postmaster_start_time()'), $started, 'PostgreSQL has not restarted');
is($bystander->query('SELECT pg_backend_pid()'), $bystander->pid, 'a bystander is still there');

# Nobody else may hold what a former session has left, for its timeout.
foreach my $session (@sessions)
{
	# Credentials keep out those who have none.
	$session->query($_) foreach 'ROLLBACK', 'RESET ALL', 'SELECT zk_unlock_all(), zk_disconnect()';
}
foreach my $i (0 .. $#sessions)
{
	my $session = $sessions[$i];
	# Of a session that was lost meanwhile a statement may still hear; and on a busy
	# machine one of a second may be lost again.
	my $holds = sub {
		$session->query("SELECT zk_lock('honest', '20s')");
		return 1 if $session->query("SELECT zk_is_held('honest')") eq 't';
		$session->query('SELECT zk_unlock_all()');
		return 0;
	};
	assert_soon { $holds->() } "backend $i locks again", 60;
	is($session->query('SELECT pg_backend_pid()'), $pids[$i], "backend $i is the same process");
	$session->query_safe("SELECT zk_unlock_all()");
}

$_->quit foreach @sessions;
assert_no_nodes($zk, lock_path($_), "no node of $_ is left") foreach qw(a b c d e/f honest);
assert_no_programs('no program of a session is left', @pids);
$bystander->quit;
ok(!$node->log_contains(qr/PANIC|TRAP|terminated by signal|was terminated|crash of another/),
	'nothing has crashed');

done_testing();
