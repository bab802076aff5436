
=pod

=head1 NAME

Torture::TransactionLog - what ZooKeeper servers have written into their logs

=head1 DESCRIPTION

Reads the files version-2/log.* of servers that have stopped: each change that
the leader has ordered, with the session that asked for it and the time of day at
which the leader saw it. The layout is that of FileTxnLog.java and TxnHeader of
zookeeper.jute, release 3.8; numbers are big-endian.

  file         "ZKLG", version (int), database (long), transactions, zeros
  transaction  checksum (long), length (int), so many bytes, "B"
  bytes        session (long), cxid (int), zxid (long), time (long, ms),
               type (int), body of that type, digest

=cut

package Torture::TransactionLog;

use v5.36;

use Carp;
use Compress::Raw::Zlib qw(adler32);
use List::Util qw(max uniq);

# Types of transactions, and what we call the change.
my %kind = (
	-11 => 'close',
	-10 => 'open',
	-1 => 'error',
	1 => 'create',
	2 => 'delete',
	5 => 'set',
	7 => 'set_acl',
	13 => 'check',
	14 => 'multi',
	15 => 'create',
	16 => 'set',
	19 => 'create_other',
	20 => 'delete',
	21 => 'create_other');

=pod

=head2 read_file($path, $visit)

Calls $visit with a hash for each transaction, in order: zxid, session (signed),
cxid (0 if nobody asked: the leader expired a session), time (seconds, of the
leader's clock) and changes, each a hash with kind ("create", "create_other",
"delete", "set", "set_acl", "check", "open", "close", "error") and, where there is one,
path; of a create also is_ephemeral. What was done by one request, a "multi", is
one transaction of several changes; one that was refused is an "error".

Dies if the file is none, or a transaction in it is damaged. A file that ends within a
transaction was being written when its server was killed: the rest is no
transaction yet.

=cut

sub read_file ($path, $visit)
{
	open my $file, '<:raw', $path or croak "could not read $path: $!";
	my $text = do { local $/; readline $file };
	croak "$path is not a transaction log"
	  if length $text && substr($text, 0, 4) ne 'ZKLG';
	my $at = 16;
	while ($at + 12 <= length $text)
	{
		my ($checksum, $length) = unpack 'q> N', substr $text, $at, 12;
		# What was allocated in advance and is not written yet.
		last if $length == 0;
		my $bytes = substr $text, $at + 12, $length;
		my $is_whole = substr($text, $at + 12 + $length, 1) eq 'B';
		last if !$is_whole && substr($text, $at + 12 + $length) =~ /^\0*$/;
		croak sprintf '%s: wrong checksum at byte %d', $path, $at
		  if !$is_whole || adler32($bytes) != $checksum;
		$visit->(_transaction($bytes));
		$at += 13 + $length;
	}
	return;
}

=pod

=head2 all($leaders, directory, ...)

All transactions in their order, each with is_void as well: whether the ensemble has
agreed on it in the end. Given are the data
directory of each server, and for each epoch that of the server that led it. Who leads
decides what became of the epoch before: whatever it had itself, up to the last one, in
its log or its snapshots, it has brought to its followers. (Those that were sent a
snapshot have nothing of it in their logs; and what they had beyond stays there, though
it is void.) Of the last epoch it is what a majority has. Dies if two servers tell
different things of one transaction.

=head2 brought_back([transactions], path, ...)

Those of the paths that are in the ensemble at the end, and whose create is void: once each,
in order.

=head2 shared_numbers([transactions])

A reference to a hash: the path of each queue in which two nodes of one sequence number have
stood at a time, as far as some server knew, and such a pair. A server
that has brought back a node that the ensemble had forgotten (see brought_back()) has both: the
counter was set back with it, and the next create got the same number.

=head2 missing(transactions)

The numbers of those that must have been there, for there is a later one of that epoch.

=cut

sub all ($leaders, @directories)
{
	my (%transaction, %count, %last);
	foreach my $directory (@directories)
	{
		my %seen;
		foreach my $path (glob "$directory/version-2/log.*")
		{
			read_file(
				$path,
				sub ($transaction) {
					my $zxid = $transaction->{zxid};
					my $other = $transaction{$zxid} ||= $transaction;
					croak sprintf 'transaction 0x%x is not the same in all logs', $zxid
					  if grep { $other->{$_} != $transaction->{$_} } qw(session cxid time);
					$count{$zxid}++ unless $seen{$zxid}++;
				});
		}
		$seen{$_}++
		  foreach map { /([0-9a-f]+)$/ ? _zxid($1) : () } glob "$directory/version-2/snapshot.*";
		foreach my $zxid (keys %seen)
		{
			my $epoch = $zxid >> 32;
			$last{$directory}{$epoch} = max $last{$directory}{$epoch} || 0, $zxid;
		}
	}
	my @epochs = sort { $a <=> $b } keys %$leaders;
	foreach my $zxid (keys %transaction)
	{
		my $epoch = $zxid >> 32;
		my ($next) = grep { $_ > $epoch } @epochs;
		$transaction{$zxid}{is_void} =
		  defined $next
		  ? $zxid > ($last{ $leaders->{$next} }{$epoch} || 0)
		  : 2 * $count{$zxid} <= @directories;
	}
	return map { $transaction{$_} } sort { $a <=> $b } keys %transaction;
}

# Hexadecimal, of up to 16 digits.
sub _zxid { return unpack 'q>', pack 'H16', sprintf '%016s', $_[0]; }

sub brought_back ($transactions, @paths)
{
	my (%is_good, %is_void);
	foreach my $transaction (@$transactions)
	{
		my $is = $transaction->{is_void} ? \%is_void : \%is_good;
		$is->{ $_->{path} } = 1 foreach grep { $_->{kind} eq 'create' } @{ $transaction->{changes} };
	}
	return uniq(sort grep { $is_void{$_} && !$is_good{$_} } @paths);
}

sub shared_numbers ($transactions)
{
	my (%standing, %shared);
	foreach my $transaction (@$transactions)
	{
		my $is_good = !$transaction->{is_void};
		foreach my $change (@{ $transaction->{changes} })
		{
			my $session = $transaction->{session};
			delete @standing{ grep { $standing{$_} == $session } keys %standing }
			  if $is_good && $change->{kind} eq 'close';
			my ($queue, $number) = ($change->{path} // '') =~ m{^(.*)/[^/]*(\d{10})$} or next;
			delete $standing{ $change->{path} } if $is_good && $change->{kind} eq 'delete';
			next if $change->{kind} ne 'create' || !$change->{is_ephemeral};
			my ($other) = grep { m{^\Q$queue\E/[^/]*$number$} && $_ ne $change->{path} } keys %standing;
			$shared{$queue} = "$other $change->{path}" if defined $other;
			$standing{ $change->{path} } = $session;
		}
	}
	return \%shared;
}

sub missing (@transactions)
{
	my (%last, @missing);
	foreach my $zxid (map { $_->{zxid} } @transactions)
	{
		my ($epoch, $number) = ($zxid >> 32, $zxid & 0xffff_ffff);
		push @missing, map { ($epoch << 32) + $_ } ($last{$epoch} || 0) + 1 .. $number - 1;
		$last{$epoch} = $number;
	}
	return @missing;
}

sub _transaction ($bytes)
{
	my %transaction;
	(@transaction{qw(session cxid zxid time)}, my $type) =
	  unpack 'q> l> q> q> l>', $bytes;
	$transaction{time} /= 1000;
	$transaction{changes} = _changes($type, substr $bytes, 32);
	return \%transaction;
}

sub _changes ($type, $body)
{
	my $kind = $kind{$type}
	  or croak "a transaction of the unknown type $type";
	return _parts($body) if $kind eq 'multi';
	return [ { kind => $kind } ] if $kind =~ /^(open|close|error)$/;
	my %change = (kind => $kind, path => _buffer(\$body));
	$change{data} = _buffer(\$body) if $kind =~ /^(create|set)$/;
	if ($kind eq 'create')
	{
		my $rules = _number(\$body);
		foreach (1 .. $rules)
		{
			_number(\$body);
			_buffer(\$body) foreach qw(scheme id);
		}
		$change{is_ephemeral} = ord $body;
	}
	return [ \%change ];
}

# Of a multi: how many, and each with its type and its body. One that was refused has an error among
# them, and what stands before that was not done either (DataTree.processTxn()).
sub _parts ($body)
{
	my $count = _number(\$body);
	my @changes;
	foreach (1 .. $count)
	{
		my $type = _number(\$body);
		push @changes, @{ _changes($type, _buffer(\$body)) };
	}
	return [ { kind => 'error' } ] if grep { $_->{kind} eq 'error' } @changes;
	return \@changes;
}

# These take what they return from the front of the text.
sub _number ($text)
{
	return unpack 'l>', substr $$text, 0, 4, '';
}

sub _buffer ($text)
{
	my $length = _number($text);
	return $length < 0 ? '' : substr $$text, 0, $length, '';
}

1;
