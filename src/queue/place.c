/*-------------------------------------------------------------------------
 *
 * place.c
 *	  A place: states, token, proof, loss and removal of the queue node that
 *	  this backend has in a queue.
 *
 * Both modes of a lock have one place.  A session that holds a lock in exclusive
 * mode and takes it in shared mode, too, stays on the exclusive node, until both
 * are released.  So a node is made once and deleted once.
 *
 * The states of a place, and what leads from one to the next; whatever else is
 * asked for, LOST or NONE comes of it (zklock_place_move()):
 *
 *	NONE -> WANTED				a contender sets out for it
 *	WANTED -> HELD				its lock is granted
 *	WANTED -> NONE				the contender gives up
 *	HELD -> KEPT, KEPT -> HELD	keep.c: let go of, and taken back
 *	HELD -> LOST				the node is gone, or its session, or the grant
 *								was a mistake
 *	all but WANTED -> NONE		the node is left, or was given up
 *
 * The one rule: what is called at the end of a transaction (leave, find_loss)
 * never raises and never waits.  A place is its owner's memory.
 *
 *-------------------------------------------------------------------------
 */
#include "place.h"

#include "miscadmin.h"

#include "handover.h"
#include "moves.h"
#include "nodedata.h"
#include "release_request.h"
#include "stat.h"
#include "text.h"

/* The states to which a place can be moved from each. */
static const Moves legal_moves[] = {
	[ZK_PLACE_NONE] = MOVE_TO(ZK_PLACE_WANTED),
	[ZK_PLACE_WANTED] = MOVE_TO(ZK_PLACE_HELD) | MOVE_TO(ZK_PLACE_NONE),
	[ZK_PLACE_HELD] = MOVE_TO(ZK_PLACE_KEPT) | MOVE_TO(ZK_PLACE_LOST) |
	MOVE_TO(ZK_PLACE_NONE),
	[ZK_PLACE_KEPT] = MOVE_TO(ZK_PLACE_HELD) | MOVE_TO(ZK_PLACE_NONE),
	[ZK_PLACE_LOST] = MOVE_TO(ZK_PLACE_NONE)
};

static const char *const state_names[] = {
	[ZK_PLACE_NONE] = "none",
	[ZK_PLACE_WANTED] = "wanted",
	[ZK_PLACE_HELD] = "held",
	[ZK_PLACE_KEPT] = "kept",
	[ZK_PLACE_LOST] = "lost"
};

/* So many places are KEPT. */
static int	nkept;

static void log_place(const ZkPlace *place, ZkPlaceState state,
					  const char *why);
static const char *node_name(const ZkPlace *place);
static void remove_node(const ZkPlace *place, bool is_awaited);
static void remove_release_request(ZkPlace *place);
static ZkRequest *check_node(const ZkPlace *place);
static ZkOutcome await_proof(ZkPlace *place, ZkRequest *request,
							 int64 deadline);
static void check_again(ZkPlace *const *places, ZkRequest **requests,
						int nplaces);

/* ---------------------------------------------------------------------
 * Public functions: states
 * ---------------------------------------------------------------------
 */

/*
 * Of a move that is not legal NONE comes if that was asked for, and else LOST:
 * a place in doubt can be left, and no commit relies on it.
 */
void
zklock_place_move(ZkPlace *place, ZkPlaceState state, const char *why)
{
	if (!move_is_legal(legal_moves, place->state, state))
	{
		zklock_session_warn_illegal("the place of a lock",
									state_names[place->state],
									state_names[state]);
		if (state != ZK_PLACE_NONE)
			state = ZK_PLACE_LOST;
		if (state == ZK_PLACE_LOST && place->loss == ZK_LOST_NOT)
			place->loss = ZK_LOST_IN_DOUBT;
	}
	Assert((place->loss != ZK_LOST_NOT) == (state == ZK_PLACE_LOST));
	if (message_level_is_interesting(DEBUG1))
		log_place(place, state, why);
	nkept += (state == ZK_PLACE_KEPT) - (place->state == ZK_PLACE_KEPT);
	place->state = state;
}

int
zklock_place_count_kept(void)
{
	return nkept;
}

/* It is called where nothing may look for interrupts. */
static void
log_place(const ZkPlace *place, ZkPlaceState state, const char *why)
{
	const char *path = place->node[0] != '\0' ? place->node :
		place->lock_path;

	HOLD_INTERRUPTS();
	ereport(DEBUG1,
			(errmsg_internal("zklock: place \"%s\", fencing token " INT64_FORMAT ": %s -> %s: %s",
							 zklock_text_quotable(path), place->token,
							 state_names[place->state], state_names[state],
							 why),
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
	place->owned = NULL;
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
					  place->grant.basis == ZK_GRANTED_HANDED_OVER ?
					  "granted by a hand-over" : "granted");
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

/* What was known first counts. */
static void
lose_place(ZkPlace *place, ZkLossKind loss, const char *why)
{
	if (place->state == ZK_PLACE_LOST)
		return;
	place->loss = loss;
	zklock_place_move(place, ZK_PLACE_LOST, why);
}

void
zklock_place_find_loss(ZkPlace *place, ZkSessionNumber live)
{
	if (place->state != ZK_PLACE_HELD)
		return;
	if (place->grant.session != live)
		lose_place(place, ZK_LOST_SESSION, "its session is over");
	else if (place->grant.made != NULL &&
			 zklock_client_reply(place->grant.made)->result == ZK_NO_NODE)
		lose_place(place, ZK_LOST_DELETED, "its node is gone");
}

void
zklock_place_note_misled(ZkPlace *place)
{
	lose_place(place, ZK_LOST_MISLED, "another client was further ahead");
}

void
zklock_place_log_deletion(ZkPlace *place)
{
	if (place->loss != ZK_LOST_DELETED || place->told.of_loss)
		return;
	place->told.of_loss = true;
	/* a cancellation may end it, once the log has it */
	zklock_loss_log_deletion(place->name, node_name(place), place->token);
}

/* ---------------------------------------------------------------------
 * Public functions: what is done with it
 * ---------------------------------------------------------------------
 */

void
zklock_place_leave(ZkPlace *place, ZkSessionNumber live, const char *why,
				   bool is_awaited)
{
	Assert(place->grant.session != 0);
	zklock_place_find_loss(place, live);

	/* ahead of the delete: that is our own */
	zklock_place_unwatch(place);
	if (place->grant.session == live)
		remove_node(place, is_awaited);
	remove_release_request(place);
	place->loss = ZK_LOST_NOT;
	zklock_place_move(place, ZK_PLACE_NONE, why);
}

void
zklock_place_lasting_path(const ZkPlace *place, RecipeStyle style,
						  const char *guid, char path[RECIPE_PATH_SIZE])
{
	char		prefix[RECIPE_NODE_SIZE];

	recipe_node_prefix(prefix, style, place->mode, place->permits, guid);
	snprintf(path, RECIPE_PATH_SIZE, "%s/%s%010d", place->lock_path, prefix,
			 recipe_parse_node(node_name(place)).sequence);
}

void
zklock_place_unwatch(ZkPlace *place)
{
	if (place->grant.session == zklock_session_number())
		zklock_client_free(place->grant.made);
	place->grant.made = NULL;
}

bool
zklock_place_read_release_request(ZkPlace *place)
{
	return zklock_release_request_read(place->name, place->lock_path,
									   place->root_length, node_name(place),
									   &place->told.of_request);
}

ZkOutcome
zklock_place_prove(ZkPlace *const *places, int nplaces, int64 deadline)
{
	ZkRequest **requests = palloc0(nplaces * sizeof(*requests));
	volatile ZkOutcome outcome = ZK_ANSWERED;

	PG_TRY();
	{
		for (int i = 0; i < nplaces; i++)
			requests[i] = check_node(places[i]);
		for (int i = 0; i < nplaces && outcome == ZK_ANSWERED; i++)
			while ((outcome = await_proof(places[i], requests[i],
										  deadline)) == ZK_UNKNOWN)
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
	return outcome;
}

/* ---------------------------------------------------------------------
 * Nodes
 * ---------------------------------------------------------------------
 */

/* The name of the queue node that it stands on. */
static const char *
node_name(const ZkPlace *place)
{
	return strrchr(place->node, '/') + 1;
}

/*
 * Delete the node.  If the lock can be handed over, the node's data is set to
 * nothing first: that tells the contender that watches the node that its owner
 * has let go.  Warns if there is no memory for the delete.  The warning does not
 * have the path: that may have characters whose conversion would raise an error
 * here.
 */
static void
remove_node(const ZkPlace *place, bool is_awaited)
{
	ZkClient   *client = zklock_session_client();
	bool		is_sent;
	bool		is_lost = place->state == ZK_PLACE_LOST;
	bool		is_neighbor_next = place->mode == RECIPE_EXCLUSIVE &&
		!is_lost &&
		recipe_read_mark(node_name(place)) == RECIPE_MARK_HAND_OVER &&
		zklock_handover_tell(place->node, place->token);

	zklock_client_begin_many(client);
	if (place->grant.can_hand_over && !is_lost && !is_neighbor_next)
	{
		/* without memory the one behind looks at the queue, when we are gone */
		(void) zklock_client_announce(zklock_session_client(), place->node,
									  NULL);
	}

	/* not if the log has it: the user was told with it, or is canceled */
	if (place->told.of_loss || place->loss == ZK_LOST_MISLED)
		is_sent = zklock_client_delete(client, place->node, ZK_ANY_VERSION);
	else
		is_sent = zklock_client_leave(client, place->node, place->name,
									  place->token, is_awaited);
	zklock_client_end_many(client);
	if (is_sent)
		return;

	/* a WARNING would look for interrupts, too */
	HOLD_INTERRUPTS();
	ereport(WARNING,
			(errcode(ERRCODE_OUT_OF_MEMORY),
			 errmsg("could not delete a queue node of lock \"%s\": out of memory",
					place->name),
			 errhint("Call zk_disconnect(), or end this connection: the node goes with the session.")));
	RESUME_INTERRUPTS();
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
remove_release_request(ZkPlace *place)
{
	if (place->told.of_request != 0)
		zklock_release_request_remove(place->lock_path, place->root_length,
									  node_name(place));
	place->told.of_request = 0;
}

/* Ask the quorum for the node. */
static ZkRequest *
check_node(const ZkPlace *place)
{
	return zklock_client_check(zklock_session_client(), place->node,
							   place->token);
}

/* Read the answer for the node of one place. */
static ZkOutcome
await_proof(ZkPlace *place, ZkRequest *request, int64 deadline)
{
	const ZkReply *reply;
	ZkOutcome	outcome = zklock_session_await(request, deadline,
											   ZK_WAITING_TO_COMMIT, &reply);

	if (outcome != ZK_ANSWERED)
		return outcome;
	if (reply->result == ZK_OK)
		place->proof = reply->proof;
	else if (reply->result == ZK_NO_NODE)
		lose_place(place, ZK_LOST_DELETED, "the quorum has no such node");
	else
		zklock_session_raise(reply, "check a lock", place->node);
	return ZK_ANSWERED;
}

/*
 * The first answer was lost with its connection, which takes the answers to all
 * requests with it: ask again, in one flush, for those that were lost as well.
 */
static void
check_again(ZkPlace *const *places, ZkRequest **requests, int nplaces)
{
	for (int i = 0; i < nplaces; i++)
	{
		const ZkReply *reply = NULL;

		/* what could not be asked for raises when it is awaited */
		if (requests[i] != NULL)
			reply = zklock_client_reply(requests[i]);
		if (reply == NULL || zklock_session_outcome(reply) != ZK_UNKNOWN)
			continue;
		zklock_client_free(requests[i]);
		requests[i] = NULL;		/* freed, also if the next one raises */
		requests[i] = check_node(places[i]);
	}
}
