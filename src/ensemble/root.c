/*-------------------------------------------------------------------------
 *
 * root.c
 *	  Could clients without the credentials change the root or a lock
 *	  (zklock.trusted_identities)? Refuses them then.
 *
 * The credentials of a session can be several identities for the ACL of a
 * znode, and only the server knows them.  So the session makes a znode of its
 * own in the root, and reads what the server has written into the ACL of that:
 * these are ours.  The znode is ephemeral, has a reserved name, and goes at
 * once.  Its create is a write, and the reads are behind it: what they tell is
 * not older, however far the server lags behind the leader.
 *
 *-------------------------------------------------------------------------
 */
#include "root.h"

#include "common/string.h"
#include "nodes/pg_list.h"
#include "utils/memutils.h"
#include "utils/guc.h"
#include "utils/varlena.h"

#include "name.h"
#include "nodedata.h"
#include "parents.h"
#include "session.h"
#include "text.h"

#define EVERYBODY "world:anyone"

/* So often our own znode or the child may be missing: then we may make none. */
#define UNCLEAR_MAX 3

/* zklock.trusted_identities: a list of "scheme:id", as an ACL has them. */
static char *trusted_setting;

/*
 * The root that is safe, the session that has asked, and the identities of that
 * (List of char *, in TopMemoryContext); 0: none has.
 */
static char known_root[RECIPE_PATH_SIZE];
static ZkSessionNumber known_by;
static List *known_own;

/* The question under way, of the trip that has asked it. */
static struct
{
	char		root[RECIPE_PATH_SIZE];
	char		child[RECIPE_PATH_SIZE + sizeof(ZK_ROOT_CHILD)];
	char		probe[RECIPE_PATH_SIZE + RECIPE_GUID_LEN +
					  sizeof(ZK_RELEASE_SUFFIX)];
	ZkSessionNumber session;
	int			nunclear;		/* how often in a row one was not found */
}			Asked;

static bool is_known(const char *path, int root_length);
static bool judge_root(ZkRoundTrip *trip);
static bool judge_acl(const ZkReply *acl, const ZkReply *child,
					  const ZkReply *own);
static bool judge_lock(const ZkReply *acl, const char *path);
static List *own_of(const ZkReply *own);
static const char *stranger_of(const ZkReply *acl, const List *own);
static bool is_one_of(const char *identity, const List *identities);
static bool is_hidden(const char *identity);
pg_noreturn static void refuse_znode(const char *path, const char *identity);
static List *split_trusted(const char *setting);
static bool check_trusted(char **newval, void **extra, GucSource source);

static bool
is_known(const char *path, int root_length)
{
	return known_by == zklock_session_number() &&
		strncmp(known_root, path, root_length) == 0 &&
		known_root[root_length] == '\0';
}

void
zklock_root_ask(ZkRoundTrip *trip, const char *path, int root_length)
{
	ZkClient   *client = zklock_session_client();
	const char *root = Asked.root;
	char		guid[RECIPE_GUID_LEN + 1];

	Assert(zklock_session_has_credentials());
	if (is_known(path, root_length))
	{
		zklock_roundtrip_begin_read(trip, ZK_GET_ACL, path);
		return;
	}
	if (strncmp(Asked.root, path, root_length) != 0 ||
		Asked.root[root_length] != '\0')
		Asked.nunclear = 0;
	snprintf(Asked.root, sizeof(Asked.root), "%.*s", root_length, path);
	snprintf(Asked.child, sizeof(Asked.child), "%s/" ZK_ROOT_CHILD, root);
	zklock_nodedata_make_guid(guid);
	snprintf(Asked.probe, sizeof(Asked.probe), "%s/%s" ZK_RELEASE_SUFFIX,
			 root, guid);
	Asked.session = zklock_session_number();
	if (root_length == 0)
		root = "/";
	zklock_client_begin_many(client);
	{
		ZkRequest  *probe = zklock_client_create(client, Asked.probe,
												 ZK_EPHEMERAL, NULL);

		zklock_roundtrip_begin_read(trip, ZK_GET_ACL, root);
		zklock_roundtrip_begin_read(trip, ZK_GET, Asked.child);
		zklock_roundtrip_begin_read(trip, ZK_GET_ACL, Asked.probe);
		zklock_roundtrip_begin_read(trip, ZK_GET_ACL, path);
		zklock_client_withdraw(probe);
	}
	zklock_client_end_many(client);
}

ZkOutcome
zklock_root_judge(ZkRoundTrip *trip, const char *path, int root_length,
				  bool *is_safe)
{
	ZkOutcome	outcome = zklock_roundtrip_await_reads(trip);

	*is_safe = outcome == ZK_ANSWERED &&
		(is_known(path, root_length) || judge_root(trip)) &&
		judge_lock(zklock_roundtrip_find_reply(trip, ZK_GET_ACL, path), path);
	zklock_roundtrip_end_reads(trip, list_length(trip->reads));
	return outcome;
}

/* Is the root itself?  Keeps what is known then. */
static bool
judge_root(ZkRoundTrip *trip)
{
	const char *root = Asked.root[0] == '\0' ? "/" : Asked.root;
	const ZkReply *own = zklock_roundtrip_find_reply(trip, ZK_GET_ACL,
													 Asked.probe);
	bool		is_safe;

	Assert(Asked.session == zklock_session_number());
	is_safe = judge_acl(zklock_roundtrip_find_reply(trip, ZK_GET_ACL, root),
						zklock_roundtrip_find_reply(trip, ZK_GET, Asked.child),
						own);
	if (is_safe)
	{
		MemoryContext caller = MemoryContextSwitchTo(TopMemoryContext);

		known_by = 0;
		list_free_deep(known_own);
		known_own = NIL;
		known_own = own_of(own);
		MemoryContextSwitchTo(caller);
		strlcpy(known_root, Asked.root, sizeof(known_root));
		known_by = Asked.session;
	}
	return is_safe;
}

ZkOutcome
zklock_root_prove(ZkRoundTrip *trip, const char *path, int root_length)
{
	const ZkReply *refusal;

	if (!zklock_session_has_credentials())
		return ZK_ANSWERED;
	for (int attempts = 0;; attempts++)
	{
		bool		is_safe;	/* of the root alone matters */
		ZkOutcome	outcome;

		zklock_root_ask(trip, path, root_length);
		outcome = zklock_root_judge(trip, path, root_length, &is_safe);
		if (outcome != ZK_ANSWERED || is_known(path, root_length))
			return outcome;
		if (attempts >= PARENT_ATTEMPTS)
			zklock_parents_raise_deleted(path);
		outcome = zklock_parents_make(trip, Asked.child, root_length, &refusal);
		if (outcome != ZK_ANSWERED)
			return outcome;
		if (refusal != NULL)
			zklock_session_raise(refusal, "create the root", Asked.root);
	}
}

ZkOutcome
zklock_root_find_stranger(ZkRoundTrip *trip, const char *path, int root_length,
						  char **stranger)
{
	const char *root = root_length == 0 ? "/" : Asked.root;
	ZkOutcome	outcome;

	*stranger = NULL;
	known_by = 0;				/* its ACL may have been changed since */
	zklock_root_ask(trip, path, root_length);
	outcome = zklock_roundtrip_await_reads(trip);
	if (outcome == ZK_ANSWERED)
	{
		const ZkReply *acl = zklock_roundtrip_find_reply(trip, ZK_GET_ACL, root);
		const ZkReply *own = zklock_roundtrip_find_reply(trip, ZK_GET_ACL,
														 Asked.probe);
		const char *found = NULL;

		if (acl->result == ZK_OK && own->result == ZK_OK)
			found = stranger_of(acl, own_of(own));
		*stranger = found != NULL ? pstrdup(found) : NULL;
	}
	zklock_roundtrip_end_reads(trip, list_length(trip->reads));
	return outcome;
}

/*
 * The replies: the ACL of the root, its child, and the ACL of our own znode in
 * it.  If that one cannot be made, no identity counts as ours.  It is not found
 * either if the connection broke, and it was withdrawn before it was read.
 */
static bool
judge_acl(const ZkReply *acl, const ZkReply *child, const ZkReply *own)
{
	const char *stranger;

	if (acl->result == ZK_NO_NODE)
		return false;
	if (acl->result != ZK_OK)
		zklock_session_raise(acl, "read the ACL of the root", Asked.root);
	stranger = stranger_of(acl, own_of(own));
	if (stranger != NULL)
	{
		if (own->result == ZK_NO_NODE && ++Asked.nunclear < UNCLEAR_MAX)
			return false;
		Asked.nunclear = 0;
		refuse_znode(Asked.root[0] == '\0' ? "/" : Asked.root, stranger);
	}

	/*
	 * A root that somebody has made by hand.  Until it has the child, a client
	 * that may delete the znodes of the one above can delete it and make
	 * another one, so it is asked about again.  "/" itself cannot be deleted.
	 */
	if (child->result == ZK_NO_NODE && Asked.root[0] != '\0' &&
		++Asked.nunclear < UNCLEAR_MAX)
	{
		/* the next question goes out behind it */
		zklock_client_free(zklock_client_create(zklock_session_client(),
												Asked.child, ZK_PERSISTENT,
												NULL));
		return false;
	}
	Asked.nunclear = 0;
	return true;
}

/*
 * Who may change the znode of the lock can delete the queue nodes in it, whoever
 * may change the root: it may have been made before the root had its ACL.
 * Below a root in which the session may make no znode it does not know its own
 * identities.  Then ZooKeeper decides whether it may use the znode, and only
 * one that is everybody's is refused.
 */
static bool
judge_lock(const ZkReply *acl, const char *path)
{
	const char *stranger = NULL;

	if (acl->result == ZK_NO_NODE)
		return false;
	if (acl->result != ZK_OK)
		zklock_session_raise(acl, "read the ACL of the znode of the lock", path);
	if (known_own != NIL)
		stranger = stranger_of(acl, known_own);
	else
		for (int i = 0; i < acl->nchildren; i++)
			if (strcmp(acl->children[i], EVERYBODY) == 0)
				stranger = EVERYBODY;
	if (stranger != NULL)
		refuse_znode(path, stranger);
	return true;
}

/* Our identities, as the ACL of our own znode has them, palloc'ed. */
static List *
own_of(const ZkReply *own)
{
	List	   *identities = NIL;

	for (int i = 0; own->result == ZK_OK && i < own->nchildren; i++)
		identities = lappend(identities, pstrdup(own->children[i]));
	return identities;
}

/* The first one who may change the znode and is not trusted; NULL: nobody. */
static const char *
stranger_of(const ZkReply *acl, const List *own)
{
	List	   *trusted = split_trusted(trusted_setting);

	for (int i = 0; i < acl->nchildren; i++)
	{
		const char *identity = acl->children[i];

		/* everybody is nobody's identity, also if the server gives all to all */
		if (strcmp(identity, EVERYBODY) == 0 ||
			(!is_one_of(identity, own) && !is_one_of(identity, trusted)))
			return identity;
	}
	return NULL;
}

static bool
is_one_of(const char *identity, const List *identities)
{
	foreach_ptr(const char, one, identities)
		if (strcmp(one, identity) == 0)
			return true;
	return false;
}

/* As ZooKeeper shows one to clients without the right to administer the znode. */
static bool
is_hidden(const char *identity)
{
	return strncmp(identity, "digest:", 7) == 0 &&
		pg_str_endswith(identity, ":x");
}

static void
refuse_znode(const char *path, const char *identity)
{
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("znode \"%s\" of ZooKeeper locks can be changed by others",
					zklock_text_quotable(path)),
			 errdetail("Its ACL gives more than to read to \"%s\", which is not an identity of this session. Such a client can delete the znodes of locks that are held.",
					   zklock_text_quotable(identity)),
			 is_hidden(identity) ?
			 errhint("Give the credentials of this session admin in the ACL: ZooKeeper hides identities from others. See docs/install.md, The ACL of the root.") :
			 errhint("Correct the ACL with \"setAcl -R\" in ZooKeeper's zkCli.sh, or add the identity to \"%s\" if you trust it. See docs/install.md, The ACL of the root.",
					 "zklock.trusted_identities")));
}

/* ---------------------------------------------------------------------
 * The setting
 * ---------------------------------------------------------------------
 */

void
zklock_root_init(void)
{
	DefineCustomStringVariable("zklock.trusted_identities",
							   "Identities besides the credentials of this cluster that may change the root.",
							   "A list of scheme:id, as the DETAIL of the error has them. Double quotes enclose one with a comma.",
							   &trusted_setting, "",
							   PGC_SIGHUP, GUC_SUPERUSER_ONLY | GUC_LIST_INPUT,
							   check_trusted, NULL, NULL);
}

/* The identities, in memory of the list; its text is palloc'ed, too. */
static List *
split_trusted(const char *setting)
{
	List	   *identities;

	if (!SplitGUCList(pstrdup(setting), ',', &identities))
		Assert(false);			/* check_trusted() has */
	return identities;
}

static bool
check_trusted(char **newval, void **extra, GucSource source)
{
	List	   *identities;

	if (!SplitGUCList(pstrdup(*newval), ',', &identities))
	{
		GUC_check_errdetail("List syntax is invalid.");
		return false;
	}
	foreach_ptr(const char, identity, identities)
	{
		const char *colon = strchr(identity, ':');

		if (colon == NULL || colon == identity || colon[1] == '\0')
		{
			GUC_check_errdetail("\"%s\" is not of the form scheme:id.",
								identity);
			return false;
		}
		if (is_hidden(identity))
		{
			GUC_check_errdetail("\"%s\" is what ZooKeeper shows to clients without the right to administer the znode.",
								identity);
			return false;
		}
		if (strncmp(identity, "world:", 6) == 0)
		{
			GUC_check_errdetail("\"%s\" is every client, which would make the root open.",
								identity);
			return false;
		}
	}
	return true;
}
