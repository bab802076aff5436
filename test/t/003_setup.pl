
# The set-up of make check (test/lib/setup.sh) takes down everything that it has started: at once
# after a signal, and after SIGKILL at its next start. Packages that it installs start no
# service. Tested with a job that has a process and a directory to take down.

use strict;
use warnings;

use Cwd qw(abs_path);
use File::Basename qw(basename dirname);
use PostgreSQL::Test::Utils;
use Test::More;
use ZooKeeper qw(is_alive poll_until);

my $setup = abs_path(dirname(__FILE__) . '/../lib/setup.sh');
my $dir = PostgreSQL::Test::Utils::tempdir_short();

# Begin, tell the directory in /var/tmp, and run something that has a thing to take down.
append_to_file("$dir/command", <<"SH");
source "\$1"
work=$dir/work
run=\$work/run
setup_begin
echo "\$short" >$dir/short
mkdir -p \$work/install/lib
cp "\$(type -P sleep)" \$work/install/lib/zklock-session
setsid \$work/install/lib/zklock-session 600 9>&- &
echo \$! >$dir/session
run \$work/log/job "\${runner[@]}" bash -c '
	trap "kill \\\$!; sleep 1; echo >$dir/down; exit" TERM
	echo \$\$ >$dir/job.new && mv $dir/job.new $dir/job
	sleep 600 & wait'
SH

# Start that, end it by the signal, and return the process and the directory.
sub end_by
{
	my ($signal) = @_;
	unlink "$dir/job", "$dir/down";
	my $pid = fork // die $!;
	exec 'bash', "$dir/command", $setup if $pid == 0;
	poll_until { -e "$dir/job" } 'the job to run';
	kill $signal, $pid;
	waitpid $pid, 0;
	chomp(my @found = map { slurp_file("$dir/$_") } qw(job short));
	return @found;
}

foreach my $signal (qw(TERM INT HUP))
{
	my ($job, $short) = end_by($signal);
	ok(-e "$dir/down", "SIG$signal: the job has taken down its things");
	ok(!is_alive($job), "SIG$signal: it has ended");
	ok(!-e $short, "SIG$signal: the directory in /var/tmp is gone");
	chomp(my $session = slurp_file("$dir/session"));
	poll_until { !is_alive($session) } 'the program of the session to end';
}

my ($job, $first) = end_by('KILL');
chomp(my $session = slurp_file("$dir/session"));
ok(-d $first, 'SIGKILL: the directory in /var/tmp stays');
my (undef, $second) = end_by('TERM');
isnt($second, $first, 'another one is made');
ok(!-e $first && !-e $second, 'both directories in /var/tmp are gone');
poll_until { !is_alive($job) && !is_alive($session) } 'the job and the program of the session to end';
pass('SIGKILL: they have ended');

# May that service do that while packages are installed?
sub may { return system("$dir/policy", @_) >> 8; }

my ($there) = map { basename($_) } grep { -f } glob '{/etc/init.d,/usr/lib/systemd/system}/*';
is(system('bash', '-c', 'source "$1"; service_policy=$2/policy; make_service_rule', 'bash', $setup, $dir), 0, 'a rule');
is(may($there, 'start'), 0, 'a service that is there may start again');
is(may($_, 'start'), 101, "$_, which is not there, may not start") foreach 'zklockd', 'zklockd.service', 'zklockd@main.service';
PostgreSQL::Test::Utils::append_to_file("$dir/mine", "exit 0\n");
is(system('bash', '-c', 'source "$1"; service_policy=$2/mine; make_service_rule', 'bash', $setup, $dir) >> 8, 0, 'a second time');
is(slurp_file("$dir/mine"), "exit 0\n", 'a rule of the administrator stays as it is');

done_testing();
