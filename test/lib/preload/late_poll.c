/*
 * late_poll.c
 *		Who polls sleeps for a tenth of a second before: all that the other end
 *		of a connection does at once has happened by then.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <unistd.h>

int
poll(struct pollfd *polled, nfds_t number, int timeout)
{
	int			(*libc) (struct pollfd *, nfds_t, int) = dlsym(RTLD_NEXT, "poll");

	usleep(100000);
	return libc(polled, number, timeout);
}
