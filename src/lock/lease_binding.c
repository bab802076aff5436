/*-------------------------------------------------------------------------
 *
 * lease_binding.c
 *	  The binding of a lease: the role and cluster that it is bound to, and the
 *	  user that has renewed it last.
 *
 * Nobody verifies an owner: it is a text.  A lease that is bound says in its
 * data to which role of which cluster, by the role's OID and the database
 * system identifier, so that the name of neither matters.  The role's name
 * stands there, too, for messages.  All this is written whatever
 * zklock.publish_identity says.
 *
 * The binding is as good as the data: a client that may write the znodes of
 * the ensemble without zklock can forge it.
 *
 *-------------------------------------------------------------------------
 */
#include "lease_binding.h"
#include "text.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "utils/acl.h"

/* Which user has renewed a lease last, by its data? */
typedef enum Hand
{
	HAND_OURS,					/* this user, of this database and cluster */
	HAND_OTHERS,
	HAND_UNKNOWN				/* the data does not say */
} Hand;

static Hand whose(const ZkNodeData *who);

void
zklock_lease_bind(ZkNodeData *who)
{
	who->bound = psprintf(UINT64_FORMAT "/%u", GetSystemIdentifier(),
						  GetUserId());
	who->bound_role =
		zklock_text_to_utf8(GetUserNameFromId(GetUserId(), false));
}

bool
zklock_lease_may_use(const ZkNodeData *who)
{
	char		here[32];
	int			length = snprintf(here, sizeof(here), UINT64_FORMAT "/",
								  GetSystemIdentifier());
	const char *role;
	char	   *end;
	Oid			oid;

	if (who->bound == NULL)
		return true;
	role = who->bound + length; /* to be read if it begins like that */
	if (strncmp(who->bound, here, length) != 0 || *role < '0' || *role > '9')
		return false;
	oid = strtoul(role, &end, 10);
	return *end == '\0' && has_privs_of_role(GetUserId(), oid);
}

void
zklock_lease_check_binding(const char *name, const ZkNodeData *who)
{
	const char *role = who->bound_role != NULL ? who->bound_role : "";
	const char *slash;

	if (zklock_lease_may_use(who))
		return;
	slash = strchr(who->bound, '/');
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied for the lease of lock \"%s\"", name),
			 errdetail("It is bound to role \"%s\" of the cluster whose database system identifier is \"%s\".",
					   zklock_text_quotable(role),
					   zklock_text_quotable(slash == NULL ? "" :
												pnstrdup(who->bound,
														 slash - who->bound))),
			 errhint("Use it as a member of that role, or end it with zk_evict().")));
}

void
zklock_lease_raise_unbound(const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("the lease of lock \"%s\" is not bound to a role", name),
			 errdetail("Its owner has taken it without \"bound\", and a renewal does not change that."),
			 errhint("Release the lease, and take it again with \"bound\".")));
}

void
zklock_lease_log_release(const char *name, const ZkLeased *leased,
						 int64 delay_ms)
{
	Hand		hand = whose(&leased->who);
	const char *holder = "unknown";

	if (hand != HAND_UNKNOWN)
		holder = zklock_nodedata_describe(&leased->who);
	if (hand != HAND_OURS)
		ereport(LOG_SERVER_ONLY,
				(errmsg("%s gives up a lease of ZooKeeper lock \"%s\" that others have taken or renewed",
						zklock_nodedata_caller(),
						zklock_text_quotable_own(name)),
				 errdetail_log("Owner \"%s\", fencing token " INT64_FORMAT ", delay " INT64_FORMAT " ms. Last taken or renewed by: %s.",
							   zklock_text_quotable(leased->who.owner),
							   leased->token, delay_ms, holder)));
}

void
zklock_lease_log_renewal(const char *name, const ZkLeased *leased)
{
	if (whose(&leased->who) == HAND_OTHERS)
		ereport(zklock_nodedata_logs(false) ? LOG_SERVER_ONLY : DEBUG1,
				(errmsg("%s renews a lease of ZooKeeper lock \"%s\" that others have taken or renewed",
						zklock_nodedata_caller(),
						zklock_text_quotable_own(name)),
				 errdetail_log("Owner \"%s\", fencing token " INT64_FORMAT ". Last taken or renewed by: %s.",
							   zklock_text_quotable(leased->who.owner),
							   leased->token,
							   zklock_nodedata_describe(&leased->who))));
}

static Hand
whose(const ZkNodeData *who)
{
	if (who->pid == 0 && who->username == NULL)
		return HAND_UNKNOWN;
	return zklock_nodedata_is_by_us(who) ? HAND_OURS : HAND_OTHERS;
}
