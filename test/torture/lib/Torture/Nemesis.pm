
=pod

=head1 NAME

Torture::Nemesis - what chooses faults, injects them and heals them again

=head1 DESCRIPTION

The common part: a seeded choice from a menu, faults that are healed after a
while, a log of both. See Torture::Nemesis::Backends and ::Servers. Each has
random numbers of its own, so that the same seed gives the same sequence of
faults; whom they hit depends on what the victims are doing.

=cut

package Torture::Nemesis;

use v5.36;

use POSIX qw(floor);
use Torture::History qw(now);
use Torture::Plan qw(choose_by_weight);

# Those that excuse something: a backend stands still, a standby is held up.
my $excusing = qr/^(stop_|wake_|freeze_standby)/;

# Faults come in storms with calm between them, in which what was disturbed must
# find back, in seconds.
my $storm = 14;
my $calm = 6;

=pod

=head2 new(option => value, ...)

history, session_timeout (seconds), pause (seconds between faults, on average),
is_control (no fault that excuses anything, see L<Torture::Excuses>), only (a regular
expression: no other faults), and what the kind of nemesis needs.

=cut

sub new ($class, %option)
{
	my $now = now();
	return bless {
		%option,
		heals => [],
		begin => $now,
		next_at => $now + 1 }, $class;
}

=pod

=head2 step

Heals what is due and injects a fault if it is time. Returns the time of the
next thing to do.

=head2 heal_all

=cut

sub step ($self)
{
	# By one time: what becomes due between two would be in neither list, and never be healed.
	my $now = now();
	my @due = grep { $_->{at} <= $now } @{ $self->{heals} };
	$self->{heals} = [ grep { $_->{at} > $now } @{ $self->{heals} } ]
	  if @due;
	$self->_heal($_) foreach @due;
	if (now() >= $self->{next_at})
	{
		my $kind = $self->_choose;
		$self->inject($kind) if defined $kind;
		# Exponential, as independent accidents come.
		$self->{next_at} =
		  $self->_in_storm(now() - $self->{pause} * log(1 - rand));
	}
	my ($next) = sort { $a <=> $b } $self->{next_at},
	  map { $_->{at} } @{ $self->{heals} };
	return $next;
}

sub heal_all ($self)
{
	$self->_heal($_) foreach splice @{ $self->{heals} };
	return;
}

# That time, or if it is calm then, the beginning of the next storm.
sub _in_storm ($self, $time)
{
	my $length = $storm + $calm;
	my $round = floor(($time - $self->{begin}) / $length);
	my $since = $time - $self->{begin} - $round * $length;
	return $time if $since < $storm;
	return $self->{begin} + ($round + 1) * $length;
}

sub _heal ($self, $heal)
{
	$heal->{action}->();
	$self->{history}
	  ->note('heal', kind => $heal->{kind}, target => $heal->{target});
	return;
}

# One of the kinds of fault, by its weight; undef if there is none.
sub _choose ($self)
{
	my %weight = $self->menu;
	delete @weight{ grep { /$excusing/ } keys %weight } if $self->{is_control};
	delete @weight{ grep { !/(?:$self->{only})/ } keys %weight };
	return undef unless %weight;
	return choose_by_weight(%weight);
}

# For the kinds of nemesis: log a fault that has been injected ...
sub fault ($self, $kind, $target, %detail)
{
	$self->{history}
	  ->note('fault', kind => $kind, target => $target, %detail);
	return;
}

# ... of a worker, as the board has it ...
sub fault_of_worker ($self, $kind, $victim)
{
	$self->fault($kind, "worker $victim->{worker}", map { $_ => $victim->{$_} } qw(pid cluster state));
	return;
}

# ... and have it healed in so many seconds.
sub heal_in ($self, $seconds, $kind, $target, $action)
{
	push @{ $self->{heals} },
	  {
		at => now() + $seconds,
		kind => $kind,
		target => $target,
		action => $action };
	return;
}

# Processes that stand still for so long, and proxies that connect nobody.
sub stop_for ($self, $seconds, $kind, $target, @pids)
{
	kill 'STOP', @pids;
	$self->heal_in($seconds, $kind, $target, sub { kill 'CONT', @pids; });
	return;
}

sub refuse_for ($self, $seconds, $kind, $cluster, @proxies)
{
	$self->fault($kind, $cluster);
	foreach my $proxy (@proxies)
	{
		$proxy->refuse;
		$proxy->reset_connections;
	}
	$self->heal_in($seconds, $kind, $cluster, sub { $_->heal foreach @proxies; });
	return;
}

sub is_healing ($self, $target)
{
	return scalar grep { $_->{target} eq $target } @{ $self->{heals} };
}

# Seconds as multiples of the session timeout. (rand(0) is rand(1).)
sub timeouts ($self, $least, $most)
{
	return $self->{session_timeout} * ($least + rand(1) * ($most - $least));
}

1;
