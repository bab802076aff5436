
=pod

=head1 NAME

Terminal - a psql on a terminal of its own, as a person has it

=head1 SYNOPSIS

  my $terminal = Terminal->new('test/demo', 'berlin');
  print $terminal->type('SELECT 1;');
  $terminal->start('SELECT pg_sleep(1);');
  print $terminal->finish;

=head1 DESCRIPTION

The program runs on a pseudo terminal. So psql shows its prompts, command tags and messages in
the order in which a person sees them, and goes on after its connection is lost. Its prompt must be
the name of a cluster in small letters, then C<=>, C<-> or the like, then C<#>.

=cut

package Terminal;

use v5.36;

use Carp;
use IPC::Run;
use Patience qw(stretched);
use PostgreSQL::Test::Utils;

my $prompt = qr/^[a-z]+[-=!('"][*!?]?# \z/m;

=pod

=head1 METHODS

=head2 new(@command)

Starts the program, and returns when it shows its first prompt. Dies if it ends before.

=cut

sub new ($class, @command)
{
	my $self = bless { in => '', out => '', command => "@command" }, $class;
	$self->{timeout} = IPC::Run::timeout(stretched($PostgreSQL::Test::Utils::timeout_default));
	# Neither a pager nor a file of the person who runs the test changes what is shown.
	local @ENV{qw(PSQL_PAGER PAGER PSQLRC TERM)} = ('', '', '/dev/null', 'dumb');
	# Errors go to the same terminal. psql reads without a line editor, which would echo otherwise.
	$self->{run} = IPC::Run::start([ 'sh', '-c', 'exec "$@" 2>&1', 'sh', @command, '-n' ],
		'<pty<', \$self->{in}, '>pty>', \$self->{out}, $self->{timeout});
	$self->finish;
	return $self;
}

=pod

=head2 start($line)

Types the line and Enter, and returns when the terminal shows the line.

=cut

sub start ($self, $line)
{
	$self->{timeout}->start;
	$self->{out} = '';
	$self->{in} .= "$line\n";
	$self->_pump until $self->{out} =~ /\n/;
	return;
}

=pod

=head2 finish

Awaits the next prompt. Returns what the terminal has shown since the last call, without the line
that was typed.

=cut

sub finish ($self)
{
	$self->{timeout}->start;
	$self->_pump until $self->{out} =~ $prompt;
	my $shown = $self->{out} =~ s/\r//gr;
	$self->{out} = '';
	$shown =~ s/\A.*\n//;
	$shown =~ s/(.*)\z//;
	$self->{prompt} = $1;
	return $shown;
}

=pod

=head2 type($line)

start and finish.

=cut

sub type ($self, $line)
{
	$self->start($line);
	return $self->finish;
}

=pod

=head2 prompt

The prompt that stands on the terminal now.

=head2 shows_more

Whether the terminal shows anything behind the line that was typed.

=cut

sub prompt ($self) { return $self->{prompt}; }

sub shows_more ($self)
{
	$self->{run}->pump_nb;
	return $self->{out} =~ /\n./s;
}

=pod

=head2 quit

Types \q, and returns the exit status of the program.

=cut

sub quit ($self)
{
	$self->{in} .= "\\q\n";
	$self->{run}->finish;
	return $self->{run}->result(0);
}

sub _pump ($self)
{
	croak "\"$self->{command}\" has ended: $self->{out}" if !$self->{run}->pumpable;
	$self->{run}->pump;
	return;
}

1;
