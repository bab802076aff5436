
=pod

=head1 NAME

Programs - programs that a test starts, and that do not outlive it

=head1 SYNOPSIS

  use Programs;

  is(run_program('go', 'build', $source), 0, 'it compiles');
  my $service = start_program('java', 'Service');
  my $port = $service->wait_output(qr/listens on (\d+)/);
  is($service->finish, 0, 'it ends well');

=cut

package Programs;

use v5.36;

use Carp;
use Exporter 'import';
use IPC::Run;
use Patience qw(stretched);
use PostgreSQL::Test::Utils ();
use Test::More import => ['note'];
use ZooKeeper qw(poll_until);

our @EXPORT = qw(start_program run_program last_output);

# All of this test, for END.
my @programs;

=pod

=head1 FUNCTIONS

=head2 start_program(command), run_program(command), last_output

In the background; to its end, returning what finish does. What the last one that was started
has said.

=cut

sub start_program (@command)
{
	my $self = bless { in => '', out => '' }, __PACKAGE__;
	# Should the test be killed, its programs go too. Go takes a minute for the standard library.
	$self->{run} = IPC::Run::start([ 'setpriv', '--pdeathsig', 'KILL', @command ],
		'<', \$self->{in}, '>', \$self->{out}, '2>&1',
		IPC::Run::timeout(stretched(3 * $PostgreSQL::Test::Utils::timeout_default)));
	push @programs, $self;
	return $self;
}

sub run_program (@command) { return start_program(@command)->finish; }
sub last_output { return $programs[-1]->output; }

=pod

=head1 METHODS

=head2 output, wait_output($pattern), type($text)

What it has said until now, with its errors; the same once it is like that, or what the
pattern has in parentheses: dies if it ends before. Something for its standard input.

=head2 finish, signal($name), kill

Its exit status, once it has ended, or 128 and the signal. It gets that signal. It is ended at once.

=cut

sub output ($self)
{
	$self->{run}->pump_nb if $self->{run}->pumpable;
	return $self->{out};
}

sub wait_output ($self, $pattern)
{
	poll_until
	{
		my $is_over = !$self->{run}->pumpable;
		$self->output =~ $pattern || $is_over && croak "it has ended, and has said: $self->{out}"
	}
	"output like $pattern", 60;
	return $self->{out} =~ $pattern ? $1 // $self->{out} : undef;
}

sub type ($self, $text)
{
	$self->{in} .= $text;
	return;
}

sub finish ($self)
{
	$self->{run}->finish;
	note($self->{out}) if $self->{out} ne '';
	my $status = $self->{run}->full_result(0);
	return $status & 127 ? 128 + ($status & 127) : $status >> 8;
}

sub signal ($self, $name)
{
	$self->{run}->signal($name);
	return;
}

sub kill ($self)
{
	$self->{run}->kill_kill(grace => 0);
	return;
}

END
{
	my $status = $?;
	$_->kill foreach @programs;
	$? = $status;
}

1;
