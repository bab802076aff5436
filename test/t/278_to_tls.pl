# An ensemble and its clients go from plain connections to TLS, one server after the other and
# then one cluster after the other, as docs/tls.md tells it: no server's restart costs a lock, and
# locks pass between clusters with and without TLS. Tested
# with three real servers and two clusters, and with the commands and settings of that page.

use Certificates;
use File::Basename qw(dirname);
use Pages;
use ZkLockTest;

Certificates::need_tls();
plan skip_all => 'it begins without TLS' if $ENV{ZKLOCK_TEST_TLS};

# The blocks of the page, by what their comments name.
my $top = dirname(__FILE__) . '/../..';
my @blocks = Pages::blocks(Pages::page('docs/tls.md', Pages::slurp("$top/docs/tls.md")));
my %block = map { ($_->{value} => $_->{code}) } @blocks;
# The clusters of the tests have it in another schema.
my ($check) = grep { /FROM zk_check/ } map { $_->{code} =~ s/\bzklock\.(?=zk_)//gr } @blocks;

my $directory = PostgreSQL::Test::Utils::tempdir();
my $commands = $block{'tls/certificates'} =~ s/zk1\.example/localhost/gr;
system_or_bail('sh', '-e', '-c', 'cd "$0" && eval "$1" 2>openssl.log', $directory, $commands);

chomp(my $path = qx(CLASSPATH=zookeeper.jar; $block{'tls/classpath'} echo "\$CLASSPATH"));
is($path, join(':', 'zookeeper.jar', ZooKeeper::netty_jars()), 'the page adds the jars of Netty that a server of the tests has');

is(join("\n", grep { /\.(?:key|pem)\b/ && !/ -m 600 / } map { $_->{code} =~ /^install .*/mg } @blocks), '',
	'whoever installs a key as the page says is the only one who reads it');

# The settings that the page names, with the files that its commands have made.
sub settings_of ($name)
{
	my %setting = $block{$name} =~ /^([\w.]+) *= *'?([^\s']+)'?/mg;
	s{^(?:.*/)?(z[^/]*\.(?:crt|key|pem))$}{$directory/$1} foreach values %setting;
	return %setting;
}
my %of_server = settings_of('tls/server');
my %of_cluster = settings_of('tls/cluster');

my $zk = ZooKeeper->new(servers => 3)->start;
my %node = map { $_ => cluster($_, $zk, 'zklock.session_timeout' => '1min',
		'zklock.connect_timeout' => '1min') } qw(berlin paris);
my ($holder, $waiter) = map { background($node{$_}) } qw(berlin paris);
$holder->query_safe("SELECT zk_lock('moving')");
start_in_queue($waiter, "SELECT zk_lock('moving')", $zk, lock_path('moving'), 2);

sub is_encrypted { return $_[0]->query_safe('SELECT ssl FROM zk_session'); }

# How many clients there are at the plain ports; we ask there ourselves.
sub plain_clients
{
	my $clients = join '', map { $zk->four_letter_word('cons', $_) } $zk->members;
	return scalar(() = $clients =~ /\bsid=0x[0-9a-f]*[1-9a-f]/g);
}

# Known once the servers have their second ports.
sub tls_settings { return (%of_cluster, 'zklock.servers' => $zk->secure_connect_string); }

subtest 'a lock stays held while each server gets a port for TLS' => sub {
	foreach my $member ($zk->members)
	{
		$zk->add_tls($member, { ca => $of_server{'ssl.trustStore.location'}, cert => $of_server{'ssl.keyStore.location'} });
		my $config = slurp_file($zk->data_dir($member) . '/../zoo.cfg');
		# With the values of the page, but for the port, which is a free one.
		is_deeply([ grep { $config !~ ($of_server{$_} =~ /^\d+$/ ? qr/^\Q$_\E=/m : qr/^\Q$_=$of_server{$_}\E$/m) } sort keys %of_server ],
			[], "server $member has the settings of the page");
		$zk->restart($member);
		assert_held($holder, 'moving', "held, with server $member");
	}
	ok(!$waiter->is_done, 'the waiter still waits');
	is(is_encrypted($holder), 'f', 'without TLS so far');
	assert_soon { plain_clients() >= 2 } 'the sessions use the plain ports';
};

subtest 'locks pass between clusters with and without TLS while each cluster goes over' => sub {
	my %setting = tls_settings();
	# Whoever only reloads, as programs do that distribute configurations, changes nothing yet.
	my $conf = $node{paris}->data_dir . '/postgresql.auto.conf';
	my $before = slurp_file($conf);
	append_to_file($conf, join '', map { "$_ = '$setting{$_}'\n" } sort keys %setting);
	$node{paris}->reload;
	poll_until { ask($node{paris}, "SELECT pending_restart FROM pg_settings WHERE name = 'zklock.ssl'") eq 't' } 'the reload';
	ok(!$waiter->is_done, 'a reload: the waiter waits on');
	my $late = background($node{paris}, first => q(SELECT zk_lock('late')));
	is(is_encrypted($late), 'f', 'a new session is opened as before');
	$late->quit;
	$waiter->cancel;
	assert_ends($waiter, '57014', 'the waiter is cancelled');
	$waiter->quit;
	system_or_bail('sh', '-c', 'cat >"$0" <<EOF
$1
EOF', $conf, $before);
	foreach my $cluster (qw(paris berlin))
	{
		$node{$cluster}->append_conf('postgresql.auto.conf', "$_ = '$setting{$_}'") foreach sort keys %setting;
		if ($cluster eq 'berlin')
		{
			$holder->quit;
			$node{$cluster}->restart;
			$holder = background($node{berlin}, first => q(SELECT zk_lock('moving')));
			next;
		}
		$node{$cluster}->restart;
		assert_held($holder, 'moving', 'the lock of the other cluster is held');
		$waiter = background($node{paris});
		start_in_queue($waiter, "SELECT zk_lock('moving')", $zk, lock_path('moving'), 2);
		assert_passes('moving', $holder, $waiter, 'the lock goes to who has TLS');
		is(is_encrypted($waiter), 't', 'the new holder has TLS');
		start_in_queue($holder, "SELECT zk_lock('moving')", $zk, lock_path('moving'), 2);
		assert_passes('moving', $waiter, $holder, 'and back to who has none');
	}
	assert_becomes { plain_clients() } 0, 'nobody is left at the plain ports';
	is(is_encrypted($holder), 't', 'the last holder has TLS');
	# On a busy machine not all servers have answered when its time is over.
	# Nor does any listen at ::1, where that is an address of localhost, too.
	my $new = background($node{berlin}, is_connected => 1);
	assert_soon { my $rows = join "\n", grep { !/::1\b/ } split /\n/, $new->query_safe($check); (() = $rows =~ /^tls .*?\|ok\|/mg) == 3 && $rows !~ /\|(?:error|warning)\|/ }
	'zk_check() finds TLS with each server, and nothing wrong', 90;
	$_->quit foreach $holder, $waiter, $new;
	poll_until { !$zk->ephemerals('/') } 'their nodes to go';
};

done_testing();
