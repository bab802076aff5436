# shellcheck shell=bash
# setup.sh: what test/check and test/demo share. Sourced by them.
#
# Makes a bare machine ready: packages, a private build and installation of
# zklock, a user to run servers as, directories; and takes everything down again
# however the script ends. All files are in .zklock at the top of the
# repository, save for sockets, whose paths must be short. When we are root and
# the repository lies where the unprivileged user cannot go, as in /root, what
# the servers and tests need lies in /var/tmp until the end instead. (A capability
# to go there would not do: access(2) ignores it.)
#
# After setup_run, these are set:
#   top work         the repository, .zklock
#   tree             where they can be read: top, or a copy
#   run install      run-time files, the private installation: in work or in /var/tmp
#   short            a directory in /var/tmp, for sockets; not /tmp, which may be in memory
#   PG_CONFIG        of the PostgreSQL that is tested; pg_major is its release
#   bindir pgxs      of that: its programs, its files for extensions
#   unprivileged     prefix that runs a command as the unprivileged user, in the
#                    environment of PostgreSQL's test programs; further
#                    NAME=value may follow it

set -euo pipefail

# One of ours runs make itself; options meant for the outer one stay out.
unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES
# Messages and sorting alike everywhere, and UTF-8 databases.
unset "${!LC_@}" LANGUAGE
export LANG=C.UTF-8
umask 022
# Programs of the administrator, which "su" without "-" leaves out and dpkg wants.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
unset CDPATH
# Of libpq's settings none is for our servers; PG_CONFIG and the like are.
for name in "${!PG@}"; do
	[[ $name == PG_* ]] || unset "$name"
done

top=$(cd -P "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
tree=$top
work=$top/.zklock
run=$work/run
install=$work/install
short=
bindir=
pgxs=
unprivileged=()
test_files=()   # see test_directory
pg_major=
destdir=        # where zklock is installed below, if PostgreSQL bears that
build=build     # where it is built, below work

# What the two commands need on Debian; MAJOR is the release of PostgreSQL.
build_packages=(make gcc libc6-dev libzookeeper-st-dev libssl-dev
	postgresql-server-dev-MAJOR)
server_packages=(postgresql-MAJOR libzookeeper-java default-jre-headless libslf4j-java libipc-run-perl
	procps)
# What they can do without if there is no such package.
optional_packages=(postgresql-MAJOR-cron)

zookeeper_pid=  # the program that serves ZooKeeper, and its address
zookeeper_servers=
zookeeper_words=()  # NAME=value for its environment

child=          # process group of the running step
run_user=       # the unprivileged user, if we are root
# Prefix that runs a command as the unprivileged user; it ends with its parent.
runner=(setpriv --pdeathsig TERM)
system_path=    # where packages have their programs, if we install packages
as_root=()      # prefix that runs a command as root
cluster_rule=   # files that exist only while packages are installed
service_rule=
lists_are_new=

say() { printf '%s\n' "$*"; }

# A progress line with the time since the start.
step() { printf '\n[%d:%02d] %s\n' $((SECONDS / 60)) $((SECONDS % 60)) "$*"; }

die() {
	printf '%s: %s\n' "$(basename "$0")" "$*" >&2
	exit 1
}

# Directories, one run at a time, and the way out.
setup_begin() {
	mkdir -p "$work" 2>/dev/null || die "cannot write to $top"
	[[ -w $work ]] || die "$work belongs to another user; remove it first"
	exec 9>>"$work/lock"
	flock -n 9 || die "another run is under way in $work"
	trap cleanup EXIT
	trap 'exit 129' HUP
	trap 'exit 130' INT
	trap 'exit 143' TERM

	clear_last_run
	rm -rf "$run" "$work/log"
	mkdir -p "$run" "$work/log"
	short=$(mktemp -d /var/tmp/zklock.XXXXXX)
	ln -sfn "$short" "$work/short"
}

# What a run has left that was killed before it could take it down.
clear_last_run() {
	local old this=$run
	old=$(readlink "$work/short") || return 0
	for run in "$old/run" "$this"; do
		stop_leftovers
	done
	[[ $old != /var/tmp/zklock.?????? ]] || rm -rf "$old"
	rm -f "$work/short"
}

cleanup() {
	local status=$?
	trap '' HUP INT TERM
	set +e
	if [[ -n $child ]]; then
		kill -TERM -- "-$child" 2>/dev/null || kill -TERM "$child" 2>/dev/null
		wait "$child" 2>/dev/null
		wait_for_group "$child"
	fi
	zookeeper_stop
	stop_leftovers
	# Logs and data directories are for reading after a failure.
	if [[ $status -eq 0 && -z ${KEEP:-} ]]; then
		rm -rf "$run"
	elif [[ -d $run && $run != "$work/run" ]]; then
		rm -rf "$work/run"
		cp -r "$run" "$work/run"
	fi
	[[ -n $short ]] && rm -rf "$short" "$work/short"
	[[ -n $cluster_rule ]] && remove_cluster_rule
	[[ -n $service_rule ]] && remove_service_rule
	exit "$status"
}

# A group may outlive its first process: tests take their servers down. Not for ever,
# and what is left then may be zombies that nobody collects, as in some containers.
wait_for_group() {
	local end=$((SECONDS + 30))
	while kill -0 -- "-$1" 2>/dev/null; do
		if [[ $SECONDS -ge $end ]]; then
			kill -KILL -- "-$1"
			break
		fi
		sleep 0.1
	done
}

# Whatever a step should have stopped and did not. Each server has left its
# process id in our directories; the command line guards against a reused one. The
# program of a session whose ensemble is gone stays for as long as its timeout.
stop_leftovers() {
	local file pid
	while IFS=/ read -r _ _ pid _; do
		kill -KILL "$pid" 2>/dev/null || true
	done < <(find /proc -maxdepth 2 -name exe -lname "${run%/run}/install/*/zklock-session*" 2>/dev/null)
	while read -r file; do
		read -r pid <"$file" || continue
		[[ -r /proc/$pid/cmdline ]] || continue
		tr '\0' '\n' <"/proc/$pid/cmdline" | grep -qF "$run" || continue
		case $file in
			*/postmaster.pid) kill -QUIT "$pid" ;;
			*) kill -KILL "$pid" ;;
		esac
		timeout 20 tail --pid="$pid" -s 0.1 -f /dev/null || kill -KILL "$pid"
	done < <(find "$run" \( -name postmaster.pid -o -name zookeeper.pid \) 2>/dev/null)
}

# run LOG COMMAND...: in a process group of its own, so that a signal to us can
# end all of it at once, and it ends if we are killed; output to the terminal and
# to LOG.
run() {
	local log=$1 status=0
	shift
	# shellcheck disable=SC2016
	setsid setpriv --pdeathsig TERM bash -c 'set -o pipefail; log=$1; shift; "$@" 2>&1 9>&- | tee "$log"' \
		run "$log" "$@" 9>&- &
	child=$!
	wait "$child" || status=$?
	child=
	return "$status"
}

# The same, silent; the end of LOG is shown if the command fails.
run_quietly() {
	local log=$1 status=0
	shift
	setsid setpriv --pdeathsig TERM "$@" >"$log" 2>&1 9>&- &
	child=$!
	wait "$child" || status=$?
	child=
	[[ $status -eq 0 ]] || tail -n 40 "$log"
	return "$status"
}

# Install those of the packages that are missing, PostgreSQL's only if PG_CONFIG names
# no other; needs no root if nothing is missing.
setup_packages() {
	local missing=() package

	if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
		setup_elsewhere "$@"
		return
	fi
	# Another perl, java or go in PATH knows nothing of Debian's libraries.
	system_path=/usr/bin:/bin:
	[[ -n ${PG_CONFIG:-} ]] || choose_postgresql
	optional_packages=("${optional_packages[@]//MAJOR/$pg_major}")
	for package; do
		[[ $package != *MAJOR* || -n $pg_major ]] || continue
		package=${package//MAJOR/$pg_major}
		[[ " ${missing[*]} " == *" $package "* ]] || is_installed "$package" || missing+=("$package")
	done
	forgo_optional
	if [[ ${#missing[@]} -eq 0 ]]; then
		say 'all installed'
		return
	fi
	say "installing: ${missing[*]}"

	become_root "${missing[*]}"
	make_cluster_rule
	make_service_rule
	update_lists
	# apt may know now what it did not know before.
	forgo_optional
	apt_get install -y --no-install-recommends "${missing[@]}" ||
		die "could not install ${missing[*]}, see $work/log/apt-get.log"
	remove_cluster_rule
	for package in pgbouncer prometheus prometheus-postgres-exporter; do
		[[ " ${missing[*]} " != *" $package "* ]] || leave_service_off "$package"
	done
	remove_service_rule
}

is_installed() {
	[[ $(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null) == installed ]]
}

# The release of PostgreSQL: the one asked for, the newest that is installed with
# all we need, or the distribution's own. Sets pg_major.
choose_postgresql() {
	local package
	pg_major=${PG_VERSION:-}
	[[ -z $pg_major ]] || return 0
	while read -r package; do
		if is_installed "$package" && is_installed "postgresql-server-dev-${package#*-}"; then
			pg_major=${package#*-}
			return
		fi
	done < <(dpkg-query -W -f='${Package}\n' 'postgresql-[1-9][0-9]' 2>/dev/null | sort -rV)
	pg_major=$(default_postgresql)
	[[ -n $pg_major ]] || {
		become_root 'postgresql postgresql-server-dev-all'
		update_lists
		pg_major=$(default_postgresql)
	}
	[[ -n $pg_major ]] ||
		die 'apt knows no package postgresql: set PG_VERSION or PG_CONFIG'
}

# What the package without a number leads to.
default_postgresql() {
	LC_ALL=C apt-cache show --no-all-versions postgresql 2>/dev/null |
		sed -n 's/^Depends:.*\bpostgresql-\([0-9][0-9]*\)\b.*/\1/p'
}

# What needs root goes by "${as_root[@]}" from now on.
become_root() {
	[[ $(id -u) -ne 0 && ${#as_root[@]} -eq 0 ]] || return 0
	command -v sudo >/dev/null ||
		die "there is no sudo; as root: apt-get install $1"
	# Ask for the password here, on the terminal, not in a log.
	sudo -v || die "sudo was refused; as root: apt-get install $1"
	as_root=(sudo)
}

# Once in a run.
update_lists() {
	[[ -z $lists_are_new ]] || return 0
	apt_get update || say 'apt-get update failed; trying with what is known'
	lists_are_new=1
}

# Where there is no apt, all we can do is to say what is needed.
setup_elsewhere() {
	say "not a Debian system, so nothing is installed here. As Debian calls it, this is
needed: ${*//MAJOR/15 (or later)}. PostgreSQL is
found as pg_config, or by PG_CONFIG=/path/to/pg_config."
	PG_CONFIG=${PG_CONFIG:-$(command -v pg_config)} || die 'there is no pg_config'
	command -v java >/dev/null || die 'there is no java'
	perl -MIPC::Run -e 1 2>/dev/null || die 'there is no IPC::Run for Perl'
	[[ -r ${ZOOKEEPER_CLASSPATH:-/usr/share/java/zookeeper.jar} ]] ||
		die 'there is no ZooKeeper server: set ZOOKEEPER_CLASSPATH to its jars'
}

# Take out of "missing" what is optional and not to be had, once apt knows any
# packages at all. Tests that need it are skipped and say so.
forgo_optional() {
	local package wanted=()
	compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null || return 0
	for package in "${missing[@]}"; do
		if [[ " ${optional_packages[*]} " == *" $package "* ]] &&
			! known_to_apt "$package"; then
			say "there is no package $package: doing without"
		else
			wanted+=("$package")
		fi
	done
	missing=("${wanted[@]}")
}

known_to_apt() {
	local policy
	policy=$(LC_ALL=C apt-cache policy "$1" 2>/dev/null)
	[[ $policy =~ Candidate:\ [0-9] ]]
}

# In the foreground and not by run_quietly: sudo remembers the password for this
# terminal only.
apt_get() {
	local log=$work/log/apt-get.log
	"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
		apt-get -q -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 "$@" \
		>"$log" 2>&1 </dev/null 9>&- && return
	tail -n 20 "$log"
	return 1
}

# Debian's package makes and starts a cluster as it is installed. Nobody asked
# for one, so a rule says no, for as long as we install and only where
# PostgreSQL is not there yet.
make_cluster_rule() {
	[[ -d /etc/postgresql-common ]] && return
	cluster_rule=/etc/postgresql-common/createcluster.d/zklock.conf
	"${as_root[@]}" mkdir -p "$(dirname "$cluster_rule")"
	echo 'create_main_cluster = false' |
		"${as_root[@]}" tee "$cluster_rule" >/dev/null
}

remove_cluster_rule() {
	[[ -n $cluster_rule ]] || return 0
	"${as_root[@]}" rm -f "$cluster_rule"
	"${as_root[@]}" rmdir --ignore-fail-on-non-empty "$(dirname "$cluster_rule")"
	cluster_rule=
}

# Debian's packages start their service as they are installed, and with each boot
# from then on. We want the programs only, so a rule says no to every service that is
# not there yet, and those of the packages that we ask for are disabled. What is there
# and has an update is started again. Where the administrator has a rule, it stays as it
# is, and a service of ours is stopped if it did start.
service_policy=/usr/sbin/policy-rc.d
make_service_rule() {
	local known
	[[ -e $service_policy ]] && ! grep -q '^# zklock$' "$service_policy" && return
	known=$(find {/etc/init.d,/{etc,lib,usr/lib}/systemd/system} -maxdepth 1 ! -type d -printf '%f ' 2>/dev/null) || true
	service_rule=$service_policy
	"${as_root[@]}" tee "$service_rule" >/dev/null <<-RULE
	#!/bin/sh
	# zklock
	for name in \$1 \$1.service \${1%%@*}@.service; do
		case " $known" in *" \$name "*) exit 0 ;; esac
	done
	exit 101
	RULE
	"${as_root[@]}" chmod 755 "$service_rule"
}

remove_service_rule() {
	[[ -n $service_rule ]] || return 0
	"${as_root[@]}" rm -f "$service_rule"
	service_rule=
}

leave_service_off() {
	"${as_root[@]}" update-rc.d "$1" disable >>"$work/log/apt-get.log" 2>&1 ||
		say "could not disable the service $1"
	[[ -n $service_rule ]] || "${as_root[@]}" invoke-rc.d "$1" stop >>"$work/log/apt-get.log" 2>&1 || true
}

# Find PostgreSQL, and the user to run it as: it refuses root.
setup_run() {
	PG_CONFIG=${PG_CONFIG:-/usr/lib/postgresql/$pg_major/bin/pg_config}
	# A name, or a path from where we are; we shall go elsewhere.
	type -P -- "$PG_CONFIG" >/dev/null || die "there is no program $PG_CONFIG"
	PG_CONFIG=$(realpath -s -- "$(type -P -- "$PG_CONFIG")")
	pg_major=$("$PG_CONFIG" --version | sed -n 's/^PostgreSQL \([0-9]\+\).*/\1/p') || true
	[[ -n $pg_major ]] || die "$PG_CONFIG is no pg_config"
	[[ $pg_major -ge 15 ]] || die "zklock needs PostgreSQL 15 or later; $PG_CONFIG is $pg_major"
	[[ -x $("$PG_CONFIG" --bindir)/initdb ]] ||
		die "no PostgreSQL server in $("$PG_CONFIG" --bindir)"
	[[ -f $("$PG_CONFIG" --pgxs) ]] ||
		die "no files for building extensions beside $PG_CONFIG"

	if [[ $(id -u) -eq 0 ]]; then
		# Without a package of PostgreSQL there need not be its user.
		run_user=${ZKLOCK_TEST_USER:-$(id -un postgres 2>/dev/null || echo nobody)}
		id "$run_user" >/dev/null || die "set ZKLOCK_TEST_USER to a user that is no administrator"
		runner+=("--reuid=$run_user" "--regid=$(id -gn "$run_user")"
			--init-groups)
		say "servers and tests run as user $run_user"
		is_readable || use_copy
		chown -R "$run_user" "$run" "$short"
	fi
	setup_destination
	bindir=$("$PG_CONFIG" --bindir)
	pgxs=$(cd "$(dirname "$("$PG_CONFIG" --pgxs)")/../.." && pwd)
	set_unprivileged
	# Where we were called from may be closed to that user.
	cd "$run"
}

# The files of the tree, each with a NUL: what git knows, and what is new and not
# ignored. Without git, or in what was unpacked from an archive, all but what is built.
tree_files() {
	git -c "safe.directory=$top" -C "$top" ls-files -z --cached --others \
		--exclude-standard 2>/dev/null | (cd "$top" && xargs -0r sh -c '
		for file; do [ ! -e "$file" ] || printf "%s\\0" "$file"; done' each) |
		grep -z . && return
	(cd "$top" && find . -mindepth 1 \( -path ./.git -o -path ./.zklock -o -path './build-*' \) \
		-prune -o ! -type d ! -name '*.o' ! -name '*.so' -print0)
}

# Can that user read all of them? Some may have come by another umask.
is_readable() {
	# shellcheck disable=SC2016
	"${runner[@]}" test -r "$work/lock" && (cd "$top" && tree_files | "${runner[@]}" \
		xargs -0 sh -c 'for file; do [ -r "$file" ] || exit 255; done' each) 2>/dev/null
}

use_copy() {
	cp "$(type -P true)" "$short/"
	"$short/true" 2>/dev/null ||
		die "user $run_user cannot read $top, and no program runs in /var/tmp: move it elsewhere"
	say "user $run_user cannot read $top, so they use a copy in $short"
	tree=$short/tree
	run=$short/run
	install=$short/install
	rmdir "$work/run"
	mkdir "$tree" "$run"
	tree_files | tar -C "$top" --null -T - -c | tar -C "$tree" -x
}

# zklock is installed where this PostgreSQL alone finds it, and the installation that
# it comes from is left as it is. Debian's releases up to 17 have a setting for
# that, and every other one from 18 on; of an older one that was built from source
# there is a copy.
setup_destination() {
	local settings
	settings=$("$("$PG_CONFIG" --bindir)/postgres" --describe-config | cut -f 1)
	destdir=$install
	if grep -qx extension_destdir <<<"$settings"; then
		cat >"$run/server.conf" <<-CONF
		extension_destdir = '$install'
		dynamic_library_path = '$install$("$PG_CONFIG" --pkglibdir):\$libdir'
		CONF
	elif grep -qx extension_control_path <<<"$settings"; then
		cat >"$run/server.conf" <<-CONF
		extension_control_path = '$install$("$PG_CONFIG" --sharedir):\$system'
		dynamic_library_path = '$install$("$PG_CONFIG" --pkglibdir):\$libdir'
		CONF
	else
		copy_postgresql
		destdir=
		: >"$run/server.conf"
	fi
}

# The programs of PostgreSQL find everything else by where they are themselves.
copy_postgresql() {
	local prefix copy=$(dirname "$install")/postgresql
	prefix=$(cd "$("$PG_CONFIG" --bindir)/.." && pwd)
	[[ $prefix != / && $prefix != /usr && $("$PG_CONFIG" --sharedir) == "$prefix"/* &&
		$("$PG_CONFIG" --pkglibdir) == "$prefix"/* ]] ||
		die "$("$PG_CONFIG" --version) has no setting for extensions elsewhere, and is not in one directory"
	say "zklock is installed in a copy of $prefix"
	rm -rf "$copy"
	cp -al "$prefix" "$copy" 2>/dev/null || {
		rm -rf "$copy"
		cp -a "$prefix" "$copy"
	}
	PG_CONFIG=$copy/bin/pg_config
	# What is installed there already may be of another version, with scripts that lead elsewhere.
	rm -f "$("$PG_CONFIG" --pkglibdir)"/zklock* "$("$PG_CONFIG" --sharedir)"/extension/zklock{.control,--*.sql}
}

set_unprivileged() {
	unprivileged=("${runner[@]}" env -u LD_LIBRARY_PATH
		"HOME=$run" "TMPDIR=$short" "PATH=$bindir:$system_path$PATH"
		"PERL5LIB=$tree/test/lib:$pgxs/src/test/perl"
		"PG_REGRESS=$pgxs/src/test/regress/pg_regress"
		"TEMP_CONFIG=$run/server.conf" "ZKLOCK_TEST_CLASSES=$run/classes.jsa"
		"ZKLOCK_TEST_PRELOADS=$run/preloads")
	run_directory "$run/preloads"
}

# A directory for the files of a test program, in the array "test_files" as the words
# that tell it: TESTDIR up to PostgreSQL 15, the others from 16 on.
test_directory() {
	run_directory "$1"
	test_files=("TESTDIR=$1" "TESTDATADIR=$1/tmp_check"
		"TESTLOGDIR=$1/tmp_check/log")
}

# A directory that the unprivileged user can write to.
run_directory() {
	mkdir -p "$1"
	[[ -z $run_user ]] || chown "$run_user" "$1"
}

# copy_sources DIRECTORY [BUG]: all that a build needs; with the name of a
# seeded bug its patch is applied to the copy, see test/torture.
copy_sources() {
	local dir=$1 bug=${2:-}
	rm -rf "$dir"
	mkdir -p "$dir"
	cp -r "$top"/{Makefile,zklock.control,sql} "$dir/"
	(cd "$top" && cp --parents src/*.map src/*/*.{c,h} "$dir/")
	[[ -z $bug ]] || patch --directory="$dir" --strip=1 --quiet --force \
		--fuzz=0 --input="$top/test/torture/bugs/$bug.patch"
}

# update_copy DIRECTORY BUG WORD...: the same, but what has been built there before by
# these words, this compiler and this PostgreSQL stays, and of the sources only those are
# new that are not what they were.
update_copy() {
	local dir=$1 bug=$2 file stamp
	shift 2
	stamp=$(printf '%s\n' "$bug" "$PG_CONFIG" "${CC:-} ${COPT:-} ${CFLAGS:-}" "$@"; "$PG_CONFIG" --version
		"${CC:-gcc}" --version; ls -l --time-style=full-iso /usr/include/zookeeper 2>/dev/null
		cd "$top" && printf '%s\n' src/*.map src/*/*.{c,h} sql/*)
	if [[ -z $bug && -f $dir.stamp && $(<"$dir.stamp") == "$stamp" ]]; then
		for file in Makefile zklock.control src/*.map src/*/*.{c,h} sql/*; do
			cmp -s "$top/$file" "$dir/$file" || cp "$top/$file" "$dir/$file" || return
		done
		return
	fi
	rm -f "$dir.stamp"
	copy_sources "$dir" "$bug" || return
	printf '%s\n' "$stamp" >"$dir.stamp"
}

# Build from a copy and install privately: the source tree stays clean and the
# system's PostgreSQL untouched. Extra words go to make. DESTDIR is relative:
# PGXS does not bear a space in it. With BUG=name it has that seeded bug.
# Without bitcode for PostgreSQL's JIT, which takes as long to compile as the rest and
# which no call of ours is inlined by.
setup_build() {
	local words=() status=0
	rm -rf "$install"
	[[ -z $destdir ]] ||
		words=("DESTDIR=$(realpath -m --relative-to="$work/$build" "$destdir")")
	[[ -z ${BUG:-} ]] || say "with the seeded bug $BUG"
	(cd "$top" && update_copy "$work/$build" "${BUG:-}" "$@") || return
	run_quietly "$work/log/$build.log" \
		make -s --no-print-directory -C "$work/$build" -j "$(nproc)" "PG_CONFIG=$PG_CONFIG" \
		with_llvm=no "${words[@]}" "$@" install || status=$?
	# Who was killed may have left half a file.
	[[ $status -le 128 ]] || rm -f "$work/$build.stamp"
	return "$status"
}

# setup_build_beside NAME WORD...: another build, installed beside that one, where there
# is a setting for that; its settings are in $run/NAME.conf.
setup_build_beside() {
	local build=$1 settings
	local beside=$install-$build
	local install=$beside destdir=$beside
	shift
	settings=$(<"$run/server.conf")
	echo "${settings//"${install%-"$build"}"/"$install"}" >"$run/$build.conf"
	setup_build "$@"
}

# What servers, sessions and other clients need to use TLS: the directory of it goes to
# "tls", and as ZKLOCK_TEST_TLS to them, see test/lib/ZooKeeper.pm.
tls=
make_certificates() {
	tls=$run/tls
	test_directory "$tls"
	run_quietly "$work/log/certificates.log" "${unprivileged[@]}" "${test_files[@]}" \
		perl -MCertificates -e 'Certificates->make_all(shift)' "$tls"
}

# One ZooKeeper for several steps. Sets zookeeper_servers. It ends when the
# pipe to it is closed, so also when we die.
zookeeper_start() {
	coproc ZOOKEEPER {
		exec setsid "${unprivileged[@]}" "${zookeeper_words[@]}" \
			perl "$tree/test/lib/serve_zookeeper.pl" "$run/zookeeper" 9>&-
	}
	# bash forgets its own variables when the process ends.
	# shellcheck disable=SC2153
	zookeeper_pid=$ZOOKEEPER_PID
	zookeeper_out=${ZOOKEEPER[0]}
	zookeeper_in=${ZOOKEEPER[1]}
	# shellcheck disable=SC2034
	read -r zookeeper_servers <&"$zookeeper_out" || die 'ZooKeeper did not start'
}

zookeeper_stop() {
	[[ -n $zookeeper_pid ]] || return 0
	exec {zookeeper_in}>&- {zookeeper_out}<&-
	wait "$zookeeper_pid" || true
	zookeeper_pid=
}
