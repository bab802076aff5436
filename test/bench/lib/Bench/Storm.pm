
=pod

=head1 NAME

Bench::Storm - what a fleet does when servers or network go and come back

=cut

package Bench::Storm;

use v5.36;

use Bench::Stage;
use Bench::Stats qw(percentile);
use Time::HiRes qw(time sleep);

# Between two looks at all connections; a look costs a server some milliseconds.
my $look_s = 0.2;

# What there is. servers: as many are needed. way: how the sessions reach the servers, if
# not by their addresses: through Fleet's program "network", or by their names. raise: see _restart.
my %kind = (
	# all servers are killed and started again; the leader is killed
	restart => { raise => \&_restart },
	leader => { servers => 3, raise => sub ($fleet, @) { $fleet->zookeeper->kill_leader; return sub { return 1 } } },
	# The servers stand still for half a session timeout, or for 0.7 of one, which takes from
	# sessions what the ensemble itself may have given up by then.
	cut => { raise => sub { return _pause(@_, 0.5) } },
	long => { raise => sub { return _pause(@_, 0.7) } },
	# As restart, of servers that have names; and all come back at other addresses behind the same
	# names, at once, or one after the other, each when the one before serves.
	named => { way => 'names', raise => \&_restart },
	addresses => { way => 'names', raise => \&_move },
	rolling => { way => 'names', servers => 3, raise => \&_roll },
	# The network goes for half a session timeout, and all connections with it; nothing passes
	# for so long, and connections stay.
	network => { way => 'network', raise => \&_refuse },
	silence => { way => 'network', raise => \&_hold },
	# The list of servers is replaced by another one of the same ensemble, and then nobody is at
	# the old addresses any more. It leaves the sessions on the way of the new list.
	reload => { way => 'network', raise => \&_reload });

=pod

=head2 way($kind), is_possible($kind, $servers)

By which way (see Fleet's route) the sessions have to reach the servers; whether there is such
a storm with so many servers. Dies if there is none of that kind at all.

=cut

sub way { return _kind($_[0])->{way} // 'servers'; }
sub is_possible { return $_[1] >= (_kind($_[0])->{servers} // 1); }

sub _kind ($name)
{
	return $kind{$name}
	  // die "there is no storm $name, only " . join(' ', sort keys %kind) . "\n";
}

=pod

=head2 weather($fleet, $kind, $patience)

Makes that weather and watches until every session that there was is served
again, or patience (seconds) ends. Returns seconds from its beginning until all
servers that run serve again, and the network is there (away), until half of the
sessions (half) have the connection on which they are served then, and until the last
one was seen to be served (last, late by up to 0.2 s and a look) and has that connection
(last_new); how many never were,
and how many are lost, with those that have no node any more; how many nodes have
gone, and how many locks backends no longer hold; for each session attempts to
connect, by the kernel's count (opens, refused), look-ups of names (look_ups), and processes
and threads begun by the whole machine (forks); how often a server's queue of connections to
accept was full (overflows).

=cut

sub weather ($fleet, $kind, $patience)
{
	my $zk = $fleet->zookeeper;
	my $owners = $fleet->owners;
	my %waits = map { sprintf('%x', $_) => 1 } values %$owners;
	my $kernel = _attempts($fleet);
	my $cpu = $fleet->cpu;

	my $begin = time();
	my ($is_back, %more) = _kind($kind)->{raise}->($fleet, $begin);
	my ($ready, %back, %accepted);
	my $deadline = time() + $patience;
	my $looks = 0;
	my $settled = 0;
	while (time() < $deadline)
	{
		if (!$ready && _serves($zk))
		{
			$ready = time();
		}
		my $served = $fleet->served;
		my $now = time();
		foreach my $session (keys %$served)
		{
			my (undef, $since, $answers) = @{ $served->{$session} };
			my $is_new = $since > $begin;
			next
			  unless $is_new || $ready && $is_back->($session, $answers);
			$back{$session} //= $now - $begin;
			# One that has never left is back with the servers, or when it was
			# seen to be answered.
			$accepted{$session} =
			  $is_new ? $since - $begin
			  : way($kind) eq 'network' ? $back{$session}
			  : $ready - $begin;
		}
		# What was answered may have been given up by then, and come to its end.
		delete $back{$_} foreach grep { !$served->{$_} } keys %back;
		my @away = grep { !$back{$_} } keys %waits;
		$settled = $ready && !@away ? $settled + 1 : 0;
		last if $settled == 2;
		# Who has no node any more will not come.
		last
		  if $ready && ++$looks % 20 == 0 && !_are_there($fleet, @away);
		sleep($look_s);
	}
	$ready //= time();
	my %seen = (
		%more,
		took => time() - $begin,
		sessions => scalar keys %waits,
		away => $ready - $begin,
		never => scalar(grep { !$back{$_} } keys %waits),
		half => percentile(50, map { $accepted{$_} } grep { $back{$_} } keys %waits),
		last => percentile(100, grep { defined } @back{ keys %waits }),
		last_new => percentile(100, map { $accepted{$_} } grep { $back{$_} } keys %waits));
	my ($kernel_after, $cpu_after) = (_attempts($fleet), $fleet->cpu);
	$seen{$_} = $kernel_after->{$_} - $kernel->{$_} foreach keys %$kernel;
	$_ /= keys(%waits) || 1 foreach @seen{qw(opens refused look_ups forks)};
	$seen{"cpu_$_"} = $cpu_after->{$_} - $cpu->{$_} foreach
	  qw(programs backends), way($kind) eq 'network' ? 'network' : ();
	$zk->start;
	my $left = $fleet->owners;
	my %lives = map { sprintf('%x', $_) => 1 } values %$left;
	$seen{lost} = grep { !$back{$_} || !$lives{$_} } keys %waits;
	$seen{nodes_before} = keys %$owners;
	# or are another session's
	$seen{nodes_gone} = grep { ($left->{$_} // 0) != $owners->{$_} } keys %$owners;
	$seen{not_held} = grep { $_->{state} ne '00000' || $_->{value} ne 't' }
	  $fleet->ask_all('holders', q{SELECT zk_is_held('own-@-#')}, 60);
	return \%seen;
}

# This and those that follow do it, and return a function: is a session back that
# still has the connection of before, on which it has got so many answers? And what else
# was seen.
sub _restart ($fleet, @)
{
	my $zk = $fleet->zookeeper;
	# By SIGTERM it takes them seconds to end, when there are many clients.
	$zk->kill9;
	$zk->_launch($_) foreach $zk->members;
	return sub { return 1 };
}

sub _move ($fleet, @)
{
	my $zk = $fleet->zookeeper;
	$zk->kill9;
	$fleet->move($zk->members);
	$zk->_launch($_) foreach $zk->members;
	return sub { return 1 };
}

# As docs/sizing.md has it.
sub _roll ($fleet, $begin)
{
	my $zk = $fleet->zookeeper;
	my $last;
	foreach my $member ($zk->members)
	{
		$last = time() - $begin;
		$zk->kill9($member);
		$fleet->move($member);
		$zk->start($member);
	}
	return (sub { return 1 }, last_stops => $last);
}

# By which list a session is served is known by its connection: to the program network, or
# straight to a server. All may move by themselves before the old addresses are gone.
sub _reload ($fleet, $begin)
{
	$fleet->route('servers');
	my $read = time();
	my $until = $read + _timeout() / 2;
	my $left = 1;
	while ($left && time() < $until)
	{
		sleep($look_s);
		$left = $fleet->network('count')->{connections};
	}
	my $gone = time();
	$fleet->network('refuse');
	return (
		sub { return 0 },
		read => $read - $begin,
		old_gone => $gone - $begin,
		not_moved => $left);
}

sub _pause ($fleet, $begin, $part)
{
	$fleet->zookeeper->pause;
	sleep($part * _timeout());
	$fleet->zookeeper->resume;
	return sub { return 1 };
}

# Nobody comes through, or else it was no storm.
sub _refuse ($fleet, $begin)
{
	my $end = $begin + _timeout() / 2;
	$fleet->network('refuse');
	_sleep_until($end - $look_s);
	my $left = keys %{ $fleet->served };
	die "$left sessions are connected without a network\n" if $left;
	_sleep_until($end);
	$fleet->network('pass');
	return sub { return 0 };
}

sub _hold ($fleet, $begin)
{
	my $end = $begin + _timeout() / 2;
	$fleet->network('hold');
	# What was in the servers has been answered by then.
	_sleep_until($begin + 1);
	my $first = _answers($fleet);
	_sleep_until($end - $look_s);
	my $last = _answers($fleet);
	my $answered = grep { $last->{$_} != ($first->{$_} // 0) } keys %$last;
	die "$answered sessions were served through a silent network\n" if $answered;
	_sleep_until($end);
	$fleet->network('pass');
	return sub ($session, $answers) {
		return $answers > ($last->{$session} // 0);
	};
}

sub _timeout { return $Bench::Stage::session_timeout_ms / 1000; }

sub _sleep_until ($time)
{
	my $left = $time - time();
	sleep($left) if $left > 0;
	return;
}

# {session => how many it has got on its connection}
sub _answers ($fleet)
{
	my $served = $fleet->served;
	return { map { $_ => $served->{$_}[2] } keys %$served };
}

sub _serves ($zk)
{
	my @modes = map { $zk->mode($_, 1) } $zk->running;
	return !(grep { $_ eq '' } @modes)
	  && grep { /leader|standalone/ } @modes;
}

sub _are_there ($fleet, @sessions)
{
	my %there = map { sprintf('%x', $_) => 1 } values %{ $fleet->owners };
	return scalar grep { $there{$_} } @sessions;
}

# Attempts to connect by the kernel's count, without our own and the network's, and
# how many of them were not granted; how often a queue was full.
sub _attempts ($fleet)
{
	my $kernel = _kernel();
	my $network =
	  $fleet->{network} ? $fleet->network('count') : { begun => 0, failed => 0 };
	my $words = $fleet->zookeeper->{asked} // 0;
	return {
		look_ups => $fleet->look_ups,
		forks => $kernel->{forks},
		opens => $kernel->{ActiveOpens} - $network->{begun} - $words,
		refused => $kernel->{AttemptFails} - $network->{failed},
		overflows => $kernel->{ListenOverflows} };
}

# What this machine's kernel has counted, all processes together.
sub _kernel
{
	my %value;
	if (open my $in, '<', '/proc/stat')
	{
		($value{forks}) = map { /^processes (\d+)/ ? $1 : () } readline $in;
	}
	foreach my $file (qw(/proc/net/snmp /proc/net/netstat))
	{
		open my $in, '<', $file or next;
		# A line of names, and one of their values.
		my @lines = grep { /^Tcp/ } readline $in;
		while (my ($heads, $values) = splice @lines, 0, 2)
		{
			@value{ split ' ', $heads } = split ' ', $values;
		}
	}
	return \%value;
}

1;
