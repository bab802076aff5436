/*-------------------------------------------------------------------------
 *
 * lock_proof.c
 *	  Tells what is known of the locks of this backend, asks whether they are
 *	  still held, and proves them for the commit guard.
 *
 *-------------------------------------------------------------------------
 */
#include "lock_proof.h"

#include "access/xact.h"
#include "miscadmin.h"

#include "contender.h"
#include "keep.h"
#include "nodedata.h"
#include "row.h"
#include "stat.h"
#include "text.h"

/*
 * The loss of a lock that was released before the interrupt for the loss took
 * effect: the table does not have it any more, and the interrupt is still to be
 * explained.
 */
static struct
{
	int64		interrupt;		/* zklock_session_interrupt(); 0: there was no
								 * such loss */
	ZkLoss		loss;
}			LateLoss;

static void show_lock(ReturnSetInfo *result, const Lock *lock, RecipeMode mode,
					  const char *state);
static ZkPlace *find_place(const ZkName *name);
static void find_losses(void);
static const char *held_state(const Lock *lock, ZkSessionNumber live);
static const char *hint_of_other_mode(const Lock *lock, RecipeMode mode);
static void describe_lost_lock(const Lock *lock, ZkLoss *loss);
static bool ask_for_proofs(const Lock *only, bool always_ask, int64 deadline);
static bool is_asked(const Lock *lock, const Lock *only);
static Lock *find_lost(const Lock *only);
static int	find_unproved(const Lock *only, ZkPlace **places,
						  Moment fresh_since);
static void confirm_grant(ZkPlace *place, int64 deadline);

/* ---------------------------------------------------------------------
 * Public functions
 * ---------------------------------------------------------------------
 */

void
zklock_attend_locks(void)
{
	zklock_session_poll();
	find_losses();
}

/* The same for what is held, of a session that was attended to. */
static void
find_losses(void)
{
	HASH_SEQ_STATUS scan;
	Lock	   *lock;
	ZkSessionNumber live;

	if (!zklock_has_locks())
		return;
	live = zklock_session_live();
	foreach_lock(scan, lock)
		zklock_place_find_loss(&lock->place, live);
}

int64
zklock_tell_token(const ZkName *name, ZkTokenOf *of)
{
	ZkPlace    *place;

	zklock_attend_locks();
	place = find_place(name);
	if (place == NULL)
		return 0;
	place->told.of_token = true;
	if (of != NULL)
	{
		of->root = zklock_name_root_of(place->lock_path, place->root_length);
		of->name = pstrdup(place->name);
		of->is_sole = place->mode == RECIPE_EXCLUSIVE && place->permits == 1;
	}
	return place->token;
}

bool
zklock_read_release_request(const ZkName *name)
{
	ZkPlace    *place;

	zklock_attend_locks();
	place = find_place(name);
	return place != NULL && zklock_place_read_release_request(place);
}

void
zklock_show_locks(ReturnSetInfo *result)
{
	HASH_SEQ_STATUS scan;
	Lock	   *lock;
	ZkSessionNumber live;

	if (zklock_lock_count_entries() == 0)
		return;
	zklock_attend_locks();
	live = zklock_session_live();
	foreach_lock(scan, lock)
	{
		foreach_mode(mode)
			if (zklock_lock_is_shown(lock, mode))
			show_lock(result, lock, mode, held_state(lock, live));
		if (zklock_keep_can_be_taken(&lock->place, live))
			show_lock(result, lock, RECIPE_EXCLUSIVE, "kept");
	}
}

/* As zk_session_locks has it, of a lock that is held. */
static const char *
held_state(const Lock *lock, ZkSessionNumber live)
{
	if (zklock_place_is_lost(&lock->place, live))
		return "lost";
	return zklock_lock_is_leaving(lock) ? "leaving" : "held";
}

/* Put one row of zk_session_locks. */
static void
show_lock(ReturnSetInfo *result, const Lock *lock, RecipeMode mode,
		  const char *state)
{
	const ZkTaken *taken = &lock->taken[mode];
	const ZkPlace *place = &lock->place;
	TimestampTz since = place->grant.at;
	char	   *root = pnstrdup(lock->path, Max(place->root_length, 1));
	ZkRow		row = {0};

	if (zklock_board_is_taken(taken))
		since = taken->since;
	zklock_row_add_taken(&row, lock->name, mode, state, taken, place->token);
	/* the root in it may be of another encoding than the name */
	zklock_row_add_text(&row, zklock_text_printable(place->node));
	zklock_row_add(&row, true, TimestampTzGetDatum(since));
	zklock_row_add(&row, true, Int32GetDatum(place->permits));
	zklock_row_add_text(&row, zklock_text_printable(root));
	zklock_row_put(result, &row);
}

bool
zklock_confirm_held(const ZkName *name)
{
	Lock	   *lock = zklock_lock_find(name);

	return lock != NULL && zklock_lock_is_taken(lock) &&
		zklock_confirm_by(lock, ZK_NO_DEADLINE);
}

bool
zklock_confirm_by(Lock *lock, int64 deadline)
{
	zklock_session_attend();
	return ask_for_proofs(lock, true, deadline) && find_lost(lock) == NULL;
}

/*
 * The place that a lock is held on and that is not known to be lost, or NULL.  What
 * is leaving the user holds no more.
 */
static ZkPlace *
find_place(const ZkName *name)
{
	Lock	   *lock = zklock_lock_find(name);

	if (lock == NULL || !zklock_lock_is_taken(lock) ||
		zklock_place_is_lost(&lock->place, zklock_session_live()))
		return NULL;
	return &lock->place;
}

void
zklock_lock_warn_not_held(const ZkName *name, const Lock *lock, RecipeMode mode)
{
	const char *hint = NULL;

	if (lock != NULL && lock->taken[mode].counts[ZK_SCOPE_CALL] > 0)
		hint = _("It is held in call scope: the end of the client's query releases it.");
	else if (lock != NULL && zklock_board_is_taken(&lock->taken[mode]))
		hint = _("It is held in transaction scope: the end of the transaction releases it.");
	else if (lock != NULL && zklock_lock_is_of_session(lock))
		hint = hint_of_other_mode(lock, mode);
	else if (lock != NULL && zklock_lock_is_leaving(lock))
		hint = _("It was released before in this transaction, which has written: others get it when the transaction ends.");
	ereport(WARNING,
			(errcode(ERRCODE_WARNING),
			 errmsg("lock \"%s\" is not held in %s mode by this session",
					name->text, zklock_row_mode_name(mode)),
			 hint != NULL ? errhint("%s", hint) : 0));
}

void
zklock_refuse_if_lost(void)
{
	Lock	   *lock;
	ZkLoss		loss;

	find_losses();
	lock = find_lost(NULL);
	if (lock == NULL)
		return;
	zklock_place_log_deletion(&lock->place);
	describe_lost_lock(lock, &loss);

	/*
	 * The interrupt for the loss may be on its way: the session's program
	 * writes the loss down first, and its end is seen before the signal of its
	 * death comes.  Handlers cannot catch that interrupt, so it is sent now.  A
	 * handler that catches this error and goes on must not be interrupted for it
	 * again.
	 */
	zklock_session_interrupt_if_lost();
	zklock_session_interrupt_on_loss(false);
	CHECK_FOR_INTERRUPTS();
	zklock_session_end_interrupt();
	zklock_loss_raise(&loss);
}

bool
zklock_describe_loss(ZkLoss *loss)
{
	Lock	   *lock = find_lost(NULL);

	if (lock != NULL)
		describe_lost_lock(lock, loss);
	return lock != NULL;
}

void
zklock_lock_note_late_loss(const Lock *lock)
{
	if (zklock_session_interrupt() == 0)
		return;
	LateLoss.interrupt = zklock_session_interrupt();
	describe_lost_lock(lock, &LateLoss.loss);
}

bool
zklock_explain_cancellation(ZkLoss *loss)
{
	int64		interrupt = zklock_session_interrupt();

	if (interrupt == 0)
		return false;
	find_losses();
	if (zklock_describe_loss(loss))
		return true;
	*loss = LateLoss.loss;
	return LateLoss.interrupt == interrupt;
}

bool
zklock_has_lost(void)
{
	return find_lost(NULL) != NULL;
}

void
zklock_prove_locks(bool always_ask)
{
	if (!zklock_has_locks())
		return;
	/* raises, or has a loss */
	(void) ask_for_proofs(NULL, always_ask, ZK_NO_DEADLINE);
	zklock_refuse_if_lost();
}

bool
zklock_are_proved(void)
{
	return !zklock_has_lost() &&
		(!zklock_has_locks() ||
		 find_unproved(NULL, NULL, zklock_session_fresh_since()) == 0);
}

/* ---------------------------------------------------------------------
 * Helpers
 * ---------------------------------------------------------------------
 */

/*
 * How to release a lock of session scope that is held in the other mode than
 * this one.
 */
static const char *
hint_of_other_mode(const Lock *lock, RecipeMode mode)
{
	bool		is_shared = mode == RECIPE_SHARED;

	if (zklock_name_is_advisory(lock->name))
	{
		if (is_shared)
			return _("It is held in exclusive mode: release it with pg_advisory_unlock().");
		return _("It is held in shared mode: release it with pg_advisory_unlock_shared().");
	}
	if (is_shared)
		return _("It is held in exclusive mode: release it with zk_unlock().");
	return _("It is held in shared mode: release it with zk_unlock_shared().");
}

/* Say in words how a lock was lost.  Never raises. */
static void
describe_lost_lock(const Lock *lock, ZkLoss *loss)
{
	const ZkLossOf of = {
		.kind = zklock_place_loss(&lock->place, zklock_session_live()),
		.name = lock->name,
		.token = lock->place.token,
		.is_of_session = zklock_lock_is_of_session(lock)
	};

	zklock_loss_describe(&of, loss);
}

/*
 * Ask for proofs of that lock, or with NULL of all locks that are held, until
 * each has a fresh one, or one is lost: true.  false at the deadline.
 * always_ask: as zklock_prove_locks().
 *
 * Each round asks for all of them, also for those whose proof is still fresh:
 * then all proofs are of one age, and none becomes stale while others are
 * renewed.  A transaction that has taken hundreds of locks, one after the
 * other, has proofs of every age.
 *
 * A reply need not be a fresh proof.  In the first round this process may have
 * been stopped between question and reply; so it asks again.  After a second
 * one the session must have paused before the requests; so the next ones wait
 * until there are replies that can date a proof.
 */
static bool
ask_for_proofs(const Lock *only, bool always_ask, int64 deadline)
{
	Moment		fresh_since = ZK_NO_PROOF;
	ZkPlace   **places = palloc(zklock_lock_count_entries() *
								sizeof(*places));
	int64		took_ms = 0;	/* how long the last round took */
	ZkOutcome	outcome = ZK_ANSWERED;

	if (!always_ask)
		fresh_since = zklock_session_fresh_since();
	find_losses();
	if (always_ask && find_lost(only) == NULL)
	{
		int			nplaces = find_unproved(only, places, ZK_NO_PROOF);

		for (int i = 0; i < nplaces; i++)
			confirm_grant(places[i], deadline);
		find_losses();
	}
	for (int round = 0; outcome != ZK_LATE && find_lost(only) == NULL &&
		 find_unproved(only, NULL, fresh_since) > 0; round++)
	{
		int64		asked_at;
		int			nplaces;

		if (round == ZK_PROOF_ATTEMPTS)
			ereport(ERROR,
					(zklock_stat_errcode(ERRCODE_CONNECTION_FAILURE),
					 errmsg("could not prove that the ZooKeeper locks of this session are held"),
					 zklock_session_explain_late_proof(took_ms)));
		if (round >= 2)
			zklock_session_await_contact(deadline);
		asked_at = protocol_now();
		nplaces = find_unproved(only, places, ZK_NO_PROOF);
		outcome = zklock_place_prove(places, nplaces, deadline);
		took_ms = protocol_now() - asked_at;
		find_losses();
		fresh_since = zklock_session_fresh_since();
	}
	pfree(places);
	return outcome != ZK_LATE;
}

/* Is the lock held, and the only one that is asked about, or with NULL any? */
static bool
is_asked(const Lock *lock, const Lock *only)
{
	return (only == NULL || lock == only) && zklock_lock_is_held(lock);
}

/* Some lock that is asked about and known to be lost, or NULL. */
static Lock *
find_lost(const Lock *only)
{
	HASH_SEQ_STATUS scan;
	Lock	   *lock;
	Lock	   *lost = NULL;
	ZkSessionNumber live;

	if (!zklock_has_locks())
		return NULL;
	live = zklock_session_live();
	foreach_lock(scan, lock)
		if (is_asked(lock, only) && zklock_place_is_lost(&lock->place, live))
		lost = lock;
	return lost;
}

/*
 * Count the locks asked about that have no proof from after that time, and
 * collect their places unless places is NULL.
 */
static int
find_unproved(const Lock *only, ZkPlace **places, Moment fresh_since)
{
	HASH_SEQ_STATUS scan;
	Lock	   *lock;
	int			nplaces = 0;

	foreach_lock(scan, lock)
		if (is_asked(lock, only) &&
			!contact_is_after(lock->place.proof, fresh_since))
	{
		if (places != NULL)
			places[nplaces] = &lock->place;
		nplaces++;
	}
	return nplaces;
}

/*
 * If the place was granted on a message of the client just ahead, ask whether
 * the clients further ahead have really let go.  If not, it is lost.  Waits for a
 * session timeout at most; at the deadline it stays unconfirmed.  Raises on
 * interrupts.
 */
static void
confirm_grant(ZkPlace *place, int64 deadline)
{
	int64		until;
	bool		is_first;
	ZkOutcome	outcome;

	if (place->grant.basis != ZK_GRANTED_HANDED_OVER ||
		zklock_session_number() == 0)
		return;
	until = Min(deadline, protocol_now() + zklock_session_timeout_ms());
	outcome = zklock_contend_confirm(place, until, &is_first);
	if (outcome == ZK_LOST ||
		(outcome == ZK_LATE && protocol_now() >= deadline))
		return;
	if (outcome == ZK_LATE || !is_first)
		zklock_place_note_misled(place);
	place->grant.basis = ZK_GRANTED_BY_QUEUE;
}
