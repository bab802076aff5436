/*-------------------------------------------------------------------------
 *
 * program_acl.c
 *	  The session's program: who may do what with the znodes that it makes.
 *
 * Queue nodes can be handed over (contender_watch.c) if nobody but this
 * session can set their data, so each session has an identity of its own, a
 * random password.  Without credentials of the user's that is all: "auth" in
 * an ACL stands for it.
 *
 * With credentials there are two, and "auth" would stand for both.  Others
 * who have the credentials may be other programs, Curator's Revoker for one,
 * which writes into queue nodes; so they may do everything but that.  For
 * such an ACL both have to be named.  How a server names who has presented a
 * password is its affair (DigestAuthenticationProvider, digestAlg), so it is
 * not computed here but read from nodes that "auth" has been resolved in: at
 * first the credentials alone are presented, and the ACL of the first queue
 * node says what they are called, the owners.  Then the identity is presented
 * too, and the ACL of the next queue node has its name.
 *
 * The owners also tell whether a lock's znode is closed: nobody else can have
 * created anything in it.
 *
 *-------------------------------------------------------------------------
 */
#include "program.h"

#include <stdlib.h>
#include <string.h>

/* What everybody who has the credentials may do with a queue node of ours. */
#define OWNER_PERMS (ZOO_PERM_ALL & ~ZOO_PERM_WRITE)

/* Two more: the identity, and everybody. */
static struct ACL entries[ACL_OWNERS_MAX + 2];
static struct ACL_vector acl = {0, entries};

static const struct ACL_vector *name_auth(void);
static const struct ACL_vector *name_owners(const Session *session,
											int32_t perms,
											const struct Id *identity);
static void add_entry(int32_t perms, struct Id id);
static bool learn_owners(Session *session, const struct ACL_vector *learnt);
static bool learn_identity(Session *session, const struct ACL_vector *learnt);
static void forget_owners(Session *session);
static bool is_owner(const Session *session, const struct Id *id);
static bool is_everybody(const struct Id *id);
static bool is_same(const struct Id *a, const struct Id *b);
static bool copy_id(struct Id *to, const struct Id *from);

/*
 * With credentials only their owner may change our nodes; everybody may read,
 * which other clients of the recipe need to wait behind us.  The parents are
 * everybody's, as with every other client, unless the credentials are the
 * user's.
 */
const struct ACL_vector *
acl_for(const Session *session, ZkNodeKind kind)
{
	bool		is_queue_node = kind == ZK_EPHEMERAL ||
		kind == ZK_EPHEMERAL_SEQUENTIAL;
	bool		is_parent = kind == ZK_PERSISTENT || kind == ZK_CONTAINER;

	if (session->auth_scheme == NULL ||
		(session->is_auth_private && is_parent))
		return &ZOO_OPEN_ACL_UNSAFE;
	switch (session->acl_stage)
	{
		case ACL_BY_AUTH:
		case ACL_LEARNING_OWNERS:
			return name_auth();
		case ACL_LEARNING_IDENTITY:
			return is_queue_node ? name_auth() :
				name_owners(session, ZOO_PERM_ALL, NULL);
		case ACL_KNOWN:
			break;
	}
	return is_queue_node ?
		name_owners(session, OWNER_PERMS, &session->identity_name) :
		name_owners(session, ZOO_PERM_ALL, NULL);
}

bool
acl_wants_to_learn(const Session *session, ZkNodeKind kind)
{
	return kind == ZK_EPHEMERAL_SEQUENTIAL &&
		(session->acl_stage == ACL_LEARNING_OWNERS ||
		 session->acl_stage == ACL_LEARNING_IDENTITY);
}

/*
 * The identity is presented behind all that has been sent, save for what is
 * still in the library's queue: a parent made so would name the identity
 * among its owners, and be taken for open.
 */
void
acl_learn(Session *session, const struct ACL_vector *learnt)
{
	if (learnt->data == NULL)
		return;					/* a server can say so */
	if (session->acl_stage == ACL_LEARNING_OWNERS &&
		learn_owners(session, learnt))
	{
		zoo_add_auth(session->zh, "digest", session->identity,
					 (int) strlen(session->identity), NULL, NULL);
		session->acl_stage = ACL_LEARNING_IDENTITY;
	}
	else if (session->acl_stage == ACL_LEARNING_IDENTITY &&
			 learn_identity(session, learnt))
	{
		session->acl_stage = ACL_KNOWN;
		session->status.can_hand_over = true;
		session->is_status_news = true;
		session_report(session);
	}
}

/*
 * An ACL that was changed says nothing of who could create before; the number
 * of changes is kept with it.
 */
bool
acl_is_closed(const Session *session, const struct ACL_vector *asked,
			  const struct Stat *stat)
{
	if (session->nowners == 0 || asked == NULL || stat == NULL ||
		stat->aversion != 0 || asked->count <= 0 || asked->data == NULL)
		return false;
	for (int i = 0; i < asked->count; i++)
		if ((asked->data[i].perms & (ZOO_PERM_CREATE | ZOO_PERM_ADMIN)) != 0 &&
			!is_owner(session, &asked->data[i].id))
			return false;
	return true;
}

bool
acl_is_open(const struct ACL_vector *asked)
{
	for (int i = 0; asked != NULL && asked->data != NULL &&
		 i < asked->count; i++)
		if ((asked->data[i].perms & (ZOO_PERM_CREATE | ZOO_PERM_DELETE |
									 ZOO_PERM_ADMIN)) != 0 &&
			is_everybody(&asked->data[i].id))
			return true;
	return false;
}

void
acl_free(Session *session)
{
	forget_owners(session);
	free(session->identity_name.scheme);
	free(session->identity_name.id);
	explicit_bzero(session->identity, sizeof(session->identity));
}

/* ---------------------------------------------------------------------
 * Making them
 * ---------------------------------------------------------------------
 */

/* Whoever has presented what this session has. */
static const struct ACL_vector *
name_auth(void)
{
	acl.count = 0;
	add_entry(ZOO_PERM_ALL, ZOO_AUTH_IDS);
	add_entry(ZOO_PERM_READ, ZOO_ANYONE_ID_UNSAFE);
	return &acl;
}

/* The owners, and, if there is one, the identity, which may do everything. */
static const struct ACL_vector *
name_owners(const Session *session, int32_t perms, const struct Id *identity)
{
	acl.count = 0;
	for (int i = 0; i < session->nowners; i++)
		add_entry(perms, session->owners[i]);
	if (identity != NULL)
		add_entry(ZOO_PERM_ALL, *identity);
	add_entry(ZOO_PERM_READ, ZOO_ANYONE_ID_UNSAFE);
	return &acl;
}

static void
add_entry(int32_t perms, struct Id id)
{
	entries[acl.count].perms = perms;
	entries[acl.count++].id = id;
}

/* ---------------------------------------------------------------------
 * Learning the names
 * ---------------------------------------------------------------------
 */

/* Who is in it but everybody.  Without memory there are no owners. */
static bool
learn_owners(Session *session, const struct ACL_vector *learnt)
{
	for (int i = 0; i < learnt->count; i++)
	{
		const struct Id *id = &learnt->data[i].id;

		if (is_everybody(id))
			continue;
		if (session->nowners == ACL_OWNERS_MAX ||
			!copy_id(&session->owners[session->nowners], id))
		{
			session->acl_stage = ACL_BY_AUTH;
			forget_owners(session);
			return false;
		}
		session->nowners++;
	}
	return session->nowners > 0;
}

/* The one that is new in it, if it is one: the node may be from before. */
static bool
learn_identity(Session *session, const struct ACL_vector *learnt)
{
	const struct Id *found = NULL;

	for (int i = 0; i < learnt->count; i++)
	{
		const struct Id *id = &learnt->data[i].id;

		if (is_everybody(id) || is_owner(session, id))
			continue;
		if (found != NULL)
			return false;
		found = id;
	}
	return found != NULL && copy_id(&session->identity_name, found);
}

static void
forget_owners(Session *session)
{
	while (session->nowners > 0)
	{
		session->nowners--;
		free(session->owners[session->nowners].scheme);
		free(session->owners[session->nowners].id);
	}
}

static bool
is_owner(const Session *session, const struct Id *id)
{
	for (int i = 0; i < session->nowners; i++)
		if (is_same(&session->owners[i], id))
			return true;
	return false;
}

static bool
is_everybody(const struct Id *id)
{
	return is_same(id, &ZOO_ANYONE_ID_UNSAFE);
}

/* A server can send an entry without scheme or id; it is nobody's. */
static bool
is_same(const struct Id *a, const struct Id *b)
{
	return a->scheme != NULL && b->scheme != NULL && a->id != NULL &&
		b->id != NULL && strcmp(a->scheme, b->scheme) == 0 &&
		strcmp(a->id, b->id) == 0;
}

static bool
copy_id(struct Id *to, const struct Id *from)
{
	if (from->scheme == NULL || from->id == NULL)
		return false;
	to->scheme = strdup(from->scheme);
	to->id = strdup(from->id);
	return to->scheme != NULL && to->id != NULL;
}
