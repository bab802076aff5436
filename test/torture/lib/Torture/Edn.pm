
=pod

=head1 NAME

Torture::Edn - the history of each counter, for an independent checker

=head1 DESCRIPTION

Writes one file for each counter in the format of Knossos (and of Elle and other
tools that read Jepsen's histories), for its model of a register with
compare-and-set that begins with 0: who commits with the lock has set the counter
from what it read to one more, some time between being granted the lock and the end
of its COMMIT; a reader has read it. With the lock, and in the order of the queue,
that is linearizable.

Whether a COMMIT without an answer was one is known from the ledger: if so it is an
operation that never ends (":info"), if not there was none.

=cut

package Torture::Edn;

use strict;
use warnings;

use Carp;

# After an operation without an end its process has another number.
my $next_life = 1000;

=pod

=head2 write_files($directory, $cycles, @rows)

Those of L<Torture::Checker>. Returns the paths.

=cut

sub write_files
{
	my ($directory, $cycles, @rows) = @_;
	my %cycle = map { ("$_->{worker} $_->{cycle}" => $_) } @$cycles;
	my @paths;
	foreach my $row (@rows)
	{
		(my $name = $row->{name}) =~ s{\W+}{-}g;
		my $path = "$directory/$name.edn";
		open my $file, '>', $path or croak "could not write $path: $!";
		print $file map { "$_\n" } _lines(\%cycle, $row);
		close $file or croak "could not write $path: $!";
		push @paths, $path;
	}
	return @paths;
}

sub _lines
{
	my ($cycle, $row) = @_;
	my @steps;      # [time, what, process, operation]
	foreach my $entry (@{ $row->{entries} })
	{
		my $cycle = $cycle->{"$entry->{worker} $entry->{cycle}"} or next;
		my $operation =
		  $entry->{is_reader}
		  ? ":f :read, :value $entry->{v}"
		  : sprintf ':f :cas, :value [%d %d]', $entry->{v}, $entry->{v} + 1;
		push @steps, [ $cycle->{granted}, 'invoke', $entry->{worker}, $operation ],
		  [ $cycle->{ended}, $cycle->{outcome} eq 'committed' ? 'ok' : 'info', $entry->{worker}, $operation ];
	}
	my (@lines, %life);
	foreach my $step (sort { $a->[0] <=> $b->[0] } @steps)
	{
		my ($time, $what, $worker, $operation) = @$step;
		push @lines, sprintf '{:process %d, :type :%s, %s, :time %d}',
		  $worker + $next_life * ($life{$worker} || 0), $what, $operation, 1e9 * $time;
		$life{$worker}++ if $what eq 'info';
	}
	return @lines;
}

1;
