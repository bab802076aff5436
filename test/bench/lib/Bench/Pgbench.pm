
=pod

=head1 NAME

Bench::Pgbench - a contestant that is a pgbench script

=head1 DESCRIPTION

pgbench logs when a cycle ended and how long it took, not when the lock was
granted in between. So a cycle counts as granted when it has ended, which makes
waits look longer than they are by the release, and does not tell in which order
the grants were.

=cut

package Bench::Pgbench;

use v5.36;

use Carp;
use POSIX qw(ceil);
use Time::HiRes qw(time);

use ZooKeeper qw(poll_until);

use parent 'Bench::Program';

# Connecting may take pgbench a while, and it counts its seconds from then on;
# we need a moment to notice.
my $extra_seconds = 0.3;

=pod

=head2 new(..., cluster => ..., other => ..., settings => "options", script => [lines], init => [lines], root => path)

other is a second cluster, of which half of the sessions are, or none. settings are those of the connections, as in "-c zklock.keep=1min", or none. In
the script, LOCK stands for an expression that is the lock's name. init is run
once by each client. root is where the locks are, if they are in ZooKeeper.

=cut

sub lock { return "bench-$_[1]"; }
sub knows_grants { return 0; }

sub znode ($self, $name)
{
	return $self->{root} && "$self->{root}/" . $self->lock($name);
}

sub _script ($self, %loop)
{
	my $lock = $self->lock($loop{lock});
	my $expression = "'$lock'";
	my @lines;
	push @lines, '\if :opened = 0', @{ $self->{init} }, '\set opened 1', '\endif'
	  if $self->{init};
	if ($loop{locks} > 1)
	{
		my $share = int($loop{locks} / $loop{sessions});
		push @lines,
		  "\\set k :client_id * $share + random(0, $share - 1)";
		$expression = "'$lock-' || :k::text";
	}
	push @lines, @{ $self->{script} };
	s/\bLOCK\b/$expression/g foreach @lines;
	return @lines;
}

sub start_loop ($self, %loop)
{
	my $base = "$self->{dir}/$self->{name}";
	unlink glob "$base.log.*";
	open my $script, '>', "$base.sql" or die "could not write $base.sql: $!";
	print $script map { "$_\n" } $self->_script(%loop);
	close $script;

	my @clusters = grep { defined } @{$self}{qw(cluster other)};
	my $sessions = $loop{sessions} / @clusters;
	my $begin = time();
	$self->{pids} = [ map { $self->_start_pgbench($clusters[$_], "$base.log.$_", $sessions, %loop) } keys @clusters ];
	# Those of the last measurement may still be on their way out.
	my $connected = "SELECT count(*) FROM pg_stat_activity
		WHERE application_name = 'pgbench'
		  AND backend_start >= to_timestamp($begin)";
	foreach my $cluster (@clusters)
	{
		poll_until { $cluster->safe_psql('postgres', $connected) >= $sessions } 'pgbench to connect';
	}
	return;
}

# It ends with us.
sub _start_pgbench ($self, $cluster, $log, $sessions, %loop)
{
	my @command = (
		'setpriv', '--pdeathsig', 'KILL',
		'pgbench', '-n', '-M', 'prepared', '-j', 1,
		'-c', $sessions,
		'-T', ceil($loop{seconds} + $extra_seconds),
		'-D', 'opened=0',
		'-f', "$self->{dir}/$self->{name}.sql",
		'-l', "--log-prefix=$log",
		$cluster->connstr('postgres')
		  . ' application_name=pgbench'
		  . ($self->{settings} ? " options='$self->{settings}'" : ''));
	my $pid = fork // die "could not fork: $!";
	return $pid if $pid;
	open STDIN, '<', '/dev/null';
	{ no warnings 'exec'; exec @command; }
	POSIX::_exit(127);
}

sub finish_loop ($self)
{
	my $base = "$self->{dir}/$self->{name}";
	foreach my $pid (@{ $self->{pids} })
	{
		waitpid $pid, 0;
		croak "pgbench failed for $self->{name}; see the log" if $?;
	}

	my @logs = glob "$base.log.*";
	open my $out, '>', $self->{file} or die "could not write a log: $!";
	foreach my $log (@logs)
	{
		open my $in, '<', $log or die "could not read $log: $!";
		# Each pgbench counts its clients from 0.
		my ($cluster) = $log =~ /\.log\.(\d+)\./;
		while (my $line = readline $in)
		{
			my ($client, undef, $took, undef, $second, $us) = split ' ', $line;
			my $end = $second * 1_000_000 + $us;
			print $out join(' ', 2 * $client + $cluster, $end - $took, $end, $end, $end), "\n";
		}
	}
	close $out or die "could not write a log: $!";
	return $self->{file};
}

# There is no program that stays.
sub start { return $_[0]; }
sub stop { return; }

1;
