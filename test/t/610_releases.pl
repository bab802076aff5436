
# A release is what it should be: META.json as PGXN wants it, one version and one date everywhere,
# the same archives by "make dist" for the same commit, from which zklock is built, installed and
# tested without git, the same bytes wherever it is built, and an SBOM of what is linked. Tested
# with copies of the tree, edited for each fault.

use Builds;
use Cwd qw(abs_path);
use Digest::SHA qw(sha256_hex);
use File::Basename qw(dirname);
use IPC::Run;
use JSON::PP;
use PostgreSQL::Test::Utils;
use Time::Piece;
use ZkLockTest;

my $tree = abs_path(dirname(__FILE__) . '/../..');
my @parts = grep { -e "$tree/$_" } qw(.gitattributes .gitignore Makefile CHANGELOG.md CONTRIBUTING.md LICENSE META.json README.md
  SECURITY.md compose.yaml zklock.control debian docs expected packages sql src test);
my $meta = decode_json(slurp_file("$tree/META.json"));

# The PGXN Meta Spec, 1.0.0: what must be there, and what it may be.
subtest 'META.json is as the PGXN Meta Spec wants it' => sub {
	my $term = qr{\A[^[:space:][:cntrl:]/\\:]{2,}\z};
	my $tag = qr{\A[^[:cntrl:]/\\]{1,256}\z};
	my $version = qr/\A(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)(?:-[A-Za-z][0-9A-Za-z-]*)?\z/;
	my $text = qr/\A(?=.*\S)/s;
	my $url = qr{\A[a-z][a-z0-9+.-]*://\S+\z};
	my $texts = sub { my @all = ref $_[0] eq 'ARRAY' ? @{ $_[0] } : $_[0]; @all && !grep { ref || !/$text/ } @all };
	my %known = map { $_ => 1 } qw(abstract maintainer license provides name version meta-spec
	  description generated_by tags no_index prereqs release_status resources);
	my %license = map { $_ => 1 } qw(agpl_3 apache_1_1 apache_2_0 artistic_1 artistic_2 bsd freebsd gfdl_1_2
	  gfdl_1_3 gpl_1 gpl_2 gpl_3 lgpl_2_1 lgpl_3_0 mit mozilla_1_0 mozilla_1_1 openssl perl_5 postgresql
	  qpl_1_0 ssleay sun zlib open_source restricted unrestricted unknown);

	is(join(' ', grep { !$known{$_} && !/\Ax_/i } sort keys %$meta), '', 'no key that is not known');
	like($meta->{name}, $term, 'name');
	like($meta->{version}, $version, 'version');
	like($meta->{abstract}, $text, 'abstract');
	ok($texts->($meta->{maintainer}), 'maintainer');
	ok($license{ $meta->{license} }, 'license');
	is_deeply([ sort keys %{ $meta->{'meta-spec'} } ], [qw(url version)], 'meta-spec');
	is($meta->{'meta-spec'}{version}, '1.0.0', 'its version');
	like($meta->{release_status}, qr/\A(?:stable|testing|unstable)\z/, 'release_status');
	ok(!exists $meta->{description} || $meta->{description} =~ $text, 'description');
	is(scalar(grep { ref || !/$tag/ } @{ $meta->{tags} || [] }), 0, 'tags');
	ok(keys %{ $meta->{provides} } > 0, 'provides something');
	foreach my $name (sort keys %{ $meta->{provides} })
	{
		my $what = $meta->{provides}{$name};
		like($name, $term, "provides $name");
		like($what->{version}, $version, "$name: version");
		is($what->{version}, $meta->{version}, "$name: that of the distribution");
		ok(-f "$tree/" . ($what->{$_} // ''), "$name: its $_ is there") foreach qw(file docfile);
		like($what->{abstract}, $text, "$name: abstract");
		is(join(' ', grep { !/\A(?:file|version|abstract|docfile)\z/ } sort keys %$what), '', "$name: nothing else");
	}
	foreach my $phase (sort keys %{ $meta->{prereqs} })
	{
		like($phase, qr/\A(?:configure|build|test|runtime|develop)\z/, "prereqs: $phase");
		foreach my $relation (sort keys %{ $meta->{prereqs}{$phase} })
		{
			my $needs = $meta->{prereqs}{$phase}{$relation};
			like($relation, qr/\A(?:requires|recommends|suggests|conflicts)\z/, "prereqs: $relation");
			is(scalar(grep { !/$term/ || $needs->{$_} !~ /\A(?:0|[<>=! \d.,-]+)\z/ } keys %$needs), 0, 'versions');
		}
	}
	my $resources = $meta->{resources} || {};
	is(join(' ', grep { !/\A(?:homepage|bugtracker|repository)\z/ && !/\Ax_/i } keys %$resources), '', 'resources');
	like($_, $url, "address $_") foreach grep { defined } $resources->{homepage},
	  $resources->{bugtracker}{web}, @{ $resources->{repository} || {} }{qw(url web)};
};

# Run a command, in silence: whether it succeeded, and what it said.
sub outcome
{
	my (@command) = @_;
	my ($out, $err) = ('', '');
	my $worked = IPC::Run::run(\@command, '<', \undef, '>', \$out, '2>', \$err);
	return ($worked, $out, $err);
}

# A copy of the tree, with some of its files edited.
sub copy_of_tree
{
	my (%edit) = @_;
	my $copy = PostgreSQL::Test::Utils::tempdir_short();
	system_or_bail('cp', '-R', (map { "$tree/$_" } @parts), $copy);
	Builds::edit_file("$copy/$_", $edit{$_}) foreach sort keys %edit;
	return $copy;
}

my %other = (
	'META.json' => { version => sub { s/"version": "\d/"version": "7/ } },
	'zklock.control' => { version => sub { s/default_version = '\d/default_version = '7/ } },
	'CHANGELOG.md' => { version => sub { s/^## \d/## 7/m }, date => sub { s/^(## \S+ - )\d+/${1}2031/m } },
	'README.md' => { version => sub { s/(?<![\d.])\d+(?=\.\d+\.\d+(?![\d.]))/7/ } },
	'docs/releases.md' => {
		version => sub { s/^\| \d+(?=\.\d)/| 7/m },
		date => sub { s/^(\| [\d.]+ \| )\d+/${1}2031/m } },
	'debian/changelog' => {
		version => sub { s/^zklock \(\d/zklock (7/ },
		date => sub { s/^( -- .*)\d{4}(?= \d\d:)/${1}2031/m } },
	'SECURITY.md' => { version => sub { s/(?<= v)\d(?=\.\d+\.\d)/7/ } },
	'docs/install.md' => { version => sub { s/(?<=zklock-)\d(?=\.\d+\.\d)/7/ } },
	'packages/container/Containerfile' => { version => sub { s/.*image\.version="\K\d/7/s } },
	'packages/zklock.spec' => {
		version => sub { s/^(Version: +)\d/${1}7/m },
		'version of its changelog' => sub { s/ - \d+(?=\.\d+\.\d+-\d+$)/ - 7/m },
		date => sub { s/^(\* \S+ \S+ \d+ )\d+/${1}2031/m } });

# The version of META.json and the date of CHANGELOG.md are taken for right: another file is blamed.
my %judge = ('version META.json' => 'CHANGELOG.md', 'date CHANGELOG.md' => 'debian/changelog');

subtest 'a version or a date that differs anywhere is found' => sub {
	my $copy = copy_of_tree();
	my ($worked, $out, $err) = outcome("$copy/packages/version");
	is("$out$err", "$meta->{version}\n", 'the version of this tree');
	foreach my $file (sort keys %other)
	{
		my $text = slurp_file("$copy/$file");
		foreach my $what (sort keys %{ $other{$file} })
		{
			Builds::edit_file("$copy/$file", $other{$file}{$what});
			($worked, $out, $err) = outcome("$copy/packages/version");
			ok(!$worked, "$file has another $what: refused");
			my $blamed = $judge{"$what $file"} // $file;
			like($err, qr/\Q$blamed\E has /, "the error names $blamed");
			Builds::edit_file("$copy/$file", sub { $_ = $text });
		}
	}
};

# A version with a date is a release: it is called stable, and its script does not change.
subtest 'a version that has a date is ready to be released' => sub {
	plan skip_all => 'CHANGELOG.md gives its newest version no date' if slurp_file("$tree/CHANGELOG.md") !~ /^## \S+ - \d{4}-\d\d-\d\d$/m;
	my ($worked, $out, $err) = outcome("$tree/packages/version", '--release');
	is("$out$err", "$meta->{version}\n", 'packages/version --release has nothing to say');
};

# The archive that "make dist" has made, for the next subtest.
my $archive;

subtest 'make dist makes the same archives of a commit, and refuses what is no release' => sub {
	plan skip_all => 'there is no git' if !eval { (outcome('git', '--version'))[0] };
	my ($major, $minor) = $meta->{version} =~ /^(\d+)\.(\d+)/;
	my $script = "$tree/sql/zklock--$major.$minor.sql";
	local %ENV = (%ENV, map { ("GIT_$_\_NAME" => 'x', "GIT_$_\_EMAIL" => 'x@localhost') } qw(AUTHOR COMMITTER));
	my $git = sub {
		my ($directory, @words) = @_;
		my ($worked, $out, $err) = outcome('git', '-C', $directory, '-c', 'commit.gpgsign=false', @words);
		die "git @words: $err" if !$worked;
		return;
	};
	my $dist = sub { return outcome("$_[0]/packages/dist") };
	my $refused = sub {
		my ($directory, $why, $what) = @_;
		local $Test::Builder::Level = $Test::Builder::Level + 1;
		my ($worked, $out, $err) = $dist->($directory);
		ok(!$worked, "$what: refused");
		return like($err, $why, 'the error says why');
	};

	# A tree that is to be released, whatever this one is.
	my $first = copy_of_tree();
	chmod 0755, "$first/packages/dist", "$first/packages/version";
	my %text = map { $_ => slurp_file("$first/$_") } qw(CHANGELOG.md META.json test/released);
	my ($day) = slurp_file("$tree/debian/changelog") =~ /^ -- .*>  (\S+ \d+ \S+ \d+) /m;
	my $date = Time::Piece->strptime($day, '%a, %d %b %Y')->ymd;
	my %unreleased = (
		'CHANGELOG.md' => $text{'CHANGELOG.md'} =~ s/^(## \S+ - ).*/${1}unreleased/mr,
		'META.json' => $text{'META.json'} =~ s/("release_status": )"\w+"/$1"testing"/r,
		'test/released' => $text{'test/released'} =~ s/^\Q$major.$minor\E .*\n//mr);
	my %released = (
		'CHANGELOG.md' => $text{'CHANGELOG.md'} =~ s/^(## \S+ - ).*/$1$date/mr,
		'META.json' => $text{'META.json'} =~ s/("release_status": )"\w+"/$1"stable"/r,
		'test/released' => $unreleased{'test/released'} . "$major.$minor " . sha256_hex(slurp_file($script)) . "\n");
	my $write = sub {
		my (%file) = @_;
		foreach my $name (sort keys %file)
		{
			unlink "$first/$name";
			append_to_file("$first/$name", $file{$name});
		}
		$git->($first, 'commit', '-q', '-a', '-m', 'change', '--allow-empty');
		return;
	};

	$refused->($first, qr/not a git repository/, 'no repository');
	$git->($first, 'init', '-q');
	$git->($first, 'add', '-A');
	$write->(%released);
	foreach my $name (sort keys %unreleased)
	{
		$write->($name => $unreleased{$name});
		$refused->($first, qr/\Q$name\E has /, "$name tells of no release");
		$write->($name => $released{$name});
	}
	append_to_file("$first/stray", 'x');
	$refused->($first, qr/files that git does not know/, 'a stray file');
	unlink "$first/stray";
	append_to_file("$first/README.md", 'x');
	$refused->($first, qr/not committed/, 'changes that are not committed');
	$git->($first, 'checkout', '-q', 'README.md');

	my ($worked, $sums, $err) = $dist->($first);
	ok($worked, 'a clone without a tag makes archives') or diag($err);
	like($err, qr/there is no tag v\Q$meta->{version}\E: .* not those of a release/, 'it is said that they are not those of a release');
	$git->($first, 'tag', "v$meta->{version}");
	is_deeply([ $dist->($first) ], [ 1, $sums, '' ], 'with the tag the same archives are made without a word');
	my $name = "zklock-$meta->{version}";
	is($sums =~ s/^[0-9a-f]{64}  //mgr, "$name.tar.gz\n$name.zip\n", 'both archives');
	$archive = "$first/.zklock/dist/$name.tar.gz";

	my $second = PostgreSQL::Test::Utils::tempdir_short() . '/clone';
	$git->($first, 'clone', '-q', $first, $second);
	{
		local @ENV{qw(TZ LANG)} = ('Asia/Tokyo', 'C');
		umask 077;
		is(($dist->($second))[1], $sums, 'the same bytes from a clone elsewhere, in another time zone');
		umask 022;
	}
	mkdir "$second/inner" or die;
	system_or_bail('cp', '-R', "$second/packages", "$second/META.json", "$second/inner");
	$refused->("$second/inner", qr/part of another one/, 'sources in the repository of something else');

	Builds::edit_file("$second/README.md", sub { s/\z/\n/ });
	system_or_bail('rm', '-r', "$second/inner");
	$git->($second, 'commit', '-q', '-a', '-m', 'go on');
	$refused->($second, qr/the tag v\S+ is that of another commit/, 'a commit behind the release');
	Builds::edit_file("$second/sql/zklock--$major.$minor.sql", sub { s/for any/for all/; s/\n/\n-- /; });
	$git->($second, 'commit', '-q', '-a', '-m', 'change a script');
	$refused->($second, qr{test/released has}, 'a script that was changed after its release');
};

# As somebody has it who downloads the archive: no repository, no git, and what README.md says.
subtest 'what make dist makes is built, installed and tested without git, and makes the same bytes' => sub {
	plan skip_all => 'there is no git that makes it' if !$archive;
	plan skip_all => 'the build that is tested counts what it does' if $ENV{COVERAGE};
	plan skip_all => 'this PostgreSQL bears one installation only' if !Builds->can_be;
	my $directory = PostgreSQL::Test::Utils::tempdir_short();
	system_or_bail('tar', '-C', $directory, '-xzf', $archive);
	my @all = map { s{.*/}{}r } glob "$directory/*";
	is_deeply(\@all, ["zklock-$meta->{version}"], 'the archive has one directory');
	my $sources = "$directory/$all[0]";
	ok(-f "$sources/$_", "$_ is in the archive")
	  foreach qw(LICENSE META.json README.md CHANGELOG.md Makefile zklock.control), $meta->{provides}{zklock}{file},
	  qw(docs/releases.md debian/control packages/zklock.spec test/check test/sql/names.sql expected/names.out);

	# A git in PATH that refuses stands for none.
	my $bin = PostgreSQL::Test::Utils::tempdir_short();
	append_to_file("$bin/git", "#!/bin/sh\necho called >>'$bin/called'\nexit 127\n");
	chmod 0755, "$bin/git" or die;
	local %ENV = (%ENV, PATH => "$bin:$ENV{PATH}");
	delete @ENV{ grep { /^GIT_/ } keys %ENV };
	# One file of each folder is compiled here, and all others are those of the tree.
	my @sources = map { s{^\Q$sources\E/}{}r } glob "'$sources'/src/*/*.[ch]";
	is(join(' ', @sources), join(' ', map { s{^\Q$tree\E/}{}r } glob "'$tree'/src/*/*.[ch]"), 'the archive has all sources');
	my %of_folder = map { /\.c$/ ? (dirname($_) => $_) : () } @sources;
	my $build = Builds->of_sources($sources, compile => [ values %of_folder ], flags => ['WERROR=1']);
	ok(!-e "$bin/called", 'make and make install call no git');
	my ($here, $there) = map { $_->library_directory } Builds->copy, $build;
	foreach my $file (qw(zklock.so zklock-session zklock-session-tls))
	{
		is(sha256_hex(slurp_file("$there/$file")), sha256_hex(slurp_file("$here/$file")), "$file: the same bytes as from the tree");
	}

	my $zk = ZooKeeper->new->start;
	my $node = cluster('berlin', $zk, $build->settings, extension => undef);
	local @ENV{qw(PGHOST PGPORT)} = ($node->host, $node->port);
	my ($worked, $out, $err) = outcome('make', '-C', $sources, 'PG_CONFIG=pg_config', 'with_llvm=no',
		'REGRESS=names fence', 'ISOLATION=', 'installcheck');
	ok($worked, 'make installcheck passes in a server that has it') or diag("$out$err");
	like($out, qr/All 2 tests passed|ok 2 +- fence/, 'the tests were run');
};

# Of the files that are installed.
subtest 'the SBOM says what the program and the libraries are linked with' => sub {
	plan skip_all => 'this PostgreSQL bears one installation only' if !Builds->can_be;
	my $directory = Builds->copy->library_directory;
	my $result = PostgreSQL::Test::Utils::tempdir_short() . '/sbom';
	my @text;
	foreach my $time (1 .. 2)
	{
		local $ENV{SOURCE_DATE_EPOCH} = 1_700_000_000;
		system_or_bail('perl', "$tree/packages/sbom", $directory, $result);
		push @text, slurp_file($result);
	}
	is($text[1], $text[0], 'the SBOM is the same twice');
	my $document = decode_json($text[0]);
	is($document->{name}, "zklock-$meta->{version}", 'the SBOM has the version in its name');
	is_deeply([ map { $_->{versionInfo} } grep { $_->{name} eq 'zklock' } @{ $document->{packages} } ], [ $meta->{version} ],
		'the SBOM has the version of zklock');
	is($document->{creationInfo}{created}, '2023-11-14T22:13:20Z', 'its date is that of the sources');
	my @link = map { "$_->{spdxElementId} $_->{relatedSpdxElement}" }
	  grep { $_->{relationshipType} eq 'DYNAMIC_LINK' } @{ $document->{relationships} };
	is(scalar(grep { /session(?:-tls)? SPDXRef-libzookeeper-st/ } @link), 2, 'the two programs are linked with the client');
	is(scalar(grep { /\.so SPDXRef-libzookeeper/ } @link), 0, 'the library is not');
	is(scalar(grep { /SPDXRef-libc\.so/ } @link), 3, 'all three files are linked with libc');
	is_deeply([ grep { /SPDXRef-libssl/ && !/session-tls / } @link ], [], 'none but the program with TLS with OpenSSL');
	my %id = map { $_->{SPDXID} => 1 } $document, @{ $document->{packages} }, @{ $document->{files} };
	is(join(' ', grep { !$id{$_} } map { @$_{qw(spdxElementId relatedSpdxElement)} } @{ $document->{relationships} }),
		'', 'each relationship is between things of the document');
	my %file = map { $_->{fileName} => $_->{checksums}[1]{checksumValue} } @{ $document->{files} };
	is($file{"./$_"}, sha256_hex(slurp_file("$directory/$_")), "the checksum of $_")
	  foreach qw(zklock.so zklock-session zklock-session-tls);
};

done_testing();
