
# Each request that a statement makes is refused, with each kind of error that a server has (in a
# sample half of them), or its answer is lost with the connection. What a server says truly is in the
# table of test/lib/Calls.pm for most statements; here it lies, too. Whatever becomes of the statement,
# it says so in terms of its own; who is told that he has a lock has it; the backend lives
# and its next statement works; and nothing is left in any queue.

use Liar;
use POSIX ();
use Refusals;
use ZkLockTest;

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

# Those that a statement may take for an answer; all others the table of src/common/answer.c and
# the callers treat alike, but for single requests, which are among those of the few statements that
# meet all errors.
my @usual = ('no node', 'there already', 'the end of the session');
# Those that each call meets as a cell of test/lib/Calls.pm: here only what is no call there.
my @cells = ('no rights', 'a quota', 'no answer');

# No more requests than that are made for any of the statements.
my $most_requests = 60;

# Most of a round is waiting, so that many processes go through the cases at a time. Each has
# a root, connections and a row of its own.
my $nworkers = 6;

my $zk = ZooKeeper->new(tick_time => 250)->start;
my $node = cluster('berlin', $zk,
	'deadlock_timeout' => '20ms',
	'zklock.keep' => '0', 'zklock.session_timeout' => '5s');
$node->safe_psql('postgres', "CREATE TABLE account (id int PRIMARY KEY, sum int);
	INSERT INTO account SELECT i, 0 FROM generate_series(1, $nworkers) i");
my $started = $node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');

# What may become of a statement: done, a failure of ZooKeeper's that is told as such, or
# what it says itself.
my %is_expected = map { $_ => 1 } qw(00000 08006 08001 22023 42501 53200 53400 55P03 57000 58000 40001);

# Each case: what is asked for, what stands before it on the same connection, and on the
# other one; how the other one goes on once the statement waits; what shows that a lock is
# had, and for which name; what it says if an answer is lost. NAME is another one each time,
# ROW the worker's own, and TOKEN what the other one got.
my @cases = (
	[ 'a lock', with_all => 1, sql => "SELECT zk_lock('NAME/a')", lock => 'NAME/a' ],
	[ 'a shared lock', sql => "SELECT zk_lock_shared('NAME/a')", lock => 'NAME/a' ],
	[ 'a permit', sql => "SELECT zk_lock('NAME/a', permits => 2)" ],
	[ 'a try', sql => "SELECT zk_try_lock('NAME/a')", is_true => 'NAME/a' ],
	[ 'a try in vain', is_no_call => 1, sql => "SELECT zk_try_lock('NAME/a', '30ms')", other => "SELECT zk_lock('NAME/a')",
		is_true => 'NAME/a' ],
	[ 'a try of nothing but a look', sql => "SELECT zk_try_lock('NAME/a')", other => "SELECT zk_lock('NAME/a')", is_true => 'NAME/a' ],
	[ 'a set of locks', sql => "SELECT zk_lock_set(ARRAY['NAME/a', 'NAME/b'])", lock => 'NAME/b' ],
	[ 'a try of a set', sql => "SELECT zk_try_lock_set(ARRAY['NAME/a', 'NAME/b'])", is_true => 'NAME/b' ],
	[ 'a path', sql => "SELECT zk_lock_path('NAME/a/b')", lock => 'NAME/a/b' ],
	[ 'the first lock of a session', sql => "SELECT zk_lock('NAME/a')", lock => 'NAME/a', before => 'SELECT zk_disconnect()' ],
	[ 'a wait', sql => "SELECT zk_lock('NAME/a')", lock => 'NAME/a',
		other => "SELECT zk_lock('NAME/a')", meanwhile => "SELECT zk_unlock('NAME/a')" ],
	[ 'a wait behind readers', sql => "SELECT zk_lock('NAME/a')", lock => 'NAME/a',
		other => "SELECT zk_lock_shared('NAME/a')", meanwhile => "SELECT zk_unlock_shared('NAME/a')" ],
	[ 'a release', sql => "SELECT zk_unlock('NAME/a'); SELECT count(*) FROM zk_lock_queue('NAME/a')", before => "SELECT zk_lock('NAME/a')" ],
	[ 'a release that waits', sql => 'SELECT zk_disconnect()', before => "SELECT zk_lock('NAME/a')" ],
	[ 'a commit', sql => 'COMMIT',
		before => "SET zklock.commit_guard = 'quorum'; BEGIN; SELECT zk_xact_lock('NAME/a'), zk_xact_lock('NAME/b');
			UPDATE account SET sum = sum + 1 WHERE id = ROW" ],
	[ 'a commit behind a release', sql => 'COMMIT',
		before => "SET zklock.commit_guard = 'quorum'; BEGIN; SELECT zk_lock('NAME/a');
			UPDATE account SET sum = sum + 1 WHERE id = ROW; SELECT zk_unlock('NAME/a')" ],
	[ 'a look at a queue', sql => "SELECT count(*) FROM zk_lock_queue('NAME/a')",
		other => "SELECT zk_lock('NAME/a')" ],
	[ 'a look at all locks', sql => 'SELECT count(*) FROM zk_all_locks()', other => "SELECT zk_lock('NAME/a')" ],
	[ 'a look at waits', sql => "SELECT count(*) FROM zk_waits(); SELECT zk_wait_graph()",
		other => "SELECT zk_lock('NAME/a')" ],
	[ 'an examination', with_all => 1, sql => 'SELECT count(*) FROM zk_check(true)', other => "SELECT zk_lock('NAME/a')" ],
	[ 'a hold', with_all => 1, sql => "SELECT zk_hold('NAME/h', 'because')" ],
	[ 'the end of a hold', other => "SELECT zk_hold('NAME/h', 'because')", answer => 't', sql => "SELECT zk_release_hold('NAME/h', TOKEN)" ],
	(map { [ "the end of a lease$_", is_no_call => $_ ne '', answer => 't', other => "SELECT zk_try_lease('NAME/l', 'app', '1 min')",
		sql => "SELECT zk_release_lease('NAME/l', TOKEN$_)" ] } '', q{, '1 s'}),
	[ 'an eviction', other => "SELECT zk_lock('NAME/a')", answer => 't', sql => "SELECT zk_evict('NAME/a', TOKEN)" ],
	[ 'a request to release', other => "SELECT zk_lock('NAME/a')", sql => "SELECT zk_request_release('NAME/a', 'please')" ],
	[ 'a look for requests', sql => "SELECT zk_release_requested('NAME/a')", before => "SELECT zk_lock('NAME/a')" ],
	[ 'a run', with_all => 1, answer => 't', sql => "SELECT zk_run_once('NAME', 'today')" ],
	[ 'a run that was', is_no_call => 1, sql => "SELECT zk_run_once('NAME', 'today')", other => "SELECT zk_run_once('NAME', 'today')" ],
	[ 'a run after another one', is_no_call => 1, sql => "SELECT zk_run_once('NAME', 'today', '1 second')",
		other => "SELECT zk_run_once('NAME', 'yesterday', '1 ms')" ],
	[ 'a list of runs', sql => "SELECT count(*) FROM zk_runs('NAME')", other => "SELECT zk_run_once('NAME', 'today')" ],
	[ 'a run to forget', answer => 't', sql => "SELECT zk_forget_run('NAME', 'today')", other => "SELECT zk_run_once('NAME', 'today')" ],
	[ 'a deadlock', is_no_call => 1, sql => "SELECT zk_lock('NAME/b')", before => "SELECT zk_lock('NAME/a')",
		other => "SELECT zk_lock('NAME/b')", its_wait => "SELECT zk_lock('NAME/a')", may_be => '40P01' ],
	[ 'a deadlock over a row', is_no_call => 1, sql => "SELECT zk_lock('NAME/b')",
		before => 'BEGIN; UPDATE account SET sum = sum + 1 WHERE id = ROW',
		other => "SELECT zk_lock('NAME/b')", its_row => 'UPDATE account SET sum = sum + 1 WHERE id = ROW',
		may_be => '40P01' ]);

# Those that take the longest come first: that meet all errors, or wait for each other.
pipe my $left, my $given or die "could not make a pipe: $!";
my @is_long = map { "@$_" =~ /with_all|may_be/ ? 1 : 0 } @cases;
syswrite $given, pack 'C*', sort { $is_long[$b] <=> $is_long[$a] } 0 .. $#cases;
close $given;

my @reports = map { start_worker($_) } 1 .. $nworkers;
my %outcome = map { split /\t/, $_, 2 } map { readline $_ } @reports;
foreach my $index (0 .. $#cases)
{
	my ($nrequests, $nrounds, $odd) = split /\t/, $outcome{$index} // "0\t0\tit was not done\n";
	my $name = $cases[$index][0];
	cmp_ok($nrequests, '>', 0, "$name: there are requests");
	is($odd, "\n", "$name: $nrequests requests, $nrounds errors");
}
is($node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()'), $started, 'the cluster was up all the time');
poll_until { !$zk->ephemerals(lock_path('')) } 'all to end', 30;
pass('no node of anybody is left');
done_testing();

# What a worker asks with, and what was odd of a case.
my ($number, $liar, $stranger, $session, $other, $round, @odd);

# A process that goes through cases as long as there are any. Returns where it writes what
# became of them: a line for each, of its index, how many requests and errors there were, and
# what was odd.
sub start_worker
{
	($number) = @_;
	pipe my $report, my $out or die "could not make a pipe: $!";
	my $pid = fork // die "could not fork: $!";
	if ($pid == 0)
	{
		close $report;
		$out->autoflush(1);
		eval { work($out); 1 } or warn $@;
		# Not exit: END belongs to the parent.
		POSIX::_exit(0);
	}
	return $report;
}

sub work ($out)
{
	$liar = Liar->new('127.0.0.1:' . $zk->port);
	$stranger = $zk->client;
	# Whose requests are refused, and another one, whose requests are not.
	my @root = ('zklock.root' => lock_path("worker-$number"));
	$session = background($node, @root, route => $liar->address);
	$other = background($node, @root, deadlock_timeout => '1ms');
	while (sysread $left, my $index, 1)
	{
		$index = unpack 'C', $index;
		@odd = ();
		my @counts = eval { go_through($cases[$index]) };
		my $death = $@;
		@counts = (0, 0) if $death;
		print $out join("\t", $index, @counts, "@odd$death" =~ s/\s+/ /gr), "\n";
		last if $death;
	}
	$_->quit foreach $session, $other;
	return;
}

# The errors that the nth of its requests meets: in a sample every other one, and the next request
# the others.
sub errors_of ($case, $nth)
{
	my %is_cell = map { $_ => 1 } @cells;
	my @errors = $case->{with_all} ? sort keys %error : @usual;
	@errors = $case->{is_no_call} ? (@errors, @cells) : grep { !$is_cell{$_} } @errors;
	return plays_all() ? @errors : @errors[ grep { ($nth + $_) % 2 == 0 } 0 .. $#errors ];
}

# How many requests and errors there were, until the first thing that is odd. A statement has
# no more requests once two errors in turn had nothing to meet.
sub go_through ($case)
{
	my (undef, %case) = @$case;
	my ($nrequests, $nrounds, $nmissed) = (0, 0, 0);
	foreach my $nth (1 .. $most_requests)
	{
		foreach my $what (errors_of(\%case, $nth))
		{
			my $is_met = refuse($nth, $what, \%case);
			$nmissed = $is_met ? 0 : $nmissed + 1;
			($nrequests, $nrounds) = ($nth, $nrounds + 1) if $is_met;
			return ($nrequests, $nrounds) if @odd || $nmissed == 2;
		}
	}
	return ($nrequests, $nrounds);
}

# One statement, of whose requests that one meets that. Whether there was such a request;
# notes what is odd about what came of it.
sub refuse
{
	my ($nth, $what, $case) = @_;
	my $name = 'round/' . ++$round;
	my $path = lock_path("worker-$number/$name");
	my $token = 0;
	my $with = sub { return $_[0] =~ s/NAME/$name/gr =~ s/TOKEN/$token/gr =~ s/ROW/$number/gr; };
	my $odd_one = sub { push @odd, "[$nth, $what: $_[0]]"; };

	$session->query_safe($with->($case->{before})) if $case->{before};
	$token = $other->query_safe($with->($case->{other})) if $case->{other};
	if ($case->{its_wait} || $case->{its_row})
	{
		$other->query_safe('BEGIN');
		$other->start_query($with->($case->{its_wait} || $case->{its_row}));
		$case->{its_wait} ? poll_until { $zk->ephemerals(lock_path("worker-$number/.waits/")) } 'it to say so', 30 : wait_for_lock($node, $other->pid);
	}
	defined $error{$what} ? $liar->refuse($nth, $error{$what}) : $liar->lose($nth);
	# Long, where it is to have an answer when it is connected again.
	my $timeout = $case->{may_be} ? 300 : $case->{answer} && $what eq 'no answer' ? 30_000 : 1000;
	$session->start_query($with->("SET lock_timeout = $timeout; $case->{sql}"));
	if ($case->{meanwhile})
	{
		poll_until { $session->is_done || queue_nodes($zk, "$path/a") == 2 } 'it to wait', 30;
		$other->query_safe($with->($case->{meanwhile}));
	}
	my $result = $session->wait_result;
	my $has_come = $liar->has_come;
	my $state = $session->sqlstate;
	$odd_one->("$state " . $session->error) if !$is_expected{$state} && $state ne ($case->{may_be} // '');
	$odd_one->("it says $result") if $case->{answer} && $what eq 'no answer' && $result ne $case->{answer};

	# Nobody else gets it, nor its opposite.
	my $lock = $case->{is_true} && $result eq 't' ? $case->{is_true} : $case->{lock};
	if ($lock && $state eq '00000')
	{
		my $taken = $other->query_safe($with->("SELECT zk_try_lock('$lock')"));
		$odd_one->('the lock is not had') if $taken eq 't';
	}
	end_round($with, $case);
	# Unless it was told that a node is gone that is not, or that its session is, it has
	# deleted what it made.
	eval {
		poll_until { !$zk->ephemerals("$path/") } 'the queues to be empty', 30 if $what !~ /no node|session/;
		1;
	} or $odd_one->("$state, and a node is left");
	eval { $stranger->delete_recursive($path) };
	return $has_come;
}

# Whatever the round has had goes, and both sessions go on. At the end a lock of its own:
# that this deletion is confirmed nobody awaits, and if the next refusal meets it, and denies
# that there is a node, it is over.
sub end_round ($with, $case)
{
	my $clean_up = $with->("ROLLBACK; SELECT zk_unlock_all(); RESET zklock.commit_guard; RESET lock_timeout;
		SELECT zk_lock('NAME/after'), zk_unlock('NAME/after')");
	$session->query($clean_up);
	# Nobody awaits the answer to the delete of a place that was waited for in vain. If it is the
	# end of the session, it may come in the midst of this, which is told of the loss then.
	$session->query_safe($clean_up) if $session->sqlstate ne '00000' && $session->error =~ /ERROR:  lock "[^"]*" was lost/;
	die $session->error if $session->sqlstate ne '00000';
	$other->wait_result if $case->{its_wait} || $case->{its_row};
	my $release_hold = "SELECT zk_release_hold('NAME/h', token) FROM zk_lock_queue('NAME/h');";
	$other->query_safe($with->(("@{ [ %$case ]}" =~ /zk_hold/ ? $release_hold : '') . 'ROLLBACK; SELECT zk_unlock_all()'));
	return;
}

