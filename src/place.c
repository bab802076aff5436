/*-------------------------------------------------------------------------
 *
 * place.c
 *	  A place in the queue of a lock: the queue nodes that this backend stands
 *	  on, with all that hangs on them: token, proof, downgrade, removal.
 *
 * Both modes of a lock stand on one place: who holds it exclusively and takes
 * it shared besides stays on the exclusive node, which is replaced when the
 * exclusive count ends first.  The token stays that of the exclusive node for
 * good: the node that replaces it is younger than those of waiting writers,
 * and its number must not come after theirs all the same.
 *
 * The one rule: what is called at the end of a transaction (downgrade, leave,
 * settle) never raises and never waits.  A place is its owner's memory.
 *
 *-------------------------------------------------------------------------
 */
#include "place.h"

#include "miscadmin.h"

#include "handover.h"
#include "nodedata.h"
#include "recall.h"

/*
 * How often the quorum is asked for a fresh proof.  All but the first two
 * take a third of the session timeout, so the answers of such an ensemble
 * take too long.
 */
#define PROOF_ATTEMPTS 6

static const char *node_name(const ZkPlace *place);
static void remove_nodes(const ZkPlace *place);
static void remove_node(const ZkPlace *place, const char *path,
						bool should_set);
static void name_next_node(ZkPlace *place);
static void send_downgrade(ZkPlace *place);
static void withdraw_downgrade(ZkPlace *place);
static void remove_recall(ZkPlace *place);
static ZkRequest *check_node(const ZkPlace *place, int rank);
static void await_proofs(ZkPlace *place, ZkRequest **requests);
static void free_requests(ZkRequest **requests, int nrequests);
static void hear_of_eviction(ZkPlace *place);

/* ---------------------------------------------------------------------
 * Public functions
 * ---------------------------------------------------------------------
 */

void
zklock_place_path(const ZkPlace *place, const char *first, int rank,
				  char path[RECIPE_PATH_SIZE])
{
	const char *name = strrchr(first, '/') + 1;
	char		alias[RECIPE_NODE_SIZE];

	if (rank == 0)
	{
		strlcpy(path, first, RECIPE_PATH_SIZE);
		return;
	}
	alias_name(alias, name, rank, recipe_parse_node(name).mode,
			   place->numbers[rank]);
	snprintf(path, RECIPE_PATH_SIZE, "%.*s%s", (int) (name - first), first,
			 alias);
}

bool
zklock_place_is_lost(const ZkPlace *place, ZkSessionNumber live)
{
	return place->is_evicted || place->session != live;
}

void
zklock_place_prepare_downgrade(ZkPlace *place, MemoryContext context)
{
	char	   *data = zklock_nodedata_build(place->token);

	if (place->next_data != NULL)
		pfree(place->next_data);
	place->next_data = NULL;
	place->next_data = MemoryContextStrdup(context, data);
	pfree(data);
}

void
zklock_place_downgrade(ZkPlace *place, ZkSessionNumber live)
{
	Assert(place->mode == RECIPE_EXCLUSIVE && place->next_data != NULL);
	remove_recall(place);
	place->mode = RECIPE_SHARED;
	place->can_hand_over = false;	/* readers may hold it with us */
	if (zklock_place_is_lost(place, live))
		return;
	name_next_node(place);
	if (place->next_node[0] == '\0')
		return;
	send_downgrade(place);
}

/*
 * The place is on its new nodes; or it stays on the old ones; or somebody had
 * deleted an old one, and perhaps been granted the lock, before the new one
 * was there.  Of several nodes all must be new ones: a place that has not all
 * of its nodes is lost.
 */
void
zklock_place_settle(ZkPlace *place, ZkSessionNumber live)
{
	bool		is_good = true;
	Moment		proof = ZK_NO_PROOF;

	if (place->replacing[0] == NULL)
		return;
	if (place->session != live)
	{
		/* freed with the session */
		memset(place->replacing, 0, sizeof(place->replacing));
		return;
	}
	for (int rank = 0; rank < place->nnodes; rank++)
	{
		const ZkReply *reply = zklock_client_reply(place->replacing[rank]);

		if (reply == NULL)
			return;
		is_good &= reply->result == ZK_OK;
		if (reply->result != ZK_OK)
			place->is_evicted |= reply->result == ZK_NO_NODE ||
				place->nnodes > 1;
		proof = contact_earlier(proof, reply->proof);
	}
	if (!is_good)
	{
		withdraw_downgrade(place);
		return;
	}
	strlcpy(place->node, place->next_node, RECIPE_PATH_SIZE);
	place->proof = proof;
	for (int rank = 0; rank < place->nnodes; rank++)
	{
		place->czxids[rank] = zklock_client_reply(place->replacing[rank])->czxid;
		zklock_client_free(place->replacing[rank]);
	}
	memset(place->replacing, 0, sizeof(place->replacing));
}

void
zklock_place_leave(ZkPlace *place, ZkSessionNumber live)
{
	Assert(place->nnodes > 0 && place->session != 0);
	if (place->session == live)
	{
		zklock_place_settle(place, live);
		withdraw_downgrade(place);
		remove_nodes(place);
	}
	memset(place->replacing, 0, sizeof(place->replacing));
	remove_recall(place);
}

void
zklock_place_note_grant(ZkPlace *place)
{
	place->session = zklock_session_number();
	place->granted_at = GetCurrentTimestamp();
	place->is_evicted = false;
	place->evicted_by[0] = '\0';
	place->is_mistaken = false;
	memset(place->replacing, 0, sizeof(place->replacing));
}

bool
zklock_place_is_recalled(ZkPlace *place, ZkSessionNumber live)
{
	zklock_place_settle(place, live);
	return !zklock_place_is_lost(place, live) &&
		zklock_recall_read(place->name, place->lock_path, place->root_length,
						   node_name(place), &place->recalled_at);
}

/*
 * The answer may be no fresh proof.  If this process was stopped after it had
 * asked, the answer has waited for us: ask again (attempt 1).  If that is not
 * fresh either there was a pause of the session ahead of it, and what can
 * date a proof is what is answered now (attempt 2 and later).
 */
void
zklock_place_prove(ZkPlace *const *places, int nplaces, int attempt)
{
	int			nrequests = nplaces * ALIAS_COUNT;
	ZkRequest **requests = palloc0(nrequests * sizeof(*requests));

	if (attempt == PROOF_ATTEMPTS)
		ereport(ERROR,
				(errcode(ERRCODE_CONNECTION_FAILURE),
				 errmsg("could not prove that the ZooKeeper locks of this session are held"),
				 errdetail("ZooKeeper answers, but too late for what it says to be still certain."),
				 errhint("Increase \"%s\", or look into what slows the ensemble down.",
						 "zklock.session_timeout")));
	if (attempt >= 2)
		zklock_session_await_contact();

	for (int i = 0; i < nplaces; i++)
		if (!zklock_place_await_downgrade(places[i]))
			return;

	PG_TRY();
	{
		for (int i = 0; i < nplaces; i++)
			for (int rank = 0; rank < places[i]->nnodes; rank++)
				requests[i * ALIAS_COUNT + rank] = check_node(places[i], rank);
		for (int i = 0; i < nplaces; i++)
			await_proofs(places[i], &requests[i * ALIAS_COUNT]);
	}
	PG_CATCH();
	{
		free_requests(requests, nrequests);
		PG_RE_THROW();
	}
	PG_END_TRY();
	free_requests(requests, nrequests);
	for (int i = 0; i < nplaces; i++)
		if (places[i]->is_evicted)
			hear_of_eviction(places[i]);
}

bool
zklock_place_await_downgrade(ZkPlace *place)
{
	for (int rank = 0; rank < ALIAS_COUNT; rank++)
		if (place->replacing[rank] != NULL &&
			zklock_session_await(place->replacing[rank], ZK_NO_DEADLINE,
								 ZK_WAITING_TO_COMMIT)->result ==
			ZK_SESSION_LOST)
			return false;
	zklock_place_settle(place, zklock_session_live());
	return true;
}

void
zklock_place_free(ZkPlace *place)
{
	if (place->next_data != NULL)
		pfree(place->next_data);
	if (place->own_data != NULL)
		pfree(place->own_data);
	place->next_data = place->own_data = NULL;
}

/* ---------------------------------------------------------------------
 * Nodes
 * ---------------------------------------------------------------------
 */

/* The name of the queue node that it stands on, or soon will. */
static const char *
node_name(const ZkPlace *place)
{
	return strrchr(place->replacing[0] != NULL ? place->next_node :
				   place->node, '/') + 1;
}

/*
 * Delete the nodes, the first one first; recipe_alias.c says why.  If the
 * sequence counter has come far, try at times to delete the lock's znode too:
 * it works if nobody waits, and nobody misses it; see contender_drain.c.
 */
static void
remove_nodes(const ZkPlace *place)
{
	const char *child = strrchr(place->node, '/') + 1;
	bool		is_neighbor_next = place->mode == RECIPE_EXCLUSIVE &&
		!place->is_evicted && recipe_can_hand_over(child) &&
		zklock_handover_tell(place->node, place->token);
	char		path[RECIPE_PATH_SIZE];

	for (int rank = 0; rank < place->nnodes; rank++)
	{
		zklock_place_path(place, place->node, rank, path);
		remove_node(place, path, place->can_hand_over &&
					!place->is_evicted && !is_neighbor_next);
	}
	if (recipe_should_prune(child))
		zklock_client_free(zklock_client_remove(zklock_session_client(),
												place->lock_path,
												ZK_ANY_VERSION));
}

/*
 * Send a delete, behind a set if that hands the lock over, and complain where
 * that is impossible; without the path, which may have characters that cannot
 * be shown here, and this is no place for an error.
 */
static void
remove_node(const ZkPlace *place, const char *path, bool should_set)
{
	ZkClient   *client = zklock_session_client();

	if (!(should_set ? zklock_client_hand_over(client, path) :
		  zklock_client_delete(client, path)))
		ereport(WARNING,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("could not delete a queue node of lock \"%s\": out of memory",
						place->name),
				 errhint("It goes with the end of this session.")));
}

/* ---------------------------------------------------------------------
 * Downgrade
 * ---------------------------------------------------------------------
 */

/*
 * Write the path of the shared node with our number; "" without randomness.
 * Several nodes keep their GUID, by which others know that they belong
 * together, whichever of them are replaced already.
 */
static void
name_next_node(ZkPlace *place)
{
	const char *name = strrchr(place->node, '/') + 1;
	RecipeNode	node = recipe_parse_node(name);
	char		next[RECIPE_NODE_SIZE];
	char		prefix[RECIPE_NODE_SIZE];
	char		guid[RECIPE_GUID_LEN + 1];
	uint8		random[16];

	place->next_node[0] = '\0';
	if (!pg_strong_random(random, sizeof(random)))
		return;
	if (place->nnodes > 1)
		alias_name(next, name, 0, RECIPE_SHARED, node.sequence);
	else
	{
		recipe_format_guid(guid, random);
		recipe_node_prefix(prefix, node.style, RECIPE_SHARED, 1, guid);
		snprintf(next, sizeof(next), "%.60s%010d", prefix, node.sequence);
	}
	snprintf(place->next_node, RECIPE_PATH_SIZE, "%s/%s", place->lock_path,
			 next);
}

/* Replace each node. */
static void
send_downgrade(ZkPlace *place)
{
	bool		is_complete = true;

	for (int rank = 0; rank < place->nnodes; rank++)
	{
		char		from[RECIPE_PATH_SIZE];
		char		to[RECIPE_PATH_SIZE];

		zklock_place_path(place, place->node, rank, from);
		zklock_place_path(place, place->next_node, rank, to);
		place->replacing[rank] =
			zklock_client_replace(zklock_session_client(), from,
								  place->czxids[rank], to, place->next_data,
								  strlen(place->next_data));
		is_complete &= place->replacing[rank] != NULL;
	}

	/* without memory: one exclusive node stays, some of several are no lock */
	if (is_complete)
		return;
	place->is_evicted |= place->nnodes > 1;
	withdraw_downgrade(place);
}

/* Undo a downgrade: the new nodes go, as far as they are there. */
static void
withdraw_downgrade(ZkPlace *place)
{
	for (int rank = 0; rank < ALIAS_COUNT; rank++)
	{
		zklock_client_withdraw(place->replacing[rank]);
		place->replacing[rank] = NULL;
	}
}

/* ---------------------------------------------------------------------
 * Proofs
 * ---------------------------------------------------------------------
 */

/* Ask the quorum for one of the nodes. */
/*
 * The request to release the lock that the user was told of, if there is one,
 * has been met.  Nobody waits for the delete.
 */
static void
remove_recall(ZkPlace *place)
{
	if (place->recalled_at != 0)
		zklock_recall_remove(place->lock_path, place->root_length,
							 node_name(place));
	place->recalled_at = 0;
}

static ZkRequest *
check_node(const ZkPlace *place, int rank)
{
	char		path[RECIPE_PATH_SIZE];

	zklock_place_path(place, place->node, rank, path);
	return zklock_client_check(zklock_session_client(), path,
							   place->czxids[rank]);
}

/*
 * Read the answers for the nodes of one place, which is proved by all of them
 * only.  An answer that was lost with the connection is asked for again:
 * either the session comes back or it is lost.
 */
static void
await_proofs(ZkPlace *place, ZkRequest **requests)
{
	Moment		proof = ZK_NO_PROOF;

	for (int i = 0; i < place->nnodes; i++)
	{
		const ZkReply *reply = zklock_session_await(requests[i],
													ZK_NO_DEADLINE,
													ZK_WAITING_TO_COMMIT);

		switch (reply->result)
		{
			case ZK_OK:
				proof = contact_earlier(proof, reply->proof);
				break;
			case ZK_NO_NODE:
				place->is_evicted = true;
				return;
			case ZK_UNKNOWN_OUTCOME:
				zklock_client_free(requests[i]);
				requests[i] = check_node(place, i);
				i--;
				break;
			case ZK_SESSION_LOST:
				return;			/* zklock_place_is_lost() sees it */
			default:
				zklock_session_raise(reply, "check a lock", place->node);
		}
	}
	place->proof = proof;
}

static void
free_requests(ZkRequest **requests, int nrequests)
{
	for (int i = 0; i < nrequests; i++)
		zklock_client_free(requests[i]);
	pfree(requests);
}

/*
 * A node of the place is gone: by whom?  The log is told in any case: what
 * it says of the token is in the log of who did it, too.
 */
static void
hear_of_eviction(ZkPlace *place)
{
	ZkRoundTrip trip = {.deadline = ZK_NO_DEADLINE};
	char	   *who = NULL;

	PG_TRY();
	{
		who = zklock_eviction_hear(&trip, place->lock_path, place->root_length,
								   node_name(place));
	}
	PG_CATCH();
	{
		zklock_roundtrip_end(&trip);
		PG_RE_THROW();
	}
	PG_END_TRY();
	zklock_roundtrip_end(&trip);
	if (who != NULL && zklock_nodedata_may_be_shown())
		zklock_nodedata_clip(place->evicted_by, ZK_EVICTOR_SIZE, who);
	ereport(LOG,
			(errmsg("process %d was evicted from ZooKeeper lock \"%s\"",
					MyProcPid, zklock_nodedata_quotable_own(place->name)),
			 who != NULL ?
			 errdetail_log("By %s. It was queue node \"%s\", fencing token " INT64_FORMAT ".",
						   who, zklock_nodedata_quotable(node_name(place)),
						   place->token) :
			 errdetail_log("It was queue node \"%s\", fencing token " INT64_FORMAT ".",
						   zklock_nodedata_quotable(node_name(place)),
						   place->token)));
}
