
=pod

=head1 NAME

Proxy - a TCP proxy that can misbehave

=head1 SYNOPSIS

  my $proxy = Proxy->new("127.0.0.1:$port");
  ... connect to $proxy->address ...
  $proxy->cut;
  $proxy->heal;

=head1 DESCRIPTION

Stands between a client and a ZooKeeper server and lets a test take the network
away. One child process does the forwarding; it ends when its parent does,
because it reads its commands from a socket that closes then.

=cut

package Proxy;

use v5.36;

use Carp;
use IO::Select;
use IO::Socket::INET;
use List::Util qw(max);
use POSIX ();
use Scalar::Util qw(weaken);
use Socket qw(:DEFAULT IPPROTO_TCP TCP_NODELAY);
use Time::HiRes qw(time);

# How often a server is tried that is not there, in seconds.
my $retry_interval = 0.05;

# Every proxy of this process that somebody still refers to, for END.
my @proxies;

=pod

=head1 METHODS

=head2 new($server, option => value, ...)

Forwards a free port on 127.0.0.1 to $server ("host:port"). With greeting => sub,
the first that each client sends goes through that function: it is given all that
has come so far, and returns what is to be sent instead, or undef if it needs more.
With heard => sub, that function is given all that clients send, piece by piece.
With delay => seconds, what either side sends arrives so much later: the servers are
far away. With patience => seconds, who comes while there is no server is kept waiting for one
for so long; otherwise its connection ends at once.
Other options are for classes that are derived from this one, and have a _serve of
their own.

=cut

sub new ($class, $server, %option)
{
	my $listener = _listen(0);
	my $port = $listener->sockport;
	socketpair(my $ours, my $theirs, AF_UNIX, SOCK_STREAM, PF_UNSPEC)
	  or croak "could not make a socket pair: $!";

	my $pid = fork // croak "could not fork: $!";
	if ($pid == 0)
	{
		close $ours;
		# Ctrl-C is for the parent; we go when it goes.
		$SIG{$_} = 'IGNORE' foreach qw(INT PIPE);
		$SIG{$_} = 'DEFAULT' foreach qw(TERM HUP);
		eval { $class->_serve($server, $listener, $theirs, %option); 1 }
		  or warn $@;
		# Not exit: END and buffers belong to the parent.
		POSIX::_exit(0);
	}
	close $theirs;
	$listener->close;
	my $self = bless {
		port => $port,
		pid => $pid,
		commands => $ours,
		owner => $$ }, $class;
	push @proxies, $self;
	weaken $proxies[-1];
	return $self;
}

=pod

=head2 port, address

=cut

sub port { return $_[0]->{port}; }
sub address { return "127.0.0.1:$_[0]->{port}"; }

=pod

=head2 cut($direction)

Stops forwarding and keeps every connection open: what either side sends is
swallowed by nobody and answered by nobody, as behind a dead switch. With
"requests" or "replies" only that direction stops, so that a request can be
carried out while its reply is lost.

=head2 heal

Undoes cut and refuse. What piled up is delivered.

=head2 trap($type, $nth, $direction)

Cuts that direction by itself when the nth request of that type from now on
arrives, which is a number of ZooKeeper's protocol (15 create2, 2 delete, 5 setData, 14
multi): "requests" before it is forwarded, "replies" once it is. With "rest" it
stops before that request, not a byte of which is lost: heal delivers it.

=head2 is_sprung

Whether that has happened.

=head2 reset_connections

Ends every connection with RST, on both sides. What was not forwarded is lost.

=head2 refuse

Closes the port: new connections are refused. Existing ones stay.

=head2 go_away, come_back

It refuses new connections and resets those that there are; it resets what there is, and heals.

=head2 connections

How many connections are open.

=head2 delay($seconds)

From now on what either side sends arrives so much later.

=head2 stop

A proxy stops with the last reference to it, too.

=cut

sub cut ($self, $direction = undef)
{
	return $self->_command('cut ' . ($direction || 'both'));
}
sub trap ($self, $type, $nth, $direction)
{
	return $self->_command("trap $type $nth $direction");
}
sub is_sprung { return $_[0]->_command('sprung'); }
sub heal { return $_[0]->_command('heal'); }
sub reset_connections { return $_[0]->_command('reset'); }
sub refuse { return $_[0]->_command('refuse'); }
sub go_away ($self)
{
	$self->refuse;
	return $self->reset_connections;
}

sub come_back ($self)
{
	$self->reset_connections;
	return $self->heal;
}

sub connections { return $_[0]->_command('connections'); }
sub delay ($self, $seconds) { return $self->_command("delay $seconds"); }

sub stop ($self)
{
	return unless $self->{pid} && $self->{owner} == $$;
	local ($!, $?);
	close $self->{commands};
	kill 'TERM', $self->{pid};
	waitpid $self->{pid}, 0;
	$self->{pid} = undef;
	return;
}

sub DESTROY { return $_[0]->stop; }

# Tell the child and wait until it has done so; returns its answer.
sub _command ($self, $command)
{
	syswrite $self->{commands}, "$command\n";
	my $answer = readline $self->{commands};
	croak "proxy did not do \"$command\"" unless defined $answer;
	chomp $answer;
	croak "proxy: $answer" if $answer =~ /^error/;
	return $answer;
}

sub _listen ($port)
{
	return IO::Socket::INET->new(
		LocalAddr => '127.0.0.1',
		LocalPort => $port,
		Listen => 128,
		ReuseAddr => 1) || croak "could not listen: $@";
}

# From now on connections to the port are refused. It stays ours all the same: bound, and not listened
# at, it is no other process's, nor that of a connection that somebody makes.
sub _refuse ($state)
{
	(delete $state->{listener})->close;
	$state->{reserved} = IO::Socket::INET->new(
		LocalAddr => '127.0.0.1',
		LocalPort => $state->{port},
		Proto => 'tcp',
		ReuseAddr => 1);
	return;
}

sub _listen_again ($state)
{
	my $reserved = delete $state->{reserved};
	$state->{listener} = $reserved && listen($reserved, 128) ? $reserved : _listen($state->{port});
	return;
}

# The child's loop. %pair leads from each socket to its other end.
sub _serve ($class, $server, $listener, $commands, %option)
{
	my %state = (
		server => $server,
		listener => $listener,
		port => $listener->sockport,
		requests => 1,
		replies => 1,
		pair => {},
		from_client => {},
		reading => {},
		held => {},
		greeting => $option{greeting},
		greeted => {},
		heard => $option{heard},
		patience => $option{patience} || 0,
		waiting => [],
		delay => $option{delay} || 0,
		late => []);

	while (1)
	{
		my $select = IO::Select->new($commands, _readable(\%state));
		my @ready = $select->can_read(@{ $state{waiting} } ? $retry_interval
			: @{ $state{late} } ? max(0, $state{late}[0][0] - time) : undef);
		while (@{ $state{late} } && $state{late}[0][0] <= time)
		{
			my (undef, @piece) = @{ shift @{ $state{late} } };
			_deliver(\%state, @piece);
		}
		_connect(\%state, @$_) foreach splice @{ $state{waiting} };
		foreach my $socket (@ready)
		{
			if ($socket == $commands)
			{
				return unless sysread $commands, my $line, 1000;
				my $answer = eval { _obey(\%state, split ' ', $line) };
				syswrite $commands, ($answer // "error $@") . "\n";
				# What is open and wanted may have changed.
				last;
			}
			elsif ($state{listener} && $socket == $state{listener})
			{
				_accept(\%state);
			}
			elsif ($state{pair}{$socket})
			{
				_forward(\%state, $socket);
			}
		}
	}
}

sub _readable ($state)
{
	my @sockets = grep { !$state->{over}{$_} } map { $_->[0] } values %{ $state->{pair} };
	@sockets = grep {
		$state->{from_client}{$_} ? $state->{requests} : $state->{replies}
	} @sockets;
	# Behind a dead switch nobody answers a newcomer either.
	push @sockets, $state->{listener}
	  if $state->{listener} && $state->{requests} && $state->{replies};
	return @sockets;
}

sub _obey ($state, $command, $argument = undef, @more)
{
	if ($command eq 'cut')
	{
		$state->{requests} = 0 if $argument ne 'replies';
		$state->{replies} = 0 if $argument ne 'requests';
	}
	elsif ($command eq 'trap')
	{
		$state->{trap} = { type => $argument, nth => $more[0], cut => $more[1] };
	}
	elsif ($command eq 'sprung')
	{
		return $state->{trap} && !$state->{trap}{nth} ? 1 : 0;
	}
	elsif ($command eq 'heal')
	{
		$state->{requests} = $state->{replies} = 1;
		_listen_again($state) if !$state->{listener};
		foreach my $from (keys %{ $state->{held} })
		{
			syswrite $state->{pair}{$from}[1], $state->{held}{$from}
			  if $state->{pair}{$from};
		}
		$state->{held} = {};
	}
	elsif ($command eq 'refuse')
	{
		_refuse($state) if $state->{listener};
	}
	elsif ($command eq 'reset')
	{
		foreach my $entry (values %{ $state->{pair} })
		{
			setsockopt $entry->[0], SOL_SOCKET, SO_LINGER, pack('ii', 1, 0);
			close $entry->[0];
		}
		$state->{pair} = {};
		$state->{$_} = {} foreach qw(from_client reading greeted);
		$state->{$_} = [] foreach qw(waiting late);
	}
	elsif ($command eq 'delay')
	{
		$state->{delay} = $argument;
	}
	elsif ($command eq 'connections')
	{
		return keys(%{ $state->{pair} }) / 2;
	}
	return 'done';
}

sub _accept ($state)
{
	my $client = $state->{listener}->accept or return;
	_connect($state, $client, time + $state->{patience});
	return;
}

# To the server, until that time.
sub _connect ($state, $client, $until)
{
	# One that hangs accepts so many. The kernel tries for minutes, in which we obeyed nobody.
	my $server = IO::Socket::INET->new(PeerAddr => $state->{server}, Timeout => 1);
	if (!$server)
	{
		# Nobody behind us: in the end the client sees its connection end.
		push @{ $state->{waiting} }, [ $client, $until ] if time < $until;
		return;
	}
	setsockopt $_, IPPROTO_TCP, TCP_NODELAY, 1
	  foreach $client, $server;
	$state->{pair}{$client} = [ $client, $server ];
	$state->{pair}{$server} = [ $server, $client ];
	$state->{from_client}{$client} = 1;
	$state->{greeted}{$client} = '' if $state->{greeting};
	return;
}

sub _forward ($state, $from)
{
	my $to = $state->{pair}{$from}[1];
	my $got = sysread $from, my $data, 65_536;
	if ($state->{delay})
	{
		push @{ $state->{late} }, [ time + $state->{delay}, $from, $to, $got ? $data : undef ];
		# Nothing more comes from there.
		$state->{over}{$from} = 1 if !$got;
		return;
	}
	if ($got)
	{
		$state->{heard}->($data) if $state->{heard} && $state->{from_client}{$from};
		if (defined $state->{greeted}{$from})
		{
			my $greeting = $state->{greeted}{$from} .= $data;
			$data = $state->{greeting}->($greeting) // return;
			delete $state->{greeted}{$from};
		}
		if ($state->{from_client}{$from} && _springs($state, $from, $data))
		{
			if ($state->{trap}{cut} eq 'rest')
			{
				$state->{requests} = 0;
				$state->{held}{$from} = substr $data, $state->{trap}{at}, length $data, '';
			}
			else
			{
				$state->{ $state->{trap}{cut} } = 0;
			}
			# What has been read is lost, as with the connection later on.
			return if $state->{trap}{cut} eq 'requests';
		}
	}
	_deliver($state, $from, $to, $got ? $data : undef);
	return;
}

# What one end has sent, to the other; undef for its end.
sub _deliver ($state, $from, $to, $data)
{
	return if !$state->{pair}{$from};
	while (length($data // ''))
	{
		my $written = syswrite $to, $data or last;
		substr $data, 0, $written, '';
	}
	return if defined $data && $data eq '';
	delete $state->{pair}{$_} foreach $from, $to;
	delete $state->{$_}{$from}, delete $state->{$_}{$to}
	  foreach qw(from_client reading greeted over);
	close $_ foreach $from, $to;
	return;
}

# Does the trap wait for a request whose head is complete with this data? A
# request is its length, its number, its type, and the rest; its parts may come
# one by one.
sub _springs ($state, $from, $data)
{
	my $trap = $state->{trap};
	my $reading = $state->{reading}{$from} ||= { head => '', skip => 0 };
	my $springs = 0;
	my $size = length $data;
	while (length $data)
	{
		my $part = substr $data, 0, $reading->{skip} || 12 - length $reading->{head}, '';
		if ($reading->{skip})
		{
			$reading->{skip} -= length $part;
			next;
		}
		$reading->{head} .= $part;
		next if length $reading->{head} < 12;
		my ($length, undef, $type) = unpack 'NNN', $reading->{head};
		$reading->{head} = '';
		$reading->{skip} = $length - 8;
		next
		  if !$trap || !$trap->{nth} || $type != $trap->{type} || --$trap->{nth} != 0;
		$springs = 1;
		# where it begins, if not in what was forwarded before
		$trap->{at} = $size - length($data) - 12;
		$trap->{at} = 0 if $trap->{at} < 0;
	}
	return $springs;
}

END
{
	my $status = $?;
	$_->stop foreach grep { $_ } @proxies;
	$? = $status;
}

1;
