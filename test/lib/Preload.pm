
=pod

=head1 NAME

Preload - libraries that stand before others in a cluster's processes

=head1 SYNOPSIS

  my $odd = Preload::library('odd_names') or plan skip_all => 'there is no compiler';
  my $node = cluster('berlin', $zk, environment => { LD_PRELOAD => $odd });

=cut

package Preload;

use v5.36;

use Carp;
use File::Basename qw(dirname);
use PostgreSQL::Test::Utils;

=pod

=head1 FUNCTIONS

=head2 library($name)

The path of the library that preload/$name.c makes, which says what it does; undef without a
compiler. Dies if it does not compile. Tests that run together share the libraries, in the directory
that ZKLOCK_TEST_PRELOADS names.

=cut

sub library ($name)
{
	my $library = ($ENV{ZKLOCK_TEST_PRELOADS} // PostgreSQL::Test::Utils::tempdir()) . "/$name.so";
	my $source = dirname(__FILE__) . "/preload/$name.c";
	return $library if -e $library;
	return if system('cc --version >/dev/null 2>&1') != 0;
	# Another test may make the same one now.
	system('cc', '-shared', '-fPIC', '-o', "$library.$$", $source, '-ldl') == 0 or croak "could not compile $source";
	rename "$library.$$", $library or croak "could not rename $library.$$: $!";
	return $library;
}

1;
