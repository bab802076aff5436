
=pod

=head1 NAME

Bench::Report - the results as Markdown

=cut

package Bench::Report;

use strict;
use warnings;

use Bench::Stage;
use Bench::Stats qw(median);

our @order =
  qw(zklock block floor curator kazoo golock advisory table);
our %title = (
	zklock => 'zklock, SQL',
	block => 'zklock, DO block',
	floor => 'floor (C client, create + delete)',
	curator => 'Curator InterProcessMutex',
	kazoo => 'Kazoo Lock',
	golock => 'go-zookeeper Lock',
	advisory => 'pg_advisory_lock by dblink',
	table => 'SELECT FOR UPDATE by dblink');

=pod

=head2 middle($rounds, $key), ratio($rounds, $other, $key)

The median over the rounds; the median of the rounds' ratios, each to what the
other showed in the same round. undef where there is nothing.

=cut

sub middle
{
	my ($rounds, $key) = @_;
	return median(map { $_->{$key} } @{ $rounds || [] });
}

sub ratio
{
	my ($rounds, $other, $key) = @_;
	return undef unless $rounds && $other;
	return median(map { $rounds->[$_]{$key} / $other->[$_]{$key} }
		  grep { $other->[$_] && $other->[$_]{$key} } 0 .. $#$rounds);
}

sub number
{
	my ($format, $value) = @_;
	return defined $value ? sprintf $format, $value : '';
}

=pod

=head2 table([heads], [cells], ...)

=cut

sub table
{
	my ($heads, @rows) = @_;
	my $line = sub { return '| ' . join(' | ', @_) . " |\n" };
	return join '',
	  $line->(@$heads),
	  '|' . '---|' . '---:|' x $#$heads . "\n",
	  map { $line->(@$_) } @rows;
}

# Those of the contestants that are in the results, in the usual order.
sub _present
{
	my ($results) = @_;
	return grep { $results->{$_} } @order;
}

sub _uncontended
{
	my ($results) = @_;
	my $r = $results->{1};
	return table(
		[
			'', 'p50, us', 'p95, us', '/ floor', '/ Curator', 'cycles/s',
			'requests', 'bytes from server'
		],
		map {
			[
				$title{$_},
				number('%.0f', middle($r->{$_}, 'p50')),
				number('%.0f', middle($r->{$_}, 'p95')),
				number('%.2f', ratio($r->{$_}, $r->{floor}, 'p50')),
				number('%.2f', ratio($r->{$_}, $r->{curator}, 'p50')),
				number('%.0f', middle($r->{$_}, 'rate')),
				number('%.1f', middle($r->{$_}, 'packets_received')),
				number('%.0f', middle($r->{$_}, 'response_bytes'))
			]
		} _present($r));
}

sub _contended
{
	my ($r) = @_;
	return table(
		[
			'', 'hand-overs/s', '/ Curator', '/ Kazoo', 'wait p50, us',
			'wait p99, us', 'FIFO, %', 'requests', 'bytes from server'
		],
		map {
			[
				$title{$_},
				number('%.0f', middle($r->{$_}, 'rate')),
				number('%.2f', ratio($r->{$_}, $r->{curator}, 'rate')),
				number('%.2f', ratio($r->{$_}, $r->{kazoo}, 'rate')),
				number('%.0f', middle($r->{$_}, 'wait50')),
				number('%.0f', middle($r->{$_}, 'wait99')),
				number('%.1f', 100 * middle($r->{$_}, 'fifo')),
				number('%.1f', middle($r->{$_}, 'packets_received')),
				number('%.0f', middle($r->{$_}, 'response_bytes'))
			]
		} _present($r));
}

sub _locks
{
	my ($results) = @_;
	my $r = $results->{1000};
	return table(
		[
			'', 'cycles/s', '/ floor', '/ Curator', 'p50, us', 'p95, us',
			'requests', 'bytes from server'
		],
		map {
			[
				$title{$_},
				number('%.0f', middle($r->{$_}, 'rate')),
				number('%.2f', ratio($r->{$_}, $r->{floor}, 'rate')),
				number('%.2f', ratio($r->{$_}, $r->{curator}, 'rate')),
				number('%.0f', middle($r->{$_}, 'p50')),
				number('%.0f', middle($r->{$_}, 'p95')),
				number('%.1f', middle($r->{$_}, 'packets_received')),
				number('%.0f', middle($r->{$_}, 'response_bytes'))
			]
		} _present($r));
}

sub _variant
{
	my ($results) = @_;
	my @parts;
	push @parts, "### Uncontended cycle\n\n" . _uncontended($results->{uncontended})
	  if $results->{uncontended};
	foreach my $count (sort { $a <=> $b } keys %{ $results->{contenders} || {} })
	{
		push @parts, "### $count contenders on one lock, no hold time\n\n"
		  . _contended($results->{contenders}{$count});
	}
	push @parts, "### 8 clients, 1,000 locks\n\n" . _locks($results->{locks})
	  if $results->{locks};
	return @parts;
}

=pod

=head2 text($results)

=cut

sub text
{
	my ($results) = @_;
	my @parts = (
		"# Benchmark of zklock\n",
		table([ '', '' ], @{ $results->{machine} }));
	foreach my $variant (grep { $results->{variants}{$_} }
		@Bench::Stage::variants)
	{
		push @parts, "## ZooKeeper: $Bench::Stage::variant_title{$variant}\n",
		  _variant($results->{variants}{$variant});
	}
	return join "\n", @parts;
}

1;
