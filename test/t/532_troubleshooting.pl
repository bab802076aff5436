
# docs/troubleshooting.md has each message of the source that comes without a HINT, with its
# SQLSTATE, and none that the source does not have; the pages for operators quote none that it does
# not have. (A message with a HINT says itself what to do: the page has it where there is more to
# say.) Tested by reading them; a placeholder of a message stands on the page as "…".

use strict;
use warnings;
use utf8;

use File::Basename qw(basename);
use FindBin;
use Pages;
use Test::More;

binmode Test::More->builder->$_, ':encoding(UTF-8)' foreach qw(output failure_output todo_output);

my $top = "$FindBin::Bin/../..";
my @sources = grep { !/typedefs/ } glob "$top/src/*/*.c";
my %sqlstate = sqlstates();

# "kind: message" of what comes without a HINT, at least in one place or in one case.
my %lacks_hint;

# How many errmsg() of each file were read.
my %was_read;

# What is told otherwise than by words in its own ereport(): there it says "%s".
my @told_elsewhere = qw(loss.c session_error.c zklock.c);

# From the names that C and PL/pgSQL know.
sub sqlstates
{
	chomp(my $sharedir = qx(pg_config --sharedir));
	my %code;
	foreach my $line (split /\n/, Pages::slurp("$sharedir/errcodes.txt"))
	{
		next unless $line =~ /^([0-9A-Z]{5})\s+[EWS]\s+(ERRCODE_\w+)(?:\s+(\w+))?/;
		$code{$2} = $1;
		# of two with one name PL/pgSQL takes the first, too
		$code{$3} //= $1 if $3;
	}
	return %code;
}

# The string literals at the start of a text, as one; what stands for a placeholder
# between them is one.
sub literal
{
	my ($text) = @_;
	my $found = '';
	while ($text =~ /\G\s*(?:_\(\s*)?(?:"((?:[^"\\]|\\.)*)"|(U?INT64_FORMAT))/gc)
	{
		$found .= defined $1 ? $1 : '%d';
	}
	$found =~ s/%(?:\.\*)?(?:ll|z)?[sdumx]/…/g;
	$found =~ s/\\n$//;
	return $found =~ s/\\"/"/gr;
}

# What is in the parentheses that follow each of these words.
sub calls
{
	my ($text, $name) = @_;
	my @found;
	my $nested = qr/(\((?:[^()"']++|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|(?1))*\))/;
	push @found, substr($1, 1, -1) while $text =~ /(?<!\w)(?:$name)\s*(?=\()$nested/g;
	return @found;
}

sub kinds
{
	my ($levels, $code) = @_;
	my %of = (ERROR => $code, FATAL => $code, WARNING => "warning $code", NOTICE => 'notice', LOG => 'log',
		LOG_SERVER_ONLY => 'log', ZK_LOG_DEED => 'log');
	return map { $of{$_} // die "what is $_?" } grep { !/^DEBUG/ } $levels =~ /\b([A-Z][A-Z_]+\d?)\b/g;
}

# The SQLSTATEs of what ZooKeeper answers, which are in a table of their own.
my %sqlstate_of_result = Pages::slurp("$top/src/common/answer.c") =~ /\bROW\((ZK_\w+),[^)]*"(\w{5})"\)/g;

# Has what is in the parentheses of an ereport() a HINT in every case? Those of functions
# that explain something have one.
sub has_hint
{
	my ($call) = @_;
	return 1 if $call =~ /\b(?:connection_hint|\w*_explain_(?:silence|late_proof))\s*\(/;
	return $call =~ /\berrhint(?:_\w+)?\s*\(/ && $call !~ /\berrhint\((?:[^()]|\([^()]*\))*\)\s*:\s*0/;
}

# "kind: message" of all that a user may meet.
sub messages_of_source
{
	my ($file) = @_;
	my $text = Pages::slurp($file);
	my @found;
	# What is found in the source, with no HINT of its own.
	my $find = sub { $lacks_hint{$_} = 1 foreach @_; push @found, @_; };
	# no comment begins in a string
	$text =~ s{('(?:[^'\\]|\\.)'|"(?:[^"\\]|\\.)*")|/\*.*?\*/}{$1 // ''}gse;
	$text =~ s/^#.*//mg;
	foreach my $call (calls($text, 'ereport'))
	{
		my ($levels, $rest) = $call =~ /^(.*?),(.*)/s;
		my ($name) = $rest =~ /(?:\b|_stat_)errcode\((?:sqlstate_of\()?((?:ERRCODE|ZK)_\w+)\)/;
		my @codes =
			$name ? $sqlstate{$name} // $sqlstate_of_result{$name}
		  : $rest =~ /errcode_for_file_access/ ? qw(58P01 42501 58030)
		  : 'XX000';
		foreach my $message (calls($rest, 'errmsg|errmsg_internal|errmsg_plural'))
		{
			$was_read{$file}++;
			# of a singular and a plural the latter
			my $words = literal($message =~ s/^\s*"[^"]*(?:\\"[^"]*)*",\s*(?=")//r);
			my @these = map { "$_: $words" } map { kinds($levels, $_) } @codes;
			has_hint($rest) ? push @found, @these : $find->(@these);
		}
	}
	# The words of a ZkLoss, which are read below, put into an error that is there already.
	$was_read{$file} += () = $text =~ /^\terrmsg_internal\("%s", Statement\.named\.message\);/mg;
	foreach my $call (calls($text, 'elog'))
	{
		my ($level, $words) = $call =~ /^(\w+),(.*)/s;
		$find->(map { "$_: " . literal($words) } kinds($level, 'XX000'));
	}
	my @codes = map { $_ ? $sqlstate{$_} : '22023' }
	  $text =~ /(?:GUC_check_errcode\((\w+)\);\s*)?GUC_check_errmsg\(/g;
	$find->(map { shift(@codes) . ': ' . literal($_) } calls($text, 'GUC_check_errmsg'));
	$find->(map { 'stderr: ' . literal(s/^stderr,//r) }
	  grep { /^stderr,/ } calls($text, 'fprintf'));
	$find->(map { 'detail: ' . literal(s/^[^,]*,//r) }
	  grep { !/const char/ } calls($text, '(?:session_)?set_error'));

	# Words that are made for an ereport() elsewhere: those of a function that returns an errmsg()
	# are for locks that could not be obtained.
	foreach my $message (map { calls($_, 'errmsg') } $text =~ /\breturn (errmsg\(.*?\));/gs)
	{
		$was_read{$file}++;
		$find->('55P03: ' . literal($message));
	}
	$find->(map { 'detail: ' . literal($_) } $text =~ /\[ZK_CHANNEL_\w+\] = ("(?:[^"\\]|\\.)*")/g);
	push @found, map { /^(ERRCODE_\w+),(.*)/s ? "$sqlstate{$1}: " . literal($2) : () }
	  calls($text, 'refuse_to_end');
	push @found, map { '40001: ' . literal($_) }
	  $text =~ /snprintf\(\w+->message,\s*sizeof\(\w+->message\),(.*?)\);/gs;
	push @found, map { '57014: ' . literal($_) } $text =~ /psprintf\((_\("canceling statement.*?)\)/gs;
	if (basename($file) eq 'session_loss.c')
	{
		$find->(map { 'detail: ' . literal($_) } $text =~ /snprintf\(text, size,\s*(".*?)\);/gs);
		$find->(map { 'detail: ' . literal($_) } $text =~ /\[ZK_LOSS_\w+\] = ("[^"]*")/g);
	}
	if (basename($file) eq 'session_error.c')
	{
		push @found, map { /^(ERRCODE_\w+)(.*)/s ? "$sqlstate{$1}: " . literal($2 =~ s/^[^"]*//r) : () }
		  $text =~ /[{\t](ERRCODE_\w+,\s*"(?:[^"\\]|\\.)*")/g;
		push @found, map { /^(ZK_\w+)(.*)/s ? "$sqlstate_of_result{$1}: could not …: " . literal($2 =~ s/^[^"]*//r) : () }
		  $text =~ /case (ZK_\w+:\s*problem = "[^"]*")/g;
		push @found, map { "$sqlstate_of_result{ZK_FAILED}: could not …: " . literal($_) }
		  $text =~ /const char \*problem = ("[^"]*")/g;
		@found = grep { !/could not …: …$/ } @found;
	}
	return grep { !/^[\w ]+: (?:…\.?)?$/ } @found;
}

sub messages_of_script
{
	my $text = Pages::slurp($_[0]);
	my @found;
	while ($text =~ /\bRAISE (\w+) USING(.*?);\n/gs)
	{
		my ($level, $rest) = ($1, $2);
		my $code = $rest =~ /ERRCODE = '(\w+)'/ ? $sqlstate{$1} : '01000';
		my ($words) = $rest =~ /MESSAGE = (?:(?:pg_catalog\.)?format\()?'((?:[^']|'')*)'/;
		my @these = map { "$_: " . $words =~ s/%[sI]/…/gr } kinds($level =~ s/EXCEPTION/ERROR/r, $code);
		push @found, @these;
		next if $rest =~ /\bHINT = /;
		$lacks_hint{$_} = 1 foreach @these;
	}
	return @found;
}

# Those of the page's lists. What PostgreSQL says itself has a section of its own.
sub messages_of_page
{
	my ($page) = @_;
	my @found;
	$page =~ s/^## PostgreSQL's own words.*?(?=^## |\z)//ms;
	$page =~ s/\n +/ /g;
	my $kind = qr/(?:warning )?[0-9A-Z]{5}|log|notice|detail|stderr/;
	while ($page =~ /^- (`.*?`) \((?=$kind)([^)]*)\): /mg)
	{
		my ($messages, $kinds) = ($1, $2);
		foreach my $kind (split /; /, $kinds)
		{
			push @found, map { "$kind: $_" } $messages =~ /`([^`]+)`/g;
		}
	}
	return @found;
}

sub unique { my %seen; return grep { !$seen{$_}++ } @_; }

sub without
{
	my ($these, @others) = @_;
	my %is_other = map { $_ => 1 } @others;
	return [ grep { !$is_other{$_} } @$these ];
}

my $page = Pages::slurp("$top/docs/troubleshooting.md");
my @of_page = messages_of_page($page);
my @of_source = unique((map { messages_of_source($_) } @sources),
	map { messages_of_script($_) } glob "$top/sql/zklock--*.sql");
cmp_ok(scalar @of_source, '>', 100, 'the source has messages');
cmp_ok(scalar(keys %lacks_hint), '>', 60, 'there are messages without a HINT');
cmp_ok(scalar(grep { !$lacks_hint{$_} } @of_source), '>', 60, 'and messages with one');
is_deeply([ grep { $lacks_hint{$_} } @{ without(\@of_source, @of_page) } ], [], 'each message without a HINT is on the page');
is_deeply(without(\@of_page, @of_source), [], 'each message of the page is in the source');
my %times;
is_deeply([ grep { $times{$_}++ } @of_page ], [], 'no message stands on the page twice');

# What other pages quote of a message: words in code, at least four, with "..." for what is left out.
# It may be a DETAIL, so all strings of the source count. Commands and SQL are no messages.
my $command = qr/^(?:echo|ps|df|grep|docker|psql|pg_\w+|systemctl|timedatectl|SELECT|SET|CALL|ALTER|GRANT|REVOKE|LOCK|FOR|PGOPTIONS|make|zk\w*Cli\.sh)\b/;
my @strings = map { literal($_) } map { Pages::slurp($_) =~ /((?:"(?:[^"\\\n]|\\.)*"|\s|U?INT64_FORMAT)*"(?:[^"\\\n]|\\.)*")/g } @sources;
my (@quoted, @unknown);
foreach my $name (map { "docs/$_.md" } qw(operations monitoring checklist backup sizing))
{
	foreach my $line (grep { !$_->{is_code} } @{ Pages::page($name, Pages::slurp("$top/$name"))->{lines} })
	{
		foreach my $words (grep { split(' ') >= 4 && !/[=;]|\Q|\E/ && !/$command/ } $line->{text} =~ /`([^`]+)`/g)
		{
			my $fits = join '.*', map { quotemeta } split /\.{3}/, $words =~ s/"[^".]+"/"..."/gr, -1;
			push @quoted, $words;
			push @unknown, "$name:$line->{number}: $words" if !grep { /$fits/ } @strings, @of_source;
		}
	}
}
cmp_ok(scalar @quoted, '>', 10, 'the pages for operators quote messages');
is(join("\n", @unknown), '', 'each message that they quote is in the source');

# An entry says what a symptom or a message means, and what to do.
my @entries = ($page =~ s/\n +/ /gr) =~ /^- ((?:\*\*|`).*)$/mg;
cmp_ok(scalar @entries, '>', 60, 'the page has entries');
is_deeply([ grep { !/^(?:\*\*[^*]+\.\*\* |(?:`[^`]+`(?: \([^)]+\))?(?:, )?)+(?:, or [^:]+)?: )[A-Z"\[`*].*\.$/ } @entries ],
	[], 'each has a symptom or messages, and sentences about them');

# Whether an ereport() has a HINT in every case is told apart.
ok(has_hint($_), "a HINT: $_") foreach 'errmsg("a"), errhint("b (c)")', 'a ? errhint("b") : errhint("c")', 'errmsg("a"), connection_hint(c)', 'a(), zklock_session_explain_silence()';
ok(!has_hint($_), "not always: $_") foreach 'errmsg("a")', 'errmsg("a"), hint != NULL ? errhint("%s", hint) : 0';

my @unread = grep {
	my $there = () = Pages::slurp($_) =~ /\berrmsg\w*\(/g;
	$there != ($was_read{$_} // 0);
} @sources;
is_deeply(\@unread, [], 'each errmsg() was read');

# Whoever makes the words of an error elsewhere has to tell this test where.
my @without_words = grep {
	grep { /\berrmsg\w*\("%s",/ } calls(Pages::slurp($_), 'ereport')
} @sources;
is_deeply([ sort map { basename($_) } @without_words ],
	\@told_elsewhere, 'words of errors are where they are looked for');

done_testing();
