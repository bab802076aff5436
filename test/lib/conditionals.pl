
# Conditional expressions of the source: a statement has one at most, and a macro, too. Who
# reads a second one has to think of all combinations; an if has room for their names. Prints
# those that have more, a line each, and fails then.
# Usage: conditionals.pl SOURCE-TREE

use v5.36;

my $top = shift;
my @findings;

foreach my $path (sort glob "$top/src/*/*.[ch]")
{
	my ($file) = $path =~ m{(src/.*)};
	foreach my $statement (statements(bare_code($path)))
	{
		my $count = () = $statement->{text} =~ /\?/g;
		push @findings, "$file:$statement->{line}: $count conditional expressions" if $count > 1;
	}
}
print map { "$_\n" } @findings;
exit(@findings ? 1 : 0);

# The code of a file: comments, texts and characters are gone, all lines are still there.
sub bare_code ($path)
{
	my $text = contents($path);
	$text =~ s{(/\*.*?\*/)|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'}{$1 ? $1 =~ s/[^\n]//gr : ''}gse;
	return $text;
}

# What stands between semicolons and braces, and each directive of the preprocessor with its
# continuation, as the line where it begins and its text.
sub statements ($text)
{
	my @found;
	my $line = 1;
	while ($text =~ /\G(\s*)(\#(?:\\\n|[^\n])*|[^;{}]*?(?=[;{}]|\n[ \t]*\#|\z))([;{}]?)/gc)
	{
		last if $1 . $2 . $3 eq '';
		$line += $1 =~ tr/\n//;
		push @found, { line => $line, text => $2 };
		$line += $2 =~ tr/\n//;
	}
	return @found;
}

sub contents ($path)
{
	open my $in, '<', $path or die "could not read $path: $!";
	local $/;
	return readline $in;
}
