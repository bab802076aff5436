#!/bin/sh
# serve.sh postgres | serve.sh zookeeper: serve, as root who then is the server's user,
# until SIGINT. What Containerfile's images start, and make check-packages.
# serve.sh postgres-serves | serve.sh zookeeper-serves: does it?
#
#   ZOOKEEPER_SERVERS    for zklock.servers, when the cluster is made
#   POSTGRES_PASSWORD    of user postgres for connections by TCP, when it is made
#   POSTGRES_PORT        5432
#   CLUSTER_NAME         for cluster_name, when it is made
#   ZOOKEEPER_PORT       2181
#   ZOOKEEPER_MEMBERS    the hosts of an ensemble, as all of them call them; otherwise it
#                        is a single server
#   ZOOKEEPER_ID         which of them it is: 1 is the first. Ports are 2888 and 3888,
#                        or ZOOKEEPER_PORT + 707 and + 1707
#   ZOOKEEPER_DIRECTORY  its configuration, and below it its data: /var/lib/zklock-zookeeper
set -eu

# Who is not root stays who he is.
as_user() {
	user=$1
	shift
	[ "$(id -u)" -eq 0 ] || exec "$@"
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
		cluster_name = '${CLUSTER_NAME:-}'
		CONF
		echo 'host all all all scram-sha-256' >>"$data/pg_hba.conf"
	fi
	install -d -o postgres -g postgres /run/postgresql
	as_user postgres "$bin/postgres" -D "$data" -p "${POSTGRES_PORT:-5432}"
}

# Its answer to a word. Debian's smallest image has Perl, and no nc. A server that just starts may
# take a connection and never answer it (release 3.8.0, seen): then it does not serve.
zookeeper_says() {
	perl -MIO::Socket::INET -e '
		alarm 4;
		my $socket = IO::Socket::INET->new(PeerAddr => "127.0.0.1:$ARGV[0]", Timeout => 3) or exit 1;
		print $socket $ARGV[1];
		print while <$socket>;' "${ZOOKEEPER_PORT:-2181}" "$1"
}

serve_zookeeper() {
	directory=${ZOOKEEPER_DIRECTORY:-/var/lib/zklock-zookeeper}
	conf=$directory/zoo.cfg
	port=${ZOOKEEPER_PORT:-2181}
	cat >"$conf" <<-CONF
	tickTime=2000
	initLimit=10
	syncLimit=5
	dataDir=$directory/data
	clientPort=$port
	maxClientCnxns=0
	4lw.commands.whitelist=srvr,conf,mntr
	admin.enableServer=false
	CONF
	number=0
	for member in ${ZOOKEEPER_MEMBERS:-}; do
		number=$((number + 1))
		echo "server.$number=$member:$((port + 707)):$((port + 1707))" >>"$conf"
	done
	if [ "$number" -gt 0 ]; then
		echo "${ZOOKEEPER_ID:?must be set for an ensemble}" >"$directory/data/myid"
	fi
	# Debian's zookeeper.jar brings slf4j without a backend, which throws its log away. This
	# one writes to stderr. A line for each time that somebody asks "srvr" would be most of it.
	as_user nobody java -Xmx256m -cp /usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar \
		-Dorg.slf4j.simpleLogger.showDateTime=true \
		-Dorg.slf4j.simpleLogger.dateTimeFormat='yyyy-MM-dd HH:mm:ss.SSS' \
		-Dorg.slf4j.simpleLogger.log.org.apache.zookeeper.server.NIOServerCnxn=warn \
		org.apache.zookeeper.server.quorum.QuorumPeerMain "$conf"
}

case $1 in
	postgres-serves)
		as_user postgres psql -qAt -p "${POSTGRES_PORT:-5432}" -c 'SELECT 1'
		;;
	zookeeper-serves)
		# It says its mode only if there is a quorum.
		zookeeper_says srvr | grep -q '^Mode: '
		;;
	*)
		"serve_$1"
		;;
esac
