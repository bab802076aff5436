/*-------------------------------------------------------------------------
 *
 * program_request.h
 *	  A request of the session's program, for the modules that bring it forward.
 *
 *	program_request.c	from the frame to the reply: sending, answers, undoing
 *	program_step.c		the table of steps: what is sent, what follows
 *	program_code.c		the table of ZooKeeper's codes
 *	program_follow.c	the wait, held and kept locks: what is watched for them
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_PROGRAM_REQUEST_H
#define ZKLOCK_PROGRAM_REQUEST_H

#include "answer.h"
#include "program.h"

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

/* A CHECK. */
typedef struct CheckStep
{
	int64_t		czxid;			/* that the node must have; 0: any */
	bool		is_looked_at;	/* a look at the node is under way */
	zoo_op_t	op;				/* must outlive the call, as the result */
	zoo_op_result_t result;
} CheckStep;

/* Of a retry: with the next connection. */
#define DUE_WITH_CONNECTION INT64_MAX

/* When a request that was refused, or put off, is sent again. */
typedef struct Retry
{
	int			delay_ms;		/* the last one between two attempts of one
								 * that was refused */
	int64_t		due_at;			/* of the next attempt; 0: not set */
	int64_t		refused_at;		/* for the first time; 0: never */
	int64_t		put_off_at;		/* for the first time; 0: it is not */
	int			nput_off;		/* how often since */
} Retry;

/*
 * Of an ERASE: what the next look finds was made before the session went on
 * over another connection.  It is as the backend will find it, and stays.
 */
#define MADE_IN_TIME (-1)

/* May a node come of it after its last answer, and is that looked for? */
typedef enum Lateness
{
	LATE_NEVER,					/* a server has answered each attempt */
	LATE_PERHAPS,				/* an answer was lost: it may be executed yet */
	LATE_SEARCH					/* an ERASE, or the DELETE of what it found,
								 * that goes out with each new connection */
} Lateness;

struct Request
{
	uint64_t	id;				/* the backend's number; 0: it has none */
	uint64_t	order;			/* among all of the session */
	Session    *session;
	Request    *next;			/* in the session's list, and the one before */
	Request    *previous;
	RequestKind kind;			/* changes as it goes from step to step */
	bool		is_pending;		/* the library has it */
	bool		is_counted;		/* finished as far as the backend counts */
	bool		is_unwanted;	/* nobody waits for a reply */
	bool		is_withdrawn;	/* unwanted, and its node is to be removed; or
								 * a LEAVE that is awaited */
	bool		is_repeated;	/* SET, DELETE, LEAVE: until it is confirmed */
	bool		is_in_doubt;	/* LEAVE: an attempt, or the end of a REPLACE
								 * that was withdrawn, may have been the one */
	bool		has_replaced;	/* REPLACE: its old node was there, and goes */
	bool		is_watched;		/* LIST and GET */
	bool		is_of_list;		/* UNWATCH: of children, not of data */
	ZkNodeKind	node_kind;		/* of both CREATEs, REPLACE and MOVE */
	int			version;		/* SET and DELETE: that the node must have;
								 * both GUARDED: the guard; -1: any */
	int			node_version;	/* DELETE_GUARDED: that of the nodes; -1: any */
	Moment		sent_at;		/* the last attempt */
	unsigned	sent_over;		/* the number of its connection */
	Lateness	lateness;
	Retry		retry;
	char	   *path;			/* node; for LIST, and ERASE with a prefix, the
								 * parent */
	char	   *other_path;		/* ERASE: prefix of the child, or NULL;
								 * CREATE_GUARDED: the guard; REPLACE and MOVE:
								 * the node to go */
	char	   *data;			/* CREATE, REPLACE, MOVE, SET; DELETE_GUARDED:
								 * the nodes' paths; LEAVE: the lock's name */
	int			data_length;
	CheckStep	check;			/* its czxid: of a LEAVE the token; of an ERASE
								 * without a prefix that of the node that is to
								 * stay, 0: none, or MADE_IN_TIME */
	zoo_op_result_t *op_results;	/* both GUARDED, MOVE: must outlive the call */

	ZkResult	told;			/* of a REPLACE that was undone: why, other
								 * than ZK_OK */
	Answer		answer;			/* the last one */
};

/* ---- program_request.c ---- */

/*
 * Hand a request to the library.  A refusal by the library itself is
 * completed here, like an answer.
 */
extern void request_submit(Request *request);

/* Note what every answer tells. */
extern void request_note_answer(Request *request, int rc);

/* Decide what follows from an answer, and do it. */
extern void request_complete(Request *request);

/*
 * It was refused: to be sent again, after a delay that doubles each time.
 * false if it is over, for the session is, or has been ended for that.
 */
extern bool request_defer(Request *request);

/*
 * Was it not executed, or is it a read of the backend's behind one that was not?
 * Then it is sent again after a pause that grows each time, for at most a session
 * timeout: true.  A read relies on what was sent ahead of it: the list of a
 * queue on the create, or on the delete of what was released.
 */
extern bool request_put_off(Request *request);

/* One that has that number of the backend's, not counted as finished. */
extern Request *request_new(Session *session, uint64_t id, RequestKind kind,
							const char *path);

/* One of our own, of which the backend knows nothing and hears nothing. */
extern Request *request_new_silent(Session *session, RequestKind kind,
								   const char *path);

/*
 * Delete a node, until it is confirmed; nobody hears of it.  If it is HELD,
 * that is over.
 */
extern void request_submit_delete(Session *session, const char *path);

/* The one that is HELD, of that node; or NULL. */
extern Request *request_find_held(const Session *session, const char *path);

/*
 * Turn an answered create or replace into the request that removes what it
 * made. false if there is nothing to remove.
 */
extern bool request_undo(Request *request);

/*
 * Turn it into the delete of request->path, which is repeated until it is
 * confirmed.  true: it is to be sent.
 */
extern bool request_become_delete(Request *request);

/*
 * A LEAVE is refused, and a number of the backend's is on it: find out for the
 * backend whether the node is there.  The LEAVE itself goes on without the
 * number.
 */
extern void request_check_left(Request *leave);

/*
 * Turn an answered ERASE into the delete of what it has found. false if that
 * is nothing.
 */
extern bool request_become_delete_of_found(Request *request);

/*
 * An ERASE, or its DELETE, has no more to do over this connection: it goes out
 * again with the next one, as an ERASE.
 */
extern void request_search_on(Request *request);

/* ---- program_step.c ---- */

/* Send what the request asks for; the library's code. */
extern int	step_send(Request *request);

/*
 * Does the answer lead to another step?  Then the request is changed as need
 * be, and is to be sent once more.
 */
extern bool step_after(Request *request);

/*
 * Has the leader to answer it, and not our server from what it remembers?
 * That tells that both are in touch.
 */
extern bool step_is_led(RequestKind kind);

/* What it does, as a verb for the log. */
extern const char *step_word(RequestKind kind);

/* What its last answer means. */
extern AnswerMeaning step_meaning(const Request *request);

/* The completion of a request whose answer is a code. */
extern void step_void_done(int rc, const void *data);

/* ---- program_code.c ---- */

/* What that code of ZooKeeper's means for the request that it answers. */
extern ZkResult code_result(int code);

/* If a server says it: what it ends the session with; ZK_LOSS_NONE: nothing. */
extern ZkClientLoss code_loss(int code);

/* Is it in the table? */
extern bool code_is_known(int code);

/* The words for it, which are valid until the next call. */
extern const char *code_words(int code);

/* ---- program_follow.c ---- */

/* The library's watcher for all that is followed. */
extern void follow_event(zhandle_t *zh, int type, int state,
						 const char *path, void *context);

/* Remove the watches of a path, in the library's memory alone. */
extern void follow_remove_here(const Session *session, const char *path,
							   bool is_of_list);

/* From now on the backend waits for what that request reads. */
extern void wait_begin(Session *session, Request *request);

/* The backend does not wait any more: the watch goes. */
extern void wait_end(Session *session);

/* The same where the watch is gone already. */
extern void wait_forget(Session *session);

/*
 * A create or replace is answered, and stays for the backend.  If it has made
 * a place in a queue, it is HELD from now on.
 */
extern void held_begin(Request *request);

/* Is it HELD, and does the backend still wait in that queue? */
extern bool held_is_queued(const Request *request);

/*
 * It is watched, or gone; then the backend is told, and interrupted.  Is it to
 * be sent once more?
 */
extern bool held_listed(Request *held);

/* The list of a kept lock's queue is answered.  Is it to be sent once more? */
extern bool keep_listed(Request *request);

#endif							/* ZKLOCK_PROGRAM_REQUEST_H */
