/*-------------------------------------------------------------------------
 *
 * identity.c
 *	  Who stands in a queue: the data that we write into our queue nodes, and
 *	  what can be read out of anybody's.
 *
 * Nodes are written by other programs and other databases too, so reading must
 * cope with any bytes, and must not raise.  Everything is palloc'ed in the
 * caller's memory context.
 *
 *-------------------------------------------------------------------------
 */
#include "identity.h"

#include <unistd.h>

#include "commands/dbcommands.h"
#include "common/jsonapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/json.h"

/* How much of a stranger's data is shown, in bytes. */
#define TEXT_SHOWN_MAX 256

/*
 * Longest data that is tried as JSON.  Ours is shorter; more could nest deeper
 * than the parser's check of the stack allows without raising.
 */
#define JSON_MAX 4096

/*
 * zklock.publish_identity: may our nodes say who we are?  Everybody who can read
 * the ensemble reads it.
 */
static bool publish_identity;

static void append_member(StringInfo json, const char *key, const char *value);
static char *to_utf8(const char *text);
static char *printable(const char *data, int length);
static bool parse_json(const char *data, int length, ZkIdentity *identity);

void
zklock_identity_init(void)
{
	DefineCustomBoolVariable("zklock.publish_identity",
							 "Writes who and where this backend is into its queue nodes.",
							 NULL,
							 &publish_identity, true,
							 PGC_SUSET, 0,
							 NULL, NULL, NULL);
}

char *
zklock_identity_build(int64 token)
{
	StringInfoData json;
	char		host[256];

	initStringInfo(&json);
	appendStringInfoString(&json, "{\"client\":\"zklock\"");
	if (token != 0)
		appendStringInfo(&json, ",\"token\":" INT64_FORMAT, token);
	if (publish_identity)
	{
		if (gethostname(host, sizeof(host)) != 0)
			host[0] = '\0';
		host[sizeof(host) - 1] = '\0';
		append_member(&json, "cluster", cluster_name);
		append_member(&json, "database", get_database_name(MyDatabaseId));
		append_member(&json, "user", GetUserNameFromId(GetSessionUserId(), true));
		append_member(&json, "application", application_name);
		append_member(&json, "host", host);
		appendStringInfo(&json, ",\"pid\":%d", MyProcPid);
	}
	appendStringInfoChar(&json, '}');
	return json.data;
}

char *
zklock_identity_add(const char *data, const char *key, const char *value)
{
	StringInfoData json;

	initStringInfo(&json);
	appendBinaryStringInfo(&json, data, strlen(data) - 1);
	append_member(&json, key, value);
	appendStringInfoChar(&json, '}');
	return json.data;
}

/* Everybody reads it, on one line. */
void
zklock_identity_check_reason(const char *reason, const char *what,
							 const char *hint)
{
	const char *detail = NULL;

	if (reason[0] == '\0')
		detail = "The reason is empty.";
	else if (strlen(reason) > ZK_REASON_MAX)
		detail = psprintf("The reason has more than %d bytes.", ZK_REASON_MAX);
	for (const char *c = reason; *c != '\0' && detail == NULL; c++)
		if ((unsigned char) *c < 0x20 || *c == 0x7f)
			detail = "The reason has a control character.";
	if (detail != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid reason for %s", what),
				 errdetail("%s", detail),
				 errhint("%s", hint)));
}

void
zklock_identity_make_guid(char guid[RECIPE_GUID_LEN + 1])
{
	uint8		random[16];

	if (!pg_strong_random(random, sizeof(random)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate random values")));
	recipe_format_guid(guid, random);
}

void
zklock_identity_parse(const char *data, int length, ZkIdentity *identity)
{
	memset(identity, 0, sizeof(*identity));
	if (length <= 0 || parse_json(data, length, identity))
		return;
	memset(identity, 0, sizeof(*identity));
	identity->text = printable(data, Min(length, TEXT_SHOWN_MAX));
}

char *
zklock_identity_describe(const ZkIdentity *identity)
{
	StringInfoData line;

	initStringInfo(&line);
	if (identity->pid != 0)
		appendStringInfo(&line, "process %d", identity->pid);
	else
		appendStringInfo(&line, "%s client",
						 identity->client != NULL ? identity->client : "another");
	if (identity->username != NULL)
		appendStringInfo(&line, " of user \"%s\"", identity->username);
	if (identity->database != NULL)
		appendStringInfo(&line, " in database \"%s\"", identity->database);
	if (identity->cluster != NULL)
		appendStringInfo(&line, " of cluster \"%s\"", identity->cluster);
	if (identity->host != NULL)
		appendStringInfo(&line, " on host \"%s\"", identity->host);
	if (identity->text != NULL)
		appendStringInfo(&line, " (\"%s\")", identity->text);
	return line.data;
}

char *
zklock_identity_printable(const char *text)
{
	return printable(text, strlen(text));
}

/* Append ,"key":"value" unless there is no value. */
static void
append_member(StringInfo json, const char *key, const char *value)
{
	if (value == NULL || value[0] == '\0')
		return;
	appendStringInfo(json, ",\"%s\":", key);
	escape_json(json, to_utf8(value));
}

/*
 * Text of this database in UTF-8.  In an SQL_ASCII database the bytes may be
 * anything: keep them if they happen to be UTF-8.
 */
static char *
to_utf8(const char *text)
{
	int			length = strlen(text);

	if (GetDatabaseEncoding() == PG_SQL_ASCII)
		return pg_verify_mbstr(PG_UTF8, text, length, true) ?
			pstrdup(text) : printable(text, length);
	return pg_server_to_any(text, length, PG_UTF8);
}

/*
 * A copy that may be shown in this database: control characters become '?',
 * and so do characters beyond ASCII unless data and database are UTF-8.
 */
static char *
printable(const char *data, int length)
{
	char	   *copy;
	bool		is_utf8;

	if (GetDatabaseEncoding() == PG_UTF8)
		length = pg_encoding_mbcliplen(PG_UTF8, data, length, length);
	is_utf8 = GetDatabaseEncoding() == PG_UTF8 &&
		pg_verify_mbstr(PG_UTF8, data, length, true);
	copy = palloc(length + 1);
	for (int i = 0; i < length; i++)
	{
		unsigned char byte = (unsigned char) data[i];

		copy[i] = byte < 0x20 || byte == 0x7f || (byte > 0x7f && !is_utf8) ?
			'?' : data[i];
	}
	copy[length] = '\0';
	return copy;
}

/* ---------------------------------------------------------------------
 * JSON.  The parser of PostgreSQL's frontend programs reports errors instead
 * of raising them, which jsonb input does not.
 * ---------------------------------------------------------------------
 */

typedef struct IdentityParse
{
	JsonLexContext *lex;
	ZkIdentity *identity;
	const char *key;			/* of the member being read at depth 1 */
} IdentityParse;

/* Semantic actions return nothing before PostgreSQL 16. */
#if PG_VERSION_NUM >= 160000
#define ACTION_RESULT JsonParseErrorType
#define ACTION_RETURN return JSON_SUCCESS
#else
#define ACTION_RESULT void
#define ACTION_RETURN return
#endif

static ACTION_RESULT
take_key(void *state, char *name, bool is_null)
{
	IdentityParse *parse = state;

	if (parse->lex->lex_level == 1)
		parse->key = name;
	ACTION_RETURN;
}

static ACTION_RESULT
take_value(void *state, char *token, JsonTokenType type)
{
	IdentityParse *parse = state;
	ZkIdentity *identity = parse->identity;
	const char *key = parse->key;
	char	  **field = NULL;

	if (key == NULL || parse->lex->lex_level != 1)
		ACTION_RETURN;
	if (strcmp(key, "client") == 0)
		field = &identity->client;
	else if (strcmp(key, "cluster") == 0)
		field = &identity->cluster;
	else if (strcmp(key, "database") == 0)
		field = &identity->database;
	else if (strcmp(key, "user") == 0)
		field = &identity->username;
	else if (strcmp(key, "application") == 0)
		field = &identity->application;
	else if (strcmp(key, "host") == 0)
		field = &identity->host;
	else if (strcmp(key, "twin") == 0)
		field = &identity->twin;
	else if (strcmp(key, "reason") == 0)
		field = &identity->text;
	if (field != NULL && type == JSON_TOKEN_STRING)
		*field = printable(token, strlen(token));
	if (strcmp(key, "pid") == 0 && type == JSON_TOKEN_NUMBER)
		identity->pid = atoi(token);
	if (strcmp(key, "token") == 0 && type == JSON_TOKEN_NUMBER)
		identity->token = strtoll(token, NULL, 10);
	ACTION_RETURN;
}

/* Read our own kind of data; false if this is something else. */
static bool
parse_json(const char *data, int length, ZkIdentity *identity)
{
	IdentityParse	state = {.identity = identity};
	JsonSemAction actions = {.semstate = &state};

	/*
	 * In a database that is not UTF-8 the lexer raises on escapes that the
	 * encoding has no character for.
	 */
	if (GetDatabaseEncoding() != PG_UTF8 && memmem(data, length, "\\u", 2) != NULL)
		return false;
	if (data[0] != '{' || length > JSON_MAX || !pg_verify_mbstr(PG_UTF8, data, length, true))
		return false;
#if PG_VERSION_NUM >= 170000
	state.lex = makeJsonLexContextCstringLen(NULL, data, length, PG_UTF8, true);
#else
	state.lex = makeJsonLexContextCstringLen(unconstify(char *, data), length,
											 PG_UTF8, true);
#endif
	actions.object_field_start = take_key;
	actions.scalar = take_value;
	return pg_parse_json(state.lex, &actions) == JSON_SUCCESS &&
		identity->client != NULL && strcmp(identity->client, "zklock") == 0;
}
