/*-------------------------------------------------------------------------
 *
 * program_request.h
 *
 * Also declares what program_step.c and program_library.c have.
 *
 * A request has a step: what is asked of the ensemble now, a RequestKind.  It
 * begins with the kind that the backend has asked for, or that the program asks
 * for by itself, and may go on to others (legal_steps in program_request.c).
 * And it has a state, which says where it stands: is it with the library, is it
 * to be sent again, does it stay for the backend?
 *
 * Each of these modules calls those below it, and is called by none of them:
 *
 *	program_step.c		sends a step, and decides what follows from its answer
 *	program_library.c	a step in the library's terms: how it is sent, and what
 *						its answer brings
 *	program_request.c	the requests of a session: made, found, freed; their
 *						states; what the backend is told of them
 *
 * Ownership: a request is in the list of its session and freed with its last
 * step, save for those that the backend may still undo or listen to: these
 * wait for the backend's message.  The library has the pointer of a request
 * from the sending to the answer, and gives exactly one, with the end of the
 * connection at the latest.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_PROGRAM_REQUEST_H
#define ZKLOCK_PROGRAM_REQUEST_H

#include "answer.h"
#include "program.h"

/*
 * How long a request may stay unanswered before a nudge goes out behind it: a
 * server 3.6.0 to 3.8.0 may forget to answer until something else happens
 * (R10, ZOOKEEPER-4537).  The next one goes out when it has taken twice as
 * long: behind a network that was silent for half a session timeout, and then
 * delivered all that 2,000 sessions had sent, those of a fixed pace were most
 * of it (make bench SCALE=1 STORMS=silence).
 */
#define NUDGE_MS 300

/* Where a request stands; request_set_state() alone moves it. */
typedef enum RequestState
{
	REQUEST_NEW,				/* not sent yet */
	REQUEST_SENT,				/* the library has it */
	REQUEST_ANSWERED,			/* what follows is being decided; or nothing
								 * does, and it stays for the backend, or
								 * because a watch may have news of it */
	REQUEST_DUE,				/* to be sent at due_at */
	REQUEST_AWAITS_CONNECTION	/* to be sent with the next connection */
} RequestState;

/* What the backend wants of it. */
typedef enum RequestWish
{
	WISH_HEAR,					/* it hears of the reply, and may come back to
								 * the request */
	WISH_DO,					/* it is to be done, and nobody hears of it */
	WISH_UNDO					/* what it has made is to go */
} RequestWish;

/* What is counted in the page when it is over. */
typedef enum RequestOwed
{
	OWED_FINISHED = 1,			/* one more that is over: SharedPage.nfinished */
	OWED_UNDONE = 2				/* one more that is undone, or a LEAVE that is
								 * awaited: SharedPage.nundone */
} RequestOwed;

/* What a server has said, as it goes to the backend. */
typedef struct Answer
{
	FrameReply	reply;
	int			code;			/* the library's */
	char	   *path;
	char	   *data;
	int			data_length;
	char	   *children;		/* one behind the other, with their NULs */
	size_t		children_size;
} Answer;

/* It was refused, and is repeated. */
typedef struct Refusal
{
	int64_t		since;			/* 0: it was not */
	int			pause_ms;		/* the last one between two attempts */
} Refusal;

/* It was not executed, or is behind one that was not, and is asked again. */
typedef struct PutOff
{
	int64_t		since;			/* 0: it is not */
	int			count;			/* how often since */
} PutOff;

/* CREATE, CREATE_GUARDED, MOVE, SET: what is written. */
typedef struct Content
{
	char	   *data;
	int			length;
} Content;

/* CHECK; of an ERASE the write ahead of its look. */
typedef struct CheckStep
{
	int64_t		czxid;			/* that the node must have; 0: any */
	bool		is_looked_at;	/* a look at the node is under way */
	zoo_op_t	op;				/* must outlive the call, as the result */
	zoo_op_result_t result;
} CheckStep;

/* LEAVE. */
typedef struct Leaving
{
	char	   *lock;			/* the name of the lock */
	int64_t		token;			/* its fencing token */
	bool		is_in_doubt;	/* an attempt may have deleted the node */
} Leaving;

/* DELETE_GUARDED, CREATE_GUARDED, MOVE: one transaction. */
typedef struct Several
{
	int			guard_version;	/* that the guard must have */
	char	   *guard;			/* CREATE_GUARDED; of a DELETE_GUARDED it is
								 * path, which is set */
	char	   *old_node;		/* MOVE: the node that goes */
	char	   *set_node;		/* the one that is set; NULL: none */
	const char *set_data;		/* valid with that: behind it */
	struct Stat set_stat;		/* what becomes of it; must outlive the call */
	char	   *nodes;			/* DELETE_GUARDED: those that go, one behind the
								 * other, with their NULs */
	int			nodes_length;
	int			node_version;	/* that each of them must have; -1: any */
	zoo_op_result_t *results;	/* must outlive the call */
} Several;

/* May a node come of it after its last answer, and is that looked for? */
typedef enum Lateness
{
	LATE_NEVER,					/* a server has answered each attempt */
	LATE_PERHAPS,				/* an answer was lost: it may be executed yet */
	LATE_SEARCH					/* an ERASE, or the DELETE of what it found,
								 * that goes out with each new connection */
} Lateness;

/*
 * What the next look finds was made before the session went on over another
 * connection.  It is as the backend will find it, and stays.
 */
#define MADE_IN_TIME (-1)

/* CREATE, and the ERASE and DELETE of what it has made. */
typedef struct Search
{
	Lateness	lateness;
	char	   *prefix;			/* ERASE of a sequential node: its name without
								 * the number, and path is its parent.  NULL:
								 * path is the node */
	int64_t		spared;			/* without a prefix: the czxid of the node that
								 * is to stay; 0: none, or MADE_IN_TIME */
} Search;

struct Request
{
	uint64_t	id;				/* the backend's number; 0: it has none */
	uint64_t	order;			/* among all of the session */
	Session    *session;
	Request    *next;			/* in the session's list, and the one before */
	Request    *previous;

	RequestKind step;			/* what is asked; request_go_on() changes it */
	char	   *path;			/* the znode that the step reads, makes, sets,
								 * or deletes */
	bool		is_repeated;	/* SET, DELETE, LEAVE: until it is confirmed */

	RequestState state;
	int64_t		due_at;			/* valid if it is DUE */
	Refusal		refusal;
	PutOff		put_off;

	RequestWish wish;
	unsigned	owed;			/* of RequestOwed */

	/* valid from the first sending on */
	Moment		sent_at;		/* the last attempt; set before that is made */
	unsigned	sent_over;		/* the number of its connection */
	void		(*answered) (Request *request); /* called when it is */
	Answer		answer;			/* the last one; valid once there was any */

	/* of some kinds and steps: their comments say of which */
	ZkNodeKind	node_kind;		/* both CREATEs, MOVE: what is made */
	int			version;		/* SET and DELETE: that the node must have; -1:
								 * any */
	WatchOf		watch;			/* LIST, GET, WATCHED: is set; UNWATCH: is removed */
	void		(*listed) (Request *request);	/* a LIST of the program's own:
												 * it is answered */
	Content		content;
	CheckStep	check;
	Leaving		leaving;
	Several		several;
	Search		search;
};

/* ---- program_request.c ---- */

/* One that has that number of the backend's, and counts as under way. */
extern Request *request_new(Session *session, uint64_t id, RequestKind step,
							const char *path);

/* One of our own, of which the backend knows nothing and hears nothing. */
extern Request *request_new_silent(Session *session, RequestKind step,
								   const char *path);

/* It must not be with the library. */
extern void request_free(Request *request);

/* May the backend come back to it after it was answered? */
extern bool request_is_kept(const Request *request);

/*
 * The one that is kept for the backend, of that number; the one that is
 * WATCHED, of that node; or NULL.
 */
extern Request *request_find(const Session *session, uint64_t id);
extern Request *request_find_watched(const Session *session, const char *path);

extern Request *request_find_oldest(const Session *session);

/* The search for the node at that path, or NULL. */
extern Request *request_find_search(const Session *session, const char *path);

extern void request_set_state(Request *request, RequestState state);

/* It is to be sent at that time, or a moment later. */
extern void request_set_due(Request *request, int64_t at);

/*
 * The next step of an answered request; path, which belongs to the request from
 * then on, is that step's, and NULL the same as before.
 */
extern void request_go_on(Request *request, RequestKind step, char *path);

/* It is refused no more, or nobody asks for it any more. */
extern void request_end_refusal(Request *request);

/* It was executed, or is not asked for any more. */
extern void request_end_putting_off(Request *request);

/* It is a search now.  If there are too many the oldest one is forgotten. */
extern void request_begin_search(Request *request);

/* Count it in the page, if that is owed. */
extern void request_count_finished(Request *request);
extern void request_count_undone(Request *request);

/* One that was withdrawn is undone. */
extern void request_tell_undone(Session *session);

/* Send the backend its answer. */
extern void request_reply(Request *request);

/* ---- program_library.c ---- */

/*
 * Hand the step to the library: the code of the library.  If that is ZOK, the
 * answer is noted in the request some time later, and request->answered is
 * called.  Else neither happens.
 */
extern int	library_send(Request *request);

/* The library, or nobody but us, has answered with that code. */
extern void library_note_answer(Request *request, int code);

/*
 * Has the leader to answer it, and not our server from what it remembers?
 * That tells that both are in touch.
 */
extern bool library_is_led(RequestKind step);

/* Remove the watches of a path, in the library's memory alone. */
extern void library_forget_watch(const Session *session, const char *path,
								 WatchOf watch);

/* ---- program_step.c ---- */

/*
 * Send the step.  A refusal by the library itself is completed here, like an
 * answer.
 */
extern void step_submit(Request *request);

/*
 * Delete a node, until it is confirmed; nobody hears of it.  If it is WATCHED,
 * that is over.
 */
extern void step_submit_delete(Session *session, const char *path);

/* The backend does not come back to it any more.  NULL is fine. */
extern void step_let_go(Request *request);

/*
 * The backend undoes it: a create.  false: there is nothing to undo, or it was
 * withdrawn before.
 */
extern bool step_withdraw(Request *request);

/* Is it WATCHED, and does the backend still wait in that queue? */
extern bool step_is_queued(const Request *request);

#endif							/* ZKLOCK_PROGRAM_REQUEST_H */
