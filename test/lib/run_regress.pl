
# Run pg_regress or its like and print TAP, which it does by itself from PostgreSQL 16
# on. What differs from what was expected follows as comments.
# Usage: run_regress.pl OUTPUT-DIRECTORY COMMAND...

use v5.36;

my ($directory, @command) = @ARGV;
my ($input) = map { /^--inputdir=(.*)/ } @command;
my $count = 0;
my %ran;    # what was compared, in words
my $bad;

$| = 1;
open my $in, '-|', @command or die "could not run $command[0]: $!";
while (my $line = readline $in)
{
	if ($line =~ /^test (\S+) +\.\.\. (ok|FAILED)(.*)/)
	{
		report($2 eq 'ok', $1, $3);
	}
	elsif ($line =~ /^(not )?ok \d+ +[-+] (\S+)(.*)/)
	{
		report(!$1, $2, $3);
	}
	else
	{
		print "# $line";
	}
}
close $in;
my $status = $?;
print "# ran: $ran{$_} $_\n" foreach sort keys %ran;
print "1..$count\n";
show("$directory/regression.diffs", 1_000);
if ($status && !$bad)
{
	show("$directory/log/$_.log", 50) foreach qw(initdb postmaster);
}
exit($status ? 1 : 0);

sub report ($ok, $name, $took)
{
	$count++;
	$bad ||= !$ok;
	if (open my $sql, '<', "$input/sql/$name.sql")
	{
		$ran{'SQL files'}++;
		$ran{'SQL statements'} += statements(join '', readline $sql);
	}
	elsif (open my $results, '<', "$directory/results/$name.out")
	{
		$ran{'spec files'}++;
		$ran{'spec permutations'} += grep { /^starting permutation/ } readline $results;
	}
	print $ok ? 'ok' : 'not ok', " $count - $name", $took =~ s/ +/ /r, "\n";
	return;
}

# How many there are of psql's language.
sub statements ($text)
{
	$text =~ s/(\$\w*\$).*?\1|'(?:[^']|'')*'|--[^\n]*//gs;
	my @ends = $text =~ /;|\\g/g;
	return scalar @ends;
}

# The last lines of a file.
sub show ($file, $limit = undef)
{
	open my $text, '<', $file or return;
	my @lines = readline $text;
	splice @lines, 0, @lines - $limit if @lines > $limit;
	print "# $file:\n", map { "# $_" } @lines;
	return;
}
