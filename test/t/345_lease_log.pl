
# The log names those who renew or release a lease that another user, or one of another cluster,
# has taken or renewed. Tested with three roles and two clusters.

use ZkLockTest;

my $zk = ZooKeeper->new->start;
my ($berlin, $paris) = map { cluster($_, $zk) } qw(berlin paris);
$berlin->safe_psql('postgres', 'CREATE ROLE app LOGIN; CREATE ROLE stranger LOGIN');
my $app = background($berlin, user => 'app');
my $away = background($paris);

sub lease ($session, $name) { return $session->query_safe("SELECT zk_try_lease('$name', 'mailer', '60s')"); }

subtest 'the log names a role that renews or releases a lease of another' => sub {
	my $from = -s $berlin->logfile;
	my $said = sub ($pattern) { scalar(() = slurp_file($berlin->logfile, $from) =~ /$pattern/g) };
	my $others = qr/that others have taken or renewed/;
	my $token = lease($app, 'own');
	my $again = background($berlin, user => 'app');
	lease($again, 'own');
	$again->query_safe("SELECT zk_release_lease('own', $token)");
	is($said->($others), 0, 'nothing is said of one\'s own');

	$token = lease($app, 'other');
	$berlin->safe_psql('postgres', "SET ROLE stranger; SELECT zk_release_lease('other', $token, '60s')");
	is($said->(qr/LOG:  process \d+ of user "[^"]+" as role "stranger" in database "postgres".* gives up a lease of ZooKeeper lock "other" $others\n.*DETAIL:  Owner "mailer", fencing token $token, delay 60000 ms\. Last taken or renewed by: process \d+ of user "app" in database "postgres" of cluster "berlin"/),
		1, 'the log names both roles and the former owner');

	$token = lease($away, 'far');
	$app->query_safe("SELECT zk_release_lease('far', $token)");
	is($said->(qr/lock "far" $others\n.* of cluster "paris"/), 1, 'the log names the cluster of the former owner');

	my $silent = background($berlin, first => 'SET zklock.publish_identity = off');
	$token = lease($silent, 'silent');
	$app->query_safe("SELECT zk_release_lease('silent', $token)");
	is($said->(qr/lock "silent" $others\n.* by: unknown\./), 1, 'the log says that the former owner is unknown');
	$token = lease($silent, 'silent');
	$silent->query_safe("SELECT zk_release_lease('silent', $token)");
	is($said->(qr/lock "silent" $others/), 1, 'a release of the own lease is not logged');

	$token = lease($away, 'renewed');
	$app->query_safe("SELECT zk_renew_lease('renewed', $token, '60s')") foreach 1 .. 3;
	is($said->(qr/renews a lease of ZooKeeper lock "renewed" $others/), 1, 'renewals are logged once');
};

done_testing();
