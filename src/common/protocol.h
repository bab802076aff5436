/*-------------------------------------------------------------------------
 *
 * protocol.h
 *
 * A socket pair carries frames in both directions, and a page of memory that
 * both have mapped carries what must be read without a system call.  Both ends
 * run on one machine, so numbers have its byte order.  The files of the
 * installation may have been replaced meanwhile.  So each frame has the
 * version of this header, and the layout of its first eight bytes never
 * changes.
 *
 * Neither side trusts the other's bytes.  frame_take() checks all that can be
 * checked in one frame, and its caller what depends on earlier ones.
 *
 * libc only: neither PostgreSQL nor ZooKeeper.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_PROTOCOL_H
#define ZKLOCK_PROTOCOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "contact.h"
#include "keep_state.h"
#include "moves.h"
#include "terms.h"

#define PROTOCOL_VERSION 23

/* The descriptors that the program finds when it starts. */
#define PROTOCOL_CHANNEL_FD 3
#define PROTOCOL_PAGE_FD 4
#define PROTOCOL_SETTINGS_FD 5	/* settings_page.h; not if the postmaster
								 * could not make it */
#define PROTOCOL_LAST_FD PROTOCOL_SETTINGS_FD

/*
 * Longest frame: a list of 10^6 children with Curator's names has 60 MB.  A
 * session whose server sends more is lost.
 */
#define FRAME_MAX ((size_t) 64 * 1024 * 1024)

/*
 * What ps shows of a program, to everybody, so without the session's number:
 * who knows that can end it.  The program writes the session's state over
 * PROTOCOL_NO_STATE.
 */
#define PROTOCOL_TITLE "zklock: session of backend %d, %s"
#define PROTOCOL_TITLE_READ "zklock: session of backend %d, %15[a-z]"
#define PROTOCOL_NO_STATE "connecting"

/* The scheme of credentials that are those of the client's certificate. */
#define PROTOCOL_CERTIFICATE "x509"

/* Most texts and data blocks behind the fixed part of a frame. */
#define FRAME_NBLOBS 4

typedef enum FrameKind
{
	/* to the program */
	FRAME_OPEN = 1,				/* the first frame: which session */
	FRAME_REQUEST,
	FRAME_FREE,					/* done with a request that the program keeps */
	FRAME_WITHDRAW,				/* undo a create */
	FRAME_UNWATCH,				/* done with what that request watches */
	FRAME_KEEP,					/* a lock is held that may be kept */
	FRAME_ASK,					/* instead of FRAME_OPEN: ask servers (ask.h) */

	/* from the program */
	FRAME_STATUS,				/* the session changed its state */
	FRAME_REPLY,				/* to the request with that id */
	FRAME_WATCH,				/* news of the node that request watches */
	FRAME_WAKE,					/* the page has changed */
	FRAME_ANSWER				/* what is known of a server */
} FrameKind;
#define FRAME_LAST_TO_PROGRAM FRAME_ASK
#define FRAME_LAST FRAME_ANSWER

/*
 * What is asked of the server: the rows of the table in program_library.c.  A
 * SET, DELETE or LEAVE without a number (id 0) is one whose reply nobody waits
 * for: it is repeated until it is confirmed (answer.h).  A LEAVE never has one.
 */
typedef enum RequestKind
{
	/* what a backend may ask */
	REQUEST_CREATE,
	REQUEST_LIST,
	REQUEST_GET,
	REQUEST_GET_ACL,
	REQUEST_CHECK,
	REQUEST_SET,
	REQUEST_DELETE,
	REQUEST_LEAVE,				/* a DELETE of our place: if it has gone before,
								 * the backend is told */
	REQUEST_DELETE_GUARDED,		/* several, if a guard has that version */
	REQUEST_CREATE_GUARDED,		/* one, likewise; the guard is not set */
	REQUEST_MOVE,				/* create one, delete another, and maybe set a
								 * third: all or none */

	/* what follows, and what only the program asks */
	REQUEST_WATCHED,				/* a CREATE has made a place in a queue: watch it */
	REQUEST_ERASE,				/* look for what a create has made, then delete
								 * it */
	REQUEST_UNWATCH,			/* remove a watch */
	REQUEST_HEARTBEAT,
	REQUEST_NUDGE				/* whatever the answer */
} RequestKind;
#define REQUEST_LAST_OF_BACKEND REQUEST_MOVE
#define REQUEST_LAST REQUEST_NUDGE
#define REQUEST_MAY_BE_SILENT(kind) \
	((kind) == REQUEST_SET || (kind) == REQUEST_DELETE || \
	 (kind) == REQUEST_LEAVE)

/* What identifies a session to the ensemble. */
typedef struct SessionTicket
{
	int64_t		session_id;		/* 0: none */
	char		password[16];
} SessionTicket;

/*
 * Blobs: servers as in zklock.servers, authentication scheme, credentials, how
 * to use TLS (program_tls.h; none: without it).
 */
typedef struct FrameOpen
{
	SessionTicket ticket;		/* of a session to take over */
	int32_t		backend_pid;
	int32_t		session_timeout_ms;
	uint32_t	first_server;
	int32_t		is_auth_private;	/* they are this session's alone */
} FrameOpen;

/*
 * Blobs: path, other path (of MOVE: the node to go; of CREATE_GUARDED: the
 * guard), data; for DELETE_GUARDED these are that of the guard, none, and the
 * paths of the nodes, with a NUL behind each; for LEAVE that of the node, none,
 * and the name of the lock.  MOVE alone may have a fourth: the path of a node
 * that is set, and its data, a text, with a NUL behind each.
 */
typedef struct FrameRequest
{
	int64_t		czxid;			/* CHECK: that the node must have; 0: any.
								 * LEAVE: the fencing token */
	int32_t		kind;			/* RequestKind */
	int32_t		node_kind;		/* ZkNodeKind: both CREATEs and MOVE */
	int32_t		version;		/* SET and DELETE: that the node must have;
								 * both GUARDED: that of the guard; -1: any */
	int32_t		node_version;	/* DELETE_GUARDED: that each of the nodes must
								 * have; -1: any */
	int32_t		is_watched;		/* LIST and GET: as the backend's one watch */
	int32_t		is_awaited;		/* LEAVE: count it among nundone */
} FrameRequest;

/* Blobs: the path of the lock's queue node, and its data. */
typedef struct FrameKeep
{
	uint32_t	slot;			/* of its KeptLock, below KEEP_SLOTS */
	uint32_t	generation;		/* likewise; not 0 */
} FrameKeep;

/* Blobs: an address with its port, and a text. */
typedef struct FrameAnswer
{
	int64_t		us;				/* how long it took */
	int32_t		server;			/* its place in the list */
	int32_t		verdict;		/* AskVerdict */
} FrameAnswer;

/*
 * Blobs: server, last error, version of the library, and what its connection
 * is like (tls_describe()); all of them texts.
 */
typedef struct FrameStatus
{
	SessionTicket ticket;		/* valid if was_connected */
	int64_t		suspended_at;	/* and the rest: see ZkClientStatus */
	int64_t		lost_at;
	int32_t		state;			/* ZkClientState */
	int32_t		loss;			/* ZkClientLoss */
	int32_t		was_connected;
	int32_t		session_timeout_ms;
	int32_t		nrefused;
	int32_t		nput_off;
} FrameStatus;

/*
 * The reply, up to ZK_REPLY_SENT, is as the ensemble has said.
 *
 * Blobs: path, or for a result other than ZK_OK what the library calls it;
 * data; children, one after the other with a NUL behind each.  Without a
 * number (id 0) it is about a LEAVE whose node had gone before: that node,
 * no data, the name of the lock, and in czxid the fencing token.  ZK_NO_NODE
 * behind the reply to a create: the place in a queue that it has made was
 * deleted by somebody else.
 */
typedef ZkReply FrameReply;

/* Blobs: servers and how to use TLS, as in FrameOpen. */
typedef struct FrameAsk
{
	int64_t		until;			/* protocol_now() */
	int64_t		answered_until; /* likewise, for servers that have answered; not
								 * earlier */
	int32_t		request_bytes;	/* are requests of that length taken?  0: that
								 * is not asked */
} FrameAsk;

/* The fixed part of every frame. */
typedef struct Frame
{
	uint32_t	length;			/* of the frame with its blobs */
	uint16_t	kind;			/* FrameKind */
	uint16_t	version;		/* PROTOCOL_VERSION */
	uint64_t	id;				/* of the request; 0: none */
	uint32_t	blob_lengths[FRAME_NBLOBS]; /* texts with their NUL */
	union
	{
		FrameOpen	open;
		FrameRequest request;
		FrameKeep	keep;
		FrameStatus status;
		FrameReply	reply;
		int32_t		watch_news; /* ZkWatchNews */
		FrameAsk	ask;
		FrameAnswer answer;
	}			u;
} Frame;

/* A blob to be sent, NULL and 0 for none. */
typedef struct FrameBlob
{
	const void *bytes;
	size_t		length;
} FrameBlob;

/*
 * A frame that was taken from a buffer; the blobs are valid as long as that
 * is.
 */
typedef struct FrameTaken
{
	Frame		frame;
	const char *blobs[FRAME_NBLOBS];	/* NULL if the length is 0 */
} FrameTaken;

typedef enum FrameVerdict
{
	FRAME_COMPLETE,
	FRAME_INCOMPLETE,			/* more bytes are needed */
	FRAME_WRONG_VERSION,
	FRAME_INVALID
} FrameVerdict;

/* The writer of a frame: it decides which kinds there may be. */
typedef enum FrameDirection
{
	FRAME_TO_PROGRAM,
	FRAME_FROM_PROGRAM
} FrameDirection;

/* Bytes on their way, a malloc'ed buffer.  All zero is an empty one. */
typedef struct FrameBuffer
{
	char	   *bytes;
	size_t		start;			/* of what is not done with yet */
	size_t		end;
	size_t		size;			/* of the allocation */
} FrameBuffer;

/* May the backend be interrupted?  By which process, and when that is over. */
typedef enum InterruptState
{
	INTERRUPT_OFF,
	INTERRUPT_WANTED,
	INTERRUPT_UNDER_WAY,		/* the program sends the signal now */
	INTERRUPT_SENT				/* and it has */
} InterruptState;

/*
 * The page that both have mapped.  Each member has one writer, save for the
 * interrupts, which go from WANTED to UNDER_WAY by compare-and-swap, so that
 * a backend that has turned one OFF is not interrupted any more, for kept
 * locks (keep_state.h), and for the use of the session.
 */
typedef struct SharedPage
{
	_Atomic int64_t alive_at;	/* program: when its loop was last alive */
	_Atomic uint64_t nflushed;	/* how often there was news: the program counts
								 * it up when it has written frames, or lost;
								 * the backend when the program is dead */
	_Atomic uint64_t nfinished; /* program: requests that are over */
	_Atomic uint64_t nundone;	/* program: withdrawn ones that are undone, and
								 * awaited LEAVEs that are over */
	_Atomic uint32_t lost;		/* program: ZkClientLoss, once it has reported
								 * it */
	_Atomic uint32_t is_in_use; /* backend: locks hang on the session */
	_Atomic uint32_t loss_interrupt;	/* InterruptState: for a loss */
	_Atomic uint64_t ninterrupts;	/* who sends one: how many were sent, so that
									 * each has a number */
	_Atomic uint64_t use;		/* odd: a transaction of the backend uses the
								 * session; see use_begin() */
	_Atomic int32_t idle_ms;	/* backend: zklock.idle_timeout; 0: off */
	KeptLock	kept[KEEP_SLOTS];
} SharedPage;

/* Milliseconds of a clock. */
extern int64_t protocol_clock(clockid_t clock);

/* Those of one that goes on while the machine is suspended. */
extern int64_t protocol_now(void);

/* The same, and the time of day. */
extern Moment protocol_moment(void);

/*
 * Which states of a session may follow which, of ZkClientState.  CONNECTED may
 * follow itself: the library does not tell of the end of each connection.
 */
extern const Moves protocol_session_moves[];

/*
 * The word for the state of an open session, in columns and in the title of
 * its program.
 */
extern const char *protocol_state(ZkClientState state);

/*
 * The same for a session that may be over: "idle" where nobody lost anything
 * by that.
 */
extern const char *protocol_end_state(ZkClientState state, ZkClientLoss loss);

/*
 * Can a create of the path have made that node?  It has the path's name, with
 * the number of a sequential one behind it.  NULL is no node.
 */
extern bool protocol_is_made(const char *path, const char *node);

/* The blob of a text, with its NUL; of NULL there is none. */
extern FrameBlob frame_text(const char *text);

/*
 * Append a frame, of which kind, id and u are set, with its blobs, or NULL
 * for none.  false, with nothing appended, without memory or beyond FRAME_MAX.
 */
extern bool frame_put(FrameBuffer *buffer, const Frame *frame,
					  const FrameBlob blobs[FRAME_NBLOBS]);

/*
 * Take the next frame off the buffer.  The blobs stay where they are until
 * the buffer is changed.  A COMPLETE one has a kind of that direction, blobs
 * of just its length, texts that end with their only NUL, and enumerations in
 * range. FRAME_WRONG_VERSION only looks at the first eight bytes.
 */
extern FrameVerdict frame_take(FrameBuffer *buffer, FrameDirection direction,
							   FrameTaken *taken);

/*
 * How many texts that blob has, one behind the other; -1 if the last one does
 * not end.
 */
extern int	frame_count_texts(const FrameTaken *taken, int blob);

/* Make room for so many bytes behind the end; false without memory. */
extern bool frame_buffer_reserve(FrameBuffer *buffer, size_t size);

/* So many bytes from the start are done with. */
extern void frame_buffer_consume(FrameBuffer *buffer, size_t length);

extern void frame_buffer_free(FrameBuffer *buffer);

/* Turn the interrupt on.  One that was sent stays sent: a loss is final. */
extern void interrupt_want(SharedPage *page);

/*
 * Turn it off.  When this returns true no signal is under way any more.
 * false, after a second: one is, from a program that stands still just there.
 */
extern bool interrupt_refuse(SharedPage *page);

/* If it is wanted, send it to that process, which is the backend. */
extern void interrupt_send(SharedPage *page, pid_t backend);

/* Of SharedPage.use: the program has ended the session, for it was idle. */
#define USE_OVER UINT64_MAX

/*
 * Backend: a transaction uses the session from now on; false if the program
 * has ended it.  Called before anything is sent.  Each beginning and each end
 * counts the word up, so that the program sees that the session was used, and
 * never ends one that is.
 */
extern bool use_begin(SharedPage *page);

/* Backend: all is sent, and read, that it was used for. */
extern void use_end(SharedPage *page);

/* Is it used?  Not if it is over. */
extern bool use_is_begun(const SharedPage *page);

/*
 * Program: end it, unless it is used, or has been since the word was that.
 * Result: is it over?
 */
extern bool use_finish(SharedPage *page, uint64_t word);

#endif							/* ZKLOCK_PROTOCOL_H */
