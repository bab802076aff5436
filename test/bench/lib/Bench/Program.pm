
=pod

=head1 NAME

Bench::Program - a contestant that is a program of its own

=head1 DESCRIPTION

It runs as long as the servers it is measured with, so its sessions and its
compiled code stay warm from round to round, and takes commands on its standard
input: see README.md.

=cut

package Bench::Program;

use strict;
use warnings;

use Carp;
use IPC::Open2;

# Every program of this process, for END.
my @programs;

=pod

=head2 new(name => ..., title => ..., can => [workloads], command => [...], dir => directory for files)

=cut

sub new
{
	my ($class, %option) = @_;
	my $self = bless { owner => $$, %option }, $class;
	$self->{can} = { map { $_ => 1 } @{ $option{can} } };
	push @programs, $self;
	return $self;
}

=pod

=head2 name, title, can_do($workload), dir, lock($name)

lock: where this contestant's lock of that name is, as its commands want it.

=cut

sub name { return $_[0]->{name}; }
sub title { return $_[0]->{title}; }
sub can_do { return $_[0]->{can}{ $_[1] }; }
sub dir { return $_[0]->{dir}; }
sub lock { return "/bench/$_[0]->{name}/$_[1]"; }

=pod

=head2 znode($name)

The lock's path in ZooKeeper.

=cut

sub znode { return $_[0]->lock($_[1]); }

=pod

=head2 start, stop

Standard input that ends is the program's order to end.

=cut

sub start
{
	my ($self) = @_;
	my ($from, $to);
	$self->{pid} =
	  open2($from, $to, 'setpriv', '--pdeathsig', 'KILL',
		@{ $self->{command} });
	@{$self}{qw(from to)} = ($from, $to);
	return $self;
}

sub stop
{
	my ($self) = @_;
	return unless $self->{pid};
	close $self->{to};
	my $ended = eval {
		local $SIG{ALRM} = sub { die "late\n" };
		alarm 15;
		waitpid $self->{pid}, 0;
		alarm 0;
		1;
	};
	alarm 0;
	$self->kill9 unless $ended;
	$self->{pid} = undef;
	return;
}

sub kill9
{
	my ($self) = @_;
	kill 'KILL', $self->{pid};
	waitpid $self->{pid}, 0;
	$self->{pid} = undef;
	return;
}

=pod

=head2 order(lines), answer, ask(lines)

Sends a command; waits for its answer, a line; both.

=cut

sub order
{
	my ($self, @lines) = @_;
	$self->start unless $self->{pid};
	my $to = $self->{to};
	print $to map { "$_\n" } @lines;
	$to->flush;
	return;
}

sub answer
{
	my ($self) = @_;
	my $line = readline $self->{from};
	croak "$self->{name} ended by itself; see the log" unless defined $line;
	chomp $line;
	return $line;
}

sub ask
{
	my ($self, @lines) = @_;
	$self->order(@lines);
	return $self->answer;
}

=pod

=head2 start_loop(sessions => ..., seconds => ..., locks => ..., lock => name), finish_loop

So many contenders take and release the lock (or any of their share of so many
locks) again and again. finish_loop returns the file of cycles.

=cut

sub start_loop
{
	my ($self, %loop) = @_;
	$self->{file} = "$self->{dir}/$self->{name}.cycles";
	$self->order(join ' ', 'loop', @loop{qw(sessions seconds locks)},
		$self->lock($loop{lock}), $self->{file});
	return;
}

sub finish_loop
{
	my ($self) = @_;
	$self->answer;
	return $self->{file};
}

END
{
	my $status = $?;
	foreach my $program (@programs)
	{
		$program->kill9 if $program->{owner} == $$ && $program->{pid};
	}
	$? = $status;
}

1;
