
# The set-up of make check (test/lib/setup.sh) takes down everything that it has started: at once
# after a signal, and after SIGKILL at its next start. Packages that it installs start no
# service. On a bare machine it installs what a developer needs, and tells what is left to make
# nightly. Tested with a job that has a process and a directory to take down, and with machines
# that have the packages that a test says they have.

use v5.36;

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

# What a command says that knows the packages, on a machine that has those that the pattern names.
sub with_packages ($pattern, $command)
{
	# This run may have all packages.
	local $ENV{PACKAGES};
	my ($out, $err) = run_command([ 'bash', '-c', 'source "$1"; all_suites=(walls tap model)
		source "${1%/setup.sh}/packages.sh"; is_installed() { [[ $1 =~ $0 ]]; }; ' . $command, $pattern, $setup ]);
	is($err, '', 'without an error');
	return $out;
}

my $wanted = 'choose_packages walls tap; echo "${packages[@]}"';
my $go = qr/\bgolang-go\b/;

subtest 'on a bare machine Go, Rails and Prometheus are not installed, but told of' => sub {
	my $packages = with_packages('^$', $wanted);
	like($packages, qr/\b$_\b/, "$_ is installed") foreach qw(cloc libcurator-recipes-java python3-kazoo);
	unlike($packages, qr/\b$_\b/, "$_ is not") foreach qw(golang-go ruby-activerecord prometheus);
	my $left = with_packages('^$', 'tell_left walls tap');
	like($left, qr/^left to make nightly: the suites model$/m, 'a suite that is left');
	like($left, qr/^left to make nightly: tests with clients in Go, .*; make check PACKAGES=all installs $go .*prometheus/m,
		'tests that are left, and what installs their packages');
};

subtest 'PACKAGES=all installs all, and where all is installed nothing is left' => sub {
	my $packages = with_packages('^$', "PACKAGES=all; $wanted");
	like($packages, qr/\b$_\b/, "$_ is installed") foreach qw(cloc golang-go ruby-activerecord prometheus);
	is(with_packages('.', 'tell_left walls tap model'), '', 'nothing is left');
};

subtest 'a client whose packages are installed must be found by the tests' => sub {
	my $peers = 'IFS=,; for peer in $(installed_peers); do echo $peer; done | sort | xargs';
	is(with_packages('.', $peers), 'curator go kazoo recipes', 'all');
	is(with_packages('^[^g]', $peers), 'curator kazoo recipes', 'without the packages of Go');
};

# Words of a test that is skipped must lead to a package that PACKAGES=all installs.
subtest 'each package that a test misses is one that make check can install' => sub {
	my $all = with_packages('^$', 'echo "${suite_packages[@]}" "${large_packages[@]}" "${optional_packages[@]}" "${server_packages[@]}"');
	my %is_known = map { $_ => 1 } split ' ', $all;
	my %is_missed;
	foreach my $file (glob dirname(__FILE__) . '/*.pl')
	{
		$is_missed{$_} = 1 foreach map { split /, / } slurp_file($file) =~ /'not installed: ([a-z][a-z0-9, -]+)'/g;
	}
	cmp_ok(scalar keys %is_missed, '>', 3, 'there are some');
	is(join(' ', grep { !$is_known{$_} } sort keys %is_missed), '', 'all are known');
};

done_testing();
