# shellcheck shell=bash
# steps.sh: what use_package.sh and use_images.sh share, which are parts as parts.sh has
# them. Sourced by them.

ok() { printf 'test ok %s\n' "$*"; }

not_ok() { printf 'test not ok %s\n' "$*"; }

# check WHAT COMMAND...: a test; the command's failure is that of the test alone.
check() {
	local what=$1
	shift
	if "$@"; then ok "$what"; else not_ok "$what"; fi
}

# Until the command succeeds; a server takes its time.
await() {
	local what=$1 end=$((SECONDS + 60))
	shift
	until "$@" >/dev/null 2>&1; do
		[[ $SECONDS -lt $end ]] || {
			not_ok "$what: timed out"
			return 1
		}
		sleep 0.1
	done
}

install_packages() {
	apt-get -q install -y --no-install-recommends "$@" >/tmp/apt.log || {
		cat /tmp/apt.log
		return 1
	}
}
