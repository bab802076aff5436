/*-------------------------------------------------------------------------
 *
 * given_name.c
 *	  The one door for names that SQL functions are given: spells them, checks
 *	  them, asks whether they are allowed.
 *
 *-------------------------------------------------------------------------
 */
#include "given_name.h"

#include "utils/builtins.h"

#include "args.h"
#include "lock_table.h"
#include "name_allowed.h"
#include "name_spelling.h"

static bool is_held(const ZkName *name);

ZkName
zklock_given_name(FunctionCallInfo fcinfo, ZkGivenFor what_for)
{
	return zklock_given_text(zklock_args_text(fcinfo, 0, "lock name"),
							 what_for);
}

ZkName
zklock_given_text(const char *text, ZkGivenFor what_for)
{
	ZkName		name = zklock_name_make(zklock_name_spell("lock name", text));

	if (!zklock_name_is_allowed(zklock_name_below_root(&name)) &&
		!(what_for == ZK_GIVEN_TO_PROVE && is_held(&name)))
		zklock_name_refuse(name.text);
	return name;
}

char *
zklock_given_prefix(FunctionCallInfo fcinfo)
{
	char	   *prefix = zklock_args_spelled(fcinfo, 0, "lock name");
	ZkName		name;

	if (prefix[0] == '\0')
		return prefix;
	name = zklock_name_make(prefix);
	if (!zklock_name_is_reached(zklock_name_below_root(&name)))
		zklock_name_refuse(prefix);
	return prefix;
}

static bool
is_held(const ZkName *name)
{
	const Lock *lock = zklock_lock_find(name);

	return lock != NULL && zklock_lock_is_held(lock);
}
