
# Results that nobody reads: each function of src that returns something is compiled as one
# whose result must be used. Where it is thrown away on purpose the code says (void), and in a
# comment why. A result that nobody ever reads is none: such a function returns void. Prints
# the compiler's complaints, and fails if there are any.
#
# The attribute is put into a copy of the sources: [[nodiscard]], which unlike
# __attribute__((warn_unused_result)) is content with (void).
# Usage: results.pl SOURCE-TREE; CC is the compiler, and PG_CONFIG names the headers.

use v5.36;

use File::Basename;
use File::Temp qw(tempdir);

my $top = shift;
my $cc = $ENV{CC} || 'gcc';
my $pg_config = $ENV{PG_CONFIG} || 'pg_config';
my $copy = tempdir(CLEANUP => 1);
my $jobs = 2;

# The standard that the sources are written in; clang takes such attributes only if told so.
my @options = qw(-std=gnu11 -D_GNU_SOURCE -fsyntax-only -Werror=unused-result);
push @options, '-fdouble-square-bracket-attributes' if qx($cc --version) =~ /clang/;

# What they return is for ereport() alone, as of PostgreSQL's errdetail().
my $of_reports = qr/int\s+(?:errdetail_\w+|zklock_session_explain_\w+|zklock_stat_errcode|connection_hint|timeout_message)\b/;

# The prototype of a function with a result, from the beginning of its line.
my $prototype = qr/^(?:extern|static) (?!void [^*]|inline|$of_reports)(?=[^;={}()]*\w\([^;{}]*;)/m;
my $count = 0;

foreach my $path (glob "$top/src/*/*.[ch]")
{
	my $text = contents($path);
	$count += $text =~ s/($prototype)/[[nodiscard]] $1/g;
	open my $file, '>', "$copy/" . basename($path) or die "could not write: $!";
	print {$file} $text;
	close $file or die "could not write: $!";
}
die "$count functions with a result are too few: does the pattern fit?\n" if $count < 500;

chomp(my $include = qx($pg_config --includedir-server));
my @sources = glob "$copy/*.c";
my @findings;
foreach my $job (map { start($_) } 0 .. $jobs - 1)
{
	push @findings, map { s{\Q$copy\E/}{src/}gr } readline $job;
	close $job or $! and die "could not wait for the compiler: $!";
	push @findings, "the compiler failed\n" if $? && !@findings;
}
print @findings;
exit(@findings ? 1 : 0);

# Has every so many of the sources compiled; a handle on what the compiler says.
sub start ($first)
{
	my $pid = open(my $output, '-|') // die "could not fork: $!";
	return $output if $pid;
	open STDERR, '>&', \*STDOUT or die "could not redirect: $!";
	my $failed = 0;
	foreach my $i (grep { $_ % $jobs == $first } 0 .. $#sources)
	{
		$failed |= system $cc, @options, '-isystem', $include, $sources[$i];
	}
	exit($failed ? 1 : 0);
}

sub contents ($path)
{
	open my $file, '<', $path or die "could not read $path: $!";
	local $/ = undef;
	return scalar <$file>;
}
