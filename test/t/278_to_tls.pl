# An ensemble and its clients go from plain connections to TLS without losing a lock, one server
# after the other and then one cluster after the other, as docs/security.md tells it: a
# session that holds a lock goes over with it, and locks pass between clusters with and without
# TLS. Tested with three real servers and two clusters.

use Certificates;
use ZkLockTest;

Certificates::need_tls();
plan skip_all => 'it begins without TLS' if $ENV{ZKLOCK_TEST_TLS};

my $authority = Certificates->new(PostgreSQL::Test::Utils::tempdir(), 'good');
$authority->issue('server', 'DNS:localhost');
$authority->issue('client');

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
sub tls_settings { return ('zklock.servers' => $zk->secure_connect_string, $authority->settings('client')); }

subtest 'a lock stays held while each server gets a port for TLS' => sub {
	foreach my $member ($zk->members)
	{
		$zk->add_tls($member, $authority->of_server('server'));
		$zk->restart($member);
		assert_held($holder, 'moving', "held, with server $member");
	}
	ok(!$waiter->is_done, 'the waiter still waits');
	is(is_encrypted($holder), 'f', 'without TLS so far');
	assert_soon { plain_clients() >= 2 } 'the sessions use the plain ports';
};

subtest 'a lock stays held while each cluster goes over to TLS' => sub {
	my $token = $holder->query_safe(q(SELECT zk_fencing_token('moving')));
	my $offset = -s $node{berlin}->logfile;
	reconfigure($node{berlin}, tls_settings(), 'zklock.ssl_ca_file' => 'missing.crt');
	assert_soon { is_encrypted($holder) eq 'f'
		  && slurp_file($node{berlin}->logfile, $offset) =~ /stays with the servers and the TLS of before/ }
	'without a file a session stays where it is, and the log says so';
	assert_held($holder, 'moving', 'the lock is still held');
	reconfigure($node{berlin}, tls_settings());
	assert_becomes { plain_clients() } 1, 'a session of an idle backend leaves the plain ports';
	assert_becomes { is_encrypted($holder) } 't', 'the session has TLS';
	assert_held($holder, 'moving', 'the lock is still held');
	is($holder->query_safe(q(SELECT zk_fencing_token('moving'))), $token, 'the token is the same');
	my $new = background($node{berlin});
	start_in_queue($new, "SELECT zk_lock('moving')", $zk, lock_path('moving'), 3);
	assert_passes('moving', $holder, $waiter, 'the lock goes to who has no TLS');

	reconfigure($node{paris}, tls_settings());
	assert_soon { is_encrypted($waiter) eq 't' } 'the session of the other cluster has TLS';
	assert_becomes { plain_clients() } 0, 'nobody is left at the plain ports';
	assert_held($waiter, 'moving', 'the waiter that has become the holder holds the lock');
	assert_passes('moving', $waiter, $new, 'the lock passes to the next waiter');
	is(is_encrypted($new), 't', 'the last holder has TLS');
	$_->quit foreach $holder, $waiter, $new;
	poll_until { !$zk->ephemerals('/') } 'their nodes to go';
};

done_testing();
