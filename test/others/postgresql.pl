
# PostgreSQL's own tests of advisory locks, with the drop-in of docs/migrating/advisory.sql in
# their place: the SQL and the isolation specs of its sources that take one. What they print
# otherwise than PostgreSQL does stands in postgresql.differences, and no more.
#
#   perl postgresql.pl SOURCES
#
# "make check SUITE=others PG_SOURCE=..." runs it.

use DropIn;
use PostgreSQL::Test::Utils;
use ZkLockTest;

my ($source) = @ARGV;
my $output = $PostgreSQL::Test::Utils::tmp_check;
my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', DropIn::settings());
$node->start;

# The text of each section of the file, by the name of its test.
my %expected = map { split /\n/, $_, 2 } grep { /\S/ } split /^== /m, slurp_file("$DropIn::here/postgresql.differences") =~ s/^#.*\n//mgr;

# Lines of the result that are not expected, and the other way round, without their numbers.
# Of several expected outputs that which differs least counts.
sub differences ($result, @expected)
{
	my @all = map {
		join '', map { "$_\n" } grep { /^[-+](?!--|\+\+)/ } split /\n/, (run_command([ 'diff', '-U0', $_, $result ]))[0]
	} @expected;
	my ($least) = sort { length $a <=> length $b } @all;
	return $least;
}

my %ran;
# PostgreSQL 15 has two and twelve. So many are there in each release.
foreach my $suite ([ 'regress', 'sql', 'sql', 2 ], [ 'isolation', 'specs', 'spec', 12 ])
{
	my ($name, $folder, $suffix, $least) = @$suite;
	my $directory = "$source/src/test/$name";
	my @tests = map { m{([^/]*)\.$suffix$} } sort grep { slurp_file($_) =~ /advisory_/ } glob "$directory/$folder/*.$suffix";
	cmp_ok(scalar @tests, '>=', $least, "$name: there are tests");
	$node->safe_psql('postgres', "CREATE DATABASE $name");
	DropIn::install($node, $name);
	my $program = $ENV{PG_REGRESS};
	$program =~ s{regress/pg_regress$}{isolation/pg_isolation_regress} if $name eq 'isolation';
	mkdir "$output/$name";
	# It says that they differ, and how much is for us to judge.
	run_command([ $program, '--use-existing', "--dbname=$name", '--host=' . $node->host, '--port=' . $node->port,
			'--bindir=' . $node->config_data('--bindir'), "--inputdir=$directory", "--outputdir=$output/$name",
			(pg_major($node) > 15 ? "--expecteddir=$directory" : ()), @tests ]);
	foreach my $test (@tests)
	{
		my $result = "$output/$name/results/$test.out";
		ok(-e $result, "$name/$test ran") or next;
		is(differences($result, grep { m{/\Q$test\E(?:_\d)?\.out$} } glob "$directory/expected/$test*.out"),
			$expected{"$name/$test"} // '', "$name/$test has the output that is expected");
		$ran{"$name/$test"} = 1;
	}
}
is(join(' ', grep { !$ran{$_} } sort keys %expected), '', 'all differences are of tests that ran');

$node->stop;
done_testing();
