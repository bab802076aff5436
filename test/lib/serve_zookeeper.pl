
# Run one ZooKeeper server for a shell script: prints its address and serves
# until standard input ends, so it cannot outlive the script.
# Usage: serve_zookeeper.pl DIRECTORY

use strict;
use warnings;

use ZooKeeper;

my ($dir) = @ARGV;
my $zk = ZooKeeper->new(dir => $dir)->start;
$| = 1;
print $zk->connect_string, "\n";
1 while readline STDIN;
$zk->stop;
