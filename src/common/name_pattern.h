/*-------------------------------------------------------------------------
 *
 * name_pattern.h
 *
 * A name is a pattern for itself; with "/" and a star at its end, for itself and
 * all names below it.  A star alone is a pattern for all names.  A list allows
 * a name if at least one pattern covers it, and none that begins with "!" does,
 * wherever that one stands.  So an empty list allows nothing.
 *
 * Pure: values in, verdict out; libc only.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_NAME_PATTERN_H
#define ZKLOCK_NAME_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

/* Why a pattern is refused. */
typedef enum NamePatternError
{
	NAME_PATTERN_OK,
	NAME_PATTERN_EMPTY,			/* nothing, or nothing behind "!" */
	NAME_PATTERN_CHARACTER,		/* one that is not printable ASCII */
	NAME_PATTERN_ESCAPE,		/* "<" begins no escape of a character */
	NAME_PATTERN_STAR,			/* elsewhere than as the last component */
	NAME_PATTERN_NOT,			/* a second "!" at the beginning */
	NAME_PATTERN_NAME			/* no lock can have that name */
} NamePatternError;

/* Patterns that were read, one behind the other. */
typedef struct NamePatterns
{
	size_t		size;			/* of all of them, in bytes; 0: none */
	char		bytes[];		/* of each: flags, and the name in UTF-8 with
								 * its NUL */
} NamePatterns;

/* Room for the patterns of a list whose text, commas included, is so long. */
#define NAME_PATTERNS_SIZE(length) (sizeof(NamePatterns) + 2 * (length) + 2)

/*
 * Read one pattern, without what separates it from others, and add it to the
 * list.  A character that is not ASCII is written as its escape, "<U+00E9>";
 * so is a "<", "*" or leading "!" that belongs to a name.  If the pattern is
 * refused, the list is as before.
 */
extern NamePatternError name_pattern_add(NamePatterns *list,
										 const char *pattern);

/* Do the patterns allow that name, in UTF-8? */
extern bool name_patterns_allow(const NamePatterns *list, const char *name);

/*
 * May they allow that name, or one below it?  True also if what one pattern
 * gives another takes away.
 */
extern bool name_patterns_reach(const NamePatterns *list, const char *name);

#endif							/* ZKLOCK_NAME_PATTERN_H */
