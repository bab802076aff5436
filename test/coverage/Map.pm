
# Map: test/coverage/map, which tests reach which function of src. "make coverage" writes
# it (test/coverage/reach); "make check FILE=..." and "make mutation" read it.

package Map;

use v5.36;

# To start the server for those that share one, in seconds.
my $server_start = 4;

# new(TREE). All names of tests here are those of files, relative to test/.
sub new ($class, $top = undef)
{
	my $self = bless { top => $top, seconds => {}, file => {}, function => {} }, $class;
	foreach my $dir (qw(t/*.pl sql/*.sql specs/*.spec unit/test_*.c))
	{
		my @files = map { s{^\Q$top\E/test/}{}r } glob "'$top'/test/$dir";
		$self->{test}{ s{^(t/\d+)_.*|\.\w+$}{$1 // ''}er } = $_ foreach @files;
	}
	my $file = "$top/test/coverage/map";
	my $section;
	open my $in, '<', $file or die "could not read $file: $!\n";
	while (my $line = readline $in)
	{
		chomp $line;
		next if $line =~ /^(?:#|$)/;
		if ($line =~ /^== (\S+?): (.*)/)
		{
			$section = $1;
			$self->{file}{$section} = [ split ' ', $2 ] if $section ne 'tests';
		}
		elsif (($section // '') eq 'tests' && $line =~ /^(\S+) ([\d.]+)$/)
		{
			$self->{seconds}{$1} = $2;
		}
		elsif ($section && $line =~ /^(\w+): (.+)/)
		{
			$self->{function}{$section}{$1} = [ split ' ', $2 ];
		}
		else
		{
			die "$file:$.: not understood\n";
		}
	}
	return $self;
}

sub files { my ($self) = @_; return sort keys %{ $self->{file} } }

# In seconds; of a test that is not in the map that is a guess.
sub seconds ($self, $test)
{
	return $self->{seconds}{ $test =~ s{^(t/\d+)_.*|\.\w+$}{$1 // ''}er } // 10;
}

# The tests of a file of src, or of a function of it, the most telling first.
sub tests ($self, $file, $function = undef)
{
	my $names = defined $function && $self->{function}{$file}{$function} || $self->{file}{$file} || [];
	return grep { defined } map { $self->{test}{$_} } @$names;
}

# The same for any file of the tree, as far as anything is known of it.
sub tests_for ($self, $file)
{
	my $top = $self->{top};
	return $self->tests($file) if $self->{file}{$file};
	if ($file =~ m{^(src/\w+/(\w+))\.h$})
	{
		return $self->tests("$1.c") if $self->{file}{"$1.c"};
		return $self->first_of(grep { reads("$top/$_", qr/^#include "\Q$2\E\.h"/m) } $self->files);
	}
	return $1 if $file =~ m{^test/((?:t|sql|specs|unit)/.+)} && grep { $_ eq $1 } values %{ $self->{test} };
	return grep { defined } map { $self->{test}{"$_/$1"} } qw(sql specs) if $file =~ m{^expected/(\w+)\.out$};
	my @all = sort values %{ $self->{test} };
	return (grep { m{^sql/|^t/(?:114|53)} } @all) if $file =~ m{^sql/};
	return grep { m{^t/00} || reads("$top/test/$_", qr/^use \Q$1\E\b/m) } @all if $file =~ m{^test/lib/(\w+)\.pm$};
	return grep { m{^t/5[34]} } @all if $file =~ /\.md$/;
	return;
}

# Of several files the first test each, then the second, and so on.
sub first_of ($self, @files)
{
	my @lists = map { [ $self->tests($_) ] } @files;
	my (@tests, %has);
	while (grep { @$_ } @lists)
	{
		push @tests, grep { defined && !$has{$_}++ } map { shift @$_ } @lists;
	}
	return @tests;
}

sub reads ($file, $pattern)
{
	return -e $file && contents($file) =~ $pattern;
}

# Those that are done after so many seconds, that many running at a time; the shortest one in
# any case.
sub in_time ($self, $limit, $at_a_time, @tests)
{
	my @busy = (0) x $at_a_time;
	my %busy;    # the one job of sql, and that of specs
	my @chosen;
	foreach my $test (@tests)
	{
		my $seconds = $self->seconds($test);
		my ($job) = $test =~ m{^(sql|specs)/};
		@busy = sort { $a <=> $b } @busy;
		my $end = $seconds + ($job ? $busy{$job} || $busy[0] + $server_start : $busy[0]);
		next if $end > $limit;
		if ($job && $busy{$job})
		{
			@busy = map { $_ == $busy{$job} ? $end : $_ } @busy;
		}
		else
		{
			$busy[0] = $end;
		}
		$busy{$job} = $end if $job;
		push @chosen, $test;
	}
	@chosen = (sort { $self->seconds($a) <=> $self->seconds($b) } @tests)[0] if !@chosen;
	return @chosen;
}

# Of tests in this order those without which a function of the file would be reached by fewer
# than two of them, as far as there are any.
sub needed ($self, $file, @tests)
{
	my $functions = $self->{function}{$file} or return @tests;
	my %left;
	my %of;    # by test: functions
	foreach my $function (keys %$functions)
	{
		$left{$function} = 2;
		push @{ $of{$_} }, $function foreach $self->tests($file, $function);
	}
	my @needed;
	foreach my $test (@tests)
	{
		my @functions = @{ $of{$test} // [] };
		push @needed, $test if grep { $left{$_} > 0 } @functions;
		$left{$_}-- foreach @functions;
	}
	return @needed;
}

# What is wrong with the map, as lines of text: each file of src, each function, and each test
# has to be in it, and what is in it has to be there. A function that no test reaches is in
# test/coverage/uncovered.
sub complaints ($self)
{
	my $top = $self->{top};
	my $uncovered = contents("$top/test/coverage/uncovered");
	my @bad;
	my @sources = map { s{^\Q$top\E/}{}r } glob "'$top'/src/*/*.c";
	foreach my $file (@sources)
	{
		my $name = $file =~ s{.*/}{}r;
		my %is_named = map { $_ => 1 } keys %{ $self->{function}{$file} }, $uncovered =~ /^\Q$name\E (\w+)/mg;
		my %is_there = map { $_ => 1 } functions_of("$top/$file");
		push @bad, "there is no $file in it" unless $self->{file}{$file};
		push @bad, map { "there is no function $_ of $file in it" } grep { !$is_named{$_} } sort keys %is_there;
		push @bad, map { "$file has no function $_" }
		  grep { !$is_there{$_} } sort keys %{ $self->{function}{$file} };
	}
	push @bad, map { "$_ is not there" } grep { !-e "$top/$_" } $self->files;
	foreach my $name (sort keys %{ $self->{test} })
	{
		push @bad, "there is no test/$self->{test}{$name} in it" unless $self->{seconds}{$name};
	}
	my %named = map { $_ => 1 } keys %{ $self->{seconds} }, map { @$_ } values %{ $self->{file} },
	  map { values %$_ } values %{ $self->{function} };
	push @bad, map { "there is no test $_" } grep { !$self->{test}{$_} } sort keys %named;
	return (@bad, $self->guesses);
}

# Write the map anew with each function that is missing, which gets the first tests of its
# file until "make coverage" knows better, and without those that are gone. Returns how many
# these were.
sub add_functions ($self)
{
	my $path = "$self->{top}/test/coverage/map";
	my $changes = 0;
	my ($head, @sections) = split /^(?=== )/m, contents($path);
	foreach my $section (@sections)
	{
		my ($file, $tests) = $section =~ /^== (src\S+): (.*)/ or next;
		next if !-e "$self->{top}/$file";
		my @first = grep { defined } (split ' ', $tests)[ 0 .. 7 ];
		my %line = map { $_ => "$_: @first\n" } functions_of("$self->{top}/$file");
		my %is_new = %line;
		my (undef, @lines) = split /^/, $section =~ s/\n+\z/\n/r;
		foreach my $old (@lines)
		{
			my ($name) = $old =~ /^(\w+):/;
			if ($line{$name}) { $line{$name} = $old; }
			else { $changes++; }
			delete $is_new{$name};
		}
		$changes += keys %is_new;
		$section = "== $file: $tests\n" . join('', @line{ sort keys %line }) . "\n";
	}
	open my $out, '>', $path or die "could not write $path: $!\n";
	print {$out} $head, join('', @sections) =~ s/\n+\z/\n/r;
	close $out or die "could not write $path: $!\n";
	return $changes;
}

# The names of what is defined there, each at the beginning of a line, some by a macro.
sub functions_of ($file)
{
	my $text = contents($file);
	my $arguments = qr/\((?:[^(){};]|\([^()]*\))*\)/;
	return ($text =~ /^(\w+)$arguments\s*\n\{/mg, $text =~ /^[A-Z]+_FUNCTION\((\w+),[^;{}]*?\)$/mg);
}

# A run measures to a tenth of a second, and one time of ten is even then. What was written by
# hand is.
sub guesses ($self)
{
	my @times = values %{ $self->{seconds} };
	my $even = grep { $_ == int } @times;
	return 3 * $even > @times ? "$even of @{[ scalar @times ]} times are even seconds: they are guesses, not of a run" : ();
}

sub contents ($file)
{
	open my $in, '<', $file or die "could not read $file: $!\n";
	local $/;
	return readline($in) // '';
}

1;
