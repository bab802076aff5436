
=pod

=head1 NAME

Sanitizers - whose fault is it that a sanitizer reports?

=head1 SYNOPSIS

  foreach my $text (Sanitizers::reports($file))
  {
      my ($whose, $what) = Sanitizers::judge($text) or next;
      ... if $whose eq 'ours'; ...
  }

=head1 DESCRIPTION

For reports with symbolize=0, which is faster: there are thousands where a server lies.

=cut

package Sanitizers;

use v5.36;

# Programs and libraries of ours.
my $ours = qr/zklock-session|zklock\.so|fuzz_session/;

# What of ours reads what the library has handed it: a string, a buffer or a vector that
# may be uninitialized or gone, which is the library's fault.
my $reads_of_library = qr/(?:create_done|protocol_is_made|get_done|list_done|copy_children
	|acl_done|is_open)/x;

=pod

=head1 FUNCTIONS

=head2 reports($file)

The reports in a file, each as a text.

=cut

sub reports ($file)
{
	open my $report, '<', $file or return;
	my $text = do { local $/; readline $report };
	close $report;
	return split /\n\s*\n(?=\w+ leak of|=+\n)/, $text // '';
}

=pod

=head2 judge($text)

Nothing if it is no fault; "ours" and the text with our own lines; or "theirs" and
what kind of fault it is, where.

=cut

# That of the first frame that is not the sanitizer's; but of what the library has freed
# or never had, it has told us otherwise.
sub judge ($text)
{
	# The sanitizer of undefined behaviour is compiled into our code alone.
	return ('ours', $text) if $text =~ /runtime error/;
	my ($kind) = $text =~ /(\w+ leak of|AddressSanitizer: \S+)/ or return;
	return if $kind =~ /detected/;
	return ('theirs', 'memory that was refused') if $kind =~ /failed/;
	my ($freed) = $text =~ /^freed by .*\n((?: *#.*\n)+)/m;
	my $frame = _first_frame($freed) || '';
	$frame = _first_frame($text) || '' if $frame !~ /libzookeeper/;
	if ($frame =~ m{/(?:$ours)\+} || $frame =~ m{/postgres\+})
	{
		my ($first, @outer) = _whereabouts($text);
		# Who stands in a system call was sent that signal, by a test.
		return if $kind =~ /SEGV/ && (!defined $first || $first =~ /^(?:tls_)?poll at/);
		my ($reader) = ($first // '') =~ /^(?:\s*\(inlined by\) )?($reads_of_library) /m;
		return ('ours', join '', $text, grep { defined } $first, @outer)
		  if !$reader || $kind =~ /leak/ || $text !~ /READ/;
		$frame = $reader;
	}
	$frame =~ s/^0x\w+ +//;
	return ('theirs', "$kind $frame");
}

# The first one that belongs to a program or library that is no run-time's.
sub _first_frame ($text)
{
	my ($frame) = grep { !m{/lib(?:asan|ubsan|lsan|c|pthread)\.so} }
	  ($text // '') =~ /^ *#\d+ (.*)$/mg;
	return $frame;
}

# Our own lines among the frames, a text for each frame, with those inlined there.
sub _whereabouts ($text)
{
	return map { scalar `addr2line -pife '$_->[0]' $_->[1] 2>&1` }
	  map { [m{\((\S*/(?:$ours))\+(0x\w+)}] } grep { m{/(?:$ours)\+} } split /\n/, $text;
}

1;
