
=pod

=head1 NAME

Torture::Board - what every worker is doing right now

=head1 DESCRIPTION

A small file with one line of fixed width for each worker. The worker overwrites
its line; the nemesis looks there for victims, the main program for progress
and for workers that are stuck. A line is written by one system call.

States: connecting, asking (for locks: the wait), holding, slow (holding, and
asleep in a transaction), resting (holding, and asleep without one), committing, releasing,
spinning (taking and releasing one that is kept), keeping (doing nothing, with such a one),
trying (for a lock in a savepoint), idle
(until slots are given out), claiming (one), evicting, recovering, settling (a hold that may be there), parked (done,
connected), ended. The name is that of the lock; of several, all with "+" between.

=cut

package Torture::Board;

use v5.36;

use Carp;
use Torture::History qw(now);

my $width = 120;

sub new ($class, $path, $workers)
{
	open my $file, '+>', $path or croak "could not write $path: $!";
	my $self = bless { file => $file, path => $path, workers => $workers },
	  $class;
	$self->post($_, state => 'connecting') foreach 1 .. $workers;
	return $self;
}

# A file handle of our own after a fork: the position belongs to the handle.
sub reopen ($self)
{
	open $self->{file}, '+<', $self->{path}
	  or croak "could not open $self->{path}: $!";
	return;
}

=pod

=head2 post($worker, state => ..., pid => ..., cluster => ..., name => ..., cycle => ...,
until => ...)

Workers are numbered from 1. pid is that of the backend that takes the locks, 0
if there is none; until is when it is going to wake up, 0 if it is awake.

=cut

sub post ($self, $worker, %entry)
{
	my $line = join ' ', $worker, $entry{state}, $entry{pid} || 0,
	  $entry{cluster} || '-', $entry{name} || '-', $entry{cycle} || 0,
	  sprintf('%.3f %.3f', now(), $entry{until} || 0);
	sysseek $self->{file}, ($worker - 1) * $width, 0;
	syswrite $self->{file}, sprintf('%-*s', $width - 1, $line) . "\n";
	return;
}

=pod

=head2 entries

A list of hashes: worker, state, pid, cluster, name, cycle, since, until.

=cut

sub entries ($self)
{
	sysseek $self->{file}, 0, 0;
	sysread $self->{file}, my $text, $self->{workers} * $width;
	my @entries;
	foreach my $line (split /\n/, $text)
	{
		my %entry;
		@entry{qw(worker state pid cluster name cycle since until)} = split ' ',
		  $line;
		push @entries, \%entry;
	}
	return @entries;
}

1;
