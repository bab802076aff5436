
# What the tests are told of their sessions: one that stood idle for longer than a
# query may take is as good as any other.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use ZkLockTest;
use ZooKeeper;

my $node = cluster('berlin', ZooKeeper->new->start);
my $session;
{
	local $PostgreSQL::Test::Utils::timeout_default = 2;
	$session = background($node);
}
my $since = time;
poll_until { time - $since > 3 } 'the time of a query to pass';
is($session->query_safe('SELECT 1'), '1', 'a session that stood idle answers');
$session->quit;

done_testing();
