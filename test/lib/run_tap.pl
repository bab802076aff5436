
# Run test programs that print TAP, several at a time, show how they do, and
# count: test/check adds up the assertions of all suites.
# Usage: run_tap.pl COUNTS JOB...
# A job is a file of shell code; it is called like its file. They begin in the order
# given. What a job prints goes to files beside it, and is shown if it fails, or
# always with VERBOSE=1. JOBS tells how many may run at a time. What a job leaves
# running in its process group is killed, and does not outlive us either.
# Into COUNTS go the lines "passed N" and "failed N", "FAILED what" for each
# failure, "REPEATED what" for each that was none the second time, "took SECONDS what" for
# each job, and what was run: "ran N what", "skipped N", "again N": how often a test says
# that it had to try again, by a comment "# again: why", and "second N": how many files of t/
# failed at first and passed then. If only a few fail, and nothing crashed, each is run once
# more when nothing else runs, and that counts: what fails alone is broken, what fails beside
# others may only be late. Either is a defect. What failed at first is told, and with
# SECOND_RUNS=0 it counts as failed though it passed then.

use v5.36;

use File::Basename qw(basename);
use List::Util qw(max);
use POSIX qw(setpgid :sys_wait_h);
use TAP::Parser;
use Time::HiRes qw(time);

my ($counts, @queue) = @ARGV;
my $at_a_time = $ENV{JOBS};
# What has said nothing for so many seconds hangs. On a busy machine there is no telling how
# long a program takes that goes on.
my $limit = $ENV{ZKLOCK_TEST_SILENCE} || 1800;
# Of a longer output the middle is left out.
my $most_lines = 1_000;
# With more TAP files than that which failed, none of them is run again.
my $most_repeated = 3;

# Servers of the tests listen on ports of this range; so that no two tests that run
# at the same time try the same, each of them has a part of it.
my ($first_port, $end_port) = (10_200, 32_200);
my @parts = (1 .. $at_a_time);

my ($passed, $failed, @failures, @took) = (0, 0);
my @late;    # that failed, to be run again
my @repeated;    # and what failed of those that did not fail then
my ($skipped, $again, $second) = (0, 0, 0);
my %ran;    # by what, in words
my %running;    # by process id

# Set by a signal, which is looked at where each job that was begun is known.
my $ended_by;

$| = 1;
$SIG{$_} = sub { $ended_by = shift } foreach qw(INT TERM HUP);

run_all();
repeat($_) foreach @late;

sub run_all
{
	while (@queue || %running)
	{
		start_job(shift @queue)
		  while !$ended_by && @queue && keys %running < $at_a_time;
		end_all($ended_by) if $ended_by;
		my $pid = waitpid(-1, WNOHANG);
		if ($pid > 0)
		{
			finish_job(delete $running{$pid}, $?) if $running{$pid};
			next;
		}
		end_what_hangs();
		Time::HiRes::sleep(0.05);
	}
	return;
}

# Run one once more that has failed, or let that count.
sub repeat ($first)
{
	return judge($first) if @late > $most_repeated;
	rename "$first->{file}.$_", "$first->{file}.first.$_" foreach qw(out err);
	# Its servers' directories and logs stay when it has failed, and must not be there when
	# they are made: a test reads the log of its own run.
	my ($directory) = contents($first->{file}) =~ /TESTDATADIR=(\S+)/;
	my $name = $first->{name} =~ s{^t/|\.pl$}{}gr;
	rename $_, "$_.first"
	  foreach $directory ? glob "'$directory'/{t_${name}_*_data,log/*${name}*}" : ();
	@queue = $first->{file};
	run_all();
	return;
}

# Pass the signal on, and go when all have gone. By SIGKILL who does not: a second
# signal of the other kind would disturb the tests as they clear up.
sub end_all ($signal)
{
	my $deadline = time + 20;
	$SIG{$_} = 'IGNORE' foreach qw(INT TERM HUP PIPE);
	kill $signal, map { -$_ } keys %running;
	while (%running)
	{
		kill 'KILL', map { -$_ } keys %running if time > $deadline;
		while ((my $pid = waitpid(-1, WNOHANG)) > 0)
		{
			kill 'KILL', -$pid if delete $running{$pid};
		}
		Time::HiRes::sleep(0.05);
	}
	exit 1;
}

sub start_job ($file)
{
	my %job = (
		file => $file,
		name => basename($file) =~ s/%/\//gr,
		part => shift @parts,
		start => time);
	my $width = int(($end_port - $first_port) / $at_a_time);
	my $from = $first_port + ($job{part} - 1) * $width;
	my $pid = fork // die "could not fork: $!";
	if ($pid == 0)
	{
		# A group of its own, to end all of it at once.
		setpgid(0, 0);
		$ENV{ZKLOCK_TEST_PORTS} = $from . '-' . ($from + $width - 1);
		open STDIN, '<', '/dev/null';
		open STDOUT, '>', "$file.out" or die "could not write $file.out: $!";
		open STDERR, '>', "$file.err" or die "could not write $file.err: $!";
		exec 'setpriv', '--pdeathsig', 'TERM', 'bash', $file;
	}
	$job{pid} = $pid;
	$running{$pid} = \%job;
	return;
}

sub end_what_hangs
{
	while (my ($pid, $job) = each %running)
	{
		if (!$job->{hung})
		{
			my $heard = max($job->{start}, map { (stat "$job->{file}.$_")[9] // 0 } qw(out err));
			next if time - $heard < $limit;
			$job->{hung} = time;
			# Once, for the second one would disturb it as it clears up.
			kill 'TERM', -$pid;
		}
		kill 'KILL', -$pid if time - $job->{hung} > 20;
	}
	return;
}

sub finish_job ($job, $status)
{
	kill 'KILL', -$job->{pid};
	push @parts, $job->{part};
	my $took = time - $job->{start};
	push @took, sprintf 'took %.1f %s', $took, $job->{name};

	# The parser does not bear an empty text.
	my $parser = TAP::Parser->new({ tap => contents("$job->{file}.out") . "\n" });
	my ($bailed_out, @notes, @bad);
	while (my $result = $parser->next)
	{
		$bailed_out ||= $result->is_bailout;
		push @notes, $result->as_string if $result->is_bailout;
		push @bad, join ' ', 'test', $result->number, $result->description || ()
		  if $result->is_test && !$result->is_ok;
	}
	$bad[0] .= first_failure("$job->{file}.err") || first_failure("$job->{file}.out") if @bad;
	# A program can fail without a failed assertion: crash, sanitizer report, wrong
	# plan, or because it hung. It counts as one.
	if ($job->{hung} || $bailed_out || $parser->parse_errors || !@bad && $status)
	{
		push @bad, ($job->{hung} ? "silent for $limit s" : "wait status $status")
		  . join ' ', '', $parser->parse_errors, last_words("$job->{file}.err");
	}

	# Skipping is allowed and never silent.
	if ($parser->skip_all)
	{
		push @notes, 'skipped: ' . $parser->skip_all;
		$skipped++;
	}
	printf "%-28s %s %7.1f s, %d passed\n", $job->{name}, @bad ? 'FAILED' : 'ok    ',
	  $took, scalar $parser->passed;
	@$job{qw(bad notes passed)} = (\@bad, \@notes, scalar $parser->passed);
	if (@bad && may_be_late($job, $status))
	{
		print "    to be run again: $_\n" foreach @bad;
		show($job->{file});
		push @late, $job;
		return;
	}
	return judge($job);
}

# Is it a TAP file, run for the first time, and did nothing crash?
sub may_be_late ($job, $status)
{
	return $job->{name} =~ m{^t/}
	  && !$job->{hung}
	  && !($status & 127)
	  && !-e "$job->{file}.first.out"
	  && contents("$job->{file}.err") !~ /TRAP:|PANIC|Sanitizer|terminated by signal|core dumped/;
}

# Let that count.
sub judge ($job)
{
	my @bad = $job->{bad}->@*;
	my @notes = ($job->{notes}->@*, count_what_ran($job));
	my ($first) = grep { $_->{file} eq $job->{file} } @late;
	if ($first && $first != $job && !@bad)
	{
		push @notes, map { "needed a second run: $_" } $first->{bad}->@*;
		push @repeated, map { "$job->{name}: $_" } $first->{bad}->@*;
		$second++;
		push @bad, "needed a second run: $first->{bad}[0]" if ($ENV{SECOND_RUNS} // '') eq '0';
	}
	$passed += $job->{passed};
	$failed += @bad;
	push @failures, map { "$job->{name}: $_" } @bad;
	print "    $_\n" foreach @notes, @bad;
	show($job->{file}) if @bad || $ENV{VERBOSE};
	return;
}

# What the first failed assertion says, on one line.
sub first_failure ($file)
{
	my ($words) = contents($file) =~ /^\s*#\s+(Failed test .*\n(?:\s*#.*\n){0,9})/m or return '';
	$words =~ s/\s*\n\s*#\s*/ | /g;
	return printable(" ($words)") =~ s/\s+\)$/)/r;
}

# What a job has run, with what is in subtests, and in them only, for what sums a subtest up
# is no assertion of its own. Returns what is to be shown: who was skipped, or tried again.
sub count_what_ran ($job)
{
	my ($depth, $assertions, @notes) = (0, 0);
	foreach my $line (split /\n/, contents("$job->{file}.out"))
	{
		$ran{$2} += $1 if $line =~ /^# ran: (\d+) (.+)/;
		if ($line =~ /^\s*# (again: .*)/)
		{
			push @notes, $1;
			$again++;
		}
		next if $line !~ /^(\s*)(?:(?:not )?ok \d+(.*)|\d+\.\.\d+)/;
		my ($indent, $text) = (length $1, $2);
		if (defined $text && $text =~ /# skip\b/i)
		{
			push @notes, $line =~ s/^\s+/in a subtest: /r;
			$skipped++;
		}
		elsif (defined $text && $indent >= $depth)
		{
			$assertions++;
		}
		$depth = $indent;
	}
	my ($kind) = $job->{name} =~ m{^(?:sanitized-|tls-)?(t/|unit/test|model|tools)} or return @notes;
	my %what = (
		't/' => [ 'TAP files', 'TAP assertions' ],
		'unit/test' => [ 'unit programs', 'unit checks' ],
		model => [ undef, 'model properties, situations and seeded bugs' ],
		tools => [ undef, 'tools' ]);
	$ran{ $what{$kind}[0] }++ if $what{$kind}[0];
	$ran{ $what{$kind}[1] } += $assertions;
	return @notes;
}

sub contents ($file)
{
	open my $in, '<', $file or die "could not read $file: $!";
	local $/;
	return readline($in) // '';
}

# What it died of, if it said so: the logs come after that, as comments, and only the
# end of a long output may be kept. Where PostgreSQL's modules have sent it to a log of
# their own, it is the end of that.
sub last_words ($file)
{
	my $said = contents($file);
	my @words = grep { /\S/ && !/^\s*#/ } split /\n/, $said;
	return printable("($words[-1])") if @words;
	my ($log) = $said =~ /^# the end of \S+regress_log_.*\n((?:#.*\n)*?)(?:# the end of|(?!#)|\z)/m
	  or return;
	foreach my $line (reverse split /\n/, $log =~ s/^# ?//gmr)
	{
		last if $line =~ /^(?:#|\[|ok |not ok )/;
		unshift @words, $line;
	}
	return @words ? printable(join ' ', '(', @words, ')') : ();
}

# Without what passed, unless it is to be seen.
sub show ($file)
{
	foreach my $part (map { "$file.$_" } qw(out err))
	{
		my @lines = split /\n/, contents($part);
		@lines = grep { !/^\s*(?:ok \d|\d+\.\.\d|# Subtest)/ } @lines
		  unless $ENV{VERBOSE};
		splice @lines, $most_lines / 2, @lines - $most_lines, "... see $part"
		  if @lines > $most_lines;
		print map { "    | $_\n" } map { printable($_) } @lines;
	}
	return;
}

# It goes to a terminal.
sub printable ($line)
{
	$line =~ s/([\x00-\x08\x0b-\x1f\x7f])/sprintf '\x%02x', ord $1/ge;
	return length $line > 4_000 ? substr($line, 0, 4_000) . '...' : $line;
}

open my $out, '>', $counts or die "could not write $counts: $!";
print $out "passed $passed\nfailed $failed\n";
s/\s+/ /g, print $out "FAILED $_\n" foreach @failures;
s/\s+/ /g, print $out "REPEATED $_\n" foreach @repeated;
print $out "$_\n" foreach @took;
print $out "ran $ran{$_} $_\n" foreach sort keys %ran;
print $out "skipped $skipped\nagain $again\nsecond $second\n";
close $out or die "could not write $counts: $!";
exit($failed ? 1 : 0);
