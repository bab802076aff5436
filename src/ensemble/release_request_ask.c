/*-------------------------------------------------------------------------
 *
 * release_request_ask.c
 *	  Asks the holders of a lock to release it.
 *
 * A request to a holder of zklock is a persistent znode below the root,
 * <root>/.release/<its queue node>.release.  Its data names the session that
 * asks, the reason, and the lock.  It is not in the data of the holder's queue
 * node: setting that is a hand-over (contender_watch.c), so nobody else may
 * write it.  It is no child of the lock's znode either, nor of any znode that
 * may be a lock's: clients that cannot read the name of a child fail there, or
 * wait for it.  It is persistent, because the session that asks may end before
 * the holder reads.
 *
 * When the holder has gone its request is removed: by the holder if it has
 * read it (release_request.c); by the session that made it if the holder left
 * meanwhile; otherwise later, in samples, by the calls that ask other holders
 * (zklock_sample_read()).  A name of a queue node never comes again, so a
 * request without its queue node is outdated for good.  If there are
 * REQUESTS_MAX requests no holder is asked.
 *
 *-------------------------------------------------------------------------
 */
#include "release_request.h"

#include "common/string.h"
#include "lib/stringinfo.h"

#include "ephemeral.h"
#include "nodedata.h"
#include "parents.h"
#include "queue_list.h"
#include "root.h"
#include "sample.h"
#include "session.h"
#include "take_rate.h"
#include "text.h"

/*
 * Most requests of one root.  Clients in Java can read a list of that length.
 */
#define REQUESTS_MAX 10000

/*
 * How long a question may be held up by deleting requests that are outdated.
 */
#define SWEEP_MS 2000

/* Most holders that a WARNING names. */
#define NAMED_MAX 10

/* The question under way. */
typedef struct Asking
{
	ZkName		name;			/* of the lock */
	const char *data;			/* of the requests */
	int			nrequests;		/* those that lie below the root */
	const char *node;			/* of the holder that is asked now */
	bool		is_asked;		/* the result: false if it has gone */

	/* holders that cannot be asked */
	int			nunasked;
	StringInfoData unasked;		/* their names, in words */
} Asking;

static List *choose_holders(Asking *asking, const ZkQueueEntry *entries,
							int nentries);
static ZkOutcome count_requests(ZkRoundTrip *trip, void *argument);
static ZkOutcome ask_holder(ZkRoundTrip *trip, void *argument);
static int	remove_outdated(ZkSample *sample, const char *root);
static char *holder_path(const char *root, const char *request,
						 const ZkReply *reply);
static void add_unasked(Asking *asking, const ZkQueueEntry *entry);
static void warn_of_unasked(const Asking *asking);

int
zklock_release_request_ask(const ZkName *name, const char *reason)
{
	Asking		asking = {.name = *name};
	ZkBounds	bounds = zklock_bounds_of_question();
	ZkQueueEntry *entries;
	int			nentries;
	List	   *holders;
	int			nasked = 0;

	asking.data = zklock_nodedata_build(0, "reason",
										reason != NULL ? zklock_text_to_utf8(reason) : NULL,
										"lock", zklock_text_to_utf8(name->text),
										NULL);
	zklock_take_rate_count(1);
	zklock_roundtrip_must_run(&bounds, count_requests, NULL, &asking);
	entries = zklock_read_queue(&bounds, &asking.name, false, &nentries);
	initStringInfo(&asking.unasked);
	holders = choose_holders(&asking, entries, nentries);

	/* before they are asked: an interrupt may come when some were */
	if (holders != NIL)
		ereport(ZK_LOG_DEED,
				(errmsg("%s requests the release of ZooKeeper lock \"%s\"",
						zklock_nodedata_caller(),
						zklock_text_quotable_own(asking.name.text)),
				 errdetail_log_plural("%d holder is asked.", "%d holders are asked.",
									  list_length(holders),
									  list_length(holders))));
	foreach_ptr(const char, node, holders)
	{
		asking.node = node;
		zklock_roundtrip_must_run(&bounds, ask_holder, NULL, &asking);
		if (!asking.is_asked)
			continue;
		nasked++;
		asking.nrequests++;
	}
	if (asking.nunasked > 0)
		warn_of_unasked(&asking);
	return nasked;
}

/*
 * Names of the queue nodes of the holders that are to be asked.  Only a session
 * of zklock reads requests, and whoever renews a lease; nobody does for a
 * permanent hold.  This session does not ask itself.
 */
static List *
choose_holders(Asking *asking, const ZkQueueEntry *entries, int nentries)
{
	List	   *holders = NIL;

	for (int i = 0; i < nentries; i++)
	{
		const ZkQueueEntry *entry = &entries[i];

		if (!entry->is_holder ||
			(entry->session_id != 0 && entry->session_id == zklock_session_id()))
			continue;
		if (entry->who.client != NULL && !entry->is_stranger &&
			(!recipe_is_lasting(entry->node) || entry->who.owner != NULL))
			holders = lappend(holders, pstrdup(entry->node));
		else
			add_unasked(asking, entry);
	}
	return holders;
}

/* ---------------------------------------------------------------------
 * Round trips
 * ---------------------------------------------------------------------
 */

/*
 * Count the requests, by a read that is not outdated, and delete some that
 * are.
 */
static ZkOutcome
count_requests(ZkRoundTrip *trip, void *argument)
{
	Asking	   *asking = argument;
	char	   *root = zklock_name_root_path();
	char	   *parent = psprintf("%s/" ZK_RELEASE_SUFFIX, root);
	const ZkReply *reply;
	ZkOutcome	outcome = zklock_root_prove(trip, parent,
											asking->name.root_length);

	if (outcome == ZK_ANSWERED)
		outcome = zklock_roundtrip_read_newest(trip, ZK_GET, parent, &reply);
	if (outcome != ZK_ANSWERED)
		return outcome;
	if (reply->result != ZK_OK && reply->result != ZK_NO_NODE)
		zklock_session_raise(reply, "read requests to release a lock", parent);
	asking->nrequests = reply->result == ZK_OK ? reply->nbelow : 0;
	if (zklock_sample_is_due(asking->nrequests))
		asking->nrequests -=
			remove_outdated(zklock_sample_read(trip, parent, SWEEP_MS), root);
	return ZK_ANSWERED;
}

/*
 * Make the request, and delete it again if the holder has gone meanwhile: then
 * nobody is asked.  A request that exists already is renewed.  So is ours if
 * the reply to its create was lost: the holder is then told twice.
 */
static ZkOutcome
ask_holder(ZkRoundTrip *trip, void *argument)
{
	Asking	   *asking = argument;
	int			root_length = asking->name.root_length;
	char		path[ZK_RELEASE_REQUEST_SIZE];
	const ZkReply *reply;
	ZkOutcome	outcome;

	asking->is_asked = false;
	if (!zklock_release_request_path(path, asking->name.path, root_length,
									 asking->node))
		return ZK_ANSWERED;		/* none of ours is called that */
	if (asking->nrequests >= REQUESTS_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("too many requests to release locks"),
				 errdetail("There are %d requests in znode \"%s\".",
						   asking->nrequests,
						   zklock_text_quotable(pnstrdup(path, strrchr(path, '/') - path))),
				 errhint("Ask again. Requests to holders that have gone are deleted when the next request is made.")));
	do
	{
		outcome = zklock_parents_create(trip, path, root_length,
										ZK_PERSISTENT, asking->data, &reply);
		if (outcome == ZK_ANSWERED && reply->result == ZK_NODE_EXISTS)
			outcome = zklock_roundtrip_ask(trip,
										   zklock_client_set(zklock_session_client(),
															 path, asking->data,
															 ZK_ANY_VERSION),
										   &reply);
	} while (outcome == ZK_UNKNOWN);
	if (outcome != ZK_ANSWERED)
		return outcome;
	if (reply->result != ZK_OK && reply->result != ZK_NO_NODE)
	{
		zklock_ephemeral_refuse(reply, path);
		zklock_session_raise(reply, "request the release of a lock", path);
	}

	outcome = zklock_roundtrip_read(trip, ZK_GET,
									psprintf("%s/%s", asking->name.path,
											 asking->node),
									&reply);
	if (outcome != ZK_ANSWERED)
		return outcome;
	asking->is_asked = reply->result != ZK_NO_NODE;
	if (!asking->is_asked)
		zklock_release_request_remove(asking->name.path, root_length, asking->node);
	return ZK_ANSWERED;
}

/* ---------------------------------------------------------------------
 * Requests that nobody reads any more
 * ---------------------------------------------------------------------
 */

/*
 * Delete those of the sample whose queue node is gone.  Result: how many.  The
 * queue node was made before its request.  So if a server has the request and
 * not the queue node, the node has been deleted.  Errors of ZooKeeper are not
 * reported, for they must not keep the caller from asking; interrupts raise.
 */
static int
remove_outdated(ZkSample *sample, const char *root)
{
	char	   *holders[ZK_SAMPLE_MAX] = {0};
	const char *requests[ZK_SAMPLE_MAX];	/* the one for each */
	const ZkReply *replies[ZK_SAMPLE_MAX];
	int			nholders = 0;
	int			nremoved = 0;

	for (int i = 0; i < sample->nnodes; i++)
	{
		const ZkReply *request = sample->replies[i];
		char	   *holder = NULL;

		if (request->result == ZK_OK)
			holder = holder_path(root, sample->paths[i], request);
		if (holder == NULL)
			continue;
		holders[nholders] = holder;
		requests[nholders++] = sample->paths[i];
	}

	/* in time or not at all: another call reads another sample */
	if (zklock_roundtrip_read_all(&sample->trip, ZK_GET, holders, nholders,
								  replies) != ZK_ANSWERED)
		return 0;
	for (int i = 0; i < nholders; i++)
	{
		if (replies[i]->result != ZK_NO_NODE)
			continue;
		zklock_roundtrip_drop(requests[i]);
		nremoved++;
	}
	return nremoved;
}

/*
 * The path of the queue node that a request is for; NULL if it does not say,
 * so that nobody can tell whether it is read.
 */
static char *
holder_path(const char *root, const char *request, const ZkReply *reply)
{
	const char *name = strrchr(request, '/') + 1;
	int			length = strlen(name) - strlen(ZK_RELEASE_SUFFIX);
	ZkNodeData	who;
	char		path[RECIPE_PATH_SIZE];
	char	   *node;
	size_t		offset;

	zklock_nodedata_parse(reply->data, reply->data_length, &who);
	if (who.lock == NULL || length <= 0 ||
		!pg_str_endswith(name, ZK_RELEASE_SUFFIX) ||
		recipe_check_name(who.lock, &offset) != RECIPE_NAME_OK ||
		!recipe_lock_path(path, root, who.lock))
		return NULL;
	node = pnstrdup(name, length);
	if (recipe_parse_node(node).style == RECIPE_STYLE_NONE)
		return NULL;
	return psprintf("%s/%s", path, node);
}

/* ---------------------------------------------------------------------
 * Holders that cannot be asked
 * ---------------------------------------------------------------------
 */

static void
add_unasked(Asking *asking, const ZkQueueEntry *entry)
{
	const char *who = zklock_nodedata_describe(&entry->who);
	StringInfo	names = &asking->unasked;
	int			nbefore = asking->nunasked++;

	if (nbefore > NAMED_MAX)
		return;
	if (nbefore > 0)
		appendStringInfoString(names, "; ");
	if (nbefore == NAMED_MAX)
		appendStringInfoString(names, "...");
	else if (recipe_read_mark(entry->node) == RECIPE_MARK_HOLD)
		appendStringInfo(names, "the permanent hold with token " INT64_FORMAT " of %s",
						 entry->token, who);
	else if (recipe_read_mark(entry->node) == RECIPE_MARK_LEASE)
		appendStringInfo(names, "the lease with token " INT64_FORMAT ", which has no owner any more",
						 entry->token);
	else
		appendStringInfo(names, "%s, style \"%s\", session 0x%llx", who,
						 recipe_style_name(entry->parsed.style),
						 (unsigned long long) entry->session_id);
}

/* Their names are in the log, and members of pg_monitor are told. */
static void
warn_of_unasked(const Asking *asking)
{
	ereport(WARNING,
			(errcode(ERRCODE_WARNING),
			 errmsg_plural("could not ask %d holder of lock \"%s\" to release it",
						   "could not ask %d holders of lock \"%s\" to release it",
						   asking->nunasked, asking->nunasked,
						   asking->name.text),
			 zklock_nodedata_may_be_shown() ?
			 errdetail("Not asked: %s.", asking->unasked.data) :
			 errdetail_log("Not asked: %s.", asking->unasked.data),
			 errhint("Only sessions of zklock, and owners of its leases, can be asked. A permanent hold ends with zk_release_hold(). zk_evict() removes a holder by force.")));
}
