
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
use Bench::Plots;
use Bench::Scale;
use Bench::ScaleReport;
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
	my @plots = Bench::Plots::draw_scale($option{out}, $results);
	write_file('scale.md', Bench::ScaleReport::text($results, @plots));
	return 0;
}

run_script(\&run, \%option, 'sizes=s', 'storms=s', 'servers=i', 'names=i',
	'config=s');
