/*-------------------------------------------------------------------------
 *
 * given_name.c
 *	  The one door for names that SQL functions are given.
 *
 *-------------------------------------------------------------------------
 */
#include "given_name.h"

#include "utils/builtins.h"

#include "args.h"
#include "lock_table.h"
#include "name.h"
#include "name_allowed.h"
#include "name_spelling.h"

static bool is_held(const char *name);

char *
zklock_given_name(FunctionCallInfo fcinfo, ZkGivenFor what_for)
{
	return zklock_given_text(zklock_args_text(fcinfo, 0, "lock name"),
							 what_for, NULL);
}

char *
zklock_given_text(const char *text, ZkGivenFor what_for, char **path)
{
	char	   *name = zklock_name_spell("lock name", text);
	int			root_length;
	char	   *made = zklock_name_path(name, &root_length);

	/* the path ends in the name as ZooKeeper has it */
	if (!zklock_name_is_allowed(made + root_length + 1) &&
		!(what_for == ZK_GIVEN_TO_PROVE && is_held(name)))
		zklock_name_refuse(name);
	if (path != NULL)
		*path = made;
	else
		pfree(made);
	return name;
}

char *
zklock_given_prefix(FunctionCallInfo fcinfo)
{
	char	   *prefix = zklock_args_spelled(fcinfo, 0, "lock name");
	int			root_length;
	char	   *path;

	if (prefix[0] == '\0')
		return prefix;
	path = zklock_name_path(prefix, &root_length);
	if (!zklock_name_is_reached(path + root_length + 1))
		zklock_name_refuse(prefix);
	pfree(path);
	return prefix;
}

static bool
is_held(const char *name)
{
	const Lock *lock = zklock_lock_find(name);

	return lock != NULL && zklock_lock_is_held(lock);
}
