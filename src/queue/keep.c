/*-------------------------------------------------------------------------
 *
 * keep.c
 *	  Keeps places after the release of their locks, and takes them back
 *	  (zklock.keep).
 *
 * With zklock.keep the queue node stays when its lock is released.  The next
 * time this backend wants the lock it takes the place back, and asks nobody.
 * Another contender finds the node ahead of its own; the session's program, which
 * watches the queue, deletes the node as soon as one comes (program_follow.c).
 * Whether the backend or the program is first is decided by a state that both
 * change by compare-and-swap (keep_state.h).
 *
 * A lock that is taken back is as good as one that was granted: its node has been
 * there all the time, so nobody else was let in.  A fresh proof says that the
 * node is still there, the same proof on which the commit guard relies.  Without
 * one the place is left, and the lock is contended for as if it had not been
 * kept.  So it is if the lock is wanted for another user or application than it
 * was granted to: the data of the node, which others read, names the former one.
 *
 * The token is that of the node.  Behind a pooler the clients that hold the lock
 * one after the other can be told apart by it all the same: a place whose token
 * was asked for (zklock_tell_token()) is not kept, so that the token of a lock
 * that is taken back was told to nobody.
 *
 * A kept lock is not held: no commit is guarded for it, its loss is not
 * reported, and no statement is canceled for it.
 *
 * Where other contenders take the lock in between, keeping it makes them wait
 * for the program.  So a backend that has met another contender for a lock
 * does not keep that lock for a while.
 *
 * The one rule: nothing here raises or waits; much of it is called at the end
 * of transactions.  A place that is kept stays where it is, in lock_table.c's
 * table: this module merely points to it.
 *
 *-------------------------------------------------------------------------
 */
#include "keep.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "utils/guc.h"

#include "name.h"
#include "stat.h"
#include "text.h"

/* For how long a lock is not kept after a rival was met. */
#define RIVAL_MS 5000

/*
 * A lock that is kept, which its place says (KEPT), or that is held and may be.
 * What the program has to know of it is in the KeptLock of the same number.
 */
typedef struct ZkKeep
{
	ZkPlace    *place;			/* which points to us; NULL: this is free */
	uint32		whose;			/* what its node says of its maker, see
								 * caller_hash() */
	uint32		generation;		/* of its state */
} ZkKeep;

/*
 * zklock.keep: for how many milliseconds after its last use a lock is kept; 0
 * for not at all.  Everybody's own affair: nobody has to wait for it.
 */
static int	keep_setting;

/* All that is kept. */
static struct
{
	ZkKeep		all[KEEP_SLOTS];

	/*
	 * Until when a rival counts that was met, protocol_now(), by a hash of the
	 * lock's path.  A lock that shares another one's is merely not kept so
	 * long.
	 */
	int64		rivals[4 * KEEP_SLOTS];
}			Kept;

static KeptLock *shared_part(const ZkKeep *keep);
static const char *why_not_kept(const ZkKeep *keep, ZkSessionNumber live);
static void log_not_kept(const ZkPlace *place, const char *why);
static bool is_unchanged(const ZkKeep *keep);
static uint32 caller_hash(void);
static int64 *rival_until(const char *lock_path);
static bool reclaim_place(ZkKeep *keep);
static void leave_kept(ZkKeep *keep, const char *why, bool is_awaited);
static void release_keep(ZkKeep *keep);
static Size kept_bytes(void);
static bool is_free(const ZkKeep *keep);
static bool is_put(const ZkKeep *keep);
static ZkKeep *find_kept(void);
static ZkKeep *find_free(void);

void
zklock_keep_init(void)
{
	DefineCustomIntVariable("zklock.keep",
							"How long a lock for which no contender waits is kept after its release.",
							"Meanwhile the same session can take the lock again without asking ZooKeeper. 0 turns this off.",
							&keep_setting, 0, 0, 86400000,
							PGC_USERSET, GUC_UNIT_MS,
							NULL, NULL, NULL);
}

/* Without a free entry its node must not say that it may be kept. */
bool
zklock_keep_is_wanted(const char *lock_path)
{
	return keep_setting > 0 && zklock_name_style() == RECIPE_STYLE_CURATOR &&
		protocol_now() >= *rival_until(lock_path) && find_free() != NULL;
}

bool
zklock_keep_take(ZkPlace *place)
{
	ZkKeep	   *keep = place->keep;
	ZkSessionNumber live;

	if (!zklock_keep_is_kept(place) || keep->whose != caller_hash() ||
		zklock_name_style() != RECIPE_STYLE_CURATOR || !reclaim_place(keep))
		return false;

	/*
	 * The session is looked at, and the clock read, after the state was
	 * changed: this process may have been stopped in between.
	 */
	zklock_session_attend();
	live = zklock_session_live();
	zklock_place_find_loss(place, live);
	if (zklock_place_is_lost(place, live) ||
		!contact_is_after(place->proof, zklock_session_fresh_since()))
	{
		leave_kept(keep, "there is no fresh proof of it", false);
		return false;
	}
	zklock_stat_count(ZK_STAT_GRANT_KEPT);
	return true;
}

void
zklock_keep_begin(ZkPlace *place, const char *data)
{
	ZkKeep	   *keep = find_free();

	Assert(place->state == ZK_PLACE_HELD && place->keep == NULL);
	Assert(recipe_read_mark(strrchr(place->node, '/') + 1) == RECIPE_MARK_KEEPER);
	Assert(keep != NULL);		/* there was one when this was wanted */
	if (is_put(keep))
		zklock_keep_drop(keep->place, "there is no room to keep more");
	keep->place = place;
	keep->whose = caller_hash();
	keep->generation = keep->generation % (KEEP_GENERATIONS - 1) + 1;
	place->keep = keep;

	/* the state goes first: the program reads it as soon as it is told */
	keep_state_begin(shared_part(keep), keep->generation, keep_setting,
					 protocol_now());
	zklock_client_tell_kept(zklock_session_client(), keep - Kept.all,
							keep->generation, place->node, data);
}

bool
zklock_keep_put(ZkPlace *place, ZkSessionNumber live)
{
	ZkKeep	   *keep = place->keep;
	KeptLock   *shared;
	const char *why_not;

	Assert(!zklock_keep_is_kept(place));
	if (keep == NULL)
		return false;
	shared = shared_part(keep);
	if (shared == NULL)
	{
		release_keep(keep);
		return false;
	}
	why_not = why_not_kept(keep, live);
	if (why_not != NULL)
		keep_state_end(shared);
	else if (keep_state_put(shared, keep->generation, protocol_now()))
	{
		zklock_place_move(place, ZK_PLACE_KEPT, "nobody waits for its lock");
		return true;
	}
	else if (keep_state_read(shared, keep->generation) == KEEP_HELD_WANTED)
	{
		zklock_keep_note_rival(place->lock_path);
		why_not = "others wait for its lock";
	}
	else
	{
		zklock_client_refuse_page(zklock_session_client());
		why_not = "the program says that it was kept already";
	}
	log_not_kept(place, why_not);
	release_keep(keep);
	return false;
}

bool
zklock_keep_is_kept(const ZkPlace *place)
{
	Assert(place->state != ZK_PLACE_KEPT || place->keep != NULL);
	return place->state == ZK_PLACE_KEPT;
}

void
zklock_keep_note_rival(const char *lock_path)
{
	if (keep_setting > 0)
		*rival_until(lock_path) = protocol_now() + RIVAL_MS;
}

void
zklock_keep_drop(ZkPlace *place, const char *why)
{
	if (zklock_keep_is_kept(place) && reclaim_place(place->keep))
		leave_kept(place->keep, why, false);
}

void
zklock_keep_drop_down_to(int most, Size most_bytes)
{
	while (zklock_place_count_kept() > most || kept_bytes() > most_bytes)
		zklock_keep_drop(find_kept()->place, "another lock needs its room");
}

void
zklock_keep_drop_all(const char *why, bool is_awaited)
{
	while (zklock_place_count_kept() > 0)
	{
		ZkKeep	   *keep = find_kept();

		if (reclaim_place(keep))
			leave_kept(keep, why, is_awaited);
	}
}

void
zklock_keep_review(void)
{
	ZkSessionNumber live;

	if (zklock_place_count_kept() == 0)
		return;
	zklock_session_attend();
	if (zklock_session_is_outdated())
		zklock_keep_drop_all("the settings of the session have changed",
							 false);
	live = zklock_session_live();
	for (int i = 0; i < KEEP_SLOTS; i++)
	{
		ZkKeep	   *keep = &Kept.all[i];

		if (!is_put(keep))
			continue;
		if (!zklock_keep_can_be_taken(keep->place, live))
			zklock_keep_drop(keep->place, "it cannot be taken back");
		else if (!is_unchanged(keep))
			zklock_keep_drop(keep->place,
							 "it was kept for another caller, or for another time");
	}
}

bool
zklock_keep_can_be_taken(const ZkPlace *place, ZkSessionNumber live)
{
	const KeptLock *shared;

	if (!zklock_keep_is_kept(place) || place->grant.session != live)
		return false;
	shared = shared_part(place->keep);
	return shared != NULL &&
		keep_state_read(shared, place->keep->generation) == KEEP_KEPT;
}

/* What is shared with the program; NULL if that session is over. */
static KeptLock *
shared_part(const ZkKeep *keep)
{
	KeptLock   *all;

	if (keep->place == NULL ||
		keep->place->grant.session != zklock_session_number())
		return NULL;
	all = zklock_client_kept(zklock_session_client());
	if (all == NULL)
		return NULL;
	return &all[keep - Kept.all];
}

/* Why that place, which is held, cannot be kept; NULL: it can. */
static const char *
why_not_kept(const ZkKeep *keep, ZkSessionNumber live)
{
	const ZkPlace *place = keep->place;

	if (zklock_place_is_lost(place, live))
		return "it is lost";
	if (!is_unchanged(keep))
		return "zklock.keep or the caller is another one";
	if (place->mode != RECIPE_EXCLUSIVE)
		return "its node is a shared one";
	if (place->grant.basis == ZK_GRANTED_HANDED_OVER)
		return "its grant is not confirmed";
	if (place->told.of_request != 0)
		return "somebody has asked for its release";
	if (place->told.of_token)
		return "the user was told its token";
	if (protocol_now() < *rival_until(place->lock_path))
		return "others have waited for its lock a moment ago";
	return NULL;
}

/* Nothing may look for interrupts. */
static void
log_not_kept(const ZkPlace *place, const char *why)
{
	if (!message_level_is_interesting(DEBUG1))
		return;
	HOLD_INTERRUPTS();
	ereport(DEBUG1,
			(errmsg_internal("zklock: place \"%s\", fencing token " INT64_FORMAT ": not kept: %s",
							 zklock_text_quotable(place->node), place->token,
							 why),
			 errhidestmt(true), errhidecontext(true)));
	RESUME_INTERRUPTS();
}

/*
 * Was it granted under the present zklock.keep, of which the program knows no
 * other time, and to the present caller?  Valid while its session is the
 * present one.
 */
static bool
is_unchanged(const ZkKeep *keep)
{
	return keep->whose == caller_hash() &&
		keep_setting == atomic_load(&shared_part(keep)->keep_ms);
}

/*
 * Whom the session works for.  Behind a pooler that changes; the data of the
 * nodes does not.
 */
static uint32
caller_hash(void)
{
	return hash_combine(string_hash(application_name, NAMEDATALEN),
						hash_combine(murmurhash32(GetSessionUserId()),
									 murmurhash32(GetOuterUserId())));
}

static int64 *
rival_until(const char *lock_path)
{
	return &Kept.rivals[string_hash(lock_path, RECIPE_PATH_SIZE) %
						lengthof(Kept.rivals)];
}

/*
 * Take a kept place back into our hands.  false if it was given up, or went
 * with its session: it is forgotten then.
 */
static bool
reclaim_place(ZkKeep *keep)
{
	ZkPlace    *place = keep->place;
	KeptLock   *shared = shared_part(keep);
	KeepState	state = KEEP_FREE;
	const char *why;

	Assert(is_put(keep));
	if (shared != NULL && keep_state_take(shared, keep->generation))
	{
		zklock_place_move(place, ZK_PLACE_HELD, "taken back");
		return true;
	}
	if (shared != NULL)
		state = keep_state_read(shared, keep->generation);
	if (shared == NULL)
		why = "it went with its session";
	else if (state == KEEP_GIVEN_UP)
	{
		zklock_stat_count(ZK_STAT_KEPT_FOR_OTHERS);
		zklock_keep_note_rival(place->lock_path);
		why = "the program gave it up for others";
	}
	else if (state == KEEP_FREE)
		why = "its time was over";
	else
	{
		zklock_client_refuse_page(zklock_session_client());
		why = "the program says that it was not kept";
	}
	zklock_place_move(place, ZK_PLACE_NONE, why);
	release_keep(keep);
	return false;
}

/* Leave a place that was kept, and is in our hands again. */
static void
leave_kept(ZkKeep *keep, const char *why, bool is_awaited)
{
	zklock_session_attend();
	keep_state_end(shared_part(keep));
	zklock_place_leave(keep->place, zklock_session_live(), why, is_awaited);
	release_keep(keep);
}

/* The place is kept no more, and will not be. */
static void
release_keep(ZkKeep *keep)
{
	Assert(!is_put(keep));
	zklock_place_unwatch(keep->place);
	keep->place->keep = NULL;
	keep->place = NULL;
}

/* How many bytes the paths of their nodes have. */
static Size
kept_bytes(void)
{
	Size		sum = 0;

	for (int i = 0; zklock_place_count_kept() > 0 && i < KEEP_SLOTS; i++)
		if (is_put(&Kept.all[i]))
			sum += ZK_PATH_BYTES(Kept.all[i].place->node);
	return sum;
}

static bool
is_free(const ZkKeep *keep)
{
	return keep->place == NULL;
}

/* Is its lock kept, and not held? */
static bool
is_put(const ZkKeep *keep)
{
	return !is_free(keep) && zklock_keep_is_kept(keep->place);
}

/* One that is kept; NULL if there is none. */
static ZkKeep *
find_kept(void)
{
	for (int i = 0; i < KEEP_SLOTS; i++)
		if (is_put(&Kept.all[i]))
			return &Kept.all[i];
	return NULL;
}

/*
 * One that is free, or else one that is kept; NULL if all are of locks that are
 * held.
 */
static ZkKeep *
find_free(void)
{
	for (int i = 0; i < KEEP_SLOTS; i++)
		if (is_free(&Kept.all[i]))
			return &Kept.all[i];
	return find_kept();
}
