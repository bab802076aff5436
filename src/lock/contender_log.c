/*-------------------------------------------------------------------------
 *
 * contender_log.c
 *	  What a contender says: its errors, the CONTEXT of its wait, and
 *	  log_lock_waits and log_lock_failures in the words of PostgreSQL's own
 *	  messages.
 *
 * The one rule: whoever is only trying pays nothing for this.  The error of
 * one that is past its bound costs a read at most, and REASON_MS at most.
 *
 *-------------------------------------------------------------------------
 */
#include "contender_private.h"

#include "miscadmin.h"
#include "storage/lock.h"

#include "nodedata.h"
#include "stat.h"
#include "text.h"

/*
 * How long a contender whose time is over waits to hear who holds the lock: a
 * healthy ensemble answers within milliseconds.
 */
#define REASON_MS 200

/* How often the first contender is looked for, of a queue that moves. */
#define FIRST_LOOKS 3

static const char *lock_mode_name(const Standing *standing);
static char *describe_ahead(const Standing *standing, const char *holder);
static char *describe_holder(Standing *standing, int64 deadline);
static const ZkReply *read_first(Standing *standing, int64 deadline);

/* A line of the log has no SQLSTATE, and needs no context: it has the name. */
void
contender_add_context(void *name)
{
	if (geterrcode() != ERRCODE_SUCCESSFUL_COMPLETION)
		errcontext("while waiting for ZooKeeper lock \"%s\"",
				   (const char *) name);
}

void
contender_refuse(Standing *standing, bool is_known)
{
	const ZkContender *contender = standing->contender;
	const char *name = contender->place->name;
	char	   *holder;
	char	   *ahead;

	if (contender->is_try)
	{
		zklock_stat_count(ZK_STAT_TRY_IN_VAIN);
		if (!is_known)
			zklock_session_raise_silence(name);
		if (!log_lock_failures)
			return;
	}
	if (!is_known)
		zklock_contend_raise_timeout(contender, NULL, NULL);

	holder = describe_holder(standing, protocol_now() + REASON_MS);
	ahead = describe_ahead(standing, holder);
	if (log_lock_failures)
		ereport(LOG,
				(errmsg("process %d could not obtain %s on ZooKeeper lock \"%s\"",
						MyProcPid, lock_mode_name(standing), name),
				 errdetail_log("%s", ahead)));
	if (!contender->is_try)
		zklock_contend_raise_timeout(contender,
									 zklock_nodedata_may_be_shown() ? ahead :
									 describe_ahead(standing, NULL), ahead);
}

void
zklock_contend_raise_timeout(const ZkContender *contender, const char *ahead,
							 const char *ahead_log)
{
	const char *name = contender->place->name;
	const ZkBounds *bounds = &contender->bounds;
	bool		is_busy = ahead != NULL && bounds->is_at_once;

	zklock_stat_count(ZK_STAT_TIMEOUT);
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 bounds->by == ZK_BY_LOCK_TIMEOUT && !is_busy ?
			 errmsg("canceling statement due to lock timeout") :
			 bounds->is_at_once ?
			 errmsg("could not obtain lock \"%s\"", name) :
			 errmsg("could not obtain lock \"%s\" within " INT64_FORMAT " ms",
					name, bounds->timeout_ms),
			 ahead != NULL ? errdetail("%s", ahead) :
			 zklock_session_explain_silence(),
			 ahead_log != NULL ? errdetail_log("%s", ahead_log) : 0,
			 errcontext("while waiting for ZooKeeper lock \"%s\"", name)));
}

void
contender_raise_evicted(Standing *standing)
{
	const ZkPlace *place = standing->contender->place;
	const char *node = contender_node_name(standing);

	ereport(ERROR,
			(errcode(ERRCODE_OPERATOR_INTERVENTION),
			 errmsg("queue entry for lock \"%s\" was removed", place->name),
			 errdetail(ZK_DELETED, place->token),
			 errdetail_log(ZK_DELETED " Its name was \"%s\".", place->token,
						   zklock_text_quotable(node)),
			 errhint("Run the statement again to queue anew. " ZK_SEE_DELETED)));
}

void
zklock_contend_raise_exhausted(const char *name, const char *lock_path)
{
	ereport(ERROR,
			(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
			 errmsg("sequence numbers of lock \"%s\" are used up",
					name),
			 errdetail("ZooKeeper counts the queue entries below \"%s\" with 31 bits and cannot order more of them, or somebody has made one with a number that another one has.",
					   zklock_text_quotable(lock_path)),
			 errhint("When nobody holds the lock or waits for it any more, let somebody who may run \"delete %s\" in ZooKeeper's zkCli.sh. The znode is created again with a counter of zero.",
					 zklock_text_quotable(lock_path))));
}

void
contender_raise_mismatch(const Standing *standing, const char *child)
{
	RecipeNode	node = recipe_parse_node(child);

	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("number of permits differs from that of other users of lock \"%s\"",
					standing->contender->place->name),
			 errdetail("This call names %d, the first contender of the queue, of style \"%s\", has %d.",
					   standing->contender->place->permits,
					   recipe_style_name(node.style), node.permits),
			 errhint("Name the number that zk_lock_queue() shows: all users of a lock must name the same. Readers and clients in other languages count as 1.")));
}

void
contender_note_ahead(Standing *standing, const ZkChildren *children,
					 const char *mine)
{
	const char *first = NULL;

	if (standing->log_at == ZK_NO_DEADLINE && !log_lock_failures &&
		standing->contender->is_try)
		return;
	standing->nahead = 0;
	for (int i = 0; i < children->count; i++)
	{
		const char *child = children->names[i];

		if (recipe_parse_node(child).style == RECIPE_STYLE_NONE ||
			(mine != NULL && recipe_compare_nodes(child, mine) >= 0))
			continue;
		standing->nahead++;
		if (first == NULL || recipe_compare_nodes(child, first) < 0)
			first = child;
	}
	if (standing->first != NULL)
		pfree(standing->first);
	standing->first = first == NULL ? NULL :
		psprintf("%s/%s", standing->contender->place->lock_path, first);
}

void
contender_log_wait(Standing *standing)
{
	char	   *holder = describe_holder(standing,
										 standing->contender->bounds.deadline);

	standing->is_wait_logged = true;
	ereport(LOG,
			(errmsg("process %d still waiting for %s on ZooKeeper lock \"%s\" after " INT64_FORMAT " ms",
					MyProcPid, lock_mode_name(standing),
					standing->contender->place->name,
					protocol_now() - standing->started_at),
			 errdetail_log("%s", describe_ahead(standing, holder))));
}

void
contender_log_grant(const Standing *standing)
{
	if (!standing->is_wait_logged)
		return;
	ereport(LOG,
			(errmsg("process %d acquired %s on ZooKeeper lock \"%s\" after " INT64_FORMAT " ms",
					MyProcPid, lock_mode_name(standing),
					standing->contender->place->name,
					protocol_now() - standing->started_at)));
}

static const char *
lock_mode_name(const Standing *standing)
{
	return standing->contender->place->mode == RECIPE_SHARED ?
		"ShareLock" : "ExclusiveLock";
}

/* How many are ahead; before it who holds the lock, if that is not NULL. */
static char *
describe_ahead(const Standing *standing, const char *holder)
{
	if (standing->nahead == 0)
		return pstrdup("The last contender ahead has just left.");
	return psprintf(standing->nahead == 1 ?
					"%s%d contender is ahead." :
					"%sUp to %d contenders are ahead.",
					holder != NULL ? holder : "", standing->nahead);
}

/*
 * Who holds the lock, as a sentence, palloc'ed; NULL if that cannot be told by
 * that deadline.  Mostly nothing is read: the one just ahead
 * has been, and if it is the first, it holds the lock.  Otherwise the first is
 * read, which holds the lock.  One that is letting go says nothing of itself
 * any more.
 */
static char *
describe_holder(Standing *standing, int64 deadline)
{
	const ZkReply *first = NULL;
	ZkNodeData	who;
	RecipeMark	mark;

	if (standing->is_ahead_read && standing->is_next_first)
		first = zklock_client_reply(standing->trip.request);
	else if (zklock_session_is_connected())
		first = read_first(standing, deadline);
	if (first == NULL || first->result != ZK_OK)
		return NULL;
	if (first->data_length <= 0 && first->ephemeral_owner == 0 &&
		standing->first != NULL &&
		recipe_may_be_name(strrchr(standing->first, '/') + 1))
		return psprintf("The znode \"%s\" belongs to no session and may be a contender of another client. It counts until somebody deletes it. ",
						zklock_text_quotable(standing->first));
	if (first->data_length <= 0)
		return NULL;
	zklock_nodedata_parse(first->data, first->data_length, &who);
	mark = standing->first == NULL ? RECIPE_MARK_NONE :
		recipe_read_mark(strrchr(standing->first, '/') + 1);
	if (mark == RECIPE_MARK_LEASE && who.owner != NULL)
		return psprintf("A lease of \"%s\" for " INT64_FORMAT " ms, renewed last by %s. ",
						zklock_text_quotable(who.owner), who.ttl_ms,
						zklock_nodedata_describe(&who));
	return psprintf(mark == RECIPE_MARK_HOLD ?
					"A hold, made by %s; zk_release_hold() ends it. " :
					"Held by %s. ", zklock_nodedata_describe(&who));
}

/*
 * The first contender of the last list; if it has gone meanwhile, of another
 * one: whoever was behind it holds the lock now.  NULL if there is none, or no
 * reply by that deadline.
 */
static const ZkReply *
read_first(Standing *standing, int64 deadline)
{
	const char *mine = standing->is_node_known ?
		contender_node_name(standing) : NULL;
	int64		bound = standing->trip.deadline;
	const ZkReply *reply = NULL;
	ZkChildren	children;

	standing->is_ahead_read = false;
	standing->trip.deadline = deadline;
	for (int i = 0; i < FIRST_LOOKS && standing->first != NULL; i++)
	{
		reply = zklock_roundtrip_read(&standing->trip, ZK_GET,
									  standing->first);
		if (reply == NULL || reply->result != ZK_NO_NODE)
			break;
		reply = zklock_roundtrip_read(&standing->trip, ZK_LIST,
									  standing->contender->place->lock_path);
		if (reply == NULL || reply->result != ZK_OK)
			break;
		if (!zklock_nested_leave_out(&standing->trip,
									 standing->contender->place->lock_path,
									 reply, zklock_nested_bound(mine),
									 &standing->nested, &children))
		{
			reply = NULL;
			break;
		}
		contender_note_ahead(standing, &children, mine);
		zklock_nested_free(&children);
		reply = NULL;
	}
	standing->trip.deadline = bound;
	return reply;
}
