
# zk_check() names what is wrong between a cluster and its ensemble, with a remedy, never raises
# an error for it, and answers within seconds. Tested with real servers that stop, are full,
# differ or lie, fake servers of all kinds, and broken installations.

use Builds;
use Cwd qw(abs_path);
use FakeServer;
use File::Basename qw(dirname);
use IO::Socket::INET;
use POSIX ();
use Proxy;
use Socket qw(SOL_SOCKET SO_LINGER);
use Preload;
use ZkLockTest;
use ZooKeeper qw(free_port);

my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk);
my $server = $zk->connect_string;
# What it says of data that are there: of a tree below /tmp that they may not stay.
my $is_kept = $zk->is_volatile ? qr/^warning: servers keep / : qr/^ok: /;
my $docs = abs_path(dirname(__FILE__) . '/../../docs');

# The worst state that any row of an item had, by the item's name in the table of docs/monitoring.md.
my %level = (ok => 0, note => 1, warning => 2, error => 3);
my %worst;

# A cluster like $node with such servers and credentials, which are those of a whole cluster: the same
# one, restarted for each.
my ($moving, $moved) = (undef, '');

sub moved_to (%setting)
{
	$moving //= beside($node, cluster_name => 'moving');
	my $lines = join '', map { "$_ = '" . ($setting{$_} // ($_ eq 'zklock.auth' ? '' : $server)) . "'\n" } 'zklock.servers', 'zklock.auth';
	return $moving if $lines eq $moved;
	$moved = $lines;
	$moving->append_conf('postgresql.conf', $lines);
	$moving->restart;
	return $moving;
}

# Rows of zk_check() after such SQL, in a new session of a cluster or in that session; with a SET
# of servers or credentials in one that has these. How
# long it took, and how many milliseconds it had; each row's state, what and remedy by its
# item. They are joined if there are several.
sub check ($sql, $argument, $on = undef)
{
	my %other;
	$other{$1} = $2 while $sql =~ s/SET (zklock\.(?:servers|auth)) = '([^']*)'(?:; )?//;
	$sql =~ s/; $//;
	$on = $on ? beside($on, %other) : moved_to(%other) if %other;
	my $start = time;
	$sql = ($sql ? "$sql;\n" : '') . "SELECT item, state, what, remedy FROM zk_check($argument);
		SELECT 'had', extract(epoch FROM current_setting('zklock.connect_timeout')::interval) * 1000";
	$on //= $node;
	my $text = $on->can('query_safe') ? $on->query_safe($sql) : $on->safe_psql('postgres', $sql);
	my %row = (took => time - $start);
	foreach (grep { /\|/ } split /\n/, $text)
	{
		my ($item, $state, $what, $remedy) = split /\|/, $_, 4;
		my $named = $item =~ s/^((?:server|tls) ).*/$1.../r =~ s/^zklock\..*/zklock.../ri;
		$worst{$named} = $state if defined $what && $level{$state} >= $level{ $worst{$named} // 'ok' };
		if (defined $what) { $row{$item} .= "$state: $what -> $remedy\n"; }
		else { $row{$item} = $state; }
	}
	note($text);
	return \%row;
}

# That zk_check() had too little time is said by a row, other than those that say it as they
# should: of a server, or of the session, which also tells how long all of it has taken.
sub had_no_time ($rows, %pattern)
{
	foreach my $item (sort keys %$rows)
	{
		next if $pattern{$item} && $rows->{$item} =~ $pattern{$item};
		return 1 if $rows->{$item} =~ /\bin time\b|accepts connections, but does not answer|but only in \d+ ms|could not be found out|zklock\.connect_timeout, /;
	}
	my ($ms) = ($rows->{session} // '') =~ /^ok: .* it took (\d+) ms /;
	return defined $ms && $ms >= $rows->{had};
}

# Its rows; [sql, argument, node] as for check(). Where the rows say that there was too little
# time, it is asked again until these items look like that. Nothing else is asked twice.
sub rows_like ($call, %pattern)
{
	my $rows;
	foreach my $attempt (1 .. 5)
	{
		note("again: zk_check() had too little time") if $attempt > 1;
		$rows = check(@$call);
		last unless grep { ($rows->{$_} // '') !~ $pattern{$_} } keys %pattern;
		last unless had_no_time($rows, %pattern);
	}
	return $rows;
}

# There are such rows, each with a pattern and the name of the test.
sub shows ($call, %row)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $rows = rows_like($call, map { $_ => $row{$_}[0] } keys %row);
	like($rows->{$_}, $row{$_}[0], $row{$_}[1]) foreach sort keys %row;
	return $rows;
}

# Such a row is there, with and without a session, and with a way out.
sub names ($sql, $item, $pattern, $what, @on)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	foreach my $argument ('false', 'true')
	{
		my $rows = shows([ "SET zklock.connect_timeout = '3s'; $sql", $argument, @on ],
			$item => [ $pattern, "$what, zk_check($argument)" ]);
		like($rows->{$item}, qr/ -> ./, 'the row has a remedy');
		in_time($rows->{took}, 30, 'zk_check() answers in time');
	}
	return;
}

# As a server says it.
sub srvr ($mode, $version = '3.8.4')
{
	return "Zookeeper version: $version-0, built on 2024-02-12\nMode: $mode\nNode count: 5\n";
}

my $silent = FakeServer->new(sub { return 1; });
my $web = FakeServer->new(sub { print { $_[0] } "HTTP/1.1 400 Bad \e[31mRequest\r\n\r\n"; return 0; });
my $closing = FakeServer->new(sub { return 0; });
# As one does that has lost its quorum, with readonlymode.enabled.
my $reading = FakeServer->answering(srvr('read-only'));

subtest 'zk_check() finds nothing wrong where all is well, and leaves nothing behind' => sub {
	my $path = lock_path('any');
	$node->safe_psql('postgres', "SELECT zk_lock('any')");
	foreach my $argument ('', 'false', 'NULL')
	{
		my $rows = rows_like([ '', $argument ],
			"server $server" => qr/^(?:ok|note): /, session => qr/^ok: /, connections => qr/^ok: /,
			$argument ? () : (writing => qr/^ok: /));
		my %bad = map { $_ => $rows->{$_} } grep { $rows->{$_} =~ /^(?:error|warning)/m } keys %$rows;
		delete $bad{data} if ($bad{data} // '') =~ $is_kept;
		is(join('', values %bad), '', "no errors, no warnings, zk_check($argument)");
		like($rows->{"server $server"}, qr/^(?:ok|note): .* is a standalone server, release \d.*, answers in \S+ ms, outstanding requests: \d+/, 'the server');
		like($rows->{'zklock.servers'}, qr/^ok: \Q$server\E, source: configuration file .*conf:\d+/,
			'a setting and where it is from');
		like($rows->{program}, qr/^ok: .*zklock-session" runs, protocol [1-9]\d*, .* library 3\.\d/, 'the program');
		like($rows->{extension}, qr/^ok: version \S+ in this database/, 'the extension');
		like($rows->{credentials}, qr/^note: zklock.auth is not set: .* and read which user, host/, 'no credentials');
		like($rows->{connections}, qr/^ok: the servers allow any number/, 'connections');
		next if $argument;
		like($rows->{session}, qr/^ok: connected to \Q$server\E; all questions together took \d{1,5} ms /, 'the session');
		like($rows->{root}, qr/^ok: .* is there since 20[2-9]\d-.*, with [1-9]\d* znodes in it/, 'the root');
		like($rows->{writing}, qr/^ok: /, 'it can be written to');
		like($rows->{clock}, qr/^ok: /, 'the clock');
	}
	# Servers have two seconds to answer, which only those take that are silent.
	my $session = background($node);
	poll_until { check("SET zklock.connect_timeout = '30s'", '', $session)->{took} < 1.8 }
	'answers before that time is over';
	$session->quit;
	assert_no_nodes($zk, $path, 'nothing is left in a queue');
	my $client = $zk->client;
	my @left = grep { /release$/ && $_ ne '.release' }
	  $client->children(lock_path('any') =~ s{/any$}{}r);
	is("@left", '', 'nothing is left in the root');
};

subtest 'zk_check(false) opens no session' => sub {
	my $session = background($node);
	my $count = $session->query_safe('SELECT count(*) FROM zk_check(false)');
	cmp_ok($count, '>', 10, 'there are rows');
	is($session->query_safe('SELECT state FROM zk_session'), 'none', 'zk_check(false) has opened no session');
	$session->query_safe('SELECT count(*) FROM zk_check()');
	is($session->query_safe('SELECT state FROM zk_session'), 'connected', 'the other opens one');
	$session->quit;
	assert_no_programs('no program is left', $session);
};

# What is missing without a session has a row, and marks in the table of the page.
subtest 'zk_check(false) names the rows that only a session tells' => sub {
	my %row = map { $_ => rows_like([ '', $_ ], $_ eq 'true' ? (writing => qr/^ok: /, clock => qr/./) : (ensemble => qr/./)) } qw(true false);
	my ($list) = $row{false}{'not looked at'} =~ /^note: (.*): only a session tells -> Run zk_check\(true\)/;
	ok($list, 'zk_check(false) names the rows that it lacks');
	my %is_named = map { $_ => 1 } split /, /, $list // '';
	my @missing = grep { !$row{false}{$_} } keys %{ $row{true} };
	cmp_ok(scalar @missing, '>', 4, 'rows are missing without a session');
	is(join(', ', grep { !$is_named{$_} } @missing), '', 'all of them are named');
	is($row{true}{'not looked at'}, undef, 'zk_check(true) lacks no row');
	my ($table) = slurp_file("$docs/monitoring.md") =~ /^\| item \|.*?\n(.*?)\n\n/ms;
	is(join(', ', $table =~ /^\| `([^`]+)` \| \w+ \| yes \|/mg), $list, 'the page marks the same rows');
};

# Where sessions of one cluster have not the same locks, or no guard.
subtest 'zk_check() names settings that differ between roles and databases' => sub {
	my $guard = 'zklock.commit_guard';
	like(check('', 'false')->{$guard}, qr/^ok: fresh, source: [^;]* -> $/, 'the guard is on');
	like(check("SET $guard = 'off'", 'false')->{$guard},
		qr/^warning: off, source: session; no commit is refused .* -> Set it to lease/, 'commit_guard = off is a warning');
	$node->safe_psql('postgres', qq{CREATE ROLE "o'brien"; CREATE DATABASE elsewhere;
		ALTER ROLE "o'brien" IN DATABASE elsewhere SET zklock.root = '/mistyped';
		ALTER ROLE ALL IN DATABASE elsewhere SET $guard = 'quorum';
		ALTER ROLE "o'brien" SET $guard = 'off'; ALTER ROLE "o'brien" SET zklock.keep = '1s'});
	my $rows = check('', 'false');
	like($rows->{'zklock.root'}, qr{^note: /mistyped for sessions of role "o'brien" in database "elsewhere", by ALTER ROLE -> .* other locks}m, 'a root');
	like($rows->{$guard}, qr/^warning: off for sessions of role "o'brien", by ALTER ROLE -> No commit/m, 'no guard');
	is(scalar(() = join('', values %$rows) =~ /for sessions of/g), 2, 'no other setting is named');
	$node->safe_psql('postgres', q{ALTER ROLE ALL SET zklock.commit_guard = 'off'});
	$rows = check('SET zklock.commit_guard = quorum', 'false');
	like($rows->{$guard}, qr/^warning: off for sessions of all roles, by ALTER ROLE/m, 'a setting for all roles is named');
	$node->safe_psql('postgres', q{ALTER ROLE ALL RESET zklock.commit_guard; DROP DATABASE elsewhere; DROP ROLE "o'brien"});
	unlike(join('', values %{ check('', 'false') }), qr/for sessions of/, 'no setting is named when it is reset');
};

subtest 'zk_check() says of each bad server what is wrong with it' => sub {
	my $refused = '127.0.0.1:' . free_port();
	names("SET zklock.servers = ''", 'zklock.servers', qr/^error: no servers are set/, 'none set');
	names("SET zklock.servers = 'no-such-host.invalid:2181'", 'server no-such-host.invalid:2181',
		qr/^error: its name has no address: Host "no-such-host[.]invalid" /, 'a name that is not known');
	names("SET zklock.servers = '$refused'", "server $refused",
		qr/^error: \Q$refused\E cannot be reached: Connection refused/, 'a port that refuses');
	names("SET zklock.servers = '$silent'", "server $silent",
		qr/^error: .* accepts connections, but does not answer.*zklock\.ssl\b/, 'one that says nothing');
	names("SET zklock.servers = '$closing'", "server $closing",
		qr/^error: .* closes connections without an answer.*maxClientCnxns/, 'one that closes');
	# One that has too many connections may be faster than who asks: EPIPE, then.
	my $full = FakeServer->new(sub ($connection) {
		shutdown $connection, 1;
		setsockopt $connection, SOL_SOCKET, SO_LINGER, pack('ii', 1, 0);
		return 0; });
	if (my $library = Preload::library('late_poll'))
	{
		my $late = cluster('later', $zk, servers => "$full", environment => { LD_PRELOAD => $library });
		shows([ '', 'false', $late ],
			"server $full" => [ qr/^error: .* closes connections without an answer.*maxClientCnxns.*maxCnxns/, 'one that breaks the pipe' ]);
		$late->stop;
	}
	names("SET zklock.servers = '$web'", "server $web",
		qr/^error: .* is not a ZooKeeper server; it answered "HTTP\/1.1 400 Bad <U\+001B>\[31mRequest"/,
		'a web server, and what it said, escaped');
	names("SET zklock.servers = '$refused'", 'ensemble',
		qr/^error: none of the 1 servers can be reached/, 'nobody there');
	names("SET zklock.servers = '$closing'", 'ensemble',
		qr/^error: none of the 1 servers serves ->/, 'nobody who speaks, of whose quorum nothing is known');
	names("SET zklock.servers = '$reading'", "server $reading",
		qr/^error: .* only reads/, 'one that only reads');
	names("SET zklock.servers = '$reading'", 'ensemble',
		qr/^error: none of the 1 servers serves: no quorum/, 'an ensemble that only reads serves nobody');
	shows([ "SET zklock.connect_timeout = '1s'; SET zklock.servers = '$$_[0]'", 'true' ], session => [ @$_[ 1, 2 ] ])
	  foreach [ $refused, qr/^error: not tried/, 'where nobody listens no session is tried' ], [ $closing, qr/^error: (?!not tried)/, 'elsewhere one is' ];
	my $waiting = background($node, 'zklock.servers' => "$silent", 'zklock.connect_timeout' => '1s');
	$waiting->query_safe('SELECT count(*) FROM zk_check()');
	is($waiting->query_safe('SELECT state FROM zk_session'), 'none', 'one that is not granted does not stay');
};

subtest 'zk_check() names a server that has too many connections' => sub {
	my $narrow = ZooKeeper->new(config => { maxClientCnxns => 2 })->start;
	my @clients = map { $narrow->client } 1 .. 2;
	my $address = $narrow->connect_string;
	names("SET zklock.servers = '$address'", "server $address",
		qr/^error: .* closes connections without an answer -> Raise its maxClientCnxns/, 'is said to close them');
	# A session that has a connection knows better.
	(shift @clients)->close;
	my $holder = background($node, 'zklock.servers' => $address, holds => 'narrow');
	foreach my $argument ('false', 'true')
	{
		my $rows = shows([ "SET zklock.connect_timeout = '3s'", $argument, $holder->node ],
			"server $address" => [ qr/^warning: .* closes connections without an answer/, "where a session has a connection it is a warning, zk_check($argument)" ],
			ensemble => [ qr/^warning: none of the 1 servers has answered .* are connected: 1 ->/, 'so is the ensemble' ]);
		like($rows->{session}, qr/^error: /, 'no other session is granted') if $argument eq 'true';
	}
	assert_held($holder, 'narrow', 'the lock is held');
	$holder->quit;
	$_->close foreach @clients;
	assert_soon { check("SET zklock.servers = '$address'", 'false')->{"server $address"} =~ /^(?:ok|note): .* is a standalone/ } 'the server is well again with fewer connections', 30;
	$narrow->stop;
};

subtest 'zk_check() names servers of two ensembles' => sub {
	my @leaders = map { FakeServer->answering(srvr('leader')) } 1 .. 2;
	shows([ "SET zklock.servers = '$leaders[0],$leaders[1]'", 'false' ],
		ensemble => [ qr/^warning: 2 of the servers are leaders: .* several ensembles/, 'two leaders are two ensembles' ]);
	my $alone = FakeServer->answering(srvr('standalone', '3.9.2'));
	shows([ "SET zklock.servers = '$leaders[0],$alone'", 'false' ],
		"server $alone" => [ qr/^(?:ok|note): .* release 3\.9\.2, /, 'a server has its release' ],
		ensemble => [ qr/^error: the servers are not of one ensemble: 1 standalone, 1 members/, 'one that is alone' ]);
};

subtest 'zk_check() names one bad server beside a good one' => sub {
	names("SET zklock.servers = '$server,$silent'", "server $silent", qr/^warning: /, 'the silent server is named');
	names("SET zklock.servers = '$server,$silent'", 'ensemble',
		qr/^warning: only 1 of 2 servers serve/, 'the ensemble');
	names("SET zklock.servers = '$server,$reading'", 'ensemble',
		qr/^warning: only 1 of 2 servers serve/, 'the ensemble is named if the other server only reads');
	names("SET zklock.servers = '$server,$web'", "server $web", qr/^error: .* is not a ZooKeeper/, 'a stranger');
	my $slow = FakeServer->answering(sub { sleep 0.2; return srvr('follower'); });
	shows([ "SET zklock.servers = '$slow'", 'true' ],
		"server $slow" => [ qr/^note: .* answers in (?:[2-9]|1\d)\d\d\.\d ms -> Check the network/, 'one that is slow' ]);
	shows([ "SET zklock.servers = '$server,$server'", 'false' ],
		ensemble => [ qr/^note: a single server/, 'one that is named twice is one' ]);
};

# A busy machine may have no time for it: the best of three.
sub shows_in_time (@what)
{
	my $rows = shows(@what);
	for (1 .. 2)
	{
		last if $rows->{took} < 10;
		note("again: it took $rows->{took} s");
		$rows = shows(@what);
	}
	cmp_ok($rows->{took}, '<', 10, 'zk_check() answers within seconds');
	return $rows;
}

# The address is one that drops what is sent to it; or the machine has no route to
# it at all, and then that is said at once.
subtest 'zk_check() answers in seconds though servers drop packets' => sub {
	my $full = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 1) or die;
	my @waiting = map {
		IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $full->sockport,
			Blocking => 0)
	} 1 .. 8;
	my $dropping = '127.0.0.1:' . $full->sockport;
	my $session = background($node, 'zklock.servers' => "$server,$silent,$dropping,192.0.2.1:2181");
	my $rows = shows_in_time([ '', 'false', $session ],
		"server $server" => [ qr/^(?:ok|note)/, 'the good one has its answer' ],
		"server $dropping" => [ qr/^warning.*no connection in time/, 'the one that drops is named' ]);
	is(scalar(grep { /^server/ } keys %$rows), 4, 'all are named');
	is(session_programs($session->pid), 0, 'no process is left');
};

# Those of these processes that ask servers.  A zombie has no title.
sub askers (@pids)
{
	return grep { eval { slurp_file("/proc/$_/cmdline") =~ /^zklock: asks servers\x{00}/ } } @pids;
}

# Nothing can bound the look-up of a name; here it takes a minute, for some names.
subtest 'zk_check() names servers whose names are not looked up in time' => sub {
	my $library = Preload::library('odd_names') or plan skip_all => 'no C compiler';
	my $slow = cluster('slow', $zk,
		servers => "slow1:2181,$server,slow2:2181", environment => { LD_PRELOAD => $library });
	my $session = background($slow);
	my $rows = shows_in_time([ '', 'false', $session ],
		'server slow1:2181' => [ qr/^warning: there was no answer in time/, 'they are named' ],
		"server $server" => [ qr/^(?:ok|note): /, 'the one between them has its answer' ]);
	my ($port) = $server =~ /:(\d+)$/;
	shows([ "SET zklock.servers = 'twice:$port'", 'false', $slow ],
		ensemble => [ qr/^note: a single server/, 'the best of two addresses counts' ]);
	my @askers;
	$session->start_query('DO $$ BEGIN LOOP PERFORM zk_check(); END LOOP; END $$');
	poll_until { @askers = askers(session_programs($session->pid)) } 'the program to ask';
	$slow->stop('immediate');
	assert_soon { !askers(@askers) } 'the program that asks does not outlive its backend', 30;
};

# What a session knows counts, be it this one or another one of the cluster.
subtest 'zk_check() does not say that no server serves where a look-up of a name takes four seconds' => sub {
	my $library = Preload::library('moving_names') or plan skip_all => 'no C compiler';
	my $names = $node->basedir . '/names';
	append_to_file($names, 'zk.test ~4000 ' . $zk->address . "\n");
	my $far = cluster('far', $zk, servers => 'zk.test:' . $zk->port,
		environment => { LD_PRELOAD => $library, LD_TEST_NAMES => $names });
	shows([ '', 'false', $far ],
		ensemble => [ qr/^error: none of the 1 servers has answered in time -> .*zk_check\(true\)/, 'nothing is known without a session' ]);
	my $session = background($far, 'zklock.connect_timeout' => '40s');
	foreach my $call ([ '', 'true', $session ], [ '', 'false', $session ], [ '', 'false', $far ])
	{
		my $rows = shows($call,
			"server zk.test:" . $zk->port => [ qr/^warning: there was no answer in time -> .*DNS/, 'the slow name is a warning' ],
			ensemble => [ qr/^warning: none of the 1 servers has answered .* are connected: 1 ->/, 'so is the ensemble' ]);
		like($rows->{session}, qr/^ok: connected to .* -> $/, 'the session is granted, and knows of a server') if $call->[1] eq 'true';
	}
	$far->stop;
};

subtest 'zk_check() has a row for each of 32 servers' => sub {
	my $list = join ',', map { '127.0.0.1:' . free_port() } 1 .. 32;
	my $rows = check("SET zklock.servers = '$list'", 'false');
	is(scalar(grep { /^server/ } keys %$rows), 32, 'each has its row');
};

subtest 'a backend that is terminated during zk_check() leaves no process' => sub {
	my $session = background($node, 'zklock.servers' => "$silent");
	my @askers;
	# Each program is there for a second.
	$session->start_query('DO $$ BEGIN LOOP PERFORM zk_check(false); END LOOP; END $$');
	poll_until { @askers = askers(session_programs($session->pid)) } 'the program to ask';
	$session->terminate;
	$session->wait_result;
	assert_soon { !askers(@askers) } 'the program ends, too', 30;
};

subtest 'a cancellation ends zk_check()' => sub {
	my $session = background($node, route => "$silent", statement_timeout => '1s');
	assert_query($session, 'SELECT count(*) FROM zk_check()', '57014', 'a cancellation is the one error of zk_check()');
	assert_no_programs('its process is gone', $session);
	$session->route(undef);
	$session->query_safe('SET statement_timeout = 0');
	cmp_ok($session->query_safe('SELECT count(*) FROM zk_check()'), '>', 10, 'zk_check() works in the same session afterwards');
};

subtest 'zk_check() names a chroot and a root that do not exist' => sub {
	shows([ "SET zklock.servers = '$server/mistyped'", 'true' ],
		chroot => [ qr/^warning: znode "\/mistyped" does not exist -> Check the spelling in zklock\.servers/, 'the chroot' ],
		root => [ qr/^note: znode "\/mistyped.*" does not exist yet/, 'the root' ],
		writing => [ qr/^ok: a znode was made in "\/",/, 'they can be made' ]);
	my $client = $zk->client;
	ok(!$client->exists('/mistyped'), 'the missing chroot was not made');
	assert_becomes { join ' ', grep { /release$/ } $client->children('/') } '', 'nothing is left beside it';
	$client->create('/there', '');
	$client->close;
	shows([ "SET zklock.servers = '$server/there'", 'true' ],
		chroot => [ qr/^warning: znode "\/there" is empty: .* -> Check the spelling in zklock\.servers/, 'an empty one' ]);
	shows([ "SET zklock.servers = '$server/there'; SET zklock.root = '/'", 'true' ],
		chroot => [ qr/^ok: znode "\/there" is there since/, 'one that is there' ],
		writing => [ qr/^ok: /, 'and is the root' ]);
};

subtest 'zk_check() names a slow disk of a server, and a full one' => sub {
	my $library = Preload::library('slow_disk') or plan skip_all => 'no C compiler';
	my $disk = $node->basedir . '/disk';
	my $behaves = sub ($how) { append_to_file("$disk.new", $how); rename "$disk.new", $disk or die "could not write $disk: $!" };
	my $slow = ZooKeeper->new(force_sync => 1, environment => { 1 => { LD_PRELOAD => $library, LD_TEST_DISK => $disk } })->start;
	my $address = $slow->connect_string;
	my $set = "SET zklock.servers = '$address'; SET zklock.connect_timeout = '1min'";
	moved_to('zklock.servers' => $address)->safe_psql('postgres', "SELECT zk_lock('warm')");
	shows([ $set, 'true' ],
		"server $address" => [ qr/^(?:ok|note): .*, fsync since its start: [\d.]+ ms on average, \d+ ms at most/, 'the times of fsync are told' ],
		writing => [ qr/^ok: a znode was made in .*, in \d{1,3} ms/, 'so is the time of a write' ]);
	$behaves->('1500');
	shows([ $set, 'true' ],
		writing => [ qr/^warning: a znode was made in "[^"]+", but only in [1-9]\d{3} ms: .* -> .*fsync/, 'a slow write is a warning' ]);
	shows([ $set, 'false' ],
		"server $address" => [ qr/^warning: .*, fsync since its start: \d{3,4}\.\d+ ms on average, 1[5-9]\d\d ms at most -> Its disk is slow/, 'a server with a slow disk is a warning' ]);
	$behaves->('full');
	check("SET zklock.connect_timeout = '1s'; SET zklock.servers = '$address'", 'true');
	assert_soon { !$slow->mode(1, 1) } 'the server ends when its disk is full';
	shows([ $set, 'false' ],
		"server $address" => [ qr/^error: .* cannot be reached: .* -> Find out why .* its log, and whether its disk is full \(df/, 'the remedy names the full disk' ]);
};

subtest 'zk_check() says when the ensemble has lost its data or may lose it' => sub {
	my $reset = ZooKeeper->new->start;
	my $moving = beside($node, 'zklock.servers' => $reset->connect_string);
	$moving->safe_psql('postgres', "SELECT zk_lock('warm' || n) FROM generate_series(1, 40) AS n; SELECT zk_lock('fenced'); SELECT zk_fence('fenced')");
	like(check('', 'false', $moving)->{data}, $is_kept, 'the data are there');
	$reset->stop;
	my $new = ZooKeeper->new->start;
	reconfigure($moving, 'zklock.servers' => $new->connect_string);
	names('', 'data', qr/^error: the ensemble has lost its data, or is another one: it has come to \d+, and zk_fences to token \d+/,
		'a new ensemble', $moving);
	my $session = background($moving, holds => 'fenced');
	assert_query($session, "SELECT zk_fence('fenced')", '40001', 'zk_fence() refuses the tokens of the new ensemble');
	like($session->error, qr/HINT: .*the ensemble has lost its data, or is another one.* TRUNCATE zk_fences/, 'the HINT names TRUNCATE zk_fences');
	$session->query_safe('TRUNCATE zk_fences; SELECT zk_fence(\'fenced\')');
	like(check('', 'false', $moving)->{data}, $is_kept, 'the data are well after TRUNCATE');
	$session->quit;
	$_->stop foreach $reset, $new;

	# Bytes that are no text are replaced.
	foreach my $line ('dataDir=/tmp/zookeeper/version-2', "dataDir=/data\ndataLogDir=/run/zk/version-2", "dataDir=/tmp/\xe4\x7f")
	{
		my $debian = FakeServer->answering(sub ($word) {
			return $word eq 'conf' ? "clientPort=2181\n$line\ntickTime=2000\n" : srvr('standalone');
		});
		my ($directory) = $line =~ m{(/(?:tmp|run)\S+)};
		$directory =~ s/[^ -~]/?/g;
		shows([ "SET zklock.servers = '$debian'", 'false' ],
			data => [ qr/^warning: servers keep .* deletes it: \Q$debian in $directory\E -> Set dataDir .* myid/, $directory ]);
	}
};

subtest 'zk_check() says what the credentials may do' => sub {
	my $client = $zk->client;
	$client->add_auth('digest', 'alice:secret');
	$client->create('/alice', '', acl => [ [ 31, 'auth', '' ], [ 1, 'world', 'anyone' ] ]);
	$client->create('/admin', '', acl => [ [ 31, 'auth', '' ], [ 17, 'world', 'anyone' ] ]);
	$client->close;
	my $root = "SET zklock.root = '/alice'";
	shows([ $root, 'true' ],
		writing => [ qr/^error: this session may not create znodes in "\/alice".*set zklock.auth/, 'without them' ]);
	my $rows = shows([ "$root; SET zklock.auth = 'digest:alice:wrong'", 'true' ],
		writing => [ qr/^error: .* other credentials/, 'with others' ]);
	unlike(join('', values %$rows), qr/wrong/, 'the credentials are not shown');
	# Where there is no root yet, it has to be made: below the chroot, or another znode.
	foreach my $none ("SET zklock.servers = '$server/alice'", "SET zklock.servers = '$server/alice/a/b'", "SET zklock.root = '/alice/a/b'")
	{
		shows([ $none, 'true' ],
			root => [ qr{^note: znode "/alice/.*" does not exist yet}, 'no root yet' ],
			writing => [ qr{^error: this session may not create znodes in "/alice": no lock can be taken}, 'a root that cannot be made is an error' ]);
		shows([ "$none; SET zklock.auth = 'digest:alice:secret'", 'true' ],
			writing => [ qr{^ok: a znode was made in "/alice",}, 'with the credentials it can be made' ]);
	}
	shows([ "$root; SET zklock.auth = 'digest:alice:secret'", 'true' ],
		writing => [ qr/^ok: /, 'with these' ],
		acl => [ qr/^ok: not everybody/, 'its ACL' ],
		credentials => [ qr/^ok: .* scheme "digest"/, 'their scheme is shown' ]);
	shows([ "SET zklock.auth = 'digest:alice:secret'$_", 'true' ],
		acl => [ qr/^error: "world:anyone" may change znode ".*", which .*: sessions take no lock there.*zklock.trusted_identities/, "a root that is open all the same$_" ])
	  foreach '', "; SET zklock.root = '/admin'";
	shows([ "SET zklock.auth = 'nonsense:alice:secret'", 'true' ],
		session => [ qr/^error: .*refused the credentials/, 'a scheme that the ensemble does not know' ]);
	$rows = check("SET zklock.auth = '\@/no/such/file'", 'false');
	like($rows->{credentials}, qr/^error: could not read the file with the credentials/, 'a file that is not there when the server starts');
	my $fifo = $node->basedir . '/fifo';
	POSIX::mkfifo($fifo, 0600) or die "could not make a FIFO: $!";
	$rows = check("SET zklock.auth = '\@$fifo'", 'false');
	like($rows->{credentials}, qr/^error: .* is not a regular file/, 'a file that nobody may ever write to');
};

subtest 'zk_check() names a quota that is exceeded' => sub {
	plan skip_all => 'ZooKeeper 3.6 enforces none' if $zk->version < v3.7;
	my $full = ZooKeeper->new(config => { enforceQuota => 'true' })->start;
	my $client = $full->client;
	$client->create_path("$_") foreach '/full/inside', '/zookeeper/quota/full';
	$client->create('/zookeeper/quota/full/zookeeper_stats', 'count=2,bytes=0');
	$client->create('/zookeeper/quota/full/zookeeper_limits', 'count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=2');
	shows([ "SET zklock.servers = '" . $full->connect_string . "'; SET zklock.root = '/full'", 'true' ],
		writing => [ qr/^error: a quota of ZooKeeper for "\/full" is exceeded: .* -> Raise the quota/, 'is named' ]);
	$client->close;
};

# Whoever may change a quota may lift it, or stop all locks below the root with one.
subtest 'zk_check() names a quota of the root that everybody may change' => sub {
	my $open = ZooKeeper->new->start;
	my $client = $open->client;
	my $set = "SET zklock.servers = '" . $open->connect_string . "'; SET zklock.root = '/limited/root'";
	$client->create_path("$_") foreach '/limited/root', '/zookeeper/quota/limited/root';
	is(rows_like([ $set, 'true' ], writing => qr/^ok: /)->{quota}, undef, 'without a quota there is no row');
	$client->create('/zookeeper/quota/limited/root/zookeeper_limits', 'count=9999,bytes=-1');
	$client->create('/zookeeper/quota/limited/root/zookeeper_stats', 'count=2,bytes=0');
	$client->add_auth('digest', 'admin:secret');
	my $opens = sub ($path, $what) {
		shows([ $set, 'true' ],
			quota => [ qr{^warning: .* everybody may change what is in znode "\Q$path\E".* -> Set the ACL of "\Q$path\E"}, $what ]);
		$client->set_acl($path, [ [ 31, 'auth', '' ], [ 1, 'world', 'anyone' ] ]);
	};
	$opens->('/zookeeper/quota', 'the znode of all quotas is open, as ZooKeeper makes it');
	$opens->("/zookeeper/quota/$_", "so is $_") foreach 'limited', 'limited/root', 'limited/root/zookeeper_limits';
	# Of the limits themselves to write is all that it takes.
	$client->set_acl('/zookeeper/quota/limited/root/zookeeper_limits', [ [ 31, 'auth', '' ], [ 3, 'world', 'anyone' ] ]);
	$opens->('/zookeeper/quota/limited/root/zookeeper_limits', 'so are limits that everybody may write');
	shows([ $set, 'true' ], quota => [ qr/^ok: /, 'what is not open is well' ]);
	is(check($set, 'false')->{quota}, undef, 'only a session knows');
	$client->close;
	$open->stop;
};

subtest 'zk_check() tells that the session timeout is not granted' => sub {
	my $small = ZooKeeper->new(tick_time => 1000, max_session_timeout => 5000)->start;
	my $servers = $small->connect_string;
	names("SET zklock.servers = '$servers'; SET zklock.session_timeout = '60s'", 'session timeout',
		qr/^warning: 60000 ms are asked for, the servers grant 2000 to 5000 ms/, 'is foreseen');
	shows([ "SET zklock.servers = '$servers'; SET zklock.session_timeout = '60s'", 'true' ],
		'granted timeout' => [ qr/^warning: 60000 ms were asked for, 5000 ms granted/, 'and seen' ]);
	shows([ "SET zklock.servers = '$servers'; SET zklock.session_timeout = '1s'", 'true' ],
		'session timeout' => [ qr/^warning: 1000 ms are asked for/, 'also of a short one' ],
		'granted timeout' => [ qr/^warning: 1000 ms were asked for, 2000 ms granted/, 'that becomes longer' ]);
	shows([ "SET zklock.servers = '$server,$servers'; SET zklock.session_timeout = '1s'", 'false' ],
		'session timeout' => [ qr/^warning: .*, the servers grant 2000 to 5000 ms/, 'what all of them grant' ]);
	names("SET zklock.servers = '$server,$servers'", 'ensemble',
		qr/^error: the servers are not of one ensemble: 2 standalone/, 'two ensembles in one list');
};

subtest 'zk_check() says what servers with default settings do not tell' => sub {
	my $plain = ZooKeeper->new(config => {
			'4lw.commands.whitelist' => 'srvr', maxClientCnxns => 60 })->start;
	my $servers = $plain->connect_string;
	shows([ "SET zklock.servers = '$servers'; SET zklock.session_timeout = '4s'", 'true' ],
		"server $servers" => [ qr/^(?:ok|note): .* standalone/, 'srvr is enough to know them' ],
		connections => [ qr/^note: .* cannot be known/, 'the connections are not known' ],
		'session timeout' => [ qr/^note: .* cannot be known/, 'nor the ticks' ]);
	shows([ "SET zklock.servers = '$servers'; SET zklock.session_timeout = '$_->[0]'", 'false' ],
		'session timeout' => [ qr/^$_->[1]: .* cannot be known/, "as little as $_->[0]" ])
	  foreach [ '13300ms', 'note' ], [ '13400ms', 'ok' ];
	$plain->stop;

	my $wide = ZooKeeper->new(config => {
			'4lw.commands.whitelist' => 'srvr, conf', maxClientCnxns => 50_000_000 })->start;
	shows([ 'SET zklock.servers = \'' . $wide->connect_string . '\'', 'false' ],
		connections => [ qr/^ok: a server allows 50000000 from one address; max_connections is \d+ -> $/,
			'there are enough' ]);

	my $narrow = ZooKeeper->new(config => { maxClientCnxns => 10 })->start;
	shows([ 'SET zklock.servers = \'' . join(',', map { $_->connect_string } $zk, $wide, $narrow, $wide) . '\'', 'false' ],
		connections => [ qr/^note: a server allows 10 from one address/, 'the server that allows the fewest counts' ]);
};

subtest 'zk_check() asks servers over IPv6' => sub {
	plan skip_all => 'there is no IPv6' unless eval { slurp_file('/proc/net/if_inet6') } =~ / lo$/m;
	my $port = free_port();
	names("SET zklock.servers = '[::1]:$port'", "server [::1]:$port",
		qr/^error: \[::1\]:$port cannot be reached: Connection refused/, 'a port that refuses');
	my $server = FakeServer->answering(srvr('observer'), at => '::1');
	shows([ "SET zklock.servers = '$server'", 'false' ],
		"server $server" => [ qr/^(?:ok|note): .* is an? observer, release 3\.8/, 'one that is there' ]);
	my $relay = FakeServer->relaying_to($zk->port, at => '::1');
	my $rows = rows_like([ "SET zklock.servers = '$relay'", 'true' ],
		session => qr/^ok: this connection has a ZooKeeper session, at \Q$relay\E/);
	like($rows->{"server $relay"}, qr/^(?:ok|note): \Q$relay\E is /, 'the address has brackets there, too');
	is($rows->{'moved servers'}, undef, 'the session is at a server of the list');
};

subtest 'zk_check() tells the state of an ensemble of three as its servers die' => sub {
	my $servers = (my $three = ZooKeeper->new(servers => 3, config => { syncLimit => 10 })->start)->connect_string;
	my $set = "SET zklock.servers = '$servers'; SET zklock.session_timeout = '7s'";
	my $rows = rows_like([ $set, 'true' ],
		ensemble => qr/^ok: /, 'session timeout' => qr/^ok: /);
	like($rows->{ensemble}, qr/^ok: all 3 servers serve/, 'all three servers serve');
	is(join(' ', sort map { / is a (\w+)/ } map { $rows->{$_} } grep { /^server/ } keys %$rows),
		'follower follower leader', 'zk_check() shows one leader and two followers');
	like($rows->{'session timeout'}, qr/^ok: 7000 ms, at least four thirds of syncLimit \* tickTime, 5000 ms/,
		'zk_check() knows syncLimit and tickTime');
	shows([ "SET zklock.servers = '$servers'; SET zklock.session_timeout = '6s'", 'false' ],
		'session timeout' => [ qr/^warning: 6000 ms are less than four thirds/, 'a timeout that is too short' ]);
	my ($down) = $three->followers;
	$three->kill9($down);
	my $item = 'server ' . $three->connect_string($down);
	names($set, $item, qr/^warning: .* cannot be reached/, 'one of three is down');
	names($set, 'ensemble', qr/^warning: only 2 of 3 servers serve/, 'zk_check() says that one server more may not fail');
	$three->kill9($three->leader);
	poll_until { check($set, 'false')->{ensemble} =~ /^error: none of the 3 servers serves: no quorum/ }
	'the last one to serve no more', 60;
	names($set, 'ensemble', qr/^error: .* no quorum/, 'no quorum');
};

subtest 'zk_check() answers when the ensemble falls silent while a lock is held' => sub {
	my $one = ZooKeeper->new->start;
	my $address = $one->connect_string;
	my $session = background($node, 'zklock.servers' => $address, 'zklock.session_timeout' => '60s', holds => 'silent');
	my $loser = background($node, 'zklock.servers' => $address, 'zklock.session_timeout' => '8s', 'zklock.connect_timeout' => '1min');
	$loser->query_safe("SELECT zk_lock('lost')");
	$one->pause;
	$loser->start_query("SELECT what FROM zk_check() WHERE item = 'session'");
	my $began = time;
	$session->query_safe("SET zklock.connect_timeout = '2s'");
	my $text = $session->query_safe("SELECT item || ' ' || state || ': ' || what FROM zk_check()");
	like($text, qr/^server \Q$address\E error: /m, 'the server is named');
	like($text, qr/^session error: the ensemble has not answered/m, 'the session, too');
	like($loser->wait_result, qr/^lock "lost" was lost: /, 'the row of the session tells of a loss during zk_check()');
	in_time(time - $began, 40, 'zk_check() opens no other session for that');
	$one->resume;
	assert_held($session, 'silent', 'the lock is still held');
	like($session->query_safe("SELECT state FROM zk_check() WHERE item = 'writing'"), qr/^ok/, 'zk_check() finds the root writable again');
	$one->stop;
	assert_soon { $session->query_safe('SELECT state FROM zk_session') eq 'suspended' } 'the server is gone';
	like(check('', $_, $session)->{session}, qr/^warning: this connection has a ZooKeeper session that is not connected/,
		"the session stays, zk_check($_)")
	  foreach 'false', 'true';
};

# Its session lives on, and so would what it makes.
subtest 'the znode that zk_check() makes is removed also if the reply to its create is late' => sub {
	my $proxy = Proxy->new($server);
	my $session = background($node, 'zklock.servers' => $proxy->address, 'zklock.session_timeout' => '60s', holds => 'late');
	my $client = $zk->client;
	my $made = sub { scalar grep { /release/ } $client->children(lock_path('') =~ s{/$}{}r) };
	$session->query_safe("SET zklock.connect_timeout = '3s'");
	$proxy->trap(15, 1, 'replies');    # create2
	my $rows = check('', 'true', $session);
	ok($proxy->is_sprung, 'it has asked');
	unlike($rows->{writing} // '', qr/^ok/, 'the check has heard nothing of writes');
	$proxy->heal;
	assert_becomes { $made->() } 0, 'it is gone';
	assert_held($session, 'late', 'the session still holds its lock after the late answer');
	$session->quit;
};

subtest 'zk_check() names an ensemble without digest authentication' => sub {
	plan skip_all => 'ZooKeeper 3.6 always has it' if $zk->version < v3.7;
	my $plain = ZooKeeper->new(java_options =>
		  ['-Dzookeeper.DigestAuthenticationProvider.enabled=false'])->start;
	my $address = $plain->connect_string;
	shows([ "SET zklock.servers = '$address'; SET zklock.root = '/'", 'true' ],
		digest => [ qr/^note: the ensemble refuses digest/, 'is named' ],
		writing => [ qr/^ok/, 'and serves' ]);
};

# Without libfaketime there is but one clock.
subtest 'zk_check() names clocks that differ, and leases that are overdue by them' => sub {
	plan skip_all => 'no libfaketime' unless ZooKeeper::can_set_clocks();
	my $late = cluster('late', $zk, environment => ZooKeeper::clock('-2h'));
	shows([ '', 'true', cluster('soon', $zk, environment => ZooKeeper::clock('+30s')) ],
		clock => [ qr/^note: the ensemble's clock is behind ours by (?:2\d|30)\d{3} ms or more -> Set .* slot of zk_run_once\(\)/, 'by little' ]);
	shows([ '', 'true', $late ],
		clock => [ qr/^warning: the ensemble's clock is ahead of ours by (?:2 hours|119 minutes) or more/, 'are named' ]);
	$node->safe_psql('postgres', "SELECT zk_try_lease('leased/100%', 'app', '1 hour'), zk_try_lease('long', 'app', '1 day')");
	shows([ '', 'true', cluster('early', $zk, environment => ZooKeeper::clock('+2h')) ],
		leases => [ qr/^warning: leases [^:]*: "leased\/100%" of "app" -> See .*zk_evict/, 'a lease whose term is over' ]);
};

subtest 'zk_check() says that the library is of another version than the objects of the database' => sub {
	foreach my $version ('0.1', '99.1')
	{
		my $rows = check("BEGIN; UPDATE pg_extension SET extversion = '$version' WHERE extname = 'zklock'", 'false');
		like($rows->{extension}, qr/^warning: version $version in this database, library of version \d\S* -> If the library is the newer one, ALTER EXTENSION/, "version $version");
	}
};

subtest 'zk_check() says that pg_restore has left the trigger of zk_fences in another state' => sub {
	is(check('', 'false')->{triggers}, undef, 'there is no such row when the trigger is as it was made');
	my $rows = check('BEGIN; ALTER TABLE zk_fences DISABLE TRIGGER ALL; ALTER TABLE zk_fences ENABLE TRIGGER ALL', 'false');
	like($rows->{triggers}, qr/^warning: trigger "applied" of zk_fences/, 'zk_check() warns of it');
	my ($remedy) = $rows->{triggers} =~ /(ALTER TABLE [^.]+\.zk_fences ENABLE REPLICA TRIGGER applied)\./;
	ok($remedy, 'the remedy is a command');
	is(check("BEGIN; ALTER TABLE zk_fences ENABLE TRIGGER ALL; $remedy", 'false')->{triggers}, undef, 'the remedy helps');
};

# What a session has put into the schemas that it can write to is not what zk_check() calls.
subtest 'zk_check() reads the catalogs of PostgreSQL, whatever stands in search_path' => sub {
	my $rows = check(q{CREATE TEMP TABLE pg_settings (name text, setting text, source text, sourcefile text, sourceline int);
		CREATE FUNCTION pg_temp.equals(name, text) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION $$called$$; END';
		CREATE OPERATOR pg_temp.= (LEFTARG = name, RIGHTARG = text, FUNCTION = pg_temp.equals);
		SET search_path = pg_temp, public, pg_catalog}, 'false');
	like($rows->{'zklock.servers'}, qr/^ok: \Q$server\E, source: /, 'settings are those of pg_catalog');
	like($rows->{extension}, qr/^ok: version/, 'operators are those of pg_catalog');
};

subtest "zk_check() says what is wrong with the session's program" => sub {
	plan skip_all => 'this PostgreSQL bears one installation only' if !Builds->can_be;
	my $build = Builds->copy;
	my $program = $build->library_directory . '/zklock-session';
	my $odd = cluster('odd', $zk, $build->settings);
	my $cannot = '^error: ".*zklock-session" could not be started: ';
	foreach my $case (
		[ 'missing', undef, '', qr/${cannot}No such file or directory .*-> Install zklock again/ ],
		[ 'not executable', 0644, '', qr/${cannot}Permission denied .*-> Make/ ],
		[ 'nothing that the kernel knows', 0755, 'nothing', qr/${cannot}Exec format error/ ],
		[ 'something else', 0755, "#!/bin/sh\nexit 0\n", qr/^error: .*ended without an answer/ ],
		[ 'one without its library', 0755, "#!/bin/sh\nexit 127\n", qr/^error: .*library .* missing/ ],
		[ 'one that hangs', 0755, "#!/bin/sh\nexec sleep 60 >&3\n", qr/^error: .*not answered in time/ ],
		[ 'one that says nonsense', 0755, "#!/bin/sh\nhead -c 100000 /dev/urandom >&3\n", qr/^error: .*another version/ ])
	{
		my ($what, $mode, $text, $pattern) = @$case;
		unlink $program;
		append_to_file($program, $text) if $mode;
		chmod $mode, $program if $mode;
		my $rows = shows([ '', $what eq 'not executable' ? 'true' : 'false', $odd ], program => [ $pattern, $what ]);
		in_time($rows->{took}, 30, 'zk_check() answers in time');
		like($rows->{session}, qr/^error: not tried, because its program cannot be run -> See the row "program"/,
			'the session is not tried without a program')
		  if $what eq 'not executable';
	}
};

subtest 'zk_check() names settings in postgresql.conf that were refused' => sub {
	my $broken = cluster('paris', $zk, 'zklock.max_locks' => 10);
	$broken->append_conf('postgresql.conf', <<'CONF');
zklock.servers = 'zk1:2181,,zk2'
zklock.session_timeout = 'soon'
zklock.sesion_timeout = '10s'
ZKLOCK.Keep = 'for ever'
zklock.auth = 'no-colon-but-secret'
CONF
	$broken->reload;
	my $rows = rows_like([ '', 'false', $broken ], 'zklock.servers' => qr/^error/);
	like($rows->{'zklock.servers'}, qr/^error: what stands in .*postgresql.conf line \d+ is refused: .*Server 2 of the list is empty\. -> The server's log says why\. .*after a restart/m,
		'a bad list, and why');
	like($rows->{'zklock.session_timeout'}, qr/^error: what stands in .* is refused/m, 'a bad value');
	like($rows->{'zklock.sesion_timeout'}, qr/^error: /m, 'a setting that does not exist is named');
	like($rows->{'ZKLOCK.Keep'}, qr/^error: /m, 'a name in capitals');
	like($rows->{'zklock.auth'}, qr/^error: /m, 'bad credentials');
	unlike(join('', values %$rows), qr/but-secret/, 'the credentials are not shown');
	$broken->append_conf('postgresql.conf', "what is this?\n");
	$broken->reload;
	shows([ '', 'false', $broken ],
		'postgresql.conf' => [ qr/^error: what stands in .* line \d+ is refused: syntax error/, 'a line that cannot be read' ]);
};

subtest 'zk_check() says whether a lease worker looks after the leases' => sub {
	my $plain = cluster('rome', $zk);
	my $client = $zk->client;
	$client->create_path(lock_path('') . '.leases');
	$client->delete(lock_path('') . ".leases/$_") foreach $client->children(lock_path('') . '.leases');
	is(check('', 'true', $plain)->{leases}, undef, 'without leases nothing is said of them');
	$plain->safe_psql('postgres', "SELECT zk_try_lease('leased', 'app', '1 day')");
	like(check('', 'true', $plain)->{leases}, qr/^note: there are leases, and no lease worker .* -> Switch zklock.lease_worker on/,
		'the lease worker is switched off');
	$plain->append_conf('postgresql.conf', 'zklock.lease_worker = on');
	$plain->reload;
	assert_soon { check('', 'true', $plain)->{leases} =~ /^ok: no lease that was looked at is overdue/ } 'zk_check() says that a lease worker looks after the leases';
	my $other = lock_path('') =~ s{/$}{-other}r;
	my $sql = "SET zklock.root = '$other'";
	$plain->safe_psql('postgres', "$sql; SELECT zk_try_lease('leased', 'app', '1 day')");
	like(check($sql, 'true', $plain)->{leases}, qr/^warning: .* no worker of this cluster looks below "\Q$other\E" .* -> .*zklock.lease_roots/,
		'zk_check() warns of leases below a root where the worker does not look');
	$plain->append_conf('postgresql.conf', "zklock.lease_roots = '$other'");
	$plain->reload;
	assert_soon { check($sql, 'true', $plain)->{leases} =~ /^ok: / } 'the warning is gone when the root is in zklock.lease_roots';
};

subtest "only monitors may call zk_check(), which keeps the caller's role" => sub {
	$node->safe_psql('postgres', 'CREATE ROLE watch IN ROLE pg_monitor; CREATE ROLE nobody');
	my $session = background($node);
	assert_query($session, 'SET ROLE nobody; SELECT count(*) FROM zk_check(false)', '42501', 'an ordinary role may not call zk_check()');
	$session->query_safe('SET ROLE watch');
	like($session->query_safe("SELECT state FROM zk_check(false) WHERE item = 'zklock.servers'"),
		qr/^ok/, 'a member of pg_monitor may call zk_check()');
	$session->query_safe('CREATE TEMP TABLE t AS SELECT current_user');
	is($session->query_safe('SELECT * FROM t'), 'watch', "zk_check() leaves the caller's role");
};

subtest 'zk_check() works on a standby, and in a transaction with a lock' => sub {
	my $primary = cluster('primary', $zk, init => [ allows_streaming => 1 ]);
	my $standby = standby_of($primary);
	shows([ '', 'true', $standby ], writing => [ qr/^ok/, 'on a standby' ]);
	my $session = background($node, holds => 'held');
	$session->query_safe("BEGIN; SELECT zk_xact_lock('held too'); SELECT count(*) FROM zk_check()");
	is($session->query_safe('SELECT count(*) FROM zk_session_locks'), 2, 'locks stay as they are');
	$session->query_safe("COMMIT; SELECT zk_unlock_all()");
};

# Asking repairs nothing, and is not canceled for what it is to tell.
subtest 'zk_check() tells of a lost lock, repairs nothing, and is not canceled again' => sub {
	my $holder = background($node, 'zklock.session_timeout' => '4s');
	my $check = "SELECT string_agg(state || ': ' || what || ' -> ' || coalesce(remedy, ''), '')
		FROM zk_check(%s) WHERE item = 'session'";
	$holder->query_safe("SELECT zk_lock('checked')");
	like($holder->query(sprintf $check, 'true'), qr/^ok: connected/, 'connected');
	my $cancelled = 0;
	my $sleeper = background($node, 'zklock.session_timeout' => '4s',
		first => "BEGIN; SELECT zk_lock('sleeper'); SELECT count(*) FROM zk_check(false)");
	$sleeper->start_query('SELECT pg_sleep(60)');
	$zk->pause;
	foreach my $with_session ('false', 'true')
	{
		poll_until
		{
			my $row = $holder->query(sprintf $check, $with_session);
			# A loss just as the statement begins or ends cancels it, once for each loss.
			$cancelled++ if $holder->sqlstate eq '40001';
			is($holder->sqlstate, '00000', 'no other error') if $holder->sqlstate !~ /^(?:00000|40001)$/;
			($row // '') =~ /^error: lock "checked" was lost: .*No contact with ZooKeeper.* -> ./;
		}
		"zk_check($with_session) to tell of the loss", 30;
		is($holder->sqlstate, '00000', "zk_check($with_session) tells of the loss, and does not fail");
	}
	cmp_ok($cancelled, '<=', 1, 'zk_check() is canceled for the same loss once at most');
	assert_ends($sleeper, '40001', 'a statement in the transaction of a lost lock is canceled');
	$sleeper->quit;
	$zk->resume;
	assert_no_nodes($zk, lock_path('checked'), 'the ensemble is back');
	like($holder->query(sprintf $check, 'true'), qr/^error: lock "checked" was lost/, 'zk_check() still tells of the loss when ZooKeeper is back');
	is($holder->query_safe("SELECT state FROM zk_session_locks"), 'lost', 'zk_check() leaves the lost lock as it is');
	$holder->query_safe('SELECT zk_unlock_all()');
	like($holder->query(sprintf $check, 'true'), qr/^ok: connected/, 'zk_check() is ok when the lost lock is released');
};

# Others have seen the rest: t/274 of certificates, t/246 of releases, and so on.
subtest 'the worst state of each row is the one that the page tells' => sub {
	my ($table) = slurp_file("$docs/monitoring.md") =~ /^\| item \|.*?\n(.*?)\n\n/ms;
	my %told;
	foreach my $line (split /\n/, $table)
	{
		my ($items, $state) = $line =~ /^\| (`.*?) \| (\w+) \|/ or next;
		$told{ s/^zklock\.\.\..*/zklock.../r } = $state foreach $items =~ /`([^`]+)`/g;
	}
	is(join(', ', grep { !$told{$_} } sort keys %worst), '', 'each row is in the table');
	my %is_worse_elsewhere = map { $_ => 1 } qw(chroot extension jute.maxbuffer root), 'lease worker', Builds->can_be ? () : 'program', grep { !$worst{$_} } keys %told;
	is(join(', ', grep { $told{$_} && $level{ $worst{$_} } > $level{ $told{$_} } } sort keys %worst), '', 'no row was worse');
	is(join(', ', grep { $told{$_} && !$is_worse_elsewhere{$_} && $worst{$_} ne $told{$_} } sort keys %worst), '', 'the others were as bad as that');
};

done_testing();
