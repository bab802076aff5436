/*-------------------------------------------------------------------------
 *
 * keep.c
 *	  Places that are kept after the last release of their lock.
 *
 * With zklock.keep the queue node stays when its lock is released, and the
 * next time this backend wants the lock it takes the place back and asks
 * nobody.  Everybody else finds a node that stands ahead of him, and is let
 * in by the session's program: that watches the queue and deletes the node as
 * soon as anybody comes (program_keep.c).  Which of the two it is a word
 * decides that both share (keep_word.h).
 *
 * What was taken back is as good as what was granted: the node has been there
 * all the time, so nobody else was let in.  That it still is a fresh proof
 * says, the one that the commit guard relies on, too; without one the quorum
 * is asked.  The token is that of the node: nobody has held the lock in
 * between, so there is nobody to be told apart from.
 *
 * A lock that is kept is held by nobody: no commit is guarded for it, no loss
 * is told of, and no statement is canceled for it.
 *
 * Where others take the lock in between, keeping it makes them wait for the
 * program.  So whoever meets a rival for a lock does not keep it for a while,
 * and for twice as long each time, until one was kept and taken back.  This
 * is remembered for as many locks as can be kept.
 *
 * The one rule: all but prepare and prove never raises and never waits; much
 * of it is called at the end of transactions.  Entries are
 * TopMemoryContext's; without memory nothing is kept.
 *
 *-------------------------------------------------------------------------
 */
#include "keep.h"

#include "common/hashfn.h"
#include "storage/ipc.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "name.h"
#include "nodedata.h"
#include "roundtrip.h"
#include "stat.h"

/*
 * For how long a lock is not kept after a rival was met, at first and at
 * most.
 */
#define RIVAL_MIN_MS 500
#define RIVAL_MAX_MS 64000

/* A lock that is kept, may be kept, or is not for a while. */
typedef struct ZkKeep
{
	uint32		hash;			/* of its path */
	char		path[RECIPE_PATH_SIZE]; /* znode of the lock */
	char		name[RECIPE_NAME_MAX + 1];	/* as the user wrote it, clipped */
	bool		is_kept;		/* then place and kept are valid */
	bool		is_taken;		/* it is held, on a place that knows of this
								 * entry; kept is valid */
	ZkPlace		place;
	ZkKept		kept;
	ZkSessionNumber session;	/* of kept */
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
static bool can_keep(const ZkPlace *place, ZkSessionNumber live);
static bool can_be_taken(const ZkKeep *keep, ZkSessionNumber live);
static bool keep_place(ZkPlace *place, ZkKeep *keep);
static bool is_shunned(const ZkKeep *keep);
static void meet_rival(ZkKeep *keep);
static bool reclaim(ZkKeep *keep);
static void drop(ZkKeep *keep);
static void end_taken(ZkPlace *place);
static ZkKeep *find(const char *path);
static ZkKeep *enter(const char *path, bool may_drop);
static ZkKeep *free_entry(bool may_drop);
static bool has_room(void);

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
zklock_keep_is_wanted(const char *lock_path)
{
	ZkKeep	   *keep;

	if (keep_setting == 0 || zklock_name_style() != RECIPE_STYLE_CURATOR)
		return false;
	keep = find(lock_path);
	return keep != NULL ? !is_shunned(keep) : has_room();
}

void
zklock_keep_prepare(ZkPlace *place, MemoryContext context)
{
	char	   *data = zklock_nodedata_build(0);

	if (place->own_data != NULL)
		pfree(place->own_data);
	place->own_data = NULL;
	place->own_data = MemoryContextStrdup(context, data);
	pfree(data);
}

bool
zklock_keep_take(ZkPlace *place, bool *is_proved)
{
	const char *name = place->name;
	const char *lock_path = place->lock_path;
	int			root_length = place->root_length;
	ZkKeep	   *keep;

	*is_proved = false;
	if (nkept == 0)
		return false;
	keep = find(lock_path);
	if (keep == NULL || !keep->is_kept)
		return false;
	if (zklock_name_style() != RECIPE_STYLE_CURATOR)
	{
		drop(keep);
		return false;
	}
	if (!reclaim(keep))
		return false;
	*place = keep->place;
	place->name = name;
	place->lock_path = lock_path;
	place->root_length = root_length;
	place->keep = keep;
	keep->is_taken = true;
	keep->rival_ms = 0;

	/* the clock is read behind the word: we may have been stopped between */
	*is_proved = contact_is_after(place->proof, zklock_session_fresh_since());

	if (place->session != zklock_session_live())
	{
		end_taken(place);
		return false;
	}
	if (*is_proved)
		zklock_stat_count(ZK_STAT_GRANT_KEPT);
	return true;
}

bool
zklock_keep_prove(ZkPlace *place, int64 deadline)
{
	ZkRoundTrip trip = {.deadline = deadline};
	const ZkReply *reply;
	bool		is_ours = false;

	PG_TRY();
	{
		reply = zklock_roundtrip_check(&trip, place->node, place->token);
		is_ours = reply != NULL && reply->result == ZK_OK &&
			contact_is_after(reply->proof, zklock_session_fresh_since());
		if (is_ours)
		{
			place->proof = reply->proof;
			zklock_stat_count(ZK_STAT_GRANT_KEPT);
		}
	}
	PG_CATCH();
	{
		zklock_roundtrip_end(&trip);
		end_taken(place);
		PG_RE_THROW();
	}
	PG_END_TRY();
	zklock_roundtrip_end(&trip);
	if (!is_ours)
		end_taken(place);
	return is_ours;
}

void
zklock_keep_begin(ZkPlace *place)
{
	ZkKeep	   *keep;

	if (!place->can_keep)
		return;
	keep = enter(place->lock_path, true);
	if (keep == NULL ||
		!zklock_client_begin_kept(zklock_session_client(), &keep->kept,
								  place->node, place->own_data, keep_setting))
		return;
	keep->session = place->session;
	keep->is_taken = true;
	place->keep = keep;
}

bool
zklock_keep_put(ZkPlace *place, ZkSessionNumber live)
{
	ZkKeep	   *keep = place->keep;

	place->keep = NULL;
	if (keep == NULL)
		return false;
	keep->is_taken = false;
	if (can_keep(place, live) && !is_shunned(keep))
		return keep_place(place, keep);
	if (keep->session == zklock_session_number())
		zklock_client_end_kept(zklock_session_client(), &keep->kept);
	return false;
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

	if (keep != NULL && keep->is_kept)
		drop(keep);
}

void
zklock_keep_drop_all(void)
{
	zklock_keep_drop_down_to(0);
}

void
zklock_keep_drop_down_to(int most)
{
	while (nkept > most && nkept > 0)
	{
		ZkKeep	   *oldest = NULL;

		for (int i = 0; i < nkeeps; i++)
			if (keeps[i]->is_kept &&
				(oldest == NULL || keeps[i]->used_at < oldest->used_at))
				oldest = keeps[i];
		Assert(oldest != NULL);
		drop(oldest);
	}
}

void
zklock_keep_settle(void)
{
	ZkSessionNumber live;

	if (nkept == 0)
		return;
	if (keep_setting == 0 || zklock_session_is_outdated())
		zklock_keep_drop_all();
	live = zklock_session_live();
	for (int i = 0; i < nkeeps; i++)
		if (keeps[i]->is_kept && !can_be_taken(keeps[i], live))
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

/*
 * Is it kept, as far as can be told without taking it?  live:
 * zklock_session_live().
 */
static bool
can_be_taken(const ZkKeep *keep, ZkSessionNumber live)
{
	return keep->is_kept && keep->session == live &&
		zklock_client_is_kept(zklock_session_client(), &keep->kept);
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

/* Keep it, unless somebody waits.  What hangs on the place passes over. */
static bool
keep_place(ZkPlace *place, ZkKeep *keep)
{
	if (!zklock_client_keep(zklock_session_client(), &keep->kept,
							keep_setting))
	{
		meet_rival(keep);
		return false;
	}
	keep->place = *place;
	zklock_nodedata_clip(keep->name, sizeof(keep->name), place->name);
	keep->place.name = keep->name;
	keep->place.lock_path = keep->path;
	keep->is_kept = true;
	nkept++;
	place->next_data = place->own_data = NULL;
	return true;
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
	ZkPlace    *place = &keep->place;
	ZkClient   *client = zklock_session_client();

	keep->is_kept = false;
	nkept--;
	keep->used_at = ++nuses;
	if (keep->session == zklock_session_number())
	{
		if (zklock_client_take_kept(client, &keep->kept))
			return true;
		if (keep->kept.was_wanted)
		{
			zklock_stat_count(ZK_STAT_KEPT_FOR_OTHERS);
			meet_rival(keep);
		}
	}
	zklock_place_free(place);
	return false;
}

/* Leave a place that is kept. */
static void
drop(ZkKeep *keep)
{
	if (!reclaim(keep))
		return;
	zklock_client_end_kept(zklock_session_client(), &keep->kept);
	zklock_place_leave(&keep->place, zklock_session_live());
	zklock_place_free(&keep->place);
}

/* The same for one that was taken back for a lock, and does not count. */
static void
end_taken(ZkPlace *place)
{
	ZkKeep	   *keep = place->keep;

	place->keep = NULL;
	keep->is_taken = false;
	if (keep->session == zklock_session_number())
		zklock_client_end_kept(zklock_session_client(), &keep->kept);
	zklock_place_leave(place, zklock_session_live());
}

/* ---------------------------------------------------------------------
 * Entries
 * ---------------------------------------------------------------------
 */

static ZkKeep *
find(const char *path)
{
	uint32		hash = nkeeps == 0 ? 0 : hash_bytes((const unsigned char *) path,
													strlen(path));

	for (int i = 0; i < nkeeps; i++)
		if (keeps[i]->hash == hash && strcmp(keeps[i]->path, path) == 0)
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
		memset(keep, 0, sizeof(*keep));
		keep->hash = hash_bytes((const unsigned char *) path, strlen(path));
		strlcpy(keep->path, path, sizeof(keep->path));
	}
	keep->used_at = ++nuses;
	return keep;
}

/*
 * An entry to be used anew: of those that are not taken the one that is not
 * kept, or else the oldest.
 */
static ZkKeep *
free_entry(bool may_drop)
{
	ZkKeep	   *best = NULL;

	if (nkeeps < KEEP_SLOTS)
	{
		best = MemoryContextAllocExtended(TopMemoryContext, sizeof(*best),
										  MCXT_ALLOC_NO_OOM);
		if (best != NULL)
			keeps[nkeeps++] = best;
		return best;
	}
	for (int i = 0; i < nkeeps; i++)
		if (!keeps[i]->is_taken && (may_drop || !keeps[i]->is_kept) &&
			(best == NULL || (best->is_kept && !keeps[i]->is_kept) ||
			 (best->is_kept == keeps[i]->is_kept &&
			  keeps[i]->used_at < best->used_at)))
			best = keeps[i];
	if (best != NULL && best->is_kept)
		drop(best);
	return best;
}

/* Would there be an entry for one more? */
static bool
has_room(void)
{
	bool		found = nkeeps < KEEP_SLOTS;

	for (int i = 0; i < nkeeps && !found; i++)
		found = !keeps[i]->is_taken;
	return found;
}
