/*-------------------------------------------------------------------------
 *
 * lease_node.c
 *	  The node of a lease: how it is taken, found, renewed and given up; and
 *	  which leases a transaction rests on.
 *
 * A lease is a persistent node in the lock's queue; expiry.c says what keeps
 * it alive.  Whoever names its owner, or its token, may renew it, from any
 * backend of any cluster.  Its token is the czxid of its node.
 *
 * Nothing of it is lost with a session, so a lost reply needs no care: what
 * was created is found by its owner, and what is not found any more was given
 * up by the call that had tried.  If an owner has two nodes, because he
 * asked twice at a time or a create was done after all, the first one counts,
 * and whoever sees the others deletes them.  What nobody finds is over after a
 * term.
 *
 * A node is deleted with its version as condition, also by the call that made
 * it and gives it up: another call of the same owner may have found and renewed
 * it meanwhile.
 *
 * What this backend knows of the leases that it has renewed saves it to read
 * the queue.  It may be outdated: each renewal has the version as condition,
 * and whoever fails reads the queue.
 *
 *-------------------------------------------------------------------------
 */
#include "lease_node.h"

#include "access/xact.h"
#include "common/hashfn.h"
#include "lib/ilist.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#include "compat.h"
#include "contender.h"
#include "lease_binding.h"
#include "lease_roots.h"
#include "name.h"
#include "nested.h"
#include "recipe.h"
#include "session.h"
#include "stat.h"
#include "write.h"

/*
 * A commit may rest on a renewal for that many tenths of the term.  The rest is
 * for the commit itself, and a tenth of it for clocks of different speed.
 */
#define FRESH_TENTHS 6

/*
 * After so long the worker may have dropped a name that no lease was found
 * for: twice, in rounds that are at least so far apart (lease_worker.c).
 */
#define NAME_MS 500

/*
 * How long a call whose wait was in vain waits to hear that its node is gone; a
 * healthy ensemble answers within milliseconds.
 */
#define REMOVE_MS 1000

/* A lease that this backend has renewed. */
typedef struct Known
{
	int64		token;			/* key */
	char	   *name;			/* of the lock */
	ZkLeased	leased;			/* path, token, version, term; of who: owner,
								 * note, binding */
	bool		is_place;		/* merely one in the queue */
	bool		is_outdated;	/* its version: a renewal was refused, or its
								 * outcome is not known */
	Moment		proof;			/* when the last renewal was sent */
	bool		is_renewed;		/* by the proof for this commit */
	SubTransactionId user;		/* what rests on it; Invalid: nothing */
	dlist_node	use;			/* in used, unless nothing does */
} Known;

/* Where an owner stands in the queue of a lock. */
typedef struct Standing
{
	uint64		key;			/* hash of the lock's path and the owner */
	int64		token;			/* of a Known, which may be another's by chance */
} Standing;

/* A renewal of a commit's. */
typedef struct Renewal
{
	Known	   *known;
	Moment		sent;
	ZkRequest  *request;		/* NULL: it is not under way */
} Renewal;

/* Those of one commit; zeros but always_ask at first. */
typedef struct Proving
{
	bool		always_ask;		/* also for leases with a fresh proof */
	int			attempts;		/* how often they were sent */
	int64		begun_at;		/* protocol_now() */
	int			nrenewals;
	Renewal    *renewals;		/* palloc'ed */
} Proving;

/* Of Known and Standing, with all of it in KnownContext; NULL with it. */
static HTAB *all_known;
static HTAB *standings;
static MemoryContext KnownContext;

/* Beyond so many all are forgotten, unless a transaction rests on some. */
#define KNOWN_MAX 1000

/*
 * Those that this transaction rests on, and how many.  What a subtransaction
 * uses first is put ahead of all that was used before it began.
 */
static dlist_head used = DLIST_STATIC_INIT(used);
static int	nused;

static bool take(ZkRoundTrip *trip, ZkLeasing *leasing);
static bool remove_made(ZkRoundTrip *trip, ZkLeasing *leasing);
static void keep_made(ZkLeasing *leasing);
static int64 renewal_due_at(const ZkLeasing *leasing);
static void withdraw_mine(const ZkLeasing *leasing);
static bool is_made(const ZkLeasing *leasing);
static bool await_turn(ZkRoundTrip *trip, ZkLeasing *leasing, int64 deadline);
static bool wait_behind(ZkRoundTrip *trip, ZkLeasing *leasing, int64 deadline);
static bool watch_ahead(ZkRoundTrip *trip, ZkLeasing *leasing,
						int64 *look_at);
static bool make_node(ZkRoundTrip *trip, ZkLeasing *leasing);
static const ZkReply *note_name(ZkRoundTrip *trip, ZkLeasing *leasing,
								ZkWriteTerms terms, const char *pointer);
static bool find(ZkRoundTrip *trip, ZkLeasing *leasing);
static bool look_once(ZkRoundTrip *trip, ZkLeasing *leasing, bool times_all);
static bool read_queue(ZkRoundTrip *trip, ZkLeasing *leasing,
					   const List *nodes, bool times_all, List **leased);
static List *choose_ahead(const ZkLeasing *leasing, const List *nodes,
						  bool times_all);
static bool is_listed(const List *nodes, const char *place);
static void find_mine(ZkLeasing *leasing, const List *leased);
static bool end_others(ZkRoundTrip *trip, ZkLeasing *leasing,
					   const List *leased);
static bool is_wanted(const ZkLeasing *leasing, const ZkLeased *one);
static bool renew(ZkRoundTrip *trip, ZkLeasing *leasing);
static const ZkReply *set(ZkRoundTrip *trip, ZkLeasing *leasing,
						  ZkWriteTerms terms, const char *path,
						  const char *data, int version);
static char *build_data(const ZkNodeData *who, const char *note,
						int64 ttl_ms);
static const ZkReply *check_reply(const ZkReply *reply,
								  ZkLeasing *leasing);
static Known *find_known(int64 token);
static bool is_renewed_here(const ZkLeased *leased);
static void guess_place(ZkLeasing *leasing);
static Known *learn(const ZkLeasing *leasing, Known *former);
static void forget_all(void);
static uint64 standing_key(const char *path, int length, const char *owner);
static void keep_text(char **text, const char *value);
static bool is_fresh(const Known *known);
static bool prove_leases(ZkRoundTrip *trip, void *argument);
static int64 proving_deadline(int64 begun_at);
static bool choose(Proving *proving);
static bool read_outdated(ZkRoundTrip *trip, const Proving *proving);
static void note_read(Known *known, const ZkReply *reply);
static bool renew_all(ZkRoundTrip *trip, Proving *proving);
static void note_renewal(Renewal *renewal, const ZkReply *reply);
static void end_renewals(void *argument);
pg_noreturn static void raise_silence(const Proving *proving,
									  const Known *known);
pg_noreturn static void refuse_commit(const Known *known);

/* ---------------------------------------------------------------------
 * Talks
 * ---------------------------------------------------------------------
 */

bool
zklock_lease_take(ZkRoundTrip *trip, void *argument)
{
	ZkLeasing  *leasing = argument;

	trip->by = ZK_BY_CALLER;
	if (take(trip, leasing))
		return true;
	if (!leasing->is_over)
		return false;
	if (leasing->has_place)
		keep_made(leasing);
	trip->deadline = protocol_now() + REMOVE_MS;
	if (leasing->guid[0] != '\0' && find(trip, leasing) && is_made(leasing))
		(void) remove_made(trip, leasing);	/* over, whatever became of it */
	return true;
}

/* The same, or false when it is_over. */
static bool
take(ZkRoundTrip *trip, ZkLeasing *leasing)
{
	int64		deadline = leasing->bounds.wait_until;

	guess_place(leasing);
	for (;;)
	{
		/* each answer has a time of its own: it does not wait for others */
		trip->deadline = zklock_bounds_next_reply(&leasing->bounds);
		if (!find(trip, leasing))
			return false;
		if (leasing->mine == NULL)
		{
			/* who merely keeps the lock gives it up when somebody comes */
			if (!leasing->is_first && !leasing->has_place &&
				protocol_now() >= deadline &&
				(!leasing->is_ahead_keeper ||
				 zklock_contend_is_held(trip, leasing->ahead)))
				return zklock_session_live() != 0;
			if (leasing->is_ahead_keeper)
				deadline = Min(Max(deadline, protocol_now() + ZK_KEEPER_MS),
							   leasing->bounds.deadline);
			if (!make_node(trip, leasing))
				return false;
			continue;
		}
		if (leasing->is_bound && leasing->mine->who.bound == NULL)
			zklock_lease_raise_unbound(leasing->name);
		if ((leasing->renewed != leasing->mine->token ||
			 protocol_now() >= renewal_due_at(leasing)) &&
			!renew(trip, leasing))
			return false;
		if (leasing->renewed != leasing->mine->token)
			continue;
		if (leasing->is_first || protocol_now() >= deadline)
			break;
		if (!await_turn(trip, leasing, deadline))
			return false;
		if (protocol_now() >= deadline)
			break;
	}
	if (!leasing->is_first && !leasing->has_place)
		return !is_made(leasing) || remove_made(trip, leasing);
	if (is_made(leasing))
		zklock_stat_count(ZK_STAT_LEASE);
	keep_made(leasing);
	return true;
}

/*
 * The wait was in vain: delete what was made.  An answer that takes longer than
 * REMOVE_MS is not waited for, see zklock_lease_end().  false if the session was
 * lost.
 */
static bool
remove_made(ZkRoundTrip *trip, ZkLeasing *leasing)
{
	bool		is_gone;

	trip->deadline = protocol_now() + REMOVE_MS;
	if (zklock_expiry_remove(trip, leasing->mine, &is_gone))
	{
		if (!is_gone)
			withdraw_mine(leasing);	/* refused, or renewed by another call */
		keep_made(leasing);
	}
	return zklock_session_live() != 0;
}

/* What was made is not this call's any more. */
static void
keep_made(ZkLeasing *leasing)
{
	zklock_client_free(leasing->create);
	leasing->create = NULL;
	leasing->guid[0] = '\0';
}

bool
zklock_lease_renew(ZkRoundTrip *trip, void *argument)
{
	ZkLeasing  *leasing = argument;
	Known	   *known = find_known(leasing->token);

	zklock_write_need(2);		/* a proof that the list is new, and the set */

	/* the same token may be one of another root, or of another name */
	leasing->lock_path = zklock_name_path(leasing->name, NULL);
	leasing->mine = known != NULL && !known->is_place &&
		strcmp(known->leased.path, psprintf("%s%s", leasing->lock_path,
											strrchr(known->leased.path, '/'))) == 0 ?
		&known->leased : NULL;
	for (;;)
	{
		if (leasing->mine == NULL)
		{
			if (!find(trip, leasing))
				return false;
			if (!leasing->is_first)
				leasing->mine = NULL;	/* a place in the queue */
			if (leasing->mine == NULL)
				return true;
		}
		else
			zklock_lease_check_binding(leasing->name, &leasing->mine->who);
		if (!renew(trip, leasing))
			return false;
		if (leasing->renewed == leasing->token)
			return true;
		leasing->mine = NULL;
	}
}

bool
zklock_lease_release(ZkRoundTrip *trip, void *argument)
{
	ZkLeasing  *leasing = argument;
	const ZkLeased *mine;
	const ZkReply *reply;
	bool		is_gone = false;
	bool		is_logged = false;

	trip->terms = ZK_WRITE_COUNTED; /* no bound keeps anybody from releasing */
	while (!is_gone)
	{
		if (!find(trip, leasing))
			return false;
		mine = leasing->mine;
		if (mine == NULL)
		{
			leasing->mine = leasing->tried;
			return true;
		}

		if (!is_logged && !is_renewed_here(mine))
		{
			zklock_lease_log_release(leasing->name, mine, leasing->ttl_ms);
			is_logged = true;
		}

		/* without an owner nobody can renew it */
		reply = leasing->ttl_ms > 0 ?
			set(trip, leasing, ZK_WRITE_PAID, mine->path,
				build_data(NULL, NULL, leasing->ttl_ms), mine->version) :
			check_reply(zklock_roundtrip_ask(trip,
											 zklock_client_remove(zklock_session_client(),
																  mine->path,
																  mine->version)),
						leasing);
		if (reply->result == ZK_UNKNOWN_OUTCOME ||
			reply->result == ZK_SESSION_LOST)
		{
			leasing->tried = memcpy(palloc(sizeof(*mine)), mine, sizeof(*mine));
			leasing->tried->who.owner = pstrdup(mine->who.owner);
		}
		if (reply->result == ZK_SESSION_LOST)
			return false;
		is_gone = leasing->ttl_ms > 0 ?
			reply->result == ZK_OK && reply->czxid == mine->token :
			reply->result == ZK_OK || reply->result == ZK_NO_NODE;
	}
	return true;
}

void
zklock_lease_end(void *argument)
{
	ZkLeasing  *leasing = argument;

	zklock_client_unwatch(zklock_session_client());
	if (is_made(leasing))
	{
		withdraw_mine(leasing);
		zklock_client_free(leasing->create);
	}
	else
		zklock_client_withdraw(leasing->create);
	leasing->create = NULL;
}

/*
 * Delete mine, unless another call has renewed it.  Nobody waits for the
 * reply: the session's program repeats the delete until it is confirmed.
 */
static void
withdraw_mine(const ZkLeasing *leasing)
{
	if (zklock_session_client() == NULL ||
		leasing->mine->version == ZK_ANY_VERSION)
		return;

	/* without memory it stays until its term is over */
	(void) zklock_client_delete_version(zklock_session_client(),
										leasing->mine->path,
										leasing->mine->version);
}

/* Was mine made by this call, in whatever session, and is it not to stay yet? */
static bool
is_made(const ZkLeasing *leasing)
{
	return leasing->guid[0] != '\0' && leasing->mine != NULL &&
		strstr(leasing->mine->node, leasing->guid) != NULL;
}

/* When it is to be renewed while it waits. */
static int64
renewal_due_at(const ZkLeasing *leasing)
{
	return leasing->proof.boot_ms + leasing->ttl_ms / 3;
}

/*
 * Wait behind the node just ahead until the queue is to be looked at again:
 * that node is gone, a term is over, or the deadline is here.  Renews mine
 * meanwhile.  false if the session is lost.
 */
static bool
await_turn(ZkRoundTrip *trip, ZkLeasing *leasing, int64 deadline)
{
	MemoryContext context = AllocSetContextCreate(leasing->context,
												  "zklock lease wait",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	bool		is_alive = wait_behind(trip, leasing, deadline);

	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
	return is_alive;
}

/* In a memory context of its own, for it may take hours. */
static bool
wait_behind(ZkRoundTrip *trip, ZkLeasing *leasing, int64 deadline)
{
	for (;;)
	{
		int64		look_at;
		ZkWaitEnd	end;

		MemoryContextReset(CurrentMemoryContext);
		if (!watch_ahead(trip, leasing, &look_at))
			return zklock_session_live() != 0;
		look_at = Min(look_at, deadline);
		while ((end = zklock_session_await_watch(Min(look_at,
													 renewal_due_at(leasing)))) == ZK_WAIT_TIMEOUT)
		{
			if (protocol_now() >= look_at)
				return true;
			MemoryContextReset(CurrentMemoryContext);
			trip->deadline = zklock_bounds_next_reply(&leasing->bounds);
			if (!renew(trip, leasing))
				return false;
			if (leasing->renewed != leasing->mine->token)
				return true;
		}
		if (end == ZK_WAIT_LOST)
			return false;
		if (zklock_client_watch_news(zklock_session_client()) != ZK_WATCH_SET)
			return true;
	}
}

/*
 * Watch the node just ahead, and if it is a lease time the version that is
 * there now.  *look_at: when to look at the queue without news.  false if
 * that node is gone, or the session is lost.
 */
static bool
watch_ahead(ZkRoundTrip *trip, ZkLeasing *leasing, int64 *look_at)
{
	const ZkReply *reply;
	const char *node = strrchr(leasing->ahead, '/') + 1;
	ZkLeased	one = {.node = node};

	trip->deadline = zklock_bounds_next_reply(&leasing->bounds);
	reply = check_reply(zklock_roundtrip_read(trip, ZK_GET_AND_WATCH,
											  leasing->ahead), leasing);
	if (reply->result != ZK_OK)
		return false;
	if (recipe_read_mark(node) == RECIPE_MARK_LEASE &&
		zklock_expiry_take(&one, reply))
	{
		/* else a look has just tried to delete it */
		zklock_expiry_time(&one);
		if (one.over_at > protocol_now())
			leasing->look_at = one.over_at;
	}
	*look_at = Min(leasing->look_at, zklock_contend_look_at(node));
	return true;
}

/*
 * Make a node for the owner.  The name of the lock is noted first, for the
 * worker that looks for leases whose term is over; and once more, if it may
 * have been dropped before the node was there (lease_worker.c).  If the reply
 * is lost the next look finds what there is.
 *
 * Past zklock.max_creates all of it is refused, before anything is made.
 */
static bool
make_node(ZkRoundTrip *trip, ZkLeasing *leasing)
{
	int			root_length;
	int			nparents = 0;
	int64		named_at = protocol_now();
	char		prefix[RECIPE_NODE_SIZE];
	ZkNodeData	who = {.owner = unconstify(char *, leasing->owner)};
	char	   *data;
	char	   *pointer = zklock_name_lease_path(leasing->name, &root_length);
	char	   *path;
	const ZkReply *reply;
	Moment		sent;

	/* the name, twice if its parents are not there; the node */
	if (!leasing->has_parent)
		nparents = zklock_roundtrip_count_parents(leasing->lock_path) + 1;
	zklock_write_need(nparents + zklock_roundtrip_count_parents(pointer) + 4);
	zklock_write_claim(leasing->has_parent ? 2 : 1);
	if (leasing->is_bound)
		zklock_lease_bind(&who);
	data = build_data(&who, leasing->note, leasing->ttl_ms);
	zklock_nodedata_make_guid(leasing->guid);
	recipe_mark(leasing->guid, RECIPE_MARK_LEASE);
	recipe_node_prefix(prefix, RECIPE_STYLE_CURATOR, RECIPE_EXCLUSIVE, 1,
					   leasing->guid);
	path = psprintf("%s/%s", leasing->lock_path, prefix);
	reply = leasing->has_parent ? NULL :
		zklock_roundtrip_make_parents(trip, path, root_length);
	if (reply != NULL)
		return check_reply(reply, leasing)->result != ZK_SESSION_LOST;
	reply = note_name(trip, leasing, ZK_WRITE_PAID, pointer);
	if (reply->result != ZK_OK)
		return reply->result != ZK_SESSION_LOST;

	/* one whose reply was lost may be made yet */
	zklock_client_withdraw(leasing->create);
	sent = protocol_moment();
	leasing->create = zklock_write_create(ZK_WRITE_PAID, path,
										  ZK_PERSISTENT_SEQUENTIAL, data);
	reply = zklock_roundtrip_await(trip, leasing->create);
	if (reply != NULL && reply->result != ZK_OK)
		zklock_roundtrip_unmake(trip);
	reply = check_reply(reply, leasing);
	if (reply->result == ZK_OK)
	{
		leasing->renewed = reply->czxid;
		leasing->proof = sent;
		strlcpy(leasing->place, strrchr(reply->path, '/') + 1,
				sizeof(leasing->place));
		if (protocol_now() - named_at >= NAME_MS)
			reply = note_name(trip, leasing, ZK_WRITE_COUNTED, pointer);
	}
	return reply->result != ZK_SESSION_LOST;
}

/*
 * Note it, in the znode at pointer.  What all names are below stays for good:
 * its version guards their deletion (lease_worker.c).
 */
static const ZkReply *
note_name(ZkRoundTrip *trip, ZkLeasing *leasing, ZkWriteTerms terms,
		  const char *pointer)
{
	int			root_length;
	const char *name = zklock_name_path(leasing->name, &root_length) +
		root_length + 1;
	const ZkReply *reply = set(trip, leasing, terms, pointer, name,
							   ZK_ANY_VERSION);

	if (reply->result == ZK_NO_NODE)
	{
		reply = zklock_roundtrip_create(trip, pointer,
										strrchr(pointer, '/') - pointer,
										ZK_PERSISTENT, name);
		if (reply != NULL)
			zklock_roundtrip_refuse_ephemeral(reply, pointer);
		reply = check_reply(reply, leasing);
	}
	if (reply->result == ZK_OK)
		zklock_lease_roots_wake();
	return reply;
}

/*
 * Look for the owner's node, or that with the token, and whether it is first.
 * Others whose term is over are deleted on the way.  Raises 42501 if mine is
 * bound to somebody else.
 */
static bool
find(ZkRoundTrip *trip, ZkLeasing *leasing)
{
	bool		is_done;
	bool		times_all = false;
	MemoryContext caller;

	/* somebody may wait for hours, and look each time */
	if (leasing->context == NULL)
		leasing->context = AllocSetContextCreate(CurrentMemoryContext,
												 "zklock lease look",
												 ALLOCSET_SMALL_SIZES);
	caller = MemoryContextSwitchTo(leasing->context);
	do
	{
		leasing->mine = NULL;
		MemoryContextReset(leasing->context);
		is_done = look_once(trip, leasing, times_all);

		/* where one was not renewed its neighbors may be as dead */
		times_all = true;
	} while (is_done && leasing->look_at == 0);
	MemoryContextSwitchTo(caller);
	if (is_done && leasing->mine != NULL)
		zklock_lease_check_binding(leasing->name, &leasing->mine->who);
	return is_done;
}

/* Look once.  A token may come from a server that is ahead of ours. */
static bool
look_once(ZkRoundTrip *trip, ZkLeasing *leasing, bool times_all)
{
	RecipeWish	wish = {.mode = RECIPE_EXCLUSIVE,.permits = 1};
	const ZkReply *list;
	List	   *leased;
	ZkChildren	children;
	RecipeVerdict verdict;
	int			ahead;

	leasing->is_first = true;
	leasing->lock_path = zklock_name_path(leasing->name, NULL);
	leasing->ahead = NULL;
	leasing->is_ahead_keeper = false;
	leasing->look_at = ZK_NO_DEADLINE;
	list = check_reply(leasing->owner != NULL ?
					   zklock_roundtrip_read(trip, ZK_LIST, leasing->lock_path) :
					   zklock_roundtrip_read_newest(trip, ZK_LIST,
													leasing->lock_path),
					   leasing);
	leasing->has_parent = list->result == ZK_OK;
	if (list->result != ZK_OK)
		return list->result != ZK_SESSION_LOST;
	if (!read_queue(trip, leasing,
					zklock_expiry_nodes(list->children, list->nchildren),
					times_all, &leased))
		return zklock_session_live() != 0 &&
			check_reply(NULL, leasing)->result != ZK_SESSION_LOST;
	wish.mine = leasing->mine != NULL ? leasing->mine->node : NULL;
	if (!zklock_nested_leave_out(trip, leasing->lock_path, list,
								 zklock_nested_bound(wish.mine), NULL,
								 &children))
		return zklock_session_live() != 0 &&
			check_reply(NULL, leasing)->result != ZK_SESSION_LOST;
	verdict = recipe_verdict(children.names, children.count, &wish, &ahead);
	if (verdict == RECIPE_EXHAUSTED)
		zklock_contend_raise_exhausted(leasing->name, leasing->lock_path);
	leasing->is_first = verdict == RECIPE_HELD;
	leasing->is_busy = !leasing->is_first;
	if (ahead >= 0)
	{
		leasing->ahead = psprintf("%s/%s", leasing->lock_path,
								  children.names[ahead]);
		leasing->is_ahead_keeper =
			recipe_read_mark(children.names[ahead]) == RECIPE_MARK_KEEPER;
	}
	return end_others(trip, leasing, leased);
}

/*
 * Read of the leases in the queue what the call has to know, as
 * zklock_expiry_read(), and find mine.  That of those who wait costs the same
 * however many do:  Who knows his place reads his own node, those ahead of it
 * that are new to him, and the last lease ahead of it, which is his to time.
 * The one before that is timed by whoever made the last, and if he is dead, too,
 * by us when the last one is gone.
 */
static bool
read_queue(ZkRoundTrip *trip, ZkLeasing *leasing, const List *nodes,
		   bool times_all, List **leased)
{
	*leased = NIL;
	if (is_listed(nodes, leasing->place))
	{
		if (!zklock_expiry_read(trip, leasing->lock_path,
								choose_ahead(leasing, nodes, times_all),
								leased))
			return false;
		find_mine(leasing, *leased);
	}
	if (leasing->mine == NULL && nodes != NIL)
	{
		/* one whose create may be done yet is looked for behind mine, too */
		bool		is_complete = leasing->guid[0] != '\0';
		List	   *batch = NIL;

		*leased = NIL;
		foreach_ptr(char, node, nodes)
		{
			List	   *more;

			batch = lappend(batch, node);
			if (list_length(batch) < ZK_READS_AT_ONCE && node != llast(nodes))
				continue;
			if (!zklock_expiry_read(trip, leasing->lock_path, batch, &more))
				return false;
			*leased = list_concat(*leased, more);
			find_mine(leasing, *leased);
			if (leasing->mine != NULL && !is_complete)
				break;
			list_free(batch);
			batch = NIL;
		}
	}
	if (leasing->mine != NULL)
		strlcpy(leasing->place, leasing->mine->node, sizeof(leasing->place));
	else
		leasing->place[0] = '\0';
	strlcpy(leasing->read_to, leasing->mine != NULL ? leasing->place :
			nodes != NIL ? llast(nodes) : "", sizeof(leasing->read_to));
	return true;
}

/* Which leases does who has that place read? */
static List *
choose_ahead(const ZkLeasing *leasing, const List *nodes, bool times_all)
{
	List	   *chosen = NIL;
	char	   *last = NULL;	/* ahead, and not chosen */

	foreach_ptr(char, node, nodes)
	{
		bool		is_mine = strcmp(node, leasing->place) == 0;

		if (is_mine && last != NULL)
			chosen = lappend(chosen, last);
		last = node;
		if (is_mine || times_all ||
			recipe_compare_nodes(node, leasing->read_to) > 0)
		{
			chosen = lappend(chosen, node);
			last = NULL;
		}
		if (is_mine)
			break;
	}
	return chosen;
}

static bool
is_listed(const List *nodes, const char *place)
{
	foreach_ptr(const char, node, nodes)
		if (strcmp(node, place) == 0)
		return true;
	return false;
}

/* The first one that is wanted. */
static void
find_mine(ZkLeasing *leasing, const List *leased)
{
	foreach_ptr(ZkLeased, one, leased)
		if (leasing->mine == NULL && is_wanted(leasing, one))
		leasing->mine = one;
}

/*
 * Delete others of the same owner, and those ahead of mine whose term is over.
 * false if the session is lost.
 */
static bool
end_others(ZkRoundTrip *trip, ZkLeasing *leasing, const List *leased)
{
	foreach_ptr(const ZkLeased, one, leased)
	{
		bool		is_gone;

		if (one == leasing->mine)
			continue;
		if (is_wanted(leasing, one) && zklock_lease_may_use(&one->who))
		{
			if (!zklock_expiry_remove(trip, one, &is_gone))
				return false;
			if (is_gone)
				leasing->look_at = 0;
		}
		else if (leasing->mine != NULL &&
				 recipe_compare_nodes(one->node, leasing->mine->node) > 0)
			continue;
		else if (!zklock_expiry_end(trip, leasing->lock_path, one,
									&leasing->look_at))
			return false;
	}
	return true;
}

/* One that was given up has no owner. */
static bool
is_wanted(const ZkLeasing *leasing, const ZkLeased *one)
{
	return one->who.owner != NULL &&
		(leasing->owner != NULL ? strcmp(one->who.owner, leasing->owner) == 0 :
		 one->token == leasing->token);
}

/*
 * Renew mine: leasing->renewed says whether that was done.  If not, it was
 * deleted or set by somebody else, or the reply was lost; a look tells.
 *
 * A renewal never shortens the term: another backend may rely on the one
 * before, whose term would then be over sooner than it said.
 */
static bool
renew(ZkRoundTrip *trip, ZkLeasing *leasing)
{
	ZkLeased   *mine = leasing->mine;
	int64		ttl_ms = Max(leasing->ttl_ms, mine->ttl_ms);
	char	   *data = build_data(&mine->who, leasing->note != NULL ?
								  leasing->note : mine->who.note, ttl_ms);
	bool		is_ours = leasing->renewed == mine->token ||
		is_renewed_here(mine);
	Moment		sent = protocol_moment();
	const ZkReply *reply = set(trip, leasing, ZK_WRITE_BOUNDED, mine->path,
							   data, mine->version);

	leasing->renewed = 0;
	if (reply->result == ZK_OK && reply->czxid == mine->token)
	{
		mine->version = reply->version;
		mine->ttl_ms = ttl_ms;
		leasing->renewed = mine->token;
		leasing->proof = sent;
		if (!is_ours)
			zklock_lease_log_renewal(leasing->name, mine);
	}
	return reply->result != ZK_SESSION_LOST;
}

/* Set the data of the node at that path, if it has that version. */
static const ZkReply *
set(ZkRoundTrip *trip, ZkLeasing *leasing, ZkWriteTerms terms,
	const char *path, const char *data, int version)
{
	ZkRequest  *request = zklock_write_set(terms, path, data, version);

	return check_reply(zklock_roundtrip_ask(trip, request), leasing);
}

/*
 * Who writes it, the owner and what he adds, the term, and whom it is bound to.
 * who: whose owner and binding it is; NULL: nobody's.
 */
static char *
build_data(const ZkNodeData *who, const char *note, int64 ttl_ms)
{
	static const ZkNodeData nobody;

	if (who == NULL)
		who = &nobody;
	return zklock_nodedata_build(0, "owner", who->owner, "data", note,
								 "ttl", psprintf(INT64_FORMAT, ttl_ms),
								 ZK_BOUND, who->bound,
								 ZK_BOUND_ROLE, who->bound_role, NULL);
}

/*
 * The reply, if it can be gone on with; raises otherwise, and if there is none
 * in time.  But where it is known that others are ahead, and there is a
 * connection, the wait is over, and the caller is to end as with a session that
 * was lost.
 */
static const ZkReply *
check_reply(const ZkReply *reply, ZkLeasing *leasing)
{
	static const ZkReply over = {.result = ZK_SESSION_LOST};

	if (reply == NULL && leasing->is_busy && !leasing->bounds.is_at_once &&
		protocol_now() >= leasing->bounds.deadline &&
		zklock_session_is_connected())
	{
		leasing->is_over = true;
		return &over;
	}
	if (reply == NULL)
		zklock_session_raise_silence(leasing->name);
	switch (reply->result)
	{
		case ZK_OK:
		case ZK_NO_NODE:
		case ZK_NODE_EXISTS:
		case ZK_BAD_VERSION:
		case ZK_UNKNOWN_OUTCOME:
		case ZK_SESSION_LOST:
			return reply;
		default:
			zklock_roundtrip_refuse_ephemeral(reply, leasing->lock_path);
			zklock_session_raise(reply, "use a lease", leasing->lock_path);
	}
}

/* ---------------------------------------------------------------------
 * What this backend knows
 * ---------------------------------------------------------------------
 */

void
zklock_lease_note(const ZkLeasing *leasing, bool is_used)
{
	const ZkLeased *mine = leasing->mine;
	Known	   *known = find_known(mine->token);

	if (known == NULL || mine != &known->leased)
		known = learn(leasing, known);
	known->proof = leasing->proof;
	known->is_place = known->is_outdated = false;
	if (is_used && known->user == InvalidSubTransactionId)
	{
		known->user = GetCurrentSubTransactionId();
		dlist_push_head(&used, &known->use);
		nused++;
	}
}

void
zklock_lease_note_place(const ZkLeasing *leasing)
{
	learn(leasing, find_known(leasing->mine->token))->is_place = true;
}

void
zklock_lease_distrust(int64 token)
{
	Known	   *known = find_known(token);

	if (known != NULL)
		memset(&known->proof, 0, sizeof(known->proof));
}

/* NULL: this backend has not renewed it. */
static Known *
find_known(int64 token)
{
	return all_known == NULL ? NULL :
		hash_search(all_known, &token, HASH_FIND, NULL);
}

/* Is that version of its data this backend's? */
static bool
is_renewed_here(const ZkLeased *leased)
{
	const Known *known = find_known(leased->token);

	return known != NULL && !known->is_outdated &&
		known->leased.version == leased->version &&
		strcmp(known->leased.path, leased->path) == 0;
}

/*
 * Where does the owner stand, as far as this backend knows?  Nobody but he can
 * have come ahead of him since.
 */
static void
guess_place(ZkLeasing *leasing)
{
	char	   *lock_path = zklock_name_path(leasing->name, NULL);
	uint64		key = standing_key(lock_path, strlen(lock_path),
								   leasing->owner);
	const Standing *standing = standings == NULL ? NULL :
		hash_search(standings, &key, HASH_FIND, NULL);
	const Known *known = standing == NULL ? NULL :
		find_known(standing->token);
	const char *node;

	if (known == NULL)
		return;
	node = strrchr(known->leased.path, '/') + 1;
	if (strcmp(known->leased.who.owner, leasing->owner) != 0 ||
		strcmp(known->leased.path, psprintf("%s/%s", lock_path, node)) != 0)
		return;
	strlcpy(leasing->place, node, sizeof(leasing->place));
	strlcpy(leasing->read_to, node, sizeof(leasing->read_to));
}

/* Copy what was found to an entry, which may be NULL. */
static Known *
learn(const ZkLeasing *leasing, Known *known)
{
	const ZkLeased *mine = leasing->mine;
	const char *note = leasing->note != NULL ? leasing->note : mine->who.note;
	Standing   *standing;
	uint64		key;

	if (all_known == NULL || (hash_get_num_entries(all_known) >= KNOWN_MAX &&
							  nused == 0))
	{
		forget_all();
		known = NULL;
	}
	if (known == NULL)
	{
		Known		fresh = {.token = mine->token,.leased.token = mine->token};

		fresh.name = MemoryContextStrdup(KnownContext, leasing->name);
		fresh.leased.path = MemoryContextStrdup(KnownContext, mine->path);
		fresh.leased.who.owner = MemoryContextStrdup(KnownContext,
													 mine->who.owner);
		known = hash_search(all_known, &mine->token, HASH_ENTER, NULL);
		*known = fresh;
	}
	key = standing_key(known->leased.path,
					   strrchr(known->leased.path, '/') - known->leased.path,
					   known->leased.who.owner);
	standing = hash_search(standings, &key, HASH_ENTER, NULL);
	standing->token = known->token;
	known->leased.version = mine->version;
	known->leased.ttl_ms = mine->ttl_ms;
	keep_text(&known->leased.who.note, note);
	keep_text(&known->leased.who.bound, mine->who.bound);
	keep_text(&known->leased.who.bound_role, mine->who.bound_role);
	return known;
}

/* Begin with empty tables. */
static void
forget_all(void)
{
	HASHCTL		known_control = {
		.keysize = sizeof(int64),.entrysize = sizeof(Known)
	};
	HASHCTL		standing_control = {
		.keysize = sizeof(uint64),.entrysize = sizeof(Standing)
	};

	if (KnownContext == NULL)
		KnownContext = AllocSetContextCreate(TopMemoryContext, "zklock leases",
											 ALLOCSET_SMALL_SIZES);
	all_known = standings = NULL;
	MemoryContextReset(KnownContext);
	known_control.hcxt = standing_control.hcxt = KnownContext;
	standings = hash_create("zklock places of leases", 64, &standing_control,
							HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	all_known = hash_create("zklock leases", 64, &known_control,
							HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

/* Of the lock with that path, which is as long. */
static uint64
standing_key(const char *path, int length, const char *owner)
{
	return hash_combine64(hash_bytes_extended((const unsigned char *) path,
											  length, 0),
						  hash_bytes_extended((const unsigned char *) owner,
											  strlen(owner), 0));
}

/* Replace a text of a Known, or NULL, by a copy. */
static void
keep_text(char **text, const char *value)
{
	char	   *former = *text;

	if (former == value)
		return;
	*text = value != NULL ? MemoryContextStrdup(KnownContext, value) : NULL;
	if (former != NULL)
		pfree(former);
}

/* ---------------------------------------------------------------------
 * What this transaction rests on
 * ---------------------------------------------------------------------
 */

bool
zklock_lease_is_used(void)
{
	return nused > 0;
}

int64
zklock_lease_shortest_ttl(void)
{
	int64		shortest_ms = ZK_TERM_MAX;
	dlist_iter	iterator;

	dlist_foreach(iterator, &used)
		shortest_ms = Min(shortest_ms,
						  dlist_container(Known, use,
										  iterator.cur)->leased.ttl_ms);
	return shortest_ms;
}

void
zklock_lease_prove(bool always_ask)
{
	Proving		proving = {.always_ask = always_ask};

	if (zklock_lease_is_used() && (always_ask || !zklock_lease_is_proved()))
		zklock_roundtrip_run(prove_leases, end_renewals, &proving);
}

bool
zklock_lease_is_proved(void)
{
	dlist_iter	iterator;

	dlist_foreach(iterator, &used)
	{
		if (!is_fresh(dlist_container(Known, use, iterator.cur)))
			return false;
	}
	return true;
}

void
zklock_lease_end_use(SubTransactionId mine, SubTransactionId heir)
{
	dlist_mutable_iter iterator;

	dlist_foreach_modify(iterator, &used)
	{
		Known	   *known = dlist_container(Known, use, iterator.cur);

		if (mine != InvalidSubTransactionId && known->user != mine)
			break;				/* all others were used before it began */
		known->user = heir;
		if (heir != InvalidSubTransactionId)
			continue;
		dlist_delete(&known->use);
		nused--;
	}
}

void
zklock_lease_raise_lost(const char *name, int64 token)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("the lease of lock \"%s\" with fencing token " INT64_FORMAT " is not held",
					name, token),
			 errdetail("It was given up, evicted, or not renewed within its term, or ZooKeeper does not answer."),
			 errhint("Take the lease again with zk_try_lease(), and run the transaction again with its token.")));
}

void
zklock_lease_raise_unproved(bool is_answered)
{
	zklock_stat_count(ZK_STAT_REFUSED_COMMIT);
	ereport(ERROR,
			(errcode(ERRCODE_CONNECTION_FAILURE),
			 errmsg("could not prove that the leases of this transaction are held"),
			 is_answered ?
			 errdetail("ZooKeeper answers, but too late for what it says to be still certain.") :
			 errdetail("ZooKeeper did not answer within twice the session timeout."),
			 errhint("Increase \"%s\" and the ttl of the leases, or find out with zk_check() what slows the ensemble down.",
					 "zklock.session_timeout")));
}

/*
 * Was it renewed so lately that enough of its term is left for a commit?  It
 * may have been evicted or given up since, so it is trusted no longer than a
 * lock of a session.
 */
static bool
is_fresh(const Known *known)
{
	ZkClientStatus status;
	Moment		since = protocol_moment();
	int64		usable_ms = zklock_session_status(&status) ?
		Min(known->leased.ttl_ms * FRESH_TENTHS / 10,
			status.session_timeout_ms / 3) : 0;

	since.boot_ms -= usable_ms;
	since.wall_ms -= usable_ms;
	return contact_is_after(known->proof, since);
}

/* ---------------------------------------------------------------------
 * Renewals at a commit
 * ---------------------------------------------------------------------
 */

/*
 * Renew all that are to be, in one flush, until each has a fresh proof.
 * Raises if one is lost, or the session, at the deadline, and when answers
 * come too late for that again and again.
 */
static bool
prove_leases(ZkRoundTrip *trip, void *argument)
{
	Proving    *proving = argument;
	dlist_iter	iterator;

	dlist_foreach(iterator, &used)
		dlist_container(Known, use, iterator.cur)->is_renewed = false;
	proving->begun_at = protocol_now();
	trip->deadline = proving_deadline(proving->begun_at);
	trip->by = ZK_BY_CALLER;
	while (choose(proving))
	{
		if (proving->attempts++ == ZK_PROOF_ATTEMPTS)
			zklock_lease_raise_unproved(true);
		if (!read_outdated(trip, proving) || !renew_all(trip, proving))
			refuse_commit(proving->renewals[0].known);
	}
	return true;
}

/*
 * Until when all of it must be done: after its term a lease may be another's.
 * Without any answer the session is lost before; who answers heartbeats alone
 * has twice that time.  The session may be a new one, which has no timeout yet:
 * the one before was idle, or lost.
 */
static int64
proving_deadline(int64 begun_at)
{
	ZkClientStatus status;
	int64		deadline = zklock_session_reply_deadline(begun_at);

	if (zklock_session_status(&status) && status.was_connected)
		deadline = begun_at + 2 * status.session_timeout_ms;
	return Min(deadline, begun_at + zklock_lease_shortest_ttl());
}

/* Find those that are to be renewed now; false: none. */
static bool
choose(Proving *proving)
{
	dlist_iter	iterator;

	end_renewals(proving);
	if (proving->renewals == NULL)
		proving->renewals = palloc0(nused * sizeof(Renewal));
	dlist_foreach(iterator, &used)
	{
		Known	   *known = dlist_container(Known, use, iterator.cur);

		/* not by time: a renewal of the same millisecond came before it */
		bool		is_asked = !proving->always_ask || known->is_renewed;

		if (!is_asked || !is_fresh(known))
			proving->renewals[proving->nrenewals++].known = known;
	}
	return proving->nrenewals > 0;
}

/*
 * Read anew what somebody else has renewed meanwhile, or this commit itself
 * without an answer.  false if the session is lost.
 */
static bool
read_outdated(ZkRoundTrip *trip, const Proving *proving)
{
	for (int i = 0; i < proving->nrenewals; i++)
		if (proving->renewals[i].known->is_outdated)
			(void) zklock_roundtrip_look(trip, ZK_GET,	/* asked for */
										 proving->renewals[i].known->leased.path);
	if (!zklock_roundtrip_await_looks(trip))
	{
		if (zklock_session_live() != 0)
			raise_silence(proving, NULL);
		return false;
	}
	for (int i = 0; i < proving->nrenewals; i++)
	{
		Known	   *known = proving->renewals[i].known;

		if (known->is_outdated)
			note_read(known, zklock_roundtrip_look(trip, ZK_GET,
												   known->leased.path));
	}
	zklock_roundtrip_end_looks(trip);
	return true;
}

/*
 * Take what the read says.  A server that lags behind may not have the node
 * yet: the renewal tells.  Without its owner it was given up.
 */
static void
note_read(Known *known, const ZkReply *reply)
{
	ZkLeased	read = {0};

	if (reply->result == ZK_NO_NODE)
		return;
	if (reply->result != ZK_OK)
		zklock_session_raise(reply, "use a lease", known->leased.path);
	if (!zklock_expiry_take(&read, reply) ||
		read.token != known->leased.token || read.who.owner == NULL ||
		strcmp(read.who.owner, known->leased.who.owner) != 0)
		refuse_commit(known);
	known->leased.version = read.version;
	known->leased.ttl_ms = read.ttl_ms;
	keep_text(&known->leased.who.note, read.who.note);
	keep_text(&known->leased.who.bound, read.who.bound);
	keep_text(&known->leased.who.bound_role, read.who.bound_role);
}

/*
 * Send the renewals together, and await all.  Result as read_outdated().
 * Raises past zklock.max_creates, before any is sent.
 */
static bool
renew_all(ZkRoundTrip *trip, Proving *proving)
{
	zklock_write_claim(proving->nrenewals);
	for (int i = 0; i < proving->nrenewals; i++)
	{
		Renewal    *renewal = &proving->renewals[i];
		const ZkLeased *leased = &renewal->known->leased;
		char	   *data = build_data(&leased->who, leased->who.note,
									  leased->ttl_ms);

		/* until there is an answer */
		renewal->known->is_outdated = true;
		renewal->sent = protocol_moment();
		renewal->request = zklock_write_set(ZK_WRITE_PAID, leased->path, data,
											leased->version);
	}
	for (int i = 0; i < proving->nrenewals; i++)
	{
		Renewal    *renewal = &proving->renewals[i];
		const ZkReply *reply = zklock_roundtrip_await(trip, renewal->request);

		if (reply == NULL)
			raise_silence(proving, renewal->known);
		if (reply->result == ZK_SESSION_LOST)
			return false;
		note_renewal(renewal, reply);
	}
	return true;
}

static void
note_renewal(Renewal *renewal, const ZkReply *reply)
{
	Known	   *known = renewal->known;

	switch (reply->result)
	{
		case ZK_OK:
			if (reply->czxid != known->leased.token)
				refuse_commit(known);
			known->leased.version = reply->version;
			known->is_outdated = false;
			known->is_renewed = true;
			known->proof = renewal->sent;
			break;
		case ZK_NO_NODE:
			refuse_commit(known);
		case ZK_BAD_VERSION:
		case ZK_UNKNOWN_OUTCOME:
			break;
		default:
			zklock_session_raise(reply, "use a lease", known->leased.path);
	}
}

/* At the end of each attempt. */
static void
end_renewals(void *argument)
{
	Proving    *proving = argument;

	for (int i = 0; i < proving->nrenewals; i++)
	{
		zklock_client_free(proving->renewals[i].request);
		proving->renewals[i].request = NULL;
	}
	proving->nrenewals = 0;
}

/*
 * The time is over: that of a lease, which another may have by now, or that
 * for the answer.
 */
static void
raise_silence(const Proving *proving, const Known *known)
{
	if (known != NULL &&
		protocol_now() >= proving->begun_at + known->leased.ttl_ms)
		refuse_commit(known);
	zklock_lease_raise_unproved(false);
}

static void
refuse_commit(const Known *known)
{
	zklock_stat_count(ZK_STAT_REFUSED_COMMIT);
	zklock_lease_raise_lost(known->name, known->leased.token);
}
