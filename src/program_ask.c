/*-------------------------------------------------------------------------
 *
 * program_ask.c
 *	  The program in its other mode: it asks servers how they are, and ends.
 *
 * It asks with ZooKeeper's four-letter words, over connections of their own:
 * "srvr", which no server can be forbidden to answer, and "conf" and "cons",
 * which they answer if somebody has allowed it.  No session, and the ZooKeeper
 * library has no part in it.
 *
 * The one rule: nothing holds up anything else.  Looking up a name cannot be
 * bounded, so each server has a thread, and each of its addresses another;
 * all but that look-up keeps the deadline, and at the deadline the process
 * ends, whoever is still at it.  Threads share nothing but the list, which
 * does not change, and the count of those at work.
 *
 *-------------------------------------------------------------------------
 */
#include "program.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "ask.h"
#include "servers.h"

/* Enough for getaddrinfo() with whatever it loads. */
#define STACK_SIZE (1024 * 1024)

/*
 * Most of an answer that is read.  A line of "cons" has 200 bytes; of a server
 * with more connections than this holds the rest is not counted.
 */
#define ANSWER_MAX (256 * 1024)

/*
 * After so much of the time an end of line is sent: other protocols do not
 * answer before they have seen one, and then one knows what it is.
 */
#define NUDGE_PART 3

/* How much longer than the threads the process takes. */
#define GRACE_MS 100

/* What a thread is for. */
typedef struct Task
{
	int			server;			/* its place in the list */
	char		address[SERVERS_ADDRESS_SIZE];	/* "": look it up */
} Task;

/* An answer to one word. */
typedef struct Answer
{
	AskVerdict	verdict;		/* SERVING: there is one; else why not */
	int			error;			/* errno; valid if UNREACHABLE */
	int			own_port;		/* of our end of the connection */
	size_t		length;
	char		text[ANSWER_MAX + 1];
} Answer;

static ServerList list;
static int64_t deadline;		/* protocol_now() */

/* How many threads are at work, and who wants to know. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t is_over;
static int	nthreads;

static void await_threads(void);
static void begin(int server, const char *address);
static void *run(void *argument);
static void look_up(int server);
static void ask(int server, const char *address);
static bool read_address(const char *text, struct sockaddr_storage *address,
						 socklen_t *length);
static bool question(const struct sockaddr_storage *address, socklen_t length,
					 const char *word, Answer *answer);
static int	connect_to(const struct sockaddr_storage *address,
					   socklen_t length, Answer *answer);
static void converse(int fd, const char *word, Answer *answer);
static bool await(int fd, short events, int64_t until);
static void read_state(AskRecord *record, const Answer *answer);
static void read_settings(AskRecord *record, const char *text);
static int	read_number(const char *text, const char *name);
static int	count_connections(const Answer *answer);
static void keep_line(char *line, size_t size, const char *text);
static AskRecord new_record(int server, AskVerdict verdict);
static void put(const AskRecord *record);

int
program_ask(const char *servers, int64_t until)
{
	AskRecord	record = new_record(0, ASK_PROGRAM);
	pthread_condattr_t clock;
	char		why[256];

	deadline = until;
	snprintf(record.release, sizeof(record.release), "%s", ZOO_VERSION);
	put(&record);
	if (!servers_parse(servers, &list, why, sizeof(why)))
		return 1;
	if (protocol_now() >= deadline)
		return 0;				/* it was a long way here: nothing is known */
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&is_over, &clock);
	for (int i = 0; i < list.nservers; i++)
		begin(i, "");
	await_threads();
	_exit(0);					/* not waiting for those that are left */
}

/* ---------------------------------------------------------------------
 * Threads
 * ---------------------------------------------------------------------
 */

/* Until all are done, or a moment after the deadline. */
static void
await_threads(void)
{
	struct timespec until;
	int64_t		left = deadline + GRACE_MS - protocol_now();

	clock_gettime(CLOCK_MONOTONIC, &until);
	if (left > 0)
	{
		until.tv_sec += left / 1000;
		until.tv_nsec += left % 1000 * 1000000;
	}
	if (until.tv_nsec >= 1000000000)
	{
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	pthread_mutex_lock(&lock);
	while (nthreads > 0 &&
		   pthread_cond_timedwait(&is_over, &lock, &until) != ETIMEDOUT)
		;

	/* for good: what is said from now on is not heard */
}

/* Start a thread.  One that cannot be had is a server that is not asked. */
static void
begin(int server, const char *address)
{
	Task	   *task = calloc(1, sizeof(*task));
	pthread_attr_t attributes;
	pthread_t	thread;
	int			error = ENOMEM;

	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, STACK_SIZE);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_mutex_lock(&lock);
	nthreads++;
	pthread_mutex_unlock(&lock);
	if (task != NULL)
	{
		task->server = server;
		snprintf(task->address, sizeof(task->address), "%s", address);
		error = pthread_create(&thread, &attributes, run, task);
	}
	pthread_attr_destroy(&attributes);
	if (error != 0)
	{
		AskRecord	record = new_record(server, ASK_NOT_ASKED);

		snprintf(record.said, sizeof(record.said), "%s", strerror(error));
		put(&record);
		free(task);
		pthread_mutex_lock(&lock);
		nthreads--;
		pthread_mutex_unlock(&lock);
	}
}

static void *
run(void *argument)
{
	Task	   *task = argument;

	if (task->address[0] == '\0')
		look_up(task->server);
	else
		ask(task->server, task->address);
	free(task);
	pthread_mutex_lock(&lock);
	if (--nthreads == 0)
		pthread_cond_signal(&is_over);
	pthread_mutex_unlock(&lock);
	return NULL;
}

/* Look one server up, and have each of its addresses asked. */
static void
look_up(int server)
{
	ServerList	one = {.nservers = 1};
	ServerAddresses found;
	char	   *rest = found.connect_string;
	char	   *address;
	char		first[SERVERS_ADDRESS_SIZE] = "";

	one.servers[0] = list.servers[server];
	if (!servers_resolve(&one, &found))
	{
		AskRecord	record = new_record(server, ASK_UNRESOLVED);

		keep_line(record.said, sizeof(record.said), found.error);
		put(&record);
		return;
	}
	for (int i = 0; i < ASK_ADDRESSES_MAX &&
		 (address = strsep(&rest, ",")) != NULL; i++)
	{
		if (strcmp(address, first) == 0)
			return;				/* to make their number odd */
		if (i == 0)
			snprintf(first, sizeof(first), "%s", address);
		begin(server, address);
	}
}

/* ---------------------------------------------------------------------
 * Asking
 * ---------------------------------------------------------------------
 */

static void
ask(int server, const char *address)
{
	AskRecord	record = new_record(server, ASK_UNREACHABLE);
	Answer	   *answer = malloc(sizeof(*answer));
	struct sockaddr_storage socket_address;
	socklen_t	length;
	struct timespec before;
	struct timespec after;

	snprintf(record.address, sizeof(record.address), "%s", address);
	clock_gettime(CLOCK_MONOTONIC, &before);
	if (answer == NULL || !read_address(address, &socket_address, &length))
	{
		record.verdict = ASK_NOT_ASKED;
		snprintf(record.said, sizeof(record.said), "%s", strerror(ENOMEM));
	}
	else if (!question(&socket_address, length, "srvr", answer))
	{
		record.verdict = answer->verdict;
		if (answer->verdict == ASK_UNREACHABLE)
			snprintf(record.said, sizeof(record.said), "%s",
					 strerror(answer->error));
	}
	else
	{
		clock_gettime(CLOCK_MONOTONIC, &after);
		record.latency_us = (int32_t)
			((after.tv_sec - before.tv_sec) * 1000000 +
			 (after.tv_nsec - before.tv_nsec) / 1000);
		read_state(&record, answer);
		if (record.verdict == ASK_SERVING &&
			question(&socket_address, length, "conf", answer))
			read_settings(&record, answer->text);
		if (record.verdict == ASK_SERVING &&
			question(&socket_address, length, "cons", answer))
			record.nconnections = count_connections(answer);
	}
	put(&record);
	free(answer);
}

/* "address:port", IPv6 without brackets. */
static bool
read_address(const char *text, struct sockaddr_storage *address,
			 socklen_t *length)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *) address;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *) address;
	const char *colon = strrchr(text, ':');
	char		host[SERVERS_ADDRESS_SIZE];
	in_port_t	port;

	if (colon == NULL)
		return false;
	snprintf(host, sizeof(host), "%.*s", (int) (colon - text), text);
	port = htons((in_port_t) atoi(colon + 1));
	memset(address, 0, sizeof(*address));
	if (inet_pton(AF_INET, host, &v4->sin_addr) == 1)
	{
		v4->sin_family = AF_INET;
		v4->sin_port = port;
		*length = sizeof(*v4);
		return true;
	}
	v6->sin6_family = AF_INET6;
	v6->sin6_port = port;
	*length = sizeof(*v6);
	return inet_pton(AF_INET6, host, &v6->sin6_addr) == 1;
}

/* Ask one word over a connection of its own; is there an answer? */
static bool
question(const struct sockaddr_storage *address, socklen_t length,
		 const char *word, Answer *answer)
{
	int			fd;

	answer->length = 0;
	fd = connect_to(address, length, answer);
	if (fd >= 0)
	{
		converse(fd, word, answer);
		close(fd);
	}
	answer->text[answer->length] = '\0';
	return answer->verdict == ASK_SERVING;
}

/* A connection, or -1 and the verdict. */
static int
connect_to(const struct sockaddr_storage *address, socklen_t length,
		   Answer *answer)
{
	int			fd = socket(address->ss_family,
							SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	union
	{
		struct sockaddr any;
		struct sockaddr_in ipv4;
		struct sockaddr_in6 ipv6;
	}			own = {.ipv6 = {0}};
	socklen_t	own_length = sizeof(own);
	socklen_t	error_length = sizeof(answer->error);

	answer->verdict = ASK_UNREACHABLE;
	if (fd < 0 ||
		(connect(fd, (const struct sockaddr *) address, length) != 0 &&
		 errno != EINPROGRESS))
		answer->error = errno;
	else if (!await(fd, POLLOUT, deadline))
		answer->verdict = ASK_NO_CONNECTION;
	else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &answer->error,
						&error_length) == 0 && answer->error == 0)
	{
		answer->own_port = 0;
		if (getsockname(fd, &own.any, &own_length) == 0)
			answer->own_port = ntohs(own.any.sa_family == AF_INET ?
									 own.ipv4.sin_port : own.ipv6.sin6_port);
		return fd;
	}
	if (fd >= 0)
		close(fd);
	return -1;
}

/* Say the word, and read until the other side closes, or the deadline. */
static void
converse(int fd, const char *word, Answer *answer)
{
	int64_t		now = protocol_now();
	int64_t		nudge_at = now + (deadline - now) / NUDGE_PART;
	bool		is_nudged = false;
	ssize_t		received;

	answer->verdict = ASK_SILENT;
	send(fd, word, strlen(word), MSG_NOSIGNAL);
	while (answer->length < ANSWER_MAX)
	{
		if (!await(fd, POLLIN, is_nudged ? deadline : nudge_at))
		{
			if (is_nudged || protocol_now() >= deadline)
				return;
			if (answer->length == 0)
				send(fd, "\r\n\r\n", 4, MSG_NOSIGNAL);
			is_nudged = true;
			continue;
		}
		received = recv(fd, answer->text + answer->length,
						ANSWER_MAX - answer->length, 0);
		if (received < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (received <= 0)
		{
			if (answer->length == 0)
				answer->verdict = ASK_CLOSED;
			return;
		}
		answer->length += (size_t) received;
		answer->verdict = ASK_SERVING;
	}
}

/* Until that is possible; false at that time. */
static bool
await(int fd, short events, int64_t until)
{
	struct pollfd polled = {fd, events, 0};

	for (;;)
	{
		int64_t		left = until - protocol_now();

		if (poll(&polled, 1, left > 0 ? (int) left : 0) == 1)
			return true;
		if (left <= 0)
			return false;
	}
}

/* ---------------------------------------------------------------------
 * Reading answers
 * ---------------------------------------------------------------------
 */

static void
read_state(AskRecord *record, const Answer *answer)
{
	static const char version[] = "Zookeeper version: ";
	static const struct
	{
		const char *word;
		AskMode		mode;
	}			modes[] = {
		{"standalone", ASK_STANDALONE}, {"leader", ASK_LEADER},
		{"follower", ASK_FOLLOWER}, {"observer", ASK_OBSERVER},
		{"read-only", ASK_READ_ONLY}
	};
	const char *mode = strstr(answer->text, "\nMode: ");

	if (strncmp(answer->text, version, strlen(version)) == 0)
	{
		record->verdict = ASK_SERVING;
		snprintf(record->release, sizeof(record->release), "%.*s",
				 (int) strspn(answer->text + strlen(version),
							  "0123456789."), answer->text + strlen(version));
	}
	else if (strstr(answer->text, "not currently serving requests") != NULL)
		record->verdict = ASK_IDLE;
	else
	{
		record->verdict = ASK_STRANGER;
		keep_line(record->said, sizeof(record->said), answer->text);
	}
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
		if (mode != NULL &&
			strncmp(mode + strlen("\nMode: "), modes[i].word,
					strlen(modes[i].word)) == 0)
			record->mode = modes[i].mode;
}

/* The lines of "conf"; none of them is in what a server says that refuses. */
static void
read_settings(AskRecord *record, const char *text)
{
	record->tick_ms = read_number(text, "tickTime=");
	record->sync_limit = read_number(text, "syncLimit=");
	record->min_timeout_ms = read_number(text, "minSessionTimeout=");
	record->max_timeout_ms = read_number(text, "maxSessionTimeout=");
	record->max_connections = read_number(text, "maxClientCnxns=");
}

/* The number of the line that begins so. */
static int
read_number(const char *text, const char *name)
{
	for (const char *line = text; line != NULL; line = strchr(line, '\n'))
	{
		long		number;
		char	   *end;

		line += line != text;
		if (strncmp(line, name, strlen(name)) != 0)
			continue;
		errno = 0;
		number = strtol(line + strlen(name), &end, 10);
		return end != line + strlen(name) && errno == 0 && number >= 0 &&
			number <= INT32_MAX ? (int) number : ASK_UNKNOWN;
	}
	return ASK_UNKNOWN;
}

/*
 * Lines of "cons": " /127.0.0.1:33312[0](...".  Which address is ours there
 * tells the line with the port of this connection; behind a gateway that
 * changes ports there is none.
 */
static int
count_connections(const Answer *answer)
{
	char		own[16];
	const char *found;
	const char *start;
	size_t		length;
	int			count = 0;

	snprintf(own, sizeof(own), ":%d[", answer->own_port);
	found = strstr(answer->text, own);
	if (found == NULL)
		return ASK_UNKNOWN;
	for (start = found; start > answer->text && start[-1] != '\n' &&
		 start[-1] != '/'; start--)
		;
	length = (size_t) (found - start) + 1;	/* with the colon */
	for (const char *line = answer->text; (line = strchr(line, '/')) != NULL;)
	{
		line++;
		count += strncmp(line, start, length) == 0;
		line = strchr(line, '\n');
		if (line == NULL)
			break;
	}
	return count;
}

/* The first line, as much as there is room for. */
static void
keep_line(char *line, size_t size, const char *text)
{
	text += strspn(text, "\r\n");
	snprintf(line, size, "%.*s", (int) strcspn(text, "\r\n"), text);
}

static AskRecord
new_record(int server, AskVerdict verdict)
{
	AskRecord	record;

	memset(&record, 0, sizeof(record));
	record.length = sizeof(record);
	record.version = PROTOCOL_VERSION;
	record.server = server;
	record.verdict = verdict;
	record.tick_ms = ASK_UNKNOWN;
	record.sync_limit = ASK_UNKNOWN;
	record.min_timeout_ms = ASK_UNKNOWN;
	record.max_timeout_ms = ASK_UNKNOWN;
	record.max_connections = ASK_UNKNOWN;
	record.nconnections = ASK_UNKNOWN;
	return record;
}

/* Without a backend that reads there is nothing left to do. */
static void
put(const AskRecord *record)
{
	if (write(PROTOCOL_CHANNEL_FD, record, sizeof(*record)) !=
		(ssize_t) sizeof(*record))
		_exit(1);
}
