/*-------------------------------------------------------------------------
 *
 * program_main.c
 *	  The process and its loop.  Decides when the process ends.
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

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

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
 * Is it without a backend, so that nobody minds if it is asked to end?  The
 * handler of signals reads it, which is given nothing else.
 */
static volatile sig_atomic_t is_orphan;

static void prepare_process(void);
static void end_at_signal(int signal);
static void go_round(Session *session, int64_t now);
static bool wind_up(Session *session, int64_t now);
static bool is_heard_yet(const Session *session, int64_t now);
static int64_t end_deadline(const Session *session);
static int	milliseconds_until_next(Session *session, int64_t now);
static void take_frames(Session *session);
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
	session.settings.page = settings_page_map(PROTOCOL_SETTINGS_FD);
	close(PROTOCOL_SETTINGS_FD);	/* if there is one; the mapping stays */
	session.page = mmap(NULL, sizeof(SharedPage), PROT_READ | PROT_WRITE,
						MAP_SHARED, PROTOCOL_PAGE_FD, 0);
	if (session.page == MAP_FAILED)
		return 1;
	for (int64_t now = protocol_now(); !wind_up(&session, now);
		 now = protocol_now())
	{
		go_round(&session, now);
		is_orphan = session.orphaned_at != 0;
		show_session(&session);
	}
	if (session.names != NULL)
		names_end(session.names);
	if (session.zh != NULL)
		connection_close(&session);
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
 * the backend learn of it (ask_program() of board.c).
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
go_round(Session *session, int64_t now)
{
	struct pollfd polled[] = {
		{PROTOCOL_CHANNEL_FD, POLLIN, 0}, {-1, 0, 0}, {-1, POLLIN, 0}
	};

	atomic_store(&session->page->alive_at, now);
	session->wake_at = INT64_MAX;
	session_follow_names(session, now);
	if (session->zh != NULL && !is_unrecoverable(session->zh))
		program_wake_at(session,
						now + connection_prepare(session, now, &polled[1]));
	session_tick(session, now);
	idle_tick(session, now);
	follow_tick(session);
	step_tick(session, now);
	pulse_tick(session, now);
	keep_tick(session, now);
	settings_tick(session, now);
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

	if (session->link.is_up)
		tls_gather(session->link.fd);
	if (tls_poll(polled, 3, milliseconds_until_next(session, now)) <= 0)
		return;
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
		connection_process(session, polled[1].revents);
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
	int64_t		patience_ms = (int64_t) session_timeout_ms(session) *
		ORPHAN_TIMEOUTS;

	if (session->link.is_up)
	{
		if (session->status.state == ZK_CLIENT_LOST)
			since = session->status.lost_at;
		if (session->link.up_since > since)
			since = session->link.up_since;
		return since + DRAIN_MS;
	}
	if (since == 0)
		return INT64_MAX;
	if (patience_ms > ORPHAN_MAX_MS)
		patience_ms = ORPHAN_MAX_MS;
	return since + patience_ms;
}

static int
milliseconds_until_next(Session *session, int64_t now)
{
	if (session_is_ending(session) && is_heard_yet(session, now))
		program_wake_at(session, session->status.lost_at + DRAIN_MS);
	else if (session_is_ending(session))
		program_wake_at(session, end_deadline(session));
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
			settings_begin(session, &taken);
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
