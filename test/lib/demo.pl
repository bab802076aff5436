
# The demo: two independent databases share locks through ZooKeeper. Every step
# is shown as it happens and verified; the program fails if one is not true. With
# ZKLOCK_TEST_TLS, see ZooKeeper.pm, all that goes to ZooKeeper goes over TLS.

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

# What was told must be so.
sub verify ($true, $what)
{
	die "this is not so: $what\n" unless $true;
	line('', paint('32', "-> $what"));
	return;
}

# Steps ------------------------------------------------------------------

# The session of that name, "berlin 2" being the second one in cluster berlin.
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

# Start to wait for a lock, and see it in the queue: only then is it certain
# that whoever comes next stands behind.
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
	line($who, paint('31', "   $_"))
	  foreach grep { /\S/ } split /\n/, session($who)->error;
	verify(session($who)->sqlstate eq $sqlstate, "$who: SQLSTATE $sqlstate");
	return;
}

# The wait of that session ends; returns what it got.
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
	line('tokyo', $sql);
	print $screen table($sql);
	return;
}

# The queue as it is now, on a terminal in place of the one that was drawn last
# with that number of lines, and slowly enough for eyes. Returns its lines.
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
			$node{tokyo}->installed_command('psql'), '-X', '-d',
			$node{tokyo}->connstr('postgres'), '-c', $sql
		],
		'>', \$table)
	  or die "could not show the queue\n";
	return join '', map { "              $_\n" } grep { length } split /\n/, $table;
}

# "held berlin, waiting tokyo": the queue in one line.
sub queue ($name)
{
	return $control->query_safe(
		"SELECT string_agg(state || ' ' || cluster, ', ' ORDER BY position)
		 FROM zk_lock_queue('$name')");
}

# Acts -------------------------------------------------------------------

sub start_servers
{
	$zk = ZooKeeper->new->start;
	line('ZooKeeper', 'runs at ' . $zk->connect_string);
	foreach my $name (qw(berlin tokyo))
	{
		$node{$name} = cluster($name, $zk, listen_addresses => '127.0.0.1');
		line($name, 'a PostgreSQL cluster of its own, port '
			  . $node{$name}->port);
	}
	$control = background($node{berlin}, name => 'control');
	return;
}

# Who shows no certificate of theirs is told nothing.
sub by_certificate
{
	title('Encrypted, and known by a certificate');
	does('berlin 1', "SELECT zk_try_lock('first')");
	my $is = does('berlin 1', 'SELECT ssl, ssl_version, ssl_subject FROM zk_session');
	verify($is =~ /^t\|TLSv1\.[23]\|CN=server$/, 'the session is, and has verified its server');
	does('berlin 1', "SELECT what FROM zk_check() WHERE item ~ '^(tls|client certificate)'");
	my $key = $node{tokyo}->safe_psql('postgres', 'SHOW zklock.ssl_key_file');
	line('tokyo', "ALTER SYSTEM SET zklock.ssl_cert_file, zklock.ssl_key_file = ''");
	set_certificate('', '');
	does('tokyo 1', "SET zklock.connect_timeout = '2s'");
	fails('tokyo 1', '08001', "SELECT zk_try_lock('first')");
	does('tokyo 1', 'RESET zklock.connect_timeout');
	set_certificate($key =~ s/key$/pem/r, $key);
	verify(does('tokyo 1', "SELECT zk_try_lock('first')") eq 'f', 'with its certificate it is told');
	does('berlin 1', "SELECT zk_unlock('first')");
	return;
}

sub set_certificate ($certificate, $key)
{
	$node{tokyo}->safe_psql('postgres', "ALTER SYSTEM SET zklock.ssl_$_->[0]_file = '$_->[1]'")
	  foreach [ 'cert', $certificate ], [ 'key', $key ];
	$node{tokyo}->reload;
	poll_until
	{
		session('tokyo 1')->query_safe('SHOW zklock.ssl_key_file') eq $key;
	}
	'the settings to be read', 30;
	return;
}

sub one_job
{
	title('One job, two databases: only one of them runs it');
	my $token = does('berlin 1', "SELECT zk_lock('nightly')");
	verify($token > 0, "berlin has the lock; its fencing token is $token");
	waits('tokyo 1', 'nightly');
	return $token;
}

sub the_queue
{
	title('Who has it, who waits: the queue, seen from either side');
	show_queue('nightly');
	my $queue = queue('nightly');
	verify($queue eq 'held berlin, waiting tokyo', $queue);
	return;
}

sub first_come
{
	my ($token) = @_;
	title('First come, first served, across both clusters');
	waits($_, 'nightly') foreach 'berlin 2', 'tokyo 2', 'berlin 3';
	show_queue('nightly') unless $on_terminal;

	my @order = ('berlin 1', 'tokyo 1', 'berlin 2', 'tokyo 2', 'berlin 3');
	my $nlines = move_queue('nightly', 0, 'each lets go in turn');
	# Beside a queue that moves there is no room for it.
	my @told;
	my $tell = sub { $on_terminal ? push @told, [@_] : line(@_) };
	while (my $holder = shift @order)
	{
		my $start = time();
		session($holder)->query_safe("SELECT zk_unlock('nightly')");
		$tell->($holder, "SELECT zk_unlock('nightly')");
		last unless @order;
		my $next = session($order[0])->wait_result;
		my $took = sprintf '%s has it after %.1f ms, with a higher token',
		  $order[0], 1000 * (time() - $start);
		die "this is not so: $took\n"
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
	title('A lock of a transaction: COMMIT releases it');
	does('tokyo 1', 'CREATE TABLE report(day int)');
	does('tokyo 1', 'BEGIN');
	does('tokyo 1', "SELECT zk_xact_lock('report')");
	waits('berlin 1', 'report');
	does('tokyo 1', 'INSERT INTO report VALUES (1)');
	verify(!session('berlin 1')->is_done, 'berlin 1 still waits');
	does('tokyo 1', 'COMMIT');
	gets('berlin 1');
	verify(queue('report') eq 'held berlin', 'the lock passed on with COMMIT');
	does('berlin 1', "SELECT zk_unlock('report')");
	return;
}

sub by_death
{
	title('A backend that is killed leaves no lock behind');
	does('berlin 2', "SELECT zk_lock('nightly')");
	waits('tokyo 2', 'nightly');
	my $pid = session('berlin 2')->pid;
	my $start = time();
	line('berlin', "SELECT pg_terminate_backend($pid)  -- berlin 2");
	$control->query_safe("SELECT pg_terminate_backend($pid)");
	gets('tokyo 2');
	my $took = time() - $start;
	verify($took < 2,
		sprintf 'tokyo 2 has it after %.1f ms, not after a timeout',
		1000 * $took);
	return;
}

sub by_deadlock
{
	title('A deadlock over two clusters is found, and resolved');
	foreach my $hold ([ 'tokyo 1', 'left' ], [ 'berlin 1', 'right' ])
	{
		does($hold->[0], 'BEGIN');
		does($hold->[0], "SELECT zk_xact_lock('$hold->[1]')");
	}
	waits('tokyo 1', 'right', 'zk_xact_lock');
	my $start = time();
	line('berlin 1', "SELECT zk_xact_lock('left')");
	session('berlin 1')->start_query("SELECT zk_xact_lock('left')");
	# With the one's transaction its lock has ended: the other has it.
	my @both = ('tokyo 1', 'berlin 1');
	my %got = map { $_ => session($_)->wait_result } @both;
	my $took = time() - $start;
	my ($victim, $other) = session($both[0])->sqlstate eq '40P01' ? @both : reverse @both;
	tells_error($victim, '40P01');
	die "$other: " . session($other)->error if session($other)->sqlstate ne '00000';
	line($other, "   $got{$other}");
	verify(1, sprintf 'and %s goes on, %.1f s after the deadlock', $other, $took);
	does($victim, 'ROLLBACK');
	does($other, 'COMMIT');
	return;
}

sub by_loss
{
	title('Whoever has lost the lock does not commit');
	# By default a proof that is a few seconds old is good enough, and an eviction is news.
	does('tokyo 1', "SET zklock.commit_guard = 'quorum'");
	does('tokyo 1', 'BEGIN');
	my $token = does('tokyo 1', "SELECT zk_xact_lock('report')");
	does('tokyo 1', 'INSERT INTO report VALUES (2)');
	line('berlin', "SELECT zk_evict('report', $token)");
	my $is_evicted = $control->query_safe("SELECT zk_evict('report', $token)");
	verify($is_evicted eq 't', 'berlin takes the lock away by force');
	fails('tokyo 1', '40001', 'COMMIT');
	my $days = does('tokyo 1', 'SELECT * FROM report');
	verify($days eq '1', 'what it wrote is not there');
	return;
}

sub by_trying
{
	title('Asking without waiting');
	my $tried = does('berlin 3', "SELECT zk_try_lock('nightly')");
	verify($tried eq 'f', 'false while tokyo 2 holds it');
	verify(queue('nightly') eq 'held tokyo', 'and nothing left in the queue');
	does('tokyo 2', "SELECT zk_unlock('nightly')");
	# A release is not awaited, so the next try may have to wait for a moment.
	$tried = does('berlin 3', "SELECT zk_try_lock('nightly', '5 s')");
	verify($tried eq 't', 'true once it is free');
	does('berlin 3', "SELECT zk_unlock('nightly')");
	return;
}

sub by_hand
{
	title('Now by hand');
	my $user = $control->query_safe('SELECT current_user');
	foreach my $name (sort keys %node)
	{
		print $screen "  $name:  psql -h 127.0.0.1 -p ", $node{$name}->port,
		  " -U $user postgres\n";
	}
	print $screen "Try SELECT zk_lock('nightly') in both. ",
	  "Enter or Ctrl-C here ends it all. ";
	# Ends well either way; END takes the servers down.
	local $SIG{INT} = sub { print $screen "\n"; exit 0; };
	readline STDIN;
	return;
}

# A shell starts its background commands deaf to Ctrl-C.
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
	title('All of it happened as told.');
	by_hand() if $on_terminal;
	1;
};
if (!$worked)
{
	print $screen paint('31', "FAILED: $@");
	print $screen "Logs of the servers are in $ENV{TESTDIR}.\n"
	  if $ENV{TESTDIR};
}
$_->quit foreach grep { defined } values %session, $control;
print $screen "Stopping the servers.\n";
exit($worked ? 0 : 1);
