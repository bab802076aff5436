
# docs/choosing.md names for each kind of lock the SQL that does the same: each row's
# SQL is taken from the page, run in two clusters, and must answer as the row says.

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use ZkLockTest;

my $document = dirname(dirname(dirname(abs_path(__FILE__)))) . '/docs/choosing.md';
my $zk = ZooKeeper->new->start;
# With quorum an eviction is a loss at once; nothing has to be waited for.
my ($berlin, $paris) =
  map { cluster($_, $zk, 'zklock.commit_guard' => 'quorum', 'zklock.session_timeout' => '20s') } qw(berlin paris);
my $rival = background($paris);

# The rows of the last table: from the first cell, without markup, to the SQL in the last.
sub rows
{
	my ($table) = slurp_file($document) =~ /^\| kind of lock \|.*\n\|---.*\n((?:\|.*\n)+)/m or die "no table in $document";
	my %rows;
	foreach my $line (split /\n/, $table)
	{
		my ($title, $cell) = $line =~ /^\| (.*) \| .* \| (.*) \|$/ or die "not three cells: $line";
		$title =~ s/[`*]//g;
		$rows{$title} = [ grep { /\bzk_\w/ } $cell =~ /`([^`]*)`/g ];
	}
	return %rows;
}

my $number = qr/^\d+$/;
my $busy = [ rival => "zk_try_lock('a')", 'f' ];
my @evict = ([ mine => "zk_fencing_token('a')", $number ], [ rival => "zk_evict('a', token)", 't' ]);

# Of each row: who asks what, and the answer, or the SQLSTATE behind a "!"; without one it only
# has to go well. What the document does not say is beside it; "token" is the last number that came.
my %steps = (
	# specs/fifo, t/100
	'Spin lock: try, sleep, try again' => [
		[ mine => "SELECT zk_lock('job')", $number ], [ rival => "zk_try_lock('job')", 'f' ] ],
	# specs/reentrancy
	'Reentrant lock' => [
		([ mine => "zk_lock('a')", $number ]) x 2, ([ mine => "zk_unlock('a')", 't' ], $busy),
		[ mine => "zk_unlock('a')", 't' ],
		[ mine => 'BEGIN' ], ([ mine => "zk_xact_lock('a')", $number ]) x 2, $busy, [ mine => 'COMMIT' ] ],
	# specs/timeouts
	'Timed lock' => [ [ rival => "zk_lock('a')", $number ],
		[ mine => "SET lock_timeout = '100ms'" ], [ mine => "zk_lock('a', '5 s')", '!55P03' ] ],
	# t/198, specs/both_modes
	'Read/write lock' => [ [ mine => "zk_lock_shared('a')", $number ], [ rival => "zk_try_lock_shared('a')", 't' ],
		[ mine => "zk_lock('a')", '!55000' ] ],
	# t/145
	'Counting semaphore' => [ [ mine => "zk_lock('etl', permits => 4)", $number ],
		[ rival => "zk_try_lock('etl', permits => 4)", 't' ] ],
	# t/150
	'Several locks at once' => [ [ mine => "zk_lock_set(ARRAY['b', 'a'])", qr/^\{\d+,\d+\}$/ ], $busy ],
	# t/122, sql/scopes
	'A row with SELECT ... FOR UPDATE in a common database' => [ [ mine => 'BEGIN' ],
		[ mine => "zk_xact_lock('a')", $number ], $busy, @evict, [ mine => 'COMMIT', '!40001' ] ],
	# t/300; the guard must not be what refuses
	'SETNX with an expiry (Redis)' => [
		[ mine => 'SET zklock.commit_guard = off' ], [ mine => "zk_lock('a')", $number ],
		[ mine => "zk_fence('a')", '' ], @evict, [ other => "zk_lock('a')", $number ], [ other => "zk_fence('a')", '' ],
		[ mine => "zk_fence('a')", '!40001' ] ],
	# sql/styles, t/410
	'Curator InterProcessMutex' => [ [ mine => "zk_lock('a')", $number ],
		[ rival => "SELECT node FROM zk_lock_queue('a')", qr/^_c_[0-9a-f-]{36}-lock-\d{10}$/ ] ],
	# t/320, t/324
	"Curator's isOwnedByCurrentThread, isAcquiredInThisProcess" => [ [ mine => "SELECT zk_lock('a')", $number ],
		[ mine => "zk_is_held('a')", 't' ], [ mine => 'zk_session_locks', qr/^a\|exclusive\|held\|/ ], @evict,
		[ mine => 'zk_session_locks', qr/^a\|exclusive\|held\|/ ], [ mine => "zk_is_held('a')", 'f' ] ],
	# sql/queue
	"Curator's getParticipantNodes" => [ [ mine => "SELECT zk_lock('a')", $number ],
		[ rival => "SELECT * FROM zk_lock_queue('a')", qr/^1\|held\|.*\|berlin\|/ ] ],
	# t/330
	"Curator's Revoker (ask the holder)" => [ [ mine => "SELECT zk_lock('a')", $number ],
		[ mine => "zk_release_requested('a')", 'f' ], [ rival => "zk_request_release('a', 'why')", '1' ],
		[ mine => "zk_release_requested('a')", 't' ], @evict, [ mine => 'CREATE TABLE unseen ()', '!40001' ] ],
	# sql/several
	"Hive's lock manager: shared locks on the parents of what is locked" => [
		[ mine => "zk_lock_path('db/table/partition')", $number ], [ rival => "zk_try_lock('db')", 'f' ],
		[ rival => "zk_try_lock('db/table')", 'f' ], [ rival => "zk_try_lock_path('db/table/other')", 't' ] ],
	# t/320
	"Hive's keepAlive: a lock that outlives its session" => [
		[ mine => "zk_hold('db/table', 'migration 4711')", $number ], [ mine => 'zk_disconnect()' ],
		[ rival => "SELECT data, usename, since FROM zk_lock_queue('db/table')", qr/^migration 4711\|\w+\|20/ ],
		[ rival => "zk_release_hold('db/table', token)", 't' ] ],
	# t/310
	'A job that must run once under any of these' => [
		[ mine => "zk_run_once('nightly', '2026-11-20')", 't' ],
		[ rival => "zk_run_once('nightly', '2026-11-20')", 'f' ] ]);

my %rows = rows();
is_deeply([ sort keys %rows ], [ sort keys %steps ], 'every kind of lock has a row, and steps');
foreach my $title (grep { $steps{$_} } sort keys %rows)
{
	subtest "the SQL of the row \"$title\" does what the row says" => sub {
		my %session = (rival => $rival, mine => background($berlin), other => background($berlin));
		my (%was_run, $token);
		foreach my $step (@{ $steps{$title} })
		{
			my ($who, $sql, $expected) = @$step;
			$was_run{$sql} = 1;
			my $verb = $sql =~ /^zk_\w+$/ ? 'SELECT * FROM ' : $sql =~ /^zk_/ ? 'SELECT ' : '';
			my $answer = $session{$who}->query($verb . $sql =~ s/\btoken\b/$token/r);
			my $state = $session{$who}->sqlstate;
			$answer = "!$state" if $state ne '00000';
			$expected //= qr/^(?!!)/;
			like($answer, ref $expected ? $expected : qr/^\Q$expected\E$/, "$who: $sql");
			$token = $answer if $answer =~ $number;
		}
		is_deeply([ grep { !$was_run{$_} } @{ $rows{$title} } ], [], 'all of its SQL was run');
		$rival->query_safe('SELECT zk_unlock_all()');
		%session = ();
		assert_becomes { scalar(my @left = $zk->ephemerals(lock_path(''))) } 0, 'nothing is left';
	};
}

done_testing();
