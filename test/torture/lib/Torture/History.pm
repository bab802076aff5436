
=pod

=head1 NAME

Torture::History - who did what when

=head1 DESCRIPTION

Each process appends to a file of its own, one line an event: time, what, and
key=value pairs, separated by tabs. The clock is the machine's monotonic one,
the same for all processes, so that events of different files can be compared.
What is written before a request was certainly before it, what is written after
an answer was certainly after it; the checker concludes nothing else from times.

=cut

package Torture::History;

use v5.36;

use Carp;
use Exporter 'import';
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC CLOCK_REALTIME);

our @EXPORT_OK = qw(now time_of_day_at_zero at_time_of_day);

# Clocks that differ from the machine's do so by whole days, in seconds.
my $day = 86_400;

# Seconds on the machine's clock.
sub now { return clock_gettime(CLOCK_MONOTONIC); }

# The time of day when that clock was 0: what others have written down with the
# time of day is compared with histories by this. It moves if the clock is set.
sub time_of_day_at_zero
{
	my ($least, $zero);
	foreach (1 .. 100)
	{
		my $before = now();
		my $time_of_day = clock_gettime(CLOCK_REALTIME);
		my $after = now();
		# Who loses the processor in between knows neither.
		next if defined $least && $after - $before >= $least;
		$least = $after - $before;
		$zero = $time_of_day - ($before + $after) / 2;
	}
	return $zero;
}

# When it was on the machine's clock, from what somebody's clock said then.
sub at_time_of_day ($time_of_day, $zero)
{
	my $time = $time_of_day - $zero;
	return $time - $day * sprintf('%.0f', ($time - now()) / $day);
}

sub new ($class, $path)
{
	open my $file, '>>', $path or croak "could not write $path: $!";
	return bless { file => $file }, $class;
}

=pod

=head2 note($event, key => value, ...)

The time is now, or that of the key "at".

=cut

sub note ($self, $event = undef, %detail)
{
	my $line = sprintf "%.6f\t%s", delete $detail{at} // now(), $event;
	foreach my $key (sort keys %detail)
	{
		(my $value = $detail{$key} // '') =~ s/[\t\n]/ /g;
		$line .= "\t$key=$value";
	}
	syswrite $self->{file}, "$line\n";
	return;
}

=pod

=head2 read_events($path, $visit)

Calls $visit with a hash for each line of a file: time, event and the details.

=cut

sub read_events ($path, $visit)
{
	open my $file, '<', $path or croak "could not read $path: $!";
	while (my $line = readline $file)
	{
		chomp $line;
		my ($time, $event, @details) = split /\t/, $line;
		my %entry = map { split /=/, $_, 2 } @details;
		$visit->({ %entry, time => $time, event => $event });
	}
	close $file;
	return;
}

1;
