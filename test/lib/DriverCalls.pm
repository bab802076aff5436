
=pod

=head1 NAME

DriverCalls - calls of zklock with their arguments as parameters, and programs that send them

=head1 SYNOPSIS

  use DriverCalls;

  my @calls = positional_calls($node);
  is(join(' ', misunderstood(\@calls, 'python3', 'calls.py', 'psycopg2', $dsn)), '', 'all are understood');

=head1 DESCRIPTION

A call is a line for F<test/others/calls.py>, which says what is in it. The programs beside that one
read the same lines.

=cut

package DriverCalls;

use v5.36;

use Exporter 'import';
use PostgreSQL::Test::Utils ();
use Programs;

our @EXPORT = qw(driver_call positional_calls driver_outcomes misunderstood);

=pod

=head1 FUNCTIONS

=head2 driver_call($sql, @parameters)

A call.

=cut

sub driver_call ($sql, @parameters) { return join "\t", $sql, @parameters; }

=pod

=head2 positional_calls($node, $interval = '?')

Calls of all functions that have arguments, with each number of arguments that they take, by
position. C<$interval> is what stands for an interval: a driver may need a cast.

=cut

sub positional_calls ($node, $interval = '?')
{
	my @functions = split /\n/, $node->safe_psql('postgres', <<'SQL');
SELECT concat_ws('|', CASE p.prokind WHEN 'p' THEN 'CALL' ELSE 'SELECT * FROM' END, p.proname,
	p.pronargs - p.pronargdefaults,
	(SELECT string_agg(concat(p.proargnames[i], ' ', t::regtype), ',' ORDER BY i)
		FROM unnest(p.proargtypes) WITH ORDINALITY AS a(t, i)))
FROM pg_proc AS p JOIN pg_depend AS d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
WHERE p.proname ~ '^zk_' AND p.pronargs > 0
ORDER BY p.oid
SQL
	my %value_of = (mode => 's:exclusive', modes => 'l:exclusive', privilege => 's:lock', role => 's:public');
	my %value_of_type = (interval => 'i:5 s', integer => 'n:1', bigint => 'n:1', boolean => 'b:true');
	state $locks = 0;
	my @calls;
	foreach my $function (@functions)
	{
		my ($command, $name, $least, $arguments) = split /\|/, $function;
		my @arguments = split /,/, $arguments;
		foreach my $count ($least .. @arguments)
		{
			my $lock = 'f' . ++$locks;	# one of its own: some locks outlive the call
			my (@marks, @parameters);
			foreach my $argument (@arguments[ 0 .. $count - 1 ])
			{
				my ($word, $type) = split / /, $argument;
				push @marks, $type eq 'interval' ? $interval : '?';
				push @parameters, $value_of{$word} // $value_of_type{$type} // ($type eq 'text[]' ? "l:$lock" : "s:$lock");
			}
			push @calls, driver_call("$command $name(" . join(', ', @marks) . ')', @parameters) if $count;
		}
	}
	return @calls;
}

=pod

=head2 driver_outcomes($calls, @command)

What the program says of the calls: for each, the outcome and the locks held. Dies, with all that it says,
unless it has done all of them.

=head2 misunderstood($calls, @command)

The calls that PostgreSQL, or the driver, takes for something else, with what is said of them. An
error of zklock is none: these calls take locks that are not held, for example.

=cut

sub driver_outcomes ($calls, @command)
{
	my $file = PostgreSQL::Test::Utils::tempdir_short() . '/calls';
	PostgreSQL::Test::Utils::append_to_file($file, "$_\n") foreach @$calls;
	my $status = run_program(@command, $file);
	my @outcomes = grep { /^(?:done|[0-9A-Z]{5}): / } split /\n/, last_output();
	die "exit status $status: " . last_output() if $status || @outcomes != @$calls;
	return @outcomes;
}

sub misunderstood ($calls, @command)
{
	my @outcomes = driver_outcomes($calls, @command);
	return map { ("$calls->[$_]: $outcomes[$_]") } grep { $outcomes[$_] !~ /^(?:done|55000|40001)\b/ } 0 .. $#outcomes;
}

1;
