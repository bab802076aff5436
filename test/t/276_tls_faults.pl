# A TLS connection that breaks anywhere ends in time, with an error that says why, and leaves
# nothing behind: servers that close, fall silent or change a byte at each place of what they
# say, and a ZooKeeper library that bypasses the program's connect(). Tested with relays before a
# real server.

use Builds;
use Certificates;
use FakeServer;
use IO::Select;
use IO::Socket::INET;
use Preload;
use ZkLockTest;

Certificates::need_tls();

my $directory = PostgreSQL::Test::Utils::tempdir();
my $authority = Certificates->new($directory, 'good');
$authority->issue('server', 'DNS:localhost');
$authority->issue('client');
my $zk = ZooKeeper->new(tls => $authority->of_server('server'))->start;
my %tls = $authority->settings('client');
my $node = cluster('berlin', $zk, servers => $zk->secure_connect_string, %tls,
	'zklock.session_timeout' => '30s',
	'zklock.connect_timeout' => '30s');

# From where in what the server says it goes wrong: each byte of the first record's head, and
# then here and there up to what it says when all is encrypted.
my @places = (0 .. 7, map { int(7 + 1.25**$_) } 9 .. 31);

# Between a client and the server: what the server says is passed on up to a place, and then
# comes the fault.
sub serve ($client, $fault, $left)
{
	my $server = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $zk->secure_port) or return;
	my $both = IO::Select->new($client, $server);
	while (my @ready = $both->can_read)
	{
		foreach my $from (@ready)
		{
			sysread $from, my $bytes, 65_536 or return;
			if ($from == $client)
			{
				syswrite $server, $bytes;
				next;
			}
			my $is_there = $left >= 0 && length $bytes > $left;
			substr($bytes, $left, 1) ^= "\x01" if $is_there && $fault eq 'changed';
			$bytes = substr $bytes, 0, $left if $is_there && $fault ne 'changed';
			syswrite $client, $bytes;
			$left -= length $bytes;
			next if !$is_there || $fault eq 'changed';
			return if $fault eq 'closed';
			# Silent from now on, until the client goes.
			$both->remove($server);
		}
	}
	return;
}

# With other servers from now on.
sub use_servers ($servers, $timeout)
{
	return reconfigure($node, 'zklock.servers' => $servers, 'zklock.connect_timeout' => $timeout);
}

# A changed byte may be one that means nothing, such as that of a version which nobody reads.
foreach my $fault (qw(closed silent changed))
{
	subtest "a connection that is $fault at each place of the handshake fails in time" => sub {
		my @relays = map {
			my $place = $_;
			FakeServer->new(sub ($client) { return serve($client, $fault, $place); }, forks => 1)
		} @places;
		my @servers = map { 'localhost:' . $_->port } @relays;

		use_servers(join(',', @servers), '5s');
		my $session = background($node);
		my $began = time;
		$session->query("SELECT zk_lock('broken')");
		in_time(time - $began, 25, 'over in time');
		if ($fault ne 'changed' || $session->sqlstate ne '00000')
		{
			is($session->sqlstate, '08001', 'the call fails with 08001');
			like($session->error, qr/could not connect to ZooKeeper within 5000 ms/, 'the error is that of a connection');
			# Where a name has an address of IPv6, too, nobody listens there.
			like($session->error, qr/TLS|did not answer|is not good|::1\]?:\d+"(?: cannot be reached)?: Connection refused/, 'the error says why');
		}
		my $check = $session->query_safe('SELECT item, state, what FROM zk_check(false)');
		my %said = map { $_ => 1 } $check =~ /^server ([^|]+)/mg;
		is(scalar keys %said, scalar @servers, 'zk_check() knows of each of them');
		unlike($check, qr/^server .*\|ok\|/m, 'zk_check() calls none of these servers ok') if $fault ne 'changed';
		$session->quit;
		assert_no_programs('no program is left', $session);

		# The good one among bad ones is found.
		use_servers(join(',', @servers[ 0, 5, 20 ], $zk->secure_connect_string), '1min');
		$session = background($node);
		$session->query_safe("SELECT zk_lock('whole')");
		assert_held($session, 'whole', 'a lock works with one good server among bad ones');
		$session->quit;
		assert_no_programs('no program is left', $session);
		poll_until { !$zk->ephemerals('/') } 'nodes to go';
	};
}

# Bytes that TLS has not found to be the server's keep no session alive: a record that is
# never whole, byte by byte, and nobody who takes a new connection.
subtest 'bytes of a TLS record that does not end keep no session alive' => sub {
	my $flag = "$directory/trickle";
	my $trickle = FakeServer->new(sub ($client) {
		return 0 if -e $flag;
		my $server = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $zk->secure_port);
		my $both = IO::Select->new($client, $server);
		my $next = "\x17\x03\x03\x40\x00";
		while ($next)
		{
			if (-e $flag)
			{
				syswrite $client, $next;
				$next = 'x';
			}
			foreach my $from ($both->can_read(0.2))
			{
				sysread $from, my $bytes, 65_536 or return 0;
				syswrite $from == $client ? $server : $client, $bytes if !-e $flag;
			}
		}
	}, forks => 1);
	use_servers('localhost:' . $trickle->port, '1min');
	my $session = background($node, 'zklock.session_timeout' => '18s', holds => 'trickle');
	my $began = time;
	append_to_file($flag, '');
	wait_for_loss($session);
	in_time(time - $began, 50, 'the loss is not put off');
	$session->quit;
	use_servers($zk->secure_connect_string, '30s');
};

# The library takes no more from a server whose length it could not make room for.
subtest 'a length that cannot be is waited for without using processor time' => sub {
	my $liar = FakeServer->new(sub ($front) {
		sysread $front, my $greeting, 1000;
		return syswrite $front, pack 'N3 Q> N x17 N', 37, 0, 30_000, 1, 16, -5;
	});
	my $behind = IO::Socket::INET->new(PeerAddr => "$liar");
	my $free = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 1, ReuseAddr => 1);
	my $port = $free->sockport;
	close $free;
	my $front = fork // die "could not fork: $!";
	if ($front == 0)
	{
		open STDIN, '<&', $behind;
		open STDOUT, '>&', $behind;
		exec qw(openssl s_server -quiet -accept), "127.0.0.1:$port", '-cert', $authority->both('server');
	}
	use_servers("localhost:$port", '30s');
	my $session = background($node);
	$session->start_query("SELECT zk_lock('liar')");
	my $program;
	poll_until { ($program) = session_programs($session->pid); $program && slurp_file("/proc/$program/cmdline") =~ / connected/ } 'the session';
	my $before = ticks_of($program);
	sleep 2;
	cmp_ok(ticks_of($program) - $before, '<', 20, 'the program uses no processor time while it waits');
	$session->cancel;
	$session->wait_result;
	$session->quit;
	kill 'KILL', $front;
	waitpid $front, 0;
	use_servers($zk->secure_connect_string, '30s');
};

subtest 'a file that cannot be read at a reload is logged, and the session goes on' => sub {
	my $session = background($node, holds => 'kept');
	my $from = -s $node->logfile;
	reconfigure($node, 'zklock.ssl_ca_file' => 'nowhere.pem');
	my $line = qr/LOG:  could not access file "nowhere\.pem" for TLS with ZooKeeper: No such file/;
	my $said;
	poll_until { $said = slurp_file($node->logfile, $from); $said =~ $line } 'the log to tell it';
	assert_held($session, 'kept', 'the session goes on');
	is(scalar(() = slurp_file($node->logfile, $from) =~ /$line/g), 1, 'the log has that line once');
	reconfigure($node, 'zklock.ssl_ca_file' => undef);
};

subtest 'a ZooKeeper library that bypasses our connect() is refused' => sub {
	my $preload = Preload::library('own_connect') or plan skip_all => 'there is no compiler';

	# Behind what is there already. Nobody else knows this server.
	my $server = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 5)
	  or die "could not listen: $!";
	my $other = cluster('paris', $zk, servers => 'localhost:' . $server->sockport, %tls,
		environment => { LD_PRELOAD => join ' ', grep { $_ } $ENV{LD_PRELOAD}, $preload });
	my ($status, $out, $err) = $other->psql('postgres', "SELECT zk_lock('open')");
	like($err, qr/could not set up TLS for ZooKeeper/, 'refused');
	like($err, qr/DETAIL:  .* does not call the connect\(\) of zklock's program/, 'the DETAIL says why');
	like($other->safe_psql('postgres', 'SELECT what FROM zk_check(false)'),
		qr/does not call the connect\(\) of zklock's program/, 'zk_check() says it, too');
	ok(!IO::Select->new($server)->can_read(0), 'nobody has connected to the server');
};

# Of an installation that was copied in part.
subtest 'a missing program with TLS is reported, and one without TLS does not need it' => sub {
	plan skip_all => 'this PostgreSQL bears one installation only' if !Builds->can_be;
	my $build = Builds->copy;
	my $program = $build->library_directory . '/zklock-session-tls';
	rename $program, "$program.away" or die "$program: $!";
	my $other = cluster('milan', $zk, $build->settings, %tls, 'zklock.ssl' => 'off');
	is($other->safe_psql('postgres', "SELECT zk_lock('plain') > 0"), 't', 'a session without TLS needs no such program');
	reconfigure($other, 'zklock.servers' => $zk->secure_connect_string, 'zklock.ssl' => 'on');
	my $late = background($other);
	assert_query($late, "SELECT zk_lock('late')", '53000', 'a session with TLS is refused');
	like($late->error, qr/DETAIL:  Could not start the program ".*zklock-session-tls": No such file.*\nHINT:  .*install zklock again/,
		'the error names the program');
	like($late->query_safe("SELECT concat_ws(' ', what, remedy) FROM zk_check(false)"),
		qr/zklock-session-tls.*No such file.* Install zklock again/s, 'zk_check() says it, too');
	rename "$program.away", $program or die "$program: $!";
	like($late->query_safe("SELECT zk_lock('late')"), qr/^\d+$/, 'TLS works when the program is back');
	$late->quit;
	$other->stop;
};

subtest 'TLS works with a library that is bound at its start' => sub {
	my $bound = cluster('rome', $zk, servers => $zk->secure_connect_string, %tls, environment => { LD_BIND_NOW => 1 });
	is($bound->safe_psql('postgres', "SELECT zk_lock('bound') > 0"), 't', 'a lock is granted');
};

done_testing();
