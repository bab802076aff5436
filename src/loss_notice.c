/*-------------------------------------------------------------------------
 *
 * loss_notice.c
 *	  Tells sessions of this cluster, also idle ones, that a lock is lost.
 *
 * PostgreSQL runs nothing of an extension's in a backend that is idle.  So the
 * lease worker looks after its locks: the board says which it believes to
 * hold, and the ensemble whether its session still has a node there.  A NOTIFY
 * belongs to a database, and that worker has none: another one, of a moment,
 * sends it.
 *
 * No lock that is held is said to be lost.  The list of the queue is not older
 * than the first look at the board, and the backend says there that it holds
 * the lock only after its node was made.  It may have let go of the lock since:
 * then the second look at the board finds another token, or none.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "loss_notice.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "commands/async.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "board.h"
#include "compat.h"
#include "nodedata.h"
#include "queue.h"
#include "roundtrip.h"
#include "session.h"

/* A lock that somebody believes to hold. */
typedef struct Belief
{
	int			slot;			/* of the board */
	int			line;
	int			pid;
	int64		token;
	int64		session_id;
	const char *path;			/* of the lock's znode */
	bool		is_gone;		/* as the ensemble says */
} Belief;

StaticAssertDecl(sizeof(Belief) <= BGW_EXTRALEN, "a worker takes it along");

/* Of each line of the board, the token that was told last. */
static int64 *told;

static void look_after(const ZkBoardRow *row, int slot, int line);
static bool is_gone(Belief *belief);
static bool ask_ensemble(ZkRoundTrip *trip, void *argument);
static bool is_believed(const Belief *belief, ZkBoardRow *row);
static bool start_notice(const Belief *belief);

PGDLLEXPORT void zk_loss_notice(Datum argument);

void
zklock_loss_notice_send(void)
{
	uint32		servers = zklock_board_servers();
	ZkBoardRow	row;

	if (RecoveryInProgress())
		return;					/* nobody can LISTEN */
	if (told == NULL)
		told = MemoryContextAllocZero(TopMemoryContext,
									  sizeof(*told) * zklock_board_size() *
									  ZK_BOARD_LOCKS);
	for (int slot = 0; slot < zklock_board_size(); slot++)
	{
		CHECK_FOR_INTERRUPTS();
		if (!zklock_board_read(slot, &row) || row.channel[0] == '\0' ||
			row.servers != servers)
			continue;
		for (int line = 0; line < ZK_BOARD_LOCKS; line++)
			look_after(&row, slot, line);
	}
}

/* Send a NOTIFY if that lock is lost, and was not told. */
static void
look_after(const ZkBoardRow *row, int slot, int line)
{
	const ZkBoardLock *lock = &row->locks[line];
	int64	   *last = &told[slot * ZK_BOARD_LOCKS + line];
	ZkBoardRow	later;
	Belief		belief = {
		.slot = slot,.line = line,.pid = row->pid,
		.token = lock->held.token,.session_id = row->session_id
	};

	/* of a name that was clipped there is no path */
	if (lock->name[0] == '\0' || lock->held.token == *last ||
		strlen(lock->name) == ZK_BOARD_NAME_SIZE - 1 ||
		strlen(row->root) == ZK_BOARD_NAME_SIZE - 1)
		return;
	belief.path = psprintf("%s/%s", strcmp(row->root, "/") == 0 ? "" : row->root,
						   lock->name);

	/* a downgrade replaces the node while we look, but once for a token */
	if ((zklock_board_is_lost(row, &lock->held) ||
		 (lock->is_of_root && is_gone(&belief) && is_gone(&belief))) &&
		is_believed(&belief, &later) && start_notice(&belief))
		*last = belief.token;
}

/*
 * Has the session no node in the queue any more?  What cannot be read may be
 * its.
 */
static bool
is_gone(Belief *belief)
{
	belief->is_gone = false;
	zklock_roundtrip_run(ask_ensemble, NULL, belief);
	return belief->is_gone;
}

static bool
ask_ensemble(ZkRoundTrip *trip, void *argument)
{
	Belief	   *belief = argument;
	const ZkReply *reply;
	ZkQueueEntry *entries;
	int			nentries;
	List	   *nodes = NIL;

	trip->is_lock_timeout = false;
	trip->deadline = zklock_session_reply_deadline(protocol_now());
	reply = zklock_roundtrip_read_newest(trip, ZK_LIST, belief->path);
	if (reply == NULL || (reply->result != ZK_OK && reply->result != ZK_NO_NODE))
		return reply == NULL || reply->result != ZK_SESSION_LOST;

	/* holders are ahead of those who wait */
	entries = zklock_order_queue(reply->children, reply->result == ZK_OK ?
								 reply->nchildren : 0, &nentries);
	for (int i = 0; i < nentries; i++)
		nodes = lappend(nodes, psprintf("%s/%s", belief->path, entries[i].node));
	foreach_ptr(const char, node, nodes)
	{
		reply = zklock_roundtrip_read(trip, ZK_GET, node);
		if (reply == NULL || (reply->result != ZK_OK && reply->result != ZK_NO_NODE))
			return reply == NULL || reply->result != ZK_SESSION_LOST;
		if (reply->result == ZK_OK && reply->ephemeral_owner == belief->session_id)
			return true;
	}
	belief->is_gone = true;
	return true;
}

/* Does the backend still say so?  Reads its row. */
static bool
is_believed(const Belief *belief, ZkBoardRow *row)
{
	return zklock_board_read(belief->slot, row) && row->pid == belief->pid &&
		row->locks[belief->line].name[0] != '\0' &&
		row->locks[belief->line].held.token == belief->token;
}

/* false if there is no room for a worker. */
static bool
start_notice(const Belief *belief)
{
	BackgroundWorker worker = {
		.bgw_name = "zklock loss notice",
		.bgw_type = "zklock loss notice",
		.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION,
		.bgw_start_time = BgWorkerStart_RecoveryFinished,
		.bgw_restart_time = BGW_NEVER_RESTART,
		.bgw_library_name = "zklock",
		.bgw_function_name = "zk_loss_notice"
	};

	memcpy(worker.bgw_extra, belief, sizeof(*belief));
	return RegisterDynamicBackgroundWorker(&worker, NULL);
}

/* The worker of a moment: in the session's database, to its channel. */
void
zk_loss_notice(Datum argument)
{
	Belief		belief;
	ZkBoardRow	row;

	memcpy(&belief, MyBgworkerEntry->bgw_extra, sizeof(belief));
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	if (!is_believed(&belief, &row))
		return;
	BackgroundWorkerInitializeConnectionByOid(row.database, InvalidOid,
											  BGWORKER_BYPASS_ALLOWCONN);

	/* not to wait for a standby that may be away */
	SetConfigOption("synchronous_commit", "local", PGC_USERSET, PGC_S_SESSION);
	StartTransactionCommand();
	Async_Notify(row.channel,
				 psprintf(INT64_FORMAT " %s", belief.token,
						  zklock_nodedata_printable(row.locks[belief.line].name)));
	CommitTransactionCommand();
}
