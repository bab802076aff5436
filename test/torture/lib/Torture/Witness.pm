
=pod

=head1 NAME

Torture::Witness - what ZooKeeper and PostgreSQL have written down themselves

=head1 DESCRIPTION

The second judge. It takes nobody's word for who had a lock: the ensemble's
transaction logs tell which queue node was there from when to when, whose it was,
and when the leader was asked whether it was still there; the databases tell when
each transaction wrote its commit record. Of the workers it takes when they sent a
COMMIT and when they were told that a lock is theirs. Tokens are those of the log:
the token of a node is the number of the transaction that has made it.

Pure, like L<Torture::Checker>: values in, violations out, with the same hashes. A
cycle has one thing more here: B<recorded>, the time of its commit record, if it has
committed. All times are seconds of one clock.

What a leader writes down is the time at which it put a change into its place,
before a quorum has agreed: nothing follows from a change before that time.

=cut

package Torture::Witness;

use v5.36;

use List::Util qw(max min);
use Torture::Checker qw(steps_of);

# The leader writes milliseconds.
my $rounding = 0.002;

my $infinity = 9**9**9;

# For so much of its term a commit relies on the renewal of a lease.
my $lease_share = 0.6;

# Between a request and its answer, in seconds.
my $losing = 0.5;

# So long, in seconds, it may take until a session that was lost ends. Its program closes it, or
# does not come near it so that the ensemble ends it: at its return that gives each session its
# whole timeout again, and nobody may say then that this one is alive.
my $ending = 4;

=pod

=head2 new(option => value, ...)

transactions (of L<Torture::TransactionLog>, but with the times of that one clock; those
that are void change nothing),
cycles, paths (name => the znode of that lock), permits (name => number), strangers
(sessions whose nodes count for nothing), excuses
(L<Torture::Excuses>), and what is promised, in seconds: asked_within (before COMMIT was
sent, at most; 0 if only after that) and reserve (until the session can be expired).

=cut

sub new ($class, %option)
{
	my $self = bless { permits => {}, %option }, $class;
	my %name_of = reverse %{ $self->{paths} };
	$self->{name_of} = \%name_of;
	$self->{node} = {};       # by path, those that are there
	$self->{queue} = {};      # by name of the lock and path, likewise
	$self->{by_token} = {};
	$self->{is_stranger} = { map { $_ => 1 } @{ $self->{strangers} || [] } };
	$self->{expired} = {};    # when, by session
	$self->_follow($_) foreach @{ $self->{transactions} };
	$self->{void} = { map { ($_->{zxid} => $_) } grep { $_->{is_void} } @{ $self->{transactions} } };
	$self->_find_owners;
	return $self;
}

=pod

=head2 nodes, lost

How many queue nodes there were; how many of them the ensemble has lost, though the logs
tell nothing of that.

=cut

sub lost { return $_[0]->{lost} || 0; }

sub nodes { return scalar keys %{ $_[0]->{by_token} }; }

# One transaction: its changes. Those of one request are one, so what is made comes
# first: a hold stands in its maker's place, and is not somebody new.
sub _follow ($self, $transaction)
{
	my @changes = @{ $transaction->{changes} };
	foreach my $change ((grep { $_->{kind} eq 'create' } @changes),
		(grep { $_->{kind} ne 'create' } @changes))
	{
		# The leader was asked all the same.
		next if $transaction->{is_void} && $change->{kind} ne 'check';
		my $path = $change->{path};
		my $node = defined $path ? $self->{node}{$path} : undef;
		if ($change->{kind} eq 'create')
		{
			$self->_begin($transaction, $change);
		}
		elsif ($change->{kind} eq 'close')
		{
			$self->_end($_, $transaction, $transaction->{cxid} ? 'closed' : 'expired')
			  foreach grep { $_->{is_ephemeral} && $_->{session} == $transaction->{session} }
			  values %{ $self->{node} };
			$self->{expired}{ $transaction->{session} } = $transaction->{time}
			  if !$transaction->{cxid};
		}
		elsif ($node && $change->{kind} eq 'delete')
		{
			$self->_end($node, $transaction,
				$transaction->{session} == $node->{session} ? 'deleted' : 'evicted');
		}
		elsif ($node && $change->{kind} eq 'check'
			&& $transaction->{session} == $node->{session})
		{
			push @{ $node->{proofs} }, $transaction->{time};
		}
		elsif ($node && $change->{kind} eq 'set' && $node->{is_lease})
		{
			push @{ $node->{proofs} }, $transaction->{time};
			_begin_term($node, $transaction, $change);
		}
	}
	return;
}

# A queue node, unless it is something else. What its name says is all that the
# recipe goes by.
sub _begin ($self, $transaction = undef, $change = undef)
{
	return if $self->{is_stranger}{ $transaction->{session} };
	my ($parent, $leaf, $number) = $change->{path} =~ m{^(.*)/([^/]*?)(\d{10})$} or return;
	my $name = $self->{name_of}{$parent} // return;
	my ($guid) = $leaf =~ /^_c_([0-9a-f-]{36})/;
	my $node = {
		name => $name,
		path => $change->{path},
		guid => $guid // $change->{path},
		number => $number,
		token => $transaction->{zxid},
		session => $transaction->{session},
		is_ephemeral => $change->{is_ephemeral},
		is_lease => !$change->{is_ephemeral} && $leaf =~ /^_c_[0-9a-f]{8}-[0-9a-f]{4}-8a14-/ ? 1 : 0,
		begin => $transaction->{time},
		end => $infinity,
		proofs => [ $transaction->{time} ],
		is_shared => $leaf =~ /(-shared-lock-|__READ__|-shared__lock__|__rlock__)$/ ? 1 : 0 };
	_begin_term($node, $transaction, $change) if $node->{is_lease};
	$self->_stand_beside($node);
	$self->{node}{ $change->{path} } = $node;
	$self->{by_token}{ $node->{token} } = $node;
	return;
}

# Each time that a lease is set its term begins anew.
sub _begin_term ($node, $transaction, $change)
{
	my ($term) = ($change->{data} // '') =~ /"term":"?(\d+)/;
	@{$node}{qw(set term)} = ($transaction->{time}, ($term // 0) / 1000);
	return;
}

# The others in its queue, of which some may be ahead: those that are there, and
# whoever comes later with a smaller number.
sub _stand_beside ($self, $node)
{
	my $queue = $self->{queue}{ $node->{name} } ||= {};
	my ($other) = grep { _is_same_contender($_, $node) } values %$queue;
	$node->{contender} = $other ? $other->{contender} : $node->{token};
	$self->_forget_lost($node) unless $other;
	$node->{beside} = [ values %$queue ];
	push @{ $_->{beside} }, $node
	  foreach grep { $_->{number} > $node->{number} } values %$queue;
	$queue->{ $node->{path} } = $node;
	return;
}

# A number is greater than that of all who are there. If it is not, they are there in the
# logs only: the ensemble has lost them.
sub _forget_lost ($self, $node)
{
	my $queue = $self->{queue}{ $node->{name} };
	foreach my $lost (grep { $_->{number} >= $node->{number} } values %$queue)
	{
		$self->{lost}++;
		$self->_end($lost, { time => $node->{begin} }, 'lost');
	}
	return;
}

# Several nodes of one have its GUID; a hold has its number. (Numbers may come again when all
# of them are gone, or lost.)
sub _is_same_contender ($node, $other)
{
	return $node->{session} == $other->{session}
	  && ($node->{guid} eq $other->{guid}
		|| $node->{number} == $other->{number}
		&& $node->{is_ephemeral} != $other->{is_ephemeral});
}

sub _end ($self, $node, $transaction, $how)
{
	@{$node}{qw(end how)} = ($transaction->{time}, $how);
	delete $self->{node}{ $node->{path} };
	delete $self->{queue}{ $node->{name} }{ $node->{path} };
	return;
}

# Which cycles a node stood for: those which were told its token, or that of another node
# of the same contender; of a lock that was kept more than one. By the first of them it was
# granted, and the last one lets go of it.
sub _find_owners ($self)
{
	my %cycle;
	foreach my $cycle (sort { $a->{asked} <=> $b->{asked} } @{ $self->{cycles} })
	{
		foreach my $node (grep { $_ } map { $self->{by_token}{ $_->{token} } } @{ $cycle->{locks} })
		{
			push @{ $cycle{ $node->{contender} } }, $cycle;
		}
	}
	foreach my $node (values %{ $self->{by_token} })
	{
		my @cycles = @{ $cycle{ $node->{contender} } || [] };
		@{$node}{qw(first cycle)} = @cycles[ 0, -1 ];
		push @{ $self->{nodes_of}{$_}{ $node->{name} } }, $node foreach @cycles;
	}
	return;
}

=pod

=head2 check_tokens

Each token that somebody was told is that of a queue node of that lock. Or it was
once: then the ensemble has lost what it had acknowledged, which zklock cannot help
(release 3.8.0 does, when followers are killed or cut off while they catch up).

=head2 was_lost($cycle)

Was this cycle granted its lock by what the ensemble has lost?

=cut

sub check_tokens ($self)
{
	my @violations;
	foreach my $cycle (@{ $self->{cycles} })
	{
		foreach my $lock (@{ $cycle->{locks} })
		{
			my $node = $self->{by_token}{ $lock->{token} };
			next if $node && $node->{name} eq $lock->{name};
			push @violations,
			  $self->_violation('token of no node', $self->{void}{ $lock->{token} },
				"$lock->{name}: token $lock->{token}", $cycle);
		}
	}
	return @violations;
}

sub was_lost ($self, $cycle)
{
	return scalar grep { abs($_->{time} - $cycle->{granted}) < $losing } values %{ $self->{void} };
}

=pod

=head2 check_turns

Nobody is told that a lock is his before his turn has come: before all who stand
ahead and exclude him have gone, by the log, or have let go and may have said so.
With permits, before all but so many have. Nor when his node was gone before his turn
could come: unless he was evicted, of which he may not know while he has a proof.

=cut

sub check_turns ($self)
{
	my @violations;
	foreach my $node (sort { $a->{token} <=> $b->{token} }
		grep { _is_granted($_) } values %{ $self->{by_token} })
	{
		my $turn = $self->_turn($node);
		push @violations,
		  $self->_violation(
			'granted without a node', $node->{how} eq 'evicted',
			sprintf('%s: token %d was granted, but its node was %s %.3f s before its turn',
				@{$node}{qw(name token how)}, $turn - $node->{end}),
			$node->{first})
		  if $turn - $node->{end} > $rounding;
		my $early = $turn - $node->{first}{granted};
		next if $early <= $rounding;
		my @ahead = map { $_->{cycle} || () }
		  grep { $self->_gone_at($_) > $node->{first}{granted} } $self->_ahead($node);
		push @violations,
		  $self->_violation(
			'granted before its turn', 0,
			sprintf('%s: token %d was granted %.3f s before its turn',
				@{$node}{qw(name token)}, $early),
			$node->{first}, @ahead);
	}
	return @violations;
}

# Is this the node whose token the cycle was told?
sub _is_granted ($node)
{
	my $cycle = $node->{first} or return 0;
	return defined $cycle->{granted}
	  && scalar grep { $_->{token} == $node->{token} } @{ $cycle->{locks} };
}

# When it can have been granted the lock at the earliest.
sub _turn ($self, $node)
{
	return $node->{turn} if defined $node->{turn};
	my @gone = sort { $b <=> $a } map { $self->_gone_at($_) } $self->_ahead($node);
	my $others = ($self->{permits}{ $node->{name} } || 1) - 1;
	return $node->{turn} = $gone[$others] // $node->{begin};
}

# When it no longer stood in the way: it was not there, or it may have handed the
# lock over.
sub _gone_at ($self, $node)
{
	return min($node->{end}, $self->_let_go_at($node));
}

# At the earliest. Who was granted the lock without telling the worker, because the
# statement was canceled or the connection lost, may let go as soon as it has it.
sub _let_go_at ($self, $node)
{
	my $cycle = $node->{cycle};
	return $self->_turn($node) if !$cycle || !defined $cycle->{granted};
	# A foreign client says nothing, a hold asks to be released.
	return $cycle->{release_sent} // $infinity if $cycle->{kind} eq 'hold';
	return $infinity if $cycle->{kind} eq 'foreign';
	return _released_at($cycle);
}

sub _released_at ($cycle)
{
	# After an error, or an end of the backend, it lets go by itself.
	return $cycle->{granted}
	  if ($cycle->{outcome} || '') ne 'committed' || $cycle->{failed_at};
	return $cycle->{scope} eq 'transaction' ? $cycle->{commit_sent}
	  : $cycle->{release_sent} // $cycle->{commit_sent};
}

# The nodes that it has to wait for. They came before it, or have the number of one
# that did.
sub _ahead ($self, $node)
{
	return grep {
		$_->{number} < $node->{number}
		  && $_->{guid} ne $node->{guid}
		  && !($_->{is_shared} && $node->{is_shared})
		  && !($_->{cycle} && $node->{cycle} && $_->{cycle} == $node->{cycle})
	} @{ $node->{beside} };
}

=pod

=head2 check_held(@spins)

The node of a lock that is held stays where it is: its own session does not delete it
before it was asked to let go; and it is not taken back when it has gone already, in
whatever way but by an eviction. Who keeps no locks takes none back: the node is made when
the lock is asked for, and not before. Each spin tells until when a token was held at least;
but for as long as its backend was stopped meanwhile it knew nothing.

=cut

sub check_held ($self, @spins)
{
	my @violations;
	foreach my $cycle (grep { defined $_->{granted} && $_->{kind} !~ /^(hold|foreign)$/ }
		@{ $self->{cycles} })
	{
		foreach my $lock (@{ $cycle->{locks} })
		{
			my $nodes = $self->{nodes_of}{$cycle}{ $lock->{name} } or next;
			my $last = _last_to_go(@$nodes);
			my $held = ($last->{how} || '') eq 'deleted' ? _released_at($cycle) : $cycle->{asked};
			push @violations, $self->_held_without($last, $held, $cycle);
			my $node = $self->{by_token}{ $lock->{token} };
			push @violations,
			  $self->_violation(
				'held from before', 0,
				sprintf('%s: token %d is from %.3f s before it was asked for',
					@{$lock}{qw(name token)}, $cycle->{asked} - $node->{begin}), $cycle)
			  if $node && !$cycle->{keeps} && $node->{begin} + $rounding < $cycle->{asked};
		}
	}
	foreach my $spin (@spins)
	{
		my $node = $self->{by_token}{ $spin->{token} } or next;
		my $end = $node->{end};
		push @violations, $self->_held_without($node,
			$spin->{told} - $self->{excuses}->stood_still($spin->{pid}, $end - $self->{reserve}, $spin->{told}));
	}
	return @violations;
}

# A violation if it was held at that time and the node was gone.
sub _held_without ($self, $node, $held, @cycles)
{
	return if $node->{end} + $rounding >= $held || $node->{how} =~ /^(evicted|lost)$/;
	return $self->_violation(
		'held without a node', 0,
		sprintf('%s: token %d was held, but its node was %s %.3f s before',
			@{$node}{qw(name token how)}, $held - $node->{end}), @cycles);
}

=pod

=head2 check_late_commits

Nobody writes a commit record when another, whom it excludes, has already been told
that the lock is his.

=cut

sub check_late_commits ($self)
{
	return map { $self->_late_commits($_) } sort keys %{ $self->{paths} };
}

sub _late_commits ($self, $name)
{
	my $permits = $self->{permits}{$name} || 1;
	my (@violations, %open);
	foreach my $step (steps_of($self->{cycles}, $name, qw(asked granted)))
	{
		my (undef, $what, $newer, $lock) = @$step;
		if ($what eq 'asked')
		{
			$open{$newer} = [ $newer, $lock ]
			  if _is_guarded($newer) && defined $newer->{recorded};
			next;
		}
		delete $open{ $_->[0] }
		  foreach grep { $_->[0]{recorded} <= $newer->{granted} } values %open;
		my @late = sort { $a->[1]{token} <=> $b->[1]{token} }
		  grep { _excludes(@$_, $lock) } values %open;
		next if @late < $permits;
		my @cycles = map { $_->[0] } @late;
		my $unexcused = grep { !$self->{excuses}->excuses($_) } @cycles;
		push @violations,
		  $self->_violation('late commit', $unexcused < $permits,
			"$name: after token $lock->{token} was granted, "
			  . join(', ', map { sprintf 'token %d committed %.3f s',
				$_->[1]{token}, $_->[0]{recorded} - $newer->{granted} } @late)
			  . ' later', $newer, @cycles);
	}
	return @violations;
}

# Is the other lock newer, and not shared with it?
sub _excludes ($, $lock, $other)
{
	return $lock->{token} < $other->{token}
	  && !($lock->{mode} eq 'shared' && $other->{mode} eq 'shared');
}

# Does the commit guard answer for it?
sub _is_guarded ($cycle)
{
	return $cycle->{kind} !~ /^(fenced|bare|hold|foreign)$/;
}

=pod

=head2 check_ended

Nobody writes a commit record whose node is gone.

=cut

sub check_ended ($self)
{
	return $self->_check_commits(
		'commit without a node',
		sub ($cycle, @nodes) {
			my $last = _last_to_go(@nodes);
			return if $cycle->{recorded} - $last->{end} <= $rounding;
			return sprintf 'its node was %s %.3f s before', $last->{how},
			  $cycle->{recorded} - $last->{end};
		});
}

=pod

=head2 check_proofs

Before each commit the leader was asked in time whether the node was there, and it
was. There is no excuse: the guard looks at the clock after COMMIT was sent.

=cut

sub check_proofs ($self)
{
	return $self->_check_commits(
		'commit without a proof',
		sub ($cycle, @nodes) {
			# A create that is repeated may have made two nodes, which are one
			# contender's: then either will do.
			my @left = grep { $_->{end} > $cycle->{recorded} } @nodes;
			my $proof = max map { $self->_proof($cycle, $_) }
			  @left ? @left : _last_to_go(@nodes);
			my $age = $cycle->{commit_sent} - $proof;
			my $within = $self->{asked_within} && $cycle->{term} ? $lease_share * $cycle->{term} : $self->{asked_within};
			return if $age <= $within + $rounding;
			return sprintf 'the leader was asked %.3f s before COMMIT was sent', $age;
		},
		1);
}

# The last answer of the leader's before the commit.
sub _proof ($self, $cycle, $node)
{
	return max map { $_ <= $cycle->{recorded} ? $_ : $node->{begin} } @{ $node->{proofs} };
}

=pod

=head2 check_reserve

The ensemble does not expire the session of somebody who has just passed the guard:
at least what a proof leaves of the session timeout goes by, less a tenth of the
timeout for clocks, after COMMIT was sent, and after the leader was asked within COMMIT;
whether the node is still there by then or has been released. No excuse here either.

=cut

sub check_reserve ($self)
{
	return $self->_check_commits(
		'session expired too soon',
		sub ($cycle, @nodes) {
			my $last = _last_to_go(@nodes);
			return if $last->{is_lease};
			my $expired = $self->{expired}{ $last->{session} } // return;
			my $passed = max $cycle->{commit_sent}, $self->_proof($cycle, $last);
			my $left = $expired - $passed;
			return if $left >= $self->{reserve} - $rounding;
			return sprintf 'its session was expired %.3f s after it can have passed the guard', $left;
		},
		1);
}

=pod

=head2 check_terms

A lease that was not given up is there for the whole term that was written last, from
when it was written; whoever deletes it.

=cut

sub check_terms ($self)
{
	my @violations;
	foreach my $node (grep { $_->{is_lease} && ($_->{how} // 'lost') ne 'lost' } values %{ $self->{by_token} })
	{
		# Who made it and could not tell his worker gives it up by himself.
		my $cycle = $node->{cycle};
		next if !$cycle || !defined $cycle->{granted};
		next if defined $cycle->{release_sent} && $cycle->{release_sent} <= $node->{end};
		my $stood = $node->{end} - $node->{set};
		next if $stood >= $node->{term} - $rounding;
		push @violations,
		  $self->_violation('a term cut short', 0,
			sprintf('%s: a lease of %.3f s was deleted %.3f s after it was written', @{$node}{qw(name term)}, $stood),
			$cycle);
	}
	return @violations;
}

=pod

=head2 check_lost_sessions(@silences)

A session that has heard nothing for its timeout is lost, so it ends when there is
contact again, or is expired, whatever its backend is doing. Each silence is [from, to, cluster] and
longer than that. Only for those who had been granted a lock and did not stand still.

=cut

sub check_lost_sessions ($self, @silences)
{
	my @violations;
	foreach my $silence (@silences)
	{
		my ($from, $to, $cluster) = @$silence;
		# The next one may begin before there was time to end anything.
		foreach my $next (sort { $a->[0] <=> $b->[0] } @silences)
		{
			$to = max $to, $next->[1]
			  if $next->[2] eq $cluster && $next->[0] >= $from && $next->[0] < $to + $ending;
		}
		foreach my $node (values %{ $self->{by_token} })
		{
			next unless _is_granted($node) && $node->{is_ephemeral};
			my $cycle = $node->{cycle};
			my $pid = $cycle->{pid};
			next
			  if ($cycle->{cluster} || '') ne $cluster
			  || $cycle->{granted} >= $from
			  || $node->{end} <= $to + $ending;
			next
			  if $self->{excuses}->stood_still($pid, $from, $to + $ending)
			  || $self->{excuses}->program_stood_still($pid, $from, $to + $ending);
			push @violations,
			  $self->_violation('lost session goes on', 0,
				sprintf('%s: token %d stayed %.1f s after a silence of %.1f s',
					@{$node}{qw(name token)}, $node->{end} - $to, $to - $from),
				$cycle);
		}
	}
	return @violations;
}

# A violation for each guarded commit of which the code has something to say, given
# the cycle and its nodes of one lock.
sub _check_commits ($self, $check, $code, $is_inexcusable = undef)
{
	my @violations;
	foreach my $cycle (grep { defined $_->{recorded} && _is_guarded($_) }
		@{ $self->{cycles} })
	{
		foreach my $lock (@{ $cycle->{locks} })
		{
			my @nodes = grep { $_->{begin} <= $cycle->{recorded} }
			  @{ $self->{nodes_of}{$cycle}{ $lock->{name} } || [] }
			  or next;
			my $text = $code->($cycle, @nodes) // next;
			push @violations,
			  $self->_violation(
				$check,
				!$is_inexcusable && $self->{excuses}->excuses($cycle),
				"$lock->{name}: token $lock->{token} committed: $text", $cycle);
		}
	}
	return @violations;
}

sub _last_to_go (@nodes)
{
	return (sort { $b->{end} <=> $a->{end} } @nodes)[0];
}

sub _violation ($self, $check, $is_explained, $text, @cycles)
{
	return {
		check => $check,
		text => $text,
		cycles => \@cycles,
		at => max(0, map { $_->{granted} || 0 } @cycles),
		is_explained => $is_explained ? 1 : 0 };
}

1;
