/*-------------------------------------------------------------------------
 *
 * contender_drain.c
 *	  The end of the sequence counter.
 *
 * The server numbers queue nodes with 31 bits, as long as the lock's znode
 * lives.  A contender whose number is near the end withdraws its node, waits
 * until the queue is empty, deletes the znode, and joins again, which makes
 * the znode anew.  All of ours do so, so that the queue drains as fast as
 * those ahead are done.  Why this is safe: the server deletes a znode only if
 * it has no children, so never while anybody holds the lock or waits; who
 * wants to join just then is told that there is no znode, and makes it, as
 * after the removal of an idle container; and nobody is granted the lock by
 * it, only by a list that has our new node.  Others may know nothing of all
 * this and fill the queue for ever, so a contender's patience has limits, see
 * contender_drain().
 *
 *-------------------------------------------------------------------------
 */
#include "contender_private.h"

/* How often one contender tries to delete the lock's znode. */
#define DRAIN_ATTEMPTS 3

/*
 * How long to bear with contenders that came after us when nobody is left
 * ahead.  Ours withdraw within two round trips; more patience would let
 * others who know nothing of draining overtake us for ever.
 */
#define DRAIN_GRACE_MS 1000

/* What to do next to drain a queue. */
typedef enum DrainStep
{
	DRAIN_EMPTY,				/* nobody is there: delete the znode */
	DRAIN_WAIT,					/* somebody is */
	DRAIN_ANEW,					/* the znode was deleted: join */
	DRAIN_NEVER,				/* it cannot be: join all the same */
	DRAIN_LOOK_AGAIN,
	DRAIN_END					/* of patience, or of the session */
} DrainStep;

static DrainStep look_at_drain(Standing *standing,
							   char last[RECIPE_PATH_SIZE], bool *is_ahead,
							   Step *end);
static DrainStep prune(Standing *standing, Step *end);
static DrainStep drain_step(const Standing *standing, const ZkReply *reply,
							Step *end);

bool
contender_should_drain(const Standing *standing, const ZkReply *list,
					   RecipeVerdict verdict)
{
	return !standing->cannot_drain &&
		verdict != RECIPE_GONE && verdict != RECIPE_MISMATCH &&
		recipe_should_drain(list->children, list->nchildren,
							contender_node_name(standing));
}

/*
 * If the znode stays for good, or others overtake us, we go on with whatever
 * number we get then.
 */
Step
contender_drain(Standing *standing)
{
	ZkContender *contender = standing->contender;
	int64		grace_until = ZK_NO_DEADLINE;
	int			attempts = 0;

	contender_withdraw(standing);
	standing->watches_queue = false;
	while (attempts < DRAIN_ATTEMPTS && zklock_client_now() < grace_until)
	{
		char		last[RECIPE_PATH_SIZE];
		bool		is_ahead;
		Step		ended = STEP_GO_ON;
		DrainStep	step = look_at_drain(standing, last, &is_ahead, &ended);

		if (step == DRAIN_EMPTY)
		{
			attempts++;
			step = prune(standing, &ended);
		}
		switch (step)
		{
			case DRAIN_ANEW:
				standing->attempts = 0;
				return STEP_GO_ON;
			case DRAIN_NEVER:
				standing->cannot_drain = true;
				return STEP_GO_ON;
			case DRAIN_END:
				return ended;
			case DRAIN_EMPTY:
			case DRAIN_LOOK_AGAIN:
				continue;
			case DRAIN_WAIT:
				standing->is_told_busy = true;
				break;
		}
		if (contender->patience == ZK_TRY_ONCE)
			return STEP_OUT_OF_PATIENCE;
		if (!is_ahead && grace_until == ZK_NO_DEADLINE)
			grace_until = zklock_client_now() + DRAIN_GRACE_MS;
		if (contender_watch_child(standing, last,
								  Min(contender->deadline,
									  grace_until)) == ZK_WAIT_LOST)
			return STEP_SESSION_LOST;
		if (zklock_client_now() >= contender->deadline)
			return STEP_OUT_OF_PATIENCE;
	}
	standing->cannot_drain = true;
	return STEP_GO_ON;
}

/*
 * Who is still in the queue?  For DRAIN_WAIT, last is the contender to watch,
 * as recipe_drain_watch() has it: the last one ahead of the place that we
 * had, which in a queue goes last.
 *
 * A look reads the list, and then the znode: if that is younger than our node
 * was, somebody else was faster, and the queue is a new one.  The other way
 * round a new list could be taken for the old queue's, and we would wait for
 * those in it.
 */
static DrainStep
look_at_drain(Standing *standing, char last[RECIPE_PATH_SIZE], bool *is_ahead,
			  Step *end)
{
	const ZkPlace *place = standing->contender->place;
	const char *mine = contender_node_name(standing);
	const ZkReply *reply;
	DrainStep	step;
	int			index;

	standing->is_ahead_read = false;
	reply = zklock_roundtrip_read(&standing->trip, zklock_client_list,
								  place->lock_path);
	step = drain_step(standing, reply, end);
	if (step != DRAIN_EMPTY)
		return step;
	if (!recipe_should_drain(reply->children, reply->nchildren, mine))
		return DRAIN_NEVER;
	index = recipe_drain_watch(reply->children, reply->nchildren, mine,
							   is_ahead);
	if (index >= 0)
		strlcpy(last, reply->children[index], RECIPE_PATH_SIZE);
	standing->is_next_first = index >= 0 &&
		recipe_is_first(reply->children, reply->nchildren, last);
	contender_note_ahead(standing, reply, mine);

	reply = zklock_roundtrip_read(&standing->trip, zklock_client_get,
								  place->lock_path);
	step = drain_step(standing, reply, end);
	if (step != DRAIN_EMPTY)
		return step;
	if (reply->czxid > place->token)
		return DRAIN_ANEW;
	return index >= 0 ? DRAIN_WAIT : DRAIN_EMPTY;
}

/* Delete the lock's znode, which the server does only if it is empty. */
static DrainStep
prune(Standing *standing, Step *end)
{
	ZkRequest  *removal =
		zklock_client_remove(zklock_session_client(),
							 standing->contender->place->lock_path,
							 ZK_ANY_VERSION);
	const ZkReply *reply = zklock_roundtrip_ask(&standing->trip, removal);

	if (reply != NULL && reply->result == ZK_OK)
		return DRAIN_ANEW;
	if (reply != NULL && reply->result == ZK_NO_AUTH)
		return DRAIN_NEVER;
	if (reply != NULL && reply->result == ZK_FAILED)
		return DRAIN_LOOK_AGAIN;	/* somebody came */
	if (reply != NULL && reply->result == ZK_UNKNOWN_OUTCOME)
		return DRAIN_LOOK_AGAIN;
	return drain_step(standing, reply, end);
}

/*
 * What the reply to any of these requests leads to; DRAIN_EMPTY if it is
 * good.
 */
static DrainStep
drain_step(const Standing *standing, const ZkReply *reply, Step *end)
{
	*end = contender_step(standing, reply);
	switch (*end)
	{
		case STEP_GO_ON:
			return DRAIN_EMPTY;
		case STEP_NO_NODE:
			return DRAIN_ANEW;
		case STEP_OUT_OF_PATIENCE:
		case STEP_SESSION_LOST:
			break;
	}
	return DRAIN_END;
}
