
# The benchmark: zklock next to the clients of ZooKeeper's lock recipe in other
# languages, to the floor that its own client library sets, and to the locks
# that PostgreSQL users have today. See README.md in this directory.
#
# Usage: bench.pl --bin DIRECTORY --out DIRECTORY [--quick] [--only "workloads"]
#                 [--variants "sync nosync ensemble"] [--rounds N]
# Progress goes to standard output, the report and its data to the directory.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib", "$FindBin::Bin/../lib";

# PostgreSQL's test modules take over standard output for their log.
my $screen;
BEGIN { open $screen, '>&', \*STDOUT or die $!; $screen->autoflush(1); }

use Bench::Machine;
use Bench::Plan;
use Bench::Plots;
use Bench::Report;
use Bench::Stage;
use Getopt::Long;
use JSON::PP;
use PostgreSQL::Test::Utils;
use Time::HiRes qw(time);

my %option = (quick => 0, only => '', variants => '', rounds => 0);
GetOptions(\%option, 'bin=s', 'out=s', 'quick', 'only=s', 'variants=s',
	'rounds=i')
  or die "see the head of $0\n";

my $start = time();

sub say_line
{
	my ($text) = @_;
	my $passed = time() - $start;
	printf $screen "[%d:%02d] %s\n", $passed / 60, $passed % 60, $text;
	return;
}

sub write_file
{
	my ($name, $text) = @_;
	open my $file, '>', "$option{out}/$name"
	  or die "could not write $option{out}/$name: $!";
	print $file $text;
	close $file or die "could not write $option{out}/$name: $!";
	return;
}

sub run
{
	my $dir = "$PostgreSQL::Test::Utils::tmp_check/bench";
	mkdir $dir or die "could not make $dir: $!";
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
	say_line('done');
	return;
}

$SIG{INT} = \&ZooKeeper::end_by_signal;
my $worked = eval { run(); 1 };
print $screen "FAILED: $@" unless $worked;
exit($worked ? 0 : 1);
