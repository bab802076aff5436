
# Roles for which shared memory has no room share one bound of zklock.max_creates, so that no
# role is without a bound. Tested with a build of zklock that has room for two roles.

use Builds;
use ZkLockTest;
use ZooKeeper;

plan skip_all => 'this PostgreSQL bears one installation only' if !Builds->can_be;
my $build = Builds->of_tree(edit => { 'src/session/write_bound.c' => sub { s/#define ROLES 1000\n/#define ROLES 2\n/ } });
my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk, $build->settings);
my @roles = qw(anna berta clara dora);
$node->safe_psql('postgres', join ';', map { "CREATE ROLE $_ LOGIN; ALTER ROLE $_ SET zklock.max_creates = 1" } @roles);
my %session = map { $_ => background($node, user => $_) } @roles;
my $too_many = "SELECT zk_lock_set(ARRAY(SELECT current_user || '/' || i FROM generate_series(1, 100) AS i))";

# Both have a bound of their own.
foreach my $role (qw(anna berta))
{
	is($session{$role}->query_safe("SELECT zk_try_lock('$role')"), 't', "$role may write");
	assert_query($session{$role}, $too_many, '53400', 'up to a bound');
}

# The others have one that they share: what they write is counted together. (How full it is
# depends on the time that passes, so it is not asked.)
sub shared ($what) { return ask($node, "SELECT $what FROM zk_stat_roles WHERE usename IS NULL"); }

assert_query($session{clara}, $too_many, '53400', 'clara, who comes late, may not write more');
like($session{clara}->error, qr/All sessions of role "clara" in database "postgres" may make 1 a second together/, 'the message names the role and the bound');
my ($writes, $refused) = map { shared($_) } qw(writes refused_writes);
cmp_ok($writes, '>=', 10, 'the refused calls of clara are counted');
assert_query($session{dora}, $too_many, '53400', 'dora, who comes later, may not write more either');
cmp_ok(shared('refused_writes'), '>', $refused, 'dora is counted together with clara');
is(ask($node, "SELECT string_agg(coalesce(usename, 'others'), ' ' ORDER BY usename) FROM zk_stat_roles"), 'anna berta others',
	'the view has rows for the first two');
is(shared('datname IS NULL, max_creates'), 't|1', 'the view has one row for all later roles');
$_->quit foreach values %session;
done_testing;
