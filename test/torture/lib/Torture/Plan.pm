
=pod

=head1 NAME

Torture::Plan - what a worker is going to do in a cycle, at random

=head1 DESCRIPTION

The locks there are, what they guard, and how often which of them is asked for
in which way. Pure but for rand(), so that a seed repeats the plans.

=head2 Kinds

  kept     one exclusive lock of the worker's own, taken and released many times in a
           row, which zklock.keep makes one take-back after the other; then as local.
           Now and then another worker's, just while he does so.
  free     two locks, one after the other, in any order: there are deadlocks. The
           counters as of a set.
  call     zk_call_lock() in a procedure that commits in between.
  local    one exclusive lock; the counter is in the home cluster and is changed
           by the very backend that holds the lock. The commit guard answers for
           it. Both clusters contend for the same locks; each has its own counter.
  shared   the same, by writers and readers. A reader changes nothing; what it
           has read is checked.
  permits  a semaphore. There is no counter, for several hold it together: who
           has committed with a permit is what counts.
  set      several locks as one, in any order and mode, of overlapping sets; a
           counter each.
  path     zk_lock_path(): a leaf, or what is above it. A leaf has a counter; who
           locks above it exclusively changes those of all leaves below.
  fenced   the counter is in the vault and is changed through the other
           connection, which knows of the lock by its token alone. zk_fence()
           answers for it.
  bare     like fenced, without zk_fence(). Nobody answers for it: it shows what
           the fence is good for.
  hold     zk_hold(). The counter is in the vault, without a fence: a hold is not
           lost, so nothing else is needed. Its lock is taken as a local one, too.
  lease    zk_try_lease() for an owner of this cycle's, and zk_require_lease() in the transaction,
           for which the commit guard answers; of one lock there are two leases at a time,
           the others are leased exclusively, or shared. Its counters are in the home cluster.
           It is renewed and given up through any cluster, or left behind.
  once     zk_run_once(): who asks for a slot, and who is told to run it.
  evict    zk_evict() of whoever stands in a queue.

=cut

package Torture::Plan;

use v5.36;

use Exporter 'import';
use List::Util qw(sum0);

our @EXPORT_OK = qw(plan choose_by_weight names_of all_names all_kinds home_counters vault_counters %permits);

# The locks of each kind. A local one is now and then that of the holds.
my %names = (
	local => [ 'local/a', 'local/b' ],
	shared => ['shared/a'],
	permits => [ 'permits/2', 'permits/3' ],
	set => [ 'set/a', 'set/b', 'set/c', 'set/d' ],
	path => [ 'path', 'path/a', 'path/b', 'path/a/x', 'path/a/y', 'path/b/z' ],
	fenced => [ 'fenced/a', 'fenced/b' ],
	bare => ['bare/a'],
	hold => ['hold/a'],
	lease => [ 'lease/a', 'lease/b', 'lease/2' ],
	kept => [ map { "kept/$_" } 1 .. 96 ],
	free => [ map { "free/$_" } 'a' .. 'd' ],
	call => [ 'call/a', 'call/b' ]);

# How many hold a semaphore together, or have a lease.
our %permits = ('permits/2' => 2, 'permits/3' => 3, 'lease/2' => 2);

# Which locks of a path have a counter.
my @leaves = ('path/a/x', 'path/a/y', 'path/b/z');

# How often which kind is chosen.
my %kind_weight = (
	local => 26,
	shared => 9,
	permits => 15,
	set => 13,
	path => 10,
	fenced => 11,
	bare => 5,
	hold => 5,
	lease => 8,
	once => 4,
	evict => 2,
	kept => 20,
	free => 10,
	call => 6);

# Half of the workers keep their locks. They have so many times more to do with locks of
# their own, for the others are merely their rivals: that is half of all work.
my $keepers_share = 20;

# One in so many times a keeper is somebody's rival, too.
my $rival_one_in = 5;

# So many locks are a keeper's own: one that somebody else wanted is not kept for a while.
my $own = 4;

# How to ask; the numbers are weights, too.
my %wait_weight = (
	forever => 45,
	timeout => 20,
	try_for => 15,
	try_once => 8,
	lock_timeout => 12);

# One in so many cycles sleeps with the lock held and a transaction open, for up to
# more than two session timeouts.
my $slow_one_in = 20;

# One in so many holders of session scope rests before it begins a transaction: for up
# to so many session timeouts, in which its backend does nothing at all.
my $rest_one_in = 12;
my $rest = 5.5;

# One in so many transactions notifies somebody, and one has synchronous_commit on.
# Under a lock the others wait for the standby, too.
my $notify_one_in = 5;
my $synchronous_one_in = 12;

# The other transactions: one in so many does not wait for its own disk either. One in so
# many of session scope is prepared, and one in so many of transaction scope has a
# savepoint.
my $asynchronous_one_in = 2;
my $prepare_one_in = 6;
my $savepoint_one_in = 4;

# One in so many waits with a bound is ready to wait only about as long as a
# lock is held, in seconds: it gives up just as the one ahead lets go.
my $brief_one_in = 3;
my $brief = 0.1;

# One in so many cycles of session scope takes the lock as a reader, too, and releases it
# as a writer before it changes anything: it stays alone until both are released.
my $both_modes_one_in = 5;
my %can_have_both_modes = map { $_ => 1 } qw(local fenced bare);

# One in so many of session scope that writes where it holds the lock releases it in the
# transaction, when it has written: that takes effect when the transaction ends.
my $unlock_early_one_in = 5;
my %has_no_unlock = map { $_ => 1 } qw(lease call);

# One in so many local locks is that of the holds.
my $held_one_in = 8;

# One in so many calls for several locks is ready to wait for no longer than that,
# in seconds.
my $set_brief_one_in = 2.5;
my $set_patience = 0.5;

# How often a lock is shared: of the kind, and of each lock of a set.
my $reader_share = 0.5;
my $set_reader_share = 0.25;

# So much longer is a permit used than a lock.
my $permits_patience = 12;

# Where in the tree a path ends: at a leaf, just above, at the root.
my %depth_weight = (leaf => 70, above => 22, root => 8);

=pod

=head2 plan(session_timeout => seconds, kinds => [...], worker => number,
keeps => whether it keeps locks)

A hash: kind, function ("lock", "names", "path", or that of the kind alone),
names and modes (of all locks it takes), name (those that it asks for, joined with "+"; a path says only its end),
permits, scope ("session", "transaction", "call"), wait, patience, both_modes, unlocks_early, think, slow,
slow_early, rest, notifies, is_synchronous, is_asynchronous, prepares, savepoint ("", or
whether it is released, or rolled back with the lock, or with a lock that was taken
"again"), spins, term, is_rival, own (locks that it keeps), and read and write: the counters, in order.

=cut

sub plan (%option)
{
	my %weight = %kind_weight;
	if (@{ $option{kinds} || [] })
	{
		%weight = map { $_ => $kind_weight{$_} } @{ $option{kinds} };
	}
	$weight{kept} *= $keepers_share if $weight{kept} && $option{keeps};
	my $kind = choose_by_weight(%weight);
	my $scope = rand(2) < 1 ? 'session' : 'transaction';
	my $plan = {
		kind => $kind,
		permits => 1,
		scope => $scope,
		wait => choose_by_weight(%wait_weight),
		patience => rand($brief_one_in) < 1
		? 0.005 + rand($brief)
		: 0.1 + rand($option{session_timeout}),
		both_modes => rand($both_modes_one_in) < 1
		  && $scope eq 'session'
		  && $can_have_both_modes{$kind},
		unlocks_early => rand($unlock_early_one_in) < 1
		  && $scope eq 'session'
		  && !$has_no_unlock{$kind},
		think => 0.001 + rand(0.015),
		slow => rand($slow_one_in) < 1
		? $option{session_timeout} * (0.2 + rand(2.2))
		: 0,
		rest => $scope eq 'session' && rand($rest_one_in) < 1
		? $option{session_timeout} * rand $rest
		: 0,
		notifies => rand($notify_one_in) < 1,
		is_synchronous => rand($synchronous_one_in) < 1,
		is_asynchronous => rand($asynchronous_one_in) < 1,
		prepares => $scope eq 'session' && rand($prepare_one_in) < 1,
		savepoint => $scope eq 'transaction'
		  && rand($savepoint_one_in) < 1 ? _one_of(qw(released again undone)) : '',
		# Where a slow worker sleeps: before or after it has read.
		slow_early => rand(2) < 1 };
	# What was released cannot be prepared.
	$plan->{prepares} = '' if $plan->{unlocks_early};
	my $choose = __PACKAGE__->can("_choose_$kind") || \&_choose_one;
	$choose->($plan, %option);
	return $plan;
}

=pod

=head2 names_of($kind), all_names, all_kinds, home_counters, vault_counters

=cut

sub names_of { return @{ $names{ $_[0] } }; }
sub all_kinds { return sort keys %kind_weight; }
sub all_names { return map { @$_ } @names{ sort keys %names }; }
sub home_counters
{
	return (@leaves, grep { !$permits{$_} } map { names_of($_) } qw(local shared set hold lease kept free call));
}
sub vault_counters { return map { names_of($_) } qw(fenced bare hold); }

=pod

=head2 choose_by_weight(key => weight, ...)

One of the keys, at random.

=cut

sub choose_by_weight (%weight)
{
	my $dice = rand sum0(values %weight);
	foreach my $key (sort keys %weight)
	{
		return $key if ($dice -= $weight{$key}) < 0;
	}
	return (sort keys %weight)[-1];
}

sub _one_of { return $_[ rand @_ ]; }

# One lock of that name and mode, which guards the counter of its name.
sub _ask_for ($plan, $name, $mode)
{
	$plan->{function} = 'lock';
	$plan->{name} = $name;
	$plan->{names} = [$name];
	$plan->{modes} = [$mode];
	$plan->{read} = [$name];
	$plan->{write} = $mode eq 'exclusive' ? [$name] : [];
	return;
}

sub _choose_one ($plan, @)
{
	_ask_for($plan, _one_of(names_of($plan->{kind})), 'exclusive');
	return;
}

sub _choose_local ($plan, @)
{
	my $kind = rand($held_one_in) < 1 ? 'hold' : 'local';
	_ask_for($plan, _one_of(names_of($kind)), 'exclusive');
	return;
}

sub _choose_shared ($plan, @)
{
	_ask_for($plan, _one_of(names_of('shared')),
		rand() < $reader_share ? 'shared' : 'exclusive');
	return;
}

sub _choose_permits ($plan, @)
{
	_choose_one($plan);
	_share_permits($plan);
	return;
}

# Longer, so that all of them are in use now and then.
sub _share_permits ($plan)
{
	$plan->{permits} = $permits{ $plan->{name} };
	$plan->{think} *= $permits_patience;
	$plan->{read} = $plan->{write} = [];
	return;
}

# A keeper goes back to work soon, for its lock is kept for a moment only.
sub _choose_kept ($plan, %option)
{
	my @kept = names_of('kept');
	$plan->{is_rival} = !$option{keeps} || rand($rival_one_in) < 1;
	$plan->{spins} = !$plan->{is_rival};
	$plan->{rest} = $plan->{slow} = 0 if rand(10) >= 1;
	$plan->{own} = [ map { $kept[ ($own * $option{worker} + $_) % @kept ] } 1 .. $own ];
	_ask_for($plan, _one_of($plan->{is_rival} ? @kept : @{ $plan->{own} }), 'exclusive');
	return;
}

# One after the other, so no bound is one of both.
sub _choose_free ($plan, @)
{
	my @left = names_of('free');
	_ask_for($plan, splice(@left, rand @left, 1), 'exclusive');
	push @{ $plan->{names} }, _one_of(@left);
	push @{ $plan->{modes} }, 'exclusive';
	$plan->{name} = join '+', @{ $plan->{names} };
	$plan->{read} = $plan->{write} = [ sort @{ $plan->{names} } ];
	$plan->{wait} = _one_of(qw(forever forever lock_timeout));
	$plan->{savepoint} = '';
	return;
}

sub _choose_call ($plan, @)
{
	_choose_one($plan);
	@{$plan}{qw(scope savepoint)} = ('call', '');
	return;
}

# Two or three locks in random order. More of the calls than of others end when
# some of the locks are taken.
sub _choose_set ($plan, @)
{
	($plan->{wait}, $plan->{patience}) =
	  (_one_of(qw(timeout try_for lock_timeout)), 0.005 + rand($set_patience))
	  if rand($set_brief_one_in) < 1;
	my @left = names_of('set');
	my @names = map { splice @left, rand @left, 1 } 1 .. 2 + int rand 2;
	my @modes =
	  map { rand() < $set_reader_share ? 'shared' : 'exclusive' } @names;
	my %mode;
	@mode{@names} = @modes;
	$plan->{function} = 'names';
	$plan->{name} = join '+', @names;
	$plan->{names} = \@names;
	$plan->{modes} = \@modes;
	$plan->{read} = [ sort @names ];
	$plan->{write} = [ grep { $mode{$_} eq 'exclusive' } sort @names ];
	return;
}

sub _choose_path ($plan, @)
{
	my $depth = choose_by_weight(%depth_weight);
	my $name =
		$depth eq 'leaf' ? _one_of(@leaves)
	  : $depth eq 'above' ? _one_of('path/a', 'path/b')
	  : 'path';
	my $mode = $depth eq 'leaf'
	  && rand() < $set_reader_share ? 'shared' : 'exclusive';
	my @parts = split m{/}, $name;
	my @names = map { join '/', @parts[ 0 .. $_ ] } 0 .. $#parts;
	my @below = grep { $_ eq $name || m{^\Q$name\E/} } @leaves;
	$plan->{function} = 'path';
	$plan->{name} = $name;
	$plan->{names} = \@names;
	$plan->{modes} = [ ('shared') x $#names, $mode ];
	$plan->{read} = \@below;
	$plan->{write} = $mode eq 'exclusive' ? \@below : [];
	return;
}

# These have a course of their own; see Torture::Workload.
sub _choose_once ($plan, @)
{
	_ask_for($plan, 'once/a', 'exclusive');
	return;
}

# Its term is as short as may be, and now and then over before the transaction begins, or
# before it ends.
sub _choose_lease ($plan, %option)
{
	my $name = _one_of(names_of('lease'));
	_ask_for($plan, $name, !$permits{$name} && rand() < $reader_share ? 'shared' : 'exclusive');
	_share_permits($plan) if $permits{$name};
	@{$plan}{qw(scope savepoint prepares)} = ('session', '', '');
	$plan->{term} = 2 + rand 2;
	$plan->{$_} = rand(6) < 1 ? rand(2 * $plan->{term}) : 0 foreach qw(rest slow);
	return;
}

# A hold is not evicted: then it would not outlive its maker. Nor is a lease: "fresh" lets
# its transaction commit for longer than after other evictions.
sub _choose_evict ($plan, @)
{
	_ask_for($plan, _one_of(grep { !m{^(hold|lease)/} } all_names()), 'exclusive');
	return;
}

1;
