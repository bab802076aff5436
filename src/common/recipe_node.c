/*-------------------------------------------------------------------------
 *
 * recipe_node.c
 *	  Builds, reads and orders names of queue nodes, also those of other
 *	  clients.
 *
 * If a name can be read in two ways, it is read in the way that can only make
 * us wait: a child with a sequence number, of a client that we do not know, is
 * an exclusive contender.
 *
 *-------------------------------------------------------------------------
 */
#include "recipe.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The server appends the sequence number as "%010d". */
#define SEQUENCE_DIGITS 10

/*
 * What the third group of a GUID with a mark starts with; the digit of the
 * mark follows.  It is of version 8 (RFC 9562: for uses of one's own), so that
 * no other client's random GUID, which is of version 4, has it by chance.
 */
#define MARK_GROUP "8a1"
#define MARK_GROUP_OFFSET 14	/* in the GUID */

/*
 * What stands in the GUID of a lease: the hash of its owner in the first group,
 * and the token in the second and the last one, in hexadecimal digits.
 */
#define OWNER_DIGITS 8
#define TOKEN_HIGH_OFFSET 9
#define TOKEN_HIGH_DIGITS 4
#define TOKEN_LOW_OFFSET 24
#define TOKEN_LOW_DIGITS 12

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

/* What all names of Curator's, and of ours, begin with. */
#define CURATOR_START "_c_"

/* What stands before the number of permits, behind the GUID. */
#define PERMITS_MARK "-permits-"

#define NUM_STYLE_MARKS (sizeof(style_marks) / sizeof(style_marks[0]))

static bool has_mark(const char *child);
static bool may_have_mark(RecipeMark mark, RecipeStyle style);
static uint64_t read_digits(const char *child, int offset, int ndigits);
static bool is_unmistakable(RecipeStyle style);
static bool ends_in_sign(const char *text, size_t length);
static RecipeNode recognize_prefix(const char *prefix, size_t length);
static bool fits_mark(const StyleMark *mark, const char *prefix,
					  size_t length);
static int	read_permits(const char *prefix, size_t length);
static bool is_zk_recipe_prefix(const char *prefix, size_t length);

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
			return true;
		case RECIPE_STYLE_CURATOR:
		case RECIPE_STYLE_ZK_RECIPE:
			return ours == RECIPE_STYLE_CURATOR;
		case RECIPE_STYLE_CURATOR_RW:
		case RECIPE_STYLE_KAZOO:
			return theirs == ours;
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
	static const char digits[] = "0123456789abcdef";
	char	   *out = guid;

	for (int i = 0; i < 16; i++)
	{
		uint8_t		byte = random[i];

		if (i == 6)
			byte = (byte & 0x0F) | 0x40;	/* version 4: random */
		else if (i == 8)
			byte = (byte & 0x3F) | 0x80;	/* variant of RFC 4122 */

		/* where a new group of digits begins */
		if (i == 4 || i == 6 || i == 8 || i == 10)
			*out++ = '-';
		*out++ = digits[byte >> 4];
		*out++ = digits[byte & 0x0F];
	}
	*out = '\0';
}

void
recipe_mark(char guid[RECIPE_GUID_LEN + 1], RecipeMark mark)
{
	char	   *group = guid + MARK_GROUP_OFFSET;

	memcpy(group, MARK_GROUP, strlen(MARK_GROUP));
	group[strlen(MARK_GROUP)] = '0' + mark;
}

/* FNV-1a. */
uint32_t
recipe_hash_owner(const char *owner)
{
	uint32_t	hash = 2166136261u;

	for (const char *c = owner; *c != '\0'; c++)
		hash = (hash ^ (uint8_t) *c) * 16777619u;
	return hash;
}

void
recipe_mark_taker(char guid[RECIPE_GUID_LEN + 1], uint32_t owner)
{
	char		digits[OWNER_DIGITS + 1];

	snprintf(digits, sizeof(digits), "%08" PRIx32, owner);
	memcpy(guid, digits, OWNER_DIGITS);
	recipe_mark(guid, RECIPE_MARK_TAKER);
}

void
recipe_lease_guid(char guid[RECIPE_GUID_LEN + 1], uint32_t owner,
				  int64_t token)
{
	uint64_t	digits = (uint64_t) token;

	snprintf(guid, RECIPE_GUID_LEN + 1,
			 "%08" PRIx32 "-%04" PRIx64 "-" MARK_GROUP "%d-8000-%012" PRIx64,
			 owner, digits >> (4 * TOKEN_LOW_DIGITS), RECIPE_MARK_LEASE,
			 digits & ((UINT64_C(1) << (4 * TOKEN_LOW_DIGITS)) - 1));
}

RecipeMark
recipe_read_mark(const char *child)
{
	RecipeMark	mark;

	if (!has_mark(child))
		return RECIPE_MARK_NONE;
	mark = (RecipeMark) (child[strlen(CURATOR_START) + MARK_GROUP_OFFSET +
							   strlen(MARK_GROUP)] - '0');
	if (!may_have_mark(mark, recipe_parse_node(child).style))
		return RECIPE_MARK_NONE;
	return mark;
}

/*
 * Has it a GUID with a mark that we know, and is all else as we write it?  Most
 * names are those of nodes without a mark, so that is looked at first.
 */
static bool
has_mark(const char *child)
{
	const char *guid = child + strlen(CURATOR_START);
	const char *group = guid + MARK_GROUP_OFFSET;
	char		prefix[RECIPE_NODE_SIZE];
	RecipeNode	node;

	if (strlen(child) < strlen(CURATOR_START) + RECIPE_GUID_LEN ||
		memcmp(group, MARK_GROUP, strlen(MARK_GROUP)) != 0 ||
		group[strlen(MARK_GROUP)] <= '0' + RECIPE_MARK_NONE ||
		group[strlen(MARK_GROUP)] > '0' + RECIPE_MARK_LAST)
		return false;
	node = recipe_parse_node(child);
	recipe_node_prefix(prefix, node.style, node.mode, node.permits, guid);
	return strlen(child) == strlen(prefix) + SEQUENCE_DIGITS &&
		memcmp(child, prefix, strlen(prefix)) == 0 &&
		node.style != RECIPE_STYLE_NONE;
}

static bool
may_have_mark(RecipeMark mark, RecipeStyle style)
{
	switch (mark)
	{
		case RECIPE_MARK_LEASE:
		case RECIPE_MARK_TAKER:
			return true;
		case RECIPE_MARK_HAND_OVER:
		case RECIPE_MARK_HOLD:
		case RECIPE_MARK_KEEPER:
			return style == RECIPE_STYLE_CURATOR;
		case RECIPE_MARK_NONE:
			break;
	}
	return false;
}

uint32_t
recipe_read_owner(const char *child)
{
	return (uint32_t) read_digits(child, 0, OWNER_DIGITS);
}

int64_t
recipe_read_token(const char *child)
{
	uint64_t	high = read_digits(child, TOKEN_HIGH_OFFSET, TOKEN_HIGH_DIGITS);
	uint64_t	token = high << (4 * TOKEN_LOW_DIGITS) |
		read_digits(child, TOKEN_LOW_OFFSET, TOKEN_LOW_DIGITS);

	return token <= INT64_MAX ? (int64_t) token : 0;
}

/* Of its GUID; 0 if they are no digits. */
static uint64_t
read_digits(const char *child, int offset, int ndigits)
{
	char		digits[TOKEN_LOW_DIGITS + 1] = "";

	memcpy(digits, child + strlen(CURATOR_START) + offset, ndigits);
	if (strspn(digits, "0123456789abcdef") != (size_t) ndigits)
		return 0;
	return strtoull(digits, NULL, 16);
}

bool
recipe_is_lasting(const char *child)
{
	RecipeMark	mark = recipe_read_mark(child);

	return mark == RECIPE_MARK_HOLD || mark == RECIPE_MARK_LEASE;
}

RecipeNode
recipe_parse_node(const char *child)
{
	RecipeNode	node = {RECIPE_STYLE_NONE, RECIPE_EXCLUSIVE, 1, 0};
	size_t		prefix_length;
	int32_t		sequence;

	if (recipe_split_node(child, strlen(child), &prefix_length, &sequence))
	{
		node = recognize_prefix(child, prefix_length);
		node.sequence = sequence;
	}
	return node;
}

bool
recipe_may_be_name(const char *child)
{
	RecipeStyle style;

	if (strncmp(child, CURATOR_START, strlen(CURATOR_START)) == 0)
		return false;			/* most contenders: no more to look at */
	style = recipe_parse_node(child).style;
	return style != RECIPE_STYLE_NONE && !is_unmistakable(style);
}

bool
recipe_has_client_mark(const char *component, size_t length)
{
	size_t		prefix_length = length;

	while (prefix_length > 0 && component[prefix_length - 1] >= '0' &&
		   component[prefix_length - 1] <= '9')
		prefix_length--;
	if (prefix_length == length)
		return false;
	return strncmp(component, CURATOR_START, strlen(CURATOR_START)) == 0 ||
		is_unmistakable(recognize_prefix(component, prefix_length).style) ||
		(ends_in_sign(component, prefix_length) &&
		 is_unmistakable(recognize_prefix(component, prefix_length - 1).style));
}

const char *
recipe_style_name(RecipeStyle style)
{
	static const char *const names[RECIPE_STYLE_UNKNOWN] = {
		[RECIPE_STYLE_NONE] = "none",
		[RECIPE_STYLE_ZKLOCK_SHARED] = "zklock",
		[RECIPE_STYLE_ZKLOCK_PERMITS] = "zklock",
		[RECIPE_STYLE_CURATOR] = "curator",
		[RECIPE_STYLE_CURATOR_RW] = "curator_rw",
		[RECIPE_STYLE_KAZOO] = "kazoo",
		[RECIPE_STYLE_ZK_RECIPE] = "zookeeper",
		[RECIPE_STYLE_HIVE] = "hive",
		[RECIPE_STYLE_DOTNET] = "dotnet"
	};

	return style < RECIPE_STYLE_UNKNOWN ? names[style] : "unknown";
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

/*
 * "%010d" gives ten digits or, below zero, a minus and nine or ten of them.
 * Since a prefix often ends in '-', a minus is a sign only behind another
 * separator or at the very start; and before ten digits only if the first is
 * not 0, as "%010d" does not pad to eleven characters.
 */
bool
recipe_split_node(const char *child, size_t length, size_t *prefix_length,
				  int32_t *sequence)
{
	size_t		first = length; /* where the digits start */
	size_t		ndigits;
	bool		is_negative;
	long long	value;

	while (first > 0 && length - first < SEQUENCE_DIGITS &&
		   child[first - 1] >= '0' && child[first - 1] <= '9')
		first--;

	ndigits = length - first;
	if (ndigits < SEQUENCE_DIGITS - 1)
		return false;

	is_negative = ends_in_sign(child, first) &&
		(ndigits < SEQUENCE_DIGITS || child[first] != '0');
	if (ndigits < SEQUENCE_DIGITS && !is_negative)
		return false;

	*prefix_length = is_negative ? first - 1 : first;

	/* at most ten digits and a sign: clamped to what an int32 can hold */
	value = strtoll(child + *prefix_length, NULL, 10);
	if (value > INT32_MAX)
		value = INT32_MAX;
	if (value < INT32_MIN)
		value = INT32_MIN;
	*sequence = (int32_t) value;
	return true;
}

/*
 * Does nobody call a lock so?  What precedes the number of the other styles is
 * too short: 'read-' || id may be the name of a lock.
 */
static bool
is_unmistakable(RecipeStyle style)
{
	switch (style)
	{
		case RECIPE_STYLE_ZKLOCK_SHARED:
		case RECIPE_STYLE_ZKLOCK_PERMITS:
		case RECIPE_STYLE_CURATOR:
		case RECIPE_STYLE_CURATOR_RW:
		case RECIPE_STYLE_KAZOO:
		case RECIPE_STYLE_HIVE:
			return true;
		case RECIPE_STYLE_NONE:
		case RECIPE_STYLE_ZK_RECIPE:
		case RECIPE_STYLE_DOTNET:
		case RECIPE_STYLE_UNKNOWN:
			break;
	}
	return false;
}

/* Is the last of these bytes a minus sign rather than a separator? */
static bool
ends_in_sign(const char *text, size_t length)
{
	if (length == 0 || text[length - 1] != '-')
		return false;
	return length == 1 || text[length - 2] == '-' || text[length - 2] == '_';
}

/*
 * The style and mode that this prefix of a sequence number stands for.  The
 * sequence of the result is left 0.
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
 * The number in "_c_<uuid>-permits-<number>-lock-", 1 for any other prefix:
 * it then is a plain contender, which only makes us wait or refuse.
 */
static int
read_permits(const char *prefix, size_t length)
{
	const char *guid = prefix + strlen("_c_");
	const char *mark = guid + RECIPE_GUID_LEN;
	char		ours[RECIPE_NODE_SIZE];
	long		permits;

	if (length < strlen("_c_") + RECIPE_GUID_LEN + strlen(PERMITS_MARK) ||
		memcmp(mark, PERMITS_MARK, strlen(PERMITS_MARK)) != 0)
		return 1;
	permits = strtol(mark + strlen(PERMITS_MARK), NULL, 10);
	if (permits > RECIPE_PERMITS_MAX)
		return 1;
	recipe_node_prefix(ours, RECIPE_STYLE_CURATOR, RECIPE_EXCLUSIVE,
					   (int) permits, guid);
	if (strlen(ours) != length || memcmp(ours, prefix, length) != 0)
		return 1;
	return (int) permits;
}

/*
 * Is this "x-<session id>-", the id in hexadecimal (ZooKeeper's C recipe) or
 * in signed decimal (its Java recipe)?
 */
static bool
is_zk_recipe_prefix(const char *prefix, size_t length)
{
	size_t		start = 2;
	const char *digits = "0123456789abcdefABCDEF";

	/* The shortest has one digit. */
	if (length < strlen("x-0-") || memcmp(prefix, "x-", 2) != 0 ||
		prefix[length - 1] != '-')
		return false;
	if (prefix[start] == '-')
	{
		start++;
		digits = "0123456789";
	}

	/* "x--" has a minus, but no digit */
	return start < length - 1 &&
		strspn(prefix + start, digits) == length - 1 - start;
}
