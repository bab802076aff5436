
=pod

=head1 NAME

ZooKeeper - real ZooKeeper servers for tests and the demo

=head1 SYNOPSIS

  my $zk = ZooKeeper->new(servers => 3, tick_time => 500);
  $zk->start;
  ... $zk->connect_string ...
  $zk->pause($zk->leader);
  $zk->resume;
  $zk->stop;

=head1 DESCRIPTION

Starts the servers of Debian's package "zookeeper" on free loopback ports, with
their files in one directory. Members are numbered from 1. Methods that take
members act on all of them when none is named.

No server outlives the program that started it: END stops them, a signal to
the program runs END, and should the program be killed outright the kernel
kills the servers with it (setpriv --pdeathsig).

=cut

package ZooKeeper;

use v5.36;

use Carp;
use Errno;
use Exporter 'import';
use File::Basename qw(dirname);
use File::Path qw(mkpath rmtree);
use File::Temp ();
use IO::Select;
use IO::Socket::INET;
use IO::Socket::UNIX;
use List::Util qw(max min shuffle);
use POSIX qw(:sys_wait_h setsid);
use Scalar::Util qw(weaken);
use Socket qw(SOCK_DGRAM);
use Time::HiRes qw(time);
use Patience qw(is_over);
use ZooKeeper::Client;

our @EXPORT_OK = qw(poll_until free_port is_alive session_number);

# Where Debian's package puts the server; overridable for other systems.
my $classpath = $ENV{ZOOKEEPER_CLASSPATH} || '/usr/share/java/zookeeper.jar';
# With this jar the servers write a log, without it they are silent.
my $logging_jar = '/usr/share/java/slf4j-simple.jar';

# What a server needs for TLS, of the package libnetty-java.
my @netty = qw(buffer codec common handler resolver transport transport-native-epoll
  transport-native-unix-common);

# Where what can speak TLS is to do so: the directory with the files of
# Certificates::make_all.
my $tls_directory = $ENV{ZKLOCK_TEST_TLS};

# What sets the clock of a process.
my ($faketime) = glob '/usr/lib/*/faketime/libfaketime.so.1';

# Every ensemble of this process that somebody still refers to, for END.
my @ensembles;

=pod

=head1 FUNCTIONS

=head2 poll_until { condition } "what", timeout

Evaluates the condition until it is true and returns its value; dies with
"timed out waiting for what" after the timeout (default 60 seconds), which is a patience:
longer on a busy machine, see L<Patience>. This is
the one place in the tests that pauses, the longer the longer it has waited: many
conditions cost a process.

=cut

sub poll_until :prototype(&$;$)
{
	my ($condition, $what, $timeout) = @_;
	my $start = time();
	$timeout ||= $ENV{PG_TEST_TIMEOUT_DEFAULT} || 60;
	while (1)
	{
		my $value = $condition->();
		return $value if $value;
		croak "timed out waiting for $what" if is_over(time() - $start, $timeout);
		Time::HiRes::sleep(min(0.25, max(0.01, (time() - $start) / 20)));
	}
}

=pod

=head2 session_number($id)

The id of a session, in hexadecimal digits, as a signed number: the way the protocol shows
ephemeralOwner, and new() of L<ZooKeeper::Client> takes it.

=cut

sub session_number ($id) { return unpack 'q>', pack 'H16', sprintf '%016s', $id =~ s/^0x//r; }

=pod

=head2 free_port

A loopback port that nobody listens on. It is ours until this process ends, also while no server
listens: it is below the range from which the kernel serves outgoing connections, and marked for
all other tests on this machine, also for those in a root file system of their own.

=cut

# Of a range that is this test's alone, if several run at a time (run_tap.pl).
my ($first_port, $last_port) =
  split /-/, $ENV{ZKLOCK_TEST_PORTS} || '10200-32199';

# The marks of the ports that this process has given out: each a socket with an abstract name, which
# two processes cannot have at a time, and which ends with its process.
my %given;

sub free_port
{
	foreach my $port (shuffle $first_port .. $last_port)
	{
		my $mark = IO::Socket::UNIX->new(Type => SOCK_DGRAM, Local => "\0zklock-test-port-$port") or next;
		my $socket = IO::Socket::INET->new(
			LocalAddr => '127.0.0.1',
			LocalPort => $port,
			Listen => 1,
			ReuseAddr => 1) or next;
		$socket->close;
		$given{$port} = $mark;
		return $port;
	}
	croak "no port from $first_port to $last_port is free";
}

=pod

=head2 is_alive($pid)

Whether there is that process, and it is no zombie.

=cut

sub is_alive ($pid)
{
	open my $stat, '<', "/proc/$pid/stat" or return 0;
	return (readline($stat) // ') Z') !~ /\) [ZX] /;
}

=pod

=head2 java(@options)

The command of a program that has a short life: it starts fast rather than runs fast.

=cut

sub java (@options) { return ('java', '-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1', '-XX:-UsePerfData', @options); }

=pod

=head2 archive_classes($file)

Writes what Java has made of the classes of a server to that file. With ZKLOCK_TEST_CLASSES
naming it servers start in less time; without the file, or with that of another Java, they
start as ever.

=cut

sub archive_classes ($file)
{
	my $zk = ZooKeeper->new(servers => 3,
		java_options => [ '-XX:+IgnoreUnrecognizedVMOptions', "-XX:ArchiveClassesAtExit=$file.new" ])->start;
	my $leader = $zk->leader;
	my $client = $zk->client(member => $leader);
	$client->create_path('/a/b');
	$client->children('/a');
	$client->delete_recursive('/a');
	$client->close;
	$zk->monitor($leader);
	# One of them ends in order, and writes.
	$zk->kill9(grep { $_ != $leader } $zk->members);
	$zk->stop;
	return rename "$file.new", $file;
}

=pod

=head1 METHODS

=head2 new(option => value, ...)

=over

=item servers => 1

Size of the ensemble: 1 is a standalone server.

=item tick_time => 500

In milliseconds. Session timeouts are granted from 2 ticks up.

=item max_session_timeout => 3600000

In milliseconds. ZooKeeper's own default is 20 ticks; undef gives that.

=item patience => 30

For how many seconds an answer to a four-letter word is waited for: long, for a busy machine.

=item container_check => 3600000

How often the leader deletes empty containers, in milliseconds: an empty container of a lock stays,
unless a test wants it to go. ZooKeeper's own default is a minute.

=item force_sync => 0

Whether the transaction log is synced to disk before a write is acknowledged.

=item link => sub { my ($from, $to, $what, $address) = @_; ... }

By which port of 127.0.0.1 member $from reaches member $to, whose address that is,
for $what: "quorum" or "election". Its own port if there is no such function.

=item dir => directory

For data and logs; a temporary one below $TESTDIR by default.

=item config => { key => value }

Further lines for zoo.cfg.

=item java_options => [ '-Dname=value', ... ]

=item tls => { ca => file, cert => file }

With a second port for each member, where it speaks TLS: see can_tls, secure_port,
secure_connect_string. The second file holds a certificate and its key; clients need a
certificate of the authority in the first one. Further settings of ZooKeeper's, ssl.*, go
to config. If the environment has ZKLOCK_TEST_TLS, and this option is not given, the one
port of each member speaks both.

=item environment => { $member => { NAME => 'value' } }

Of single servers.

=item clocks => { $member => '+1d', ... }

How far the wall clocks of members are off, by libfaketime, in its words; see
can_set_clocks.

=back

=cut

sub new ($class, %option)
{
	my $self = bless {
		servers => 1,
		tick_time => 500,
		max_session_timeout => 3_600_000,
		patience => 30,
		container_check => 3_600_000,
		force_sync => 0,
		config => {},
		java_options => [],
		environment => {},
		clocks => {},
		owner => $$,
		%option }, $class;

	$self->{tls} //= {
		ca => "$tls_directory/test-ca.pem",
		cert => "$tls_directory/test-server.both" }
	  if $tls_directory;
	$self->{dir} //= _temporary_directory();
	foreach my $id (1 .. $self->{servers})
	{
		my $dir = "$self->{dir}/zookeeper-$id";
		mkpath($dir);
		$self->{member}{$id} = {
			dir => $dir,
			address => '127.0.0.1',
			port => free_port(),
			$option{tls} ? (secure_port => free_port()) : (),
			quorum_port => free_port(),
			election_port => free_port() };
	}
	$self->_write_config($_) foreach $self->members;
	push @ensembles, $self;
	weaken $ensembles[-1];
	return $self;
}

=pod

=head2 members, running

The numbers of all members; of those that run (paused ones included).

=cut

sub members ($self)
{
	return 1 .. $self->{servers};
}

sub running ($self)
{
	return grep { $self->pid($_) } $self->members;
}

=pod

=head2 connect_string(members), address($member), port($member), pid($member),
log_file($member), data_dir($member)

=cut

sub connect_string ($self, @members)
{
	@members = $self->members unless @members;
	return join ',', map { $self->address($_) . ':' . $self->port($_) } @members;
}

sub address ($self, $member = undef)
{
	return $self->{member}{ $member || 1 }{address};
}

sub port ($self, $member = undef)
{
	return $self->{member}{ $member || 1 }{port};
}

sub pid ($self, $member = undef)
{
	return $self->{member}{ $member || 1 }{pid};
}

sub log_file ($self, $member = undef)
{
	return $self->{member}{ $member || 1 }{dir} . '/server.log';
}

sub data_dir ($self, $member = undef)
{
	return $self->{member}{ $member || 1 }{dir} . '/data';
}

=pod

=head2 is_volatile

Whether a restart of the machine may delete its data, as zk_check() says of directories below
/tmp, /run and /dev/shm: so it does where the tree is there.

=cut

sub is_volatile ($self)
{
	return $self->data_dir =~ m{^/(?:tmp|run|var/run|dev/shm)/};
}

=pod

=head2 can_tls, netty_jars, secure_port($member), secure_connect_string(members)

Are the jars there that a server needs for TLS, and which are they? Where it speaks it;
by the name localhost.

=cut

sub can_tls { return !grep { !-e } netty_jars(); }

sub netty_jars { return map { "/usr/share/java/netty-$_.jar" } @netty; }

sub secure_port ($self, $member = undef)
{
	return $self->{member}{ $member || 1 }{secure_port};
}

sub secure_connect_string ($self, @members)
{
	@members = $self->members unless @members;
	return join ',', map { 'localhost:' . $self->secure_port($_) } @members;
}

=pod

=head2 add_tls($member, { ca => file, cert => file })

From its next start on it has the second port, too; see tls of new().

=cut

sub add_tls ($self, $member, $tls)
{
	$self->{tls} = $tls;
	$self->{member}{$member}{secure_port} //= free_port();
	return $self->_write_config($member);
}

=pod

=head2 move($member, $address)

From its next start on it serves its clients at that loopback address, such as 127.0.0.2,
on the same port, and nowhere else: a machine that was replaced.

=cut

sub move ($self, $member, $address)
{
	$self->{member}{$member}{address} = $address;
	return $self->_write_config($member);
}

=pod

=head2 start(members)

Starts what does not run yet and waits until it serves.

=cut

sub start ($self, @members)
{
	@members = $self->members unless @members;
	$self->_launch($_) foreach grep { !$self->pid($_) } @members;
	$self->wait_ready;
	return $self;
}

=pod

=head2 stop(members), kill9(members)

SIGTERM or SIGKILL, and wait for the end of the processes. Paused ones too.

=cut

sub stop ($self, @members)
{
	$self->resume(@members);
	return $self->_end('TERM', @members);
}

sub kill9 ($self, @members)
{
	return $self->_end('KILL', @members);
}

=pod

=head2 restart(members)

Stop and start, on the same ports and data. Sessions live on if it takes less
than their timeout.

=cut

sub restart ($self, @members)
{
	$self->stop(@members);
	return $self->start(@members);
}

=pod

=head2 set_counters($path => $number, ...)

Stops the server, sets the sequence counters of these znodes in its files, and
starts it again: the next sequential children get these numbers. A counter can
only be raised. For a standalone server; needs the compiler that
Debian's Java runtime has.

=head2 can_set_counters

Whether there is one.

=cut

sub set_counters ($self, @counters)
{
	$self->stop;
	my $out = "$self->{member}{1}{dir}/counters.log";
	system(
		'/bin/sh', '-c', 'exec "$@" >>"$0" 2>&1', $out,
		java(),
		'-Dorg.slf4j.simpleLogger.defaultLogLevel=warn',
		'-cp', "$classpath:$logging_jar",
		dirname(__FILE__) . '/ZooKeeper/SetCounters.java',
		"$self->{member}{1}{dir}/data", @counters) == 0
	  or croak "could not set the counters, see $out";
	return $self->start;
}

sub can_set_counters
{
	return system('java -m jdk.compiler/com.sun.tools.javac.Main -version >/dev/null 2>&1') == 0;
}

=pod

=head2 can_set_clocks, clock($offset)

Whether there is libfaketime, so that new() can be told of clocks; the environment of a process
with such a clock.

=head2 sweep_clocks

Each program that runs with libfaketime makes a semaphore and shared memory, named after its
process, leaves them behind if it does not exit in order, and does not start if they are there
already: once process ids come round again. So what the dead have left is taken away.

=cut

sub can_set_clocks { return defined $faketime; }

sub sweep_clocks
{
	foreach my $file (glob '/dev/shm/*faketime_s[eh]m_*')
	{
		my ($pid) = $file =~ /_(\d+)$/ or next;
		unlink $file unless kill(0, $pid) || $!{EPERM};
	}
	return;
}

sub clock ($offset)
{
	return { LD_PRELOAD => $faketime, FAKETIME => $offset, FAKETIME_DONT_FAKE_MONOTONIC => 1 };
}

=pod

=head2 pause(members), resume(members)

SIGSTOP and SIGCONT: the connections stay, nothing answers. When pause returns,
every thread of the servers stands still.

=cut

sub pause ($self, @members)
{
	@members = $self->running unless @members;
	$self->_signal('STOP', @members);
	foreach my $pid (grep { $_ } map { $self->pid($_) } @members)
	{
		poll_until { _is_stopped($pid) } "process $pid to stop";
	}
	return $self;
}

sub resume ($self, @members)
{
	return $self->_signal('CONT', @members);
}

=pod

=head2 wait_ready

Until every running member serves requests: a standalone server, or one leader
and followers. Dies at once if a server has ended by itself.

=cut

sub wait_ready ($self)
{
	poll_until
	{
		$self->_check_alive;
		my %count;
		# One that starts may forget a connection.
		$count{ $self->mode($_, 1) }++ foreach $self->running;
		return 0 if $count{''};
		return $self->{servers} == 1 || ($count{leader} || 0) == 1;
	}
	'ZooKeeper to be ready', 180;
	return $self;
}

=pod

=head2 mode($member, $patience)

"standalone", "leader", "follower", or "" while it does not serve.

=cut

sub mode ($self, $member = undef, $patience = undef)
{
	my $answer = $self->four_letter_word('srvr', $member, $patience);
	return $answer =~ /^Mode: (\w+)/m ? $1 : '';
}

=pod

=head2 version

The release of the servers, to be compared: $zk->version < v3.7.

=cut

sub version ($self)
{
	my ($version) =
	  $self->four_letter_word('srvr', $self->leader) =~ /^Zookeeper version: (\d+\.\d+\.\d+)/
	  or croak 'no version of ZooKeeper';
	return version->parse("v$version");
}

=pod

=head2 leader, followers, kill_leader

leader waits until there is one. A standalone server is its own leader.
kill_leader kills it with SIGKILL and returns its number, without waiting for
the election (wait_ready does).

=cut

sub leader ($self)
{
	return poll_until
	{
		my ($leader) =
		  grep { $self->mode($_, 1) =~ /leader|standalone/ } $self->running;
		$leader;
	}
	'a leader';
}

sub followers ($self)
{
	return grep { $self->mode($_) eq 'follower' } $self->running;
}

sub kill_leader ($self)
{
	my $leader = $self->leader;
	$self->kill9($leader);
	return $leader;
}

=pod

=head2 four_letter_word($word, $member, $patience)

The answer, or "" if the member does not answer: by default within a second if it is paused, and
else within the patience given to new().

=cut

sub four_letter_word ($self, $word, $member = undef, $patience = undef)
{
	$patience //= $self->{member}{ $member || 1 }{is_paused} ? 1 : $self->{patience};
	$self->{asked}++;
	my $socket = IO::Socket::INET->new(
		PeerAddr => $self->address($member),
		PeerPort => $self->port($member),
		Timeout => $patience) or return '';
	syswrite $socket, $word;
	$self->{member}{ $member || 1 }{words}++;

	my $answer = '';
	my $select = IO::Select->new($socket);
	my $until = time + $patience;
	while ((my $left = $until - time) > 0)
	{
		# A signal may interrupt it.
		next unless $select->can_read($left);
		last unless sysread $socket, $answer, 65_536, length $answer;
	}
	$socket->close;
	return $answer;
}

=pod

=head2 monitor($member)

The server's counters ("mntr") as a hash reference, without their zk_ prefix.

=head2 counter($name), watch_count, packets_received

One counter, summed over the running members. packets_received does not count
our own four-letter words: what it rises by is what the clients sent.

=cut

sub monitor ($self, $member = undef)
{
	my $answer = $self->four_letter_word('mntr', $member);
	my %counter = $answer =~ /^zk_(\S+)\t(.*)$/mg;
	return \%counter;
}

sub counter ($self, $name)
{
	my $sum = 0;
	$sum += $self->monitor($_)->{$name} || 0 foreach $self->running;
	return $sum;
}

sub watch_count { return $_[0]->counter('watch_count'); }

# Until the servers have closed the sessions' connections that their clients have closed: before
# that they forget the watches of these. Others, for words, may stay long.
sub wait_closed ($self)
{
	poll_until
	{
		my %is_session = map { $_ => 1 }
		  map { $self->four_letter_word('cons', $_) =~ /:(\d+)\[\d+\]\([^)]*\bsid=/g } $self->running;
		my $port = join '|', map { sprintf '%04X', $self->port($_) } $self->running;
		my @remote;
		foreach my $file (grep { -e } qw(/proc/net/tcp /proc/net/tcp6))
		{
			open my $table, '<', $file or croak "could not read $file: $!";
			push @remote, map { /^\s*\d+: [[:xdigit:]]+:(?:$port) [[:xdigit:]]+:([[:xdigit:]]{4}) 08 / ? hex $1 : () } readline $table;
		}
		!grep { $is_session{$_} } @remote;
	}
	'the servers to close what their clients have closed';
	return;
}

sub packets_received ($self)
{
	my $received = $self->counter('packets_received');
	$received -= $self->{member}{$_}{words} foreach $self->running;
	return $received;
}

=pod

=head2 ephemerals($prefix)

The ephemeral nodes whose path begins with the prefix, as the leader sees them:
a list of [path, owner session as an integer], sorted by path; in scalar context
how many.

The leader of an ensemble may have agreed to a change and not carried it out until
something else happens to it (ZOOKEEPER-4537, releases 3.6.0 to 3.8.0), for as long
as one likes to wait. So it is asked something first, in a session of its own.

=cut

sub ephemerals ($self, $prefix)
{
	$prefix //= '/';
	my $list;
	poll_until
	{
		my $leader = $self->leader;
		if ($self->{servers} > 1)
		{
			eval {
				my $client = $self->client(member => $leader);
				$client->exists('/');
				$client->close;
			};
		}
		# One that does not lead any more has none to tell of.
		($list) = $self->four_letter_word('dump', $leader) =~
		  /^Sessions with Ephemerals[^\n]*\n(.*?)(?:^Connections|\z)/ms;
		defined $list;
	}
	'the ephemeral nodes';
	my ($owner, @found);
	foreach my $line (split /\n/, $list)
	{
		if ($line =~ /^0x([0-9a-f]+):/)
		{
			$owner = session_number($1);
		}
		elsif ($line =~ /^\t(\Q$prefix\E.*)$/)
		{
			push @found, [ $1, $owner ];
		}
	}
	@found = sort { $a->[0] cmp $b->[0] } @found;
	return @found;
}

=pod

=head2 watched_paths($prefix)

The znodes whose path begins with the prefix and that somebody watches, sorted.
Whoever waits in line watches the one ahead.

=cut

sub watched_paths ($self, $prefix)
{
	my @paths = map { $self->four_letter_word('wchp', $_) =~ /^(\Q$prefix\E.*)$/mg }
	  $self->running;
	@paths = sort @paths;
	return @paths;
}

=pod

=head2 report

What helps to understand a failed test, as text, of all ensembles: how each running
server sees itself, all sessions with their ephemeral nodes, all watches, and the
last lines of each log.

=cut

sub report
{
	my $text = '';
	foreach my $ensemble (grep { $_ && $_->{owner} == $$ } @ensembles)
	{
		foreach my $id ($ensemble->members)
		{
			$text .= $ensemble->pid($id)
			  ? join "\n", "ZooKeeper server $id:",
			  (map { _lines($ensemble->four_letter_word($_, $id), 60) } qw(srvr dump wchp)), ''
			  : "ZooKeeper server $id does not run\n";
			open my $log, '<', $ensemble->log_file($id) or next;
			my @lines = readline $log;
			$text .= join '', 'the end of ' . $ensemble->log_file($id) . ":\n",
			  @lines > 15 ? @lines[-15 .. -1] : @lines;
		}
	}
	return $text;
}

# An ensemble ends with the last reference to it. A forked child of the test has copies, and
# owns nothing.
sub DESTROY ($self)
{
	return if ${^GLOBAL_PHASE} eq 'DESTRUCT' || $self->{owner} != $$;
	local ($@, $!, $?);
	eval { $self->kill9; 1 } or warn $@;
	return;
}

# At most so many lines of a text.
sub _lines ($text, $limit = undef)
{
	my @lines = grep { !/^0 expire at/ } split /\n/, $text;
	splice @lines, $limit, @lines - $limit, '...' if @lines > $limit;
	return join "\n", @lines;
}

=pod

=head2 client(member => $number, timeout => seconds)

A new session of its own: a foreign client. See ZooKeeper::Client.

=cut

sub client ($self, %option)
{
	my $member = $option{member} || ($self->running)[0];
	return ZooKeeper::Client->new($self->connect_string($member), %option);
}

# A directory that lives as long as the test's other files, for reading the
# logs after a failure; outside of a test run one that goes at the end.
sub _temporary_directory
{
	return File::Temp::tempdir('zookeeper_XXXX', DIR => $ENV{TESTDIR})
	  if $ENV{TESTDIR};
	return File::Temp::tempdir('zookeeper_XXXX', TMPDIR => 1, CLEANUP => 1);
}

sub _write_config ($self, $id)
{
	my $member = $self->{member}{$id};
	my %config = (
		tickTime => $self->{tick_time},
		initLimit => 20,
		syncLimit => 4,
		dataDir => "$member->{dir}/data",
		clientPort => $member->{port},
		clientPortAddress => $member->{address},
		maxClientCnxns => 0,
		'4lw.commands.whitelist' => '*',
		'admin.enableServer' => 'false',
		forceSync => $self->{force_sync} ? 'yes' : 'no',
		# The default makes every server write 64 MB first.
		preAllocSize => 1024);
	$config{maxSessionTimeout} = $self->{max_session_timeout}
	  if $self->{max_session_timeout};
	if ($self->{servers} > 1)
	{
		foreach my $other ($self->members)
		{
			$config{"server.$other"} = join ':', '127.0.0.1',
			  map { $self->_peer_port($id, $other, $_) } qw(quorum election);
		}
	}
	if (my $tls = $self->{tls})
	{
		%config = (
			%config,
			serverCnxnFactory => 'org.apache.zookeeper.server.NettyServerCnxnFactory',
			$member->{secure_port}
			? (secureClientPort => $member->{secure_port}, secureClientPortAddress => $member->{address})
			: (
				'client.portUnification' => 'true',
				# Set by a secureClientPort alone; without it nobody who uses TLS is served.
				'authProvider.x509' => 'org.apache.zookeeper.server.auth.X509AuthenticationProvider'),
			'ssl.keyStore.location' => $tls->{cert},
			'ssl.keyStore.type' => 'PEM',
			'ssl.trustStore.location' => $tls->{ca},
			'ssl.trustStore.type' => 'PEM');
	}
	%config = (%config, %{ $self->{config} });

	mkpath("$member->{dir}/data");
	_write_file("$member->{dir}/data/myid", "$id\n");
	_write_file("$member->{dir}/zoo.cfg",
		join '', map { "$_=$config{$_}\n" } sort keys %config);
	return;
}

sub _peer_port ($self, $from, $to, $what)
{
	my $port = $self->{member}{$to}{"${what}_port"};
	return $port if $from == $to || !$self->{link};
	return $self->{link}->($from, $to, $what, "127.0.0.1:$port");
}

sub _write_file ($path, $text)
{
	open my $file, '>', $path or croak "could not write $path: $!";
	print $file $text;
	close $file or croak "could not write $path: $!";
	return;
}

sub _launch ($self, $id)
{
	my $member = $self->{member}{$id};
	my @command = (
		'setpriv', '--pdeathsig', 'KILL',
		java('-Xms32m', '-Xmx256m'),
		'-Dzookeeper.admin.enableServer=false',
		'-Dorg.slf4j.simpleLogger.defaultLogLevel=warn',
		'-Dorg.slf4j.simpleLogger.showDateTime=true',
		-e ($ENV{ZKLOCK_TEST_CLASSES} // '') ? "-XX:SharedArchiveFile=$ENV{ZKLOCK_TEST_CLASSES}" : (),
		"-Dznode.container.checkIntervalMs=$self->{container_check}",
		@{ $self->{java_options} },
		'-cp', join(':', $classpath, $logging_jar, $self->{tls} ? netty_jars() : ()),
		'org.apache.zookeeper.server.quorum.QuorumPeerMain',
		"$member->{dir}/zoo.cfg");

	my $pid = fork // croak "could not fork: $!";
	if ($pid == 0)
	{
		# In a session of its own: Ctrl-C is for us, we stop the servers.
		setsid();
		# What is preloaded is for PostgreSQL.
		delete $ENV{LD_PRELOAD};
		%ENV = (%ENV, %{ $self->{environment}{$id} || {} });
		if (my $clock = $self->{clocks}{$id})
		{
			# With the last one Java's waits do not end.
			%ENV = (%ENV, %{ clock($clock) }, FAKETIME_DISABLE_SHM => 1, FAKETIME_FORCE_MONOTONIC_FIX => 0);
		}
		open STDIN, '<', '/dev/null';
		open STDOUT, '>>', $self->log_file($id);
		open STDERR, '>&', \*STDOUT;
		{ no warnings 'exec'; exec @command; }
		print STDERR "could not run setpriv: $!\n";
		POSIX::_exit(127);
	}
	$member->{pid} = $pid;
	$member->{words} = 0;
	$member->{is_paused} = 0;
	# For the script above us, should we be unable to clean up.
	_write_file("$member->{dir}/zookeeper.pid", "$pid\n");
	return;
}

sub _signal ($self, $signal, @members)
{
	@members = $self->running unless @members;
	foreach my $id (grep { $self->pid($_) } @members)
	{
		kill $signal, $self->pid($id);
		$self->{member}{$id}{is_paused} = $signal eq 'STOP';
	}
	return $self;
}

sub _end ($self, $signal, @members)
{
	@members = $self->running unless @members;
	@members = grep { $self->pid($_) } @members;
	$self->_signal($signal, @members) if @members;
	foreach my $id (@members)
	{
		my $gone = eval {
			poll_until { $self->_has_ended($id) } "ZooKeeper $id to end", 15;
		};
		next if $gone;
		kill 'KILL', $self->pid($id);
		poll_until { $self->_has_ended($id) } "ZooKeeper $id to be killed";
	}
	return $self;
}

# The signal reaches the threads of a process one after the other.
sub _is_stopped ($pid)
{
	foreach my $path (glob "/proc/$pid/task/*/stat")
	{
		# A thread that is gone by now stands still, too.
		open my $stat, '<', $path or next;
		my $line = readline $stat // next;
		return 0 if $line !~ /\) [TXZ] /;
	}
	return 1;
}

# Collect the process if it has ended.
sub _has_ended ($self, $id)
{
	my $member = $self->{member}{$id};
	return 1 unless $member->{pid};
	return 0 if waitpid($member->{pid}, WNOHANG) == 0;
	$member->{pid} = undef;
	unlink "$member->{dir}/zookeeper.pid";
	return 1;
}

sub _check_alive ($self)
{
	foreach my $id ($self->running)
	{
		croak "ZooKeeper $id ended by itself, see " . $self->log_file($id)
		  if $self->_has_ended($id);
	}
	return;
}

# A signal must run END, but not in a child on its way to become another
# program: PostgreSQL::Test::Cluster would stop the servers from there, too. A
# program that has its own handler keeps it.
my $main = $$;

sub end_by_signal
{
	POSIX::_exit(1) if $$ != $main;
	exit 1;
}

foreach my $signal (qw(INT TERM HUP))
{
	$SIG{$signal} ||= \&end_by_signal;
}

END
{
	my $status = $?;
	$_->DESTROY foreach grep { $_ } @ensembles;
	$? = $status;
}

1;
