/*-------------------------------------------------------------------------
 *
 * check_session.c
 *	  Facts that only a session can tell.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "args.h"
#include "check_private.h"
#include "expiry.h"
#include "lock.h"
#include "lock_proof.h"
#include "name.h"
#include "nested.h"
#include "nodedata.h"
#include "parents.h"
#include "recipe.h"
#include "roundtrip.h"
#include "sample.h"
#include "session.h"
#include "text.h"

/* Below how many znodes in the root it is looked for unused ones, too. */
#define UNUSED_PARENTS 4

/* How far asking has got. */
typedef enum AskEnd
{
	ASKED_ALL,					/* everything so far was answered */
	ASKED_LATE,					/* the deadline came first, or the session on
								 * which locks hang was lost */
	ASKED_SESSION_LOST			/* again, with a new session */
} AskEnd;

/* The questions, under way. */
typedef struct Questions
{
	Check	   *check;
	AskEnd		end;
	ZkRequest  *making;			/* a create to be withdrawn; NULL: none is */
} Questions;

static bool ask_all(ZkRoundTrip *trip, void *argument);
static AskEnd end_of(const ZkReply *reply);
static AskEnd put_node(ZkRoundTrip *trip, Check *check, const char *item,
					   const char *path, bool *is_there);
static AskEnd put_root(ZkRoundTrip *trip, Questions *questions,
					   const char *root);
static AskEnd try_to_make(ZkRoundTrip *trip, Questions *questions,
						  const char *parent);
static AskEnd try_container(ZkRoundTrip *trip, const Check *check,
							const char *parent, const char *path);
static void put_siblings(ZkRoundTrip *trip, const Check *check,
						 const char *root);
static void put_unused(ZkRoundTrip *trip, const Check *check, const char *root);
static int	find_unused(ZkRoundTrip *trip, const Check *check,
						const char *parent, List **unused, List **used);
static void put_leases(ZkRoundTrip *trip, const Check *check, const char *root);
static void put_first_lease(ZkSample *sample, const Check *check,
							const char *path, const char *name);
static void put_reply(const Check *check, const char *item,
					  const char *path, const ZkReply *reply);
static const char *fact_of(const ZkReply *reply);
static void put_clock(const Check *check, TimestampTz theirs,
					  TimestampTz before, TimestampTz after);
static void withdraw_tried(void *argument);

bool
check_put_trouble(const Check *check)
{
	const ZkClientStatus *status;
	ZkLoss		loss;

	zklock_session_read();
	zklock_attend_locks();
	status = zklock_session_status();
	if (zklock_describe_loss(&loss))
		check_put_fact(check, "session", "lost", 0, loss.hint,
					   psprintf("%s: %s", loss.message, loss.detail), 0);
	else if (zklock_has_locks() && status != NULL &&
			 status->state == ZK_CLIENT_SUSPENDED)
		check_put_fact(check, "session", "suspended", 0, NULL, NULL, 0);
	else
		return false;
	return true;
}

void
check_ask_session(Check *check)
{
	Questions	questions = {.check = check};
	bool		was_there = zklock_session_number() != 0;
	int64		start = protocol_now();
	const ZkClientStatus *status;

	if (!was_there && !check->may_serve)
	{
		check_put_fact(check, "session", "not tried", 0, NULL, NULL, 0);
		return;
	}
	zklock_roundtrip_run(ask_all, withdraw_tried, &questions);
	status = zklock_session_status();
	if (questions.end == ASKED_LATE)
	{
		if (check_put_trouble(check))
			return;
		check_put_fact(check, "session", zklock_session_id() != 0 ?
					   "late" : "not granted", 0, NULL, NULL, 0);
		if (!was_there && zklock_session_id() == 0)
			zklock_session_close(0);
	}
	else if (status != NULL)
		check_put_fact(check, "session", zklock_session_can_hand_over() ?
					   "identity" : "no identity", status->session_timeout_ms,
					   zklock_text_printable(status->server), NULL,
					   protocol_now() - start);
}

/* All questions; false if the session was lost on the way. */
static bool
ask_all(ZkRoundTrip *trip, void *argument)
{
	Questions  *questions = argument;
	Check	   *check = questions->check;
	const char *chroot_path;
	char	   *root;
	int			root_length;
	bool		has_chroot;

	questions->end = ASKED_ALL;
	trip->deadline = check->deadline;
	trip->by = ZK_BY_CALLER;

	/* the paths belong to the session */
	chroot_path = zklock_session_chroot();
	root = zklock_name_path("check", &root_length);
	root[root_length] = '\0';
	if (chroot_path[0] != '\0')
		questions->end = put_node(trip, check, "chroot", chroot_path,
								  &has_chroot); /* it was said */
	if (questions->end == ASKED_ALL)
		questions->end = put_root(trip, questions,
								  root_length == 0 ? "/" : root);
	if (questions->end != ASKED_ALL)
		return questions->end == ASKED_LATE;
	put_siblings(trip, check, root);
	put_leases(trip, check, root);
	put_unused(trip, check, root);
	return true;
}

/* What does that reply mean?  Locks that hang on the session keep it the one. */
static AskEnd
end_of(const ZkReply *reply)
{
	if (reply == NULL)
		return ASKED_LATE;
	if (reply->result != ZK_SESSION_LOST)
		return ASKED_ALL;
	return zklock_has_locks() ? ASKED_LATE : ASKED_SESSION_LOST;
}

/* What a znode is, if *is_there. */
static AskEnd
put_node(ZkRoundTrip *trip, Check *check, const char *item, const char *path,
		 bool *is_there)
{
	const ZkReply *reply = zklock_roundtrip_read(trip, ZK_GET, path);
	AskEnd		end = end_of(reply);

	if (end != ASKED_ALL)
		return end;
	*is_there = reply->result != ZK_NO_NODE;
	put_reply(check, item, path, reply);
	if (reply->result == ZK_OK && reply->ephemeral_owner != 0)
		check_put_fact(check, item, "ephemeral", 0, zklock_text_quotable(path),
					   zklock_args_session_id(reply->ephemeral_owner), 0);
	return ASKED_ALL;
}

/*
 * The same of the root, and what can be done there.  If there is none, that is
 * tried in the nearest znode above, where the first lock makes it.
 */
static AskEnd
put_root(ZkRoundTrip *trip, Questions *questions, const char *root)
{
	char	   *path = pstrdup(root);
	bool		is_there;
	AskEnd		end = put_node(trip, questions->check, "root", root,
							   &is_there);
	const ZkReply *reply;

	if (end == ASKED_ALL && is_there)
	{
		reply = zklock_roundtrip_read(trip, ZK_GET_ACL, root);
		end = end_of(reply);
		if (end == ASKED_ALL)
			put_reply(questions->check, "acl", root, reply);
	}
	while (end == ASKED_ALL && !is_there && strcmp(path, "/") != 0)
	{
		char	   *slash = strrchr(path, '/');

		slash[slash == path ? 1 : 0] = '\0';
		reply = zklock_roundtrip_read(trip, ZK_GET, path);
		end = end_of(reply);
		is_there = end == ASKED_ALL && reply->result != ZK_NO_NODE;
	}
	if (end != ASKED_ALL)
		return end;
	return try_to_make(trip, questions, path);
}

/*
 * Make a znode in that one, and take it away.  Its name ends as those of
 * requests to release a lock do: no lock has such a one.
 */
static AskEnd
try_to_make(ZkRoundTrip *trip, Questions *questions, const char *parent)
{
	Check	   *check = questions->check;
	char		guid[RECIPE_GUID_LEN + 1];
	char	   *data = zklock_nodedata_build(0, NULL);
	TimestampTz before = GetCurrentTimestamp();
	const ZkReply *reply;
	AskEnd		end;
	bool		is_made;
	char	   *path;

	zklock_nodedata_make_guid(guid);
	path = psprintf("%s/%s" ZK_RELEASE_SUFFIX,
					strcmp(parent, "/") == 0 ? "" : parent, guid);
	questions->making = zklock_client_create(zklock_session_client(), path,
											 ZK_EPHEMERAL, data);
	reply = zklock_roundtrip_await(trip, questions->making);
	end = end_of(reply);
	if (end != ASKED_ALL)
		return end;
	put_reply(check, "writing", parent, reply);
	is_made = reply->result == ZK_OK;
	if (is_made)
		put_clock(check, zklock_nodedata_date(reply->ctime_ms), before,
				  GetCurrentTimestamp());
	withdraw_tried(questions);

	/* at the deadline it is undone later */
	(void) zklock_session_await_undone(trip->deadline);
	if (is_made)
		return try_container(trip, check, parent, path);
	return ASKED_ALL;
}

/* The same with a container at that path, which is free again. */
static AskEnd
try_container(ZkRoundTrip *trip, const Check *check, const char *parent,
			  const char *path)
{
	const char *refusal;
	const ZkReply *reply;
	AskEnd		end;

	trip->made = pstrdup(path); /* also if this raises it is to go */
	reply = zklock_parents_try_container(trip, path, &refusal);
	end = end_of(reply);
	if (end == ASKED_ALL && refusal != NULL)
		check_put_fact(check, "writing", "no containers", 0,
					   zklock_text_quotable(parent), refusal, 0);
	else if (end == ASKED_ALL && reply->result != ZK_OK)
		put_reply(check, "writing", parent, reply);

	/* also without an answer: the server does not remove an unused container */
	zklock_roundtrip_unmake(trip);
	return end;
}

/*
 * What zklock has made beside the root, and beside each znode above it: data
 * of ours are in roots and what is above them (see
 * zklock_parents_make()), and in queue nodes.
 */
static void
put_siblings(ZkRoundTrip *trip, const Check *check, const char *root)
{
	for (const char *slash = root; slash != NULL && *slash != '\0';
		 slash = strchr(slash + 1, '/'))
	{
		const ZkSample *sample =
			zklock_sample_begin(trip,
								pnstrdup(root, Max(slash - root, 1)),
								(int) (check->deadline - protocol_now()));

		for (int i = 0; i < sample->nnodes; i++)
		{
			const ZkReply *reply = zklock_sample_await(sample, i);
			const char *path = sample->paths[i];
			const char *name = strrchr(path, '/') + 1;
			size_t		length = strlen(path);
			ZkNodeData	who = {0};

			if (reply != NULL && reply->result == ZK_OK)
				zklock_nodedata_parse(reply->data, reply->data_length, &who);
			if (who.client != NULL && !zklock_name_is_reserved(name) &&
				recipe_parse_node(name).style == RECIPE_STYLE_NONE &&
				!(strncmp(path, root, length) == 0 &&
				  (root[length] == '/' || root[length] == '\0')))
				check_put_fact(check, "sibling", "found", 0,
							   zklock_text_quotable(path),
							   zklock_nodedata_describe(&who), 0);
		}
	}
}

/*
 * Of some znodes of locks and what is above them: how many never had a child,
 * of how many.  A container is one whose maker was killed before the first
 * child, and the server does not remove it.  One that is being used just now
 * has its child by the second look.
 */
static void
put_unused(ZkRoundTrip *trip, const Check *check, const char *root)
{
	List	   *unused = NIL;
	List	   *used = NIL;
	List	   *below = NIL;
	const char *first = NULL;
	int			nfound = find_unused(trip, check, root, &unused, &used);
	int			nunused = 0;

	for (int i = 0; i < Min(list_length(used), UNUSED_PARENTS); i++)
		nfound += find_unused(trip, check, list_nth(used, i), &unused, &below);
	foreach_ptr(const char, path, unused)
	{
		const ZkReply *reply = zklock_roundtrip_read(trip, ZK_GET, path);

		if (reply == NULL || reply->result != ZK_OK || reply->nchanges != 0)
			continue;
		nunused++;
		first = path;
	}
	check_put_fact(check, "containers", "counted", nunused,
				   first == NULL ? NULL : zklock_text_quotable(first), NULL,
				   nfound);
}

/*
 * Add the paths of some znodes below the parent to those that have, or had
 * children, or to those that never did.  Queue nodes and what zklock has
 * besides locks are left out.  Result: how many there were.
 */
static int
find_unused(ZkRoundTrip *trip, const Check *check, const char *parent,
			List **unused, List **used)
{
	const ZkSample *sample =
		zklock_sample_begin(trip, parent,
							(int) (check->deadline - protocol_now()));
	int			nfound = 0;

	for (int i = 0; i < sample->nnodes; i++)
	{
		const ZkReply *reply = zklock_sample_await(sample, i);
		const char *path = sample->paths[i];
		const char *name = strrchr(path, '/') + 1;
		List	  **list;

		if (reply == NULL || reply->result != ZK_OK ||
			reply->ephemeral_owner != 0 || zklock_name_is_reserved(name) ||
			strcmp(path, "/zookeeper") == 0 ||
			(recipe_parse_node(name).style != RECIPE_STYLE_NONE &&
			 !zklock_nested_is_lock(name, reply)))
			continue;
		nfound++;
		list = reply->nchanges != 0 ? used : unused;
		*list = lappend(*list, pstrdup(path));
	}
	return nfound;
}

/* Of some locks that have leases the first one: for how long is it over? */
static void
put_leases(ZkRoundTrip *trip, const Check *check, const char *root)
{
	ZkSample   *sample =
		zklock_sample_begin(trip,
							psprintf("%s/" ZK_LEASES_NAME, root),
							(int) (check->deadline - protocol_now()));

	for (int i = 0; i < sample->nnodes; i++)
	{
		const char *name = strrchr(sample->paths[i], '/') + 1;
		const char *path = zklock_name_leased_path(root, name);

		if (path != NULL)
			put_first_lease(sample, check, path, path + strlen(root) + 1);
	}
}

/* Of one lock.  What is not there in time is not told. */
static void
put_first_lease(ZkSample *sample, const Check *check, const char *path,
				const char *name)
{
	const ZkReply *list = zklock_roundtrip_read(&sample->trip, ZK_LIST, path);
	List	   *nodes;
	List	   *leased;

	if (list == NULL)
		return;
	nodes = zklock_expiry_nodes(list->children, list->nchildren);
	(void) zklock_expiry_read(&sample->trip, path, list_truncate(nodes, 1),
							  &leased, NULL);	/* then there are none */
	foreach_ptr(const ZkLeased, first, leased)
	{
		const char *owner = first->who.owner;

		check_put_fact(check, "leases", "first", 0,
					   zklock_text_quotable(name),
					   owner != NULL ? zklock_text_quotable(owner) : NULL,
					   protocol_moment().wall_ms - first->mtime_ms -
					   first->ttl_ms);
	}
}

static void
put_reply(const Check *check, const char *item, const char *path,
		  const ZkReply *reply)
{
	const char *code = reply->code_text != NULL ? reply->code_text : "";

	check_put_fact(check, item, fact_of(reply), reply->nbelow,
				   zklock_text_quotable(path), zklock_text_printable(code),
				   reply->ctime_ms);
}

/* A reply in the words of _zk_check_facts(). */
static const char *
fact_of(const ZkReply *reply)
{
	switch (reply->result)
	{
		case ZK_OK:
			return reply->is_open ? "open" : "done";
		case ZK_NO_NODE:
			return "no node";
		case ZK_NO_AUTH:
			return "denied";
		case ZK_QUOTA_EXCEEDED:
			return "quota";
		case ZK_LOCAL_SESSION:
			return "local";
		default:
			return "failed";
	}
}

/*
 * How far the ensemble's clock, the leader's, is ahead of ours at least: it
 * was read between two looks at ours, and says milliseconds.
 */
static void
put_clock(const Check *check, TimestampTz theirs, TimestampTz before,
		  TimestampTz after)
{
	TimestampTz ahead_us = 0;

	if (theirs > after)
		ahead_us = theirs - after;
	else if (theirs < before - 1000)
		ahead_us = theirs - before;
	check_put_fact(check, "clock", "read", (int) (after - before), NULL, NULL,
				   ahead_us / 1000);
}

/* At the end of each attempt; also if it raises. */
static void
withdraw_tried(void *argument)
{
	Questions  *questions = argument;

	if (questions->making != NULL)
		zklock_client_withdraw(questions->making);
	questions->making = NULL;
}
