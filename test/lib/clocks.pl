
# The clocks of the source: how long something takes, or how old it is, is the difference of
# two values of protocol_now(), which is CLOCK_BOOTTIME. A wall clock can be set while a lock
# is held, CLOCK_MONOTONIC stands still while a machine is suspended, and the dates of znodes
# are by ZooKeeper's clock. So each use of another clock stands in the table below, with its
# reason. Prints each that does not, and each line of the table that nothing needs any more,
# and fails then.
# Usage: clocks.pl SOURCE-TREE

use v5.36;

my $top = shift;

# What reads another clock, or holds what another clock has said.
my $other = qr/\b(?:
	GetCurrent(?:Statement|Transaction)?(?:Start|Stop)?Timestamp
	| GetSQL\w+ | TimestampDifference\w* | timestamptz_(?:now|cmp_internal)
	| (?:gettimeofday|time|ftime|clock|localtime|gmtime|mktime|now|clock_timestamp)\s*(?=\()
	| CLOCK_(?!BOOTTIME\b)\w+
	| INSTR_TIME_\w+
	| pg_time_\w+ | MyStart\w+
	| [cm]time_ms | wall_ms
)/x;

my %reason;
while (my $line = readline DATA)
{
	next if $line !~ /\S/ || $line =~ /^#/;
	my ($file, $function, $reason) = $line =~ /^(\S+)\s+(\S+)\s+(\S.*)$/ or die "clocks.pl: $line";
	$reason{"$file $function"} = $reason;
}

my %used;
foreach my $path (sort glob "$top/src/*/*.[ch]")
{
	my ($file) = $path =~ m{([^/]+)$};
	my $function = '-';
	my $number = 0;
	foreach my $line (split /\n/, code($path))
	{
		$number++;
		$function = $1 if $line =~ /^(?:static inline .*\b|\w.*[ *])?(\w+)\((?!.*;\s*$)/;
		$function = '-' if $line =~ /^}/;
		next if $line !~ $other;
		# The members of a struct are declared somewhere.
		next if $function eq '-' && $line =~ /^\s*int64(?:_t)?\s+\w+;/;
		print "$file:$number: $function() uses another clock than protocol_now():$line\n"
		  if !$reason{"$file $function"};
		$used{"$file $function"} = 1;
	}
}
my @idle = grep { !$used{$_} } sort keys %reason;
print "clocks.pl names a use that is gone: $_\n" foreach @idle;
my @bare = grep { !$reason{$_} } keys %used;
exit(@idle || @bare ? 1 : 0);

# The text of a file without comments and strings, on the same lines.
sub code ($path)
{
	open my $in, '<', $path or die "could not read $path: $!";
	local $/;
	my $text = readline $in;
	$text =~ s{("(?:[^"\\\n]|\\.)*")|('(?:[^'\\\n]|\\.)*')|/\*(.*?)\*/}{ defined $3 ? $3 =~ s/[^\n]//gr : '""' }gse;
	return $text;
}

# file, function, reason
__DATA__

# what is shown to people, in a view or a message
board.c zklock_board_end_session since when, in a view
board.c zklock_board_await since when, in a view
check_session.c ask_first_lease whether it is overdue, for zk_check()
check_servers.c date_of when a certificate expires, for zk_check()
check_servers.c put_certificate whether it expires soon, for zk_check()
check_session.c made_at when the root was made, for zk_check()
check_session.c note_reply when the root was made, for zk_check()
check_session.c try_to_make zk_check() compares the clocks themselves
leases.c zk_leader is_overdue is by this server's clock, and says so
lock_table.c zklock_lock_count since when, in a view
lock_table.c post_lock the date of a proof, in a view
place.c zklock_place_note_grant since when, in a view
queue_list.c take_child since when, and until when, in a view
release_request.c describe_request when it was asked for, in a message
session_loss.c session_loss_note when it was lost, in a message
session_news.c state_since since when, in a view
stat.c make_entry since when, in a view
stat.c zklock_stat_reset since when, in a view

# members that are handed on
expiry.c zklock_expiry_take the date of the last renewal, for a view
program_library.c note_answer the dates of znodes, as the server says them

# which statement it is, and no time
lock.c zklock_check_scope one warning a statement
lock.c zklock_warn_of_snapshot one warning a statement

# a second clock, which can but take away what CLOCK_BOOTTIME gives (contact.h)
contact.c contact_date a proof is fresh by both clocks
contact.c contact_fresh_since a proof is fresh by both clocks
contact.c contact_is_after a proof is fresh by both clocks
contact.c contact_earlier a proof is fresh by both clocks
lease_guard.c is_fresh a proof is fresh by both clocks
protocol.c protocol_moment where the second one is read

# a record is kept for days; none goes before ZooKeeper's clock and this server's agree on that
run_once.c begin_claim when it was claimed, for those who look whether it is old
run_once.c finish_claim no later than by ZooKeeper's clock
run_once.c is_old compared by the earlier of two clocks

# microseconds, for a counter or a message
contender.c begin_wait how long a wait took, for zk_stat
contender.c end_wait how long a wait took, for zk_stat
contender.c has_waited whether there was a wait, for zk_stat
program_ask.c now_us how long a server took to answer

# what the kernel counts by CLOCK_MONOTONIC
program_session.c suspended_ms the difference of the two clocks is what is asked for
