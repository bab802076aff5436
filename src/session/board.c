/*-------------------------------------------------------------------------
 *
 * board.c
 *	  In shared memory: the session of each backend, what it holds and waits
 *	  for.
 *
 * A row for each backend in shared memory.  Only the backend writes to its
 * row, without a lock, by the protocol of PgBackendStatus: a count is odd while
 * it writes.  A reader copies the row, and takes the copy if the count was even
 * and is still the same.
 *
 * The one rule: functions that write never raise and never wait.  They are
 * called at the end of transactions, and each time that a lock is taken.
 *
 * A row is cleared when its backend leaves shared memory.  After a crash the
 * postmaster makes all of it anew.
 *
 *-------------------------------------------------------------------------
 */
#include "board.h"

#include <signal.h>

#include "common/hashfn.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "port/pg_bitutils.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "storage/s_lock.h"
#include "utils/backend_status.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "protocol.h"
#include "stat.h"
#include "text.h"

typedef struct Slot
{
	int			st_changecount; /* the name that the macros expect */
	ZkBoardRow	row;
	int64		losses[ZK_BOARD_LOCKS];
} Slot;

/*
 * How often to try to read a row while its backend writes to it.  That takes a
 * microsecond, unless the backend is stopped meanwhile.  From attempt
 * READ_PROMPTLY on the reader sleeps between two attempts.
 */
#define READ_ATTEMPTS 1100
#define READ_PROMPTLY 100
#define READ_PAUSE_US 100

/* A lock that has no line, for want of room. */
#define NO_LINE (-1)

/* In shared memory, by proc number: MaxBackends of them. */
static Slot *slots;

/*
 * Where this process writes while it has no row there: before its first
 * session, and at its end, when it has given its row back and still closes the
 * session.  Nobody reads it.
 */
static Slot private_slot;

/* This process's row, and what is not in it. */
static struct
{
	Slot	   *slot;
	uint32		taken_lines;	/* a bit for each line that is taken */
	int64		await_begun;	/* protocol_now() when its wait began; valid if
								 * it waits */
}			own = {.slot = &private_slot};

/* zklock.loss_channel: where loss_notice.c is to tell of lost locks; "": nowhere */
static char *loss_channel;

static bool check_channel(char **newval, void **extra, GucSource source);
static ZkClientState ask_program(const ZkBoardRow *row);
static void put_name(char *name, const char *path, int root_length);
static void clear_at_exit(int code, Datum arg);

StaticAssertDecl(ZK_BOARD_LOCKS < 32, "taken_lines has a bit for each line");

void
zklock_board_init(void)
{
	DefineCustomStringVariable("zklock.loss_channel",
							   "Channel on which a NOTIFY tells that a lock of this session is lost.",
							   "The payload is the fencing token, a space, and the lock's name. The value at the time of the last lock taken applies to all locks that the session holds.",
							   &loss_channel, "",
							   PGC_USERSET, 0,
							   check_channel, NULL, NULL);
}

/* As NOTIFY does. */
static bool
check_channel(char **newval, void **extra, GucSource source)
{
	if (strlen(*newval) < NAMEDATALEN)
		return true;
	GUC_check_errdetail("The name of a channel has at most %d bytes.",
						NAMEDATALEN - 1);
	return false;
}

/* ---------------------------------------------------------------------
 * Writing
 * ---------------------------------------------------------------------
 */

void
zklock_board_enter(void)
{
	/* once: what clears it runs when proc_exit_inprogress is set */
	if (own.slot == &private_slot && !proc_exit_inprogress)
	{
		on_shmem_exit(clear_at_exit, 0);
		own.slot = &slots[MyProcNumber_compat()];
	}
	PGSTAT_BEGIN_WRITE_ACTIVITY(own.slot);
	if (own.slot->row.pid != MyProcPid)
	{
		memset(&own.slot->row, 0, sizeof(own.slot->row));
		own.slot->row.pid = MyProcPid;
		own.slot->row.database = MyDatabaseId;
		own.slot->row.user = GetAuthenticatedUserId();
		own.taken_lines = 0;
	}
	PGSTAT_END_WRITE_ACTIVITY(own.slot);
}

void
zklock_board_put_session(uint64 number, const ZkClientStatus *status,
						 TimestampTz state_since)
{
	ZkBoardRow *row = &own.slot->row;

	PGSTAT_BEGIN_WRITE_ACTIVITY(own.slot);
	row->session.number = number;
	row->session.is_open = true;
	row->session.id = status->was_connected ? status->session_id : 0;
	row->session.state = status->state;
	row->session.since = state_since;
	row->session.program_pid = status->program_pid;
	strlcpy(row->session.server, status->was_connected ? status->server : "",
			sizeof(row->session.server));
	PGSTAT_END_WRITE_ACTIVITY(own.slot);
}

void
zklock_board_put_idle_timeout(int timeout_ms)
{
	PGSTAT_BEGIN_WRITE_ACTIVITY(own.slot);
	own.slot->row.session.idle_timeout_ms = timeout_ms;
	PGSTAT_END_WRITE_ACTIVITY(own.slot);
}

void
zklock_board_end_session(void)
{
	ZkBoardRow *row = &own.slot->row;

	PGSTAT_BEGIN_WRITE_ACTIVITY(own.slot);
	if (row->session.state != ZK_CLIENT_LOST)
		row->session.since = GetCurrentTimestamp();
	row->session.is_open = false;
	row->session.id = 0;
	PGSTAT_END_WRITE_ACTIVITY(own.slot);
}

void
zklock_board_put_lock(int *line, const char *path, int root_length,
					  const ZkBoardHeld *held)
{
	ZkBoardRow *row = &own.slot->row;
	bool		is_new = *line == 0;
	int			number = *line - 1;

	if (*line <= 0)
		number = pg_rightmost_one_pos32(~own.taken_lines);
	if (number >= ZK_BOARD_LOCKS)
		number = NO_LINE;
	if (number < 0 && !is_new)
		return;
	PGSTAT_BEGIN_WRITE_ACTIVITY(own.slot);
	if (is_new)
	{
		row->nheld++;
		strlcpy(row->channel, loss_channel, sizeof(row->channel));
	}
	if (number >= 0)
	{
		if (*line <= 0)
		{
			put_name(row->locks[number].name, path, root_length);
			row->locks[number].is_of_root = true;
		}
		row->locks[number].held = *held;
		own.taken_lines |= (uint32) 1 << number;
	}
	row->proof_ms = Max(row->proof_ms, held->proof_ms);
	PGSTAT_END_WRITE_ACTIVITY(own.slot);
	*line = number >= 0 ? number + 1 : NO_LINE;
}

bool
zklock_board_is_taken(const ZkTaken *taken)
{
	return taken->counts[ZK_SCOPE_SESSION] > 0 ||
		taken->counts[ZK_SCOPE_CALL] > 0 ||
		taken->counts[ZK_SCOPE_TRANSACTION] > 0;
}

bool
zklock_board_is_lost(const ZkBoardRow *row, const ZkBoardHeld *held)
{
	return held->is_lost || !row->session.is_open ||
		row->session.state == ZK_CLIENT_LOST ||
		held->session_number != row->session.number;
}

void
zklock_board_remove_lock(int *line)
{
	Assert(*line == 0 || own.slot->row.nheld > 0);
	if (*line == 0)
		return;
	PGSTAT_BEGIN_WRITE_ACTIVITY(own.slot);
	if (*line > 0)
	{
		own.slot->row.locks[*line - 1].name[0] = '\0';
		own.taken_lines &= ~((uint32) 1 << (*line - 1));
	}
	own.slot->row.nheld--;
	PGSTAT_END_WRITE_ACTIVITY(own.slot);
	*line = 0;
}

void
zklock_board_await(const char *path, int root_length, RecipeMode mode,
				   int permits)
{
	ZkBoardRow *row = &own.slot->row;

	PGSTAT_BEGIN_WRITE_ACTIVITY(own.slot);
	put_name(row->wait.name, path, root_length);
	row->wait.mode = mode;
	row->wait.permits = permits;
	row->wait.since = GetCurrentTimestamp();
	own.await_begun = protocol_now();
	PGSTAT_END_WRITE_ACTIVITY(own.slot);
}

void
zklock_board_await_over(void)
{
	PGSTAT_BEGIN_WRITE_ACTIVITY(own.slot);
	own.slot->row.wait.name[0] = '\0';
	PGSTAT_END_WRITE_ACTIVITY(own.slot);
}

bool
zklock_board_has_locks(void)
{
	return own.slot->row.nheld > 0;
}

bool
zklock_board_is_leaving(void)
{
	for (int i = 0; i < ZK_BOARD_LOCKS; i++)
	{
		const ZkBoardLock *lock = &own.slot->row.locks[i];

		if (lock->name[0] != '\0' && lock->held.is_leaving)
			return true;
	}
	return false;
}

bool
zklock_board_is_concerned(void)
{
	return zklock_board_has_locks() || own.slot->row.wait.name[0] != '\0';
}

/* Put down a lock's name, of ZK_BOARD_NAME_SIZE bytes, and its root. */
static void
put_name(char *name, const char *path, int root_length)
{
	char		root[ZK_BOARD_NAME_SIZE];

	zklock_text_clip(name, ZK_BOARD_NAME_SIZE, path + root_length + 1,
						 PG_UTF8);
	snprintf(root, sizeof(root), "%.*s", Max(root_length, 1), path);
	if (strcmp(root, own.slot->row.root) == 0)
		return;
	strcpy(own.slot->row.root, root);
	for (int i = 0; i < ZK_BOARD_LOCKS; i++)
		own.slot->row.locks[i].is_of_root = false;
}

/* ---------------------------------------------------------------------
 * Reading
 * ---------------------------------------------------------------------
 */

int
zklock_board_size(void)
{
	return MaxBackends;
}

bool
zklock_board_read(int number, ZkBoardRow *row)
{
	const Slot *slot = &slots[number];
	const volatile Slot *live = slot;

	for (int attempt = 0; attempt < READ_ATTEMPTS; attempt++)
	{
		int			before;
		int			after;

		pgstat_begin_read_activity(live, before);
		if (live->row.pid == 0 && (before & 1) == 0)
			return false;
		memcpy(row, &slot->row, sizeof(*row));
		pgstat_end_read_activity(live, after);
		if (pgstat_read_activity_complete(before, after))
			return row->pid != 0;
		CHECK_FOR_INTERRUPTS();
		if (attempt < READ_PROMPTLY)
			SPIN_DELAY();
		else
			pg_usleep(READ_PAUSE_US);
	}
	return false;
}

bool
zklock_board_read_live(int number, ZkBoardRow *row)
{
	ZkClientState state;
	int			program;

	if (!zklock_board_read(number, row))
		return false;
	program = row->session.program_pid;
	state = ask_program(row);
	if (state == row->session.state)
		return true;

	/* of what the backend itself has done the board knows by now */
	if (!zklock_board_read(number, row))
		return false;
	if (row->session.is_open && row->session.program_pid == program &&
		row->session.state != state && row->session.state != ZK_CLIENT_LOST)
	{
		row->session.state = state;
		row->session.since = 0;

		/* its program has gone; a backend with nothing to lose has lost nothing */
		if (state == ZK_CLIENT_LOST && row->session.idle_timeout_ms > 0 &&
			row->nheld == 0 && row->wait.name[0] == '\0')
			row->session.loss = ZK_LOSS_IDLE;
	}
	return true;
}

/*
 * The state of an open session, as the title of its program has it, without
 * which it is lost.  What the backend knew last where that cannot be read.
 *
 * A backend that is idle reads neither the frames nor the page of its program, and
 * no other process has the descriptor of that page.  The program does not write
 * here: it faces servers that may be hostile, and maps nothing of PostgreSQL's.
 * A page for the programs of all backends would let each of them speak for the
 * others, and go on to say "connected" when a program is dead.  Its title is what
 * a program writes of itself alone, and it ends with the program; with the
 * backend's pid in it, no other process is taken for the program.  What it says
 * is one word of a list.
 */
static ZkClientState
ask_program(const ZkBoardRow *row)
{
	char		path[32];
	char		title[128];
	char		word[16] = "";
	int			backend = 0;
	FILE	   *file;

	if (!row->session.is_open || row->session.program_pid == 0)
		return row->session.state;
	snprintf(path, sizeof(path), "/proc/%d/cmdline", row->session.program_pid);
	file = AllocateFile(path, "r");
	if (file == NULL)
	{
		if (kill(row->session.program_pid, 0) != 0 && errno == ESRCH)
			return ZK_CLIENT_LOST;
		return row->session.state;
	}
	if (fgets(title, sizeof(title), file) != NULL)
		sscanf(title, PROTOCOL_TITLE_READ, &backend, word);
	FreeFile(file);
	if (backend != row->pid)
		return ZK_CLIENT_LOST;
	if (strcmp(word, protocol_end_state(ZK_CLIENT_LOST, ZK_LOSS_IDLE)) == 0)
		return ZK_CLIENT_LOST;
	for (int state = ZK_CLIENT_CONNECTED; state <= ZK_CLIENT_LOST; state++)
		if (strcmp(word, protocol_state((ZkClientState) state)) == 0)
			return (ZkClientState) state;
	return row->session.state;
}

bool
zklock_board_find(int64 session_id, ZkBoardRow *row)
{
	Assert(session_id != 0);
	for (int i = 0; i < MaxBackends; i++)
	{
		const volatile ZkBoardRow *live = &slots[i].row;

		if (live->session.id == session_id && zklock_board_read(i, row) &&
			row->session.id == session_id)
			return true;
	}
	return false;
}

int64 *
zklock_board_losses(int number)
{
	return slots[number].losses;
}

/* ---------------------------------------------------------------------
 * Shared memory
 * ---------------------------------------------------------------------
 */

void
zklock_board_request_memory(void)
{
	RequestAddinShmemSpace(mul_size(MaxBackends, sizeof(Slot)));
}

void
zklock_board_make_memory(void)
{
	bool		found;

	slots = ShmemInitStruct("zklock board",
							mul_size(MaxBackends, sizeof(Slot)), &found);
	if (!found)
		memset(slots, 0, MaxBackends * sizeof(Slot));
}

/*
 * What is written from here on is read by nobody.  A wait that a FATAL has
 * ended is counted here, for a FATAL runs no PG_CATCH.
 */
static void
clear_at_exit(int code, Datum arg)
{
	if (own.slot->row.wait.name[0] != '\0')
		zklock_stat_wait((protocol_now() - own.await_begun) * 1000);
	PGSTAT_BEGIN_WRITE_ACTIVITY(own.slot);
	memset(&own.slot->row, 0, sizeof(own.slot->row));
	PGSTAT_END_WRITE_ACTIVITY(own.slot);
	own.slot = &private_slot;
	own.taken_lines = 0;
}
