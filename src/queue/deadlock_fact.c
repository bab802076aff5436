/*-------------------------------------------------------------------------
 *
 * deadlock_fact.c
 *	  Facts: the znodes by which a waiter tells others what it waits for.
 *
 * A fact is an ephemeral znode below <root>/.waits, of the session that says
 * it.  Its path is of one of two forms, its data text in UTF-8:
 *
 *   <session>             the session waits; the path of the queue node that
 *                         it waits with, a newline, and who it is; and once its
 *                         deadlock_timeout is over SEARCHED
 *   pg/<session>-<maker>  the first session waits for the maker, in
 *                         PostgreSQL; what it waits for there
 *
 * Sessions are 16 hexadecimal digits.  Whenever a session has seen that its
 * facts of the second form are still true, it sets their data again: the new
 * version confirms them.
 *
 * A claim on a cycle is an ephemeral znode, too, of the session that is to
 * give way: claims/<czxid of the newest fact of the members that are stuck
 * there>.
 *
 * The one rule: a fact is in the detector before its create is sent, so that
 * whatever raises leaves it to deadlock_take_all_back().
 *
 *-------------------------------------------------------------------------
 */
#include "deadlock_private.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#include "name.h"
#include "parents.h"
#include "text.h"

/* At the end of a fact: the deadlock_timeout of the session is over. */
#define SEARCHED "\nlooked"
#define SEARCHED_LENGTH ((int) sizeof(SEARCHED) - 1)

#define CLAIMS_NAME "claims"

/* Length of the name of a fact that a session waits for a lock. */
#define SESSION_DIGITS 16

/* Most facts at a time. */
#define FACTS_MAX 64

/*
 * Has the log been told that ZooKeeper lets us say nothing?  Once in a backend
 * is enough.
 */
static bool is_refusal_logged = false;

static bool say_fact(ZkDetector *detector, const ZkPlace *place, int64 session,
					 const char *data);
static bool make_fact(ZkDetector *detector, const ZkPlace *place,
					  ZkFact *fact);
static void note_refusal(ZkDetector *detector, const ZkFact *fact,
						 const char *reason);
static void take_back(ZkDetector *detector, ZkFact *fact);
static bool ends_with_searched(const char *data, int length);

/* ---------------------------------------------------------------------
 * Saying
 * ---------------------------------------------------------------------
 */

ZkFact *
deadlock_find_fact(const ZkDetector *detector, int64 session)
{
	foreach_ptr(ZkFact, fact, detector->facts)
		if (fact->session == session)
			return fact;
	return NULL;
}

bool
deadlock_publish_wait(ZkDetector *detector, const ZkPlace *place)
{
	int64		own = zklock_session_id();
	ZkFact	   *said = deadlock_find_fact(detector, own);

	if (said != NULL &&
		strncmp(said->data, place->node, strlen(place->node)) == 0)
		return false;
	if (said != NULL)
		take_back(detector, said);
	return say_fact(detector, place, own,
					psprintf("%s\n%s%s", place->node,
							 zklock_nodedata_build(0, NULL),
							 detector->has_searched ? SEARCHED : ""));
}

void
deadlock_publish_searched(ZkDetector *detector)
{
	ZkFact	   *fact = deadlock_find_fact(detector, zklock_session_id());
	char	   *data;

	if (fact == NULL || ends_with_searched(fact->data, strlen(fact->data)))
		return;
	data = MemoryContextStrdup(detector->context,
							   psprintf("%s" SEARCHED, fact->data));
	pfree(fact->data);
	fact->data = data;

	/* without memory for it: who completes a cycle looks at its own time */
	(void) zklock_client_announce(zklock_session_client(), fact->path, data);
}

bool
deadlock_publish_blocked(ZkDetector *detector, const ZkPlace *place, List *waiters)
{
	bool		is_news = false;

	if (deadlock_find_fact(detector, zklock_session_id()) == NULL)
		return false;
	foreach_ptr(const LocalWaiter, waiter, waiters)
		if (deadlock_find_fact(detector, waiter->session) == NULL)
			is_news |= say_fact(detector, place, waiter->session,
								deadlock_describe_wait(waiter->pid));
	return is_news;
}

void
deadlock_repeat(const ZkDetector *detector)
{
	foreach_ptr(const ZkFact, fact, detector->facts)
	{
		if (fact->session == zklock_session_id())
			continue;

		/* without memory the one before stands there */
		(void) zklock_client_announce(zklock_session_client(), fact->path,
									  fact->data);
	}
}

/*
 * Say that a session waits, which is not said yet, with that text.  false if
 * ZooKeeper refuses it, or if it is not known to be there: then the next check
 * says it.  Raises on interrupts.
 */
static bool
say_fact(ZkDetector *detector, const ZkPlace *place, int64 session,
		 const char *data)
{
	const char *path = deadlock_fact_path(place, session, zklock_session_id());
	MemoryContext caller;
	ZkFact	   *fact;

	if (detector->is_refused || list_length(detector->facts) >= FACTS_MAX)
		return false;
	caller = MemoryContextSwitchTo(detector->context);
	fact = palloc0(sizeof(*fact));
	fact->session = session;
	fact->path = pstrdup(path);
	fact->data = pstrdup(data);
	detector->facts = lappend(detector->facts, fact);
	MemoryContextSwitchTo(caller);
	if (make_fact(detector, place, fact))
		return true;
	take_back(detector, fact);
	return false;
}

/*
 * Create a fact's znode.  false if that was refused, or came to no end.  There
 * may be one at its path: another one of ours, that is being taken back, goes
 * with this one; somebody else's stays, and so does one whose owner is not known.
 */
static bool
make_fact(ZkDetector *detector, const ZkPlace *place, ZkFact *fact)
{
	const ZkReply *reply;
	const ZkReply *there;
	const char *reason;

	if (zklock_parents_create(&detector->trip, fact->path, place->root_length,
							  ZK_EPHEMERAL, fact->data, &reply) != ZK_ANSWERED)
		return false;
	if (reply->result == ZK_OK)
	{
		fact->czxid = reply->czxid;
		return true;
	}
	reason = pstrdup(reply->code_text);
	if (reply->result == ZK_NODE_EXISTS)
	{
		fact->is_others = true;
		if (zklock_roundtrip_read(&detector->trip, ZK_GET, fact->path,
								  &there) != ZK_ANSWERED)
			return false;
		if (there->result == ZK_OK &&
			there->ephemeral_owner == zklock_session_id())
		{
			fact->is_others = false;
			return false;
		}
	}
	note_refusal(detector, fact, reason);
	return false;
}

/*
 * Nothing more is said in this wait, for it would be refused again, or there
 * is somebody else's in its place; the log has it once.
 */
static void
note_refusal(ZkDetector *detector, const ZkFact *fact, const char *reason)
{
	detector->is_refused = true;
	if (is_refusal_logged)
		return;
	is_refusal_logged = true;
	ereport(LOG,
			(errmsg("process %d cannot detect deadlocks over ZooKeeper locks",
					MyProcPid),
			 errdetail("Znode \"%s\" cannot be created: %s.",
					   zklock_text_quotable(fact->path), reason),
			 errhint("Use the same credentials (\"%s\") in all clusters that share a root. No other client may create znodes below it.",
					 "zklock.auth")));
}

/* ---------------------------------------------------------------------
 * Taking back
 * ---------------------------------------------------------------------
 */

void
deadlock_forget_gone(ZkDetector *detector, List *waiters)
{
	foreach_ptr(ZkFact, fact, list_copy(detector->facts))
	{
		bool		is_gone = fact->session != zklock_session_id();

		foreach_ptr(const LocalWaiter, waiter, waiters)
			is_gone &= waiter->session != fact->session;
		if (is_gone)
			take_back(detector, fact);
	}
}

void
deadlock_forget_deleted(ZkDetector *detector)
{
	foreach_ptr(ZkFact, fact, list_copy(detector->facts))
	{
		const ZkReply *reply;

		/* without an answer it may be there */
		if (zklock_roundtrip_read(&detector->trip, ZK_GET, fact->path,
								  &reply) != ZK_ANSWERED)
			continue;
		if (reply->result == ZK_NO_NODE ||
			(reply->result == ZK_OK && reply->czxid != fact->czxid))
			take_back(detector, fact);
	}
}

void
deadlock_take_all_back(ZkDetector *detector)
{
	while (detector->facts != NIL)
		take_back(detector, llast(detector->facts));
}

/*
 * Take one back, by a delete that is sent again until it is confirmed; what
 * has gone with its session is gone.  Never raises, never waits.
 */
static void
take_back(ZkDetector *detector, ZkFact *fact)
{
	detector->facts = list_delete_ptr(detector->facts, fact);
	if (!fact->is_others &&
		detector->session == zklock_session_number())
	{
		/* without memory it stays until the session ends */
		(void) zklock_client_delete(zklock_session_client(), fact->path,
									ZK_ANY_VERSION);
	}
	pfree(fact->path);
	pfree(fact->data);
	pfree(fact);
}

/* ---------------------------------------------------------------------
 * Names and data
 * ---------------------------------------------------------------------
 */

char *
deadlock_fact_path(const ZkPlace *place, int64 session, int64 maker)
{
	if (session == maker)
		return psprintf("%s/%016llx", deadlock_facts_directory(place),
						(unsigned long long) session);
	return psprintf("%s/%016llx-%016llx", deadlock_postgres_directory(place),
					(unsigned long long) session, (unsigned long long) maker);
}

char *
deadlock_facts_directory(const ZkPlace *place)
{
	return psprintf("%.*s/" ZK_WAITS_NAME, place->root_length,
					place->lock_path);
}

char *
deadlock_postgres_directory(const ZkPlace *place)
{
	return psprintf("%s/" ZK_WAITS_IN_POSTGRES,
					deadlock_facts_directory(place));
}

char *
deadlock_claim_path(const ZkPlace *place, int64 newest)
{
	return psprintf("%s/" CLAIMS_NAME "/%016llx",
					deadlock_facts_directory(place),
					(unsigned long long) newest);
}

bool
zklock_deadlock_parse_fact(const char *name, int64 *waiter, int64 *blocker)
{
	unsigned long long about;
	unsigned long long maker;
	char		proper[2 * SESSION_DIGITS + 2];

	if (sscanf(name, "%16llx-%16llx", &about, &maker) != 2)
		return false;
	snprintf(proper, sizeof(proper), "%016llx-%016llx", about, maker);
	if (strcmp(name, proper) != 0)
		return false;
	*waiter = about;
	*blocker = maker;
	return true;
}

bool
deadlock_parse_waiter(const char *name, int64 *waiter)
{
	if (strlen(name) != SESSION_DIGITS)
		return false;
	*waiter = (int64) strtoull(name, NULL, 16);
	return true;
}

bool
deadlock_parse_wait(const ZkReply *reply, SaidWait *said)
{
	const char *end = memchr(reply->data, '\n', reply->data_length);
	char	   *path;
	char	   *slash;
	int			length;

	if (end == NULL || end - reply->data >= RECIPE_PATH_SIZE)
		return false;
	path = pnstrdup(reply->data, end - reply->data);
	slash = strrchr(path, '/');
	if (slash == NULL || slash == path)
		return false;
	*slash = '\0';
	said->lock_path = path;
	said->node = slash + 1;
	length = reply->data + reply->data_length - end - 1;
	said->has_searched = ends_with_searched(end + 1, length);
	if (said->has_searched)
		length -= SEARCHED_LENGTH;
	zklock_nodedata_parse(end + 1, length, &said->who);
	return true;
}

static bool
ends_with_searched(const char *data, int length)
{
	return length >= SEARCHED_LENGTH &&
		memcmp(data + length - SEARCHED_LENGTH, SEARCHED, SEARCHED_LENGTH) == 0;
}
