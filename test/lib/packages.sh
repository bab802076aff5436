# shellcheck shell=bash
# shellcheck disable=SC2154  # its variables are those of setup.sh and test/check
# packages.sh: which packages of Debian the suites need beyond those of setup.sh, and what a
# run leaves to make nightly. Sourced by test/check.

declare -A suite_packages=(
	[walls]='cloc'
	[warnings]='clang'
	[tools]='clang-tidy clang-tools cppcheck shellcheck libperl-critic-perl codespell'
	[fuzz]='clang libclang-rt-dev'
	[model]='spin'
	[tap]='libcurator-recipes-java libzookeeper-java python3-kazoo python3-psycopg2 pgbouncer
		faketime git libpostgresql-jdbc-java python3-alembic python3-yaml'
	[torture]='libdbd-pg-perl faketime'
	[valgrind]='valgrind'
	[bugs]='libdbd-pg-perl patch faketime')
suite_packages[tls]="${suite_packages[tap]} ${suite_packages[torture]} openssl"
suite_packages[mutation]=${suite_packages[tap]}
suite_packages[others]='python3-psycopg2 python3-psycopg python3-asyncpg golang-go
	golang-github-jackc-pgx-v4-dev'
# Another Node.js than Debian's brings its npm.
command -v npm >/dev/null || suite_packages[others]+=' nodejs npm'

# What few tests of tap need, most of it large. It is installed with PACKAGES=all; without that
# the tests use what is there, and those that lack something are skipped and say so.
large_groups=('clients in Go' 'programs of Rails' 'Prometheus' 'psycopg 3')
declare -A large_packages=(
	['clients in Go']='golang-go golang-github-samuel-go-zookeeper-dev golang-github-lib-pq-dev'
	['programs of Rails']='ruby-activerecord ruby-pg'
	['Prometheus']='prometheus prometheus-postgres-exporter'
	['psycopg 3']='python3-psycopg')

# The package of each library that test/lib/Peer.pm drives.
declare -A peer_packages=(
	[curator]='libcurator-recipes-java'
	[recipes]='libzookeeper-java'
	[kazoo]='python3-kazoo'
	[go]='golang-go golang-github-samuel-go-zookeeper-dev')

# Set the array "packages" to those of the suites named.
choose_packages() {
	local suite words
	packages=()
	for suite; do
		read -rd '' -a words <<<"${suite_packages[$suite]:-}" || true
		packages+=("${words[@]}")
		case $suite in
			tap) packages+=("${optional_packages[@]}") ;;&
			tap | tls | mutation)
				[[ ${PACKAGES:-} == all ]] || continue
				read -rd '' -a words <<<"${large_packages[*]}" || true
				packages+=("${words[@]}")
				;;
		esac
	done
}

# are_installed PACKAGE...: all of them?
are_installed() {
	local package
	for package; do is_installed "$package" || return; done
}

# The libraries that Peer.pm is to find, with commas between them.
installed_peers() {
	local peer names=()
	for peer in "${!peer_packages[@]}"; do
		# shellcheck disable=SC2086
		! are_installed ${peer_packages[$peer]} || names+=("$peer")
	done
	(
		IFS=,
		say "${names[*]}"
	)
}

# A line for the suites that are left to make nightly by a run of the suites named, and one for
# the tests of tap that lack a package: none if nothing is left.
tell_left() {
	local group suite suites=() groups=() needed=()
	for suite in "${all_suites[@]}"; do
		[[ " $* " == *" $suite "* ]] || suites+=("$suite")
	done
	[[ ${#suites[@]} -eq 0 ]] || say "left to make nightly: the suites ${suites[*]}"
	[[ " $* " == *' tap '* ]] || return 0
	for group in "${large_groups[@]}"; do
		# shellcheck disable=SC2086
		are_installed ${large_packages[$group]} && continue
		groups+=("$group")
		needed+=("${large_packages[$group]}")
	done
	[[ ${#groups[@]} -gt 0 ]] || return 0
	printf -v group ', %s' "${groups[@]}"
	say "left to make nightly: tests with ${group#, }; make check PACKAGES=all installs ${needed[*]}"
}
