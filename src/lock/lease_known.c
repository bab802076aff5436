/*-------------------------------------------------------------------------
 *
 * lease_known.c
 *	  What this backend knows of the leases that it has taken or renewed.
 *
 * It saves the backend to read the queue.  It may be outdated: each renewal has
 * the version as condition, and a call whose renewal is refused reads the queue.
 *
 * All of it is palloc'ed in a memory context of its own.
 *
 *-------------------------------------------------------------------------
 */
#include "lease_known.h"

#include "common/hashfn.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#include "compat.h"
#include "name.h"

/* Beyond so many all are forgotten, unless a transaction rests on some. */
#define KNOWN_MAX 1000

/* Where an owner stands in the queue of a lock. */
typedef struct OwnerPlace
{
	uint64		key;			/* hash of the lock's path and the owner */
	int64		token;			/* of a ZkKnownLease, which may be another's by
								 * chance */
} OwnerPlace;

/* All that is known.  It belongs to the backend, and outlives transactions. */
static struct
{
	MemoryContext context;		/* NULL until there is anything */
	HTAB	   *leases;			/* ZkKnownLease by token; NULL likewise */
	HTAB	   *places;			/* OwnerPlace; NULL likewise */
	int			npinned;		/* on how many a transaction rests */
}			Known;

static ZkKnownLease *learn_lease(const ZkLeasing *leasing);
static ZkKnownLease *enter_lease(const ZkLeasing *leasing);
static void note_owner_place(const ZkKnownLease *lease);
static void forget_all(void);
static uint64 owner_key(const char *path, int length, const char *owner);
static void keep_text(char **text, const char *value);

ZkKnownLease *
zklock_known_find(int64 token)
{
	if (Known.leases == NULL)
		return NULL;
	return hash_search(Known.leases, &token, HASH_FIND, NULL);
}

bool
zklock_known_is_renewed_here(const ZkLeased *leased)
{
	const ZkKnownLease *known = zklock_known_find(leased->token);

	return known != NULL && known->state != ZK_KNOWN_OUTDATED &&
		known->leased.version == leased->version &&
		strcmp(known->leased.path, leased->path) == 0;
}

ZkKnownLease *
zklock_known_note(const ZkLeasing *leasing)
{
	ZkKnownLease *known = zklock_known_find(leasing->mine->token);

	Assert(leasing->renewed == leasing->mine->token);
	if (known == NULL || leasing->mine != &known->leased)
		known = learn_lease(leasing);
	known->proof = leasing->proof;
	known->state = ZK_KNOWN_HELD;
	return known;
}

void
zklock_known_note_place(const ZkLeasing *leasing)
{
	learn_lease(leasing)->state = ZK_KNOWN_QUEUED;
}

void
zklock_known_take(ZkKnownLease *known, const ZkLeased *read)
{
	Assert(known->token == read->token);
	known->leased.version = read->version;
	known->leased.ttl_ms = read->ttl_ms;
	keep_text(&known->leased.who.note, read->who.note);
}

/* Nobody but the owner itself can have come ahead of its place since. */
void
zklock_known_guess_place(ZkLeasing *leasing)
{
	const char *lock_path = leasing->order.name.path;
	uint64		key = owner_key(lock_path, strlen(lock_path), leasing->owner);
	const OwnerPlace *place;
	const ZkKnownLease *known;
	const char *node;

	if (Known.places == NULL)
		return;
	place = hash_search(Known.places, &key, HASH_FIND, NULL);
	if (place == NULL)
		return;
	known = zklock_known_find(place->token);
	if (known == NULL)
		return;
	node = strrchr(known->leased.path, '/') + 1;
	if (strcmp(known->leased.who.owner, leasing->owner) != 0 ||
		strcmp(known->leased.path, psprintf("%s/%s", lock_path, node)) != 0)
		return;
	strlcpy(leasing->place, node, sizeof(leasing->place));
	strlcpy(leasing->read_to, node, sizeof(leasing->read_to));
}

void
zklock_known_distrust(int64 token)
{
	ZkKnownLease *known = zklock_known_find(token);

	if (known != NULL)
		memset(&known->proof, 0, sizeof(known->proof));
}

void
zklock_known_pin(void)
{
	Assert(Known.leases != NULL);
	Known.npinned++;
}

void
zklock_known_unpin(void)
{
	Assert(Known.npinned > 0);
	Known.npinned--;
}

/* Copy what was found to the entry of that token, which is made if need be. */
static ZkKnownLease *
learn_lease(const ZkLeasing *leasing)
{
	ZkLeased	learned = *leasing->mine;
	ZkKnownLease *known;

	if (Known.leases == NULL ||
		(hash_get_num_entries(Known.leases) >= KNOWN_MAX &&
		 Known.npinned == 0))
		forget_all();
	known = zklock_known_find(learned.token);
	if (known == NULL)
		known = enter_lease(leasing);
	note_owner_place(known);
	if (leasing->note != NULL)
		learned.who.note = unconstify(char *, leasing->note);
	zklock_known_take(known, &learned);
	return known;
}

static ZkKnownLease *
enter_lease(const ZkLeasing *leasing)
{
	const ZkLeased *mine = leasing->mine;
	ZkKnownLease fresh = {.token = mine->token,.leased.token = mine->token};
	ZkKnownLease *known;

	fresh.name = MemoryContextStrdup(Known.context, leasing->order.name.text);
	fresh.leased.path = MemoryContextStrdup(Known.context, mine->path);
	fresh.leased.who.owner = MemoryContextStrdup(Known.context,
												 mine->who.owner);
	known = hash_search(Known.leases, &mine->token, HASH_ENTER, NULL);
	*known = fresh;
	return known;
}

static void
note_owner_place(const ZkKnownLease *lease)
{
	int			length = strrchr(lease->leased.path, '/') - lease->leased.path;
	uint64		key = owner_key(lease->leased.path, length,
								lease->leased.who.owner);
	OwnerPlace *place = hash_search(Known.places, &key, HASH_ENTER, NULL);

	place->token = lease->token;
}

/* Begin with empty tables. */
static void
forget_all(void)
{
	HASHCTL		of_leases = {
		.keysize = sizeof(int64),.entrysize = sizeof(ZkKnownLease)
	};
	HASHCTL		of_places = {
		.keysize = sizeof(uint64),.entrysize = sizeof(OwnerPlace)
	};

	Assert(Known.npinned == 0);
	if (Known.context == NULL)
		Known.context = AllocSetContextCreate(TopMemoryContext, "zklock leases",
											  ALLOCSET_SMALL_SIZES);
	Known.leases = NULL;
	Known.places = NULL;
	MemoryContextReset(Known.context);
	of_leases.hcxt = Known.context;
	of_places.hcxt = Known.context;
	Known.places = hash_create("zklock places of leases", 64, &of_places,
							   HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	Known.leases = hash_create("zklock leases", 64, &of_leases,
							   HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

/* Of the lock with that path, which is as long. */
static uint64
owner_key(const char *path, int length, const char *owner)
{
	return hash_combine64(hash_bytes_extended((const unsigned char *) path,
											  length, 0),
						  hash_bytes_extended((const unsigned char *) owner,
											  strlen(owner), 0));
}

/* Replace a text of a ZkKnownLease, or NULL, by a copy. */
static void
keep_text(char **text, const char *value)
{
	char	   *former = *text;

	if (former == value)
		return;
	*text = NULL;
	if (value != NULL)
		*text = MemoryContextStrdup(Known.context, value);
	if (former != NULL)
		pfree(former);
}
