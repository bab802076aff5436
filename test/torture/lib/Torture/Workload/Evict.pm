
=pod

=head1 NAME

Torture::Workload::Evict - somebody loses its place in a queue by force

=head1 DESCRIPTION

The course of a worker that evicts a holder or a waiter, of either cluster, its
own included. Who is evicted between the guard's proof and its commit record has
a lock no more and commits all the same; the history tells when that may have been.

=cut

package Torture::Workload::Evict;

use v5.36;

=pod

=head2 run($worker)

=cut

sub run ($worker)
{
	$worker->connect;
	$worker->enter('evicting');
	my ($plan, $home, $history) = @{$worker}{qw(plan home_db history)};
	my $rows = $home->rows(
		'SELECT token FROM zk_lock_queue(?) WHERE position IS NOT NULL
		 ORDER BY position', $plan->{name});
	return unless @$rows;
	# Mostly the holder.
	my $token = $rows->[ rand(2) < 1 ? 0 : rand @$rows ][0];
	$history->note('evict_sent', token => $token);
	my $answer =
	  $home->value('SELECT zk_evict(?, ?)', $plan->{name}, $token);
	$history->note('evicted', token => $token, answer => $answer);
	return;
}

1;
