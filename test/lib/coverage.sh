# shellcheck shell=bash
# shellcheck disable=SC2154  # its variables are those of setup.sh
# coverage.sh: how test/check builds and runs for "make coverage". Sourced by it.
#
# Each process writes what it has counted as it ends, into a directory for each test
# program: so a process that is killed while it writes spoils no more than that. The
# directory's name comes in a variable that zklock-session's environment keeps.

data=           # where the counters are
build_words=()  # for make, in any build of test/check

# After setup_run.
coverage_begin() {
	data=$run/counters
	run_directory "$data"
	cp "$top/test/coverage/ends.h" "$short/"
	"${CC:-gcc}" -shared -fPIC -O2 -Wall -Werror -o "$short/preload.so" \
		"$top/test/coverage/preload.c" || die 'test/coverage/preload.c does not compile'
	# Not optimized, so that lines stay what they are.
	instrument=(--coverage -fprofile-update=atomic -O0 "-fprofile-dir=$data/%q{LD_ZKLOCK_JOB}"
		-include "$short/ends.h")
	build_words=("PROFILE=$(printf " '%s'" "${instrument[@]}")")
	unprivileged+=("LD_PRELOAD=$short/preload.so" "LD_ZKLOCK_JOB=none")
}

# The tables, the verdict, and what "make mutation" needs: of all tests, or of some.
coverage_end() {
	local words=(--top "$top" --data "$data")
	step 'coverage'
	if perl "$top/test/coverage/reach" "${words[@]}" --took "$run/counts" "$work/build/src" "$run/unit" \
		>"$run/reached" 2>"$work/log/reach.log"; then
		cp "$run/reached" "$work/reached"
	else
		fail "coverage: which test reaches what is not known, see $work/log/reach.log"
	fi
	[[ -z ${SUITE:-}${TESTS:-} ]] || words+=(--some)
	if perl "$top/test/coverage/report" "${words[@]}" "$work/build/src" "$run/unit" \
		2>"$work/log/gcov.log" | tee "$work/log/coverage.log"; then
		pass
	else
		fail coverage
	fi
}
