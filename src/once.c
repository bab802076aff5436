/*-------------------------------------------------------------------------
 *
 * once.c
 *	  Jobs that run once: records of who ran which slot of a job.
 *
 * A lock keeps two from running a job at the same time.  It does not keep the
 * second from running it again when the first has finished: a cluster whose
 * clock is late, or that had to wait for its connection.  So each run of the
 * job has a slot, a text that all clusters derive in the same way (the minute
 * that it was due, a file's name), and the first to create the record of the
 * slot, a persistent znode, runs it.
 *
 * Why never two get true for one record.  The server creates a path once.
 * Each record carries a GUID that its creator made up, and true is returned
 * only for a record with the caller's own GUID; hence to its creator only.  A
 * create is repeated, with the same GUID, until its outcome is known: when the
 * reply was lost the record is found and read, whichever attempt made it, in
 * this session or in the next.  Should the server carry out an attempt later
 * still, it finds the path taken.
 *
 * What can happen instead is that nobody gets true: at most once, not at least
 * once.  An error may leave while a create is under way (a cancel, a time-out,
 * no connection).  Deleting the record then would not do: the delete, or its
 * repetition, could hit the record of somebody who got true meanwhile.  So the
 * GUID is kept, and the next call of this backend for the same slot goes on
 * where this one stopped.  If the backend ends before, the slot is taken and
 * was not run; its record says by whom, and zk_forget_run() gives it free.
 *
 * When a record is deleted its slot can be claimed anew, and a delete names a
 * path and nothing that tells the old record from the new one.  So records of
 * a name are deleted by one session at a time, which has queued up for that in
 * the records' own directory: of what it has read then nobody else deletes
 * anything, so its deletes hit what it read.  They cannot come too late, when
 * it is somebody else's turn: the ensemble carries out a session's requests in
 * order, the removal of its queue node behind the deletes, and none of a
 * session that has ended, or has moved to another connection.  Old records are
 * deleted with one attempt each, and only if nobody else is about it: a delete
 * that is lost does not matter, somebody will try again.
 *
 *-------------------------------------------------------------------------
 */
#include "once.h"

#include "common/pg_prng.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "contend.h"
#include "dialog.h"
#include "identity.h"
#include "name.h"
#include "session.h"

/*
 * How many records a call looks at to find old ones.  They are chosen at
 * random, so that with each claim the part of the old ones shrinks, until there
 * is about one among that many; however the slots are named.
 */
#define RECORDS_LOOKED_AT 64

/* How long a claim may be held up by that. */
#define PRUNE_MS 2000

/* How often parents that vanish are made anew; see contend.c. */
#define PARENT_ATTEMPTS 10

/* A claim under way. */
typedef struct Claim
{
	const char *name;
	const char *slot;
	int64		retain_ms;
	bool		is_ours;		/* the result, valid when it is over */
} Claim;

/* What pruning asks. */
typedef struct Pruning
{
	int64		deadline;
	int64		older_than_ms;	/* ctime, Unix epoch */
	const char *claimed;		/* path of the new record, which stays */
	ZkRequest  *turn;			/* create of our queue node; owns the node */
	ZkRequest  *list;
	ZkRequest  *gets[RECORDS_LOOKED_AT];
	char	   *paths[RECORDS_LOOKED_AT];
	int			ngets;
} Pruning;

/* What zk_forget_run() asks. */
typedef struct Forgetting
{
	const char *name;
	const char *slot;
	ZkRemoval	removal;
} Forgetting;

/*
 * The claim whose outcome is not known yet: its path, in TopMemoryContext, and
 * GUID.  NULL if there is none.
 */
static char *unsettled_path;
static char unsettled_guid[RECIPE_GUID_LEN + 1];

static bool claim_slot(ZkDialog *dialog, void *argument);
static void begin_claim(const char *path);
static void settle_claim(void);
static bool take_record(const ZkReply *reply);
static void make_parents(ZkDialog *dialog, const char *path, int root_length);
static void prune(const char *claimed, int64 older_than_ms);
static void ask_for_records(Pruning *pruning);
static void keep_old_records(Pruning *pruning);
static bool take_turn(Pruning *pruning);
static bool is_old(Pruning *pruning, int index);
static void remove_old_records(Pruning *pruning);
static bool forget_slot(ZkDialog *dialog, void *argument);
static bool read_record(ZkDialog *dialog, ZkRemoval *removal);
static bool remove_in_turn(ZkDialog *dialog, ZkRemoval *removal, char *node);
static char *directory_of(const char *record);
static bool is_record(const char *child);

bool
zklock_run_once(const char *name, const char *slot, int64 retain_ms)
{
	Claim		claim = {.name = name, .slot = slot, .retain_ms = retain_ms};

	/* a bad argument needs no connection */
	pfree(zklock_name_run_path(name, slot, NULL));
	zklock_dialog_run(claim_slot, &claim);

	/* a cancel that came with the last reply: nobody has got the answer yet */
	CHECK_FOR_INTERRUPTS();
	settle_claim();
	return claim.is_ours;
}

bool
zklock_forget_run(const char *name, const char *slot)
{
	Forgetting	forgetting = {.name = name, .slot = slot};

	/* a bad argument needs no connection */
	pfree(zklock_name_run_path(name, slot, NULL));
	zklock_dialog_run(forget_slot, &forgetting);
	return forgetting.removal.is_removed;
}

ZkQueueEntry *
zklock_read_runs(const char *name, int *nruns)
{
	int			nentries;
	ZkQueueEntry *entries;

	entries = zklock_read_children(zklock_name_runs_path, name, &nentries);
	*nruns = 0;
	for (int i = 0; i < nentries; i++)
	{
		if (!is_record(entries[i].node))
			continue;
		entries[i].node = pnstrdup(entries[i].node,
								   strlen(entries[i].node) -
								   strlen(ZK_RUNS_SUFFIX));
		entries[(*nruns)++] = entries[i];
	}
	return entries;
}

/* ---------------------------------------------------------------------
 * Claiming
 * ---------------------------------------------------------------------
 */

static bool
claim_slot(ZkDialog *dialog, void *argument)
{
	Claim	   *claim = argument;
	ZkClient   *client = zklock_session_client();
	int			root_length;
	char	   *path = zklock_name_run_path(claim->name, claim->slot,
											&root_length);
	char	   *data;
	const ZkReply *reply;
	int			attempts = 0;

	begin_claim(path);
	data = zklock_identity_add(zklock_identity_build(0), "run",
							   unsettled_guid);
	for (;;)
	{
		reply = zklock_dialog_ask(dialog,
								  zklock_client_create(client, path, ZK_PERSISTENT_OWN,
													   data, strlen(data)));
		switch (reply->result)
		{
			case ZK_OK:
				claim->is_ours = true;
				prune(path, reply->ctime_ms - claim->retain_ms);
				return true;
			case ZK_NODE_EXISTS:
				break;
			case ZK_NO_NODE:
				if (++attempts > PARENT_ATTEMPTS)
					zklock_session_raise(reply, "record a run", path);
				make_parents(dialog, path, root_length);
				continue;
			case ZK_UNKNOWN_OUTCOME:
				continue;
			case ZK_SESSION_LOST:
				return false;
			default:
				zklock_session_raise(reply, "record a run", path);
		}

		/* our server knows at least what it has just refused */
		reply = zklock_dialog_ask(dialog, zklock_client_get(client, path));
		switch (reply->result)
		{
			case ZK_OK:
				claim->is_ours = take_record(reply);
				if (claim->is_ours)
					prune(path, reply->ctime_ms - claim->retain_ms);
				return true;
			case ZK_NO_AUTH:	/* ours we could read */
				claim->is_ours = false;
				return true;
			case ZK_NO_NODE:	/* deleted meanwhile */
			case ZK_UNKNOWN_OUTCOME:
				continue;
			case ZK_SESSION_LOST:
				return false;
			default:
				zklock_session_raise(reply, "record a run", path);
		}
	}
}

/*
 * Have a GUID for the record: the one of an earlier claim of that slot whose
 * outcome is not known, or a new one.
 */
static void
begin_claim(const char *path)
{
	char		guid[RECIPE_GUID_LEN + 1];
	char	   *copy;

	if (unsettled_path != NULL && strcmp(unsettled_path, path) == 0)
		return;
	zklock_identity_make_guid(guid);
	copy = MemoryContextStrdup(TopMemoryContext, path);
	settle_claim();
	unsettled_path = copy;
	strlcpy(unsettled_guid, guid, sizeof(unsettled_guid));
}

/* The outcome is known, or does not matter any more. */
static void
settle_claim(void)
{
	if (unsettled_path != NULL)
		pfree(unsettled_path);
	unsettled_path = NULL;
}

/* Is the record that was read the one of this claim? */
static bool
take_record(const ZkReply *reply)
{
	return reply->data != NULL &&
		memmem(reply->data, reply->data_length, unsettled_guid,
			   RECIPE_GUID_LEN) != NULL;
}

/*
 * Create what is above a record: the root for good, the rest as containers, of
 * which the server removes those that are empty.
 */
static void
make_parents(ZkDialog *dialog, const char *path, int root_length)
{
	const char *end = path;

	while ((end = strchr(end + 1, '/')) != NULL)
	{
		char	   *parent = pnstrdup(path, end - path);
		ZkNodeKind	kind = end - path <= root_length ?
			ZK_PERSISTENT : ZK_CONTAINER;
		const ZkReply *reply;

		reply = zklock_dialog_ask(dialog,
								  zklock_client_create(zklock_session_client(),
													   parent, kind, NULL, 0));
		if (reply->result == ZK_UNIMPLEMENTED && kind == ZK_CONTAINER)
			reply = zklock_dialog_ask(dialog,
									  zklock_client_create(zklock_session_client(),
														   parent, ZK_PERSISTENT,
														   NULL, 0));
		switch (reply->result)
		{
			case ZK_OK:
			case ZK_NODE_EXISTS:
				break;
			case ZK_NO_NODE:	/* an empty one above was removed */
			case ZK_UNKNOWN_OUTCOME:
			case ZK_SESSION_LOST:
				return;			/* the next create tells */
			default:
				zklock_session_raise(reply, "create a lock's znode", parent);
		}
		pfree(parent);
	}
}

/* ---------------------------------------------------------------------
 * Old records
 * ---------------------------------------------------------------------
 */

/*
 * Delete some records that are older than that.  Whatever ZooKeeper has against
 * it must not cost the caller the claim.  An interrupt does raise: the claim is
 * not settled yet.
 */
static void
prune(const char *claimed, int64 older_than_ms)
{
	Pruning    *pruning = palloc0(sizeof(*pruning));

	pruning->claimed = claimed;
	pruning->older_than_ms = older_than_ms;
	pruning->deadline = zklock_client_now() + PRUNE_MS;
	PG_TRY();
	{
		ask_for_records(pruning);
		keep_old_records(pruning);
		if (pruning->ngets > 0 && take_turn(pruning))
			remove_old_records(pruning);
	}
	PG_FINALLY();
	{
		zklock_client_withdraw(pruning->turn);
		zklock_client_free(pruning->list);
		for (int i = 0; i < pruning->ngets; i++)
			zklock_client_free(pruning->gets[i]);
	}
	PG_END_TRY();
	pfree(pruning);
}

/* List the records, and ask for some of them. */
static void
ask_for_records(Pruning *pruning)
{
	ZkClient   *client = zklock_session_client();
	char	   *parent = directory_of(pruning->claimed);
	const ZkReply *list;
	int			first = 0;

	pruning->list = zklock_client_list(client, parent);
	list = zklock_session_await(pruning->list, pruning->deadline,
								ZK_WAITING_FOR_REPLY);
	if (list == NULL || list->result != ZK_OK)
		return;
	if (list->nchildren > RECORDS_LOOKED_AT)
		first = pg_prng_uint64_range(&pg_global_prng_state, 0,
									 list->nchildren - 1);
	for (int i = 0; i < Min(list->nchildren, RECORDS_LOOKED_AT); i++)
	{
		const char *child = list->children[(first + i) % list->nchildren];
		char	   *path;

		if (!is_record(child))
			continue;
		path = psprintf("%s/%s", parent, child);
		if (strcmp(path, pruning->claimed) == 0)
			continue;
		pruning->paths[pruning->ngets] = path;
		pruning->gets[pruning->ngets++] = zklock_client_get(client, path);
	}
}

/* Read the answers, and ask for the old ones once more, behind our turn. */
static void
keep_old_records(Pruning *pruning)
{
	int			nkept = 0;

	for (int i = 0; i < pruning->ngets; i++)
	{
		if (is_old(pruning, i))
			pruning->paths[nkept++] = pruning->paths[i];
		zklock_client_free(pruning->gets[i]);
		pruning->gets[i] = NULL;
	}
	pruning->ngets = nkept;
}

/* Is it our turn to delete records of that name?  Does not wait for it. */
static bool
take_turn(Pruning *pruning)
{
	ZkClient   *client = zklock_session_client();
	char	   *parent = directory_of(pruning->claimed);
	char	   *data = zklock_identity_build(0);
	char		guid[RECIPE_GUID_LEN + 1];
	char		prefix[RECIPE_NODE_SIZE];
	const ZkReply *created;
	const ZkReply *list;
	int			own;
	int			ahead;

	zklock_identity_make_guid(guid);
	recipe_node_prefix(prefix, RECIPE_STYLE_CURATOR, RECIPE_EXCLUSIVE, 1, guid);
	pruning->turn = zklock_client_create(client,
										 psprintf("%s/%s", parent, prefix),
										 ZK_EPHEMERAL_SEQUENTIAL,
										 data, strlen(data));
	zklock_client_free(pruning->list);
	pruning->list = zklock_client_list(client, parent);
	list = zklock_session_await(pruning->list, pruning->deadline,
								ZK_WAITING_FOR_REPLY);
	created = pruning->turn != NULL ? zklock_client_reply(pruning->turn) : NULL;
	return list != NULL && list->result == ZK_OK &&
		created != NULL && created->result == ZK_OK &&
		recipe_verdict(list->children, list->nchildren,
					   strrchr(created->path, '/') + 1, RECIPE_EXCLUSIVE,
					   &own, &ahead) == RECIPE_HELD;
}

/* Read the old records again and delete them; nobody waits for the deletes. */
static void
remove_old_records(Pruning *pruning)
{
	ZkClient   *client = zklock_session_client();

	for (int i = 0; i < pruning->ngets; i++)
		pruning->gets[i] = zklock_client_get(client, pruning->paths[i]);
	for (int i = 0; i < pruning->ngets; i++)
		if (is_old(pruning, i))
			zklock_client_free(zklock_client_remove(client, pruning->paths[i],
													ZK_ANY_VERSION));
}

/* Await one of the answers: is it a record that is to go? */
static bool
is_old(Pruning *pruning, int index)
{
	const ZkReply *reply = zklock_session_await(pruning->gets[index],
												pruning->deadline,
												ZK_WAITING_FOR_REPLY);

	return reply != NULL && reply->result == ZK_OK &&
		reply->ephemeral_owner == 0 &&
		reply->ctime_ms < pruning->older_than_ms;
}

/* ---------------------------------------------------------------------
 * Forgetting
 * ---------------------------------------------------------------------
 */

/*
 * Delete the record that is there at the first look, and no later one, when it
 * is our turn.
 */
static bool
forget_slot(ZkDialog *dialog, void *argument)
{
	Forgetting *forgetting = argument;
	ZkRemoval  *removal = &forgetting->removal;
	char		node[RECIPE_PATH_SIZE];
	ZkContender contender = {
		.name = forgetting->name,
		.root_length = 0,
		.mode = RECIPE_EXCLUSIVE,
		.permits = 1,
		.wants_list = true,
		.style = RECIPE_STYLE_CURATOR,
		.may_be_there = true,
		.patience = ZK_WAIT_UNTIL_DEADLINE,
		.deadline = dialog->deadline,
		.node = node
	};

	removal->path = zklock_name_run_path(forgetting->name, forgetting->slot,
										 &contender.root_length);
	removal->doing = "delete the record of a run";
	if (removal->czxid == 0 && !read_record(dialog, removal))
		return false;
	if (removal->czxid == 0)
		return true;
	contender.lock_path = directory_of(removal->path);
	switch (zklock_contend(&contender))
	{
		case ZK_CONTEND_GRANTED:
			break;
		case ZK_CONTEND_BUSY:
			zklock_dialog_raise_timeout(true);
		case ZK_CONTEND_UNANSWERED:
			zklock_dialog_raise_timeout(false);
		case ZK_CONTEND_SESSION_LOST:
			return false;
	}
	return remove_in_turn(dialog, removal, node);
}

/* Which record is there?  czxid stays 0 if there is none; false: session lost. */
static bool
read_record(ZkDialog *dialog, ZkRemoval *removal)
{
	ZkClient   *client = zklock_session_client();
	const ZkReply *reply;

	do
	{
		/* our server may lag behind: see dialog.c about the check */
		reply = zklock_dialog_ask(dialog,
								  zklock_client_check(client, removal->path));
		if (reply->result == ZK_OK || reply->result == ZK_NO_NODE)
			reply = zklock_dialog_ask(dialog,
									  zklock_client_get(client, removal->path));
	} while (reply->result == ZK_UNKNOWN_OUTCOME);
	if (reply->result == ZK_SESSION_LOST)
		return false;
	if (reply->result != ZK_OK && reply->result != ZK_NO_NODE)
		zklock_session_raise(reply, removal->doing, removal->path);
	if (reply->result == ZK_OK)
		removal->czxid = reply->czxid;
	return true;
}

/* Delete the record, and then, in whatever way that ends, our queue node. */
static bool
remove_in_turn(ZkDialog *dialog, ZkRemoval *removal, char *node)
{
	ZkSessionNumber session = zklock_session_number();
	volatile bool is_over = false;

	PG_TRY();
	{
		is_over = zklock_dialog_remove(dialog, removal);
	}
	PG_FINALLY();
	{
		if (zklock_session_number() == session)
			zklock_client_delete(zklock_session_client(), node);
	}
	PG_END_TRY();
	return is_over;
}

/* ---------------------------------------------------------------------
 * Helpers
 * ---------------------------------------------------------------------
 */

/* The znode that a record is in. */
static char *
directory_of(const char *record)
{
	return pnstrdup(record, strrchr(record, '/') - record);
}

/* Is this child of the directory the record of a slot? */
static bool
is_record(const char *child)
{
	size_t		length = strlen(child);
	size_t		suffix_length = strlen(ZK_RUNS_SUFFIX);

	return length > suffix_length &&
		strcmp(child + length - suffix_length, ZK_RUNS_SUFFIX) == 0;
}
