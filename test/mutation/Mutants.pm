
# Mutants: a text of C with one change of one function's body, for test/mutation/run and
# test/mutation/live.pl.

package Mutants;

use v5.36;

use Exporter qw(import);
use IO::Handle;
use JSON::PP;
use POSIX ();

our @EXPORT_OK = qw(mutants_of read_list judge_in_parallel slurp write_file source_in pure_modules read_reached
  load);

# Of src/common is each, and these of other folders, too: values in, verdict out, and a unit
# test that says all of them. Their mutants are judged by unit tests alone, every one.
my @pure_elsewhere = qw(program_code);

sub pure_modules ($top)
{
	return (sort(map { m{/(\w+)\.c$} } glob "'$top'/src/common/*.c"), @pure_elsewhere);
}

# How busy the machine is.
sub load { return (split / /, slurp('/proc/loadavg'))[0]; }

# The file of a module below src, in whichever folder it is; undef if there is none.
sub source_in ($top, $module)
{
	return (glob "'$top'/src/*/$module.c")[0];
}

# What "make coverage" has written: see test/coverage/reach.
sub read_reached ($file)
{
	-e $file or die "there is no $file: run \"make coverage\" first, which writes which tests reach what\n";
	return JSON::PP->new->decode(slurp($file));
}

sub slurp ($file)
{
	open my $in, '<', $file or die "could not read $file: $!\n";
	local $/;
	return readline($in) // '';
}

sub write_file ($file, $text)
{
	open my $out, '>', $file or die "could not write $file: $!\n";
	print {$out} $text;
	close $out or die "could not write $file: $!\n";
	return;
}

# What the code says of each of so many mutants, given a worker and the mutant's number: lists of
# words. It runs in so many workers, from 1 on, of which each has every Nth, and ends its worker
# by saying nothing. Ahead of the lists a wait status, if a worker has failed, or 0. The words are
# in a file below the worker's directory as soon as they are known.
sub judge_in_parallel ($directory, $nworkers, $nmutants, $code)
{
	my %kid;
	local @SIG{qw(HUP INT TERM)} = (sub { kill TERM => keys %kid; 1 while wait > 0; exit 1 }) x 3;
	foreach my $worker (1 .. $nworkers)
	{
		my $pid = fork // die "could not fork: $!";
		$kid{$pid} = $worker;
		next if $pid;
		@SIG{qw(HUP INT TERM)} = ('DEFAULT') x 3;
		mkdir "$directory/$worker";
		open my $results, '>', "$directory/$worker/results" or die "could not write: $!";
		$results->autoflush(1);
		foreach my $i (grep { $_ % $nworkers == $worker - 1 } 0 .. $nmutants - 1)
		{
			my @words = $code->($worker, $i) or last;
			print {$results} "$i @words\n";
		}
		POSIX::_exit(0);
	}
	my $status = 0;
	while ((my $pid = wait) > 0)
	{
		$status ||= $?;
		delete $kid{$pid};
	}
	my @words;
	foreach my $line (map { split /\n/, slurp("$directory/$_/results") } 1 .. $nworkers)
	{
		my ($i, @of) = split / /, $line;
		$words[$i] = \@of;
	}
	return ($status, @words);
}

# The list of those that live, and why: under reasons the keys, each as they are printed of
# those that live, behind the line number.
sub read_list ($list)
{
	my ($reason, %entry);
	foreach my $line (split /\n/, slurp($list))
	{
		next if $line =~ /^\s*(?:#|$)/;
		if ($line =~ /^== (.+)/)
		{
			$reason = $1;
			next;
		}
		die "$list: no reason for: $line\n" if !$reason;
		die "$list: twice: $line\n" if $entry{$line};
		die "$list: not understood: $line\n" if $line !~ /^(\w+)\.c \w+ \[.+?\] \S/;
		$entry{$line} = { module => $1, reason => $reason };
	}
	return \%entry;
}

# All mutants of a text: {text} is all of it with the change, {line} where that is, and
# {key} names it wherever it stands.
sub mutants_of ($module, $text)
{
	my @lines = split /\n/, $text;
	my (@mutants, %nsame);
	foreach my $function (functions_of(tokens_of($text)))
	{
		foreach my $change (changes_of($text, $function))
		{
			my ($from, $length, $new, $what) = @$change;
			my $line = 1 + (substr($text, 0, $from) =~ tr/\n//);
			my $key = "$module.c $function->{name} [$what";
			my $of_line = $lines[ $line - 1 ] =~ s/^\s+|\s+$//gr;
			my $number = ++$nsame{"$key] $of_line"};
			$key .= " #$number" if $number > 1;
			my $changed = $text;
			substr $changed, $from, $length, $new;
			push @mutants,
			  { module => $module, function => $function->{name}, text => $changed, line => $line, what => $what,
				key => "$key] $of_line" };
		}
	}
	return @mutants;
}

# What the compiler would see: {kind} name, number, character, string or sign, {text}, {at}.
sub tokens_of ($text)
{
	my @tokens;
	pos($text) = 0;
	while (pos $text < length $text)
	{
		my $at = pos $text;
		next if $text =~ m{\G(?:\s+|/\*.*?\*/|//[^\n]*)}gcs;
		next if $text =~ m{\G(?<![^\n])[ \t]*\#(?:[^\n\\]|\\.)*}gcs;
		my $kind =
		    $text =~ /\G[A-Za-z_]\w*/gc ? 'name'
		  : $text =~ /\G(?:0[xX][0-9A-Fa-f]+|[0-9]+)[uUlL]*(?![\w.])/gc ? 'number'
		  : $text =~ /\G'(?:[^'\\]|\\.)+'/gc ? 'character'
		  : $text =~ /\G"(?:[^"\\]|\\.)*"/gcs ? 'string'
		  : $text =~ /\G(?:<<=|>>=|\.\.\.|->|\+\+|--|<<|>>|[<>=!]=|&&|\|\||[-+*\/%&|^]=|.)/gcs ? 'sign'
		  : die "not understood: byte $at\n";
		push @tokens, { kind => $kind, text => substr($text, $at, pos($text) - $at), at => $at };
	}
	return @tokens;
}

# The functions: {name}, {is_bool}, {body} are the tokens from one brace to the other.
# Beside them only functions' own declarations have parentheses, and no braces.
sub functions_of
{
	my @tokens = @_;
	my (@functions, @head);
	while (defined(my $token = shift @tokens))
	{
		if ($token->{text} ne '{')
		{
			@head = $token->{text} eq ';' ? () : (@head, $token);
			next;
		}
		my @body = $token;
		for (my $depth = 1; $depth > 0;)
		{
			push @body, shift @tokens;
			$depth += { '{' => 1, '}' => -1 }->{ $body[-1]{text} } // 0;
		}
		next if !@head || $head[-1]{text} ne ')';
		my ($open) = grep { $head[$_]{text} eq '(' } 0 .. $#head;
		push @functions,
		  {
			name => $head[ $open - 1 ]{text},
			is_bool => scalar(grep { $_->{text} eq 'bool' } @head[ 0 .. $open - 1 ]),
			body => \@body
		  };
		@head = ();
	}
	return @functions;
}

# The changes of a function, in the order of the text: where, how many bytes, by what, and
# that in words.
sub changes_of ($text, $function)
{
	my @tokens = @{ $function->{body} };
	my $partner = match(\@tokens);
	my $context = contexts(\@tokens, $partner);
	my @changes;
	foreach my $i (0 .. $#tokens)
	{
		my $end = $context->{end}[$i];
		push @changes, statement_changes($text, \@tokens, $i, $end, $function->{is_bool}) if defined $end;
		next if $context->{is_declared}[$i];
		push @changes, condition_changes($text, \@tokens, $i, $partner);
		my ($at, $old) = @{ $tokens[$i] }{qw(at text)};
		push @changes, map { [ $at, length $old, $_, "$old -> " . (length $_ ? $_ : 'nothing') ] }
		  token_changes(\@tokens, $i);
	}
	return sort { $a->[0] <=> $b->[0] } @changes;
}

# Of each bracket the index of the other one.
sub match ($tokens)
{
	my (@open, @partner);
	foreach my $i (0 .. $#$tokens)
	{
		next if $tokens->[$i]{kind} ne 'sign';
		push @open, $i if $tokens->[$i]{text} =~ /^[(\[{]$/;
		if ($tokens->[$i]{text} =~ /^[)\]}]$/)
		{
			my $other = pop @open;
			@partner[ $i, $other ] = ($other, $i);
		}
	}
	return \@partner;
}

# Where statements start that are no declarations: {end} is the index of their semicolon;
# and which tokens declare something, or are none that are computed: {is_declared}.
sub contexts ($tokens, $partner)
{
	my (@end, @is_declared);
	my $starts = 0;
	for (my $i = 0; $i < @$tokens; $i++)
	{
		my $word = $tokens->[$i]{text};
		if ($word eq 'sizeof' || $word eq 'offsetof')
		{
			@is_declared[ $i .. $partner->[ $i + 1 ] ] = (1) x ($partner->[ $i + 1 ] - $i + 1);
		}
		my $begins_for = $i > 1 && "$tokens->[ $i - 2 ]{text}$tokens->[ $i - 1 ]{text}" eq 'for(';
		if ($starts || ($begins_for && $word ne ';'))
		{
			my $stop = declares($tokens, $i);
			@is_declared[ $i .. $stop ] = (1) x ($stop - $i + 1) if $stop;
			$end[$i] = end_of($tokens, $i, $partner) if $starts && !$stop;
		}
		$starts = $word eq ';' || $word eq '{' || $word eq '}' || $word eq 'else' || $word eq 'do';
		if ($word eq '{')
		{
			# Not those of a value.
			my $before = $i ? $tokens->[ $i - 1 ]{text} : ')';
			my $head = $i && $before eq ')' ? $tokens->[ $partner->[ $i - 1 ] - 1 ]{text} : 'if';
			$starts = 0 if $before !~ /^(?:\)|;|\{|\}|else|do|:)$/ || $head !~ /^(?:if|while|for|switch|foreach\w*)$/;
		}
		$starts = 1 if $word eq ')' && $tokens->[ $partner->[$i] - 1 ]{text} =~ /^(?:if|while|for|switch|foreach\w*)$/;
		$starts = 1 if $word eq ':' && is_label($tokens, $i);
		$starts = 0 if $word eq ';' && in_for($tokens, $i, $partner);
	}
	return { end => \@end, is_declared => \@is_declared };
}

# Is this colon one of a case?
sub is_label ($tokens, $i)
{
	while (--$i >= 0)
	{
		return 1 if $tokens->[$i]{text} =~ /^(?:case|default)$/;
		return 0 if $tokens->[$i]{text} =~ /^[;{}?:]$/;
	}
	return 0;
}

sub in_for ($tokens, $i, $partner)
{
	while (--$i >= 0)
	{
		if ($tokens->[$i]{text} =~ /^[)\]}]$/)
		{
			$i = $partner->[$i];
			next;
		}
		return $tokens->[$i]{text} eq '(' if $tokens->[$i]{text} =~ /^[(\[{]$/;
	}
	return 0;
}

# If a declaration starts here, the index of its last token that is no value: the "=", or
# the semicolon.
sub declares ($tokens, $i)
{
	my $j = $i;
	my $nnames = 0;
	for (; $tokens->[$j]{kind} eq 'name' || $tokens->[$j]{text} eq '*'; $j++)
	{
		return 0 if $tokens->[$j]{text} =~ /^(?:return|if|while|for|switch|do|else|case|default|break|continue|goto)$/;
		$nnames++ if $tokens->[$j]{kind} eq 'name';
	}
	return 0 if $nnames < 2;
	$j++ while $tokens->[$j]{text} !~ /^[=;]$/;
	return $j;
}

# The index of the semicolon of a simple statement that starts here; of others there is
# none.
sub end_of ($tokens, $i, $partner)
{
	return if $tokens->[$i]{kind} ne 'name' && $tokens->[$i]{text} !~ /^(?:\*|\+\+|--)$/;
	return if $tokens->[$i]{text} =~ /^(?:if|while|for|switch|do|else|case|default|goto|PG_\w+)$/;
	my $next = $tokens->[ $i + 1 ]{text} eq '(' && $tokens->[ $partner->[ $i + 1 ] + 1 ];
	return if $next && ($next->{text} eq '{' || $next->{kind} eq 'name');    # a macro that loops
	for (; $i < @$tokens; $i++)
	{
		return $i if $tokens->[$i]{text} eq ';';
		$i = $partner->[$i] if $tokens->[$i]{text} =~ /^[(\[{]$/;
	}
	die "a statement without its end\n";
}

# A statement is dropped, leaves a loop instead of going on with it, or has another result.
sub statement_changes ($text, $tokens, $i, $end, $is_bool)
{
	my $word = $tokens->[$i]{text};
	my ($from, $to) = ($tokens->[$i]{at}, $tokens->[$end]{at});
	if ($word eq 'return')
	{
		return [ $from, $to - $from, '', 'dropped' ] if $end == $i + 1;
		return if $end == $i + 2 && $tokens->[ $i + 1 ]{text} =~ /^(?:true|false|NULL|\d+)$/;
		my $start = $tokens->[ $i + 1 ]{at};
		my $value = substr $text, $start, $to - $start;
		return [ $start, $to - $start, $is_bool ? "!($value)" : "($value) + 1", $is_bool ? 'result negated' : 'result + 1' ];
	}
	my @changes = [ $from, $to - $from, '', 'dropped' ];
	my %other = (break => 'continue', continue => 'break');
	push @changes, [ $from, length $word, $other{$word}, "$word -> $other{$word}" ] if $other{$word};
	return @changes;
}

# The condition of an if or a loop, negated.
sub condition_changes ($text, $tokens, $i, $partner)
{
	return if $tokens->[$i]{text} !~ /^(?:if|while)$/;
	my $start = $tokens->[ $i + 1 ]{at};
	my $length = $tokens->[ $partner->[ $i + 1 ] ]{at} + 1 - $start;
	my $value = substr $text, $start, $length;
	return [ $start, $length, "(!$value)", 'condition negated' ];
}

# What stands in the place of this token in a mutant each.
sub token_changes ($tokens, $i)
{
	my ($kind, $word) = @{ $tokens->[$i] }{qw(kind text)};
	my %other = (
		'<' => ['<='], '<=' => ['<'], '>' => ['>='], '>=' => ['>'], '==' => ['!='], '!=' => ['=='],
		'&&' => ['||'], '||' => ['&&'], '++' => ['--'], '--' => ['++'], '+=' => ['-='], '-=' => ['+='],
		'|=' => ['&='], '&=' => ['|='], '/' => ['*'], '%' => ['/'], '<<' => ['>>'], '>>' => ['<<'], '!' => [''],
		'true' => ['false'], 'false' => ['true']);
	my %binary = ('+' => ['-'], '-' => ['+'], '&' => ['|'], '|' => ['&']);
	return @{ $other{$word} } if $other{$word};
	if ($binary{$word})
	{
		my $before = $tokens->[ $i - 1 ];
		my $is_binary = $before->{kind} ne 'sign' && $before->{text} ne 'return' && $before->{text} ne 'case'
		  || $before->{text} =~ /^[)\]]$/;
		return @{ $binary{$word} } if $is_binary;
		return $word eq '-' ? '' : ();
	}
	return ($word + 1, $word > 0 ? $word - 1 : ()) if $word =~ /^(?:0|[1-9]\d*)$/;
	return ("($word + 1)", "($word - 1)") if $kind eq 'number';
	return "($word + 1)" if $kind eq 'character';
	return;
}

1;
