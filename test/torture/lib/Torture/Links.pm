
=pod

=head1 NAME

Torture::Links - the network between the servers of an ensemble

=head1 DESCRIPTION

A proxy for each way from one server to another, for its quorum port and its
election port. What a server sends to another goes by the link between them,
whichever of the two has opened the connection.

Of two servers that connect for elections one calls back, to the address by which
the other introduces itself. It would get around us, so the address is made one
that says nothing: then the server takes the one in its configuration, which is
ours.

=cut

package Torture::Links;

use v5.36;

use Proxy;

# A leader listens only when it knows that it leads. Who comes earlier would be refused
# and try again; but we have accepted already, so we wait in its place, in seconds.
my $patience = 5;

sub new { return bless { link => {} }, $_[0]; }

=pod

=head2 port($from, $to, $what, $address)

That of a new proxy; what L<ZooKeeper> wants as its "link".

=cut

sub port ($self, $from, $to, $what, $address)
{
	my $proxy = Proxy->new(
		$address,
		patience => $patience,
		$what eq 'election' ? (greeting => \&_hide_address) : ());
	push @{ $self->{link}{"$from $to"} }, $proxy;
	return $proxy->port;
}

# What a server sends first: version, its number, length and text of its address.
sub _hide_address ($text)
{
	return undef if length $text < 20;
	my (undef, undef, $length) = unpack 'q> q> N', $text;
	return undef if length $text < 20 + $length;
	substr $text, 16, 4 + $length, pack 'N/a*', '0.0.0.0:1';
	return $text;
}

=pod

=head2 cut($from, $to), heal($from, $to), reset($from, $to)

What these servers send to those is lost, until it is healed: each is an array of
members. Nothing is said of what comes back. With reset their connections end.

=cut

sub cut ($self, $from = undef, $to = undef)
{
	$_->[0]->cut($_->[1]) foreach $self->_ways($from, $to);
	return;
}

sub heal ($self, @sides)
{
	$_->heal foreach map { $_->[0] } $self->_ways(@sides);
	return;
}

sub reset ($self, @sides)
{
	$_->reset_connections foreach map { $_->[0] } $self->_ways(@sides);
	return;
}

# [proxy, direction] of all ways from these to those.
sub _ways ($self, $from, $to)
{
	my @ways;
	foreach my $one (@$from)
	{
		foreach my $other (grep { $_ != $one } @$to)
		{
			push @ways,
			  (map { [ $_, 'requests' ] } @{ $self->{link}{"$one $other"} }),
			  (map { [ $_, 'replies' ] } @{ $self->{link}{"$other $one"} });
		}
	}
	return @ways;
}

1;
