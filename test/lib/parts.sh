# shellcheck shell=bash
# parts.sh: what test/packages and test/images share. Sourced by them.
#
# A part is a run of a script elsewhere, say in a root file system, which prints a line
# "test ok ..." or "test not ok ..." for each test (steps.sh); the last one is "test ok
# PART".

# shellcheck source=test/lib/roots.sh
source "$(dirname "${BASH_SOURCE[0]}")/roots.sh"

passed=0
failed=0
failures=()     # one line each, for the end

# fail LINE: a test that has failed.
fail() {
	failed=$((failed + 1))
	failures+=("$1")
}

# act NAME PART LOG COMMAND...: that part, which the command runs, with its output in LOG.
# NAME is what the failures are called by.
act() {
	local name=$1 part=$2 log=$3 line status=0
	shift 3
	"$@" || status=$?
	while read -r line; do
		case $line in
			'test ok '*) passed=$((passed + 1)) ;;
			'test not ok '*) fail "$name: ${line#test not ok }" ;;
		esac
	done < <(grep -aE '^test (not )?ok ' "$log")
	[[ $status -eq 0 ]] && grep -qxF "test ok $part" "$log" && return
	fail "$name: $part did not come to its end, see $log"
	return 1
}

# Without a root file system there is nothing to be tested.
need_root() {
	make_root "$1" && return
	fail "$1: no root file system, see $roots/log/$1.debootstrap"
	return 1
}

# finish LINE: the result, behind a line on where to look.
finish() {
	step 'done'
	if [[ $failed -gt 0 ]]; then
		say 'failed:'
		printf '    %s\n' "${failures[@]}"
	fi
	say "$1"
	say "$passed passed, $failed failed"
	[[ $failed -eq 0 && ($passed -gt 0 || -n $no_roots) ]]
}
