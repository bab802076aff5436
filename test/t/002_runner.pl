
# The runner of the TAP tests (test/lib/run_tap.pl) reports each failure, however a test program
# fails, counts what was skipped or tried again, and leaves no process running. The test programs
# are shell scripts made here.

use v5.36;

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use PostgreSQL::Test::Utils;
use Test::More;
use ZooKeeper qw(is_alive poll_until);

my $runner = abs_path(dirname(__FILE__) . '/../lib/run_tap.pl');
my $dir = PostgreSQL::Test::Utils::tempdir_short();

# Make a job of that name.
sub job
{
	my ($name, $code) = @_;
	append_to_file("$dir/$name", "$code\n");
	return "$dir/$name";
}

# What the environment says of files that need a second run.
my $second_runs = '';

# Run jobs; returns what the runner counts and what it prints.
sub run_jobs
{
	my @files = @_;
	local $ENV{JOBS} = 2;
	local @ENV{qw(VERBOSE SECOND_RUNS)} = ('', $second_runs);
	unlink "$dir/counts";
	my ($out, $err) = run_command([ $^X, $runner, "$dir/counts", @files ]);
	my $counts = -e "$dir/counts" ? slurp_file("$dir/counts") : "none: $err";
	return ($counts =~ s/^(?:took|ran|skipped|again|second) .*\n//mgr, $out, $counts);
}

# What a program prints, and what it counts as.
my @cases = (
	[ 'one that passes', 'echo "1..1\nok 1"', 1, 0 ],
	[ 'one that skips all', 'echo "1..0 # SKIP no time"', 0, 0 ],
	[ 'one to be done later', 'echo "1..1\nnot ok 1 # TODO"', 1, 0 ],
	[ 'an assertion without an end of line', 'printf "1..1\nnot ok 1"', 0, 1 ],
	[ 'a program that prints nothing', 'exit 0', 0, 1 ],
	[ 'a program that is not there', 'exec /no/such/program', 0, 1 ],
	[ 'a program that is killed', 'echo "1..1\nok 1"; kill -SEGV $$', 1, 1 ],
	[ 'an exit status', 'echo "1..1\nok 1"; exit 3', 1, 1 ],
	[ 'too few assertions', 'echo "1..3\nok 1"', 1, 1 ],
	[ 'too few, and a failed one', 'echo "1..3\nok 1\nnot ok 2"; exit 1', 1, 2 ],
	[ 'no plan', 'echo "ok 1"', 1, 1 ],
	[ 'who bails out', 'echo "1..1\nok 1\nBail out! no"', 1, 1 ]);
foreach my $i (0 .. $#cases)
{
	my ($what, $code, $passed, $failed) = @{ $cases[$i] };
	$code =~ s/echo "/printf "%b\\n" "/;
	my ($counts) = run_jobs(job("case_$i", $code));
	like($counts, qr/\Apassed $passed\nfailed $failed\n(FAILED .*\n){$failed}\z/, $what);
}

# However long it takes, what goes on does not hang.
{
	local $ENV{ZKLOCK_TEST_SILENCE} = 5;
	my ($counts) = run_jobs(job('silent', 'sleep 600'),
		job('slow', 'while [ $SECONDS -lt 7 ]; do echo "# goes on"; sleep 0.1; done; echo "1..1"; echo "ok 1"'));
	like($counts, qr/\Apassed 1\nfailed 1\nFAILED silent: silent for 5 s .*\n\z/, 'a job that prints nothing for 5 s counts as hanging');
}

# What was run is counted through subtests; what was skipped, or tried again, is shown.
my ($counts, $out, $all) = run_jobs(job('t%subtests', <<'SH'));
cat <<'TAP'
# Subtest: two
    ok 1 - one
    ok 2 # skip no time
    # again: the server was slow
    1..2
ok 1 - two
ok 2 - three
1..2
TAP
SH
like($all, qr/^ran 2 TAP assertions\nran 1 TAP files\nskipped 1\nagain 1\nsecond 0\n/m,
	'assertions, skips and second tries of subtests are counted');
like($out, qr/^ +in a subtest: ok 2 # skip no time\n +again: the server was slow$/m, 'what was skipped or tried again is shown');

# Files of t/ that fail are run again when nothing else runs, unless they are many, or
# something crashed. The number of times that each was run is in a file.
sub failing ($name, $words, $until)
{
	system 'rm', '-rf', glob "$dir/t_${name}_* $dir/log";
	return job("t%$name", <<"SH");
TESTDATADIR=$dir
echo >>$dir/$name.runs
mkdir -p $dir/log; mkdir $dir/t_${name}_berlin_data $dir/log/${name}_berlin.log || { echo 'Bail out!  the server of the first time is there'; exit 1; }
test \$(wc -l <$dir/$name.runs) -lt $until || { printf '1..1\nok 1\n'; exit; }
printf '#   Failed test "it"\n#   at line 7.\n%s\n# Looks bad\n' '$words' >&2
printf '1..1\nnot ok 1\n'
exit 1
SH
}
sub runs { return scalar(() = slurp_file("$dir/$_[0].runs") =~ /\n/g); }

my $told = qr/t\/\w+: test 1 \(Failed test "it" \| at line 7\. \| got: 3 \| Looks bad\)/;
($counts, $out, $all) = run_jobs(failing('late', '#  got: 3', 2), failing('broken', '#  got: 3', 9));
like($counts, qr/\Apassed 1\nfailed 1\nFAILED $told\nREPEATED $told\n\z/, 'what fails alone, too, counts');
like($all, qr/^again 0\nsecond 1$/m, 'what passes alone is counted as a file that needed a second run');
like($out, qr/needed a second run: test 1 \(Failed/, 'the failure of the first run is told');
is(runs($_), 2, "$_ was run twice") foreach qw(late broken);
$second_runs = 0;
($counts, $out, $all) = run_jobs(failing('counted', '#  got: 3', 2));
like($counts, qr/\Apassed 1\nfailed 1\nFAILED t\/counted: needed a second run: test 1 \(.*\nREPEATED $told\n\z/, 'with SECOND_RUNS=0 a file that needed a second run has failed');
like($all, qr/^second 1$/m, 'it is counted as a file that needed a second run');
is(runs('counted'), 2, 'it was run a second time all the same');
$second_runs = '';
($counts) = run_jobs(failing('crash', 'TRAP: failed Assert', 2));
like($counts, qr/\Apassed 0\nfailed 1\n/, 'what crashed counts at once');
($counts) = run_jobs(map { failing("many$_", '# x', 2) } 1 .. 4);
like($counts, qr/\Apassed 0\nfailed 4\n/, 'many that fail, too');
is(runs($_), 1, "$_ was run once") foreach qw(crash many1 many4);

# What is shown can be read.
($counts, $out) = run_jobs(job('much',
	'echo 1..1; seq -f "# %.0f" 30000; printf "\033[2J\n"; echo not ok 1; exit 1'));
like($out, qr/# 1\n.*\.\.\. see \Q$dir\E\/much\.out\n.*# 30000\n.*not ok 1/s,
	'the middle of a long output is left out');
cmp_ok(scalar(my @lines = split /\n/, $out), '<', 1_010, 'the output of many failures is short');
unlike($out, qr/\033/, 'the output has no control characters');

run_jobs(job('parent', "sleep 600 & echo \$! >$dir/child; printf '1..1\\nok 1\\n'"));
chomp(my $child = slurp_file("$dir/child"));
poll_until { !is_alive($child) } 'the child to end';
pass('a child does not outlive its job');

# Ended by a signal it waits for the jobs, which have things to take down.  The job
# waits in the foreground: a child that bash has just forked may take a signal for the
# trap's and sleep on, and "wait" with it.
my $waits = job('waits', "trap 'sleep 1; echo >$dir/down; exit 1' TERM
	echo >$dir/up; while :; do sleep 0.1; done");
my $pid = fork // die $!;
if ($pid == 0)
{
	$ENV{JOBS} = 1;
	exec $^X, $runner, "$dir/counts", $waits;
}
poll_until { -e "$dir/up" } 'the job to run';
kill 'TERM', $pid;
waitpid $pid, 0;
ok(-e "$dir/down", 'a signal goes to the jobs, and is waited for');

done_testing();
