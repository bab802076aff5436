/*-------------------------------------------------------------------------
 *
 * contender_step.c
 *	  The steps of a contender: makes and withdraws its queue node, makes
 *	  containers, judges a list.
 *
 * contender.c decides which step comes next.
 *
 * Requests are malloc'ed memory of client.c.  Those that are made here hang on
 * the contender, and go with contender_withdraw() and contender_end_parents().
 *
 *-------------------------------------------------------------------------
 */
#include "contender_private.h"

#include "storage/lock.h"
#include "utils/memutils.h"

#include "ephemeral.h"
#include "expiry.h"
#include "keep.h"
#include "loss.h"
#include "nodedata.h"
#include "parents.h"
#include "root.h"
#include "text.h"

/* From this round on, parents are created one by one, with their errors. */
#define CAREFUL_ROUND 2

/*
 * How many creates a call sends before the loss of another reply ends it.  If each
 * reply is lost with its connection, a server ends that because of the create.
 */
#define CREATES_MAX 10

static void send_create(Contender *contender);
static RecipeMark mark_for(const Contender *contender);
static void make_parents(Contender *contender);
static void make_parents_carefully(Contender *contender);
static void send_parents(Contender *contender);
static ZkOutcome find_of_owner(Contender *contender, const ZkReply *list,
							   const char *mine, char **first);
static List *choose_of_owner(const Contender *contender, const ZkReply *list,
							 const char *mine);
static ZkOutcome read_of_owner(Contender *contender, const List *nodes,
							   MemoryContext keeps, char **first);
pg_noreturn static void raise_exhausted(const ZkPlace *place);

/* ---------------------------------------------------------------------
 * Replies
 * ---------------------------------------------------------------------
 */

ZkOutcome
contender_read(ZkRoundTrip *trip, ZkRead read, const char *path,
			   const ZkReply **reply)
{
	ZkOutcome	outcome = zklock_roundtrip_read(trip, read, path, reply);

	if (outcome == ZK_ANSWERED && (*reply)->result != ZK_OK &&
		(*reply)->result != ZK_NO_NODE)
		zklock_session_raise(*reply, "read a lock's queue", path);
	return outcome;
}

const char *
contender_node_name(const ZkPlace *place)
{
	return strrchr(place->node, '/') + 1;
}

/* ---------------------------------------------------------------------
 * Our queue node
 * ---------------------------------------------------------------------
 */

bool
contender_stands(const Contender *contender)
{
	return contender->place->token != 0;
}

ZkOutcome
contender_join(Contender *contender, const ZkReply **list)
{
	const ZkPlace *place = contender->place;

	if (!contender_is_safe(contender))
		zklock_root_ask(&contender->trip, place->lock_path, place->root_length);
	if (contender->node.create == NULL)
		send_create(contender);
	return zklock_roundtrip_read(&contender->trip,
								 contender->watch.is_of_queue ?
								 ZK_LIST_AND_WATCH : ZK_LIST,
								 place->lock_path, list);
}

bool
contender_is_safe(const Contender *contender)
{
	return !zklock_session_has_credentials() ||
		contender->safe_for == zklock_session_number();
}

/* Send the create of our node. */
static void
send_create(Contender *contender)
{
	OwnNode    *node = &contender->node;
	ZkPlace    *place = contender->place;
	char		guid[RECIPE_GUID_LEN + 1];
	char		prefix[RECIPE_NODE_SIZE];

	Assert(node->create == NULL && !contender_stands(contender));
	if (node->ncreates++ == 0)
	{
		node->data = zklock_nodedata_build(0, "owner",
										   contender->order->owner, NULL);
		node->mark = mark_for(contender);
	}
	zklock_nodedata_make_guid(guid);
	if (node->mark == RECIPE_MARK_TAKER)
		recipe_mark_taker(guid, recipe_hash_owner(contender->order->owner));
	else if (node->mark != RECIPE_MARK_NONE)
		recipe_mark(guid, node->mark);
	recipe_node_prefix(prefix, contender->order->style, place->mode,
					   place->permits, guid);
	snprintf(place->node, RECIPE_PATH_SIZE, "%s/%s", place->lock_path, prefix);
	node->create = zklock_client_create(zklock_session_client(), place->node,
										ZK_EPHEMERAL_SEQUENTIAL, node->data);
	if (node->create == NULL)
		zklock_session_raise_memory();
}

/*
 * What the name of our node is to say besides.  It has room for one mark; a
 * lock that others wait for is not kept anyway.
 */
static RecipeMark
mark_for(const Contender *contender)
{
	const ZkPlace *place = contender->place;

	if (contender->order->owner != NULL)
		return RECIPE_MARK_TAKER;
	if (contender->order->style != RECIPE_STYLE_CURATOR ||
		place->mode != RECIPE_EXCLUSIVE || place->permits != 1)
		return RECIPE_MARK_NONE;
	if (contender->node.wants_keep)
		return RECIPE_MARK_KEEPER;
	if (zklock_session_can_hand_over())
		return RECIPE_MARK_HAND_OVER;
	return RECIPE_MARK_NONE;
}

/*
 * The node must be of this session, and has a token.  It always does, unless
 * the server mixes sessions up, and then nothing that follows is worth
 * anything.
 */
bool
contender_take_node(Contender *contender)
{
	OwnNode    *node = &contender->node;
	ZkPlace    *place = contender->place;
	const ZkReply *reply;

	if (contender_stands(contender))
		return true;
	reply = zklock_client_reply(node->create);
	if (reply == NULL)
		return false;			/* the list failed ahead of it: wait for both */
	if (reply->result == ZK_NO_NODE)
	{
		contender_withdraw(contender);
		make_parents(contender);
		send_create(contender);
		return false;
	}
	if (zklock_session_outcome(reply) == ZK_UNKNOWN &&
		node->ncreates <= CREATES_MAX)
	{
		/*
		 * It may be there.  Ahead of the next one it would look like somebody
		 * else's.  The next question meets the deadline, and the loss.
		 */
		contender_withdraw(contender);
		(void) zklock_session_await_undone(contender->order->bounds.deadline);
		return false;
	}
	if (reply->result != ZK_OK)
	{
		zklock_ephemeral_refuse(reply, place->lock_path);
		zklock_session_raise(reply, "join a lock's queue", place->lock_path);
	}

	strlcpy(place->node, reply->path, RECIPE_PATH_SIZE);
	place->token = reply->czxid;
	place->proof = reply->proof;
	if (reply->ephemeral_owner != zklock_session_id() || reply->czxid <= 0)
		contender_raise_evicted(place);
	if (message_level_is_interesting(DEBUG1))
		elog(DEBUG1, "zklock: contender \"%s\", fencing token " INT64_FORMAT ": in the queue",
			 zklock_text_quotable(place->node), place->token);
	return true;
}

void
contender_withdraw(Contender *contender)
{
	zklock_client_withdraw(contender->node.create);
	contender->node.create = NULL;
}

/* ---------------------------------------------------------------------
 * The containers above it
 * ---------------------------------------------------------------------
 */

/*
 * Create the parents of our node: the root for good, the rest as containers,
 * which the server removes when they are empty.  At first nobody waits for
 * the replies: the next create of our node is behind them and shows whether
 * they worked.
 */
static void
make_parents(Contender *contender)
{
	if (++contender->node.nrounds > PARENT_ATTEMPTS)
		zklock_parents_raise_deleted(contender->place->lock_path);
	if (contender->node.nrounds >= CAREFUL_ROUND)
		make_parents_carefully(contender);
	else
		send_parents(contender);
}

/* Await the reply to each. */
static void
make_parents_carefully(Contender *contender)
{
	const ZkPlace *place = contender->place;
	const ZkReply *refusal;

	/* otherwise the next question meets the deadline, or the loss */
	if (zklock_parents_make(&contender->trip, place->node, place->root_length,
							&refusal) != ZK_ANSWERED || refusal == NULL)
		return;
	zklock_ephemeral_refuse(refusal, place->lock_path);
	zklock_session_raise(refusal, "create a lock's znode", place->lock_path);
}

/* Send them in one flush. */
static void
send_parents(Contender *contender)
{
	OwnNode    *node = &contender->node;
	const ZkPlace *place = contender->place;
	ZkClient   *client = zklock_session_client();
	const char *end = place->node;
	char		parent[RECIPE_PATH_SIZE];

	zklock_client_begin_many(client);
	while ((end = strchr(end + 1, '/')) != NULL)
	{
		ZkRequest  *request;

		strlcpy(parent, place->node, end - place->node + 1);
		if (end - place->node <= place->root_length)
		{
			ZkNodeKind	kind = ZK_PERSISTENT;

			if (end - place->node == place->root_length)
				kind = ZK_ROOT;

			/* with the data of our node: they say who made the root */
			zklock_client_free(zklock_client_create(zklock_session_client(),
													parent, kind, node->data));
			continue;
		}
		request = zklock_client_create(zklock_session_client(), parent,
									   ZK_CONTAINER,
									   zklock_nodedata_of_parent(parent));
		if (node->nparents < (int) lengthof(node->parents))
			node->parents[node->nparents++] = request;
		else
			zklock_client_free(request);
	}
	zklock_client_end_many(client);
}

/*
 * As zklock_roundtrip_unmake(): of those that were made the lowest one goes, if
 * none was used.
 */
void
contender_end_parents(Contender *contender)
{
	OwnNode    *node = &contender->node;
	bool		is_lowest_gone = contender_stands(contender);

	if (!is_lowest_gone)
		zklock_roundtrip_unmake(&contender->trip);
	while (node->nparents > 0)
	{
		ZkRequest  *request = node->parents[--node->nparents];
		const ZkReply *reply = NULL;

		if (request != NULL)
			reply = zklock_client_reply(request);
		if (!is_lowest_gone && reply != NULL && reply->result == ZK_OK)
		{
			zklock_roundtrip_drop(reply->path);
			is_lowest_gone = true;
		}
		zklock_client_free(request);
	}
}

/* ---------------------------------------------------------------------
 * The contenders ahead
 * ---------------------------------------------------------------------
 */

ZkOutcome
contender_judge(Contender *contender, const ZkReply *list,
				RecipeVerdict *verdict)
{
	const ZkPlace *place = contender->place;
	Ahead	   *ahead = &contender->ahead;
	const char *mine = NULL;
	char	   *of_owner = NULL;
	ZkChildren	children;
	ZkOutcome	outcome;
	int			next;

	if (contender_stands(contender))
		mine = contender_node_name(place);
	if (contender->order->owner != NULL)
	{
		outcome = find_of_owner(contender, list, mine, &of_owner);
		if (outcome != ZK_ANSWERED)
			return outcome;
	}
	outcome = zklock_nested_leave_out(&contender->trip, place->lock_path, list,
									  zklock_nested_bound(mine), &ahead->nested,
									  &children);
	if (outcome != ZK_ANSWERED)
		return outcome;
	*verdict = contender_verdict(place, &children, mine, &next);
	if (*verdict == RECIPE_GONE)
		contender_raise_evicted(place);
	if (*verdict == RECIPE_EXHAUSTED)
		raise_exhausted(place);
	if (ahead->owned != NULL &&
		!zklock_expiry_holds(&children, ahead->owned->node))
	{
		MemoryContextDelete(GetMemoryChunkContext(ahead->owned));
		pfree(of_owner);
		of_owner = NULL;
		ahead->owned = NULL;
	}
	if (of_owner != NULL)
		*verdict = RECIPE_WAIT;
	ahead->is_known = *verdict == RECIPE_WAIT;
	if (ahead->is_known)
		contender_note_ahead(contender, &children);
	if (*verdict != RECIPE_HELD)
	{
		list_free_deep(ahead->leases);
		ahead->leases = zklock_expiry_nodes(list->children, list->nchildren);
		ahead->lease_at = ZK_NO_DEADLINE;
		if (ahead->leases != NIL)
			ahead->lease_at = 0;
	}
	if (ahead->next != NULL)
		pfree(ahead->next);
	ahead->next = of_owner;
	ahead->is_next_first = false;
	if (next >= 0 && of_owner == NULL)
		ahead->next = pstrdup(children.names[next]);
	if (ahead->next != NULL)
		ahead->is_next_first = recipe_is_first(children.names, children.count,
											   ahead->next);
	zklock_nested_free(&children);
	return ZK_ANSWERED;
}

/*
 * The first one ahead for the same owner: a contender or a lease, its name in
 * *first, palloc'ed, or NULL; of a lease contender->ahead.owned is set, too.
 * The list stays.
 */
static ZkOutcome
find_of_owner(Contender *contender, const ZkReply *list, const char *mine,
			  char **first)
{
	/* a waiter may look for hours */
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "zklock owner",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	List	   *nodes = choose_of_owner(contender, list, mine);
	List	   *batch = NIL;
	ZkOutcome	outcome = ZK_ANSWERED;

	foreach_ptr(char, node, nodes)
	{
		batch = lappend(batch, node);
		if (list_length(batch) < ZK_READS_AT_ONCE && node != llast(nodes))
			continue;
		outcome = read_of_owner(contender, batch, caller, first);
		if (outcome != ZK_ANSWERED || *first != NULL)
			break;
		list_free(batch);
		batch = NIL;
	}
	MemoryContextSwitchTo(caller);
	if (contender->ahead.owned == NULL)
		MemoryContextDelete(context);	/* else the call is over soon */
	return outcome;
}

/* Those ahead whose names have the hash of the owner, in order. */
static List *
choose_of_owner(const Contender *contender, const ZkReply *list,
				const char *mine)
{
	uint32		owner = recipe_hash_owner(contender->order->owner);
	List	   *nodes = NIL;

	for (int i = 0; i < list->nchildren; i++)
	{
		const char *child = list->children[i];
		RecipeMark	mark = recipe_read_mark(child);

		if ((mark == RECIPE_MARK_LEASE || mark == RECIPE_MARK_TAKER) &&
			recipe_read_owner(child) == owner &&
			(mine == NULL || recipe_compare_nodes(child, mine) < 0))
			nodes = lappend(nodes, pstrdup(child));
	}
	zklock_expiry_sort(nodes);
	return nodes;
}

/*
 * Read some, and find the first that is of the owner.  One that has just gone
 * may have become a lease of his: so it counts, and the next list tells.  Raises
 * if one cannot be read: nobody can say then that it is not his.
 */
static ZkOutcome
read_of_owner(Contender *contender, const List *nodes, MemoryContext keeps,
			  char **first)
{
	const char *owner = contender->order->owner;
	char	   *paths[ZK_READS_AT_ONCE];
	const ZkReply *replies[ZK_READS_AT_ONCE];
	int			count = 0;
	ZkOutcome	outcome;

	foreach_ptr(const char, node, nodes)
		paths[count++] = psprintf("%s/%s", contender->place->lock_path, node);
	outcome = zklock_roundtrip_read_all(&contender->trip, ZK_GET, paths, count,
										replies);
	if (outcome != ZK_ANSWERED)
		return outcome;
	for (int i = 0; i < count; i++)
		if (replies[i]->result != ZK_OK && replies[i]->result != ZK_NO_NODE)
			zklock_session_raise(replies[i], "read a lock's queue", paths[i]);
	for (int i = 0; i < count && *first == NULL; i++)
	{
		const char *node = list_nth(nodes, i);
		bool		is_lease = recipe_read_mark(node) == RECIPE_MARK_LEASE;
		ZkLeased   *one = palloc0(sizeof(*one));

		one->path = paths[i];
		one->node = node;
		if (is_lease)
			is_lease = zklock_expiry_take(one, replies[i]);
		else if (replies[i]->result == ZK_OK)
			zklock_nodedata_parse(replies[i]->data, replies[i]->data_length,
								  &one->who);
		if (replies[i]->result != ZK_NO_NODE &&
			(one->who.owner == NULL || strcmp(one->who.owner, owner) != 0))
			continue;
		*first = MemoryContextStrdup(keeps, node);
		if (is_lease)
			contender->ahead.owned = one;
	}
	zklock_roundtrip_end_reads(&contender->trip, count);
	return ZK_ANSWERED;
}

RecipeVerdict
contender_verdict(const ZkPlace *place, const ZkChildren *children,
				  const char *mine, int *ahead)
{
	RecipeWish	wish = {
		.mine = mine,
		.mode = place->mode,
		.permits = place->permits
	};

	return recipe_verdict(children->names, children->count, &wish, ahead);
}

void
contender_note_ahead(Contender *contender, const ZkChildren *children)
{
	Ahead	   *ahead = &contender->ahead;
	const char *mine = NULL;
	const char *first = NULL;

	if (contender->wait.log_at == ZK_NO_DEADLINE && !log_lock_failures &&
		contender->order->is_try)
		return;
	if (contender_stands(contender))
		mine = contender_node_name(contender->place);
	ahead->count = 0;
	for (int i = 0; i < children->count; i++)
	{
		const char *child = children->names[i];

		if (recipe_parse_node(child).style == RECIPE_STYLE_NONE ||
			(mine != NULL && recipe_compare_nodes(child, mine) >= 0))
			continue;
		ahead->count++;
		if (first == NULL || recipe_compare_nodes(child, first) < 0)
			first = child;
	}
	if (ahead->first != NULL)
		pfree(ahead->first);
	ahead->first = NULL;
	if (first != NULL)
		ahead->first = psprintf("%s/%s", contender->place->lock_path, first);
}

/* ---------------------------------------------------------------------
 * Errors
 * ---------------------------------------------------------------------
 */

void
contender_raise_evicted(const ZkPlace *place)
{
	zklock_loss_raise_waiter(place->name, contender_node_name(place),
							 place->token);
}

static void
raise_exhausted(const ZkPlace *place)
{
	const char *lock_path = zklock_text_quotable(place->lock_path);

	ereport(ERROR,
			(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
			 errmsg("sequence numbers of lock \"%s\" are used up",
					place->name),
			 errdetail("ZooKeeper numbers the queue nodes below \"%s\" with 31 bits and cannot number more of them, or another client has made one whose number is taken already.",
					   lock_path),
			 errhint("When the lock has no holder and no waiter, run \"delete %s\" in ZooKeeper's zkCli.sh. The znode is created again with a counter of zero.",
					 lock_path)));
}
