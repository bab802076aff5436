
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

use strict;
use warnings;

use Carp;
use Compress::Raw::Zlib qw(adler32);

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

Dies if the file is none, or a checksum is wrong. A file that ends within a
transaction was being written when its server was killed: the rest is no
transaction yet.

=cut

sub read_file
{
	my ($path, $visit) = @_;
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
		last if $at + 13 + $length > length $text;
		my $bytes = substr $text, $at + 12, $length;
		last if substr($text, $at + 12 + $length, 1) ne 'B';
		croak sprintf '%s: wrong checksum at byte %d', $path, $at
		  if adler32($bytes) != $checksum;
		$visit->(_transaction($bytes));
		$at += 13 + $length;
	}
	return;
}

=pod

=head2 committed(directory, ...)

The transactions that the ensemble has agreed on, in their order, given the data
directory of each server. What a majority of the servers has in its log is
agreed on: nothing else can have been acknowledged, and no election can have lost
it since. What is in fewer logs was proposed by a leader that failed.

Dies if two servers tell different things of one transaction.

=cut

sub committed
{
	my (@directories) = @_;
	my (%transaction, %count);
	foreach my $directory (@directories)
	{
		my %seen;
		foreach my $path (glob "$directory/version-2/log.*")
		{
			read_file(
				$path,
				sub {
					my ($transaction) = @_;
					my $zxid = $transaction->{zxid};
					my $other = $transaction{$zxid} ||= $transaction;
					croak sprintf 'transaction 0x%x is not the same in all logs', $zxid
					  if grep { $other->{$_} != $transaction->{$_} } qw(session cxid time);
					$count{$zxid}++ unless $seen{$zxid}++;
				});
		}
	}
	return map { $transaction{$_} }
	  grep { 2 * $count{$_} > @directories }
	  sort { $a <=> $b } keys %transaction;
}

sub _transaction
{
	my ($bytes) = @_;
	my %transaction;
	(@transaction{qw(session cxid zxid time)}, my $type) =
	  unpack 'q> l> q> q> l>', $bytes;
	$transaction{time} /= 1000;
	$transaction{changes} = _changes($type, substr $bytes, 32);
	return \%transaction;
}

sub _changes
{
	my ($type, $body) = @_;
	my $kind = $kind{$type}
	  or croak "a transaction of the unknown type $type";
	return _parts($body) if $kind eq 'multi';
	return [ { kind => $kind } ] if $kind =~ /^(open|close|error)$/;
	my %change = (kind => $kind, path => _buffer(\$body));
	if ($kind eq 'create')
	{
		_buffer(\$body);
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

# Of a multi: how many, and each with its type and its body.
sub _parts
{
	my ($body) = @_;
	my $count = _number(\$body);
	my @changes;
	foreach (1 .. $count)
	{
		my $type = _number(\$body);
		push @changes, @{ _changes($type, _buffer(\$body)) };
	}
	return \@changes;
}

# These take what they return from the front of the text.
sub _number
{
	my ($text) = @_;
	return unpack 'l>', substr $$text, 0, 4, '';
}

sub _buffer
{
	my ($text) = @_;
	my $length = _number($text);
	return $length < 0 ? '' : substr $$text, 0, $length, '';
}

1;
