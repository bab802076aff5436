
# What pages show of sessions in two clusters is true: the transcripts of docs/using.md, word for
# word, and what README.md says of updates that are lost without a lock. Tested in two clusters and
# an ensemble of three servers.

use FindBin;
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

# Several sessions of each cluster add 1 to a number that is in neither of them: read it,
# then write it.
sub count_up ($bank, $total, $lock, $unlock)
{
	$bank->safe_psql('postgres', 'UPDATE counter SET n = 0');
	my @session = map { background($_) } map { ($_) x 4 } values %node;
	my $times = $total / @session;
	my $connection = $bank->connstr('postgres') =~ s/'/''/gr;
	# All at a time, so none begins before all are connected.
	$_->query_safe("SELECT dblink_connect('$connection'), zk_try_lock('connected')") foreach @session;
	foreach my $session (@session)
	{
		$session->start_query(<<~SQL);
			DO \$\$
			DECLARE
				seen int;
			BEGIN
				FOR i IN 1 .. $times LOOP
					$lock
					SELECT n INTO seen FROM dblink('SELECT n FROM counter') AS c(n int);
					PERFORM dblink_exec(format('UPDATE counter SET n = %s', seen + 1));
					$unlock
				END LOOP;
			END \$\$
			SQL
	}
	foreach my $session (@session)
	{
		assert_ends($session, '00000', 'the session has counted up');
		$session->quit;
	}
	return $bank->safe_psql('postgres', 'SELECT n FROM counter');
}

subtest 'updates are lost without a lock, and none with it' => sub {
	plan skip_all => 'there is no dblink' if missing_extensions($node{berlin}, 'dblink');
	$_->safe_psql('postgres', 'CREATE EXTENSION dblink') foreach values %node;
	my ($total, $lost) =
	  $page =~ /incremented one counter (\d+) times\. Without a lock (\d+) updates were lost; with zklock none\./
	  or die 'README does not tell of them';
	cmp_ok($lost, '<', $total, 'the page says that some updates are not lost');
	my $bank = cluster('bank', $zk);
	$bank->safe_psql('postgres', 'CREATE TABLE counter (n int); INSERT INTO counter VALUES (0)');
	is(count_up($bank, $total, "PERFORM zk_lock('counter');", "PERFORM zk_unlock('counter');"),
		$total, 'with the lock no update is lost');
	my $left = count_up($bank, $total, '', '');
	note("lost without a lock: " . ($total - $left));
	cmp_ok($left, '<', $total, 'without the lock some updates are lost');
};

done_testing();
