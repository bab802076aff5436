
# Every block of SQL in every page runs: as it is, or in the situation that the comment above it
# names, <!-- sql: name -->, with the outcome that the text around it says. Blocks that other
# tests run have their comment; one that cannot be run says why: <!-- not run: reason -->.

use Pages;
use ZkLockTest;

# Blocks with these comments, in these pages, are run by a test of their own, which fails
# if one is left out.
my %elsewhere = (
	'example README.md' => '540_front_page.pl',
	'recipe docs/recipes.md' => '50x_recipes_*.pl',
	'recipe docs/migrating.md' => '512_migrating.pl',
	'query docs/monitoring.md' => '520_operations.pl');

my $zk = ZooKeeper->new->start;
my ($node, $other) = map { cluster($_, $zk, extension => undef) } qw(berlin paris);
$node->safe_psql('postgres', 'CREATE DATABASE app; CREATE DATABASE fresh; CREATE ROLE etl; CREATE ROLE anna; CREATE ROLE payroll; CREATE ROLE billing');

# In the path of each role.
install_as_documented($other, 'postgres');
install_as_documented($node, 'app');
$other->safe_psql('postgres', 'ALTER DATABASE postgres SET search_path = public, zklock');
$node->safe_psql('app', <<~SQL);
	ALTER DATABASE app SET search_path = public, zklock;
	CREATE TABLE counter (n int);
	INSERT INTO counter VALUES (0);
	CREATE TABLE accounts (id int, balance int);
	INSERT INTO accounts VALUES (7, 1000);
	CREATE TABLE nights (night date);
	CREATE PROCEDURE nightly() LANGUAGE sql AS 'INSERT INTO nights VALUES (now())';
	SQL

# Somebody abroad who has the lock that most pages speak of.
my $holder = background($other, holds => 'nightly');

sub session ($database = 'app') { return background($node, database => $database); }

# The database where sessions count: from docs/using.md on, one that has only what that page makes.
my $trap = 'app';

# The cluster of docs/install.md.
my $alone;

# The situations: each gets the block and makes its tests.
my %situation = (
	'front/install' => sub ($sql) {
		my $session = background($node, database => 'fresh');
		# A tree below /tmp has its data there.
		my $problems = join '', grep { !$zk->is_volatile || !/^data\|warning\|servers keep / } split /^/, $session->query_safe($sql);
		unlike($problems, qr/\|(error|warning)\|/, 'zk_check() finds nothing wrong');
		like($session->query_safe("SELECT zk_lock('fresh')"), qr/^\d+$/, 'a lock is granted');
	},
	# These are typed one after the other, in a cluster in which no other database has zklock.
	'install/database' => sub ($sql) {
		$alone = cluster('oslo', $zk, extension => undef);
		$alone->safe_psql('postgres', $sql);
		like($alone->safe_psql('postgres', "SELECT zklock.zk_lock('oslo')"), qr/^\d+$/, 'a lock is granted');
	},
	'install/check' => sub ($sql) {
		my ($lock, @rows) = reverse split /\n/, $alone->safe_psql('postgres', $sql);
		is($lock, 't|t', 'a lock is taken and released');
		is(join("\n", grep { /^[^|]*\|(?:error|warning)\|/ && (!$zk->is_volatile || !/^data\|/) } @rows), '', 'zk_check() finds nothing wrong');
		like(join("\n", @rows), qr/^ensemble\|note\|/m, 'a single server is a note');
		like(join("\n", @rows), qr/^credentials\|note\|/m, 'the lack of zklock.auth is a note');
	},
	'install/drop' => sub ($sql) {
		$alone->safe_psql('postgres', $sql);
		is($alone->safe_psql('postgres', "SELECT count(*) FROM pg_namespace WHERE nspname = 'zklock'"), 0, 'nothing of it is left');
	},
	'install/roles' => sub ($sql) {
		$alone->safe_psql('postgres', $sql);
		is($alone->safe_psql('postgres', "SELECT count(*) FROM pg_roles WHERE rolname LIKE 'zklock%'"), 0, 'the roles are gone');
		$alone->stop;
	},
	'troubleshooting/event-triggers' => sub ($sql) {
		$node->safe_psql('postgres', 'CREATE DATABASE watched');
		my $session = background($node, database => 'watched');
		$session->query_safe(<<~'SQL');
			CREATE SCHEMA zklock;
			CREATE TABLE history (tag text);
			CREATE FUNCTION watch() RETURNS event_trigger LANGUAGE plpgsql AS $$
			BEGIN
				IF tg_tag = 'DROP SCHEMA' THEN
					RAISE 'no schema is dropped here';
				END IF;
				INSERT INTO history VALUES (tg_tag);
			END $$;
			CREATE EVENT TRIGGER ends ON ddl_command_end EXECUTE FUNCTION watch()
			SQL
		assert_query($session, 'CREATE EXTENSION zklock SCHEMA zklock', '42P01', 'CREATE EXTENSION fails in the event trigger');
		$session->query_safe('ALTER FUNCTION watch() SET search_path = public');
		assert_query($session, 'CREATE EXTENSION zklock SCHEMA zklock', 'P0001', 'CREATE EXTENSION is refused by the event trigger');
		$session->query_safe($sql);
		is($session->query_safe('SELECT extnamespace::regnamespace, current_setting($$session_replication_role$$)
			FROM pg_extension WHERE extname = $$zklock$$'), 'zklock|origin', 'without event triggers it is created');
	},
	'checklist/check' => sub ($sql) {
		my @rows = split /\n/, session()->query_safe($sql);
		is(join("\n", grep { /\|error\|/ } @rows), '', 'no row is an error');
		like(join("\n", @rows), qr/^ensemble\|note\|/m, 'a single server is a note');
	},
	'checklist/roles' => sub ($sql) {
		my $session = session();
		my $listed = $session->query_safe("GRANT zklock_operator TO anna; GRANT SET ON PARAMETER zklock.root TO etl; $sql");
		like($listed, qr/^zklock_operator\|anna$/m, 'the operators are shown');
		like($listed, qr/^zklock\.root\|.*\betl=s/m, 'who may set a parameter is shown');
		$session->query_safe('REVOKE zklock_operator FROM anna; REVOKE SET ON PARAMETER zklock.root FROM etl');
	},
	'checklist/settings' => sub ($sql) {
		my $list = sub { return map { (split /\|/)[0] => (split /\|/)[-1] } split /\n/, session()->query_safe($sql); };
		my %set = (lock_timeout => "'1min'", client_connection_check_interval => "'10s'", tcp_keepalives_idle => "'30s'",
			idle_in_transaction_session_timeout => "'10min'", log_lock_waits => "'on'");
		$node->safe_psql('app', join ';', map { "ALTER DATABASE app SET $_ = 0" } grep { $_ ne 'log_lock_waits' } keys %set);
		my %ok = $list->();
		is_deeply([ grep { !defined $ok{$_} } $sql =~ /'([a-z]+[_.][a-z_]+)'/g ], [], 'each name is a setting');
		is($ok{$_}, 'f', "$_ is not set") foreach qw(lock_timeout client_connection_check_interval idle_in_transaction_session_timeout);
		$node->safe_psql('app', join ';', map { "ALTER DATABASE app SET $_ = $set{$_}" } keys %set);
		%ok = $list->();
		is(join(' ', grep { $ok{$_} ne 't' } sort keys %ok), '', 'all are in order when they are set');
		$node->safe_psql('app', join ';', map { "ALTER DATABASE app RESET $_" } keys %set);
	},
	'checklist/drill' => sub ($sql) {
		my (undef, $take, $wait, $end, $release) = split /^--.*\n/m, $sql;
		my ($first, $second) = (session(), background($other));
		my ($pid) = $first->query_safe($take) =~ /^\d+\|(\d+)$/;
		start_to_wait($second, $wait);
		is($node->safe_psql('app', $end =~ s/4711/$pid/r), 't', 'the holder is ended');
		like($second->wait_result, qr/^\d+$/, 'the one in the other cluster has it');
		is($second->query_safe($release), 't', 'the lock is released');
	},
	'privileges/default' => sub ($sql) {
		$node->safe_psql('postgres', 'CREATE DATABASE closed');
		my $session = background($node, database => 'closed');
		$session->query_safe('CREATE SCHEMA zklock; GRANT USAGE ON SCHEMA zklock TO PUBLIC;
			ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;
			CREATE EXTENSION zklock SCHEMA zklock; SET search_path = zklock; SET ROLE etl');
		assert_query($session, 'SELECT * FROM zk_session_locks', '42501', 'a view fails');
		$session->query_safe("RESET ROLE; DROP EXTENSION zklock; $sql; SET ROLE etl; SELECT * FROM zk_session_locks");
		assert_query($session, "SELECT zk_evict('a', 1)", '42501', 'what is not everybody\'s is taken');
		$session->query_safe('RESET ROLE; CREATE FUNCTION mine() RETURNS void LANGUAGE sql RETURN NULL; SET ROLE etl');
		assert_query($session, 'SELECT mine()', '42501', 'the default is as it was');
	},
	'privileges/names' => sub ($sql) {
		$node->safe_psql('app', 'CREATE ROLE newcomer LOGIN; ALTER ROLE payroll LOGIN; ALTER ROLE anna LOGIN');
		$node->safe_psql('app', $sql);
		$node->reload;
		my $may = sub ($role, $name) {
			my $session = background($node, database => 'app', user => $role);
			$session->query("SELECT zklock.zk_try_xact_lock('$name')");
			my $state = $session->sqlstate;
			$session->quit;
			return $state;
		};
		assert_becomes { $may->('newcomer', 'pay') } '42501', 'a new role may use no name';
		is($may->('payroll', $_), '00000', "payroll may use $_") foreach 'pay', 'pay/a', 'shared/x';
		is($may->('payroll', $_), '42501', "payroll may not use $_") foreach 'payment', 'shared/hr', 'shared/hr/a';
		is($may->($_, 'payment'), '00000', "$_ may use all names") foreach qw(anna postgres);
		$node->safe_psql('app', "ALTER SYSTEM RESET $_") foreach 'zklock.names';
		$node->safe_psql('app', 'ALTER ROLE payroll RESET ALL; ALTER ROLE payroll NOLOGIN; ALTER ROLE anna RESET ALL; ALTER ROLE anna NOLOGIN; DROP ROLE newcomer; ALTER ROLE postgres RESET zklock.names');
		$node->reload;
		assert_becomes { $node->safe_psql('app', 'SHOW zklock.names') } '*', 'all names may be used again';
	},
	'privileges/lend' => sub ($sql) {
		session()->query_safe($sql);
		$node->safe_psql('postgres', "CREATE ROLE borrower LOGIN; ALTER ROLE borrower SET zklock.names = ''");
		my $borrower = background($node, database => 'app', user => 'borrower');
		assert_query($borrower, "SELECT zklock.zk_lock('month')", '42501', 'the role may not take the lock by itself');
		is($borrower->query_safe("SELECT close_month() > 0, zklock.zk_is_held('month'), zklock.zk_unlock('month')"), 't|t|t', 'the function lends it');
		$borrower->quit;
	},
	'trap/table' => sub ($sql) {
		$trap = 'trap';
		$node->safe_psql('postgres', "CREATE DATABASE $trap");
		install_as_documented($node, $trap);
		$node->safe_psql('postgres', "ALTER DATABASE $trap SET search_path = public, zklock");
		session($trap)->query_safe($sql);
		is(session($trap)->query_safe('SELECT n FROM counter'), 0, 'there is a counter');
	},
	'trap/wrong' => sub ($sql) {
		my $whole = session($trap);
		$whole->query($sql);
		like($whole->error, qr/WARNING:  a lock taken in a transaction with a fixed snapshot/, 'pasted whole, the block warns');
		unlike($whole->error, qr/(ERROR|there is)/, 'and does nothing else wrong');
		is($whole->query_safe('SELECT count(*) FROM zk_session_locks'), 0, 'pasted whole, the block leaves no lock behind');
		my @wrong = split /(?=^-- WRONG)/m, $sql;
		is(scalar @wrong, 2, 'the block has two ways');
		foreach my $way (@wrong)
		{
			my ($seen) = behind_another($way);
			is($seen, 0, 'the statement sees what was before the wait');
		}
	},
	'trap/right' => sub ($sql) {
		my @right = split /\n\n/, $sql;
		foreach my $way (@right)
		{
			my (undef, $after) = behind_another($way);
			is($after, 2, 'both have counted');
		}
		my ($unlocked, $rest) = $right[-1] =~ /^(.*zk_unlock.*?;)(.*COMMIT;)/s or return;
		my ($first, $second) = map { session($trap) } 1 .. 2;
		$first->query_safe('UPDATE counter SET n = 0');
		$first->query_safe($unlocked);
		start_to_wait($second, "SELECT zk_lock('counter')");
		$first->query_safe($rest);
		$second->wait_result;
		is($second->query_safe('SELECT n FROM counter'), 1, 'the next holder sees the change of a transaction that has released the lock');
	},
	'safety/fence' => sub ($sql) {
		my ($old, $new) = map { session() } 1 .. 2;
		my $token = $old->query_safe("SELECT zk_lock('accounts')");
		$old->query_safe($sql);
		is($old->query_safe('SELECT balance FROM accounts'), 900, 'the holder may write');
		my ($elsewhere) = $sql =~ /^-- .*(SELECT zk_fence\('accounts', \d+\);)/m or die 'no second form';
		$new->query_safe($elsewhere =~ s/\d{3,}/$token/r);
		pass('the token from elsewhere is accepted');
		$old->query_safe("SELECT zk_unlock('accounts')");
		$new->query_safe("SELECT zk_lock('accounts')");
		$new->query_safe("SELECT zk_fence('accounts')");
		assert_query($old, $elsewhere =~ s/\d{3,}/$token/r, '40001', 'the late holder is refused');
	},
	'backup/check' => sub ($sql) {
		my @rows = grep { !$zk->is_volatile || !/^data\|/ } split /\n/, session()->query_safe($sql);
		is(join("\n", grep { /^[^|]*\|(?:error|warning)\|/ } @rows), '', 'zk_check() finds nothing wrong');
	},
	'backup/holds' => sub ($sql) {
		my $session = session();
		my $token = $session->query_safe("SELECT zk_hold('kept for good', 'disk replacement')");
		$session->query_safe("SELECT zk_lock('of a session'), zk_try_lease('of a lease', 'me', '1 min')");
		like($session->query_safe($sql), qr/^kept for good\|disk replacement\|$token\|[^\n]*\|berlin\|\w+$/, 'the permanent hold is shown, and nothing else');
		$session->query_safe("SELECT zk_release_hold('kept for good', $token); SELECT zk_release_lease('of a lease', token) FROM zk_lock_queue('of a lease'); SELECT zk_unlock_all()");
	},
	'operations/terminate' => sub ($sql) {
		my ($victim, $next) = map { session() } 1 .. 2;
		$victim->query_safe("SELECT zk_lock('theirs')");
		start_to_wait($next, "SELECT zk_lock('theirs')");
		my $pid = $victim->pid;
		is($node->safe_psql('app', $sql =~ s/4711/$pid/r), 't', 'the holder is ended');
		like($next->wait_result, qr/^\d+$/, 'the next one has it');
	},
	'operations/evict' => sub ($sql) {
		my $token = $holder->query_safe("SELECT zk_fencing_token('nightly')");
		is($node->safe_psql('app', $sql =~ s/\d{3,}/$token/r), 't', 'it is evicted');
		assert_knows_loss($holder, 'nightly', 'the evicted holder learns of it when it asks');
		$holder->query_safe('SELECT zk_unlock_all()');
		$holder->query_safe("SELECT zk_lock('nightly')");
	},
	'operations/new-ensemble' => sub ($sql) {
		my ($writer, $owner) = map { session() } 1 .. 2;
		my ($table) = $sql =~ /^TRUNCATE (\w+);/m or die "which table: $sql";
		my $rows = "SELECT count(*) FROM $table";
		$writer->query_safe("SELECT zk_lock('new'); BEGIN; SELECT zk_fence('new')");
		$owner->query_safe("DELETE FROM $table");
		$writer->query_safe('COMMIT');
		is($owner->query_safe($rows), 1, 'DELETE does not see what is under way');
		$writer->query_safe("BEGIN; SELECT zk_fence('new')");
		$owner->start_query($sql);
		wait_for_lock($owner->node, $owner->pid);
		$writer->query_safe('COMMIT');
		$owner->wait_result;
		is($owner->query_safe($rows), 0, 'TRUNCATE waits for the writer, and no row is left');
	},
	'reference/hold' => sub ($sql) {
		$holder->query_safe("SELECT zk_unlock('nightly')");
		my ($hold, $release) = split /^--.*\n/m, $sql;
		my $token = $node->safe_psql('app', $hold);
		is($node->safe_psql('app', "SELECT zk_try_lock('nightly')"), 'f', 'it is held by nobody');
		is($other->safe_psql('postgres', $release =~ s/\d{3,}/$token/r), 't', 'released from another cluster');
		$holder->query_safe("SELECT zk_lock('nightly')");
	});

# What a statement sees that waits for somebody who counts, and what there is when both
# are done.
sub behind_another ($sql)
{
	my ($first, $second) = map { session($trap) } 1 .. 2;
	$first->query_safe("UPDATE counter SET n = 0; SELECT zk_lock('counter')");
	start_to_wait($second, $sql);
	$first->query_safe("UPDATE counter SET n = n + 1; SELECT zk_unlock('counter')");
	# The last number: a token comes before it in the same row or in a row of its own.
	my ($seen) = reverse $second->wait_result =~ /^(\d+)(?:\|\d+)?$/mg;
	$second->query('ROLLBACK');
	my $after = $first->query_safe('SELECT n FROM counter');
	$first->query_safe('UPDATE counter SET n = 0');
	$_->quit foreach $first, $second;
	return ($seen, $after);
}

# What is to be done with a block: why it is not run here, or nothing.
sub reason ($page, $block)
{
	return $elsewhere{"$block->{kind} $page->{name}"} || ($block->{kind} eq 'not run' && $block->{value});
}

sub looks_like_sql
{
	return $_[0] =~ /^\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|GRANT|REVOKE|CALL|BEGIN|DO|SET|TRUNCATE)\b.*[;\$]/m;
}

ok(looks_like_sql("-- a comment\nSELECT 1;\n"), 'SQL looks like it');
ok(!looks_like_sql("LOG:  process 4711\nmake check\nzklock.servers = 'x'\n"), 'other text does not');

my (%is_used, $count);
foreach my $page (Pages::all())
{
	foreach my $block (Pages::blocks($page))
	{
		my $where = "$page->{name}:$block->{line}";
		ok(!looks_like_sql($block->{code}), "$where: SQL is marked as such") if $block->{language} eq '';
		next if $block->{language} ne 'sql' || reason($page, $block);
		++$count;
		if ($block->{kind} eq '')
		{
			my $session = session();
			$session->query($block->{code});
			# The SQLSTATE would be that of the last statement alone.
			my ($error) = $session->error =~ /^(?:psql:\S+ )?((?:ERROR|FATAL|PANIC):.*)/m;
			is($error // '', '', $where);
		}
		elsif (my $check = $block->{kind} eq 'sql' && $situation{ $block->{value} })
		{
			$is_used{ $block->{value} } = 1;
			subtest "the SQL block at $where does what the text around it says" => sub {
				eval { $check->($block->{code}); 1 } or fail("it went through: $@");
			};
		}
		else
		{
			fail("$where: nobody runs what is marked \"$block->{kind}: $block->{value}\"");
		}
	}
}
cmp_ok($count, '>', 20, 'there are blocks');
is_deeply([ grep { !$is_used{$_} } sort keys %situation ], [], 'each situation has a block');

done_testing();
