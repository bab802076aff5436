
=pod

=head1 NAME

Torture::Nemesis::Refusals - deletes are refused for a moment

=head1 DESCRIPTION

Takes the permission DELETE from the ACL of a lock's znode, below which the queue nodes
are, and gives it back: what is released then, given up or taken away stays where it is
for so long, and has to be asked for again. Sessions that end take their nodes with them
all the same.

Needs what L<Torture::Nemesis::Impostor> needs, whose client this is.

=cut

package Torture::Nemesis::Refusals;

use v5.36;

use parent 'Torture::Nemesis::Impostor';

use Time::HiRes qw(sleep);
use Torture::History qw(now);

my $delete = 8;

# For so long, in seconds, it is tried to give it back.
my $patience = 60;

sub menu { return (refuse_deletes => 1); }

sub inject ($self, $kind)
{
	$self->attempt(
		sub {
			my ($queue) = $self->queues or return;
			my $path = $queue->{path};
			return if $self->is_healing($path);
			my $acl = $self->unless_gone(sub { [ $self->client->get_acl($path) ] }) or return;
			my @less = map { [ $_->[0] & ~$delete, @{$_}[ 1, 2 ] ] } @$acl;
			$self->fault($kind, $path);
			# First, for what is refused then is perhaps the answer.
			$self->heal_in($self->timeouts(0.1, 1.5), $kind, $path,
				sub { $self->_give_back($path, $acl); });
			$self->unless_gone(sub { $self->client->set_acl($path, \@less); });
		});
	return;
}

sub _give_back ($self, $path, $acl)
{
	my $until = now() + $patience;
	my $is_done = 0;
	until ($is_done || now() > $until)
	{
		$self->attempt(
			sub {
				$self->unless_gone(sub { $self->client->set_acl($path, $acl); });
				$is_done = 1;
			});
		sleep 0.1 unless $is_done;
	}
	return;
}

1;
