/*-------------------------------------------------------------------------
 *
 * nodedata.c
 *	  Writes and reads the data of queue nodes, which say whose they are.
 *
 * Nodes are written by other programs and other databases too, so reading
 * must cope with any bytes, and must not raise.  What comes out of here can
 * be shown: it has no character that does anything but be seen (foreign.c),
 * and none that either this database or its client cannot have, so that the
 * message in which it stands arrives.  Everything is palloc'ed in the
 * caller's memory context.
 *
 *-------------------------------------------------------------------------
 */
#include "nodedata.h"

#include <unistd.h>

#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "common/ip.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/backend_status.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/json.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

#include "compat.h"
#include "foreign.h"
#include "text.h"

/*
 * Which release's members our data has, for those that come later.  It counts
 * up with each member that is added.  None is ever left out or given another
 * meaning, and a reader takes no notice of members that it does not know: so
 * that releases can share a queue, nobody has to ask for the number.
 */
#define ZK_NODE_FORMAT 1

/* How much of a stranger's data is shown, in bytes. */
#define TEXT_SHOWN_MAX 256

/*
 * Longest and deepest data that is tried as JSON.  Ours is flat, and shorter;
 * in more the parser's check of the stack might raise.
 */
#define JSON_MAX 4096
#define JSON_NESTING_MAX 8

/*
 * What the member "node" says of a znode on the way to a lock, and all its
 * data.  They are ASCII without escapes, so every database can read them.
 */
#define NODE_OF_NAME "name"
#define DATA_OF_NAME \
	"{\"client\":\"zklock\",\"format\":" CppAsString2(ZK_NODE_FORMAT) \
	",\"node\":\"" NODE_OF_NAME "\"}"

/* Milliseconds between the Unix epoch and PostgreSQL's. */
#define EPOCH_DIFFERENCE_MS \
	((int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * SECS_PER_DAY * 1000)

/* Milliseconds that a server may call a date: 1970 to 2286. */
#define DATE_MAX_MS INT64CONST(9999999999999)

/*
 * zklock.publish_identity: may our nodes say who we are?  Everybody who can
 * read the ensemble reads it.
 */
static bool publish_identity;

/* zklock.log_locks: what is written to the server's log. */
enum
{
	LOG_NONE,
	LOG_ADMINISTRATIVE,			/* what touches the work of others */
	LOG_ALL						/* each lock, too */
};
static int	log_locks = LOG_ADMINISTRATIVE;

static const struct config_enum_entry log_locks_options[] = {
	{"none", LOG_NONE, false},
	{"administrative", LOG_ADMINISTRATIVE, false},
	{"all", LOG_ALL, false},
	{NULL, 0, false}
};

/* Who we are, as nodes say it; see own_identity(). */
static struct
{
	char	   *identity;		/* NULL: it is to be made */
	Oid			user;			/* what it was made of, besides the names in the
								 * catalogs */
	char		application[NAMEDATALEN];
	bool		is_followed;	/* changes of those names are told */
}			Own;

static const char *own_identity(void);
static void forget_identity(Datum arg, int cache, uint32 hash);
static bool is_same_text(const char *a, const char *b);
static void append_quoted(StringInfo line, const char *introduction,
						  const char *text);
static void append_own(StringInfo json, const char *key, const char *value);
static void append_json(StringInfo json, const char *key, const char *value);
static int64 read_count(const char *text, JsonTokenType type);
static bool has_unicode_escape(const char *data, int length);
static bool parse_json(const char *data, int length, ZkNodeData *who);

void
zklock_nodedata_init(void)
{
	DefineCustomBoolVariable("zklock.publish_identity",
							 "Writes the identity of this backend into its queue nodes.",
							 NULL,
							 &publish_identity, true,
							 PGC_SUSET, 0,
							 NULL, NULL, NULL);
	DefineCustomEnumVariable("zklock.log_locks",
							 "Which actions on locks are written to the log.",
							 "none, administrative (those that affect other sessions), or all (each lock, too). Evictions are always logged.",
							 &log_locks, LOG_ADMINISTRATIVE, log_locks_options,
							 PGC_SUSET, 0,
							 NULL, NULL, NULL);
}

bool
zklock_nodedata_logs(bool each_lock)
{
	return log_locks >= (each_lock ? LOG_ALL : LOG_ADMINISTRATIVE);
}

char *
zklock_nodedata_build(int64 token,...)
{
	StringInfoData json;
	const char *key;
	va_list		more;

	initStringInfo(&json);
	appendStringInfo(&json, "{\"client\":\"zklock\",\"format\":%d",
					 ZK_NODE_FORMAT);
	if (token != 0)
		appendStringInfo(&json, ",\"token\":" INT64_FORMAT, token);
	if (publish_identity)
		appendStringInfoString(&json, own_identity());
	va_start(more, token);
	while ((key = va_arg(more, const char *)) != NULL)
		append_json(&json, key, va_arg(more, const char *));
	va_end(more);
	appendStringInfoChar(&json, '}');
	return json.data;
}

/*
 * Who we are, as members of the JSON of each node.  Most of it takes a look at the
 * catalogs, so it is made once, until the application or the user is another
 * one, or a role or a database has got another name.
 */
static const char *
own_identity(void)
{
	StringInfoData json;
	char		host[256];

	if (Own.identity != NULL && Own.user == GetSessionUserId() &&
		strcmp(Own.application, application_name) == 0)
		return Own.identity;
	if (!Own.is_followed)
	{
		CacheRegisterSyscacheCallback(AUTHOID, forget_identity, (Datum) 0);
		CacheRegisterSyscacheCallback(DATABASEOID, forget_identity, (Datum) 0);
		Own.is_followed = true;
	}
	initStringInfo(&json);
	if (gethostname(host, sizeof(host)) != 0)
		host[0] = '\0';
	host[sizeof(host) - 1] = '\0';
	append_own(&json, "cluster", cluster_name);
	append_own(&json, "database", get_database_name(MyDatabaseId));
	append_own(&json, "user", GetUserNameFromId(GetSessionUserId(), true));
	append_own(&json, "application", application_name);
	append_own(&json, "host", host);
	appendStringInfo(&json, ",\"pid\":%d", MyProcPid);

	/* the look at the catalogs may have made it forgotten */
	forget_identity((Datum) 0, 0, 0);
	Own.user = GetSessionUserId();
	strlcpy(Own.application, application_name, sizeof(Own.application));
	Own.identity = MemoryContextStrdup(TopMemoryContext, json.data);
	pfree(json.data);
	return Own.identity;
}

static void
forget_identity(Datum arg, int cache, uint32 hash)
{
	if (Own.identity != NULL)
		pfree(Own.identity);
	Own.identity = NULL;
}

const char *
zklock_nodedata_of_parent(const char *path)
{
	return recipe_may_be_name(strrchr(path, '/') + 1) ? DATA_OF_NAME : NULL;
}

char *
zklock_nodedata_caller(void)
{
	Oid			acting = GetUserId();
	const char *user = GetUserNameFromId(GetSessionUserId(), true);
	const char *role = GetUserNameFromId(acting, true);
	const char *database = get_database_name(MyDatabaseId);
	SockAddr	address = MyBEEntry->st_clientaddr;
	char		host[NI_MAXHOST] = "";
	StringInfoData caller;

	/* a background worker has none */
	if (address.salen > 0)
		pg_getnameinfo_all(&address.addr, address.salen, host, sizeof(host),
						   NULL, 0, NI_NUMERICHOST | NI_NUMERICSERV);
	initStringInfo(&caller);
	appendStringInfo(&caller, "process %d of user \"%s\"", MyProcPid,
					 zklock_text_quotable_own(user != NULL ? user : ""));
	if (acting != GetSessionUserId() && role != NULL)
		appendStringInfo(&caller, " as role \"%s\"",
						 zklock_text_quotable_own(role));
	appendStringInfo(&caller, " in database \"%s\"",
					 zklock_text_quotable_own(database != NULL ? database : ""));
	if (host[0] != '\0')
		appendStringInfo(&caller, " from %s", host);
	return caller.data;
}

/* Everybody reads it, on one line. */
void
zklock_nodedata_check_line(const char *text, const char *noun,
						   const char *what, const char *hint)
{
	const char *detail = NULL;

	if (text[0] == '\0')
		detail = psprintf("The %s is empty.", noun);
	else if (strlen(text) > ZK_REASON_MAX)
		detail = psprintf("The %s has more than %d bytes.", noun,
						  ZK_REASON_MAX);
	for (const char *c = text; *c != '\0' && detail == NULL; c++)
		if ((unsigned char) *c < 0x20 || *c == 0x7f)
			detail = psprintf("The %s has a control character.", noun);
	if (detail != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid %s for %s", noun, what),
				 errdetail("%s", detail),
				 errhint("%s", hint)));
}

void
zklock_nodedata_make_guid(char guid[RECIPE_GUID_LEN + 1])
{
	/* the generator takes as long for many bytes as for a few */
	static uint8 random[32][16];
	static int	nleft = 0;

	if (nleft == 0)
	{
		if (!pg_strong_random(random, sizeof(random)))
			ereport(ERROR,
					(errcode(ERRCODE_INTERNAL_ERROR),
					 errmsg("could not generate random values")));
		nleft = lengthof(random);
	}
	recipe_format_guid(guid, random[--nleft]);
}

void
zklock_nodedata_parse(const char *data, int length, ZkNodeData *who)
{
	ZkNodeData	stranger = {.retain_ms = -1,.claimed_ms = -1,.term_ms = -1};
	bool		is_json;

	*who = stranger;
	if (length <= 0)
		return;
	is_json = parse_json(data, length, who);
	if (is_json && who->client != NULL && strcmp(who->client, "zklock") == 0)
		return;

	/* a stranger's; a record of a run may be anybody's */
	if (is_json)
		stranger = (ZkNodeData) {.retain_ms = who->retain_ms,.claimed_ms = who->claimed_ms,.term_ms = -1};
	stranger.text = zklock_text_printable_bytes(data,
												Min(length, TEXT_SHOWN_MAX));
	*who = stranger;
}

void
zklock_nodedata_read_own(ZkNodeData *who)
{
	char	   *data = zklock_nodedata_build(0, NULL);

	zklock_nodedata_parse(data, strlen(data), who);
	pfree(data);
}

bool
zklock_nodedata_is_known(const ZkNodeData *who)
{
	return who->pid != 0 || who->username != NULL;
}

bool
zklock_nodedata_is_by_us(const ZkNodeData *who)
{
	ZkNodeData	own;

	zklock_nodedata_read_own(&own);
	return is_same_text(who->host, own.host) && is_same_text(who->cluster, own.cluster) &&
		is_same_text(who->database, own.database) &&
		is_same_text(who->username, own.username);
}

char *
zklock_nodedata_describe(const ZkNodeData *who)
{
	StringInfoData line;

	initStringInfo(&line);
	if (who->pid != 0)
		appendStringInfo(&line, "process %d", who->pid);
	else
		appendStringInfo(&line, "%s client",
						 who->client != NULL ? who->client : "another");
	append_quoted(&line, " of user ", who->username);
	append_quoted(&line, " in database ", who->database);
	append_quoted(&line, " of cluster ", who->cluster);
	append_quoted(&line, " on host ", who->host);
	if (who->text != NULL)
		appendStringInfo(&line, " (%s)", zklock_nodedata_reason(who));
	return line.data;
}

char *
zklock_nodedata_reason(const ZkNodeData *who)
{
	StringInfoData reason;

	initStringInfo(&reason);
	append_quoted(&reason, "", who->text);
	return reason.data;
}

TimestampTz
zklock_nodedata_date(int64 unix_ms)
{
	return (Max(0, Min(unix_ms, DATE_MAX_MS)) - EPOCH_DIFFERENCE_MS) * 1000;
}

bool
zklock_nodedata_may_be_shown(void)
{
	return has_privs_of_role(GetSessionUserId(), ROLE_PG_MONITOR);
}

/* Also where neither says anything. */
static bool
is_same_text(const char *a, const char *b)
{
	if (a == NULL || b == NULL)
		return a == b;
	return strcmp(a, b) == 0;
}

/*
 * Append what is fit to be shown, in quotes that it cannot end, if there is
 * any.
 */
static void
append_quoted(StringInfo line, const char *introduction, const char *text)
{
	if (text == NULL)
		return;
	appendStringInfoString(line, introduction);
	escape_json(line, text);	/* which has no control characters to escape */
}

/* Append ,"key":"value" unless there is no value. */
static void
append_json(StringInfo json, const char *key, const char *value)
{
	if (value == NULL || value[0] == '\0')
		return;
	appendStringInfo(json, ",\"%s\":", key);
	escape_json(json, value);
}

/* The same of text in this database's encoding. */
static void
append_own(StringInfo json, const char *key, const char *value)
{
	if (value != NULL)
		append_json(json, key, zklock_text_to_utf8(value));
}

/* ---------------------------------------------------------------------
 * JSON.  The parser of PostgreSQL's frontend programs reports errors instead
 * of raising them, which jsonb input does not.
 * ---------------------------------------------------------------------
 */

typedef struct NodeDataParse
{
	JsonLexContext *lex;
	ZkNodeData *who;
	const char *key;			/* of the member being read at depth 1 */
} NodeDataParse;

static JSON_ACTION_RESULT
take_key(void *state, char *name, bool is_null)
{
	NodeDataParse *parse = state;

	if (parse->lex->lex_level == 1)
		parse->key = name;
	JSON_ACTION_RETURN;
}

static JSON_ACTION_RESULT
take_value(void *state, char *token, JsonTokenType type)
{
	static const struct
	{
		const char *key;
		size_t		offset;
	}			texts[] = {
		{"client", offsetof(ZkNodeData, client)},
		{"cluster", offsetof(ZkNodeData, cluster)},
		{"database", offsetof(ZkNodeData, database)},
		{"user", offsetof(ZkNodeData, username)},
		{"application", offsetof(ZkNodeData, application)},
		{"host", offsetof(ZkNodeData, host)},
		{"reason", offsetof(ZkNodeData, text)}
	};
	NodeDataParse *parse = state;
	ZkNodeData *who = parse->who;
	const char *key = parse->key;

	if (key == NULL || parse->lex->lex_level != 1)
		JSON_ACTION_RETURN;
	for (int i = 0; i < (int) lengthof(texts); i++)
		if (type == JSON_TOKEN_STRING && strcmp(key, texts[i].key) == 0)
			*(char **) ((char *) who + texts[i].offset) =
				zklock_text_printable(token);
	if (strcmp(key, "pid") == 0 && type == JSON_TOKEN_NUMBER)
		who->pid = atoi(token);
	else if (strcmp(key, "token") == 0 && type == JSON_TOKEN_NUMBER)
		who->token = strtoll(token, NULL, 10);
	else if (strcmp(key, "kept") == 0 && type == JSON_TOKEN_FALSE)
		who->says_held = true;
	else if (strcmp(key, "node") == 0 && type == JSON_TOKEN_STRING)
		who->is_name = strcmp(token, NODE_OF_NAME) == 0;
	else if (strcmp(key, "lock") == 0 && type == JSON_TOKEN_STRING)
		who->lock = pstrdup(token);
	else if (strcmp(key, "owner") == 0 && type == JSON_TOKEN_STRING)
		who->owner = pstrdup(token);
	else if (strcmp(key, "data") == 0 && type == JSON_TOKEN_STRING)
		who->note = pstrdup(token);
	else if (strcmp(key, "term") == 0)
		who->term_ms = read_count(token, type);
	else if (strcmp(key, "retain") == 0)
		who->retain_ms = read_count(token, type);
	else if (strcmp(key, "claimed") == 0)
		who->claimed_ms = read_count(token, type);
	JSON_ACTION_RETURN;
}

/* A string with a decimal number and nothing else; -1 if it is something else. */
static int64
read_count(const char *text, JsonTokenType type)
{
	char	   *end;
	int64		count;

	if (type != JSON_TOKEN_STRING || *text < '0' || *text > '9')
		return -1;
	errno = 0;
	count = strtoll(text, &end, 10);
	if (*end != '\0' || errno != 0)
		return -1;
	return count;
}

/* A backslash that is escaped itself begins none. */
static bool
has_unicode_escape(const char *data, int length)
{
	for (int i = 0; i + 1 < length; i++)
		if (data[i] == '\\' && data[++i] == 'u')
			return true;
	return false;
}

/*
 * Read the members that we know.  false if it is no JSON object, or one that
 * is not parsed here.
 */
static bool
parse_json(const char *data, int length, ZkNodeData *who)
{
	NodeDataParse state = {.who = who};
	JsonSemAction actions = {.semstate = &state};

	/*
	 * In a database that is not UTF-8 the lexer raises on escapes that the
	 * encoding has no character for.
	 */
	if (GetDatabaseEncoding() != PG_UTF8 && has_unicode_escape(data, length))
		return false;
	if (data[0] != '{' || length > JSON_MAX ||
		foreign_nesting(data, length) > JSON_NESTING_MAX ||
		!pg_verify_mbstr(PG_UTF8, data, length, true))
		return false;
	state.lex = make_json_lexer_compat(data, length, PG_UTF8);
	actions.object_field_start = take_key;
	actions.scalar = take_value;
	return pg_parse_json(state.lex, &actions) == JSON_SUCCESS;
}
