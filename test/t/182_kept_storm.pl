
# Kept locks do not lose an update under load: sessions of two clusters take a few locks again
# and again, keep them for short and long times, and add to counters in a third database that
# nothing else guards; meanwhile processes are stopped for a moment and connections reset. With
# the seeded bugs test/torture/bugs/keep-*.patch this test fails.
#
# STORM_SECONDS: how long that goes on at least, until each cluster has taken back and given up
# enough; on a busy machine that is longer.

use Proxy;
use ZkLockTest;

my $seconds = $ENV{STORM_SECONDS} // 12;
my $nlocks = 16;
my $zk = ZooKeeper->new->start;
my $proxy = Proxy->new($zk->connect_string);
my %setting = (
	servers => $proxy->address,
	'zklock.session_timeout' => '15s',
	'log_statement' => 'none',
	'max_connections' => 40);
my %node = map { $_ => cluster($_, $zk, %setting) } qw(berlin paris);
my @missing = missing_extensions($node{berlin}, 'dblink');
plan skip_all => "no @missing here" if @missing;

my $vault = cluster('vault', $zk, extension => undef, fsync => 'off', log_statement => 'none');
$vault->safe_psql('postgres', "CREATE TABLE counter (id int PRIMARY KEY, n int);
	INSERT INTO counter SELECT i, 0 FROM generate_series(1, $nlocks) i");
my $vault_connection = $vault->connstr('postgres');
$vault_connection =~ s/'/''/g;
$_->safe_psql('postgres', 'CREATE EXTENSION dblink') foreach values %node;

# Takes a lock, mostly the one of before, reads the counter and writes one more, in two
# connections' worth of statements; how often, by lock, is what it says.
my $workload = "
	SELECT dblink_connect('vault', '$vault_connection');
	DO \$\$
	DECLARE lock int := 1; value int; until timestamptz := clock_timestamp() + '$seconds s';
		added int[] := array_fill(0, ARRAY[$nlocks]);
	BEGIN
		WHILE clock_timestamp() < until OR clock_timestamp() < until + '1 min' AND
			(SELECT sum(grants_kept) <= 10 * $seconds OR sum(keeps_given_up) <= $seconds / 4 FROM zk_stat)
		LOOP
			IF random() < 0.07 THEN
				lock := 1 + floor(random() * $nlocks);
				PERFORM set_config('zklock.keep',
					(ARRAY['1ms', '3ms', '10ms', '1min'])[1 + floor(random() * 4)], false);
			END IF;
			IF random() < 0.8 THEN
				PERFORM zk_lock('storm/' || lock);
			ELSIF NOT zk_try_lock('storm/' || lock) THEN
				CONTINUE;
			END IF;
			SELECT n INTO value FROM dblink('vault', 'SELECT n FROM counter WHERE id = ' || lock) AS c(n int);
			IF random() < 0.1 THEN
				PERFORM pg_sleep(random() * 0.004);
			END IF;
			PERFORM dblink_exec('vault', format('UPDATE counter SET n = %s WHERE id = %s', value + 1, lock));
			added[lock] := added[lock] + 1;
			PERFORM zk_unlock('storm/' || lock);
			PERFORM pg_sleep(random() * 0.004);
			IF random() < 0.02 THEN
				PERFORM pg_sleep(random() * 0.7);
			END IF;
		END LOOP;
		RAISE NOTICE 'added %', added;
	END \$\$";

my @sessions = map { background($node{ $_ % 2 ? 'paris' : 'berlin' }) } 1 .. 4;
$_->query_safe("SELECT zk_lock('warm'), zk_unlock('warm')") foreach @sessions;
my @processes = map { ($_->pid, session_programs($_->pid)) } @sessions;
$_->start_query($workload) foreach @sessions;

while (grep { !$_->is_done } @sessions)
{
	my $victim = $processes[ rand @processes ];
	kill STOP => $victim;
	# for no longer than a lease could bear
	select undef, undef, undef, rand(0.1);
	kill CONT => $victim;
	select undef, undef, undef, rand(0.1);
	$proxy->reset_connections if rand() < 0.03;
}

my @added = (0) x $nlocks;
foreach my $session (@sessions)
{
	assert_ends($session, '00000', 'a session came through');
	my @mine = $session->error =~ /added \{([\d,]+)\}/ ? split /,/, $1 : ();
	$added[$_] += $mine[$_] // 0 foreach 0 .. $#added;
}
is(ask($vault, "SELECT string_agg(n::text, ',' ORDER BY id) FROM counter"), join(',', @added), 'no update is lost');
my %count;
foreach my $what (qw(grants_kept keeps_given_up))
{
	$count{$what} += $_ foreach map { ask($_, "SELECT sum($what) FROM zk_stat") } values %node;
}
note "added @added, $count{grants_kept} taken back, $count{keeps_given_up} given up for others";
cmp_ok($count{grants_kept}, '>', 20 * $seconds, 'locks were often taken back');
cmp_ok($count{keeps_given_up}, '>', $seconds / 2, 'kept locks were given up for other contenders');
$_->query_safe('SELECT zk_unlock_all()') foreach @sessions;
assert_no_nodes($zk, lock_path("storm/$_")) foreach 1 .. $nlocks;

done_testing();
