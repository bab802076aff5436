/*
 * network.c: the network between sessions and servers, and what may happen to
 * it.
 *
 * Usage: network PORT:SERVER'S-PORT...; commands on standard input, see
 * README.md.  Each connection to a PORT of 127.0.0.1 is forwarded to that
 * server.  One thread; nothing blocks but the wait for what comes next.
 */

#define _GNU_SOURCE

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cycles.h"

#define MAX_LINKS 16

typedef enum Weather
{
	PASSING,
	HOLDING,					/* nothing passes, what comes waits */
	REFUSING					/* there is no connection, and nobody listens */
} Weather;

typedef struct Link
{
	struct sockaddr_in here;
	struct sockaddr_in server;
	int			fd;				/* listens, or -1 */
	uint32_t	events;			/* as in End */
} Link;

typedef struct End
{
	struct Pair *pair;
	int			fd;
	uint32_t	events;			/* that epoll watches for; 0: it knows nothing
								 * of this descriptor */
	bool		is_connecting;	/* to the server */
	bool		has_ended;		/* it sends no more; the other has been told */
	char	   *rest;			/* what it did not take at once: nothing is
								 * read from the other before it does */
	size_t		nrest;
} End;

typedef struct Pair
{
	End			client;
	End			server;
	bool		is_closed;		/* an event may still point to it */
	struct Pair *previous;
	struct Pair *next;
} Pair;

static int	epoll;
static Weather weather = PASSING;
static Link links[MAX_LINKS];
static int	nlinks;
static Pair *pairs;				/* the open ones */
static Pair *closed;			/* to be freed when no event is left */

/* How many there are, were accepted, were begun with servers; failed of these */
static long nopen;
static long naccepted;
static long nbegun;
static long nfailed;

static void
watch(int fd, uint32_t *events, uint32_t wanted, void *what)
{
	struct epoll_event event = {.events = wanted,.data.ptr = what};
	int			operation = *events == 0 ? EPOLL_CTL_ADD :
		wanted == 0 ? EPOLL_CTL_DEL : EPOLL_CTL_MOD;

	if (wanted == *events)
		return;
	if (epoll_ctl(epoll, operation, fd, &event) != 0)
		die("watch a connection", strerror(errno));
	*events = wanted;
}

static End *
other_end(const End *end)
{
	Pair	   *pair = end->pair;

	return end == &pair->client ? &pair->server : &pair->client;
}

static bool
may_read(const End *end)
{
	const End  *other = other_end(end);

	return !end->has_ended && !end->is_connecting && !other->is_connecting &&
		other->nrest == 0;
}

/*
 * Epoll reports what has broken even if it is asked for nothing, so an end of
 * which nothing is wanted is taken from it.
 */
static void
watch_end(End *end)
{
	uint32_t	wanted = 0;

	if (weather == PASSING && may_read(end))
		wanted |= EPOLLIN;
	if (weather == PASSING && other_end(end)->is_connecting)
		wanted |= EPOLLRDHUP;
	if (weather == PASSING && (end->is_connecting || end->nrest > 0))
		wanted |= EPOLLOUT;
	watch(end->fd, &end->events, wanted, end);
}

static void
watch_pair(Pair *pair)
{
	watch_end(&pair->client);
	watch_end(&pair->server);
}

/* Had the kernel no answer yet?  It counts that as an attempt that failed. */
static bool
is_unanswered(int fd)
{
	struct tcp_info info = {0};
	socklen_t	size = sizeof(info);

	return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
		info.tcpi_state == TCP_SYN_SENT;
}

static void
close_end(End *end, bool is_reset)
{
	struct linger linger = {.l_onoff = 1,.l_linger = 0};

	if (end->is_connecting && is_unanswered(end->fd))
		nfailed++;
	if (is_reset)
		setsockopt(end->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	close(end->fd);				/* epoll forgets it */
	free(end->rest);
}

/* End both connections, by RST or in order. */
static void
close_pair(Pair *pair, bool is_reset)
{
	close_end(&pair->client, is_reset);
	close_end(&pair->server, is_reset);
	if (pair->previous)
		pair->previous->next = pair->next;
	else
		pairs = pair->next;
	if (pair->next)
		pair->next->previous = pair->previous;
	pair->is_closed = true;
	pair->next = closed;
	closed = pair;
	nopen--;
}

static void
free_closed(void)
{
	while (closed)
	{
		Pair	   *next = closed->next;

		free(closed);
		closed = next;
	}
}

static bool
is_temporary(int error)
{
	return error == EAGAIN || error == EINTR;
}

/* Of what is sent to the end keep what it does not take now. */
static void
send_to(End *end, const char *data, size_t size)
{
	ssize_t		sent = send(end->fd, data, size, MSG_NOSIGNAL);

	if (sent < 0 && !is_temporary(errno))
	{
		close_pair(end->pair, true);
		return;
	}
	if (sent < 0)
		sent = 0;
	if ((size_t) sent == size)
		return;
	end->nrest = size - sent;
	end->rest = malloc(end->nrest);
	if (!end->rest)
		die("keep what is to be sent", "out of memory");
	memcpy(end->rest, data + sent, end->nrest);
}

static void
send_rest(End *end)
{
	char	   *rest = end->rest;
	size_t		size = end->nrest;

	end->rest = NULL;
	end->nrest = 0;
	send_to(end, rest, size);
	free(rest);
}

static void
forward(End *end)
{
	static char data[65536];
	End		   *other = other_end(end);
	ssize_t		received = recv(end->fd, data, sizeof(data), 0);

	if (received > 0)
		send_to(other, data, received);
	else if (received < 0 && !is_temporary(errno))
		close_pair(end->pair, true);
	else if (received == 0)
	{
		end->has_ended = true;
		shutdown(other->fd, SHUT_WR);
		if (other->has_ended)
			close_pair(end->pair, false);
	}
}

static void
finish_connect(End *end)
{
	int			error = 0;
	socklen_t	size = sizeof(error);

	getsockopt(end->fd, SOL_SOCKET, SO_ERROR, &error, &size);
	end->is_connecting = false;
	if (error == 0)
		return;
	nfailed++;
	close_pair(end->pair, true);
}

/* Events may be older than what has happened since epoll told of them. */
static void
serve_end(End *end, uint32_t events)
{
	Pair	   *pair = end->pair;
	bool		is_broken = (events & (EPOLLHUP | EPOLLERR)) != 0;

	if (pair->is_closed || weather != PASSING)
		return;
	if (end->is_connecting)
		finish_connect(end);
	else if (other_end(end)->is_connecting)
		close_pair(pair, true); /* the client did not wait for it */
	else if (end->nrest > 0 && (is_broken || (events & EPOLLOUT)))
		send_rest(end);
	else if (may_read(end) && (is_broken || (events & EPOLLIN)))
		forward(end);
	if (!pair->is_closed)
		watch_pair(pair);
}

static void
set_up(End *end, Pair *pair, int fd)
{
	int			on = 1;

	end->pair = pair;
	end->fd = fd;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

static void
open_pair(int client, const Link *link)
{
	Pair	   *pair = calloc(1, sizeof(*pair));
	int			server = socket(AF_INET,
								SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (!pair || server < 0)
		die("reach a server", strerror(errno));
	set_up(&pair->client, pair, client);
	set_up(&pair->server, pair, server);
	pair->next = pairs;
	if (pairs)
		pairs->previous = pair;
	pairs = pair;
	nopen++;
	naccepted++;
	nbegun++;
	pair->server.is_connecting = true;
	if (connect(server, (const struct sockaddr *) &link->server,
				sizeof(link->server)) != 0 && errno != EINPROGRESS)
		die("reach a server", strerror(errno));
	watch_pair(pair);
}

static void
serve_link(Link *link)
{
	int			client;

	if (weather != PASSING)
		return;
	while ((client = accept4(link->fd, NULL, NULL,
							 SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0)
		open_pair(client, link);
	if (!is_temporary(errno) && errno != ECONNABORTED)
		die("accept a connection", strerror(errno));
}

static void
open_link(Link *link)
{
	int			on = 1;

	link->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	setsockopt(link->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(link->fd, (const struct sockaddr *) &link->here,
			 sizeof(link->here)) != 0 ||
		listen(link->fd, SOMAXCONN) != 0)
		die("listen", strerror(errno));
}

/* Watch what passes in this weather, and nothing else. */
static void
change_weather(Weather next)
{
	weather = next;
	for (Link *link = links; link < links + nlinks; link++)
	{
		if (weather == REFUSING && link->fd >= 0)
		{
			watch(link->fd, &link->events, 0, link);
			close(link->fd);	/* and whom it has not accepted is reset */
			link->fd = -1;
		}
		else if (weather == PASSING && link->fd < 0)
			open_link(link);
		if (link->fd >= 0)
			watch(link->fd, &link->events, weather == PASSING ? EPOLLIN : 0,
				  link);
	}
	while (weather == REFUSING && pairs)
		close_pair(pairs, true);
	for (Pair *pair = pairs; pair; pair = pair->next)
		watch_pair(pair);
}

static void
obey(const char *command)
{
	if (strcmp(command, "pass") == 0)
		change_weather(PASSING);
	else if (strcmp(command, "hold") == 0)
		change_weather(HOLDING);
	else if (strcmp(command, "refuse") == 0)
		change_weather(REFUSING);
	else if (strcmp(command, "count") != 0)
		die("understand", command);
	printf("ok %ld %ld %ld %ld\n", nopen, naccepted, nbegun, nfailed);
	fflush(stdout);
}

/* Commands come one at a time, but perhaps in pieces. */
static void
read_commands(void)
{
	static char line[64];
	static size_t size;
	ssize_t		received = read(STDIN_FILENO, line + size,
								sizeof(line) - 1 - size);
	char	   *end;

	if (received <= 0)
		exit(0);
	size += received;
	line[size] = '\0';
	while ((end = strchr(line, '\n')))
	{
		*end = '\0';
		obey(line);
		size -= end + 1 - line;
		memmove(line, end + 1, size + 1);
	}
}

static void
add_link(const char *ports)
{
	Link	   *link = &links[nlinks];
	unsigned short here;
	unsigned short server;

	if (nlinks++ == MAX_LINKS || sscanf(ports, "%hu:%hu", &here, &server) != 2)
		die("understand", ports);
	link->here.sin_family = link->server.sin_family = AF_INET;
	link->here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	link->server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	link->here.sin_port = htons(here);
	link->server.sin_port = htons(server);
	link->fd = -1;
}

int
main(int argc, char **argv)
{
	struct epoll_event events[256];
	uint32_t	of_commands = 0;

	raise_limit();
	epoll = epoll_create1(EPOLL_CLOEXEC);
	for (int i = 1; i < argc; i++)
		add_link(argv[i]);
	watch(STDIN_FILENO, &of_commands, EPOLLIN, NULL);
	change_weather(PASSING);
	for (;;)
	{
		int			nevents = epoll_wait(epoll, events, 256, -1);

		for (int i = 0; i < nevents; i++)
		{
			void	   *what = events[i].data.ptr;

			if (!what)
				read_commands();
			else if (what >= (void *) links && what < (void *) (links + nlinks))
				serve_link(what);
			else
				serve_end(what, events[i].events);
		}
		free_closed();
	}
}
