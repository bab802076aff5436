#!/bin/sh
# link_java.sh DIRECTORY: leave in DIRECTORY, as below /, what serve.sh zookeeper runs: a
# Java of the modules that the server uses, and the archives of its class path. On a Debian
# where "install.sh zookeeper" was run, as root. Containerfile runs it: the packages
# themselves, with all that they depend on, take four times the room.
set -eu

directory=$1
java=/opt/java
export DEBIAN_FRONTEND=noninteractive
apt-get -q install -y --no-install-recommends default-jdk-headless

mkdir -p "$directory/opt" "$directory/usr/local/bin" "$directory/usr/share/java"
jlink --output "$directory$java" --compress 2 --strip-java-debug-attributes \
	--no-header-files --no-man-pages --add-modules "$(paste -s -d , <<-MODULES
	java.base
	java.logging
	java.management
	java.naming
	java.security.jgss
	java.security.sasl
	java.xml
	jdk.crypto.ec
	jdk.management
	jdk.security.auth
	jdk.unsupported
	MODULES
	)"
ln -s "$java/bin/java" "$directory/usr/local/bin/java"

# The archives that it names itself (lines of a manifest go on behind a space), but for
# those of its shell, which Debian does not depend on.
work=$(mktemp -d)
(cd "$work" && jar -xf /usr/share/java/zookeeper.jar META-INF/MANIFEST.MF)
archives=$(tr -d '\r' <"$work/META-INF/MANIFEST.MF" | perl -0777 -pe 's/\n //g' |
	sed -n 's/^Class-Path: //p')
rm -r "$work"
for archive in /usr/share/java/zookeeper.jar /usr/share/java/slf4j-simple.jar $archives; do
	[ -e "$archive" ] || continue
	cp -L "$archive" "$directory/usr/share/java/"
	package=$(dpkg -S "$archive" | cut -d : -f 1)
	(cd / && cp --parents "usr/share/doc/$package/copyright" "$directory/")
done
