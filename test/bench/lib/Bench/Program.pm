
=pod

=head1 NAME

Bench::Program - a contestant that is a program of its own

=head1 DESCRIPTION

It runs as long as the servers it is measured with, so its sessions and its
compiled code stay warm from round to round, and takes commands on its standard
input: see README.md.

=cut

package Bench::Program;

use v5.36;

use Carp;
use IPC::Open2;

# Every program of this process, for END.
my @programs;

=pod

=head2 new(name => ..., can => [workloads], command => [...], dir => directory for files)

=cut

sub new ($class, %option)
{
	my $self = bless { owner => $$, file => "$option{dir}/$option{name}.cycles", %option }, $class;
	$self->{can} = { map { $_ => 1 } @{ $option{can} } };
	push @programs, $self;
	return $self;
}

=pod

=head2 name, can_do($workload), dir

=cut

sub name { return $_[0]->{name}; }
sub can_do { return $_[0]->{can}{ $_[1] }; }
sub dir { return $_[0]->{dir}; }

=pod

=head2 knows_grants

Whether its cycles tell when the lock was granted.

=cut

sub knows_grants { return 1; }

=pod

=head2 lock($name)

Where this contestant's lock of that name is, as its commands want it.

=cut

sub lock { return "/bench/$_[0]->{name}/$_[1]"; }

=pod

=head2 znode($name)

The lock's path in ZooKeeper.

=cut

sub znode { return $_[0]->lock($_[1]); }

=pod

=head2 make_locks($zookeeper, $name, $count)

The znodes of that many locks, so that the first use of a lock is like any
other.

=cut

sub make_locks ($self, $zk, $name, $count)
{
	my $znode = $self->znode($name) or return;
	my $client = $zk->client;
	$client->create_path("$znode-0");
	foreach my $k (1 .. $count - 1)
	{
		eval { $client->create("$znode-$k", ''); 1 }
		  or $@ =~ /NodeExists/
		  or die $@;
	}
	return;
}

=pod

=head2 start, stop

Standard input that ends is the program's order to end.

=cut

sub start ($self)
{
	my ($from, $to);
	$self->{pid} =
	  open2($from, $to, 'setpriv', '--pdeathsig', 'KILL',
		@{ $self->{command} });
	@{$self}{qw(from to)} = ($from, $to);
	return $self;
}

sub stop ($self)
{
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

sub kill9 ($self)
{
	kill 'KILL', $self->{pid};
	waitpid $self->{pid}, 0;
	$self->{pid} = undef;
	return;
}

=pod

=head2 order(lines), answer, ask(lines)

Sends a command; waits for its answer, a line; both.

=cut

sub order ($self, @lines)
{
	$self->start unless $self->{pid};
	my $to = $self->{to};
	print $to map { "$_\n" } @lines;
	$to->flush;
	return;
}

sub answer ($self)
{
	my $line = readline $self->{from};
	croak "$self->{name} ended by itself; see the log" unless defined $line;
	chomp $line;
	return $line;
}

sub ask ($self, @lines)
{
	$self->order(@lines);
	return $self->answer;
}

# For a file of cycles.
sub ask_cycles ($self, @lines)
{
	$self->ask(@lines);
	return $self->{file};
}

=pod

=head2 start_loop(sessions => ..., seconds => ..., locks => ..., lock => name), finish_loop

So many contenders take and release the lock (or any of their share of so many
locks) again and again. finish_loop returns the file of cycles.

=cut

sub start_loop ($self, %loop)
{
	$self->order(join ' ', 'loop', @loop{qw(sessions seconds locks)},
		$self->lock($loop{lock}), $self->{file});
	return;
}

sub finish_loop ($self)
{
	$self->answer;
	return $self->{file};
}

=pod

=head2 start_queue(depth, stops, lock), let_go, drain

The lock is held, and so many wait for it, or are about to. let_go: the holder
releases it, and so does each waiter who is granted it, until the one whose grant
has a number in the list "1,10" keeps it. drain, after the last of these: all
release it; returns the file of cycles.

=cut

sub start_queue ($self, $depth, $stops, $lock)
{
	$self->ask(join ' ', 'queue', $depth, $stops, $self->lock($lock),
		$self->{file});
	return;
}

sub let_go { $_[0]->ask('go'); return; }

sub drain ($self)
{
	return $self->ask_cycles('drain');
}

=pod

=head2 fresh(count, lock)

So many new sessions, one after the other; a file of cycles, in which a request
begins before the session.

=cut

sub fresh ($self, $count, $lock)
{
	return $self->ask_cycles(join ' ', $self->{fresh_command} || 'fresh', $count, $self->lock($lock), $self->{file});
}

=pod

=head2 start_try(count, lock), try_in_vain, finish_try

One session holds the lock, another tries so many times; finish_try returns the
file of cycles.

=cut

sub start_try ($self, $count, $lock)
{
	$self->ask(join ' ', 'try', $count, $self->lock($lock), $self->{file});
	return;
}

sub try_in_vain { $_[0]->ask('go'); return; }

sub finish_try ($self)
{
	return $self->ask_cycles('done');
}

=pod

=head2 start_take(lock), taken

Takes the lock to keep it. taken waits for it and returns when it was granted,
in microseconds, and the process whose death releases it.

=cut

sub start_take ($self, $lock)
{
	$self->order('take ' . $self->lock($lock));
	return;
}

sub taken ($self)
{
	my ($ok, @granted) = split ' ', $self->answer;
	return @granted;
}

=pod

=head2 leave

Ends in order, sessions first, and does not wait for it.

=cut

sub leave { $_[0]->order('leave'); return; }

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
