#!/usr/bin/perl

# test/mutation/live.pl: do the tests of the whole extension notice a change of a module?
# The suite "mutation" of test/check calls it, see test/lib/mutation.sh.
# Usage: live.pl TREE REACHED DIRECTORY JOBS WORKERS PREFIX...
#
# REACHED is what the last "make coverage" has written, see test/coverage/reach. Each worker
# has in DIRECTORY/N what was built and installed, and in JOBS files N%TEST that run one test
# each with that installation, as run_tap.pl's do; PREFIX is how they are run. A mutant is made
# of one change (see Mutants.pm). First the unit tests that need no server look at it, if there
# are any of its module (see UnitTests.pm): that takes a second or two. If it lives it is
# compiled and installed, library and programs, and the tests that REACHED names for its
# function and its file are run, the most telling ones first, a few at a time, until one fails.
#
# In the environment: MODULES, or all that test/mutation/run does not have; COUNT of each
# of them (20), chosen by SEED; MINUTES, after which no new one is begun; FUNCTION, only
# this one; PATTERN, only those whose key matches it.
#
# The output ends with a table: of each module how many mutants there are, how many of them
# were judged, killed, and living, and what percentage was killed; and those that live, by
# name. The exit status is 1 if that is less than LEAST (95) of any module, or if the list of
# those that may live names one that there is not.
#
# A line that no test of the last coverage has reached, and a mutant that is listed with its
# reason in test/mutation/equivalent, is left out. So are changes that no test can see: of a
# number above 15 by one, as most are times and sizes; of pfree() and the like, without
# which memory goes later; of assertions.

use v5.36;

use Digest::SHA qw(sha256_hex);
use File::Basename qw(dirname basename);
use List::Util qw(max shuffle);
use POSIX qw(setpgid :sys_wait_h);
use Time::HiRes qw(time);

use lib dirname(__FILE__);
use Mutants qw(mutants_of read_list judge_in_parallel slurp write_file source_in pure_modules
  read_reached load);
use UnitTests;

my ($top, $reached_file, $directory, $jobs, $workers, @prefix) = @ARGV;
# How many tests of a worker run at a time.
my $at_a_time = 3;
# A test hangs that takes so many times its seconds, and so many besides; the longer, the
# busier the machine is.
my ($times, $more) = (4, 60);

my @pure = pure_modules($top);
my $reached = read_reached($reached_file);
my $expected = read_list("$top/test/mutation/equivalent");
my $seed = $ENV{SEED} || int rand 1_000_000;
my $end = $ENV{MINUTES} ? time + 60 * $ENV{MINUTES} : undef;
my $count = $ENV{COUNT} || 20;
my $least = $ENV{LEAST} || 95;
my @stale;    # listed, and there is no such mutant
my %kid;      # in a worker, the tests that run, by process id
my %nmade;    # by module, how many mutants it has

my @known = grep { my $name = $_; !grep { $_ eq $name } @pure } map { basename($_, '.c') } glob "'$top'/src/*/*.c";
my @modules = split ' ', (delete $ENV{MODULES}) || "@known";
foreach my $module (@modules)
{
	die "no such module: $module (there are: @known)\n" if !grep { $_ eq $module } @known;
	die "$reached_file does not know $module: run \"make coverage\" again\n" if !what_reached($module);
}

srand $seed;
$| = 1;
print "SEED=$seed COUNT=$count: as many mutants of each of ", scalar @modules, " modules; ",
  "\"make coverage\" has told of ", scalar keys %{ $reached->{tests} }, " tests what they reach\n";
my $unit_tests = UnitTests->new($top, "$directory/unit", @prefix);
my %has_unit_tests = map { $_ => 1 } grep { my @tests = $unit_tests->tests_of($_) } @modules;
my @mutants = map { sample($_) } @modules;
# So that what MINUTES leaves out is not always of the last ones.
@mutants = shuffle(@mutants) if $end;
$unit_tests->prepare($_) foreach sort keys %has_unit_tests;
my ($lost, @found) = judge_in_parallel($directory, $workers, scalar @mutants, \&judge_one);
exit summary();

# What is known of the source of a module.
sub what_reached ($module)
{
	return $reached->{files}{ substr source_in($top, $module), length "$top/" };
}

sub sample ($module)
{
	my $text = slurp(source_in($top, $module));
	my %left_out = left_out($module, $text);
	my @made = mutants_of($module, $text);
	my %is_made = map { $_->{key} => 1 } @made;
	push @stale, grep { $expected->{$_}{module} eq $module && !$is_made{$_} } sort keys %$expected;
	my @all = grep {
		     !$expected->{ $_->{key} }
		  && !$left_out{ $_->{line} }
		  && $_->{what} !~ /^(?:1[6-9]|[2-9]\d|\d{3,}) ->/
		  && !($_->{what} eq 'dropped' && $_->{key} =~ /\] (?:pfree|free|list_free\w*|MemoryContext\w+|Assert)\(/)
		  && $_->{key} !~ /\] [Aa]ssert\(/
		  && (!$ENV{FUNCTION} || $_->{function} eq $ENV{FUNCTION})
		  && (!$ENV{PATTERN} || $_->{key} =~ /$ENV{PATTERN}/)
	} @made;
	$nmade{$module} = @all;
	my @chosen = shuffle(@all);
	splice @chosen, $count if @chosen > $count;
	# Of those that are listed unit tests say in a moment whether they live.
	my @listed = grep { $has_unit_tests{$module} && $expected->{ $_->{key} } } @made;
	return (@chosen, map { { %$_, is_listed => 1 } } @listed);
}

# Lines that no test has reached.
sub left_out ($module, $text)
{
	my $of_file = what_reached($module);
	return map { $_ => 1 } @{ $of_file->{unreached} } if $of_file->{digest} eq sha256_hex($text);
	print "$module.c has changed since \"make coverage\": which lines no test reaches is not known\n";
	return;
}

# ---------------------------------------------------------------------
# A worker
# ---------------------------------------------------------------------

sub judge_one ($worker, $i)
{
	$SIG{$_} = sub { end_tests($worker); POSIX::_exit(1) } foreach qw(HUP INT TERM);
	return if $end && time > $end;
	my ($mutant, $start) = ($mutants[$i], time);
	my ($verdict, $why) = $mutant->{is_listed} ? judge_listed($worker, $mutant) : judge($worker, $mutant);
	printf "%-7s %s.c:%d: %s%s\n", $verdict, @$mutant{qw(module line key)}, $why ? " ($why)" : '';
	return ($verdict, sprintf '%.0f', time - $start);
}

sub judge_listed ($worker, $mutant)
{
	my ($verdict, $killer) = $unit_tests->judge("$directory/$worker", $mutant);
	return $verdict eq 'killed' ? ('stale', $killer) : 'listed';
}

# Killed, living, invalid as it does not compile, or the same; and by whom. Unclear, if one
# that fails without the change would have had to say more.
sub judge ($worker, $mutant)
{
	my $build = "$directory/$worker/build";
	my $source = source_in($top, $mutant->{module});
	if ($has_unit_tests{ $mutant->{module} })
	{
		my ($verdict, $killer) = $unit_tests->judge("$directory/$worker", $mutant);
		return ($verdict, $killer // '') if $verdict ne 'living';
	}
	my $name = "$build/" . substr($source, length("$top/")) =~ s/\.c$//r;
	my $original = "$directory/$worker/original.o";
	system('cp', '-p', "$name.o", $original) == 0 or die "could not copy $name.o\n";
	write_file("$name.c", $mutant->{text});
	my $verdict = make($worker) ? 'made' : 'invalid';
	$verdict = 'same' if $verdict eq 'made' && code($original) eq code("$name.o");
	my $why = '';
	my $is_unclear = 0;
	my @tests = tests_of($mutant);
	while ($verdict eq 'made')
	{
		my $killer;
		($killer, $why) = run_tests($worker, @tests);
		$verdict = $is_unclear ? 'unclear' : 'living';
		$verdict = 'killed' if defined $killer;
		last if !defined $killer || !is_busy();
		# On a busy machine a test may fail by itself.
		system('cp', $original, "$name.o") == 0 && make($worker) or die "could not put $name back\n";
		last if !defined((run_tests($worker, $killer))[0]);
		print "        $killer says nothing now: it fails without the change, too ($why)\n";
		$is_unclear = 1;
		@tests = grep { $_ ne $killer } @tests;
		$verdict = 'made';
		system('touch', "$name.c") == 0 && make($worker) or die "could not make $name again\n";
	}
	system('cp', '-p', $source, "$name.c") == 0 && system('cp', $original, "$name.o") == 0
	  or die "could not put $name back\n";
	return ($verdict, $why);
}

sub is_busy { return load() > 4 * $workers; }

# Its machine code, whatever the lines are.
sub code ($object)
{
	system('objcopy', '-g', $object, "$object.code") == 0 or die "objcopy failed\n";
	my $code = slurp("$object.code");
	unlink "$object.code";
	return $code;
}

sub make ($worker)
{
	my $build = "$directory/$worker/build";
	my $libdir = slurp("$directory/$worker/libdir") =~ s/\s+$//r;
	unlink "$build/zklock.so", "$build/src/zklock-session", "$build/src/zklock-session-tls";
	system("make -s --no-print-directory -C '$build' PG_CONFIG='$ENV{PG_CONFIG}' with_llvm=no COPT=-w all >'$directory/$worker/make.log' 2>&1") == 0
	  or return 0;
	# Not into the file that a process may still have.
	system('install', '-m', '755', "$build/zklock.so", "$libdir/zklock.so") == 0
	  && system('install', '-m', '755', "$build/src/zklock-session", "$libdir/zklock-session") == 0
	  && system('install', '-m', '755', "$build/src/zklock-session-tls", "$libdir/zklock-session-tls") == 0
	  or die "could not install\n";
	return 1;
}

# Those of its function, and then the others of its file, of which some say more of the
# function, and take longer. Those that build zklock themselves would not have the mutant.
sub tests_of ($mutant)
{
	my $of_file = what_reached($mutant->{module});
	my %has;
	return grep { !$has{$_}++ && -e job_file(1, $_) }
	  (@{ $of_file->{functions}{ $mutant->{function} } // [] }, @{ $of_file->{tests} });
}

sub job_file ($worker, $test)
{
	return "$jobs/$worker%" . ($test =~ s{/}{%}gr);
}

# In order, a few at a time, until one fails; returns that, and how.
sub run_tests ($worker, @tests)
{
	my ($killer, $why);
	while (!defined $killer && (@tests || %kid))
	{
		start_test($worker, shift @tests) while @tests && keys %kid < $at_a_time;
		Time::HiRes::sleep(0.1);
		foreach my $pid (keys %kid)
		{
			my $test = $kid{$pid};
			my $done = waitpid($pid, WNOHANG) > 0;
			my $status = $?;
			my ($bad) = slurp("$test->{file}.out") =~ /^\s*not ok \d+ ?-? ?((?!.*# TODO).*)/m;
			my $patience = ($times * $reached->{tests}{ $test->{name} } + $more) * max(1, load() / (4 * $workers));
			my $hangs = time > $test->{start} + $patience;
			if ($done)
			{
				kill 'KILL', -$pid;
				delete $kid{$pid};
				stop_leftovers($worker) if !%kid;
			}
			next unless defined $bad || $hangs || $done && $status;
			$killer = $test->{name};
			$why = "$killer: " . ($bad // ($done ? 'it died' : 'it hangs'));
			last;
		}
	}
	end_tests($worker);
	return ($killer, $why);
}

sub start_test ($worker, $name)
{
	my $file = job_file($worker, $name);
	# A part of the ports for each that runs at the same time.
	my %used = map { $_->{part} => 1 } values %kid;
	my ($part) = grep { !$used{$_} } 0 .. $at_a_time - 1;
	renew_root("$directory/$worker/" . basename($name) . '/temp.conf');
	my $from = 10_200 + (($worker - 1) * $at_a_time + $part) * 600;
	my $pid = fork // die "could not fork: $!";
	if (!$pid)
	{
		setpgid(0, 0);
		$ENV{ZKLOCK_TEST_PORTS} = $from . '-' . ($from + 599);
		open STDIN, '<', '/dev/null';
		open STDOUT, '>', "$file.out" or POSIX::_exit(1);
		open STDERR, '>', "$file.err" or POSIX::_exit(1);
		exec 'setpriv', '--pdeathsig', 'TERM', @prefix, 'bash', $file or POSIX::_exit(1);
	}
	setpgid($pid, $pid);
	write_file("$file.out", '') unless -e "$file.out";
	$kid{$pid} = { name => $name, file => $file, start => time, part => $part };
	return;
}

# All share one ZooKeeper, where a test that was ended has left its holds: the next one
# has another root.
sub renew_root ($file)
{
	return if !-e $file;
	my $text = slurp($file);
	$text =~ s{^(zklock\.root = '[^'+]*)\+?(\d*)'}{"$1+" . (($2 || 0) + 1) . "'"}em;
	write_file($file, $text);
	return;
}

# They get some time to take their servers down.
sub end_tests ($worker)
{
	my $deadline = time + 20;
	kill 'TERM', map { -$_ } keys %kid;
	while (%kid)
	{
		kill 'KILL', map { -$_ } keys %kid if time > $deadline;
		foreach my $pid (keys %kid)
		{
			next if waitpid($pid, WNOHANG) == 0;
			kill 'KILL', -$pid;
			delete $kid{$pid};
		}
		Time::HiRes::sleep(0.05);
	}
	stop_leftovers($worker);
	return;
}

# A server of a test that has not stopped it; its command line names the worker's directory.
sub stop_leftovers ($worker)
{
	foreach my $file (split /\n/, `find '$directory/$worker' '(' -name postmaster.pid -o -name zookeeper.pid ')' 2>/dev/null`)
	{
		open my $in, '<', $file or next;
		my ($pid) = (readline($in) // '') =~ /^(\d+)/ or next;
		open my $line, '<', "/proc/$pid/cmdline" or next;
		next unless (readline($line) // '') =~ m{\Q$directory/$worker/\E};
		kill $file =~ /postmaster/ ? 'QUIT' : 'KILL', $pid;
		for (1 .. 100)
		{
			last unless kill 0, $pid;
			Time::HiRes::sleep(0.1);
		}
		kill 'KILL', $pid;
	}
	system("rm -rf '$directory/$worker'/tap/tmp_check '$directory/$worker'/tap/*/");
	return;
}

# ---------------------------------------------------------------------
# What came of it
# ---------------------------------------------------------------------

sub summary
{
	my (%row, @living);
	my %sum = (killed => 0, living => 0, same => 0, invalid => 0, unclear => 0);
	my $seconds = 0;
	foreach my $i (grep { $found[$_] } 0 .. $#found)
	{
		my ($verdict, $took) = @{ $found[$i] };
		$row{ $mutants[$i]{module} }{$verdict}++;
		$sum{$verdict}++;
		push @living, $mutants[$i] if $verdict eq 'living';
		push @stale, "$mutants[$i]{key} (killed)" if $verdict eq 'stale';
		$seconds += $took;
	}
	my $n = $sum{killed} + $sum{living};
	my @weak;
	printf "\n%-20s %8s %8s %8s %8s %8s\n", qw(module mutants judged killed living percent);
	foreach my $module (@modules)
	{
		my ($killed, $living) = map { $_ // 0 } @{ $row{$module} }{qw(killed living)};
		my $judged = $killed + $living;
		my $percent = $judged ? sprintf '%.1f', 100 * $killed / $judged : '-';
		printf "%-20s %8d %8d %8d %8d %8s\n", $module, $nmade{$module}, $judged, $killed, $living, $percent;
		push @weak, $module if $judged && 100 * $killed < $least * $judged;
	}
	print "living, and not listed: $_->{module}.c:$_->{line}: $_->{key}\n" foreach @living;
	printf "%d of %d mutants killed, %d%%; %d more were the same as the module or none, %d unclear as tests failed anyway; "
	  . "%.1f a minute\n",
	  $sum{killed}, $n, $n ? 100 * $sum{killed} / $n : 0, $sum{same} + $sum{invalid}, $sum{unclear},
	  $seconds ? 60 * $workers * $n / $seconds : 0;
	write_file("$directory/counts", "killed $sum{killed}\nliving $sum{living}\n");
	print "listed, but not made or killed: $_\n" foreach @stale;
	print "below $least%: @weak\n" if @weak;
	print "a worker has died\n" if $lost;
	return $lost || @weak || @stale ? 1 : 0;
}
