/*-------------------------------------------------------------------------
 *
 * fuzz_recipe.c
 *	  A libFuzzer target for src/common/recipe.c and src/common/servers.c:
 *	  arbitrary bytes go into every function, and the answers are held against
 *	  oracles.
 *
 * The oracles are written another way than the code under test, plainly and
 * slowly: regular expressions for the names of nodes, all pairs for the
 * verdict.  A broken promise aborts.
 *
 *	clang -g -O1 -fsanitize=fuzzer,address,undefined -Isrc
 *		test/unit/fuzz_recipe.c src/common/recipe.c src/common/servers.c
 *
 *-------------------------------------------------------------------------
 */
#include "recipe.h"
#include "servers.h"

#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Like assert(), but never compiled out. */
#define CHECK(condition) \
	do { \
		if (!(condition)) \
		{ \
			fprintf(stderr, "%s:%d: broken: %s\n", __FILE__, __LINE__, \
					#condition); \
			abort(); \
		} \
	} while (0)

/* Longest input that is looked at, and most children made of it. */
#define INPUT_MAX 4096
#define CHILDREN_MAX 40

/* What "$" stands for in a child, so that the fuzzer finds whole names. */
#define GUID "0f8fad5b-d9cb-469f-a165-70867728950e"

#define POSITIVE "[0-9]{10}$"
#define NEGATIVE "(^|[-_])-([0-9]{9}|[1-9][0-9]{9})$"

/* Style and mode of a child by regular expression; the first match decides. */
typedef struct Pattern
{
	const char *text;
	RecipeStyle style;
	RecipeMode	mode;
	regex_t		compiled;
} Pattern;

/* Both forms of the number; a sign needs a separator, which the marks end in. */
#define NUMBER "([0-9]{10}|-[0-9]{9}|-[1-9][0-9]{9})$"

static Pattern patterns[] = {
	{"^_c_.*-shared-lock-" NUMBER, RECIPE_STYLE_ZKLOCK_SHARED, RECIPE_SHARED, {0}},
	{"^_c_.{36}-permits-([2-9]|[1-9][0-9]{1,3}|10000)-lock-" NUMBER,
	RECIPE_STYLE_ZKLOCK_PERMITS, RECIPE_EXCLUSIVE, {0}},
	{"^_c_.*-lock-" NUMBER, RECIPE_STYLE_CURATOR, RECIPE_EXCLUSIVE, {0}},
	{"__READ__" NUMBER, RECIPE_STYLE_CURATOR_RW, RECIPE_SHARED, {0}},
	{"__WRIT__" NUMBER, RECIPE_STYLE_CURATOR_RW, RECIPE_EXCLUSIVE, {0}},
	{"(-shared__lock__|__rlock__)" NUMBER, RECIPE_STYLE_KAZOO, RECIPE_SHARED, {0}},
	{"__lock__" NUMBER, RECIPE_STYLE_KAZOO, RECIPE_EXCLUSIVE, {0}},
	{"^LOCK-(EXCLUSIVE|SEMI_SHARED)-" NUMBER, RECIPE_STYLE_HIVE, RECIPE_EXCLUSIVE, {0}},
	{"^LOCK-SHARED-" NUMBER, RECIPE_STYLE_HIVE, RECIPE_SHARED, {0}},
	{"^(lock|write|semaphore)-" NUMBER, RECIPE_STYLE_DOTNET, RECIPE_EXCLUSIVE, {0}},
	{"^read-" NUMBER, RECIPE_STYLE_DOTNET, RECIPE_SHARED, {0}},
	{"^x-([0-9a-fA-F]+|-[0-9]+)-" NUMBER, RECIPE_STYLE_ZK_RECIPE, RECIPE_EXCLUSIVE, {0}},
	{POSITIVE, RECIPE_STYLE_UNKNOWN, RECIPE_EXCLUSIVE, {0}},
	{NEGATIVE, RECIPE_STYLE_UNKNOWN, RECIPE_EXCLUSIVE, {0}},
};

#define NPATTERNS (sizeof(patterns) / sizeof(patterns[0]))

static regex_t negative;

static void
compile(regex_t *compiled, const char *pattern)
{
	if (regcomp(compiled, pattern, REG_EXTENDED | REG_NOSUB) != 0)
		abort();
}

static bool
matches(const regex_t *compiled, const char *text)
{
	return regexec(compiled, text, 0, NULL, 0) == 0;
}

/* What recipe_parse_node() ought to say. */
static RecipeNode
oracle_node(const char *child)
{
	RecipeNode	node = {RECIPE_STYLE_NONE, RECIPE_EXCLUSIVE, 1, 0};
	const char *minus = strrchr(child, '-');
	size_t		length = strlen(child);
	long long	value;

	for (size_t i = 0; i < NPATTERNS; i++)
	{
		if (matches(&patterns[i].compiled, child))
		{
			node.style = patterns[i].style;
			node.mode = patterns[i].mode;
			break;
		}
	}
	if (node.style == RECIPE_STYLE_NONE)
		return node;
	if (node.style == RECIPE_STYLE_ZKLOCK_PERMITS)
		node.permits = atoi(child + strlen("_c_" GUID "-permits-"));

	value = strtoll(matches(&negative, child) ? minus : child + length - 10,
					NULL, 10);
	node.sequence = value > INT32_MAX ? INT32_MAX :
		value < INT32_MIN ? INT32_MIN : (int32_t) value;
	return node;
}

static void
check_child(const char *child)
{
	RecipeNode	expected = oracle_node(child);
	RecipeNode	got = recipe_parse_node(child);

	CHECK(got.style == expected.style);
	CHECK(got.mode == expected.mode);
	CHECK(got.permits == expected.permits);
	CHECK(got.style == RECIPE_STYLE_NONE || got.sequence == expected.sequence);
	CHECK(recipe_style_name(got.style)[0] != '\0');
	CHECK(recipe_compare_nodes(child, child) == 0);
}

/* A name is either good in every component, or the offence lies within it. */
static void
check_name(const char *name)
{
	static char path[RECIPE_PATH_SIZE];
	size_t		offset;
	RecipeNameError error = recipe_check_name(name, &offset);
	char		copy[RECIPE_NAME_MAX + 1];
	char	   *save = NULL;

	CHECK(offset <= strlen(name));
	if (error != RECIPE_NAME_OK)
		return;

	CHECK(strlen(name) >= 1 && strlen(name) <= RECIPE_NAME_MAX);
	CHECK(name[0] != '/' && name[strlen(name) - 1] != '/' &&
		  strstr(name, "//") == NULL);
	strcpy(copy, name);
	for (char *component = strtok_r(copy, "/", &save); component != NULL;
		 component = strtok_r(NULL, "/", &save))
	{
		RecipeStyle style = recipe_parse_node(component).style;

		/*
		 * A number may end it, and no mark of a client may stand before that.
		 * "lock-" and the like are no marks: ids have such words, too, and
		 * those who make such entries have sessions.
		 */
		CHECK(component == copy || style == RECIPE_STYLE_NONE ||
			  style == RECIPE_STYLE_ZK_RECIPE ||
			  style == RECIPE_STYLE_DOTNET || style == RECIPE_STYLE_UNKNOWN);
		CHECK(strcmp(component, ".") != 0 && strcmp(component, "..") != 0);
	}
	for (const unsigned char *c = (const unsigned char *) name; *c; c++)
		CHECK(*c >= 0x20 && *c != 0x7F && *c != 0xC0 && *c != 0xC1 && *c < 0xF0);

	CHECK(recipe_lock_path(path, "/zklock", name));
	CHECK(strncmp(path, "/zklock/", 8) == 0 && strcmp(path + 8, name) == 0);
}

/*
 * Is each component, by itself, a good name, and does none but the first look
 * like a contender?  What makes a list of a name means nothing in a root.
 */
static bool
has_good_components(const char *path)
{
	char		component[RECIPE_ROOT_MAX + 1];
	size_t		offset;

	for (int depth = 1; depth <= RECIPE_DEPTH_MAX; depth++)
	{
		size_t		size = strcspn(path, "/");
		RecipeNameError error;

		memcpy(component, path, size);
		component[size] = '\0';
		if (depth > 1 &&
			recipe_parse_node(component).style != RECIPE_STYLE_NONE)
			return false;
		if (component[0] == '{' || component[0] == '[')
			component[0] = 'a';
		error = recipe_check_name(component, &offset);
		if (error != RECIPE_NAME_OK && error != RECIPE_NAME_LIKE_QUEUE_NODE)
			return false;
		if (path[size] == '\0')
			return true;
		path += size + 1;
	}
	return false;
}

/* A root is "/", or a slash and good components. */
static void
check_root(const char *root)
{
	static char path[RECIPE_PATH_SIZE];
	bool		is_good;

	is_good = strcmp(root, "/") == 0 ||
		(root[0] == '/' && strlen(root) <= RECIPE_ROOT_MAX &&
		 strcmp(root, "/zookeeper") != 0 &&
		 strncmp(root, "/zookeeper/", 11) != 0 &&
		 has_good_components(root + 1));
	CHECK(recipe_is_root(root) == is_good);

	/* Any two strings: it fits, or says that it does not. */
	memset(path, 'x', sizeof(path));
	if (recipe_lock_path(path, root, root))
	{
		CHECK(strlen(path) + 1 + RECIPE_NODE_SIZE <= RECIPE_PATH_SIZE);
		CHECK(strlen(path) >= strlen(root) + 1);
	}
	else
		CHECK(path[0] == '\0' && !is_good);
}

/* Is node i ahead of our node, and does it exclude us? */
static bool
is_blocker(const RecipeNode *nodes, int i, int own, RecipeMode mode)
{
	bool		is_reader = nodes[i].style == RECIPE_STYLE_CURATOR_RW &&
		nodes[i].mode == RECIPE_SHARED;

	if (i == own || nodes[i].style == RECIPE_STYLE_NONE)
		return false;
	if (own >= 0 && nodes[i].sequence > nodes[own].sequence)
		return false;
	if (own >= 0 && nodes[i].sequence == nodes[own].sequence && !is_reader)
		return false;			/* exhausted, anyhow */
	return mode == RECIPE_EXCLUSIVE || nodes[i].mode != RECIPE_SHARED;
}

/* The first contender of all if it is ahead of own, else -1. */
static int
first_ahead(const RecipeNode *nodes, int n, int own)
{
	int			first = -1;

	for (int i = 0; i < n; i++)
		if (is_blocker(nodes, i, own, RECIPE_EXCLUSIVE) &&
			(first < 0 || nodes[i].sequence < nodes[first].sequence))
			first = i;
	return first;
}

/* Hold a verdict against all pairs of children; own is -1 for a newcomer. */
static void
check_verdict(const RecipeNode *nodes, int n, int own, RecipeMode mode,
			  RecipeVerdict verdict, int watch)
{
	bool		is_exhausted = false;
	int			first;

	for (int i = 0; i < n; i++)
	{
		if (nodes[i].style == RECIPE_STYLE_NONE)
			continue;
		if (nodes[i].sequence < 0 || nodes[i].sequence >= RECIPE_SEQUENCE_LIMIT)
			is_exhausted = true;
		if (own >= 0 && i != own &&
			nodes[i].sequence == nodes[own].sequence &&
			(nodes[i].style != RECIPE_STYLE_CURATOR_RW ||
			 nodes[i].mode != RECIPE_SHARED))
			is_exhausted = true;
	}

	CHECK((verdict == RECIPE_EXHAUSTED) == is_exhausted);
	CHECK((verdict == RECIPE_WAIT || verdict == RECIPE_MISMATCH) ==
		  (watch >= 0));
	CHECK(watch >= -1 && watch < n);
	if (is_exhausted)
		return;
	first = first_ahead(nodes, n, own);
	CHECK((verdict == RECIPE_MISMATCH) ==
		  (first >= 0 && nodes[first].permits > 1));
	if (verdict == RECIPE_MISMATCH)
	{
		CHECK(watch == first);
		return;
	}

	for (int i = 0; i < n; i++)
	{
		bool		is_nearest = is_blocker(nodes, i, own, mode);

		CHECK(verdict != RECIPE_HELD || !is_nearest);
		for (int j = 0; j < n; j++)
		{
			if (is_blocker(nodes, j, own, mode) &&
				nodes[j].sequence > nodes[i].sequence)
				is_nearest = false;
		}
		CHECK(i != watch || is_nearest);
	}
}

/*
 * The same for a semaphore: who holds it is a matter of counting; own is -1 for
 * a newcomer.
 */
static void
check_permits(const char *const *children, const RecipeNode *nodes, int n,
			  int own, int permits)
{
	int			watch = -4711;
	RecipeWish	wish = {
		.mine = own < 0 ? NULL : children[own],
		.permits = permits
	};
	RecipeVerdict verdict = recipe_verdict(children, n, &wish, &watch);
	int			nahead = 0;
	int			first;
	bool		is_mixed = false;

	CHECK(verdict != RECIPE_GONE && watch >= -1 && watch < n);
	if (verdict == RECIPE_EXHAUSTED)
	{
		CHECK(watch == -1);
		return;
	}
	for (int i = 0; i < n; i++)
	{
		if (!is_blocker(nodes, i, own, RECIPE_EXCLUSIVE))
			continue;
		nahead++;
		is_mixed |= nodes[i].permits != permits;
	}
	first = first_ahead(nodes, n, own);
	CHECK((verdict == RECIPE_MISMATCH) ==
		  (first >= 0 && nodes[first].permits != permits));
	if (verdict == RECIPE_MISMATCH)
	{
		CHECK(nodes[watch].permits != permits &&
			  nodes[watch].sequence == nodes[first].sequence);
		return;
	}
	CHECK((verdict == RECIPE_HELD) == (nahead < permits && !is_mixed));
	CHECK((watch >= 0) == (nahead > permits || is_mixed));
	for (int i = 0; i < n && watch >= 0; i++)
		CHECK(!is_blocker(nodes, i, own, RECIPE_EXCLUSIVE) ||
			  nodes[i].sequence <= nodes[watch].sequence);
}

/* Ask for one contender, whose node is called `mine`. */
static void
check_contender(const char *const *children, const RecipeNode *nodes, int n,
				const char *mine)
{
	int			own = -1;

	/* Children of a znode are unique, lists of the fuzzer's are not. */
	for (int i = n - 1; i >= 0; i--)
		if (strcmp(children[i], mine) == 0)
			own = i;

	for (int mode = RECIPE_EXCLUSIVE; mode <= RECIPE_SHARED; mode++)
	{
		int			watch = -4711;
		RecipeWish	wish = {.mine = mine,.mode = mode,.permits = 1};
		RecipeVerdict verdict = recipe_verdict(children, n, &wish, &watch);

		CHECK((verdict != RECIPE_GONE) == (own >= 0));
		if (own < 0)
		{
			CHECK(watch == -1);
			continue;
		}
		check_verdict(nodes, n, own, mode, verdict, watch);
		for (int permits = 2; permits < 5; permits++)
			check_permits(children, nodes, n, own, permits);
	}
}

/* Is the comparison antisymmetric, transitive, and does it tell all apart? */
static void
check_order(const char *const *children, int n)
{
	for (int i = 0; i < n; i++)
	{
		for (int j = 0; j < n; j++)
		{
			int			ij = recipe_compare_nodes(children[i], children[j]);
			int			ji = recipe_compare_nodes(children[j], children[i]);
			int			next = (j + 1) % n;

			CHECK((ij < 0) == (ji > 0) && (ij > 0) == (ji < 0));
			CHECK((ij == 0) == (strcmp(children[i], children[j]) == 0));
			if (ij < 0 && recipe_compare_nodes(children[j], children[next]) < 0)
				CHECK(recipe_compare_nodes(children[i], children[next]) < 0);
		}
	}
}

static void
check_list(const char *const *children, int n)
{
	RecipeNode	nodes[CHILDREN_MAX];

	for (int i = 0; i < n; i++)
	{
		check_child(children[i]);
		nodes[i] = oracle_node(children[i]);
	}

	for (int i = 0; i < n; i++)
		if (nodes[i].style != RECIPE_STYLE_NONE)
			check_contender(children, nodes, n, children[i]);
	check_contender(children, nodes, n, "_c_" GUID "-lock-");

	for (int mode = RECIPE_EXCLUSIVE; mode <= RECIPE_SHARED; mode++)
	{
		int			watch = -4711;
		RecipeWish	wish = {.mode = mode,.permits = 1};
		RecipeVerdict verdict = recipe_verdict(children, n, &wish, &watch);
		CHECK(verdict != RECIPE_GONE);
		check_verdict(nodes, n, -1, mode, verdict, watch);
	}

	check_order(children, n);
}

/* What is accepted is within bounds and, if numeric, resolves without DNS. */
static void
check_servers(const char *text)
{
	static ServerList list;
	static ServerAddresses result;
	static HostAddresses hosts[SERVERS_MAX];
	const HostAddresses *known[SERVERS_MAX];
	static char written[SERVERS_TEXT_SIZE];
	char		why[SERVERS_WHY_SIZE];
	int			ncommas = 0;
	bool		is_numeric = true;

	if (!servers_parse(text, &list, why))
	{
		CHECK(why[0] != '\0' && strlen(why) < sizeof(why) - 1);
		return;
	}

	CHECK(why[0] == '\0');
	CHECK(list.nservers >= 1 && list.nservers <= SERVERS_MAX);
	CHECK(list.chroot[0] == '\0' || list.chroot[0] == '/');
	CHECK(strcmp(list.chroot, "/") != 0 && strchr(list.chroot, ',') == NULL);
	for (int i = 0; i < list.nservers; i++)
	{
		CHECK(list.servers[i].port >= 1 && list.servers[i].port <= 65535);
		CHECK(list.servers[i].host[0] != '\0');
		CHECK(strpbrk(list.servers[i].host, " \t\r\n,/[]%") == NULL);
		is_numeric &= servers_is_numeric(list.servers[i].host);
	}

	if (!is_numeric)
		return;
	for (int i = 0; i < list.nservers; i++)
	{
		servers_look_up(list.servers[i].host, &hosts[i]);
		known[i] = &hosts[i];
	}
	CHECK(servers_collect(&list, known, &result));
	CHECK(result.complaint[0] == '\0');
	CHECK(servers_write(&result, 1, written) == (result.count | 1));
	for (const char *c = written; *c != '\0'; c++)
		ncommas += *c == ',';
	CHECK(ncommas % 2 == 0 && ncommas <= list.nservers);
}

/*
 * Split a text at newlines into at most CHILDREN_MAX children; each "$" becomes
 * a GUID.  *children are the caller's to free.
 */
static int
split_children(const char *text, char *children[CHILDREN_MAX])
{
	int			n = 0;

	while (n < CHILDREN_MAX)
	{
		size_t		length = strcspn(text, "\n");
		char	   *out = malloc(length * strlen(GUID) + 1);

		children[n++] = out;
		for (size_t i = 0; i < length; i++)
		{
			if (text[i] == '$')
				out = stpcpy(out, GUID);
			else
				*out++ = text[i];
		}
		*out = '\0';

		if (text[length] == '\0')
			break;
		text += length + 1;
	}
	return n;
}

/* Formatting, for any random bytes. */
static void
check_guid(const uint8_t *bytes)
{
	char		guid[RECIPE_GUID_LEN + 1];
	char		prefix[RECIPE_NODE_SIZE];

	recipe_format_guid(guid, bytes);
	CHECK(strlen(guid) == RECIPE_GUID_LEN);
	CHECK(guid[14] == '4' && strchr("89ab", guid[19]) != NULL);
	recipe_mark(guid, RECIPE_MARK_HAND_OVER);
	CHECK(strlen(guid) == RECIPE_GUID_LEN && guid[14] == '8');
	recipe_node_prefix(prefix, RECIPE_STYLE_CURATOR, RECIPE_EXCLUSIVE, RECIPE_PERMITS_MAX, guid);
	CHECK(strlen(prefix) + strlen("-2147483648") < RECIPE_NODE_SIZE);
	recipe_node_prefix(prefix, RECIPE_STYLE_CURATOR, RECIPE_SHARED, 1, guid);
	CHECK(strlen(prefix) + strlen("-2147483648") < RECIPE_NODE_SIZE);
	CHECK(recipe_parse_node(prefix).style == RECIPE_STYLE_NONE);
}

int			LLVMFuzzerInitialize(int *argc, char ***argv);
int			LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void) argc;
	(void) argv;
	for (size_t i = 0; i < NPATTERNS; i++)
		compile(&patterns[i].compiled, patterns[i].text);
	compile(&negative, NEGATIVE);
	return 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char	   *text;
	char	   *children[CHILDREN_MAX];
	int			nchildren;

	if (size > INPUT_MAX)
		return 0;

	/* On the heap and exactly as long, for reads beyond it to be seen. */
	text = malloc(size + 1);
	memcpy(text, data, size);
	text[size] = '\0';

	check_name(text);
	check_root(text);
	check_servers(text);
	if (size >= 16)
		check_guid(data);

	/* In a list of children a NUL separates, as a newline does. */
	for (size_t i = 0; i < size; i++)
	{
		if (text[i] == '\0')
			text[i] = '\n';
	}
	nchildren = split_children(text, children);
	check_list((const char *const *) children, nchildren);

	for (int i = 0; i < nchildren; i++)
		free(children[i]);
	free(text);
	return 0;
}
