# An ensemble can be moved by ZooKeeper's reconfiguration without losing a lock, as
# docs/operations.md tells it: the first servers are removed, a reload names all, another one
# the others, and those of before stop. Tested with five real servers, a holder and a waiter.

use ZkLockTest;

my $zk = ZooKeeper->new(
	servers => 5,
	config => { reconfigEnabled => 'true', skipACL => 'yes' })->start;
my @before = (1, 2);
my @after = (3 .. 5);
my $node = cluster('main', $zk,
	servers => $zk->connect_string(@before));
my ($holder, $waiter) = map { background($node) } 1 .. 2;
my $token = $holder->query_safe(q(SELECT zk_lock('moving')));
my $id = session_id_of($holder);
start_in_queue($waiter, q(SELECT zk_lock('moving')), $zk, lock_path('moving'), 2);
my $offset = -s $node->logfile;

# The sessions with a connection to any of these servers.
sub sessions_at
{
	my $clients = join '', map { $zk->four_letter_word('cons', $_) } @_;
	return scalar(() = $clients =~ /\bsid=0x[0-9a-f]*[1-9a-f]/g);
}

my $client = $zk->client(member => $after[0]);
$client->remove_servers(@before);
$client->close;
reconfigure($node, 'zklock.servers' => $zk->connect_string(@after));
$zk->stop(@before);
assert_becomes { sessions_at(@after) } 2, 'the sessions go to the others when those of before stop';
assert_held($holder, 'moving', 'the lock is held when those of before have stopped');
is($holder->query_safe(q(SELECT zk_fencing_token('moving'))), $token, 'with its token');
is(session_id_of($holder), $id, 'by the same session');
ok(!$waiter->is_done, 'the waiter still waits');
assert_passes('moving', $holder, $waiter, 'the lock passes to the waiter');
unlike(slurp_file($node->logfile, $offset), qr/is lost/, 'no session was lost');

done_testing();
