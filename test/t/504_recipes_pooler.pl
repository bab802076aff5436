
# The recipes of docs/recipes.md work behind a real PgBouncer, and its table of what works in
# transaction mode is right: locks of transaction scope, leases and runs do; locks of session
# scope do not.

use File::Basename qw(dirname);
use IPC::Run;
use Pages;
use PostgreSQL::Test::Utils;
use Recipes;
use ZkLockTest;
use ZooKeeper qw(free_port poll_until);

my $pgbouncer = '/usr/sbin/pgbouncer';
plan skip_all => 'there is no PgBouncer' unless -x $pgbouncer;

# The libpq of a development branch asks for a protocol that no server has, to see
# what it answers. An old PgBouncer ends the connection.
local $ENV{PGMAXPROTOCOLVERSION} = '3.0';

my $recipes = Recipes->new('pooler');
my $zk = ZooKeeper->new->start;
my $berlin = cluster('berlin', $zk, extension => undef, 'zklock.commit_guard' => 'quorum');
Recipes::prepare_database($berlin);
Recipes::prepare_work($berlin, 'invoice_work');
$berlin->safe_psql('app', 'CREATE ROLE clerk LOGIN; GRANT INSERT, SELECT ON work_done, trouble TO clerk');
my $direct = background($berlin, database => 'app');
my $owner = getpwuid $<;

# Stands for a cluster where sessions are made: a PgBouncer in front of it.
package Pooler    ## no critic (RequireFilenameMatchesPackage)
{
	sub new
	{
		my ($class, %setting) = @_;
		my $self = bless { port => ZooKeeper::free_port() }, $class;
		my $base = "$PostgreSQL::Test::Utils::tmp_check/pgbouncer_$self->{port}";
		my $settings = $recipes->code('pgbouncer.ini');
		$settings =~ s/^app = .*$/'app = host=' . $berlin->host . ' port=' . $berlin->port/me
		  or die 'the file names no database app';
		%setting = (
			listen_addr => '127.0.0.1',
			listen_port => $self->{port},
			unix_socket_dir => '',
			auth_type => 'trust',
			auth_file => "$base.users",
			logfile => "$base.log",
			%setting);
		$settings =~ s/^$_ =.*\n//m foreach keys %setting;
		$settings .= join '', map { "$_ = $setting{$_}\n" } sort keys %setting;
		PostgreSQL::Test::Utils::append_to_file("$base.ini", $settings);
		PostgreSQL::Test::Utils::append_to_file("$base.users", qq("$owner" ""\n"clerk" ""\n));
		# Should the test be killed, it goes too.
		$self->{run} = IPC::Run::start(
			[ 'setpriv', '--pdeathsig', 'KILL', $pgbouncer, '-q', "$base.ini" ],
			'<', \undef, '>', \$self->{out}, '2>&1');
		ZooKeeper::poll_until
		{
			IPC::Run::run([ 'psql', '-X', '-q', '-d', $self->connstr('app'), '-c', '' ],
				'>', \my $out, '2>&1');
		}
		'PgBouncer to answer', 30;
		return $self;
	}

	sub connstr
	{
		my ($self, $database) = @_;
		return "host=127.0.0.1 port=$self->{port} dbname=$database";
	}

	sub installed_command { return $berlin->installed_command($_[1]); }

	sub stop { return $_[0]{run}->kill_kill(grace => 0); }
	sub DESTROY { return $_[0]->stop; }
}

sub session ($pooler, @option) { return background($pooler, database => 'app', @option); }

sub held ($session) { return $session->query_safe("SELECT coalesce(string_agg(name || ' ' || state, ' '), '') FROM zk_session_locks"); }

sub pid { return $_[0]->query_safe('SELECT pg_backend_pid()'); }

# What of the page's table the other subtests know to work; a row that is new has to say so here.
subtest 'the table of docs/recipes.md has the verdicts that are tested here' => sub {
	my ($table) = Pages::slurp(dirname(__FILE__) . '/../../docs/recipes.md') =~ /^\| function or setting \| in transaction mode \|\n\|[-|]+\n(.*?)\n\n/ms;
	my %verdict = map { /^\| (.*?) \| (.*) \|$/ ? ($1 => $2) : die "what is $_?" } split /\n/, $table // '';
	my %expected = (zk_xact_lock => 'work', zk_call_lock => 'work', zk_fence => 'work', zk_try_lease => 'are made for it',
		zk_require_lease => 'are made for it', zk_run_once => 'work', zk_hold => 'work', zk_evict => 'work', zk_lock_queue => 'work',
		zk_lock => '**do not work**', zk_try_lock => '**do not work**', zk_session => 'show those of the server connection', zk_session_locks => 'show those of the server connection');
	foreach my $function (sort keys %expected)
	{
		my ($row) = grep { /`$function`/ } sort keys %verdict;
		like($verdict{ $row // '' } // 'no row', qr/^\Q$expected{$function}\E/, $function);
	}
};

subtest 'locks of transaction scope work behind PgBouncer in transaction mode' => sub {
	my $pooler = Pooler->new;
	my ($first, $second) = map { session($pooler) } 1 .. 2;
	Recipes::at_gate($direct, 'invoice_work', sub { $first->start_query($recipes->code('transaction')); });
	start_in_queue($second, $recipes->code('transaction'), $zk, lock_path('invoice'), 2);
	is($direct->query_safe("SELECT zk_try_xact_lock('invoice')"), 'f', 'others are kept out');
	Recipes::open_gate($direct, 'invoice_work');
	$_->wait_result foreach $first, $second;
	is(join(' ', map { $_->sqlstate } $first, $second), '00000 00000', 'both transactions commit');
	assert_no_nodes($zk, lock_path('invoice'), 'nothing left');
	is($berlin->safe_psql('app', 'SELECT count(*) FROM work_done'), 2, 'both have worked');
	is($berlin->safe_psql('app', "SELECT count(*) FROM zk_fences WHERE name = 'invoice'"),
		1, 'the fence has a row');

	$first->query_safe("DO 'BEGIN PERFORM zk_call_lock(''invoice''); COMMIT; END'");
	assert_no_nodes($zk, lock_path('invoice'), 'a lock of call scope ends before the pooler has the connection');

	$direct->query_safe("SELECT zk_lock('invoice')");
	$first->query($recipes->code('transaction') =~ s/'5s'/'200ms'/r);
	like($first->error, qr/due to lock timeout/,
		'SET LOCAL lock_timeout bounds the wait');
	is($first->query_safe('SHOW lock_timeout'), '0', 'SET LOCAL ends with the transaction');
	$direct->query_safe("SELECT zk_unlock('invoice')");
	is($first->query_safe("SELECT zk_run_once('job', 'today')"), 't', 'zk_run_once() is true for the first client');
	is($second->query_safe("SELECT zk_run_once('job', 'today')"), 'f', 'zk_run_once() is false for the second client');
	my $token = $first->query_safe("SELECT zk_hold('invoice', 'audit')");
	is($second->query_safe("SELECT state FROM zk_lock_queue('invoice')"), 'held', 'zk_hold');
	is($second->query_safe("SELECT zk_release_hold('invoice', $token)"), 't', 'zk_release_hold');
};

# Over two server connections, of which one ends.
subtest 'leases work over any connection of PgBouncer' => sub {
	my $pooler = Pooler->new;
	my ($first, $second) = map { session($pooler) } 1 .. 2;
	$first->query_safe('BEGIN');
	my $token = $second->query_safe("SELECT zk_try_lease('invoice', 'clerk', '60s')");
	my $pid = pid($second);
	isnt(pid($first), $pid, 'another server connection');
	is($first->query_safe("SELECT zk_try_lease('invoice', 'clerk', '60s')"), $token, 'another server connection renews the same lease');
	$first->query_safe('COMMIT');
	$direct->query_safe("SELECT pg_terminate_backend($pid, 60000)");
	is($second->query("SELECT zk_renew_lease('invoice', $token, '60s')"), 't', 'the lease outlives the server connection')
	  or diag($second->error);
	$first->query_safe("BEGIN; SELECT zk_require_lease('invoice', $token); INSERT INTO work_done VALUES ('leased'); COMMIT");
	is($direct->query_safe("SELECT count(*) FROM work_done WHERE what = 'leased'"), 1, 'a transaction that rests on it');
	is($first->query_safe("SELECT zk_release_lease('invoice', $token)"), 't', 'another client releases the lease');
};

# With one server connection, everybody gets the same.
subtest 'a commit behind PgBouncer is refused when its lock is lost' => sub {
	my $pooler = Pooler->new(default_pool_size => 1);
	my ($first, $second) = map { session($pooler) } 1 .. 2;
	my $pid = pid($first);
	Recipes::at_gate($direct, 'invoice_work', sub { $first->start_query($recipes->code('transaction')); });
	is($direct->query_safe("SELECT zk_evict('invoice', token) FROM zk_lock_queue('invoice')"),
		't', 'the lock is evicted');
	Recipes::open_gate($direct, 'invoice_work');
	$first->wait_result;
	like($first->error, qr/lock "invoice" was lost/, 'the commit is refused');
	$second->query_safe($recipes->code('transaction'));
	is(pid($second), $pid, 'the same server connection is good for the next');
};

subtest 'locks of session scope do not work behind PgBouncer in transaction mode' => sub {
	my $pooler = Pooler->new(default_pool_size => 1);
	my ($first, $second) = map { session($pooler) } 1 .. 2;
	$first->query_safe("SELECT zk_lock('trap')");
	is($second->query_safe("SELECT zk_try_lock('trap')"), 't', 'two clients have the lock');
	is($second->query_safe('SELECT name FROM zk_session_locks'), 'trap', 'zk_session_locks says so too');
	$_->quit foreach $first, $second;
	is($direct->query_safe("SELECT zk_try_lock('trap')"), 'f', 'the lock stays when both clients have gone');
	$pooler->stop;
	assert_no_nodes($zk, lock_path('trap'), 'the lock ends with the server connection');
};

subtest 'server_reset_query_always releases locks of session scope after each transaction' => sub {
	my $pooler = Pooler->new(default_pool_size => 1, server_reset_query_always => 1);
	my $first = session($pooler);
	my $pid = pid($first);
	$first->query_safe("BEGIN; SELECT zk_lock('trap')");
	is(scalar queue_nodes($zk, lock_path('trap')), 1, 'held in the transaction');
	$first->query_safe('COMMIT');
	assert_no_nodes($zk, lock_path('trap'), 'no lock is held after the transaction');
	is(pid($first), $pid, 'the server connection is the same');
	is($first->query_safe('SELECT count(*) FROM zk_session WHERE state = \'connected\''), 1,
		'the ZooKeeper session is open');
};

subtest 'locks of session scope work behind PgBouncer in session mode' => sub {
	my $pooler = Pooler->new(pool_mode => 'session', default_pool_size => 1);
	my $first = session($pooler);
	my $pid = pid($first);
	$first->query_safe("SELECT zk_lock('mine')");
	$first->query_safe('BEGIN; COMMIT');
	assert_held($first, 'mine', 'session scope works');
	$first->quit;
	assert_no_nodes($zk, lock_path('mine'), 'the lock ends with its client');
	my $second = session($pooler);
	is(pid($second), $pid, 'the server connection is the same');
};

subtest 'the resets of the table of poolers release locks of session scope or leave them, as it says' => sub {
	my ($table) = Pages::slurp(dirname(__FILE__) . '/../../docs/using.md') =~ /^\| pooler, or pool of a driver \|.*?\n\|[-|]+\n(.*?)\n\n/ms;
	my @rows = map { [ /^\| (.*?) \| (.*?) \| (.*?) \| (.*) \|$/ ] } split /\n/, $table // '';
	is(scalar @rows, 7, 'there are rows');
	my $client = background($berlin, database => 'app');
	foreach my $row (@rows)
	{
		my ($pool, $sent, $verdict, $add) = @$row;
		my @statements = $sent =~ /^`(.*)`$/ ? split /; /, $1 : ();
		$client->query_safe("SELECT zk_lock('pooled')");
		$client->query_safe($_) foreach @statements;
		is(held($client), $verdict eq 'are released' ? '' : 'pooled held', "$pool: locks $verdict");
		next if $add eq 'nothing';
		my ($line) = $add =~ /(SELECT zklock\.zk_unlock_all\(\))/ ? $1 : 'SELECT zklock.zk_unlock_all()';
		$client->query_safe($_) foreach @statements, $line;
		is(held($client), '', "$pool: with the line locks are released");
	}
	my $pooler = Pooler->new(pool_mode => 'session', default_pool_size => 1, server_reset_query => 'SELECT pg_advisory_unlock_all()');
	my $first = session($pooler, holds => 'pooled');
	$first->quit;
	my $second = session($pooler);
	is($second->query_safe("SELECT zk_try_lock('pooled')"), 't', 'the next client of PgBouncer has the lock of the former one');
	$second->quit;
	$pooler->stop;
	assert_no_nodes($zk, lock_path('pooled'), 'the lock ends with the server connection');
	$pooler = Pooler->new(pool_mode => 'session', default_pool_size => 1,
		server_reset_query => 'SELECT pg_advisory_unlock_all(); SELECT zklock.zk_unlock_all()');
	session($pooler, holds => 'pooled')->quit;
	assert_no_nodes($zk, lock_path('pooled'), 'with the line PgBouncer releases the lock');
};

subtest 'zklock.session_scope = refuse refuses locks of session scope behind PgBouncer' => sub {
	my $pooler = Pooler->new(default_pool_size => 1);
	my $clerk = session($pooler, user => 'clerk');
	$clerk->query_safe("SELECT zk_lock('right'), zk_unlock('right')");
	$clerk->quit;
	$pooler->stop;
	$recipes->install('scope', $berlin);

	# A new connection has the setting, whatever the library was loaded by.
	$pooler = Pooler->new(default_pool_size => 1);
	($clerk, my $next) = map { session($pooler, user => 'clerk') } 1 .. 2;
	foreach my $call (
		"SELECT zk_lock('right')", "SELECT zk_lock_set(ARRAY['right'])",
		"SELECT zk_try_lock_path('right', mode => 'shared')", "CALL zk_commit_and_lock('right')")
	{
		assert_query($clerk, $call, '0A000', "$call is refused");
		is($next->query_safe('SELECT count(*) FROM zk_session_locks'), 0, 'the next client has no lock');
	}
	assert_query($clerk, "SET zklock.session_scope = 'allow'", '42501', 'a client cannot change zklock.session_scope');
	$clerk->query_safe($recipes->code('transaction'));
	pass('locks of transaction scope and fences work');
};

$direct->quit;
$recipes->assert_all_taken;
done_testing();
