
=pod

=head1 NAME

Torture::Nemesis::Backends - faults of backends and of the network

=head1 DESCRIPTION

Needs, besides what every nemesis needs: board (to find victims), proxies
(cluster => [ Proxy, ... ], one for each server of the ensemble) and standby (the
cluster_name of one). Signals are
sent directly: pg_cancel_backend() and pg_terminate_backend() do nothing else.

=cut

package Torture::Nemesis::Backends;

use strict;
use warnings;

use parent 'Torture::Nemesis';

use Time::HiRes qw(sleep);
use Torture::History qw(now);
use Torture::Programs qw(programs_of);

# The time that a cluster gets between two crashes, in seconds: it restarts all
# backends, and nothing but restarts would test nothing.
my $crash_interval = 6;

# Who is preferred as a victim. What takes a lock away goes to those who have
# one; what can hit anybody goes to waiters, too.
my %holders_first = (
	slow => 20,
	committing => 20,
	holding => 10,
	releasing => 5,
	resting => 5,
	spinning => 2,
	keeping => 2,
	claiming => 2,
	asking => 0.4);
my %anybody = (
	slow => 4,
	committing => 10,
	holding => 5,
	releasing => 5,
	resting => 2,
	spinning => 3,
	keeping => 0.5,
	trying => 1,
	claiming => 2,
	asking => 1,
	evicting => 1,
	recovering => 0.3);

# How long an ambush waits for a victim, and how often it looks, in seconds.
my $ambush = 1;
my $ambush_interval = 0.0002;

# By then, in seconds, a request for a slot is under way whose reply will not come.
my $claim_delay = 0.03;

sub menu
{
	return (
		cancel => 34,
		cancel_waiter => 16,
		terminate => 12,
		crash => 2,
		crash_after_commit => 3,
		stop_long => 14,
		stop_short => 8,
		stop_in_commit => 6,
		stop_and_kill => 2,
		stop_waiter_long => 3,
		stop_waiter_short => 5,
		stop_session => 6,
		stop_keeper => 4,
		stop_machine => 2,
		freeze_program => 5,
		kill_program => 4,
		freeze_standby => 4,
		cut => 2,
		cut_requests => 1,
		cut_replies => 2,
		cut_one_server => 4,
		cut_replies_at_release => 2,
		cut_replies_at_claim => 14,
		reset => 5,
		reset_at_release => 6,
		refuse => 1);
}

sub inject
{
	my ($self, $kind) = @_;
	my $method = "_$kind";
	$self->$method($kind);
	return;
}

# An entry of the board, by the weights of the states; undef if nobody is there.
sub _victim
{
	my ($self, $weight) = @_;
	my $dice = rand;
	my @entries =
	  grep { $_->{pid} && $weight->{ $_->{state} } } $self->{board}->entries;
	my $sum = 0;
	$sum += $weight->{ $_->{state} } foreach @entries;
	$dice *= $sum;
	foreach my $entry (@entries)
	{
		next if ($dice -= $weight->{ $entry->{state} }) >= 0;
		return $self->_is_fair_game($entry) ? $entry : undef;
	}
	return undef;
}

# One that stands still is left alone, so that the log tells how long it did.
sub _is_fair_game
{
	my ($self, $entry) = @_;
	return !$self->is_healing($entry->{pid}) && _is_backend($entry);
}

# The board may be out of date: is this still the backend of the worker?
sub _is_backend
{
	my ($entry) = @_;
	return _title($entry->{pid}) =~ /^postgres: \Q$entry->{cluster}\E: /;
}

sub _title
{
	my ($pid) = @_;
	open my $file, '<', "/proc/$pid/cmdline" or return '';
	return readline($file) // '';
}

# Send a signal to a victim and log it; false if there is none.
sub _signal
{
	my ($self, $kind, $signal, $victim) = @_;
	return 0 unless $victim;
	$self->fault(
		$kind, "worker $victim->{worker}",
		pid => $victim->{pid},
		cluster => $victim->{cluster},
		state => $victim->{state});
	return kill $signal, $victim->{pid};
}

sub _cancel
{
	my ($self) = @_;
	$self->_signal('cancel', 'INT', $self->_victim(\%anybody));
	return;
}

sub _terminate
{
	my ($self) = @_;
	$self->_signal('terminate', 'TERM', $self->_victim(\%holders_first));
	return;
}

# kill -9 of one backend makes the postmaster restart all of its cluster.
sub _crash { $_[0]->_crash_of($_[0]->_victim(\%holders_first)); return; }

# Just when somebody was told that his transaction is committed.
sub _crash_after_commit { $_[0]->_crash_of($_[0]->_ambush(sub { $_->{state} eq 'releasing' })); return; }

sub _crash_of
{
	my ($self, $victim) = @_;
	return unless $victim && $self->_is_fair_game($victim);
	my $last = $self->{crashed_at}{ $victim->{cluster} } || 0;
	return if now() - $last < $crash_interval;
	$self->{crashed_at}{ $victim->{cluster} } = now();
	$self->_signal('crash', 'KILL', $victim);
	return;
}

sub _stop_long
{
	my ($self) = @_;
	$self->_stop('stop_long', $self->timeouts(1.2, 2),
		$self->_victim(\%holders_first));
	return;
}

sub _stop_short
{
	my ($self) = @_;
	$self->_stop('stop_short', $self->timeouts(0.1, 0.9),
		$self->_victim(\%anybody));
	return;
}

# Lie in wait for one who has just sent COMMIT: there the guard does its work.
sub _stop_in_commit
{
	my ($self) = @_;
	my $seconds = $self->timeouts(1.2, 2);
	my $victim = $self->_ambush(
		sub { $_->{state} eq 'committing' && _is_local($_) });
	$self->_stop('stop_in_commit', $seconds, $victim)
	  if $victim && $self->_is_fair_game($victim);
	return;
}

# The first entry of the board for which the condition comes true, given all
# entries; undef if that takes too long.
sub _ambush
{
	my ($self, $condition) = @_;
	my $until = now() + $ambush;
	my $dice = rand;
	while (now() < $until)
	{
		my @entries = $self->{board}->entries;
		# Not always the same worker first.
		push @entries, splice @entries, 0, $dice * @entries;
		my ($victim) = grep { $_->{pid} && $condition->(@entries) } @entries;
		return $victim if $victim;
		sleep $ambush_interval;
	}
	return undef;
}

# Is somebody about to let go of a lock? The set and the delete of its node are
# under way in a moment. Within COMMIT for a lock of transaction scope, which
# cannot be told here from one of session scope.
sub _is_releasing
{
	my ($entry) = @_;
	return 1 if $entry->{state} eq 'releasing';
	return $entry->{state} eq 'committing' && _is_local($entry);
}

# Does the backend that holds the lock change what it guards?
sub _is_local
{
	my ($entry) = @_;
	return $entry->{name} !~ /^(fenced|bare|hold)/;
}

sub _releaser
{
	my ($self) = @_;
	return $self->_ambush(sub { _is_releasing($_) });
}

# One who waits for a lock that is just let go.
sub _waiter
{
	my ($self) = @_;
	my $waiter = $self->_ambush(
		sub {
			return 0 unless $_->{state} eq 'asking';
			my %wanted = map { $_ => 1 } split /\+/, $_->{name};
			return grep { _is_releasing($_) && grep { $wanted{$_} } split /\+/, $_->{name} } @_;
		});
	return $waiter && $self->_is_fair_game($waiter) ? $waiter : undef;
}

sub _cancel_waiter
{
	my ($self) = @_;
	$self->_signal('cancel_waiter', 'INT', $self->_waiter);
	return;
}

# The news that it is its turn comes while it stands still: with a session that
# is over when it wakes up, or with one that lives.
sub _stop_waiter_long
{
	my ($self) = @_;
	$self->_stop('stop_waiter_long', $self->timeouts(1.2, 2), $self->_waiter);
	return;
}

sub _stop_waiter_short
{
	my ($self) = @_;
	$self->_stop('stop_waiter_short', $self->timeouts(0.1, 0.9),
		$self->_waiter);
	return;
}

sub _stop
{
	my ($self, $kind, $seconds, $victim) = @_;
	$self->_signal($kind, 'STOP', $victim) or return;
	my $pid = $victim->{pid};
	$self->heal_in($seconds, $kind, $pid, sub { kill 'CONT', $pid; });
	return;
}

# A backend and the program that has its session: as if their machine slept.
sub _stop_session
{
	my ($self, $kind) = @_;
	$self->_stop_both($kind, $self->timeouts(0.2, 1.5),
		$self->_victim(\%holders_first));
	return;
}

# Until its session is over: when it wakes up it must not take back what it had kept.
sub _stop_keeper
{
	my ($self, $kind) = @_;
	$self->_stop_both($kind, $self->timeouts(1.3, 1.7),
		$self->_victim({ keeping => 5, spinning => 1 }));
	return;
}

# All of a cluster that may have locks, and their programs.
sub _stop_machine
{
	my ($self, $kind) = @_;
	my $cluster = $self->_cluster;
	my $seconds = $self->timeouts(0.2, 1.2);
	$self->_stop_both($kind, $seconds, $_)
	  foreach grep { $_->{pid} && $_->{cluster} eq $cluster && $self->_is_fair_game($_) }
	  $self->{board}->entries;
	return;
}

sub _stop_both
{
	my ($self, $kind, $seconds, $victim) = @_;
	my @programs = $victim ? programs_of($victim->{pid}) : ();
	return unless @programs;
	kill 'STOP', @programs;
	$self->_stop($kind, $seconds, $victim);
	$self->heal_in($seconds, 'frozen_program', "@programs", sub { kill 'CONT', @programs; });
	return;
}

# Not the backend: it goes on in the belief that all is well.
sub _freeze_program
{
	my ($self, $kind) = @_;
	my $victim = $self->_victim(\%holders_first) or return;
	my @programs = programs_of($victim->{pid}) or return;
	my $who = "program of $victim->{pid}";
	$self->fault($kind, $who);
	kill 'STOP', @programs;
	$self->heal_in($self->timeouts(0.2, 1.8),
		$kind, $who, sub { kill 'CONT', @programs; });
	return;
}

sub _kill_program
{
	my ($self, $kind) = @_;
	my $victim = $self->_victim(\%anybody) or return;
	my @programs = programs_of($victim->{pid}) or return;
	$self->fault($kind, "program of $victim->{pid}");
	kill 'KILL', @programs;
	return;
}

# Who waits for the standby has written his commit record, and has the lock still.
sub _freeze_standby
{
	my ($self, $kind) = @_;
	return if $self->is_healing('standby');
	my ($pid) = grep { _title($_) =~ /^postgres: \Q$self->{standby}\E: walreceiver/ }
	  map { m{(\d+)$} } glob '/proc/[0-9]*';
	return unless $pid;
	$self->fault($kind, 'standby');
	kill 'STOP', $pid;
	$self->heal_in($self->timeouts(0.2, 1.2),
		$kind, 'standby', sub { kill 'CONT', $pid; });
	return;
}

# Terminated while it stands still: it learns both at once, later.
sub _stop_and_kill
{
	my ($self) = @_;
	my $victim = $self->_victim(\%holders_first);
	$self->_stop('stop_and_kill', $self->timeouts(0.1, 1.5), $victim);
	kill 'TERM', $victim->{pid} if $victim;
	return;
}

sub _cut { $_[0]->_cut_cluster('cut', 'both'); return; }
sub _cut_requests { $_[0]->_cut_cluster('cut_requests', 'requests'); return; }
sub _cut_replies { $_[0]->_cut_cluster('cut_replies', 'replies'); return; }

# Who lets go does not learn what became of it; and nor does the next one, if it
# is in the same cluster.
sub _cut_replies_at_release
{
	my ($self, $kind) = @_;
	my $releaser = $self->_releaser;
	$self->_cut_cluster($kind, 'replies', $releaser->{cluster})
	  if $releaser;
	return;
}

# The slot is taken, but nobody learns whose it is; and one of those who wait for the
# answer is cancelled meanwhile. It asks again.
sub _cut_replies_at_claim
{
	my ($self, $kind) = @_;
	my $claimer = $self->_ambush(sub { $_->{state} eq 'claiming' }) or return;
	$self->_cut_cluster($kind, 'replies', $claimer->{cluster});
	sleep $claim_delay;
	my ($still) =
	  grep { $_->{worker} == $claimer->{worker} } $self->{board}->entries;
	$self->_signal('cancel_claim', 'INT', $still)
	  if $still->{state} eq 'claiming' && $self->_is_fair_game($still);
	return;
}

# Silence between a cluster and the ensemble; sometimes it ends with RST.
sub _cut_cluster
{
	my ($self, $kind, $direction, $cluster) = @_;
	$cluster ||= $self->_cluster;
	return if $self->_is_cut($cluster);
	my @proxies = @{ $self->{proxies}{$cluster} };
	my $reset = rand(3) < 1;
	$self->fault($kind, $cluster);
	$_->cut($direction) foreach @proxies;
	$self->heal_in(
		$self->timeouts(0.2, 1.8),
		$kind, $cluster,
		sub {
			foreach my $proxy (@proxies)
			{
				$proxy->reset_connections if $reset;
				$proxy->heal;
			}
		});
	return;
}

# One server out of reach: the sessions move to another.
sub _cut_one_server
{
	my ($self) = @_;
	my $cluster = $self->_cluster;
	return if $self->_is_cut($cluster);
	my $proxies = $self->{proxies}{$cluster};
	my $proxy = $proxies->[ rand @$proxies ];
	$self->fault('cut_one_server', $cluster);
	$proxy->cut;
	$self->heal_in($self->timeouts(0.5, 2),
		'cut_one_server', $cluster, sub { $proxy->heal; });
	return;
}

sub _reset { $_[0]->_reset_cluster('reset', $_[0]->_cluster); return; }

sub _reset_at_release
{
	my ($self, $kind) = @_;
	my $releaser = $self->_releaser;
	$self->_reset_cluster($kind, $releaser->{cluster}) if $releaser;
	return;
}

sub _reset_cluster
{
	my ($self, $kind, $cluster) = @_;
	$self->fault($kind, $cluster);
	$_->reset_connections foreach @{ $self->{proxies}{$cluster} };
	return;
}

# Connections end and new ones are refused for a while.
sub _refuse
{
	my ($self) = @_;
	my $cluster = $self->_cluster;
	return if $self->_is_cut($cluster);
	my @proxies = @{ $self->{proxies}{$cluster} };
	$self->fault('refuse', $cluster);
	foreach my $proxy (@proxies)
	{
		$proxy->refuse;
		$proxy->reset_connections;
	}
	$self->heal_in($self->timeouts(0.1, 1.5),
		'refuse', $cluster, sub { $_->heal foreach @proxies; });
	return;
}

sub _cluster
{
	my ($self) = @_;
	my @clusters = sort keys %{ $self->{proxies} };
	return $clusters[ rand @clusters ];
}

# Here or, by somebody else with whom we share the proxies, there.
sub _is_cut
{
	my ($self, $cluster) = @_;
	return $self->is_healing($cluster) || $self->{is_busy}->($cluster);
}

1;
