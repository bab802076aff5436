
=pod

=head1 NAME

Torture::Nemesis::Impostor - gives its own nodes the looks of a contender's

=head1 DESCRIPTION

Makes nodes in the queues that bear zklock's mark, and sets them as if it had held
the lock: at the end of a queue, with a number between those of others, or with the
whole name of a node of another queue. A little later it deletes them. It never deletes
a node of somebody else.

Needs, besides what every nemesis needs, zookeeper (L<ZooKeeper>) and paths (of the
locks). Its history has a line "session" for each of its own, which the witness
must know; "forged" for each node, with kind; and "said" for each set, with is_watched:
whether somebody watched the node just before. Nobody is harmed by what nobody hears.

A client of its own, in a process of its own: it waits for servers that stand
still.

=cut

package Torture::Nemesis::Impostor;

use v5.36;

use parent 'Torture::Nemesis';

use List::Util qw(max shuffle);
use ZooKeeper::Client;

# So often, and so many seconds apart at most, it looks whether somebody stands behind a
# node; and how long the node stays when it was set.
my $looks = 8;
my $silence = 0.3;
my $rest = 0.2;

# How far ahead of the last of a queue; and the longest of how many queues it takes.
my $depth = 10;
my $choice = 4;

sub menu { return (end => 6, between => 2, copy => 2); }

sub inject ($self, $kind)
{
	$self->attempt(sub { $self->_forge($kind); });
	return;
}

=pod

=head2 leave

Its nodes go with its session.

=cut

sub leave ($self)
{
	$self->attempt(sub { $self->{client}->close; }) if $self->{client};
	return;
}

# Trouble with the server, or a delete that is refused, means another one next time, and
# the end of all nodes.
sub attempt ($self, $action)
{
	eval { $action->(); 1 } and return;
	my $error = $@;
	die $error
	  unless $error =~ /NoAuth|ConnectionLoss|SessionExpired|SessionMoved|refused the session|could not connect|session is closed/;
	eval { $self->{client}->abandon } if $self->{client};
	$self->{client} = undef;
	return;
}

sub client ($self)
{
	return $self->{client} if $self->{client};
	my $zk = $self->{zookeeper};
	my @members = $zk->members;
	$self->{client} = ZooKeeper::Client->new(
		'127.0.0.1:' . $zk->port($members[ rand @members ]),
		timeout => $self->{session_timeout},
		# One that does not answer for longer may never do so: take another.
		patience => 2 * $self->{session_timeout});
	$self->{history}->note('session', id => $self->{client}->session_id);
	$self->{client}->add_auth('digest', $_) foreach $self->credentials;
	return $self->{client};
}

sub credentials { return 'impostor:secret'; }

# A node beside others; in a queue that is empty nobody would be deceived.
sub _forge ($self, $kind)
{
	my ($queue, $other) = $self->queues;
	return unless $other;
	my $path = $queue->{path};
	my $name = _guid() . '-lock-';
	if ($kind ne 'end')
	{
		my %is_free = _free_numbers(@{ $queue->{nodes} });
		my @names =
		  $kind eq 'copy' ? grep { $is_free{ _number($_) } } @{ $other->{nodes} }
		  : map { $name . $_ } sort keys %is_free;
		$name = $names[ rand @names ] // return;
	}
	my $node = $self->unless_gone(
		sub {
			$self->client->create("$path/$name", '',
				ephemeral => 1,
				sequential => $kind eq 'end',
				# Like a contender's: the stranger must not write there.
				acl => [ [ 31, 'auth', '' ], [ 1, 'world', 'anyone' ] ]);
		}) or return;
	$self->{history}->note('forged', kind => $kind, target => $node);
	$self->_listen($node, $looks);
	return;
}

sub _number { return $_[0] =~ /(\d{10})$/ ? $1 : undef; }

# Numbers of a queue that nobody has any more. With one that somebody has, or will
# have, its owner is told that numbers are used up.
sub _free_numbers
{
	my @taken = map { _number($_) } @_;
	my $last = max(@taken);
	my %is_free = map { (sprintf('%010d', $_) => 1) } max(0, $last - $depth) .. $last;
	delete @is_free{@taken};
	return %is_free;
}

# Some queues that are not empty, those with many nodes first: hashes with path and
# nodes.
sub queues ($self)
{
	my @queues;
	foreach my $path (shuffle @{ $self->{paths} })
	{
		my $children = $self->unless_gone(sub { [ $self->client->children($path) ]; });
		my @nodes = grep { defined _number($_) } @{ $children || [] };
		push @queues, { path => $path, nodes => \@nodes } if @nodes;
		last if @queues == $choice;
	}
	return sort { @{ $b->{nodes} } <=> @{ $a->{nodes} } } @queues;
}

# What is asked for, or nothing if the node was deleted meanwhile, or is there already.
sub unless_gone ($, $request)
{
	my $answer = eval { $request->() };
	die $@ if $@ && $@ !~ /NoNode|NodeExists/;
	return $answer;
}

# In a while, until somebody watches the node or patience is at its end. The session lives
# by its requests alone, so each look is one: on a busy machine it ended before a word was
# said. A node that went with its session costs no more looks.
sub _listen ($self, $node, $looks_left)
{
	$self->heal_in(
		rand $silence,
		'forged', $node,
		sub {
			my $is_there;
			$self->attempt(sub { $is_there = $self->client->exists($node); });
			return unless $is_there;
			my $is_watched = grep { $_ eq $node } $self->{zookeeper}->watched_paths($node);
			return $self->_listen($node, $looks_left - 1)
			  if !$is_watched && $looks_left > 1;
			$self->_say($node, $is_watched);
		});
	return;
}

# The word of a holder that lets go. If this fails the session is over, or will be.
sub _say ($self, $node, $is_watched)
{
	$self->attempt(
		sub {
			$self->unless_gone(sub { $self->client->set($node, ''); 1 }) or return;
			$self->{history}->note('said', is_watched => $is_watched ? 1 : 0);
		});
	$self->heal_in(rand $rest, 'forged', $node,
		sub { $self->attempt(sub { $self->unless_gone(sub { $self->client->delete($node); }); }); });
	return;
}

# Random, with the mark of those that are handed over.
sub _guid
{
	my @part = map { sprintf '%04x', rand 65536 } 1 .. 7;
	return "_c_$part[0]$part[1]-$part[2]-8a11-a" . substr($part[3], 1) . "-$part[4]$part[5]$part[6]";
}

1;
