/*-------------------------------------------------------------------------
 *
 * lock_proof.c
 *	  What is known of the locks of this backend, without asking; whether they
 *	  are still held; losses in words, and proofs for the commit guard.
 *
 *-------------------------------------------------------------------------
 */
#include "lock_private.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/datetime.h"

#include "contender.h"

/*
 * A lock that was lost, and let go of before the interrupt for that took
 * effect: of this statement, and as an error would say it.
 */
static struct
{
	TimestampTz statement;		/* when that began; 0: there is none */
	char		message[ZK_LOSS_TEXT_SIZE];
	char		detail[ZK_LOSS_TEXT_SIZE];
}			LateLoss;

static const ZkPlace *good_place(const char *name);
static void describe_times(char detail[ZK_LOSS_TEXT_SIZE]);
static Lock *find_lost(void);
static int	find_unproved(ZkPlace **places, Moment fresh_since);
static void confirm_grants(void);
static Lock *find_on_word(void);
static void confirm_grant(ZkPlace *place);

/* ---------------------------------------------------------------------
 * Public functions
 * ---------------------------------------------------------------------
 */

int64
zklock_token(const char *name)
{
	const ZkPlace *place = good_place(name);

	return place != NULL ? place->token : 0;
}

int
zklock_permits(const char *name)
{
	const ZkPlace *place = good_place(name);

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

bool
zklock_is_held(const char *name)
{
	Lock	   *lock = zklock_lock_find(name);
	ZkPlace    *place = lock != NULL ? &lock->place : NULL;

	if (lock == NULL || !zklock_lock_is_held(lock) ||
		zklock_place_is_lost(place, zklock_session_live()))
		return false;
	confirm_grant(place);
	if (zklock_place_is_lost(place, zklock_session_live()))
		return false;
	for (int attempt = 0; attempt == 0 ||
		 !contact_is_after(place->proof, zklock_session_fresh_since());
		 attempt++)
	{
		zklock_place_prove(&place, 1, attempt);
		if (zklock_place_is_lost(place, zklock_session_live()))
			return false;
	}
	return true;
}

/*
 * The place that a lock is held on and that is not known to be lost, or NULL.
 */
static const ZkPlace *
good_place(const char *name)
{
	Lock	   *lock = zklock_lock_find(name);

	return lock != NULL && zklock_lock_is_held(lock) &&
		!zklock_place_is_lost(&lock->place, zklock_session_live()) ?
		&lock->place : NULL;
}

void
zklock_lock_warn_not_held(const char *name, const Lock *lock, RecipeMode mode)
{
	bool		is_shared = mode == RECIPE_SHARED;
	const char *hint = NULL;

	if (lock != NULL && lock->counts[mode].call > 0)
		hint = _("It is held in call scope: the end of what the client has sent releases it.");
	else if (lock != NULL && zklock_lock_has_mode(lock, mode))
		hint = _("It is held in transaction scope: the end of the transaction releases it.");
	else if (lock != NULL && zklock_lock_is_of_session(lock))
		hint = is_shared ?
			_("It is held in exclusive mode: release it with zk_unlock().") :
			_("It is held in shared mode: release it with zk_unlock_shared().");
	ereport(WARNING,
			(errcode(ERRCODE_WARNING),
			 errmsg("lock \"%s\" is not held in %s mode by this session",
					name, is_shared ? "shared" : "exclusive"),
			 hint != NULL ? errhint("%s", hint) : 0));
}

/* 40001 makes the retry loops of applications run the transaction again. */
void
zklock_refuse_if_lost(void)
{
	char		message[ZK_LOSS_TEXT_SIZE];
	char		detail[ZK_LOSS_TEXT_SIZE];
	const char *hint;
	bool		is_recent;

	if (!zklock_describe_loss(message, detail, &hint, &is_recent))
		return;

	/*
	 * The interrupt for the loss may be on its way: we may have seen first
	 * what the session's program has written down.  It must not come to who
	 * has caught this error and goes on.
	 */
	if (zklock_session_live() == 0)
		zklock_session_interrupt_on_loss(false);
	CHECK_FOR_INTERRUPTS();
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg_internal("%s", message),
			 errdetail_internal("%s", detail),
			 errhint("%s", hint)));
}

bool
zklock_describe_loss(char message[ZK_LOSS_TEXT_SIZE],
					 char detail[ZK_LOSS_TEXT_SIZE], const char **hint,
					 bool *is_recent)
{
	Lock	   *lock = find_lost();

	if (lock == NULL)
		return false;
	*is_recent = !lock->place.is_evicted && zklock_session_loss_interrupts();
	snprintf(message, ZK_LOSS_TEXT_SIZE, _("lock \"%s\" was lost"), lock->name);
	if (lock->place.evicted_by[0] != '\0')
		snprintf(detail, ZK_LOSS_TEXT_SIZE, _("It was evicted by %s."),
				 lock->place.evicted_by);
	else if (lock->place.is_evicted)
		snprintf(detail, ZK_LOSS_TEXT_SIZE, "%s", lock->place.is_mistaken ?
				 _("It had been granted on the word of another client of ZooKeeper, while somebody else ahead in the queue held it.") :
				 _("Another client of ZooKeeper deleted its znode."));
	else
		describe_times(detail);
	*hint = zklock_lock_is_of_session(lock) ?
		_("Release it with zk_unlock() or zk_unlock_all() and run the transaction again.") :
		_("Run the transaction again.");
	return true;
}

void
zklock_lock_note_late_loss(const Lock *lock)
{
	if (lock->place.is_evicted || !zklock_session_loss_interrupts())
		return;
	LateLoss.statement = GetCurrentStatementStartTimestamp();
	snprintf(LateLoss.message, ZK_LOSS_TEXT_SIZE, _("lock \"%s\" was lost"),
			 lock->name);
	describe_times(LateLoss.detail);
}

bool
zklock_describe_late_loss(char message[ZK_LOSS_TEXT_SIZE],
						  char detail[ZK_LOSS_TEXT_SIZE], const char **hint)
{
	if (LateLoss.statement != GetCurrentStatementStartTimestamp())
		return false;
	LateLoss.statement = 0;
	strlcpy(message, LateLoss.message, ZK_LOSS_TEXT_SIZE);
	strlcpy(detail, LateLoss.detail, ZK_LOSS_TEXT_SIZE);
	*hint = _("Run the transaction again.");
	return true;
}

void
zklock_prove_locks(bool always_ask)
{
	ZkPlace   **places;
	int			nplaces;
	int			attempt = 0;
	Moment		fresh_since;

	if (zklock_has_released_lost())
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("a lock was lost in this transaction"),
				 errdetail("It was released after the loss."),
				 errhint("Run the transaction again.")));
	zklock_refuse_if_lost();
	if (!zklock_has_locks())
		return;
	if (always_ask)
		confirm_grants();
	fresh_since = always_ask ? ZK_NO_PROOF : zklock_session_fresh_since();
	places = palloc(hash_get_num_entries(zklock_locks) * sizeof(*places));
	while ((nplaces = find_unproved(places, fresh_since)) > 0)
	{
		zklock_place_prove(places, nplaces, attempt++);
		if (find_lost() != NULL)
			break;
		fresh_since = zklock_session_fresh_since();
	}
	pfree(places);
	zklock_refuse_if_lost();
}

/* ---------------------------------------------------------------------
 * Helpers
 * ---------------------------------------------------------------------
 */

/* When and why the session was lost, in words.  Never raises. */
static void
describe_times(char detail[ZK_LOSS_TEXT_SIZE])
{
	char		broken_at[MAXDATELEN + 1];
	const char *lost_at;

	/* it has but one buffer */
	strlcpy(broken_at, timestamptz_to_str(zklock_session_broken_at()),
			sizeof(broken_at));
	lost_at = timestamptz_to_str(zklock_session_lost_at());
	if (zklock_session_broken_at() < zklock_session_lost_at())
		snprintf(detail, ZK_LOSS_TEXT_SIZE,
				 _("The connection broke at %s, and the lock was given up at %s. %s"),
				 broken_at, lost_at, zklock_session_loss_text());
	else
		snprintf(detail, ZK_LOSS_TEXT_SIZE,
				 _("The lock was given up at %s. %s"), lost_at,
				 zklock_session_loss_text());
}

/* Some lock that is lost, or NULL. */
static Lock *
find_lost(void)
{
	HASH_SEQ_STATUS scan;
	Lock	   *lock;
	Lock	   *lost = NULL;
	ZkSessionNumber live;

	if (!zklock_has_locks())
		return NULL;
	live = zklock_session_live();
	foreach_lock(scan, lock)
		if (lost == NULL && zklock_lock_is_held(lock) &&
			zklock_place_is_lost(&lock->place, live))
		lost = lock;
	return lost;
}

/*
 * Collect the places that have no proof from after that time.  Result: how
 * many.
 */
static int
find_unproved(ZkPlace **places, Moment fresh_since)
{
	HASH_SEQ_STATUS scan;
	Lock	   *lock;
	int			nplaces = 0;

	foreach_lock(scan, lock)
		if (zklock_lock_is_held(lock) &&
			!contact_is_after(lock->place.proof, fresh_since))
		places[nplaces++] = &lock->place;
	return nplaces;
}

/*
 * Confirm every grant on somebody's word alone.  There are some only if the
 * quorum was not to be asked yet when they were granted.  Raises 40001 if a
 * lock is lost: the session may be, meanwhile.
 */
static void
confirm_grants(void)
{
	Lock	   *lock;

	while ((lock = find_on_word()) != NULL)
		confirm_grant(&lock->place);
	zklock_refuse_if_lost();
}

/* Some lock that was granted on somebody's word, or NULL. */
static Lock *
find_on_word(void)
{
	HASH_SEQ_STATUS scan;
	Lock	   *lock;
	Lock	   *found = NULL;
	ZkSessionNumber live = zklock_session_live();

	foreach_lock(scan, lock)
		if (zklock_lock_is_held(lock) && lock->place.is_on_word &&
			!zklock_place_is_lost(&lock->place, live))
		found = lock;
	return found;
}

/*
 * Look whether whoever was ahead of a place has really let go.  If not, it is
 * lost.  Waits, for a session timeout at most; raises on interrupts.
 */
static void
confirm_grant(ZkPlace *place)
{
	ZkClientStatus status;
	ZkContender contender = {.place = place,.may_be_there = true};

	if (!place->is_on_word || !zklock_session_status(&status))
		return;
	contender.deadline = zklock_client_now() + status.session_timeout_ms;
	if (!zklock_place_await_downgrade(place))
		return;
	if (!zklock_contend_confirm(&contender))
		place->is_mistaken = place->is_evicted = true;
	place->is_on_word = false;
}
