/*-------------------------------------------------------------------------
 *
 * lease_names.c
 *	  The names of locks that have leases, below <root>/.leases.
 *
 * The transaction that makes a lease sets the name of its lock below
 * <root>/.leases (lease_take.c).  So the worker finds the queues that have
 * leases.  It deletes such a name when there is no lease in the queue and the
 * name was not set for a while.  The worker measures that while by its own
 * clock, from when it has seen this version of the name first: only
 * ZooKeeper's clock knows when the name was set, and two clocks are not
 * compared.
 *
 * The delete has the version as condition that the name had before the queue
 * was listed: a lease that was made since has set the name.
 *
 *-------------------------------------------------------------------------
 */
#include "lease_names.h"

#include "utils/hsearch.h"

#include "compat.h"
#include "ephemeral.h"
#include "name.h"
#include "parents.h"
#include "session.h"
#include "text.h"

/*
 * How long a name stays that nobody sets and that has no leases, once it was
 * seen so.
 */
#define IDLE_NAME_MS 10000

/*
 * Most idle names that are remembered.  If there are so many, another one is
 * remembered when it is read again and there is room, which each name makes that
 * is dropped.
 */
#define IDLE_NAMES_MAX 100000

/* A name that was not dropped for so long is not looked at any more. */
#define IDLE_UNUSED_MS 600000

/* If there is no room, such names are searched for so often, at most. */
#define IDLE_SEARCH_MS 60000

/* A version of a name that was seen without leases. */
typedef struct IdleName
{
	int64		czxid;			/* key: of the name's znode, one of a kind */
	int			version;
	int64		since;			/* protocol_now() */
} IdleName;

/*
 * What one session of the worker's has seen.  Another session may be one with
 * another ensemble, where a czxid is another name's.
 */
static struct
{
	HTAB	   *names;			/* IdleName; NULL: nothing */
	ZkSessionNumber session;
	int64		search_at;		/* protocol_now(): when the next search may be */
}			Idle;

static void drop_name(const char *path, const ZkReply *name);
static bool is_idle_for_long(const ZkReply *name);
static int64 idle_since(const ZkReply *name);
static bool is_idle_full(void);
static void forget_unused_names(int64 now);

ZkOutcome
zklock_lease_names_make(ZkRoundTrip *trip, const ZkName *name,
						const ZkReply **reply)
{
	const char *path = zklock_name_lease_path(name);
	ZkOutcome	outcome;

	do
		outcome = zklock_parents_create(trip, path, strrchr(path, '/') - path,
										ZK_PERSISTENT,
										zklock_name_below_root(name), reply);
	while (outcome == ZK_UNKNOWN);
	if (outcome == ZK_ANSWERED)
		zklock_ephemeral_refuse(*reply, path);
	return outcome;
}

/*
 * A version that was seen IDLE_NAME_MS ago, and is there now, was there before
 * these queues were listed.
 */
ZkOutcome
zklock_lease_names_drop(ZkRoundTrip *trip, const char *root, const List *idle)
{
	char	   *paths[ZK_READS_AT_ONCE] = {0};
	const ZkReply *names[ZK_READS_AT_ONCE];
	int			nnames = 0;
	ZkOutcome	outcome;

	Assert(list_length(idle) <= ZK_READS_AT_ONCE);
	foreach_ptr(const char, name, idle)
		paths[nnames++] = psprintf("%s/" ZK_LEASES_NAME "/%s", root, name);
	outcome = zklock_roundtrip_read_all(trip, ZK_GET, paths, nnames, names);
	if (outcome != ZK_ANSWERED)
		return outcome;
	for (int i = 0; i < nnames; i++)
		if (names[i]->result == ZK_OK && is_idle_for_long(names[i]))
			drop_name(paths[i], names[i]);
	zklock_roundtrip_end_reads(trip, nnames);
	return ZK_ANSWERED;
}

/* Nobody waits for the reply: what is not deleted is found again. */
static void
drop_name(const char *path, const ZkReply *name)
{
	(void) hash_search(Idle.names, &name->czxid, HASH_REMOVE, NULL);	/* or it never was */
	if (message_level_is_interesting(DEBUG1))
		ereport(DEBUG1,
				(errmsg_internal("zklock: the lock's name \"%s\" is being deleted: no lease was there for %d ms",
								 zklock_text_quotable(path), IDLE_NAME_MS)));
	zklock_client_free(zklock_client_remove(zklock_session_client(), path,
											name->version));
}

/* Has it had no leases for long enough, and can its version be a condition? */
static bool
is_idle_for_long(const ZkReply *name)
{
	return protocol_now() - idle_since(name) > IDLE_NAME_MS &&
		name->version != ZK_ANY_VERSION;
}

/*
 * Since when the worker knows that version of a name, and no lease of it; from
 * now on if it does not, or if there is no room to remember it.
 */
static int64
idle_since(const ZkReply *name)
{
	HASHCTL		control = {.keysize = sizeof(int64),.entrysize = sizeof(IdleName)};
	int64		now = protocol_now();
	bool		is_known;
	IdleName   *idle;

	if (Idle.names != NULL && Idle.session != zklock_session_number())
	{
		hash_destroy(Idle.names);
		Idle.names = NULL;
	}
	if (Idle.names == NULL)
		Idle.names = hash_create("zklock idle names", 16, &control,
								 HASH_ELEM | HASH_BLOBS);
	Idle.session = zklock_session_number();
	idle = hash_search(Idle.names, &name->czxid, HASH_FIND, &is_known);
	if (!is_known && is_idle_full())
		forget_unused_names(now);
	if (!is_known && is_idle_full())
		return now;
	if (!is_known)
		idle = hash_search(Idle.names, &name->czxid, HASH_ENTER, NULL);
	if (!is_known || idle->version != name->version)
	{
		idle->version = name->version;
		idle->since = now;
	}
	return idle->since;
}

static bool
is_idle_full(void)
{
	return hash_get_num_entries(Idle.names) >= IDLE_NAMES_MAX;
}

/* Make room, unless that was tried a moment ago. */
static void
forget_unused_names(int64 now)
{
	HASH_SEQ_STATUS scan;
	IdleName   *idle;

	if (now < Idle.search_at)
		return;
	Idle.search_at = now + IDLE_SEARCH_MS;
	hash_seq_init(&scan, Idle.names);
	while ((idle = hash_seq_search(&scan)) != NULL)
	{
		if (now - idle->since > IDLE_UNUSED_MS)
			(void) hash_search(Idle.names, &idle->czxid, HASH_REMOVE, NULL);	/* it is there */
	}
}
