/*-------------------------------------------------------------------------
 *
 * lock.c
 *	  What this backend holds: the table of locks, scopes, counts; acquire and
 *	  release; reentrancy.
 *
 * One table entry per lock: how often it is taken in each mode and scope, and
 * the one place in its queue that all of them stand on.  The place lives as
 * long as a count does.  The table and what hangs on it live in LockContext
 * until the backend exits.
 *
 * The one rule: between a grant and its count nothing may raise.  So the
 * entry, with its place, and the transaction count are allocated before the
 * queue is joined; an entry without counts is as good as none and is swept
 * away later, unless its place is kept (keep.c).
 *
 *-------------------------------------------------------------------------
 */
#include "lock_private.h"

#include <limits.h>

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "args.h"
#include "board.h"
#include "contender.h"
#include "keep.h"
#include "name.h"
#include "nodedata.h"
#include "text.h"

/* How many locks are held, and what the paths of their queue nodes add up to. */
static int	nheld;
static Size held_bytes;

/* zklock.max_locks: how many locks one backend may hold. */
static int	max_locks_setting;

/*
 * zklock.max_lock_bytes, in kB: how much the paths of the session's queue
 * nodes may take, of locks that are held, kept and awaited, whatever
 * zklock.max_locks is.
 *
 * The end of a session is one transaction that names all its ephemeral znodes
 * (CloseSessionTxn).  If that is longer than jute.maxbuffer and
 * zookeeper.jute.maxbuffer.extrasize together allow, 1 kB at least, the servers
 * write it and cannot read it again, and none of them starts any more
 * (ZOOKEEPER-4306).  After a reconnect the client library names all paths that
 * it watches, one for each lock that is held, in one request, which may have
 * jute.maxbuffer and no more.
 *
 * So the bound is half of jute.maxbuffer, whose default is 1 MB.  The other
 * half is for what is not counted: the second node of each downgrade under way,
 * the facts of a wait (deadlock.c), and the queues of kept locks, which are
 * watched, too.
 */
static int	max_lock_bytes_setting;

/* zklock.snapshot_warning: warn when a lock comes after the snapshot? */
static bool snapshot_warning;

/* zklock.session_scope: may locks of session scope be taken? */
typedef enum SessionScope
{
	SESSION_SCOPE_ALLOW,
	SESSION_SCOPE_WARN,
	SESSION_SCOPE_REFUSE
} SessionScope;

static const struct config_enum_entry session_scope_options[] = {
	{"allow", SESSION_SCOPE_ALLOW, false},
	{"warn", SESSION_SCOPE_WARN, false},
	{"refuse", SESSION_SCOPE_REFUSE, false},
	{NULL, 0, false}
};

/*
 * Behind a pooler that lends a server connection for one transaction such a
 * lock is also that of the next client of the connection.
 */
static int	session_scope = SESSION_SCOPE_ALLOW;

/* Our callback in MessageContext; it is there if is_call_followed. */
static MemoryContextCallback at_call_end;
static bool is_call_followed;

/*
 * Are all calls that took locks over, but not their transaction?  A later
 * call in the same transaction that takes one, too, puts it off for all.
 */
static bool is_call_over;

HTAB	   *zklock_locks;

/*
 * Who releases a lock that was held for AWAITED_MS or longer waits for the
 * answer, for the lock may have been taken away: for as long as it was held at
 * most, and for RELEASE_MS.  In a shorter cycle the wait would be too large a
 * part.
 */
#define AWAITED_MS 5
#define RELEASE_MS 1000

/* A member of a set of scopes. */
#define ENDS(scope) (1u << (scope))

/* Of the table and what hangs on it; NULL until the first lock. */
static MemoryContext LockContext;

static void make_room(const Lock *lock);
static bool has_unkept(void);
static Lock *enter_lock(const char *name);
static void reserve_count(Lock *lock, RecipeMode mode, ZkScope scope);
static void warn_of_snapshot(void);
static int64 take_again(const ZkLockOrder *order, Lock *lock, Lock **taken);
static int64 grant(const ZkLockOrder *order, Lock *lock, Lock **taken);
static int64 count_one(const ZkLockOrder *order, Lock *lock, Lock **taken);
static void confirm_own(const ZkLockOrder *order, Lock *lock);
static ZkWaitEnd win_place(const ZkLockOrder *order, Lock *lock);
static void end_mode(Lock *lock, RecipeMode mode, ZkSessionNumber live,
					 ZkWork work, const char *how);
static void leave(Lock *lock, ZkSessionNumber live, ZkWork work);
static void note_holder(Lock *lock);
static void log_lock(const Lock *lock, RecipeMode mode, const char *how);
static void log_exit(int code, Datum arg);
static int64 release_patience(ZkPlace *place);
static void forget_if_empty(Lock *lock);
static void end_scopes(unsigned scopes, ZkWork work);
static void drop_xact_counts(XactCount **list);
static void end_xact_count(Lock *lock, RecipeMode mode, bool is_commit,
						   SubTransactionId parent);
static void post(Lock *lock);
static void follow_call(void);
static void end_call(void *arg);

/* ---------------------------------------------------------------------
 * Public functions: acquire
 * ---------------------------------------------------------------------
 */

void
zklock_lock_init(void)
{
	DefineCustomIntVariable("zklock.max_locks",
							"Most locks that one backend may hold.",
							NULL,
							&max_locks_setting, 1000, 1, 10000,
							PGC_SUSET, 0,
							NULL, NULL, NULL);
	DefineCustomIntVariable("zklock.max_lock_bytes",
							"Most bytes that the paths of one backend's queue nodes may have.",
							"Half of jute.maxbuffer of ZooKeeper's servers, or less.",
							&max_lock_bytes_setting, 512, 4, 32 * 1024,
							PGC_SUSET, GUC_UNIT_KB,
							NULL, NULL, NULL);
	DefineCustomBoolVariable("zklock.snapshot_warning",
							 "Warns when a lock is taken in a transaction whose snapshot is already fixed.",
							 NULL,
							 &snapshot_warning, true,
							 PGC_USERSET, 0,
							 NULL, NULL, NULL);
	DefineCustomEnumVariable("zklock.session_scope",
							 "Whether locks of session scope may be taken.",
							 "allow, warn, or refuse, for databases behind a pooler in transaction mode.",
							 &session_scope, SESSION_SCOPE_ALLOW,
							 session_scope_options,
							 PGC_SUSET, 0,
							 NULL, NULL, NULL);
}

/* By default it is as long as jute.maxbuffer allows by default. */
int
zklock_lock_request_bytes(void)
{
	return max_lock_bytes_setting * 2048 - 1;
}

void
zklock_check_scope(ZkScope scope, const char *name)
{
	static TimestampTz warned_in;
	bool		is_refused = session_scope == SESSION_SCOPE_REFUSE;

	if (scope != ZK_SCOPE_SESSION || session_scope == SESSION_SCOPE_ALLOW ||
		(!is_refused && warned_in == GetCurrentStatementStartTimestamp()))
		return;
	warned_in = GetCurrentStatementStartTimestamp();
	ereport(is_refused ? ERROR : WARNING,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("locks of session scope are not for this database or role"),
			 errdetail("\"%s\" is \"%s\". Behind a pooler such a lock stays with the server connection, and the next client there has it, too.",
					   "zklock.session_scope", is_refused ? "refuse" : "warn"),
			 zklock_name_is_advisory(name) ?
			 errhint("Use pg_advisory_xact_lock() and its kin.") :
			 errhint("Use zk_xact_lock() and its kin, or zk_call_lock().")));
}

int64
zklock_acquire(const ZkLockOrder *order, struct Lock **taken)
{
	zklock_check_scope(order->scope, order->name);
	for (bool is_again = false;; is_again = true)
	{
		Lock	   *lock;
		ZkWaitEnd	end;

		zklock_refuse_if_lost();
		(void) zklock_released_tell(0); /* of others, most likely */
		zklock_session_renew(is_again);
		lock = enter_lock(order->name);
		reserve_count(lock, order->mode, order->scope);
		if (zklock_lock_is_held(lock))
			return take_again(order, lock, taken);
		note_holder(lock);
		warn_of_snapshot();

		/* true: nothing may raise until it is counted */
		if (order->mode == RECIPE_EXCLUSIVE && order->permits == 1 &&
			zklock_keep_take(&lock->place))
			return grant(order, lock, taken);
		make_room(lock);
		end = win_place(order, lock);
		if (end == ZK_WAIT_GRANTED)
			return grant(order, lock, taken);
		forget_if_empty(lock);
		if (end != ZK_WAIT_LOST)
			return 0;

		/*
		 * If nothing else hung on the session, start again with a new one, at
		 * the end of the queue.
		 */
	}
}

void
zklock_drop_kept(const char *name)
{
	Lock	   *lock = zklock_lock_find(name);

	if (lock != NULL)
		zklock_keep_drop(&lock->place);
}

void
zklock_give_back(Lock *lock, RecipeMode mode, ZkScope scope)
{
	Assert(lock->taken[mode].counts[scope] > 0);
	lock->taken[mode].counts[scope]--;
	if (scope == ZK_SCOPE_TRANSACTION)
	{
		Assert(lock->xact[mode]->subid == GetCurrentSubTransactionId());
		lock->xact[mode]->count--;
	}
	if (!zklock_board_is_taken(&lock->taken[mode]))
		end_mode(lock, mode, zklock_session_live(), ZK_WORK_NONE,
				 "given back");
	forget_if_empty(lock);
}

/* ---------------------------------------------------------------------
 * Public functions: release
 * ---------------------------------------------------------------------
 */

bool
zklock_release(const char *name, RecipeMode mode, ZkWork work)
{
	Lock	   *lock = zklock_lock_find(name);
	ZkSessionNumber live;
	int64		token;
	bool		was_lost;
	int64		patience;

	if (lock == NULL || lock->taken[mode].counts[ZK_SCOPE_SESSION] == 0)
	{
		zklock_lock_warn_not_held(name, lock, mode);
		return false;
	}
	live = zklock_session_reap(false);
	zklock_place_settle(&lock->place, live);
	was_lost = zklock_place_is_lost(&lock->place, live);
	token = lock->place.token;

	/* all or none of its nodes: a WARNING would look for interrupts, too */
	HOLD_INTERRUPTS();
	patience = release_patience(&lock->place);
	lock->taken[mode].counts[ZK_SCOPE_SESSION]--;
	if (!zklock_board_is_taken(&lock->taken[mode]))
		end_mode(lock, mode, live, work, "unlocked");
	forget_if_empty(lock);
	RESUME_INTERRUPTS();
	/* whatever came in that time is told */
	if (patience > 0)
		(void) zklock_session_await_undone(protocol_now() + patience);
	if (zklock_released_tell(token))
		return false;
	if (was_lost)
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg("lock \"%s\" had been lost before it was released",
						name)));
	return !was_lost;
}

void
zklock_release_session_scope(ZkWork work)
{
	bool		had_locks = zklock_has_locks();

	(void) zklock_released_tell(0); /* of what was released before */

	/* a WARNING would look for interrupts, too */
	HOLD_INTERRUPTS();
	if (had_locks)
		end_scopes(ENDS(ZK_SCOPE_SESSION), work);
	zklock_keep_drop_down_to(0, 0);
	RESUME_INTERRUPTS();
	if (had_locks)
		(void) zklock_session_await_undone(protocol_now() + RELEASE_MS);
	(void) zklock_released_tell(0); /* the guard looks for itself */
}

/* A backend that holds and keeps nothing pays two comparisons. */
void
zklock_end_transaction(void)
{
	bool		had_locks = nheld > 0;

	zklock_released_end_transaction();
	zklock_keep_settle();
	if (has_unkept())
		end_scopes(ENDS(ZK_SCOPE_TRANSACTION) |
				   (is_call_over ? ENDS(ZK_SCOPE_CALL) : 0), ZK_WORK_NONE);
	if (!had_locks)
		zklock_session_rest();

	/* the commit guard has stopped it; with no lock left it stays stopped */
	if (nheld > 0)
		zklock_session_interrupt_on_loss(true);
	zklock_session_end_use();
}

void
zklock_end_subtransaction(bool is_commit, SubTransactionId mine,
						  SubTransactionId parent)
{
	HASH_SEQ_STATUS scan;
	Lock	   *lock;

	if (!has_unkept())
		return;
	foreach_lock(scan, lock)
	{
		bool		is_same = zklock_lock_is_held(lock);

		foreach_mode(mode)
		{
			/* inner subtransactions come first in the list */
			if (lock->xact[mode] == NULL || lock->xact[mode]->subid != mine)
				continue;
			end_xact_count(lock, mode, is_commit, parent);
			is_same = false;
		}
		if (!is_same)
			forget_if_empty(lock);
	}
}

/* ---------------------------------------------------------------------
 * Public functions: what is held
 * ---------------------------------------------------------------------
 */

bool
zklock_has_locks(void)
{
	return nheld > 0;
}

bool
zklock_has_xact_locks(void)
{
	HASH_SEQ_STATUS scan;
	Lock	   *lock;
	bool		found = false;

	if (nheld == 0)
		return false;
	foreach_lock(scan, lock)
		foreach_mode(mode)
		found |= lock->taken[mode].counts[ZK_SCOPE_CALL] > 0 ||
			lock->taken[mode].counts[ZK_SCOPE_TRANSACTION] > 0;
	return found;
}

/* ---------------------------------------------------------------------
 * For the family
 * ---------------------------------------------------------------------
 */

Lock *
zklock_lock_find(const char *name)
{
	char	   *path = zklock_name_path(name, NULL);
	Lock	   *lock = NULL;

	if (zklock_locks != NULL)
		lock = hash_search(zklock_locks, path, HASH_FIND, NULL);
	pfree(path);
	return lock;
}

bool
zklock_lock_is_held(const Lock *lock)
{
	return zklock_board_is_taken(&lock->taken[RECIPE_EXCLUSIVE]) ||
		zklock_board_is_taken(&lock->taken[RECIPE_SHARED]);
}

bool
zklock_lock_is_of_session(const Lock *lock)
{
	return lock->taken[RECIPE_EXCLUSIVE].counts[ZK_SCOPE_SESSION] > 0 ||
		lock->taken[RECIPE_SHARED].counts[ZK_SCOPE_SESSION] > 0;
}

/* ---------------------------------------------------------------------
 * Acquire
 * ---------------------------------------------------------------------
 */

/*
 * Raise 53400 if one more lock is past zklock.max_locks or
 * zklock.max_lock_bytes, with what is merely kept given up as far as it has
 * to.
 */
static void
make_room(const Lock *lock)
{
	Size		next = ZK_PATH_BYTES(lock->path) + RECIPE_NODE_SIZE;
	Size		most = (Size) max_lock_bytes_setting * 1024;
	bool		is_one_more = nheld < max_locks_setting;

	if (is_one_more && held_bytes + next <= most)
	{
		zklock_keep_drop_down_to(max_locks_setting - nheld - 1,
								 most - held_bytes - next);
		return;
	}
	ereport(ERROR,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("too many ZooKeeper locks"),
			 is_one_more ?
			 errdetail("This session holds %d, whose znodes have %zu bytes, and may have %zu bytes.",
					   nheld, held_bytes, most) :
			 errdetail("This session holds %d.", nheld),
			 is_one_more ?
			 errhint("Release some, or give locks shorter names. \"%s\" may be half of what all servers have as jute.maxbuffer, and no more: see zk_check().",
					 "zklock.max_lock_bytes") :
			 errhint("Release some, or increase \"%s\".",
					 "zklock.max_locks")));
}

/* Are there entries of other locks than those that are kept? */
static bool
has_unkept(void)
{
	return zklock_locks != NULL &&
		hash_get_num_entries(zklock_locks) > zklock_keep_count();
}

/*
 * The table's entry for a lock, made if need be.  Raises 42602 for a bad
 * name.
 */
static Lock *
enter_lock(const char *name)
{
	int			root_length;
	char	   *path = zklock_name_path(name, &root_length);
	Lock	   *lock;
	bool		found;

	if (zklock_locks == NULL)
	{
		HASHCTL		control = {0};

		LockContext = AllocSetContextCreate(TopMemoryContext, "zklock",
											ALLOCSET_DEFAULT_SIZES);
		control.keysize = RECIPE_PATH_SIZE;
		control.entrysize = sizeof(Lock);
		control.hcxt = LockContext;
		zklock_locks = hash_create("zklock locks", 16, &control,
								   HASH_ELEM | HASH_STRINGS | HASH_CONTEXT);
		on_shmem_exit(log_exit, 0);
	}
	lock = hash_search(zklock_locks, path, HASH_ENTER, &found);
	if (!found)
		memset((char *) lock + RECIPE_PATH_SIZE, 0,
			   sizeof(*lock) - RECIPE_PATH_SIZE);

	/* the name and the root are those of whoever takes the lock first */
	if (!zklock_lock_is_held(lock))
	{
		char	   *former = lock->name;

		if (former == NULL || strcmp(former, name) != 0)
		{
			lock->name = MemoryContextStrdup(LockContext, name);
			if (former != NULL)
				pfree(former);
		}
		lock->place.root_length = root_length;
	}
	lock->place.name = lock->name;
	lock->place.lock_path = lock->path;
	pfree(path);
	return lock;
}

/*
 * Allocate the count that a grant will need.  Raises 54000 if there cannot be
 * one more: all of a scope, in whatever subtransactions, fit into one int.
 */
static void
reserve_count(Lock *lock, RecipeMode mode, ZkScope scope)
{
	XactCount **xact = &lock->xact[mode];
	SubTransactionId subid = GetCurrentSubTransactionId();

	if (lock->taken[mode].counts[scope] == INT_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("too many holds of lock \"%s\"", lock->name),
				 errdetail("This session holds it %d times.", INT_MAX),
				 errhint("Release it as often as it is taken. A lock of session scope is not released by the end of a transaction.")));
	if (scope == ZK_SCOPE_CALL)
		follow_call();
	if (scope == ZK_SCOPE_TRANSACTION &&
		(*xact == NULL || (*xact)->subid != subid))
	{
		XactCount  *more = MemoryContextAlloc(LockContext, sizeof(*more));

		more->subid = subid;
		more->count = 0;
		more->next = *xact;
		*xact = more;
	}
}

/*
 * In REPEATABLE READ and above the transaction block reads what was committed
 * before the lock was granted: the work of the holder before us is invisible.
 * One warning a statement will do.
 */
static void
warn_of_snapshot(void)
{
	static TimestampTz warned_in;

	if (!snapshot_warning || !IsolationUsesXactSnapshot() ||
		!IsTransactionBlock() ||
		warned_in == GetCurrentStatementStartTimestamp())
		return;
	warned_in = GetCurrentStatementStartTimestamp();
	ereport(WARNING,
			(errcode(ERRCODE_WARNING),
			 errmsg("a lock taken in a transaction with a fixed snapshot does not protect what it reads"),
			 errdetail("The transaction does not see what earlier holders of the lock have committed meanwhile."),
			 errhint("Take the lock before the transaction, or use READ COMMITTED and read in a later statement.")));
}

/*
 * The lock is held, in whatever mode: it needs no place of its own.  Shared
 * while we hold exclusive is granted at once, on the exclusive node; see
 * place.c.
 */
static int64
take_again(const ZkLockOrder *order, Lock *lock, Lock **taken)
{
	const ZkTaken *exclusive = &lock->taken[RECIPE_EXCLUSIVE];
	bool		is_exclusive = zklock_board_is_taken(exclusive);

	if (is_exclusive && lock->place.permits != order->permits)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("lock \"%s\" is held here with another number of permits",
						lock->name),
				 errdetail("This call names %d, the lock was taken with %d.",
						   order->permits, lock->place.permits),
				 errhint("Name the same number of permits as before, which zk_locks shows; a shared lock has 1.")));
	if (order->mode == RECIPE_EXCLUSIVE && !is_exclusive)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot upgrade lock \"%s\" from shared to exclusive",
						lock->name),
				 errdetail("Two sessions that upgrade the same lock would wait for each other for ever."),
				 errhint("Release the shared lock first, or take the exclusive lock from the start.")));
	if (!contact_is_after(lock->place.proof, zklock_session_fresh_since()))
		confirm_own(order, lock);
	zklock_refuse_if_lost();
	if (!zklock_board_is_taken(&lock->taken[order->mode]))
		zklock_place_prepare_downgrade(&lock->place, LockContext);
	return count_one(order, lock, taken);
}

/*
 * Is the lock, of which there is no fresh proof, still held?  The next look
 * tells.  Raises if there is no answer within the bounds of the call, as it
 * does for a lock that is not held.
 */
static void
confirm_own(const ZkLockOrder *order, Lock *lock)
{
	const ZkContender contender = {
		.place = &lock->place,
		.bounds = order->bounds
	};

	if (zklock_confirm_by(order->name, order->bounds.deadline) ||
		zklock_has_lost())
		return;
	if (order->is_try)
		zklock_session_raise_silence(order->name);
	zklock_contend_raise_timeout(&contender, NULL, NULL);
}

/* The place is won: the lock is held.  Result: its token. */
static int64
grant(const ZkLockOrder *order, Lock *lock, Lock **taken)
{
	int64		token = count_one(order, lock, taken);

	/* from here on an error finds the lock held and counted */
	zklock_session_interrupt_on_loss(true);
	log_lock(lock, order->mode, NULL);
	return token;
}

/* Count one more, in what reserve_count() has made.  Result: the token. */
static int64
count_one(const ZkLockOrder *order, Lock *lock, Lock **taken)
{
	ZkTaken    *mode = &lock->taken[order->mode];

	if (!zklock_lock_is_held(lock))
	{
		held_bytes += lock->nbytes;
		if (nheld++ == 0)
			zklock_session_note_use(true);
		lock->granted_in = zklock_released_mark();
	}
	if (!zklock_board_is_taken(mode))
	{
		mode->since = GetCurrentTimestamp();
		lock->taken_ms[order->mode] = protocol_now();
	}
	mode->counts[order->scope]++;
	if (order->scope == ZK_SCOPE_TRANSACTION)
		lock->xact[order->mode]->count++;
	if (taken != NULL)
		*taken = lock;
	post(lock);
	return lock->place.token;
}

/* Contend for a lock that is not held here. */
static ZkWaitEnd
win_place(const ZkLockOrder *order, Lock *lock)
{
	ZkWaitEnd end;
	ZkContender contender = {
		.place = &lock->place,
		.wants_list = order->wants_list,
		.holds_locks = zklock_has_locks(),
		.is_try = order->is_try,
		.style = zklock_name_style(),
		.bounds = order->bounds
	};

	/* we do not stand in our own way */
	zklock_keep_drop(&lock->place);
	lock->place.mode = order->mode;
	lock->place.permits = order->permits;
	contender.wants_keep = order->mode == RECIPE_EXCLUSIVE &&
		order->permits == 1 && !order->is_of_set &&
		zklock_keep_is_wanted(lock->path);
	zklock_session_open();
	end = zklock_contend(&contender);
	if (end == ZK_WAIT_GRANTED)
		lock->nbytes = ZK_PATH_BYTES(lock->place.node);
	if (end == ZK_WAIT_GRANTED && contender.wants_keep)
		zklock_keep_begin(&lock->place, contender.data);
	return end;
}

/* ---------------------------------------------------------------------
 * Release
 * ---------------------------------------------------------------------
 */

/*
 * The counts of these scopes end, and with them the places that nothing else
 * holds.  work: see zklock_release().  Never raises or waits.
 */
static void
end_scopes(unsigned scopes, ZkWork work)
{
	HASH_SEQ_STATUS scan;
	Lock	   *lock;
	ZkSessionNumber live;

	live = zklock_session_reap(false);
	zklock_client_begin_many(zklock_session_client());
	foreach_lock(scan, lock)
	{
		zklock_place_settle(&lock->place, live);
		foreach_mode(mode)
		{
			int		   *counts = lock->taken[mode].counts;
			bool		was_held = zklock_board_is_taken(&lock->taken[mode]);

			if ((scopes & ENDS(ZK_SCOPE_SESSION)) != 0 &&
				counts[ZK_SCOPE_SESSION] > 0)
				(void) release_patience(&lock->place);	/* it is RELEASE_MS for all */
			for (int scope = 0; scope < ZK_NSCOPES; scope++)
				if ((scopes & ENDS(scope)) != 0)
					counts[scope] = 0;
			if ((scopes & ENDS(ZK_SCOPE_TRANSACTION)) != 0)
				drop_xact_counts(&lock->xact[mode]);
			if (was_held && !zklock_board_is_taken(&lock->taken[mode]))
				end_mode(lock, mode, live, work,
						 (scopes & ENDS(ZK_SCOPE_SESSION)) != 0 ?
						 "unlocked with all" :
						 "ended with its transaction or call");
		}
		forget_if_empty(lock);
	}
	zklock_client_end_many(zklock_session_client());
}

static void
drop_xact_counts(XactCount **list)
{
	while (*list != NULL)
	{
		XactCount  *dropped = *list;

		*list = dropped->next;
		pfree(dropped);
	}
}

/*
 * The innermost subtransaction is over: its count passes to the parent, or
 * ends.
 */
static void
end_xact_count(Lock *lock, RecipeMode mode, bool is_commit,
			   SubTransactionId parent)
{
	XactCount **link = &lock->xact[mode];
	XactCount  *ending = *link;

	if (is_commit && (ending->next == NULL || ending->next->subid != parent))
	{
		ending->subid = parent;
		return;
	}
	*link = ending->next;
	if (is_commit)
		(*link)->count += ending->count;
	else
		lock->taken[mode].counts[ZK_SCOPE_TRANSACTION] -= ending->count;
	if (ending->count > 0 && !zklock_board_is_taken(&lock->taken[mode]))
		end_mode(lock, mode, zklock_session_live(),
				 TransactionIdIsValid(GetTopTransactionIdIfAny()) ?
				 ZK_WORK_CHANGES : ZK_WORK_NONE, "rolled back");
	pfree(ending);
}

/*
 * The last count of a mode is gone.  Counts of the other left?  Of the shared
 * one: downgrade.  None: keep the place or leave it.  Never raises or waits.
 */
static void
end_mode(Lock *lock, RecipeMode mode, ZkSessionNumber live, ZkWork work,
		 const char *how)
{
	Assert(!zklock_board_is_taken(&lock->taken[mode]));
	if (!zklock_lock_is_held(lock))
	{
		/* ahead of the delete, or loss_notice.c misses a node of what is held */
		zklock_board_remove_lock(&lock->line);
		log_lock(lock, mode, how);
		leave(lock, live, work);
		held_bytes -= lock->nbytes;
		if (--nheld > 0)
			return;
		zklock_session_note_use(false);
		zklock_session_interrupt_on_loss(false);
	}
	else if (mode == RECIPE_EXCLUSIVE)
		zklock_place_downgrade(&lock->place, live);
}

/*
 * Keep the place or leave it.  If what this transaction wrote relies on it,
 * its commit has to know whether it had been lost; so it is not kept, for
 * nobody is asked then.  Never raises or waits.
 */
static void
leave(Lock *lock, ZkSessionNumber live, ZkWork work)
{
	ZkPlace    *place = &lock->place;
	bool		is_relied_on = zklock_released_wrote_since(&lock->granted_in,
														   work);
	bool		is_lost;
	ZkRequest  *answer;

	zklock_place_settle(place, live);
	is_lost = zklock_place_is_lost(place, live);
	if (is_lost)
		zklock_lock_note_late_loss(lock);
	if (is_lost && is_relied_on)
		zklock_released_note_lost(place);
	if (zklock_keep_put(place, live, !is_relied_on))
		return;
	answer = zklock_place_leave(place, live, is_relied_on && !is_lost);
	if (is_relied_on && !is_lost)
		zklock_released_note(place, answer);
}

/*
 * How long its release, which is to come, is waited for; 0: not at all, as
 * without a connection, and behind one that is not answered yet.
 */
static int64
release_patience(ZkPlace *place)
{
	int64		held_ms = protocol_now() - place->granted_ms;

	place->is_awaited = held_ms >= AWAITED_MS && zklock_session_can_answer();
	return place->is_awaited ? Min(held_ms, RELEASE_MS) : 0;
}

/*
 * Remove an entry that holds nothing, and whose place is not kept; tell the
 * board of any other.
 */
static void
forget_if_empty(Lock *lock)
{
	if (zklock_lock_is_held(lock))
	{
		post(lock);
		return;
	}
	foreach_mode(mode)
		drop_xact_counts(&lock->xact[mode]);
	if (zklock_keep_is_kept(&lock->place))
		return;
	zklock_place_free(&lock->place);
	if (lock->name != NULL)
		pfree(lock->name);
	if (lock->holder != NULL)
		pfree(lock->holder);
	hash_search(zklock_locks, lock->path, HASH_REMOVE, NULL);
}

/*
 * Say who takes the lock, for the log, while the catalog may still be read: at
 * the end of a transaction it may not.
 */
static void
note_holder(Lock *lock)
{
	if (lock->holder != NULL)
		pfree(lock->holder);
	lock->holder = NULL;
	if (zklock_nodedata_logs(true))
		lock->holder = MemoryContextStrdup(LockContext,
										   psprintf("%s, ZooKeeper lock \"%s\"",
													zklock_nodedata_caller(),
													zklock_text_quotable_own(lock->name)));
}

/*
 * How it has ended; NULL: it is taken.  Interrupts wait: the caller of a lock
 * must hear that he has it.
 */
static void
log_lock(const Lock *lock, RecipeMode mode, const char *how)
{
	if (lock->holder == NULL)
		return;
	HOLD_INTERRUPTS();
	ereport(LOG_SERVER_ONLY,
			(errmsg("%s: %s in %s mode, fencing token " INT64_FORMAT ", after " INT64_FORMAT " ms",
					lock->holder, how == NULL ? "taken" :
					zklock_place_is_lost(&lock->place, zklock_session_live()) ?
					"lost" : how, zklock_args_mode(mode),
					lock->place.token,
					protocol_now() - lock->taken_ms[mode]),
			 errhidecontext(true), errhidestmt(true)));
	RESUME_INTERRUPTS();
}

/* The end of the backend, ahead of the session's: locks of session scope are left. */
static void
log_exit(int code, Datum arg)
{
	HASH_SEQ_STATUS scan;
	Lock	   *lock;

	foreach_lock(scan, lock)
		if (zklock_lock_is_held(lock))
			log_lock(lock, lock->place.mode, "ended with its session");
}

/*
 * Put on the board (board.h) how the lock is held now.  Never raises, never
 * waits.
 */
static void
post(Lock *lock)
{
	const ZkPlace *place = &lock->place;
	ZkBoardHeld held = {
		.permits = place->permits,
		.token = place->token,
		.proof_ms = place->proof.wall_ms,
		.session_number = place->session,
		.is_evicted = place->is_evicted
	};

	memcpy(held.taken, lock->taken, sizeof(held.taken));
	zklock_board_put_lock(&lock->line, lock->path, place->root_length, &held);
}

/* ---------------------------------------------------------------------
 * Call scope
 *
 * A client's message is one call, whatever is called in it: CALL, DO, SELECT,
 * several statements in one string.  PostgreSQL keeps what belongs to it in
 * MessageContext, and clears that when it is done and about to be idle: after
 * the commit, or after the abort that an error or a cancellation has led to,
 * and before the client is told that it may go on.  So a callback of that
 * context is where these locks end: PostgreSQL has no hook there.
 *
 * A call need not be the end of its transaction: in a transaction block, and
 * in the extended protocol before Sync.  What it wrote is not committed then,
 * so its locks stay until the transaction ends.
 * ---------------------------------------------------------------------
 */

/*
 * A lock of call scope is about to be taken: see to its end.  Raises 0A000
 * where there are no calls.
 */
static void
follow_call(void)
{
	if (MessageContext == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("locks of call scope cannot be used in a background worker"),
				 errdetail("It has no client whose calls could end."),
				 errhint("Use locks of session or of transaction scope.")));
	is_call_over = false;
	if (is_call_followed)
		return;
	at_call_end.func = end_call;
	MemoryContextRegisterResetCallback(MessageContext, &at_call_end);
	is_call_followed = true;
}

/*
 * In a transaction that is still good, the locks are left to its end
 * (zklock_end_transaction()).  A failed one is as good as over, but not one
 * of which a subtransaction has failed: ROLLBACK TO makes it go on.  Runs
 * outside of any transaction; never raises, never waits.
 */
static void
end_call(void *arg)
{
	is_call_followed = false;
	if (proc_exit_inprogress || in_error_recursion_trouble())
		return;
	is_call_over = IsTransactionState() || GetCurrentTransactionNestLevel() > 1;
	if (is_call_over || !zklock_has_locks())
		return;

	/* a WARNING would look for interrupts, too */
	HOLD_INTERRUPTS();
	end_scopes(ENDS(ZK_SCOPE_CALL), ZK_WORK_NONE);
	RESUME_INTERRUPTS();
}
