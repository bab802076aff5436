/*-------------------------------------------------------------------------
 *
 * program_plain.c
 *	  The connections of zklock-session, which has no TLS.
 *
 * The library sends each request in two parts, its length first, and reads each
 * answer so.  The server would wake up for each part, and each takes a system
 * call.  So of one connection, that of the session, what is sent until the next
 * tls_poll() goes together, as it does with TLS, and what is there is read at
 * once.
 *
 * The one rule: nothing here waits.  What the socket does not take stays, and
 * tls_poll() looks when it takes more.
 *
 *-------------------------------------------------------------------------
 */
#include "program_tls.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* How much waits to be sent, and was read ahead, at most. */
#define OUT_SIZE (64 * 1024)
#define IN_SIZE (16 * 1024)

static struct
{
	int			fd;				/* -1: there was none yet, or it is closed */
	bool		is_gathered;	/* it is still the session's */
	bool		is_drained;		/* the last read was short, and no poll has told
								 * of more since */
	size_t		out_end;		/* of what is to be sent */
	size_t		in_start;		/* of what was read ahead, and not taken yet */
	size_t		in_end;
	char		out[OUT_SIZE];
	char		in[IN_SIZE];
}			line = {.fd = -1};

static void send_gathered(void);

/* As in program_tls.c, where it says why. */
#define IN_PLACE_OF(name) __asm__(name) __attribute__((visibility("default")))
ssize_t		program_send(int fd, const void *bytes, size_t length,
						 int flags) IN_PLACE_OF("send");
ssize_t		program_recv(int fd, void *bytes, size_t size,
						 int flags) IN_PLACE_OF("recv");
int			program_close(int fd) IN_PLACE_OF("close");

/* ---------------------------------------------------------------------
 * The functions that the library calls
 * ---------------------------------------------------------------------
 */

ssize_t
program_send(int fd, const void *bytes, size_t length, int flags)
{
	if (fd != line.fd || (!line.is_gathered && line.out_end == 0))
		return syscall(SYS_sendto, fd, bytes, length, flags, NULL, 0);
	if (length > OUT_SIZE - line.out_end)
		send_gathered();
	if (length > OUT_SIZE - line.out_end)
		length = OUT_SIZE - line.out_end;
	if (length == 0)
	{
		errno = EAGAIN;
		return -1;
	}
	memcpy(line.out + line.out_end, bytes, length);
	line.out_end += length;
	return (ssize_t) length;
}

ssize_t
program_recv(int fd, void *bytes, size_t size, int flags)
{
	if (fd != line.fd || (!line.is_gathered && line.in_start == line.in_end))
		return syscall(SYS_recvfrom, fd, bytes, size, flags, NULL, NULL);
	if (line.in_start == line.in_end)
	{
		ssize_t		received;

		if (line.is_drained)
		{
			errno = EAGAIN;
			return -1;
		}
		received = syscall(SYS_recvfrom, fd, line.in, (size_t) IN_SIZE,
						   flags & ~MSG_PEEK, NULL, NULL);
		if (received <= 0)
			return received;
		line.in_start = 0;
		line.in_end = (size_t) received;
		line.is_drained = received < IN_SIZE;
	}
	if (size > line.in_end - line.in_start)
		size = line.in_end - line.in_start;
	memcpy(bytes, line.in + line.in_start, size);
	if ((flags & MSG_PEEK) == 0)
		line.in_start += size;
	return (ssize_t) size;
}

int
program_close(int fd)
{
	if (fd == line.fd)
		line.fd = -1;
	return (int) syscall(SYS_close, fd);
}

/* ---------------------------------------------------------------------
 * What is said in one turn goes together
 * ---------------------------------------------------------------------
 */

void
tls_gather(int fd)
{
	if (fd == line.fd || fd < 0)
	{
		line.is_gathered = fd >= 0;
		send_gathered();
		return;
	}
	line.fd = fd;
	line.is_gathered = true;
	line.is_drained = false;
	line.out_end = line.in_start = line.in_end = 0;
}

int
tls_poll(struct pollfd *polled, int count, int timeout_ms)
{
	struct pollfd *own = NULL;
	short		events = 0;
	int			nready;

	send_gathered();
	for (int i = 0; i < count && line.fd >= 0; i++)
		if (polled[i].fd == line.fd)
			own = &polled[i];
	if (own == NULL)
		return poll(polled, (nfds_t) count, timeout_ms);
	events = own->events;
	if (line.in_start < line.in_end)
		timeout_ms = 0;
	if (line.out_end > 0)
		own->events |= POLLOUT;
	nready = poll(polled, (nfds_t) count, timeout_ms);
	own->events = events;
	if (nready < 0)
		return nready;
	nready -= own->revents != 0;
	if (own->revents != 0)
		line.is_drained = false;
	if ((own->revents & POLLOUT) != 0)
		send_gathered();
	own->revents &= events | POLLERR | POLLHUP | POLLNVAL;
	if (line.in_start < line.in_end)
		own->revents |= events & POLLIN;
	return nready + (own->revents != 0);
}

/*
 * Send what waits, as far as the socket takes it.  A connection that has failed
 * is shut down, so that the library finds its end.
 */
static void
send_gathered(void)
{
	size_t		start = 0;
	ssize_t		sent = 0;

	if (line.fd < 0)
		return;
	while (start < line.out_end)
	{
		sent = syscall(SYS_sendto, line.fd, line.out + start,
					   line.out_end - start, MSG_NOSIGNAL | MSG_DONTWAIT,
					   NULL, 0);
		if (sent > 0)
			start += (size_t) sent;
		else if (errno != EINTR)
			break;
	}
	if (start < line.out_end && errno != EAGAIN)
	{
		shutdown(line.fd, SHUT_RDWR);
		start = line.out_end;
	}
	if (start > 0)
		memmove(line.out, line.out + start, line.out_end - start);
	line.out_end -= start;
}

/* ---------------------------------------------------------------------
 * There is no TLS
 * ---------------------------------------------------------------------
 */

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

/* A child process sends nothing for its parent. */
void
tls_leave(void)
{
	line.fd = -1;
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
