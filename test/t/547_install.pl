
# docs/install.md leads to clusters that share locks: the zoo.cfg of its three servers and the lines
# of its postgresql.conf serve, zk_check() has nothing against them, and each command to be typed is
# typed by make check-packages on a bare machine (test/lib/use_package.sh). SQL is run by t/542.

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use Pages;
use ZkLockTest;

my $tree = abs_path(dirname(__FILE__) . '/../..');
my @blocks = Pages::blocks(Pages::page('docs/install.md', slurp_file("$tree/docs/install.md")));

# The one block of a kind.
sub block ($kind)
{
	my @found = grep { $_->{kind} eq $kind } @blocks;
	is(scalar @found, 1, "the page has one block of the kind $kind");
	return $found[0]{code};
}

subtest 'zoo.cfg and postgresql.conf of the page serve, and zk_check() has nothing against them' => sub {
	my @lines = split /\n/, block('zoo');
	is(join("\n", grep { !/^[\w.]+=[^\s#]+$/ } @lines), '', 'zoo.cfg has settings, and no comments behind them');
	my %config = map { /^(.*?)=(.*)/ } @lines;
	my %member = map { $_ => delete $config{$_} } grep { /^server\./ } keys %config;
	is_deeply(\%member, { map { ("server.$_" => "zk$_:2888:3888") } 1 .. 3 }, 'zoo.cfg has three members');
	is(delete $config{dataDir}, '/var/lib/zookeeper', 'zoo.cfg keeps its data on a disk');
	is(delete $config{clientPort}, 2181, 'zoo.cfg has the port of zklock.servers');
	my $zk = ZooKeeper->new(servers => 3, max_session_timeout => undef, config => \%config)->start;

	my %setting = map { /^([\w.]+) = '(.*?)' +# \S/ or die "cannot read: $_"; ($1, $2) } split /\n/, block('conf');
	is(delete $setting{'zklock.servers'}, 'zk1:2181,zk2:2181,zk3:2181', 'postgresql.conf names these servers');
	my $node = cluster('berlin', $zk, 'zklock.session_timeout' => undef, %setting);
	my @row = grep { !$zk->is_volatile || !/^data\|warning\|servers keep / } split /\n/,
	  background($node)->query_safe(q{SELECT concat_ws('|', item, state, what) FROM zk_check()});
	cmp_ok(scalar @row, '>', 10, 'zk_check() has rows');
	is(join("\n", grep { /^[^|]*\|(?:error|warning)\|/ } @row), '', 'zk_check() finds no fault');
	is(join("\n", grep { /^(?:ensemble|connections|session timeout|granted timeout|jute\.maxbuffer|containers)\|note/ } @row), '',
		'zk_check() has no note on the servers');
};

subtest 'each command of the page is typed on a bare machine' => sub {
	my $types = slurp_file("$tree/test/lib/use_package.sh");
	my @shell = grep { $_->{language} eq 'sh' && $_->{kind} ne 'not run' } @blocks;
	cmp_ok(scalar @shell, '>', 8, 'the page has commands');
	is(join(' ', grep { $_->{kind} ne 'sh' } @shell), '', 'each block of commands is marked');
	my %kind = map { $_->{value} => 1 } @shell;
	like($types, qr/^\ttyped \Q$_\E\b/m, "use_package.sh types the commands of the kind $_") foreach sort keys %kind;
};

done_testing();
