/*-------------------------------------------------------------------------
 *
 * test_name_pattern.c
 *	  Unit test of src/common/name_pattern.c: which patterns zklock.names may
 *	  have, and which names a list of them allows.  Tables of cases, the expected
 *	  value first.
 *
 *-------------------------------------------------------------------------
 */
#include "name_pattern.h"
#include "tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NELEMS(array) ((int) (sizeof(array) / sizeof((array)[0])))

/* Most patterns of a list here. */
#define PATTERNS_MAX 4

/* Names with many bytes. */
#define OF_32 "12345678901234567890123456789012"
#define OF_256 OF_32 OF_32 OF_32 OF_32 OF_32 OF_32 OF_32 OF_32

/* Why a pattern is refused. */
static const struct
{
	NamePatternError error;
	const char *pattern;
}			patterns[] = {
	{NAME_PATTERN_OK, "a"},
	{NAME_PATTERN_OK, "a/*"},
	{NAME_PATTERN_OK, "*"},
	{NAME_PATTERN_OK, "!a"},
	{NAME_PATTERN_OK, "!a/*"},
	{NAME_PATTERN_OK, "!*"},
	{NAME_PATTERN_OK, "a b, c"},
	{NAME_PATTERN_OK, "a!"},
	{NAME_PATTERN_OK, "m<U+00FC>ller/*"},
	{NAME_PATTERN_OK, "{a}/*"},
	{NAME_PATTERN_OK, OF_256 OF_256},

	{NAME_PATTERN_EMPTY, ""},
	{NAME_PATTERN_EMPTY, "!"},
	{NAME_PATTERN_NOT, "!!a"},

	{NAME_PATTERN_STAR, "a*"},
	{NAME_PATTERN_STAR, "*a"},
	{NAME_PATTERN_STAR, "**"},
	{NAME_PATTERN_STAR, "*/b"},
	{NAME_PATTERN_STAR, "a/*/b"},
	{NAME_PATTERN_STAR, "a/*/*"},
	{NAME_PATTERN_STAR, "*/*"},
	{NAME_PATTERN_STAR, "a/b*"},
	{NAME_PATTERN_STAR, "a<U+002F>*"},

	{NAME_PATTERN_CHARACTER, "a\tb"},
	{NAME_PATTERN_CHARACTER, "a\nb"},
	{NAME_PATTERN_CHARACTER, "\177"},
	{NAME_PATTERN_CHARACTER, "m\303\274ller"},
	{NAME_PATTERN_CHARACTER, "m\374ller"},

	{NAME_PATTERN_ESCAPE, "<"},
	{NAME_PATTERN_ESCAPE, "a<b"},
	{NAME_PATTERN_ESCAPE, "<U+00FC"},
	{NAME_PATTERN_ESCAPE, "<U+0FC>"},
	{NAME_PATTERN_ESCAPE, "<U+00fc>"},
	{NAME_PATTERN_ESCAPE, "<u+00FC>"},
	{NAME_PATTERN_ESCAPE, "<U+>"},
	{NAME_PATTERN_ESCAPE, "<U+0000>"},
	{NAME_PATTERN_ESCAPE, "<U+110000>"},
	{NAME_PATTERN_ESCAPE, "<U+0000041>"},
	{NAME_PATTERN_ESCAPE, "<U+/*"},
	{NAME_PATTERN_ESCAPE, "<FC>"},

	{NAME_PATTERN_NAME, "a//b"},
	{NAME_PATTERN_NAME, "/a"},
	{NAME_PATTERN_NAME, "a/"},
	{NAME_PATTERN_NAME, "a//*"},
	{NAME_PATTERN_NAME, "/*"},
	{NAME_PATTERN_NAME, "/"},
	{NAME_PATTERN_NAME, "!/"},
	{NAME_PATTERN_NAME, "a/../b"},
	{NAME_PATTERN_NAME, "./*"},
	{NAME_PATTERN_NAME, "<U+0001>"},
	{NAME_PATTERN_NAME, "<U+E000>"},
	{NAME_PATTERN_NAME, "<U+D800>"},
	{NAME_PATTERN_NAME, "<U+1F600>"},
	{NAME_PATTERN_NAME, "a/_c_b-lock-0000000001"},
	{NAME_PATTERN_NAME, OF_256 OF_256 "a"},
};

/* What a list allows: nothing, names below that name, or the name itself. */
typedef enum Verdict
{
	NO,
	BELOW,
	YES
} Verdict;

static const struct
{
	Verdict		verdict;
	const char *list[PATTERNS_MAX];
	const char *name;
}			names[] = {
	/* an empty list */
	{NO, {NULL}, "a"},
	{NO, {NULL}, "*"},

	/* a name is itself and nothing else */
	{YES, {"a"}, "a"},
	{NO, {"a"}, "b"},
	{NO, {"a"}, "ab"},
	{NO, {"ab"}, "a"},
	{NO, {"a"}, "a/b"},
	{BELOW, {"a/b"}, "a"},
	{NO, {"ab/c"}, "a"},
	{YES, {"a/b"}, "a/b"},
	{NO, {"a"}, "A"},

	/* and with a star what is below it */
	{YES, {"a/*"}, "a"},
	{YES, {"a/*"}, "a/b"},
	{YES, {"a/*"}, "a/b/c"},
	{NO, {"a/*"}, "ab"},
	{NO, {"a/*"}, "ab/c"},
	{NO, {"a/*"}, "b/a"},
	{NO, {"a/b/*"}, "a/c"},
	{BELOW, {"a/b/c/*"}, "a/b"},
	{BELOW, {"a/b/c/*"}, "a"},
	{YES, {"*"}, "a"},
	{YES, {"*"}, "a/b"},

	/* several */
	{YES, {"a", "b/*"}, "b/c"},
	{YES, {"b/*", "a"}, "a"},
	{NO, {"a", "b/*"}, "c"},

	/* what is taken away, wherever it stands */
	{NO, {"a/*", "!a/b"}, "a/b"},
	{NO, {"!a/b", "a/*"}, "a/b"},
	{YES, {"!a/b", "a/*"}, "a/b/c"},
	{NO, {"!a/b/*", "a/*"}, "a/b/c"},
	{NO, {"a/*", "!a/b/*", "a/b/c"}, "a/b/c"},
	{YES, {"a/*", "!a/b/*"}, "a/bc"},
	{NO, {"*", "!*"}, "a"},
	{NO, {"!*", "*"}, "a"},
	{NO, {"!a"}, "b"},
	{NO, {"!a/b"}, "a"},
	{YES, {"*", "!a"}, "b"},
	{NO, {"*", "!a"}, "a"},
	{YES, {"*", "!a"}, "a/b"},

	/* characters that are not ASCII, or not those of a pattern */
	{YES, {"m<U+00FC>ller/*"}, "m\303\274ller/a"},
	{NO, {"m<U+00FC>ller"}, "m<U+00FC>ller"},
	{YES, {"m<U+003C>U+00FC>ller"}, "m<U+00FC>ller"},
	{NO, {"*", "!m<U+00FC>ller"}, "m\303\274ller"},
	{YES, {"<U+65E5><U+672C>"}, "\346\227\245\346\234\254"},
	{YES, {"<U+0021>a"}, "!a"},
	{NO, {"<U+0021>a"}, "a"},
	{YES, {"a/<U+002A>"}, "a/*"},
	{NO, {"a/<U+002A>"}, "a/b"},
	{YES, {"a b, c\""}, "a b, c\""},
	{YES, {"<U+0061>"}, "a"},
	{YES, {"a<U+002F>b"}, "a/b"},
};

static NamePatterns *read_list(const char *const *list);
static Verdict judge(const NamePatterns *list, const char *name);

int
main(void)
{
	for (int i = 0; i < NELEMS(patterns); i++)
	{
		/* of just the size that is promised, for the sanitizers */
		NamePatterns *list =
			calloc(1, NAME_PATTERNS_SIZE(strlen(patterns[i].pattern)));
		NamePatternError error = name_pattern_add(list, patterns[i].pattern);

		ok(error == patterns[i].error && (error == NAME_PATTERN_OK ||
											  list->size == 0),
			   "\"%s\" is %s", patterns[i].pattern,
			   patterns[i].error == NAME_PATTERN_OK ? "a pattern" : "refused");
		free(list);
	}
	for (int i = 0; i < NELEMS(names); i++)
	{
		NamePatterns *list = read_list(names[i].list);

		ok(judge(list, names[i].name) == names[i].verdict,
			   "\"%s\" by the list of \"%s\"", names[i].name,
			   names[i].list[0] != NULL ? names[i].list[0] : "nothing");
		free(list);
	}
	return done_testing();
}

static NamePatterns *
read_list(const char *const *list)
{
	size_t		length = 0;
	NamePatterns *result;

	for (int i = 0; i < PATTERNS_MAX && list[i] != NULL; i++)
		length += strlen(list[i]) + 1;
	result = calloc(1, NAME_PATTERNS_SIZE(length));
	for (int i = 0; i < PATTERNS_MAX && list[i] != NULL; i++)
		if (name_pattern_add(result, list[i]) != NAME_PATTERN_OK)
			abort();
	return result;
}

static Verdict
judge(const NamePatterns *list, const char *name)
{
	if (name_patterns_allow(list, name))
		return YES;
	return name_patterns_reach(list, name) ? BELOW : NO;
}
