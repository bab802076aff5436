/*-------------------------------------------------------------------------
 *
 * name_spelling.c
 *	  Gives a name one spelling in the encodings of database, client and
 *	  ZooKeeper.
 *
 * ZooKeeper has names in UTF-8.  What a database has of them is the same text in
 * its own encoding, or no name.
 *
 *-------------------------------------------------------------------------
 */
#include "name_spelling.h"

#include "catalog/namespace.h"
#include "common/string.h"
#include "mb/pg_wchar.h"

#include "foreign.h"
#include "recipe.h"
#include "text.h"

static char *name_of_utf8(const char *utf8);
static int	encoding_of_names(void);
static bool has_control_characters(const char *utf8);
static bool client_has(const char *text);
static char *recode_text(const char *text, int from, int to);

/* Of an encoding with one byte a character no two bytes are the same. */
char *
zklock_name_spell(const char *what, const char *text)
{
	int			encoding = encoding_of_names();
	char	   *utf8;
	char	   *spelled = NULL;

	if (encoding == PG_UTF8 || pg_encoding_max_length(encoding) == 1 ||
		strlen(text) > RECIPE_NAME_MAX)
		return pstrdup(text);
	utf8 = recode_text(text, encoding, PG_UTF8);
	if (utf8 != NULL)
		spelled = name_of_utf8(utf8);
	if (spelled == NULL)
		zklock_name_raise_no_utf8(what);
	return spelled;
}

/*
 * A name that znodes have, in UTF-8, as it is called in this database, palloc'ed.
 * NULL if no name of this database's stands for it: without the way back it would
 * be the name of another znode.
 */
static char *
name_of_utf8(const char *utf8)
{
	int			encoding = encoding_of_names();
	char	   *name;
	char	   *back;

	if (!pg_verify_mbstr(PG_UTF8, utf8, strlen(utf8), true))
		return NULL;
	name = recode_text(utf8, PG_UTF8, encoding);
	if (name == NULL)
		return NULL;
	back = recode_text(name, encoding, PG_UTF8);
	if (back == NULL || strcmp(back, utf8) != 0)
		return NULL;
	return name;
}

char *
zklock_name_shown(const char *utf8)
{
	char	   *name = NULL;

	if (utf8 != NULL && !has_control_characters(utf8))
		name = name_of_utf8(utf8);
	if (name != NULL && client_has(name))
		return name;
	return zklock_text_printable(utf8);
}

char *
zklock_name_utf8(const char *name)
{
	return recode_text(name, encoding_of_names(), PG_UTF8);
}

void
zklock_name_raise_no_utf8(const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_NAME),
			 errmsg("invalid %s", what),
			 errdetail("The %s has a character of encoding \"%s\" that cannot be converted to UTF-8 and back.",
					   zklock_name_noun(what), GetDatabaseEncodingName())));
}

const char *
zklock_name_noun(const char *what)
{
	return strcmp(what, "slot") == 0 ? "slot" : "name";
}

/*
 * The encoding of this database.  One without an encoding has names of UTF-8,
 * whose bytes it takes as they are.
 */
static int
encoding_of_names(void)
{
	int			encoding = GetDatabaseEncoding();

	return encoding == PG_SQL_ASCII ? PG_UTF8 : encoding;
}

static bool
has_control_characters(const char *utf8)
{
	size_t		length = strlen(utf8);
	size_t		nbytes;

	for (; length > 0; utf8 += nbytes, length -= nbytes)
	{
		uint32		number;

		nbytes = foreign_take(utf8, length, &number);
		if (number < 0x20 || (number >= 0x7F && number < 0xA0))
			return true;
	}
	return false;
}

/*
 * Can the client have this text of the database?  One without an encoding takes
 * all; a database without one sends bytes as they are, if they are characters
 * of the client's.
 */
static bool
client_has(const char *text)
{
	int			server = GetDatabaseEncoding();
	int			client = pg_get_client_encoding();

	if (client == server || client == PG_SQL_ASCII)
		return true;
	if (server == PG_SQL_ASCII)
		return pg_verify_mbstr(client, text, strlen(text), true);
	return recode_text(text, server, client) != NULL;
}

/*
 * The text in another encoding, palloc'ed; NULL if a character is not in it.
 * All encodings that a database can have are ASCII so far as they have it.
 */
static char *
recode_text(const char *text, int from, int to)
{
	int			length = strlen(text);
	int			size = length * MAX_CONVERSION_GROWTH + 1;
	char	   *result;
	Oid			procedure;

	if (from == to || pg_is_ascii(text))
		return pstrdup(text);
	procedure = FindDefaultConversionProc(from, to);
	if (!OidIsValid(procedure))
		return NULL;
	result = palloc(size);
	if (pg_do_encoding_conversion_buf(procedure, from, to,
									  (unsigned char *) unconstify(char *, text),
									  length, (unsigned char *) result,
									  size, true) != length)
		return NULL;
	return result;
}
