
# What valgrind has found, a file for each process, as XML; leaks aside, for PostgreSQL
# ends without freeing what it has. What has a frame of ours is
# shown, and a failure; what has none is PostgreSQL's, or a library's, and counted.
# Usage: valgrind.pl DIRECTORY

use v5.36;

my ($directory) = @ARGV;
my $theirs_from = qr/standard_(?:ProcessUtility|ExecutorRun|ExecutorFinish)|XLogFlush/;
my (%ours, %theirs, %processes);
foreach my $file (glob "$directory/*")
{
	open my $in, '<', $file or die "could not read $file: $!";
	my $text = do { local $/; readline $in };
	close $in;
	my ($program) = $text =~ m{<argv>\s*<exe>([^<]*)</exe>};
	$processes{ ($program // 'unknown') =~ s{.*/}{}r }++;
	foreach my $error ($text =~ m{<error>(.*?)</error>}gs)
	{
		next if $error =~ m{<kind>Leak_};
		my ($what) = $error =~ m{<x?what>\s*(?:<text>)?([^<]*)};
		my ($stack) = $error =~ m{<stack>(.*?)</stack>}s;
		my @frames = map { frame($_) } $stack =~ m{<frame>(.*?)</frame>}gs;
		my $report = join "\n    ", $what, map { $_->{text} } @frames;
		# Who calls these is our hook, and what comes of it is not ours. Nor is what the WAL
		# has between its records, whoever has it written.
		my ($outside) = grep { $frames[$_]{text} =~ /^$theirs_from / } 0 .. $#frames;
		my $is_ours = grep { $_->{object} =~ m{/zklock(?:\.so|-session)$} }
		  @frames[ 0 .. $outside // $#frames ];
		$is_ours ? $ours{$report}++ : $theirs{"$what, in $frames[0]{text}"}++;
	}
}
die "there is nothing in $directory\n" unless %processes;
print "valgrind has looked at ", join(', ', map { "$processes{$_} x $_" } sort keys %processes), "\n";
print "none of ours, $theirs{$_} times: $_\n" foreach sort keys %theirs;
print "$ours{$_} times: $_\n" foreach sort keys %ours;
exit(%ours ? 1 : 0);

sub frame ($text)
{
	my %part = map { $_ => $text =~ m{<$_>([^<]*)</$_>} ? $1 : '' } qw(obj fn file line);
	return { object => $part{obj}, text => "$part{fn} ($part{file}:$part{line}) $part{obj}" };
}
