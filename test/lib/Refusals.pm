
=pod

=head1 NAME

Refusals - tables of faults and calls, and what is said of them

=head1 SYNOPSIS

  Refusals->new($zk, $proxy)->run('a restart',
	{ holder => background($node), waiter => background($node, 'zklock.session_timeout' => '15s') },
	[ holder => "zk_lock('a')", qr/^\d+$/ ],
	[ 'waiter starts' => "zk_lock('a', '300ms')" ], [ queue => a => 2 ],
	[ break => 'down' ],
	[ 'waiter ends' => '!55P03', qr/DETAIL:  The connection/ ], [ mend => 'down' ],
	[ holder => "zk_unlock('a')", 't' ], [ gone => 'a' ]);

=head1 DESCRIPTION

A table is a subtest. Its rows are done in their order, by the sessions that it names, which
end with it.

=cut

package Refusals;

use Time::HiRes qw(time);
use ZkLockTest;

# Rows that begin with these are none of a session.
my $verbs = qr/^(?:break|mend|queue|nodes|same|gone|state|cancel|quit)$/;

# Until something has come or gone that is on its way, in seconds.
my $patience = 60;

=pod

=head2 new($zookeeper, $proxy)

With a proxy, if there is one between sessions and servers. Its tables know the faults that
are listed here.

=cut

sub new ($class, $zk, $proxy = undef)
{
	return bless {
		zk => $zk,
		notes => {},
		break => {
			stopped => sub { $zk->stop; },
			paused => sub { $zk->pause; },
			cut => sub { $proxy->cut; },
			'cut replies' => sub { $proxy->cut('replies'); },
			'cut requests' => sub { $proxy->cut('requests'); },
			refused => sub { $proxy->go_away; },
			# as it is behind a load balancer
			down => sub { $zk->stop; $proxy->go_away; } },
		mend => {
			stopped => sub { $zk->start; },
			paused => sub { $zk->resume; },
			(map { $_ => sub { $proxy->heal; } } 'cut', 'cut replies', 'cut requests', 'refused'),
			reset => sub { $proxy->come_back; },
			down => sub { $zk->start; $proxy->heal; } } }, $class;
}

=pod

=head2 run($title, { name => session, ... }, row, ...)

Rows are

  [ name => $sql, $expected, ... ]          what the session is asked
  [ 'name starts' => $sql ]                 the same in parts
  [ 'name waits' ]                          it waits for zklock, or will in a moment
  [ 'name ends' => $expected, ... ]
  [ 'name becomes' => $sql, $expected ]     again and again, until that is the output
  [ 'name notes' => $sql ]                  the output
  [ 'name repeats' => $sql ]                has the output of the last "notes" or "ends"
  [ break => $fault ], [ mend => $fault ]   see new()
  [ queue => $lock => $count ]              until so many are in that queue
  [ nodes => $lock => $count ]              until there are so many ephemeral znodes, of that
                                            name and below
  [ same => $lock ], [ gone => $lock ]      until there are those again; until there are none
  [ state => $name => $state ]              until the session sees itself in that state
  [ cancel => $name ]                       by another session
  [ 'quit' ]                                all sessions end, as they do behind the last row
  sub { my (%session) = @_; ... }           whatever else

SELECT is put before the name of a function. Expected is an output, as a string or a pattern;
or a SQLSTATE, as "!40001" or "!08001|08P01"; or nothing: that it works. Then come patterns that
psql's messages have, references to such as they have not, and numbers: the seconds that it
may take.

=cut

sub run ($self, $title, $cast, @rows)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	die "a session cannot have such a name" if grep { $_ =~ $verbs } keys %$cast;
	return subtest $title => sub {
		foreach my $row (@rows)
		{
			if (ref $row eq 'CODE') { $row->(%$cast); }
			else { $self->_do($cast, @$row); }
		}
		$self->_do($cast, 'quit');
	};
}

sub _do ($self, $cast, $word, @row)
{
	return $cast->{ $row[0] }->cancel if $word eq 'cancel';
	return map { $_->quit } values %$cast if $word eq 'quit';
	if ($word =~ /^(?:break|mend)$/)
	{
		note("$word: $row[0]");
		return $self->{$word}{ $row[0] }->();
	}
	return wait_for_queue($self->{zk}, lock_path($row[0]), $row[1]) if $word eq 'queue';
	return $self->_nodes($word, @row) if $word =~ /^(?:nodes|same|gone)$/;
	if ($word eq 'state')
	{
		# The loss may cancel the very statement that asks.
		return poll_until { $cast->{ $row[0] }->query('SELECT state FROM zk_session') eq $row[1] }
		"$row[0] to be $row[1]", $patience;
	}

	my ($name, $verb) = split ' ', $word;
	my $session = $cast->{$name} or die "who is $name?";
	$verb //= '';
	if ($verb eq 'waits')
	{
		wait_for_wait($session->node, $session->pid);
		return ok(!$session->is_done, "$name waits");
	}
	my $start = time;
	my $what = "$name: " . ($self->{asked}{$name} // '');
	if ($verb ne 'ends')
	{
		my $sql = shift @row;
		$sql = "SELECT $sql" if $sql =~ /^(?:zk_|count)/;
		$session->start_query($sql);
		$what = "$name: " . ($self->{asked}{$name} = substr $sql =~ s/\s+/ /gr, 0, 100);
		return if $verb eq 'starts';
		if ($verb eq 'becomes')
		{
			my $result;
			my $is_so = eval {
				poll_until { ($result = $session->wait_result) eq $row[0] || ($session->start_query($sql), 0) } $what, $patience;
			};
			return ok($is_so, "$what becomes $row[0]") || diag($result);
		}
	}
	my $result = $session->wait_result;
	@row = $self->{notes}{$name} if $verb eq 'repeats';
	$self->{notes}{$name} = $result if $verb =~ /^(?:notes|ends)$/;
	return _compare($what, $session, $result, time - $start, @row);
}

sub _compare ($what, $session, $result, $seconds, $expected = undef, @more)
{
	my ($error) = ($expected // '') =~ /^!(.*)/;
	my $state = $error // '00000';
	like($session->sqlstate, qr/^(?:$state)$/, "$what: $state") || diag($session->error);
	if (ref $expected) { like($result, $expected, $what); }
	elsif (defined $expected && !defined $error) { is($result, $expected, $what); }
	foreach my $wanted (@more)
	{
		if (!ref $wanted) { in_time($seconds, $wanted, "$what: in time"); }
		elsif (ref $wanted eq 'REF') { unlike($session->error, $$wanted, "$what: does not say so"); }
		else { like($session->error, $wanted, "$what: says so"); }
	}
	return;
}

# What ZooKeeper's "dump" shows may be older than what a queue does.
sub _nodes ($self, $word, $name, $count = undef)
{
	my (@nodes, $text);
	my $is_so = eval {
		poll_until
		{
			@nodes = map { "@$_" } $self->{zk}->ephemerals(lock_path("$name/"));
			$text = "@nodes";
			$word eq 'nodes' ? @nodes == $count : $word eq 'gone' ? !@nodes : $text eq $self->{notes}{"/$name"};
		}
		'the nodes', $patience;
	};
	$self->{notes}{"/$name"} = $text if $word eq 'nodes';
	return ok($is_so, "$word: $name") || diag($text);
}

1;
