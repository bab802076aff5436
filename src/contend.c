/*-------------------------------------------------------------------------
 *
 * contend.c
 *	  One contender's way through the queue of one lock: join, look, watch the
 *	  one ahead, look again, until granted or out of patience.
 *
 * Requests are malloc'ed memory of client.c, which no memory context frees.
 * So the public functions have a PG_TRY: whatever raises in between, the queue
 * node is withdrawn, also if the reply to its create is still to come
 * or was lost.  A FATAL does not run the PG_CATCH; the end of the session
 * removes the node then.
 *
 * No false grant: what grants is the recipe's verdict over a list that was read
 * after our node was created, or the hand-over below; never a mere wake-up,
 * never a timeout.  A list may come from a server that lags behind, but never
 * behind our own create, and children with lower numbers only ever disappear:
 * what such a list lacks is gone.  (Curator 5.5 and our own downgrade do add a
 * child with a lower number, for a contender that holds the lock, before they
 * delete its old node.)
 *
 * Hand-over, which saves the waiter the second list: a holder that had to wait
 * for the lock sets the data of its node before it deletes it.  Nobody else can
 * set it: each session has a random identity, which the node's ACL names and
 * the node's name tells of (recipe_can_hand_over()).  So the set says that the
 * lock was held, that nobody was ahead of its holder therefore, and that it is
 * let go; since we are the next in line according to our own list, it is ours.
 * This stays true whenever we learn of it.  It takes for granted that our own
 * node is there, which a list would have shown: without a fresh proof of that
 * we ask the quorum, see is_still_queued().  The deletion of the node says
 * nothing of that kind: a waiter deletes its node when it gives up, and a
 * downgrade when the lock is still held.  Readers always list: several of them
 * go ahead together.
 *
 * Who may create nodes in the queue can give one the mark, and set it, and never
 * have held the lock.  So the word of the one ahead is beyond doubt only if it was
 * the first of our own list: then the lock was its, whoever made it.  Otherwise it
 * is believed where nothing depends on strangers, which the contender says
 * (wants_list), and what was granted so is looked at again before more depends on
 * it: zklock_contend_confirm().  With credentials (zklock.auth) it is believed if
 * nobody without them can have created anything in the queue, by the ACL of the
 * lock's znode, which cannot be another one as long as our node is in it.
 *
 * Neighbors, which saves the waiter the ensemble: a holder that lets go tells a
 * backend of the same cluster that waits for its node through shared memory
 * (neighbor.c), and deletes its node without setting it.  What was said of the
 * set is true of this too, and whether the holder's session is still alive does
 * not matter: it was granted the lock, so nobody was ahead of it, and nobody
 * can have come in between.  Its node may be there for a while; those who look
 * at the queue meanwhile wait for it, and those who are handed the lock by us
 * need not look.  But being told says nothing of what the ensemble has done
 * since, of which our server may not even know: we may have been evicted, the
 * lock passed to those behind us, and our own node would still be read from
 * there.  So a read of it will not do.  While we know of no connection we are in
 * join(), which is no place to be told.
 *
 * Semaphores: any of the holders may leave first.  So the first of those who
 * wait watches the whole queue, and whoever is behind it watches the one just
 * ahead, which sets its node's data when it is granted while others are behind
 * it: then the next one is the first.  A release wakes one backend, and a grant
 * one more.
 *
 * Aliases (node style "all"): a contender may have several queue nodes.  Their
 * creates and the list go out together; when it is granted the lock, and when
 * all its nodes are withdrawn and made anew, is explained at the head of
 * alias.c.  If the reply to one of the creates is lost, all nodes are
 * withdrawn as well, and lose their place.  Such a contender always lists, and
 * so does whoever is behind it, for none of its nodes can be handed over.
 *
 * The end of the sequence counter: the server numbers queue nodes with 31
 * bits, as long as the lock's znode lives.  A contender whose number is near
 * the end withdraws its node, waits until the queue is empty, deletes the
 * znode, and joins again, which makes the znode anew.  All of ours do so, so
 * that the queue drains as fast as those ahead are done.  Why this is safe:
 * the server deletes a znode only if it has no children, so never while
 * anybody holds the lock or waits; who wants to join just then is told that
 * there is no znode, and makes it, as after the removal of an idle container;
 * and nobody is granted the lock by it, only by a list that has our new node.
 * Others may know nothing of all this and fill the queue for ever, so its
 * patience has limits, see drain().
 *
 * A hold (durable.c) is a persistent node, and nobody deletes it but who is
 * asked to.  One that was begun and not finished would block the queue for
 * ever, so whoever finds it ahead, just ahead or anywhere, clears it away:
 * clients of other makes that stand in between wait for it like for any other
 * node.  It is void once the node of its maker that it was to stand in for,
 * its twin, is gone while the hold's own data still says "pending".  The
 * delete names the version of the data, so that it loses to a maker who
 * finishes the hold at that moment.
 *
 *-------------------------------------------------------------------------
 */
#include "contend.h"

#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "utils/timestamp.h"

#include "identity.h"
#include "neighbor.h"

/*
 * How often the parents are made anew when they vanish between their creation
 * and that of our node: the server removes empty containers at any time.
 */
#define PARENT_ATTEMPTS 10

/* From this attempt on, parents are created one by one, with their errors. */
#define CAREFUL_ATTEMPT 2

/* How often one contender tries to delete the lock's znode. */
#define DRAIN_ATTEMPTS 3

/*
 * How long to bear with contenders that came after us when nobody is left
 * ahead.  Ours withdraw within two round trips; more patience would let others
 * who know nothing of draining overtake us for ever.
 */
#define DRAIN_GRACE_MS 1000

/*
 * How many attempts a contender with aliases makes at once when others come in
 * between.  Each further one is put off for a random time, of which the limit
 * doubles up to 64 ms; one that must not wait gives up then.
 */
#define PROMPT_ATTEMPTS 3
#define LONGEST_PAUSE_BITS 6

/*
 * At how many holds one list makes us look.  There are more only if somebody
 * makes names that look like holds.
 */
#define HOLDS_LOOKED_AT 64

/* How often a try reads a queue in which it has found void holds. */
#define LOOKS_OF_A_TRY 10

/* Behind one of our own make, see look_again_at(): rarely, for nobody needs it. */
#define OWN_LOOKS 10

/* What to do next to drain a queue. */
typedef enum DrainStep
{
	DRAIN_EMPTY,				/* nobody is there: delete the znode */
	DRAIN_WAIT,					/* somebody is */
	DRAIN_ANEW,					/* the znode was deleted: join */
	DRAIN_NEVER,				/* it cannot be: join all the same */
	DRAIN_LOOK_AGAIN,
	DRAIN_TIMEOUT,				/* the deadline came first */
	DRAIN_LOST					/* the session was lost first */
} DrainStep;

/* What has become of a hold that stands ahead. */
typedef enum HoldState
{
	HOLD_STANDS,				/* finished, or not to be read */
	HOLD_PENDING,				/* its maker is at work on it */
	HOLD_GONE					/* or it was void, and is: look again */
} HoldState;

/* A contender on its way. */
typedef struct Standing
{
	ZkContender *contender;
	ZkRequest  *create;			/* of our queue node; owns the node until the
								 * grant; NULL before we joined */
	ZkRequest  *aliases[ALIAS_COUNT - 1];	/* the same of our further nodes */
	int			ninterposed;	/* how often somebody came in between them */
	ZkRequest  *request;		/* the read under way, or NULL */
	bool		is_node_known;	/* contender->node holds the full path */
	char		prefix[RECIPE_NODE_SIZE];	/* its name up to the number */
	ZkRequest  *closed;			/* may others create in the queue?  NULL: that
								 * was not asked; of the lock's present znode */
	bool		is_next_first;	/* nobody is ahead of the one just ahead of us */
	bool		is_handed_over; /* whoever was ahead has let go, to us */
	bool		watches_queue;	/* lists are to be watched */
	bool		is_told_busy;	/* the last list has shown somebody ahead */
	int			nahead;			/* how many those are; valid if the log may ask */
	char	   *first;			/* and the path of the first, palloc'ed or NULL */
	bool		is_ahead_read;	/* request is the read of the one just ahead */
	char	   *seen;			/* the one ahead whose data was set when we last
								 * looked at it, palloc'ed; NULL if none was */
	int			seen_version;	/* with seen: how often */
	List	   *holds;			/* of the names of those that stand for sure */
	char	   *data;			/* of our node, palloc'ed */
	int			attempts;		/* to create the node */
	bool		cannot_drain;	/* go on with whatever number we get */
	int64		started_at;
	int64		log_at;			/* when log_lock_waits wants a message */
	bool		is_wait_logged;
} Standing;

static bool is_known_busy(const Standing *standing);
static ZkContendEnd stand_in_queue(Standing *standing);
static bool await_first_place(Standing *standing);
static ZkContendEnd look(Standing *standing);
static bool look_at_all(Standing *standings, int nstandings, bool *is_busy);
static int	join_all(Standing *standings, int nstandings, bool *is_busy);
static const ZkReply *join(Standing *standing);
static void send_create(Standing *standing);
static void send_aliases(Standing *standing, const char *guid);
static const ZkReply *create_reply(const Standing *standing);
static void note_numbers(Standing *standing);
static ZkContendEnd join_anew(Standing *standing);
static bool take_node(Standing *standing);
static bool find_lost_node(Standing *standing);
static void make_parents(Standing *standing);
static void make_parent_carefully(Standing *standing, const char *path,
								  ZkNodeKind kind);
static RecipeVerdict judge(const Standing *standing, const ZkReply *list,
						   const char *mine, int *ahead);
static bool is_anybody_behind(const Standing *standing, const ZkReply *list);
static void note_ahead(Standing *standing, const ZkReply *list,
					   const char *mine);
static void announce(const Standing *standing);
static ZkWaitEnd watch(Standing *standing, const char *ahead);
static bool can_be_handed_over(const ZkContender *contender, const char *ahead);
static bool is_word_good(const Standing *standing);
static int64 look_again_at(const Standing *standing, int timeouts);
static ZkWaitEnd end_of_look(const Standing *standing, ZkWaitEnd end,
							 int64 until);
static bool note_version(Standing *standing, const char *ahead,
						 const ZkReply *reply);
static ZkWaitEnd watch_twin(Standing *standing, const char *twin);
static const char *child_path(const Standing *standing, const char *child,
							  char path[RECIPE_PATH_SIZE]);
static ZkWaitEnd watch_queue(Standing *standing);
static ZkWaitEnd await_watch(Standing *standing, int64 deadline);
static const ZkReply *set_watch(Standing *standing, const char *child,
								ZkWaitEnd *end);
static bool should_drain(const Standing *standing, const ZkReply *list,
						 RecipeVerdict verdict);
static ZkContendEnd drain(Standing *standing);
static DrainStep look_at_drain(Standing *standing,
							   char last[RECIPE_PATH_SIZE], bool *is_ahead);
static DrainStep prune(Standing *standing);
static DrainStep drain_step(const Standing *standing, const ZkReply *reply);
static HoldState look_at_holds(Standing *standing, const ZkReply *list,
							   const char *mine, char twin[RECIPE_PATH_SIZE]);
static HoldState look_at_hold(Standing *standing, const char *hold,
							  char twin[RECIPE_PATH_SIZE]);
static bool is_known_to_stand(const Standing *standing, const char *hold);
static bool clear_void_hold(Standing *standing, const char *path);
static bool is_left_over(const Standing *standing, const char *child,
						 const ZkReply *reply);
static bool remove_node(Standing *standing, const char *path, int version);
static bool is_still_queued(Standing *standing);
static const ZkReply *ask(Standing *standing, ZkRequest *request);
static void leave(Standing *standing);
static void forget_closed(Standing *standing);
static void withdraw(Standing *standing);
static void free_creates(Standing *standing);
pg_noreturn static void raise_evicted(const Standing *standing);
pg_noreturn static void raise_exhausted(const Standing *standing);
pg_noreturn static void raise_mismatch(const Standing *standing,
						   const char *child);
static void log_wait(Standing *standing);
static void log_failure(Standing *standing);
static char *describe_ahead(Standing *standing);
static void log_grant(const Standing *standing);

ZkContendEnd
zklock_contend(ZkContender *contender)
{
	Standing	standing = {.contender = contender};
	volatile ZkContendEnd end = ZK_CONTEND_BUSY;

	standing.started_at = zklock_client_now();
	standing.log_at = log_lock_waits ?
		standing.started_at + DeadlockTimeout : ZK_NO_DEADLINE;
	PG_TRY();
	{
		/*
		 * A create of ours that was cancelled may still be in the queue,
		 * ahead of us.
		 */
		end = zklock_session_await_undone(contender->deadline) ?
			ZK_CONTEND_GRANTED : ZK_CONTEND_BUSY;
		if (end == ZK_CONTEND_GRANTED && contender->patience == ZK_TRY_ONCE)
			end = look(&standing);
		if (end == ZK_CONTEND_GRANTED)
			end = stand_in_queue(&standing);
		if (end == ZK_CONTEND_GRANTED && standing.is_wait_logged)
			log_grant(&standing);
		if (end == ZK_CONTEND_BUSY && !is_known_busy(&standing))
			end = ZK_CONTEND_UNANSWERED;
		if (end == ZK_CONTEND_BUSY && log_lock_failures)
			log_failure(&standing);
	}
	PG_CATCH();
	{
		leave(&standing);
		PG_RE_THROW();
	}
	PG_END_TRY();

	if (end != ZK_CONTEND_GRANTED)
	{
		leave(&standing);
		return end;
	}
	free_creates(&standing);
	forget_closed(&standing);
	zklock_client_free(standing.request);

	/* who handed it over deletes the node that we watch */
	if (!standing.is_handed_over)
		zklock_client_unwatch(zklock_session_client());
	return end;
}

int
zklock_contend_at_once(ZkContender *contenders, int ncontenders,
					   bool *is_busy)
{
	Standing   *standings = palloc0(ncontenders * sizeof(*standings));
	volatile int ngranted = 0;

	for (int i = 0; i < ncontenders; i++)
		standings[i].contender = &contenders[i];
	*is_busy = false;
	PG_TRY();
	{
		if (zklock_session_await_undone(contenders[0].deadline) &&
			look_at_all(standings, ncontenders, is_busy) &&
			contenders[0].patience != ZK_TRY_ONCE)
			ngranted = join_all(standings, ncontenders, is_busy);
	}
	PG_CATCH();
	{
		for (int i = 0; i < ncontenders; i++)
			leave(&standings[i]);
		PG_RE_THROW();
	}
	PG_END_TRY();

	for (int i = 0; i < ncontenders; i++)
	{
		if (i >= ngranted)
			leave(&standings[i]);
		free_creates(&standings[i]);
		zklock_client_free(standings[i].request);
	}
	pfree(standings);
	return ngranted;
}

bool
zklock_contend_confirm(ZkContender *contender)
{
	Standing	standing = {
		.contender = contender,
		.is_node_known = true,
		.log_at = ZK_NO_DEADLINE
	};
	volatile bool is_first = false;

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

/*
 * Has the ensemble said that others are ahead?  If the wait ended at its deadline
 * without a connection that may be long ago: the lock may be free by now.
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

/* Join the queue and go through it. */
static ZkContendEnd
stand_in_queue(Standing *standing)
{
	ZkContender *contender = standing->contender;

	for (;;)
	{
		const ZkReply *list = join(standing);
		RecipeVerdict verdict;
		ZkContendEnd end;
		int			ahead;
		char	   *next;
		HoldState	hold = HOLD_STANDS;
		char		twin[RECIPE_PATH_SIZE];

		CHECK_FOR_INTERRUPTS();
		if (list == NULL)
			return ZK_CONTEND_BUSY;
		if (list->result == ZK_SESSION_LOST)
			return ZK_CONTEND_SESSION_LOST;
		if (!standing->is_node_known && !take_node(standing))
			continue;
		if (list->result == ZK_UNKNOWN_OUTCOME)
			continue;			/* the connection was lost: look again */
		if (list->result == ZK_NO_NODE)
			raise_evicted(standing);
		if (list->result != ZK_OK)
			zklock_session_raise(list, "read a lock's queue",
								 contender->lock_path);

		verdict = judge(standing, list, strrchr(contender->node, '/') + 1,
						&ahead);
		standing->is_told_busy = verdict == RECIPE_WAIT ||
			verdict == RECIPE_INTERPOSED;
		note_ahead(standing, list, strrchr(contender->node, '/') + 1);
		if (should_drain(standing, list, verdict))
		{
			end = drain(standing);
			if (end != ZK_CONTEND_GRANTED)
				return end;
			continue;
		}

		/* the list goes with the next question */
		next = ahead >= 0 ? pstrdup(list->children[ahead]) : NULL;
		standing->is_next_first = next != NULL &&
			recipe_is_first(list->children, list->nchildren, next);
		if (verdict == RECIPE_WAIT || verdict == RECIPE_MISMATCH)
			hold = look_at_holds(standing, list,
								 strrchr(contender->node, '/') + 1, twin);
		if (hold == HOLD_GONE)
			continue;
		switch (verdict)
		{
			case RECIPE_HELD:
				if (contender->permits > 1 && is_anybody_behind(standing, list))
					announce(standing);
				return ZK_CONTEND_GRANTED;
			case RECIPE_MISMATCH:
				raise_mismatch(standing, next);
			case RECIPE_GONE:
				raise_evicted(standing);
			case RECIPE_EXHAUSTED:
				raise_exhausted(standing);
			case RECIPE_INTERPOSED:
				end = join_anew(standing);
				if (end != ZK_CONTEND_GRANTED)
					return end;
				continue;
			case RECIPE_WAIT:
				contender->can_hand_over =
					recipe_can_hand_over(strrchr(contender->node, '/') + 1);
				break;
		}
		if (contender->patience == ZK_TRY_ONCE)
			return ZK_CONTEND_BUSY;
		switch (hold == HOLD_PENDING ? watch_twin(standing, twin) :
				next == NULL ? watch_queue(standing) : watch(standing, next))
		{
			case ZK_WAIT_OVER:
				if (!standing->is_handed_over || !is_still_queued(standing))
					break;
				contender->is_on_word = !standing->is_next_first &&
					!zklock_session_has_credentials();
				return ZK_CONTEND_GRANTED;
			case ZK_WAIT_TIMEOUT:
				return ZK_CONTEND_BUSY;
			case ZK_WAIT_LOST:
				return ZK_CONTEND_SESSION_LOST;
		}
	}
}

/*
 * Wait until our node is the first, by lists alone.  A list may be old, but who is
 * not in it any more has gone for good.
 */
static bool
await_first_place(Standing *standing)
{
	ZkContender *contender = standing->contender;

	for (;;)
	{
		ZkWaitEnd	end = ZK_WAIT_OVER;
		int			ahead;
		RecipeVerdict verdict;
		const ZkReply *list;

		list = ask(standing, zklock_client_list(zklock_session_client(),
												contender->lock_path));
		if (list == NULL || list->result == ZK_NO_NODE)
			return false;
		if (list->result == ZK_SESSION_LOST)
			return true;
		if (list->result == ZK_UNKNOWN_OUTCOME)
			continue;
		if (list->result != ZK_OK)
			zklock_session_raise(list, "read a lock's queue",
								 contender->lock_path);
		verdict = judge(standing, list, strrchr(contender->node, '/') + 1,
						&ahead);
		if (verdict != RECIPE_WAIT || ahead < 0)
			return verdict == RECIPE_HELD;
		if (set_watch(standing, pstrdup(list->children[ahead]), &end) != NULL)
			end = await_watch(standing, contender->deadline);
		if (end != ZK_WAIT_OVER)
			return end == ZK_WAIT_LOST;
	}
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

	if (contender->permits > 1)
		return recipe_permit_verdict(list->children, list->nchildren, mine,
									 contender->permits, ahead);
	if (mine == NULL)
		return recipe_verdict_newcomer(list->children, list->nchildren,
									   contender->mode, ahead);
	if (contender->style == RECIPE_STYLE_ALL)
		return alias_verdict(list->children, list->nchildren, mine,
							 contender->numbers, contender->mode, ahead);
	return recipe_verdict(list->children, list->nchildren, mine,
						  contender->mode, &own, ahead);
}

/*
 * Does anybody stand behind us in the list that grants us a permit?  They may
 * take us for one who waits, by a list from before, and watch us for that; also
 * if this is our first list, for its reply may have taken long.  Whoever is not
 * in it came later, and its own list shows that we are granted.
 */
static bool
is_anybody_behind(const Standing *standing, const ZkReply *list)
{
	const char *mine = strrchr(standing->contender->node, '/') + 1;

	for (int i = 0; i < list->nchildren; i++)
		if (recipe_parse_node(list->children[i]).style != RECIPE_STYLE_NONE &&
			recipe_compare_nodes(list->children[i], mine) > 0)
			return true;
	return false;
}

/*
 * Keep of a list what the log may want to know of those who are ahead of `mine`,
 * or with NULL of all that are in it.  They can only become fewer.
 */
static void
note_ahead(Standing *standing, const ZkReply *list, const char *mine)
{
	const char *first = NULL;

	if (standing->log_at == ZK_NO_DEADLINE && !log_lock_failures)
		return;
	standing->nahead = 0;
	for (int i = 0; i < list->nchildren; i++)
	{
		const char *child = list->children[i];

		if (recipe_parse_node(child).style == RECIPE_STYLE_NONE ||
			alias_rank(child) > 0 ||
			(mine != NULL && recipe_compare_nodes(child, mine) >= 0))
			continue;
		standing->nahead++;
		if (first == NULL || recipe_compare_nodes(child, first) < 0)
			first = child;
	}
	if (standing->first != NULL)
		pfree(standing->first);
	standing->first = first == NULL ? NULL :
		psprintf("%s/%s", standing->contender->lock_path, first);
}

/*
 * Tell who is behind us that we wait no more.  A permit that cannot be
 * announced is not taken: whoever watches us would wait for as long as we hold
 * it, be there ever so many free ones; our node's deletion wakes it.
 */
static void
announce(const Standing *standing)
{
	if (!zklock_client_announce(zklock_session_client(),
								standing->contender->node, standing->data,
								strlen(standing->data)))
		zklock_session_raise_memory();
}

/*
 * A try looks before it writes: a lock that is not free costs one read, and
 * not a transaction of the ensemble.  GRANTED means that it would be, now.
 */
static ZkContendEnd
look(Standing *standing)
{
	ZkContender *contender = standing->contender;
	const ZkReply *list;
	RecipeVerdict verdict;
	int			ahead;
	char	   *next;
	int			nlooks = 0;
	char		twin[RECIPE_PATH_SIZE];

	do
	{
		do
		{
			list = ask(standing,
					   zklock_client_list(zklock_session_client(),
										  contender->lock_path));
			if (list == NULL)
				return ZK_CONTEND_BUSY;
		} while (list->result == ZK_UNKNOWN_OUTCOME);

		if (list->result == ZK_NO_NODE)
			return ZK_CONTEND_GRANTED;
		if (list->result == ZK_SESSION_LOST)
			return ZK_CONTEND_SESSION_LOST;
		if (list->result != ZK_OK)
			zklock_session_raise(list, "read a lock's queue",
								 contender->lock_path);
		verdict = judge(standing, list, NULL, &ahead);
		standing->is_told_busy = verdict == RECIPE_WAIT;
		note_ahead(standing, list, NULL);
		next = ahead >= 0 ? pstrdup(list->children[ahead]) : NULL;
	} while ((verdict == RECIPE_WAIT || verdict == RECIPE_MISMATCH) &&
			 look_at_holds(standing, list, NULL, twin) == HOLD_GONE &&
			 ++nlooks < LOOKS_OF_A_TRY);
	switch (verdict)
	{
		case RECIPE_HELD:
			return ZK_CONTEND_GRANTED;
		case RECIPE_MISMATCH:
			raise_mismatch(standing, next);
		case RECIPE_EXHAUSTED:
			raise_exhausted(standing);
		case RECIPE_WAIT:
		case RECIPE_GONE:
		case RECIPE_INTERPOSED:
			break;
	}
	return ZK_CONTEND_BUSY;
}

/*
 * Look at all queues in one flush: would each lock be granted now?  This keeps
 * contenders out of queues that they would only have to leave again, where
 * others would find them and take the lock for busy.
 */
static bool
look_at_all(Standing *standings, int nstandings, bool *is_busy)
{
	ZkClient   *client = zklock_session_client();
	bool		all_free = true;

	for (int i = 0; i < nstandings; i++)
		standings[i].request =
			zklock_client_list(client, standings[i].contender->lock_path);
	for (int i = 0; i < nstandings && all_free; i++)
	{
		ZkContender *contender = standings[i].contender;
		const ZkReply *list = zklock_session_await(standings[i].request,
												   contender->deadline,
												   ZK_WAITING_FOR_REPLY);
		int			ahead;
		char		twin[RECIPE_PATH_SIZE];

		if (list == NULL)
			return false;
		if (list->result == ZK_OK &&
			judge(&standings[i], list, NULL, &ahead) == RECIPE_WAIT)
		{
			/* without a void hold it may be free: zklock_contend() looks again */
			note_ahead(&standings[i], list, NULL);
			*is_busy = look_at_holds(&standings[i], list, NULL, twin) != HOLD_GONE;
			if (*is_busy && contender->patience == ZK_TRY_ONCE &&
				log_lock_failures)
				log_failure(&standings[i]);
			return false;
		}
		all_free = list->result == ZK_OK || list->result == ZK_NO_NODE;
	}
	return all_free;
}

/*
 * Join all queues in one flush.  Only those up to the first that is not granted
 * count.  Nobody may stay in a later queue while he waits for an earlier one: a
 * contender who was first in the later one and came second in the earlier one
 * would wait for somebody who waits for him.
 */
static int
join_all(Standing *standings, int nstandings, bool *is_busy)
{
	ZkClient   *client = zklock_session_client();

	for (int i = 0; i < nstandings; i++)
	{
		Standing   *standing = &standings[i];

		if (zklock_client_reply(standing->request)->result == ZK_NO_NODE)
			make_parents(standing);
		send_create(standing);
		zklock_client_free(standing->request);
		standing->request =
			zklock_client_list(client, standing->contender->lock_path);
	}
	for (int i = 0; i < nstandings; i++)
	{
		Standing   *standing = &standings[i];
		ZkContender *contender = standing->contender;
		const ZkReply *list = zklock_session_await(standing->request,
												   contender->deadline,
												   ZK_WAITING_FOR_REPLY);
		const ZkReply *created = zklock_client_reply(standing->create);
		RecipeVerdict verdict;
		int			ahead;

		if (list == NULL || list->result != ZK_OK ||
			created == NULL || created->result != ZK_OK ||
			!take_node(standing))
			return i;
		verdict = judge(standing, list, strrchr(contender->node, '/') + 1,
						&ahead);
		*is_busy = verdict == RECIPE_WAIT;
		if (verdict != RECIPE_HELD)
			return i;
	}
	return nstandings;
}

/*
 * Have a node in the queue and a list of the queue that is not older: the
 * first time both requests go out back to back, and the server answers them
 * in that order.  NULL if the deadline comes first.
 */
static const ZkReply *
join(Standing *standing)
{
	ZkClient   *client = zklock_session_client();
	const char *lock_path = standing->contender->lock_path;

	if (standing->create == NULL)
		send_create(standing);
	return ask(standing, standing->watches_queue ?
			   zklock_client_list_and_watch(client, lock_path) :
			   zklock_client_list(client, lock_path));
}

/* Send the create of our node. */
static void
send_create(Standing *standing)
{
	ZkContender *contender = standing->contender;
	char		guid[RECIPE_GUID_LEN + 1];

	if (standing->data == NULL)
		standing->data = zklock_identity_build(0);
	zklock_identity_make_guid(guid);
	if (contender->style == RECIPE_STYLE_ALL)
		alias_mark(guid);
	else if (contender->style == RECIPE_STYLE_CURATOR &&
		contender->mode == RECIPE_EXCLUSIVE && contender->permits == 1 &&
		zklock_session_can_hand_over())
		recipe_mark_hand_over(guid);
	recipe_node_prefix(standing->prefix, contender->style,
					   contender->mode, contender->permits, guid);
	snprintf(contender->node, RECIPE_PATH_SIZE, "%s/%s",
			 contender->lock_path, standing->prefix);
	standing->is_node_known = false;
	forget_closed(standing);
	standing->create = zklock_client_create(zklock_session_client(),
											contender->node,
											ZK_EPHEMERAL_SEQUENTIAL,
											standing->data,
											strlen(standing->data));
	if (standing->create == NULL)
		zklock_session_raise_memory();
	if (contender->style == RECIPE_STYLE_ALL)
		send_aliases(standing, guid);
}

/* Send the creates of our further nodes behind that of the first. */
static void
send_aliases(Standing *standing, const char *guid)
{
	ZkContender *contender = standing->contender;

	for (int rank = 1; rank < ALIAS_COUNT; rank++)
	{
		char		prefix[RECIPE_NODE_SIZE];
		char		path[RECIPE_PATH_SIZE];

		alias_prefix(prefix, rank, contender->mode, guid);
		snprintf(path, sizeof(path), "%s/%s", contender->lock_path, prefix);
		standing->aliases[rank - 1] =
			zklock_client_create(zklock_session_client(), path,
								 ZK_EPHEMERAL_SEQUENTIAL, standing->data,
								 strlen(standing->data));
		if (standing->aliases[rank - 1] == NULL)
			zklock_session_raise_memory();
	}
}

/*
 * The reply to our creates: NULL unless all are there, the first that says
 * anything else than OK, or that for the first node.
 */
static const ZkReply *
create_reply(const Standing *standing)
{
	const ZkReply *reply = zklock_client_reply(standing->create);

	if (standing->contender->style != RECIPE_STYLE_ALL)
		return reply;
	for (int i = 0; i < ALIAS_COUNT - 1; i++)
	{
		const ZkReply *other = zklock_client_reply(standing->aliases[i]);

		if (reply == NULL || other == NULL)
			return NULL;
		if (reply->result == ZK_OK && other->result != ZK_OK)
			reply = other;
	}
	return reply;
}

/*
 * Somebody came in between our nodes: withdraw them.  GRANTED means: join
 * again.  The deletes are ahead of whatever this session asks next.
 */
static ZkContendEnd
join_anew(Standing *standing)
{
	ZkContender *contender = standing->contender;
	uint8		random = 0;
	int64		pause;

	standing->ninterposed++;
	ereport(DEBUG1,
			(errmsg_internal("queue nodes for lock \"%s\" are interleaved with others', attempt %d",
							 contender->name, standing->ninterposed)));
	withdraw(standing);
	if (contender->patience == ZK_TRY_ONCE)
		return standing->ninterposed < PROMPT_ATTEMPTS ?
			look(standing) : ZK_CONTEND_BUSY;
	if (standing->ninterposed < PROMPT_ATTEMPTS)
		return ZK_CONTEND_GRANTED;
	pause = 1 << Min(standing->ninterposed, LONGEST_PAUSE_BITS);
	if (pg_strong_random(&random, sizeof(random)))
		pause = random % pause;
	if (zklock_session_pause(Min(contender->deadline,
								 zklock_client_now() + pause)) == ZK_WAIT_LOST)
		return ZK_CONTEND_SESSION_LOST;
	return zklock_client_now() < contender->deadline ?
		ZK_CONTEND_GRANTED : ZK_CONTEND_BUSY;
}

/*
 * Read the reply to our create, which is there when the list's is.  false if
 * there is no node yet: then join() is to be called again.
 */
static bool
take_node(Standing *standing)
{
	ZkContender *contender = standing->contender;
	const ZkReply *reply = create_reply(standing);
	ZkClientStatus status;

	if (reply == NULL)
		return false;			/* the list failed ahead of it: wait for both */
	switch (reply->result)
	{
		case ZK_OK:
			break;
		case ZK_NO_NODE:
			withdraw(standing); /* the parent may be there by the next alias */
			make_parents(standing);
			return false;
		case ZK_UNKNOWN_OUTCOME:
			if (contender->style != RECIPE_STYLE_ALL)
				return find_lost_node(standing);
			withdraw(standing);
			return false;
		default:
			zklock_session_raise(reply, "join a lock's queue",
								 contender->lock_path);
	}

	/*
	 * The node must be of this session; it always is, unless the server mixes
	 * sessions up, and then nothing that follows is worth anything.
	 */
	if (!zklock_session_status(&status) ||
		reply->ephemeral_owner != status.session_id)
		raise_evicted(standing);
	strlcpy(contender->node, reply->path, RECIPE_PATH_SIZE);
	contender->token = contender->czxids[0] = reply->czxid;
	contender->proof = reply->proof;
	standing->is_node_known = true;
	if (contender->style == RECIPE_STYLE_ALL)
		note_numbers(standing);
	return true;
}

/* All nodes are there: what tells them from others? */
static void
note_numbers(Standing *standing)
{
	for (int rank = 0; rank < ALIAS_COUNT; rank++)
	{
		const ZkReply *reply =
			zklock_client_reply(rank == 0 ? standing->create :
								standing->aliases[rank - 1]);
		RecipeNode	node = recipe_parse_node(strrchr(reply->path, '/') + 1);

		standing->contender->numbers[rank] = node.sequence;
		standing->contender->czxids[rank] = reply->czxid;
	}
}

/*
 * The reply to our create was lost.  If the node is there it is found by its
 * GUID and keeps its place in the queue.  Otherwise the request is withdrawn
 * (the server may execute it yet) and join() starts again.  So it is where nothing
 * may depend on strangers: the GUID can be read by now, and who goes on with our
 * session can make nodes in its name.  Always false: the list at hand is older than
 * what is found here.
 */
static bool
find_lost_node(Standing *standing)
{
	ZkContender *contender = standing->contender;
	ZkClient   *client = zklock_session_client();
	ZkClientStatus status;
	const ZkReply *reply;
	const char *child = NULL;

	if (contender->wants_list && !zklock_session_has_credentials())
	{
		zklock_client_withdraw(standing->create);
		standing->create = NULL;
		return false;
	}

	/*
	 * Our server may lag behind the one that made the node: ahead of the list
	 * goes a write, whatever comes of it; see send_erase() of the program.
	 */
	reply = ask(standing, zklock_client_check(client, contender->lock_path, 0));
	if (reply == NULL || reply->result == ZK_UNKNOWN_OUTCOME)
		return false;
	reply = ask(standing, zklock_client_list(client, contender->lock_path));
	if (reply == NULL || reply->result == ZK_UNKNOWN_OUTCOME ||
		reply->result == ZK_SESSION_LOST)
		return false;
	if (reply->result != ZK_OK && reply->result != ZK_NO_NODE)
		zklock_session_raise(reply, "read a lock's queue",
							 contender->lock_path);
	for (int i = 0; reply->result == ZK_OK && i < reply->nchildren; i++)
		if (strncmp(reply->children[i], standing->prefix,
					strlen(standing->prefix)) == 0)
			child = reply->children[i];
	if (child == NULL)
	{
		zklock_client_withdraw(standing->create);
		standing->create = NULL;
		return false;
	}
	snprintf(contender->node, RECIPE_PATH_SIZE, "%s/%s",
			 contender->lock_path, child);
	reply = ask(standing, zklock_client_get(client, contender->node));
	if (reply == NULL || reply->result == ZK_UNKNOWN_OUTCOME ||
		reply->result == ZK_NO_NODE || reply->result == ZK_SESSION_LOST)
		return false;
	if (reply->result != ZK_OK)
		zklock_session_raise(reply, "read a lock's queue", contender->node);
	if (!zklock_session_status(&status) ||
		reply->ephemeral_owner != status.session_id)
		raise_evicted(standing);
	contender->token = contender->czxids[0] = reply->czxid;
	contender->proof = (Moment) {0};	/* a read is none */
	standing->is_node_known = true;
	return false;
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
	ZkClient   *client = zklock_session_client();
	char	   *path = pstrdup(contender->lock_path);
	int			length = strlen(path);

	if (++standing->attempts > PARENT_ATTEMPTS)
		ereport(ERROR,
				(errcode(ERRCODE_SYSTEM_ERROR),
				 errmsg("could not create znode \"%s\"", contender->lock_path),
				 errdetail("It vanished %d times before the lock's queue node was in it.",
						   PARENT_ATTEMPTS)));
	for (int i = 1; i <= length; i++)
	{
		ZkNodeKind	kind = i <= contender->root_length ?
			ZK_PERSISTENT : ZK_CONTAINER;

		if (contender->lock_path[i] != '/' && contender->lock_path[i] != '\0')
			continue;
		path[i] = '\0';
		if (standing->attempts < CAREFUL_ATTEMPT)
			zklock_client_free(zklock_client_create(client, path, kind,
													NULL, 0));
		else
			make_parent_carefully(standing, path, kind);
		path[i] = '/';
	}
	pfree(path);
}

/* Create one parent and raise what ZooKeeper has against it. */
static void
make_parent_carefully(Standing *standing, const char *path, ZkNodeKind kind)
{
	const ZkReply *reply;

	reply = ask(standing, zklock_client_create(zklock_session_client(), path,
											   kind, NULL, 0));
	if (reply != NULL && reply->result == ZK_UNIMPLEMENTED &&
		kind == ZK_CONTAINER)
		make_parent_carefully(standing, path, ZK_PERSISTENT);
	else if (reply != NULL && reply->result != ZK_OK &&
			 reply->result != ZK_NODE_EXISTS &&
			 reply->result != ZK_UNKNOWN_OUTCOME &&
			 reply->result != ZK_SESSION_LOST)
		zklock_session_raise(reply, "create a lock's znode", path);
}

/*
 * Watch the contender ahead until the queue has moved, the deadline or the
 * loss of the session; notes whether the lock was handed over to us.
 */
static ZkWaitEnd
watch(Standing *standing, const char *ahead)
{
	ZkContender *contender = standing->contender;
	bool		is_set_news = can_be_handed_over(contender, ahead);
	bool		is_grant_news = contender->permits > 1 &&
		recipe_parse_node(ahead).permits == contender->permits;
	int64		until = look_again_at(standing,
									  recipe_can_hand_over(ahead) ? OWN_LOOKS : 1);
	char		path[RECIPE_PATH_SIZE];
	const ZkReply *reply;
	ZkWaitEnd	end;

	standing->is_handed_over = false;
	standing->watches_queue = false;
	if (is_set_news && standing->closed == NULL &&
		zklock_session_has_credentials())
		standing->closed = zklock_client_ask_closed(zklock_session_client(),
													contender->lock_path);
	reply = set_watch(standing, ahead, &end);
	is_set_news &= is_word_good(standing);
	if (reply != NULL && is_set_news)
		zklock_neighbor_await(child_path(standing, ahead, path), reply->czxid);
	if (reply != NULL && reply->version > 0 &&
		(is_set_news ||
		 (is_grant_news && note_version(standing, ahead, reply))))
	{
		/* it let go, or was granted a permit, before we watched it */
		standing->is_handed_over = is_set_news;
		end = ZK_WAIT_OVER;
	}
	else if (reply != NULL)
	{
		end = await_watch(standing, until);
		standing->is_handed_over = is_set_news && end == ZK_WAIT_OVER &&
			zklock_client_watch_news(zklock_session_client()) == ZK_WATCH_SET;
		end = end_of_look(standing, end, until);
	}
	if (is_set_news && end != ZK_WAIT_LOST && zklock_neighbor_has_told())
	{
		standing->is_handed_over = true;
		end = ZK_WAIT_OVER;
	}
	zklock_neighbor_forget();
	return end;
}

/* Can the one ahead hand the lock over, and we take it so? */
static bool
can_be_handed_over(const ZkContender *contender, const char *ahead)
{
	return contender->mode == RECIPE_EXCLUSIVE && contender->permits == 1 &&
		contender->style != RECIPE_STYLE_ALL && recipe_can_hand_over(ahead);
}

/*
 * Will the word of the one ahead do, that it lets go of the lock?  Whoever may
 * create a node here may have made one that says so and never held the lock.  That
 * harms nobody if that node was the first of our list: then the lock was its,
 * whoever made it.  With credentials it is those without that must not have made
 * it; the answer to that was ahead of what the node was.
 */
static bool
is_word_good(const Standing *standing)
{
	const ZkReply *reply;

	if (!zklock_session_has_credentials())
		return standing->is_next_first || !standing->contender->wants_list;
	reply = standing->closed != NULL ?
		zklock_client_reply(standing->closed) : NULL;
	return reply != NULL && reply->result == ZK_OK && reply->is_closed;
}

/*
 * Until when to wait for news before the queue is read again, in session timeouts.
 * A client of another make does not clear away a hold that somebody ahead of it has
 * begun, after our list, and not finished: it waits for it, and we would wait for
 * both.  And servers tell what becomes of a node only to those who may read it then
 * (NIOServerCnxn.process, 3.8.4 and 3.9.2 on): whoever owns the one ahead can hide
 * it from us, and our mark is in a name that anybody can forge.
 */
static int64
look_again_at(const Standing *standing, int timeouts)
{
	ZkClientStatus status;

	if (!zklock_session_status(&status))
		return standing->contender->deadline;
	return Min(standing->contender->deadline,
			   zklock_client_now() + timeouts * (int64) status.session_timeout_ms);
}

/* How a wait has ended that was to go on until then: with time to look again? */
static ZkWaitEnd
end_of_look(const Standing *standing, ZkWaitEnd end, int64 until)
{
	return end == ZK_WAIT_TIMEOUT && until < standing->contender->deadline ?
		ZK_WAIT_OVER : end;
}

/*
 * Has the data of the one ahead been set since we last looked at it?  Anybody
 * may do so who may write to it: the list tells whether it was granted a
 * permit, once for each time.
 */
static bool
note_version(Standing *standing, const char *ahead, const ZkReply *reply)
{
	if (standing->seen != NULL && strcmp(standing->seen, ahead) == 0 &&
		standing->seen_version == reply->version)
		return false;
	if (standing->seen != NULL)
		pfree(standing->seen);
	standing->seen = pstrdup(ahead);
	standing->seen_version = reply->version;
	return true;
}

/*
 * Watch the node that a pending hold is to stand in for.  Its end is the news:
 * then the hold is finished, or void.  Until then it does not matter who else
 * ahead of us goes.
 */
static ZkWaitEnd
watch_twin(Standing *standing, const char *twin)
{
	ZkWaitEnd	end;

	standing->is_handed_over = false;
	standing->watches_queue = false;
	return set_watch(standing, twin, &end) == NULL ? end :
		await_watch(standing, standing->contender->deadline);
}

/*
 * Watch a child of the lock's znode by reading it, not by exists: that would
 * leave a watch for ever behind on a node that is gone already (CURATOR-107).
 * NULL if there is nothing to wait for, *end then says why.  We would wait for
 * ever behind a node of our own: that goes.
 */
static const ZkReply *
set_watch(Standing *standing, const char *child, ZkWaitEnd *end)
{
	char		path[RECIPE_PATH_SIZE];
	const ZkReply *reply;

	reply = ask(standing,
				zklock_client_get_and_watch(zklock_session_client(),
											child_path(standing, child, path)));
	if (reply == NULL)
		*end = ZK_WAIT_TIMEOUT;
	else if (reply->result == ZK_SESSION_LOST)
		*end = ZK_WAIT_LOST;
	else if (reply->result == ZK_NO_NODE ||
			 reply->result == ZK_UNKNOWN_OUTCOME)
		*end = ZK_WAIT_OVER;
	else if (reply->result != ZK_OK)
		zklock_session_raise(reply, "watch a lock's queue", path);
	else if (is_left_over(standing, child, reply))
	{
		ereport(DEBUG1,
				(errmsg_internal("queue node \"%s\" of this session is left over",
								 path)));
		if (remove_node(standing, path, ZK_ANY_VERSION))
			*end = ZK_WAIT_OVER;
		else
			zklock_session_raise(zklock_client_reply(standing->request),
								 "leave a lock's queue", path);
	}
	else
	{
		standing->is_ahead_read = true;
		return reply;
	}
	return NULL;
}

/* Write the path of a child of the lock's znode; raises if it is too long. */
static const char *
child_path(const Standing *standing, const char *child,
		   char path[RECIPE_PATH_SIZE])
{
	if (snprintf(path, RECIPE_PATH_SIZE, "%s/%s",
				 standing->contender->lock_path, child) >= RECIPE_PATH_SIZE)
		ereport(ERROR,
				(errcode(ERRCODE_NAME_TOO_LONG),
				 errmsg("queue node \"%s\" has too long a name",
						zklock_identity_quotable(child))));
	return path;
}

/*
 * The first of those who wait for a permit: from now on its lists are watched.
 * If the one at hand was not, look at one that is before waiting.
 */
static ZkWaitEnd
watch_queue(Standing *standing)
{
	bool		is_watched = standing->watches_queue;
	int64		until = look_again_at(standing, OWN_LOOKS);

	standing->is_handed_over = false;
	standing->watches_queue = true;
	if (!is_watched)
		return ZK_WAIT_OVER;
	return end_of_look(standing, await_watch(standing, until), until);
}

/* Wait for news of what is watched, and write to the log when it takes long. */
static ZkWaitEnd
await_watch(Standing *standing, int64 deadline)
{
	for (;;)
	{
		int64		until = Min(deadline, standing->log_at);
		ZkWaitEnd	end = zklock_session_await_watch(until);

		if (end != ZK_WAIT_TIMEOUT || until == deadline)
			return end;
		standing->log_at = ZK_NO_DEADLINE;
		log_wait(standing);
	}
}

/*
 * Our number is near the end of the counter.  Errors come first, save for that
 * of a number beyond the end: that one can be helped.
 */
static bool
should_drain(const Standing *standing, const ZkReply *list,
			 RecipeVerdict verdict)
{
	return !standing->cannot_drain &&
		verdict != RECIPE_GONE && verdict != RECIPE_MISMATCH &&
		recipe_should_drain(list->children, list->nchildren,
							strrchr(standing->contender->node, '/') + 1);
}

/*
 * Leave the queue, wait until it is empty and delete the lock's znode, so that
 * whoever joins next starts its counter again.  GRANTED means: join again.  If
 * the znode stays for good, or others overtake us, we go on with whatever
 * number we get then.
 */
static ZkContendEnd
drain(Standing *standing)
{
	ZkContender *contender = standing->contender;
	int64		grace_until = ZK_NO_DEADLINE;
	int			attempts = 0;

	withdraw(standing);
	standing->watches_queue = false;
	while (attempts < DRAIN_ATTEMPTS && zklock_client_now() < grace_until)
	{
		char		last[RECIPE_PATH_SIZE];
		bool		is_ahead;
		DrainStep	step = look_at_drain(standing, last, &is_ahead);
		ZkWaitEnd	end;

		if (step == DRAIN_EMPTY)
		{
			attempts++;
			step = prune(standing);
		}
		switch (step)
		{
			case DRAIN_ANEW:
				standing->attempts = 0;
				return ZK_CONTEND_GRANTED;
			case DRAIN_NEVER:
				standing->cannot_drain = true;
				return ZK_CONTEND_GRANTED;
			case DRAIN_TIMEOUT:
				return ZK_CONTEND_BUSY;
			case DRAIN_LOST:
				return ZK_CONTEND_SESSION_LOST;
			case DRAIN_EMPTY:
			case DRAIN_LOOK_AGAIN:
				continue;
			case DRAIN_WAIT:
				standing->is_told_busy = true;
				break;
		}
		if (contender->patience == ZK_TRY_ONCE)
			return ZK_CONTEND_BUSY;
		if (!is_ahead && grace_until == ZK_NO_DEADLINE)
			grace_until = zklock_client_now() + DRAIN_GRACE_MS;
		if (set_watch(standing, last, &end) != NULL)
			end = await_watch(standing, Min(contender->deadline, grace_until));
		if (end == ZK_WAIT_LOST)
			return ZK_CONTEND_SESSION_LOST;
		if (end == ZK_WAIT_TIMEOUT &&
			zklock_client_now() >= contender->deadline)
			return ZK_CONTEND_BUSY;
	}
	standing->cannot_drain = true;
	return ZK_CONTEND_GRANTED;
}

/*
 * Who is still in the queue?  For DRAIN_WAIT, last is the contender to watch,
 * as recipe_drain_watch() has it: the last one ahead of the place that we had,
 * which in a queue goes last.
 *
 * A look reads the list, and then the znode: if that is younger than our node
 * was, somebody else was faster, and the queue is a new one.  The other way
 * round a new list could be taken for the old queue's, and we would wait for
 * those in it.
 */
static DrainStep
look_at_drain(Standing *standing, char last[RECIPE_PATH_SIZE], bool *is_ahead)
{
	ZkContender *contender = standing->contender;
	ZkClient   *client = zklock_session_client();
	const char *mine = strrchr(contender->node, '/') + 1;
	const ZkReply *reply;
	DrainStep	step;
	int			index;
	HoldState	hold;
	char		twin[RECIPE_PATH_SIZE];

	reply = ask(standing, zklock_client_list(client, contender->lock_path));
	step = drain_step(standing, reply);
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
	note_ahead(standing, reply, mine);
	hold = look_at_holds(standing, reply, NULL, twin);
	if (hold == HOLD_GONE)
		return DRAIN_LOOK_AGAIN;
	if (hold == HOLD_PENDING)
		strlcpy(last, twin, RECIPE_PATH_SIZE);

	reply = ask(standing, zklock_client_get(client, contender->lock_path));
	step = drain_step(standing, reply);
	if (step != DRAIN_EMPTY)
		return step;
	if (reply->czxid > contender->token)
		return DRAIN_ANEW;
	return index >= 0 ? DRAIN_WAIT : DRAIN_EMPTY;
}

/* Delete the lock's znode, which the server does only if it is empty. */
static DrainStep
prune(Standing *standing)
{
	const char *path = standing->contender->lock_path;
	const ZkReply *reply = ask(standing,
							   zklock_client_remove(zklock_session_client(),
													path, ZK_ANY_VERSION));

	if (reply != NULL && reply->result == ZK_OK)
		return DRAIN_ANEW;
	if (reply != NULL && reply->result == ZK_NO_AUTH)
		return DRAIN_NEVER;
	if (reply != NULL && reply->result == ZK_FAILED)
		return DRAIN_LOOK_AGAIN;	/* somebody came */
	return drain_step(standing, reply);
}

/* What the reply to any of these requests leads to; DRAIN_EMPTY if it is good. */
static DrainStep
drain_step(const Standing *standing, const ZkReply *reply)
{
	if (reply == NULL)
		return DRAIN_TIMEOUT;
	switch (reply->result)
	{
		case ZK_OK:
			return DRAIN_EMPTY;
		case ZK_NO_NODE:
			return DRAIN_ANEW;
		case ZK_UNKNOWN_OUTCOME:
			return DRAIN_LOOK_AGAIN;
		case ZK_SESSION_LOST:
			return DRAIN_LOST;
		default:
			zklock_session_raise(reply, "read a lock's queue",
								 standing->contender->lock_path);
	}
	return DRAIN_LOOK_AGAIN;
}

/*
 * What has become of the holds that stand ahead of `mine` in the list, or with
 * NULL anywhere in it?  Void ones are cleared away, and GONE is the answer if
 * there was one; otherwise PENDING if there was one.  The list is gone after that.
 */
static HoldState
look_at_holds(Standing *standing, const ZkReply *list, const char *mine,
			  char twin[RECIPE_PATH_SIZE])
{
	List	   *holds = NIL;
	ListCell   *cell;
	HoldState	state = HOLD_STANDS;

	for (int i = 0; i < list->nchildren &&
		 list_length(holds) < HOLDS_LOOKED_AT; i++)
	{
		const char *child = list->children[i];

		if (recipe_is_hold(child) && !is_known_to_stand(standing, child) &&
			(mine == NULL || recipe_compare_nodes(child, mine) < 0))
			holds = lappend(holds, pstrdup(child));
	}
	foreach(cell, holds)
	{
		HoldState	found = look_at_hold(standing, lfirst(cell), twin);

		if (found != HOLD_STANDS && state != HOLD_GONE)
			state = found;
	}
	list_free_deep(holds);
	return state;
}

/*
 * What has become of one hold?  PENDING: twin is set to the name of its maker's
 * node.
 */
static HoldState
look_at_hold(Standing *standing, const char *hold, char twin[RECIPE_PATH_SIZE])
{
	const char *lock_path = standing->contender->lock_path;
	char	   *path = psprintf("%s/%s", lock_path, hold);
	const ZkReply *reply;
	ZkIdentity	identity;

	reply = ask(standing, zklock_client_get(zklock_session_client(), path));
	if (reply == NULL || reply->result != ZK_OK)
		return reply != NULL && reply->result == ZK_NO_NODE ?
			HOLD_GONE : HOLD_STANDS;
	zklock_identity_parse(reply->data, reply->data_length, &identity);
	if (reply->version > 0 || identity.twin == NULL ||
		!recipe_is_twin(hold, identity.twin))
	{
		standing->holds = lappend(standing->holds, pstrdup(hold));
		return HOLD_STANDS;
	}
	strlcpy(twin, identity.twin, RECIPE_PATH_SIZE);
	reply = ask(standing, zklock_client_get(zklock_session_client(),
											psprintf("%s/%s", lock_path, twin)));
	if (reply == NULL || reply->result != ZK_NO_NODE)
		return HOLD_PENDING;
	return clear_void_hold(standing, path) ? HOLD_GONE : HOLD_STANDS;
}

static bool
is_known_to_stand(const Standing *standing, const char *hold)
{
	ListCell   *cell;

	foreach(cell, standing->holds)
		if (strcmp(lfirst(cell), hold) == 0)
			return true;
	return false;
}

/* One that was finished meanwhile stays.  false if it cannot be deleted. */
static bool
clear_void_hold(Standing *standing, const char *path)
{
	return remove_node(standing, path, 0);
}

/*
 * Is this a node of our own session, of which we know nothing?  We hold
 * nothing of this lock while we contend for it, so it is left over from an
 * attempt that was taken for undone, and nobody else will remove it.
 */
static bool
is_left_over(const Standing *standing, const char *child,
			 const ZkReply *reply)
{
	const char *mine = strrchr(standing->contender->node, '/') + 1;
	ZkClientStatus status;

	return !standing->contender->may_be_there &&
		reply->ephemeral_owner != 0 && zklock_session_status(&status) &&
		reply->ephemeral_owner == status.session_id &&
		strcmp(child, mine) != 0 && !alias_is_same(child, mine);
}

/*
 * Delete a node that stands ahead, of that version.  What became of it the next
 * look at the queue tells; false if the server refuses.
 */
static bool
remove_node(Standing *standing, const char *path, int version)
{
	const ZkReply *reply;

	reply = ask(standing,
				zklock_client_remove(zklock_session_client(), path, version));
	return reply == NULL ||
		(reply->result != ZK_FAILED && reply->result != ZK_NO_AUTH);
}

/*
 * The lock was handed over to us, if our node is there to have it.  A fresh
 * proof of that will do, as it does for a holder at its commit; the clock is
 * read after the news came, for we may have been stopped meanwhile.  Otherwise
 * the quorum is asked; our server may be behind what has become of our node, also
 * behind the news, if we have reconnected since.  false if only a list can tell.
 */
static bool
is_still_queued(Standing *standing)
{
	ZkContender *contender = standing->contender;
	ZkClientStatus status;
	const ZkReply *reply;

	zklock_session_look();
	if (!zklock_session_status(&status) || status.state == ZK_CLIENT_LOST)
		return false;
	if (contact_is_after(contender->proof, zklock_session_fresh_since()))
		return true;
	reply = ask(standing, zklock_client_check(zklock_session_client(),
											  contender->node,
											  contender->token));
	if (reply == NULL || reply->result == ZK_UNKNOWN_OUTCOME ||
		reply->result == ZK_SESSION_LOST)
		return false;
	if (reply->result == ZK_NO_NODE)
		raise_evicted(standing);
	if (reply->result != ZK_OK)
		zklock_session_raise(reply, "check a queue node", contender->node);
	contender->proof = reply->proof;
	return true;
}

/*
 * Wait for the reply to a read, which replaces the one before.  NULL at the
 * deadline.
 */
static const ZkReply *
ask(Standing *standing, ZkRequest *request)
{
	zklock_client_free(standing->request);
	standing->request = request;
	standing->is_ahead_read = false;
	return zklock_session_await(request, standing->contender->deadline,
								ZK_WAITING_FOR_REPLY);
}

/* Give up whatever is under way; our node goes, wherever it is. */
static void
leave(Standing *standing)
{
	zklock_neighbor_forget();
	zklock_client_free(standing->request);
	standing->request = NULL;
	forget_closed(standing);
	zklock_client_unwatch(zklock_session_client());
	withdraw(standing);
}

static void
forget_closed(Standing *standing)
{
	zklock_client_free(standing->closed);
	standing->closed = NULL;
}

/* Our nodes go, the first one first, and are not ours any more. */
static void
withdraw(Standing *standing)
{
	zklock_client_withdraw(standing->create);
	standing->create = NULL;
	for (int i = 0; i < ALIAS_COUNT - 1; i++)
	{
		zklock_client_withdraw(standing->aliases[i]);
		standing->aliases[i] = NULL;
	}
}

/* The nodes were granted the lock: they stay. */
static void
free_creates(Standing *standing)
{
	zklock_client_free(standing->create);
	for (int i = 0; i < ALIAS_COUNT - 1; i++)
		zklock_client_free(standing->aliases[i]);
}

static void
raise_evicted(const Standing *standing)
{
	ereport(ERROR,
			(errcode(ERRCODE_OPERATOR_INTERVENTION),
			 errmsg("queue entry for lock \"%s\" was removed",
					standing->contender->name),
			 errdetail("Another client of ZooKeeper deleted the znode below \"%s\".",
					   standing->contender->lock_path)));
}

static void
raise_exhausted(const Standing *standing)
{
	ereport(ERROR,
			(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
			 errmsg("sequence numbers of lock \"%s\" are used up",
					standing->contender->name),
			 errdetail("ZooKeeper counts the queue entries below \"%s\" with 31 bits and cannot order more of them, or somebody has made one with a number that another one has.",
					   standing->contender->lock_path),
			 errhint("Let all users of the lock finish and delete the znode with all that is in it; it is created again with a counter of zero.")));
}

static void
raise_mismatch(const Standing *standing, const char *child)
{
	RecipeNode	node = recipe_parse_node(child);

	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("number of permits differs from that of other users of lock \"%s\"",
					standing->contender->name),
			 errdetail("This call names %d, the first contender of the queue, of style \"%s\", has %d.",
					   standing->contender->permits,
					   recipe_style_name(node.style), node.permits),
			 errhint("All users of a lock must name the same number of permits. Readers and clients in other languages count as 1.")));
}

/* ---------------------------------------------------------------------
 * log_lock_waits and log_lock_failures, in the words of PostgreSQL's own messages
 * ---------------------------------------------------------------------
 */

static char *
milliseconds_waited(const Standing *standing)
{
	return psprintf(INT64_FORMAT " ms",
					zklock_client_now() - standing->started_at);
}

static const char *
lock_mode_name(const Standing *standing)
{
	return standing->contender->mode == RECIPE_SHARED ?
		"ShareLock" : "ExclusiveLock";
}

/* Say that we wait, and for whom. */
static void
log_wait(Standing *standing)
{
	char	   *ahead = describe_ahead(standing);

	if (ahead == NULL)
		return;
	standing->is_wait_logged = true;
	ereport(LOG,
			(errmsg("process %d still waiting for %s on ZooKeeper lock \"%s\" after %s",
					MyProcPid, lock_mode_name(standing),
					standing->contender->name, milliseconds_waited(standing)),
			 errdetail_log("%s", ahead)));
}

/* Say that patience is at its end, and who was in the way. */
static void
log_failure(Standing *standing)
{
	char	   *ahead = describe_ahead(standing);

	ereport(LOG,
			(errmsg("process %d could not obtain %s on ZooKeeper lock \"%s\"",
					MyProcPid, lock_mode_name(standing),
					standing->contender->name),
			 ahead != NULL ? errdetail_log("%s", ahead) : 0));
}

/*
 * Who is ahead, as far as it is known, palloc'ed; NULL if nobody was.  With
 * log_lock_waits, which is on by default from PostgreSQL 19 on, each long wait
 * comes here, so this reads no list, and mostly nothing: the one just ahead has
 * been read, and if it is the first, it holds the lock.  Otherwise the first of
 * the last list is read, which holds the lock if it is still there.
 */
static char *
describe_ahead(Standing *standing)
{
	const ZkReply *first = NULL;
	ZkIdentity	identity = {0};
	StringInfoData line;

	if (standing->first == NULL)
		return NULL;
	if (standing->is_ahead_read && standing->is_next_first)
		first = zklock_client_reply(standing->request);
	else if (zklock_client_now() < standing->contender->deadline)
		first = ask(standing, zklock_client_get(zklock_session_client(),
												standing->first));
	initStringInfo(&line);
	if (first != NULL && first->result == ZK_OK)
	{
		zklock_identity_parse(first->data, first->data_length, &identity);
		appendStringInfo(&line, "Held by %s. ",
						 zklock_identity_describe(&identity));
	}
	appendStringInfo(&line, standing->nahead == 1 ?
					 "%d contender is ahead." :
					 "Up to %d contenders are ahead.", standing->nahead);
	return line.data;
}

static void
log_grant(const Standing *standing)
{
	ereport(LOG,
			(errmsg("process %d acquired %s on ZooKeeper lock \"%s\" after %s",
					MyProcPid, lock_mode_name(standing),
					standing->contender->name,
					milliseconds_waited(standing))));
}
