/*-------------------------------------------------------------------------
 *
 * text.c
 *	  Converts text between encodings, and decides what may be shown of
 *	  others' text.
 *
 * Text is written by other programs and other databases too, so reading must
 * cope with any bytes, and must not raise.  What comes out of here can be
 * shown: it has no character that does anything but be seen (foreign.c), and
 * none that either this database or its client cannot have, so that the
 * message in which it stands arrives.  Everything is palloc'ed in the
 * caller's memory context.
 *
 *-------------------------------------------------------------------------
 */
#include "text.h"

#include "access/xact.h"
#include "catalog/namespace.h"
#include "common/string.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "utils/json.h"
#include "utils/memutils.h"

#include "compat.h"
#include "foreign.h"

/* Room for one character in any encoding, and its NUL. */
#define CHARACTER_SIZE (MAX_MULTIBYTE_CHAR_LEN * MAX_CONVERSION_GROWTH + 1)

/* From one encoding to another. */
typedef struct Conversion
{
	int			from;
	int			to;				/* the same: nothing is to be done */
	Oid			procedure;		/* InvalidOid: there is none */
} Conversion;

/*
 * How text in UTF-8 gets to this database and from there to its client.  What
 * cannot be converted is shown as an escape.
 */
typedef struct Display
{
	Conversion	to_server;
	Conversion	to_client;
} Display;

static Display find_display(void);
static Conversion find_conversion(int from, int to);
static int	convert_text(const Conversion *conversion, const char *text,
						 int length, char *result);

char *
zklock_text_to_utf8(const char *text)
{
	int			encoding = GetDatabaseEncoding();
	int			length = strlen(text);
	int			nbytes;
	StringInfoData utf8;
	Conversion	conversion;

	if (encoding == PG_SQL_ASCII)
		encoding = PG_UTF8;
	if (pg_verify_mbstr(PG_UTF8, text, length, true) &&
		(encoding == PG_UTF8 || pg_is_ascii(text)))
		return pstrdup(text);
	conversion = find_conversion(encoding, PG_UTF8);
	initStringInfo(&utf8);
	for (; length > 0; text += nbytes, length -= nbytes)
	{
		char		character[CHARACTER_SIZE];
		char		escape[FOREIGN_ESCAPE_SIZE];

		nbytes = pg_encoding_mblen(encoding, text);
		if (nbytes <= length && pg_verify_mbstr(encoding, text, nbytes, true) &&
			convert_text(&conversion, text, nbytes, character) > 0)
		{
			appendStringInfoString(&utf8, character);
			continue;
		}
		nbytes = 1;
		foreign_escape(escape, FOREIGN_NO_CHARACTER, (unsigned char) *text);
		appendStringInfoString(&utf8, escape);
	}
	return utf8.data;
}

char *
zklock_text_printable_bytes(const char *data, int length)
{
	Display		display = {0};
	bool		has_display = false;
	StringInfoData copy;
	size_t		nbytes;

	initStringInfo(&copy);
	for (; length > 0; data += nbytes, length -= nbytes)
	{
		char		character[CHARACTER_SIZE];
		char		shown[CHARACTER_SIZE];
		char		escape[FOREIGN_ESCAPE_SIZE];
		uint32		number;
		int			server_length;

		nbytes = foreign_take(data, length, &number);
		if (number < 0x80 && foreign_is_plain(number))
		{
			appendStringInfoChar(&copy, *data);
			continue;
		}
		if (!has_display)
			display = find_display();
		has_display = true;
		if (foreign_is_plain(number) &&
			(server_length = convert_text(&display.to_server, data, nbytes,
										  character)) > 0 &&
			convert_text(&display.to_client, character, server_length,
						 shown) > 0)
			appendBinaryStringInfo(&copy, character, server_length);
		else
		{
			foreign_escape(escape, number, (unsigned char) *data);
			appendStringInfoString(&copy, escape);
		}
	}
	return copy.data;
}

char *
zklock_text_printable(const char *text)
{
	if (text == NULL)
		return NULL;
	return zklock_text_printable_bytes(text, strlen(text));
}

char *
zklock_text_quotable(const char *text)
{
	StringInfoData quoted;

	initStringInfo(&quoted);
	escape_json(&quoted, zklock_text_printable(text));
	return pnstrdup(quoted.data + 1, quoted.len - 2);
}

char *
zklock_text_quotable_own(const char *text)
{
	return zklock_text_quotable(zklock_text_to_utf8(text));
}

void
zklock_text_clip(char *copy, int size, const char *text, int encoding)
{
	int			length = strlen(text);

	if (length >= size)
		length = pg_encoding_mbcliplen(encoding, text, length, size - 1);
	memcpy(copy, text, length);
	copy[length] = '\0';
}

static Display
find_display(void)
{
	int			server = GetDatabaseEncoding();
	int			client = pg_get_client_encoding();

	/* in a database without an encoding UTF-8 stays as it is */
	if (client == PG_SQL_ASCII ||
		(server == PG_SQL_ASCII && client == PG_UTF8))
		client = server;
	return (Display)
	{
		.to_server = find_conversion(PG_UTF8, server == PG_SQL_ASCII ?
									 PG_UTF8 : server),
			.to_client = find_conversion(server, client)
	};
}

/*
 * While an error is being reported, which PostgreSQL does in ErrorContext, no
 * catalog may be read, so that no conversion is known.  Nor is there one from
 * or to SQL_ASCII.
 */
static Conversion
find_conversion(int from, int to)
{
	Conversion	conversion = {from, to, InvalidOid};

	if (from != to && from != PG_SQL_ASCII && to != PG_SQL_ASCII &&
		IsTransactionState() && CurrentMemoryContext != ErrorContext)
		conversion.procedure = FindDefaultConversionProc(from, to);
	return conversion;
}

/*
 * Convert one character, or more, to a buffer of CHARACTER_SIZE: how many
 * bytes it has there, 0 if there is none.  Never raises.
 */
static int
convert_text(const Conversion *conversion, const char *text, int length,
			 char *result)
{
	if (conversion->from == conversion->to)
	{
		memcpy(result, text, length);
		result[length] = '\0';
		return length;
	}
	if (!OidIsValid(conversion->procedure) ||
		length > MAX_MULTIBYTE_CHAR_LEN ||
		pg_do_encoding_conversion_buf(conversion->procedure, conversion->from,
									  conversion->to,
									  (unsigned char *) unconstify(char *,
																   text),
									  length, (unsigned char *) result,
									  CHARACTER_SIZE, true) != length)
		return 0;
	return strlen(result);
}
