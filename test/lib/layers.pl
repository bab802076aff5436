
# The layers of the source are the folders of src, which the Makefile names from the top
# down, and its include paths hold them: a file cannot include what stands above its
# folder.  This looks at what the compiler does not see. It prints what does not keep to
# it, a line each, and fails then:
# - a folder is told of those below it, and of no others;
# - a module lies in the folder that the Makefile says;
# - within a folder a module, or its header, includes only what stands below it in OBJS, or
#   the header of its own family (contender_private.h for contender.c and contender_watch.c);
# - a private header is its family's alone;
# - no circle of includes; no two files of one name;
# - which session it is, the family session* decides: only it and client.c know client.h;
# Usage: layers.pl SOURCE-TREE

use v5.36;

use List::Util qw(uniq);

my $top = shift;
# Modules of SQL functions that are called like a family, and are none of it.
my %is_alone = map { $_ => 1 } qw(lock_set);
my $knows_client = qr/^(?:session|client)(?:_|$)/;

my @findings;
my $makefile = contents("$top/Makefile");
my @modules = modules('OBJS');
my @program = map { modules($_) } qw(PROGRAM_OBJS PLAIN_OBJS TLS_OBJS);
my %layer = map { $modules[$_] =~ s{.*/}{}r => $_ } 0 .. $#modules;
my %includes;

check_paths();
foreach my $path (glob "$top/src/*/*.[ch]")
{
	my ($folder, $file) = $path =~ m{([^/]+)/([^/]+)$};
	my ($module) = $file =~ /^(\w+)\./;
	my $text = contents($path);
	push @findings, "$folder/$file is not in the Makefile"
	  if $file =~ /\.c$/ && !grep { $_ eq "$folder/$module" } @modules, @program;
	push @findings, "there are two files $file" if $includes{$file};
	$includes{$file} = [ $text =~ /^#include "(\w+\.h)"/mg ];
	check_includes($file, $module);
}
check_for_circle($_) foreach sort keys %includes;
print map { "$_\n" } uniq @findings;
exit(@findings ? 1 : 0);

# The modules of a list of objects.
sub modules ($list)
{
	my ($objects) = $makefile =~ /^$list = \\\n((?:\tsrc.*\n)+)/m
	  or die "there is no $list in the Makefile";
	return $objects =~ m{src/(\w+/\w+)\.o}g;
}

# What the compiler is told of, for each folder: those below it, and of no others.
sub check_paths
{
	my ($names) = $makefile =~ /^LAYERS = (.*)$/m or die 'there are no LAYERS in the Makefile';
	my @layers = split ' ', $names;
	my %told = $makefile =~ m{^src/(\w+)/%: override CPPFLAGS \+= \$\(call INCLUDE,(.*)\)$}mg;
	my %below = (program => 'common', map { $layers[$_] => join ' ', @layers[ $_ + 1 .. $#layers ] } 0 .. $#layers);
	push @findings, map { "the folder $_ is told of ($told{$_}), not of ($below{$_})" }
	  grep { ($told{$_} // '') ne $below{$_} } sort keys %below;
	push @findings, map { "the folder $_ has no layer" } grep { !defined $below{$_} }
	  map { m{([^/]+)/$} } glob "$top/src/*/";
	return;
}

# Does the file include what stands above it?  Between folders the compiler sees to that.
sub check_includes ($file, $module)
{
	my ($family) = $is_alone{$module} ? $module : $module =~ /^([^_]+)/;
	foreach my $header (@{ $includes{$file} })
	{
		my ($other) = $header =~ /^(\w+)\./;
		push @findings, "$file includes $header, which is the session's"
		  if $other eq 'client' && $module !~ $knows_client;
		next if $other =~ /^\Q$family\E(?:_|$)/;
		push @findings, "$file includes $header, which is another family's"
		  if $other =~ /_private$/;
		push @findings, "$file includes $header, which stands above it"
		  if defined $layer{$module}
		  && defined $layer{$other}
		  && $layer{$other} < $layer{$module};
	}
	return;
}

sub check_for_circle ($start)
{
	my %seen;
	my @left = @{ $includes{$start} };
	while (defined(my $header = shift @left))
	{
		push @findings, "$start includes itself" if $header eq $start;
		next if $seen{$header}++;
		push @left, @{ $includes{$header} || [] };
	}
	return;
}

sub contents ($path)
{
	open my $in, '<', $path or die "could not read $path: $!";
	local $/;
	return readline $in;
}
