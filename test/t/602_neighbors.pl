
# A release and the one before it, or behind it, share ZooKeeper while clusters are upgraded one
# by one: each understands what the other has written into znodes. Tested with the build of the
# last release, where there is one (test/check finds its tag), and a build that writes more into
# its znodes than this one knows.

use Builds;
use ZkLockTest;

plan skip_all => 'this PostgreSQL bears one installation only' if !Builds->can_be;

# JSON as it stands in a text of C.
sub in_c { return $_[0] =~ s/"/\\"/gr; }

# Members in front of those that are known, between and behind them, and of all kinds.
my %ahead = (
	'src/ensemble/nodedata.c' => sub {
		my $known = in_c('{"client":"zklock"');
		my $first = in_c('{"novelty":{"client":"no","pid":[1,null,{}]},"client":"zklock","kin":true');
		my $last = in_c(',"last":{"client":"no","pid":[7]}');
		s/"\Q$known\E/"$first/;
		s/#define ZK_NODE_FORMAT \d+/#define ZK_NODE_FORMAT 4711/;
		s/(append_member\(&json, "host", host\);)/$1\nappend_member(&json, "more", "of it");/;
		s/(?=appendStringInfoChar\(&json, '\}'\);\s+return)/appendStringInfoString(&json, "$last");\n/;
	});
my $zk = ZooKeeper->new->start;
my %setting = (
	'zklock.session_timeout' => '12s',    # long enough for a proof to be fresh
	'deadlock_timeout' => '300ms');
my $ours = cluster('berlin', $zk, %setting);
my %build = (paris => [ 'a build that is ahead', edit => \%ahead ]);
$build{rome} = [ 'the last release', tree => $ENV{ZKLOCK_TEST_FORMER} ] if $ENV{ZKLOCK_TEST_FORMER};

foreach my $cluster (sort keys %build)
{
	my ($name, @option) = @{ $build{$cluster} };
	my $build = Builds->of_tree(@option, flags => ['COPT=-O0 -U_FORTIFY_SOURCE']);
	my $theirs = cluster($cluster, $zk, %setting, $build->settings);
	subtest "the locks of $name and of this build are one lock" => \&one_lock, $theirs;
	foreach my $pair ([ $ours, $theirs ], [ $theirs, $ours ])
	{
		my $whose = 'those of ' . $pair->[0]->name . " first, with $name";
		subtest "readers and writers of both builds exclude each other, $whose" => \&readers, @$pair;
		subtest "each build shows holders of the other, $whose" => \&seen, @$pair;
		subtest "deadlocks between both builds are found, $whose" => \&deadlocks, @$pair;
		subtest "records, requests and holds of one build are understood by the other, $whose" => \&words, @$pair;
		subtest "kept locks are given up for the other build, $whose" => \&kept, @$pair;
	}
	$theirs->stop;
}
done_testing();

# Start to wait, and stand in the queue.
sub queue_up ($session, $lock, $position, $sql = undef)
{
	start_in_queue($session, $sql // "SELECT zk_lock('$lock')", $zk, lock_path($lock), $position);
	return;
}

sub one_lock ($theirs)
{
	foreach my $style (qw(curator curator_rw kazoo))
	{
		my @sessions = map { background($_) } $ours, $theirs, $ours, $theirs, $theirs, $ours;
		my $token = 0;
		my @got;
		$_->query_safe("SET zklock.node_style = '$style'") foreach @sessions;
		my $lock = "turns/$style";
		queue_up($sessions[$_], $lock, $_ + 1) foreach 0 .. $#sessions;
		my @waiting = @sessions;
		while (my $session = shift @waiting)
		{
			my $mine = $session->wait_result;
			push @got, $session->sqlstate eq '00000' && $mine > $token ? 'turn' : $session->error;
			$token = $mine;
			push @got, 'two have it' if grep { $_->is_done } @waiting;
			$session->query_safe("SELECT zk_is_held('$lock')") eq 't' or push @got, 'not held';
			$session->query_safe("SELECT zk_unlock('$lock')");
		}
		is("@got", join(' ', ('turn') x @sessions), "style $style: each in turn, with a higher token");
		assert_no_nodes($zk, lock_path($lock), "style $style: nothing is left");
	}
	foreach my $node ($ours, $theirs)
	{
		cmp_ok($node->safe_psql('postgres', 'SELECT sum(grants_handed_over) FROM zk_stat'), '>', 0,
			'some were handed over, to ' . $node->name);
	}
	return;
}

sub readers (@nodes)
{
	my @session = map { background($_) } @nodes, @nodes;
	$session[$_]->query_safe("SELECT zk_lock_shared('read')") foreach 0, 1;
	queue_up($session[2], 'read', 3);
	is($session[3]->query_safe("SELECT zk_try_lock_shared('read')"), 'f', 'no reader passes a writer');
	$session[0]->query_safe("SELECT zk_unlock_shared('read')");
	wait_for_queue($zk, lock_path('read'), 2);
	ok(!$session[2]->is_done, 'a writer waits for the reader of the other build');
	$session[1]->query_safe("SELECT zk_unlock_shared('read')");
	like($session[2]->wait_result, qr/^\d+$/, 'the writer has the lock when both readers have released it');
	assert_leave_nothing($zk, lock_path('read'), @session);
	return;
}

sub seen (@nodes)
{
	my ($holder, $looker) = map { background($_, name => 'job "x"') } @nodes;
	$holder->query_safe("SELECT zk_lock('seen')");
	is($looker->query_safe("SELECT concat_ws(' ', state, mode, client, cluster, datname, application_name, pid, data)
		FROM zk_lock_queue('seen')"),
		'held exclusive zklock ' . $nodes[0]->name . ' postgres job "x" ' . $holder->pid, 'the queue shows the holder of the other build');
	my $pid = $holder->pid;
	assert_told($looker, "SELECT zk_lock('seen', '0.1 s')", qr/process $pid/,
		'a wait that is too long names the holder');
	is($looker->sqlstate, '55P03', 'the wait ends with 55P03');
	is($looker->query_safe("SELECT count(*) FROM zk_check() WHERE state = 'error'"), 0, 'zk_check() finds no error');
	assert_leave_nothing($zk, lock_path('seen'), $holder, $looker);
	return;
}

sub deadlocks (@nodes)
{
	my ($first, $second) = map { background($_) } @nodes;
	$first->query_safe("SELECT zk_lock('x')");
	$second->query_safe("SELECT zk_lock('y')");
	queue_up($first, 'y', 2);
	$second->start_query("SELECT zk_lock('x', '60 s')");
	poll_until { $first->is_done || $second->is_done } 'one of them to give way', 90;
	my ($loser, $winner) = $second->is_done ? ($second, $first) : ($first, $second);
	assert_ends($loser, '40P01', 'one of them gives way');
	$loser->query_safe('SELECT zk_unlock_all()');
	assert_ends($winner, '00000', 'the other session goes on');
	$_->quit foreach $first, $second;
	assert_no_nodes($zk, lock_path($_)) foreach qw(x y);
	return;
}

sub words (@nodes)
{
	my ($one, $two) = map { background($_) } @nodes;
	my $case = join ' to ', map { $_->name } @nodes;

	is($one->query_safe("SELECT zk_run_once('job', '$case')"), 't', "$case: a run is recorded");
	is($two->query_safe("SELECT zk_run_once('job', '$case')"), 'f', 'the run is known to the other build');
	is($two->query_safe("SELECT cluster FROM zk_runs('job') WHERE slot = '$case'"),
		$nodes[0]->name, 'the record names the cluster');

	my $token = $one->query_safe("SELECT zk_hold('hold', 'because')");
	is($two->query_safe("SELECT concat_ws(' ', state, data, token) FROM zk_lock_queue('hold')"),
		"held because $token", 'a hold is seen by the other build');
	is($two->query_safe("SELECT zk_try_lock('hold')"), 'f', 'the hold keeps the other build out');
	is($two->query_safe("SELECT zk_release_hold('hold', $token)"), 't', 'the other build releases the hold');

	$two->query_safe("SELECT zk_lock('asked')");
	is($two->query_safe("SELECT zk_release_requested('asked')"), 'f', 'no release is requested at first');
	is($one->query_safe("SELECT zk_request_release('asked', 'please')"), 1, 'a holder is asked');
	assert_soon { $two->query_safe("SELECT zk_release_requested('asked')") eq 't' } 'the holder hears of the request', 30;

	$token = $two->query_safe("SELECT zk_fencing_token('asked')");
	is($one->query_safe("SELECT zk_evict('asked', $token)"), 't', 'it is evicted');
	# The loss may cancel the statement, too.
	$two->query('SET zklock.commit_guard = quorum; BEGIN; SELECT pg_current_xact_id()');
	$two->query('COMMIT') if $two->sqlstate ne '40001';
	is($two->sqlstate, '40001', 'the evicted holder does not commit');
	like($two->error, qr/evict/, 'the error tells of the eviction');
	$_->quit foreach $one, $two;
	assert_no_nodes($zk, lock_path($_)) foreach qw(hold asked);
	return;
}

sub kept (@nodes)
{
	my ($keeper, $other) = map { background($_) } @nodes;
	$keeper->query_safe("SET zklock.keep = '1 min'; SELECT zk_lock('kept'), zk_unlock('kept')");
	my ($node) = wait_for_queue($zk, lock_path('kept'), 1);
	like($other->query_safe("SELECT zk_lock('kept', '10 s')"), qr/^\d+$/, 'is given up for the other build');
	is($other->query_safe("SELECT zk_unlock('kept')"), 't', 'the other session has the lock');
	# And once it is shown in the node's data.
	$keeper->query_safe("SELECT zk_lock('kept'), zk_unlock('kept')");
	is($other->query_safe("SELECT zk_try_lock('kept', '10 s')"), 't', 'a try has it, too');
	assert_leave_nothing($zk, lock_path('kept'), $keeper, $other);
	return;
}
