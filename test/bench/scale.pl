
# How zklock bears a crowd: two clusters full of backends, an ensemble, and what
# may happen to them. See README.md in this directory.
#
# Usage: scale.pl --bin DIRECTORY --out DIRECTORY [--sizes "250 500 1000 2000"]
#                 [--storms "restart leader cut network silence ..."] [--servers 3]
#                 [--names 50] [--config "key=value ..."] [--baseline FILE]
# The file has the lines of a postgresql.conf by which a cluster finds another build, which is
# measured before this one. Progress goes to standard output, the report and its data to the
# directory.

use v5.36;

use FindBin;
use lib "$FindBin::Bin/lib", "$FindBin::Bin/../lib";

use Bench::Script;
use Bench::Fleet;
use Bench::Machine;
use Bench::Report;
use Bench::Scale;
use Bench::Storm;
use JSON::PP;
use List::Util qw(max);
use PostgreSQL::Test::Utils;

my %option = (
	sizes => '250 500 1000 2000',
	storms => 'restart leader cut named addresses rolling network silence reload',
	servers => 3,
	names => 50,
	baseline => '',
	config => '');

sub run ($dir)
{
	my @sizes = split ' ', $option{sizes};
	my (@storms, @impossible);
	push @{ Bench::Storm::is_possible($_, $option{servers}) ? \@storms : \@impossible },
	  $_
	  foreach split ' ', $option{storms};
	say_line("left out, for want of servers: @impossible") if @impossible;
	my %settings = (
		$option{baseline} ? (before => { slurp_file($option{baseline}) =~ /^([\w.]+) = '(.*)'$/mg }) : (),
		now => {});
	my @builds = sort keys %settings;
	my $results = {
		machine => [ Bench::Machine::describe($dir) ],
		servers => $option{servers},
		config => $option{config},
		storms => \@storms,
		impossible => \@impossible,
		builds => \@builds,
		sizes => {} };
	my %fleet = map { $_ => fleet($dir, $_, $settings{$_}, max(@sizes), @storms) } @builds;
	foreach my $size (@sizes)
	{
		foreach my $build (@builds)
		{
			my $say = @builds > 1 ? sub ($text) { say_line("$build $text"); } : \&say_line;
			$results->{sizes}{$size}{$build} = Bench::Scale::measure(
				$fleet{$build}, $size, $say,
				storms => \@storms,
				names => $option{names});
		}
		# So that a run that is cut short has told something.
		write_file('scale.json', JSON::PP->new->canonical->pretty->encode($results));
		write_file('scale.md', report($results));
	}
	return 0;
}

sub fleet ($dir, $build, $settings, $size, @storms)
{
	my %ways = map { Bench::Storm::way($_) => 1 } @storms;
	return Bench::Fleet->new(
		bin => $option{bin},
		dir => $dir,
		name => $build,
		settings => $settings,
		servers => $option{servers},
		config => { map { split /=/, $_, 2 } split ' ', $option{config} },
		network => $ways{network},
		names => $ways{names},
		size => $size);
}

# A table for each step, with a column for each size and build.
sub report ($results)
{
	my @columns = map {
		my $size = $_;
		map { [ $size, $_ ] } @{ $results->{builds} }
	} sort { $a <=> $b } keys %{ $results->{sizes} };
	my @heads = map { @{ $results->{builds} } > 1 ? join(', ', @$_) : $_->[0] } @columns;
	my @tables = map {
		my ($step, $title, @rows) = @$_;
		my @seen = map { $results->{sizes}{ $_->[0] }{ $_->[1] }{$step} } @columns;
		my @lines = map { row($_, @seen) } @rows;
		@lines ? ("## $title\n", Bench::Report::markdown([ 'backends', @heads ], @lines)) : ();
	} Bench::Scale::tables(@{ $results->{storms} });
	return join "\n", "# Benchmark with many backends\n",
	  "Two clusters, half of the backends each; servers: "
	  . join(', ', $results->{servers}, split ' ', $results->{config}) . '.',
	  "test/bench/README.md says what the steps are.",
	  (grep { $_ eq 'before' } @{ $results->{builds} }) ? "Before: $ENV{BENCH_BASELINE}.\n" : '',
	  join('', map { "- $_->[0]: $_->[1]\n" } @{ $results->{machine} }), @tables;
}

# [title, a cell for each column], or nothing if none of them has it.
sub row ($row, @seen)
{
	my ($title, @keys) = @$row;
	my @cells = map {
		my $step = $_;
		my @values = map { number(value($step, $_)) } @keys;
		join ', ', grep { $_ ne '' } @values;
	} @seen;
	return grep({ $_ ne '' } @cells) ? [ $title, @cells ] : ();
}

# Of {a => {b => 1}}: "a b", or undef.
sub value ($seen, $path)
{
	foreach my $key (split ' ', $path)
	{
		return undef if !defined $seen;
		$seen = $seen->{$key};
	}
	return $seen;
}

sub number ($value)
{
	return '' if !defined $value;
	return $value if $value !~ /^-?\d*\.\d/;
	# three digits, as a rule
	my $size = abs $value;
	my $digits = grep { $size < $_ } 100, 10, 0.1;
	return sprintf '%.*f', $digits, $value;
}

run_script(\&run, \%option, 'sizes=s', 'storms=s', 'servers=i', 'names=i',
	'config=s', 'baseline=s');
