/*-------------------------------------------------------------------------
 *
 * program_plain.c
 *	  What stands in the place of program_tls.c in the program that is used
 *	  without TLS.
 *
 * To load OpenSSL takes longer than all else that a session's program does
 * until it connects.  So there are two, and the backend starts the one that
 * its settings need.
 *
 *-------------------------------------------------------------------------
 */
#include "program_tls.h"

#include <stdio.h>

bool
tls_begin(const char *text, char why[TLS_WHY_SIZE])
{
	snprintf(why, TLS_WHY_SIZE, "This program is the one without TLS");
	return false;
}

void
tls_expect(const ServerList *list, const ServerAddress addresses[], int count)
{
}

bool
tls_is_on(void)
{
	return false;
}

void
tls_leave(void)
{
}

int
tls_poll(struct pollfd *polled, int count, int timeout_ms)
{
	return poll(polled, (nfds_t) count, timeout_ms);
}

const char *
tls_error(int fd)
{
	return "";
}

const char *
tls_describe(int fd, char *text, size_t size)
{
	text[0] = '\0';
	return text;
}

int
tls_socket(int fd, int64_t *received_at)
{
	*received_at = INT64_MAX;
	return fd;
}
