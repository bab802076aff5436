/*-------------------------------------------------------------------------
 *
 * dialog.h
 *	  Questions to the ensemble that are asked one by one and awaited.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_DIALOG_H
#define ZKLOCK_DIALOG_H

#include "postgres.h"

#include "compat.h"
#include "session.h"

/* A dialog under way. */
typedef struct ZkDialog
{
	int64		deadline;		/* zklock_client_now() */
	ZkRequest  *ahead;			/* sent ahead of the next question; or NULL */
	ZkRequest  *request;		/* the last question; NULL before the first */
} ZkDialog;

/* A znode to be deleted; the first part is the caller's order. */
typedef struct ZkRemoval
{
	const char *path;
	const char *doing;			/* completes "could not ..." */
	int64		czxid;			/* which one at that path; 0: who is there now */

	bool		is_tried;		/* a delete has been sent */
	bool		is_removed;		/* valid when it is over: by us */
} ZkRemoval;

/*
 * Call talk with an open session, and again with a new one as long as it returns
 * false, which says that the session was lost.  The deadline is lock_timeout's.
 * Nothing is outstanding when this returns or raises.
 */
extern void zklock_dialog_run(bool (*talk) (ZkDialog *dialog, void *argument),
							  void *argument);

/*
 * Await the reply to a question, which replaces the one before.  Raises 55P03
 * at the deadline, and as zklock_session_await() does.
 */
extern const ZkReply *zklock_dialog_ask(ZkDialog *dialog, ZkRequest *request);

/*
 * Send a question ahead of the next one, with which it goes out; its reply is
 * there when that of the next one is ZK_OK, or anything that a server said.
 */
extern void zklock_dialog_send_ahead(ZkDialog *dialog, ZkRequest *request);

/* The reply to it, until another one is sent ahead; NULL if there is none. */
extern const ZkReply *zklock_dialog_reply_ahead(ZkDialog *dialog);

/*
 * Delete a znode and await the confirmation, but never a later one at the same
 * path.  false if the session was lost first: then again with the next one.
 */
extern bool zklock_dialog_remove(ZkDialog *dialog, ZkRemoval *removal);

/* Free the questions. */
extern void zklock_dialog_end(ZkDialog *dialog);

/*
 * Raise what lock_timeout raises, and unless the ensemble has answered, why it has
 * not.
 */
pg_noreturn extern void zklock_dialog_raise_timeout(bool is_answered);

#endif							/* ZKLOCK_DIALOG_H */
