/*-------------------------------------------------------------------------
 *
 * contender_clear.c
 *	  What a contender clears out of its way: holds that nobody will finish,
 *	  and nodes of its own session that were left over.
 *
 * A hold (hold.c) is a persistent node, and nobody deletes it but who is
 * asked to.  One that was begun and not finished would block the queue for
 * ever, so whoever finds it ahead, just ahead or anywhere, clears it away:
 * clients of other makes that stand in between wait for it like for any other
 * node.  It is void once the node of its maker that it was to stand in for,
 * its twin, is gone while the hold's own data still says "pending".  The
 * delete names the version of the data, so that it loses to a maker who
 * finishes the hold at that moment.
 *
 *-------------------------------------------------------------------------
 */
#include "contender_private.h"

#include "nodedata.h"

/*
 * At how many holds one list makes us look.  There are more only if somebody
 * makes names that look like holds.
 */
#define HOLDS_LOOKED_AT 64

static HoldState look_at_hold(Standing *standing, const char *hold,
							  char twin[RECIPE_PATH_SIZE]);
static bool is_known_to_stand(const Standing *standing, const char *hold);

HoldState
contender_look_at_holds(Standing *standing, const ZkReply *list,
						const char *mine,
						char twin[RECIPE_PATH_SIZE])
{
	List	   *holds = NIL;
	ListCell   *cell;
	HoldState	state = HOLD_STANDS;

	for (int i = 0; i < list->nchildren &&
		 list_length(holds) < HOLDS_LOOKED_AT; i++)
	{
		const char *child = list->children[i];

		if (recipe_is_hold(child) && !is_known_to_stand(standing, child) &&
			(mine == NULL || recipe_compare_nodes(child, mine) < 0))
			holds = lappend(holds, pstrdup(child));
	}
	foreach(cell, holds)
	{
		HoldState	found = look_at_hold(standing, lfirst(cell), twin);

		if (found != HOLD_STANDS && state != HOLD_GONE)
			state = found;
	}
	list_free_deep(holds);
	return state;
}

/*
 * We hold nothing of this lock while we contend for it, so it is left over
 * from an attempt that was taken for undone.
 */
bool
contender_is_left_over(const Standing *standing, const char *child,
					   const ZkReply *reply)
{
	const char *mine = contender_node_name(standing);
	ZkClientStatus status;

	return !standing->contender->may_be_there &&
		reply->ephemeral_owner != 0 && zklock_session_status(&status) &&
		reply->ephemeral_owner == status.session_id &&
		strcmp(child, mine) != 0;
}

bool
contender_remove_node(Standing *standing, const char *path, int version)
{
	const ZkReply *reply;

	reply = zklock_roundtrip_ask(&standing->trip,
								 zklock_client_remove(zklock_session_client(),
													  path, version));
	return reply == NULL ||
		(reply->result != ZK_FAILED && reply->result != ZK_NO_AUTH);
}

/*
 * What has become of one hold?  PENDING: twin is set to the name of its
 * maker's node.
 */
static HoldState
look_at_hold(Standing *standing, const char *hold, char twin[RECIPE_PATH_SIZE])
{
	const char *lock_path = standing->contender->place->lock_path;
	char	   *path = psprintf("%s/%s", lock_path, hold);
	const ZkReply *reply;
	ZkNodeData	who;

	reply = zklock_roundtrip_read(&standing->trip, zklock_client_get, path);
	if (reply == NULL || reply->result != ZK_OK)
		return reply != NULL && reply->result == ZK_NO_NODE ?
			HOLD_GONE : HOLD_STANDS;
	zklock_nodedata_parse(reply->data, reply->data_length, &who);
	if (reply->version > 0 || who.twin == NULL ||
		!recipe_is_twin(hold, who.twin))
	{
		standing->holds = lappend(standing->holds, pstrdup(hold));
		return HOLD_STANDS;
	}
	strlcpy(twin, who.twin, RECIPE_PATH_SIZE);
	reply = zklock_roundtrip_read(&standing->trip, zklock_client_get,
								  psprintf("%s/%s", lock_path, twin));
	if (reply == NULL || reply->result != ZK_NO_NODE)
		return HOLD_PENDING;

	/* one that was finished meanwhile stays */
	return contender_remove_node(standing, path, 0) ? HOLD_GONE : HOLD_STANDS;
}

static bool
is_known_to_stand(const Standing *standing, const char *hold)
{
	ListCell   *cell;

	foreach(cell, standing->holds)
		if (strcmp(lfirst(cell), hold) == 0)
		return true;
	return false;
}
