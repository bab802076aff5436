
# Two builds of zklock next to each other: has anything become slower? See
# README.md in this directory.
#
# Usage: check.pl --bin DIRECTORY --out DIRECTORY --baseline FILE [--rounds N]
# The file has the lines of a postgresql.conf by which a cluster finds the other
# build. Progress goes to standard output, the report and its data to the
# directory. Status 3 if something has become slower.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib", "$FindBin::Bin/../lib";

# PostgreSQL's test modules take over standard output for their log.
my $screen;
BEGIN { open $screen, '>&', \*STDOUT or die $!; $screen->autoflush(1); }

use Bench::Check;
use Bench::Machine;
use Getopt::Long;
use JSON::PP;
use PostgreSQL::Test::Utils;
use Time::HiRes qw(time);

my %option = (rounds => 0);
GetOptions(\%option, 'bin=s', 'out=s', 'baseline=s', 'rounds=i')
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

sub settings
{
	my ($file) = @_;
	my %value = slurp_file($file) =~ /^(\w+) = '(.*)'$/mg;
	return %value;
}

sub run
{
	my $dir = "$PostgreSQL::Test::Utils::tmp_check/bench";
	mkdir $dir or die "could not make $dir: $!";
	my $results = Bench::Check::measure(
		\&say_line,
		bin => $option{bin},
		dir => $dir,
		rounds => $option{rounds},
		baseline => { settings($option{baseline}) });
	$results->{machine} = [ Bench::Machine::describe($dir) ];
	$results->{baseline} = $ENV{BENCH_BASELINE};
	write_file('check.json', JSON::PP->new->canonical->encode($results));
	write_file('check.md', Bench::Check::text($results));
	say_line('done');
	return Bench::Check::slower($results) ? 3 : 0;
}

$SIG{INT} = \&ZooKeeper::end_by_signal;
my $status = eval { run() };
print $screen "FAILED: $@" unless defined $status;
exit($status // 1);
