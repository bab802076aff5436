
# What a warm lock costs: instructions, system calls and processor time, next to PostgreSQL's
# advisory lock, and beside another statement. See README.md in this directory.
#
# Usage: cost.pl --bin DIRECTORY --out DIRECTORY [--baseline FILE]
# The file has the lines of a postgresql.conf by which a cluster finds another build, which is
# counted, too. Progress goes to standard output, the report and its data to the directory.

use v5.36;

use FindBin;
use lib "$FindBin::Bin/lib", "$FindBin::Bin/../lib";

use Bench::Script;
use Bench::Machine;
use JSON::PP;
use PostgreSQL::Test::Utils;
use ZkLockTest;
use ZooKeeper;

my %option = (baseline => '');

# How often each is done in the shorter and in the longer run: the difference is what is counted,
# so that the start and the first lock are no part of it.
my @times = (200, 1200);

# [ title, statements ahead, statement or statements, in a DO block? ]
my $ours = q{SELECT zk_lock('warm'); SELECT zk_unlock('warm')};
my $theirs = 'SELECT pg_advisory_lock(1); SELECT pg_advisory_unlock(1)';
my $held = q{SELECT zk_lock('other')};
my @workloads = (
	[ 'zk_lock and zk_unlock', '', $ours, 0 ],
	[ 'pg_advisory_lock and _unlock', '', $theirs, 0 ],
	[ 'zk_lock and zk_unlock, in a DO block', '', $ours, 1 ],
	[ 'pg_advisory_lock and _unlock, in a DO block', '', $theirs, 1 ],
	[ 'a kept lock, in a DO block', q{SET zklock.keep = '1min'}, $ours, 1 ],
	[ 'SELECT 1, nothing held', '', 'SELECT 1', 0 ],
	[ 'SELECT 1, a lock held', $held, 'SELECT 1', 0 ]);

# The input of a server in single-user mode: a line is a statement.
sub input ($workload, $times)
{
	my (undef, $first, $what, $is_block) = @$workload;
	my @lines = (q{SELECT zk_lock('warm')}, 'SELECT pg_sleep(1.5)', q{SELECT zk_unlock('warm')}, $first || ());
	my @statements = split /; */, $what;
	push @lines, $is_block ?
	  "DO \$\$ BEGIN FOR i IN 1 .. $times LOOP " . join('', map { s/^SELECT/PERFORM/r . '; ' } @statements) . 'END LOOP; END $$'
	  : (@statements) x $times;
	return join '', map { "$_;\n" } @lines;
}

# Run such a server by that command on that cluster.
sub run_server ($node, $command, $input)
{
	my $file = "$PostgreSQL::Test::Utils::tmp_check/cost.sql";
	open my $out, '>', $file or die "could not write $file: $!";
	print $out $input;
	close $out;
	chomp(my $bin = `pg_config --bindir`);
	system("cd / && $command $bin/postgres --single -D @{[ $node->data_dir ]} postgres <$file >$file.out 2>&1") == 0
	  or die "could not run $command, see $file.out";
	return;
}

# Instructions of the backend in user mode.
sub instructions ($node, $input)
{
	my $file = "$PostgreSQL::Test::Utils::tmp_check/cost.callgrind";
	unlink $file;
	run_server($node, "valgrind --tool=callgrind --callgrind-out-file=$file", $input);
	my ($count) = slurp_file($file) =~ /^(?:summary|totals): (\d+)/m or die "there is no count in $file";
	return $count;
}

# System calls of the backend, and of the session's program.
sub system_calls ($node, $input)
{
	my $prefix = "$PostgreSQL::Test::Utils::tmp_check/cost.strace";
	unlink glob "$prefix.*";
	run_server($node, "strace -ff -o $prefix", $input);
	my @counts = (0, 0);
	foreach my $file (glob "$prefix.*")
	{
		my $text = slurp_file($file);
		my $is_program = $text =~ /^execve\("[^"]*zklock-session/m && $text !~ /^execve\("[^"]*postgres"/m;
		$counts[$is_program] += () = $text =~ /^\w+\(/mg;
	}
	return @counts;
}

# Seconds of both processes, in user mode and in the kernel.
sub processor_time ($node, $input)
{
	my @before = times;
	run_server($node, '', $input);
	my @after = times;
	return $after[2] + $after[3] - $before[2] - $before[3];
}

sub measure ($node, $workload)
{
	my (@seen, %cost);
	foreach my $times (@times)
	{
		my $input = input($workload, $times);
		push @seen, [ instructions($node, $input), system_calls($node, $input) ];
	}
	my $more = $times[1] - $times[0];
	@cost{qw(instructions calls program_calls)} = map { ($seen[1][$_] - $seen[0][$_]) / $more } 0 .. 2;
	my @seconds = map { processor_time($node, input($workload, $_)) } 0, 20 * $times[1];
	$cost{us} = ($seconds[1] - $seconds[0]) / (20 * $times[1]) * 1e6;
	return \%cost;
}

sub text ($results)
{
	my $text = "# Cost of a warm lock\n\nOf each pair of calls, or statement: instructions of the backend in user mode, system calls of the"
	  . " backend and of the session's program, and microseconds of processor time of both.\n\n"
	  . "| | build | instructions | calls | of the program | µs |\n|---|---|---:|---:|---:|---:|\n";
	foreach my $workload (@workloads)
	{
		foreach my $build (@{ $results->{builds} })
		{
			my $cost = $results->{cost}{ $workload->[0] }{$build};
			$text .= sprintf "| %s | %s | %d | %.1f | %.1f | %.1f |\n", $workload->[0], $build,
			  @{$cost}{qw(instructions calls program_calls us)};
		}
	}
	return $text . "\n" . join('', map { "- $_->[0]: $_->[1]\n" } @{ $results->{machine} });
}

sub run ($dir)
{
	my %settings = (
		$option{baseline} ? (before => { slurp_file($option{baseline}) =~ /^([\w.]+) = '(.*)'$/mg }) : (),
		now => {});
	my $zk = ZooKeeper->new->start;
	my $results = {
		machine => [ Bench::Machine::describe($dir) ],
		baseline => $ENV{BENCH_BASELINE},
		builds => [ grep { $settings{$_} } qw(before now) ] };
	foreach my $build (@{ $results->{builds} })
	{
		my $node = cluster($build, $zk, %{ $settings{$build} });
		$node->stop;
		foreach my $workload (@workloads)
		{
			my $cost = measure($node, $workload);
			$results->{cost}{ $workload->[0] }{$build} = $cost;
			say_line(sprintf '%-7s %-45s %9d instructions, %5.1f and %5.1f calls, %7.1f us', $build, $workload->[0],
				@{$cost}{qw(instructions calls program_calls us)});
		}
	}
	write_file('cost.json', JSON::PP->new->canonical->pretty->encode($results));
	write_file('cost.md', text($results));
	return 0;
}

run_script(\&run, \%option, 'baseline=s');
