/*-------------------------------------------------------------------------
 *
 * name_allowed.c
 *	  Says which names this session may use (zklock.names).
 *
 * The rule: what cannot be read allows nothing.  A list that somebody sets is
 * refused then.  One that is in force without that, because it was stored or
 * stands in the file, counts as the empty list: PostgreSQL's own default
 * behind it would allow everything.
 *
 * The check of a value reads no catalog: it runs in the postmaster, too, and
 * while a session begins.
 *
 *-------------------------------------------------------------------------
 */
#include "name_allowed.h"

#include "miscadmin.h"
#include "tcop/cmdtag.h"
#include "tcop/pquery.h"
#include "utils/guc.h"
#include "utils/portal.h"
#include "utils/varlena.h"

#include "compat.h"
#include "name_pattern.h"

/* Longest list, in bytes. */
#define LIST_MAX 8192

/*
 * zklock.names: patterns of the names that this session may use.  Its text is
 * for SHOW; what counts is what was read of it.
 */
static char *names_setting;
static const NamePatterns *patterns;

static const char *read_list(NamePatterns *list, const char *text);
static const char *reason_of(NamePatternError error, const char *pattern);
static bool is_given_by_command(GucSource source);
static bool check_names(char **newval, void **extra, GucSource source);
static void assign_names(const char *newval, void *extra);

void
zklock_name_allowed_init(void)
{
	DefineCustomStringVariable("zklock.names",
							   "Names of locks and jobs that a session may use.",
							   "Patterns with commas in between: pay is that name, pay/* also all names below it, * all names. A pattern that begins with ! takes away. An empty list allows nothing.",
							   &names_setting, "*",
							   PGC_SUSET, 0,
							   check_names, assign_names, NULL);
}

bool
zklock_name_is_allowed(const char *utf8)
{
	return name_patterns_allow(patterns, utf8);
}

bool
zklock_name_is_reached(const char *utf8)
{
	return name_patterns_reach(patterns, utf8);
}

void
zklock_name_refuse(const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("lock name \"%s\" is not among those that this session may use (zklock.names)",
					name),
			 errhint("A superuser sets zklock.names with ALTER ROLE or ALTER DATABASE. It counts from the next login on.")));
}

/* Read the list.  NULL, or why it cannot be read. */
static const char *
read_list(NamePatterns *list, const char *text)
{
	char	   *copy;
	List	   *words;
	const char *reason = NULL;

	if (strlen(text) > LIST_MAX)
		return psprintf("The list has more than %d bytes.", LIST_MAX);
	copy = pstrdup(text);
	if (!SplitGUCList(copy, ',', &words))
		reason = "Patterns need a comma in between, and double quotes around a comma or a space.";
	foreach_ptr(const char, word, words)
	{
		NamePatternError error = NAME_PATTERN_OK;

		if (reason == NULL)
			error = name_pattern_add(list, word);
		if (error != NAME_PATTERN_OK)
			reason = reason_of(error, word);
	}
	list_free(words);
	pfree(copy);
	return reason;
}

static const char *
reason_of(NamePatternError error, const char *pattern)
{
	switch (error)
	{
		case NAME_PATTERN_OK:
			break;
		case NAME_PATTERN_EMPTY:
			return "A pattern is empty.";
		case NAME_PATTERN_CHARACTER:
			return "A pattern has a character that is not printable ASCII. Write it as zk_escape() writes characters that cannot be shown, for example \"<U+00E9>\".";
		case NAME_PATTERN_ESCAPE:
			return psprintf("In pattern \"%s\" a \"<\" does not begin an escape such as \"<U+00E9>\". Write \"<\" itself as \"<U+003C>\".",
							pattern);
		case NAME_PATTERN_STAR:
			return psprintf("In pattern \"%s\" a star is not the whole last component. Write a star of a name as \"<U+002A>\".",
							pattern);
		case NAME_PATTERN_NOT:
			return psprintf("Pattern \"%s\" has two exclamation marks. Write one that begins a name as \"<U+0021>\".",
							pattern);
		case NAME_PATTERN_NAME:
			return psprintf("No lock can have the name in pattern \"%s\".",
							pattern);
	}
	return "";
}

/*
 * Is somebody there to whom an error can be told: of SET, and ALTER ROLE,
 * DATABASE or SYSTEM?  The last one, which runs in no transaction block and no
 * function, looks at the value as if it stood in the file.
 */
static bool
is_given_by_command(GucSource source)
{
	return source >= PGC_S_INTERACTIVE ||
		(source == PGC_S_FILE && ActivePortal != NULL &&
		 ActivePortal->commandTag == CMDTAG_ALTER_SYSTEM);
}

static bool
check_names(char **newval, void **extra, GucSource source)
{
	size_t		length = Min(strlen(*newval), LIST_MAX);
	NamePatterns *list = guc_malloc_compat(NAME_PATTERNS_SIZE(length));
	bool		is_told_elsewhere = source == PGC_S_FILE && IsUnderPostmaster;
	const char *reason;
	char	   *empty;

	if (list == NULL)
		return false;
	list->size = 0;
	reason = read_list(list, *newval);
	if (reason != NULL && is_given_by_command(source))
	{
		guc_free_compat(list);
		GUC_check_errdetail("%s", reason);
		GUC_check_errhint("Example: \"pay/*, shared/*, !shared/hr/*\".");
		return false;
	}
	*extra = list;
	if (reason == NULL)
		return true;

	/* of the file the postmaster tells */
	ereport(is_told_elsewhere ? DEBUG2 : WARNING,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("a value of zklock.names cannot be read, and allows no name"),
			 errdetail("%s", reason),
			 errhint("Example: \"pay/*, shared/*, !shared/hr/*\".")));
	list->size = 0;
	empty = guc_strdup_compat("");
	if (empty == NULL)
		return true;
	guc_free_compat(*newval);
	*newval = empty;
	return true;
}

static void
assign_names(const char *newval, void *extra)
{
	patterns = extra;
}
