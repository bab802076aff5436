/*-------------------------------------------------------------------------
 *
 * name.c
 *	  Makes paths of names (zklock.root), and says why a name is refused.
 *
 * What a name may be is decided in recipe_name.c; encodings are
 * name_spelling.c's; here are the settings and the words of the errors.
 *
 *-------------------------------------------------------------------------
 */
#include "name.h"

#include "common/string.h"
#include "mb/pg_wchar.h"
#include "utils/guc.h"

#include "foreign.h"
#include "name_spelling.h"
#include "session.h"

/*
 * zklock.root: znode below which the names live.  Read at each call; a lock
 * taken under another root before a change is another lock.
 */
static char *root_setting;

/*
 * zklock.node_style: which other clients are to wait for our queue nodes.
 * Read when a lock is taken; all backends wait for all styles in any case.
 */
static int	node_style = RECIPE_STYLE_CURATOR;

/* How much is shown of a name that is too long, in bytes. */
#define QUOTE_MAX 64

static const struct config_enum_entry node_style_options[] = {
	{"curator", RECIPE_STYLE_CURATOR, false},
	{"curator_rw", RECIPE_STYLE_CURATOR_RW, false},
	{"kazoo", RECIPE_STYLE_KAZOO, false},
	{NULL, 0, false}
};

static char *path_below_root(const char *utf8, int *root_length);
static char *name_to_utf8(const char *what, const char *name);
static char *to_server(const char *utf8);
static void refuse_reserved(const char *name);
static char *slot_to_utf8(const char *slot);
pg_noreturn static void raise_bad_name(const char *what, const char *name,
									   const char *utf8, RecipeNameError error,
									   size_t offset);
static const char *hint_of_list(const char *what, const char *name);
static bool check_root(char **newval, void **extra, GucSource source);

void
zklock_name_init(void)
{
	DefineCustomStringVariable("zklock.root",
							   "Znode below which all locks are.",
							   "It is created on demand.",
							   &root_setting, "/zklock",
							   PGC_SUSET, 0,
							   check_root, NULL, NULL);
	DefineCustomEnumVariable("zklock.node_style",
							 "ZooKeeper client whose names for queue nodes zklock uses.",
							 "curator (InterProcessMutex), curator_rw (InterProcessReadWriteLock), or kazoo.",
							 &node_style, RECIPE_STYLE_CURATOR,
							 node_style_options,
							 PGC_SUSET, 0,
							 NULL, NULL, NULL);
}

RecipeStyle
zklock_name_style(void)
{
	return node_style;
}

bool
zklock_name_check_root(const char *root)
{
	if (recipe_is_root(root))
		return true;
	GUC_check_errdetail("A root is an absolute path without a slash at its end, of at most %d bytes and %d components, not below \"/zookeeper\".",
						RECIPE_ROOT_MAX, RECIPE_DEPTH_MAX);
	return false;
}

ZkName
zklock_name_make(const char *text)
{
	ZkName		name = {.text = text};
	char	   *utf8 = name_to_utf8("lock name", text);
	char	   *path;

	refuse_reserved(text);
	path = path_below_root(utf8, &name.root_length);
	name.path = pstrdup(path);	/* that has room to spare, and there may be many */
	pfree(path);
	if (name.root_length == 0 &&
		(strcmp(utf8, "zookeeper") == 0 || strncmp(utf8, "zookeeper/", 10) == 0))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_NAME),
				 errmsg("invalid lock name \"%s\"", text),
				 errdetail("The znode \"/zookeeper\" is ZooKeeper's own.")));
	pfree(utf8);
	return name;
}

const char *
zklock_name_below_root(const ZkName *name)
{
	return name->path + name->root_length + 1;
}

char *
zklock_name_path_of_utf8(const char *utf8)
{
	int			root_length;

	return path_below_root(utf8, &root_length);
}

char *
zklock_name_root_path(void)
{
	int			root_length;
	char	   *path = path_below_root("any", &root_length);

	path[root_length] = '\0';
	return path;
}

/* The path of that znode, palloc'ed; *root_length is that of what is above it. */
static char *
path_below_root(const char *utf8, int *root_length)
{
	char	   *path = palloc(RECIPE_PATH_SIZE);
	const char *below = strcmp(root_setting, "/") == 0 ? "" : root_setting;
	char	   *root = psprintf("%s%s", zklock_session_chroot(), below);

	if (strlen(root) > RECIPE_ROOT_MAX ||
		!recipe_lock_path(path, root, utf8))
		ereport(ERROR,
				(errcode(ERRCODE_NAME_TOO_LONG),
				 errmsg("root of ZooKeeper locks is too long"),
				 errdetail("The chroot of \"zklock.servers\" and \"zklock.root\" together have more than %d bytes.",
						   RECIPE_ROOT_MAX)));
	*root_length = strlen(root);
	pfree(root);
	return path;
}

char *
zklock_name_root(void)
{
	char	   *path = zklock_name_root_path();

	return zklock_name_root_of(path[0] == '\0' ? "/" : path, strlen(path));
}

char *
zklock_name_root_of(const char *path, int root_length)
{
	StringInfoData root;
	size_t		nbytes;

	initStringInfo(&root);
	/* the root "/" is none, in a path */
	for (size_t left = Max(root_length, 1); left > 0; path += nbytes, left -= nbytes)
	{
		uint32		number;
		char		escape[FOREIGN_ESCAPE_SIZE];

		nbytes = foreign_take(path, left, &number);
		if (number < 0x80 && number != '<')
			appendStringInfoChar(&root, *path);
		else
		{
			foreign_escape(escape, number, (unsigned char) *path);
			appendStringInfoString(&root, escape);
		}
	}
	return root.data;
}

char *
zklock_name_runs_path(const ZkName *name, int *root_length)
{
	if (root_length != NULL)
		*root_length = name->root_length + 1 + strlen(ZK_RUNS_SUFFIX);
	return psprintf("%.*s/" ZK_RUNS_SUFFIX "%s" ZK_RUNS_SUFFIX,
					name->root_length, name->path,
					name->path + name->root_length);
}

char *
zklock_name_run_path(const ZkName *name, const char *slot, int *root_length)
{
	return psprintf("%s/%s" ZK_RUNS_SUFFIX,
					zklock_name_runs_path(name, root_length),
					slot_to_utf8(slot));
}

char *
zklock_name_waits_path(void)
{
	return psprintf("%s/" ZK_WAITS_NAME "/" ZK_WAITS_IN_POSTGRES,
					zklock_name_root_path());
}

/* A slash would begin another component. */
char *
zklock_name_lease_path(const ZkName *name)
{
	StringInfoData pointer;

	initStringInfo(&pointer);
	appendStringInfo(&pointer, "%.*s/" ZK_LEASES_NAME "/", name->root_length,
					 name->path);
	for (const char *c = zklock_name_below_root(name); *c != '\0'; c++)
	{
		if (*c == '/')
			appendStringInfoString(&pointer, "%2F");
		else if (*c == '%')
			appendStringInfoString(&pointer, "%25");
		else
			appendStringInfoChar(&pointer, *c);
	}
	return pointer.data;
}

char *
zklock_name_leased_path(const char *root, const char *child)
{
	char	   *path = palloc(RECIPE_PATH_SIZE);
	StringInfoData name;
	size_t		offset;

	initStringInfo(&name);
	while (*child != '\0')
	{
		bool		is_escape = *child == '%' && strlen(child) > 2;
		bool		is_slash = strncmp(child, "%2F", 3) == 0;

		appendStringInfoChar(&name, is_slash ? '/' : *child);
		child += is_escape ? 3 : 1;
	}
	if (recipe_check_name(name.data, &offset) != RECIPE_NAME_OK ||
		!recipe_lock_path(path, root, name.data))
		return NULL;
	return path;
}

bool
zklock_name_is_advisory(const char *name)
{
	return strncmp(name, ZK_ADVISORY_PREFIX, strlen(ZK_ADVISORY_PREFIX)) == 0;
}

bool
zklock_name_is_reserved(const char *component)
{
	return pg_str_endswith(component, ZK_RUNS_SUFFIX) ||
		pg_str_endswith(component, ZK_RELEASE_SUFFIX) ||
		strcmp(component, ZK_WAITS_NAME) == 0 ||
		strcmp(component, ZK_LEASES_NAME) == 0 ||
		strcmp(component, ZK_ROOT_CHILD) == 0;
}

/*
 * Raise 42602 for a name with a component that zklock's own znodes can have.
 */
static void
refuse_reserved(const char *name)
{
	const char *rest = name;

	while (rest != NULL)
	{
		size_t		length = strcspn(rest, "/");
		char	   *component = pnstrdup(rest, length);

		if (zklock_name_is_reserved(component))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_NAME),
					 errmsg("invalid lock name \"%s\"", name),
					 errdetail("The component \"%s\" is a name that zklock uses for its own znodes.",
							   component),
					 errhint("Choose a name in which no component ends in \"%s\" or \"%s\", or is \"%s\", \"%s\" or \"%s\".",
							 ZK_RUNS_SUFFIX, ZK_RELEASE_SUFFIX, ZK_WAITS_NAME,
							 ZK_LEASES_NAME, ZK_ROOT_CHILD)));
		pfree(component);
		rest = rest[length] == '/' ? rest + length + 1 : NULL;
	}
}

/*
 * The slot in UTF-8, checked like a component of a name.  It may look like a
 * queue node, since there is a suffix behind it.
 */
static char *
slot_to_utf8(const char *slot)
{
	char	   *utf8 = name_to_utf8("slot", slot);

	if (strchr(slot, '/') != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_NAME),
				 errmsg("invalid slot \"%s\"", slot),
				 errdetail("The slot contains a slash."),
				 errhint("A slot is one component, for example \"2026-11-20\".")));
	return utf8;
}

/*
 * The name in UTF-8, as ZooKeeper wants it, checked, palloc'ed.  Raises at once
 * if it is too long, for it may have megabytes.
 */
static char *
name_to_utf8(const char *what, const char *name)
{
	char	   *utf8;
	RecipeNameError error;
	size_t		offset;

	if (strlen(name) > RECIPE_NAME_MAX)
		raise_bad_name(what, name, "", recipe_check_name(name, &offset), 0);
	utf8 = zklock_name_utf8(name);
	if (utf8 == NULL)
		zklock_name_raise_no_utf8(what);
	error = recipe_check_name(utf8, &offset);
	if (error == RECIPE_NAME_LIKE_QUEUE_NODE && strcmp(what, "slot") == 0)
		error = RECIPE_NAME_OK;
	if (error != RECIPE_NAME_OK)
		raise_bad_name(what, name, utf8, error, offset);
	return utf8;
}

/* The other way round. */
static char *
to_server(const char *utf8)
{
	return pg_any_to_server(utf8, strlen(utf8), PG_UTF8);
}

/* what is "lock name" or "slot". */
static void
raise_bad_name(const char *what, const char *name, const char *utf8,
			   RecipeNameError error, size_t offset)
{
	const char *noun = zklock_name_noun(what);
	const char *part = utf8 + offset;
	const char *detail = "";
	const char *hint = NULL;

	if (strlen(name) > RECIPE_NAME_MAX)
		name = psprintf("%.*s...", pg_mbcliplen(name, strlen(name), QUOTE_MAX),
						name);
	switch (error)
	{
		case RECIPE_NAME_OK:
			break;
		case RECIPE_NAME_EMPTY:
			detail = psprintf("The %s is empty.", noun);
			break;
		case RECIPE_NAME_LIST:
			detail = psprintf("The %s has the form of an array. A driver sends a list as such a text if it does not know the type of the parameter.",
							  noun);
			hint = hint_of_list(what, name);
			break;
		case RECIPE_NAME_TOO_LONG:
			detail = psprintf("The %s has more than %d bytes.",
							  noun, RECIPE_NAME_MAX);
			break;
		case RECIPE_NAME_TOO_DEEP:
			detail = psprintf("The name has more than %d components.",
							  RECIPE_DEPTH_MAX);
			break;
		case RECIPE_NAME_EMPTY_COMPONENT:
			detail = "The name has an empty component.";
			hint = "Write components with a single slash in between, for example \"team/nightly\".";
			break;
		case RECIPE_NAME_DOTS:
			detail = "The components \".\" and \"..\" are not allowed.";
			break;
		case RECIPE_NAME_ENCODING:
			detail = psprintf("The %s is not valid UTF-8 at byte %zu.",
							  noun, offset + 1);
			break;
		case RECIPE_NAME_CHARACTER:
			detail = psprintf("ZooKeeper does not allow the character at byte %zu. It allows no control characters, no characters of private use, and none beyond U+FFEF.",
							  offset + 1);
			break;
		case RECIPE_NAME_LIKE_QUEUE_NODE:
			part = pnstrdup(part, strcspn(part, "/"));
			if (offset == 0)
				detail = psprintf("The component \"%s\" has the form of a queue node of another ZooKeeper client, which would take it for a contender if the znode above it were a lock.",
								  to_server(part));
			else
				detail = psprintf("The component \"%s\" has the form of a queue node of another ZooKeeper client, which would take it for a contender in the queue of \"%s\".",
								  to_server(part), to_server(pnstrdup(utf8, offset - 1)));
			hint = "Choose a name in which no component begins with \"_c_\", or has \"__lock__\", \"__rlock__\", \"__READ__\", \"__WRIT__\" or Hive's \"LOCK-...-\" before a number at its end.";
			break;
	}
	/* a name that is not valid text cannot be quoted */
	if (error == RECIPE_NAME_ENCODING)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_NAME),
				 errmsg("invalid %s", what),
				 errdetail("%s", detail)));
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_NAME),
			 errmsg("invalid %s \"%s\"", what, name),
			 errdetail("%s", detail),
			 hint != NULL ? errhint("%s", hint) : 0));
}

/* What to do instead of a list; of one in brackets PostgreSQL makes no array. */
static const char *
hint_of_list(const char *what, const char *name)
{
	if (strcmp(what, "slot") == 0)
		return "Give one slot in each call.";
	if (name[0] == '[')
		return "To take several locks, call zk_lock_set() or another function whose name ends in \"_set\", and let the driver send an array, as \"{a,b}\". All other functions take one name at a time.";
	return "To take several locks, call zk_lock_set() or another function whose name ends in \"_set\". All other functions take one name at a time.";
}

static bool
check_root(char **newval, void **extra, GucSource source)
{
	return zklock_name_check_root(*newval);
}
