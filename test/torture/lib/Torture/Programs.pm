
=pod

=head1 NAME

Torture::Programs - the program that has the session of a backend

=head1 DESCRIPTION

Finds it among the processes, and finds out which servers sessions are connected to.
(The kernel does not tell: the program is not to be looked into.)

=cut

package Torture::Programs;

use v5.36;

use Exporter 'import';
use ZkLockTest qw(lock_path session_programs);

our @EXPORT_OK = qw(programs_of servers_of_holders);

=pod

=head2 programs_of($backend)

The process ids; none if the backend has no session.

=cut

sub programs_of { return session_programs(@_); }

=pod

=head2 servers_of_holders($zookeeper)

To which member the session is connected that has the first node in the queue of a
lock: by name of the lock.

=cut

sub servers_of_holders ($zk)
{
	my ($leader) = grep { $zk->mode($_) eq 'leader' } $zk->members;
	return {} unless $leader;
	my $root = lock_path('');
	my ($session, %first);
	foreach my $line (split /\n/, $zk->four_letter_word('dump', $leader))
	{
		$session = $1 if $line =~ /^(0x[0-9a-f]+):/;
		next unless $line =~ m{^\t\Q$root\E(.+)/[^/]*(\d{10})$};
		$first{$1} = [ $2, $session ] if !$first{$1} || $2 < $first{$1}[0];
	}
	my %member;
	foreach my $number ($zk->members)
	{
		$member{$_} = $number
		  foreach $zk->four_letter_word('cons', $number) =~ /sid=(0x[0-9a-f]+),/g;
	}
	return { map { $_ => $member{ $first{$_}[1] } }
		  grep { $member{ $first{$_}[1] } } keys %first };
}

1;
