
# Map: test/coverage/map, which tests reach which function of src. "make coverage" writes
# it (test/coverage/reach); "make mutation" reads it.

package Map;

use v5.36;

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
