/*-------------------------------------------------------------------------
 *
 * released.c
 *	  The locks that a transaction has released before its commit, and whether
 *	  they had been lost.
 *
 * A lock may have been lost without this backend knowing it: another client
 * has deleted its queue node.  If the lock is still held at the commit, the
 * guard finds that out.  If it was released before, by zk_unlock() or its kin,
 * by ROLLBACK TO SAVEPOINT, or by the end of an exclusive acquisition above a
 * shared one, all that is left is the answer to the delete of the node: the
 * node was there, or it had gone before.  So the transaction remembers the
 * request, and its commit is refused if a lock that it relied on had been lost
 * when it was released.
 *
 * A transaction relied on a lock if it has written while it held the lock.
 * What it wrote before the grant or after the release does not count.
 *
 * The answer may never come: the session is lost, or there was no memory for
 * the request.  It may also tell nothing: the reply to the delete was lost
 * with its connection, and the next attempt finds no node, as it must if the
 * first one was executed.  Then it cannot be found out whether the lock had
 * been lost, and it is judged like a lock that is still held: with
 * commit_guard "lease" the proof that the place had at the release is enough,
 * if it was fresh then; otherwise the commit is refused.
 *
 * The one rule: every answer is read, also when its session is closed.  An
 * answer that comes after the transaction is only reported.
 *
 * Entries live in TopMemoryContext, and are made without raising: this is
 * called at the end of subtransactions.
 *
 *-------------------------------------------------------------------------
 */
#include "released.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/memutils.h"

typedef enum ReleasedState
{
	RELEASED_OPEN,				/* the answer is to come */
	RELEASED_GOOD,				/* the lock was held until then */
	RELEASED_LOST,				/* it had been lost before; nobody was told */
	RELEASED_TOLD,				/* likewise, and the user knows */
	RELEASED_UNKNOWN			/* nobody will ever say */
} ReleasedState;

/* A place that was let go of. */
typedef struct Released
{
	struct Released *next;
	ReleasedState state;
	bool		is_current;		/* by the current transaction, which relied on
								 * it */
	bool		was_fresh;		/* if it is: its proof, when it was let go of */
	ZkRequest  *answer;			/* OPEN: of the current session; else NULL */
	int64		token;
	const char *node;			/* its name, behind that of the lock */
	char		name[FLEXIBLE_ARRAY_MEMBER];	/* of the lock */
} Released;

/*
 * What was let go of, by the current transaction and by earlier ones; and what
 * else is known of the current one, until zklock_released_end_transaction().
 */
static struct
{
	Released   *all;
	uint64		ntransactions;	/* how many have ended: what a ZkWorkMark has */
	bool		is_forgetful;	/* something that it let go of could not be
								 * remembered, for want of memory */
	bool		is_judged;		/* the guard has looked at all that there is */
	bool		is_refused;		/* the guard has refused the transaction for
								 * want of an answer */
}			Notes;

static Released *enter(const char *name, const char *node, int64 token);
static void hear(void);
static void hear_one(Released *released);
static void hear_at_close(void);
static void hear_gone(void);
static void sweep(void);
static bool is_good_enough(const Released *released, bool always_ask);
static void await_one(Released *released, int64 deadline,
					  ZkWaitReason reason);
static bool is_relied_on(const Released *released);
static void conclude(Released *released, ReleasedState state);
static void tell_released(Released *released);
pg_noreturn static void raise_released(const Released *released,
									   ZkLossKind kind);

/* ---------------------------------------------------------------------
 * What was written
 * ---------------------------------------------------------------------
 */

ZkWorkMark
zklock_released_mark(void)
{
	return (ZkWorkMark) {
		.transaction = Notes.ntransactions,
		.command = GetCurrentCommandId(false),
		.wal = XactLastRecEnd
	};
}

/*
 * PostgreSQL does not say when a transaction wrote, but a command that wrote is
 * followed by another number of commands, and within one command what is
 * written is logged, save for unlogged and temporary tables.  For notifications
 * there is no such sign.
 */
bool
zklock_released_wrote_since(const ZkWorkMark *mark, ZkWork work)
{
	ZkWorkMark	now = zklock_released_mark();

	if (work != ZK_WORK_CHANGES)
		return work != ZK_WORK_NONE;
	return mark->transaction != now.transaction ||
		mark->command != now.command || mark->wal != now.wal;
}

/* ---------------------------------------------------------------------
 * Notes and news
 * ---------------------------------------------------------------------
 */

void
zklock_released_init(void)
{
	zklock_session_hear_at_close(hear_at_close);
}

void
zklock_released_note(const ZkPlace *place, ZkRequest *answer)
{
	Released   *released = enter(place->name, strrchr(place->node, '/') + 1,
								 place->token);

	Notes.is_judged = false;
	if (released == NULL)
	{
		Notes.is_forgetful = true;
		zklock_client_free(answer);
		return;
	}
	released->is_current = true;
	released->was_fresh = contact_is_after(place->proof,
										   zklock_session_fresh_since());
	released->answer = answer;
	released->state = answer != NULL ? RELEASED_OPEN : RELEASED_UNKNOWN;
}

void
zklock_released_note_lost(const ZkPlace *place)
{
	Released   *released = enter(place->name, strrchr(place->node, '/') + 1,
								 place->token);

	Assert(place->state == ZK_PLACE_LOST);
	Notes.is_judged = false;
	if (released == NULL)
	{
		Notes.is_forgetful = true;
		return;
	}
	released->is_current = true;
	released->state = RELEASED_TOLD;
}

/* A new entry, all zeros but for what is given; NULL without memory. */
static Released *
enter(const char *name, const char *node, int64 token)
{
	Size		name_size = strlen(name) + 1;
	Size		node_size = strlen(node) + 1;
	Released   *released =
		MemoryContextAllocExtended(TopMemoryContext,
								   offsetof(Released, name) + name_size +
								   node_size,
								   MCXT_ALLOC_NO_OOM | MCXT_ALLOC_ZERO);

	if (released == NULL)
		return NULL;
	memcpy(released->name, name, name_size);
	released->node = memcpy(released->name + name_size, node, node_size);
	released->token = token;
	released->next = Notes.all;
	Notes.all = released;
	return released;
}

void
zklock_released_hear(void)
{
	zklock_session_attend();
	hear();
}

bool
zklock_released_tell(int64 token)
{
	bool		is_found = false;

	zklock_released_hear();
	hear_gone();
	for (Released *released = Notes.all; released != NULL;
		 released = released->next)
	{
		if (released->state != RELEASED_LOST)
			continue;
		is_found |= token == 0 || released->token == token;
		tell_released(released);
	}
	sweep();
	return is_found;
}

/*
 * In the log and by a WARNING.  Both look for interrupts, for a client that does
 * not read must not keep its backend from being terminated.  So it is noted
 * first: what ends it in between has an error of its own, and the log has the
 * loss once.
 */
static void
tell_released(Released *released)
{
	const ZkLossOf of = {
		.kind = ZK_LOST_DELETED,
		.name = released->name,
		.token = released->token
	};

	released->state = RELEASED_TOLD;
	zklock_loss_log_deletion(released->name, released->node, released->token);
	zklock_loss_warn(&of);
}

void
zklock_released_await(int64 deadline)
{
	for (Released *released = Notes.all; released != NULL;
		 released = released->next)
		if (is_relied_on(released))
			await_one(released, deadline, ZK_WAITING_FOR_REPLY);
}

/* ---------------------------------------------------------------------
 * The commit guard
 * ---------------------------------------------------------------------
 */

bool
zklock_released_matters(void)
{
	for (const Released *released = Notes.all; released != NULL;
		 released = released->next)
		if (is_relied_on(released))
			return true;
	return Notes.is_forgetful;
}

bool
zklock_released_has_lost(void)
{
	for (const Released *released = Notes.all; released != NULL;
		 released = released->next)
		if (is_relied_on(released) &&
			(released->state == RELEASED_LOST ||
			 released->state == RELEASED_TOLD))
			return true;
	return Notes.is_refused;
}

/*
 * All answers are waited for until the same time.  The guard comes twice: an
 * answer without which it has been content before is not waited for again.  A
 * session that does not answer for a session timeout is lost; so that bound is
 * met only where connections break again and again, and answers with them.
 */
void
zklock_released_prove(bool always_ask)
{
	int64		begun = protocol_now();
	int64		proved_until = begun;
	int64		asked_until = begun + zklock_session_timeout_ms();

	if (!Notes.is_judged)
		proved_until = zklock_session_reply_deadline(begun);

	for (Released *released = Notes.all; released != NULL;
		 released = released->next)
	{
		int64		until = asked_until;

		if (!is_relied_on(released))
			continue;
		if (is_good_enough(released, always_ask))
			until = proved_until;
		await_one(released, until, ZK_WAITING_TO_COMMIT);
	}
	(void) zklock_released_tell(0); /* which is looked at here */
	for (Released *released = Notes.all; released != NULL;
		 released = released->next)
	{
		if (!is_relied_on(released))
			continue;
		Assert(released->state != RELEASED_LOST);
		if (released->state == RELEASED_TOLD)
			raise_released(released, ZK_LOST_RELEASED);
		if (is_good_enough(released, always_ask))
			continue;
		Notes.is_refused = true;
		raise_released(released, ZK_LOST_UNANSWERED);
	}
	if (Notes.is_forgetful)
		raise_released(NULL, ZK_LOST_FORGOTTEN);
	Notes.is_judged = true;
}

bool
zklock_released_are_proved(void)
{
	return !zklock_released_matters() ||
		(Notes.is_judged && !zklock_released_has_lost());
}

void
zklock_released_end_transaction(void)
{
	Notes.ntransactions++;
	Notes.is_forgetful = Notes.is_judged = Notes.is_refused = false;
	for (Released *released = Notes.all; released != NULL;
		 released = released->next)
		released->is_current = false;
	sweep();
}

/* Does what the current transaction has written rely on it? */
static bool
is_relied_on(const Released *released)
{
	return released->is_current && released->state != RELEASED_GOOD;
}

/* Without an answer: will its proof do? */
static bool
is_good_enough(const Released *released, bool always_ask)
{
	return !always_ask && released->was_fresh;
}

/* Wait for the answer, until that deadline. */
static void
await_one(Released *released, int64 deadline, ZkWaitReason reason)
{
	hear_one(released);
	if (released->state != RELEASED_OPEN)
		return;
	(void) zklock_session_await(released->answer, deadline, reason);
	hear_one(released);
}

/* NULL: of what could not be remembered. */
static void
raise_released(const Released *released, ZkLossKind kind)
{
	ZkLossOf	of = {.kind = kind};

	if (released != NULL)
		of.name = released->name;
	zklock_loss_raise_of(&of);
}

/* ---------------------------------------------------------------------
 * Hearing
 * ---------------------------------------------------------------------
 */

/* Read the answers that are there.  Never raises, never waits. */
static void
hear(void)
{
	for (Released *released = Notes.all; released != NULL;
		 released = released->next)
		hear_one(released);
}

/* The same for one. */
static void
hear_one(Released *released)
{
	const ZkReply *reply;

	if (released->state != RELEASED_OPEN)
		return;
	reply = zklock_client_reply(released->answer);
	if (reply == NULL)
		return;
	if (reply->result == ZK_OK)
		conclude(released, RELEASED_GOOD);
	else if (reply->result == ZK_NO_NODE)
		conclude(released, RELEASED_LOST);
	else
		conclude(released, RELEASED_UNKNOWN);
}

/* That is what the answer says, or there will be none. */
static void
conclude(Released *released, ReleasedState state)
{
	Assert(released->state == RELEASED_OPEN && state != RELEASED_OPEN);
	zklock_client_free(released->answer);
	released->answer = NULL;
	released->state = state;
}

/*
 * The session is about to be closed, and with it goes what its program has
 * said.  What is not answered by now will never be.
 */
static void
hear_at_close(void)
{
	hear();
	hear_gone();
	for (Released *released = Notes.all; released != NULL;
		 released = released->next)
		if (released->state == RELEASED_OPEN)
			conclude(released, RELEASED_UNKNOWN);
	sweep();
}

/*
 * What was let go of without asking, at the end of a transaction for example,
 * and had been lost: remember that it is to be told.
 */
static void
hear_gone(void)
{
	ZkClient   *client = zklock_session_client();
	ZkRequest  *request;

	while (client != NULL &&
		   (request = zklock_client_take_gone(client)) != NULL)
	{
		const ZkReply *gone = zklock_client_reply(request);
		Released   *released = NULL;

		if (gone->result == ZK_OK)	/* there was memory for it */
			released = enter(gone->children[0], strrchr(gone->path, '/') + 1,
							 gone->czxid);
		if (released != NULL)
			released->state = RELEASED_LOST;
		zklock_client_free(request);
	}
}

/* Forget what is over, and of no interest to the current transaction. */
static void
sweep(void)
{
	Released  **link = &Notes.all;

	while (*link != NULL)
	{
		Released   *released = *link;

		if (is_relied_on(released) || released->state == RELEASED_OPEN ||
			released->state == RELEASED_LOST)
			link = &released->next;
		else
		{
			*link = released->next;
			pfree(released);
		}
	}
}
