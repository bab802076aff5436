
=pod

=head1 NAME

Torture::Nemesis::Stranger - writes into nodes that are not its own

=head1 DESCRIPTION

A holder hands its lock over by setting the data of its queue node. Here comes
somebody else and does so, with nodes of holders and of waiters alike: that must
be refused. Needs what L<Torture::Nemesis::Impostor> needs, whose client this is. Its
history has a line "write" for each attempt, with
result (accepted, refused, gone) and is_marked: whether the node's name says
that its data can be believed.

=cut

package Torture::Nemesis::Stranger;

use v5.36;

use parent 'Torture::Nemesis::Impostor';

sub menu { return (write => 1); }

sub credentials { return; }

sub inject ($self, @)
{
	$self->attempt(sub { $self->_write; });
	return;
}

sub _write ($self)
{
	my $paths = $self->{paths};
	my $path = $paths->[ rand @$paths ];
	my $children = $self->unless_gone(sub { [ $self->client->children($path) ] });
	my @nodes = grep { /\d{10}$/ } @{ $children || [] };
	my $node = $nodes[ rand @nodes ] // return;
	my $result =
		eval { $self->client->set("$path/$node", 'a stranger was here'); 1 }
	  ? 'accepted'
	  : $@ =~ /NoAuth/ ? 'refused'
	  : $@ =~ /NoNode/ ? 'gone'
	  : die $@;
	$self->{history}->note(
		'write',
		target => "$path/$node",
		result => $result,
		is_marked => $node =~ /^_c_[0-9a-f]{8}-[0-9a-f]{4}-8a11-/ ? 1 : 0);
	return;
}

1;
