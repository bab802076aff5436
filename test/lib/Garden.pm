
=pod

=head1 NAME

Garden - objects that a role has planted in the schema where the extension is to be created

=head1 SYNOPSIS

  my $garden = Garden->new($node);
  $garden->make('overgrown');
  $garden->plant($garden->overloads, $garden->operators, $garden->namesakes);
  $garden->create_extension;
  is($garden->alarm_rang, 'f', 'nothing that was planted was run');

=head1 DESCRIPTION

The role planter, who is no superuser, may create objects in the schema garden. What it plants
there has the names of the extension's own functions, or of what its script and its bodies use,
with arguments that fit better. Each rings an alarm when it is run: a sequence, which tells also
of what was rolled back. L<Planted> is about scripts that are run beside such objects; here it is
CREATE EXTENSION itself.

=cut

package Garden;

use v5.36;

use ZkLockTest qw(ask);

=pod

=head1 METHODS

=head2 new($node)

Makes the roles planter and visitor in that cluster. What there is to be imitated is read from
its database postgres, where the extension is as it should be.

=cut

sub new ($class, $node)
{
	my $self = bless { node => $node, database => 'postgres' }, $class;
	$self->{functions} = [ map { [ split /\|/, $_, -1 ] } split /\n/, $self->sql(<<~'SQL') ];
		SELECT p.proname, oidvectortypes(p.proargtypes), p.proargtypes::regtype[]
		FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
			JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
		WHERE e.extname = 'zklock' AND d.deptype = 'e'
		ORDER BY 1, 2
		SQL
	$self->{is_ours} = { map { ("$_->[0]($_->[1])" => 1) } $self->functions };
	push @{ $self->{arguments}{ $_->[0] } }, [ split /, /, $_->[1] ] foreach $self->imitable;
	$self->sql('CREATE ROLE planter; CREATE ROLE visitor');
	return $self;
}

=pod

=head2 functions, imitable, is_called($name)

The extension's functions, each as its name, the list of its argument types, and that list as an
array; those of them that somebody can have made before, because no type of ours is among the
arguments; and whether one of ours calls functions of that name, or the script does.

=cut

sub functions ($self) { return @{ $self->{functions} }; }
sub imitable ($self) { return grep { $_->[1] !~ /cstring|internal/ } $self->functions; }

sub is_called ($self, $name)
{
	return $name =~ /^_?zk_(fence.*|(all_|session_)?locks|lock_queue|session|waits.*|process|mermaid)$/;
}

=pod

=head2 make($database), make_schema, drop_schema, database, sql($sql)

Makes a database with a garden, in which all else is done from now on; the garden alone, anew
after it was dropped; that database; and what a superuser is answered there.

=cut

sub sql ($self, $sql) { return ask($self->{node}, $sql, $self->{database}); }
sub database ($self) { return $self->{database}; }

sub make ($self, $database)
{
	$self->sql("CREATE DATABASE $database");
	$self->{database} = $database;
	return $self->make_schema;
}

sub make_schema ($self)
{
	$self->sql(<<~'SQL');
		CREATE SCHEMA garden;
		GRANT ALL ON SCHEMA garden TO planter;
		GRANT USAGE ON SCHEMA garden TO PUBLIC;
		SET ROLE planter;
		CREATE SEQUENCE garden.alarm;
		GRANT ALL ON SEQUENCE garden.alarm TO PUBLIC;
		SQL
	return;
}

sub drop_schema ($self) { return $self->sql('DROP SCHEMA garden CASCADE'); }

=pod

=head2 plant(@statements), alarm_rang, create_extension

The planter runs these statements; whether anything planted was run since, as t or f; the
superuser creates the extension in the garden, which returns the error, or "".

=cut

sub plant ($self, @statements) { return $self->sql("SET ROLE planter; SET check_function_bodies = off;\n" . join '', @statements); }
sub alarm_rang ($self) { return $self->sql('SELECT is_called FROM garden.alarm'); }

sub create_extension ($self)
{
	return eval { $self->sql('CREATE EXTENSION zklock SCHEMA garden'); 1 } ? '' : $@;
}

=pod

=head2 planted_function($name, $arguments, $result)

The statement for a function that rings.

=cut

sub planted_function ($self, $name, $arguments, $result = 'void')
{
	my $value = $result eq 'void' ? '' : ' NULL';
	return "CREATE FUNCTION garden.$name($arguments) RETURNS $result LANGUAGE plpgsql AS "
	  . "'BEGIN PERFORM pg_catalog.nextval(''garden.alarm''); RETURN$value; END';\n";
}

# All lists of up to that many of the types.
sub _lists ($length, @types)
{
	my @all = my @last = ([]);
	foreach (1 .. $length)
	{
		@last = map { my $list = $_; map { [ @$list, $_ ] } @types } @last;
		push @all, @last;
	}
	return @all;
}

=pod

=head2 overloads, operators, namesakes

Statements for overloads of the extension's functions: of those that are called inside with all
lists of types that the arguments could be taken for, of the rest with one argument replaced; for
operators of common types; and for what the catalog has, once more: functions, types, tables, and
a type that can be taken for another.

=cut

sub overloads ($self)
{
	my @all;
	foreach my $name (sort keys %{ $self->{arguments} })
	{
		my @lists = (
			(map { [$_] } qw(text varchar name bpchar anyelement anycompatible bigint)),
			map { ["VARIADIC $_"] } qw(text[] bigint[] anyarray));
		@lists = (_lists(3, qw(text varchar name integer bigint anyelement anycompatible)),
			_lists(2, qw(text[] numeric timestamptz)), @lists,
			map { ( [ 'text', "VARIADIC $_" ], [ 'text', 'bigint', "VARIADIC $_" ] ) }
			  qw(text[] name[] bigint[] anyarray))
		  if $self->is_called($name);
		push @lists, map { _with_one_replaced(@$_) } @{ $self->{arguments}{$name} };
		my %seen;
		foreach my $list (@lists)
		{
			(my $types = join ', ', @$list) =~ s/timestamptz/timestamp with time zone/g;
			$types =~ s/varchar/character varying/g;
			(my $key = "$name($types)") =~ s/VARIADIC //;
			push @all, $self->planted_function($name, $types)
			  unless $self->{is_ours}{$key} || $seen{$key}++;
		}
	}
	return @all;
}

# Lists of types like this one, each with another type in one place.
sub _with_one_replaced (@types)
{
	my @lists;
	foreach my $i (0 .. $#types)
	{
		foreach my $type (qw(varchar name text bigint integer anyelement))
		{
			my @list = @types;
			$list[$i] = $type;
			push @lists, \@list;
		}
	}
	return @lists;
}

sub operators ($self)
{
	my @all = ($self->planted_function('compared', 'anyelement, anyelement', 'boolean'));
	foreach my $pair ('bigint, bigint', 'bigint, integer', 'text, text', 'name, name',
		'timestamptz, timestamptz')
	{
		my ($left, $right) = split /, /, $pair;
		push @all, $self->planted_function('compared', $pair, 'boolean');
		push @all, map { "CREATE OPERATOR garden.$_ (FUNCTION = garden.compared, "
			. "LEFTARG = $left, RIGHTARG = $right);\n" } qw(= < > <= >= <>);
	}
	return @all;
}

sub namesakes ($self)
{
	return (
		$self->planted_function('clock_timestamp', '', 'timestamptz'),
		$self->planted_function('pg_extension_config_dump', 'regclass, text', 'void'),
		$self->planted_function('format', 'text, VARIADIC text[]', 'text'),
		$self->planted_function('quote_ident', 'text', 'text'),
		$self->planted_function('int8', 'integer', 'bigint'),
		(map { "CREATE DOMAIN garden.$_ AS pg_catalog.int4;\n" }
			qw(text int8 bool name timestamptz interval)),
		(map { "CREATE TABLE garden.$_ (oid oid, rolname name);\n" }
			qw(pg_class pg_proc pg_roles pg_authid pg_auth_members)),
		"CREATE TYPE garden.number AS (n pg_catalog.int8);\n",
		$self->planted_function('to_int8', 'garden.number', 'pg_catalog.int8'),
		"CREATE CAST (garden.number AS pg_catalog.int8)
			WITH FUNCTION garden.to_int8(garden.number) AS IMPLICIT;\n");
}

=pod

=head2 strangers

What members of the extension, and their parts, depend on but is neither one of them nor pinned,
a line each: what was planted, if the extension has taken it for its own.

=cut

sub strangers ($self)
{
	return $self->sql(<<~'SQL');
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
}

1;
