/*
 * canceled_by_log.c
 *		A process that writes the words of ZKLOCK_TEST_CANCELED_AT to the log is
 *		canceled then, the first time, as by pg_cancel_backend() at that moment.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

ssize_t
write(int fd, const void *buffer, size_t length)
{
	ssize_t		(*libc) (int, const void *, size_t) = dlsym(RTLD_NEXT, "write");
	const char *words = getenv("ZKLOCK_TEST_CANCELED_AT");
	static int	was_canceled = 0;
	ssize_t		result = libc(fd, buffer, length);

	if (!was_canceled && fd == STDERR_FILENO && words != NULL &&
		memmem(buffer, length, words, strlen(words)) != NULL)
	{
		was_canceled = 1;
		raise(SIGINT);
	}
	return result;
}
