
=pod

=head1 NAME

ZooKeeper::Client - look at znodes, and make them, without going through zklock

=head1 SYNOPSIS

  my $client = ZooKeeper::Client->new('127.0.0.1:2181');
  my $path = $client->create('/a/_c_6ba7-lock-', 'data',
	  ephemeral => 1, sequential => 1);
  my @names = $client->children('/a');
  $client->close;

=head1 DESCRIPTION

A test that checks a client with the same client checks nothing, so this is a
second, independent one: ZooKeeper's wire protocol (jute) in core Perl. One
request at a time, no threads, no reconnect: when the connection breaks, the
next call dies. A session pings only while a request is under way; it asks for
a long timeout instead, which ZooKeeper.pm lets the servers grant.

=cut

package ZooKeeper::Client;

use v5.36;

use Carp;
use IO::Select;
use IO::Socket::INET;
use Socket qw(SOL_SOCKET SO_LINGER TCP_NODELAY IPPROTO_TCP);

# Request types and error codes of ZooKeeper's protocol that we use.
my %OP = (
	create => 1,
	multi => 14,
	delete => 2,
	exists => 3,
	get_data => 4,
	set_data => 5,
	get_acl => 6,
	set_acl => 7,
	get_children2 => 12,
	create2 => 15,
	reconfig => 16,
	create_container => 19,
	create_ttl => 21,
	close => -11,
	auth => 100);

my %ERROR = (
	-4 => 'ConnectionLoss',
	-8 => 'BadArguments',
	-101 => 'NoNode',
	-102 => 'NoAuth',
	-103 => 'BadVersion',
	-108 => 'NoChildrenForEphemerals',
	-110 => 'NodeExists',
	-111 => 'NotEmpty',
	-112 => 'SessionExpired',
	-115 => 'AuthFailed',
	-118 => 'SessionMoved');

# The server was busy, and has not executed the request.
my $throttled = -127;

=pod

=head1 METHODS

Each of them dies with "<operation> <path>: <error>" when the server refuses,
e.g. "delete /a: NotEmpty".

=head2 new($server, timeout => seconds, session => id, patience => seconds)

Connects to one host:port and starts a session, or goes on with one that is
somebody else's: what this client makes then is the other's, who gets its session
back when it connects again. It sends nothing but requests, so the session ends
when there were none for so long, by default for an hour. A reply may take as long as
the patience, by default a minute: longer than an election.

=cut

sub new ($class, $server, %option)
{
	my $socket = IO::Socket::INET->new(PeerAddr => $server, Timeout => 10)
	  or croak "could not connect to ZooKeeper at $server: $@";
	$socket->setsockopt(IPPROTO_TCP, TCP_NODELAY, 1);
	my $self = bless
	  { socket => $socket, xid => 0, owner => $$, patience => $option{patience} || 60 }, $class;

	my $timeout = int(1000 * ($option{timeout} || 3600));
	my $id = $option{session} || 0;
	$self->_send(pack('N q> N q>', 0, 0, $timeout, $id)
		  . _buffer($id ? _password($id) : "\0" x 16)
		  . "\0");
	my (undef, $granted, $session) = unpack('N N q>', $self->_receive);
	croak "ZooKeeper at $server refused the session" if $session == 0;
	$self->{timeout} = $granted / 1000;
	$self->{session} = $session;
	return $self;
}

=pod

=head2 session_id, timeout

The session's id (as ephemeralOwner shows it) and the timeout granted, in
seconds.

=cut

sub session_id { return $_[0]->{session}; }
sub timeout { return $_[0]->{timeout}; }

=pod

=head2 add_auth($scheme, $credentials)

=cut

sub add_auth ($self, $scheme, $credentials)
{
	$self->_request('auth', $scheme, -4,
		pack('N', 0) . _buffer($scheme) . _buffer($credentials));
	return;
}

=pod

=head2 create($path, $data, ephemeral => 1, sequential => 1, container => 1, ttl => milliseconds, acl => [[perms, scheme, id], ...])

Returns the path as created, with its sequence number. A TTL is for persistent nodes, of servers
with zookeeper.extendedTypesEnabled.

=cut

sub create ($self, $path, $data, %option)
{
	my $reply = $self->_call(_create_request($path, $data, %option));
	return _read_buffer(\$reply);
}

# The operation, the path and the body.
sub _create_request ($path, $data, %option)
{
	my $acl = _acl($option{acl} || [ [ 31, 'world', 'anyone' ] ]);
	my $flags =
		$option{container}
	  ? 4
	  : ($option{ephemeral} ? 1 : 0) + ($option{sequential} ? 2 : 0);
	my $body = _buffer($path) . _buffer($data) . $acl;
	return ('create_ttl', $path, $body . pack('N q>', $option{sequential} ? 6 : 5, $option{ttl}))
	  if $option{ttl};
	return ($option{container} ? 'create_container' : 'create',
		$path, $body . pack('N', $flags));
}

=pod

=head2 contend($path, $data, option => value, ...)

Creates an ephemeral, sequential znode, as contenders do, and returns its path.

=cut

sub contend ($self, $path, $data = '', %option)
{
	return $self->create($path, $data, ephemeral => 1, sequential => 1, %option);
}

=pod

=head2 create_many($count, $path, $data, option => value, ...)

As many creates, a few hundred of them in one transaction. The path may be a sub
that is given their numbers, from 1 on.

=cut

sub create_many ($self, $count, $path_of, @create)
{
	my ($op, $path, $body) = _create_request(ref $path_of ? '' : $path_of, @create);
	my $number = 0;
	while ($count > 0)
	{
		my $batch = $count < 500 ? $count : 500;
		my $all = '';
		foreach (1 .. $batch)
		{
			($op, $path, $body) = _create_request($path_of->(++$number), @create)
			  if ref $path_of;
			# Each has a header, and so has the end.
			$all .= pack('N C l>', $OP{$op}, 0, -1) . $body;
		}
		my $reply = $self->_call('multi', $path, $all . pack('l> C l>', -1, 1, -1));
		# Those of a transaction that failed: the code of that one, in the place of its result.
		while (unpack('l>', $reply) == -1 && length $reply > 9)
		{
			my ($error) = unpack 'x9 l>', substr $reply, 0, 13, '';
			croak "$op below $path: " . ($ERROR{$error} || "error $error") if $error;
		}
		$count -= $batch;
	}
	return;
}

=pod

=head2 create_path($path)

Makes the path and its parents as needed, as plain persistent nodes.

=cut

sub create_path ($self, $path)
{
	my $above = '';
	foreach my $part (grep { length } split m{/}, $path)
	{
		$above .= "/$part";
		eval { $self->create($above, ''); 1 }
		  or $@ =~ /NodeExists/
		  or die $@;
	}
	return $path;
}

=pod

=head2 children($path)

The names below $path, sorted. In scalar context their number.

=cut

sub children ($self, $path)
{
	my $reply = $self->_call('get_children2', $path, _buffer($path) . "\0");
	my $count = unpack('l>', substr($reply, 0, 4, ''));
	my @names = map { _read_buffer(\$reply) } 1 .. $count;
	@names = sort @names;
	return @names;
}

=pod

=head2 exists($path)

The node's stat (a hash reference: czxid, mzxid, version, cversion, owner,
data_length, num_children, ...), or undef if there is no such node.

=cut

sub exists ($self, $path)
{
	my $reply = eval { $self->_call('exists', $path, _buffer($path) . "\0") };
	return _stat($reply) if defined $reply;
	return undef if $@ =~ /NoNode/;
	die $@;
}

=pod

=head2 get($path)

The node's data; in list context data and stat.

=cut

sub get ($self, $path)
{
	my $reply = $self->_call('get_data', $path, _buffer($path) . "\0");
	my $data = _read_buffer(\$reply);
	return wantarray ? ($data, _stat($reply)) : $data;
}

=pod

=head2 set($path, $data, $version), delete($path, $version)

Any version by default.

=cut

sub set ($self, $path, $data, $version = undef)
{
	my $reply = $self->_call('set_data', $path,
		_buffer($path) . _buffer($data) . pack('l>', $version // -1));
	return _stat($reply);
}

sub delete ($self, $path, $version = undef)
{
	$self->_call('delete', $path,
		_buffer($path) . pack('l>', $version // -1));
	return;
}

=pod

=head2 get_acl($path), set_acl($path, [[perms, scheme, id], ...])

=cut

sub get_acl ($self, $path)
{
	my $reply = $self->_call('get_acl', $path, _buffer($path));
	my $count = unpack('l>', substr($reply, 0, 4, ''));
	my @acl;
	foreach (1 .. $count)
	{
		my $perms = unpack('N', substr($reply, 0, 4, ''));
		my $scheme = _read_buffer(\$reply);
		push @acl, [ $perms, $scheme, _read_buffer(\$reply) ];
	}
	return @acl;
}

sub set_acl ($self, $path, $acl)
{
	$self->_call('set_acl', $path, _buffer($path) . _acl($acl) . pack('l>', -1));
	return;
}

sub _acl ($acl)
{
	return join('', pack('N', scalar @$acl),
		map { pack('N', $_->[0]) . _buffer($_->[1]) . _buffer($_->[2]) } @$acl);
}

=pod

=head2 delete_recursive($path)

Also if the server deletes some of it meanwhile.

=cut

sub delete_recursive ($self, $path)
{
	eval {
		$self->delete_recursive("$path/$_") foreach $self->children($path);
		$self->delete($path);
		1;
	} or $@ =~ /NoNode/ or die $@;
	return;
}

=pod

=head2 remove_servers($number, ...)

These servers of the ensemble are none any more: it needs reconfigEnabled, and skipACL.

=cut

sub remove_servers ($self, @numbers)
{
	$self->_call('reconfig', '/zookeeper/config',
		_buffer(undef) . _buffer(join ',', @numbers) . _buffer(undef) . pack('q>', -1));
	return;
}

=pod

=head2 close

Ends the session; its ephemeral nodes go at once. It ends with the last reference to the
client, too, and then nobody waits for that.

=cut

sub close ($self)
{
	return unless $self->{socket};
	eval { $self->_call('close', '', ''); };
	$self->{socket}->close;
	$self->{socket} = undef;
	return;
}

sub DESTROY ($self)
{
	return if ${^GLOBAL_PHASE} eq 'DESTRUCT' || $self->{owner} != $$ || !$self->{socket};
	local ($@, $!, $?);
	local $SIG{PIPE} = 'IGNORE';
	eval { $self->_send_request('close', '', ++$self->{xid}, ''); };
	return;
}

=pod

=head2 replay(@messages)

Sends messages that another connection of the session has sent, just as they were, and
returns the codes of their replies.

=cut

sub replay ($self, @messages)
{
	my @codes;
	foreach my $message (@messages)
	{
		$self->_send($message);
		push @codes, (unpack 'l> q> l>', $self->_receive)[2];
	}
	return @codes;
}

=pod

=head2 abandon

Breaks the connection without a word, as a crashed client does: its ephemeral
nodes stay until the session times out.

=cut

sub abandon ($self)
{
	setsockopt($self->{socket}, SOL_SOCKET, SO_LINGER, pack('ii', 1, 0));
	$self->{socket}->close;
	$self->{socket} = undef;
	return;
}

# The password of a session: the server makes it from the session's number and a
# constant, by java.util.Random.
sub _password ($id)
{
	my $mask = (1 << 48) - 1;
	my $factor = 5 << 32 | 0xdeece66d;
	my $seed = ($id ^ 0xb3415c00 ^ $factor) & $mask;
	my $password = '';
	foreach (1 .. 4)
	{
		{
			use integer;	# which wraps
			$seed = $seed * $factor + 11;
		}
		$seed &= $mask;
		$password .= pack 'V', ($seed >> 16) & 0xffffffff;
	}
	return $password;
}

# Send one request and return the body of its reply.
sub _call ($self, $op, $path, $body)
{
	return $self->_request($op, $path, ++$self->{xid}, $body);
}

sub _request ($self, $op, $path, $xid, $body)
{
	my $reply;
	do
	{
		$self->_send_request($op, $path, $xid, $body);
		$reply = $self->_take_reply($op, $path, $xid);
	} until defined $reply;
	return $reply;
}

sub _send_request ($self, $op, $path, $xid, $body)
{
	croak "$op $path: session is closed" unless $self->{socket};
	$self->_send(pack('l> l>', $xid, $OP{$op}) . $body);
	return;
}

# Undefined: the request is to be sent again.
sub _take_reply ($self, $op, $path, $xid)
{
	my $reply = $self->_receive;
	my ($reply_xid, undef, $error) = unpack('l> q> l>', $reply);
	croak "$op $path: reply $reply_xid to request $xid"
	  if $reply_xid != $xid;
	return undef if $error == $throttled;
	croak "$op $path: " . ($ERROR{$error} || "error $error") if $error;
	return substr($reply, 16);
}

sub _send ($self, $message)
{
	$message = pack('N', length $message) . $message;
	while (length $message)
	{
		my $sent = syswrite($self->{socket}, $message);
		croak "ConnectionLoss: could not send to ZooKeeper: $!"
		  unless defined $sent;
		substr($message, 0, $sent, '');
	}
	return;
}

sub _receive ($self)
{
	my $length = unpack('N', $self->_read(4));
	return $self->_read($length);
}

sub _read ($self, $wanted)
{
	my $data = '';
	my $select = IO::Select->new($self->{socket});
	while (length $data < $wanted)
	{
		# A server that is stopped, or goes on, interrupts it where SIGCHLD has a handler.
		local $! = 0;
		my $is_there = $select->can_read($self->{patience});
		next if !$is_there && $!{EINTR};
		croak 'ConnectionLoss: no reply from ZooKeeper' if !$is_there;
		my $got = sysread($self->{socket}, $data, $wanted - length $data,
			length $data);
		croak 'ConnectionLoss: ZooKeeper closed the connection'
		  unless $got;
	}
	return $data;
}

# jute: a buffer or string is its length and its bytes; length -1 is null.
sub _buffer ($bytes)
{
	return pack('l>', -1) unless defined $bytes;
	utf8::encode($bytes) if utf8::is_utf8($bytes);
	return pack('N', length $bytes) . $bytes;
}

sub _read_buffer ($reply)
{
	my $length = unpack('l>', substr($$reply, 0, 4, ''));
	return undef if $length < 0;
	return substr($$reply, 0, $length, '');
}

sub _stat ($reply)
{
	my %stat;
	@stat{
		qw(czxid mzxid ctime mtime version cversion aversion owner
		  data_length num_children pzxid)
	} = unpack('q> q> q> q> l> l> l> q> l> l> q>', $reply);
	return \%stat;
}

1;
