/*-------------------------------------------------------------------------
 *
 * board.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_BOARD_H
#define ZKLOCK_BOARD_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "recipe.h"
#include "terms.h"

/* Room for a lock's name, in UTF-8, with its NUL; a longer one is clipped. */
#define ZK_BOARD_NAME_SIZE 128

/* Most locks of a backend that have a line of their own. */
#define ZK_BOARD_LOCKS 16

/* What ends an acquisition of a lock that is not released before. */
typedef enum ZkScope
{
	ZK_SCOPE_SESSION,			/* with the backend, or DISCARD ALL */
	ZK_SCOPE_CALL,				/* with what the client has sent: lock.c */
	ZK_SCOPE_TRANSACTION		/* with the transaction or savepoint */
} ZkScope;
#define ZK_NSCOPES 3

/* How often a lock is taken in one mode. */
typedef struct ZkTaken
{
	int			counts[ZK_NSCOPES]; /* by ZkScope */
	TimestampTz since;			/* when the first was; valid if there are any */
} ZkTaken;

/* How a lock is held. */
typedef struct ZkBoardHeld
{
	RecipeMode	mode;			/* of its queue node */
	int			permits;
	ZkTaken		taken[2];		/* by RecipeMode */
	int64		token;
	int64		proof_ms;		/* date of the last proof (contact.h), Unix
								 * epoch; 0: there is none */
	uint64		session_number; /* under which it was granted */
	bool		is_lost;		/* as far as its backend knows */
	bool		is_leaving;		/* its transaction has released it, and has it
								 * until it ends */
} ZkBoardHeld;

typedef struct ZkBoardLock
{
	char		name[ZK_BOARD_NAME_SIZE];	/* "": this line is free */
	bool		is_of_root;		/* no other root has been the row's since */
	ZkBoardHeld held;
} ZkBoardLock;

/* What a backend says of its last session. */
typedef struct ZkBoardSession
{
	uint64		number;			/* 0: there has been none; the rest is valid if
								 * there has been one */
	bool		is_open;		/* it has not been closed since */
	int64		id;				/* 0 until it was connected, and when closed */
	ZkClientState state;
	ZkClientLoss loss;			/* ZK_LOSS_IDLE, only of
								 * zklock_board_read_live(): it is LOST, and
								 * was ended as idle; else ZK_LOSS_NONE */
	TimestampTz since;			/* of that state */
	int			program_pid;	/* 0: it is over */
	int			idle_timeout_ms;	/* zklock.idle_timeout; 0: never */
	char		server[sizeof(((ZkClientStatus *) 0)->server)]; /* connected to
																 * last, or "" */
} ZkBoardSession;

/* What a backend waits for. */
typedef struct ZkBoardWait
{
	char		name[ZK_BOARD_NAME_SIZE];	/* "": nothing; the rest is valid if
											 * it waits */
	RecipeMode	mode;
	int			permits;
	TimestampTz since;
} ZkBoardWait;

/* What one backend says. */
typedef struct ZkBoardRow
{
	int			pid;			/* 0: nobody */
	Oid			database;
	Oid			user;			/* that has logged in */
	ZkBoardSession session;
	ZkBoardWait wait;
	char		channel[NAMEDATALEN];	/* zklock.loss_channel, as it was when
										 * it took a lock last */
	char		root[ZK_BOARD_NAME_SIZE];	/* chroot and root of the lock that
											 * it took, or waits for, last; or
											 * "" */
	int			nheld;			/* locks, also those without a line */
	int64		proof_ms;		/* latest proof of a lock, also of one that
								 * has been let go of; 0: none */
	ZkBoardLock locks[ZK_BOARD_LOCKS];
} ZkBoardRow;

/* Define the setting of this module.  For _PG_init(). */
extern void zklock_board_init(void);


/* For the hooks of shared memory (zklock.c). */
extern void zklock_board_request_memory(void);
extern void zklock_board_make_memory(void);

/* ---- writing: the own row.  Nothing raises or waits but enter. ---- */

/* A backend is about to open a session: it has a row from now on. */
extern void zklock_board_enter(void);

/* The state of its session, the open one. */
extern void zklock_board_put_session(uint64 number,
									 const ZkClientStatus *status,
									 TimestampTz state_since);

/* zklock.idle_timeout is that from now on. */
extern void zklock_board_put_idle_timeout(int timeout_ms);

/* The session is closed, lost or not. */
extern void zklock_board_end_session(void);

/*
 * A lock is held in this way.  The path is in UTF-8; its first root_length
 * bytes are the root, the name follows.  *line is the caller's to keep, one
 * for each lock: 0 before the first time.
 */
extern void zklock_board_put_lock(int *line, const char *path,
								  int root_length, const ZkBoardHeld *held);

/* Does that backend know that a lock is lost which it took in this way? */
extern bool zklock_board_is_lost(const ZkBoardRow *row,
								 const ZkBoardHeld *held);

/* Is it taken at all, in that mode? */
extern bool zklock_board_is_taken(const ZkTaken *taken);

/* It is not held any more. */
extern void zklock_board_remove_lock(int *line);

/* This backend waits for a lock from now on; it waits no more. */
extern void zklock_board_await(const char *path, int root_length,
							   RecipeMode mode, int permits);
extern void zklock_board_await_over(void);

/* Does this backend hold a lock, also one without a line? */
extern bool zklock_board_has_locks(void);

/* Does a line say that a lock is held only until the transaction ends? */
extern bool zklock_board_is_leaving(void);

/* Does this backend hold a lock, or wait for one? */
extern bool zklock_board_is_concerned(void);

/* ---- reading.  Nothing raises save for interrupts. ---- */

/* How many rows there may be. */
extern int	zklock_board_size(void);

/*
 * Copy one of them; false if nobody is there.  Also, after a tenth of a
 * second, if a backend was stopped in the middle of writing it.
 */
extern bool zklock_board_read(int number, ZkBoardRow *row);

/*
 * The same with the state that the program of its session tells: a backend
 * that is idle does not know of an outage.
 */
extern bool zklock_board_read_live(int number, ZkBoardRow *row);

/*
 * Copy that of the backend of this cluster that has that session, which is not
 * 0; false if none is known.
 */
extern bool zklock_board_find(int64 session_id, ZkBoardRow *row);

/*
 * Beside each line of a row, for loss_notice.c, which writes it: the token of a
 * lock that is lost, negative when that was told; 0: none was.
 */
extern int64 *zklock_board_losses(int number);

#endif							/* ZKLOCK_BOARD_H */
