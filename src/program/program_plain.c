/*-------------------------------------------------------------------------
 *
 * program_plain.c
 *	  Connections of the session's program without TLS: what program_tls.h
 *	  declares, where there is none.
 *
 *-------------------------------------------------------------------------
 */
#include "program_tls.h"

#include <stdio.h>

/* zklock_session_program() starts the other program for that. */
bool
tls_begin(const char *text, char why[TLS_WHY_SIZE])
{
	snprintf(why, TLS_WHY_SIZE, "This is the program without TLS");
	return false;
}

void
tls_expect(const ServerList *list, const ServerAddress addresses[], int count)
{
}

bool
tls_is_used(int fd)
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

int
tls_socket(int fd, int64_t *received_at)
{
	*received_at = INT64_MAX;
	return fd;
}

const char *
tls_describe(int fd, char *text, size_t size)
{
	text[0] = '\0';
	return "";
}
