
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

use v5.36;

use parent 'Torture::Nemesis';

use List::Util qw(sum0);
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

my %keepers = (keeping => 5, spinning => 1);

# How long an ambush waits for a victim, and how often it looks, in seconds.
my $ambush = 1;
my $ambush_interval = 0.0002;

# By then, in seconds, a request for a slot is under way whose reply will not come.
my $claim_delay = 0.03;

# Each fault, how often it is chosen, and what it does. A committer is one who has just sent
# COMMIT: there the guard does its work.
my %fault = (
	cancel => [ 34, sub ($self, $kind) { $self->_signal($kind, 'INT', $self->_victim(\%anybody)) } ],
	cancel_waiter => [ 16, sub ($self, $kind) { $self->_signal($kind, 'INT', $self->_waiter) } ],
	terminate => [ 12, sub ($self, $kind) { $self->_signal($kind, 'TERM', $self->_victim(\%holders_first)) } ],
	# kill -9 of one backend makes the postmaster restart all of its cluster; also just when
	# somebody was told that his transaction is committed.
	crash => [ 2, sub ($self, $) { $self->_crash($self->_victim(\%holders_first)) } ],
	crash_after_commit => [ 3, sub ($self, $) { $self->_crash($self->_in_ambush(sub { $_->{state} eq 'releasing' })) } ],
	stop_long => [ 14, sub ($self, $kind) { $self->_stop($kind, $self->_victim(\%holders_first), $self->timeouts(1.2, 2)) } ],
	stop_short => [ 8, sub ($self, $kind) { $self->_stop($kind, $self->_victim(\%anybody), $self->timeouts(0.1, 0.9)) } ],
	stop_in_commit => [ 6, sub ($self, $kind) { $self->_stop($kind, $self->_committer, $self->timeouts(1.2, 2)) } ],
	# Terminated while it stands still: it learns both at once, later.
	stop_and_kill => [ 2, \&_stop_and_kill ],
	# The news that it is its turn comes while it stands still: with a session that is over
	# when it wakes up, or with one that lives.
	stop_waiter_long => [ 3, sub ($self, $kind) { $self->_stop($kind, $self->_waiter, $self->timeouts(1.2, 2)) } ],
	stop_waiter_short => [ 5, sub ($self, $kind) { $self->_stop($kind, $self->_waiter, $self->timeouts(0.1, 0.9)) } ],
	# A backend and the program that has its session: as if their machine slept.
	stop_session => [ 6, sub ($self, $kind) { $self->_stop_both($kind, $self->_victim(\%holders_first), $self->timeouts(0.2, 1.5)) } ],
	# Until its session is over: when it wakes up it must not take back what it had kept.
	stop_keeper => [ 4, sub ($self, $kind) { $self->_stop_both($kind, $self->_victim(\%keepers), $self->timeouts(1.3, 1.7)) } ],
	stop_machine => [ 2, \&_stop_machine ],
	freeze_program => [ 5, \&_freeze_program ],
	kill_program => [ 4, \&_kill_program ],
	freeze_standby => [ 4, \&_freeze_standby ],
	cut => [ 2, sub ($self, $kind) { $self->_cut($kind, 'both', $self->_cluster) } ],
	cut_requests => [ 1, sub ($self, $kind) { $self->_cut($kind, 'requests', $self->_cluster) } ],
	cut_replies => [ 2, sub ($self, $kind) { $self->_cut($kind, 'replies', $self->_cluster) } ],
	cut_one_server => [ 4, \&_cut_one_server ],
	# Who lets go does not learn what became of it; and nor does the next one, if it is in
	# the same cluster.
	cut_replies_at_release => [ 2, sub ($self, $kind) { $self->_cut($kind, 'replies', $self->_cluster_of_releaser) } ],
	cut_replies_at_claim => [ 14, \&_cut_replies_at_claim ],
	reset => [ 5, sub ($self, $kind) { $self->_reset($kind, $self->_cluster) } ],
	reset_at_release => [ 6, sub ($self, $kind) { $self->_reset($kind, $self->_cluster_of_releaser) } ],
	refuse => [ 1, \&_refuse ]);

sub menu { return map { $_ => $fault{$_}[0] } keys %fault; }

sub inject ($self, $kind) { return $fault{$kind}[1]->($self, $kind); }

# An entry of the board, by the weights of the states; undef if nobody is there.
sub _victim ($self, $weight)
{
	my $dice = rand;
	my @entries =
	  grep { $_->{pid} && $weight->{ $_->{state} } } $self->{board}->entries;
	$dice *= sum0(map { $weight->{ $_->{state} } } @entries);
	foreach my $entry (@entries)
	{
		next if ($dice -= $weight->{ $entry->{state} }) >= 0;
		return $self->_is_fair_game($entry) ? $entry : undef;
	}
	return undef;
}

# One that stands still is left alone, so that the log tells how long it did.
sub _is_fair_game ($self, $entry)
{
	return !$self->is_healing($entry->{pid}) && _is_backend($entry);
}

# The board may be out of date: is this still the backend of the worker?
sub _is_backend ($entry)
{
	return _title($entry->{pid}) =~ /^postgres: \Q$entry->{cluster}\E: /;
}

sub _title ($pid)
{
	open my $file, '<', "/proc/$pid/cmdline" or return '';
	return readline($file) // '';
}

# Send a signal to a victim and log it; false if there is none.
sub _signal ($self, $kind, $signal, $victim)
{
	return 0 unless $victim;
	$self->fault_of_worker($kind, $victim);
	return kill $signal, $victim->{pid};
}

sub _crash ($self, $victim)
{
	return unless $victim;
	my $last = $self->{crashed_at}{ $victim->{cluster} } || 0;
	return if now() - $last < $crash_interval;
	$self->{crashed_at}{ $victim->{cluster} } = now();
	$self->_signal('crash', 'KILL', $victim);
	return;
}

# The first entry of the board for which the condition comes true, given all
# entries; undef if that takes too long.
sub _ambush ($self, $condition)
{
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

# The same, if it may be hit.
sub _in_ambush ($self, $condition)
{
	my $victim = $self->_ambush($condition);
	return $victim && $self->_is_fair_game($victim) ? $victim : undef;
}

# Is somebody about to let go of a lock? The set and the delete of its node are
# under way in a moment. Within COMMIT for a lock of transaction scope, which
# cannot be told here from one of session scope.
sub _is_releasing ($entry)
{
	return 1 if $entry->{state} eq 'releasing';
	return $entry->{state} eq 'committing' && _is_local($entry);
}

# Does the backend that holds the lock change what it guards?
sub _is_local ($entry)
{
	return $entry->{name} !~ /^(fenced|bare|hold)/;
}

sub _cluster_of_releaser ($self)
{
	my $releaser = $self->_ambush(sub { _is_releasing($_) });
	return $releaser && $releaser->{cluster};
}

sub _committer ($self)
{
	return $self->_in_ambush(sub { $_->{state} eq 'committing' && _is_local($_) });
}

# One who waits for a lock that is just let go.
sub _waiter ($self)
{
	return $self->_in_ambush(
		sub {
			return 0 unless $_->{state} eq 'asking';
			my %wanted = map { $_ => 1 } split /\+/, $_->{name};
			return grep { _is_releasing($_) && grep { $wanted{$_} } split /\+/, $_->{name} } @_;
		});
}

sub _stop ($self, $kind, $victim, $seconds)
{
	$self->_signal($kind, 'STOP', $victim) or return;
	my $pid = $victim->{pid};
	$self->heal_in($seconds, $kind, $pid, sub { kill 'CONT', $pid; });
	return;
}

# All of a cluster that may have locks, and their programs.
sub _stop_machine ($self, $kind)
{
	my $cluster = $self->_cluster;
	my $seconds = $self->timeouts(0.2, 1.2);
	$self->_stop_both($kind, $_, $seconds)
	  foreach grep { $_->{pid} && $_->{cluster} eq $cluster && $self->_is_fair_game($_) }
	  $self->{board}->entries;
	return;
}

sub _stop_both ($self, $kind, $victim, $seconds)
{
	my @programs = $victim ? programs_of($victim->{pid}) : ();
	return unless @programs;
	$self->stop_for($seconds, 'frozen_program', "@programs", @programs);
	$self->_stop($kind, $victim, $seconds);
	return;
}

# Not the backend: it goes on in the belief that all is well.
sub _freeze_program ($self, $kind)
{
	my $victim = $self->_victim(\%holders_first) or return;
	my @programs = programs_of($victim->{pid}) or return;
	my $who = "program of $victim->{pid}";
	$self->fault($kind, $who);
	$self->stop_for($self->timeouts(0.2, 1.8), $kind, $who, @programs);
	return;
}

sub _kill_program ($self, $kind)
{
	my $victim = $self->_victim(\%anybody) or return;
	my @programs = programs_of($victim->{pid}) or return;
	$self->fault($kind, "program of $victim->{pid}");
	kill 'KILL', @programs;
	return;
}

# Who waits for the standby has written his commit record, and has the lock still.
sub _freeze_standby ($self, $kind)
{
	return if $self->is_healing('standby');
	my ($pid) = grep { _title($_) =~ /^postgres: \Q$self->{standby}\E: walreceiver/ }
	  map { m{(\d+)$} } glob '/proc/[0-9]*';
	return unless $pid;
	$self->fault($kind, 'standby');
	$self->stop_for($self->timeouts(0.2, 1.2), $kind, 'standby', $pid);
	return;
}

sub _stop_and_kill ($self, $kind)
{
	my $victim = $self->_victim(\%holders_first);
	$self->_stop($kind, $victim, $self->timeouts(0.1, 1.5));
	kill 'TERM', $victim->{pid} if $victim;
	return;
}

# The slot is taken, but nobody learns whose it is; and one of those who wait for the
# answer is cancelled meanwhile. It asks again.
sub _cut_replies_at_claim ($self, $kind)
{
	my $claimer = $self->_ambush(sub { $_->{state} eq 'claiming' }) or return;
	$self->_cut($kind, 'replies', $claimer->{cluster});
	sleep $claim_delay;
	my ($still) =
	  grep { $_->{worker} == $claimer->{worker} } $self->{board}->entries;
	$self->_signal('cancel_claim', 'INT', $still)
	  if $still->{state} eq 'claiming' && $self->_is_fair_game($still);
	return;
}

# Silence between a cluster and the ensemble; sometimes it ends with RST.
sub _cut ($self, $kind, $direction, $cluster)
{
	return if !$cluster || $self->_is_cut($cluster);
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
sub _cut_one_server ($self, $kind)
{
	my $cluster = $self->_cluster;
	return if $self->_is_cut($cluster);
	my $proxies = $self->{proxies}{$cluster};
	my $proxy = $proxies->[ rand @$proxies ];
	$self->fault($kind, $cluster);
	$proxy->cut;
	$self->heal_in($self->timeouts(0.5, 2),
		$kind, $cluster, sub { $proxy->heal; });
	return;
}

sub _reset ($self, $kind, $cluster)
{
	return if !$cluster;
	$self->fault($kind, $cluster);
	$_->reset_connections foreach @{ $self->{proxies}{$cluster} };
	return;
}

# Connections end and new ones are refused for a while.
sub _refuse ($self, $kind)
{
	my $cluster = $self->_cluster;
	return if $self->_is_cut($cluster);
	$self->refuse_for($self->timeouts(0.1, 1.5), $kind, $cluster, @{ $self->{proxies}{$cluster} });
	return;
}

sub _cluster ($self)
{
	my @clusters = sort keys %{ $self->{proxies} };
	return $clusters[ rand @clusters ];
}

# Here or, by somebody else with whom we share the proxies, there.
sub _is_cut ($self, $cluster)
{
	return $self->is_healing($cluster) || $self->{is_busy}->($cluster);
}

1;
