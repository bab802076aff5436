/*-------------------------------------------------------------------------
 *
 * released.c
 *	  What a transaction has let go of before its commit, and whether that had
 *	  been lost.
 *
 * A lock may have been lost without anybody here knowing it: somebody has
 * deleted its queue node.  If the lock is still held at the commit, the guard
 * finds that out.  If it was released before, by zk_unlock() or its kin, by
 * ROLLBACK TO SAVEPOINT, or by the end of an exclusive hold above a shared one,
 * nothing is left to look at but the answer to the delete of the node: it was
 * there, or it had gone before.  So that answer is asked for, the transaction
 * remembers it, and its commit is refused if a lock that it relied on had been
 * lost when it was released.
 *
 * It relied on the lock if it has written while it held it.  What it wrote
 * before it took the lock, and after it let go of it, is not the lock's.
 *
 * The answer may never come: with the session, or with memory, that is gone.
 * It may also tell nothing: the reply to a delete was lost with its connection,
 * and the next attempt finds no node, which is as it must be if the first one
 * was executed.  Nobody can find out then.  That is no loss, but no proof
 * either.  So it is judged as a lock is that is still held: with commit_guard
 * "lease" the proof will do that the place had when it was released if that was
 * fresh; otherwise the commit is refused.
 *
 * The one rule: every answer is heard, also when its session is closed, and
 * after the transaction whose release it is about; then it is merely told.
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
	RELEASED_LOST,				/* the lock had been lost before */
	RELEASED_UNKNOWN,			/* nobody will ever say */
	RELEASED_REFUSED			/* likewise, and the guard has refused it */
} ReleasedState;

/* A place that was let go of; one that turns out to be good is forgotten. */
typedef struct Released
{
	struct Released *next;
	ReleasedState state;
	bool		is_current;		/* by the current transaction */
	bool		was_fresh;		/* its proof, when it was let go of */
	bool		is_told;		/* LOST: the user knows */
	ZkRequest  *answer;			/* OPEN: of the current session */
	int64		token;
	const char *node;			/* its name, behind that of the lock */
	char		name[FLEXIBLE_ARRAY_MEMBER];	/* of the lock */
} Released;

static Released *all_released;

/* How many transactions have ended: what a ZkWorkMark has. */
static uint64 ntransactions;

/*
 * Has the current transaction let go of something that could not be
 * remembered, for want of memory?
 */
static bool is_forgetful;

/* Has the guard looked at all that there is? */
static bool is_judged;

static Released *enter(const char *name, const char *node, int64 token);
static void hear(void);
static void hear_one(Released *released);
static void hear_at_close(void);
static void hear_gone(void);
static void sweep(void);
static bool is_good_enough(const Released *released, bool always_ask);
static void await_one(Released *released, int64 deadline,
					  ZkWaitReason reason);
pg_noreturn static void raise_lost(const Released *released);
pg_noreturn static void raise_unproved(Released *released);

/* ---------------------------------------------------------------------
 * What was written
 * ---------------------------------------------------------------------
 */

ZkWorkMark
zklock_released_mark(void)
{
	return (ZkWorkMark) {
		.transaction = ntransactions,
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

	is_judged = false;
	if (released == NULL)
	{
		is_forgetful = true;
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

	is_judged = false;
	if (released == NULL)
	{
		is_forgetful = true;
		return;
	}
	released->is_current = released->is_told = true;
	released->state = RELEASED_LOST;
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
	released->next = all_released;
	all_released = released;
	return released;
}

bool
zklock_released_tell(int64 token)
{
	bool		is_found = false;

	hear();
	hear_gone();
	for (Released *released = all_released; released != NULL;
		 released = released->next)
	{
		if (released->state != RELEASED_LOST || released->is_told)
			continue;
		released->is_told = true;
		is_found |= token == 0 || released->token == token;
		zklock_place_tell_loss(released->name, released->node,
							   released->token);
	}
	sweep();
	return is_found;
}

void
zklock_released_await(int64 deadline)
{
	for (Released *released = all_released; released != NULL;
		 released = released->next)
		if (released->is_current)
			await_one(released, deadline, ZK_WAITING_FOR_REPLY);
}

/* ---------------------------------------------------------------------
 * The commit guard
 * ---------------------------------------------------------------------
 */

bool
zklock_released_matters(void)
{
	hear();
	for (const Released *released = all_released; released != NULL;
		 released = released->next)
		if (released->is_current)
			return true;
	return is_forgetful;
}

bool
zklock_released_has_lost(void)
{
	hear();
	for (const Released *released = all_released; released != NULL;
		 released = released->next)
		if (released->is_current &&
			(released->state == RELEASED_LOST ||
			 released->state == RELEASED_REFUSED))
			return true;
	return false;
}

/*
 * All that waits has the same time, and the guard comes twice: what it has
 * accepted without an answer is not waited for again.  A session that does not
 * answer for a session timeout is lost, so that bound is met only where answers
 * get lost again and again, with connections that break.
 */
void
zklock_released_prove(bool always_ask)
{
	int64		begun = protocol_now();
	int64		proved_until = is_judged ? begun :
		zklock_session_reply_deadline(begun);
	ZkClientStatus status;
	int64		most_ms = zklock_session_status(&status) ?
		status.session_timeout_ms : 0;

	for (Released *released = all_released; released != NULL;
		 released = released->next)
		if (released->is_current)
			await_one(released, is_good_enough(released, always_ask) ?
					  proved_until : begun + most_ms, ZK_WAITING_TO_COMMIT);
	(void) zklock_released_tell(0); /* which is looked at here */
	for (Released *released = all_released; released != NULL;
		 released = released->next)
	{
		if (!released->is_current)
			continue;
		if (released->state == RELEASED_LOST)
			raise_lost(released);
		if (!is_good_enough(released, always_ask))
			raise_unproved(released);
	}
	if (is_forgetful)
		raise_unproved(NULL);
	is_judged = true;
}

bool
zklock_released_are_proved(void)
{
	return !zklock_released_matters() ||
		(is_judged && !zklock_released_has_lost());
}

void
zklock_released_end_transaction(void)
{
	ntransactions++;
	is_forgetful = is_judged = false;
	for (Released *released = all_released; released != NULL;
		 released = released->next)
		released->is_current = false;
	sweep();
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

static void
raise_lost(const Released *released)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("a lock was lost in this transaction"),
			 errdetail("Lock \"%s\" was released after the loss.",
					   released->name),
			 errhint("Run the transaction again.")));
}

/* NULL: one that could not be remembered. */
static void
raise_unproved(Released *released)
{
	if (released != NULL)
		released->state = RELEASED_REFUSED;
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("could not prove that the locks released in this transaction were held until then"),
			 released != NULL ?
			 errdetail("ZooKeeper has not told whether the queue node of lock \"%s\" was there when it was deleted.",
					   released->name) :
			 errdetail("There was no memory to remember them."),
			 errhint("Run the transaction again.")));
}

/* ---------------------------------------------------------------------
 * Hearing
 * ---------------------------------------------------------------------
 */

/* Read the answers that are there.  Never raises, never waits. */
static void
hear(void)
{
	for (Released *released = all_released; released != NULL;
		 released = released->next)
		hear_one(released);
}

/*
 * The same for one.  What is good is taken off the transaction, and swept away
 * later.
 */
static void
hear_one(Released *released)
{
	const ZkReply *reply;

	if (released->state != RELEASED_OPEN)
		return;
	reply = zklock_client_reply(released->answer);
	if (reply == NULL)
		return;
	if (reply->result == ZK_NO_NODE)
		released->state = RELEASED_LOST;
	else
	{
		released->state = RELEASED_UNKNOWN;
		released->is_current &= reply->result != ZK_OK;
	}
	zklock_client_free(released->answer);
	released->answer = NULL;
}

/*
 * The session is about to be closed, and with it goes what its program has
 * said.  What is not answered by now will never be.
 */
static void
hear_at_close(void)
{
	zklock_session_look();
	hear();
	hear_gone();
	for (Released *released = all_released; released != NULL;
		 released = released->next)
		if (released->state == RELEASED_OPEN)
		{
			released->state = RELEASED_UNKNOWN;
			zklock_client_free(released->answer);
			released->answer = NULL;
		}
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
	Released  **link = &all_released;

	while (*link != NULL)
	{
		Released   *released = *link;

		if (released->is_current || released->state == RELEASED_OPEN ||
			(released->state == RELEASED_LOST && !released->is_told))
			link = &released->next;
		else
		{
			*link = released->next;
			pfree(released);
		}
	}
}
