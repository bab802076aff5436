
=pod

=head1 NAME

Torture::Connection - one connection of a worker to a database

=head1 DESCRIPTION

A thin coat over DBD::Pg that does one thing: every failure is thrown as a
Torture::Failure with SQLSTATE, message and whether the connection is gone.
The SQLSTATE alone does not tell that: zklock reports trouble with ZooKeeper in
class 08, too. Statements are plain text; BEGIN and COMMIT are the caller's.

=cut

package Torture::Connection;

use v5.36;

use DBI;

=pod

=head2 new($connstr, $application_name)

=cut

sub new ($class, $connstr, $name)
{
	# DBD::Pg passes everything behind "dbi:Pg:" to libpq, with ; for blanks.
	(my $source = "dbi:Pg:$connstr") =~ s/ /;/g;
	my $dbh = DBI->connect(
		"$source;application_name=$name",
		'', '',
		{
			RaiseError => 0,
			PrintError => 0,
			PrintWarn => 0,
			AutoCommit => 1,
			AutoInactiveDestroy => 1,
			pg_server_prepare => 0 });
	die Torture::Failure->new($DBI::state, $DBI::errstr, 1) unless $dbh;
	my $self = bless { dbh => $dbh }, $class;
	$self->{pid} = $dbh->{pg_pid};
	return $self;
}

# The process id of the backend.
sub pid { return $_[0]->{pid}; }

=pod

=head2 execute($sql, @values), value($sql, @values)

value returns the first column of the first row.

=head2 value_with_warnings($warnings, $sql, @values)

The same, and adds the server's warnings to that array, also if it fails.

=cut

sub execute ($self, $sql, @values)
{
	my $dbh = $self->{dbh};
	defined $dbh->do($sql, undef, @values) or $self->_fail;
	return;
}

sub value ($self, $sql, @values)
{
	my $dbh = $self->{dbh};
	my ($value) = $dbh->selectrow_array($sql, undef, @values);
	$self->_fail if $dbh->err;
	return $value;
}

sub value_with_warnings
{
	my ($self, $warnings, $sql, @values) = @_;
	local $SIG{__WARN__} = sub { push @$warnings, @_; };
	local $self->{dbh}{PrintWarn} = 1;
	return $self->value($sql, @values);
}

# All rows as arrays.
sub rows ($self, $sql = undef, @values)
{
	my $rows = $self->{dbh}->selectall_arrayref($sql, undef, @values);
	$self->_fail if $self->{dbh}->err;
	return $rows;
}

sub close ($self)
{
	$self->{dbh}->disconnect;
	return;
}

# err and state are overwritten by the ping, so they are read before it.
sub _fail ($self)
{
	my $dbh = $self->{dbh};
	my ($state, $message) = ($dbh->state, $dbh->errstr);
	my $alive = $dbh->ping > 0;
	# DBD::Pg's word for having none.
	$state = '?????' if !$alive && $state eq '22000';
	die Torture::Failure->new($state, $message, !$alive);
}

package Torture::Failure;

use v5.36;

sub new ($class, $sqlstate, $message, $is_lost)
{
	$message //= 'no message';
	$message =~ s/\s+/ /g;
	return bless {
		sqlstate => $sqlstate || '?????',
		message => substr($message, 0, 300),
		is_lost => $is_lost ? 1 : 0 }, $class;
}

sub sqlstate { return $_[0]->{sqlstate}; }
sub message { return $_[0]->{message}; }
sub is_lost { return $_[0]->{is_lost}; }

1;
