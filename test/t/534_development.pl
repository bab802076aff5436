
# src/DEVELOPMENT.md names suites, commands and files that exist, and all suites. Tested by
# reading it beside test/check, the Makefile and the tree.

use strict;
use warnings;

use FindBin;
use Pages;
use Test::More;

my $top = "$FindBin::Bin/../..";

my $page = Pages::slurp("$top/src/DEVELOPMENT.md");

my ($suites) = Pages::slurp("$top/test/check") =~ /^all_suites=\((.*?)\)/ms;
my ($table) = $page =~ /^\| suite \|.*?\n(.*?)\n\n/ms;
is_deeply([ $table =~ /^\| `(\w+)` \|/mg ], [ split ' ', $suites ], 'the table has the suites of test/check');

my $makefile = Pages::slurp("$top/Makefile");
# PGXS's, and that of a release
my %is_goal = map { $_ => 1 } qw(clean dist), $makefile =~ /^#   make ([\w-]+)/mg,
  $makefile =~ /^([\w-]+):/mg;
my @goals = $page =~ /\bmake ([a-z][\w-]*)\b/g;
cmp_ok(scalar @goals, '>', 10, 'the page has make commands');
is_deeply([ grep { !$is_goal{$_} } @goals ], [], 'each command is a goal of the Makefile');

my @files = $page =~ m{(?<![\w/="])((?:test|src|sql|docs|expected)/[\w/.-]*\w)}g;
cmp_ok(scalar @files, '>', 10, 'the page names files');
is_deeply([ grep { !-e "$top/$_" && !/--(?:1\.1|A--B|B)\.sql$/ } @files ], [], 'each file of the page exists');

foreach my $pattern ($page =~ /(?<!_)TESTS="?([\w\/.*]+)/g)
{
	my @found = glob "$top/test/$pattern";
	ok(@found && -e $found[0], "$pattern: there are such tests");
}

done_testing();
