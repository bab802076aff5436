/*-------------------------------------------------------------------------
 *
 * recipe.h
 *
 * Also declares what recipe_node.c and recipe_name.c have.
 *
 * Values in, verdict out: no socket, no clock, no allocation that outlives a
 * call, no PostgreSQL and no ZooKeeper header.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_RECIPE_H
#define ZKLOCK_RECIPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Longest lock name, in bytes of UTF-8. */
#define RECIPE_NAME_MAX 512

/* Longest root (chroot of the server list included), in bytes. */
#define RECIPE_ROOT_MAX 256

/*
 * Most components of a name, and of a root.  Each is a znode, so a deep name
 * costs the ensemble as much as many flat ones.
 */
#define RECIPE_DEPTH_MAX 16

/* A GUID as text, without the terminating NUL. */
#define RECIPE_GUID_LEN 36

/* Longest name of a queue node that we make, with the terminating NUL. */
#define RECIPE_NODE_SIZE 80

/* Room for any path that we make: root, '/', name, '/', queue node, NUL. */
#define RECIPE_PATH_SIZE \
	(RECIPE_ROOT_MAX + 1 + RECIPE_NAME_MAX + 1 + RECIPE_NODE_SIZE)

/*
 * From this sequence number on a lock is refused.  The server's counter does
 * not wrap at 2^31-1 but sticks there, and contenders with equal numbers have
 * no order (ZOOKEEPER-3249, ZOOKEEPER-4706); the margin covers the requests
 * under way.
 */
#define RECIPE_SEQUENCE_LIMIT 2147483000

/* Most permits of a semaphore. */
#define RECIPE_PERMITS_MAX 10000

typedef enum RecipeMode
{
	RECIPE_EXCLUSIVE,
	RECIPE_SHARED
} RecipeMode;

/* Which client's way of naming a queue node has. */
typedef enum RecipeStyle
{
	RECIPE_STYLE_NONE,			/* not sequenced: not a contender */
	RECIPE_STYLE_ZKLOCK_SHARED, /* _c_<uuid>-shared-lock-S */
	RECIPE_STYLE_ZKLOCK_PERMITS,	/* _c_<uuid>-permits-<N>-lock-S */
	RECIPE_STYLE_CURATOR,		/* _c_<guid>-lock-S: Curator mutex, Go, us */
	RECIPE_STYLE_CURATOR_RW,	/* _c_<uuid>-__READ__S, -__WRIT__S */
	RECIPE_STYLE_KAZOO,			/* <hex>__lock__S, <hex>__rlock__S */
	RECIPE_STYLE_ZK_RECIPE,		/* x-<session>-S: ZooKeeper's own recipes */
	RECIPE_STYLE_HIVE,			/* LOCK-EXCLUSIVE-S, LOCK-SHARED-S, .. */
	RECIPE_STYLE_DOTNET,		/* lock-S, read-S, write-S, semaphore-S */
	RECIPE_STYLE_UNKNOWN		/* sequenced by somebody we do not know */
} RecipeStyle;

/*
 * What the GUID in the name of a node of ours can say besides.  The number is
 * the last digit of the GUID's third group, and part of the format.  The first
 * three are only in names of exclusive nodes of style _CURATOR.
 */
typedef enum RecipeMark
{
	RECIPE_MARK_NONE = 0,
	RECIPE_MARK_HAND_OVER = 1,	/* only its owner can set its data, and does
								 * so to say that it lets go of the lock */
	RECIPE_MARK_HOLD = 2,		/* it is persistent, of zk_hold() */
	RECIPE_MARK_KEEPER = 3,		/* its maker may keep the lock after its
								 * release, and gives it up when somebody
								 * comes */
	RECIPE_MARK_LEASE = 4,		/* it is persistent, and is deleted when its
								 * data has not been set for a term (expiry.h);
								 * the rest of the GUID says whose it is, and
								 * the token */
	RECIPE_MARK_TAKER = 5		/* a session takes a lease for an owner: the
								 * rest says whose it will be */
} RecipeMark;
#define RECIPE_MARK_LAST RECIPE_MARK_TAKER

/* What the name of one child of a lock's znode says. */
typedef struct RecipeNode
{
	RecipeStyle style;
	RecipeMode	mode;			/* RECIPE_SHARED only if known to be shared */
	int			permits;		/* how many contenders may hold the lock, as
								 * this one says; 1 save for ..._PERMITS */
	int32_t		sequence;		/* valid unless style is NONE */
} RecipeNode;

/* Why a lock name is refused. */
typedef enum RecipeNameError
{
	RECIPE_NAME_OK,
	RECIPE_NAME_EMPTY,			/* the whole name is empty */
	RECIPE_NAME_LIST,			/* it is a list, as a driver writes one */
	RECIPE_NAME_TOO_LONG,
	RECIPE_NAME_TOO_DEEP,
	RECIPE_NAME_EMPTY_COMPONENT,	/* leading, trailing or double slash */
	RECIPE_NAME_DOTS,			/* a component is "." or ".." */
	RECIPE_NAME_ENCODING,		/* not valid UTF-8 */
	RECIPE_NAME_CHARACTER,		/* one that no znode's name can have */
	RECIPE_NAME_LIKE_QUEUE_NODE /* a component, not the first, is called as a
								 * client calls its contenders */
} RecipeNameError;

/* What a contender wants. */
typedef struct RecipeWish
{
	const char *mine;			/* name of its queue node; NULL: it has none
								 * yet, and would stand behind all others */
	RecipeMode	mode;
	int			permits;		/* 1: a plain lock; more: a semaphore */
} RecipeWish;

/*
 * The contenders ahead of one in the queue, as far as it matters to whether
 * that one holds the lock; all zeros: nobody is.
 */
typedef struct RecipeAhead
{
	int			count;
	int			nexclusive;		/* of them in exclusive mode */
	bool		is_mixed;		/* they do not agree in their permits */
	int			permits;		/* of the one that was added first */
} RecipeAhead;

/* Where a contender stands. */
typedef enum RecipeVerdict
{
	RECIPE_HELD,				/* nobody ahead: the lock is ours */
	RECIPE_WAIT,				/* watch child *watch, then look again */
	RECIPE_GONE,				/* our own node is not in the list */
	RECIPE_EXHAUSTED,			/* sequence numbers cannot order this queue */
	RECIPE_MISMATCH				/* the first one, child *watch, has another
								 * number of permits */
} RecipeVerdict;

/*
 * Check a lock name.  Result: RECIPE_NAME_OK, or the first reason against it.
 * For reasons about a component or a character *offset is the byte at which
 * that starts.  RECIPE_NAME_LIST and _TOO_LONG need no UTF-8, and come first.
 */
extern RecipeNameError recipe_check_name(const char *name, size_t *offset);

/*
 * Is this a root ("/", "/zklock", "/a/b")?  It is absolute, has no trailing
 * slash, its components are as in a lock name, and it is not below
 * ZooKeeper's own "/zookeeper".
 */
extern bool recipe_is_root(const char *root);

/*
 * Write the path of the lock's znode, <root>/<name>, into path (at least
 * RECIPE_PATH_SIZE bytes); root and name have been checked, root "/" and ""
 * are the same.  false, with path set to "", if it does not fit and leave
 * room for a queue node behind it.
 */
extern bool recipe_lock_path(char *path, const char *root, const char *name);

/*
 * Write what a queue node of ours is called before the server appends the
 * sequence number.
 *
 * style: the client that is to wait for it, RECIPE_STYLE_CURATOR ("-lock-",
 * "-shared-lock-" behind "_c_<guid>"), _CURATOR_RW ("-__WRIT__", "-__READ__")
 * or _KAZOO ("-pg__lock__", "-shared__lock__").  Clients that know no readers
 * take a shared node for an exclusive one, which costs them time, never
 * safety.  More than one permit: "-permits-<permits>-lock-", whatever the
 * style.
 */
extern void recipe_node_prefix(char prefix[RECIPE_NODE_SIZE], RecipeStyle style,
							   RecipeMode mode, int permits, const char *guid);

/*
 * Does a contender of the style `theirs`, behind an exclusive node that we
 * have made in the style `ours`, wait for it?
 */
extern bool recipe_waits_for(RecipeStyle theirs, RecipeStyle ours);

/* Format 16 random bytes as a version 4 UUID, 36 characters and a NUL. */
extern void recipe_format_guid(char guid[RECIPE_GUID_LEN + 1],
							   const uint8_t random[16]);

/* Give such a GUID a mark: then the name of the node says it. */
extern void recipe_mark(char guid[RECIPE_GUID_LEN + 1], RecipeMark mark);

/*
 * A hash of the owner of a lease, who is a text.  It is part of the format: the
 * same on each machine.
 */
extern uint32_t recipe_hash_owner(const char *owner);

/* Mark a GUID as that of a node whose session takes a lease for that owner. */
extern void recipe_mark_taker(char guid[RECIPE_GUID_LEN + 1], uint32_t owner);

/* The marked GUID of the lease with that token, the same each time. */
extern void recipe_lease_guid(char guid[RECIPE_GUID_LEN + 1], uint32_t owner,
							  int64_t token);

/* The mark of a child of a lock's znode, RECIPE_MARK_NONE for most. */
extern RecipeMark recipe_read_mark(const char *child);

/* Of a lease, or of one that takes one: the hash of its owner. */
extern uint32_t recipe_read_owner(const char *child);

/* The token of a lease; 0 if there can be none such, as in a forged name. */
extern int64_t recipe_read_token(const char *child);

/* Is it a node of ours that does not go with its session? */
extern bool recipe_is_lasting(const char *child);

/*
 * Find the sequence number at the end of a name of `length` bytes, behind
 * which comes a slash or a NUL.  false if there is none: the name is not a
 * contender's.  Otherwise *prefix_length is how much stands before the number,
 * of which a minus sign is part.
 */
extern bool recipe_split_node(const char *child, size_t length,
							  size_t *prefix_length, int32_t *sequence);

/* Read the name of one child.  Never fails: a stranger is STYLE_NONE. */
extern RecipeNode recipe_parse_node(const char *child);

/*
 * Is this child, by its name, either a contender or the znode of a lock below?
 * Only the znode itself tells (nested.h).
 */
extern bool recipe_may_be_name(const char *child);

/*
 * Does the component, `length` bytes, end in a number behind a mark of some
 * client's?  Then no lock below another one may be called so.
 */
extern bool recipe_has_client_mark(const char *component, size_t length);

/* The word for a style, as zk_lock_queue() shows it. */
extern const char *recipe_style_name(RecipeStyle style);

/*
 * Order two children: by sequence number, then by name so that the order is
 * total; children that are not contenders come last.  For a qsort() callback
 * to call.
 */
extern int	recipe_compare_nodes(const char *a, const char *b);

/*
 * Where does such a contender stand among the children of the lock?
 *
 * A plain lock: for RECIPE_WAIT *watch is the index of the nearest contender
 * ahead that excludes us: for an exclusive contender any, for a shared one the
 * nearest that is not known to be shared.
 *
 * A semaphore is held by its first wish->permits contenders.  RECIPE_WAIT with
 * *watch set: the contender just ahead waits, too.  Watch its node until it
 * says that it was granted, or goes.  RECIPE_WAIT with *watch -1: we are the
 * first that waits, and any holder may leave first.  Watch the whole queue.
 *
 * RECIPE_MISMATCH: the first contender of the queue names another number of
 * permits.  So the contender that came with another number gets an error.
 * Those behind it wait for it (RECIPE_WAIT, *watch is the one just ahead)
 * until it is gone.  For all other verdicts *watch is -1.
 */
extern RecipeVerdict recipe_verdict(const char *const *children, int nchildren,
									const RecipeWish *wish, int *watch);

/* One more is ahead. */
extern void recipe_add_ahead(RecipeAhead *ahead, const RecipeNode *node);

/*
 * Does a contender of that mode and number of permits hold the lock, with those
 * ahead?  It does if nobody is; a shared one behind shared ones; and as one of
 * the first `permits` of a semaphore, if all agree on their number.
 */
extern bool recipe_holds(RecipeMode mode, int permits,
						 const RecipeAhead *ahead);

/*
 * Is this contender the first of the list, and the only one with its number?
 * Stops at the first contender that speaks against it.
 */
extern bool recipe_is_first(const char *const *children, int nchildren,
							const char *child);

#endif							/* ZKLOCK_RECIPE_H */
