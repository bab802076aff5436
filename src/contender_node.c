/*-------------------------------------------------------------------------
 *
 * contender_node.c
 *	  A contender's queue node: made, found again when a reply was lost,
 *	  withdrawn.
 *
 *-------------------------------------------------------------------------
 */
#include "contender_private.h"

#include "errors.h"
#include "nodedata.h"

/* From this attempt on, parents are created one by one, with their errors. */
#define CAREFUL_ATTEMPT 2

static void note_node(Standing *standing, const char *path,
					  const ZkReply *reply);
static bool find_lost_node(Standing *standing);

const ZkReply *
contender_join(Standing *standing)
{
	const ZkReply *list;

	if (standing->create == NULL)
		contender_send_create(standing);
	standing->is_ahead_read = false;
	list = contender_promised_list(standing);
	return list != NULL ? list :
		zklock_roundtrip_read(&standing->trip, standing->watches_queue ?
								 zklock_client_list_and_watch :
								 zklock_client_list,
								 standing->contender->place->lock_path);
}

void
contender_send_create(Standing *standing)
{
	ZkContender *contender = standing->contender;
	ZkPlace    *place = contender->place;
	char		guid[RECIPE_GUID_LEN + 1];

	if (standing->data == NULL)
		standing->data = contender->wants_keep ?
			pstrdup(place->own_data) : zklock_nodedata_build(0);
	zklock_nodedata_make_guid(guid);
	if (contender->style == RECIPE_STYLE_CURATOR &&
		place->mode == RECIPE_EXCLUSIVE && place->permits == 1)
	{
		/* a name has but one mark; who is waited for will not keep it anyway */
		if (contender->wants_keep)
			recipe_mark(guid, RECIPE_MARK_KEEPER);
		else if (zklock_session_can_hand_over())
			recipe_mark(guid, RECIPE_MARK_HAND_OVER);
	}
	recipe_node_prefix(standing->prefix, contender->style,
					   place->mode, place->permits, guid);
	snprintf(place->node, RECIPE_PATH_SIZE, "%s/%s",
			 place->lock_path, standing->prefix);
	standing->is_node_known = false;
	contender_forget_ahead(standing);
	standing->create = zklock_client_create(zklock_session_client(),
											place->node,
											ZK_EPHEMERAL_SEQUENTIAL,
											standing->data,
											strlen(standing->data));
	if (standing->create == NULL)
		zklock_errors_raise_memory();
}

bool
contender_take_node(Standing *standing)
{
	const ZkReply *reply = zklock_client_reply(standing->create);

	if (reply == NULL)
		return false;			/* the list failed ahead of it: wait for both */
	switch (reply->result)
	{
		case ZK_OK:
			break;
		case ZK_NO_NODE:
			contender_withdraw(standing);
			contender_make_parents(standing);
			return false;
		case ZK_UNKNOWN_OUTCOME:
			return find_lost_node(standing);
		default:
			zklock_session_raise(reply, "join a lock's queue",
								 standing->contender->place->lock_path);
	}

	note_node(standing, reply->path, reply);
	standing->contender->place->proof = reply->proof;
	return true;
}

/*
 * At first nobody waits for the replies: the next attempt's create is behind
 * them and shows whether they worked.
 */
void
contender_make_parents(Standing *standing)
{
	const ZkPlace *place = standing->contender->place;
	char	   *path;
	int			length = strlen(place->lock_path);

	if (++standing->attempts > PARENT_ATTEMPTS)
		ereport(ERROR,
				(errcode(ERRCODE_SYSTEM_ERROR),
				 errmsg("could not create znode \"%s\"",
						zklock_nodedata_quotable(place->lock_path)),
				 errdetail("It vanished %d times before the lock's queue node was in it.",
						   PARENT_ATTEMPTS)));
	if (standing->attempts >= CAREFUL_ATTEMPT)
	{
		zklock_roundtrip_make_parents(&standing->trip, place->node,
									  place->root_length);
		return;
	}
	path = pstrdup(place->lock_path);
	zklock_client_begin_many(zklock_session_client());
	for (int i = 1; i <= length; i++)
	{
		if (place->lock_path[i] != '/' && place->lock_path[i] != '\0')
			continue;
		path[i] = '\0';
		zklock_client_free(zklock_client_create(zklock_session_client(), path,
												i <= place->root_length ?
												ZK_PERSISTENT : ZK_CONTAINER,
												NULL, 0));
		path[i] = '/';
	}
	zklock_client_end_many(zklock_session_client());
	pfree(path);
}

void
contender_withdraw(Standing *standing)
{
	zklock_client_withdraw(standing->create);
	standing->create = NULL;
}

/*
 * A permit that cannot be announced is not taken: whoever watches us would
 * wait for as long as we hold it, be there ever so many free ones; our node's
 * deletion wakes it.
 */
void
contender_announce(const Standing *standing)
{
	if (!zklock_client_announce(zklock_session_client(),
								standing->contender->place->node,
								standing->data,
								strlen(standing->data)))
		zklock_errors_raise_memory();
}

/*
 * Our node is there: keep where, and which.  It must be of this session; it
 * always is, unless the server mixes sessions up, and then nothing that
 * follows is worth anything.
 */
static void
note_node(Standing *standing, const char *path, const ZkReply *reply)
{
	ZkPlace    *place = standing->contender->place;
	ZkClientStatus status;

	if (!zklock_session_status(&status) ||
		reply->ephemeral_owner != status.session_id)
		contender_raise_evicted(standing);
	strlcpy(place->node, path, RECIPE_PATH_SIZE);
	place->token = place->czxid = reply->czxid;
	standing->is_node_known = true;
}

/*
 * The reply to our create was lost.  If the node is there it is found by its
 * GUID and keeps its place in the queue.  Otherwise the request is withdrawn
 * (the server may execute it yet) and contender_join() starts
 * again.  So it is where nothing may depend on strangers: the GUID can be
 * read by now, and who goes on with our session can make nodes in its name.
 * Always false: the list at hand is older than what is found here.
 */
static bool
find_lost_node(Standing *standing)
{
	ZkPlace    *place = standing->contender->place;
	char		path[RECIPE_PATH_SIZE];
	const ZkReply *reply;
	const char *child = NULL;
	Step		step;

	if (standing->contender->wants_list && !zklock_session_has_credentials())
	{
		contender_withdraw(standing);
		return false;
	}

	/*
	 * Our server may lag behind the one that made the node: ahead of the list
	 * goes a write; see send_erase() of the program.
	 */
	reply = zklock_roundtrip_read_newest(&standing->trip, zklock_client_list,
										 place->lock_path);
	step = contender_step(standing, reply);
	if (step == STEP_OUT_OF_PATIENCE || step == STEP_SESSION_LOST)
		return false;
	for (int i = 0; step == STEP_GO_ON && i < reply->nchildren; i++)
		if (strncmp(reply->children[i], standing->prefix,
					strlen(standing->prefix)) == 0)
			child = reply->children[i];
	if (child == NULL)
	{
		contender_withdraw(standing);
		return false;
	}
	snprintf(path, sizeof(path), "%s/%s", place->lock_path, child);
	reply = zklock_roundtrip_read(&standing->trip, zklock_client_get, path);
	if (contender_step(standing, reply) == STEP_GO_ON)
	{
		note_node(standing, path, reply);
		memset(&place->proof, 0, sizeof(place->proof)); /* a read is none */
	}
	return false;
}
