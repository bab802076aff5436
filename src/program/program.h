/*-------------------------------------------------------------------------
 *
 * program.h
 *	  What the modules of the program share, and the traps of ZooKeeper's
 *	  library.
 *
 * The program holds one ZooKeeper session for one backend, with the library's
 * single-threaded client: one loop, one thread, no lock.  It ends with its
 * backend, and the session with it.
 *
 * Each of its modules calls only those below it (test/lib/circles.pl):
 *
 *	program_main.c		the loop: channel, library, clock; signals; the way out
 *	program_ask.c		the other mode, without a session: asking servers
 *	program_command.c	what the backend asks for, frame by frame
 *	program_settings.c	other servers, while the session lives
 *	program_pulse.c		heartbeats, and what else it asks by itself
 *	program_idle.c		does anything depend on the session?
 *	program_follow.c	what is watched: for the wait, and for kept locks
 *	program_step.c		the steps of requests, and what follows (program_request.h)
 *	program_library.c	a step in the library's terms
 *	program_request.c	the requests, and where each stands
 *	program_connection.c	its connection to a server: when, how long, the close
 *	program_session.c	the handle and the states of the session
 *	program_code.c		what ZooKeeper's codes mean
 *	program_names.c		look-ups of the servers' names (program_names.h)
 *	program_tls.c		connections with TLS (program_tls.h), and
 *	program_openssl.c	what OpenSSL does for them; or
 *	program_plain.c		connections without
 *	program_backend.c	the program's end of the channel
 *	program_time.c		when something is to be done next
 *
 * The library calls back: completions come with the request that they are for,
 * which has the function that goes on (answered); events of watched paths go to
 * the function that the session has for them (watcher).
 *
 * No module of another family calls the ZooKeeper library.  Its traps, found by
 * experiment with release 3.8.0, have numbers that the comments refer to:
 *	R1	numeric addresses only, its own name resolution switched off
 *	R2	an odd number of addresses (ZOOKEEPER-2466)
 *	R4	no close with requests outstanding: the server may never see the close
 *	R6	transactions of several operations (send_several())
 *		only of a session that is not over, with paths that are checked: if
 *		zoo_amulti() itself refuses any of them but the last, it frees memory
 *		that is not its own.  None creates a container: the reply is not
 *		understood
 *	R8	a timed-out request has an unknown outcome, like a lost connection
 *	R10	a nudge when no answer comes (ZOOKEEPER-4537)
 *	R12	never a NULL completion
 *	R13	another list of servers (zoo_set_servers()) only without a connection: it
 *		is closed silently, sometimes by chance.  Two lists are the same to it if
 *		they differ by ports alone.  So one goes in between that has nothing in
 *		common with either, and is never used (give_list()).  It tries the new
 *		list from its beginning, as a rule each of them once before it goes on at
 *		its usual pace, with a pause in each round
 * Those that have to do with threads do not apply to this client.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_PROGRAM_H
#define ZKLOCK_PROGRAM_H

#include <assert.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/types.h>

#include <zookeeper/zookeeper.h>

#include "program_names.h"
#include "protocol.h"
#include "servers.h"
#include "settings_page.h"

typedef struct Request Request;
typedef struct Keep Keep;

/* Which watch a read sets, or a request removes. */
typedef enum WatchOf
{
	WATCH_NONE,
	WATCH_DATA,
	WATCH_CHILDREN
} WatchOf;

/* What the backend waits for: the one path that is watched for that. */
typedef struct Wait
{
	char	   *path;			/* NULL: it waits for nothing */
	uint64_t	id;				/* its request; this and the rest are valid if
								 * there is a path */
	WatchOf		watch;			/* not NONE */
	bool		is_set;			/* the watch surely is there, until the event */
} Wait;

/* The servers, as the library has them, and the look-ups of their names. */
typedef struct LinkServers
{
	int			naddresses;		/* in the library's list */
	bool		is_late;		/* the names may have other addresses by now */
	bool		is_fresh;		/* the library has just got another list: no
								 * pause before it is tried */
	int64_t		look_up_at;		/* without a connection: when the names are
								 * looked up again */
	int			nlook_ups;		/* in a row */
	int64_t		names_until;	/* the first attempt behind a connection waits
								 * for the look-ups until then */
} LinkServers;

/* Why the program has ended a connection, or an attempt, by itself. */
typedef enum LinkCut
{
	LINK_NOT_CUT,
	LINK_CUT_FOR_SILENCE		/* its time was over */
} LinkCut;

/* The last attempt to connect; what it has brought is the connection. */
typedef struct LinkAttempt
{
	ino_t		socket;			/* of it */
	Moment		begun;			/* when it was, or before */
	int64_t		until;			/* when it is given up */
	int			number;			/* of attempts in a row */
	LinkCut		cut;			/* the library will notice that */
	bool		is_hurried;		/* it has less time: its server was silent */
} LinkAttempt;

/* Pauses between attempts, and how long there was no answer. */
typedef struct LinkPace
{
	int64_t		pause_until;	/* without a connection: the library is not to
								 * try again before */
	int64_t		rest_at;		/* of a session that is to be closed: until when
								 * it tries to connect for that; 0: no attempt
								 * has reached a server */
	int			nrounds;		/* how often the library has tried all servers
								 * since the last answer */
	unsigned	paused_behind;	/* Link.number when there was a pause of our
								 * own last */
	bool		is_paused;		/* there was no attempt since then */
	int			nunanswered;	/* connections since the last answer */
	int64_t		unanswered_at;	/* when the first of them was made; valid if
								 * there are any */
	int			ndemands;		/* connections since the last answer over which
								 * a server has demanded authentication */
	unsigned	demanded_over;	/* Link.number of the last of these; valid if
								 * there are any */
} LinkPace;

/* What was asked and answered over the connection; valid if it is up. */
typedef struct LinkContact
{
	ContactLog	log;
	int64_t		asked_at;		/* when anything was sent last that dates proofs:
								 * a request to the leader, or a nudge */
	int64_t		asked_leader_at;	/* when anything was sent last that the leader
									 * answers; 0: nothing was yet, but is to be
									 * at once */
	int64_t		led_at;			/* when the leader answered last, or the
								 * connection was made */
	int64_t		unled_at;		/* when it was first asked after that; 0: it
								 * was not */
} LinkContact;

/* The connection that ended last. */
typedef struct LinkEnd
{
	int64_t		contact_at;		/* its last contact; 0: unknown */
	bool		was_silent;		/* did it end for silence? */
	char		silent[80];		/* the server that was silent last, or "" */
} LinkEnd;

/* The connection to a server; program_session.c and program_connection.c. */
typedef struct Link
{
	int			fd;				/* of the connection, -1 if there is none */
	bool		is_up;			/* there is one, and the session is granted */
	unsigned	number;			/* how many there were that did */
	int64_t		up_since;		/* valid if it is */
	int64_t		suspended_ms;	/* how long the machine had been suspended
								 * when the connection was made */
	LinkServers servers;
	LinkAttempt attempt;
	LinkPace	pace;
	LinkContact contact;
	LinkEnd		end;
} Link;

/* Does the backend stand still?  program_idle.c. */
typedef struct Standstill
{
	int64_t		since;			/* when the backend was first seen to stand
								 * still; 0: it does not */
	long long	switches;		/* how often it had run by then */
	int64_t		next_check_at;	/* of that */
} Standstill;

/* Is the session of no use?  program_idle.c. */
typedef struct Idleness
{
	int64_t		since;			/* when it was first seen to be idle; 0: it is
								 * not */
	uint64_t	use;			/* SharedPage.use then */
} Idleness;

/* Its requests; program_request.h. */
typedef struct Traffic
{
	Request    *all;			/* the newest first */
	uint64_t	nmade;			/* how many there have been */
	int			npending;		/* sent, or to be sent, and not answered */
	int64_t		pending_since;	/* the first of them, or the last answer;
								 * valid if there are any, as the next */
	int64_t		nudge_at;		/* when a nudge goes out behind them */
	int64_t		retry_at;		/* the next attempt of one that was refused;
								 * INT64_MAX: there is none */
	int			nsearches;		/* requests that are a LATE_SEARCH */
	bool		is_write_put_off;	/* was the last write that an ERASE sends
									 * ahead of its look not executed? */
} Traffic;

/* The settings that the session follows; program_settings.c. */
typedef struct Following
{
	const SettingsPage *page;	/* NULL: the postmaster could not make it */
	uint32_t	state;			/* of it that was read last */
	char	   *servers;		/* in use; NULL before the session is opened */
	char	   *tls;			/* likewise; "": no TLS */
	int64_t		tls_again_at;	/* when other ones are tried again that did not
								 * work; INT64_MAX: never */
} Following;

/* The session.  There is one in the process, but it is handed around. */
typedef struct Session
{
	/* the backend's side; program_backend.c */
	FrameBuffer in;
	FrameBuffer out;
	bool		is_out_urgent;	/* something in out is news for the backend */
	int64_t		wake_at;		/* when something is to be done next, if
								 * nothing happens before */
	SharedPage *page;
	Following	settings;		/* program_settings.c */
	char	   *title;			/* where ps shows the state of the session
								 * (PROTOCOL_TITLE); NULL: nowhere */
	int32_t		shown_state;	/* there; ZkClientState */
	FrameOpen	open;			/* what it asked for; all zero before that */
	int64_t		orphaned_at;	/* when its end of the channel was closed; 0:
								 * it is there */

	/* what the library has to do with; program_session.c */
	zhandle_t  *zh;				/* NULL before an address is known */
	Names	   *names;			/* of the servers; NULL before it is opened */
	ServerAddresses addresses;	/* in the library's list */
	char	   *scheme;			/* the credentials, until there is a handle; */
	char	   *credentials;	/* both NULL if there are none */
	bool		is_slow;		/* a look-up has taken long, and goes on */
	Link		link;

	FrameStatus status;			/* as it is to be reported */
	char		server[80];
	char		tls[TLS_TEXT_SIZE]; /* what its connection is like */
	char		last_error[512];
	bool		is_status_news; /* report it at the next flush */
	int64_t		lost_deadline;	/* SUSPENDED: when it is lost */
	int64_t		early_deadline; /* and when, if that is to interrupt the
								 * backend */

	bool		has_auth;		/* it has credentials */
	Standstill	standstill;
	Idleness	idleness;
	Traffic		traffic;
	watcher_fn	watcher;		/* gets the events of watched paths */
	Keep	   *keeps;			/* by slot; NULL before the first;
								 * program_follow.c */
	Wait		wait;			/* program_follow.c */
	bool		is_watch_over;	/* nothing is to be watched any more, and
								 * follow_tick() is to see to that */
} Session;

/*
 * That memory, or the end of the program without it: the backend cannot be
 * told of what nobody waits for, and the end of the session removes its nodes.
 */
static inline void *
program_need(void *memory)
{
	if (memory == NULL)
		exit(1);
	return memory;
}

/* ---- program_time.c ---- */

/*
 * The pause ahead of another attempt, in milliseconds, when so many pauses were
 * made before: each is twice as long as the one before, until it has the
 * greatest length, and it is not as long as those of others.
 */
extern int64_t program_pause_ms(int64_t least_ms, int nbefore,
								int64_t most_ms);

/* At that time, at the latest, the loop is to go round again. */
extern void program_wake_at(Session *session, int64_t at);

/* ---- program_backend.c ---- */

/* Read what the backend has sent; or it has gone. */
extern void backend_read(Session *session);

/*
 * The backend has closed its end of the channel.  Before the session was opened
 * there is nothing to do then but end.
 */
extern void backend_note_end(Session *session);

/*
 * May the session be ended, for its backend holds nothing and has not used it
 * since that word of use?  Then no use of it begins any more.  The backend says
 * in the page that it uses the session before it sends anything, and that it
 * does not any more when all is sent; locks that it is granted are in use before
 * that.  So if the channel is empty then, no request is on its way.
 *
 * A kept lock is taken back without a use: it may be lost in the moment in which
 * it is counted.
 */
extern bool backend_finish_use(const Session *session, uint64_t use);

/*
 * From now on the end of the backend ends this process at once, in an orderly
 * manner; exits if it has ended already.
 */
extern void backend_end_with_it(void);

/* Append a frame for the backend, which wakes it if it is urgent. */
extern void backend_put(Session *session, const Frame *frame,
						const FrameBlob blobs[FRAME_NBLOBS], bool is_urgent);

/* Send the backend all that there is for it, as far as it reads. */
extern void backend_flush(Session *session);

/* Interrupt the backend, if it wants that. */
extern void backend_interrupt(Session *session);

/* ---- program_ask.c ---- */

/* Ask the servers of a list how they are, as that FRAME_ASK says. */
extern void program_ask(const FrameTaken *frame);

/* ---- program_connection.c ---- */

/*
 * What does the library wait for?  Result: for how many milliseconds, at most, it
 * is to be left alone unless that comes.
 */
extern int	connection_prepare(Session *session, int64_t now,
							   struct pollfd *polled);

/* Something of that has come: let the library read and write. */
extern void connection_process(Session *session, short revents);

/* Close the session and, as far as there is time, wait for the server's answer. */
extern void connection_close(Session *session);

/* ---- program_session.c ---- */

/*
 * Begin to look the servers up, and connect as soon as there is an address, as
 * the frame says.
 */
extern void session_open(Session *session, const FrameTaken *opening);

/*
 * Does it wait for the first address?  Until then nothing can be asked of the
 * ensemble.
 */
extern bool session_is_opening(const Session *session);

/* Look names up that are due, and give the library what is known by now. */
extern void session_follow_names(Session *session, int64_t now);

/*
 * For how many milliseconds is the library not to try again, because names are
 * being looked up since the connection broke?
 */
extern int64_t session_names_ms(const Session *session, int64_t now);

/* A look-up has something to say. */
extern void session_take_names(Session *session, int64_t now);

/*
 * Its servers are those from now on, as far as they are known and found out
 * later: they are used from the next connection on.
 */
extern void session_adopt(Session *session, Names *names);

/*
 * Do what is due by now, and say what is due next, here and below: declare a
 * session lost that was suspended for too long, or is not answered.
 */
extern void session_tick(Session *session, int64_t now);

/*
 * Over for good, as far as the backend is concerned, or without a backend: it
 * is to be closed.
 */
extern bool session_is_ending(const Session *session);

/* That was granted; before that, the one that was asked for. */
extern int	session_timeout_ms(const Session *session);

/*
 * Is there, as far as is known, a session in the ensemble that is to be
 * closed?
 */
extern bool session_may_live(const Session *session);

/*
 * Notice a connection that the library has dropped while it sent a request.
 */
extern void session_check_connection(Session *session);

/* An attempt to connect was begun: until when is it to be answered? */
extern void session_bound_attempt(Session *session, int64_t now);

/*
 * When is the connection, or the attempt, to be given up for another server?
 * INT64_MAX: never, the library does that.
 */
extern int64_t session_cut_at(const Session *session);

/*
 * It will never be of use again.  What is to be repeated or watched may be the
 * reason, and must not be in the way of the close.
 */
extern void session_end(Session *session, ZkClientLoss loss);

/*
 * The same where that is no reason.  If it is lost already, that counts, and
 * nothing happens.
 */
extern void session_lose(Session *session, ZkClientLoss loss);

/*
 * That machine was to make a move that is not legal (moves.h): the session is
 * lost, and the process ends.
 */
extern void session_end_illegal(Session *session, const char *machine,
								int from, int to) __attribute__((noreturn));

/* Put a changed status among the frames for the backend. */
extern void session_report(Session *session);

/*
 * A server has said a code that ends the session (code_loss()), or at least its
 * connection.
 */
extern void session_note_end(Session *session, int code);

/* Keep an error to be reported. */
extern void session_set_error(Session *session, const char *format,...)
			__attribute__((format(printf, 2, 3)));

/* ---- program_code.c ---- */

/* What that code of ZooKeeper's means for the request that it answers. */
extern ZkResult code_result(int code);

/* If a server says it: what it ends the session with; ZK_LOSS_NONE: nothing. */
extern ZkClientLoss code_loss(int code);

/* The words for it, which are valid until the next call. */
extern const char *code_text(int code);

/* ---- program_command.c ---- */

/* Do what a frame of the backend's asks for.  false if it makes no sense. */
extern bool command_take(Session *session, const FrameTaken *taken);

/* ---- program_pulse.c ---- */

/* Send a heartbeat, a pulse or a nudge (R10) if one is due. */
extern void pulse_tick(Session *session, int64_t now);

/* ---- program_idle.c ---- */

/*
 * Does nothing depend on the session?  The backend holds, awaits and keeps
 * nothing, and all requests are over.  A search for a node that may be made
 * late does not count while it waits for the next connection: with the end of
 * the session its object is gone, too.
 */
extern bool idle_is(const Session *session);

/* End a session that was idle for long, or whose backend stands still. */
extern void idle_tick(Session *session, int64_t now);

/* ---- program_follow.c ---- */

/* The library's watcher for all that is followed. */
extern void follow_event(zhandle_t *zh, int type, int state,
						 const char *path, void *context);

/* See to it that nothing is watched, once the session has ended. */
extern void follow_tick(Session *session);

/* From now on the backend waits for what that watched request reads. */
extern void wait_begin(Session *session, Request *request);

/* The backend does not wait any more: the watch goes. */
extern void wait_end(Session *session);

/* The same where the watch is gone already. */
static inline void
wait_forget(Wait *wait)
{
	free(wait->path);
	wait->path = NULL;
}

/* Do what a FRAME_KEEP asks for. */
extern void keep_take(Session *session, const FrameTaken *taken);

/* Give up those whose time is over. */
extern void keep_tick(Session *session, int64_t now);

/* Is any lock kept, or held so that it may be? */
extern bool keep_is_any(const Session *session);

/* ---- program_step.c ---- */

/* Send the requests that are due, and say when the next one is. */
extern void step_tick(Session *session, int64_t now);

/* ---- program_settings.c ---- */

/* The session is being opened with the servers of that frame. */
extern void settings_begin(Session *session, const FrameTaken *opening);

/* See whether other servers or other settings of TLS are in use by now. */
extern void settings_tick(Session *session, int64_t now);

#endif							/* ZKLOCK_PROGRAM_H */
