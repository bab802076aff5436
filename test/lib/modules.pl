
# The map of the source, src/README.md, has a table of the modules of each folder. What a
# module does is written once, as the first paragraph of the head of its C file, or of its
# header if it has no C file (private headers are their family's). This makes the tables of
# these paragraphs, in the order of the Makefile. With --write it writes them into the page.
# Without, it prints what is wrong, a line each, and fails then:
# - the tables differ from the heads;
# - a file has no such paragraph, or a header repeats what its C file says;
# - the page names a module, or in backticks a name of C or SQL, that the source has not.
# Usage: modules.pl [--write] SOURCE-TREE

use v5.36;

use List::Util qw(uniq);

my $is_to_write = @ARGV && $ARGV[0] eq '--write' && shift;
my $top = shift;
my $begin = "<!-- test/lib/modules.pl --write makes these tables of the heads of the files -->\n";
my $end = "<!-- end of the tables -->\n";

my @findings;
my $makefile = contents("$top/Makefile");
my $page = contents("$top/src/README.md");
my %files = map { s{.*/src/}{}r => 1 } glob "$top/src/*/*.[ch]";

my $tables = join '', map { table($_) } folders();
my ($before, $old, $after) = $page =~ /\A(.*?^\Q$begin\E)(.*?)(^\Q$end\E.*)\z/ms
  or die 'src/README.md has no place for the tables';
if ($is_to_write)
{
	open my $out, '>', "$top/src/README.md" or die "could not write src/README.md: $!";
	print $out "$before\n$tables$after";
	close $out or die "could not write src/README.md: $!";
}
elsif ($old ne "\n$tables")
{
	push @findings, 'the tables of src/README.md differ from the heads of the files: run test/lib/modules.pl --write .';
}
check_names();
print map { "$_\n" } uniq @findings;
exit(@findings ? 1 : 0);

sub folders ()
{
	my ($layers) = $makefile =~ /^LAYERS = (.*)$/m or die 'there are no LAYERS in the Makefile';
	return split(' ', $layers), 'program';
}

# The C files of a folder in the order of the Makefile, then headers that have none.
sub modules ($folder)
{
	my @modules = uniq map { "$_.c" } $makefile =~ m{^\tsrc/(\Q$folder\E/\w+)\.o}mg;
	my @headers = grep { m{^\Q$folder\E/} && /(?<!_private)\.h$/ && !$files{s/h$/c/r} } sort keys %files;
	return @modules, @headers;
}

# A heading, and a row for each module.
sub table ($folder)
{
	my $table = "**`$folder`**\n\n| module | what it does |\n|---|---|\n";
	foreach my $module (modules($folder))
	{
		my $header = $module =~ s/c$/h/r;
		my $says = says($module);
		push @findings, "src/$module: its head does not say what the module does" if $says eq '';
		push @findings, "src/$header says in its head what the head of its C file says"
		  if $header ne $module && $files{$header} && says($header) ne '';
		$table .= '| `' . ($module =~ s{.*/}{}r) . '` | ' . marked_up($says) . " |\n";
	}
	return "$table\n";
}

# The first paragraph of the head of a file, behind its name.
sub says ($file)
{
	my ($says) = contents("$top/src/$file") =~ m{\A/\*-+\n \*\n \* \S+\n((?: \*\t\s+\S.*\n)*)};
	return ($says // '') =~ s/^ \*\s+//mgr =~ s/\s+\z//r =~ s/\s+/ /gr;
}

# With backticks around names of functions, files, settings and views.
sub marked_up ($text)
{
	return $text =~ s/(?<![\w"`])([A-Za-z_]\w*(?:\(\)|\.[ch]\b)|zklock\.\w+|zk_\w+|\.leases|log_lock_\w+|zklock-\w+(?:-\w+)*)/`$1`/gr;
}

# Files, modules and functions of the page.
sub check_names ()
{
	my $source = join '', map { contents($_) } glob "$top/src/*/*.[ch] $top/sql/*.sql";
	my %is_word = map { $_ => 1 } $source =~ /\b(\w+)\b/g;
	my $folders = join '|', folders();
	# The tables are of the heads, and shell commands are not C.
	my $prose = $page =~ s/^```.*?^```//msgr;
	foreach my $code ($prose =~ /`([^`\n]+)`/g)
	{
		if ($code =~ m{^(?:$folders)/\w+(\.[ch])?$})
		{
			push @findings, "src/README.md names $code, which is nowhere"
			  if !grep { $files{$_} } $1 ? $code : ("$code.c", "$code.h");
		}
		elsif ($code =~ /^\w+\.[ch]$/ && $code !~ /^(?:postgres|zookeeper|_private)\.h$/)
		{
			push @findings, "src/README.md names $code, which is nowhere" if !grep { m{/\Q$code\E$} } keys %files;
		}
		elsif ($code =~ /^(\w+)\(\)$/ || $code =~ /^(\w*_\w*[^\W_])$/)
		{
			push @findings, "src/README.md names $code, which the source has not" if !$is_word{$1};
		}
	}
	return;
}

sub contents ($path)
{
	open my $in, '<', $path or die "could not read $path: $!";
	local $/;
	return readline $in;
}
