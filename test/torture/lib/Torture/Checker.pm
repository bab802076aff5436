
=pod

=head1 NAME

Torture::Checker - do history and ledgers tell of a broken promise?

=head1 DESCRIPTION

Pure: values in, violations out; no clock, no database, no file.

A B<cycle> is a hash: worker, cycle, kind, name, pid, patience (seconds, or "")
and as far as it came asked, gave_up, granted, token, v, commit_sent, ended, outcome ("committed", "refused",
"unknown"); the times as in L<Torture::History>.

A B<row> is one counter with its ledger: name, start, end (the counter's value
before and after) and entries, each with worker, cycle, token and v, the value
that it read.

A B<violation> is a hash: check, text, cycles (those involved), and is_explained.
The latter is true if a backend among them stood still, stopped by the nemesis,
while its COMMIT was under way: between the guard's proof and the commit record
is the one gap that the guard cannot close, which zklock's documentation says
plainly. A fence has no such gap, so nothing explains its violations.

=cut

package Torture::Checker;

use strict;
use warnings;

=pod

=head2 new(cycles => [...], stops => { pid => [ [from, to], ... ] })

=cut

sub new
{
	my ($class, %option) = @_;
	my $self = bless {%option}, $class;
	$self->{cycle_of}{"$_->{worker} $_->{cycle}"} = $_
	  foreach @{ $self->{cycles} };
	return $self;
}

=pod

=head2 check_lost_updates($row)

Every increment counts, and no two committed ones have read the same value.

=cut

sub check_lost_updates
{
	my ($self, $row) = @_;
	my (@violations, %by_value);
	push @{ $by_value{ $_->{v} } }, $_ foreach @{ $row->{entries} };
	foreach my $v (sort { $a <=> $b } keys %by_value)
	{
		my @entries = @{ $by_value{$v} };
		next if @entries == 1;
		push @violations,
		  $self->_violation(
			'lost update', 0,
			"$row->{name}: " . @entries . " commits have read $v",
			$self->_cycles(@entries));
	}
	my $increments = @{ $row->{entries} };
	my $moved = $row->{end} - $row->{start};
	# If the values read have told of as many lost ones, nothing is new here.
	my $lost = 0;
	$lost += @$_ - 1 foreach values %by_value;
	push @violations,
	  $self->_violation('lost update', 1,
		"$row->{name}: $increments commits moved the counter by $moved")
	  if $increments - $lost != $moved;
	return @violations;
}

=pod

=head2 check_order($row)

The order of commits is the order of tokens, which is that of the queue.

=cut

sub check_order
{
	my ($self, $row) = @_;
	my @violations;
	my $last;
	foreach my $entry (sort { $a->{v} <=> $b->{v} } @{ $row->{entries} })
	{
		push @violations,
		  $self->_violation(
			'commit out of order', 0,
			"$row->{name}: token $entry->{token} read $entry->{v} after"
			  . " token $last->{token} had read $last->{v}",
			$self->_cycles($last, $entry))
		  if $last && $entry->{token} <= $last->{token};
		$last = $entry;
	}
	return @violations;
}

=pod

=head2 check_tokens($name)

Who asks after another was granted the lock gets a greater token.

=cut

sub check_tokens
{
	my ($self, $name) = @_;
	my (@violations, %floor);
	my $newest;
	foreach my $step ($self->_steps($name, qw(asked granted)))
	{
		my (undef, $what, $cycle) = @$step;
		next unless defined $cycle->{token};
		if ($what eq 'asked')
		{
			$floor{$cycle} = $newest;
			next;
		}
		my $floor = $floor{$cycle};
		push @violations,
		  $self->_violation('token does not rise', 0,
			"$name: token $cycle->{token}, asked for after $floor->{token}"
			  . ' was granted',
			$floor, $cycle)
		  if $floor && $cycle->{token} <= $floor->{token};
		$newest = $cycle
		  if !$newest || $cycle->{token} > $newest->{token};
	}
	return @violations;
}

=pod

=head2 check_stale_commits($name)

Nobody commits with the lock who sent COMMIT after a newer holder had been
granted it. In list context the violations; count_stale_attempts tells how many
tried, whatever became of it.

=cut

sub check_stale_commits
{
	my ($self, $name) = @_;
	return
	  map {
		my ($cycle, $newer) = @$_;
		$self->_violation('commit by a former holder', 0,
			"$name: token $cycle->{token} committed after $newer->{token}"
			  . ' was granted',
			$newer, $cycle)
	  }
	  grep { $_->[0]{outcome} eq 'committed' } $self->_stale_attempts($name);
}

sub count_stale_attempts
{
	my ($self, $name) = @_;
	return scalar(my @attempts = $self->_stale_attempts($name));
}

sub _stale_attempts
{
	my ($self, $name) = @_;
	my @attempts;
	my $newest;
	foreach my $step ($self->_steps($name, qw(granted commit_sent)))
	{
		my (undef, $what, $cycle) = @$step;
		if ($what eq 'granted')
		{
			$newest = $cycle
			  if !$newest || $cycle->{token} > $newest->{token};
		}
		elsif ($newest->{token} > $cycle->{token} && $cycle->{outcome})
		{
			push @attempts, [ $cycle, $newest ];
		}
	}
	return @attempts;
}

=pod

=head2 check_bounds($slack)

A wait with a bound ends by then, give or take $slack seconds, unless its
backend stood still meanwhile.

=cut

sub check_bounds
{
	my ($self, $slack) = @_;
	my @violations;
	foreach my $cycle (grep { $_->{patience} } @{ $self->{cycles} })
	{
		my $end = $cycle->{granted} || $cycle->{gave_up} || next;
		my $late = $end - $cycle->{asked} - $cycle->{patience};
		push @violations,
		  $self->_violation('wait beyond its bound', 1,
			sprintf('%s: %.1f s late', $cycle->{name}, $late), $cycle)
		  if $late > $slack
		  && !$self->_was_stopped($cycle->{pid}, $cycle->{asked}, $end);
	}
	return @violations;
}

=pod

=head2 check_answers(@rows)

What was acknowledged is in a ledger, what was refused is in none.
count_unknown tells what became of those without an answer: (in a ledger, not).

=cut

sub check_answers
{
	my ($self, @rows) = @_;
	my $is_in = _ledger_of(@rows);
	my @violations;
	foreach my $cycle (grep { $_->{outcome} } @{ $self->{cycles} })
	{
		my $in = $is_in->{"$cycle->{worker} $cycle->{cycle}"};
		push @violations,
		  $self->_violation('acknowledged commit is missing', 1,
			"$cycle->{name}: worker $cycle->{worker}", $cycle)
		  if $cycle->{outcome} eq 'committed' && !$in;
		push @violations,
		  $self->_violation('refused commit is there', 1,
			"$cycle->{name}: worker $cycle->{worker}", $cycle)
		  if $cycle->{outcome} eq 'refused' && $in;
	}
	return @violations;
}

sub count_unknown
{
	my ($self, @rows) = @_;
	my $is_in = _ledger_of(@rows);
	my @unknown =
	  grep { ($_->{outcome} || '') eq 'unknown' } @{ $self->{cycles} };
	my $committed =
	  grep { $is_in->{"$_->{worker} $_->{cycle}"} } @unknown;
	return ($committed, @unknown - $committed);
}

sub _ledger_of
{
	my (@rows) = @_;
	my %is_in;
	foreach my $row (@rows)
	{
		$is_in{"$_->{worker} $_->{cycle}"} = 1 foreach @{ $row->{entries} };
	}
	return \%is_in;
}

# [time, what, cycle] of these steps of all cycles of a lock, in order of time.
sub _steps
{
	my ($self, $name, @what) = @_;
	my @steps;
	foreach my $cycle (grep { $_->{name} eq $name } @{ $self->{cycles} })
	{
		push @steps, map { [ $cycle->{$_}, $_, $cycle ] }
		  grep { defined $cycle->{$_} } @what;
	}
	@steps = sort { $a->[0] <=> $b->[0] } @steps;
	return @steps;
}

sub _cycles
{
	my ($self, @entries) = @_;
	return grep { $_ }
	  map { $self->{cycle_of}{"$_->{worker} $_->{cycle}"} } @entries;
}

sub _violation
{
	my ($self, $check, $is_inexplicable, $text, @cycles) = @_;
	return {
		check => $check,
		text => $text,
		cycles => \@cycles,
		is_explained => !$is_inexplicable
		  && scalar(grep { $self->_was_stopped_in_commit($_) } @cycles) };
}

# Only for those whose COMMIT goes to the backend that holds the lock.
sub _was_stopped_in_commit
{
	my ($self, $cycle) = @_;
	return 0 unless $cycle->{kind} eq 'local' && $cycle->{ended};
	return $self->_was_stopped(@{$cycle}{qw(pid commit_sent ended)});
}

sub _was_stopped
{
	my ($self, $pid, $begin, $end) = @_;
	foreach my $stop (@{ $self->{stops}{$pid} || [] })
	{
		my ($from, $to) = @$stop;
		return 1 if $from < $end && $to > $begin;
	}
	return 0;
}

1;
