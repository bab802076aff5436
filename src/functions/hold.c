/*-------------------------------------------------------------------------
 *
 * hold.c
 *	  Permanent holds, and the eviction of contenders.
 *
 * A permanent hold, here a hold for short, outlives its maker.  It is a
 * persistent queue node with the sequence number of the ephemeral one, its
 * twin, under which its maker was granted the lock.  Its maker takes the lock
 * in the ordinary way, and then deletes the twin and creates the hold in one
 * transaction: nobody can be let in between, and there is never a hold that is
 * not finished.
 *
 * If the reply is lost, the same is asked again.  When the twin is gone then,
 * the transaction was done, and the hold is there; or somebody else has
 * deleted the twin, and it is not, nor can it be any more.  If the session is
 * lost before, the next one deletes the twin first: after that the
 * transaction, which may still be under way, cannot be done any more, and the
 * hold is there or not.
 *
 * A maker that lives, but is interrupted, deletes both itself, the twin first:
 * once that is gone the transaction cannot be done late.  What remains is a
 * backend that is killed, or ends without a connection, between the request
 * and its reply.  Then the hold may stand although no session was told its
 * token; zk_lock_queue() shows it.  As with a COMMIT whose answer is lost,
 * that cannot be helped.
 *
 * Nobody but the session that makes it can set a hold's data, save for those
 * who have the credentials of zklock.auth: Curator's Revoker writes into the
 * nodes of holders, and what it writes would hide the token.  To delete it
 * takes the right to delete children of the lock's znode, which everybody has.
 *
 * An eviction deletes the znode of another session.  ZooKeeper asks for no
 * more than the right to delete children of the lock's znode.  The evicted
 * contender learns of it from the ensemble, as of any loss: a holder at its
 * next proof, a waiter at its next look at the queue.  The ensemble does not
 * say which client deleted the node.  So the server's log always does,
 * whatever log_locks says, with the token that the evicted session is told.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "storage/ipc.h"

#include "args.h"
#include "contender.h"
#include "durable.h"
#include "given_name.h"
#include "hooks.h"
#include "lease_known.h"
#include "lock.h"
#include "lock_proof.h"
#include "loss.h"
#include "name.h"
#include "nodedata.h"
#include "queue.h"
#include "removal.h"
#include "roundtrip.h"
#include "session.h"
#include "stat.h"
#include "take_rate.h"
#include "text.h"

/* How often a node may be found that cannot be read, and then can. */
#define UNREAD_MAX 10

/* How far a hold under way has come. */
typedef enum HoldStage
{
	HOLD_NOTHING,				/* nothing of it is there */
	HOLD_TWIN,					/* the lock is ours, under the twin */
	HOLD_SENT					/* the hold may be there instead */
} HoldStage;

/* A hold under way. */
typedef struct Holding
{
	/* what somebody asks for */
	ZkOrder		order;			/* its bounds are those of all steps */
	const char *reason;			/* why, for zk_lock_queue(); in the database's
								 * encoding */

	HoldStage	stage;
	ZkPlace		twin;			/* from HOLD_TWIN on: ours */
	char		hold[RECIPE_PATH_SIZE]; /* from HOLD_SENT on */
} Holding;

/* What a maker that gives up could do about a hold that may be there. */
typedef enum HoldUndone
{
	HOLD_UNDONE,				/* its deletion was sent */
	HOLD_UNDONE_UNSENT,			/* there was no connection to send it over */
	HOLD_UNDONE_NO_MEMORY		/* nor memory to ask for it */
} HoldUndone;

/* Which contenders with a token are to go. */
typedef enum RemovalOf
{
	REMOVAL_OF_HOLDS,			/* those that zk_hold() has made */
	REMOVAL_OF_ALL				/* an eviction */
} RemovalOf;

/* What came of that. */
typedef enum RemovalEnd
{
	REMOVAL_FOUND_NONE,			/* there is no such contender */
	REMOVAL_FOUND_OTHER,		/* there is one, but zk_hold() has not made it */
	REMOVAL_DONE
} RemovalEnd;

PG_FUNCTION_INFO_V1(zk_evict);
PG_FUNCTION_INFO_V1(zk_hold);
PG_FUNCTION_INFO_V1(zk_release_hold);

static int64 establish_hold(Holding *holding);
static ZkOutcome take_and_hold(ZkRoundTrip *trip, void *argument);
static ZkOutcome lock_for_hold(Holding *holding);
static ZkOutcome make_hold(ZkRoundTrip *trip, Holding *holding);
static ZkOutcome settle_lost(ZkRoundTrip *trip, const Holding *holding,
							 bool *is_there);
static ZkOutcome look_for_hold(ZkRoundTrip *trip, const Holding *holding,
							   bool *is_there);
static void check_answer(const ZkReply *reply, const char *path);
static void give_up(int code, Datum arg);
static HoldUndone undo_hold(const Holding *holding);
static void warn_of_hold(const Holding *holding, HoldUndone undone);
static RemovalEnd remove_contenders(const ZkName *name, int64 token,
									RemovalOf which);
static RemovalEnd remove_listed(const ZkName *name, int64 token,
								RemovalOf which, const ZkBounds *bounds,
								const ZkQueueEntry **unread);
static void read_unread(const ZkName *name, const ZkQueueEntry *entry,
						RemovalOf which, const ZkBounds *bounds);
static ZkRemoval begin_removing(const ZkName *name, const ZkQueueEntry *entry,
							   RemovalOf which);
static bool remove_contender(const ZkName *name, const ZkQueueEntry *entry,
							 RemovalOf which, const ZkBounds *bounds);
static ZkOutcome remove_queue_node(ZkRoundTrip *trip, void *argument);
static ZkOutcome read_queue_node(ZkRoundTrip *trip, void *argument);
static void log_removal(const char *name, const ZkQueueEntry *entry,
						RemovalOf which);
static int	errdetail_entry(const ZkQueueEntry *entry);

/* ---------------------------------------------------------------------
 * SQL functions
 * ---------------------------------------------------------------------
 */

Datum
zk_hold(PG_FUNCTION_ARGS)
{
	ZkName		name = zklock_given_name(fcinfo, ZK_GIVEN_TO_USE);
	Holding		holding = {.reason = zklock_args_text(fcinfo, 1, "reason")};

	zklock_args_refuse_restricted();
	zklock_nodedata_check_line(holding.reason, "reason", "a permanent hold",
							   "Write one line that tells the waiters why the lock is held.");
	holding.order = zklock_order_hold(&name,
									  zklock_args_timeout(fcinfo, 2, false));
	PG_RETURN_INT64(establish_hold(&holding));
}

Datum
zk_release_hold(PG_FUNCTION_ARGS)
{
	ZkName		name = zklock_given_name(fcinfo, ZK_GIVEN_TO_USE);
	RemovalEnd	end;

	zklock_args_refuse_restricted();
	end = remove_contenders(&name, zklock_args_token(fcinfo, 1),
							REMOVAL_OF_HOLDS);
	if (end == REMOVAL_DONE)
		PG_RETURN_BOOL(true);
	ereport(WARNING,
			(errcode(ERRCODE_WARNING),
			 errmsg("there is no permanent hold of lock \"%s\" with that token",
					name.text),
			 end == REMOVAL_FOUND_OTHER ?
			 errhint("The token is that of a contender which zk_hold() did not make. Remove it with zk_evict().") : 0));
	PG_RETURN_BOOL(false);
}

Datum
zk_evict(PG_FUNCTION_ARGS)
{
	ZkName		name = zklock_given_name(fcinfo, ZK_GIVEN_TO_USE);

	zklock_args_refuse_restricted();
	if (remove_contenders(&name, zklock_args_token(fcinfo, 1),
						  REMOVAL_OF_ALL) == REMOVAL_DONE)
	{
		zklock_stat_count(ZK_STAT_EVICTION);
		PG_RETURN_BOOL(true);
	}
	ereport(WARNING,
			(errcode(ERRCODE_WARNING),
			 errmsg("no contender in the queue of lock \"%s\" has that token",
					name.text),
			 errhint("See the contenders and their tokens with zk_lock_queue().")));
	PG_RETURN_BOOL(false);
}

/* ---------------------------------------------------------------------
 * Holding
 * ---------------------------------------------------------------------
 */

/*
 * Take a lock exclusively, and leave it to a persistent queue node that
 * belongs to nobody.  Result: its fencing token.  Raises 55000 if this
 * session holds the lock, 57000 if somebody removed one of the nodes meanwhile,
 * and as zklock_acquire().  If it raises there is no hold, or a WARNING says
 * that there may be one.
 */
static int64
establish_hold(Holding *holding)
{
	/* the end of the backend must not leave a hold either */
	PG_ENSURE_ERROR_CLEANUP(give_up, PointerGetDatum(holding));
	{
		zklock_attend_locks();
		zklock_refuse_if_lost();
		zklock_refuse_own(&holding->order.name,
						  _("A permanent hold takes the lock anew, and would wait for this session for ever."));
		zklock_take_rate_count(1);
		if (zklock_roundtrip_run_within(&holding->order.bounds, take_and_hold,
										NULL, holding) == ZK_LATE)
			zklock_order_raise_silence(&holding->order);

		/* a cancel that came with the last reply: undo it while we can */
		CHECK_FOR_INTERRUPTS();
	}
	PG_END_ENSURE_ERROR_CLEANUP(give_up, PointerGetDatum(holding));

	/* which would look for interrupts, and the token would be told to nobody */
	HOLD_INTERRUPTS();
	ereport(ZK_LOG_DEED,
			(errmsg("%s made a permanent hold of ZooKeeper lock \"%s\"",
					zklock_nodedata_caller(),
					zklock_text_quotable_own(holding->order.name.text)),
			 errdetail("Fencing token " INT64_FORMAT ", reason \"%s\".",
					   holding->twin.token,
					   zklock_text_quotable_own(holding->reason))));
	RESUME_INTERRUPTS();
	return holding->twin.token;
}

/* All steps, or what is left of them after a session was lost. */
static ZkOutcome
take_and_hold(ZkRoundTrip *trip, void *argument)
{
	Holding    *holding = argument;
	ZkOutcome	outcome = ZK_ANSWERED;
	bool		is_there = false;

	trip->by = ZK_BY_CALLER;	/* silence is told in the order's words */
	zklock_refuse_if_lost();
	if (holding->stage == HOLD_SENT)
		outcome = settle_lost(trip, holding, &is_there);
	if (outcome != ZK_ANSWERED || is_there)
		return outcome;
	holding->stage = HOLD_NOTHING;
	outcome = lock_for_hold(holding);
	if (outcome == ZK_ANSWERED)
		outcome = make_hold(trip, holding);
	return outcome;
}

/* The lock in the ordinary way.  Never ZK_LATE: it is no try. */
static ZkOutcome
lock_for_hold(Holding *holding)
{
	ZkPlace    *twin = &holding->twin;
	ZkOutcome	outcome;

	*twin = zklock_order_place(&holding->order);
	zklock_drop_kept(&holding->order.name);	/* we do not stand in our own way */
	outcome = zklock_contend(&holding->order, twin);
	if (outcome != ZK_ANSWERED)
		return outcome;
	zklock_place_unwatch(twin);
	holding->stage = HOLD_TWIN;
	return ZK_ANSWERED;
}

/* Put the hold in the twin's place. */
static ZkOutcome
make_hold(ZkRoundTrip *trip, Holding *holding)
{
	const ZkPlace *twin = &holding->twin;
	char		guid[RECIPE_GUID_LEN + 1];
	ZkMove		move = {
		.from = twin->node,
		.to = holding->hold,
		.kind = ZK_PERSISTENT_OWN
	};
	const ZkReply *reply;
	ZkOutcome	outcome;
	bool		is_there;

	zklock_nodedata_make_guid(guid);
	recipe_mark(guid, RECIPE_MARK_HOLD);
	zklock_place_lasting_path(twin, holding->order.style, guid, holding->hold);
	move.data = zklock_nodedata_build(twin->token, "reason",
									  zklock_text_to_utf8(holding->reason),
									  NULL);
	holding->stage = HOLD_SENT;
	do
		outcome = zklock_roundtrip_ask(trip,
									   zklock_client_move(zklock_session_client(),
														  &move),
									   &reply);
	while (outcome == ZK_UNKNOWN);
	if (outcome != ZK_ANSWERED)
		return outcome;
	check_answer(reply, holding->hold);
	if (reply->result == ZK_OK)
		return ZK_ANSWERED;

	/* the twin is gone */
	outcome = look_for_hold(trip, holding, &is_there);
	if (outcome == ZK_ANSWERED && !is_there)
		zklock_loss_raise_waiter(holding->order.name.text,
								 strrchr(twin->node, '/') + 1, twin->token);
	return outcome;
}

/*
 * The session was lost before the reply came.  Delete the twin, so that the
 * transaction cannot be done any more, and look what has come of it.
 */
static ZkOutcome
settle_lost(ZkRoundTrip *trip, const Holding *holding, bool *is_there)
{
	const char *twin = holding->twin.node;
	const ZkReply *reply;
	ZkOutcome	outcome;

	do
	{
		ZkRequest  *removal = zklock_client_remove(zklock_session_client(),
												   twin, ZK_ANY_VERSION);

		outcome = zklock_roundtrip_ask(trip, removal, &reply);
	} while (outcome == ZK_UNKNOWN);
	if (outcome != ZK_ANSWERED)
		return outcome;
	check_answer(reply, twin);
	return look_for_hold(trip, holding, is_there);
}

/* The twin is gone: is the hold there? */
static ZkOutcome
look_for_hold(ZkRoundTrip *trip, const Holding *holding, bool *is_there)
{
	const ZkReply *reply;
	ZkOutcome	outcome = zklock_roundtrip_read(trip, ZK_GET, holding->hold,
												&reply);

	if (outcome != ZK_ANSWERED)
		return outcome;
	check_answer(reply, holding->hold);
	*is_there = reply->result == ZK_OK;
	return ZK_ANSWERED;
}

/*
 * The reply to a question about that path: raise what is neither ZK_OK nor
 * ZK_NO_NODE.
 */
static void
check_answer(const ZkReply *reply, const char *path)
{
	if (reply->result != ZK_OK && reply->result != ZK_NO_NODE)
		zklock_session_raise(reply, "make a permanent hold", path);
}

/* An error, or the end of the backend: delete what is there. */
static void
give_up(int code, Datum arg)
{
	Holding    *holding = (Holding *) DatumGetPointer(arg);
	HoldUndone	undone;

	if (holding->stage == HOLD_NOTHING)
		return;
	zklock_session_attend();
	undone = undo_hold(holding);
	if (holding->stage == HOLD_SENT && undone != HOLD_UNDONE)
		warn_of_hold(holding, undone);
}

/*
 * Delete the twin, and the hold if that may be there.  With the session gone
 * there is nothing to delete the hold with.  Nobody waits for it.
 */
static HoldUndone
undo_hold(const Holding *holding)
{
	ZkClient   *client = zklock_session_client();
	HoldUndone	undone = HOLD_UNDONE_UNSENT;
	bool		is_twin_asked;

	if (zklock_session_live() != holding->twin.grant.session)
		return HOLD_UNDONE_UNSENT;
	if (zklock_session_is_connected())
		undone = HOLD_UNDONE;
	is_twin_asked = zklock_client_delete(client, holding->twin.node,
										 ZK_ANY_VERSION);
	if (holding->stage == HOLD_SENT &&
		!zklock_client_delete(client, holding->hold, ZK_ANY_VERSION))
		undone = HOLD_UNDONE_NO_MEMORY;
	if (!is_twin_asked)
		ereport(WARNING,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("could not delete a queue node of lock \"%s\": out of memory",
						holding->order.name.text),
				 errhint("Call zk_disconnect(), or end this connection: the node goes with the session.")));
	return undone;
}

/* It may be there, and nobody was told its token. */
static void
warn_of_hold(const Holding *holding, HoldUndone undone)
{
	ereport(WARNING,
			(errcode(ERRCODE_CONNECTION_FAILURE),
			 errmsg("there may be a permanent hold of lock \"%s\" now",
					holding->order.name.text),
			 undone == HOLD_UNDONE_NO_MEMORY ?
			 errdetail("zk_hold() could not undo it, because there was no memory. Its token is " INT64_FORMAT ".",
					   holding->twin.token) :
			 errdetail("zk_hold() could not undo it, because there was no connection to ZooKeeper. Its token is " INT64_FORMAT ".",
					   holding->twin.token),
			 errhint("Look for the token in zk_lock_queue(). If it is there, release the permanent hold with zk_release_hold().")));
}

/* ---------------------------------------------------------------------
 * Releasing holds, evicting
 * ---------------------------------------------------------------------
 */

/*
 * Remove the contenders with that token, of whichever client, and await the
 * confirmation.  Says so in the server's log beforehand.  Raises 42602 for a
 * bad name, 55P03 at lock_timeout, 42501 if ZooKeeper refuses, also to show
 * whose the token is, and as the session does.
 */
static RemovalEnd
remove_contenders(const ZkName *name, int64 token, RemovalOf which)
{
	ZkBounds	bounds = zklock_bounds_of_task();

	zklock_known_distrust(name->path, token);
	for (int nrounds = 1;; nrounds++)
	{
		const ZkQueueEntry *unread = NULL;
		RemovalEnd	end = remove_listed(name, token, which, &bounds, &unread);

		if (end != REMOVAL_FOUND_NONE || unread == NULL)
			return end;
		if (nrounds > UNREAD_MAX)
			zklock_session_raise_difference(psprintf("%s/%s",
													 name->path,
													 unread->node),
											ZK_REFUSED_ONCE);
		read_unread(name, unread, which, &bounds);
	}
}

/*
 * Those of them that the queue has now.  unread becomes one that could not be
 * read, and may have that token; it is left alone if there is none.
 */
static RemovalEnd
remove_listed(const ZkName *name, int64 token, RemovalOf which,
			  const ZkBounds *bounds, const ZkQueueEntry **unread)
{
	RemovalEnd	end = REMOVAL_FOUND_NONE;
	ZkQueueEntry *entries;
	int			nentries;

	/* the token may come from a server that is ahead of ours */
	entries = zklock_read_queue(bounds, name, true, &nentries);
	for (int i = 0; i < nentries; i++)
	{
		const ZkQueueEntry *entry = &entries[i];
		bool		may_go = which == REMOVAL_OF_ALL ||
			recipe_read_mark(entry->node) == RECIPE_MARK_HOLD;

		if (entry->position == 0)
			continue;
		if (entry->czxid == 0 && may_go)
			*unread = entry;
		if (entry->token != token)
			continue;
		if (may_go)
		{
			if (remove_contender(name, entry, which, bounds))
				end = REMOVAL_DONE;
		}
		else if (end == REMOVAL_FOUND_NONE)
			end = REMOVAL_FOUND_OTHER;
	}
	return end;
}

/*
 * Raise why that node cannot be read.  Returns if it can be read by now, or is
 * gone.
 */
static void
read_unread(const ZkName *name, const ZkQueueEntry *entry, RemovalOf which,
			const ZkBounds *bounds)
{
	ZkRemoval	removal = begin_removing(name, entry, which);

	zklock_roundtrip_must_run(bounds, read_queue_node, NULL, &removal);
}

/* The removal of that node, which has not begun. */
static ZkRemoval
begin_removing(const ZkName *name, const ZkQueueEntry *entry, RemovalOf which)
{
	ZkRemoval	removal = {
		.path = name->path,
		.doing = "release a permanent hold",
		.czxid = entry->czxid
	};

	if (!entry->is_stranger)
		removal.path = psprintf("%s/%s", name->path, entry->node);
	if (which == REMOVAL_OF_ALL)
		removal.doing = "evict a contender";
	return removal;
}

/* false: it has gone by itself. */
static bool
remove_contender(const ZkName *name, const ZkQueueEntry *entry, RemovalOf which,
				 const ZkBounds *bounds)
{
	ZkRemoval	removal = begin_removing(name, entry, which);

	log_removal(name->text, entry, which);
	if (recipe_is_lasting(entry->node))
		zklock_durable_flush_commits();
	zklock_roundtrip_must_run(bounds, remove_queue_node, NULL, &removal);
	return removal.is_removed;
}

/* Before it is done: it may be interrupted, and be done all the same. */
static void
log_removal(const char *name, const ZkQueueEntry *entry, RemovalOf which)
{
	const char *caller = zklock_nodedata_caller();
	const char *quoted = zklock_text_quotable_own(name);

	if (which == REMOVAL_OF_ALL)
		ereport(LOG,
				(errmsg("%s evicts a contender from ZooKeeper lock \"%s\"",
						caller, quoted),
				 errdetail_entry(entry)));
	else
		ereport(ZK_LOG_DEED,
				(errmsg("%s releases a permanent hold of ZooKeeper lock \"%s\"",
						caller, quoted),
				 errdetail_entry(entry)));
}

/* For ereport(): what the server's log says of a node that is removed. */
static int
errdetail_entry(const ZkQueueEntry *entry)
{
	return errdetail_log("It is %s, queue node \"%s\", fencing token " INT64_FORMAT ".",
						 zklock_nodedata_describe(&entry->who),
						 zklock_text_quotable(entry->node), entry->token);
}

/* Remove one node of a contender. */
static ZkOutcome
remove_queue_node(ZkRoundTrip *trip, void *argument)
{
	return zklock_removal_do(trip, argument);
}

/* Read it, or raise why not. */
static ZkOutcome
read_queue_node(ZkRoundTrip *trip, void *argument)
{
	const ZkRemoval *removal = argument;
	const ZkReply *reply;
	ZkOutcome	outcome = zklock_roundtrip_read(trip, ZK_GET, removal->path,
												&reply);

	if (outcome == ZK_ANSWERED &&
		reply->result != ZK_OK && reply->result != ZK_NO_NODE)
		zklock_session_raise(reply, removal->doing, removal->path);
	return outcome;
}
