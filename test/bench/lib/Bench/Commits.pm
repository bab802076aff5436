
=pod

=head1 NAME

Bench::Commits - what a commit costs a backend that has locks, and its memory

=cut

package Bench::Commits;

use v5.36;

use Bench::Machine;
use Bench::Stats qw(wait_times);

my $insert = 'INSERT INTO work VALUES (1)';

=pod

=head2 commit($backends, $locks, $count), commit_of_a_write(likewise)

COMMIT alone, in transactions that have taken so many locks and, if they write,
inserted a row.

=cut

sub commit ($backends, $locks, $count, @writes)
{
	my $begin = join '; ', 'BEGIN',
	  "SELECT count(zk_xact_lock('bench-commit-' || i)) FROM generate_series(1, $locks) AS i", @writes;
	return { wait_times($backends->time_query(0, $count, $begin, 'COMMIT', '')) };
}

sub commit_of_a_write { return commit(@_, $insert); }

=pod

=head2 commit_spread($backends, $locks, $count)

COMMIT alone, in transactions that inserted a row and have taken so many locks, evenly over a
session timeout of four seconds: some proofs are fresh, and the others are not.

=cut

sub commit_spread ($backends, $locks, $count)
{
	my $timeout = 4;
	my $pause = $timeout / $locks;
	$backends->query(0, "SELECT zk_disconnect(); SET zklock.session_timeout = '${timeout}s'");
	my $begin = join ' ', "BEGIN; DO \$\$ BEGIN FOR i IN 1 .. $locks LOOP",
	  "PERFORM zk_xact_lock('bench-spread-' || i);",
	  "PERFORM pg_sleep(extract(epoch FROM now()) + i * $pause - extract(epoch FROM clock_timestamp()));",
	  "END LOOP; END \$\$; $insert";
	my %seen = wait_times($backends->time_query(0, $count, $begin, 'COMMIT', ''));
	$backends->query(0, 'SELECT zk_disconnect(); RESET zklock.session_timeout');
	return \%seen;
}

=pod

=head2 guard($backends, $level, $count)

An INSERT that is a transaction of its own, while a lock is held and guarded at
that level; "no lock" is without a lock.

=cut

sub guard ($backends, $level, $count)
{
	if ($level ne 'no lock')
	{
		$backends->query(0, "SET zklock.commit_guard = $level");
		$backends->query(0, q{SELECT zk_lock('bench-guard')});
	}
	my %seen = wait_times($backends->time_query(0, $count, '', $insert, ''));
	$backends->query(0, 'SELECT zk_unlock_all()');
	$backends->query(0, 'RESET zklock.commit_guard');
	return \%seen;
}

=pod

=head2 lease($backends, $what, $count)

One renewal, one lease that is taken anew (it is released outside of the time), or a
transaction that inserts a row under a lease, or under a lock: its function.

=cut

sub lease ($backends, $what, $count)
{
	my $name = 'bench-lease';
	my $token = $backends->query(0, "SELECT zk_try_lease('$name', 'bench', '1 hour')");
	my %does = (
		renewal => [ "SELECT zk_renew_lease('$name', $token, '1 hour')" ],
		'new lease' => [
			"SELECT zk_try_lease('$name-new', 'bench', '1 hour')",
			"SELECT zk_release_lease('$name-new', (zk_leader('$name-new')).token)" ],
		zk_require_lease => ["BEGIN; SELECT zk_require_lease('$name', $token); $insert; COMMIT"],
		zk_xact_lock => ["BEGIN; SELECT zk_xact_lock('$name-not'); $insert; COMMIT"]);
	my ($timed, $after) = @{ $does{$what} };
	my %seen = wait_times($backends->time_query(0, $count, '', $timed, $after // ''));
	return { %seen, rate => 1e6 / $seen{p50} };
}

=pod

=head2 memory($backends)

Private memory, in kB, that a backend has more than one like it, once it has a
ZooKeeper session and a lock.

=cut

sub memory ($backends)
{
	# Both know zklock's functions; only one opens a session.
	my @does = (
		q{SELECT zk_fencing_token('bench-memory')},
		q{SELECT zk_lock('bench-memory')});
	my @pids =
	  map { $backends->query($_, 'SELECT pg_backend_pid()') } keys @does;
	$backends->query($_, $does[$_]) foreach keys @does;
	# Now that both are there: a page that two have touched is no longer
	# private.
	my ($without, $with) = map { Bench::Machine::kilobytes("/proc/$_/smaps_rollup", 'Private_\w+') } @pids;
	$backends->close_from(0);
	return {
		with => $with,
		without => $without,
		p50 => $with - $without };
}

1;
