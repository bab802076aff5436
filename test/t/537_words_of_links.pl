
# A link leads where its label says, and what a page calls by its name exists: files of the
# source tree, functions of C, and sections "above" and "below". The subject of a sentence is a
# noun. Tested by reading all pages, and made-up ones with each of the faults that were once found.

use strict;
use warnings;

use FindBin;
use Pages;
use Test::More;

my $top = "$FindBin::Bin/../..";
my @pages = Pages::all();
my %pages = map { $_->{name} => $_ } @pages;

# Words that say nothing of where a link leads.
my %says_nothing = map { $_ => 1 } qw(
  this that these those with from into over more most what when where which whose does have been being
  also each other others only than then them they there their here such some your ours about after
  before between until while will would could should must cannot them like just very much many
  details detail section page below above described explained measured shown);

# The section of an anchor; of no anchor the whole page.
sub section
{
	my ($page, $anchor) = @_;
	my ($section) = grep { $anchor eq '' || $_->{anchor} eq $anchor } Pages::sections($page) or return;
	return $anchor eq '' ? { %$section, text => $page->{text} } : $section;
}

# Words of a text by their stems: lock, locks, locked and locking are one.
sub stems
{
	my ($text) = @_;
	return map { s/(?:ing|ed|es|s|e|y|ies|ion|ions)$//r } map { lc } $text =~ /([A-Za-z]{4,})/g;
}

# What is wrong with the labels of a page, a line each.
sub wrong_labels
{
	my ($page, $pages) = @_;
	my @wrong;
	foreach my $link (grep { $pages->{ $_->{name} } } Pages::labels($page))
	{
		my $label = $link->{label};
		my $section = section($pages->{ $link->{name} }, $link->{anchor}) or next;
		my $where = "$page->{name}:$link->{number}: [$label] leads to $link->{name}"
		  . ($link->{anchor} ne '' ? "#$link->{anchor}" : '');
		# A file, a decision by its number, and what is called by its name.
		if ($label =~ m{([\w.-]+\.md)\b})
		{
			push @wrong, $where if $link->{name} !~ m{(?:^|/)\Q$1\E$};
		}
		elsif ($label =~ /\bdecision (\d+)/i)
		{
			push @wrong, $where if $link->{name} !~ m{/0*$1-};
		}
		elsif (my @called = $label =~ /\b(zk_\w+|zklock\.\w+)/g)
		{
			push @wrong, $where if !grep { $section->{text} =~ /\Q$_\E\b/ } @called;
		}
		elsif ($label =~ /^(above|below)$/i)
		{
			my $is_below = lc $1 eq 'below';
			push @wrong, $where
			  if $link->{name} ne $page->{name} || $is_below != ($section->{first} > $link->{number});
		}
		else
		{
			my @words = grep { !$says_nothing{$_} } map { lc } $label =~ /([A-Za-z]{4,})/g;
			# The page's own name counts, too: a label may name the page, and lead to a section of it.
			my ($title) = $pages->{ $link->{name} }{text} =~ /^# (.*)/m;
			my %there = map { $_ => 1 } stems(join ' ', $link->{name} =~ tr{/._-}{ }r, $title, $section->{heading}, $section->{text});
			push @wrong, $where if @words && !grep { $there{$_} } stems("@words");
		}
	}
	return @wrong;
}

# Files that a page names, and functions of C that a page for developers names.
my $source = join '', map { Pages::slurp($_) } glob "$top/src/*/*.[ch] $top/test/unit/*.c $top/test/*/*.c";

sub missing_names
{
	my ($page) = @_;
	my @missing;
	foreach my $line (grep { !$_->{is_code} } @{ $page->{lines} })
	{
		my $where = "$page->{name}:$line->{number}";
		push @missing, map { "$where: $_" }
		  grep { !-e "$top/$_" && !-e "$top/test/$_" && !/--(?:A--)?B\.sql$/
			  && !-e "$top/" . ($page->{name} =~ s{[^/]*$}{}r) . $_ }
		  $line->{text} =~ m{`((?:(?:src|test|sql|docs|packages)/|t/\d)[\w/.-]*\.\w+)`}g;
		next if $page->{name} !~ m{^(?:docs/decisions|src)/};
		push @missing, map { "$where: $_()" } grep { $source !~ /\b\Q$_\E\b/ }
		  $line->{text} =~ /`((?:zklock|recipe|contender|program|lease|session|keep|answer)_\w+)\(\)`/g;
	}
	return @missing;
}

# Sentences whose subject is "who" or "whoever", and pronouns of persons: each of them stands for
# a holder, a waiter, a client, a role.
sub riddles
{
	my ($page) = @_;
	my $text = Pages::prose($page) =~ s/(`+).*?\1/`code`/gsr;
	my @riddles;
	while ($text =~ /(?:\A|\n\n|\n *[-*|] *(?:\*\*)?|(?<=[.:;!|])\s+)(Who(?:ever|se)?\b[^.?!|]*(?:[.?!|]|\z))|\b([Hh]e|[Hh]is|him|himself|[Ss]he|whoever)\b/g)
	{
		my ($sentence, $person) = ($1, $2);
		my $line = 1 + (substr($text, 0, $+[0]) =~ tr/\n//);
		next if !$person && $sentence =~ /[?]$/;
		push @riddles, "$page->{name}:$line: " . ($person // $sentence) =~ s/\s+/ /gr;
	}
	return @riddles;
}

subtest 'each kind of wrong label, and of missing name, is found in made-up pages' => sub {
	my $wrong = sub {
		my $page = Pages::page('docs/x.md', $_[0]);
		return scalar wrong_labels($page, { %pages, 'docs/x.md' => $page });
	};
	is($wrong->("[safety.md](safety.md) [decision 4](decisions/0004-fresh-proofs.md) [`zk_fence()`](safety.md#fencing)\n"), 0, 'right labels');
	is($wrong->("[safety.md](using.md)\n"), 1, 'another page');
	is($wrong->("[decision 4](decisions/0005-session-per-backend.md)\n"), 1, 'another decision');
	is($wrong->("[`zk_run_once()`](safety.md#fencing)\n"), 1, 'a function of which the section does not speak');
	is($wrong->("[below](#a) [above](#b)\n\n# A\n\n# B\n"), 1, 'below and above');
	is($wrong->("[elephants](safety.md#fencing)\n"), 1, 'a word that is not there');
	my $missing = sub { return scalar missing_names(Pages::page('docs/decisions/x.md', $_[0])); };
	is($missing->("`src/README.md` `test/t/536_pages.pl` `t/536_pages.pl` `recipe_verdict()`\n"), 0, 'what exists');
	my $riddles = sub { return scalar riddles(Pages::page('docs/x.md', $_[0])); };
	is($riddles->("Who holds it? The holder.\n\n- **Who waits?** A waiter, which `his` shows.\n"), 0, 'questions');
	is($riddles->("Who waits gets it.\n\nIt ends. Whoever waits gets it.\n\n- Who has it, keeps it.\n\nHe waits.\n"), 4, 'who, as a subject');
	is($riddles->("It is for whoever comes with his own.\n"), 2, 'whoever, and his');
	is($missing->("`src/nothing.c`\n`t/999_nothing.pl`\n`recipe_nothing()`\n"), 3, 'what does not');
};

is(join("\n", map { wrong_labels($_, \%pages) } @pages), '', 'links lead where their labels say');
is(join("\n", map { riddles($_) } @pages), '', 'the subject of a sentence is a noun');
is(join("\n", map { missing_names($_) } @pages), '', 'files and functions that pages name exist');

done_testing();
