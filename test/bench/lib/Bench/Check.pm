
=pod

=head1 NAME

Bench::Check - two builds in turns, and whether one is slower than the other

=head1 DESCRIPTION

Each build has a cluster of its own, both use one ZooKeeper server. A round
measures both, now the one first and then the other, so what disturbs the
machine for longer than a round disturbs both. What is compared is the ratio
within a round.

=cut

package Bench::Check;

use v5.36;

use Bench::Backends;
use Bench::Block;
use Bench::Commits;
use Bench::Loops;
use Bench::Pgbench;
use Bench::Report;
use Bench::Sessions;
use Bench::Stage;
use Bench::Stats qw(median);
use ZkLockTest;

my @builds = qw(old new);

# More than the odd half a percent is asked for before anybody is alarmed.
my $tolerance = 0.05;

# How often an interval may miss the true median of the ratios. There are seven,
# and no false alarm is wanted in most runs; with less than ten rounds chance alone
# puts them all on one side more often than that.
my $error = 0.002;
my $rounds_min = 10;

# Measurements of each build, and how much each of them is.
my $rounds = 15;
my $window_s = 0.5;
my %count = (fresh => 15, commit => 30);

# [key, title, what measures a party and returns what takes time]. -------------

sub _loop ($who, $sessions, $lock)
{
	return sub ($zk, $party) {
		my $seen = Bench::Loops::measure($zk, $party->{$who},
			sessions => $sessions, lock => $lock, window => $window_s);
		return $sessions > 1 ? 1e6 / $seen->{rate} : $seen->{p50};
	};
}

sub _commit ($measure, $locks)
{
	return sub ($zk, $party) { return $measure->($party->{backends}, $locks, $count{commit})->{p50}; };
}

my @workloads = (
	[ 'uncontended', 'uncontended cycle, two prepared statements',
		_loop('pgbench', 1, 'uncontended') ],
	[ 'block', 'the same in a DO block', _loop('block', 1, 'uncontended') ],
	[ 'two', 'a hand-over, 2 contenders', _loop('pgbench', 2, 'contended') ],
	[ 'eight', 'a hand-over, 8 contenders', _loop('pgbench', 8, 'contended') ],
	[ 'fresh', 'first lock of a new backend',
		sub ($zk, $party) {
			return Bench::Sessions::fresh($zk, $party->{fresh},
				$count{fresh})->{p50};
		} ],
	[ 'commit1', 'COMMIT that wrote, 1 lock', _commit(\&Bench::Commits::commit_of_a_write, 1) ],
	[ 'commit100', 'COMMIT that wrote nothing, 100 locks', _commit(\&Bench::Commits::commit, 100) ]);

=pod

=head2 measure($say, bin => ..., dir => ..., rounds => 0, baseline => { setting => value })

Returns {times}{workload}{build}, a list of microseconds, one a round, and
{ratios}{workload} = {median, low, high, verdict}.

=cut

sub measure ($say, %option)
{
	die "too few rounds to tell anything: at least $rounds_min\n"
	  if $option{rounds} && $option{rounds} < $rounds_min;
	my $zk = Bench::Stage::zookeeper_of('sync')->start;
	my %party = map { $_ => _party($zk, $_, %option) } @builds;
	my %times;
	$say->('warming up');
	foreach my $workload (@workloads)
	{
		$workload->[2]->($zk, $party{$_}) foreach (@builds, @builds);
	}
	foreach my $round (1 .. $option{rounds} || $rounds)
	{
		foreach my $workload (@workloads)
		{
			my ($key, $title, $measure) = @$workload;
			foreach my $build ($round % 2 ? @builds : reverse @builds)
			{
				push @{ $times{$key}{$build} }, $measure->($zk, $party{$build});
			}
			$say->(
				sprintf 'round %-2d  %-44s old %7.0f us  new %7.0f us',
				$round, $title, map { $times{$key}{$_}[-1] } @builds);
		}
	}
	$_->stop foreach map { @{$_}{qw(block fresh backends)} } values %party;
	return {
		times => \%times,
		ratios => { map { $_ => judge($times{$_}) } keys %times } };
}

sub _party ($zk, $build, %option)
{
	my %settings = $build eq 'old' ? %{ $option{baseline} } : ();
	my $cluster = cluster(
		$build, $zk,
		%settings,
		Bench::Stage::cluster_settings());
	$cluster->safe_psql('postgres', 'CREATE TABLE work (i int)');
	my @sql = (
		dir => $option{dir},
		can => [],
		command => [ "$option{bin}/sql", $cluster->connstr('postgres') ]);
	return {
		pgbench => Bench::Pgbench->new(
			dir => $option{dir},
			name => $build,
			can => [],
			cluster => $cluster,
			root => $Bench::Stage::root,
			script => [ 'SELECT zk_lock(LOCK);', 'SELECT zk_unlock(LOCK);' ]),
		block => Bench::Block->new(@sql, name => "$build-block"),
		fresh => Bench::Backends->new(@sql, name => "$build-fresh"),
		backends => Bench::Backends->new(@sql, name => "$build-commit") };
}

=pod

=head2 judge({ old => [times], new => [times] })

{median, low, high, verdict} of the ratios new/old: their median, and between
which of them it lies, whatever their distribution: each round is as likely above
the true median as below it. The verdict: "slower" or "faster" where even the
nearer bound is on that side of 1 and the median is beyond the tolerance;
"slightly ..." where the median is within it; "" otherwise.

=cut

# How many of so many ratios, at either end, are outside of the interval.
sub _outside ($count)
{
	my ($outside, $ways, $sum) = (0, 1, 0);
	while (1)
	{
		$sum += $ways;
		last if 2 * $sum / 2**$count > $error;
		$outside++;
		$ways *= ($count - $outside + 1) / $outside;
	}
	return $outside - 1;
}

sub judge ($times)
{
	my @ratios = sort { $a <=> $b }
	  map { $times->{new}[$_] / $times->{old}[$_] } keys @{ $times->{old} };
	my $middle = median(@ratios);
	my $outside = _outside(scalar @ratios);
	my ($low, $high) = @ratios[ $outside, -1 - $outside ];
	my $verdict = $low > 1 ? 'slower' : $high < 1 ? 'faster' : '';
	$verdict = "slightly $verdict"
	  if $verdict && abs($middle - 1) <= $tolerance;
	return {
		median => $middle,
		low => $low,
		high => $high,
		verdict => $verdict };
}

=pod

=head2 slower($results), text($results)

The titles of what has become slower; the report.

=cut

sub slower ($results)
{
	return map { $_->[1] }
	  grep { $results->{ratios}{ $_->[0] }{verdict} eq 'slower' } @workloads;
}

sub text ($results)
{
	my @slower = slower($results);
	my $text = "# This build of zklock next to $results->{baseline}\n\n";
	$text .= join '', map { "- $_->[0]: $_->[1]\n" } @{ $results->{machine} };
	$text .= "\n" . Bench::Report::markdown(
		[ '', 'old, us', 'new, us', 'new / old', 'noise', '' ],
		map {
			my ($key, $title) = @$_;
			my $ratio = $results->{ratios}{$key};
			[
				$title, (map { sprintf '%.0f', median(@{ $results->{times}{$key}{$_} }) } @builds),
				sprintf('%.3f', $ratio->{median}), sprintf('%.3f to %.3f', @{$ratio}{qw(low high)}),
				$ratio->{verdict} eq 'slower' ? '**slower**' : $ratio->{verdict} ]
		} @workloads);
	$text .= sprintf "\n%s rounds; new / old is the median of the rounds' ratios"
	  . " of times; the noise is where it may lie (%s %%).\n\n%s\n",
	  scalar @{ $results->{times}{uncontended}{old} }, 100 * (1 - $error),
	  @slower
	  ? 'Slower beyond noise and ' . 100 * $tolerance . ' %: '
	  . join('; ', @slower) . '.'
	  : 'Nothing is slower beyond noise and ' . 100 * $tolerance . ' %.';
	return $text;
}

1;
