
=pod

=head1 NAME

Bench::Fleet - two clusters full of backends, and what they and the servers cost

=head1 DESCRIPTION

Of each cluster's backends the first half holds a lock each, the other half
waits for one lock that is common to all, which the first backend of the first
cluster holds besides its own.

=cut

package Bench::Fleet;

use v5.36;

use Bench::Machine;
use Bench::Program;
use Bench::Stage;
use List::Util qw(sum0);
use PostgreSQL::Test::Utils;
use Preload;
use ZkLockTest;
use ZooKeeper qw(poll_until free_port);

our $root = '/bench/scale';
our @clusters = qw(east west);

# As its users run them, see Bench::Stage. A backlog that is too short for a
# crowd is Java's default; what it costs is told in docs/performance.md.
my %zookeeper = (
	%Bench::Stage::zookeeper,
	force_sync => 1,
	java_options => [ @Bench::Stage::java_options, '-Xmx2g' ]);

=pod

=head2 new(servers => 3, config => { key => value }, size => most backends, network => bool, names => bool, bin => ..., dir => ...)

Starts the servers, and with network a program that can be taken for the network
between sessions and servers (route); with names the servers have names, too, which
may move to other addresses. container_check is that of the servers. Of several fleets the later ones have the
zookeeper of the first, a name of their own, and settings { key => value } by which
their clusters differ, or find another build.

=cut

sub new ($class, %option)
{
	my $self = bless {%option}, $class;
	my $prefix = defined $option{name} ? "$option{name}-" : '';
	$self->{zookeeper} //= ZooKeeper->new(
		%zookeeper,
		servers => $option{servers},
		config => { %{ $zookeeper{config} }, %{ $option{config} || {} } },
		exists $option{container_check} ? (container_check => $option{container_check}) : ()
	)->start;
	$self->_start_network if $option{network};
	$self->_name_servers if $option{names};
	foreach my $name (@clusters)
	{
		$self->{cluster}{$name} = cluster(
			$prefix . $name, $self->{zookeeper},
			fsync => 'on',
			log_statement => 'none',
			max_connections => int($option{size} / 2) + 20,
			'zklock.session_timeout' =>
			  "${Bench::Stage::session_timeout_ms}ms",
			'zklock.root' => $root,
			# Opening is measured, not tested: nobody is to give up.
			'zklock.connect_timeout' => '60s',
			# A crowd is not a flood.
			'zklock.max_creates' => 0,
			environment => $self->{environment} // {},
			%{ $option{settings} || {} });
		$self->{crowd}{$name} = Bench::Program->new(
			name => $prefix . $name,
			dir => $option{dir},
			command => [
				"$option{bin}/crowd",
				$self->{cluster}{$name}->connstr('postgres')
			])->start;
	}
	return $self;
}

# A port for each server. While it refuses, nobody else gets them: see free_port.
sub _start_network ($self)
{
	my $zk = $self->{zookeeper};
	my @ports = map { free_port() } $zk->members;
	$self->{network_address} = join ',', map { "127.0.0.1:$_" } @ports;
	$self->{network} = Bench::Program->new(
		name => 'network',
		dir => $self->{dir},
		command => [
			"$self->{bin}/network",
			map { "$ports[$_ - 1]:" . $zk->port($_) } $zk->members
		])->start;
	# It listens when it answers.
	$self->network('count');
	return;
}

# The names are known to the clusters and what they start.
sub _name_servers ($self)
{
	$self->{names_file} = join '/', $self->{dir}, ($self->{name} // 'fleet') . '.names';
	my $library = Preload::library('moving_names') // die "there is no compiler\n";
	$self->{environment} = { LD_PRELOAD => $library, LD_TEST_NAMES => $self->{names_file} };
	$self->_write_names;
	return;
}

# All at once: who looks names up finds the old file or the new one.
sub _write_names ($self)
{
	my $zk = $self->{zookeeper};
	my $file = $self->{names_file};
	PostgreSQL::Test::Utils::append_to_file("$file.new",
		join '', map { "zk$_.bench " . $zk->address($_) . "\n" } $zk->members);
	rename "$file.new", $file or die "could not name the servers: $!";
	return;
}

sub zookeeper { return $_[0]->{zookeeper}; }
sub cluster_of { return $_[0]->{cluster}{ $_[1] }; }

=pod

=head2 resize($backends)

So many from now on, over both clusters; all of them new, without a session.

=cut

sub resize ($self, $backends)
{
	$self->{each} = int($backends / 2);
	$self->{holders} = int($backends / 4);
	foreach my $name (@clusters)
	{
		$self->{crowd}{$name}->ask("close 0 $self->{size}");
		$self->_wait_for_backends($name, 0);
		$self->{crowd}{$name}->ask("open 0 $self->{each}");
	}
	return;
}

sub _wait_for_backends ($self, $name, $count)
{
	poll_until { scalar $self->backends($name) == $count }
	"$count backends in $name", 120;
	return;
}

# [from, to] of the sessions of a kind; a kind may be that itself.
sub range ($self, $kind)
{
	return $kind if ref $kind;
	return {
		all => [ 0, $self->{each} ],
		holders => [ 0, $self->{holders} ],
		waiters => [ $self->{holders}, $self->{each} ],
		first => [ 0, 1 ] }->{$kind};
}

=pod

=head2 route("network"), route("names"), route("servers")

New backends' sessions go through the program network; to the servers, by their names
and by their addresses, as at first.

=head2 move(members)

These servers, which do not run, come back at addresses that none of them ever had, and
their names go with them; without members all of them, to the addresses that they began with.

=head2 look_ups

How often one of these names was looked up until now.

=head2 network($command)

Tells the program that: "pass", "hold" (nothing passes), "refuse" (no connection is
left and none is made), "count". Returns {connections, accepted, begun, failed}: how
many there are now; of sessions until now; with servers until now; failed of these.

=cut

sub route ($self, $way)
{
	my $zk = $self->{zookeeper};
	my $servers = {
		network => $self->{network_address},
		names => join(',', map { "zk$_.bench:" . $zk->port($_) } $zk->members),
		servers => $zk->connect_string }->{$way};
	Bench::Stage::use_servers($servers, values %{ $self->{cluster} });
	return;
}

sub move ($self, @members)
{
	my $zk = $self->{zookeeper};
	my $net = @members ? ++$self->{moves} : 0;
	$zk->move($_, "127.0.$net." . (@members ? $_ : 1)) foreach @members ? @members : $zk->members;
	$self->_write_names;
	return;
}

sub look_ups ($self)
{
	return defined $self->{names_file} ? -s "$self->{names_file}.asked" // 0 : 0;
}

sub network ($self, $command)
{
	my ($ok, @count) = split ' ', $self->{network}->ask($command);
	my %count;
	@count{qw(connections accepted begun failed)} = @count;
	return \%count;
}

=pod

=head2 send($kind, $sql, clusters), collect($kind, $seconds, $second, clusters)

=head2 ask_all($kind, $sql, $seconds, clusters)

$kind: all, holders, waiters, first, or [from, to]. In the SQL # is the backend's number in
its cluster and @ the cluster's name. collect and ask_all return a list of
answers {cluster, number, sent, answered, state, second, value}, times in
seconds; who has not answered is "late".

=cut

sub send ($self, $kind, $sql, @names)
{
	@names = @clusters unless @names;
	my ($from, $to) = @{ $self->range($kind) };
	foreach my $name (@names)
	{
		(my $text = $sql) =~ s/\@/$name/g;
		$self->{crowd}{$name}->order("send $from $to", $text);
	}
	$self->{crowd}{$_}->answer foreach @names;
	return;
}

sub collect ($self, $kind, $seconds, $second = undef, @names)
{
	@names = @clusters unless @names;
	my ($from, $to) = @{ $self->range($kind) };
	foreach my $name (@names)
	{
		(my $text = $second // '') =~ s/\@/$name/g;
		$self->{crowd}{$name}
		  ->order("collect $from $to $seconds $self->{dir}/$name.answers",
			$text);
	}
	my @answers;
	foreach my $name (@names)
	{
		$self->{crowd}{$name}->answer;
		open my $in, '<', "$self->{dir}/$name.answers"
		  or die "could not read the answers: $!";
		foreach my $line (readline $in)
		{
			my %answer = (cluster => $name);
			@answer{qw(number sent answered state second value)} =
			  split ' ', $line;
			$_ /= 1_000_000 foreach @answer{qw(sent answered)};
			push @answers, \%answer;
		}
	}
	return @answers;
}

sub ask_all ($self, $kind, $sql, $seconds, @names)
{
	$self->send($kind, $sql, @names);
	return $self->collect($kind, $seconds, '', @names);
}

=pod

=head2 close_all, crash($cluster), restart($cluster)

crash kills the postmaster and all its processes by SIGKILL, as when a cluster
ends without a word; restart brings it back.

=cut

sub close_all ($self)
{
	$self->{crowd}{$_}->ask("close 0 $self->{size}") foreach @clusters;
	return;
}

sub crash ($self, $name)
{
	my $postmaster = $self->{cluster}{$name}{_pid};
	my @backends = $self->backends($name);
	my @others = _children($postmaster);
	kill 'KILL', $postmaster, @backends, @others;
	return scalar @backends;
}

sub restart ($self, $name)
{
	my $cluster = $self->{cluster}{$name};
	$self->{crowd}{$name}->kill9;
	# It does not know that its postmaster is gone.
	$cluster->{_pid} = undef;
	unlink $cluster->data_dir . '/postmaster.pid',
	  $cluster->host . '/.s.PGSQL.' . $cluster->port . '.lock';
	{
		local %ENV = (%ENV, %{ $self->{environment} // {} });
		$cluster->start;
	}
	$self->{crowd}{$name}->start;
	return;
}

=pod

=head2 backends($cluster), programs

Process ids: of the crowd's backends; of the programs of all their sessions.

=cut

sub _children ($pid)
{
	my @children;
	foreach my $file (glob "/proc/$pid/task/*/children")
	{
		open my $in, '<', $file or next;
		push @children, split ' ', readline($in) // '';
	}
	return @children;
}

sub _title ($pid)
{
	open my $in, '<', "/proc/$pid/cmdline" or return '';
	return readline($in) // '';
}

sub backends ($self, $name)
{
	return grep { _title($_) =~ /postgres \[local\]/ }
	  _children($self->{cluster}{$name}{_pid});
}

=pod

=head2 memory, cpu, cpu_of_servers

As they are now: {what => kB}; {what => seconds since it was started}; the same for
each server, by its number.

Of a backend its Private_* as in Bench::Commits; of a session's program, which
lets nobody look at it, anonymous memory and page tables; both as means. Of a
server what it has resident, and its heap after a full collection.

=cut

sub _mean (@values)
{
	return @values ? sum0(@values) / @values : 0;
}

# Live data, after a full collection; 0 without a JDK.
sub _heap_kb ($pid)
{
	system("jcmd $pid GC.run >/dev/null 2>&1");
	my $info = qx(jcmd $pid GC.heap_info 2>/dev/null);
	return $info =~ /used (\d+)K/ ? $1 : 0;
}

# Of all there are, by kind.
sub _processes ($self)
{
	my @backends = map { $self->backends($_) } @clusters;
	return (
		backends => \@backends,
		programs => [ map { _children($_) } @backends ],
		servers =>
		  [ map { $self->{zookeeper}->pid($_) } $self->{zookeeper}->running ]);
}

sub programs ($self)
{
	my %pids = $self->_processes;
	return @{ $pids{programs} };
}

sub memory ($self)
{
	my %pids = $self->_processes;
	return {
		backend => _mean(map {
				Bench::Machine::kilobytes("/proc/$_/smaps_rollup", 'Private_\w+')
				  + Bench::Machine::kilobytes("/proc/$_/status", 'VmPTE')
		} @{ $pids{backends} }),
		program => _mean(map {
				Bench::Machine::kilobytes("/proc/$_/status", 'RssAnon', 'VmPTE')
		} @{ $pids{programs} }),
		server => _mean(map { Bench::Machine::kilobytes("/proc/$_/status", 'VmRSS') } @{ $pids{servers} }),
		heap => _mean(map { _heap_kb($_) } @{ $pids{servers} }),
		used => Bench::Machine::kilobytes('/proc/meminfo', 'MemTotal')
		  - Bench::Machine::kilobytes('/proc/meminfo', 'MemAvailable') };
}

# In seconds. Of processes with one thread the scheduler knows it exactly.
sub _cpu_of_one ($pid)
{
	open my $in, '<', "/proc/$pid/schedstat" or return 0;
	my ($ns) = split ' ', readline($in) // '';
	return ($ns // 0) / 1e9;
}

sub _cpu_of_all ($pid)
{
	open my $in, '<', "/proc/$pid/stat" or return 0;
	my $line = readline $in // return 0;
	$line =~ s/.*\) //s;
	my @fields = split ' ', $line;
	return ($fields[11] + $fields[12]) / 100;
}

sub cpu ($self)
{
	my %pids = $self->_processes;
	return {
		backends => sum0(map { _cpu_of_one($_) } @{ $pids{backends} }),
		programs => sum0(map { _cpu_of_one($_) } @{ $pids{programs} }),
		servers => sum0(map { _cpu_of_all($_) } @{ $pids{servers} }),
		$self->{network}
		? (network => _cpu_of_one($self->{network}{pid}))
		: () };
}

sub cpu_of_servers ($self)
{
	my $zk = $self->{zookeeper};
	return { map { $_ => _cpu_of_all($zk->pid($_)) } $zk->running };
}

=pod

=head2 owners

{path => session} of all ephemeral nodes below the root, as the leader has them.

=cut

sub owners ($self)
{
	return { map { @$_ } $self->{zookeeper}->ephemerals($root) };
}

=pod

=head2 served

{session => [member, when its connection was accepted, answers on it]} of those
sessions that a server has answered on their present connection; asked of all running
members. Of two connections the later one counts: the end of the other is on its way.

=cut

sub served ($self)
{
	my %served;
	foreach my $id ($self->{zookeeper}->running)
	{
		foreach my $line (split /\n/,
			$self->{zookeeper}->four_letter_word('cons', $id))
		{
			next unless $line =~ /sent=([1-9]\d*),sid=0x([0-9a-f]+),.*est=(\d+)/;
			my ($answers, $session, $since) = ($1, $2, $3 / 1000);
			next if $served{$session} && $served{$session}[1] > $since;
			$served{$session} = [ $id, $since, $answers ];
		}
	}
	return \%served;
}

1;
