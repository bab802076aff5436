/*-------------------------------------------------------------------------
 *
 * fake_server.h
 *	  A ZooKeeper server that says what a test tells it, to one connection at
 *	  a time: for answers in an order, or late, as a real server gives them
 *	  now and then.
 *
 * Nothing is answered while the test does something else, and answers must come
 * in the order of the requests.  No step waits for longer than FAKE_PATIENCE_MS.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_FAKE_SERVER_H
#define ZKLOCK_FAKE_SERVER_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "protocol.h"

#define FAKE_PATIENCE_MS 20000

/* Of ZooKeeper's protocol: operations and errors. */
#define FAKE_DELETE 2
#define FAKE_GET 4
#define FAKE_LIST 8
#define FAKE_PING 11
#define FAKE_CREATE 15
#define FAKE_CLOSE (-11)
#define FAKE_NO_NODE (-101)
#define FAKE_NO_AUTH (-102)

typedef struct FakeServer
{
	int			listener;
	int			fd;				/* of the connection, or -1 */
	char		address[32];
} FakeServer;

/* A request: of its body what is a path if it begins with one, and the end. */
typedef struct FakeRequest
{
	int			xid;
	int			type;			/* 0: there was none */
	char		path[128];
	int			last;			/* DELETE: the version */
} FakeRequest;

static void
fake_begin(FakeServer *server)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)
	};
	socklen_t	length = sizeof(address);

	server->fd = -1;
	server->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bind(server->listener, (struct sockaddr *) &address, length);
	listen(server->listener, 8);
	getsockname(server->listener, (struct sockaddr *) &address, &length);
	snprintf(server->address, sizeof(server->address), "127.0.0.1:%d", ntohs(address.sin_port));
}

/* Hang up. */
static void
fake_drop(FakeServer *server)
{
	if (server->fd >= 0)
		close(server->fd);
	server->fd = -1;
}

static void
fake_end(FakeServer *server)
{
	fake_drop(server);
	close(server->listener);
}

/* Does anything come in that time? */
static bool
fake_has_input(const FakeServer *server, int wait_ms)
{
	return poll(&(struct pollfd) {server->fd, POLLIN, 0}, 1, wait_ms) == 1;
}

static bool
fake_read_bytes(FakeServer *server, void *to, size_t length)
{
	return fake_has_input(server, FAKE_PATIENCE_MS) &&
		recv(server->fd, to, length, MSG_WAITALL) == (ssize_t) length;
}

/* Take the next connection, and grant it a session. */
static bool
fake_grant(FakeServer *server, int timeout_ms)
{
	struct
	{
		uint32_t	length,
					version,
					timeout,
					session[2],
					password_length,
					password[4];
		char		is_read_only;
	} __attribute__((packed)) granted = {htonl(37), 0, htonl((uint32_t) timeout_ms), {0, htonl(7)}, htonl(16), {0}, 0};
	char		wish[256];
	uint32_t	length;

	fake_drop(server);
	if (poll(&(struct pollfd) {server->listener, POLLIN, 0}, 1, FAKE_PATIENCE_MS) != 1)
		return false;
	server->fd = accept4(server->listener, NULL, NULL, SOCK_CLOEXEC);
	return fake_read_bytes(server, &length, 4) && ntohl(length) <= sizeof(wish) &&
		fake_read_bytes(server, wish, ntohl(length)) &&
		send(server->fd, &granted, sizeof(granted), MSG_NOSIGNAL) == sizeof(granted);
}

static FakeRequest
fake_read(FakeServer *server)
{
	FakeRequest request = {0};
	char		bytes[4096];
	uint32_t	words[4];
	uint32_t	length;

	if (!fake_read_bytes(server, &length, 4) || ntohl(length) > sizeof(bytes) ||
		ntohl(length) < 8 || !fake_read_bytes(server, bytes, ntohl(length)))
		return request;
	length = ntohl(length);
	memcpy(words, bytes, length < 12 ? 8 : 12);
	request.xid = (int) ntohl(words[0]);
	request.type = (int) ntohl(words[1]);
	if (length >= 12 && ntohl(words[2]) < sizeof(request.path) && ntohl(words[2]) <= length - 12)
		memcpy(request.path, bytes + 12, ntohl(words[2]));
	memcpy(&words[3], bytes + length - 4, 4);
	request.last = (int) ntohl(words[3]);
	return request;
}

/* An answer at that place, with a body; the place behind it. */
static char *
fake_put(char *at, const FakeRequest *request, int error, const void *body, size_t length)
{
	uint32_t	head[] = {
		htonl((uint32_t) (16 + length)), htonl((uint32_t) request->xid), 0, htonl(100), htonl((uint32_t) error)
	};

	memcpy(at, head, sizeof(head));
	if (length > 0)
		memcpy(at + sizeof(head), body, length);
	return at + sizeof(head) + length;
}

static void
fake_answer(FakeServer *server, const FakeRequest *request, int error, const void *body, size_t length)
{
	char		bytes[1024];

	send(server->fd, bytes, (size_t) (fake_put(bytes, request, error, body, length) - bytes), MSG_NOSIGNAL);
}

/* A text as the protocol has it; the place behind it. */
static char *
fake_put_text(char *at, const char *text)
{
	uint32_t	length = htonl((uint32_t) strlen(text));

	memcpy(at, &length, 4);
	memcpy(at + 4, text, strlen(text));
	return at + 4 + strlen(text);
}

/* A create has made that. */
static void
fake_answer_made(FakeServer *server, const FakeRequest *request, const char *path)
{
	char		body[512] = {0};

	fake_answer(server, request, 0, body, (size_t) (fake_put_text(body, path) - body) + 68);
}

/* Wait for a request of that type; what comes before, and a ping, is answered. */
static FakeRequest
fake_await(FakeServer *server, int type)
{
	FakeRequest request;
	int64_t		deadline = protocol_now() + FAKE_PATIENCE_MS;

	while ((request = fake_read(server)).type != type && request.type != 0)
	{
		if (protocol_now() >= deadline)
			return (FakeRequest) {0};
		fake_answer(server, &request, request.type == FAKE_PING ? 0 : FAKE_NO_NODE, NULL, 0);
	}
	return request;
}

#endif							/* ZKLOCK_FAKE_SERVER_H */
