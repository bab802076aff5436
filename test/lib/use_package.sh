#!/bin/bash
# use_package.sh build | rpm | use | page: what test/packages does in a root file system, as
# root, with the tree in /zklock/source. "build" makes the packages and leaves them in
# /zklock/packages; "rpm" makes an RPM of the same sources, there; "use" installs them
# from there, and uses them; "page" types what docs/install.md tells to type. A line
# "test ok ..." or "test not ok ..." for each test; the last one is that of the part.

set -euo pipefail

source=/zklock/source
packages=/zklock/packages
container=$source/packages/container
export DEBIAN_FRONTEND=noninteractive LANG=C.UTF-8
servers=()      # the processes of ZooKeeper and PostgreSQL
major=          # the release of PostgreSQL that Debian has; for page

# shellcheck source=test/lib/steps.sh
source "$source/test/lib/steps.sh"

# --- build ---------------------------------------------------------------

build() {
	rm -rf "$packages"
	"$container/build.sh" "$source" "$packages"
	ok 'dpkg-buildpackage'
	install_packages lintian
	check 'lintian has nothing to say' judge_package
	cd /tmp
	dpkg-deb -c "$packages"/postgresql-[0-9]*-zklock_*.deb >contents
	for file in /lib/zklock.so /lib/zklock-session /lib/zklock-session-tls extension/zklock.control \
		"extension/zklock--[0-9.]*.sql" extension/zklock/README.md \
		extension/zklock/docs/recipes.md zklock.spdx.json; do
		check "the package has $file" grep -q "/${file#/}\$" contents
	done
	check 'the scripts of the recipes can be executed' grep -q '^-rwxr-xr-x .*/docs/recipes/migrate$' contents
}

# As a user of no importance, as lintian wants it. Standards-Version and the format of the
# watch file are those of the oldest release, which does not bear newer ones, so that others
# find them out of date.
judge_package() {
	chmod -R go+rX "$packages"
	setpriv --reuid=nobody --regid=nogroup --clear-groups env HOME=/tmp \
		lintian --display-info --fail-on error,warning,info --tag-display-limit 0 \
		--suppress-tags out-of-date-standards-version,older-debian-watch-file-standard \
		"$packages"/*.changes
}

# --- rpm -----------------------------------------------------------------

# With Debian's rpmbuild and PostgreSQL: what the spec says is tried, but not the names of
# other distributions' packages.
rpm() {
	local config top=/tmp/rpmbuild list
	install_packages rpm file
	config=$(printf '%s\n' /usr/lib/postgresql/*/bin/pg_config | sort -V | tail -n 1)
	mkdir -p "$top/SOURCES"
	cp "$packages"/zklock_*.orig.tar.gz "$top/SOURCES/$(basename "$packages"/zklock_*.orig.tar.gz |
		sed 's/_/-/; s/\.orig//')"
	check 'rpmbuild' rpmbuild -ba --nodeps --define "_topdir $top" \
		--define "pg_config $config" "$source/packages/zklock.spec"
	list=$(command rpm -qlp "$top"/RPMS/*/*-zklock-[0-9]*.rpm)
	for file in /lib/zklock.so /lib/zklock-session /lib/zklock-session-tls /extension/zklock.control \
		/extension/zklock/docs/recipes.md; do
		check "the RPM has $file" grep -q "$file\$" <<<"$list"
	done
}

# --- use -----------------------------------------------------------------

# Of the loopback interface, which is that of the machine.
free_port() {
	local port
	while true; do
		port=$((7000 + RANDOM % 3000))
		(exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
	done
	echo "$port"
}

no_compiler() {
	! command -v cc gcc g++ clang make
}

ask() { runuser -u postgres -- psql -XAtq -p "$POSTGRES_PORT" -v ON_ERROR_STOP=1 "$@"; }

is() {
	[[ $1 == "$2" ]] || {
		printf '%s, not %s\n' "$1" "$2"
		return 1
	}
}

queue_is() {
	is "$(ask -c "SELECT string_agg(state || ' ' || application_name, ', ' ORDER BY position)
		FROM zk_lock_queue('nightly')")" "$1"
}

use() {
	check 'there is no compiler' no_compiler
	"$container/install.sh" postgres "$packages"
	ok 'PostgreSQL with zklock is installed'
	"$container/install.sh" zookeeper
	ok 'ZooKeeper is installed'
	check 'there is still no compiler' no_compiler
	serve
	smoke
	# Java is deaf to SIGINT in the background.
	kill -TERM "${servers[0]}"
	kill -INT "${servers[1]}"
	wait "${servers[@]}" || true
	autopkgtest_passes
}

serve() {
	export ZOOKEEPER_PORT POSTGRES_PORT POSTGRES_PASSWORD=secret
	ZOOKEEPER_PORT=$(free_port)
	"$container/serve.sh" zookeeper >/tmp/zookeeper.log 2>&1 &
	servers+=($!)
	POSTGRES_PORT=$(free_port)
	ZOOKEEPER_SERVERS=127.0.0.1:$ZOOKEEPER_PORT \
		"$container/serve.sh" postgres >/tmp/postgres.log 2>&1 &
	servers+=($!)
	await 'PostgreSQL' ask -c 'SELECT 1' || {
		cat /tmp/postgres.log
		return 1
	}
	ask -c 'CREATE EXTENSION zklock'
	await 'ZooKeeper' ask -c "SELECT zk_lock('first')" || {
		cat /tmp/zookeeper.log /tmp/postgres.log
		return 1
	}
	ok 'both servers run, and zklock is created'
}

# What make demo shows, in short.
smoke() {
	local first second
	PGAPPNAME=first ask -c "SELECT zk_lock('nightly')" -c 'SELECT pg_sleep(600)' >/tmp/first 2>&1 &
	await 'the first one has the lock' queue_is 'held first'
	PGAPPNAME=second ask -c "SELECT zk_lock('nightly')" -c 'SELECT pg_sleep(600)' >/tmp/second 2>&1 &
	await 'the second one waits' queue_is 'held first, waiting second'
	check 'one holds, one waits' queue_is 'held first, waiting second'
	check 'a try is refused' is "$(ask -c "SELECT zk_try_lock('nightly')")" f
	ask -c "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'first'" >/dev/null
	await 'the second one has it' queue_is 'held second'
	await 'its token' test -s /tmp/second
	first=$(head -n 1 /tmp/first)
	second=$(head -n 1 /tmp/second)
	check 'the holder was killed, and the next one has it, with a higher token' \
		test "$second" -gt "$first"
	ask -c "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'second'" >/dev/null
	await 'the queue is empty' queue_is ''
	check 'a lock of a transaction guards a write' is "$(ask -c 'CREATE TABLE report (day int)' -c "
		BEGIN;
		SELECT zk_xact_lock('report') > 0;
		INSERT INTO report VALUES (1);
		COMMIT" -c "SELECT count(*) FROM report" | tail -n 1)" 1
	ask -c 'SELECT * FROM zk_check()'
	check 'zk_check() finds no fault' is "$(ask -c "SELECT string_agg(item, ' ')
		FROM zk_check() WHERE state NOT IN ('ok', 'note')")" ''
}

autopkgtest_passes() {
	install_packages autopkgtest dpkg-dev
	check 'autopkgtest' autopkgtest -B "$packages"/postgresql-[0-9]*-zklock_*.deb \
		"$packages"/zklock_*.dsc -- null
}

# --- page ----------------------------------------------------------------

# As the page has it, with the release of PostgreSQL that this Debian has in place of 15.
# The three ZooKeeper servers are one here.
page() {
	local archive tree
	printf 'APT::Get::Assume-Yes "true";\n' >/etc/apt/apt.conf.d/zklock
	echo '127.0.0.1 localhost zk1 zk2 zk3' >>/etc/hosts
	install_packages perl libjson-pp-perl
	major=$(apt-cache depends postgresql | sed -n 's/^ *Depends: postgresql-\([0-9]*\)$/\1/p')
	archive=zklock-$(perl "$source/packages/version")
	tree=/tmp/page/$archive
	mkdir -p /tmp/page
	cp -r "$source" "$tree"
	cd "$tree"

	typed zookeeper
	typed source
	blocks conf settings >>"/etc/postgresql/$major/main/postgresql.conf"
	typed settings
	asked install/database
	asked install/check
	typed check
	typed installcheck
	[[ ! -s regression.diffs ]] || cat regression.diffs
	check 'make uninstall' make uninstall
	make clean
	tar -C .. -czf "../$archive.tar.gz" "$archive"
	install_packages rpm file zip pgxnclient
	typed rpm "s,/usr/pgsql-[0-9]*,/usr/lib/postgresql/$major,; s,rpmbuild -ba,& --nodeps,"
	(cd .. && zip -qr "$archive/$archive.zip" "$archive")
	typed pgxn
	rm "$archive.zip"
	make uninstall
	make clean
	typed debian
	typed settings
	asked install/check
	asked install/drop
	asked install/roles
	typed zookeeper-end
	service zookeeper stop
	pg_ctlcluster "$major" main stop
}

# blocks KIND VALUE: the blocks of the page that are marked so.
blocks() {
	# shellcheck disable=SC2016
	perl -I "$source/test/lib" -MPages -e '
		my ($kind, $value) = @ARGV;
		print map { $_->{code} } grep { $_->{kind} eq $kind && $_->{value} eq $value }
			map { Pages::blocks($_) } grep { $_->{name} eq "docs/install.md" } Pages::all();' "$1" "$2" |
		sed "s/postgresql-15/postgresql-$major/g; s/-dev-15/-dev-$major/g; s,postgresql/15/,postgresql/$major/,g; s/pg_ctlcluster 15/pg_ctlcluster $major/"
}

# typed VALUE [CHANGE]: commands for a shell, changed by sed.
typed() {
	blocks sh "$1" | sed "${2:-}" >/tmp/typed
	check "there are commands: $1" test -s /tmp/typed
	cat /tmp/typed
	check "docs/install.md: $1" bash -e /tmp/typed
}

# asked VALUE: statements for a superuser.
asked() {
	blocks sql "$1" >/tmp/asked
	chmod a+r /tmp/asked
	check "there are statements: $1" test -s /tmp/asked
	check "docs/install.md: $1" runuser -u postgres -- psql -aX -v ON_ERROR_STOP=1 -f /tmp/asked
}

cd /
"$1"
ok "$1"
