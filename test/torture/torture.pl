
# The torture test: many workers on two clusters contend for a few locks and
# increment what the locks guard, while a nemesis cancels, kills and stops
# backends, cuts the network and takes ZooKeeper servers down. In the end no
# update may be lost, no token out of order, no node left behind, nobody stuck.
# See README.md in this directory.
#
# Its settings are in the environment: see test/torture/run.

use v5.36;

use FindBin;
use lib "$FindBin::Bin/lib", "$FindBin::Bin/../lib";

use List::Util qw(min sum0);
use Patience qw(slowness);
use POSIX qw(:sys_wait_h);
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);
use Torture::Board;
use Torture::Checker;
use Torture::Excuses;
use Torture::Foreign;
use Torture::Forgery;
use Torture::History qw(now time_of_day_at_zero at_time_of_day);
use Torture::Nemesis::Backends;
use Torture::Nemesis::Impostor;
use Torture::Nemesis::Partitions;
use Torture::Nemesis::Refusals;
use Torture::Nemesis::Servers;
use Torture::Nemesis::Stranger;
use Torture::Plan qw(names_of all_names all_kinds %permits);
use Torture::Report;
use Torture::Stage;
use Torture::TransactionLog;
use Torture::Witness;
use Torture::Workload;
use ZkLockTest qw(lock_path);
use ZooKeeper qw(poll_until);

# Small, so that a minute sees many sessions expire.
my $session_timeout = 2.5;

# What docs/safety.md promises of a proof, in seconds: for how long after its date it
# is good, and for how long after the leader was asked, which may be later.
my $fresh_for = 2 / 3 * $session_timeout;
my $asked_within = 1 / 3 * $session_timeout;

# The time of day is worth nothing to the witness if it has moved by so much.
my $clock_tolerance = 0.02;

# Seconds between two faults, on average.
my %pause = (
	backends => 0.35,
	servers => 7,
	partitions => 0.5,
	stranger => 0.05,
	refusals => 0.4,
	impostor => 0.1);

# How many contenders are not zklock, and of which locks.
my $foreigners = 2;
my @foreign_kinds = qw(local shared set fenced hold);

# In whose queues impostors stand. Not among permits: other nodes there are an error.
my @impostors_kinds = qw(local shared set path fenced bare hold free call);

# A worker that has been at the same thing for so long, in seconds, is stuck:
# while faults go on, and after all is healed. Twelve contenders ahead may each
# take a session timeout, and elections come on top.
my $stuck_after = 120;
my $stuck_after_healing = 60;
# For so long servers may be behind another, once all is healed.
my $agreed_after = 10;

# So many of the commits may be excused: several times what was measured, see README.
my $excused_share = 0.005;

# So many of those who hold a lock when a server hangs may lose it: on a busy machine a
# session timeout is short. At a load of 25 it were 4 of 14.
my $hang_share = 0.4;

# Of fewer it says nothing: beside other tests it were 8 of 10. t/220_ensemble.pl has one server that
# hangs, and that costs no lock.
my $hang_sample = 40;

# All permits of a lock are in use once in twenty grants of them.
my $permit_sample = 100;
# All kinds of locks are among so many grants.
my $grant_sample = 400;

# How late a bounded wait may end, on a busy machine.
my $slack = 3;

my $progress_interval = 5;

my %option = (
	duration => $ENV{DURATION} || 60,
	seed => $ENV{SEED} || (time ^ $$) % 100_000,
	guard => $ENV{GUARD} || 'quorum',
	workers => $ENV{WORKERS} || 24,
	control => $ENV{CONTROL} ? 1 : 0,
	faults => $ENV{FAULTS} || '',
	kinds => $ENV{KINDS} || '');
die "no such guard: $option{guard}\n" if $option{guard} !~ /^(quorum|fresh|off)$/;
my $only_some = $option{kinds} ne '';
$option{kinds} = join ',', grep { $_ ne 'evict' } all_kinds()
  if !$only_some && $option{control};
$only_some ||= $option{faults} ne '';

my $dir = "$PostgreSQL::Test::Utils::tmp_check/torture";
mkdir $dir or die "could not make $dir: $!";
my @worker_files = map { "$dir/worker-$_" } 1 .. $option{workers};
my %nemesis_file =
  map { $_ => "$dir/nemesis-$_" } qw(backends servers partitions stranger refusals impostor);
my $parted_flag = "$dir/parted";
my $clock = "$dir/clock";
my @foreign_files = map { "$dir/foreign-" . (100 + $_) } 1 .. $foreigners;
# So that each can be read, whatever happens.
Torture::History->new($_) foreach "$dir/died", @worker_files, @foreign_files,
  values %nemesis_file;

note("seed $option{seed}, $option{duration} s, guard $option{guard}, $option{workers} workers"
	  . ($option{control} ? ', a control' : ''));
note("histories and logs: $PostgreSQL::Test::Utils::tmp_check");

is(join("\n", map { "$_->[0]: found \"$_->[2]\", not \"$_->[1]\"" }
		grep { $_->[1] ne $_->[2] } Torture::Forgery::verdicts()),
	'', 'the witness finds what is forged');

my $stage = Torture::Stage->new(
	guard => $option{guard},
	clock => $clock,
	session_timeout => $session_timeout);
my $board = Torture::Board->new("$dir/board", $option{workers});
my @guarded_names = grep { !$permits{$_} } map { names_of($_) } qw(local shared set path hold lease kept free call);
my @all_names = all_names();
my $begin = now();
my $zero = time_of_day_at_zero();
my $end = $begin + $option{duration};

# ---------------------------------------------------------------------
# The run
# ---------------------------------------------------------------------

pipe(my $quit, my $stay) or die "could not make a pipe: $!";

# A child process that leaves without END and buffers of ours. The number is for its dice.
sub in_child ($number, $code)
{
	my $pid = fork // die "could not fork: $!";
	return $pid if $pid;
	$SIG{$_} = 'DEFAULT' foreach qw(TERM HUP);
	$SIG{INT} = 'IGNORE';
	$SIG{USR1} = sub { $end = now() };
	srand(1000 * $option{seed} + $number);
	close $stay;
	my $done = eval { $code->(); 1 };
	Torture::History->new("$dir/died")->note($$, error => $@) unless $done;
	POSIX::_exit($done ? 0 : 1);
}

# What it died of, or nothing.
sub died_of ($pid)
{
	waitpid $pid, 0;
	return unless my $status = $?;
	my $error = "wait status $status";
	Torture::History::read_events("$dir/died", sub ($entry) { $error = $entry->{error} if $entry->{event} == $pid; });
	return $error;
}

sub run_worker ($worker, $quit)
{
	my $home = $Torture::Stage::homes[ $worker % @Torture::Stage::homes ];
	$board->reopen;
	Torture::Workload->new(
		worker => $worker,
		cluster => $home,
		home => $stage->connstr($home),
		vault => $stage->connstr('vault'),
		away => $stage->connstr(
			(grep { $_ ne $home } @Torture::Stage::homes)[0]),
		history => Torture::History->new($worker_files[ $worker - 1 ]),
		board => $board,
		session_timeout => $session_timeout,
		kinds => [ split /,/, $option{kinds} ],
		is_over => \&is_over,
		quit => $quit)->run;
	return;
}

# It may end early.
sub is_over { return now() >= $end; }

# What every nemesis needs.
sub nemesis_basics ($name)
{
	return (
		history => Torture::History->new($nemesis_file{$name}),
		session_timeout => $session_timeout,
		is_control => $option{control},
		only => $name =~ /^(stranger|impostor)$/ ? '' : $option{faults},
		pause => $pause{$name});
}

# The nemeses of backends and network have a process of their own, and so do their
# connections to the proxies: nobody else may use them until it has ended.
sub run_network_nemeses
{
	$board->reopen;
	my $backends = Torture::Nemesis::Backends->new(
		nemesis_basics('backends'),
		board => $board,
		proxies => $stage->proxies,
		standby => $stage->standby);
	my $partitions = Torture::Nemesis::Partitions->new(
		nemesis_basics('partitions'),
		board => $board,
		links => $stage->links,
		flag => $parted_flag,
		zookeeper => $stage->zookeeper,
		proxies => $stage->proxies,
		is_busy => sub { $backends->is_healing(@_); });
	$backends->{is_busy} = sub { $partitions->is_healing(@_); };
	run_nemeses($backends, $partitions);
	return;
}

sub run_foreigner ($number)
{
	my $zk = $stage->zookeeper;
	my %path = $stage->paths;
	my @names = map { names_of($_) } @foreign_kinds;
	Torture::Foreign->new(
		worker => 100 + $number,
		history => Torture::History->new($foreign_files[ $number - 1 ]),
		servers => [ map { '127.0.0.1:' . $zk->port($_) } $zk->members ],
		paths => { map { $_ => $path{$_} } @names },
		session_timeout => $session_timeout,
		is_over => \&is_over)->run;
	return;
}

# Those that are clients: the stranger, the impostor, and what refuses deletes.
sub run_client ($name, @locks)
{
	# A server that is killed is the next attempt's concern.
	$SIG{PIPE} = 'IGNORE';
	my $nemesis = "Torture::Nemesis::$name"->new(
		nemesis_basics(lc $name),
		zookeeper => $stage->zookeeper,
		paths => [ map { lock_path($_) } @locks ]);
	run_nemeses($nemesis);
	$nemesis->leave;
	return;
}

sub run_nemeses
{
	my @nemeses = @_;
	my $parent = getppid;
	my $done = eval {
		while (!is_over() && getppid == $parent)
		{
			my $pause = min(map { $_->step } @nemeses) - now();
			sleep($pause < 0 ? 0 : $pause > 0.5 ? 0.5 : $pause);
		}
		1;
	};
	my $error = $@;
	$_->heal_all foreach @nemeses;
	die $error unless $done;
	return;
}

my %worker_pid;
foreach my $worker (1 .. $option{workers})
{
	$worker_pid{$worker} = in_child($worker, sub { run_worker($worker, $quit); });
}
close $quit;
my %nemesis_pid = (
	backends => in_child(998, \&run_network_nemeses),
	# Who may make leases may set them.
	stranger => in_child(997, sub { run_client('Stranger', grep { !/^(kept|lease)/ } @all_names); }),
	# Only this guard promises anything against them.
	$option{guard} ne 'quorum' ? () : (
		impostor => in_child(996, sub { run_client('Impostor', map { names_of($_) } @impostors_kinds); })),
	refusals => in_child(995, sub { run_client('Refusals', @all_names); }),
	map {
		my $number = $_;
		"foreign $number" => in_child(900 + $number, sub { run_foreigner($number); })
	} 1 .. $foreigners);
srand(1000 * $option{seed} + 999);
my $nemesis = Torture::Nemesis::Servers->new(
	nemesis_basics('servers'),
	zookeeper => $stage->zookeeper,
	flag => $parted_flag,
	clock => $clock,
	board => $board);

my @stuck;      # descriptions of workers that do not come on
my @problems;   # of the run itself

sub show_progress
{
	my (%count, $cycles);
	foreach my $entry ($board->entries)
	{
		$count{ $entry->{state} }++;
		$cycles += $entry->{cycle};
	}
	my $faults = 0;
	foreach my $path (values %nemesis_file)
	{
		Torture::History::read_events($path,
			sub { $faults++ if $_[0]{event} eq 'fault' });
	}
	note(sprintf '%4.0f s: %d cycles, %d faults; %s',
		now() - $begin, $cycles, $faults,
		join ', ', map { "$count{$_} $_" } sort keys %count);
	return;
}

sub find_stuck ($bound)
{
	my @found = grep { now() - $_->{since} > $bound
		  && $_->{state} !~ /^(parked|ended)$/ } $board->entries;
	push @stuck, map { describe_stuck($_) } @found;
	return scalar @found;
}

# All there is to know about a worker that does not come on.
sub describe_stuck ($entry)
{
	my $text = "worker $entry->{worker} $entry->{state} $entry->{name}"
	  . " for " . int(now() - $entry->{since}) . " s in $entry->{cluster},"
	  . " backend $entry->{pid}\n";
	eval {
		my $db =
		  Torture::Connection->new($stage->connstr($entry->{cluster}),
			'watchdog');
		$db->execute("SET statement_timeout = '10s'");
		foreach my $sql (
			"SELECT concat_ws(' | ', pid, state, wait_event_type, wait_event, query)
			 FROM pg_stat_activity WHERE pid = $entry->{pid}",
			map { "SELECT concat_ws(' | ', q.*) FROM zk_lock_queue('$_') q" }
			split /\+/, $entry->{name})
		{
			$text .= "    $_->[0]\n" foreach @{ $db->rows($sql) };
		}
		$db->close;
		1;
	} or $text .= '    ' . (ref $@ ? $@->message : $@) . "\n";
	$text .= qx(gdb -p $entry->{pid} -batch -ex 'thread apply all bt' 2>&1)
	  if $entry->{pid} && -x '/usr/bin/gdb';
	return $text;
}

my $progress_at = now() + $progress_interval;
while (!is_over())
{
	eval { $nemesis->step; 1 } or push @problems, "nemesis of servers: $@";
	if (now() >= $progress_at)
	{
		show_progress();
		$progress_at += $progress_interval;
		last if find_stuck($stuck_after);
	}
	sleep 0.05;
}

# ---------------------------------------------------------------------
# Everything is healed: everybody must come to an end
# ---------------------------------------------------------------------

kill 'USR1', values %worker_pid, values %nemesis_pid if @stuck;
eval { $nemesis->heal_all; 1 } or push @problems, "nemesis of servers: $@";
foreach my $name (sort keys %nemesis_pid)
{
	push @problems, map { "the process \"$name\" died: $_" } died_of($nemesis_pid{$name});
}
eval { $stage->zookeeper->wait_ready; 1 } or push @problems, "ZooKeeper did not come back: $@";
note(sprintf '%4.0f s: all healed', now() - $begin);

my $all_parked = !@stuck && eval {
	poll_until
	{
		!grep { $_->{state} ne 'parked' } $board->entries;
	}
	'workers to finish', $stuck_after_healing;
};
find_stuck(0) unless $all_parked || @stuck;
note(sprintf '%4.0f s: all parked', now() - $begin);

# Sessions of killed backends take their timeout to end, all others are alive: a node of
# theirs has been forgotten, and stays, however long one waits.
my (@nodes, @nodes_at_end);
eval { poll_until { @nodes = $stage->nodes; !@nodes } 'nodes to go', $stuck_after_healing; };

# Servers may even differ for good, each with what it was told (ZOOKEEPER-4712 and others): who
# asks one finds no hold, and those who ask another wait behind it.
my @differing = @nodes ? $stage->differing($agreed_after) : ();

kill 'KILL', values %worker_pid unless $all_parked;
close $stay;
foreach my $worker (sort { $a <=> $b } keys %worker_pid)
{
	# Who was killed just now did not come to its end, which is told already.
	my @died = died_of($worker_pid{$worker});
	push @problems, map { "worker $worker died: $_" } grep { $all_parked || $_ ne 'wait status 9' } @died;
}
eval { poll_until { @nodes_at_end = $stage->nodes; !@nodes_at_end } 'nodes to go', $stuck_after_healing; };

# ---------------------------------------------------------------------
# The verdict
# ---------------------------------------------------------------------

my @rows = $stage->rows;
my ($woken_by_set, $woken_by_deletion) = $nemesis->wakeups;
$stage->stop;

# Nodes that the ensemble has, though it had forgotten that it made them: release 3.8.0 does
# that when servers join a new leader one after the other (ZOOKEEPER-4643, ZOOKEEPER-4646).
# Whose node it was has been told that it is gone, and was told the truth. Nobody is left to
# delete it while that session lives, and those behind it wait.
my @logged = $stage->transactions;
my @brought_back = Torture::TransactionLog::brought_back(\@logged, @nodes, @nodes_at_end);
my $why_void =
    @brought_back ? "the ensemble has brought back what it had forgotten: @brought_back"
  : @differing ? "the servers of the ensemble differ: @differing"
  : '';
note($why_void) if $why_void;
unless_void(3, sub {
	ok($all_parked, 'every wait has ended')
	  or diag(join "\n", 'stuck:', @stuck);
	is("@nodes", '', 'no znode is left while the sessions live');
	is("@nodes_at_end", '', 'no znode is left when the workers have gone');
});
my $report = Torture::Report->new(
	workers => [ @worker_files, @foreign_files ],
	nemeses => [ values %nemesis_file ]);
my $clock_error = abs(time_of_day_at_zero() - $zero);
push @problems, "the clock was set by $clock_error s, so the witness knows no times"
  if $clock_error > $clock_tolerance;
$asked_within = 0 if $option{guard} eq 'quorum';
# Less a tenth of the timeout, for clocks.
my $reserve = 0.9 * $session_timeout - $fresh_for;
my $excuses = Torture::Excuses->new(
	stops => $report->stops,
	evictions => $report->evictions,
	frozen_programs => $report->frozen_programs,
	standby => { $Torture::Stage::homes[-1] => $report->standby },
	reserve => $reserve,
	asked_within => $asked_within);
my $checker = Torture::Checker->new(
	cycles => $report->cycles,
	refusals => { map { $_ => $report->refusals->{ lock_path($_) } } @all_names },
	# Its client counts from an earlier contact than the ensemble, which rounds up, which may
	# have stood still, and in which a new leader gives each session all its time again.
	lingers => 4 * $session_timeout,
	excuses => $excuses);
my $witness = make_witness($reserve);
my %counters;   # by who answers for them
push @{ $counters{ $_->{kind} } }, $_ foreach grep { defined $_->{end} } @rows;
my @seen;       # rows of the table of violations
my %excused;    # cycles of promises that were broken, by excuse

# The witness has seen the time of day; all others go by the machine's clock.
sub make_witness ($reserve)
{
	my @transactions = @logged;
	my @missing =
	  Torture::TransactionLog::missing(grep { !$_->{is_void} } @transactions);
	push @problems, sprintf 'the logs lack %d transactions, the first is 0x%x',
	  scalar @missing, $missing[0]
	  if @missing;
	$_->{time} = at_time_of_day($_->{time}, $zero) foreach @transactions;
	$report->note_records($zero, @rows);
	return Torture::Witness->new(
		transactions => \@transactions,
		strangers => [ $report->strangers ],
		cycles => $report->cycles,
		paths => { $stage->paths },
		permits => \%permits,
		excuses => $excuses,
		reserve => $reserve,
		asked_within => $asked_within);
}

# So many tests, of which an ensemble that has broken its own promise leaves none.
sub unless_void ($count, $tests)
{
  SKIP:
	{
		skip($why_void, $count) if $why_void;
		$tests->();
	}
	return;
}

# One promise: a test if it was made, and a line in the table in any case.
sub judge ($name, $is_promised, @violations)
{
	my @explained = grep { $_->{is_explained} } @violations;
	foreach my $cycle (map { @{ $_->{cycles} } } @explained)
	{
		my $excuse = $excuses->excuses($cycle) or next;
		$excused{$excuse}{$cycle} = 1 if $is_promised;
	}
	my @others = grep { !$_->{is_explained} } @violations;
	my ($first) = sort { $a <=> $b } map { $_->{at} } @others;
	push @seen,
	  [
		$name, scalar @others,
		$first ? sprintf '  first after %.0f s', $first - $begin : '' ];
	push @seen, [ '  excused', scalar @explained, '' ] if @explained;
	unless_void(1, sub { is(scalar @others, 0, $name) }) if $is_promised;
	my @told = @violations > 5 ? @violations[ 0 .. 4 ] : @violations;
	foreach my $violation (@told)
	{
		my @lines = (
			"$violation->{check}: $violation->{text}"
			  . ($violation->{is_explained} ? ' (excused)' : ''),
			map { "    $_" } $report->around(@{ $violation->{cycles} }));
		if ($is_promised && !$violation->{is_explained})
		{
			diag($_) foreach @lines;
		}
		else
		{
			note($_) foreach @lines;
		}
	}
	return;
}

my $guarded = $option{guard} ne 'off';
my ($stale, $full) = (0, 0);
$stale += $checker->count_stale_attempts($_) foreach @guarded_names;
$full += $checker->count_full($_, $permits{$_}) foreach keys %permits;

# What a check of the checker finds in each of these.
sub over ($check, @each)
{
	return map { $checker->$check($_) } @each;
}

my @guard_counters = @{ $counters{guard} };
my $guard = "guard $option{guard}";
judge("$guard: no lost update", $guarded, over(check_lost_updates => @guard_counters));
judge("$guard: no commit by a former holder", $guarded, over(check_stale_commits => @guarded_names));
judge("$guard: commits in the order of the queue", $guarded, over(check_order => @guard_counters));
judge("$guard: nothing read moves before the commit", $guarded, over(check_repeated_reads => @guard_counters));
judge("$guard: never more holders than permits",
	$guarded, map { $checker->check_permits($_, $permits{$_}) } sort keys %permits);
judge("witness, $guard: no commit after another's grant", $guarded, $witness->check_late_commits);
judge("witness, $guard: no commit without a node", $guarded, $witness->check_ended);
judge("witness, $guard: no commit without a proof", $guarded, $witness->check_proofs);
judge("witness, $guard: no session expires just after a commit", $guarded, $witness->check_reserve);
judge('witness: a session that was out of contact for its timeout ends',
	1, $witness->check_lost_sessions($report->silences($session_timeout, @Torture::Stage::homes)));
judge('witness: nobody is granted a lock before its turn', 1, $witness->check_turns);
judge('witness: no term of a lease is cut short', 1, $witness->check_terms);
judge('witness: what is held has a node', 1, $witness->check_held($report->spins));
judge('witness: tokens are those of queue nodes', 1, $witness->check_tokens);
judge('fence: no lost update', 1, over(check_lost_updates => @{ $counters{fence} }));
judge('fence: commits in the order of the queue', 1, over(check_order => @{ $counters{fence} }));
judge('hold: no lost update', 1, over(check_lost_updates => @{ $counters{hold} }));
judge('hold: nobody else is granted the lock', 1, over(check_holds => names_of('hold')));
my @vanished = $checker->check_released_holds;
$_->{is_explained} = $witness->was_lost($_->{cycles}[0]) foreach @vanished;
judge('hold: it ends by its release alone', 1, @vanished);
judge('once: each slot is given to one caller', 1, $checker->check_claims($report->claims('once/a')));
judge('once: no slot is given again before its record is old',
	1, $checker->check_fleeting_claims($Torture::Workload::Once::retention, $report->claims('once/b')));
judge('neither guard nor fence: no lost update', 0, over(check_lost_updates => @{ $counters{nobody} }));
judge('tokens rise', 1, over(check_tokens => @all_names));
judge('answers to COMMIT are true', 1, $checker->check_answers(@rows));
judge('bounded waits end in time', 1, $checker->check_bounds($slack));
judge('deadlocks are those that there were', 1, $checker->check_deadlocks);

# A server that has brought a node back for as long as its session lived has two nodes of one
# number. Who finds both is refused, and was told the truth.
my $shared_numbers = Torture::TransactionLog::shared_numbers(\@logged);
my @unexpected;
foreach my $error ($report->notes('unexpected'))
{
	my ($queue) = $error =~ / 54000 .* are used up.* queue nodes below "([^"]+)"/s;
	if (defined $queue && $shared_numbers->{$queue})
	{
		note("the ensemble had two nodes of one number: $shared_numbers->{$queue}; $error");
		next;
	}
	push @unexpected, $error;
}
splice @unexpected, 20 if @unexpected > 20;
foreach my $none (
	[ 'no process crashed but those that the nemesis killed', $stage->crashes($report->notes('killed')) ],
	[ 'no unexpected error', @unexpected ],
	[ 'nothing is held after zk_unlock_all()', $report->notes('leftovers') ],
	[ 'of several locks all are taken or none', $report->notes('partial') ],
	[ 'tokens are those that zk_fencing_token() tells', $report->notes('other_tokens') ],
	[ 'the test itself went well', @problems ])
{
	my ($name, @found) = @$none;
	unless_void(1, sub { is(join("\n", @found), '', $name) });
}
is($report->writes('marked', 'accepted') + $report->writes('other', 'accepted'),
	0, 'nobody else writes into a node of the queue');
my %outcome = $report->outcomes;
# What must have happened, so that there was something to see: less on a busy machine.
my $slowness = slowness();
sub least ($count) { return $count / $slowness; }
cmp_ok($outcome{committed}, '>=', least($option{duration}), 'much was committed');
my $excused = sum0 map { scalar keys %$_ } values %excused;
cmp_ok($excused, '<=', 3 + $excused_share * $outcome{committed},
	'no more was excused than usual');
cmp_ok($witness->nodes, '>=', $report->grants, 'the witness has seen the queues');
cmp_ok($report->faults, '>=', least($option{duration} / ($option{faults} ? 20 : 2)),
	'many faults happened');
if (!$only_some)
{
	my %granted = $report->grants_by_kind;
	SKIP:
	{
		my $count = $granted{permits} // 0;
		skip "few permits were granted: $count, and all were in use $full times", 1 if $count < $permit_sample;
		cmp_ok($full, '>=', least($option{duration} / 60), 'all permits were in use');
	}
	SKIP:
	{
		my $count = sum0 values %granted;
		skip "few locks were granted: $count", 1 if $count < $grant_sample;
		is(join(' ', grep { !$granted{$_} }
				qw(local shared permits set path fenced bare hold lease kept free call)),
			'', 'every kind of lock was granted');
	}
	cmp_ok($report->taken_back, '>=', least(10 * $option{duration}), 'kept locks were taken back');
	cmp_ok(3 * $granted{kept}, '>=', sum0(values %granted), 'who keeps them does half of the work');
	cmp_ok(scalar(grep { $_->{answer} eq 't' } $report->claims),
		'>=', least($option{duration} / 10), 'many slots were given out');
}
my ($holders_in_hangs, $lost_in_hangs) = $report->hangs;
SKIP:
{
	skip "few held a lock when a server hung: $holders_in_hangs, of whom $lost_in_hangs lost it", 1
	  if $holders_in_hangs < $hang_sample;
	cmp_ok($lost_in_hangs, '<=', 1 + $hang_share * $holders_in_hangs,
		'a server that hangs costs few their locks');
}
cmp_ok($woken_by_set, '>=', least($option{duration} / 6),
	'many locks were handed over')
  if !$only_some;
cmp_ok(
	$report->writes('marked', 'refused') + $report->writes('marked', 'accepted'),
	'>=', least($option{duration} / 10), 'a stranger has often tried to hand one over');
cmp_ok($report->words_heard, '>=', least($option{duration} / 30),
	'some have heard an impostor')
  if $option{guard} eq 'quorum' && !$only_some;

my ($unknown_in, $unknown_out) = $checker->count_unknown(@rows);
diag($_)
  foreach "seed $option{seed}, $option{duration} s, guard $option{guard}",
  $report->tables(
	[ '  of the unknown, committed', $unknown_in ],
	[ '  of the unknown, not committed', $unknown_out ],
	[ 'guarded commits tried too late', $stale ],
	[ 'all permits in use', $full ],
	[ 'kept locks taken back', $report->taken_back ],
	(map { [ "excused: $_", scalar keys %{ $excused{$_} } ] } sort keys %excused),
	[ 'nodes that the ensemble has lost', $witness->lost ],
	[ 'held when a server hung', $holders_in_hangs ],
	[ '  of these, lost', $lost_in_hangs ],
	[ 'silences judged', scalar $report->silences($session_timeout, @Torture::Stage::homes) ],
	[ 'waiters woken by a hand-over', $woken_by_set ],
	[ 'waiters woken by a deletion', $woken_by_deletion ]),
  'violations seen', map { sprintf '  %-50s %5d%s', @$_ } @seen;

done_testing();
