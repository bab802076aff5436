
=pod

=head1 NAME

Liar - a ZooKeeper server that lies

=head1 SYNOPSIS

  my $liar = Liar->new('127.0.0.1:' . $zk->port, seed => 42);
  ... connect to $liar->address ...
  $liar->lie(0.3);
  ... $liar->lies ...
  $liar->be_honest;

=head1 DESCRIPTION

A L<Proxy> between a client and a real ZooKeeper server. It passes requests on as
they are, reads the replies as whole messages, and changes some of them: their
lengths, numbers, counts, texts, error codes and bits, their order and how often
they come; it makes up events and replies of its own, and speaks other protocols.

What it does to a reply depends on the seed, on the number of the connection and
on what was said on it, and on nothing else. So a run with one client at a time
can be repeated.

=cut

package Liar;

use v5.36;

use IO::Select;
use IO::Socket::INET;
use Socket qw(:DEFAULT IPPROTO_TCP TCP_NODELAY MSG_DONTWAIT MSG_NOSIGNAL);

use parent 'Proxy';

# How a reply is laid out, by the operation that was asked for. What has no row
# here is nothing but its header.
my %layout = (
	1 => 'text',
	3 => 'stat',
	4 => 'text stat',
	5 => 'stat',
	6 => 'acls stat',
	8 => 'texts',
	9 => 'text',
	12 => 'texts stat',
	14 => 'results',
	15 => 'text stat',
	19 => 'text stat',
	event => 'int int text');

# Where the numbers of a Stat begin, and how long they are.
my @stat_fields = (
	[ 0, 8 ], [ 8, 8 ], [ 16, 8 ], [ 24, 8 ], [ 32, 4 ], [ 36, 4 ],
	[ 40, 4 ], [ 44, 8 ], [ 52, 4 ], [ 56, 4 ], [ 60, 8 ]);

# Numbers that programs stumble over.
my @numbers = (
	0, 1, -1, -2, 2, 0x7fffffff, -0x80000000, 0x7ffffff0, -0x7fffffff, 255, 256,
	65_536, 0x100000, 0xfffff, 0x40000000, 0x10000000);

# Those that a reply or an event may have, and neighbors of them.
my @errors = (
	0, -1 .. -13, -100 .. -127, 1, 4, 101, -0x80000000, 0x7fffffff, -1000);
my @xids = (-1, -2, -4, -8, -3, -5, 0, 1, -0x80000000, 0x7fffffff, -11);

# A timeout beyond an hour is refused. Below, it is believed, and every wait
# would be as long; so those between are left out.
my @timeouts = (
	0, -1, 0x7fffffff, -0x80000000, 3_600_001, 86_400_000, 1, 2, 10, 200, -1000);
my $longest_timeout = 3_600_000;

# A client sends no longer one.
my $longest_message = 0x1000000;

# Operations that nobody asks the client library for: to end the session, to ping, to
# say who one is, and which watches there were.
my %is_its_own = map { $_ => 1 } -11, 11, 100, 101, 105;

# Replies of which fewer have been changed are rare.
my $rare = 50;

# Of fewer different lies each reply is changed.
my $few = 5;

# What other servers would say to a stranger.
my @banners = (
	"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n",
	"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
	"\x15\x03\x01\x00\x02\x02\x46", "\x15\x03\x03\x00\x02\x02\x0a",
	"220 mail.example.com ESMTP Postfix\r\n", "-ERR unknown command\r\n",
	"E\0\0\0\x2dSFATAL\0C08P01\0Minvalid startup packet\0\0",
	"\x4a\0\0\0\x0a8.0.36\0", "imok", "This ZooKeeper instance is not currently serving requests\n",
	"RFB 003.008\n", "\0", "\0\0\0", "AMQP\0\0\x09\x01");

# The lies, each with its weight. Those that end the session at once weigh less,
# so that others come to be told as well.
my %weight = (
	field => 30, turn => 30, text => 20, header => 10, error => 14, bits => 10, bytes => 8,
	cut => 8, cut_short => 4, longer => 8, length => 3, noise => 3,
	twice => 2, drop => 3, swap => 4, event => 6, reply => 2, ping => 3,
	auth => 1, banner => 1, empty => 2, hang_up => 2);
my @urn = map { ($_) x $weight{$_} } sort keys %weight;

=pod

=head1 METHODS

Besides port, address and stop of L<Proxy>:

=head2 new($server, seed => number, log => path)

It begins honestly. Each lie becomes a line in the log, if there is one.

=head2 lie($rate)

From now on that part of all replies, from 0 to 1, is changed.

=head2 answer_pings_only

From now on the answer to everything is that to a ping, so that everybody seems to
be connected.

=head2 answer_all_with($error)

From now on the answer to everything is a header with that error, 0 for none, and nothing
behind it.

=head2 refuse($number, $error, $operation)

The request with that number from now on, counted from 1, is not passed on, and
answered with that error. With an operation only those are counted. Pings and what else the client library says on its own are
not counted.

=head2 deny($part, $error, $operation, ...)

From now on each request of those operations that has this part of a path is not passed on, and
answered with that error; with 'close' the connection is ended. deny() alone ends that.

=head2 lose($number)

That one is passed on, and the connection ends instead of its reply.

=head2 misnumber($operation)

The next request of that operation is passed on, and its reply has another number.

=head2 disown

The next create is passed on, and its reply has another session's number as the owner.

=head2 unnumber

The next create is passed on, and its reply says 0 of what no two znodes share, the czxid.

=head2 wrap($number)

The get with that number is passed on, and its reply has a version that has run over: -1.

=head2 has_come

Whether that request has come since; nothing more happens to any if it has not.

=head2 be_honest

No more of that; and connections on which there was a lie are ended, so that
what comes from now on is true.

=head2 nconnections

How many connections there have been.

=head2 lies

How often it has lied.

=head2 kinds

A hash: how often, by the kind of lie.

=cut

sub lie { return $_[0]->_command("lie $_[1]"); }
sub answer_pings_only { return $_[0]->_command('pings'); }
sub answer_all_with { return $_[0]->_command("all $_[1]"); }
sub refuse { return $_[0]->_command(join ' ', 'refuse', @_[ 1 .. $#_ ]); }
sub deny { return $_[0]->_command(join ' ', 'deny', @_[ 1 .. $#_ ]); }
sub lose { return $_[0]->_command("refuse $_[1] lose"); }
sub misnumber { return $_[0]->_command("refuse 1 misnumber $_[1]"); }
sub disown { return $_[0]->_command('refuse 1 disown 15'); }
sub unnumber { return $_[0]->_command('refuse 1 unnumber 15'); }
sub wrap { return $_[0]->_command("refuse $_[1] wrap 4"); }
sub has_come { return $_[0]->_command('come') eq 'yes'; }
sub be_honest { return $_[0]->_command('honest'); }
sub nconnections { return $_[0]->_command('connections'); }
sub lies { return $_[0]->_command('lies'); }
sub kinds { return split ' ', $_[0]->_command('kinds'); }

# The child's loop. A connection is entered under the descriptors of both of its
# sockets.
sub _serve ($class, $server, $listener, $commands, %option)
{
	my $self = bless {
		server => $server,
		seed => $option{seed} || 1,
		rate => 0,
		lies => 0,
		kinds => {},
		by_fd => {},
		cut_at => {},
		turns => {},
		told => {},
		nconnections => 0 }, $class;
	if ($option{log})
	{
		open $self->{log}, '>', $option{log}
		  or die "could not write $option{log}: $!";
		$self->{log}->autoflush(1);
	}
	my ($listening, $commanding) = (fileno $listener, fileno $commands);
	while (1)
	{
		my $readable = '';
		vec($readable, $_, 1) = 1
		  foreach $listening, $commanding, keys %{ $self->{by_fd} };
		next if select($readable, undef, undef, undef) < 0;
		if (vec $readable, $commanding, 1)
		{
			return unless sysread $commands, my $line, 1000;
			syswrite $commands, $self->_obey(split ' ', $line) . "\n";
			next;
		}
		foreach my $fd (keys %{ $self->{by_fd} })
		{
			next unless vec $readable, $fd, 1;
			# It may have been closed with another meanwhile.
			my $connection = $self->{by_fd}{$fd} or next;
			$self->_end($connection)
			  unless $fd == $connection->{client_fd}
			  ? $self->_pass_requests($connection)
			  : $self->_pass_replies($connection);
		}
		$self->_accept($listener) if vec $readable, $listening, 1;
	}
}

sub _obey ($self, $command, $argument = undef, $error = undef, $operation = undef, @others)
{
	if ($command eq 'deny')
	{
		$self->{denied} = defined $argument ?
		  { part => $argument, error => $error, operations => { map { $_ => 1 } $operation, @others } } : undef;
		return 'done';
	}
	if ($command =~ /^(?:refuse|come)$/)
	{
		my $has_come = !$self->{awaited};
		$self->{awaited} = $command eq 'refuse' ? { number => $argument, error => $error, operation => $operation } : undef;
		return $has_come ? 'yes' : 'no';
	}
	return $self->{lies} if $command eq 'lies';
	return $self->{nconnections} if $command eq 'connections';
	return join ' ', %{ $self->{kinds} } if $command eq 'kinds';
	$self->{rate} = $command eq 'lie' ? $argument : 0;
	$self->{pings_only} = $command eq 'pings';
	$self->{answer} = $command eq 'all' ? $argument : undef;
	if ($command eq 'honest')
	{
		my %connections = map { $_ => $_ } values %{ $self->{by_fd} };
		$self->_end($_)
		  foreach grep { $_->{has_lied} } values %connections;
	}
	return 'done';
}

sub _accept ($self, $listener)
{
	my $client = $listener->accept or return;
	my $server = IO::Socket::INET->new($self->{server}) or return;
	setsockopt $_, IPPROTO_TCP, TCP_NODELAY, 1 foreach $client, $server;
	my $number = ++$self->{nconnections};
	my $connection = {
		number => $number,
		client => $client,
		server => $server,
		client_fd => fileno $client,
		server_fd => fileno $server,
		random => ($self->{seed} << 32 ^ $number * 0x9e3779b1) + 1,
		requests => '',		# read and not looked at yet
		replies => '',
		operation => {},	# of each request under way, by its number
		refused => {},		# those of them whose reply is another: the error
		held => '',			# a reply that the next one overtakes
		former => '' };		# a reply that was sent
	# The first numbers of a poor start are not random yet.
	_random($connection, 2) foreach 1 .. 8;
	$self->{by_fd}{$_} = $connection
	  foreach $connection->{client_fd}, $connection->{server_fd};
	return;
}

sub _end ($self, $connection)
{
	delete $self->{by_fd}{ $connection->{$_} } foreach qw(client_fd server_fd);
	close $connection->{$_} foreach qw(client server);
	return;
}

# A number from 0 to $limit - 1.
sub _random ($connection, $limit)
{
	my $x = $connection->{random};
	$x ^= $x << 13;
	$x ^= $x >> 7;
	$x ^= $x << 17;
	$connection->{random} = $x;
	return ($x >> 11) % $limit;
}

sub _one_of ($connection, @choice)
{
	return $choice[ _random($connection, scalar @choice) ];
}

# Those who would rather not read lose what does not fit.
sub _send ($socket, $data)
{
	my $sent = send $socket, $data, MSG_DONTWAIT | MSG_NOSIGNAL;
	return defined $sent && $sent == length $data;
}

# As they are, but for one that is refused; and note what each of them asks for. false if
# there are no more.
sub _pass_requests ($self, $connection)
{
	sysread $connection->{client}, my $data, 65_536 or return 0;
	$connection->{requests} .= $data;
	while (length $connection->{requests} >= 4)
	{
		my $length = unpack 'N', $connection->{requests};
		# A word of four letters, that would be.
		$length = length($connection->{requests}) - 4 if $length > $longest_message;
		last if length $connection->{requests} < 4 + $length;
		my $message = substr $connection->{requests}, 0, 4 + $length, '';
		# The first one is the handshake.
		if ($connection->{is_open}++)
		{
			my ($xid, $operation) = unpack 'x4 l> l>', $message;
			$connection->{operation}{$xid} = $operation;
			my $is_denied = $self->_is_denied($operation, $message);
			return 0 if $is_denied && $self->{denied}{error} eq 'close';
			$message = $self->_denied($connection, $xid, $self->{denied}{error}) if $is_denied;
			$message = $self->_refused($connection, $xid, $operation) // $message unless $is_its_own{$operation} || $is_denied;
		}
		_send($connection->{server}, $message) or return 0;
	}
	return 1;
}

sub _is_denied ($self, $operation, $message)
{
	my $denied = $self->{denied} or return 0;
	return $denied->{operations}{$operation} && index($message, $denied->{part}) >= 0;
}

# What is sent in its place, so that its answer comes in its turn: whether the root exists.
sub _denied ($self, $connection, $xid, $error)
{
	$connection->{refused}{$xid} = $error;
	return _framed(pack('l> l>', $xid, 3) . _framed('/') . "\0");
}

# If this request is the one to be refused: what is sent in its place.
sub _refused ($self, $connection, $xid, $operation)
{
	my $awaited = $self->{awaited} or return;
	return if ($awaited->{operation} // $operation) != $operation;
	return if --$awaited->{number} > 0;
	$self->{awaited} = undef;
	return $self->_denied($connection, $xid, $awaited->{error}) unless $awaited->{error} =~ /^(?:lose|misnumber|disown|unnumber|wrap)$/;
	$connection->{refused}{$xid} = $awaited->{error};
	return;
}

sub _pass_replies ($self, $connection)
{
	sysread $connection->{server}, my $data, 65_536 or return 0;
	$connection->{replies} .= $data;
	while (length $connection->{replies} >= 4)
	{
		my $length = unpack 'N', $connection->{replies};
		last if length $connection->{replies} < 4 + $length;
		my $message = substr $connection->{replies}, 0, 4 + $length, '';
		my $sent = $self->_reply($connection, substr $message, 4);
		return 0 unless defined $sent;
		next if $sent eq '';
		$connection->{former} = $message;
		_send($connection->{client}, $sent) or return 0;
	}
	return 1;
}

sub _framed { return pack('N', length $_[0]) . $_[0]; }

# What is to be sent for that reply; undef to hang up.
sub _reply ($self, $connection, $body)
{
	my $kind = 'connect';
	if ($connection->{is_granted})
	{
		my $xid = unpack 'l>', $body;
		$kind = $xid == -1 ? 'event' : delete $connection->{operation}{$xid};
		$kind = 'other' unless defined $kind;
		if (defined(my $error = delete $connection->{refused}{$xid}))
		{
			return if $error eq 'lose';
			return _framed(pack('l>', $xid + 1000) . substr $body, 4) if $error eq 'misnumber';
			return _framed(substr($body, 0, -24) . pack('q>', 1) . substr $body, -16) if $error eq 'disown';
			return _framed(substr($body, 0, -68) . pack('q>', 0) . substr $body, -60) if $error eq 'unnumber';
			return _framed(substr($body, 0, -36) . pack('l>', -1) . substr $body, -32) if $error eq 'wrap';
			return _framed(substr($body, 0, 12) . pack 'l>', $error);
		}
	}
	if ($self->{pings_only} && $kind ne 'connect' && $kind ne '11')
	{
		$connection->{has_lied} = 1;
		return _framed(pack 'l> q> l>', -2, 0, 0);
	}
	if (defined $self->{answer} && $kind ne 'connect' && !$is_its_own{$kind})
	{
		$connection->{has_lied} = 1;
		return _framed(substr($body, 0, 12) . pack 'l>', $self->{answer});
	}
	$connection->{is_granted} = 1;
	my $held = $connection->{held};
	$connection->{held} = '';

	# One that ends it all at the very beginning is rare; replies that are rare
	# themselves are all the more welcome, and the first few all get a lie that was
	# not told of them yet.
	my $rate = $self->{rate};
	my @lies = @urn;
	if ($kind eq 'connect') { $rate /= 3; }
	elsif ($rate > 0 && ($self->{different}{$kind} || 0) < $few)
	{
		$rate = 1;
		@lies = grep { !$self->{kinds}{"$kind:$_"} } @urn;
	}
	elsif (($self->{told}{$kind} || 0) < $rare) { $rate *= 2; }
	return _framed($body) . $held
	  if _random($connection, 10_000) >= 10_000 * $rate;

	my $lie = _one_of($connection, @lies);
	$lie = _one_of($connection, qw(field field field banner bytes cut cut_short))
	  if $kind eq 'connect' && $lie !~ /^(?:bits|length|noise|longer|empty|twice)$/;
	$self->{lies}++;
	$self->{different}{$kind}++ unless $self->{kinds}{"$kind:$lie"}++;
	$self->{told}{$kind}++;
	$connection->{has_lied} = 1;
	my $sent = $self->can("_lie_$lie")->($self, $connection, $kind, $body);
	$sent = _with_bearable_timeout($sent, $body)
	  if $kind eq 'connect' && defined $sent;
	printf { $self->{log} } "%d %s %s %s -> %s\n", $connection->{number}, $kind,
	  $lie, unpack('H200', $body), defined $sent ? unpack('H208', $sent) : 'end'
	  if $self->{log};
	return defined $sent ? $sent . $held : undef;
}

sub _with_bearable_timeout ($sent, $body)
{
	return $sent if length $sent < 12;
	my $granted = unpack 'l>', substr $body, 4, 4;
	my $timeout = unpack 'l>', substr $sent, 8, 4;
	substr($sent, 8, 4) = pack 'l>', $granted
	  if $timeout > 2 * $granted && $timeout <= $longest_timeout;
	return $sent;
}

# Where the numbers of a reply are: [offset, size] of each; lengths and counts
# are among them. With a list, where the texts are is added to it.
sub _fields ($kind, $body, $texts = undef)
{
	return ([ 0, 4 ], [ 4, 4 ], [ 4, 4 ], [ 8, 8 ], [ 16, 4 ], [ 36, 1 ])
	  if $kind eq 'connect';
	my @fields = ([ 4, 8 ]);
	my $at = 16;
	my $number = sub ($size) {
		push @fields, [ $at, $size ];
		$at += $size;
		return $at > length $body ? 0 : unpack 'l>', substr $body, $at - 4, 4;
	};
	foreach my $part (split ' ', $layout{$kind} || '')
	{
		last if $at + 4 > length $body;
		if ($part eq 'int') { $number->(4); }
		elsif ($part eq 'text')
		{
			push @$texts, $at;
			my $length = $number->(4);
			$at += $length if $length > 0;
		}
		elsif ($part eq 'texts')
		{
			my $count = $number->(4);
			for (my $i = 0; $i < $count && $at + 4 <= length $body; $i++)
			{
				push @$texts, $at;
				$at += $number->(4);
			}
		}
		elsif ($part eq 'acls')
		{
			# rights, scheme, who
			my $count = $number->(4);
			for (my $i = 0; $i < $count && $at + 12 <= length $body; $i++)
			{
				$number->(4);
				$at += $number->(4) foreach 1 .. 2;
			}
		}
		elsif ($part eq 'stat')
		{
			push @fields, map { [ $at + $_->[0], $_->[1] ] } @stat_fields;
			$at += 68;
		}
		elsif ($part eq 'results')
		{
			# type, "that was all", error; and so on
			push @fields, [ $at, 4 ], [ $at + 4, 1 ], [ $at + 5, 4 ];
			$at += 9;
			redo if $at + 9 <= length $body;
		}
	}
	return grep { $_->[0] + $_->[1] <= length $body } @fields;
}

# One to three numbers are others.
sub _lie_field ($self, $connection, $kind, $body)
{
	my @fields = _fields($kind, $body);
	# The last ones first: those before do not move.
	foreach my $i (0 .. _random($connection, 3))
	{
		my ($at, $size) = @{ _one_of($connection, @fields) };
		my $old = $size == 4 ? unpack('l>', substr $body, $at, 4) : 0;
		my $new = _one_of($connection, @numbers, $old + 1, $old - 1, 2 * $old,
			-$old, length($body) - $at, _random($connection, 1 << 32));
		$new = _one_of($connection, @timeouts)
		  if $kind eq 'connect' && $at == 4;
		substr($body, $at, $size) = pack
		  $size == 8 ? 'q>' : $size == 4 ? 'L>' : 'C',
		  $size == 4 ? $new & 0xffffffff : $size == 1 ? $new & 0xff : $new;
	}
	return _framed($body);
}

# Every number of each kind of reply has its turn to be each of those that
# programs stumble over.
sub _lie_turn ($self, $connection, $kind, $body)
{
	my @fields = _fields($kind, $body);
	my $turn = $self->{turns}{$kind}++;
	my ($at, $size) = @{ $fields[ $turn % @fields ] };
	my @choice = $kind eq 'connect' && $at == 4 ? @timeouts : @numbers;
	my $new = $choice[ $turn / @fields % @choice ];
	substr($body, $at, $size) =
	  $size == 8 ? pack('q>', $new) : $size == 4 ? pack('L>', $new & 0xffffffff) : chr($new & 0xff);
	return _framed($body);
}

# A path, a name or data is another, and all the rest is right.
sub _lie_text ($self, $connection, $kind, $body)
{
	_fields($kind, $body, \my @texts);
	return $self->_lie_turn($connection, $kind, $body) unless @texts;
	my $at = _one_of($connection, @texts);
	my $length = unpack 'l>', substr $body, $at, 4;
	my $old = substr $body, $at + 4, $length > 0 ? $length : 0;
	my $new = _one_of($connection, '', '/', '//', 'x', '/x', 'no/root', "/\0/\0",
		"/\xff\xfe", 'x' x length $old, '/' x length $old, '/' . 'x' x 5000,
		$old . '0', "$old/x", $old =~ s/^.//sr, $old =~ s/.\z//sr, uc $old,
		$old =~ tr{/}{_}r, _noise($connection, length $old));
	substr($body, $at, 4 + length $old) = _framed($new);
	return _framed($body);
}

# Another number: of no request, of another one, or of what is no request.
sub _lie_header ($self, $connection, $kind, $body)
{
	my $xid = unpack 'l>', $body;
	substr($body, 0, 4) = pack 'L>', 0xffffffff & _one_of($connection, @xids,
		$xid + 1, $xid - 1, -$xid, sort { $a <=> $b } keys %{ $connection->{operation} });
	return _framed($body);
}

sub _lie_error ($self, $connection, $kind, $body)
{
	substr($body, 12, 4) = pack 'l>', _one_of($connection, @errors);
	# An error comes alone, as a rule.
	substr($body, 16) = '' if _random($connection, 2);
	return _framed($body);
}

sub _lie_bits ($self, $connection, $kind, $body)
{
	my $nbits = 1 + _random($connection, 8);
	for (my $i = 0; $i < $nbits && $body ne ''; $i++)
	{
		# Not always where the session would end at once.
		my $from = $kind ne 'connect' && length $body > 16 && _random($connection, 4) ? 16 : 0;
		vec($body, 8 * $from + _random($connection, 8 * (length($body) - $from)), 1) ^= 1;
	}
	return _framed($body);
}

sub _lie_bytes ($self, $connection, $kind, $body)
{
	my $from = $kind ne 'connect' && length $body > 16 ? 16 : 0;
	my $at = $from + _random($connection, length($body) - $from);
	my $count = 1 + _random($connection, 12);
	substr($body, $at, $count) = _noise($connection, $count);
	return _framed($body);
}

sub _noise ($connection, $count)
{
	return join '', map { chr _random($connection, 256) } 1 .. $count;
}

# Every byte has its turn to be the last one.
sub _lie_cut ($self, $connection, $kind, $body)
{
	my $at = $self->{cut_at}{$kind}++ % (length($body) || 1);
	return _framed(substr $body, 0, $at);
}

# The same; the length still tells of the rest, which the next message becomes.
sub _lie_cut_short ($self, $connection, $kind, $body)
{
	my $at = $self->{cut_at}{$kind}++ % (length($body) || 1);
	return pack('N', length $body) . substr $body, 0, $at;
}

sub _lie_longer ($self, $connection, $kind, $body)
{
	return _framed($body . _noise($connection, 1 + _random($connection, 40)));
}

sub _lie_length ($self, $connection, $kind, $body)
{
	return pack('L>', 0xffffffff & _one_of($connection, @numbers,
			length($body) + 1, length($body) - 1, 2 * length $body)) . $body;
}

sub _lie_noise ($self, $connection, $kind, $body)
{
	my $noise = _noise($connection, _random($connection, 200));
	# At times behind a good header.
	substr($noise, 0, 16) = substr $body, 0, 16
	  if length $noise > 16 && _random($connection, 4);
	return _framed($noise);
}

sub _lie_twice ($self, $connection, $kind, $body)
{
	return _framed($body) . _framed($body);
}

sub _lie_drop { return ''; }

sub _lie_swap ($self, $connection, $kind, $body)
{
	$connection->{held} = _framed($body);
	return '';
}

# An event of any type and state, for a path or something like it, ahead of the
# reply.
sub _lie_event ($self, $connection, $kind, $body)
{
	my $path = _one_of($connection, '/', '', '/fuzz', '/fuzz/n0', '/fuzz/n1',
		'/fuzz/queue', _noise($connection, 20), '/' . 'x' x 5000, undef);
	my $event = pack('l> q> l>', -1, -1, 0)
	  . pack('L>2', map { 0xffffffff & $_ }
		  _one_of($connection, 1 .. 4, -1, -2, 0, @numbers),
		  _one_of($connection, 0 .. 5, 12, 128, -112, -113, 3, 3, 3, @numbers))
	  . (defined $path ? _framed($path) : pack 'l>', -1);
	$event = substr $event, 0, _random($connection, length $event)
	  if _random($connection, 8) == 0;
	return _framed($event) . _framed($body);
}

# One that nobody has asked for, or that was sent before.
sub _lie_reply ($self, $connection, $kind, $body)
{
	return _framed($body) . $connection->{former} if _random($connection, 2);
	return _framed(pack('L> q> l>', 0xffffffff & _one_of($connection, @xids), 0,
			_one_of($connection, @errors)) . _noise($connection, _random($connection, 40)))
	  . _framed($body);
}

sub _lie_ping ($self, $connection, $kind, $body)
{
	return join('', map {
		_framed(pack('l> q> l>', -2, 0, _one_of($connection, @errors)))
	} 0 .. _random($connection, 3)) . _framed($body);
}

sub _lie_auth ($self, $connection, $kind, $body)
{
	return _framed(pack('l> q> l>', -4, 0, _one_of($connection, 0, 0, 0, @errors)))
	  . _framed($body);
}

sub _lie_banner ($self, $connection, $kind, $body)
{
	return _one_of($connection, @banners);
}

sub _lie_empty { return _framed(''); }

sub _lie_hang_up ($self, $connection, $kind, $body)
{
	_send($connection->{client}, substr _framed($body), 0,
		_random($connection, 4 + length $body))
	  if _random($connection, 2);
	return undef;
}

1;
