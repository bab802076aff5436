
# UnitTests: do the unit tests notice a change of a module? For test/mutation/run and
# test/mutation/live.pl.
#
# A changed module is linked with the test of that module, and if there is none of its own,
# or the module is not pure, with each that needs it, as test/lib/unit.sh says, and told to
# be "quick": no programs beside it, no long searches. Tests that need a server are left
# out. The change is seen by a check that fails, a program that dies, and one that takes too
# long. What no test sees is tried again under the sanitizers, as in "make check".

package UnitTests;

use v5.36;

use File::Basename qw(basename dirname);
use IO::Select;
use List::Util qw(max min);
use POSIX ();
use Time::HiRes qw(time);

use lib dirname(__FILE__);
use Mutants qw(slurp write_file source_in pure_modules load);

# A mutant has so many times the seconds of processor time that the test takes, and so
# many seconds besides. By the clock it may wait so many times what the test takes, and so
# many seconds besides, which are more on a busy machine; in no case for longer than that.
my ($times, $more) = (4, 2);
my ($times_by_clock, $more_by_clock) = (20, 10);
my $patience = 120;

my $cc = $ENV{CC} || 'gcc';

# new(TREE, DIRECTORY, PREFIX...): the directory is for what is compiled, and PREFIX is how
# tests are run.
sub new ($class, $top, $directory, @prefix)
{
	my @folders = map { "-I$top/src/$_" } qw(common session program);
	my @still = system('setarch -R true 2>/dev/null') == 0 ? qw(setarch -R) : ();
	my $self = bless {
		top => $top,
		directory => $directory,
		prefix => \@prefix,
		object => {},     # by flavor and source
		seconds => {},    # of processor time, and by the clock, by flavor and test
		is_prepared => {},
	}, $class;
	mkdir $directory;
	$self->{flags} = {
		plain => [ qw(-std=gnu11 -O0 -w -fPIC -D_GNU_SOURCE=), @folders ],
		optimized => [ qw(-std=gnu11 -O2 -w -D_GNU_SOURCE=), @folders ],
		sanitized => [ $self->ask_unit(q{printf '%s\n' "${c_flags[@]}" "${instrument[@]}"}), '-w', '-fPIC' ] };
	$self->{runner} = { plain => [], sanitized => \@still };
	foreach my $file (grep { slurp($_) !~ /ZKLOCK_TEST_SERVERS/ } glob "'$top'/test/unit/test_*.c")
	{
		my %list = (sources => [], libraries => []);
		my $ask = q{unit_sources "$0"; for list in sources libraries; do
			declare -n words=$list; for word in "${words[@]}"; do echo "$list $word"; done; done};
		foreach ($self->ask_unit($ask, $file))
		{
			my ($list, $word) = split ' ', $_, 2;
			push @{ $list{$list} }, $list eq 'libraries' ? $word : basename($word, '.c');
		}
		$self->{test}{ basename($file, '.c') } = {
			source => $file, own => $list{sources}[0], linked => $list{sources},
			libraries => $list{libraries} };
	}
	return $self;
}

# What a command of bash prints that knows test/lib/unit.sh, as lines.
sub ask_unit ($self, $command, @words)
{
	open my $out, '-|', 'bash', '-c', "top='$self->{top}'; . '$self->{top}/test/lib/unit.sh'; $command", @words
	  or die "could not run bash: $!";
	chomp(my @lines = readline $out);
	close $out or die "test/lib/unit.sh failed\n";
	return @lines;
}

# Of a pure module the test of its own. Of another one, or if there is none of its own, all
# that need it, its own first, and then those that need little else; none, if it is tested
# with servers only.
sub tests_of ($self, $module)
{
	my $tests = $self->{test};
	my @own = grep { $tests->{$_}{own} eq $module } sort keys %$tests;
	my @needing = grep { grep { $_ eq $module } @{ $tests->{$_}{linked} } } sort keys %$tests;
	@needing = sort { @{ $tests->{$a}{linked} } <=> @{ $tests->{$b}{linked} } } @needing;
	return @own if @own && grep { $_ eq $module } pure_modules($self->{top});
	return (@own, grep { $tests->{$_}{own} ne $module } @needing);
}

# Compile what the mutants of a module are linked with, and see that the tests pass.
sub prepare ($self, $module)
{
	my $directory = $self->{directory};
	my @tests = $self->tests_of($module);
	$self->compile('optimized', source_in($self->{top}, $module), "$directory/$module.same.o")
	  or die "$module.c does not compile\n";
	foreach my $flavor (qw(plain sanitized))
	{
		foreach my $test (grep { !$self->{is_prepared}{"$flavor $_"}++ } @tests)
		{
			my %test = %{ $self->{test}{$test} };
			foreach my $source ($test{source}, map { source_in($self->{top}, $_) } @{ $test{linked} })
			{
				next if $self->{object}{$flavor}{$source};
				my $file = "$directory/$flavor-" . basename($source, '.c') . '.o';
				# The test itself need not be slow.
				my @flags = $source eq $test{source} && $flavor eq 'plain' ? '-O2' : ();
				$self->compile($flavor, $source, $file, @flags) or die "$source does not compile\n";
				$self->{object}{$flavor}{$source} = $file;
			}
			my ($cpu, $start) = ((times)[2], time);
			$self->passes($flavor, $test, $directory) or die "$test fails as it is\n";
			$self->{seconds}{$flavor}{$test} = { cpu => (times)[2] - $cpu, clock => time - $start };
		}
	}
	return;
}

# What becomes of a mutant in that directory: killed, and by whom; or living; or invalid,
# as it does not compile; or the same, if the compiler makes the same code of it.
sub judge ($self, $directory, $mutant)
{
	my $module = $mutant->{module};
	my ($source, $changed) = ("$directory/$module.c", "$directory/$module.o");
	my @tests = $self->tests_of($module);
	write_file($source, $mutant->{text});
	foreach my $flavor (qw(plain optimized sanitized))
	{
		$self->compile($flavor, $source, $changed) or return 'invalid';
		if ($flavor eq 'optimized')
		{
			return 'same' if slurp($changed) eq slurp("$self->{directory}/$module.same.o");
			next;
		}
		foreach my $test (@tests)
		{
			$self->passes($flavor, $test, $directory, $module => $changed) or return ('killed', "unit/$test.c");
		}
	}
	return 'living';
}

sub compile ($self, $flavor, $source, $out, @flags)
{
	# Headers of the module's own folder.
	my $folder = '-I' . dirname(source_in($self->{top}, basename($source, '.c')) // $source);
	return quietly($cc, @{ $self->{flags}{$flavor} }, @flags, $folder, '-c', '-o', $out, $source);
}

# Run a command with its output to nowhere; did it succeed?
sub quietly
{
	my @command = @_;
	my $pid = fork // die "could not fork: $!";
	if (!$pid)
	{
		open STDOUT, '>', '/dev/null' or POSIX::_exit(1);
		open STDERR, '>', '/dev/null' or POSIX::_exit(1);
		exec @command or POSIX::_exit(1);
	}
	waitpid $pid, 0;
	return $? == 0;
}

# Link a test there, with these objects in the place of the modules', and run it up to the
# first check that fails; do all pass, and in time?
sub passes ($self, $flavor, $test, $directory, %changed)
{
	my %test = %{ $self->{test}{$test} };
	my @flags = @{ $self->{flags}{$flavor} };
	my $object = sub ($module) { $changed{$module} // $self->{object}{$flavor}{ source_in($self->{top}, $module) } };
	unlink "$directory/$test";
	quietly($cc, @flags, '-o', "$directory/$test", $self->{object}{$flavor}{ $test{source} },
		map({ $object->($_) } @{ $test{linked} }), @{ $test{libraries} })
	  or return 0;
	my %seconds = %{ $self->{seconds}{$flavor}{$test} // { cpu => $patience, clock => $patience } };
	my $limit = int($times * $seconds{cpu} + $more);
	my $command = "exec 2>/dev/null; ulimit -c 0; ulimit -t $limit; exec setpriv --pdeathsig KILL \"\$@\"";
	local $ENV{TMPDIR} = $directory;
	my $pid = open my $out, '-|', @{ $self->{prefix} }, 'sh', '-c', $command, 'sh', @{ $self->{runner}{$flavor} },
	  "$directory/$test", 'quick'
	  or die "could not run sh: $!";
	my $wait = $times_by_clock * $seconds{clock} + $more_by_clock * max(1, load() / 4);
	my $passes = reads_well($out, time + min($wait, $patience));
	kill KILL => $pid if !$passes;
	close $out;
	return $passes && $? == 0;
}

# Does this end, in time, without a check that fails?
sub reads_well ($out, $end)
{
	my $select = IO::Select->new($out);
	my $rest = '';
	while ($select->can_read($end - time))
	{
		my $nread = sysread $out, $rest, 65536, length $rest;
		return defined $nread if !$nread;
		return 0 if $rest =~ /^not ok/m;
		$rest =~ s/^.*\n//s;
	}
	return 0;
}

1;
