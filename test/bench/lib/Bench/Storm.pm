
=pod

=head1 NAME

Bench::Storm - what a fleet does when the servers go and come back

=cut

package Bench::Storm;

use strict;
use warnings;

use Bench::Stage;
use Bench::Stats qw(percentile);
use Time::HiRes qw(time sleep);
use ZooKeeper qw(poll_until);

# Between two looks at all connections; a look costs a server some milliseconds.
my $look_s = 0.2;

# The servers' own counters. They begin anew with the process.
my @counters = qw(packets_received connection_request_count
  connection_revalidate_count connection_rejected connection_drop_count
  stale_sessions_expired);

=pod

=head2 title($kind)

Of what there is; the last one takes from sessions what the ensemble itself may
have given up by then.

=cut

my %title = (
	restart => 'all servers are killed and started again',
	leader => 'the leader is killed',
	cut => 'the servers stand still for half a session timeout',
	long => 'and for 0.7 of it');

sub title { return $title{ $_[0] }; }

=pod

=head2 weather($fleet, $kind, $patience)

Makes that weather and watches until every session that there was is served
again, or patience (seconds) ends. Returns seconds from its beginning until all
servers that run serve again (away), until half of the sessions (half) have the
connection on which they are served then, and until the last one was seen to be
served (last, late by up to 0.2 s and a look); how many were never; how many nodes
have gone, and how many locks backends no longer hold; for each session attempts
to connect, by the kernel's count (opens, refused) and by the servers'; how often
a server's queue of connections to accept was full (overflows); the share of the
sessions that the fullest server has afterwards (spread).

=cut

sub weather
{
	my ($fleet, $kind, $patience) = @_;
	my $zk = $fleet->zookeeper;
	my $owners = $fleet->owners;
	my %waits = map { sprintf('%x', $_) => 1 } values %$owners;
	my $before = $fleet->served;
	my $kernel = _kernel();
	my $counted = _counted($zk);
	my $cpu = $fleet->cpu;
	my $words = _words($zk);

	my $begin = time();
	my $is_over = _raise($zk, $kind);
	my ($ready, %back, %accepted);
	my $deadline = time() + $patience;
	my $looks = 0;
	while (time() < $deadline)
	{
		if (!$ready && $is_over->())
		{
			$ready = time();
		}
		my $served = $fleet->served;
		my $now = time();
		foreach my $session (keys %$served)
		{
			my (undef, $since) = @{ $served->{$session} };
			# One that has never left is back with the servers.
			next unless $ready || $since > $begin;
			$back{$session} //= $now - $begin;
			$accepted{$session} = $since > $begin ? $since - $begin : undef;
		}
		my @away = grep { !$back{$_} } keys %waits;
		last if $ready && !@away;
		# Who has no node any more will not come.
		last
		  if $ready && ++$looks % 20 == 0 && !_are_there($fleet, @away);
		sleep($look_s);
	}
	$ready //= time();
	my $took = time() - $begin;
	my $after = $fleet->served;
	my %seen = (
		sessions => scalar keys %waits,
		away => $ready - $begin,
		never => scalar(grep { !$back{$_} } keys %waits),
		moved => scalar(grep {
				$after->{$_} && $before->{$_}
				  && $after->{$_}[1] != $before->{$_}[1]
		} keys %waits));
	$seen{half} = percentile(50,
		map { $accepted{$_} // $seen{away} } grep { $back{$_} } keys %waits);
	$seen{last} = percentile(100, grep { defined } @back{ keys %waits });
	my $count = keys(%waits) || 1;
	my $kernel_after = _kernel();
	$words = _words($zk) - $words;
	$seen{opens} =
	  ($kernel_after->{ActiveOpens} - $kernel->{ActiveOpens} - $words) / $count;
	$seen{refused} =
	  ($kernel_after->{AttemptFails} - $kernel->{AttemptFails}) / $count;
	$seen{overflows} =
	  $kernel_after->{ListenOverflows} - $kernel->{ListenOverflows};
	my $counted_after = _counted($zk);
	foreach my $counter (@counters)
	{
		my $sum = 0;
		foreach my $id (keys %$counted_after)
		{
			my ($old, $new) = ($counted->{$id}, $counted_after->{$id});
			my $base =
			  $old && $old->{pid} == $new->{pid} ? $old->{$counter} : 0;
			$sum += $new->{$counter} - $base;
		}
		$seen{$counter} = $sum / $count;
	}
	my $cpu_after = $fleet->cpu;
	$seen{"cpu_$_"} = $cpu_after->{$_} - $cpu->{$_} foreach qw(programs backends);
	$seen{took} = $took;
	_restore($zk);
	@seen{qw(nodes_gone nodes_before)} =
	  (_gone($fleet, $owners), scalar keys %$owners);
	$seen{spread} = _spread($fleet);
	$seen{not_held} = grep { $_->{state} ne '00000' || $_->{value} ne 't' }
	  $fleet->ask_all('holders', q{SELECT zk_is_held('own-@-#')}, 60);
	return \%seen;
}

# Returns a function that says whether it is over.
sub _raise
{
	my ($zk, $kind) = @_;
	my $timeout = $Bench::Stage::session_timeout_ms / 1000;
	if ($kind eq 'restart')
	{
		# By SIGTERM it takes them seconds to end, when there are many clients.
		$zk->kill9;
		$zk->_launch($_) foreach $zk->members;
		return sub { return _serves($zk) };
	}
	if ($kind eq 'leader')
	{
		$zk->kill_leader;
		return sub { return _serves($zk) };
	}
	$zk->pause;
	sleep($timeout * ($kind eq 'long' ? 0.7 : 0.5));
	$zk->resume;
	return sub { return _serves($zk) };
}

sub _serves
{
	my ($zk) = @_;
	my @modes = map { $zk->mode($_) } $zk->running;
	return !(grep { $_ eq '' } @modes)
	  && grep { /leader|standalone/ } @modes;
}

sub _restore
{
	my ($zk) = @_;
	my @members = $zk->members;
	$zk->start if $zk->running < @members;
	return;
}

# The nodes that were there and are not, or are another session's.
sub _gone
{
	my ($fleet, $owners) = @_;
	my $now = $fleet->owners;
	return scalar grep { ($now->{$_} // 0) != $owners->{$_} } keys %$owners;
}

sub _are_there
{
	my ($fleet, @sessions) = @_;
	my %there = map { sprintf('%x', $_) => 1 } values %{ $fleet->owners };
	return scalar grep { $there{$_} } @sessions;
}

# The share of the sessions that the fullest server has.
sub _spread
{
	my ($fleet) = @_;
	my $served = $fleet->served;
	my %count;
	$count{ $_->[0] }++ foreach values %$served;
	my ($most) = sort { $b <=> $a } values %count;
	return $most ? $most / keys %$served : undef;
}

# What this machine's kernel has counted, all processes together.
sub _kernel
{
	my %value;
	foreach my $file (qw(/proc/net/snmp /proc/net/netstat))
	{
		open my $in, '<', $file or next;
		my @heads;
		while (my $line = readline $in)
		{
			my ($what, @words) = split ' ', $line;
			next unless $what =~ /^Tcp/;
			if (@heads)
			{
				@value{@heads} = @words;
				@heads = ();
			}
			else
			{
				@heads = @words;
			}
		}
	}
	return \%value;
}

sub _counted
{
	my ($zk) = @_;
	return { map {
			my $value = $zk->monitor($_);
			$_ => {
				pid => $zk->pid($_),
				map { $_ => $value->{$_} || 0 } @counters }
	} $zk->running };
}

# Connections of our own.
sub _words
{
	my ($zk) = @_;
	return $zk->{asked} // 0;
}

1;
