
=pod

=head1 NAME

Calls - every call that reaches ZooKeeper, every fault on the way, and what must come out

=head1 SYNOPSIS

  Calls::run('locks');    # one of the groups of rows

=head1 DESCRIPTION

The table below has a line for each fault, and a column for each kind of call. The rows of
%calls are the calls; each is of a kind, and meets every fault, at each of the requests that it
sends or at its first one; in a sample (L<ZkLockTest/plays_all>) half of the requests do. Each such
cell has a name of a lock of its own and a session whose way to the server is its own (L<Faults>).
What is looked at in each:

=over

=item * what the call says: its result, or SQLSTATE, as the table says; why it is not done; and nothing
if it is done over a connection that broke, or was refused for a moment;

=item * that it says so in time: three times what is promised, and longer on a busy machine;

=item * what it leaves in ZooKeeper once the fault is over: what it has made if it says so, with the
token that it has returned, else nothing;

=item * that the session can let go, take the same lock, write, and commit;

=item * that another cluster can take it then, and that nothing is left at the end.

=back

Whoever adds a function to the SQL script adds a row, or one to %asks_nobody; whoever adds a fault a
line. complete() fails otherwise.

=cut

package Calls;

use Faults;
use Patience qw(steady);
use ZkLockTest;

# The session timeout, and the bound of the calls where nobody answers, in seconds.
my ($timeout, $bound) = (steady(9), 3);
# What each may take: three times what is promised. Without a silence that is a new connection within
# the session timeout.
my %longest = (bounded => 3 * $bound, other => 3 * $timeout);
# So many cells are played at a time.
my $at_a_time = 40;

=pod

=head1 WHAT IS PROMISED

  ok      the result is the one without a fault
  gone    the connection to the backend has ended
  f       the session knows that it holds nothing

With a slash, either: which one depends on the request that meets the fault, or on who is first.

=cut

my $table = <<'END';
fault           wait      try       ask       change    look      release   end       commit    held
silent          55P03     08001     08001     55P03     55P03     ok        ok        40001     40001/f
sent_late       55P03     08001     08001     55P03     55P03     ok        ok        40001     40001/f
unheard         55P03     08001     08001     55P03     55P03     ok        ok        40001     40001/f
heard_late      55P03     08001     08001     55P03     55P03     ok        ok        40001     40001/f
stopped         55P03     08001     08001     55P03     55P03     ok        ok        40001     40001/f
request_lost    ok        ok        ok        ok        ok        ok        ok        ok        ok
reply_lost      ok        ok        ok        ok        ok        ok        ok        ok        ok
throttled       ok        ok        ok        ok        ok        ok        ok        ok        ok
moved           ok        ok        ok        ok        ok        ok        ok        ok        ok
read_only       ok        ok        ok        ok        ok        ok        ok        ok        ok
no_right        ok/42501  ok/42501  ok/42501  ok/42501  ok/42501  ok        ok        ok/42501  42501
no_quota        ok/53400  ok/53400  ok/53400  ok/53400  ok/53400  ok        ok        ok/53400  53400
unknown         ok/58000  ok/58000  ok/58000  ok/58000  ok/58000  ok        ok        ok/58000  58000
expired         ok        ok        ok        ok        ok        ok        ok        ok/40001  40001/f
killed_before   ok        ok        ok        ok        ok        ok        ok        ok/40001  40001/f
killed_after    ok        ok        ok        ok        ok        ok        ok        ok/40001  40001/f
canceled        57014     57014     57014     57014     57014     ok/57014  ok        ok/57014  57014
terminated      gone      gone      gone      gone      gone      ok/gone   ok/gone   ok/gone   gone
END

# The faults: what they are, what the way does (Faults.pm), whether it is over by a new connection
# (reset) or all arrives in the end, and whether each request meets it or the first one.
my @faults = (
	silent => { text => 'no server answers any more', does => 'silent', nth => 0, is_bounded => 1, heal => 'reset' },
	sent_late => { text => 'the requests arrive when the call is over', does => 'silent', nth => 1, is_bounded => 1 },
	unheard => { text => 'the requests are executed, and no reply comes', does => 'unheard', nth => 1, is_bounded => 1, heal => 'reset' },
	heard_late => { text => 'the replies come when the call is over', does => 'unheard', nth => 1, is_bounded => 1 },
	stopped => { text => 'the program of the session stands still', does => 'signal STOP', to => 'program', nth => 1, is_bounded => 1, heal => 'reset' },
	request_lost => { text => 'the connection ends before a request is executed', does => 'request lost' },
	reply_lost => { text => 'the connection ends before the reply to a request', does => 'reply lost' },
	throttled => { text => 'the server throttles a request', does => 'refused -127' },
	moved => { text => 'the session has moved to another server', does => 'refused -118' },
	read_only => { text => 'the server can only be read for now', does => 'refused -119' },
	no_right => { text => 'the server refuses a request for want of a right', does => 'refused -102' },
	no_quota => { text => 'the server refuses a request for a quota', does => 'refused -125' },
	unknown => { text => 'the server refuses a request with an error that nobody knows', does => 'refused -199' },
	expired => { text => 'ZooKeeper ends the session instead of a request', does => 'expired' },
	killed_before => { text => 'the program of the session is killed before a request is executed', does => 'doom KILL', to => 'program' },
	killed_after => { text => 'the program of the session is killed before the reply to a request', does => 'signal KILL', to => 'program' },
	canceled => { text => 'the user cancels before the reply to a request', does => 'signal INT', to => 'backend' },
	terminated => { text => 'the backend is terminated before the reply to a request', does => 'signal TERM', to => 'backend' });
my %fault = @faults;
# Those that nobody needs to hear of: the call is done.
my $is_unheard_of = qr/^(?:request_lost|reply_lost|throttled|moved|read_only)$/;
# Those after which a session goes on.
my $keeps_session = qr/$is_unheard_of|^(?:no_right|no_quota|unknown|canceled)$/;
my @fault_names = @faults[ grep { $_ % 2 == 0 } 0 .. $#faults ];

# No columns, for they would end all cells at once, are a backend that is killed by SIGKILL
# (t/215_crash_release.pl), and a server that is killed or hangs in an ensemble (t/220_ensemble.pl).
# Nor are lies of a server (t/242_hostile_server.pl, t/244_refused_requests.pl).

my ($number, $true) = (qr/^\d+$/, qr/^t$/);
my $two = [ 'N', 'N.2' ];
my $path = [ 'N', 'N/2' ];
my $work = q(SELECT zk_xact_lock('N'); INSERT INTO work VALUES ('N'));
my $lease = qq(SELECT zk_try_lease('N', 'owner', '60s') AS token \\gset\n);
my $hold = qq(SELECT zk_hold('N', 'why') AS token \\gset\n);
my $other = q(SELECT zk_lock('N'));
my $root = qq(SET zklock.root = '/N'; SELECT zk_hold('N', 'why') AS token \\gset\n);
# Of several locks the first ones may be lost meanwhile; and a try may meet what its former session
# has left, until that is ended.
my @its_end = qw(expired killed_before killed_after);
my @silences = qw(silent sent_late unheard heard_late stopped);
my %wait_of_several = (says => { map { $_ => 'ok/40001' } @its_end });
my %one_try = (says => { map { $_ => 'ok/f' } @its_end });
my %try_of_several = (says => { map { $_ => 'ok/f/40001' } @its_end });
my %end_of_several = (else => [ 0, 1 ], says => { map { $_ => 'ok/f/40001' } @its_end });
my $records = q(SELECT count(*) FROM zk_runs('N'));

# The calls. N is the name of the cell's lock.
#   kind      a column of the table, or with a slash two: on a busy machine the proof of a lock may be too old
#   before    what the session has done before
#   ahead     what another cluster's session has done before
#   sql       the call, and
#   result    what it says
#   names     the locks that it takes
#   left      how many nodes are in their queues when it is done, and
#   else      when it has failed: one of these
#   remains   the same after a fault: what has a term may stay for that
#   records   a query that counts in place of that
#   lasts     what it leaves belongs to no session
#   repeats   after an error the same session has the result when it asks again
#   token     its result is the czxid of its node
#   waits     until the other cluster's session has let go
#   moments   of its requests only these meet faults: others are like them
#   never     faults that it cannot meet, and why
# A call without any of its requests awaited may be over before the fault.
my @calls = (
	locks => [
		'zk_lock' => { kind => 'wait', token => 1, sql => q(SELECT zk_lock('N')), result => $number, left => 1 },
		'zk_lock, first of its session' => { kind => 'wait', token => 1, before => 'SELECT zk_disconnect()', sql => q(SELECT zk_lock('N')), result => $number, left => 1,
			moments => [ 1, 5, 6 ], never => { map { $_ => 'its program is not there yet' } qw(stopped killed_before killed_after) } },
		'zk_lock behind another' => { kind => 'wait', token => 1, ahead => $other, waits => 1, sql => q(SELECT zk_lock('N')), result => $number, left => 1 },
		'zk_lock behind a reader' => { kind => 'wait', token => 1, ahead => q(SELECT zk_lock_shared('N')), waits => 1, sql => q(SELECT zk_lock('N')), result => $number, left => 1 },
		'zk_lock of a semaphore' => { kind => 'wait', token => 1, sql => q(SELECT zk_lock('N', permits => 3)), result => $number, left => 1, moments => [ 1, 5, 6 ] },
		'zk_lock_shared' => { kind => 'wait', token => 1, sql => q(SELECT zk_lock_shared('N')), result => $number, left => 1, moments => [ 1, 5, 6 ] },
		'zk_xact_lock' => { kind => 'wait', token => 1, before => 'BEGIN', sql => q(SELECT zk_xact_lock('N')), result => $number, left => 1, moments => [ 1, 5, 6 ] },
		'zk_xact_lock_shared' => { kind => 'wait', token => 1, before => 'BEGIN', sql => q(SELECT zk_xact_lock_shared('N')), result => $number, left => 1, moments => [ 1, 5, 6 ] },
		'zk_call_lock' => { kind => 'wait', token => 1, before => 'BEGIN', sql => q(SELECT zk_call_lock('N')), result => $number, left => 1, moments => [ 1, 5, 6 ] },
		'zk_lock_set' => { kind => 'wait', %wait_of_several, names => $two, sql => q(SELECT zk_lock_set(ARRAY['N', 'N.2'])), result => qr/^\{\d+,\d+\}$/, left => 2, moments => [ 1, 5, 7, 11, 12 ] },
		'zk_xact_lock_set' => { kind => 'wait', %wait_of_several, names => $two, before => 'BEGIN', sql => q(SELECT zk_xact_lock_set(ARRAY['N', 'N.2'])), result => qr/^\{\d+,\d+\}$/, left => 2, moments => [ 1, 6, 12 ] },
		'zk_lock_path' => { kind => 'wait', %wait_of_several, names => $path, sql => q(SELECT zk_lock_path('N/2')), result => $number, left => 2, moments => [ 1, 6, 13 ] },
		'zk_xact_lock_path' => { kind => 'wait', %wait_of_several, names => $path, before => 'BEGIN', sql => q(SELECT zk_xact_lock_path('N/2')), result => $number, left => 2, moments => [ 1, 6, 13 ] },
		'zk_commit_and_lock' => { kind => 'wait', sql => q(CALL zk_commit_and_lock('N')), result => qr/^$/, left => 1, moments => [ 1, 5, 6 ] },
	],
	tries => [
		'zk_try_lock' => { kind => 'try', %one_try, sql => q(SELECT zk_try_lock('N')), result => $true, left => 1 },
		'zk_try_lock of a held one' => { kind => 'try', ahead => $other, sql => q(SELECT zk_try_lock('N')), result => qr/^f$/, left => 1, else => [1] },
		'zk_try_lock_shared' => { kind => 'try', %one_try, sql => q(SELECT zk_try_lock_shared('N')), result => $true, left => 1, moments => [ 1, 6, 7 ] },
		'zk_try_xact_lock' => { kind => 'try', %one_try, before => 'BEGIN', sql => q(SELECT zk_try_xact_lock('N')), result => $true, left => 1, moments => [ 1, 6, 7 ] },
		'zk_try_xact_lock_shared' => { kind => 'try', %one_try, before => 'BEGIN', sql => q(SELECT zk_try_xact_lock_shared('N')), result => $true, left => 1, moments => [ 1, 6, 7 ] },
		'zk_try_call_lock' => { kind => 'try', %one_try, before => 'BEGIN', sql => q(SELECT zk_try_call_lock('N')), result => $true, left => 1, moments => [ 1, 6, 7 ] },
		'zk_try_lock_set' => { kind => 'try', %try_of_several, names => $two, sql => q(SELECT zk_try_lock_set(ARRAY['N', 'N.2'])), result => $true, left => 2, moments => [ 1, 6, 8, 13, 14 ] },
		'zk_try_xact_lock_set' => { kind => 'try', %try_of_several, names => $two, before => 'BEGIN', sql => q(SELECT zk_try_xact_lock_set(ARRAY['N', 'N.2'])), result => $true, left => 2, moments => [ 1, 7, 14 ] },
		'zk_try_lock_path' => { kind => 'try', %try_of_several, names => $path, sql => q(SELECT zk_try_lock_path('N/2')), result => $true, left => 2, moments => [ 1, 7, 15 ] },
		'zk_try_xact_lock_path' => { kind => 'try', %try_of_several, names => $path, before => 'BEGIN', sql => q(SELECT zk_try_xact_lock_path('N/2')), result => $true, left => 2, moments => [ 1, 7, 15 ] },
		'zk_lock_queue' => { kind => 'look', ahead => $other, sql => q(SELECT count(*) FROM zk_lock_queue('N')), result => qr/^1$/, left => 1, else => [1] },
		'zk_who' => { kind => 'look', ahead => $other, sql => q(SELECT count(*) FROM zk_who('N')), result => qr/^1$/, left => 1, else => [1] },
		'zk_all_locks' => { kind => 'look', says => { no_right => 'ok/0' }, before => $root, sql => q(SELECT count(*) FROM zk_all_locks()), result => qr/^1$/ },
		'zk_waits' => { kind => 'look', before => $root, sql => q(SELECT count(*) FROM zk_waits()), result => qr/^0$/ },
		'zk_wait_graph' => { kind => 'look', before => $root, sql => q(SELECT zk_wait_graph()), result => qr/^flowchart/ },
		'zk_check' => { kind => 'look', sql => 'SELECT count(*) > 9 FROM zk_check()', result => $true, moments => [ 1, 3, 10, 40 ],
			# It says what is wrong, and raises nothing.
			says => { map { $_ => 'ok' } grep { !/^(?:canceled|terminated)$/ } @fault_names } },
	],
	ends => [
		'zk_release_requested' => { kind => 'held', before => q(SELECT zk_lock('N')), sql => q(SELECT zk_release_requested('N')), result => qr/^f$/, left => [ 0, 1 ], else => [ 0, 1 ],
			# It waits for a second at most, and refuses nothing.
			says => { map({ $_ => 'ok' } qw(silent sent_late unheard heard_late stopped no_right no_quota unknown)), map { $_ => 'ok/40001' } qw(expired killed_before killed_after) } },
		'zk_unlock' => { kind => 'release', before => q(SELECT zk_lock('N')), sql => q(SELECT zk_unlock('N')), result => $true },
		'zk_unlock of a lock held for long' => { kind => 'release', before => q(SELECT zk_lock('N'); SELECT pg_sleep(0.3)), sql => q(SELECT zk_unlock('N')), result => $true },
		'zk_unlock_shared' => { kind => 'release', before => q(SELECT zk_lock_shared('N')), sql => q(SELECT zk_unlock_shared('N')), result => $true },
		'zk_unlock_set' => { kind => 'release', %end_of_several, names => $two, before => q(SELECT zk_lock_set(ARRAY['N', 'N.2'])), sql => q(SELECT zk_unlock_set(ARRAY['N', 'N.2'])), result => $true },
		'zk_unlock_path' => { kind => 'release', %end_of_several, names => $path, before => q(SELECT zk_lock_path('N/2')), sql => q(SELECT zk_unlock_path('N/2')), result => $true },
		'zk_unlock_all' => { kind => 'release', before => q(SELECT zk_lock('N')), sql => 'SELECT zk_unlock_all()', result => qr/^$/ },
		'zk_disconnect' => { kind => 'release', before => q(SELECT zk_lock('N')), sql => 'SELECT zk_disconnect()', result => qr/^$/ },
		'DISCARD ALL' => { kind => 'release', before => q(SELECT zk_lock('N')), sql => 'DISCARD ALL', result => qr/^$/ },
		'COMMIT, commit_guard off' => { kind => 'end', before => "SET zklock.commit_guard = off; BEGIN; $work", sql => 'COMMIT', result => qr/^$/ },
		'COMMIT, commit_guard fresh' => { kind => 'end/commit', before => "BEGIN; $work", sql => 'COMMIT', result => qr/^$/ },
		'COMMIT, commit_guard quorum' => { kind => 'commit', before => "SET zklock.commit_guard = quorum; BEGIN; $work", sql => 'COMMIT', result => qr/^$/ },
		'COMMIT with a lease' => { kind => 'commit', says => { map { $_ => '08001/08006' } @silences }, lasts => 1, left => 1, else => [1], sql => 'COMMIT', result => qr/^$/,
			before => "${lease}SET zklock.commit_guard = quorum; BEGIN; SELECT zk_require_lease('N', :token); INSERT INTO work VALUES ('N')" },
		'COMMIT behind zk_unlock' => { kind => 'commit', sql => 'COMMIT', result => qr/^$/,
			before => q(SET zklock.commit_guard = quorum; BEGIN; SELECT zk_lock('N'); INSERT INTO work VALUES ('N'); SELECT zk_unlock('N')) },
		'ROLLBACK' => { kind => 'end', before => "BEGIN; $work", sql => 'ROLLBACK', result => qr/^$/ },
		'ROLLBACK TO' => { kind => 'end', before => "BEGIN; SAVEPOINT s; SELECT zk_xact_lock('N')", sql => 'ROLLBACK TO s', result => qr/^$/ },
		'zk_is_held' => { kind => 'held', before => q(SELECT zk_lock('N')), sql => q(SELECT zk_is_held('N')), result => $true, left => 1, else => [ 0, 1 ] },
	],
	holds => [
		'zk_hold' => { kind => 'wait', lasts => 1, sql => q(SELECT zk_hold('N', 'why')), result => $number, left => 1 },
		'zk_release_hold' => { kind => 'change', lasts => 1, before => $hold, sql => q(SELECT zk_release_hold('N', :token)), result => $true, else => [ 0, 1 ] },
		'zk_try_lease' => { kind => 'try', %one_try, lasts => 1, remains => { terminated => [ 0, 1 ] }, sql => q(SELECT coalesce(zk_try_lease('N', 'owner', '60s')::text, 'f')), result => $number, left => 1 },
		'zk_try_lease behind another' => { kind => 'wait', says => { map { $_ => '08001' } @silences }, lasts => 1, ahead => $other, waits => 1, remains => { terminated => [ 0, 1 ] }, sql => q(SELECT zk_try_lease('N', 'owner', '60s', '60s')), result => $number, left => 1 },
		'zk_try_lease of the same owner' => { kind => 'try', lasts => 1, before => $lease, sql => q(SELECT zk_try_lease('N', 'owner', '60s')), result => $number, left => 1, else => [1] },
		'zk_try_lease_shared' => { kind => 'try', %one_try, lasts => 1, remains => { terminated => [ 0, 1 ] }, sql => q(SELECT coalesce(zk_try_lease_shared('N', 'owner', '60s')::text, 'f')), result => $number, left => 1, moments => [ 1, 6, 7, 8 ] },
		'zk_release_requested of a lease' => { kind => 'look', lasts => 1, before => $lease, sql => q(SELECT zk_release_requested('N', :token)), result => qr/^f$/, left => 1, else => [1] },
		'zk_renew_lease' => { kind => 'ask', lasts => 1, before => $lease, sql => q(SELECT zk_renew_lease('N', :token, '60s')), result => $true, left => 1, else => [1] },
		'zk_release_lease' => { kind => 'change', lasts => 1, before => $lease, sql => q(SELECT zk_release_lease('N', :token)), result => $true, else => [ 0, 1 ] },
		'zk_require_lease' => { kind => 'ask', lasts => 1, before => "${lease}BEGIN", sql => q(SELECT zk_require_lease('N', :token)), result => qr/^$/, left => 1, else => [1] },
		'zk_leader' => { kind => 'look', says => { no_right => 'ok/42501/another client' }, lasts => 1, before => $lease, sql => q(SELECT owner FROM zk_leader('N')), result => qr/^owner$/, left => 1, else => [1] },
		'zk_run_once' => { kind => 'ask', repeats => 1, sql => q(SELECT zk_run_once('N', 'slot')), result => $true, records => $records, left => 1, else => [ 0, 1 ] },
		'zk_forget_run' => { kind => 'change', before => q(SELECT zk_run_once('N', 'slot')), sql => q(SELECT zk_forget_run('N', 'slot')), result => $true, records => $records, else => [ 0, 1 ] },
		'zk_runs' => { kind => 'look', before => q(SELECT zk_run_once('N', 'slot')), sql => q(SELECT count(*) FROM zk_runs('N')), result => qr/^1$/, records => $records, left => 1, else => [1] },
		'zk_request_release' => { kind => 'ask', says => { no_right => 'ok/42501/0' }, ahead => $other, sql => q(SELECT zk_request_release('N')), result => qr/^1$/, left => 1, else => [1], moments => [ 1, 2, 3, 5, 9 ] },
		'zk_evict' => { kind => 'change', ahead => $other, before => qq(SELECT token FROM zk_lock_queue('N') \\gset\n), sql => q(SELECT zk_evict('N', :token)), result => $true, else => [ 0, 1 ] },
	]);

# What of the SQL script asks nobody, and a call of it; the rest has rows.
my %asks_nobody = (
	zk_fencing_token => q(zk_fencing_token('N')),
	zk_fence => q(zk_fence('N')),
	zk_escape => q(zk_escape('N')),
	zk_session => 'count(*) FROM zk_session',
	zk_session_locks => 'count(*) FROM zk_session_locks',
	zk_backends => 'count(*) FROM zk_backends',
	zk_locks => 'count(*) FROM zk_locks',
	zk_stat => 'count(*) FROM zk_stat',
	zk_stat_reset => 'zk_stat_reset()');

my %group = @calls;
my %call = map { @$_ } values %group;
my %promise = read_table();

my ($zk, $faults, $berlin, $paris, $holder, $observer, $stranger, @ways);
my $ncells = 0;
# For what may be on its way, in seconds; where much is broken there is no use in so much.
my $patience = $longest{other};

# By fault and kind: the words of its cell.
sub read_table
{
	my ($head, @lines) = map { [split] } split /\n/, $table;
	my (undef, @kinds) = @$head;
	my %read;
	foreach my $line (@lines)
	{
		my ($name, @words) = @$line;
		@{ $read{$name} }{@kinds} = @words;
	}
	return %read;
}

=pod

=head1 FUNCTIONS

=head2 complete

Tests: each call of the extension has a row, or asks nobody, and has a cost that says so; each row has
a verdict for each fault.

=cut

sub complete
{
	set_up();
	my @functions = split /\n/, $berlin->safe_psql('postgres',
		"SELECT DISTINCT proname FROM pg_proc JOIN pg_depend ON objid = pg_proc.oid AND deptype = 'e'
		 JOIN pg_extension e ON e.oid = refobjid AND extname = 'zklock'
		 WHERE classid = 'pg_proc'::regclass AND proname LIKE 'zk\\_%' ORDER BY 1");
	my %has_row = map { /^(zk_\w+)/ ? ($1 => 1) : () } keys %call;
	is_deeply([ grep { !$has_row{$_} && !$asks_nobody{$_} } @functions ], [], 'each function has a row of calls, or asks nobody');
	my $cheap = $berlin->safe_psql('postgres',
		"SELECT string_agg(p.oid::regprocedure::text, ' ') FROM pg_proc AS p JOIN pg_depend ON objid = p.oid AND deptype = 'e'
		 WHERE classid = 'pg_proc'::regclass AND prokind = 'f' AND procost < 1000
			AND proname IN (" . join(', ', map { "'$_'" } grep { $has_row{$_} } @functions) . ')');
	is($cheap, '', 'each function that asks ZooKeeper has a cost of 1000 or more');
	is_deeply([ sort keys %promise ], [ sort @fault_names ], 'each fault has a line of the table');
	is_deeply([ grep { my $name = $_; grep { !defined said($_, $name) } values %call } @fault_names ], [], 'each call has a verdict for each fault');

	my ($way) = @ways;
	my $session = connect_way($way);
	$session->query_safe(q(SELECT zk_lock('N')));
	my @asking;
	foreach my $name (sort keys %asks_nobody)
	{
		poll_until { $session->query_safe('SELECT pending_requests FROM zk_session') eq '0' } 'all to be answered';
		$faults->arm($way->{port}, 'none', -1);
		$session->query_safe("SELECT $asks_nobody{$name}");
		push @asking, $name if $faults->count($way->{port});
	}
	is("@asking", '', 'those that are said to ask nobody do not');
	(delete $way->{session})->quit;
	return;
}

# The words for that call and fault; undef if there are none.
sub said ($call, $fault)
{
	my @words = map { $promise{$fault}{$_} } split m{/}, $call->{kind};
	return $call->{says}{$fault} // (grep({ !defined } @words) ? undef : join '/', @words);
}

=pod

=head2 run($group)

The cells of these calls: a subtest for each fault, and in it a test for each call. Only of faults whose
names match ZKLOCK_TEST_FAULTS, if the environment has that.

=cut

sub run ($group)
{
	set_up();
	my @titles = sort keys %{ { @{ $group{$group} } } };

	my @plain = map { cell($_, '', -1) } @titles;
	play(@plain);
	my %count = map { $_->{title} => $_->{count} } @plain;
	subtest 'all calls are done without a fault' => sub {
		foreach my $cell (@plain)
		{
			is($cell->{odd}, '', "$cell->{title}: $cell->{count} requests");
			note($cell->{requests});
		}
	};

	my %cells;
	my @names = grep { $_ =~ ($ENV{ZKLOCK_TEST_FAULTS} || '.') } @fault_names;
	foreach my $name (@names)
	{
		foreach my $title (grep { !$call{$_}{never}{$name} } @titles)
		{
			$cells{$name}{$title} = [ map { cell($title, $name, $_) } moments($title, $name, $count{$title}) ];
		}
	}
	# Those that last as long as a session go together, and so do those that last as long as a bound.
	my @all = map { map { @$_ } values %$_ } values %cells;
	play(sort { slowness($b) <=> slowness($a) || $a->{number} <=> $b->{number} } @all);
	play_again(@all);
	foreach my $name (@names)
	{
		subtest $fault{$name}{text} => sub {
			foreach my $title (sort keys %{ $cells{$name} })
			{
				is(join('; ', map { $_->{odd} ? "request $_->{moment}: $_->{odd} ($_->{requests})" : () } @{ $cells{$name}{$title} }), '', $title);
			}
		};
	}
	note("$ncells cells");
	return;
}

# Which requests of a call, of so many, meet that fault. In a sample every other one does, and the
# others meet the next fault, which is like it; where there are no more than two, both do.
sub moments ($title, $name, $count)
{
	return $fault{$name}{nth} if defined $fault{$name}{nth};
	my @moments = grep { $_ <= $count } @{ $call{$title}{moments} // [ 1 .. $count ] };
	return @moments if plays_all() || @moments < 3;
	my ($row) = grep { $fault_names[$_] eq $name } 0 .. $#fault_names;
	return @moments[ grep { ($row + $_) % 2 == 0 } 0 .. $#moments ];
}

# Where a machine stands still for seconds, the ensemble ends a session, whatever the fault is, and a
# call is out of time before it meets the fault.
sub is_late ($cell)
{
	return 0 if $cell->{odd} eq '';
	return 1 if $cell->{has_new_session} || $cell->{odd} =~ /the fault was not met/;
	return !$cell->{fault}{is_bounded} && $cell->{odd} =~ /No contact with ZooKeeper for/;
}

# Such cells, a few times.
sub play_again (@cells)
{
	foreach (1 .. 3)
	{
		my @late = grep { is_late($_) } @cells;
		last if !@late || Patience::slowness() < 2;
		note("again: $_->{title}, request $_->{moment}: $_->{odd}") foreach @late;
		%$_ = %{ cell(@$_{qw(title name_of_fault moment)}) } foreach @late;
		play(@late);
	}
	return;
}

# What a cell waits for: the end of a session, a bound, or nothing.
sub slowness ($cell)
{
	my $awaits_proof = $cell->{call}{kind} =~ /commit|held/;
	return $awaits_proof ? 3 : 1 if $cell->{fault}{is_bounded};
	return $cell->{call}{kind} =~ /commit|end|release/ ? 2 : 0 if ($cell->{fault}{does} // '') =~ /KILL/;
	return 0;
}

sub cell ($title, $fault, $moment)
{
	my $call = $call{$title};
	$ncells++;
	return {
		name => "c$ncells", number => $ncells, title => $title, call => $call, name_of_fault => $fault, fault => $fault{$fault} // {}, moment => $moment,
		says => $fault ? said($call, $fault) : 'ok', odd => '' };
}

sub set_up
{
	return if $zk;
	$zk = ZooKeeper->new->start;
	$faults = Faults->new($zk->connect_string);
	$berlin = cluster('berlin', $zk, max_connections => $at_a_time + 20, 'zklock.session_timeout' => "${timeout}s", 'zklock.connect_timeout' => '10min');
	$paris = cluster('paris', $zk, 'zklock.session_timeout' => '60s');
	$berlin->safe_psql('postgres', 'CREATE TABLE work (name text)');
	$holder = background($paris, is_connected => 1);
	$observer = background($paris, is_connected => 1);
	$stranger = $zk->client;
	# What is made once for all locks.
	$observer->query_safe("SELECT zk_run_once('first', 'slot'), zk_release_lease('first', zk_try_lease('first', 'owner', '60s'))");
	@ways = map { { port => $faults->way } } 1 .. $at_a_time;
	return;
}

sub connect_way ($way)
{
	return $way->{session} = background($berlin, route => "127.0.0.1:$way->{port}");
}

# With the names of that cell.
sub of ($cell, $sql) { return $sql =~ s/\bN\b/$cell->{name}/gr; }

sub session ($cell) { return $cell->{way}{session}; }

sub odd ($cell, $what)
{
	$cell->{odd} .= ($cell->{odd} ? ', ' : '') . $what =~ s/\s+/ /gr;
	return;
}

# All these sessions are asked, and then all answers are waited for.
sub ask_all ($sql_of, @cells)
{
	session($_)->start_query($sql_of->($_)) foreach @cells;
	foreach my $cell (@cells)
	{
		$cell->{out} = session($cell)->wait_result;
		$cell->{state} = session($cell)->error =~ /ERROR|FATAL/ ? session($cell)->sqlstate || 'an error' : '00000';
	}
	return;
}

sub play (@cells)
{
	play_some(splice @cells, 0, $at_a_time) while @cells;
	return;
}

sub play_some (@cells)
{
	my @free = @ways;
	foreach my $cell (@cells)
	{
		$cell->{way} = shift @free;
		connect_way($cell->{way}) unless $cell->{way}{session};
	}
	begin(@cells);
	call(@cells);
	look_what_is_left(@cells);
	look_whose_session(grep { $_->{odd} && $_->{name_of_fault} =~ $keeps_session } @cells);
	look_what_goes_on(@cells);
	return;
}

# What stands before the calls.
sub begin (@cells)
{
	my $ahead = join ";\n", map { of($_, $_->{call}{ahead}) } grep { $_->{call}{ahead} } @cells;
	$holder->query_safe($ahead) if $ahead;
	ask_all(sub ($cell) {
		return join '', map { /\n$/ ? $_ : "$_;\n" }
		  # A session whose requests all have their replies: what goes on behind a call's end would be counted.
		  q(SELECT count(*) FROM zk_lock_queue('connect')),
		  $cell->{call}{before} ? of($cell, $cell->{call}{before}) : (),
		  $cell->{fault}{is_bounded} ? bounds($cell) : (),
		  'SELECT session_id, program_pid FROM zk_session'; }, @cells);
	foreach my $cell (@cells)
	{
		odd($cell, 'not begun: ' . session($cell)->error) if $cell->{state} ne '00000';
		@$cell{qw(session_id program)} = $cell->{out} =~ /([^|\n]*)\|(\d*)$/;
	}
	return;
}

# What comes over its way from now on is the call's.
sub arm ($cell)
{
	my %pid = (program => $cell->{program}, backend => session($cell)->pid);
	return $faults->arm($cell->{way}{port}, $cell->{fault}{does} // 'none', $cell->{moment}, $pid{ $cell->{fault}{to} // '' } // 0);
}

# What waits for nobody has the time of a connection.
sub bounds ($cell)
{
	my $is_question = $cell->{call}{kind} =~ /^(?:try|ask)$/ || $cell->{call}{sql} =~ /zk_check/;
	return sprintf 'SET %s = %d', $is_question ? 'zklock.connect_timeout' : 'lock_timeout', 1000 * $bound;
}

# Make all calls, until each is over and has met its fault.
sub call (@cells)
{
	foreach my $cell (@cells)
	{
		arm($cell);
		$cell->{since} = time;
		session($cell)->start_query(of($cell, $cell->{call}{sql}));
	}
	my @open = @cells;
	my ($began, $most) = (time, 3 * $longest{other});
	while (@open && !is_over(time - $began, $most))
	{
		my %met = map { $_ => 1 } split ' ', $faults->all_met;
		foreach my $cell (@open)
		{
			$cell->{took} //= time - $cell->{since} if session($cell)->is_done;
			$cell->{has_met} ||= $met{ $cell->{way}{port} };
			let_go($cell) if $cell->{call}{waits} && !$cell->{is_let} && ($cell->{has_met} || $zk->watched_paths(lock_path("$cell->{name}/")));
		}
		@open = grep { !defined $_->{took} || $_->{moment} > 0 && !$_->{has_met} && time - $_->{since} < $bound } @open;
		sleep 0.02;
	}
	foreach my $cell (@cells)
	{
		$cell->{count} = $faults->count($cell->{way}{port});
		$cell->{requests} = $faults->requests($cell->{way}{port});
		kill CONT => $cell->{program} if ($cell->{fault}{does} // '') =~ /STOP/;
		$faults->heal($cell->{way}{port}, $cell->{fault}{heal} // '');
		end_call($cell);
	}
	return;
}

# Whoever is ahead.
sub let_go ($cell)
{
	# The loss of one that was evicted interrupts a statement, once.
	poll_until { $holder->query(of($cell, $cell->{call}{ahead} =~ s/_lock/_unlock/r)); $holder->sqlstate eq '00000' } 'the release of what is ahead';
	$cell->{is_let} = 1;
	return;
}

sub end_call ($cell)
{
	my $out = session($cell)->wait_result;
	my ($state, $wanted) = (session($cell)->sqlstate, $cell->{call}{result});
	$cell->{out} = $out;
	$cell->{word} = $state ne '00000' ? $state : $out =~ $wanted ? 'ok' : $out;
	$cell->{word} = 'gone' if $state eq '08006' && session($cell)->error =~ /terminating connection|server closed the connection/;
	# On a busy machine a call may have had one request more when they were counted.
	my @says = (split(m{/}, $cell->{says}), $cell->{moment} > 1 && !$cell->{has_met} ? 'ok' : ());
	odd($cell, "$cell->{word}, not $cell->{says} (" . session($cell)->error . ')') if !grep { $_ eq $cell->{word} } @says;
	my $said = session($cell)->error;
	odd($cell, "it says $said") if $cell->{name_of_fault} =~ $is_unheard_of && $said ne '';
	odd($cell, "it does not say why, or what to do: $said") if $cell->{fault}{is_bounded} && $cell->{word} =~ /^(?:55P03|08001)$/ && $said !~ /^DETAIL:  .+/m;
	odd($cell, 'the fault was not met') if $cell->{moment} == 1 && !$cell->{has_met};
	my $longest = $longest{ $cell->{fault}{is_bounded} && $cell->{call}{kind} !~ /commit|held/ ? 'bounded' : 'other' };
	my $took = $cell->{took} // time - $cell->{since};
	odd($cell, sprintf 'after %.1f s', $took) if is_over($took, $longest);
	return;
}

sub count_nodes ($cell, @names)
{
	return $observer->query_safe(of($cell, $cell->{call}{records})) if $cell->{call}{records};
	my $count = 0;
	foreach my $name (@names)
	{
		my @children = eval { $stranger->children(lock_path(of($cell, $name))) };
		die $@ if $@ && $@ !~ /NoNode/;
		$count += grep { /\d{10}$/ } @children;
	}
	return $count;
}

# Until the nodes of each cell are so many as they may be, or in vain.
sub settle ($allowed, $what, @cells)
{
	my $began = time;
	my @open = @cells;
	while (1)
	{
		foreach my $cell (@open)
		{
			$cell->{nodes} = count_nodes($cell, @{ $cell->{call}{names} // ['N'] });
		}
		@open = grep { my $cell = $_; !grep { $_ == $cell->{nodes} } $allowed->($cell) } @open;
		last if !@open || is_over(time - $began, $patience);
		sleep 0.05;
	}
	$patience = 1 if @open;
	odd($_, "$what: $_->{nodes}, not " . join ' or ', $allowed->($_)) foreach @open;
	return;
}

sub look_what_is_left (@cells)
{
	settle(sub ($cell) {
			my $call = $cell->{call};
			my $left = $cell->{word} eq 'ok' ? $call->{left} : $call->{remains}{ $cell->{name_of_fault} } // $call->{else};
			$left //= 0;
			return ref $left ? @$left : $left;
		},
		'nodes left', @cells);
	foreach my $cell (grep { $_->{call}{token} && $_->{word} eq 'ok' && $_->{nodes} == 1 } @cells)
	{
		my $path = lock_path($cell->{name});
		my @czxids = map { ($stranger->exists("$path/$_") // {})->{czxid} // () } grep { /\d{10}$/ } $stranger->children($path);
		odd($cell, "its token is $cell->{out}, its node's @czxids") if "@czxids" ne $cell->{out};
	}
	my @repeated = grep { $_->{call}{repeats} && $_->{word} =~ /^\w{5}$/ } @cells;
	ask_all(sub ($cell) { return "RESET zklock.connect_timeout;\n" . of($cell, $cell->{call}{sql}) }, @repeated);
	$_->{out} =~ $_->{call}{result} || odd($_, "again it says $_->{out} " . session($_)->error) foreach @repeated;
	return;
}

# Whether the ensemble has ended the session that the call began with.
sub look_whose_session (@cells)
{
	ask_all(sub ($cell) { return "SELECT coalesce(state || ' ' || session_id, '') FROM zk_session" }, @cells);
	$_->{has_new_session} = $_->{session_id} && $_->{state} eq '00000' && ($_->{out} =~ /^lost/ || $_->{out} !~ / \Q$_->{session_id}\E$/) foreach @cells;
	return;
}

# The session lets go, and can do all it could before; so can others.
sub look_what_goes_on (@cells)
{
	foreach my $cell (@cells)
	{
		connect_way($cell->{way}) if ($cell->{fault}{does} // '') =~ /TERM/;
		let_go($cell) if $cell->{call}{ahead} && !$cell->{is_let};
	}
	my $evict = join ";\n", map { of($_, q(SELECT zk_evict('N', token) FROM zk_lock_queue('N'))) } grep { $_->{call}{lasts} } @cells;
	$observer->query_safe($evict) if $evict;
	ask_all(sub { return 'ROLLBACK; SELECT zk_unlock_all()' }, @cells);
	# One statement may be interrupted by the loss.
	ask_all(sub { return 'ROLLBACK; SELECT zk_unlock_all()' }, grep { $_->{state} eq '40001' } @cells);
	$_->{state} eq '00000' || odd($_, 'it lets nothing go: ' . session($_)->error) foreach @cells;
	my $most = stretched($longest{other});
	ask_all(sub ($cell) {
		return of($cell, "RESET zklock.root; RESET lock_timeout; RESET zklock.connect_timeout; RESET zklock.commit_guard;
			BEGIN; SELECT zk_xact_lock('N', '${most}s'); INSERT INTO work VALUES ('N'); COMMIT"); }, @cells);
	$_->{state} eq '00000' || odd($_, 'it does not go on: ' . session($_)->error) foreach @cells;

	my $names = join ', ', map { "'$_->{name}'" } @cells;
	if ($observer->query_safe("SELECT zk_try_lock_set(ARRAY[$names], '@{[ stretched($timeout) ]}s'), zk_unlock_all()") !~ /^t/)
	{
		$observer->query_safe(of($_, q(SELECT zk_try_lock('N'), zk_unlock_all()))) =~ /^t/ || odd($_, 'others cannot take it') foreach @cells;
	}
	settle(sub { return 0 }, 'nodes at the end', grep { !$_->{call}{records} } @cells);
	return;
}

1;
