/*-------------------------------------------------------------------------
 *
 * lock_look.c
 *	  What is known here of the locks that this backend holds.
 *
 *-------------------------------------------------------------------------
 */
#include "lock_private.h"

int64
zklock_token(const char *name)
{
	const ZkPlace *place = zklock_lock_good_place(name);

	return place != NULL ? place->token : 0;
}

int
zklock_permits(const char *name)
{
	const ZkPlace *place = zklock_lock_good_place(name);

	return place != NULL ? place->permits : 0;
}

bool
zklock_is_recalled(const char *name)
{
	Lock	   *lock = zklock_lock_find(name);

	return lock != NULL && zklock_lock_is_held(lock) &&
		zklock_place_is_recalled(&lock->place, zklock_session_live());
}

void
zklock_visit_locks(void (*visit) (const ZkLockInfo *info, void *argument),
				   void *argument)
{
	HASH_SEQ_STATUS scan;
	Lock	   *lock;
	ZkSessionNumber live;

	if (!zklock_has_locks())
		return;
	live = zklock_session_live();
	foreach_lock(scan, lock)
	{
		zklock_place_settle(&lock->place, live);
		foreach_mode(mode)
		{
			ModeCount  *count = &lock->counts[mode];
			ZkLockInfo	info;

			if (!zklock_lock_has_mode(lock, mode))
				continue;
			info.name = lock->name;
			info.mode = mode;
			info.is_lost = zklock_place_is_lost(&lock->place, live);
			info.permits = lock->place.permits;
			info.session_count = count->session;
			info.call_count = count->call;
			info.xact_count = zklock_lock_xact_total(count);
			info.token = lock->place.token;
			info.node = lock->place.node;
			info.granted_at = count->since;
			visit(&info, argument);
		}
	}
}
