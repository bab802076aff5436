
=pod

=head1 NAME

Bench::Kept - locks that zklock.keep keeps after their release

=head1 DESCRIPTION

What they save where nobody else wants them, next to PostgreSQL's own locks in
the same database, and what they cost where somebody does.

=cut

package Bench::Kept;

use v5.36;

use Bench::Backends;
use Bench::Loops;
use Bench::Pgbench;
use Bench::Stats qw(percentile read_cycles waits wait_times);
use List::Util qw(sum);
use Time::HiRes qw(time sleep);
use ZooKeeper qw(poll_until);

my $keep = '-c zklock.keep=1min';
my %settings = (kept => $keep, off => '');

# A DO block takes and releases a lock so often; so many blocks a round.
my $cycles = 10_000;
my $blocks = 5;

# Transactions in a round of what the disk decides, and locks that a waiter takes:
# few, and more rounds, as the disk's weather changes quickly. A session can keep
# 64 locks, and knows as many that it should not keep.
my $transactions = 100;
my $given = 10;

# A request that follows a waiter's node at once is at the server after that
# long, in seconds.
my $on_its_way = 0.005;

my %block = (
	kept => [ q{zk_lock('bench-block')}, q{zk_unlock('bench-block')} ],
	local => [ 'pg_advisory_lock(1)', 'pg_advisory_unlock(1)' ]);
my %statements = (
	kept => [ 'SELECT zk_lock(LOCK);', 'SELECT zk_unlock(LOCK);' ],
	local =>
	  [ 'SELECT pg_advisory_lock(1);', 'SELECT pg_advisory_unlock(1);' ]);

# The same number of statements and of calls, with a lock and without one.
my %call = (
	kept => q{zk_xact_lock('bench-row')},
	none => 'pg_backend_pid()');
my $update = 'UPDATE counter SET n = n + 1 WHERE id = 1;';

=pod

=head2 new($zookeeper, $stage, $curator, window => seconds, bin => ..., dir => ...)

stop ends what it has started.

=cut

sub new ($class, $zk, $stage, $curator, %option)
{
	my $self = bless {
		zookeeper => $zk,
		stage => $stage,
		curator => $curator,
		given => 0,
		%option }, $class;
	$stage->home->safe_psql('postgres', <<'SQL');
SET client_min_messages = warning;
CREATE TABLE IF NOT EXISTS counter (id int PRIMARY KEY, n bigint);
INSERT INTO counter VALUES (1, 0) ON CONFLICT DO NOTHING;
SQL
	$stage->home->safe_psql('postgres',
		"CREATE OR REPLACE FUNCTION count_$_() RETURNS void LANGUAGE plpgsql
		 AS \$\$ BEGIN PERFORM $call{$_}; $update END \$\$")
	  foreach keys %call;
	$self->{$_} = $self->_backends('home', $settings{$_})
	  foreach keys %settings;
	$self->{waiter} = $self->_backends('central', '');
	$self->{$_}->query(0, q{SELECT zk_lock('bench-block'), zk_unlock_all()})
	  foreach 'waiter', 'kept';
	return $self;
}

sub _backends ($self, $cluster = undef, $settings = undef)
{
	return Bench::Backends->new(
		dir => $self->{dir},
		name => 'zklock',
		command => [
			"$self->{bin}/sql",
			$self->{stage}->$cluster->connstr('postgres')
			  . " options='$settings'"
		]);
}

sub stop ($self)
{
	$self->{$_}->stop foreach keys %settings, 'waiter';
	return;
}

=pod

=head2 parts

What is measured, in its order: a list of [parameter, factor, parties], a party
being [name, what measures]. There are as many rounds more as the factor
says of what is done in no time.

=cut

sub parts ($self)
{
	my $parties = sub ($measure, @names) {
		return map { my $name = $_; [ $name, sub { return $measure->($name) } ] } @names;
	};
	my $scripts = sub ($lock, %script) {
		return $parties->(sub ($name) { $self->_pgbench($name, $lock, 1, $script{$name}) }, sort keys %script);
	};
	my %transaction = map { $_ => [ 'BEGIN;', "SELECT $call{$_};", $update, 'COMMIT;' ] } keys %call;
	my @curator = ('curator', sub { return $self->_loop($self->{curator}, 'uncontended', 1) });
	my @waits = map { my $who = $_; map { "$who, $_" } qw(free handed kept) } qw(zklock curator);
	return (
		[ 'block', 2, $parties->(sub ($name) { $self->_block($name) }, sort keys %block), \@curator ],
		[ 'statements', 1, $scripts->('prepared', %statements) ],
		[ 'transaction', 1, $scripts->('row', %transaction) ],
		[ 'function', 4, $parties->(sub ($name) { $self->_function($name) }, sort keys %call) ],
		(map {
			my $sessions = $_;
			[ "$sessions contenders", 1, $parties->(sub ($name) {
					$self->_pgbench($name, 'contended', $sessions, $statements{kept})
				}, qw(kept off)) ]
		} 2, 8, 32),
		(map {
			my $order = $_;
			[ "turns, $order", 1, $parties->(sub ($name) {
					$self->_loop($self->{$name}, "turns-$name-$order", 8, order => $order)
				}, qw(kept off)) ]
		} qw(next random)),
		[ 'wait', 4, $parties->(sub ($name) { $self->_wait(split /, /, $name) }, @waits) ]);
}

# Without recording each cycle: that would take as long as the cycle.
sub _block ($self, $name)
{
	my $body = join ' ', map { "PERFORM $_;" } @{ $block{$name} };
	my $packets = $self->{zookeeper}->packets_received;
	my $file = $self->{kept}->time_query(0, $blocks, '',
		"DO \$\$ BEGIN FOR i IN 1..$cycles LOOP $body END LOOP; END \$\$", '');
	$packets = $self->{zookeeper}->packets_received - $packets;
	my $each = percentile(50, waits(@{ read_cycles($file) })) / $cycles;
	return {
		p50 => $each,
		rate => 1_000_000 / $each,
		requests_1000 => $packets / $blocks / $cycles * 1000 };
}

# Transactions of one statement that update a row, with that call before it.
sub _function ($self, $name)
{
	my $file = $self->{kept}->time_query(0, $transactions, '',
		"SELECT count_$name()", '');
	my @times = waits(@{ read_cycles($file) });
	return { wait_times($file), rate => 1_000_000 * @times / sum(@times) };
}

sub _loop ($self, $contestant, $lock, $sessions = undef, %arg)
{
	my $seen = Bench::Loops::measure(
		$self->{zookeeper}, $contestant,
		sessions => $sessions,
		lock => $lock,
		window => $self->{window},
		%arg);
	delete $seen->{times};
	return $seen;
}

sub _pgbench ($self, $name, $lock, $sessions, $script)
{
	my $contestant = Bench::Pgbench->new(
		dir => $self->{dir},
		name => $name,
		cluster => $self->{stage}->home,
		settings => $settings{$name},
		script => [@$script]);
	return $self->_loop($contestant, $lock, $sessions);
}

# From the request of a waiter, or, if the lock is handed over, from the
# release, until the waiter has it. Each lock is used once: who had a rival does
# not keep it again so soon. The waiter's session is open.
sub _wait ($self, $who, $state)
{
	my ($holder, $waiter) = @{$self}{ 'kept', 'waiter' };
	my $client = $self->{zookeeper}->client;
	my @locks;
	poll_until { @locks = $self->_take_locks($state) } 'such locks';
	_check_state($holder, $client, $state, @locks);

	my @times;
	foreach my $lock (@locks)
	{
		my $begin = time();
		if ($who eq 'curator')
		{
			$waiter = $self->{curator};
			$waiter->order('take ' . $holder->znode($lock));
		}
		else
		{
			$waiter->order('query 0',
				"SELECT zk_lock('" . $holder->lock($lock) . "')");
		}
		if ($state eq 'handed')
		{
			poll_until
			{
				$client->exists($holder->znode($lock))->{num_children} == 2;
			}
			'a waiter';
			sleep($on_its_way);
			$begin = time();
			$holder->order('query 0',
				"SELECT zk_unlock('" . $holder->lock($lock) . "')");
		}
		my ($granted) = $waiter->taken;
		$holder->answer if $state eq 'handed';
		push @times, $granted - $begin * 1_000_000;
	}
	$self->{waiter}->query(0, 'SELECT zk_unlock_all()');
	return {
		p50 => percentile(50, @times),
		times => \@times };
}

# New locks, held by the holder, or kept, or free. Of those to be kept some are not: in the table of
# who had a rival just now another lock has their place. On a quick machine that can be all.
sub _take_locks ($self, $state)
{
	my $holder = $self->{kept};
	my @locks = map { 'given-' . $self->{given}++ } 1 .. $given;
	my $each = sub ($function) {
		$holder->query(0, "SELECT $function(name) FROM unnest('{"
			  . join(',', map { $holder->lock($_) } @locks)
			  . "}'::text[]) AS name");
	};
	$each->('zk_lock');
	$each->('zk_unlock') if $state ne 'handed';
	$holder->query(0, 'SELECT zk_unlock_all()') if $state eq 'free';
	return @locks if $state ne 'kept';
	my $kept = "SELECT string_agg(name, ' ') FROM zk_session_locks WHERE state = 'kept' AND name LIKE 'bench-given-%'";
	return map { s/^bench-//r } split ' ', $holder->query(0, $kept);
}

# Are the locks as the measurement wants them?
sub _check_state ($holder, $client, $state, @locks)
{
	my %count = (free => 0, handed => $given, kept => scalar @locks);
	my $word = $state eq 'kept' ? 'kept' : 'held';
	my $seen = $holder->query(0,
		"SELECT count(*) FROM zk_session_locks WHERE state = '$word'"
		  . " AND name LIKE 'bench-given-%'");
	die "$seen of $given locks are $word\n" if $seen != $count{$state} || !@locks;
	poll_until
	{
		my $stat = $client->exists($holder->znode($locks[-1]));
		!$stat || $stat->{num_children} == ($state eq 'free' ? 0 : 1);
	}
	"locks that are $state";
	return;
}

1;
