
# A deadlock is found by the first session whose deadlock_timeout is over, whatever the timeouts
# of the others, whichever session closes the cycle, in one cluster or two; and one session gives
# way, not two. Tested with rings of two and three sessions on real servers.

use ZkLockTest;

my $zk = ZooKeeper->new->start;
my %node = map { $_ => cluster($_, $zk, 'max_connections' => 60) } qw(berlin paris);
$_->safe_psql('postgres', 'CREATE TABLE account (id int PRIMARY KEY, sum int); INSERT INTO account VALUES (1, 0)')
  foreach values %node;

# Far from both, also on a busy machine.
my ($short, $long, $most) = ('50ms', '120s', 40);

# Sessions each of which holds a lock and is to wait for that of the next one.
sub ring ($name, $is_abroad, @timeouts)
{
	my @sessions = map { background($node{ $is_abroad && $_ % 2 ? 'paris' : 'berlin' }, deadlock_timeout => $timeouts[$_]) } 0 .. $#timeouts;
	$sessions[$_]->start_query("SELECT zk_lock('$name/$_')") foreach 0 .. $#sessions;
	$_->wait_result foreach @sessions;
	my @ids = map { sprintf '%016s', session_id_of($_) =~ s/^0x//r } @sessions;
	return { name => $name, sessions => \@sessions, ids => \@ids };
}

# Until that one of the ring has said that it waits.
sub wait_until_said ($ring, $i)
{
	my $fact = lock_path(".waits/$ring->{ids}[$i]");
	poll_until { grep { $_->[0] eq $fact } $zk->ephemerals($fact) } "$ring->{name}: $i to say so", 60;
	return;
}

sub start_wait ($ring, $i)
{
	my $next = ($i + 1) % @{ $ring->{sessions} };
	return $ring->{sessions}[$i]->start_query("SELECT zk_lock('$ring->{name}/$next')");
}

# One gives way, in time; then each of the others gets its lock in turn.
sub assert_one_gives_way (%rings)
{
	my $begun = time;
	foreach my $what (sort keys %rings)
	{
		my @sessions = @{ $rings{$what}{sessions} };
		my ($victim) = eval {
			poll_until { grep { $sessions[$_]->is_done } 0 .. $#sessions } 'one to give way', 100;
			grep { $sessions[$_]->is_done } 0 .. $#sessions;
		};
		defined $victim or fail("$what: nobody gives way"), next;
		in_time(time - $begun, $most, "$what: in time");
		my $expected = $rings{$what}{victim} // $victim;
		is($victim, $expected, "$what: who gives way");
		assert_ends($sessions[$victim], '40P01', "$what: for the deadlock");
		foreach my $i (reverse 1 .. @sessions)
		{
			my $session = $sessions[ ($victim + $i) % @sessions ];
			assert_ends($session, '00000', "$what: " . ($victim + $i) % @sessions . ' goes on') if $i < @sessions;
			$session->quit;
		}
	}
	assert_becomes { scalar(my @facts = $zk->ephemerals(lock_path('.waits/'))) } 0, 'no published wait is left';
	return;
}

# By length, by whose timer is short, and in one cluster or in two.
sub rings ($title)
{
	my %rings;
	foreach my $length (2, 3)
	{
		foreach my $position (0 .. $length - 1)
		{
			foreach my $is_abroad (0, 1)
			{
				my $what = "$title, $length in " . (1 + $is_abroad) . " clusters, $position has little time";
				$rings{$what} = ring($what =~ s/\W+/-/gr, $is_abroad, map { $_ == $position ? $short : $long } 0 .. $length - 1);
				$rings{$what}{position} = $position;
			}
		}
	}
	return %rings;
}

subtest 'a deadlock that is closed step by step costs one session' => sub {
	my %rings = rings('in turn');
	foreach my $i (0 .. 2)
	{
		my @waiting = grep { $i < @{ $_->{sessions} } } values %rings;
		start_wait($_, $i) foreach @waiting;
		# Who waits first has looked before the next one comes, or will: both must do. But
		# what it waits for it has said, or it may be the last to do so.
		foreach my $ring (@waiting)
		{
			my $next = ($i + 1) % @{ $ring->{sessions} };
			wait_until_said($ring, $i) if $next > 0;
			# the others will not look for a long time
			$ring->{victim} = $i if $next == 0 && $ring->{position} == $i;
		}
	}
	assert_one_gives_way(%rings);
};

subtest 'a deadlock of sessions that begin to wait at once costs one session' => sub {
	my %rings = rings('at once');
	foreach my $ring (values %rings) { start_wait($ring, $_) foreach 0 .. $#{ $ring->{sessions} }; }
	assert_one_gives_way(%rings);
};

# All look at the same time, and find the same cycle.
subtest 'a deadlock that all sessions find at once costs one session' => sub {
	my %rings = map { ("ring $_" => ring("same$_", 1, ('300ms') x (2 + $_ % 2))) } 1 .. 8;
	foreach my $ring (values %rings) { start_wait($ring, $_) foreach 0 .. $#{ $ring->{sessions} }; }
	assert_one_gives_way(%rings);
};

# A session that does not wait any more has left its claim on the cycle behind: it is none, or
# nobody would give way.
subtest 'a claim on a deadlock that was left behind does not hide the deadlock' => sub {
	my $stranger = $zk->client;
	my $ring = ring('left', 1, '8s', '8s');
	foreach my $i (0, 1) { start_wait($ring, $i); wait_until_said($ring, $i); }
	my ($newest) = sort { $b <=> $a } map { ($stranger->exists(lock_path(".waits/$_")) // { czxid => 1 })->{czxid} } @{ $ring->{ids} };
	my $claims = lock_path('.waits/claims');
	$stranger->create_path($claims);
	my $claim = $stranger->create(sprintf("$claims/%016x", $newest), '', ephemeral => 1);
	assert_soon { grep { $_->is_done } @{ $ring->{sessions} } } 'one gives way all the same', $most;
	$stranger->delete($claim);
	assert_one_gives_way('a claim left behind' => $ring);
	$stranger->close;
};

# Who waits inside PostgreSQL has no timer of zklock's. Who it waits for says so, however long its own is.
subtest 'a deadlock over a row is found by the session with the short timeout' => sub {
	my $abroad = background($node{paris}, deadlock_timeout => $short, holds => 'f');
	my $lock = background($node{berlin}, deadlock_timeout => $long, first => "BEGIN; SELECT zk_xact_lock('g')");
	my $row = background($node{berlin}, deadlock_timeout => $long, first => 'BEGIN; UPDATE account SET sum = 1 WHERE id = 1');
	$lock->start_query('UPDATE account SET sum = 2 WHERE id = 1');
	wait_for_lock($node{berlin}, $lock->pid);
	start_in_queue($row, "SELECT zk_xact_lock('f')", $zk, lock_path('f'), 2);
	my $begun = time;
	$abroad->start_query("SELECT zk_lock('g')");
	poll_until { grep { $_->is_done } $abroad, $row } 'one to give way', 100;
	in_time(time - $begun, $most, 'the deadlock is found in time');
	my ($victim, $other) = $abroad->is_done ? ($abroad, $row) : ($row, $abroad);
	assert_ends($victim, '40P01', 'one that waits for ZooKeeper gives way');
	$victim->quit;
	assert_ends($_, '00000', 'the others go on'), $_->quit foreach $victim == $abroad ? ($row, $lock) : ($lock, $abroad);
};

done_testing();
