
# Circles of calls: which file of src calls which, whatever the headers say. Prints each
# group of files that call one another in a circle, and fails then: who reads one of them
# has to read them all. A callback that is handed over is no call here. Of the session's
# program also what calls upwards: the list of its objects in the Makefile is the order.
# Usage: circles.pl SOURCE-TREE

use v5.36;

use List::Util qw(uniq);

my $top = shift;

# Circles that are still to be opened, by what the names of their files begin with.
my @known = qw();

# The code of each file, without comments and texts, and who defines what.
my (%code, %definer);
foreach my $path (sort glob "$top/src/*/*.c")
{
	my ($file) = $path =~ m{([^/]+/[^/]+)$};
	my $text = contents($path);
	$text =~ s{/\*.*?\*/|"(?:\\.|[^"\\])*"}{ }gs;
	$code{$file} = $text;
	my %is_static = map { $_ => 1 } $text =~ /^static\b[^;{}()=]*?\b(\w+)\(/mg;
	$definer{$_} = $file foreach grep { !$is_static{$_} } $text =~ /^(\w+)\((?=[^;{}]*\)\s*\{)/mg;
}

my %calls;
foreach my $file (sort keys %code)
{
	my @names = uniq($code{$file} =~ /\b([a-z]\w*)\(/g);
	$calls{$file} = [ uniq(grep { $_ ne $file } map { $definer{$_} // () } @names) ];
}

my @circles;
foreach my $circle (circles())
{
	push @circles, $circle if !grep { my $begin = $_; !grep { !/^$begin/ } @$circle } @known;
}
print "a circle of calls: @$_\n" foreach @circles;

# The program has no layers but the order of its objects in the Makefile.
my @climbs;
my @program = contents("$top/Makefile") =~ m{\tsrc/(program/\w+)\.o}g;
my %place = map { ("$program[$_].c" => $_) } 0 .. $#program;
foreach my $file (sort keys %place)
{
	push @climbs, map { "$file calls $_, which stands above it" }
	  grep { ($place{$_} // $place{$file}) < $place{$file} } @{ $calls{$file} };
}
print map { "$_\n" } @climbs;
exit(@circles || @climbs ? 1 : 0);

# The groups of more than one file that reach one another (Tarjan's algorithm).
sub circles
{
	my (%number, %lowest, @stack, %is_stacked, @found);
	my $next = 0;
	my $visit;
	$visit = sub ($file)
	{
		$number{$file} = $lowest{$file} = $next++;
		push @stack, $file;
		$is_stacked{$file} = 1;
		foreach my $other (@{ $calls{$file} })
		{
			$visit->($other) if !defined $number{$other};
			next if !$is_stacked{$other};
			$lowest{$file} = $lowest{$other} if $lowest{$other} < $lowest{$file};
		}
		return if $lowest{$file} != $number{$file};
		my @group;
		do { push @group, pop @stack; $is_stacked{ $group[-1] } = 0 } until $group[-1] eq $file;
		push @found, [ sort @group ] if @group > 1;
		return;
	};
	foreach my $file (sort keys %calls)
	{
		$visit->($file) if !defined $number{$file};
	}
	return @found;
}

sub contents ($path)
{
	open my $in, '<', $path or die "could not read $path: $!";
	local $/;
	return readline $in;
}
