
# The demo: two PostgreSQL clusters share locks through ZooKeeper. Every step is shown
# and checked; the program fails if a step does not do what its text says. On a terminal
# it then leaves the servers running, for docs/tutorial.md. With ZKLOCK_TEST_TLS, see
# ZooKeeper.pm, all connections to ZooKeeper use TLS.

use v5.36;

# PostgreSQL's test modules take over standard output for their log.
my $screen;
BEGIN { open $screen, '>&', \*STDOUT or die $!; $screen->autoflush(1); }

use IPC::Run;
use POSIX qw(strftime);
use Time::HiRes qw(sleep time);
use ZkLockTest;
use ZooKeeper;

my $on_terminal = -t STDIN && -t $screen;
my ($zk, %node, %session, $control);

# Output -----------------------------------------------------------------

sub paint ($color, $text)
{
	return $on_terminal ? "\e[${color}m$text\e[0m" : $text;
}

sub line ($who, $text)
{
	my $now = time();
	my $clock = strftime('%H:%M:%S', localtime $now)
	  . sprintf('.%03d', ($now - int $now) * 1000);
	printf $screen "%s  %-10s %s\n", $clock, $who, $text;
	return;
}

sub title { print $screen "\n", paint('1', $_[0]), "\n"; return; }

# Print what has been shown, if it is true.
sub verify ($true, $what)
{
	die "this is not true: $what\n" unless $true;
	line('', paint('32', "-> $what"));
	return;
}

# Steps ------------------------------------------------------------------

# The session of that name; "berlin 2" is the second session on cluster berlin.
sub session ($who = undef)
{
	my ($cluster) = split ' ', $who;
	return $session{$who} ||= background($node{$cluster}, name => "job $who");
}

# Run a statement to its end.
sub does ($who, $sql)
{
	line($who, $sql);
	my $result = session($who)->query_safe($sql);
	line($who, "   $_") foreach split /\n/, $result;
	return $result;
}

# Start a call for a lock that must wait, and return when the queue shows the waiter: a
# session that calls later then stands behind it.
sub waits ($who, $name, $function = undef)
{
	my $session = session($who);
	my $pid = $session->pid;
	my $sql = 'SELECT ' . ($function || 'zk_lock') . "('$name')";
	line($who, $sql);
	$session->start_query($sql);
	poll_until
	{
		$control->query_safe("SELECT count(*) FROM zk_lock_queue('$name')
			WHERE pid = $pid AND state = 'waiting'");
	}
	"$who to wait", 30;
	verify(!$session->is_done, "$who waits");
	return;
}

# Run a statement that must fail with that SQLSTATE.
sub fails ($who, $sqlstate = undef, $sql = undef)
{
	line($who, $sql);
	session($who)->query($sql);
	tells_error($who, $sqlstate);
	return;
}

sub tells_error ($who, $sqlstate)
{
	my $error = session($who)->error =~ s/^psql:<stdin>:\d+: //mgr;
	line($who, paint('31', "   $_")) foreach grep { /\S/ } split /\n/, $error;
	verify(session($who)->sqlstate eq $sqlstate, "$who: SQLSTATE $sqlstate");
	return;
}

# Await the end of that session's wait, and return the token.
sub gets ($who)
{
	my $result = session($who)->wait_result;
	die "$who: " . session($who)->error if session($who)->sqlstate ne '00000';
	line($who, "   $result");
	return $result;
}

sub show_queue ($name)
{
	my $sql = "SELECT position, state, cluster, application_name, pid, token "
	  . "FROM zk_lock_queue('$name') ORDER BY position";
	line('paris', $sql);
	print $screen table($sql);
	return;
}

# Draw the queue as it is now over the one that was drawn last and has that number of
# lines, slowly enough to be seen. Only on a terminal. Returns the number of its lines.
sub move_queue ($name, $nlines, $what)
{
	return 0 unless $on_terminal;
	my $table = table("SELECT position, state, cluster, application_name, token "
		. "FROM zk_lock_queue('$name') ORDER BY position") . "              $what\n";
	print $screen $nlines ? "\e[${nlines}A\e[J" : '', $table;
	sleep 0.8;
	return $table =~ tr/\n//;
}

sub table ($sql)
{
	my $table;
	IPC::Run::run(
		[
			$node{paris}->installed_command('psql'), '-X', '-d',
			$node{paris}->connstr('postgres'), '-c', $sql
		],
		'>', \$table)
	  or die "could not show the queue\n";
	return join '', map { "              $_\n" } grep { length } split /\n/, $table;
}

# "held berlin, waiting paris": the queue in one line.
sub queue ($name)
{
	return $control->query_safe(
		"SELECT string_agg(state || ' ' || cluster, ', ' ORDER BY position)
		 FROM zk_lock_queue('$name')");
}

# Acts -------------------------------------------------------------------

sub start_servers
{
	$zk = ZooKeeper->new(tick_time => 2000)->start;
	line('ZooKeeper', 'one server runs at ' . $zk->connect_string);
	foreach my $name (qw(berlin paris))
	{
		# With the settings that zklock has by default.
		$node{$name} = cluster($name, $zk, listen_addresses => '127.0.0.1',
			map { ("zklock.$_" => undef) } qw(lease_worker root session_timeout));
		line($name, 'an independent PostgreSQL cluster, port ' . $node{$name}->port);
		make_terminal($name);
	}
	$control = background($node{berlin}, name => 'control');
	return;
}

# "test/demo berlin" starts this psql.
sub make_terminal ($name)
{
	my $file = write_terminal($node{$name}, $ENV{TESTDIR});
	my $shown = '';
	IPC::Run::run([ $file, '-XAtc', 'SHOW cluster_name' ], '>', \$shown) or die "$file failed\n";
	die "$file leads to $shown" if $shown ne "$name\n";
	return;
}

# A client that shows no certificate of these authorities gets no answer.
sub by_certificate
{
	title('Connections to ZooKeeper are encrypted, and each side shows a certificate');
	does('berlin 1', "SELECT zk_try_lock('first')");
	my $is = does('berlin 1', 'SELECT ssl, ssl_version, ssl_subject FROM zk_session');
	verify($is =~ /^t\|TLSv1\.[23]\|CN=server$/, 'the connection is encrypted, and zklock has verified the server');
	does('berlin 1', "SELECT what FROM zk_check() WHERE item ~ '^(tls|client certificate)'");
	my $key = $node{paris}->safe_psql('postgres', 'SHOW zklock.ssl_key_file');
	line('paris', "ALTER SYSTEM SET zklock.ssl_cert_file, zklock.ssl_key_file = ''");
	set_certificate('', '');
	does('paris 1', "SET zklock.connect_timeout = '2s'");
	fails('paris 1', '08001', "SELECT zk_try_lock('first')");
	does('paris 1', 'RESET zklock.connect_timeout');
	set_certificate($key =~ s/key$/pem/r, $key);
	verify(does('paris 1', "SELECT zk_try_lock('first')") eq 'f', 'paris has its certificate again, and gets an answer');
	does('berlin 1', "SELECT zk_unlock('first')");
	return;
}

sub set_certificate ($certificate, $key)
{
	$node{paris}->safe_psql('postgres', "ALTER SYSTEM SET zklock.ssl_$_->[0]_file = '$_->[1]'")
	  foreach [ 'cert', $certificate ], [ 'key', $key ];
	$node{paris}->reload;
	poll_until
	{
		session('paris 1')->query_safe('SHOW zklock.ssl_key_file') eq $key;
	}
	'the settings to be read', 30;
	return;
}

sub one_job
{
	title('Two clusters want the same lock: one gets it, the other one waits');
	my $token = does('berlin 1', "SELECT zk_lock('nightly')");
	verify($token > 0, "berlin has the lock; its fencing token is $token");
	waits('paris 1', 'nightly');
	return $token;
}

sub the_queue
{
	title('The queue of a lock: every cluster can see the holder and the waiters');
	show_queue('nightly');
	my $queue = queue('nightly');
	verify($queue eq 'held berlin, waiting paris', $queue);
	return;
}

sub first_come
{
	my ($token) = @_;
	title('First come, first served, across both clusters');
	waits($_, 'nightly') foreach 'berlin 2', 'paris 2', 'berlin 3';
	show_queue('nightly') unless $on_terminal;

	my @order = ('berlin 1', 'paris 1', 'berlin 2', 'paris 2', 'berlin 3');
	my $nlines = move_queue('nightly', 0, 'each holder releases the lock in turn');
	# A queue that is drawn again and again leaves no room for lines.
	my @told;
	my $tell = sub { $on_terminal ? push @told, [@_] : line(@_) };
	while (my $holder = shift @order)
	{
		my $start = time();
		session($holder)->query_safe("SELECT zk_unlock('nightly')");
		$tell->($holder, "SELECT zk_unlock('nightly')");
		last unless @order;
		my $next = session($order[0])->wait_result;
		my $took = sprintf '%s has the lock after %.1f ms, with a greater token',
		  $order[0], 1000 * (time() - $start);
		die "this is not true: $took\n"
		  if session($order[0])->sqlstate ne '00000' || $next <= $token;
		my @early = grep { session($_)->is_done } @order[ 1 .. $#order ];
		die "@early did not wait\n" if @early;
		$token = $next;
		$tell->($order[0], "   $next");
		$tell->('', paint('32', "-> $took"));
		$nlines = move_queue('nightly', $nlines, $took);
	}
	line(@$_) foreach @told;
	return;
}

sub by_transaction
{
	title('A lock of transaction scope: COMMIT releases it');
	does('paris 1', 'CREATE TABLE report(day int)');
	does('paris 1', 'BEGIN');
	does('paris 1', "SELECT zk_xact_lock('report')");
	waits('berlin 1', 'report');
	does('paris 1', 'INSERT INTO report VALUES (1)');
	verify(!session('berlin 1')->is_done, 'berlin 1 still waits');
	does('paris 1', 'COMMIT');
	gets('berlin 1');
	verify(queue('report') eq 'held berlin', 'berlin 1 has the lock since the COMMIT');
	does('berlin 1', "SELECT zk_unlock('report')");
	return;
}

sub by_death
{
	title('The backend of a holder is terminated: the next waiter has the lock at once');
	does('berlin 2', "SELECT zk_lock('nightly')");
	waits('paris 2', 'nightly');
	my $pid = session('berlin 2')->pid;
	my $start = time();
	line('berlin', "SELECT pg_terminate_backend($pid)  -- berlin 2");
	$control->query_safe("SELECT pg_terminate_backend($pid)");
	gets('paris 2');
	my $took = time() - $start;
	verify($took < 2,
		sprintf 'paris 2 has the lock after %.1f ms, without waiting for a timeout',
		1000 * $took);
	return;
}

sub by_deadlock
{
	title('A deadlock between two clusters: one transaction fails, the other one goes on');
	foreach my $hold ([ 'paris 1', 'left' ], [ 'berlin 1', 'right' ])
	{
		does($hold->[0], 'BEGIN');
		does($hold->[0], "SELECT zk_xact_lock('$hold->[1]')");
	}
	waits('paris 1', 'right', 'zk_xact_lock');
	my $start = time();
	line('berlin 1', "SELECT zk_xact_lock('left')");
	session('berlin 1')->start_query("SELECT zk_xact_lock('left')");
	# The transaction that failed has released its lock, so the other one gets it.
	my @both = ('paris 1', 'berlin 1');
	my %got = map { $_ => session($_)->wait_result } @both;
	my $took = time() - $start;
	my ($victim, $other) = session($both[0])->sqlstate eq '40P01' ? @both : reverse @both;
	tells_error($victim, '40P01');
	die "$other: " . session($other)->error if session($other)->sqlstate ne '00000';
	line($other, "   $got{$other}");
	verify(1, sprintf '%s goes on, %.1f s after the deadlock began', $other, $took);
	does($victim, 'ROLLBACK');
	does($other, 'COMMIT');
	return;
}

sub by_loss
{
	title('A transaction that lost its lock does not commit');
	# With the default, lease, a transaction could still commit for some seconds after the eviction.
	does('paris 1', "SET zklock.commit_guard = 'quorum'");
	does('paris 1', 'BEGIN');
	my $token = does('paris 1', "SELECT zk_xact_lock('report')");
	does('paris 1', 'INSERT INTO report VALUES (2)');
	line('berlin', "SELECT zk_evict('report', $token)");
	my $is_evicted = $control->query_safe("SELECT zk_evict('report', $token)");
	verify($is_evicted eq 't', 'berlin takes the lock away from paris 1');
	fails('paris 1', '40001', 'COMMIT');
	my $days = does('paris 1', 'SELECT * FROM report');
	verify($days eq '1', 'the row that it wrote is not there');
	return;
}

sub by_trying
{
	title('A try does not wait');
	my $tried = does('berlin 3', "SELECT zk_try_lock('nightly')");
	verify($tried eq 'f', 'false, because paris 2 holds the lock');
	verify(queue('nightly') eq 'held paris', 'the try has left nothing in the queue');
	does('paris 2', "SELECT zk_unlock('nightly')");
	# paris 2 does not wait until the lock is released, so a try may come too early.
	$tried = does('berlin 3', "SELECT zk_try_lock('nightly', '5 s')");
	verify($tried eq 't', 'true, because the lock is free');
	does('berlin 3', "SELECT zk_unlock('nightly')");
	return;
}

# Nothing of the steps is left: neither sessions nor a table.
sub clean_up
{
	session('paris 1')->query_safe('DROP TABLE report');
	$_->quit foreach values %session, $control;
	%session = ();
	$control = undef;
	return;
}

sub by_hand
{
	title('Now it is your turn');
	print $screen <<~TEXT;
		The two clusters and ZooKeeper are still running. Open two more terminals in this directory:

		  test/demo berlin    psql on cluster berlin, port @{[ $node{berlin}->port ]}
		  test/demo paris     psql on cluster paris, port @{[ $node{paris}->port ]}

		What to type there is in docs/tutorial.md.
		TEXT
	print $screen 'To stop all servers, press Enter or Ctrl-C here. ';
	# END stops the servers.
	local $SIG{INT} = sub { print $screen "\n"; exit 0; };
	readline STDIN;
	return;
}

# A shell starts commands in the background with SIGINT ignored.
$SIG{INT} = \&ZooKeeper::end_by_signal;
my $worked = eval {
	start_servers();
	by_certificate() if $ENV{ZKLOCK_TEST_TLS};
	my $token = one_job();
	the_queue();
	first_come($token);
	by_transaction();
	by_death();
	by_trying();
	by_deadlock();
	by_loss();
	clean_up();
	title('Every step has done what its text says.');
	by_hand() if $on_terminal;
	1;
};
if (!$worked)
{
	print $screen paint('31', "FAILED: $@");
	print $screen "The logs of the servers are in $ENV{TESTDIR}.\n"
	  if $ENV{TESTDIR};
}
$_->quit foreach grep { defined } values %session, $control;
print $screen "Stopping the servers.\n";
exit($worked ? 0 : 1);
