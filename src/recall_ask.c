/*-------------------------------------------------------------------------
 *
 * recall_ask.c
 *	  Requests to release a lock: asking whoever holds it.
 *
 * A request to a holder of zklock's is a persistent znode below the root,
 * <root>/.release/<its queue node>.release, with who asks, why, and for which
 * lock, as its data.  Not in the holder's queue node: nobody may write to
 * that, for its being set is a hand-over (contender_watch.c).  Not in the
 * lock's znode either, nor anywhere that may be one: clients that cannot read
 * the name of a child fail there, or wait for it.  Persistent, because who
 * asks may be gone long before the holder looks.
 *
 * When the holder has gone its request is removed: by the holder if it has
 * read it (recall.c); by who made it if the holder left meanwhile; and the
 * rest, bit by bit, by those who ask others, as old records of runs are
 * (retention.h).
 * The names of queue nodes do not come again, so that whose node is not there
 * any more never hears anything.  With REQUESTS_MAX of them nobody is asked.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/pg_prng.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "nodes/pg_list.h"
#include "utils/builtins.h"

#include "args.h"
#include "name.h"
#include "nodedata.h"
#include "queue.h"
#include "recall.h"
#include "recipe.h"
#include "retention.h"
#include "roundtrip.h"
#include "session.h"

/* Most requests of one root.  Clients in Java read a list of so many yet. */
#define REQUESTS_MAX 10000

/*
 * How long a question may be held up by deleting requests that are outdated.
 */
#define SWEEP_MS 2000

/* The member of a request's data that says for which lock it is. */
#define LOCK_KEY "lock"

/* Most holders that a WARNING names. */
#define NAMED_MAX 10

/* How a holder was asked. */
typedef enum AskEnd
{
	HOLDER_ASKED,
	HOLDER_GONE,				/* since the queue was read */
	HOLDER_DEAF					/* it is no session of zklock's */
} AskEnd;

/* The question under way. */
typedef struct Asking
{
	const char *name;			/* of the lock */
	const char *path;			/* its znode, in the session of the moment */
	int			root_length;	/* how much of it is the root */
	const char *data;			/* of the requests */
	int			nrequests;		/* those that lie below the root */
	const ZkQueueEntry *entry;	/* the holder who is asked now */
	AskEnd		end;			/* the result */
} Asking;

/* Requests that are looked at, whether anybody hears them. */
typedef struct Sweep
{
	const char *root;
	int64		deadline;
	ZkRequest  *list;
	ZkRequest **gets;			/* of the request, then of the queue node */
	char	  **paths;			/* of the requests */
	int			ngets;
} Sweep;

PG_FUNCTION_INFO_V1(zk_request_release);

static int	ask_holders(const char *name, const char *reason);
static void log_questions(const char *name, const ZkQueueEntry *entries,
						  int nentries);
static bool is_meant(const ZkQueueEntry *entry);
static bool can_hear(const ZkQueueEntry *entry);
static AskEnd ask_holder(Asking *asking);
static bool is_own(const ZkQueueEntry *entry);
static bool count_requests(ZkRoundTrip *trip, void *argument);
static bool make_request(ZkRoundTrip *trip, void *argument);
static bool make_parent(ZkRoundTrip *trip, const Asking *asking);
static bool keep_if_held(ZkRoundTrip *trip, void *argument);
pg_noreturn static void raise_too_many(const Asking *asking);
static void find_paths(Asking *asking);
static char *parent_of_requests(const Asking *asking);
static int	sweep_requests(const Asking *asking);
static void ask_for_requests(Sweep *sweep, const char *parent);
static void ask_for_holder(Sweep *sweep, int index);
static bool remove_unheard(Sweep *sweep, int index);
static char *holder_path(const Sweep *sweep, const char *request,
						 const ZkReply *reply);
static char *lock_of_request(const char *data, int length);
static char *describe_holder(const ZkQueueEntry *entry);
static void warn_of_unasked(const char *name, List *unasked);
static char *name_unasked(List *unasked);

Datum
zk_request_release(PG_FUNCTION_ARGS)
{
	char	   *name = zklock_args_name(fcinfo);

	PG_RETURN_INT32(ask_holders(name, PG_ARGISNULL(1) ? NULL :
								text_to_cstring(PG_GETARG_TEXT_PP(1))));
}

/*
 * Ask all holders of a lock but this session to release it.  reason may be
 * NULL.  Result: how many were asked; a WARNING
 * names those that could not be.  Some requests to holders that are gone go.
 * Waits for the ensemble, not for the holders.  Raises 42602 for a bad name,
 * 22023 for a bad reason, 54000 with too many requests, 55P03 at
 * lock_timeout, 42501 if ZooKeeper refuses, and as the session does; some
 * holders may have been asked then.
 */
static int
ask_holders(const char *name, const char *reason)
{
	Asking		asking = {.name = name};
	List	   *unasked = NIL;
	char	   *data = zklock_nodedata_build(0);
	ZkQueueEntry *entries;
	int			nentries;
	int			nasked = 0;

	if (reason != NULL)
	{
		zklock_nodedata_check_reason(reason, "a request",
									 "Say in one line why the lock is wanted, for whoever holds it.");
		data = zklock_nodedata_add(data, "reason", reason);
	}
	asking.data = zklock_nodedata_add(data, LOCK_KEY, name);

	/* a bad name needs no connection */
	pfree(zklock_name_path(name, NULL));

	zklock_roundtrip_run(count_requests, NULL, &asking);
	entries = zklock_read_children(zklock_name_path, name, &nentries);
	log_questions(name, entries, nentries);

	for (int i = 0; i < nentries; i++)
	{
		ZkQueueEntry *entry = &entries[i];

		if (!is_meant(entry))
			continue;
		asking.entry = entry;
		switch (ask_holder(&asking))
		{
			case HOLDER_ASKED:
				nasked++;
				asking.nrequests++;
				break;
			case HOLDER_GONE:
				break;
			case HOLDER_DEAF:
				unasked = lappend(unasked, describe_holder(entry));
				break;
		}
	}
	warn_of_unasked(name, unasked);
	return nasked;
}

/* Before it is done: it may be interrupted, and be done all the same. */
static void
log_questions(const char *name, const ZkQueueEntry *entries, int nentries)
{
	int			nholders = 0;

	for (int i = 0; i < nentries; i++)
		nholders += is_meant(&entries[i]) && can_hear(&entries[i]);
	if (nholders > 0)
		ereport(LOG,
				(errmsg("%s requests the release of ZooKeeper lock \"%s\"",
						zklock_nodedata_caller(),
						zklock_nodedata_quotable_own(name)),
				 errdetail_log_plural("%d holder is asked.", "%d holders are asked.",
									  nholders, nholders)));
}

static bool
is_meant(const ZkQueueEntry *entry)
{
	return entry->is_holder && !is_own(entry);
}

/*
 * Is it a session of zklock's, by what its node says?  Nobody is there to read
 * a request to a hold.
 */
static bool
can_hear(const ZkQueueEntry *entry)
{
	return !recipe_is_hold(entry->node) && entry->who.client != NULL &&
		strcmp(entry->who.client, "zklock") == 0;
}

/* Ask one holder. */
static AskEnd
ask_holder(Asking *asking)
{
	asking->end = HOLDER_DEAF;
	if (!can_hear(asking->entry))
		return HOLDER_DEAF;
	zklock_roundtrip_run(make_request, NULL, asking);
	if (asking->end == HOLDER_ASKED)
		zklock_roundtrip_run(keep_if_held, NULL, asking);
	return asking->end;
}

/* This session knows that it wants the lock. */
static bool
is_own(const ZkQueueEntry *entry)
{
	ZkClientStatus status;

	return zklock_session_status(&status) && status.was_connected &&
		entry->session_id == status.session_id;
}

/*
 * --------------------------------------------------------------------- Round
 * trips.  Each returns false if the session was lost, and is then called
 * again with a new one.
 * ---------------------------------------------------------------------
 */

/*
 * Catch up with the leader, and count the requests that lie there, of which
 * some that are outdated go.
 */
static bool
count_requests(ZkRoundTrip *trip, void *argument)
{
	Asking	   *asking = argument;
	char	   *parent;
	const ZkReply *reply;

	find_paths(asking);
	parent = parent_of_requests(asking);
	reply = zklock_roundtrip_read_newest(trip, zklock_client_get, parent);
	if (reply->result == ZK_SESSION_LOST)
		return false;
	if (reply->result != ZK_OK && reply->result != ZK_NO_NODE)
		zklock_session_raise(reply, "read requests to release a lock", parent);
	asking->nrequests = reply->result == ZK_OK ? reply->nbelow : 0;
	if (asking->nrequests >= REQUESTS_MAX ||
		(asking->nrequests > 0 &&
		 retention_should_list(asking->nrequests,
							   pg_prng_double(&pg_global_prng_state))))
		asking->nrequests -= sweep_requests(asking);
	return true;
}

/*
 * Make the request.  One that lies there already is renewed: the holder is
 * told once more.  If a reply was lost, what lies there may be ours, and
 * counts.
 */
static bool
make_request(ZkRoundTrip *trip, void *argument)
{
	Asking	   *asking = argument;
	ZkClient   *client = zklock_session_client();
	int			length = strlen(asking->data);
	int			attempts = 0;
	bool		is_tried = false;
	char		path[ZK_RECALL_PATH_SIZE];

	find_paths(asking);
	if (!zklock_recall_path(path, asking->path, asking->root_length,
							asking->entry->node))
		return true;			/* none of ours is called that */
	if (asking->nrequests >= REQUESTS_MAX)
		raise_too_many(asking);
	for (;;)
	{
		const ZkReply *reply;

		reply = zklock_roundtrip_ask(trip,
									 zklock_client_create(client, path,
														  ZK_PERSISTENT,
														  asking->data,
														  length));
		if (reply->result == ZK_NODE_EXISTS && !is_tried)
			reply = zklock_roundtrip_ask(trip,
										 zklock_client_set(client, path,
														   asking->data,
														   length,
														   ZK_ANY_VERSION));
		switch (reply->result)
		{
			case ZK_OK:
			case ZK_NODE_EXISTS:
				asking->end = HOLDER_ASKED;
				return true;
			case ZK_UNKNOWN_OUTCOME:
				is_tried = true;
				break;
			case ZK_NO_NODE:
				if (++attempts > PARENT_ATTEMPTS)
					zklock_session_raise(reply, "request the release of a lock", path);
				if (!make_parent(trip, asking))
				{
					asking->end = HOLDER_GONE;
					return true;
				}
				break;
			case ZK_SESSION_LOST:
				return false;
			default:
				zklock_session_raise(reply, "request the release of a lock", path);
		}
	}
}

/*
 * Make what the requests lie in.  false if what is above is gone, and the
 * lock with it.
 */
static bool
make_parent(ZkRoundTrip *trip, const Asking *asking)
{
	char	   *parent = parent_of_requests(asking);
	const ZkReply *reply = zklock_roundtrip_make_container(trip, parent);

	switch (reply->result)
	{
		case ZK_OK:
		case ZK_NODE_EXISTS:
		case ZK_UNKNOWN_OUTCOME:
		case ZK_SESSION_LOST:	/* the next create tells */
			return true;
		case ZK_NO_NODE:
			return false;
		default:
			zklock_session_raise(reply, "request the release of a lock", parent);
	}
}

/*
 * If the holder has gone meanwhile, nobody is asked: take the request back.
 */
static bool
keep_if_held(ZkRoundTrip *trip, void *argument)
{
	Asking	   *asking = argument;
	char		path[ZK_RECALL_PATH_SIZE];
	const ZkReply *reply;

	find_paths(asking);
	reply = zklock_roundtrip_read(trip, zklock_client_get,
								  psprintf("%s/%s", asking->path,
										   asking->entry->node));
	if (reply->result == ZK_SESSION_LOST)
		return false;
	if (reply->result != ZK_NO_NODE)
		return true;
	asking->end = HOLDER_GONE;
	if (zklock_recall_path(path, asking->path, asking->root_length,
						   asking->entry->node))
		zklock_client_delete(zklock_session_client(), path);
	return true;
}

static void
raise_too_many(const Asking *asking)
{
	ereport(ERROR,
			(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
			 errmsg("too many requests to release locks"),
			 errdetail("There are %d requests in znode \"%s\".",
					   asking->nrequests,
					   zklock_nodedata_quotable(parent_of_requests(asking))),
			 errhint("Each goes with its holder, at the latest when others are asked. Ask again.")));
}

/* The chroot, and so the paths, belong to the session. */
static void
find_paths(Asking *asking)
{
	asking->path = zklock_name_path(asking->name, &asking->root_length);
}

static char *
parent_of_requests(const Asking *asking)
{
	return psprintf("%.*s/" ZK_RELEASE_SUFFIX, asking->root_length, asking->path);
}

/* ---------------------------------------------------------------------
 * Requests that nobody hears any more
 * ---------------------------------------------------------------------
 */

/*
 * Delete some of them.  Result: how many.  Whatever ZooKeeper has against it
 * must not keep the caller from asking; an interrupt does raise.
 */
static int
sweep_requests(const Asking *asking)
{
	Sweep	   *sweep = palloc0(sizeof(*sweep));
	volatile int nremoved = 0;

	sweep->root = pnstrdup(asking->path, asking->root_length);
	sweep->deadline = zklock_client_now() + SWEEP_MS;
	PG_TRY();
	{
		ask_for_requests(sweep, parent_of_requests(asking));
		for (int i = 0; i < sweep->ngets; i++)
			ask_for_holder(sweep, i);
		for (int i = 0; i < sweep->ngets; i++)
			nremoved += remove_unheard(sweep, i);
	}
	PG_FINALLY();
	{
		zklock_client_free(sweep->list);
		for (int i = 0; i < sweep->ngets; i++)
			zklock_client_free(sweep->gets[i]);
	}
	PG_END_TRY();
	pfree(sweep);
	return nremoved;
}

/* List them and ask for some, chosen at random. */
static void
ask_for_requests(Sweep *sweep, const char *parent)
{
	ZkClient   *client = zklock_session_client();
	const ZkReply *list;
	int			first;
	int			nsample;

	sweep->list = zklock_client_list(client, parent);
	list = zklock_session_await(sweep->list, sweep->deadline,
								ZK_WAITING_FOR_REPLY);
	if (list == NULL || list->result != ZK_OK || list->nchildren == 0)
		return;
	nsample = Min(list->nchildren, retention_sample(list->nchildren));
	sweep->gets = palloc(nsample * sizeof(*sweep->gets));
	sweep->paths = palloc(nsample * sizeof(*sweep->paths));
	first = pg_prng_uint64_range(&pg_global_prng_state, 0, list->nchildren - 1);
	for (int i = 0; i < nsample; i++)
	{
		const char *child = list->children[(first + i) % list->nchildren];
		char	   *path = psprintf("%s/%s", parent, child);

		sweep->paths[sweep->ngets] = path;
		sweep->gets[sweep->ngets++] = zklock_client_get(client, path);
	}
}

/*
 * Put the question for the queue node in the place of that for the request.
 */
static void
ask_for_holder(Sweep *sweep, int index)
{
	const ZkReply *reply = zklock_session_await(sweep->gets[index],
												sweep->deadline,
												ZK_WAITING_FOR_REPLY);
	char	   *path = reply != NULL && reply->result == ZK_OK ?
		holder_path(sweep, sweep->paths[index], reply) : NULL;

	zklock_client_free(sweep->gets[index]);
	sweep->gets[index] = path != NULL ?
		zklock_client_get(zklock_session_client(), path) : NULL;
}

/*
 * A request that is there was made when its queue node was, or later; so a
 * server that knows of the one and has not the other has seen it go.  Nobody
 * waits for the delete.
 */
static bool
remove_unheard(Sweep *sweep, int index)
{
	const ZkReply *reply;

	if (sweep->gets[index] == NULL)
		return false;
	reply = zklock_session_await(sweep->gets[index], sweep->deadline,
								 ZK_WAITING_FOR_REPLY);
	if (reply == NULL || reply->result != ZK_NO_NODE)
		return false;
	zklock_client_free(zklock_client_remove(zklock_session_client(),
											sweep->paths[index],
											ZK_ANY_VERSION));
	return true;
}

/*
 * The path of the queue node that a request is for; NULL if it does not say,
 * so that nobody can tell whether it is heard.
 */
static char *
holder_path(const Sweep *sweep, const char *request, const ZkReply *reply)
{
	const char *name = strrchr(request, '/') + 1;
	int			length = strlen(name) - strlen(ZK_RELEASE_SUFFIX);
	char	   *lock = lock_of_request(reply->data, reply->data_length);
	char		path[RECIPE_PATH_SIZE];
	char	   *node;
	size_t		from;
	size_t		size;

	if (lock == NULL || length <= 0 ||
		strcmp(name + length, ZK_RELEASE_SUFFIX) != 0 ||
		recipe_check_name(lock, &from, &size) != RECIPE_NAME_OK ||
		!recipe_lock_path(path, sweep->root, lock))
		return NULL;
	node = pnstrdup(name, length);
	return recipe_parse_node(node).style == RECIPE_STYLE_NONE ? NULL :
		psprintf("%s/%s", path, node);
}

/*
 * The lock that the data of a request says, in UTF-8, or NULL.  It is the
 * last member; in a JSON text a quote inside a string is escaped, so the last
 * such key is one.  Names have no characters that are escaped otherwise.
 */
static char *
lock_of_request(const char *data, int length)
{
	static const char key[] = ",\"" LOCK_KEY "\":\"";
	const int	key_length = sizeof(key) - 1;
	StringInfoData lock;
	int			i;

	for (i = length - key_length; i >= 0; i--)
		if (memcmp(data + i, key, key_length) == 0)
			break;
	if (data == NULL || i < 0)
		return NULL;
	initStringInfo(&lock);
	for (i += key_length; i < length && data[i] != '"'; i++)
	{
		if (data[i] == '\\' && ++i >= length)
			return NULL;
		appendStringInfoChar(&lock, data[i]);
	}
	return length - i == 2 && data[i + 1] == '}' ? lock.data : NULL;
}

/* ---------------------------------------------------------------------
 * Who cannot be asked
 * ---------------------------------------------------------------------
 */

static char *
describe_holder(const ZkQueueEntry *entry)
{
	if (recipe_is_hold(entry->node))
		return psprintf("the hold with token " INT64_FORMAT " of %s", entry->token,
						zklock_nodedata_describe(&entry->who));
	return psprintf("%s, style \"%s\", session 0x%llx",
					zklock_nodedata_describe(&entry->who),
					recipe_style_name(entry->style),
					(unsigned long long) entry->session_id);
}

/* Who they are is in the log, and the client is told if he may know. */
static void
warn_of_unasked(const char *name, List *unasked)
{
	char	   *names;

	if (unasked == NIL)
		return;
	names = name_unasked(unasked);
	ereport(WARNING,
			(errcode(ERRCODE_WARNING),
			 errmsg_plural("could not ask %d holder of lock \"%s\" to release it",
						   "could not ask %d holders of lock \"%s\" to release it",
						   list_length(unasked), list_length(unasked), name),
			 zklock_nodedata_may_be_shown() ?
			 errdetail("Not asked: %s.", names) :
			 errdetail_log("Not asked: %s.", names),
			 errhint("Only sessions of zklock can be asked. A hold of zk_hold() ends with zk_release_hold(). zk_evict() removes a holder by force.")));
}

static char *
name_unasked(List *unasked)
{
	StringInfoData names;
	ListCell   *cell;

	initStringInfo(&names);
	foreach(cell, unasked)
	{
		if (foreach_current_index(cell) == NAMED_MAX)
		{
			appendStringInfoString(&names, "; ...");
			break;
		}
		appendStringInfo(&names, "%s%s", names.len > 0 ? "; " : "",
						 (char *) lfirst(cell));
	}
	return names.data;
}
