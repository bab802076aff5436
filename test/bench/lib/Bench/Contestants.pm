
=pod

=head1 NAME

Bench::Contestants - who takes part, and in what

=cut

package Bench::Contestants;

use strict;
use warnings;

use Bench::Backends;
use Bench::Block;
use Bench::Pgbench;
use Bench::Program;
use Bench::Stage;

my $jars = '/usr/share/java';
my @jars = map { "$jars/$_.jar" }
  qw(curator-recipes curator-framework curator-client guava zookeeper
  slf4j-api slf4j-nop);

# Through dblink, with a connection that stays open.
sub dblink
{
	my ($stage) = @_;
	my $central = $stage->central->connstr('postgres');
	$central =~ s/'/''/g;
	return [ "SELECT dblink_connect('central', '$central');" ];
}

=pod

=head2 all($stage, bin => directory of the programs, dir => directory for files, session_timeout_ms => ...)

The same name may stand for two, who can do different things.

=cut

sub all
{
	my ($stage, %option) = @_;
	my $bin = $option{bin};
	my $home = $stage->home->connstr('postgres');
	my $central = $stage->central->connstr('postgres');
	my @cycle = ('SELECT zk_lock(LOCK);', 'SELECT zk_unlock(LOCK);');
	my $timeout_ms =
	  $option{session_timeout_ms} || $Bench::Stage::session_timeout_ms;
	my @servers = ($stage->zookeeper->connect_string, $timeout_ms);
	$home .= " options='-c zklock.session_timeout=${timeout_ms}ms'"
	  if $option{session_timeout_ms};
	my @dir = (dir => $option{dir});
	my @loops = qw(uncontended contenders locks);
	my @peer = (@loops, qw(depth fresh release));

	return (
		Bench::Pgbench->new(
			@dir,
			name => 'zklock',
			title => 'zklock, SQL',
			can => [@loops],
			cluster => $stage->home,
			root => $Bench::Stage::root,
			script => [@cycle]),
		Bench::Pgbench->new(
			@dir,
			name => 'unloaded',
			title => 'zklock, not preloaded',
			can => ['contenders'],
			cluster => $stage->central,
			root => $Bench::Stage::root,
			script => [@cycle]),
		Bench::Backends->new(
			@dir,
			name => 'unloaded',
			title => 'zklock, not preloaded',
			can => ['depth'],
			command => [ "$bin/sql", $central ]),
		Bench::Backends->new(
			@dir,
			name => 'zklock',
			title => 'zklock, SQL',
			can => [qw(depth fresh try release)],
			command => [ "$bin/sql", $home ]),
		Bench::Backends->new(
			@dir,
			name => 'used',
			title => 'zklock, used backend',
			can => ['fresh'],
			before => q{SELECT zk_fencing_token('none')},
			command => [ "$bin/sql", $home ]),
		Bench::Backends->new(
			@dir,
			name => 'reopened',
			title => 'zklock, reopened session',
			can => ['fresh'],
			is_reopened => 1,
			command => [ "$bin/sql", $home ]),
		Bench::Block->new(
			@dir,
			name => 'block',
			title => 'zklock, DO block',
			can => [qw(uncontended contenders)],
			command => [ "$bin/sql", $home ]),
		Bench::Program->new(
			@dir,
			name => 'floor',
			title => 'floor: C client, create + delete',
			can => [qw(uncontended locks fresh)],
			command => [ "$bin/floor", @servers ]),
		Bench::Program->new(
			@dir,
			name => 'forked',
			title => 'C client in a new process',
			can => ['fresh'],
			fresh_command => 'fork',
			command => [ "$bin/floor", @servers ]),
		Bench::Program->new(
			@dir,
			name => 'spawned',
			title => 'C client in a program of its own',
			can => ['fresh'],
			fresh_command => 'spawn',
			command => [ "$bin/floor", @servers ]),
		Bench::Program->new(
			@dir,
			name => 'curator',
			title => 'Curator InterProcessMutex',
			can => [ @peer, 'try' ],
			command => [
				'java', '-cp', join(':', $bin, @jars), 'Curator', @servers
			]),
		Bench::Program->new(
			@dir,
			name => 'kazoo',
			title => 'Kazoo Lock',
			can => [ @peer, 'try' ],
			command =>
			  [ '/usr/bin/python3', "$bin/kazoo_lock.py", @servers ]),
		Bench::Program->new(
			@dir,
			name => 'golock',
			title => 'go-zookeeper Lock',
			can => [@peer],
			command => [ "$bin/golock", @servers ]),
		Bench::Pgbench->new(
			@dir,
			name => 'advisory',
			title => 'pg_advisory_lock, dblink',
			can => [@loops],
			cluster => $stage->home,
			init => dblink($stage),
			script => [
				q{SELECT * FROM dblink('central', format('SELECT pg_advisory_lock(hashtext(%L))', LOCK)) AS t(t text);},
				q{SELECT * FROM dblink('central', format('SELECT pg_advisory_unlock(hashtext(%L))', LOCK)) AS t(t bool);}
			]),
		Bench::Pgbench->new(
			@dir,
			name => 'table',
			title => 'SELECT FOR UPDATE, dblink',
			can => [@loops],
			cluster => $stage->home,
			init => dblink($stage),
			script => [
				q{SELECT dblink_exec('central', 'BEGIN');},
				q{SELECT * FROM dblink('central', format('SELECT name FROM locks WHERE name = %L FOR UPDATE', LOCK)) AS t(t text);},
				q{SELECT dblink_exec('central', 'COMMIT');}
			]));
}

=pod

=head2 pairs($stage, options as above)

For the release of a lock whose holder goes: a list of {name, title, holder,
waiter}. zklock's waiter is in the other cluster: a backend that is killed takes
its whole cluster down. Only home has zklock preloaded.

=cut

sub pairs
{
	my ($stage, %option) = @_;
	my %made;
	push @{ $made{ $_->name } }, $_
	  foreach grep { $_->can_do('release') } all($stage, %option),
	  all($stage, %option);
	my ($home) = @{ delete $made{zklock} };
	my $central = Bench::Backends->new(
		%$home,
		can => [],
		pid => undef,
		command => [
			$home->{command}[0],
			$stage->central->connstr('postgres')
			  . " options='-c zklock.session_timeout=$option{session_timeout_ms}ms'"
		]);
	return (
		{
			name => 'zklock',
			title => 'zklock, preloaded',
			holder => $home,
			waiter => $central },
		{
			name => 'unloaded',
			title => 'zklock, not preloaded',
			holder => $central,
			waiter => $home },
		map {
			{
				name => $_,
				title => $made{$_}[0]->title,
				holder => $made{$_}[0],
				waiter => $made{$_}[1] }
		} sort keys %made);
}

1;
