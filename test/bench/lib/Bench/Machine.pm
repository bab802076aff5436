
=pod

=head1 NAME

Bench::Machine - where and with what the benchmark ran

=cut

package Bench::Machine;

use v5.36;

use Bench::Stats qw(median);
use IO::Handle;
use POSIX qw(strftime uname);
use Time::HiRes qw(time);

sub _first_line ($command)
{
	my ($line) = split /\n/, qx($command 2>&1);
	return $line // '?';
}

sub _package ($name)
{
	return _first_line("dpkg-query -W -f='\${Version}' $name");
}

sub _field ($file, $pattern)
{
	open my $in, '<', $file or return '?';
	my @found = grep { defined } map { /$pattern/ ? $1 : undef } readline $in;
	return wantarray ? @found : $found[0] // '?';
}

# What a write that must last costs here, in microseconds.
sub _fsync ($dir)
{
	my @times;
	open my $file, '>', "$dir/fsync" or die "could not write $dir/fsync: $!";
	foreach (1 .. 200)
	{
		my $begin = time();
		syswrite $file, 'x' x 4096;
		$file->sync;
		push @times, (time() - $begin) * 1_000_000;
	}
	close $file;
	unlink "$dir/fsync";
	return median(@times);
}

=pod

=head2 kilobytes($file, fields)

The sum of these fields of a file in /proc, each a pattern; 0 if it cannot be read.

=cut

sub kilobytes ($file, @fields)
{
	open my $in, '<', $file or return 0;
	my $wanted = join '|', @fields;
	my $sum = 0;
	$sum += $_ foreach map { /^(?:$wanted):\s+(\d+)/ ? $1 : () } readline $in;
	return $sum;
}

=pod

=head2 describe($dir)

A list of [what, value]. The time of fsync is measured in the directory.

=cut

sub describe ($dir)
{
	my @cpus = _field('/proc/cpuinfo', qr/^model name\s*: (.*)/);
	my $memory = _field('/proc/meminfo', qr/^MemTotal:\s+(\d+)/);
	my $system = _field('/etc/os-release', qr/^PRETTY_NAME="(.*)"/);
	my (undef, undef, $kernel) = uname();
	return (
		[ date => strftime('%Y-%m-%d %H:%M UTC', gmtime) ],
		[ zklock => $ENV{BENCH_COMMIT} || '?' ],
		[ CPU => scalar(@cpus) . " x $cpus[0]" ],
		[ memory => sprintf('%.1f GiB', $memory / 1024**2) ],
		[ system => $system . ", kernel $kernel" ],
		[ 'load average at the start' =>
			  scalar _field('/proc/loadavg', qr/^(\S+)/) ],
		[ 'write + fsync of 4 kB, median' => sprintf('%.0f us', _fsync($dir)) ],
		[ PostgreSQL => _first_line('postgres --version') ],
		[ 'ZooKeeper server' => _package('libzookeeper-java') ],
		[ 'ZooKeeper C client' => _package('libzookeeper-mt2') ],
		[ Curator => _package('libcurator-recipes-java') ],
		[ Kazoo => _package('python3-kazoo') . ', '
			  . _first_line('/usr/bin/python3 --version') ],
		[ 'go-zookeeper' => _package('golang-github-samuel-go-zookeeper-dev')
			  . ', ' . _first_line('go version') ],
		[ Java => _first_line('java -version') ],
		[ gcc => _first_line('gcc --version') ]);
}

1;
