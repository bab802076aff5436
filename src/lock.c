/*-------------------------------------------------------------------------
 *
 * lock.c
 *	  What this backend holds: the table of locks, scopes, counts; acquire and
 *	  release; reentrancy, downgrade.
 *
 * One table entry per lock, one queue node in ZooKeeper per (lock, mode).  A
 * node lives as long as a count does, session or transaction scope.  The table
 * and what hangs on it live in LockContext until the backend exits.
 *
 * The one rule: between a grant and its count nothing may raise.  So entry,
 * node buffer and transaction count are allocated before the queue is joined;
 * an entry without counts is as good as none and is swept away later.
 *
 *-------------------------------------------------------------------------
 */
#include "lock.h"

#include <limits.h>

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#include "contend.h"
#include "ear.h"
#include "identity.h"
#include "name.h"
#include "neighbor.h"
#include "session.h"
#include "xact.h"

/* Holds of one (lock, mode) taken in transaction scope by one subtransaction. */
typedef struct XactCount
{
	SubTransactionId subid;
	int			count;			/* 0: reserved for a grant under way */
	struct XactCount *next;
} XactCount;

/* One mode of a lock.  Held if it has a count of either kind. */
typedef struct Hold
{
	int			session_count;
	XactCount  *xact_counts;

	/* The rest is valid while held. */
	char	   *node;			/* path of the queue node; buffer of
								 * RECIPE_PATH_SIZE, kept for the next time */
	bool		is_borrowed;	/* SHARED on the EXCLUSIVE hold's node */
	int			nnodes;			/* 1, or ALIAS_COUNT: node is the first */
	int64		czxids[ALIAS_COUNT];	/* of each; 0: not known */
	int32		numbers[ALIAS_COUNT];	/* with several nodes: of each */
	int			permits;		/* of the node */
	ZkSessionNumber session;	/* whose the node is */
	bool		is_evicted;		/* somebody deleted a node */
	bool		is_mistaken;	/* evicted, for the word it was granted on was
								 * false */
	bool		is_on_word;		/* see ZkContender; not confirmed since */
	bool		can_hand_over;	/* the same */
	Moment		proof;			/* date of the proof of the node, contact.h */
	int64		token;
	TimestampTz granted_at;

	/*
	 * SHARED after a downgrade: the requests that replace `node`, the former
	 * EXCLUSIVE node, by next_node, and so the others if there are several;
	 * NULL if there are none.  Valid only while the session is alive, which
	 * frees them when it ends.
	 */
	ZkRequest  *replacing[ALIAS_COUNT];
	char	   *next_node;		/* buffer like node */
	char	   *next_data;		/* its data, made when the node was borrowed */
} Hold;

typedef struct Lock
{
	char		path[RECIPE_PATH_SIZE]; /* key: znode of the lock */
	int			root_length;	/* how much of it is the root */
	char	   *name;			/* as the user wrote it; NULL in a new entry */
	Hold		holds[2];		/* by RecipeMode */
	ZkEar		ear;			/* for the one queue node of both */
} Lock;

/*
 * Who has held a lock for that long looks for a request to release it when it
 * does.  A shorter hold is hardly ever asked, and then by somebody who sees it
 * go.
 */
#define LONG_HOLD_MS 1000

/*
 * How often the quorum is asked for a fresh proof.  All but the first two take a
 * third of the session timeout, so the answers of such an ensemble take too long.
 */
#define PROOF_ATTEMPTS 6

/* When an order's wait is over, on zklock_client_now()'s clock. */
typedef struct Bounds
{
	int64		timeout_at;		/* by the function's argument */
	int64		lock_timeout_at;	/* by lock_timeout */
} Bounds;

/*
 * zklock.max_locks: how many queue nodes one backend may have.  The end of a
 * session is one transaction over all its nodes, which too many of them make
 * too large for the ensemble (ZOOKEEPER-4306).
 */
static int	max_locks_setting;

/* zklock.snapshot_warning: warn when a lock comes after the snapshot? */
static bool snapshot_warning;

/*
 * Has this transaction, after it wrote, let go of a lock that was lost?  Then
 * it must not commit either: it relied on the lock.
 */
static bool has_released_lost;

/* The table; NULL until the first lock. */
static HTAB *locks;
static MemoryContext LockContext;

static Lock *enter_lock(const char *name, const char *path, int root_length);
static Lock *find_lock(const char *name);
static const Hold *find_good_hold(const char *name);
static void reserve_count(Lock *lock, RecipeMode mode, ZkScope scope);
static int64 count_hold(const ZkLockOrder *order, Lock *lock);
static int64 borrow_exclusive(const ZkLockOrder *order, Lock *lock);
static Bounds bounds_of(const ZkLockOrder *order);
static ZkContender contender_for(const ZkLockOrder *order, const Lock *lock,
								 int root_length, const Bounds *bounds);
static void note_grant(Hold *hold, const ZkContender *contender);
static ZkContendEnd wait_for_lock(const ZkLockOrder *order, Lock *lock,
								  int root_length, const Bounds *bounds,
								  bool is_retry);
static int64 answer_busy(const ZkLockOrder *order, const Bounds *bounds,
						 bool is_known);
static void warn_of_snapshot(void);
pg_noreturn static void refuse_count(const Lock *lock);
pg_noreturn static void refuse_upgrade(const Lock *lock);
pg_noreturn static void refuse_semaphore(const char *name);
pg_noreturn static void refuse_permits(const Lock *lock,
						   int permits);
static bool is_held(const Hold *hold);
static ZkSessionNumber live_session(void);
static bool is_lost(const Hold *hold, ZkSessionNumber live);
static int	xact_count(const Hold *hold);
static void end_hold(Lock *lock, RecipeMode mode, ZkSessionNumber live);
static int	count_nodes(Lock *lock);
static void node_path(const Hold *hold, const char *first, int rank,
					  char path[RECIPE_PATH_SIZE]);
static void remove_nodes(const Lock *lock, const Hold *hold);
static void remove_node(const Lock *lock, const char *path, bool should_set);
static void downgrade(Lock *lock, ZkSessionNumber live);
static void send_downgrade(Hold *shared);
static void settle_downgrade(Hold *hold, ZkSessionNumber live);
static void withdraw_downgrade(Hold *hold);
static void share_evictions(void);
static void note_grant_to_ear(Lock *lock);
static void note_use(Lock *lock, bool is_wanted);
static Hold *any_hold(Lock *lock);
static const char *node_name(const Lock *lock);
static void remember_release(bool was_lost, bool has_written);
static void drop_xact_counts(Hold *hold);
static void forget_if_empty(Lock *lock);
static Hold *find_lost(Lock **lost_lock);
static void raise_if_lost(void);
static int	find_unproved(Hold **holds, Moment fresh_since);
static void ask_quorum(Hold **holds, int nholds, int attempt);
static bool await_downgrade(Hold *hold);
static ZkRequest *check_node(const Hold *hold, int rank);
static void await_proofs(Hold *hold, ZkRequest **requests);
static void confirm_grants(void);
static Hold *find_on_word(Lock **on_word_lock);
static void confirm_grant(Lock *lock, Hold *hold);
static void free_requests(ZkRequest **requests, int nrequests);

/* Loop over the entries of the table, which may be removed as they come. */
#define foreach_lock(scan, lock) \
	for (hash_seq_init(&(scan), locks); \
		 ((lock) = (Lock *) hash_seq_search(&(scan))) != NULL;)

/*
 * Shared first: where both modes end, the exclusive hold then ends last, and
 * no downgrade is begun for nothing.
 */
#define foreach_mode(mode) \
	for (int mode = RECIPE_SHARED; mode >= RECIPE_EXCLUSIVE; mode--)

/* ---------------------------------------------------------------------
 * Public functions
 * ---------------------------------------------------------------------
 */

void
zklock_lock_init(void)
{
	DefineCustomIntVariable("zklock.max_locks",
							"Most queue nodes that one backend may have: one for each lock, or three.",
							NULL,
							&max_locks_setting, 1000, 1, 10000,
							PGC_SUSET, 0,
							NULL, NULL, NULL);
	DefineCustomBoolVariable("zklock.snapshot_warning",
							 "Warns when a lock is taken in a transaction whose snapshot is already fixed.",
							 NULL,
							 &snapshot_warning, true,
							 PGC_USERSET, 0,
							 NULL, NULL, NULL);
}

int64
zklock_acquire(const ZkLockOrder *order)
{
	Bounds		bounds = bounds_of(order);

	for (bool is_retry = false;; is_retry = zklock_session_is_turning())
	{
		int			root_length;
		char	   *path;
		Lock	   *lock;
		Hold	   *hold;

		raise_if_lost();
		zklock_session_reap();
		if (!zklock_has_locks())
			zklock_session_adopt_settings();
		path = zklock_name_path(order->name, &root_length);
		lock = enter_lock(order->name, path, root_length);
		hold = &lock->holds[order->mode];
		reserve_count(lock, order->mode, order->scope);
		if (is_held(hold) && hold->permits == order->permits)
		{
			note_use(lock, false);
			raise_if_lost();
			return count_hold(order, lock);
		}
		if (is_held(&lock->holds[RECIPE_EXCLUSIVE]) &&
			lock->holds[RECIPE_EXCLUSIVE].permits != order->permits)
			refuse_permits(lock, order->permits);
		if (is_held(&lock->holds[RECIPE_EXCLUSIVE]))
		{
			note_use(lock, false);
			raise_if_lost();
			return borrow_exclusive(order, lock);
		}
		if (is_held(&lock->holds[RECIPE_SHARED]))
			refuse_upgrade(lock);
		if (!order->is_checked)
			zklock_check_room(1);
		switch (wait_for_lock(order, lock, root_length, &bounds, is_retry))
		{
			case ZK_CONTEND_GRANTED:
				count_hold(order, lock);
				note_grant_to_ear(lock);

				/* from here on an error finds the lock held and counted */
				zklock_session_interrupt_on_loss(true);
				return hold->token;
			case ZK_CONTEND_BUSY:
				forget_if_empty(lock);
				return answer_busy(order, &bounds, true);
			case ZK_CONTEND_UNANSWERED:
				forget_if_empty(lock);
				return answer_busy(order, &bounds, order->is_known_busy);
			case ZK_CONTEND_SESSION_LOST:

				/*
				 * If nothing else hung on the session, start again with a new
				 * one, at the end of the queue.
				 */
				forget_if_empty(lock);
				break;
		}
	}
}

int
zklock_acquire_at_once(const ZkLockOrder *const *orders, int norders,
					   int64 *tokens, bool *is_busy)
{
	Bounds		bounds = bounds_of(orders[0]);
	ZkContender *contenders = palloc(norders * sizeof(*contenders));
	Lock	  **entries = palloc(norders * sizeof(*entries));
	int			ngranted;

	*is_busy = false;
	raise_if_lost();
	zklock_session_reap();
	if (!zklock_has_locks())
		zklock_session_adopt_settings();

	/* how to get a session is zklock_acquire()'s business */
	if (!zklock_session_was_connected())
		return 0;
	zklock_session_open(false);
	for (int i = 0; i < norders; i++)
	{
		int			root_length;
		char	   *path = zklock_name_path(orders[i]->name, &root_length);

		entries[i] = enter_lock(orders[i]->name, path, root_length);
		reserve_count(entries[i], orders[i]->mode, orders[i]->scope);
		contenders[i] = contender_for(orders[i], entries[i], root_length,
									  &bounds);
		pfree(path);
	}
	zklock_ear_prepare();
	ngranted = zklock_contend_at_once(contenders, norders, is_busy);
	for (int i = 0; i < ngranted; i++)
	{
		note_grant(&entries[i]->holds[orders[i]->mode], &contenders[i]);
		tokens[i] = count_hold(orders[i], entries[i]);
		note_grant_to_ear(entries[i]);
	}

	/* from here on an error finds the locks held and counted */
	for (int i = ngranted; i < norders; i++)
		forget_if_empty(entries[i]);
	if (ngranted > 0)
		zklock_session_interrupt_on_loss(true);
	pfree(entries);
	pfree(contenders);
	return ngranted;
}

bool
zklock_needs_place(const ZkLockOrder *order)
{
	Lock	   *lock;

	raise_if_lost();
	lock = find_lock(order->name);
	if (lock == NULL)
		return true;
	if (order->mode == RECIPE_EXCLUSIVE &&
		is_held(&lock->holds[RECIPE_SHARED]) &&
		!is_held(&lock->holds[RECIPE_EXCLUSIVE]))
		refuse_upgrade(lock);
	return !is_held(&lock->holds[RECIPE_EXCLUSIVE]) &&
		!is_held(&lock->holds[RECIPE_SHARED]);
}

void
zklock_check_room(int nmore)
{
	HASH_SEQ_STATUS scan;
	Lock	   *lock;
	int			nheld = 0;
	int			nnodes = 0;
	bool		is_all = zklock_name_style() == RECIPE_STYLE_ALL;

	warn_of_snapshot();
	if (locks != NULL)
	{
		foreach_lock(scan, lock)
		{
			nheld += count_nodes(lock) > 0 ? 1 : 0;
			nnodes += count_nodes(lock);
		}
	}
	if (nnodes + nmore * (is_all ? ALIAS_COUNT : 1) <= max_locks_setting)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("too many ZooKeeper locks"),
			 is_all || nnodes > nheld ?
			 errdetail("This session has %d queue nodes and asks for %d more.",
					   nnodes, nmore * (is_all ? ALIAS_COUNT : 1)) :
			 nmore == 1 ?
			 errdetail("This session holds %d.", nheld) :
			 errdetail("This session holds %d and asks for %d more.",
					   nheld, nmore),
			 errhint("Release some, or increase \"%s\".",
					 "zklock.max_locks")));
}

void
zklock_give_back(Lock *lock, RecipeMode mode, ZkScope scope)
{
	Hold	   *hold = &lock->holds[mode];

	if (scope == ZK_SCOPE_SESSION)
		hold->session_count--;
	else
	{
		Assert(hold->xact_counts->subid == GetCurrentSubTransactionId());
		hold->xact_counts->count--;
	}
	if (!is_held(hold))
		end_hold(lock, mode, live_session());
	forget_if_empty(lock);
}

bool
zklock_release(const char *name, RecipeMode mode)
{
	Lock	   *lock = find_lock(name);
	Hold	   *hold = lock != NULL ? &lock->holds[mode] : NULL;
	ZkSessionNumber live = live_session();
	bool		was_lost;

	if (hold == NULL || hold->session_count == 0)
	{
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg("lock \"%s\" is not held in %s mode by this session",
						name, mode == RECIPE_SHARED ? "shared" : "exclusive")));
		return false;
	}
	was_lost = is_lost(hold, live);
	remember_release(was_lost, zklock_xact_has_written());

	/* all or none of its nodes: a WARNING would look for interrupts, too */
	HOLD_INTERRUPTS();
	hold->session_count--;
	if (!is_held(hold))
		end_hold(lock, mode, live);
	forget_if_empty(lock);
	RESUME_INTERRUPTS();
	if (was_lost)
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg("lock \"%s\" had been lost before it was released",
						name)));
	return !was_lost;
}

void
zklock_release_session_holds(bool has_written)
{
	HASH_SEQ_STATUS scan;
	Lock	   *lock;
	ZkSessionNumber live = live_session();

	if (locks == NULL)
		return;

	/* a WARNING would look for interrupts, too */
	HOLD_INTERRUPTS();
	zklock_client_begin_many(zklock_session_client());
	foreach_lock(scan, lock)
	{
		foreach_mode(mode)
		{
			Hold	   *hold = &lock->holds[mode];

			if (hold->session_count == 0)
				continue;
			remember_release(is_lost(hold, live), has_written);
			hold->session_count = 0;
			if (!is_held(hold))
				end_hold(lock, mode, live);
		}
		forget_if_empty(lock);
	}
	zklock_client_end_many(zklock_session_client());
	RESUME_INTERRUPTS();
}

int64
zklock_token(const char *name)
{
	const Hold *hold = find_good_hold(name);

	return hold != NULL ? hold->token : 0;
}

int
zklock_permits(const char *name)
{
	const Hold *hold = find_good_hold(name);

	return hold != NULL ? hold->permits : 0;
}

bool
zklock_is_held(const char *name)
{
	Lock	   *lock = find_lock(name);
	Hold	   *hold = lock != NULL ? any_hold(lock) : NULL;

	if (hold == NULL || is_lost(hold, live_session()))
		return false;
	zklock_ear_open(&lock->ear, lock->path, lock->root_length, node_name(lock),
					false);
	confirm_grant(lock, hold);
	if (is_lost(hold, live_session()))
		return false;
	for (int attempt = 0; attempt == 0 ||
		 !contact_is_after(hold->proof, zklock_session_fresh_since());
		 attempt++)
	{
		ask_quorum(&hold, 1, attempt);
		if (is_lost(hold, live_session()))
			return false;
	}
	zklock_ear_report(&lock->ear, lock->name);
	return true;
}

bool
zklock_is_release_requested(const char *name)
{
	Lock	   *lock = find_lock(name);

	if (lock == NULL || any_hold(lock) == NULL)
		return false;
	note_use(lock, true);
	return zklock_ear_is_asked(&lock->ear);
}

void
zklock_use(const char *name)
{
	Lock	   *lock = find_lock(name);

	if (lock != NULL && any_hold(lock) != NULL)
		note_use(lock, false);
}

void
zklock_visit_locks(void (*visit) (const ZkLockInfo *info, void *argument),
				   void *argument)
{
	HASH_SEQ_STATUS scan;
	Lock	   *lock;
	ZkSessionNumber live = live_session();

	if (locks == NULL)
		return;
	foreach_lock(scan, lock)
	{
		foreach_mode(mode)
		{
			Hold	   *hold = &lock->holds[mode];
			ZkLockInfo	info;

			if (!is_held(hold))
				continue;
			settle_downgrade(hold, live);
			info.name = lock->name;
			info.mode = mode;
			info.is_lost = is_lost(hold, live);
			info.permits = hold->permits;
			info.session_count = hold->session_count;
			info.xact_count = xact_count(hold);
			info.token = hold->token;
			info.node = hold->node;
			info.granted_at = hold->granted_at;
			visit(&info, argument);
		}
	}
}

void
zklock_refuse_if_lost(void)
{
	raise_if_lost();
}

bool
zklock_has_released_lost(void)
{
	return has_released_lost;
}

bool
zklock_has_locks(void)
{
	return locks != NULL && hash_get_num_entries(locks) > 0;
}

bool
zklock_has_xact_locks(void)
{
	HASH_SEQ_STATUS scan;
	Lock	   *lock;
	bool		found = false;

	if (locks == NULL)
		return false;
	foreach_lock(scan, lock)
		foreach_mode(mode)
			found |= xact_count(&lock->holds[mode]) > 0;
	return found;
}

void
zklock_end_transaction(void)
{
	HASH_SEQ_STATUS scan;
	Lock	   *lock;
	ZkSessionNumber live = live_session();

	has_released_lost = false;
	if (!zklock_has_locks())
		return;
	zklock_client_begin_many(zklock_session_client());
	foreach_lock(scan, lock)
	{
		foreach_mode(mode)
		{
			Hold	   *hold = &lock->holds[mode];
			bool		was_held = is_held(hold);

			drop_xact_counts(hold);
			if (was_held && !is_held(hold))
				end_hold(lock, mode, live);
		}
		forget_if_empty(lock);
	}
	zklock_client_end_many(zklock_session_client());

	/* the commit guard has stopped it; with no lock left it stays stopped */
	if (zklock_has_locks())
		zklock_session_interrupt_on_loss(true);
}

void
zklock_end_subtransaction(bool is_commit, SubTransactionId mine,
						  SubTransactionId parent)
{
	HASH_SEQ_STATUS scan;
	Lock	   *lock;
	ZkSessionNumber live;

	if (locks == NULL)
		return;
	live = live_session();
	foreach_lock(scan, lock)
	{
		foreach_mode(mode)
		{
			Hold	   *hold = &lock->holds[mode];
			XactCount **link = &hold->xact_counts;
			XactCount  *ending;

			/* inner subtransactions come first in the list */
			if (*link == NULL || (*link)->subid != mine)
				continue;
			ending = *link;
			if (is_commit && (ending->next == NULL ||
							  ending->next->subid != parent))
			{
				ending->subid = parent;
				continue;
			}
			*link = ending->next;
			if (is_commit)
				(*link)->count += ending->count;
			else if (ending->count > 0 && !is_held(hold))
				end_hold(lock, mode, live);
			pfree(ending);
		}
		forget_if_empty(lock);
	}
}

void
zklock_prove_locks(bool always_ask)
{
	Lock	   *lock;
	Hold	  **holds;
	int			nholds;
	int			attempt = 0;
	Moment		fresh_since;

	if (has_released_lost)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("a lock was lost in this transaction"),
				 errdetail("It was released after the loss."),
				 errhint("Run the transaction again.")));
	raise_if_lost();
	if (!zklock_has_locks())
		return;
	if (always_ask)
		confirm_grants();
	fresh_since = always_ask ? ZK_NO_PROOF : zklock_session_fresh_since();
	holds = palloc(2 * hash_get_num_entries(locks) * sizeof(*holds));
	while ((nholds = find_unproved(holds, fresh_since)) > 0)
	{
		ask_quorum(holds, nholds, attempt++);
		if (find_lost(&lock) != NULL)
			break;
		fresh_since = zklock_session_fresh_since();
	}
	pfree(holds);
	raise_if_lost();
}

/* ---------------------------------------------------------------------
 * Acquire
 * ---------------------------------------------------------------------
 */

/* The table's entry for a lock, made if need be. */
static Lock *
enter_lock(const char *name, const char *path, int root_length)
{
	Lock	   *lock;
	bool		found;

	if (locks == NULL)
	{
		HASHCTL		control = {0};

		if (LockContext == NULL)
			LockContext = AllocSetContextCreate(TopMemoryContext, "zklock",
												ALLOCSET_DEFAULT_SIZES);
		control.keysize = RECIPE_PATH_SIZE;
		control.entrysize = sizeof(Lock);
		control.hcxt = LockContext;
		locks = hash_create("zklock locks", 16, &control,
							HASH_ELEM | HASH_STRINGS | HASH_CONTEXT);
	}
	lock = hash_search(locks, path, HASH_ENTER, &found);
	if (!found)
	{
		lock->root_length = root_length;
		lock->name = NULL;
		memset(lock->holds, 0, sizeof(lock->holds));
		memset(&lock->ear, 0, sizeof(lock->ear));
	}
	if (lock->name == NULL)
		lock->name = MemoryContextStrdup(LockContext, name);
	return lock;
}

/* The entry of a lock, NULL if there is none.  Raises 42602 for a bad name. */
static Lock *
find_lock(const char *name)
{
	char	   *path = zklock_name_path(name, NULL);
	Lock	   *lock = NULL;

	if (locks != NULL)
		lock = hash_search(locks, path, HASH_FIND, NULL);
	pfree(path);
	return lock;
}

/* A hold of the lock that is not known to be lost; NULL if there is none. */
static const Hold *
find_good_hold(const char *name)
{
	Lock	   *lock = find_lock(name);
	ZkSessionNumber live = live_session();

	if (lock == NULL)
		return NULL;
	foreach_mode(mode)
		if (is_held(&lock->holds[mode]) &&
			!is_lost(&lock->holds[mode], live))
			return &lock->holds[mode];
	return NULL;
}

/*
 * Allocate all that a grant will need.  Raises 54000 if there cannot be one
 * more count: all of a scope, in whatever subtransactions, fit into one int.
 */
static void
reserve_count(Lock *lock, RecipeMode mode, ZkScope scope)
{
	Hold	   *hold = &lock->holds[mode];
	SubTransactionId subid = GetCurrentSubTransactionId();

	if ((scope == ZK_SCOPE_SESSION ? hold->session_count :
		 xact_count(hold)) == INT_MAX)
		refuse_count(lock);
	if (hold->node == NULL)
		hold->node = MemoryContextAlloc(LockContext, RECIPE_PATH_SIZE);
	if (hold->next_node == NULL)
		hold->next_node = MemoryContextAlloc(LockContext, RECIPE_PATH_SIZE);
	if (scope == ZK_SCOPE_TRANSACTION &&
		(hold->xact_counts == NULL || hold->xact_counts->subid != subid))
	{
		XactCount  *count = MemoryContextAlloc(LockContext, sizeof(*count));

		count->subid = subid;
		count->count = 0;
		count->next = hold->xact_counts;
		hold->xact_counts = count;
	}
}

/* Count one more, in what reserve_count() has made.  Result: the token. */
static int64
count_hold(const ZkLockOrder *order, Lock *lock)
{
	Hold	   *hold = &lock->holds[order->mode];

	if (order->scope == ZK_SCOPE_SESSION)
		hold->session_count++;
	else
		hold->xact_counts->count++;
	if (order->counted != NULL)
		*order->counted = lock;
	return hold->token;
}

/*
 * Shared while we hold exclusive: granted at once, on the exclusive node.  The
 * token is the exclusive one for good.  Should the exclusive hold end first,
 * the shared one gets a node of its own that is younger than those of waiting
 * writers; its number must not come after theirs all the same.
 */
static int64
borrow_exclusive(const ZkLockOrder *order, Lock *lock)
{
	Hold	   *exclusive = &lock->holds[RECIPE_EXCLUSIVE];
	Hold	   *shared = &lock->holds[RECIPE_SHARED];
	char	   *data;

	/* a downgrade at the end of a transaction must not look up names */
	data = zklock_identity_build(exclusive->token);
	if (shared->next_data != NULL)
		pfree(shared->next_data);
	shared->next_data = NULL;
	shared->next_data = MemoryContextStrdup(LockContext, data);
	pfree(data);

	strlcpy(shared->node, exclusive->node, RECIPE_PATH_SIZE);
	shared->nnodes = exclusive->nnodes;
	memcpy(shared->czxids, exclusive->czxids, sizeof(shared->czxids));
	memcpy(shared->numbers, exclusive->numbers, sizeof(shared->numbers));
	shared->is_borrowed = true;
	shared->permits = 1;
	shared->session = exclusive->session;
	shared->is_evicted = exclusive->is_evicted;
	shared->is_mistaken = exclusive->is_mistaken;
	shared->is_on_word = exclusive->is_on_word;
	shared->can_hand_over = false;	/* readers may hold it with us */
	shared->proof = exclusive->proof;
	shared->token = exclusive->token;
	shared->granted_at = GetCurrentTimestamp();
	memset(shared->replacing, 0, sizeof(shared->replacing));
	return count_hold(order, lock);
}

/* When to give up. */
static Bounds
bounds_of(const ZkLockOrder *order)
{
	int64		now = order->asked_at != 0 ? order->asked_at : zklock_client_now();
	Bounds		bounds = {ZK_NO_DEADLINE, ZK_NO_DEADLINE};

	if (order->has_timeout)
		bounds.timeout_at = now + order->timeout_ms;
	if (LockTimeout > 0)
		bounds.lock_timeout_at = now + LockTimeout;
	return bounds;
}

/* The contender for a lock that is not held here. */
static ZkContender
contender_for(const ZkLockOrder *order, const Lock *lock, int root_length,
			  const Bounds *bounds)
{
	ZkContender contender = {
		.name = order->name,
		.lock_path = lock->path,
		.root_length = root_length,
		.mode = order->mode,
		.permits = order->permits,
		.wants_list = zklock_xact_asks_quorum(),
		.style = zklock_name_style(),
		.patience = ZK_WAIT_UNTIL_DEADLINE,
		.deadline = bounds->lock_timeout_at,
		.node = lock->holds[order->mode].node
	};

	if (contender.style == RECIPE_STYLE_ALL && order->permits > 1)
		refuse_semaphore(order->name);

	/* not to wait in the queue is not the same as not to wait for a reply */
	if (order->has_timeout && order->timeout_ms == 0)
	{
		contender.patience = ZK_TRY_ONCE;
		contender.deadline = Min(contender.deadline,
								 zklock_session_reply_deadline());
	}
	else
		contender.deadline = Min(contender.deadline, bounds->timeout_at);
	return contender;
}

/* Granted: set all but the count. */
static void
note_grant(Hold *hold, const ZkContender *contender)
{
	hold->is_borrowed = false;
	hold->nnodes = contender->style == RECIPE_STYLE_ALL ? ALIAS_COUNT : 1;
	memcpy(hold->czxids, contender->czxids, sizeof(hold->czxids));
	memcpy(hold->numbers, contender->numbers, sizeof(hold->numbers));
	hold->permits = contender->permits;
	hold->session = zklock_session_number();
	hold->is_evicted = false;
	hold->is_mistaken = false;
	hold->is_on_word = contender->is_on_word;
	hold->can_hand_over = contender->can_hand_over;
	hold->proof = contender->proof;
	hold->token = contender->token;
	hold->granted_at = GetCurrentTimestamp();
	memset(hold->replacing, 0, sizeof(hold->replacing));
}

/* Contend for a lock that is not held here; granted, all but the count is set. */
static ZkContendEnd
wait_for_lock(const ZkLockOrder *order, Lock *lock, int root_length,
			  const Bounds *bounds, bool is_retry)
{
	ZkContender contender = contender_for(order, lock, root_length, bounds);
	ZkContendEnd end;

	zklock_session_open(is_retry);
	zklock_ear_prepare();
	end = zklock_contend(&contender);
	if (end == ZK_CONTEND_GRANTED)
		note_grant(&lock->holds[order->mode], &contender);
	return end;
}

/*
 * The lock was not to be had in time: false for a try, an error for the rest.
 * Who tries takes false for "somebody else has it", so if the ensemble has not
 * said that, a try raises.
 */
static int64
answer_busy(const ZkLockOrder *order, const Bounds *bounds, bool is_known)
{
	if (order->is_try && is_known)
		return 0;
	if (order->is_try)
		zklock_session_raise_silence(order->name);
	if (bounds->lock_timeout_at < bounds->timeout_at)
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("canceling statement due to lock timeout"),
				 is_known ? 0 : zklock_session_errdetail_silence()));
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("could not obtain lock \"%s\" within " INT64_FORMAT " ms",
					order->name, order->timeout_ms),
			 is_known ? 0 : zklock_session_errdetail_silence()));
	return 0;
}

/*
 * In REPEATABLE READ and above the transaction block reads what was committed
 * before the lock was granted: the work of the holder before us is invisible.
 */
static void
warn_of_snapshot(void)
{
	if (snapshot_warning && IsolationUsesXactSnapshot() && IsTransactionBlock())
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg("a lock taken in a transaction with a fixed snapshot does not protect what it reads"),
				 errdetail("The transaction does not see what earlier holders of the lock have committed meanwhile."),
				 errhint("Take the lock before the transaction, or use READ COMMITTED and read in a later statement.")));
}

static void
refuse_upgrade(const Lock *lock)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("cannot upgrade lock \"%s\" from shared to exclusive",
					lock->name),
			 errdetail("Two sessions that upgrade the same lock would wait for each other for ever."),
			 errhint("Release the shared lock first, or take the exclusive lock from the start.")));
}

static void
refuse_count(const Lock *lock)
{
	ereport(ERROR,
			(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
			 errmsg("too many holds of lock \"%s\"", lock->name),
			 errdetail("This session holds it %d times.", INT_MAX),
			 errhint("Release it as often as it is taken. A lock of session scope is not released by the end of a transaction.")));
}

/* Nobody but zklock has such semaphores, so that one node is enough. */
static void
refuse_semaphore(const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot take lock \"%s\" with several permits in node style \"all\"",
					name),
			 errdetail("Clients in other languages do not share semaphores with zklock."),
			 errhint("Set \"%s\" to another style for this call.",
					 "zklock.node_style")));
}

static void
refuse_permits(const Lock *lock, int permits)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("lock \"%s\" is held here with another number of permits",
					lock->name),
			 errdetail("This call names %d, the lock was taken with %d.",
					   permits, lock->holds[RECIPE_EXCLUSIVE].permits),
			 errhint("All users of a lock must name the same number of permits; a shared lock has 1.")));
}

/* ---------------------------------------------------------------------
 * Release
 * ---------------------------------------------------------------------
 */

static int
xact_count(const Hold *hold)
{
	int			sum = 0;

	for (XactCount *count = hold->xact_counts; count != NULL;
		 count = count->next)
		sum += count->count;
	return sum;
}

static bool
is_held(const Hold *hold)
{
	return hold->session_count > 0 || xact_count(hold) > 0;
}

/*
 * The session that is good as far as we know, 0 if none is.  Not to be called
 * with requests outstanding other than those of downgrades, see Hold.
 */
static ZkSessionNumber
live_session(void)
{
	zklock_session_reap();
	return zklock_session_number();
}

/* Is a lock that is held in the table no longer ours, as far as we know? */
static bool
is_lost(const Hold *hold, ZkSessionNumber live)
{
	return hold->is_evicted || hold->session != live;
}

static void
drop_xact_counts(Hold *hold)
{
	while (hold->xact_counts != NULL)
	{
		XactCount  *count = hold->xact_counts;

		hold->xact_counts = count->next;
		pfree(count);
	}
}

/*
 * The last count of a mode is gone: its node goes too, unless the other mode
 * stands on it.  Never raises, never waits.
 */
static void
end_hold(Lock *lock, RecipeMode mode, ZkSessionNumber live)
{
	Hold	   *hold = &lock->holds[mode];
	Hold	   *shared = &lock->holds[RECIPE_SHARED];

	if (mode == RECIPE_EXCLUSIVE && is_held(shared) && shared->is_borrowed)
	{
		downgrade(lock, live);
		return;
	}
	if (mode == RECIPE_SHARED && shared->is_borrowed &&
		is_held(&lock->holds[RECIPE_EXCLUSIVE]))
		return;
	if (hold->session == live)
	{
		settle_downgrade(hold, live);
		withdraw_downgrade(hold);
		remove_nodes(lock, hold);
	}
	memset(hold->replacing, 0, sizeof(hold->replacing));
	zklock_ear_close(&lock->ear, lock->name, lock->path, lock->root_length,
					 strrchr(hold->node, '/') + 1,
					 TimestampDifferenceExceeds(hold->granted_at,
												GetCurrentTimestamp(),
												LONG_HOLD_MS));
}

/* Any mode that is held, or NULL. */
static Hold *
any_hold(Lock *lock)
{
	foreach_mode(mode)
		if (is_held(&lock->holds[mode]))
			return &lock->holds[mode];
	return NULL;
}

/* The name of the queue node that a lock stands on, or soon will. */
static const char *
node_name(const Lock *lock)
{
	const Hold *exclusive = &lock->holds[RECIPE_EXCLUSIVE];
	const Hold *shared = &lock->holds[RECIPE_SHARED];

	return strrchr(is_held(exclusive) ? exclusive->node :
				   shared->replacing[0] != NULL ? shared->next_node :
				   shared->node, '/') + 1;
}

static void
note_grant_to_ear(Lock *lock)
{
	zklock_ear_note_grant(&lock->ear, lock->path, lock->root_length,
						  node_name(lock));
}

/*
 * A lock that is held is used: tell the user if its release was requested.
 * Waits a moment, in which it may be lost; raises on interrupts.
 */
static void
note_use(Lock *lock, bool is_wanted)
{
	ZkSessionNumber live = live_session();

	settle_downgrade(&lock->holds[RECIPE_SHARED], live);
	if (is_lost(any_hold(lock), live))
		return;
	zklock_ear_open(&lock->ear, lock->path, lock->root_length, node_name(lock),
					is_wanted);
	zklock_ear_report(&lock->ear, lock->name);
}

/* How many queue nodes does this backend have for the lock? */
static int
count_nodes(Lock *lock)
{
	const Hold *hold = any_hold(lock);

	return hold != NULL ? hold->nnodes : 0;
}

/*
 * The path of one of the nodes of a hold, counted from 0; first is that of the
 * first, present or to be.
 */
static void
node_path(const Hold *hold, const char *first, int rank,
		  char path[RECIPE_PATH_SIZE])
{
	const char *name = strrchr(first, '/') + 1;
	char		alias[RECIPE_NODE_SIZE];

	if (rank == 0)
	{
		strlcpy(path, first, RECIPE_PATH_SIZE);
		return;
	}
	alias_name(alias, name, rank, recipe_parse_node(name).mode,
			   hold->numbers[rank]);
	snprintf(path, RECIPE_PATH_SIZE, "%.*s%s", (int) (name - first), first,
			 alias);
}

/*
 * Note for the commit that a hold is let go of.  What was written before may
 * rely on it.
 */
static void
remember_release(bool was_lost, bool has_written)
{
	if (was_lost && has_written)
		has_released_lost = true;
}

/*
 * Delete the nodes of a hold, the first one first; alias.c says why.  If the
 * sequence counter has come far, try at times to delete the lock's znode too:
 * it works if nobody waits, and nobody misses it; see the head of contend.c.
 */
static void
remove_nodes(const Lock *lock, const Hold *hold)
{
	const char *child = strrchr(hold->node, '/') + 1;
	bool		is_neighbor_next = hold == &lock->holds[RECIPE_EXCLUSIVE] &&
		!hold->is_evicted && recipe_can_hand_over(child) &&
		zklock_neighbor_hand_over(hold->node, hold->token);
	char		path[RECIPE_PATH_SIZE];

	for (int rank = 0; rank < hold->nnodes; rank++)
	{
		node_path(hold, hold->node, rank, path);
		remove_node(lock, path, hold->can_hand_over &&
					!hold->is_evicted && !is_neighbor_next);
	}
	if (recipe_should_prune(child))
		zklock_client_free(zklock_client_remove(zklock_session_client(),
												lock->path,
												ZK_ANY_VERSION));
}

/*
 * Send a delete, behind a set if that hands the lock over, and complain where
 * that is impossible; without the path, which may have characters that cannot be
 * shown here, and this is no place for an error.
 */
static void
remove_node(const Lock *lock, const char *path, bool should_set)
{
	ZkClient   *client = zklock_session_client();

	if (!(should_set ? zklock_client_hand_over(client, path) :
		  zklock_client_delete(client, path)))
		ereport(WARNING,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("could not delete a queue node of lock \"%s\": out of memory",
						lock->name),
				 errhint("It goes with the end of this session.")));
}

/*
 * The exclusive hold ended, a shared one stays: put a shared node with the
 * same number in the exclusive node's place.  Writers that wait stay behind
 * it, readers behind it get in.  If that fails the exclusive node stays, which
 * keeps readers out but nobody in.
 */
static void
downgrade(Lock *lock, ZkSessionNumber live)
{
	Hold	   *shared = &lock->holds[RECIPE_SHARED];
	const char *name;
	char		next[RECIPE_NODE_SIZE];
	char		prefix[RECIPE_NODE_SIZE];
	char		guid[RECIPE_GUID_LEN + 1];
	uint8		random[16];
	RecipeNode	node;

	if (lock->holds[RECIPE_EXCLUSIVE].is_evicted)
		shared->is_evicted = true;
	zklock_ear_close(&lock->ear, lock->name, lock->path, lock->root_length,
					 strrchr(shared->node, '/') + 1, false);
	if (shared->is_evicted || shared->session != live ||
		!pg_strong_random(random, sizeof(random)))
		return;
	name = strrchr(shared->node, '/') + 1;
	node = recipe_parse_node(name);
	if (shared->nnodes > 1)
		alias_name(next, name, 0, RECIPE_SHARED, node.sequence);
	else
	{
		recipe_format_guid(guid, random);
		recipe_node_prefix(prefix, node.style, RECIPE_SHARED, 1, guid);
		snprintf(next, sizeof(next), "%.60s%010d", prefix, node.sequence);
	}
	snprintf(shared->next_node, RECIPE_PATH_SIZE, "%s/%s", lock->path, next);
	send_downgrade(shared);
	note_grant_to_ear(lock);
}

/*
 * Replace each node.  Several keep their GUID, by which others know that they
 * belong together, whichever of them are replaced already.
 */
static void
send_downgrade(Hold *shared)
{
	bool		is_complete = true;

	for (int rank = 0; rank < shared->nnodes; rank++)
	{
		char		from[RECIPE_PATH_SIZE];
		char		to[RECIPE_PATH_SIZE];

		node_path(shared, shared->node, rank, from);
		node_path(shared, shared->next_node, rank, to);
		shared->replacing[rank] =
			zklock_client_replace(zklock_session_client(), from,
								  shared->czxids[rank], to,
								  shared->next_data,
								  strlen(shared->next_data));
		is_complete &= shared->replacing[rank] != NULL;
	}

	/* without memory: one exclusive node stays, some of several are no lock */
	if (is_complete)
		return;
	shared->is_evicted |= shared->nnodes > 1;
	withdraw_downgrade(shared);
}

/*
 * If a downgrade is over, the hold is on its new node; or it stays on the old
 * one; or somebody had deleted the old one, and perhaps been granted the lock,
 * before the new one was there.  Of several nodes all must be new ones: a
 * hold that has not all of its nodes is lost.
 */
static void
settle_downgrade(Hold *hold, ZkSessionNumber live)
{
	bool		is_good = true;
	Moment		proof = ZK_NO_PROOF;

	if (hold->replacing[0] == NULL)
		return;
	if (hold->session != live)
	{
		/* freed with the session */
		memset(hold->replacing, 0, sizeof(hold->replacing));
		return;
	}
	for (int rank = 0; rank < hold->nnodes; rank++)
	{
		const ZkReply *reply = zklock_client_reply(hold->replacing[rank]);

		if (reply == NULL)
			return;
		is_good &= reply->result == ZK_OK;
		if (reply->result != ZK_OK)
			hold->is_evicted |= reply->result == ZK_NO_NODE ||
				hold->nnodes > 1;
		proof = contact_earlier(proof, reply->proof);
	}
	if (is_good)
	{
		strlcpy(hold->node, hold->next_node, RECIPE_PATH_SIZE);
		hold->proof = proof;
		for (int rank = 0; rank < hold->nnodes; rank++)
		{
			hold->czxids[rank] = zklock_client_reply(hold->replacing[rank])->czxid;
			zklock_client_free(hold->replacing[rank]);
		}
		memset(hold->replacing, 0, sizeof(hold->replacing));
	}
	else
		withdraw_downgrade(hold);
	hold->is_borrowed = false;
}

/* Undo a downgrade: the new nodes go, as far as they are there. */
static void
withdraw_downgrade(Hold *hold)
{
	for (int rank = 0; rank < ALIAS_COUNT; rank++)
	{
		zklock_client_withdraw(hold->replacing[rank]);
		hold->replacing[rank] = NULL;
	}
}

/* Remove an entry that holds nothing. */
static void
forget_if_empty(Lock *lock)
{
	foreach_mode(mode)
		if (is_held(&lock->holds[mode]))
			return;
	foreach_mode(mode)
	{
		drop_xact_counts(&lock->holds[mode]);
		if (lock->holds[mode].node != NULL)
			pfree(lock->holds[mode].node);
		if (lock->holds[mode].next_node != NULL)
			pfree(lock->holds[mode].next_node);
		if (lock->holds[mode].next_data != NULL)
			pfree(lock->holds[mode].next_data);
	}
	if (lock->name != NULL)
		pfree(lock->name);
	hash_search(locks, lock->path, HASH_REMOVE, NULL);
	if (hash_get_num_entries(locks) == 0)
		zklock_session_interrupt_on_loss(false);
}

/* ---------------------------------------------------------------------
 * Lost locks and proofs
 * ---------------------------------------------------------------------
 */

/* Some hold that was lost, with its lock, or NULL. */
static Hold *
find_lost(Lock **lost_lock)
{
	HASH_SEQ_STATUS scan;
	Lock	   *lock;
	Hold	   *lost = NULL;
	ZkSessionNumber live;

	if (!zklock_has_locks())
		return NULL;
	live = live_session();
	foreach_lock(scan, lock)
	{
		foreach_mode(mode)
		{
			Hold	   *hold = &lock->holds[mode];

			if (lost == NULL && is_held(hold) && is_lost(hold, live))
			{
				lost = hold;
				*lost_lock = lock;
			}
		}
	}
	return lost;
}

bool
zklock_describe_loss(char message[ZK_LOSS_TEXT_SIZE],
					 char detail[ZK_LOSS_TEXT_SIZE], const char **hint,
					 bool *is_recent)
{
	Lock	   *lock;
	Hold	   *hold = find_lost(&lock);

	if (hold == NULL)
		return false;
	*is_recent = !hold->is_evicted && zklock_session_loss_interrupts();
	snprintf(message, ZK_LOSS_TEXT_SIZE, _("lock \"%s\" was lost"), lock->name);
	if (hold->is_evicted)
		snprintf(detail, ZK_LOSS_TEXT_SIZE, "%s", hold->is_mistaken ?
				 _("It had been granted on the word of another client of ZooKeeper, while somebody else ahead in the queue held it.") :
				 _("Another client of ZooKeeper deleted its znode."));
	else
		snprintf(detail, ZK_LOSS_TEXT_SIZE, _("Since %s: %s"),
				 timestamptz_to_str(zklock_session_lost_since()),
				 zklock_session_loss_text());
	*hint = hold->session_count > 0 ?
		_("Release it with zk_unlock() or zk_unlock_all() and run the transaction again.") :
		_("Run the transaction again.");
	return true;
}

bool
zklock_describe_request(ZkRequestText *text, const char **hint)
{
	HASH_SEQ_STATUS scan;
	Lock	   *lock;
	bool		found = false;

	*hint = _("The lock has been released meanwhile.");
	if (zklock_has_locks())
	{
		foreach_lock(scan, lock)
		{
			if (found || any_hold(lock) == NULL ||
				!zklock_ear_explain(&lock->ear, lock->name, text))
				continue;
			found = true;
			*hint = any_hold(lock)->session_count > 0 ?
				_("The lock is still held. Release it as soon as the work allows.") :
				_("The lock is released at the end of the transaction.");
		}
	}
	return found || zklock_ear_explain(NULL, NULL, text);
}

/* 40001 makes the retry loops of applications run the transaction again. */
static void
raise_if_lost(void)
{
	char		message[ZK_LOSS_TEXT_SIZE];
	char		detail[ZK_LOSS_TEXT_SIZE];
	const char *hint;
	bool		is_recent;

	if (zklock_describe_loss(message, detail, &hint, &is_recent))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg_internal("%s", message),
				 errdetail_internal("%s", detail),
				 errhint("%s", hint)));
}

/*
 * Collect one hold for each node that has no proof from after that time.
 * Result: how many.
 */
static int
find_unproved(Hold **holds, Moment fresh_since)
{
	HASH_SEQ_STATUS scan;
	Lock	   *lock;
	int			nholds = 0;

	foreach_lock(scan, lock)
	{
		Hold	   *exclusive = &lock->holds[RECIPE_EXCLUSIVE];
		Hold	   *shared = &lock->holds[RECIPE_SHARED];

		if (is_held(exclusive) &&
			!contact_is_after(exclusive->proof, fresh_since))
			holds[nholds++] = exclusive;
		if (is_held(shared) &&
			!contact_is_after(shared->proof, fresh_since) &&
			!(shared->is_borrowed && is_held(exclusive)))
			holds[nholds++] = shared;
	}
	return nholds;
}

/*
 * Ask the quorum for each node, in one flush, and mark the holds whose node is
 * gone.  Waits; raises on interrupts and when ZooKeeper refuses to answer, 08006
 * when its answers come too late.
 *
 * The answer may be no fresh proof.  If this process was stopped after it had
 * asked, the answer has waited for us: ask again (attempt 1).  If that is not
 * fresh either there was a pause of the session ahead of it, and what can date
 * a proof is what is answered now (attempt 2 and later).
 */
static void
ask_quorum(Hold **holds, int nholds, int attempt)
{
	int			nrequests = nholds * ALIAS_COUNT;
	ZkRequest **requests = palloc0(nrequests * sizeof(*requests));

	if (attempt == PROOF_ATTEMPTS)
		ereport(ERROR,
				(errcode(ERRCODE_CONNECTION_FAILURE),
				 errmsg("could not prove that the ZooKeeper locks of this session are held"),
				 errdetail("ZooKeeper answers, but too late for what it says to be still certain."),
				 errhint("Increase \"%s\", or look into what slows the ensemble down.",
						 "zklock.session_timeout")));
	if (attempt >= 2)
		zklock_session_await_contact();

	for (int i = 0; i < nholds; i++)
		if (!await_downgrade(holds[i]))
			return;

	PG_TRY();
	{
		for (int i = 0; i < nholds; i++)
			for (int rank = 0; rank < holds[i]->nnodes; rank++)
				requests[i * ALIAS_COUNT + rank] = check_node(holds[i], rank);
		for (int i = 0; i < nholds; i++)
			await_proofs(holds[i], &requests[i * ALIAS_COUNT]);
	}
	PG_CATCH();
	{
		free_requests(requests, nrequests);
		PG_RE_THROW();
	}
	PG_END_TRY();
	free_requests(requests, nrequests);
	share_evictions();
}

/*
 * On which node a hold stands is known when its downgrade is over.  false if the
 * session is lost meanwhile: that is all there is to know then.
 */
static bool
await_downgrade(Hold *hold)
{
	for (int rank = 0; rank < ALIAS_COUNT; rank++)
		if (hold->replacing[rank] != NULL &&
			zklock_session_await(hold->replacing[rank], ZK_NO_DEADLINE,
								 ZK_WAITING_TO_COMMIT)->result == ZK_SESSION_LOST)
			return false;
	settle_downgrade(hold, zklock_session_number());
	return true;
}

/* Ask the quorum for one of the nodes of a hold. */
static ZkRequest *
check_node(const Hold *hold, int rank)
{
	char		path[RECIPE_PATH_SIZE];

	node_path(hold, hold->node, rank, path);
	return zklock_client_check(zklock_session_client(), path,
							   hold->czxids[rank]);
}

/*
 * Read the answers for the nodes of one hold, which is proved by all of them
 * only.  An answer that was lost with the connection is asked for again:
 * either the session comes back or it is lost.
 */
static void
await_proofs(Hold *hold, ZkRequest **requests)
{
	Moment		proof = ZK_NO_PROOF;

	for (int i = 0; i < hold->nnodes; i++)
	{
		const ZkReply *reply = zklock_session_await(requests[i],
													ZK_NO_DEADLINE,
													ZK_WAITING_TO_COMMIT);

		switch (reply->result)
		{
			case ZK_OK:
				proof = contact_earlier(proof, reply->proof);
				break;
			case ZK_NO_NODE:
				hold->is_evicted = true;
				return;
			case ZK_UNKNOWN_OUTCOME:
				zklock_client_free(requests[i]);
				requests[i] = check_node(hold, i);
				i--;
				break;
			case ZK_SESSION_LOST:
				return;			/* is_lost() sees it */
			default:
				zklock_session_raise(reply, "check a lock", hold->node);
		}
	}
	hold->proof = proof;
}

/*
 * Confirm every grant on somebody's word alone.  There are some only if the quorum
 * was not to be asked yet when they were granted.  Raises 40001 if a lock is lost:
 * the session may be, meanwhile.
 */
static void
confirm_grants(void)
{
	Lock	   *lock;
	Hold	   *hold;

	while ((hold = find_on_word(&lock)) != NULL)
		confirm_grant(lock, hold);
	raise_if_lost();
}

/* Some hold that was granted on somebody's word, with its lock, or NULL. */
static Hold *
find_on_word(Lock **on_word_lock)
{
	HASH_SEQ_STATUS scan;
	Lock	   *lock;
	Hold	   *found = NULL;
	ZkSessionNumber live = live_session();

	foreach_lock(scan, lock)
	{
		foreach_mode(mode)
		{
			Hold	   *hold = &lock->holds[mode];

			if (is_held(hold) && hold->is_on_word && !is_lost(hold, live))
			{
				found = hold;
				*on_word_lock = lock;
			}
		}
	}
	return found;
}

/*
 * Look whether whoever was ahead of a hold has really let go.  If not, the hold is
 * lost.  Waits, for a session timeout at most; raises on interrupts.
 */
static void
confirm_grant(Lock *lock, Hold *hold)
{
	ZkClientStatus status;
	ZkContender contender = {
		.name = lock->name,
		.lock_path = lock->path,
		.mode = hold - lock->holds,
		.permits = hold->permits,
		.may_be_there = true,
		.node = hold->node
	};

	if (!hold->is_on_word || !zklock_session_status(&status))
		return;
	contender.deadline = zklock_client_now() + status.session_timeout_ms;
	if (!await_downgrade(hold))
		return;
	if (!zklock_contend_confirm(&contender))
		hold->is_mistaken = hold->is_evicted = true;
	hold->is_on_word = false;
	share_evictions();
}

/* Two holds on one node are lost together. */
static void
share_evictions(void)
{
	HASH_SEQ_STATUS scan;
	Lock	   *lock;

	foreach_lock(scan, lock)
	{
		Hold	   *exclusive = &lock->holds[RECIPE_EXCLUSIVE];
		Hold	   *shared = &lock->holds[RECIPE_SHARED];

		if (is_held(exclusive) && is_held(shared) && shared->is_borrowed &&
			(exclusive->is_evicted || shared->is_evicted))
			exclusive->is_evicted = shared->is_evicted = true;
	}
}

static void
free_requests(ZkRequest **requests, int nrequests)
{
	for (int i = 0; i < nrequests; i++)
		zklock_client_free(requests[i]);
	pfree(requests);
}
