
# The queries of docs/monitoring.md, and of the files beside it, run as the role that the page
# asks for and show what it says; and the alert rules use no metric that the exporter's queries
# do not have. Tested in a cluster with a holder, a waiter and an outage.

use FindBin;
use ZkLockTest;

my $docs = "$FindBin::Bin/../../docs";
my $page = slurp_file("$docs/monitoring.md");
my $queries = slurp_file("$docs/monitoring/queries.sql");
my %query;
$query{$1} = $2 while $page =~ /^<!-- query: (\S+) -->\n```sql\n(.*?)^```$/msg;
$query{$1} = $2 while $queries =~ /^-- query: (\S+)\n(.*?;\n)/msg;
my $ncomments = () = "$page$queries" =~ /^(?:<!--|--) query: /mg;
is(scalar keys %query, $ncomments, 'each name has a query of its own');

my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk, extension => undef, search_path => 'public, zklock');
install_as_documented($node, 'postgres');
$node->safe_psql('postgres', 'CREATE ROLE exporter LOGIN IN ROLE pg_monitor; CREATE ROLE app LOGIN');
my $exporter = background($node, user => 'exporter');
my ($holder, $waiter) = map { background($node, user => 'app') } 1 .. 2;

# The rows, each a list of its columns.
sub rows ($sql) { return map { [ split /\|/, $_, -1 ] } split /\n/, $exporter->query_safe($sql); }

# Those of a query that has a name.
sub run ($name, $change = undef)
{
	my $sql = delete $query{$name} or die "there is no query $name";
	return rows($change ? $change->($sql) : $sql);
}

# The columns that are numbers: metrics are called like them.
sub metrics ($name)
{
	my $sql = $query{"exporter/$name"} or die "there is no query $name";
	$sql =~ s/;\s*$//;
	my %is_label = map { $_ => 1 } qw(datname usename state le item lock);
	return map { "${name}_$_" } grep { !$is_label{$_} } split /\n/,
	  $exporter->query_safe("SELECT DISTINCT k FROM ($sql) AS q, json_object_keys(row_to_json(q)) AS k");
}

$holder->query_safe("SELECT zk_lock('nightly'), zk_lock_shared('team/report')");
$waiter->start_query("SELECT zk_lock('nightly')");
poll_until
{
	$exporter->query_safe("SELECT count(*) FROM zk_backends WHERE waiting_for = 'nightly'") == 1
}
'it to wait', 30;

subtest "the alert rules use metrics that the exporter's queries have" => sub {
	my %metric = map { $_ => 1 } map { metrics($_) } qw(zk_stat zk_wait_seconds zk_backends zk_awaited zk_check);
	my $rules = slurp_file("$docs/monitoring/alerts.yaml");
	$rules =~ s/#.*|^      (?:summary|runbook_url): .*//mg;
	my @used = $rules =~ /\b(zk_\w+)\b/g;
	cmp_ok(scalar @used, '>=', 8, 'there are rules');
	is_deeply([ grep { !$metric{$_} } @used ], [], 'the rules use metrics of the queries');
	my @alerts = $rules =~ /^  - alert: (\w+)/mg;
	my @expressions = $rules =~ /^    expr: \S/mg;
	is(scalar @expressions, scalar @alerts, 'each has an expression');
};

subtest 'the queries for looking show holders and waiters' => sub {
	my $pid = $holder->pid;
	my @of = run('look/locks-of', sub { $_[0] =~ s/4711/$pid/r });
	is(join(' ', sort map { $_->[0] } @of), 'nightly team/report', 'the locks of a pid');
	my @holders = run('look/holders');
	is(join(' ', map { "@$_[0, 1, 2, 3]" } @holders),
		"$pid postgres app nightly $pid postgres app team/report", 'who holds, the longest first');
	like($holders[0][-1], qr/^SELECT zk_lock\('nightly'\)/, 'the row has the last statement of the holder');
	my @waiters = run('look/waiters');
	is(join(' ', map { "@$_[0, 1, 2, 3, 4, 6]" } @waiters),
		$waiter->pid . " postgres app nightly exclusive {$pid}", 'who waits, and behind whom');
	my @top = run('look/top');
	is(join(' ', map { "@$_[0, 1, 3, 4]" } @top), "nightly 1 $pid app team/report 0 $pid app", 'the most awaited lock first, and its holder');
	is(join(' ', map { $_->[-1] } @top), 'idle idle', 'the rows say what the holder does');
};

subtest 'the queries of the exporter show numbers of the database' => sub {
	my @stat = run('exporter/zk_stat');
	is(scalar @stat, 1, 'a row for the database');
	is("@{$stat[0]}[0, 1]", 'postgres 2', 'the row has the database and its number of grants');
	my %severity = map { $_->[0] => $_->[1] } run('exporter/zk_check');
	is("$severity{ensemble} $severity{'not looked at'}", '1 1', 'a single server is a note, and the rows that need a session are');
	my $sql = $query{'exporter/zk_backends'};
	my @backends = run('exporter/zk_backends');
	is("@{$backends[0]}[0 .. 4]", 'postgres connected 2 2 1', 'backends by state');
	cmp_ok($backends[0][6], '>', 0, 'the row has the longest wait');
	poll_until { (rows($sql))[0][5] == 1 } 'who is blocked', 30;
	is(join(' ', map { "@$_[0 .. 2]" } run('exporter/zk_awaited')), 'postgres nightly 1', 'the lock that is awaited');

	$holder->query_safe("SELECT zk_unlock('nightly')");
	$waiter->wait_result;
	my @waits = run('exporter/zk_wait_seconds');
	is(scalar @waits, 13, 'a row for each bound');
	is($waits[-1][1], '+Inf', 'the last has all');
	is($waits[-1][2], 1, 'the last bound has all waits');
	is((grep { $_ && $waits[$_][2] < $waits[ $_ - 1 ][2] } 0 .. $#waits), 0, 'each bound counts those before it');
};

subtest 'the query of alerts shows a long wait, an idle holder and an outage' => sub {
	my $soon = $query{'alert/now'} =~ s/interval '.*?'/interval '0'/gr;
	my $alert = sub ($pattern) { return scalar grep { $_->[3] =~ $pattern } rows($soon); };
	is(scalar run('alert/now'), 0, 'nothing is wrong');
	$waiter->start_query("SELECT zk_lock('team/report')");
	assert_soon { $alert->(qr{^waits for lock team/report$}) } 'a long wait', 30;
	ok($alert->(qr{^holds lock team/report while idle$}), 'an idle holder');
	$zk->stop;
	assert_soon { $alert->(qr/^session is (suspended|lost)$/) } 'an outage', 30;

	# The holder sees it, too, and runs nothing from then on.
	my $state = 'SELECT state FROM zk_backends WHERE pid = ' . $holder->pid;
	poll_until { $holder->query('SELECT 1'); $exporter->query_safe($state) =~ /suspended|lost/ } 'the holder to notice', 30;
	$zk->start;
	poll_until { !$alert->(qr/^session is/) } 'nobody to be in trouble', 30;
	assert_soon { $exporter->query_safe($state) ne 'suspended' } 'the idle backend is connected again', 30;
	$holder->query("SELECT zk_unlock_all()");
	$waiter->wait_result;
};

is_deeply([ sort keys %query ], [], 'no query was left out');

done_testing();
