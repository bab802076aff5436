
# The static functions of the source: two files of one program have none of the same name,
# so that a name in a stack trace, in a profile or behind grep is one function. Prints those
# that two files share, a line each, and fails then.
# Usage: statics.pl SOURCE-TREE

use v5.36;

my $top = shift;
my $makefile = contents("$top/Makefile");
my @findings;

# The library, and the session's program, with and without TLS.
foreach my $program ([ objects('OBJS') ], [ map { objects($_) } qw(PROGRAM_OBJS PLAIN_OBJS TLS_OBJS) ])
{
	my %files;
	foreach my $file (@$program)
	{
		push @{ $files{$_} }, $file foreach static_functions("$top/$file");
	}
	foreach my $name (sort keys %files)
	{
		push @findings, "$name() is static in each of @{ $files{$name} }"
		  if @{ $files{$name} } > 1;
	}
}
print map { "$_\n" } @findings;
exit(@findings ? 1 : 0);

# The sources of a list of objects in the Makefile.
sub objects ($list)
{
	my ($objects) = $makefile =~ /^$list = \\\n((?:\tsrc.*\n)+)/m
	  or die "there is no $list in the Makefile";
	return map { "$_.c" } $objects =~ m{(src/[\w/]+)\.o}g;
}

# What a file declares or defines as static, with parentheses behind its name.
sub static_functions ($path)
{
	my $text = contents($path) =~ s{/\*.*?\*/}{}gsr;
	my %names = map { $_ => 1 }
	  $text =~ /^(?:pg_noreturn\s+)?static\s[\w\s*]*?\b(\w+)\s*\((?!\s*\*)[^;{}]*?\)[^;{}=()]*[;{]/mg;
	return keys %names;
}

sub contents ($path)
{
	open my $in, '<', $path or die "could not read $path: $!";
	local $/;
	return readline $in;
}
