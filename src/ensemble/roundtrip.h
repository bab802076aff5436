/*-------------------------------------------------------------------------
 *
 * roundtrip.h
 *	  Requests to the ensemble, one at a time and awaited: retries, removals.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ROUNDTRIP_H
#define ZKLOCK_ROUNDTRIP_H

#include "postgres.h"

#include "bounds.h"
#include "compat.h"
#include "nodes/pg_list.h"
#include "session.h"
#include "write.h"

/*
 * How often parents are made anew when they vanish between their creation and
 * that of what is to be in them: the server removes empty containers at any
 * time.
 */
#define PARENT_ATTEMPTS 10

/* Questions under way; all zeros but the deadline before the first. */
typedef struct ZkRoundTrip
{
	int64		deadline;		/* protocol_now() */
	ZkBoundedBy by;				/* whose it is */
	ZkRequest  *ahead;			/* sent ahead of the next question; or NULL */
	ZkRequest  *request;		/* the last question; NULL before the first */
	List	   *looks;			/* those of zklock_roundtrip_look() */
	struct ZkSample *sample;	/* the last one, palloc'ed; or NULL */
	char	   *made;			/* path of the lowest container that was made,
								 * palloc'ed; or NULL */
	ZkWriteTerms terms;			/* of its creates and checks; 0 is BOUNDED */
} ZkRoundTrip;

/* A znode to be deleted; the first part is the caller's order. */
typedef struct ZkRemoval
{
	const char *path;
	const char *guard;			/* see zklock_client_remove_guarded(); or NULL */
	const char *doing;			/* completes "could not ..." */
	int64		czxid;			/* which one there */

	bool		is_tried;		/* a delete has been sent */
	bool		is_removed;		/* valid when it is over: by us */
} ZkRemoval;

/* Most znodes of a sample: fewer than one transaction may delete. */
#define ZK_SAMPLE_MAX 32

/* Some znodes below a parent, being read. */
typedef struct ZkSample
{
	ZkRoundTrip trip;			/* until the deadline of all replies; its looks
								 * are the reads */
	int			nnodes;
	char	   *paths[ZK_SAMPLE_MAX];
} ZkSample;

/*
 * Call talk with an open session, and again with a new one as long as it
 * returns false, which means that the session was lost.  The trip has those
 * bounds. forget, unless NULL, is called at the end of each attempt, also if
 * it raises, and frees the requests that are not the trip's.  Nothing is
 * outstanding when this returns or raises.
 */
extern void zklock_roundtrip_run_within(const ZkBounds *bounds,
										bool (*talk) (ZkRoundTrip *trip,
													  void *argument),
										void (*forget) (void *argument),
										void *argument);

/* The same for a call that is nothing else, and is bounded by lock_timeout. */
extern void zklock_roundtrip_run(bool (*talk) (ZkRoundTrip *trip,
											   void *argument),
								 void (*forget) (void *argument),
								 void *argument);

/*
 * Await the reply to a question, which replaces the one before.  NULL at the
 * deadline; raises then if it is that of lock_timeout (55P03) or of
 * zklock.connect_timeout (08001).  Raises as zklock_session_await() does.
 */
extern const ZkReply *zklock_roundtrip_ask(ZkRoundTrip *trip,
										   ZkRequest *request);

/* Likewise one of several that are under way, which stays its owner's. */
extern const ZkReply *zklock_roundtrip_await(const ZkRoundTrip *trip,
											 ZkRequest *request);

/*
 * The same for a read: asked again as long as the answer was lost with the
 * connection.
 */
extern const ZkReply *zklock_roundtrip_read(ZkRoundTrip *trip, ZkRead read,
											const char *path);

/*
 * A read whose result is not older than what any server has told anybody
 * before.
 */
extern const ZkReply *zklock_roundtrip_read_newest(ZkRoundTrip *trip,
												   ZkRead read,
												   const char *path);

/*
 * The reply to a read that may be one of many: NULL if it is not there yet,
 * then it has been asked for, once, in the current memory context.  To await
 * the replies to all: false at the deadline, or if the session is lost; those
 * that were lost with the connection are asked for again.  They are freed with
 * the trip, or before by zklock_roundtrip_end_looks(), all or those behind the
 * first nkept.
 */
extern const ZkReply *zklock_roundtrip_look(ZkRoundTrip *trip, ZkRead read,
											const char *path);
extern bool zklock_roundtrip_await_looks(ZkRoundTrip *trip);
extern void zklock_roundtrip_end_looks(ZkRoundTrip *trip);
extern void zklock_roundtrip_end_looks_behind(ZkRoundTrip *trip, int nkept);

/*
 * Of the znode at that path and those above it, down to that length of the
 * path, the uppermost that is ephemeral: it can have no children.  *reply is
 * that to a look, valid until the looks are ended, and *found its path,
 * palloc'ed.  Both are NULL if there is none.  false as
 * zklock_roundtrip_await_looks().
 */
extern bool zklock_roundtrip_find_ephemeral(ZkRoundTrip *trip,
											const char *path, int length,
											const ZkReply **reply,
											char **found);

/*
 * What was to be made at that path was refused, by that reply: raise 55000 if
 * an ephemeral znode of some other program's is in the way, there or above, and
 * tell whose it is.  It is looked for for a second at most, in reply to
 * ZK_FAILED: no result of ours says that a znode can have no children.
 */
extern void zklock_roundtrip_refuse_ephemeral(const ZkReply *reply,
											  const char *path);

/*
 * Send a ZK_GET together with the next request, ahead of it.  Nobody waits for
 * its reply: a server answers in order, so once it has answered the next
 * request the reply to this one is there, too.
 */
extern void zklock_roundtrip_get_ahead(ZkRoundTrip *trip, const char *path);

/* The same for any request, which is the trip's then. */
extern void zklock_roundtrip_ask_ahead(ZkRoundTrip *trip, ZkRequest *request);

/* The reply to it, until another one is sent ahead; NULL if there is none. */
extern const ZkReply *zklock_roundtrip_reply_ahead(ZkRoundTrip *trip);

/* How many znodes are above the one of that path. */
extern int	zklock_roundtrip_count_parents(const char *path);

/*
 * Create what is above the znode of that path: its first root_length bytes
 * for good, with our name as data (see zk_check_facts()), the rest as
 * containers, of which the server removes those that are empty.  The reply to
 * one that is refused, else NULL: whether all are there the next create tells.
 * All of them, whether they are there or not, and what is to be made in them,
 * which is ZK_WRITE_PAID then, count on the trip's terms.
 */
extern const ZkReply *zklock_roundtrip_make_parents(ZkRoundTrip *trip,
													const char *path,
													int root_length);

/*
 * What was to be in them is refused: delete the lowest container that was made
 * on this trip, if it is empty.  The server removes those above it, which have
 * had a child, but none that never had one.  Nobody waits for the reply.
 */
extern void zklock_roundtrip_unmake(ZkRoundTrip *trip);

/*
 * Create a znode, and what is above it if need be, as
 * zklock_roundtrip_make_parents().  The reply to the last create of any: after
 * ZK_UNKNOWN_OUTCOME the znode may be there, or be made yet; who creates it
 * again learns by ZK_NODE_EXISTS that it is there, but not who made it.
 */
extern const ZkReply *zklock_roundtrip_create(ZkRoundTrip *trip,
											  const char *path,
											  int root_length,
											  ZkNodeKind kind,
											  const char *data);

/*
 * Outdated znodes are deleted bit by bit, by those who make new ones: is it
 * time to read a sample of so many?  Decided at random.
 */
extern bool zklock_roundtrip_should_sample(int nchildren);

/*
 * List the children of a znode and send reads for some of them, chosen at
 * random, so that none stays whatever its name.  The replies must be there
 * within wait_ms.  Without a list the sample is empty.  It ends with the trip,
 * or when another one begins.  Raises on interrupts.
 */
extern ZkSample *zklock_roundtrip_begin_sample(ZkRoundTrip *trip,
											   const char *parent, int wait_ms);

/* Await the reply to one of the reads.  NULL at the deadline. */
extern const ZkReply *zklock_roundtrip_await_sample(const ZkSample *sample,
													int index);

/*
 * Delete a znode and await the confirmation, but never a later one at the
 * same path; with a guard as often as others are faster with theirs.  false if
 * the session was lost first: then again with the next one.
 */
extern bool zklock_roundtrip_remove(ZkRoundTrip *trip, ZkRemoval *removal);

/*
 * The version of a guard counts up and wraps; the one value that means any
 * version to the server is of no use.  Set the guard once more.  Nobody waits
 * for the reply.
 */
extern void zklock_roundtrip_advance(const char *guard);

/* Free the questions. */
extern void zklock_roundtrip_end(ZkRoundTrip *trip);

#endif							/* ZKLOCK_ROUNDTRIP_H */
