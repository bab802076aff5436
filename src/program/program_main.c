/*-------------------------------------------------------------------------
 *
 * program_main.c
 *	  The session's program: its loop, its signals, its way out.
 *
 * The one rule: it lives for its backend and ends by itself.  The end of the
 * backend, in whatever way, is the end of file of the channel, and that is
 * the only thing that makes it close the session: its locks are let go then
 * and not earlier, so a signal from outside does not end it.  A crash does (a
 * hostile server can make the library fall over), without closing: the
 * backend learns of it while the ensemble still keeps its nodes.
 *
 * PostgreSQL as process 1 of a container inherits programs whose backends
 * were killed, and takes a child of which it knows nothing for a crashed
 * backend if it ends by a signal or with a status other than 0 or 1.  So it
 * ends with 0 or 1, whatever happens.
 *
 * Started to ask servers (program_ask.c) it has no session, and nothing to
 * keep: any signal ends it.
 *
 *-------------------------------------------------------------------------
 */
#include "program.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zookeeper/proto.h>

#include "program_tls.h"

/*
 * How long a close waits for outstanding requests before it goes ahead (R4).
 * A server in good health answers within milliseconds.
 */
#define DRAIN_MS 400

/*
 * For how many session timeouts it goes on looking for the ensemble once its
 * backend has gone, in order to close the session.  An ensemble that was away
 * for longer keeps the session's nodes for one timeout after it is back.
 */
#define ORPHAN_TIMEOUTS 2

/* But not for longer than that, whatever timeout a server has granted. */
#define ORPHAN_MAX_MS (5 * 60 * 1000)

/*
 * Most memory that it may have: a server that announces a reply of two
 * gigabytes costs its session and not the machine.  The longest frame takes
 * some 350 MB on its way through the library and our buffers.
 */
#define MEMORY_MAX (512 * 1024 * 1024)

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

/* The numbers of requests of the library's own, as in its zookeeper.c. */
#define PING_XID (-2)
#define SET_WATCHES_XID (-8)

/*
 * How long the server may take over a close before we leave it alone with it;
 * and for how long the backend waits with us.
 */
#define CLOSE_MS 3000
#define ANSWER_MS 1500

/*
 * Is it without a backend, so that nobody minds if it is asked to end?  The
 * handler of signals reads it, which is given nothing else.
 */
static volatile sig_atomic_t is_orphan;

static void prepare_process(void);
static void end_at_signal(int signal);
static void serve(Session *session, int64_t now);
static void note_attempt(Session *session, Moment before);
static void close_session(Session *session);
static void await_end(int socket, int64_t deadline);
static bool wind_up(Session *session, int64_t now);
static bool is_heard_yet(const Session *session, int64_t now);
static int64_t end_deadline(const Session *session);
static int	prepare_library(Session *session, int64_t now,
							struct pollfd *polled);
static int	pause_between_rounds(Session *session, int64_t now,
								 int library_ms);
static bool is_end_next(const Session *session);
static bool is_pause_due(const Session *session);
static int	milliseconds_until_next(Session *session, int64_t now);
static void take_frames(Session *session);
static void process_library(Session *session, short revents);
static void cork(const Session *session, bool is_corked);
static void show_session(Session *session);

int
main(int argc, char **argv)
{
	Session		session = {
		.link.fd = -1, .traffic.retry_at = INT64_MAX, .watcher = follow_event
	};

	if (argc < 1 || fcntl(PROTOCOL_CHANNEL_FD, F_GETFD) < 0)
	{
		fprintf(stderr, "This program is started by PostgreSQL's extension zklock and is of no use otherwise.\n");
		return 1;
	}
	session.title = strstr(argv[0], PROTOCOL_NO_STATE);
	prepare_process();
	move_map_settings(&session);
	session.page = mmap(NULL, sizeof(SharedPage), PROT_READ | PROT_WRITE,
						MAP_SHARED, PROTOCOL_PAGE_FD, 0);
	if (session.page == MAP_FAILED)
		return 1;
	for (int64_t now = protocol_now(); !wind_up(&session, now);
		 now = protocol_now())
	{
		serve(&session, now);
		is_orphan = session.orphaned_at != 0;
		show_session(&session);
	}
	if (session.names != NULL)
		names_end(session.names);
	if (session.zh != NULL)
		close_session(&session);
	exit(0);					/* all memory goes with the process */
}

/* ---------------------------------------------------------------------
 * The process
 * ---------------------------------------------------------------------
 */

/*
 * Nobody looks into its memory, where the password of the session and the
 * credentials are; it does not eat up the machine's; and what goes wrong in
 * it ends it with a status that tells PostgreSQL nothing.
 */
static void
prepare_process(void)
{
	static const int handled[] = {
		SIGTERM, SIGINT, SIGQUIT, SIGHUP,
#ifndef __SANITIZE_ADDRESS__	/* which wants to see and tell */
		SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGSYS, SIGTRAP, SIGXCPU,
		SIGXFSZ, SIGALRM, SIGVTALRM, SIGPROF, SIGUSR1, SIGUSR2, SIGIO
#endif
	};
	struct sigaction action = {
		.sa_handler = end_at_signal,.sa_flags = SA_ONSTACK
	};
	sigset_t	none;

#ifndef __SANITIZE_ADDRESS__
	static char stack[16 * 1024];	/* for when the other is used up */

	sigaltstack(&(stack_t) {.ss_sp = stack,.ss_size = sizeof(stack)}, NULL);
	prctl(PR_SET_DUMPABLE, 0);
	setrlimit(RLIMIT_DATA, &(struct rlimit) {MEMORY_MAX, MEMORY_MAX});
#endif
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	signal(SIGPIPE, SIG_IGN);
	sigfillset(&action.sa_mask);
	for (size_t i = 0; i < sizeof(handled) / sizeof(handled[0]); i++)
		sigaction(handled[i], &action, NULL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);	/* all are blocked until now */
}

/* Those that ask it to end are for a program without a backend. */
static void
end_at_signal(int signal)
{
	if (is_orphan || (signal != SIGTERM && signal != SIGINT &&
					  signal != SIGQUIT && signal != SIGHUP))
		_exit(1);
}

/*
 * Write a change of the session's state into the title, from which others than
 * the backend learn of it (read_backend() of inspect.c).
 */
static void
show_session(Session *session)
{
	const FrameStatus *status = &session->status;

	if (session->title == NULL || status->state == session->shown_state)
		return;
	session->shown_state = status->state;
	snprintf(session->title, sizeof(PROTOCOL_NO_STATE), "%-10s",
			 protocol_end_state((ZkClientState) status->state, status->loss));
}

/* ---------------------------------------------------------------------
 * The loop
 * ---------------------------------------------------------------------
 */

/* Once round: what is due, what the backend wants, what the ensemble says. */
static void
serve(Session *session, int64_t now)
{
	struct pollfd polled[] = {
		{PROTOCOL_CHANNEL_FD, POLLIN, 0}, {-1, 0, 0}, {-1, POLLIN, 0},
		{-1, 0, 0}, {-1, 0, 0}	/* MOVE_NPOLLED */
	};
	bool		is_sending;

	atomic_store(&session->page->alive_at, now);
	session->wake_at = INT64_MAX;
	session_follow_names(session, now);
	if (session->zh != NULL && !is_unrecoverable(session->zh))
		program_wake_at(session,
						now + prepare_library(session, now, &polled[1]));
	session_tick(session, now);
	idle_tick(session, now);
	follow_tick(session);
	step_tick(session, now);
	pulse_tick(session, now);
	keep_tick(session, now);
	move_tick(session, now);
	session_report(session);
	backend_flush(session);
	if (session->names != NULL)
		polled[2].fd = names_descriptor(session->names);
	if (session_is_opening(session))
		polled[0].events = POLLRDHUP;	/* what it wants can wait */
	if (session->orphaned_at != 0)
		polled[0].fd = -1;
	else if (session->out.start < session->out.end && session->is_out_urgent)
		polled[0].events |= POLLOUT;

	move_poll(session, &polled[3]);

	if (tls_poll(polled, 3 + MOVE_NPOLLED, milliseconds_until_next(session, now)) <= 0)
		return;

	/* answers alone hardly ever lead to a request */
	is_sending = polled[0].revents != 0 || !session->link.is_up;
	if (is_sending)
		cork(session, true);
	if (polled[2].revents != 0)
	{
		session_take_names(session, now);
		take_frames(session);
	}
	if (polled[0].revents & POLLRDHUP)
		backend_note_end(session);
	else if (polled[0].revents & (POLLIN | POLLHUP | POLLERR))
	{
		backend_read(session);
		take_frames(session);
	}
	if (polled[1].revents != 0)
		process_library(session, polled[1].revents);
	move_hear(session, &polled[3]);
	if (is_sending)
		cork(session, false);
}

/*
 * What does the library wait for, and for how many milliseconds?  Between two
 * attempts to connect it has to be left alone: each time it is asked it takes
 * the pause for over, and who asks the backend again and again would have it
 * connect as often.
 */
static int
prepare_library(Session *session, int64_t now, struct pollfd *polled)
{
	struct timeval timeout = {0};
	Moment		before = {0};
	int			interest = 0;
	int			rc;
	int			library_ms;
	int64_t		left_ms;
	int64_t		received_at;

	if (now < session->link.pause_until)
		return (int) (session->link.pause_until - now);
	left_ms = session_names_ms(session, now);
	if (left_ms > 0)
	{
		session->link.fd = -1;
		return (int) left_ms;
	}
	if (is_pause_due(session))
	{
		session->link.paused_behind = session->link.number;
		session->link.is_paused = true;
		session->link.fd = -1;
		library_ms = pause_between_rounds(session, now,
										  session->status.session_timeout_ms / 60);
		session->link.pause_until = now + library_ms;
		return library_ms;
	}
	if (zoo_state(session->zh) != ZOO_CONNECTED_STATE)
		before = protocol_moment();
	rc = zookeeper_interest(session->zh, &session->link.fd, &interest,
							&timeout);
	if (before.boot_ms != 0)
		note_attempt(session, before);
	library_ms = (int) (timeout.tv_sec * 1000 + timeout.tv_usec / 1000);
	if (rc != ZOK && library_ms < RETRY_MS)
		library_ms = RETRY_MS;
	session->link.pause_until = 0;
	if (session->link.fd < 0 && rc == ZOK)
		library_ms = session->link.is_list_fresh || session->link.is_paused ?
			0 : pause_between_rounds(session, now, library_ms);
	session->link.is_list_fresh = false;
	if (session->link.fd < 0 || rc != ZOK)
		session->link.pause_until = now + library_ms;
	else
	{
		struct pollfd answer = {session->link.fd, POLLIN, 0};

		polled->fd = session->link.fd;
		polled->events = (short) ((interest & ZOOKEEPER_READ ? POLLIN : 0) |
								  (interest & ZOOKEEPER_WRITE ? POLLOUT : 0));
		left_ms = session_cut_at(session) - now;
		if (left_ms <= 0 && tls_poll(&answer, 1, 0) > 0)
			library_ms = 0;		/* it was this process that was late */
		else if (left_ms <= 0)
		{
			/* the library finds that it has ended, and turns to another server */
			session->link.is_cut = true;
			shutdown(tls_socket(session->link.fd, &received_at), SHUT_RDWR);
		}
		else if (left_ms < library_ms)
			library_ms = (int) left_ms;
	}
	return library_ms;
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

	return link->nunanswered > 0 && link->naddresses > 0 &&
		link->nunanswered % link->naddresses == 0 &&
		link->paused_behind != link->number && !link->is_list_fresh &&
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
	return (int) program_pause_ms(library_ms, session->link.nrounds++,
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
		socket.st_ino == session->link.socket)
		return;
	session->link.socket = socket.st_ino;
	session->link.is_paused = false;
	session->link.attempt_at = before;
	session_bound_attempt(session, before.boot_ms);
}

/*
 * If the session is ending, tell the backend why.  Result: is all done that is
 * to be done?  A session that is to be closed is closed with nothing
 * outstanding (R4), or when that takes too long.
 */
static bool
wind_up(Session *session, int64_t now)
{
	if (!session_is_ending(session))
		return false;

	/* the backend is to hear why, if it listens */
	session_report(session);
	backend_flush(session);
	if (is_heard_yet(session, now))
		return false;
	if (!session_may_live(session) || now >= end_deadline(session))
		return true;
	return session->link.is_up && session->traffic.npending == 0;
}

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
static void
close_session(Session *session)
{
	const uint32_t request[] = {htonl(8), htonl(1), htonl(ZOO_CLOSE_OP)};
	int64_t		now = protocol_now();
	bool		is_tls = tls_is_used(session->link.fd);
	int			socket = !session->link.is_up || session->link.fd < 0 ? -1 :
		is_tls ? session->link.fd : dup(session->link.fd);

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
	char		rest[4096];
	ssize_t		received;

	for (int64_t now = protocol_now(); now < deadline; now = protocol_now())
		if (tls_poll(&polled, 1, (int) (deadline - now)) > 0 &&
			(received = recv(socket, rest, sizeof(rest), MSG_DONTWAIT)) <= 0 &&
			(received == 0 || (errno != EINTR && errno != EAGAIN)))
			break;
}

/* Is the backend still taking in why the session was lost? */
static bool
is_heard_yet(const Session *session, int64_t now)
{
	return session->orphaned_at == 0 && session->is_out_urgent &&
		now < session->status.lost_at + DRAIN_MS;
}

/* When a session that is ending is not waited for any longer. */
static int64_t
end_deadline(const Session *session)
{
	int64_t		since = session->orphaned_at;
	int64_t		patience = (int64_t) ORPHAN_TIMEOUTS *
		(session->status.session_timeout_ms > 0 ?
		 session->status.session_timeout_ms : session->open.session_timeout_ms);

	if (!session->link.is_up)
		return since == 0 ? INT64_MAX :
			since + (patience < ORPHAN_MAX_MS ? patience : ORPHAN_MAX_MS);
	if (session->status.state == ZK_CLIENT_LOST)
		since = session->status.lost_at;
	return DRAIN_MS +
		(session->link.up_since > since ? session->link.up_since : since);
}

static int
milliseconds_until_next(Session *session, int64_t now)
{
	if (session_is_ending(session))
		program_wake_at(session, is_heard_yet(session, now) ?
						session->status.lost_at + DRAIN_MS :
						end_deadline(session));
	if (session->wake_at == INT64_MAX)
		return -1;
	return session->wake_at > now ? (int) (session->wake_at - now) : 0;
}

/* What has been read; but until there is a handle what is behind its opening stays. */
static void
take_frames(Session *session)
{
	FrameBuffer *in = &session->in;
	FrameTaken	taken;
	FrameVerdict verdict = FRAME_INCOMPLETE;

	while (!session_is_opening(session) && in->start < in->end &&
		   (verdict = frame_take(in, FRAME_TO_PROGRAM, &taken)) ==
		   FRAME_COMPLETE)
	{
		/* the first frame opens the session, all others want something of it */
		if (session->open.backend_pid == 0 && taken.frame.kind == FRAME_ASK)
		{
			is_orphan = true;
			program_ask(&taken);
			exit(0);
		}
		if ((session->open.backend_pid == 0) != (taken.frame.kind == FRAME_OPEN))
			exit(1);
		if (session->open.backend_pid == 0)
		{
			move_begin(session, &taken);
			session_open(session, &taken);
		}
		else if (!command_take(session, &taken))
			exit(1);
		frame_buffer_consume(in, 0);
	}
	if (verdict == FRAME_WRONG_VERSION)
	{
		/* any frame of ours tells it, too */
		session->is_status_news = true;
		session_report(session);
		backend_flush(session);
	}
	if (verdict == FRAME_WRONG_VERSION || verdict == FRAME_INVALID)
		exit(1);
}

/* Each call reads one message, if it is there as a whole. */
static void
process_library(Session *session, short revents)
{
	int			events = 0;

	if (revents & (POLLIN | POLLERR | POLLHUP))
		events |= ZOOKEEPER_READ;
	if (revents & (POLLOUT | POLLERR | POLLHUP))
		events |= ZOOKEEPER_WRITE;
	do
	{
		if (session->link.nunanswered > 0 && session->link.is_up &&
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

/*
 * The library sends each request in two parts, its length first, and the
 * server would wake up for both of them, of all requests that go out together.
 * Held back until all are there they are one packet, as a rule.
 */
static void
cork(const Session *session, bool is_corked)
{
	int			value = is_corked;

	/* with TLS all that is sent until the next poll goes as one record */
	if (session->link.fd >= 0 && !tls_is_used(session->link.fd))
		setsockopt(session->link.fd, IPPROTO_TCP, TCP_CORK, &value,
				   sizeof(value));
}

