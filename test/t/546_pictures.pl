
# The pictures of docs show what is: the drawings are what the code makes of them today
# (Pictures.pm), and the recorded terminal (record.pl) keeps its columns, says which cluster speaks,
# and shows a whole screen where nothing moves. Tested by drawing them anew, and by reading them.

use strict;
use warnings;

use FindBin;
use IPC::Run;
use Pages;
use Pictures;
use PostgreSQL::Test::Utils;
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
is(join(' ', sort keys %tracked), join(' ', sort 'demo', keys %picture), 'docs has no other picture');

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

# What record.pl makes of these lines. They come at once, so its animation takes its shortest times.
sub record
{
	my (@lines) = @_;
	my $file = PostgreSQL::Test::Utils::tempdir() . '/recorded.svg';
	my ($out, $err) = ('', '');
	my $in = join '', map { "$_\n" } @lines;
	IPC::Run::run([ $^X, "$top/test/lib/record.pl", $file ], '<', \$in, '>', \$out, '2>', \$err);
	is($err, '', 'record.pl');
	is($out, $in, 'everything is passed on');
	return Pages::slurp($file);
}

# The lines of a recording again, from the places of its words; and of each word the color.
sub lines
{
	my ($picture, $color) = @_;
	my (%line, %wide);
	foreach my $word (texts($picture))
	{
		my ($text, $is) = @$word;
		$wide{ $is->{x} } = 1;
		my $column = sprintf '%.0f', ($is->{x} - 8) / 7.85;
		my $line = \$line{ $is->{y} / 18 };
		$$line //= '';
		return "word on word: $text" if length $$line > $column;
		$$line .= ' ' x ($column - length $$line) . $text;
		$color->{$text} = $is->{fill};
	}
	return map { $line{$_} // '' } 1 .. (sort { $b <=> $a } keys %line)[0];
}

subtest 'a recording keeps its columns, and its first picture is the last screen' => sub {
	my @said = (
		'12:00:00.000  berlin     an independent PostgreSQL cluster, port 1',
		'12:00:00.001  paris      an independent PostgreSQL cluster, port 2',
		'',
		'A title & more',
		"12:00:00.002  berlin 1   SELECT zk_lock('a')",
		'12:00:00.003             -> it has it',
		'               position |  state  | cluster',
		'              ----------+---------+---------',
		'                      1 | held    | inParis',
		map { "12:00:01.000  paris 1       $_" } 1 .. 40);
	my $picture = record('not recorded', @said, 'Stopping the servers.');
	my %color;
	is_deeply([ lines($picture, \%color) ], \@said, 'the lines can be read from the places of the words');
	isnt($color{berlin}, $color{paris}, 'each cluster has a color');
	is($color{'zk_lock(\'a\')'}, $color{berlin}, 'which its statements have, too');
	is($color{inParis}, undef, 'but no word that only contains its name');
	is(unbalanced($picture), '', 'the elements end');
	# 26 lines are visible.
	my $up = 18 * (@said - 26);
	ok($picture =~ /<g class="lines" transform="translate\(0 -$up\)">/, 'without animation: the last screen');
	ok($picture =~ /\@keyframes lines \{ 0% \{ transform: translateY\(-${up}px\) \}/, 'it is the first one of the animation');
	ok($picture =~ /\@keyframes cover \{ 0% \{ transform: none \}/, 'with nothing covered');
	my ($height) = $picture =~ /viewBox="0 0 \S+ (\d+)"/;
	ok($picture =~ /<rect class="cover" y="$height"/, 'as without animation');
	ok($picture =~ /\@media \(prefers-reduced-motion: no-preference\) \{\n\.lines \{ animation: [^\n]*\n\.cover \{ animation: [^\n]*\n\}/,
		'nothing moves for those who want that');
	ok($picture !~ /<animate|opacity/, 'and nothing else is animated');
	my @at = $picture =~ /(?<=\n)([\d.]+)% \{ transform: translateY/g;
	is((scalar grep { $_ >= 100 || $_ <= 0 } @at), 0, 'all of it has its time');
};

# It is recorded by hand: this sees whether the demo has other acts by now.
subtest 'docs/demo.svg is a recording of the demo' => sub {
	my $demo = Pages::slurp("$top/test/lib/demo.pl");
	my %is_tls = map { $_ => 1 } $demo =~ /sub by_certificate\n\{\n\ttitle\('([^']+)'\)/;
	my @titles = grep { !$is_tls{$_} && $_ ne 'Now it is your turn' } $demo =~ /\btitle\('([^']+)'\)/g;
	cmp_ok(scalar @titles, '>=', 8, 'the demo has titles');
	my @lines = lines($tracked{demo}, {});
	my %is_line = map { $_ => 1 } @lines;
	is(join("\n", grep { !$is_line{$_} } @titles), '', 'each title is in the picture')
	  or diag('record it anew: make demo </dev/null | perl test/lib/record.pl docs/demo.svg');
	is($lines[-1], $titles[-1], 'the picture ends as the demo does');
	ok($tracked{demo} !~ /xml:space|<animate/, 'and is one of this record.pl');
};

done_testing();
