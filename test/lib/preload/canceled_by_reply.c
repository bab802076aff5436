/*
 * canceled_by_reply.c
 *		A process that receives something is canceled then, as by
 *		pg_cancel_backend() at that moment, if the file ZKLOCK_TEST_CANCELED_IF is
 *		there, which it deletes.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

ssize_t
recv(int fd, void *buffer, size_t length, int flags)
{
	ssize_t		(*libc) (int, void *, size_t, int) = dlsym(RTLD_NEXT, "recv");
	const char *file = getenv("ZKLOCK_TEST_CANCELED_IF");
	ssize_t		result = libc(fd, buffer, length, flags);

	if (result > 0 && (flags & MSG_DONTWAIT) != 0 && file != NULL &&
		unlink(file) == 0)
		raise(SIGINT);
	return result;
}
