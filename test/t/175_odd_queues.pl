
# Queues and names at the limits of what is allowed: ten thousand contenders ahead, children that
# are no contenders, and locks whose names have every character. Tested with a real server and
# clients that make such znodes.

use Encode qw(decode_utf8);
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk, 'zklock.session_timeout' => '60s');
# Everybody is connected, so that only requests for locks are counted.
my ($session, $other) = map { background($node, is_connected => 1) } 1 .. 2;
my $uuid = '6ba7b810-9dad-41d1-80b4-00c04fd430c8';

subtest 'a waiter behind ten thousand contenders watches one node and is woken once' => sub {
	my $crowd = $zk->client;
	my $path = lock_path('long');
	my $count = 10_000;
	$crowd->create_path($path);
	$crowd->create_many($count, "$path/_c_$uuid-lock-", 'me', ephemeral => 1, sequential => 1);

	my $before = $zk->packets_received;
	is($session->query_safe("SELECT zk_try_lock('long')"), 'f', 'a try fails');
	# list; and some patience with heartbeats
	cmp_ok($zk->packets_received - $before, '<=', 5, 'the try has asked for one list');

	$before = $zk->packets_received;
	$session->start_query("SELECT zk_lock('long')");
	my @watched;
	poll_until { @watched = $zk->watched_paths("$path/") } 'it to wait', 30;
	is("@watched", sprintf('%s/_c_%s-lock-%010d', $path, $uuid, $count - 1),
		'a waiter watches the last node and no other');
	# create, list, watch
	cmp_ok($zk->packets_received - $before, '<=', 7, 'the wait took three requests');

	is($other->query_safe("SELECT count(*), count(DISTINCT node), min(position),
			max(position), count(*) FILTER (WHERE state = 'held'),
			max(client) FILTER (WHERE position = $count + 1)
			FROM zk_lock_queue('long')"),
		join('|', ($count + 1) x 2, 1, $count + 1, 1, 'zklock'),
		'zk_lock_queue shows them all');

	$before = $zk->packets_received;
	my @leaving = (0, $count / 2, $count - 3);
	$crowd->delete(sprintf('%s/_c_%s-lock-%010d', $path, $uuid, $_))
	  foreach @leaving;
	ok(!$session->is_done, 'the waiter goes on waiting when others leave the middle of the queue');
	$crowd->close;
	assert_ends($session, '00000', 'the waiter has the lock when all others are gone');
	# deletes, close; list; and some patience with heartbeats, but not a look for
	# each who left
	cmp_ok($zk->packets_received - $before, '<=', @leaving + 5,
		'the waiter was woken once');
	$session->query_safe("SELECT zk_unlock('long')");
	assert_no_nodes($zk, $path);
};

subtest 'children that are no contenders do not count in the queue' => sub {
	my $stranger = $zk->client;
	my $path = lock_path('crowded');
	$stranger->create_path($path);
	my @odd = (
		'9 digits 123456789', 'lock-', '_c_-lock-', "_c_$uuid-lock-",
		"_c_$uuid-lock-0000000001x", '0000000001-lock-', 'lock-00000000O1',
		'-', '%s%n', "\x{440}\x{443}\x{441}\x{441}\x{43a}\x{438}\x{439}",
		'x' x 4000);
	foreach my $name (@odd)
	{
		utf8::encode(my $bytes = "$path/$name");
		$stranger->create($bytes, 'x', ephemeral => 1);
	}
	is($session->query_safe("SELECT zk_try_lock('crowded')"), 't', 'the try is granted');
	is($other->query_safe("SELECT zk_try_lock('crowded')"), 'f', 'another try fails');
	is($other->query_safe("SELECT count(*) FILTER (WHERE position = 1),
			count(*) FILTER (WHERE position IS NULL AND state IS NULL)
			FROM zk_lock_queue('crowded')"),
		'1|' . @odd, 'zk_lock_queue() shows all children');
	$session->query_safe("SELECT zk_unlock('crowded')");

	# One that counts, but whose path is longer than any that we make.
	my $long = $stranger->contend("$path/" . 'x' x 4000 . '-');
	is($session->query_safe("SELECT zk_try_lock('crowded')"), 'f', 'a contender with a long name counts');
	assert_query($session, "SELECT zk_lock('crowded')", '42622', 'a wait behind a contender with a long name is refused');
	wait_for_queue($zk, $path, @odd + 1);
	$stranger->delete($long);
	is($session->query_safe("SELECT zk_try_lock('crowded')"), 't', 'the session goes on');
	$stranger->close;
	assert_released($zk, 'crowded', $session);
};

# All characters that the rules of names allow, a hundred and fifty to a lock; the
# letters around them keep a name from ending in ten digits.
subtest 'names with every character that is allowed can be locked' => sub {
	my @names = split /\n/, $session->query_safe(<<'SQL');
CREATE TABLE characters AS
	SELECT code,
		   code BETWEEN 32 AND 126 OR code BETWEEN 160 AND 55295 OR
		   code BETWEEN 63744 AND 65519 AS is_allowed
	FROM generate_series(1, 65535) AS code
	WHERE code <> ascii('/') AND code NOT BETWEEN 55296 AND 57343;
CREATE TABLE names AS
	SELECT 'all/a' || string_agg(chr(code), '' ORDER BY code) || 'z' AS name
	FROM characters WHERE is_allowed GROUP BY code / 150;
SELECT count(*) FROM names;
SQL
	my $count = $names[0];
	cmp_ok($count, '>', 300, 'some hundred locks');
	is($session->query_safe('SELECT count(*) FROM names WHERE zk_lock(name) > 0'), $count, 'are taken');
	is($session->query_safe('SELECT count(*) FROM zk_session_locks JOIN names USING (name)'),
		$count, 'zk_session_locks shows all names');
	is($other->query_safe('SELECT count(*) FROM names WHERE zk_try_lock(name)'), 0, 'nobody else gets them');

	my $client = $zk->client;
	my @znodes = sort map { 'all/' . decode_utf8($_, Encode::FB_CROAK) }
	  $client->children(lock_path('all'));
	my @expected = sort map { decode_utf8($_, Encode::FB_CROAK) } split /\n/,
	  $session->query_safe('SELECT name FROM names');
	is_deeply(\@znodes, \@expected, 'they are the names of the znodes');
	is($session->query_safe('SELECT count(*) FROM names WHERE zk_unlock(name)'), $count, 'all are released');
	poll_until { !$zk->ephemerals(lock_path('all/')) } 'nodes to go', 30;
	is($other->query_safe('SELECT count(*) FROM names WHERE zk_try_lock(name)'), $count, 'all locks are free');
	$other->query_safe('SELECT zk_unlock_all()');
};

subtest 'names with any other character are refused' => sub {
	my $refused = $session->query_safe(<<'SQL');
CREATE FUNCTION refused(name text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM zk_try_lock(name);
	RETURN NULL;
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
SELECT count(*), count(*) FILTER (WHERE refused('a' || chr(code) || 'z') = '42602')
FROM characters WHERE NOT is_allowed;
SQL
	my ($count, $found) = split /\|/, $refused;
	cmp_ok($count, '>', 6000, 'thousands of them');
	is($found, $count, 'each is refused with an error about the name');
	is($session->query_safe("SELECT count(*) FROM generate_series(65536, 1114111, 4099) AS code
			WHERE refused('a' || chr(code)) = '42602'"),
		$session->query_safe('SELECT count(*) FROM generate_series(65536, 1114111, 4099)'),
		'characters beyond U+FFFF are refused as well');
	is($session->query_safe('SELECT count(*) FROM zk_session_locks'), 0, 'none was taken');
};

done_testing();
