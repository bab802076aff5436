/*-------------------------------------------------------------------------
 *
 * release.c
 *	  Requests to release a lock: asking whoever holds it.
 *
 * A request to a holder of zklock's is a persistent znode next to that of the
 * lock, <lock>.release/<its queue node>.release, with who asks, and why, as its
 * data.  Not in the holder's queue node: nobody may write to that, for its being
 * set is a hand-over (contend.c).  Not in the lock's znode either: clients that
 * cannot read the name of a child fail there.  Persistent, because who asks may
 * be gone long before the holder looks.  The suffix keeps requests from being
 * contenders, should somebody lock the name <lock>.release.
 *
 * A holder of Curator's is asked in Curator's way: its node's data is set to
 * __REVOKE__, which its Revocable listens for.  To be sure that this is never
 * done to a node of ours, whatever its data says, its name must be one that
 * Curator makes and zklock does not: see is_curators().
 *
 * What is left of a request when the holder has gone: the holder removes it if
 * it knows of it, or if it held the lock for long (ear.c); a request whose holder
 * left meanwhile is removed by who made it; and the rest by the next one to ask
 * for the same lock.  The server removes the empty container.
 *
 *-------------------------------------------------------------------------
 */
#include "release.h"

#include "lib/stringinfo.h"
#include "nodes/pg_list.h"

#include "alias.h"
#include "dialog.h"
#include "ear.h"
#include "identity.h"
#include "name.h"
#include "queue.h"
#include "recipe.h"
#include "session.h"

/* What Curator's Revoker writes into the node of a holder. */
#define CURATOR_REVOKE "__REVOKE__"

/* How often parents that vanish are made anew; see contend.c. */
#define PARENT_ATTEMPTS 10

/* Most holders that a WARNING names. */
#define NAMED_MAX 10

/* How a holder was asked. */
typedef enum AskEnd
{
	HOLDER_ASKED,
	HOLDER_GONE,				/* since the queue was read */
	HOLDER_DEAF					/* there is no way to ask it */
} AskEnd;

/* The question under way. */
typedef struct Asking
{
	const char *name;			/* of the lock */
	const char *path;			/* its znode, in the session of the moment */
	const char *data;			/* of the requests */
	List	   *requests;		/* names of those that lie there */
	const ZkQueueEntry *entry;	/* the holder who is asked now */
	AskEnd		end;			/* the result */
} Asking;

static void remove_outdated(Asking *asking, const ZkQueueEntry *entries,
							int nentries);
static char *requested_node(const char *request);
static AskEnd ask_holder(Asking *asking);
static bool is_curators(const ZkQueueEntry *entry);
static bool is_zklocks(const ZkQueueEntry *entry);
static bool is_own(const ZkQueueEntry *entry);
static bool list_requests(ZkDialog *dialog, void *argument);
static bool make_request(ZkDialog *dialog, void *argument);
static bool make_container(ZkDialog *dialog, Asking *asking, ZkNodeKind kind);
static bool keep_if_held(ZkDialog *dialog, void *argument);
static bool set_revoke(ZkDialog *dialog, void *argument);
static char *describe_holder(const ZkQueueEntry *entry);
static void warn_of_unasked(const char *name, List *unasked);
static char *name_unasked(List *unasked);

int
zklock_request_release(const char *name, const char *reason)
{
	Asking		asking = {.name = name};
	List	   *unasked = NIL;
	char	   *data = zklock_identity_build(0);
	ZkQueueEntry *entries;
	int			nentries;
	int			nasked = 0;

	if (reason != NULL)
	{
		zklock_identity_check_reason(reason, "a request",
									 "Say in one line why the lock is wanted, for whoever holds it.");
		data = zklock_identity_add(data, "reason", reason);
	}
	asking.data = data;

	/* a bad name needs no connection */
	pfree(zklock_name_path(name, NULL));

	/* the requests first: one that is there then has a holder, or had one */
	zklock_dialog_run(list_requests, &asking);
	entries = zklock_read_queue(name, &nentries);
	remove_outdated(&asking, entries, nentries);

	for (int i = 0; i < nentries; i++)
	{
		ZkQueueEntry *entry = &entries[i];

		if (!entry->is_holder || is_own(entry))
			continue;
		asking.entry = entry;
		switch (ask_holder(&asking))
		{
			case HOLDER_ASKED:
				nasked++;
				break;
			case HOLDER_GONE:
				break;
			case HOLDER_DEAF:
				unasked = lappend(unasked, describe_holder(entry));
				break;
		}
	}
	if (nasked > 0)
		ereport(LOG,
				(errmsg("%s requested the release of ZooKeeper lock \"%s\"",
						zklock_identity_caller(), name),
				 errdetail_log_plural("%d holder was asked.", "%d holders were asked.",
									  nasked, nasked)));
	warn_of_unasked(name, unasked);
	return nasked;
}

/*
 * Delete requests to holders that are gone; nobody waits for that.  What is not
 * called like a request is not ours to delete: somebody may lock <lock>.release.
 */
static void
remove_outdated(Asking *asking, const ZkQueueEntry *entries, int nentries)
{
	ListCell   *cell;

	foreach(cell, asking->requests)
	{
		char	   *node = requested_node(lfirst(cell));
		bool		is_there = node == NULL;
		char		path[ZK_REQUEST_PATH_SIZE];

		for (int i = 0; i < nentries && !is_there; i++)
			is_there = strcmp(node, entries[i].node) == 0;
		if (!is_there && zklock_ear_path(path, asking->path, node))
			zklock_client_free(zklock_client_remove(zklock_session_client(),
													path, ZK_ANY_VERSION));
	}
}

/* The queue node whose holder a request of that name asks, or NULL. */
static char *
requested_node(const char *request)
{
	int			length = strlen(request) - strlen(ZK_RELEASE_SUFFIX);
	char	   *node;

	if (length <= 0 || strcmp(request + length, ZK_RELEASE_SUFFIX) != 0)
		return NULL;
	node = pnstrdup(request, length);
	return recipe_parse_node(node).style != RECIPE_STYLE_NONE ? node : NULL;
}

/* Ask one holder in its own way. */
static AskEnd
ask_holder(Asking *asking)
{
	asking->end = HOLDER_DEAF;
	if (recipe_is_hold(asking->entry->node))
		return HOLDER_DEAF;		/* nobody is there to hear it */
	if (is_zklocks(asking->entry))
	{
		zklock_dialog_run(make_request, asking);
		if (asking->end == HOLDER_ASKED)
			zklock_dialog_run(keep_if_held, asking);
	}
	else if (is_curators(asking->entry))
		zklock_dialog_run(set_revoke, asking);
	return asking->end;
}

/*
 * Is the node one that Curator has made, with a UUID that it writes with dashes?
 * Ours look the same, but say in their data whose they are, and those whose
 * being set means something have a mark in their names.
 */
static bool
is_curators(const ZkQueueEntry *entry)
{
	static const char prefix[] = "_c_";
	const char *guid = entry->node + strlen(prefix);

	return (entry->style == RECIPE_STYLE_CURATOR ||
			entry->style == RECIPE_STYLE_CURATOR_RW) &&
		strncmp(entry->node, prefix, strlen(prefix)) == 0 &&
		strspn(guid, "0123456789abcdef-") >= RECIPE_GUID_LEN &&
		guid[8] == '-' && guid[13] == '-' && guid[18] == '-' &&
		guid[23] == '-';
}

static bool
is_zklocks(const ZkQueueEntry *entry)
{
	return entry->style == RECIPE_STYLE_ZKLOCK_SHARED ||
		entry->style == RECIPE_STYLE_ZKLOCK_PERMITS ||
		recipe_can_hand_over(entry->node) || alias_rank(entry->node) >= 0 ||
		(entry->identity.client != NULL &&
		 strcmp(entry->identity.client, "zklock") == 0);
}

/* This session knows that it wants the lock. */
static bool
is_own(const ZkQueueEntry *entry)
{
	ZkClientStatus status;

	return zklock_session_status(&status) && status.was_connected &&
		entry->session_id == status.session_id;
}

/* ---------------------------------------------------------------------
 * Dialogs.  Each returns false if the session was lost, and is then called
 * again with a new one.
 * ---------------------------------------------------------------------
 */

/* Catch up with the leader, and note what requests there are. */
static bool
list_requests(ZkDialog *dialog, void *argument)
{
	Asking	   *asking = argument;
	ZkClient   *client = zklock_session_client();
	char	   *parent;
	const ZkReply *reply;

	asking->path = zklock_name_path(asking->name, NULL);
	asking->requests = NIL;
	parent = psprintf("%s" ZK_RELEASE_SUFFIX, asking->path);
	do
	{
		reply = zklock_dialog_ask(dialog,
								  zklock_client_check(client, asking->path, 0));
		if (reply->result == ZK_OK || reply->result == ZK_NO_NODE)
			reply = zklock_dialog_ask(dialog, zklock_client_list(client, parent));
	} while (reply->result == ZK_UNKNOWN_OUTCOME);
	if (reply->result == ZK_SESSION_LOST)
		return false;
	if (reply->result != ZK_OK && reply->result != ZK_NO_NODE)
		zklock_session_raise(reply, "read requests to release a lock", parent);
	for (int i = 0; reply->result == ZK_OK && i < reply->nchildren; i++)
		asking->requests = lappend(asking->requests,
								   pstrdup(reply->children[i]));
	return true;
}

/*
 * Make the request.  One that lies there already is renewed: the holder is told
 * once more.  If a reply was lost, what lies there may be ours, and counts.
 */
static bool
make_request(ZkDialog *dialog, void *argument)
{
	Asking	   *asking = argument;
	ZkClient   *client = zklock_session_client();
	int			length = strlen(asking->data);
	int			attempts = 0;
	bool		is_tried = false;
	char		path[ZK_REQUEST_PATH_SIZE];

	asking->path = zklock_name_path(asking->name, NULL);
	if (!zklock_ear_path(path, asking->path, asking->entry->node))
		return true;			/* none of ours is called that */
	for (;;)
	{
		const ZkReply *reply;

		reply = zklock_dialog_ask(dialog,
								  zklock_client_create(client, path, ZK_PERSISTENT,
													   asking->data, length));
		if (reply->result == ZK_NODE_EXISTS && !is_tried)
			reply = zklock_dialog_ask(dialog,
									  zklock_client_set(client, path, asking->data,
														length, ZK_ANY_VERSION));
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
				if (!make_container(dialog, asking, ZK_CONTAINER))
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
 * Make what the requests lie in, as a container, of which the server removes
 * those that are empty.  false if what is above is gone, and the lock with it.
 */
static bool
make_container(ZkDialog *dialog, Asking *asking, ZkNodeKind kind)
{
	char	   *parent = psprintf("%s" ZK_RELEASE_SUFFIX, asking->path);
	const ZkReply *reply;

	reply = zklock_dialog_ask(dialog,
							  zklock_client_create(zklock_session_client(),
												   parent, kind, NULL, 0));
	switch (reply->result)
	{
		case ZK_OK:
		case ZK_NODE_EXISTS:
		case ZK_UNKNOWN_OUTCOME:
		case ZK_SESSION_LOST:	/* the next create tells */
			return true;
		case ZK_NO_NODE:
			return false;
		case ZK_UNIMPLEMENTED:
			if (kind == ZK_CONTAINER)
				return make_container(dialog, asking, ZK_PERSISTENT);
			break;
		default:
			break;
	}
	zklock_session_raise(reply, "request the release of a lock", parent);
}

/* If the holder has gone meanwhile, nobody is asked: take the request back. */
static bool
keep_if_held(ZkDialog *dialog, void *argument)
{
	Asking	   *asking = argument;
	ZkClient   *client = zklock_session_client();
	char		path[ZK_REQUEST_PATH_SIZE];
	const ZkReply *reply;

	asking->path = zklock_name_path(asking->name, NULL);
	do
		reply = zklock_dialog_ask(dialog,
								  zklock_client_get(client,
													psprintf("%s/%s", asking->path,
															 asking->entry->node)));
	while (reply->result == ZK_UNKNOWN_OUTCOME);
	if (reply->result == ZK_SESSION_LOST)
		return false;
	if (reply->result != ZK_NO_NODE)
		return true;
	asking->end = HOLDER_GONE;
	if (zklock_ear_path(path, asking->path, asking->entry->node))
		zklock_client_delete(client, path);
	return true;
}

/* Curator's way. */
static bool
set_revoke(ZkDialog *dialog, void *argument)
{
	Asking	   *asking = argument;
	char	   *path = psprintf("%s/%s",
								zklock_name_path(asking->name, NULL),
								asking->entry->node);
	const ZkReply *reply;

	do
		reply = zklock_dialog_ask(dialog,
								  zklock_client_set(zklock_session_client(), path,
													CURATOR_REVOKE,
													strlen(CURATOR_REVOKE),
													ZK_ANY_VERSION));
	while (reply->result == ZK_UNKNOWN_OUTCOME);
	switch (reply->result)
	{
		case ZK_OK:
			asking->end = HOLDER_ASKED;
			return true;
		case ZK_NO_NODE:
			asking->end = HOLDER_GONE;
			return true;
		case ZK_NO_AUTH:
			asking->end = HOLDER_DEAF;
			return true;
		case ZK_SESSION_LOST:
			return false;
		default:
			zklock_session_raise(reply, "request the release of a lock", path);
	}
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
						zklock_identity_describe(&entry->identity));
	return psprintf("%s, style \"%s\", session 0x%llx",
					zklock_identity_describe(&entry->identity),
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
			 zklock_identity_may_be_shown() ?
			 errdetail("Not asked: %s.", names) :
			 errdetail_log("Not asked: %s.", names),
			 errhint("A hold of zk_hold() ends with zk_release_hold(). Of other clients only Curator's can be asked, where its node may be written to. zk_evict() removes a holder by force.")));
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
