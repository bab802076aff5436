
=pod

=head1 NAME

Planted - a database whose owner has planted what others could take for PostgreSQL's or ours

=head1 SYNOPSIS

  my $planted = Planted->new($node, 'zklock');    # where the extension is, in database postgres
  $planted->make('victim');
  $planted->run('victim', user => 'exporter', sql => 'SELECT 1');
  is($planted->alarm('victim'), '', 'nothing was run');

=head1 DESCRIPTION

The owner is no superuser. In the schema public he has all that pg_catalog has, once more:
functions, aggregates and operators with the same arguments, types, tables and views; and
functions and operators that fit better than these, for arguments that PostgreSQL would
convert. Likewise all functions and views of zklock. A cast needs a type of his own. Each
rings when it is run: it moves a sequence, which no ROLLBACK moves back, and if it runs as a
superuser it makes the owner one.

=cut

package Planted;

use v5.36;

use IPC::Run;
use PostgreSQL::Test::Utils;
use ZkLockTest qw(ask);

our $owner = 'planter';

# The search_path of a database is its owner's to set. With the first, what has the same
# arguments wins, with the second what fits better, with the third types: they would stop many
# a statement that the others can take over.
our @paths = ('public, pg_catalog, zklock', '"$user", public', 'types, pg_catalog, zklock');

# Each prints statements that make what it is about. What cannot be made (types that only C can
# take, for example) fails, and is not missed: the caller cannot name it either.
my $functions = <<'SQL';
SELECT format('CREATE FUNCTION public.%I(%s) RETURNS %s LANGUAGE plpgsql AS %L;', p.proname,
	pg_get_function_arguments(p.oid), pg_get_function_result(p.oid),
	format('BEGIN PERFORM public.ring(%L); RETURN%s; END', 'function ' || p.proname,
		CASE WHEN p.proretset OR p.prorettype = 'void'::regtype OR 'o' = ANY (p.proargmodes) THEN '' ELSE ' NULL' END))
FROM pg_proc AS p
WHERE p.pronamespace IN ('pg_catalog'::regnamespace, 'zklock'::regnamespace) AND p.prokind = 'f'
	AND p.prorettype <> 'internal'::regtype
UNION ALL
SELECT DISTINCT format('CREATE FUNCTION public.step(%s) RETURNS %s LANGUAGE plpgsql AS %L;',
	concat_ws(', ', prorettype::regtype, NULLIF(oidvectortypes(proargtypes), '')), prorettype::regtype,
	'BEGIN PERFORM public.ring(''aggregate''); RETURN $1; END')
FROM pg_proc WHERE prokind = 'a'
UNION ALL
SELECT format('CREATE AGGREGATE public.%I(%s) (SFUNC = public.step, STYPE = %s);', proname,
	CASE WHEN pronargs > 0 THEN oidvectortypes(proargtypes) ELSE '*' END, prorettype::regtype)
FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace AND prokind = 'a'
SQL

my $operators = <<'SQL';
SELECT DISTINCT format('CREATE FUNCTION public.operate_%s(%s) RETURNS %s LANGUAGE plpgsql AS %L;', oprresult,
	concat_ws(', ', NULLIF(oprleft, 0)::regtype, oprright::regtype), oprresult::regtype,
	'BEGIN PERFORM public.ring(''operator''); RETURN NULL; END')
FROM pg_operator WHERE oprresult <> 0
UNION ALL
SELECT format('CREATE OPERATOR public.%s (FUNCTION = public.operate_%s, %sRIGHTARG = %s);', oprname, oprresult,
	'LEFTARG = ' || NULLIF(oprleft, 0)::regtype || ', ', oprright::regtype)
FROM pg_operator WHERE oprnamespace = 'pg_catalog'::regnamespace
SQL

my $relations = <<'SQL';
SELECT format('CREATE VIEW public.%I AS SELECT %s WHERE public.ring(%L);', c.relname,
	string_agg(format('NULL::%s AS %I', CASE t.typnamespace WHEN 'pg_catalog'::regnamespace
		THEN format_type(a.atttypid, a.atttypmod) ELSE 'text' END, a.attname), ', ' ORDER BY a.attnum),
	'relation ' || c.relname)
FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
	JOIN pg_type AS t ON t.oid = a.atttypid
WHERE c.relkind IN ('r', 'v') AND c.relnamespace IN ('pg_catalog'::regnamespace, 'zklock'::regnamespace)
GROUP BY c.relname
SQL

my $types = <<'SQL';
SELECT format('CREATE DOMAIN types.%1$I AS pg_catalog.%1$I CHECK (public.ring(%2$L));', typname, 'type ' || typname)
FROM pg_type WHERE typnamespace = 'pg_catalog'::regnamespace AND typtype = 'b' AND typcategory <> 'A'
SQL

# Kinds of types that are converted among each other without being asked.
my @kinds = (
	[qw(text varchar bpchar name "char")],
	[qw(oid regclass regrole regnamespace regproc regprocedure regtype)],
	[qw(int2 int4 int8 numeric float8)],
	[qw(timestamptz timestamp date)],
	['interval'], ['boolean'], [qw(text[] name[])]);

=pod

=head2 new($node, $schema)

Of a cluster whose database postgres has zklock in the schema zklock. Makes the owner, and the
database of which the others are copies.

=cut

sub new ($class, $node, @names)
{
	my $self = bless { node => $node, place => PostgreSQL::Test::Utils::tempdir() }, $class;
	$node->safe_psql('postgres', "CREATE ROLE $owner LOGIN");
	$node->safe_psql('postgres', "CREATE DATABASE garden OWNER $owner");
	my @sql = (
		'CREATE SCHEMA types; GRANT USAGE ON SCHEMA types TO PUBLIC; CREATE SEQUENCE public.alarm;',
		'GRANT ALL ON SEQUENCE public.alarm TO PUBLIC;',
		<<~SQL);
		CREATE FUNCTION public.ring(what pg_catalog.text) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog AS \$\$ BEGIN
			PERFORM nextval('public.alarm');
			RAISE WARNING 'planted: %', what;
			IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
				ALTER ROLE $owner SUPERUSER;
			END IF;
			RETURN true;
		END \$\$;
		SET check_function_bodies = off;
		SQL
	push @sql, $node->safe_psql('postgres', "SET search_path = pg_catalog; $_") foreach $functions, $operators, $relations, $types;
	push @sql, _better_operators(), map { _better_functions($_) } @names;
	push @sql, <<~'SQL';
		GRANT SELECT ON ALL TABLES IN SCHEMA public TO PUBLIC;
		CREATE TYPE public.number AS (n int8);
		CREATE FUNCTION public.to_int8(public.number) RETURNS int8 LANGUAGE plpgsql AS 'BEGIN PERFORM public.ring(''cast''); RETURN 1; END';
		CREATE CAST (public.number AS int8) WITH FUNCTION public.to_int8(public.number) AS IMPLICIT;
		SQL
	$self->run('garden', user => $owner, sql => join "\n", 'SET search_path = pg_catalog;', @sql);
	return $self;
}

# Functions of that name with one, two or three arguments of other types than it has.
sub _better_functions ($name)
{
	my @few = qw(text name varchar bigint regrole);
	my @lists = ((map { [$_] } map { @$_ } @kinds), map { my $first = $_; map { [ $first, $_ ] } @few } @few);
	push @lists, map { my $second = $_; map { [ 'text', $second, $_ ] } @few } @few if $name =~ /^(?:format|concat)$/;
	return map {
		sprintf q{CREATE FUNCTION public.%s(%s) RETURNS text LANGUAGE plpgsql AS 'BEGIN PERFORM public.ring(''better %s''); RETURN NULL; END';},
		  $name, join(', ', @$_), $name
	} @lists;
}

sub _better_operators
{
	my @sql;
	foreach my $kind (@kinds)
	{
		foreach my $left (@$kind)
		{
			foreach my $right (@$kind)
			{
				push @sql, "CREATE FUNCTION public.operate($left, $right) RETURNS boolean LANGUAGE plpgsql AS "
				  . "'BEGIN PERFORM public.ring(''better operator''); RETURN NULL; END';",
				  map { "CREATE OPERATOR public.$_ (FUNCTION = public.operate, LEFTARG = $left, RIGHTARG = $right);" }
				  qw(= <> < > || ~ ~~ + -);
			}
		}
	}
	return @sql;
}

=pod

=head2 make($database)

A copy.

=cut

sub make ($self, $database)
{
	$self->{node}->safe_psql('postgres', "CREATE DATABASE $database TEMPLATE garden OWNER $owner");
	ask($self->{node}, 'SELECT', $database);
	return;
}

=pod

=head2 set_path($database, $path)

As its owner does.

=cut

sub set_path ($self, $database, $path)
{
	ask($self->{node}, "SET ROLE $owner; ALTER DATABASE $database SET search_path = $path");
	return;
}

=pod

=head2 run($database, user => name, sql => text)

By psql, which asks nothing itself. Returns its status and what it has written to both.

=cut

sub run ($self, $database, %option)
{
	my $file = "$self->{place}/run.sql";
	open my $handle, '>:encoding(UTF-8)', $file or die "could not write $file: $!";
	print $handle $option{sql};
	close $handle;
	my $connection = $self->{node}->connstr($database);
	$connection .= " user=$option{user}" if $option{user};
	my $output = '';
	IPC::Run::run([ 'psql', '-X', '-q', '-A', '-t', '-d', $connection, '-f', $file ], '<', \'', '>', \$output, '2>&1');
	return ($? >> 8, $output);
}

=pod

=head2 alarm($database)

What has rung since the last time, and who has become superuser: empty if nothing was planted well.

=cut

sub alarm ($self, $database)
{
	# Nothing in these that he could have planted, and in a session from before.
	my $rang = ask($self->{node}, 'SELECT is_called FROM public.alarm', $database);
	ask($self->{node}, 'ALTER SEQUENCE public.alarm RESTART', $database) if $rang eq 't';
	my $is_super = ask($self->{node}, "SELECT rolsuper FROM pg_roles WHERE rolname = '$owner'");
	ask($self->{node}, "ALTER ROLE $owner NOSUPERUSER") if $is_super eq 't';
	return join ', ', ($rang eq 'f' ? () : 'something was run'), ($is_super eq 'f' ? () : 'the owner is superuser');
}

1;
