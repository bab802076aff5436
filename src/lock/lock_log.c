/*-------------------------------------------------------------------------
 *
 * lock_log.c
 *	  Logs each lock that is taken or released (zklock.log_locks).
 *
 *-------------------------------------------------------------------------
 */
#include "lock_table.h"

#include "miscadmin.h"
#include "storage/ipc.h"

#include "nodedata.h"
#include "row.h"
#include "text.h"

static void write_line(const Lock *lock, RecipeMode mode, const char *what);
static void log_exit(int code, Datum arg);

void
zklock_lock_log_holder(Lock *lock)
{
	/* of this process: registered once, and never taken back */
	static bool is_exit_followed = false;

	if (lock->holder != NULL)
		pfree(lock->holder);
	lock->holder = NULL;
	if (!zklock_nodedata_logs(true))
		return;
	lock->holder = MemoryContextStrdup(zklock_lock_memory(),
									   psprintf("%s, ZooKeeper lock \"%s\"",
												zklock_nodedata_caller(),
												zklock_text_quotable_own(lock->name)));
	if (!is_exit_followed)
		on_shmem_exit(log_exit, 0);
	is_exit_followed = true;
}

void
zklock_lock_log_taken(const Lock *lock, RecipeMode mode)
{
	if (lock->holder != NULL)
		write_line(lock, mode, "taken");
}

void
zklock_lock_log_end(const Lock *lock, const char *how)
{
	if (lock->holder == NULL)
		return;
	if (zklock_place_is_lost(&lock->place, zklock_session_live()))
		how = "lost";
	write_line(lock, lock->place.mode, how);
}

static void
write_line(const Lock *lock, RecipeMode mode, const char *what)
{
	HOLD_INTERRUPTS();
	ereport(LOG_SERVER_ONLY,
			(errmsg("%s: %s in %s mode, fencing token " INT64_FORMAT ", after " INT64_FORMAT " ms",
					lock->holder, what, zklock_row_mode_name(mode),
					lock->place.token,
					protocol_now() - lock->taken_ms[mode]),
			 errhidecontext(true), errhidestmt(true)));
	RESUME_INTERRUPTS();
}

/*
 * The end of the backend, ahead of the session's: locks of session scope are
 * left.
 */
static void
log_exit(int code, Datum arg)
{
	HASH_SEQ_STATUS scan;
	Lock	   *lock;

	zklock_session_attend();
	foreach_lock(scan, lock)
		if (zklock_lock_is_held(lock))
			zklock_lock_log_end(lock, "ended with its session");
}
