/*-------------------------------------------------------------------------
 *
 * lease_take.c
 *	  Takes a lease for an owner: takes the lock, and replaces its queue node
 *	  by one that outlives the session.
 *
 * A lease is a persistent queue node with the sequence number of the ephemeral
 * one, its twin, under which the lock was granted.  The twin is deleted, the
 * lease created, and the lock's name below .leases set in one transaction:
 * nobody can be let in between, there is never a lease that is not finished,
 * and none of which the lease worker does not hear.  The token is the twin's
 * czxid: those rise in the order of the queue.
 *
 * If the reply is lost, the same is asked again.  When the twin is gone then,
 * the transaction was done, and the lease is there; or somebody else has
 * deleted the twin, and it is not, nor can it be any more: then the call
 * begins anew.  If the session is lost before, the next one deletes the twin
 * first: after that the transaction, which may still be under way, cannot be
 * done any more.  What it has made the owner's next look finds.
 *
 * An owner has one lease of a lock, however many of his calls run at a time: a
 * contender waits behind an earlier one for the same owner, and when that has
 * become a lease it leaves the queue and renews the lease (contender_step.c).
 *
 * Unlike a permanent hold a lease is everybody's to renew.  So it is only ever
 * deleted with its version as condition, also by the call that made it and
 * gives it up: another call of the same owner may have found and renewed it
 * meanwhile.
 *
 *-------------------------------------------------------------------------
 */
#include "lease_take.h"

#include "miscadmin.h"

#include "compat.h"
#include "contender.h"
#include "lease_names.h"
#include "lease_roots.h"
#include "recipe.h"
#include "session.h"
#include "stat.h"
#include "text.h"

/*
 * For how long after the lock was granted, or the owner's lease found, replies
 * are waited for at least, even if the time of the call is over: a healthy
 * ensemble answers within milliseconds.
 */
#define GRANTED_MS 1000

static ZkOutcome take_or_renew(ZkRoundTrip *trip, ZkLeaseTaking *taking);
static ZkOutcome remove_twin(ZkRoundTrip *trip, ZkLeaseTaking *taking);
static ZkOutcome win_twin(ZkLeaseTaking *taking);
static ZkOutcome renew_owned(ZkRoundTrip *trip, ZkLeaseTaking *taking,
							 const char *path, ZkLeased *read);
static ZkOutcome end_other_kind(ZkRoundTrip *trip, const ZkLeaseTaking *taking,
								bool *is_gone);
static const char *describe_mode(RecipeMode mode, int permits);
static ZkOutcome make_lease(ZkRoundTrip *trip, ZkLeaseTaking *taking);
static ZkMove plan_move(ZkLeaseTaking *taking);
static ZkOutcome ask_move(ZkRoundTrip *trip, const ZkMove *move,
						  bool *is_repeated, const ZkReply **reply);
static ZkOutcome resolve_missing(ZkRoundTrip *trip, ZkLeaseTaking *taking,
								 bool *is_made);
static void note_made(ZkLeaseTaking *taking, int64 czxid);

ZkOutcome
zklock_lease_take(ZkRoundTrip *trip, void *argument)
{
	ZkLeaseTaking *taking = argument;
	ZkOutcome	outcome;

	Assert(taking->order.owner != NULL);
	trip->by = ZK_BY_CALLER;	/* silence is told in the order's words */
	outcome = take_or_renew(trip, taking);
	if (outcome == ZK_LATE)
		zklock_order_raise_silence(&taking->order);
	return outcome;
}

/* Until the owner has it, or it is busy. */
static ZkOutcome
take_or_renew(ZkRoundTrip *trip, ZkLeaseTaking *taking)
{
	ZkLeasing  *leasing = &taking->leasing;
	ZkPlace    *twin = &taking->twin;
	ZkOutcome	outcome = ZK_ANSWERED;

	leasing->is_renewed = false;
	leasing->end = ZK_LEASE_NONE;
	if (taking->stage != ZK_LEASE_NOTHING)
		outcome = remove_twin(trip, taking);
	while (outcome == ZK_ANSWERED && leasing->end == ZK_LEASE_NONE)
	{
		outcome = win_twin(taking);
		trip->deadline = Max(taking->order.bounds.deadline,
							 protocol_now() + GRANTED_MS);
		if (outcome == ZK_ANSWERED)
			outcome = make_lease(trip, taking);
		else if (outcome == ZK_LATE && twin->owned != NULL)
			outcome = renew_owned(trip, taking, twin->owned->path, twin->owned);
		else if (outcome == ZK_LATE)
		{
			leasing->end = ZK_LEASE_BUSY;
			return ZK_ANSWERED;
		}
		if (leasing->is_renewed)
			leasing->end = ZK_LEASE_HELD;
	}
	return outcome;
}

/*
 * The session was lost before the twin was known to have become a lease.
 * Delete it, so that it cannot any more.
 */
static ZkOutcome
remove_twin(ZkRoundTrip *trip, ZkLeaseTaking *taking)
{
	const ZkReply *reply;
	ZkOutcome	outcome;

	do
		outcome = zklock_roundtrip_ask(trip,
									   zklock_client_remove(zklock_session_client(),
															taking->twin.node,
															ZK_ANY_VERSION),
									   &reply);
	while (outcome == ZK_UNKNOWN);
	if (outcome != ZK_ANSWERED)
		return outcome;
	zklock_lease_check(&taking->leasing.name, reply);
	if (taking->stage == ZK_LEASE_SENT)
		zklock_lease_roots_wake();	/* the lease may be there */
	taking->stage = ZK_LEASE_NOTHING;
	return ZK_ANSWERED;
}

/* The lock in the ordinary way; the outcome is that of zklock_contender_win_place(). */
static ZkOutcome
win_twin(ZkLeaseTaking *taking)
{
	const ZkOrder *order = &taking->order;
	ZkOutcome	outcome;

	taking->twin = zklock_order_place(order);
	outcome = zklock_contender_win_place(order, &taking->twin);
	if (outcome != ZK_ANSWERED)
		return outcome;
	taking->stage = ZK_LEASE_TWIN;
	zklock_place_unwatch(&taking->twin);
	return ZK_ANSWERED;
}

/*
 * The owner has a lease: renew it, by whichever version it has.  Without an end,
 * it is gone, or not the one that this backend knows.  read: as it was read; or
 * NULL.  One that is read and none of ours (lease_node.c) is anybody's.
 */
static ZkOutcome
renew_owned(ZkRoundTrip *trip, ZkLeaseTaking *taking, const char *path,
			ZkLeased *read)
{
	ZkLeasing  *leasing = &taking->leasing;
	ZkOutcome	outcome = ZK_ANSWERED;
	bool		is_gone;

	leasing->czxid = 0;
	do
	{
		if (read != NULL)
			zklock_lease_accept(leasing, read);
		else
			outcome = zklock_lease_read(trip, leasing, path);
		if (outcome != ZK_ANSWERED)
			return outcome;
		if (read != NULL && leasing->mine == NULL)
		{
			leasing->end = ZK_LEASE_BUSY;
			return ZK_ANSWERED;
		}
		read = NULL;
		if (leasing->mine == NULL ||
			strcmp(leasing->mine->who.owner, taking->order.owner) != 0)
		{
			zklock_roundtrip_note_doubt(trip, path, ZK_LISTED_ONLY);
			return ZK_ANSWERED;
		}
		outcome = end_other_kind(trip, taking, &is_gone);
		if (outcome != ZK_ANSWERED || is_gone)
			return outcome;
		outcome = zklock_lease_renew_node(trip, leasing);
	} while (outcome == ZK_ANSWERED && !leasing->is_renewed);
	return outcome;
}

/*
 * A lease of another kind would be taken for what it is not.  If its term is over,
 * it is deleted.
 */
static ZkOutcome
end_other_kind(ZkRoundTrip *trip, const ZkLeaseTaking *taking, bool *is_gone)
{
	const ZkOrder *order = &taking->order;
	ZkLeased   *mine = taking->leasing.mine;
	RecipeNode	node = recipe_parse_node(mine->node);
	int64		look_at = ZK_NO_DEADLINE;
	ZkOutcome	outcome;

	*is_gone = false;
	if (node.mode == order->mode && node.permits == order->permits)
		return ZK_ANSWERED;
	zklock_expiry_time(mine);
	outcome = zklock_expiry_end(trip, order->name.path, mine, &look_at);
	*is_gone = look_at == ZK_LOOK_NOW;
	if (outcome != ZK_ANSWERED || *is_gone)
		return outcome;
	zklock_lease_roots_wake();	/* this session may not come again */
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("owner \"%s\" has another kind of lease of lock \"%s\"",
					zklock_text_quotable(order->owner), order->name.text),
			 errdetail("The owner has %s, with fencing token " INT64_FORMAT ". This call asks for %s.",
					   describe_mode(node.mode, node.permits), mine->token,
					   describe_mode(order->mode, order->permits)),
			 errhint("Release that lease first, or name another owner.")));
}

static const char *
describe_mode(RecipeMode mode, int permits)
{
	if (mode == RECIPE_SHARED)
		return "a shared lease";
	if (permits > 1)
		return psprintf("one of %d leases", permits);
	return "the only lease";
}

/* ---------------------------------------------------------------------
 * The lock is made to last
 * ---------------------------------------------------------------------
 */

/*
 * Put the lease in the twin's place.  Without an end, the twin was gone, or the
 * lease is again.
 *
 * The term counts from the first attempt.  If another one was needed, or the
 * answer took long, the lease is renewed once, so that the caller has most of
 * the term before him.
 */
static ZkOutcome
make_lease(ZkRoundTrip *trip, ZkLeaseTaking *taking)
{
	ZkLeasing  *leasing = &taking->leasing;
	Moment		sent = protocol_moment();
	ZkMove		move = plan_move(taking);
	bool		is_repeated = false;
	bool		is_made = false;
	const ZkReply *reply;
	ZkOutcome	outcome;

	taking->stage = ZK_LEASE_SENT;
	do
	{
		outcome = ask_move(trip, &move, &is_repeated, &reply);
		if (outcome != ZK_ANSWERED)
			return outcome;
		zklock_lease_check(&leasing->name, reply);
		if (reply->result == ZK_OK)
			break;
		outcome = resolve_missing(trip, taking, &is_made);
		if (outcome != ZK_ANSWERED || taking->stage == ZK_LEASE_NOTHING)
			return outcome;
	} while (!is_made);

	taking->is_new = true;
	zklock_stat_count(ZK_STAT_LEASE);
	zklock_lease_roots_wake();
	if (is_made || is_repeated || reply->czxid == 0 ||
		protocol_now() - sent.boot_ms >= leasing->term_ms / 3)
	{
		/* while it can be told from a renewal by another call */
		CHECK_FOR_INTERRUPTS();
		outcome = renew_owned(trip, taking, taking->path, NULL);
		if (outcome != ZK_ANSWERED)
			return outcome;
	}
	else
	{
		leasing->proof = sent;
		note_made(taking, reply->czxid);
	}

	/* a cancel that came with the last reply: undo it while we can */
	CHECK_FOR_INTERRUPTS();
	taking->stage = ZK_LEASE_NOTHING;
	return ZK_ANSWERED;
}

/* The path of the lease is set. */
static ZkMove
plan_move(ZkLeaseTaking *taking)
{
	const ZkLeasing *leasing = &taking->leasing;
	const ZkPlace *twin = &taking->twin;
	const ZkOrder *order = &taking->order;
	char		guid[RECIPE_GUID_LEN + 1];
	ZkMove		move = {
		.from = twin->node,
		.to = taking->path,
		.data = zklock_lease_build_data(order->owner, leasing->note,
										leasing->term_ms),
		.kind = ZK_PERSISTENT,
		.set = zklock_name_lease_path(&order->name),
		.set_data = zklock_name_below_root(&order->name)
	};

	recipe_lease_guid(guid, recipe_hash_owner(order->owner), twin->token);
	zklock_place_lasting_path(twin, order->style, guid, taking->path);
	return move;
}

/* Until there is an answer.  *is_repeated: not the first one. */
static ZkOutcome
ask_move(ZkRoundTrip *trip, const ZkMove *move, bool *is_repeated,
		 const ZkReply **reply)
{
	for (;;)
	{
		ZkOutcome	outcome = zklock_roundtrip_ask(trip,
												   zklock_client_move(zklock_session_client(),
																	  move),
												   reply);

		if (outcome != ZK_UNKNOWN)
			return outcome;
		*is_repeated = true;
	}
}

/*
 * The twin was not there, or the lock's name was not.  *is_made: the lease is
 * there.  Otherwise the name is made, and the same is to be asked again; or, at
 * ZK_LEASE_NOTHING, the twin is gone.
 */
static ZkOutcome
resolve_missing(ZkRoundTrip *trip, ZkLeaseTaking *taking, bool *is_made)
{
	char	   *paths[] = {taking->path, taking->twin.node};
	const ZkReply *replies[lengthof(paths)];
	const ZkReply *reply;
	ZkOutcome	outcome;
	bool		is_twin_there;

	outcome = zklock_roundtrip_read_all(trip, ZK_GET, paths, lengthof(paths),
										replies);
	if (outcome != ZK_ANSWERED)
		return outcome;
	for (int i = 0; i < (int) lengthof(paths); i++)
		zklock_lease_check(&taking->leasing.name, replies[i]);
	*is_made = replies[0]->result == ZK_OK;
	is_twin_there = replies[1]->result == ZK_OK;
	zklock_roundtrip_end_reads(trip, lengthof(paths));
	if (*is_made)
		return ZK_ANSWERED;
	if (!is_twin_there)
	{
		taking->stage = ZK_LEASE_NOTHING;
		return ZK_ANSWERED;
	}
	zklock_roundtrip_note_doubt(trip, taking->twin.node, ZK_LISTED_ONLY);
	outcome = zklock_lease_names_make(trip, &taking->order.name, &reply);
	if (outcome == ZK_ANSWERED && reply->result != ZK_NODE_EXISTS)
		zklock_lease_check(&taking->leasing.name, reply);
	return outcome;
}

/* As its own reply tells. */
static void
note_made(ZkLeaseTaking *taking, int64 czxid)
{
	ZkLeasing  *leasing = &taking->leasing;
	ZkLeased   *mine = palloc0(sizeof(*mine));

	mine->path = pstrdup(taking->path);
	mine->node = strrchr(mine->path, '/') + 1;
	mine->token = taking->twin.token;
	mine->czxid = czxid;
	mine->term_ms = leasing->term_ms;
	mine->who.owner = pstrdup(taking->order.owner);
	leasing->mine = mine;
	leasing->is_renewed = true;
	zklock_expiry_debug(mine->path, mine->token, "taken");
}

/*
 * Nobody waits for the replies: the session's program repeats the deletes until
 * they are confirmed.  The twin goes first: when it is gone, the transaction
 * cannot be done any more.  The lease goes as it was made, or in version 1 if
 * this call is the one that has renewed it: whoever has renewed it otherwise has
 * it.  Where it is not known who has, as while a renewal is under way, or
 * without memory or a session, the lease goes when its term is over, and the
 * twin with the session.
 */
void
zklock_lease_end_taking(void *argument)
{
	ZkLeaseTaking *taking = argument;
	const ZkLeasing *leasing = &taking->leasing;
	ZkClient   *client = zklock_session_client();
	bool		is_renewed_once = leasing->is_renewed &&
		leasing->mine->version == 1;

	if (taking->stage == ZK_LEASE_NOTHING || zklock_session_live() == 0)
		return;
	(void) zklock_client_delete(client, taking->twin.node, ZK_ANY_VERSION);
	if (taking->stage == ZK_LEASE_SENT)
		(void) zklock_client_delete(client, taking->path,
									is_renewed_once ? 1 : 0);

	/* an error may be under way, which no interrupt is to replace */
	HOLD_INTERRUPTS();
	zklock_expiry_debug(taking->twin.node, taking->twin.token,
						"being deleted: the call that took it has no use for it");
	RESUME_INTERRUPTS();
}
