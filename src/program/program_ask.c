/*-------------------------------------------------------------------------
 *
 * program_ask.c
 *	  The mode without a ZooKeeper session: asks servers with four-letter
 *	  words, and how long a request may be.
 *
 * It asks with ZooKeeper's four-letter words, over connections of their own:
 * "srvr", which no server can be forbidden to answer, and "conf" and "mntr",
 * which they answer if their configuration allows it.  It opens no session, and
 * does not use the ZooKeeper library.
 *
 * No word tells jute.maxbuffer, the longest request that a server takes.  So
 * it is tried, if that is asked: with a request to go on with a session that
 * there cannot be, filled up with zeros.  A server that takes it answers that
 * there is no such session, and any other closes the connection as soon as it
 * has read the length.  Nothing is changed by it in the ensemble.
 *
 * All connections, and the look-ups of names, are served by one poll().  A
 * server is asked as soon as its address is known, what is known is written at
 * once, and the backend kills this process when its time is over.
 *
 *-------------------------------------------------------------------------
 */
#include "program.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "ask.h"
#include "program_names.h"
#include "program_tls.h"

/* Most of a reply that is read. */
#define REPLY_MAX 65536

/* What a server is asked, and what its reply is said to be. */
static const struct
{
	const char *text;
	AskVerdict	verdict;
}			words[] = {
	{"srvr", ASK_SERVING}, {"conf", ASK_SETTINGS}, {"mntr", ASK_FSYNC},
	{NULL, ASK_REQUESTS}		/* no word, but a long request */
};
#define NWORDS ((int) (sizeof(words) / sizeof(words[0])))

/*
 * What a long request begins with: its length, in the first four bytes; the
 * version of the protocol, 0; the last zxid seen, 0; a session timeout, 4 s;
 * the session, 1, for a server's have its start and its number in the upper
 * bytes; the length of its password, 16, and 16 bytes that are not that; and
 * that a server will do that only reads.
 */
static const unsigned char request_head[] = {
	0, 0, 0, 0,
	0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x0f, 0xa0,
	0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 16,
	0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1
};

/* How much of it is sent at a time. */
#define REQUEST_PART 16384

/* An address that is asked one word after the other. */
typedef struct Asked
{
	const struct Asking *asking;
	ServerAddress address;
	int			word;			/* the current one */
	int			fd;				/* -1: there is nothing to wait for */
	bool		is_connected;
	int32_t		request_bytes;	/* of the long request: its length */
	int32_t		taken_bytes;	/* of the longest that was taken; 0: none was */
	size_t		nsent;			/* and how much is sent, the length included */
	int64_t		started_us;		/* when it was asked */
	size_t		length;
	char		reply[REPLY_MAX + 1];
} Asked;

/* All that is asked, for one FRAME_ASK. */
typedef struct Asking
{
	ServerList	list;
	Names	   *names;
	int64_t		deadline;		/* protocol_now() */
	bool		is_begun[SERVERS_MAX];	/* its host is known, or that it has no
										 * address */
	ServerAddress addresses[ASK_ALL_MAX];
	int32_t		request_bytes;	/* as in FrameAsk */
	bool		are_first_words_over;	/* only those that answered are asked */
	int			nasked;			/* so many of the addresses are */
	Asked		asked[ASK_ALL_MAX];
} Asking;

static void begin_servers(Asking *asking);
static void begin_asking(Asking *asking, int server);
static void end_first_words(Asking *asking);
static void ask_word(Asked *one);
static void serve_answers(Asking *asking);
static void go_on_asking(Asked *one);
static bool is_sending(const Asked *one);
static bool send_more(Asked *one);
static bool try_next(Asked *one, bool is_taken);
static void end_asking(Asked *one);
static AskVerdict verdict_of_time(const Asked *one);
static AskVerdict verdict_of_failure(int error);
static void end_word(Asked *one, AskVerdict verdict, const char *text);
static AskVerdict verdict_of_end(const Asked *one, const char *error_of_tls);
static int64_t now_us(void);
static void send_answer(int server, AskVerdict verdict, const char *name,
						int64_t us, const char *text);

void
program_ask(const FrameTaken *frame)
{
	const FrameAsk *wanted = &frame->frame.u.ask;
	const char *tls = frame->blobs[1];
	Asking	   *asking;
	char		text[TLS_WHY_SIZE];

	/* nobody else is there to whom it matters */
	backend_end_with_it();
	asking = program_need(calloc(1, sizeof(*asking)));
	asking->deadline = wanted->until;
	asking->request_bytes = wanted->request_bytes;
	send_answer(0, ASK_PROGRAM, "", 0, ZOO_VERSION);
	if (protocol_now() >= asking->deadline ||	/* it was a long way here */
		!servers_parse(frame->blobs[0], &asking->list, text))
	{
		free(asking);
		return;
	}
	asking->names = names_begin(&asking->list);
	names_look_up(asking->names);
	if (tls != NULL && !tls_begin(tls, text))
	{
		for (int i = 0; i < asking->list.nservers; i++)
			send_answer(i, ASK_UNTRUSTED, "", 0, text);
		names_end(asking->names);
		free(asking);
		return;
	}
	begin_servers(asking);
	serve_answers(asking);
	end_first_words(asking);
	asking->deadline = wanted->answered_until;
	serve_answers(asking);
	names_end(asking->names);
	free(asking);
}

/*
 * The time for names and first answers is over; servers that have answered are
 * asked on.
 */
static void
end_first_words(Asking *asking)
{
	asking->are_first_words_over = true;
	for (int i = 0; i < asking->nasked; i++)
		if (asking->asked[i].fd >= 0 && asking->asked[i].word == 0)
			end_word(&asking->asked[i], verdict_of_time(&asking->asked[i]), "");
}

/* What is known of a server that has not finished its answer in time. */
static AskVerdict
verdict_of_time(const Asked *one)
{
	if (!one->is_connected || tls_error(one->fd)[0] != '\0')
		return ASK_NO_CONNECTION;
	return one->length == 0 ? ASK_SILENT : ASK_SERVING;
}

/* Ask all whose host has been looked up, each of them once. */
static void
begin_servers(Asking *asking)
{
	for (int i = 0; i < asking->list.nservers; i++)
		if (!asking->is_begun[i] && !names_is_awaited(asking->names, i))
			begin_asking(asking, i);
}

/* Begin to ask each of a server's addresses. */
static void
begin_asking(Asking *asking, int server)
{
	const HostAddresses *known = names_known(asking->names, server);
	const ServerList one = {.nservers = 1,.servers = {asking->list.servers[server]}};
	ServerAddresses found;
	int			first = asking->nasked;

	asking->is_begun[server] = true;
	if (!servers_collect(&one, &known, &found))
	{
		send_answer(server, ASK_UNRESOLVED, "", 0, found.complaint);
		return;
	}
	for (int i = 0; i < found.count && i < ASK_ADDRESSES_MAX; i++)
	{
		asking->addresses[asking->nasked] = found.all[i];
		asking->addresses[asking->nasked++].server = server;
	}
	tls_expect(&asking->list, asking->addresses, asking->nasked);
	for (int i = first; i < asking->nasked; i++)
	{
		asking->asked[i].asking = asking;
		asking->asked[i].address = asking->addresses[i];
		asking->asked[i].request_bytes = asking->request_bytes;
		ask_word(&asking->asked[i]);
	}
}

/* ---------------------------------------------------------------------
 * Asking
 * ---------------------------------------------------------------------
 */

/* Begin to ask the current word, over a new connection. */
static void
ask_word(Asked *one)
{
	one->is_connected = false;
	one->length = 0;
	one->nsent = 0;
	one->started_us = now_us();
	one->fd = socket(one->address.address.ss_family,
					 SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (one->fd < 0 ||
		(connect(one->fd, (const struct sockaddr *) &one->address.address,
				 one->address.length) != 0 && errno != EINPROGRESS))
		end_word(one, verdict_of_failure(errno), strerror(errno));
}

/*
 * Why there is no connection.  A server that has too many of them takes it,
 * and closes it: what comes of that depends on how far we were.
 */
static AskVerdict
verdict_of_failure(int error)
{
	return error == EPIPE || error == ECONNRESET ? ASK_CLOSED : ASK_UNREACHABLE;
}

/* Serve all connections and look-ups until the deadline, or until there are none. */
static void
serve_answers(Asking *asking)
{
	for (;;)
	{
		struct pollfd polled[ASK_ALL_MAX + 1];
		int64_t		now = protocol_now();
		bool		is_idle = asking->are_first_words_over ||
			names_awaited_since(asking->names) == INT64_MAX;

		for (int i = 0; i < asking->nasked; i++)
		{
			polled[i].fd = asking->asked[i].fd;
			polled[i].events = 0;
			if (!asking->asked[i].is_connected || is_sending(&asking->asked[i]))
				polled[i].events |= POLLOUT;
			if (asking->asked[i].is_connected)
				polled[i].events |= POLLIN;
			polled[i].revents = 0;
			is_idle &= asking->asked[i].fd < 0;
		}
		if (is_idle || now >= asking->deadline)
			return;
		polled[asking->nasked] =
			(struct pollfd) {names_descriptor(asking->names), POLLIN, 0};

		/* where it fails nothing has happened */
		(void) tls_poll(polled, asking->nasked + 1,
						(int) (asking->deadline - now));
		for (int i = 0; i < asking->nasked; i++)
			if (polled[i].revents != 0)
				go_on_asking(&asking->asked[i]);
		if (polled[asking->nasked].revents != 0 && names_take(asking->names) &&
			!asking->are_first_words_over)
			begin_servers(asking);
	}
}

/* Something has happened to its connection. */
static void
go_on_asking(Asked *one)
{
	int			error = 0;
	socklen_t	error_length = sizeof(error);
	const char *error_of_tls = tls_error(one->fd);
	ssize_t		received;

	if (!one->is_connected)
	{
		getsockopt(one->fd, SOL_SOCKET, SO_ERROR, &error, &error_length);
		if (error != 0)
		{
			end_word(one, verdict_of_failure(error), strerror(error));
			return;
		}
		one->is_connected = true;
		if (words[one->word].text != NULL)
			send(one->fd, words[one->word].text,
				 strlen(words[one->word].text), MSG_NOSIGNAL);
		return;
	}
	if (is_sending(one) && !send_more(one))
	{
		end_word(one, ASK_CLOSED, "");
		return;
	}
	received = recv(one->fd, one->reply + one->length,
					REPLY_MAX - one->length, 0);
	if (received < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (received > 0)
		one->length += (size_t) received;
	if (received <= 0 || one->length == REPLY_MAX)
		end_word(one, verdict_of_end(one, error_of_tls), error_of_tls);
}

/*
 * The server has closed the connection.  A long request comes behind words that
 * it has answered: so there is nothing wrong with TLS, and it is too long.
 */
static AskVerdict
verdict_of_end(const Asked *one, const char *error_of_tls)
{
	if (one->length > 0)
		return ASK_SERVING;
	if (words[one->word].text == NULL || error_of_tls[0] == '\0')
		return ASK_CLOSED;
	return ASK_UNTRUSTED;
}

/* Is there more of a long request to be sent? */
static bool
is_sending(const Asked *one)
{
	return words[one->word].text == NULL &&
		one->nsent < (size_t) one->request_bytes + 4;
}

/*
 * Send the next part of a long request; false if the server has closed the
 * connection.
 */
static bool
send_more(Asked *one)
{
	unsigned char part[REQUEST_PART] = {0};
	size_t		length = (size_t) one->request_bytes + 4 - one->nsent;
	ssize_t		sent;

	if (length > sizeof(part))
		length = sizeof(part);
	for (size_t at = one->nsent; at < sizeof(request_head); at++)
		part[at - one->nsent] = at >= 4 ? request_head[at] :
			(unsigned char) ((uint32_t) one->request_bytes >> (24 - 8 * at));
	sent = send(one->fd, part, length, MSG_NOSIGNAL);
	if (sent < 0)
		return errno == EINTR || errno == EAGAIN;
	one->nsent += (size_t) sent;
	return true;
}

/*
 * End its connection, say what came of it, and ask the next word, or with
 * another long request.  SERVING stands for any reply; other verdicts have
 * that text.
 */
static void
end_word(Asked *one, AskVerdict verdict, const char *text)
{
	static const char version[] = "Zookeeper version: ";
	char		tls[TLS_TEXT_SIZE];
	char		bytes[16];
	bool		is_request = words[one->word].text == NULL;

	one->reply[one->length] = '\0';

	/* its files were read for this question alone: they cannot be stale */
	(void) tls_describe(one->fd, tls, sizeof(tls));
	if (one->word == 0 && tls[0] != '\0')
		send_answer(one->address.server, ASK_ENCRYPTED, one->address.text, 0, tls);
	if (is_request && (verdict == ASK_SERVING || verdict == ASK_CLOSED))
	{
		if (try_next(one, verdict == ASK_SERVING))
		{
			end_asking(one);
			if (protocol_now() < one->asking->deadline)
				ask_word(one);
			return;
		}
		snprintf(bytes, sizeof(bytes), "%d", (int) one->taken_bytes);
		verdict = one->taken_bytes > 0 ? ASK_REQUESTS : ASK_PROGRAM;
		text = bytes;
	}
	else if (verdict == ASK_SERVING)
	{
		verdict = words[one->word].verdict;
		if (one->word == 0 &&
			strncmp(one->reply, version, strlen(version)) != 0)
			verdict = strstr(one->reply, "not currently serving requests") != NULL ?
				ASK_IDLE : ASK_STRANGER;
		text = one->reply;

		/* of some hundred lines */
		if (verdict == ASK_FSYNC)
			text = strstr(text, "zk_avg_fsynctime");
		if (text == NULL)
			verdict = ASK_PROGRAM;
	}
	else if (one->word > 0)
		verdict = ASK_PROGRAM;	/* that it serves was said */
	if (verdict != ASK_PROGRAM)
		send_answer(one->address.server, verdict, one->address.text,
					now_us() - one->started_us, text);
	end_asking(one);
	if ((one->word == 0 && verdict != ASK_SERVING) ||
		one->word + 1 >= NWORDS || protocol_now() >= one->asking->deadline ||
		(words[one->word + 1].text == NULL && one->asking->request_bytes == 0))
		return;
	one->word++;
	ask_word(one);
}

static void
end_asking(Asked *one)
{
	if (one->fd >= 0)
		close(one->fd);
	one->fd = -1;
}

/*
 * Is there another length to be tried?  Half as much, until a request is taken,
 * and then twice as much again until one is not: a connection may have been
 * closed for another reason, once.
 */
static bool
try_next(Asked *one, bool is_taken)
{
	int64_t		twice = (int64_t) one->request_bytes * 2 + 1;

	if (is_taken)
	{
		one->taken_bytes = one->request_bytes;
		one->request_bytes = twice < one->asking->request_bytes ?
			(int32_t) twice : one->asking->request_bytes;
		return one->taken_bytes < one->asking->request_bytes;
	}
	one->request_bytes /= 2;
	return one->taken_bytes == 0 && one->request_bytes >= ASK_REQUEST_MIN;
}

static int64_t
now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t) now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* Without a backend that reads there is nothing to do. */
static void
send_answer(int server, AskVerdict verdict, const char *name, int64_t us,
			const char *text)
{
	const Frame frame = {
		.kind = FRAME_ANSWER,.u.answer = {us, server, verdict}
	};
	char		clipped[ASK_TEXT_MAX + 1];
	const FrameBlob blobs[FRAME_NBLOBS] = {
		frame_text(name), {clipped, strnlen(text, ASK_TEXT_MAX) + 1}
	};
	FrameBuffer out = {0};

	snprintf(clipped, sizeof(clipped), "%s", text);
	if (!frame_put(&out, &frame, blobs) ||
		write(PROTOCOL_CHANNEL_FD, out.bytes, out.end) != (ssize_t) out.end)
		_exit(1);
	frame_buffer_free(&out);
}
