package Bench::Plots;

use strict;
use warnings;

sub draw { return; }

1;
