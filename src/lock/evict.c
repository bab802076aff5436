/*-------------------------------------------------------------------------
 *
 * evict.c
 *	  Deletes queue nodes by fencing token: evicted contenders and leases,
 *	  released permanent holds.
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
#include "evict.h"

#include "durable.h"
#include "lease_known.h"
#include "nodedata.h"
#include "queue_list.h"
#include "removal.h"
#include "roundtrip.h"
#include "session.h"
#include "text.h"

/* How often a node may be found that cannot be read, and then can. */
#define UNREAD_MAX 10

static ZkEviction remove_listed(const ZkName *name, int64 token,
								ZkEvictees which, const ZkBounds *bounds,
								const ZkQueueEntry **unread);
static void read_unread(const ZkName *name, const ZkQueueEntry *entry,
						ZkEvictees which, const ZkBounds *bounds);
static ZkRemoval begin_removing(const ZkName *name, const ZkQueueEntry *entry,
								ZkEvictees which);
static bool remove_contender(const ZkName *name, const ZkQueueEntry *entry,
							 ZkEvictees which, const ZkBounds *bounds);
static ZkOutcome remove_queue_node(ZkRoundTrip *trip, void *argument);
static ZkOutcome read_queue_node(ZkRoundTrip *trip, void *argument);
static void log_removal(const char *name, const ZkQueueEntry *entry,
						ZkEvictees which);
static int	errdetail_entry(const ZkQueueEntry *entry);

ZkEviction
zklock_evict_contenders(const ZkName *name, int64 token, ZkEvictees which)
{
	ZkBounds	bounds = zklock_bounds_of_task();

	zklock_known_distrust(name->path, token);
	for (int nrounds = 1;; nrounds++)
	{
		const ZkQueueEntry *unread = NULL;
		ZkEviction	end = remove_listed(name, token, which, &bounds, &unread);

		if (end != ZK_EVICTED_NONE || unread == NULL)
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
static ZkEviction
remove_listed(const ZkName *name, int64 token, ZkEvictees which,
			  const ZkBounds *bounds, const ZkQueueEntry **unread)
{
	ZkEviction	end = ZK_EVICTED_NONE;
	ZkQueueEntry *entries;
	int			nentries;

	/* the token may come from a server that is ahead of ours */
	entries = zklock_read_queue(bounds, name, true, &nentries);
	for (int i = 0; i < nentries; i++)
	{
		const ZkQueueEntry *entry = &entries[i];
		bool		may_go = which == ZK_EVICT_ALL ||
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
				end = ZK_EVICTED;
		}
		else if (end == ZK_EVICTED_NONE)
			end = ZK_EVICTED_NO_HOLD;
	}
	return end;
}

/*
 * Raise why that node cannot be read.  Returns if it can be read by now, or is
 * gone.
 */
static void
read_unread(const ZkName *name, const ZkQueueEntry *entry, ZkEvictees which,
			const ZkBounds *bounds)
{
	ZkRemoval	removal = begin_removing(name, entry, which);

	zklock_roundtrip_must_run(bounds, read_queue_node, NULL, &removal);
}

/* The removal of that node, which has not begun. */
static ZkRemoval
begin_removing(const ZkName *name, const ZkQueueEntry *entry, ZkEvictees which)
{
	ZkRemoval	removal = {
		.path = name->path,
		.doing = "release a permanent hold",
		.czxid = entry->czxid
	};

	if (!entry->is_stranger)
		removal.path = psprintf("%s/%s", name->path, entry->node);
	if (which == ZK_EVICT_ALL)
		removal.doing = "evict a contender";
	return removal;
}

/* false: it has gone by itself. */
static bool
remove_contender(const ZkName *name, const ZkQueueEntry *entry, ZkEvictees which,
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
log_removal(const char *name, const ZkQueueEntry *entry, ZkEvictees which)
{
	const char *caller = zklock_nodedata_caller();
	const char *quoted = zklock_text_quotable_own(name);

	if (which == ZK_EVICT_ALL)
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
