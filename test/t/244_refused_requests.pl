
# Each request that a statement makes is refused once, with each error that a server
# has, or its answer is lost with the connection. Whatever becomes of the statement, it
# says so in terms of its own; who is told that he has a lock has it; the backend lives
# and its next statement works; and nothing is left in any queue.

use strict;
use warnings;

use Liar;
use Test::More;
use ZkLockTest;
use ZooKeeper;

# What a server says, as ZooKeeper's protocol numbers it.
my %error = (
	'a failure' => -1,
	'too much' => -5,
	'unimplemented' => -6,
	'bad arguments' => -8,
	'no node' => -101,
	'no rights' => -102,
	'another version' => -103,
	'there already' => -110,
	'the end of the session' => -112,
	'a quota' => -125,
	'no answer' => undef);

# Those that a statement may take for an answer, and one for all that it may not; a few
# statements meet all of them.
my @usual = ('no node', 'no rights', 'there already', 'a quota', 'the end of the session', 'no answer');

# No more requests than that are made for any of the statements.
my $most_requests = 60;

my $zk = ZooKeeper->new(tick_time => 250)->start;
my $liar = Liar->new('127.0.0.1:' . $zk->port);
my $node = cluster('berlin', $zk,
	'shared_preload_libraries' => 'zklock',
	'deadlock_timeout' => '20ms',
	'zklock.keep' => '0',
	'zklock.session_timeout' => '5s');
$node->safe_psql('postgres', 'CREATE TABLE account (id int PRIMARY KEY, sum int);
	INSERT INTO account SELECT i, 0 FROM generate_series(1, 2) i');
my $started = $node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');

my $stranger = $zk->client;

# Whose requests are refused, and another one, whose requests are not.
my ($session, $other) = map { background($node) } 1 .. 2;
$session->query_safe("SET zklock.servers = '" . $liar->address . "'");
$other->query_safe("SET deadlock_timeout = '1ms'");

# What may become of a statement: done, a failure of ZooKeeper's that is told as such, or
# what it says itself.
my %is_expected = map { $_ => 1 } qw(00000 08006 08001 22023 42501 53200 53400 55P03 57000 58000 40001);

# What is done, with how often which became of it.
my %told;
my $round = 0;

# Each case: what is asked for, what stands before it on the same connection, and on the
# other one; how the other one goes on once the statement waits; what shows that a lock is
# had, and for which name. NAME is another one each time, and TOKEN what the other one got.
my @cases = (
	[ 'a lock', with_all => 1, sql => "SELECT zk_lock('NAME/a')", lock => 'NAME/a' ],
	[ 'a shared lock', sql => "SELECT zk_lock_shared('NAME/a')", lock => 'NAME/a' ],
	[ 'a permit', sql => "SELECT zk_lock('NAME/a', permits => 2)" ],
	[ 'a try', sql => "SELECT zk_try_lock('NAME/a')", is_true => 'NAME/a' ],
	[ 'a try in vain', sql => "SELECT zk_try_lock('NAME/a', '30ms')", other => "SELECT zk_lock('NAME/a')",
		is_true => 'NAME/a' ],
	[ 'a try of nothing but a look', sql => "SELECT zk_try_lock('NAME/a')",
		other => "SELECT zk_lock('NAME/a')", is_true => 'NAME/a' ],
	[ 'a set of locks', sql => "SELECT zk_lock(ARRAY['NAME/a', 'NAME/b'])", lock => 'NAME/b' ],
	[ 'a try of a set', sql => "SELECT zk_try_lock(ARRAY['NAME/a', 'NAME/b'])", is_true => 'NAME/b' ],
	[ 'a path', sql => "SELECT zk_lock_path('NAME/a/b')", lock => 'NAME/a/b' ],
	[ 'the first lock of a session', sql => "SELECT zk_lock('NAME/a')", lock => 'NAME/a',
		before => 'SELECT zk_disconnect()' ],
	[ 'a wait', sql => "SELECT zk_lock('NAME/a')", lock => 'NAME/a',
		other => "SELECT zk_lock('NAME/a')", meanwhile => "SELECT zk_unlock('NAME/a')" ],
	[ 'a wait behind readers', sql => "SELECT zk_lock('NAME/a')", lock => 'NAME/a',
		other => "SELECT zk_lock_shared('NAME/a')", meanwhile => "SELECT zk_unlock_shared('NAME/a')" ],
	[ 'a release', sql => "SELECT zk_unlock('NAME/a')", before => "SELECT zk_lock('NAME/a')" ],
	[ 'a release that waits', sql => 'SELECT zk_disconnect()', before => "SELECT zk_lock('NAME/a')" ],
	[ 'a downgrade', sql => "SELECT zk_unlock('NAME/a'); SELECT zk_lock('NAME/b')",
		before => "SELECT zk_lock('NAME/a'), zk_lock_shared('NAME/a')" ],
	[ 'a commit', sql => 'COMMIT',
		before => "SET zklock.commit_guard = 'quorum'; BEGIN; SELECT zk_xact_lock('NAME/a'), zk_xact_lock('NAME/b');
			UPDATE account SET sum = sum + 1 WHERE id = 1" ],
	[ 'a commit behind a downgrade', sql => 'COMMIT',
		before => "SET zklock.commit_guard = 'quorum'; BEGIN; SELECT zk_lock('NAME/a'), zk_lock_shared('NAME/a'), zk_unlock('NAME/a');
			UPDATE account SET sum = sum + 1 WHERE id = 1" ],
	[ 'a look at a queue', sql => "SELECT count(*) FROM zk_lock_queue('NAME/a')",
		other => "SELECT zk_lock('NAME/a')" ],
	[ 'a look at all locks', sql => 'SELECT count(*) FROM zk_all_locks()', other => "SELECT zk_lock('NAME/a')" ],
	[ 'a look at waits', sql => "SELECT count(*) FROM zk_waits(); SELECT zk_wait_graph()",
		other => "SELECT zk_lock('NAME/a')" ],
	[ 'an examination', with_all => 1, sql => 'SELECT count(*) FROM zk_check(true)', other => "SELECT zk_lock('NAME/a')" ],
	[ 'a hold', with_all => 1, sql => "SELECT zk_hold('NAME/h', 'because')" ],
	[ 'the end of a hold', other => "SELECT zk_hold('NAME/h', 'because')",
		sql => "SELECT zk_release_hold('NAME/h', TOKEN)" ],
	[ 'an eviction', other => "SELECT zk_lock('NAME/a')",
		sql => "SELECT zk_evict('NAME/a', TOKEN)" ],
	[ 'a request to release', other => "SELECT zk_lock('NAME/a')",
		sql => "SELECT zk_request_release('NAME/a', 'please')" ],
	[ 'a look for requests', sql => "SELECT zk_release_requested('NAME/a')", before => "SELECT zk_lock('NAME/a')" ],
	[ 'a run', with_all => 1, sql => "SELECT zk_run_once('NAME', 'today')" ],
	[ 'a run that was', sql => "SELECT zk_run_once('NAME', 'today')", other => "SELECT zk_run_once('NAME', 'today')" ],
	[ 'a run after another one', sql => "SELECT zk_run_once('NAME', 'today', '1 second')",
		other => "SELECT zk_run_once('NAME', 'yesterday', '1 ms')" ],
	[ 'a list of runs', sql => "SELECT count(*) FROM zk_runs('NAME')", other => "SELECT zk_run_once('NAME', 'today')" ],
	[ 'a run to forget', sql => "SELECT zk_forget_run('NAME', 'today')",
		other => "SELECT zk_run_once('NAME', 'today')" ],
	[ 'a deadlock', sql => "SELECT zk_lock('NAME/b')", before => "SELECT zk_lock('NAME/a')",
		other => "SELECT zk_lock('NAME/b')", its_wait => "SELECT zk_lock('NAME/a')", may_be => '40P01' ],
	[ 'a deadlock over a row', sql => "SELECT zk_lock('NAME/b')",
		before => 'BEGIN; UPDATE account SET sum = sum + 1 WHERE id = 2',
		other => "SELECT zk_lock('NAME/b')", its_row => 'UPDATE account SET sum = sum + 1 WHERE id = 2',
		may_be => '40P01' ]);

foreach my $case (@cases)
{
	my ($name, %case) = @$case;
	my (@odd, $nrounds, $nrequests);
	foreach my $number (1 .. $most_requests)
	{
		my $has_come;
		foreach my $what ($case{with_all} ? sort keys %error : @usual)
		{
			my $is_there = refuse($number, $what, \%case, \@odd);
			$nrounds++ if $is_there;
			$has_come ||= $is_there;
		}
		last unless $has_come;
		$nrequests = $number;
	}
	ok(defined $nrequests, "$name: there are requests");
	is("@odd[0 .. ($#odd < 9 ? $#odd : 9)]", '', sprintf '%s: %d requests, %d errors', $name, $nrequests // 0, $nrounds // 0);
}
is($node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()'), $started, 'the cluster was up all the time');
note join ', ', map { "$_: $told{$_}" } sort keys %told;
$_->quit foreach $session, $other;
poll_until { !$zk->ephemerals(lock_path('')) } 'all to end', 30;
pass('no node of anybody is left');
done_testing();

# One statement, of whose requests that one meets that. Whether there was such a request;
# adds what is odd about what came of it.
sub refuse
{
	my ($number, $what, $case, $odd) = @_;
	my $name = 'round/' . ++$round;
	my $token = 0;
	my $with = sub { return $_[0] =~ s/NAME/$name/gr =~ s/TOKEN/$token/gr; };
	my $odd_one = sub { push @$odd, "[$number, $what: $_[0]]"; };

	$session->query($with->($case->{before})) if $case->{before};
	$token = $other->query_safe($with->($case->{other})) if $case->{other};
	if ($case->{its_wait} || $case->{its_row})
	{
		$other->query_safe('BEGIN');
		$other->start_query($with->($case->{its_wait} || $case->{its_row}));
		$case->{its_wait} ? poll_until { $zk->ephemerals(lock_path('.waits/')) } 'it to say so', 30 : wait_for_row($other);
	}
	$session->query_safe($case->{may_be} ? "SET lock_timeout = '300ms'" : "SET lock_timeout = '1s'");
	defined $error{$what} ? $liar->refuse($number, $error{$what}) : $liar->lose($number);
	$session->start_query($with->($case->{sql}));
	if ($case->{meanwhile})
	{
		poll_until { $session->is_done || queue_nodes($zk, lock_path("$name/a")) == 2 } 'it to wait', 30;
		$other->query_safe($with->($case->{meanwhile}));
	}
	my $result = $session->wait_result;
	my $has_come = $liar->has_come;
	my $state = $session->sqlstate;
	$told{$state}++;
	$odd_one->("$state " . $session->error) if !$is_expected{$state} && $state ne ($case->{may_be} // '');

	# Nobody else gets it, nor its opposite.
	my $lock = $case->{is_true} && $result eq 't' ? $case->{is_true} : $case->{lock};
	if ($lock && $state eq '00000')
	{
		my $taken = $other->query_safe($with->("SELECT zk_try_lock('$lock')"));
		$odd_one->('the lock is not had') if $taken eq 't';
	}
	end_round($name, $case);
	eval { $stranger->delete_recursive(lock_path($name)) };
	# A lock of its own: that this deletion is confirmed nobody awaits, and if the next
	# refusal meets it, and denies that there is a node, it is over.
	$session->query_safe("SELECT zk_lock('after/$name'), zk_unlock('after/$name')");
	return $has_come;
}

# Whatever is left of a round goes.
sub end_round
{
	my ($name, $case) = @_;
	$session->query('ROLLBACK');
	$session->query($_) foreach "SELECT zk_unlock_all()", 'RESET zklock.node_style; RESET zklock.keep; RESET zklock.commit_guard';
	$other->wait_result if $case->{its_wait} || $case->{its_row};
	$other->query('ROLLBACK');
	$other->query("SELECT zk_unlock_all()");
	$other->query("SELECT zk_release_hold('$name/h', token) FROM zk_lock_queue('$name/h')")
	  if "@{[ %$case ]}" =~ /zk_hold/;
	return;
}

# Until a backend waits for one of PostgreSQL's own locks.
sub wait_for_row
{
	my ($waiter) = @_;
	$node->poll_query_until('postgres',
		"SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = " . $waiter->pid)
	  or die 'it does not wait';
	return;
}
