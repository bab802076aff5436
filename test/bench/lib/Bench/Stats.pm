
=pod

=head1 NAME

Bench::Stats - medians, percentiles, and what a log of cycles says

=head1 DESCRIPTION

A cycle is [contender, requested, granted, releasing, released], in microseconds
of the clock that all programs share.

=cut

package Bench::Stats;

use v5.36;

use Exporter 'import';

our @EXPORT_OK = qw(percentile median read_cycles waits wait_times cycle_times
  hand_overs fifo_share);

use constant {
	CONTENDER => 0,
	REQUESTED => 1,
	GRANTED => 2,
	RELEASING => 3,
	RELEASED => 4 };

=pod

=head2 percentile($percent, values), median(values)

By nearest rank; the median of an even number is the mean of the middle two.
undef of no values.

=cut

sub percentile ($percent, @values)
{
	return undef unless @values;
	@values = sort { $a <=> $b } @values;
	my $rank = int($percent / 100 * @values + 0.999999) - 1;
	return $values[ $rank < 0 ? 0 : $rank ];
}

sub median
{
	my @values = sort { $a <=> $b } grep { defined } @_;
	return undef unless @values;
	return ($values[ $#values / 2 ] + $values[ @values / 2 ]) / 2;
}

=pod

=head2 read_cycles($file)

=cut

sub read_cycles ($file)
{
	open my $in, '<', $file or die "could not read $file: $!";
	my @cycles = map { [split] } readline $in;
	return \@cycles;
}

=pod

=head2 waits(cycles), cycle_times(cycles)

In microseconds: from the request to the grant, and to the end of the release.

=cut

=head2 wait_times($file)

(p50 => ..., p95 => ...) of the waits in a file of cycles.

=cut

sub waits { return map { $_->[GRANTED] - $_->[REQUESTED] } @_; }
sub wait_times ($file)
{
	my @times = waits(@{ read_cycles($file) });
	return (p50 => percentile(50, @times), p95 => percentile(95, @times));
}

sub cycle_times { return map { $_->[RELEASED] - $_->[REQUESTED] } @_; }

=pod

=head2 hand_overs(cycles)

In microseconds, in the order of the grants: from the moment a holder begins to
let go until the next contender knows that it holds the lock.

=cut

sub hand_overs
{
	my @cycles = sort { $a->[GRANTED] <=> $b->[GRANTED] } @_;
	return
	  map { $cycles[$_][GRANTED] - $cycles[ $_ - 1 ][RELEASING] }
	  1 .. $#cycles;
}

=pod

=head2 fifo_share(cycles)

The share of grants by which nobody was passed over: all who are granted the
lock later asked for it later.

=cut

sub fifo_share
{
	my @cycles = sort { $b->[GRANTED] <=> $a->[GRANTED] } @_;
	my ($earliest, $fair) = (undef, 0);
	foreach my $cycle (@cycles)
	{
		my $asked = $cycle->[REQUESTED];
		$fair++ if !defined $earliest || $asked <= $earliest;
		$earliest = $asked if !defined $earliest || $asked < $earliest;
	}
	return @cycles ? $fair / @cycles : undef;
}

1;
