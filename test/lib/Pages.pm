
=pod

=head1 NAME

Pages - all pages in Markdown, for the tests that hold them to something

=head1 SYNOPSIS

  foreach my $page (Pages::all())
  {
	  print "$page->{name}: $_->{code}" foreach Pages::blocks($page);
  }

=cut

package Pages;

use v5.36;

use Carp;
use Cwd qw(abs_path);
use File::Basename qw(dirname);
use File::Find qw(find);

my $top = dirname(dirname(dirname(abs_path(__FILE__))));

=pod

=head1 FUNCTIONS

=head2 all

All pages, in the order of their names: hash references with name, relative to the
top, text, and lines, of which each has text, number, and is_code if it is a part of a
block of code. Dies if a block does not end.

=cut

sub all
{
	my @names;
	find(
		{
			no_chdir => 1,
			# Not what was made by a build or a test, nor another checkout.
			preprocess => sub { return grep { !/^\.(git|zklock)$|^(tmp_check|results)$/ } @_; },
			wanted => sub { push @names, substr $_, 1 + length $top if /\.md$/ && -f }
		},
		$top);
	my @pages = map { page($_, slurp("$top/$_")) } sort @names;
	return @pages;
}

=pod

=head2 slurp($file)

A text, in UTF-8.

=cut

sub slurp ($file)
{
	open my $handle, '<:encoding(UTF-8)', $file or croak "could not read $file: $!";
	local $/ = undef;
	return scalar readline $handle;
}

=pod

=head2 page($name, $text)

The same of a text.

=cut

sub page ($name, $text)
{
	my (@lines, $fence);
	my $number = 0;
	foreach my $line (split /\n/, $text)
	{
		my $is_code = defined $fence;
		if (!$is_code && $line =~ /^\s*(`{3,})/)
		{
			($fence, $is_code) = ($1, 1);
		}
		elsif ($is_code && $line =~ /^\s*(`{3,})\s*$/ && $1 eq $fence)
		{
			$fence = undef;
		}
		push @lines, { text => $line, number => ++$number, is_code => $is_code };
	}
	croak "$name: a block of code does not end" if defined $fence;
	return { name => $name, text => $text, lines => \@lines };
}

=pod

=head2 blocks($page)

The blocks of code: language, code, the line where it begins, and if the line above is
a comment, its kind and value: <!-- kind: value -->.

=cut

sub blocks ($page)
{
	my (@blocks, $block, $above);
	foreach my $line (@{ $page->{lines} })
	{
		if (!$line->{is_code})
		{
			$block = undef;
			$above = $line->{text};
		}
		elsif (!$block)
		{
			my ($indent, $language) = $line->{text} =~ /^(\s*)`+(\w*)/;
			my ($kind, $value) = ($above // '') =~ /^\s*<!-- ([\w ]+): (.*) -->$/;
			$block = {
				language => $language,
				line => $line->{number},
				kind => $kind // '',
				value => $value // '',
				indent => $indent,
				code => '' };
			push @blocks, $block;
		}
		elsif ($line->{text} =~ /^\s*```+\s*$/)
		{
			# Another block may follow at once.
			($block, $above) = (undef, '');
		}
		else
		{
			$block->{code} .= $line->{text} =~ s/^\Q$block->{indent}\E//r . "\n";
		}
	}
	return @blocks;
}

=pod

=head2 prose($page)

The text without its blocks of code, whose lines are empty.

=cut

sub prose ($page)
{
	return join "\n", map { $_->{is_code} ? '' : $_->{text} } @{ $page->{lines} };
}

=pod

=head2 sections($page)

The sections in their order: heading, without what only Markdown means; level; the anchor that GitHub
gives it; first and last line, and the text of these. A section ends before the next one of its
level or a higher one.

=cut

sub sections ($page)
{
	my (@sections, %count);
	my @lines = @{ $page->{lines} };
	foreach my $line (grep { !$_->{is_code} } @lines)
	{
		my ($marks, $heading) = $line->{text} =~ /^(#+) +(.*?)\s*$/ or next;
		$heading = $heading =~ s/\[([^\]]*)\]\([^)]*\)/$1/gr =~ s/`//gr;
		my $anchor = lc $heading =~ s/[^\w\- ]//gr =~ s/ /-/gr;
		my $again = $count{$anchor}++;
		push @sections,
		  {
			heading => $heading, level => length $marks, first => $line->{number},
			anchor => $again ? "$anchor-$again" : $anchor };
	}
	foreach my $i (0 .. $#sections)
	{
		my $section = $sections[$i];
		my ($next) = grep { $_->{level} <= $section->{level} } @sections[ $i + 1 .. $#sections ];
		$section->{last} = $next ? $next->{first} - 1 : scalar @lines;
		$section->{text} = join "\n", map { $_->{text} } @lines[ $section->{first} - 1 .. $section->{last} - 1 ];
	}
	return @sections;
}

=pod

=head2 anchors($page)

A reference to a hash of the anchors of its sections.

=cut

sub anchors ($page) { return { map { $_->{anchor} => 1 } sections($page) }; }

=pod

=head2 destination($page, $target)

Where a link in that page leads: a name, relative to the top, and an anchor or ''. Nothing if it
leads to another site.

=cut

sub destination ($page, $target)
{
	my ($path, $anchor) = $target =~ /^([^#]*)#?(.*)$/;
	return if $path =~ /^(https?|mailto):/;
	my $name = $path eq '' ? $page->{name} : ($page->{name} =~ s{[^/]*$}{}r) . $path;
	1 while $name =~ s{(^|/)(?!\.\./)[^/]+/\.\./}{$1};
	return ($name, $anchor);
}

=pod

=head2 links($page)

All links and pictures: target and number of the line. Those in code are none. A link
may be broken over two lines.

=head2 labels($page)

The links to pages and files, without pictures: label, name and anchor of the destination, and number
of the line. A label may have code in it.

=cut

sub links ($page)
{
	my $text = prose($page) =~ s/(`+)(.*?)\1/"`" . "\n" x ($2 =~ tr{\n}{}) . "`"/gser;
	my @links;
	while ($text =~ /\]\(\s*([^)\s]+)\s*\)/g)
	{
		push @links, { target => $1, number => _line_at($text, $-[0]) };
	}
	return @links;
}

sub labels ($page)
{
	my $text = prose($page);
	my @labels;
	while ($text =~ /(?<!!)\[((?:[^\[\]]|\[\])*)\]\(\s*([^)\s]+)\s*\)/g)
	{
		my ($label, $target, $number) = ($1, $2, _line_at($text, $-[0]));
		my ($name, $anchor) = destination($page, $target) or next;
		push @labels, { label => $label =~ s/\s+/ /gr, name => $name, anchor => $anchor, number => $number };
	}
	return @labels;
}

sub _line_at ($text, $offset) { return 1 + (substr($text, 0, $offset) =~ tr/\n//); }

=pod

=head2 cells($line)

How many cells a row of a table has.

=cut

sub cells ($line)
{
	$line =~ s/^\s*\|//;
	$line =~ s/(?<!\\)\|\s*$//;
	my @bars = $line =~ /(?<!\\)\|/g;
	return 1 + @bars;
}

1;
