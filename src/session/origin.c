/*-------------------------------------------------------------------------
 *
 * origin.c
 *	  Where the value of a setting comes from, and whether credentials may go
 *	  to servers from there.
 *
 * The rule: credentials of a more trusted origin do not go to servers of a
 * less trusted one.  Most trusted is the configuration.  In doubt they stay
 * here.
 *
 *-------------------------------------------------------------------------
 */
#include "origin.h"

#include "access/htup_details.h"
#include "access/parallel.h"
#include "access/xact.h"
#include "catalog/pg_parameter_acl.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/syscache.h"

#include "servers.h"

static bool is_stored(const Origin *origin);
static bool is_of_session(const Origin *origin);
static bool may_set(const char *setting, Oid role);
static bool is_for_superusers(const char *setting);
static bool is_part_of(const char *list, const char *whole);
static bool has_server(const ServerList *list, const Server *server);
static const char *describe_origin(const Origin *origin);

/*
 * In a session the current role has set it: of a function that runs with its
 * owner's rights, PostgreSQL takes these before it applies the function's own
 * settings.  PostgreSQL does not record which role has stored a setting for a
 * role or a database.  So what counts is which roles could have.  A parallel
 * worker gets the values of its leader, and opens no session.
 */
void *
zklock_origin_make(const char *setting, GucSource source)
{
	Origin	   *origin = guc_malloc_compat(sizeof(Origin));
	int			context;

	if (origin == NULL)
		return NULL;
	*origin = ORIGIN_UNKNOWN;
	origin->source = source;
	if (!IsTransactionState() || InitializingParallelWorker)
		return origin;
	if (is_of_session(origin))
	{
		GetUserIdAndSecContext(&origin->role, &context);
		if (OidIsValid(origin->role) && superuser_arg(origin->role))
			origin->choice = ORIGIN_OF_SUPERUSERS;
	}
	else if (is_stored(origin))
	{
		if (may_set(setting, GetSessionUserId()))
			origin->choice = ORIGIN_OF_USER;
		else if (is_for_superusers(setting))
			origin->choice = ORIGIN_OF_SUPERUSERS;
		else
			origin->choice = ORIGIN_OF_OTHERS;
	}
	return origin;
}

Origin
zklock_origin_read(const void *extra)
{
	return extra != NULL ? *(const Origin *) extra : ORIGIN_UNKNOWN;
}

bool
zklock_origin_is_configuration(const Origin *origin)
{
	return origin->source < PGC_S_GLOBAL;
}

bool
zklock_origin_is_chosen(const Origin *origin)
{
	return !zklock_origin_is_configuration(origin) &&
		origin->choice == ORIGIN_OF_USER;
}

bool
zklock_origin_allows(const Origin *auth, const Origin *servers,
					 const char *list, const char *configured)
{
	/* another chroot leads to the same servers */
	if (zklock_origin_is_configuration(servers) ||
		(configured != NULL && is_part_of(list, configured)))
		return true;
	if (is_stored(servers))
		return servers->choice == ORIGIN_OF_SUPERUSERS && is_stored(auth);
	return servers->choice == ORIGIN_OF_SUPERUSERS ||
		(is_of_session(auth) && OidIsValid(auth->role) &&
		 auth->role == servers->role);
}

void
zklock_origin_refuse(const Origin *auth, const Origin *servers)
{
	const char *of_auth = describe_origin(auth);
	const char *of_servers = describe_origin(servers);

	if (is_stored(auth) && is_stored(servers))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("the credentials for ZooKeeper are not sent to the servers in \"zklock.servers\""),
				 errdetail("\"%s\" and \"%s\" are %s, and roles that are not superusers may set the second one.",
						   "zklock.auth", "zklock.servers", of_servers),
				 errhint("Name the servers in postgresql.conf, or revoke SET ON PARAMETER %s from those roles.",
						 "zklock.servers")));
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("the credentials for ZooKeeper are not sent to the servers in \"zklock.servers\""),
			 errdetail("\"%s\" is %s, and \"%s\" is %s.",
					   "zklock.auth", of_auth, "zklock.servers", of_servers),
			 errhint("Name the servers in postgresql.conf, or set both where the servers are set. See docs/security.md, ACLs.")));
}

/* ---------------------------------------------------------------------
 * Helpers
 * ---------------------------------------------------------------------
 */

/* For a role, a database, both or all? */
static bool
is_stored(const Origin *origin)
{
	return origin->source >= PGC_S_GLOBAL &&
		origin->source <= PGC_S_DATABASE_USER;
}

/* By SET, by a function's SET, or by the client when it connected? */
static bool
is_of_session(const Origin *origin)
{
	return origin->source >= PGC_S_CLIENT;
}

/*
 * Has the role, which is no superuser, the privilege to SET it?  Then it can
 * have stored it for itself.
 */
static bool
may_set(const char *setting, Oid role)
{
	return !superuser_arg(role) &&
		pg_parameter_aclcheck(setting, role, ACL_SET) == ACLCHECK_OK;
}

/* Has nobody but superusers the privilege to SET it? */
static bool
is_for_superusers(const char *setting)
{
	text	   *name = cstring_to_text(setting);
	HeapTuple	tuple = SearchSysCache1(PARAMETERACLNAME,
										PointerGetDatum(name));
	bool		result = true;
	bool		is_null = true;
	Datum		datum = (Datum) 0;
	Acl		   *acl;
	AclItem    *items;

	pfree(name);
	if (!HeapTupleIsValid(tuple))
		return true;			/* it was granted to nobody */
	datum = SysCacheGetAttr(PARAMETERACLNAME, tuple,
							Anum_pg_parameter_acl_paracl, &is_null);
	if (!is_null)
	{
		acl = DatumGetAclPCopy(datum);
		items = ACL_DAT(acl);
		for (int i = 0; i < ACL_NUM(acl); i++)
			if ((ACLITEM_GET_PRIVS(items[i]) & ACL_SET) != 0 &&
				(items[i].ai_grantee == ACL_ID_PUBLIC ||
				 !superuser_arg(items[i].ai_grantee)))
				result = false;
		pfree(acl);
	}
	ReleaseSysCache(tuple);
	return result;
}

/* Is each server of that list in the other one, too? */
static bool
is_part_of(const char *list, const char *whole)
{
	ServerList	few;
	ServerList	many;
	char		why[SERVERS_WHY_SIZE];

	if (!servers_parse(list, &few, why) || !servers_parse(whole, &many, why))
		return false;
	for (int i = 0; i < few.nservers; i++)
		if (!has_server(&many, &few.servers[i]))
			return false;
	return true;
}

static bool
has_server(const ServerList *list, const Server *server)
{
	for (int i = 0; i < list->nservers; i++)
		if (list->servers[i].port == server->port &&
			pg_strcasecmp(list->servers[i].host, server->host) == 0)
			return true;
	return false;
}

/* Completes "... is". */
static const char *
describe_origin(const Origin *origin)
{
	const char *role = NULL;

	if (zklock_origin_is_configuration(origin))
		return "that of the configuration";
	if (is_stored(origin))
		return "stored for a role or a database";
	if (OidIsValid(origin->role))
		role = GetUserNameFromId(origin->role, true);
	if (role == NULL)
		return "set in this session";
	return psprintf("set in this session by role \"%s\"", role);
}
