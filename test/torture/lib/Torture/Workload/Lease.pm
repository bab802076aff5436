
=pod

=head1 NAME

Torture::Workload::Lease - a lease is taken, renewed, used and given up

=head1 DESCRIPTION

The course of a worker through zk_try_lease(): it asks for a lease, in one call or in several,
perhaps does nothing for a while, increments the counter
in a transaction that rests on the lease, which others may renew meanwhile, and gives it up.
All but the transaction goes through any cluster.

Each cycle is an owner of its own. What it leaves behind, after an error or because it
likes to, is over after a term, and others see to that: nobody knows the owner any more.

=cut

package Torture::Workload::Lease;

use v5.36;

use Torture::History qw(now);

# One in so many calls goes through the other cluster, and one in so many leases is left
# behind.
my $away_one_in = 4;
my $left_one_in = 8;

# One in so many transactions is renewed by somebody else while it is open.
my $renewed_one_in = 2;

# How long each of several calls waits, in seconds.
my $call = 0.2;

=pod

=head2 run($worker)

=cut

sub run ($worker)
{
	my $plan = $worker->{plan};
	$worker->connect;
	$worker->note_asked;
	my $token = _lease($worker);
	if (!$token)
	{
		$worker->tell('gave_up');
		return;
	}
	$worker->note_granted($token);
	$worker->hold_for($plan->{rest}, 'resting') if $plan->{rest};
	$worker->{home_db}->execute('BEGIN');
	$worker->{home_db}->execute('SELECT zk_require_lease(?, ?)', $plan->{name}, $token);
	_somewhere($worker, sub ($db) {
		$db->value('SELECT zk_renew_lease(?, ?, ?)', $plan->{name}, $token, Torture::Workload::interval($plan->{term}));
	}) if rand($renewed_one_in) < 1;
	$worker->commit_at_home;
	$worker->tell('release_sent');
	my $is_held = rand($left_one_in) < 1 || _somewhere($worker, sub ($db) {
		$db->value('SELECT zk_release_lease(?, ?)', $plan->{name}, $token);
	});
	$worker->tell('released', was_held => $is_held ? 1 : 0);
	return;
}

# The token; undef if it has not come in time. Who waits for ever asks again and again,
# from wherever.
sub _lease ($worker)
{
	my $plan = $worker->{plan};
	my $repeats = $plan->{wait} eq 'forever';
	my ($token, $until) = (undef, now() + 60);
	my $ask = sub ($db) {
		my $try = $plan->{modes}[0] eq 'shared' ? 'zk_try_lease_shared(?, ?, ?, ?)' : 'zk_try_lease(?, ?, ?, ?, permits => ?)';
		$token = $db->value("SELECT $try",
			$plan->{name}, "worker $worker->{worker} cycle $plan->{cycle}", Torture::Workload::interval($plan->{term}),
			Torture::Workload::interval($plan->{wait} eq 'try_once' ? 0 : $repeats ? $call : $plan->{patience}),
			$plan->{modes}[0] eq 'shared' ? () : $plan->{permits});
	};
	do { _somewhere($worker, $ask) } while !$token && $repeats && now() < $until;
	return $token;
}

sub _somewhere ($worker, $code)
{
	return $worker->with_db(rand($away_one_in) < 1, $code);
}

1;
