
=pod

=head1 NAME

Matrix - the tables of docs/interop.md, for the tests that hold them to it

=head1 SYNOPSIS

  foreach my $row (Matrix::rows('With node style'))
  {
	  print "$row->{client}: $row->{exclusive}\n";
  }

=cut

package Matrix;

use v5.36;

use Carp;
use File::Basename qw(dirname);

my $document = dirname(dirname(dirname(__FILE__))) . '/docs/interop.md';

=pod

=head1 FUNCTIONS

=head2 rows($title)

The rows of the tables in those sections whose heading begins with the title,
each a hash reference: from a column's heading to the cell, and from "section" to
the section's heading, all without markup. Dies if there are none: a test that
reads nothing must not pass.

=cut

sub rows ($title = undef)
{
	my ($section, @columns, @rows) = ('');
	foreach my $line (_lines($document))
	{
		$line =~ s/[`*\n]//g;
		$section = $1 if $line =~ /^#+ (.*)/;
		@columns = () if $line !~ /^\|/;
		next if index($section, $title) != 0 || $line !~ /^\| (.*) \|$/;
		my @cells = split / \| /, $1;
		if (!@columns)
		{
			@columns = @cells;
			next;
		}
		croak "a row below \"$section\" has another number of cells: $line"
		  if @cells != @columns;
		my %row = (section => $section);
		@row{@columns} = @cells;
		push @rows, \%row;
	}
	croak "there is no table below \"$title\"" unless @rows;
	return @rows;
}

sub _lines ($document)
{
	open my $file, '<', $document
	  or croak "could not read $document: $!";
	my @lines = readline $file;
	close $file;
	return @lines;
}

=pod

=head2 set_style($row, sessions)

Lets sessions with zklock name their nodes as the row's section says, whose
heading ends in the style. Returns the style.

=cut

sub set_style ($row, @sessions)
{
	my ($style) = $row->{section} =~ /(\w+)$/;
	foreach my $session (@sessions)
	{
		# A version without the setting knows one style only.
		my $is_setting = $session->query_safe(
			"SELECT count(*) FROM pg_settings WHERE name = 'zklock.node_style'");
		$session->query_safe("SET zklock.node_style = '$style'")
		  if $is_setting || $style ne 'curator';
	}
	return $style;
}

1;
