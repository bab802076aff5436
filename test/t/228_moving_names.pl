
# zklock.servers may have names: a session follows servers to new addresses, keeps its locks, and
# is not held up by names that are unknown or slow to look up. Tested with three real servers
# that move, and a library in front of getaddrinfo() that answers for their names.

use Certificates;
use FakeServer;
use File::Path qw(rmtree);
use Preload;
use ZkLockTest;
use ZooKeeper qw(poll_until);

my $preload = Preload::library('moving_names') or plan skip_all => 'there is no compiler';
my $zk = ZooKeeper->new(servers => 3)->start;
my $file = $zk->{dir} . '/names';
my @members = $zk->members;

# What look-ups find from now on.
sub know (%names)
{
	append_to_file("$file.new", join '', map { "$_ $names{$_}\n" } sort keys %names);
	rename "$file.new", $file or die "could not replace $file: $!";
	return;
}

# Where the members are.
sub places { return map { +"zk$_.test" => $zk->address($_) } @members; }

# All at places of their own from the start.
sub name_servers (@of) { return join ',', map { "zk$_.test:" . $zk->port($_) } @of; }

know(places());
my $node = cluster('berlin', $zk,
	servers => name_servers(@members),
	environment => { LD_PRELOAD => $preload, LD_TEST_NAMES => $file });


# At which member it is.
sub server_of ($session)
{
	my ($port) = $session->query_safe('SELECT server FROM zk_session') =~ /:(\d+)$/;
	return grep { $zk->port($_) == $port } @members;
}

# It moves to that address, and its name with it.
sub move ($member, $address)
{
	$zk->stop($member);
	$zk->move($member, $address);
	know(places());
	return $zk->start($member);
}

subtest 'a session keeps its lock when each server comes back at another address' => sub {
	my $holder = background($node, holds => 'moved');
	my $idle = background($node, is_connected => 1);
	my @before = map { session_id_of($_) } $holder, $idle;
	move($_, "127.0.1.$_") foreach @members;
	assert_held($holder, 'moved', 'the lock is held all the time');
	is($idle->query_safe("SELECT zk_try_lock('next')"), 't', 'the idle session is granted a lock');
	is(join(' ', map { session_id_of($_) } $holder, $idle), "@before", 'in the same sessions');
	assert_released($zk, 'moved', $holder);
	$idle->quit;
};

# The list then has more servers, and the attempts another share of the time.
subtest 'a session uses names that become known after its start' => sub {
	know('zk1.test' => $zk->address(1));
	my $session = background($node, holds => 'early');
	my $id = session_id_of($session);
	know(places());
	$zk->stop(1);
	is($session->query_safe("SELECT zk_is_held('early')"), 't', 'the lock survives the only server that was known');
	is(session_id_of($session), $id, 'in the same session');
	$zk->start(1);
	assert_released($zk, 'early', $session);
};

# An address of before is as good as any.
foreach my $is_known (0, 1)
{
	my $names = $is_known ? 'only the name of the server that has gone' : 'no name';
	subtest "a session connects again to known addresses while $names can be looked up" => sub {
		my $session = background($node, holds => 'outage');
		my ($server) = server_of($session);
		my %place = places();
		know(map { $_ => $is_known && $_ eq "zk$server.test" ? $place{$_} : '' } keys %place);
		$zk->stop($server);
		is($session->query_safe("SELECT zk_is_held('outage')"), 't', 'the lock is held at another server');
		$zk->start($server);
		know(places());
		assert_released($zk, 'outage', $session);
	};
}

subtest 'slow names are looked up side by side and within zklock.connect_timeout' => sub {
	my %place = places();
	know(%place, map { +"zk$_.test" => '~600000 ' . $zk->address($_) } 1, 3);
	my $session = background($node, 'zklock.connect_timeout' => '50s');
	like($session->query("SELECT zk_lock('one')"), qr/^\d+$/, 'one name that is not slow is enough');
	assert_released($zk, 'one', $session);

	know(map { $_ => "~6000 $place{$_}" } keys %place);
	$session = background($node, 'zklock.connect_timeout' => '17s');
	like($session->query("SELECT zk_lock('all')"), qr/^\d+$/, 'three slow names take no longer than one');
	assert_released($zk, 'all', $session);

	know(map { $_ => "~600000 $place{$_}" } keys %place);
	$session = background($node, 'zklock.connect_timeout' => '2s');
	assert_query($session, "SELECT zk_lock('none')", '08001', 'no name is looked up in time');
	like($session->error, qr/DETAIL:  Host "zk1\.test" is still being looked up; host "zk2\.test" is still being looked up; .*\nHINT:  .*DNS.*zk_check\(\)/,
		'the DETAIL names the hosts that are still being looked up');
	$session->quit;

	# The program has a child for each name.
	foreach my $end (qw(backend program))
	{
		$session = background($node, 'zklock.connect_timeout' => '2min');
		$session->start_query("SELECT zk_lock('none')");
		my @programs;
		poll_until { (@programs = session_programs($session->pid)) == 4 } 'three look-ups';
		my ($program) = grep { slurp_file("/proc/$_/stat") =~ /^\d+ \(.*\) \S (\d+)/ && $1 == $session->pid } @programs;
		$end eq 'backend' ? $session->terminate : kill KILL => $program;
		$session->wait_result;
		assert_soon { !grep { -d "/proc/$_" } @programs } "a $end that ends meanwhile leaves no process", 30;
	}
	know(%place);
};

subtest 'zk_check() tells of slow names and moved servers' => sub {
	my $session = background($node);
	know(map { +"zk$_.test" => '~750 ' . $zk->address($_) } @members);
	assert_soon {
		3 == $session->query_safe("SELECT count(*) FROM zk_check() WHERE item LIKE 'server zk%' AND state IN ('ok', 'note')")
	} 'zk_check() asks each server as soon as its address is known', 30;
	my ($server) = server_of($session);
	know(map { +"zk$_.test" => $_ == $server ? '127.0.2.1' : $zk->address($_) } @members);
	my $moved = "FROM zk_check() WHERE item = 'moved servers'";
	assert_soon {
		$session->query_safe("SELECT state, what, remedy $moved") =~
		  /^warning\|127\.0\.1\.$server:\d+, where .* behind no name .*by itself/
	} 'zk_check() warns of a server that is behind no name any more', 30;
	my $other = background($node);
	assert_soon {
		$other->query_safe("SELECT state, what $moved") =~
		  /^note\|other backends .*: 1 \(127\.0\.1\.$server:\d+\)$/
	} 'zk_check() tells of such a server of another backend', 30;
	know(places());
	assert_soon { $session->query_safe("SELECT count(*) $moved") == 0 } 'zk_check() has no such row when each server is behind a name', 30;
	$_->quit foreach $session, $other;
};

# Of another ensemble, which does not know our sessions.
subtest 'a session finds its server when another server has taken the old address' => sub {
	my ($first, $second) = grep { $_ != $zk->leader } @members;
	move($second, '127.0.1.9');
	know(places(), "zk$second.test" => '127.0.1.8');
	my $session = background($node, 'zklock.servers' => name_servers($first, $second), holds => 'taken');
	my $id = session_id_of($session);
	is(join(' ', server_of($session)), $first, 'connected to the only one that is there');
	my $unknown = pack 'N N N q> N x16 x', 37, 0, 0, 0, 16;
	my $other = FakeServer->answering($unknown, at => '127.0.1.8', port => $zk->port($second));
	know(places());
	$zk->stop($first);
	assert_held($session, 'taken', 'the lock is held');
	is(session_id_of($session), $id, 'in the same session');
	is(join(' ', server_of($session)), $second, 'the session is at the address that its name has now');
	$zk->start($first);
	assert_released($zk, 'taken', $session);

	# No name tells of it.
	undef $other;
	know(places(), "zk$second.test" => '127.0.1.8');
	$session = background($node, 'zklock.servers' => name_servers($first, $second), holds => 'taken');
	$other = FakeServer->answering($unknown, at => '127.0.1.8', port => $zk->port($second));
	$zk->stop($first);
	wait_for_loss($session);
	assert_query($session, 'CREATE TABLE written ()', '40001', 'the session is lost where no name has changed');
	like($session->error, qr/DETAIL: .*ended session \w+\. Server "127\.0\.1\.8:\d+" has said: session expired\./, 'the DETAIL names the server that does not know the session');
	$session->quit;
	$zk->start($first);
	know(places());
};

# As a rolling update of containers without volumes does it.
subtest 'locks and queues of two clusters outlive that each server is replaced by an empty one elsewhere' => sub {
	my $paris = cluster('paris', $zk,
		servers => name_servers(@members),
		environment => { LD_PRELOAD => $preload, LD_TEST_NAMES => $file });
	my %of = (berlin => $node, paris => $paris);
	my %offset = map { $_ => -s $of{$_}->logfile } keys %of;
	my ($holder, $other, $last) = map { background($of{$_}, 'zklock.session_timeout' => '60s') } qw(berlin paris berlin);
	my $token = $holder->query_safe("SELECT zk_lock('rolled')");
	$other->query_safe("SELECT zk_lock('kept')");
	my @before = map { session_id_of($_) } $holder, $other;
	start_in_queue($other, "SELECT zk_lock('rolled')", $zk, lock_path('rolled'), 2);
	start_in_queue($last, "SELECT zk_lock('rolled')", $zk, lock_path('rolled'), 3);
	foreach my $member (@members)
	{
		$zk->stop($member);
		rmtree($zk->data_dir($member) . '/version-2');
		move($member, "127.0.3.$member");
		assert_held($holder, 'rolled', "the lock is held when server $member is another one");
	}
	ok(!$other->is_done && !$last->is_done, 'both waiters still wait');
	is($holder->query_safe("SELECT zk_fencing_token('rolled')"), $token, 'the holder has its token');
	assert_passes('rolled', $holder, $other, 'the lock passes to the other cluster');
	assert_passes('rolled', $other, $last, 'the lock passes to the last waiter');
	assert_held($other, 'kept', 'the waiter has kept its other lock');
	is(join(' ', map { session_id_of($_) } $holder, $other), "@before", 'the sessions are those of before');
	unlike(slurp_file($of{$_}->logfile, $offset{$_}), qr/is lost/, "$_ has lost no session") foreach sort keys %of;
	$_->quit foreach $holder, $other, $last;
};

# What a server's certificate must be for is known by its address.
subtest 'a session over TLS follows its server to another address' => sub {
	Certificates::need_tls();
	my $authority = Certificates->new(PostgreSQL::Test::Utils::tempdir(), 'good');
	$authority->issue('server', 'DNS:zk1.test');
	$authority->issue('client');
	my $single = ZooKeeper->new(tls => $authority->of_server('server'))->start;
	know('zk1.test' => '127.0.0.1');
	reconfigure($node, 'zklock.servers' => 'zk1.test:' . $single->secure_port, $authority->settings('client'));
	my $session = background($node, holds => 'encrypted');
	my $id = session_id_of($session);
	$single->stop;
	$single->move(1, '127.0.1.1');
	know('zk1.test' => '127.0.1.1');
	$single->start;
	assert_held($session, 'encrypted', 'the lock is held at another address');
	is(session_id_of($session), $id, 'in the same session');
	assert_released($single, 'encrypted', $session);
};

done_testing();
