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
 * left, and the lock is contended for as if it had not been kept.  The token
 * is that of the node: nobody has held the lock in between, so there is nobody
 * to be told apart from.
 *
 * A lock that is kept is held by nobody: no commit is guarded for it, no loss
 * is told of, and no statement is canceled for it.
 *
 * Where others take the lock in between, keeping it makes them wait for the
 * program.  So whoever meets a rival for a lock does not keep it for a while,
 * and for twice as long each time, until one was kept and taken back.  This
 * is remembered for as many locks as can be kept.
 *
 * The one rule: all but prepare never raises and never waits; much of it is
 * called at the end of transactions.  Entries are TopMemoryContext's; without
 * memory nothing is kept.
 *
 *-------------------------------------------------------------------------
 */
#include "keep.h"

#include "storage/ipc.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "name.h"
#include "nodedata.h"
#include "stat.h"

/*
 * For how long a lock is not kept after a rival was met, at first and at
 * most.
 */
#define RIVAL_MIN_MS 500
#define RIVAL_MAX_MS 64000

/* What an entry is used for. */
typedef enum KeepUse
{
	USE_RIVAL,					/* nothing but that a rival was met */
	USE_HELD,					/* the lock is held, on a place that points to
								 * the entry, and may be kept */
	USE_KEPT					/* it is kept: the place is valid */
} KeepUse;

/*
 * A lock that is kept, may be kept, or is not for a while.  What the program
 * has to know of it is in the KeptLock of the same slot.
 */
typedef struct ZkKeep
{
	char		path[RECIPE_PATH_SIZE]; /* znode of the lock */
	char		name[RECIPE_NAME_MAX + 1];	/* as the user wrote it, clipped */
	KeepUse		use;
	ZkPlace		place;
	int			slot;			/* number of the KeptLock, and of the entry */
	uint32		generation;		/* of its state, unless USE_RIVAL */
	ZkSessionNumber session;	/* likewise: the session whose KeptLock it is */
	int			rival_ms;		/* 0, or for how long the last rival has
								 * counted */
	int64		rival_until;	/* until when; zklock_client_now() */
	uint64		used_at;		/* by the number of uses: the lowest goes
								 * first */
} ZkKeep;

/*
 * zklock.keep: for how many milliseconds after its last use a lock is kept; 0
 * for not at all.  Everybody's own affair: nobody has to wait for it.
 */
static int	keep_setting;

/* They are made as they are needed, and never freed. */
static ZkKeep *keeps[KEEP_SLOTS];
static int	nkeeps;				/* how many there are */
static int	nkept;				/* and how many of them are kept */
static uint64 nuses;

static const char *node_name(const ZkPlace *place);
static KeptLock *shared_part(const ZkKeep *keep);
static bool can_keep(const ZkPlace *place, ZkSessionNumber live);
static bool can_be_taken(const ZkKeep *keep, ZkSessionNumber live);
static bool is_shunned(const ZkKeep *keep);
static void meet_rival(ZkKeep *keep);
static bool reclaim(ZkKeep *keep);
static void drop(ZkKeep *keep);
static void leave(ZkKeep *keep);
static ZkKeep *find(const char *path);
static ZkKeep *enter(const char *path, bool may_drop);
static ZkKeep *oldest(KeepUse use);
static ZkKeep *free_entry(bool may_drop);

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

bool
zklock_keep_prepare(ZkPlace *place, MemoryContext context)
{
	ZkKeep	   *keep;
	char	   *data;

	if (keep_setting == 0 || zklock_name_style() != RECIPE_STYLE_CURATOR)
		return false;
	keep = find(place->lock_path);
	if (keep != NULL ? is_shunned(keep) :
		nkeeps == KEEP_SLOTS && nkept == 0 && oldest(USE_RIVAL) == NULL)
		return false;
	data = zklock_nodedata_build(0);
	if (place->own_data != NULL)
		pfree(place->own_data);
	place->own_data = NULL;
	place->own_data = MemoryContextStrdup(context, data);
	pfree(data);
	return true;
}

bool
zklock_keep_take(ZkPlace *place)
{
	const char *name = place->name;
	const char *lock_path = place->lock_path;
	ZkKeep	   *keep = nkept > 0 ? find(lock_path) : NULL;

	if (keep == NULL || keep->use != USE_KEPT)
		return false;
	if (zklock_name_style() != RECIPE_STYLE_CURATOR)
	{
		drop(keep);
		return false;
	}
	if (!reclaim(keep))
		return false;

	/*
	 * The clock is read after the state was changed: this process may have
	 * been stopped in between.
	 */
	if (!contact_is_after(keep->place.proof, zklock_session_fresh_since()) ||
		keep->session != zklock_session_live())
	{
		leave(keep);
		return false;
	}
	*place = keep->place;
	place->name = name;
	place->lock_path = lock_path;
	place->keep = keep;
	keep->use = USE_HELD;
	keep->rival_ms = 0;
	zklock_stat_count(ZK_STAT_GRANT_KEPT);
	return true;
}

void
zklock_keep_begin(ZkPlace *place)
{
	ZkKeep	   *keep = place->can_keep ? enter(place->lock_path, true) : NULL;
	KeptLock   *shared;

	if (keep == NULL)
		return;
	keep->session = place->session;
	shared = shared_part(keep);
	if (shared == NULL)
		return;
	keep->use = USE_HELD;
	keep->generation = keep->generation % (KEEP_GENERATIONS - 1) + 1;
	place->keep = keep;

	/* the state goes first: the program reads it as soon as it is told */
	keep_word_begin(shared, keep->generation, keep_setting,
					zklock_client_now());
	zklock_client_tell_kept(zklock_session_client(), keep->slot,
							keep->generation, place->node, place->own_data);
}

bool
zklock_keep_put(ZkPlace *place, ZkSessionNumber live)
{
	ZkKeep	   *keep = place->keep;
	KeptLock   *shared = keep != NULL ? shared_part(keep) : NULL;
	bool		is_told;

	place->keep = NULL;
	if (keep == NULL)
		return false;
	keep->use = USE_RIVAL;
	if (shared == NULL)
		return false;
	if (!can_keep(place, live) || is_shunned(keep))
	{
		keep_word_end(shared);
		return false;
	}
	if (!keep_word_put(shared, keep->generation, keep_setting,
					   zklock_client_now(), &is_told))
	{
		meet_rival(keep);
		return false;
	}
	if (is_told)
		zklock_client_tell_kept(zklock_session_client(), keep->slot,
								keep->generation, NULL, NULL);

	/* what hangs on the place passes over */
	keep->place = *place;
	zklock_nodedata_clip(keep->name, sizeof(keep->name), place->name);
	keep->place.name = keep->name;
	keep->place.lock_path = keep->path;
	keep->use = USE_KEPT;
	nkept++;
	place->next_data = place->own_data = NULL;
	return true;
}

void
zklock_keep_note_rival(const char *lock_path)
{
	ZkKeep	   *keep;

	if (keep_setting == 0)
		return;
	keep = enter(lock_path, false);
	if (keep != NULL)
		meet_rival(keep);
}

void
zklock_keep_drop(const char *lock_path)
{
	ZkKeep	   *keep = nkept > 0 ? find(lock_path) : NULL;

	if (keep != NULL && keep->use == USE_KEPT)
		drop(keep);
}

void
zklock_keep_drop_down_to(int most)
{
	while (nkept > most)
		drop(oldest(USE_KEPT));
}

void
zklock_keep_settle(void)
{
	ZkSessionNumber live;

	if (nkept == 0)
		return;
	if (keep_setting == 0 || zklock_session_is_outdated())
		zklock_keep_drop_down_to(0);
	live = zklock_session_live();
	for (int i = 0; i < nkeeps; i++)
		if (keeps[i]->use == USE_KEPT && !can_be_taken(keeps[i], live))
			drop(keeps[i]);
}

bool
zklock_keep_has_node(const char *node)
{
	ZkSessionNumber live = zklock_session_live();
	bool		found = false;

	for (int i = 0; i < nkeeps; i++)
		found |= can_be_taken(keeps[i], live) &&
			strcmp(node_name(&keeps[i]->place), node) == 0;
	return found;
}

void
zklock_keep_visit(void (*visit) (const ZkPlace *place, void *argument),
				  void *argument)
{
	ZkSessionNumber live = zklock_session_live();

	for (int i = 0; i < nkeeps; i++)
		if (can_be_taken(keeps[i], live))
			visit(&keeps[i]->place, argument);
}

/* ---------------------------------------------------------------------
 * Keeping
 * ---------------------------------------------------------------------
 */

static const char *
node_name(const ZkPlace *place)
{
	return strrchr(place->node, '/') + 1;
}

/* What is shared with the program; NULL if that session is over. */
static KeptLock *
shared_part(const ZkKeep *keep)
{
	KeptLock   *shared = keep->session == zklock_session_number() ?
		zklock_client_kept(zklock_session_client()) : NULL;

	return shared != NULL ? &shared[keep->slot] : NULL;
}

/*
 * Is it kept, as far as can be told without taking it?  live:
 * zklock_session_live().
 */
static bool
can_be_taken(const ZkKeep *keep, ZkSessionNumber live)
{
	const KeptLock *shared = keep->use == USE_KEPT && keep->session == live ?
		shared_part(keep) : NULL;
	KeepState	state = shared != NULL ?
		keep_word_state(shared, keep->generation) : KEEP_FREE;

	return state == KEEP_KEPT || state == KEEP_SHOWN;
}

/*
 * Is that a place which can be kept?  Not when somebody has asked to release
 * the lock.
 */
static bool
can_keep(const ZkPlace *place, ZkSessionNumber live)
{
	return keep_setting > 0 && place->can_keep &&
		place->mode == RECIPE_EXCLUSIVE && place->replacing == NULL &&
		!place->is_on_word && !zklock_place_is_lost(place, live) &&
		!proc_exit_inprogress &&
		place->recalled_at == 0;
}

/* Has a rival been met lately? */
static bool
is_shunned(const ZkKeep *keep)
{
	return keep->rival_ms > 0 && zklock_client_now() < keep->rival_until;
}

/*
 * As long as it is shunned anyway, a rival does not make it any longer: only
 * until that much later.
 */
static void
meet_rival(ZkKeep *keep)
{
	if (!is_shunned(keep))
		keep->rival_ms = keep->rival_ms == 0 ? RIVAL_MIN_MS :
			Min(2 * keep->rival_ms, RIVAL_MAX_MS);
	keep->rival_until = zklock_client_now() + keep->rival_ms;
}

/*
 * Take a kept place back into our hands.  false if it was given up, or went
 * with its session: it is forgotten then.
 */
static bool
reclaim(ZkKeep *keep)
{
	KeptLock   *shared = shared_part(keep);
	bool		is_told;

	keep->use = USE_RIVAL;
	keep->used_at = ++nuses;
	nkept--;
	if (shared != NULL && keep_word_take(shared, keep->generation, &is_told))
	{
		if (is_told)
			zklock_client_tell_kept(zklock_session_client(), keep->slot,
									keep->generation, NULL, NULL);
		return true;
	}
	if (shared != NULL &&
		keep_word_state(shared, keep->generation) == KEEP_GIVEN_UP)
	{
		zklock_stat_count(ZK_STAT_KEPT_FOR_OTHERS);
		meet_rival(keep);
	}
	zklock_place_free(&keep->place);
	return false;
}

/* Leave a place that is kept. */
static void
drop(ZkKeep *keep)
{
	if (reclaim(keep))
		leave(keep);
}

/* The same for one that is in our hands again. */
static void
leave(ZkKeep *keep)
{
	keep_word_end(shared_part(keep));
	zklock_place_leave(&keep->place, zklock_session_live());
	zklock_place_free(&keep->place);
}

/* ---------------------------------------------------------------------
 * Entries
 * ---------------------------------------------------------------------
 */

static ZkKeep *
find(const char *path)
{
	for (int i = 0; i < nkeeps; i++)
		if (strcmp(keeps[i]->path, path) == 0)
			return keeps[i];
	return NULL;
}

/*
 * The entry of a lock, made if need be; NULL without memory, or if all of
 * them are taken; or kept, unless one of those may be dropped for it.
 */
static ZkKeep *
enter(const char *path, bool may_drop)
{
	ZkKeep	   *keep = find(path);

	if (keep == NULL)
	{
		keep = free_entry(may_drop);
		if (keep == NULL)
			return NULL;
		strlcpy(keep->path, path, sizeof(keep->path));
		keep->rival_ms = 0;
	}
	keep->used_at = ++nuses;
	return keep;
}

/* The entry of that use that was used longest ago; NULL if there is none. */
static ZkKeep *
oldest(KeepUse use)
{
	ZkKeep	   *found = NULL;

	for (int i = 0; i < nkeeps; i++)
		if (keeps[i]->use == use &&
			(found == NULL || keeps[i]->used_at < found->used_at))
			found = keeps[i];
	return found;
}

/* An entry to be used anew, if need be one that is kept and is dropped. */
static ZkKeep *
free_entry(bool may_drop)
{
	ZkKeep	   *keep;

	if (nkeeps < KEEP_SLOTS)
	{
		keep = MemoryContextAllocExtended(TopMemoryContext, sizeof(*keep),
										  MCXT_ALLOC_NO_OOM | MCXT_ALLOC_ZERO);
		if (keep == NULL)
			return NULL;
		keep->slot = nkeeps;
		keeps[nkeeps++] = keep;
		return keep;
	}
	keep = oldest(USE_RIVAL);
	if (keep != NULL || !may_drop)
		return keep;
	keep = oldest(USE_KEPT);
	if (keep != NULL)
		drop(keep);
	return keep;
}
