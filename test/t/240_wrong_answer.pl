
# A server's answer comes out of order, as seen once after an election with
# ZooKeeper 3.8.0. The client library hangs up and fails all requests with an
# error of its own, ZRUNTIMEINCONSISTENCY. What was asked may have been done: no
# queue node may stay behind, and nothing may fail that can be asked again.

use strict;
use warnings;

use File::Temp ();
use IO::Select;
use IO::Socket::INET;
use POSIX ();
use Test::More;
use ZkLockTest;
use ZooKeeper;

# Operations, from ZooKeeper's protocol.
my %operation = (delete => 2, multi => 14, create2 => 15);

my $zk = ZooKeeper->new(tick_time => 250)->start;
my $listener = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 10)
  or die "could not listen: $!";

# Holds the operation whose next answer is to be spoilt.
my $order = File::Temp->newdir;

my $pid = fork // die "could not fork: $!";
if ($pid == 0)
{
	eval { forward(); };
	POSIX::_exit(0);
}
END { kill 'KILL', $pid if $pid; }

my $node = cluster('berlin', $zk,
	servers => '127.0.0.1:' . $listener->sockport,
	'zklock.session_timeout' => '4s',
	'zklock.commit_guard' => 'quorum');
my $session = background($node);
$session->query_safe("SELECT zk_lock('answer'), zk_unlock('answer')");
$node->safe_psql('postgres', 'CREATE TABLE written ()');

# Let the next answer to that operation carry a wrong number.
sub spoil
{
	my ($name) = @_;
	open my $file, '>', "$order/$operation{$name}" or die $!;
	close $file;
	return;
}

# It has been done.
sub is_spoilt
{
	my ($name) = @_;
	ok(!-e "$order/$operation{$name}", "an answer to a $name is spoilt");
	return;
}

spoil('create2');
$session->query("SELECT zk_lock('answer')");
is_spoilt('create2');
is($session->sqlstate, '00000', 'the lock is granted all the same');
assert_nodes($zk, lock_path('answer'), 1, 'with one node');
$session->query_safe("SELECT zk_unlock('answer')");
assert_no_nodes($zk, lock_path('answer'), 'which goes');

$session->query_safe("SELECT zk_lock('answer')");
spoil('delete');
$session->query_safe("SELECT zk_unlock('answer')");
assert_no_nodes($zk, lock_path('answer'), 'a delete is repeated');
is_spoilt('delete');

$session->query_safe(
	"BEGIN; SELECT zk_xact_lock('answer'); INSERT INTO written DEFAULT VALUES");
spoil('multi');
$session->query('COMMIT');
is_spoilt('multi');
is($session->sqlstate, '00000', 'a commit asks again for its proof');
assert_no_nodes($zk, lock_path('answer'), 'nothing left');
$session->quit;

done_testing();

# Forward whole messages between each client and the server.
sub forward
{
	my (%other_end, %is_client, %is_new, %wrong);
	while (1)
	{
		my $select =
		  IO::Select->new($listener, map { $_->[0] } values %other_end);
		foreach my $socket ($select->can_read)
		{
			if ($socket == $listener)
			{
				my $client = $listener->accept;
				my $server =
				  IO::Socket::INET->new('127.0.0.1:' . $zk->port);
				$other_end{$client} = [ $client, $server ];
				$other_end{$server} = [ $server, $client ];
				$is_client{$client} = 1;
				$is_new{$client} = $is_new{$server} = 1;
				next;
			}
			next unless $other_end{$socket};
			my $other = $other_end{$socket}[1];
			my $message = read_message($socket);
			if (!defined $message)
			{
				delete $other_end{$_}, close $_ foreach $socket, $other;
				next;
			}
			# The first message each way is the handshake.
			spoil_message($is_client{$socket}, \$message, \%wrong)
			  unless delete $is_new{$socket};
			syswrite $other, pack('N', length $message) . $message;
		}
	}
	return;
}

# Note the number of the request that was ordered, and change its answer's.
sub spoil_message
{
	my ($is_request, $message, $wrong) = @_;
	my ($number, $operation) = unpack 'l> l>', $$message;
	if ($is_request)
	{
		$wrong->{$number} = 1
		  if unlink "$order/$operation";
	}
	elsif (delete $wrong->{$number})
	{
		substr($$message, 0, 4) = pack 'l>', $number + 1000;
	}
	return;
}

sub read_message
{
	my ($socket) = @_;
	my $length = read_bytes($socket, 4);
	return defined $length ? read_bytes($socket, unpack 'N', $length) : undef;
}

sub read_bytes
{
	my ($socket, $count) = @_;
	my $bytes = '';
	while (length $bytes < $count)
	{
		sysread($socket, $bytes, $count - length $bytes, length $bytes)
		  or return;
	}
	return $bytes;
}
