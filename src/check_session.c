/*-------------------------------------------------------------------------
 *
 * check_session.c
 *	  zk_check(): what only a session can tell.
 *
 * It is the backend's own, which stays.  All is asked first, and the rows are
 * put when nothing is outstanding any more.  Whether locks can be taken is
 * tried: an ephemeral znode is made in the root, with a name that no lock can
 * have, and taken away at once.  Its date tells the ensemble's clock, too.
 *
 *-------------------------------------------------------------------------
 */
#include "check_private.h"

#include "miscadmin.h"
#include "utils/timestamp.h"

#include "auth.h"
#include "name.h"
#include "nodedata.h"
#include "recipe.h"
#include "roundtrip.h"
#include "session.h"

/* Most znodes whose children are looked at for other clients' contenders. */
#define LISTS_MAX 100

/* And most contenders whose data is read; the list of a larger root is not. */
#define READS_MAX 100
#define NAMES_MAX 10000

/* The longest that is looked for them; or half of the time that is left. */
#define STRANGERS_MS 2000

/* A clock that is off by more is worth a note, or a warning. */
#define CLOCK_NOTE_MS 2000
#define CLOCK_WARNING_MS 60000

/* Milliseconds that a server may call a date: 1970 to 2286. */
#define DATE_MAX_MS INT64CONST(9999999999999)
#define EPOCH_DIFFERENCE_MS \
	((int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * SECS_PER_DAY * 1000)

/* What became of a question. */
typedef struct Fact
{
	bool		is_known;		/* it was answered in time */
	ZkResult	result;			/* this and the rest: valid if it was */
	char	   *code_text;
	int64		ctime_ms;
	int			nbelow;
	bool		is_open;
} Fact;

/* What was found out, in the caller's memory context. */
typedef struct Facts
{
	Check	   *check;
	bool		is_late;		/* the deadline came first */
	char	   *chroot_path;	/* "": there is none */
	char	   *root_path;
	Fact		chroot;
	Fact		root;
	Fact		acl;			/* of the root */
	Fact		made;			/* a znode in the root */
	ZkRequest  *making;			/* to be withdrawn; NULL: none is */
	TimestampTz made_before;
	TimestampTz made_after;

	/* Contenders that take no notice of ours. */
	int			nlists;
	bool		is_cut;			/* there was more to look at, or no time */
	char	   *stranger_path;	/* of the lock of one; NULL: there is none */
	RecipeStyle stranger_style;
} Facts;

static void put_own_session(Check *check);
static bool talk(ZkRoundTrip *trip, void *argument);
static void forget(void *argument);
static bool take_fact(Facts *facts, Fact *fact, const ZkReply *reply);
static bool try_to_make(ZkRoundTrip *trip, Facts *facts);
static bool look_for_strangers(ZkRoundTrip *trip, Facts *facts);
static bool look_at_queue(ZkRoundTrip *trip, Facts *facts, const char *path,
						  char **paths, int *npaths, int *nreads);
static void put_facts(const Facts *facts, int64 took_ms);
static void put_session(Check *check, const Facts *facts, int64 took_ms);
static void put_digest(Check *check);
static void put_chroot(Check *check, const Facts *facts);
static void put_root(Check *check, const Facts *facts);
static void put_acl(Check *check, const Facts *facts);
static void put_made(Check *check, const Facts *facts);
static void put_clock(Check *check, const Facts *facts);
static void put_strangers(Check *check, const Facts *facts);
static const char *date_text(int64 unix_ms);

/* Are there any?  Reading them may fail, and that is a row, too. */
void
check_credentials(Check *check)
{
	char	   *scheme = NULL;
	char	   *credentials = NULL;

	zklock_auth_read(&scheme, &credentials);
	if (scheme == NULL)
	{
		check_put(check, "credentials", CHECK_NOTE,
				  "Set zklock.auth where others reach the ensemble whom you do not trust.",
				  "zklock.auth is not set: everybody who reaches the ensemble may delete what is made");
		return;
	}
	explicit_bzero(credentials, strlen(credentials));
	check->auth_scheme = scheme;
	check_put(check, "credentials", CHECK_OK, NULL,
			  "zklock.auth has credentials of scheme \"%s\"",
			  zklock_nodedata_quotable_own(scheme));
}

void
check_session(Check *check)
{
	Facts		facts = {.check = check};
	bool		was_there = zklock_session_number() != 0;
	int64		start = zklock_client_now();

	if (!check->has_session)
	{
		put_own_session(check);
		return;
	}
	if (check->servers[0] == '\0')
		return;
	if (!was_there && !check_may_connect(check))
	{
		check_put(check, "session", CHECK_ERROR,
				  "See the rows of the servers.",
				  "not tried, for no server can grant one");
		return;
	}
	zklock_roundtrip_run(talk, forget, &facts);
	if (facts.is_late && !was_there && !zklock_session_was_connected())
		zklock_session_close(0);
	put_facts(&facts, zklock_client_now() - start);
}

/* What there is to know of it without asking anybody. */
static void
put_own_session(Check *check)
{
	ZkClientStatus status;

	if (!zklock_session_status(&status))
		check_put(check, "session", CHECK_OK, NULL,
				  "this connection has none, and none was opened: zk_check(true) does");
	else if (status.state == ZK_CLIENT_CONNECTED)
		check_put(check, "session", CHECK_OK, NULL,
				  "this connection has one, at %s",
				  zklock_nodedata_printable(status.server));
	else
		check_put(check, "session", CHECK_WARNING,
				  "See zk_session, and the rows of the servers.",
				  "this connection has one that is not connected");
}

/* ---------------------------------------------------------------------
 * Asking
 * ---------------------------------------------------------------------
 */

/* All questions; false if the session was lost on the way. */
static bool
talk(ZkRoundTrip *trip, void *argument)
{
	Facts	   *facts = argument;
	Check	   *check = facts->check;
	int			root_length;

	memset(facts, 0, sizeof(*facts));
	facts->check = check;
	trip->deadline = check->deadline;
	trip->is_lock_timeout = false;

	/* the paths belong to the session */
	facts->chroot_path = pstrdup(zklock_session_chroot());
	facts->root_path = zklock_name_path("check", &root_length);
	facts->root_path[root_length] = '\0';
	if (root_length == 0)
		facts->root_path = pstrdup("/");

	if (facts->chroot_path[0] != '\0' &&
		!take_fact(facts, &facts->chroot,
				   zklock_roundtrip_read(trip, zklock_client_get,
										 facts->chroot_path)))
		return facts->is_late;
	if (!take_fact(facts, &facts->root,
				   zklock_roundtrip_read(trip, zklock_client_get,
										 facts->root_path)))
		return facts->is_late;
	if (facts->root.result == ZK_NO_NODE)
		return true;
	if (!take_fact(facts, &facts->acl,
				   zklock_roundtrip_read(trip, zklock_client_ask_closed,
										 facts->root_path)) ||
		!try_to_make(trip, facts) ||
		!look_for_strangers(trip, facts))
		return facts->is_late;
	return true;
}

/* At the end of each attempt; also if it raises. */
static void
forget(void *argument)
{
	Facts	   *facts = argument;

	if (facts->making != NULL)
		zklock_client_withdraw(facts->making);
	facts->making = NULL;
}

/* Keep an answer; false if there is none. */
static bool
take_fact(Facts *facts, Fact *fact, const ZkReply *reply)
{
	facts->is_late = reply == NULL;
	if (reply == NULL || reply->result == ZK_SESSION_LOST)
		return false;
	fact->is_known = true;
	fact->result = reply->result;
	fact->code_text = zklock_nodedata_printable(reply->code_text != NULL ?
												reply->code_text : "");
	fact->ctime_ms = reply->ctime_ms;
	fact->nbelow = reply->nbelow;
	fact->is_open = reply->is_open;
	return true;
}

/*
 * Make a znode in the root, and take it away.  Its name ends as those of
 * requests to release a lock do: no lock has such a one.
 */
static bool
try_to_make(ZkRoundTrip *trip, Facts *facts)
{
	char		guid[RECIPE_GUID_LEN + 1];
	char	   *data = zklock_nodedata_build(0);
	char	   *path;

	zklock_nodedata_make_guid(guid);
	path = psprintf("%s/%s" ZK_RELEASE_SUFFIX,
					strcmp(facts->root_path, "/") == 0 ? "" :
					facts->root_path, guid);
	facts->made_before = GetCurrentTimestamp();
	facts->making = zklock_client_create(zklock_session_client(), path,
										 ZK_EPHEMERAL, data,
										 (int) strlen(data));
	if (!take_fact(facts, &facts->made,
				   zklock_roundtrip_await(trip, facts->making)))
		return false;
	facts->made_after = GetCurrentTimestamp();
	forget(facts);
	zklock_session_await_undone(trip->deadline);
	return true;
}

/*
 * Look at some of the locks there are, the topmost first: does anybody stand
 * there who does not wait for the nodes that we make?
 */
static bool
look_for_strangers(ZkRoundTrip *trip, Facts *facts)
{
	char	  **paths = palloc(LISTS_MAX * sizeof(*paths));
	int64		now = zklock_client_now();
	int			npaths = 0;
	int			nreads = 0;

	facts->is_cut = facts->root.nbelow > NAMES_MAX;
	if (facts->root.result != ZK_OK || facts->is_cut)
		return true;
	trip->deadline = now + Min(STRANGERS_MS, (trip->deadline - now) / 2);
	paths[npaths++] = facts->root_path;
	for (; facts->nlists < npaths && facts->stranger_path == NULL;
		 facts->nlists++)
		if (!look_at_queue(trip, facts, paths[facts->nlists], paths, &npaths,
						   &nreads))
			break;
	if (!facts->is_late)
		return facts->nlists == npaths || facts->stranger_path != NULL;

	/* what there was no time for is no fault of anybody's */
	facts->is_late = false;
	facts->is_cut = true;
	return true;
}

/*
 * One of them; the names below it are added to those that are to follow.  In
 * the root there are nothing but names, whatever they end in.
 */
static bool
look_at_queue(ZkRoundTrip *trip, Facts *facts, const char *path,
			  char **paths, int *npaths, int *nreads)
{
	const ZkReply *reply = zklock_roundtrip_read(trip, zklock_client_list,
												 path);
	const char *above = strcmp(path, "/") == 0 ? "" : path;
	char	  **children;
	int			nchildren;

	facts->is_late = reply == NULL;
	if (reply == NULL || reply->result == ZK_SESSION_LOST)
		return false;
	if (reply->result != ZK_OK)
		return true;			/* gone, or not to be read */
	nchildren = Min(reply->nchildren, NAMES_MAX);
	facts->is_cut |= nchildren < reply->nchildren;
	children = palloc((nchildren + 1) * sizeof(*children));
	for (int i = 0; i < nchildren; i++)
		children[i] = pstrdup(reply->children[i]);
	for (int i = 0; i < nchildren; i++)
	{
		RecipeStyle style = strcmp(path, facts->root_path) == 0 ?
			RECIPE_STYLE_NONE : recipe_parse_node(children[i]).style;
		char	   *child = psprintf("%s/%s", above, children[i]);
		ZkNodeData	who = {0};

		CHECK_FOR_INTERRUPTS();
		if (style == RECIPE_STYLE_NONE)
		{
			if (zklock_name_is_reserved(children[i]))
				continue;
			if (*npaths < LISTS_MAX)
				paths[(*npaths)++] = child;
			else
				facts->is_cut = true;
			continue;
		}
		if (recipe_waits_for(style, zklock_name_style()))
			continue;
		if ((*nreads)++ >= READS_MAX)
		{
			facts->is_cut = true;
			return true;
		}
		reply = zklock_roundtrip_read(trip, zklock_client_get, child);
		facts->is_late = reply == NULL;
		if (reply == NULL || reply->result == ZK_SESSION_LOST)
			return false;
		if (reply->result != ZK_OK)
			continue;
		zklock_nodedata_parse(reply->data, reply->data_length, &who);
		if (who.client != NULL && strcmp(who.client, "zklock") == 0)
			continue;
		facts->stranger_path = pstrdup(path);
		facts->stranger_style = style;
		return true;
	}
	return true;
}

/* ---------------------------------------------------------------------
 * Rows
 * ---------------------------------------------------------------------
 */

static void
put_facts(const Facts *facts, int64 took_ms)
{
	Check	   *check = facts->check;

	if (facts->is_late)
		check_put(check, "session", CHECK_ERROR,
				  "See the rows of the servers; look into the network and the ensemble's load.",
				  zklock_session_was_connected() ?
				  "the ensemble has not answered all in zklock.connect_timeout, %s ms" :
				  "no session was granted in zklock.connect_timeout, %s ms",
				  check_setting("zklock.connect_timeout"));
	else
		put_session(check, facts, took_ms);
	if (facts->chroot.is_known)
		put_chroot(check, facts);
	if (facts->root.is_known)
		put_root(check, facts);
	if (facts->acl.is_known)
		put_acl(check, facts);
	if (facts->made.is_known)
		put_made(check, facts);
	if (facts->made.is_known && facts->made.result == ZK_OK)
		put_clock(check, facts);
	if ((facts->nlists > 0 || facts->is_cut) && !facts->is_late)
		put_strangers(check, facts);
}

static void
put_session(Check *check, const Facts *facts, int64 took_ms)
{
	int			asked = check_setting_int("zklock.session_timeout");
	ZkClientStatus status;

	if (!zklock_session_status(&status))
		return;
	check_put(check, "session", CHECK_OK, NULL,
			  "connected to %s; it took " INT64_FORMAT " ms to ask all this",
			  zklock_nodedata_printable(status.server), took_ms);
	if (status.session_timeout_ms != asked)
		check_put(check, "granted timeout", CHECK_WARNING,
				  "Set zklock.session_timeout to what the ensemble grants, or minSessionTimeout and maxSessionTimeout (2 and 20 ticks by default) of its servers. A session that is in use keeps its timeout until its locks are released.",
				  "%d ms were asked for, %d ms granted", asked,
				  status.session_timeout_ms);
	else
		check_put(check, "granted timeout", CHECK_OK, NULL,
				  "%d ms, as asked for", asked);
	put_digest(check);
}

/* With digest credentials it shows only later, at the second lock. */
static void
put_digest(Check *check)
{
	if (check->auth_scheme != NULL &&
		strcmp(check->auth_scheme, "digest") != 0)
		check_put(check, "digest", CHECK_NOTE, NULL,
				  "with credentials of scheme \"%s\" sessions have no identity of their own: no hand-over, and whoever has the credentials may write to queue nodes",
				  zklock_nodedata_quotable_own(check->auth_scheme));
	else if (check->auth_scheme == NULL && !zklock_session_can_hand_over())
		check_put(check, "digest", CHECK_NOTE,
				  "Enable the digest authentication of ZooKeeper.",
				  "the ensemble refuses digest authentication: no hand-over, and everybody may write to queue nodes");
	else
		check_put(check, "digest", CHECK_OK, NULL,
				  "the ensemble knows digest authentication");
}

static void
put_chroot(Check *check, const Facts *facts)
{
	char	   *path = zklock_nodedata_quotable(facts->chroot_path);

	if (facts->chroot.result == ZK_NO_NODE)
		check_put(check, "chroot", CHECK_WARNING,
				  "Is it mistyped in zklock.servers? Locks below another chroot are other locks. Otherwise create it, or leave that to the first lock.",
				  "znode \"%s\" does not exist", path);
	else if (facts->chroot.result == ZK_OK)
		check_put(check, "chroot", CHECK_OK, NULL,
				  "znode \"%s\" is there since %s", path,
				  date_text(facts->chroot.ctime_ms));
	else
		check_put(check, "chroot", CHECK_WARNING,
				  "See its ACL (getAcl in zkCli.sh), and zklock.auth.",
				  "znode \"%s\" cannot be read: %s", path,
				  facts->chroot.code_text);
}

static void
put_root(Check *check, const Facts *facts)
{
	char	   *path = zklock_nodedata_quotable(facts->root_path);

	if (facts->root.result == ZK_NO_NODE)
		check_put(check, "root", CHECK_NOTE,
				  "The first lock makes it. If there should be locks by now, zklock.root is mistyped: locks below another root are other locks.",
				  "znode \"%s\" does not exist yet", path);
	else if (facts->root.result == ZK_OK)
		check_put(check, "root", CHECK_OK, NULL,
				  "znode \"%s\" is there since %s, with %d znodes in it",
				  path, date_text(facts->root.ctime_ms), facts->root.nbelow);
	else
		check_put(check, "root", CHECK_ERROR,
				  "See its ACL (getAcl in zkCli.sh), and zklock.auth.",
				  "znode \"%s\" cannot be read: %s", path,
				  facts->root.code_text);
}

/* Without credentials all is open, and that was said. */
static void
put_acl(Check *check, const Facts *facts)
{
	char	   *path = zklock_nodedata_quotable(facts->root_path);

	if (facts->acl.result != ZK_OK)
		check_put(check, "acl", CHECK_NOTE, NULL,
				  "the ACL of znode \"%s\" cannot be read: %s", path,
				  facts->acl.code_text);
	else if (!facts->acl.is_open)
		check_put(check, "acl", CHECK_OK, NULL,
				  "not everybody may create and delete in znode \"%s\"", path);
	else
		check_put(check, "acl",
				  check->auth_scheme != NULL ? CHECK_WARNING : CHECK_OK,
				  check->auth_scheme != NULL ?
				  "Set its ACL by hand (setAcl in zkCli.sh) to that of your credentials, see docs/operations.md, ACLs." :
				  NULL,
				  check->auth_scheme != NULL ?
				  "everybody may create or delete in znode \"%s\", whatever zklock.auth is" :
				  "everybody may create and delete in znode \"%s\", as without zklock.auth it has to be",
				  path);
}

static void
put_made(Check *check, const Facts *facts)
{
	char	   *path = zklock_nodedata_quotable(facts->root_path);

	switch (facts->made.result)
	{
		case ZK_OK:
			check_put(check, "writing", CHECK_OK, NULL,
					  "a znode was made in \"%s\" in %.1f ms, and taken away",
					  path, (facts->made_after - facts->made_before) / 1000.0);
			break;
		case ZK_NO_AUTH:
			check_put(check, "writing", CHECK_ERROR,
					  zklock_session_has_credentials() ?
					  "Its ACL is for other credentials than those of zklock.auth (getAcl in zkCli.sh): all databases and clients of a lock need the same." :
					  "Its ACL is for those with credentials: set zklock.auth to them.",
					  "this session may not create znodes in \"%s\": no lock can be had",
					  path);
			break;
		case ZK_QUOTA_EXCEEDED:
			check_put(check, "writing", CHECK_ERROR,
					  "Raise the quota (setquota in zkCli.sh), or find out who has used it up.",
					  "a quota of ZooKeeper for \"%s\" is exceeded: no lock can be had",
					  path);
			break;
		default:
			check_put(check, "writing", CHECK_ERROR,
					  "Try again; see the servers' logs.",
					  "no znode could be made in \"%s\": %s", path,
					  facts->made.code_text);
			break;
	}
}

/* The ensemble's clock, the leader's, was read between two looks at ours. */
static void
put_clock(Check *check, const Facts *facts)
{
	int64		theirs;
	int64		off_ms = 0;
	bool		is_behind;
	CheckState	state;

	if (facts->made.ctime_ms <= 0 || facts->made.ctime_ms > DATE_MAX_MS)
		return;
	theirs = (facts->made.ctime_ms - EPOCH_DIFFERENCE_MS) * 1000;
	is_behind = theirs < facts->made_before - 1000;
	if (is_behind)
		off_ms = (facts->made_before - theirs) / 1000;
	else if (theirs > facts->made_after)
		off_ms = (theirs - facts->made_after) / 1000;
	state = off_ms > CLOCK_WARNING_MS ? CHECK_WARNING :
		off_ms > CLOCK_NOTE_MS ? CHECK_NOTE : CHECK_OK;
	check_put(check, "clock", state,
			  state == CHECK_OK ? NULL :
			  "Set the clocks (NTP). Locks do not depend on them; dates in views and the age of records of zk_run_once() do.",
			  off_ms == 0 ?
			  "the ensemble's clock is as ours, as far as can be seen" :
			  "the ensemble's clock is at least " INT64_FORMAT " ms %s ours",
			  off_ms, is_behind ? "behind" : "ahead of");
}

static void
put_strangers(Check *check, const Facts *facts)
{
	if (facts->stranger_path != NULL)
		check_put(check, "other clients", CHECK_WARNING,
				  "See zklock.node_style, and docs/interop.md.",
				  "in the queue of \"%s\" stands a contender of style \"%s\", which takes no notice of the queue nodes that this session makes",
				  zklock_nodedata_quotable(facts->stranger_path),
				  recipe_style_name(facts->stranger_style));
	else if (facts->nlists == 0)
		check_put(check, "other clients", CHECK_NOTE, NULL,
				  "no queue was looked at: there are too many znodes, or no time");
	else
		check_put(check, "other clients", CHECK_OK, NULL,
				  "all contenders in %d queues that were looked at wait for ours%s",
				  facts->nlists,
				  facts->is_cut ? "; there are more" : "");
}

static const char *
date_text(int64 unix_ms)
{
	if (unix_ms <= 0 || unix_ms > DATE_MAX_MS)
		return "an impossible date";
	return pstrdup(timestamptz_to_str((unix_ms - EPOCH_DIFFERENCE_MS) * 1000));
}
