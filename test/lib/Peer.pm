
=pod

=head1 NAME

Peer - other clients of ZooKeeper's lock recipe, the real ones

=head1 SYNOPSIS

  my $peer = Peer->new('Curator InterProcessMutex', $zk);
  $peer->choose('/zklock/nightly');
  $peer->start_command('lock');
  ... $peer->is_done ...
  is($peer->wait_answer, 'locked');
  $peer->ask('unlock');
  $peer->quit;

=head1 DESCRIPTION

Each peer is a small program of test/others that drives one client library. It
has one ZooKeeper session, and obeys one command at a time. A line on its
standard input is a command, a line on its standard output the answer:

  (at the start)          ready NAME VERSION
  use KIND PATH           ok; the lock that the other commands mean
  lock                    locked, as soon as it is
  try                     locked or busy; go-zookeeper and leaders have none
  unlock                  unlocked
  increment FILE COUNT    done; COUNT times: take the lock, read the number in
                          FILE, write it back plus one, release the lock
  auth USER:PASSWORD      ok; digest credentials for ZooKeeper
  revoke ZNODE            ok; Curator's Revoker on a queue node
  quit

Instead of any of these answers there may be "error" and its text. With ZKLOCK_TEST_TLS,
see L<ZooKeeper>, they use TLS, but for go-zookeeper, which has none.

=cut

package Peer;

use v5.36;

use Carp;
use Fcntl qw(:flock);
use File::Basename qw(dirname);
use File::Path qw(mkpath);
use IPC::Run;
use Patience qw(is_over);
use PostgreSQL::Test::Utils;
use Scalar::Util qw(weaken);
use Test::More import => ['plan'];
use ZooKeeper ();

my $source = dirname(dirname(__FILE__)) . '/others';
my $java = '/usr/share/java';
my $go_package = 'golang-github-samuel-go-zookeeper-dev';

# Each library: its driver's command line without the servers, what the driver
# is built from and how, and files and their packages without which there is none.
my %library = (
	curator => {
		run => sub { java_command('CuratorDriver', 'curator') },
		sources => [qw(Driver.java CuratorDriver.java)],
		compile => sub { java_compiler('curator-recipes.jar', 'curator') },
		product => 'curator/CuratorDriver.class',
		needs => ["$java/curator-recipes.jar"],
		packages => ['libcurator-recipes-java'] },
	recipes => {
		run => sub { java_command('RecipeDriver', 'recipes') },
		sources => [qw(Driver.java RecipeDriver.java)],
		compile => sub { java_compiler('zookeeper-recipes-lock.jar', 'recipes') },
		product => 'recipes/RecipeDriver.class',
		needs => ["$java/zookeeper-recipes-lock.jar"],
		packages => ['libzookeeper-java'] },
	kazoo => {
		run => sub { ('/usr/bin/python3', "$source/kazoo_driver.py") },
		needs => ['/usr/lib/python3/dist-packages/kazoo'],
		packages => ['python3-kazoo'] },
	go => {
		run => sub { build_directory() . '/go_driver' },
		sources => ['go_driver.go'],
		compile => \&go_compiler,
		product => 'go_driver',
		needs => [
			'/usr/bin/go', '/usr/share/gocode/src/github.com/samuel/go-zookeeper'
		],
		packages => [ 'golang-go', $go_package ] });

# Each kind of lock: the library that has it, what the driver calls it, and
# whether it can be tried.
my %lock = (
	'Curator InterProcessMutex' => [qw(curator mutex 1)],
	'Curator InterProcessReadWriteLock, write' => [qw(curator write 1)],
	'Curator InterProcessReadWriteLock, read' => [qw(curator read 1)],
	'Curator InterProcessSemaphoreMutex' => [qw(curator semaphore_mutex 1)],
	'Curator LeaderLatch' => [qw(curator latch 0)],
	'Curator LeaderSelector' => [qw(curator selector 0)],
	'go-zookeeper Lock' => [qw(go lock 0)],
	'ZooKeeper recipes WriteLock (Java)' => [qw(recipes lock 1)],
	'Kazoo Lock' => [qw(kazoo lock 1)],
	'Kazoo WriteLock' => [qw(kazoo write 1)],
	'Kazoo ReadLock' => [qw(kazoo read 1)],
	'Kazoo Lock with lock-' => [qw(kazoo lock+ 1)],
	'Kazoo WriteLock with lock-' => [qw(kazoo write+ 1)],
	'Kazoo ReadLock with lock-' => [qw(kazoo read+ 1)],
	'Kazoo Semaphore' => [qw(kazoo semaphore 1)],
	'Kazoo Election' => [qw(kazoo election 0)]);

# Every peer of this process, for END.
my @peers;

=pod

=head1 FUNCTIONS

=head2 missing(@kinds)

Which Debian packages the peers of these kinds need and this system lacks; "" if none. For
libraries that ZKLOCK_TEST_PEERS names there is nothing to look for: "make check" has installed
them, and a test that does not find them is to fail.

=cut

sub missing (@kinds)
{
	my %is_sure = map { $_ => 1 } split /,/, $ENV{ZKLOCK_TEST_PEERS} // '';
	my %packages;
	foreach my $name (grep { !$is_sure{$_} } map { library($_) } @kinds)
	{
		my $library = $library{$name};
		next if !grep { !-e } @{ $library->{needs} };
		$packages{$_} = 1 foreach @{ $library->{packages} };
	}
	return join ', ', sort keys %packages;
}

=pod

=head2 kinds

The names of all kinds of locks.

=head2 installed(@kinds), require_installed(@kinds)

Those of the kinds whose library is installed here. Within a subtest: skips it if one is not.

=cut

sub kinds
{
	my @kinds = sort keys %lock;
	return @kinds;
}

sub installed (@kinds) { return grep { !missing($_) } @kinds; }

sub require_installed (@kinds)
{
	my $missing = missing(@kinds);
	plan(skip_all => "not installed: $missing") if $missing ne '';
	return;
}

=pod

=head2 library($kind)

What a driver is started for: one does for all kinds of its library.

=cut

sub library { return $lock{ $_[0] }[0]; }

=pod

=head2 prepare(@kinds)

Builds the drivers of these kinds, before clients begin whose sessions live by requests: Go
1.20 and later come without a compiled standard library, which takes minutes on a busy
machine.

=cut

sub prepare (@kinds)
{
	foreach my $kind (@kinds)
	{
		my $library = $library{ library($kind) };
		_build($library) if $library->{compile};
	}
	return;
}

=pod

=head1 METHODS

=head2 new($kind, $zookeeper, servers => connect string, timeout => milliseconds)

Starts a driver with a ZooKeeper session of its own. Does not wait for it: it
gets ready while the test does something else. Without servers, a proxy's for
example, it uses those of $zookeeper. The session timeout is for Curator alone.

=cut

sub new ($class, $kind, $zk, %option)
{
	my ($name) = @{ $lock{$kind} || croak "no such kind of lock: $kind" };
	my $library = $library{$name};
	_build($library) if $library->{compile};

	my $self = bless {
		in => '',
		out => '',
		pending => 'start',
		library => $name,
		kind => $kind,
		owner => $$ }, $class;
	$self->{timeout} =
	  IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default);
	my $log = "$PostgreSQL::Test::Utils::log_path/peer_$name.log";
	# Should the test be killed, its peers go too.
	$self->{run} = IPC::Run::start(
		[
			'setpriv', '--pdeathsig', 'KILL',
			$library->{run}->(), $option{servers} || $zk->connect_string,
			$option{timeout} || ()
		],
		'<', \$self->{in}, '>', \$self->{out}, '2>>', $log, $self->{timeout});
	push @peers, $self;
	weaken $peers[-1];
	return $self;
}

=pod

=head2 version

What the driver has said of itself.

=cut

sub version ($self)
{
	$self->_wait_ready;
	return $self->{version};
}

=pod

=head2 choose($path), choose($path, $kind)

Choose the lock: the znode, and the kind, if it is to be another one than that
of new or of the last time.

=head2 can_try

Whether this kind of lock can be tried.

=cut

sub choose ($self, $path, $kind = undef)
{
	$self->{kind} = $kind if $kind;
	my ($library, $word) = @{ $lock{ $self->{kind} } };
	croak "not a lock of $self->{library}: $self->{kind}"
	  if $library ne $self->{library};
	return $self->ask("use $word $path");
}

sub can_try { return $lock{ $_[0]->{kind} }[2]; }

=pod

=head2 start_command($command)

Sends it and returns at once; wait_answer comes before the next.

=head2 is_done

Whether the answer is there; does not wait.

=head2 wait_answer

Waits for the answer and returns it.

=head2 ask($command)

start_command and wait_answer; dies if the answer is an error.

=cut

sub start_command ($self, $command)
{
	$self->_wait_ready;
	croak "the last command is still under way: $self->{pending}"
	  if $self->{pending};
	$self->{pending} = $command;
	# It may have stood idle for longer than any command may take.
	$self->{timeout}->start;
	$self->{in} .= "$command\n";
	$self->{run}->pump_nb;
	return;
}

sub is_done ($self)
{
	$self->{run}->pump_nb if $self->{run}->pumpable;
	return $self->{out} =~ /\n/ ? 1 : 0;
}

sub wait_answer ($self)
{
	croak 'no command is under way' unless $self->{pending};
	my $start = time;
	until ($self->{out} =~ /\n/)
	{
		$self->{timeout}->start;
		eval { $self->{run}->pump until $self->{out} =~ /\n/; 1; }
		  or $@ =~ /timeout/ && !is_over(time - $start, $PostgreSQL::Test::Utils::timeout_default)
		  or croak "$self->{library} did not answer \"$self->{pending}\": $@";
	}
	$self->{pending} = undef;
	$self->{out} =~ s/^(.*)\n//;
	return $1;
}

sub ask ($self, $command)
{
	$self->start_command($command);
	my $answer = $self->wait_answer;
	croak "$self->{library} answered \"$command\" with $answer"
	  if $answer =~ /^error/;
	return $answer;
}

=pod

=head2 quit

Ends the driver, whose session is then closed. With the last reference to a peer its driver is
killed.

=cut

sub quit ($self)
{
	return unless $self->{run};
	$self->{in} .= "quit\n";
	eval { $self->{run}->finish; };
	$self->{run} = undef;
	return;
}

sub DESTROY ($self)
{
	return if ${^GLOBAL_PHASE} eq 'DESTRUCT' || $self->{owner} != $$ || !$self->{run};
	local ($@, $!, $?);
	$self->{run}->kill_kill(grace => 0);
	$self->{run} = undef;
	return;
}

sub _wait_ready ($self)
{
	return if defined $self->{version};
	my $answer = $self->wait_answer;
	($self->{version}) = $answer =~ /^ready (.*)/
	  or croak "$self->{library} did not start: $answer";
	return;
}

# Once per run: what is newer than its sources is up to date. Tests that run at the
# same time wait for the one that compiles.
sub _build ($library)
{
	my $build = build_directory();
	my @sources = map { "$source/$_" } @{ $library->{sources} };
	my $product = "$build/$library->{product}";
	mkpath([ map { "$build/$_" } qw(. curator recipes) ]);
	open my $lock, '>>', "$build/lock" or croak "could not write $build/lock: $!";
	flock $lock, LOCK_EX or croak "could not lock $build/lock: $!";
	return if -e $product && !grep { -M $_ < -M $product } @sources;
	local %ENV = (%ENV, go_environment());
	my ($out, $err) = ('', '');
	IPC::Run::run([ $library->{compile}->(), @sources ],
		'>', \$out, '2>', \$err)
	  or croak "could not compile @sources: $out$err";
	return;
}

# Known only when the test runs, not yet while this module is read.
sub build_directory { return "$PostgreSQL::Test::Utils::tmp_check/peers"; }

# A class of a directory below build_directory.
sub java_command ($class, $directory)
{
	return (
		ZooKeeper::java('-Xmx64m'),
		'-Dorg.slf4j.simpleLogger.defaultLogLevel=warn',
		java_tls_options(),
		'-cp',
		join(':', build_directory() . "/$directory",
			(map { "$java/$_" }
				  qw(curator-recipes.jar zookeeper-recipes-lock.jar slf4j-simple.jar)),
			ZooKeeper::netty_jars()),
		$class);
}

# What makes ZooKeeper's client in Java use TLS; none if it should not.
sub java_tls_options
{
	my $directory = $ENV{ZKLOCK_TEST_TLS} or return;
	my %option = (
		'client.secure' => 'true',
		clientCnxnSocket => 'org.apache.zookeeper.ClientCnxnSocketNetty',
		'ssl.keyStore.location' => "$directory/test-client.both",
		'ssl.keyStore.type' => 'PEM',
		'ssl.trustStore.location' => "$directory/test-ca.pem",
		'ssl.trustStore.type' => 'PEM');
	return map { "-Dzookeeper.$_=$option{$_}" } sort keys %option;
}

# Debian's Java runtime has the compiler without its command. Debian's jars name those that
# they need.
sub java_compiler ($jar, $directory)
{
	return ZooKeeper::java('-m', 'jdk.compiler/com.sun.tools.javac.Main', '-cp', "$java/$jar:$java/zookeeper.jar",
		'-d', build_directory() . "/$directory");
}

# Debian's libraries for Go, and where it keeps what it has compiled: from 1.20 on also
# its own library, which takes minutes where much else runs.
sub go_environment
{
	return (GO111MODULE => 'off', GOPATH => '/usr/share/gocode', GOFLAGS => '',
		GOCACHE => build_directory() . '/go-cache');
}

sub go_compiler
{
	my $version =
	  qx(dpkg-query -W -f='\${Version}' $go_package 2>/dev/null) || 'unknown';
	return ('go', 'build', '-ldflags', "-X main.version=$version",
		'-o', build_directory() . '/go_driver');
}

END
{
	my $status = $?;
	$_->DESTROY foreach grep { $_ } @peers;
	$? = $status;
}

1;
