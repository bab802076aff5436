
=pod

=head1 NAME

Torture::Nemesis::Servers - faults of ZooKeeper servers

=head1 DESCRIPTION

Needs, besides what every nemesis needs, zookeeper, board (to find victims), clock (see
L<Torture::Stage>) and flag (see L<Torture::Nemesis::Partitions>). It runs in the process that has
started the servers, for they are its children; starting one takes a few seconds, in
which nothing else happens here. The leader is hit more often than others, and first.

=cut

package Torture::Nemesis::Servers;

use v5.36;

use parent 'Torture::Nemesis';

use Time::HiRes qw(sleep);
use Torture::History qw(now);
use Torture::Programs qw(programs_of servers_of_holders);

# For so long, in seconds, who wakes up may be at work before its server dies.
my $last_words = 0.05;

# So long, in seconds, it takes until an ensemble is there again, sessions are closed,
# and that was seen.
my $come_back = 6;

# Two of the servers' counters: how many watches have told that a node was set,
# and that it went.
my @counters = qw(node_changed_watch_count node_deleted_watch_count);

sub menu
{
	return (
		kill_leader => 5,
		pause_leader => 6,
		restart_leader => 3,
		kill_follower => 3,
		pause_follower => 4,
		pause_majority => 2,
		pause_all => 2,
		restart_all => 2,
		kill_all => 2,
		kill_all_idle => 5,
		set_clock => 4,
		wake_and_kill => 8);
}

# One fault at a time: with two members down nothing would go on for long.
sub inject ($self, $kind)
{
	return if @{ $self->{heals} } || -e $self->{flag};
	$self->_read_counters;
	$kind = 'kill_leader' unless $self->{has_begun}++;
	return $self->_set_clock($kind) if $kind eq 'set_clock';
	my $zk = $self->{zookeeper};
	my ($leader) = $self->_is_settled or return;
	return $self->_wake_and_kill($leader) if $kind eq 'wake_and_kill';
	return $self->_kill_all_idle($kind, $zk->members) if $kind eq 'kill_all_idle';
	my @followers = grep { $_ != $leader } $zk->members;
	my ($action, $who) = $kind =~ /^([a-z]+)_([a-z]+)$/;
	my @members =
		$who eq 'leader' ? $leader
	  : $who eq 'follower' ? $followers[ rand @followers ]
	  : $who eq 'majority' ? ($leader, $followers[ rand @followers ])
	  : ($leader, @followers);
	my $method = "_$action";
	$self->$method($kind, @members);
	return;
}

=pod

=head2 wakeups

How many waiters the servers have woken (because the node ahead was set, because
it went). A server forgets its counters when it ends, so they are read before
every fault: a few may be missing.

=cut

sub wakeups ($self)
{
	$self->_read_counters;
	return map { $self->{count}{$_} || 0 } @counters;
}

# The leader, if all members serve. Release 3.8.0 forgets what it has acknowledged
# when a follower is killed that is just catching up (ZOOKEEPER-4643 and others).
sub _is_settled ($self)
{
	my $zk = $self->{zookeeper};
	my %mode = map { $_ => $zk->mode($_) } $zk->members;
	return if grep { !$_ } values %mode;
	return grep { $mode{$_} eq 'leader' } $zk->members;
}

sub _read_counters ($self)
{
	foreach my $member ($self->{zookeeper}->running)
	{
		my $monitor = $self->{zookeeper}->monitor($member);
		my $seen = $self->{seen}{$member} ||= {};
		foreach my $counter (@counters)
		{
			my $value = $monitor->{"sum_$counter"} // next;
			$self->{count}{$counter} += $value - ($seen->{$counter} || 0);
			$seen->{$counter} = $value;
		}
	}
	return;
}

# Somebody sleeps with a lock, wakes up in time, is told by its server that all is
# well, and then that server dies: a follower that had nothing to report of that
# session to the leader for long. A follower stands for all: who is connected to
# the leader is let sleep in peace.
sub _wake_and_kill ($self, $leader)
{
	my ($victim) = sort { $a->{since} <=> $b->{since} }
	  grep { $_->{pid} && $_->{state} =~ /^(holding|slow|resting)$/ } $self->{board}->entries
	  or return;
	my ($program) = programs_of($victim->{pid}) or return;
	my $member = servers_of_holders($self->{zookeeper})->{ (split /\+/, $victim->{name})[0] };
	return if !$member || $member == $leader;
	$self->fault_of_worker('stop_before_kill', $victim);
	kill 'STOP', $program, $victim->{pid};
	$self->heal_in(
		$self->timeouts(0.4, 0.95),
		'stop_before_kill',
		$victim->{pid},
		sub {
			kill 'CONT', $program, $victim->{pid};
			sleep rand $last_words;
			$self->_kill('kill_follower_awake', $member) if $self->_is_settled;
		});
	return;
}

# The ensemble is away for so long that sessions are lost, while somebody who holds a
# lock does nothing at all, and goes on so. When it comes back it gives each session its
# whole timeout again.
sub _kill_all_idle ($self, $kind, @members)
{
	my $away = $self->timeouts(1.2, 1.6);
	my $late = now() + $away + $come_back;
	return
	  unless grep { $_->{state} eq 'resting' && $_->{until} > $late } $self->{board}->entries;
	$self->_kill_for($away, $kind, @members);
	return;
}

# That of one server, by whole days. Whoever reads the file finds all of it: libfaketime ends a
# process that finds nothing.
sub _set_clock ($self, $kind)
{
	my $days = sprintf '%+dd', int(rand 7) - 3;
	open my $file, '>', "$self->{clock}.new" or die "could not write $self->{clock}.new: $!";
	print $file "$days\n";
	close $file or die "could not write $self->{clock}.new: $!";
	rename "$self->{clock}.new", $self->{clock} or die "could not rename $self->{clock}.new: $!";
	$self->fault($kind, "clock $days");
	return;
}

sub _kill { $_[0]->_kill_for($_[0]->timeouts(0.2, 1.5), @_[ 1 .. $#_ ]); return; }

sub _kill_for ($self, $seconds, $kind, @members)
{
	$self->fault($kind, "server @members");
	$self->{zookeeper}->kill9(@members);
	$self->_start_in($seconds, $kind, @members);
	return;
}

sub _restart ($self, $kind, @members)
{
	$self->fault($kind, "server @members");
	$self->{zookeeper}->stop(@members);
	$self->_start_in(0.1, $kind, @members);
	return;
}

sub _start_in ($self, $seconds, $kind, @members)
{
	my $zk = $self->{zookeeper};
	delete @{ $self->{seen} }{@members};
	$self->heal_in($seconds, $kind, "server @members",
		sub { $zk->start(@members); });
	return;
}

# A leader that wakes up still thinks that it leads.
sub _pause ($self, $kind, @members)
{
	my $zk = $self->{zookeeper};
	$self->fault($kind, "server @members");
	$zk->pause(@members);
	$self->heal_in(
		$self->timeouts(0.2, @members > 1 ? 1 : 2),
		$kind,
		"server @members",
		sub { $zk->resume(@members); });
	return;
}

1;
