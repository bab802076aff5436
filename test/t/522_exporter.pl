
# The files of docs/monitoring fit each other: the file for postgres_exporter has the queries of
# queries.sql, and the rules and the dashboard use its metrics. With the real exporter and the
# real Prometheus every panel has data and no rule fails.

use FindBin;
use HTTP::Tiny;
use JSON::PP;
use PostgreSQL::Test::Cluster;
use Programs;
use ZkLockTest;

my $directory = "$FindBin::Bin/../../docs/monitoring";
my $queries = slurp_file("$directory/queries.sql");
my $exporter = slurp_file("$directory/postgres_exporter.yaml");
my $rules = slurp_file("$directory/alerts.yaml");
my $dashboard = decode_json(slurp_file("$directory/grafana.json"));

my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk, extension => undef, listen_addresses => '127.0.0.1');
install_as_documented($node, 'postgres');
$node->safe_psql('postgres', 'CREATE ROLE exporter LOGIN IN ROLE pg_monitor');

sub squeezed ($text) { return $text =~ s/\s+/ /gr =~ s/^ | $//gr; }

my (%metric, %label);
subtest 'the file for the exporter has the queries and their columns' => sub {
	my %query;
	$query{$1} = $2 while $queries =~ m{^-- query: exporter/(\S+)\n(.*?);\n}msg;
	my %block = $exporter =~ /^(\w+):\n(.*?)(?=^\w|\z)/msg;
	is_deeply([ sort keys %block ], [ sort keys %query ], 'the file has all queries of the exporter');
	my $session = background($node, user => 'exporter');
	foreach my $name (sort keys %block)
	{
		my ($query, $columns) = $block{$name} =~ /^  query: \|\n(.*?)^  metrics:\n(.*)/ms or die "what is $name?";
		is(squeezed($query), squeezed($query{$name}), "$name: the same");
		my @columns = $columns =~ /^    - (\w+): \{usage: "(?:LABEL|COUNTER|GAUGE)", description: "[^"]+"\}$/mg;
		is(scalar @columns, scalar(() = $columns =~ /^    - /mg), 'each column has its usage and description');
		$session->query_safe("CREATE TEMP TABLE columns_$name AS $query");
		is($session->query_safe("SELECT string_agg(attname, ' ' ORDER BY attnum) FROM pg_attribute
				WHERE attrelid = 'columns_$name'::regclass AND attnum > 0"), "@columns", 'the file has the columns of the query');
		$label{$_} = 1 foreach $columns =~ /^    - (\w+): \{usage: "LABEL"/mg;
		$metric{"${name}_$_"} = 1 foreach $columns =~ /^    - (\w+): \{usage: "[CG]/mg;
	}
};

my @panels = @{ $dashboard->{panels} };
subtest 'each panel of the dashboard asks for metrics that exist' => sub {
	cmp_ok(scalar @panels, '>=', 10, 'it has panels');
	my (%id, %place);
	foreach my $panel (@panels)
	{
		ok(!$id{ $panel->{id} }++ && !$place{"$panel->{gridPos}{x} $panel->{gridPos}{y}"}++, "$panel->{title}: in a place of its own");
		foreach my $target (@{ $panel->{targets} })
		{
			my @used = $target->{expr} =~ /\b(zk_\w+)/g;
			is(join(' ', grep { !$metric{$_} } @used), '', 'the panel uses metrics that exist');
		}
	}
};

my $http = HTTP::Tiny->new(timeout => 30);
sub get ($url) { return $http->get($url)->{content}; }

subtest 'every panel has data and every rule loads in Prometheus' => sub {
	my @needed = grep { !-x "/usr/bin/$_" } qw(prometheus promtool prometheus-postgres-exporter);
	plan skip_all => "not installed: @needed" if @needed;
	my $place = PostgreSQL::Test::Utils::tempdir_short();
	my ($exporter_port, $prometheus_port) = map { PostgreSQL::Test::Cluster::get_free_port() } 1 .. 2;
	local $ENV{DATA_SOURCE_NAME} =
	  'postgresql://exporter@127.0.0.1:' . $node->port . '/postgres?sslmode=disable';
	my $exports = start_program('/usr/bin/prometheus-postgres-exporter',
		"--web.listen-address=127.0.0.1:$exporter_port",
		"--extend.query-path=$directory/postgres_exporter.yaml", '--disable-default-metrics', '--disable-settings-metrics');
	append_to_file("$place/prometheus.yml", <<~YAML);
		global: {scrape_interval: 1s, evaluation_interval: 1s}
		rule_files: ["$directory/alerts.yaml"]
		scrape_configs:
		- job_name: postgres
		  static_configs: [{targets: ["127.0.0.1:$exporter_port"]}]
		YAML
	is(run_program('/usr/bin/promtool', 'check', 'rules', "$directory/alerts.yaml"), 0, 'the rules')
		or diag(last_output());
	my $prometheus = start_program('/usr/bin/prometheus',
		"--config.file=$place/prometheus.yml", "--storage.tsdb.path=$place/data",
		"--web.listen-address=127.0.0.1:$prometheus_port");

	# Some of everything: grants, waits, tries in vain.
	my ($holder, $waiter, $busy, $queued) = map { background($node, search_path => q{zklock}) } 1 .. 4;
	# One that waits whenever the exporter looks.
	$busy->query_safe("SELECT zk_lock('busy')");
	start_in_queue($queued, "SELECT zk_lock('busy')", $zk, lock_path('busy'), 2);
	my $work = sub {
		$holder->query_safe("SELECT zk_lock('nightly')");
		$waiter->query_safe("SELECT zk_try_lock('nightly')");
		start_in_queue($waiter, "SELECT zk_lock('nightly'), zk_unlock('nightly')", $zk, lock_path('nightly'), 2);
		$holder->query_safe("SELECT zk_unlock('nightly')");
		$waiter->wait_result;
	};
	$work->();
	poll_until { $exports->output; get("http://127.0.0.1:$exporter_port/metrics") =~ /^zk_stat_waits/m }
	  'the exporter', 60;
	poll_until { $prometheus->output; get("http://127.0.0.1:$prometheus_port/-/ready") =~ /Ready/i } 'Prometheus', 60;

	my $ask = sub ($expression) {
		$expression =~ s/\$__rate_interval/30s/g;
		$expression =~ s/\$instance/.*/g;
		my $answer = decode_json($http->post_form("http://127.0.0.1:$prometheus_port/api/v1/query", { query => $expression })->{content});
		die "$expression: $answer->{error}" if $answer->{status} ne 'success';
		return grep { $_->{value}[1] ne 'NaN' } @{ $answer->{data}{result} };
	};
	foreach my $panel (@panels)
	{
		foreach my $target (@{ $panel->{targets} })
		{
			assert_soon
			{
				$work->();
				scalar $ask->($target->{expr});
			}
			"$panel->{title}: $target->{legendFormat}", 60;
		}
	}
	my $asked = decode_json(get("http://127.0.0.1:$prometheus_port/api/v1/rules"));
	my @rules = map { @{ $_->{rules} } } @{ $asked->{data}{groups} };
	is(scalar @rules, scalar(() = $rules =~ /^  - alert: /mg), 'all rules are loaded');
	is(join(' ', map { "$_->{name}: $_->{lastError}" } grep { $_->{lastError} } @rules), '', 'no rule fails');
};

done_testing();
