# The files of TLS: a key's passphrase by zklock.ssl_passphrase_command, whatever the command
# does, files that are replaced by bad ones, and bad settings at a reload. None of it costs a
# session that holds a lock its lock. Tested with a real server behind a proxy.

use Certificates;
use Proxy;
use ZkLockTest;

Certificates::need_tls();

my $directory = PostgreSQL::Test::Utils::tempdir();
my $good = Certificates->new($directory, 'good');
$good->issue('server', 'DNS:localhost,IP:127.0.0.1');
$good->issue('named', 'DNS:localhost');
$good->issue('client');
$good->issue('secret', '', phrase => 'open sesame');
my $zk = ZooKeeper->new(tls => $good->of_server('server'))->start;
my $proxy = Proxy->new('127.0.0.1:' . $zk->secure_port);
my %tls = (
	$good->settings('secret'),
	'zklock.servers' => $proxy->address,
	'zklock.ssl_passphrase_command' => '',
	'zklock.connect_timeout' => '1min');
my %environment = (HOME => "$directory/home", PATH => "$ENV{PATH}:$directory/bin");
my $node = cluster('berlin', $zk, servers => $proxy->address, %tls, environment => \%environment);
my $runs = "$directory/runs";    # a line for each time that a command was run

# With this command; each of its runs is counted.
sub use_command
{
	my ($command) = @_;
	unlink $runs;
	append_to_file($runs, '');
	return reconfigure($node, 'zklock.ssl_passphrase_command' => "echo run >>$runs; $command");
}

sub runs { return scalar split /\n/, slurp_file($runs); }

# The error of a lock, without those settings.
sub error_of_lock
{
	my ($status, $out, $err) = $node->psql('postgres', "SELECT zk_lock('secret')");
	return $err;
}

# Processes with that in their command lines.
sub processes
{
	my ($word) = @_;
	return grep { -r $_ && eval { slurp_file($_) } =~ /\Q$word\E/ } glob '/proc/[0-9]*/cmdline';
}

subtest 'a passphrase command is run once and its first line is the passphrase' => sub {
	my $prompt = "$directory/prompt";
	like(error_of_lock(), qr/DETAIL:  Could not load file .*: it needs a passphrase, and "zklock\.ssl_passphrase_command" is empty, /,
		'without a command the error names the setting');
	my ($inherited, $environment) = ("$directory/inherited", "$directory/environment");
	use_command("echo '%p 100%%' >$prompt; readlink \$(seq -f /proc/self/fd/%%g 3 100) >$inherited; "
		  . "echo \"\$HOME \$PATH\" >$environment; echo 'open sesame'");
	is(error_of_lock(), '', 'a lock works with the right passphrase');
	is(runs(), 1, 'it was run once');
	is(slurp_file($prompt), "Enter passphrase of the key for ZooKeeper: 100%\n", 'the command gets a prompt');
	is(slurp_file($inherited), '', 'the command inherits no descriptor');
	is(slurp_file($environment), "@environment{qw(HOME PATH)}\n", "the command has the server's HOME and PATH");
	my $check;
	poll_until { $check = $node->safe_psql('postgres', 'SELECT what FROM zk_check(false)'); $check =~ /speaks TLSv1/ }
	'zk_check() to ask for it, too';
	unlike($check, qr/sesame/, 'zk_check() does not show the passphrase');
	$node->safe_psql('postgres', 'CREATE ROLE visitor LOGIN');
	my ($status, $out, $err) = $node->psql('postgres', 'SHOW zklock.ssl_passphrase_command', extra_params => [ '-U', 'visitor' ]);
	like($err, qr/ERROR:  (must be superuser or have privileges of pg_read_all_settings|permission denied) to examine "zklock\.ssl_passphrase_command"/,
		'the command is not shown to other roles');
	use_command("printf 'open sesame\\r\\nnext line'");
	is(error_of_lock(), '', 'a lock works with a passphrase that further lines follow');
};

subtest 'a passphrase command that fails, hangs or says too much is reported in time' => sub {
	my $no = qr/ERROR:  could not set up TLS for ZooKeeper\nDETAIL:  Could not load file "[^"]*-secret\.key":/;
	my $failed = qr/$no it needs a passphrase, and "zklock\.ssl_passphrase_command" is empty, failed or took too long/;
	my $wrong = qr/$no what "zklock\.ssl_passphrase_command" says is not its passphrase/;
	my @cases = (
		[ 'wrong', 'echo close sesame', $wrong ],
		[ 'nothing', ':', $failed ],
		[ '10 kB', 'head -c 10000 /dev/zero | tr "\\\\0" x', $wrong ],
		[ '1 MB', 'head -c 1000000 /dev/zero | tr "\\\\0" x', $failed ],
		[ 'a failure', 'echo open sesame; exit 3', $failed ],
		[ 'no such command', '/nowhere/to/be/found', $failed ],
		[ 'no command', 'if', $failed ],
		[ 'a command that hangs', 'exec sleep 4711', $failed ],
		[ 'children that hang', 'sleep 4711 & sleep 4711', $failed ],
		[ 'one that ignores signals', 'trap "" TERM INT HUP; sleep 4711', $failed ],
		[ 'one that leaves its output to another', 'echo open sesame; sleep 4711 &', $failed ]);
	my $from = -s $node->logfile;
	foreach my $case (@cases)
	{
		my ($what, $command, $expected) = @$case;
		use_command($command =~ s/\\\\/\\/gr);
		my $began = time;
		like(error_of_lock(), $expected, $what);
		in_time(time - $began, 30, 'the call fails in time');
		is(runs(), 1, 'it was run once') if $command ne 'if';
		poll_until { !processes('sleep4711') && !processes("sleep\0004711") } 'nothing to be left of it';
	}
	unlike(slurp_file($node->logfile, $from) =~ s/^.*(?:ALTER SYSTEM|SELECT current_setting|parameter "zklock\.ssl_passphrase).*$//mgr, qr/sesame/,
		'the log has no word of it');

	# zk_check(false) has less time than the command has.
	use_command('exec sleep 4711');
	foreach my $form ('', 'false')
	{
		like($node->safe_psql('postgres', "SELECT what, remedy FROM zk_check($form) WHERE item ~ '^server '"),
			qr/there was no answer .*zklock\.ssl_passphrase_command|"zklock\.ssl_passphrase_command" is empty, failed or took too long/,
			"zk_check($form) suspects it");
	}

	# Who gives up does not wait for it, and a program that is killed leaves nothing.
	my $session = background($node);
	$session->start_query("SELECT zk_lock('secret')");
	poll_until { processes("sleep\0004711") } 'the command to run';
	$session->cancel;
	assert_ends($session, '57014', 'canceled');
	$session->start_query("SELECT zk_lock('secret')");
	poll_until { processes("sleep\0004711") || $session->is_done } 'the command to run';
	kill_session_program($session);
	$session->wait_result;
	isnt($session->sqlstate, '00000', 'the call fails when the program is killed');
	$session->quit;
	poll_until { !processes("sleep\0004711") } 'nothing to be left of it';
	assert_no_programs('no program is left', $session);
};

# A session that holds a lock; code that breaks its connection and returns what the log
# says when it is back.
sub session
{
	my $session = background($node, holds => 'files');
	return ($session, sub {
		my $from = -s $node->logfile;
		my $said;
		$proxy->reset_connections;
		poll_until
		{
			$session->query_safe('SELECT state FROM zk_session');
			($said) = slurp_file($node->logfile, $from) =~ /(is connected again, to.*\n(?:.*(?:DETAIL|HINT):.*\n)*)/;
		}
		'it to be back';
		assert_held($session, 'files', 'the lock is kept');
		return $said;
	});
}

# Another file in the place of that one.
sub replace
{
	my ($file, $text) = @_;
	append_to_file("$file.new", $text);
	chmod 0600, "$file.new";
	rename "$file.new", $file or die "could not replace $file: $!";
	return;
}

subtest 'a session connects again with the files it has read, or with new good ones' => sub {
	use_command("echo 'open sesame'");
	my ($session, $reconnect) = session();
	unlike($reconnect->(), qr/HINT/, 'the session connects again with the files it has read');
	is(runs(), 1, 'the command was not run again');

	# With a descriptor more for each connection that would be too few.
	system_or_bail('prlimit', '--pid', session_programs($session->pid), '--nofile=16:16');
	unlike($reconnect->(), qr/HINT/, "again, $_") foreach 1 .. 12;
	my $key = slurp_file($good->key('secret'));
	replace($good->key('secret'), $key);
	# On a busy machine the command may take longer than the second that it has.
	my ($said, $nruns) = ('', 1);
	do { $said = $reconnect->() } while $nruns++ < 10 && $said =~ /took too long/;
	unlike($said, qr/HINT/, 'the session connects again with a new file');
	is(runs(), $nruns, 'the command was run for the new file');

	# The setting is the same: the file is not.
	my $from = -s $node->logfile;
	replace($good->key('secret'), "rubbish\n");
	my $hint = qr/HINT:  Correct the file, or the setting that names it: new sessions will fail\. Could not load file "[^"]*-secret\.key": /;
	like($reconnect->(), $hint, 'the session connects again with what it has read, and says that the new file is bad');
	like(error_of_lock(), qr/Could not load file "[^"]*-secret\.key": /, 'a new session fails with the bad file');
	like(slurp_file($node->logfile, $from), qr/ERROR:  could not set up TLS for ZooKeeper\n.*DETAIL:  Could not load file "[^"]*-secret\.key"/,
		'the log has that error');
	unlink $good->key('secret');
	like($reconnect->(), qr/$hint.*No such file or directory/, 'the session connects again with what it has read, and says that the file is missing');
	$from = -s $node->logfile;
	$node->reload;
	poll_until { slurp_file($node->logfile, $from) =~ /could not access file "[^"]*-secret\.key" for TLS/ }
	'a reload to say so, though no setting has changed';
	replace($good->key('secret'), $key);
	unlike($reconnect->(), qr/HINT/, 'the session connects again with a good file');

	# A command that hangs costs it a second, and not its locks.
	$session->quit;
	use_command("test -e $directory/hang && sleep 4711; echo 'open sesame'");
	($session, $reconnect) = session();
	append_to_file("$directory/hang", '');
	replace($good->key('secret'), $key);
	like($reconnect->(), qr/$hint.*failed or took too long/, 'the session connects again with what it has read, and says that the command hangs');
	poll_until { !processes("sleep\0004711") } 'nothing to be left of it';
	$session->quit;
};

# A session follows settings that work, from its next connection on.
subtest 'settings of TLS that cannot be used leave a session with a lock as it was' => sub {
	use_command("echo 'open sesame'");
	my ($session, $reconnect) = session();
	my $ca = $good->ca;
	my %broken = ('a file that is missing' => { 'zklock.ssl_ca_file' => "$directory/missing" });
	foreach my $what (sort keys %broken)
	{
		# Files of before are not needed any more.
		rename $ca, "$ca.away" or die "could not rename $ca: $!";
		reconfigure($node, %{ $broken{$what} });
		ok($reconnect->(), "$what: it is connected again as before");
		is($session->query_safe('SELECT ssl FROM zk_session'), 't', 'with TLS');
		rename "$ca.away", $ca or die "could not rename $ca: $!";
		reconfigure($node, %tls, 'zklock.ssl_passphrase_command' => "echo 'open sesame'");
		ok($reconnect->(), 'the session connects again with the settings of before');
	}
	$session->quit;
};

subtest 'a server with two names in zklock.servers is used by the name in its certificate' => sub {
	my $named = ZooKeeper->new(tls => $good->of_server('named'))->start;
	my $port = $named->secure_port;
	my @client = ('zklock.ssl_cert_file' => $good->cert('client'), 'zklock.ssl_key_file' => $good->key('client'));
	reconfigure($node, @client, 'zklock.servers' => "localhost:$port,127.0.0.1:$port");
	is(error_of_lock(), '', 'the first is in the certificate');
	my $second = "127.0.0.1:$port,localhost:$port";
	reconfigure($node, @client, 'zklock.servers' => $second, 'zklock.connect_timeout' => '3s');
	like(error_of_lock(), qr/is not for "127\.0\.0\.1"|::1\]?:\d+": Connection refused/, 'the second name is accepted, or the address without a listener is named');
	$named->stop;
};

done_testing();
