
# docs/reference has each function, view, column and setting of the catalog and no other, in the
# words of their comments, and each SQLSTATE that is raised; internal functions have comments, and
# are what the page about them says. Tested against the catalog of a real cluster, and the source.
# (Its examples are run by t/542.)

use FindBin;
use JSON::PP;
use Pages;
use ZkLockTest;

my $top = "$FindBin::Bin/../..";
my @pages = map { "docs/reference/$_" } qw(functions views settings errors);
my $page = join '', map { slurp_file("$top/$_.md") } @pages, 'docs/decisions/internal-functions';
my $zk = ZooKeeper->new->start;
# Preloaded: otherwise pg_settings knows the settings only where the library is in use.
my $node = cluster('berlin', $zk);

# Rows of a query, each as a hash.
sub rows ($sql)
{
	return @{
		decode_json($node->safe_psql('postgres', "SELECT coalesce(json_agg(q), '[]') FROM ($sql) AS q")) };
}

# What is in the extension, as the page writes it.
my $of_extension = "d.deptype = 'e' AND d.refclassid = 'pg_extension'::regclass
	AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zklock')";
my @functions = map { { %$_, signature => signature($_) } } rows("SELECT p.proname AS name,
		pg_get_function_arguments(p.oid) AS arguments, pg_get_function_result(p.oid) AS result,
		obj_description(p.oid, 'pg_proc') AS comment,
		(SELECT coalesce(json_agg(json_build_object(
					'name', a.name, 'type', format_type(a.type, NULL)) ORDER BY a.i), '[]')
			FROM unnest(p.proargnames, p.proargmodes, p.proallargtypes)
				WITH ORDINALITY AS a(name, mode, type, i)
			WHERE a.mode = 'o') AS columns
	FROM pg_depend AS d JOIN pg_proc AS p ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
	WHERE $of_extension");
my @relations = rows("SELECT c.relname AS name, obj_description(c.oid, 'pg_class') AS comment,
		CASE c.relkind WHEN 'v' THEN 'View' ELSE 'Table' END AS kind,
		(SELECT json_agg(json_build_object('name', a.attname, 'type', format_type(a.atttypid, NULL),
					'comment', col_description(c.oid, a.attnum)) ORDER BY a.attnum)
			FROM pg_attribute AS a
			WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped) AS columns
	FROM pg_depend AS d JOIN pg_class AS c ON d.classid = 'pg_class'::regclass AND d.objid = c.oid
	WHERE $of_extension");
my %is_relation = map { $_->{name} => 1 } @relations;
my @settings = rows("SELECT * FROM pg_settings WHERE name ~ '^zklock[.]'");

# PostgreSQL shows zklock.auth in no view: what it is, only the source says.
my %defined = map { $_->{name} => $_ } defined_settings();

sub defined_settings
{
	my $source = join '', map { slurp_file($_) } glob "$top/src/*/*.c";
	my @found;
	my %context = (SUSET => 'superuser', USERSET => 'user', SIGHUP => 'sighup', POSTMASTER => 'postmaster');
	foreach my $call ($source =~ /\bDefineCustom(\w+Variable\(.*?)\);/gs)
	{
		my ($type, $name, $short, $extra, $rest) =
		  $call =~ /^(\w+)Variable\("(.*?)",\s*"(.*?)",\s*(?:NULL|"(.*?)"),(.*)/s
		  or die "what is $call?";
		my ($default) = $rest =~ /&\w+,\s*"(.*?)",/;
		my ($context) = $rest =~ /\bPGC_(\w+)/;
		push @found,
		  {
			vartype => lc $type, name => $name, short_desc => $short, extra_desc => $extra,
			boot_val => $default, context => $context{$context} };
	}
	return @found;
}

sub signature ($function)
{
	my $arguments = type($function->{arguments});
	$arguments =~ s/(?:, )?\bOUT .*//;
	$arguments =~ s/\bIN //g;
	$arguments =~ s/::\w+(?:\[\])?//g;
	$arguments =~ s/'00:00:00'/'0'/g;
	my $result = defined $function->{result} ? " returns $function->{result}" : ', a procedure';
	return "$function->{name}($arguments)$result";
}

sub type { return $_[0] =~ s/timestamp with time zone/timestamptz/gr; }

# Without what only Markdown means.
sub plain ($text)
{
	$text =~ s/\[([^]]*)\]\([^)]*\)/$1/g;
	$text =~ s/`//g;
	$text =~ s/\s+/ /g;
	return $text =~ s/^ | $//gr;
}

sub plain_rows ($table) { return $table =~ s/\[([^]]*)\]\([^)]*\)/$1/gr; }

# The entries of the pages. One of a function begins with its signature, in a paragraph or in an
# item of a list: `zk_x(name text)` returns `bigint`. Those of views, tables and settings have the
# heading "View zk_x", "Table zk_x" or "zklock.x", and begin below it. Columns are rows of a table,
# or items of a list. What a setting is, its list says: "- **Default**: `1`.", and so on.
my (@signatures, %entry, %meaning, %facts);
sub read_page
{
	my ($last, $setting, $text);
	# What an entry or a column says goes on in further lines; a row of a table is one.
	foreach my $line (split /\n/, $page =~ s/(?<=\S)\n(?! *- |#|\||```|\n) */ /gr)
	{
		if ($line =~ /^(?:- )?`(_?zk_\w+\(.*?\))`(?: returns `(.*?)`|(, a procedure))\. (.*)/)
		{
			my ($signature, $words) = ($1 . ($3 // " returns $2"), $4);
			push @signatures, $signature;
			$last = $entry{$signature} = { text => plain($words), columns => [] };
		}
		elsif ($line =~ /^#+ ((?:View|Table) zk_\w+)$/)
		{
			$text = \($last = $entry{$1} = { text => '', columns => [] })->{text};
			$setting = undef;
		}
		elsif ($line =~ /^#+ (zklock\.\w+)$/)
		{
			($last, $setting, $text) = (undef, $1, \$meaning{$1});
		}
		elsif ($setting && $line =~ /^- \*\*([\w ]+)\*\*: (.*)\.$/)
		{
			$facts{$setting}{$1} = plain($2);
		}
		elsif (my ($names, $type, $meaning) =
			$line =~ /^  - (`\w+`(?:, `\w+`)*) `(.*?)`(?:: (.*))?$/ ? ($1, $2, $3)
			: $line =~ /^\| (`\w+`(?:, `\w+`)*) \| `(.*?)` \| (.*?) ?\|$/)
		{
			push @{ $last->{columns} }, map { { name => $_, type => $type, meaning => plain($meaning // '') } }
			  $names =~ /`(\w+)`/g;
		}
		elsif ($line =~ /^(?:#|- (?:View |Table )?`_?zk)/)
		{
			fail("an entry that is none: $line") if $line =~ /^-/;
			($last, $setting, $text) = ();
		}
		elsif ($text && $line =~ /\S/)
		{
			($$text, $text) = (plain($line), undef);
		}
	}
	return;
}

read_page();

# Does a comment fit on a few lines of a terminal, and say at once what the function does?
sub is_comment ($name, $comment)
{
	$comment = plain($comment // '');
	cmp_ok(length $comment, '>', 20, "$name: it has a comment");
	cmp_ok(length $comment, '<=', 450, "$name: its comment is short");
	unlike($comment, qr/^[A-Z][a-z]+(?: [a-z]+)?: /, "$name: and begins with what it does");
	return $comment;
}

# Does the page say of this, first, what its comment says?
sub says_the_same ($name, $entry, $comment)
{
	$comment = is_comment($name, $comment);
	is(substr($entry->{text}, 0, length $comment), $comment, "$name: its comment");
	return;
}

my $no_entry = { text => '', columns => [] };

subtest 'the reference has each function with its comment' => sub {
	cmp_ok(scalar @functions, '>', 50, 'the catalog has functions');
	# Of internal functions, which begin with an underscore, the catalog has the comments. A page
	# has those of which there is more to say.
	my @internal = map { $_->{signature} } grep { $_->{name} =~ /^_/ } @functions;
	my %is_internal = map { $_ => 1 } @internal;
	is_deeply([ sort grep { !$is_internal{$_} } @signatures ],
		[ sort grep { !$is_internal{$_} } map { $_->{signature} } @functions ],
		'the page has all that are to be called, once');
	foreach my $function (@functions)
	{
		my $entry = $entry{ $function->{signature} } // $no_entry;
		if ($is_internal{ $function->{signature} } && $entry == $no_entry)
		{
			like(is_comment($function->{signature}, $function->{comment}), qr/\bzk_\w+/,
				"$function->{signature}: the comment names what it is a part of");
			next;
		}
		says_the_same($function->{signature}, $entry, $function->{comment});
		next if $is_relation{ $function->{name} };
		is_deeply([ map { "$_->{name} $_->{type}" } @{ $entry->{columns} } ],
			[ map { "$_->{name} " . type($_->{type}) } @{ $function->{columns} } ],
			'the page has the columns of the result');
	}
};

# What a function takes that takes locks, by its name and its arguments.
sub expected_take ($function)
{
	my ($name, $signature) = @$function{qw(name signature)};
	my ($argument) = $signature =~ /\((names?) /;
	my $takes = $name =~ /_path$/ ? 'a path' : $argument eq 'names' ? 'an array' : 'one name';
	my ($mode) = $signature =~ /, (modes?) /;
	my %returns = (bigint => 'token', 'bigint[]' => 'tokens', boolean => 'boolean');
	my $scope = $name =~ /_(xact|call)_/ ? { xact => 'transaction', call => 'call' }->{$1} : 'session';
	return join ' | ', "$name($argument)", $scope, $mode // ($name =~ /_shared$/ ? 'shared' : 'exclusive'), $takes,
	  ($signature =~ /, permits / ? 'yes' : 'no'), ($name =~ /^zk_try_/ ? 'false' : 'waits'),
	  $returns{ $function->{result} // '' } // 'nothing';
}

subtest 'the reference has one table of what the functions take that take locks' => sub {
	my ($table) = $page =~ /^## Which function takes what\n(.*?)^## /ms;
	my @rows = map { s/^\| | \|$//gr } grep { /^\| zk_/ } split /\n/, plain_rows($table // '') =~ s/`//gr;
	my @takers = grep { $_->{name} =~ /^zk_(?:try_|commit_and_)?(?:xact_|call_)?lock(?:_shared|_path|_set)?$/ } @functions;
	cmp_ok(scalar @takers, '>', 15, 'there are such functions');
	is_deeply([ sort @rows ], [ sort map { expected_take($_) } @takers ], 'the table says what they take');
};

subtest 'the reference has each view and table with its columns' => sub {
	is_deeply([ sort grep { /^(?:View|Table) / } keys %entry ],
		[ sort map { "$_->{kind} $_->{name}" } @relations ], 'the page has them all');
	foreach my $relation (@relations)
	{
		my $entry = $entry{"$relation->{kind} $relation->{name}"} // $no_entry;
		says_the_same($relation->{name}, $entry, $relation->{comment});
		is_deeply([ map { "$_->{name} $_->{type}: $_->{meaning}" } @{ $entry->{columns} } ],
			[ map { "$_->{name} " . type($_->{type}) . ': ' . plain($_->{comment} // 'no comment') }
				  @{ $relation->{columns} } ],
			'the page has the columns, with their types and comments');
	}
};

# What stands under the heading of an entry, with what its section says before the first one.
sub section_of ($file, $pattern)
{
	foreach my $section (split /^(?=## )/m, slurp_file("$top/docs/reference/$file.md"))
	{
		my ($ahead, @entries) = split /^(?=### )/m, $section;
		foreach my $entry (@entries)
		{
			return "$ahead\n$entry" =~ s/\s+/ /gr if $entry =~ s/\s+/ /gr =~ $pattern;
		}
	}
	return '';
}

subtest 'the reference says who may use what is not for everybody, and who may see what' => sub {
	my $is_told = sub ($text, $verb, $role) {
		return $text =~ /(?:`\Q$role\E`|\Q$role\E)[^.]* may $verb/;
	};
	my $grantees = "(SELECT coalesce(json_agg(CASE g.grantee WHEN 0 THEN 'public' ELSE g.grantee::regrole::text END), '[]')
		FROM aclexplode(o.acl) AS g WHERE g.grantee <> o.owner AND g.privilege_type IN ('EXECUTE', 'SELECT'))";
	my @rows = rows("SELECT o.name, o.kind, $grantees AS grantees FROM pg_depend AS d JOIN (
			SELECT 'pg_proc'::regclass AS class, oid, proname AS name, 'function' AS kind, proowner AS owner,
				coalesce(proacl, acldefault('f', proowner)) AS acl FROM pg_proc
			UNION ALL
			SELECT 'pg_class'::regclass, oid, relname, 'relation', relowner, relacl FROM pg_class)
		AS o ON d.classid = o.class AND d.objid = o.oid WHERE $of_extension AND o.name NOT LIKE '\\_%'");
	my $count = 0;
	foreach my $row (@rows)
	{
		my ($name, $kind) = @$row{qw(name kind)};
		next if $kind eq 'function' && $is_relation{$name};
		my $is_function = $kind eq 'function';
		my $text = $is_function
		  ? section_of('functions', qr/`\Q$name\E\([^`]*\)`(?: returns |, a procedure)/)
		  : section_of('views', qr/^### \w+ \Q$name\E /);
		my @roles = map { $_ eq 'pg_database_owner' ? 'the owner of the database' : $_ } @{ $row->{grantees} };
		@roles = ('Superusers') if !@roles;
		# A function that is for everybody does not need to say so.
		@roles = $is_function ? () : ('Every role') if grep { $_ eq 'public' } @roles;
		ok($is_told->($text, $is_function ? 'call' : 'read', $_), "$name: $_") foreach @roles;
		like($text, qr/```sql/, "$name: an example") if !$is_function;
		$count += @roles;
	}
	cmp_ok($count, '>', 25, 'there are such things');
};

# As PostgreSQL shows it.
sub with_unit ($value, $unit)
{
	return $value unless $value && ($unit // '') eq 'ms';
	foreach my $large ([ 86400000, 'd' ], [ 3600000, 'h' ], [ 60000, 'min' ], [ 1000, 's' ])
	{
		return $value / $large->[0] . $large->[1] if $value % $large->[0] == 0;
	}
	return "${value}ms";
}

# What the page has to say of a setting.
sub expected_facts ($setting)
{
	my ($type, $unit, $default) = @$setting{qw(vartype unit boot_val)};
	my %whom = (superuser => 'superuser', user => 'every role', sighup => 'postgresql.conf', postmaster => 'postgresql.conf');
	my %facts = (
		Type => $type . ($unit ? ", $unit" : ''),
		Default => $default eq '' ? 'empty' : with_unit($default, $unit),
		'Set by' => $whom{ $setting->{context} });
	$facts{Values} = join ', ', @{ $setting->{enumvals} } if $type eq 'enum';
	$facts{Range} = join ' to ', map { with_unit($_, $unit) } @$setting{qw(min_val max_val)} if $type eq 'integer';
	return \%facts;
}

subtest 'the reference has each setting with its type, default and range' => sub {
	is_deeply([ sort keys %defined ], [ sort 'zklock.auth', map { $_->{name} } @settings ],
		'what is defined is shown, but the credentials');
	push @settings, $defined{'zklock.auth'};
	is_deeply([ sort keys %facts ], [ sort keys %defined ], 'each has an entry');
	foreach my $setting (@settings)
	{
		my $name = $setting->{name};
		my $found = $facts{$name} // {};
		is_deeply([ grep { !$found->{$_} } 'Takes effect', 'When to change it', 'What breaks' ], [],
			"$name: when a change takes effect, when to make one, and what breaks");
		my %these = map { $_ => $found->{$_} } grep { /^(?:Type|Default|Values|Range|Set by)$/ } keys %$found;
		is_deeply(\%these, expected_facts($setting), "$name: type, default, range, and who may set it");
		my $comment = plain(join ' ', grep { $_ } @$setting{qw(short_desc extra_desc)});
		is(substr($meaning{$name} // '', 0, length $comment), $comment, "$name: its words");
	}
	my %row = $page =~ /^\| \[`(zklock\.\w+)`\]\(#zklock\w+\) \| (.*?) \|/mg;
	is_deeply({ map { $_ => plain($row{$_}) } keys %row },
		{ map { $_->{name} => expected_facts($_)->{Default} } @settings },
		'the table has them all, with their defaults');
};

# The SQLSTATEs that the source raises: by name, by the table of answers, or for a file. A name
# with which an error is compared is not raised.
sub raised
{
	my %raised;
	chomp(my $sharedir = qx(pg_config --sharedir));
	my %code = reverse slurp_file("$sharedir/errcodes.txt") =~ /^([0-9A-Z]{5})\s+[EWS]\s+(ERRCODE_\w+)/mg;
	foreach my $source (map { slurp_file($_) } glob "$top/src/*/*.c")
	{
		$source =~ s{/\*.*?\*/}{}gs;
		$raised{ $code{$_} // $_ } = 1 foreach $source =~ /(?<![!=]= )\b(ERRCODE_\w+)/g;
		$raised{$_} = 1 foreach $source =~ /\bROW\(ZK_(?!OK,)\w+,[^)]*"(\w{5})"\)/g;
		@raised{qw(42501 58030 58P01)} = (1) x 3 if $source =~ /\berrcode_for_file_access\b/;
		$raised{XX000} = 1 if $source =~ /(?<!\w)elog\(ERROR/;
	}
	foreach my $name (map { slurp_file($_) =~ /\bERRCODE = '(\w+)'/g } glob "$top/sql/*.sql")
	{
		$node->psql('postgres', "\\set VERBOSITY sqlstate\nDO \$\$ BEGIN RAISE USING ERRCODE = '$name'; END \$\$",
			on_error_stop => 0, stderr => \my $stderr);
		$raised{ $stderr =~ /ERROR:  (\w{5})$/m ? $1 : $name } = 1;
	}
	return sort keys %raised;
}

subtest 'the reference has each SQLSTATE that is raised' => sub {
	my $errors = slurp_file("$top/docs/reference/errors.md");
	my @raised = raised();
	cmp_ok(scalar @raised, '>', 25, 'the source raises errors');
	my ($of_zklock) = $errors =~ /^## Errors by SQLSTATE\n(.*?)^## /ms;
	my @entries = plain_rows($of_zklock // '') =~ /^\| ((?:[0-9A-Z]{5}(?:, )?)+ \| .*?) \|$/mg;
	my %is_entry = map { $_ => 1 } map { split /, /, s/ \|.*//r } @entries;
	is_deeply([ sort keys %is_entry ], \@raised, 'each has a row, and no other');
	is(scalar(map { split /, /, s/ \|.*//r } @entries), scalar @raised, 'each has one');
	is_deeply([ grep { !/^[^|]* \| [^|]{10,}\. \| (?:yes|no|once|only if)\b/ } @entries ], [], 'what happened, and whether to try again');
	my %is_raised = map { $_ => 1 } @raised;
	my ($of_postgres) = $errors =~ /^## SQLSTATEs of PostgreSQL\n(.*?)^## /ms;
	my @others = plain_rows($of_postgres // '') =~ /^\| ((?:[0-9A-Z]{5}(?:, )?)+)(?:, or [^|]*)? \|/mg;
	cmp_ok(scalar @others, '>', 5, 'PostgreSQL raises some itself');
	is_deeply([ grep { $is_raised{$_} } map { split /, / } @others ], [], 'these are raised by PostgreSQL alone');
	my %is_known = map { $_ => 1 } @raised, map { split /, / } @others;
	# Those of all functions, and what those have besides that take locks.
	my @tables = $page =~ /^(?:Functions that ask ZooKeeper raise these errors\.[^\n]*|All functions of this section also raise:)\n\n(.*?)\n\n/msg;
	is(scalar @tables, 2, 'there are two tables of them');
	my @of_locks = map { split /, / } map { plain_rows($_) =~ /^\| ((?:[0-9A-Z]{5}(?:, )?)+) \|/mg } @tables;
	cmp_ok(scalar @of_locks, '>', 20, 'functions that take locks have SQLSTATEs');
	is_deeply([ grep { !$is_known{$_} } @of_locks ], [], 'each of them has an entry');
};

# What ZooKeeper's errors lead to: for the caller, and if the session ends with it.
subtest 'the reference has each answer of ZooKeeper with its SQLSTATE' => sub {
	my ($codes, $answers, $losses) =
	  map { slurp_file("$top/src/$_.c") } qw(program/program_code common/answer session/session_error);
	my %of_result = $answers =~ /\bROW\((ZK_\w+),[^)]*"(\w{5})"\)/g;
	my %of_loss = (ZK_LOSS_AUTH => '28000', ZK_LOSS_DEMAND => '28000');
	like($losses, qr/\[$_\] = \{\s*ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION,/, "$_ is told as such") foreach sort keys %of_loss;
	my %answer;
	while ($codes =~ /\{Z?(\w+), (ZK_\w+), (ZK_LOSS_\w+), (?:NULL|"(.*?)")\}/g)
	{
		$answer{ lc($1) =~ tr/_//dr } = { result => $2, state => $of_loss{$3} // $of_result{$2}, words => $4 };
	}
	cmp_ok(scalar keys %answer, '>', 30, 'the program knows answers');
	my ($table) = slurp_file("$top/docs/reference/errors.md") =~ /^## What ZooKeeper may answer\n(.*)/ms;
	my %row = map { my @cells = split / \| /; map { lc $_ => \@cells } $cells[0] =~ /`(\w+)`/g }
	  grep { /^\| `/ } split /\n/, $table // '';
	foreach my $name (sort keys %answer)
	{
		my ($result, $state, $words) = @{ $answer{$name} }{qw(result state words)};
		next if $result eq 'ZK_OK' || ($result eq 'ZK_FAILED' && !$row{$name});
		like($row{$name}[2] // 'no row', qr/\b$state\b/, "$name: $state");
		like($row{$name}[1] // 'no row', qr/`\Q$words\E`/, "$name: $words") if defined $words;
	}
	is_deeply([ grep { !$answer{$_} } sort keys %row ], [], 'the page has no others');
};

subtest 'the queries of the entries of troubleshooting can be run' => sub {
	my $text = slurp_file("$top/docs/troubleshooting.md") =~ s/\n +/ /gr;
	my %queries = map { $_ => 1 } $text =~ /`((?:SELECT|SHOW) [^`]+)`/g;
	cmp_ok(scalar keys %queries, '>', 10, 'it has queries');
	my $session = background($node);
	foreach my $query (sort keys %queries)
	{
		# A query is parsed, so that its names are looked up, and a setting is shown.
		$session->query($query =~ /^SELECT/ ? "PREPARE asked AS $query" : $query);
		is($session->sqlstate, '00000', $query);
		$session->query('DEALLOCATE ALL');
	}
};

subtest 'the pages name no function, view, setting or role that does not exist' => sub {
	my @types = rows("SELECT t.typname AS name FROM pg_depend AS d JOIN pg_type AS t
		ON d.classid = 'pg_type'::regclass AND d.objid = t.oid WHERE $of_extension");
	my %is_ours = map { $_->{name} => 1 } @functions, @relations, @types;
	foreach my $name (@pages, 'docs/troubleshooting', 'docs/interop', 'src/DEVELOPMENT')
	{
		my $text = slurp_file("$top/$name.md");
		my @names = $text =~ /\b(_?zk_\w+)/g;
		is_deeply([ grep { !$is_ours{$_} } @names ], [], "$name.md: functions and views that exist");
		@names = grep { !/\.(?:so|map|control|spdx|spec)$/ } $text =~ /\b(zklock\.(?!_?zk_)\w+)/g;
		is_deeply([ grep { !$defined{$_} } @names ], [], "$name.md: settings that exist");
	}
	my @roles = $page =~ /`(zklock_\w+)`/g;
	foreach my $role (@roles)
	{
		is($node->safe_psql('postgres', "SELECT count(*) FROM pg_roles WHERE rolname = '$role'"), 1, "role $role");
	}
};

done_testing();
