
=pod

=head1 NAME

Bench::Stage - the servers of the benchmark

=head1 DESCRIPTION

One ZooKeeper at a time, standalone or an ensemble, and two clusters: home,
whose backends use zklock, and central, where the locks of PostgreSQL's own are
that home reaches through dblink.

=cut

package Bench::Stage;

use v5.36;

use ZkLockTest;
use ZooKeeper qw(poll_until);

# As long as zklock's default, for everybody.
our $session_timeout_ms = 15_000;

# Where zklock's locks are.
our $root = '/bench/zklock';

our @variants = qw(sync nosync ensemble);
our %variant_title = (
	sync => 'standalone, forceSync=yes',
	nosync => 'standalone, forceSync=no',
	ensemble => 'ensemble of 3, forceSync=yes');

# Unlike those of the tests, servers that run for long and as their users run
# them: with ZooKeeper's default tick and file sizes, Java's optimizing compiler
# and usual collector, and its usual search for empty containers.
our @java_options = ('-XX:TieredStopAtLevel=4', '-XX:-UseSerialGC', '-XX:+UseG1GC');
our %zookeeper = (
	tick_time => 2000,
	container_check => 60_000,
	config => { preAllocSize => 65_536 },
	java_options => [ @java_options, '-Xmx1g' ]);
my %of_variant = (
	sync => { force_sync => 1 },
	nosync => { force_sync => 0 },
	ensemble => { force_sync => 1, servers => 3 });

# What the test clusters switch off or cut down.
my %cluster = (
	fsync => 'on',
	log_statement => 'none',
	max_connections => 1_650,
	restart_after_crash => 'on',
	'zklock.session_timeout' => "${session_timeout_ms}ms",
	'zklock.root' => $root);

=pod

=head2 zookeeper_of($variant), cluster_settings

That ZooKeeper, not started; the settings of a cluster.

=cut

sub zookeeper_of ($variant)
{
	return ZooKeeper->new(%zookeeper, %{ $of_variant{$variant} });
}

sub cluster_settings { return %cluster; }

sub new ($class)
{
	return bless {}, $class;
}

=pod

=head2 set($variant)

Starts that ZooKeeper, after stopping the last one; the clusters go along.

=cut

sub set ($self, $variant)
{
	$self->{zookeeper}->stop if $self->{zookeeper};
	$self->{zookeeper} = zookeeper_of($variant)->start;
	my $servers = $self->{zookeeper}->connect_string;
	if (!$self->{home})
	{
		$self->{home} = cluster('home', $self->{zookeeper}, %cluster);
		$self->{home}->safe_psql('postgres',
			'CREATE EXTENSION dblink; CREATE TABLE work (i int)');
		$self->{central} = cluster('central', $self->{zookeeper}, %cluster);
		$self->{central}->safe_psql('postgres',
			q{CREATE TABLE locks AS SELECT 'bench-' || name AS name
			  FROM (SELECT unnest('{uncontended,contended}'::text[]) UNION ALL
				SELECT 'many-' || generate_series(0, 999)) AS l(name);
			ALTER TABLE locks ADD PRIMARY KEY (name);
			VACUUM ANALYZE locks});
		return;
	}
	use_servers($servers, @{$self}{qw(home central)});
	return;
}

=pod

=head2 use_servers($servers, clusters)

From now on; returns when they do. A reload refuses a list without any server of the former one,
so first both are set.

=cut

sub use_servers ($servers, @clusters)
{
	foreach my $cluster (@clusters)
	{
		my $former = $cluster->safe_psql('postgres', 'SHOW zklock.servers');
		foreach my $list ("$former,$servers", $servers)
		{
			$cluster->append_conf('postgresql.conf', "zklock.servers = '$list'");
			$cluster->reload;
			poll_until { $cluster->safe_psql('postgres', 'SHOW zklock.servers') eq $list }
			'the settings to be read';
		}
	}
	return;
}

=pod

=head2 wait_quiet

Until nobody has a session: everybody's programs have ended, and the sessions of
those who were killed too.

=head2 wait_up

Until both clusters answer: one whose backend was killed starts anew.

=cut

sub wait_quiet ($self)
{
	poll_until { !$self->{zookeeper}->counter('global_sessions') }
	'all sessions to end';
	return;
}

sub wait_up ($self)
{
	foreach my $cluster (@{$self}{qw(home central)})
	{
		poll_until { $cluster->psql('postgres', 'SELECT 1') == 0 }
		'a cluster to be up';
	}
	return;
}

=pod

=head2 zookeeper, home, central

=cut

sub zookeeper { return $_[0]->{zookeeper}; }
sub home { return $_[0]->{home}; }
sub central { return $_[0]->{central}; }

1;
