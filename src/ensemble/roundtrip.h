/*-------------------------------------------------------------------------
 *
 * roundtrip.h
 *	  Requests to the ensemble that are awaited, one or many at a time: bounds,
 *	  retries, and the loop that begins anew with another session.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ROUNDTRIP_H
#define ZKLOCK_ROUNDTRIP_H

#include "postgres.h"

#include "bounds.h"
#include "compat.h"
#include "nodes/pg_list.h"
#include "recipe.h"
#include "session.h"

/* Questions under way; all zeros but the deadline before the first. */
typedef struct ZkRoundTrip
{
	int64		deadline;		/* protocol_now() */
	ZkBoundedBy by;				/* whose it is */
	ZkRequest  *ahead;			/* sent ahead of the next question; or NULL */
	ZkRequest  *request;		/* the last question; NULL before the first */
	List	   *looks;			/* those of zklock_roundtrip_look() */
	struct ZkRoundTrip *inner;	/* a trip within this one, which ends with it;
								 * or NULL */
	char	   *made;			/* path of the lowest container that was made,
								 * palloc'ed; or NULL */
	char		doubted[RECIPE_PATH_SIZE];	/* of zklock_roundtrip_note_doubt(),
											 * as far as it fits; "": none */
	int			ndoubts;		/* with doubted: how often in a row */
} ZkRoundTrip;

/*
 * Call talk with an open session, and again with a new one as long as it
 * returns false, which means that the session was lost.  The trip has those
 * bounds. forget, unless NULL, is called at the end of each attempt, also if
 * it raises or the backend is terminated, and frees the requests that are not
 * the trip's.  So it never raises, and never waits.  Nothing is outstanding
 * when this returns or raises.
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
 * A write was refused with that result.  If it is ZK_NO_NODE or ZK_BAD_VERSION,
 * read the znode by which the write was meant: its czxid (0: any), and the
 * version that was its condition.  Raises 58000 if the server shows that very
 * znode: it differs from its leader, and the write would be refused for ever.
 */
extern void zklock_roundtrip_check_refusal(ZkRoundTrip *trip, ZkResult refusal,
										   const char *path, int64 czxid,
										   int version);

/*
 * Two answers about that znode contradict each other, unless it was changed in
 * between: the caller asks again.  Raises 58000 when that has happened many
 * times in a row.  how: as zklock_session_raise_difference().
 */
extern void zklock_roundtrip_note_doubt(ZkRoundTrip *trip, const char *path,
										const char *how);

/* For it: in which way. */
#define ZK_LISTED_ONLY "the server lists it, and a read does not find it"
#define ZK_REFUSED_ONCE "the server refuses a read of it, and answers another one"

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
extern const ZkReply *zklock_roundtrip_await_look(const ZkRoundTrip *trip,
												   ZkRead read,
												   const char *path);
extern void zklock_roundtrip_end_looks(ZkRoundTrip *trip);
extern void zklock_roundtrip_end_looks_behind(ZkRoundTrip *trip, int nkept);

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

/*
 * What was to be in them is refused: delete the lowest container that was made
 * on this trip, if it is empty.  The server removes those above it, which have
 * had a child, but none that never had one.  Nobody waits for the reply.
 */
extern void zklock_roundtrip_unmake(ZkRoundTrip *trip);

/*
 * Delete the znode at that path, of whatever version, if it has no children.
 * Nobody waits for the reply.  Needs an open session.
 */
extern void zklock_roundtrip_drop(const char *path);

/* Free the questions. */
extern void zklock_roundtrip_end(ZkRoundTrip *trip);

#endif							/* ZKLOCK_ROUNDTRIP_H */
