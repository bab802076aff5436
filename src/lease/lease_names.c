/*-------------------------------------------------------------------------
 *
 * lease_names.c
 *	  The names below .leases, which lead the lease worker to leases.
 *
 * The transaction that makes a lease sets the name of its lock below
 * <root>/.leases (lease_take.c).  So the worker finds the queues that have
 * leases.  It deletes such a name when there is no lease in the queue: it reads
 * the name, then has the leader answer, and then lists the queue.  (A server
 * that is behind what this session was told does not let it in,
 * ZooKeeperServer.processConnectRequest().)  A lease that the list does not have
 * was made later, and has set the name since; the delete has the version that
 * was read as condition.  (Executed after its session was
 * given up, it can meet a name that was made anew meanwhile, and has come to the
 * same version.  Then a lease has no name until its lock is leased again, and
 * contenders alone remove it when its term is over.)
 *
 *-------------------------------------------------------------------------
 */
#include "lease_names.h"

#include "compat.h"
#include "ephemeral.h"
#include "expiry.h"
#include "name.h"
#include "parents.h"
#include "session.h"
#include "text.h"

static bool has_leases(const ZkReply *list);
static void drop_name(const char *path, const ZkReply *name);

ZkOutcome
zklock_lease_names_make(ZkRoundTrip *trip, const ZkName *name,
						const ZkReply **reply)
{
	const char *path = zklock_name_lease_path(name);
	ZkOutcome	outcome;

	do
		outcome = zklock_parents_create(trip, path, strrchr(path, '/') - path,
										ZK_PERSISTENT,
										zklock_name_below_root(name), reply);
	while (outcome == ZK_UNKNOWN);
	if (outcome == ZK_ANSWERED)
		zklock_ephemeral_refuse(*reply, path);
	return outcome;
}

ZkOutcome
zklock_lease_names_drop(ZkRoundTrip *trip, const char *root, const List *idle)
{
	char	   *paths[ZK_READS_AT_ONCE] = {0};
	char	   *queues[ZK_READS_AT_ONCE] = {0};
	const ZkReply *names[ZK_READS_AT_ONCE];
	const ZkReply *lists[ZK_READS_AT_ONCE];
	const ZkReply *reply;
	int			nnames = 0;
	ZkOutcome	outcome;

	Assert(list_length(idle) <= ZK_READS_AT_ONCE);
	foreach_ptr(const char, name, idle)
	{
		paths[nnames] = psprintf("%s/" ZK_LEASES_NAME "/%s", root, name);
		queues[nnames++] = zklock_name_leased_path(root, name);
	}
	outcome = zklock_roundtrip_read_all(trip, ZK_GET, paths, nnames, names);
	if (outcome != ZK_ANSWERED)
		return outcome;
	outcome = zklock_roundtrip_read(trip, ZK_CHECK, paths[0], &reply);
	if (outcome == ZK_ANSWERED)
		outcome = zklock_roundtrip_read_all(trip, ZK_LIST, queues, nnames,
											lists);
	if (outcome == ZK_ANSWERED)
	{
		for (int i = 0; i < nnames; i++)
			if (names[i]->result == ZK_OK && !has_leases(lists[i]))
				drop_name(paths[i], names[i]);
		zklock_roundtrip_end_reads(trip, nnames);
	}
	zklock_roundtrip_end_reads(trip, nnames);
	return outcome;
}

/* Or may there be some? */
static bool
has_leases(const ZkReply *list)
{
	if (list->result == ZK_NO_NODE)
		return false;
	return list->result != ZK_OK ||
		zklock_expiry_nodes(list->children, list->nchildren) != NIL;
}

/*
 * Nobody waits for the reply: what is not deleted is found again.  A counter
 * that has wrapped is no condition.
 */
static void
drop_name(const char *path, const ZkReply *name)
{
	if (name->version == ZK_ANY_VERSION)
		return;
	if (message_level_is_interesting(DEBUG1))
		ereport(DEBUG1,
				(errmsg_internal("zklock: the lock's name \"%s\" is being deleted: there is no lease",
								 zklock_text_quotable(path))));
	zklock_client_free(zklock_client_remove(zklock_session_client(), path,
											name->version));
}
