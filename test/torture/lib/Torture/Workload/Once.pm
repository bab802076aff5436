
=pod

=head1 NAME

Torture::Workload::Once - slots of a job, each of which is to run once

=head1 DESCRIPTION

The course of a worker through zk_run_once(). Every few seconds of the clock that
all workers have in common there is a round of slots, and all who are here ask for
all of them at once, each in an order of its own. Those of every second round come
again a few rounds later, and their records are kept for a moment only: then each
can be claimed anew, by one. After an error the call is
repeated in the same session, as the documentation says; if that has ended it is
open whether the slot was taken.

=cut

package Torture::Workload::Once;

use v5.36;

use List::Util qw(shuffle);
use Scalar::Util qw(blessed);
use Time::HiRes qw(sleep);
use Torture::History qw(now);

# Seconds from round to round, and how many slots there are in each.
my $round_length = 1.6;
my $slots = 10;

# In how many rounds a slot comes again, and how long its record is kept, in seconds.
my $again_after = 4;
our $retention = 2;

# How often a call is repeated after an error, and after how long.
my $attempts = 30;
my $retry_interval = 0.05;

=pod

=head2 run($worker)

=cut

sub run ($worker)
{
	$worker->connect;
	$worker->enter('idle');
	my $round = int(now() / $round_length) + 1;
	my $pause = $round * $round_length - now();
	sleep $pause if $pause > 0;
	$worker->enter('claiming');
	my $is_fleeting = $round % 2;
	foreach my $slot (shuffle(0 .. $slots - 1))
	{
		$is_fleeting
		  ? _claim($worker, $round % $again_after . $slot, 'once/b', "$retention s")
		  : _claim($worker, "$round$slot", 'once/a', '1 day');
	}
	return;
}

# Notes what came of it: t, f, or open.
sub _claim ($worker, $slot, $name, $kept_for)
{
	my ($answer, $failure);
	my $sent = now();
	foreach my $attempt (1 .. $attempts)
	{
		last
		  if eval {
			$answer = $worker->{home_db}->value(
				'SELECT zk_run_once(?, ?, ?)', $name, $slot, $kept_for);
			1;
		  };
		$failure = $@;
		last if !blessed $failure || $failure->is_lost;
		$worker->note_failure($failure);
		sleep $retry_interval;
	}
	$worker->{history}->note(
		'claimed',
		slot => $slot,
		name => $name,
		sent => sprintf('%.6f', $sent),
		answer => !defined $answer ? 'open' : $answer ? 't' : 'f',
		was_repeated => $failure ? 1 : 0);
	die $failure unless defined $answer;
	return;
}

1;
