/*-------------------------------------------------------------------------
 *
 * contender.c
 *	  How a place is won: one contender's way through the queue of one lock,
 *	  from state to state, until granted or out of patience.
 *
 * The way is that of ContenderState: a node is made, the queue is listed, the
 * one ahead is watched, and the queue is listed again.  Here it is decided what
 * comes next.  What is done in a step is in contender_step.c; the wait is in
 * contender_watch.c.
 *
 * Requests are malloc'ed memory of client.c, which no memory context
 * frees.  So the public functions have a PG_TRY: whatever raises in between,
 * the queue node is withdrawn, also if the reply to its create is still to
 * come or was lost.  A FATAL does not run the PG_CATCH; the end of the
 * session removes the node then.
 *
 * No false grant: what grants is the recipe's verdict over a list that was
 * read after our node was created, or a hand-over (contender_watch.c); never
 * a mere wake-up, never a timeout.  A list may come from a server that lags
 * behind, but never behind our own create, and children with lower numbers
 * only ever disappear: what such a list lacks is gone.  (Curator 5.5 does add a
 * child with a lower number, for a contender that holds the lock, before it
 * deletes its old node.)
 *
 *-------------------------------------------------------------------------
 */
#include "contender_private.h"

#include "miscadmin.h"
#include "storage/lock.h"
#include "storage/proc.h"

#include "board.h"
#include "handover.h"
#include "keep.h"
#include "nodedata.h"
#include "root.h"
#include "text.h"

static void begin(Contender *contender);
static void go_through_queue(Contender *contender);
static bool is_at_end(ContenderState state);
static ContenderState take_step(Contender *contender);
static void move_to(Contender *contender, ContenderState next);
static void debug_state(const Contender *contender);
static const char *describe_way(ZkStat way);
static ContenderState look_at_queue(Contender *contender);
static ContenderState list_queue(Contender *contender);
static ContenderState judge_list(Contender *contender, const ZkReply *list);
static void announce_permit(const Contender *contender);
static bool is_anybody_behind(const Contender *contender);
static ContenderState wait_for_news(Contender *contender);
static ContenderState settle_mismatch(Contender *contender);
static ContenderState end_unanswered(void);
static bool confirm_queued(Contender *contender);
static bool has_waited(const Contender *contender);
static void begin_wait(Contender *contender);
static void end_wait(const Contender *contender);
static bool is_known_busy(const Contender *contender);
static void take_place(Contender *contender);
static void leave_queue(Contender *contender, const char *why);
static void debug_withdrawn(const Contender *contender, const char *why);
static bool await_first_place(ZkRoundTrip *trip, const ZkPlace *place);
static void end_confirm(ZkRoundTrip *trip);

/* ---------------------------------------------------------------------
 * Public functions
 * ---------------------------------------------------------------------
 */

ZkWaitEnd
zklock_contend(const ZkOrder *order, ZkPlace *place)
{
	Contender	contender = {
		.order = order,
		.place = place
	};
	ErrorContextCallback context = {
		.previous = error_context_stack,
		.callback = contender_add_context,
		.arg = (void *) order->name.text
	};

	Assert(place->mode == order->mode && place->permits == order->permits);
	begin(&contender);
	PG_TRY();
	{
		error_context_stack = &context;
		go_through_queue(&contender);
		error_context_stack = context.previous;
		if (contender.state == CONTENDER_GRANTED)
			contender_log_grant(&contender);
		if (contender.state == CONTENDER_OUT_OF_TIME)
			contender_refuse(&contender, is_known_busy(&contender));
	}
	PG_CATCH();
	{
		/* a cancel, but not one that the loss of held locks has sent */
		if (geterrcode() == ERRCODE_QUERY_CANCELED &&
			!zklock_session_has_interrupted())
			zklock_stat_count(ZK_STAT_CANCEL);
		leave_queue(&contender, unpack_sql_state(geterrcode()));
		PG_RE_THROW();
	}
	PG_END_TRY();

	switch (contender.state)
	{
		case CONTENDER_GRANTED:
			take_place(&contender);
			return ZK_WAIT_OVER;
		case CONTENDER_OUT_OF_TIME:
			leave_queue(&contender, "busy");
			return ZK_WAIT_TIMEOUT;
		default:
			Assert(contender.state == CONTENDER_LOST);
			leave_queue(&contender, "session lost");
			return ZK_WAIT_LOST;
	}
}

bool
zklock_contend_confirm(const ZkPlace *place, int64 deadline)
{
	ZkRoundTrip trip = {.deadline = deadline};
	volatile bool is_first = false;

	PG_TRY();
	{
		is_first = await_first_place(&trip, place);
	}
	PG_CATCH();
	{
		end_confirm(&trip);
		PG_RE_THROW();
	}
	PG_END_TRY();
	end_confirm(&trip);
	return is_first;
}

/* ---------------------------------------------------------------------
 * The way through the queue
 * ---------------------------------------------------------------------
 */

static void
begin(Contender *contender)
{
	const ZkOrder *order = contender->order;
	ZkPlace    *place = contender->place;

	contender->state = CONTENDER_JOINING;
	if (order->bounds.is_at_once)
		contender->state = CONTENDER_LOOKING;
	contender->trip.deadline = order->bounds.deadline;
	contender->node.wants_keep = order->taker == ZK_TAKER_SESSION &&
		order->mode == RECIPE_EXCLUSIVE && order->permits == 1 &&
		!order->is_of_set && zklock_keep_is_wanted(place->lock_path);
	contender->ahead.lease_at = ZK_NO_DEADLINE;
	contender->wait.started_at = protocol_now();
	contender->wait.log_at = ZK_NO_DEADLINE;
	if (log_lock_waits)
		contender->wait.log_at = contender->wait.started_at + DeadlockTimeout;
	zklock_deadlock_begin(&contender->detector, contender->wait.started_at);
	zklock_place_want(place);
}

/*
 * Go from state to state until one ends the way.  A create of ours that was
 * cancelled may still be in the queue, ahead of us: first wait for its end.
 */
static void
go_through_queue(Contender *contender)
{
	if (!zklock_session_await_undone(contender->order->bounds.deadline))
		move_to(contender, CONTENDER_OUT_OF_TIME);
	while (!is_at_end(contender->state))
		move_to(contender, take_step(contender));
}

static bool
is_at_end(ContenderState state)
{
	return state == CONTENDER_GRANTED || state == CONTENDER_OUT_OF_TIME ||
		state == CONTENDER_LOST;
}

/* Do what is to be done in this state.  Result: the next one. */
static ContenderState
take_step(Contender *contender)
{
	switch (contender->state)
	{
		case CONTENDER_LOOKING:
			return look_at_queue(contender);
		case CONTENDER_JOINING:
		case CONTENDER_LISTING:
			return list_queue(contender);
		case CONTENDER_WAITING:
			return wait_for_news(contender);
		case CONTENDER_HEARING:
			return contender_hear_keeper(contender);
		case CONTENDER_MISMATCHED:
			return settle_mismatch(contender);
		case CONTENDER_GRANTED:
		case CONTENDER_OUT_OF_TIME:
		case CONTENDER_LOST:
			break;
	}
	pg_unreachable();
}

/* The one place where the state changes. */
static void
move_to(Contender *contender, ContenderState next)
{
	switch (next)
	{
		case CONTENDER_LOOKING:
			Assert(contender->node.state == OWN_NODE_NONE);
			break;
		case CONTENDER_JOINING:
			Assert(contender->node.state != OWN_NODE_STANDS);
			break;
		case CONTENDER_LISTING:
		case CONTENDER_MISMATCHED:
			Assert(contender->node.state == OWN_NODE_STANDS);
			break;
		case CONTENDER_WAITING:
			Assert(contender->node.state == OWN_NODE_STANDS);
			Assert(!contender->order->bounds.is_at_once);
			break;
		case CONTENDER_HEARING:
			Assert(contender->node.state == OWN_NODE_STANDS);
			Assert(contender->order->bounds.is_at_once);
			break;
		case CONTENDER_GRANTED:
			Assert(contender->node.state == OWN_NODE_STANDS);
			Assert(contender->node.create != NULL);
			Assert(contender->place->token != 0);
			break;
		case CONTENDER_OUT_OF_TIME:
		case CONTENDER_LOST:
			break;
	}
	contender->state = next;
	if (message_level_is_interesting(DEBUG1))
		debug_state(contender);
}

/* Say what the contender does now, as far as it matters to others. */
static void
debug_state(const Contender *contender)
{
	const ZkPlace *place = contender->place;
	const char *node = zklock_text_quotable(place->node);
	const char *next = contender->ahead.next;

	if (contender->state == CONTENDER_GRANTED)
		elog(DEBUG1, "zklock: contender \"%s\", fencing token " INT64_FORMAT ": granted: %s",
			 node, place->token, describe_way(contender->way));
	else if (contender->state == CONTENDER_WAITING && next == NULL)
		elog(DEBUG1, "zklock: contender \"%s\": waits for the first permit", node);
	else if (contender->state == CONTENDER_WAITING)
		elog(DEBUG1, "zklock: contender \"%s\": waits behind \"%s\"", node,
			 zklock_text_quotable(next));
}

static const char *
describe_way(ZkStat way)
{
	switch (way)
	{
		case ZK_STAT_GRANT_AT_ONCE:
			return "nobody was ahead";
		case ZK_STAT_GRANT_LISTED:
			return "nobody is ahead any more";
		case ZK_STAT_GRANT_HANDED_OVER:
			return "handed over through ZooKeeper";
		case ZK_STAT_GRANT_TOLD:
			return "handed over in shared memory";
		default:
			Assert(false);
			return "?";
	}
}

/*
 * CONTENDER_LOOKING: list before a node is made.  So a lock that is not free
 * costs one read, or two if its holder may merely keep it, and no transaction
 * of the ensemble.  CONTENDER_JOINING: it would be granted now, or only a node
 * in the queue can find that out.  So it is if many children may be locks below
 * this one: most of them are behind our node, whatever they are, and need no
 * read then (nested.c).
 */
static ContenderState
look_at_queue(Contender *contender)
{
	const char *path = contender->place->lock_path;
	const ZkReply *list = zklock_roundtrip_read(&contender->trip, ZK_LIST,
												path);
	ContenderAnswer answer = contender_read_answer(list, path);
	RecipeVerdict verdict;
	LeasesAhead leases;

	if (answer == ANSWER_NO_NODE)
		return CONTENDER_JOINING;
	if (answer != ANSWER_FOUND)
		return contender_end_without(answer);
	if (!contender_judge(contender, list, &verdict))
		return end_unanswered();
	if (verdict == RECIPE_HELD || !contender_is_held(contender))
		return CONTENDER_JOINING;
	leases = contender_end_leases(contender);
	if (leases == LEASES_GONE && verdict == RECIPE_MISMATCH)
		return CONTENDER_JOINING;
	if (leases == LEASES_GONE)
		return CONTENDER_LOOKING;
	if (verdict == RECIPE_MISMATCH)
		contender_raise_mismatch(contender);
	if (leases == LEASES_UNKNOWN)
		return end_unanswered();
	return CONTENDER_OUT_OF_TIME;
}

/*
 * CONTENDER_JOINING: make a node in the queue, or read what has become of the
 * one that was asked for.  Then, as in CONTENDER_LISTING, look which ones are
 * ahead.  Nothing is granted before it is known that the znode of the lock is
 * safe.
 */
static ContenderState
list_queue(Contender *contender)
{
	const char *path = contender->place->lock_path;
	int			root_length = contender->place->root_length;
	const ZkReply *list = contender_join(contender);

	CHECK_FOR_INTERRUPTS();
	if (list == NULL)
		return CONTENDER_OUT_OF_TIME;
	if (list->result == ZK_SESSION_LOST)
		return CONTENDER_LOST;
	if (!contender_is_safe(contender))
	{
		ZkRootState state = zklock_root_judge(&contender->trip, path, root_length);

		if (state == ZK_ROOT_UNANSWERED)
			return end_unanswered();
		if (state == ZK_ROOT_SAFE)
			contender->safe_for = zklock_session_number();
	}
	if (contender->state == CONTENDER_JOINING &&
		!contender_take_node(contender))
		return CONTENDER_JOINING;
	if (!contender_is_safe(contender))
		return CONTENDER_LISTING;
	if (contender_read_answer(list, path) == ANSWER_NO_NODE)
		contender_raise_evicted(contender->place);
	return judge_list(contender, list);
}

static ContenderState
judge_list(Contender *contender, const ZkReply *list)
{
	RecipeVerdict verdict;

	if (!contender_judge(contender, list, &verdict))
		return end_unanswered();
	if (verdict == RECIPE_MISMATCH)
		return CONTENDER_MISMATCHED;
	if (verdict == RECIPE_HELD)
	{
		announce_permit(contender);
		contender->way = has_waited(contender) ?
			ZK_STAT_GRANT_LISTED : ZK_STAT_GRANT_AT_ONCE;
		return CONTENDER_GRANTED;
	}
	Assert(verdict == RECIPE_WAIT);
	contender->place->grant.can_hand_over =
		contender->node.mark == RECIPE_MARK_HAND_OVER;
	return contender->order->bounds.is_at_once ?
		CONTENDER_HEARING : CONTENDER_WAITING;
}

/*
 * Granted a permit: tell the contender behind us.  Without memory for that
 * message the permit is not taken: the one that watches us would wait for as
 * long as we hold it, even if other permits are free.  The deletion of our node
 * wakes it.
 */
static void
announce_permit(const Contender *contender)
{
	const ZkPlace *place = contender->place;

	if (place->permits > 1 && is_anybody_behind(contender) &&
		!zklock_client_announce(zklock_session_client(), place->node,
								contender->node.data))
		zklock_session_raise_memory();
}

/*
 * Is anybody behind us in the list, the last reply, that grants us a permit?
 * Those may have an older list, by which we wait, and watch us for the grant.
 * That may be so also with our first list, whose reply may have taken long.
 * Contenders that are not in it came later, and their lists show that we hold
 * a permit.  The znode of a lock below may be taken for one of them: then
 * nobody reads what we say.
 */
static bool
is_anybody_behind(const Contender *contender)
{
	const ZkReply *list = zklock_client_reply(contender->trip.request);
	const char *mine = contender_node_name(contender->place);

	for (int i = 0; i < list->nchildren; i++)
		if (recipe_parse_node(list->children[i]).style != RECIPE_STYLE_NONE &&
			recipe_compare_nodes(list->children[i], mine) > 0)
			return true;
	return false;
}

/*
 * CONTENDER_WAITING: wait for news of those ahead.  They are a reason to list
 * again; or the one ahead has handed the lock over, and our node still exists.
 */
static ContenderState
wait_for_news(Contender *contender)
{
	ContenderState next;

	begin_wait(contender);
	next = contender_watch(contender);
	if (next != CONTENDER_LISTING)
		return next;
	switch (contender->watch.word)
	{
		case AHEAD_SILENT:
			return CONTENDER_LISTING;
		case AHEAD_SET_NODE:
			contender->way = ZK_STAT_GRANT_HANDED_OVER;
			break;
		case AHEAD_TOLD:
			contender->way = ZK_STAT_GRANT_TOLD;
			break;
	}
	if (!confirm_queued(contender))
		return CONTENDER_LISTING;
	if (!contender->ahead.is_next_first)
		contender->place->grant.basis = ZK_GRANTED_ON_WORD;
	return CONTENDER_GRANTED;
}

/*
 * CONTENDER_MISMATCHED: the first of the queue may be on its way out.  If it is
 * not, raise.
 */
static ContenderState
settle_mismatch(Contender *contender)
{
	ContenderState next = contender_hear_keeper(contender);

	if (next != CONTENDER_OUT_OF_TIME ||
		protocol_now() >= contender->order->bounds.deadline)
		return next;
	if (contender_end_leases(contender) != LEASES_GONE)
		contender_raise_mismatch(contender);
	return CONTENDER_LISTING;
}

/* A read has come to no end: at the deadline, or because the session is lost. */
static ContenderState
end_unanswered(void)
{
	return zklock_session_live() == 0 ? CONTENDER_LOST : CONTENDER_OUT_OF_TIME;
}

/*
 * The lock was handed over to us, if our node still exists.  A fresh proof of
 * that is enough, as it is for a holder at its commit.  The clock is read
 * after the message came, for we may have been stopped meanwhile.  Without a
 * fresh proof the quorum is asked, because our server may not know yet what
 * has become of our node. false if only a list can tell.
 */
static bool
confirm_queued(Contender *contender)
{
	ZkPlace    *place = contender->place;
	const ZkReply *reply;

	zklock_session_read();
	if (zklock_session_live() == 0)
		return false;
	if (contact_is_after(place->proof, zklock_session_fresh_since()))
		return true;
	reply = zklock_roundtrip_ask(&contender->trip,
								 zklock_client_check(zklock_session_client(),
													 place->node,
													 place->token));
	if (reply == NULL || reply->result == ZK_UNKNOWN_OUTCOME ||
		reply->result == ZK_SESSION_LOST)
		return false;
	if (reply->result == ZK_NO_NODE)
		contender_raise_evicted(place);
	if (reply->result != ZK_OK)
		zklock_session_raise(reply, "check a queue node", place->node);
	place->proof = reply->proof;
	return true;
}

/* ---------------------------------------------------------------------
 * The wait, and the end
 * ---------------------------------------------------------------------
 */

static bool
has_waited(const Contender *contender)
{
	return !INSTR_TIME_IS_ZERO(contender->wait.begun);
}

/* Others are ahead: let views show what we wait for. */
static void
begin_wait(Contender *contender)
{
	const ZkPlace *place = contender->place;

	if (has_waited(contender))
		return;
	INSTR_TIME_SET_CURRENT(contender->wait.begun);
	zklock_keep_note_rival(place->lock_path);
	zklock_board_await(place->lock_path, place->root_length, place->mode,
					   place->permits);
}

/* If we have waited, that is over, however it ended. */
static void
end_wait(const Contender *contender)
{
	instr_time	waited;

	if (!has_waited(contender))
		return;
	INSTR_TIME_SET_CURRENT(waited);
	INSTR_TIME_SUBTRACT(waited, contender->wait.begun);
	zklock_stat_wait(INSTR_TIME_GET_MICROSEC(waited));
	zklock_board_await_over();
}

/*
 * Is it known that others are ahead?  If the wait ended at its deadline
 * without a connection, the list that showed them may be old, and the lock may
 * be free by now.
 */
static bool
is_known_busy(const Contender *contender)
{
	return contender->ahead.is_known &&
		(protocol_now() < contender->order->bounds.deadline ||
		 zklock_session_is_connected());
}

/*
 * The lock is granted: the node is the place's from now on.  Never raises,
 * never waits.
 */
static void
take_place(Contender *contender)
{
	OwnNode    *node = &contender->node;
	ZkPlace    *place = contender->place;

	Assert(node->state == OWN_NODE_STANDS);
	zklock_place_note_grant(place, node->create);
	zklock_stat_count(contender->way);
	end_wait(contender);
	zklock_deadlock_end(&contender->detector);
	zklock_roundtrip_end(&contender->trip);
	contender_end_parents(contender);

	/* who handed it over deletes the node that we watch */
	if (contender->watch.word == AHEAD_SILENT)
		zklock_client_unwatch(zklock_session_client());
	if (node->mark == RECIPE_MARK_KEEPER)
		zklock_keep_begin(place, node->data);
}

/* Give up whatever is under way; our node goes, wherever it is. */
static void
leave_queue(Contender *contender, const char *why)
{
	bool		was_queued = contender->node.state != OWN_NODE_NONE;

	zklock_handover_forget();
	zklock_deadlock_end(&contender->detector);
	zklock_roundtrip_end(&contender->trip);
	zklock_client_unwatch(zklock_session_client());
	contender_end_parents(contender);
	contender_withdraw(contender);
	end_wait(contender);
	zklock_place_give_up(contender->place, why);
	if (was_queued && message_level_is_interesting(DEBUG1))
		debug_withdrawn(contender, why);
}

/* An error may be under way, which no interrupt is to replace. */
static void
debug_withdrawn(const Contender *contender, const char *why)
{
	HOLD_INTERRUPTS();
	elog(DEBUG1, "zklock: contender \"%s\": withdrawn: %s",
		 zklock_text_quotable(contender->place->node), why);
	RESUME_INTERRUPTS();
}

/* ---------------------------------------------------------------------
 * A grant that rests on a word
 * ---------------------------------------------------------------------
 */

/*
 * Wait until our node is the first, by lists alone.  A list may be old, but
 * who is not in it any more has gone for good.
 */
static bool
await_first_place(ZkRoundTrip *trip, const ZkPlace *place)
{
	List	   *nested = NIL;

	for (;;)
	{
		const ZkReply *list = zklock_roundtrip_read(trip, ZK_LIST_AND_WATCH,
													place->lock_path);
		ContenderAnswer answer = contender_read_answer(list, place->lock_path);
		const char *mine = contender_node_name(place);
		ZkChildren	children;
		RecipeVerdict verdict;
		int			ahead;

		if (answer != ANSWER_FOUND)
			return answer == ANSWER_LOST;
		if (!zklock_nested_leave_out(trip, place->lock_path, list,
									 zklock_nested_bound(mine), &nested,
									 &children))
			return zklock_session_live() == 0;
		verdict = contender_verdict(place, &children, mine, &ahead);
		zklock_nested_free(&children);
		if (verdict != RECIPE_WAIT)
			return verdict == RECIPE_HELD;
		switch (zklock_session_await_watch(trip->deadline))
		{
			case ZK_WAIT_OVER:
				break;
			case ZK_WAIT_TIMEOUT:
				return false;
			case ZK_WAIT_LOST:
				return true;
		}
	}
}

static void
end_confirm(ZkRoundTrip *trip)
{
	zklock_handover_forget();
	zklock_roundtrip_end(trip);
	zklock_client_unwatch(zklock_session_client());
}
