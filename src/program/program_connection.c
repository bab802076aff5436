/*-------------------------------------------------------------------------
 *
 * program_connection.c
 *	  The connection to a server: when to try another one, how long an attempt
 *	  may take, the close.
 *
 * Between two attempts to connect the program must not call the library: at
 * each call the library takes its pause for over, so a backend with many
 * requests would make it connect as often.
 *
 *-------------------------------------------------------------------------
 */
#include "program.h"

#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zookeeper/proto.h>

#include "program_tls.h"

/*
 * How long the library is left alone at least after an attempt that failed.
 */
#define RETRY_MS 10

/*
 * The library pauses for a sixtieth of the session timeout when it has tried
 * all servers, for ever.  Thousands of sessions that do so at one pace keep
 * servers that elect a leader from it, whose listener is up all the time.  So
 * the pause doubles up to that many times as long.
 */
#define PAUSE_FACTOR_MAX 4

/*
 * For how many session timeouts a session that could not be closed is left
 * alone.  The leader ends it one timeout after it last heard of it, rounded up
 * to a tick; it hears of a session at another server half a tick late.  That is
 * less than a timeout and two ticks.  A client does not know the tick, but no
 * server grants less than two of them (minSessionTimeout), unless its
 * configuration says so.
 */
#define REST_TIMEOUTS 2

/* The numbers of requests of the library's own, as in its zookeeper.c. */
#define PING_XID (-2)
#define SET_WATCHES_XID (-8)

/*
 * How long the server may take over a close before we leave it alone with it;
 * and for how long the backend waits with us.
 */
#define CLOSE_MS 3000
#define ANSWER_MS 1500

static int64_t left_of_rest(Session *session, int64_t now);
static int	pause_of_our_own(Session *session, int64_t now);
static int	ask_library(Session *session, int64_t now, struct pollfd *polled);
static int	bound_connection(Session *session, int64_t now, int library_ms);
static bool is_pause_due(const Session *session);
static int	pause_between_rounds(Session *session, int64_t now,
								 int library_ms);
static void note_attempt(Session *session, Moment before);
static bool is_end_next(const Session *session);
static void await_end(int socket, int64_t deadline);
static bool has_ended(int socket);

/* ---------------------------------------------------------------------
 * Attempts
 * ---------------------------------------------------------------------
 */

int
connection_prepare(Session *session, int64_t now, struct pollfd *polled)
{
	Link	   *link = &session->link;
	int64_t		rest_ms = left_of_rest(session, now);
	int64_t		names_ms;

	if (rest_ms > 0 && link->fd < 0)
		return (int) rest_ms;
	if (now < link->pace.pause_until)
		return (int) (link->pace.pause_until - now);
	names_ms = session_names_ms(session, now);
	if (names_ms > 0)
	{
		link->fd = -1;
		return (int) names_ms;
	}
	if (is_pause_due(session))
		return pause_of_our_own(session, now);
	return ask_library(session, now, polled);
}

/*
 * A session that is to be closed, and has no connection for that: for how many
 * milliseconds is it to have none?
 *
 * Each request to connect that reaches a server touches the session there, also
 * if its answer is lost: the attempts to close the session would keep its nodes
 * for ever.  So there are attempts for half a session timeout, from the first
 * one that reached a server; then none for so long that the ensemble must have
 * ended the session, if it was there; and so on.  Where no server is reached
 * nothing is touched, and the attempts go on.
 */
static int64_t
left_of_rest(Session *session, int64_t now)
{
	LinkPace   *pace = &session->link.pace;
	int64_t		timeout = session_timeout_ms(session);

	if (!session_is_ending(session) || session->link.is_up)
		return 0;
	if (pace->rest_at != 0 && now >= pace->rest_at + timeout * REST_TIMEOUTS)
		pace->rest_at = 0;
	if (pace->rest_at == 0 && zoo_state(session->zh) == ZOO_ASSOCIATING_STATE)
		pace->rest_at = now + timeout / 2;
	if (pace->rest_at == 0 || now < pace->rest_at)
		return 0;
	return pace->rest_at + timeout * REST_TIMEOUTS - now;
}

/* A pause that the library does not make by itself. */
static int
pause_of_our_own(Session *session, int64_t now)
{
	Link	   *link = &session->link;
	int			usual_ms = session->status.session_timeout_ms / 60;
	int			pause_ms = pause_between_rounds(session, now, usual_ms);

	link->pace.paused_behind = link->number;
	link->pace.is_paused = true;
	link->fd = -1;
	link->pace.pause_until = now + pause_ms;
	return pause_ms;
}

/*
 * The library connects now, if it has to.  What it waits for is what is to be
 * polled, if it has a connection or makes one.
 */
static int
ask_library(Session *session, int64_t now, struct pollfd *polled)
{
	Link	   *link = &session->link;
	struct timeval timeout = {0};
	Moment		before = {0};
	int			interest = 0;
	int			library_ms;
	int			rc;

	if (zoo_state(session->zh) != ZOO_CONNECTED_STATE)
		before = protocol_moment();
	rc = zookeeper_interest(session->zh, &link->fd, &interest, &timeout);
	if (before.boot_ms != 0)
		note_attempt(session, before);
	library_ms = (int) (timeout.tv_sec * 1000 + timeout.tv_usec / 1000);
	if (rc != ZOK && library_ms < RETRY_MS)
		library_ms = RETRY_MS;

	/* it has tried all servers; of another list it has tried none */
	if (link->fd < 0 && rc == ZOK &&
		(link->servers.is_fresh || link->pace.is_paused))
		library_ms = 0;
	else if (link->fd < 0 && rc == ZOK)
		library_ms = pause_between_rounds(session, now, library_ms);
	link->servers.is_fresh = false;
	if (link->fd < 0 || rc != ZOK)
	{
		link->pace.pause_until = now + library_ms;
		return library_ms;
	}
	link->pace.pause_until = 0;
	polled->fd = link->fd;
	polled->events = 0;
	if (interest & ZOOKEEPER_READ)
		polled->events |= POLLIN;
	if (interest & ZOOKEEPER_WRITE)
		polled->events |= POLLOUT;
	return bound_connection(session, now, library_ms);
}

/*
 * Give up the connection, or the attempt, when its time is over.  Result: for how
 * many milliseconds there is nothing to be done.
 */
static int
bound_connection(Session *session, int64_t now, int library_ms)
{
	Link	   *link = &session->link;
	struct pollfd answer = {link->fd, POLLIN, 0};
	int64_t		left_ms = session_cut_at(session) - now;
	int64_t		received_at;

	if (left_ms <= 0 && tls_poll(&answer, 1, 0) > 0)
		return 0;				/* it was this process that was late */
	if (left_ms <= 0)
	{
		/* the library finds that it has ended, and turns to another server */
		link->attempt.cut = LINK_CUT_FOR_SILENCE;
		shutdown(tls_socket(link->fd, &received_at), SHUT_RDWR);
		return library_ms;
	}
	return left_ms < library_ms ? (int) left_ms : library_ms;
}

/*
 * Has the library no connection, after so many without an answer that each
 * server has had its turn?  It does not always pause then by itself: where it
 * finds that it cannot send it connects again at once, hundreds of times a
 * second to a server that grants a session and hangs up.
 */
static bool
is_pause_due(const Session *session)
{
	const Link *link = &session->link;
	int			state = zoo_state(session->zh);

	return link->pace.nunanswered > 0 && link->servers.naddresses > 0 &&
		link->pace.nunanswered % link->servers.naddresses == 0 &&
		link->pace.paused_behind != link->number && !link->servers.is_fresh &&
		state != ZOO_CONNECTED_STATE && state != ZOO_READONLY_STATE &&
		state != ZOO_CONNECTING_STATE && state != ZOO_ASSOCIATING_STATE;
}

/*
 * How long to leave the library alone once it has tried all servers: longer
 * from round to round until one of them has answered a request, whether they
 * refuse connections or make them and hang up.  Where the session will soon be
 * lost it tries as often as the library would, or at least four times in what
 * is left.
 */
static int
pause_between_rounds(Session *session, int64_t now, int library_ms)
{
	int64_t		most_ms = (int64_t) library_ms * PAUSE_FACTOR_MAX;
	int64_t		left_ms = session->early_deadline - now;

	if (session->status.state == ZK_CLIENT_SUSPENDED && most_ms > left_ms / 4)
		most_ms = left_ms / 4;
	return (int) program_pause_ms(library_ms, session->link.pace.nrounds++,
								  most_ms);
}

/*
 * If the library has just made another socket, that was the beginning of an
 * attempt to connect.  Its word that the connection before is gone may come
 * much later, when this process was stopped meanwhile, so that is no sign.
 */
static void
note_attempt(Session *session, Moment before)
{
	struct stat socket;

	if (session->link.fd < 0 || fstat(session->link.fd, &socket) != 0 ||
		socket.st_ino == session->link.attempt.socket)
		return;
	session->link.attempt.socket = socket.st_ino;
	session->link.pace.is_paused = false;
	session->link.attempt.begun = before;
	session_bound_attempt(session, before.boot_ms);
}

/* ---------------------------------------------------------------------
 * What comes, and what is sent
 * ---------------------------------------------------------------------
 */

/* Each call reads one message, if it is there as a whole. */
void
connection_process(Session *session, short revents)
{
	int			events = 0;

	if (revents & (POLLIN | POLLERR | POLLHUP))
		events |= ZOOKEEPER_READ;
	if (revents & (POLLOUT | POLLERR | POLLHUP))
		events |= ZOOKEEPER_WRITE;
	do
	{
		if (session->link.pace.nunanswered > 0 && session->link.is_up &&
			is_end_next(session))
			session_note_end(session, ZSESSIONCLOSEDREQUIRESASLAUTH);
	} while (zookeeper_process(session->zh, events) == ZOK &&
			 (events = events & ZOOKEEPER_READ) != 0 && session->link.is_up);
}

/*
 * Does the server demand authentication in its answer to what the library asks
 * by itself?  After a reconnect that goes ahead of all requests, and the library
 * passes over what is said to it.  A look at the bytes that it reads next, as
 * long as the server has answered none of ours.
 */
static bool
is_end_next(const Session *session)
{
	struct
	{
		uint32_t	length;
		uint32_t	xid;
		uint32_t	zxid[2];
		uint32_t	code;
	}			head;
	int32_t		xid;

	if (recv(session->link.fd, &head, sizeof(head),
			 MSG_PEEK | MSG_DONTWAIT) != sizeof(head))
		return false;
	xid = (int32_t) ntohl(head.xid);
	return ntohl(head.length) == sizeof(head) - sizeof(head.length) &&
		(xid == SET_WATCHES_XID || xid == PING_XID) &&
		(int32_t) ntohl(head.code) == ZSESSIONCLOSEDREQUIRESASLAUTH;
}

/* ---------------------------------------------------------------------
 * The close
 * ---------------------------------------------------------------------
 */

/*
 * The library closes the socket behind its last request.  A reply or a watch
 * that is still on its way then makes the kernel reset the connection, and
 * the server may throw away what it has not read of it, the close: the
 * session would live on for its timeout.  (Seen after the crash of a cluster:
 * sessions that lived on.  That this is why was not traced.)  So the socket
 * stays until the server has closed its end, which is its answer.  The backend
 * does not wait for that.
 *
 * The library itself waits for the answer for a while
 * (wait_for_session_to_be_closed()), by a poll() that knows nothing of TLS. So
 * there the request and the wait are ours.
 */
void
connection_close(Session *session)
{
	const uint32_t request[] = {htonl(8), htonl(1), htonl(ZOO_CLOSE_OP)};
	int64_t		now = protocol_now();
	bool		is_tls = tls_is_used(session->link.fd);
	int			socket = -1;

	tls_gather(-1);				/* the library does not come back to tls_poll() */
	if (session->link.is_up && is_tls)
		socket = session->link.fd;
	else if (session->link.is_up && session->link.fd >= 0)
		socket = dup(session->link.fd);
	if (socket >= 0 && is_tls)
	{
		send(socket, request, sizeof(request), MSG_NOSIGNAL | MSG_DONTWAIT);
		await_end(socket, now + ANSWER_MS);
	}
	else
		zookeeper_close(session->zh);
	if (socket < 0)
		return;
	close(PROTOCOL_CHANNEL_FD);
	await_end(socket, now + CLOSE_MS);
	close(socket);
}

/* Wait until the other end of that socket is closed, until that time at most. */
static void
await_end(int socket, int64_t deadline)
{
	struct pollfd polled = {socket, POLLIN, 0};

	for (int64_t now = protocol_now(); now < deadline; now = protocol_now())
		if (tls_poll(&polled, 1, (int) (deadline - now)) > 0 &&
			has_ended(socket))
			break;
}

/* Read what is there: was it the end? */
static bool
has_ended(int socket)
{
	char		rest[4096];
	ssize_t		received = recv(socket, rest, sizeof(rest), MSG_DONTWAIT);

	if (received < 0)
		return errno != EINTR && errno != EAGAIN;
	return received == 0;
}
