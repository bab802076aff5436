
=pod

=head1 NAME

Torture::Stage - the servers of the torture test

=head1 DESCRIPTION

An ensemble of three, the clusters berlin and tokyo with zklock, each with its
own way to each server through a proxy, and the vault, in which zklock.servers
is not even set: a fence needs no ZooKeeper.

=cut

package Torture::Stage;

use strict;
use warnings;

use Proxy;
use Torture::Connection;
use Torture::Workload;
use ZkLockTest;
use ZooKeeper;

our @homes = qw(berlin tokyo);

my $tick_ms = 400;

my $tables = q{
	CREATE TABLE counter (name text PRIMARY KEY, v bigint NOT NULL);
	CREATE TABLE ledger (
		worker int,
		cycle int,
		name text NOT NULL,
		token bigint NOT NULL,
		v bigint NOT NULL,
		PRIMARY KEY (worker, cycle));
};

# For all clusters: come back after a crash, and a log that can be read.
my %settings = (
	restart_after_crash => 'on',
	log_statement => 'none',
	log_lock_waits => 'on',
	log_min_error_statement => 'panic',
	max_connections => 60);

=pod

=head2 new(guard => ..., session_timeout => seconds)

=cut

sub new
{
	my ($class, %option) = @_;
	my $zk = ZooKeeper->new(servers => 3, tick_time => $tick_ms)->start;
	my $self = bless { zookeeper => $zk }, $class;
	foreach my $home (@homes)
	{
		my @proxies =
		  map { Proxy->new('127.0.0.1:' . $zk->port($_)) } $zk->members;
		$self->{proxies}{$home} = \@proxies;
		$self->_add_cluster(
			$home,
			[ $Torture::Workload::locks{local} ],
			servers => join(',', map { $_->address } @proxies),
			'zklock.session_timeout' =>
			  1000 * $option{session_timeout} . 'ms',
			'zklock.connect_timeout' => '5s',
			'zklock.commit_guard' => $option{guard},
			# Where it is preloaded, backends hand locks to each other, too.
			'shared_preload_libraries' => $home eq $homes[0] ? 'zklock' : '',
			'zklock.node_style' => $option{style} ne 'mixed' ? $option{style} :
			  $home eq $homes[0] ? 'all' : 'curator');
	}
	$self->_add_cluster(
		'vault',
		[ @Torture::Workload::locks{qw(fenced bare)} ],
		map { ("zklock.$_" => undef) } qw(servers root session_timeout));
	return $self;
}

sub _add_cluster
{
	my ($self, $name, $locks, %more) = @_;
	my $node = cluster($name, $self->{zookeeper}, %settings, %more);
	$node->safe_psql('postgres', $tables);
	foreach my $lock (map { @$_ } @$locks)
	{
		$node->safe_psql('postgres',
			"INSERT INTO counter VALUES ('$lock', 0)");
	}
	$self->{cluster}{$name} = $node;
	return;
}

=pod

=head2 zookeeper, proxies (by cluster), cluster($name), connstr($name)

=cut

sub zookeeper { return $_[0]->{zookeeper}; }
sub proxies { return $_[0]->{proxies}; }
sub cluster_of { return $_[0]->{cluster}{ $_[1] }; }

sub connstr
{
	my ($self, $name) = @_;
	return $self->{cluster}{$name}->connstr('postgres');
}

=pod

=head2 nodes

What is left below the root: paths of queue nodes, seen by a client of its own,
and of ephemeral nodes, as the leader lists them.

=cut

sub nodes
{
	my ($self) = @_;
	my $zk = $self->{zookeeper};
	my %found = map { $_->[0] => 1 } $zk->ephemerals(lock_path(''));
	foreach my $name (map { @$_ } values %Torture::Workload::locks)
	{
		my $path = lock_path($name);
		$found{"$path/$_"} = 1 foreach queue_nodes($zk, $path);
	}
	my @found = sort keys %found;
	return @found;
}

=pod

=head2 rows

The counters of all clusters with their ledgers, as Torture::Checker wants
them, each with its kind of lock.

=cut

sub rows
{
	my ($self) = @_;
	my @rows;
	foreach my $where (@homes, 'vault')
	{
		my $db = Torture::Connection->new($self->connstr($where), 'checker');
		my %row;
		$row{ $_->[0] } = {
			lock => $_->[0],
			kind => ($_->[0] =~ m{^(\w+)/})[0],
			name => "$_->[0] in $where",
			start => 0,
			end => $_->[1],
			entries => [] }
		  foreach @{ $db->rows('SELECT name, v FROM counter') };
		foreach my $entry (
			@{ $db->rows('SELECT name, worker, cycle, token, v FROM ledger') })
		{
			my ($name, @values) = @$entry;
			my %entry;
			@entry{qw(worker cycle token v)} = @values;
			push @{ $row{$name}{entries} }, \%entry;
		}
		push @rows, map { $row{$_} } sort keys %row;
		$db->close;
	}
	return @rows;
}

=pod

=head2 crashes

Lines of the clusters' logs that tell of the end of a process that nobody
intended, given [pid, ...] of those that the nemesis killed.

=cut

sub crashes
{
	my ($self, @killed) = @_;
	my %is_killed = map { $_ => 1 } @killed;
	my @lines;
	foreach my $node (values %{ $self->{cluster} })
	{
		open my $log, '<', $node->logfile or die "could not read log: $!";
		while (my $line = readline $log)
		{
			next unless _tells_of_crash($line);
			next
			  if $line =~ /\(PID (\d+)\) was terminated by signal 9/
			  && $is_killed{$1};
			chomp $line;
			push @lines, $node->name . ": $line";
		}
		my @cores = glob $node->data_dir . '/core*';
		push @lines, @cores;
	}
	return @lines;
}

sub _tells_of_crash
{
	my ($line) = @_;
	return 1 if $line =~ /was terminated by signal/;
	return 1 if $line =~ /\(PID \d+\) exited with exit code (?!0|1\b)/;
	return $line =~
	  /PANIC: |TRAP: |Assertion|stack smashing|free\(\)|malloc\(\)|corrupt/;
}

sub stop
{
	my ($self) = @_;
	$_->stop('fast') foreach values %{ $self->{cluster} };
	$self->{zookeeper}->stop;
	return;
}

1;
