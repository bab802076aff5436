
=pod

=head1 NAME

Bench::ScaleReport - what a crowd costs and what it bears, as Markdown

=cut

package Bench::ScaleReport;

use v5.36;

use Bench::Report;
use Bench::Storm;

# [title, format, step, key or code]
sub _row ($title, $format, $step, $key, $factor = undef)
{
	return [
		$title,
		sub ($seen) {
			my $at = $seen->{$step} or return undef;
			my $value = ref $key ? $key->($at, $seen) : $at->{$key};
			return undef unless defined $value;
			# What failed is told in words.
			return $value if $value =~ /[^-\d.e]/;
			return sprintf $format, $value * ($factor // 1);
		} ];
}

sub _memory ($what, $head)
{
	return _row($head, '%.0f', 'idle', sub { return $_[0]{memory}{$what} });
}

my @cost = (
	_row('all ask for their first lock at once: half have it after, s',
		'%.1f', 'open', 'half'),
	_row('the last one, s', '%.1f', 'open', 'last'),
	_row('all stand in their queue, s', '%.1f', 'open', 'all'),
	_row('failed', '%s', 'open', 'failed'),
	_row('sessions that were begun and given up', '%d', 'open',
		sub { return $_[0]{sessions} - $_[1]{backends} }),
	_row('backend without a session, private kB', '%.0f', 'open',
		sub { return $_[0]{before}{backend} }),
	_memory('backend', 'backend with one, private kB'),
	_memory('program', 'its session\'s program, private kB'),
	_row('the whole machine, for each session, kB', '%.0f', 'idle',
		sub ($idle, $seen) {
			return ($idle->{memory}{used} - $seen->{open}{before}{used}) /
			  $seen->{backends};
		}),
	_memory('heap', 'heap of a server, live kB'),
	_memory('server', 'resident memory of a server, kB'),
	_row('threads of a server', '%.0f', 'idle',
		sub { return $_[0]{processes}{server} }),
	_row('processes of sessions', '%d', 'idle',
		sub { return $_[0]{processes}{programs} }),
	_row('open files of the machine, for each session', '%.1f', 'idle',
		sub ($idle, $seen) {
			return ($idle->{files} - $seen->{open}{files_before}) /
			  $seen->{backends};
		}),
	_row('watches', '%d', 'idle', 'watches'),
	_row('idle: requests a second', '%.0f', 'idle', 'requests'),
	_row('CPU of all programs, ms a second', '%.0f', 'idle', 'cpu_programs',
		1000),
	_row('of all backends', '%.0f', 'idle', 'cpu_backends', 1000),
	_row('of all servers', '%.0f', 'idle', 'cpu_servers', 1000));

my @storm = (
	[ 'servers can be reached, and serve, after, s', '%.1f', 'away' ],
	[ 'half of the sessions are back after, s', '%.1f', 'half' ],
	[ 'the last one, s', '%.1f', 'last' ],
	[ 'sessions lost', '%d', 'lost' ],
	[ 'nodes lost', '%d', 'nodes_gone' ],
	[ 'locks lost, by their holders', '%d', 'not_held' ],
	[ 'attempts to connect, for each session', '%.1f', 'opens' ],
	[ 'of them refused', '%.1f', 'refused' ],
	[ 'of them heard by a server that serves', '%.2f',
		'connection_request_count' ],
	[ 'queues of servers found full', '%d', 'overflows' ],
	[ 'CPU of all programs, s', '%.1f', 'cpu_programs' ],
	[ 'CPU of the network, s', '%.1f', 'cpu_network' ],
	[ 'share of the fullest server', '%.2f', 'spread' ]);

sub _queue ($step)
{
	return (
		_row('waiters', '%d', $step, 'waiters'),
		_row('of them granted', '%d', $step, 'granted'),
		_row('overtaken', '%d', $step, 'overtaken'),
		_row('hand-overs a second', '%.0f', $step, 'rate'));
}

my @rest = (
	_queue('queue'),
	_row('COMMIT of all at once: half are done after, ms', '%.0f', 'commit',
		'half', 1000),
	_row('the last one, ms', '%.0f', 'commit', 'last', 1000),
	_row('all locks are free, ms', '%.0f', 'commit', 'gone', 1000),
	_row('failed', '%s', 'commit', 'failed'),
	_row('a cluster crashes: sessions', '%d', 'crash', 'killed'),
	_row('all its nodes are gone after, s', '%.2f', 'crash', 'gone'),
	_row('sessions that still stand 3 s later', '%d', 'crash', 'sessions_left'),
	_row('all its sessions are gone after, s', '%.1f', 'crash',
		'sessions_gone'),
	_row('names', '%d', 'names', 'names'),
	_row('taken after, s', '%.1f', 'names', 'taken'),
	_row('listed by zk_all_locks in, s', '%.2f', 'names', 'list'),
	_row('found', '%d', 'names', 'found'),
	_row('requests', '%d', 'names', 'requests'),
	_row('bytes from the server', '%d', 'names', 'bytes'),
	_row('most memory of the backend that lists, kB', '%d', 'names', 'peak'),
	_row('live heap of a server, kB', '%.0f', 'names', 'heap'),
	_row('let go after, s', '%.1f', 'names', 'released'));

sub _table ($head, $results, @rows)
{
	my @sizes = sort { $a <=> $b } keys %{ $results->{sizes} };
	my @cells = map {
		my ($title, $value) = @$_;
		[ $title, map { $value->($results->{sizes}{$_}) } @sizes ]
	} @rows;
	@cells = grep { grep({ defined } @$_) > 1 } @cells;
	return Bench::Report::markdown([ $head, @sizes ], map { [ map { $_ // '' } @$_ ] } @cells);
}

=pod

=head2 text($results, plots)

Plots are [file, caption].

=cut

sub text ($results, @plots)
{
	my $how =
	  $results->{servers} == 1
	  ? 'one server'
	  : "ensemble of $results->{servers}";
	$how .= ", $results->{config}" if $results->{config};
	my @left_out =
	  map { "- left out, for want of servers: " . Bench::Storm::title($_) . "\n" }
	  @{ $results->{impossible} };
	my @of_network =
	  grep { Bench::Storm::is_of_network($_) } @{ $results->{storms} };
	return join "\n",
	  "# zklock in a crowd\n",
	  "Two clusters, half of the backends each, $how.",
	  "What exactly is done and measured is told in test/bench/README.md.\n",
	  join('', (map { "- $_->[0]: $_->[1]\n" } @{ $results->{machine} }), @left_out),
	  (map { "![$_->[1]]($_->[0])\n" } @plots),
	  "## What it costs\n",
	  _table('backends', $results, @cost),
	  _storms($results,
		grep { !Bench::Storm::is_of_network($_) } @{ $results->{storms} }),
	  "## After the storms\n",
	  _table('backends', $results, @rest),
	  _storms($results, @of_network),
	  @of_network
	  ? ("## After the storms of the network\n",
		_table('backends', $results, _queue('after')))
	  : ();
}

sub _storms ($results, @kinds)
{
	return map {
		my $kind = $_;
		"## Storm: " . Bench::Storm::title($kind) . "\n",
		  _table('backends', $results,
			map { _row($_->[0], $_->[1], $kind, $_->[2]) } @storm)
	} @kinds;
}

1;
