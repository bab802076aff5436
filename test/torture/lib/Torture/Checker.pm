
=pod

=head1 NAME

Torture::Checker - do history and ledgers tell of a broken promise?

=head1 DESCRIPTION

Pure: values in, violations out; no clock, no database, no file.

A B<cycle> is a hash: worker, cycle, kind, name, pid, patience (seconds, or "")
and as far as it came asked, gave_up, failed_at, granted, locks (each with name, mode and
token), commit_sent, ended, outcome ("committed", "refused", "unknown"), and of a
hold release_sent and was_held; the times as in L<Torture::History>.

A B<row> is one counter with its ledger: name, start, end (the counter's value
before and after) and entries, each with worker, cycle, is_reader, v, the value
that it read, and again, the value when it was about to commit. Without end it is
a ledger alone.

A B<violation> is a hash: check, text, cycles (those involved), at (when the last of
them was granted its lock), and is_explained, which is true if one of them has an
excuse (L<Torture::Excuses>). A fence has no gap, so nothing excuses its violations.

=cut

package Torture::Checker;

use v5.36;

use Exporter 'import';
use List::Util qw(max);

our @EXPORT_OK = qw(steps_of);

=pod

=head2 new(cycles => [...], excuses => L<Torture::Excuses>, refusals => { lock => [[from, to], ...] }, lingers => seconds)

The refusals tell when nobody could delete anything of a lock. The nodes of a session that its
client has given up stay in the ensemble until that has noticed it, for so many seconds at most.

=cut

sub new ($class, %option)
{
	my $self = bless {%option}, $class;
	$self->{cycle_of}{"$_->{worker} $_->{cycle}"} = $_
	  foreach @{ $self->{cycles} };
	return $self;
}

=pod

=head2 check_lost_updates($row)

Every increment counts, and no two committed ones have read the same value.

=cut

sub check_lost_updates ($self, $row)
{
	my (@violations, %by_value);
	my @entries = grep { !$_->{is_reader} } @{ $row->{entries} };
	push @{ $by_value{ $_->{v} } }, $_ foreach @entries;
	foreach my $v (sort { $a <=> $b } keys %by_value)
	{
		my @same = @{ $by_value{$v} };
		next if @same == 1;
		push @violations,
		  $self->_violation(
			'lost update', 0,
			"$row->{name}: " . @same . " commits have read $v",
			$self->_cycles(@same));
	}
	my $moved = $row->{end} - $row->{start};
	# If the values read have told of as many lost ones, nothing is new here.
	my $lost = 0;
	$lost += @$_ - 1 foreach values %by_value;
	push @violations,
	  $self->_violation('lost update', 1,
		"$row->{name}: " . @entries . " commits moved the counter by $moved")
	  if @entries - $lost != $moved;
	return @violations;
}

=pod

=head2 check_order($row)

The order of commits is the order of tokens, which is that of the queue. Readers
stand between the writer of what they have read and the next one.

=cut

sub check_order ($self, $row)
{
	my @violations;
	my ($writer, @readers);
	foreach my $entry (
		sort { $a->{v} <=> $b->{v} || $b->{is_reader} <=> $a->{is_reader} }
		@{ $row->{entries} })
	{
		push @violations, map { $self->_compare_order($row, $_, $entry) }
		  grep { $_ } $writer, $entry->{is_reader} ? () : @readers;
		if ($entry->{is_reader})
		{
			push @readers, $entry;
		}
		else
		{
			($writer, @readers) = ($entry);
		}
	}
	return @violations;
}

# The tokens of each lock that both have, and one of them alone.
sub _compare_order ($self, $row, $first, $second)
{
	my ($one, $other) = $self->_cycles($first, $second);
	return () unless $one && $other;
	my %lock = map { $_->{name} => $_ } @{ $one->{locks} };
	my @wrong = grep {
		my $mine = $lock{ $_->{name} };
		$mine
		  && !($mine->{mode} eq 'shared' && $_->{mode} eq 'shared')
		  && !_rises($one, $mine, $other, $_)
	} @{ $other->{locks} };
	return () unless @wrong;
	return $self->_violation(
		'commit out of order', 0,
		"$row->{name}: token $wrong[0]{token} read $second->{v} after"
		  . " token $lock{ $wrong[0]{name} }{token} had read $first->{v}",
		$one, $other);
}

# Does the token of the later cycle's lock say so? A session that has kept the lock
# in between has the same.
sub _rises ($earlier, $first, $later, $second)
{
	return $first->{token} < $second->{token}
	  || $first->{token} == $second->{token}
	  && $earlier->{worker} == $later->{worker};
}

=pod

=head2 check_repeated_reads($row)

What a holder has read does not move before it commits.

=cut

sub check_repeated_reads ($self, $row)
{
	return map {
		$self->_violation(
			'read twice', 0,
			"$row->{name}: $_->{v}, and then $_->{again}",
			$self->_cycles($_))
	} grep { $_->{v} != $_->{again} } @{ $row->{entries} };
}

=pod

=head2 check_tokens($name)

Who asks after another was granted the lock gets a greater token, or the same if
that was itself.

=cut

sub check_tokens ($self, $name = undef)
{
	my (@violations, %floor);
	my $newest;
	foreach my $step (steps_of($self->{cycles}, $name, qw(asked granted)))
	{
		my (undef, $what, $cycle, $lock) = @$step;
		if ($what eq 'asked')
		{
			$floor{$cycle} = $newest;
			next;
		}
		my $floor = $floor{$cycle};
		push @violations,
		  $self->_violation('token does not rise', 0,
			"$name: token $lock->{token}, asked for after $floor->[1]{token}"
			  . ' was granted',
			$floor->[0], $cycle)
		  if $floor && !_rises(@$floor, $cycle, $lock);
		$newest = [ $cycle, $lock ]
		  if !$newest || $lock->{token} > $newest->[1]{token};
	}
	return @violations;
}

=pod

=head2 check_stale_commits($name)

Nobody commits with the lock who sent COMMIT after a newer holder had been
granted it, unless both share it. In list context the violations;
count_stale_attempts tells how many tried, whatever became of it.

=cut

sub check_stale_commits ($self, $name)
{
	return
	  map {
		my ($cycle, $lock, $newer, $newer_lock) = @$_;
		$self->_violation('commit by a former holder', 0,
			"$name: token $lock->{token} committed after $newer_lock->{token}"
			  . ' was granted',
			$newer, $cycle)
	  }
	  grep { $_->[0]{outcome} eq 'committed' } $self->_stale_attempts($name);
}

sub count_stale_attempts ($self, $name)
{
	return scalar(my @attempts = $self->_stale_attempts($name));
}

# A hold is not among those who commit: it has no COMMIT of its own.
sub _stale_attempts ($self, $name)
{
	my @attempts;
	my %newest;     # [cycle, lock] by mode
	foreach my $step (steps_of($self->{cycles}, $name, qw(granted commit_sent)))
	{
		my (undef, $what, $cycle, $lock) = @$step;
		if ($what eq 'granted')
		{
			my $mode = $lock->{mode};
			$newest{$mode} = [ $cycle, $lock ]
			  if !$newest{$mode}
			  || $lock->{token} > $newest{$mode}[1]{token};
			next;
		}
		next unless $cycle->{outcome} && $cycle->{kind} ne 'hold';
		my ($newer) =
		  grep { $_ && $_->[1]{token} > $lock->{token} } $newest{exclusive},
		  $lock->{mode} eq 'exclusive' ? $newest{shared} : undef;
		push @attempts, [ $cycle, $lock, @$newer ] if $newer;
	}
	return @attempts;
}

=pod

=head2 check_permits($name, $permits)

Nobody is granted a permit while as many older contenders as there are permits
still have their place, as their commits prove that they sent later. In list
context the violations; count_full tells how often the last permit was granted
beside others in use.

=cut

sub check_permits ($self, $name, $permits)
{
	my @violations;
	$self->_visit_permits($name, sub ($cycle, $lock, @others) {
		my @older = grep { $_->[1]{token} < $lock->{token} } @others;
		return if @older < $permits;
		my @cycles = map { $_->[0] } @older;
		my $violation = $self->_violation('too many permits', 1,
			"$name: token $lock->{token} was granted, " . @older
			  . ' older ones committed later',
			$cycle, @cycles);
		$violation->{is_explained} =
		  $permits > grep { !$self->{excuses}->excuses($_) } @cycles;
		push @violations, $violation;
	});
	return @violations;
}

sub count_full ($self, $name, $permits)
{
	my $full = 0;
	$self->_visit_permits($name, sub ($cycle, $lock, @others) {
		$full++
		  if $permits - 1 <= grep { $_->[0]{granted} <= $cycle->{granted} } @others;
	});
	return $full;
}

# At each grant: its cycle, its lock, and [cycle, lock] of those who asked before
# and sent later a COMMIT that succeeded.
sub _visit_permits ($self, $name, $visit)
{
	my %open;
	foreach my $step (steps_of($self->{cycles}, $name, qw(asked granted commit_sent)))
	{
		my (undef, $what, $cycle, $lock) = @$step;
		if ($what eq 'granted')
		{
			$visit->($cycle, $lock, grep { $_->[0] != $cycle } values %open);
		}
		elsif ($what eq 'commit_sent')
		{
			delete $open{$cycle};
		}
		elsif (($cycle->{outcome} || '') eq 'committed')
		{
			$open{$cycle} = [ $cycle, $lock ];
		}
	}
	return;
}

=pod

=head2 check_holds($name), check_released_holds

From when a hold was made until its release was asked for nobody newer is granted
the lock; and there is something to release then.

=cut

sub check_holds ($self, $name)
{
	my (@violations, %held);
	foreach my $step (steps_of($self->{cycles}, $name, qw(granted release_sent)))
	{
		my (undef, $what, $cycle, $lock) = @$step;
		if ($what eq 'release_sent')
		{
			delete $held{$cycle};
			next;
		}
		push @violations, map {
			$self->_violation('granted beside a hold', 1,
				"$name: token $lock->{token} was granted while the hold"
				  . " $_->[1]{token} stood",
				$_->[0], $cycle)
		} grep { $_->[1]{token} < $lock->{token} } values %held;
		$held{$cycle} = [ $cycle, $lock ] if $cycle->{kind} eq 'hold';
	}
	return @violations;
}

sub check_released_holds ($self)
{
	return map {
		$self->_violation('hold has vanished', 1,
			"$_->{name}: there was no hold $_->{locks}[0]{token} to release", $_)
	} grep { defined $_->{was_held} && !$_->{was_held} } @{ $self->{cycles} };
}

=pod

=head2 check_claims(@claims), check_fleeting_claims($retention, @claims)

Each slot is given to one caller, and to nobody only if it is open what became of
a call. A slot whose records are kept for so many seconds only is not given to
another before they have passed. A claim is a hash: worker, slot, answer ("t", "f",
"open"), sent and time, when it was answered.

=cut

sub check_claims ($self, @claims)
{
	my (%by_slot, @violations);
	push @{ $by_slot{ $_->{slot} } }, $_ foreach @claims;
	foreach my $slot (sort { $a <=> $b } keys %by_slot)
	{
		my @of_slot = @{ $by_slot{$slot} };
		my @true = grep { $_->{answer} eq 't' } @of_slot;
		my $workers = join ', ',
		  map { "worker $_->{worker}: $_->{answer}" } @of_slot;
		my $what =
		    @true > 1 ? 'slot is run twice'
		  : !@true && !grep({ $_->{answer} eq 'open' } @of_slot) ? 'slot is not run'
		  : next;
		push @violations,
		  {
			%{ $self->_violation($what, 1, "slot $slot: $workers") },
			at => max(map { $_->{time} } @of_slot) };
	}
	return @violations;
}

sub check_fleeting_claims ($self, $retention, @claims)
{
	my (%since, %true, @violations);
	foreach my $claim (sort { $a->{time} <=> $b->{time} } @claims)
	{
		# The record may be that of a call before, of which nobody knew what became.
		my $sent = delete $since{ $claim->{slot} }{ $claim->{worker} } // $claim->{sent};
		$since{ $claim->{slot} }{ $claim->{worker} } = $sent if $claim->{answer} eq 'open';
		next if $claim->{answer} ne 't';

		# A record was made between the two times of its claim, which may be far apart: a
		# backend was stopped. The later answer can be that of the earlier record.
		foreach my $other (@{ $true{ $claim->{slot} } })
		{
			next
			  if max($claim->{time} - $other->{sent}, $other->{time} - $sent) >= $retention;
			push @violations,
			  {
				%{ $self->_violation('slot is run again too soon', 1,
					"slot $claim->{slot}: workers $other->{worker} and $claim->{worker}") },
				at => $claim->{time} };
		}
		push @{ $true{ $claim->{slot} } }, { %$claim, sent => $sent };
	}
	return @violations;
}

=pod

=head2 check_deadlocks

Who was told of a deadlock waited for somebody, who waited perhaps for others, who waited
for a lock that it held: while it waited for the last one. What could not be deleted when it
was let go, or given up, is still waited for; and who failed may be out of contact, and waits and
holds then, as far as others can know, until the ensemble has ended its session.

=cut

# So much later, in seconds, it is asked for again.
my $asked_again = 1;

sub check_deadlocks ($self)
{
	my %left;    # by worker, [lock, until] each
	foreach my $cycle (sort { $a->{asked} <=> $b->{asked} } @{ $self->{cycles} })
	{
		# Who asks for all at once.
		$cycle->{wanted} ||= { map { $_ => $cycle->{asked} } split /\+/, $cycle->{name} };
		$cycle->{got} ||= { map { $_ => $cycle->{granted} } keys %{ $cycle->{wanted} } } if $cycle->{granted};
		my ($wanted, $over, $left) = ($cycle->{wanted}, $cycle->{over} // 9**9**9, $left{ $cycle->{worker} } ||= []);
		$cycle->{left} = { map { @$_ } @$left };
		$cycle->{stays} = $cycle->{failed_at} + $self->{lingers} if defined $cycle->{failed_at};
		foreach my $lock (keys %$wanted)
		{
			push @$left, map { [ $lock, $_->[1] + $asked_again ] }
			  grep { $_->[0] < $over && $_->[1] > max(values %$wanted) } @{ $self->{refusals}{$lock} || [] };
		}
	}
	return map {
		$self->_violation('deadlock of nobody', 1, "$_->{name}: nobody waited in a circle", $_, $self->_rivals($_))
	} grep { $_->{is_deadlock} && !$self->_is_in_circle($_) } @{ $self->{cycles} };
}

sub _is_in_circle ($self, $victim)
{
	my @span = (max(values %{ $victim->{wanted} }), $victim->{gave_up});
	my @others = grep { $_ != $victim } @{ $self->{cycles} };
	my %seen;
	my @next = ($victim);
	while (my $waiter = shift @next)
	{
		return 1 if $waiter != $victim && _waits_for($waiter, $victim, 'got', @span);
		push @next, grep { !$seen{$_}++ }
		  grep { _waits_for($waiter, $_, 'wanted', @span) } @others;
	}
	return 0;
}

# Who wanted one of its locks, and may still have been known then.
sub _rivals ($self, $victim)
{
	return grep {
		my $wanted = $_->{wanted};
		$_->{worker} != $victim->{worker} && $_->{asked} < $victim->{gave_up}
		  && ($_->{stays} // $_->{over} // $victim->{gave_up}) > $victim->{asked} - $self->{lingers}
		  && grep { $wanted->{$_} } keys %{ $victim->{wanted} }
	} @{ $self->{cycles} };
}

# For a lock that the other one had got, or wanted, and may have had still, or that is left.
sub _waits_for ($waiter, $other, $what, $begin, $end)
{
	return 0 if $waiter == $other || ($other->{stays} // $other->{over} // $end) < $begin;
	return scalar grep {
		$waiter->{wanted}{$_} < $end
		  && ($waiter->{got}{$_} // $waiter->{stays} // $waiter->{gave_up} // $end) >= $begin
		  && (($other->{left}{$_} // $begin) > $begin
			|| defined $other->{$what}{$_} && $other->{$what}{$_} < $end)
	} keys %{ $waiter->{wanted} };
}

=pod

=head2 check_bounds($slack)

A wait with a bound ends by then, give or take $slack seconds, unless its
backend stood still meanwhile.

=cut

sub check_bounds ($self, $slack)
{
	my @violations;
	foreach my $cycle (grep { $_->{patience} } @{ $self->{cycles} })
	{
		my $end = $cycle->{granted} || $cycle->{gave_up} || next;
		my $late = $end - $cycle->{asked} - $cycle->{patience};
		push @violations,
		  $self->_violation('wait beyond its bound', 1,
			sprintf('%s: %.1f s late', $cycle->{name}, $late), $cycle)
		  if $late > $slack
		  && !$self->{excuses}->stood_still($cycle->{pid}, $cycle->{asked}, $end);
	}
	return @violations;
}

=pod

=head2 check_answers(@rows)

What was acknowledged is in a ledger, what was refused is in none.
count_unknown tells what became of those without an answer: (in a ledger, not).

=cut

sub check_answers ($self, @rows)
{
	my $is_in = _ledger_of(@rows);
	my @violations;
	foreach my $cycle (grep { $_->{outcome} } @{ $self->{cycles} })
	{
		my $in = $is_in->{"$cycle->{worker} $cycle->{cycle}"};
		my $what =
			$cycle->{outcome} eq 'committed' && !$in ? 'acknowledged commit is missing'
		  : $cycle->{outcome} eq 'refused' && $in ? 'refused commit is there'
		  : next;
		push @violations, $self->_violation($what, 1, "$cycle->{name}: worker $cycle->{worker}", $cycle);
	}
	return @violations;
}

sub count_unknown ($self, @rows)
{
	my $is_in = _ledger_of(@rows);
	my @unknown =
	  grep { ($_->{outcome} || '') eq 'unknown' } @{ $self->{cycles} };
	my $committed =
	  grep { $is_in->{"$_->{worker} $_->{cycle}"} } @unknown;
	return ($committed, @unknown - $committed);
}

sub _ledger_of (@rows)
{
	my %is_in;
	foreach my $row (@rows)
	{
		$is_in{"$_->{worker} $_->{cycle}"} = 1 foreach @{ $row->{entries} };
	}
	return \%is_in;
}

=pod

=head2 steps_of($cycles, $name, steps)

[time, step, cycle, lock] of these steps of all cycles that were granted that lock, in
order of time.

=cut

sub steps_of ($cycles, $name, @what)
{
	my @steps;
	foreach my $cycle (@$cycles)
	{
		my ($lock) = grep { $_->{name} eq $name } @{ $cycle->{locks} } or next;
		push @steps, map { [ $cycle->{$_}, $_, $cycle, $lock ] }
		  grep { defined $cycle->{$_} } @what;
	}
	@steps = sort { $a->[0] <=> $b->[0] } @steps;
	return @steps;
}

sub _cycles ($self, @entries)
{
	return grep { $_ }
	  map { $self->{cycle_of}{"$_->{worker} $_->{cycle}"} } @entries;
}

sub _violation ($self, $check, $is_inexplicable, $text, @cycles)
{
	return {
		check => $check,
		text => $text,
		cycles => \@cycles,
		at => max(0, map { $_->{granted} || 0 } @cycles),
		is_explained => !$is_inexplicable
		  && scalar(grep { $self->{excuses}->excuses($_) } @cycles) };
}

1;
