/*-------------------------------------------------------------------------
 *
 * lease_known.c
 *	  Remembers the leases that this backend has taken or renewed last.
 *
 * The leases on which a transaction rests are here until it ends, for its
 * commit.  Others are here to save the next renewal the list and a read; a
 * renewal has the version as condition, and a call whose renewal is refused
 * reads the queue.
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

/* When so many are there on which no transaction rests, these are forgotten. */
#define KNOWN_MAX 64

/* All that is known.  It belongs to the backend, and outlives transactions. */
static struct
{
	MemoryContext context;		/* NULL until there is anything */
	HTAB	   *leases;			/* ZkKnownLease; NULL likewise */
	int			npinned;		/* on how many a transaction rests */
}			Known;

static ZkLeaseKey key_of(const char *lock_path, int64 token);
static ZkKnownLease *enter_lease(const ZkLeasing *leasing);
static void make_room_for_one(void);
static void forget_lease(ZkKnownLease *known);
static void keep_text(char **text, const char *value);

ZkKnownLease *
zklock_known_find(const char *lock_path, int64 token)
{
	ZkLeaseKey	key = key_of(lock_path, token);

	if (Known.leases == NULL)
		return NULL;
	return hash_search(Known.leases, &key, HASH_FIND, NULL);
}

bool
zklock_known_is_renewed_here(const char *lock_path, const ZkLeased *leased)
{
	const ZkKnownLease *known = zklock_known_find(lock_path, leased->token);

	return known != NULL && !known->is_outdated &&
		known->leased.czxid == leased->czxid &&
		known->leased.version == leased->version;
}

ZkKnownLease *
zklock_known_note(const ZkLeasing *leasing)
{
	const ZkLeased *mine = leasing->mine;
	ZkKnownLease *known = zklock_known_find(leasing->name.path, mine->token);
	ZkLeased	learned = *mine;

	Assert(leasing->is_renewed);
	if (known == NULL)
		known = enter_lease(leasing);
	if (leasing->note != NULL)
		learned.who.note = unconstify(char *, leasing->note);
	zklock_known_take(known, &learned);
	known->proof = leasing->proof;
	known->is_outdated = false;
	return known;
}

void
zklock_known_take(ZkKnownLease *known, const ZkLeased *read)
{
	Assert(known->leased.czxid == read->czxid);
	known->leased.version = read->version;
	known->leased.term_ms = read->term_ms;
	keep_text(&known->leased.who.note, read->who.note);
}

void
zklock_known_distrust(const char *lock_path, int64 token)
{
	ZkKnownLease *known = zklock_known_find(lock_path, token);

	if (known != NULL)
		memset(&known->proof, 0, sizeof(known->proof));
}

void
zklock_known_pin(ZkKnownLease *known, SubTransactionId user)
{
	Assert(known->user == InvalidSubTransactionId);
	known->user = user;
	Known.npinned++;
}

void
zklock_known_unpin(ZkKnownLease *known)
{
	Assert(Known.npinned > 0);
	known->user = InvalidSubTransactionId;
	Known.npinned--;
}

static ZkLeaseKey
key_of(const char *lock_path, int64 token)
{
	ZkLeaseKey	key = {
		.token = token,
		.lock = hash_bytes_extended((const unsigned char *) lock_path,
									strlen(lock_path), 0)
	};

	return key;
}

static ZkKnownLease *
enter_lease(const ZkLeasing *leasing)
{
	const ZkLeased *mine = leasing->mine;
	ZkKnownLease fresh = {
		.key = key_of(leasing->name.path, mine->token),
		.leased.token = mine->token,.leased.czxid = mine->czxid
	};
	ZkKnownLease *known;

	make_room_for_one();
	fresh.name = MemoryContextStrdup(Known.context, leasing->name.text);
	fresh.leased.path = MemoryContextStrdup(Known.context, mine->path);
	fresh.leased.node = strrchr(fresh.leased.path, '/') + 1;
	fresh.leased.who.owner = MemoryContextStrdup(Known.context,
												 mine->who.owner);
	known = hash_search(Known.leases, &fresh.key, HASH_ENTER, NULL);
	*known = fresh;
	return known;
}

/* For one more. */
static void
make_room_for_one(void)
{
	HASHCTL		control = {
		.keysize = sizeof(ZkLeaseKey),.entrysize = sizeof(ZkKnownLease)
	};
	HASH_SEQ_STATUS scan;
	ZkKnownLease *known;

	if (Known.context == NULL)
		Known.context = AllocSetContextCreate(TopMemoryContext, "zklock leases",
											  ALLOCSET_SMALL_SIZES);
	control.hcxt = Known.context;
	if (Known.leases == NULL)
		Known.leases = hash_create("zklock leases", 16, &control,
								   HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	if (hash_get_num_entries(Known.leases) - Known.npinned < KNOWN_MAX)
		return;
	hash_seq_init(&scan, Known.leases);
	while ((known = hash_seq_search(&scan)) != NULL)
		if (known->user == InvalidSubTransactionId)
			forget_lease(known);
}

static void
forget_lease(ZkKnownLease *known)
{
	pfree(known->name);
	pfree(known->leased.path);
	pfree(known->leased.who.owner);
	keep_text(&known->leased.who.note, NULL);
	hash_search(Known.leases, &known->key, HASH_REMOVE, NULL);
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
