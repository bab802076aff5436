
=pod

=head1 NAME

Bench::Targets - how fast zklock has to be

=head1 DESCRIPTION

Each target is about medians with forceSync on. Ratios are those of one round
after the other, so that both sides had the same weather.

=cut

package Bench::Targets;

use v5.36;

use Bench::Stats qw(median);

# Looking must not make anything.
sub _seen ($results, $workload, $parameter)
{
	my $seen = $results->{$workload} || {};
	return $seen->{$parameter} || {};
}

# The rounds' ratios of what zklock shows, or another of ours, to what another
# shows; zklock's own figures.
sub _ratio ($workload, $parameter, $other, $key, $our = undef)
{
	return sub ($results) {
		my $all = _seen($results, $workload, $parameter);
		my ($ours, $theirs) = @{$all}{ $our || 'zklock', $other };
		return unless $ours && $theirs;
		my $last = $#$ours < $#$theirs ? $#$ours : $#$theirs;
		return map { $ours->[$_]{$key} / $theirs->[$_]{$key} } 0 .. $last;
	};
}

sub _own ($workload, $parameter, $key, $our = undef)
{
	return sub ($results) {
		my $all = _seen($results, $workload, $parameter);
		return map { $_->{$key} } @{ $all->{ $our || 'zklock' } || [] };
	};
}

# One ratio of medians: rounds of different parameters are no pairs.
sub _growth ($workload, $from, $to, $find)
{
	return sub ($results) {
		my ($less, $more) =
		  map { $find->($results->{$workload} || {}, $_) } $from, $to;
		return unless $less && $more;
		return median(map { $_->{p50} } @$more) /
		  median(map { $_->{p50} } @$less);
	};
}

my $at_depth = sub { return ($_[0]{ $_[1] } || {})->{zklock}; };
my $commit_read = sub { return ($_[0]{read} || {})->{ $_[1] }; };
my $commit_write = sub { return ($_[0]{write} || {})->{ $_[1] }; };

# [what, values by round, how to compare, bound, format, if it is not that of a ratio]
my @targets = (
	[ 'uncontended cycle through SQL / Curator', _ratio('uncontended', 1, 'curator', 'p50'), '<=', 0.70 ],
	[ 'uncontended cycle through SQL / floor', _ratio('uncontended', 1, 'floor', 'p50'), '<=', 0.85 ],
	[ 'hand-overs per second, 2 contenders / Curator', _ratio('contenders', 2, 'curator', 'rate'), '>=', 1.15 ],
	[ 'hand-overs per second, 8 contenders / Curator', _ratio('contenders', 8, 'curator', 'rate'), '>=', 1.5 ],
	[ 'hand-overs per second, 32 contenders / Curator', _ratio('contenders', 32, 'curator', 'rate'), '>=', 1.5 ],
	[ 'hand-overs per second, 8 contenders / Kazoo', _ratio('contenders', 8, 'kazoo', 'rate'), '>=', 2.4 ],
	[ 'hand-overs per second, 32 contenders / Kazoo', _ratio('contenders', 32, 'kazoo', 'rate'), '>=', 2.4 ],
	[ 'hand-over at depth 1,000 / Curator', _ratio('depth', 1000, 'curator', 'p50'), '<=', 0.5 ],
	[ 'hand-over at depth 1,000 / own at depth 10', _growth('depth', 10, 1000, $at_depth), '<=', 1.2 ],
	[ 'bytes from the server for a hand-over at depth 1,000',
		_own('depth', 1000, 'response_bytes'), '<=', 500, '%.0f' ],
	# A ping of an idle session may come in between.
	[ 'requests of a try that fails', _own('try', 1, 'packets_received'), '<=', 1.02 ],
	[ 'writes of a try that fails', _own('try', 1, 'writes'), '<=', 0 ],
	# A backend is a new process.
	[ 'new backend to first lock / C client connect + create, new process',
		_ratio('fresh', 1, 'forked', 'p50'), '<=', 1.1 ],
	[ 'the same, both in a process that had a session before',
		_ratio('fresh', 1, 'floor', 'p50', 'reopened'), '<=', 1.1 ],
	[ 'COMMIT that wrote, 100 locks / 1 lock', _growth('commit', 1, 100, $commit_write), '<=', 3 ],
	[ 'COMMIT that wrote nothing, 100 locks / 1 lock', _growth('commit', 1, 100, $commit_read), '<=', 3 ],
	[ 'cycle of a kept lock in a DO block / pg_advisory_lock there',
		_ratio('kept', 'block', 'local', 'p50', 'kept'), '<=', 3 ],
	[ 'cycles per second of a kept lock in a DO block / Curator',
		_ratio('kept', 'block', 'curator', 'rate', 'kept'), '>=', 100, '%.0f' ],
	# A sync or a ping may come in between.
	[ 'requests for 1,000 cycles of a kept lock',
		_own('kept', 'block', 'requests_1000', 'kept'), '<=', 0.1, '%.3f' ],
	[ 'cycle of a kept lock, two statements / pg_advisory_lock',
		_ratio('kept', 'statements', 'local', 'p50', 'kept'), '<=', 1.2 ],
	[ 'transactions per second, UPDATE under a kept lock / no lock',
		_ratio('kept', 'transaction', 'none', 'rate', 'kept'), '>=', 0.9 ],
	[ 'the same, lock and UPDATE in one statement',
		_ratio('kept', 'function', 'none', 'rate', 'kept'), '>=', 0.9 ],
	(map {
		[ "cycles per second with keep / without, $_", _ratio('kept', $_, 'off', 'rate', 'kept'), '>=', 0.95 ]
	} '2 contenders', '8 contenders', '32 contenders', 'turns, next',
	'turns, random'),
	# Two flushes and two round trips, where a free lock takes one of each.
	[ 'wait for a lock that another session keeps / for a free one',
		_ratio('kept', 'wait', 'zklock, free', 'p50', 'zklock, kept'), '<=', 2 ]);

=pod

=head2 check($results)

The results of the variant with forceSync. A list of [what, bound, median,
range over the rounds, "met" or "missed"]; targets that were not measured are
left out.

=cut

sub check ($results)
{
	my @rows;
	foreach my $target (@targets)
	{
		my ($what, $values, $compare, $bound, $format) = (@$target, '%.2f');
		my @values = sort { $a <=> $b } $values->($results);
		next unless @values;
		my $middle = median(@values);
		my $met = $compare eq '<=' ? $middle <= $bound : $middle >= $bound;
		push @rows,
		  [
			$what,
			"$compare $bound",
			sprintf($format, $middle),
			@values > 1
			? sprintf("$format to $format", @values[ 0, -1 ])
			: '',
			$met ? 'met' : '**missed**'
		  ];
	}
	return @rows;
}

1;
