
# What the sanitizers have reported: ours is shown, and a failure; what the ZooKeeper
# library does when a server lies to it is counted.
# Usage: sanitizers.pl DIRECTORY

use strict;
use warnings;

use FindBin;
use lib $FindBin::Bin;
use Sanitizers;

# So much is shown.
my $most = 10;

my ($directory) = @ARGV;
my (@ours, %theirs);
foreach my $text (map { Sanitizers::reports($_) } glob "$directory/*")
{
	my ($whose, $what) = Sanitizers::judge($text) or next;
	$whose eq 'ours' ? push @ours, $what : $theirs{$what}++;
}
print "of the ZooKeeper library: $_, $theirs{$_} times\n" foreach sort keys %theirs;
print @ours > $most ? @ours[ 0 .. $most - 1 ] : @ours;
print scalar(@ours), " reports of the sanitizers\n" if @ours;
exit(@ours ? 1 : 0);
