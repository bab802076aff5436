/*-------------------------------------------------------------------------
 *
 * durable.c
 *	  What is done to a queue from outside of it: contenders are evicted.
 *
 * An eviction deletes a znode that is somebody else's.  ZooKeeper asks for no
 * more than the right to delete children of the lock's znode.  Whoever is
 * evicted learns of it from the ensemble, as of any loss: a holder at its next
 * proof, a waiter at its next look at the queue.
 *
 *-------------------------------------------------------------------------
 */
#include "durable.h"

#include "miscadmin.h"

#include "dialog.h"
#include "name.h"
#include "queue.h"
#include "session.h"

static bool catch_up(ZkDialog *dialog, void *argument);
static bool remove_node(ZkDialog *dialog, void *argument);
static void log_eviction(const char *name, const ZkQueueEntry *entry);

/* ---------------------------------------------------------------------
 * Eviction
 * ---------------------------------------------------------------------
 */

bool
zklock_evict(const char *name, int64 token)
{
	ZkQueueEntry *entries;
	int			nentries;
	bool		is_removed = false;

	/* the token may come from a server that is ahead of ours */
	zklock_dialog_run(catch_up, unconstify(char *, name));
	entries = zklock_read_queue(name, &nentries);
	for (int i = 0; i < nentries; i++)
	{
		ZkRemoval	removal = {0};

		if (entries[i].position == 0 || entries[i].token != token)
			continue;
		removal.path = psprintf("%s/%s", zklock_name_path(name, NULL),
								entries[i].node);
		removal.doing = "evict a contender";
		removal.czxid = entries[i].czxid;
		log_eviction(name, &entries[i]);
		zklock_dialog_run(remove_node, &removal);
		is_removed |= removal.is_removed;
	}
	return is_removed;
}

/* Before it is done: it may be interrupted, and be done all the same. */
static void
log_eviction(const char *name, const ZkQueueEntry *entry)
{
	ereport(LOG,
			(errmsg("process %d of user \"%s\" evicts %s from ZooKeeper lock \"%s\"",
					MyProcPid, GetUserNameFromId(GetSessionUserId(), true),
					zklock_identity_describe(&entry->identity), name),
			 errdetail("Queue node \"%s\", fencing token " INT64_FORMAT ".",
					   zklock_identity_printable(entry->node), entry->token)));
}

/* ---------------------------------------------------------------------
 * Helpers
 * ---------------------------------------------------------------------
 */

/* Let our server learn all that any other has told anybody so far. */
static bool
catch_up(ZkDialog *dialog, void *argument)
{
	char	   *path = zklock_name_path(argument, NULL);
	const ZkReply *reply;

	do
		reply = zklock_dialog_ask(dialog,
								  zklock_client_sync(zklock_session_client(),
													 path));
	while (reply->result == ZK_UNKNOWN_OUTCOME);
	return reply->result != ZK_SESSION_LOST;
}

static bool
remove_node(ZkDialog *dialog, void *argument)
{
	return zklock_dialog_remove(dialog, argument);
}
