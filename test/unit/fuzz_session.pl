
# Run fuzz_session, which lies beside zklock-session in the current directory,
# with a ZooKeeper server that lies (Liar), for FUZZ_SECONDS and until each kind of
# request was lied to or, if that is set, until there were FUZZ_LIES lies. FUZZ_SEED repeats a run as far as timing lets
# it.
#
# Every request that our sources can send is answered with lies; one that is not,
# because it is new, is a failure.
#
# That the ZooKeeper library falls over in the session's program is what the
# program is for. A fault in our own code is a failure: the reports of the
# sanitizers tell which of them it was.

use v5.36;

use Cwd qw(getcwd);
use File::Basename qw(dirname);
use File::Temp ();
use IPC::Open2;
use Liar;
use Sanitizers;
use Test::More;
use Time::HiRes qw(time);
use ZooKeeper;

my $seconds = $ENV{FUZZ_SECONDS} || 20;
my $wanted = $ENV{FUZZ_LIES} || 0;
my $seed = $ENV{FUZZ_SEED} || $$ + 100_000 * (time % 10_000);
my $program = getcwd() . '/zklock-session';
my $reports = File::Temp->newdir;

# Frames as addresses, for speed: there are thousands of reports. What would need
# more memory than the program has in earnest is refused as it is there.
$ENV{ASAN_OPTIONS} = "log_path=$reports/asan:symbolize=0:"
  . 'max_allocation_size_mb=256:allocator_may_return_null=1';
$ENV{UBSAN_OPTIONS} = "log_path=$reports/ubsan";

my $zk = ZooKeeper->new(tick_time => 500)->start;
my $client = $zk->client;
$client->create_path('/fuzz/queue');
$client->close;
my $liar = Liar->new('127.0.0.1:' . $zk->port, seed => $seed,
	log => $ENV{FUZZ_LOG});
note("seed $seed");

my $source = dirname(__FILE__) . '/../../src';
# The numbers of the requests behind the library's functions.
my %operations = (
	acreate2 => [ 15, 19 ],
	add_auth => [100],
	adelete => [2],
	aexists => [3],
	aget_acl => [6],
	aget_children => [8],
	amulti => [14],
	aremove_all_watches => [18],
	aset => [5],
	async => [9],
	awexists => [3],
	awget => [4],
	awget_children => [8]);

# How many kinds of lies each request must meet, and what the library does by itself:
# watches again, events, the handshake.
my $enough = 4;
my %to_cover = (101 => 'SetWatches', event => 'an event', connect => 'the handshake');
foreach my $function (calls('program_*.c', qr/\bzoo_(a\w+)\(/))
{
	ok($operations{$function}, "zoo_$function() is known here");
	$to_cover{$_} = "zoo_$function()" foreach @{ $operations{$function} || [] };
}

my %faults;		# by the first frame that is not the sanitizer's
my @ours;		# reports with one in our own code
my @broken;		# what fuzz_session complains of
my $since = time;
my $summary = '';

my $pid = open2(my $out, my $in, './fuzz_session', $liar->address, $program,
	$seed);
while (defined(my $line = readline $out))
{
	chomp $line;
	push @broken, $line if $line =~ /^broken/;
	$summary = $line if $line =~ /^sessions/;
	if ($line eq 'lie')
	{
		read_reports();
		$liar->lie(0.3);
		my $is_over = $wanted ? $liar->lies >= $wanted : is_time_over();
		# Also if there is plenty to tell.
		$is_over ||= @broken + @ours >= 20;
		print $in $is_over ? "stop\n" : "go\n";
	}
	elsif ($line eq 'honest')
	{
		$liar->be_honest;
		print $in "done\n";
	}
	$in->flush;
}
waitpid $pid, 0;
my $status = $?;
read_reports();

is($status, 0, 'the process with the sessions survives');
is("@broken[0 .. (@broken > 5 ? 4 : $#broken)]", '',
	'no call, no request and no program takes too long');
is(scalar(@ours), 0, 'no fault is in our own code');
diag($_) foreach @ours > 5 ? @ours[0 .. 4] : @ours;
my $lies = $liar->lies;
cmp_ok($lies, '>=', $wanted || $seconds, 'there were lies');
diag("seed $seed") if @broken || @ours || $status;
diag(sprintf '%d lies in %d s, %.0f in a second; %s', $lies, time - $since,
	$lies / (time - $since), $summary);
my %kinds = $liar->kinds;
check_coverage();
note(join ' ', map { "$_ $kinds{$_}" } sort keys %kinds);
note(join "\n", 'faults in the library:',
	map { "$faults{$_} x $_" } sort { $faults{$b} <=> $faults{$a} } keys %faults);
$liar->stop;
$zk->stop;
done_testing();

# On a busy machine there are fewer lies in a second. After so many each request has met
# enough of them, or meets none.
sub is_time_over
{
	return 0 if time - $since < $seconds;
	return 1 if $liar->lies > 5_000;
	my %kinds = $liar->kinds;
	return !grep { told(\%kinds, $_) < $enough } keys %to_cover;
}

# How many kinds of lies such a request has met.
sub told ($kinds, $request)
{
	return scalar grep { /^\Q$request\E:/ } keys %$kinds;
}

sub check_coverage
{
	foreach my $request (sort keys %to_cover)
	{
		cmp_ok(told(\%kinds, $request), '>=', $enough,
			"several kinds of lies about $to_cover{$request}");
	}
	my ($fuzzer) = text_of(__FILE__ =~ s/\.pl$/.c/r);
	ok($fuzzer =~ /\bzklock_client_$_\(/, "zklock_client_$_() is called")
	  foreach calls('client.h',
		qr/\bzklock_client_(\w+)\(ZkClient \*client,\s*const char \*(?:path|from|guard)\b/);
	return;
}

# What the pattern finds in these of our files, comments aside.
sub calls ($files, $pattern)
{
	my %found = map { $_ => 1 } map { $_ =~ /$pattern/g } text_of(glob "$source/*/$files");
	return sort keys %found;
}

sub text_of
{
	my @texts;
	foreach my $path (@_)
	{
		open my $file, '<', $path or die "could not read $path: $!";
		push @texts, (do { local $/; readline $file }) =~ s{/\*.*?\*/}{}gsr;
		close $file;
	}
	return @texts;
}

# Take the reports that are there. One that is being written is left for later:
# its process is still there.
sub read_reports
{
	foreach my $file (glob "$reports/*")
	{
		my ($reporter) = $file =~ /\.(\d+)$/;
		next if -d "/proc/$reporter" && `ps -o stat= -p $reporter` !~ /^Z/;
		foreach my $text (Sanitizers::reports($file))
		{
			my ($whose, $what) = Sanitizers::judge($text) or next;
			$whose eq 'ours' ? push @ours, $what : $faults{$what}++;
		}
		unlink $file;
	}
	return;
}
