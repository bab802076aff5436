
=pod

=head1 NAME

Torture::Workload::Hold - a hold is made, used and released

=head1 DESCRIPTION

The course of a worker through zk_hold(): make a hold, part with the session
that made it, or not, increment the counter in the vault without guard or fence,
and release the hold by its token, through any cluster.

An error that comes with a live connection means that there is no hold, unless a
warning has told otherwise. When the connection is lost nobody knows: the hold is
looked for by its reason, as the documentation says, and released if it is there.

=cut

package Torture::Workload::Hold;

use v5.36;

use Scalar::Util qw(blessed);
use Time::HiRes qw(sleep);
use Torture::History qw(now);

# For so long, in session timeouts, a hold may still appear that was asked for
# over a connection that is lost.
my $settle_timeouts = 2.5;

# What is done with the session that has made a hold.
my @partings = qw(none disconnect leave);

# One in so many releases goes through the other cluster.
my $away_one_in = 3;

my $retry_interval = 0.1;

=pod

=head2 run($worker)

=cut

sub run ($worker)
{
	$worker->connect;
	$worker->note_asked;
	my $token = _hold($worker);
	$worker->note_granted($token);
	_part($worker, $partings[ rand @partings ]);
	my $is_done = eval { $worker->increment_in_vault; 1 };
	my $failure = $@;
	_release($worker, $token);
	die $failure unless $is_done;
	return;
}

# The token.
sub _hold ($worker)
{
	my ($plan, $home) = @{$worker}{qw(plan home_db)};
	my ($token, @warnings);
	$worker->set_lock_timeout;
	$home->execute('BEGIN') if $plan->{scope} eq 'transaction';
	return $token
	  if eval {
		$token = $home->value_with_warnings(\@warnings,
			'SELECT zk_hold(?, ?, ?)',
			$plan->{name}, _reason($worker), $worker->timeout);
		1;
	  };
	my $failure = $@;
	$plan->{may_be_undone} = grep { /may be a permanent hold/ } @warnings;
	$plan->{is_unsettled} = $failure->is_lost || $plan->{may_be_undone};
	die $failure;
}

sub _reason ($worker)
{
	return "worker $worker->{worker} cycle $worker->{plan}{cycle}";
}

# The hold must not mind, nor the end of the transaction.
sub _part ($worker, $parting)
{
	my $home = $worker->{home_db};
	my $is_well = eval {
		$home->execute('ROLLBACK')
		  if $worker->{plan}{scope} eq 'transaction';
		$home->execute('RESET lock_timeout');
		$home->execute('SELECT zk_disconnect()')
		  if $parting eq 'disconnect';
		1;
	};
	return if $is_well && $parting ne 'leave';
	eval { $home->close };
	$worker->{home_db} = undef;
	return;
}

# Until there is an answer. One that is false is no surprise when the reply to an
# earlier attempt was lost, or when its maker warned of it: that one undoes it as soon as
# it has contact again.
sub _release ($worker, $token)
{
	my $plan = $worker->{plan};
	my ($answer, $attempts) = (undef, 0);
	$worker->enter('releasing');
	$worker->tell('release_sent');
	until (defined $answer)
	{
		$answer = _through($worker, rand($away_one_in) < 1,
			sub ($db) { $db->value('SELECT zk_release_hold(?, ?)', $plan->{name}, $token) });
		$attempts++;
		sleep $retry_interval unless defined $answer;
	}
	$worker->tell('hold_released', was_held => $answer || $attempts > 1 || $plan->{may_be_undone} ? 1 : 0);
	return;
}

# What the code returns, given a connection, home or away; undef if it has failed.
sub _through ($worker, $is_away, $code)
{
	my $state = $worker->{state};
	my $answer = eval {
		$worker->connect unless $is_away;
		$worker->enter($state);
		$worker->with_db($is_away, $code);
	};
	my $failure = $@ or return $answer;
	die $failure unless blessed $failure;
	$worker->note_failure($failure);
	$worker->{home_db} = undef if !$is_away && $failure->is_lost;
	return undef;
}

=pod

=head2 settle($worker)

After a failure that left open whether there is a hold: release it if there is
one, now or later.

=cut

sub settle ($worker)
{
	my $until = now() + $settle_timeouts * $worker->{session_timeout};
	my $is_over = 0;
	$worker->enter('settling');
	until ($is_over)
	{
		my $is_last = now() > $until;
		my $found = _through($worker, 1, sub ($db) { _find($worker, $db); });
		my $state = $found && $found->{state};
		if (defined $state && $state ne 'pending')
		{
			$worker->tell('hold_found');
			_release($worker, $found->{token});
			return;
		}
		$worker->tell('hold_void')
		  if $is_last && defined $state;
		$is_over = $is_last && $found;
		sleep $retry_interval unless $is_over;
	}
	return;
}

# Its token and state; empty if there is none. A void one goes when the next
# contender comes by: here it is. What it takes ends with the connection.
sub _find ($worker, $db)
{
	my $name = $worker->{plan}{name};
	$db->value('SELECT zk_try_lock(?)', $name);
	$db->value('SELECT zk_unlock_all()');
	my $rows = $db->rows(
		'SELECT token, state FROM zk_lock_queue(?) WHERE data = ?',
		$name, _reason($worker));
	return {} unless @$rows;
	return { token => $rows->[0][0], state => $rows->[0][1] };
}

1;
