
=pod

=head1 NAME

Bench::Loops - workloads in which contenders take and release without a pause

=head1 DESCRIPTION

A measurement is a window in the middle of the contestant's loop: it has
opened its sessions and is under way when the window begins. What falls into the
window counts.

=cut

package Bench::Loops;

use v5.36;

use Bench::Stats qw(percentile read_cycles waits cycle_times fifo_share);
use Time::HiRes qw(time sleep);

# Seconds before the window, longer for many contenders, who open a session
# each, and at least after it.
my $lead_in = 0.4;
my $lead_in_each = 0.01;
my $lead_out = 0.05;

my @counters = qw(packets_received packets_sent response_bytes);

sub counters ($zk)
{
	my %value = map { $_ => $zk->counter($_) } grep { !/^packets_r/ } @counters;
	$value{packets_received} = $zk->packets_received;
	# Of the log; each server has its own, and flushes it for every change.
	$value{flushes} = $zk->counter('cnt_fsynctime') / ($zk->running || 1);
	return \%value;
}

=pod

=head2 measure($zookeeper, $contestant, sessions => ..., locks => 1, lock => name, window => seconds)

Returns what was seen: rate (cycles per second), p50, p95 and p99 of the whole
cycle and wait50, wait99 of the wait (in microseconds), fifo (undef if nobody
knows), the server's counters per cycle, and the times of all cycles.

On a machine that stands still for half a second there is nothing to see in the
window. Then the measurement is repeated, but not for ever.

=cut

my $attempts = 5;

sub measure ($zk, $contestant, %arg)
{
	foreach (1 .. $attempts)
	{
		my $seen = _measure_once($zk, $contestant, %arg);
		return $seen if $seen;
	}
	die $contestant->name . " did nothing in $arg{window} s\n";
}

sub _measure_once ($zk, $contestant, %arg)
{
	my $lead = $lead_in + $lead_in_each * $arg{sessions};
	$contestant->start_loop(
		locks => 1,
		%arg,
		seconds => $lead + $arg{window} + $lead_out);
	sleep($lead);
	my $before = counters($zk);
	my $begin = time() * 1_000_000;
	sleep($arg{window});
	my $end = time() * 1_000_000;
	my $after = counters($zk);

	my $cycles = read_cycles($contestant->finish_loop);
	my @granted =
	  grep { $_->[Bench::Stats::GRANTED] >= $begin } @$cycles;
	my @counted =
	  grep { $_->[Bench::Stats::GRANTED] < $end } @granted;
	return undef unless @counted;
	my @times = cycle_times(@counted);
	my @waits = waits(@counted);
	my %seen = (
		count => scalar @counted,
		rate => @counted / (($end - $begin) / 1_000_000),
		p50 => percentile(50, @times),
		p95 => percentile(95, @times),
		p99 => percentile(99, @times),
		wait50 => percentile(50, @waits),
		wait99 => percentile(99, @waits),
		fifo => $contestant->knows_grants ? fifo_share(@counted) : undef,
		times => \@times);
	$seen{$_} = ($after->{$_} - $before->{$_}) / @counted foreach keys %$after;
	return \%seen;
}

1;
