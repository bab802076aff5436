/*-------------------------------------------------------------------------
 *
 * roundtrip.h
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
	uint64		nasked;			/* how many there were */
	List	   *reads;			/* those of zklock_roundtrip_begin_read(), and
								 * of zklock_roundtrip_read_all() */
	struct ZkRoundTrip *inner;	/* a trip within this one, which ends with it;
								 * or NULL */
	char	   *made;			/* path of the lowest container that was made,
								 * or found behind a create without an answer;
								 * palloc'ed, or NULL */
	char		doubted[RECIPE_PATH_SIZE];	/* of zklock_roundtrip_note_doubt(),
											 * as far as it fits; "": none */
	int			ndoubts;		/* with doubted: how often in a row */
} ZkRoundTrip;

/*
 * What is done in such a loop.  At ZK_UNKNOWN the outcome of the whole would be
 * unknown: it is not returned.
 */
typedef ZkOutcome (*ZkTalk) (ZkRoundTrip *trip, void *argument);

/*
 * Call talk with an open session, and again with a new one as long as it
 * returns ZK_LOST.  The trip has those bounds.  forget, unless NULL, is called
 * at the end of each attempt, also if it raises or the backend is terminated,
 * and frees the requests that are not the trip's.  So it never raises, and never
 * waits.  Nothing is outstanding when this returns or raises.  Result:
 * ZK_ANSWERED or ZK_LATE.
 */
pg_nodiscard extern ZkOutcome zklock_roundtrip_run_within(const ZkBounds *bounds,
														  ZkTalk talk,
														  void (*forget) (void *argument),
														  void *argument);

/*
 * The same within bounds at whose end a question raises: those of a question or
 * of a task (bounds.h).  NULL: the latter.
 */
extern void zklock_roundtrip_must_run(const ZkBounds *bounds, ZkTalk talk,
									  void (*forget) (void *argument),
									  void *argument);

/*
 * Await the reply to a question, which replaces the one before.  *reply as
 * zklock_session_await().  At the deadline it raises if that is the one of
 * lock_timeout (55P03) or of zklock.connect_timeout (08001).  Raises as
 * zklock_session_await() does.
 */
pg_nodiscard extern ZkOutcome zklock_roundtrip_ask(ZkRoundTrip *trip,
												   ZkRequest *request,
												   const ZkReply **reply);

/* Likewise one of several that are under way, which stays its owner's. */
pg_nodiscard extern ZkOutcome zklock_roundtrip_await(const ZkRoundTrip *trip,
													 ZkRequest *request,
													 const ZkReply **reply);

/* The same for a read, which is repeated until its outcome is known. */
pg_nodiscard extern ZkOutcome zklock_roundtrip_read(ZkRoundTrip *trip,
													ZkRead read,
													const char *path,
													const ZkReply **reply);

/*
 * A read whose result is not older than what any server has told anybody
 * before.
 */
pg_nodiscard extern ZkOutcome zklock_roundtrip_read_newest(ZkRoundTrip *trip,
														   ZkRead read,
														   const char *path,
														   const ZkReply **reply);

/*
 * How many reads a caller of the next function has under way at once, if it
 * reads more than a few: enough to hide the round trips, few enough not to fill
 * the server's queue for everybody else.
 */
#define ZK_READS_AT_ONCE 64

/*
 * The same for several znodes, which are read at once.  With ZK_ANSWERED the
 * replies are there, in the order of the paths, until
 * zklock_roundtrip_end_reads(); what was read before stays.  With any other
 * outcome there is nothing to be ended.
 */
pg_nodiscard extern ZkOutcome zklock_roundtrip_read_all(ZkRoundTrip *trip,
														ZkRead read,
														char **paths,
														int npaths,
														const ZkReply **replies);
extern void zklock_roundtrip_end_reads(ZkRoundTrip *trip, int nreads);

/*
 * A write was refused with that result.  If it is ZK_NO_NODE or ZK_BAD_VERSION,
 * read the znode by which the write was meant: its czxid (0: any), and the
 * version that was its condition.  Raises 58000 if the server shows that very
 * znode: it differs from its leader, and the write would be refused for ever.
 * Never ZK_UNKNOWN.
 */
pg_nodiscard extern ZkOutcome zklock_roundtrip_check_refusal(ZkRoundTrip *trip,
															 ZkResult refusal,
															 const char *path,
															 int64 czxid,
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
 * Begin a read, in the current memory context, unless it was begun: what it
 * reads is awaited with those that were begun before and behind it, and found by
 * znode.  Those whose answers are lost with the connection are asked for again.
 * zklock_roundtrip_find_reply(): NULL if that was not begun, or not awaited.
 * They end with the trip, or by zklock_roundtrip_end_reads().
 */
extern void zklock_roundtrip_begin_read(ZkRoundTrip *trip, ZkRead read,
										const char *path);
pg_nodiscard extern ZkOutcome zklock_roundtrip_await_reads(ZkRoundTrip *trip);
extern const ZkReply *zklock_roundtrip_find_reply(const ZkRoundTrip *trip,
												  ZkRead read,
												  const char *path);

/*
 * Send a ZK_GET together with the next request, ahead of it.  Nobody waits for
 * its reply: a server answers in order, so once it has answered the next
 * request the reply to this one is there, too.
 */
extern void zklock_roundtrip_get_ahead(ZkRoundTrip *trip, const char *path);

/* The same for any request, which is the trip's then. */
extern void zklock_roundtrip_ask_ahead(ZkRoundTrip *trip, ZkRequest *request);

/*
 * The reply to it, *reply, until another one is sent ahead.  Called when the next
 * request was answered, and never waits.  ZK_UNKNOWN also if there is none.
 */
pg_nodiscard extern ZkOutcome zklock_roundtrip_reply_ahead(const ZkRoundTrip *trip,
														   const ZkReply **reply);

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
