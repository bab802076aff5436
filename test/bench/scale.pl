
# How zklock bears a crowd: two clusters full of backends, an ensemble, and what
# may happen to them. See README.md in this directory.
#
# Usage: scale.pl --bin DIRECTORY --out DIRECTORY [--sizes "250 500 1000 2000"]
#                 [--storms "restart leader cut network silence"] [--servers 3]
#                 [--names 50] [--config "key=value ..."]
# Progress goes to standard output, the report and its data to the directory.

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

my %option = (
	sizes => '250 500 1000 2000',
	storms => 'restart leader cut network silence',
	servers => 3,
	names => 50,
	config => '');

sub run ($dir)
{
	my @sizes = split ' ', $option{sizes};
	my (@storms, @impossible);
	push @{ Bench::Storm::is_possible($_, $option{servers}) ? \@storms : \@impossible },
	  $_
	  foreach split ' ', $option{storms};
	say_line("left out, for want of servers: @impossible") if @impossible;
	my $results = {
		machine => [ Bench::Machine::describe($dir) ],
		servers => $option{servers},
		config => $option{config},
		storms => \@storms,
		impossible => \@impossible,
		sizes => {} };
	my $fleet = Bench::Fleet->new(
		bin => $option{bin},
		dir => $dir,
		servers => $option{servers},
		config => { map { split /=/, $_, 2 } split ' ', $option{config} },
		network => scalar(grep { Bench::Storm::is_of_network($_) } @storms),
		size => max(@sizes));
	foreach my $size (@sizes)
	{
		$results->{sizes}{$size} = Bench::Scale::measure(
			$fleet, $size, \&say_line,
			storms => \@storms,
			names => $option{names});
		# So that a run that is cut short has told something.
		write_file('scale.json',
			JSON::PP->new->canonical->pretty->encode($results));
	}
	write_file('scale.md', report($results));
	return 0;
}

# What was seen as a table, a row for each thing, as Bench::Scale and Bench::Storm name it.
sub report ($results)
{
	my $sizes = $results->{sizes};
	my @columns = sort { $a <=> $b } keys %$sizes;
	my @tables = map {
		my $step = $_;
		my %seen = map { my $size = $_; %{ flat('', $sizes->{$size}{$step}) } } @columns;
		my @rows = map {
			my $what = $_;
			[ $what, map { number(flat('', $sizes->{$_}{$step})->{$what}) } @columns ]
		} sort keys %seen;
		("## $step\n", Bench::Report::markdown([ 'backends', @columns ], @rows))
	} (qw(open idle), @{ $results->{storms} }, qw(queue commit names crash through after));
	return join "\n", "# zklock in a crowd\n",
	  "Two clusters, half of the backends each, servers: $results->{servers} $results->{config}.",
	  "What the steps are is told in test/bench/README.md. Times in seconds, memory in kB.\n",
	  join('', map { "- $_->[0]: $_->[1]\n" } @{ $results->{machine} }), @tables;
}

# {a => {b => 1}} as {"a b" => 1}
sub flat ($name, $value)
{
	return { $name => $value } if !ref $value;
	return { map { %{ flat($name eq '' ? $_ : "$name $_", $value->{$_}) } } keys %$value };
}

sub number ($value)
{
	return !defined $value ? '' : $value =~ /^-?\d*\.\d/ ? sprintf('%.2f', $value) : $value;
}

run_script(\&run, \%option, 'sizes=s', 'storms=s', 'servers=i', 'names=i',
	'config=s');
