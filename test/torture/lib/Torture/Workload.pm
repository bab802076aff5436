
=pod

=head1 NAME

Torture::Workload - one worker: takes locks and changes what they guard

=head1 DESCRIPTION

A worker has a connection to its home cluster, whose backend takes the locks,
and one to the vault, a cluster that the nemesis leaves alone. In each cycle it
takes a lock and increments a counter in the most careless way: it reads the
value, thinks, and writes the value read plus one. Beside the increment, in the
same transaction, it writes who did it into a ledger; so it is known for sure in
the end which transactions have committed, those without an answer included.

There are three kinds of lock:

  local   the counter is in the home cluster and is changed by the very
          backend that holds the lock. The commit guard answers for it. Both
          clusters contend for the same locks; each has its own counter.
  fenced  the counter is in the vault and is changed through the other
          connection, which knows of the lock by its token alone. zk_fence()
          answers for it.
  bare    like fenced, without zk_fence(). Nobody answers for it: it shows what
          the fence is good for.

=cut

package Torture::Workload;

use strict;
use warnings;

use Scalar::Util qw(blessed);
use Time::HiRes qw(sleep);
use Torture::Connection;
use Torture::History qw(now);

# How often which kind is chosen, and the locks there are of it.
our %locks = (
	local => [ 'local/a', 'local/b' ],
	fenced => [ 'fenced/a', 'fenced/b' ],
	bare => ['bare/a']);
my %kind_weight = (local => 55, fenced => 30, bare => 15);

# How to ask; the numbers are weights, too.
my %wait_weight = (
	forever => 45,
	timeout => 20,
	try_for => 15,
	try_once => 8,
	lock_timeout => 12);

# One in so many cycles sleeps through a session timeout with the lock held.
my $slow_one_in = 20;

# One in so many waits with a bound is ready to wait only about as long as a
# lock is held, in seconds: it gives up just as the one ahead lets go.
my $brief_one_in = 3;
my $brief = 0.1;

# One in so many cycles of session scope keeps the lock as a reader before it
# changes anything: its node is replaced while writers wait behind it. There are
# no other readers, so it stays alone.
my $downgrade_one_in = 5;

# Recovery is tried so often: a late cancel may hit each of its statements.
my $recovery_attempts = 50;

=pod

=head1 METHODS

=head2 new(option => value, ...)

worker (number), cluster (name of the home), home and vault (connection strings),
history, board, session_timeout (seconds), sabotage (or ""), until (time),
quit (a file handle that is at its end when the worker shall go).

=cut

sub new
{
	my ($class, %option) = @_;
	return bless { %option, cycle => 0, parent => getppid() }, $class;
}

sub run
{
	my ($self) = @_;
	$self->_cycle while now() < $self->{until} && $self->_has_parent;
	$self->_post('parked');
	$self->{history}->note('parked');
	# Connected, so that a node left behind is not hidden by our leaving.
	readline $self->{quit};
	$self->{$_} && $self->{$_}->close foreach qw(home_db vault_db);
	$self->_post('ended', pid => 0);
	return;
}

sub _has_parent
{
	my ($self) = @_;
	return getppid() == $self->{parent};
}

# One cycle, whatever happens in it.
sub _cycle
{
	my ($self) = @_;
	my $plan = $self->{plan} = $self->_make_plan;
	eval { $self->_attempt; 1 } and return;
	my $failure = $@;
	die $failure unless blessed $failure && $failure->isa('Torture::Failure');
	$self->_note_failure($failure);
	$self->_recover;
	$self->_write_regardless
	  if $self->{sabotage} eq 'ignore-refusal'
	  && $failure->sqlstate eq '40001'
	  && defined $plan->{v};
	return;
}

sub _make_plan
{
	my ($self) = @_;
	my $kind = _choose(%kind_weight);
	my $names = $locks{$kind};
	my $scope = rand(2) < 1 ? 'session' : 'transaction';
	return {
		cycle => ++$self->{cycle},
		kind => $kind,
		name => $names->[ rand @$names ],
		scope => $scope,
		wait => _choose(%wait_weight),
		patience => rand($brief_one_in) < 1
		? 0.005 + rand($brief)
		: 0.1 + rand($self->{session_timeout}),
		downgrade => rand($downgrade_one_in) < 1
		  && $scope eq 'session'
		  && $self->{sabotage} ne 'no-lock',
		think => 0.001 + rand(0.015),
		slow => rand($slow_one_in) < 1
		? $self->{session_timeout} * (1.2 + rand(1.2))
		: 0,
		# Where a slow worker sleeps: before or after it has read.
		slow_early => rand(2) < 1 };
}

# One of the keys, by weight.
sub _choose
{
	my (%weight) = @_;
	my $sum = 0;
	$sum += $_ foreach values %weight;
	my $dice = rand $sum;
	foreach my $key (sort keys %weight)
	{
		return $key if ($dice -= $weight{$key}) < 0;
	}
	return (sort keys %weight)[-1];
}

sub _attempt
{
	my ($self) = @_;
	my $plan = $self->{plan};
	$self->_connect;
	my $home = $self->{home_db};
	my $in_transaction = $plan->{scope} eq 'transaction';

	$self->_enter('asking');
	$self->{history}->note(
		'asked',
		cycle => $plan->{cycle},
		pid => $home->pid,
		patience => _bound($plan),
		map { $_ => $plan->{$_} } qw(kind name scope wait));
	$home->execute('BEGIN') if $in_transaction;
	return unless $self->_take_lock;
	$self->_downgrade if $plan->{downgrade};
	if ($plan->{kind} eq 'local')
	{
		$home->execute('BEGIN') unless $in_transaction;
		$self->_increment($home);
		# That was the release of a lock of transaction scope, too.
		return if $in_transaction;
	}
	else
	{
		$self->_increment_in_vault;
	}
	$self->_release;
	return;
}

# Whether the lock was granted; without it the cycle is over.
sub _take_lock
{
	my ($self) = @_;
	my ($plan, $home) = @{$self}{qw(plan home_db)};
	my $token =
	  $self->{sabotage} eq 'no-lock' ? 0 : _ask($home, $plan);
	if (!defined $token)
	{
		$self->{history}->note('gave_up', cycle => $plan->{cycle});
		$home->execute('ROLLBACK') if $plan->{scope} eq 'transaction';
		return 0;
	}
	$plan->{token} = $token;
	$self->{history}
	  ->note('granted', cycle => $plan->{cycle}, token => $token);
	$self->_enter('holding');
	return 1;
}

sub _downgrade
{
	my ($self) = @_;
	my ($plan, $home) = @{$self}{qw(plan home_db)};
	$home->value('SELECT zk_lock_shared(?)', $plan->{name});
	$home->value('SELECT zk_unlock(?)', $plan->{name});
	$self->{history}->note('downgraded', cycle => $plan->{cycle});
	return;
}

# How long the wait may take, in seconds; "" if for ever. Only those that ask
# once are bounded by the time to connect.
sub _bound
{
	my ($plan) = @_;
	return '' if $plan->{wait} =~ /^(forever|try_once)$/;
	return sprintf '%.3f', $plan->{patience};
}

# The token, or undef if a try failed.
sub _ask
{
	my ($home, $plan) = @_;
	my $scope = $plan->{scope} eq 'transaction' ? 'xact_' : '';
	my $wait = $plan->{wait};
	my $patience = sprintf '%d ms', 1000 * $plan->{patience};

	if ($wait =~ /^try/)
	{
		$patience = '0' if $wait eq 'try_once';
		my $granted =
		  $home->value("SELECT zk_try_${scope}lock(?, ?)", $plan->{name},
			$patience);
		return undef unless $granted;
		return $home->value('SELECT zk_fencing_token(?)', $plan->{name});
	}
	return $home->value("SELECT zk_${scope}lock(?, ?)", $plan->{name},
		$patience)
	  if $wait eq 'timeout';
	return $home->value("SELECT zk_${scope}lock(?)", $plan->{name})
	  if $wait eq 'forever';

	# With lock_timeout for this one wait; recovery resets it, too.
	$home->execute("SET lock_timeout = '$patience'");
	my $token = $home->value("SELECT zk_${scope}lock(?)", $plan->{name});
	$home->execute('RESET lock_timeout');
	return $token;
}

# Read, think, write, commit, in the transaction that is open.
sub _increment
{
	my ($self, $db) = @_;
	my ($plan, $history) = @{$self}{qw(plan history)};
	$self->_oversleep if $plan->{slow} && $plan->{slow_early};
	$plan->{v} =
	  $db->value('SELECT v FROM counter WHERE name = ?', $plan->{name});
	$history->note('read', cycle => $plan->{cycle}, v => $plan->{v});
	sleep $plan->{think};
	$self->_oversleep if $plan->{slow} && !$plan->{slow_early};
	$self->_write($db);
	$self->_enter('committing');
	$history->note('commit_sent', cycle => $plan->{cycle});
	$db->execute('COMMIT');
	$history->note('committed', cycle => $plan->{cycle});
	$self->_enter('releasing');
	return;
}

sub _write
{
	my ($self, $db) = @_;
	my $plan = $self->{plan};
	$db->execute('UPDATE counter SET v = ? WHERE name = ?',
		$plan->{v} + 1, $plan->{name});
	$db->execute(
		'INSERT INTO ledger (worker, cycle, name, token, v)
		 VALUES (?, ?, ?, ?, ?)',
		$self->{worker}, $plan->{cycle}, $plan->{name}, $plan->{token},
		$plan->{v});
	return;
}

# The lock may have been lost long ago: who writes here does not know.
sub _increment_in_vault
{
	my ($self) = @_;
	my ($plan, $vault) = @{$self}{qw(plan vault_db)};
	if ($plan->{slow} && $plan->{slow_early})
	{
		$self->_oversleep;
		$plan->{slow} = 0;
	}
	$vault->execute('BEGIN');
	$vault->execute('SELECT zk_fence(?, ?)', $plan->{name}, $plan->{token})
	  if $plan->{kind} eq 'fenced' && $plan->{token};
	$self->_increment($vault);
	return;
}

sub _oversleep
{
	my ($self) = @_;
	$self->_enter('slow');
	sleep $self->{plan}{slow};
	$self->_enter('holding');
	return;
}

sub _release
{
	my ($self) = @_;
	my ($plan, $home) = @{$self}{qw(plan home_db)};
	my $was_held = 1;
	if ($plan->{scope} eq 'transaction')
	{
		$home->execute('COMMIT');
	}
	elsif ($self->{sabotage} ne 'no-lock')
	{
		my $mode = $plan->{downgrade} ? '_shared' : '';
		$was_held = $home->value("SELECT zk_unlock$mode(?)", $plan->{name});
	}
	$self->{history}->note(
		'released',
		cycle => $plan->{cycle},
		was_held => $was_held ? 1 : 0);
	return;
}

# Tell the others where we are, and ourselves where a failure came from.
sub _enter
{
	my ($self, $state) = @_;
	$self->{state} = $state;
	$self->_post($state);
	return;
}

sub _post
{
	my ($self, $state, %more) = @_;
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

sub _connect
{
	my ($self) = @_;
	return if $self->{home_db} && $self->{vault_db};
	$self->_enter('connecting');
	foreach my $where (qw(home vault))
	{
		next if $self->{"${where}_db"};
		my $db = Torture::Connection->new($self->{$where},
			"worker-$self->{worker}");
		$db->execute('SET client_min_messages = error');
		$self->{"${where}_db"} = $db;
	}
	$self->{history}->note('connected', pid => $self->{home_db}->pid);
	return;
}

# A commit that failed: refused if the server says so; if it said nothing, only
# the ledger knows.
sub _note_failure
{
	my ($self, $failure) = @_;
	my $state = $self->{state};
	my $event =
		$state ne 'committing' ? 'failed'
	  : $failure->is_lost ? 'unknown'
	  : 'refused';
	$self->{history}->note(
		$event,
		cycle => $self->{plan}{cycle},
		stage => $state,
		sqlstate => $failure->sqlstate,
		lost => $failure->is_lost,
		message => $failure->message);
	return;
}

# Back to a state in which the next cycle can begin: nothing held, nothing open.
sub _recover
{
	my ($self) = @_;
	$self->_enter('recovering');
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

sub _clean
{
	my ($self, $db, $where) = @_;
	$db->execute('ROLLBACK');
	return if $where eq 'vault';
	$db->execute('SELECT zk_unlock_all()');
	$db->execute('RESET lock_timeout');
	my $held = $db->value('SELECT count(*) FROM zk_locks');
	$self->{history}
	  ->note('leftover', cycle => $self->{plan}{cycle}, held => $held)
	  if $held;
	return;
}

# Sabotage: what an application does that does not take no for an answer.
sub _write_regardless
{
	my ($self) = @_;
	my $db = $self->{ $self->{plan}{kind} eq 'local' ? 'home_db' : 'vault_db' }
	  or return;
	eval {
		$db->execute('BEGIN');
		$self->_write($db);
		$db->execute('COMMIT');
		1;
	} or eval { $db->execute('ROLLBACK') };
	return;
}

1;
