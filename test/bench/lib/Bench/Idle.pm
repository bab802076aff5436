
=pod

=head1 NAME

Bench::Idle - what sessions cost that do nothing

=head1 DESCRIPTION

Each backend of a fleet takes a lock and releases it, and does nothing from then on.
After one session timeout the servers' counters and the processor time of all are taken
for another one. When the last of them has been idle for a minute, some backends in turn
take a lock, insert a row and commit.

=cut

package Bench::Idle;

use v5.36;

use Bench::Report;
use Bench::Stage;
use Bench::Stats qw(median);
use List::Util qw(sum0);
use Time::HiRes qw(time sleep);
use ZooKeeper qw(poll_until);

# How long anything may take that takes all backends.
my $patience = 180;

# Of what the window is a multiple: heartbeats come each fourth or sixth of it.
my $timeout_s = $Bench::Stage::session_timeout_ms / 1000;

my $idle_s = 60;

# So many backends of each cluster use a lock after that.
my $users = 12;

=pod

=head2 measure($fleet, $backends, $say)

Returns {what => number}: requests and processor time (ms) are by the second, times in
ms. The fleet is without sessions afterwards.

=cut

sub measure ($fleet, $backends, $say)
{
	my $zk = $fleet->zookeeper;
	$fleet->resize($backends);
	$fleet->cluster_of($_)->safe_psql('postgres', 'CREATE TABLE IF NOT EXISTS work (i int)')
	  foreach @Bench::Fleet::clusters;
	my @answers = $fleet->ask_all('all', q{SELECT zk_lock('own-@-#'), zk_unlock('own-@-#')}, $patience);
	my $last = time();
	my $failed = grep { $_->{state} ne '00000' } @answers;
	sleep($timeout_s);

	my %at_leader = (sessions_at_leader => _sessions_at($fleet, $zk->leader));
	my %seen = (
		backends => $backends,
		failed => $failed,
		%at_leader,
		_rates($fleet),
		heap => $fleet->memory->{heap});
	_sleep_until($last + $idle_s);
	$seen{sessions} = $zk->monitor($zk->leader)->{global_sessions};
	$seen{programs} = scalar $fleet->programs;
	%seen = (%seen, _first_use($fleet));

	$fleet->close_all;
	poll_until { !$zk->counter('global_sessions') } 'all sessions to end', $patience;
	$say->(join '  ', map { sprintf '%s %s', $_, number($seen{$_}) } sort keys %seen);
	return \%seen;
}

=pod

=head2 servers_alone($fleet, $say)

The same of servers without sessions.

=cut

sub servers_alone ($fleet, $say)
{
	my %seen = _rates($fleet);
	$say->(join '  ', 'no sessions', map { sprintf '%s %s', $_, number($seen{$_}) } sort keys %seen);
	return \%seen;
}

sub _sessions_at ($fleet, $member)
{
	my $served = $fleet->served;
	return scalar grep { $_->[0] == $member } values %$served;
}

# What servers have received of their clients, and what has come to the leader's first
# processor: that of its own clients, and what others have forwarded.
sub _requests ($fleet)
{
	my $zk = $fleet->zookeeper;
	my $leader = $zk->leader;
	my %received = map { $_ => $zk->monitor($_)->{packets_received} - $zk->{member}{$_}{words} } $zk->running;
	return {
		all => sum0(values %received),
		own => $received{$leader},
		leader => $zk->monitor($leader)->{prep_processor_request_queued} // 0 };
}

# By the second, over one session timeout.
sub _rates ($fleet)
{
	my $leader = $fleet->zookeeper->leader;
	my ($before, $cpu, $servers) = (_requests($fleet), $fleet->cpu, $fleet->cpu_of_servers);
	my $begin = time();
	sleep($timeout_s);
	my ($cpu_after, $servers_after) = ($fleet->cpu, $fleet->cpu_of_servers);
	my $took = time() - $begin;
	my $after = _requests($fleet);
	my %requests = map { $_ => ($after->{$_} - $before->{$_}) / $took } keys %$after;
	my %ms = map { $_ => 1000 * ($servers_after->{$_} - $servers->{$_}) / $took } keys %$servers;
	return (
		requests => $requests{all},
		leader_own => $requests{own},
		leader_forwarded => $requests{leader} - $requests{own},
		cpu_leader => delete $ms{$leader},
		cpu_others => sum0(values %ms),
		map { ("cpu_$_" => 1000 * ($cpu_after->{$_} - $cpu->{$_}) / $took) } qw(programs backends));
}

# One after the other, a backend of each cluster in turn; in ms, the medians.
sub _first_use ($fleet)
{
	my @steps = (
		[ lock => q{BEGIN; SELECT zk_xact_lock('own-@-#')} ],
		[ insert => 'INSERT INTO work VALUES (1)' ],
		[ commit => 'COMMIT' ]);
	my %times;
	foreach my $number (0 .. $users - 1)
	{
		foreach my $cluster (@Bench::Fleet::clusters)
		{
			foreach my $step (@steps)
			{
				my ($name, $sql) = @$step;
				my ($answer) = grep { $_->{number} == $number }
				  $fleet->ask_all([ $number, $number + 1 ], $sql, $patience, $cluster);
				die "$sql: $answer->{state}\n" if $answer->{state} ne '00000';
				push @{ $times{$name} }, 1000 * ($answer->{answered} - $answer->{sent});
			}
		}
	}
	return map { ($_ => median(@{ $times{$_} })) } keys %times;
}

sub _sleep_until ($time)
{
	my $left = $time - time();
	sleep($left) if $left > 0;
	return;
}

=pod

=head2 text($results)

The report, as Markdown.

=cut

my @rows = (
	[ requests => 'requests a second to all servers, by their clients' ],
	[ leader_forwarded => 'requests a second to the leader, forwarded by the others' ],
	[ leader_own => 'requests a second to the leader, by its own clients' ],
	[ sessions_at_leader => 'sessions whose server is the leader' ],
	[ cpu_leader => 'processor time of the leader, ms a second' ],
	[ cpu_others => 'processor time of the other servers together, ms a second' ],
	[ cpu_programs => 'processor time of all programs of sessions, ms a second' ],
	[ cpu_backends => 'processor time of all backends, ms a second' ],
	[ heap => 'live heap of a server, kB' ],
	[ sessions => 'sessions after a minute' ],
	[ programs => 'programs of sessions after a minute' ],
	[ lock => 'first lock after a minute of idleness, ms' ],
	[ insert => 'INSERT under that lock, ms' ],
	[ commit => 'COMMIT of that transaction, ms' ],
	[ failed => 'failed' ]);

sub text ($results)
{
	my @columns = ([ 0, 'now', $results->{alone} ]);
	foreach my $size (grep { $results->{seen}{$_} } @{ $results->{sizes} })
	{
		push @columns, map { [ $size, $_, $results->{seen}{$size}{$_} ] } @{ $results->{builds} };
	}
	my @heads = map {
		my ($size, $build) = @$_;
		!$size ? 'none' : @{ $results->{builds} } == 1 ? $size : "$size, $build"
	} @columns;
	my $baseline = grep({ $_ eq 'before' } @{ $results->{builds} }) ? "Before: $results->{baseline}.\n" : '';
	return join "\n", "# Idle sessions\n",
	  "Two clusters, half of the backends each; servers: $results->{servers}, $results->{config}; session timeout $timeout_s s.",
	  "test/bench/README.md says what is measured.",
	  $baseline . ($results->{timeout} ? "zklock.idle_timeout: $results->{timeout}.\n" : ''),
	  join('', map { "- $_->[0]: $_->[1]\n" } @{ $results->{machine} }),
	  Bench::Report::markdown(
		[ 'idle backends', @heads ],
		map {
			my ($key, $title) = @$_;
			[ $title, map { number($_->[2]{$key}) } @columns ]
		} @rows);
}

sub number ($value)
{
	return '' if !defined $value;
	return $value =~ /^-?\d+$/ ? $value : sprintf('%.*f', abs($value) < 10 ? 1 : 0, $value);
}

1;
