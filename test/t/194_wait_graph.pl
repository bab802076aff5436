
# zk_waits() and zk_wait_graph() show which session waits for which, over all clusters, as rows
# and as a Mermaid picture; names in it are escaped. Tested with real servers, and with twenty
# clients that are no sessions of zklock.

use ZkLockTest;

my $zk = ZooKeeper->new->start;
my %setting = (
	'deadlock_timeout' => '300ms');
my %node = map { $_ => cluster($_, $zk, %setting) } qw(berlin paris);
my $berlin = $node{berlin};
$berlin->safe_psql('postgres', 'CREATE TABLE account (id int); INSERT INTO account VALUES (1)');

# Those without a session are looked for neither, ahead of the others and behind them.
my ($before, $holder, $row, $stuck, $behind) = map { background($berlin) } 1 .. 5;
$_->query_safe("SELECT zk_lock('over'), zk_disconnect()") foreach $before, $behind;
my $abroad = background($node{paris});

# For whom one process of the cluster that is asked waits, as the page writes it.
sub waits_of ($session) { return ' FROM zk_waits() AS w JOIN zk_backends AS b USING (session_id) WHERE b.pid = ' . $session->pid; }

# stuck waits for row's row, row for abroad's lock, holder for nobody, abroad for
# holder's.
$holder->query_safe(q{SELECT zk_lock('a "quoted" <name>')});
$abroad->query_safe("SELECT zk_lock('b')");
$row->query_safe('BEGIN; UPDATE account SET id = 2');
$stuck->query_safe("SELECT zk_lock('c')");
start_in_queue($abroad, q{SELECT zk_lock_shared('a "quoted" <name>')}, $zk, lock_path('a "quoted" <name>'), 2);
start_in_queue($row, "SELECT zk_lock('b')", $zk, lock_path('b'), 2);
$stuck->start_query('UPDATE account SET id = 3');
poll_until { $berlin->safe_psql('postgres', 'SELECT count(*) FROM zk_waits()') == 3 } 'all waits to be told of', 30;

is( $berlin->safe_psql('postgres', q{SELECT format('%s %s %s: %s <- %s %s', cluster, pid, name,
	regexp_replace(waits_for, '\d+', 'N'), blocked_by_cluster, blocked_by_pid)
	FROM zk_waits() ORDER BY name NULLS LAST}),
	join("\n",
		'paris ' . $abroad->pid . ' a "quoted" <name>: ShareLock on ZooKeeper lock "a "quoted" <name>" <- berlin '
		  . $holder->pid,
		'berlin ' . $row->pid . ' b: ExclusiveLock on ZooKeeper lock "b" <- paris ' . $abroad->pid,
		'  : ShareLock on transaction N <- berlin ' . $row->pid),
	'everybody who waits, and for whom');
is($berlin->safe_psql('postgres', 'SELECT blocked_by_cluster, blocked_by_pid' . waits_of($row)),
	'paris|' . $abroad->pid, 'the session that blocks one process');
like($berlin->safe_psql('postgres', 'SELECT waits_for, blocked_by_pid' . waits_of($stuck)),
	qr/^ShareLock on transaction \d+\|${\ $row->pid}$/, 'the session that blocks a process by a lock of PostgreSQL');
is($berlin->safe_psql('postgres', 'SELECT count(*)' . waits_of($holder)),
	0, 'no session blocks the holder');
my $mermaid = $berlin->safe_psql('postgres', 'SELECT zk_wait_graph()');
like($mermaid, qr/^flowchart LR\n(?:\ts0x\w+\["[^"]*"\]\n){4}(?:\ts0x\w+ (?:-->|-\.->)\|"[^"]*"\| s0x\w+\n){3}$/,
	'zk_wait_graph() returns a Mermaid flowchart');
like($mermaid, qr/\|"a #34;quoted#34; #60;name#62;"\|/, 'lock names in the picture are escaped');
is($berlin->safe_psql('postgres', q{SELECT _zk_mermaid('a"#<>&`*\b')}),
	'a#34;#35;#60;#62;#38;#96;#42;#92;b', 'all special characters are escaped');
like($mermaid, qr/ -\.->\|"ShareLock on transaction \d+"\| s0x/, 'waits in PostgreSQL have an arrow of their own');

# A hold, which is no session's, and twenty clients behind it that say nothing of themselves.
$berlin->safe_psql('postgres', "SELECT zk_hold('crowd', 'why not'), zk_hold('crowd/b', 'too')");
my @crowd = map { $zk->client } 1 .. 20;
foreach my $i (0 .. $#crowd)
{
	my $guid = sprintf '%08d-0000-4000-8000-000000000000', $i;
	$crowd[$i]->create(lock_path('crowd') . ($_ ? '/b' : '') . "/_c_$guid-lock-", '',
		ephemeral => 1, sequential => 1) foreach 0, 1;
}
my $crowded = $berlin->safe_psql('postgres', 'SELECT zk_wait_graph()');
like($crowded, qr/"session 0x[0-9a-f]+<br>curator".*\|"crowd"\|.*\|"crowd\/b"\|/s, 'other clients are shown by their style');
is(scalar(() = $crowded =~ /^\ts[0-9a-f]{1,16}\["process \d+<br>berlin/mg), 2, 'each hold is shown');
is($berlin->safe_psql('postgres', "SELECT count(*), count(DISTINCT session_id), count(blocked_by_session_id)
	FROM zk_waits() WHERE name LIKE 'crowd%'"), '40|20|0', 'zk_waits() has a row for each client and lock');
$_->close foreach @crowd;

# A process of another cluster is known by what its queue node says.
my $oslo = cluster('oslo', $zk);
my $lonely = background($oslo);
start_in_queue($lonely, "SELECT zk_lock('b')", $zk, lock_path('b'), 3);
my $blocking = 'SELECT blocked_by_pid' . waits_of($lonely);
my $namesake = $zk->client;
my $data = $namesake->get(lock_path('b') . '/' . (queue_nodes($zk, lock_path('b')))[-1]);
$data =~ s/"host":"[^"]*"/"host":"elsewhere.example.com"/ or die "no host in $data";
$namesake->create(lock_path('b') . '/_c_00000000-0000-4000-8000-000000000000-lock-', $data,
	ephemeral => 1, sequential => 1);
is($oslo->safe_psql('postgres', $blocking), $abroad->pid,
	'a waiter of another cluster, and not a process of a cluster of that name on another host');
like($oslo->safe_psql('postgres', "SELECT location FROM zk_who('b')"), qr{^oslo/postgres\@elsewhere$}m,
	'which zk_who() names without its domain');
$namesake->close;
is($berlin->safe_psql('postgres', $blocking), '', 'a process of another cluster with that number');
$lonely->kill;

$_->quit foreach $before, $behind, $holder;
$abroad->wait_result;
$abroad->quit;
$row->wait_result;
$row->quit;
$stuck->wait_result;

done_testing();
