/*-------------------------------------------------------------------------
 *
 * loss_notice.c
 *	  Sends a NOTIFY for each lock that a session has lost, also an idle one.
 *	  The lease worker calls it.
 *
 * PostgreSQL runs nothing of an extension's in a backend that is idle.  So the
 * lease worker looks after its locks: the board says which it believes to
 * hold, the title of its program that the session is lost, and the ensemble
 * whether the session still has a node there.  What is known without the
 * ensemble is told first, also while nobody answers.  A NOTIFY
 * belongs to a database, and that worker has none: another one, of a moment,
 * sends those of one database.  There is one at a time: what holds up a NOTIFY
 * holds up all of them.
 *
 * No lock that is held is said to be lost.  The list of the queue is not older
 * than the first look at the board, and the backend says there that it holds
 * the lock only after its node was made.  It may have let go of the lock since:
 * then the second look at the board, that of the worker which sends the NOTIFY, finds
 * another token, or none.
 *
 *-------------------------------------------------------------------------
 */
#include "brief_worker.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "commands/async.h"
#include "miscadmin.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "board.h"
#include "compat.h"
#include "name.h"
#include "name_spelling.h"
#include "nodedata.h"
#include "queue_list.h"
#include "roundtrip.h"
#include "session.h"
#include "text.h"

/* A node that is looked for. */
typedef struct Search
{
	const char *path;			/* of the lock's znode */
	int64		session_id;		/* the node's owner */
	bool		is_gone;		/* there is none */
} Search;

static bool note_losses(bool asks, int64 until);
static bool read_listener(int slot, ZkBoardRow *row);
static void note_losses_of(const ZkBoardRow *row, int slot, bool asks);
static bool has_path(const ZkBoardRow *row, const ZkBoardLock *lock);
static bool ask_for_loss(const ZkBoardRow *row, const ZkBoardLock *lock);
static ZkOutcome find_node(ZkRoundTrip *trip, void *argument);
static List *list_contenders(const Search *search, const ZkReply *list);
static Oid	next_database(void);
static bool has_untold(const ZkBoardRow *row, int slot);
static bool is_noted(const ZkBoardLock *lock, int64 loss);
static bool is_told(const ZkBoardLock *lock, int64 loss);
static void notify_all(void);
static void notify_of(const ZkBoardRow *row, int slot);
static void note_sent(void);

PGDLLEXPORT void zk_loss_notice(Datum argument);

/* The notices that the lease worker has sent.  They belong to its process. */
static struct
{
	ZkWorker	worker;			/* one at a time: the last one */
	Oid			database;		/* where that one is sent */
	int			next_slot;		/* with which the next asking begins */
}			Notices = {
	.worker = {
		.name = "zklock loss notice",
		.function = "zk_loss_notice",
		.purpose = "sessions with a zklock.loss_channel are not told of locks that they have lost"
	}
};

/*
 * In the worker of a moment, whose process has but one task: places on the board
 * of the losses that are told when its transaction has committed.
 */
static List *sent;

bool
zklock_loss_notice_send(bool asks, int64 until)
{
	bool		is_over;
	Oid			database;

	if (RecoveryInProgress() || zklock_worker_runs(&Notices.worker))
		return true;			/* nobody can LISTEN, or one is under way */
	is_over = note_losses(asks, until);
	database = next_database();
	if (database != InvalidOid)
	{
		Notices.database = database;
		/* without a slot a later round tries again */
		(void) zklock_worker_start(&Notices.worker,
								   ObjectIdGetDatum(database));
	}
	return is_over;
}

bool
zklock_loss_notice_is_wanted(void)
{
	ZkBoardRow	row;

	if (RecoveryInProgress())
		return false;
	for (int slot = 0; slot < zklock_board_size(); slot++)
	{
		if (zklock_board_read(slot, &row) && row.channel[0] != '\0' &&
			row.nheld > 0)
			return true;
	}
	return false;
}

/* ---------------------------------------------------------------------
 * What is lost is noted on the board: the token, until it is told its negative
 * ---------------------------------------------------------------------
 */

/*
 * Note the losses that are known; asks: those that the ensemble knows, too.
 * Asking goes on where it had to stop before, until that time.  false if it has
 * to stop again.
 */
static bool
note_losses(bool asks, int64 until)
{
	int			first = asks ? Notices.next_slot : 0;
	ZkBoardRow	row;

	for (int n = 0; n < zklock_board_size(); n++)
	{
		int			slot = (first + n) % zklock_board_size();

		CHECK_FOR_INTERRUPTS();
		if (!read_listener(slot, &row))
			continue;
		note_losses_of(&row, slot, asks);
		if (!asks)
			continue;
		Notices.next_slot = (slot + 1) % zklock_board_size();
		if (protocol_now() >= until)
			return false;
	}
	return true;
}

/* Is there a session that is to be told? */
static bool
read_listener(int slot, ZkBoardRow *row)
{
	return zklock_board_read(slot, row) && row->channel[0] != '\0' &&
		zklock_board_read_live(slot, row);
}

/* Note which of its locks are lost, as far as is known or can be asked. */
static void
note_losses_of(const ZkBoardRow *row, int slot, bool asks)
{
	int64	   *losses = zklock_board_losses(slot);

	for (int line = 0; line < ZK_BOARD_LOCKS; line++)
	{
		const ZkBoardLock *lock = &row->locks[line];

		if (!has_path(row, lock) || is_noted(lock, losses[line]) ||
			is_told(lock, losses[line]))
			continue;
		if (!zklock_board_is_lost(row, &lock->held) &&
			!(asks && lock->is_of_root && ask_for_loss(row, lock)))
			continue;
		losses[line] = lock->held.token;
		if (message_level_is_interesting(DEBUG1))
			ereport(DEBUG1,
					(errmsg_internal("zklock: lock \"%s\" of process %d, fencing token " INT64_FORMAT ": lost, to be told on \"%s\"",
									 zklock_text_quotable(lock->name), row->pid, lock->held.token,
									 row->channel)));
	}
}

/* Is anything there?  Of a name that was clipped there is no path. */
static bool
has_path(const ZkBoardRow *row, const ZkBoardLock *lock)
{
	return lock->name[0] != '\0' &&
		strlen(lock->name) < ZK_BOARD_NAME_SIZE - 1 &&
		strlen(row->root) < ZK_BOARD_NAME_SIZE - 1;
}

/*
 * Ask the ensemble whether the lock is lost: whether the session has no node in
 * the queue any more.  What cannot be read may be its.
 */
static bool
ask_for_loss(const ZkBoardRow *row, const ZkBoardLock *lock)
{
	const char *root = strcmp(row->root, "/") == 0 ? "" : row->root;
	Search		search = {.session_id = row->session.id};
	ZkBounds	bounds = zklock_bounds_of_task();

	search.path = psprintf("%s/%s", root, lock->name);

	/* not known in time: the next round asks again */
	if (zklock_roundtrip_run_within(&bounds, find_node, NULL,
									&search) != ZK_ANSWERED)
		return false;
	return search.is_gone;
}

static ZkOutcome
find_node(ZkRoundTrip *trip, void *argument)
{
	Search	   *search = argument;
	const ZkReply *reply;
	ZkOutcome	outcome;
	List	   *nodes = NIL;

	trip->by = ZK_BY_CALLER;
	trip->deadline = zklock_worker_deadline();
	outcome = zklock_roundtrip_read_newest(trip, ZK_LIST, search->path,
										   &reply);
	if (outcome != ZK_ANSWERED ||
		(reply->result != ZK_OK && reply->result != ZK_NO_NODE))
		return outcome;
	if (reply->result == ZK_OK)
		nodes = list_contenders(search, reply);
	foreach_ptr(const char, node, nodes)
	{
		outcome = zklock_roundtrip_read(trip, ZK_GET, node, &reply);
		if (outcome != ZK_ANSWERED ||
			(reply->result != ZK_OK && reply->result != ZK_NO_NODE) ||
			(reply->result == ZK_OK &&
			 reply->ephemeral_owner == search->session_id))
			return outcome;
	}
	search->is_gone = true;
	return ZK_ANSWERED;
}

/* Paths of all of them, in order: holders are ahead of waiters. */
static List *
list_contenders(const Search *search, const ZkReply *list)
{
	int			nentries;
	const ZkQueueEntry *entries = zklock_queue_in_order(list->children,
														list->nchildren,
														&nentries);
	List	   *paths = NIL;

	for (int i = 0; i < nentries; i++)
		paths = lappend(paths, psprintf("%s/%s", search->path,
										entries[i].node));
	return paths;
}

/* ---------------------------------------------------------------------
 * And told
 * ---------------------------------------------------------------------
 */

/* The database behind the last one, in a circle, that has losses to be told. */
static Oid
next_database(void)
{
	Oid			database = InvalidOid;
	ZkBoardRow	row;

	for (int slot = 0; slot < zklock_board_size(); slot++)
	{
		if (!read_listener(slot, &row) || !has_untold(&row, slot))
			continue;
		if (database == InvalidOid ||
			row.database - Notices.database - 1 <
			database - Notices.database - 1)
			database = row.database;
	}
	return database;
}

static bool
has_untold(const ZkBoardRow *row, int slot)
{
	const int64 *losses = zklock_board_losses(slot);

	for (int line = 0; line < ZK_BOARD_LOCKS; line++)
	{
		if (is_noted(&row->locks[line], losses[line]))
			return true;
	}
	return false;
}

/* Was it noted that this lock is lost, and not told yet? */
static bool
is_noted(const ZkBoardLock *lock, int64 loss)
{
	return lock->name[0] != '\0' && loss > 0 && lock->held.token == loss;
}

/* And told? */
static bool
is_told(const ZkBoardLock *lock, int64 loss)
{
	return loss < 0 && lock->held.token == -loss;
}

/* The worker of a moment: in that database, to the channels of its sessions. */
void
zk_loss_notice(Datum argument)
{
	zklock_worker_serve(argument, BGWORKER_BYPASS_ALLOWCONN, notify_all,
						note_sent);
}

static void
notify_all(void)
{
	ZkBoardRow	row;

	/* not to wait for a standby that may be away */
	SetConfigOption("synchronous_commit", "local", PGC_USERSET, PGC_S_SESSION);
	MemoryContextSwitchTo(TopMemoryContext);	/* sent outlives it */
	for (int slot = 0; slot < zklock_board_size(); slot++)
	{
		if (zklock_board_read(slot, &row) && row.channel[0] != '\0' &&
			row.database == MyDatabaseId)
			notify_of(&row, slot);
	}
}

static void
notify_of(const ZkBoardRow *row, int slot)
{
	int64	   *losses = zklock_board_losses(slot);

	for (int line = 0; line < ZK_BOARD_LOCKS; line++)
	{
		const ZkBoardLock *lock = &row->locks[line];

		if (!is_noted(lock, losses[line]))
			continue;
		Async_Notify(row->channel,
					 psprintf(INT64_FORMAT " %s", lock->held.token,
							  zklock_name_shown(lock->name)));
		sent = lappend(sent, &losses[line]);
	}
}

/* It is committed. */
static void
note_sent(void)
{
	foreach_ptr(int64, loss, sent)
		if (*loss > 0)			/* one of a lease worker that was there before */
		*loss = -*loss;
}
