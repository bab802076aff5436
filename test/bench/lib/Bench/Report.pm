
=pod

=head1 NAME

Bench::Report - the results as Markdown

=cut

package Bench::Report;

use strict;
use warnings;

use Bench::Stage;
use Bench::Stats qw(median percentile);
use Bench::Targets;

my @order =
  qw(zklock unloaded used reopened block spawned forked floor curator kazoo golock
  advisory table kept local none);
my %title = (
	zklock => 'zklock, SQL',
	unloaded => 'zklock, not preloaded',
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

sub _middle
{
	my ($head, $format, $key, $factor) = @_;
	return [
		$head, $format,
		sub {
			my ($rounds) = @_;
			my $middle = median(map { $_->{$key} } @$rounds);
			return defined $middle ? $middle * ($factor || 1) : undef;
		} ];
}

# The median of the rounds' ratios, each to what the other showed in the same
# round.
sub _against
{
	my ($head, $other, $key) = @_;
	return [
		$head, '%.2f',
		sub {
			my ($rounds, $all) = @_;
			my $others = $all->{$other} or return undef;
			return median(map { $rounds->[$_]{$key} / $others->[$_]{$key} }
				  grep { $others->[$_] } 0 .. $#$rounds);
		} ];
}

# Of the times of all rounds together, in rounds too short for that percentile.
sub _pooled
{
	my ($head, $percent) = @_;
	return [
		$head, '%.0f',
		sub { return percentile($percent, map { @{ $_->{times} } } @{ $_[0] }) }
	];
}

my @cost = (
	_middle('requests', '%.1f', 'packets_received'),
	_middle('flushes', '%.2f', 'flushes'),
	_middle('bytes from server', '%.0f', 'response_bytes'));

my @uncontended = (
	_middle('p50, us', '%.0f', 'p50'),
	_middle('p95, us', '%.0f', 'p95'),
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
	_middle('p50, us', '%.0f', 'p50'),
	_middle('p95, us', '%.0f', 'p95'),
	@cost);
my @kept_block = (
	_middle('cycle, us', '%.2f', 'p50'),
	_middle('cycles/s', '%.0f', 'rate'),
	_against('/ pg_advisory_lock', 'local', 'p50'),
	_against('cycles/s / Curator', 'curator', 'rate'),
	_middle('requests for 1,000', '%.3f', 'requests_1000'));
my @kept_script = (
	_middle('p50, us', '%.0f', 'p50'),
	_middle('p95, us', '%.0f', 'p95'),
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
	_middle('p50, us', '%.0f', 'p50'),
	_middle('p95, us', '%.0f', 'p95'),
	_against('/ new process', 'forked', 'p50'),
	_against('/ new program', 'spawned', 'p50'),
	_against('/ floor', 'floor', 'p50'),
	_against('/ Curator', 'curator', 'p50'));
my @try = (
	_middle('p50, us', '%.0f', 'p50'),
	_middle('p95, us', '%.0f', 'p95'),
	_against('/ Curator', 'curator', 'p50'),
	_middle('requests', '%.2f', 'packets_received'),
	_middle('writes', '%.2f', 'writes'));
my @release = (_middle('p50, ms', '%.1f', 'p50', 0.001));
my @commit = (
	_middle('p50, us', '%.0f', 'p50'),
	_middle('p95, us', '%.0f', 'p95'),
	_against('/ 1 lock', 1, 'p50'));
my @guard = (
	_middle('p50, us', '%.0f', 'p50'),
	_middle('p95, us', '%.0f', 'p95'),
	_against('/ no lock', 'no lock', 'p50'));
my @memory = (
	_middle('with, kB', '%.0f', 'with'),
	_middle('without, kB', '%.0f', 'without'),
	_middle('session, kB', '%.0f', 'p50'));

# Tables ------------------------------------------------------------------

sub _markdown
{
	my ($heads, @rows) = @_;
	my $line = sub { return '| ' . join(' | ', @_) . " |\n" };
	return join '',
	  $line->(@$heads),
	  '|---|' . '---:|' x $#$heads . "\n",
	  map { $line->(@$_) } @rows;
}

sub _cells
{
	my ($all, $name, @columns) = @_;
	return map {
		my (undef, $format, $value) = @$_;
		my $cell = $value->($all->{$name}, $all);
		defined $cell ? sprintf($format, $cell) : '';
	} @columns;
}

# Columns in which nobody has anything are left out.
sub _table
{
	my ($all, $names, @columns) = @_;
	@columns = grep {
		my $column = $_;
		grep { (_cells($all, $_, $column))[0] ne '' } @$names;
	} @columns;
	return _markdown(
		[ '', map { $_->[0] } @columns ],
		map { [ $title{$_} // $_, _cells($all, $_, @columns) ] } @$names);
}

# A contest: rows are those contestants that are in the results.
sub _contest
{
	my ($all, @columns) = @_;
	return _table($all, [ grep { $all->{$_} } @order ], @columns);
}

sub _by_parameter
{
	my ($results, $head, @columns) = @_;
	return map {
		sprintf("### $head\n\n", $_ =~ s/(\d)(\d{3})$/$1,$2/r)
		  . _contest($results->{$_}, @columns)
	} sort { $a <=> $b } keys %$results;
}

# Rounds with and without zklock.keep, as one list.
sub _pairs
{
	my ($all) = @_;
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

my %section = (
	uncontended => sub {
		return "### Uncontended cycle\n\n" . _contest($_[0]{1}, @uncontended);
	},
	contenders => sub {
		return _by_parameter($_[0],
			'%s contenders on one lock, no hold time', @contended);
	},
	locks => sub {
		return "### 8 clients, 1,000 locks\n\n"
		  . _contest($_[0]{1000}, @locks);
	},
	kept => sub {
		my ($results) = @_;
		my @rivals = (
			'2 contenders', '8 contenders', '32 contenders',
			'turns, next', 'turns, random');
		my @wait = map {
			my $who = $_;
			map { "$who, $_" } qw(free handed kept)
		} qw(zklock curator);
		return (
			"### Kept locks: lock and unlock in a loop in a DO block\n\n"
			  . _contest($results->{block}, @kept_block),
			"### Kept locks: lock and unlock as two prepared statements\n\n"
			  . _contest($results->{statements}, @kept_script),
			"### Kept locks: BEGIN, zk_xact_lock, UPDATE of one row, COMMIT\n\n"
			  . _contest($results->{transaction}, @kept_script),
			"### Kept locks: zk_xact_lock and UPDATE of one row in one statement\n\n"
			  . _contest($results->{function}, @kept_script),
			"### Kept locks: where others take the lock in between\n\n"
			  . _table({ map { $_ => _pairs($results->{$_}) } @rivals },
				\@rivals, @kept_rivals),
			"### Kept locks: a waiter of another session has the lock after\n\n"
			  . _table($results->{wait}, \@wait, @kept_wait));
	},
	depth => sub {
		return _by_parameter($_[0], 'Hand-over with %s waiting', @depth);
	},
	fresh => sub {
		return "### Fresh session to first lock\n\n"
		  . _contest($_[0]{1}, @fresh);
	},
	try => sub {
		return "### A try that fails\n\n" . _contest($_[0]{1}, @try);
	},
	release => sub {
		my ($results, $plan) = @_;
		my $timeout = $plan->{release_timeout_ms} / 1000;
		return (
			"### The holder leaves in order: next waiter holds after\n\n"
			  . _contest($results->{leave}, @release),
			"### The holder is killed (session timeout $timeout s): next waiter holds after\n\n"
			  . _contest($results->{kill}, @release));
	},
	commit => sub {
		my ($results) = @_;
		my @locks = (1, 10, 100);
		my %kind = (read => 'wrote nothing', write => 'inserted a row');
		return map {
			"### COMMIT of a transaction that $kind{$_}, by locks held\n\n"
			  . _table($results->{$_}, \@locks, @commit)
		} sort keys %kind;
	},
	guard => sub {
		return "### One-row INSERT under a held lock, by commit guard\n\n"
		  . _table($_[0]{1}, [ 'no lock', qw(off lease quorum) ], @guard);
	},
	memory => sub {
		return "### Private memory of a backend\n\n"
		  . _contest($_[0]{1}, @memory);
	});
my @sections = qw(uncontended contenders locks kept depth fresh try release
  commit guard memory);

my $how = <<'END';
All contestants ran in turns on the same servers, one measurement each a round.
Figures are medians over the rounds, ratios medians of the rounds' ratios. A
cycle takes a lock and releases it. Requests and bytes are the server's own
counters, for each cycle, hand-over or try. FIFO is the share of grants by which
nobody was passed over who had asked earlier, by the contenders' clocks; pgbench
does not log when a lock was granted, so there it is left out, and waits include
the release. Flushes are those of the server's log. What exactly is measured, and
how the contestants are used, is told in test/bench/README.md.
END

=pod

=head2 text($results, plots)

Plots are [file, caption].

=cut

sub text
{
	my ($results, @plots) = @_;
	my $plan = $results->{plan};
	my @parts = (
		'# Benchmark of zklock' . ($plan->{quick} ? ', quick run' : '') . "\n",
		$how, join '', map { "- $_->[0]: $_->[1]\n" } @{ $results->{machine} });
	my $main = $results->{variants}{sync};
	my @targets = $main ? Bench::Targets::check($main) : ();
	push @parts, "## Targets\n",
	  _markdown([qw(target bound median rounds result)], @targets)
	  if @targets;
	push @parts, map { "![$_->[1]]($_->[0])\n" } @plots;
	foreach my $variant (@Bench::Stage::variants)
	{
		my $seen = $results->{variants}{$variant} or next;
		push @parts, "## ZooKeeper: $Bench::Stage::variant_title{$variant}\n",
		  map { $section{$_}->($seen->{$_}, $plan) }
		  grep { $seen->{$_} } @sections;
	}
	return join "\n", @parts;
}

1;
