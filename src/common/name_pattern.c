/*-------------------------------------------------------------------------
 *
 * name_pattern.c
 *	  Patterns of names: reads a list of them, and decides what it allows.
 *
 * A stored setting has no encoding of its own: databases of all encodings read
 * it.  So patterns are ASCII, and have all other characters as escapes, which
 * are turned into UTF-8 when they are read.  Names are compared in UTF-8.
 *
 *-------------------------------------------------------------------------
 */
#include "name_pattern.h"

#include <stdint.h>
#include <string.h>

#include "recipe.h"

/* What a pattern does.  Both may be set. */
#define TAKES_AWAY 0x01			/* it begins with "!" */
#define COVERS_BELOW 0x02		/* names below it, too */

/* Most digits of the number in an escape, and how many it has at least. */
#define DIGITS_MAX 6
#define DIGITS_MIN 4

/* The largest character. */
#define CHARACTER_MAX 0x10FFFF

static NamePatternError read_text(char *text, const char *source,
								  size_t length);
static size_t read_escape(const char *source, size_t length, uint32_t *number);
static size_t put_utf8(char *text, uint32_t number);
static bool covers_name(const char *entry, const char *name);
static bool is_below(const char *name, const char *prefix);

NamePatternError
name_pattern_add(NamePatterns *list, const char *pattern)
{
	char	   *entry = &list->bytes[list->size];
	char		flags = 0;
	size_t		length;
	NamePatternError error;

	for (const char *c = pattern; *c != '\0'; c++)
		if (*c < 0x20 || *c > 0x7E)
			return NAME_PATTERN_CHARACTER;
	if (*pattern == '!')
	{
		flags |= TAKES_AWAY;
		pattern++;
	}
	length = strlen(pattern);
	if (length == 0)
		return NAME_PATTERN_EMPTY;
	if (*pattern == '!')
		return NAME_PATTERN_NOT;
	entry[1] = '\0';			/* of all names */
	if (strcmp(pattern, "*") == 0)
		flags |= COVERS_BELOW;
	else
	{
		if (length >= 2 && strcmp(pattern + length - 2, "/*") == 0)
		{
			flags |= COVERS_BELOW;
			length -= 2;
		}
		error = read_text(entry + 1, pattern, length);
		if (error != NAME_PATTERN_OK)
			return error;
	}
	entry[0] = flags;
	list->size += 1 + strlen(entry + 1) + 1;
	return NAME_PATTERN_OK;
}

bool
name_patterns_allow(const NamePatterns *list, const char *name)
{
	bool		is_allowed = false;

	for (const char *entry = list->bytes; entry < list->bytes + list->size;
		 entry += 1 + strlen(entry + 1) + 1)
	{
		if (!covers_name(entry, name))
			continue;
		if ((entry[0] & TAKES_AWAY) != 0)
			return false;
		is_allowed = true;
	}
	return is_allowed;
}

bool
name_patterns_reach(const NamePatterns *list, const char *name)
{
	for (const char *entry = list->bytes; entry < list->bytes + list->size;
		 entry += 1 + strlen(entry + 1) + 1)
		if ((entry[0] & TAKES_AWAY) == 0 && is_below(entry + 1, name))
			return true;
	return name_patterns_allow(list, name);
}

/*
 * The name of a pattern, in UTF-8, with its NUL.  Its escapes are longer than
 * what they stand for.
 */
static NamePatternError
read_text(char *text, const char *source, size_t length)
{
	char	   *end = text;
	size_t		nbytes;
	size_t		offset;
	RecipeNameError error;

	for (; length > 0; source += nbytes, length -= nbytes)
	{
		uint32_t	number = (unsigned char) *source;

		nbytes = 1;
		if (*source == '*')
			return NAME_PATTERN_STAR;
		if (*source == '<')
		{
			nbytes = read_escape(source, length, &number);
			if (nbytes == 0)
				return NAME_PATTERN_ESCAPE;
		}
		end += put_utf8(end, number);
	}
	*end = '\0';
	error = recipe_check_name(text, &offset);

	/* names below one that looks like a list look like none */
	if (error != RECIPE_NAME_OK && error != RECIPE_NAME_LIST)
		return NAME_PATTERN_NAME;
	return NAME_PATTERN_OK;
}

/*
 * The escape that the source begins with, as foreign_escape() writes it: its
 * length, and the character.  0: there is none.
 */
static size_t
read_escape(const char *source, size_t length, uint32_t *number)
{
	static const char digits[] = "0123456789ABCDEF";
	size_t		start = strlen("<U+");
	size_t		end = start;

	if (length < start || strncmp(source, "<U+", start) != 0)
		return 0;
	*number = 0;
	for (; end < length && source[end] != '>'; end++)
	{
		const char *digit = strchr(digits, source[end]);

		if (digit == NULL || end - start == DIGITS_MAX)
			return 0;
		*number = *number << 4 | (uint32_t) (digit - digits);
	}
	if (end == length || end - start < DIGITS_MIN || *number == 0 ||
		*number > CHARACTER_MAX)
		return 0;
	return end + 1;
}

/* Write the character, and return its length. */
static size_t
put_utf8(char *text, uint32_t number)
{
	size_t		nbytes = 4;

	if (number < 0x80)
	{
		text[0] = (char) number;
		return 1;
	}
	if (number < 0x800)
		nbytes = 2;
	else if (number < 0x10000)
		nbytes = 3;
	for (size_t i = nbytes - 1; i > 0; i--)
	{
		text[i] = (char) (0x80 | (number & 0x3F));
		number >>= 6;
	}
	text[0] = (char) ((0xF00 >> nbytes & 0xFF) | number);
	return nbytes;
}

static bool
covers_name(const char *entry, const char *name)
{
	const char *text = entry + 1;

	if ((entry[0] & COVERS_BELOW) != 0 &&
		(text[0] == '\0' || is_below(name, text)))
		return true;
	return strcmp(name, text) == 0;
}

/* Is a name below another one? */
static bool
is_below(const char *name, const char *prefix)
{
	size_t		length = strlen(prefix);

	return strncmp(name, prefix, length) == 0 && name[length] == '/';
}
