
# Whoever leaves something behind in ZooKeeper, or reaches into the work of others,
# is in the server's log: one line for each act, that says who.

use strict;
use warnings;

use PostgreSQL::Test::Utils qw(slurp_file);
use Test::More;
use ZkLockTest;
use ZooKeeper;

my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk, log_error_verbosity => 'default');
$node->safe_psql('postgres', qq(CREATE ROLE "an\nna" LOGIN; GRANT zklock_operator TO "an\nna"));

my $holder = background($node);
my $token = $holder->query_safe("SELECT zk_lock('busy')");
my $anna = background($node);
$anna->query_safe(qq(SET SESSION AUTHORIZATION "an\nna"));

# The lines of that kind, and the DETAIL of the last.
my $who = qr/process \d+ of user "an[^"\n]*na" in database "postgres" from \[local\]/;
sub logged
{
	my ($sql, $act, $detail) = @_;
	my $from = -s $node->logfile;
	my $result = $anna->query_safe($sql);
	my $log = substr(slurp_file($node->logfile), $from);
	my @lines = $log =~ /^.*?LOG:  ($who $act)$/mg;
	is(scalar @lines, 1, "one line: $act") or diag($log);
	like($log, qr/DETAIL:  $detail$/m, "with its detail") if $detail;
	return $result;
}

sub not_logged
{
	my ($sql) = @_;
	my $from = -s $node->logfile;
	$anna->query_safe($sql);
	my $log = substr(slurp_file($node->logfile), $from);
	unlike($log, qr/LOG:  process/, "nothing done, nothing logged: $sql");
	return;
}

logged("SELECT zk_run_once('job', 'slot', '1 minute')",
	qr/recorded a run of slot "slot" of ZooKeeper job "job"/, qr/The record is kept for 60000 ms\./);
not_logged("SELECT zk_run_once('job', 'slot', '1 minute')");
logged("SELECT zk_forget_run('job', 'slot')",
	qr/deleted the record of a run of slot "slot" of ZooKeeper job "job"/);
not_logged("SELECT zk_forget_run('job', 'slot')");
logged("SELECT zk_request_release('busy')",
	qr/requested the release of ZooKeeper lock "busy"/, qr/1 holder was asked\./);
not_logged("SELECT zk_request_release('free')");
my $hold = logged("SELECT zk_hold('door', 'new locks')",
	qr/made a hold of ZooKeeper lock "door"/, qr/Fencing token \d+, reason "new locks"\./);
logged("SELECT zk_release_hold('door', $hold)",
	qr/released a hold of ZooKeeper lock "door"/, qr/Fencing token $hold\./);
not_logged("SET client_min_messages = error; SELECT zk_release_hold('door', $hold)");
logged("SELECT zk_evict('busy', $token)", qr/evicts .* from ZooKeeper lock "busy"/,
	qr/.*token $token\./);
not_logged("SELECT zk_evict('busy', $token)");
$_->quit foreach $holder, $anna;

done_testing();
