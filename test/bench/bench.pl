
# The benchmark: zklock next to the clients of ZooKeeper's lock recipe in other
# languages, to the floor that its own client library sets, and to the locks
# that PostgreSQL users have today. See README.md in this directory.
#
# Usage: bench.pl --bin DIRECTORY --out DIRECTORY [--quick] [--only "workloads"]
#                 [--variants "sync nosync ensemble"] [--rounds N]
# Progress goes to standard output, the report and its data to the directory.

use v5.36;

use FindBin;
use lib "$FindBin::Bin/lib", "$FindBin::Bin/../lib";

use Bench::Script;
use Bench::Machine;
use Bench::Plan;
use Bench::Plots;
use Bench::Report;
use Bench::Stage;
use JSON::PP;

my %option = (quick => 0, only => '', variants => '', rounds => 0);

sub run ($dir)
{
	my $plan = Bench::Plan->new(%option);
	my $results = {
		machine => [ Bench::Machine::describe($dir) ],
		plan => $plan->words,
		variants => {} };
	my $stage = Bench::Stage->new;
	foreach my $variant ($plan->variants)
	{
		say_line("ZooKeeper: $Bench::Stage::variant_title{$variant}");
		$stage->set($variant);
		$results->{variants}{$variant} =
		  $plan->run($variant, $stage, \&say_line,
			bin => $option{bin}, dir => $dir, rounds => $option{rounds});
	}
	write_file('results.json', JSON::PP->new->canonical->encode($results));
	my @plots = Bench::Plots::draw($option{out}, $results);
	write_file('report.md', Bench::Report::text($results, @plots));
	return 0;
}

run_script(\&run, \%option, 'quick', 'only=s', 'variants=s', 'rounds=i');
