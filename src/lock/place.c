/*-------------------------------------------------------------------------
 *
 * place.c
 *	  A place in the queue of a lock: the queue node that this backend stands
 *	  on, with all that hangs on it: token, proof, downgrade, removal.
 *
 * Both modes of a lock have one place.  A session that holds a lock in exclusive
 * mode and takes it in shared mode, too, stays on the exclusive node.  If it
 * releases the exclusive mode first, a shared node replaces the exclusive one.
 * The token stays that of the exclusive node: the shared node is younger than the
 * nodes of waiting writers, but its token must not be greater than theirs.
 *
 * The states of a place, and what leads from one to the next:
 *
 *	NONE -> WANTED				a contender sets out for it
 *	WANTED -> HELD				its lock is granted
 *	WANTED -> NONE				the contender gives up
 *	HELD -> DOWNGRADING			a shared node is to replace the exclusive one
 *	DOWNGRADING -> HELD			it has, or the exclusive node stays
 *	HELD -> KEPT, KEPT -> HELD	keep.c: let go of, and taken back
 *	HELD, DOWNGRADING -> LOST	the node is gone, or its session, or the grant
 *								was a mistake
 *	all but WANTED -> NONE		the node is left, or was given up
 *
 * The one rule: what is called at the end of a transaction (downgrade, leave,
 * settle) never raises and never waits.  A place is its owner's memory.
 *
 *-------------------------------------------------------------------------
 */
#include "place.h"

#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/ipc.h"

#include "handover.h"
#include "nodedata.h"
#include "recall.h"
#include "stat.h"
#include "text.h"

/* If the node turns out to have been deleted before: is somebody to hear it? */
typedef enum LeaveNews
{
	LEAVE_SILENTLY,				/* no: it is known, or we may have done it */
	LEAVE_TO_BE_TOLD,			/* zklock_client_take_gone() tells of it */
	LEAVE_ASKING				/* the caller waits for the answer */
} LeaveNews;

/* The states to which a place can be moved from each. */
#define TO(state) (1u << (state))
static const uint8 legal_moves[ZK_NPLACE_STATES] PG_USED_FOR_ASSERTS_ONLY = {
	[ZK_PLACE_NONE] = TO(ZK_PLACE_WANTED),
	[ZK_PLACE_WANTED] = TO(ZK_PLACE_HELD) | TO(ZK_PLACE_NONE),
	[ZK_PLACE_HELD] = TO(ZK_PLACE_DOWNGRADING) | TO(ZK_PLACE_KEPT) |
	TO(ZK_PLACE_LOST) | TO(ZK_PLACE_NONE),
	[ZK_PLACE_DOWNGRADING] = TO(ZK_PLACE_HELD) | TO(ZK_PLACE_LOST) |
	TO(ZK_PLACE_NONE),
	[ZK_PLACE_KEPT] = TO(ZK_PLACE_HELD) | TO(ZK_PLACE_NONE),
	[ZK_PLACE_LOST] = TO(ZK_PLACE_NONE)
};

static void log_place(const ZkPlace *place, ZkPlaceState state,
					  const char *why);
static void lose(ZkPlace *place, ZkLossKind loss, const char *why);
static void settle_downgrade(ZkPlace *place);
static const char *node_name(const ZkPlace *place);
static ZkRequest *remove_node(const ZkPlace *place, LeaveNews news,
							  bool is_awaited);
static void name_next_node(ZkPlace *place);
static void remove_recall(ZkPlace *place);
static ZkRequest *check_node(const ZkPlace *place);
static bool is_outcome_unknown(const ZkRequest *request);
static bool await_proof(ZkPlace *place, ZkRequest *request, int64 deadline);
static void check_again(ZkPlace *const *places, ZkRequest **requests,
						int nplaces);
static void free_text(char **text);

/* ---------------------------------------------------------------------
 * Public functions: states
 * ---------------------------------------------------------------------
 */

void
zklock_place_move(ZkPlace *place, ZkPlaceState state, const char *why)
{
	Assert((legal_moves[place->state] & TO(state)) != 0);
	Assert((place->downgrade.request != NULL) ==
		   (state == ZK_PLACE_DOWNGRADING));
	Assert((place->loss != ZK_LOST_NOT) == (state == ZK_PLACE_LOST));
	if (message_level_is_interesting(DEBUG1))
		log_place(place, state, why);
	place->state = state;
}

/* It is called where nothing may look for interrupts. */
static void
log_place(const ZkPlace *place, ZkPlaceState state, const char *why)
{
	static const char *const names[ZK_NPLACE_STATES] = {
		[ZK_PLACE_NONE] = "none",
		[ZK_PLACE_WANTED] = "wanted",
		[ZK_PLACE_HELD] = "held",
		[ZK_PLACE_DOWNGRADING] = "downgrading",
		[ZK_PLACE_KEPT] = "kept",
		[ZK_PLACE_LOST] = "lost"
	};
	const char *path = place->node[0] != '\0' ? place->node :
		place->lock_path;

	HOLD_INTERRUPTS();
	ereport(DEBUG1,
			(errmsg_internal("zklock: place \"%s\", fencing token " INT64_FORMAT ": %s -> %s: %s",
							 zklock_text_quotable(path), place->token,
							 names[place->state], names[state], why),
			 errhidestmt(true), errhidecontext(true)));
	RESUME_INTERRUPTS();
}

void
zklock_place_want(ZkPlace *place)
{
	Assert(place->grant.made == NULL && place->keep == NULL);
	place->grant = (ZkGrant) {0};
	place->told = (ZkPlaceTold) {0};
	place->node[0] = '\0';
	place->token = 0;
	zklock_place_move(place, ZK_PLACE_WANTED, "a contender sets out");
}

void
zklock_place_give_up(ZkPlace *place, const char *why)
{
	zklock_place_move(place, ZK_PLACE_NONE, why);
}

void
zklock_place_note_grant(ZkPlace *place, ZkRequest *made)
{
	Assert(place->token != 0 && place->node[0] != '\0');
	place->grant.made = made;
	place->grant.session = zklock_session_number();
	place->grant.at = GetCurrentTimestamp();
	place->grant.at_ms = protocol_now();
	zklock_place_move(place, ZK_PLACE_HELD,
					  place->grant.basis == ZK_GRANTED_ON_WORD ?
					  "granted on the word of the one ahead" : "granted");
}

ZkLossKind
zklock_place_loss(const ZkPlace *place, ZkSessionNumber live)
{
	if (place->state == ZK_PLACE_LOST)
		return place->loss;
	if (place->grant.session != live)
		return ZK_LOST_SESSION;
	return ZK_LOST_NOT;
}

bool
zklock_place_is_lost(const ZkPlace *place, ZkSessionNumber live)
{
	return zklock_place_loss(place, live) != ZK_LOST_NOT;
}

void
zklock_place_settle(ZkPlace *place, ZkSessionNumber live)
{
	if (place->state != ZK_PLACE_HELD && place->state != ZK_PLACE_DOWNGRADING)
		return;
	if (place->grant.session != live)
		lose(place, ZK_LOST_SESSION, "its session is over");
	else if (place->grant.made != NULL &&
			 zklock_client_reply(place->grant.made)->result == ZK_NO_NODE)
		lose(place, ZK_LOST_DELETED, "its node is gone");
	else if (place->state == ZK_PLACE_DOWNGRADING)
		settle_downgrade(place);
}

/* What was known first counts. */
static void
lose(ZkPlace *place, ZkLossKind loss, const char *why)
{
	if (place->state == ZK_PLACE_LOST)
		return;

	/* undone: the new node goes, if it is there, unless its session is over */
	if (loss != ZK_LOST_SESSION)
		zklock_client_withdraw(place->downgrade.request);
	place->downgrade.request = NULL;
	place->loss = loss;
	zklock_place_move(place, ZK_PLACE_LOST, why);
}

/*
 * The place has its new node; or it keeps the old one; or somebody had deleted
 * the old one before the new one was there, and another contender may hold the
 * lock.
 */
static void
settle_downgrade(ZkPlace *place)
{
	ZkRequest  *request = place->downgrade.request;
	const ZkReply *reply = zklock_client_reply(request);

	if (reply == NULL)
		return;
	if (reply->result == ZK_NO_NODE)
	{
		lose(place, ZK_LOST_DELETED, "its node was gone before the downgrade");
		return;
	}
	place->downgrade.request = NULL;
	if (reply->result != ZK_OK)
	{
		/* undone: the new node goes, if it is there */
		zklock_client_withdraw(request);
		zklock_place_move(place, ZK_PLACE_HELD, "the exclusive node stays");
		return;
	}
	strlcpy(place->node, place->downgrade.node, RECIPE_PATH_SIZE);
	place->proof = reply->proof;
	place->czxid = reply->czxid;
	zklock_place_unwatch(place);
	place->grant.made = request;
	zklock_place_move(place, ZK_PLACE_HELD, "it has a shared node");
}

void
zklock_place_note_misled(ZkPlace *place)
{
	lose(place, ZK_LOST_MISLED, "another client was further ahead");
}

void
zklock_place_log_deletion(ZkPlace *place)
{
	if (place->loss != ZK_LOST_DELETED || place->told.of_loss)
		return;
	zklock_loss_log_deletion(place->name, node_name(place), place->token);
	place->told.of_loss = true;
}

/* ---------------------------------------------------------------------
 * Public functions: what is done with it
 * ---------------------------------------------------------------------
 */

void
zklock_place_prepare_downgrade(ZkPlace *place, MemoryContext context)
{
	char	   *data = zklock_nodedata_build(place->token, NULL);

	free_text(&place->downgrade.data);
	place->downgrade.data = MemoryContextStrdup(context, data);
	if (place->downgrade.node == NULL)
		place->downgrade.node = MemoryContextAlloc(context, RECIPE_PATH_SIZE);
	pfree(data);
}

void
zklock_place_downgrade(ZkPlace *place, ZkSessionNumber live)
{
	ZkDowngrade *downgrade = &place->downgrade;

	Assert(place->state == ZK_PLACE_HELD || place->state == ZK_PLACE_LOST);
	Assert(place->mode == RECIPE_EXCLUSIVE && downgrade->data != NULL);
	remove_recall(place);
	place->mode = RECIPE_SHARED;
	place->grant.can_hand_over = false; /* readers may hold it with us */
	if (zklock_place_is_lost(place, live))
		return;
	name_next_node(place);
	if (downgrade->node[0] == '\0')
		return;

	/* sent at the end of that, for the transaction may go on for long */
	zklock_client_begin_many(zklock_session_client());
	downgrade->request = zklock_client_replace(zklock_session_client(),
											   place->node, place->czxid,
											   downgrade->node,
											   downgrade->data);
	zklock_client_end_many(zklock_session_client());

	/* without memory for the request the exclusive node stays */
	if (downgrade->request != NULL)
		zklock_place_move(place, ZK_PLACE_DOWNGRADING, "held in shared mode");
}

/*
 * While a downgrade is under way, the session's program is told in one flush that
 * the old node is left and that the downgrade is withdrawn.  The program knows
 * whether the downgrade had ended by then; if so, it leaves the new node instead
 * of the old one.  The withdrawal deletes the new node, too, and goes second: the
 * answer that is asked for is that of the first delete.
 */
ZkRequest *
zklock_place_leave(ZkPlace *place, ZkSessionNumber live,
				   const ZkLeave *leave)
{
	ZkRequest  *answer = NULL;
	ZkClient   *client = zklock_session_client();

	Assert(place->grant.session != 0);
	zklock_place_settle(place, live);

	/* ahead of the delete: that is our own */
	zklock_place_unwatch(place);
	if (place->grant.session == live)
	{
		LeaveNews	news = LEAVE_TO_BE_TOLD;

		if (leave->is_asking)
			news = LEAVE_ASKING;
		else if (place->told.of_loss || place->state == ZK_PLACE_DOWNGRADING)
			news = LEAVE_SILENTLY;
		zklock_client_begin_many(client);
		answer = remove_node(place, news, leave->is_awaited);
		zklock_client_withdraw(place->downgrade.request);
		zklock_client_end_many(client);
	}
	remove_recall(place);
	place->downgrade.request = NULL;
	place->loss = ZK_LOST_NOT;
	zklock_place_move(place, ZK_PLACE_NONE, leave->why);
	return answer;
}

void
zklock_place_unwatch(ZkPlace *place)
{
	if (place->grant.session == zklock_session_number())
		zklock_client_free(place->grant.made);
	place->grant.made = NULL;
}

bool
zklock_place_read_recall(ZkPlace *place)
{
	return zklock_recall_read(place->name, place->lock_path,
							  place->root_length, node_name(place),
							  &place->told.of_recall);
}

bool
zklock_place_prove(ZkPlace *const *places, int nplaces, int64 deadline)
{
	ZkRequest **requests = palloc0(nplaces * sizeof(*requests));
	volatile bool is_answered = true;

	for (int i = 0; i < nplaces; i++)
		if (!zklock_place_await_downgrade(places[i], deadline))
			return protocol_now() < deadline;

	PG_TRY();
	{
		for (int i = 0; i < nplaces; i++)
			requests[i] = check_node(places[i]);
		for (int i = 0; i < nplaces && is_answered; i++)
			while ((is_answered = await_proof(places[i], requests[i], deadline)) &&
				   is_outcome_unknown(requests[i]))
				check_again(places + i, requests + i, nplaces - i);
	}
	PG_FINALLY();
	{
		for (int i = 0; i < nplaces; i++)
			zklock_client_free(requests[i]);
	}
	PG_END_TRY();
	for (int i = 0; i < nplaces; i++)
		zklock_place_log_deletion(places[i]);
	return is_answered;
}

/*
 * If its session was closed the request is gone with it, and settling forgets
 * that there was one.
 */
bool
zklock_place_await_downgrade(ZkPlace *place, int64 deadline)
{
	zklock_place_settle(place, zklock_session_live());
	if (place->state == ZK_PLACE_DOWNGRADING)
	{
		const ZkReply *reply = zklock_session_await(place->downgrade.request,
													deadline,
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
	/* a FATAL stops a contender on its way: its node goes with the session */
	Assert(place->state == ZK_PLACE_NONE ||
		   (place->state == ZK_PLACE_WANTED && proc_exit_inprogress));
	Assert(place->keep == NULL);
	free_text(&place->downgrade.data);
	free_text(&place->downgrade.node);
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
	if (place->state == ZK_PLACE_DOWNGRADING)
		return strrchr(place->downgrade.node, '/') + 1;
	return strrchr(place->node, '/') + 1;
}

/*
 * Delete the node.  If the lock can be handed over, the node's data is set to
 * nothing first: that tells the contender that watches the node that its owner
 * has let go.  news: what to do if somebody else has deleted the node before; the
 * result is the request of LEAVE_ASKING, NULL otherwise.  Warns if there is no
 * memory for the delete.  The warning does not have the path: that may have
 * characters whose conversion would raise an error here.
 */
static ZkRequest *
remove_node(const ZkPlace *place, LeaveNews news, bool is_awaited)
{
	ZkClient   *client = zklock_session_client();
	const char *child = strrchr(place->node, '/') + 1;
	ZkRequest  *answer = NULL;
	bool		is_sent = false;
	bool		is_lost = place->state == ZK_PLACE_LOST;
	bool		is_neighbor_next = place->mode == RECIPE_EXCLUSIVE &&
		!is_lost && recipe_read_mark(child) == RECIPE_MARK_HAND_OVER &&
		zklock_handover_tell(place->node, place->token);

	zklock_client_begin_many(client);
	if (place->grant.can_hand_over && !is_lost && !is_neighbor_next)
	{
		/* without memory the one behind looks at the queue, when we are gone */
		(void) zklock_client_announce(zklock_session_client(), place->node,
									  NULL);
	}
	switch (news)
	{
		case LEAVE_SILENTLY:
			is_sent = zklock_client_delete(client, place->node);
			break;
		case LEAVE_TO_BE_TOLD:
			is_sent = zklock_client_leave(client, place->node, place->name,
										  place->token, is_awaited);
			break;
		case LEAVE_ASKING:
			answer = zklock_client_leave_asking(client, place->node,
												place->name, place->czxid,
												is_awaited);
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

	place->downgrade.node[0] = '\0';
	if (!pg_strong_random(random, sizeof(random)))
		return;
	recipe_format_guid(guid, random);
	recipe_node_prefix(prefix, node.style, RECIPE_SHARED, 1, guid);
	snprintf(place->downgrade.node, RECIPE_PATH_SIZE, "%s/%s%010d",
			 place->lock_path, prefix, node.sequence);
}

/* ---------------------------------------------------------------------
 * Proofs
 * ---------------------------------------------------------------------
 */

/*
 * If the user was told of a request to release the lock, it has been met: delete
 * it.  Nobody waits for that.
 */
static void
remove_recall(ZkPlace *place)
{
	if (place->told.of_recall != 0)
		zklock_recall_remove(place->lock_path, place->root_length,
							 node_name(place));
	place->told.of_recall = 0;
}

/* Ask the quorum for the node. */
static ZkRequest *
check_node(const ZkPlace *place)
{
	return zklock_client_check(zklock_session_client(), place->node,
							   place->czxid);
}

/* Was the answer lost with the connection?  NULL: there was no memory to ask. */
static bool
is_outcome_unknown(const ZkRequest *request)
{
	const ZkReply *reply = NULL;

	if (request != NULL)
		reply = zklock_client_reply(request);
	return reply != NULL && reply->result == ZK_UNKNOWN_OUTCOME;
}

/*
 * Read the answer for the node of one place.  false at the deadline.  If it
 * was lost with the connection, the caller asks again: either the session comes
 * back or it is lost.
 */
static bool
await_proof(ZkPlace *place, ZkRequest *request, int64 deadline)
{
	const ZkReply *reply = zklock_session_await(request, deadline,
												ZK_WAITING_TO_COMMIT);

	if (reply == NULL)
		return false;
	switch (reply->result)
	{
		case ZK_OK:
			place->proof = reply->proof;
			break;
		case ZK_NO_NODE:
			lose(place, ZK_LOST_DELETED, "the quorum has no such node");
			break;
		case ZK_UNKNOWN_OUTCOME:
		case ZK_SESSION_LOST:	/* zklock_place_is_lost() sees it */
			break;
		default:
			zklock_session_raise(reply, "check a lock", place->node);
	}
	return true;
}

/*
 * Ask again, in one flush, for those whose answers were lost as well: a
 * connection that breaks takes the answers to all requests with it.
 */
static void
check_again(ZkPlace *const *places, ZkRequest **requests, int nplaces)
{
	for (int i = 0; i < nplaces; i++)
	{
		if (!is_outcome_unknown(requests[i]))
			continue;
		zklock_client_free(requests[i]);
		requests[i] = NULL;		/* freed, also if the next one raises */
		requests[i] = check_node(places[i]);
	}
}
