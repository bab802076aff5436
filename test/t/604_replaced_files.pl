
# Files of another version that are installed under a running server, as make install does, cost
# open sessions nothing; new sessions are refused with the remedy until the restart. Tested with
# an installation of its own and a build of a next version.

use Builds;
use Cwd qw(abs_path);
use File::Basename qw(dirname);
use ZkLockTest;

plan skip_all => 'this PostgreSQL bears one installation only' if !Builds->can_be;

my $zk = ZooKeeper->new->start;
my @files = qw(zklock.so zklock-session zklock-session-tls);
# Who looks at the version of the protocol.
my $tree = abs_path(dirname(__FILE__) . '/../..');
my @versioned = grep { slurp_file("$tree/$_") =~ /\bPROTOCOL_VERSION\b/ } map { s{^\Q$tree\E/}{}r } glob "'$tree'/src/*/*.c";
# The next version: another protocol, and a function that its script declares.
my $next = '9.9';
my $raise = sub { s{\bPROTOCOL_VERSION\b}{($& + 1)}g };
my $newer = Builds->of_tree(
	edit => {
		(map { $_ => $raise } @versioned),
		'src/functions/zklock.c' => sub {
			$_ .= "\nPG_FUNCTION_INFO_V1(zk_novelty);\n\nDatum\nzk_novelty(PG_FUNCTION_ARGS)\n{\n"
			  . "\tPG_RETURN_INT32(42);\n}\n";
		},
		'src/functions/check_settings.c' => sub { s/(#define ZKLOCK_VERSION) ".*"/$1 "$next"/ },
		'zklock.control' => sub { s/default_version = '.*'/default_version = '$next'/ }
	});
my ($now) = slurp_file(Builds->copy->script_directory . '/zklock.control') =~ /default_version = '(.*)'/;
my $script = "CREATE FUNCTION zk_novelty() RETURNS integer AS 'MODULE_PATHNAME' LANGUAGE C;\n";
my $old = Builds->copy;

# A cluster with an installation of its own: the old files.
sub old_cluster ($name, %setting)
{
	my $build = Builds->copy;
	return (cluster($name, $zk, $build->settings, %setting), $build);
}

# What make install does.
sub install_newer ($build)
{
	$build->replace_by($newer, @files);
	$build->edit('zklock.control', sub { s/default_version = '.*'/default_version = '$next'/ });
	$build->edit("zklock--$now--$next.sql", sub { $_ = $script });
	return;
}

sub row ($session, $item)
{
	return $session->query_safe(
		"SELECT concat_ws(' ', state, what) FROM zk_check(false) WHERE item = '$item' LIMIT 1");
}

subtest 'open sessions go on when a newer version is installed, new ones wait for the restart' => sub {
	my ($node, $build) = old_cluster('berlin');
	my ($has_session, $has_used) = map { background($node) } 1, 2;
	$has_session->query_safe("SELECT zk_lock('here')");
	$has_used->query_safe("SELECT zk_unlock_all()");
	install_newer($build);

	assert_held($has_session, 'here', 'a session that is there goes on');
	like($has_session->query_safe("SELECT zk_lock('there')"), qr/^\d+$/, 'the session takes further locks');
	foreach my $late ($has_used, background($node))
	{
		assert_query($late, "SELECT zk_lock('late')", '08006', 'the old library, of the server, gets no new session');
		like($late->error, qr/is of another version of zklock.*restart the server/, 'the error says that the server must be restarted');
		like(row($late, 'program'), qr/^error .*another version/, 'zk_check() names another version');
		$late->query('ALTER EXTENSION zklock UPDATE');
		is($late->sqlstate, '42883', 'the old library has not what the new script declares');
		like($late->error, qr/could not find function "zk_novelty" in file ".*zklock/, 'the error names the missing function');
		is($late->query_safe("SELECT extversion FROM pg_extension WHERE extname = 'zklock'"), $now, 'the extension has the old version');
		$late->quit;
	}
	is($has_session->query_safe("SELECT zk_is_held('here') AND zk_unlock('here')"), 't', 'the open session releases its lock');
	$has_session->quit;

	$node->restart;
	my $new = background($node);
	like($new->query_safe("SELECT zk_lock('new')"), qr/^\d+$/, 'after the restart all works, with the old script');
	like(row($new, 'extension'), qr/^warning version \Q$now\E in this database, library of version \Q$next\E/,
		'zk_check() knows that the script is old');
	$new->query_safe('ALTER EXTENSION zklock UPDATE');
	is($new->query_safe('SELECT zk_novelty()'), 42, 'the new script works after ALTER EXTENSION');
	like(row($new, 'extension'), qr/^ok version \Q$next\E/, 'zk_check() has nothing to say any more');
	$new->quit;
	$node->stop;
};

# Half of an installation, or of going back.
subtest 'a program of another version than the library is refused' => sub {
	my ($node, $build) = old_cluster('rome');
	$build->replace_by($newer, 'zklock.so');
	$node->restart;
	my $session = background($node);
	assert_query($session, "SELECT zk_lock('half')", '08006', 'a new session is refused');
	like($session->error, qr/is of another version of zklock/, 'the error names another version');
	$build->replace_by($newer, 'zklock-session');
	like($session->query_safe("SELECT zk_lock('half')"), qr/^\d+$/, 'with the whole of it the same backend works');
	$build->replace_by($old, @files);
	assert_held($session, 'half', 'the way back: what is there goes on');
	$session->quit;
	$node->restart;
	my $back = background($node);
	like($back->query_safe("SELECT zk_lock('back')"), qr/^\d+$/, 'new sessions work with the former files');
	$back->quit;
	$node->stop;
};

done_testing();
