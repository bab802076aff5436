
# ZooKeeper never removes a container that had no child. zklock deletes those whose queue node or
# lease was refused. Tested with a proxy that refuses requests of a real server.

use Liar;
use ZkLockTest;

# The server looks for empty containers as often as it can.
my $zk = ZooKeeper->new(container_check => 200)->start;
my $node = cluster('berlin', $zk);
my $client = $zk->client;
my $liar = Liar->new('127.0.0.1:' . $zk->port, seed => 1);

# Each of the first requests is refused once, as by a quota. Whatever the statement says to
# that, nothing stays that never had a child: what had one is the server's to remove.
my %call = (
	'a lock' => [ sub ($name) { return "zk_lock('$name')"; }, sub ($name) { return 'zk_unlock_all()'; } ],
	'a lease' => [ sub ($name) { return "zk_try_lease('$name', 'app', '60s')"; },
		sub ($name) { return "zk_release_lease('$name', (zk_leader('$name')).token)"; } ]);
foreach my $what (sort keys %call)
{
	my ($take, $give) = @{ $call{$what} };
	my $session = background($node, route => $liar->address);
	$session->query_safe("SELECT zk_lock('warm')");
	my $nrefused = 0;
	foreach my $depth ('', '/deep')
	{
		foreach my $number (1 .. 9)
		{
			my $name = "n$number$depth";
			$liar->refuse($number, -125);
			$session->query('SELECT ' . $take->($name));
			if ($session->sqlstate eq '00000')
			{
				$session->query_safe('SELECT ' . $give->($name)) if $what eq 'a lease';
				$session->query_safe("SELECT zk_unlock('$name')") if $what eq 'a lock';
			}
			$nrefused += $session->sqlstate eq '53400';
			$liar->be_honest;
		}
	}
	cmp_ok($nrefused, '>', 1, "$what was refused");
	$session->query_safe('SELECT zk_unlock_all()');
	assert_becomes { join ' ', grep { !/^\./ } $client->children(lock_path('') =~ s{/$}{}r) } '', "no container is left of a refused $what";
	$session->quit;
}

done_testing();
