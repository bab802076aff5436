
=pod

=head1 NAME

Bench::Backends - zklock in backends that the program "sql" drives

=head1 DESCRIPTION

For what pgbench cannot do. The clock is the client's: a grant is when its
answer has come.

=cut

package Bench::Backends;

use v5.36;

use Bench::Stage;

use parent 'Bench::Program';

sub lock { return "bench-$_[1]"; }
sub znode { return "$Bench::Stage::root/bench-$_[1]"; }

sub _lock_and_unlock ($self, $lock)
{
	my $name = $self->lock($lock);
	return ("SELECT zk_lock('$name')", "SELECT zk_unlock('$name')");
}

=pod

=head2 new(..., before => $sql, is_reopened => false)

before: what a new backend runs before its first lock; nothing by default.
is_reopened: a new session is one of a backend that has closed its last one.

=head2 query($session, $sql), time_query($session, $count, before, timed, after), close_from($session)

query returns the first value. time_query: the SQL in the middle is timed;
returns the file of cycles. close_from ends that session and all after it.

=cut

sub query ($self, $session, $sql)
{
	my ($ok, undef, $value) = split ' ', $self->ask("query $session", $sql), 3;
	return $value;
}

sub time_query ($self, $session, $count, @sql)
{
	return $self->ask_cycles("time $session $count $self->{file}", @sql);
}

sub close_from { $_[0]->ask("close $_[1]"); return; }

# The workloads ----------------------------------------------------------

# Turns of so many backends, of which only one is at it at a time.
sub start_loop ($self, %loop)
{
	$self->order(
		"turns $loop{sessions} $loop{seconds} $loop{order} $self->{file}",
		$self->_lock_and_unlock($loop{lock}));
	return;
}

sub start_queue ($self, $depth, $stops, $lock)
{
	$self->ask("queue $depth $stops $self->{file}",
		$self->_lock_and_unlock($lock));
	return;
}

sub fresh ($self, $count, $lock)
{
	my ($take, $release) = $self->_lock_and_unlock($lock);
	return $self->time_query(0, $count, '', $take,
		"$release; SELECT zk_disconnect()")
	  if $self->{is_reopened};
	return $self->ask_cycles("fresh $count $self->{file}", $self->{before} // '', $take, $release);
}

sub start_try ($self, $count, $lock)
{
	my $name = $self->lock($lock);
	$self->{try} = [ $count, '', "SELECT zk_try_lock('$name')", '' ];
	$self->query(0, "SELECT zk_lock('$name')");
	# Opens the session, too.
	die "the lock was not held\n"
	  if $self->query(1, $self->{try}[2]) ne 'f';
	return;
}

sub try_in_vain ($self)
{
	$self->time_query(1, @{ $self->{try} });
	return;
}

sub finish_try ($self)
{
	$self->query(0, 'SELECT zk_unlock_all()');
	return $self->{file};
}

sub start_take ($self, $lock)
{
	$self->{backend} = $self->query(0, 'SELECT pg_backend_pid()');
	my ($take) = $self->_lock_and_unlock($lock);
	$self->order('query 0', $take);
	return;
}

sub taken ($self)
{
	my ($ok, $granted) = split ' ', $self->answer;
	return ($granted, $self->{backend});
}

# The backend ends when its client has.
sub leave ($self)
{
	$self->order('close 0');
	return;
}

1;
