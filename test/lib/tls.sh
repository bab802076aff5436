# shellcheck shell=bash
# shellcheck disable=SC2154  # its variables are those of setup.sh and test/check
# tls.sh: tests of other suites once more, over TLS. Sourced by test/check.
#
# ZKLOCK_TEST_TLS, a directory with certificates, makes the servers, the sessions and the
# other clients of a test use TLS: see test/lib/ZooKeeper.pm. The port of each server
# speaks both, so what the tests ask the servers themselves goes on as it is.

# Those that are in make check, which has little time.
tls_quick=(t/001_sessions.pl t/140_hand_over.pl t/215_crash_release.pl)

# Who asks for this suite by its name gets all of these: what breaks connections, what
# many sessions do, and other clients.
tls_all=("${tls_quick[@]}" t/100_fifo.pl t/110_wait_ends.pl t/142_neighbors.pl t/180_kept.pl
	t/190_deadlock.pl t/210_network.pl t/217_session_program.pl
	t/220_ensemble.pl t/222_lock_loss.pl t/224_proofs.pl t/230_silent_server.pl
	t/412_interop_contention.pl)

tls_sql=(durable fence modes once queue scopes semaphore several)

# Also SQL, where no other suite has started the ZooKeeper that they share, and a
# minute of torture.
add_tls() {
	local file regress_conf=$run/tls.conf
	need_build tls || return 0
	if ! perl "-I$tree/test/lib" "-I$pgxs/src/test/perl" -MZooKeeper -e 'exit !ZooKeeper::can_tls()'; then
		say 'tls: the servers have no Netty here (libnetty-java), so it is not run'
		skipped=$((skipped + 1))
		return
	fi
	make_certificates
	if [[ -n ${TESTS:-} ]]; then
		select_tests "$tree"/test/t/*.pl || tests=()
	elif [[ -n ${SUITE:-} ]]; then
		tests=("${tls_all[@]/#/$tree/test/}")
	else
		tests=("${tls_quick[@]/#/$tree/test/}")
	fi
	test_directory "$run/tls-tap"
	[[ -d $run/template ]] || make_template
	for file in "${tests[@]}"; do
		job "tls-t/$(basename "$file")" "$tree/test" "ZKLOCK_TEST_PEERS=$peers" \
			"ZKLOCK_TEST_TLS=$tls" "INITDB_TEMPLATE=$run/template" perl "$file"
	done
	[[ -n ${SUITE:-} && -z ${TESTS:-} ]] || return 0
	if [[ -z $zookeeper_pid ]]; then
		cp "$run/server.conf" "$regress_conf"
		cat >>"$regress_conf" <<-CONF
		zklock.ssl = on
		zklock.ssl_ca_file = '$tls/test-ca.pem'
		zklock.ssl_cert_file = '$tls/test-client.pem'
		zklock.ssl_key_file = '$tls/test-client.key'
		CONF
		zookeeper_words=("ZKLOCK_TEST_TLS=$tls")
		tests=("${tls_sql[@]/%/.sql}")
		add_pg_regress tls-regress contrib_regression "$pgxs/src/test/regress/pg_regress" \
			"${tests[@]/#/$tree/test/sql/}"
	fi
	test_directory "$run/tls-torture"
	job tls-torture "$tree/test/torture" "ZKLOCK_TEST_TLS=$tls" "DURATION=${DURATION:-60}" \
		perl torture.pl
}
