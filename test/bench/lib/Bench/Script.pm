
=pod

=head1 NAME

Bench::Script - what the programs of the benchmark have in common

=head1 SYNOPSIS

  use Bench::Script;    # ahead of everything that uses PostgreSQL's test modules
  ...
  my %option = (rounds => 0);
  run_script(\&work, \%option, 'rounds=i');

=head1 DESCRIPTION

Progress goes to the standard output that there was at the start: PostgreSQL's
test modules take it over for their log.

=cut

package Bench::Script;

use v5.36;

my $screen;
BEGIN { open $screen, '>&', \*STDOUT or die $!; $screen->autoflush(1); }

use Exporter 'import';
use Getopt::Long;
use PostgreSQL::Test::Utils;
use Time::HiRes qw(time);
use ZooKeeper;

our @EXPORT = qw(say_line write_file run_script);

my $start = time();
my $out;    # directory for what is written

=pod

=head2 run_script(\&work, \%option, names)

Reads the options bin, out and those of the names, as Getopt::Long takes them, into
%option; calls work with a directory of its own, and ends the program with the
status that it returns, or 1 if it dies.

=cut

sub run_script ($work, $option, @names)
{
	GetOptions($option, 'bin=s', 'out=s', @names)
	  or die "see the head of $0\n";
	$out = $option->{out};
	$SIG{INT} = \&ZooKeeper::end_by_signal;
	my $status = eval {
		my $dir = "$PostgreSQL::Test::Utils::tmp_check/bench";
		mkdir $dir or die "could not make $dir: $!";
		my $result = $work->($dir);
		say_line('done');
		$result;
	};
	print $screen "FAILED: $@" unless defined $status;
	exit($status // 1);
}

=pod

=head2 say_line($text)

A line of progress.

=head2 write_file($name, $text)

Below the directory that the option out names.

=cut

sub say_line ($text)
{
	my $passed = time() - $start;
	printf $screen "[%d:%02d] %s\n", $passed / 60, $passed % 60, $text;
	return;
}

sub write_file ($name, $text)
{
	open my $file, '>', "$out/$name" or die "could not write $out/$name: $!";
	print $file $text;
	close $file or die "could not write $out/$name: $!";
	return;
}

1;
