
# The check of the map of the tests (test/coverage/map) finds each function and each test that is
# missing, gone or unknown. A small tree is made here for it.

use v5.36;

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use File::Path qw(mkpath);
use lib dirname(__FILE__) . '/../coverage';
use Map;
use PostgreSQL::Test::Utils;
use Test::More;

my $tree = PostgreSQL::Test::Utils::tempdir_short();
mkpath("$tree/$_") foreach qw(src/lock test/t test/sql test/coverage);
write_file('test/coverage/uncovered', "== By chance\nkeep.c never_run +1: return;\n");
write_file('src/lock/keep.c', <<'C');
/* Keeps */
int
keep_lock(void (*done) (int), int n)
{
	return n;
}

static void
never_run(void)
{
}

#define TAKE_FUNCTION(function) \
int function(void) { }

TAKE_FUNCTION(keep_by_macro, 1)
C
write_file("test/$_", '') foreach qw(t/100_long.pl t/102_short.pl t/104_other.pl sql/names.sql);
my $good = <<'MAP';
# A map.

== tests: seconds
sql/names 2.3
t/100 90.4
t/102 3.2
t/104 20.1

== src/lock/keep.c: t/100 t/102 t/104 sql/names
keep_by_macro: t/100 t/102
keep_lock: t/100 t/102 t/104
MAP

sub write_file ($name, $text)
{
	unlink "$tree/$name";
	append_to_file("$tree/$name", $text);
	return;
}

# The map with this text in the place of that one.
sub map_with ($from, $to)
{
	my $text = $good;
	$text =~ s/$from/$to/ or die "there is no $from";
	write_file('test/coverage/map', $text);
	return Map->new($tree);
}

subtest 'the check finds what is wrong with the map' => sub {
	my $says = sub ($from, $to) { return join "\n", map_with($from, $to)->complaints; };
	is($says->('A map', 'A map'), '', 'nothing');
	is($says->("keep_lock: .*\n", ''), 'there is no function keep_lock of src/lock/keep.c in it', 'a function that is missing');
	is($says->("keep_by_macro: .*\n", ''), 'there is no function keep_by_macro of src/lock/keep.c in it', 'a function that is missing, which a macro defines');
	is($says->('keep_lock', "gone: t/102\nkeep_lock"), 'src/lock/keep.c has no function gone', 'a function that is gone');
	is($says->("t/104 20.1\n", ''), 'there is no test/t/104_other.pl in it', 'a test that has no time');
	is($says->('(?<=keep_lock: )', 't/106 '), 'there is no test t/106', 'a test of a function that is gone');
	is($says->('keep.c: ', 'keep.c: t/106 '), 'there is no test t/106', 'a test of a file that is gone');
	is($says->("90.4\nt/102 3.2", "90.0\nt/102 3"), '2 of 4 times are even seconds: they are guesses, not of a run', 'times that nobody measured');
	write_file('src/lock/new.c', "int\nfresh(void)\n{\n}\n");
	is($says->('A map', 'A map'), "there is no src/lock/new.c in it\nthere is no function fresh of src/lock/new.c in it", 'a file that is missing');
	unlink "$tree/src/lock/new.c";
};

subtest 'functions are added until they are measured' => sub {
	my $map = map_with("keep_lock: .*\n", "gone: t/102\n");
	is($map->add_functions, 3, 'two are added, and one is taken out');
	is(slurp_file("$tree/test/coverage/map"), $good =~ s/^(keep_lock: .*)/$1 sql\/names\nnever_run: t\/100 t\/102 t\/104 sql\/names/mr,
		'each gets the tests of its file');
	is(join("\n", Map->new($tree)->complaints), '', 'the map is complete then');
};

done_testing();
