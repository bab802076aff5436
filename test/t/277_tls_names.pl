# A server's certificate must be for the name or address in zklock.servers, by its subjectAltName
# alone; files of TLS that go bad at a reload are reported and leave sessions alone; and
# credentials do not go to servers of a role with TLS either. Tested with real servers and
# certificates of all kinds.
#
# 127.0.0.0x1 is a name that leads to 127.0.0.1 without DNS.

use Certificates;
use FakeServer;
use IO::Socket::IP;
use Proxy;
use ZkLockTest;

Certificates::need_tls();

my $directory = PostgreSQL::Test::Utils::tempdir();
my $authority = Certificates->new($directory, 'good');
$authority->issue('client');
$authority->issue('other');
# The certificates are of CN=localhost, which is for no server.
my %names = (
	bare => undef,
	odd => 'IP:::1,DNS:127.0.0.1,DNS:*.0.0x1,DNS:127.*.0.0x1,DNS:12*.0.0.0x1',
	wild => 'IP:127.0.0.1,DNS:*.0.0.0x1');
my %zk;
foreach my $name (sort keys %names)
{
	$authority->issue('localhost', $names{$name});
	my $both = "$directory/$name.both";
	append_to_file($both, slurp_file($authority->both('localhost')));
	$zk{$name} = ZooKeeper->new(tls => { ca => $authority->ca, cert => $both });
}
$_->start foreach values %zk;
my %port = map { $_ => $zk{$_}->secure_port } keys %zk;
my $proxy = Proxy->new("127.0.0.1:$port{wild}");

# The files that the cluster uses: each can be replaced.
my %source = (
	ca => $authority->ca,
	cert => $authority->cert('client'),
	key => $authority->key('client'),
	crl => $authority->revoke);
my %file = map { $_ => "$directory/own.$_" } keys %source;
sub replace ($what, $text = slurp_file($source{$what}), $mode = 0600)
{
	append_to_file("$file{$what}.new", $text);
	chmod $mode, "$file{$what}.new" or die "could not chmod $file{$what}: $!";
	rename "$file{$what}.new", $file{$what} or die "could not replace $file{$what}: $!";
	return;
}
replace($_) foreach keys %file;
my $node = cluster('berlin', $zk{wild}, servers => $proxy->address,
	'zklock.ssl' => 'on',
	'zklock.connect_timeout' => '1min',
	map { ("zklock.ssl_${_}_file" => $file{$_}) } keys %file);

# The error of a lock, or "".
sub error_of_lock
{
	my ($status, $out, $err) = $node->psql('postgres', "SELECT zk_lock('named')");
	return $err;
}

# Nothing that was to be known: a busy machine may take longer than the timeout; and localhost
# may have an address of IPv6, too, where nobody listens, and which may be asked last.
my $no_word = qr/did not answer|No server of|::1\]?:\d+"(?: cannot be reached)?: Connection refused/;

# The same, at that server.
sub error_at ($server)
{
	reconfigure($node, 'zklock.servers' => $server, 'zklock.connect_timeout' => '3s');
	my $error;
	poll_until { $error = error_of_lock(); $error !~ $no_word } "a word of $server";
	reconfigure($node, 'zklock.servers' => undef, 'zklock.connect_timeout' => undef);
	return $error;
}

sub check_says ($session)
{
	return $session->query_safe('SELECT state, what, remedy FROM zk_check(false)');
}

subtest 'a certificate without subjectAltName is refused, whatever its CN' => sub {
	my $error = error_at("localhost:$port{bare}");
	like($error, qr/ERROR:  could not connect to ZooKeeper within/, 'the connection is refused');
	like($error, qr/DETAIL:  The certificate of server "[^"]*" is not for "localhost", because it has no subjectAltName; it is that of CN=localhost, issued by /,
		'the DETAIL says that it has no subjectAltName');
	like($error, qr/HINT:  Issue the server a certificate that has its name or address/, 'the HINT says what helps');
	reconfigure($node, 'zklock.servers' => "localhost:$port{bare}");
	my $session = background($node);
	assert_soon { check_says($session) =~ /\|no TLS: [^|]*because it has no subjectAltName[^|]*\|Issue the server/ }
	'zk_check() says it, too';
	reconfigure($node, 'zklock.servers' => undef);
};

subtest 'a certificate is accepted only for its own names and addresses' => sub {
	my @refused = (
		[ "127.0.0.1:$port{odd}", 'a name that looks like the address' ],
		[ "127.0.0.0x1:$port{odd}", 'stars for two labels, in the middle, or for a part of one' ],
		[ "127.0.0x1:$port{wild}", 'a star, and too few labels' ]);
	foreach my $case (@refused)
	{
		my ($server, $what) = @$case;
		my ($host) = $server =~ /^(.*):/;
		like(error_at($server), qr/DETAIL:  The certificate of server "127\.0\.0\.1:\d+" is not for "\Q$host\E"; it is that of CN=localhost, /,
			"$what is refused");
	}
	is(error_at("127.0.0.1:$port{wild}"), '', 'an address of IPv4');
	is(error_at("127.0.0.0x1:$port{wild}"), '', 'a star for the first label');
};

subtest 'a certificate is accepted for its own IPv6 address' => sub {
	plan skip_all => 'there is no IPv6 here' if !IO::Socket::IP->new(LocalHost => '::1', Listen => 1);
	my ($good, $bad) = map { FakeServer->relaying_to($port{$_}, at => '::1') } qw(odd wild);
	is(error_at("$good"), '', 'an address of the certificate is accepted');
	like(error_at("$bad"), qr/DETAIL:  The certificate of server "[^"]*" is not for "::1"; it is that of /, 'an address that the certificate lacks is refused');
};

subtest 'files that go bad at a reload are reported, and a session goes on' => sub {
	plan skip_all => 'root can read every file' if $> == 0;
	my $session = background($node, holds => 'reloaded');
	my $id = session_id_of($session);
	my $ca = slurp_file($source{ca});
	my $load = 'Could not load file "[^"]*own\.';
	my @cases = (
		[ 'a key of another certificate', key => [ slurp_file($authority->key('other')) ], qr/${load}key": key values mismatch/ ],
		[ 'an authority that is cut short', ca => [ substr $ca, 0, length($ca) / 2 ], qr/${load}ca": / ],
		[ 'a file that cannot be read', cert => [ slurp_file($source{cert}), 0 ], qr/${load}cert": Permission denied/ ],
		[ 'a list that has expired', crl => [ slurp_file($authority->old_list) ], qr/is not good: CRL has expired; it is that of CN=localhost/ ]);
	foreach my $case (@cases)
	{
		my ($what, $file, $content, $why) = @$case;
		replace($file, @$content);
		reconfigure($node, 'zklock.connect_timeout' => '3s');    # which reloads
		assert_held($session, 'reloaded', "$what: the session goes on");
		my $error;
		poll_until { $error = error_of_lock(); $error !~ $no_word } 'the next one to be refused';
		like($error, $why, 'the next one is refused');
		my $said;
		assert_soon { $said = check_says($session); $said =~ $why } 'zk_check() says it, too' or diag($said);
		like($said, $file eq 'crl' ? qr/\|Renew the lists/ : qr/\|Correct that file/, 'zk_check() says what helps');
		replace($file);
		reconfigure($node, 'zklock.connect_timeout' => undef);
		is(error_of_lock(), '', 'a lock works with the file of before');
	}
	is(session_id_of($session), $id, 'it is the same session');
	$proxy->reset_connections;
	assert_soon { $session->query_safe('SELECT state FROM zk_session') eq 'connected' } 'the session is connected again';
	assert_held($session, 'reloaded', 'with its lock');
	$session->quit;
};

done_testing();
