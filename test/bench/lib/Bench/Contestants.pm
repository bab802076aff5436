
=pod

=head1 NAME

Bench::Contestants - who takes part, and in what

=cut

package Bench::Contestants;

use v5.36;

use Bench::Backends;
use Bench::Block;
use Bench::Pgbench;
use Bench::Program;
use Bench::Stage;

my $jars = '/usr/share/java';
my @jars = map { "$jars/$_.jar" }
  qw(curator-recipes curator-framework curator-client guava zookeeper
  slf4j-api slf4j-nop);

my @cycle = ('SELECT zk_lock(LOCK);', 'SELECT zk_unlock(LOCK);');
my @advisory = (
	q{SELECT * FROM dblink('central', format('SELECT pg_advisory_lock(hashtext(%L))', LOCK)) AS t(t text);},
	q{SELECT * FROM dblink('central', format('SELECT pg_advisory_unlock(hashtext(%L))', LOCK)) AS t(t bool);});
my @table = (
	q{SELECT dblink_exec('central', 'BEGIN');},
	q{SELECT * FROM dblink('central', format('SELECT name FROM locks WHERE name = %L FOR UPDATE', LOCK)) AS t(t text);},
	q{SELECT dblink_exec('central', 'COMMIT');});

# Through dblink, with a connection that stays open.
sub dblink ($stage)
{
	my $central = $stage->central->connstr('postgres');
	$central =~ s/'/''/g;
	return [ "SELECT dblink_connect('central', '$central');" ];
}

=pod

=head2 all($stage, bin => directory of the programs, dir => directory for files, session_timeout_ms => ...)

The same name may stand for two, who can do different things.

=cut

sub all ($stage, %option)
{
	my $bin = $option{bin};
	my $home = $stage->home->connstr('postgres');
	my $central = $stage->central->connstr('postgres');
	my $timeout_ms =
	  $option{session_timeout_ms} || $Bench::Stage::session_timeout_ms;
	my @servers = ($stage->zookeeper->connect_string, $timeout_ms);
	$home .= " options='-c zklock.session_timeout=${timeout_ms}ms'"
	  if $option{session_timeout_ms};
	my @loops = qw(uncontended contenders locks);
	my @peer = (@loops, qw(depth fresh release));
	my @sql = ("$bin/sql", $home);
	my @floor = ("$bin/floor", @servers);
	my @home = (cluster => $stage->home, root => $Bench::Stage::root);
	my @dblink = (cluster => $stage->home, init => dblink($stage));
	my @java = ('java', '-cp', join(':', $bin, @jars), 'Curator', @servers);
	my @python = ('/usr/bin/python3', "$bin/kazoo_lock.py", @servers);

	# Class, name (the report has its title), what it can do, and what else its class wants to know.
	my @contestants = (
		[ 'Pgbench', 'zklock', \@loops, @home, script => \@cycle ],
		[ 'Pgbench', 'between', ['contenders'], @home, other => $stage->central, script => \@cycle ],
		[ 'Backends', 'between', ['depth'], command => [ @sql, $central ] ],
		[ 'Backends', 'zklock', [qw(depth fresh try release)], command => \@sql ],
		[ 'Backends', 'used', ['fresh'], command => \@sql, before => q{SELECT zk_fencing_token('none')} ],
		[ 'Backends', 'reopened', ['fresh'], command => \@sql, is_reopened => 1 ],
		[ 'Block', 'block', [qw(uncontended contenders)], command => \@sql ],
		[ 'Program', 'floor', [qw(uncontended locks fresh)], command => \@floor ],
		[ 'Program', 'forked', ['fresh'], command => \@floor, fresh_command => 'fork' ],
		[ 'Program', 'spawned', ['fresh'], command => \@floor, fresh_command => 'spawn' ],
		[ 'Program', 'curator', [ @peer, 'try' ], command => \@java ],
		[ 'Program', 'kazoo', [ @peer, 'try' ], command => \@python ],
		[ 'Program', 'golock', \@peer, command => [ "$bin/golock", @servers ] ],
		[ 'Pgbench', 'advisory', \@loops, @dblink, script => \@advisory ],
		[ 'Pgbench', 'table', \@loops, @dblink, script => \@table ]);
	return map {
		my ($class, $name, $can, %more) = @$_;
		"Bench::$class"->new(dir => $option{dir}, name => $name, can => $can, %more)
	} @contestants;
}

=pod

=head2 pairs($stage, options as above)

For the release of a lock whose holder goes: a list of {name, holder,
waiter}. zklock's waiter is in the other cluster: a backend that is killed takes
its whole cluster down.

=cut

sub pairs ($stage, %option)
{
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
		{ name => 'zklock', holder => $home, waiter => $central },
		map { { name => $_, holder => $made{$_}[0], waiter => $made{$_}[1] } } sort keys %made);
}

1;
