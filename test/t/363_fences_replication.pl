
# Logical replication of fences keeps the greater token, whichever side it comes from. Tested with
# a publication between two clusters.

use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $berlin = cluster('berlin', $zk, init => [ allows_streaming => 'logical' ]);
my $paris = cluster('paris', $zk, extension => undef);

sub berlin ($sql, $database = 'postgres') { return ask($berlin, $sql, $database); }
sub paris ($sql, $database) { return ask($paris, $sql, $database); }

$paris->safe_psql('postgres', 'CREATE DATABASE replica');
paris('CREATE EXTENSION zklock', 'replica');

# A publication FOR ALL TABLES has these, too. What was claimed on either side counts.
subtest 'logical replication of fences keeps the greater token' => sub {
	my $row = sub ($name, $token) { "INSERT INTO zk_fences VALUES ('/r', '$name', $token, 'who', now())" };
	my $tokens = sub { paris("SELECT string_agg(name || ' ' || token, ', ' ORDER BY name) FROM zk_fences", 'replica') };
	paris(join(';', map { $row->(@$_) } [ 'greater', 9 ], [ 'less', 1 ], [ 'own', 2 ]), 'replica');
	berlin(join(';', map { $row->(@$_) } [ 'greater', 5 ], [ 'less', 5 ]));
	berlin('CREATE PUBLICATION fences FOR TABLE zk_fences');
	paris("CREATE SUBSCRIPTION fences CONNECTION '" . $berlin->connstr . " dbname=postgres' PUBLICATION fences", 'replica');
	poll_until { $tokens->() eq 'greater 9, less 5, own 2' } 'the first copy', 180;
	pass('of two tokens a first copy leaves the greater one');
	poll_until { paris("SELECT count(*) FROM pg_subscription_rel WHERE srsubstate <> 'r'", 'replica') eq '0' } 'the copy to be done', 180;
	berlin($row->('own', 1) . "; UPDATE zk_fences SET token = token + 1 WHERE name <> 'own'");
	$berlin->wait_for_catchup('fences');
	is($tokens->(), 'greater 9, less 6, own 2', 'an INSERT and an UPDATE leave the greater token');
	berlin("UPDATE zk_fences SET token = 10 WHERE name = 'greater'");
	$berlin->wait_for_catchup('fences');
	is($tokens->(), 'greater 10, less 6, own 2', 'a later UPDATE leaves the greater token');
	paris('DROP SUBSCRIPTION fences', 'replica');
};

done_testing();
