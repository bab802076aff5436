
=pod

=head1 NAME

Torture::Nemesis::Servers - faults of ZooKeeper servers

=head1 DESCRIPTION

Needs, besides what every nemesis needs, zookeeper. It runs in the process that
has started the servers, for they are its children; starting one takes a few
seconds, in which nothing else happens here. The leader is hit more often than
others, and first.

=cut

package Torture::Nemesis::Servers;

use strict;
use warnings;

use parent 'Torture::Nemesis';

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
		pause_all => 2);
}

# One fault at a time: with two members down nothing would go on for long.
sub inject
{
	my ($self, $kind) = @_;
	return if @{ $self->{heals} };
	$self->_read_counters;
	$kind = 'kill_leader' unless $self->{has_begun}++;
	my $zk = $self->{zookeeper};
	my ($leader) = grep { $zk->mode($_) eq 'leader' } $zk->running;
	return unless $leader;
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

sub wakeups
{
	my ($self) = @_;
	$self->_read_counters;
	return map { $self->{count}{$_} || 0 } @counters;
}

sub _read_counters
{
	my ($self) = @_;
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

sub _kill
{
	my ($self, $kind, @members) = @_;
	$self->fault($kind, "server @members");
	$self->{zookeeper}->kill9(@members);
	$self->_start_in($self->timeouts(0.2, 1.5), $kind, @members);
	return;
}

sub _restart
{
	my ($self, $kind, @members) = @_;
	$self->fault($kind, "server @members");
	$self->{zookeeper}->stop(@members);
	$self->_start_in(0.1, $kind, @members);
	return;
}

sub _start_in
{
	my ($self, $seconds, $kind, @members) = @_;
	my $zk = $self->{zookeeper};
	delete @{ $self->{seen} }{@members};
	$self->heal_in($seconds, $kind, "server @members",
		sub { $zk->start(@members); });
	return;
}

# A leader that wakes up still thinks that it leads.
sub _pause
{
	my ($self, $kind, @members) = @_;
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
