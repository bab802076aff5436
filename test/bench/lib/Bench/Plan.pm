
=pod

=head1 NAME

Bench::Plan - which workloads run, how often and for how long

=head1 DESCRIPTION

Contestants take turns: a round is one measurement of each, and all rounds of a
workload are over before the next begins.

=cut

package Bench::Plan;

use v5.36;

use Bench::Commits;
use Bench::Contestants;
use Bench::Depth;
use Bench::Kept;
use Bench::Loops;
use Bench::Sessions;
use Bench::Stage;

# The workloads in their order, each run by the method of its name. After those that follow one
# another so closely that the contestants stay warm come those that need a quiet
# server. "depth" leaves a thousand sessions behind.
my @warm = qw(uncontended contenders locks kept depth);
my @quiet = qw(fresh try release commit spread guard lease memory);
my @workloads = (@warm, @quiet);
# What a quick run and the lesser variants are content with.
my @main = qw(uncontended contenders);

# Many short measurements rather than a few long ones: a disturbance that lasts
# for seconds then spoils a few rounds, which medians forgive. Windows and times
# in seconds.
my %full = (window => 0.5, warm_up => 3.0, without => {});
my %quick = (window => 0.5, warm_up => 1.5, without => { advisory => 1, table => 1 });

# [rounds, rounds of a quick run]
my %rounds = (
	uncontended => [ 15, 4 ],
	contenders => [ 11, 3 ],
	locks => [ 7, 1 ],
	kept => [ 9, 2 ],
	'depth 1' => [ 20, 10 ],
	'depth 10' => [ 11, 5 ],
	'depth 100' => [ 7, 3 ],
	'depth 1000' => [ 5, 1 ],
	fresh => [ 7, 2 ],
	try => [ 5, 2 ],
	release => [ 3, 1 ],
	commit => [ 7, 2 ],
	spread => [ 3, 1 ],
	guard => [ 7, 2 ],
	lease => [ 7, 2 ],
	memory => [ 5, 2 ]);

# Measurements in a round.
my %count = (fresh => 20, try => 200, commit => 30, spread => 3, guard => 200, lease => 200);

# The shortest that ZooKeeper grants with its usual tick, so that the deaths of
# holders do not take the whole day.
my $release_timeout_ms = 4_000;

=pod

=head2 new(quick => 0, only => "workloads", variants => "names", rounds => N)

Empty words and 0 mean what is usual.

=cut

sub new ($class, %option)
{
	my $self = bless { %option, %{ $option{quick} ? \%quick : \%full } },
	  $class;
	my @asked = split ' ', $option{only};
	$self->{only} = @asked ? { map { $_ => 1 } @asked } : undef;
	my @variants = split ' ', $option{variants};
	@variants = $option{quick} ? 'sync' : @Bench::Stage::variants
	  unless @variants;
	$self->{variants} = \@variants;
	foreach my $word (@asked)
	{
		die "no such workload: $word (there are: @workloads)\n"
		  unless grep { $_ eq $word } @workloads;
	}
	foreach my $word (@variants)
	{
		die "no such variant: $word (there are: @Bench::Stage::variants)\n"
		  unless $Bench::Stage::variant_title{$word};
	}
	return $self;
}

sub variants { return @{ $_[0]->{variants} }; }

=pod

=head2 words

How the run was started, for the report.

=cut

sub words ($self)
{
	return {
		quick => $self->{quick} ? 1 : 0,
		window => $self->{window},
		release_timeout_ms => $release_timeout_ms };
}

=pod

=head2 run($variant, $stage, $say, bin => ..., dir => ...)

All workloads of that variant. The result: {workload}{parameter}{contestant} is
a list of what was seen, one element a round.

=cut

sub run ($self, $variant, $stage, $say, %option)
{
	my %usual = map { $_ => 1 }
	  $self->{quick} || $variant ne 'sync' ? @main : @workloads;
	my $wanted = $self->{only} || \%usual;
	local $self->{variant} = $variant;
	local $self->{stage} = $stage;
	local $self->{zookeeper} = $stage->zookeeper;
	local $self->{say} = $say;
	local $self->{option} = \%option;
	local $self->{contestants} = [ grep { !$self->{without}{ $_->name } }
		  Bench::Contestants::all($stage, %option) ];

	my %result;
	my @now = grep { $wanted->{$_} } @warm;
	$self->_warm_up if @now;
	$result{$_} = $self->_run($_) foreach @now;

	@now = grep { $wanted->{$_} } @quiet;
	$_->stop foreach @{ $self->{contestants} };
	$stage->wait_quiet if @now;
	$result{$_} = $self->_run($_) foreach @now;
	$_->stop foreach @{ $self->{contestants} };
	return \%result;
}

sub _run ($self, $workload)
{
	my $method = "_$workload";
	return $self->$method;
}

# Everything runs once before anything counts: server and contestants compile
# themselves as they go, and that takes some seconds.
sub _warm_up ($self)
{
	$self->{say}->('warming up');
	foreach my $contestant (@{ $self->{contestants} })
	{
		next unless $contestant->can_do('uncontended');
		foreach my $sessions (1, $self->{quick} ? () : 8)
		{
			Bench::Loops::measure(
				$self->{zookeeper}, $contestant,
				sessions => $sessions,
				lock => 'uncontended',
				window => $self->{warm_up});
		}
	}
	return;
}

sub _rounds_of ($self, $workload, $parameter = undef)
{
	my $rounds = ($rounds{$workload} || $rounds{"$workload $parameter"})->[ $self->{quick} ? 1 : 0 ];
	# Targets are about the first variant.
	$rounds = int(($rounds + 1) / 2) if $self->{variant} ne 'sync';
	return $self->{option}{rounds} || $rounds;
}

# So many rounds of one measurement each: {name} is a list of what was seen. Who
# begins changes, lest somebody always comes after the same neighbour. The
# parties are [name, what measures].
sub _take_turns ($self, $rounds, $title, @parties)
{
	my %result;
	foreach my $round (1 .. $rounds)
	{
		foreach my $party (@parties)
		{
			my ($name, $measure) = @$party;
			my $seen = $measure->();
			push @{ $result{$name} }, $seen;
			$self->{say}->(
				sprintf '%-15s round %-2d  %-32s %s',
				$title, $round, $name, join '  ', _figures($seen));
		}
		push @parties, shift @parties;
	}
	return \%result;
}

sub _figures ($seen)
{
	my @shown = (
		[ p50 => '%8.0f' ],
		[ rate => '%7.0f /s' ],
		[ response_bytes => '%7.0f bytes' ],
		[ writes => '%.2f writes' ]);
	return map { sprintf $_->[1], $seen->{ $_->[0] } }
	  grep { defined $seen->{ $_->[0] } } @shown;
}

sub _those_who_can ($self, $workload)
{
	return grep { $_->can_do($workload) } @{ $self->{contestants} };
}

# Turns of all who can do the workload.
sub _contest ($self, $workload, $parameter, $title, $measure)
{
	return $self->_take_turns($self->_rounds_of($workload, $parameter), $title,
		map { _party($_->name, $measure, $_) } $self->_those_who_can($workload));
}

# What measures is given more than its name.
sub _party ($name, $measure, @more)
{
	return [ $name, sub { return $measure->(@more) } ];
}

sub _loops ($self, $workload, $parameter, $title, %arg)
{
	my $result = $self->_contest($workload, $parameter, $title,
		sub ($who) { return Bench::Loops::measure($self->{zookeeper}, $who, window => $self->{window}, %arg); });
	# Too much to keep, and only the uncontended cycle is drawn as a
	# distribution.
	foreach my $name (keys %$result)
	{
		my @times = map { @{ delete $_->{times} } } @{ $result->{$name} };
		@times = sort { $a <=> $b } @times;
		$result->{$name}[0]{quantiles} =
		  [ map { $times[ $_ / 200 * $#times ] } 0 .. 200 ]
		  if $workload eq 'uncontended';
	}
	return $result;
}

sub _uncontended ($self)
{
	my $title = 'uncontended';
	return { 1 => $self->_loops($title, 1, $title, sessions => 1, lock => $title) };
}

sub _contenders ($self)
{
	return { map {
			$_ => $self->_loops('contenders', $_, "$_ contenders", sessions => $_, lock => 'contended')
		} (2, 8, 32) };
}

sub _locks ($self)
{
	$_->make_locks($self->{zookeeper}, 'many', 1000) foreach $self->_those_who_can('locks');
	return { 1000 => $self->_loops('locks', 1000, '1,000 locks', sessions => 8, locks => 1000, lock => 'many') };
}

# {what is measured}
sub _kept ($self)
{
	my ($curator) =
	  grep { $_->name eq 'curator' } @{ $self->{contestants} };
	my $kept = Bench::Kept->new(
		$self->{zookeeper}, $self->{stage}, $curator,
		window => $self->{window},
		%{ $self->{option} });
	my %result;
	foreach my $part ($kept->parts)
	{
		my ($parameter, $factor, @parties) = @$part;
		$result{$parameter} = $self->_take_turns(
			$factor * $self->_rounds_of('kept'),
			$parameter, @parties);
	}
	$kept->stop;
	return \%result;
}

sub _depth ($self)
{
	my %result;
	foreach my $depth (1, 10, 100, 1000)
	{
		$result{$depth} = $self->_contest('depth', $depth, "depth $depth",
			sub ($who) { return Bench::Depth::measure($self->{zookeeper}, $who, $depth) });
	}
	return \%result;
}

# Once without counting: their programs are new. The locks' znodes stay: a session
# of zklock takes those away that it has made itself, and would have to make
# them anew each time, which is no part of the others' cycle.
sub _fresh ($self)
{
	my $client = $self->{zookeeper}->client;
	$client->create_path($_->znode('fresh')) foreach $self->_those_who_can('fresh');
	my $measure = sub ($who) { return Bench::Sessions::fresh($self->{zookeeper}, $who, $count{fresh}); };
	$measure->($_) foreach $self->_those_who_can('fresh');
	return { 1 =>
		  $self->_contest('fresh', 1, 'fresh session', $measure) };
}

sub _try ($self)
{
	my $measure = sub ($who) {
		my $seen = Bench::Sessions::try($self->{zookeeper}, $who, $count{try});
		# An idle session's pings would be counted with the next one's tries.
		$who->stop if $who->isa('Bench::Backends');
		return $seen;
	};
	$measure->($_) foreach $self->_those_who_can('try');
	return { 1 => $self->_contest('try', 1, 'try in vain', $measure) };
}

sub _release ($self)
{
	my %result;
	foreach my $how (qw(leave kill))
	{
		my $measure = sub ($pair) {
			my $seen = Bench::Sessions::release($self->{zookeeper}, @{$pair}{qw(holder waiter)}, $how);
			$self->{stage}->wait_up;
			return $seen;
		};
		my @pairs = Bench::Contestants::pairs($self->{stage}, %{ $self->{option} },
			session_timeout_ms => $release_timeout_ms);
		$result{$how} = $self->_take_turns($self->_rounds_of('release', $how), "holder: $how",
			map { _party($_->{name}, $measure, $_) } @pairs);
	}
	return \%result;
}

sub _backends ($self)
{
	my ($backends) =
	  grep { $_->name eq 'zklock' && $_->isa('Bench::Backends') }
	  @{ $self->{contestants} };
	return $backends;
}

# Turns of ours alone, by what they do; once without counting.
sub _ours ($self, $workload, $title, $measure, @what)
{
	my $backends = $self->_backends;
	my @parties = map { _party($_, $measure, $backends, $_, $count{$workload}) } @what;
	$_->[1]->() foreach @parties;
	return $self->_take_turns($self->_rounds_of($workload), $title, @parties);
}

# {with or without a write}{number of locks}
sub _commit ($self)
{
	return {
		read => $self->_ours('commit', 'commit', \&Bench::Commits::commit, 1, 10, 100),
		write => $self->_ours('commit', 'commit, 1 row', \&Bench::Commits::commit_of_a_write, 1, 10, 100) };
}

sub _spread ($self)
{
	return { 1 => $self->_ours('spread', 'commit, locks of every age', \&Bench::Commits::commit_spread, 100, 1000) };
}

sub _guard ($self)
{
	return { 1 => $self->_ours('guard', 'guard', \&Bench::Commits::guard, 'no lock', qw(off fresh quorum)) };
}

sub _lease ($self)
{
	return { 1 => $self->_ours('lease', 'lease', \&Bench::Commits::lease,
			'renewal', 'new lease', qw(zk_require_lease zk_xact_lock)) };
}

sub _memory ($self)
{
	my $backends = $self->_backends;
	$backends->close_from(0);
	return { 1 => $self->_take_turns($self->_rounds_of('memory'), 'memory, kB',
			_party('zklock', \&Bench::Commits::memory, $backends)) };
}

1;
