# shellcheck shell=bash
# roots.sh: what test/versions, test/packages and test/images share. Sourced by them.
#
# Root file systems of Debian's releases, below .zklock/roots, and processes in them
# that end with us. Names are those of the releases, or begin with one and a dash.
#
# Settings, in the environment:
#   MIRROR=http://...     of Debian, instead of the one that apt is configured
#                         with or, if it has none, deb.debian.org
#   FRESH=1               start with bare systems again
#   IF_POSSIBLE=1         where there are no root file systems to be had, say so
#                         and let that be all

# shellcheck source=test/lib/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

roots=$work/roots
debian_mirror=http://deb.debian.org/debian

no_roots=       # there are none to be had, and that may be
job=            # process of the current run, to be ended by job_signal
job_signal=
root_packages='make'    # what a bare system has, beside what every one has

# With IF_POSSIBLE what else is asked for is run all the same.
cannot() {
	say "no root file systems here: $*"
	[[ -n ${IF_POSSIBLE:-} ]] || exit 77
	no_roots=1
}

# One run at a time, and the way out: the processes in a root file system and
# its mounts are in namespaces that end with their first process.
begin() {
	mkdir -p "$roots"/{packages,log} "$work/log" 2>/dev/null ||
		die "cannot write to $work"
	exec 8>>"$roots/lock"
	flock -n 8 || die "another run is under way in $roots"
	trap end EXIT
	trap 'exit 129' HUP
	trap 'exit 130' INT
	trap 'exit 143' TERM
}

end() {
	local status=$?
	trap '' HUP INT TERM
	set +e
	end_job
	exit "$status"
}

end_job() {
	[[ -n $job ]] || return 0
	kill "-$job_signal" "$job" 2>/dev/null
	wait "$job" 2>/dev/null
	job=
}

# run_job SIGNAL LOG COMMAND...: out of the terminal's reach, so that Ctrl-C is
# for us alone; output to the terminal and to LOG. SIGNAL ends it, also when we
# are killed.
run_job() {
	local log=$2 status=0 viewer
	job_signal=$1
	shift 2
	: >"$log"
	setsid setpriv --pdeathsig "$job_signal" "$@" \
		>"$log" 2>&1 </dev/null 8>&- &
	job=$!
	tail -n +1 -s 0.2 -f --pid="$job" "$log" 8>&- &
	viewer=$!
	wait "$job" || status=$?
	job=
	wait "$viewer" || true
	return "$status"
}

# in_root ROOT LOG COMMAND...: with mounts and processes of its own.
in_root() {
	local root=$1 log=$2
	shift 2
	run_job KILL "$log" unshare --mount --pid --ipc --fork --kill-child \
		bash -c "$(declare -f first_process); first_process \"\$@\"" \
		first_process "$root" "$(packages_of "$root")" "$@"
}

# Where the packages lie that were fetched for its release.
packages_of() {
	local name
	name=$(basename "$1")
	say "$roots/packages/${name%%-*}"
}

# The first process there. It stays, to collect the orphans, and the old root is
# out of sight: where that is only hidden (chroot) the kernel makes no user
# namespaces, which tests want.
first_process() {
	local root=$1 packages=$2
	shift 2
	set -e
	mount --rbind "$root" "$root"
	cd "$root"
	mount --bind "$packages" var/cache/apt/archives
	mount -t proc proc proc
	mount --rbind /sys sys
	mount --rbind /dev dev
	mount -t tmpfs tmpfs dev/shm
	mount -t tmpfs tmpfs tmp
	[[ ! -e /etc/resolv.conf ]] || cat /etc/resolv.conf >etc/resolv.conf
	pivot_root . .
	umount -l .
	cd /
	set +e
	env -i HOME=/root TERM="${TERM:-dumb}" \
		PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
	exit $?
}

# What all the root file systems need of this machine.
check_machine() {
	[[ $(id -u) -eq 0 ]] || {
		cannot 'not root'
		return
	}
	unshare --mount --pid --ipc --fork --kill-child --mount-proc \
		mount -t tmpfs tmpfs "$roots" 2>/dev/null || {
		cannot 'not allowed to mount'
		return
	}
	if ! command -v debootstrap >/dev/null; then
		command -v apt-get >/dev/null || {
			cannot 'there is no debootstrap'
			return
		}
		say 'installing: debootstrap'
		update_lists
		apt_get install -y --no-install-recommends debootstrap \
			debian-archive-keyring || {
			cannot 'could not install debootstrap'
			return
		}
	fi
	MIRROR=${MIRROR:-$(configured_mirror)}
	MIRROR=${MIRROR:-$debian_mirror}
}

configured_mirror() {
	command -v apt-get >/dev/null || return 0
	# shellcheck disable=SC2016
	apt-get indextargets --format '$(REPO_URI)' 2>/dev/null |
		grep -m 1 '/debian/*$' || true
}

# What apt needs to reach the mirror.
configured_access() {
	command -v apt-config >/dev/null || return 0
	apt-config dump | grep -E '^Acquire::(https?::|Check-)' || true
}

# make_root NAME: a bare system, if there is none yet, or none that is whole.
make_root() {
	local release=${1%%-*} root=$roots/$1 log=$roots/log/$1.debootstrap script=()
	if [[ -d $root && -z ${FRESH:-} ]] &&
		[[ -z $(chroot "$root" dpkg --audit 2>&1) ]]; then
		return
	fi
	say "making a root file system from $MIRROR"
	mkdir -p "$roots/packages/$release"
	# A debootstrap may be older than the release.
	[[ -e /usr/share/debootstrap/scripts/$release ]] || script=(sid)
	run_job KILL "$log" rm -rf --one-file-system "$root" "$root.new"
	run_job KILL "$log" unshare --mount --pid --fork --kill-child --mount-proc \
		debootstrap --variant=minbase "--include=$root_packages" \
		--cache-dir="$roots/packages/$release" \
		"$release" "$root.new" "$MIRROR" "${script[@]}" >/dev/null || {
		tail -n 20 "$log"
		return 1
	}
	configured_access >"$root.new/etc/apt/apt.conf.d/99zklock"
	# These files need not outlive a power failure.
	echo force-unsafe-io >"$root.new/etc/dpkg/dpkg.cfg.d/zklock"
	mv "$root.new" "$root"
}

# copy_tree DIRECTORY: the tree as it is now, as root's, without what was built in it.
copy_tree() {
	rm -rf --one-file-system "$1"
	mkdir -p "$1"
	tar -C "$top" --exclude=./.zklock --exclude=./.git --exclude='./*.so' \
		--exclude='./src/*/*.o' --exclude='./src/*/*.bc' --exclude='./src/zklock-session*' -c . |
		tar -C "$1" --no-same-owner -x
}
