#!/usr/bin/perl

# Records what a program prints as a picture that moves, line by line, for the README:
# make demo </dev/null | test/lib/record.pl docs/demo.svg
# Passes everything on. The recording begins with the first line that has a clock. What comes
# faster than one can read is slowed down, and nothing stands still for long.

use v5.36;

use List::Util qw(max min);
use Time::HiRes qw(time);

my ($file) = @ARGV;
my ($line_height, $columns, $visible) = (18, 110, 26);
my ($least, $most, $rest) = (0.4, 1.5, 5);    # seconds from line to line, and at the end
my (@lines, $before);
my $now = 0;

$| = 1;
while (my $line = readline STDIN)
{
	print $line;
	chomp $line;
	last if $line =~ /^Now they are yours|^Stopping/;
	next if !$before && $line !~ /^\d\d:\d\d:\d\d\./;
	$now += max($least, min($most, time - ($before // time)));
	$before = time;
	$line =~ s/^(.{1,$columns})\b .*/$1 .../ if length $line > $columns;
	push @lines, [ $now, $line ];
}
print while readline STDIN;
die "nothing to record\n" if !@lines;

my $duration = sprintf '%.1f', $now + $rest;
my ($width, $height) = (8.2 * $columns, $line_height * ($visible + 1));
my (@texts, @at, @up);
foreach my $i (0 .. $#lines)
{
	my ($at, $text) = $lines[$i]->@*;
	my $y = $line_height * ($i + 1);
	my $color = $text =~ /->/ ? '#4c4' : $text =~ /^\d\d:/ ? '#ddd' : '#fff';
	$text =~ s/([&<>"])/sprintf '&#%d;', ord $1/ge;
	my $begin = sprintf '%.4f', $at / $duration;
	push @texts, qq(<text x="8" y="$y" fill="$color" opacity="0">$text)
	  . qq(<animate attributeName="opacity" calcMode="discrete" dur="${duration}s" repeatCount="indefinite" )
	  . ($begin > 0 ? qq(values="0;1" keyTimes="0;$begin"/></text>) : qq(values="1" keyTimes="0"/></text>));
	next if $i < $visible || @at && $begin <= $at[-1];
	push @at, $begin;
	push @up, -$line_height * ($i + 1 - $visible);
}
my $values = join ';', map { "0 $_" } 0, @up;
my $times = join ';', 0, @at;

open my $out, '>', $file or die "could not write $file: $!\n";
print $out <<"SVG", map { "$_\n" } @texts, "</g>\n</svg>\n";
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 $width $height" font-family="monospace" font-size="13" xml:space="preserve" style="white-space: pre">
<rect width="100%" height="100%" fill="#1c1c1c"/>
<g><animateTransform attributeName="transform" type="translate" calcMode="discrete" dur="${duration}s" repeatCount="indefinite" values="$values" keyTimes="$times"/>
SVG
close $out or die "could not write $file: $!\n";
