/*-------------------------------------------------------------------------
 *
 * lease_take.c
 *	  A lease is taken for an owner: its node is made, and waits in the queue.
 *
 * A node is deleted with its version as condition, also by the call that made
 * it and gives it up: another call of the same owner may have found and renewed
 * it meanwhile.
 *
 *-------------------------------------------------------------------------
 */
#include "lease_take.h"

#include "utils/memutils.h"

#include "compat.h"
#include "contender.h"
#include "lease_known.h"
#include "lease_names.h"
#include "name.h"
#include "parents.h"
#include "recipe.h"
#include "root.h"
#include "session.h"
#include "stat.h"
#include "take_rate.h"

/*
 * How long a call whose wait was in vain waits to hear that its node is gone; a
 * healthy ensemble answers within milliseconds.
 */
#define REMOVE_MS 1000

static ZkOutcome take_lease(ZkRoundTrip *trip, ZkLeaseTaking *taking);
static ZkOutcome ask_if_busy(ZkRoundTrip *trip, const ZkLeaseTaking *taking,
							 int64 wait_until, bool *is_busy);
static bool needs_renewal(const ZkLeasing *leasing);
static int64 renewal_due_at(const ZkLeasing *leasing);
static ZkOutcome end_taking(ZkRoundTrip *trip, ZkLeaseTaking *taking);
static void end_late(ZkRoundTrip *trip, ZkLeaseTaking *taking);
static ZkOutcome remove_made(ZkRoundTrip *trip, ZkLeaseTaking *taking);
static void withdraw_mine(const ZkLeasing *leasing);
static void keep_made(ZkLeaseTaking *taking);
static bool is_made(const ZkLeaseTaking *taking);
static ZkOutcome await_turn(ZkRoundTrip *trip, ZkLeasing *leasing,
							int64 wait_until);
static ZkOutcome wait_behind(ZkRoundTrip *trip, ZkLeasing *leasing,
							 int64 wait_until);
static ZkOutcome watch_ahead(ZkRoundTrip *trip, ZkLeasing *leasing,
							 bool *is_there);
static void time_ahead(ZkLeasing *leasing, const char *node,
					   const ZkReply *reply);
static ZkOutcome make_node(ZkRoundTrip *trip, ZkLeaseTaking *taking);
static char *node_path(ZkLeaseTaking *taking);
static char *new_data(const ZkLeaseTaking *taking);

ZkOutcome
zklock_lease_take(ZkRoundTrip *trip, void *argument)
{
	ZkLeaseTaking *taking = argument;
	const ZkLeasing *leasing = &taking->leasing;
	const ZkBounds *bounds = &leasing->order.bounds;
	ZkOutcome	outcome;

	Assert(leasing->owner != NULL);
	trip->by = ZK_BY_CALLER;
	outcome = take_lease(trip, taking);
	if (outcome != ZK_LATE)
		return outcome;

	/*
	 * It is busy if others had it at the last look, and nothing but the time of
	 * the call is over.
	 */
	if (zklock_lease_is_first(leasing) || bounds->is_at_once ||
		protocol_now() < bounds->deadline || !zklock_session_is_connected())
		zklock_order_raise_silence(&leasing->order);
	end_late(trip, taking);
	return ZK_ANSWERED;
}

/* The same; ZK_LATE: an answer has not come in time. */
static ZkOutcome
take_lease(ZkRoundTrip *trip, ZkLeaseTaking *taking)
{
	ZkLeasing  *leasing = &taking->leasing;
	int64		wait_until = leasing->order.bounds.wait_until;
	ZkOutcome	outcome;

	zklock_known_guess_place(leasing);
	for (;;)
	{
		/* each answer has a time of its own: it does not wait for others */
		trip->deadline = zklock_bounds_next_reply(&leasing->order.bounds);
		outcome = zklock_lease_find(trip, leasing);
		if (outcome != ZK_ANSWERED)
			return outcome;
		if (leasing->mine == NULL)
		{
			bool		is_busy;

			outcome = ask_if_busy(trip, taking, wait_until, &is_busy);
			if (outcome != ZK_ANSWERED)
				return outcome;
			if (is_busy)
			{
				leasing->end = ZK_LEASE_BUSY;
				return ZK_ANSWERED;
			}
			if (leasing->view.who_ahead == ZK_AHEAD_KEEPER)
				wait_until = Min(Max(wait_until,
									 protocol_now() + ZK_KEEPER_MS),
								 leasing->order.bounds.deadline);
			outcome = make_node(trip, taking);
			if (outcome != ZK_ANSWERED)
				return outcome;
			continue;
		}
		if (needs_renewal(leasing))
		{
			outcome = zklock_lease_renew_node(trip, leasing);
			if (outcome != ZK_ANSWERED)
				return outcome;
		}
		if (leasing->renewed != leasing->mine->token)
			continue;
		if (!zklock_lease_is_first(leasing) && protocol_now() < wait_until)
		{
			outcome = await_turn(trip, leasing, wait_until);
			if (outcome != ZK_ANSWERED)
				return outcome;
			if (protocol_now() < wait_until)
				continue;
		}
		return end_taking(trip, taking);
	}
}

/*
 * A call that leaves no place behind, and whose time is over, makes no node if
 * others have the lock.  A session that merely keeps it gives it up when
 * somebody comes.
 */
static ZkOutcome
ask_if_busy(ZkRoundTrip *trip, const ZkLeaseTaking *taking, int64 wait_until,
			bool *is_busy)
{
	const ZkLeaseView *view = &taking->leasing.view;
	ZkOutcome	outcome;

	*is_busy = false;
	if (view->who_ahead == ZK_AHEAD_NOBODY || taking->stays_queued ||
		protocol_now() < wait_until)
		return ZK_ANSWERED;
	*is_busy = true;
	if (view->who_ahead == ZK_AHEAD_OTHER)
		return ZK_ANSWERED;
	outcome = zklock_contend_is_held(trip, view->ahead, is_busy);
	if (outcome != ZK_LATE)
		return outcome;

	/* without an answer it may hold the lock */
	*is_busy = true;
	return ZK_ANSWERED;
}

static bool
needs_renewal(const ZkLeasing *leasing)
{
	return leasing->renewed != leasing->mine->token ||
		protocol_now() >= renewal_due_at(leasing);
}

/* When it is to be renewed while it waits. */
static int64
renewal_due_at(const ZkLeasing *leasing)
{
	return leasing->proof.boot_ms + leasing->ttl_ms / 3;
}

/* The owner's node was renewed, and nothing is waited for any more. */
static ZkOutcome
end_taking(ZkRoundTrip *trip, ZkLeaseTaking *taking)
{
	ZkLeasing  *leasing = &taking->leasing;

	Assert(leasing->mine != NULL && leasing->renewed == leasing->mine->token);
	if (zklock_lease_is_first(leasing))
		leasing->end = ZK_LEASE_HELD;
	else if (taking->stays_queued)
		leasing->end = ZK_LEASE_QUEUED;
	else
	{
		leasing->end = ZK_LEASE_BUSY;
		if (is_made(taking))
			return remove_made(trip, taking);
		return ZK_ANSWERED;
	}
	zklock_expiry_debug(leasing->mine->path, leasing->mine->token,
						leasing->end == ZK_LEASE_HELD ? "taken" :
						"queued: others have the lock");
	if (is_made(taking))
		zklock_stat_count(ZK_STAT_LEASE);
	keep_made(taking);
	return ZK_ANSWERED;
}

/*
 * ZooKeeper has not answered before the time of the call was over, and others
 * had the lock: what the call has made goes, if there are answers now.  The
 * call is over, whatever has become of it.
 */
static void
end_late(ZkRoundTrip *trip, ZkLeaseTaking *taking)
{
	ZkLeasing  *leasing = &taking->leasing;

	leasing->end = ZK_LEASE_BUSY;
	if (taking->stays_queued)
	{
		keep_made(taking);
		if (leasing->mine != NULL && !zklock_lease_is_first(leasing))
			leasing->end = ZK_LEASE_QUEUED;
	}
	trip->deadline = protocol_now() + REMOVE_MS;
	if (taking->guid[0] != '\0' &&
		zklock_lease_find(trip, leasing) == ZK_ANSWERED && is_made(taking))
		(void) remove_made(trip, taking);	/* over in any case */
}

/*
 * The wait was in vain: delete what was made.  An answer that takes longer than
 * REMOVE_MS is not waited for, see zklock_lease_end_taking(): never ZK_LATE.
 */
static ZkOutcome
remove_made(ZkRoundTrip *trip, ZkLeaseTaking *taking)
{
	ZkLeased   *mine = taking->leasing.mine;
	ZkOutcome	outcome;
	bool		is_gone;

	trip->deadline = protocol_now() + REMOVE_MS;
	outcome = zklock_expiry_remove(trip, mine, &is_gone);
	if (outcome == ZK_LATE)
		return ZK_ANSWERED;
	if (outcome == ZK_ANSWERED)
	{
		if (is_gone)
			zklock_expiry_debug(mine->path, mine->token,
								"deleted: the wait was in vain");
		else
			withdraw_mine(&taking->leasing);	/* refused, or renewed by
												 * another call */
		keep_made(taking);
	}
	return outcome;
}

void
zklock_lease_end_taking(void *argument)
{
	ZkLeaseTaking *taking = argument;

	zklock_client_unwatch(zklock_session_client());
	if (is_made(taking))
	{
		withdraw_mine(&taking->leasing);
		zklock_client_free(taking->create);
	}
	else
		zklock_client_withdraw(taking->create);
	taking->create = NULL;
}

/*
 * Delete mine, unless another call has renewed it.  Nobody waits for the
 * reply: the session's program repeats the delete until it is confirmed.
 */
static void
withdraw_mine(const ZkLeasing *leasing)
{
	const ZkLeased *mine = leasing->mine;

	if (zklock_session_client() == NULL || mine->version == ZK_ANY_VERSION)
		return;
	zklock_expiry_debug(mine->path, mine->token,
						"being deleted: the call that made it has no use for it");

	/* without memory it stays until its term is over */
	(void) zklock_client_delete(zklock_session_client(), mine->path,
								mine->version);
}

/* What was made is not this call's any more. */
static void
keep_made(ZkLeaseTaking *taking)
{
	zklock_client_free(taking->create);
	taking->create = NULL;
	taking->guid[0] = '\0';
	taking->leasing.reads_behind = false;
}

/* Was mine made by this call, in whatever session, and is it not to stay yet? */
static bool
is_made(const ZkLeaseTaking *taking)
{
	const ZkLeased *mine = taking->leasing.mine;

	return taking->guid[0] != '\0' && mine != NULL &&
		strstr(mine->node, taking->guid) != NULL;
}

/* ---------------------------------------------------------------------
 * Waiting
 * ---------------------------------------------------------------------
 */

/*
 * Wait behind the node just ahead until the queue is to be looked at again:
 * that node is gone, a term is over, or the wait is.  Renews mine meanwhile.
 */
static ZkOutcome
await_turn(ZkRoundTrip *trip, ZkLeasing *leasing, int64 wait_until)
{
	MemoryContext context = AllocSetContextCreate(leasing->view.context,
												  "zklock lease wait",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	ZkOutcome	outcome = wait_behind(trip, leasing, wait_until);

	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
	return outcome;
}

/* In a memory context of its own, for it may take hours. */
static ZkOutcome
wait_behind(ZkRoundTrip *trip, ZkLeasing *leasing, int64 wait_until)
{
	for (;;)
	{
		int64		look_at;
		ZkOutcome	outcome;
		bool		is_there;

		MemoryContextReset(CurrentMemoryContext);
		outcome = watch_ahead(trip, leasing, &is_there);
		if (outcome != ZK_ANSWERED || !is_there)
			return outcome;
		look_at = Min(leasing->view.look_at, wait_until);
		for (;;)
		{
			outcome = zklock_session_await_watch(Min(look_at,
													 renewal_due_at(leasing)));
			if (outcome != ZK_LATE)
				break;
			if (protocol_now() >= look_at)
				return ZK_ANSWERED;
			MemoryContextReset(CurrentMemoryContext);
			trip->deadline = zklock_bounds_next_reply(&leasing->order.bounds);
			outcome = zklock_lease_renew_node(trip, leasing);
			if (outcome != ZK_ANSWERED ||
				leasing->renewed != leasing->mine->token)
				return outcome;
		}
		if (outcome == ZK_LOST ||
			zklock_client_watch_news(zklock_session_client()) != ZK_WATCH_SET)
			return outcome;
	}
}

/*
 * Watch the node just ahead.  If *is_there, view.look_at is when to look at the
 * queue without news of it; otherwise it is gone.
 */
static ZkOutcome
watch_ahead(ZkRoundTrip *trip, ZkLeasing *leasing, bool *is_there)
{
	const char *node = strrchr(leasing->view.ahead, '/') + 1;
	const ZkReply *reply;
	ZkOutcome	outcome;

	trip->deadline = zklock_bounds_next_reply(&leasing->order.bounds);
	outcome = zklock_roundtrip_read(trip, ZK_GET_AND_WATCH,
									leasing->view.ahead, &reply);
	if (outcome != ZK_ANSWERED)
		return outcome;
	zklock_lease_check(leasing, reply);
	*is_there = reply->result == ZK_OK;
	if (*is_there)
		time_ahead(leasing, node, reply);
	return ZK_ANSWERED;
}

/* If the node ahead is a lease, time the version that is there now. */
static void
time_ahead(ZkLeasing *leasing, const char *node, const ZkReply *reply)
{
	ZkLeaseView *view = &leasing->view;
	ZkLeased	one = {.node = node};

	if (recipe_read_mark(node) == RECIPE_MARK_LEASE &&
		zklock_expiry_take(&one, reply))
	{
		/* if its term is over, a look has just tried to delete it */
		zklock_expiry_time(&one);
		if (one.over_at > protocol_now())
			view->look_at = one.over_at;
	}
	view->look_at = Min(view->look_at, zklock_contend_look_at(node));
}

/* ---------------------------------------------------------------------
 * The node is made
 * ---------------------------------------------------------------------
 */

/*
 * Make a node for the owner.  The name of the lock is noted first, for the
 * worker that looks for leases whose term is over; and once more, if it may
 * have been dropped before the node was there (lease_names.h).  If the reply
 * is lost the next look finds what there is.
 *
 * Raises past zklock.max_creates, before anything is made.
 */
static ZkOutcome
make_node(ZkRoundTrip *trip, ZkLeaseTaking *taking)
{
	ZkLeasing  *leasing = &taking->leasing;
	bool		has_parent = leasing->view.has_parent && taking->nparentless == 0;
	const ZkName *name = &leasing->order.name;
	const char *pointer = zklock_name_lease_path(name);
	int64		named_at = protocol_now();
	char	   *data;
	char	   *path;
	const ZkReply *reply;
	Moment		sent;
	ZkOutcome	outcome;

	if (!taking->is_counted)
		zklock_take_rate_count(1);
	taking->is_counted = true;
	outcome = zklock_root_prove(trip, leasing->view.lock_path,
								name->root_length);
	if (outcome != ZK_ANSWERED)
		return outcome;
	data = new_data(taking);
	path = node_path(taking);
	if (!has_parent)
	{
		outcome = zklock_parents_make(trip, path, name->root_length, &reply);
		if (outcome != ZK_ANSWERED)
			return outcome;
		if (reply != NULL)
			zklock_lease_check(leasing, reply); /* it is refused: this raises */
	}
	outcome = zklock_lease_names_note(trip, name, pointer, &reply);
	if (outcome != ZK_ANSWERED)
		return outcome;
	zklock_lease_check(leasing, reply);
	if (reply->result != ZK_OK)
		return ZK_ANSWERED;

	/* one whose reply was lost may be made yet */
	zklock_client_withdraw(taking->create);
	sent = protocol_moment();
	taking->create = zklock_client_create(zklock_session_client(), path,
										  ZK_PERSISTENT_SEQUENTIAL, data);
	outcome = zklock_roundtrip_await(trip, taking->create, &reply);
	if (outcome == ZK_LATE || outcome == ZK_LOST)
		return outcome;
	if (reply->result != ZK_OK)
		zklock_roundtrip_unmake(trip);
	if (outcome == ZK_UNKNOWN)
		return ZK_ANSWERED;		/* the next look finds it, or nothing */
	zklock_lease_check(leasing, reply);
	if (reply->result == ZK_NO_NODE && ++taking->nparentless > PARENT_ATTEMPTS)
		zklock_parents_raise_deleted(leasing->view.lock_path);
	if (reply->result != ZK_OK)
		return ZK_ANSWERED;
	leasing->renewed = reply->czxid;
	leasing->proof = sent;
	strlcpy(leasing->place, strrchr(reply->path, '/') + 1,
			sizeof(leasing->place));
	zklock_expiry_debug(reply->path, reply->czxid, "made");
	if (protocol_now() - named_at < ZK_LEASE_NAME_MS)
		return ZK_ANSWERED;
	outcome = zklock_lease_names_note(trip, name, pointer, &reply);
	if (outcome == ZK_ANSWERED)
		zklock_lease_check(leasing, reply);
	return outcome;
}

/* The path of the node to be made, with a GUID of its own; palloc'ed. */
static char *
node_path(ZkLeaseTaking *taking)
{
	const ZkOrder *order = &taking->leasing.order;
	char		prefix[RECIPE_NODE_SIZE];

	zklock_nodedata_make_guid(taking->guid);
	recipe_mark(taking->guid, RECIPE_MARK_LEASE);
	taking->leasing.reads_behind = true;
	recipe_node_prefix(prefix, order->style, order->mode, order->permits,
					   taking->guid);
	return psprintf("%s/%s", taking->leasing.view.lock_path, prefix);
}

/* The data of the node to be made, palloc'ed. */
static char *
new_data(const ZkLeaseTaking *taking)
{
	const ZkLeasing *leasing = &taking->leasing;

	return zklock_lease_build_data(leasing->owner, leasing->note,
								   leasing->ttl_ms);
}
