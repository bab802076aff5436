#!/usr/bin/perl

# Records what a program prints as a picture that moves, line by line, for the README:
# make demo </dev/null | test/lib/record.pl docs/demo.svg
# Passes everything on. The recording begins with the first line that has a clock. What comes
# faster than one can read is slowed down, and nothing stands still for long.
#
# Each word is a text with a column of its own, for viewers drop spaces. Without animation, and at
# its beginning, the picture shows the last screen. What has not been printed yet is under a cover.

use v5.36;
use open qw(:std :encoding(UTF-8));

use FindBin;
use List::Util qw(max min);
use Time::HiRes qw(time);
use lib $FindBin::Bin;
use Svg;

my ($file) = @ARGV;
die "usage: record.pl file\n" if !defined $file;
my ($line_height, $column_width, $columns, $visible) = (18, 7.85, 110, 26);
my ($least, $most, $rest) = (0.4, 1.5, 5);    # seconds from line to line, and on the last screen
my %ink = (text => '#f0f6fc', quiet => '#9198a1', title => '#ffffff', told => '#56d364', error => '#ff7b72');
my @of_clusters = ('#79c0ff', '#ffa657', '#d2a8ff');
my (@lines, $before, %of_cluster);
my $now = 0;

# The parts of a line, each with how it is shown: [text, option => value, ...], ...
sub parts ($line)
{
	my ($clock, $who, $what) = $line =~ /^(\d\d:\d\d:\d\d\.\d+)(  .{10} )(.*)$/;
	return [ $line, color => $ink{title}, bold => 1 ] if !defined $clock && $line =~ /^\S/;
	if (!defined $clock)
	{
		# of a table, of which a row may name the cluster
		my ($named) = grep { $line =~ /\|.*\b\Q$_\E\b/ } sort keys %of_cluster;
		return [ $line, color => $named && $of_cluster{$named} ];
	}
	my ($name) = $who =~ /(\w+)/;
	my $color = $name && $of_cluster{$name};
	my $color_of_what = $color;
	$color_of_what = $ink{told} if $what =~ /^->/;
	$color_of_what = $ink{error} if $what =~ /^\s*(?:ERROR|DETAIL|HINT|CONTEXT):/;
	return ([ $clock, color => $ink{quiet} ], [ $who, color => $color ], [ $what, color => $color_of_what ]);
}

$| = 1;
while (my $line = readline STDIN)
{
	print $line;
	chomp $line;
	last if $line =~ /^Now it is your turn|^Stopping/;
	next if !$before && $line !~ /^\d\d:\d\d:\d\d\./;
	$now += max($least, min($most, time - $before)) if $before;
	$before = time;
	my ($cluster) = $line =~ /^\S+\s+(\w+)\s+.*\bPostgreSQL cluster\b/;
	$of_cluster{$cluster} = shift @of_clusters if $cluster && !$of_cluster{$cluster} && @of_clusters;
	$line =~ s/^(.{1,$columns})\b .*/$1 .../ if length $line > $columns;
	push @lines, [ $now, $line ];
}
print while readline STDIN;
pop @lines while @lines && $lines[-1][1] !~ /\S/;
die "nothing to record\n" if !@lines;

my $duration = sprintf '%.1f', $rest + $now + $least;
my ($width, $height) = (16 + $column_width * $columns, $line_height * ($visible + 1));
my $up = $line_height * max(0, @lines - $visible);
my (@scroll, @uncover);
foreach my $i (0 .. $#lines)
{
	my $at = sprintf '%.3f%%', 100 * ($rest + $lines[$i][0]) / $duration;
	my $below = $line_height * ($i + 1);
	push @uncover, "$at { transform: translateY(" . ($below - $height + 5) . 'px) }' if $i < $visible;
	push @scroll, "$at { transform: translateY(" . min(0, $line_height * ($visible - $i - 1)) . 'px) }'
	  if !$i || $i >= $visible;
}
push @uncover, sprintf '%.3f%% { transform: none }', 100 * ($rest + $lines[$visible][0]) / $duration if @lines > $visible;
my $svg = Svg->new($width, $height,
	family => 'monospace', background => '#1c1c1c', color => $ink{text},
	title => 'make demo, recorded',
	desc => 'A terminal. Sessions of two PostgreSQL clusters take the same lock in turn. It ends with these lines: '
	  . join(' ', map { $_->[1] =~ s/\s+/ /gr } @lines[ max(0, $#lines - 8) .. $#lines ]),
	style => join '', map { "$_\n" } '@media (prefers-reduced-motion: no-preference) {',
	(map { ".$_ { animation: $_ ${duration}s step-end infinite }" } qw(lines cover)), '}',
	"\@keyframes lines { 0% { transform: translateY(" . -$up . 'px) }', @scroll, '}',
	'@keyframes cover { 0% { transform: none }', @uncover, '}');
$svg->put('<g class="lines" transform="translate(0 ' . -$up . ')">');
foreach my $i (0 .. $#lines)
{
	my $column = 0;
	foreach my $part (parts($lines[$i][1]))
	{
		my ($text, @shown) = @$part;
		while ($text =~ /(\S+)/g)
		{
			$svg->text(8 + $column_width * ($column + $-[1]), $line_height * ($i + 1), $1, @shown);
		}
		$column += length $text;
	}
}
$svg->put('</g>');
# What is left of the line that has just gone.
$svg->put(qq(<rect width="$width" height="5" fill="#1c1c1c"/>));
# In its place it is below the picture.
$svg->put(qq(<rect class="cover" y="$height" width="$width" height="$height" fill="#1c1c1c"/>));
$svg->write($file);
