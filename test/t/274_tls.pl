# TLS between sessions and ZooKeeper: locks as without it; servers that are not who they
# should be get no word; and what is wrong is said. With real servers, and certificates
# that are made here.

use Certificates;
use FakeServer;
use IO::Select;
use Proxy;
use ZkLockTest;

Certificates::need_tls();

my $directory = PostgreSQL::Test::Utils::tempdir();
my $good = Certificates->new($directory, 'good');
my $bad = Certificates->new($directory, 'bad');
$good->issue('server', 'DNS:localhost,IP:127.0.0.1');
$good->issue('client');
$good->issue('other', 'DNS:zk9.example');
$good->issue('expired', 'DNS:localhost', days => -1);
$good->issue('revoked', 'DNS:localhost,IP:127.0.0.1');
$good->issue('many', join ',', map { "DNS:zk$_.production.example" } 1 .. 40);
$good->issue('soon', 'DNS:localhost', days => 20);
$good->issue('secret', '', phrase => 'open sesame');
$bad->issue('server', 'DNS:localhost');
$bad->issue('client');

my $zk = ZooKeeper->new(servers => 3, tls => { ca => $good->ca, cert => $good->both('server') })
  ->start;
my %tls = $good->settings('client');
my $node = cluster('berlin', $zk, servers => $zk->secure_connect_string, %tls,
	'session_preload_libraries' => 'zklock', 'zklock.session_timeout' => '8s',
	'zklock.connect_timeout' => '1min');
my $plain = cluster('paris', $zk);

# With these settings from now on, and the rest as at first.
sub use_settings (%setting)
{
	return reconfigure($node, (map { $_ => undef } 'zklock.servers', 'zklock.connect_timeout', 'zklock.ssl_crl_file',
			'zklock.ssl_min_protocol_version', keys %tls), %setting);
}

# The error of a lock with these settings. A server that has just started may take longer
# than that for its first handshake; and a name may have an address of IPv6, too, where
# nobody listens, and which is as likely to be the one that was asked last.
sub error_with (%setting)
{
	use_settings('zklock.connect_timeout' => '2s', %setting);
	foreach my $attempt (1 .. 60)
	{
		my ($status, $out, $err) = $node->psql('postgres', "SELECT zk_lock('refused')");
		return $err if $err !~ /No server of|did not answer|::1\]?:\d+"(?: cannot be reached)?: Connection refused/;
	}
	return 'nothing but silence';
}

# A server with another certificate, or other settings.
sub server_with ($certificate, %option)
{
	return ZooKeeper->new(
		tls => { ca => $good->ca, cert => $certificate }, %option)->start;
}

subtest 'locks between a cluster with TLS and one without' => sub {
	my ($ours, $theirs) = (background($node), background($plain));
	$ours->query_safe("SELECT zk_lock('mixed')");
	start_to_wait($theirs, "SELECT zk_lock('mixed')");
	assert_held($ours, 'mixed', 'held, proved over TLS');
	my $client = $zk->client;
	my ($first) = queue_nodes($zk, lock_path('mixed'));
	my @acl = sort map { "@$_" } $client->get_acl(lock_path('mixed') . "/$first");
	$client->close;
	like("@acl", qr/^1 world anyone 31 digest zklock:\S+ 31 x509 CN=client$/,
		'who has a certificate of the same subject may set its data, too');
	assert_passes('mixed', $ours, $theirs, 'granted');
	start_to_wait($ours, "SELECT zk_lock('mixed')");
	assert_passes('mixed', $theirs, $ours, 'and back');

	# More than fits into one record of TLS. On a busy machine the
	# proof of so many takes its time.
	$ours->query_safe("SELECT zk_unlock_all()");
	$ours->query_safe("SET zklock.session_timeout = '30s'");
	is($ours->query_safe("SELECT count(zk_xact_lock('many/' || repeat('x', 150) || i))
		FROM generate_series(1, 300) AS i"), 300, 'many at a time');
	$ours->query_safe("SELECT zk_unlock_all()");
	poll_until { !$zk->ephemerals('/') } 'all to be released';
	$ours->quit;
	$theirs->quit;
	assert_no_programs('no program is left', $ours, $theirs);
	assert_no_nodes($zk, lock_path('mixed'));
};

# What zk_check() says of an item, in this session: so many rows. On a busy machine not
# all servers have answered when its time is over.
sub check_of ($session, $item, $count)
{
	my $rows;
	poll_until
	{
		$rows = $session->query_safe(
			"SELECT state, what, remedy FROM zk_check(false) WHERE item ~ '^$item'");
		(() = $rows =~ /^./mg) == $count;
	}
	"$count rows for $item";
	return $rows;
}

subtest 'what is told of it' => sub {
	my ($ours, $theirs) = (background($node), background($plain));
	$_->query_safe("SELECT zk_lock('told'), zk_unlock('told')") foreach $ours, $theirs;
	my $query = 'SELECT ssl, ssl_version, ssl_subject FROM zk_session';
	like($ours->query_safe($query), qr/^t\|TLSv1\.[23]\|CN=server$/, 'zk_session, with TLS');
	is($theirs->query_safe($query), 'f||', 'and without');
	like(check_of($ours, 'tls', 3), qr/^ok\|\S+ speaks TLSv1\.[23], \S+; its certificate, of CN=server, and its authorities are valid until 20\d\d-/m,
		'zk_check(): each of the servers');
	like(check_of($ours, 'client certificate', 1), qr/^ok\|it is valid until 20\d\d-/, 'and ours');
	is(check_of($theirs, '(tls|client)', 0), '', 'nothing of it without TLS');
	$_->quit foreach $ours, $theirs;

	my $soon = server_with($good->both('soon'));
	use_settings(
		'zklock.servers' => $soon->secure_connect_string,
		'zklock.ssl_cert_file' => $good->cert('soon'),
		'zklock.ssl_key_file' => $good->key('soon'));
	my $session = background($node);
	like(check_of($session, 'tls', 1), qr/^warning\|.*CN=soon.*\|Renew/, 'a warning, 20 days before');
	like(check_of($session, 'client certificate', 1), qr/^warning\|.*\|Renew/, 'likewise');
	$soon->stop;

	# Not the server's own ends soon, but that of who has issued it.
	my $brief = Certificates->new($directory, 'brief', $good, days => 20);
	$brief->issue('server', 'DNS:localhost');
	append_to_file("$directory/brief", slurp_file($_))
	  foreach $brief->both('server'), $brief->ca;
	my $issued = server_with("$directory/brief");
	use_settings('zklock.servers' => $issued->secure_connect_string);
	like(check_of($session, 'tls', 1), qr/^warning\|.*CN=server.*\|Renew/, 'that of an authority');
	$session->quit;
	$issued->stop;
	use_settings();
};

subtest 'connections that break' => sub {
	my $session = background($node, holds => 'kept');
	my ($server) = $session->query_safe('SELECT server FROM zk_session') =~ /:(\d+)$/;
	my ($member) = grep { $zk->secure_port($_) == $server } $zk->members;
	my $id = $session->query_safe('SELECT session_id FROM zk_session');
	$zk->kill9($member);
	poll_until {
		$session->query_safe('SELECT state, server FROM zk_session') =~ /^connected\|(?!.*:$server$)/;
	} 'it to be connected elsewhere';
	assert_held($session, 'kept', 'the lock outlives a server');
	is($session->query_safe('SELECT session_id FROM zk_session'), $id, 'and so does the session');
	$zk->start($member);
	$session->query_safe("SELECT zk_is_held('kept')");

	# Silent, but the kernel still takes what is sent.
	$zk->pause;
	my $began = time;
	poll_until { $session->query('SELECT state FROM zk_session') =~ /lost|^$/ || $session->sqlstate ne '00000' } 'the loss';
	cmp_ok(time - $began, '<', 16, 'a silent ensemble is noticed in time');
	$zk->resume;
	$zk->wait_ready;
	$session->quit;
	poll_until { !$zk->ephemerals('/') } 'its nodes to go';
};

subtest 'sessions end' => sub {
	my $session = background($node, holds => 'ended');
	my $began = time;
	kill 'KILL', $session->query_safe('SELECT program_pid FROM zk_session');
	poll_until { !$zk->ephemerals('/') } 'the session whose program was killed to be ended';
	$session->quit;

	$session = background($node);
	$session->query_safe("SELECT zk_lock('ended')");
	$session->quit;
	poll_until { !$zk->ephemerals('/') } 'the session of a backend that ended', 2;
	assert_no_programs('no program is left', $session);
};

subtest 'files and settings that are no good' => sub {
	my %case = (
		'zklock.ssl_ca_file names nothing' => [
			{ 'zklock.ssl_ca_file' => '' }, qr/"zklock\.ssl_ca_file" names no file/ ],
		'a missing CA file' => [
			{ 'zklock.ssl_ca_file' => 'nowhere.pem' },
			qr/Could not load file "nowhere\.pem": No such file/ ],
		'a CA file with rubbish' => [
			{ 'zklock.ssl_ca_file' => 'postgresql.conf' },
			qr/Could not load file "postgresql\.conf"/ ],
		'a certificate without a key' => [ { 'zklock.ssl_key_file' => '' }, qr/only one is set/ ],
		'a key that does not fit' => [
			{ 'zklock.ssl_key_file' => $bad->key('client') },
			qr/Could not load file .*: key values mismatch/ ],
		'a key with a pass phrase' => [
			{
				'zklock.ssl_cert_file' => $good->cert('secret'),
				'zklock.ssl_key_file' => $good->key('secret')
			},
			qr/Could not load file/
		],
		# All that can be told of files of root's is by whom they can be read.
		"a key of root's that its group can read" => [
			{ 'zklock.ssl_key_file' => '/etc/shadow' },
			qr/Could not load file "\/etc\/shadow": (?!it (?:must|has))/ ],
		"a key of root's that all can read" => [
			{ 'zklock.ssl_key_file' => '/etc/passwd' }, qr/it has group or world access/ ],
		'a directory' => [ { 'zklock.ssl_crl_file' => 'base' }, qr/"base": not a regular file/ ]);
	foreach my $what (sort keys %case)
	{
		my $error = error_with(%{ $case{$what}[0] });
		like($error, qr/could not set up TLS for ZooKeeper/, $what);
		like($error, $case{$what}[1], 'why');
	}
	my $key = $good->key('client');
	chmod 0640, $key;
	like(error_with(), qr/Could not load file .* it has group or world access/, 'a key that others can read');
	my $check = $node->safe_psql('postgres', 'SELECT state, what, remedy FROM zk_check(false)');
	like($check, qr/^error\|.*has group or world access/m, 'zk_check() says it, too');
	chmod 0600, $key;
	link $good->ca, $node->data_dir . '/root.crt';
	is(error_with('zklock.ssl_ca_file' => 'root.crt'), '', 'a path leads to the data directory');
};

subtest 'servers that are not what they should be' => sub {
	my %server = (
		expired => server_with($good->both('expired')),
		other => server_with($good->both('other')),
		many => server_with($good->both('many')),
		unknown => server_with($bad->both('server')));
	my $list = $good->revoke('revoked');
	my %expected = (
		expired => qr/is not good: certificate has expired; it is that of CN=expired, issued by CN=authority good, valid from Jan  1 .* until Jan  2 00:00:00 2020 GMT, for DNS:localhost/,
		other => qr/is not for "localhost"; it is that of CN=other, issued by .*, for DNS:zk9\.example/,
		many => qr/is not for "localhost"; it is that of CN=many, issued by CN=authority good, valid from .* until .*, for DNS:zk1\./,
		unknown => qr/is not good: unable to get .*issuer certificate; it is that of CN=server, issued by CN=authority bad, .*, for DNS:localhost/);
	foreach my $what (sort keys %expected)
	{
		my $error = error_with('zklock.servers' => $server{$what}->secure_connect_string);
		like($error, qr/could not connect to ZooKeeper within 2000 ms/, $what);
		like($error, $expected{$what}, 'why');
		like($error, qr/HINT:  The setting "zklock.ssl_ca_file"/, 'and what to do');
		my $check = $node->safe_psql('postgres', 'SELECT state, what, remedy FROM zk_check(false)');
		like($check, $expected{$what}, 'zk_check() says it, too');
		is(scalar(grep { /Session establishment|0x/ } $server{$what}->ephemerals('/')), 0, 'no session');
	}
	my $revoked = server_with($good->both('revoked'));
	my @servers = ('zklock.servers' => $revoked->secure_connect_string);
	is(error_with(@servers), '', 'who does not know that it is revoked believes it');
	my $error = error_with(@servers, 'zklock.ssl_crl_file' => $list);
	like($error,
		qr/is not good: certificate revoked; it is that of CN=revoked, .*, for DNS:localhost, IP Address:127\.0\.0\.1/,
		'who knows it does not');
	is(error_with('zklock.ssl_crl_file' => $list), '', 'others are good');
	$revoked->stop;

	# Not the server's own certificate is revoked, but that of who has issued it.
	my $below = Certificates->new($directory, 'below', $good);
	$below->issue('server', 'DNS:localhost');
	my ($chain, $lists) = map { "$directory/$_" } qw(chain lists);
	append_to_file($chain, slurp_file($_))
	  foreach $below->both('server'), $below->ca;
	my $lower = server_with($chain);
	@servers = ('zklock.servers' => $lower->secure_connect_string);
	is(error_with(@servers), '', 'an authority below the one that is known');
	append_to_file($lists, slurp_file($_))
	  foreach $below->revoke, $good->revoke('below-below');
	like(error_with(@servers, 'zklock.ssl_crl_file' => $lists),
		qr/is not good: certificate revoked; it is that of CN=below-below, /, 'until that is revoked');
	$lower->stop;

	# A name for which there is no need of DNS; a star is for the whole of its label.
	$good->issue('wild', 'DNS:12*.0.0.0x1');
	my $wild = server_with($good->both('wild'));
	like(error_with('zklock.servers' => '127.0.0.0x1:' . $wild->secure_port),
		qr/is not for "127\.0\.0\.0x1"/, 'a part of a label');
	$wild->stop;

	$error = error_with('zklock.servers' => '127.0.0.2:' . $zk->secure_port);
	like($error, qr/could not connect/, 'another address');
	is(error_with('zklock.servers' => '127.0.0.1:' . $zk->secure_port), '', 'by its address');
	$_->stop foreach values %server;
};

subtest 'what servers want' => sub {
	my $error = error_with('zklock.ssl_cert_file' => '', 'zklock.ssl_key_file' => '');
	like($error, qr/could not connect to ZooKeeper/, 'without a client certificate');
	like($error, qr/HINT:  The server may want a client certificate/, 'what to do');
	$error = error_with(
		'zklock.ssl_cert_file' => $bad->cert('client'),
		'zklock.ssl_key_file' => $bad->key('client'));
	like($error, qr/HINT:  The server may want a client certificate/, 'one of a stranger');
	$error = error_with(
		'zklock.ssl_cert_file' => $good->cert('expired'),
		'zklock.ssl_key_file' => $good->key('expired'));
	like($error, qr/; the certificate of "zklock\.ssl_cert_file" has expired/, 'one that has expired');
	$error = error_with('zklock.servers' => $zk->connect_string);
	like($error, qr/closed the connection in the TLS handshake|TLS with server/, 'a plain port');
	like($error, qr/HINT:  .*secureClientPort/, 'what to do');
	$error = error_with(
		'zklock.ssl' => 'off',
		'zklock.servers' => $zk->secure_connect_string);
	like($error, qr/could not connect to ZooKeeper/, 'TLS is off, and the port wants it');
	like($error, qr/HINT:  .*zklock\.ssl/, 'what to do');
	$error = error_with('zklock.servers' => 'localhost:' . ZooKeeper::free_port());
	like($error, qr/Connection refused/, 'nobody there');

	my $both = server_with($good->both('server'), config => { 'client.portUnification' => 'true' });
	is(error_with('zklock.servers' => 'localhost:' . $both->port), '', 'a port for both, with TLS');
	is(error_with('zklock.ssl' => 'off', 'zklock.servers' => 'localhost:' . $both->port), '', 'and without');
	$both->stop;

	my $newer = server_with($good->both('server'), config => {
		'ssl.protocol' => 'TLSv1.3',
		'ssl.enabledProtocols' => 'TLSv1.3',
		'ssl.ciphersuites' => 'TLS_AES_128_GCM_SHA256' });
	my @servers = ('zklock.servers' => $newer->secure_connect_string);
	is(error_with(@servers, 'zklock.ssl_min_protocol_version' => 'TLSv1.3'), '', 'TLS 1.3');
	$error = error_with(@servers, 'zklock.ssl_cert_file' => '', 'zklock.ssl_key_file' => '');
	like($error, qr/HINT:  The server may want a client certificate/, 'without a certificate');
	$newer->stop;
	my $older = server_with($good->both('server'), config => { 'ssl.protocol' => 'TLSv1.2', 'ssl.enabledProtocols' => 'TLSv1.2' });
	$error = error_with('zklock.servers' => $older->secure_connect_string, 'zklock.ssl_min_protocol_version' => 'TLSv1.3');
	like($error, qr/TLS with server .* failed/, 'a server that has 1.2 alone');
};

subtest 'the certificate as credentials' => sub {
	my %setting = (
		servers => $zk->secure_connect_string,
		%tls,
		'zklock.auth' => 'x509',
		'zklock.connect_timeout' => '1min',
		'zklock.root' => '/certified');
	my ($one, $same) = map { cluster($_, $zk, %setting) } qw(oslo rome);
	my $stranger = cluster('bonn', $zk, %setting,
		'zklock.ssl_cert_file' => $good->cert('other'),
		'zklock.ssl_key_file' => $good->key('other'));
	my ($holder, $waiter, $thief) = map { background($_) } $one, $same, $stranger;
	my $token = $holder->query_safe("SELECT zk_lock('mine')");
	my $client = $zk->client;
	my ($name) = queue_nodes($zk, '/certified/mine');
	foreach my $path ('/certified', '/certified/mine', "/certified/mine/$name")
	{
		is_deeply([ map { "@$_" } $client->get_acl($path) ],
			[ '31 x509 CN=client', '1 world anyone' ], "who may do what: $path");
	}
	$client->close;
	start_in_queue($waiter, "SELECT zk_lock('mine')", $zk, '/certified/mine', 2);

	assert_query($thief, "SELECT zk_evict('mine', $token)", '42501', 'another certificate may not take it away');
	assert_query($thief, "SELECT zk_lock('mine')", '42501', 'nor stand in the queue');
	my $without = background($plain, 'zklock.root' => '/certified');
	assert_query($without, "SELECT zk_evict('mine', $token)", '42501', 'nor who has none');

	assert_passes('mine', $holder, $waiter, 'the same certificate is granted it in turn');
	is($holder->query_safe('SHOW zklock.auth'), 'x509', 'no secret');
	like($holder->query_safe("SELECT what FROM zk_check(false) WHERE item = 'credentials'"),
		qr/scheme "x509"/, 'zk_check() names it');
	$_->quit foreach $holder, $waiter, $thief, $without;
	assert_no_nodes($zk, '/certified/mine');

	$one->safe_psql('postgres', "ALTER SYSTEM SET zklock.$_ = ''")
	  foreach qw(ssl_cert_file ssl_key_file);
	$one->reload;
	poll_until { $one->safe_psql('postgres', 'SHOW zklock.ssl_cert_file') eq '' } 'the setting';
	my ($status, $out, $err) = $one->psql('postgres', "SELECT zk_lock('mine')");
	like($err, qr/ERROR:  there is no certificate to be the credentials for ZooKeeper\nDETAIL:  .*"x509"/,
		'without a certificate');

	my $careless = server_with($good->both('server'), config => { 'ssl.clientAuth' => 'none' });
	$same->safe_psql('postgres', "ALTER SYSTEM SET zklock.servers = '" . $careless->secure_connect_string . "'");
	$same->reload;
	poll_until { $same->safe_psql('postgres', 'SHOW zklock.servers') eq $careless->secure_connect_string } 'the setting';
	($status, $out, $err) = $same->psql('postgres', "SELECT zk_lock('mine')");
	like($err, qr/ERROR:  could not join a lock's queue: ZooKeeper knows no credentials of this session\n/,
		'a server that asks for none');
	like($err, qr/HINT:  .*"x509", the servers must ask for a client certificate/, 'what to do');
};

# A server that takes what it is sent, and answers with some bytes or none.
sub fake ($answer, $file)
{
	return FakeServer->new(sub ($client) {
		my $all = '';
		while (IO::Select->new($client)->can_read(0.3) && sysread $client, my $bytes, 65_536)
		{
			$all .= $bytes;
			syswrite $client, $answer if $answer ne '' && length $all == length $bytes;
		}
		append_to_file($file, unpack('H*', $all) . "\n") if $all ne '';
		return 0;
	});
}

subtest 'nothing is said to a stranger' => sub {
	foreach my $answer ('', "\x00\x00\x00\x29" . "\x00" x 41, "imok\n", "\x15\x03\x03\x00\x02\x02\x28")
	{
		my $file = "$directory/heard-" . length $answer;
		my $fake = fake($answer, $file);
		my $error = error_with('zklock.servers' => 'localhost:' . $fake->port);
		like($error, qr/could not connect to ZooKeeper/, 'an error');
		$node->safe_psql('postgres', 'SELECT count(*) FROM zk_check(false)');
		poll_until { -s $file } 'something to be heard';
		my @heard = split /\n/, slurp_file($file);
		cmp_ok(scalar @heard, '>=', 2, 'it was asked, by the session and by zk_check()');
		# A ClientHello, and at most an alert behind it.
		is(scalar(grep { !/^160301[0-9a-f]{4}01[0-9a-f]*$/ } @heard), 0, 'a ClientHello and no more')
		  or diag(@heard);
		is(scalar(grep { pack('H*', $_) =~ /zklock-test|srvr|digest/ } @heard), 0, 'no word');
	}
};

subtest 'not a byte in the clear' => sub {
	my $log = "$directory/beginnings";
	my $proxy = Proxy->new('127.0.0.1:' . $zk->secure_port,
		greeting => sub {
			open my $out, '>>', $log or die "could not open $log: $!";
			print $out unpack('H6', $_[0]), $_[0] =~ /localhost/ ? '' : ' without a name', "\n";
			close $out;
			return $_[0];
		});
	my ($port) = $proxy->address =~ /:(\d+)$/;
	use_settings('zklock.servers' => "localhost:$port");
	my $connections = sub { return scalar split /\n/, slurp_file($log) };
	my $session = background($node, holds => 'quiet');
	my $before = $connections->();
	$proxy->reset_connections;
	poll_until { $connections->() > $before && $session->query_safe('SELECT state FROM zk_session') eq 'connected' }
	'it to be back';
	kill 'KILL', $session->query_safe('SELECT program_pid FROM zk_session');
	poll_until { !$zk->ephemerals('/') } 'the session to be ended by another program';
	assert_soon { $node->safe_psql('postgres', 'SELECT what FROM zk_check(false)') =~ /release 3\./ } 'zk_check() has asked', 60;
	$session->quit;
	my @beginnings = split /\n/, slurp_file($log);
	cmp_ok(scalar @beginnings, '>=', 4, 'connections');
	is(scalar(grep { $_ ne '160301' } @beginnings), 0, 'each has begun with TLS, and says with whom');
};

# Who gives a server up tells it so: the last record is an alert. TLS 1.2 shows what is one.
subtest 'a silent server is told of the end' => sub {
	my $log = "$directory/all-that-was-sent";
	my $server = server_with($good->both('server'),
		config => { 'ssl.protocol' => 'TLSv1.2', 'ssl.enabledProtocols' => 'TLSv1.2' });
	my $proxy = Proxy->new('127.0.0.1:' . $server->secure_port,
		heard => sub { append_to_file($log, $_[0]); });
	use_settings('zklock.servers' => $proxy->address);
	my $records = sub {
		my $bytes = slurp_file($log);
		my @types;
		while (length $bytes >= 5)
		{
			my ($type, undef, $length) = unpack 'Cnn', $bytes;
			push @types, $type;
			substr $bytes, 0, 5 + $length, '';
		}
		return @types;
	};
	my $session = background($node, holds => 'silent');
	is(scalar(grep { $_ == 21 } $records->()), 0, 'no alert while all is well');
	$proxy->cut('replies');
	poll_until { ($records->())[-1] == 21 } 'an alert as the last record', 30;
	$session->quit;
	$_->stop foreach $proxy, $server;
};

subtest 'new files without a restart' => sub {
	use_settings();
	my $session = background($node, holds => 'renewed');
	$good->issue('client');
	my $proof = $session->query_safe("SELECT zk_is_held('renewed')");
	is($proof, 't', 'a connection that is up stays');
	# Not even a key: the session goes on with what it has read.
	rename $good->key('client'), $good->key('client') . '.away';
	my ($server) = $session->query_safe('SELECT server FROM zk_session') =~ /:(\d+)$/;
	my ($member) = grep { $zk->secure_port($_) == $server } $zk->members;
	$zk->restart($member);
	poll_until { $session->query_safe('SELECT state FROM zk_session') eq 'connected' } 'it to be back';
	assert_held($session, 'renewed', 'held after a reconnect');
	rename $good->key('client') . '.away', $good->key('client');
	$session->quit;
	is($node->safe_psql('postgres', "SELECT zk_lock('renewed') > 0"), 't', 'the new files are used');
};

subtest 'new files for a session that is there' => sub {
	my ($cert, $key) = map { "$directory/own.$_" } qw(pem key);
	my $copy = sub ($name) {
		foreach my $file ([ $good->cert($name), $cert ], [ $good->key($name), $key ])
		{
			unlink $file->[1];
			append_to_file($file->[1], slurp_file($file->[0]));
			chmod 0600, $file->[1];
		}
	};
	$copy->('client');
	my $proxy = Proxy->new('127.0.0.1:' . $zk->secure_port);
	my ($port) = $proxy->address =~ /:(\d+)$/;
	use_settings(
		'zklock.servers' => "127.0.0.1:$port",
		'zklock.ssl_cert_file' => $cert,
		'zklock.ssl_key_file' => $key);
	my $session = background($node);
	my $acl = sub ($lock) {
		$session->query_safe("SELECT zk_lock('$lock')");
		my $client = $zk->client;
		my ($first) = queue_nodes($zk, lock_path($lock));
		my @acl = map { "@$_" } $client->get_acl(lock_path($lock) . "/$first");
		$client->close;
		return "@acl";
	};
	like($acl->('before'), qr/x509 CN=client/, 'the old certificate');
	my $id = $session->query_safe('SELECT session_id FROM zk_session');
	$copy->('other');
	$proxy->reset_connections;
	my $round = 0;
	poll_until { $acl->('after' . $round++) =~ /x509 CN=other/ } 'the new one to be shown';
	is($session->query_safe('SELECT session_id FROM zk_session'), $id, 'by the same session');
};

subtest 'a server that is back with a certificate that is no good' => sub {
	my $file = "$directory/changed";
	append_to_file($file, slurp_file($good->both('server')));
	my $server = server_with($file);
	use_settings('zklock.servers' => '127.0.0.1:' . $server->secure_port);
	my $session = background($node, 'zklock.session_timeout' => '20s', holds => 'changed');
	my $from = -s $node->logfile;
	$server->stop;
	unlink $file;
	append_to_file($file, slurp_file($good->both('expired')));
	$server->start;
	my $said;
	poll_until
	{
		$session->query('SELECT state FROM zk_session');
		($said) = slurp_file($node->logfile, $from) =~ /is lost, and its locks with it\n(.*)/;
	}
	'the loss';
	like($said, qr/DETAIL:  No contact with ZooKeeper for .*\. The certificate of server .* is not .*CN=expired/,
		'the log says why the session was not connected again');
};

done_testing();
