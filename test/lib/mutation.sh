# shellcheck shell=bash
# shellcheck disable=SC2154  # its variables are those of setup.sh and test/check
# mutation.sh: the suite "mutation" of test/check, which "make mutation" runs behind the
# mutants of the pure modules. Sourced by it.

# Workers as there are processors, each with a build and an installation of its own and a
# job file for each test that could be asked.
run_mutation() {
	local regress_words=() regress_conf='' worker dir jobs=() word count prefix
	need_build mutation || return 0
	if [[ -z $destdir ]]; then
		say 'mutation: this PostgreSQL bears one installation only, so there are no mutants'
		return
	fi
	step 'mutation'
	need_zookeeper
	[[ -d $run/template ]] || make_template
	export_former
	for ((worker = 1; worker <= ${WORKERS:-$(nproc)}; worker++)); do
		dir=$run/mutation/$worker
		run_directory "$dir"
		cp -a "$work/build" "$dir/build"
		cp -a "$install" "$dir/install"
		prefix=$(<"$run/server.conf")
		echo "${prefix//"$install"/"$dir/install"}" >"$dir/server.conf"
		echo "$dir/install$("$PG_CONFIG" --pkglibdir)" >"$dir/libdir"
		regress_conf=$dir/server.conf
		regress_words=("TEMP_CONFIG=$regress_conf")
		add_mutation_jobs "$worker" "$dir"
	done
	run_directory "$run/jobs"
	run "$work/log/mutation.log" env "PG_CONFIG=$PG_CONFIG" "MODULES=$modules" perl "$tree/test/mutation/live.pl" "$tree" \
		"$work/reached" "$run/mutation" "$run/jobs" "$((worker - 1))" "${unprivileged[@]}" || fail 'mutation'
	[[ -f $run/mutation/counts ]] || return 0
	while read -r word count; do
		[[ $word != killed ]] || passed=$((passed + count))
		ran+=("$count mutants $word")
	done <"$run/mutation/counts"
}

# add_mutation_jobs WORKER DIRECTORY
add_mutation_jobs() {
	local worker=$1 dir=$2 run=$run file first=$tree/test/specs/000_see_waits.spec
	for file in "$tree"/test/sql/*.sql; do
		add_pg_regress "mutation/$worker/$(basename "$file")" contrib_regression \
			"$pgxs/src/test/regress/pg_regress" "$file"
		mv "$run/jobs/mutation%$worker%$(basename "$file")" "$run/jobs/$worker%sql%$(basename "$file")"
	done
	for file in "$tree"/test/specs/*.spec; do
		[[ $file != "$first" ]] || continue
		add_pg_regress "mutation/$worker/$(basename "$file")" isolation_regression \
			"$pgxs/src/test/isolation/pg_isolation_regress" "$first" "$file"
		mv "$run/jobs/mutation%$worker%$(basename "$file")" "$run/jobs/$worker%specs%$(basename "$file")"
	done
	test_directory "$dir/tap"
	for file in "$tree"/test/t/*.pl; do
		# They build zklock themselves, and so without the mutant.
		[[ $file != */t/6* ]] || continue
		job "$worker%t%$(basename "$file")" "$tree/test" "ZKLOCK_TEST_PEERS=$peers" \
			"ZKLOCK_TEST_FORMER=$former" "INITDB_TEMPLATE=$run/template" "${regress_words[@]}" \
			perl "$file"
	done
	# shellcheck disable=SC2016
	for file in client protocol; do
		run_directory "$dir/unit-$file"
		job "$worker%unit%test_$file.c" "$dir/unit-$file" "ZKLOCK_TEST_SERVERS=$zookeeper_servers" \
			bash -c 'top=$1 && source "$2/test/lib/unit.sh" && unit_sources "$2/test/unit/$3.c" &&
				${CC:-gcc} "${c_flags[@]}" -w -o "$3" "$2/test/unit/$3.c" "${sources[@]}" &&
				cp "$top/src/zklock-session" . && exec "./$3"' \
			unit "$dir/build" "$tree" "test_$file"
	done
}
