
# What a page tells again is what the reference tells, which t/530 holds to the code: defaults and
# values of settings, columns, SQLSTATEs and whether to try again, rows of zk_check(), limits, wait
# events, and parts of the session timeout in seconds. Tested by reading all pages, and made-up
# ones with such faults.

use strict;
use warnings;

use FindBin;
use Pages;
use Pictures;
use Test::More;

my $top = "$FindBin::Bin/../..";
# Decisions and changelogs tell of former days, too.
my @pages = grep { $_->{name} !~ m{^(?:docs/decisions/|CHANGELOG|test/|src/)} } Pages::all();
cmp_ok(scalar @pages, '>', 20, 'there are pages');

my %reference = map { $_ => Pages::slurp("$top/docs/reference/$_.md") } qw(functions views settings errors);

# Without what only Markdown means, but code.
sub unlinked { return $_[0] =~ s/\[((?:[^\[\]]|\[\])*)\]\([^)]*\)/$1/gr; }

# The paragraphs, items of lists and rows of tables of a page: [first line, text]. No code.
sub pieces
{
	my ($page) = @_;
	my (@pieces, $piece);
	foreach my $line (@{ $page->{lines} })
	{
		my $text = $line->{is_code} ? '' : $line->{text};
		$piece = undef if $text =~ /^\s*(?:[-|#]|\d+\. |$)/;
		next if $text !~ /\S/;
		push @pieces, $piece = [ $line->{number}, '' ] if !$piece;
		$piece->[1] .= ' ' . $text;
	}
	return map { [ $_->[0], unlinked($_->[1] =~ s/\s+/ /gr) ] } @pieces;
}

# T/530 holds this table, and what follows, to the catalog.
our %default = $reference{settings} =~ /^\| \[`(zklock\.\w+)`\]\(#zklock\w+\) \| `?(.*?)`? \|/mg;
# Those of PostgreSQL, and where the code has it that of the session timeout.
chomp(my $sharedir = qx(pg_config --sharedir));
%default = (Pages::slurp("$sharedir/postgresql.conf.sample") =~ /^#?([a-z_]+) = ([^\s#]+)/mg, %default);
my %time = Pictures::loss_times();
our $timeout = $time{timeout};
my %values;
foreach my $part (split /^(?=### )/m, $reference{settings})
{
	my ($name) = $part =~ /^### (zklock\.\w+)/ or next;
	$values{$name} = [ $1 =~ /`(\w+)`/g ] if $part =~ /^- \*\*Values\*\*: (.*)\.$/m;
}

our %column;
foreach my $part (split /^(?=#+ )/m, $reference{views} . $reference{functions})
{
	my ($name) = $part =~ /^#+ (?:View |Table )?(zk_\w+)/ or next;
	$column{$name}{$_} = 1 foreach map { /`(\w+)`/g } $part =~ /^\| ((?:`\w+`(?:, )?)+) \| `/mg;
}

# The rows of its tables: SQLSTATEs, what happened, whether to try again. The last SQLSTATE is that of a
# trigger of the reader's own.
my @errors = $reference{errors} =~ /^\| ((?:[0-9A-Z]{5}(?:, )?)+)(?:, or [^|]*)? \| [^|]* \| (\w+)/mg;
my %again = map { my ($codes, $again) = splice @errors, 0, 2; map { $_ => $again } split /, */, $codes } 1 .. @errors / 2;
our %is_sqlstate = map { $_ => 1 } '42P01', keys %again;
our %retry = map { $_ => $again{$_} } grep { $again{$_} =~ /^(?:yes|no)$/ } keys %again;

my ($items) = Pages::slurp("$top/docs/monitoring.md") =~ /^\| item \|[^\n]*\n(.*?)\n\n/ms;
our %is_item = map { s/ ?\.\.\..*//r => 1 } map { /`([^`]+)`/g } $items =~ /^\| (`[^|]*) \|/mg;
cmp_ok(scalar(keys %$_), '>', 10, 'the reference can be read') foreach \%default, \%column, \%is_sqlstate, \%retry, \%is_item;

# 15 s and 15s, 1,000 and 1000, 512 kB and 512.
sub plain { return $_[0] =~ s/[ ,`']//gr =~ s/kB$//r; }

sub wrong_defaults
{
	my ($text) = @_;
	my @told = $text =~ /`(zklock\.\w+|[a-z]+_[a-z_]+)`,? \(?(`[^`]+`|\d[\d,.]*(?: ?(?:s|ms|min|kB|MB)\b)?)(?=\)| by default\b)/g;
	push @told, $1, $2
	  while $text =~ /`(zklock\.\w+)[^`]*`(?:(?!`zklock\.).)*?\bThe default is (`[^`]+`|\d[\d,.]*\d|\d)/g;
	my @wrong;
	while (my ($name, $value) = splice @told, 0, 2)
	{
		# Behind a setting may stand the SQLSTATE of what it refuses.
		push @wrong, "$name is $value"
		  if !$is_sqlstate{$value} && plain($value) ne plain($default{$name} // ($name =~ /^zklock/ ? 'no setting' : $value));
	}
	return @wrong;
}

sub wrong_values
{
	my ($text) = @_;
	my @told = $text =~ /\b(zklock\.\w+) ?= ?'?(\w+)'?/g;
	# In a row of a table on one setting each word of code in the next cell is a value of it.
	if ($text =~ /^ ?\| `(zklock\.\w+)` \| (.*?) \|/)
	{
		my $name = $1;
		push @told, map { ($name, $_) } grep { !/^zk/ } $2 =~ /`(\w+)`/g;
	}
	my @wrong;
	while (my ($name, $value) = splice @told, 0, 2)
	{
		push @wrong, "$name is never $value" if $values{$name} && !grep { $_ eq $value } @{ $values{$name} };
	}
	return @wrong;
}

sub wrong_columns
{
	my ($text) = @_;
	my @told;
	push @told, [ $1, $2 ] while $text =~ /((?:`\w+`(?:, | and ))*`\w+`) of (?:the (?:view|table) )?`(zk_\w+)(?:\(\))?`/g;
	return map { my ($names, $of) = @$_; map { "$of has no $_" } grep { $column{$of} && !$column{$of}{$_} } $names =~ /`(\w+)`/g }
	  grep { $_->[1] ne 'zk_check' } @told;
}

sub wrong_sqlstates
{
	my ($text) = @_;
	return map { "$_ is no SQLSTATE of the reference" } grep { !$is_sqlstate{$_} }
	  $text =~ /\((?:FATAL, )?([0-9][0-9A-Z]{4}|[A-Z][0-9]{4}|P[0-9]{4})(?=[);,])/g, $text =~ /^ ?\| ([0-9][0-9A-Z]{4}) \|/;
}

# In the tables of what to do with an error.
sub wrong_retries
{
	my ($text) = @_;
	my ($codes, $retry) = $text =~ /^ ?\| ([0-9A-Z]{5}(?:, [0-9A-Z]{5})*) \| [^|]* \| (yes|no)\b/ or return;
	return map { "$_: the reference says to try again: $retry{$_}" } grep { $retry{$_} && $retry{$_} ne $retry } split /, /, $codes;
}

sub wrong_items
{
	my ($text, $page) = @_;
	my @told;
	# A column of that name has them without the word.
	push @told, map { s/ \([^)]*\)//gr } $1
	  if $page->{text} =~ /^\|(?: [^|]* \|){2} row of `zk_check\(\)` \|$/m
	  && $text =~ /^ ?\| (?:[^|]* \| ){2}((?:`[^`]+`(?: \([^)]*\))?(?:, )?)+) \|$/;
	push @told, $1 while $text =~ /\brows? ((?:`[^`]+`(?:, | and ))*`[^`]+`)(?! of `zk_(?!check))/g;
	return map { "zk_check() has no row $_" }
	  grep { !$is_item{ s/ ?\.\.\..*//r } && !($default{$_} && $is_item{zklock}) } map { /`([^`]+)`/g } @told;
}

my %of = (half => 2, third => 3, quarter => 4, fifth => 5, sixth => 6, tenth => 10, fifteenth => 15, fiftieth => 50,
	sixtieth => 60);
my %number = (one => 1, two => 2, three => 3, twice => 2);

# Of wait events, which have names of their own.
my $source = join '', map { Pages::slurp($_) } glob "$top/src/*/*.[ch]";
our %is_event = map { $_ => 1 } $source =~ /"(ZkLock\w+)"/g;

sub wrong_names
{
	my ($text) = @_;
	return map { "there is no wait event $_" } grep { !$is_event{$_} } $text =~ /`(ZkLock\w+)`/g;
}

# The parts of T, each with its seconds in parentheses or behind a colon.
sub wrong_parts
{
	my ($text) = @_;
	my $fractions = join '|', keys %of;
	my @told;
	push @told, [ $&, ($1 || 1) / ($2 || 1), $3 ]
	  while $text =~ m{(?<!and )(?<!of )(?<![\w/])(\d*)T(?:/(\d+))?(?: \(|: )(\d+(?:\.\d+)?) s\b}g;
	push @told, [ $&, ($2 || 1) / ($3 || 1), $1 ] while $text =~ m{(\d+(?:\.\d+)?) s \((\d*)T(?:/(\d+))?\)}g;
	push @told, [ $&, $1 / $2, $3 ] while $text =~ m{(\d+)/(\d+) of the session timeout \((\d+(?:\.\d+)?) s}g;
	push @told, [ $&, ($1 ? $number{$1} : 1) / $of{$2}, $3 ]
	  while $text =~ /(?:\b(one|two|three) )?\b($fractions)s? of (?:T|that|its timeout|the session timeout) \((\d+(?:\.\d+)?) s/g;
	push @told, [ $&, ($1 ? $number{$1} : 1), $2 ]
	  while $text =~ /(?<!of the )(?<!nearly the )(?:\b(twice|one|two|three) (?:the )?)?\bsession timeouts? \((\d+(?:\.\d+)?) s/g;
	push @told, [ $&, 1, $1 ]
	  while $text =~ /(?<!of the )\bsession timeout(?: of [\w ]+)?, (?:which is |`zklock\.session_timeout`, )?(\d+) s by default/g;
	# What sends a request in each sixth of T, and what is fresh for a third of it.
	my %part = (heartbeat => $time{heartbeat} / $time{timeout}, fresh => $time{proof} / $time{timeout});
	push @told, [ $&, $part{$1} // $part{heartbeat}, $timeout / ($2 // $of{$3}) ]
	  while $text =~ m{\b(heartbeat|fresh|request at least every)\b(?:[^.|]|\.\d)*?(?:(?<!\d)T/(\d+)|each ($fractions) of T)}g;
	return map { "$_->[0], which is " . $_->[1] * $timeout . ' s' } grep { abs($_->[1] * $timeout - $_->[2]) > 0.001 } @told;
}

# Limits of the source, by the words in which pages tell them.
my %words_of_limit = (
	RECIPE_NAME_MAX => qr/\bname has 1 to ([\d,]+) bytes/,
	RECIPE_DEPTH_MAX => qr/\bup to ([\d,]+) components/,
	RECIPE_ROOT_MAX => qr/\broot (?:is an absolute path of|together have) at most ([\d,]+) bytes/,
	RECIPE_PERMITS_MAX => qr/`permits` from 1 to ([\d,]+)/,
	RECIPE_SEQUENCE_LIMIT => qr/\bFrom ([\d,]+) on, zklock refuses/,
	SERVERS_MAX => qr/\blist has at most ([\d,]+) servers/,
	ZK_REASON_MAX => qr/\bone line of at most ([\d,]+) bytes/,
	RECORDS_MAX => qr/\bat most ([\d,]+) records/,
	'functions/lock_set.c NAMES_MAX' => qr/\b(?:at most|more than) ([\d,]+) names/,
	CYCLE_NODES_MAX => qr/\bmore than ([\d,]+) sessions/);
our %limit = map { ($_ => limit($_)) } keys %words_of_limit;

sub limit
{
	my ($file, $name) = $_[0] =~ /^(?:(.*) )?(.*)$/;
	my $text = defined $file ? Pages::slurp("$top/src/$file") : $source;
	my @found = $text =~ /^#define \Q$name\E +(\d+)$/mg;
	die "there is no one $name" if @found != 1;
	return $found[0];
}

sub wrong_limits
{
	my ($text) = @_;
	my @wrong;
	foreach my $name (sort keys %limit)
	{
		push @wrong, map { "$name is $limit{$name}, not $_" } grep { tr/,//dr != $limit{$name} } $text =~ /$words_of_limit{$name}/g;
	}
	return @wrong;
}

# What zk_check() counts in, requests that follow from the times, and what Kazoo is told; all three in words of their own.
my ($days) = Pages::slurp("$top/src/functions/check_servers.c") =~ /^#define EXPIRES_DAYS (\d+)$/m;
our $pattern = "extra_lock_patterns=['lock-']";

sub wrong_figures
{
	my ($text) = @_;
	my @wrong = map { "zk_check() warns $days days ahead" }
	  grep { $_ != $days } $text =~ /\b(\d+) days (?:before (?:a|the) certificate|ahead\b)/g, $text =~ /\bexpires within (\d+) days/g;
	push @wrong, map { "Kazoo needs $pattern" } grep { $_ ne $pattern } $text =~ /\b(extra_lock_patterns=\[[^]]*\])/g;
	push @wrong, "$1 requests with T = $2 s"
	  if $text =~ /\bheartbeat\b.*?1,000 such sessions send (\d+) requests a second with T = (\d+) s/ && abs($1 - 1000 / ($2 * $time{heartbeat} / $time{timeout})) > 1;
	return @wrong;
}

my %check = (
	defaults => \&wrong_defaults, figures => \&wrong_figures, values => \&wrong_values, columns => \&wrong_columns, limits => \&wrong_limits, names => \&wrong_names, retries => \&wrong_retries,
	sqlstates => \&wrong_sqlstates, rows => \&wrong_items, parts => \&wrong_parts);

sub wrong
{
	my ($page, $what) = @_;
	my @wrong;
	foreach my $piece (pieces($page))
	{
		push @wrong, map { "$page->{name}:$piece->[0]: $_" } $check{$what}->($piece->[1], $page);
	}
	return @wrong;
}

subtest 'each kind of wrong statement is found in made-up pages' => sub {
	my %right = (
		defaults => "After `zklock.connect_timeout` (10 s), of `zklock.max_locks`, 1,000 by default. `zklock.root`,\n`/zklock` by default.\n"
		  . "`zklock.max_creates` bounds it. The default is 5000.\n",
		values => "`zklock.commit_guard = quorum`\n\n| `zklock.commit_guard` | `fresh`, never `off` | `x` |\n",
		columns => "`state`, `server` of the view `zk_session`, `style` and `client` of `zk_lock_queue()`, the row `clock` of `zk_check()`\n",
		sqlstates => "fails (40001), or (FATAL, 42501), (40001; 08006)\n\n| 55P03 | x |\n",
		figures => "It warns 30 days before a certificate expires. `extra_lock_patterns=['lock-']` sends one heartbeat: 1,000 such\n"
		  . "sessions send 400 requests a second with T = 15 s\n",
		limits => "It takes at most 20,000 names. There are at most 100,000 records.\n",
		names => "`ZkLockCommit`\n",
		retries => "| 40001 | x | yes, the whole transaction |\n| 42501, 22023 | x | no |\n| 53400 | x | only now and then |\n",
		rows => "the rows `server ...`, `clock` and `tls ...` of `zk_check()`\n\n| a | b | row of `zk_check()` |\n| a | b | `acl`, `tls ...` (30 days ahead) |\n",
		parts => "T/3 (5 s), 2T/3 (10 s; x), T/6: 2.5 s, 2.5 s (T/6), two thirds of T (10 s), 3/10 of the session timeout (4.5 s),\n"
		  . "two session timeouts (30 s), fresh for at most T/3, a heartbeat in each sixth of T, a request at least every 2.5 s (T/6), a quarter of T (3.75 s), half a tick and T/6 (3.5 s)\n");
	my %false = (
		defaults => [ "`zklock.connect_timeout` (15 s)\n", "`zklock.max_locks`, 100\nby default\n", "`zklock.max_creates`. The default is 500.\n",
			"`deadlock_timeout` (5 s by default)\n" ],
		values => [ "`zklock.commit_guard = on`\n", "| `zklock.commit_guard` | `strict` | x |\n" ],
		columns => [ "`status` of the view `zk_session`\n", "`style` and `client_name` of\n`zk_lock_queue()`\n" ],
		sqlstates => [ "fails (40P03)\n", "| 55P04 | x |\n" ],
		figures => [ "60 days ahead\n", "expires within\n3 days\n", "extra_lock_patterns=['lock']\n",
			"one heartbeat. 1,000 such sessions send 200 requests a second with T = 15 s\n" ],
		limits => [ "It takes at most 2,000\nnames.\n" ],
		names => [ "`ZkLockGuard`\n" ],
		retries => [ "| 40001 | x | no |\n", "| 22023 | x | yes |\n" ],
		rows => [ "| a | b | row of `zk_check()` |\n| a | b | `acl`, `timeout granted` |\n", "the rows `clocks` and\n`tls ...`\n" ],
		parts => [ "T/3 (7.5 s)\n", "2T/3 (5 s)\n", "5 s (T/6)\n", "two thirds of T\n(15 s)\n", "a third of the session timeout (4 s)\n",
			"the session timeout (10 s)\n", "the session timeout, which is 30 s by default\n",
			"sends a request at least every 5 s (T/3)\n", "a proof that is fresh for T/6\n", "one heartbeat in each third of T\n" ]);
	foreach my $what (sort keys %check)
	{
		is(join("\n", wrong(Pages::page('x.md', $right{$what}), $what)), '', "$what: right ones");
		is(scalar wrong(Pages::page('x.md', $_), $what), 1, "$what: $_") foreach @{ $false{$what} };
	}
};

foreach my $what (sort keys %check)
{
	is(join("\n", map { wrong($_, $what) } @pages), '', "$what are those of the reference");
}

my $monitoring = Pages::slurp("$top/docs/monitoring.md");
is(join(' ', grep { $monitoring !~ /^\| `$_` \|/m } sort keys %is_event), '', 'docs/monitoring.md has each wait event');

# What the front page says of the costs, another page has measured.
my ($front, $performance) = map { Pages::slurp("$top/$_") } 'README.md', 'docs/performance.md';
my @figures = $front =~ /\b(\d[\d.]* (?:ms|kB|us))\b/g;
cmp_ok(scalar @figures, '>=', 3, 'the front page has figures');
is(join(', ', grep { index($performance, $_) < 0 } @figures), '', 'docs/performance.md has the figures of the front page');

# How many there are, so that a pattern that finds none any more is seen.
subtest 'pages tell such things again in many places' => sub {
	my $all = sub { my ($what) = @_; return scalar map { wrong($_, $what) } @pages; };
	{
		local $timeout = 1000003;
		cmp_ok($all->('parts'), '>', 40, 'parts of T');
	}
	{
		local %default = map { $_ => 'another' } keys %default;
		cmp_ok($all->('defaults'), '>', 10, 'defaults');
	}
	{
		local %column = map { $_ => { none => 1 } } keys %column;
		cmp_ok($all->('columns'), '>', 5, 'columns');
	}
	{
		local %is_sqlstate;
		cmp_ok($all->('sqlstates'), '>', 50, 'SQLSTATEs');
	}
	{
		local %retry = map { $_ => 'perhaps' } keys %retry;
		cmp_ok($all->('retries'), '>', 8, 'whether to try again');
	}
	{
		local %is_event;
		cmp_ok($all->('names'), '>', 5, 'names');
	}
	{
		local %limit = map { $_ => -1 } keys %limit;
		my %found = map { $_ => 1 } map { /: ([\w. \/]+) is -1/ } map { wrong($_, 'limits') } @pages;
		is(join(' ', grep { !$found{$_} } sort keys %limit), '', 'each limit');
	}
	{
		local $pattern = '';
		cmp_ok($all->('figures'), '>', 2, 'figures');
	}
	{
		local %is_item;
		cmp_ok($all->('rows'), '>', 20, 'rows');
	}
};

done_testing();
