/*
 * own_connect.c
 *		ZooKeeper's client library connects by itself, as one would that is
 *		linked otherwise.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

int
zookeeper_interest(void *zh, int *fd, int *interest, void *timeout)
{
	struct sockaddr address = {.sa_family = AF_UNIX};

	*fd = socket(AF_UNIX, SOCK_STREAM, 0);
	*interest = 0;
	memset(timeout, 0, 2 * sizeof(long));
	return syscall(SYS_connect, *fd, &address, sizeof(address)) == 0 ? 0 : -4;
}
