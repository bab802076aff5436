#!/bin/bash
# use_images.sh install | build | use: what test/images does. "use" runs the lines at the
# head of compose.yaml, with the docker that is there. The other two are for podman, in a
# root file system of its own, /, with the tree in /zklock/source, as root: "install"
# makes it ready, and "build" makes the images before "use" does, which there has no
# network. A line "test ok ..." or "test not ok ..." for each test; the last one is that of
# the part. A line "test cannot" says that podman runs no container here.

set -euo pipefail

source=$(cd -P "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
debian=docker.io/library/debian:trixie
export DEBIAN_FRONTEND=noninteractive LANG=C.UTF-8
# Not that of somebody who tries it here, too.
export COMPOSE_PROJECT_NAME=zklock-images COMPOSE_ANSI=never
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# shellcheck source=test/lib/steps.sh
source "$source/test/lib/steps.sh"

# --- podman --------------------------------------------------------------

uses_podman() { [[ $source == /zklock/source ]]; }

# What else is done when a machine starts. crun wants the newer cgroups or the older ones,
# not both; our mounts are our own.
start_machine() {
	mount -t tmpfs tmpfs /run
	if [[ $(stat -f -c %T /sys/fs/cgroup) != cgroup2fs ]]; then
		umount -R -l /sys/fs/cgroup
		mount -t cgroup2 cgroup2 /sys/fs/cgroup
	fi
}

# bound NAME FLAG: the limit of that name as it is here. Podman's own may be above it, and
# only some may raise it.
bound() {
	local hard
	hard=$(ulimit -H "$2")
	[[ $hard != unlimited ]] || hard=-1
	printf '"%s=%s:%s"' "$1" "$hard" "$hard"
}

install() {
	# Nobody but Debian was here: these are its images, as far as that matters.
	if [[ ! -e /zklock/debian.tar ]]; then
		save_debian /zklock/debian-slim.tar \
			--exclude='./usr/share/'{doc,man,locale,info,lintian}'/*'
		save_debian /zklock/debian.tar
	fi
	apt-get -q update
	install_packages podman buildah catatonit crun netavark aardvark-dns nftables iptables \
		iproute2 docker-cli docker-compose
	cat >/etc/containers/containers.conf <<-CONF
	[containers]
	cgroups = "disabled"
	apparmor_profile = "unconfined"
	default_ulimits = [$(bound nofile -n), $(bound nproc -u)]
	[engine]
	cgroup_manager = "cgroupfs"
	events_logger = "file"
	CONF
	start_machine
	podman image exists "$debian" || podman import /zklock/debian.tar "$debian"
	podman image exists "$debian-slim" || podman import /zklock/debian-slim.tar "$debian-slim"
	unshare --net bash -c "ip link set lo up && podman run --rm --init --network bridge $debian-slim true" ||
		echo 'test cannot'
}

# save_debian FILE WORDS...: this system.
save_debian() {
	local file=$1
	shift
	tar -C / --one-file-system --exclude=./zklock --exclude='./var/cache/apt/*' \
		--exclude='./var/lib/apt/lists/*' "$@" -c . >"$file.new"
	mv "$file.new" "$file"
}

# As docker's daemon. Without systemd it is us who ask the containers for their health.
start_podman() {
	start_machine
	export DOCKER_HOST=unix:///run/podman.sock
	DOCKER_BUILDKIT=0 BUILDAH_ISOLATION=chroot
	export DOCKER_BUILDKIT BUILDAH_ISOLATION
	ip link set lo up
	# What a run left that was killed.
	podman rm --all --force --volumes >/dev/null
	podman network prune --force >/dev/null
	podman volume prune --force >/dev/null
	podman system service --time=0 "$DOCKER_HOST" &
	await 'podman answers' docker info
	while sleep 1; do
		for container in $(podman ps --quiet); do
			podman healthcheck run "$container" || true
		done
	done >/dev/null 2>&1 &
}

build() {
	start_podman
	cd "$source"
	# Builds of former trees, and packages that may be out of date.
	podman image prune --force --filter until=168h >/dev/null
	# One of each kind: the others have the same image.
	for service in zk1 berlin; do
		docker compose build "$service"
	done
	podman images
}

# --- use -----------------------------------------------------------------

use() {
	local line lines
	! uses_podman || start_podman
	cd "$source"
	docker volume ls --quiet | sort >"$work/volumes"
	mapfile -t lines < <(sed -n 's/^#   \(docker compose .*\)/\1/p' compose.yaml)
	check 'compose.yaml has lines to paste' test "${#lines[@]}" -ge 7
	for line in "${lines[@]}"; do
		[[ $line != *' down '* ]] || look_inside
		if run_line "$line"; then
			ok "$line"
		else
			not_ok "$line"
			docker compose logs --tail 100
		fi
		judge "$line"
	done
}

# There is no terminal.
run_line() {
	local line=${1/ exec / exec -T } status=0
	printf '\n> %s\n' "$line"
	bash -c "$line" >"$work/answer" 2>&1 </dev/null || status=$?
	cat "$work/answer"
	return "$status"
}

# judge LINE: what it has answered.
judge() {
	case $1 in
		*' up '*) check 'all five are healthy' five_are_healthy ;;
		*zk_hold*) check 'berlin holds the lock' answered '^ +[0-9]+$' ;;
		*zk_try_lock*)
			check 'a try in paris is refused' answered '^ f$'
			check 'zk_who() in paris names the hold of berlin' answered 'hold: from berlin'
			;;
		*zk_release_hold*) check 'paris releases it' answered '^ t$' ;;
		*' down '*) check 'no container, network and volume is left' nothing_is_left ;;
	esac
}

answered() { grep -qE "$1" "$work/answer"; }

five_are_healthy() {
	docker compose ps
	[[ $(docker compose ps --format '{{.Service}} {{.Health}}' | sort | xargs) == \
		'berlin healthy paris healthy zk1 healthy zk2 healthy zk3 healthy' ]]
}

look_inside() {
	docker compose logs --no-log-prefix zk1 >"$work/log" 2>&1
	head -n 20 "$work/log"
	check 'a server of ZooKeeper writes a log' grep -qE ' INFO .* binding to port ' "$work/log"
	check 'which is not full of the questions for its health' is_quiet 'Processing srvr command'
	check 'the image of ZooKeeper is below 200 MB' is_below 200 zklock-zookeeper
	check 'the image of PostgreSQL is below 400 MB' is_below 400 zklock-postgres
}

is_quiet() { ! grep -F "$1" "$work/log"; }

is_below() {
	local bytes
	bytes=$(docker image inspect --format '{{.Size}}' "$2")
	printf '%s: %d MB\n' "$2" $((bytes / 1000000))
	[[ $bytes -lt ${1}000000 ]]
}

nothing_is_left() {
	local filter=label=com.docker.compose.project=$COMPOSE_PROJECT_NAME
	{
		docker ps --all --quiet --filter "$filter"
		docker network ls --quiet --filter "$filter"
		docker volume ls --quiet | sort | comm -13 "$work/volumes" -
	} >"$work/left"
	cat "$work/left"
	[[ ! -s $work/left ]]
}

"$1"
ok "$1"
