/*-------------------------------------------------------------------------
 *
 * recall.h
 *	  What the holder of a lock hears of requests to release it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_RECALL_H
#define ZKLOCK_RECALL_H

#include "postgres.h"

#include "name.h"
#include "recipe.h"
#include "session.h"

/* Room for the path of a request. */
#define ZK_RECALL_PATH_SIZE (RECIPE_PATH_SIZE + 2 * sizeof(ZK_RELEASE_SUFFIX))

/* What is said of a request that canceled a statement. */
typedef struct ZkRecallText
{
	char		message[1024];
	char		detail[4096];	/* for the client */
	char		detail_log[4096];	/* and who it was, for the server's log */
} ZkRecallText;

/* The listener of one queue node that holds a lock; all zeros: closed. */
typedef struct ZkRecallListener
{
	ZkRequest  *listening;		/* NULL: closed */
	ZkSessionNumber session;	/* under which listening is valid */
	bool		is_urgent;		/* a request cancels the statement */
	bool		is_slow;		/* an answer was waited for in vain */
	int64		told;			/* the last request that the user knows of, by
								 * its mzxid */
	int64		explained;		/* the last one that a cancellation was put
								 * down to */
	char		node[RECIPE_NODE_SIZE]; /* name of the queue node */
} ZkRecallListener;

/* Define the settings of this room.  For _PG_init(). */
extern void zklock_recall_init(void);

/*
 * The path of the request to the holder whose queue node is called node:
 * <root>/.release/<node>.release, with the first root_length bytes of the
 * lock's path.  false if the node's name is too long.
 */
extern bool zklock_recall_path(char path[ZK_RECALL_PATH_SIZE],
							   const char *lock_path, int root_length,
							   const char *node);

/* Look up what must be known at a grant.  To be called before; may raise. */
extern void zklock_recall_prepare(void);

/*
 * The lock was granted: open the listener if a request is to cancel
 * statements.
 */
extern void zklock_recall_note_grant(ZkRecallListener *listener,
									 const char *lock_path,
									 int root_length, const char *node);

/*
 * The holder uses the lock again: open the listener if
 * zklock.on_release_request, or is_wanted, asks for that.  Needs a session
 * that is not known to be lost.  Sends one request at most and does not wait.
 */
extern void zklock_recall_open(ZkRecallListener *listener,
							   const char *lock_path, int root_length,
							   const char *node, bool is_wanted);

/*
 * Give what is under way a moment to be answered, and tell the user, with a
 * NOTICE, of a request that he does not know of.  Raises on interrupts.
 */
extern void zklock_recall_report(ZkRecallListener *listener, const char *name);

/* Does a request lie there, as far as has been heard? */
extern bool zklock_recall_is_asked(const ZkRecallListener *listener);

/*
 * The lock has been released, or its queue node gives way to that of a
 * downgrade: close the listener and remove the request, if there is one.
 * Unless the listener has heard that there is none, is_long says that it was
 * held for so long that there may be.  Never raises, never waits.
 */
extern void zklock_recall_close(ZkRecallListener *listener, const char *name,
								const char *lock_path, int root_length,
								const char *node, bool is_long);

/*
 * While deferred no request cancels anything; the end of that cancels for
 * those that came meanwhile.  Never raises.
 */
extern void zklock_recall_defer(bool is_deferred);

/*
 * If a request has just canceled the statement, put that in words, once, and
 * return true.  Of the lock that is held, or, with listener NULL, of one that
 * was released just then.  Never raises.
 */
extern bool zklock_recall_explain(ZkRecallListener *listener, const char *name,
								  ZkRecallText *text);

#endif							/* ZKLOCK_RECALL_H */
