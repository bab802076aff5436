
=pod

=head1 NAME

Torture::Workload - one worker: takes locks and changes what they guard

=head1 DESCRIPTION

A worker has a connection to its home cluster, whose backend takes the locks,
and one to the vault, a cluster that the nemesis leaves alone. In each cycle it
takes a lock, or several, and increments a counter in the most careless way: it
reads the value, thinks, and writes the value read plus one. Beside the
increment, in the same transaction, it writes who did it into a ledger; so it is
known for sure in the end which transactions have committed, those without an
answer included. Readers write only into the ledger.

What it asks for is planned by L<Torture::Plan>, which tells of the kinds. Holds, leases,
jobs that run once, and evictions have courses of their own, in
Torture::Workload::Hold, ::Lease, ::Once and ::Evict.

=cut

package Torture::Workload;

use v5.36;

use Scalar::Util qw(blessed);
use Time::HiRes qw(sleep);
use Torture::Connection;
use Torture::History qw(now time_of_day_at_zero at_time_of_day);
use Torture::Plan qw(plan);
use Torture::Workload::Evict;
use Torture::Workload::Hold;
use Torture::Workload::Lease;
use Torture::Workload::Once;

# Recovery is tried so often: a late cancel may hit each of its statements.
my $recovery_attempts = 50;

# For how long half of the workers of each cluster keep their locks: longer than most of
# their rests.
my $keep = '2s';

# A keeper takes its lock again and again for so long, in seconds; and has it, and does
# without it, for so long each time, in milliseconds: without a pause, so that the moment
# of taking it back is met often, or with one. Then it is idle for up to so many seconds.
my $spin = 0.3;
my @spin_pauses = ([ 0, 0 ], [ 6, 2 ], [ 6, 2 ]);
my $idle = 0.2;

# For so long, at most, in seconds, a transaction stays prepared.
my $prepared = 0.02;

# Kinds that are more than a lock taken, used and let go.
my %course = (
	hold => \&Torture::Workload::Hold::run,
	lease => \&Torture::Workload::Lease::run,
	once => \&Torture::Workload::Once::run,
	evict => \&Torture::Workload::Evict::run,
	call => \&_call);

=pod

=head1 METHODS

=head2 new(option => value, ...)

worker (number), cluster (name of the home), home and vault (connection strings),
away (that of another cluster with zklock), history, board, session_timeout
(seconds), kinds (those to choose from, or none for all),
is_over (code), quit (a file handle that is at its end when the worker shall go).

=cut

sub new ($class, %option)
{
	return bless {
		%option,
		keeps => int($option{worker} / 2) % 2,
		met => {},
		cycle => 0,
		parent => getppid() }, $class;
}

sub run ($self)
{
	$self->_cycle while !$self->{is_over}->() && $self->_has_parent;
	$self->_post('parked');
	$self->{history}->note('parked');
	# Connected, so that a node left behind is not hidden by our leaving.
	readline $self->{quit};
	$self->{$_} && $self->{$_}->close foreach qw(home_db vault_db);
	$self->_post('ended', pid => 0);
	return;
}

sub _has_parent ($self)
{
	return getppid() == $self->{parent};
}

# One cycle, whatever happens in it.
sub _cycle ($self)
{
	my $plan = $self->{plan} = plan(
		map { $_ => $self->{$_} } qw(session_timeout kinds worker keeps));
	$plan->{cycle} = ++$self->{cycle};
	my $course = $course{ $plan->{kind} } || \&_attempt;
	$self->{is_asking} = 0;
	eval { $course->($self); 1 } and return;
	my $failure = $@;
	die $failure unless blessed $failure && $failure->isa('Torture::Failure');
	$self->note_failure($failure);
	$self->_recover;
	$self->_settle if $plan->{is_prepared};
	Torture::Workload::Hold::settle($self) if $plan->{is_unsettled};
	return;
}

sub _attempt ($self)
{
	my $plan = $self->{plan};
	$self->connect;
	my $home = $self->{home_db};
	my $in_transaction = $plan->{scope} eq 'transaction';

	$self->_meet_keeper if $plan->{is_rival};
	$self->_spin if $plan->{spins};
	$self->_begin if $in_transaction;
	$self->note_asked;
	return unless $self->_take_lock;
	$self->_end_savepoint if $plan->{savepoint};
	$self->_take_both_modes if $plan->{both_modes};
	if ($plan->{kind} =~ /^(fenced|bare)$/)
	{
		$self->increment_in_vault;
	}
	else
	{
		$self->hold_for($plan->{rest}, 'resting') if $plan->{rest};
		$home->execute('BEGIN') unless $in_transaction;
		$self->commit_at_home;
		# That was the release of locks of transaction scope, too.
		return if $in_transaction;
	}
	$self->_release;
	if ($plan->{spins})
	{
		$self->enter('keeping');
		sleep rand $idle;
	}
	return;
}

# The lock that a keeper is just taking, if there is one.
sub _meet_keeper ($self)
{
	my $plan = $self->{plan};
	my @names = map { $_->{name} }
	  grep { $_->{state} eq 'spinning' && $_->{worker} != $self->{worker} } $self->{board}->entries;
	$self->_turn_to($names[ rand @names ]) if @names;
	return;
}

sub _turn_to ($self, $name)
{
	@{ $self->{plan} }{qw(name names read write)} = ($name, [$name], [$name], [$name]);
	return;
}

# Who does nothing but take a lock and let it go asks nobody for it. The witness hears
# until when it was held under which token, by the database's clock, which is this one.
sub _spin ($self)
{
	my ($plan, $home) = @{$self}{qw(plan home_db)};
	my ($held, $free) = @{ $spin_pauses[ rand @spin_pauses ] };
	my $met = $self->{met};
	# Where no rival was seen for the longest time.
	my ($name) = sort { ($met->{$a} || 0) <=> ($met->{$b} || 0) } @{ $plan->{own} };
	$self->_turn_to($name);
	$self->enter('spinning');
	my $zero = time_of_day_at_zero();
	my $rows = $home->rows(
		'SELECT token, count(*), extract(epoch FROM max(told)) FROM (
			SELECT zk_lock(?) AS token, pg_sleep(?), clock_timestamp() AS told, zk_unlock(?), pg_sleep(?)
			FROM generate_series(1, 20000)
			WHERE clock_timestamp() < statement_timestamp() + ?::interval) AS spin
		 GROUP BY token',
		$name, $held / 1000, $name, $free / 1000, "$spin s");
	$met->{$name} = now() if @$rows > 1;
	$self->{history}->note(
		'spun',
		name => $name,
		pid => $home->pid,
		token => $_->[0],
		grants => $_->[1],
		told => at_time_of_day($_->[2], $zero)) foreach @$rows;
	return;
}

# A transaction, with what a savepoint in it does about the lock before it is taken.
sub _begin ($self)
{
	my ($plan, $home) = @{$self}{qw(plan home_db)};
	$home->execute('BEGIN');
	$home->execute('SAVEPOINT a') if $plan->{savepoint} =~ /^(released|undone)$/;
	return unless $plan->{savepoint} eq 'undone';
	$self->enter('trying');
	$self->_ask;
	$home->execute('ROLLBACK TO a');
	$self->_check_taken(0);
	return;
}

# And when it was: what was taken inside and released stays, and so does what was taken
# outside, whatever is rolled back.
sub _end_savepoint ($self)
{
	my ($plan, $home) = @{$self}{qw(plan home_db)};
	if ($plan->{savepoint} eq 'again')
	{
		$home->execute('SAVEPOINT a');
		$self->_ask;
		$home->execute('UPDATE counter SET v = v + 1000 WHERE name = ANY (?)', $plan->{write});
		$home->execute('ROLLBACK TO a');
	}
	$home->execute('RELEASE a');
	return;
}

# The course of a lock of call scope: all is done by one call, in two transactions. It
# tells when it was granted the lock and when it was about to commit, by its clock.
sub _call ($self)
{
	my $plan = $self->{plan};
	$self->connect;
	$self->note_asked;
	$self->enter('committing');
	my $zero = time_of_day_at_zero();
	my ($row) = @{ $self->{home_db}->rows('CALL call_scope(?, ?, ?, ?, ?, NULL, NULL, NULL)',
		$self->{worker}, $plan->{cycle}, $plan->{name},
		$plan->{wait} eq 'forever' ? undef : interval($plan->{patience}), $plan->{think}) };
	my ($token, $granted, $sent) = @$row;
	$self->tell('granted',
		at => at_time_of_day($granted, $zero), locks => "$plan->{name}:exclusive:$token");
	$self->tell('commit_sent', at => at_time_of_day($sent, $zero));
	$self->tell('committed');
	return;
}

=pod

=head2 tell($event, more => ...)

The history, of the cycle at hand.

=cut

sub tell ($self, $event, %more)
{
	return $self->{history}->note($event, cycle => $self->{plan}{cycle}, %more);
}

=pod

=head2 note_asked, note_granted(@tokens)

The first and the second step of every cycle that takes locks; the tokens are in
the order of the plan's names.

=cut

sub note_asked ($self)
{
	my $plan = $self->{plan};
	$self->enter('asking');
	$self->tell(
		'asked',
		pid => $self->{home_db}->pid,
		patience => _bound($plan),
		cluster => $self->{cluster},
		keeps => $self->{keeps} ? 1 : 0,
		term => $plan->{term} || 0,
		map { $_ => $plan->{$_} } qw(kind name scope wait));
	return;
}

sub note_granted ($self, @tokens)
{
	my $plan = $self->{plan};
	$plan->{token} = $tokens[-1];
	$self->tell('granted',
		locks => join ' ',
		map { "$plan->{names}[$_]:$plan->{modes}[$_]:$tokens[$_]" }
		  0 .. $#tokens);
	$self->enter('holding');
	return;
}

# Whether all locks were granted; without them the cycle is over.
sub _take_lock ($self)
{
	my ($plan, $home) = @{$self}{qw(plan home_db)};
	my @names = @{ $plan->{names} };
	if ($plan->{kind} eq 'free')
	{
		$self->note_granted(map { $self->_take_one($_) } @names);
		return 1;
	}
	my $answer = $self->_ask;
	if (!$answer)
	{
		$self->tell('gave_up');
		$self->_check_taken(0);
		$home->execute('ROLLBACK') if $plan->{scope} eq 'transaction';
		return 0;
	}
	$self->note_granted($self->_tokens($answer));
	return 1;
}

# One of several that are taken by themselves.
sub _take_one ($self, $name)
{
	$self->tell('wanted', name => $name);
	my $token = $self->_ask($name);
	$self->tell('got', name => $name);
	return $token;
}

# How many of the locks are held must be none or that number.
sub _check_taken ($self, $all)
{
	my $taken =
	  $self->{home_db}->value("SELECT count(DISTINCT name) FROM zk_session_locks WHERE state <> 'kept'");
	$self->tell('partial', taken => $taken)
	  if $taken && $taken != $all;
	return;
}

# The fencing tokens of all locks taken: from the answer, and as zklock tells
# them when it is asked. A try does not tell any, a path only the last.
sub _tokens ($self, $answer)
{
	my $plan = $self->{plan};
	my $is_try = $plan->{wait} =~ /^try/;
	return $answer if $plan->{function} eq 'lock' && !$is_try;
	my @tokens = map { $_->[0] } @{
		$self->{home_db}->rows(
			'SELECT zk_fencing_token(name)
			 FROM unnest(?::text[]) WITH ORDINALITY AS asked(name, place)
			 ORDER BY place', $plan->{names}) };
	if (grep { !defined } @tokens)
	{
		my $lost = $self->{home_db}->value(
			"SELECT count(*) FROM zk_session_locks WHERE state = 'lost'");
		$self->tell('other_tokens')
		  unless $lost;
		die Torture::Failure->new('40001', 'lost before its token was known', 0);
	}
	my @told =
	    $is_try ? ()
	  : ref $answer ? @$answer
	  : $answer;
	my @expected = @tokens[ @tokens - @told .. $#tokens ];
	$self->tell('other_tokens')
	  if "@told" ne "@expected";
	return @tokens;
}

# What is left is the shared acquisition, on the exclusive node.
sub _take_both_modes ($self)
{
	my ($plan, $home) = @{$self}{qw(plan home_db)};
	$home->value('SELECT zk_lock_shared(?)', $plan->{name});
	$home->value('SELECT zk_unlock(?)', $plan->{name});
	$self->tell('took_both_modes');
	return;
}

# How long the wait may take, in seconds; "" if for ever. Only those that ask
# once are bounded by the time to connect.
sub _bound ($plan)
{
	return '' if $plan->{wait} =~ /^(forever|try_once)$/ || $plan->{kind} =~ /^(free|call|lease)$/;
	return sprintf '%.3f', $plan->{patience};
}

# What the function returns: the token or the tokens, or whether a try went well.
sub _ask ($self, $name = undef)
{
	my ($plan, $home) = @{$self}{qw(plan home_db)};
	my $is_try = $plan->{wait} =~ /^try/;
	my $timeout = $self->timeout;
	my $is_path = $plan->{function} eq 'path';
	my $is_set = $plan->{function} eq 'names';
	my $function = join '_', 'zk', $is_try ? 'try' : (),
	  $plan->{scope} eq 'transaction' ? 'xact' : (), 'lock',
	  $is_path ? 'path' : (),
	  $is_set ? 'set' : (),
	  $self->_is_shared && !$is_path ? 'shared' : ();
	my ($arguments, @values) = ('?, ?', $name // $plan->{name}, $timeout);
	if ($is_path)
	{
		$arguments = '?, ?, mode => ?';
		push @values, $self->_is_shared ? 'shared' : 'exclusive';
	}
	elsif ($is_set)
	{
		$arguments = '?::text[], ?, modes => ?::text[]';
		@values = ($plan->{names}, $timeout, $plan->{modes});
	}
	elsif ($plan->{permits} > 1)
	{
		$arguments = '?, ?, permits => ?';
		push @values, $plan->{permits};
	}

	# For this one wait; recovery resets it, too.
	$self->set_lock_timeout;
	$self->{is_asking} = $self->{state} eq 'asking' && !defined $name;
	my $answer = $home->value("SELECT $function($arguments)", @values);
	$self->{is_asking} = 0;
	$home->execute('RESET lock_timeout') if $plan->{wait} eq 'lock_timeout';
	return $answer;
}

=pod

=head2 timeout, set_lock_timeout

What the plan has for the argument timeout, as an interval, or undef; and for lock_timeout.

=head2 interval($seconds)

Of SQL.

=cut

sub timeout ($self)
{
	my $plan = $self->{plan};
	return
	    $plan->{wait} eq 'try_once' ? '0'
	  : $plan->{wait} =~ /^(try_for|timeout)$/ ? interval($plan->{patience})
	  : undef;
}

sub set_lock_timeout ($self)
{
	my ($plan, $home) = @{$self}{qw(plan home_db)};
	$home->execute("SET lock_timeout = '" . interval($plan->{patience}) . "'") if $plan->{wait} eq 'lock_timeout';
	return;
}

sub interval { return sprintf '%d ms', 1000 * $_[0]; }

# Is the one lock that the function names shared?
sub _is_shared ($self)
{
	my $plan = $self->{plan};
	return $plan->{function} ne 'names' && $plan->{modes}[-1] eq 'shared';
}

# Read, think, write, commit, in the transaction that is open, in one phase or in two.
sub _increment ($self, $db, $prepares = undef)
{
	my $plan = $self->{plan};
	$self->hold_for($plan->{slow}, 'slow') if $plan->{slow} && $plan->{slow_early};
	$plan->{v} = _read_counters($db, $plan->{read});
	$self->tell('read');
	sleep $plan->{think};
	$self->hold_for($plan->{slow}, 'slow') if $plan->{slow} && !$plan->{slow_early};
	# Readers see to it that nothing moves.
	$plan->{again} =
	    @{ $plan->{write} } < @{ $plan->{read} }
	  ? _read_counters($db, $plan->{read})
	  : $plan->{v};
	$self->_write($db);
	if ($plan->{unlocks_early} && $db == $self->{home_db})
	{
		# Nobody else has it before the transaction has ended.
		$plan->{was_held} = $self->_unlock;
		$self->tell('unlocked_early');
	}
	if ($prepares)
	{
		$plan->{is_prepared} = 1;
		$db->execute('PREPARE TRANSACTION ' . $self->_name_prepared);
		sleep rand $prepared;
	}
	$self->enter('committing');
	$self->tell('commit_sent');
	$db->execute($prepares ? 'COMMIT PREPARED ' . $self->_name_prepared : 'COMMIT');
	$self->tell('committed');
	$self->enter('releasing');
	return;
}

sub _name_prepared ($self)
{
	return "'worker $self->{worker} cycle $self->{plan}{cycle}'";
}

# After an error: if it was prepared and not committed, it ends now. Somebody whose end
# is still to come may have it in hand.
sub _settle ($self)
{
	my $sqlstate = 'none';
	until ($sqlstate =~ /^(|42704)$/)
	{
		$sqlstate = '';
		next if eval {
			$self->connect;
			$self->enter('settling');
			$self->{home_db}->execute('ROLLBACK PREPARED ' . $self->_name_prepared);
			1;
		};
		die $@ unless blessed $@;
		$sqlstate = $@->sqlstate || '?';
		$self->{home_db} = undef if $@->is_lost;
		sleep 0.1 if $sqlstate ne '42704';
	}
	return;
}

# Values by name.
sub _read_counters ($db, $names = undef)
{
	return {} unless @$names;
	my $rows =
	  $db->rows('SELECT name, v FROM counter WHERE name = ANY (?)', $names);
	return { map { $_->[0] => $_->[1] } @$rows };
}

# In the order of names, so that those who should not meet do not wait for each
# other in a circle when they do. What a semaphore guards has no value.
sub _write ($self, $db = undef)
{
	my $plan = $self->{plan};
	my %is_written = map { $_ => 1 } @{ $plan->{write} };
	foreach my $name (@{ $plan->{write} })
	{
		$db->execute('UPDATE counter SET v = ? WHERE name = ?',
			$plan->{v}{$name} + 1, $name);
	}
	foreach my $name (@{ $plan->{read} } ? @{ $plan->{read} } : $plan->{name})
	{
		$db->execute(
			'INSERT INTO ledger (worker, cycle, name, is_reader, v, again)
			 VALUES (?, ?, ?, ?, ?, ?)',
			$self->{worker}, $plan->{cycle}, $name,
			$is_written{$name} ? 0 : 1,
			$plan->{v}{$name}, $plan->{again}{$name});
	}
	return;
}

=pod

=head2 increment_in_vault

In a transaction of its own.

=cut

=pod

=head2 commit_at_home

In the transaction that is open there.

=cut

sub commit_at_home ($self)
{
	my ($plan, $home) = @{$self}{qw(plan home_db)};
	my $setting =
	  $plan->{is_synchronous} ? 'on' : $plan->{is_asynchronous} ? 'off' : 'local';
	$home->execute("SET LOCAL synchronous_commit = $setting");
	$home->execute('NOTIFY torture') if $plan->{notifies} && !$plan->{prepares};
	$self->_increment($home, $plan->{prepares});
	return;
}

# The lock may have been lost long ago: who writes here does not know.
sub increment_in_vault ($self)
{
	my ($plan, $vault) = @{$self}{qw(plan vault_db)};
	if ($plan->{slow} && $plan->{slow_early})
	{
		$self->hold_for($plan->{slow}, 'slow');
		$plan->{slow} = 0;
	}
	$vault->execute('BEGIN');
	$vault->execute('SELECT zk_fence(?, ?)', $plan->{name}, $plan->{token})
	  if $plan->{kind} eq 'fenced' && $plan->{token};
	$self->_increment($vault);
	return;
}

=pod

=head2 hold_for($seconds, $state)

Asleep with the lock: "slow" with a transaction open, or "resting".

=cut

sub hold_for ($self, $seconds, $state)
{
	$self->enter($state, until => now() + $seconds);
	sleep $seconds;
	$self->enter('holding');
	return;
}

sub _release ($self)
{
	my ($plan, $home) = @{$self}{qw(plan home_db)};
	my $was_held = 1;
	if ($plan->{scope} eq 'transaction')
	{
		$home->execute('COMMIT');
	}
	elsif (defined $plan->{was_held})
	{
		$was_held = $plan->{was_held};
	}
	else
	{
		$self->tell('release_sent');
		$was_held = $self->_unlock;
	}
	$self->tell('released', was_held => $was_held ? 1 : 0);
	return;
}

sub _unlock ($self)
{
	my ($plan, $home) = @{$self}{qw(plan home_db)};
	return $home->value('SELECT zk_unlock_set(?::text[], ?::text[])',
		$plan->{names}, $plan->{modes})
	  if $plan->{function} eq 'names' || $plan->{kind} eq 'free';
	my $is_shared = $plan->{both_modes} || $self->_is_shared;
	return $home->value('SELECT zk_unlock_path(?, ?)', $plan->{name}, $is_shared ? 'shared' : 'exclusive')
	  if $plan->{function} eq 'path';
	my $function = $is_shared ? 'zk_unlock_shared' : 'zk_unlock';
	return $home->value("SELECT $function(?)", $plan->{name});
}

=pod

=head2 enter($state, more => ...)

Tell the others where we are, and ourselves where a failure came from.

=cut

sub enter ($self, $state, %more)
{
	$self->{state} = $state;
	$self->_post($state, %more);
	return;
}

sub _post ($self, $state, %more)
{
	my ($plan, $home) = @{$self}{qw(plan home_db)};
	$self->{board}->post(
		$self->{worker},
		state => $state,
		cluster => $self->{cluster},
		pid => $home ? $home->pid : 0,
		name => $plan->{name},
		cycle => $plan->{cycle},
		%more);
	return;
}

=pod

=head2 connect, with_db($is_away, $code)

The connections, where there are none; what the code returns, given that of the backend that
takes locks, or one to the other cluster with zklock, which ends with it.

=cut

sub connect ($self)
{
	return if $self->{home_db} && $self->{vault_db};
	$self->enter('connecting');
	foreach my $where (qw(home vault))
	{
		next if $self->{"${where}_db"};
		my $db = Torture::Connection->new($self->{$where},
			"worker-$self->{worker}");
		$db->execute('SET client_min_messages = warning');
		$db->execute("SET zklock.keep = '$keep'")
		  if $where eq 'home' && $self->{keeps};
		$self->{"${where}_db"} = $db;
	}
	$self->{history}->note('connected', pid => $self->{home_db}->pid);
	return;
}

sub with_db ($self, $is_away, $code)
{
	return $code->($self->{home_db}) unless $is_away;
	my $db = Torture::Connection->new($self->{away}, "worker-$self->{worker}");
	my $answer = eval { $code->($db) };
	my $failure = $@;
	eval { $db->close };
	die $failure if $failure;
	return $answer;
}

=pod

=head2 note_failure($failure)

=cut

# A commit that failed: refused if the server says so; if it said nothing, only
# the ledger knows.
sub note_failure ($self, $failure)
{
	my $state = $self->{state};
	my $event =
		$state ne 'committing' ? 'failed'
	  : $failure->is_lost ? 'unknown'
	  : 'refused';
	$self->tell($event,
		stage => $state,
		sqlstate => $failure->sqlstate,
		lost => $failure->is_lost,
		message => $failure->message);
	return;
}

# Back to a state in which the next cycle can begin: nothing held, nothing open.
sub _recover ($self)
{
	$self->enter('recovering');
	foreach my $where (qw(home vault))
	{
		foreach my $attempt (1 .. $recovery_attempts)
		{
			my $db = $self->{"${where}_db"} or last;
			eval { $self->_clean($db, $where); 1 } and last;
			my $failure = $@;
			die $failure unless blessed $failure;
			$self->{"${where}_db"} = undef
			  if $failure->is_lost || $attempt == $recovery_attempts;
		}
	}
	# A cluster that is starting up is not to be hammered.
	sleep 0.1 + rand(0.1) unless $self->{home_db};
	return;
}

sub _clean ($self, $db, $where)
{
	$db->execute('ROLLBACK');
	return if $where eq 'vault';
	if ($self->{is_asking})
	{
		my $plan = $self->{plan};
		$self->_check_taken(
			$plan->{scope} eq 'session' ? scalar @{ $plan->{names} } : 0);
		$self->{is_asking} = 0;
	}
	$db->execute('SELECT zk_unlock_all()');
	$db->execute('RESET lock_timeout');
	my $held = $db->value('SELECT count(*) FROM zk_session_locks');
	$self->tell('leftover', held => $held)
	  if $held;
	return;
}

1;
