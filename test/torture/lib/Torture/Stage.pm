
=pod

=head1 NAME

Torture::Stage - the servers of the torture test

=head1 DESCRIPTION

An ensemble of three, whose servers reach each other through proxies, the clusters
berlin and tokyo with zklock, each with its own way to each server through a proxy,
and the vault, in which zklock.servers is not even set: a fence needs no ZooKeeper.
One of the three servers has a clock that is wrong by whole days, and is set now and then
(with libfaketime; without it all clocks are right); and so is that of berlin.
Tokyo has a synchronous standby, for which only those wait who ask for it.

=cut

package Torture::Stage;

use v5.36;

use Proxy;
use Torture::Connection;
use Torture::Links;
use Torture::Plan qw(all_names home_counters vault_counters);
use Torture::TransactionLog;
use ZkLockTest;
use ZooKeeper;

our @homes = qw(berlin tokyo);

# Which of the servers has another clock, and how wrong that of a cluster is, as
# libfaketime reads it.
my $odd_member = 3;
my %odd_clock = (berlin => '-2d');
my ($faketime) = glob '/usr/lib/*/faketime/libfaketimeMT.so.1';

my $tick_ms = 400;

# It logs which epoch it leads from now on.
my $leader_class = 'org.apache.zookeeper.server.quorum.Leader';
my $leader_message = qr/Have quorum of supporters, .* last processed zxid: 0x([0-9a-f]+)00000000$/m;

# Who answers for a counter in the vault.
my %kind_in_vault = (fenced => 'fence', bare => 'nobody', hold => 'hold');

my $tables = q{
	CREATE TABLE counter (name text PRIMARY KEY, v bigint NOT NULL);
	CREATE TABLE ledger (
		worker int,
		cycle int,
		name text NOT NULL,
		is_reader boolean NOT NULL,
		v bigint,
		again bigint,
		PRIMARY KEY (worker, cycle, name));
	CREATE PROCEDURE call_scope(worker int, cycle int, counted text, patience interval,
		think float8, OUT token bigint, OUT granted float8, OUT sent float8)
	LANGUAGE plpgsql AS $$
	DECLARE
		value bigint;
	BEGIN
		token := zk_call_lock(counted, patience);
		granted := extract(epoch FROM clock_timestamp());
		PERFORM pg_sleep(think);
		COMMIT;
		SELECT v INTO STRICT value FROM counter WHERE name = counted;
		PERFORM pg_sleep(think);
		UPDATE counter SET v = value + 1 WHERE name = counted;
		INSERT INTO ledger VALUES (worker, cycle, counted, false, value, value);
		sent := extract(epoch FROM clock_timestamp());
	END $$;
};

# For all clusters: come back after a crash, and a log that can be read.
my %settings = (
	restart_after_crash => 'on',
	log_statement => 'none',
	log_lock_waits => 'on',
	log_min_error_statement => 'panic',
	# For the witness: when was each transaction's commit record written?
	track_commit_timestamp => 'on',
	# What is committed without waiting for the disk is not written for a while.
	wal_writer_delay => '5s',
	max_prepared_transactions => 60,
	max_connections => 60);

=pod

=head2 new(guard => ..., session_timeout => seconds,
clock => file, which says how wrong that of a server is)

=cut

sub new
{
	my ($class, %option) = @_;
	ZooKeeper::sweep_clocks();
	open my $clock, '>', $option{clock} or die "could not write $option{clock}: $!";
	print $clock "+1d\n";
	close $clock;
	my $links = Torture::Links->new;
	my $zk = ZooKeeper->new(
		servers => 3,
		tick_time => $tick_ms,
		# There are always some that stand still.
		patience => 1,
		# As ever: empty containers go while others come to them.
		container_check => 60_000,
		java_options =>
		  ["-Dorg.slf4j.simpleLogger.log.$leader_class=info"],
		environment => { $odd_member => { _odd_clock(FAKETIME_TIMESTAMP_FILE => $option{clock}) } },
		link => sub { $links->port(@_); })->start;
	my $self = bless { zookeeper => $zk, links => $links }, $class;
	foreach my $home (@homes)
	{
		my @proxies =
		  map { Proxy->new('127.0.0.1:' . $zk->port($_)) } $zk->members;
		$self->{proxies}{$home} = \@proxies;
		$self->_add_cluster(
			$home,
			[ home_counters() ],
			servers => join(',', map { $_->address } @proxies),
			'zklock.session_timeout' =>
			  1000 * $option{session_timeout} . 'ms',
			'zklock.connect_timeout' => '5s',
			'zklock.commit_guard' => $option{guard},
			'zklock.lease_worker' => 'on',
			# So backends hand locks to each other, too.
			'synchronous_commit' => 'local',
			init => [ allows_streaming => 1 ]);
	}
	$self->_add_cluster(
		'vault',
		[ vault_counters() ],
		map { ("zklock.$_" => undef) } qw(servers root session_timeout));
	$self->_add_standby($self->{cluster}{ $homes[-1] });
	return $self;
}

sub _add_standby ($self, $primary)
{
	my $name = $primary->name . '_standby';
	$primary->backup('standby');
	my $node = PostgreSQL::Test::Cluster->new($name);
	$node->init_from_backup($primary, 'standby', has_streaming => 1);
	$node->append_conf('postgresql.conf',
		"cluster_name = '$name'\nwal_retrieve_retry_interval = '100ms'\n"
		  . "synchronous_standby_names = ''");
	$node->start;
	$primary->append_conf('postgresql.conf', "synchronous_standby_names = '*'");
	$primary->reload;
	$self->{standby} = $node;
	return;
}

# What gives a program its own time of day, beside the machine's other clocks. Without the
# last word Java's waits are late: a server took half a minute to start on Debian 13.
sub _odd_clock (@where)
{
	return unless $faketime;
	return (LD_PRELOAD => $faketime, FAKETIME_DONT_FAKE_MONOTONIC => 1,
		FAKETIME_CACHE_DURATION => 1, FAKETIME_FORCE_MONOTONIC_FIX => 0, @where);
}

sub _add_cluster ($self, $name, $counters, %more)
{
	local %ENV = (%ENV, $odd_clock{$name} ? _odd_clock(FAKETIME => $odd_clock{$name}) : ());
	my $node = cluster($name, $self->{zookeeper}, %settings, %more);
	$node->safe_psql('postgres', $tables);
	$node->safe_psql('postgres', join "\n",
		map { "INSERT INTO counter VALUES ('$_', 0);" } @$counters);
	$self->{cluster}{$name} = $node;
	return;
}

=pod

=head2 zookeeper, links, proxies (by cluster), standby (its name), connstr($name)

=cut

sub zookeeper { return $_[0]->{zookeeper}; }
sub proxies { return $_[0]->{proxies}; }
sub links { return $_[0]->{links}; }
sub standby { return $_[0]->{standby}->name; }

sub connstr ($self, $name)
{
	return $self->{cluster}{$name}->connstr('postgres');
}

=pod

=head2 nodes

What is left below the root: paths of queue nodes, seen by a client of its own,
and of ephemeral nodes, as the leader lists them.

=cut

sub nodes ($self)
{
	my $zk = $self->{zookeeper};
	my %found = map { $_->[0] => 1 } $zk->ephemerals(lock_path(''));
	foreach my $name (all_names())
	{
		my $path = lock_path($name);
		# Beside the queue there are znodes of names below this one.
		$found{"$path/$_"} = 1
		  foreach grep { /\d{10}$/ } queue_nodes($zk, $path);
	}
	my @found = sort keys %found;
	return @found;
}

=pod

=head2 differing($seconds)

Paths of queue nodes that some of the servers have and others have not, all the time for so
long: servers that agree are not behind for so long when nobody does anything to them. None if
one of them cannot be asked.

=cut

sub differing ($self, $seconds)
{
	my $zk = $self->{zookeeper};
	my @members = $zk->members;
	my $differs;
	my $is_over = eval {
		poll_until
		{
			my %count;
			foreach my $client (map { $zk->client(member => $_) } @members)
			{
				$count{$_}++ foreach _queue_nodes_at($client);
				$client->close;
			}
			$differs = { map { $_ => 1 } grep { $count{$_} < @members && (!$differs || $differs->{$_}) } keys %count };
			!%$differs;
		}
		'the servers to agree', $seconds;
	};
	return if $is_over || $@ !~ /^timed out/;
	return sort keys %$differs;
}

# As that server sees them.
sub _queue_nodes_at ($client)
{
	my @found;
	foreach my $path (map { lock_path($_) } all_names())
	{
		push @found, map { "$path/$_" } grep { /\d{10}$/ } $client->children($path) if $client->exists($path);
	}
	return @found;
}

=pod

=head2 rows

The counters of all clusters with their ledgers, as Torture::Checker wants
them, each with who answers for it: "guard", "fence", "hold" or "nobody". What is in
a ledger without a counter comes as a row that has no end. Each entry also has
recorded, the time of day of its commit record.

=cut

sub rows ($self)
{
	my @rows;
	foreach my $where (@homes, 'vault')
	{
		my $db = Torture::Connection->new($self->connstr($where), 'checker');
		my %end = map { $_->[0] => $_->[1] }
		  @{ $db->rows('SELECT name, v FROM counter') };
		my %entries;
		foreach my $values (
			@{ $db->rows('SELECT name, worker, cycle, is_reader, v, again,
				extract(epoch FROM pg_xact_commit_timestamp(xmin)) FROM ledger') })
		{
			my %entry;
			@entry{qw(name worker cycle is_reader v again recorded)} = @$values;
			push @{ $entries{ $entry{name} } }, \%entry;
		}
		push @rows, map {
			{
				name => "$_ in $where",
				kind => $where eq 'vault' ? $kind_in_vault{ (m{^(\w+)/})[0] } : 'guard',
				start => 0,
				end => $end{$_},
				entries => $entries{$_} || [] }
		} sort keys %{ { %end, %entries } };
		$db->close;
	}
	return @rows;
}

=pod

=head2 crashes

Lines of the clusters' logs that tell of the end of a process that nobody
intended, given [pid, ...] of those that the nemesis killed.

=cut

sub crashes ($self, @killed)
{
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

sub _tells_of_crash ($line)
{
	return 1 if $line =~ /was terminated by signal/;
	return 1 if $line =~ /\(PID \d+\) exited with exit code (?!0|1\b)/;
	return $line =~
	  /PANIC: |TRAP: |Assertion|stack smashing|free\(\)|malloc\(\)|corrupt/;
}

=pod

=head2 transactions

All that are in the logs of the servers; see L<Torture::TransactionLog>. When they have
stopped.

=head2 paths

The znode of each lock, by name.

=cut

sub transactions ($self)
{
	my $zk = $self->{zookeeper};
	my %leader;     # data directory by epoch
	foreach my $member ($zk->members)
	{
		open my $log, '<', $zk->log_file($member) or die "could not read log: $!";
		my $text = do { local $/; readline $log };
		$leader{ hex $1 } = $zk->data_dir($member) while $text =~ /$leader_message/g;
	}
	return Torture::TransactionLog::all(\%leader,
		map { $zk->data_dir($_) } $zk->members);
}

sub paths { return map { $_ => lock_path($_) } all_names(); }

sub stop ($self)
{
	$_->stop('fast') foreach values %{ $self->{cluster} }, $self->{standby};
	$self->{zookeeper}->stop;
	ZooKeeper::sweep_clocks();
	return;
}

1;
