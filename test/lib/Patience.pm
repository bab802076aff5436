
=pod

=head1 NAME

Patience - how long a test waits for what is on its way

=head1 DESCRIPTION

No test has a clock of its own. A bound in a test is one of two things. A I<patience> is how long
the test waits for something that will come: on a busy machine that is longer, by as much as the
machine is slower. A I<promise> of zklock's is asserted on what load does not change: the order of
things, processor time, what the server's log says. Where only wall time can tell, in_time judges:
what is late on a machine that is that busy is neither right nor wrong, and is said to be skipped.

=cut

package Patience;

use v5.36;

use Exporter qw(import);
use List::Util qw(max);
use Test::More ();
use Time::HiRes qw(clock_gettime CLOCK_PROCESS_CPUTIME_ID time);

our @EXPORT_OK = qw(slowness stretched steady is_over in_time);

# So much processor time a probe takes, in seconds.
my $probe = 0.02;

=pod

=head2 slowness

By what factor this machine is slower now than it would be for us alone, at least 1: the wall
time that a bit of work takes, by its processor time; or the processes that want a processor,
for each of them, over the last minute.

=cut

sub slowness
{
	my ($wall, $cpu) = (time, clock_gettime(CLOCK_PROCESS_CPUTIME_ID));
	1 until clock_gettime(CLOCK_PROCESS_CPUTIME_ID) - $cpu > $probe;
	my $ratio = (time - $wall) / (clock_gettime(CLOCK_PROCESS_CPUTIME_ID) - $cpu);
	return max(1, $ratio, _load() / _processors());
}

=pod

=head2 stretched($seconds)

A patience: so many seconds on a quiet machine, and longer on this one as it is now.

=cut

sub stretched ($seconds) { return $seconds * slowness(); }

=pod

=head2 steady($seconds)

A session timeout of so many seconds; three times as many where ten processes want each processor.
Such a machine stands still for seconds now and then, which ends a session.

=cut

sub steady ($seconds) { return slowness() > 10 ? 3 * $seconds : $seconds; }

=pod

=head2 is_over($took, $seconds)

Whether a wait that took so long is longer than that patience. The machine is probed only if it
is so on a quiet one.

=cut

sub is_over ($took, $seconds) { return $took >= $seconds && $took >= stretched($seconds); }

=pod

=head2 in_time($took, $most, $what)

A test: something took less than so many seconds. If it took longer, and no longer than it may
on a machine that is as busy as this one, the test is skipped.

=cut

sub in_time ($took, $most, $what)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return Test::More::cmp_ok($took, '<', $most, $what) if $took < $most;
	my $slowness = slowness();
	return Test::More::cmp_ok($took, '<', $most, $what) if $took >= $most * $slowness;
	return Test::More->builder->skip(
		sprintf '%s: took %.1f s, not %.1f s, on a machine %.1f times as slow as a quiet one',
		$what, $took, $most, $slowness);
}

sub _load
{
	open my $in, '<', '/proc/loadavg' or return 0;
	return (split ' ', readline $in)[0];
}

sub _processors
{
	open my $in, '<', '/proc/cpuinfo' or return 1;
	return max(1, scalar grep { /^processor\b/ } readline $in);
}

1;
