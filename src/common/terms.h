/*-------------------------------------------------------------------------
 *
 * terms.h
 *	  States, losses, results and kinds of znodes.  To change it is to change
 *	  the protocol.
 *
 * A change here is one of the protocol: see PROTOCOL_VERSION.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_TERMS_H
#define ZKLOCK_TERMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "contact.h"

/* Room for what is said of a connection with TLS. */
#define TLS_TEXT_SIZE 400

/*
 * States of a session, as its program has said last; a program that has ended, or
 * stands still, has lost it, whatever it has said.
 */
typedef enum ZkClientState
{
	ZK_CLIENT_STARTING,			/* the program starts, or no address is known */
	ZK_CLIENT_CONNECTING,		/* no server has granted a session yet */
	ZK_CLIENT_CONNECTED,		/* a server answers for the session */
	ZK_CLIENT_SUSPENDED,		/* connection lost, the session may live */
	ZK_CLIENT_LOST				/* over for good, its nodes are or will be
								 * gone */
} ZkClientState;

/* Why a session is lost. */
typedef enum ZkClientLoss
{
	ZK_LOSS_NONE,				/* it is not */
	ZK_LOSS_EXPIRED,			/* the ensemble said so */
	ZK_LOSS_SILENCE,			/* no contact for the session timeout */
	ZK_LOSS_AUTH,				/* the ensemble refused our credentials */
	ZK_LOSS_RESOLVE,			/* no server's name could be resolved */
	ZK_LOSS_PROTOCOL,			/* what answered is not a usable ZooKeeper */
	ZK_LOSS_RESOURCES,			/* no process, descriptor or memory */
	ZK_LOSS_PROGRAM,			/* the session's program died, does not
								 * answer, or is of another version */
	ZK_LOSS_STANDSTILL,			/* the backend stood still for too long */
	ZK_LOSS_UNANSWERED,			/* there are connections, but no answers */
	ZK_LOSS_REFUSED,			/* the ensemble does not let us delete what
								 * blocks others, and nothing is held */
	ZK_LOSS_TLS,				/* TLS is wanted, and cannot be had: its files
								 * or its settings are no good */
	ZK_LOSS_DEMAND,				/* the servers demand a kind of authentication
								 * that the session does not have */
	ZK_LOSS_IDLE				/* no loss: nothing depended on it for
								 * zklock.idle_timeout, and it was closed */
} ZkClientLoss;
#define ZK_LOSS_LAST ZK_LOSS_IDLE

/* The client at one moment. */
typedef struct ZkClientStatus
{
	ZkClientState state;
	ZkClientLoss loss;
	bool		was_connected;	/* has a session ever been granted? */
	int64_t		session_id;		/* valid if was_connected */
	int			session_timeout_ms; /* granted; valid if was_connected */
	int64_t		suspended_at;	/* protocol_now(); valid if SUSPENDED or
								 * LOST after having been connected */
	int64_t		lost_at;		/* LOST: when it became that; never before
								 * suspended_at */
	int64_t		lost_deadline;	/* CONNECTED or SUSPENDED: when the program
								 * has stood still for too long */
	int64_t		now;			/* protocol_now(), of this moment */
	int			nrefused;		/* deletes and the like that were refused and
								 * are repeated */
	int			nput_off;		/* requests that ZooKeeper has not executed,
								 * and that are asked again */
	int			nconnects;		/* how often it was seen to be connected anew;
								 * the backend's count */
	int			program_pid;	/* of the session's program; 0: it is over */
	char		server[80];		/* address connected to last, or "" */
	char		library[32];	/* version of the ZooKeeper library, or "" */
	char		tls[TLS_TEXT_SIZE]; /* tls_describe(), or "" */
} ZkClientStatus;

/* Outcome of a request: the library's codes, sorted by what to do next. */
typedef enum ZkResult
{
	ZK_OK,
	ZK_NO_NODE,
	ZK_NODE_EXISTS,
	ZK_BAD_VERSION,
	ZK_NO_AUTH,					/* the node's ACL forbids it */
	ZK_UNKNOWN_OUTCOME,			/* connection lost: done, not done, or still
								 * to be done */
	ZK_SESSION_LOST,			/* the session is over */
	ZK_BAD_ARGUMENTS,			/* the server refuses the path */
	ZK_UNIMPLEMENTED,			/* the server is too old */
	ZK_QUOTA_EXCEEDED,			/* a quota of the server's forbids it */
	ZK_NO_MEMORY,				/* malloc() failed: nothing was sent */
	ZK_FAILED,					/* anything else: not done */
	ZK_NOT_EXECUTED,			/* not now: the program has asked again and
								 * again, in vain */
	ZK_LOCAL_SESSION			/* the session may not have ephemeral nodes */
} ZkResult;
#define ZK_RESULT_LAST ZK_LOCAL_SESSION

/* What a request brought.  Strings live as long as the request. */
typedef struct ZkReply
{
	/* as the program says */
	Moment		proof;			/* create, check: the date of the proof that
								 * the session lives, see contact.h */
	int64_t		czxid;			/* create, get: the fencing token */
	int64_t		ephemeral_owner;	/* create, get */
	int64_t		ctime_ms;		/* create, get: server's clock, Unix epoch */
	int64_t		mtime_ms;		/* get: when the data was set last, likewise */
	ZkResult	result;
	int			version;		/* get: how often the data was set */
	int			is_open;		/* get_acl: everybody may change the node, or
								 * create or delete something in it */
	int			nbelow;			/* get: how many children the node has */
	int			nchanges;		/* get: how often one was made or deleted;
								 * may have wrapped around */
	int			nchildren;		/* list, get_acl */

	/* as the backend has it */
	const char *code_text;		/* the library's words for it, for a DETAIL */
	const char *path;			/* create: the node made */
	const char *const *children;	/* list; get_acl: "scheme:id" of each entry
									 * that gives more than to read */
	const char *data;			/* get; not NUL-terminated, NULL if none */
	int			data_length;
} ZkReply;

/* So much of it is sent. */
#define ZK_REPLY_SENT offsetof(ZkReply, code_text)

/* Kinds of nodes that we create. */
typedef enum ZkNodeKind
{
	ZK_PERSISTENT,				/* a parent, or a leased queue node:
								 * everybody's, unless there are credentials of
								 * the user's */
	ZK_PERSISTENT_OWN,			/* its data is its maker's alone, or that of
								 * all clients with these credentials */
	ZK_CONTAINER,				/* the server removes it when it is empty */
	ZK_EPHEMERAL,
	ZK_EPHEMERAL_SEQUENTIAL,
	ZK_ROOT						/* a root, ZK_PERSISTENT, and in the same
								 * transaction its child ZK_ROOT_CHILD.  So it
								 * is never empty, and nobody who may delete
								 * the children of the znode above can delete
								 * it */
} ZkNodeKind;
#define ZK_NODE_LAST ZK_ROOT

/* The name of that child, which is never deleted. */
#define ZK_ROOT_CHILD ".root"

/* Most nodes that are deleted in one transaction. */
#define ZK_REMOVE_MAX 64

/* What has become of the watched node. */
typedef enum ZkWatchNews
{
	ZK_WATCH_QUIET,				/* nothing */
	ZK_WATCH_SET,				/* its data was set; the session has been
								 * connected ever since the watch was asked
								 * for */
	ZK_WATCH_LOOK_AGAIN			/* it went, or the state of the session
								 * changed */
} ZkWatchNews;

#endif							/* ZKLOCK_TERMS_H */
