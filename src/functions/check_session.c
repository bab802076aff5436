/*-------------------------------------------------------------------------
 *
 * check_session.c
 *	  Items of zk_check() about credentials, the session, and what only a
 *	  session can tell.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/guc.h"
#include "utils/timestamp.h"

#include "auth.h"
#include "board.h"
#include "check_private.h"
#include "compat.h"
#include "expiry.h"
#include "lease_roots.h"
#include "lock.h"
#include "lock_proof.h"
#include "name.h"
#include "nodedata.h"
#include "parents.h"
#include "recipe.h"
#include "root.h"
#include "roundtrip.h"
#include "sample.h"
#include "session.h"
#include "text.h"

/* For how long a lease may be over before it is called overdue. */
#define OVERDUE_MS 60000

/* A write that takes longer is slow. */
#define SLOW_WRITE_MS 1000

/* By how much the clocks may differ before it is noted, and warned of. */
#define DIFFERS_NOTE_MS 2000
#define DIFFERS_WARNING_MS 60000

/* For the words of a difference. */
#define MS_PER_MINUTE 60000
#define MS_PER_HOUR 3600000

/* A server's date that is shown: until 2286. */
#define DATE_MAX_MS INT64CONST(9999999999999)

/* Where ZooKeeper has the quotas of its whole tree. */
#define QUOTA_PATH "/zookeeper/quota"

/* The questions, under way. */
typedef struct Questions
{
	Check	   *check;
	ZkRequest  *making;			/* a create to be withdrawn; NULL: none is */
	StringInfoData overdue;		/* leases */
} Questions;

static bool find_trouble(Check *check);
static ZkOutcome ask_all(ZkRoundTrip *trip, void *argument);
static ZkOutcome ask_node(ZkRoundTrip *trip, CheckZnode *node,
						  const char *path);
static ZkOutcome ask_root(ZkRoundTrip *trip, Questions *questions,
						  const char *root, int root_length);
static ZkOutcome ask_stranger(ZkRoundTrip *trip, CheckTree *tree,
							  const char *root, int root_length);
static ZkOutcome try_to_make(ZkRoundTrip *trip, Questions *questions,
							 const char *parent);
static ZkOutcome try_container(ZkRoundTrip *trip, CheckTree *tree,
							   const char *parent, const char *path);
static ZkOutcome ask_quota(ZkRoundTrip *trip, CheckTree *tree,
						   const char *root);
static void ask_leases(ZkRoundTrip *trip, Questions *questions,
					   const char *root);
static void ask_first_lease(ZkSample *sample, Questions *questions,
							const char *path, const char *name);
static void note_reply(CheckZnode *node, const char *path,
					   const ZkReply *reply);
static int64 clock_of(TimestampTz theirs, TimestampTz before,
					  TimestampTz after);
static void withdraw_tried(void *argument);
static const char *made_at(const CheckZnode *node);
static const char *connect_timeout(void);

/* ---------------------------------------------------------------------
 * Asking
 * ---------------------------------------------------------------------
 */

/* Reading them may fail. */
void
check_ask_credentials(Check *check)
{
	char	   *scheme = NULL;
	char	   *credentials = NULL;

	zklock_auth_read(&scheme, &credentials);
	if (scheme == NULL)
		return;
	explicit_bzero(credentials, strlen(credentials));
	check->scheme = zklock_text_quotable_own(scheme);
}

void
check_ask_others(Check *check)
{
	ZkBoardRow	row;

	for (int i = 0; i < zklock_board_size(); i++)
		if (zklock_board_read_live(i, &row) && row.session.is_open &&
			row.session.state == ZK_CLIENT_CONNECTED)
			check->nconnected++;
}

void
check_ask_session(Check *check)
{
	Questions	questions = {.check = check};
	ZkBounds	bounds = zklock_bounds_of_task();
	bool		was_there = zklock_session_number() != 0;
	int64		start = protocol_now();
	const ZkClientStatus *status;
	ZkOutcome	outcome;

	if (find_trouble(check) || !check->has_session || check->list.nservers == 0)
		return;
	if (!was_there && !check->may_serve)
	{
		check->asked = CHECK_NOT_TRIED;
		return;
	}
	outcome = zklock_roundtrip_run_within(&bounds, ask_all, withdraw_tried,
										  &questions);
	status = zklock_session_status();
	if (outcome == ZK_LATE)
	{
		if (find_trouble(check))
			return;
		check->asked = CHECK_LATE;
		if (zklock_session_id() != 0)
			return;
		check->asked = CHECK_NOT_GRANTED;
		if (!was_there)
			zklock_session_close(0);
	}
	else if (status != NULL)
	{
		check->asked = CHECK_ANSWERED;
		check->server = zklock_text_printable(status->server);
		check->timeout_ms = status->session_timeout_ms;
		check->asking_ms = protocol_now() - start;
		check->has_identity = zklock_session_can_hand_over();
	}
}

/* Is a lock lost, or the session on which locks hang not connected? */
static bool
find_trouble(Check *check)
{
	const ZkClientStatus *status;
	ZkLoss		loss;

	zklock_session_read();
	zklock_attend_locks();
	status = zklock_session_status();
	if (zklock_describe_loss(&loss))
	{
		check->asked = CHECK_LOST;
		check->loss = psprintf("%s: %s", loss.message, loss.detail);
		check->loss_hint = loss.hint;
	}
	else if (zklock_has_locks() && status != NULL &&
			 status->state == ZK_CLIENT_SUSPENDED)
		check->asked = CHECK_SUSPENDED;
	else
		return false;
	return true;
}

/* All questions, until the deadline of the check. */
static ZkOutcome
ask_all(ZkRoundTrip *trip, void *argument)
{
	Questions  *questions = argument;
	Check	   *check = questions->check;
	CheckTree  *tree = &check->tree;
	ZkOutcome	outcome = ZK_ANSWERED;
	const char *chroot_path;
	char	   *root;
	int			root_length;

	initStringInfo(&questions->overdue);
	memset(tree, 0, sizeof(*tree)); /* whatever a lost session has said */
	trip->deadline = check->deadline;
	trip->by = ZK_BY_CALLER;

	chroot_path = zklock_session_chroot();
	root = zklock_name_root_path();
	root_length = strlen(root);
	if (chroot_path[0] != '\0')
		outcome = ask_node(trip, &tree->chroot, chroot_path);
	if (outcome == ZK_ANSWERED)
		outcome = ask_root(trip, questions, root_length == 0 ? "/" : root,
						   root_length);

	/* a session knows nothing of what is above its chroot */
	if (outcome == ZK_ANSWERED && chroot_path[0] == '\0')
		outcome = ask_quota(trip, tree, root);
	if (outcome == ZK_ANSWERED)
		ask_leases(trip, questions, root);

	/* no other session is asked in place of the one on which locks hang */
	if (outcome == ZK_LOST && zklock_has_locks())
		outcome = ZK_LATE;
	return outcome;
}

/* What a znode is. */
static ZkOutcome
ask_node(ZkRoundTrip *trip, CheckZnode *node, const char *path)
{
	const ZkReply *reply;
	ZkOutcome	outcome = zklock_roundtrip_read(trip, ZK_GET, path, &reply);

	if (outcome == ZK_ANSWERED)
		note_reply(node, path, reply);
	return outcome;
}

/*
 * The same of the root, and what can be done there.  If there is none, that is
 * tried in the nearest znode above, where the first lock makes it.
 */
static ZkOutcome
ask_root(ZkRoundTrip *trip, Questions *questions, const char *root,
		 int root_length)
{
	CheckTree  *tree = &questions->check->tree;
	char	   *path = pstrdup(root);
	ZkOutcome	outcome = ask_node(trip, &tree->root, root);
	bool		is_there = tree->root.result != ZK_NO_NODE;
	const ZkReply *reply;

	if (outcome == ZK_ANSWERED && is_there)
	{
		outcome = zklock_roundtrip_read(trip, ZK_GET_ACL, root, &reply);
		if (outcome == ZK_ANSWERED)
			note_reply(&tree->acl, root, reply);
	}
	if (outcome == ZK_ANSWERED && is_there && zklock_session_has_credentials())
		outcome = ask_stranger(trip, tree, root, root_length);
	while (outcome == ZK_ANSWERED && !is_there && strcmp(path, "/") != 0)
	{
		char	   *slash = strrchr(path, '/');

		slash[slash == path ? 1 : 0] = '\0';
		outcome = zklock_roundtrip_read(trip, ZK_GET, path, &reply);
		is_there = outcome == ZK_ANSWERED && reply->result != ZK_NO_NODE;
	}
	if (outcome != ZK_ANSWERED)
		return outcome;
	return try_to_make(trip, questions, path);
}

/* Who besides us may change the root? */
static ZkOutcome
ask_stranger(ZkRoundTrip *trip, CheckTree *tree, const char *root,
			 int root_length)
{
	char	   *stranger;
	ZkOutcome	outcome = zklock_root_find_stranger(trip, root, root_length,
													&stranger);

	if (outcome == ZK_ANSWERED && stranger != NULL)
		tree->stranger = zklock_text_quotable(stranger);
	return outcome;
}

/*
 * Make a znode in that one, and take it away.  Its name ends as those of
 * requests to release a lock do: no lock has such a one.
 */
static ZkOutcome
try_to_make(ZkRoundTrip *trip, Questions *questions, const char *parent)
{
	CheckTree  *tree = &questions->check->tree;
	char		guid[RECIPE_GUID_LEN + 1];
	char	   *data = zklock_nodedata_build(0, NULL);
	TimestampTz before = GetCurrentTimestamp();
	const ZkReply *reply;
	ZkOutcome	outcome;
	bool		is_made;
	char	   *path;

	zklock_nodedata_make_guid(guid);
	path = psprintf("%s/%s" ZK_RELEASE_SUFFIX,
					strcmp(parent, "/") == 0 ? "" : parent, guid);
	questions->making = zklock_client_create(zklock_session_client(), path,
											 ZK_EPHEMERAL, data);
	outcome = zklock_roundtrip_await(trip, questions->making, &reply);
	if (outcome == ZK_LATE || outcome == ZK_LOST)
		return outcome;

	/* also if it is unknown whether it was made: that is told, too */
	note_reply(&tree->writing, parent, reply);
	is_made = reply->result == ZK_OK;
	if (is_made)
	{
		TimestampTz after = GetCurrentTimestamp();

		tree->writing_us = after - before;
		tree->clock_ms = clock_of(zklock_nodedata_date(reply->ctime_ms),
								  before, after);
	}
	withdraw_tried(questions);

	/* at the deadline it is undone later */
	(void) zklock_session_await_undone(trip->deadline);
	if (is_made)
		return try_container(trip, tree, parent, path);
	return ZK_ANSWERED;
}

/* The same with a container at that path, which is free again. */
static ZkOutcome
try_container(ZkRoundTrip *trip, CheckTree *tree, const char *parent,
			  const char *path)
{
	const char *refusal;
	const ZkReply *reply;
	ZkOutcome	outcome;

	trip->made = pstrdup(path); /* also if this raises it is to go */
	outcome = zklock_parents_try_container(trip, path, &reply, &refusal);
	if (outcome == ZK_ANSWERED && refusal != NULL)
		tree->no_containers = pstrdup(refusal);
	else if (outcome == ZK_ANSWERED && reply->result != ZK_OK)
		note_reply(&tree->writing, parent, reply);

	/* also without an answer: the server does not remove an unused container */
	zklock_roundtrip_unmake(trip);
	return outcome;
}

/*
 * If a quota stands on the root: may everybody change it, or set another one
 * there or above?  tree->quota is the ACL of the uppermost znode that is open,
 * or of the quota itself.
 */
static ZkOutcome
ask_quota(ZkRoundTrip *trip, CheckTree *tree, const char *root)
{
	char	   *limits = psprintf(QUOTA_PATH "%s/zookeeper_limits", root);
	const char *end_of_path = limits + strlen(QUOTA_PATH);
	CheckZnode	quota = {0};
	ZkOutcome	outcome = ask_node(trip, &quota, limits);

	if (outcome != ZK_ANSWERED || quota.result != ZK_OK)
		return outcome;
	do
	{
		char	   *path = pnstrdup(limits, end_of_path - limits);
		const ZkReply *reply;

		outcome = zklock_roundtrip_read(trip, ZK_GET_ACL, path, &reply);
		if (outcome != ZK_ANSWERED)
			return outcome;
		note_reply(&tree->quota, path, reply);
		if (*end_of_path == '\0')
			return ZK_ANSWERED;
		end_of_path = strchrnul(end_of_path + 1, '/');
	} while (!tree->quota.is_open);
	return ZK_ANSWERED;
}

/* Of some locks that have leases the first one: for how long is it over? */
static void
ask_leases(ZkRoundTrip *trip, Questions *questions, const char *root)
{
	CheckTree  *tree = &questions->check->tree;
	ZkSample   *sample =
		zklock_sample_read(trip,
						   psprintf("%s/" ZK_LEASES_NAME, root),
						   (int) (questions->check->deadline - protocol_now()));

	for (int i = 0; i < sample->nnodes; i++)
	{
		const char *name = strrchr(sample->paths[i], '/') + 1;
		const char *path = zklock_name_leased_path(root, name);

		if (path != NULL)
			ask_first_lease(sample, questions, path, path + strlen(root) + 1);
	}
	if (questions->overdue.len > 0)
		tree->overdue = questions->overdue.data;
}

/* Of one lock.  What is not there in time, or before a loss, is not told. */
static void
ask_first_lease(ZkSample *sample, Questions *questions, const char *path,
				const char *name)
{
	const ZkReply *list;
	List	   *nodes;
	List	   *leased;

	if (zklock_roundtrip_read(&sample->trip, ZK_LIST, path,
							  &list) != ZK_ANSWERED)
		return;
	nodes = zklock_expiry_nodes(list->children, list->nchildren);
	if (zklock_expiry_read(&sample->trip, path, list_truncate(nodes, 1),
						   &leased) != ZK_ANSWERED)
		return;
	foreach_ptr(const ZkLeased, first, leased)
	{
		StringInfo	overdue = &questions->overdue;
		const char *owner = first->who.owner;

		questions->check->tree.nleases++;
		if (protocol_moment().wall_ms - first->mtime_ms - first->term_ms <= OVERDUE_MS)
			continue;
		if (overdue->len > 0)
			appendStringInfoString(overdue, ", ");
		appendStringInfo(overdue, "\"%s\" of \"%s\"", zklock_text_quotable(name),
						 owner != NULL ? zklock_text_quotable(owner) : "");
	}
}

static void
note_reply(CheckZnode *node, const char *path, const ZkReply *reply)
{
	const char *code = reply->code_text != NULL ? reply->code_text : "";

	node->path = zklock_text_quotable(path);
	node->result = reply->result;
	node->why = zklock_text_printable(code);
	node->is_open = reply->is_open;
	node->nbelow = reply->nbelow;
	node->ctime_ms = reply->ctime_ms;
}

/*
 * How far the ensemble's clock, the leader's, is ahead of ours at least, in
 * milliseconds: it was read between two looks at ours, and says milliseconds.
 */
static int64
clock_of(TimestampTz theirs, TimestampTz before, TimestampTz after)
{
	if (theirs > after)
		return (theirs - after) / 1000;
	if (theirs < before - 1000)
		return (theirs - before) / 1000;
	return 0;
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

/* ---------------------------------------------------------------------
 * The rows
 * ---------------------------------------------------------------------
 */

void
check_tell_credentials(Check *check)
{
	const char *publishes = GetConfigOption("zklock.publish_identity", false, false);

	if (check->scheme != NULL)
		check_put(check, "credentials", CHECK_OK,
				  psprintf("zklock.auth has credentials of scheme \"%s\"", check->scheme),
				  NULL);
	else
		check_put(check, "credentials", CHECK_NOTE,
				  psprintf("zklock.auth is not set: every client that reaches the ensemble may delete the znodes of zklock%s",
						   strcmp(publishes, "on") == 0 ?
						   ", and read which user, host and process made them (zklock.publish_identity)" : ""),
				  "Set zklock.auth if clients that you do not trust can reach the ensemble.");
}

void
check_tell_session(Check *check)
{
	const ZkClientStatus *status = zklock_session_status();
	const char *state = NULL;

	if (status != NULL)
		state = protocol_end_state(status->state, status->loss);
	switch (check->asked)
	{
		case CHECK_NOT_TRIED:
			if (check->library == NULL)
				check_put(check, "session", CHECK_ERROR,
						  "not tried, because its program cannot be run",
						  "See the row \"program\".");
			else
				check_put(check, "session", CHECK_ERROR,
						  "not tried, because no server can grant one",
						  "See the rows of the servers.");
			return;
		case CHECK_NOT_GRANTED:
			check_put(check, "session", CHECK_ERROR,
					  psprintf("no session was granted in zklock.connect_timeout, %s",
							   connect_timeout()),
					  "See the rows of the servers. Check the network, the load of the ensemble, and its disks: how long fsync takes.");
			return;
		case CHECK_LATE:
			check_put(check, "session", CHECK_ERROR,
					  psprintf("the ensemble has not answered all in zklock.connect_timeout, %s",
							   connect_timeout()),
					  "See the rows of the servers. Check the network, the load of the ensemble, and its disks: how long fsync takes.");
			return;
		case CHECK_LOST:
			check_put(check, "session", CHECK_ERROR, check->loss, check->loss_hint);
			return;
		case CHECK_ANSWERED:
			check_put(check, "session", CHECK_OK,
					  psprintf("connected to %s; all questions together took " INT64_FORMAT " ms",
							   check->server, check->asking_ms),
					  NULL);
			return;
		case CHECK_NOT_ASKED:
			if (check->has_session)
				return;			/* no servers are set */
			break;
		case CHECK_SUSPENDED:
			break;
	}

	/* what this session has, without a question */
	if (state != NULL && strcmp(state, "connected") == 0)
		check_put(check, "session", CHECK_OK,
				  psprintf("this connection has a ZooKeeper session, at %s",
						   zklock_text_printable(status->server)),
				  NULL);
	else if (state == NULL || strcmp(state, "idle") == 0)
		check_put(check, "session", CHECK_OK,
				  "this connection has no ZooKeeper session, and none was opened: zk_check(true) opens one",
				  NULL);
	else
		check_put(check, "session", CHECK_WARNING,
				  "this connection has a ZooKeeper session that is not connected",
				  "See zk_session, and the rows of the servers.");
}

void
check_tell_releases(Check *check)
{
	const ZkClientStatus *status = zklock_session_status();

	if (status == NULL || status->nrefused == 0)
		return;
	check_put(check, "releases", CHECK_WARNING,
			  psprintf("znodes of this session that ZooKeeper does not let it delete: %d; each blocks its lock",
					   status->nrefused),
			  "The log has the reason, and zk_lock_queue shows the nodes as releasing. Give the right DELETE on the lock's znode back; or end the session with zk_disconnect(), and its nodes with it.");
}

void
check_tell_granted_timeout(Check *check)
{
	int			asked_ms = atoi(GetConfigOption("zklock.session_timeout", false, false));

	if (check->asked != CHECK_ANSWERED)
		return;
	if (check->timeout_ms != asked_ms)
		check_put(check, "granted timeout", CHECK_WARNING,
				  psprintf("%d ms were asked for, %d ms granted", asked_ms, check->timeout_ms),
				  "Set zklock.session_timeout to what the ensemble grants, or minSessionTimeout and maxSessionTimeout (2 and 20 ticks by default) of its servers. A session that is in use keeps its timeout until its locks are released.");
	else
		check_put(check, "granted timeout", CHECK_OK,
				  psprintf("%d ms, as asked for", check->timeout_ms), NULL);
}

/* With credentials sessions have no identity of their own, whatever is enabled. */
void
check_tell_digest(Check *check)
{
	if (check->asked != CHECK_ANSWERED || check->scheme != NULL)
		return;
	if (check->has_identity)
		check_put(check, "digest", CHECK_OK,
				  "the ensemble knows digest authentication", NULL);
	else
		check_put(check, "digest", CHECK_NOTE,
				  "the ensemble refuses digest authentication: there is no hand-over, and every client may write to queue nodes",
				  "Enable the digest authentication of ZooKeeper.");
}

void
check_tell_chroot(Check *check)
{
	const CheckZnode *node = &check->tree.chroot;
	bool		is_root = strcmp(GetConfigOption("zklock.root", false, false), "/") == 0;

	if (node->path == NULL)
		return;
	if (node->result == ZK_NO_NODE)
		check_put(check, "chroot", CHECK_WARNING,
				  psprintf("znode \"%s\" does not exist", node->path),
				  "Check the spelling in zklock.servers: locks below another chroot are other locks. If it is right, create the znode, or leave that to the first lock: the row \"writing\" tells whether it can.");
	else if (node->result != ZK_OK)
		check_put(check, "chroot", CHECK_WARNING,
				  psprintf("znode \"%s\" cannot be read: %s", node->path, node->why),
				  "See its ACL (getAcl in zkCli.sh), and zklock.auth.");
	else if (node->nbelow == 0 && !is_root)
		check_put(check, "chroot", CHECK_WARNING,
				  psprintf("znode \"%s\" is empty: nobody has had a lock there", node->path),
				  "Check the spelling in zklock.servers: locks below another chroot are other locks. If it is right, leave the rest to the first lock: the row \"writing\" tells whether it can make it.");
	else
		check_put(check, "chroot", CHECK_OK,
				  psprintf("znode \"%s\" is there since %s", node->path, made_at(node)),
				  NULL);
}

void
check_tell_root(Check *check)
{
	const CheckZnode *node = &check->tree.root;

	if (node->path == NULL)
		return;
	if (node->result == ZK_NO_NODE)
		check_put(check, "root", CHECK_NOTE,
				  psprintf("znode \"%s\" does not exist yet", node->path),
				  "Leave that to the first lock: the row \"writing\" tells whether it can. If there should be locks already, check the spelling of zklock.root: locks below another root are other locks.");
	else if (node->result != ZK_OK)
		check_put(check, "root", CHECK_ERROR,
				  psprintf("znode \"%s\" cannot be read: %s", node->path, node->why),
				  "See its ACL (getAcl in zkCli.sh), and zklock.auth.");
	else
		check_put(check, "root", CHECK_OK,
				  psprintf("znode \"%s\" is there since %s, with %d znodes in it",
						   node->path, made_at(node), node->nbelow),
				  NULL);
}

void
check_tell_acl(Check *check)
{
	const CheckZnode *node = &check->tree.acl;

	if (node->path == NULL)
		return;
	if (node->result != ZK_OK)
		check_put(check, "acl", CHECK_NOTE,
				  psprintf("the ACL of znode \"%s\" cannot be read: %s", node->path, node->why),
				  NULL);
	else if (check->tree.stranger != NULL)
		check_put(check, "acl", CHECK_ERROR,
				  psprintf("\"%s\" may change znode \"%s\", which is not an identity of these credentials: sessions take no lock there",
						   check->tree.stranger, node->path),
				  "Correct its ACL (setAcl in zkCli.sh), or name that identity in zklock.trusted_identities if you trust it: docs/install.md, The ACL of the root.");
	else if (!node->is_open)
		check_put(check, "acl", CHECK_OK,
				  psprintf("not everybody may create and delete in znode \"%s\"", node->path),
				  NULL);
	else
		check_put(check, "acl", CHECK_OK,
				  psprintf("everybody may create and delete in znode \"%s\", as without zklock.auth it has to be", node->path),
				  NULL);
}

/* Can a lock be taken? */
void
check_tell_writing(Check *check)
{
	const CheckTree *tree = &check->tree;
	const CheckZnode *node = &tree->writing;
	int64		write_ms = tree->writing_us / 1000;

	if (node->path == NULL)
		return;
	if (tree->no_containers != NULL)
	{
		check_put(check, "writing", CHECK_ERROR,
				  psprintf("the server has no container znodes: no lock can be taken (it was asked to create one in \"%s\", and %s)",
						   node->path, tree->no_containers),
				  "Use servers of Apache ZooKeeper: docs/interop.md, Other servers.");
		return;
	}
	switch (node->result)
	{
		case ZK_OK:
			if (write_ms > SLOW_WRITE_MS)
				check_put(check, "writing", CHECK_WARNING,
						  psprintf("a znode was made in \"%s\", but only in " INT64_FORMAT " ms: each lock takes longer than that",
								   node->path, write_ms),
						  "Find out how long fsync takes on the servers: see their rows, mntr, and \"fsync-ing the write ahead log\" in their logs. Give dataLogDir a disk of its own. If the disks are fast, check the network and the load of the ensemble.");
			else
				check_put(check, "writing", CHECK_OK,
						  psprintf("a znode was made in \"%s\", in " INT64_FORMAT " ms, and taken away",
								   node->path, write_ms),
						  NULL);
			break;
		case ZK_NO_AUTH:
			check_put(check, "writing", CHECK_ERROR,
					  psprintf("this session may not create znodes in \"%s\": no lock can be taken",
							   node->path),
					  check->scheme != NULL ?
					  "Its ACL is for other credentials than those of zklock.auth (getAcl in zkCli.sh): all databases and clients of a lock need the same." :
					  "Its ACL demands credentials: set zklock.auth to them.");
			break;
		case ZK_QUOTA_EXCEEDED:
			check_put(check, "writing", CHECK_ERROR,
					  psprintf("a quota of ZooKeeper for \"%s\" is exceeded: no lock can be taken",
							   node->path),
					  "Raise the quota (setquota in zkCli.sh), or find out who has used it up.");
			break;
		case ZK_LOCAL_SESSION:
			check_put(check, "writing", CHECK_ERROR,
					  "sessions of this ensemble are local to a server, and may not have ephemeral znodes: no lock can be taken",
					  "Set localSessionsUpgradingEnabled to true on all its servers, or localSessionsEnabled to false.");
			break;
		default:
			check_put(check, "writing", CHECK_ERROR,
					  psprintf("no znode could be made in \"%s\": %s", node->path, node->why),
					  "Try again; see the servers' logs.");
	}
}

void
check_tell_clock(Check *check)
{
	const CheckTree *tree = &check->tree;
	int64		off_ms = tree->clock_ms < 0 ? -tree->clock_ms : tree->clock_ms;
	const char *side = tree->clock_ms < 0 ? "behind" : "ahead of";
	char	   *by;
	char	   *what;

	if (tree->writing.path == NULL || tree->writing_us == 0)
		return;
	if (off_ms == 0)
	{
		check_put(check, "clock", CHECK_OK,
				  "the ensemble's clock is as ours, as far as can be seen", NULL);
		return;
	}
	if (off_ms >= 2 * MS_PER_HOUR)
		by = psprintf(INT64_FORMAT " hours", off_ms / MS_PER_HOUR);
	else if (off_ms >= 2 * MS_PER_MINUTE)
		by = psprintf(INT64_FORMAT " minutes", off_ms / MS_PER_MINUTE);
	else
		by = psprintf(INT64_FORMAT " ms", off_ms);
	what = psprintf("the ensemble's clock is %s ours by %s or more", side, by);
	if (off_ms <= DIFFERS_NOTE_MS)
		check_put(check, "clock", CHECK_OK, what, NULL);
	else
		check_put(check, "clock",
				  off_ms > DIFFERS_WARNING_MS ? CHECK_WARNING : CHECK_NOTE, what,
				  "Set the clocks (NTP). Locks do not depend on them. Dates in views and terms of leases as they are shown do; and a job that makes its slot of zk_run_once() from the date claims that of another day.");
}

void
check_tell_quota(Check *check)
{
	const CheckZnode *node = &check->tree.quota;

	if (node->path == NULL)
		return;
	if (node->is_open)
		check_put(check, "quota", CHECK_WARNING,
				  psprintf("the root has a quota of ZooKeeper, and everybody may change what is in znode \"%s\": lift the quota, or set one that stops all locks",
						   node->path),
				  psprintf("Set the ACL of \"%s\" (setAcl in zkCli.sh) to that of those who set quotas.",
						   node->path));
	else if (node->result == ZK_OK)
		check_put(check, "quota", CHECK_OK,
				  "the root has a quota of ZooKeeper, which not everybody may change", NULL);
	else
		check_put(check, "quota", CHECK_NOTE,
				  psprintf("the ACL of znode \"%s\" cannot be read: %s", node->path, node->why),
				  NULL);
}

void
check_tell_leases(Check *check)
{
	const char *worker = GetConfigOption("zklock.lease_worker", false, false);
	const char *root = GetConfigOption("zklock.root", false, false);

	if (check->tree.nleases == 0)
		return;
	if (check->tree.overdue != NULL)
		check_put(check, "leases", CHECK_WARNING,
				  psprintf("leases whose term has been over for more than a minute: %s",
						   check->tree.overdue),
				  "See the row \"clock\", and the log of the lease worker, which may lack the right to delete there. zk_evict() removes a lease.");
	else if (strcmp(worker, "off") == 0)
		check_put(check, "leases", CHECK_NOTE,
				  "there are leases, and no lease worker in this cluster: other clients behind a lease whose term is over wait until a contender of zklock comes",
				  "Switch zklock.lease_worker on, in one cluster at least.");
	else if (!zklock_lease_roots_have_own())
		check_put(check, "leases", CHECK_WARNING,
				  psprintf("there are leases, and no worker of this cluster looks below \"%s\" (zklock.root of this session): other clients behind a lease whose term is over wait until a contender of zklock comes",
						   zklock_text_quotable_own(root)),
				  "If the row \"lease worker\" is a warning, see there first. Otherwise add this root to zklock.lease_roots in postgresql.conf, and reload.");
	else
		check_put(check, "leases", CHECK_OK,
				  "no lease that was looked at is overdue", NULL);
}

/* When a znode was made, by the clock of a server. */
static const char *
made_at(const CheckZnode *node)
{
	if (node->ctime_ms < 1 || node->ctime_ms > DATE_MAX_MS)
		return "an impossible date";
	return timestamptz_to_str(zklock_nodedata_date(node->ctime_ms));
}

/* As SHOW has it. */
static const char *
connect_timeout(void)
{
	return GetConfigOptionByName("zklock.connect_timeout", NULL, false);
}
