
# Servers that demand a kind of authentication which zklock does not speak are reported with
# 28000 and their own words, at once and without connecting again and again. Tested with real
# servers that have those settings, and a proxy that counts connections.

use Liar;
use Proxy;
use Time::HiRes qw(time);
use ZkLockTest;

my $sasl = '-Dzookeeper.authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider';
my %demand = (
	'enforce.auth.schemes=sasl' => [ $sasl, '-Dzookeeper.enforce.auth.enabled=true', '-Dzookeeper.enforce.auth.schemes=sasl' ],
	'sessionRequireClientSASLAuth' => [ $sasl, '-Dzookeeper.sessionRequireClientSASLAuth=true' ],
	'enforce.auth.schemes=digest' => [ '-Dzookeeper.enforce.auth.enabled=true', '-Dzookeeper.enforce.auth.schemes=digest' ]);

# One of a server's connections is a session's; the next session of the same statement may try,
# too. A session that connects again and again has ten a second.
my $most_connections = 4;

my $zk = ZooKeeper->new->start;
my $liar = Liar->new('127.0.0.1:' . $zk->port);
my $node = cluster('berlin', $zk, servers => $liar->address);

# The server starts anew and demands that from now on; or nothing.
sub demand
{
	my ($what) = @_;
	$zk->stop;
	$zk->{java_options} = $what ? $demand{$what} : [];
	$zk->start;
	return;
}

# That statement fails at once, with the server's own words, and few connections.
sub refuses_at_once ($session, $sql)
{
	assert_within
	{
		my ($begun, $before) = (time, $liar->nconnections);
		assert_query($session, $sql, '28000', 'ZooKeeper demands another kind of authentication');
		my $took = time - $begun;
		like($session->error, qr/DETAIL:  Server "[^"]+" has said: .*SASL/, 'the server is quoted');
		like($session->error, qr/HINT:  .*enforce\.auth\.schemes.*digest/, 'the remedy is named');
		cmp_ok($liar->nconnections - $before, '<=', $most_connections + int $took, 'the program has made few connections');
		$took;
	}
	3, 'soon after the call';
	return;
}

subtest 'a session that holds a lock loses it to servers that demand SASL, with the reason' => sub {
	my $holder = background($node, 'zklock.session_timeout' => '90s', holds => 'held');
	demand('enforce.auth.schemes=sasl');
	# That has watches, which the library asks for ahead of all requests.
	wait_for_loss($holder, 150);
	assert_query($holder, 'CREATE TABLE written ()', '40001', 'the lock is lost');
	like($holder->error, qr/ZooKeeper demands another kind of authentication: Server "[^"]+" has said: .*SASL/, 'the error names that reason');
	$holder->query_safe('SELECT zk_unlock_all()');
	refuses_at_once($holder, "SELECT zk_lock('held')");
	$holder->quit;
};

foreach my $what ('enforce.auth.schemes=sasl', 'sessionRequireClientSASLAuth')
{
	subtest "calls fail at once where servers have $what" => sub {
		demand($what) if $what ne 'enforce.auth.schemes=sasl';
		my $session = background($node);
		refuses_at_once($session, $_)
		  foreach "SELECT zk_lock('demand')", "SELECT zk_try_lock('demand')", "SELECT zk_run_once('demand', 'today')";
		my $other = background($node, 'zklock.auth' => 'digest:somebody:secret');
		refuses_at_once($other, "SELECT zk_lock('demand')");
		$other->quit;
		like($session->query_safe('SELECT * FROM zk_check()'), qr/demands/, 'zk_check() names the demand');
		$session->quit;
	};
}

# Its first request is a write of its own, for which no call waits.
subtest 'a session that looks for a node whose reply was lost is told what servers demand' => sub {
	demand();
	my $proxy = Proxy->new('127.0.0.1:' . $zk->port);
	my $session = background($node, route => $proxy->address, 'zklock.session_timeout' => '90s', 'zklock.auth' => 'digest:somebody:secret');
	my $count = 'SELECT sum(sessions) FROM zk_stat';
	my $before = $session->query_safe($count);
	$proxy->trap(15, 1, 'replies');    # create2
	$session->start_query("SELECT zk_lock('searched')");
	poll_until { $proxy->is_sprung } 'a reply to be lost', 30;
	demand('sessionRequireClientSASLAuth');
	$proxy->reset_connections;
	$proxy->heal;
	assert_ends($session, '28000', 'ZooKeeper demands another kind of authentication');
	# Not the next one, after a session that was lost for want of answers.
	is($session->query_safe($count) - $before, 1, 'it is told so in its first session');
	$session->quit;
	$proxy->stop;
};

subtest 'servers that demand digest authentication are served' => sub {
	demand('enforce.auth.schemes=digest');
	my $session = background($node);
	assert_query($session, "SELECT zk_lock('digest')", '00000', 'a lock without credentials of the user is granted');
	my $other = background($node, 'zklock.auth' => 'digest:somebody:secret', 'zklock.root' => '/of-somebody');
	assert_query($other, "SELECT zk_lock('digest2')", '00000', 'a lock with credentials of the user is granted');
	$_->quit foreach $session, $other;
};

subtest 'the next call works when servers no longer demand SASL' => sub {
	demand('enforce.auth.schemes=sasl');
	my $session = background($node);
	refuses_at_once($session, "SELECT zk_lock('later')");
	demand();
	assert_query($session, "SELECT zk_lock('later')", '00000', 'the next call has a session');
	assert_leave_nothing($zk, lock_path('later'), $session);
};

done_testing();
