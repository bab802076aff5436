#!/bin/sh
# build.sh SOURCE PACKAGES: build the Debian package of the tree SOURCE, on a Debian
# that may be bare, as root; leave it in the directory PACKAGES. Without PACKAGES, install
# only what that needs, for which SOURCE may have debian/control alone. Containerfile runs
# it, and make check-packages.
set -eu

source=$(realpath "$1")
packages=${2:-}
export DEBIAN_FRONTEND=noninteractive
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

apt-get -q update
apt-get -q install -y --no-install-recommends build-essential dpkg-dev
apt-get -q build-dep -y --no-install-recommends "$source"
[ -n "$packages" ] || exit 0

# The source package's tarball is the tree without debian/.
version=$(cd "$source" && dpkg-parsechangelog -S Version)
tree=zklock-${version%-*}
cp -r "$source" "$work/$tree"
tar -C "$work" --sort=name --owner=0 --group=0 --exclude="$tree/debian" \
	--exclude=.git --exclude=.zklock -czf "$work/zklock_${version%-*}.orig.tar.gz" "$tree"
(cd "$work/$tree" && dpkg-buildpackage -us -uc)

mkdir -p "$packages"
rm -rf "${work:?}/$tree"
cp "$work"/* "$packages/"
