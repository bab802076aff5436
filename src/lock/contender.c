/*-------------------------------------------------------------------------
 *
 * contender.c
 *	  How a place is won: one contender's way through the queue of one lock:
 *	  join, look, watch the one ahead, look again, until granted or out of
 *	  patience.
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
#include "expiry.h"
#include "handover.h"
#include "keep.h"
#include "nodedata.h"
#include "text.h"
#include "write.h"

/* From this attempt on, parents are created one by one, with their errors. */
#define CAREFUL_ATTEMPT 2

/* What a list of the queue's children tells a contender. */
typedef struct Survey
{
	RecipeVerdict verdict;
	char	   *next;			/* the child that the verdict names,
								 * palloc'ed; NULL: none */
} Survey;

static Standing stand(ZkContender *contender);
static bool is_known_busy(const Standing *standing);
static ZkWaitEnd stand_in_queue(Standing *standing);
static ZkWaitEnd look_around(Standing *standing, Survey *survey);
static ZkWaitEnd act_on(Standing *standing, const Survey *survey);
static void begin_wait(Standing *standing);
static void end_wait(const Standing *standing);
static bool await_first_place(Standing *standing);
static ZkWaitEnd look_at_queue(Standing *standing);
static ZkWaitEnd read_list(Standing *standing, const ZkReply *list,
						   const char *mine, Survey *survey);
static ZkWaitEnd leave_out(Standing *standing, const ZkReply *list,
						   const char *mine, ZkChildren *children);
static RecipeVerdict judge(const Standing *standing,
						   const ZkChildren *children,
						   const char *mine, int *ahead);
static bool is_anybody_behind(const Standing *standing);
static bool confirm_queued(Standing *standing);
static void leave_queue(Standing *standing);
static const ZkReply *join(Standing *standing);
static void send_create(Standing *standing);
static bool take_node(Standing *standing);
static void make_parents(Standing *standing);
static void end_parents(Standing *standing);
static void withdraw(Standing *standing);

/* ---------------------------------------------------------------------
 * Public functions
 * ---------------------------------------------------------------------
 */

ZkWaitEnd
zklock_contend(ZkContender *contender)
{
	Standing	standing = stand(contender);
	volatile ZkWaitEnd end = ZK_WAIT_TIMEOUT;
	ErrorContextCallback context = {
		.previous = error_context_stack,
		.callback = contender_add_context,
		.arg = (void *) contender->place->name
	};

	contender->place->is_on_word = false;
	contender->place->can_hand_over = false;
	standing.started_at = protocol_now();
	standing.log_at = log_lock_waits ?
		standing.started_at + DeadlockTimeout : ZK_NO_DEADLINE;
	zklock_deadlock_begin(&standing.detector, standing.started_at);
	PG_TRY();
	{
		error_context_stack = &context;

		/*
		 * A create of ours that was cancelled may still be in the queue,
		 * ahead of us.
		 */
		end = zklock_session_await_undone(contender->bounds.deadline) ?
			ZK_WAIT_OVER : ZK_WAIT_TIMEOUT;
		if (end == ZK_WAIT_OVER && contender->bounds.is_at_once)
			end = look_at_queue(&standing);
		if (end == ZK_WAIT_OVER)
			end = stand_in_queue(&standing);
		error_context_stack = context.previous;
		if (end == ZK_WAIT_GRANTED)
			contender_log_grant(&standing);
		if (end == ZK_WAIT_TIMEOUT)
			contender_refuse(&standing, is_known_busy(&standing));
	}
	PG_CATCH();
	{
		/* a cancel, but not one that the loss of held locks has sent */
		if (geterrcode() == ERRCODE_QUERY_CANCELED &&
			!zklock_session_has_interrupted())
			zklock_stat_count(ZK_STAT_CANCEL);
		leave_queue(&standing);
		PG_RE_THROW();
	}
	PG_END_TRY();

	if (end != ZK_WAIT_GRANTED)
	{
		leave_queue(&standing);
		return end;
	}
	Assert(contender->place->token != 0);
	zklock_place_note_grant(contender->place, standing.create);
	zklock_stat_count(standing.way);
	end_wait(&standing);
	zklock_deadlock_end(&standing.detector);
	zklock_roundtrip_end(&standing.trip);
	end_parents(&standing);

	/* who handed it over deletes the node that we watch */
	if (!standing.is_handed_over)
		zklock_client_unwatch(zklock_session_client());
	return end;
}

bool
zklock_contend_confirm(ZkContender *contender)
{
	Standing	standing = stand(contender);
	volatile bool is_first = false;

	PG_TRY();
	{
		is_first = await_first_place(&standing);
	}
	PG_CATCH();
	{
		leave_queue(&standing);
		PG_RE_THROW();
	}
	PG_END_TRY();
	leave_queue(&standing);
	return is_first;
}

/* ---------------------------------------------------------------------
 * For the family
 * ---------------------------------------------------------------------
 */

ZkWaitEnd
contender_step(const ZkReply *reply, const char *path)
{
	if (reply == NULL)
		return ZK_WAIT_TIMEOUT;
	switch (reply->result)
	{
		case ZK_OK:
			return ZK_WAIT_OVER;
		case ZK_NO_NODE:
			return ZK_WAIT_NO_NODE;
		case ZK_SESSION_LOST:
			return ZK_WAIT_LOST;
		default:
			zklock_session_raise(reply, "read a lock's queue", path);
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
		.trip.deadline = contender->bounds.deadline,
		.lease_at = ZK_NO_DEADLINE
	};

	return standing;
}

/*
 * Is it known that others are ahead?  If the wait ended at its deadline
 * without a connection, the list that showed them may be old, and the lock may
 * be free by now.
 */
static bool
is_known_busy(const Standing *standing)
{
	return standing->saw_others &&
		(protocol_now() < standing->contender->bounds.deadline ||
		 zklock_session_is_connected());
}

/* Join the queue and go through it. */
static ZkWaitEnd
stand_in_queue(Standing *standing)
{
	ZkWaitEnd	step;

	/* its parents, and once more the node, if they are not there */
	zklock_write_need(zklock_roundtrip_count_parents(standing->contender->place->lock_path) + 3);
	do
	{
		Survey		survey;

		step = look_around(standing, &survey);
		if (step == ZK_WAIT_OVER)
			step = act_on(standing, &survey);
	} while (step == ZK_WAIT_OVER || step == ZK_WAIT_NO_NODE);
	return step;
}

/*
 * Make a node in the queue, if there is none, and list the queue.
 * ZK_WAIT_NO_NODE: there is no node yet, so join again.
 */
static ZkWaitEnd
look_around(Standing *standing, Survey *survey)
{
	const ZkReply *list = join(standing);
	ZkWaitEnd	step;

	CHECK_FOR_INTERRUPTS();
	if (list == NULL)
		return ZK_WAIT_TIMEOUT;
	if (list->result == ZK_SESSION_LOST)
		return ZK_WAIT_LOST;
	if (!standing->is_node_known && !take_node(standing))
		return ZK_WAIT_NO_NODE;
	step = contender_step(list, standing->contender->place->lock_path);
	if (step == ZK_WAIT_NO_NODE)
		contender_raise_evicted(standing);
	return read_list(standing, list, contender_node_name(standing), survey);
}

/* Do what the survey asks for, and wait if it is to wait. */
static ZkWaitEnd
act_on(Standing *standing, const Survey *survey)
{
	ZkContender *contender = standing->contender;
	ZkWaitEnd	step;

	if (survey->verdict == RECIPE_HELD)
	{
		/*
		 * Tell the contender behind us that we were granted a permit. Without
		 * memory for that message the permit is not taken: the one that
		 * watches us would wait for as long as we hold it, even if other
		 * permits are free.  The deletion of our node wakes it.
		 */
		if (contender->place->permits > 1 && is_anybody_behind(standing) &&
			!zklock_write_announce(ZK_WRITE_COUNTED, contender->place->node,
								   contender->data))
			zklock_session_raise_memory();
		standing->way = standing->has_waited ? ZK_STAT_GRANT_LISTED :
			ZK_STAT_GRANT_AT_ONCE;
		return ZK_WAIT_GRANTED;
	}
	if (survey->verdict == RECIPE_MISMATCH)
	{
		step = contender_await_keeper(standing, survey->next);
		if (step != ZK_WAIT_TIMEOUT || protocol_now() >= contender->bounds.deadline)
			return step;
		if (contender_time_out(standing) != ZK_WAIT_NO_NODE)
			contender_raise_mismatch(standing, survey->next);
		return ZK_WAIT_OVER;
	}
	contender->place->can_hand_over =
		recipe_read_mark(contender_node_name(standing)) == RECIPE_MARK_HAND_OVER;
	if (contender->bounds.is_at_once)
		return contender_await_keeper(standing, survey->next);
	begin_wait(standing);
	step = contender_watch(standing, survey->next);
	if (step != ZK_WAIT_OVER || !standing->is_handed_over ||
		!confirm_queued(standing))
		return step;
	contender->place->is_on_word = !standing->is_next_first;
	standing->way = standing->is_told ? ZK_STAT_GRANT_TOLD :
		ZK_STAT_GRANT_HANDED_OVER;
	return ZK_WAIT_GRANTED;
}

/* Others are ahead: let views show what we wait for. */
static void
begin_wait(Standing *standing)
{
	const ZkPlace *place = standing->contender->place;

	if (standing->has_waited)
		return;
	standing->has_waited = true;
	zklock_keep_note_rival(place->lock_path);
	INSTR_TIME_SET_CURRENT(standing->wait_begun);
	zklock_board_await(place->lock_path, place->root_length, place->mode,
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
 * Wait until our node is the first, by lists alone.  A list may be old, but
 * who is not in it any more has gone for good.
 */
static bool
await_first_place(Standing *standing)
{
	ZkContender *contender = standing->contender;
	RecipeVerdict verdict = RECIPE_WAIT;
	ZkWaitEnd	end = ZK_WAIT_OVER;

	while (verdict == RECIPE_WAIT && end == ZK_WAIT_OVER)
	{
		const ZkReply *list =
			zklock_roundtrip_read(&standing->trip, ZK_LIST_AND_WATCH,
								  contender->place->lock_path);
		ZkWaitEnd	step = contender_step(list, contender->place->lock_path);
		ZkChildren	children;
		int			ahead;

		if (step == ZK_WAIT_OVER)
			step = leave_out(standing, list, contender_node_name(standing),
							 &children);
		if (step != ZK_WAIT_OVER)
			return step == ZK_WAIT_LOST;
		verdict = judge(standing, &children, contender_node_name(standing),
						&ahead);
		zklock_nested_free(&children);
		if (verdict == RECIPE_WAIT)
			end = zklock_session_await_watch(contender->bounds.deadline);
	}
	return verdict == RECIPE_HELD || end == ZK_WAIT_LOST;
}

/*
 * A try lists before it writes: a lock that is not free costs one read, or two
 * if its holder may merely keep it, and no transaction of the ensemble.
 * ZK_WAIT_OVER: it would be granted now, or only a node in the queue can find
 * that out.  So it is if many children may be locks below this one: most of
 * them are behind our node, whatever they are, and need no read then (nested.c).
 */
static ZkWaitEnd
look_at_queue(Standing *standing)
{
	const char *path = standing->contender->place->lock_path;
	const ZkReply *list = zklock_roundtrip_read(&standing->trip,
												ZK_LIST, path);
	ZkWaitEnd	step = contender_step(list, path);
	Survey		survey;

	if (step == ZK_WAIT_NO_NODE)
		return ZK_WAIT_OVER;
	if (step != ZK_WAIT_OVER)
		return step;
	step = read_list(standing, list, NULL, &survey);
	if (step != ZK_WAIT_OVER)
		return step;
	if (survey.verdict == RECIPE_HELD ||
		!contender_is_held(standing, survey.next))
		return ZK_WAIT_OVER;
	step = contender_time_out(standing);
	if (survey.verdict == RECIPE_MISMATCH)
	{
		if (step != ZK_WAIT_NO_NODE)
			contender_raise_mismatch(standing, survey.next);
		return ZK_WAIT_OVER;
	}
	return step == ZK_WAIT_NO_NODE ? look_at_queue(standing) :
		step == ZK_WAIT_OVER ? ZK_WAIT_TIMEOUT : step;
}

/*
 * What does a list tell, for our node or, with mine NULL, for one that is
 * still to be made?  Raises if our node has gone, and if the numbers are used
 * up.  Other than ZK_WAIT_OVER: it cannot be told any more.
 */
static ZkWaitEnd
read_list(Standing *standing, const ZkReply *list, const char *mine,
		  Survey *survey)
{
	ZkChildren	children;
	ZkWaitEnd	step = leave_out(standing, list, mine, &children);
	int			ahead;

	if (step != ZK_WAIT_OVER)
		return step;
	survey->verdict = judge(standing, &children, mine, &ahead);
	if (survey->verdict == RECIPE_GONE)
		contender_raise_evicted(standing);
	if (survey->verdict == RECIPE_EXHAUSTED)
		zklock_contend_raise_exhausted(standing->contender->place->name,
									   standing->contender->place->lock_path);
	standing->saw_others = survey->verdict == RECIPE_WAIT;
	if (standing->saw_others)
		contender_note_ahead(standing, &children, mine);
	if (standing->saw_others || survey->verdict == RECIPE_MISMATCH)
	{
		list_free_deep(standing->leases);
		standing->leases = zklock_expiry_nodes(list->children, list->nchildren);
		standing->lease_at = standing->leases != NIL ? 0 : ZK_NO_DEADLINE;
	}
	survey->next = ahead >= 0 ? pstrdup(children.names[ahead]) : NULL;
	standing->is_next_first = survey->next != NULL &&
		recipe_is_first(children.names, children.count, survey->next);
	zklock_nested_free(&children);
	return ZK_WAIT_OVER;
}

/*
 * The children of a list without those that are no contenders, or that do not
 * matter for us, see nested.h; to be freed.
 */
static ZkWaitEnd
leave_out(Standing *standing, const ZkReply *list, const char *mine,
		  ZkChildren *children)
{
	if (zklock_nested_leave_out(&standing->trip,
								standing->contender->place->lock_path, list,
								zklock_nested_bound(mine), &standing->nested,
								children))
		return ZK_WAIT_OVER;
	return zklock_session_live() == 0 ? ZK_WAIT_LOST : ZK_WAIT_TIMEOUT;
}

/*
 * The recipe's verdict over a list, for our node or, with mine NULL, for one
 * that is still to be made.
 */
static RecipeVerdict
judge(const Standing *standing, const ZkChildren *children, const char *mine,
	  int *ahead)
{
	const ZkPlace *place = standing->contender->place;
	RecipeWish	wish = {
		.mine = mine,
		.mode = place->mode,
		.permits = place->permits
	};

	return recipe_verdict(children->names, children->count, &wish, ahead);
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
is_anybody_behind(const Standing *standing)
{
	const ZkReply *list = zklock_client_reply(standing->trip.request);
	const char *mine = contender_node_name(standing);

	for (int i = 0; i < list->nchildren; i++)
		if (recipe_parse_node(list->children[i]).style != RECIPE_STYLE_NONE &&
			recipe_compare_nodes(list->children[i], mine) > 0)
			return true;
	return false;
}

/*
 * The lock was handed over to us, if our node still exists.  A fresh proof of
 * that is enough, as it is for a holder at its commit.  The clock is read
 * after the message came, for we may have been stopped meanwhile.  Without a
 * fresh proof the quorum is asked, because our server may not know yet what
 * has become of our node. false if only a list can tell.
 */
static bool
confirm_queued(Standing *standing)
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
								 zklock_write_check(place->node, place->token));
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

/* Give up whatever is under way; our node goes, wherever it is. */
static void
leave_queue(Standing *standing)
{
	zklock_handover_forget();
	zklock_deadlock_end(&standing->detector);
	zklock_roundtrip_end(&standing->trip);
	zklock_client_unwatch(zklock_session_client());
	end_parents(standing);
	withdraw(standing);
	end_wait(standing);
}

/* ---------------------------------------------------------------------
 * Our queue node
 * ---------------------------------------------------------------------
 */

/*
 * Have a node in the queue and a list that is not older.  The first time both
 * requests go out back to back, and the server answers them in that order.
 * NULL if the deadline comes first.
 */
static const ZkReply *
join(Standing *standing)
{
	if (standing->create == NULL)
		send_create(standing);
	standing->is_ahead_read = false;
	return zklock_roundtrip_read(&standing->trip, standing->watches_queue ?
								 ZK_LIST_AND_WATCH : ZK_LIST,
								 standing->contender->place->lock_path);
}

/*
 * Send the create of our node.  Raises past zklock.max_creates; if its parents
 * were made for it, they were counted together.
 */
static void
send_create(Standing *standing)
{
	ZkContender *contender = standing->contender;
	ZkPlace    *place = contender->place;
	char		guid[RECIPE_GUID_LEN + 1];
	char		prefix[RECIPE_NODE_SIZE];

	if (contender->data == NULL)
		contender->data = zklock_nodedata_build(0, NULL);
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
	recipe_node_prefix(prefix, contender->style,
					   place->mode, place->permits, guid);
	snprintf(place->node, RECIPE_PATH_SIZE, "%s/%s",
			 place->lock_path, prefix);
	standing->is_node_known = false;
	standing->create = zklock_write_create(standing->is_paid ? ZK_WRITE_PAID :
										   ZK_WRITE_BOUNDED, place->node,
										   ZK_EPHEMERAL_SEQUENTIAL,
										   contender->data);
	standing->is_paid = false;
	if (standing->create == NULL)
		zklock_session_raise_memory();
}

/*
 * Read the reply to our create, which is there when the list's is.  false if
 * there is no node yet: then join() is to be called again.  The node must be
 * of this session; it always is, unless the server mixes sessions up, and
 * then nothing that follows is worth anything.
 */
static bool
take_node(Standing *standing)
{
	ZkPlace    *place = standing->contender->place;
	const ZkReply *reply = zklock_client_reply(standing->create);

	if (reply == NULL)
		return false;			/* the list failed ahead of it: wait for both */
	switch (reply->result)
	{
		case ZK_OK:
			break;
		case ZK_NO_NODE:
			withdraw(standing);
			make_parents(standing);
			return false;
		case ZK_UNKNOWN_OUTCOME:

			/*
			 * It may be there.  Ahead of the next one it would look like
			 * somebody else's.
			 */
			withdraw(standing);
			/* the next question meets the deadline, and the loss */
			(void) zklock_session_await_undone(standing->contender->bounds.deadline);
			return false;
		default:
			zklock_roundtrip_refuse_ephemeral(reply, place->lock_path);
			zklock_session_raise(reply, "join a lock's queue",
								 place->lock_path);
	}

	strlcpy(place->node, reply->path, RECIPE_PATH_SIZE);
	place->token = place->czxid = reply->czxid;
	place->proof = reply->proof;
	if (reply->ephemeral_owner != zklock_session_id())
		contender_raise_evicted(standing);
	standing->is_node_known = true;
	return true;
}

/*
 * Create the parents of our node: the root for good, the rest as containers,
 * which the server removes when they are empty.  At first nobody waits for
 * the replies: the next attempt's create is behind them and shows whether
 * they worked.
 */
static void
make_parents(Standing *standing)
{
	ZkContender *contender = standing->contender;
	const ZkPlace *place = contender->place;
	ZkClient   *client = zklock_session_client();
	const char *end = place->node;
	char		parent[RECIPE_PATH_SIZE];

	if (++standing->attempts > PARENT_ATTEMPTS)
		ereport(ERROR,
				(errcode(ERRCODE_SYSTEM_ERROR),
				 errmsg("could not create znode \"%s\"",
						zklock_text_quotable(place->lock_path)),
				 errdetail("It vanished %d times before the lock's queue node was in it.",
						   PARENT_ATTEMPTS)));
	standing->is_paid = true;
	if (standing->attempts >= CAREFUL_ATTEMPT)
	{
		const ZkReply *refusal =
			zklock_roundtrip_make_parents(&standing->trip, place->node,
										  place->root_length);

		if (refusal != NULL)
		{
			zklock_roundtrip_refuse_ephemeral(refusal, place->lock_path);
			zklock_session_raise(refusal, "create a lock's znode",
								 place->lock_path);
		}
		return;
	}

	zklock_write_claim(zklock_roundtrip_count_parents(place->node) + 1);

	/* the data of our node, which was sent before: who has made the root */
	zklock_client_begin_many(client);
	while ((end = strchr(end + 1, '/')) != NULL)
	{
		bool		is_root = end - place->node <= place->root_length;
		const char *data;
		ZkRequest  *request;

		strlcpy(parent, place->node, end - place->node + 1);
		data = is_root ? contender->data : zklock_nodedata_of_parent(parent);
		request = zklock_write_create(ZK_WRITE_PAID, parent, is_root ?
									  ZK_PERSISTENT : ZK_CONTAINER, data);
		if (is_root || standing->nparents == lengthof(standing->parents))
			zklock_client_free(request);
		else
			standing->parents[standing->nparents++] = request;
	}
	zklock_client_end_many(client);
}

/*
 * The containers that we have made are used, or will not be: if our node is
 * not known to have been there.
 */
static void
end_parents(Standing *standing)
{
	bool		is_used = standing->is_node_known;

	if (!is_used)
		zklock_roundtrip_unmake(&standing->trip);
	while (standing->nparents > 0)
	{
		ZkRequest  *request = standing->parents[--standing->nparents];
		const ZkReply *reply = request != NULL ?
			zklock_client_reply(request) : NULL;

		/* as zklock_roundtrip_unmake(): the lowest one that was made */
		if (!is_used && reply != NULL && reply->result == ZK_OK)
		{
			zklock_client_free(zklock_client_remove(zklock_session_client(),
													reply->path,
													ZK_ANY_VERSION));
			is_used = true;
		}
		zklock_client_free(request);
	}
}

/* Our node goes, and is not ours any more. */
static void
withdraw(Standing *standing)
{
	zklock_client_withdraw(standing->create);
	standing->create = NULL;
}
