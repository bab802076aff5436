
=pod

=head1 NAME

Builds - other builds of zklock, beside the one that is tested

=head1 SYNOPSIS

  use Builds;

  my $build = Builds->of_tree(edit => { 'src/common/protocol.h' => sub { s/5/6/ } });
  my $node = cluster('paris', $zk, $build->settings);

=head1 DESCRIPTION

An installation below a directory of its own, which a cluster uses that gets its
settings. Debian's releases of PostgreSQL have such settings, and all from 18 on; see
setup_destination in test/lib/setup.sh.

=cut

package Builds;

use v5.36;

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use File::Compare qw(compare);
use File::Path qw(mkpath);
use PostgreSQL::Test::Utils;

my $tree = abs_path(dirname(__FILE__) . '/../..');

=pod

=head1 METHODS

=head2 Builds->can_be

Whether this PostgreSQL bears more than one installation.

=cut

# As test/check has said it: the private installation, and the name of the setting.
sub _installation
{
	my $text = eval { slurp_file($ENV{TEMP_CONFIG} // '') } // '';
	my ($library_path) = $text =~ /^dynamic_library_path = '(.*):\$libdir'$/m or return;
	my ($setting) = $text =~ /^(extension_(?:destdir|control_path)) = /m or return;
	my $pkglibdir = _pg_config('pkglibdir');
	return ($library_path =~ s/\Q$pkglibdir\E$//r, $setting);
}

sub can_be { return scalar _installation(); }

sub _pg_config ($what)
{
	chomp(my $path = `pg_config --$what`);
	return $path;
}

=pod

=head2 Builds->copy

A copy of the installation that is tested.

=head2 Builds->of_tree(tree => directory, edit => { file => sub {...}, ... }, flags => [...])

Built from a copy of the tree, or another one, in which each of these files was
edited: the sub finds the text in $_. A file that it leaves as it is is a mistake. The
flags are words for make. What is not edited, nor sees an edited header, is not
compiled anew, but taken from the build that is tested, if test/check says where that is: the
flags are only for the rest.

=head2 Builds->of_sources(directory, compile => [ file, ... ], flags => [...])

Built in that directory. With compile, objects are taken as by of_tree, but for these files.

=cut

sub copy ($class)
{
	my $self = $class->_new;
	my ($from) = _installation();
	system_or_bail('cp', '-RT', $from, $self->{destination});
	return $self;
}

sub of_tree ($class, %option)
{
	my $self = $class->_new;
	my $from = $option{tree} || $tree;
	my $sources = PostgreSQL::Test::Utils::tempdir_short() . '/other/place';
	mkpath($sources);
	system_or_bail('cp', '-R', "$from/Makefile", "$from/zklock.control", "$from/sql", $sources);
	system_or_bail('sh', '-c', 'cd "$1" && cp --parents src/*.map src/*/*.[ch] "$2"', 'sh', $from, $sources);
	foreach my $file (sort keys %{ $option{edit} || {} })
	{
		edit_file("$sources/$file", $option{edit}{$file});
	}
	_take_objects($sources);
	$self->_install($sources, @{ $option{flags} || [] });
	return $self;
}

sub of_sources ($class, $sources, %option)
{
	my $self = $class->_new;
	_take_objects($sources, @{ $option{compile} }) if $option{compile};
	$self->_install($sources, @{ $option{flags} || [] });
	return $self;
}

# The objects of the build that is tested go to these sources, but for those of these files and of
# what differs there. Each depends on all headers, and on how it is made.
sub _take_objects ($sources, @but)
{
	my $built = $ENV{ZKLOCK_TEST_BUILD} or return;
	my %is_but = map { $_ => 1 } @but;
	my $differs = sub ($file) { return compare("$built/$file", "$sources/$file") != 0 };
	my @all = map { s{^\Q$built\E/}{}r } glob "'$built'/{Makefile,src/*/*.h,src/*/*.o}";
	return if grep { !/\.o$/ && $differs->($_) } @all;
	my @same = grep { my $source = s/\.o$/.c/r; $source ne $_ && !$is_but{$source} && !$differs->($source) } @all;
	system_or_bail('sh', '-c', 'cd "$1" && to=$2 && shift 2 && cp --parents "$@" "$to"', 'sh', $built, $sources, @same) if @same;
	return;
}

sub _install ($self, $sources, @flags)
{
	system_or_bail('make', '-s', '-j2', '-C', $sources, 'PG_CONFIG=pg_config', 'with_llvm=no',
		@flags, "DESTDIR=$self->{destination}", 'install');
	return;
}

sub _new ($class)
{
	my $directory = PostgreSQL::Test::Utils::tempdir_short() . '/build';
	mkdir $directory or die "$directory: $!";
	return bless { destination => $directory }, $class;
}

=pod

=head2 Builds::edit_file($file, sub { ... })

The sub changes the file's text in $_, and must change it.

=cut

sub edit_file ($file, $change)
{
	my $before = -e $file ? slurp_file($file) : '';
	local $_ = $before;
	$change->();
	die "$file has not changed" if $_ eq $before;
	unlink $file;
	append_to_file($file, $_);
	return;
}

=pod

=head2 settings

Of a cluster that is to use it.

=cut

sub settings ($self)
{
	my (undef, $setting) = _installation();
	my $path = $setting eq 'extension_destdir' ? $self->{destination}
	  : $self->{destination} . _pg_config('sharedir') . ':$system';
	return ($setting => $path, 'dynamic_library_path' => $self->library_directory . ':$libdir');
}

=pod

=head2 library_directory, script_directory

Where its files are.

=head2 edit(file, sub {...})

As in of_tree, of a file below script_directory, which may be a new one.

=head2 replace_by($other, file, ...)

These files of library_directory become those of the other build, as an installation
replaces them: the old file stays with whoever has it open.

=cut

sub library_directory { return $_[0]{destination} . _pg_config('pkglibdir'); }
sub script_directory { return $_[0]{destination} . _pg_config('sharedir') . '/extension'; }

sub edit ($self, $file, $change)
{
	edit_file($self->script_directory . "/$file", $change);
	return;
}

sub replace_by ($self, $other, @files)
{
	foreach my $file (@files)
	{
		my $here = $self->library_directory . "/$file";
		unlink $here or die "$here: $!";
		system_or_bail('cp', $other->library_directory . "/$file", $here);
	}
	return;
}

1;
