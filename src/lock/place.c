/*-------------------------------------------------------------------------
 *
 * place.c
 *	  A place in the queue of a lock: the queue node that this backend stands
 *	  on, with all that hangs on it: token, proof, downgrade, removal.
 *
 * Both modes of a lock have one place.  A session that holds it exclusively
 * and takes it shared besides stays on the exclusive node; if the exclusive
 * count ends first, a shared node replaces that one.  The token stays that of
 * the exclusive node: the new node is younger than those of waiting writers,
 * but its token must not be greater than theirs.
 *
 * The one rule: what is called at the end of a transaction (downgrade, leave,
 * settle) never raises and never waits.  A place is its owner's memory.
 *
 *-------------------------------------------------------------------------
 */
#include "place.h"

#include "mb/pg_wchar.h"
#include "miscadmin.h"

#include "handover.h"
#include "nodedata.h"
#include "recall.h"
#include "text.h"
#include "write.h"

/* Is anybody to hear that the node had been deleted by somebody else? */
typedef enum LeaveNews
{
	LEAVE_SILENTLY,				/* that is known, or it may have been us */
	LEAVE_TO_BE_TOLD,			/* zklock_client_take_gone() tells of it */
	LEAVE_ASKING				/* the caller waits for the answer */
} LeaveNews;

static const char *node_name(const ZkPlace *place);
static ZkRequest *remove_node(const ZkPlace *place, LeaveNews news);
static void name_next_node(ZkPlace *place);
static void remove_recall(ZkPlace *place);
static ZkRequest *check_node(const ZkPlace *place);
static bool await_proof(ZkPlace *place, ZkRequest **request,
						int64 deadline);
static void free_text(char **text);
static void log_deletion(const char *name, const char *node, int64 token);

/* ---------------------------------------------------------------------
 * Public functions
 * ---------------------------------------------------------------------
 */

bool
zklock_place_is_lost(const ZkPlace *place, ZkSessionNumber live)
{
	return place->is_evicted || place->session != live;
}

void
zklock_place_prepare_downgrade(ZkPlace *place, MemoryContext context)
{
	char	   *data = zklock_nodedata_build(place->token, NULL);

	free_text(&place->next_data);
	place->next_data = MemoryContextStrdup(context, data);
	if (place->next_node == NULL)
		place->next_node = MemoryContextAlloc(context, RECIPE_PATH_SIZE);
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

	/* sent at the end of that, for the transaction may go on for long */
	zklock_client_begin_many(zklock_session_client());

	/* without memory for the request the exclusive node stays */
	place->replacing = zklock_write_replace(place->node, place->czxid,
											place->next_node,
											place->next_data);
	zklock_client_end_many(zklock_session_client());
}

/*
 * The place has its new node; or it keeps the old one; or somebody had deleted
 * the old one before the new one was there, and another contender may hold the
 * lock.
 */
void
zklock_place_settle(ZkPlace *place, ZkSessionNumber live)
{
	const ZkReply *reply;

	if (place->made != NULL && place->session == live &&
		zklock_client_reply(place->made)->result == ZK_NO_NODE)
		place->is_evicted = true;
	if (place->session != live)
		place->replacing = NULL;	/* freed with the session */
	if (place->replacing == NULL)
		return;
	reply = zklock_client_reply(place->replacing);
	if (reply == NULL)
		return;
	if (reply->result != ZK_OK)
	{
		/* undone: the new node goes, if it is there */
		place->is_evicted |= reply->result == ZK_NO_NODE;
		zklock_client_withdraw(place->replacing);
		place->replacing = NULL;
		return;
	}
	strlcpy(place->node, place->next_node, RECIPE_PATH_SIZE);
	place->proof = reply->proof;
	place->czxid = reply->czxid;
	zklock_place_unwatch(place);
	place->made = place->replacing;
	place->replacing = NULL;
}

/*
 * Where a downgrade is under way, the session's program must learn in one piece
 * that the old node is left and that the downgrade is withdrawn: it knows which
 * came first, the downgrade's end or this.  If the downgrade has ended, the
 * program leaves the new node instead.  So the withdrawal, which deletes the new
 * node, too, goes behind: the answer is to be that of the first delete.
 */
ZkRequest *
zklock_place_leave(ZkPlace *place, ZkSessionNumber live, bool is_asking)
{
	ZkRequest  *answer = NULL;
	ZkClient   *client = zklock_session_client();

	Assert(place->session != 0);
	zklock_place_settle(place, live);

	/* ahead of the delete: that is our own */
	zklock_place_unwatch(place);
	if (place->session == live)
	{
		LeaveNews	news = LEAVE_TO_BE_TOLD;

		if (is_asking)
			news = LEAVE_ASKING;
		else if (place->is_told || place->replacing != NULL)
			news = LEAVE_SILENTLY;
		zklock_client_begin_many(client);
		answer = remove_node(place, news);
		zklock_client_withdraw(place->replacing);
		place->replacing = NULL;
		zklock_client_end_many(client);
	}
	remove_recall(place);
	return answer;
}

void
zklock_place_tell_loss(const char *name, const char *node, int64 token)
{
	HOLD_INTERRUPTS();			/* a WARNING would look for them */
	log_deletion(name, node, token);
	ereport(WARNING,
			(errcode(ERRCODE_WARNING),
			 errmsg("lock \"%s\" had been lost before it was released", name),
			 errdetail(ZK_DELETED, token),
			 errhint(ZK_SEE_DELETED)));
	RESUME_INTERRUPTS();
}

void
zklock_place_note_grant(ZkPlace *place, ZkRequest *made)
{
	place->made = made;
	place->session = zklock_session_number();
	place->granted_at = GetCurrentTimestamp();
	place->granted_ms = protocol_now();

	/* it may have been kept, and evicted; all else is as in a new one */
	place->is_evicted = place->is_awaited = false;
}

void
zklock_place_unwatch(ZkPlace *place)
{
	if (place->session == zklock_session_number())
		zklock_client_free(place->made);
	place->made = NULL;
}

bool
zklock_place_read_recall(ZkPlace *place)
{
	return zklock_recall_read(place->name, place->lock_path,
							  place->root_length, node_name(place),
							  &place->recall_told);
}

/*
 * The reply may be no fresh proof.  Attempt 1: this process was stopped after
 * it had asked, and the reply has waited for it, so it asks again.  Attempt 2
 * and later: the session paused before the request, and only replies that come
 * from now on can date a proof.
 */
bool
zklock_place_prove(ZkPlace *const *places, int nplaces, int attempt,
				   int64 deadline)
{
	ZkRequest **requests = palloc0(nplaces * sizeof(*requests));
	volatile bool is_answered = true;

	if (attempt == ZK_PROOF_ATTEMPTS)
		ereport(ERROR,
				(errcode(ERRCODE_CONNECTION_FAILURE),
				 errmsg("could not prove that the ZooKeeper locks of this session are held"),
				 errdetail("ZooKeeper answers, but too late for what it says to be still certain."),
				 errhint("Increase \"%s\", or find out with zk_check() what slows the ensemble down.",
						 "zklock.session_timeout")));
	if (attempt >= 2)
		zklock_session_await_contact(deadline);

	for (int i = 0; i < nplaces; i++)
		if (!zklock_place_await_downgrade(places[i], deadline))
			return protocol_now() < deadline;

	PG_TRY();
	{
		for (int i = 0; i < nplaces; i++)
			requests[i] = check_node(places[i]);
		for (int i = 0; i < nplaces && is_answered; i++)
			is_answered = await_proof(places[i], &requests[i], deadline);
	}
	PG_FINALLY();
	{
		for (int i = 0; i < nplaces; i++)
			zklock_client_free(requests[i]);
	}
	PG_END_TRY();
	for (int i = 0; i < nplaces; i++)
		if (places[i]->is_evicted)
			zklock_place_log_deletion(places[i]);
	return is_answered;
}

void
zklock_place_log_deletion(ZkPlace *place)
{
	if (place->is_told || place->is_mistaken)
		return;
	log_deletion(place->name, node_name(place), place->token);
	place->is_told = true;
}

bool
zklock_place_await_downgrade(ZkPlace *place, int64 deadline)
{
	if (place->replacing != NULL)
	{
		const ZkReply *reply = zklock_session_await(place->replacing, deadline,
													ZK_WAITING_TO_COMMIT);

		if (reply == NULL || reply->result == ZK_SESSION_LOST)
			return false;
	}
	zklock_place_settle(place, zklock_session_live());
	return true;
}

void
zklock_place_free(ZkPlace *place)
{
	free_text(&place->next_data);
	free_text(&place->next_node);
}

static void
free_text(char **text)
{
	if (*text != NULL)
		pfree(*text);
	*text = NULL;
}

/* ---------------------------------------------------------------------
 * Nodes
 * ---------------------------------------------------------------------
 */

/* The name of the queue node that it stands on, or soon will. */
static const char *
node_name(const ZkPlace *place)
{
	return strrchr(place->replacing != NULL ? place->next_node :
				   place->node, '/') + 1;
}

/*
 * Delete the node, behind a set of its data to nothing if that hands the lock
 * over: who watches it learns that it was its owner who let go.  If somebody
 * else has deleted it before, that is told as news says; the result is that of
 * LEAVE_ASKING.  Complains where the delete is impossible; without the path,
 * which may have characters that cannot be shown here, and this is no place
 * for an error.
 */
static ZkRequest *
remove_node(const ZkPlace *place, LeaveNews news)
{
	ZkClient   *client = zklock_session_client();
	const char *child = strrchr(place->node, '/') + 1;
	ZkRequest  *answer = NULL;
	bool		is_sent = false;
	bool		is_neighbor_next = place->mode == RECIPE_EXCLUSIVE &&
		!place->is_evicted &&
		recipe_read_mark(child) == RECIPE_MARK_HAND_OVER &&
		zklock_handover_tell(place->node, place->token);

	zklock_client_begin_many(client);
	if (place->can_hand_over && !place->is_evicted && !is_neighbor_next)
	{
		/* without memory the one behind looks at the queue, when we are gone */
		(void) zklock_write_announce(ZK_WRITE_PAID, place->node, NULL);
	}
	switch (news)
	{
		case LEAVE_SILENTLY:
			is_sent = zklock_client_delete(client, place->node);
			break;
		case LEAVE_TO_BE_TOLD:
			is_sent = zklock_client_leave(client, place->node, place->name,
										  place->token, place->is_awaited);
			break;
		case LEAVE_ASKING:
			answer = zklock_client_leave_asking(client, place->node,
												place->name, place->czxid,
												place->is_awaited);
			is_sent = answer != NULL;
			break;
	}
	zklock_client_end_many(client);
	if (!is_sent)
		ereport(WARNING,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("could not delete a queue node of lock \"%s\": out of memory",
						place->name),
				 errhint("Call zk_disconnect(), or end this connection: the node goes with the session.")));
	return answer;
}

/* ---------------------------------------------------------------------
 * Downgrade
 * ---------------------------------------------------------------------
 */

/* Write the path of the shared node with our number; "" without randomness. */
static void
name_next_node(ZkPlace *place)
{
	RecipeNode	node = recipe_parse_node(strrchr(place->node, '/') + 1);
	char		prefix[RECIPE_NODE_SIZE];
	char		guid[RECIPE_GUID_LEN + 1];
	uint8		random[16];

	place->next_node[0] = '\0';
	if (!pg_strong_random(random, sizeof(random)))
		return;
	recipe_format_guid(guid, random);
	recipe_node_prefix(prefix, node.style, RECIPE_SHARED, 1, guid);
	snprintf(place->next_node, RECIPE_PATH_SIZE, "%s/%s%010d",
			 place->lock_path, prefix, node.sequence);
}

/* ---------------------------------------------------------------------
 * Proofs
 * ---------------------------------------------------------------------
 */

/*
 * The request to release the lock that the user was told of, if there is one,
 * has been met.  Nobody waits for the delete.
 */
static void
remove_recall(ZkPlace *place)
{
	if (place->recall_told != 0)
		zklock_recall_remove(place->lock_path, place->root_length,
							 node_name(place));
	place->recall_told = 0;
}

/* Ask the quorum for the node. */
static ZkRequest *
check_node(const ZkPlace *place)
{
	return zklock_write_check(place->node, place->czxid);
}

/*
 * Read the answer for the node of one place.  If it was lost with the
 * connection, ask again: either the session comes back or it is lost.  false
 * at the deadline.
 */
static bool
await_proof(ZkPlace *place, ZkRequest **request, int64 deadline)
{
	for (;;)
	{
		const ZkReply *reply = zklock_session_await(*request, deadline,
													ZK_WAITING_TO_COMMIT);

		if (reply == NULL)
			return false;
		switch (reply->result)
		{
			case ZK_OK:
				place->proof = reply->proof;
				return true;
			case ZK_NO_NODE:
				place->is_evicted = true;
				return true;
			case ZK_UNKNOWN_OUTCOME:
				zklock_client_free(*request);
				*request = check_node(place);
				break;
			case ZK_SESSION_LOST:
				return true;	/* zklock_place_is_lost() sees it */
			default:
				zklock_session_raise(reply, "check a lock", place->node);
		}
	}
}

static void
log_deletion(const char *name, const char *node, int64 token)
{
	ereport(LOG,
			(errmsg("queue node of process %d for ZooKeeper lock \"%s\" was deleted",
					MyProcPid, zklock_text_quotable_own(name)),
			 errdetail_log(ZK_DELETED " Its name was \"%s\".", token,
						   zklock_text_quotable(node)),
			 errhint(ZK_SEE_DELETED)));
}
