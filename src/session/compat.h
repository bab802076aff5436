/*-------------------------------------------------------------------------
 *
 * compat.h
 *	  What differs between the releases of PostgreSQL.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_COMPAT_H
#define ZKLOCK_COMPAT_H

#include "postgres.h"

#if PG_VERSION_NUM < 150000
#error "zklock needs PostgreSQL 15 or a later release"
#endif

#include "common/jsonapi.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "postmaster/bgworker_internals.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"
#if PG_VERSION_NUM >= 180000
#include "storage/waiteventset.h"
#endif
#if PG_VERSION_NUM >= 190000
#include "utils/lsyscache.h"	/* get_database_name() */
#else
#include "commands/dbcommands.h"
#endif

/* 16: the semantic actions of a JSON parser return whether they succeeded. */
#if PG_VERSION_NUM >= 160000
#define JSON_ACTION_RESULT JsonParseErrorType
#define JSON_ACTION_RETURN return JSON_SUCCESS
#else
#define JSON_ACTION_RESULT void
#define JSON_ACTION_RETURN return
#endif

/* 17 */
#if PG_VERSION_NUM < 170000
#include "postmaster/autovacuum.h"
#define AmAutoVacuumWorkerProcess() IsAutoVacuumWorkerProcess()
#define foreach_ptr(type, var, list) \
	for (type *var = NULL, *var##__once = (type *) 1; var##__once != NULL; \
		 var##__once = NULL) \
		for (ForEachState var##__state = {(list), 0}; \
			 var##__state.i < list_length(var##__state.l) && \
			 (var = list_nth(var##__state.l, var##__state.i), true); \
			 var##__state.i++)
#endif

/* 18: in front of a declaration, not behind it. */
#if PG_VERSION_NUM < 180000
#define pg_noreturn pg_attribute_noreturn()
#endif

/* 16 */
#if PG_VERSION_NUM < 160000
#define pg_nodiscard __attribute__((warn_unused_result))
#endif

/* 18 */
#if PG_VERSION_NUM < 180000
#define log_lock_failures false
#endif

/* 19: what a handler with SIGNAL_ARGS hands on to another one. */
#if PG_VERSION_NUM >= 190000
#define SIGNAL_ARGS_HANDED_ON postgres_signal_arg, pg_siginfo
#else
#define SIGNAL_ARGS_HANDED_ON postgres_signal_arg
#endif

/*
 * 19: instead of a comment, which not every level of -Wimplicit-fallthrough
 * reads.
 */
#ifndef pg_fallthrough
#define pg_fallthrough __attribute__((fallthrough))
#endif

/*
 * 16: lists are of another make.  Loops over what a process holds, or waits
 * for, in one partition of the lock table.
 */
#if PG_VERSION_NUM >= 160000
static inline PROCLOCK *
next_proc_lock_compat(PGPROC *proc, int partition, PROCLOCK *last)
{
	dlist_head *list = &proc->myProcLocks[partition];
	dlist_node *node = last == NULL ? &list->head : &last->procLink;

	return dlist_is_empty(list) || node->next == &list->head ? NULL :
		dlist_container(PROCLOCK, procLink, node->next);
}
#else
static inline PROCLOCK *
next_proc_lock_compat(PGPROC *proc, int partition, PROCLOCK *last)
{
	SHM_QUEUE  *list = &proc->myProcLocks[partition];

	return (PROCLOCK *) SHMQueueNext(list, last == NULL ? list : &last->procLink,
									 offsetof(PROCLOCK, procLink));
}
#endif
#define foreach_proc_lock_compat(lock, proc, partition) \
	for (PROCLOCK *lock = next_proc_lock_compat(proc, partition, NULL); \
		 lock != NULL; \
		 lock = next_proc_lock_compat(proc, partition, lock))

/* 17: the context is allocated if there is none, and the text is const. */
static inline JsonLexContext *
make_json_lexer_compat(const char *json, int length, int encoding)
{
#if PG_VERSION_NUM >= 170000
	return makeJsonLexContextCstringLen(NULL, json, length, encoding, true);
#else
	return makeJsonLexContextCstringLen(unconstify(char *, json), length,
										encoding, true);
#endif
}

/* 18: the hook of ExecutorRun() has one parameter less. */
#if PG_VERSION_NUM >= 180000
#define EXECUTOR_RUN_PARAMETERS_COMPAT \
	QueryDesc *query, ScanDirection direction, uint64 count
#define EXECUTOR_RUN_ARGUMENTS_COMPAT query, direction, count
#else
#define EXECUTOR_RUN_PARAMETERS_COMPAT \
	QueryDesc *query, ScanDirection direction, uint64 count, bool execute_once
#define EXECUTOR_RUN_ARGUMENTS_COMPAT query, direction, count, execute_once
#endif

/* 17: waits of extensions have names. */
static inline uint32
WaitEventExtensionNew_compat(const char *name)
{
#if PG_VERSION_NUM >= 170000
	return WaitEventExtensionNew(name);
#else
	(void) name;
	return PG_WAIT_EXTENSION;
#endif
}

/* 17: a set of events has an owner, none for one that outlives transactions. */
static inline WaitEventSet *
CreateWaitEventSet_compat(int nevents)
{
#if PG_VERSION_NUM >= 170000
	return CreateWaitEventSet(NULL, nevents);
#else
	return CreateWaitEventSet(TopMemoryContext, nevents);
#endif
}

/* 16: what a check hook leaves for the assign hook.  NULL without memory. */
static inline void *
guc_malloc_compat(size_t size)
{
#if PG_VERSION_NUM >= 160000
	return guc_malloc(LOG, size);
#else
	return malloc(size);
#endif
}

/* 16: likewise, of a value that the hook puts in place of another one. */
static inline char *
guc_strdup_compat(const char *text)
{
#if PG_VERSION_NUM >= 160000
	return guc_strdup(LOG, text);
#else
	return strdup(text);
#endif
}

static inline void
guc_free_compat(void *memory)
{
#if PG_VERSION_NUM >= 160000
	guc_free(memory);
#else
	free(memory);
#endif
}

/* 17: it is no member of PGPROC.  Needs MyProc. */
static inline int
MyProcNumber_compat(void)
{
#if PG_VERSION_NUM >= 170000
	return MyProcNumber;
#else
	return MyProc->pgprocno;
#endif
}

/*
 * 18: the list of registered workers is doubly linked.  For the postmaster:
 * has it one of that name?
 */
static inline bool
is_worker_registered_compat(const char *name)
{
#if PG_VERSION_NUM >= 180000
	dlist_iter	iter;

	dlist_foreach(iter, &BackgroundWorkerList)
		if (strcmp(dlist_container(RegisteredBgWorker, rw_lnode,
								   iter.cur)->rw_worker.bgw_name, name) == 0)
		return true;
#else
	slist_iter	iter;

	slist_foreach(iter, &BackgroundWorkerList)
		if (strcmp(slist_container(RegisteredBgWorker, rw_lnode,
								   iter.cur)->rw_worker.bgw_name, name) == 0)
		return true;
#endif
	return false;
}

#endif							/* ZKLOCK_COMPAT_H */
