
# A role that may create objects in the schema where a superuser creates the extension cannot get
# anything run as that superuser, or as a caller of our functions. Tested with a thousand planted
# overloads, operators, casts and types that fit better than ours, each of which sets off an
# alarm.

use FindBin;
use ZkLockTest;

my $zk = ZooKeeper->new->start;
my $node = cluster('berlin', $zk);
my $database = 'postgres';

sub sql { return ask($node, $_[0], $database); }

# The schema that nobody else sees is what protects the names, not how they are written.
unlike(slurp_file("$FindBin::Bin/../../sql/zklock--2.0.sql") =~ s/^--.*|SET search_path = .*//mgr,
	qr/pg_catalog"?\s*\.|OPERATOR\(/, 'the script writes plain names');

# What there is to be imitated, from an untouched database.
my @functions = map { [ split /\|/, $_, -1 ] } split /\n/, sql(<<'SQL');
SELECT p.proname, oidvectortypes(p.proargtypes), p.proargtypes::regtype[]
FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
	JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
WHERE e.extname = 'zklock' AND d.deptype = 'e'
ORDER BY 1, 2
SQL
my %is_ours = map { ("$_->[0]($_->[1])" => 1) } @functions;
my %arguments;
# Of a type of ours nobody can have functions before.
my @imitable = grep { $_->[1] !~ /zk_role|zk_check_fact|cstring|internal/ } @functions;
push @{ $arguments{ $_->[0] } }, [ split /, /, $_->[1] ] foreach @imitable;

# Where one of ours calls another, or the script does.
my %is_called = map { $_ => 1 }
  grep { /^_?zk_(fence.*|(all_|session_)?locks|lock_queue|session|waits.*|process|mermaid|path_.*)$/
	  || /^zk_(unlock|(try_)?(xact_)?lock)$/ } keys %arguments;

sql('CREATE ROLE planter; CREATE ROLE visitor');

sub prepare
{
	sql("CREATE DATABASE $_[0]");
	($database) = @_;
	make_garden();
	return;
}

# The schema in which the planter may create, and his alarm: a sequence, which
# tells also of what was rolled back.
sub make_garden
{
	sql(<<'SQL');
CREATE SCHEMA garden;
GRANT ALL ON SCHEMA garden TO planter;
GRANT USAGE ON SCHEMA garden TO PUBLIC;
SET ROLE planter;
CREATE SEQUENCE garden.alarm;
GRANT ALL ON SEQUENCE garden.alarm TO PUBLIC;
SQL
	return;
}

sub planted_function ($name, $arguments, $result = undef)
{
	$result ||= 'void';
	my $value = $result eq 'void' ? '' : ' NULL';
	return "CREATE FUNCTION garden.$name($arguments) RETURNS $result LANGUAGE plpgsql AS "
	  . "'BEGIN PERFORM pg_catalog.nextval(''garden.alarm''); RETURN$value; END';\n";
}

sub plant { return sql("SET ROLE planter; SET check_function_bodies = off;\n" . join '', @_); }

sub alarm_rang { return sql('SELECT is_called FROM garden.alarm'); }

sub create_extension
{
	return eval { sql('CREATE EXTENSION zklock SCHEMA garden'); 1 } ? (0, '') : (1, $@);
}

# All lists of up to that many of the types.
sub lists ($length, @types)
{
	my @all = my @last = ([]);
	foreach (1 .. $length)
	{
		@last = map { my $list = $_; map { [ @$list, $_ ] } @types } @last;
		push @all, @last;
	}
	return @all;
}

# Overloads of ours: of what is called inside with all lists of types that the
# arguments could be taken for, of the rest with one argument replaced.
sub overloads
{
	my @all;
	foreach my $name (sort keys %arguments)
	{
		my @lists = (
			(map { [$_] } qw(text varchar name bpchar anyelement anycompatible bigint)),
			map { ["VARIADIC $_"] } qw(text[] bigint[] anyarray));
		@lists = (lists(3, qw(text varchar name integer bigint anyelement anycompatible)),
			lists(2, qw(text[] numeric timestamptz)), @lists,
			map { ( [ 'text', "VARIADIC $_" ], [ 'text', 'bigint', "VARIADIC $_" ] ) }
			  qw(text[] name[] bigint[] anyarray))
		  if $is_called{$name};
		foreach my $ours (@{ $arguments{$name} })
		{
			foreach my $i (0 .. $#$ours)
			{
				foreach my $type (qw(varchar name text bigint integer anyelement))
				{
					my @list = @$ours;
					$list[$i] = $type;
					push @lists, \@list;
				}
			}
		}
		my %seen;
		foreach my $list (@lists)
		{
			(my $types = join ', ', @$list) =~ s/timestamptz/timestamp with time zone/g;
			$types =~ s/varchar/character varying/g;
			(my $key = "$name($types)") =~ s/VARIADIC //;
			push @all, planted_function($name, $types)
			  unless $is_ours{$key} || $seen{$key}++;
		}
	}
	return @all;
}

sub operators
{
	my @all = (planted_function('compared', 'anyelement, anyelement', 'boolean'));
	foreach my $pair ('bigint, bigint', 'bigint, integer', 'text, text', 'name, name',
		'timestamptz, timestamptz')
	{
		my ($left, $right) = split /, /, $pair;
		push @all, planted_function('compared', $pair, 'boolean');
		push @all, map { "CREATE OPERATOR garden.$_ (FUNCTION = garden.compared, "
			. "LEFTARG = $left, RIGHTARG = $right);\n" } qw(= < > <= >= <>);
	}
	return @all;
}

# What the catalog has, once more: functions, types, and a type that can be
# taken for another.
sub namesakes
{
	return (
		planted_function('clock_timestamp', '', 'timestamptz'),
		planted_function('pg_extension_config_dump', 'regclass, text', 'void'),
		planted_function('format', 'text, VARIADIC text[]', 'text'),
		planted_function('quote_ident', 'text', 'text'),
		planted_function('int8', 'integer', 'bigint'),
		(map { "CREATE DOMAIN garden.$_ AS pg_catalog.int4;\n" }
			qw(text int8 bool name timestamptz interval)),
		(map { "CREATE TABLE garden.$_ (oid oid, rolname name);\n" }
			qw(pg_class pg_proc pg_roles pg_authid pg_auth_members)),
		"CREATE TYPE garden.number AS (n pg_catalog.int8);\n",
		planted_function('to_int8', 'garden.number', 'pg_catalog.int8'),
		"CREATE CAST (garden.number AS pg_catalog.int8)
			WITH FUNCTION garden.to_int8(garden.number) AS IMPLICIT;\n");
}

# What members of the extension, and their parts, depend on but is neither one
# nor pinned.
my $strangers = <<'SQL';
WITH RECURSIVE member AS (
	SELECT classid, objid FROM pg_depend
	WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
		AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zklock')
	UNION
	SELECT d.classid, d.objid
	FROM pg_depend d JOIN member m ON d.refclassid = m.classid AND d.refobjid = m.objid
	WHERE d.deptype IN ('a', 'i'))
SELECT pg_describe_object(d.classid, d.objid, 0) || ' on '
	|| pg_describe_object(d.refclassid, d.refobjid, d.refobjsubid)
FROM pg_depend d JOIN member m USING (classid, objid)
WHERE d.refclassid NOT IN ('pg_namespace'::regclass, 'pg_extension'::regclass,
		'pg_language'::regclass)
	AND (d.refclassid, d.refobjid) NOT IN (SELECT classid, objid FROM member)
SQL

subtest 'CREATE EXTENSION and calls run none of a thousand planted objects' => sub {
	prepare('overgrown');
	my @planted = (overloads(), operators(), namesakes());
	cmp_ok(scalar @planted, '>', 1000, 'planted: ' . @planted);
	plant(@planted);
	my ($rc, $err) = create_extension();
	is($rc, 0, 'the extension can be created');
	is(alarm_rang(), 'f', 'which runs nothing that was planted');
	is(sql($strangers), '', 'functions, views and tables depend on their own kind alone');
	is(sql(<<'SQL'), '', 'no body is parsed only when it runs, but with a search_path of its own');
SELECT p.oid::regprocedure FROM pg_proc p JOIN pg_language l ON p.prolang = l.oid
WHERE p.proname ~ '^_?zk_' AND pg_get_userbyid(p.proowner) <> 'planter'
	AND l.lanname NOT IN ('c', 'internal') AND p.prosqlbody IS NULL
	AND p.proconfig IS DISTINCT FROM ARRAY['search_path=pg_catalog, pg_temp']
SQL

	foreach my $role ('', 'visitor')
	{
		my $session = background($node, database => $database);
		$session->query_safe("SET ROLE $role") if $role;
		$session->query_safe("SELECT garden.zk_lock('tree'::text, NULL::interval, 1)");
		foreach my $function (@functions)
		{
			my ($name, $types, $list) = @$function;
			my $values = join ', ',
			  map { ($_ eq 'text' ? "'tree'" : $_ eq 'bigint' ? 5 : 'NULL') . "::$_" }
			  split /, /, $types;
			next if $name =~ /^(zk_unlock_all|zk_disconnect|_zk_role_\w+|_zk_privileges_\w+|_zk_fences_applied)$/;
			$values =~ s/::(?=_zk_)/::garden./g;
			my $verb = $name eq 'zk_commit_and_lock' ? 'CALL' : 'SELECT';
			# A busy server may take longer to answer, and then a try raises.
			foreach (1 .. 20)
			{
				$session->query("SET lock_timeout = '100ms'; $verb garden.$name($values)");
				last if $session->sqlstate !~ /^08/;
			}
			like($session->sqlstate, qr/^(00000|22...|42501|42704|55...|2202E|40001)$/,
				"$name($types) as " . ($role || 'owner') . ': ' . $session->sqlstate)
			  or diag($session->error);
		}
		$session->query_safe("SELECT * FROM garden.$_") foreach qw(zk_session_locks zk_session);
	}
	is(alarm_rang(), 'f', 'nor does a call');
};

# The same signature is refused, so nobody can own what we call; and a function
# whose defaults make it fit is ambiguous at worst.
subtest 'CREATE EXTENSION does not adopt planted objects of our names' => sub {
	my @tries = map { [ "$_->[0]($_->[1])", planted_function($_->[0], $_->[1]), 1 ] } @imitable;
	foreach my $relation (qw(zk_fences zk_session_locks zk_session))
	{
		push @tries, [ "table $relation", "CREATE TABLE garden.$relation (name text, token bigint);", 1 ];
		push @tries, [ "view $relation", "CREATE VIEW garden.$relation AS SELECT 1;", 1 ];
		push @tries, [ "sequence $relation", "CREATE SEQUENCE garden.$relation;", 1 ];
		push @tries, [ "type $relation", "CREATE DOMAIN garden.$relation AS text;", 1 ];
	}
	foreach my $ours (grep { $is_called{ $_->[0] } } @imitable)
	{
		my $arguments = join ', ', (split /, /, $ours->[1]), 'more integer DEFAULT 1';
		push @tries, [ "$ours->[0] with a default", planted_function($ours->[0], $arguments), 0 ];
	}
	prepare('squatted');
	foreach my $try (@tries)
	{
		my ($what, $planted, $must_fail) = @$try;
		plant($planted);
		my $objects = 'SELECT (SELECT count(*) FROM pg_class), (SELECT count(*) FROM pg_proc)';
		my $before = sql($objects);
		my ($rc, $err) = create_extension();
		if ($rc == 0)
		{
			ok(!$must_fail, "$what: created all the same");
			is(sql($strangers), '', "$what: without it");
			sql('DROP EXTENSION zklock');
		}
		else
		{
			like($err, qr/ERROR: .*(already exists|is not unique|an associated type)/, "$what: refused");
			is(sql($objects), $before, "$what: and nothing remains");
		}
		is(alarm_rang(), 'f', "$what: not run");
		sql('DROP SCHEMA garden CASCADE');
		make_garden();
	}
};

done_testing();
