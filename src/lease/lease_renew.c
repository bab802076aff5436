/*-------------------------------------------------------------------------
 *
 * lease_renew.c
 *	  Renews a lease, or gives it up, by its fencing token.
 *
 *-------------------------------------------------------------------------
 */
#include "lease_take.h"

#include "compat.h"
#include "lease_known.h"
#include "release_request.h"
#include "session.h"
#include "text.h"

static ZkLeased *find_known(ZkLeasing *leasing);
static void log_release(const ZkLeaseReleasing *releasing);
static ZkRequest *send_release(const ZkLeaseReleasing *releasing);
static bool is_released(const ZkLeaseReleasing *releasing,
						const ZkReply *reply);

/* ---------------------------------------------------------------------
 * Renewing
 * ---------------------------------------------------------------------
 */

/* By what this backend knows of it; if that is outdated, by the queue. */
ZkOutcome
zklock_lease_renew(ZkRoundTrip *trip, void *argument)
{
	ZkLeasing  *leasing = argument;
	ZkOutcome	outcome;

	Assert(leasing->token != 0);
	leasing->is_renewed = false;
	leasing->mine = find_known(leasing);
	if (leasing->mine != NULL)
	{
		outcome = zklock_lease_renew_node(trip, leasing);
		if (outcome != ZK_ANSWERED)
			return outcome;
	}
	while (!leasing->is_renewed)
	{
		outcome = zklock_lease_find(trip, leasing);
		if (outcome != ZK_ANSWERED)
			return outcome;
		if (leasing->mine == NULL)
		{
			/* a transaction may rest on it */
			zklock_known_distrust(leasing->name.path, leasing->token);
			leasing->end = ZK_LEASE_NONE;
			return ZK_ANSWERED;
		}
		outcome = zklock_lease_renew_node(trip, leasing);
		if (outcome != ZK_ANSWERED)
			return outcome;
	}
	leasing->end = ZK_LEASE_HELD;
	return ZK_ANSWERED;
}

ZkOutcome
zklock_lease_locate(ZkRoundTrip *trip, void *argument)
{
	ZkLeasing  *leasing = argument;
	ZkOutcome	outcome = zklock_lease_find(trip, leasing);

	if (outcome != ZK_ANSWERED)
		return outcome;
	leasing->end = ZK_LEASE_HELD;
	if (leasing->mine == NULL)
	{
		zklock_known_distrust(leasing->name.path, leasing->token);
		leasing->end = ZK_LEASE_NONE;
	}
	return ZK_ANSWERED;
}

/* The lease as this backend knows it, palloc'ed, or NULL. */
static ZkLeased *
find_known(ZkLeasing *leasing)
{
	const ZkKnownLease *known = zklock_known_find(leasing->name.path,
												  leasing->token);
	ZkLeased   *lease;

	if (known == NULL)
		return NULL;
	lease = palloc(sizeof(*lease));
	*lease = known->leased;
	leasing->czxid = known->leased.czxid;
	return lease;
}

/* ---------------------------------------------------------------------
 * Giving up
 * ---------------------------------------------------------------------
 */

/*
 * Until it is done.  A request to release it goes with it; one that is made
 * meanwhile, or to a lease that ends by itself, goes when others are asked
 * (release_request_ask.c).  A lease that is not found any more, after a reply was lost,
 * was given up by the request whose reply that was.
 */
ZkOutcome
zklock_lease_release(ZkRoundTrip *trip, void *argument)
{
	ZkLeaseReleasing *releasing = argument;
	ZkLeasing  *leasing = &releasing->leasing;
	bool		is_logged = false;

	Assert(leasing->token != 0);
	for (;;)
	{
		ZkOutcome	outcome = zklock_lease_find(trip, leasing);
		const ZkReply *reply;

		if (outcome != ZK_ANSWERED)
			return outcome;
		if (leasing->mine == NULL)
		{
			leasing->mine = releasing->tried;
			leasing->end = leasing->mine != NULL ? ZK_LEASE_RELEASED :
				ZK_LEASE_NONE;
			return ZK_ANSWERED;
		}
		if (!is_logged && !zklock_known_is_renewed_here(leasing->name.path,
														leasing->mine))
		{
			log_release(releasing);
			is_logged = true;
		}
		zklock_release_request_get_ahead(trip, leasing->name.path,
										 leasing->name.root_length, leasing->mine->node);
		outcome = zklock_roundtrip_ask(trip, send_release(releasing), &reply);
		if (outcome == ZK_UNKNOWN || outcome == ZK_LOST)
			releasing->tried = leasing->mine;
		if (outcome == ZK_UNKNOWN)
			continue;			/* the next look tells */
		if (outcome != ZK_ANSWERED)
			return outcome;
		zklock_lease_check(&leasing->name, reply);
		if (!is_released(releasing, reply))
		{
			outcome = zklock_roundtrip_check_refusal(trip, reply->result,
													 leasing->mine->path,
													 leasing->mine->czxid,
													 leasing->mine->version);
			if (outcome != ZK_ANSWERED)
				return outcome;
			continue;
		}
		leasing->end = ZK_LEASE_RELEASED;
		if (zklock_release_request_reply_ahead(trip) != NULL)
			zklock_release_request_remove(leasing->name.path, leasing->name.root_length,
										  leasing->mine->node);
		zklock_expiry_debug(leasing->mine->path, leasing->mine->token,
							"given up, for its token; the lock is free in " INT64_FORMAT " ms",
							releasing->delay_ms);
		return ZK_ANSWERED;
	}
}

/*
 * For the server's log, whatever zklock.log_locks says, that it is about to be
 * given up; not if its data says that this user, of this database and cluster,
 * has renewed it last.
 */
static void
log_release(const ZkLeaseReleasing *releasing)
{
	const ZkLeased *mine = releasing->leasing.mine;
	const char *holder = "unknown";

	if (zklock_nodedata_is_known(&mine->who))
	{
		if (zklock_nodedata_is_by_us(&mine->who))
			return;
		holder = zklock_nodedata_describe(&mine->who);
	}
	ereport(LOG_SERVER_ONLY,
			(errmsg("%s gives up a lease of ZooKeeper lock \"%s\" that others have taken or renewed",
					zklock_nodedata_caller(),
					zklock_text_quotable_own(releasing->leasing.name.text)),
			 errdetail_log("Owner \"%s\", fencing token " INT64_FORMAT ", delay " INT64_FORMAT " ms. Last taken or renewed by: %s.",
						   zklock_text_quotable(mine->who.owner),
						   mine->token, releasing->delay_ms, holder)));
}

/* Its node is deleted; or it loses its owner, so that nobody can renew it. */
static ZkRequest *
send_release(const ZkLeaseReleasing *releasing)
{
	const ZkLeased *mine = releasing->leasing.mine;

	if (releasing->delay_ms == 0)
		return zklock_client_remove(zklock_session_client(), mine->path,
									mine->version);
	return zklock_client_set(zklock_session_client(), mine->path,
							 zklock_lease_build_data(NULL, NULL,
													 releasing->delay_ms),
							 mine->version);
}

static bool
is_released(const ZkLeaseReleasing *releasing, const ZkReply *reply)
{
	if (releasing->delay_ms > 0)
		return reply->result == ZK_OK &&
			reply->czxid == releasing->leasing.mine->czxid;
	return reply->result == ZK_OK || reply->result == ZK_NO_NODE;
}
