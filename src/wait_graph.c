/*-------------------------------------------------------------------------
 *
 * wait_graph.c
 *	  SQL functions that show who waits for whom, over all clusters.
 *
 * Unlike a waiter that looks for a deadlock (deadlock.c) they ask for
 * everybody: all queues in which somebody waits.  What is read is of several
 * moments.  Whoever waits is shown with each holder that it waits for, not
 * with those who wait ahead of it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "args.h"
#include "board.h"
#include "deadlock.h"
#include "nodedata.h"
#include "queue.h"
#include "tree.h"

/* Somebody who waits, or is waited for; strings may be shown. */
typedef struct Party
{
	int64		session;		/* 0: none, of a hold for example */
	char	   *text;			/* its node, if it has no session */
	const char *style;			/* of its node */
	ZkNodeData	who;
} Party;

/* waiter waits for blocker. */
typedef struct Wait
{
	int			waiter;			/* index of a party */
	int			blocker;
	char	   *lock;			/* name; NULL: it waits in PostgreSQL */
	char	   *what;			/* what it waits for, in words */
	TimestampTz since;			/* 0: unknown */
} Wait;

/* All that there is to show. */
typedef struct Waits
{
	Party	   *parties;
	int			nparties;
	int			parties_size;
	Wait	   *waits;
	int			nwaits;
	int			waits_size;
} Waits;

PG_FUNCTION_INFO_V1(zk_waits);
PG_FUNCTION_INFO_V1(zk_blocking);
PG_FUNCTION_INFO_V1(zk_wait_graph);

static Waits *read_waits(void);
static void read_queue(Waits *waits, const char *lock);
static void read_postgres(Waits *waits);
static int	party_of_entry(Waits *waits, const char *lock,
						   const ZkQueueEntry *entry);
static int	enter_party(Waits *waits, int64 session, const char *text);
static Wait *add_wait(Waits *waits, int waiter, int blocker);
static void put_wait(ReturnSetInfo *result, const Waits *waits,
					 const Wait *wait);
static int	put_party(const Party *party, Datum *values, bool *nulls);
static bool is_process(const Party *party, int pid);
static char *draw_dot(const Waits *waits);
static char *draw_mermaid(const Waits *waits);
static char *label(const Party *party);
static void append_dot(StringInfo text, const char *label);
static void append_mermaid(StringInfo text, const char *label);

/* ---------------------------------------------------------------------
 * SQL functions
 * ---------------------------------------------------------------------
 */

Datum
zk_waits(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = zklock_args_begin_rows(fcinfo);
	const Waits *waits = read_waits();

	for (int i = 0; i < waits->nwaits; i++)
		put_wait(result, waits, &waits->waits[i]);
	return (Datum) 0;
}

Datum
zk_blocking(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = zklock_args_begin_rows(fcinfo);
	int			pid;
	const Waits *waits;

	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("process must not be null")));
	pid = PG_GETARG_INT32(0);
	waits = read_waits();
	for (int i = 0; i < waits->nwaits; i++)
	{
		const Wait *wait = &waits->waits[i];
		Datum		values[8] = {0};
		bool		nulls[8] = {0};

		if (!is_process(&waits->parties[wait->waiter], pid))
			continue;
		values[0] = CStringGetTextDatum(wait->what);
		put_party(&waits->parties[wait->blocker], &values[1], &nulls[1]);
		tuplestore_putvalues(result->setResult, result->setDesc, values,
							 nulls);
	}
	return (Datum) 0;
}

Datum
zk_wait_graph(PG_FUNCTION_ARGS)
{
	char	   *format = zklock_args_text(fcinfo, 0, "format");

	if (strcmp(format, "dot") != 0 && strcmp(format, "mermaid") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("format \"%s\" is not known", format),
				 errhint("The formats are \"dot\" and \"mermaid\".")));
	PG_RETURN_TEXT_P(cstring_to_text(strcmp(format, "dot") == 0 ?
									 draw_dot(read_waits()) :
									 draw_mermaid(read_waits())));
}

/* ---------------------------------------------------------------------
 * Reading
 * ---------------------------------------------------------------------
 */

/* Raises as the session does, and 55P03 at lock_timeout. */
static Waits *
read_waits(void)
{
	Waits	   *waits = palloc0(sizeof(*waits));
	int			nlocks;
	const ZkLockCount *locks = zklock_count_locks("", &nlocks);

	for (int i = 0; i < nlocks; i++)
		if (locks[i].nwaiters > 0)
			read_queue(waits, zklock_nodedata_printable(locks[i].name));
	read_postgres(waits);
	return waits;
}

/* A name that this database's encoding does not have finds no queue. */
static void
read_queue(Waits *waits, const char *lock)
{
	int			nentries;
	const ZkQueueEntry *entries = zklock_read_queue(lock, &nentries);

	for (int i = 0; i < nentries; i++)
	{
		if (entries[i].position == 0 || entries[i].is_holder)
			continue;
		for (int j = 0; j < i; j++)
		{
			Wait	   *wait;
			int			waiter;
			int			blocker;

			if (!entries[j].is_holder)
				continue;
			waiter = party_of_entry(waits, lock, &entries[i]);
			blocker = party_of_entry(waits, lock, &entries[j]);
			wait = add_wait(waits, waiter, blocker);
			wait->lock = pstrdup(lock);
			wait->what = psprintf("%s on ZooKeeper lock \"%s\"",
								  entries[i].mode == RECIPE_SHARED ?
								  "ShareLock" : "ExclusiveLock", lock);
			wait->since = entries[i].since;
		}
	}
}

static void
read_postgres(Waits *waits)
{
	ListCell   *cell;

	foreach(cell, zklock_deadlock_waits_in_postgres())
	{
		const ZkWaitInPostgres *fact = lfirst(cell);
		int			waiter = enter_party(waits, fact->waiter, NULL);
		int			blocker = enter_party(waits, fact->blocker, NULL);
		Wait	   *wait = add_wait(waits, waiter, blocker);

		wait->what = fact->what;
	}
}

static int
party_of_entry(Waits *waits, const char *lock, const ZkQueueEntry *entry)
{
	int			index =
		enter_party(waits, entry->session_id,
					psprintf("%s/%s", lock,
							 zklock_nodedata_printable(entry->node)));
	Party	   *party = &waits->parties[index];

	if (party->style == NULL)
	{
		party->style = recipe_style_name(entry->style);
		party->who = entry->who;
	}
	return index;
}

/* The party of a session or, if that is 0, of a node of that name. */
static int
enter_party(Waits *waits, int64 session, const char *text)
{
	Party	   *party;

	Assert(session != 0 || text != NULL);
	for (int i = 0; i < waits->nparties; i++)
		if (waits->parties[i].session == session &&
			(session != 0 || strcmp(waits->parties[i].text, text) == 0))
			return i;
	if (waits->nparties == waits->parties_size)
	{
		waits->parties_size = Max(16, 2 * waits->parties_size);
		waits->parties = waits->parties == NULL ?
			palloc(waits->parties_size * sizeof(Party)) :
			repalloc_huge(waits->parties, waits->parties_size * sizeof(Party));
	}
	party = &waits->parties[waits->nparties];
	memset(party, 0, sizeof(*party));
	party->session = session;
	party->text = session != 0 ? NULL : pstrdup(text);
	return waits->nparties++;
}

static Wait *
add_wait(Waits *waits, int waiter, int blocker)
{
	Wait	   *wait;

	CHECK_FOR_INTERRUPTS();
	if (waits->nwaits == waits->waits_size)
	{
		waits->waits_size = Max(16, 2 * waits->waits_size);
		waits->waits = waits->waits == NULL ?
			palloc(waits->waits_size * sizeof(Wait)) :
			repalloc_huge(waits->waits, waits->waits_size * sizeof(Wait));
	}
	wait = &waits->waits[waits->nwaits++];
	memset(wait, 0, sizeof(*wait));
	wait->waiter = waiter;
	wait->blocker = blocker;
	return wait;
}

/* ---------------------------------------------------------------------
 * Rows
 * ---------------------------------------------------------------------
 */

static void
put_wait(ReturnSetInfo *result, const Waits *waits, const Wait *wait)
{
	Datum		values[17] = {0};
	bool		nulls[17] = {0};
	int			column = put_party(&waits->parties[wait->waiter], values, nulls);

	values[column] = CStringGetTextDatum(wait->what);
	column++;
	values[column] = zklock_args_text_or_null(wait->lock, &nulls[column]);
	column++;
	values[column] = TimestampTzGetDatum(wait->since);
	nulls[column] = wait->since == 0;
	column++;
	put_party(&waits->parties[wait->blocker], &values[column], &nulls[column]);
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/* Result: how many columns. */
static int
put_party(const Party *party, Datum *values, bool *nulls)
{
	values[0] = zklock_args_text_or_null(party->who.cluster, &nulls[0]);
	values[1] = zklock_args_text_or_null(party->who.database, &nulls[1]);
	values[2] = Int32GetDatum(party->who.pid);
	nulls[2] = party->who.pid == 0;
	values[3] = zklock_args_text_or_null(party->who.username, &nulls[3]);
	values[4] = zklock_args_text_or_null(party->who.host, &nulls[4]);
	values[5] = zklock_args_text_or_null(party->session == 0 ? NULL :
										 zklock_args_session_id(party->session),
										 &nulls[5]);
	values[6] = zklock_args_text_or_null(party->who.client != NULL ?
										 party->who.client : party->style,
										 &nulls[6]);
	return 7;
}

/* Is that a process of this cluster, by the board, or by what it says? */
static bool
is_process(const Party *party, int pid)
{
	int64		session;

	if (party->session == 0)
		return false;
	if (zklock_board_session_of(pid, &session))
		return party->session == session;
	return party->who.pid == pid && party->who.host != NULL &&
		zklock_nodedata_is_here(&party->who);
}

/* ---------------------------------------------------------------------
 * Pictures
 * ---------------------------------------------------------------------
 */

static char *
draw_dot(const Waits *waits)
{
	StringInfoData text;

	initStringInfo(&text);
	appendStringInfoString(&text, "digraph waits {\n\trankdir=LR;\n\tnode [shape=box];\n");
	for (int i = 0; i < waits->nparties; i++)
	{
		appendStringInfo(&text, "\tn%d [label=\"", i + 1);
		append_dot(&text, label(&waits->parties[i]));
		appendStringInfoString(&text, "\"];\n");
	}
	for (int i = 0; i < waits->nwaits; i++)
	{
		const Wait *wait = &waits->waits[i];

		appendStringInfo(&text, "\tn%d -> n%d [label=\"", wait->waiter + 1,
						 wait->blocker + 1);
		append_dot(&text, wait->lock != NULL ? wait->lock : wait->what);
		appendStringInfo(&text, "\"%s];\n",
						 wait->lock != NULL ? "" : ", style=dashed");
	}
	appendStringInfoString(&text, "}\n");
	return text.data;
}

static char *
draw_mermaid(const Waits *waits)
{
	StringInfoData text;

	initStringInfo(&text);
	appendStringInfoString(&text, "flowchart LR\n");
	for (int i = 0; i < waits->nparties; i++)
	{
		appendStringInfo(&text, "\tn%d[\"", i + 1);
		append_mermaid(&text, label(&waits->parties[i]));
		appendStringInfoString(&text, "\"]\n");
	}
	for (int i = 0; i < waits->nwaits; i++)
	{
		const Wait *wait = &waits->waits[i];

		appendStringInfo(&text, "\tn%d %s|\"", wait->waiter + 1,
						 wait->lock != NULL ? "-->" : "-.->");
		append_mermaid(&text, wait->lock != NULL ? wait->lock : wait->what);
		appendStringInfo(&text, "\"| n%d\n", wait->blocker + 1);
	}
	return text.data;
}

/* Who it is, in two lines. */
static char *
label(const Party *party)
{
	const ZkNodeData *who = &party->who;
	StringInfoData text;

	initStringInfo(&text);
	if (who->pid != 0)
		appendStringInfo(&text, "process %d", who->pid);
	else if (party->session != 0)
		appendStringInfo(&text, "session 0x%llx",
						 (unsigned long long) party->session);
	else
		appendStringInfoString(&text, party->text);
	if (who->cluster != NULL || who->database != NULL)
		appendStringInfo(&text, "\n%s%s%s",
						 who->cluster != NULL ? who->cluster : "",
						 who->cluster != NULL && who->database != NULL ?
						 ", " : "",
						 who->database != NULL ? who->database : "");
	else if (who->client == NULL && party->style != NULL)
		appendStringInfo(&text, "\n%s", party->style);
	return text.data;
}

/* Between the quotes of DOT. */
static void
append_dot(StringInfo text, const char *label)
{
	for (; *label != '\0'; label++)
	{
		if (*label == '"' || *label == '\\')
			appendStringInfoChar(text, '\\');
		if (*label == '\n')
			appendStringInfoString(text, "\\n");
		else
			appendStringInfoChar(text, *label);
	}
}

/*
 * Between the quotes of Mermaid, which reads HTML and Markdown there: as the
 * entities that it knows.
 */
static void
append_mermaid(StringInfo text, const char *label)
{
	for (; *label != '\0'; label++)
	{
		if (*label == '\n')
			appendStringInfoString(text, "<br>");
		else if (strchr("\"#<>&`*\\", *label) != NULL)
			appendStringInfo(text, "#%d;", (unsigned char) *label);
		else
			appendStringInfoChar(text, *label);
	}
}
