# Sessions follow a new zklock.servers while they hold locks, also those of idle and busy
# backends, once the new servers have proved that they know the session; servers of another
# ensemble, or a single older copy, are not used. A copy of three servers cannot be told from the
# original. Tested with three real servers, another ensemble, and copies of a data directory.

use ZkLockTest;

my $zk = ZooKeeper->new(servers => 3)->start;
my $other = ZooKeeper->new->start;
my ($first, @others) = sort { ($a == $zk->leader) <=> ($b == $zk->leader) } $zk->members;
my ($from, $to) = ($zk->connect_string($first), $zk->connect_string(@others));
my $node = cluster('main', $zk, servers => $from,
	'zklock.session_timeout' => '40s');
my $role = 'of_its_own';
$node->safe_psql('postgres', "CREATE ROLE $role LOGIN SUPERUSER; ALTER ROLE $role SET zklock.servers = '$to';"
	  . 'CREATE TABLE done (what text)');

# Which of these servers have a connection of the session?
sub servers_of ($session_id, $ensemble = $zk, @members)
{
	@members = $ensemble->running unless @members;
	return join ' ', grep { $ensemble->four_letter_word('cons', $_) =~ /\bsid=\Q$session_id\E,/ } @members;
}

sub holder ($name, %option)
{
	my $session = background($node, %option);
	$session->query_safe("SELECT zk_lock('$name')");
	return $session;
}


# Without a word to its backend.
sub assert_moves ($session_id, $what)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return assert_soon { servers_of($session_id, $zk, @others) && !servers_of($session_id, $zk, $first) } $what;
}

my ($idle, $busy) = map { holder($_) } qw(idle busy);
my %id = (idle => session_id_of($idle), busy => session_id_of($busy));
like($id{idle}, qr/^0x[[:xdigit:]]+$/, 'the id of a session');
my $token = $idle->query_safe(q(SELECT zk_fencing_token('idle')));

subtest 'sessions with locks follow zklock.servers to other servers of the ensemble' => sub {
	is(servers_of($id{$_}), $first, "the session of the $_ backend is where it was set to be") foreach sort keys %id;
	$busy->start_query('SELECT pg_sleep(600)');
	reconfigure($node, 'zklock.servers' => $to);
	assert_moves($id{$_}, "that of the $_ backend goes where it is set to be now") foreach sort keys %id;
	$zk->stop($first);
	assert_held($idle, 'idle', 'and keeps its lock when the server of before stops');
	is($idle->query_safe(q(SELECT zk_fencing_token('idle'))), $token, 'with the token that it had');
	$idle->query_safe("SELECT zk_unlock('idle'), zk_lock('idle')");
	is(session_id_of($idle), $id{idle}, 'it is the same session, also for the next lock');
	assert_query($idle, q(INSERT INTO done VALUES ('moved')), '00000', 'it commits');
	ok(!$busy->is_done, 'the busy statement goes on');
	$busy->cancel;
	assert_ends($busy, '57014', 'the busy statement ends when it is canceled');
	assert_held($busy, 'busy', 'the busy session has its lock');
	$zk->start($first);
};

subtest 'sessions with locks stay when zklock.servers names another ensemble' => sub {
	my $own = holder('own', user => $role);
	my $id = session_id_of($own);
	my $offset = -s $node->logfile;
	my $unknown = sub ($session_id) {
		return slurp_file($node->logfile, $offset) =~
		  /the servers in "zklock.servers" do not know ZooKeeper session \Q$session_id\E, which stays/;
	};
	reconfigure($node, 'zklock.servers' => $other->connect_string);
	assert_soon { $idle->query_safe('SELECT 1') && $unknown->($id{idle}) } 'the log says that they do not know it';
	assert_held($idle, 'idle', 'it keeps its lock');
	like(servers_of($id{idle}), qr/^\d$/, 'the session is at the servers of before');
	my $new = holder('idle');
	is(servers_of(session_id_of($new), $other), 1, 'a new session uses the new ones');
	$new->quit;
	assert_held($own, 'own', 'servers of its own');
	ok(!$unknown->($id), 'servers of its own are not changed by a reload');
	$own->quit;
	reconfigure($node, 'zklock.servers' => $to);
};

# It knows the session, which is safe only with the ensemble that has seen what the session has.
subtest 'sessions with locks stay when zklock.servers names one server with an older copy of the data' => sub {
	my $copy = ZooKeeper->new;
	mkdir $copy->data_dir;
	system_or_bail('cp', '-r', $zk->data_dir($zk->leader) . '/version-2', $copy->data_dir);
	$copy->start;
	my $new = holder('later');
	my $change = sub ($member) { ($zk->four_letter_word('srvr', $member) =~ /^Zxid: (0x[0-9a-f]+)/m)[0] };
	poll_until { $change->(servers_of($id{idle})) eq $change->($zk->leader) } "the session's server to have a change that the copy lacks";
	is($idle->query_safe(q(SELECT count(*) FROM zk_lock_queue('idle'))), 1, 'the session sees it in an answer');
	my $offset = -s $node->logfile;
	reconfigure($node, 'zklock.servers' => $copy->connect_string);
	assert_soon { $idle->query_safe('SELECT 1') && slurp_file($node->logfile, $offset) =~ /session \Q$id{idle}\E(?:, which)? stays with/ }
	'the log says that the session stays';
	assert_held($idle, 'idle', 'it keeps its lock');
	reconfigure($node, 'zklock.servers' => $to);
	$new->quit;
	$copy->stop;
};

subtest 'a session follows servers that it sets itself with its next statement' => sub {
	my $at = servers_of($id{idle});
	my ($another) = grep { $_ ne $at } @others;
	$idle->query_safe("SET zklock.servers = '" . $zk->connect_string($another) . "'");
	assert_becomes { $idle->query_safe('SELECT 1'); servers_of($id{idle}) } $another, 'the session uses servers that it sets with its next statement';
	assert_held($idle, 'idle', 'with the lock held');
	$idle->query_safe('RESET zklock.servers');
	$idle->query_safe('SELECT 1');
	reconfigure($node, 'zklock.servers' => $from);
	assert_becomes { servers_of($id{idle}) } $first, 'the session follows the configuration after RESET';
	assert_held($idle, 'idle', 'still held');
};

subtest 'a session whose servers have stopped follows a reload' => sub {
	$zk->stop($first);
	reconfigure($node, 'zklock.servers' => $to);
	assert_moves($id{idle}, 'a session without a connection goes over');
	assert_held($idle, 'idle', 'with its lock');
	is(session_id_of($idle), $id{idle}, 'the session is the same');
	$zk->start($first);
};

# The copy has elected a leader, so its zxid is above all that the session has seen: docs/backup.md
# says that the original is stopped first.
subtest 'a restored copy of three servers beside the original has holders of its own' => sub {
	my $copy = ZooKeeper->new(servers => 3);
	foreach my $member ($copy->members)
	{
		mkdir $copy->data_dir($member);
		system_or_bail('cp', '-r', $zk->data_dir($zk->leader) . '/version-2', $copy->data_dir($member));
	}
	$copy->start;
	my $zxid = sub ($ensemble) { hex(($ensemble->four_letter_word('srvr', $ensemble->leader) =~ /^Zxid: 0x([0-9a-f]+)/m)[0]) };
	cmp_ok($zxid->($copy), '>', $zxid->($zk), 'the copy has a greater zxid');
	my $token = $idle->query_safe(q(SELECT zk_fencing_token('idle')));
	like(servers_of($id{idle}), qr/^\d$/, 'the session stays with the original while zklock.servers does not name the copy');
	reconfigure($node, 'zklock.servers' => $copy->connect_string);
	assert_soon { servers_of($id{idle}, $copy) } 'the session follows zklock.servers to the copy, which knows it';
	my $other_holder = background($node, user => $role);
	# As the end of the session in the original, after its timeout.
	is($other_holder->query_safe("SELECT zk_evict('idle', $token)"), 't', 'its node is still in the original');
	like($other_holder->query_safe("SELECT zk_lock('idle')"), qr/^\d+$/, 'the original grants the lock to another session');
	assert_held($idle, 'idle', 'the lock is held in the copy, too');
	assert_query($_, q(SET zklock.commit_guard = quorum; INSERT INTO done VALUES ('twice')), '00000', 'both commit')
	  foreach $idle, $other_holder;
	$_->quit foreach $idle, $busy, $other_holder;
	$copy->stop;
};

done_testing();
