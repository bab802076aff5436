
=pod

=head1 NAME

Recipes - the code of docs/recipes.md, for the tests that run it

=head1 SYNOPSIS

  my $recipes = Recipes->new('sql');
  Recipes::prepare_work($_, 'rebuild_work', 'part int') foreach $berlin, $paris;
  $recipes->install('rebuild', $berlin, $paris);
  ...
  $recipes->assert_all_taken;

=head1 DESCRIPTION

Above each block of code in the document stands a comment that names it:

  <!-- recipe: sql/rebuild -->
  <!-- recipe: sql/window-close, as ops -->

The first part says which test runs the block, here one called
t/NNN_recipes_sql.pl; behind the name may stand the role that types it, if it is not jobs. What is
longer is a file in docs/recipes, to which the document has a link. These files are of the group
programs, but for run-once, which belongs to cron. That test asks for the block by its name and at its end
for whether there is one that it has forgotten.

The blocks call procedures that stand for the user's work. prepare_work makes one
that the test can stop and let fail.

=cut

package Recipes;

use v5.36;

use Carp;
use File::Basename qw(basename dirname);
use Pages;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkLockTest qw(install_as_documented);

my $document = dirname(dirname(dirname(__FILE__))) . '/docs/recipes.md';

=pod

=head1 FUNCTIONS

=head2 parse($text)

The blocks of a document in this form: from "group/name" to the code. Dies if a
block has no name or not one of its own.

=cut

=head2 named($block)

The name of a block of Pages::blocks, and the role that types it.

=cut

sub named ($block)
{
	my ($name, $role) = ($block->{kind} eq 'recipe' ? $block->{value} : '') =~ /^(.*?)(?:, as (\w+))?$/;
	return ($name, $role // 'jobs');
}

sub parse ($text)
{
	my %code;
	my @blocks = Pages::blocks(Pages::page('recipes.md', $text));
	foreach my $block (@blocks)
	{
		my ($name) = named($block);
		croak "a block of code without a name above it: $block->{code}" if $name !~ m{^\w+/\S+$};
		croak "two blocks are called $name" if exists $code{$name};
		$code{$name} = $block->{code};
	}
	my $names = () = $text =~ m{^<!-- recipe: }mg;
	croak 'no block of code follows on a name' if $names != @blocks;
	return %code;
}

=pod

=head2 recipes

All of the document, its files too. Dies if it has no link to one of the files.

=cut

sub recipes
{
	my $text = slurp_file($document);
	my %code = parse($text);
	foreach my $path (glob(($document =~ s/\.md$//r) . '/*'))
	{
		my $file = basename($path);
		croak "there is no link to $file" if index($text, "](recipes/$file)") < 0;
		$code{ ($file eq 'run-once' ? 'cron' : 'programs') . "/$file" } = slurp_file($path);
	}
	return %code;
}

=pod

=head2 groups

All groups that the document names.

=cut

sub groups
{
	my %code = recipes();
	my %group = map { m{^(\w+)/} => 1 } keys %code;
	my @groups = sort keys %group;
	return @groups;
}

=pod

=head1 METHODS

=head2 new($group)

The blocks of that group. Dies if there are none.

=cut

sub new ($class, $group)
{
	my %code = recipes();
	my $self = bless { code => {}, taken => {} }, $class;
	foreach my $name (keys %code)
	{
		$self->{code}{$1} = $code{$name} if $name =~ m{^\Q$group\E/(.*)};
	}
	croak "$document has no blocks of the group $group"
	  unless %{ $self->{code} };
	return $self;
}

=pod

=head2 code($name)

=cut

sub code ($self, $name)
{
	croak "no such block: $name" unless exists $self->{code}{$name};
	$self->{taken}{$name} = 1;
	return $self->{code}{$name};
}

=pod

=head2 install($name, $node, ...)

Runs the block's SQL on those clusters, in the database app if they have one,
which must succeed.

=cut

sub install ($self, $name, @nodes)
{
	$_->safe_psql('app', $self->code($name)) foreach @nodes;
	return;
}

=pod

=head2 save($name)

Writes the block into a file of its name, executable, and returns the path.

=cut

sub save ($self, $name)
{
	my $directory = "$PostgreSQL::Test::Utils::tmp_check/recipes";
	my $path = "$directory/$name";
	mkdir $directory;
	open my $file, '>', $path or croak "could not write $path: $!";
	print $file $self->code($name);
	close $file or croak "could not write $path: $!";
	chmod 0755, $path or croak "could not make $path executable: $!";
	return $path;
}

=pod

=head2 assert_all_taken

A test: each block of the group was asked for.

=cut

sub assert_all_taken ($self)
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @left = grep { !$self->{taken}{$_} } sort keys %{ $self->{code} };
	return is("@left", '', 'every block of the document was run');
}

=pod

=head1 THE WORK

=head2 prepare_database($node)

Makes the database app, with zklock in it, in the search_path behind public, and the tables work_done (what, detail,
pid), to which the work adds a row each time it is done, and trouble (what).

=head2 prepare_work($node, $procedure, $parameter)

Makes a procedure in it that waits at its gate, if that is closed, adds to
work_done, and fails if trouble has its name, or its name and its parameter.

=cut

sub prepare_database ($node)
{
	$node->safe_psql('postgres', 'CREATE DATABASE app');
	install_as_documented($node, 'app');
	$node->safe_psql('app', 'ALTER DATABASE app SET search_path = public, zklock;
		CREATE TABLE work_done (what text, detail text, pid int DEFAULT pg_backend_pid());
		CREATE TABLE trouble (what text)');
	return;
}

sub prepare_work ($node, $procedure, $parameter = undef)
{
	my ($detail) = ($parameter || '') =~ /^(\w+)/;
	$detail = $detail ? "$detail\::text" : "''";
	$parameter ||= '';
	$node->safe_psql('app', <<~SQL);
		CREATE PROCEDURE $procedure($parameter) LANGUAGE plpgsql AS \$\$
		BEGIN
			PERFORM pg_advisory_lock_shared(hashtext('$procedure'));
			PERFORM pg_advisory_unlock_shared(hashtext('$procedure'));
			INSERT INTO work_done VALUES ('$procedure', $detail);
			IF EXISTS (SELECT FROM trouble
					   WHERE what IN ('$procedure', '$procedure ' || $detail)) THEN
				RAISE EXCEPTION 'trouble in $procedure';
			END IF;
		END \$\$
		SQL
	return;
}

=pod

=head2 close_gate($session, $procedure), open_gate($session, $procedure)

A session of the same cluster.

=head2 wait_at_gate($node, $count), at_gate($session, $procedure, $code)

Until that many stand at gates of the cluster. Closes the gate, and does what brings one to it;
returns what that has returned.

=head2 work_done($node, $procedure)

What is in work_done: the details, in the order in which they were added.

=head2 evict($node, $name)

A test: the holder of that lock is evicted.

=cut

sub evict ($node, $name)
{
	return is($node->safe_psql('app', "SELECT zk_evict('$name', token) FROM zk_lock_queue('$name')
		WHERE position = 1"), 't', "the holder of $name is evicted");
}

sub close_gate ($session, $procedure)
{
	$session->query_safe("SELECT pg_advisory_lock(hashtext('$procedure'))");
	return;
}

sub open_gate ($session, $procedure)
{
	$session->query_safe("SELECT pg_advisory_unlock(hashtext('$procedure'))");
	return;
}

sub wait_at_gate ($node, $count)
{
	$node->poll_query_until('app', "SELECT count(*) = $count FROM pg_stat_activity
		WHERE datname = 'app' AND wait_event = 'advisory'")
	  or croak "there are not $count at the gate";
	return;
}

sub at_gate ($session, $procedure, $code)
{
	close_gate($session, $procedure);
	my $result = $code->();
	wait_at_gate($session->node, 1);
	return $result;
}

sub work_done ($node, $procedure)
{
	return $node->safe_psql('app', "SELECT coalesce(string_agg(detail, ' ' ORDER BY ctid), 'nothing')
		FROM work_done WHERE what = '$procedure'");
}

1;
