
=pod

=head1 NAME

Torture::Nemesis::Partitions - faults of the network between the servers

=head1 DESCRIPTION

Sometimes one of the servers hangs, and everybody has to connect anew. Else one server is
cut off from the others, in both directions or in one, alone or
together with the clients of one cluster. So there are leaders that others have
deposed, and followers that go on to serve. The worst of it: somebody sleeps with a
lock, wakes up in time, is told by a follower that all is well, and then both are cut
off before the follower can report to the leader that the session is alive. Needs, besides what every nemesis
needs: links (L<Torture::Links>), zookeeper, proxies (cluster => [ Proxy, ... ]),
is_busy, which says whether somebody else has to do with the proxies of a cluster or
with a backend, board (to find victims), and flag, a file that is there while the network is parted: then the servers are left
alone. In turn nothing is parted while one of them is away.

=cut

package Torture::Nemesis::Partitions;

use v5.36;

use parent 'Torture::Nemesis';

use File::Basename qw(dirname);
use Time::HiRes qw(sleep);
use Torture::History qw(now);
use Torture::Programs qw(programs_of servers_of_holders);

# For so long, in seconds, who wakes up may be at work before it is cut off, and how
# often we look whether it is done.
my $last_words = 0.2;
my $look_interval = 0.0005;

# Mostly there is nobody to be woken.
sub menu
{
	return (
		leader => 4,
		follower => 3,
		leader_with_clients => 5,
		follower_with_clients => 6,
		deaf_leader => 2,
		mute_leader => 2,
		deaf_follower => 2,
		mute_follower => 2,
		hang => 5,
		wake_one => 400,
		wake_all => 160);
}

# One at a time.
sub inject ($self, $kind)
{
	return if @{ $self->{heals} };
	my @sleepers = $self->_sleepers;
	return if $kind =~ /^wake/ && !@sleepers;
	my $zk = $self->{zookeeper};
	my @members = $zk->members;
	my %mode = map { $_ => $zk->mode($_) } @members;
	my ($leader) = grep { $mode{$_} eq 'leader' } @members;
	my @followers = grep { $mode{$_} eq 'follower' } @members;
	return if !$leader || @followers < @members - 1;
	return $self->_wake($kind, \@sleepers, @followers) if $kind =~ /^wake/;
	my $member = $kind =~ /leader/ ? $leader : $followers[ rand @followers ];
	return $self->_hang($kind, $member) if $kind eq 'hang';
	my @others = grep { $_ != $member } @members;
	$self->_isolate("part_$kind", [$member], \@others);
	$self->_take_clients($member) if $kind =~ /clients/;
	return;
}

# One holder, or all of its cluster: its neighbors may be told that the lock is theirs.
# The worker wakes up while its backend and its program sleep.
sub _wake ($self, $kind, $sleepers, @followers)
{
	my $member_of = servers_of_holders($self->{zookeeper});
	my ($holder) = grep {
		my $member = $member_of->{ _first_name($_) } || 0;
		grep { $_ == $member } @followers
	} @$sleepers;
	return unless $holder;
	my $cluster = $holder->{cluster};
	my @victims = $kind eq 'wake_one' ? $holder
	  : grep { $_->{pid} && $_->{cluster} eq $cluster && !$self->{is_busy}->($_->{pid}) }
	  $self->{board}->entries;
	my @pids = map { $_->{pid} } @victims;
	my @programs = programs_of(@pids);
	$self->fault_of_worker('stop_before_part', $_) foreach @victims;
	kill 'STOP', @programs, @pids;
	my $seconds = $holder->{until} - now() + $self->timeouts(0.01, 0.05);
	$self->heal_in($seconds, 'stop_before_part', $_, sub { }) foreach @pids;
	$self->heal_in(
		$seconds, $kind, $cluster,
		sub {
			kill 'CONT', @programs, @pids;
			$self->_part_from($holder, $member_of->{ _first_name($holder) });
		});
	return;
}

# Workers that hold a lock and are going to wake up in less than a session timeout.
sub _sleepers ($self)
{
	my $soon = now() + $self->timeouts(0.4, 0.5);
	my $late = now() + $self->timeouts(0.9, 0.94);
	return grep {
		     $_->{pid}
		  && $_->{until} > $soon
		  && $_->{until} < $late
		  && $_->{name} !~ /^(fenced|bare|hold)/
		  && !$self->{is_busy}->($_->{pid})
	} $self->{board}->entries;
}

# As soon as it has committed: cut it off, with its follower. Nothing is cut if it does not
# come to that.
sub _part_from ($self, $holder, $member)
{
	my $until = now() + $last_words;
	my ($state, $was_committing) = ('', 0);
	while (now() < $until && !($was_committing && $state ne 'committing'))
	{
		sleep $look_interval;
		($state) = map { $_->{state} }
		  grep { $_->{worker} == $holder->{worker} } $self->{board}->entries;
		$was_committing ||= $state eq 'committing';
	}
	return unless $was_committing;
	my @others = grep { $_ != $member } $self->{zookeeper}->members;
	$self->_isolate('part_follower_awake', [$member], \@others, $self->timeouts(1, 2.2));
	$self->_take_clients($member, $holder->{cluster});
	return;
}

# A follower stands still, and all connections of all clusters fall silent and then end, so
# that each session has to find one of the two others in the time that is left. Nobody is
# to cut a cluster off meanwhile.
sub _hang ($self, $kind, $member)
{
	# It may have been started again since we know it.
	my $file = dirname($self->{zookeeper}->data_dir($member)) . '/zookeeper.pid';
	open my $read, '<', $file or return;
	chomp(my $pid = readline $read);
	return if grep { $self->{is_busy}->($_) } keys %{ $self->{proxies} };
	my @proxies = map { @$_ } values %{ $self->{proxies} };
	open my $flag, '>', $self->{flag} or die "could not write $self->{flag}: $!";
	my $seconds = $self->timeouts(1.5, 2.5);
	$self->fault($kind, "server $member");
	kill 'STOP', $pid;
	$_->cut('both') foreach @proxies;
	$self->heal_in(
		$self->timeouts(0.15, 1.15),
		'silence', 'all',
		sub { $_->reset_connections, $_->heal foreach @proxies; });
	$self->heal_in($seconds, 'hang', "server $member",
		sub { kill 'CONT', $pid; unlink $self->{flag}; });
	$self->heal_in($seconds, 'busy', $_, sub { }) foreach keys %{ $self->{proxies} };
	return;
}

# Of several locks the first: its session is that of all.
sub _first_name { return (split /\+/, $_[0]{name})[0]; }

sub _isolate ($self, $kind, $one, $others, $seconds = undef)
{
	my $links = $self->{links};
	my $is_reset = rand(2) < 1;
	open my $flag, '>', $self->{flag} or die "could not write $self->{flag}: $!";
	$self->fault($kind, "server @$one");
	$links->cut($others, $one) unless $kind =~ /mute/;
	$links->cut($one, $others) unless $kind =~ /deaf/;
	$self->heal_in(
		$seconds || $self->timeouts(0.3, 2.4),
		$kind,
		"server @$one",
		sub {
			$links->reset($one, $others) if $is_reset;
			$links->heal($one, $others);
			unlink $self->{flag};
		});
	return;
}

# A cluster that reaches that server alone, for as long as the server is alone.
sub _take_clients ($self, $member, $cluster = undef)
{
	my @clusters = sort keys %{ $self->{proxies} };
	$cluster ||= $clusters[ rand @clusters ];
	return if $self->{is_busy}->($cluster);
	my @proxies = @{ $self->{proxies}{$cluster} };
	splice @proxies, $member - 1, 1;
	$self->refuse_for($self->{heals}[-1]{at} - now(), 'part_clients', $cluster, @proxies);
	return;
}

1;
