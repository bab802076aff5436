/*-------------------------------------------------------------------------
 *
 * contender_log.c
 *	  What a contender says: its errors, the CONTEXT of its wait, its lines of
 *	  the log.
 *
 * The one rule: a mere try pays nothing for this.  The error of a contender
 * that is past its bound costs at most one read and REASON_MS.
 *
 *-------------------------------------------------------------------------
 */
#include "contender_private.h"

#include "miscadmin.h"
#include "storage/lock.h"

#include "nodedata.h"
#include "text.h"
#include "stat.h"

/*
 * How long a contender whose time is over waits to hear who holds the lock: a
 * healthy ensemble answers within milliseconds.
 */
#define REASON_MS 200

/* How often the first contender is looked for, of a queue that moves. */
#define FIRST_LOOKS 3

static const char *lock_mode_name(const Contender *contender);
static void log_failure(const Contender *contender, const char *ahead);
static char *describe_ahead(const Contender *contender, const char *holder);
static char *describe_holder(Contender *contender, int64 deadline);
static bool read_holder(Contender *contender, int64 deadline,
						const ZkReply **reply);
static bool read_first(Contender *contender, const ZkReply **reply);
static bool list_anew(Contender *contender);

/* A line of the log has no SQLSTATE, and needs no context: it has the name. */
void
contender_add_context(void *name)
{
	if (geterrcode() != ERRCODE_SUCCESSFUL_COMPLETION)
		errcontext("while waiting for ZooKeeper lock \"%s\"",
				   (const char *) name);
}

void
contender_refuse(Contender *contender, bool is_known)
{
	const ZkOrder *order = contender->order;
	char	   *holder;
	char	   *ahead;

	if (order->is_try)
		zklock_stat_count(ZK_STAT_TRY_IN_VAIN);
	if (!is_known)
		zklock_order_raise_silence(order);
	if (order->is_try && !log_lock_failures)
		return;

	holder = describe_holder(contender, protocol_now() + REASON_MS);
	ahead = describe_ahead(contender, holder);
	if (log_lock_failures)
		log_failure(contender, ahead);
	if (order->is_try)
		return;
	if (zklock_nodedata_may_be_shown())
		zklock_order_raise_busy(order, ahead, ahead);
	zklock_order_raise_busy(order, describe_ahead(contender, NULL), ahead);
}

void
contender_raise_mismatch(const Contender *contender)
{
	RecipeNode	node = recipe_parse_node(contender->ahead.next);

	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("number of permits differs from that of other users of lock \"%s\"",
					contender->order->name.text),
			 errdetail("This call names permits => %d. The first contender of the queue, of style \"%s\", has %d.",
					   contender->place->permits,
					   recipe_style_name(node.style), node.permits),
			 errhint("Name the number of permits that zk_lock_queue() shows: all contenders of a lock must name the same. Shared locks and other ZooKeeper clients have 1.")));
}

void
contender_log_wait(Contender *contender)
{
	char	   *holder = describe_holder(contender,
										 contender->order->bounds.deadline);

	contender->wait.is_logged = true;
	ereport(LOG,
			(errmsg("process %d still waiting for %s on ZooKeeper lock \"%s\" after " INT64_FORMAT " ms",
					MyProcPid, lock_mode_name(contender),
					contender->order->name.text,
					protocol_now() - contender->wait.started_at),
			 errdetail_log("%s", describe_ahead(contender, holder))));
}

void
contender_log_grant(const Contender *contender)
{
	if (!contender->wait.is_logged)
		return;
	ereport(LOG,
			(errmsg("process %d acquired %s on ZooKeeper lock \"%s\" after " INT64_FORMAT " ms",
					MyProcPid, lock_mode_name(contender),
					contender->order->name.text,
					protocol_now() - contender->wait.started_at)));
}

static void
log_failure(const Contender *contender, const char *ahead)
{
	ereport(LOG,
			(errmsg("process %d could not obtain %s on ZooKeeper lock \"%s\"",
					MyProcPid, lock_mode_name(contender),
					contender->order->name.text),
			 errdetail_log("%s", ahead)));
}

static const char *
lock_mode_name(const Contender *contender)
{
	return contender->place->mode == RECIPE_SHARED ?
		"ShareLock" : "ExclusiveLock";
}

/* How many are ahead; before it who holds the lock, if that is not NULL. */
static char *
describe_ahead(const Contender *contender, const char *holder)
{
	int			count = contender->ahead.count;

	if (holder == NULL)
		holder = "";
	if (count == 0)
		return pstrdup("The last contender ahead has just left.");
	if (count == 1)
		return psprintf("%s1 contender is ahead.", holder);
	return psprintf("%sUp to %d contenders are ahead.", holder, count);
}

/*
 * The holder of the lock, as a sentence, palloc'ed; NULL if that cannot be
 * told by that deadline.  The node of a holder that is releasing the lock does
 * not say any more whose it is.
 */
static char *
describe_holder(Contender *contender, int64 deadline)
{
	const ZkReply *reply;
	const char *first;
	const char *name = NULL;
	RecipeMark	mark = RECIPE_MARK_NONE;
	ZkNodeData	who;

	if (!read_holder(contender, deadline, &reply))
		return NULL;
	first = contender->ahead.first; /* of another list, maybe */
	if (first != NULL)
	{
		name = strrchr(first, '/') + 1;
		mark = recipe_read_mark(name);
	}
	if (reply->data_length <= 0 && reply->ephemeral_owner == 0 &&
		name != NULL && recipe_may_be_name(name))
		return psprintf("The znode \"%s\" belongs to no session and may be a contender of another client. It counts until it is deleted. ",
						zklock_text_quotable(first));
	if (reply->data_length <= 0)
		return NULL;
	zklock_nodedata_parse(reply->data, reply->data_length, &who);
	if (mark == RECIPE_MARK_LEASE && who.owner != NULL)
		return psprintf("A lease of \"%s\" for " INT64_FORMAT " ms, renewed last by %s. ",
						zklock_text_quotable(who.owner), who.term_ms,
						zklock_nodedata_describe(&who));
	if (mark == RECIPE_MARK_HOLD)
		return psprintf("A permanent hold, made by %s; zk_release_hold() ends it. ",
						zklock_nodedata_describe(&who));
	return psprintf("Held by %s. ", zklock_nodedata_describe(&who));
}

/*
 * Read who holds the lock: the first contender.  Mostly nothing is sent: the
 * one just ahead was read before, and if it is the first, it holds the lock.
 * false if its data cannot be had by that deadline: the report does without,
 * and a loss of the session is found by what the contender asks next.
 */
static bool
read_holder(Contender *contender, int64 deadline, const ZkReply **reply)
{
	int64		bound = contender->trip.deadline;
	bool		is_read;

	if (contender->ahead.next_read == contender->trip.nasked &&
		contender->ahead.is_next_first)
	{
		*reply = zklock_client_reply(contender->trip.request);
		return (*reply)->result == ZK_OK;
	}
	if (!zklock_session_is_connected())
		return false;
	contender->trip.deadline = deadline;
	is_read = read_first(contender, reply);
	contender->trip.deadline = bound;
	return is_read;
}

/*
 * The first contender of the last list; if it has gone meanwhile, that of
 * another list: the contender behind it holds the lock now.  false likewise,
 * and if there is none.
 */
static bool
read_first(Contender *contender, const ZkReply **reply)
{
	for (int i = 0; i < FIRST_LOOKS && contender->ahead.first != NULL; i++)
	{
		if (zklock_roundtrip_read(&contender->trip, ZK_GET,
								  contender->ahead.first, reply) != ZK_ANSWERED)
			return false;
		if ((*reply)->result != ZK_NO_NODE)
			return (*reply)->result == ZK_OK;
		if (!list_anew(contender))
			return false;
	}
	return false;
}

/* List the queue, for the contenders ahead; false if there is no such list. */
static bool
list_anew(Contender *contender)
{
	const ZkPlace *place = contender->place;
	const char *mine = NULL;
	ZkChildren	children;
	const ZkReply *list;

	if (zklock_roundtrip_read(&contender->trip, ZK_LIST, place->lock_path,
							  &list) != ZK_ANSWERED || list->result != ZK_OK)
		return false;
	if (contender_stands(contender))
		mine = contender_node_name(place);
	if (zklock_nested_leave_out(&contender->trip, place->lock_path, list,
								zklock_nested_bound(mine),
								&contender->ahead.nested,
								&children) != ZK_ANSWERED)
		return false;
	contender_note_ahead(contender, &children);
	zklock_nested_free(&children);
	return true;
}
