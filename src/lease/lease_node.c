/*-------------------------------------------------------------------------
 *
 * lease_node.c
 *	  Finds, reads and renews the queue node of a lease.
 *
 * A lease is a persistent node in the lock's queue; expiry.c says what keeps
 * it alive.  A call that names its token, or the owner, may renew it, from any
 * backend of any cluster.
 *
 * The token stands in the node's name, so a list finds it, and nobody who may
 * set the data can change it.  Whoever may create nodes in the queue can make
 * another one of that name when the first is gone.  That one has another czxid,
 * and a backend that knows the lease takes it for none.  One that is forged
 * while others hold the lock is none either, for it stands behind them, unless its
 * maker has given it a lower number (security.md).
 *
 *-------------------------------------------------------------------------
 */
#include "lease_node.h"

#include "compat.h"
#include "ephemeral.h"
#include "lease_known.h"
#include "nested.h"
#include "release_request.h"
#include "recipe.h"
#include "session.h"
#include "text.h"

static ZkOutcome list_with_token(ZkRoundTrip *trip, const ZkLeasing *leasing,
								 const ZkReply *list, List **nodes);
static int64 expected_czxid(const ZkName *name, const ZkLeased *read);
static void log_renewal(const char *name, const ZkLeased *leased);

/* A token may come from a server that is ahead of ours. */
ZkOutcome
zklock_lease_find(ZkRoundTrip *trip, ZkLeasing *leasing)
{
	const char *lock_path = leasing->name.path;
	const ZkReply *list;
	ZkOutcome	outcome;
	List	   *nodes;

	Assert(leasing->token != 0);
	leasing->mine = NULL;
	outcome = zklock_roundtrip_read_newest(trip, ZK_LIST, lock_path, &list);
	if (outcome != ZK_ANSWERED)
		return outcome;
	zklock_lease_check(&leasing->name, list);
	outcome = list_with_token(trip, leasing, list, &nodes);
	if (outcome != ZK_ANSWERED)
		return outcome;
	foreach_ptr(const char, node, nodes)
	{
		if (leasing->mine != NULL)
			break;
		outcome = zklock_lease_read(trip, leasing,
									psprintf("%s/%s", lock_path, node));
		if (outcome != ZK_ANSWERED)
			break;
	}
	return outcome;
}

/*
 * The names of leases with the token that hold the lock.  There are more than
 * one only if somebody has forged some.
 */
static ZkOutcome
list_with_token(ZkRoundTrip *trip, const ZkLeasing *leasing,
				const ZkReply *list, List **nodes)
{
	*nodes = NIL;
	for (int i = 0; i < list->nchildren; i++)
	{
		const char *child = list->children[i];
		ZkChildren	children;
		ZkOutcome	outcome;

		if (recipe_read_mark(child) != RECIPE_MARK_LEASE ||
			recipe_read_token(child) != leasing->token)
			continue;
		outcome = zklock_nested_leave_out(trip, leasing->name.path, list,
										  zklock_nested_bound(child), NULL,
										  &children);
		if (outcome != ZK_ANSWERED)
			return outcome;
		if (zklock_expiry_holds(&children, child))
			*nodes = lappend(*nodes, pstrdup(child));
		zklock_nested_free(&children);
	}
	return ZK_ANSWERED;
}

/* One without an owner was given up. */
ZkOutcome
zklock_lease_read(ZkRoundTrip *trip, ZkLeasing *leasing, const char *path)
{
	ZkLeased   *one = palloc0(sizeof(*one));
	const ZkReply *reply;
	ZkOutcome	outcome = zklock_roundtrip_read(trip, ZK_GET, path, &reply);

	leasing->mine = NULL;
	if (outcome != ZK_ANSWERED)
		return outcome;
	zklock_lease_check(&leasing->name, reply);
	one->path = pstrdup(path);
	one->node = strrchr(one->path, '/') + 1;
	if (zklock_expiry_take(one, reply))
		zklock_lease_accept(leasing, one);
	return ZK_ANSWERED;
}

void
zklock_lease_accept(ZkLeasing *leasing, ZkLeased *read)
{
	leasing->mine = NULL;
	if (read->who.owner == NULL || read->token <= 0 ||
		read->token >= read->czxid)
		return;					/* its twin was made before it */
	if (leasing->czxid == 0)
		leasing->czxid = expected_czxid(&leasing->name, read);
	if (leasing->czxid == read->czxid)
		leasing->mine = read;
}

/* That of the lease that this backend knows, or else of what was read. */
static int64
expected_czxid(const ZkName *name, const ZkLeased *read)
{
	const ZkKnownLease *known = zklock_known_find(name->path, read->token);

	if (known != NULL)
		return known->leased.czxid;
	return read->czxid;
}

/*
 * A renewal never shortens the term: another backend may rely on the renewal
 * before, whose term would then be over sooner than it said.
 */
ZkOutcome
zklock_lease_renew_node(ZkRoundTrip *trip, ZkLeasing *leasing)
{
	ZkLeased   *mine = leasing->mine;
	int64		term_ms = Max(leasing->term_ms, mine->term_ms);
	const char *note = leasing->note != NULL ? leasing->note : mine->who.note;
	bool		is_ours = leasing->is_renewed ||
		zklock_known_is_renewed_here(leasing->name.path, mine);
	char	   *data = zklock_lease_build_data(mine->who.owner, note, term_ms);
	Moment		sent = protocol_moment();
	const ZkReply *request;
	const ZkReply *reply;
	ZkOutcome	outcome;

	leasing->is_renewed = false;
	zklock_release_request_get_ahead(trip, leasing->name.path, leasing->name.root_length,
									 mine->node);
	outcome = zklock_roundtrip_ask(trip,
								   zklock_client_set(zklock_session_client(),
													 mine->path, data,
													 mine->version),
								   &reply);
	if (outcome == ZK_LATE || outcome == ZK_LOST)
		return outcome;
	if (outcome == ZK_ANSWERED)
		zklock_lease_check(&leasing->name, reply);
	if (outcome == ZK_UNKNOWN || reply->result != ZK_OK ||
		reply->czxid != mine->czxid)
	{
		zklock_expiry_debug(mine->path, mine->token,
							"not renewed: its version is not %d any more, it is gone, or the outcome is unknown",
							mine->version);
		if (outcome == ZK_UNKNOWN)
			return ZK_ANSWERED;
		return zklock_roundtrip_check_refusal(trip, reply->result, mine->path,
											  mine->czxid, mine->version);
	}
	mine->version = reply->version;
	mine->term_ms = term_ms;
	leasing->is_renewed = true;
	leasing->proof = sent;
	request = zklock_release_request_reply_ahead(trip);
	if (!is_ours)
		log_renewal(leasing->name.text, mine);
	if (request != NULL)
		zklock_release_request_tell(leasing->name.text, request);
	zklock_expiry_debug(mine->path, mine->token,
						"renewed for " INT64_FORMAT " ms", term_ms);
	return ZK_ANSWERED;
}

char *
zklock_lease_build_data(const char *owner, const char *note, int64 term_ms)
{
	return zklock_nodedata_build(0, "owner", owner, "data", note,
								 "term", psprintf(INT64_FORMAT, term_ms), NULL);
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
zklock_lease_check(const ZkName *name, const ZkReply *reply)
{
	switch (reply->result)
	{
		case ZK_OK:
		case ZK_NO_NODE:
		case ZK_BAD_VERSION:
			break;
		default:
			zklock_ephemeral_refuse(reply, name->path);
			zklock_session_raise(reply, "use a lease", name->path);
	}
}
