#!/bin/sh
# install.sh postgres PACKAGES | install.sh zookeeper: install PostgreSQL with zklock
# from the directory PACKAGES, or a ZooKeeper server, on a Debian that may be bare, as
# root. No compiler is needed. Containerfile runs it, and make check-packages.
set -eu

export DEBIAN_FRONTEND=noninteractive
apt-get -q update
case $1 in
	postgres)
		# The image makes its cluster when it starts.
		mkdir -p /etc/postgresql-common/createcluster.d
		echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.d/zklock.conf
		packages=$(realpath "$2")
		apt-get -q install -y --no-install-recommends \
			"$packages"/postgresql-[0-9]*-zklock_*.deb
		install -d -o postgres -g postgres /var/lib/postgresql/data
		;;
	zookeeper)
		# On Debian's smaller images the JRE misses this directory.
		mkdir -p /usr/share/man/man1
		# The package "zookeeper" itself depends on a Java with windows and all.
		apt-get -q install -y --no-install-recommends default-jre-headless libzookeeper-java \
			libslf4j-java
		install -d -o nobody /var/lib/zklock-zookeeper /var/lib/zklock-zookeeper/data
		;;
esac
