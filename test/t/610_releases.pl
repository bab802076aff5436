
# A release is what it should be: META.json as PGXN wants it, one version everywhere, the same
# archives by "make dist" for the same tag, the same bytes wherever it is built, and an SBOM of
# what is linked. Tested with copies of the tree, edited for each fault.

use strict;
use warnings;

use Builds;
use Cwd qw(abs_path);
use Digest::SHA qw(sha256_hex);
use File::Basename qw(dirname);
use IPC::Run;
use JSON::PP;
use PostgreSQL::Test::Utils;
use Test::More;

my $tree = abs_path(dirname(__FILE__) . '/../..');
my @parts = grep { -e "$tree/$_" } qw(Makefile CHANGELOG.md LICENSE META.json README.md zklock.control
  debian docs packages sql src test);
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
	'META.json' => sub { s/"version": "\d/"version": "7/ },
	'zklock.control' => sub { s/default_version = '\d/default_version = '7/ },
	'CHANGELOG.md' => sub { s/^## \d/## 7/m },
	'debian/changelog' => sub { s/^zklock \(\d/zklock (7/ },
	'packages/zklock.spec' => sub { s/^(Version: +)\d/${1}7/m });

subtest 'a version that differs anywhere is found' => sub {
	my ($worked, $out, $err) = outcome("$tree/packages/version");
	is("$out$err", "$meta->{version}\n", 'the version of this tree');
	foreach my $file (sort keys %other)
	{
		($worked, $out, $err) = outcome(copy_of_tree($file => $other{$file}) . '/packages/version');
		ok(!$worked, "$file has another version: refused");
		like($err, qr/\Q$file\E has /, 'the error names the file') if $file ne 'META.json';
	}
};

subtest 'make dist makes the same archives of a tag, and refuses what is no release' => sub {
	plan skip_all => 'there is no git' if !eval { (outcome('git', '--version'))[0] };
	my ($major, $minor) = $meta->{version} =~ /^(\d+)\.(\d+)/;
	my $script = "$tree/sql/zklock--$major.$minor.sql";
	local %ENV = (%ENV, map { ("GIT_$_\_NAME" => 'x', "GIT_$_\_EMAIL" => 'x@localhost') } qw(AUTHOR COMMITTER));
	my $release = sub {
		my $directory = copy_of_tree();
		chmod 0755, "$directory/packages/dist", "$directory/packages/version";
		return $directory;
	};
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

	my $first = $release->();
	$refused->($first, qr/not a git repository/, 'no repository');
	$git->($first, 'init', '-q');
	append_to_file("$first/.gitignore", "/.zklock/\n");
	$git->($first, 'add', '-A');
	$git->($first, 'commit', '-q', '-m', 'all');
	my $tag = "v$meta->{version}";
	my ($ready) = outcome("$first/packages/version", '--release');
	if (!$ready)
	{
		$git->($first, 'tag', $tag);
		$refused->($first, qr/CHANGELOG\.md has unreleased/, 'a version that is not released');
		$git->($first, 'tag', '-d', $tag);
		Builds::edit_file("$first/CHANGELOG.md", sub { s/ - unreleased/ - 2030-01-01/ });
		Builds::edit_file("$first/META.json", sub { s/"release_status": "testing"/"release_status": "stable"/ });
		append_to_file("$first/test/released", "$major.$minor " . sha256_hex(slurp_file($script)) . "\n")
		  if slurp_file("$first/test/released") !~ /^\Q$major.$minor\E /m;
		$refused->($first, qr/not committed/, 'changes that are not committed');
		$git->($first, 'commit', '-q', '-a', '-m', 'release');
	}
	$refused->($first, qr/no tag $tag/, 'no tag');
	$git->($first, 'tag', $tag);
	append_to_file("$first/stray", 'x');
	$refused->($first, qr/files that git does not know/, 'a stray file');
	unlink "$first/stray";

	my ($worked, $sums, $err) = $dist->($first);
	ok($worked, 'the archives are made') or diag($err);
	my $name = "zklock-$meta->{version}";
	is($sums =~ s/^[0-9a-f]{64}  //mgr, "$name.tar.gz\n$name.zip\n", 'both archives');
	my ($listed, $list) = outcome('tar', '-tzf', "$first/.zklock/dist/$name.tar.gz");
	like($list, qr{^\Q$name\E/$_$}m, "$_ is in it")
	  foreach qw(Makefile META\.json sql/zklock--\d.*\.sql);
	unlike($list, qr{^(?!\Q$name\E/)}m, 'the archive has one directory');

	my $second = PostgreSQL::Test::Utils::tempdir_short() . '/clone';
	$git->($first, 'clone', '-q', $first, $second);
	{
		local @ENV{qw(TZ LANG)} = ('Asia/Tokyo', 'C');
		umask 077;
		is(($dist->($second))[1], $sums, 'the same bytes from a clone elsewhere, in another time zone');
		umask 022;
	}
	Builds::edit_file("$first/sql/zklock--$major.$minor.sql", sub { s/for any/for all/; s/\n/\n-- /; });
	$git->($first, 'commit', '-q', '-a', '-m', 'change a script');
	$git->($first, 'tag', '-f', $tag);
	$refused->($first, qr{test/released has}, 'a script that was changed after its release');
};

subtest 'the same sources make the same bytes in any directory' => sub {
	plan skip_all => 'the build that is tested counts what it does' if $ENV{COVERAGE};
	plan skip_all => 'this PostgreSQL bears one installation only' if !Builds->can_be;
	my ($here, $there) = map { $_->library_directory } Builds->copy, Builds->of_tree(flags => ['WERROR=1']);
	foreach my $file (qw(zklock.so zklock-session zklock-session-tls.so))
	{
		is(sha256_hex(slurp_file("$there/$file")), sha256_hex(slurp_file("$here/$file")), $file);
	}
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
	is($document->{creationInfo}{created}, '2023-11-14T22:13:20Z', 'its date is that of the sources');
	my @link = map { "$_->{spdxElementId} $_->{relatedSpdxElement}" }
	  grep { $_->{relationshipType} eq 'DYNAMIC_LINK' } @{ $document->{relationships} };
	is(scalar(grep { /session SPDXRef-libzookeeper-st/ } @link), 1, 'the program is linked with the client');
	is(scalar(grep { /\.so SPDXRef-libzookeeper/ } @link), 0, 'the library is not');
	is(scalar(grep { /SPDXRef-libc\.so/ } @link), 3, 'all three files are linked with libc');
	is_deeply([ grep { /SPDXRef-libssl/ && !/session-tls\.so / } @link ], [], 'none but the module for TLS with OpenSSL');
	my %id = map { $_->{SPDXID} => 1 } $document, @{ $document->{packages} }, @{ $document->{files} };
	is(join(' ', grep { !$id{$_} } map { @$_{qw(spdxElementId relatedSpdxElement)} } @{ $document->{relationships} }),
		'', 'each relationship is between things of the document');
	my %file = map { $_->{fileName} => $_->{checksums}[1]{checksumValue} } @{ $document->{files} };
	is($file{"./$_"}, sha256_hex(slurp_file("$directory/$_")), "the checksum of $_")
	  foreach qw(zklock.so zklock-session zklock-session-tls.so);
};

done_testing();
