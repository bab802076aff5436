/*-------------------------------------------------------------------------
 *
 * lease_node.c
 *	  The queue node of a lease: found in its queue, read, renewed.
 *
 * A lease is a persistent node in the lock's queue; expiry.c says what keeps
 * it alive.  A call that names the owner of the lease, or its token, may renew
 * it, from any backend of any cluster.  Its token is the czxid of its node.
 *
 * A lease does not end with a session, so a reply that is lost does no harm:
 * a node that was created is found by its owner, and one that is not found any
 * more was given up by the call that had tried.  An owner has two nodes if it
 * asked twice at a time, or if a create was executed late.  Then the first one
 * counts, and a call that sees the others deletes them.  One that no call sees
 * is over after its term.
 *
 *-------------------------------------------------------------------------
 */
#include "lease_node.h"

#include "utils/memutils.h"

#include "compat.h"
#include "contender.h"
#include "ephemeral.h"
#include "lease_known.h"
#include "name.h"
#include "nested.h"
#include "recall.h"
#include "recipe.h"
#include "session.h"
#include "text.h"

static ZkOutcome look_once(ZkRoundTrip *trip, ZkLeasing *leasing,
						   bool times_all);
static ZkOutcome read_again(ZkRoundTrip *trip, ZkLeasing *leasing);
static void note_ahead(ZkLeasing *leasing, const char *ahead);
static ZkOutcome read_queue(ZkRoundTrip *trip, ZkLeasing *leasing,
							const List *nodes, bool times_all, List **leased);
static ZkOutcome read_known_place(ZkRoundTrip *trip, ZkLeasing *leasing,
								  const List *nodes, bool times_all,
								  List **leased);
static ZkOutcome read_in_order(ZkRoundTrip *trip, ZkLeasing *leasing,
							   const List *nodes, List **leased);
static List *choose_ahead(const ZkLeasing *leasing, const List *nodes,
						  bool times_all);
static bool is_listed(const List *nodes, const char *place);
static void find_mine(ZkLeasing *leasing, const List *leased);
static ZkOutcome end_others(ZkRoundTrip *trip, ZkLeasing *leasing,
							const List *leased);
static bool is_wanted(const ZkLeasing *leasing, const ZkLeased *one);
static void log_renewal(const char *name, const ZkLeased *leased);

bool
zklock_lease_is_first(const ZkLeasing *leasing)
{
	return leasing->view.who_ahead == ZK_AHEAD_NOBODY;
}

ZkOutcome
zklock_lease_find(ZkRoundTrip *trip, ZkLeasing *leasing)
{
	ZkLeaseView *view = &leasing->view;
	ZkOutcome	outcome;
	bool		times_all = false;
	MemoryContext caller;

	/* somebody may wait for hours, and look each time */
	if (view->context == NULL)
		view->context = AllocSetContextCreate(CurrentMemoryContext,
											  "zklock lease look",
											  ALLOCSET_SMALL_SIZES);
	caller = MemoryContextSwitchTo(view->context);
	do
	{
		leasing->mine = NULL;
		MemoryContextReset(view->context);
		outcome = look_once(trip, leasing, times_all);
		if (outcome == ZK_ANSWERED && leasing->owner == NULL &&
			leasing->mine == NULL && view->unread != NULL)
			outcome = read_again(trip, leasing);

		/* where one was not renewed its neighbors may be as dead */
		times_all = true;
	} while (outcome == ZK_ANSWERED && view->look_at == ZK_LOOK_NOW);
	MemoryContextSwitchTo(caller);
	return outcome;
}

/*
 * The lease with that token may be the one that could not be read, so nobody can
 * say that there is none.  Raises what ZooKeeper says of it.  If it can be read
 * now, or is gone, the look is repeated.
 */
static ZkOutcome
read_again(ZkRoundTrip *trip, ZkLeasing *leasing)
{
	ZkLeaseView *view = &leasing->view;
	const ZkReply *reply;
	ZkOutcome	outcome;

	view->look_at = ZK_LOOK_NOW;
	zklock_roundtrip_note_doubt(trip, view->unread, ZK_REFUSED_ONCE);
	outcome = zklock_roundtrip_read(trip, ZK_GET, view->unread, &reply);
	if (outcome == ZK_ANSWERED)
		zklock_lease_check(leasing, reply);
	return outcome;
}

/* Look once.  A token may come from a server that is ahead of ours. */
static ZkOutcome
look_once(ZkRoundTrip *trip, ZkLeasing *leasing, bool times_all)
{
	ZkLeaseView *view = &leasing->view;
	const ZkOrder *order = &leasing->order;
	RecipeWish	wish = {.mode = order->mode,.permits = order->permits};
	const ZkReply *list;
	ZkOutcome	outcome;
	List	   *leased;
	ZkChildren	children;
	RecipeVerdict verdict;
	int			ahead;

	view->lock_path = leasing->order.name.path;
	view->ahead = NULL;
	view->unread = NULL;
	view->look_at = ZK_NO_DEADLINE;
	if (leasing->owner != NULL)
		outcome = zklock_roundtrip_read(trip, ZK_LIST, view->lock_path, &list);
	else
		outcome = zklock_roundtrip_read_newest(trip, ZK_LIST, view->lock_path,
											   &list);
	if (outcome != ZK_ANSWERED)
		return outcome;
	zklock_lease_check(leasing, list);
	view->has_parent = list->result == ZK_OK;
	if (!view->has_parent)
	{
		view->who_ahead = ZK_AHEAD_NOBODY;
		return ZK_ANSWERED;
	}
	outcome = read_queue(trip, leasing,
						 zklock_expiry_nodes(list->children, list->nchildren),
						 times_all, &leased);
	if (outcome != ZK_ANSWERED)
		return outcome;
	if (leasing->mine != NULL)
		wish.mine = leasing->mine->node;
	outcome = zklock_nested_leave_out(trip, view->lock_path, list,
									  zklock_nested_bound(wish.mine), NULL,
									  &children);
	if (outcome != ZK_ANSWERED)
		return outcome;
	verdict = recipe_verdict(children.names, children.count, &wish, &ahead);
	if (verdict == RECIPE_EXHAUSTED)
		zklock_contend_raise_exhausted(leasing->order.name.text, view->lock_path);
	Assert((verdict == RECIPE_HELD) == (ahead < 0));
	note_ahead(leasing, ahead >= 0 ? children.names[ahead] : NULL);
	return end_others(trip, leasing, leased);
}

/* That node is just ahead of mine; NULL: none is. */
static void
note_ahead(ZkLeasing *leasing, const char *ahead)
{
	ZkLeaseView *view = &leasing->view;

	if (ahead == NULL)
	{
		view->who_ahead = ZK_AHEAD_NOBODY;
		return;
	}
	view->ahead = psprintf("%s/%s", view->lock_path, ahead);
	if (recipe_read_mark(ahead) == RECIPE_MARK_KEEPER)
		view->who_ahead = ZK_AHEAD_KEEPER;
	else
		view->who_ahead = ZK_AHEAD_OTHER;
}

/*
 * Read of the leases in the queue what the call has to know, as
 * zklock_expiry_read(), and find mine.
 */
static ZkOutcome
read_queue(ZkRoundTrip *trip, ZkLeasing *leasing, const List *nodes,
		   bool times_all, List **leased)
{
	ZkOutcome	outcome = ZK_ANSWERED;

	*leased = NIL;
	if (is_listed(nodes, leasing->place))
		outcome = read_known_place(trip, leasing, nodes, times_all, leased);
	if (outcome == ZK_ANSWERED && leasing->mine == NULL && nodes != NIL)
		outcome = read_in_order(trip, leasing, nodes, leased);
	if (outcome != ZK_ANSWERED)
		return outcome;
	if (leasing->mine != NULL)
	{
		strlcpy(leasing->place, leasing->mine->node, sizeof(leasing->place));
		strlcpy(leasing->read_to, leasing->place, sizeof(leasing->read_to));
	}
	else
	{
		leasing->place[0] = '\0';
		leasing->read_to[0] = '\0';
		if (nodes != NIL)
			strlcpy(leasing->read_to, llast(nodes), sizeof(leasing->read_to));
	}
	return ZK_ANSWERED;
}

/*
 * The call knows its place: what it reads costs the same however many wait.  It
 * reads its own node, those ahead of it that are new to it, and the last lease
 * ahead of it, which is the one that it has to time.  The lease before that one
 * is timed by the maker of the last; if that maker is dead, too, by us when the
 * last one is gone.
 */
static ZkOutcome
read_known_place(ZkRoundTrip *trip, ZkLeasing *leasing, const List *nodes,
				 bool times_all, List **leased)
{
	ZkOutcome	outcome = zklock_expiry_read(trip, leasing->view.lock_path,
											 choose_ahead(leasing, nodes,
														  times_all),
											 leased, &leasing->view.unread);

	if (outcome == ZK_ANSWERED)
		find_mine(leasing, *leased);
	return outcome;
}

/* Read them from the first on, until mine is found. */
static ZkOutcome
read_in_order(ZkRoundTrip *trip, ZkLeasing *leasing, const List *nodes,
			  List **leased)
{
	List	   *batch = NIL;

	*leased = NIL;
	foreach_ptr(char, node, nodes)
	{
		List	   *more;
		ZkOutcome	outcome;

		batch = lappend(batch, node);
		if (list_length(batch) < ZK_READS_AT_ONCE && node != llast(nodes))
			continue;
		outcome = zklock_expiry_read(trip, leasing->view.lock_path, batch,
									 &more, &leasing->view.unread);
		if (outcome != ZK_ANSWERED)
			return outcome;
		*leased = list_concat(*leased, more);
		find_mine(leasing, *leased);
		if (leasing->mine != NULL && !leasing->reads_behind)
			break;
		list_free(batch);
		batch = NIL;
	}
	return ZK_ANSWERED;
}

/* Which leases does a call read that has that place? */
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
	{
		if (strcmp(node, place) == 0)
			return true;
	}
	return false;
}

/* The first one that is wanted. */
static void
find_mine(ZkLeasing *leasing, const List *leased)
{
	foreach_ptr(ZkLeased, one, leased)
	{
		if (leasing->mine == NULL && is_wanted(leasing, one))
			leasing->mine = one;
	}
}

/*
 * Delete others of the same owner, and those ahead of mine whose term is over.
 */
static ZkOutcome
end_others(ZkRoundTrip *trip, ZkLeasing *leasing, const List *leased)
{
	ZkLeaseView *view = &leasing->view;
	ZkOutcome	outcome = ZK_ANSWERED;

	foreach_ptr(const ZkLeased, one, leased)
	{
		bool		is_gone;

		if (one == leasing->mine)
			continue;
		if (is_wanted(leasing, one))
		{
			outcome = zklock_expiry_remove(trip, one, &is_gone);
			if (outcome != ZK_ANSWERED)
				return outcome;
			if (is_gone)
				view->look_at = ZK_LOOK_NOW;
			zklock_expiry_debug(one->path, one->token, "%s: its owner has one ahead of it",
								is_gone ? "deleted" : "not deleted");
		}
		else if (leasing->mine != NULL &&
				 recipe_compare_nodes(one->node, leasing->mine->node) > 0)
			continue;
		else
		{
			outcome = zklock_expiry_end(trip, view->lock_path, one,
										&view->look_at);
			if (outcome != ZK_ANSWERED)
				return outcome;
		}
	}
	return outcome;
}

/* One that was given up has no owner. */
static bool
is_wanted(const ZkLeasing *leasing, const ZkLeased *one)
{
	if (one->who.owner == NULL)
		return false;
	if (leasing->owner != NULL)
		return strcmp(one->who.owner, leasing->owner) == 0;
	return one->token == leasing->token;
}

/*
 * A renewal never shortens the term: another backend may rely on the renewal
 * before, whose term would then be over sooner than it said.
 */
ZkOutcome
zklock_lease_renew_node(ZkRoundTrip *trip, ZkLeasing *leasing)
{
	ZkLeased   *mine = leasing->mine;
	int64		ttl_ms = Max(leasing->ttl_ms, mine->ttl_ms);
	const char *note = leasing->note != NULL ? leasing->note : mine->who.note;
	bool		is_ours = leasing->renewed == mine->token ||
		zklock_known_is_renewed_here(mine);
	char	   *data = zklock_lease_build_data(mine->who.owner, note, ttl_ms);
	Moment		sent = protocol_moment();
	char		path[ZK_RECALL_PATH_SIZE];
	const ZkReply *request;
	const ZkReply *reply;
	ZkOutcome	outcome;

	Assert(mine->token != 0);
	if (zklock_recall_path(path, leasing->view.lock_path,
						   leasing->order.name.root_length,
						   strrchr(mine->path, '/') + 1))
		zklock_roundtrip_get_ahead(trip, path);
	outcome = zklock_roundtrip_ask(trip,
								   zklock_client_set(zklock_session_client(),
													 mine->path, data,
													 mine->version),
								   &reply);
	leasing->renewed = 0;
	if (outcome == ZK_LATE || outcome == ZK_LOST)
		return outcome;
	if (outcome == ZK_ANSWERED)
		zklock_lease_check(leasing, reply);
	if (reply->result != ZK_OK || reply->czxid != mine->token)
	{
		zklock_expiry_debug(mine->path, mine->token,
							"not renewed: its version is not %d any more, it is gone, or the outcome is unknown",
							mine->version);

		/* an unknown outcome is no refusal: nothing is asked about it */
		return zklock_roundtrip_check_refusal(trip, reply->result, mine->path,
											  mine->token, mine->version);
	}
	mine->version = reply->version;
	mine->ttl_ms = ttl_ms;
	leasing->renewed = mine->token;
	leasing->proof = sent;
	if (zklock_roundtrip_reply_ahead(trip, &request) == ZK_ANSWERED &&
		request->result == ZK_OK)
		zklock_recall_tell(leasing->order.name.text, request);
	if (!is_ours)
		log_renewal(leasing->order.name.text, mine);
	zklock_expiry_debug(mine->path, mine->token,
						"renewed for " INT64_FORMAT " ms", ttl_ms);
	return ZK_ANSWERED;
}

char *
zklock_lease_build_data(const char *owner, const char *note, int64 ttl_ms)
{
	return zklock_nodedata_build(0, "owner", owner, "data", note,
								 "ttl", psprintf(INT64_FORMAT, ttl_ms), NULL);
}

/*
 * For the server's log, if the data says that another user, or one of another
 * database or cluster, has renewed the lease last.
 */
static void
log_renewal(const char *name, const ZkLeased *leased)
{
	if (!zklock_nodedata_is_known(&leased->who) ||
		zklock_nodedata_is_by_us(&leased->who))
		return;
	ereport(zklock_nodedata_logs(false) ? LOG_SERVER_ONLY : DEBUG1,
			(errmsg("%s renews a lease of ZooKeeper lock \"%s\" that others have taken or renewed",
					zklock_nodedata_caller(),
					zklock_text_quotable_own(name)),
			 errdetail_log("Owner \"%s\", fencing token " INT64_FORMAT ". Last taken or renewed by: %s.",
						   zklock_text_quotable(leased->who.owner),
						   leased->token,
						   zklock_nodedata_describe(&leased->who))));
}

void
zklock_lease_check(const ZkLeasing *leasing, const ZkReply *reply)
{
	Assert(leasing->view.lock_path != NULL);
	switch (reply->result)
	{
		case ZK_OK:
		case ZK_NO_NODE:
		case ZK_NODE_EXISTS:
		case ZK_BAD_VERSION:
			break;
		default:
			zklock_ephemeral_refuse(reply, leasing->view.lock_path);
			zklock_session_raise(reply, "use a lease", leasing->view.lock_path);
	}
}
