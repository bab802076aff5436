#!/bin/sh
# serve.sh postgres | serve.sh zookeeper: serve, as root who then is the server's user,
# until SIGINT. What Containerfile's images start, and make check-packages.
#
#   ZOOKEEPER_SERVERS    for zklock.servers, when the cluster is made
#   POSTGRES_PASSWORD    of user postgres for connections by TCP, when it is made
#   POSTGRES_PORT        5432
#   ZOOKEEPER_PORT       2181
set -eu

as_user() {
	user=$1
	shift
	exec setpriv --reuid="$user" --regid="$(id -gn "$user")" --init-groups "$@"
}

serve_postgres() {
	data=/var/lib/postgresql/data
	# The newest that has zklock.
	library=$(printf '%s\n' /usr/lib/postgresql/*/lib/zklock.so | sort -V | tail -n 1)
	bin=${library%/lib/zklock.so}/bin
	if [ ! -e "$data/PG_VERSION" ]; then
		: "${POSTGRES_PASSWORD:?must be set when the cluster is made}"
		password=$(mktemp)
		printf '%s\n' "$POSTGRES_PASSWORD" >"$password"
		chown -R postgres "$data" "$password"
		(as_user postgres "$bin/initdb" -D "$data" -U postgres --encoding=UTF8 \
			--auth-local=peer --auth-host=scram-sha-256 --pwfile="$password")
		rm -f "$password"
		cat >>"$data/postgresql.conf" <<-CONF
		listen_addresses = '*'
		shared_preload_libraries = 'zklock'
		zklock.servers = '${ZOOKEEPER_SERVERS:-zookeeper:2181}'
		CONF
		echo 'host all all all scram-sha-256' >>"$data/pg_hba.conf"
	fi
	install -d -o postgres -g postgres /run/postgresql
	as_user postgres "$bin/postgres" -D "$data" -p "${POSTGRES_PORT:-5432}"
}

serve_zookeeper() {
	conf=/var/lib/zklock-zookeeper/zoo.cfg
	cat >"$conf" <<-CONF
	tickTime=2000
	dataDir=/var/lib/zklock-zookeeper/data
	clientPort=${ZOOKEEPER_PORT:-2181}
	maxClientCnxns=0
	admin.enableServer=false
	CONF
	as_user nobody java -Xmx256m -cp /usr/share/java/zookeeper.jar \
		org.apache.zookeeper.server.quorum.QuorumPeerMain "$conf"
}

"serve_$1"
