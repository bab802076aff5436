/*-------------------------------------------------------------------------
 *
 * contender.h
 *	  How a place is won: one contender's way through the queue of one lock.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CONTENDER_H
#define ZKLOCK_CONTENDER_H

#include "postgres.h"

#include "place.h"
#include "recipe.h"

/* How long a contender is ready to stand in the queue. */
typedef enum ZkPatience
{
	ZK_TRY_ONCE,				/* not at all: look before writing */
	ZK_WAIT_UNTIL_DEADLINE
} ZkPatience;

/* How it ended. */
typedef enum ZkContendEnd
{
	ZK_CONTEND_GRANTED,
	ZK_CONTEND_BUSY,			/* others are ahead, and patience is at its
								 * end */
	ZK_CONTEND_UNANSWERED,		/* it is at its end, and the ensemble has not
								 * said that anybody is */
	ZK_CONTEND_SESSION_LOST		/* the session was lost while waiting */
} ZkContendEnd;

/* Who was in the way of a contender, for the error that says so. */
typedef struct ZkBusy
{
	int			nahead;			/* contenders that were ahead, at most; 0: not
								 * known */
	char	   *holder;			/* the first of them, zklock_nodedata_describe(),
								 * palloc'ed; NULL: not known */
} ZkBusy;

/* A contender: for what place, and in what way. */
typedef struct ZkContender
{
	ZkPlace    *place;			/* whose first part is set; the grant sets the
								 * rest */
	bool		wants_list;		/* the word of a holder that it lets go will
								 * not do, unless it was the first of our list */
	RecipeStyle style;			/* of our queue node's name */
	bool		may_be_there;	/* this session may have other nodes in that
								 * queue: none is left over from an attempt */
	bool		holds_locks;	/* this session holds other locks: others may
								 * wait for it while it waits */
	bool		is_try;			/* not to be granted is no error */
	bool		wants_keep;		/* the lock may be kept after its release,
								 * place->own_data is prepared: the node is to
								 * say so, if it is an exclusive one of style
								 * _CURATOR */
	ZkPatience	patience;
	int64		deadline;		/* zklock_client_now() */
	ZkBusy	   *busy;			/* is set if it ends as BUSY; NULL: that is
								 * told to nobody */
} ZkContender;

/*
 * Queue up and wait.  When it ends in any other way than GRANTED, by an error
 * too, nothing of ours stays in the queue.  Needs an open session.  Raises on
 * interrupts, when ZooKeeper refuses, 57000 when somebody removed our node,
 * 54000 when the queue's sequence numbers are used up, 55000 when the first of
 * the queue has another number of permits.
 */
extern ZkContendEnd zklock_contend(ZkContender *contender);

/*
 * Contend for several locks in two flushes, without waiting in a queue: look
 * at all of them and, if nobody has any, join all.  Result: how many from the
 * first on are granted; nothing of the others stays in a queue.  If it is
 * less than all, *is_busy tells whether that is because somebody has one of
 * them; if not, zklock_contend() finds out why.  One that is only to be tried
 * is looked at, no more.  All have the patience and the deadline of the
 * first.  Raises as zklock_contend() does, and then nothing is granted.
 */
extern int	zklock_contend_at_once(ZkContender *contenders, int ncontenders,
								   bool *is_busy);

/*
 * Is nobody ahead of a contender that was granted the lock on somebody's
 * word? If there is, the node of one that lets go may be on its way out:
 * waits for it until contender->deadline.  True also if the session was lost:
 * others notice that.  Raises on interrupts, and when ZooKeeper refuses to
 * answer.
 */
extern bool zklock_contend_confirm(ZkContender *contender);

/*
 * Raise 55P03 for the lock of that name, which was not to be had in time; the
 * time was timeout_ms, or lock_timeout's.  is_known: the ensemble has said
 * that it is busy, and in whose hands *busy says.  Who that is other clients
 * than members of pg_monitor are not told.
 */
#define ZK_BY_LOCK_TIMEOUT (-1)
pg_noreturn extern void zklock_contend_raise_busy(const char *name,
												  int64 timeout_ms,
												  bool is_known,
												  const ZkBusy *busy);

#endif							/* ZKLOCK_CONTENDER_H */
