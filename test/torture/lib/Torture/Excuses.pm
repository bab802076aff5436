
=pod

=head1 NAME

Torture::Excuses - what the commit guard cannot help

=head1 DESCRIPTION

Between the guard's proof and the commit record there is a gap that no guard can
close; docs/safety.md says how long it may be, and for what else it may be too
long. Who lost its lock there, and only there, is excused:

  stopped    its backend stood still, by the nemesis' log, from when COMMIT was sent
             to when it ended, for as long as what is left of the session timeout
             when a proof is used up
  standby    it waited for the standby of its cluster, which was held up for as long:
             the commit record was written, but others did not see it yet. Under a lock
             that is so whatever synchronous_commit says (durable.c).
  evicted    somebody else deleted its node: within COMMIT, or, where the guard does
             not ask each time, while a proof is good

=cut

package Torture::Excuses;

use v5.36;

use List::Util qw(max min sum0);

=pod

=head2 new(stops => { pid => [ [from, to], ... ] }, evictions => { token => [from, to] },
frozen_programs => likewise, standby => { cluster => [ [from, to], ... ] }, reserve => seconds,
asked_within => seconds)

standby: when that of the cluster was held up; the last two as for L<Torture::Witness>.

=cut

sub new ($class, %option)
{
	return bless {%option}, $class;
}

=pod

=head2 excuses($cycle)

Which of them is the excuse of this cycle; false if there is none. Only for
those whose COMMIT goes to the backend that holds the lock.

=cut

sub excuses ($self, $cycle)
{
	return '' if $cycle->{kind} =~ /^(fenced|bare|hold|foreign)$/;
	my ($begin, $end) = @{$cycle}{qw(commit_sent ended)};
	return '' unless defined $begin && defined $end;
	return 'stopped'
	  if $self->stood_still($cycle->{pid}, $begin, $end) >= $self->{reserve};
	return 'standby'
	  if _overlap($begin, $end, $self->{standby}{ $cycle->{cluster} }) >= $self->{reserve};
	my $since = $begin - $self->{asked_within};
	return 'evicted'
	  if grep { $_ && $_->[0] < $end && $_->[1] > $since }
	  map { $self->{evictions}{ $_->{token} } } @{ $cycle->{locks} };
	return '';
}

=pod

=head2 stood_still($pid, $begin, $end), program_stood_still($pid, $begin, $end)

For how many seconds of that time; of the backend, and of the program that has its
session.

=cut

sub stood_still ($self, $pid, $begin, $end)
{
	return _overlap($begin, $end, $self->{stops}{$pid});
}

sub program_stood_still ($self, $pid, $begin, $end)
{
	return _overlap($begin, $end, $self->{frozen_programs}{$pid});
}

sub _overlap ($begin, $end, $times)
{
	return sum0 map { max(0, min($_->[1], $end) - max($_->[0], $begin)) } @{ $times || [] };
}

1;
