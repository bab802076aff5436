
=pod

=head1 NAME

DropIn - clusters whose advisory locks are those of zklock

=head1 SYNOPSIS

  perl -MDropIn t/001_pgbench_with_server.pl

=head1 DESCRIPTION

For a test of PostgreSQL's own, which knows nothing of zklock: its first cluster has the drop-in
of docs/migrating/advisory.sql in the database postgres, and the search_path that it needs. For
other tests install() does it in any database. ZooKeeper runs as long as the test.

=cut

package DropIn;

use v5.36;

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ZooKeeper;

our $here = abs_path(dirname(__FILE__));
my $zk;

=pod

=head2 settings

What a cluster needs for it, as lines of postgresql.conf. Warnings of snapshots are off, for
PostgreSQL's tests take locks in REPEATABLE READ on purpose.

=cut

sub settings
{
	$zk //= ZooKeeper->new->start;
	return <<~CONF;
		shared_preload_libraries = 'zklock'
		zklock.servers = '@{[ $zk->connect_string ]}'
		zklock.session_timeout = '20s'
		zklock.snapshot_warning = off
		zklock.lease_worker = off
		max_prepared_transactions = 5
		search_path = 'public, zklock_advisory, pg_catalog'
		CONF
}

=pod

=head2 install($node, $database)

=cut

sub install ($node, $database)
{
	$node->safe_psql($database, 'CREATE SCHEMA zklock; CREATE EXTENSION zklock SCHEMA zklock');
	foreach my $file ("$here/../../docs/migrating/advisory.sql", "$here/see_locks.sql")
	{
		system_or_bail('psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr($database), '-f', $file);
	}
	return;
}

=pod

=head2 import

With -MDropIn on the command line, each cluster that a test starts for the first time has it.

=cut

sub import
{
	my ($init, $start) = (\&PostgreSQL::Test::Cluster::init, \&PostgreSQL::Test::Cluster::start);
	my %is_made;
	no warnings 'redefine';
	*PostgreSQL::Test::Cluster::init = sub {
		my ($node) = @_;
		$init->(@_);
		$node->append_conf('postgresql.conf', settings());
		return;
	};
	*PostgreSQL::Test::Cluster::start = sub {
		my ($node) = @_;
		my $result = $start->(@_);
		install($node, 'postgres') if !$is_made{ $node->name }++;
		return $result;
	};
	return;
}

1;
