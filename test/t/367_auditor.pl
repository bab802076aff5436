
# docs/security.md says which line of the log answers who did something; each of those lines is
# written once, and names the role that logged in and the current one. Tested by doing all of it,
# with the page's own lines as patterns.

use File::Basename qw(dirname);
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my ($berlin, $paris) = map { cluster($_, $zk) } qw(berlin paris);
$berlin->safe_psql('postgres', 'CREATE ROLE dba IN ROLE zklock_operator, pg_monitor; CREATE ROLE anna LOGIN IN ROLE dba;');
my $holder = background($paris, holds => 'nightly');
my $anna = background($berlin, user => 'anna', first => 'SET ROLE dba');

# What the page says, as patterns.
my ($section) = slurp_file(dirname(__FILE__) . '/../../docs/security.md') =~ /^## Who did what\n(.*?)^## /ms
  or die 'no such section';
my %lines = map { $_ => join '.*', map { quotemeta } split /\.\.\./ } $section =~ /`(\.\.\. [^`]+)`/g;
cmp_ok(scalar keys %lines, '>=', 7, 'the page names lines');

my $token = $holder->query_safe("SELECT zk_fencing_token('nightly')");
my ($given_up, $renewed) = map { $paris->safe_psql('postgres', "SELECT zk_try_lease('$_', 'app', '1h')") } qw(given_up renewed);
my $offset = -s $berlin->logfile;
$anna->query_safe(<<"SQL");
SELECT zk_request_release('nightly', 'why');
SELECT zk_evict('nightly', $token);
SELECT zk_release_lease('given_up', $given_up, '1min');
SELECT zk_renew_lease('renewed', $renewed, '1h');
SELECT zk_release_hold('held', zk_hold('held', 'why'));
SELECT zk_run_once('job', 'slot'), zk_forget_run('job', 'slot');
SQL
my $log = slurp_file($berlin->logfile, $offset);
foreach my $line (sort keys %lines)
{
	my $found = () = $log =~ /LOG:  process \d+ of user "anna" as role "dba" in database "postgres" from \[local\]$lines{$line}/g;
	is($found, 1, $line) or diag($log);
}

done_testing();
