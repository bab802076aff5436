
# What the first pages show of sessions in several clusters is true: the example of README.md, typed
# in ten clusters, what README.md says of an outage of ZooKeeper, with its times, and the transcripts
# of docs/using.md, word for word. Tested with an ensemble of three servers.

use FindBin;
use List::Util qw(first);
use Pages;
use Time::HiRes qw(time);
use ZkLockTest;

my $page = slurp_file("$FindBin::Bin/../../README.md");
my $using = slurp_file("$FindBin::Bin/../../docs/using.md");
# The tokens of an ensemble look like those of the page.
my $zk = ZooKeeper->new(servers => 3)->start;
my %node = map { $_ => cluster($_, $zk) } qw(berlin tokyo);

# One after the other, as psql shows it: "berlin=# statement", what came of it, an empty
# line. A statement without an answer waits: the answer comes with the last block of
# that session, which has no statement.
sub blocks ($mark)
{
	my ($text) = $using =~ /^<!-- \Q$mark\E -->\n```text\n(.*?)^```$/ms or die "there is no $mark";
	return map {
		/\A(\w+)(=#|>) ?(.*?;)?[^\S\n]*(?:--[^\n]*)?\n?(.*)\z/s or die "cannot read: $_";
		{ who => $1, sql => $3, answer => $4 };
	} split /\n\n/, $text;
}

# Tokens, pids, hosts differ from run to run, and with them the width of columns; that two
# numbers are the same one does not.
sub normal ($text)
{
	my %number;
	$text =~ s/^psql:<stdin>:\d+: //mg;
	$text =~ s/\b(user|host) "[^"]*"/$1 "somebody"/g;
	$text =~ s/\b(\d{2,})\b/'#' . ($number{$1} ||= 1 + keys %number)/ge;
	$text =~ s/-{2,}/--/g;
	$text =~ s/ +/ /g;
	$text =~ s/^ | $//mg;
	$text =~ s/\n+\z//;
	return $text;
}

# Until the one that waits has published that, and has looked for a deadlock.
sub wait_until_looked
{
	my $client = $zk->client;
	poll_until {
		my @waits = $zk->ephemerals(lock_path('.waits/'));
		# The server of this client may lag behind.
		@waits == 1 && eval { $client->get($waits[0][0]) =~ /\nlooked\z/ };
	}
	'the waiter has looked for a deadlock', 60;
	$client->close;
	return;
}

# Plays a transcript, and compares what the sessions show. Before a session completes a cycle, the
# other one is to have looked: so it is the second one that gives way.
sub assert_transcript ($mark)
{
	my %of = (%node, admin => $node{tokyo});
	my %session = map { $_ => background($of{$_}) } keys %of;
	$_->query_safe("\\pset format aligned\n\\pset tuples_only off\n\\pset footer off")
	  foreach values %session;
	my (@told, @seen, $token);
	my @blocks = blocks($mark);
	cmp_ok(scalar @blocks, '>=', 6, "the page has a $mark");
	foreach my $block (@blocks)
	{
		my $session = $session{ $block->{who} } or die "who is $block->{who}?";
		my $answer;
		if (!$block->{sql})
		{
			$answer = $session->wait_result . $session->error;
		}
		elsif (!$block->{answer} && $block->{sql} =~ /^SELECT/)
		{
			my ($name) = $block->{sql} =~ /zk_lock\('(\w+)'/ or die "who waits for what: $block->{sql}";
			my $queue = queue_nodes($zk, lock_path($name));
			start_in_queue($session, $block->{sql}, $zk, lock_path($name), $queue + 1);
			wait_until_looked() if $mark =~ /deadlock/;
		}
		else
		{
			my $sql = $block->{sql} =~ s/^(SELECT zk_evict\(.*?), \d+\)/$1, $token)/r;
			$answer = $session->query($sql) . $session->error;
			$token //= $1 if $answer =~ /(\d+)/;
		}
		push @told, $block->{answer};
		push @seen, ($answer // '') =~ s/\n+\z//r;
	}
	is(normal(join "\n\n", @seen), normal(join "\n\n", @told), 'psql shows what the transcript says');
	$_->quit foreach values %session;
	return;
}

subtest 'a lost lock is what the transcript of docs/using.md shows' => sub {
	assert_transcript('transcript');
};

subtest 'a deadlock is what the transcript of docs/using.md shows' => sub {
	assert_transcript('transcript: deadlock');
};

# The two statements of the example: a job, and a transaction.
my $example = first { $_->{kind} eq 'example' } Pages::blocks(Pages::page('README.md', $page));
my ($job, $begin, $commit) = $example->{code} =~ /^(DO .*?\nEND \$\$;)\n.*?^(BEGIN;\n.*?)^(COMMIT;)/ms or die 'the example is another one';
my $tables = 'CREATE TABLE orders (id int, closed bool); INSERT INTO orders VALUES (1, false);
	CREATE TABLE reports (day date, orders bigint)';

subtest 'the job of the example, run by ten clusters at a time, runs on one of them' => sub {
	my @clusters = map { cluster("job$_", $zk) } 1 .. 10;
	my @sessions = map { background($_) } @clusters;
	# The clusters of the page, and the callers that get false.
	like($example->{code}, qr/^-- .* all ten clusters .* on one of them$/m, 'the page says so');
	like($example->{code}, qr/-- true for one caller, false for the other nine$/m, 'and what the others get');
	$_->query_safe($tables) foreach @sessions;
	$_->start_query($job) foreach @sessions;
	assert_ends($_, '00000', 'the job, or nothing') foreach @sessions;
	my @reports = map { $_->query_safe('SELECT count(*) FROM reports') } @sessions;
	is(join(' ', sort { $b <=> $a } @reports), join(' ', 1, (0) x 9), 'one cluster has run it');
	$_->start_query($job) foreach @sessions;
	assert_ends($_, '00000', 'nothing') foreach @sessions;
	is(join(' ', map { $_->query_safe('SELECT count(*) FROM reports') } @sessions), "@reports", 'and nobody runs it again');
	$_->quit foreach @sessions;
	$_->stop foreach @clusters;
};

subtest 'the transaction of the example waits for its turn, and is refused if its lock was lost' => sub {
	my ($first, $second, $admin) = map { background($_) } $node{berlin}, $node{tokyo}, $node{tokyo};
	$_->query_safe($tables) foreach $first, $second;
	my ($token) = $first->query_safe($begin) =~ /^(\d+)$/m or die 'no fencing token';
	start_in_queue($second, $begin, $zk, lock_path('orders'), 2);
	$first->query_safe($commit);
	is($first->query_safe('SELECT closed FROM orders'), 't', 'the first one commits');
	my ($next) = $second->wait_result =~ /^(\d+)$/m or die 'no fencing token';
	cmp_ok($next, '>', $token, 'then it is the turn of the second one');
	# A queue node is watched from its first second on, and its deletion noticed within milliseconds:
	# a person does not type faster. Then fresh, the default, is enough.
	sleep 2;
	$admin->query_safe("SELECT zk_evict('orders', $next)");
	sleep 2;
	$second->query($commit);
	my ($refused) = $example->{code} =~ /^COMMIT; +-- refused \((\w+)\) if the lock was lost/m or die 'what is refused?';
	is($second->sqlstate, $refused, 'it has lost the lock, and is refused');
	is($second->query_safe('SELECT closed FROM orders'), 'f', 'it has changed nothing');
	# "That has written": who has only looked at a table has nothing that could be refused.
	my $reader = background($node{tokyo});
	my $held = $reader->query_safe("SELECT zk_lock('read')");
	$reader->query_safe('BEGIN; SELECT * FROM orders');
	$admin->query_safe("SELECT zk_evict('read', $held)");
	$reader->query('COMMIT');
	is($reader->sqlstate, '00000', 'a transaction that has only read commits');
	$_->quit foreach $first, $second, $admin, $reader;
};

# An error came after more than so many seconds, and less than so many.
sub is_between ($took, $least, $most)
{
	cmp_ok($took, '>', $least, "not before $least s");
	in_time($took, $most, "within $most s");
	return;
}

subtest 'an outage of ZooKeeper is what README.md says, with its times' => sub {
	my ($timeout, $waits, $most, $connects) = $page =~ /timeout\s\((\d+)\ss\),\sits\sstatement\sis\scanceled\sand\sits\sCOMMIT\srefused
		\s\(40001\)\.\sA\swaiter\sfails\s\(08001\)\safter\s(\d+)\ss,\sor\sup\sto\s(\d+)\ss\sif\sservers\shang;
		\sa\ssession\sthat\shas\sno\sZooKeeper\ssession\syet\sfails\safter\s(\d+)\ss/x
	  or die 'README.md tells of no outage';
	my $ensemble = ZooKeeper->new(servers => 3, tick_time => 2000, max_session_timeout => undef)->start;
	my @clusters = map { cluster($_, $ensemble, 'zklock.session_timeout' => undef) } qw(madrid lisbon);
	# And another one, whose server hangs.
	my $hanging = ZooKeeper->new(tick_time => 2000, max_session_timeout => undef)->start;
	push @clusters, cluster('porto', $hanging, 'zklock.session_timeout' => undef);
	my ($hung_holder, $hung_waiter) = map { background($clusters[2]) } 1 .. 2;
	$hung_holder->query_safe("SELECT zk_lock('held')");
	start_in_queue($hung_waiter, "SELECT zk_lock('held')", $hanging, lock_path('held'), 2);
	my ($holder, $writer) = map { background($clusters[0]) } 1 .. 2;
	my ($waiter, $new, $other) = map { background($clusters[1]) } 1 .. 3;
	$holder->query_safe("CREATE TABLE written (n int); SELECT zk_lock('held')");
	$writer->query_safe("SELECT zk_lock('written'); BEGIN; INSERT INTO written VALUES (1)");
	start_in_queue($waiter, "SELECT zk_lock('held')", $ensemble, lock_path('held'), 2);
	$holder->start_query('BEGIN; INSERT INTO written VALUES (2); SELECT pg_sleep(120)');
	my $away = time;
	$hanging->pause;
	$ensemble->stop;
	$new->start_query("SELECT zk_lock('free')");
	my $end = sub ($session, $state, $what) {
		assert_soon { $session->is_done } "$what: an end", 60;
		my $took = time - $away;
		$session->wait_result;
		is($session->sqlstate, $state, $what);
		return $took;
	};
	my $took = $end->($new, '08001', 'a session without a connection');
	is_between($took, $connects - 1, $connects + 5);
	$other->query_safe('CREATE TABLE unaffected (n int)');
	$took = $end->($holder, '40001', 'the statement of a holder');
	in_time($took, $timeout + 2, "within $timeout s");
	$writer->query('COMMIT');
	is($writer->sqlstate, '40001', 'the COMMIT of a holder is refused');
	$took = $end->($waiter, '08001', 'a waiter');
	is_between($took, $waits - 3, $waits + 5);
	$took = $end->($hung_waiter, '08001', 'a waiter whose server hangs');
	is_between($took, $waits, $most + 3);
	$hanging->resume;
	is($other->query_safe('SELECT 1'), 1, 'sessions without locks do not notice');
	$ensemble->start;
	assert_soon { $new->query("SELECT zk_try_lock('held')") eq 't' } 'zklock connects again by itself', 60;
	$holder->query('ROLLBACK');
	is($holder->query_safe('SELECT count(*) FROM written'), 0, 'nothing of the refused transactions is left');
	$_->quit foreach $holder, $writer, $waiter, $new, $other, $hung_holder, $hung_waiter;
};

done_testing();
