
=pod

=head1 NAME

Torture::Foreign - a contender that is not zklock

=head1 DESCRIPTION

Takes locks the way Curator's mutex does, over a session of its own: a node at the
end of the queue, and a look at the queue until nobody is ahead. It changes nothing;
what it has the lock for is that nobody else may have it meanwhile. Its history reads
like that of a worker.

A client of its own, in a process of its own: it waits for servers that stand
still. When one fails it drops the connection, and its node stays until the session
times out.

=cut

package Torture::Foreign;

use v5.36;

use Time::HiRes qw(sleep);
use ZooKeeper::Client;

# Seconds: from look to look, and for how long it keeps a lock and goes without.
my $look_interval = 0.01;
my $keep = 0.05;
my $pause = 0.4;

=pod

=head2 new(option => value, ...)

worker (number), history, servers (addresses), paths (name => znode),
session_timeout (seconds), is_over (code).

=cut

sub new ($class, %option)
{
	return bless { %option, cycle => 0 }, $class;
}

sub run ($self)
{
	my $parent = getppid;
	# A server that is killed is the next attempt's concern.
	local $SIG{PIPE} = 'IGNORE';
	while (!$self->{is_over}->() && getppid == $parent)
	{
		eval { $self->_cycle; 1 } or $self->_fail($@);
		sleep rand $pause;
	}
	eval { $self->{client}->close } if $self->{client};
	return;
}

sub _cycle ($self)
{
	my $servers = $self->{servers};
	my $client = $self->{client} ||= ZooKeeper::Client->new(
		$servers->[ rand @$servers ],
		timeout => $self->{session_timeout});
	my @names = sort keys %{ $self->{paths} };
	my $name = $names[ rand @names ];
	my $path = $self->{paths}{$name};
	return unless $client->exists($path);
	$self->_note('asked', kind => 'foreign', name => $name, pid => 0,
		scope => 'session', wait => 'forever', patience => '');
	my $node = $client->create("$path/_c_" . _guid() . '-lock-',
		'a foreign contender',
		ephemeral => 1,
		sequential => 1,
		# The stranger must not write there: everybody reads.
		acl => [ [ 1, 'world', 'anyone' ] ]);
	my $token = $self->_wait($path, $node);
	$self->_note('granted', locks => "$name:exclusive:$token");
	sleep rand $keep;
	$self->_note('release_sent');
	$client->delete($node);
	return;
}

# The token of the node, as soon as nobody is ahead of it.
sub _wait ($self, $path, $node)
{
	my $client = $self->{client};
	my $own = substr $node, -10;
	while (1)
	{
		my @numbers = map { /(\d{10})$/ ? $1 : () } $client->children($path);
		# That it is not there itself is for the next request to find out.
		last unless grep { $_ < $own } @numbers;
		die "the test has ended\n" if $self->{is_over}->();
		sleep $look_interval;
	}
	my $stat = $client->exists($node) or die "the node is gone\n";
	return $stat->{czxid};
}

# It is not known what became of the node.
sub _fail ($self, $message = undef)
{
	$message =~ s/\s+/ /g;
	$self->_note('failed', stage => 'asking', message => $message);
	eval { $self->{client}->abandon } if $self->{client};
	$self->{client} = undef;
	return;
}

sub _note ($self, $event, %detail)
{
	$self->{cycle}++ if $event eq 'asked';
	$self->{history}->note($event, cycle => $self->{cycle}, %detail);
	return;
}

# Random, and of version 4, as Curator's is.
sub _guid
{
	my @part = map { sprintf '%04x', rand 65536 } 1 .. 8;
	return "$part[0]$part[1]-$part[2]-4" . substr($part[3], 1) . '-a'
	  . substr($part[4], 1) . "-$part[5]$part[6]$part[7]";
}

1;
