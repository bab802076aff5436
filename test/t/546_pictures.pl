
# The pictures of docs show what is: they are what the code makes of them today (Pictures.pm), and
# each text in them can be read. Tested by drawing them anew, and by reading them.

use strict;
use warnings;

use FindBin;
use Pages;
use Pictures;
use Svg;
use Test::More;

my $top = "$FindBin::Bin/../..";
my $again = 'draw it anew: perl test/lib/draw.pl docs';

# The texts of a picture as [text, attributes], in order.
sub texts
{
	my ($picture) = @_;
	my @texts;
	while ($picture =~ m{<text ([^>]*)>([^<]*)</text>}g)
	{
		my ($attributes, $text) = ($1, $2);
		$text =~ s/&#(\d+);/chr $1/ge;
		push @texts, [ $text, { $attributes =~ /([\w-]+)="([^"]*)"/g } ];
	}
	return @texts;
}

# What no renderer would show: an element that does not end, or ends where another began.
sub unbalanced
{
	my ($picture) = @_;
	my @open;
	while ($picture =~ m{<(/?)([\w:]+)[^>]*?(/?)>}g)
	{
		my ($is_end, $name, $is_empty) = ($1, $2, $3);
		next if $is_empty;
		if (!$is_end)
		{
			push @open, $name;
			next;
		}
		my $begun = pop @open // 'nothing';
		return "$name ends, $begun has begun" if $begun ne $name;
	}
	return "@open";
}

my %picture = Pictures::all();
my %tracked = map { m{([^/]+)\.svg$} => Pages::slurp($_) } glob "$top/docs/*.svg";

subtest 'a fault of a picture is found' => sub {
	my $svg = Svg->new(200, 100, title => 'a', desc => 'b');
	$svg->text(10, 20, 'first');
	is(join(', ', $svg->overlaps), '', 'a text');
	$svg->text(20, 24, 'second');
	is(join(', ', $svg->overlaps), '"first" and "second"', 'a text on a text');
	$svg->text(150, 60, 'much too long');
	like(join(', ', $svg->overlaps), qr/"much too long" leaves the picture/, 'a text that is cut off');
	$svg->line([ [ 0, 16 ], [ 90, 16 ] ]);
	like(join(', ', $svg->overlaps), qr/"first" and a line/, 'a line through a text');
	ok(!eval { $svg->box(0, 0, 30, 30, ['too wide for this']); 1 }, 'a text wider than its box');
	ok(eval { Pictures::call($_); 1 }, $_) foreach "zk_lock('a')", q(zk_lock_set(ARRAY['a'])), "zk_lock('a', permits => 4)";
	ok(!eval { Pictures::call($_); 1 }, "no such call: $_")
	  foreach "zk_lease('a')", q(zk_hold(ARRAY['a'])), "zk_hold('a', permits => 4)", "zk_fence('a', timeout => '1 s')";
	ok(!eval { Pictures::state_of_session('broken'); 1 }, 'no such state');
	is(unbalanced('<a><b/></a>'), '', 'balanced');
	isnt(unbalanced($_), '', "not balanced: $_") foreach '<a><b></a></b>', '<a>';
};

foreach my $name (sort keys %picture)
{
	is(join(', ', $picture{$name}->overlaps), '', "$name: each text can be read");
	ok(($tracked{$name} // '') eq $picture{$name}->string, "docs/$name.svg is what the code makes of it")
	  or diag($again);
}
is(join(' ', sort keys %tracked), join(' ', sort keys %picture), 'docs has no other picture');

subtest 'each picture is shown, is one, and needs nothing else' => sub {
	my @pages = Pages::all();
	foreach my $name (sort keys %tracked)
	{
		my $svg = $tracked{$name};
		ok((grep { $_->{text} =~ /!\[[^\]]+\]\((?:docs\/)?\Q$name\E\.svg\)/ } @pages), "a page shows $name.svg");
		is(unbalanced($svg), '', 'its elements end');
		ok($svg =~ m{<title id="title">[^<]+</title>\n<desc id="desc">[^<]{40,}</desc>}, 'it says what it shows to those who do not see it');
		ok($svg !~ /<script|<image|<foreignObject|\bhref=|url\(|\@import/, 'nothing is loaded');
		ok($svg =~ /<rect width="[\d.]+" height="[\d.]+" fill="#\w{6}"\/>/, 'it has a background, whatever the page has');
	}
};

subtest 'tokens rise, and only the first contender holds' => sub {
	my @texts = map { $_->[0] } texts($tracked{lock});
	my @tokens = map { /^token (\d+)$/ } @texts;
	is(scalar @tokens, 3, 'three contenders');
	is(join(' ', @tokens), join(' ', sort { $a <=> $b } @tokens), 'tokens rise');
	isnt($tokens[0], $tokens[1], 'and differ');
	is(join(' ', grep { /^(?:held|waiting)$/ } @texts), 'held waiting waiting', 'states of the queue');
	is((scalar grep { $_ eq 'watches' } @texts), 2, 'a watch for each waiter');
	is((scalar grep { $_ eq 'zklock-session' } @texts), 3, 'a process for each contender');
};

subtest 'pages tell the times that the picture shows' => sub {
	my %time = Pictures::loss_times();
	my ($early, $late) = map { sprintf '%.1f', $_ } $time{given_up} - $time{heartbeat}, $time{given_up};
	cmp_ok($time{proof}, '<', $time{given_up}, 'no proof is fresh when the session is given up');
	cmp_ok($time{given_up}, '<', $time{timeout}, 'it is given up before the ensemble ends it');
	like(join("\n", map { $_->[0] } texts($tracked{loss})), qr/\b$early to $late s\b/, 'the picture has them');
	my $told = 0;
	foreach my $page (Pages::all())
	{
		my $text = $page->{text} =~ s/\s+/ /gr;
		while ($text =~ /(\d+\.\d) to (\d+\.\d) s after the connection broke/g)
		{
			is("$1 to $2", "$early to $late", "$page->{name}: when a session is given up");
			$told++;
		}
	}
	cmp_ok($told, '>', 0, 'a page tells it');
};

done_testing();
