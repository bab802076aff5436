# shellcheck shell=bash
# shellcheck disable=SC2154  # its variables are those of setup.sh and test/check
# memory.sh: zklock in a server, under the sanitizers or valgrind. Sourced by test/check.

# The tests of test/t that do the nastiest; TESTS may name any other. Those that take minutes run
# only where the suite is asked for by its name, as in make nightly.
nasty_tests=(240_wrong_answer.pl 242_hostile_server.pl)
nasty_long_tests=(217_session_program.pl)

sanitized=      # where their reports are, once these run
valgrind=

# The server is PostgreSQL's own, into which the run-time of the sanitizers is preloaded;
# what is compiled with them is zklock.so and zklock-session. What PostgreSQL allocates
# for good it never frees, so leaks are not looked for; the unit tests do that for the
# program.
add_sanitizers() {
	local regress_words=() regress_bindir='' regress_conf=$run/sanitized.conf
	local library file libraries=() sql=() specs=()
	! select_tests "$tree"/test/sql/*.sql || sql=("${tests[@]}")
	! select_tests "$tree"/test/specs/*.spec || specs=("${tests[@]}")
	if [[ -n ${TESTS:-} ]]; then
		select_tests "$tree"/test/t/*.pl || tests=()
	else
		tests=("${nasty_tests[@]/#/$tree/test/t/}")
		[[ -n $quick ]] || tests+=("${nasty_long_tests[@]/#/$tree/test/t/}")
	fi
	[[ ${#sql[@]} -gt 0 || ${#specs[@]} -gt 0 || ${#tests[@]} -gt 0 ]] || return 0
	if [[ -z $destdir ]]; then
		say 'sanitizers: this PostgreSQL bears one installation only, so they are not run'
		return
	fi
	step 'sanitizers: build'
	if ! setup_build_beside sanitized WERROR=1 \
		"PROFILE=-O1 -fno-omit-frame-pointer $(printf " '%s'" "${instrument[@]}")"; then
		fail 'sanitizers: zklock does not build'
		return
	fi
	for library in asan ubsan; do
		libraries+=("$(realpath "$("${CC:-gcc}" "-print-file-name=lib$library.so")")")
	done
	# It asks for this symbol at its start and then, if there is none, for the error's
	# text in the user's language; but it may be started by a malloc() of newlocale(), under
	# the C library's lock of locales, which is in disorder from then on.
	echo 'void *swift_demangle(void) { return 0; }' |
		"${CC:-gcc}" -shared -fPIC -x c -o "$short/no_error.so" -
	libraries+=("$short/no_error.so")
	sanitized=$run/sanitized
	run_directory "$sanitized"
	regress_words=("LD_PRELOAD=${libraries[*]}" "TEMP_CONFIG=$regress_conf"
		"ASAN_OPTIONS=log_path=$sanitized/asan:symbolize=0:detect_leaks=0:detect_stack_use_after_return=0:max_allocation_size_mb=256:allocator_may_return_null=1"
		"UBSAN_OPTIONS=log_path=$sanitized/ubsan:print_stacktrace=1")
	# As the unit tests do.
	! setarch -R true 2>/dev/null || regress_words+=(setarch -R)

	[[ ${#sql[@]} -eq 0 ]] || add_pg_regress sanitized-regress contrib_regression \
		"$pgxs/src/test/regress/pg_regress" "${sql[@]}"
	[[ ${#specs[@]} -eq 0 ]] || add_pg_regress sanitized-isolation isolation_regression \
		"$pgxs/src/test/isolation/pg_isolation_regress" "${specs[@]}"
	test_directory "$run/sanitized-tap"
	[[ ${#tests[@]} -eq 0 || -d $run/template ]] || make_template
	for file in "${tests[@]}"; do
		job "sanitized-t/$(basename "$file")" "$tree/test" "INITDB_TEMPLATE=$run/template" \
			"${regress_words[@]}" perl "$file"
	done
}

check_sanitizers() {
	[[ -n $sanitized ]] || return 0
	if perl "$tree/test/lib/sanitizers.pl" "$sanitized"; then
		pass
	else
		fail 'sanitizers: they have found something'
	fi
}

# With the server's programs elsewhere, where postgres is valgrind with the real one. What
# it says is in files, as XML, which names the library of each frame. It says more of
# PostgreSQL itself, which is not built for it, than is of use.
add_valgrind() {
	local regress_words=(PGCTLTIMEOUT=600) regress_bindir=$run/valgrind-bin regress_conf=''
	local file files=()
	for file in "$tree"/test/sql/*.sql; do
		if [[ -z ${TESTS:-} ]]; then
			# Its 300 ms to connect in are too few for a program under valgrind.
			[[ $file != */settings.sql ]] || continue
			# The interrupt of a loss must have come by the end of the next system call, as the
			# kernel has it; valgrind hands signals on later, and another statement is canceled.
			! grep -q 'zk_evict(' "$file" || continue
		fi
		files+=("$file")
	done
	need_build valgrind && select_tests "${files[@]}" || return 0
	valgrind=$run/valgrind
	run_directory "$valgrind"
	mkdir "$regress_bindir"
	ln -s "$bindir"/* "$regress_bindir/"
	rm "$regress_bindir/postgres"
	cat >"$regress_bindir/postgres" <<-SH
	#!/bin/sh
	exec valgrind --trace-children=yes --vgdb=no --num-callers=40 --error-limit=no \\
		--xml=yes --xml-file='$valgrind/%p' '$bindir/postgres' "\$@"
	SH
	chmod 755 "$regress_bindir/postgres"
	add_pg_regress valgrind-regress contrib_regression \
		"$pgxs/src/test/regress/pg_regress" "${tests[@]}"
}

check_valgrind() {
	[[ -n $valgrind ]] || return 0
	if perl "$tree/test/lib/valgrind.pl" "$valgrind"; then
		pass
	else
		fail 'valgrind: it has found something'
	fi
}
