/*-------------------------------------------------------------------------
 *
 * crash.c
 *	  Release the locks of backends that crashed, ahead of the session timeout.
 *
 * A backend that is killed cannot close its session; its locks stay until the
 * session times out.  With zklock in shared_preload_libraries each backend
 * leaves a note of its session (id, password, servers) in a file, which it
 * removes when it exits in good order.  A crash of a backend makes the
 * postmaster restart all processes, so a background worker that looks for notes
 * when it starts finds those of the crashed: it takes their sessions over and
 * closes them.  The next in line has the lock within milliseconds.
 *
 * The one rule: a session may only be closed when its process is certainly
 * dead.  Notes carry what is needed to tell: the boot of the machine, the data
 * directory's inode, and the process's pid and start time.  A copy of the data
 * directory, a base backup or a clone, does not match, and the directory is
 * one whose content base backups leave out anyway.
 *
 *-------------------------------------------------------------------------
 */
#include "crash.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "utils/wait_event.h"

#include "session.h"

/* Where the notes are, relative to the data directory; base backups skip it. */
#define NOTE_DIRECTORY "pg_stat_tmp"
#define NOTE_PREFIX "zklock."

/* When the worker tries again after an error, for example without a server. */
#define WORKER_RESTART_S 5

/* How long the worker waits for the ensemble for one session. */
#define TAKE_OVER_MS 10000

/* What a note says. */
typedef struct Note
{
	char		boot_id[40];	/* of the machine */
	unsigned long long device;	/* of the data directory */
	unsigned long long inode;
	int			pid;
	unsigned long long started_at;	/* of the process, ticks since boot */
	ZkSessionTicket ticket;		/* what it takes to take the session over */
} Note;

typedef enum NoteVerdict
{
	NOTE_LEAVE,					/* the process lives, or we cannot tell */
	NOTE_REMOVE,				/* out of date */
	NOTE_RELEASE				/* the process is certainly dead */
} NoteVerdict;

/* Is there a worker that reads notes? */
static bool is_worker_registered;

/* Session that the note in our file is about; 0: there is no file. */
static ZkSessionNumber noted_session;

static void note_path(char path[MAXPGPATH], int pid);
static bool write_note(const char *path, const Note *note);
static int	read_file(const char *path, void *buffer, int size);
static bool fill_in_process(Note *note, int pid);
static NoteVerdict judge_note(const Note *note);
static bool find_process_start(int pid, unsigned long long *started_at);
static void remove_note(int code, Datum arg);
static void release_dead_sessions(void);
static void release_one(const char *path);
static void release_session(const Note *note);

void
zklock_crash_init(void)
{
	BackgroundWorker worker = {0};

	zklock_session_on_connect(zklock_crash_note_session);
	if (!process_shared_preload_libraries_in_progress)
		return;
	strlcpy(worker.bgw_name, "zklock crash release", BGW_MAXLEN);
	strlcpy(worker.bgw_type, "zklock crash release", BGW_MAXLEN);
	strlcpy(worker.bgw_library_name, "zklock", BGW_MAXLEN);
	strlcpy(worker.bgw_function_name, ZK_CRASH_WORKER, BGW_MAXLEN);
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS;
	worker.bgw_start_time = BgWorkerStart_PostmasterStart;
	worker.bgw_restart_time = WORKER_RESTART_S;
	RegisterBackgroundWorker(&worker);
	is_worker_registered = true;
}

void
zklock_crash_note_session(void)
{
	static bool is_exit_registered = false;
	char		path[MAXPGPATH];
	Note		note;

	if (!is_worker_registered || noted_session == zklock_session_number())
		return;
	if (!is_exit_registered)
	{
		on_proc_exit(remove_note, 0);
		is_exit_registered = true;
	}
	note_path(path, MyProcPid);
	if (!zklock_session_ticket(&note.ticket) ||
		!fill_in_process(&note, MyProcPid) || !write_note(path, &note))
		ereport(WARNING,
				(errcode_for_file_access(),
				 errmsg("could not write file \"%s\": %m", path),
				 errdetail("If this backend crashes, its ZooKeeper locks stay until the session times out.")));
	explicit_bzero(&note, sizeof(note));

	/* one complaint is enough */
	noted_session = zklock_session_number();
}

/* ---------------------------------------------------------------------
 * The worker
 * ---------------------------------------------------------------------
 */

/*
 * Look at the notes once, then sleep: there are new ones to look at only after
 * the next crash, and that restarts this process too.
 */
void
zklock_crash_worker_main(Datum arg)
{
	pqsignal(SIGTERM, die);
	pqsignal(SIGHUP, SIG_IGN);
	BackgroundWorkerUnblockSignals();
	release_dead_sessions();
	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_EXIT_ON_PM_DEATH, -1,
						 PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
	}
}

/*
 * An error ends the worker, and the postmaster starts it anew; the notes that
 * were done are gone by then.
 */
static void
release_dead_sessions(void)
{
	DIR		   *directory = AllocateDir(NOTE_DIRECTORY);
	struct dirent *entry;
	char		path[MAXPGPATH];

	while ((entry = ReadDirExtended(directory, NOTE_DIRECTORY, LOG)) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		if (strncmp(entry->d_name, NOTE_PREFIX, strlen(NOTE_PREFIX)) != 0)
			continue;
		snprintf(path, sizeof(path), "%s/%s", NOTE_DIRECTORY, entry->d_name);
		release_one(path);
	}
	FreeDir(directory);
}

/* Close the session of one note if its process is dead, and remove the note. */
static void
release_one(const char *path)
{
	Note		note;
	NoteVerdict verdict;

	if (read_file(path, &note, sizeof(note)) != sizeof(note))
		return;					/* of another version, perhaps */
	verdict = judge_note(&note);
	if (verdict == NOTE_LEAVE)
		return;
	if (verdict == NOTE_RELEASE)
		release_session(&note);
	explicit_bzero(&note, sizeof(note));
	if (unlink(path) != 0 && errno != ENOENT)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not remove file \"%s\": %m", path)));
}

/*
 * Close the session of a note.  If the ensemble does not do it there is no second
 * try: each would keep the session alive.
 */
static void
release_session(const Note *note)
{
	switch (zklock_session_take_over_and_close(&note->ticket, TAKE_OVER_MS))
	{
		case ZK_TAKE_OVER_CLOSED:
			ereport(LOG,
					(errmsg("released the ZooKeeper locks of crashed process %d",
							note->pid)));
			break;
		case ZK_TAKE_OVER_GONE:
			break;
		case ZK_TAKE_OVER_REFUSED:
			ereport(LOG,
					(errmsg("could not release the ZooKeeper locks of crashed process %d",
							note->pid),
					 errdetail("ZooKeeper did not close the session; its locks stay until it times out."),
					 errhint("If the ensemble enforces authentication, check the setting \"%s\".",
							 "zklock.auth")));
			break;
	}
}

/* ---------------------------------------------------------------------
 * Notes
 * ---------------------------------------------------------------------
 */

static void
note_path(char path[MAXPGPATH], int pid)
{
	snprintf(path, MAXPGPATH, "%s/%s%d", NOTE_DIRECTORY, NOTE_PREFIX, pid);
}

/*
 * The structure as it is: writer and reader are the same build on the same
 * machine, and a note of another size is ignored.  It gets its name when it is
 * complete.
 */
static bool
write_note(const char *path, const Note *note)
{
	char		temporary[MAXPGPATH];
	int			fd;
	bool		is_written;

	snprintf(temporary, sizeof(temporary), "%s/new-" NOTE_PREFIX "%d",
			 NOTE_DIRECTORY, MyProcPid);
	fd = BasicOpenFilePerm(temporary, O_CREAT | O_TRUNC | O_WRONLY,
						   S_IRUSR | S_IWUSR);
	if (fd < 0)
		return false;
	errno = ENOSPC;
	is_written = write(fd, note, sizeof(*note)) == sizeof(*note);
	return close(fd) == 0 && is_written && rename(temporary, path) == 0;
}

/* Read the head of a file: how many bytes, -1 with errno if it fails. */
static int
read_file(const char *path, void *buffer, int size)
{
	int			fd = BasicOpenFile(path, O_RDONLY);
	int			length;
	int			error;

	if (fd < 0)
		return -1;
	length = read(fd, buffer, size);
	error = errno;
	close(fd);
	errno = error;
	return length;
}

/* What identifies the process, on this machine, at this data directory. */
static bool
fill_in_process(Note *note, int pid)
{
	struct stat data_directory;

	memset(note->boot_id, 0, sizeof(note->boot_id));
	if (read_file("/proc/sys/kernel/random/boot_id", note->boot_id,
				  sizeof(note->boot_id) - 1) <= 0 ||
		stat(".", &data_directory) != 0)
		return false;
	note->device = data_directory.st_dev;
	note->inode = data_directory.st_ino;
	note->pid = pid;
	return find_process_start(pid, &note->started_at) &&
		note->started_at != 0;
}

/*
 * What is to be done about a note?  Another cluster's is not ours to judge, for
 * example in a copy of the data directory.  One of an earlier boot is about a
 * process that is gone, but the session has gone with it.
 */
static NoteVerdict
judge_note(const Note *note)
{
	Note		here;
	unsigned long long started_at;

	if (!fill_in_process(&here, MyProcPid) ||
		here.device != note->device || here.inode != note->inode)
		return NOTE_LEAVE;
	if (strcmp(here.boot_id, note->boot_id) != 0)
		return NOTE_REMOVE;
	if (!find_process_start(note->pid, &started_at) ||
		started_at == note->started_at)
		return NOTE_LEAVE;
	return NOTE_RELEASE;
}

/*
 * When a process was started, in clock ticks since boot: the 22nd field of
 * /proc/PID/stat (see proc(5)); the second may hold blanks and parentheses.  0
 * if there is no such process, or only its zombie.  false if that cannot be
 * told.
 */
static bool
find_process_start(int pid, unsigned long long *started_at)
{
	char		path[64];
	char		line[1024];
	int			length;
	const char *field;

	*started_at = 0;
	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	length = read_file(path, line, sizeof(line) - 1);
	if (length < 0)
		return errno == ENOENT || errno == ESRCH;
	line[length] = '\0';
	field = strrchr(line, ')');
	if (field == NULL || field[1] != ' ')
		return false;
	if (field[2] == 'Z')
		return true;

	/* the 3rd field follows; the 22nd is 19 further on */
	field += 2;
	for (int i = 0; i < 19 && field != NULL; i++)
	{
		field = strchr(field, ' ');
		if (field != NULL)
			field++;
	}
	if (field == NULL)
		return false;
	*started_at = strtoull(field, NULL, 10);
	return true;
}

static void
remove_note(int code, Datum arg)
{
	char		path[MAXPGPATH];

	if (noted_session == 0)
		return;
	note_path(path, MyProcPid);
	unlink(path);
}
