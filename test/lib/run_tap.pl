
# Run test programs that print TAP, show how they do, and count. prove would do
# but for the count: test/check adds up the assertions of all suites.
# Usage: run_tap.pl COUNTS FILE...
# A file that ends in .pl runs under perl, any other is a program of its own.
# Into COUNTS go the lines "passed N" and "failed N", and "FAILED what" for
# each failure.

use strict;
use warnings;

use TAP::Harness;
use TAP::Parser::Aggregator;

my ($counts, @files) = @ARGV;
my @perl = grep { /\.pl$/ } @files;
my @programs = grep { !/\.pl$/ } @files;
my ($passed, $failed, @failures) = (0, 0);

sub run_all
{
	my ($exec, @tests) = @_;
	return unless @tests;
	my $harness = TAP::Harness->new({
		timer => 1,
		failures => 1,
		verbosity => $ENV{VERBOSE} ? 1 : 0,
		exec => $exec });
	my $result = TAP::Parser::Aggregator->new;
	$result->start;
	foreach my $test (@tests)
	{
		# One that bails out must not keep the others from running.
		next if eval { $harness->aggregate_tests($result, $test); 1 };
		$failed++;
		push @failures, "$test: $@";
		print "\n$test: $@";
	}
	$result->stop;
	# It learns here how wide the names are.
	$harness->formatter->prepare(@tests);
	$harness->summary($result);
	$passed += $result->passed;
	$failed += $result->failed;
	foreach my $file ($result->descriptions)
	{
		my ($parser) = $result->parsers($file);
		push @failures, map { "$file: test $_" } $parser->failed;
		# Skipping is allowed and never silent.
		print "$file: skipped: ", $parser->skip_all, "\n"
		  if $parser->skip_all;
		print "$file: ", scalar($parser->skipped), " skipped\n"
		  if $parser->skipped;
		# A program can fail without a failed assertion: crash, sanitizer
		# report, wrong plan. It counts as one.
		next if $parser->failed || !$parser->has_problems;
		$failed++;
		push @failures,
		  "$file: wait status " . $parser->wait . ' '
		  . join(' ', $parser->parse_errors);
	}
	return;
}

# Under "setarch -R" ThreadSanitizer finds its shadow memory free; some
# containers forbid it, and mostly do not need it.
run_all(system('setarch -R true 2>/dev/null') == 0 ? [ 'setarch', '-R' ] : [],
	@programs);
run_all([$^X], @perl);

open my $out, '>', $counts or die "could not write $counts: $!";
print $out "passed $passed\nfailed $failed\n";
s/\s+/ /g, print $out "FAILED $_\n" foreach @failures;
close $out or die "could not write $counts: $!";
exit($failed ? 1 : 0);
