
# Each test file says in its first lines which promise it keeps and how, and the name of each
# subtest can be understood alone. Tested by reading all files of test/t, test/sql, test/specs,
# test/unit and test/others; the checks themselves are tried with heads and names that are wrong.

use v5.36;

use FindBin;
use Pages;
use Test::More;

my $tests = "$FindBin::Bin/..";
# The least that says something: words of a head, and of a name.
my $least_of_head = 12;
my $least_of_name = 3;

sub words ($text) { return scalar(() = $text =~ /[\w\$:.]*\w[\w\$'():.-]*/g); }

# The first comment of a file, in one line without what marks it as one.
sub head ($text)
{
	$text =~ s/\A#!.*\n//;
	my ($head) = $text =~ /\A\s*((?:#.*\n)+)/;
	($head) = $text =~ /\A((?:--.*\n)+)/ if !$head;
	($head) = $text =~ m{\A/\*-*\n \*\n \* \S+\n(.*?)\*/}s if !$head;
	return ($head // '') =~ s/^(?:#|--| \*)//mgr =~ s/\s+/ /gr =~ s/^ | -*\s*$//gr;
}

# The names of the subtests in a text of Perl, in their order, and of tables of faults (Refusals),
# which are subtests, too. One whose name is not written where it is made counts as nameless.
sub names ($text)
{
	my @names;
	while ($text =~ /^\s*(?:subtest\s+(?:sprintf\()?|\$table->run\(\s*)(?:(["'])((?:\\.|(?!\1).)*)\1)?/mg)
	{
		push @names, $2 // '';
	}
	return @names;
}

# What is wrong with these names, a line each.
sub complaints (@names)
{
	my (%seen, @wrong);
	foreach my $name (@names)
	{
		push @wrong, "less than $least_of_name words: $name" if words($name) < $least_of_name;
		push @wrong, "twice in one file: $name" if $name ne '' && $seen{$name}++;
		# Such a name needs the one before it.
		push @wrong, "begins with no noun: $name"
		  if $name =~ /^(?:and|but|or|nor|so|not|until|which|likewise|also|it|its|he|his|who|whoever|that|those|these|this) /i;
	}
	return @wrong;
}

# Of each file its name, as TESTS has it, and its text.
my %text = map { my $path = $_; $path =~ s{^\Q$tests\E/}{}r => Pages::slurp($path) }
  glob "$tests/{t,others}/*.pl $tests/sql/*.sql $tests/specs/*.spec $tests/unit/test_*.c";
cmp_ok(scalar keys %text, '>', 150, 'the tests are found');

my %head = map { $_ => head($text{$_}) } keys %text;
is_deeply([ grep { words($head{$_}) < $least_of_head } sort keys %head ], [], "each file begins with a comment of $least_of_head words");
my %files;
push @{ $files{ $head{$_} } }, $_ foreach sort keys %head;
is_deeply([ map { "@$_" } grep { @$_ > 1 } values %files ], [], 'no two files begin with the same comment');

my @wrong;
foreach my $file (grep { /\.pl$/ } sort keys %text)
{
	push @wrong, map { "$file: $_" } complaints(names($text{$file}));
}
is(join("\n", @wrong), '', 'each subtest has a name that can be understood alone');

# The checks see what is wrong.
is(head("#!/usr/bin/perl\n\n# One.\n# Two.\n\nuse v5.36;\n# Three.\n"), 'One. Two.', 'the head of a program');
is(head("--\n-- One.\n-- Two.\n--\nSELECT 1;\n"), 'One. Two.', 'the head of a script of SQL');
is(head("/*----\n *\n * test_x.c\n *\t  One.\n *\n * Two.\n *\n *----\n */\n"), 'One. Two.', 'the head of a file of C');
is(head("use v5.36;\n# One.\n"), '', 'a file without a head');
my $perl = "\tsubtest 'a lock that is lost' => sub {\nsubtest \$what => sub {\n"
  . "subtest \"a lock of \$who\" => sub {\n\$table->run('a lock that is kept',\n# subtest 'none'\n";
is(join('|', names($perl)), 'a lock that is lost||a lock of $who|a lock that is kept', 'the names of a file');
is(scalar complaints('a lock is lost', 'another lock is lost', 'a lock of $who'), 0, 'good names');
is(scalar complaints('a lock is lost', 'a lock is lost'), 1, 'a name that stands twice');
is(scalar complaints('a lock', '', 'nor is it lost again'), 3, 'short names, and one that needs the one before');

done_testing();
