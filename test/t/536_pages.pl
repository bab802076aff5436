
# The pages can be read as they are shown: links and their anchors lead where they say, tables are
# tables, lines are not too long, and no search_path lets others put functions in the way. Tested
# by reading all pages, also as they are installed.

use strict;
use warnings;

use File::Basename qw(dirname);
use FindBin;
use Pages;
use PostgreSQL::Test::Utils qw(slurp_file);
use Test::More;

my $top = "$FindBin::Bin/../..";
my $width = 120;

# Each of these returns what is wrong with a page, one line each.

sub broken_links
{
	my ($page, $pages) = @_;
	my @broken;
	foreach my $link (Pages::links($page))
	{
		my ($name, $anchor) = Pages::destination($page, $link->{target}) or next;
		my $target = $pages->{$name};
		next
		  if $target
		  ? $anchor eq '' || Pages::anchors($target)->{$anchor}
		  : $anchor eq '' && -e "$top/$name";
		push @broken, "$page->{name}:$link->{number}: $link->{target}";
	}
	return @broken;
}

sub long_lines
{
	my ($page) = @_;
	return map { "$page->{name}:$_->{number}: " . length $_->{text} }
	  grep { !$_->{is_code} && $_->{text} !~ /^\s*\|/ && length $_->{text} > $width } @{ $page->{lines} };
}

# With zklock in a search_path none but who is trusted may create in any of its schemas: the
# function that fits best is called, wherever it stands. In public the database's owner may, and
# "$user" may be a schema that another role has made.
sub open_paths
{
	my ($page) = @_;
	my @open;
	while ($page->{text} =~ /\bsearch_path(?:\s*(?:=|\bTO\b)\s*|%3[Dd])([^;`\n]+)/g)
	{
		my $path = $1;
		my $line = 1 + (substr($page->{text}, 0, $-[0]) =~ tr/\n//);
		push @open, "$page->{name}:$line: $path"
		  if $path =~ /\bzklock/ && $path =~ /\bpublic\b|\$user/;
	}
	return @open;
}

# A table begins behind an empty line or a heading with a header and its rule, has as many cells in each
# row, and ends with an empty line: whatever stands there at once is another row.
sub broken_tables
{
	my ($page) = @_;
	my (@broken, $columns);
	my @lines = map { $_->{is_code} ? '' : $_->{text} } @{ $page->{lines} }, { text => '' };
	foreach my $i (0 .. $#lines)
	{
		my $where = "$page->{name}:" . ($i + 1);
		my $is_row = $lines[$i] =~ /^\s*\|/;
		if ($is_row && !$columns)
		{
			$columns = Pages::cells($lines[$i]);
			push @broken, "$where: rows without a header"
			  if ($lines[ $i + 1 ] // '') !~ /^\s*\|(\s*:?-+:?\s*\|)+\s*$/;
			push @broken, "$where: text right above" if $i && $lines[ $i - 1 ] !~ /^(#.*|<!--.*-->|\s*)$/;
		}
		elsif (!$is_row && $columns)
		{
			push @broken, "$where: text right below" if $lines[$i] =~ /\S/;
			$columns = 0;
		}
		push @broken, "$where: another number of cells" if $is_row && Pages::cells($lines[$i]) != $columns;
	}
	return @broken;
}

# A label that is the heading of a section of the page leads there, or to a section in it or around it.
sub missed_sections
{
	my ($page, $pages) = @_;
	my @missed;
	foreach my $link (grep { $_->{anchor} ne '' && $pages->{ $_->{name} } } Pages::labels($page))
	{
		my @sections = Pages::sections($pages->{ $link->{name} });
		my $called = lc $link->{label} =~ s/`|\(\)//gr;
		my ($there) = grep { $_->{level} > 1 && lc $_->{heading} eq $called } @sections;
		my ($to) = grep { $_->{anchor} eq $link->{anchor} } @sections;
		next if !$there || !$to;
		my ($first, $second) = sort { $a->{first} <=> $b->{first} } $there, $to;
		push @missed, "$page->{name}: [$link->{label}] leads to #$link->{anchor}" if $second->{first} > $first->{last};
	}
	return @missed;
}

my @pages = Pages::all();
my %pages = map { $_->{name} => $_ } @pages;
ok($pages{$_}, "$_ is a page") foreach qw(README.md docs/safety.md test/bench/README.md src/README.md);

subtest 'the checks of pages find what is wrong in made-up pages' => sub {
	my $page = sub { return Pages::page('docs/x.md', $_[0]); };
	my $links = sub {
		my $x = $page->($_[0]);
		return scalar broken_links($x, { %pages, 'docs/x.md' => $x });
	};
	is($links->("# A `b`: c\n\n[1](#a-b-c) [2](safety.md#fencing) [3](../README.md) [4](bench/depth.svg)\n"), 0, 'links');
	is($links->("[1](#nowhere)"), 1, 'no anchor here');
	is($links->("[1](safety.md#nowhere)"), 1, 'no anchor there');
	is($links->("[1](nowhere.md)"), 1, 'no page');
	is($links->("[1\n2](nowhere.md)\n![1](no.svg)"), 2, 'over two lines, a picture');
	is($links->("`[1](nowhere.md)`\n\n```\n[1](nowhere.md)\n```\n"), 0, 'in code is none');
	is($links->("# A\n\n# A\n\n[1](#a-1) [2](#a-2)\n"), 1, 'the second of a name');
	my $sections = sub {
		my $x = $page->($_[0]);
		return scalar missed_sections($x, { %pages, 'docs/x.md' => $x });
	};
	my $tree = "# A\n\n## B c\n\n### D\n\n## `E`\n\n";
	is($sections->("${tree}[b\nc](#b-c) [`E()`](#e) [B c](#d) [D](#b-c) [A](#d) [c](#e)\n"), 0, 'labels that lead to their sections');
	is($sections->("${tree}[B c](#e)\n"), 1, 'to another section');
	is($sections->("[idle sessions](sizing.md#jutemaxbuffer)\n"), 1, 'of another page, too');
	my $long = 'x' x 121;
	is(scalar long_lines($page->("$long\n| $long |\n```\n$long\n```\n" . "\x{e4}" x 120)), 1, 'a long line');
	my $table = "| a | b |\n|---|---:|\n| 1 | 2 |\n";
	is(scalar broken_tables($page->("text\n\n$table\ntext")), 0, 'a table');
	is(scalar broken_tables($page->("$table\n| 3 | 4 |\n")), 1, 'cut in two');
	is(scalar broken_tables($page->("$table| 3 | 4 | 5 |\n")), 1, 'a cell more');
	is(scalar broken_tables($page->("$table| 3 \\| 4 | 5 |\n")), 0, 'a bar that is none');
	is(scalar broken_tables($page->("$table| 3 |\n")), 1, 'a cell less');
	is(scalar broken_tables($page->("text\n$table")), 1, 'text above');
	is(scalar broken_tables($page->("${table}text\n")), 1, 'text below');
	ok(!eval { $page->("```\ncode\n"); 1 }, 'a block without an end');
	my @paths = ('SET search_path = "$user", public, zklock;', 'set `search_path TO zklock, public`',
		"ALTER ROLE x SET\nsearch_path =\n  public, zklock_advisory, pg_catalog");
	is(scalar open_paths($page->(join "\n", @paths)), 3, 'paths in which others may create');
	is(scalar open_paths($page->("SET search_path = app, zklock;\n`SET search_path = public`")), 0, 'and those in which they may not');
};

is(join("\n", map { broken_links($_, \%pages) } @pages), '', 'links lead somewhere');
is(join("\n", map { missed_sections($_, \%pages) } @pages), '', 'labels that are headings lead to their sections');
is(join("\n", map { broken_tables($_) } @pages), '', 'tables are tables');
my @shipped = map { my $name = $_; { name => $name, text => Pages::slurp("$top/$name") } }
  map { s{^\Q$top\E/}{}r } glob "$top/docs/*/*.{sql,yaml,json,py,go,java} $top/docs/recipes/{migrate,run-once,with-lock} $top/compose.yaml";
cmp_ok(scalar @shipped, '>', 10, 'there are files beside the pages');
is(join("\n", map { open_paths($_) } @pages, @shipped), '', 'no search_path has zklock beside a schema in which others may create');
is(join("\n", map { long_lines($_) } @pages), '', "no line of prose has more than $width columns");

# SQL is read beside other things: a tab is four columns.
my @sql = map { s{^\Q$top\E/}{}r } glob "$top/sql/*.sql $top/docs/*/*.sql";
cmp_ok(scalar @sql, '>', 3, 'there are SQL scripts');
is(join("\n", map { my $name = $_; map { "$name: $_" } grep { length(s/\t/    /gr) > 100 } split /\n/, Pages::slurp("$top/$name") } @sql),
	'', 'no line of an SQL script has more than 100 columns');

subtest 'the front page leads to the list of pages, which leads to every page of docs' => sub {
	my %linked = map {
		my $page = $_;
		map { ($page . ' ' . (Pages::destination($pages{$page}, $_->{target}))[0] => 1) } grep { $_->{target} !~ /^https?:/ } Pages::links($pages{$page})
	} 'README.md', 'docs/README.md';
	ok($linked{'README.md docs/README.md'}, 'the front page has a link to the list');
	is_deeply([ grep { m{^docs/[^/]+\.md$} && $_ ne 'docs/README.md' && !$linked{"docs/README.md $_"} } sort keys %pages ], [],
		'the list has every page of docs/');
};

# Whoever has the package has no source: no page of it leads there.
subtest 'the pages that are installed have no link to a file that is not' => sub {
	my $root = PostgreSQL::Test::Utils::tempdir();
	local $ENV{MAKEFLAGS} = '';
	is(system("make -s -C '$top' install-pages DESTDIR='$root' >&2"), 0, 'make install-pages');
	chomp(my $docdir = qx(pg_config --docdir));
	my $installed = "$root$docdir/extension/zklock";
	my @installed = map { s{^\Q$installed\E/}{}r } split /\n/, qx(find '$installed' -type f);
	ok((grep { $_ eq 'docs/using.md' } @installed), 'pages are installed');
	is(join(' ', grep { m{^(src|test)/} } @installed), '', 'no page of src or test is installed');
	my @broken;
	foreach my $name (grep { /\.md$/ } @installed)
	{
		foreach my $link (Pages::links(Pages::page($name, slurp_file("$installed/$name"))))
		{
			my $target = $link->{target} =~ s/#.*//r;
			next if $target eq '' || $target =~ /^(https?|mailto):/;
			push @broken, "$name:$link->{number}: $target" if !-e dirname("$installed/$name") . "/$target";
		}
	}
	is(join("\n", @broken), '', 'no installed page has a link to a file that is missing');
	is(join(' ', grep { -x "$installed/$_" } sort @installed), join(' ', grep { -x "$top/$_" } sort @installed),
		'the scripts of the recipes can be executed where they are installed');
};

# Messages and hints of the code name pages, and their sections.
subtest 'the code names pages and sections that exist' => sub {
	my (@named, @wrong);
	foreach my $file (glob("$top/src/*/*.[ch]"), glob("$top/sql/*.sql"))
	{
		open my $handle, '<', $file or die "could not read $file: $!";
		foreach my $line (<$handle>)
		{
			while ($line =~ m{(docs/\w+\.md)(?:, (\w[\w ]*?)[.)"])?}g)
			{
				my ($name, $section) = ($1, $2);
				push @named, $name;
				my $anchor = lc($section // '') =~ s/ /-/gr;
				push @wrong, "$file: $name, " . ($section // '')
				  unless $pages{$name} && (!$section || Pages::anchors($pages{$name})->{$anchor});
			}
		}
	}
	cmp_ok(scalar @named, '>', 3, 'the code names pages');
	is(join("\n", @wrong), '', 'each page and section that the code names exists');
};

done_testing();
