
=pod

=head1 NAME

Bench::Plan - which workloads run, how often and for how long

=head1 DESCRIPTION

Contestants take turns: a round is one measurement of each, and all rounds of a
workload are over before the next begins.

=cut

package Bench::Plan;

use strict;
use warnings;

use Bench::Loops;
use Bench::Stage;

# The workloads in their order, and how each is run.
my @workloads = qw(uncontended contenders locks);
my %does = (
	uncontended => \&_uncontended,
	contenders => \&_contenders,
	locks => \&_locks);

# What a quick run and the lesser variants are content with.
my @main = qw(uncontended contenders);

my %full = (
	rounds => { uncontended => 7, contenders => 5, locks => 3 },
	window => 2.0,
	warm_up => 3.0);
my %quick = (
	rounds => { uncontended => 5, contenders => 3, locks => 1 },
	window => 0.5,
	warm_up => 1.5,
	without => { advisory => 1, table => 1 });

=pod

=head2 new(quick => 0, only => "workloads", variants => "names", rounds => N)

Empty words and 0 mean what is usual.

=cut

sub new
{
	my ($class, %option) = @_;
	my $self = bless { %option, %{ $option{quick} ? \%quick : \%full } },
	  $class;
	my @asked = split ' ', $option{only};
	$self->{only} = @asked ? \@asked : undef;
	my @variants = split ' ', $option{variants};
	@variants = $option{quick} ? 'sync' : @Bench::Stage::variants
	  unless @variants;
	$self->{variants} = \@variants;
	foreach my $word (@asked)
	{
		die "no such workload: $word (there are: @workloads)\n"
		  unless $does{$word};
	}
	foreach my $word (@variants)
	{
		die "no such variant: $word (there are: @Bench::Stage::variants)\n"
		  unless $Bench::Stage::variant_title{$word};
	}
	if ($option{rounds})
	{
		$_ = $option{rounds} foreach values %{ $self->{rounds} };
	}
	return $self;
}

sub variants { return @{ $_[0]->{variants} }; }

=pod

=head2 words

How the run was started, for the report.

=cut

sub words
{
	my ($self) = @_;
	return {
		quick => $self->{quick} ? 1 : 0,
		only => join(' ', @{ $self->{only} || [] }),
		window => $self->{window},
		rounds => { %{ $self->{rounds} } } };
}

=pod

=head2 run($variant, $stage, $say, contestants)

All workloads of that variant. The result: {workload}{parameter}{contestant} is
a list of what was seen, one element a round.

=cut

sub run
{
	my ($self, $variant, $stage, $say, @contestants) = @_;
	my @wanted = @workloads;
	@wanted = @main if $self->{quick} || $variant ne 'sync';
	@wanted = @{ $self->{only} } if $self->{only};
	local $self->{stage} = $stage;
	local $self->{say} = $say;
	local $self->{contestants} =
	  [ grep { !$self->{without}{ $_->name } } @contestants ];
	$self->_warm_up;
	my %result;
	foreach my $workload (@wanted)
	{
		$result{$workload} = $does{$workload}->($self);
	}
	return \%result;
}

# Everything runs once before anything counts: server and contestants compile
# themselves as they go, and that takes some seconds.
sub _warm_up
{
	my ($self) = @_;
	$self->{say}->('warming up');
	foreach my $contestant (@{ $self->{contestants} })
	{
		foreach my $sessions (1, $self->{quick} ? () : 8)
		{
			Bench::Loops::measure(
				$self->{stage}->zookeeper, $contestant,
				sessions => $sessions,
				lock => 'uncontended',
				window => $self->{warm_up});
		}
	}
	return;
}

# Rounds of one measurement each; who begins changes, lest somebody always comes
# after the same neighbour.
sub _rounds
{
	my ($self, $workload, $title, %arg) = @_;
	my %result;
	my @able =
	  grep { $_->can_do($workload) } @{ $self->{contestants} };
	foreach my $round (1 .. $self->{rounds}{$workload})
	{
		foreach my $contestant (@able)
		{
			my $seen = Bench::Loops::measure($self->{stage}->zookeeper,
				$contestant, window => $self->{window}, %arg);
			push @{ $result{ $contestant->name } }, $seen;
			$self->{say}->(
				sprintf '%-16s round %d  %-32s %8.0f us %8.0f /s',
				$title, $round, $contestant->title,
				$seen->{p50}, $seen->{rate});
		}
		push @able, shift @able;
	}
	return \%result;
}

sub _uncontended
{
	my ($self) = @_;
	return {
		1 => $self->_rounds(
			'uncontended', 'uncontended',
			sessions => 1,
			lock => 'uncontended') };
}

sub _contenders
{
	my ($self) = @_;
	my %result;
	foreach my $count (2, 8, 32)
	{
		$result{$count} = $self->_rounds(
			'contenders', "$count contenders",
			sessions => $count,
			lock => 'contended');
		# Only the uncontended cycle is drawn as a distribution.
		delete $_->{times} foreach map { @$_ } values %{ $result{$count} };
	}
	return \%result;
}

sub _locks
{
	my ($self) = @_;
	my $seen = $self->_rounds(
		'locks', '1,000 locks',
		sessions => 8,
		locks => 1000,
		lock => 'many');
	delete $_->{times} foreach map { @$_ } values %$seen;
	return { 1000 => $seen };
}

1;
