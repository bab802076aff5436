#!/bin/bash
# The rule of src/README.md about who may know what, asked of the compiler: it knows all that a
# file includes, directly or not.
# Usage: walls.sh -IDIRECTORY..., in the source tree; CC is the compiler.

set -euo pipefail

status=0
for file in src/*/*.c; do
	case ${file#src/} in
		common/* | session/channel.c | session/client*.c) forbidden='postgres|zookeeper' ;;
		program/*) forbidden=postgres ;;
		*) forbidden=zookeeper ;;
	esac
	headers=$("${CC:-gcc}" -M -D_GNU_SOURCE= "$@" "$file") || status=1
	if found=$(grep -oE "/($forbidden)\.h\b" <<<"$headers"); then
		echo "$file includes ${found#/}"
		status=1
	fi
done
exit "$status"
