
# Two builds of zklock next to each other: has anything become slower? See
# README.md in this directory.
#
# Usage: check.pl --bin DIRECTORY --out DIRECTORY --baseline FILE [--rounds N]
# The file has the lines of a postgresql.conf by which a cluster finds the other
# build, or differs otherwise. Progress goes to standard output, the report and its data to the
# directory. Status 3 if something has become slower.

use v5.36;

use FindBin;
use lib "$FindBin::Bin/lib", "$FindBin::Bin/../lib";

use Bench::Script;
use Bench::Check;
use Bench::Machine;
use JSON::PP;
use PostgreSQL::Test::Utils;

my %option = (rounds => 0);

sub run ($dir)
{
	my $results = Bench::Check::measure(
		\&say_line,
		bin => $option{bin},
		dir => $dir,
		rounds => $option{rounds},
		baseline => { slurp_file($option{baseline}) =~ /^([\w.]+) = '(.*)'$/mg });
	$results->{machine} = [ Bench::Machine::describe($dir) ];
	$results->{baseline} = $ENV{BENCH_BASELINE};
	write_file('check.json', JSON::PP->new->canonical->encode($results));
	write_file('check.md', Bench::Check::text($results));
	return Bench::Check::slower($results) ? 3 : 0;
}

run_script(\&run, \%option, 'baseline=s', 'rounds=i');
