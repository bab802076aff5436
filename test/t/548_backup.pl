
# The commands of docs/backup.md dump and restore a database with zklock, and its roles; and a copy
# of the data directory shares locks, jobs and leases with the original until it is set up as the
# page says; and a copy of one ZooKeeper server restores an ensemble. Tested with pg_dumpall,
# pg_dump, a base backup, and an ensemble of three real servers.

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use Pages;
use PostgreSQL::Test::Utils qw(run_command);
use ZkLockTest;

my $tree = abs_path(dirname(__FILE__) . '/../..');
my %block = map { $_->{value} => $_->{code} } grep { $_->{kind} eq 'backup' }
  Pages::blocks(Pages::page('docs/backup.md', slurp_file("$tree/docs/backup.md")));
is(join(' ', sort keys %block), 'clone dump restore roles tokens', 'the page has the blocks');

my $zk = ZooKeeper->new->start;
my $berlin = cluster('berlin', $zk, init => [ allows_streaming => 1 ], extension => undef);
my $directory = PostgreSQL::Test::Utils::tempdir();

# Type the commands of a block, as a superuser of that cluster: what is said of errors.
sub type ($node, $name)
{
	local @ENV{qw(PGHOST PGPORT PGDATABASE)} = ($node->host, $node->port, 'postgres');
	my ($out, $error) = run_command([ 'sh', '-e', '-c', "cd '$directory'; $block{$name}" ]);
	return join "\n", grep { /error:|ERROR:/i } split /\n/, $error;
}

$berlin->safe_psql('postgres', 'CREATE DATABASE app; CREATE ROLE payroll LOGIN');
install_as_documented($berlin, 'app');
my $session = background($berlin, database => 'app', first => 'SET search_path = zklock');
$session->query_safe(q{
	SELECT zk_fence('resource', 4711000), zk_fence('other', 5);
	ALTER ROLE payroll SET zklock.names = 'pay/*';
	GRANT zklock_job TO payroll});
my $lease = $session->query_safe("SELECT zk_try_lease('mailer', 'app-1', '1 h')");
my $tables = q{SELECT string_agg(name || ' ' || token, ', ' ORDER BY name) FROM zk_fences};
my $lists = q{SELECT array_to_string(setconfig, ' ') FROM pg_db_role_setting WHERE setrole = 'payroll'::regrole};

subtest 'the commands of the page restore the rows of all tables, and the roles' => sub {
	my $before = $session->query_safe($tables);
	is($before, 'other 5, resource 4711000', 'the table has rows');
	is(type($berlin, 'dump'), '', 'the dump raises no error');
	my $oslo = cluster('oslo', $zk, extension => undef);
	unlike(type($oslo, 'roles'), qr/^(?!.* role "\S+" already exists$).+/m, 'the roles raise no error but for those that exist');
	is(type($oslo, 'restore'), '', 'the restore raises no error');
	my $there = background($oslo, database => 'app', first => 'SET search_path = zklock');
	is($there->query_safe($tables), $before, 'the rows are there');
	is($there->query_safe($lists), 'zklock.names=pay/*', 'the names that a role may use are there');
	is($there->query_safe("SELECT pg_has_role('payroll', 'zklock_job', 'MEMBER')"), 't', 'the members of roles are there');
	is($there->query_safe("SELECT zk_try_lease('mailer', 'app-1', '1 h')"), $lease, 'the owner of a lease goes on with it');
	$there->query_safe("SELECT zk_fence('other', 9)");
	is(type($oslo, 'tokens'), '', 'the restore of the tokens raises no error');
	is($there->query_safe($tables), $before, 'the tokens of the dump are there again');
	$there->quit;
	$oslo->stop;
};

subtest 'a copy of the data directory shares locks, jobs and leases until it is set up as a clone' => sub {
	$session->query_safe("SELECT zk_lock('held')");
	$berlin->backup('copy');
	my $clone = PostgreSQL::Test::Cluster->new('clone');
	$clone->init_from_backup($berlin, 'copy');
	$clone->start;
	my $there = background($clone, database => 'app', first => 'SET search_path = zklock');
	is($there->query_safe("SELECT zk_try_lock('held')"), 'f', 'the copy unchanged stands in the queues of the original');
	is($there->query_safe("SELECT zk_try_lease('mailer', 'app-1', '1 h')"), $lease, 'the copy unchanged renews leases of the original');
	is($there->query_safe("SELECT zk_run_once('nightly', 'today')"), 't', 'the copy unchanged claims slots');
	is($session->query_safe("SELECT zk_run_once('nightly', 'today')"), 'f', 'the original does not run the job');
	$there->quit;
	$clone->stop;

	my $servers = $zk->connect_string;
	$clone->append_conf('postgresql.conf', $block{clone} =~ s/zk1:2181,zk2:2181,zk3:2181/$servers/r);
	$clone->start;
	$there = background($clone, database => 'app', first => 'SET search_path = zklock');
	is($there->query_safe('SHOW zklock.servers; SHOW cluster_name'), "$servers/clone\nclone", 'the clone has the settings of the page');
	is($there->query_safe("SELECT item, state FROM zk_check() WHERE item = 'chroot'"), 'chroot|warning', 'zk_check() warns that the chroot does not exist');
	is($there->query_safe("SELECT zk_try_lock('held')"), 't', 'the clone has locks of its own');
	is($there->query_safe("SELECT zk_run_once('nightly', 'today')"), 't', 'the clone has slots of its own');
	is($there->query_safe("SELECT zk_try_lease('mailer', 'app-2', '1 h') > 0"), 't', 'the clone has leases of its own');
	assert_query($there, "SELECT zk_lock('resource'); SELECT zk_fence('resource')", '00000', 'the rows of the other chroot refuse nobody');
	is($there->query_safe("SELECT count(*) FROM zk_fences WHERE name = 'resource'"), 2, 'each chroot has a row');
	$there->quit;
	$clone->stop;
};

subtest 'a copy of one ZooKeeper server restores an ensemble whose other servers are empty' => sub {
	my $ensemble = ZooKeeper->new(servers => 3)->start;
	my $rome = cluster('rome', $ensemble);
	my $token = ask($rome, "SELECT zk_hold('work', 'disk replacement')");
	my ($copied) = $ensemble->followers;
	my $copy = "$directory/version-2";
	my $change = sub ($member) { ($ensemble->four_letter_word('srvr', $member) =~ /^Zxid: (0x[0-9a-f]+)/m)[0] // '' };
	poll_until { my $last = $change->($ensemble->leader); $last ne '' && $change->($copied) eq $last } 'that server to have all changes', 60;
	$ensemble->stop($copied);
	system_or_bail('cp', '-a', $ensemble->data_dir($copied) . '/version-2', $copy);
	is(ask($rome, "SELECT zk_run_once('nightly', 'since the copy')"), 't', 'the other servers go on');
	$ensemble->stop;
	system_or_bail('rm', '-r', $ensemble->data_dir($_) . '/version-2') foreach $ensemble->members;
	system_or_bail('mv', $copy, $ensemble->data_dir(1));
	# One of three does not serve yet: start() waits for a quorum.
	$ensemble->start(1, 2);
	$ensemble->start(3);
	my $restored = background($rome);
	is($restored->query_safe('SELECT token FROM zk_lock_queue($$work$$)'), $token, 'the permanent hold of the copy is there');
	is($restored->query_safe("SELECT zk_run_once('nightly', 'since the copy')"), 't', 'the record since the copy is not');
	is($restored->query_safe("SELECT zk_release_hold('work', $token)"), 't', 'the permanent hold can be released');
	$restored->quit;
	$_->stop foreach $rome, $ensemble;
};

done_testing();
