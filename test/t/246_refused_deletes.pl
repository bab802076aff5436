
# A delete that ZooKeeper refuses, here for want of a right, is asked for again until it is
# done: what was released, given up or kept is gone soon after the right is back. It is
# said once in the log, and shown meanwhile. If it stays refused for a session timeout, and
# the session holds nothing, the session is ended, and its nodes with it.

use strict;
use warnings;

use PostgreSQL::Test::Utils qw(slurp_file);
use Test::More;
use ZkLockTest;
use ZooKeeper;

my $all = 31;
my $delete = 8;

my $zk = ZooKeeper->new(tick_time => 250)->start;
my $node = cluster('berlin', $zk, 'zklock.session_timeout' => '60s');
my $stranger = $zk->client;
my $patience = 60;

sub refuse { return $stranger->set_acl(lock_path($_[0]), [ [ $all & ~$delete, 'world', 'anyone' ] ]); }
sub allow { return $stranger->set_acl(lock_path($_[0]), [ [ $all, 'world', 'anyone' ] ]); }

# Becomes the answer what it should be?  Each time the session is looked at, too.
sub becomes
{
	my ($session, $query, $expected, $what) = @_;
	my $got;
	eval { poll_until { ($got = $session->query_safe($query)) eq $expected } $what, $patience };
	return is($got, $expected, $what);
}

sub gone
{
	my ($name, $what) = @_;
	my @nodes;
	eval { poll_until { !(@nodes = queue_nodes($zk, lock_path($name))) } $what, $patience };
	return is("@nodes", '', $what);
}

# How often the log says from there on that a delete of a node of that lock is refused.
sub complaints
{
	my ($from, $name) = @_;
	my $path = lock_path($name);
	return scalar(() = slurp_file($node->logfile, $from) =~ /\Q$path\E\/\S+" cannot be deleted/g);
}

my ($one, $two) = map { background($node) } 1 .. 2;
my $pending = 'SELECT pending_requests FROM zk_session';

subtest 'a lock that is released' => sub {
	my $from = -s $node->logfile;
	$one->query_safe("SELECT zk_lock('released'), zk_lock('other')");
	refuse('released');
	is($one->query_safe("SELECT zk_unlock('released')"), 't', 'it is released');
	becomes($one, $pending, 1, 'the delete is under way');
	becomes($two, "SELECT state FROM zk_lock_queue('released')", 'releasing', 'and the queue says so');
	my $check = q{SELECT state, substring(what, 'delete: \d+'), remedy ~ 'DELETE' FROM zk_check(false) WHERE item = 'releases'};
	becomes($one, $check, 'warning|delete: 1|t', 'so does zk_check()');
	is($two->query_safe($check), '', 'of this session alone');
	is($two->query_safe("SELECT zk_try_lock('released')"), 'f', 'nobody else has it');
	becomes($one, $pending, 1, 'it is under way still');
	is(complaints($from, 'released'), 1, 'which was logged once');
	allow('released');
	gone('released', 'with the right the node goes');
	becomes($one, $pending, 0, 'and nothing is under way');
	is($one->query_safe($check), '', 'so there is no row of it');
	is($two->query_safe("SELECT zk_try_lock('released')"), 't', 'so another one gets it');
	is($one->query_safe("SELECT zk_is_held('other')"), 't', 'the other lock is held all the time');
	$_->query_safe('SELECT zk_unlock_all()') foreach $one, $two;
};

# Whoever is next has it, though the node ahead of him cannot be deleted.
subtest 'a lock that is handed over' => sub {
	my ($writer, $reader) = map { background($node) } 1 .. 2;
	my $states = "SELECT string_agg(state, ' ' ORDER BY position) FROM zk_lock_queue('over')";
	$one->query_safe("SELECT zk_lock('over')");
	foreach my $waiter ($two, $writer)
	{
		$waiter->start_query("SELECT zk_lock('over')");
		wait_for_wait($node, $waiter->pid);
	}
	refuse('over');
	$one->query_safe("SELECT zk_unlock('over')");
	like($two->wait_result, qr/^\d+$/, 'to who waits');
	becomes($one, $states, 'releasing held waiting', 'the queue says who has it');
	$two->query_safe("SELECT zk_unlock('over')");
	like($writer->wait_result, qr/^\d+$/, 'and to the next one');
	becomes($one, $states, 'releasing releasing held', 'of whom the queue says so, too');
	$writer->query_safe("SELECT zk_unlock('over')");
	$reader->start_query("SELECT zk_lock_shared('over')");
	wait_for_wait($node, $reader->pid);
	becomes($one, $states, 'releasing releasing releasing waiting', 'a reader waits until they are gone');
	allow('over');
	like($reader->wait_result, qr/^\d+$/, 'and has it then');
	$reader->query_safe("SELECT zk_unlock_shared('over')");
	gone('over', 'and nothing is left');
	becomes($_, $pending, 0, 'nothing to do') foreach $one, $two;
	$_->quit foreach $writer, $reader;
};

subtest 'a wait that is given up' => sub {
	$one->query_safe("SELECT zk_lock('given up')");
	refuse('given up');
	is($two->query_safe("SELECT zk_try_lock('given up', '200ms')"), 'f', 'it came to nothing');
	becomes($two, $pending, 1, 'the delete is under way');
	is($two->query_safe("SELECT zk_lock('elsewhere', '60s') > 0, zk_unlock('elsewhere')"), 't|t',
		'and in the way of no other lock');
	allow('given up');
	becomes($two, $pending, 0, 'and done');
	wait_for_queue($zk, lock_path('given up'), 1);
	is($one->query_safe("SELECT zk_is_held('given up')"), 't', 'the holder holds it');
	$one->query_safe('SELECT zk_unlock_all()');
	gone('given up', 'nobody stands there');
};

subtest 'a lock that is kept' => sub {
	$one->query_safe("SET zklock.keep = '1h'; SELECT zk_lock('kept'), zk_unlock('kept')");
	is($one->query_safe("SELECT state FROM zk_locks WHERE name = 'kept'"), 'kept', 'it is kept');
	refuse('kept');
	$two->start_query("SELECT zk_lock('kept')");
	becomes($one, $pending, 1, 'it is given up, which is refused');
	allow('kept');
	like($two->wait_result, qr/^\d+$/, 'and then whoever waits has it');
	$two->query_safe("SELECT zk_unlock('kept')");
	gone('kept', 'and nobody after him');
	$one->query_safe("RESET zklock.keep");
};

subtest 'a downgrade' => sub {
	$one->query_safe("SELECT zk_lock('downgraded'), zk_lock_shared('downgraded')");
	refuse('downgraded');
	is($one->query_safe("SELECT zk_unlock('downgraded')"), 't', 'the exclusive hold is released');
	becomes($one, $pending, 1, 'its node is still to be deleted');
	is($two->query_safe("SELECT zk_try_lock_shared('downgraded')"), 'f', 'and in the way of others');
	allow('downgraded');
	is($two->query_safe("SELECT zk_try_lock_shared('downgraded', '60s')"), 't', 'until it may be deleted');
	becomes($one, $pending, 0, 'then nothing is under way');
	is($one->query_safe("SELECT zk_is_held('downgraded')"), 't', 'and the lock is held, shared');
	$_->query_safe('SELECT zk_unlock_all()') foreach $one, $two;
	gone('downgraded', 'nobody stands there');
};

subtest 'a session that holds nothing' => sub {
	my $from = -s $node->logfile;
	my $short = background($node);
	$short->query_safe("SET zklock.session_timeout = '2s'; SELECT zk_lock('stuck'), zk_lock('held')");
	refuse('stuck');
	$short->query_safe("SELECT zk_unlock('stuck')");
	my $refused_at = $node->safe_psql('postgres', 'SELECT clock_timestamp()');
	poll_until { $node->safe_psql('postgres', "SELECT clock_timestamp() > '$refused_at'::timestamptz + '3s'") eq 't' }
	  'a session timeout and more', $patience;
	is($short->query_safe("SELECT zk_is_held('held')"), 't', 'one that holds another lock goes on');
	is(scalar(queue_nodes($zk, lock_path('stuck'))), 1, 'and so the node stays');
	$short->query_safe("SELECT zk_unlock('held')");
	gone('stuck', 'without a lock it is ended, and the node goes');
	$short->query_safe("SELECT zk_lock('after')");
	like(slurp_file($node->logfile, $from), qr/refused for the session timeout of \d+ ms to delete what had been released/,
		'which the log says');
	is($short->query_safe("SELECT zk_unlock('after')"), 't', 'and the next lock has a session of its own');
	allow('stuck');
	$short->quit;
};

$_->quit foreach $one, $two;
done_testing();
