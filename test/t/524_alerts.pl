
# The rules of docs/monitoring/alerts.yaml fire on what a real exporter has seen of an outage, a
# slow disk, a lost lock and a growing queue, and not before. promtool evaluates them on the
# recorded metrics, as if a scrape had come every 15 s. It came every second or so, so time runs
# faster here, and zklock.connect_timeout is shorter. Each rule has a severity, a summary and a
# section of the documentation that exists.

use FindBin;
use HTTP::Tiny;
use Pages;
use PostgreSQL::Test::Cluster;
use Preload;
use Programs;
use ZkLockTest;

my $top = "$FindBin::Bin/../..";
my $rules = slurp_file("$top/docs/monitoring/alerts.yaml");

subtest 'docs/monitoring.md has a row for each rule, with its severity' => sub {
	my %severity = $rules =~ /^  - alert: (\w+).*?severity: (\w+)/msg;
	my ($table) = slurp_file("$top/docs/monitoring.md") =~ /^\| alert \|.*?\n(.*?)\n\n/ms or die 'no table';
	my %told = $table =~ /^\| `(\w+)` \| (\w+) \|/mg;
	is_deeply(\%told, \%severity, 'the table of alerts');
};

subtest 'each alert rule has a severity, a summary and the section of a page' => sub {
	my %anchors = map { $_->{name} => Pages::anchors($_) } Pages::all();
	my @rules = split /^  - alert: /m, $rules;
	shift @rules;
	cmp_ok(scalar @rules, '>=', 9, 'there are rules');
	foreach my $rule (@rules)
	{
		my ($name) = $rule =~ /^(\w+)/;
		like($rule, qr/^    labels: \{severity: (?:critical|warning)\}$/m, "$name has a severity");
		like($rule, qr/^      summary: "\{\{ \$labels\.instance \}\}/m, "$name has a summary, with the cluster first");
		my ($page, $anchor) = $rule =~ m{^      runbook_url: docs/(\S+)#(\S+)$}m or die "$name has no section";
		ok($anchors{"docs/$page"}{$anchor}, "$name: $page has $anchor");
	}
};

subtest 'the alerts fire on what was scraped of an outage, a slow disk, a lost lock and a growing queue' => sub {
	my @needed = grep { !-x "/usr/bin/$_" } qw(promtool prometheus-postgres-exporter);
	plan skip_all => "not installed: @needed" if @needed;
	my $library = Preload::library('slow_sync') or plan skip_all => 'no C compiler';
	my $place = PostgreSQL::Test::Utils::tempdir();
	my $sync = "$place/sync";
	my %zk = (
		outage => ZooKeeper->new,
		disk => ZooKeeper->new(force_sync => 1, environment => { 1 => { LD_PRELOAD => $library, ZKLOCK_TEST_SYNC => $sync } }),
		busy => ZooKeeper->new);
	$_->start foreach values %zk;
	my %node = map {
		$_ => cluster($_, $zk{$_}, extension => undef, listen_addresses => '127.0.0.1',
			'zklock.session_timeout' => '4s', 'zklock.connect_timeout' => '1s')
	} keys %zk;
	foreach my $node (values %node)
	{
		install_as_documented($node, 'postgres');
		$node->safe_psql('postgres', 'CREATE ROLE exporter LOGIN IN ROLE pg_monitor');
	}

	# Its cache of 30 s is two of the scrapes.
	my $queries = slurp_file("$top/docs/monitoring/postgres_exporter.yaml");
	$queries =~ s/^  cache_seconds: 30$/  cache_seconds: 2/m or die 'zk_check is not cached';
	append_to_file("$place/queries.yaml", $queries);
	my %exporter;
	foreach my $name (sort keys %node)
	{
		my $port = PostgreSQL::Test::Cluster::get_free_port();
		local $ENV{DATA_SOURCE_NAME} = 'postgresql://exporter@127.0.0.1:' . $node{$name}->port . '/postgres?sslmode=disable';
		$exporter{$name} = { url => "http://127.0.0.1:$port/metrics", program => start_program('/usr/bin/prometheus-postgres-exporter',
			"--web.listen-address=127.0.0.1:$port", "--extend.query-path=$place/queries.yaml", '--disable-default-metrics', '--disable-settings-metrics') };
	}
	my $http = HTTP::Tiny->new(timeout => 60);
	# Each series by cluster, name and labels: the value of each scrape.
	my (%series, $nscrapes);
	my $scrape = sub {
		foreach my $name (sort keys %exporter)
		{
			$exporter{$name}{program}->output;
			my $text = $http->get($exporter{$name}{url})->{content};
			while ($text =~ /^(zk_\w+\{.*\}) (\S+)$/mg)
			{
				my ($key, $value) = ($1, $2);
				$series{$name}{ $key =~ s/\bserver="[^"]*"/instance="$name"/r }[$nscrapes] = $value;
			}
		}
		$nscrapes++;
	};
	poll_until { %series = (); $nscrapes = 0; $scrape->(); 3 == grep { grep { /^zk_check/ } keys %$_ } values %series } 'the exporters', 60;

	# Programs that take locks over and over, and go on after an error.
	my @programs = map {
		my ($name, $lock) = split ' ';
		my $script = "$place/$lock.sql";
		append_to_file($script, "SELECT zklock.zk_lock('$lock');\nSELECT zklock.zk_unlock('$lock');\nSELECT pg_sleep(0.3);\n" x 300);
		start_program('psql', '-X', '-q', '-o', '/dev/null', '-d', $node{$name}->connstr('postgres'), '-f', $script);
	} 'outage one', 'disk two', 'disk three', 'busy four';
	my ($holder, @waiters) = map { background($node{busy}, search_path => 'zklock') } 0 .. 13;
	$holder->query_safe("SELECT zk_lock('queue')");
	my $victim = background($node{busy}, search_path => 'zklock', first => "SELECT zk_lock('evicted')");
	my $turn = sub ($do = sub { }) {
		my $until = time + 1;
		$do->();
		$scrape->();
		sleep($until - time) if time < $until;
	};

	$turn->() foreach 1 .. 12;
	my $well = $nscrapes;
	$zk{outage}->stop;
	append_to_file($sync, '1000');
	$holder->query_safe("SELECT zk_evict('evicted', token) FROM zk_lock_queue('evicted')");
	is($victim->query_safe("SELECT zk_unlock('evicted')"), 'f', 'the lock was lost');
	my @waiting;
	foreach (1 .. 32)
	{
		$turn->(sub {
			if (my $waiter = shift @waiters)
			{
				$waiter->start_query("SELECT zk_lock('queue')");
				push @waiting, $waiter;
			}
			$_->is_done foreach @waiting;
			$_->output foreach @programs;
		});
	}
	unlink $sync;

	my %must = (
		outage => [ [ ZooKeeperIsAway => 8 ], [ CallsWithoutAnswer => 8 ], [ ZooKeeperSessionsLost => 12 ] ],
		disk => [ [ ZooKeeperIsSlow => 32 ] ],
		busy => [ [ LocksDeleted => 8 ], [ QueuesGrow => 32 ] ]);
	my %may = (outage => [], disk => [ 'ZooKeeperSessionsLost', 'CallsWithoutAnswer' ], busy => []);
	my $at = sub ($turns) { return 15 * ($turns - 1) . 's' };
	my $test = "rule_files: [alerts.yaml]\nevaluation_interval: 15s\ntests:\n";
	foreach my $instance (sort keys %must)
	{
		$test .= "- interval: 15s\n  input_series:\n";
		foreach my $name (sort keys %{ $series{$instance} })
		{
			# What a scrape lacks is gone.
			my @values = map { $_ // 'stale' } @{ $series{$instance}{$name} }[ 0 .. $nscrapes - 1 ];
			$test .= "  - {series: '$name', values: '@values'}\n";
		}
		$test .= "  promql_expr_test:\n";
		my $expect = sub ($select, $turns, $value) {
			$test .= "  - {expr: 'count(ALERTS{alertstate=\"firing\",$select}) > bool 0 or vector(0)', eval_time: "
			  . $at->($turns) . ", exp_samples: [{labels: '{}', value: $value}]}\n";
		};
		$expect->('alertname!=""', $well, 0);
		$expect->("alertname=\"$_->[0]\"", $well + $_->[1], 1) foreach @{ $must{$instance} };
		my $others = join '|', (map { $_->[0] } @{ $must{$instance} }), @{ $may{$instance} }, 'ZkCheckHasFindings';
		$expect->("alertname!~\"$others\"", $nscrapes, 0);
	}
	append_to_file("$place/alerts.yaml", $rules);
	append_to_file("$place/test.yaml", $test);
	is(run_program('/usr/bin/promtool', 'test', 'rules', "$place/test.yaml"), 0, 'promtool finds what is to fire, and nothing else')
	  or diag(last_output(), $test);
	$_->kill foreach @programs;
};

done_testing();
