
# Every call that takes something ends when its bounds say so, and all have the same ones:
# the timeout of the call, lock_timeout, statement_timeout, and for one that waits for nobody
# zklock.connect_timeout. Each is one second here, and all else takes a minute. So which bound
# has ended a call its SQLSTATE says, and whether one did the time: a busy machine may
# take a call several seconds to come to its end.

use Proxy;
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $proxy = Proxy->new($zk->connect_string);
my $slow = Proxy->new($zk->connect_string, delay => 0.25);
my $berlin = cluster('berlin', $zk, 'zklock.session_timeout' => '40s', 'zklock.connect_timeout' => '60s',
	max_connections => 150);
my $longest = 20;

# How each call is made, with its timeout and a name; and what it says when its time is
# over without an answer: as a wait (55P03), or as a question (08001).
my %call = (
	zk_lock => [ "SELECT zk_lock(NAME, TIMEOUT)", '55P03' ],
	zk_lock_shared => [ "SELECT zk_lock_shared(NAME, TIMEOUT)", '55P03' ],
	semaphore => [ "SELECT zk_xact_lock(NAME, TIMEOUT, 3)", '55P03' ],
	zk_call_lock => [ "SELECT zk_call_lock(NAME, TIMEOUT)", '55P03' ],
	zk_commit_and_lock => [ "CALL zk_commit_and_lock(NAME, TIMEOUT)", '55P03' ],
	'several locks' => [ "SELECT zk_lock_set(ARRAY[NAME, NAME || '2'], TIMEOUT)", '55P03' ],
	zk_lock_path => [ "SELECT zk_lock_path(NAME || '/below', TIMEOUT)", '55P03' ],
	zk_hold => [ "SELECT zk_hold(NAME, 'why', TIMEOUT)", '55P03' ],
	zk_try_lock => [ "SELECT zk_try_lock(NAME, TIMEOUT)", '08001' ],
	'try of several' => [ "SELECT zk_try_lock_set(ARRAY[NAME, NAME || '2'], TIMEOUT)", '08001' ],
	zk_try_lease => [ "SELECT zk_try_lease(NAME, 'owner', '60s', TIMEOUT)", '08001' ],
	# These have no timeout, and wait for nobody.
	zk_run_once => [ "SELECT zk_run_once(NAME, 'slot')" ],
	zk_request_release => [ "SELECT zk_request_release(NAME)" ],
	zk_renew_lease => [ "SELECT zk_renew_lease(NAME, 1, '60s')" ],
	zk_require_lease => [ "SELECT zk_require_lease(NAME, 1)" ]);

# The bounds: how each is set, and the timeout that is given with it.
my %bound = (
	'at once' => [ "'0'", 'zklock.connect_timeout' => '1s' ],
	timeout => ["'1s'"],
	lock_timeout => [ "'1 hour'", lock_timeout => '1s' ],
	statement_timeout => [ "'1 hour'", statement_timeout => '1s' ]);

# What they are to say; a call of a kind that waits says so of lock_timeout, too.
sub expected ($call, $bound)
{
	my $word = $call{$call}[1];
	return '57014' if $bound eq 'statement_timeout';
	return $word // '55P03' if $bound eq 'lock_timeout';
	return $word // '08001';
}

# A session for each call with each of its bounds; all are asked at once.
my @cast = map { my $call = $_; map { [ $call => $_ ] } grep { $call{$call}[1] || $_ ne 'timeout' } sort keys %bound } sort keys %call;
my %session;

sub make_sessions ($servers)
{
	foreach my $one (@cast)
	{
		my (undef, @setting) = @{ $bound{ $one->[1] } };
		$session{"@$one"} = background($berlin, 'zklock.servers' => $servers, @setting);
	}
	return;
}

sub ask_all ($title, $names, %also)
{
	subtest "calls end by their bounds: $title" => sub {
		my %start;
		foreach my $one (@cast)
		{
			my ($call, $bound) = @$one;
			my $name = "'$names-" . ("@$one" =~ s/\W+/-/gr) . "'";
			my $sql = $call{$call}[0] =~ s/NAME/$name/gr =~ s/TIMEOUT/$bound{$bound}[0]/r;
			$start{"@$one"} = time;
			$session{"@$one"}->start_query($sql);
		}
		my %took;
		poll_until
		{
			$took{$_} //= time - $start{$_} foreach grep { $session{$_}->is_done } keys %start;
			keys %took == @cast;
		}
		'all to end', 180;
		foreach my $one (@cast)
		{
			my $session = $session{"@$one"};
			my $states = join '|', expected(@$one), $also{ $one->[1] } // (), $also{all} // ();
			$session->wait_result;
			like($session->sqlstate, qr/^(?:$states)$/, "@$one: $states") || diag($session->error);
			in_time($took{"@$one"}, $longest, "@$one: in time");
		}
	};
	return;
}

# Connected, and then nobody answers.
make_sessions($proxy->address);
$session{"@$_"}->start_query("SELECT zk_try_lock('connect @$_'), zk_unlock('connect @$_')") foreach @cast;
$session{"@$_"}->wait_result foreach @cast;
$zk->pause;
# A busy machine may not have connected in a second who has no more.
ask_all('the servers fall silent', 'silent', 'at once' => '08001');
$zk->resume;

# Without a connection, which cannot be had: the first attempt has zklock.connect_timeout.
$proxy->go_away;
$session{"@$_"}->start_query('SELECT zk_disconnect()') foreach @cast;
$session{"@$_"}->wait_result foreach @cast;
ask_all('no server is there', 'refused', 'at once' => '08001');

# One that lets everybody in and says nothing.
$proxy->come_back;
$zk->pause;
ask_all('a server that says nothing', 'mute', 'at once' => '08001');
$zk->resume;

# Far away: a call succeeds, or ends like the others. Some are in vain, for there is no such lease.
$_->quit foreach values %session;
make_sessions($slow->address);
ask_all('slow servers', 'slow', all => '00000|40001', 'at once' => '08001');

# A lock that is held is taken again without a question, as long as there is a fresh proof of
# it: for two thirds of the session timeout. Behind that the question has the bounds of the call.
subtest 'a lock that is held is taken again at once, or within the bounds of the call' => sub {
	my @again = (
		[ "SELECT zk_lock('again 0')", '55P03', lock_timeout => '300ms' ],
		[ "SELECT zk_lock('again 1', '300ms')", '55P03' ],
		[ "SELECT zk_try_lock('again 2', '300ms')", '08001' ],
		[ "SELECT zk_try_lock('again 3')", '08001', 'zklock.connect_timeout' => '300ms' ]);
	my @holders = map { background($berlin, 'zklock.session_timeout' => '15s', holds => "again $_") } 0 .. $#again;
	foreach my $i (0 .. $#again)
	{
		my %setting = @{ $again[$i] }[ 2 .. $#{ $again[$i] } ];
		$holders[$i]->query_safe("SET $_ = '$setting{$_}'") foreach keys %setting;
	}
	$holders[-1]->query_safe('SELECT pg_sleep(10.5)');
	$zk->pause;
	$holders[$_]->start_query($again[$_][0]) foreach 0 .. $#again;
	# Each session is lost some ten seconds later, and what waits for it gets 40001.
	assert_ends($holders[$_], $again[$_][1], $again[$_][0]) foreach 0 .. $#again;
	$zk->resume;
	$_->quit foreach @holders;
};

done_testing();
