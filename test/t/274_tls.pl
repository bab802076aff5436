# With zklock.ssl, sessions use TLS to ZooKeeper, and locks work as without it; servers that are
# not who they should be get no byte of ours in the clear, and messages say what is wrong. Tested
# with real servers, with openssl where a certificate is refused, with fake servers, and with
# certificates made here.

use Certificates;
use FakeServer;
use IO::Select;
use IO::Socket::INET;
use Programs;
use Proxy;
use Socket qw(SOL_SOCKET SO_LINGER);
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

my $zk = ZooKeeper->new(servers => 3, tls => $good->of_server('server'))
  ->start;
my %tls = $good->settings('client');
my $node = cluster('berlin', $zk, servers => $zk->secure_connect_string, %tls,
	'zklock.session_timeout' => '8s',
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
		note("again: $err") if $err !~ /Connection refused/;
	}
	return 'nothing but silence';
}

# A server with another certificate, or other settings.
sub server_with ($certificate, %option)
{
	return ZooKeeper->new(
		tls => { ca => $good->ca, cert => $certificate }, %option)->start;
}

# The address of what shows that certificate as such a server does, but is none: openssl, which
# starts in no time. What a client says to it after the handshake is what it prints.
my %shower;

sub shower_of ($certificate)
{
	my $port = ZooKeeper::free_port();
	my $address = "localhost:$port";
	$shower{$address} = start_program('openssl', 's_server', '-quiet', '-accept', "127.0.0.1:$port",
		'-cert', $certificate, '-key', $certificate, '-CAfile', $good->ca, '-Verify', 1);
	poll_until { IO::Socket::INET->new("127.0.0.1:$port") } 'openssl to listen';
	return $address;
}

# A test: these settings lead to that error, and to more of it. Returns the error.
sub assert_refused ($setting, $what, @patterns)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $error = error_with(%$setting);
	like($error, $_, $what) foreach @patterns;
	return $error;
}

# The settings that show that certificate.
sub shown_by ($authority, $name)
{
	my %setting = $authority->settings($name);
	return map { $_ => $setting{$_} } qw(zklock.ssl_cert_file zklock.ssl_key_file);
}

# A file that has all of these.
sub joined ($name, @files)
{
	my $path = "$directory/$name";
	unlink $path;
	append_to_file($path, slurp_file($_)) foreach @files;
	chmod 0600, $path;
	return $path;
}

# One that speaks 1.2 alone, and one that asks for no certificate and has a port for both.
my ($older, $both);
my @tls_1_2 = (config => { 'ssl.protocol' => 'TLSv1.2', 'ssl.enabledProtocols' => 'TLSv1.2' });

# Who may do what with the first node of a queue.
sub acl_of ($queue)
{
	my $client = $zk->client;
	my ($first) = queue_nodes($zk, $queue);
	return map { "@$_" } $client->get_acl("$queue/$first");
}

sub what_check_says { return $node->safe_psql('postgres', 'SELECT state, what, remedy FROM zk_check(false)'); }

subtest 'a lock passes between a cluster with TLS and one without' => sub {
	my ($ours, $theirs) = (background($node, holds => 'mixed'), background($plain));
	start_to_wait($theirs, "SELECT zk_lock('mixed')");
	assert_held($ours, 'mixed', 'held, proved over TLS');
	my @acl = sort { $a cmp $b } acl_of(lock_path('mixed'));
	like("@acl", qr/^1 world anyone 31 digest zklock:\S+ 31 x509 CN=client$/,
		'who has a certificate of the same subject may set its data, too');
	assert_passes('mixed', $ours, $theirs, 'granted');
	start_to_wait($ours, "SELECT zk_lock('mixed')");
	assert_passes('mixed', $theirs, $ours, 'the lock passes back');

	# More than fits into one record of TLS. On a busy machine the
	# proof of so many takes its time.
	$ours->query_safe("SELECT zk_unlock_all(); SET zklock.session_timeout = '30s'");
	is($ours->query_safe("SELECT count(zk_xact_lock('many/' || repeat('x', 150) || i))
		FROM generate_series(1, 300) AS i"), 300, 'many at a time');
	$ours->query_safe("SELECT zk_unlock_all()");
	poll_until { !$zk->ephemerals('/') } 'all to be released';
	assert_leave_nothing($zk, lock_path('mixed'), $ours, $theirs);
	assert_no_programs('no program is left', $ours, $theirs);
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

subtest 'zk_session and zk_check() tell of TLS and of certificates that end soon' => sub {
	my ($ours, $theirs) = (background($node), background($plain));
	$_->query_safe("SELECT zk_lock('told'), zk_unlock('told')") foreach $ours, $theirs;
	my $query = 'SELECT ssl, ssl_version, ssl_subject FROM zk_session';
	like($ours->query_safe($query), qr/^t\|TLSv1\.[23]\|CN=server$/, 'zk_session, with TLS');
	is($theirs->query_safe($query), 'f||', 'zk_session, without TLS');
	like(check_of($ours, 'tls', 3), qr/^ok\|\S+ speaks TLSv1\.[23], \S+; its certificate, of CN=server, and its authorities are valid until 20\d\d-/m,
		'zk_check(): each of the servers');
	like(check_of($ours, 'client certificate', 1), qr/^ok\|it is valid until 20\d\d-/, 'zk_check() names our certificate');
	is(check_of($theirs, '(tls|client)', 0), '', 'zk_check() has no rows of TLS without TLS');

	my $soon = server_with($good->both('soon'));
	use_settings('zklock.servers' => $soon->secure_connect_string, shown_by($good, 'soon'));
	my $session = background($node);
	like(check_of($session, 'tls', 1), qr/^warning\|.*CN=soon.*\|Renew/, 'zk_check() warns of a certificate that ends in 20 days');
	like(check_of($session, 'client certificate', 1), qr/^warning\|.*\|Renew/, 'zk_check() warns of our certificate that ends soon');
	$soon->stop;

	# Not the server's own ends soon, but that of who has issued it.
	my $brief = Certificates->new($directory, 'brief', $good, days => 20);
	$brief->issue('server', 'DNS:localhost');
	my $issued = server_with(joined('brief', $brief->both('server'), $brief->ca));
	use_settings('zklock.servers' => $issued->secure_connect_string);
	like(check_of($session, 'tls', 1), qr/^warning\|.*CN=server.*\|Renew/, 'zk_check() warns of an authority that ends soon');
	use_settings();
};

subtest 'bad files and settings of TLS are reported by name' => sub {
	my $file = 'Could not load file';
	my %case = (
		'zklock.ssl_ca_file names nothing' => [ ssl_ca_file => '', qr/"zklock\.ssl_ca_file" names no file/ ],
		'a missing CA file' => [ ssl_ca_file => 'nowhere.pem', qr/$file "nowhere\.pem": No such file/ ],
		'a CA file with rubbish' => [ ssl_ca_file => 'postgresql.conf', qr/$file "postgresql\.conf"/ ],
		'a certificate without a key' => [ ssl_key_file => '', qr/only one is set/ ],
		'a key that does not fit' => [ ssl_key_file => $bad->key('client'), qr/$file .*: key values mismatch/ ],
		# All that can be told of files of root's is by whom they can be read.
		"a key of root's that its group can read" =>
		  [ ssl_key_file => '/etc/shadow', qr/$file "\/etc\/shadow": (?!it (?:must|has))/ ],
		"a key of root's that all can read" => [ ssl_key_file => '/etc/passwd', qr/it has group or world access/ ],
		'a directory' => [ ssl_crl_file => 'base', qr/"base": not a regular file/ ]);
	my $refused = qr/could not set up TLS for ZooKeeper/;
	foreach my $what (sort keys %case)
	{
		my ($name, $value, $why) = @{ $case{$what} };
		assert_refused({ "zklock.$name" => $value }, $what, $refused, $why);
	}
	assert_refused({ shown_by($good, 'secret') }, 'a key with a pass phrase', $refused, qr/$file/);
	my $key = $good->key('client');
	chmod 0640, $key;
	assert_refused({}, 'a key that others can read', qr/$file .* it has group or world access/);
	like(what_check_says(), qr/^error\|.*has group or world access/m, 'zk_check() says it, too');
	chmod 0600, $key;
	link $good->ca, $node->data_dir . '/root.crt';
	is(error_with('zklock.ssl_ca_file' => 'root.crt'), '', 'a path leads to the data directory');
};

subtest 'servers with a wrong, expired or revoked certificate are refused' => sub {
	my %server = (
		expired => shower_of($good->both('expired')),
		other => shower_of($good->both('other')),
		many => shower_of($good->both('many')),
		unknown => shower_of($bad->both('server')));
	my $list = $good->revoke('revoked');
	my %expected = (
		expired => qr/is not good: certificate has expired; it is that of CN=expired, issued by CN=authority good, valid from Jan  1 .* until Jan  2 00:00:00 2020 GMT, for DNS:localhost/,
		other => qr/is not for "localhost"; it is that of CN=other, issued by .*, for DNS:zk9\.example/,
		many => qr/is not for "localhost"; it is that of CN=many, issued by CN=authority good, valid from .* until .*, for DNS:zk1\./,
		unknown => qr/is not good: unable to get .*issuer certificate; it is that of CN=server, issued by CN=authority bad, .*, for DNS:localhost/);
	# In words of what is wrong, not of all that may be.
	my %remedy = (
		expired => qr/^(?:error|warning)\|no TLS: [^|]*\|Renew that certificate/m,
		other => qr/^(?:error|warning)\|no TLS: [^|]*\|Name the server in zklock\.servers as its certificate does/m,
		unknown => qr/^(?:error|warning)\|no TLS: [^|]*\|Let zklock\.ssl_ca_file name/m);
	$remedy{many} = $remedy{other};
	foreach my $what (sort keys %expected)
	{
		assert_refused({ 'zklock.servers' => $server{$what} }, $what,
			qr/could not connect to ZooKeeper within 2000 ms/, $expected{$what},
			$what eq 'expired' ? qr/HINT:  Renew the certificate that the DETAIL/ : qr/HINT:  The setting "zklock.ssl_ca_file"/);
		assert_soon { what_check_says() =~ $expected{$what} } 'zk_check() says it, too', 30;
		assert_soon { what_check_says() =~ $remedy{$what} } 'zk_check() names the remedy', 30;
		unlike($shower{ $server{$what} }->output, qr{srvr|zklock|\x00\x00\x00}, 'the server was asked for no session');
	}
	my $revoked = server_with($good->both('revoked'));
	my @servers = ('zklock.servers' => $revoked->secure_connect_string);
	is(error_with(@servers), '', 'a revoked certificate is accepted without a revocation list');
	assert_refused({ @servers, 'zklock.ssl_crl_file' => $list }, 'a revoked certificate is refused with a revocation list',
		qr/is not good: certificate revoked; it is that of CN=revoked, .*, for DNS:localhost, IP Address:127\.0\.0\.1/);
	is(error_with('zklock.ssl_crl_file' => $list), '', 'other certificates are accepted with a revocation list');

	# Not the server's own certificate is revoked, but that of who has issued it.
	my $below = Certificates->new($directory, 'below', $good);
	$below->issue('server', 'DNS:localhost');
	my $lower = server_with(joined('chain', $below->both('server'), $below->ca));
	@servers = ('zklock.servers' => $lower->secure_connect_string);
	is(error_with(@servers), '', 'an authority below the one that is known');
	my $lists = joined('lists', $below->revoke, $good->revoke('below-below'));
	assert_refused({ @servers, 'zklock.ssl_crl_file' => $lists }, 'a certificate is refused when its authority is revoked',
		qr/is not good: certificate revoked; it is that of CN=below-below, /);

	# A name for which there is no need of DNS; a star is for the whole of its label.
	$good->issue('wild', 'DNS:12*.0.0.0x1');
	my $wild = shower_of($good->both('wild'));
	assert_refused({ 'zklock.servers' => $wild =~ s{localhost}{127.0.0.0x1}r }, 'a part of a label',
		qr/is not for "127\.0\.0\.0x1"/);

	assert_refused({ 'zklock.servers' => '127.0.0.2:' . $zk->secure_port }, 'another address', qr/could not connect/);
	is(error_with('zklock.servers' => '127.0.0.1:' . $zk->secure_port), '', 'a server is accepted by its address');
};

subtest 'the error says what a server wants: a certificate, TLS, another port' => sub {
	my @none = ('zklock.ssl_cert_file' => '', 'zklock.ssl_key_file' => '');
	my $wants_certificate = qr/HINT:  The server may want a client certificate/;
	assert_refused({@none}, 'a server that wants a client certificate refuses us without one', qr/could not connect to ZooKeeper/, $wants_certificate);
	assert_refused({ shown_by($bad, 'client') }, 'a client certificate of another authority is refused', $wants_certificate);
	assert_refused({ shown_by($good, 'expired') }, 'a client certificate that has expired is refused',
		qr/; the certificate of "zklock\.ssl_cert_file" has expired/, qr/HINT:  Renew that certificate/);
	assert_soon { what_check_says() =~ /\|Renew the client certificate/ } 'zk_check() says the same', 30;
	assert_refused({ 'zklock.servers' => $zk->connect_string }, 'a plain port',
		qr/closed the connection in the TLS handshake|TLS with server/, qr/HINT:  .*secureClientPort/);
	assert_refused({ 'zklock.ssl' => 'off', 'zklock.servers' => $zk->secure_connect_string },
		'TLS is off, and the port wants it', qr/could not connect to ZooKeeper/, qr/HINT:  .*zklock\.ssl/);
	my $nobody = 'localhost:' . ZooKeeper::free_port();
	assert_refused({ 'zklock.servers' => $nobody }, 'a port that refuses connections is reported', qr/Connection refused/);
	assert_soon { what_check_says() =~ /Connection refused\|Start the server/ } 'zk_check() names that port, too', 30;

	# As one that has too many connections: the end, and then a reset, or at once.
	foreach my $ends (1, 0)
	{
		my $full = FakeServer->new(sub ($connection) {
			shutdown $connection, 1 if $ends;
			setsockopt $connection, SOL_SOCKET, SO_LINGER, pack('ii', 1, 0);
			return 0; });
		assert_refused({ 'zklock.servers' => "$full" }, 'a server that closes each connection',
			qr/Server "\Q$full\E" closed the connection in the TLS handshake/, qr/HINT:  .*maxClientCnxns/);
		assert_soon { what_check_says() =~ /\|no TLS: Server "\Q$full\E" closed [^|]*\|.*maxClientCnxns or maxCnxns/ } 'zk_check() names that server, too', 30;
	}

	$both = server_with($good->both('server'), config => { 'client.portUnification' => 'true', 'ssl.clientAuth' => 'none' });
	is(error_with('zklock.servers' => 'localhost:' . $both->port), '', 'a port for both, with TLS');
	is(error_with('zklock.ssl' => 'off', 'zklock.servers' => 'localhost:' . $both->port), '', 'a port for both works without TLS');

	my $newer = server_with($good->both('server'), config => {
		'ssl.protocol' => 'TLSv1.3',
		'ssl.enabledProtocols' => 'TLSv1.3',
		'ssl.ciphersuites' => 'TLS_AES_128_GCM_SHA256' });
	my @servers = ('zklock.servers' => $newer->secure_connect_string);
	is(error_with(@servers, 'zklock.ssl_min_protocol_version' => 'TLSv1.3'), '', 'TLS 1.3');
	assert_refused({ @servers, @none }, 'a server that wants TLS 1.3 and a certificate refuses us without one', $wants_certificate);
	$older = server_with($good->both('server'), @tls_1_2);
	@servers = ('zklock.servers' => $older->secure_connect_string);
	assert_refused({ @servers, 'zklock.ssl_min_protocol_version' => 'TLSv1.3' },
		'a server that has 1.2 alone', qr/TLS with server .* failed/);
};

subtest 'the certificate is the credentials with zklock.auth = x509' => sub {
	my %setting = (
		servers => $zk->secure_connect_string,
		%tls,
		'zklock.auth' => 'x509',
		'zklock.connect_timeout' => '1min',
		'zklock.root' => '/certified');
	my ($one, $same) = map { cluster($_, $zk, %setting) } qw(oslo rome);
	my $stranger = cluster('bonn', $zk, %setting, shown_by($good, 'other'));
	my ($holder, $waiter, $thief) = map { background($_) } $one, $same, $stranger;
	my $token = $holder->query_safe("SELECT zk_lock('mine')");
	my ($name) = queue_nodes($zk, '/certified/mine');
	foreach my $path ('/certified', '/certified/mine', "/certified/mine/$name")
	{
		is_deeply([ map { "@$_" } $zk->client->get_acl($path) ],
			[ '31 x509 CN=client', '1 world anyone' ], "who may do what: $path");
	}
	start_in_queue($waiter, "SELECT zk_lock('mine')", $zk, '/certified/mine', 2);

	assert_query($thief, "SELECT zk_evict('mine', $token)", '42501', 'another certificate may not take it away');
	assert_query($thief, "SELECT zk_lock('mine')", '42501', 'a session with another certificate may not join the queue');
	my $without = background($plain, 'zklock.root' => '/certified');
	assert_query($without, "SELECT zk_evict('mine', $token)", '42501', 'a session without a certificate may not evict');

	assert_passes('mine', $holder, $waiter, 'the same certificate is granted it in turn');
	is($holder->query_safe('SHOW zklock.auth'), 'x509', 'zklock.auth is shown, for it has no secret');
	like($holder->query_safe("SELECT what FROM zk_check(false) WHERE item = 'credentials'"),
		qr/scheme "x509"/, 'zk_check() names it');
	$_->quit foreach $holder, $waiter, $thief, $without;
	assert_no_nodes($zk, '/certified/mine');

	reconfigure($one, 'zklock.ssl_cert_file' => '', 'zklock.ssl_key_file' => '');
	my ($status, $out, $err) = $one->psql('postgres', "SELECT zk_lock('mine')");
	like($err, qr/ERROR:  there is no client certificate to use as the credentials for ZooKeeper\nDETAIL:  .*"x509"/,
		'zklock.auth = x509 fails without a certificate');

	reconfigure($same, 'zklock.servers' => $both->secure_connect_string);
	($status, $out, $err) = $same->psql('postgres', "SELECT zk_lock('mine')");
	like($err, qr/ERROR:  could not join a lock's queue: ZooKeeper knows no credentials of this session\n/,
		'a server that asks for none');
	like($err, qr/HINT:  .*"x509", let the servers ask for a client certificate/, 'the HINT says what to do');
};

subtest 'a root may be changed by the subject of the certificate and by those that are trusted alone' => sub {
	my %setting = (servers => $zk->secure_connect_string, %tls, 'zklock.connect_timeout' => '1min');
	my $client = $zk->client;
	my @read = (1, 'world', 'anyone');
	my %root = (
		'/of-client' => [ [ 31, 'x509', 'CN=client' ], [@read] ],
		'/of-both' => [ [ 31, 'x509', 'CN=client' ], [ 31, 'x509', 'CN=other' ], [@read] ],
		'/of-all' => [ [ 31, 'x509', 'CN=client' ], [ 31, 'world', 'anyone' ] ]);
	foreach my $path (sort keys %root)
	{
		$client->create_path($path);
		$client->set_acl($path, $root{$path});
	}
	my $certified = cluster('lima', $zk, %setting, 'zklock.auth' => 'x509');
	my $session = background($certified);
	$session->query_safe("SET zklock.root = '/of-client'");
	is($session->query_safe("SELECT zk_try_lock('a')"), 't', 'a root of the own subject');
	$session->query_safe("SET zklock.root = '/of-all'");
	assert_query($session, "SELECT zk_lock('a')", '42501', 'a root of everybody');
	like($session->error, qr/gives more than to read to "world:anyone"/, 'the message names everybody');
	$session->query_safe("SET zklock.root = '/of-both'");
	assert_query($session, "SELECT zk_lock('a')", '42501', 'a root of another subject, too');
	like($session->error, qr/gives more than to read to "x509:CN=other"/, 'the message names the other subject');
	reconfigure($certified, 'zklock.trusted_identities' => 'x509:CN=other');
	poll_until { $session->query_safe('SHOW zklock.trusted_identities') ne '' } 'the list to be read';
	is($session->query_safe("SELECT zk_try_lock('a')"), 't', 'the other subject is trusted');
	$session->quit;

	# A password and a certificate are two identities of one session.
	%setting = (%setting, 'zklock.auth' => 'digest:zklock:s3cr3t', 'zklock.root' => '/of-two');
	my $first = background(cluster('quito', $zk, %setting));
	is($first->query_safe("SELECT zk_try_lock('a')"), 't', 'a root that the session makes');
	is_deeply([ map { s/(digest zklock):.*/$1/r } sort map { "@$_" } $client->get_acl('/of-two') ],
		[ '1 world anyone', '31 digest zklock', '31 x509 CN=client' ], 'it has both identities');
	my $second = cluster('sofia', $zk, %setting, shown_by($good, 'other'));
	my $other = background($second);
	assert_query($other, "SELECT zk_lock('b')", '42501', 'the same password with another certificate');
	like($other->error, qr/gives more than to read to "x509:CN=client"/, 'the message names the other certificate');
	reconfigure($second, 'zklock.trusted_identities' => 'x509:CN=client');
	poll_until { $other->query_safe('SHOW zklock.trusted_identities') ne '' } 'the list to be read';
	is($other->query_safe("SELECT zk_try_lock('b')"), 't', 'the other certificate is trusted');
	$_->quit foreach $first, $other;
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

subtest 'a stranger in place of a server gets a ClientHello and no more' => sub {
	foreach my $answer ('', "\x00\x00\x00\x29" . "\x00" x 41, "imok\n", "\x15\x03\x03\x00\x02\x02\x28")
	{
		my $file = "$directory/heard-" . length $answer;
		my $fake = fake($answer, $file);
		my %setting = ('zklock.servers' => 'localhost:' . $fake->port);
		assert_refused(\%setting, 'an error', qr/could not connect to ZooKeeper/);
		what_check_says();
		poll_until { -s $file } 'something to be heard';
		my @heard = split /\n/, slurp_file($file);
		cmp_ok(scalar @heard, '>=', 2, 'it was asked, by the session and by zk_check()');
		# A ClientHello, and at most an alert behind it.
		is(scalar(grep { !/^160301[0-9a-f]{4}01[0-9a-f]*$/ } @heard), 0, 'a ClientHello and no more')
		  or diag(@heard);
		is(scalar(grep { pack('H*', $_) =~ /zklock-test|srvr|digest/ } @heard), 0, 'no byte of a request was sent');
	}
};

# A policy of the machine, such as FIPS: here one that leaves no version of TLS.
subtest 'the configuration of OpenSSL that PostgreSQL was started with counts' => sub {
	my $policy = "$directory/openssl.cnf";
	append_to_file($policy, "openssl_conf = init\n[init]\nssl_conf = ssl\n[ssl]\nsystem_default = policy\n[policy]\nMaxProtocol = TLSv1.2\n");
	{
		local $ENV{OPENSSL_CONF} = $policy;
		$node->restart;
	}
	assert_refused({ 'zklock.ssl_min_protocol_version' => 'TLSv1.3' }, 'its highest version is below the lowest one allowed',
		qr/no protocols available/);
	$node->restart;
	unlike(error_with('zklock.ssl_min_protocol_version' => 'TLSv1.3'), qr/no protocols available/, 'without the policy it offers that one');
	use_settings();
};

subtest 'every connection begins with TLS' => sub {
	my $log = "$directory/beginnings";
	my $proxy = Proxy->new('127.0.0.1:' . $zk->secure_port,
		greeting => sub {
			open my $out, '>>', $log or die "could not open $log: $!";
			print $out unpack('H6', $_[0]), $_[0] =~ /localhost/ ? '' : ' without a name', "\n";
			close $out;
			return $_[0];
		});
	use_settings('zklock.servers' => 'localhost:' . $proxy->port);
	my $connections = sub { return scalar split /\n/, slurp_file($log) };
	# No stall of the machine is to end it before its next handshake is done.
	my $session = background($node, 'zklock.session_timeout' => '1min', holds => 'quiet');
	my $before = $connections->();
	$proxy->reset_connections;
	poll_until { $connections->() > $before && $session->query_safe('SELECT state FROM zk_session') eq 'connected' }
	'it to be back';
	kill_session_program($session);
	# The backend has it ended by another program once it has seen that; nobody waits for the timeout.
	assert_soon { $session->query('SELECT state FROM zk_session'); !$zk->ephemerals('/') }
	'the session is ended by another program', 40;
	assert_soon { what_check_says() =~ /release 3\./ } 'zk_check() has asked', 60;
	$session->quit;
	my @beginnings = split /\n/, slurp_file($log);
	cmp_ok(scalar @beginnings, '>=', 4, 'connections');
	is(scalar(grep { $_ ne '160301' } @beginnings), 0, 'each has begun with TLS, and says with whom');
};

# Who gives a server up tells it so: the last record is an alert. TLS 1.2 shows what is one.
subtest 'a server that is given up gets a TLS alert' => sub {
	my $log = "$directory/all-that-was-sent";
	my $proxy = Proxy->new('127.0.0.1:' . $older->secure_port,
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
};

subtest 'renewed certificate files are used when a session connects again' => sub {
	my $copy = sub ($name) { return (joined('own.pem', $good->cert($name)), joined('own.key', $good->key($name))); };
	my ($cert, $key) = $copy->('client');
	my $proxy = Proxy->new('127.0.0.1:' . $zk->secure_port);
	use_settings(
		'zklock.servers' => $proxy->address,
		'zklock.ssl_cert_file' => $cert,
		'zklock.ssl_key_file' => $key,
		'zklock.ssl_crl_file' => joined('list', $good->revoke));
	# No stall of the machine is to end it before its next handshake is done.
	my $session = background($node, 'zklock.session_timeout' => '20s');
	my $acl = sub ($lock) {
		$session->query_safe("SELECT zk_lock('$lock')");
		return join ' ', acl_of(lock_path($lock));
	};
	like($acl->('before'), qr/x509 CN=client/, 'the old certificate');
	my $id = session_id_of($session);
	$copy->('other');
	$proxy->reset_connections;
	my $round = 0;
	poll_until { $acl->('after' . $round++) =~ /x509 CN=other/ } 'the new one to be shown';
	is(session_id_of($session), $id, 'the session is the same');

	# A server's certificate that is no good any more.
	my $from = -s $node->logfile;
	joined('list', $good->revoke('server'));
	$proxy->reset_connections;
	assert_soon
	{
		$session->query('SELECT state FROM zk_session');
		slurp_file($node->logfile, $from) =~ /is lost, .*\n.*DETAIL:  .*The certificate of .*revoked.*CN=server/;
	}
	'the log says why the session was not connected again', 60;
};

done_testing();
