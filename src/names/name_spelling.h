/*-------------------------------------------------------------------------
 *
 * name_spelling.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_NAME_SPELLING_H
#define ZKLOCK_NAME_SPELLING_H

#include "postgres.h"

#include "compat.h"

/*
 * The one spelling of a name, slot or prefix in this database's encoding,
 * palloc'ed.  In some encodings a character has several sequences of bytes
 * (EUC_TW, EUC_JP, EUC_JIS_2004).  They are one in UTF-8, so they are the same
 * znode: what is compared or kept by its bytes has to be in this spelling.
 * What SQL functions are given is, if it comes through args.h.  What others
 * have written into a table need not be.
 *
 * Raises 42602 if a character has no way to UTF-8 and back; the error calls the
 * text what, "lock name" for example.  A text that is too long for a name, and
 * one of ASCII, comes back as it is.
 */
extern char *zklock_name_spell(const char *what, const char *text);

/*
 * What a column has of a name, slot or owner that others may have written,
 * presumably in UTF-8; palloc'ed, NULL of NULL.  It is the text itself, which
 * can be compared, and given to functions, also if it has characters that
 * nobody sees (zk_escape() is for them).  With control characters, and if this
 * database or its client cannot have it, it is as
 * zklock_text_printable() shows it, and no name.
 */
extern char *zklock_name_shown(const char *utf8);

/* The name in UTF-8, palloc'ed; NULL if a character has no way there. */
extern char *zklock_name_utf8(const char *name);

/* Raise 42602 for such a text; what: "lock name" or "slot", for example. */
pg_noreturn extern void zklock_name_raise_no_utf8(const char *what);

/* What an error calls it, in short. */
extern const char *zklock_name_noun(const char *what);

#endif							/* ZKLOCK_NAME_SPELLING_H */
