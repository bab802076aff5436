
=pod

=head1 NAME

Svg - a picture in SVG, of texts, boxes and lines

=head1 SYNOPSIS

  my $svg = Svg->new(860, 400, title => 'A lock', desc => 'One holder, two waiters');
  $svg->box(20, 20, 120, 40, [ 'held', 'token 7' ], fill => '#ddf4ff');
  $svg->text(20, 90, 'a text', anchor => 'start');
  $svg->arrow([ [ 140, 40 ], [ 200, 40 ] ]);
  $svg->write('lock.svg');

It draws what every viewer can show: no font of its own, no script, no library. Each text is an
element of its own, at a place of its own, so nothing depends on how wide a viewer's font is.
overlaps() says which texts could cover each other.

=cut

package Svg;

use v5.36;

use Carp;
use List::Util qw(max sum0);

# Advances in thousandths of the font's size, as DejaVu Sans has them; it is wider than most.
my %advance = (
	map { my ($width, $characters) = @$_; map { $_ => $width } split //, $characters } (
		[ 278, 'ijlI|' ], [ 295, 'J' ], [ 318, ' .,' ], [ 337, ':;' ], [ 352, 'f' ], [ 361, '-' ],
		[ 392, 't()[]' ], [ 275, q(') ], [ 411, 'r' ], [ 460, '"' ], [ 521, 's' ], [ 550, 'c' ],
		[ 592, 'vxyk' ], [ 525, 'z' ], [ 500, '_*' ], [ 818, 'w' ], [ 838, '=<>+' ], [ 974, 'm' ],
		[ 770, 'DGHNOQV' ], [ 863, 'MW' ]));
my $other = 640;
my $fixed = 602;
my $bold = 1.1;

=pod

=head1 METHODS

=head2 new($class, $width, $height, %option)

A picture of that size. title and desc say what it shows, for those who do not see it. style is a
style sheet; family the font (sans-serif), or a generic one; size its size (13); background the
color of the whole.

=cut

sub new ($class, $width, $height, %option)
{
	croak 'a picture has a title and a description' if !$option{title} || !$option{desc};
	return bless {
		width => $width,
		height => $height,
		family => 'sans-serif',
		size => 13,
		background => '#ffffff',
		color => '#1f2328',
		%option,
		elements => [],
		texts => [],
		segments => []
	}, $class;
}

=pod

=head2 escape($text)

The text as XML has it.

=cut

sub escape ($text)
{
	return $text =~ s/([&<>"])/sprintf '&#%d;', ord $1/ger;
}

=pod

=head2 put($svg, $element)

Adds an element as it is.

=cut

sub put ($svg, $element)
{
	push @{ $svg->{elements} }, $element;
	return;
}

=pod

=head2 width_of($svg, $text, %option)

How wide a text is, in a wide font: of size, bold or not, in family.

=cut

sub width_of ($svg, $text, %option)
{
	my $is_fixed = ($option{family} // $svg->{family}) eq 'monospace';
	my $width = sum0(map { $is_fixed ? $fixed : $advance{$_} // $other } split //, $text);
	return $width / 1000 * ($option{size} // $svg->{size}) * ($option{bold} ? $bold : 1);
}

=pod

=head2 text($svg, $x, $y, $text, %option)

A line of text, its baseline at y. anchor says what is at x: start (the default), middle or end.
Others: size, family, color, bold; over, if what was drawn before covers the lines under it.

=cut

sub text ($svg, $x, $y, $text, %option)
{
	my $size = $option{size} // $svg->{size};
	my $anchor = $option{anchor} // 'start';
	my $width = $svg->width_of($text, %option);
	my $part = { start => 0, middle => 0.5, end => 1 }->{$anchor} // croak "no such anchor: $anchor";
	push @{ $svg->{texts} },
	  {
		text => $text,
		is_over => $option{over},
		left => $x - $part * $width,
		right => $x + (1 - $part) * $width,
		top => $y - 0.8 * $size,
		bottom => $y + 0.2 * $size
	  };
	my @attributes = (qq(x="@{[ number($x) ]}"), qq(y="@{[ number($y) ]}"));
	push @attributes, qq(text-anchor="$anchor") if $anchor ne 'start';
	push @attributes, qq(font-size="$size") if $size != $svg->{size};
	push @attributes, qq(font-family="$option{family}") if $option{family};
	push @attributes, qq(fill="$option{color}") if $option{color};
	push @attributes, 'font-weight="bold"' if $option{bold};
	$svg->put("<text @attributes>" . escape($text) . '</text>');
	return;
}

=pod

=head2 box($svg, $x, $y, $width, $height, $lines, %option)

A box with lines of text in its middle, which must fit into it. A line is a text, or an array of a
text and its options. Others: fill, stroke, dash, thick, radius.

=cut

sub box ($svg, $x, $y, $width, $height, $lines, %option)
{
	$svg->put(sprintf '<rect x="%s" y="%s" width="%s" height="%s" rx="%s" fill="%s" stroke="%s" stroke-width="%s"%s/>',
		map({ number($_) } $x, $y, $width, $height),
		$option{radius} // 6, $option{fill} // 'none', $option{stroke} // '#57606a', $option{thick} // 1.5,
		$option{dash} ? qq( stroke-dasharray="$option{dash}") : '');
	my @lines = map { ref ? $_ : [$_] } @$lines;
	my $leading = 1.45 * $svg->{size};
	my $first = $y + $height / 2 - ($#lines * $leading) / 2 + 0.35 * $svg->{size};
	foreach my $i (0 .. $#lines)
	{
		my ($text, @of_line) = @{ $lines[$i] };
		croak qq(too wide for its box: "$text") if $svg->width_of($text, @of_line) > $width - 6;
		$svg->text($x + $width / 2, $first + $i * $leading, $text, anchor => 'middle', @of_line);
	}
	croak "too many lines for a box: $lines[0][0]" if @lines * $leading > $height;
	return;
}

=pod

=head2 line($svg, $points, %option), arrow($svg, $points, %option)

A line through points, each an array of x and y; an arrow has a head at the last one. Others:
stroke, thick, dash; under, if boxes that are drawn later cover a part of it.

=cut

sub line ($svg, $points, %option)
{
	push @{ $svg->{segments} }, map { [ @$points[ $_ - 1, $_ ] ] } 1 .. $#$points if !$option{under};
	$svg->put(sprintf '<polyline points="%s" fill="none" stroke="%s" stroke-width="%s"%s/>',
		join(' ', map { join ',', map { number($_) } @$_ } @$points),
		$option{stroke} // '#57606a', $option{thick} // 1.5, $option{dash} ? qq( stroke-dasharray="$option{dash}") : '');
	return;
}

sub arrow ($svg, $points, %option)
{
	my @points = map { [@$_] } @$points;
	my ($from, $to) = @points[ -2, -1 ];
	my ($dx, $dy) = ($to->[0] - $from->[0], $to->[1] - $from->[1]);
	my $length = sqrt($dx * $dx + $dy * $dy) or croak 'an arrow without a length';
	($dx, $dy) = ($dx / $length, $dy / $length);
	my ($long, $wide) = (9, 4.5);
	my ($x, $y) = @$to;
	my @base = ($x - $long * $dx, $y - $long * $dy);
	$points[-1] = \@base;
	$svg->line(\@points, %option);
	$svg->put(sprintf '<polygon points="%s" fill="%s"/>',
		join(' ',
			map { join ',', map { number($_) } @$_ }
			  [ $x, $y ], [ $base[0] - $wide * $dy, $base[1] + $wide * $dx ], [ $base[0] + $wide * $dy, $base[1] - $wide * $dx ]),
		$option{stroke} // '#57606a');
	return;
}

=pod

=head2 overlaps($svg)

What could not be read: pairs of texts that cover each other, texts with a line through them, and
texts that leave the picture.

=cut

sub overlaps ($svg)
{
	my @texts = @{ $svg->{texts} };
	my @wrong;
	foreach my $i (0 .. $#texts)
	{
		my $one = $texts[$i];
		push @wrong, qq("$one->{text}" leaves the picture)
		  if $one->{left} < 0 || $one->{right} > $svg->{width} || $one->{top} < 0 || $one->{bottom} > $svg->{height};
		push @wrong, qq("$one->{text}" and a line) if !$one->{is_over} && grep { crosses($_, $one) } @{ $svg->{segments} };
		foreach my $two (@texts[ $i + 1 .. $#texts ])
		{
			push @wrong, qq("$one->{text}" and "$two->{text}")
			  if $one->{left} < $two->{right} && $two->{left} < $one->{right} && $one->{top} < $two->{bottom} && $two->{top} < $one->{bottom};
		}
	}
	return @wrong;
}

=pod

=head2 string($svg), write($svg, $file)

The picture as it is in a file.

=cut

sub string ($svg)
{
	my ($width, $height) = map { number($_) } @$svg{qw(width height)};
	my @head = (
		qq(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 $width $height" width="$width" height="$height")
		  . qq( role="img" aria-labelledby="title desc" font-family="$svg->{family}" font-size="$svg->{size}" fill="$svg->{color}">),
		'<title id="title">' . escape($svg->{title}) . '</title>',
		'<desc id="desc">' . escape($svg->{desc}) . '</desc>');
	push @head, "<style>\n$svg->{style}</style>" if $svg->{style};
	push @head, qq(<rect width="$width" height="$height" fill="$svg->{background}"/>);
	return join '', map { "$_\n" } @head, @{ $svg->{elements} }, '</svg>';
}

sub write ($svg, $file)
{
	open my $out, '>:encoding(UTF-8)', $file or croak "could not write $file: $!";
	print $out $svg->string;
	close $out or croak "could not write $file: $!";
	return;
}

# Does the rectangle around a line from here to there, upright or level as most are, touch the text?
sub crosses ($segment, $text)
{
	my ($left, $right) = sort { $a <=> $b } map { $_->[0] } @$segment;
	my ($top, $bottom) = sort { $a <=> $b } map { $_->[1] } @$segment;
	return $left < $text->{right} && $right > $text->{left} && $top < $text->{bottom} && $bottom > $text->{top};
}

# A number with two digits at most.
sub number ($number)
{
	return sprintf('%.2f', $number) =~ s/\.?0+$//r;
}

1;
