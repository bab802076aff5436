
# Scripts, programs and queries of this repository that are run or pasted by superusers and
# monitors run nothing that the owner of the database has planted (test/lib/Planted.pm). Files
# with SQL are found, not listed: one that this test does not know how to run fails. Each is also
# run without the schemas in its names, and must then set off the alarm.

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use File::Find qw(find);
use Pages;
use Planted;
use PostgreSQL::Test::Utils qw(slurp_file);
use ZkLockTest;

my $top = abs_path(dirname(__FILE__)) . '/../..';
my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk, extension => undef);
install_as_documented($node, 'postgres');
$node->safe_psql('postgres', 'CREATE ROLE exporter LOGIN IN ROLE pg_monitor;
	CREATE ROLE tool; CREATE ROLE etl; CREATE ROLE anna; CREATE ROLE payroll; CREATE ROLE worker');

my $word = qr/\b(?:SELECT|CALL|INSERT INTO|UPDATE|DELETE FROM|TRUNCATE|GRANT|CREATE (?:TABLE|FUNCTION|PROCEDURE|VIEW|SCHEMA|EXTENSION))\s/;

# A statement for all: what it does is of no concern here, only whom it calls. Of a superuser's
# terminal nothing is safe that calls what is the user's own.
sub filled ($sql)
{
	$sql =~ s/:'\w+'|%s|\$\d+/'4711'/g;
	# setString() of JDBC
	$sql =~ s/\?/'4711'::pg_catalog.varchar/g;
	return $sql =~ s/;?\s*\z/;\n/r;
}

# The literals of a program or shell script that are SQL.
sub literals ($text)
{
	$text =~ s/" \+ \w+ \+ "/4711/g;
	my @found;
	push @found, $2 while $text =~ /(["'])((?=$word)(?:(?!\1).)*)\1/gs;
	return grep { !/^CALL \w+_work\(\)$/ } @found;
}

# How the files are run whose names match: as whom, and what. The first that fits.
my $as_monitor = { user => 'exporter' };
my @kinds = (
	[ qr{^docs/migrating/\w+\.sql$} => {}, sub ($text) { return $text } ],
	[ qr{^docs/monitoring/\w+\.sql$} => $as_monitor, sub ($text) { return $text } ],
	[ qr{^docs/monitoring/\w+\.yaml$} => $as_monitor,
		sub ($text) { return map { filled($_) } $text =~ /^  query: \|\n(.*?)^  metrics:/msg } ],
	[ qr{^docs/monitoring/\w+\.json$} => {}, sub ($text) { return map { filled(s/\(name\)/('nightly')/r) } $text =~ /"description": "(SELECT .*?) shows/g } ],
	[ qr{^(?:docs/(?:recipes|migrating)/[\w-]+(?:\.(?:py|go|java))?|compose\.yaml|packages/container/\w+\.sh)$} => {},
		sub ($text) { return map { filled($_) } literals($text) } ]);

# What such a script has made is run, too.
my %then = (
	'docs/migrating/advisory.sql' => <<~'SQL',
		SELECT * FROM zklock_advisory.in_use;
		SELECT zklock_advisory.current_schemas(true);
		SELECT zklock_advisory.pg_advisory_lock(1), zklock_advisory.pg_advisory_lock(1, 1);
		SELECT zklock_advisory.pg_try_advisory_xact_lock(1), zklock_advisory.pg_advisory_unlock_all();
		CALL zklock_advisory.allow_local('tool');
		CALL zklock_advisory.refuse_local('tool');
		CALL zklock_advisory.allow_local();
		CALL zklock_advisory.refuse_local();
		SQL
	'docs/migrating/fence.sql' => <<~'SQL');
		SELECT zklock.zk_fence('accounts', 7);
		SELECT zklock.zk_fence('accounts', 8, '/team');
		SQL

# What is to be gone before it is run once more. Two are for databases without the extension.
my %undo = (
	'docs/migrating/advisory.sql' => 'DROP SCHEMA IF EXISTS zklock_advisory CASCADE',
	'docs/migrating/fence.sql' => 'DROP SCHEMA IF EXISTS zklock CASCADE',
	'README.md' => 'DROP EXTENSION IF EXISTS zklock; DROP SCHEMA IF EXISTS zklock');
my %is_without = map { $_ => 1 } qw(docs/migrating/fence.sql README.md);

# What is not for a database of somebody else: it makes one.
my %not_run = ('compose.yaml' => qr/^CREATE (?:SCHEMA|EXTENSION) zklock\b/);

my @files;
find(
	{
		no_chdir => 1,
		preprocess => sub { return sort @_ },
		wanted => sub { push @files, substr $_, 1 + length $top if -f && !/\.(?:md|svg)$/ }
	},
	"$top/docs", "$top/packages", "$top/debian", "$top/compose.yaml");
cmp_ok(scalar @files, '>', 20, 'there are files: ' . @files);

# What there is to be run of each, and how.
my %run;
foreach my $file (@files)
{
	my $text = slurp_file("$top/$file");
	# What is run, and neither said in a comment nor what calls are made with.
	my $code = $text =~ s{^\s*(?:#|//|--).*\n}{}mgr;
	$code = $text if $file eq 'compose.yaml';
	next if $code !~ $word;
	my ($kind) = grep { $file =~ $_->[0] } @kinds;
	if (!$kind)
	{
		fail("$file has SQL, and nobody knows how to run it");
		next;
	}
	my $skipped = $not_run{$file} || qr/^(?!)/;
	my @statements = grep { !/$skipped/ } $kind->[2]->($text);
	my $expected = () = $code =~ /$word/g;
	my $found = () = join("\n", @statements, $text =~ /["'](CALL \w+_work\(\))["']/g, grep { /$skipped/ } literals($text)) =~ /$word/g;
	cmp_ok($found, '>=', $expected, "$file: all of its SQL is run");
	$run{$file} = { %{ $kind->[1] }, sql => join '', @statements };
}
cmp_ok(scalar keys %run, '>', 12, 'some have SQL: ' . keys %run);

# What is not for everybody is called by those who trust no owner: behind that line, or by its
# schema. In a procedure it is the procedure's caller who calls.
my $line = qr/^\s*SET search_path = zklock;/m;
my $guarded = join '|', split /\n/, $node->safe_psql('postgres', <<~'SQL');
	SELECT DISTINCT proname FROM pg_proc WHERE pronamespace = 'zklock'::regnamespace
		AND NOT has_function_privilege('worker', oid, 'EXECUTE') AND NOT has_function_privilege('zklock_job', oid, 'EXECUTE')
		AND proname NOT IN (SELECT proname FROM pg_proc WHERE has_function_privilege('worker', oid, 'EXECUTE'))
	SQL
sub unguarded ($page)
{
	my (@wrong, $is_set);
	foreach my $block (grep { $_->{language} eq 'sql' } Pages::blocks($page))
	{
		$is_set ||= $block->{code} =~ $line;
		push @wrong, "$page->{name}:$block->{line}: $1" if !$is_set && $block->{code} =~ /(?<![.\w])($guarded)\(/ && $block->{code} !~ /^CREATE PROCEDURE/;
	}
	return @wrong;
}
is(scalar unguarded(Pages::page('x.md', "```sql\nSELECT zk_hold('a', 'b');\n```\n\n```sql\nSELECT zklock.zk_evict('a', 1);\nSET search_path = zklock;\nSELECT zk_check();\n```\n")), 1,
	'a call for operators before that line');
is(join("\n", map { unguarded($_) } Pages::all()), '', 'no page has such a call');

# The pages for superusers, operators and monitors. The functions that any file or page calls get
# some of each name that fit better.
my @pages = grep { grep { $_->{language} eq 'sql' && $_->{code} =~ $line } Pages::blocks($_) } Pages::all();
cmp_ok(scalar @pages, '>=', 5, 'pages: ' . join ' ', map { $_->{name} } @pages);
my %called;
$called{$_} = 1 foreach map { /\b([a-z_0-9]+)\(/g } map { $_->{sql} } values %run;
$called{$_} = 1 foreach map { /\b([a-z_0-9]+)\(/g } map { map { $_->{code} } Pages::blocks($_) } @pages;
my %is_known = map { $_ => 1 } split /\n/,
  $node->safe_psql('postgres', q{SELECT DISTINCT proname FROM pg_proc WHERE pronamespace IN ('pg_catalog'::regnamespace, 'zklock'::regnamespace)});
my @names = sort grep { $is_known{$_} && !/^(?:coalesce|interval)$/ } keys %called;
cmp_ok(scalar @names, '>', 30, 'functions that are called: ' . @names);

my $planted = Planted->new($node, @names);

$planted->make($_) foreach qw(installed bare);
install_as_documented($node, 'installed');

# What rings if that is run; which errors there are; all that it writes.
sub try ($file, $path, $sql)
{
	my $database = $is_without{$file} ? 'bare' : 'installed';
	$planted->set_path($database, $path);
	my (undef, $output) = $planted->run($database, user => $run{$file} && $run{$file}{user}, sql => $sql);
	$output .= ($planted->run($database, sql => $then{$file}))[1] if $then{$file};
	my $alarm = $planted->alarm($database);
	ask($node, $undo{$file}, $database) if $undo{$file};
	return ($alarm, join("\n", $output =~ /^psql:\S+ ((?:ERROR|FATAL):.*)$/mg), $output);
}

subtest 'planted functions, operators and casts that fit better are found by this test' => sub {
	my @better = ("SELECT format('%s %s', 'x'::name, 'y'::name)", "SELECT 'x'::name ~ 'x'::varchar",
		"SELECT 'pg_class'::regclass = 'pg_class'::regclass", 'SELECT * FROM zk_stat', "SELECT zk_lock('x'::name)");
	my @found = ([ @better, 'SELECT count(*) FROM pg_class', 'SELECT now()', 'SELECT 1 + 1' ], \@better, [ "SELECT 'x'::text", 'SELECT 1::oid' ]);
	foreach my $i (0 .. $#Planted::paths)
	{
		foreach my $sql ($found[$i]->@*)
		{
			my ($alarm, undef, $output) = try('', $Planted::paths[$i], "$sql;");
			is($alarm, 'something was run, the owner is superuser', "$Planted::paths[$i]: $sql") or diag($output);
		}
	}
};

foreach my $file (sort keys %run)
{
	subtest "$file runs nothing that the owner of the database has planted" => sub {
		foreach my $path (@Planted::paths)
		{
			my ($alarm, $errors, $output) = try($file, $path, $run{$file}{sql});
			is($alarm, '', "$path: runs nothing of the owner's") or diag($output);
			is($errors, '', "$path: and works") if $file =~ /^docs\/mi|^docs\/mo/;
		}
		my $bare = $run{$file}{sql} =~ s/^SET LOCAL search_path.*$//mr;
		$bare =~ s/OPERATOR\(pg_catalog\.(\S+)\)/$1/g;
		$bare =~ s/\b(?:pg_catalog|zklock)\.(?=[a-z_]+[ (])//g if $file !~ /^docs\/migrating\/\w+\.sql/;
		return pass('has none of the kind') if $bare eq $run{$file}{sql};
		my ($alarm, undef, $output) = try($file, $Planted::paths[0], $bare);
		isnt($alarm, '', 'without its schemas it would run what was planted') or diag($output);
	};
}

# Session by session, as they are read. What a block says of a situation, pids for example, is
# not so: that is an error, and no alarm.
foreach my $page (@pages)
{
	subtest "SQL of $page->{name} runs nothing that the owner of the database has planted" => sub {
		my $sql = join "\n", map { $_->{code} =~ s/\b4711\b/1/gr } grep { $_->{language} eq 'sql' } Pages::blocks($page);
		# What stands before is a program's.
		$sql =~ s/\A.*?(?=^CREATE SCHEMA zklock|^SET search_path = zklock)//ms;
		foreach my $path (@Planted::paths)
		{
			my ($alarm, undef, $output) = try($page->{name}, $path, $sql);
			is($alarm, '', "$path: nothing of the owner's") or diag($output);
		}
		return pass('it calls nothing of zklock') if $sql !~ /(?<![.\w])zk_\w+/;
		my ($alarm) = try($page->{name}, $Planted::paths[0], $sql =~ s/$line.*//gr);
		isnt($alarm, '', 'without the first line planted functions would be run');
	};
}

# Schemas that we are about to make are his already: then nothing is done.
subtest 'scripts do not use a schema of their name that is there already' => sub {
	foreach my $schema (qw(zklock_advisory zklock))
	{
		my $file = $schema eq 'zklock' ? 'docs/migrating/fence.sql' : 'docs/migrating/advisory.sql';
		my $database = $is_without{$file} ? 'bare' : 'installed';
		$planted->set_path($database, $Planted::paths[0]);
		$planted->run($database, user => $Planted::owner, sql => "CREATE SCHEMA $schema;");
		my ($status, $output) = $planted->run($database, sql => $run{$file}{sql});
		is($status, 3, "$file ends");
		like($output, qr/ERROR:  schema "$schema" already exists/, 'the error says why');
		is($planted->alarm($database), '', 'nothing was run');
		$node->safe_psql($database, $undo{$file});
	}
};

done_testing();
