/*-------------------------------------------------------------------------
 *
 * loss_notice.c
 *	  Tells sessions of this cluster, also idle ones, that a lock is lost.
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
 * then the second look at the board, that of whoever sends the NOTIFY, finds
 * another token, or none.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "loss_notice.h"

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
#include "nodedata.h"
#include "queue.h"
#include "roundtrip.h"
#include "session.h"
#include "worker.h"

/* A node that is looked for. */
typedef struct Search
{
	const char *path;			/* of the lock's znode */
	int64		session_id;		/* the node's owner */
	bool		is_gone;		/* there is none */
} Search;

static Oid	search_losses(bool asks, int64 until, bool *is_over);
static bool is_untold(const ZkBoardRow *row, int line, bool asks, int64 *loss);
static bool is_gone(Search *search);
static void notify_all(void);
static void note_sent(void);
static bool ask_ensemble(ZkRoundTrip *trip, void *argument);

PGDLLEXPORT void zk_loss_notice(Datum argument);

/* One notice at a time: this is the last one, and where it is sent. */
static ZkWorker notice = {
	.name = "zklock loss notice",
	.function = "zk_loss_notice",
	.purpose = "sessions with a zklock.loss_channel are not told of locks that they have lost"
};
static Oid	last_database;

/* In the worker of a moment: places on the board of what is told. */
static List *sent;

bool
zklock_loss_notice_send(bool asks, int64 until)
{
	bool		is_over = true;
	Oid			database;

	if (RecoveryInProgress() || zklock_worker_runs(&notice))
		return true;			/* nobody can LISTEN, or one is under way */
	database = search_losses(asks, until, &is_over);
	if (database != InvalidOid)
	{
		last_database = database;
		/* without a slot a later round tries again */
		(void) zklock_worker_start(&notice, ObjectIdGetDatum(database));
	}
	return is_over;
}

bool
zklock_loss_notice_is_wanted(void)
{
	uint32		servers = zklock_board_servers();
	ZkBoardRow	row;

	if (RecoveryInProgress())
		return false;
	for (int slot = 0; slot < zklock_board_size(); slot++)
		if (zklock_board_read(slot, &row) && row.channel[0] != '\0' &&
			row.servers == servers && row.nheld > 0)
			return true;
	return false;
}

/*
 * Note the losses that are to be told, and choose the next database in which
 * there are any; Invalid: none.  Who asks goes on where the last one had to
 * stop, until that time; *is_over: it was not over before the end.
 */
static Oid
search_losses(bool asks, int64 until, bool *is_over)
{
	static int	next_slot;		/* to ask about */
	int			first = asks ? next_slot : 0;
	uint32		servers = zklock_board_servers();
	Oid			database = InvalidOid;
	ZkBoardRow	row;

	*is_over = true;
	for (int n = 0; n < zklock_board_size() && *is_over; n++)
	{
		int			slot = (first + n) % zklock_board_size();

		CHECK_FOR_INTERRUPTS();
		if (!zklock_board_read(slot, &row) || row.channel[0] == '\0' ||
			row.servers != servers || !zklock_board_read_live(slot, &row))
			continue;
		for (int line = 0; line < ZK_BOARD_LOCKS; line++)
			if (is_untold(&row, line, asks, &zklock_board_losses(slot)[line]) &&
				(database == InvalidOid ||
				 row.database - last_database - 1 < database - last_database - 1))
				database = row.database;
		if (asks)
		{
			next_slot = (slot + 1) % zklock_board_size();
			*is_over = protocol_now() < until;
		}
	}
	return database;
}

/* Is that lock lost, as far as is known or can be asked, and was it not told? */
static bool
is_untold(const ZkBoardRow *row, int line, bool asks, int64 *loss)
{
	const ZkBoardLock *lock = &row->locks[line];
	Search		search = {.session_id = row->session_id};

	/* of a name that was clipped there is no path */
	if (lock->name[0] == '\0' || lock->held.token == -*loss ||
		strlen(lock->name) == ZK_BOARD_NAME_SIZE - 1 ||
		strlen(row->root) == ZK_BOARD_NAME_SIZE - 1)
		return false;
	search.path = psprintf("%s/%s", strcmp(row->root, "/") == 0 ? "" : row->root,
						   lock->name);

	/* a downgrade replaces the node while we look, but once for a token */
	if (lock->held.token == *loss || zklock_board_is_lost(row, &lock->held) ||
		(asks && lock->is_of_root && is_gone(&search) && is_gone(&search)))
		*loss = lock->held.token;
	return lock->held.token == *loss;
}

/*
 * Has the session no node in the queue any more?  What cannot be read may be
 * its.
 */
static bool
is_gone(Search *search)
{
	search->is_gone = false;
	zklock_roundtrip_run(ask_ensemble, NULL, search);
	return search->is_gone;
}

static bool
ask_ensemble(ZkRoundTrip *trip, void *argument)
{
	Search	   *search = argument;
	const ZkReply *reply;
	ZkQueueEntry *entries;
	int			nentries;
	List	   *nodes = NIL;

	trip->by = ZK_BY_CALLER;
	trip->terms = ZK_WRITE_COUNTED;
	trip->deadline = zklock_worker_deadline();
	reply = zklock_roundtrip_read_newest(trip, ZK_LIST, search->path);
	if (reply == NULL || (reply->result != ZK_OK && reply->result != ZK_NO_NODE))
		return reply == NULL || reply->result != ZK_SESSION_LOST;

	/* holders are ahead of those who wait */
	entries = zklock_order_queue(reply->children, reply->result == ZK_OK ?
								 reply->nchildren : 0, &nentries);
	for (int i = 0; i < nentries; i++)
		nodes = lappend(nodes, psprintf("%s/%s", search->path, entries[i].node));
	foreach_ptr(const char, node, nodes)
	{
		reply = zklock_roundtrip_read(trip, ZK_GET, node);
		if (reply == NULL || (reply->result != ZK_OK && reply->result != ZK_NO_NODE))
			return reply == NULL || reply->result != ZK_SESSION_LOST;
		if (reply->result == ZK_OK && reply->ephemeral_owner == search->session_id)
			return true;
	}
	search->is_gone = true;
	return true;
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
	for (int i = 0; i < zklock_board_size() * ZK_BOARD_LOCKS; i++)
	{
		int64	   *loss = &zklock_board_losses(i / ZK_BOARD_LOCKS)[i % ZK_BOARD_LOCKS];
		const ZkBoardLock *lock = &row.locks[i % ZK_BOARD_LOCKS];

		if (*loss <= 0 || !zklock_board_read(i / ZK_BOARD_LOCKS, &row) ||
			row.database != MyDatabaseId || row.channel[0] == '\0' ||
			lock->name[0] == '\0' || lock->held.token != *loss)
			continue;
		Async_Notify(row.channel,
					 psprintf(INT64_FORMAT " %s", lock->held.token,
							  zklock_name_shown(lock->name)));
		sent = lappend(sent, loss);
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
