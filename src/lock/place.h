/*-------------------------------------------------------------------------
 *
 * place.h
 *	  A place in the queue of a lock: the queue node that this backend stands
 *	  on, with all that hangs on it: token, proof, downgrade, removal.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_PLACE_H
#define ZKLOCK_PLACE_H

#include "postgres.h"

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

/*
 * A place.  Who wants one sets the first part; a contender that is granted
 * the lock (contender.h) sets the second.
 */
typedef struct ZkPlace
{
	const char *name;			/* of the lock, for messages */
	const char *lock_path;		/* its znode */
	int			root_length;	/* how much of lock_path is the root */
	RecipeMode	mode;			/* of the node; SHARED after a downgrade */
	int			permits;		/* more than 1: of a counting semaphore */

	/* Valid from the grant on. */
	ZkSessionNumber session;	/* whose the node is */
	int64		czxid;			/* of the node */
	int64		token;			/* the czxid of the node at the grant */
	Moment		proof;			/* date of the proof of the node, contact.h;
								 * all zero: there is none */
	TimestampTz granted_at;		/* for views; what is reckoned with is */
	int64		granted_ms;		/* the same by protocol_now() */
	bool		can_hand_over;	/* whoever waits behind may be one that takes
								 * the lock when we hand it over */
	bool		is_on_word;		/* granted because the one ahead said that it
								 * lets go, though that was not the first of
								 * our list; not confirmed since */
	bool		is_evicted;		/* somebody deleted the node */
	bool		is_mistaken;	/* evicted, for the one ahead had lied */
	bool		is_told;		/* the log knows that the node is gone */
	bool		is_awaited;		/* who releases it will wait for the delete */
	bool		is_token_told;	/* the token was asked for: no other grant may
								 * have the same, so the place is not kept */
	int64		recall_told;	/* the last request to release it that the
								 * user was told of (zklock_recall_read()); 0:
								 * none */

	/*
	 * The request that has made the node: its reply is ZK_NO_NODE when that is
	 * known to be gone.  NULL, or valid as `replacing` below.
	 */
	ZkRequest  *made;

	struct ZkKeep *keep;		/* NULL unless it may be kept after its
								 * release; keep.c */

	/*
	 * A downgrade under way: the request that replaces `node`, the former
	 * EXCLUSIVE node, by next_node; NULL if there is none.  Valid only while
	 * the session is alive, which frees it when it ends.
	 */
	ZkRequest  *replacing;
	char	   *next_data;		/* data of next_node; NULL until a downgrade is
								 * prepared */
	char	   *next_node;		/* likewise; RECIPE_PATH_SIZE bytes */

	char		node[RECIPE_PATH_SIZE]; /* path of the queue node */
} ZkPlace;

/*
 * Of a queue node that somebody deleted: what is always true, with its token,
 * for the DETAIL, and where to look, for the HINT.
 */
#define ZK_DELETED \
	"The queue node with fencing token " INT64_FORMAT " was deleted by zk_evict(), or by another client of ZooKeeper."
#define ZK_SEE_DELETED \
	"The log of the cluster where zk_evict() was called says by whom, with this token."

/*
 * Is it known to be lost? live, here and below, is zklock_session_live():
 * asked once for all places.
 */
extern bool zklock_place_is_lost(const ZkPlace *place, ZkSessionNumber live);

/*
 * Make the data that a downgrade will need, in that context: at the end of a
 * transaction names cannot be looked up.  Raises as zklock_nodedata_build().
 */
extern void zklock_place_prepare_downgrade(ZkPlace *place,
										   MemoryContext context);

/*
 * From exclusive to shared: put a shared node with the same number in the
 * exclusive node's place.  Writers that wait stay behind it, readers behind
 * it get in.  If that fails the exclusive node stays, which keeps readers out
 * but nobody in.  Needs zklock_place_prepare_downgrade().  Never raises,
 * never waits.
 */
extern void zklock_place_downgrade(ZkPlace *place, ZkSessionNumber live);

/*
 * If a downgrade has been answered, note how it ended; and note that the node
 * is gone, if that is known.  Never raises or waits.
 */
extern void zklock_place_settle(ZkPlace *place, ZkSessionNumber live);

/*
 * Leave the queue: the node is deleted, unless it went with its session, and
 * the lock is handed over if somebody waits who can take it so.
 * Never raises, never waits.
 *
 * is_asking: of a place that is not known to be lost, whether its node was
 * there.  The result is zklock_client_leave_asking()'s, and the caller's.  NULL
 * otherwise, and without memory.
 */
extern ZkRequest *zklock_place_leave(ZkPlace *place, ZkSessionNumber live,
									 bool is_asking);

/*
 * Tell, in the log and by a WARNING, that a lock was released whose queue node
 * had been deleted by somebody else before.  Does not look for interrupts;
 * needs a transaction.
 */
extern void zklock_place_tell_loss(const char *name, const char *node,
								   int64 token);

/*
 * Granted by this session, on the node that this request has made: note that,
 * and that nothing speaks against it.
 */
extern void zklock_place_note_grant(ZkPlace *place, ZkRequest *made);

/* What becomes of the node is of no interest any more. */
extern void zklock_place_unwatch(ZkPlace *place);

/*
 * The node of the place is gone: tell the log, once.  If zk_evict() did it,
 * the log of its cluster has the same token.
 */
extern void zklock_place_log_deletion(ZkPlace *place);

/*
 * Has somebody asked for the release of the lock?  Of a place that is not
 * known to be lost.  As zklock_recall_read().
 */
extern bool zklock_place_read_recall(ZkPlace *place);

/*
 * Ask the quorum for the node of each place, in one flush, and mark those
 * whose node is gone.  attempt counts from 0 on: see place.c.  Waits; false at
 * the deadline.  Raises on interrupts and when ZooKeeper refuses to answer,
 * 08006 when its answers come too late.
 */
extern bool zklock_place_prove(ZkPlace *const *places, int nplaces,
							   int attempt, int64 deadline);

/*
 * Wait until a downgrade is over: before that it is not known which node the
 * place has. false if the deadline comes or the session is lost meanwhile.
 * Raises on interrupts.
 */
extern bool zklock_place_await_downgrade(ZkPlace *place, int64 deadline);

/*
 * Free what belongs to it.  Its node must have been removed, or be removed by
 * somebody else.
 */
extern void zklock_place_free(ZkPlace *place);

#endif							/* ZKLOCK_PLACE_H */
