
=pod

=head1 NAME

Bench::Backends - zklock in backends that the program "sql" drives

=head1 DESCRIPTION

For what pgbench cannot do. The clock is the client's: a grant is when its
answer has come.

=cut

package Bench::Backends;

use strict;
use warnings;

use Bench::Stage;

use parent 'Bench::Program';

sub lock { return "bench-$_[1]"; }
sub znode { return "$Bench::Stage::root/bench-$_[1]"; }

sub _file
{
	my ($self) = @_;
	return $self->{file} = "$self->{dir}/$self->{name}-sql.cycles";
}

sub _lock_and_unlock
{
	my ($self, $lock) = @_;
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

sub query
{
	my ($self, $session, $sql) = @_;
	my ($ok, undef, $value) = split ' ', $self->ask("query $session", $sql), 3;
	return $value;
}

sub time_query
{
	my ($self, $session, $count, @sql) = @_;
	$self->ask("time $session $count " . $self->_file, @sql);
	return $self->{file};
}

sub close_from { $_[0]->ask("close $_[1]"); return; }

# The workloads ----------------------------------------------------------

# Turns of so many backends, of which only one is at it at a time.
sub start_loop
{
	my ($self, %loop) = @_;
	$self->order(
		"turns $loop{sessions} $loop{seconds} $loop{order} " . $self->_file,
		$self->_lock_and_unlock($loop{lock}));
	return;
}

sub start_queue
{
	my ($self, $depth, $stops, $lock) = @_;
	$self->ask("queue $depth $stops " . $self->_file,
		$self->_lock_and_unlock($lock));
	return;
}

sub fresh
{
	my ($self, $count, $lock) = @_;
	my ($take, $release) = $self->_lock_and_unlock($lock);
	return $self->time_query(0, $count, '', $take,
		"$release; SELECT zk_disconnect()")
	  if $self->{is_reopened};
	$self->ask("fresh $count " . $self->_file, $self->{before} // '',
		$take, $release);
	return $self->{file};
}

sub start_try
{
	my ($self, $count, $lock) = @_;
	my $name = $self->lock($lock);
	$self->{try} = [ $count, '', "SELECT zk_try_lock('$name')", '' ];
	$self->query(0, "SELECT zk_lock('$name')");
	# Opens the session, too.
	die "the lock was not held\n"
	  if $self->query(1, $self->{try}[2]) ne 'f';
	return;
}

sub try_in_vain
{
	my ($self) = @_;
	$self->time_query(1, @{ $self->{try} });
	return;
}

sub finish_try
{
	my ($self) = @_;
	$self->query(0, 'SELECT zk_unlock_all()');
	return $self->{file};
}

sub start_take
{
	my ($self, $lock) = @_;
	$self->{backend} = $self->query(0, 'SELECT pg_backend_pid()');
	my ($take) = $self->_lock_and_unlock($lock);
	$self->order('query 0', $take);
	return;
}

sub taken
{
	my ($self) = @_;
	my ($ok, $granted) = split ' ', $self->answer;
	return ($granted, $self->{backend});
}

# The backend ends when its client has.
sub leave
{
	my ($self) = @_;
	$self->order('close 0');
	return;
}

1;
