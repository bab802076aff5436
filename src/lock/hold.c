/*-------------------------------------------------------------------------
 *
 * hold.c
 *	  Makes permanent holds.
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
 *-------------------------------------------------------------------------
 */
#include "hold.h"

#include "miscadmin.h"
#include "storage/ipc.h"

#include "contender.h"
#include "lock.h"
#include "lock_proof.h"
#include "loss.h"
#include "name.h"
#include "nodedata.h"
#include "roundtrip.h"
#include "session.h"
#include "take_rate.h"
#include "text.h"

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

static ZkOutcome take_and_hold(ZkRoundTrip *trip, void *argument);
static ZkOutcome lock_for_hold(Holding *holding);
static ZkOutcome make_hold(ZkRoundTrip *trip, Holding *holding);
static ZkOutcome resolve_lost(ZkRoundTrip *trip, const Holding *holding,
							  bool *is_there);
static ZkOutcome read_hold(ZkRoundTrip *trip, const Holding *holding,
						   bool *is_there);
static void check_answer(const ZkReply *reply, const char *path);
static void give_up(int code, Datum arg);
static HoldUndone undo_hold(const Holding *holding);
static void warn_of_hold(const Holding *holding, HoldUndone undone);

int64
zklock_hold_make(const ZkOrder *order, const char *reason)
{
	Holding    *holding = palloc0(sizeof(*holding));

	holding->order = *order;
	holding->reason = reason;

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
		outcome = resolve_lost(trip, holding, &is_there);
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
	outcome = zklock_contender_win_place(&holding->order, twin);
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
	outcome = read_hold(trip, holding, &is_there);
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
resolve_lost(ZkRoundTrip *trip, const Holding *holding, bool *is_there)
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
	return read_hold(trip, holding, is_there);
}

/* The twin is gone: is the hold there? */
static ZkOutcome
read_hold(ZkRoundTrip *trip, const Holding *holding, bool *is_there)
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

