
=pod

=head1 NAME

Faults - ways to a ZooKeeper server, each with a fault of its own at a request of its own

=head1 SYNOPSIS

  my $faults = Faults->new($zk->connect_string);
  my $way = $faults->way;
  $session->query("SET zklock.servers = '127.0.0.1:$way'");
  $faults->arm($way, 'reply lost', 2);
  $session->start_query("SELECT zk_lock('nightly')");
  poll_until { $faults->met($way) } 'its second request';
  $faults->heal($way);

=head1 DESCRIPTION

One process, a L<Proxy>, that listens on many ports: many sessions at a time meet many faults. A
fault is met by the nth request that a call sends. Not counted is what a session sends by itself:
pings, heartbeats, credentials, watches after a connection, and its end.

=cut

package Faults;

use v5.36;

use IO::Select;
use IO::Socket::INET;
use Socket qw(:DEFAULT IPPROTO_TCP TCP_NODELAY);

use parent 'Proxy';

=pod

=head1 THE FAULTS

What happens to the request that meets it:

  silent          it is swallowed, like all that comes later, also over new connections
  unheard         it is executed, and no reply comes any more
  request lost    the connection ends before it is executed
  reply lost      the connection ends when it has been executed
  refused -102    it is not executed, and that error is its reply
  put off -127    the same, and no reply comes any more behind that
  expired         ZooKeeper ends the session instead
  signal INT      it is executed, and when the reply would come the process gets that signal and no
                  reply comes any more
  doom KILL       it is swallowed, and the process gets the signal

=cut


# What a session sends by itself: its end, ping, credentials, watches; sync is its heartbeat.
my %is_its_own = map { $_ => 1 } -11, 9, 11, 100, 101, 105;
my ($exists, $read, $list, $close) = (3, 4, 8, -11);

=pod

=head1 METHODS

=head2 way

A new way; returns its port.

=head2 arm($way, $fault, $n, $pid)

The nth request from now on meets it; with n = 0 what comes next, whatever it is. Signals are for
that process.

=head2 count($way), met($way)

How many requests have come since; whether the fault has been met.

=head2 requests($way)

What they were, as text: the numbers of their types in ZooKeeper's protocol, and paths.

=head2 all_met

The ways whose faults have been met, separated by blanks.

=head2 heal($way, $how)

From now on all passes. What was held back is delivered; with "reset" the connections end instead.

=cut

sub way ($self) { return $self->_command('way'); }
sub arm ($self, $way, $fault, $nth, $pid = 0) { return $self->_command("arm $way $nth $pid $fault"); }
sub count ($self, $way) { return $self->_command("count $way"); }
sub met ($self, $way) { return $self->_command("met $way"); }
sub requests ($self, $way) { return $self->_command("requests $way"); }
sub all_met ($self) { return $self->_command('all_met'); }
sub heal ($self, $way, $how = '') { return $self->_command("heal $way $how"); }

# The child's loop. A way has its listener, its connections by number, and its fault.
sub _serve ($class, $server, $listener, $commands, %option)
{
	my $self = bless { server => $server, ways => {}, of => {}, select => IO::Select->new($commands) }, $class;
	while (1)
	{
		foreach my $socket ($self->{select}->can_read)
		{
			if ($socket == $commands)
			{
				return unless sysread $commands, my $line, 1000;
				syswrite $commands, (eval { $self->_obey(split ' ', $line) } // "error $@") . "\n";
				next;
			}
			# It may have been closed with another meanwhile.
			my $of = $self->{of}{$socket} or next;
			if ($of->{connection}) { $self->_pass($of->{way}, $of->{connection}, $of->{end}); }
			else { $self->_accept_at($of->{way}); }
		}
	}
}

sub _obey ($self, $command, $port = undef, @more)
{
	return join ' ', 'met', grep { $self->{ways}{$_}{is_met} } sort keys %{ $self->{ways} } if $command eq 'all_met';
	if ($command eq 'way')
	{
		my $listener = Proxy::_listen(0);
		my $way = $self->{ways}{ $listener->sockport } =
		  { listener => $listener, connections => {}, requests => [], nth => -1, count => 0, is_met => 0, fault => '' };
		$self->{of}{$listener} = { way => $way };
		$self->{select}->add($listener);
		return $listener->sockport;
	}
	my $way = $self->{ways}{$port} // die "no such way: $port";
	return $way->{count} if $command eq 'count';
	return join ' ', 'requests', @{ $way->{requests} } if $command eq 'requests';
	return $way->{is_met} if $command eq 'met';
	if ($command eq 'arm')
	{
		my ($nth, $pid, @fault) = @more;
		@$way{qw(nth pid fault argument)} = ($nth, $pid, join(' ', @fault), '');
		@$way{qw(fault argument)} = ($1, $2) if $way->{fault} =~ /^(refused|put off|signal|doom) (\S+)$/;
		$way->{requests} = [];
		@$way{qw(count is_met is_over)} = (0, $nth == 0 ? 1 : 0, 0);
		return 'armed';
	}
	@$way{qw(nth fault is_met)} = (-1, '', 0);
	foreach my $connection (values %{ $way->{connections} })
	{
		if ($more[0] // '') { $self->_end($way, $connection); }
		else { $self->_flow($way, $connection); }
	}
	return 'healed';
}

# Whoever comes after one that was killed is heard.
sub _is_silent ($way)
{
	return $way->{is_met} && ($way->{fault} =~ /^(?:silent|unheard)$/ || $way->{fault} eq 'signal' && !$way->{is_over});
}

sub _accept_at ($self, $way)
{
	my $client = $way->{listener}->accept or return;
	my $server = IO::Socket::INET->new(PeerAddr => $self->{server}, Timeout => 1) or return;
	setsockopt $_, IPPROTO_TCP, TCP_NODELAY, 1 foreach $client, $server;
	my $connection = $way->{connections}{ fileno $client } = {
		client => $client, server => $server, number => fileno $client,
		from_client => '', from_server => '', nmessages => 0 };
	foreach my $end (qw(client server))
	{
		$self->{of}{ $connection->{$end} } = { way => $way, connection => $connection, end => $end };
		$self->{select}->add($connection->{$end});
	}
	return;
}

sub _end ($self, $way, $connection)
{
	delete $way->{connections}{ $connection->{number} };
	foreach my $end (qw(client server))
	{
		delete $self->{of}{ $connection->{$end} };
		$self->{select}->remove($connection->{$end});
		close $connection->{$end};
	}
	return;
}

sub _pass ($self, $way, $connection, $end)
{
	my $got = sysread $connection->{$end}, my $data, 65_536;
	return $self->_end($way, $connection) if !$got;
	$connection->{"from_$end"} .= $data;
	return $self->_flow($way, $connection);
}

# Whole messages, as far as the fault lets them.
sub _flow ($self, $way, $connection)
{
	while ($way->{connections}{ $connection->{number} })
	{
		last if _is_silent($way) && $way->{fault} eq 'silent';
		my $message = _take(\$connection->{from_client}) // last;
		$self->_request($way, $connection, $message);
	}
	while ($way->{connections}{ $connection->{number} })
	{
		last if _is_silent($way);
		my $message = _take(\$connection->{from_server}) // last;
		$self->_reply($way, $connection, $message);
	}
	return;
}

sub _take ($buffer)
{
	return undef if length $$buffer < 4;
	my $length = unpack 'N', $$buffer;
	# A word of four letters, that would be.
	$length = length($$buffer) - 4 if $length > 0x1000000;
	return undef if length $$buffer < 4 + $length;
	return substr $$buffer, 0, 4 + $length, '';
}

sub _send ($socket, $data)
{
	while (length $data)
	{
		my $written = syswrite $socket, $data or return;
		substr $data, 0, $written, '';
	}
	return;
}

sub _framed ($body) { return pack('N', length $body) . $body; }

# The first message is the handshake. The session's own are a read of "/", a nudge, and a list of what
# is below a node of a queue, by which a holder learns who asks for its lock.
sub _request ($self, $way, $connection, $message)
{
	my $is_first = !$connection->{nmessages}++;
	my ($xid, $operation) = $is_first || length $message < 12 ? (0, 0) : unpack 'x4 l> l>', $message;
	my $path = length $message > 16 ? substr $message, 16, unpack 'x12 N', $message : '';
	my $is_counted = !$is_first && !$is_its_own{$operation}
	  && !($operation == $read && $path eq '/') && !($operation == $list && $path =~ /-\d{10}$/);
	push @{ $way->{requests} }, $operation . ($path =~ m{^/[!-~]*$} ? $path : '') if $is_counted;
	if (!$is_counted || $way->{is_met} || ++$way->{count} != $way->{nth})
	{
		return _send($connection->{server}, $message);
	}
	$way->{is_met} = $way->{fault} eq 'signal' ? 0 : 1;
	my $fault = $way->{fault};
	if ($fault eq 'silent') { substr $connection->{from_client}, 0, 0, $message; }
	elsif ($fault eq 'unheard') { _send($connection->{server}, $message); }
	elsif ($fault eq 'request lost') { $self->_end($way, $connection); }
	elsif ($fault eq 'doom') { kill $way->{argument}, $way->{pid}; }
	elsif ($fault =~ /^(?:refused|put off)$/)
	{
		# So that its reply comes in its turn.
		$connection->{refused}{$xid} = $way->{argument};
		_send($connection->{server}, _framed(pack('l> l>', $xid, $exists) . _framed('/') . "\0"));
	}
	elsif ($fault eq 'expired')
	{
		$connection->{is_over} = 1;
		_send($connection->{server}, _framed(pack 'l> l>', $xid, $close));
	}
	else
	{
		$connection->{awaited} = $xid;
		_send($connection->{server}, $message);
	}
	return;
}

sub _reply ($self, $way, $connection, $message)
{
	return if $connection->{is_over};
	my $is_first = !$connection->{nreplies}++;
	my $xid = unpack 'x4 l>', $message;
	if (!$is_first && defined $connection->{awaited} && $connection->{awaited} == $xid)
	{
		$connection->{awaited} = undef;
		return $self->_end($way, $connection) if $way->{fault} eq 'reply lost';
		if ($way->{fault} eq 'signal')
		{
			substr $connection->{from_server}, 0, 0, $message;
			kill $way->{argument}, $way->{pid};
			@$way{qw(is_met is_over)} = (1, $way->{argument} eq 'KILL');
			return;
		}
	}
	my $error = $is_first ? undef : delete $connection->{refused}{$xid};
	$way->{fault} = 'unheard' if defined $error && $way->{fault} eq 'put off';
	$message = _framed(substr($message, 4, 12) . pack 'l>', $error) if defined $error;
	return _send($connection->{client}, $message);
}

1;
