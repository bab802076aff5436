
=pod

=head1 NAME

Bench::Report - the results as Markdown

=cut

package Bench::Report;

use v5.36;

use Bench::Stage;
use Bench::Stats qw(median percentile);
use Bench::Targets;

my @order =
  qw(zklock between used reopened block spawned forked floor curator kazoo golock
  advisory table kept local none);
my %title = (
	zklock => 'zklock, SQL',
	between => 'zklock, between two clusters',
	used => 'zklock, backend that ran a statement before',
	reopened => 'zklock, backend that had a session before',
	block => 'zklock, DO block',
	forked => 'C client in a new process, connect + create',
	spawned => 'the same, in a program that is started for it',
	floor => 'floor: C client, create + delete',
	curator => 'Curator InterProcessMutex',
	kazoo => 'Kazoo Lock',
	golock => 'go-zookeeper Lock',
	advisory => 'pg_advisory_lock by dblink',
	table => 'SELECT FOR UPDATE by dblink',
	kept => 'zklock, kept lock',
	local => 'pg_advisory_lock, same database',
	none => 'no lock',
	'zklock, free' => 'zklock, free lock',
	'zklock, handed' => 'zklock, handed over by a release',
	'zklock, kept' => 'zklock, kept lock',
	'curator, free' => 'Curator, free lock',
	'curator, handed' => 'Curator, handed over by a release',
	'curator, kept' => 'Curator, kept lock');

# Columns: [head, format, value of a contestant's rounds among all]. ----------

sub _middle ($head, $format, $key, $factor = undef)
{
	return [
		$head, $format,
		sub ($rounds, @) {
			my $middle = median(map { $_->{$key} } @$rounds);
			return defined $middle ? $middle * ($factor || 1) : undef;
		} ];
}

# The median of the rounds' ratios, each to what the other showed in the same
# round.
sub _against ($head, $other, $key)
{
	return [
		$head, '%.2f',
		sub ($rounds, $all) {
			my $others = $all->{$other} or return undef;
			return median(map { $rounds->[$_]{$key} / $others->[$_]{$key} }
				  grep { $others->[$_] } 0 .. $#$rounds);
		} ];
}

# Of the times of all rounds together, in rounds too short for that percentile.
sub _pooled ($head, $percent)
{
	return [ $head, '%.0f', sub ($rounds, @) { return percentile($percent, map { @{ $_->{times} } } @$rounds) } ];
}

my @cost = (
	_middle('requests', '%.1f', 'packets_received'),
	_middle('flushes', '%.2f', 'flushes'),
	_middle('bytes from server', '%.0f', 'response_bytes'));

my @percentiles = (_middle('p50, us', '%.0f', 'p50'), _middle('p95, us', '%.0f', 'p95'));
my @uncontended = (
	@percentiles,
	_against('/ floor', 'floor', 'p50'),
	_against('/ Curator', 'curator', 'p50'),
	_middle('cycles/s', '%.0f', 'rate'),
	@cost);
my @contended = (
	_middle('hand-overs/s', '%.0f', 'rate'),
	_against('/ Curator', 'curator', 'rate'),
	_against('/ Kazoo', 'kazoo', 'rate'),
	_middle('wait p50, us', '%.0f', 'wait50'),
	_middle('wait p99, us', '%.0f', 'wait99'),
	_middle('FIFO, %', '%.1f', 'fifo', 100),
	@cost);
my @locks = (
	_middle('cycles/s', '%.0f', 'rate'),
	_against('/ floor', 'floor', 'rate'),
	_against('/ Curator', 'curator', 'rate'),
	@percentiles,
	@cost);
my @kept_block = (
	_middle('cycle, us', '%.2f', 'p50'),
	_middle('cycles/s', '%.0f', 'rate'),
	_against('/ pg_advisory_lock', 'local', 'p50'),
	_against('cycles/s / Curator', 'curator', 'rate'),
	_middle('requests for 1,000', '%.3f', 'requests_1000'));
my @kept_script = (
	@percentiles,
	_middle('per second', '%.0f', 'rate'),
	_against('/ pg_advisory_lock', 'local', 'p50'),
	_against('per second / no lock', 'none', 'rate'),
	_middle('requests', '%.2f', 'packets_received'));
my @kept_rivals = (
	_middle('with keep, cycles/s', '%.0f', 'kept'),
	_middle('without, cycles/s', '%.0f', 'off'),
	_middle('ratio', '%.2f', 'ratio'));
my @kept_wait = (
	_middle('p50, us', '%.0f', 'p50'),
	_pooled('p99 of all rounds, us', 99),
	_against('p50 / zklock, free', 'zklock, free', 'p50'),
	_against('p50 / Curator, free', 'curator, free', 'p50'));
my @depth = (
	_middle('hand-over p50, us', '%.0f', 'p50'),
	_middle('p95, us', '%.0f', 'p95'),
	_against('/ Curator', 'curator', 'p50'),
	@cost);
my @fresh = (
	@percentiles,
	_against('/ new process', 'forked', 'p50'),
	_against('/ new program', 'spawned', 'p50'),
	_against('/ floor', 'floor', 'p50'),
	_against('/ Curator', 'curator', 'p50'));
my @try = (
	@percentiles,
	_against('/ Curator', 'curator', 'p50'),
	_middle('requests', '%.2f', 'packets_received'),
	_middle('writes', '%.2f', 'writes'));
my @release = (_middle('p50, ms', '%.1f', 'p50', 0.001));
my @commit = (
	@percentiles,
	_against('/ 1 lock', 1, 'p50'));
my @guard = (
	@percentiles,
	_against('/ no lock', 'no lock', 'p50'));
my @lease = (
	@percentiles,
	_middle('a second', '%.0f', 'rate'),
	_against('/ zk_xact_lock', 'zk_xact_lock', 'p50'));
my @memory = (
	_middle('with, kB', '%.0f', 'with'),
	_middle('without, kB', '%.0f', 'without'),
	_middle('session, kB', '%.0f', 'p50'));

# Tables ------------------------------------------------------------------

sub markdown ($heads, @rows)
{
	my ($head, @lines) = map { '| ' . join(' | ', @$_) . " |\n" } $heads, @rows;
	return join '', $head, '|---|' . '---:|' x $#$heads . "\n", @lines;
}

sub _cells ($all, $name, @columns)
{
	return map {
		my (undef, $format, $value) = @$_;
		my $cell = $value->($all->{$name}, $all);
		defined $cell ? sprintf($format, $cell) : '';
	} @columns;
}

# Columns in which nobody has anything are left out.
sub _table ($all, $names, @columns)
{
	@columns = grep {
		my $column = $_;
		grep { (_cells($all, $_, $column))[0] ne '' } @$names;
	} @columns;
	return markdown(
		[ '', map { $_->[0] } @columns ],
		map { [ $title{$_} // $_, _cells($all, $_, @columns) ] } @$names);
}

# A contest: rows are those contestants that are in the results.
sub _contest ($all, @columns)
{
	return _table($all, [ grep { $all->{$_} } @order ], @columns);
}

sub _by_parameter ($results, $head, @columns)
{
	return map {
		sprintf("### $head\n\n", $_ =~ s/(\d)(\d{3})$/$1,$2/r)
		  . _contest($results->{$_}, @columns)
	} sort { $a <=> $b } keys %$results;
}

# Rounds with and without zklock.keep, as one list.
sub _pairs ($all)
{
	my ($kept, $off) = @{$all}{qw(kept off)};
	return [
		map {
			{
				kept => $kept->[$_]{rate},
				off => $off->[$_]{rate},
				ratio => $kept->[$_]{rate} / $off->[$_]{rate} }
		} 0 .. $#$kept
	];
}

# Sections ----------------------------------------------------------------

# Workload, title, parameter (all of them, whose number stands for %s, without one), columns,
# and rows, if these are not the contestants. Sections are in this order.
my @kinds_of_guard = ('no lock', qw(off fresh quorum));
my @leased = ('renewal', 'new lease', qw(zk_require_lease zk_xact_lock));
my @rivals = ('2 contenders', '8 contenders', '32 contenders', 'turns, next', 'turns, random');
my @waiters = map { my $who = $_; map { "$who, $_" } qw(free handed kept) } qw(zklock curator);
my @sections = (
	[ 'uncontended', 'Uncontended cycle', 1, \@uncontended ],
	[ 'contenders', '%s contenders on one lock, no hold time', undef, \@contended ],
	[ 'locks', '8 clients, 1,000 locks', 1000, \@locks ],
	[ 'kept', 'Kept locks: lock and unlock in a loop in a DO block', 'block', \@kept_block ],
	[ 'kept', 'Kept locks: lock and unlock as two prepared statements', 'statements', \@kept_script ],
	[ 'kept', 'Kept locks: BEGIN, zk_xact_lock, UPDATE of one row, COMMIT', 'transaction', \@kept_script ],
	[ 'kept', 'Kept locks: zk_xact_lock and UPDATE of one row in one statement', 'function', \@kept_script ],
	[ 'kept', 'Kept locks: where others take the lock in between', 'rivals', \@kept_rivals, \@rivals ],
	[ 'kept', 'Kept locks: a waiter of another session has the lock after', 'wait', \@kept_wait, \@waiters ],
	[ 'depth', 'Hand-over with %s waiting', undef, \@depth ],
	[ 'fresh', 'Fresh session to first lock', 1, \@fresh ],
	[ 'try', 'A try that fails', 1, \@try ],
	[ 'release', 'The holder leaves in order: next waiter holds after', 'leave', \@release ],
	[ 'release', 'The holder is killed (session timeout TIMEOUT s): next waiter holds after', 'kill', \@release ],
	[ 'commit', 'COMMIT of a transaction that wrote nothing, by locks held', 'read', \@commit, [ 1, 10, 100 ] ],
	[ 'commit', 'COMMIT of a transaction that inserted a row, by locks held', 'write', \@commit, [ 1, 10, 100 ] ],
	[ 'spread', 'COMMIT of a transaction that inserted a row, with locks taken one after the other over a session timeout', 1, \@percentiles, [ 100, 1000 ] ],
	[ 'guard', 'One-row INSERT under a held lock, by commit guard', 1, \@guard, \@kinds_of_guard ],
	[ 'lease', 'Leases: a renewal, a new one, and a one-row INSERT that rests on one, or on a lock', 1, \@lease, \@leased ],
	[ 'memory', 'Private memory of a backend', 1, \@memory ]);

sub _section ($seen, $plan, $workload, $title, $parameter, $columns, $rows = undef)
{
	my $results = $seen->{$workload} or return;
	return _by_parameter($results, $title, @$columns) unless defined $parameter;
	$title =~ s{TIMEOUT}{$plan->{release_timeout_ms} / 1000}e;
	my $all = $parameter eq 'rivals' ? { map { $_ => _pairs($results->{$_}) } @$rows } : $results->{$parameter};
	return "### $title\n\n" . ($rows ? _table($all, $rows, @$columns) : _contest($all, @$columns));
}

my $how = <<'END';
All contestants were measured in turns on the same servers, one measurement each
in a round. Each figure is a median over the rounds, and each ratio is the median
of the rounds' ratios. A cycle takes a lock and releases it. Requests and bytes
are the server's own counters, for each cycle, hand-over or try. FIFO is the share
of grants that passed over no contender with an earlier request, by the contenders'
clocks. Locks are granted in the order in which ZooKeeper gets the requests. Where a
hand-over takes less time than a request needs to get there, as between backends of
one cluster, requests overtake each other on their way, and the share is low. pgbench
does not log when a lock was granted, so its rows have no FIFO, and their waits include
the release. Flushes are those of the server's log.
test/bench/README.md says what exactly is measured, and how the contestants are used.
END

=pod

=head2 text($results, plots)

Plots are [file, caption].

=cut

sub text ($results, @plots)
{
	my $plan = $results->{plan};
	my @parts = (
		'# Benchmark of zklock' . ($plan->{quick} ? ', quick run' : '') . "\n",
		$how, join '', map { "- $_->[0]: $_->[1]\n" } @{ $results->{machine} });
	my $main = $results->{variants}{sync};
	my @targets = $main ? Bench::Targets::check($main) : ();
	push @parts, "## Targets\n",
	  markdown([qw(target bound median rounds result)], @targets)
	  if @targets;
	push @parts, map { "![$_->[1]]($_->[0])\n" } @plots;
	foreach my $variant (@Bench::Stage::variants)
	{
		my $seen = $results->{variants}{$variant} or next;
		push @parts, "## ZooKeeper: $Bench::Stage::variant_title{$variant}\n",
		  map { _section($seen, $plan, @$_) } @sections;
	}
	return join "\n", @parts;
}

1;
