/*-------------------------------------------------------------------------
 *
 * client.h
 *	  One ZooKeeper session of this process: open, requests, watch, close.
 *
 * ZooKeeper's side of zklock.  No type of the ZooKeeper library and none of
 * PostgreSQL stands here.  Every function is for the process's main thread,
 * returns without waiting for the network (save for the bounded wait that
 * zklock_client_close() is asked for) and never raises: it blocks all signals
 * while it is inside the library, because a signal handler may end the
 * process (background workers) and would find the library's locks taken.
 *
 * A request is followed by polling its reply: whenever something has
 * happened, zklock_client_wake_fd() becomes readable.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CLIENT_H
#define ZKLOCK_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "servers.h"

typedef struct ZkClient ZkClient;
typedef struct ZkRequest ZkRequest;

/* States of a session; only move_to() in client.c changes them. */
typedef enum ZkClientState
{
	ZK_CLIENT_STARTING,			/* looking up names: not ready for requests */
	ZK_CLIENT_CONNECTING,		/* no server has granted a session yet */
	ZK_CLIENT_CONNECTED,		/* a server answers for the session */
	ZK_CLIENT_SUSPENDED,		/* connection lost, the session may live */
	ZK_CLIENT_LOST				/* over for good, its nodes are or will be gone */
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
	ZK_LOSS_RESOURCES			/* no thread, descriptor or memory */
} ZkClientLoss;

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
	ZK_BAD_ARGUMENTS,			/* the server does not like the path */
	ZK_UNIMPLEMENTED,			/* the server is too old */
	ZK_NO_MEMORY,				/* malloc() failed: nothing was sent */
	ZK_FAILED					/* anything else: not done */
} ZkResult;

/* Kinds of nodes that we create. */
typedef enum ZkNodeKind
{
	ZK_PERSISTENT,				/* a parent: with an identity of the session's
								 * own it is everybody's */
	ZK_PERSISTENT_OWN,			/* its data is its maker's alone */
	ZK_CONTAINER,				/* the server removes it when it is empty */
	ZK_EPHEMERAL,
	ZK_EPHEMERAL_SEQUENTIAL
} ZkNodeKind;

/* What identifies a session to the ensemble. */
typedef struct ZkClientTicket
{
	int64_t		session_id;
	char		password[16];
} ZkClientTicket;

typedef struct ZkClientOptions
{
	const ServerList *servers;
	int			session_timeout_ms; /* asked for; the server clamps it */
	unsigned	first_server;	/* begin with this one of the addresses, taken
								 * modulo their number */
	const char *auth_scheme;	/* NULL for none */
	const char *auth_credentials;	/* with auth_scheme */
	bool		is_auth_private;	/* they are this session's alone, to guard its
									 * queue nodes and nothing else */
	const ZkClientTicket *take_over;	/* session to take over, NULL for a new
										 * one */
} ZkClientOptions;

/* The client at one moment. */
typedef struct ZkClientStatus
{
	ZkClientState state;
	ZkClientLoss loss;
	bool		was_connected;	/* has a session ever been granted? */
	int64_t		session_id;		/* valid if was_connected */
	int			session_timeout_ms; /* granted; valid if was_connected */
	int64_t		suspended_at;	/* zklock_client_now(); valid if SUSPENDED or
								 * LOST after having been connected */
	int64_t		lost_deadline;	/* SUSPENDED: when it becomes LOST by clock */
	int			npending;		/* requests without an answer */
	int			nwithdrawn;		/* withdrawn ones that are not undone yet */
	int			naddresses;		/* servers to choose from; 0: not known yet */
	char		server[80];		/* address connected to last, or "" */
} ZkClientStatus;

/* What a request brought.  Strings live as long as the request. */
typedef struct ZkReply
{
	ZkResult	result;
	int			code;			/* the library's own code, for a DETAIL */
	int64_t		sent_at;		/* zklock_client_now() at the last attempt */
	const char *path;			/* create: the node made */
	int64_t		czxid;			/* create, get: the fencing token */
	int64_t		ephemeral_owner;	/* create, get */
	int64_t		ctime_ms;		/* create, get: server's clock, Unix epoch */
	int64_t		mzxid;			/* get: of the last change of the data */
	int64_t		mtime_ms;		/* get: when that was */
	int			version;		/* get: how often the data was set */
	const char *const *children;	/* list */
	int			nchildren;
	const char *data;			/* get; not NUL-terminated, NULL if none */
	int			data_length;
} ZkReply;

/* What has become of the watched node. */
typedef enum ZkWatchNews
{
	ZK_WATCH_QUIET,				/* nothing */
	ZK_WATCH_SET,				/* its data was set; the session has been
								 * connected ever since the watch was asked for */
	ZK_WATCH_LOOK_AGAIN			/* it went, or the state of the session changed */
} ZkWatchNews;

/* Longest data of a znode that is listened for; what is beyond is cut. */
#define ZK_HEARD_SIZE 4096

/* What has been heard of a znode that is listened for. */
typedef struct ZkHeard
{
	bool		is_present;		/* it is there, as far as is known */
	int64_t		mzxid;			/* this and the rest: valid if it is */
	int64_t		mtime_ms;		/* server's clock, Unix epoch */
	int64_t		signalled_at;	/* zklock_client_now() when the main thread
								 * got a signal for it; 0: it did not */
	int			data_length;
	char		data[ZK_HEARD_SIZE];
} ZkHeard;

/* Milliseconds of a clock that goes on while the machine is suspended. */
extern int64_t zklock_client_now(void);

/* The descriptor that becomes readable when there is news; -1 if none is left. */
extern int	zklock_client_wake_fd(void);

/* Make the descriptor unreadable again; call it before looking for news. */
extern void zklock_client_drain_wake_fd(void);

/*
 * Start a session.  Never NULL save without memory; every other failure shows
 * as ZK_CLIENT_LOST with its reason.  Requests may follow as soon as the
 * state is no longer STARTING: they go out behind the handshake.
 */
extern ZkClient *zklock_client_open(const ZkClientOptions *options);

/*
 * Look at the session, and move it on where that is the main thread's part: a
 * finished look-up leads to connecting, silence past the deadline to LOST.
 */
extern void zklock_client_status(ZkClient *client, ZkClientStatus *status);

/*
 * Is it news when no request is outstanding any more?  Otherwise the answer to
 * a delete that nobody waits for wakes nobody either.
 */
extern void zklock_client_report_silence(ZkClient *client, bool is_wanted);

/* The session's ticket; false if it was never granted. */
extern bool zklock_client_ticket(ZkClient *client, ZkClientTicket *ticket);

/*
 * Send the main thread this signal when the session becomes LOST, at the
 * latest when its clock runs out, even if the thread is busy elsewhere; 0 stops
 * that.  From then on a session that its clock has ended is not taken back.
 * false if the system has no timer left.
 */
extern bool zklock_client_signal_loss(ZkClient *client, int signal);

/* Copy the library's or our own last error text, one line, "" if none. */
extern void zklock_client_last_error(ZkClient *client, char *text, size_t size);

/*
 * Close the session, which removes its nodes, and free the client with all its
 * requests.  Takes at most about wait_ms; what is not done by then goes on in a
 * thread of its own (the library may block for seconds on a silent server).
 */
extern void zklock_client_close(ZkClient *client, int wait_ms);

/*
 * Requests.  NULL only without memory.  The caller ends each with
 * zklock_client_free() or zklock_client_withdraw(), at any time.  Answers come
 * in the order of the requests.  That of the create of a sequential node does
 * not wake anybody: it is there when the list behind it is answered.
 */
extern ZkRequest *zklock_client_create(ZkClient *client, const char *path,
									   ZkNodeKind kind,
									   const char *data, int length);
extern ZkRequest *zklock_client_list(ZkClient *client, const char *path);
extern ZkRequest *zklock_client_get(ZkClient *client, const char *path);

/* Wait until our server has caught up with the leader. */
extern ZkRequest *zklock_client_sync(ZkClient *client, const char *path);

/* Prove through the quorum that the node exists (a single-op transaction). */
extern ZkRequest *zklock_client_check(ZkClient *client, const char *path);

/*
 * zklock_client_get() that also watches the node, as the client's one watch.
 * zklock_client_watch_news() then tells what has happened since.
 */
extern ZkRequest *zklock_client_get_and_watch(ZkClient *client,
											  const char *path);
extern ZkWatchNews zklock_client_watch_news(ZkClient *client);

/* zklock_client_list() that also watches for a change of the list, likewise. */
extern ZkRequest *zklock_client_list_and_watch(ZkClient *client,
											   const char *path);

/*
 * Set the data of a node of ours, without anybody waiting: sent at once, and
 * again after every reconnect until the server confirms it, the node is gone or
 * the session is over.  Who watches the node is woken.  false, and nothing is sent,
 * without memory.
 */
extern bool zklock_client_announce(ZkClient *client, const char *path,
								   const char *data, int length);

/*
 * Replace the ephemeral node `from` by the ephemeral node `to`, until it is
 * done: `from` is deleted only once `to` surely exists.  ZK_NO_NODE if `from`
 * was gone before `to` was there; then there is no `to` either.
 */
extern ZkRequest *zklock_client_replace(ZkClient *client, const char *from,
										const char *to,
										const char *data, int length);

/*
 * Delete a node, whoever made it, or set its data, in one attempt whose outcome
 * the caller wants to know; for zklock_client_delete() see below.  With a version
 * other than ZK_ANY_VERSION: ZK_BAD_VERSION unless the data has been set just
 * that often.
 */
#define ZK_ANY_VERSION (-1)
extern ZkRequest *zklock_client_remove(ZkClient *client, const char *path,
									   int version);
extern ZkRequest *zklock_client_set(ZkClient *client, const char *path,
									const char *data, int length, int version);

/* The reply, or NULL as long as there is none. */
extern const ZkReply *zklock_client_reply(ZkRequest *request);

/* Done with a request; an outstanding reply will be ignored.  NULL is fine. */
extern void zklock_client_free(ZkRequest *request);

/*
 * Undo a create of an ephemeral node: whether its reply is here, still to come
 * or lost, the node will be removed.  Of a replace the new node is removed at
 * once; the old one is the caller's.  Frees the request.
 */
extern void zklock_client_withdraw(ZkRequest *request);

/*
 * Delete a node of ours, without anybody waiting: sent at once, and again
 * after every reconnect until the server confirms it or the session is over.
 * false, with nothing sent, only without memory.
 */
extern bool zklock_client_delete(ZkClient *client, const char *path);

/*
 * Delete a node that is not ours, once: whatever the answer, it is not asked for
 * again.  The server refuses, with ZK_FAILED, as long as there are children.
 */
extern ZkRequest *zklock_client_prune(ZkClient *client, const char *path);

/*
 * Between these two, signals stay blocked, which makes many requests in a row
 * cheaper.  Nothing may raise in between.
 */
extern void zklock_client_begin_many(void);
extern void zklock_client_end_many(void);

/*
 * Set the data of a node of ours to nothing, once, and then delete it as
 * zklock_client_delete() does: who watches it learns that it was its owner who
 * let go.  If the set is lost or refused, that is all that is lost.
 */
extern bool zklock_client_hand_over(ZkClient *client, const char *path);

/*
 * Send a cheap request whose answer nobody needs.  A server 3.6.0 to 3.8.0 may
 * forget to answer until something else happens (ZOOKEEPER-4537).
 */
extern void zklock_client_nudge(ZkClient *client);

/*
 * Listen for a znode that is not ours and need not exist: the request, once
 * answered, goes on to follow what becomes of the znode until it is freed,
 * across reconnects too, with one watch on the server and one request for each
 * change.  It is unanswered while that request is under way.  Unless signal is
 * 0, the main thread is sent it when the znode appears or its data is set; but
 * not if known is the mzxid of that.
 */
extern ZkRequest *zklock_client_listen(ZkClient *client, const char *path,
									   int signal, int64_t known);

/* What has been heard last; false, with *heard not set, if nothing yet. */
extern bool zklock_client_heard(ZkRequest *listening, ZkHeard *heard);

/*
 * Send none of these signals for the time being; those that were missed come
 * when they are no longer deferred.
 */
extern void zklock_client_defer_signals(ZkClient *client, bool is_deferred);

/*
 * Delete a znode that is not ours if there is one, without anybody waiting; one
 * read if there is none.
 */
extern void zklock_client_sweep(ZkClient *client, const char *path);

/* The version of the client library, as text. */
extern const char *zklock_client_library_version(void);

/* The library's text for ZkReply.code. */
extern const char *zklock_client_code_text(int code);

#endif							/* ZKLOCK_CLIENT_H */
