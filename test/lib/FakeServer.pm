
=pod

=head1 NAME

FakeServer - a port on which something answers that is not quite a ZooKeeper

=head1 SYNOPSIS

  my $silent = FakeServer->new(sub { return 1; });
  my $web = FakeServer->answering("HTTP/1.1 400 Bad Request\r\n\r\n");
  $session->query("SET zklock.servers = '$silent,$web'");

=head1 DESCRIPTION

A process of its own, which ends with the last reference to it. As a string it is its address.

=cut

package FakeServer;

use v5.36;

use IO::Select;
use IO::Socket::IP;
use POSIX ();
use Scalar::Util qw(weaken);

use overload '""' => sub { return $_[0]{address}; }, fallback => 1;

# Every server that somebody still refers to, for END.
my @servers;

=pod

=head1 METHODS

=head2 new($serve, at => '127.0.0.1', port => 0, forks => 0)

Calls $serve with each connection, in a process of its own if forks is true. It stays open
afterwards if the result is true.

=head2 answering($text, ...)

Reads once, and says that. Instead of a text, code that makes it of what was read.

=head2 relaying_to($port, ...)

Hands each connection on to that port of 127.0.0.1: a real server at another address.

=cut

sub new ($class, $serve, %option)
{
	my $at = $option{at} // '127.0.0.1';
	my $listener = IO::Socket::IP->new(LocalHost => $at, LocalPort => $option{port} // 0, Listen => 50, ReuseAddr => 1)
	  or die "could not listen: $@";
	my $pid = fork // die "could not fork: $!";
	_serve($listener, $serve, %option) if !$pid;
	my $port = $listener->sockport;
	my $self = bless {
		pid => $pid,
		port => $port,
		address => ($at =~ /:/ ? "[$at]" : $at) . ":$port",
		owner => $$ }, $class;
	push @servers, $self;
	weaken $servers[-1];
	return $self;
}

sub answering ($class, $text, %option)
{
	return $class->new(
		sub ($connection) {
			sysread $connection, my $word, 1000;
			syswrite $connection, ref $text ? $text->($word) : $text;
			return 0;
		},
		%option);
}

sub relaying_to ($class, $port, %option)
{
	return $class->new(
		sub ($client) {
			my $server = IO::Socket::IP->new(PeerHost => '127.0.0.1', PeerPort => $port) or return 0;
			my %other = ($client => $server, $server => $client);
			my $both = IO::Select->new($client, $server);
			while (my @ready = $both->can_read)
			{
				foreach my $from (@ready)
				{
					sysread $from, my $bytes, 65_536 or return 0;
					syswrite $other{$from}, $bytes;
				}
			}
			return 0;
		},
		%option,
		forks => 1);
}

sub _serve ($listener, $serve, %option)
{
	@SIG{qw(TERM INT PIPE CHLD)} = ('DEFAULT', 'DEFAULT', 'IGNORE', 'IGNORE');
	my @open;
	while (my $connection = $listener->accept)
	{
		next if $option{forks} && fork;
		push @open, $connection if $serve->($connection);
		POSIX::_exit(0) if $option{forks};
	}
	# Not exit: END and buffers belong to the parent.
	POSIX::_exit(0);
}

=pod

=head2 port

=cut

sub port { return $_[0]{port}; }

sub DESTROY ($self)
{
	return if ${^GLOBAL_PHASE} eq 'DESTRUCT' || $self->{owner} != $$;
	local ($!, $?);
	kill 'KILL', $self->{pid};
	waitpid $self->{pid}, 0;
	return;
}

END
{
	my $status = $?;
	$_->DESTROY foreach grep { $_ } @servers;
	$? = $status;
}

1;
