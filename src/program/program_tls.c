/*-------------------------------------------------------------------------
 *
 * program_tls.c
 *	  The connections of zklock-session-tls: has its own connect(), send(),
 *	  recv() and close(), which the library calls.
 *
 * The caller of connect() has a socket that leads nowhere, and the TCP
 * connection belongs to a line (program_openssl.c).
 *
 *-------------------------------------------------------------------------
 */
#include "program_tls.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ask.h"
#include "program.h"
#include "program_openssl.h"

/*
 * Descriptors of callers with TLS are below that: program_ask.c has two for
 * each of ASK_ALL_MAX addresses at a time.
 */
#define FDS_MAX 1024

/* A connection with TLS, by its caller's descriptor. */
typedef struct TlsConnection
{
	TlsLine    *line;			/* NULL: it has none */
	int			outer;			/* the TCP connection, or -1 */
	int64_t		received_at;	/* 0: nothing was */
} TlsConnection;

/* The server at an address. */
typedef struct TlsServer
{
	char		address[SERVERS_ADDRESS_SIZE];
	char		host[SERVERS_HOST_MAX + 1];
} TlsServer;

/*
 * All that there is of TLS in this process.  It is static for connect(),
 * send(), recv() and close() have the place of libc's: their callers hand over
 * a descriptor, and nothing else.
 */
static struct
{
	bool		is_left;		/* connections are made without it */
	bool		is_proved;		/* the library does call our connect() */
	int			nproved;		/* calls of it while that is proved; */
	bool		is_proving;		/* valid then */
	bool		has_connected;	/* a connection over TCP was begun */
	TlsConnection connections[FDS_MAX];
	int			nconnections;
	TlsServer	expected[ASK_ALL_MAX];
	int			nexpected;
}			tls;

static bool is_ours(void);
static int	make_line(int fd, const struct sockaddr *address,
					  socklen_t length);
static TlsLine *line_of(int fd);

/*
 * The library's connect(), and everybody's.  The library finds it only if the
 * program exports it; from PostgreSQL 16 on PGXS hides what does not ask.  If
 * it did not find one of the others, it would have a socket without a
 * connection.
 */
#define IN_PLACE_OF(name) __asm__(name) __attribute__((visibility("default")))
int			program_connect(int fd, const struct sockaddr *address,
							socklen_t length) IN_PLACE_OF("connect");
ssize_t		program_send(int fd, const void *bytes, size_t length,
						 int flags) IN_PLACE_OF("send");
ssize_t		program_recv(int fd, void *bytes, size_t size,
						 int flags) IN_PLACE_OF("recv");
int			program_close(int fd) IN_PLACE_OF("close");

/* ---------------------------------------------------------------------
 * The functions that the library calls
 * ---------------------------------------------------------------------
 */

/* Whatever else connects, for example to a local name service, is left alone. */
int
program_connect(int fd, const struct sockaddr *address, socklen_t length)
{
	if (tls.is_proving)
	{
		tls.nproved++;
		errno = ECONNREFUSED;
		return -1;
	}
	if (address->sa_family == AF_INET || address->sa_family == AF_INET6)
	{
		tls.has_connected = true;
		if (!tls.is_left)
			return make_line(fd, address, length);
	}
	return (int) syscall(SYS_connect, fd, address, length);
}

/* What is sent until the next tls_poll() goes together, as one record. */
ssize_t
program_send(int fd, const void *bytes, size_t length, int flags)
{
	TlsLine    *line = line_of(fd);

	if (line == NULL)
		return syscall(SYS_sendto, fd, bytes, length, flags, NULL, 0);
	return line_send(line, bytes, length);
}

ssize_t
program_recv(int fd, void *bytes, size_t size, int flags)
{
	TlsLine    *line = line_of(fd);
	bool		is_peek = (flags & MSG_PEEK) != 0;
	ssize_t		received;

	if (line == NULL)
		received = syscall(SYS_recvfrom, fd, bytes, size, flags, NULL, NULL);
	else
		received = line_receive(line, bytes, size, is_peek);
	if (received > 0 && line != NULL)
		tls.connections[fd].received_at = protocol_now();
	return received;
}

int
program_close(int fd)
{
	TlsLine    *line = line_of(fd);

	if (line != NULL)
	{
		tls.connections[fd].line = NULL;
		tls.nconnections--;
		line_close(line);
	}
	return (int) syscall(SYS_close, fd);
}

/* ---------------------------------------------------------------------
 * TLS, and whether it is used
 * ---------------------------------------------------------------------
 */

bool
tls_begin(const char *text, char why[TLS_WHY_SIZE])
{
	if (!tls.is_proved && !is_ours())
	{
		snprintf(why, TLS_WHY_SIZE, "ZooKeeper's client library does not call the connect() of zklock's program, so its connections cannot be encrypted");
		return false;
	}
	tls.is_proved = true;
	return line_begin(text, tls.has_connected ? TLS_PATIENCE_CONNECTED_S :
					  TLS_PATIENCE_S, why);
}

void
tls_expect(const ServerList *list, const ServerAddress addresses[], int count)
{
	tls.nexpected = count;
	for (int i = 0; i < count; i++)
	{
		strcpy(tls.expected[i].address, addresses[i].text);
		strcpy(tls.expected[i].host, list->servers[addresses[i].server].host);
	}
}

void
tls_leave(void)
{
	tls.is_left = true;
	memset(tls.connections, 0, sizeof(tls.connections));	/* the parent's */
	tls.nconnections = 0;
}

bool
tls_is_used(int fd)
{
	return line_of(fd) != NULL;
}

void
tls_gather(int fd)
{
}

int
tls_poll(struct pollfd *polled, int count, int timeout_ms)
{
	struct pollfd real[ASK_ALL_MAX + 1];
	int			nready = 0;

	if (tls.nconnections == 0)
		return poll(polled, (nfds_t) count, timeout_ms);
	for (int i = 0; i < count; i++)
	{
		TlsLine    *line = line_of(polled[i].fd);

		real[i] = polled[i];
		if (line == NULL)
			continue;
		if (line_before_poll(line, polled[i].events, &real[i].events) != 0)
			timeout_ms = 0;
		real[i].fd = tls.connections[polled[i].fd].outer;
	}
	poll(real, (nfds_t) count, timeout_ms); /* a signal is as good as time */
	for (int i = 0; i < count; i++)
	{
		TlsLine    *line = line_of(polled[i].fd);

		polled[i].revents = real[i].revents;
		if (line != NULL)
			polled[i].revents = line_after_poll(line, polled[i].events,
												real[i].revents);
		nready += polled[i].revents != 0;
	}
	return nready;
}

const char *
tls_error(int fd)
{
	const TlsLine *line = line_of(fd);

	return line != NULL ? line_error(line) : "";
}

int
tls_socket(int fd, int64_t *received_at)
{
	bool		is_used = tls_is_used(fd);

	*received_at = is_used ? tls.connections[fd].received_at : INT64_MAX;
	return is_used ? tls.connections[fd].outer : fd;
}

const char *
tls_describe(int fd, char *text, size_t size)
{
	const TlsLine *line = line_of(fd);

	text[0] = '\0';
	return line != NULL ? line_describe(line, text, size) : "";
}

/* ---------------------------------------------------------------------
 * Beginning
 * ---------------------------------------------------------------------
 */

/*
 * Does the library call our connect()?  It would not if it was linked so that
 * it finds its own symbols, or those of the C library, first.  It is asked to
 * connect to where nobody listens.
 */
static bool
is_ours(void)
{
	zhandle_t  *zh = zookeeper_init("127.0.0.1:1", NULL, 1000, NULL, NULL,
									ZOO_NO_LOG_CLIENTENV);
	struct timeval timeout;
	int			fd;
	int			interest;
	bool		is_called;

	if (zh == NULL)
		return false;
	tls.nproved = 0;
	tls.is_proving = true;
	zookeeper_interest(zh, &fd, &interest, &timeout);
	is_called = tls.nproved == 1;
	tls.is_proving = false;
	zookeeper_close(zh);
	return is_called;
}

/* ---------------------------------------------------------------------
 * Connections with TLS
 * ---------------------------------------------------------------------
 */

/*
 * What connect() does: connect a copy of the socket, and put another
 * one in its place that nothing leaves.  The result is always that of a socket
 * that is being connected: what has failed shows as the end of its input.
 */
static int
make_line(int fd, const struct sockaddr *address, socklen_t length)
{
	int			instead = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int			outer;
	int			error = 0;
	char		text[SERVERS_ADDRESS_SIZE];
	const char *host = NULL;

	if (fd >= FDS_MAX)
	{
		close(instead);
		errno = ENOBUFS;
		return -1;
	}

	/* IPv6 has its port where IPv4 has it */
	(void) servers_format_address(text, address,
								  ntohs(((const struct sockaddr_in *) address)->sin_port));
	for (int i = 0; i < tls.nexpected && host == NULL; i++)
		if (strcmp(tls.expected[i].address, text) == 0)
			host = tls.expected[i].host;
	outer = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (outer < 0 || dup3(instead, fd, O_CLOEXEC) < 0 || host == NULL)
		error = EADDRNOTAVAIL;
	else if (syscall(SYS_connect, outer, address, length) != 0 &&
			 errno != EINPROGRESS)
		error = errno;
	if (host == NULL)
		host = "";
	tls.connections[fd].line =
		program_need(line_open(outer, text, host,
								  servers_is_numeric(host), error));
	tls.connections[fd].outer = outer;
	tls.connections[fd].received_at = 0;
	tls.nconnections++;
	close(instead);
	errno = EINPROGRESS;
	return -1;
}

/* NULL: there is none. */
static TlsLine *
line_of(int fd)
{
	return fd >= 0 && fd < FDS_MAX ? tls.connections[fd].line : NULL;
}
