
# zklock and the locks of other clients on one znode wait for each other as the tables of
# docs/interop.md say. Each cell of these tables is tried with the real clients (Curator, Kazoo,
# go-zookeeper, ZooKeeper's recipes) and a real server.

use FindBin;
use Matrix;
use Peer;
use ZkLockTest;

my $zk = ZooKeeper->new->start;
# A driver takes about as long to start as a cluster.
my %driver;
my %kind = map { $_->{client} => $_ } Matrix::rows('With node style');
foreach my $kind (Peer::installed(Peer::kinds()))
{
	$driver{ Peer::library($kind) } ||= Peer->new($kind, $zk);
}
my $node = cluster('berlin', $zk);
my ($session, $observer) = map { background($node) } 1 .. 2;
my $locks = 0;

is_deeply([ sort keys %kind ], [ Peer::kinds() ], 'the matrix has all clients');
diag($driver{$_}->version) foreach sort keys %driver;

my %shown = map { $_->{client} => $_ } Matrix::rows('What stands in the queue');
# What the placeholders in that table stand for.
my %part = (
	'<uuid>' => '[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}',
	'<hex>' => '[0-9a-f]{32}',
	'<session>' => '-?[0-9]+',
	'<n>' => '[0-9]{10}');

subtest 'the table of styles has for each client one with which it shares a lock' => sub {
	my @cells = map { Matrix::rows("With node style $_") } qw(curator curator_rw kazoo);
	my $count = 0;
	my ($table) = slurp_file("$FindBin::Bin/../../docs/interop.md") =~ /^\| other clients [^\n]*\n(.*?)\n\n/ms;
	foreach my $row (split /\n/, $table =~ tr/`//dr)
	{
		my ($clients, $style) = $row =~ /^\| (.*?) \| ((?:curator|kazoo)\b.*?) \|/ or next;
		my ($library) = $clients =~ /^([\w-]+)/;
		foreach my $name ($clients =~ /\b(\w*(?:Lock|Mutex|Selector|Election))\b/g)
		{
			my @of = grep { $_->{client} =~ /^\Q$library\E.*\b$name\b/ && ($_->{client} =~ /lock-/ xor $style !~ /lock-/)
				  && $style =~ /^\Q$_->{section}\E\b/ } map { { %$_, section => $_->{section} =~ s/^With node style //r } } @cells;
			is(join(' ', map { $_->{'one lock'} } @of) =~ s/^(yes) \1$/$1/r, 'yes', "$library $name: $style") and $count++;
		}
	}
	cmp_ok($count, '>=', 7, 'there are clients');
};

# Makes the root. ZooKeeper's recipe makes the lock's znode, not what is above.
$session->query_safe("SELECT zk_try_lock('first'), zk_unlock('first')");

# A name that was not used before: nothing of one cell is left for another.
sub new_lock { return 'matrix' . ++$locks; }

# Ask the client for the lock: "yes" if it waits, "no" if it gets the lock,
# "fails" if there is an error. Whoever waits watches the one ahead; Kazoo's semaphore watches the
# list of children, and such a watch the server does not show but only count.
sub lock_outcome ($peer, $kind, $path)
{
	my $before = $zk->watch_count;
	$peer->start_command('lock');
	poll_until
	{
		$peer->is_done
		  || $zk->watched_paths("$path/")
		  || ($kind eq 'Kazoo Semaphore' && $zk->watch_count > $before);
	}
	'the client to wait or not', 30;
	return 'yes' unless $peer->is_done;
	my $answer = $peer->wait_answer;
	note("$kind: $answer") if $answer ne 'locked';
	return $answer eq 'locked' ? 'no' : 'fails';
}

# zk_lock_queue shows the one that holds the lock as the table says.
sub test_queue ($lock, $who)
{
	my $row = $shown{$who};
	my ($node, $shown) = split / /, $observer->query_safe(
		"SELECT string_agg(node, ',' ORDER BY node) || ' '
			|| string_agg(DISTINCT style, ',') || ','
			|| coalesce(string_agg(DISTINCT mode, ','), 'NULL')
		FROM zk_lock_queue('$lock')");
	(my $pattern = $row->{'child of the lock\'s znode'}) =~ s/, /,/g;
	$pattern =~ s/(<\w+>)/$part{$1}/g;
	like($node, qr/^$pattern$/, 'the queue node is named as the table says');
	is($shown, "$row->{style},$row->{mode}", 'style and mode');
	return;
}

# zklock holds the lock, the client tries to get it.
sub test_client_tries ($peer, $kind, $suffix, $expected)
{
	my $lock = new_lock();
	$session->query_safe("SELECT zk_lock$suffix('$lock')");
	$peer->choose(lock_path($lock), $kind);
	my $answer = $peer->ask('try');
	is($answer, $expected eq 'yes' ? 'busy' : 'locked', 'a try is as the table says');
	assert_held($session, $lock, 'zklock holds the lock');
	$peer->ask('unlock') if $answer eq 'locked';
	$session->query_safe("SELECT zk_unlock$suffix('$lock')");
	return;
}

# zklock holds the lock, the client asks for it.
sub test_client_behind ($peer, $kind, $suffix, $expected)
{
	my $lock = new_lock();
	$session->query_safe("SELECT zk_lock$suffix('$lock')");
	$peer->choose(lock_path($lock), $kind);
	my $outcome = lock_outcome($peer, $kind, lock_path($lock));
	is($outcome, $expected, 'whether the client waits is as the table says');
	assert_held($session, $lock, 'zklock holds the lock');
	ok(!$peer->is_done, 'the client still waits') if $outcome eq 'yes';
	$session->query_safe("SELECT zk_unlock$suffix('$lock')");
	is($peer->wait_answer, 'locked', 'the client has the lock after zk_unlock()')
	  if $outcome eq 'yes';
	$peer->ask('unlock') if $outcome ne 'fails';
	return;
}

# The client holds the lock, zklock comes.
sub test_zklock_behind ($peer, $kind, $suffix, $expected)
{
	my $lock = new_lock();
	$peer->choose(lock_path($lock), $kind);
	$peer->ask('lock');
	test_queue($lock, $kind);

	my $got_it = $session->query_safe("SELECT zk_try_lock$suffix('$lock')");
	is($got_it, $expected eq 'yes' ? 'f' : 't', 'a try is as the table says');
	if ($got_it eq 't')
	{
		$session->query_safe("SELECT zk_unlock$suffix('$lock')");
		$peer->ask('unlock');
		return;
	}
	$session->start_query("SELECT zk_lock$suffix('$lock')");
	poll_until { $zk->watched_paths(lock_path($lock) . '/') } 'zklock to wait', 30;
	is( $observer->query_safe("SELECT string_agg(state, ' ' ORDER BY position)
			FROM zk_lock_queue('$lock')"),
		'held waiting', 'zk_lock_queue shows both');
	ok(!$session->is_done, 'zklock waits');
	$peer->ask('unlock');
	like($session->wait_result, qr/^\d+$/, 'zklock has the lock afterwards');
	$session->query_safe("SELECT zk_unlock$suffix('$lock')");
	return;
}

# "One lock" promises that each waits for the other, save readers for readers.
foreach my $row (grep { $_->{'one lock'} eq 'yes' }
	Matrix::rows('With node style'))
{
	my %values;
	$values{ $row->{$_} }++ foreach grep { /our exclusive lock$/ } keys %$row;
	$values{ $row->{$_} }++ foreach grep { /our shared lock$/
		  && $shown{ $row->{client} }{mode} eq 'exclusive' } keys %$row;
	is(join(' ', keys %values), 'yes', "$row->{client}: one lock with zklock");
}

my %ours_tested;
foreach my $row (Matrix::rows('With node style'))
{
	my $style = Matrix::set_style($row, $session);
	my $kind = $row->{client};
	my $peer = $driver{ Peer::library($kind) };
	foreach my $mode (qw(exclusive shared))
	{
		my $suffix = $mode eq 'shared' ? '_shared' : '';
		subtest "node style $style: our $mode lock stands in the queue as the table shows" => sub {
			my $lock = new_lock();
			$session->query_safe("SELECT zk_lock$suffix('$lock')");
			test_queue($lock, "zklock, style $style, $mode");
			$session->query_safe("SELECT zk_unlock$suffix('$lock')");
		} if !$ours_tested{"$style $mode"}++;
		subtest "node style $style: $kind behind our $mode lock waits as the table says" => sub {
			Peer::require_installed($kind);
			my @case = ($peer, $kind, $suffix, $row->{"waits for our $mode lock"});
			test_client_behind(@case);
			test_client_tries(@case) if $peer->can_try;
		};
		subtest "node style $style: our $mode lock behind $kind waits as the table says" => sub {
			Peer::require_installed($kind);
			test_zklock_behind($peer, $kind, $suffix,
				$row->{"holds up our $mode lock"});
		};
	}
}

# Those that share a lock with zklock do not all share it with each other.
foreach my $row (Matrix::rows('Among themselves'))
{
	my $kind = $row->{'does it wait for'};
	my $peer = $driver{ Peer::library($kind) };
	foreach my $holder (grep { $kind{$_} } sort keys %$row)
	{
		next if $holder eq $kind;
		subtest "$kind behind $holder waits as the table says" => sub {
			Peer::require_installed($kind, $holder);
			my $lock = new_lock();
			my $other = $driver{ Peer::library($holder) };
			$other->choose(lock_path($lock), $holder);
			$other->ask('lock');
			$peer->choose(lock_path($lock), $kind);
			my $outcome = lock_outcome($peer, $kind, lock_path($lock));
			is($outcome, $row->{$holder}, 'whether the client waits is as the table says');
			$other->ask('unlock');
			is($peer->wait_answer, 'locked', 'the client has the lock afterwards')
			  if $outcome eq 'yes';
			$peer->ask('unlock') if $outcome ne 'fails';
		};
	}
}

done_testing();
