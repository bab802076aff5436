/*-------------------------------------------------------------------------
 *
 * foreign.c
 *	  Checks text that others wrote: what is a character, and which may be
 *	  shown.
 *
 * Znodes' names and data, the reasons of requests and the names of other
 * clusters' users go to logs, terminals and web pages.  Their writer may want
 * the reader to see something else than what is there.
 *
 *-------------------------------------------------------------------------
 */
#include "foreign.h"

#include <stdio.h>

/* Characters that are not printed, ascending. */
static const struct
{
	uint32_t	first;
	uint32_t	last;
}			hidden[] = {
	{0x0000, 0x001F},			/* C0: line ends, escape sequences */
	{0x007F, 0x009F},			/* DEL and C1: more escape sequences */
	{0x00AD, 0x00AD},			/* soft hyphen */
	{0x034F, 0x034F},			/* joiner of graphemes */
	{0x061C, 0x061C},			/* Arabic letter mark */
	{0x115F, 0x1160},			/* Hangul fillers */
	{0x17B4, 0x17B5},			/* Khmer vowels without a glyph */
	{0x180B, 0x180F},			/* Mongolian variants and separator */
	{0x200B, 0x200F},			/* widths of nothing, marks of direction */
	{0x2028, 0x202E},			/* ends of lines, overrides of direction */
	{0x2060, 0x206F},			/* more without a glyph, isolates */
	{0x3164, 0x3164},			/* Hangul filler */
	{0xD800, 0xDFFF},			/* halves of surrogate pairs */
	{0xFDD0, 0xFDEF},			/* no characters */
	{0xFE00, 0xFE0F},			/* variants */
	{0xFEFF, 0xFEFF},			/* byte order mark */
	{0xFFA0, 0xFFA0},			/* Hangul filler */
	{0xFFF0, 0xFFFF},			/* specials */
	{0x1D173, 0x1D17A},			/* musical controls */
	{0xE0000, 0xE0FFF},			/* tags and variants */
	{0xF0000, UINT32_MAX}		/* private use, and what is no character */
};
#define NHIDDEN (sizeof(hidden) / sizeof(hidden[0]))

size_t
foreign_take(const char *text, size_t length, uint32_t *number)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	unsigned char first = (unsigned char) text[0];
	size_t		nbytes = 0;
	uint32_t	code;

	/* its leading ones say how long it is: none, of ASCII, or two to four */
	while (nbytes < 5 && (first & (0x80u >> nbytes)) != 0)
		nbytes++;
	*number = FOREIGN_NO_CHARACTER;
	if (nbytes == 1 || nbytes == 5 || nbytes > length)
		return 1;
	code = first & (0x7Fu >> nbytes);
	if (nbytes == 0)
		nbytes = 1;				/* ASCII */
	for (size_t i = 1; i < nbytes; i++)
	{
		if (((unsigned char) text[i] & 0xC0) != 0x80)
			return 1;
		code = code << 6 | ((unsigned char) text[i] & 0x3F);
	}

	/* the shortest form only, and neither surrogates nor beyond the end */
	if (code < least[nbytes] || (code >= 0xD800 && code <= 0xDFFF) ||
		code > 0x10FFFF)
		return 1;
	*number = code;
	return nbytes;
}

bool
foreign_is_plain(uint32_t number)
{
	for (size_t i = 0; i < NHIDDEN && hidden[i].first <= number; i++)
		if (number <= hidden[i].last)
			return false;
	return true;
}

void
foreign_escape(char escape[FOREIGN_ESCAPE_SIZE], uint32_t number,
			   unsigned char first_byte)
{
	if (number == FOREIGN_NO_CHARACTER)
		snprintf(escape, FOREIGN_ESCAPE_SIZE, "<%02X>", (unsigned) first_byte);
	else
		snprintf(escape, FOREIGN_ESCAPE_SIZE, "<U+%04X>", (unsigned) number);
}

int
foreign_nesting(const char *text, size_t length)
{
	int			depth = 0;
	int			deepest = 0;

	for (size_t i = 0; i < length; i++)
	{
		if (text[i] == '{' || text[i] == '[')
			depth++;
		else if (text[i] == '}' || text[i] == ']')
			depth--;
		deepest = depth > deepest ? depth : deepest;
	}
	return deepest;
}
