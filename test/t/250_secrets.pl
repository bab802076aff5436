
# Credentials for ZooKeeper (zklock.auth) do not get to where others can read them: not into
# logs, messages, or the memory of a backend; and files with them that others can read are
# reported. Those that cannot be used are refused at a reload, and refuse sessions at the start.
# Tested in a real cluster with settings and files of all kinds.

use File::Temp ();
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $secret = 'digest:alice:nobody-may-read-this';
my $directory = File::Temp->newdir;

sub credentials_file ($mode)
{
	my $file = "$directory/auth";
	unlink $file;
	append_to_file($file, "$secret\n");
	chmod $mode, $file or die "could not chmod $file: $!";
	return $file;
}

my $node = cluster('files', $zk);
$node->safe_psql('postgres', 'CREATE ROLE ordinary LOGIN');
foreach my $case (
	[ 0600, '' ], [ 0400, '' ], [ 0640, 'group' ], [ 0644, 'others' ], [ 0604, 'others' ],
	[ 0660, 'group' ])
{
	my ($mode, $who) = @$case;
	my $file = credentials_file($mode);
	subtest sprintf('a file with credentials of mode %04o is reported if others can read it', $mode) => sub {
		$node->append_conf('postgresql.conf', "zklock.auth = '\@$file'");
		$node->reload;
		foreach my $user (undef, 'ordinary')
		{
			my $session = background($node, user => $user);
			my $offset = -s $node->logfile;
			$session->query_safe("SELECT zk_lock('file'), zk_unlock('file')");
			is($session->error =~ /WARNING:  file ".*auth" with the credentials.* has group or world access/ ? 1 : 0,
				$who && !$user ? 1 : 0, 'the superuser is warned, if there is a reason');
			is($session->error =~ /auth/ ? 1 : 0, 0, 'an ordinary role is not told of the file') if $user;
			is($node->log_contains(qr/group or world access/, $offset) ? 1 : 0,
				$who ? 1 : 0, 'the log has a warning if there is a reason');
			$session->query_safe("SELECT zk_disconnect(), zk_lock('file')");
			unlike($session->error, qr/world access/, 'the warning comes once');
		}
		unlike(slurp_file($node->logfile), qr/nobody-may/,
			'the log does not have the secret');
	};
}

subtest 'credentials that cannot be used are refused at a reload, and the former ones stay' => sub {
	my $file = credentials_file(0600);
	append_to_file("$directory/bad", "only-a-secret\n");
	reconfigure($node, 'zklock.auth' => "\@$file");
	my $holder = background($node, holds => 'kept');
	foreach my $case (
		[ "\@$directory/gone", qr/DETAIL:  File "\Q$directory\E\/gone" could not be read: No such file or directory\./ ],
		[ "\@$directory", qr/DETAIL:  File "\Q$directory\E" is not a regular file\./ ],
		[ "\@$directory/bad", qr/DETAIL:  File "\Q$directory\E\/bad" does not hold a line/ ],
		[ 'no-colon-but-hidden', qr/HINT:  Use scheme:credentials/ ])
	{
		my ($value, $pattern) = @$case;
		my $offset = -s $node->logfile;
		$node->append_conf('postgresql.auto.conf', "zklock.auth = '$value'");
		$node->reload;
		$node->wait_for_log(qr/LOG:  invalid value for parameter "zklock.auth"\n.*$pattern/, $offset);
		my $next = background($node, holds => 'next');
		is($next->query_safe('SHOW zklock.auth'), "\@$file", 'the former ones stay, also for a new session');
		$next->quit;
	}
	assert_held($holder, 'kept', 'the lock is held');
	unlike(slurp_file($node->logfile), qr/invalid value.*but-hidden|only-a-secret/, 'the log does not have the secrets');
	$holder->quit;
};

subtest 'a reload reads the file again, for the next session' => sub {
	my $file = credentials_file(0600);
	$node->append_conf('postgresql.auto.conf', "zklock.auth = '\@$file'");
	$node->reload;
	my $session = background($node, first => q(SELECT zk_lock('again'), zk_unlock_all()));
	my $id = session_id_of($session);
	open my $to, '>', $file or die "could not write $file: $!";
	print $to "digest:bob:another-secret\n";
	close $to;
	$session->query_safe(q(SELECT zk_lock('again'), zk_unlock_all()));
	is(session_id_of($session), $id, 'without a reload the session stays');
	$node->reload;
	assert_soon { $session->query(q(SELECT zk_lock('other'), zk_unlock_all())); $session->sqlstate eq '42501' } 'with a reload the next lock is asked for with those of the file, which have no right there';
	isnt(session_id_of($session), $id, 'over another session');
};

# Without credentials the znodes would be open to all.
subtest 'credentials that cannot be used when the server starts refuse sessions' => sub {
	my $ordinary = sub { background($node, user => 'ordinary') };
	foreach my $case ([ "\@$directory/gone", '58P01', qr/could not read the file with the credentials for ZooKeeper: No such file/ ],
		[ "\@$directory", '42809', qr/is not a regular file/ ],
		[ "\@$directory/bad", 'F0000', qr/invalid credentials for ZooKeeper/ ],
		[ 'no-colon-but-hidden', 'F0000', qr/invalid credentials for ZooKeeper/ ])
	{
		my ($value, $state, $pattern) = @$case;
		$node->append_conf('postgresql.auto.conf', "zklock.auth = '$value'");
		my $offset = -s $node->logfile;
		$node->restart;
		ok($node->log_contains(qr/LOG:  the credentials for ZooKeeper in "zklock.auth" cannot be used, and sessions are refused/, $offset), 'the log says so at the start');
		my $session = $ordinary->();
		$offset = -s $node->logfile;
		assert_query($session, "SELECT zk_lock('refused')", $state, 'the call fails');
		like($session->error, $pattern, 'the error says why');
		unlike($session->error, qr/\Q$directory\E|but-hidden/, 'the error has neither the path nor the secret');
		assert_no_nodes($zk, lock_path('refused'), 'no znode is made');
		$session->quit;
	}
	my $file = credentials_file(0600);
	$node->append_conf('postgresql.auto.conf', "zklock.auth = '\@$file'");
	$node->reload;
	my $session = $ordinary->();
	assert_soon { $session->query("SELECT zk_lock('refused')"); $session->sqlstate eq '00000' } 'a reload with good ones lets sessions in';
	$session->quit;
};

# Does the memory of a process have it? Undefined if that cannot be read. In what it shares
# with others are the texts of statements, of those who wrote the secret in one, too.
sub has_in_memory ($pid, $text)
{
	open my $maps, '<', "/proc/$pid/maps" or return;
	open my $memory, '<:raw', "/proc/$pid/mem" or return;
	while (my $line = readline $maps)
	{
		my ($from, $to) = $line =~ /^(\w+)-(\w+) rw.p/ or next;
		sysseek $memory, hex $from, 0 or next;
		my $tail = '';
		for (my $left = hex($to) - hex $from; $left > 0; $left -= 1 << 20)
		{
			sysread $memory, my $bytes, $left < 1 << 20 ? $left : 1 << 20 or last;
			return 1 if index("$tail$bytes", $text) >= 0;
			$tail = substr $bytes, -length $text;
		}
	}
	return 0;
}

# What the backend has given to the session's program it has no more. Should the program
# die, the session is closed without it.
subtest 'a backend does not keep credentials in memory, and can end its session' => sub {
	my $file = credentials_file(0600);
	my $session = background($node, 'zklock.session_timeout' => '2min', holds => 'memory');
	my ($program) = session_programs($session->pid);
	my $found = has_in_memory($session->pid, "\@$file");
	plan skip_all => 'the memory of other processes cannot be read' if !defined $found;
	is($found, 1, 'the backend has the path');
	is(has_in_memory($session->pid, 'nobody-may-read-this'), 0, "the backend's memory does not have the secret");
	kill KILL => $program;
	$session->query('SELECT zk_is_held($$memory$$)');
	$session->quit;
	assert_no_nodes($zk, lock_path('memory'), 'the session is ended without the secret');
};

done_testing();
