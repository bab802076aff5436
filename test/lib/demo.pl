
# The demo: two independent databases share locks through ZooKeeper. Every step
# is shown as it happens and verified; the program fails if one is not true.

use strict;
use warnings;

# PostgreSQL's test modules take over standard output for their log.
my $screen;
BEGIN { open $screen, '>&', \*STDOUT or die $!; $screen->autoflush(1); }

use IPC::Run;
use POSIX qw(strftime);
use Time::HiRes qw(time);
use ZkLockTest;
use ZooKeeper;

my $on_terminal = -t STDIN && -t $screen;
my ($zk, %node, %session, $control);

# Output -----------------------------------------------------------------

sub paint
{
	my ($color, $text) = @_;
	return $on_terminal ? "\e[${color}m$text\e[0m" : $text;
}

sub line
{
	my ($who, $text) = @_;
	my $now = time();
	my $clock = strftime('%H:%M:%S', localtime $now)
	  . sprintf('.%03d', ($now - int $now) * 1000);
	printf $screen "%s  %-10s %s\n", $clock, $who, $text;
	return;
}

sub title { print $screen "\n", paint('1', $_[0]), "\n"; return; }

# What was told must be so.
sub verify
{
	my ($true, $what) = @_;
	die "this is not so: $what\n" unless $true;
	line('', paint('32', "-> $what"));
	return;
}

# Steps ------------------------------------------------------------------

# The session of that name, "berlin 2" being the second one in cluster berlin.
sub session
{
	my ($who) = @_;
	my ($cluster) = split ' ', $who;
	return $session{$who} ||= background($node{$cluster}, name => "job $who");
}

# Run a statement to its end.
sub does
{
	my ($who, $sql) = @_;
	line($who, $sql);
	my $result = session($who)->query_safe($sql);
	line($who, "   $_") foreach split /\n/, $result;
	return $result;
}

# Start to wait for a lock, and see it in the queue: only then is it certain
# that whoever comes next stands behind.
sub waits
{
	my ($who, $name) = @_;
	my $session = session($who);
	my $pid = $session->pid;
	my $sql = "SELECT zk_lock('$name')";
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

# The wait of that session ends; returns what it got.
sub gets
{
	my ($who) = @_;
	my $result = session($who)->wait_result;
	die "$who: " . session($who)->error if session($who)->sqlstate ne '00000';
	line($who, "   $result");
	return $result;
}

sub show_queue
{
	my ($name) = @_;
	my $sql = "SELECT position, state, cluster, application, pid, token "
	  . "FROM zk_lock_queue('$name') ORDER BY position";
	line('tokyo', $sql);
	my $table;
	IPC::Run::run(
		[
			$node{tokyo}->installed_command('psql'), '-X', '-d',
			$node{tokyo}->connstr('postgres'), '-c', $sql
		],
		'>', \$table)
	  or die "could not show the queue\n";
	print $screen map { "              $_\n" } grep { length } split /\n/,
	  $table;
	return;
}

# "held berlin, waiting tokyo": the queue in one line.
sub queue
{
	my ($name) = @_;
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
	show_queue('nightly');

	my @order = ('berlin 1', 'tokyo 1', 'berlin 2', 'tokyo 2', 'berlin 3');
	while (my $holder = shift @order)
	{
		my $start = time();
		does($holder, "SELECT zk_unlock('nightly')");
		last unless @order;
		my $next = gets($order[0]);
		verify($next > $token,
			sprintf '%s has it after %.1f ms, with a higher token',
			$order[0], 1000 * (time() - $start));
		$token = $next;
		my @early = grep { session($_)->is_done } @order[ 1 .. $#order ];
		verify(!@early, 'the others still wait') if @order > 1;
	}
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
	my $token = one_job();
	the_queue();
	first_come($token);
	by_transaction();
	by_death();
	by_trying();
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
