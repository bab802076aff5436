
=pod

=head1 NAME

Torture::Nemesis::Stranger - writes into nodes that are not its own

=head1 DESCRIPTION

A holder hands its lock over by setting the data of its queue node. Here comes
somebody else and does so, with nodes of holders and of waiters alike: that must
be refused. Needs, besides what every nemesis needs, servers (addresses) and
paths (of the locks). Its history has a line "write" for each attempt, with
result (accepted, refused, gone) and is_marked: whether the node's name says
that its data can be believed.

A client of its own, in a process of its own: it waits for servers that stand
still.

=cut

package Torture::Nemesis::Stranger;

use v5.36;

use parent 'Torture::Nemesis';

use ZooKeeper::Client;

sub menu { return (write => 1); }

# Trouble with the server means another one next time.
sub inject ($self, @)
{
	eval { $self->_write; 1 } and return;
	my $error = $@;
	die $error
	  unless $error =~ /ConnectionLoss|SessionExpired|SessionMoved|refused the session|could not connect/;
	eval { $self->{client}->abandon } if $self->{client};
	$self->{client} = undef;
	return;
}

sub _write ($self)
{
	my ($servers, $paths) = @{$self}{qw(servers paths)};
	my $client = $self->{client} ||=
	  ZooKeeper::Client->new($servers->[ rand @$servers ]);
	my $path = $paths->[ rand @$paths ];
	my @nodes = eval { $client->children($path) };
	die $@ if $@ && $@ !~ /NoNode/;
	@nodes = grep { /\d{10}$/ } @nodes;
	my $node = $nodes[ rand @nodes ] // return;
	my $result =
		eval { $client->set("$path/$node", 'a stranger was here'); 1 }
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
