/*-------------------------------------------------------------------------
 *
 * client_request.h
 *	  What a backend can ask of the ensemble.
 *
 * A caller polls for the reply to its request: zklock_client_poll() takes in
 * what has come, and zklock_client_reply() tells.  zklock_client_fd() is readable
 * when something has happened, until zklock_client_receive() is called.
 * Requests that are awaited are sent by zklock_client_flush(), or with the
 * next one that nobody waits for.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CLIENT_REQUEST_H
#define ZKLOCK_CLIENT_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "contact.h"
#include "keep_state.h"
#include "terms.h"

typedef struct ZkClient ZkClient;
typedef struct ZkRequest ZkRequest;

/*
 * Requests.  NULL only without memory.  The caller ends each with
 * zklock_client_free() or zklock_client_withdraw(), at any time.  Replies come
 * in the order of the requests.  The reply to the create of a sequential node
 * wakes nobody: it is there when the list that was sent behind it is answered.
 *
 * An ephemeral sequential node is a place in a queue.  If somebody else
 * deletes it when it has been there for more than a moment, the reply becomes
 * ZK_NO_NODE, without its strings, and the program interrupts us
 * (zklock_client_interrupt_on_loss()), until the request is ended.
 */
extern ZkRequest *zklock_client_create(ZkClient *client, const char *path,
									   ZkNodeKind kind,
									   const char *data);

/*
 * Prove through the quorum that the node exists (a single-op transaction),
 * and, unless czxid is 0, that it is the one with that czxid: ZK_NO_NODE if
 * somebody has deleted it and made another.  Whatever the answer, what is
 * read behind it is not older.
 */
extern ZkRequest *zklock_client_check(ZkClient *client, const char *path,
									  int64_t czxid);

/* What changes nothing, and may be asked as often as one likes. */
typedef enum ZkRead
{
	ZK_GET,						/* the data of a node */
	ZK_GET_AND_WATCH,			/* and watch it, as the client's one watch */
	ZK_LIST,					/* its children */
	ZK_LIST_AND_WATCH,			/* and watch for a change of them, likewise */
	ZK_GET_ACL,					/* who may do what with it: reply's is_open */
	ZK_CHECK					/* zklock_client_check() of any node there */
} ZkRead;
extern ZkRequest *zklock_client_read(ZkClient *client, ZkRead read,
									 const char *path);

/* What has happened to the watched node since it was read. */
extern ZkWatchNews zklock_client_watch_news(const ZkClient *client);

/*
 * End the watch: nobody waits for its news any more.  It goes with the next
 * request that is sent.  A NULL client is fine.
 */
extern void zklock_client_unwatch(ZkClient *client);

/*
 * Set the data of a node of ours, without waiting for the reply: sent at once,
 * and again after each reconnect until the server confirms it, the node is
 * gone or the session is over.  That wakes the client that watches the node.
 * false, and nothing is sent, without memory.
 */
extern bool zklock_client_announce(ZkClient *client, const char *path,
								   const char *data);

/*
 * Delete one node, create another that outlives the session, and maybe set a
 * third one: all or nothing, for it is one transaction.  Not repeated: after
 * ZK_UNKNOWN_OUTCOME it may be asked again, and if it was done that fails with
 * ZK_NO_NODE.  ZK_NO_NODE too if the first or the third node was not there.
 * The reply has the czxid of the node that was made if a third one was set, and
 * does not describe it besides.
 */
typedef struct ZkMove
{
	const char *from;			/* the node that goes */
	const char *to;				/* the one that is made, and what it is */
	const char *data;
	ZkNodeKind	kind;
	const char *set;			/* the one that is set; NULL: none */
	const char *set_data;		/* valid with that */
} ZkMove;
extern ZkRequest *zklock_client_move(ZkClient *client, const ZkMove *move);

/*
 * Delete a node of any client, or set its data, in one attempt whose outcome
 * the caller may want to know; for zklock_client_delete() see below.  A node
 * with children is refused, with ZK_FAILED.  With a version other than
 * ZK_ANY_VERSION: ZK_BAD_VERSION unless the data has been set just that often.
 */
#define ZK_ANY_VERSION (-1)
extern ZkRequest *zklock_client_remove(ZkClient *client, const char *path,
									   int version);
extern ZkRequest *zklock_client_set(ZkClient *client, const char *path,
									const char *data, int version);

/*
 * Delete nodes, all or none, if the data of the guard, another node, has been
 * set just that often; and set it once more, in the same transaction.  So of
 * two sessions that have read the same version only one deletes anything, and an
 * attempt that comes late deletes nothing.  At most ZK_REMOVE_MAX nodes, each
 * of which must have node_version, unless that is ZK_ANY_VERSION.
 */
extern ZkRequest *zklock_client_remove_guarded(ZkClient *client,
											   const char *guard, int version,
											   const char *const *paths,
											   int npaths, int node_version);

/*
 * Create a node that outlives the session, if the data of the guard has been
 * set just that often.  The guard is not set.  Of nodes that nobody deletes
 * but by zklock_client_remove_guarded() an attempt that comes late makes none:
 * the node is there, or the guard was set when it was deleted.  ZK_NODE_EXISTS
 * comes ahead of ZK_BAD_VERSION.  The reply does not describe the node.
 */
extern ZkRequest *zklock_client_create_guarded(ZkClient *client,
											   const char *path,
											   const char *guard, int version,
											   const char *data);

/* The reply, or NULL if there was none at the last look. */
extern const ZkReply *zklock_client_reply(const ZkRequest *request);

/*
 * Done with a request; an outstanding reply will be ignored.  NULL is fine.
 */
extern void zklock_client_free(ZkRequest *request);

/*
 * Undo a create of an ephemeral node: whether its reply is here, still to
 * come or lost, the node will be removed.  Frees the request.
 */
extern void zklock_client_withdraw(ZkRequest *request);

/*
 * Delete a node of ours, without anybody waiting: sent at once, and again
 * after every reconnect until the server confirms it or the session is over.
 * With a version other than ZK_ANY_VERSION, not if its data has been set more or
 * less often than that.  false, with nothing sent, only without memory.
 */
extern bool zklock_client_delete(ZkClient *client, const char *path,
								 int version);

/*
 * Delete likewise the queue node that we stand on: if it was deleted by somebody
 * else, zklock_client_take_gone() tells of it later.  name and token are those
 * of the lock.  is_awaited: it counts as withdrawn until it is over
 * (zklock_client_is_undone()).
 */
extern bool zklock_client_leave(ZkClient *client, const char *path,
								const char *name, int64_t token,
								bool is_awaited);

/*
 * Take a node that was left, and had been deleted by somebody else before; to be
 * freed.  NULL: none is known any more.  Its reply is here, with the path, the
 * lock's name as the only child, and its token as czxid.
 */
extern ZkRequest *zklock_client_take_gone(ZkClient *client);

/*
 * Between these two, nothing is sent, so that many requests go out together.
 * Nothing may raise in between.  A NULL client is fine.
 */
extern void zklock_client_begin_many(ZkClient *client);
extern void zklock_client_end_many(ZkClient *client);

/*
 * The locks that this session keeps, or may keep: KEEP_SLOTS of them, in the
 * page that is shared with its program.  NULL if there is no session.
 */
extern KeptLock *zklock_client_kept(ZkClient *client);

/*
 * The program has set a state there that is not legal: the session is lost, as
 * by an invalid message.
 */
extern void zklock_client_refuse_page(ZkClient *client);

/*
 * Tell the program that one of them is held now and may be kept, of which
 * generation it is, and the path and the data, a JSON object, of its queue
 * node.  If another contender comes into the queue while the lock is held, it
 * will not be kept, and the data of the node says so.  If one comes while the
 * lock is kept, or its time is over, the program deletes the node.
 */
extern void zklock_client_tell_kept(ZkClient *client, int slot,
									uint32_t generation, const char *node,
									const char *data);

#endif							/* ZKLOCK_CLIENT_REQUEST_H */
