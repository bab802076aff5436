
# Each call that leaves something behind in ZooKeeper, or that takes something from other
# sessions, is one line of the server's log with the role: runs, holds, evictions, requests; and
# with zklock.log_locks each lock. Names cannot forge log lines. Tested with hostile names and a
# proxy that loses replies.

use Proxy;
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk, log_error_verbosity => 'default');
# A name that would begin another line of the log; from PostgreSQL 19 on it must not.
my $name = pg_major($node) < 19 ? qq("an\nna") : qq("an\tna");
$node->safe_psql('postgres', "CREATE ROLE $name LOGIN; GRANT zklock_operator TO $name");

my $holder = background($node);
my $token = $holder->query_safe("SELECT zk_lock('busy')");
my $anna = background($node, first => "SET SESSION AUTHORIZATION $name");

# The lines of that kind, and the DETAIL of the last.
my $who = qr/process \d+ of user "an[^"\n]*na" in database "postgres" from \[local\]/;
sub logged ($sql, $act, $detail = undef)
{
	my $from = -s $node->logfile;
	my $result = $anna->query_safe($sql);
	my $log = substr(slurp_file($node->logfile), $from);
	my @lines = $log =~ /^.*?LOG:  ($who $act)$/mg;
	is(scalar @lines, 1, "one line: $act") or diag($log);
	like($log, qr/DETAIL:  $detail$/m, "with its detail") if $detail;
	return $result;
}

sub not_logged ($sql)
{
	my $from = -s $node->logfile;
	$anna->query_safe($sql);
	my $log = substr(slurp_file($node->logfile), $from);
	unlike($log, qr/LOG:  process/, "nothing done, nothing logged: $sql");
	return;
}

logged("SELECT zk_run_once('job', 'slot', '1 minute')",
	qr/recorded a run of slot "slot" of ZooKeeper job "job"/, qr/The record is kept for 60000 ms\./);
not_logged("SELECT zk_run_once('job', 'slot', '1 minute')");
logged("SELECT zk_forget_run('job', 'slot')",
	qr/deletes the record of a run of slot "slot" of ZooKeeper job "job"/);
not_logged("SELECT zk_forget_run('job', 'slot')");
logged("SELECT zk_request_release('busy')",
	qr/requests the release of ZooKeeper lock "busy"/, qr/1 holder is asked\./);
not_logged("SELECT zk_request_release('free')");
my $hold = logged("SELECT zk_hold('door', 'new locks')",
	qr/made a permanent hold of ZooKeeper lock "door"/, qr/Fencing token \d+, reason "new locks"\./);
logged("SELECT zk_release_hold('door', $hold)",
	qr/releases a permanent hold of ZooKeeper lock "door"/, qr/It is .*token $hold\./);
not_logged("SET client_min_messages = error; SELECT zk_release_hold('door', $hold)");
logged("SELECT zk_evict('busy', $token)", qr/evicts .* from ZooKeeper lock "busy"/,
	qr/.*token $token\./);
not_logged("SELECT zk_evict('busy', $token)");

# What the names say is not what the log says.
my $hostile = q{U&'x\202E" \2028 y'};
my $shown = qr/x<U\+202E>\\" <U\+2028> y/;
logged("SELECT zk_run_once($hostile, $hostile)",
	qr/recorded a run of slot "$shown" of ZooKeeper job "$shown"/);
logged("SELECT zk_forget_run($hostile, $hostile)",
	qr/deletes the record of a run of slot "$shown" of ZooKeeper job "$shown"/);
$hold = logged("SELECT zk_hold($hostile, $hostile)",
	qr/made a permanent hold of ZooKeeper lock "$shown"/, qr/Fencing token \d+, reason "$shown"\./);
logged("SELECT zk_release_hold($hostile, $hold)", qr/releases a permanent hold of ZooKeeper lock "$shown"/);
# It may know by now that it was evicted.
$holder->query('SELECT zk_unlock_all()');
$token = $holder->query_safe("SELECT zk_lock($hostile)");
logged("SELECT zk_request_release($hostile)", qr/requests the release of ZooKeeper lock "$shown"/);
logged("SELECT zk_evict($hostile, $token)", qr/evicts .* from ZooKeeper lock "$shown"/);
$holder->quit;

# Who is cancelled has perhaps done it all the same.
my $proxy = Proxy->new('127.0.0.1:' . $zk->port);
$anna->route($proxy->address);
$anna->query_safe("RESET SESSION AUTHORIZATION; SELECT zk_disconnect(); SET SESSION AUTHORIZATION $name");
sub logged_of_cancelled ($type, $nth, $sql, $act)
{
	my $from = -s $node->logfile;
	$anna->query_safe("SELECT zk_try_lock('warm'), zk_unlock_all()");
	# Or that delete, for which nobody waits, springs the trap.
	poll_until { $anna->query_safe('SELECT pending_requests FROM zk_session') eq '0' } 'its end';
	$proxy->trap($type, $nth, 'replies');
	$anna->start_query($sql);
	poll_until { $proxy->is_sprung } 'it to be sent';
	$anna->cancel;
	assert_ends($anna, '57014', "cancelled: $act");
	$proxy->heal;
	my @lines = substr(slurp_file($node->logfile), $from) =~ /^.*?LOG:  ($who $act)/mg;
	is(scalar @lines, 1, 'one line of the log');
	return;
}

# With a record there its container is there, too.
$anna->query_safe("SELECT zk_run_once('job', 'early')");
logged_of_cancelled(14, 1, "SELECT zk_run_once('job', 'late')", qr/may have recorded a run of slot "late"/);
is($anna->query_safe("SELECT zk_forget_run('job', 'late')"), 't', 'the record was made');
$anna->query_safe("SELECT zk_run_once('job', 'late')");
logged_of_cancelled(14, 2, "SELECT zk_forget_run('job', 'late')", qr/deletes the record of a run of slot "late"/);
$hold = $anna->query_safe("SELECT zk_hold('door', 'new locks')");
logged_of_cancelled(2, 1, "SELECT zk_release_hold('door', $hold)", qr/releases a permanent hold/);
my $second = background($node, holds => 'busy');
logged_of_cancelled(15, 1, "SELECT zk_request_release('busy')", qr/requests the release of ZooKeeper lock "busy"/);

# What was not sent has done nothing.
{
	my $from = -s $node->logfile;
	$anna->query_safe("SET zklock.connect_timeout = '300ms'");
	$proxy->cut;
	assert_query($anna, "SELECT zk_run_once('job', 'unsent')", '08001', 'no answer to what comes before the record');
	$proxy->heal;
	$anna->query_safe('RESET zklock.connect_timeout');
	unlike(substr(slurp_file($node->logfile), $from), qr/may have recorded/, 'the log does not say that a record may have been made');
}

# Each lock, if that is wanted: who took it, as whom, and how it ended.
sub lines_of ($sql, $session = $second)
{
	my $from = -s $node->logfile;
	$session->query($sql);
	my $lines;
	poll_until
	{
		$lines = substr(slurp_file($node->logfile), $from);
		$session->sqlstate ne '08006' || $lines =~ /ended with its session/;
	}
	'the log of its end';
	return join '; ', map { s/token [1-9]\d*/token N/r =~ s/ \d+ ms/ N ms/r }
	  $lines =~ /LOG:  (process \d+ of user .*, ZooKeeper lock .*)/g;
}

$second->query_safe('SELECT zk_unlock_all()');
is(lines_of("SELECT zk_lock('x'), zk_unlock('x')"), '', 'locks are not logged by default');
$second->query_safe("SET zklock.log_locks = 'all'; CREATE ROLE job");
my $by = qr/process \d+ of user "[^"]*" in database "postgres" from \[local\], ZooKeeper lock/;
foreach my $case (
	[ "SELECT zk_lock('x'), zk_lock('x'), zk_unlock('x')", '"x": taken in exclusive' ],
	[ "SELECT zk_unlock('x')", '"x": unlocked in exclusive' ],
	[ "BEGIN; SELECT zk_xact_lock_shared('y'); COMMIT", '"y": taken in shared', '"y": ended with its transaction or call in shared' ],
	[ "BEGIN; SAVEPOINT a; SELECT zk_xact_lock('z'); ROLLBACK TO a; COMMIT", '"z": taken in exclusive', '"z": rolled back in exclusive' ],
	[ "SELECT zk_lock('u'); DISCARD ALL; SET zklock.log_locks = 'all'", '"u": taken in exclusive', '"u": unlocked with all in exclusive' ],
	[ "SELECT zk_lock($hostile); SELECT zk_unlock_all()", "\"$shown\": taken in exclusive", "\"$shown\": unlocked with all in exclusive" ])
{
	my ($sql, @expected) = @$case;
	my $expected = join '; ', map { my $line = ref $_ ? $_ : $_; "$by $line mode, fencing token N, after N ms" } @expected;
	like(lines_of($sql), qr/^$expected$/, $sql);
}
like(lines_of("SET ROLE job; SELECT zk_lock('r'); RESET ROLE"), qr/of user "[^"]*" as role "job" in database/, 'the current role');
like(lines_of("SELECT pg_terminate_backend(pg_backend_pid())"), qr/^process.*"r": ended with its session in exclusive mode/,
	'what is left at the end of the session');
my $loser = background($node, first => "SET zklock.log_locks = 'all'; SELECT zk_lock('l')");
kill_session_program($loser);
# The first to ask may be told so by an error.
assert_becomes { $loser->query("SELECT zk_is_held('l')") } 'f', 'a lock is lost';
my $at_end = -s $node->logfile;
$loser->quit;
assert_becomes { $node->log_contains(qr/"l": lost in exclusive mode/, $at_end) ? 1 : 0 } 1, 'the lost lock is logged at the end of the session';
$anna->query_safe("RESET SESSION AUTHORIZATION; SET zklock.log_locks = 'none'; SET SESSION AUTHORIZATION $name");
not_logged("SELECT zk_run_once('job', 'none'), zk_forget_run('job', 'none')");
assert_query($anna, "SET zklock.log_locks = 'none'", '42501', 'an ordinary role may not set zklock.log_locks');

# What some locks and deeds come to, in a row, with such a setting; of each an SQLSTATE if it fails.
sub deeds ($setting)
{
	my ($doer, $rival) = map { background($node, 'zklock.commit_guard' => 'quorum', first => $setting) } 1, 2;
	my @outcome;
	my $do = sub ($session, $sql) {
		my $result = $session->query($sql);
		push @outcome, $session->sqlstate eq '00000' ? $result : $session->sqlstate;
	};
	$do->($doer, "SELECT zk_lock('deed') > 0, zk_try_lock('deed'), zk_unlock('deed'), zk_unlock('deed'), zk_unlock('deed')");
	$do->($doer, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT zk_xact_lock('deed') > 0; COMMIT");
	my ($run, $forget) = ("zk_run_once('deed', 'slot')", "zk_forget_run('deed', 'slot')");
	$do->($doer, "SELECT $run, $run, $forget, $forget, $run, $forget");
	my $hold = $doer->query_safe("SELECT zk_hold('deed', 'because')");
	$do->($rival, "SELECT zk_try_lock('deed')");
	$do->($doer, "SELECT zk_release_hold('deed', $hold), zk_release_hold('deed', $hold)");
	$do->($rival, "SELECT zk_try_lock('deed', '1 min')");
	$do->($doer, "SELECT zk_request_release('deed')");
	assert_becomes { $rival->query_safe("SELECT zk_release_requested('deed')") } 't', 'the holder is asked';
	start_in_queue($doer, "SELECT zk_lock('deed') > 0", $zk, lock_path('deed'), 2);
	$rival->query_safe("SELECT zk_unlock('deed')");
	push @outcome, $doer->wait_result;
	$do->($rival, "SELECT zk_evict('deed', token) FROM zk_lock_queue('deed') WHERE position = 1");
	$do->($doer, 'CREATE TABLE never ()');
	poll_until { $doer->query('SELECT zk_unlock_all()'); $doer->sqlstate eq '00000' } 'it to let go';
	$do->($doer, "WITH l AS MATERIALIZED (SELECT zk_try_lease('deed', 'me', '1 min') AS token)
		SELECT token > 0, zk_renew_lease('deed', token, '1 min'), zk_release_lease('deed', token, '0') FROM l");
	$_->quit foreach $doer, $rival;
	return join ' ', @outcome;
}

# What looks for a cancel as it writes to the log, for example, must look for one otherwise, too.
subtest 'settings by which less or more is told change nothing else' => sub {
	my $expected = deeds('SELECT');
	is($expected, 't|t|t|t|f t t|f|t|f|t|t f t|f t 1 t t 40001 t|t|t', 'by default');
	foreach my $setting ('zklock.log_locks = none', q(zklock.log_locks = 'all'), 'zklock.publish_identity = off',
		'zklock.snapshot_warning = off', 'zklock.loss_channel = losses', 'log_min_messages = panic',
		'client_min_messages = error', 'log_lock_waits = on', 'track_activities = off', 'track_counts = off')
	{
		is(deeds("SET $setting"), $expected, $setting);
	}
};

done_testing();
