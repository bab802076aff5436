
# A fault of zklock that leads a state machine astray is told, and nothing relies on the state
# any more: a lock whose place is in doubt refuses the commit, and can be released; a program
# that is at fault says so, ends, and takes its session with it. Tested in a build that has such
# faults with locks of two names.

use Builds;
use ZkLockTest;

plan skip_all => 'this PostgreSQL bears one installation only' if !Builds->can_be;
my $build = Builds->of_tree(edit => {
	'src/queue/place.c' => sub { s/(zklock_place_move\(place, )(ZK_PLACE_HELD),/$1strcmp(place->name, "doubtful") == 0 ? ZK_PLACE_KEPT : $2,/ },
	'src/program/program_request.c' => sub { s/(?=!move_is_legal\(legal_steps)/strstr(request->path, "faulty") != NULL || / } });
my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk, $build->settings);
my $session = background($node);
my $log = $node->logfile;
$session->query_safe('CREATE TABLE written (what text)');

subtest 'a lock whose place makes an illegal move counts as lost' => sub {
	plan skip_all => 'this PostgreSQL has assertions' if $session->query_safe('SHOW debug_assertions') eq 'on';
	$session->query_safe('BEGIN');
	$session->query_safe(q{INSERT INTO written VALUES ('a')});
	is($session->query(q{SELECT zk_lock('doubtful') > 0}), 't', 'the lock is granted');
	like($session->error, qr/WARNING: +illegal state of the place of a lock: "kept" after "wanted"\nDETAIL: +This is a fault of zklock\./,
		'the fault is told');
	assert_query($session, 'COMMIT', '40001', 'the commit is refused');
	like($session->error, qr/lock "doubtful" was lost\nDETAIL: +Its state is in doubt, by a fault of zklock\.\n/, 'the refusal has the reason');
	is($session->query_safe('SELECT count(*) FROM written'), 0, 'nothing is written');
	is($session->query(q{SELECT zk_unlock('doubtful')}), 'f', 'the lock can be released');
	assert_no_nodes($zk, lock_path('doubtful'));
};

subtest 'a program that is about to make an illegal move ends, and its session with it' => sub {
	$session->query_safe('BEGIN');
	$session->query_safe(q{INSERT INTO written VALUES ('a')});
	$session->query(q{SELECT zk_lock('faulty')});
	$session->query('COMMIT');
	is($session->query_safe('SELECT count(*) FROM written'), 0, 'nothing is written');
	assert_soon { slurp_file($log) =~ /The session's program is at fault: illegal state of the step of a request, \d+ after 0\./ }
		'the log has the fault';
	assert_leave_nothing($zk, lock_path('faulty'), $session);
};

done_testing();
