
# A server's answer comes out of order, as seen once after an election with ZooKeeper 3.8.0, and
# the client library fails all requests with ZRUNTIMEINCONSISTENCY. What was asked may have been
# done: no queue node stays behind, and nothing fails that can be asked again. Tested with a fake
# before a real server that spoils one answer.

use Liar;
use Refusals;
use ZkLockTest;

# Operations, from ZooKeeper's protocol.
my %operation = (delete => 2, get => 4, multi => 14, create2 => 15);

my $zk = ZooKeeper->new(tick_time => 250)->start;
my $liar = Liar->new('127.0.0.1:' . $zk->port);
my $node = cluster('berlin', $zk, servers => $liar->address, 'zklock.commit_guard' => 'quorum');
$node->safe_psql('postgres', 'CREATE TABLE written ()');

# The next answer to that operation has a wrong number; and has had it.
sub spoil { my ($name) = @_; return sub { $liar->misnumber($operation{$name}); } }
my $spoilt = sub { ok($liar->has_come, 'an answer is spoilt'); };

Refusals->new($zk)->run('no call fails and no node is left when answers come out of order',
	{ session => background($node, is_connected => 1) },
	spoil('create2'),
	[ session => "zk_lock('answer')" ],
	$spoilt,
	[ nodes => answer => 1 ],
	[ session => "zk_unlock('answer')", 't' ], [ gone => 'answer' ],
	# What is said to be another session's grants nothing.
	sub { $liar->disown; },
	[ session => "zk_lock('answer')", '!57000' ],
	$spoilt,
	[ gone => 'answer' ],
	# Nor does one without a fencing token.
	sub { $liar->unnumber; },
	[ session => "zk_lock('answer')", '!57000' ],
	$spoilt,
	[ gone => 'answer' ],
	# A delete is repeated.
	[ session => "zk_lock('answer')" ],
	spoil('delete'),
	[ session => "zk_unlock('answer')", 't' ], [ gone => 'answer' ],
	$spoilt,
	# A commit asks again for its proof.
	[ session => "BEGIN; SELECT zk_xact_lock('answer'); INSERT INTO written DEFAULT VALUES" ],
	spoil('multi'),
	[ session => 'COMMIT' ],
	$spoilt,
	[ gone => 'answer' ]);

# The next server may lag behind.
subtest 'a read of the newest is repeated with the check ahead of it' => sub {
	my $session = background($node, is_connected => 1);
	my $requests = sub {
		$session->query_safe('SELECT pg_stat_clear_snapshot()');
		return $session->query_safe('SELECT sum(requests) FROM zk_stat');
	};
	my @asked;
	foreach my $is_spoilt (0, 1)
	{
		my $before = $requests->();
		spoil('get')->() if $is_spoilt;
		is($session->query_safe("SELECT zk_forget_run('answer', 'none')"), 'f', 'there is no run to be forgotten');
		push @asked, $requests->() - $before;
	}
	$spoilt->();
	is($asked[1] - $asked[0], 2, 'the read is repeated with the check ahead of it');
};

# To say -1 would delete a record whatever the version of the guard is.
subtest 'a version of the guard that has run over deletes no record' => sub {
	my ($session, $client) = (background($node), $zk->client);
	my $claims = sub ($slot, $retain) { return $session->query_safe("SELECT zk_run_once('answer', '$slot', '$retain')") eq 't'; };
	ok($claims->('old', '0'), 'a record that may go');
	$liar->wrap(4);
	ok($claims->('new', '1 day'), 'another record is made at version -1');
	$spoilt->();
	is($session->query_safe("SELECT count(*) FROM zk_runs('answer')"), 2, 'no record is deleted at version -1');
	my $before = $client->exists(lock_path('.once'))->{version};
	$liar->wrap(2);
	is($session->query_safe("SELECT zk_forget_run('answer', 'new')"), 't', 'zk_forget_run() deletes its record past version -1');
	$spoilt->();
	is($client->exists(lock_path('.once'))->{version} - $before, 2, 'the deletion goes by the next version');
	$liar->wrap(2);
	ok($claims->('newer', '1 day'), 'a record is made past version -1');
	$spoilt->();
	# Nobody waits for the deletion of what may go.
	assert_soon { $client->exists(lock_path('.once'))->{version} - $before == 4 } 'the record is made by the next version';
};

done_testing();
