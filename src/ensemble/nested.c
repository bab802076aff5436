/*-------------------------------------------------------------------------
 *
 * nested.c
 *	  Tells contenders from znodes of locks below, which look alike.
 *
 * The znode of the lock 'orders/1000000000' is a child of that of 'orders'.
 * Its name ends in ten digits, as the server ends the name of every sequential
 * node, and seed recipes have nothing but that number.  The name does not tell
 * which of both it is.  So zklock says so in the data of the znodes that it
 * makes on the way to a lock, if their names look like that.  A child is the
 * znode of a lock if it belongs to no session, has those data, and its name
 * bears no mark of some client's: Hive, and zklock's holds and leases, have
 * contenders that belong to no session.  Everything else is a contender.
 *
 * The server does not tell a container from a persistent znode (its Stat has
 * ephemeralOwner 0 for both, and for one with a TTL), so the znode that another
 * client has made for a lock below is a contender, too.
 *
 * The one rule: closed when in doubt.  What cannot be read is a contender.  See
 * docs/decisions/0014-names-of-ids.md.
 *
 *-------------------------------------------------------------------------
 */
#include "nested.h"

#include "miscadmin.h"

#include "nodedata.h"
#include "recipe.h"

/*
 * Most names that are known of a contender: each child is looked for among
 * them.  Those beyond are read with each list.
 */
#define KNOWN_MAX 256

static ZkOutcome sort_doubtful(ZkRoundTrip *trip, const char *lock_path,
							   const char *const *doubtful, int ndoubtful,
							   List **known, ZkChildren *children);
static bool is_in(List **known, const char *child);

ZkOutcome
zklock_nested_leave_out(ZkRoundTrip *trip, const char *lock_path,
						const ZkReply *list, ZkNestedBound bound,
						List **known, ZkChildren *children)
{
	const char *doubtful[ZK_READS_AT_ONCE];
	int			ndoubtful = 0;
	int			nplain = 0;
	ZkOutcome	outcome = ZK_ANSWERED;

	*children = (ZkChildren) {.names = list->children,.count = list->nchildren};
	while (nplain < list->nchildren && !recipe_may_be_name(list->children[nplain]))
		nplain++;
	if (nplain == list->nchildren)
		return ZK_ANSWERED;

	children->copy = palloc_extended(list->nchildren * sizeof(char *),
									 MCXT_ALLOC_HUGE);
	children->names = children->copy;
	children->count = nplain;
	memcpy(children->copy, list->children, nplain * sizeof(char *));
	for (int i = nplain; i < list->nchildren && outcome == ZK_ANSWERED; i++)
	{
		const char *child = list->children[i];

		if (!recipe_may_be_name(child))
			children->copy[children->count++] = child;
		else if (bound.most > 0 &&
				 recipe_parse_node(child).sequence <= bound.last_sequence &&
				 !is_in(known, child))
		{
			doubtful[ndoubtful++] = child;
			bound.most--;
		}
		if (ndoubtful < ZK_READS_AT_ONCE)
			continue;
		outcome = sort_doubtful(trip, lock_path, doubtful, ndoubtful, known,
								children);
		ndoubtful = 0;
	}
	if (outcome == ZK_ANSWERED)
		outcome = sort_doubtful(trip, lock_path, doubtful, ndoubtful, known,
								children);
	if (outcome != ZK_ANSWERED)
		zklock_nested_free(children);
	return outcome;
}

ZkNestedBound
zklock_nested_bound(const char *mine)
{
	ZkNestedBound bound = zklock_nested_all();

	if (mine != NULL)
		bound.last_sequence = recipe_parse_node(mine).sequence;
	else
	{
		/* if the numbers are used up, its own will show that */
		bound.last_sequence = RECIPE_SEQUENCE_LIMIT - 1;
		bound.most = ZK_READS_AT_ONCE;
	}
	return bound;
}

ZkNestedBound
zklock_nested_all(void)
{
	ZkNestedBound bound = {.last_sequence = PG_INT64_MAX, .most = INT_MAX};

	return bound;
}

void
zklock_nested_free(ZkChildren *children)
{
	if (children->copy != NULL)
		pfree(children->copy);
	children->copy = NULL;
	list_free(children->locks);
	children->locks = NIL;
}

bool
zklock_nested_is_lock(const char *child, const ZkReply *reply)
{
	ZkNodeData	who;

	if (reply->result != ZK_OK || reply->ephemeral_owner != 0 ||
		!recipe_may_be_name(child))
		return false;
	zklock_nodedata_parse(reply->data, reply->data_length, &who);
	return who.is_name;
}

/* Read these children, and add them to the contenders or to the locks. */
static ZkOutcome
sort_doubtful(ZkRoundTrip *trip, const char *lock_path, const char *const *doubtful,
			  int ndoubtful, List **known, ZkChildren *children)
{
	char	   *paths[ZK_READS_AT_ONCE];
	const ZkReply *replies[ZK_READS_AT_ONCE];
	ZkOutcome	outcome;

	for (int i = 0; i < ndoubtful; i++)
		paths[i] = psprintf("%s/%s", strcmp(lock_path, "/") == 0 ? "" : lock_path,
							doubtful[i]);
	outcome = zklock_roundtrip_read_all(trip, ZK_GET, paths, ndoubtful, replies);
	for (int i = 0; i < ndoubtful && outcome == ZK_ANSWERED; i++)
	{
		pfree(paths[i]);
		if (replies[i]->result != ZK_NO_NODE &&
			!zklock_nested_is_lock(doubtful[i], replies[i]))
		{
			children->copy[children->count++] = doubtful[i];
			continue;
		}
		children->locks = lappend(children->locks,
								  unconstify(char *, doubtful[i]));
		if (known != NULL && list_length(*known) < KNOWN_MAX)
			*known = lappend(*known, pstrdup(doubtful[i]));
	}
	if (outcome == ZK_ANSWERED)
		zklock_roundtrip_end_reads(trip, ndoubtful);
	return outcome;
}

static bool
is_in(List **known, const char *child)
{
	if (known == NULL)
		return false;
	foreach_ptr(const char, name, *known)
		if (strcmp(name, child) == 0)
			return true;
	return false;
}
