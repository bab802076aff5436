/*-------------------------------------------------------------------------
 *
 * foreign.h
 *
 * libc only.
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_FOREIGN_H
#define ZKLOCK_FOREIGN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* In place of a character's number: this byte begins none. */
#define FOREIGN_NO_CHARACTER UINT32_MAX

/* Room for what stands for a character that is not printed, with its NUL. */
#define FOREIGN_ESCAPE_SIZE 16

/*
 * Take the first character off text in UTF-8: its number is set, its length
 * in bytes is the result.  If there is none, FOREIGN_NO_CHARACTER and 1.
 * length is greater than 0.
 */
extern size_t foreign_take(const char *text, size_t length, uint32_t *number);

/*
 * May the character be printed as it is?  Not if it controls a terminal, ends
 * a line, changes the direction of text, or is invisible.
 */
extern bool foreign_is_plain(uint32_t number);

/*
 * What is printed instead: "<U+202E>", or of a byte that is no character
 * "<FF>".
 */
extern void foreign_escape(char escape[FOREIGN_ESCAPE_SIZE], uint32_t number,
						   unsigned char first_byte);

/*
 * How deep brackets and braces are nested in a text, at most.  Those in
 * strings count, too.
 */
extern int	foreign_nesting(const char *text, size_t length);

#endif							/* ZKLOCK_FOREIGN_H */
