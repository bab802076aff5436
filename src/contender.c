/*-------------------------------------------------------------------------
 *
 * contender.c
 *	  How a place is won: one contender's way through the queue of one lock:
 *	  join, look, watch the one ahead, look again, until granted or out of
 *	  patience.
 *
 * Requests are malloc'ed memory of client_request.c, which no memory context
 * frees.  So the public functions have a PG_TRY: whatever raises in between,
 * the queue node is withdrawn, also if the reply to its create is still to
 * come or was lost.  A FATAL does not run the PG_CATCH; the end of the
 * session removes the node then.
 *
 * No false grant: what grants is the recipe's verdict over a list that was
 * read after our node was created, or a hand-over (contender_watch.c); never
 * a mere wake-up, never a timeout.  A list may come from a server that lags
 * behind, but never behind our own create, and children with lower numbers
 * only ever disappear: what such a list lacks is gone.  (Curator 5.5 and our
 * own downgrade do add a child with a lower number, for a contender that
 * holds the lock, before they delete its old node.)
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

/* What a list of the queue's children tells a contender. */
typedef struct Survey
{
	RecipeVerdict verdict;
	bool		is_anybody_behind;	/* of our permit; valid if HELD */
	char	   *next;			/* the child that the verdict names,
								 * palloc'ed; NULL: none */
} Survey;

static Standing stand(ZkContender *contender);
static Standing begin(ZkContender *contender);
static bool is_known_busy(const Standing *standing);
static ZkContendEnd end_of(Step step);
static ZkContendEnd stand_in_queue(Standing *standing);
static Step look_around(Standing *standing, Survey *survey);
static Step act_on(Standing *standing, const Survey *survey, bool *is_granted);
static void begin_wait(Standing *standing);
static void end_wait(const Standing *standing);
static void count_error(void);
static bool await_first_place(Standing *standing);
static Step look(Standing *standing);
static void read_list(Standing *standing, const ZkReply *list,
					  const char *mine, Survey *survey);
static void name_in_errors(const Standing *standing);
static bool look_at_all(Standing *standings, int nstandings, bool *is_busy);
static int	join_all(Standing *standings, int nstandings, bool *is_busy);
static RecipeVerdict judge(const Standing *standing, const ZkReply *list,
						   const char *mine, int *ahead);
static bool is_anybody_behind(const Standing *standing, const ZkReply *list);
static bool is_still_queued(Standing *standing);
static void note_grant(const Standing *standing);
static void leave(Standing *standing);

/* ---------------------------------------------------------------------
 * Public functions
 * ---------------------------------------------------------------------
 */

ZkContendEnd
zklock_contend(ZkContender *contender)
{
	Standing	standing = begin(contender);
	volatile ZkContendEnd end = ZK_CONTEND_BUSY;
	ErrorContextCallback context = {
		.previous = error_context_stack,
		.callback = contender_add_context,
		.arg = (void *) contender->place->name
	};

	standing.started_at = zklock_client_now();
	standing.log_at = log_lock_waits ?
		standing.started_at + DeadlockTimeout : ZK_NO_DEADLINE;
	zklock_deadlock_begin(&standing.detector);
	PG_TRY();
	{
		Step		step;

		error_context_stack = &context;

		/*
		 * A create of ours that was cancelled may still be in the queue,
		 * ahead of us.
		 */
		step = zklock_session_await_undone(contender->deadline) ?
			STEP_GO_ON : STEP_OUT_OF_PATIENCE;
		if (step == STEP_GO_ON && contender->patience == ZK_TRY_ONCE)
			step = look(&standing);
		end = step == STEP_GO_ON ? stand_in_queue(&standing) : end_of(step);
		if (end == ZK_CONTEND_GRANTED)
			contender_log_grant(&standing);
		if (end == ZK_CONTEND_BUSY && !is_known_busy(&standing))
			end = ZK_CONTEND_UNANSWERED;
		if (end == ZK_CONTEND_BUSY && log_lock_failures)
			contender_log_failure(&standing);
		if (end == ZK_CONTEND_BUSY)
			contender_note_busy(&standing);
		error_context_stack = context.previous;
	}
	PG_CATCH();
	{
		count_error();
		leave(&standing);
		PG_RE_THROW();
	}
	PG_END_TRY();

	if (end != ZK_CONTEND_GRANTED)
	{
		if (end != ZK_CONTEND_SESSION_LOST && contender->is_try)
			zklock_stat_count(ZK_STAT_TRY_IN_VAIN);
		leave(&standing);
		return end;
	}
	note_grant(&standing);
	zklock_client_free(standing.create);
	contender_forget_ahead(&standing);
	zklock_deadlock_end(&standing.detector);
	zklock_roundtrip_end(&standing.trip);

	/* who handed it over deletes the node that we watch */
	if (!standing.is_handed_over)
		zklock_client_unwatch(zklock_session_client());
	return end;
}

int
zklock_contend_at_once(ZkContender *contenders, int ncontenders,
					   bool *is_busy)
{
	Standing   *standings = palloc(ncontenders * sizeof(*standings));
	volatile int ngranted = 0;
	ErrorContextCallback context = {
		.previous = error_context_stack,
		.callback = contender_add_context,
		.arg = (void *) contenders[0].place->name
	};

	for (int i = 0; i < ncontenders; i++)
		standings[i] = begin(&contenders[i]);
	*is_busy = false;
	PG_TRY();
	{
		error_context_stack = &context;
		if (zklock_session_await_undone(contenders[0].deadline) &&
			look_at_all(standings, ncontenders, is_busy) &&
			contenders[0].patience != ZK_TRY_ONCE)
			ngranted = join_all(standings, ncontenders, is_busy);
		error_context_stack = context.previous;
	}
	PG_CATCH();
	{
		count_error();
		for (int i = 0; i < ncontenders; i++)
			leave(&standings[i]);
		PG_RE_THROW();
	}
	PG_END_TRY();

	/* other calls go on with zklock_contend() */
	if (*is_busy && contenders[0].is_try &&
		contenders[0].patience == ZK_TRY_ONCE)
		zklock_stat_count(ZK_STAT_TRY_IN_VAIN);

	for (int i = 0; i < ncontenders; i++)
	{
		if (i < ngranted)
			note_grant(&standings[i]);
		else
			leave(&standings[i]);
		zklock_client_free(standings[i].create);
		zklock_roundtrip_end(&standings[i].trip);
	}
	pfree(standings);
	return ngranted;
}

bool
zklock_contend_confirm(ZkContender *contender)
{
	Standing	standing = stand(contender);
	volatile bool is_first = false;

	standing.is_node_known = true;
	PG_TRY();
	{
		is_first = await_first_place(&standing);
	}
	PG_CATCH();
	{
		leave(&standing);
		PG_RE_THROW();
	}
	PG_END_TRY();
	leave(&standing);
	return is_first;
}

/* ---------------------------------------------------------------------
 * For the family
 * ---------------------------------------------------------------------
 */

Step
contender_step(const Standing *standing, const ZkReply *reply)
{
	if (reply == NULL)
		return STEP_OUT_OF_PATIENCE;
	switch (reply->result)
	{
		case ZK_OK:
			return STEP_GO_ON;
		case ZK_NO_NODE:
			return STEP_NO_NODE;
		case ZK_SESSION_LOST:
			return STEP_SESSION_LOST;
		default:
			zklock_session_raise(reply, "read a lock's queue",
								 standing->contender->place->lock_path);
	}
}

const char *
contender_node_name(const Standing *standing)
{
	return strrchr(standing->contender->place->node, '/') + 1;
}

/* ---------------------------------------------------------------------
 * The way through the queue
 * ---------------------------------------------------------------------
 */

/* A contender that has not begun. */
static Standing
stand(ZkContender *contender)
{
	Standing	standing = {
		.contender = contender,
		.way = ZK_STAT_GRANT_AT_ONCE
	};

	standing.trip.deadline = contender->deadline;
	standing.log_at = ZK_NO_DEADLINE;
	standing.detector.look_at = ZK_NO_DEADLINE;
	return standing;
}

/*
 * The same for a place that is still to be won; we do not stand in our own
 * way.
 */
static Standing
begin(ZkContender *contender)
{
	zklock_keep_drop(contender->place->lock_path);
	contender->place->is_on_word = false;
	contender->place->can_hand_over = false;
	return stand(contender);
}

/*
 * Has the ensemble said that others are ahead?  If the wait ended at its
 * deadline without a connection that may be long ago: the lock may be free by
 * now.
 */
static bool
is_known_busy(const Standing *standing)
{
	ZkClientStatus status;

	return standing->is_told_busy &&
		(zklock_client_now() < standing->contender->deadline ||
		 (zklock_session_status(&status) &&
		  status.state == ZK_CLIENT_CONNECTED));
}

/* Of a contender whose way ends there. */
static ZkContendEnd
end_of(Step step)
{
	Assert(step == STEP_OUT_OF_PATIENCE || step == STEP_SESSION_LOST);
	return step == STEP_SESSION_LOST ?
		ZK_CONTEND_SESSION_LOST : ZK_CONTEND_BUSY;
}

/* Join the queue and go through it. */
static ZkContendEnd
stand_in_queue(Standing *standing)
{
	for (;;)
	{
		Survey		survey;
		bool		is_granted = false;
		Step		step = look_around(standing, &survey);

		if (step == STEP_GO_ON)
		{
			contender_log_verdict(standing, survey.verdict, survey.next);
			step = act_on(standing, &survey, &is_granted);
		}
		if (is_granted)
			return ZK_CONTEND_GRANTED;
		if (step == STEP_OUT_OF_PATIENCE || step == STEP_SESSION_LOST)
			return end_of(step);
	}
}

/*
 * Have a node in the queue, and see who is there with us.  STEP_NO_NODE:
 * there is no node yet, so join again.
 */
static Step
look_around(Standing *standing, Survey *survey)
{
	const ZkReply *list = contender_join(standing);
	Step		step;

	CHECK_FOR_INTERRUPTS();
	if (list == NULL)
		return STEP_OUT_OF_PATIENCE;
	if (list->result == ZK_SESSION_LOST)
		return STEP_SESSION_LOST;
	if (!standing->is_node_known && !contender_take_node(standing))
		return STEP_NO_NODE;
	step = contender_step(standing, list);
	if (step == STEP_NO_NODE)
		contender_raise_evicted(standing);
	if (step == STEP_GO_ON)
		read_list(standing, list, contender_node_name(standing), survey);
	return step;
}

/* Do what the survey asks for, and wait if it is to wait. */
static Step
act_on(Standing *standing, const Survey *survey, bool *is_granted)
{
	ZkContender *contender = standing->contender;
	Step		step;

	switch (survey->verdict)
	{
		case RECIPE_HELD:
			if (survey->is_anybody_behind)
				contender_announce(standing);
			standing->way = standing->has_waited ? ZK_STAT_GRANT_LISTED :
				ZK_STAT_GRANT_AT_ONCE;
			*is_granted = true;
			return STEP_GO_ON;
		case RECIPE_MISMATCH:
			step = contender_await_keeper(standing, survey->next);
			if (step == STEP_OUT_OF_PATIENCE &&
				zklock_client_now() < contender->deadline)
				contender_raise_mismatch(standing, survey->next);
			return step;
		case RECIPE_GONE:
			contender_raise_evicted(standing);
		case RECIPE_EXHAUSTED:
			contender_raise_exhausted(standing);
		case RECIPE_WAIT:
			contender->place->can_hand_over =
				recipe_read_mark(contender_node_name(standing)) == RECIPE_MARK_HAND_OVER;
			break;
	}
	if (contender->patience == ZK_TRY_ONCE)
		return contender_await_keeper(standing, survey->next);
	begin_wait(standing);
	switch (contender_watch(standing, survey->next))
	{
		case ZK_WAIT_OVER:
			if (!standing->is_handed_over || !is_still_queued(standing))
				break;
			contender->place->is_on_word = !standing->is_next_first &&
				!zklock_session_has_credentials();
			standing->way = standing->is_told ? ZK_STAT_GRANT_TOLD :
				ZK_STAT_GRANT_HANDED_OVER;
			*is_granted = true;
			break;
		case ZK_WAIT_TIMEOUT:
			return STEP_OUT_OF_PATIENCE;
		case ZK_WAIT_LOST:
			return STEP_SESSION_LOST;
	}
	return STEP_GO_ON;
}

/* Others are ahead: whoever looks may know for what we wait. */
static void
begin_wait(Standing *standing)
{
	const ZkPlace *place = standing->contender->place;

	if (standing->has_waited)
		return;
	standing->has_waited = true;
	zklock_keep_note_rival(place->lock_path);
	INSTR_TIME_SET_CURRENT(standing->wait_begun);
	zklock_board_await(place->lock_path + place->root_length + 1, place->mode,
					   place->permits);
}

/* If we have waited, that is over, however it ended. */
static void
end_wait(const Standing *standing)
{
	instr_time	now;

	if (!standing->has_waited)
		return;
	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, standing->wait_begun);
	zklock_stat_wait(INSTR_TIME_GET_MICROSEC(now));
	zklock_board_await_over();
}

/*
 * In a PG_CATCH(): was that a cancel?  Not if the loss of the locks that are
 * held has sent it.
 */
static void
count_error(void)
{
	if (geterrcode() == ERRCODE_QUERY_CANCELED &&
		!zklock_session_has_interrupted())
		zklock_stat_count(ZK_STAT_CANCEL);
}

/*
 * Wait until our node is the first, by lists alone.  A list may be old, but
 * who is not in it any more has gone for good.
 */
static bool
await_first_place(Standing *standing)
{
	ZkContender *contender = standing->contender;

	for (;;)
	{
		ZkWaitEnd	end;
		int			ahead;
		RecipeVerdict verdict;
		const ZkReply *list =
			zklock_roundtrip_read(&standing->trip, zklock_client_list,
								  contender->place->lock_path);
		Step		step = contender_step(standing, list);

		if (step != STEP_GO_ON)
			return step == STEP_SESSION_LOST;
		verdict = judge(standing, list, contender_node_name(standing), &ahead);
		if (verdict != RECIPE_WAIT || ahead < 0)
			return verdict == RECIPE_HELD;
		end = contender_watch_child(standing,
									pstrdup(list->children[ahead]));
		if (end != ZK_WAIT_OVER)
			return end == ZK_WAIT_LOST;
	}
}

/*
 * A try looks before it writes: a lock that is not free costs one read, and
 * not a transaction of the ensemble; or two reads, if it may be kept by whoever
 * has it.  STEP_GO_ON: it would be granted now, or that cannot be told from
 * outside the queue.
 */
static Step
look(Standing *standing)
{
	const char *path = standing->contender->place->lock_path;
	const ZkReply *list = zklock_roundtrip_read(&standing->trip,
												zklock_client_list, path);
	Step		step = contender_step(standing, list);
	Survey		survey;

	if (step == STEP_NO_NODE)
		return STEP_GO_ON;
	if (step != STEP_GO_ON)
		return step;
	read_list(standing, list, NULL, &survey);
	switch (survey.verdict)
	{
		case RECIPE_HELD:
			return STEP_GO_ON;
		case RECIPE_MISMATCH:
			if (contender_is_held(standing, survey.next))
				contender_raise_mismatch(standing, survey.next);
			return STEP_GO_ON;
		case RECIPE_EXHAUSTED:
			contender_raise_exhausted(standing);
		case RECIPE_WAIT:
			return contender_is_held(standing, survey.next) ?
				STEP_OUT_OF_PATIENCE : STEP_GO_ON;
		case RECIPE_GONE:
			break;
	}
	return STEP_OUT_OF_PATIENCE;
}

/*
 * What does a list tell, for our node or, with mine NULL, for one that is
 * still to be made?
 */
static void
read_list(Standing *standing, const ZkReply *list, const char *mine,
		  Survey *survey)
{
	int			ahead;

	memset(survey, 0, sizeof(*survey));
	survey->verdict = judge(standing, list, mine, &ahead);
	standing->is_told_busy = survey->verdict == RECIPE_WAIT;
	if (standing->is_told_busy)
		contender_note_ahead(standing, list, mine);
	survey->next = ahead >= 0 ? pstrdup(list->children[ahead]) : NULL;
	standing->is_next_first = survey->next != NULL &&
		recipe_is_first(list->children, list->nchildren, survey->next);
	survey->is_anybody_behind = survey->verdict == RECIPE_HELD &&
		mine != NULL && standing->contender->place->permits > 1 &&
		is_anybody_behind(standing, list);
}

/* Whatever raises from now on is about this one of several contenders. */
static void
name_in_errors(const Standing *standing)
{
	error_context_stack->arg = (void *) standing->contender->place->name;
}

/*
 * Look at all queues in one flush: would each lock be granted now?  This
 * keeps contenders out of queues that they would only have to leave again,
 * where others would find them and take the lock for busy.
 */
static bool
look_at_all(Standing *standings, int nstandings, bool *is_busy)
{
	ZkClient   *client = zklock_session_client();
	bool		all_free = true;

	for (int i = 0; i < nstandings; i++)
		standings[i].trip.request =
			zklock_client_list(client,
							   standings[i].contender->place->lock_path);
	for (int i = 0; i < nstandings && all_free; i++)
	{
		ZkContender *contender = standings[i].contender;
		const ZkReply *list;
		int			ahead;

		name_in_errors(&standings[i]);
		list = zklock_session_await(standings[i].trip.request,
									contender->deadline, ZK_WAITING_FOR_REPLY);
		if (list == NULL)
			return false;
		if (list->result == ZK_OK &&
			judge(&standings[i], list, NULL, &ahead) == RECIPE_WAIT)
		{
			char	   *next = pstrdup(list->children[ahead]);

			/* if it is merely kept it may be free: zklock_contend() looks again */
			standings[i].is_next_first =
				recipe_is_first(list->children, list->nchildren, next);
			contender_note_ahead(&standings[i], list, NULL);
			*is_busy = contender_is_held(&standings[i], next);
			if (*is_busy && contender->patience == ZK_TRY_ONCE &&
				log_lock_failures)
				contender_log_failure(&standings[i]);
			return false;
		}
		all_free = list->result == ZK_OK || list->result == ZK_NO_NODE;
	}
	return all_free;
}

/*
 * Join all queues in one flush.  Only those up to the first that is not
 * granted count.  Nobody may stay in a later queue while he waits for an
 * earlier one: a contender who was first in the later one and came second in
 * the earlier one would wait for somebody who waits for him.
 */
static int
join_all(Standing *standings, int nstandings, bool *is_busy)
{
	ZkClient   *client = zklock_session_client();

	for (int i = 0; i < nstandings; i++)
	{
		Standing   *standing = &standings[i];

		name_in_errors(standing);
		if (zklock_client_reply(standing->trip.request)->result == ZK_NO_NODE)
			contender_make_parents(standing);
		contender_send_create(standing);
		zklock_client_free(standing->trip.request);
		standing->trip.request =
			zklock_client_list(client, standing->contender->place->lock_path);
	}
	for (int i = 0; i < nstandings; i++)
	{
		Standing   *standing = &standings[i];
		ZkContender *contender = standing->contender;
		const ZkReply *list;
		const ZkReply *created;
		RecipeVerdict verdict;
		int			ahead;

		name_in_errors(standing);
		list = zklock_session_await(standing->trip.request,
									contender->deadline, ZK_WAITING_FOR_REPLY);
		created = zklock_client_reply(standing->create);
		if (list == NULL || list->result != ZK_OK ||
			created == NULL || created->result != ZK_OK ||
			!contender_take_node(standing))
			return i;
		verdict = judge(standing, list, contender_node_name(standing),
						&ahead);
		*is_busy = verdict == RECIPE_WAIT;
		if (verdict != RECIPE_HELD)
			return i;
	}
	return nstandings;
}

/*
 * The recipe's verdict over a list, for our node or, with mine NULL, for one
 * that is still to be made.
 */
static RecipeVerdict
judge(const Standing *standing, const ZkReply *list, const char *mine,
	  int *ahead)
{
	ZkContender *contender = standing->contender;
	int			own;

	if (contender->place->permits > 1)
		return recipe_permit_verdict(list->children, list->nchildren, mine,
									 contender->place->permits, ahead);
	if (mine == NULL)
		return recipe_verdict_newcomer(list->children, list->nchildren,
									   contender->place->mode, ahead);
	return recipe_verdict(list->children, list->nchildren, mine,
						  contender->place->mode, &own, ahead);
}

/*
 * Does anybody stand behind us in the list that grants us a permit?  They may
 * take us for one who waits, by a list from before, and watch us for that;
 * also if this is our first list, for its reply may have taken long.  Whoever
 * is not in it came later, and its own list shows that we are granted.
 */
static bool
is_anybody_behind(const Standing *standing, const ZkReply *list)
{
	const char *mine = contender_node_name(standing);

	for (int i = 0; i < list->nchildren; i++)
		if (recipe_parse_node(list->children[i]).style != RECIPE_STYLE_NONE &&
			recipe_compare_nodes(list->children[i], mine) > 0)
			return true;
	return false;
}

/*
 * The lock was handed over to us, if our node is there to have it.  A fresh
 * proof of that will do, as it does for a holder at its commit; the clock is
 * read after the news came, for we may have been stopped meanwhile.
 * Otherwise the quorum is asked; our server may be behind what has become of
 * our node, also behind the news, if we have reconnected since.  false if
 * only a list can tell.
 */
static bool
is_still_queued(Standing *standing)
{
	ZkPlace    *place = standing->contender->place;
	ZkClientStatus status;
	const ZkReply *reply;

	zklock_session_look();
	if (!zklock_session_status(&status) || status.state == ZK_CLIENT_LOST)
		return false;
	if (contact_is_after(place->proof, zklock_session_fresh_since()))
		return true;
	reply = zklock_roundtrip_ask(&standing->trip,
								 zklock_client_check(zklock_session_client(),
													 place->node,
													 place->token));
	if (reply == NULL || reply->result == ZK_UNKNOWN_OUTCOME ||
		reply->result == ZK_SESSION_LOST)
		return false;
	if (reply->result == ZK_NO_NODE)
		contender_raise_evicted(standing);
	if (reply->result != ZK_OK)
		zklock_session_raise(reply, "check a queue node", place->node);
	place->proof = reply->proof;
	return true;
}

/* The lock is ours, and the place with it. */
static void
note_grant(const Standing *standing)
{
	ZkContender *contender = standing->contender;

	Assert(contender->place->token != 0);
	contender->place->can_keep = contender->wants_keep &&
		recipe_read_mark(contender_node_name(standing)) == RECIPE_MARK_KEEPER;
	contender->place->keep = NULL;
	zklock_place_note_grant(contender->place);
	zklock_stat_count(standing->way);
	end_wait(standing);
}

/* Give up whatever is under way; our node goes, wherever it is. */
static void
leave(Standing *standing)
{
	zklock_handover_forget();
	zklock_deadlock_end(&standing->detector);
	zklock_roundtrip_end(&standing->trip);
	contender_forget_ahead(standing);
	zklock_client_unwatch(zklock_session_client());
	contender_withdraw(standing);
	end_wait(standing);
}
