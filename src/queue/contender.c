/*-------------------------------------------------------------------------
 *
 * contender.c
 *	  Leads a contender through the queue: makes a node, lists, waits, and
 *	  lists again.
 *
 * The way is the loop of go_through_queue(): a node is made, the queue is listed,
 * the one ahead is watched, and the queue is listed again.  Its state is that of
 * the place: whether the queue node is made, and with which token.  What is done
 * in a step is in contender_step.c; the wait is in contender_watch.c.
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
#include "take_rate.h"
#include "text.h"

static void begin_contending(Contender *contender);
static ZkOutcome go_through_queue(Contender *contender);
static ZkOutcome list_before_joining(Contender *contender);
static ZkOutcome list_queue(Contender *contender, RecipeVerdict *verdict);
static void announce_permit(const Contender *contender);
static bool is_anybody_behind(const Contender *contender);
static ZkOutcome ask_first(Contender *contender, bool *is_busy);
static ZkOutcome wait_for_news(Contender *contender, bool *is_granted);
static ZkOutcome confirm_queued(Contender *contender, bool *is_queued);
static const char *describe_way(ZkStat way);
static bool has_waited(const Contender *contender);
static void begin_wait(Contender *contender);
static void end_wait(const Contender *contender);
static bool is_known_busy(const Contender *contender);
static void take_place(Contender *contender);
static void leave_queue(Contender *contender, const char *why);
static ZkOutcome await_first_place(ZkRoundTrip *trip, const ZkPlace *place,
								   bool *is_first);
static void end_confirm(ZkRoundTrip *trip);

/* ---------------------------------------------------------------------
 * Public functions
 * ---------------------------------------------------------------------
 */

ZkOutcome
zklock_contender_win_place(const ZkOrder *order, ZkPlace *place)
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
	volatile ZkOutcome outcome = ZK_LOST;

	Assert(place->mode == order->mode && place->permits == order->permits);
	begin_contending(&contender);
	PG_TRY();
	{
		error_context_stack = &context;
		outcome = go_through_queue(&contender);
		error_context_stack = context.previous;
		if (outcome == ZK_ANSWERED)
			contender_log_grant(&contender);
		if (outcome == ZK_LATE && contender.ahead.owned == NULL)
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

	if (outcome == ZK_ANSWERED)
		take_place(&contender);
	else
		leave_queue(&contender, outcome == ZK_LATE ? "busy" : "session lost");
	place->owned = contender.ahead.owned;
	return outcome;
}

ZkOutcome
zklock_contend_confirm(const ZkPlace *place, int64 deadline, bool *is_first)
{
	ZkRoundTrip trip = {.deadline = deadline};
	volatile ZkOutcome outcome = ZK_LOST;

	PG_TRY();
	{
		outcome = await_first_place(&trip, place, is_first);
	}
	PG_CATCH();
	{
		end_confirm(&trip);
		PG_RE_THROW();
	}
	PG_END_TRY();
	end_confirm(&trip);
	return outcome;
}

/* ---------------------------------------------------------------------
 * The way through the queue
 * ---------------------------------------------------------------------
 */

static void
begin_contending(Contender *contender)
{
	const ZkOrder *order = contender->order;
	ZkPlace    *place = contender->place;

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
 * Until the lock is granted: ZK_ANSWERED, and contender->way says how.
 * ZK_LATE: the deadline of the order has come, or the lock is busy and the
 * order waits for nobody, or the owner has a lease.  A create of ours that was
 * cancelled may still be in the queue, ahead of us: first wait for its end.
 */
static ZkOutcome
go_through_queue(Contender *contender)
{
	bool		is_at_once = contender->order->bounds.is_at_once;
	bool		is_for_owner = contender->order->owner != NULL;
	bool		is_granted = false;
	ZkOutcome	outcome = ZK_ANSWERED;

	if (!zklock_session_await_undone(contender->order->bounds.deadline))
		return ZK_LATE;
	if (is_at_once || is_for_owner)
		outcome = list_before_joining(contender);
	if (outcome == ZK_ANSWERED && is_for_owner)
		zklock_take_rate_count(1);	/* one that the owner has is not taken */
	while (outcome == ZK_ANSWERED && !is_granted)
	{
		RecipeVerdict verdict;

		outcome = list_queue(contender, &verdict);
		if (outcome != ZK_ANSWERED)
			break;
		if (contender->ahead.owned != NULL)
			outcome = ZK_LATE;
		else if (verdict == RECIPE_HELD)
		{
			announce_permit(contender);
			contender->way = has_waited(contender) ?
				ZK_STAT_GRANT_LISTED : ZK_STAT_GRANT_AT_ONCE;
			is_granted = true;
		}
		else if (is_at_once || verdict == RECIPE_MISMATCH)
		{
			bool		is_busy;

			outcome = ask_first(contender, &is_busy);
			if (outcome != ZK_ANSWERED || !is_busy)
				continue;
			if (verdict == RECIPE_MISMATCH &&
				protocol_now() < contender->trip.deadline)
				contender_raise_mismatch(contender);
			outcome = ZK_LATE;
		}
		else
			outcome = wait_for_news(contender, &is_granted);
	}

	/* a cancel that came with the grant: nobody was told of it yet */
	if (is_granted)
		CHECK_FOR_INTERRUPTS();
	if (is_granted && message_level_is_interesting(DEBUG1))
		elog(DEBUG1, "zklock: contender \"%s\", fencing token " INT64_FORMAT ": granted: %s",
			 zklock_text_quotable(contender->place->node),
			 contender->place->token, describe_way(contender->way));
	return outcome;
}

/*
 * The order waits for nobody: list before a node is made.  So a lock that is not
 * free costs one read, or two if its holder may merely keep it, and no
 * transaction of the ensemble.  ZK_ANSWERED: it would be granted now, or only a
 * node in the queue can find that out.  So it is if many children may be locks
 * below this one: most of them are behind our node, whatever they are, and need
 * no read then (nested.c).
 *
 * An order for an owner looks, too, whether or not it waits: a lease that the
 * owner has is to be renewed, and needs no node.
 */
static ZkOutcome
list_before_joining(Contender *contender)
{
	for (;;)
	{
		const ZkReply *list;
		RecipeVerdict verdict;
		bool		is_held;
		bool		are_gone;
		ZkOutcome	outcome = contender_read(&contender->trip, ZK_LIST,
											 contender->place->lock_path, &list);

		if (outcome != ZK_ANSWERED || list->result == ZK_NO_NODE)
			return outcome;
		outcome = contender_judge(contender, list, &verdict);
		if (outcome != ZK_ANSWERED || verdict == RECIPE_HELD)
			return outcome;
		if (contender->ahead.owned != NULL)
			return ZK_LATE;
		if (!contender->order->bounds.is_at_once)
			return ZK_ANSWERED;
		outcome = contender_is_held(contender, &is_held);
		if (outcome != ZK_ANSWERED || !is_held)
			return outcome;
		outcome = contender_end_leases(contender, &are_gone);
		if (outcome != ZK_ANSWERED)
			return outcome;
		if (!are_gone && verdict == RECIPE_MISMATCH)
			contender_raise_mismatch(contender);
		if (!are_gone)
			return ZK_LATE;
	}
}

/*
 * Have a node in the queue, and look which ones are ahead: RECIPE_HELD, _WAIT or
 * _MISMATCH.  Nothing is granted before it is known that the znode of the lock is
 * safe.
 */
static ZkOutcome
list_queue(Contender *contender, RecipeVerdict *verdict)
{
	ZkPlace    *place = contender->place;
	const ZkReply *list;
	ZkOutcome	outcome;
	bool		is_safe;
	bool		is_made;

	do
	{
		outcome = contender_join(contender, &list);
		CHECK_FOR_INTERRUPTS();
		if (outcome != ZK_ANSWERED)
			return outcome;
		is_safe = contender_is_safe(contender);
		if (!is_safe)
		{
			outcome = zklock_root_judge(&contender->trip, place->lock_path,
										place->root_length, &is_safe);
			if (outcome != ZK_ANSWERED)
				return outcome;
			if (is_safe)
				contender->safe_for = zklock_session_number();
		}
		is_made = contender_take_node(contender);
		if (is_made && list->result == ZK_NO_NODE)
			contender_raise_evicted(place);
	} while (!is_made || !is_safe);
	if (list->result != ZK_OK)
		zklock_session_raise(list, "read a lock's queue", place->lock_path);
	outcome = contender_judge(contender, list, verdict);
	if (outcome == ZK_ANSWERED && *verdict == RECIPE_WAIT)
		place->grant.can_hand_over =
			contender->node.mark == RECIPE_MARK_HAND_OVER;
	return outcome;
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
 * Nobody is waited for.  Those ahead may be on their way out all the same: the
 * first may merely keep the lock, and the term of a lease may be over.  *is_busy:
 * they are not.
 */
static ZkOutcome
ask_first(Contender *contender, bool *is_busy)
{
	ZkOutcome	outcome = contender_ask_keeper(contender, is_busy);
	bool		are_gone;

	if (outcome != ZK_ANSWERED || !*is_busy)
		return outcome;
	outcome = contender_end_leases(contender, &are_gone);
	*is_busy = !are_gone;
	return outcome;
}

/*
 * Wait for news of those ahead.  They are a reason to list again; or the one
 * ahead has handed the lock over, and our node still exists.
 */
static ZkOutcome
wait_for_news(Contender *contender, bool *is_granted)
{
	ZkOutcome	outcome;

	begin_wait(contender);
	outcome = contender_watch(contender, is_granted);
	if (outcome == ZK_ANSWERED && *is_granted)
		outcome = confirm_queued(contender, is_granted);
	if (*is_granted && !contender->ahead.is_next_first)
		contender->place->grant.basis = ZK_GRANTED_HANDED_OVER;
	return outcome;
}

/*
 * The lock was handed over to us, if our node still exists.  A fresh proof of
 * that is enough, as it is for a holder at its commit.  The clock is read
 * after the message came, for we may have been stopped meanwhile.  Without a
 * fresh proof the quorum is asked, because our server may not know yet what
 * has become of our node.  *is_queued: false if only a list can tell.
 */
static ZkOutcome
confirm_queued(Contender *contender, bool *is_queued)
{
	ZkPlace    *place = contender->place;
	const ZkReply *reply;
	ZkOutcome	outcome;

	*is_queued = false;
	zklock_session_read();
	if (zklock_session_live() == 0)
		return ZK_ANSWERED;		/* the list finds the loss */
	*is_queued = contact_is_after(place->proof, zklock_session_fresh_since());
	if (*is_queued)
		return ZK_ANSWERED;
	outcome = zklock_roundtrip_ask(&contender->trip,
								   zklock_client_check(zklock_session_client(),
													   place->node,
													   place->token),
								   &reply);
	if (outcome == ZK_UNKNOWN)
		return ZK_ANSWERED;		/* a list tells, with the connection back */
	if (outcome != ZK_ANSWERED)
		return outcome;
	if (reply->result == ZK_NO_NODE)
		contender_raise_evicted(place);
	if (reply->result != ZK_OK)
		zklock_session_raise(reply, "check a queue node", place->node);
	place->proof = reply->proof;
	*is_queued = true;
	return ZK_ANSWERED;
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

	if (message_level_is_interesting(DEBUG1))
	{
		const char *next = contender->ahead.next;

		if (next == NULL)
			elog(DEBUG1, "zklock: contender \"%s\": waits for the first permit",
				 zklock_text_quotable(place->node));
		else
			elog(DEBUG1, "zklock: contender \"%s\": waits behind \"%s\"",
				 zklock_text_quotable(place->node), zklock_text_quotable(next));
	}
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

	zklock_place_note_grant(place, node->create);
	zklock_stat_count(contender->way);
	end_wait(contender);
	zklock_deadlock_end(&contender->detector);
	zklock_roundtrip_end(&contender->trip);
	contender_end_parents(contender);

	/* who handed it over deletes the node that we watch */
	if (contender->way == ZK_STAT_GRANT_AT_ONCE ||
		contender->way == ZK_STAT_GRANT_LISTED)
		zklock_client_unwatch(zklock_session_client());
	if (node->mark == RECIPE_MARK_KEEPER)
		zklock_keep_begin(place, node->data);
}

/* Give up whatever is under way; our node goes, wherever it is. */
static void
leave_queue(Contender *contender, const char *why)
{
	bool		was_queued = contender->node.create != NULL;

	zklock_handover_forget();
	zklock_deadlock_end(&contender->detector);
	zklock_roundtrip_end(&contender->trip);
	zklock_client_unwatch(zklock_session_client());
	contender_end_parents(contender);
	contender_withdraw(contender);
	end_wait(contender);
	zklock_place_give_up(contender->place, why);
	if (was_queued && message_level_is_interesting(DEBUG1))
	{
		/* an error may be under way, which no interrupt is to replace */
		HOLD_INTERRUPTS();
		elog(DEBUG1, "zklock: contender \"%s\": withdrawn: %s",
			 zklock_text_quotable(contender->place->node), why);
		RESUME_INTERRUPTS();
	}
}

/* ---------------------------------------------------------------------
 * A grant that rests on a message
 * ---------------------------------------------------------------------
 */

/*
 * Wait until our node is the first, by lists alone.  A list may be old, but
 * who is not in it any more has gone for good.  *is_first: false if our node
 * is not there any more.
 */
static ZkOutcome
await_first_place(ZkRoundTrip *trip, const ZkPlace *place, bool *is_first)
{
	List	   *nested = NIL;
	const char *mine = contender_node_name(place);
	ZkOutcome	outcome = ZK_ANSWERED;

	*is_first = false;
	while (outcome == ZK_ANSWERED)
	{
		const ZkReply *list;
		ZkChildren	children;
		RecipeVerdict verdict;
		int			ahead;

		outcome = contender_read(trip, ZK_LIST_AND_WATCH, place->lock_path,
								 &list);
		if (outcome != ZK_ANSWERED || list->result == ZK_NO_NODE)
			break;
		outcome = zklock_nested_leave_out(trip, place->lock_path, list,
										  zklock_nested_bound(mine), &nested,
										  &children);
		if (outcome != ZK_ANSWERED)
			break;
		verdict = contender_verdict(place, &children, mine, &ahead);
		zklock_nested_free(&children);
		if (verdict != RECIPE_WAIT)
		{
			*is_first = verdict == RECIPE_HELD;
			break;
		}
		outcome = zklock_session_await_watch(trip->deadline);
	}
	return outcome;
}

static void
end_confirm(ZkRoundTrip *trip)
{
	zklock_handover_forget();
	zklock_roundtrip_end(trip);
	zklock_client_unwatch(zklock_session_client());
}
