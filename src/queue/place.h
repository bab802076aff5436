/*-------------------------------------------------------------------------
 *
 * place.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_PLACE_H
#define ZKLOCK_PLACE_H

#include "postgres.h"

#include "loss.h"
#include "recipe.h"
#include "session.h"
#include "utils/timestamp.h"

/*
 * How often a commit asks the quorum for a fresh proof, of locks or of leases.
 * For locks all but the first two take a third of the session timeout, so the
 * answers of such an ensemble take too long.
 */
#define ZK_PROOF_ATTEMPTS 6

/* What a path takes in a list of paths: its length stands in front. */
#define ZK_PATH_BYTES(path) (strlen(path) + 4)

/* Where a place stands.  Moved by zklock_place_move() alone. */
typedef enum ZkPlaceState
{
	ZK_PLACE_NONE,				/* nobody stands there: its node is not made
								 * yet, or was left */
	ZK_PLACE_WANTED,			/* a contender is on its way to it */
	ZK_PLACE_HELD,				/* its lock is held */
	ZK_PLACE_KEPT,				/* its lock was let go of, and the node is
								 * kept (keep.c) */
	ZK_PLACE_LOST				/* its lock was held, and is lost; or it is in
								 * doubt */
} ZkPlaceState;

/* What a grant rests on. */
typedef enum ZkGrantBasis
{
	ZK_GRANTED_BY_QUEUE,		/* a list in which nobody was ahead, or a
								 * message of the only one that was */
	ZK_GRANTED_HANDED_OVER			/* a message of the one just ahead, that it
								 * lets go, although it was not the first of
								 * our list; not confirmed since */
} ZkGrantBasis;

/* How a place was won.  A contender on its way sets the first two. */
typedef struct ZkGrant
{
	ZkGrantBasis basis;
	bool		can_hand_over;	/* the waiter behind may be one that takes
								 * the lock when we hand it over */
	ZkSessionNumber session;	/* whose the node is */
	TimestampTz at;				/* for views; what is reckoned with is */
	int64		at_ms;			/* the same by protocol_now() */

	/*
	 * The request that has made the node: its reply is ZK_NO_NODE when that is
	 * known to be gone.  NULL, or valid while the session is alive, which frees
	 * it when it ends.
	 */
	ZkRequest  *made;
} ZkGrant;

/* What others have been told of a place, since its grant. */
typedef struct ZkPlaceTold
{
	bool		of_loss;		/* the log knows that the node is gone */
	bool		of_token;		/* the user asked for it: no other grant may
								 * have the same, so the place is not kept */
	int64		of_request;		/* the last request to release it that the
								 * user was told of (zklock_release_request_read()); 0:
								 * none */
} ZkPlaceTold;

/* A place. */
typedef struct ZkPlace
{
	/* What is wanted, set by who wants it. */
	const char *name;			/* of the lock, for messages */
	const char *lock_path;		/* its znode */
	int			root_length;	/* how much of lock_path is the root */
	RecipeMode	mode;			/* of the node */
	int			permits;		/* more than 1: of a counting semaphore */

	ZkPlaceState state;
	ZkLossKind	loss;			/* LOST: how; ZK_LOST_NOT in any other
								 * state */

	/* The queue node, as its contender or a proof has seen it. */
	int64		token;			/* its czxid */
	struct ZkLeased *owned;		/* NONE: it was not won, for the owner for whom
								 * a lease was to be taken has this one,
								 * palloc'ed; else NULL */
	Moment		proof;			/* date of the proof of the node, contact.h;
								 * all zero: there is none */
	char		node[RECIPE_PATH_SIZE]; /* its path */

	/* HELD, KEPT, LOST */
	ZkGrant		grant;
	ZkPlaceTold told;
	struct ZkKeep *keep;		/* NULL unless it may be kept after its
								 * release; keep.c */
} ZkPlace;

/* ---- states ---- */

/*
 * Move it to that state; why, for the log at DEBUG1.  If that is not legal: a
 * WARNING (zklock_session_warn_illegal()), and it is LOST, or NONE if that was
 * asked for.  For place.c and keep.c.  Never raises or waits.
 */
extern void zklock_place_move(ZkPlace *place, ZkPlaceState state,
							  const char *why);

/* A question: how many are KEPT, as far as this backend has noticed? */
extern int	zklock_place_count_kept(void);

/* A contender sets out for it.  Never raises or waits. */
extern void zklock_place_want(ZkPlace *place);

/* It does not win it, and has taken back what it has made.  Likewise. */
extern void zklock_place_give_up(ZkPlace *place, const char *why);

/*
 * It has won, in this session, on the node that this request has made.
 * Likewise.
 */
extern void zklock_place_note_grant(ZkPlace *place, ZkRequest *made);

/*
 * How is it lost, as far as is known?  live, here and below, is
 * zklock_session_live(): asked once for all places.  Of a place that was
 * granted; one that zklock_place_find_loss() was not called for since may have
 * been lost in other ways.
 */
extern ZkLossKind zklock_place_loss(const ZkPlace *place,
									ZkSessionNumber live);

/* Is it? */
extern bool zklock_place_is_lost(const ZkPlace *place, ZkSessionNumber live);

/*
 * Look what has become of the session and of the node, and move the place
 * accordingly.  Never raises or waits.
 */
extern void zklock_place_find_loss(ZkPlace *place, ZkSessionNumber live);

/*
 * Note that it was granted by mistake: somebody further ahead had the lock.
 * Never raises or waits.
 */
extern void zklock_place_note_misled(ZkPlace *place);

/* Tell the log that its node was deleted, once.  As zklock_loss_log_deletion(). */
extern void zklock_place_log_deletion(ZkPlace *place);

/* ---- what is done with it ---- */

/*
 * Leave the queue: the node is deleted, unless it went with its session, and
 * the lock is handed over if somebody waits who can take it so.  why: for the log
 * at DEBUG1.  is_awaited: somebody will wait until the node is gone, by
 * zklock_session_await_undone().  If somebody else had deleted the node, and that
 * is not known yet, zklock_loss_tell_gone() tells.  Never raises, never waits.
 */
extern void zklock_place_leave(ZkPlace *place, ZkSessionNumber live,
							   const char *why, bool is_awaited);

/*
 * The path of the node, with that GUID, that is to outlive the session in this
 * place: it has the same sequence number.
 */
extern void zklock_place_lasting_path(const ZkPlace *place, RecipeStyle style,
									  const char *guid,
									  char path[RECIPE_PATH_SIZE]);

/* What becomes of the node is of no interest any more. */
extern void zklock_place_unwatch(ZkPlace *place);

/*
 * Has somebody asked for the release of the lock?  Of a place that is not
 * known to be lost.  As zklock_release_request_read().
 */
extern bool zklock_place_read_release_request(ZkPlace *place);

/*
 * Ask the quorum for the node of each place, in one flush, and mark those
 * whose node is gone.  Waits.  Never ZK_UNKNOWN.  Raises on interrupts and when
 * ZooKeeper refuses to answer.
 */
pg_nodiscard extern ZkOutcome zklock_place_prove(ZkPlace *const *places,
												 int nplaces, int64 deadline);

#endif							/* ZKLOCK_PLACE_H */
