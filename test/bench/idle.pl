
# What sessions cost that do nothing: two clusters full of idle backends, an ensemble.
# See README.md in this directory.
#
# Usage: idle.pl --bin DIRECTORY --out DIRECTORY [--sizes "300 1000 2000"] [--servers 3]
#                [--baseline FILE] [--timeout 10s] [--config "key=value ..."]
# The file has the lines of a postgresql.conf by which a cluster finds another build, which
# is measured in turns with this one. With timeout this build is measured once more, with
# zklock.idle_timeout. Progress goes to standard output, the report and its data to the directory.

use v5.36;

use FindBin;
use lib "$FindBin::Bin/lib", "$FindBin::Bin/../lib";

use Bench::Script;
use Bench::Fleet;
use Bench::Idle;
use Bench::Machine;
use JSON::PP;
use List::Util qw(max);
use PostgreSQL::Test::Utils;

my %option = (
	sizes => '300 1000 2000',
	servers => 3,
	baseline => '',
	timeout => '',
	# So that opening them is no part of it.
	config => 'clientPortListenBacklog=4096');

sub run ($dir)
{
	my @sizes = split ' ', $option{sizes};
	my %settings = (
		$option{baseline} ? (before => { slurp_file($option{baseline}) =~ /^([\w.]+) = '(.*)'$/mg }) : (),
		now => {},
		$option{timeout} ? ('idle_timeout' => { 'zklock.idle_timeout' => $option{timeout} }) : ());
	my @builds = grep { $settings{$_} } qw(before now idle_timeout);
	my $results = {
		machine => [ Bench::Machine::describe($dir) ],
		servers => $option{servers},
		config => $option{config},
		timeout => $option{timeout},
		baseline => $ENV{BENCH_BASELINE},
		builds => \@builds,
		sizes => \@sizes };
	my %fleet;
	foreach my $build (@builds)
	{
		$fleet{$build} = Bench::Fleet->new(
			bin => $option{bin},
			dir => $dir,
			name => $build,
			settings => $settings{$build},
			servers => $option{servers},
			config => { map { split /=/, $_, 2 } split ' ', $option{config} },
			# Each minute the leader would remove empty locks: requests that no session has sent.
			container_check => 86_400_000,
			zookeeper => %fleet ? $fleet{ $builds[0] }->zookeeper : undef,
			size => max(@sizes));
	}
	$results->{alone} = Bench::Idle::servers_alone($fleet{now}, \&say_line);
	foreach my $size (@sizes)
	{
		foreach my $build (@builds)
		{
			$results->{seen}{$size}{$build} = Bench::Idle::measure($fleet{$build}, $size,
				sub ($text) { say_line(sprintf '%-12s %s', $build, $text); });
		}
		# So that a run that is cut short has told something.
		write_file('idle.json', JSON::PP->new->canonical->pretty->encode($results));
		write_file('idle.md', Bench::Idle::text($results));
	}
	return 0;
}

run_script(\&run, \%option, 'sizes=s', 'servers=i', 'baseline=s', 'timeout=s', 'config=s');
