/*-------------------------------------------------------------------------
 *
 * recipe.c
 *	  The lock recipe as pure functions: lock names and znode paths, names of
 *	  queue nodes, their order, and the verdict over a list of children.
 *
 * Values in, verdict out.  Where a name leaves room for doubt the answer is
 * the one that can only make us wait: a sequenced stranger is an exclusive
 * contender, and numbers that do not order the queue are never guessed at.
 *
 *-------------------------------------------------------------------------
 */
#include "recipe.h"

#include <stdio.h>
#include <string.h>

/* The server appends the sequence number as "%010d". */
#define SEQUENCE_DIGITS 10

/*
 * The third group of a GUID that marks a node as one to be handed over: of
 * version 8 (RFC 9562: for uses of one's own), so that no other client's
 * random GUID, which is of version 4, has it by chance.
 */
#define HAND_OVER_GROUP "8a11"
#define HAND_OVER_OFFSET 14		/* in the GUID */

/* The same for a node of zk_hold(). */
#define HOLD_GROUP "8a12"

/* How the clients we know name a queue node, up to its sequence number. */
typedef struct StyleMark
{
	const char *start;			/* what the prefix starts with; NULL if `end`
								 * is the whole prefix */
	const char *end;			/* what the prefix ends with */
	RecipeStyle style;
	RecipeMode	mode;
} StyleMark;

/*
 * The first mark that fits decides, so a longer ending stands before the
 * shorter one that it contains.  Nothing else may ever be taken for shared.
 */
static const StyleMark style_marks[] = {
	{"_c_", "-shared-lock-", RECIPE_STYLE_ZKLOCK_SHARED, RECIPE_SHARED},
	{"_c_", "-lock-", RECIPE_STYLE_CURATOR, RECIPE_EXCLUSIVE},
	{"", "__READ__", RECIPE_STYLE_CURATOR_RW, RECIPE_SHARED},
	{"", "__WRIT__", RECIPE_STYLE_CURATOR_RW, RECIPE_EXCLUSIVE},
	{"", "-shared__lock__", RECIPE_STYLE_KAZOO, RECIPE_SHARED},
	{"", "__rlock__", RECIPE_STYLE_KAZOO, RECIPE_SHARED},
	{"", "__lock__", RECIPE_STYLE_KAZOO, RECIPE_EXCLUSIVE},
	{NULL, "LOCK-EXCLUSIVE-", RECIPE_STYLE_HIVE, RECIPE_EXCLUSIVE},
	{NULL, "LOCK-SEMI_SHARED-", RECIPE_STYLE_HIVE, RECIPE_EXCLUSIVE},
	{NULL, "LOCK-SHARED-", RECIPE_STYLE_HIVE, RECIPE_SHARED},
	{NULL, "lock-", RECIPE_STYLE_DOTNET, RECIPE_EXCLUSIVE},
	{NULL, "write-", RECIPE_STYLE_DOTNET, RECIPE_EXCLUSIVE},
	{NULL, "semaphore-", RECIPE_STYLE_DOTNET, RECIPE_EXCLUSIVE},
	{NULL, "read-", RECIPE_STYLE_DOTNET, RECIPE_SHARED},
};

/* What stands before the number of permits, behind the GUID. */
#define PERMITS_MARK "-permits-"

#define NUM_STYLE_MARKS (sizeof(style_marks) / sizeof(style_marks[0]))

static RecipeNameError check_components(const char *path, size_t start,
										size_t *offset, size_t *length);
static RecipeNameError check_component(const char *component, size_t size,
									   size_t *offset, size_t *length);
static RecipeNameError check_characters(const char *component, size_t size,
										size_t *offset, size_t *length);
static RecipeNameError check_character(uint32_t code);
static bool decode_utf8(const char *text, uint32_t *code, size_t *length);
static bool split_node(const char *child, size_t length,
					   size_t *prefix_length, int32_t *sequence);
static bool ends_in_sign(const char *text, size_t length);
static int32_t read_sequence(const char *digits, size_t ndigits,
							 bool is_negative);
static RecipeNode recognize_prefix(const char *prefix, size_t length);
static bool fits_mark(const StyleMark *mark, const char *prefix,
					  size_t length);
static int	read_permits(const char *prefix, size_t length);
static bool is_zk_recipe_prefix(const char *prefix, size_t length);
static int	find_own(const char *const *children, int nchildren,
					 const char *mine);
static RecipeVerdict judge_queue(const char *const *children, int nchildren,
								 RecipeMode mode, int own, int *watch);
static bool has_mark(const char *child, const char *group);
static bool is_orderly(int32_t sequence);
static bool may_share_number(const RecipeNode *node);
static bool is_digit(char c);
static bool is_hex_digit(char c);

RecipeNameError
recipe_check_name(const char *name, size_t *offset, size_t *length)
{
	*offset = 0;
	*length = strlen(name);

	if (*length == 0)
		return RECIPE_NAME_EMPTY;
	if (*length > RECIPE_NAME_MAX)
		return RECIPE_NAME_TOO_LONG;
	return check_components(name, 0, offset, length);
}

RecipeNameError
recipe_check_root(const char *root, size_t *offset, size_t *length)
{
	RecipeNameError error;
	size_t		first_length;

	*offset = 0;
	*length = strlen(root);

	if (*length == 0)
		return RECIPE_NAME_EMPTY;
	if (*length > RECIPE_ROOT_MAX)
		return RECIPE_NAME_TOO_LONG;
	if (root[0] != '/')
		return RECIPE_NAME_NOT_ABSOLUTE;
	if (*length == 1)
	{
		*length = 0;
		return RECIPE_NAME_OK;
	}

	error = check_components(root, 1, offset, length);
	if (error != RECIPE_NAME_OK)
		return error;

	first_length = strcspn(root + 1, "/");
	if (first_length == strlen("zookeeper") &&
		memcmp(root + 1, "zookeeper", first_length) == 0)
	{
		*offset = 1;
		*length = first_length;
		return RECIPE_NAME_RESERVED;
	}
	return RECIPE_NAME_OK;
}

bool
recipe_lock_path(char *path, const char *root, const char *name)
{
	size_t		root_length = strcmp(root, "/") == 0 ? 0 : strlen(root);
	size_t		name_length = strlen(name);

	/* Each against its own bound first, so that the sum cannot overflow. */
	if (root_length >= RECIPE_PATH_SIZE || name_length >= RECIPE_PATH_SIZE ||
		root_length + 1 + name_length + 1 + RECIPE_NODE_SIZE > RECIPE_PATH_SIZE)
	{
		path[0] = '\0';
		return false;
	}

	memcpy(path, root, root_length);
	path[root_length] = '/';
	memcpy(path + root_length + 1, name, name_length + 1);
	return true;
}

void
recipe_node_prefix(char prefix[RECIPE_NODE_SIZE], RecipeStyle style,
				   RecipeMode mode, int permits, const char *guid)
{
	bool		is_shared = mode == RECIPE_SHARED;
	const char *mark = is_shared ? "-shared-lock-" : "-lock-";

	if (permits > 1)
	{
		snprintf(prefix, RECIPE_NODE_SIZE, "_c_%.*s" PERMITS_MARK "%d-lock-",
				 RECIPE_GUID_LEN, guid, permits);
		return;
	}

	/*
	 * Kazoo's own mark of a reader, __rlock__, would not do: its plain Lock
	 * takes no notice of that.
	 */
	if (style == RECIPE_STYLE_CURATOR_RW)
		mark = is_shared ? "-__READ__" : "-__WRIT__";
	else if (style == RECIPE_STYLE_KAZOO)
		mark = is_shared ? "-shared__lock__" : "-pg__lock__";
	snprintf(prefix, RECIPE_NODE_SIZE, "_c_%.*s%s", RECIPE_GUID_LEN, guid, mark);
}

bool
recipe_waits_for(RecipeStyle theirs, RecipeStyle ours)
{
	switch (theirs)
	{
		case RECIPE_STYLE_NONE: /* is no contender */
		case RECIPE_STYLE_ZKLOCK_SHARED:	/* count every style */
		case RECIPE_STYLE_ZKLOCK_PERMITS:
		case RECIPE_STYLE_ALL:
			return true;
		case RECIPE_STYLE_CURATOR:
		case RECIPE_STYLE_ZK_RECIPE:
			return ours == RECIPE_STYLE_CURATOR || ours == RECIPE_STYLE_ALL;
		case RECIPE_STYLE_CURATOR_RW:
		case RECIPE_STYLE_KAZOO:
			return theirs == ours || ours == RECIPE_STYLE_ALL;
		case RECIPE_STYLE_HIVE:
		case RECIPE_STYLE_DOTNET:
		case RECIPE_STYLE_UNKNOWN:
			break;
	}
	return false;
}

void
recipe_format_guid(char guid[RECIPE_GUID_LEN + 1], const uint8_t random[16])
{
	static const char hex[] = "0123456789abcdef";
	char	   *out = guid;

	for (int i = 0; i < 16; i++)
	{
		uint8_t		byte = random[i];

		if (i == 6)
			byte = (byte & 0x0F) | 0x40;	/* version 4: random */
		else if (i == 8)
			byte = (byte & 0x3F) | 0x80;	/* variant of RFC 4122 */

		if (i == 4 || i == 6 || i == 8 || i == 10)
			*out++ = '-';
		*out++ = hex[byte >> 4];
		*out++ = hex[byte & 0x0F];
	}
	*out = '\0';
}

void
recipe_mark_hand_over(char guid[RECIPE_GUID_LEN + 1])
{
	memcpy(guid + HAND_OVER_OFFSET, HAND_OVER_GROUP, strlen(HAND_OVER_GROUP));
}

bool
recipe_can_hand_over(const char *child)
{
	return has_mark(child, HAND_OVER_GROUP);
}

void
recipe_mark_hold(char guid[RECIPE_GUID_LEN + 1])
{
	memcpy(guid + HAND_OVER_OFFSET, HOLD_GROUP, strlen(HOLD_GROUP));
}

bool
recipe_is_hold(const char *child)
{
	return has_mark(child, HOLD_GROUP);
}

bool
recipe_is_twin(const char *hold, const char *twin)
{
	RecipeNode	node = recipe_parse_node(twin);

	return node.style != RECIPE_STYLE_NONE && strchr(twin, '/') == NULL &&
		!recipe_is_hold(twin) &&
		node.sequence == recipe_parse_node(hold).sequence;
}

RecipeNode
recipe_parse_node(const char *child)
{
	RecipeNode	node = {RECIPE_STYLE_NONE, RECIPE_EXCLUSIVE, 1, 0};
	size_t		prefix_length;
	int32_t		sequence;

	if (split_node(child, strlen(child), &prefix_length, &sequence))
	{
		node = recognize_prefix(child, prefix_length);
		node.sequence = sequence;
	}
	return node;
}

const char *
recipe_style_name(RecipeStyle style)
{
	switch (style)
	{
		case RECIPE_STYLE_NONE:
			return "none";
		case RECIPE_STYLE_ZKLOCK_SHARED:
		case RECIPE_STYLE_ZKLOCK_PERMITS:
			return "zklock";
		case RECIPE_STYLE_CURATOR:
			return "curator";
		case RECIPE_STYLE_CURATOR_RW:
			return "curator_rw";
		case RECIPE_STYLE_KAZOO:
			return "kazoo";
		case RECIPE_STYLE_ZK_RECIPE:
			return "zookeeper";
		case RECIPE_STYLE_HIVE:
			return "hive";
		case RECIPE_STYLE_DOTNET:
			return "dotnet";
		case RECIPE_STYLE_UNKNOWN:
			return "unknown";
		case RECIPE_STYLE_ALL:
			return "all";
	}
	return "unknown";
}

int
recipe_compare_nodes(const char *a, const char *b)
{
	RecipeNode	node_a = recipe_parse_node(a);
	RecipeNode	node_b = recipe_parse_node(b);
	bool		is_stranger_a = node_a.style == RECIPE_STYLE_NONE;
	bool		is_stranger_b = node_b.style == RECIPE_STYLE_NONE;

	if (is_stranger_a != is_stranger_b)
		return is_stranger_a ? 1 : -1;
	if (!is_stranger_a && node_a.sequence != node_b.sequence)
		return node_a.sequence < node_b.sequence ? -1 : 1;
	return strcmp(a, b);
}

RecipeVerdict
recipe_verdict(const char *const *children, int nchildren, const char *mine,
			   RecipeMode mode, int *own, int *watch)
{
	*watch = -1;
	*own = find_own(children, nchildren, mine);
	if (*own < 0)
		return RECIPE_GONE;
	return judge_queue(children, nchildren, mode, *own, watch);
}

bool
recipe_is_first(const char *const *children, int nchildren, const char *child)
{
	int32_t		sequence = recipe_parse_node(child).sequence;

	for (int i = 0; i < nchildren; i++)
	{
		RecipeNode	node = recipe_parse_node(children[i]);

		if (node.style != RECIPE_STYLE_NONE && node.sequence <= sequence &&
			strcmp(children[i], child) != 0)
			return false;
	}
	return true;
}

RecipeVerdict
recipe_permit_verdict(const char *const *children, int nchildren,
					  const char *mine, int permits, int *watch)
{
	int			own = mine != NULL ? find_own(children, nchildren, mine) : -1;
	int32_t		own_sequence = own < 0 ? RECIPE_SEQUENCE_LIMIT :
		recipe_parse_node(children[own]).sequence;
	int32_t		first_sequence = RECIPE_SEQUENCE_LIMIT;
	int32_t		nearest_sequence = -1;
	int			first = -1;
	int			nearest = -1;
	bool		is_mixed = false;
	int			nahead = 0;

	*watch = -1;
	if (mine != NULL && own < 0)
		return RECIPE_GONE;

	for (int i = 0; i < nchildren; i++)
	{
		RecipeNode	node = recipe_parse_node(children[i]);

		if (node.style == RECIPE_STYLE_NONE)
			continue;
		if (!is_orderly(node.sequence) ||
			(i != own && node.sequence == own_sequence))
			return RECIPE_EXHAUSTED;
		if (i == own || node.sequence > own_sequence)
			continue;

		nahead++;
		is_mixed |= node.permits != permits;
		if (node.sequence < first_sequence)
		{
			first_sequence = node.sequence;
			first = i;
		}
		if (node.sequence > nearest_sequence)
		{
			nearest_sequence = node.sequence;
			nearest = i;
		}
	}

	if (first >= 0 && recipe_parse_node(children[first]).permits != permits)
	{
		*watch = first;
		return RECIPE_MISMATCH;
	}
	if (nahead < permits && !is_mixed)
		return RECIPE_HELD;

	/* one who counts otherwise is waited for: it gives up, or has its turn */
	if (nahead > permits || is_mixed)
		*watch = nearest;
	return RECIPE_WAIT;
}

RecipeVerdict
recipe_verdict_newcomer(const char *const *children, int nchildren,
						RecipeMode mode, int *watch)
{
	return judge_queue(children, nchildren, mode, -1, watch);
}

bool
recipe_should_drain(const char *const *children, int nchildren,
					const char *mine)
{
	int32_t		sequence = recipe_parse_node(mine).sequence;

	if (sequence >= 0 && sequence < RECIPE_SEQUENCE_DRAIN)
		return false;
	for (int i = 0; i < nchildren; i++)
		if (recipe_parse_node(children[i]).style == RECIPE_STYLE_NONE)
			return false;
	return true;
}

int
recipe_drain_watch(const char *const *children, int nchildren,
				   const char *mine, bool *is_ahead)
{
	int32_t		own_sequence = recipe_parse_node(mine).sequence;
	int			last_ahead = -1;
	int			last = -1;

	/* what lies beyond the end of the counter is ahead of nobody */
	if (!is_orderly(own_sequence))
		own_sequence = RECIPE_SEQUENCE_LIMIT;
	for (int i = 0; i < nchildren; i++)
	{
		RecipeNode	node = recipe_parse_node(children[i]);

		if (node.style == RECIPE_STYLE_NONE)
			continue;
		if (last < 0 ||
			recipe_compare_nodes(children[i], children[last]) > 0)
			last = i;
		if (is_orderly(node.sequence) && node.sequence < own_sequence &&
			(last_ahead < 0 ||
			 recipe_compare_nodes(children[i], children[last_ahead]) > 0))
			last_ahead = i;
	}
	*is_ahead = last_ahead >= 0;
	return *is_ahead ? last_ahead : last;
}

bool
recipe_should_prune(const char *mine)
{
	int32_t		sequence = recipe_parse_node(mine).sequence;

	return sequence >= RECIPE_SEQUENCE_PRUNE &&
		sequence % RECIPE_PRUNE_INTERVAL == 0;
}

/* Is this an exclusive node whose GUID has that third group? */
static bool
has_mark(const char *child, const char *group)
{
	size_t		start = strlen("_c_");

	return recipe_parse_node(child).style == RECIPE_STYLE_CURATOR &&
		strlen(child) == start + RECIPE_GUID_LEN + strlen("-lock-") +
		SEQUENCE_DIGITS &&
		memcmp(child + start + HAND_OVER_OFFSET, group, strlen(group)) == 0;
}

/*
 * Check the components of a path from byte `start` on.  *offset and *length
 * are set as in recipe_check_name(), relative to the whole path: of one that is too
 * deep, to the first component that is.
 */
static RecipeNameError
check_components(const char *path, size_t start, size_t *offset,
				 size_t *length)
{
	for (int depth = 1;; depth++)
	{
		size_t		size = strcspn(path + start, "/");
		RecipeNameError error = check_component(path + start, size,
												offset, length);

		if (error == RECIPE_NAME_OK && depth > RECIPE_DEPTH_MAX)
		{
			*offset = 0;
			*length = size;
			error = RECIPE_NAME_TOO_DEEP;
		}
		if (error != RECIPE_NAME_OK)
		{
			*offset += start;
			return error;
		}

		start += size;
		if (path[start] == '\0')
			break;
		start++;				/* the slash */
	}

	*offset = 0;
	*length = 0;
	return RECIPE_NAME_OK;
}

/*
 * Check one component of `size` bytes.  *offset and *length are set to the
 * offending piece, relative to the component, or to all of it.
 */
static RecipeNameError
check_component(const char *component, size_t size, size_t *offset,
				size_t *length)
{
	RecipeNameError error;
	size_t		prefix_length;
	int32_t		sequence;

	*offset = 0;
	*length = size;

	if (size == 0)
		return RECIPE_NAME_EMPTY_COMPONENT;
	if ((size == 1 && component[0] == '.') ||
		(size == 2 && component[0] == '.' && component[1] == '.'))
		return RECIPE_NAME_DOTS;

	error = check_characters(component, size, offset, length);
	if (error != RECIPE_NAME_OK)
		return error;

	if (split_node(component, size, &prefix_length, &sequence))
		return RECIPE_NAME_LIKE_QUEUE_NODE;
	return RECIPE_NAME_OK;
}

/*
 * Check each character of a component; *offset and *length are set only if
 * one is refused.
 */
static RecipeNameError
check_characters(const char *component, size_t size, size_t *offset,
				 size_t *length)
{
	size_t		width;

	for (size_t i = 0; i < size; i += width)
	{
		uint32_t	code;
		RecipeNameError error;

		if (decode_utf8(component + i, &code, &width))
			error = check_character(code);
		else
			error = RECIPE_NAME_ENCODING;

		if (error != RECIPE_NAME_OK)
		{
			*offset = i;
			*length = width;
			return error;
		}
	}
	return RECIPE_NAME_OK;
}

/*
 * May this character stand in a path?  The rules of the server's
 * PathUtils.validatePath(), which sees UTF-16: what lies beyond U+FFFF reaches
 * it as surrogates.
 */
static RecipeNameError
check_character(uint32_t code)
{
	if (code <= 0x1F || (code >= 0x7F && code <= 0x9F))
		return RECIPE_NAME_CONTROL;
	if (code > 0xFFFF)
		return RECIPE_NAME_BEYOND_BMP;
	if ((code >= 0xD800 && code <= 0xF8FF) || code >= 0xFFF0)
		return RECIPE_NAME_UNSUPPORTED;
	return RECIPE_NAME_OK;
}

/*
 * Decode the character at the start of a text that is not empty.  *length is
 * how many bytes it has.  false if the bytes are not UTF-8 (a stray or missing
 * continuation byte, an overlong form, beyond U+10FFFF); *length is then how
 * many of them belong to the attempt.  An encoded surrogate is decoded, for
 * check_character() to name it.  Never reads beyond the first byte that is
 * not a continuation byte, hence not beyond a NUL or a slash.
 */
static bool
decode_utf8(const char *text, uint32_t *code, size_t *length)
{
	/* the smallest code point that needs a sequence of this many bytes */
	static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
	const unsigned char *bytes = (const unsigned char *) text;
	size_t		width;

	if (bytes[0] < 0x80)
		width = 1;
	else if ((bytes[0] & 0xE0) == 0xC0)
		width = 2;
	else if ((bytes[0] & 0xF0) == 0xE0)
		width = 3;
	else if ((bytes[0] & 0xF8) == 0xF0)
		width = 4;
	else
	{
		*length = 1;
		return false;
	}

	*code = width == 1 ? bytes[0] : bytes[0] & (0x7Fu >> width);
	for (*length = 1; *length < width; (*length)++)
	{
		if ((bytes[*length] & 0xC0) != 0x80)
			return false;
		*code = (*code << 6) | (bytes[*length] & 0x3F);
	}
	return *code >= smallest[width] && *code <= 0x10FFFF;
}

/*
 * Find the sequence number at the end of a name of `length` bytes.  false if
 * there is none: the name is not a contender's.  Otherwise *prefix_length is
 * how much stands before the number, of which a minus sign is part.
 *
 * "%010d" gives ten digits or, below zero, a minus and nine or ten of them.
 * Since a prefix often ends in '-', a minus is a sign only behind another
 * separator or at the very start; and before ten digits only if the first is
 * not 0, as "%010d" does not pad to eleven characters.
 */
static bool
split_node(const char *child, size_t length, size_t *prefix_length,
		   int32_t *sequence)
{
	size_t		first = length; /* where the digits start */
	size_t		ndigits;
	bool		is_negative;

	while (first > 0 && length - first < SEQUENCE_DIGITS &&
		   is_digit(child[first - 1]))
		first--;

	ndigits = length - first;
	if (ndigits < SEQUENCE_DIGITS - 1)
		return false;

	is_negative = ends_in_sign(child, first) &&
		(ndigits < SEQUENCE_DIGITS || child[first] != '0');
	if (ndigits < SEQUENCE_DIGITS && !is_negative)
		return false;

	*prefix_length = is_negative ? first - 1 : first;
	*sequence = read_sequence(child + first, ndigits, is_negative);
	return true;
}

/* Is the last of these bytes a minus sign rather than a separator? */
static bool
ends_in_sign(const char *text, size_t length)
{
	if (length == 0 || text[length - 1] != '-')
		return false;
	return length == 1 || text[length - 2] == '-' || text[length - 2] == '_';
}

/* The value of at most ten digits, clamped to what an int32 can hold. */
static int32_t
read_sequence(const char *digits, size_t ndigits, bool is_negative)
{
	int64_t		value = 0;

	for (size_t i = 0; i < ndigits; i++)
		value = value * 10 + (digits[i] - '0');
	if (is_negative)
		value = -value;

	if (value > INT32_MAX)
		return INT32_MAX;
	if (value < INT32_MIN)
		return INT32_MIN;
	return (int32_t) value;
}

/*
 * Which style and mode does this prefix of a sequence number speak of?  The
 * result's sequence is left 0.
 */
static RecipeNode
recognize_prefix(const char *prefix, size_t length)
{
	RecipeNode	node = {RECIPE_STYLE_UNKNOWN, RECIPE_EXCLUSIVE, 1, 0};

	node.permits = read_permits(prefix, length);
	if (node.permits > 1)
	{
		node.style = RECIPE_STYLE_ZKLOCK_PERMITS;
		return node;
	}
	for (size_t i = 0; i < NUM_STYLE_MARKS; i++)
	{
		if (fits_mark(&style_marks[i], prefix, length))
		{
			node.style = style_marks[i].style;
			node.mode = style_marks[i].mode;
			return node;
		}
	}

	if (is_zk_recipe_prefix(prefix, length))
		node.style = RECIPE_STYLE_ZK_RECIPE;
	return node;
}

static bool
fits_mark(const StyleMark *mark, const char *prefix, size_t length)
{
	size_t		end_length = strlen(mark->end);
	size_t		start_length;

	if (length < end_length ||
		memcmp(prefix + length - end_length, mark->end, end_length) != 0)
		return false;
	if (mark->start == NULL)
		return length == end_length;

	start_length = strlen(mark->start);
	return length >= start_length + end_length &&
		memcmp(prefix, mark->start, start_length) == 0;
}

/*
 * The number in "_c_<uuid>-permits-<number>-lock-", 1 for any other prefix: it
 * then is a plain contender, which only makes us wait or refuse.
 */
static int
read_permits(const char *prefix, size_t length)
{
	const char *end = "-lock-";
	size_t		start = strlen("_c_") + RECIPE_GUID_LEN;
	size_t		stop = length - strlen(end);
	int			permits = 0;

	if (length < start + strlen(PERMITS_MARK) + 1 + strlen(end) ||
		memcmp(prefix, "_c_", strlen("_c_")) != 0 ||
		memcmp(prefix + start, PERMITS_MARK, strlen(PERMITS_MARK)) != 0 ||
		memcmp(prefix + stop, end, strlen(end)) != 0)
		return 1;
	for (size_t i = start + strlen(PERMITS_MARK); i < stop; i++)
	{
		if (!is_digit(prefix[i]))
			return 1;
		permits = permits * 10 + (prefix[i] - '0');
		if (permits == 0 || permits > RECIPE_PERMITS_MAX)
			return 1;			/* not one of ours */
	}
	return permits;
}

/*
 * Is this "x-<session id>-", the id in hexadecimal (ZooKeeper's C recipe) or
 * in signed decimal (its Java recipe)?
 */
static bool
is_zk_recipe_prefix(const char *prefix, size_t length)
{
	size_t		i = 2;
	bool		is_negative;

	/* The shortest has one digit. */
	if (length < strlen("x-0-") || memcmp(prefix, "x-", 2) != 0 ||
		prefix[length - 1] != '-')
		return false;

	is_negative = prefix[i] == '-';
	if (is_negative)
		i++;
	if (i == length - 1)
		return false;			/* "x--" and its minus, but no digit */

	for (; i < length - 1; i++)
	{
		if (is_negative ? !is_digit(prefix[i]) : !is_hex_digit(prefix[i]))
			return false;
	}
	return true;
}

/*
 * The index of the child that `mine` names, or -1.  A prefix fits a child that
 * has just the sequence number behind it.  Should it fit several (a create
 * sent twice), the first in order is ours: to wait for our own other node
 * would be to wait for ever.
 */
static int
find_own(const char *const *children, int nchildren, const char *mine)
{
	size_t		mine_length = strlen(mine);
	size_t		prefix_length;
	int32_t		sequence;
	bool		is_full_name = split_node(mine, mine_length, &prefix_length,
										  &sequence);
	int			own = -1;

	for (int i = 0; i < nchildren; i++)
	{
		const char *child = children[i];

		if (strncmp(child, mine, mine_length) != 0)
			continue;
		if (is_full_name)
		{
			if (child[mine_length] == '\0')
				return i;
		}
		else if (split_node(child, strlen(child), &prefix_length, &sequence) &&
				 prefix_length == mine_length &&
				 (own < 0 || recipe_compare_nodes(child, children[own]) < 0))
			own = i;
	}
	return own;
}

/*
 * The verdict for a contender of this mode whose node is children[own], or for
 * a newcomer if own is -1.  Never RECIPE_GONE; *watch is -1 save for
 * RECIPE_WAIT and RECIPE_MISMATCH.
 */
static RecipeVerdict
judge_queue(const char *const *children, int nchildren, RecipeMode mode,
			int own, int *watch)
{
	/* A newcomer stands behind every number that we accept. */
	int32_t		own_sequence = own < 0 ? RECIPE_SEQUENCE_LIMIT :
		recipe_parse_node(children[own]).sequence;
	int32_t		first_sequence = RECIPE_SEQUENCE_LIMIT;
	int32_t		nearest_sequence = -1;
	int			first = -1;
	int			nearest = -1;

	*watch = -1;

	for (int i = 0; i < nchildren; i++)
	{
		RecipeNode	node = recipe_parse_node(children[i]);

		if (node.style == RECIPE_STYLE_NONE)
			continue;
		if (!is_orderly(node.sequence))
			return RECIPE_EXHAUSTED;
		if (i == own || node.sequence > own_sequence)
			continue;
		if (node.sequence == own_sequence && !may_share_number(&node))
			return RECIPE_EXHAUSTED;
		if (node.sequence < first_sequence)
		{
			first_sequence = node.sequence;
			first = i;
		}
		if (mode == RECIPE_SHARED && node.mode == RECIPE_SHARED)
			continue;

		if (node.sequence > nearest_sequence)
		{
			nearest_sequence = node.sequence;
			nearest = i;
		}
	}

	if (first >= 0 && recipe_parse_node(children[first]).permits > 1)
	{
		*watch = first;
		return RECIPE_MISMATCH;
	}
	*watch = nearest;
	return nearest < 0 ? RECIPE_HELD : RECIPE_WAIT;
}

/* Does this number lie where the server's counter orders contenders? */
static bool
is_orderly(int32_t sequence)
{
	return sequence >= 0 && sequence < RECIPE_SEQUENCE_LIMIT;
}

/*
 * May this node have the number of another contender without the counter
 * being at its end?  A writer of Curator 5.5 or later that takes the read lock
 * too creates that node with its own number; it counts as ahead of us.
 */
static bool
may_share_number(const RecipeNode *node)
{
	return node->style == RECIPE_STYLE_CURATOR_RW &&
		node->mode == RECIPE_SHARED;
}

/* isdigit() and isxdigit(), but the same in every locale. */
static bool
is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool
is_hex_digit(char c)
{
	return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}
