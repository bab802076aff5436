
=pod

=head1 NAME

Torture::Forgery - can the witness find anything?

=head1 DESCRIPTION

Histories that are made up: one in which all is well, and for each thing that
the witness is to find one in which just that is not. The same for the files that it
reads. A judge that acquits the former and convicts all of the latter is awake.

=cut

package Torture::Forgery;

use v5.36;

use Compress::Raw::Zlib qw(adler32);
use File::Temp ();
use Torture::Checker;
use Torture::Excuses;
use Torture::History;
use Torture::Nemesis;
use Torture::Stage;
use Torture::TransactionLog;
use Torture::Witness;

# All that it can find.
my @checks = qw(late_commits ended proofs reserve turns terms held tokens lost_sessions);

# What is promised, with a session timeout of three seconds.
my ($reserve, $asked_within) = (0.7, 1);

# What is changed in the history, and which checks must find it.
my @forgeries = (
	[ 'nothing', sub { }, '' ],
	[ 'the next one is granted the lock too early', sub { $_->{second}{granted} = 1.5; }, 'late_commits turns' ],
	[ 'the same, and the first one commits nothing', sub { _refuse($_); $_->{second}{granted} = 1.1; }, 'turns' ],
	[ 'a commit after the next one was granted the lock',
		sub { $_->{first}{recorded} = $_->{first}{ended} = 2.6; }, 'late_commits ended' ],
	[ 'the same, while it stood still for long enough',
		sub { $_->{first}{recorded} = $_->{first}{ended} = 2.6; $_->{stops} = { 1 => [ [ 1.85, 2.6 ] ] }; }, '' ],
	[ 'the same, while it stood still for a moment',
		sub { $_->{first}{recorded} = $_->{first}{ended} = 2.6; $_->{stops} = { 1 => [ [ 2.4, 2.6 ] ] }; }, 'late_commits ended' ],
	[ 'a commit of who is evicted meanwhile',
		sub { $_->{log}[4]{session} = 7; $_->{log}[4]{time} = 2; $_->{evictions} = { 11 => [ 1.95, 2.05 ] }; }, '' ],
	[ 'a commit of who was evicted by nobody we know',
		sub { $_->{log}[4]{session} = 7; $_->{log}[4]{time} = 2; }, 'ended' ],
	[ 'the session was expired before the commit', sub { _expire($_, 2.05); }, 'ended reserve' ],
	[ 'the session was expired just after the commit', sub { _expire($_, 2.3); }, 'reserve' ],
	[ 'the session was closed just after the commit', sub { _expire($_, 2.3); $_->{log}[4]{cxid} = 5; }, '' ],
	[ 'nobody was asked before the commit', sub { splice @{ $_->{log} }, 3, 1; }, 'proofs' ],
	[ 'another session was asked', sub { $_->{log}[3]{session} = 2; }, 'proofs' ],
	[ 'nobody was asked, and need not be', sub { splice @{ $_->{log} }, 3, 1; $_->{is_lease} = 1; }, '' ],
	[ 'nobody was asked for too long',
		sub { splice @{ $_->{log} }, 3, 1; $_->{log}[1]{time} = $_->{first}{asked} = -0.5; $_->{is_lease} = 1; }, 'proofs' ],
	[ 'a token that is none', sub { $_->{second}{locks}[0]{token} = 99; }, 'tokens' ],
	[ 'granted a lock when the node was gone before its turn',
		sub { $_->{log}[6]{time} = 1.5; $_->{second}{kind} = 'bare'; $_->{log}[5]{time} = 1.4; }, 'turns held' ],
	[ 'who goes on with a node that it has deleted itself', sub { $_->{log}[4]{time} = 1.8; }, 'ended held' ],
	[ 'the same, and it was refused', sub { $_->{log}[4]{time} = 1.8; _refuse($_); }, '' ],
	[ 'a lock that was kept and is taken back', sub { _keep($_); }, '' ],
	[ 'the same, by somebody who keeps none', sub { _keep($_); $_->{second}{keeps} = 0; }, 'held' ],
	[ 'the same, when its session has expired', sub { _keep($_); _expire($_, 2.3); }, 'ended reserve held' ],
	[ 'a lock that is taken again and again, also without a node',
		sub { $_->{spins} = [ { pid => 1, token => 11, told => 2.35 } ]; }, 'held' ],
	[ 'the same, with a node', sub { $_->{spins} = [ { pid => 1, token => 11, told => 2.25 } ]; }, '' ],
	[ 'a session goes on after a silence', sub { _be_silent($_); }, 'lost_sessions' ],
	[ 'the same, until the ensemble ends it in time', sub { _be_silent($_); _expire($_, 5.4); }, '' ],
	[ 'the same, until the ensemble ends it too late', sub { _be_silent($_); _expire($_, 5.6); }, 'lost_sessions' ],
	[ 'the same, and its program was stopped',
		sub { _be_silent($_); $_->{frozen_programs} = { 1 => [ [ 1.3, 1.8 ] ] }; }, '' ],
	[ 'a lease is deleted when its term is over', sub { _lease($_); }, '' ],
	[ 'a lease is deleted before its term is over', sub { _lease($_, '4010'); }, 'terms' ],
	[ 'the same, and it was given up', sub { _lease($_, '4010'); $_->{first}{release_sent} = 4.9; }, '' ],
	[ 'the same, and its worker was not told of it', sub { _lease($_, '4010'); _give_up($_->{first}); }, '' ],
	[ 'a lease is deleted when its first term is over, but was renewed', sub { _lease($_); $_->{log}[3]{time} = 2.1; }, 'terms' ],
	[ 'two readers', sub { _share($_); $_->{second}{granted} = 1.5; }, '' ],
	[ 'a reader beside a writer', sub { _share($_, 'second'); $_->{second}{granted} = 1.5; }, 'late_commits turns' ],
	[ 'two of two permits', sub { $_->{permits} = { a => 2 }; $_->{second}{granted} = 1.5; }, '' ],
	[ 'the number of a new node tells that the ensemble has lost the first one',
		sub { _start_again($_); }, 'ended proofs' ],
	[ 'the same, but it is that of a stranger, which tells nothing',
		sub { _start_again($_); $_->{strangers} = [7]; }, '' ],
	[ 'and the next one is granted the lock by his word',
		sub { _start_again($_); $_->{strangers} = [7]; $_->{second}{granted} = 1.5; }, 'late_commits turns' ]);

=pod

=head2 verdicts

[what was forged, what should be found, what was found], each; the latter two are
names with blanks between.

=cut

sub verdicts { return ((map { _judge(@$_) } @forgeries), _judge_files(), _judge_brought_back(), _judge_shared_numbers(),
		_judge_differing(), _judge_heals(), _judge_deadlocks()); }

sub _judge ($name, $forge, $expected)
{
	my $history = _history();
	$forge->() foreach $history;
	my %promise = (
		reserve => $reserve,
		asked_within => $history->{is_lease} ? $asked_within : 0);
	my $witness = Torture::Witness->new(
		transactions => $history->{log},
		cycles => [ @{$history}{qw(first second)} ],
		paths => { a => '/root/a' },
		permits => $history->{permits} || {},
		strangers => $history->{strangers},
		%promise,
		excuses => Torture::Excuses->new(
			stops => $history->{stops} || {},
			evictions => $history->{evictions} || {},
			frozen_programs => $history->{frozen_programs} || {},
			%promise));
	my @found = grep {
		my $check = "check_$_";
		grep { !$_->{is_explained} } $witness->$check(
			$_ eq 'lost_sessions' ? @{ $history->{silences} || [] }
			: $_ eq 'held' ? @{ $history->{spins} || [] } : ())
	} @checks;
	return [ $name, $expected, "@found" ];
}

# One after the other has the lock, and all is well.
sub _history
{
	return {
		first => _cycle(1, 11, asked => 0.9, granted => 1.2,
			commit_sent => 1.9, recorded => 2.1, ended => 2.2),
		second => _cycle(2, 12, asked => 1, granted => 2.4,
			commit_sent => 2.5, recorded => 2.6, ended => 2.7),
		log => [
			_transaction(0, 0.1, 10, 'create', '/root/a'),
			_transaction(1, 1, 11, 'create', _node(1), 1),
			_transaction(2, 1.1, 12, 'create', _node(2), 1),
			_transaction(1, 2, 13, 'check', _node(1)),
			_transaction(1, 2.3, 14, 'delete', _node(1)),
			_transaction(2, 2.55, 15, 'check', _node(2)),
			_transaction(2, 2.8, 16, 'delete', _node(2)) ] };
}

sub _cycle ($number, $token = undef, %times)
{
	return {
		worker => $number,
		cycle => 1,
		kind => 'local',
		cluster => 'berlin',
		name => 'a',
		pid => $number,
		scope => 'transaction',
		outcome => 'committed',
		locks => [ { name => 'a', mode => 'exclusive', token => $token } ],
		%times };
}

sub _transaction ($session, $time, $zxid, $kind, $path, $is_ephemeral = undef)
{
	return {
		session => $session,
		cxid => 1,
		zxid => $zxid,
		time => $time,
		changes => [ { kind => $kind, path => $path, is_ephemeral => $is_ephemeral } ] };
}

sub _node ($number, $mark = undef)
{
	return sprintf '/root/a/_c_0000000%d-0000-4000-8000-000000000000%s-lock-%010d',
	  $number, $mark || '', $number;
}

sub _expire ($history, $time)
{
	my $transaction = $history->{log}[4];
	@{$transaction}{qw(time cxid changes)} = ($time, 0, [ { kind => 'close' } ]);
	return;
}

# A session comes late and has a small number.
sub _start_again ($history)
{
	splice @{ $history->{log} }, 3, 0, _transaction(7, 1.95, 17, 'create', _node(0), 1);
	return;
}

# The first one hears nothing for too long, and nobody ends its session.
sub _be_silent ($history)
{
	$history->{silences} = [ [ 1.3, 1.5, 'berlin' ] ];
	$history->{log}[4]{time} = 5.6;
	return;
}

# After an error it may let go as soon as it was granted the lock.
sub _refuse ($history)
{
	my $cycle = $history->{first};
	$cycle->{outcome} = 'refused';
	delete $cycle->{recorded};
	return;
}

# The second one is the first one, which takes its lock back without a new node.
sub _keep ($history)
{
	$history->{second}{worker} = $history->{second}{pid} = 1;
	@{ $history->{second} }{qw(cycle keeps)} = (2, 1);
	$history->{second}{asked} = 2.38;
	$history->{second}{locks}[0]{token} = 11;
	$history->{log}[4]{time} = 2.9;
	splice @{ $history->{log} }, 2, 1;
	$history->{log}[4]{session} = 1;
	$history->{log}[4]{changes}[0]{path} = _node(1);
	pop @{ $history->{log} };
	# In order of time: the proof of the second transaction, and then the end.
	@{ $history->{log} }[ 3, 4 ] = @{ $history->{log} }[ 4, 3 ];
	return;
}

# The first one has a lease, of which the guard is not asked, and which another session
# deletes four seconds after its renewal.
sub _lease ($history, $term = '3990')
{
	my ($make, $renew, $delete) = @{ $history->{log} }[ 1, 3, 4 ];
	my $lease = { path => '/root/a/_c_00000001-0000-8a14-8000-000000000000-lock-0000000001', data => qq({"term":"$term"}) };
	$make->{changes} = [ { %$lease, kind => 'create', is_ephemeral => 0 } ];
	$renew->{changes} = [ { %$lease, kind => 'set' } ];
	$renew->{time} = 1;
	$delete->{changes} = [ { %$lease, kind => 'delete' } ];
	@{$delete}{qw(session time)} = (7, 5);
	splice @{ $history->{log} }, 5, 2;
	splice @{ $history->{log} }, 2, 1;
	$history->{is_lease} = 1;
	$history->{second}{locks} = [];
	_give_up($history->{second});
	return;
}

# It was never told that it has what it asked for.
sub _give_up ($cycle)
{
	delete @{$cycle}{qw(granted commit_sent recorded ended outcome)};
	return;
}

# Both are readers, or one of them.
sub _share ($history, @who)
{
	@who = qw(first second) unless @who;
	$history->{$_}{locks}[0]{mode} = 'shared' foreach @who;
	foreach my $change (map { @{ $_->{changes} } } @{ $history->{log} })
	{
		foreach my $number (map { $_ eq 'first' ? 1 : 2 } @who)
		{
			$change->{path} = _node($number, '-shared') if $change->{path} eq _node($number);
		}
	}
	return;
}

# Worker 1 has a lock and wants that of worker 2, who has let go of it and wants the first one's.
sub _judge_deadlocks
{
	my ($victim, $other) = map { { worker => $_, cycle => 1, name => 'b+a' } } 1, 2;
	@{$victim}{qw(asked wanted got gave_up is_deadlock)} = (3, { b => 3, a => 4 }, { b => 3.5 }, 6, 1);
	my $before = { %$other, asked => 1, wanted => { a => 1 }, got => { a => 1.5 }, over => 2 };
	@{$other}{qw(asked wanted got)} = (2, { b => 4.5 }, {});
	my $judge = sub ($name, $expected, @refusals) {
		my $checker = Torture::Checker->new(
			cycles => [ $victim, $before, $other ],
			refusals => { a => \@refusals },
			lingers => 3);
		return [ "deadlock: $name", $expected, join ' ', map { $_->{check} } $checker->check_deadlocks ];
	};
	my @verdicts = (
		$judge->('let go', 'deadlock of nobody'),
		$judge->('refused', '', [ 1.8, 5 ]),
		$judge->('refused before', 'deadlock of nobody', [ 0.2, 0.8 ]),
		$judge->('refused until then', 'deadlock of nobody', [ 1.8, 2.2 ]));
	# The session of worker 2 was lost while it had the lock, and wanted the other one.
	@{$before}{qw(wanted failed_at)} = ({ a => 1, b => 1.7 }, 2);
	push @verdicts, $judge->('lost', '');
	$before->{failed_at} = 0.9;
	push @verdicts, $judge->('lost long before', 'deadlock of nobody');
	delete $before->{failed_at};
	$other->{got}{a} = $other->{wanted}{a} = 2.5;
	return (@verdicts, $judge->('held', ''));
}

# A clock that goes on by one with each look at it: each fault is healed, or will be.
sub _judge_heals
{
	my ($time, $healed) = (0, 0);
	no warnings 'redefine';
	local *Torture::Nemesis::now = sub { return $time++; };
	my $nemesis = Torture::Nemesis->new(history => Torture::History->new('/dev/null'));
	$nemesis->{next_at} = 9**9;
	$nemesis->heal_in($_, 'stop', 'one', sub { $healed++; }) foreach map { 2 * $_ + 0.5 } 1 .. 9;
	$nemesis->step while $time < 60;
	return [ 'heals', 9, $healed ];
}

# Three servers' logs, which of them led the second epoch, and what is wrong.
my @files = (
	[ 'nothing', 0, sub { }, '1 2 3' ],
	[ 'a transaction that one server alone has', 0, sub { pop @$_ foreach @_[ 1, 2 ]; }, '1 2 3' ],
	[ 'the same, and another leads on', 1, sub { pop @$_ foreach @_[ 1, 2 ]; }, '1 2' ],
	[ 'the end of a log is torn off', 1, sub { $_[0][2] = substr $_[0][2], 0, 40; }, '1 2 3' ],
	[ 'two logs are torn off', 1, sub { $_->[2] = substr $_->[2], 0, 40 foreach @_[ 0, 1 ]; }, '1 2' ],
	[ 'a transaction is missing', 0, sub { splice @$_, 1, 1 foreach @_; }, '1 3 without 2' ],
	[ 'a byte is wrong', 0, sub { substr($_[0][1], 30, 1) ^.= "\1"; }, 'wrong checksum' ],
	[ 'two servers disagree', 0, sub { $_[0][1] = _bytes(2, 9); }, 'not the same' ]);

sub _judge_files
{
	my @verdicts;
	foreach my $case (@files)
	{
		my ($name, $leader, $forge, $expected) = @$case;
		my @logs = map { [ map { _bytes($_, 1) } 1 .. 3 ] } 1 .. 3;
		$forge->(@logs);
		my $dir = File::Temp::tempdir(CLEANUP => 1);
		_write_log("$dir/$_", @{ $logs[$_] }) foreach 0 .. 2;
		my $found = eval {
			my @transactions = grep { !$_->{is_void} }
			  Torture::TransactionLog::all({ 1 => "$dir/$leader" }, map { "$dir/$_" } 0 .. 2);
			my @missing = Torture::TransactionLog::missing(@transactions);
			join(' ', map { $_->{zxid} } @transactions)
			  . (@missing ? " without @missing" : '');
		} // ($@ =~ /(wrong checksum|not the same)/ ? $1 : $@);
		push @verdicts, [ "logs: $name", $expected, $found ];
	}
	return @verdicts;
}

# What an ensemble has, and had forgotten: /b, but neither what was made for good nor what
# was never made.
sub _judge_brought_back
{
	my @transactions = map { { is_void => $_->[0], changes => [ { kind => 'create', path => $_->[1] } ] } }
	  [ 0, '/a' ], [ 1, '/b' ], [ 1, '/c' ], [ 0, '/c' ];
	return [
		'logs: what was brought back',
		'/b', join ' ', Torture::TransactionLog::brought_back(\@transactions, qw(/b /a /c /d /b))
	];
}

# Two nodes of one number at a time: in /b, where the ensemble had forgotten the first, and in
# /e, where the delete was forgotten. Not in /a, where one came after the other, nor in /c, where a
# session ended between the two.
sub _judge_shared_numbers
{
	my $change = sub ($is_void, $session, $kind, $path = undef) {
		return {
			is_void => $is_void, session => $session,
			changes => [ { kind => $kind, path => $path, is_ephemeral => 1 } ] };
	};
	my @transactions = map { $change->(@$_) }
	  [ 0, 1, 'create', '/a/x-0000000001' ], [ 0, 1, 'delete', '/a/x-0000000001' ], [ 0, 2, 'create', '/a/y-0000000001' ],
	  [ 1, 1, 'create', '/b/x-0000000001' ], [ 0, 2, 'create', '/b/y-0000000001' ],
	  [ 0, 3, 'create', '/c/x-0000000001' ], [ 0, 3, 'close' ], [ 0, 2, 'create', '/c/y-0000000001' ],
	  [ 0, 4, 'create', '/e/x-0000000001' ], [ 1, 4, 'delete', '/e/x-0000000001' ], [ 0, 2, 'create', '/e/y-0000000001' ];
	return [
		'logs: two nodes of one number',
		'/b /e', join ' ', sort keys %{ Torture::TransactionLog::shared_numbers(\@transactions) }
	];
}

# What each of two servers has, and which of it the other one has not, at once or for good.
sub _judge_differing
{
	my $judge = sub ($name, $expected, @children) {
		my %looks;
		no warnings 'redefine';
		local *ZooKeeper::members = sub { return 0, 1; };
		local *ZooKeeper::client = sub ($zk, %option) { return bless [ $option{member} ], 'ZooKeeper::Client'; };
		local *ZooKeeper::Client::close = sub { };
		local *ZooKeeper::Client::DESTROY = sub { };
		local *ZooKeeper::Client::exists = sub ($client, $path) { return $path =~ m{/local/a$}; };
		local *ZooKeeper::Client::children = sub ($client, $path) {
			return @{ ($children[ $client->[0] ][ $looks{ $client->[0] }++ ? -1 : 0 ] || die 'ConnectionLoss') };
		};
		my $stage = bless { zookeeper => bless {}, 'ZooKeeper' }, 'Torture::Stage';
		return [ "servers: $name", $expected, join ' ', map { m{/([^/]*)$} } $stage->differing(0.1) ];
	};
	my ($one, $two) = map { "x-000000000$_" } 1, 2;
	return ($judge->('they agree', '', ([ [ $one, $two ] ]) x 2),
		$judge->('one is behind', '', [ [ $one, $two ] ], [ [$one], [ $one, $two ] ]),
		$judge->('one cannot be asked', '', [ [ $one, $two ] ], [undef]),
		$judge->('one differs, and cannot be asked then', '', [ [ $one, $two ] ], [ [$one], undef ]),
		$judge->('one has what the other has not', $two, [ [ $one, $two ] ], [ [$one] ]),
		$judge->('now one, and now the other', '', [ [$one], [ $one, $two ] ], [ [ $one, $two ], [$two] ]));
}

# A transaction in a file: a session is closed.
sub _bytes ($zxid, $session)
{
	my $bytes = pack 'q> l> q> q> l>', $session, 0, $zxid, 1000, -11;
	return pack('q> N', adler32($bytes), length $bytes) . $bytes . 'B';
}

sub _write_log ($dir, @transactions)
{
	mkdir $dir or die "could not make $dir: $!";
	mkdir "$dir/version-2" or die "could not make $dir: $!";
	open my $file, '>:raw', "$dir/version-2/log.1" or die "could not write: $!";
	print $file 'ZKLG', pack('N q>', 2, 0), @transactions, "\0" x 100;
	close $file or die "could not write: $!";
	return;
}

1;
