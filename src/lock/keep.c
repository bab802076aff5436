/*-------------------------------------------------------------------------
 *
 * keep.c
 *	  Places that are kept after the last release of their lock.
 *
 * With zklock.keep the queue node stays when its lock is released, and the
 * next time this backend wants the lock it takes the place back and asks
 * nobody.  Everybody else finds a node that stands ahead of him, and is let
 * in by the session's program: that watches the queue and deletes the node as
 * soon as anybody comes (program_follow.c).  Which of the two it is, the state
 * decides that both change by compare-and-swap (keep_word.h).
 *
 * What was taken back is as good as what was granted: the node has been there
 * all the time, so nobody else was let in.  A fresh proof, the one that the
 * commit guard relies on, too, says that it is still there; without one it is
 * left, and the lock is contended for as if it had not been kept.  So is a
 * lock that is wanted by another user or application than it was granted to:
 * the node's data, which others see, is the former one's.  The token
 * is that of the node.  Behind a pooler those who hold the lock one after the
 * other can be told apart by it all the same: a place whose token was asked
 * for (zklock_tell_token()) is not kept, so what is taken back has a token
 * that nobody was told in this way.
 *
 * A lock that is kept is held by nobody: no commit is guarded for it, no loss
 * is told of, and no statement is canceled for it.
 *
 * Where others take the lock in between, keeping it makes them wait for the
 * program.  So whoever meets a rival for a lock does not keep it for a while.
 *
 * The one rule: nothing here raises or waits; much of it is called at the end
 * of transactions.  A place that is kept stays where it is, in lock.c's table:
 * this module merely points to it.
 *
 *-------------------------------------------------------------------------
 */
#include "keep.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "utils/guc.h"

#include "name.h"
#include "stat.h"

/* For how long a lock is not kept after a rival was met. */
#define RIVAL_MS 5000

/*
 * A lock that is kept, or held and may be.  What the program has to know of it
 * is in the KeptLock of the same number.
 */
typedef struct ZkKeep
{
	ZkPlace    *place;			/* which points to us; NULL: this is free */
	bool		is_kept;		/* and not held */
	uint32		whose;			/* what its node says of its maker, see
								 * caller_hash() */
	uint32		generation;		/* of its state */
} ZkKeep;

/*
 * zklock.keep: for how many milliseconds after its last use a lock is kept; 0
 * for not at all.  Everybody's own affair: nobody has to wait for it.
 */
static int	keep_setting;

static ZkKeep keeps[KEEP_SLOTS];
static int	nkept;				/* how many of them are kept */

/*
 * Until when a rival counts that was met, protocol_now(), by a hash of the
 * lock's path.  A lock that shares another one's is merely not kept so long.
 */
static int64 rivals[4 * KEEP_SLOTS];

static KeptLock *shared_part(const ZkKeep *keep);
static bool can_keep(const ZkKeep *keep, ZkSessionNumber live);
static bool is_unchanged(const ZkKeep *keep);
static uint32 caller_hash(void);
static int64 *rival_until(const char *lock_path);
static bool reclaim(ZkKeep *keep);
static void leave_kept(ZkKeep *keep);
static void release(ZkKeep *keep);
static Size kept_bytes(void);
static ZkKeep *find_kept(void);
static ZkKeep *find_free(void);

void
zklock_keep_init(void)
{
	DefineCustomIntVariable("zklock.keep",
							"How long a lock that nobody waits for is kept after its release.",
							"The next time this session takes it, nobody is asked. 0 turns this off.",
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

	if (!zklock_keep_is_kept(place) || keep->whose != caller_hash() ||
		zklock_name_style() != RECIPE_STYLE_CURATOR || !reclaim(keep))
		return false;

	/*
	 * The clock is read after the state was changed: this process may have
	 * been stopped in between.
	 */
	if (!contact_is_after(place->proof, zklock_session_fresh_since()) ||
		place->session != zklock_session_live())
	{
		leave_kept(keep);
		return false;
	}
	zklock_stat_count(ZK_STAT_GRANT_KEPT);
	return true;
}

void
zklock_keep_begin(ZkPlace *place, const char *data)
{
	ZkKeep	   *keep = find_free();

	Assert(recipe_read_mark(strrchr(place->node, '/') + 1) == RECIPE_MARK_KEEPER);
	Assert(keep != NULL);		/* there was one when this was wanted */
	if (keep->is_kept)
		zklock_keep_drop(keep->place);
	keep->place = place;
	keep->whose = caller_hash();
	keep->generation = keep->generation % (KEEP_GENERATIONS - 1) + 1;
	place->keep = keep;

	/* the state goes first: the program reads it as soon as it is told */
	keep_word_begin(shared_part(keep), keep->generation, keep_setting,
					protocol_now());
	zklock_client_tell_kept(zklock_session_client(), keep - keeps,
							keep->generation, place->node, data);
}

bool
zklock_keep_put(ZkPlace *place, ZkSessionNumber live, bool may_stay)
{
	ZkKeep	   *keep = place->keep;
	KeptLock   *shared = keep != NULL ? shared_part(keep) : NULL;

	if (keep == NULL)
		return false;
	if (shared != NULL && (!may_stay || !can_keep(keep, live)))
		keep_word_end(shared);
	else if (shared != NULL &&
			 keep_word_put(shared, keep->generation, protocol_now()))
	{
		keep->is_kept = true;
		nkept++;
		return true;
	}
	else if (shared != NULL)
		zklock_keep_note_rival(place->lock_path);
	release(keep);
	return false;
}

bool
zklock_keep_is_kept(const ZkPlace *place)
{
	return place->keep != NULL && place->keep->is_kept;
}

void
zklock_keep_note_rival(const char *lock_path)
{
	if (keep_setting > 0)
		*rival_until(lock_path) = protocol_now() + RIVAL_MS;
}

void
zklock_keep_drop(ZkPlace *place)
{
	if (zklock_keep_is_kept(place) && reclaim(place->keep))
		leave_kept(place->keep);
}

int
zklock_keep_count(void)
{
	return nkept;
}

void
zklock_keep_drop_down_to(int most, Size most_bytes)
{
	while (nkept > most || kept_bytes() > most_bytes)
		zklock_keep_drop(find_kept()->place);
}

void
zklock_keep_settle(void)
{
	ZkSessionNumber live;

	if (nkept == 0)
		return;
	if (zklock_session_is_outdated())
		zklock_keep_drop_down_to(0, 0);
	live = zklock_session_live();
	for (int i = 0; i < KEEP_SLOTS; i++)
		if (keeps[i].is_kept &&
			(!zklock_keep_can_be_taken(keeps[i].place, live) ||
			 !is_unchanged(&keeps[i])))
			zklock_keep_drop(keeps[i].place);
}

bool
zklock_keep_can_be_taken(const ZkPlace *place, ZkSessionNumber live)
{
	const KeptLock *shared = zklock_keep_is_kept(place) &&
		place->session == live ? shared_part(place->keep) : NULL;

	return shared != NULL &&
		keep_word_state(shared, place->keep->generation) == KEEP_KEPT;
}

/* What is shared with the program; NULL if that session is over. */
static KeptLock *
shared_part(const ZkKeep *keep)
{
	KeptLock   *shared = keep->place != NULL &&
		keep->place->session == zklock_session_number() ?
		zklock_client_kept(zklock_session_client()) : NULL;

	return shared != NULL ? &shared[keep - keeps] : NULL;
}

/*
 * Can that place be kept?  Not when somebody has asked to release the lock, or
 * for its token.
 */
static bool
can_keep(const ZkKeep *keep, ZkSessionNumber live)
{
	const ZkPlace *place = keep->place;

	return is_unchanged(keep) && place->mode == RECIPE_EXCLUSIVE &&
		!place->is_on_word && place->recall_told == 0 &&
		!place->is_token_told &&
		!zklock_place_is_lost(place, live) &&
		protocol_now() >= *rival_until(place->lock_path);
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
	return &rivals[string_hash(lock_path, RECIPE_PATH_SIZE) %
				   lengthof(rivals)];
}

/*
 * Take a kept place back into our hands.  false if it was given up, or went
 * with its session: it is forgotten then.
 */
static bool
reclaim(ZkKeep *keep)
{
	KeptLock   *shared = shared_part(keep);

	keep->is_kept = false;
	nkept--;
	if (shared != NULL && keep_word_take(shared, keep->generation))
		return true;
	if (shared != NULL &&
		keep_word_state(shared, keep->generation) == KEEP_GIVEN_UP)
	{
		zklock_stat_count(ZK_STAT_KEPT_FOR_OTHERS);
		zklock_keep_note_rival(keep->place->lock_path);
	}
	release(keep);
	return false;
}

/* Leave a place that was kept, and is in our hands again. */
static void
leave_kept(ZkKeep *keep)
{
	keep_word_end(shared_part(keep));

	/* no transaction relies on it, so nobody asks whether it was there */
	(void) zklock_place_leave(keep->place, zklock_session_live(), false);
	release(keep);
}

/* The place is kept no more, and will not be. */
static void
release(ZkKeep *keep)
{
	zklock_place_unwatch(keep->place);
	keep->place->keep = NULL;
	keep->place = NULL;
}

/* How many bytes the paths of their nodes have. */
static Size
kept_bytes(void)
{
	Size		sum = 0;

	for (int i = 0; nkept > 0 && i < KEEP_SLOTS; i++)
		if (keeps[i].is_kept)
			sum += ZK_PATH_BYTES(keeps[i].place->node);
	return sum;
}

/* One that is kept; NULL if there is none. */
static ZkKeep *
find_kept(void)
{
	for (int i = 0; i < KEEP_SLOTS; i++)
		if (keeps[i].is_kept)
			return &keeps[i];
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
		if (keeps[i].place == NULL)
			return &keeps[i];
	return find_kept();
}
