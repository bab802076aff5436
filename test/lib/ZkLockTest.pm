
=pod

=head1 NAME

ZkLockTest - what the TAP tests of zklock share

=head1 SYNOPSIS

  use ZkLockTest;

  my $zk = ZooKeeper->new->start;
  my $node = cluster('berlin', $zk, 'zklock.session_timeout' => '2s');
  my $holder = background($node);
  my $waiter = background($node);

  $holder->query_safe("SELECT zk_lock('nightly')");
  $waiter->start_query("SELECT zk_lock('nightly')");
  wait_for_wait($node, $waiter->pid);
  $holder->query_safe("SELECT zk_unlock('nightly')");
  $waiter->wait_result;

  assert_no_nodes($zk, lock_path('other'), 'nothing left behind');

=head1 DESCRIPTION

Exports the functions below, poll_until of L<ZooKeeper>, time and sleep of L<Time::HiRes>, what
is used most of L<PostgreSQL::Test::Utils>, and the functions of L<Test::More>, and turns on
strict, warnings and signatures for who uses it. The clusters are
PostgreSQL::Test::Cluster objects with everything that offers. Where zklock is
installed is not known here: test/check names its private installation in
TEMP_CONFIG, which every test cluster reads. With ZKLOCK_TEST_TLS in the environment, see
L<ZooKeeper>, their sessions use TLS.

=cut

package ZkLockTest;

use v5.36;
use feature ();

use Carp;
use Certificates;
use File::Basename qw(basename);
use Patience qw(in_time is_over stretched);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Preload;
use Test::More import => ['!done_testing'];
use Time::HiRes qw(sleep time);
use ZooKeeper qw(poll_until session_number);

use parent 'Exporter';

our @EXPORT = qw(
  cluster
  beside
  standby_of
  background
  ask
  pg_major
  missing_extensions
  wait_for_wait
  wait_for_sleep
  wait_for_lock
  wait_for_event
  wait_for_demand
  wait_for_queue
  start_in_queue
  start_to_wait
  line_up
  wait_for_watch
  wait_in_transaction
  set_and_be_seen
  wait_for_recovery
  wait_for_loss
  reconfigure
  install_as_documented
  write_terminal
  lock_path
  queue_nodes
  first_in_queue
  node_prefix
  marked_as
  assert_nodes
  assert_no_nodes
  session_id_of
  session_number
  session_programs
  kill_session_program
  ticks_of
  assert_no_programs
  assert_query
  assert_ends
  assert_held
  assert_passes
  assert_released
  assert_leave_nothing
  assert_knows_loss
  assert_soon
  assert_becomes
  assert_told
  assert_least
  assert_within
  in_time
  is_over
  stretched
  least_of
  plays_all
  poll_until
  done_testing
  sleep
  time
  append_to_file
  run_command
  slurp_file
  system_or_bail
);

# What every test begins with, see DESCRIPTION.
sub import ($class, @names)
{
	Test::More->export_to_level(1, undef, grep { $_ ne 'done_testing' } @Test::More::EXPORT);
	$class->export_to_level(1, $class, @names);
	strict->import;
	warnings->import;
	feature->import('signatures');
	return;
}

# Every cluster of this test, for END.
my @clusters;

# By the name of a cluster: what it was made with, and those that are like it.
my %made;
my %beside;

# Where the routes of sessions are (preload/routes.c), and the library; '' without a compiler.
my $routes = PostgreSQL::Test::Utils::tempdir_short();
my $router;

# By the process id of a backend: its cluster, if it is beside another one.
my %beside_of;
my $main = $$;

# One root for all clusters of a test, so that they meet; another for each
# test, should several share a ZooKeeper.
my $root = "/zklock-test-$$";

=pod

=head1 FUNCTIONS

=head2 cluster($name, $zookeeper, setting => value, ...)

A running cluster with zklock created in the database postgres. The settings go
to postgresql.conf; undef leaves one of the settings below out. Not settings:

=over

=item servers => connect string

Instead of that of $zookeeper, e.g. a proxy's address.

=item init => [ allows_streaming => 1, ... ]

For PostgreSQL::Test::Cluster's init.

=item environment => { NAME => value }

Of its processes, as it is started here.

=item extension => name

Instead of zklock, or undef for none.

=back

=cut

sub cluster ($name, $zk, %setting)
{
	$made{$name} = [ $zk, %setting ];
	my @init = @{ delete $setting{init} || [] };
	my $extension =
	  exists $setting{extension} ? delete $setting{extension} : 'zklock';
	my $servers = delete $setting{servers} || $zk->connect_string;
	my $logfile = delete $setting{logfile};
	delete $setting{environment};
	local %ENV = _environment_of($name);

	%setting = (
		'zklock.servers' => $servers,
		shared_preload_libraries => 'zklock',
		'zklock.lease_worker' => 'off',
		'zklock.root' => $root,
		# A busy machine may stand still for seconds.
		'zklock.session_timeout' => '20s',
		'cluster_name' => $name,
		'max_prepared_transactions' => 5,
		_tls_settings(),
		%setting);

	my $node = PostgreSQL::Test::Cluster->new($name);
	_init($node, @init);
	foreach my $key (grep { defined $setting{$_} } sort keys %setting)
	{
		(my $value = $setting{$key}) =~ s/'/''/g;
		$node->append_conf('postgresql.conf', "$key = '$value'");
	}
	push @clusters, $node;
	$node->{_logfile} = $logfile if $logfile;
	$node->start;
	$node->safe_psql('postgres', "CREATE EXTENSION $extension")
	  if $extension;
	return $node;
}

=pod

=head2 beside($node, setting => value, ...)

A cluster as that one, made by the same settings and these: with other servers or credentials,
which are those of a whole cluster. The same one, if it was asked for before. It begins with the
roles, databases and tables that the other one has then, and writes to the same log.

=cut

sub beside ($node, %setting)
{
	my $others = $beside{ $node->name } //= {};
	my $key = join "\n", map { "$_=$setting{$_}" } sort keys %setting;
	my ($zk, %made) = @{ $made{ $node->name } };
	delete $made{servers} if exists $setting{'zklock.servers'};
	return $others->{$key} if $others->{$key};
	my $other = cluster(join('_', $node->name, 'beside', $$, scalar keys %$others), $zk, %made, %setting,
		extension => undef, logfile => $node->logfile);
	my $dump = $node->basedir . "/beside_$$.sql";
	system_or_bail($node->installed_command('pg_dumpall'), '-d', $node->connstr('postgres'), '-f', $dump);
	# The role that all begin with is there already.
	system_or_bail($node->installed_command('psql'), '-X', '-q', '-o', '/dev/null', '-d', $other->connstr('postgres'), '-f', $dump);
	return $others->{$key} = $other;
}

# None, if they are not to use TLS.
sub _tls_settings
{
	my $directory = $ENV{ZKLOCK_TEST_TLS} or return;
	return Certificates->at($directory, 'test')->settings('client');
}

# PostgreSQL 17 and later copy INITDB_TEMPLATE by themselves.
sub _init
{
	my ($node, @option) = @_;
	my $template = $ENV{INITDB_TEMPLATE};
	my $system_or_bail = \&PostgreSQL::Test::Utils::system_or_bail;
	no warnings 'redefine';
	local *PostgreSQL::Test::Utils::system_or_bail = sub {
		@_ = ('cp', '-RPp', $template, $_[2])
		  if $template && "@_[0, 1, 3 .. $#_]" eq 'initdb -D -A trust -N';
		goto &$system_or_bail;
	};
	$node->init(@option);
	return;
}

=pod

=head2 standby_of($node, $name)

A running standby of that cluster, which streams.

=cut

sub standby_of ($node, $name = 'standby')
{
	$node->backup($name);
	my $standby = PostgreSQL::Test::Cluster->new($name);
	$standby->init_from_backup($node, $name, has_streaming => 1);
	push @clusters, $standby;
	$standby->start;
	return $standby;
}

=pod

=head2 background($node, database => name, user => name, name => application_name, setting => value, ...)

A session of its own, with these settings; see L</SESSIONS>. With is_connected it has a session
of ZooKeeper's by now, with holds => name it holds that lock, and first => $sql it has been asked.
With zklock.servers or zklock.auth it is a session of a cluster L</beside> that one. With route =>
address its connections go to that address of 127.0.0.1, for example a proxy's, as by a network of
its own, whatever the servers of its cluster are.

=cut

sub background ($node, %option)
{
	my %other = map { exists $option{$_} ? ($_ => delete $option{$_}) : () } 'zklock.servers', 'zklock.auth';
	$node = beside($node, %other) if %other;
	my $session = ZkLockTest::Session->new($node, %option);
	$beside_of{ $session->pid } = $node if %other;
	return $session;
}

=pod

=head2 ask($node, $sql, $database)

As safe_psql does, by a session that is kept for this, with the settings that it began with: a
psql for each question takes 25 ms of a processor. Not for what ends with its session, and
not for what must be seen by a new one.

=cut

# By node and database.
my %asked;

sub ask ($node, $sql, $database = 'postgres')
{
	my $session = \$asked{ $node->name . "/$database" };
	my $result = ($$session //= background($node, database => $database))->query($sql);
	# The cluster may have been restarted since the last question.
	$result = ($$session = background($node, database => $database))->query($sql)
	  if $$session->sqlstate eq '08006';
	# Of several statements the SQLSTATE is that of the last one.
	croak "\"$sql\" failed: " . $$session->error
	  if $$session->sqlstate ne '00000' || $$session->error =~ /(?:ERROR|FATAL):/;
	$$session->query_safe('RESET ROLE; RESET ALL') if $sql =~ /\bSET\b/;
	return $result;
}

=pod

=head2 pg_major($node)

Its release of PostgreSQL, 17 or the like, whatever comes behind that.

=cut

sub pg_major ($node)
{
	return int($node->safe_psql('postgres', 'SHOW server_version_num') / 10000);
}

=pod

=head2 missing_extensions($node, $name, ...)

Those that are not to be had there; a PostgreSQL may be installed without its
contrib modules.

=cut

sub missing_extensions ($node, @names)
{
	my %has = map { $_ => 1 } split /\n/,
	  $node->safe_psql('postgres', 'SELECT name FROM pg_available_extensions');
	return grep { !$has{$_} } @names;
}

=pod

=head2 wait_for_wait($node, $pid)

Until that backend waits for zklock, be it for a lock or for a connection.

=cut

sub wait_for_wait ($node, $pid, $session = undef)
{
	_wait_for_activity($node, $pid,
		"state = 'active' AND wait_event_type = 'Extension'", 'to wait for a lock', $session);
	return;
}

=pod

=head2 wait_for_sleep($node, $pid), wait_for_lock($node, $pid)

Until that backend is in pg_sleep(); until it waits for a lock of PostgreSQL's own.

=cut

sub wait_for_sleep ($node, $pid)
{
	_wait_for_activity($node, $pid, "wait_event = 'PgSleep'", 'to sleep');
	return;
}

sub wait_for_lock ($node, $pid)
{
	_wait_for_activity($node, $pid, "wait_event_type = 'Lock'", "to wait for a lock of PostgreSQL's own");
	return;
}

=pod

=head2 wait_for_event($node, $pid, $event)

Until that backend waits for that event of zklock. Up to PostgreSQL 16 these have
no names.

=cut

sub wait_for_event ($node, $pid, $event)
{
	_wait_for_activity($node, $pid,
		"wait_event_type = 'Extension' AND wait_event = '$event'", "to wait for $event");
	return;
}

# Until the row of that backend in pg_stat_activity is like that.
sub _wait_for_activity ($node, $pid, $condition, $what, $session = undef)
{
	my $sql =
	  "SELECT count(*) = 1 FROM pg_stat_activity WHERE pid = $pid AND $condition";
	$node = $beside_of{$pid} // $node;
	poll_until { ask($node, $sql) eq 't' || $session && $session->fails_early } "backend $pid $what", 60;
	return;
}

=pod

=head2 wait_for_demand($node)

Until commits wait for the standby that synchronous_standby_names demands: the
checkpointer says when, and it may take the setting later than the sessions.

=cut

sub wait_for_demand ($node)
{
	my $session = ZkLockTest::Session->new($node);
	my $pid = $session->pid;
	$session->query_safe('SET synchronous_commit = on');
	poll_until
	{
		$session->start_query("SELECT pg_logical_emit_message(true, '', '')");
		poll_until
		{
			$session->is_done || ask($node,
				"SELECT pg_cancel_backend(pid) FROM pg_stat_activity
				 WHERE pid = $pid AND wait_event = 'SyncRep'");
		}
		'the commit, or its wait', 30;
		$session->wait_result;
		$session->error =~ /canceling wait for synchronous replication/;
	}
	'commits to wait for a standby', 30;
	$session->quit;
	return;
}

=pod

=head2 wait_for_queue($zookeeper, $path, $count, $session)

Until that many contenders' nodes are below the path; returns their names as
queue_nodes does. Dies at once if the session's query, if one is given, has failed.
Between two waiters whose order matters, use this: a backend
may wait for its connection before it stands in the queue.

=cut

sub wait_for_queue ($zk, $path, $count, $session = undef)
{
	my @names;
	poll_until { @names = queue_nodes($zk, $path); @names == $count || $session && $session->fails_early }
	"$count nodes below $path", $PostgreSQL::Test::Utils::timeout_default;
	return @names;
}

=pod

=head2 start_in_queue($session, $sql, $zookeeper, $path, $count)

Starts the query, and waits until so many nodes are below the path.

=cut

sub start_in_queue ($session, $sql, $zk, $path, $count)
{
	$session->start_query($sql);
	return wait_for_queue($zk, $path, $count, $session);
}

=pod

=head2 start_to_wait($session, $sql)

Starts the query, and waits until it waits for zklock.

=cut

sub start_to_wait ($session, $sql)
{
	$session->start_query($sql);
	return wait_for_wait($session->node, $session->pid, $session);
}

=pod

=head2 wait_in_transaction($session, $sql, $result)

Until the query has that result in the transaction that is open, where it may be canceled: for the
loss of a lock.

=cut

sub wait_in_transaction ($session, $sql, $result)
{
	$session->query_safe('SAVEPOINT waits');
	poll_until
	{
		my $is_so = $session->query($sql) eq $result;
		$session->query_safe('ROLLBACK TO waits') if $session->sqlstate ne '00000';
		$is_so;
	}
	"$sql: $result", 30;
	return;
}

=pod

=head2 line_up($zookeeper, $name, @sessions)

The first one takes the lock, the others wait in this order, and each watches the one ahead.

=cut

sub line_up ($zk, $name, $first, @others)
{
	$first->query_safe("SELECT zk_lock('$name')");
	foreach my $position (1 .. @others)
	{
		my ($ahead) = (start_in_queue($others[ $position - 1 ], "SELECT zk_lock('$name')",
				$zk, lock_path($name), $position + 1))[ $position - 1 ];
		wait_for_watch($zk, $ahead);
	}
	return;
}

=pod

=head2 wait_for_watch($zookeeper, $node, @sessions)

Until somebody watches that znode, by its name or its path, as who waits for it does; or until
one of these sessions has its answer.

=cut

sub wait_for_watch ($zk, $node, @sessions)
{
	poll_until
	{
		(grep { $_->is_done } @sessions) || grep { m{(?:^|/)\Q$node\E$} } $zk->watched_paths('/');
	}
	"somebody to watch $node", 60;
	return;
}

=pod

=head2 set_and_be_seen($zookeeper, $client, $node)

The client sets the data of a znode that one waiter watches, which then looks at the queue, and
watches again.

=cut

sub set_and_be_seen ($zk, $client, $node)
{
	my $received = $zk->packets_received;
	$client->set($node, '');
	poll_until { $zk->packets_received > $received + 1 } 'it to look';
	return wait_for_watch($zk, $node);
}

=pod

=head2 wait_for_recovery($node, $pid)

Until a cluster answers again that crashes by the end of its process $pid. It answers as before
until the postmaster hears of that end, which it logs. Cluster's poll_query_until does not bear
that psql may end meanwhile before it has read the query.

=cut

sub wait_for_recovery ($node, $pid)
{
	poll_until { $node->log_contains("\\(PID $pid\\) was terminated by signal") } 'the cluster to crash', 60;
	poll_until { eval { $node->safe_psql('postgres', 'SELECT true') eq 't' } }
	'the cluster to answer', 60;
	return;
}

=pod

=head2 wait_for_loss($session, $seconds)

Until the session, which runs nothing, says that its ZooKeeper session is lost. The loss may also
interrupt that question.

=cut

sub wait_for_loss ($session, $seconds = undef)
{
	poll_until { $session->query('SELECT state FROM zk_session') eq 'lost' } 'the ZooKeeper session to be lost', $seconds;
	return;
}

=pod

=head2 reconfigure($node, setting => value, ...)

From now on the cluster has these settings, or no other than at its start where the value is
undef. Its new sessions have them by then. Other servers are set together with those of before
first, for zklock takes no others while it runs. C<zklock.ssl> is set by a restart.

=cut

sub reconfigure ($node, %setting)
{
	if (exists $setting{'zklock.servers'})
	{
		my ($zk, %made) = @{ $made{ $node->name } };
		my $new = $setting{'zklock.servers'} // $made{servers} // $made{'zklock.servers'} // $zk->connect_string;
		my $now = ask($node, 'SHOW zklock.servers');
		my ($servers, $chroot) = $now =~ m{^([^/]*)(.*)$};
		my $both = "$servers,$new";
		# A list has 32 servers at most.
		$both = join ',', (split /,/, $servers)[0], grep { defined } (split /,/, $new =~ s{/.*}{}r)[ 0 .. 30 ] if 31 < $both =~ tr/,//;
		$both .= $chroot if $both !~ m{/};
		_reconfigure($node, 'zklock.servers' => $both) if $servers ne '' && $now ne $new && $new =~ m{^[^/]*\Q$chroot\E$};
	}
	return _reconfigure($node, %setting);
}

# What the server of that cluster is started with.
sub _environment_of ($name)
{
	my (undef, %made) = @{ $made{$name} };
	my %environment = (%ENV, %{ $made{environment} || {} }, LD_TEST_ROUTES => $routes);
	$router //= Preload::library('routes') // '';
	$environment{LD_PRELOAD} = join ' ', grep { $_ } $environment{LD_PRELOAD}, $router;
	return %environment;
}

sub _reconfigure ($node, %setting)
{
	my (@changes, @conditions);
	foreach my $name (sort keys %setting)
	{
		my $value = defined $setting{$name} ? "'" . $setting{$name} =~ s/'/''/gr . "'" : undef;
		push @changes, 'ALTER SYSTEM ' . (defined $value ? "SET $name = $value" : "RESET $name");
		next if $name eq 'zklock.ssl';
		push @conditions, defined $value ? "current_setting('$name') = $value"
		  : "NOT EXISTS (SELECT FROM pg_settings WHERE name = '$name' AND sourcefile LIKE '%.auto.conf')";
	}
	ask($node, join '; ', @changes);
	my $began = ask($node, 'SELECT clock_timestamp()');
	$node->reload;
	# The postmaster has them before its children: so new sessions have them, too.
	push @conditions, "pg_conf_load_time() >= '$began'" if !@conditions;
	my $are_there = 'SELECT ' . join ' AND ', @conditions;
	poll_until { ask($node, $are_there) eq 't' } "the settings @{[ sort keys %setting ]}";
	if (ask($node, "SELECT pending_restart FROM pg_settings WHERE name = 'zklock.ssl'") eq 't')
	{
		local %ENV = _environment_of($node->name);
		$node->restart;
	}
	return;
}

=pod

=head2 install_as_documented($node, @databases)

In these databases zklock is created as README.md says: in a schema of its own, which everybody
may use. For clusters with C<< extension => undef >>.

=cut

sub install_as_documented ($node, @databases)
{
	$node->safe_psql($_, 'CREATE SCHEMA zklock; GRANT USAGE ON SCHEMA zklock TO PUBLIC; CREATE EXTENSION zklock SCHEMA zklock')
	  foreach @databases;
	return;
}

=pod

=head2 write_terminal($node, $directory)

Writes a program that starts psql on that cluster, whose prompt is the cluster's name, and returns
its file. "test/demo NAME" calls it, see there. The cluster must listen on 127.0.0.1.

=cut

sub write_terminal ($node, $directory)
{
	my $name = $node->name;
	my $file = "$directory/psql-$name";
	my $psql = $node->config_data('--bindir') . '/psql';
	my $user = $node->safe_psql('postgres', 'SELECT current_user');
	append_to_file($file, <<~SH);
		#!/bin/sh
		exec '$psql' -h 127.0.0.1 -p @{[ $node->port ]} -U '$user' -d postgres -P pager=off \\
			-v PROMPT1='$name%R%x%# ' -v PROMPT2='$name%R%x%# ' "\$@"
		SH
	chmod 0755, $file or croak "could not change the mode of $file: $!";
	return $file;
}

=pod

=head2 lock_path($name)

The znode of a lock.

=cut

sub lock_path ($name) { return "$root/$name"; }

=pod

=head2 queue_nodes($zookeeper, $path)

The contenders' nodes below a lock's path in the order of their sequence
numbers; none if there is no such path. In scalar context how many.

=cut

sub queue_nodes
{
	my ($zk, $path) = @_;
	my ($tries, @names) = (3);
	while ($tries--)
	{
		my $client;
		@names = eval { $client = $zk->client; $client->children($path) };
		# A server that has stood still ends sessions when it goes on, a new one, too.
		next if $tries && $@ =~ /ConnectionLoss|SessionExpired/;
		# A container goes when it is empty, also between two questions.
		die $@ if $@ && $@ !~ /NoNode/;
		$client->close;
		last;
	}
	my $sequence = sub { return $_[0] =~ /(\d{10})$/ ? $1 : -1; };
	@names =
	  sort { $sequence->($a) <=> $sequence->($b) || $a cmp $b } @names;
	return @names;
}

=pod

=head2 first_in_queue($zookeeper, $name)

The path of the first contender's node in the queue of a lock.

=cut

sub first_in_queue ($zk, $name) { return lock_path($name) . '/' . (queue_nodes($zk, lock_path($name)))[0]; }

=pod

=head2 node_prefix($mark), marked_as($mark)

What a contender's node is called, up to its number, as Curator calls it: without a mark that of
any client; with one as zklock calls it if it was 'handed over', is a 'hold', or is 'kept'. The
second is a pattern for the names of the queue nodes that zklock has made with such a mark.

=cut

# The third group of the GUID in the name.
my %group = ('' => '41d1', 'handed over' => '8a11', hold => '8a12', kept => '8a13');

sub node_prefix ($mark = '') { return "_c_6ba7b810-9dad-$group{$mark}-80b4-00c04fd430c8-lock-"; }
sub marked_as ($mark) { return qr/_c_\w{8}-\w{4}-$group{$mark}-/; }

=pod

=head2 assert_soon { condition } $what, $seconds

A test: the condition is met in that time, as of poll_until.

=cut

sub assert_soon :prototype(&$;$) ($condition, $what, $seconds = undef)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok(eval { poll_until(\&$condition, $what, $seconds); 1 }, $what) || diag($@);
}

=pod

=head2 assert_becomes { value } $expected, $what, $seconds

A test: the value is the expected one, or will be in that time, by default half a minute.

=cut

sub assert_becomes :prototype(&$$;$) ($value, $expected, $what, $seconds = 30)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $is;
	eval { poll_until { ($is = $value->()) eq $expected } $what, $seconds };
	return is($is, $expected, $what) || diag($@);
}

=pod

=head2 assert_nodes($zookeeper, $path, $count, $what)

A test: so many contenders' nodes are below the path, or will be in a moment, for
who leaves does not wait until he has left.

=cut

sub assert_nodes ($zk, $path, $count, $what)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return assert_becomes { scalar queue_nodes($zk, $path) } $count, $what;
}

=pod

=head2 assert_no_nodes($zookeeper, $path, $what)

A test: nothing is left below the path. A release is not awaited by who
releases, so it may take a moment.

=cut

sub assert_no_nodes ($zk, $path, $what = undef)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return assert_becomes { join ' ', queue_nodes($zk, $path) } '', $what || "no nodes below $path";
}

=pod

=head2 assert_query($session, $sql, $sqlstate, $what), assert_ends($session, $sqlstate, $what)

A test: the query, or the one that is under way, ends with that SQLSTATE. Returns what it has
said.

=cut

sub assert_query ($session, $sql, @expected)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$session->start_query($sql);
	return assert_ends($session, @expected);
}

sub assert_ends ($session, $sqlstate, $what)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $result = $session->wait_result;
	is($session->sqlstate, $sqlstate, $what) or diag($session->error);
	return $result;
}

=pod

=head2 assert_held($session, $name, $what)

A test: the session holds that lock, as ZooKeeper confirms.

=cut

sub assert_held ($session, $name, $what)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is($session->query_safe("SELECT zk_is_held('$name')"), 't', $what);
}

=pod

=head2 assert_passes($name, $session, $other, $what)

A test: when the session releases that lock the other one, which waits, has what it waits for.

=cut

sub assert_passes ($name, $session, $other, $what)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$session->query_safe("SELECT zk_unlock('$name')");
	return assert_ends($other, '00000', $what);
}

=pod

=head2 assert_released($zookeeper, $name, @sessions), assert_leave_nothing($zookeeper, $path, @sessions)

Tests: nothing is left in a lock's queue when these sessions have released it; nothing is left
below a path when they have ended.

=cut

sub assert_released ($zk, $name, @sessions)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$_->query_safe("SELECT zk_unlock('$name')") foreach @sessions;
	return assert_no_nodes($zk, lock_path($name));
}

sub assert_leave_nothing ($zk, $path, @sessions)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$_->quit foreach @sessions;
	return assert_no_nodes($zk, $path);
}

=pod

=head2 assert_knows_loss($session, $name, $what)

A test: the session, which has just lost that lock, says so when it is asked for it, or is
interrupted for the loss.

=cut

sub assert_knows_loss ($session, $name, $what)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $answer = $session->query("SELECT zk_is_held('$name')");
	return ok($answer eq 'f' || $session->sqlstate eq '40001', $what) || diag($session->error);
}

=pod

=head2 assert_told($session, $sql, $pattern, $what)

A test: what the session says of the query is like that. On a busy machine there may have been
no time to find that out: then it is asked again.

=cut

sub assert_told ($session, $sql, $pattern, $what)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	foreach my $attempt (1 .. 20)
	{
		note('again: ' . $session->error) if $attempt > 1;
		$session->query($sql);
		last if $session->error =~ $pattern;
	}
	return like($session->error, $pattern, $what);
}

=pod

=head2 assert_least { count } $expected, $what

A test: the least of several counts of the same thing is the expected one, as of least_of. On a
busy machine each of the first may have a heartbeat in it: then it is counted more often.

=cut

sub assert_least :prototype(&$$) ($count, $expected, $what)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @counts;
	push @counts, $count->() while @counts < 3 || @counts < 10 && !grep { $_ == $expected } @counts;
	return is(least_of(@counts), $expected, $what);
}

=pod

=head2 assert_within { seconds } $most, $what

A test: it takes less than that, or one of five times does; in_time of L<Patience> judges the
shortest time. For bounds that
are promised, and near to the promise. Each time the block makes sure of what has to be so
before, as of a connection: what answers at once for want of that would pass.

=cut

sub assert_within :prototype(&$$) ($seconds, $most, $what)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @took;
	push @took, $seconds->() while @took < 5 && !grep { $_ < $most } @took;
	note(@took > 1 ? 'again: ' : '', "$what: took ", join ', ', map { sprintf '%.2f s', $_ } @took);
	return in_time((sort { $a <=> $b } @took)[0], $most, $what);
}

=pod

=head2 least_of(@counts)

The least of several counts of the same thing, of which some may have a heartbeat in
them. That one had is said, and counted by what runs the tests.

=cut

sub least_of
{
	my @counts = sort { $a <=> $b } @_;
	note("again: counted @_ times, and the least is taken") if $counts[-1] != $counts[0];
	return $counts[0];
}

=pod

=head2 plays_all

Whether a table of cells is to be played whole, as make nightly asks for it by ZKLOCK_TEST_CELLS=all
in the environment, and not a sample of it.

=cut

sub plays_all () { return ($ENV{ZKLOCK_TEST_CELLS} // '') eq 'all'; }

=pod

=head2 session_id_of($session)

The id of its ZooKeeper session, as 0x and hexadecimal digits.

=cut

sub session_id_of ($session) { return $session->query_safe('SELECT session_id FROM zk_session'); }

=pod

=head2 session_programs($pid, ...)

The processes of the sessions' programs of these backends, zombies among them,
also when the backend is gone.

=cut

sub session_programs
{
	my %of = map { $_ => 1 } @_;
	my @programs;
	opendir my $processes, '/proc' or croak "could not read /proc: $!";
	foreach my $pid (grep { /^\d/ } readdir $processes)
	{
		# Of all processes, so the name is read first, which costs the least.
		open my $name, '<', "/proc/$pid/comm" or next;
		next if (<$name> // '') !~ /^zklock-session/;
		open my $stat, '<', "/proc/$pid/stat" or next;
		my ($parent) = (<$stat> // '') =~ /^\d+ \(.*\) \S (\d+)/ or next;
		# A zombie has no title.
		open my $title, '<', "/proc/$pid/cmdline" or next;
		my ($backend) = (<$title> // '') =~ / of backend (\d+)/;
		push @programs, $pid if $of{ $backend // $parent };
	}
	return @programs;
}

=pod

=head2 kill_session_program($session)

Kills the program of its ZooKeeper session by SIGKILL, so that this session is lost. Returns at
once: the backend learns of the loss a little later.

=cut

sub kill_session_program ($session) { return kill 'KILL', session_programs($session->pid); }

=pod

=head2 ticks_of($pid)

The hundredths of a second that a process has used of a processor.

=cut

sub ticks_of ($pid)
{
	my @field = split ' ', slurp_file("/proc/$pid/stat") =~ s/.*\) //r;
	return $field[11] + $field[12];
}

=pod

=head2 assert_no_programs($what, $backend, ...)

A test: no program of these backends is left, each given as a session or by its
pid. A program ends a little later than its backend.

=cut

sub assert_no_programs ($what, @backends)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return assert_becomes { join ' ', session_programs(map { ref $_ ? $_->pid : $_ } @backends) } '', $what;
}

=pod

=head2 done_testing

As that of Test::More, and a test for each cluster: no backend has crashed. One that is killed
by SIGKILL has not.

=cut

sub done_testing
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	foreach my $node (grep { -e $_->logfile } @clusters)
	{
		my ($crash) = slurp_file($node->logfile) =~ /^(.*(?:PANIC|TRAP|terminated by signal (?!9:)).*)$/m;
		is($crash, undef, $node->name . ' did not crash');
	}
	return Test::More::done_testing();
}

# What is needed to understand a failure, while the servers run.
END
{
	my $status = $?;
	if ($$ == $main && ($status || !Test::More->builder->is_passing))
	{
		my $test = basename($0) =~ s/\.\w+$//r;
		_show_end("$PostgreSQL::Test::Utils::log_path/regress_log_$test", 15);
		_show_end($_->logfile, 40) foreach @clusters;
		diag(ZooKeeper::report());
	}
	$? = $status;
}

# The last lines of a log.
sub _show_end ($file, $count)
{
	my @lines = split /\n/, eval { slurp_file($file) } // '';
	splice @lines, 0, @lines - $count if @lines > $count;
	diag("the end of $file:\n", join "\n", @lines);
	return;
}

=pod

=head1 SESSIONS

A psql in the background. Unlike PostgreSQL::Test::BackgroundPsql it can send a
query without waiting for it, goes on after an error and tells its SQLSTATE, and
survives, as an object, the end of its backend.

=cut

package ZkLockTest::Session;

use v5.36;

use Carp;
use IPC::Run;
use PostgreSQL::Test::Utils;

sub new ($class, $node, %option)
{
	my ($database, $user, $name) = delete @option{qw(database user name)};
	my ($is_connected, $lock, $first, $route) = delete @option{qw(is_connected holds first route)};
	my $self = bless { node => $node, in => '', out => '', err => '', count => 0, owner => $$ }, $class;
	my $connection = $node->connstr($database || 'postgres');
	$connection .= " user=$user" if $user;
	$connection .= " application_name='$name'" if $name;

	$self->{timeout} =
	  IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default);
	$self->{psql} = IPC::Run::start(
		[
			$node->installed_command('psql'), '-X', '-A', '-t', '-q',
			'-d', $connection, '-f', '-', '-v', 'ON_ERROR_STOP=0'
		],
		'<', \$self->{in}, '>', \$self->{out}, '2>', \$self->{err},
		$self->{timeout});
	$self->{pid} = $self->query_safe('SELECT pg_backend_pid()');
	$self->route($route) if defined $route;
	$self->query_safe("SET \"$_\" = '$option{$_}'") foreach sort keys %option;
	$self->query_safe("SELECT zk_try_lock('connect'), zk_unlock('connect')") if $is_connected;
	$self->query_safe("SELECT zk_lock('$lock')") if defined $lock;
	$self->query_safe($first) if defined $first;
	return $self;
}

=pod

=head2 route($address)

Its connections go there from now on; to the servers of its cluster with undef.

=cut

sub route ($self, $address)
{
	my $file = "$routes/$self->{pid}";
	unlink $file;
	return unless defined $address;
	my ($port) = $address =~ /^127\.0\.0\.1:(\d+)$/ or croak "no route to $address";
	# The program may run as another user.
	open my $to, '>', "$file.new" or croak "could not write $file: $!";
	print $to "$port\n";
	close $to;
	rename "$file.new", $file or croak "could not rename $file: $!";
	return;
}

=pod

=head2 node, pid

Its cluster, and that of the backend.

=cut

sub node { return $_[0]->{node}; }
sub pid { return $_[0]->{pid}; }

=pod

=head2 cancel, terminate

What its backend does, by another session. If a query was sent, it is running by then, or has ended.

=cut

sub cancel ($self) { return $self->_by_another('pg_cancel_backend'); }
sub terminate ($self) { return $self->_by_another('pg_terminate_backend'); }

sub _by_another ($self, $function)
{
	my $sql = "SELECT $function(pid) FROM pg_stat_activity WHERE pid = " . $self->pid;
	$sql .= " AND state = 'active'" if $self->{pending};
	return ZooKeeper::poll_until { ZkLockTest::ask($self->node, $sql) eq 't' || $self->is_done } "backend $self->{pid} to run its query";
}

=pod

=head2 start_query($sql)

Sends it and returns at once. One at a time: wait_result comes before the next.

=cut

sub start_query ($self, $sql)
{
	croak 'the last query is still under way' if $self->{pending};
	$self->{pending} = 'end of query ' . ++$self->{count};
	$self->{out} = $self->{err} = '';
	# Of several statements a semicolon alone would lose the SQLSTATE.
	$sql .= "\n;" unless $sql =~ /;\s*$/;
	$self->{in} .= "$sql\n"
	  . "\\echo '$self->{pending}' :SQLSTATE\n\\warn '$self->{pending}'\n";
	# It may have stood idle for longer than any query may take.
	$self->{timeout}->start;
	$self->{psql}->pump_nb;
	return;
}

=pod

=head2 is_done

Whether the query sent has ended; does not wait.

=cut

sub is_done ($self)
{
	return 1 unless $self->{pending};
	# How long is up to whoever asks.
	$self->{timeout}->start;
	$self->{psql}->pump_nb if $self->{psql}->pumpable;
	return $self->_has_ended;
}

=pod

=head2 fails_early

Dies if the query sent has failed by now, while something else is waited for; false otherwise.

=cut

sub fails_early ($self)
{
	croak "it failed: $self->{err}" if $self->is_done && $self->{err} =~ /(?:ERROR|FATAL):/;
	return 0;
}

=pod

=head2 wait_result

Waits for the end of the query and returns its output. error and sqlstate then
tell how it ended: "" and "00000" when all is well. If the connection is gone,
sqlstate is "08006".

=head2 error, sqlstate

=cut

sub wait_result ($self)
{
	croak 'no query is under way' unless $self->{pending};
	my $since = time;
	while (!$self->_has_ended)
	{
		$self->{timeout}->start;
		next if eval { $self->{psql}->pump until $self->_has_ended; 1 };
		croak "query did not end: $@"
		  if $@ !~ /timeout/ || Patience::is_over(time - $since, $PostgreSQL::Test::Utils::timeout_default);
	}

	my $mark = $self->{pending};
	$self->{pending} = undef;
	# Of a statement whose connection has ended psql says no SQLSTATE.
	$self->{sqlstate} = $self->{out} =~ s/\n?^\Q$mark\E (\w*)\n.*//ms && $1 || '08006';
	$self->{err} =~ s/^\Q$mark\E\n//m;
	chomp(my $result = $self->{out});
	return $result;
}

sub error { return $_[0]->{err}; }
sub sqlstate { return $_[0]->{sqlstate}; }

=pod

=head2 query($sql), query_safe($sql)

start_query and wait_result; query_safe dies if there was an error.

=cut

sub query ($self, $sql)
{
	$self->start_query($sql);
	return $self->wait_result;
}

sub query_safe ($self, $sql)
{
	my $result = $self->query($sql);
	croak "\"$sql\" failed: $self->{err}" if $self->{sqlstate} ne '00000';
	return $result;
}

=pod

=head2 quit, kill, signal($name)

End psql: in order, or by SIGKILL, as a client that vanishes. Send it a signal: after STOP it does not
read what its backend sends. A session that nobody refers to
any more quits, but for one whose query is under way, as after a failure: that is killed.

=cut

sub quit ($self)
{
	if ($self->{psql}->pumpable)
	{
		$self->{in} .= "\\q\n";
	}
	eval { $self->{psql}->finish; };
	return;
}

sub kill ($self)
{
	$self->{psql}->kill_kill(grace => 0);
	return;
}

sub signal ($self, $name)
{
	$self->{psql}->signal($name);
	return;
}

sub DESTROY ($self)
{
	return if ${^GLOBAL_PHASE} eq 'DESTRUCT' || $self->{owner} != $$ || !$self->{psql};
	local ($@, $!, $?);
	return $self->{pending} ? $self->kill : $self->quit;
}

# Both streams have come to the mark, or psql has ended.
sub _has_ended ($self)
{
	my $mark = quotemeta $self->{pending};
	# With the line's end, or that would turn up in the next answer.
	return 1
	  if $self->{out} =~ /^$mark \w*\n/m && $self->{err} =~ /^$mark\n/m;
	return !$self->{psql}->pumpable;
}

1;
