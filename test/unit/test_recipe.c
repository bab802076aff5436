/*-------------------------------------------------------------------------
 *
 * test_recipe.c
 *	  Unit test of src/common/recipe.c: from the names in a queue follow order,
 *	  mode, holders, and which node to watch.  Tables of cases, the expected value
 *	  first.
 *
 *-------------------------------------------------------------------------
 */
#include "recipe.h"
#include "tap.h"

#include <stdlib.h>

#define NELEMS(array) ((int) (sizeof(array) / sizeof((array)[0])))

/* Two GUIDs as Curator and we write them. */
#define G1 "0f8fad5b-d9cb-469f-a165-70867728950e"
#define G2 "7c9e6679-7425-40de-944b-e07fc1f90ae7"

/* One as Go and Kazoo write it. */
#define HEX "8d3dfc2a1b5e4f6f9d2c0a7b6e5d4c3b"

/* A shared lock of ours and an exclusive one, without the number. */
#define SHARED "_c_" G1 "-shared-lock-"
#define EXCLUSIVE "_c_" G1 "-lock-"

/* The longest list of the verdict table. */
#define MAX_CHILDREN 6

static void
test_styles(void)
{
	static const struct
	{
		RecipeStyle style;
		RecipeMode	mode;
		int32_t		sequence;
		const char *child;
	}			cases[] = {
		/* every style */
		{RECIPE_STYLE_ZKLOCK_SHARED, RECIPE_SHARED, 7, SHARED "0000000007"},
		{RECIPE_STYLE_CURATOR, RECIPE_EXCLUSIVE, 8, EXCLUSIVE "0000000008"},
		{RECIPE_STYLE_CURATOR, RECIPE_EXCLUSIVE, 9, "_c_" HEX "-lock-0000000009"},
		{RECIPE_STYLE_ZKLOCK_PERMITS, RECIPE_EXCLUSIVE, 9, "_c_" G1 "-permits-3-lock-0000000009"},
		{RECIPE_STYLE_ZKLOCK_PERMITS, RECIPE_EXCLUSIVE, 9, "_c_" G1 "-permits-2-lock-0000000009"},
		{RECIPE_STYLE_CURATOR, RECIPE_EXCLUSIVE, 9, "_c_" G1 "-permits-x-lock-0000000009"},
		{RECIPE_STYLE_CURATOR, RECIPE_EXCLUSIVE, 9, "_c_" G1 "-permits-3x-lock-0000000009"},
		{RECIPE_STYLE_CURATOR, RECIPE_EXCLUSIVE, 9, "_c_" G1 "-permits-3:-lock-0000000009"},
		{RECIPE_STYLE_ZKLOCK_PERMITS, RECIPE_EXCLUSIVE, 9, "_c_" G1 "-permits-9-lock-0000000009"},
		{RECIPE_STYLE_CURATOR, RECIPE_EXCLUSIVE, 9, "_c_" G1 "-Permits-3-lock-0000000009"},
		{RECIPE_STYLE_UNKNOWN, RECIPE_EXCLUSIVE, 9, "_c_" G1 "-permits-3-Lock-0000000009"},
		{RECIPE_STYLE_UNKNOWN, RECIPE_EXCLUSIVE, 9, "xc_" G1 "-permits-3-lock-0000000009"},
		{RECIPE_STYLE_CURATOR, RECIPE_EXCLUSIVE, 9, "_c_" G1 "-permits-03-lock-0000000009"},
		{RECIPE_STYLE_CURATOR, RECIPE_EXCLUSIVE, 9, "_c_" G1 "-permits-1-lock-0000000009"},
		{RECIPE_STYLE_CURATOR, RECIPE_EXCLUSIVE, 9, "_c_" G1 "-permits--lock-0000000009"},
		{RECIPE_STYLE_CURATOR, RECIPE_EXCLUSIVE, 9, "_c_" G1 "-permits-10001-lock-0000000009"},
		{RECIPE_STYLE_CURATOR, RECIPE_EXCLUSIVE, 9, "_c_" HEX "-permits-3-lock-0000000009"},
		{RECIPE_STYLE_UNKNOWN, RECIPE_EXCLUSIVE, 9, "_c_00112233-4455-6677-8899-aab0000000009"},
		{RECIPE_STYLE_CURATOR_RW, RECIPE_SHARED, 10, "_c_" G1 "-__READ__0000000010"},
		{RECIPE_STYLE_CURATOR_RW, RECIPE_EXCLUSIVE, 11, "_c_" G1 "-__WRIT__0000000011"},
		{RECIPE_STYLE_KAZOO, RECIPE_EXCLUSIVE, 12, HEX "__lock__0000000012"},
		{RECIPE_STYLE_KAZOO, RECIPE_SHARED, 13, HEX "__rlock__0000000013"},
		{RECIPE_STYLE_KAZOO, RECIPE_SHARED, 14, "_c_" G1 "-shared__lock__0000000014"},
		{RECIPE_STYLE_KAZOO, RECIPE_EXCLUSIVE, 15, "_c_" G1 "-pg__lock__0000000015"},
		{RECIPE_STYLE_KAZOO, RECIPE_SHARED, 16, "_c_" G1 "-pg__rlock__0000000016"},
		{RECIPE_STYLE_ZK_RECIPE, RECIPE_EXCLUSIVE, 17, "x-0100abcdef012345-0000000017"},
		{RECIPE_STYLE_ZK_RECIPE, RECIPE_EXCLUSIVE, 18, "x-72057594037927936-0000000018"},
		{RECIPE_STYLE_ZK_RECIPE, RECIPE_EXCLUSIVE, 19, "x--123-0000000019"},
		{RECIPE_STYLE_ZK_RECIPE, RECIPE_EXCLUSIVE, 19, "x-0-0000000019"},
		{RECIPE_STYLE_ZK_RECIPE, RECIPE_EXCLUSIVE, 19, "x-afAF09-0000000019"},
		{RECIPE_STYLE_HIVE, RECIPE_EXCLUSIVE, 20, "LOCK-EXCLUSIVE-0000000020"},
		{RECIPE_STYLE_HIVE, RECIPE_SHARED, 21, "LOCK-SHARED-0000000021"},
		{RECIPE_STYLE_HIVE, RECIPE_EXCLUSIVE, 22, "LOCK-SEMI_SHARED-0000000022"},
		{RECIPE_STYLE_DOTNET, RECIPE_EXCLUSIVE, 23, "lock-0000000023"},
		{RECIPE_STYLE_DOTNET, RECIPE_SHARED, 24, "read-0000000024"},
		{RECIPE_STYLE_DOTNET, RECIPE_EXCLUSIVE, 25, "write-0000000025"},
		{RECIPE_STYLE_DOTNET, RECIPE_EXCLUSIVE, 26, "semaphore-0000000026"},
		{RECIPE_STYLE_UNKNOWN, RECIPE_EXCLUSIVE, 27, "mylock_0000000027"},
		{RECIPE_STYLE_UNKNOWN, RECIPE_EXCLUSIVE, 28, "0000000028"},

		/* nearly a known mark, above all a shared one */
		{RECIPE_STYLE_UNKNOWN, RECIPE_EXCLUSIVE, 1, G1 "-shared-lock-0000000001"},
		{RECIPE_STYLE_UNKNOWN, RECIPE_EXCLUSIVE, 1, "_c-" G1 "-lock-0000000001"},
		{RECIPE_STYLE_CURATOR, RECIPE_EXCLUSIVE, 1, "_c_" G1 "-Shared-lock-0000000001"},
		{RECIPE_STYLE_CURATOR, RECIPE_EXCLUSIVE, 1, "_c_shared-lock-0000000001"},
		{RECIPE_STYLE_UNKNOWN, RECIPE_EXCLUSIVE, 1, SHARED "x0000000001"},
		{RECIPE_STYLE_UNKNOWN, RECIPE_EXCLUSIVE, 1, "_c_" G1 "-__READ0000000001"},
		{RECIPE_STYLE_UNKNOWN, RECIPE_EXCLUSIVE, 1, "_c_" G1 "-__read__0000000001"},
		{RECIPE_STYLE_KAZOO, RECIPE_EXCLUSIVE, 1, "shared__lock__0000000001"},
		{RECIPE_STYLE_UNKNOWN, RECIPE_EXCLUSIVE, 1, HEX "_lock__0000000001"},
		{RECIPE_STYLE_UNKNOWN, RECIPE_EXCLUSIVE, 1, "xLOCK-SHARED-0000000001"},
		{RECIPE_STYLE_UNKNOWN, RECIPE_EXCLUSIVE, 1, "LOCK-SHARED-x0000000001"},
		{RECIPE_STYLE_UNKNOWN, RECIPE_EXCLUSIVE, 1, "a-read-0000000001"},
		{RECIPE_STYLE_UNKNOWN, RECIPE_EXCLUSIVE, 1, "x-0000000001"},
		{RECIPE_STYLE_UNKNOWN, RECIPE_EXCLUSIVE, 1, "x--0000000001"},
		{RECIPE_STYLE_UNKNOWN, RECIPE_EXCLUSIVE, 1, "x---0000000001"},
		{RECIPE_STYLE_UNKNOWN, RECIPE_EXCLUSIVE, 1, "x--ab-0000000001"},
		{RECIPE_STYLE_UNKNOWN, RECIPE_EXCLUSIVE, 1, "x-xyz-0000000001"},
		{RECIPE_STYLE_UNKNOWN, RECIPE_EXCLUSIVE, 1, "x-1g-0000000001"},
		{RECIPE_STYLE_UNKNOWN, RECIPE_EXCLUSIVE, 1, "x-1G-0000000001"},
		{RECIPE_STYLE_UNKNOWN, RECIPE_EXCLUSIVE, 1, "x_12-0000000001"},
		{RECIPE_STYLE_UNKNOWN, RECIPE_EXCLUSIVE, 1, "y-12-0000000001"},
		{RECIPE_STYLE_UNKNOWN, RECIPE_EXCLUSIVE, 1, "x-12_0000000001"},

		/* no more than the mark */
		{RECIPE_STYLE_CURATOR, RECIPE_EXCLUSIVE, 1, "_c_-lock-0000000001"},
		{RECIPE_STYLE_KAZOO, RECIPE_EXCLUSIVE, 1, "__lock__0000000001"},

		/* more than ten digits: the rest is not the number's */
		{RECIPE_STYLE_UNKNOWN, RECIPE_EXCLUSIVE, 1, SHARED "00000000001"},
		{RECIPE_STYLE_UNKNOWN, RECIPE_EXCLUSIVE, 2, "read--10000000002"},

		/* large numbers */
		{RECIPE_STYLE_DOTNET, RECIPE_EXCLUSIVE, INT32_MAX - 1, "lock-2147483646"},
		{RECIPE_STYLE_DOTNET, RECIPE_EXCLUSIVE, INT32_MAX, "lock-2147483647"},
		{RECIPE_STYLE_DOTNET, RECIPE_EXCLUSIVE, INT32_MAX, "lock-2147483648"},
		{RECIPE_STYLE_DOTNET, RECIPE_EXCLUSIVE, INT32_MAX, "lock-9999999999"},

		/* negative numbers: the sign is no part of the prefix */
		{RECIPE_STYLE_CURATOR, RECIPE_EXCLUSIVE, -5, EXCLUSIVE "-000000005"},
		{RECIPE_STYLE_ZKLOCK_SHARED, RECIPE_SHARED, INT32_MIN, SHARED "-2147483648"},
		{RECIPE_STYLE_CURATOR, RECIPE_EXCLUSIVE, INT32_MIN, EXCLUSIVE "-9999999999"},
		{RECIPE_STYLE_CURATOR, RECIPE_EXCLUSIVE, -1000000000, EXCLUSIVE "-1000000000"},
		{RECIPE_STYLE_CURATOR, RECIPE_EXCLUSIVE, -999999999, EXCLUSIVE "-999999999"},
		{RECIPE_STYLE_KAZOO, RECIPE_EXCLUSIVE, -5, HEX "__lock__-000000005"},
		{RECIPE_STYLE_KAZOO, RECIPE_EXCLUSIVE, INT32_MIN, HEX "__lock__-2147483648"},
		{RECIPE_STYLE_CURATOR_RW, RECIPE_SHARED, -7, "_c_" G1 "-__READ__-000000007"},
		{RECIPE_STYLE_UNKNOWN, RECIPE_EXCLUSIVE, -5, "x--000000005"},
		{RECIPE_STYLE_UNKNOWN, RECIPE_EXCLUSIVE, -5, "-000000005"},
		{RECIPE_STYLE_UNKNOWN, RECIPE_EXCLUSIVE, INT32_MIN, "-2147483648"},

		/* a minus that is the prefix's */
		{RECIPE_STYLE_CURATOR, RECIPE_EXCLUSIVE, 2147483646, EXCLUSIVE "2147483646"},
		{RECIPE_STYLE_UNKNOWN, RECIPE_EXCLUSIVE, 5, "job--0000000005"},
		{RECIPE_STYLE_UNKNOWN, RECIPE_EXCLUSIVE, 5, "-0000000005"},

		/* no contenders */
		{RECIPE_STYLE_NONE, RECIPE_EXCLUSIVE, 0, ""},
		{RECIPE_STYLE_NONE, RECIPE_EXCLUSIVE, 0, "nightly"},
		{RECIPE_STYLE_NONE, RECIPE_EXCLUSIVE, 0, HEX "x"},
		{RECIPE_STYLE_NONE, RECIPE_EXCLUSIVE, 0, "000000001"},
		{RECIPE_STYLE_NONE, RECIPE_EXCLUSIVE, 0, "lock-000000001"},
		{RECIPE_STYLE_NONE, RECIPE_EXCLUSIVE, 0, "lock--00000001"},
		{RECIPE_STYLE_NONE, RECIPE_EXCLUSIVE, 0, "lock-0000000001x"},
		{RECIPE_STYLE_NONE, RECIPE_EXCLUSIVE, 0, "lock-0000000001 "},
		{RECIPE_STYLE_NONE, RECIPE_EXCLUSIVE, 0, "lock-00000.00001"},
		{RECIPE_STYLE_NONE, RECIPE_EXCLUSIVE, 0, "lock-000000000:"},
		{RECIPE_STYLE_NONE, RECIPE_EXCLUSIVE, 0, EXCLUSIVE},
		{RECIPE_STYLE_NONE, RECIPE_EXCLUSIVE, 0, "x-\xC2\xB9\xC2\xB2\xC2\xB3"},
		{RECIPE_STYLE_NONE, RECIPE_EXCLUSIVE, 0, "_c_" G1 "-lock-:000000001"},
	};

	for (int i = 0; i < NELEMS(cases); i++)
	{
		RecipeNode	node = recipe_parse_node(cases[i].child);

		is_str(recipe_style_name(cases[i].style), recipe_style_name(node.style),
			   "style of \"%s\"", cases[i].child);
		is_int(cases[i].mode, node.mode, "mode of \"%s\"", cases[i].child);
		is_int(cases[i].sequence, node.sequence, "sequence of \"%s\"",
			   cases[i].child);
		if (cases[i].style != RECIPE_STYLE_ZKLOCK_PERMITS)
			is_int(1, node.permits, "permits of \"%s\"", cases[i].child);
	}
	is_int(2, recipe_parse_node("_c_" G1 "-permits-2-lock-0000000009").permits,
		   "two permits");
	is_int(12, recipe_parse_node("_c_" G1 "-permits-12-lock-0000000009").permits,
		   "twelve permits");
	is_int(RECIPE_PERMITS_MAX,
		   recipe_parse_node("_c_" G1 "-permits-10000-lock-0000000009").permits,
		   "as many permits as there can be");
}

/* The words are part of the SQL interface. */
static void
test_style_names(void)
{
	is_str("none", recipe_style_name(RECIPE_STYLE_NONE), "name: none");
	is_str("zklock", recipe_style_name(RECIPE_STYLE_ZKLOCK_SHARED),
		   "name: zklock");
	is_str("curator", recipe_style_name(RECIPE_STYLE_CURATOR),
		   "name: curator");
	is_str("curator_rw", recipe_style_name(RECIPE_STYLE_CURATOR_RW),
		   "name: curator_rw");
	is_str("kazoo", recipe_style_name(RECIPE_STYLE_KAZOO), "name: kazoo");
	is_str("zookeeper", recipe_style_name(RECIPE_STYLE_ZK_RECIPE),
		   "name: zookeeper");
	is_str("hive", recipe_style_name(RECIPE_STYLE_HIVE), "name: hive");
	is_str("dotnet", recipe_style_name(RECIPE_STYLE_DOTNET), "name: dotnet");
	is_str("unknown", recipe_style_name(RECIPE_STYLE_UNKNOWN),
		   "name: unknown");
	is_str("unknown", recipe_style_name((RecipeStyle) 99),
		   "name of a style that is none");
}

/* What docs/interop.md says of each style. */
static void
test_waits_for(void)
{
	static const struct
	{
		RecipeStyle theirs;
		bool		curator;	/* do they wait for our nodes of that style? */
		bool		curator_rw;
		bool		kazoo;
	}			cases[] = {
		{RECIPE_STYLE_NONE, true, true, true},
		{RECIPE_STYLE_ZKLOCK_SHARED, true, true, true},
		{RECIPE_STYLE_ZKLOCK_PERMITS, true, true, true},
		{RECIPE_STYLE_CURATOR, true, false, false},
		{RECIPE_STYLE_ZK_RECIPE, true, false, false},
		{RECIPE_STYLE_CURATOR_RW, false, true, false},
		{RECIPE_STYLE_KAZOO, false, false, true},
		{RECIPE_STYLE_HIVE, false, false, false},
		{RECIPE_STYLE_DOTNET, false, false, false},
		{RECIPE_STYLE_UNKNOWN, false, false, false},
	};

	for (int i = 0; i < NELEMS(cases); i++)
	{
		RecipeStyle theirs = cases[i].theirs;
		const char *name = recipe_style_name(theirs);

		is_int(cases[i].curator, recipe_waits_for(theirs, RECIPE_STYLE_CURATOR),
			   "%s waits for curator", name);
		is_int(cases[i].curator_rw,
			   recipe_waits_for(theirs, RECIPE_STYLE_CURATOR_RW),
			   "%s waits for curator_rw", name);
		is_int(cases[i].kazoo, recipe_waits_for(theirs, RECIPE_STYLE_KAZOO),
			   "%s waits for kazoo", name);
	}
}

/* One case for recipe_check_name(). */
typedef struct NameCase
{
	RecipeNameError error;
	size_t		offset;			/* of what is refused */
	const char *name;
	const char *what;
} NameCase;

static void
check_names(const NameCase *cases, int ncases)
{
	for (int i = 0; i < ncases; i++)
	{
		const NameCase *expected = &cases[i];
		size_t		offset = 4711;
		RecipeNameError error = recipe_check_name(expected->name, &offset);

		is_int(expected->error, error, "name: %s", expected->what);
		if (error != RECIPE_NAME_OK)
			is_int(expected->offset, offset, "name: %s: offset",
				   expected->what);
	}
}

static void
test_names(void)
{
	static const NameCase cases[] = {
		{RECIPE_NAME_OK, 0, "a", "one letter"},
		{RECIPE_NAME_OK, 0, "team/nightly", "two components"},
		{RECIPE_NAME_OK, 0, "a b/%41/x:y;z,?*\\\"'", "ASCII that means nothing"},
		{RECIPE_NAME_OK, 0, ".a/a./.../..a", "dots beside something else"},
		{RECIPE_NAME_OK, 0, "zookeeper/quota", "zookeeper below a root"},
		{RECIPE_NAME_OK, 0, "z\xC3\xBCrich/\xE6\x9D\xB1\xE4\xBA\xAC", "two and three bytes a character"},
		{RECIPE_NAME_OK, 0, "\x20\x7E", "U+0020, U+007E"},
		{RECIPE_NAME_OK, 0, "\xC2\xA0", "U+00A0"},
		{RECIPE_NAME_OK, 0, "\xDF\xBF\xE0\xA0\x80", "U+07FF, U+0800"},
		{RECIPE_NAME_OK, 0, "\xED\x9F\xBF", "U+D7FF"},
		{RECIPE_NAME_OK, 0, "\xEF\xA4\x80", "U+F900"},
		{RECIPE_NAME_OK, 0, "\xEF\xBF\xAF", "U+FFEF"},
		{RECIPE_NAME_OK, 0, "job-20240131", "a date"},
		{RECIPE_NAME_OK, 0, "job-123456789", "nine digits"},
		{RECIPE_NAME_OK, 0, "1234567890x", "ten digits, not at the end"},

		{RECIPE_NAME_EMPTY, 0, "", "empty"},

		{RECIPE_NAME_EMPTY_COMPONENT, 0, "/", "one slash"},
		{RECIPE_NAME_EMPTY_COMPONENT, 0, "/a", "leading slash"},
		{RECIPE_NAME_EMPTY_COMPONENT, 2, "a/", "trailing slash"},
		{RECIPE_NAME_EMPTY_COMPONENT, 3, "ab//c", "double slash"},

		{RECIPE_NAME_DOTS, 0, ".", "dot"},
		{RECIPE_NAME_DOTS, 0, "..", "two dots"},
		{RECIPE_NAME_DOTS, 2, "a/./b", "dot in the middle"},
		{RECIPE_NAME_DOTS, 3, "ab/..", "two dots at the end"},

		{RECIPE_NAME_CHARACTER, 0, "\x01", "U+0001"},
		{RECIPE_NAME_CHARACTER, 3, "a/b\x1F", "U+001F"},
		{RECIPE_NAME_CHARACTER, 1, "a\x7F", "U+007F"},
		{RECIPE_NAME_CHARACTER, 1, "a\xC2\x80", "U+0080"},
		{RECIPE_NAME_CHARACTER, 1, "a\xC2\x9F" "b", "U+009F"},

		{RECIPE_NAME_ENCODING, 1, "a\x80", "a continuation byte alone"},
		{RECIPE_NAME_ENCODING, 1, "a\xBF" "a", "another one"},
		{RECIPE_NAME_ENCODING, 1, "a\xC3", "two bytes, cut after one"},
		{RECIPE_NAME_ENCODING, 1, "a\xC3/b", "cut by a slash"},
		{RECIPE_NAME_ENCODING, 1, "a\xC3\xC3\xBC", "cut by a lead byte"},
		{RECIPE_NAME_ENCODING, 0, "\xE6\x9D", "three bytes, cut after two"},
		{RECIPE_NAME_ENCODING, 0, "\xE6/b", "three bytes, cut by a slash"},
		{RECIPE_NAME_ENCODING, 0, "\xF0\x9F\x98", "four bytes, cut after three"},
		{RECIPE_NAME_ENCODING, 0, "\xC0\x80", "overlong NUL"},
		{RECIPE_NAME_ENCODING, 0, "\xC1\xBF", "overlong in two bytes"},
		{RECIPE_NAME_ENCODING, 0, "\xC0\xAF", "overlong slash"},
		{RECIPE_NAME_ENCODING, 0, "\xE0\x80\xAF", "overlong slash in three bytes"},
		{RECIPE_NAME_ENCODING, 0, "\xE0\x9F\xBF", "overlong in three bytes"},
		{RECIPE_NAME_ENCODING, 0, "\xF0\x8F\xBF\xBF", "overlong in four bytes"},
		{RECIPE_NAME_ENCODING, 0, "\xF4\x90\x80\x80", "U+110000"},
		{RECIPE_NAME_ENCODING, 0, "\xF7\xBF\xBF\xBF", "U+1FFFFF"},
		{RECIPE_NAME_ENCODING, 0, "\xF8\x88\x80\x80\x80", "five bytes"},
		{RECIPE_NAME_ENCODING, 0, "\xFE", "byte FE"},
		{RECIPE_NAME_ENCODING, 2, "a/\xFF", "byte FF"},
		{RECIPE_NAME_ENCODING, 1, "a\xFC/1234567890", "Latin-1, before a worse component"},

		{RECIPE_NAME_CHARACTER, 2, "a/\xF0\x9F\x98\x80", "U+1F600"},
		{RECIPE_NAME_CHARACTER, 0, "\xF0\x90\x80\x80", "U+10000"},
		{RECIPE_NAME_CHARACTER, 0, "\xF4\x8F\xBF\xBF", "U+10FFFF"},

		{RECIPE_NAME_ENCODING, 1, "a\xED\xA0\x80", "U+D800"},
		{RECIPE_NAME_ENCODING, 0, "\xED\xBF\xBF", "U+DFFF"},
		{RECIPE_NAME_CHARACTER, 0, "\xEE\x80\x80", "U+E000"},
		{RECIPE_NAME_CHARACTER, 0, "\xEF\xA3\xBF", "U+F8FF"},
		{RECIPE_NAME_CHARACTER, 0, "\xEF\xBF\xB0", "U+FFF0"},
		{RECIPE_NAME_CHARACTER, 0, "\xEF\xBF\xBF", "U+FFFF"},

		{RECIPE_NAME_OK, 0, "1234567890", "ten digits, first in the root"},
		{RECIPE_NAME_OK, 0, "job-1700000000/part", "likewise, with something below"},
		{RECIPE_NAME_LIKE_QUEUE_NODE, 0, "_c_" G1 "-lock-0000000001", "Curator's mark, first in the root"},
		{RECIPE_NAME_LIKE_QUEUE_NODE, 0, "x__lock__1/b", "Kazoo's, likewise, with something below"},
		{RECIPE_NAME_OK, 0, "a/1234567890", "ten digits below a lock"},
		{RECIPE_NAME_OK, 0, "a/0000000001/b", "likewise, in the middle"},
		{RECIPE_NAME_OK, 0, "a/x--000000005", "a negative number below a lock"},
		{RECIPE_NAME_OK, 0, "a/job_20240131123456", "a date and time"},
		{RECIPE_NAME_OK, 0, "a/order-9223372036854775807", "the greatest bigint"},
		{RECIPE_NAME_OK, 0, "a/6ba7b810-9dad-41d1-80b4-001234567890", "a UUID that ends in digits"},
		{RECIPE_NAME_OK, 0, "a/lock-0000000001/b", "a word that a client uses, too"},
		{RECIPE_NAME_OK, 0, "a/read-1234567890", "another"},
		{RECIPE_NAME_OK, 0, "a/x-12-1234567890", "and what precedes its number"},
		{RECIPE_NAME_OK, 0, "a/x__lock__y", "a mark without a number"},
		{RECIPE_NAME_OK, 0, "a/_c_" G1 "-lock-", "another"},
		{RECIPE_NAME_OK, 0, "a/LOCK-SHARED-x1", "a number that is not just behind it"},
		{RECIPE_NAME_LIKE_QUEUE_NODE, 2, "a/_c_" G1 "-lock-0000000001", "Curator's mark"},
		{RECIPE_NAME_LIKE_QUEUE_NODE, 2, "a/_c_x1234567890", "its beginning alone"},
		{RECIPE_NAME_OK, 0, "a/_c_x:", "with what stands behind the digits in ASCII"},
		{RECIPE_NAME_LIKE_QUEUE_NODE, 2, "a/x__lock__0000000001", "Kazoo's"},
		{RECIPE_NAME_LIKE_QUEUE_NODE, 2, "a/x__lock__7", "with a small number, too"},
		{RECIPE_NAME_LIKE_QUEUE_NODE, 2, "a/x__rlock__12345678901/b", "with eleven digits, in the middle"},
		{RECIPE_NAME_LIKE_QUEUE_NODE, 2, "a/x__lock__-000000005", "with a negative one"},
		{RECIPE_NAME_LIKE_QUEUE_NODE, 4, "a/b/__READ__1", "a reader's"},
		{RECIPE_NAME_LIKE_QUEUE_NODE, 2, "a/x-__WRIT__1", "a writer's"},
		{RECIPE_NAME_LIKE_QUEUE_NODE, 2, "a/LOCK-EXCLUSIVE-5", "Hive's"},
		{RECIPE_NAME_EMPTY_COMPONENT, 13, "a/1234567890//", "empty behind a number"},

		{RECIPE_NAME_LIST, 0, "{a,b}", "a list of two"},
		{RECIPE_NAME_LIST, 0, "{a}", "of one"},
		{RECIPE_NAME_LIST, 0, "{}", "of none"},
		{RECIPE_NAME_LIST, 0, "{{a,b},{c,d}}", "of two dimensions"},
		{RECIPE_NAME_LIST, 0, "{NULL}", "of a NULL"},
		{RECIPE_NAME_LIST, 0, "{\"a}\",\"b c\"}", "with a brace in quotes"},
		{RECIPE_NAME_LIST, 0, "{\"a\\\"}\",b}", "with a quote that is protected"},
		{RECIPE_NAME_LIST, 0, "{a\\},b}", "with a brace that is"},
		{RECIPE_NAME_LIST, 0, "{a/1,a/2}", "of names with components"},
		{RECIPE_NAME_LIST, 0, "{\xFF}", "of what is no UTF-8"},
		{RECIPE_NAME_OK, 0, "{", "one brace"},
		{RECIPE_NAME_OK, 0, "}", "the other"},
		{RECIPE_NAME_OK, 0, "{a", "a brace that is not closed"},
		{RECIPE_NAME_OK, 0, "{a\\}", "closed by a brace that is protected"},
		{RECIPE_NAME_OK, 0, "{\"a}", "by one in quotes"},
		{RECIPE_NAME_OK, 0, "{a}b", "closed before the end"},
		{RECIPE_NAME_OK, 0, "{a}/{b}", "closed before the end, and again"},
		{RECIPE_NAME_OK, 0, "{a}}", "closed once too often"},
		{RECIPE_NAME_OK, 0, "a/{b,c}", "a list as a component"},
		{RECIPE_NAME_OK, 0, "a,b", "a list without braces"},
		{RECIPE_NAME_LIST, 0, "[\"a\", \"b\"]", "a list as Ruby and JSON write it"},
		{RECIPE_NAME_LIST, 0, "[1, 2]", "of numbers"},
		{RECIPE_NAME_LIST, 0, "[]", "of none"},
		{RECIPE_NAME_LIST, 0, "['a', 'b']", "as Python writes it"},
		{RECIPE_NAME_LIST, 0, "[\"a]\", [\"b\"]]", "with a bracket in quotes, and one in the other"},
		{RECIPE_NAME_OK, 0, "[", "one bracket"},
		{RECIPE_NAME_OK, 0, "{a\\", "a brace, and a backslash at the end"},
		{RECIPE_NAME_OK, 0, "[a", "a bracket that is not closed"},
		{RECIPE_NAME_OK, 0, "[a}", "closed by a brace"},
		{RECIPE_NAME_OK, 0, "{a]", "a brace that is closed by a bracket"},
		{RECIPE_NAME_OK, 0, "[a]/[b]", "a bracket that is closed before the end, and again"},
		{RECIPE_NAME_OK, 0, "[::1]:2181", "an address with a port"},
		{RECIPE_NAME_OK, 0, "a[1]", "an index"},

		{RECIPE_NAME_OK, 0, "a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a", "the deepest"},
		{RECIPE_NAME_TOO_DEEP, 32, "a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/bc/d", "too deep"},
		{RECIPE_NAME_EMPTY_COMPONENT, 32, "a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/", "empty, though too deep"},
	};
	char		name[RECIPE_NAME_MAX + 2];
	NameCase	longest = {RECIPE_NAME_OK, 0, name, "the longest"};
	NameCase	too_long = {RECIPE_NAME_TOO_LONG, 0, name, "one byte too long"};
	NameCase	long_list = {RECIPE_NAME_LIST, 0, name, "a list that is too long"};

	check_names(cases, NELEMS(cases));

	memset(name, 'a', sizeof(name));
	name[RECIPE_NAME_MAX] = '\0';
	check_names(&longest, 1);
	name[RECIPE_NAME_MAX] = 'a';
	name[RECIPE_NAME_MAX + 1] = '\0';
	check_names(&too_long, 1);

	memset(name, ',', sizeof(name));
	name[0] = '{';
	name[RECIPE_NAME_MAX] = '}';
	name[RECIPE_NAME_MAX + 1] = '\0';
	check_names(&long_list, 1);
}

/*
 * A child that only its znode tells from a contender; no other one may be the
 * znode of a lock and look like a contender.
 */
static void
test_may_be_name(void)
{
	static const struct
	{
		bool		may_be;
		const char *child;
	}			cases[] = {
		{true, "0000000001"},
		{true, "1234567890"},
		{true, "-000000005"},
		{true, "order-1234567890"},
		{true, "lock-0000000001"},
		{true, "read-0000000001"},
		{true, "x-72057602912714752-0000000001"},
		{true, "whatever-0000000001"},
		{false, "123456789"},
		{false, "order"},
		{false, "1234567890x"},
		{false, ""},
		{false, "_c_" G1 "-lock-0000000001"},
		{false, "_c_" G1 "-shared-lock-0000000001"},
		{false, "_c_" G1 "-permits-2-lock-0000000001"},
		{false, "_c_" G1 "-__READ__0000000001"},
		{false, "_c_whatever0000000001"},
		{false, "x__lock__0000000001"},
		{false, "x__rlock__0000000001"},
		{false, "__WRIT__0000000001"},
		{false, "LOCK-SHARED-0000000001"},
		{false, "LOCK-SEMI_SHARED-0000000001"},
	};
	static const char *const starts[] = {
		"", "-", "x-", "x--", "lock-", "lock--", "read-", "x-1-", "_c_", "_c_x-",
		"_c_" G1 "-lock-", "_c_" G1 "-permits-3-lock-", "__lock__", "__lock__-",
		"a__rlock__", "__READ__", "x-__WRIT__", "LOCK-SHARED-", "LOCK-SHARED--",
		"LOCK-EXCLUSIVE-", "aLOCK-SHARED-", "_c", "c_", "\xC3\xA9-"
	};
	static const char *const numbers[] = {
		"1", "123456789", "000000005", "1234567890", "0000000001",
		"2147483647", "9999999999", "12345678901", "1700000000123",
		"9223372036854775807"
	};

	for (int i = 0; i < NELEMS(cases); i++)
		is_int(cases[i].may_be, recipe_may_be_name(cases[i].child),
			   "may it be the znode of a lock: \"%s\"", cases[i].child);

	for (int i = 0; i < NELEMS(starts); i++)
		for (int j = 0; j < NELEMS(numbers); j++)
		{
			char		name[RECIPE_NAME_MAX];
			const char *child = name + 2;
			size_t		offset;

			snprintf(name, sizeof(name), "a/%s%s", starts[i], numbers[j]);
			if (recipe_check_name(name, &offset) == RECIPE_NAME_OK &&
				recipe_parse_node(child).style != RECIPE_STYLE_NONE)
				is_int(true, recipe_may_be_name(child),
					   "a name that is like a contender: \"%s\"", name);
		}
}

static void
test_roots(void)
{
	static const struct
	{
		bool		is_good;
		const char *root;
		const char *what;
	}			cases[] = {
		{true, "/", "the root itself"},
		{true, "/zklock", "one component"},
		{true, "/a/b", "two components"},
		{true, "/zookeepers", "more than zookeeper"},
		{true, "/zookeepe", "less than zookeeper"},
		{true, "/a/zookeeper", "zookeeper further down"},

		{false, "", "empty"},
		{false, "zklock", "relative"},
		{false, "a/b", "relative, two components"},
		{false, "//", "two slashes"},
		{false, "//a", "two leading slashes"},
		{false, "/a/", "trailing slash"},
		{false, "/zookeeper/", "zookeeper and a slash"},
		{false, "/a/..", "dots"},
		{false, "/a\n", "control character"},
		{false, "/\xFF", "encoding"},
		{false, "/\xF0\x9F\x98\x80", "beyond the BMP"},
		{false, "/\xEE\x80\x80", "private use"},
		{false, "/a/lock-0000000001", "like a contender"},
		{true, "/locks-2024010203", "the same, first in the chroot"},
		{false, "/zookeeper", "zookeeper's own"},
		{false, "/zookeeper/quota", "below zookeeper's own"},
	};
	char		root[RECIPE_ROOT_MAX + 2];

	for (int i = 0; i < NELEMS(cases); i++)
		is_int(cases[i].is_good, recipe_is_root(cases[i].root), "root: %s",
			   cases[i].what);

	memset(root, 'a', sizeof(root));
	root[0] = '/';
	root[RECIPE_ROOT_MAX] = '\0';
	ok(recipe_is_root(root), "root: the longest");
	root[RECIPE_ROOT_MAX] = 'a';
	root[RECIPE_ROOT_MAX + 1] = '\0';
	ok(!recipe_is_root(root), "root: one byte too long");
}

static void
test_paths(void)
{
	char		path[RECIPE_PATH_SIZE];
	char		root[RECIPE_ROOT_MAX + 1];
	char		name[RECIPE_NAME_MAX + 2];

	ok(recipe_lock_path(path, "/zklock", "team/nightly"), "a path fits");
	is_str("/zklock/team/nightly", path, "path below a root");
	ok(recipe_lock_path(path, "/", "a"), "a path below \"/\" fits");
	is_str("/a", path, "path below \"/\"");
	ok(recipe_lock_path(path, "", "a"), "a path below \"\" fits");
	is_str("/a", path, "path below \"\"");

	memset(root, 'r', sizeof(root));
	root[0] = '/';
	root[RECIPE_ROOT_MAX] = '\0';
	memset(name, 'n', sizeof(name));
	name[RECIPE_NAME_MAX] = '\0';
	memset(path, 'x', sizeof(path));
	ok(recipe_lock_path(path, root, name), "the longest path fits");
	is_int(RECIPE_ROOT_MAX + 1 + RECIPE_NAME_MAX, strlen(path),
		   "length of the longest path");
	ok(memcmp(path, root, RECIPE_ROOT_MAX) == 0, "it starts with the root");
	is_str(name, path + RECIPE_ROOT_MAX + 1, "it ends with the name");

	name[RECIPE_NAME_MAX] = 'n';
	name[RECIPE_NAME_MAX + 1] = '\0';
	ok(!recipe_lock_path(path, root, name),
	   "a path that is one byte longer leaves no room for a queue node");
	is_str("", path, "the path is then empty");
}

static void
test_prefixes_and_guids(void)
{
	static const uint8_t zeros[16] = {0};
	static const uint8_t counting[16] = {0x00, 0x11, 0x22, 0x33, 0x44, 0x55,
	0x66, 0x77, 0x88, 0x99, 0xAA, 0xBB, 0xCC, 0xDD, 0xEE, 0xFF};
	uint8_t		ones[16];
	char		guid[RECIPE_GUID_LEN + 1];
	char		prefix[RECIPE_NODE_SIZE];
	char		node[RECIPE_NODE_SIZE + 16];

	memset(ones, 0xFF, sizeof(ones));
	memset(guid, 'x', sizeof(guid));
	recipe_format_guid(guid, zeros);
	is_str("00000000-0000-4000-8000-000000000000", guid,
		   "GUID: version and variant are set");
	recipe_format_guid(guid, ones);
	is_str("ffffffff-ffff-4fff-bfff-ffffffffffff", guid,
		   "GUID: version and variant are cleared");
	recipe_format_guid(guid, counting);
	is_str("00112233-4455-4677-8899-aabbccddeeff", guid,
		   "GUID: the rest is as given");
	is_int(RECIPE_GUID_LEN, strlen(guid), "GUID: length");

	recipe_node_prefix(prefix, RECIPE_STYLE_CURATOR, RECIPE_EXCLUSIVE, 1, G1);
	is_str("_c_" G1 "-lock-", prefix, "exclusive prefix");
	recipe_node_prefix(prefix, RECIPE_STYLE_CURATOR, RECIPE_SHARED, 1, G1);
	is_str("_c_" G1 "-shared-lock-", prefix, "shared prefix");
	for (int mode = RECIPE_EXCLUSIVE; mode <= RECIPE_SHARED; mode++)
	{
		static const RecipeStyle styles[] = {RECIPE_STYLE_CURATOR_RW, RECIPE_STYLE_KAZOO};

		for (int i = 0; i < NELEMS(styles); i++)
		{
			RecipeNode	made;

			recipe_node_prefix(prefix, styles[i], mode, 1, G1);
			snprintf(node, sizeof(node), "%s%010d", prefix, 42);
			made = recipe_parse_node(node);
			ok(made.style == styles[i] && made.mode == (RecipeMode) mode &&
			   made.sequence == 42, "\"%s\" is what it was made for", node);
		}
	}
	recipe_node_prefix(prefix, RECIPE_STYLE_KAZOO, RECIPE_EXCLUSIVE, 7, G1);
	is_str("_c_" G1 "-permits-7-lock-", prefix, "prefix with permits");
	recipe_node_prefix(prefix, RECIPE_STYLE_CURATOR, RECIPE_EXCLUSIVE, 2, G1);
	is_str("_c_" G1 "-permits-2-lock-", prefix, "prefix with two permits");
	recipe_node_prefix(prefix, RECIPE_STYLE_CURATOR, RECIPE_SHARED, 1, G1);

	snprintf(node, sizeof(node), "%s%010d", prefix, INT32_MIN);
	ok(strlen(node) < RECIPE_NODE_SIZE,
	   "the longest queue node fits RECIPE_NODE_SIZE");
	is_int(RECIPE_SHARED, recipe_parse_node(node).mode,
		   "our own shared prefix is recognized");
}

/* Each mark has a group of its own, and is read where it was written. */
static void
test_marks(void)
{
	static const struct
	{
		RecipeMark	mark;
		const char *group;
	}			cases[] = {
		{RECIPE_MARK_HAND_OVER, "8a11"},
		{RECIPE_MARK_HOLD, "8a12"},
		{RECIPE_MARK_KEEPER, "8a13"},
		{RECIPE_MARK_LEASE, "8a14"},
		{RECIPE_MARK_NONE, "8a10"},
		{RECIPE_MARK_TAKER, "8a15"},
		{RECIPE_MARK_NONE, "8a16"},
		{RECIPE_MARK_NONE, "8b11"},
	};
	static const char *const others[] = {
		"_c_" G1 "-lock-0000000001",
		"_c_00112233-4455-8a11-8899-aabbccddeeff-shared-lock-0000000001",
		"_c_00112233-4455-8a11-8899-aabbccddeeff-__WRIT__0000000001",
		"_c_00112233-4455-8a11-8899-aabbccddeeff-x-lock-0000000001",
		"_c_00112233445548a118899aabbccddeeff-lock-0000000001",
		"_c_-8a11-lock-0000000001",
		"00112233-4455-8a11-8899-aabbccddeeff__lock__0000000001",
		"_c_00112233-4455-8a11-8899-aabbccddeeff-lock-",
		"lock-0000000001",
		""
	};
	char		node[2 * RECIPE_NODE_SIZE];
	char		prefix[RECIPE_NODE_SIZE];
	char		guid[RECIPE_GUID_LEN + 1];

	for (int i = 0; i < NELEMS(cases); i++)
	{
		snprintf(node, sizeof(node), "_c_00112233-4455-%s-8899-aabbccddeeff-lock-0000000001",
				 cases[i].group);
		is_int(cases[i].mark, recipe_read_mark(node), "mark of group %s", cases[i].group);
		is_int(cases[i].mark == RECIPE_MARK_HOLD || cases[i].mark == RECIPE_MARK_LEASE, recipe_is_lasting(node),
			   "holds and leases outlive their sessions");
		if (cases[i].mark == RECIPE_MARK_NONE)
			continue;
		strcpy(guid, G1);
		recipe_mark(guid, cases[i].mark);
		recipe_node_prefix(prefix, RECIPE_STYLE_CURATOR, RECIPE_EXCLUSIVE, 1, guid);
		snprintf(node, sizeof(node), "%s0000000001", prefix);
		is_int(cases[i].mark, recipe_read_mark(node), "\"%s\" is marked", node);
		ok(strncmp(guid + 14, cases[i].group, 4) == 0, "the mark is the group %s of the GUID", cases[i].group);
		memcpy(guid + 14, G1 + 14, 4);
		is_str(G1, guid, "nothing else of the GUID is changed");
	}
	for (int i = 0; i < NELEMS(others); i++)
		is_int(RECIPE_MARK_NONE, recipe_read_mark(others[i]), "\"%s\" has none", others[i]);
}

/* What a lease's name says: in each style and mode, whose it is, and the token. */
static void
test_lease_names(void)
{
	static const struct
	{
		RecipeStyle style;
		RecipeMode	mode;
		int			permits;
	}			cases[] = {
		{RECIPE_STYLE_CURATOR, RECIPE_EXCLUSIVE, 1},
		{RECIPE_STYLE_CURATOR, RECIPE_SHARED, 1},
		{RECIPE_STYLE_CURATOR, RECIPE_EXCLUSIVE, RECIPE_PERMITS_MAX},
		{RECIPE_STYLE_CURATOR_RW, RECIPE_EXCLUSIVE, 1},
		{RECIPE_STYLE_CURATOR_RW, RECIPE_SHARED, 1},
		{RECIPE_STYLE_KAZOO, RECIPE_EXCLUSIVE, 1},
		{RECIPE_STYLE_KAZOO, RECIPE_SHARED, 1}
	};
	static const int64_t tokens[] = {1, INT64_C(0x123456789abcdef), INT64_C(0x0000ffffffffffff), INT64_MAX};
	char		node[2 * RECIPE_NODE_SIZE];
	char		prefix[RECIPE_NODE_SIZE];
	char		guid[RECIPE_GUID_LEN + 1];

	is_int(2166136261u, recipe_hash_owner(""), "the hash of nothing");
	is_int(0xe40c292c, recipe_hash_owner("a"), "the hash is FNV-1a");
	recipe_lease_guid(guid, 0x12, 0x34);
	is_str("00000012-0000-8a14-8000-000000000034", guid, "the GUID of a lease");
	for (int i = 0; i < NELEMS(cases); i++)
	{
		for (int j = 0; j < NELEMS(tokens); j++)
		{
			recipe_lease_guid(guid, 0xdeadbeef, tokens[j]);
			recipe_node_prefix(prefix, cases[i].style, cases[i].mode, cases[i].permits, guid);
			snprintf(node, sizeof(node), "%s0000000007", prefix);
			is_int(RECIPE_MARK_LEASE, recipe_read_mark(node), "\"%s\" is a lease", node);
			is_int(0xdeadbeef, recipe_read_owner(node), "the name of a lease has the hash of its owner");
			ok(recipe_read_token(node) == tokens[j], "the name of a lease has its token");
			is_int(cases[i].permits, recipe_parse_node(node).permits, "the name of a lease has its permits");
			is_int(cases[i].mode, recipe_parse_node(node).mode, "the name of a lease has its mode");
		}
		strcpy(guid, G1);
		recipe_mark_taker(guid, 0x1);
		recipe_node_prefix(prefix, cases[i].style, cases[i].mode, cases[i].permits, guid);
		snprintf(node, sizeof(node), "%s0000000007", prefix);
		is_int(RECIPE_MARK_TAKER, recipe_read_mark(node), "\"%s\" takes a lease", node);
		is_int(1, recipe_read_owner(node), "the name of who takes a lease has the hash of its owner");
		memcpy(node + 3 + 14, "8a11", 4);
		is_int(cases[i].style == RECIPE_STYLE_CURATOR && cases[i].mode == RECIPE_EXCLUSIVE && cases[i].permits == 1 ?
			   RECIPE_MARK_HAND_OVER : RECIPE_MARK_NONE, recipe_read_mark(node),
			   "\"%s\" hands over only if it is exclusive and Curator's", node);
	}
	is_int(0, recipe_read_token("_c_00000000-ffff-8a14-8000-ffffffffffff-lock-0000000001"), "no token is negative");
	is_int(0, recipe_read_token("_c_00000000-000x-8a14-8000-00000000000y-lock-0000000001"), "no token is no number");
	is_int(RECIPE_MARK_NONE, recipe_read_mark("_c_00112233-4455-8a14-8899-aabbccddeeff-permits-1-lock-0000000001"), "permits that nobody writes");
	is_int(RECIPE_MARK_NONE, recipe_read_mark("_c_00112233-4455-8a14-8899-aabbccddeeff-rlock-0000000001"), "a style that nobody writes");
}

/* A hold is an exclusive contender for everybody. */
static void
test_hold(void)
{
	const char *hold = "_c_00112233-4455-8a12-8899-aabbccddeeff-lock-0000000001";

	is_int(RECIPE_EXCLUSIVE, recipe_parse_node(hold).mode, "a hold is exclusive");
	is_int(RECIPE_STYLE_CURATOR, recipe_parse_node(hold).style,
		   "a hold looks like Curator's");
}

/* The verdicts as words, for the table below and for messages. */
static const char *
verdict_name(RecipeVerdict verdict)
{
	static const char *const names[] = {"held", "wait", "gone", "exhausted",
	"mismatch"};

	return names[verdict];
}

static int
count_children(const char *const *children)
{
	int			n = 0;

	while (n < MAX_CHILDREN && children[n] != NULL)
		n++;
	return n;
}

/* Children of the tables: who they are, then the number. */
#define EX1 "_c_" G1 "-lock-"
#define EX2 "_c_" G2 "-lock-"
#define SH1 "_c_" G1 "-shared-lock-"
#define SH2 "_c_" G2 "-shared-lock-"
#define READ1 "_c_" G1 "-__READ__"
#define READ2 "_c_" G2 "-__READ__"
#define WRIT1 "_c_" G1 "-__WRIT__"
#define WRIT2 "_c_" G2 "-__WRIT__"

#define P3(number) "_c_" G1 "-permits-3-lock-000000000" #number
#define P2(number) "_c_" G1 "-permits-2-lock-000000000" #number

static RecipeVerdict
verdict_for(const char *const *children, int nchildren, const char *mine,
			RecipeMode mode, int permits, int *watch)
{
	RecipeWish	wish = {.mine = mine,.mode = mode,.permits = permits};

	return recipe_verdict(children, nchildren, &wish, watch);
}

/* The first three of the queue hold a semaphore with three permits. */
static void
test_permits(void)
{
	static const struct
	{
		RecipeVerdict verdict;
		int			watch;
		const char *mine;
		const char *children[MAX_CHILDREN];
		const char *what;
	}			cases[] = {
		{RECIPE_HELD, -1, P3(1), {P3(1)}, "alone"},
		{RECIPE_HELD, -1, P3(3), {P3(3), P3(1), P3(2)}, "third of three"},
		{RECIPE_WAIT, -1, P3(4), {P3(4), P3(1), P3(2), P3(3)},
		"the first that waits watches all"},
		{RECIPE_WAIT, -1, P3(4), {P3(5), P3(4), P3(1), P3(2), P3(3)},
		"holders that are listed behind a later one"},
		{RECIPE_WAIT, 1, P3(5), {P3(5), P3(4), P3(1), P3(2), P3(3)},
		"the second one watches the first"},
		{RECIPE_HELD, -1, P3(5), {P3(5), P3(2), P3(6), P3(3)},
		"holders may leave in any order"},
		{RECIPE_GONE, -1, P3(5), {P3(1)}, "its node is gone"},
		{RECIPE_MISMATCH, 0, P3(5), {P2(1), P3(5)}, "another number ahead"},
		{RECIPE_MISMATCH, 0, P3(5), {EX2 "0000000001", P3(5)}, "a plain lock ahead"},
		{RECIPE_MISMATCH, 0, P3(5), {SH2 "0000000001", P3(5)}, "a reader ahead"},
		{RECIPE_WAIT, 1, P3(5), {P3(1), P2(2), P3(5)},
		"another number in between is waited for"},
		{RECIPE_WAIT, 2, P3(5), {P3(1), EX2 "0000000002", P3(3), P3(5)},
		"so is who waits for a plain lock in between"},
		{RECIPE_WAIT, 0, P3(5), {P2(4), P3(1), P3(2), P3(3), P3(5)},
		"another number that waits"},
		{RECIPE_HELD, -1, P3(5), {P2(6), EX2 "0000000007", P3(5)},
		"who comes later has the trouble"},
		{RECIPE_EXHAUSTED, -1, P3(5), {P3(5), P2(5)}, "the same number twice"},
		{RECIPE_HELD, -1, NULL, {P3(1), P3(2)}, "a newcomer"},
		{RECIPE_WAIT, -1, NULL, {P3(1), P3(2), P3(3), "note"}, "one too many"},
		{RECIPE_WAIT, -1, P3(4), {"note", P3(1), P3(2), P3(3), P3(4)},
		"whatever is listed before them"},
		{RECIPE_WAIT, 0, P3(5), {P3(0), P2(0), P3(5)},
		"number 0 counts, and of two that have it the one listed first"},
	};
	int			watch;

	for (int i = 0; i < NELEMS(cases); i++)
	{
		const char *const *children = cases[i].children;
		int			nchildren = 0;

		while (nchildren < MAX_CHILDREN && children[nchildren] != NULL)
			nchildren++;
		is_str(verdict_name(cases[i].verdict),
			   verdict_name(verdict_for(children, nchildren, cases[i].mine,
										RECIPE_EXCLUSIVE, 3, &watch)),
			   "permits: %s", cases[i].what);
		is_int(cases[i].watch, watch, "permits: %s, watch", cases[i].what);
	}

	{
		const char *const children[] = {P2(1), P2(2)};

		is_str("held",
			   verdict_name(verdict_for(children, 2, children[1],
										RECIPE_EXCLUSIVE, 2, &watch)),
			   "the second of two permits");
	}
	for (int mode = RECIPE_EXCLUSIVE; mode <= RECIPE_SHARED; mode++)
	{
		const char *const children[] = {P2(1), mode == RECIPE_SHARED ? SH1 "0000000005" : EX1 "0000000005"};

		is_str("mismatch",
			   verdict_name(verdict_for(children, 2, children[1], mode, 1,
										&watch)),
			   "a plain contender behind a semaphore's");
		is_int(0, watch, "knows which");
	}
	for (int mode = RECIPE_EXCLUSIVE; mode <= RECIPE_SHARED; mode++)
	{
		const char *const children[] = {SH2 "0000000001", P3(2), EX1 "0000000005"};

		is_str("wait",
			   verdict_name(verdict_for(children, 3, children[2], mode, 1,
										&watch)),
			   "a semaphore's that came into a queue of plain ones is waited for");
		is_int(1, watch, "a plain waiter watches that semaphore node");
	}
}

static void
test_verdicts(void)
{
	static const struct
	{
		RecipeVerdict verdict;
		int			watch;
		const char *mine;
		RecipeMode	mode;
		const char *children[MAX_CHILDREN];
		const char *what;
	}			cases[] = {
		{RECIPE_HELD, -1, EX1 "0000000005", RECIPE_EXCLUSIVE,
			{EX1 "0000000005"},
		"alone"},
		{RECIPE_HELD, -1, EX1 "0000000005", RECIPE_EXCLUSIVE,
			{EX2 "0000000006", EX1 "0000000005", SH2 "0000000007"},
		"first of three, listed out of order"},
		{RECIPE_WAIT, 2, EX1 "0000000005", RECIPE_EXCLUSIVE,
			{EX2 "0000000006", EX1 "0000000005", EX2 "0000000004"},
		"behind one that is listed behind a later one"},
		{RECIPE_WAIT, 2, EX1 "0000000009", RECIPE_EXCLUSIVE,
			{EX1 "0000000009", EX2 "0000000003", EX2 "0000000007", EX2 "0000000011", EX2 "0000000005"},
		"the nearest ahead, not the first"},
		{RECIPE_WAIT, 0, EX1 "1000000000", RECIPE_EXCLUSIVE,
			{EX2 "0999999999", EX1 "1000000000"},
		"numbers are compared as numbers"},
		{RECIPE_WAIT, 1, "_c_0-lock-0000000009", RECIPE_EXCLUSIVE,
			{"_c_0-lock-0000000009", "_c_z-lock-0000000008"},
		"names do not decide"},
		{RECIPE_WAIT, 0, EX1 "0000000001", RECIPE_EXCLUSIVE,
			{EX2 "0000000000", EX1 "0000000001"},
		"number 0 counts"},
		{RECIPE_WAIT, 0, EX1 "0000000005", RECIPE_EXCLUSIVE,
			{SH2 "0000000004", EX1 "0000000005"},
		"exclusive waits for shared"},
		{RECIPE_WAIT, 1, EX1 "0000000005", RECIPE_EXCLUSIVE,
			{EX2 "0000000003", SH2 "0000000004", EX1 "0000000005"},
		"exclusive waits for the nearest, of whatever mode"},

		/* shared contenders */
		{RECIPE_HELD, -1, SH1 "0000000005", RECIPE_SHARED,
			{SH2 "0000000004", SH1 "0000000005"},
		"shared beside shared"},
		{RECIPE_WAIT, 0, SH1 "0000000005", RECIPE_SHARED,
			{EX2 "0000000003", SH2 "0000000004", SH1 "0000000005"},
		"shared behind shared behind exclusive"},
		{RECIPE_WAIT, 1, SH1 "0000000006", RECIPE_SHARED,
			{EX2 "0000000002", WRIT2 "0000000004", SH2 "0000000005", SH1 "0000000006"},
		"shared waits for the nearest exclusive"},
		{RECIPE_HELD, -1, SH1 "0000000005", RECIPE_SHARED,
			{SH1 "0000000005", READ2 "0000000001", HEX "__rlock__0000000002", "read-0000000003", "LOCK-SHARED-0000000004"},
		"shared beside the shared ones of every style"},
		{RECIPE_WAIT, 0, SH1 "0000000005", RECIPE_SHARED,
			{"mylock_0000000004", SH1 "0000000005"},
		"an unknown contender excludes shared"},
		{RECIPE_WAIT, 0, SH1 "0000000005", RECIPE_SHARED,
			{"LOCK-SEMI_SHARED-0000000004", SH1 "0000000005"},
		"semi-shared excludes shared"},
		{RECIPE_HELD, -1, SH1 "0000000005", RECIPE_SHARED,
			{SH1 "0000000005", EX2 "0000000006"},
		"shared before exclusive"},

		/* strangers */
		{RECIPE_HELD, -1, EX1 "0000000005", RECIPE_EXCLUSIVE,
			{"config", "000000001", EX1 "0000000005", "-lock-", ""},
		"children without a number are ignored"},
		{RECIPE_WAIT, 1, EX1 "0000000005", RECIPE_EXCLUSIVE,
			{"config", EX2 "0000000004", EX1 "0000000005"},
		"but not those listed behind them"},
		{RECIPE_WAIT, 0, EX1 "0000000005", RECIPE_EXCLUSIVE,
			{"mylock_0000000004", EX1 "0000000005"},
		"an unknown contender counts"},
		{RECIPE_WAIT, 0, EX1 "0000000005", RECIPE_EXCLUSIVE,
			{"0000000004", EX1 "0000000005"},
		"a bare number counts"},
		{RECIPE_WAIT, 0, HEX "__lock__0000000005", RECIPE_EXCLUSIVE,
			{EX1 "0000000004", HEX "__lock__0000000005"},
		"our node may be of another style"},

		/* our node is not there */
		{RECIPE_GONE, -1, EX1 "0000000005", RECIPE_EXCLUSIVE,
			{NULL},
		"gone: no children"},
		{RECIPE_GONE, -1, EX1 "0000000005", RECIPE_EXCLUSIVE,
			{EX1 "0000000006", EX2 "0000000005", SH1 "0000000005"},
		"gone: others only resemble ours"},
		{RECIPE_GONE, -1, EX1 "0000000005", RECIPE_EXCLUSIVE,
			{EX1 "00000000050000000005", EX1 "000000005"},
		"gone: a full name is no prefix"},
		{RECIPE_GONE, -1, EX1 "0000000005", RECIPE_EXCLUSIVE,
			{EX2 "2147483647", EX2 "-000000001"},
		"gone: takes precedence over exhausted"},

		/* the reply to the create was lost */
		{RECIPE_EXHAUSTED, -1, EX1 "0000000005", RECIPE_EXCLUSIVE,
			{EX1 "0000000005", EX2 "0000000005"},
		"tie with us"},
		{RECIPE_EXHAUSTED, -1, SH1 "0000000005", RECIPE_SHARED,
			{SH2 "0000000005", SH1 "0000000005"},
		"tie with us, both shared"},
		{RECIPE_EXHAUSTED, -1, SH1 "0000000005", RECIPE_SHARED,
			{SH1 "0000000005", WRIT2 "0000000005"},
		"tie with a writer of Curator"},
		{RECIPE_EXHAUSTED, -1, EX1 "0000000005", RECIPE_EXCLUSIVE,
			{EX1 "0000000005", HEX "__rlock__0000000005"},
		"tie with a shared one that is not Curator's"},
		{RECIPE_EXHAUSTED, -1, EX1 "0000000005", RECIPE_EXCLUSIVE,
			{EX2 "0000000004", READ2 "0000000005", EX1 "0000000005", "lock-0000000005"},
		"two ties, one of them bad"},
		{RECIPE_WAIT, 1, WRIT1 "0000000005", RECIPE_EXCLUSIVE,
			{WRIT1 "0000000005", READ2 "0000000005"},
		"a reader of Curator with our number is ahead of us"},
		{RECIPE_WAIT, 2, EX1 "0000000005", RECIPE_EXCLUSIVE,
			{EX2 "0000000004", EX1 "0000000005", READ2 "0000000005"},
		"and the nearest"},
		{RECIPE_HELD, -1, READ1 "0000000005", RECIPE_SHARED,
			{READ1 "0000000005", READ2 "0000000005"},
		"but does not exclude a shared contender"},
		{RECIPE_WAIT, 1, EX1 "0000000009", RECIPE_EXCLUSIVE,
			{EX1 "0000000009", EX2 "0000000005", SH2 "0000000005"},
		"a tie between two others is theirs"},
		{RECIPE_WAIT, 1, SH1 "0000000009", RECIPE_SHARED,
			{SH1 "0000000009", WRIT2 "0000000005", READ2 "0000000005"},
		"a downgraded writer still holds its write lock"},

		/* the end of the counter */
		{RECIPE_HELD, -1, EX1 "2147482999", RECIPE_EXCLUSIVE,
			{EX1 "2147482999"},
		"the last number below the limit"},
		{RECIPE_EXHAUSTED, -1, EX1 "2147483000", RECIPE_EXCLUSIVE,
			{EX1 "2147483000"},
		"our number is at the limit"},
		{RECIPE_EXHAUSTED, -1, EX1 "0000000005", RECIPE_EXCLUSIVE,
			{EX1 "0000000005", EX2 "2147483000"},
		"a number behind us is at the limit"},
		{RECIPE_EXHAUSTED, -1, EX1 "0000000005", RECIPE_EXCLUSIVE,
			{EX2 "-000000001", EX1 "0000000005"},
		"a number is negative"},
		{RECIPE_EXHAUSTED, -1, EX1 "-000000005", RECIPE_EXCLUSIVE,
			{EX1 "-000000005"},
		"our number is negative"},
		{RECIPE_EXHAUSTED, -1, SH1 "0000000005", RECIPE_SHARED,
			{SH1 "0000000005", SH2 "-2147483648"},
		"a shared one's number is negative"},
		{RECIPE_EXHAUSTED, -1, EX1 "2147483647", RECIPE_EXCLUSIVE,
			{EX2 "2147483647", EX1 "2147483647"},
		"the counter sticks"},
		{RECIPE_EXHAUSTED, -1, EX1 "0000000005", RECIPE_EXCLUSIVE,
			{EX2 "0000000004", EX1 "0000000005", "mylock_9999999999"},
		"a stranger's number is beyond the limit"},
	};

	for (int i = 0; i < NELEMS(cases); i++)
	{
		int			watch = -4711;
		RecipeVerdict verdict;

		verdict = verdict_for(cases[i].children,
							  count_children(cases[i].children),
							  cases[i].mine, cases[i].mode, 1, &watch);
		is_str(verdict_name(cases[i].verdict), verdict_name(verdict),
			   "verdict: %s", cases[i].what);
		is_int(cases[i].watch, watch, "verdict: %s: watch", cases[i].what);
	}
}

static void
test_newcomers(void)
{
	static const struct
	{
		RecipeVerdict verdict;
		int			watch;
		RecipeMode	mode;
		const char *children[MAX_CHILDREN];
		const char *what;
	}			cases[] = {
		{RECIPE_HELD, -1, RECIPE_EXCLUSIVE, {NULL}, "nobody there"},
		{RECIPE_HELD, -1, RECIPE_SHARED, {NULL}, "nobody there, shared"},
		{RECIPE_HELD, -1, RECIPE_EXCLUSIVE, {"config", "nightly"}, "only strangers"},
		{RECIPE_WAIT, 1, RECIPE_EXCLUSIVE,
			{EX1 "0000000004", SH2 "0000000009", EX2 "0000000007"},
		"exclusive waits for the last"},
		{RECIPE_HELD, -1, RECIPE_SHARED,
			{SH1 "0000000004", READ2 "0000000009"},
		"shared joins shared"},
		{RECIPE_WAIT, 2, RECIPE_SHARED,
			{EX1 "0000000004", SH2 "0000000009", EX2 "0000000007"},
		"shared waits for the last exclusive"},
		{RECIPE_WAIT, 0, RECIPE_SHARED,
			{"mylock_0000000004", SH2 "0000000009"},
		"shared waits for an unknown contender"},
		{RECIPE_WAIT, 0, RECIPE_EXCLUSIVE, {EX1 "0000000000"}, "number 0 counts"},
		{RECIPE_WAIT, 0, RECIPE_EXCLUSIVE,
			{EX1 "0000000005", EX2 "0000000005"},
		"a tie between others is theirs"},
		{RECIPE_WAIT, 0, RECIPE_EXCLUSIVE, {EX1 "2147482999"}, "the last number below the limit"},
		{RECIPE_EXHAUSTED, -1, RECIPE_EXCLUSIVE, {EX1 "2147483000"}, "a number at the limit"},
		{RECIPE_EXHAUSTED, -1, RECIPE_SHARED,
			{EX1 "0000000005", SH1 "-000000005"},
		"a negative number"},
	};

	for (int i = 0; i < NELEMS(cases); i++)
	{
		int			watch = -4711;
		RecipeVerdict verdict;

		verdict = verdict_for(cases[i].children,
							  count_children(cases[i].children),
							  NULL, cases[i].mode, 1, &watch);
		is_str(verdict_name(cases[i].verdict), verdict_name(verdict),
			   "newcomer: %s", cases[i].what);
		is_int(cases[i].watch, watch, "newcomer: %s: watch", cases[i].what);
	}
}

/* The child looked for is the first of the row. */
static void
test_first(void)
{
	static const struct
	{
		bool		is_first;
		const char *children[4];
		const char *what;
	}			cases[] = {
		{true, {EX1 "0000000005"}, "alone"},
		{true, {EX1 "0000000005", EX2 "0000000006", SH1 "0000000007"}, "others behind it"},
		{false, {EX1 "0000000005", EX2 "0000000006", SH1 "0000000004"}, "a reader ahead"},
		{false, {EX1 "0000000005", EX2 "0000000005"}, "another with its number"},
		{false, {EX1 "0000000005", "who-knows-0000000001"}, "somebody unknown ahead"},
		{false, {EX1 "0000000005", EX2 "-000000006"}, "a number beyond the end"},
		{true, {EX1 "0000000005", "note", "a"}, "strangers that are no contenders"},
	};

	ok(!recipe_is_first(cases[1].children, 3, cases[1].children[1]),
	   "first: not one behind that which is listed first");
	for (int i = 0; i < NELEMS(cases); i++)
		is_int(cases[i].is_first,
			   recipe_is_first(cases[i].children,
							   count_children(cases[i].children),
							   cases[i].children[0]),
			   "first: %s", cases[i].what);
}

/* A queue as long as one gets in practice, listed in no order. */
static void
test_long_queue(void)
{
	enum
	{
		N = 10000,
		STEP = 7919				/* prime to N: visits every number once */
	};
	static char names[N][RECIPE_NODE_SIZE];
	static const char *children[N];
	int			index_of[N];
	int			watch;

	for (int i = 0; i < N; i++)
	{
		int			number = (int) ((long) i * STEP % N);

		snprintf(names[i], sizeof(names[i]), "_c_%s%010d",
				 number == 17 ? "writer-lock-" : "reader-shared-lock-", number);
		children[i] = names[i];
		index_of[number] = i;
	}

	is_int(RECIPE_WAIT,
		   verdict_for(children, N, names[index_of[9999]], RECIPE_EXCLUSIVE, 1,
					   &watch),
		   "10,000 children: the last waits");
	is_int(index_of[9998], watch, "10,000 children: the nearest");

	is_int(RECIPE_WAIT,
		   verdict_for(children, N, names[index_of[9999]], RECIPE_SHARED, 1,
					   &watch),
		   "10,000 children: the last reader waits");
	is_int(index_of[17], watch, "10,000 children: for the only writer");

	is_int(RECIPE_HELD,
		   verdict_for(children, N, names[index_of[16]], RECIPE_SHARED, 1,
					   &watch),
		   "10,000 children: a reader before the writer holds");
	is_int(RECIPE_WAIT,
		   verdict_for(children, N, NULL, RECIPE_EXCLUSIVE, 1, &watch),
		   "10,000 children: a newcomer waits");
	is_int(index_of[9999], watch, "10,000 children: for the last");
}

static int
compare_pointers(const void *a, const void *b)
{
	return recipe_compare_nodes(*(const char *const *) a,
								*(const char *const *) b);
}

static void
test_order(void)
{
	/* in order */
	static const char *const ordered[] = {
		"a--2147483648",
		"lock--000000002",
		EX1 "-000000001",
		"lock-0000000000",
		SH1 "0000000001",
		EX1 "0000000002",
		READ1 "0000000005",
		WRIT1 "0000000005",
		EX2 "0000000005",
		"0999999999",
		"a1000000000",
		"lock-2147483647",
		"lock-9999999999",		/* clamped to the same: the name decides */
		"",
		"000000000",
		"config",
		"lock-",
		"\xC3\xBC",
	};
	const char *shuffled[NELEMS(ordered)];
	int			nwrong = 0;
	unsigned	seed = 1;

	for (int i = 0; i < NELEMS(ordered); i++)
	{
		for (int j = 0; j < NELEMS(ordered); j++)
		{
			int			order = recipe_compare_nodes(ordered[i], ordered[j]);

			if ((order < 0) != (i < j) || (order > 0) != (i > j))
				nwrong++;
		}
	}
	is_int(0, nwrong, "every pair compares as it stands in the table");

	memcpy(shuffled, ordered, sizeof(shuffled));
	for (int i = NELEMS(ordered) - 1; i > 0; i--)
	{
		const char *swap = shuffled[i];
		int			j;

		seed = seed * 1103515245u + 12345u;
		j = (int) ((seed >> 16) % (unsigned) (i + 1));
		shuffled[i] = shuffled[j];
		shuffled[j] = swap;
	}
	ok(memcmp(shuffled, ordered, sizeof(shuffled)) != 0, "a shuffled list");
	qsort(shuffled, NELEMS(shuffled), sizeof(shuffled[0]), compare_pointers);
	for (int i = 0; i < NELEMS(ordered); i++)
		is_str(ordered[i], shuffled[i], "sorted: place %d", i);
}
/* Who holds, one after the other, as the view of a queue has it. */
static void
test_holds(void)
{
	static const struct
	{
		const char *holders;	/* 1: that one of the queue holds the lock */
		const char *queue[MAX_CHILDREN];
	}			cases[] = {
		{"10", {EX1 "0000000005", EX2 "0000000006"}},
		{"1100", {SH1 "0000000005", SH2 "0000000006", EX1 "0000000007", SH2 "0000000008"}},
		{"100", {EX1 "0000000005", SH1 "0000000006", SH2 "0000000007"}},
		{"110", {P2(1), P2(2), P2(3)}},
		{"1110", {P3(1), P3(2), P3(3), P3(4)}},
		{"100", {P3(1), P2(2), P3(3)}},
		{"10", {EX1 "0000000005", P2(6)}},
		{"10", {P2(5), SH1 "0000000006"}},
	};

	for (int i = 0; i < NELEMS(cases); i++)
	{
		RecipeAhead ahead = {0};
		char		holders[5] = "";

		for (int j = 0; j < count_children(cases[i].queue); j++)
		{
			RecipeNode	node = recipe_parse_node(cases[i].queue[j]);

			holders[j] = recipe_holds(node.mode, node.permits, &ahead) ? '1' : '0';
			recipe_add_ahead(&ahead, &node);
		}
		is_str(cases[i].holders, holders, "who holds, queue %d", i);
	}
}


int
main(void)
{
	test_styles();
	test_style_names();
	test_waits_for();
	test_names();
	test_may_be_name();
	test_roots();
	test_paths();
	test_prefixes_and_guids();
	test_marks();
	test_lease_names();
	test_permits();
	test_hold();
	test_verdicts();
	test_newcomers();
	test_first();
	test_holds();
	test_long_queue();
	test_order();
	return done_testing();
}
