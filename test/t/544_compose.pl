
# compose.yaml brings up two clusters and an ensemble of three as its text says. "make
# check-images" does so. Here no image is built: the file is read as Docker Compose would read
# it, its variables are those that serve.sh knows, and the lines to paste are run in clusters of
# these names.

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use IPC::Run;
use JSON::PP;
use PostgreSQL::Test::Utils;
use FakeServer;
use ZkLockTest;

my $tree = abs_path(dirname(__FILE__) . '/../..');
my $text = slurp_file("$tree/compose.yaml");
my $serve = slurp_file("$tree/packages/container/serve.sh");
my $containerfile = slurp_file("$tree/packages/container/Containerfile");

subtest 'compose.yaml names stages, variables and members that exist' => sub {
	plan skip_all => 'not installed: python3-yaml' if !-d '/usr/lib/python3/dist-packages/yaml';
	my ($json, $err) = ('', '');
	IPC::Run::run([ '/usr/bin/python3', '-c', 'import json, sys, yaml; print(json.dumps(yaml.safe_load(sys.stdin)))' ],
		'<', \$text, '>', \$json, '2>', \$err);
	is($err, '', 'compose.yaml is YAML');
	my $services = decode_json($json)->{services};
	is(join(' ', sort keys %$services), 'berlin paris zk1 zk2 zk3', 'its services');
	foreach my $name (sort keys %$services)
	{
		my $service = $services->{$name};
		my ($target, %word) = ($service->{build}{target}, %{ $service->{environment} });
		like($containerfile, qr/^FROM \S+ AS \Q$target\E$/m, "$name: a stage that there is");
		is($service->{build}{dockerfile}, 'packages/container/Containerfile', 'the service is built by the Containerfile');
		is(join(' ', grep { $serve !~ /\$\{\Q$_\E\b/ } sort keys %word), '', 'serve.sh knows each variable of the service');
		like($serve, qr/^\t\Q$service->{healthcheck}{test}[2]\E\)$/m, 'serve.sh knows the health check');
		is($word{ZOOKEEPER_MEMBERS} // join(' ', $word{ZOOKEEPER_SERVERS} =~ /(\w+):2181/g), 'zk1 zk2 zk3', 'the service names all members');
		is(($word{ZOOKEEPER_ID} // '') =~ s/^/zk/r, $name, 'the server has its own number') if $target eq 'zookeeper';
		is($word{CLUSTER_NAME}, $name, 'the cluster has its name') if $target eq 'postgres';
		is(join(' ', sort keys %{ $service->{depends_on} // {} }), $target eq 'postgres' ? 'zk1 zk2 zk3' : '', 'the cluster starts after the ensemble');
		ok(!$service->{ports}, 'no open port');
	}
};

subtest 'Containerfile copies and runs scripts that exist' => sub {
	my %script = map { $_ => 1 } $containerfile =~ /\b(\w+\.sh)\b/g;
	cmp_ok(scalar keys %script, '>=', 4, 'Containerfile names scripts');
	ok(-x "$tree/packages/container/$_", $_) foreach sort keys %script;
};

subtest 'the lines to paste of compose.yaml do what they say' => sub {
	my $zk = ZooKeeper->new(servers => 3)->start;
	my %node = map { $_ => cluster($_, $zk, extension => undef) } qw(berlin paris);
	my $bin = PostgreSQL::Test::Utils::tempdir_short();
	open my $docker, '>', "$bin/docker" or die "$bin/docker: $!";
	print $docker <<~SH;
		#!/bin/sh
		case "\$2 \$5" in
		'exec berlin') port=@{[ $node{berlin}->port ]} host=@{[ $node{berlin}->host ]} ;;
		'exec paris') port=@{[ $node{paris}->port ]} host=@{[ $node{paris}->host ]} ;;
		*) exit 0 ;;
		esac
		shift 6
		exec psql -X -h "\$host" -p "\$port" -d postgres -v ON_ERROR_STOP=1 "\$@"
		SH
	close $docker or die "$bin/docker: $!";
	chmod 0755, "$bin/docker" or die "$bin/docker: $!";
	local $ENV{PATH} = "$bin:$ENV{PATH}";
	my @lines = $text =~ /^#   (docker compose .*)/mg;
	cmp_ok(scalar @lines, '>=', 6, 'there are lines to paste');
	my $all = '';
	foreach my $line (@lines)
	{
		my $out = '';
		IPC::Run::run([ 'sh', '-c', $line ], '<', \undef, '>', \$out, '2>&1');
		is($? >> 8, 0, $line);
		note($out);
		$all .= $out;
	}
	like($all, qr/zk_try_lock \n-+\n f\n.*hold: from berlin.*zk_release_hold \n-+\n t\n/s, 'the other cluster sees and releases it');
	my ($port) = $zk->connect_string =~ /:(\d+)/;
	local $ENV{ZOOKEEPER_PORT} = $port;
	command_ok([ "$tree/packages/container/serve.sh", 'zookeeper-serves' ], 'a server with a quorum serves');
	$zk->stop;
	command_fails([ "$tree/packages/container/serve.sh", 'zookeeper-serves' ], 'a server that is stopped does not serve');
	my $mute = FakeServer->new(sub { return 1; });
	local $ENV{ZOOKEEPER_PORT} = $mute->port;
	command_fails([ "$tree/packages/container/serve.sh", 'zookeeper-serves' ], 'a server that takes connections and says nothing does not serve');
};

# Debian's ZooKeeper throws its log away unless it is given where to write it. A health check
# that asks every two seconds would be most of it.
subtest 'the server of the image writes a log, but not of each health check' => sub {
	my $directory = PostgreSQL::Test::Utils::tempdir();
	mkdir "$directory/data" or die "$directory/data: $!";
	local @ENV{qw(ZOOKEEPER_DIRECTORY ZOOKEEPER_PORT)} = ($directory, ZooKeeper::free_port());
	my $log = '';
	my $server = IPC::Run::start([ "$tree/packages/container/serve.sh", 'zookeeper' ], '<', \undef, '>', \$log, '2>&1');
	assert_soon { $server->pump_nb; $log =~ /^20\d\d-\d\d-\d\d [\d:.]+ .*binding to port/m } 'each line of the log has a date', 60;
	assert_soon { system("$tree/packages/container/serve.sh", 'zookeeper-serves') == 0 } 'the health check passes', 60;
	$server->pump_nb;
	unlike($log, qr/Processing srvr/, 'the log has no line of it');
	note($log);
	$server->kill_kill;
	like(slurp_file("$directory/zoo.cfg"), qr{^dataDir=\Q$directory\E/data$}m, 'the data are in the directory that is told');
};

done_testing();
