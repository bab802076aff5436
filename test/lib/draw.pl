#!/usr/bin/perl

# Draws the pictures of docs anew: test/lib/draw.pl docs
# What they show is read from the code (Pictures.pm), so this follows any change of it.

use v5.36;

use FindBin;
use lib $FindBin::Bin;
use Pictures;

my ($directory) = @ARGV;
die "usage: draw.pl directory\n" if !defined $directory;
my %picture = Pictures::all();
foreach my $name (sort keys %picture)
{
	die "$name.svg cannot be read: $_\n" foreach $picture{$name}->overlaps;
	$picture{$name}->write("$directory/$name.svg");
}
