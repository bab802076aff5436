/*-------------------------------------------------------------------------
 *
 * text.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_TEXT_H
#define ZKLOCK_TEXT_H

#include "postgres.h"

/*
 * Text of this database in UTF-8, palloc'ed.  The names of roles and databases
 * are those of whichever database they were made in, so that the bytes may be
 * anything: what is no character here becomes an escape.
 */
extern char *zklock_text_to_utf8(const char *text);

/*
 * A copy of text that others have written, presumably in UTF-8, that may be
 * shown in this database and to its client.  Characters that are not to be
 * shown are escaped as "<U+202E>", bytes that are no character as "<FF>".  May
 * be called while an error is reported; then only ASCII is shown unless all is
 * in UTF-8.  NULL of NULL.
 */
extern char *zklock_text_printable(const char *text);

/* The same of so many bytes. */
extern char *zklock_text_printable_bytes(const char *data, int length);

/*
 * The same, to be put between the quotes of a message, which it does not end.
 */
extern char *zklock_text_quotable(const char *text);

/* The same of text that our own client gave, in this database's encoding. */
extern char *zklock_text_quotable_own(const char *text);

/*
 * Copy text of that encoding as far as it fits, and no part of a character.
 */
extern void zklock_text_clip(char *copy, int size, const char *text,
								 int encoding);

#endif							/* ZKLOCK_TEXT_H */
