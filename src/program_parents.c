/*-------------------------------------------------------------------------
 *
 * program_parents.c
 *	  The session's program: the containers that this session has made.
 *
 * A lock's znode, and what is above it up to the root, are containers, which
 * the server removes when they are empty: some 10,000 a minute, no more
 * (ContainerManager, maxPerMinute).  Who locks many names, each of them once,
 * makes them faster than that.  So who has made a container takes it away
 * again, at the end of the session at the latest.  But not at once: a name
 * that is used again must not cost a flush more.  Up to KEPT_MAX that nothing
 * of ours is in any more are kept; beyond, the one that was used longest ago
 * goes, in whatever flush comes next.  One that was not used yet is about to
 * be.
 *
 * The one rule: nothing depends on it.  A server refuses to remove what
 * others are in; who finds no container makes one; and what is forgotten here
 * is the server's to remove.
 *
 *-------------------------------------------------------------------------
 */
#include "program.h"

#include <stdlib.h>
#include <string.h>

/*
 * How many containers that nothing of ours is in are kept for the next time.
 * Who goes round more names than that makes each of them anew.
 */
#define KEPT_MAX 128

/*
 * How many containers are in the list at most, those in use included: each
 * request walks through it.  More are left to the server.
 */
#define PARENTS_MAX 512

/* How many queue nodes the end of a session deletes one by one. */
#define END_NODES_MAX 4

/* A queue node of ours. */
typedef struct Node
{
	struct Node *next;
	char		name[];
} Node;

/* A container.  In a list, that which was used last first. */
struct Parent
{
	Parent	   *next;
	int			nparents;		/* containers of ours in it */
	Node	   *nodes;			/* queue nodes of ours in it */
	bool		was_used;		/* has anything of ours been in it? */
	size_t		length;			/* of the path */
	char		path[];
};

static Parent *find(Session *session, const char *path, size_t length);
static size_t length_above(const char *path);
static bool is_idle(const Parent *parent);
static void remove_surplus(Session *session);
static void forget(Session *session, Parent **link);

void
parents_note_made(Session *session, const char *path)
{
	size_t		length = strlen(path);
	Parent	   *above;
	Parent	   *parent;

	if (find(session, path, length) != NULL ||	/* it had gone meanwhile */
		session->nparents == PARENTS_MAX)
		return;
	above = find(session, path, length_above(path));
	parent = calloc(1, sizeof(*parent) + length + 1);
	if (parent == NULL)
		return;
	if (above != NULL)
	{
		session->nidle -= is_idle(above);
		above->nparents++;
		above->was_used = true;
	}
	memcpy(parent->path, path, length);
	parent->length = length;
	parent->next = session->parents;
	session->parents = parent;
	session->nparents++;
}

void
parents_note_node(Session *session, const char *path)
{
	size_t		length = length_above(path);
	Parent	   *parent = find(session, path, length);
	const char *name = path + length + 1;
	Node	   *node;

	session->nnodes++;
	if (parent == NULL)
		return;
	node = malloc(sizeof(*node) + strlen(name) + 1);
	if (node == NULL)
		return;
	strcpy(node->name, name);
	session->nidle -= is_idle(parent);
	parent->was_used = true;
	node->next = parent->nodes;
	parent->nodes = node;
}

void
parents_note_gone(Session *session, const char *path)
{
	size_t		length = length_above(path);
	Parent	   *parent = find(session, path, length);

	if (session->nnodes > 0)
		session->nnodes--;
	if (parent == NULL)
		return;
	for (Node **link = &parent->nodes; *link != NULL; link = &(*link)->next)
	{
		Node	   *node = *link;

		if (strcmp(node->name, path + length + 1) != 0)
			continue;
		*link = node->next;
		free(node);
		session->nidle += is_idle(parent);
		remove_surplus(session);
		return;
	}
}

/*
 * The next session may use the same names, and will make their containers
 * anew.  Those in others come first.
 *
 * Locks are more important than empty containers, and a close that is sent
 * while requests are unanswered may be lost (R4).  So where there are more
 * nodes than a few, or nodes in what others have made, the close is all that
 * is sent.  Otherwise the deletes that go first let go of the locks, should
 * it be lost.
 */
void
parents_end(Session *session)
{
	int			nnodes = 0;

	for (Parent *parent = session->parents; parent != NULL;
		 parent = parent->next)
		for (Node *node = parent->nodes; node != NULL; node = node->next)
			nnodes++;
	if (nnodes != session->nnodes || nnodes > END_NODES_MAX)
		return;
	for (Parent *parent = session->parents; parent != NULL;
		 parent = parent->next)
		for (Node *node = parent->nodes; node != NULL; node = node->next)
			request_remove(session, parent->path, node->name);
	while (session->parents != NULL)
	{
		Parent	  **link = &session->parents;

		while ((*link)->nparents > 0 && (*link)->next != NULL)
			link = &(*link)->next;
		request_remove(session, (*link)->path, NULL);
		forget(session, link);
	}
}

void
parents_free(Session *session)
{
	while (session->parents != NULL)
		forget(session, &session->parents);
}

/*
 * The container with that path, which comes to the front of the list; or
 * NULL.
 */
static Parent *
find(Session *session, const char *path, size_t length)
{
	for (Parent **link = &session->parents; *link != NULL;
		 link = &(*link)->next)
	{
		Parent	   *parent = *link;

		if (parent->length != length ||
			memcmp(parent->path, path, length) != 0)
			continue;
		*link = parent->next;
		parent->next = session->parents;
		session->parents = parent;
		return parent;
	}
	return NULL;
}

/* How much of a path is that of the node above. */
static size_t
length_above(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash != NULL ? (size_t) (slash - path) : 0;
}

static bool
is_idle(const Parent *parent)
{
	return parent->was_used && parent->nodes == NULL && parent->nparents == 0;
}

/*
 * If there are too many, remove the one without anything of ours that was
 * used first.
 */
static void
remove_surplus(Session *session)
{
	while (session->nidle > KEPT_MAX)
	{
		Parent	  **oldest = NULL;

		for (Parent **link = &session->parents; *link != NULL;
			 link = &(*link)->next)
			if (is_idle(*link))
				oldest = link;
		if (oldest == NULL)
			return;
		request_remove(session, (*oldest)->path, NULL);
		forget(session, oldest);
	}
}

/* Take a container out of the list. */
static void
forget(Session *session, Parent **link)
{
	Parent	   *parent = *link;
	size_t		above = length_above(parent->path);

	*link = parent->next;
	session->nparents--;
	session->nidle -= is_idle(parent);
	for (Parent *other = session->parents; other != NULL; other = other->next)
		if (other->length == above &&
			memcmp(other->path, parent->path, above) == 0)
		{
			other->nparents--;
			session->nidle += is_idle(other);
		}
	while (parent->nodes != NULL)
	{
		Node	   *node = parent->nodes;

		parent->nodes = node->next;
		free(node);
	}
	free(parent);
}
