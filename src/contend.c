/*-------------------------------------------------------------------------
 *
 * contend.c
 *	  One contender's way through the queue of one lock: join, look, watch the
 *	  one ahead, look again, until granted or out of patience.
 *
 * Requests are malloc'ed memory of client.c, which no memory context frees.
 * So zklock_contend() has the one PG_TRY: whatever raises in between, the
 * queue node is withdrawn, also if the reply to its create is still to come
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
 * node is there, which a list would have shown: if that was not proved lately
 * we look, see is_still_queued().  The deletion of the node says nothing of
 * that kind: a waiter deletes its node when it gives up, and a downgrade when
 * the lock is still held.  Readers always list: several of them go ahead
 * together.
 *
 * A hold (durable.c) is a persistent node, and nobody deletes it but who is asked
 * to.  One that was begun and not finished would block the queue for ever, so
 * whoever finds it ahead clears it away: it is void once the node of its maker
 * that it was to stand in for, its twin, is gone while the hold's own data still
 * says "pending".  The delete names the version of the data, so that it loses to
 * a maker who finishes the hold at that moment.
 *
 *-------------------------------------------------------------------------
 */
#include "contend.h"

#include "miscadmin.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "utils/timestamp.h"

#include "identity.h"

/*
 * How often the parents are made anew when they vanish between their creation
 * and that of our node: the server removes empty containers at any time.
 */
#define PARENT_ATTEMPTS 10

/* From this attempt on, parents are created one by one, with their errors. */
#define CAREFUL_ATTEMPT 2

/* A contender on its way. */
typedef struct Standing
{
	ZkContender *contender;
	ZkRequest  *create;			/* of our queue node; owns the node until the
								 * grant; NULL before we joined */
	ZkRequest  *request;		/* the read under way, or NULL */
	bool		is_node_known;	/* contender->node holds the full path */
	char		prefix[RECIPE_NODE_SIZE];	/* its name up to the number */
	bool		is_handed_over; /* whoever was ahead has let go, to us */
	int			attempts;		/* to create the node */
	int64		started_at;
	int64		log_at;			/* when log_lock_waits wants a message */
	bool		is_wait_logged;
} Standing;

static ZkContendEnd stand_in_queue(Standing *standing);
static ZkContendEnd look(Standing *standing);
static const ZkReply *join(Standing *standing);
static bool take_node(Standing *standing);
static bool find_lost_node(Standing *standing);
static void make_parents(Standing *standing);
static void make_parent_carefully(Standing *standing, const char *path,
								  ZkNodeKind kind);
static ZkWaitEnd watch(Standing *standing, const char *ahead);
static char *pending_twin(const Standing *standing, const ZkReply *reply);
static bool clear_if_void(Standing *standing, const char *path);
static void clear_void_hold(Standing *standing, const char *path);
static bool is_still_queued(Standing *standing);
static const ZkReply *ask(Standing *standing, ZkRequest *request);
static void leave(Standing *standing);
static void raise_evicted(const Standing *standing) pg_attribute_noreturn();
static void raise_exhausted(const Standing *standing) pg_attribute_noreturn();
static void log_wait(Standing *standing);
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
	zklock_client_free(standing.create);
	zklock_client_free(standing.request);
	return end;
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
		int			own;
		int			ahead;

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

		verdict = recipe_verdict(list->children, list->nchildren,
								 strrchr(contender->node, '/') + 1,
								 contender->mode, &own, &ahead);
		switch (verdict)
		{
			case RECIPE_HELD:
				return ZK_CONTEND_GRANTED;
			case RECIPE_GONE:
				raise_evicted(standing);
			case RECIPE_EXHAUSTED:
				raise_exhausted(standing);
			case RECIPE_WAIT:
				contender->can_hand_over =
					recipe_can_hand_over(strrchr(contender->node, '/') + 1);
				break;
		}
		if (contender->patience == ZK_TRY_ONCE)
			return ZK_CONTEND_BUSY;
		switch (watch(standing, list->children[ahead]))
		{
			case ZK_WAIT_OVER:
				if (standing->is_handed_over && is_still_queued(standing))
					return ZK_CONTEND_GRANTED;
				break;
			case ZK_WAIT_TIMEOUT:
				return ZK_CONTEND_BUSY;
			case ZK_WAIT_LOST:
				return ZK_CONTEND_SESSION_LOST;
		}
	}
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
	int			ahead;

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
	switch (recipe_verdict_newcomer(list->children, list->nchildren,
									contender->mode, &ahead))
	{
		case RECIPE_HELD:
			return ZK_CONTEND_GRANTED;
		case RECIPE_EXHAUSTED:
			raise_exhausted(standing);
		case RECIPE_WAIT:
			if (recipe_is_hold(list->children[ahead]) &&
				clear_if_void(standing,
							  psprintf("%s/%s", contender->lock_path,
									   list->children[ahead])))
				return look(standing);
			break;
		case RECIPE_GONE:
			break;
	}
	return ZK_CONTEND_BUSY;
}

/*
 * Have a node in the queue and a list of the queue that is not older: the
 * first time both requests go out back to back, and the server answers them
 * in that order.  NULL if the deadline comes first.
 */
static const ZkReply *
join(Standing *standing)
{
	ZkContender *contender = standing->contender;
	ZkClient   *client = zklock_session_client();

	if (standing->create == NULL)
	{
		char		guid[RECIPE_GUID_LEN + 1];
		char	   *data = zklock_identity_build(0);

		zklock_identity_make_guid(guid);
		if (contender->mode == RECIPE_EXCLUSIVE &&
			zklock_session_can_hand_over())
			recipe_mark_hand_over(guid);
		recipe_node_prefix(standing->prefix, contender->mode, guid);
		snprintf(contender->node, RECIPE_PATH_SIZE, "%s/%s",
				 contender->lock_path, standing->prefix);
		standing->is_node_known = false;
		standing->create = zklock_client_create(client, contender->node,
												ZK_EPHEMERAL_SEQUENTIAL,
												data, strlen(data));
		pfree(data);
		if (standing->create == NULL)
			zklock_session_raise_memory();
	}
	return ask(standing, zklock_client_list(client, contender->lock_path));
}

/*
 * Read the reply to our create, which is there when the list's is.  false if
 * there is no node yet: then join() is to be called again.
 */
static bool
take_node(Standing *standing)
{
	ZkContender *contender = standing->contender;
	const ZkReply *reply = zklock_client_reply(standing->create);
	ZkClientStatus status;

	if (reply == NULL)
		return false;			/* the list failed ahead of it: wait for both */
	switch (reply->result)
	{
		case ZK_OK:
			break;
		case ZK_NO_NODE:
			zklock_client_free(standing->create);
			standing->create = NULL;
			make_parents(standing);
			return false;
		case ZK_UNKNOWN_OUTCOME:
			return find_lost_node(standing);
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
	contender->token = reply->czxid;
	contender->proved_at = reply->sent_at;
	standing->is_node_known = true;
	return true;
}

/*
 * The reply to our create was lost.  If the node is there it is found by its
 * GUID and keeps its place in the queue.  Otherwise the request is withdrawn
 * (the server may execute it yet) and join() starts again.  Always false: the
 * list at hand is older than what is found here.
 */
static bool
find_lost_node(Standing *standing)
{
	ZkContender *contender = standing->contender;
	ZkClient   *client = zklock_session_client();
	ZkClientStatus status;
	const ZkReply *reply;
	const char *child = NULL;

	/* our server may lag behind the one that made the node */
	reply = ask(standing, zklock_client_sync(client, contender->lock_path));
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
	contender->token = reply->czxid;
	contender->proved_at = 0;	/* a read is no proof */
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
 * loss of the session; notes whether the lock was handed over to us.  The watch
 * is set by reading the node, not by exists: that would leave a watch for ever
 * behind on a node that is gone already (CURATOR-107).
 */
static ZkWaitEnd
watch(Standing *standing, const char *ahead)
{
	ZkContender *contender = standing->contender;
	bool		is_set_news = contender->mode == RECIPE_EXCLUSIVE &&
		recipe_can_hand_over(ahead);
	bool		is_hold = recipe_is_hold(ahead);
	char		path[RECIPE_PATH_SIZE];
	char	   *twin;
	const ZkReply *reply;

	standing->is_handed_over = false;
	if (snprintf(path, sizeof(path), "%s/%s", contender->lock_path,
				 ahead) >= (int) sizeof(path))
		ereport(ERROR,
				(errcode(ERRCODE_NAME_TOO_LONG),
				 errmsg("queue node \"%s\" has too long a name", ahead)));
	reply = ask(standing,
				zklock_client_get_and_watch(zklock_session_client(), path));
	if (is_hold && reply != NULL && reply->result == ZK_OK &&
		(twin = pending_twin(standing, reply)) != NULL)
	{
		/* the end of its maker's node is the news: finished, or void */
		reply = ask(standing,
					zklock_client_get_and_watch(zklock_session_client(), twin));
		if (reply != NULL && reply->result == ZK_NO_NODE)
		{
			clear_void_hold(standing, path);
			return ZK_WAIT_OVER;
		}
	}
	if (reply == NULL)
		return ZK_WAIT_TIMEOUT;
	if (reply->result == ZK_SESSION_LOST)
		return ZK_WAIT_LOST;
	if (reply->result == ZK_NO_NODE || reply->result == ZK_UNKNOWN_OUTCOME)
		return ZK_WAIT_OVER;
	if (reply->result != ZK_OK)
		zklock_session_raise(reply, "watch a lock's queue", path);
	if (is_set_news && reply->version > 0)
	{
		standing->is_handed_over = true;
		return ZK_WAIT_OVER;
	}

	for (;;)
	{
		int64		until = Min(contender->deadline, standing->log_at);
		ZkWaitEnd	end = zklock_session_await_watch(until);

		standing->is_handed_over = is_set_news && end == ZK_WAIT_OVER &&
			zklock_client_watch_news(zklock_session_client()) == ZK_WATCH_SET;
		if (end != ZK_WAIT_TIMEOUT || until == contender->deadline)
			return end;
		standing->log_at = ZK_NO_DEADLINE;
		log_wait(standing);
	}
}

/*
 * The node that a hold which is not finished is to stand in for, as a path; NULL
 * if the hold is finished.  The reply is to a get of the hold.
 */
static char *
pending_twin(const Standing *standing, const ZkReply *reply)
{
	ZkIdentity	identity;

	if (reply->version > 0)
		return NULL;
	zklock_identity_parse(reply->data, reply->data_length, &identity);
	return identity.twin == NULL ? NULL :
		psprintf("%s/%s", standing->contender->lock_path, identity.twin);
}

/* A try clears a void hold too, but waits for nobody; true: look again. */
static bool
clear_if_void(Standing *standing, const char *path)
{
	const ZkReply *reply;
	char	   *twin;

	reply = ask(standing, zklock_client_get(zklock_session_client(), path));
	if (reply == NULL || reply->result != ZK_OK)
		return reply != NULL && reply->result == ZK_NO_NODE;
	twin = pending_twin(standing, reply);
	if (twin == NULL)
		return false;
	reply = ask(standing, zklock_client_get(zklock_session_client(), twin));
	if (reply == NULL || reply->result != ZK_NO_NODE)
		return false;
	clear_void_hold(standing, path);
	return true;
}

/*
 * Delete a hold that nobody has finished; one that was finished meanwhile stays.
 * What became of it the next look at the queue tells.
 */
static void
clear_void_hold(Standing *standing, const char *path)
{
	const ZkReply *reply;

	reply = ask(standing,
				zklock_client_remove(zklock_session_client(), path, 0));
	if (reply != NULL && reply->result == ZK_NO_AUTH)
		zklock_session_raise(reply, "remove an unfinished hold", path);
}

/*
 * The lock was handed over to us, if our node is there to have it.  A fresh
 * proof of that will do, as it does for a holder at its commit; the clock is
 * read after the news came, for we may have been stopped meanwhile.  Otherwise
 * we read our node: our server answers in the order of what it knows, so that
 * the answer is not older than the news.  false if only a list can tell.
 */
static bool
is_still_queued(Standing *standing)
{
	ZkContender *contender = standing->contender;
	ZkClientStatus status;
	const ZkReply *reply;

	if (contender->proved_at > zklock_session_fresh_since())
		return true;
	reply = ask(standing, zklock_client_get(zklock_session_client(),
											contender->node));
	if (reply == NULL || reply->result == ZK_UNKNOWN_OUTCOME ||
		reply->result == ZK_SESSION_LOST)
		return false;
	if (reply->result != ZK_OK && reply->result != ZK_NO_NODE)
		zklock_session_raise(reply, "read a lock's queue", contender->node);
	if (reply->result == ZK_NO_NODE || !zklock_session_status(&status) ||
		reply->ephemeral_owner != status.session_id)
		raise_evicted(standing);
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
	return zklock_session_await(request, standing->contender->deadline,
								ZK_WAITING_FOR_REPLY);
}

/* Give up whatever is under way; our node goes, wherever it is. */
static void
leave(Standing *standing)
{
	zklock_client_free(standing->request);
	zklock_client_withdraw(standing->create);
	standing->request = NULL;
	standing->create = NULL;
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
			 errdetail("ZooKeeper counts the queue entries below \"%s\" with 31 bits and cannot order more of them.",
					   standing->contender->lock_path),
			 errhint("Let all users of the lock finish and delete the znode; it is created again with a counter of zero.")));
}

/* ---------------------------------------------------------------------
 * log_lock_waits, in the words of PostgreSQL's own messages
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

/*
 * Say that we wait, and for whom.  Whoever is first in the queue holds the
 * lock; a failure to find out who that is must not end the wait.
 */
static void
log_wait(Standing *standing)
{
	ZkContender *contender = standing->contender;
	const ZkReply *list;
	const ZkReply *data = NULL;
	ZkIdentity	identity = {0};
	const char *first = NULL;
	char		path[RECIPE_PATH_SIZE];
	int			nahead = 0;

	list = ask(standing, zklock_client_list(zklock_session_client(),
											contender->lock_path));
	if (list == NULL || list->result != ZK_OK)
		return;
	for (int i = 0; i < list->nchildren; i++)
	{
		const char *child = list->children[i];

		if (recipe_parse_node(child).style == RECIPE_STYLE_NONE)
			continue;
		if (recipe_compare_nodes(child,
								 strrchr(contender->node, '/') + 1) < 0)
			nahead++;
		if (first == NULL || recipe_compare_nodes(child, first) < 0)
			first = child;
	}
	if (nahead == 0)
		return;
	if (snprintf(path, sizeof(path), "%s/%s", contender->lock_path,
				 first) < (int) sizeof(path))
		data = ask(standing, zklock_client_get(zklock_session_client(), path));
	if (data != NULL && data->result == ZK_OK)
		zklock_identity_parse(data->data, data->data_length, &identity);
	standing->is_wait_logged = true;
	ereport(LOG,
			(errmsg("process %d still waiting for %s on ZooKeeper lock \"%s\" after %s",
					MyProcPid, lock_mode_name(standing), contender->name,
					milliseconds_waited(standing)),
			 errdetail_plural("Held by %s. %d contender is ahead.",
							  "Held by %s. %d contenders are ahead.",
							  nahead,
							  zklock_identity_describe(&identity), nahead)));
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
