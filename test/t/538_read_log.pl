
# The log that src/DEVELOPMENT.md explains, from the first lock to a loss, is what the server
# writes: each line of the page is in the log, and each line of the log on the page. Tested by
# playing that story with real servers.

use FindBin;
use Pages;
use ZkLockTest;

my $page = Pages::slurp("$FindBin::RealBin/../../src/DEVELOPMENT.md");
my ($block) = $page =~ /^## Read a log\n.*?^```\n(.*?)^```/ms;
my @expected = map { plain($_) } split /\n/, $block // '';
cmp_ok(scalar @expected, '>', 10, 'the page has lines');

my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk, log_min_messages => 'debug1', 'zklock.session_timeout' => '4s');
my $paris = cluster('paris', $zk);
$node->safe_psql('postgres', 'CREATE TABLE work (done integer)');
my $path = lock_path('nightly');

my $holder = background($paris);
my $session = background($node);
$holder->query_safe("SELECT zk_lock('nightly')");
start_to_wait($session, "SELECT zk_lock('nightly')");
wait_for_watch($zk, (queue_nodes($zk, $path))[0], $session);
$holder->query_safe("SELECT zk_unlock('nightly')");
ok($session->wait_result, 'the lock is granted');

$session->query_safe('BEGIN; INSERT INTO work VALUES (1)');
$session->start_query('SELECT pg_sleep(300)');
wait_for_sleep($node, $session->pid);
$zk->stop;
ok(!$session->wait_result, 'the statement ends with the session');
like($session->error, qr/lock "nightly" was lost/, 'the error names the lost lock');
$session->query('ROLLBACK');
$session->query("SELECT zk_unlock('nightly')");
$session->quit;
$zk->start;

my @lines = map { plain($_) } slurp_file($node->logfile) =~ /DEBUG:  (zklock: .*)/g;
my %is_there = map { $_ => 1 } @lines;
my %is_expected = map { $_ => 1 } @expected;
is_deeply([ grep { !$is_there{$_} } @expected ], [], 'each line of the page is in the log');
is_deeply([ grep { !$is_expected{$_} } @lines ], [], 'each line of the log is on the page');

done_testing();

# A line without what differs from run to run.
sub plain ($line)
{
	$line =~ s{"/[\w/-]*?nightly\b}{"/nightly}g;
	$line =~ s/_c_[0-9a-f-]+-lock-/_c_-lock-/g;
	$line =~ s/0x[1-9a-f][0-9a-f]*/0xN/g;
	$line =~ s/127\.0\.0\.1:\d+/SERVER/g;
	$line =~ s/\d+ ms\b/N ms/g;
	$line =~ s/fencing token [1-9]\d*/fencing token N/;
	return $line;
}
