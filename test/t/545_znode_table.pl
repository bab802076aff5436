
# The table of docs/interop.md has each znode that zklock makes below its root, with its
# kind, and no other. Tested by making one of each with a real server, and by reading them all.

use FindBin;
use ZkLockTest;

my $zk = ZooKeeper->new(container_check => 1000)->start;
my $node = cluster('berlin', $zk, deadlock_timeout => '50ms');
my ($session, $other) = map { background($node) } 1 .. 2;

my ($table) = slurp_file("$FindBin::Bin/../../docs/interop.md") =~ /^\| path below `<root>` \|[^\n]*\n\|[-|]+\n(.*?)\n\n/ms;
my @rows = map { /^\| `(.*?)` \| .*? \| (.*?) \|/ or die "what is $_?"; { path => $1, kind => $2 } } split /\n/, $table // '';
# A queue node and a request end in digits or as their kind does; a name of these tests is "t/" and letters.
my %part = ('<name>' => '(?:t(?:/[a-z]+)?)', '<queue node>' => '[^/]+-lock-\d{10}', '<slot>' => '[^/]+', '...' => '.+');
foreach my $row (@rows)
{
	# Below .leases a name is one component.
	local $part{'<name>'} = 't%2F[a-z]+' if $row->{path} =~ /^\.leases/;
	$row->{pattern} = join '', map { $part{$_} // quotemeta } split /(<[^>]+>|\.\.\.)/, $row->{path};
}

# All paths below the root, without it, and of which kind they are. A server shows containers as persistent.
sub tree ($client, $path = lock_path('') =~ s{/$}{}r)
{
	my %tree;
	# A container may go as soon as it is empty.
	my @children = eval { $client->children($path) };
	die $@ if $@ && $@ !~ /NoNode/;
	foreach my $child (@children)
	{
		my $stat = $client->exists("$path/$child") or next;
		$tree{"$path/$child" =~ s/^\Q@{[ lock_path('') ]}\E//r} = $stat->{owner} ? 'ephemeral' : 'persistent';
		%tree = (%tree, tree($client, "$path/$child"));
	}
	return %tree;
}

subtest 'each znode that zklock makes is in the table, with its kind' => sub {
	$session->query_safe("SELECT zk_lock('t/lock'), zk_lock_shared('t/shared'), zk_lock('t/many', permits => 2),
		zk_try_lease('t/lease', 'o', '1 h'), zk_run_once('t/job', 'slot')");
	my $token = $other->query_safe("SELECT zk_hold('t/hold', 'r'), zk_request_release('t/lock')");
	$other->query_safe("SELECT zk_lock('t/held')");
	start_in_queue($other, "SELECT zk_lock('t/lock')", $zk, lock_path('t/lock'), 2);
	my $client = $zk->client;
	my %tree;
	# The waiter tells of its wait when its deadlock_timeout is over.
	poll_until { %tree = tree($client); grep { m{^\.waits/} } keys %tree } 'the facts of the wait', 30;
	my (%used, @unknown, @other_kind);
	foreach my $path (sort keys %tree)
	{
		# What is only on the way to one of them.
		next if $path =~ m{^\.(?:once|release|leases|waits)$|^\.once/t(?:/job\.once)?$};
		my ($row) = grep { $path =~ /^$_->{pattern}$/ } @rows;
		push @unknown, $path and next if !$row;
		$used{ $row->{path} } = 1;
		push @other_kind, "$path is $tree{$path}" if ($row->{kind} =~ s/container/persistent/r) !~ /\b$tree{$path}\b/;
	}
	is(join(', ', @unknown), '', 'each is in the table');
	is(join(', ', @other_kind), '', 'each is of the kind that the table says');
	is(join(', ', grep { !$used{$_} } map { $_->{path} } @rows), '', 'each of the table was made');
	diag(explain(\%tree)) if @unknown || @other_kind;
	$other->cancel;
	$_->quit foreach $session, $other;
	my ($of_locks) = grep { $_->{path} eq '<name>' } @rows;
	is($of_locks->{kind}, 'container', 'the znodes of locks are containers');
	assert_becomes { join ' ', grep { m{^t/\w+$} } sort keys %{ { tree($client) } } } 't/hold t/lease', 'containers go when they are empty';
	$client->close;
};

done_testing();
