/*-------------------------------------------------------------------------
 *
 * role.c
 *	  The type zk_role: the role of a row of zk_privileges.
 *
 * People, dumps and subscribers read and write the name of a role, as an
 * identifier; "-" is everybody.  What is stored is a text with the role's OID,
 * or "-".  So a role that is renamed keeps its rows here, and another cluster
 * gives them to its role of that name.
 *
 * The one rule: a value gives a privilege only to the role that it was made
 * for.  A name without a role is stored behind "!", and stays without one when
 * such a role is made later.  A role that was dropped is shown as "!" and its
 * OID, also in a dump.  Reading a value never raises for its sake: one bad row
 * would make COPY fail as a whole.
 *
 *-------------------------------------------------------------------------
 */
#include "role.h"

#include "fmgr.h"
#include "lib/stringinfo.h"
#include "libpq/pqformat.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/varlena.h"

/* The value for everybody, and what begins one for nobody. */
#define EVERYBODY "-"
#define NOBODY '!'

PG_FUNCTION_INFO_V1(zk_role_in);
PG_FUNCTION_INFO_V1(zk_role_out);
PG_FUNCTION_INFO_V1(zk_role_recv);
PG_FUNCTION_INFO_V1(zk_role_send);

static Datum read_value(const char *shown);
static Oid	find_role(const char *identifier);

Oid
zklock_role_oid(Datum value, bool *is_everybody)
{
	const char *stored = TextDatumGetCString(value);

	*is_everybody = strcmp(stored, EVERYBODY) == 0;
	if (*is_everybody || stored[0] == NOBODY)
		return InvalidOid;
	return (Oid) strtoul(stored, NULL, 10);
}

Datum
zklock_role_value(Oid role)
{
	if (!OidIsValid(role))
		return CStringGetTextDatum(EVERYBODY);
	return CStringGetTextDatum(psprintf("%u", role));
}

char *
zklock_role_shown(Datum value)
{
	bool		is_everybody;
	Oid			role = zklock_role_oid(value, &is_everybody);
	const char *name;

	if (!OidIsValid(role))
		return TextDatumGetCString(value);
	name = GetUserNameFromId(role, true);
	if (name == NULL)
		return psprintf("%c%u", NOBODY, role);
	return pstrdup(quote_identifier(name));
}

Datum
zk_role_in(PG_FUNCTION_ARGS)
{
	return read_value(PG_GETARG_CSTRING(0));
}

Datum
zk_role_out(PG_FUNCTION_ARGS)
{
	PG_RETURN_CSTRING(zklock_role_shown(PG_GETARG_DATUM(0)));
}

/* The binary forms are the texts, in the client's encoding. */
Datum
zk_role_recv(PG_FUNCTION_ARGS)
{
	StringInfo	message = (StringInfo) PG_GETARG_POINTER(0);
	int			length;

	return read_value(pq_getmsgtext(message, message->len - message->cursor,
									&length));
}

Datum
zk_role_send(PG_FUNCTION_ARGS)
{
	const char *shown = zklock_role_shown(PG_GETARG_DATUM(0));
	StringInfoData message;

	pq_begintypsend(&message);
	pq_sendtext(&message, shown, strlen(shown));
	PG_RETURN_BYTEA_P(pq_endtypsend(&message));
}

static Datum
read_value(const char *shown)
{
	Oid			role;

	if (strcmp(shown, EVERYBODY) == 0 || shown[0] == NOBODY)
		return CStringGetTextDatum(shown);
	role = find_role(shown);
	if (!OidIsValid(role))
		return CStringGetTextDatum(psprintf("%c%s", NOBODY, shown));
	return zklock_role_value(role);
}

/* The role of that name, or InvalidOid, also if it is none. */
static Oid
find_role(const char *identifier)
{
	List	   *names;

	if (!SplitIdentifierString(pstrdup(identifier), '.', &names) ||
		list_length(names) != 1)
		return InvalidOid;
	return get_role_oid(linitial(names), true);
}
