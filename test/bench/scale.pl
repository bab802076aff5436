
# How zklock bears a crowd: two clusters full of backends, an ensemble, and what
# may happen to them. See README.md in this directory.
#
# Usage: scale.pl --bin DIRECTORY --out DIRECTORY [--sizes "250 500 1000 2000"]
#                 [--storms "restart leader cut"] [--servers 3]
#                 [--names 50] [--config "key=value ..."]
# Progress goes to standard output, the report and its data to the directory.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib", "$FindBin::Bin/../lib";

# PostgreSQL's test modules take over standard output for their log.
my $screen;
BEGIN { open $screen, '>&', \*STDOUT or die $!; $screen->autoflush(1); }

use Bench::Fleet;
use Bench::Machine;
use Bench::Plots;
use Bench::Scale;
use Bench::ScaleReport;
use Bench::Storm;
use Getopt::Long;
use JSON::PP;
use List::Util qw(max);
use PostgreSQL::Test::Utils;
use Time::HiRes qw(time);

my %option = (
	sizes => '250 500 1000 2000',
	storms => 'restart leader cut',
	servers => 3,
	names => 50,
	config => '');
GetOptions(\%option, 'bin=s', 'out=s', 'sizes=s', 'storms=s', 'servers=i',
	'names=i', 'config=s')
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
	my @sizes = split ' ', $option{sizes};
	my @storms = split ' ', $option{storms};
	my $results = {
		machine => [ Bench::Machine::describe($dir) ],
		servers => $option{servers},
		config => $option{config},
		storms => \@storms,
		sizes => {} };
	my $fleet = Bench::Fleet->new(
		bin => $option{bin},
		dir => $dir,
		servers => $option{servers},
		config => { map { split /=/, $_, 2 } split ' ', $option{config} },
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
	say_line('done');
	return;
}

$SIG{INT} = \&ZooKeeper::end_by_signal;
my $worked = eval { run(); 1 };
print $screen "FAILED: $@" unless $worked;
exit($worked ? 0 : 1);
