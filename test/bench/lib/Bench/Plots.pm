
=pod

=head1 NAME

Bench::Plots - the results as curves, drawn by gnuplot

=cut

package Bench::Plots;

use v5.36;

use Bench::Stage;
use Bench::Stats qw(median);

# The same colour for the same contestant everywhere.
my %line = (
	zklock => [ 'zklock, in one cluster', '#c0392b' ],
	block => [ 'the same, DO block', '#e67e22' ],
	between => [ 'zklock, between two', '#8e44ad' ],
	floor => [ 'C client, create + delete', '#7f8c8d' ],
	curator => [ 'Curator', '#2c3e50' ],
	kazoo => [ 'Kazoo', '#2980b9' ],
	golock => [ 'go-zookeeper', '#27ae60' ]);
my @order = qw(zklock block between floor curator kazoo golock);

sub _gnuplot (@commands)
{
	open my $gnuplot, '|-', 'gnuplot' or die "could not run gnuplot: $!";
	print $gnuplot map { "$_\n" } @commands;
	close $gnuplot or die "gnuplot failed\n";
	return;
}

# Curves are [name, [x, y], ...].
sub _draw ($file, $settings, @curves)
{
	return unless @curves;
	my (@blocks, @plots);
	foreach my $curve (@curves)
	{
		my ($name, @points) = @$curve;
		my ($title, $color) = @{ $line{$name} };
		push @blocks, "\$$name << EOD",
		  (map { join ' ', @$_ } @points), 'EOD';
		push @plots, "\$$name using 1:2 title '$title' linecolor '$color'";
	}
	_gnuplot(
		"set terminal svg size 860,480 font 'sans-serif,13' background 'white'",
		"set output '$file'",
		'set grid linecolor "#dddddd"',
		# Beside the curves, one under another: no label covers another, however long.
		'set key outside right top Left reverse samplen 2 spacing 1.5 width -2',
		'set style data linespoints',
		'set for [i=1:9] linetype i linewidth 2 pointtype 7 pointsize 0.6',
		@$settings, @blocks,
		'plot ' . join ', ', @plots);
	return;
}

# One curve for each contestant: x is the parameter, y a median.
sub _curves ($results, $key, $factor)
{
	my @parameters = sort { $a <=> $b } keys %$results;
	my @curves;
	foreach my $name (@order)
	{
		my @measured = grep { $results->{$_}{$name} } @parameters;
		next unless @measured;
		push @curves, [
			$name,
			map {
				[
					$_,
					$factor * median(
						map { $_->{$key} } @{ $results->{$_}{$name} })
				]
			} @measured ];
	}
	return @curves;
}

sub _distribution ($results)
{
	return map {
		my $quantiles = $results->{$_}[0]{quantiles};
		[ $_, map { [ $quantiles->[$_] / 1000, $_ / 2 ] } keys @$quantiles ];
	} grep { $results->{$_} } @order;
}

=pod

=head2 draw($directory, $results)

Of the first variant in the results. Returns [file, caption] for each plot
drawn.

=cut

sub draw ($dir, $results)
{
	my ($variant) =
	  grep { $results->{variants}{$_} } @Bench::Stage::variants;
	my $seen = $results->{variants}{$variant};
	my @cycles = $seen->{uncontended} ? _distribution($seen->{uncontended}{1}) : ();
	# The tails are another matter; see p95 in the table.
	my ($slowest) = sort { $b <=> $a } map { $_->[ $#$_ / 2 ][0] } @cycles;
	my @plots = (
		[ 'contenders', 'Throughput against contenders', [ _curves($seen->{contenders}, 'rate', 1) ],
			'set logscale x 2', 'set xtics (2, 8, 32)', 'set xlabel "contenders"',
			'set ylabel "hand-overs per second"', 'set yrange [0:*]' ],
		[ 'depth', 'Hand-over against depth of the queue', [ _curves($seen->{depth}, 'p50', 0.001) ],
			'set logscale x 10', 'set xlabel "waiters"', 'set ylabel "hand-over, ms"', 'set yrange [0:*]' ],
		[ 'uncontended', 'Distribution of the uncontended cycle', \@cycles,
			'set style data lines', 'set xlabel "cycle, ms"', 'set ylabel "cycles that took no longer, %"',
			'set xrange [0:' . 2 * ($slowest // 0) . ']', 'set yrange [0:100]' ]);
	my @drawn;
	foreach my $plot (grep { $seen->{ $_->[0] } } @plots)
	{
		my ($name, $caption, $curves, @settings) = @$plot;
		_draw("$dir/$name.svg", \@settings, @$curves);
		push @drawn, [ "$name.svg", $caption ];
	}
	return @drawn;
}

1;
