
# Text that other clients have written into a queue, and names in other encodings, are shown
# escaped, so that they cannot be taken for anything else, and no message is lost for them.
# Tested with hostile znodes on a real server, databases of four encodings, and clients of six.

use utf8;

use Encode qw(encode_utf8 decode_utf8);
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk,
	log_lock_waits => 'on',
	deadlock_timeout => '10ms',
	max_stack_depth => '100kB');
my $stranger = $zk->client;

# Every database with its encoding.
my %encoding = (
	utf8 => 'UTF8', latin1 => 'LATIN1', euc_jp => 'EUC_JP', sql_ascii => 'SQL_ASCII');
$node->safe_psql('postgres',
	"CREATE DATABASE $_ TEMPLATE template0 ENCODING '$encoding{$_}' LOCALE 'C'")
  foreach sort keys %encoding;
$node->safe_psql($_, 'CREATE EXTENSION zklock') foreach sort keys %encoding;

# What nobody may see as it is: controls, C1, bidi, what is no character. With quotes
# in between that end nothing.
my $hostile = "\e[2Ja\r\n\x{9b}31m\x{202e}txt\x{2066}\x{200b}\" of user \"root\\ \x{feff}";
my $bytes = "\xff\xfe\x80\xc3(";
my $forbidden = qr/[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\x8b-\x8f\xa8-\xae]|\xe2\x81[\xa0-\xaf]|\xef\xbb\xbf|\xff|\xfe/;
my $letters = "Zoë 日本 \x{1f600}";

# Everything that a stranger can write into one queue, in front.
sub write_hostile ($name)
{
	my $path = lock_path($name);
	my $json = sub ($text) {
		$text =~ s/(["\\])/\\$1/g;
		$text =~ s/([\x00-\x1f])/sprintf '\\u%04x', ord $1/ge;
		return encode_utf8(qq({"client":"zklock","user":"$text","host":"$text",)
			. qq("database":"$text","cluster":"$text","pid":7,"reason":"$text"}));
	};
	$stranger->create_path($path);
	# Kazoo's, for who asks one of Curator's overwrites what it says.
	$stranger->contend("$path/6ba7b8109dad41d180b400c04fd430c8__lock__", $_)
	  foreach encode_utf8($hostile), $bytes, encode_utf8($letters), $json->($letters),
	  $json->($hostile), "{\"client\":\"zklock\",\"a\":" . '[' x 3500,
	  '{"client":"zklock","x":' . '{"x":' x 600 . '1' . '}' x 601, 'x' x 5000, 'Z', '{"client":"zklock","user":"\u65e5"}';
	$stranger->contend("$path/" . encode_utf8("\x{e9}\x{65e5}\"\\-lock-"), $bytes);
	return;
}

write_hostile('hostile');
$stranger->create_path(lock_path(encode_utf8("odd\x{202e}name")));
$stranger->create(lock_path(encode_utf8("odd\x{202e}name/x-lock-0000000001")), '', ephemeral => 1);
foreach my $database (sort keys %encoding)
{
	foreach my $client ('same', 'UTF8', 'LATIN1', 'EUC_JP', 'SQL_ASCII', 'WIN1251')
	{
		subtest "hostile text in a queue is shown escaped in database $database with client encoding $client" => sub {
			my $session = background($node, database => $database);
			my $set = $client eq 'same' ? 'SELECT 1' :
			  "SET client_encoding = '$client'";
			$session->query($set);
			plan(skip_all => 'no such conversion') if $session->sqlstate ne '00000';

			my $queue = assert_query($session, "SELECT * FROM zk_lock_queue('hostile')", '00000', 'the queue is shown');
			unlike($queue, $forbidden, 'the queue has no character that hides text');
			like($queue, qr/<U\+001B>\[2Ja/, 'control characters are shown as escapes');
			like($queue, qr/<U\+202E>txt/, 'characters that turn text round are shown as escapes');
			like($queue, qr/\|Z(?:\||$)/m, 'a single letter is shown as it is');
			like($queue, qr/<FF><FE><80><C3>\(/, 'bytes that are no characters are shown as escapes');
			like($queue, qr/<U\+65E5>/, 'characters that the encoding lacks are shown as escapes')
			  if $database eq 'latin1' || $client eq 'LATIN1';
			like(decode_utf8($queue), qr/日本/, 'characters of the encoding are shown as they are')
			  if $database ne 'latin1' && $client eq 'UTF8';
			my $locks = assert_query($session, 'SELECT zk_escape(name) FROM zk_all_locks()', '00000', 'zk_all_locks() shows the names of locks');
			unlike($locks, $forbidden, 'the names have no character that hides text');
			like($locks, qr/^odd<U\+202E>name$/m, 'a name with such a character is shown with an escape');
			is($session->query_safe("SELECT sum(l.holder_count) - count(*)
					FROM zk_all_locks('hostile') l, zk_lock_queue(l.name) q WHERE q.state = 'held'"),
				0, 'names of zk_all_locks() can be given to zk_lock_queue()');

			# A wait that is logged names the first of them, and goes on.
			$session->query_safe("SET client_min_messages = log");
			assert_query($session, "SELECT zk_lock('hostile', '300ms')", '55P03', 'a wait ends as it should');
			unlike($session->error, $forbidden, 'the message has no text of a stranger');
			my $offset = -s $node->logfile;
			my $log;
			$session->start_query("SELECT zk_lock('hostile')");
			poll_until
			{
				($log = slurp_file($node->logfile, $offset)) =~ /still waiting for ExclusiveLock on ZooKeeper lock "hostile".*\n.*<U\+FEFF>/;
			}
			'the log to name the first of them', 60;
			$session->cancel;
			$session->wait_result;
			like($log, qr/still waiting for ExclusiveLock on ZooKeeper lock "hostile"/, 'the wait is logged');
			unlike($log, $forbidden, 'the log has no character that hides text');
			like($log, qr/\\" of user \\"root\\\\ <U\+FEFF>"\)/, 'quotes in the log are escaped');
			unlike($log, qr/2202[0-9]|has no equivalent|invalid byte/, 'the log has no other error');

			assert_query($session, "SELECT zk_request_release('hostile')", '00000', 'a request to release is sent');
			unlike($session->error, $forbidden, 'the message has no text of a stranger');
		};
	}
}

# Roles and databases have the bytes of the encoding in which they were made.
subtest 'a role name in another encoding is shown in the queue' => sub {
	$node->safe_psql('latin1', "SELECT set_config('client_encoding', 'LATIN1', false);
		CREATE ROLE \"J\xf6rg\" LOGIN SUPERUSER");
	foreach my $database (sort keys %encoding)
	{
		my $session = background($node, database => $database, user => "J\xf6rg");
		my $takes = "SELECT zk_lock('own'), zk_run_once('own', '$database')";
		assert_query($session, $takes, '00000', "a lock in $database");
		my $shown = assert_query($session, "SELECT usename FROM zk_lock_queue('own')", '00000', 'zk_lock_queue() shows the holder');
		like($shown, qr/^J(?:\xf6|\xc3\xb6|<F6>|<U\+00F6>)rg$/, 'the name of the role is shown, escaped where needed');
		assert_leave_nothing($zk, lock_path('own'), $session);
	}
};

# The root is one for all databases, in the bytes of postgresql.conf.
subtest 'a zklock.root in another encoding is the same in each database' => sub {
	my $root = encode_utf8("/w\x{f6}rter/\x{65e5}");
	$node->append_conf('postgresql.conf', "zklock.root = '$root'");
	$node->reload;
	foreach my $database (sort keys %encoding)
	{
		my $session = background($node, database => $database, holds => 'root');
		like($session->query('SELECT node FROM zk_session_locks'),
			$database eq 'latin1' ? qr{^/w\xf6rter/<U\+65E5>/root/} : qr{^/w.+rter/.+/root/},
			"where a lock is, in $database");
	}
	$node->append_conf('postgresql.conf', "zklock.root = '" . lock_path('') =~ s{/$}{}r . "'");
	$node->reload;
};

# The reason of a request arrives at who is asked.
subtest 'the reason of a request to release is shown escaped' => sub {
	foreach my $database (sort keys %encoding)
	{
		my $lock = "reason_$database";
		my $holder = background($node, database => $database, holds => $lock);
		my ($mine) = queue_nodes($zk, lock_path($lock));
		my $offset = -s $node->logfile;
		$stranger->create_path(lock_path('.release'));
		$stranger->create(lock_path(".release/$mine.release"),
			encode_utf8('x' x 200 . "日" x 500 . $hostile));
		is($holder->query_safe("SELECT zk_release_requested('$lock')"), 't', "$database: the holder is asked to release");
		like($holder->error, qr/release of lock "$lock" was requested/, 'the holder is told');
		unlike($holder->error, $forbidden, 'the message has no character that hides text');
		unlike(slurp_file($node->logfile, $offset), $forbidden, 'the log has no character that hides text');
	}
};

done_testing();
