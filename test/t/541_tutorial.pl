
# What docs/tutorial.md tells its readers to type shows what the page shows, on clusters and by
# commands as the page has them. Tested by typing each line of each block on the terminal that the
# comment above the block names, in order, and by comparing what the terminals show.

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use Pages;
use ZkLockTest;

plan skip_all => 'not to be had: a pseudo terminal, or IO::Pty for Perl' if !eval { require IO::Pty; IO::Pty->new };
require Terminal;

my $top = abs_path(dirname(__FILE__) . '/../..');
my ($page) = grep { $_->{name} eq 'docs/tutorial.md' } Pages::all();
my @blocks = Pages::blocks($page);

# As "make demo" has them. The ensemble has written something before: so no token has only one
# digit, which is compared as it is, nor is one that of the page.
my $zk = ZooKeeper->new(tick_time => 2000)->start;
my %node = map { $_ => cluster($_, $zk, extension => undef, listen_addresses => '127.0.0.1',
		map { ("zklock.$_" => undef) } qw(lease_worker root session_timeout)) } qw(berlin paris);
my $client = $zk->client;
$client->create_path('/before');
$client->set('/before', '') foreach 1 .. 400;
$client->close;

# The blocks with that comment.
sub blocks_of ($kind, $value)
{
	return grep { $_->{kind} eq $kind && $_->{value} =~ /^$value(?:,|$)/ } @blocks;
}

# What a page or a run shows, without what differs from run to run. Tokens become #1, #2 and so on,
# in the order in which they are shown first, so two that are equal stay equal.
my %number = (page => {}, run => {});

sub normal ($where, $text)
{
	my $known = $number{$where};
	$text =~ s/^( +\d+ \| \w+ +\|) \S+ \d+ +\| (berlin|paris)\/postgres@\S+ +\|/$1 USER PID | $2\/postgres\@HOST |/mg;
	$text =~ s/\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?[+-]\d\d(?::\d\d)?/TIME/g;
	# Said by PostgreSQL 19 and later.
	$text =~ s/^DETAIL:  Signal sent by PID .*\n//mg;
	# An SQLSTATE is no token.
	$text =~ s/(?<!:SQLSTATE\n)\b(\d{2,})\b/'#' . ($known->{$1} ||= 1 + keys %$known)/ge;
	# The width of a column is that of its longest value.
	$text =~ s/-{3,}/---/g;
	$text =~ s/ +/ /g;
	$text =~ s/ $//mg;
	return $text =~ s/\n+\z/\n/r;
}

# A line of the page with the tokens of this run.
sub typed ($line)
{
	my %of_run = reverse %{ $number{run} };
	my $known = $number{page};
	return $line =~ s/\b(\d{2,})\b/exists $known->{$1} ? $of_run{ $known->{$1} } : $1/ger;
}

# Those whose last line waits for a lock.
my %waits;

# Types the lines of a block, and compares what the terminal shows, prompts and lines included. If
# a block waits for a lock, the answer to its last line stands at the beginning of the next block
# of that terminal.
sub play ($terminal, $block)
{
	my ($lock) = $block->{value} =~ /, waits for (\S+)$/;
	my ($answer, @lines) = split /^(?=(?:berlin|paris)[^\s#]+# )/m, $block->{code} =~ s/\A(?=berlin|paris)/\n/r;
	my $where = "$page->{name}:$block->{line}";
	my ($shown, $told) = ('', '');
	# At once, so that a token is known when the next line is typed.
	my $show = sub ($run, $text) {
		$told .= normal(page => $text);
		$shown .= normal(run => $run);
	};
	is($answer ne "\n", delete $waits{$terminal} // '', "$where begins with an answer if its terminal waits");
	$show->($terminal->finish, $answer) if $answer ne "\n";
	while (defined(my $line = shift @lines))
	{
		my ($typed) = map { typed($_) } $line =~ /# (.*)/;
		my $prompt = $terminal->prompt;
		my $screen = '';
		if ($typed eq '\q')
		{
			is($terminal->quit, 0, "$where: psql ends");
			assert_becomes { scalar $zk->ephemerals('/zklock') } 0, "$where: its locks are released";
		}
		elsif ($lock && !@lines)
		{
			# Behind one holder. A node that was released a moment ago may still be there.
			wait_for_queue($zk, "/zklock/$lock", 1);
			$terminal->start($typed);
			wait_for_queue($zk, "/zklock/$lock", 2);
			ok(!$terminal->shows_more, "$where: the last line waits");
			$waits{$terminal} = 1;
		}
		else
		{
			$screen = $terminal->type($typed);
		}
		$show->("$prompt$typed\n$screen", $line);
	}
	is($shown, $told, "$where has what the terminal shows");
	return;
}

# Types the blocks, each on its terminal.
sub play_all ($terminal, @of_them)
{
	foreach my $block (@of_them)
	{
		my ($name) = $block->{value} =~ /(\w+)(?:,|$)/;
		play($terminal->{$name}, $block);
	}
	return;
}

# The command of the page that starts psql there, in a shell that knows what else is given.
sub terminal ($value, $more = '')
{
	my ($block, @others) = blocks_of(shell => $value);
	die "the page has not one command for $value" if !$block || @others;
	my $command = $block->{code} =~ s/\n\z//r;
	return Terminal->new('bash', '-c', "cd '$top'; $more\n$command \"\$\@\"", 'bash');
}

# Here Docker Compose leads to the clusters of the test, whose ports the shell is told.
subtest 'the commands for Docker lead to psql on both clusters' => sub {
	my $text = slurp_file("$top/compose.yaml");
	like($text, qr/^#   \Q$_->{code}\E/m, 'compose.yaml has the command') foreach blocks_of(shell => 'docker');
	my $docker = join '; ', (map { "$_=" . $node{$_}->port } sort keys %node),
	  'docker() { local name=$5; shift 6; psql -h 127.0.0.1 -p "${!name}" -d postgres "$@"; }';
	my %terminal = map { $_ => terminal("docker $_", $docker) } keys %node;
	play_all(\%terminal, blocks_of(terminal => 'docker \w+'));
	is($_->quit, 0, 'psql ends') foreach values %terminal;
};

subtest 'the last lines of the demo are those of the page' => sub {
	my $demo = slurp_file("$top/test/lib/demo.pl") =~ s/\@\{\[.*?\]\}/0/gr;
	my ($block) = blocks_of(demo => 'its last lines');
	foreach my $line (grep { /\S/ } split /\n/, $block->{code})
	{
		my $normal = $line =~ s/\d{4,}/0/r;
		like($demo, qr/\Q$normal\E/, "the demo has this line: $line");
	}
};

subtest 'each step shows on the terminals of the demo what the page shows' => sub {
	my $directory = PostgreSQL::Test::Utils::tempdir();
	write_terminal($_, $directory) foreach values %node;
	local $ENV{ZKLOCK_DEMO} = $directory;
	my %terminal = map { $_ => terminal($_) } keys %node;
	my @steps = blocks_of(terminal => '(?:berlin|paris)');
	cmp_ok(scalar @steps, '>', 20, 'the page has steps');
	play_all(\%terminal, @steps);
	is(ask($node{$_}, q(SELECT count(*) FROM pg_class WHERE relname = 'counter')), 0, "no table is left in $_") foreach keys %node;
};

# PREPARE looks for the function, and does not call it.
subtest 'the calls in the tables exist' => sub {
	my $session = background($node{berlin});
	my @rows = grep { !$_->{is_code} && $_->{text} =~ /^\|/ } @{ $page->{lines} };
	my %calls = map { $_ => 1 } map { $_->{text} =~ /`((?:CALL )?zk_\w+\([^`]*\))`/g } @rows;
	cmp_ok(scalar keys %calls, '>', 20, 'the tables have calls');
	foreach my $call (sort keys %calls)
	{
		my $sql = $call =~ /^CALL/ ? $call : "PREPARE p AS SELECT $call";
		assert_query($session, $sql =~ s/\btoken\b/1/r, '00000', "there is $call");
		$session->query_safe('DEALLOCATE ALL');
	}
};

done_testing();
